//! What the tests of several crates share. For development only: crates that are published use it
//! in their tests, and no user's program contains it.
//!
//! - [`history`]: histories of concurrent operations, checked for linearizability.
//! - [`memcached`]: what memcached does, as a model that executes operations.
//! - [`operation_pairs`]: models of two operations that run concurrently on a set of keys.
//! - [`for_every`]: the same tests for every type.
//! - [`auto_traits`]: whether types are `Send` and `Sync`.
//! - [`refused`], [`invariant`]: programs that must not compile.
//! - [`hashing`]: good and bad hashers.
//! - [`random`]: reproducible choices, and how much work a test does.
//! - [`word_map`]: the guarantees of every concurrent map of numbers.

#![forbid(unsafe_code)]

pub mod auto_traits;
mod every;
pub mod hashing;
pub mod history;
pub mod memcached;
pub mod operation_pairs;
pub mod random;
mod refused;
pub mod word_map;
