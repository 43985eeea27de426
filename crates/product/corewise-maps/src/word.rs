//! Keys and values of at most one word, for tables with entries in place.
//!
//! A word is stored as an untyped pointer, so that pointers keep their provenance; a number is a
//! pointer without provenance. Tables compare keys by their words.

use std::hash::Hash;
use std::ptr::{self, NonNull};

/// A word as tables store it.
pub type Raw = *mut ();

pub(crate) mod sealed {
    /// Only this crate can name it.
    ///
    /// # Safety
    ///
    /// 1. `from_raw` returns the value from which `into_raw` made the word.
    /// 2. Any thread may have a copy of the value.
    pub unsafe trait Sealed: Copy {
        fn into_raw(self) -> super::Raw;

        /// # Safety
        ///
        /// 1. `raw` is from `into_raw` of the same type.
        unsafe fn from_raw(raw: super::Raw) -> Self;
    }
}

/// `Copy` types that fit in a word: numbers of up to 64 bits, `bool`, `char`, `()`, pairs of `u32`,
/// eight bytes, pointers, and `'static` references. Sealed.
///
/// Any thread may get a copy of a table's contents. For raw pointers this is what
/// [`AtomicPtr`](std::sync::atomic::AtomicPtr) allows too: code that dereferences one is
/// responsible for it. References are words only if their targets may be shared.
///
/// ```
/// fn is_a_word<T: corewise_maps::Word>() {}
/// is_a_word::<u64>();
/// is_a_word::<f64>();
/// is_a_word::<*const String>();
/// is_a_word::<&'static String>();
/// ```
///
/// ```compile_fail
/// # fn is_a_word<T: corewise_maps::Word>() {}
/// is_a_word::<&'static std::cell::Cell<u64>>();
/// ```
#[diagnostic::on_unimplemented(
    message = "values of type `{Self}` do not fit in a `clht` map",
    label = "must be a number of up to 64 bits, a pointer, or one of a few other types",
    note = "`cuckoo::CuckooMap` takes any types that are `Copy`, `RelativisticMap` any types"
)]
pub trait Word: sealed::Sealed {}

/// A [`Word`] that may be a key: two keys are equal exactly if their words are. This excludes
/// floating-point numbers, and references, which are compared by their targets. Sealed.
#[diagnostic::on_unimplemented(
    message = "keys of type `{Self}` do not fit in a `clht` map",
    label = "must be an integer of up to 64 bits, a raw pointer, or one of a few other types",
    note = "`cuckoo::CuckooMap` takes any types that are `Copy`, `RelativisticMap` any types"
)]
pub trait WordKey: Word + Eq + Hash {}

macro_rules! words {
    ($($type:ty $(where [$param:ident $(: $bound:ident)?])?: |$value:ident| $into:expr, |$raw:ident| $from:expr;)*) => {$(
        // SAFETY: the two expressions are inverses (1). The value is a number, a pointer, which is
        // safe to have, or a reference to something that threads may share (2).
        unsafe impl $(<$param $(: $bound)?>)? sealed::Sealed for $type {
            #[inline(always)]
            fn into_raw(self) -> Raw {
                let $value = self;
                $into
            }
            #[inline(always)]
            unsafe fn from_raw($raw: Raw) -> Self {
                $from
            }
        }
        impl $(<$param $(: $bound)?>)? Word for $type {}
    )*};
}

macro_rules! keys {
    ($($type:ty $(where [$param:ident])?;)*) => {
        $(impl $(<$param>)? WordKey for $type {})*
    };
}

macro_rules! numbers {
    ($($type:ty)*) => {
        words! { $($type: |value| of_bits(value as u64), |raw| bits(raw) as $type;)* }
        keys! { $($type;)* }
    };
}

#[inline(always)]
fn of_bits(bits: u64) -> Raw {
    // The tables of words exist only where pointers have 64 bits.
    ptr::without_provenance_mut(bits as usize)
}

#[inline(always)]
fn bits(raw: Raw) -> u64 {
    raw.addr() as u64
}

numbers! { u8 u16 u32 u64 usize i8 i16 i32 i64 isize }

words! {
    (): |_value| of_bits(0), |_raw| ();
    bool: |value| of_bits(value.into()), |raw| bits(raw) != 0;
    // SAFETY: the bits of a `char`, by 1.
    char: |value| of_bits(value.into()), |raw| unsafe { char::from_u32_unchecked(bits(raw) as u32) };
    f32: |value| of_bits(value.to_bits().into()), |raw| f32::from_bits(bits(raw) as u32);
    f64: |value| of_bits(value.to_bits()), |raw| f64::from_bits(bits(raw));
    [u8; 8]: |value| of_bits(u64::from_ne_bytes(value)), |raw| bits(raw).to_ne_bytes();
    (u32, u32): |value| of_bits(u64::from(value.0) << 32 | u64::from(value.1)),
        |raw| ((bits(raw) >> 32) as u32, bits(raw) as u32);
    *mut T where [T]: |value| value.cast(), |raw| raw.cast();
    *const T where [T]: |value| value.cast_mut().cast(), |raw| raw.cast();
    // SAFETY: `into_raw` has made the word from a pointer that is not null, by 1.
    NonNull<T> where [T]: |value| value.as_ptr().cast(), |raw| unsafe { NonNull::new_unchecked(raw.cast()) };
    // SAFETY: `into_raw` has made the word from a `'static` reference, by 1.
    &'static T where [T: Sync]: |value| ptr::from_ref(value).cast_mut().cast(), |raw| unsafe { &*raw.cast() };
}

keys! {
    ();
    bool;
    char;
    [u8; 8];
    (u32, u32);
    *mut T where [T];
    *const T where [T];
    NonNull<T> where [T];
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::sealed::Sealed;
    use super::*;

    fn comes_back<T: Word + PartialEq + std::fmt::Debug>(value: T) {
        // SAFETY: from `into_raw` of the same type.
        assert_eq!(unsafe { T::from_raw(value.into_raw()) }, value);
    }

    #[test]
    fn every_kind_of_word_comes_back() {
        [0, 1, u64::MAX, u64::MAX - 1]
            .into_iter()
            .for_each(comes_back);
        [0, -1, i64::MIN, i64::MAX].into_iter().for_each(comes_back);
        [0, -1, i8::MIN, i8::MAX].into_iter().for_each(comes_back);
        [false, true].into_iter().for_each(comes_back);
        ['\0', 'a', char::MAX].into_iter().for_each(comes_back);
        [0.0, -1.5, f64::INFINITY].into_iter().for_each(comes_back);
        [0.25f32, f32::MIN].into_iter().for_each(comes_back);
        [(0, u32::MAX), (u32::MAX, 7)]
            .into_iter()
            .for_each(comes_back);
        comes_back(());
        comes_back(*b"corewise");
        static TOWN: String = String::new();
        comes_back(&TOWN);
        comes_back(&raw const TOWN);
        comes_back(NonNull::from(&TOWN));
        comes_back(ptr::null_mut::<u8>());
    }

    #[test]
    fn a_pointer_can_be_used_when_it_is_back() {
        let mut number = 7;
        let raw = (&raw mut number).into_raw();
        // SAFETY: from `into_raw` of the same type; the number is ours.
        unsafe { *<*mut i32>::from_raw(raw) += 1 };
        assert_eq!(number, 8);
    }
}
