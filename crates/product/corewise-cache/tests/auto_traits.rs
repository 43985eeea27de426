//! Which public types are `Send` and `Sync`, with contents that are both, one of the two, or
//! neither.

use corewise_cache::{Builder, Cache, RemovalCause, Statistics, TooHeavy};
use corewise_testkit::{expect_of_contents, expect_traits};

#[test]
fn a_cache_is_sent_and_shared_if_its_contents_are_both() {
    expect_of_contents! {
        // Clones share it.
        Cache<T, u64>: both, neither, neither, neither;
        Cache<u64, T>: both, neither, neither, neither;
        Cache<u64, u64, T>: both, neither, neither, neither;
        // It has no entries.
        Builder<T, T>: both, both, both, both;
        Builder<u64, u64, T>: both, send, sync, neither;
    }
}

#[test]
fn answers_are_plain_data() {
    expect_traits! {
        RemovalCause: true true,
        Statistics: true true,
        TooHeavy: true true,
    }
}
