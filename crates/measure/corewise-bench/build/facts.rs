//! Facts about the build for the manifest, passed in environment variables.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Sets `COREWISE_COMMIT`, `COREWISE_DIRTY`, `COREWISE_RUSTC` and `COREWISE_BUILD`. Never fails:
/// unknown facts are "unknown".
pub(crate) fn describe_build() {
    let root = Path::new("../../..");
    // A prefix means that the enclosing repository is not ours.
    let is_ours =
        git(root, &["rev-parse", "--show-prefix"]).is_some_and(|prefix| prefix.is_empty());
    let commit = git(root, &["rev-parse", "HEAD"]).filter(|_| is_ours);
    let sources = [
        "status",
        "--porcelain",
        "--",
        "crates",
        "Cargo.toml",
        "Cargo.lock",
    ];
    let dirty = git(root, &sources).is_some_and(|changes| is_ours && !changes.is_empty());
    set("COREWISE_COMMIT", commit.as_deref().unwrap_or("unknown"));
    set("COREWISE_DIRTY", if dirty { "true" } else { "false" });
    let rustc = variable("RUSTC");
    let version = output(Command::new(rustc).arg("--version"));
    set("COREWISE_RUSTC", version.as_deref().unwrap_or("unknown"));
    set("COREWISE_BUILD", &build_line());
    watch_commit(root);
    watch_sources(root);
}

/// Target, profile and flags: `x86_64-unknown-linux-gnu, release, opt-level 3, no RUSTFLAGS`.
fn build_line() -> String {
    let flags = variable("CARGO_ENCODED_RUSTFLAGS").replace('\u{1f}', " ");
    format!(
        "{}, {}, opt-level {}, debug assertions {}, {}",
        variable("TARGET"),
        profile(),
        variable("OPT_LEVEL"),
        if env::var_os("CARGO_CFG_DEBUG_ASSERTIONS").is_some() {
            "on"
        } else {
            "off"
        },
        if flags.is_empty() {
            "no RUSTFLAGS".to_owned()
        } else {
            format!("RUSTFLAGS {flags}")
        }
    )
}

/// Name of the profile, taken from the path (`target/NAME/build/PACKAGE/out`): `PROFILE` is
/// `release` for all profiles that inherit from it.
fn profile() -> String {
    let out = PathBuf::from(variable("OUT_DIR"));
    let name = out.ancestors().nth(3).and_then(Path::file_name);
    name.map_or_else(|| variable("PROFILE"), |name| name.to_string_lossy().into())
}

/// Reruns the script when HEAD moves. Watches only the files that exist, since cargo treats a
/// missing file as changed.
fn watch_commit(root: &Path) {
    let branch = git(root, &["symbolic-ref", "-q", "HEAD"]).unwrap_or_default();
    for name in ["HEAD", "logs/HEAD", "packed-refs", branch.as_str()] {
        let path = git(root, &["rev-parse", "--git-path", name]);
        let path = path
            .map(|path| root.join(path))
            .filter(|path| path.is_file());
        if let Some(path) = path {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
}

/// Reruns the script when a source changes, so that `COREWISE_DIRTY` stays current.
fn watch_sources(root: &Path) {
    for name in ["crates", "Cargo.toml", "Cargo.lock"] {
        let path = root.join(name);
        if path.exists() {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    // Without optional locks, `git status` does not write the index.
    output(
        Command::new("git")
            .arg("-C")
            .arg(root)
            .arg("--no-optional-locks")
            .args(arguments),
    )
}

/// Standard output without its last newline; `None` if the command is missing or failed.
fn output(command: &mut Command) -> Option<String> {
    let output = command
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned(),
    )
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

fn set(name: &str, value: &str) {
    let line = value.lines().next().unwrap_or_default();
    println!("cargo:rustc-env={name}={line}");
}
