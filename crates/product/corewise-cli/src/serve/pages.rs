//! Configures the allocator's use of pages: small pages, and freed pages returned at once.
//!
//! In the engine `relativistic`, items have their own address range, and mimalloc allocates the
//! rest (connections, buffers, bucket arrays). Two of its defaults are too expensive for a cache
//! with a memory limit:
//!
//! - It asks for huge pages and writes to few places in them: 6 of the 10 MiB of an idle server.
//!   `MIMALLOC_ALLOW_THP=0` turns huge pages off for the whole process; they are turned on again
//!   for the range of the items.
//! - It keeps freed memory for 10 ms. `MIMALLOC_PURGE_DELAY=0` returns it at once. In
//!   `scripts/bench-memory --sweep --cells 'm16 t16 4194304$'` that was 28 instead of 74 MiB, and
//!   the CPU time of `scripts/bench-memory large` did not change.
//!
//! mimalloc reads its settings before `main`, so the only way to change them is to execute the
//! program again. Settings made by the user are left alone. Where the program cannot be executed
//! again, it continues: it works, but takes more memory.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::thread::{
    disable_transparent_huge_pages, set_name, transparent_huge_pages_are_disabled,
};

const ALLOW_THP: &str = "MIMALLOC_ALLOW_THP";
const PURGE_DELAY: &str = "MIMALLOC_PURGE_DELAY";
/// Set in the process that was executed again: whether huge pages were turned off there.
const GUARD: &str = "COREWISE_ALLOCATOR_CONFIGURED";

/// Applies the settings by executing the program again, if possible. Call it before any thread is
/// started, file opened or output written. Returns in the process that has the settings, or if it
/// failed.
pub(super) fn configure_allocator() {
    if let Some(turned_off) = env::var_os(GUARD) {
        if turned_off == "1" {
            // A failure only means that items have no huge pages.
            let _ = disable_transparent_huge_pages(false);
        }
        if let Some(name) = own_name() {
            let _ = set_name(&name);
        }
        return;
    }
    let is_free = |name| env::var_os(name).is_none();
    let has_huge_pages = transparent_huge_pages_are_disabled().is_ok_and(|disabled| !disabled);
    let turn_off = has_huge_pages && is_free(ALLOW_THP);
    if !turn_off && !is_free(PURGE_DELAY) {
        return;
    }
    let Some(program) = program() else { return };
    let mut arguments = env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments);
    if turn_off {
        command.env(ALLOW_THP, "0");
    }
    if is_free(PURGE_DELAY) {
        command.env(PURGE_DELAY, "0");
    }
    command.env(GUARD, if turn_off { "1" } else { "0" });
    // Returns only on failure.
    let _ = command.exec();
}

/// The program's path, so that it keeps its name in process lists. If its file was replaced
/// meanwhile, the kernel's link to the open file.
fn program() -> Option<PathBuf> {
    let same = |path: &PathBuf| path.exists();
    let open = || Some(Path::new("/proc/self/exe").to_owned()).filter(same);
    env::current_exe().ok().filter(same).or_else(open)
}

/// The name under which the program was called, which may be the name of a link.
fn own_name() -> Option<std::ffi::CString> {
    let path: OsString = env::args_os().next()?;
    let name = Path::new(&path).file_name()?;
    std::ffi::CString::new(name.as_encoded_bytes()).ok()
}
