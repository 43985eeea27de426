//! Small pages for the allocator, which has only what is beside the items.
//!
//! Under the engine `relativistic` items are in a range of their own. mimalloc, which has the rest
//! (connections, buffers, bucket arrays), asks for huge pages and writes here and there in them: 6 of
//! the 10 MiB of an idle server. It reads its settings before `main`, so the only way to say otherwise
//! is to start the program anew, with `MIMALLOC_ALLOW_THP=0`. mimalloc then turns huge pages off for
//! the whole process; they are turned on again for the range of the items.
//!
//! A user's own `MIMALLOC_ALLOW_THP` is left alone, and where the program cannot be started anew it
//! goes on as it is: it works, and takes more memory.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::thread::{
    disable_transparent_huge_pages, set_name, transparent_huge_pages_are_disabled,
};

const MIMALLOC: &str = "MIMALLOC_ALLOW_THP";
/// Set in the process that was started anew.
const GUARD: &str = "COREWISE_SMALL_PAGES";

/// To be called before any thread, file or output; returns in a process whose allocator uses small
/// pages if that can be had.
pub(super) fn keep_small() {
    if env::var_os(GUARD).is_some() {
        // No huge pages for items is the worst that comes of a failure; no short name, of the other.
        let _ = disable_transparent_huge_pages(false);
        if let Some(name) = own_name() {
            let _ = set_name(&name);
        }
        return;
    }
    let is_settled = transparent_huge_pages_are_disabled().unwrap_or(true);
    if is_settled || env::var_os(MIMALLOC).is_some() {
        return;
    }
    let Some(program) = program() else { return };
    let mut arguments = env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments).env(MIMALLOC, "0").env(GUARD, "1");
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
