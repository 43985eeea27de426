//! Programs of C for the tests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `tests/SOURCE.c`; none, with a message, if there is no compiler.
pub(crate) fn compile(source: &str, name: &str) -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let compiled = Command::new("cc")
        .args(["-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(directory.join(source).with_extension("c"))
        // Without lazy binding, which is thousands of instructions at the first call of a function.
        .args(["-ldl", "-Wl,-z,now"])
        .status();
    if compiled.is_ok_and(|status| status.success()) {
        return Some(program);
    }
    println!("SKIPPED: no compiler of C");
    None
}

/// A library that cargo has built for this program.
pub(crate) fn library(folders: &[&str], name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("the program has a path");
    let target = program.ancestors().nth(2).expect("cargo's directory");
    let mut libraries = folders.iter().map(|folder| target.join(folder).join(name));
    libraries
        .find(|library| library.exists())
        .expect("`cargo test` without a choice of tests builds the libraries")
}
