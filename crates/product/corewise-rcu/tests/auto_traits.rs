//! Which public types are `Send` and `Sync`, and which lifetimes may be shortened. Compiling is the
//! test; programs that must not compile are in `src/compile_fail.rs`.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::MutexGuard;

use corewise_rcu::{
    BacklogFull, Budget, Builder, CellGuard, Cookie, Domain, Guard, Limits, MappedCell, OwnedGuard,
    Pinned, Pressure, Qsbr, QsbrGuard, RcuCell, Replaced, RetireList, Stall, StallHookIsSet,
};
use static_assertions::{assert_impl_all, assert_not_impl_any};

assert_impl_all!(Domain: Send, Sync);
assert_impl_all!(Builder: Send, Sync);
assert_impl_all!(Limits: Send, Sync);
assert_impl_all!(Pressure: Send, Sync);
assert_impl_all!(Pinned: Send, Sync);
assert_impl_all!(Stall: Send, Sync);
assert_impl_all!(StallHookIsSet: Send, Sync);
assert_impl_all!(Cookie: Send, Sync);
assert_impl_all!(Budget: Send, Sync);
assert_impl_all!(RetireList<u8>: Send, Sync);
assert_impl_all!(BacklogFull<u8>: Send, Sync);

// `Send` and `Sync` if their contents are.
assert_impl_all!(RetireList<Cell<u8>>: Send);
assert_not_impl_any!(RetireList<Cell<u8>>: Sync);
assert_not_impl_any!(RetireList<Rc<u8>>: Send, Sync);
assert_impl_all!(BacklogFull<Cell<u8>>: Send);
assert_not_impl_any!(BacklogFull<Cell<u8>>: Sync);
assert_not_impl_any!(BacklogFull<Rc<u8>>: Send, Sync);

// Threads that share a cell share its values, and drop values of each other; so do those that share
// or send a replaced value.
assert_impl_all!(RcuCell<u8>: Send, Sync);
assert_impl_all!(RcuCell<Cell<u8>>: Send);
assert_not_impl_any!(RcuCell<Cell<u8>>: Sync);
assert_not_impl_any!(RcuCell<Rc<u8>>: Send, Sync);
assert_not_impl_any!(RcuCell<MutexGuard<'static, u8>>: Send, Sync);
assert_impl_all!(MappedCell<'static, u8, fn(&u8) -> &u8>: Send, Sync);
assert_not_impl_any!(MappedCell<'static, Cell<u8>, fn(&u8) -> &u8>: Send, Sync);
assert_impl_all!(Replaced<'static, u8>: Send, Sync);
assert_not_impl_any!(Replaced<'static, Cell<u8>>: Send, Sync);

// A section belongs to its thread, and each guard is counted once, so guards are not `Clone`.
assert_not_impl_any!(Guard<'static>: Send, Sync, Clone);
assert_not_impl_any!(Qsbr<'static>: Send, Sync, Clone);
assert_not_impl_any!(QsbrGuard<'static>: Send, Sync);
assert_not_impl_any!(CellGuard<'static, u8>: Send, Sync, Clone);
assert_not_impl_any!(CellGuard<'static, str>: Send, Sync, Clone);

// One that a value owns may move, but serves one thread at a time.
assert_impl_all!(OwnedGuard<'static>: Send);
assert_not_impl_any!(OwnedGuard<'static>: Sync, Clone);

type Sections<'a> = (OwnedGuard<'a>, Guard<'a>, Qsbr<'a>, QsbrGuard<'a>);
type Of<'a> = (RetireList<&'a str>, BacklogFull<&'a str>);
type OfCells<'a> = (CellGuard<'a, &'a str>, Replaced<'a, u8>);

/// These types write no data through a shared reference, so a longer lifetime may be shortened.
#[allow(dead_code)]
fn lifetimes_may_be_shortened<'short>(
    long: (Sections<'static>, Of<'static>, OfCells<'static>),
) -> (Sections<'short>, Of<'short>, OfCells<'short>) {
    long
}

#[test]
fn auto_traits_are_as_stated() {
    // The compiler checks the assertions above.
}
