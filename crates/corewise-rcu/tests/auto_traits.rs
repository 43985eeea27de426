//! Which public types are `Send` and `Sync`, and which lifetimes may be shortened. Compiling is the
//! test; programs that must not compile are in `src/compile_fail.rs`.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

use std::cell::Cell;
use std::rc::Rc;

use corewise_rcu::{
    BacklogFull, Budget, Builder, Cookie, Domain, Guard, Limits, Pinned, Pressure, Qsbr, QsbrGuard,
    RetireList, Stall,
};
use static_assertions::{assert_impl_all, assert_not_impl_any};

assert_impl_all!(Domain: Send, Sync);
assert_impl_all!(Builder: Send, Sync);
assert_impl_all!(Limits: Send, Sync);
assert_impl_all!(Pressure: Send, Sync);
assert_impl_all!(Pinned: Send, Sync);
assert_impl_all!(Stall: Send, Sync);
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

// A section belongs to its thread, and each guard is counted once, so guards are not `Clone`.
assert_not_impl_any!(Guard<'static>: Send, Sync, Clone);
assert_not_impl_any!(Qsbr<'static>: Send, Sync, Clone);
assert_not_impl_any!(QsbrGuard<'static>: Send, Sync);

type Sections<'a> = (Guard<'a>, Qsbr<'a>, QsbrGuard<'a>);
type Of<'a> = (RetireList<&'a str>, BacklogFull<&'a str>);

/// These types write no data through a shared reference, so a longer lifetime may be shortened.
#[allow(dead_code)]
fn lifetimes_may_be_shortened<'short>(
    long: (Sections<'static>, Of<'static>),
) -> (Sections<'short>, Of<'short>) {
    long
}

#[test]
fn auto_traits_are_as_stated() {
    // The compiler checks the assertions above.
}
