//! `std`'s atomics, which announce their accesses.

use std::fmt;
use std::sync::atomic::{self as real, Ordering};

use super::AccessClass::{Load, Rmw, Store};
use super::announce;

/// A fence. Only one that orders stores before loads (SeqCst) is an instruction, which costs time;
/// values are sequentially consistent in any case.
#[inline]
pub fn fence(order: Ordering) {
    if let Some(simulator) = super::simulator()
        && order == Ordering::SeqCst
    {
        simulator.fence();
    }
    real::fence(order);
}

/// Methods that announce a read-modify-write and pass everything on.
macro_rules! rmw {
    ($($method:ident($($name:ident: $type:ty),*) -> $result:ty;)*) => {$(
        /// As `std`'s method of this name.
        #[inline]
        pub fn $method(&self $(, $name: $type)*) -> $result {
            announce(self, Rmw);
            self.0.$method($($name),*)
        }
    )*};
}

/// What all atomics have in common.
macro_rules! atomic {
    ($name:ident $(<$param:ident>)?, $value:ty) => {
        /// `std`'s atomic of this name, which the simulation sees.
        #[repr(transparent)]
        pub struct $name $(<$param>)? (real::$name $(<$param>)?);

        impl $(<$param>)? $name $(<$param>)? {
            /// As `std`'s.
            #[inline]
            pub const fn new(value: $value) -> Self {
                Self(real::$name::new(value))
            }

            /// As `std`'s.
            #[inline]
            pub fn load(&self, order: Ordering) -> $value {
                announce(self, Load);
                self.0.load(order)
            }

            /// As `std`'s.
            #[inline]
            pub fn store(&self, value: $value, order: Ordering) {
                // Orders the store before later loads: on x86 an exchange.
                let class = if order == Ordering::SeqCst { Rmw } else { Store };
                announce(self, class);
                self.0.store(value, order);
            }

            rmw! {
                swap(value: $value, order: Ordering) -> $value;
                compare_exchange(
                    current: $value, new: $value, success: Ordering, failure: Ordering
                ) -> Result<$value, $value>;
            }

            /// As `std`'s; never fails spuriously, so that a run can be repeated.
            #[inline]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }

            /// As `std`'s.
            #[inline]
            pub fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                mut update: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut old = self.load(failure);
                while let Some(new) = update(old) {
                    match self.compare_exchange(old, new, success, failure) {
                        Ok(old) => return Ok(old),
                        Err(now) => old = now,
                    }
                }
                Err(old)
            }

            /// The value, without an access: the exclusive borrow replaces it.
            #[inline]
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            /// As `std`'s.
            #[inline]
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }

            /// As `std`'s; accesses by it are not announced.
            #[inline]
            pub const fn as_ptr(&self) -> *mut $value {
                self.0.as_ptr()
            }
        }

        impl $(<$param>)? fmt::Debug for $name $(<$param>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl $(<$param>)? Default for $name $(<$param>)? {
            fn default() -> Self {
                Self(real::$name::default())
            }
        }

        impl $(<$param>)? From<$value> for $name $(<$param>)? {
            fn from(value: $value) -> Self {
                Self::new(value)
            }
        }
    };
}

macro_rules! integers {
    ($($name:ident: $value:ty;)*) => {$(
        atomic!($name, $value);

        impl $name {
            rmw! {
                fetch_add(value: $value, order: Ordering) -> $value;
                fetch_sub(value: $value, order: Ordering) -> $value;
                fetch_and(value: $value, order: Ordering) -> $value;
                fetch_nand(value: $value, order: Ordering) -> $value;
                fetch_or(value: $value, order: Ordering) -> $value;
                fetch_xor(value: $value, order: Ordering) -> $value;
                fetch_max(value: $value, order: Ordering) -> $value;
                fetch_min(value: $value, order: Ordering) -> $value;
            }
        }
    )*};
}

integers! {
    AtomicU8: u8;
    AtomicU16: u16;
    AtomicU32: u32;
    AtomicU64: u64;
    AtomicUsize: usize;
}
atomic!(AtomicBool, bool);
atomic!(AtomicPtr<T>, *mut T);

impl AtomicBool {
    rmw! {
        fetch_and(value: bool, order: Ordering) -> bool;
        fetch_nand(value: bool, order: Ordering) -> bool;
        fetch_or(value: bool, order: Ordering) -> bool;
        fetch_xor(value: bool, order: Ordering) -> bool;
    }
}

/// Layouts are those of the normal build.
macro_rules! assert_layouts {
    ($($name:ty, $real:ty;)*) => {$(
        const _: () = assert!(
            size_of::<$name>() == size_of::<$real>() && align_of::<$name>() == align_of::<$real>()
        );
    )*};
}

assert_layouts! {
    AtomicBool, real::AtomicBool;
    AtomicU8, real::AtomicU8;
    AtomicU16, real::AtomicU16;
    AtomicU32, real::AtomicU32;
    AtomicU64, real::AtomicU64;
    AtomicUsize, real::AtomicUsize;
    AtomicPtr<u8>, real::AtomicPtr<u8>;
}
