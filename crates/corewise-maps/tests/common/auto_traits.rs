//! Constants that tell whether a type is `Send` and `Sync`, and macros that check them.

use std::cell::Cell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::MutexGuard;

/// Contents that are `Send` and `Sync` exactly if `T` is.
pub(crate) struct Like<T>(PhantomData<T>);

impl<T> Clone for Like<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Like<T> {}

impl<T> PartialEq for Like<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Like<T> {}

impl<T> std::hash::Hash for Like<T> {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

/// Also serves as a hasher.
impl<T> std::hash::BuildHasher for Like<T> {
    type Hasher = std::hash::DefaultHasher;

    fn build_hasher(&self) -> Self::Hasher {
        Self::Hasher::new()
    }
}

pub(crate) type Both = Like<u64>;
pub(crate) type OnlySend = Like<Cell<u64>>;
pub(crate) type OnlySync = Like<MutexGuard<'static, u64>>;
pub(crate) type Neither = Like<Rc<u64>>;

/// Whether a type implements a trait: an inherent constant hides that of a trait, where its bounds
/// hold.
macro_rules! is {
    ($type:ty: $bound:ident) => {{
        struct Probe<T: ?Sized>(PhantomData<T>);
        #[allow(dead_code)]
        trait No {
            const IS: bool = false;
        }
        impl<T: ?Sized> No for Probe<T> {}
        #[allow(dead_code)]
        impl<T: ?Sized + $bound> Probe<T> {
            const IS: bool = true;
        }
        <Probe<$type>>::IS
    }};
}

/// Checks for each type whether it is `Send`, and whether it is `Sync`.
macro_rules! expect_traits {
    ($($type:ty: $send:literal $sync:literal,)+) => {$({
        let is = (is!($type: Send), is!($type: Sync));
        assert_eq!(is, ($send, $sync), "(Send, Sync) of {}", stringify!($type));
    })+};
}

/// Checks a type whose other parameters are both, for contents that are both, `Send`, `Sync`, and
/// neither.
macro_rules! expect_of_contents {
    ($($type:ident: $both:tt, $send:tt, $sync:tt, $neither:tt;)+) => {$(
        expect_of_contents!(@ $type, Both, $both);
        expect_of_contents!(@ $type, OnlySend, $send);
        expect_of_contents!(@ $type, OnlySync, $sync);
        expect_of_contents!(@ $type, Neither, $neither);
    )+};
    (@ $type:ident, $contents:ty, ($send:literal $sync:literal)) => {
        expect_traits! { $type<$contents>: $send $sync, }
    };
}

pub(crate) use {expect_of_contents, expect_traits, is};
