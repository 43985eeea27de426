//! What the allocator does with pages: small ones, and given back at once.
//!
//! Under the engine `relativistic` items are in a range of their own, and mimalloc has the rest
//! (connections, buffers, bucket arrays). It has two habits that a cache with a limit cannot afford:
//!
//! - It asks for huge pages and writes here and there in them: 6 of the 10 MiB of an idle server.
//!   `MIMALLOC_ALLOW_THP=0` turns huge pages off for the whole process; they are turned on again for the
//!   range of the items.
//! - It keeps freed memory for 10 ms. `MIMALLOC_PURGE_DELAY=0` returns it at once. In `scripts/bench-memory
//!   --sweep --cells 'm16 t16 4194304$'` that was 28 instead of 74 MiB, and the CPU time of
//!   `scripts/bench-memory large` did not change.
//!
//! It reads its settings before `main`, so the only way to have others is to start the program anew.
//! Settings that a user has made are left alone, and where the program cannot be started anew it goes on
//! as it is: it works, and takes more memory.

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
/// Set in the process that was started anew, to whether huge pages were turned off there.
const GUARD: &str = "COREWISE_ALLOCATOR_CONFIGURED";

/// To be called before any thread, file or output; returns in a process whose allocator has these settings
/// if that can be had.
pub(super) fn configure_allocator() {
    if let Some(turned_off) = env::var_os(GUARD) {
        if turned_off == "1" {
            // No huge pages for items is the worst that comes of a failure.
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
    // Comes back only if it failed.
    let _ = command.exec();
}

/// By its path, so that it keeps its name in lists of processes; as the kernel has it, if its file was
/// replaced meanwhile.
fn program() -> Option<PathBuf> {
    let same = |path: &PathBuf| path.exists();
    let open = || Some(Path::new("/proc/self/exe").to_owned()).filter(same);
    env::current_exe().ok().filter(same).or_else(open)
}

/// The name under which the program was called, which may be a link's.
fn own_name() -> Option<std::ffi::CString> {
    let path: OsString = env::args_os().next()?;
    let name = Path::new(&path).file_name()?;
    std::ffi::CString::new(name.as_encoded_bytes()).ok()
}
