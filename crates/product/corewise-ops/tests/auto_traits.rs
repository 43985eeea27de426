//! Which public types are `Send` and `Sync`, and which lifetimes may be shortened. Compiling is the
//! test; programs that must not compile are in `src/compile_fail.rs`.

use corewise_ops::{
    Absence, Arith, Deadline, Delete, Flow, Get, ItemFlags, ItemView, Now, Op, Outcome, Store,
    StoreMode, Verb, Vivify,
};
use static_assertions::assert_impl_all;

assert_impl_all!(Now: Send, Sync);
assert_impl_all!(Deadline: Send, Sync);
assert_impl_all!(Op<'static>: Send, Sync);
assert_impl_all!(Verb<'static>: Send, Sync);
assert_impl_all!(Get: Send, Sync);
assert_impl_all!(Vivify: Send, Sync);
assert_impl_all!(StoreMode: Send, Sync);
assert_impl_all!(Store<'static>: Send, Sync);
assert_impl_all!(Delete: Send, Sync);
assert_impl_all!(Arith: Send, Sync);
assert_impl_all!(ItemFlags: Send, Sync);
assert_impl_all!(ItemView<'static>: Send, Sync);
assert_impl_all!(Absence: Send, Sync);
assert_impl_all!(Outcome<'static>: Send, Sync);
assert_impl_all!(Flow: Send, Sync);

type Borrowing<'a> = (Op<'a>, Verb<'a>, Store<'a>, ItemView<'a>, Outcome<'a>);

#[allow(dead_code)]
fn lifetimes_may_be_shortened<'short>(long: Borrowing<'static>) -> Borrowing<'short> {
    long
}

#[test]
fn auto_traits_are_as_stated() {
    // The compiler checks the assertions above.
}
