//! Statics and thread-locals that loom and shuttle reset before every run.

/// Declares a static: `static_cell! { pub static NAME: Type = value; }`.
///
/// The name dereferences to `Type`. In the normal build the value is made at the first use; write
/// `= const { value }` if the value is a constant in the normal build, and the static costs
/// nothing. loom and shuttle make the value anew in every run.
///
/// ```
/// use corewise_atomic::sync::atomic::{AtomicU64, Ordering};
/// corewise_atomic::static_cell! {
///     /// The number of events seen.
///     static SEEN: AtomicU64 = const { AtomicU64::new(0) };
///     static TABLE: Vec<u32> = (0..8).map(|i| i * i).collect();
/// }
/// # corewise_atomic::model(|| {
/// SEEN.fetch_add(1, Ordering::Relaxed);
/// assert_eq!(TABLE[3], 9);
/// # });
/// ```
#[cfg(not(any(corewise_loom, corewise_shuttle, corewise_sim)))]
#[macro_export]
macro_rules! static_cell {
    () => {};
    ($(#[$attr:meta])* $vis:vis static $name:ident: $type:ty = const $init:block; $($rest:tt)*) => {
        $(#[$attr])* $vis static $name: $type = $init;
        $crate::static_cell! { $($rest)* }
    };
    ($(#[$attr:meta])* $vis:vis static $name:ident: $type:ty = $init:expr; $($rest:tt)*) => {
        $(#[$attr])* $vis static $name: ::std::sync::LazyLock<$type> =
            ::std::sync::LazyLock::new(|| $init);
        $crate::static_cell! { $($rest)* }
    };
}

/// Declares a static; see the documentation of the normal build.
#[cfg(any(corewise_loom, corewise_shuttle))]
#[macro_export]
macro_rules! static_cell {
    () => {};
    ($(#[$attr:meta])* $vis:vis static $name:ident: $type:ty = const $init:block; $($rest:tt)*) => {
        $crate::__lazy! { $(#[$attr])* ($vis) $name: $type = $init }
        $crate::static_cell! { $($rest)* }
    };
    ($(#[$attr:meta])* $vis:vis static $name:ident: $type:ty = $init:expr; $($rest:tt)*) => {
        $crate::__lazy! { $(#[$attr])* ($vis) $name: $type = $init }
        $crate::static_cell! { $($rest)* }
    };
}

/// A zero-sized static in a hidden struct, because the macros of loom and shuttle take no
/// visibility.
#[doc(hidden)]
#[cfg(any(corewise_loom, corewise_shuttle))]
#[macro_export]
macro_rules! __lazy {
    ($(#[$attr:meta])* ($vis:vis) $name:ident: $type:ty = $init:expr) => {
        #[doc(hidden)]
        #[allow(non_camel_case_types, missing_docs)]
        $vis struct $name;
        impl ::std::ops::Deref for $name {
            type Target = $type;
            fn deref(&self) -> &$type {
                $crate::__lazy_ref! { VALUE: $type = $init }
                &VALUE
            }
        }
    };
}

#[doc(hidden)]
#[cfg(corewise_loom)]
#[macro_export]
macro_rules! __lazy_ref {
    ($name:ident: $type:ty = $init:expr) => {
        $crate::__private::loom::lazy_static! { static ref $name: $type = $init; }
    };
}

#[doc(hidden)]
#[cfg(corewise_shuttle)]
#[macro_export]
macro_rules! __lazy_ref {
    ($name:ident: $type:ty = $init:expr) => {
        $crate::__private::shuttle::lazy_static! { static ref $name: $type = $init; }
    };
}

/// `std::thread_local!`, or the macro of loom or shuttle under their cfgs.
///
/// ```
/// use std::cell::Cell;
/// corewise_atomic::thread_local! {
///     static DEPTH: Cell<u32> = const { Cell::new(0) };
/// }
/// # corewise_atomic::model(|| {
/// DEPTH.with(|depth| depth.set(depth.get() + 1));
/// assert_eq!(DEPTH.with(Cell::get), 1);
/// # });
/// ```
#[cfg(not(any(corewise_loom, corewise_shuttle, corewise_sim)))]
#[macro_export]
macro_rules! thread_local {
    ($($declarations:tt)*) => { ::std::thread_local! { $($declarations)* } };
}

/// Declares a thread-local; see the documentation of the normal build.
#[cfg(any(corewise_loom, corewise_shuttle, corewise_sim))]
#[macro_export]
macro_rules! thread_local {
    () => {};
    ($(#[$attr:meta])* $vis:vis static $name:ident: $type:ty = const $init:block; $($rest:tt)*) => {
        $crate::__local! { $(#[$attr])* $vis static $name: $type = $init }
        $crate::thread_local! { $($rest)* }
    };
    ($(#[$attr:meta])* $vis:vis static $name:ident: $type:ty = $init:expr; $($rest:tt)*) => {
        $crate::__local! { $(#[$attr])* $vis static $name: $type = $init }
        $crate::thread_local! { $($rest)* }
    };
    ($($last:tt)+) => { $crate::thread_local! { $($last)+; } };
}

#[doc(hidden)]
#[cfg(corewise_loom)]
#[macro_export]
macro_rules! __local {
    ($($declaration:tt)*) => { $crate::__private::loom::thread_local! { $($declaration)* } };
}

#[doc(hidden)]
#[cfg(corewise_shuttle)]
#[macro_export]
macro_rules! __local {
    ($($declaration:tt)*) => { $crate::__private::shuttle::thread_local! { $($declaration)* } };
}
