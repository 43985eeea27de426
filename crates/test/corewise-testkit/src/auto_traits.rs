//! Constants that tell whether a type is `Send` and `Sync`, and macros that check them.

use std::cell::Cell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::MutexGuard;

/// Contents that are `Send` and `Sync` exactly if `T` is.
#[derive(Debug)]
pub struct Like<T>(PhantomData<T>);

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

/// `Send` and `Sync`.
pub type Both = Like<u64>;
/// `Send`, and not `Sync`.
pub type OnlySend = Like<Cell<u64>>;
/// `Sync`, and not `Send`.
pub type OnlySync = Like<MutexGuard<'static, u64>>;
/// Neither `Send` nor `Sync`.
pub type Neither = Like<Rc<u64>>;

/// Whether a type implements a trait: an inherent constant hides that of a trait, where its bounds
/// hold.
#[macro_export]
macro_rules! implements {
    ($type:ty: $bound:ident) => {{
        struct Probe<T: ?Sized>(::std::marker::PhantomData<T>);
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
#[macro_export]
macro_rules! expect_traits {
    ($($type:ty: $send:literal $sync:literal,)+) => {$({
        let is = ($crate::implements!($type: Send), $crate::implements!($type: Sync));
        assert_eq!(is, ($send, $sync), "(Send, Sync) of {}", stringify!($type));
    })+};
}

/// Checks whether a type is `both` `Send` and `Sync`, only `send`, only `sync` or `neither`, if its
/// part `T` is both, only `Send`, only `Sync`, and neither.
#[macro_export]
macro_rules! expect_of_contents {
    ($($type:ty: $($is:ident),+;)+) => {$({
        use $crate::auto_traits::{Both, Neither, OnlySend, OnlySync};
        type Of<T> = $type;
        let is = [
            ($crate::implements!(Of<Both>: Send), $crate::implements!(Of<Both>: Sync)),
            ($crate::implements!(Of<OnlySend>: Send), $crate::implements!(Of<OnlySend>: Sync)),
            ($crate::implements!(Of<OnlySync>: Send), $crate::implements!(Of<OnlySync>: Sync)),
            ($crate::implements!(Of<Neither>: Send), $crate::implements!(Of<Neither>: Sync)),
        ];
        let expected = [$($crate::expect_of_contents!(@ $is)),+];
        assert_eq!(is, expected, "(Send, Sync) of {}", stringify!($type));
    })+};
    (@ both) => { (true, true) };
    (@ send) => { (true, false) };
    (@ sync) => { (false, true) };
    (@ neither) => { (false, false) };
}
