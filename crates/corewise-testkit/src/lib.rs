//! What the tests of several crates share. For development only: crates that are published use it in
//! their tests, and no user's program contains it.
//!
//! - [`history`]: histories of concurrent operations, checked for linearizability.

#![forbid(unsafe_code)]

pub mod history;
