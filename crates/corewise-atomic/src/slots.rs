//! Arrays of façade values.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
};

/// A boxed array of fixed length, made value by value: the way to have many atomics without
/// casting memory into them. It dereferences to a slice.
///
/// ```
/// use corewise_atomic::{Slots, sync::atomic::{AtomicU64, Ordering}};
/// # corewise_atomic::model(|| {
/// let counts = Slots::from_fn(4, |i| AtomicU64::new(i as u64));
/// counts[3].store(9, Ordering::Relaxed);
/// assert_eq!(counts.iter().map(|c| c.load(Ordering::Relaxed)).sum::<u64>(), 12);
/// # });
/// ```
pub struct Slots<T> {
    slots: NonNull<[T]>,
    /// Straight from the system, not from the global allocator.
    mapped: bool,
    _owned: PhantomData<T>,
}

/// Bytes from which on zeroed slots come straight from the system.
const MAPPED_FROM: usize = 1 << 20;

// SAFETY: it owns its slots.
unsafe impl<T: Send> Send for Slots<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Slots<T> {}

impl<T> Slots<T> {
    /// `len` slots; slot `i` holds `make(i)`.
    ///
    /// # Panics
    ///
    /// Aborts when there is no memory, as `Vec` does.
    pub fn from_fn(len: usize, make: impl FnMut(usize) -> T) -> Self {
        (0..len).map(make).collect()
    }

    /// `len` slots of the default value.
    pub fn new_default(len: usize) -> Self
    where
        T: Default,
    {
        Self::from_fn(len, |_| T::default())
    }

    /// `len` slots of zero, false or null.
    ///
    /// In the normal build a large array (1 MiB or more) costs no memory and no time until it is used:
    /// its pages come zeroed from the system one by one.
    ///
    /// # Panics
    ///
    /// When there is no memory; [`Slots::try_zeroed`] does not.
    pub fn zeroed(len: usize) -> Self
    where
        T: ZeroInit,
    {
        Self::try_zeroed(len).unwrap_or_else(|| panic!("no memory for {len} slots"))
    }

    /// As [`Slots::zeroed`]; `None` when there is no memory.
    pub fn try_zeroed(len: usize) -> Option<Self>
    where
        T: ZeroInit,
    {
        T::zeroed_slots(len, sealed::Token)
    }

    /// Gives the pages that lie wholly within these slots back to the system, as far as it takes
    /// them; they read as zero afterwards. So a large array can be freed bit by bit.
    ///
    /// # Panics
    ///
    /// If the range is not one of this array.
    pub fn discard(&mut self, range: std::ops::Range<usize>)
    where
        T: ZeroInit,
    {
        let slots = &mut self[range];
        // The checkers' atomics are not plain memory.
        if !cfg!(any(corewise_loom, corewise_shuttle)) {
            let bytes = size_of_val(slots);
            // SAFETY: the slots are ours alone, and all zero bits are a value of theirs.
            unsafe { crate::alloc::discard(slots.as_mut_ptr().cast(), bytes) };
        }
    }
}

impl<T> From<Box<[T]>> for Slots<T> {
    fn from(slots: Box<[T]>) -> Self {
        Self {
            slots: NonNull::from(Box::leak(slots)),
            mapped: false,
            _owned: PhantomData,
        }
    }
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        if self.mapped {
            let bytes = size_of::<T>() * self.len();
            // SAFETY: mapped by `zeroed_slots` with as many bytes; its types need no drop.
            unsafe { crate::alloc::unmap(self.slots.cast(), bytes) };
        } else {
            // SAFETY: from a box, see `From`.
            drop(unsafe { Box::from_raw(self.slots.as_ptr()) });
        }
    }
}

impl<T> Deref for Slots<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: slots that we own, borrowed as we are; so in `deref_mut`.
        unsafe { self.slots.as_ref() }
    }
}

impl<T> DerefMut for Slots<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { self.slots.as_mut() }
    }
}

impl<T> FromIterator<T> for Slots<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let slots: Box<[T]> = values.into_iter().collect();
        slots.into()
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Slots<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

mod sealed {
    /// Only this crate can name it, so only this crate can call or implement `zeroed_slots`.
    #[derive(Debug)]
    pub struct Token;
}

/// The atomics for which all zero bits mean zero, false or null in the normal build. Sealed.
pub trait ZeroInit: Sized {
    #[doc(hidden)]
    fn zeroed_slots(len: usize, _: sealed::Token) -> Option<Slots<Self>>;
}

macro_rules! zero_init {
    ($($type:ty: $zero:expr $(, <$param:ident>)?;)*) => {$(
        impl $(<$param>)? ZeroInit for $type {
            #[cfg(not(any(corewise_loom, corewise_shuttle)))]
            fn zeroed_slots(len: usize, _: sealed::Token) -> Option<Slots<Self>> {
                let layout = std::alloc::Layout::array::<Self>(len).ok()?;
                if layout.size() == 0 {
                    return Some(Slots::from_fn(0, |_| unreachable!("there are none")));
                }
                let mapped = cfg!(target_os = "linux") && layout.size() >= MAPPED_FROM;
                let memory = if mapped {
                    crate::alloc::map_zeroed(layout.size())?
                } else {
                    crate::alloc::alloc_zeroed(layout, crate::alloc::Node::Local)?
                };
                // In this build the type is std's, which has the layout of the integer, boolean or
                // pointer it holds, and all zero bits are a value of that. The memory is as aligned
                // as the layout asks, and given back as it was taken.
                Some(Slots {
                    slots: NonNull::slice_from_raw_parts(memory.cast(), len),
                    mapped,
                    _owned: PhantomData,
                })
            }

            #[cfg(any(corewise_loom, corewise_shuttle))]
            fn zeroed_slots(len: usize, _: sealed::Token) -> Option<Slots<Self>> {
                Some((0..len).map(|_| <$type>::new($zero)).collect())
            }
        }
    )*};
}

zero_init! {
    AtomicBool: false;
    AtomicU8: 0;
    AtomicU16: 0;
    AtomicU32: 0;
    AtomicU64: 0;
    AtomicUsize: 0;
    AtomicPtr<T>: std::ptr::null_mut(), <T>;
}

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
const _: () = {
    assert!(size_of::<AtomicU8>() == 1 && size_of::<AtomicBool>() == 1);
    assert!(size_of::<AtomicU16>() == 2 && size_of::<AtomicU32>() == 4);
    assert!(size_of::<AtomicU64>() == 8 && size_of::<AtomicUsize>() == size_of::<usize>());
    assert!(size_of::<AtomicPtr<u8>>() == size_of::<usize>());
};
