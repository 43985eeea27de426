//! Elision of the mutexes of an unmodified program (thesis §4.3.2), as a library to preload.
//!
//! ```text
//! program ──▶ pthread_mutex_lock here ──▶ a transaction, which reads the mutex
//!                        └──────────────▶ pthread_mutex_lock of the C library
//! ```
//!
//! `lock` begins a transaction, reads the mutex's word, and returns to the program if the mutex is
//! free; `unlock` commits. A thread that takes the mutex writes the word, which aborts the
//! transactions that have read it. An abort continues in `lock`, which tries again or takes the
//! mutex.
//!
//! # Guarantees
//!
//! 1. *No RTM instruction runs without RTM.* All of them need an [`Rtm`], which the constructor of
//!    the library detects. Calls before that, and all calls without RTM, go to the C library.
//! 2. *Layout.* Elision reads `__lock` and `__kind` of glibc's mutex on x86-64. The constructor
//!    checks both places with mutexes that it initialises; if they differ, nothing is elided.
//! 3. *Which mutexes.* Kinds 0 (default) and 3 (adaptive). Recursive, error checking, robust and
//!    process-shared mutexes and those with priorities go to the C library.
//! 4. *Bound.* Three attempts; if they fail, the next three locks of mutexes in the same cell of a
//!    table of 1,024 do not attempt any.
//! 5. *What needs the mutex has it.* `trylock`, locks with a time limit and the waits of condition
//!    variables abort a transaction, and its section runs again with the mutex held. System calls
//!    abort by themselves.
//!
//! Unlike `corewise_locks::elide::Slr` the transaction reads the mutex at begin, because the code
//! of an unknown program is not sound beside a holder.
//!
//! # Evidence
//!
//! `tests/emulated.rs` runs this code on an emulator of the instructions, in
//! `examples/emulated.rs`, which differs from the library in `detect` only. It has not run on
//! hardware.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod elision;
mod real;

use corewise_locks::elide::{NoTransactions, Rtm};

fn detect() -> Result<Rtm, NoTransactions> {
    Rtm::detect()
}
