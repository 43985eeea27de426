//! The library on an emulator of the instructions of RTM, for tests: its code, with another
//! `detect`. `COREWISE_FATES` says how transactions end.

#![cfg(all(
    target_os = "linux",
    target_env = "gnu",
    target_arch = "x86_64",
    not(miri)
))]

#[path = "../src/elision.rs"]
mod elision;
#[path = "../src/real.rs"]
mod real;

use corewise_locks::elide::{NoTransactions, Rtm};
use corewise_testkit::rtm_emulator::{emulate_process, is_emulated, parse_fates};

/// The emulator, even where the processor has RTM that is switched off; an error where it executes
/// the instructions.
fn detect() -> Result<Rtm, NoTransactions> {
    if !is_emulated() {
        return Err(NoTransactions::NeverCommits);
    }
    let fates = std::env::var("COREWISE_FATES").unwrap_or_else(|_| "commit".to_owned());
    emulate_process(parse_fates(&fates));
    // SAFETY: the type has no size. What it proves is that the instructions can be executed.
    Ok(unsafe { std::mem::transmute::<(), Rtm>(()) })
}
