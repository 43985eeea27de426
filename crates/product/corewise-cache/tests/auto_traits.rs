//! Checks which public types are `Send` and `Sync`, and which lifetimes may be shortened. Compiling
//! is the test; programs that must not compile are in `src/compile_fail.rs`.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

use corewise_cache::alloc::GlobalHeap;
use corewise_cache::engines::{global_lock, locked, lockhash, relativistic};
use corewise_cache::item::{Before, Contents, Item, ItemNode};
use corewise_cache::{ClassStats, EngineStats, ManualClock, SystemClock};
use static_assertions::{assert_impl_all, assert_not_impl_any};
use std::cell::Cell;

assert_impl_all!(GlobalHeap: Send, Sync);
assert_impl_all!(ManualClock: Send, Sync);
assert_impl_all!(SystemClock: Send, Sync);
assert_impl_all!(EngineStats: Send, Sync);
assert_impl_all!(ClassStats: Send, Sync);
assert_impl_all!(Before: Send, Sync);
assert_impl_all!(Contents<'static>: Send, Sync);
assert_impl_all!(ItemNode<u64>: Send, Sync);
assert_impl_all!(locked::Config: Send, Sync);
assert_impl_all!(locked::Eviction: Send, Sync);
assert_impl_all!(locked::NoReferences: Send, Sync);
assert_impl_all!(locked::ReferenceCount: Send, Sync);
assert_impl_all!(locked::Locked: Send, Sync);
assert_impl_all!(global_lock::GlobalLock: Send, Sync);
assert_impl_all!(lockhash::LockHashEngine: Send, Sync);
assert_impl_all!(relativistic::Config: Send, Sync);
assert_impl_all!(relativistic::Eviction: Send, Sync);
assert_impl_all!(relativistic::NoAddresses: Send, Sync);
assert_impl_all!(relativistic::Relativistic: Send, Sync);

// The links belong to the engine.
assert_impl_all!(ItemNode<Cell<u64>>: Send);
assert_not_impl_any!(ItemNode<Cell<u64>>: Sync);

// A session may move to another thread between operations. It has no shared methods, so `Sync` is
// not promised.
assert_impl_all!(locked::LockedSession: Send);
assert_impl_all!(locked::LockedSession<GlobalHeap, locked::ReferenceCount>: Send);
assert_impl_all!(lockhash::LockHashSession: Send);
assert_impl_all!(relativistic::RelativisticSession: Send);
assert_not_impl_any!(locked::LockedSession: Clone);
assert_not_impl_any!(relativistic::RelativisticSession: Clone);

// A reference to an item belongs to the section or the lock in which it was found.
assert_not_impl_any!(Item<'static, u64>: Send, Sync);

#[allow(dead_code)]
fn lifetimes_may_be_shortened<'short>(
    long: (Contents<'static>, Item<'static, &'static u8>),
) -> (Contents<'short>, Item<'short, &'short u8>) {
    long
}

#[test]
fn auto_traits_are_as_stated() {
    // The signature above is the test; the compiler checks it.
}
