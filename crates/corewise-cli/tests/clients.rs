//! Third-party clients, unchanged, must work.
//!
//! `.ci/install` installs them. `COREWISE_TEST_PYTHON` names another Python interpreter that has
//! them, `COREWISE_TEST_NODE_MODULES` another folder of Node.js modules.

#[macro_use]
mod common;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::{Engine, skip};

for_all_engines_at_once! {
    pymemcache_works
    pylibmc_works
    node_memcached_works
    memccapable_is_content
}

/// Where `.ci/install` installs to.
fn installed(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target")).join(name)
}

fn chosen_or(variable: &str, default: PathBuf) -> PathBuf {
    std::env::var_os(variable).map_or(default, PathBuf::from)
}

fn script(name: &str) -> String {
    format!("{}/tests/clients/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn python() -> Command {
    let python = installed("ci-venv/bin/python");
    Command::new(chosen_or("COREWISE_TEST_PYTHON", python))
}

fn node() -> Command {
    let modules = chosen_or(
        "COREWISE_TEST_NODE_MODULES",
        installed("ci-node/node_modules"),
    );
    let mut node = Command::new("node");
    node.env("NODE_PATH", modules);
    node
}

/// Whether a command can be run and succeeds.
fn works(command: &mut Command) -> bool {
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Runs a client against a new server. The client prints what it checks, and fails if a check
/// fails.
fn run(engine: Engine, client: &mut Command) {
    let mut server = engine.start();
    let port = server.address().port().to_string();
    let output = client.arg(port).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complained}");
    server.assert_well();
}

fn run_python(engine: Engine, module: &str, name: &str) {
    if !works(python().args(["-c", &format!("import {module}")])) {
        return skip(&format!("{module} is not installed for Python"));
    }
    run(engine, python().arg(script(name)));
}

fn pymemcache_works(engine: Engine) {
    run_python(engine, "pymemcache", "with_pymemcache.py");
}

fn pylibmc_works(engine: Engine) {
    run_python(engine, "pylibmc", "with_pylibmc.py");
}

fn node_memcached_works(engine: Engine) {
    if !works(node().args(["-e", "require('memcached')"])) {
        return skip("the memcached package is not installed for node");
    }
    run(engine, node().arg(script("with_node_memcached.js")));
}

/// libmemcached's test program for servers.
fn memccapable_is_content(engine: Engine) {
    // It has no option without effect, and rejects `-?`.
    if Command::new("memccapable").arg("-?").output().is_err() {
        return skip("memccapable is not installed");
    }
    run(
        engine,
        Command::new("memccapable").args(["-a", "-h", "127.0.0.1", "-t", "20", "-p"]),
    );
}
