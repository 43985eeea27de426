//! Third-party clients, unchanged, must work.
//!
//! `.ci/install` installs them. `COREWISE_TEST_PYTHON` names another Python interpreter that has
//! them, `COREWISE_TEST_NODE_MODULES` another folder of Node.js modules.

use crate::common;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::resp::request;
use common::{Engine, TestServer, concerns_the_server_under_test, skip};

for_all_engines_at_once! {
    pymemcache_works
    pylibmc_works
    node_memcached_works
    memccapable_is_content
}

/// Where `.ci/install` installs to.
fn installed(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../target")).join(name)
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
    let server = engine.start();
    let port = server.address().port().to_string();
    let output = client.arg(port).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complained}");
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

/// Servers that clients of Redis talk to: one of each engine, and one that asks for a password.
struct RespServers {
    open: Vec<TestServer>,
    with_users: TestServer,
    _folder: tempfile::TempDir,
}

impl RespServers {
    fn start() -> Self {
        let listen = ["--resp", "127.0.0.1:0"];
        let folder = tempfile::tempdir().unwrap();
        let users = folder.path().join("users");
        std::fs::write(&users, "ann:secret\ndefault:pass\n").unwrap();
        let auth_file = ["--auth-file", users.to_str().unwrap()];
        let start = |name: &&str| TestServer::with(&[&["--engine", name], &listen[..]].concat());
        Self {
            open: Engine::TESTED.iter().map(start).collect(),
            with_users: TestServer::with(&[&listen[..], &auth_file].concat()),
            _folder: folder,
        }
    }

    /// Runs a client once against all of them. Its arguments are the port of the server that asks
    /// for a password, and the ports of the others.
    fn run(&mut self, client: &mut Command) {
        client.arg(port(&self.with_users));
        client.args(self.open.iter().map(port));
        succeeds(client);
    }
}

/// The port of a server's listener for RESP.
fn port(server: &TestServer) -> String {
    server.resp_address().port().to_string()
}

/// Runs a command that must succeed, and returns what it printed.
fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complained}");
    said
}

#[test]
fn redis_py_works() {
    if !concerns_the_server_under_test() {
        return;
    }
    if !works(python().args(["-c", "import redis"])) {
        return skip("redis is not installed for Python");
    }
    RespServers::start().run(python().arg(script("with_redis_py.py")));
}

fn run_node(package: &str, name: &str) {
    if !concerns_the_server_under_test() {
        return;
    }
    if !works(node().args(["-e", &format!("require('{package}')")])) {
        return skip(&format!("the {package} package is not installed for node"));
    }
    RespServers::start().run(node().arg(script(name)));
}

#[test]
fn node_redis_works() {
    run_node("redis", "with_node_redis.js");
}

#[test]
fn ioredis_works() {
    run_node("ioredis", "with_ioredis.js");
}

/// `redis-cli` with these arguments, for a server.
fn redis_cli(server: &TestServer, arguments: &[&str]) -> Command {
    let mut cli = Command::new("redis-cli");
    // Without this, replies to a pipe have no types.
    cli.args(["-e", "--no-raw", "-p", &port(server)]);
    cli.args(arguments);
    cli
}

/// Runs a command with this input, and returns what it printed.
fn fed(command: &mut Command, input: &[u8]) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn redis_cli_works() {
    if !concerns_the_server_under_test() {
        return;
    }
    if !works(Command::new("redis-cli").arg("--version")) {
        return skip("redis-cli is not installed");
    }
    let servers = RespServers::start();
    for server in &servers.open {
        let says = |arguments: &[&str], reply: &str| {
            assert_eq!(succeeds(&mut redis_cli(server, arguments)), reply);
        };
        says(&["SET", "k", "hello\r\n"], "OK\n");
        says(&["GET", "k"], "\"hello\\r\\n\"\n");
        says(&["-3", "GET", "nothing"], "(nil)\n");
        says(
            &["-r", "3", "INCR", "n"],
            "(integer) 1\n(integer) 2\n(integer) 3\n",
        );
        let lines = b"set a 1\nincr a\nnosuch\nmget a nothing\nttl a\n";
        let said = fed(
            redis_cli(server, &[]).env("REDISCLI_HISTFILE", "/dev/null"),
            lines,
        );
        let error = "(error) ERR unknown command 'nosuch', with args beginning with: ";
        let multiget = "1) \"2\"\n2) (nil)\n";
        assert_eq!(
            said,
            format!("OK\n(integer) 2\n{error}\n{multiget}(integer) -1\n")
        );
        // An error is told in the exit status.
        let refused = redis_cli(server, &["INCR", "k"]).output().unwrap();
        assert!(!refused.status.success());
        assert!(fed(&mut redis_cli(server, &["-x", "SET", "piped"]), b"\0\xff").starts_with("OK"));
        says(&["STRLEN", "piped"], "(integer) 2\n");
        mass_insertion(server);
    }
    let refused =
        succeeds(Command::new("redis-cli").args(["-p", &port(&servers.with_users), "GET", "k"]));
    assert!(refused.starts_with("NOAUTH"), "{refused}");
    let user = [
        "--no-auth-warning",
        "--user",
        "ann",
        "--pass",
        "secret",
        "PING",
    ];
    assert_eq!(
        succeeds(&mut redis_cli(&servers.with_users, &user)),
        "PONG\n"
    );
}

/// `redis-cli --pipe` and `--scan`.
fn mass_insertion(server: &TestServer) {
    let set = |number: u32| request(&["SET", &format!("mass{number}"), "\r\n"]);
    let requests: Vec<u8> = (0..2_000).flat_map(set).collect();
    let said = fed(&mut redis_cli(server, &["--pipe"]), &requests);
    assert!(said.ends_with("errors: 0, replies: 2000\n"), "{said}");
    let scanned = succeeds(&mut redis_cli(server, &["--scan", "--pattern", "mass*"]));
    let keys: BTreeSet<&str> = scanned.lines().collect();
    assert_eq!(keys.len(), 2_000);
}

#[test]
fn redis_benchmark_works() {
    if !concerns_the_server_under_test() {
        return;
    }
    if !works(Command::new("redis-benchmark").arg("--version")) {
        return skip("redis-benchmark is not installed");
    }
    let mut servers = RespServers::start();
    for server in &mut servers.open {
        let tests = "ping,set,get,incr,mset";
        for version in [&[][..], &["-3"]] {
            let mut benchmark = Command::new("redis-benchmark");
            benchmark.args([
                "-p",
                &port(server),
                "-n",
                "2000",
                "-c",
                "10",
                "-P",
                "32",
                "-r",
                "100",
            ]);
            let said = succeeds(benchmark.args(["--csv", "-t", tests]).args(version));
            for test in ["PING_INLINE", "PING_MBULK", "SET", "GET", "INCR"] {
                assert!(said.contains(&format!("\"{test}\",")), "{said}");
            }
        }
        let counted = succeeds(&mut redis_cli(
            server,
            &["--scan", "--pattern", "counter:*"],
        ));
        assert_ne!(counted, "");
    }
}
