//! Which public types are `Send` and `Sync`, and which lifetimes may be shortened. Compiling is the
//! test; programs that must not compile are in `src/compile_fail.rs`.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::MutexGuard as NotSend;

use corewise_atomic::alloc::{Layout, MemoryNode};
use corewise_atomic::cell::{Access, DataCell};
use corewise_atomic::lock::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use corewise_atomic::sync::atomic::AtomicPtr;
use corewise_atomic::thread::{JoinHandle, Thread, ThreadId};
use corewise_atomic::time::Clock;
use corewise_atomic::{Backoff, CachePadded, Slots};
use static_assertions::{assert_impl_all, assert_not_impl_any};

/// `Sync`, not `Send`.
type OnlySync = NotSend<'static, u8>;

assert_impl_all!(Backoff: Send, Sync);
assert_impl_all!(Layout: Send, Sync);
assert_impl_all!(MemoryNode: Send, Sync);
assert_impl_all!(Access: Send, Sync);
assert_impl_all!(Clock: Send, Sync);
assert_impl_all!(Thread: Send, Sync);
assert_impl_all!(ThreadId: Send, Sync);
assert_impl_all!(JoinHandle<u8>: Send, Sync);

// A cell is shared only if its value may be both used and taken by other threads.
assert_impl_all!(DataCell<u8>: Send, Sync);
assert_impl_all!(DataCell<Cell<u8>>: Send);
assert_not_impl_any!(DataCell<Cell<u8>>: Sync);
assert_not_impl_any!(DataCell<OnlySync>: Send, Sync);
assert_not_impl_any!(DataCell<Rc<u8>>: Send, Sync);

// A mutex makes a `Send` value shareable; a readers-writer lock does not.
assert_impl_all!(Mutex<Cell<u8>>: Send, Sync);
assert_not_impl_any!(Mutex<OnlySync>: Send, Sync);
assert_not_impl_any!(Mutex<Rc<u8>>: Send, Sync);
assert_impl_all!(RwLock<u8>: Send, Sync);
assert_impl_all!(RwLock<Cell<u8>>: Send);
assert_not_impl_any!(RwLock<Cell<u8>>: Sync);
assert_not_impl_any!(RwLock<OnlySync>: Send, Sync);
assert_not_impl_any!(RwLock<Rc<u8>>: Send, Sync);

// The thread that locked must unlock.
assert_impl_all!(MutexGuard<'static, u8>: Sync);
assert_not_impl_any!(MutexGuard<'static, u8>: Send);
assert_not_impl_any!(MutexGuard<'static, Cell<u8>>: Send, Sync);
assert_not_impl_any!(RwLockReadGuard<'static, u8>: Send);
assert_not_impl_any!(RwLockReadGuard<'static, Cell<u8>>: Send, Sync);
assert_not_impl_any!(RwLockWriteGuard<'static, u8>: Send);
assert_not_impl_any!(RwLockWriteGuard<'static, Cell<u8>>: Send, Sync);

// `Send` and `Sync` if their contents are.
assert_impl_all!(Slots<u8>: Send, Sync);
assert_impl_all!(Slots<AtomicPtr<Rc<u8>>>: Send, Sync);
assert_impl_all!(Slots<Cell<u8>>: Send);
assert_not_impl_any!(Slots<Cell<u8>>: Sync);
assert_impl_all!(Slots<OnlySync>: Sync);
assert_not_impl_any!(Slots<OnlySync>: Send);
assert_not_impl_any!(Slots<Rc<u8>>: Send, Sync);
assert_impl_all!(CachePadded<u8>: Send, Sync);
assert_impl_all!(CachePadded<Cell<u8>>: Send);
assert_not_impl_any!(CachePadded<Cell<u8>>: Sync);
assert_impl_all!(CachePadded<OnlySync>: Sync);
assert_not_impl_any!(CachePadded<OnlySync>: Send);

/// These types own their values and write them through unique references only. Cells and locks do
/// not: see `src/compile_fail.rs`.
#[allow(dead_code)]
fn lifetimes_may_be_shortened<'short>(
    long: (Slots<&'static str>, CachePadded<&'static str>),
) -> (Slots<&'short str>, CachePadded<&'short str>) {
    long
}

#[test]
fn auto_traits_are_as_stated() {
    // The compiler checks the assertions above.
}
