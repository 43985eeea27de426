//! What the tests of several crates share. For development only: crates that are published use it
//! in their tests, and no user's program contains it.
//!
//! - [`history`]: histories of concurrent operations, checked for linearizability.
//! - [`conversation`]: requests and their replies as text.
//! - [`memcached`]: what memcached does, as a model that executes operations.
//! - [`operation_pairs`]: models of two operations that run concurrently on a set of keys.
//! - [`for_every`]: the same tests for every type.
//! - [`auto_traits`]: whether types are `Send` and `Sync`.
//! - [`refused!`], [`invariant`]: programs that must not compile.
//! - [`hashing`]: good and bad hashers.
//! - `rtm_emulator`: the instructions of RTM, on x86-64 processors without it.
//! - [`prometheus`]: a parser of pages of metrics.
//! - [`random`]: reproducible choices, and how much work a test does.
//! - [`stress`]: threads that start together, run beside another one, or come and go.
//! - [`word_map`]: the guarantees of every concurrent map of numbers.

#![deny(unsafe_code)]

pub mod auto_traits;
pub mod conversation;
mod every;
pub mod hashing;
pub mod history;
pub mod memcached;
pub mod operation_pairs;
pub mod prometheus;
pub mod random;
mod refused;
#[cfg(all(
    target_os = "linux",
    target_env = "gnu",
    target_arch = "x86_64",
    not(miri)
))]
#[allow(unsafe_code)]
pub mod rtm_emulator;
pub mod stress;
pub mod word_map;
