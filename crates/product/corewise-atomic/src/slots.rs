//! Arrays of façade values.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
};

/// A boxed array of fixed length, created value by value: an array of atomics without casting
/// memory into them. It dereferences to a slice.
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
    /// Whether the memory is from the system, not from the global allocator.
    mapped: bool,
    _owned: PhantomData<T>,
}

/// Size in bytes from which zeroed slots come directly from the system.
const MAPPED_FROM: usize = 1 << 20;

// SAFETY: it owns its slots, as a box does.
unsafe impl<T: Send> Send for Slots<T> {}
// SAFETY: a shared reference to it gives shared references to its slots only.
unsafe impl<T: Sync> Sync for Slots<T> {}

impl<T> Slots<T> {
    /// `len` slots; slot `i` holds `make(i)`.
    ///
    /// # Panics
    ///
    /// Aborts if there is no memory, as `Vec` does.
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
    /// In the normal build a large array (1 MiB or more) costs no memory and no time until it is
    /// used: its pages come zeroed from the system one by one.
    ///
    /// # Panics
    ///
    /// If there is no memory; [`Slots::try_zeroed`] returns `None` instead.
    pub fn zeroed(len: usize) -> Self
    where
        T: ZeroInit,
    {
        Self::try_zeroed(len).unwrap_or_else(|| panic!("no memory for {len} slots"))
    }

    /// Like [`Slots::zeroed`]; `None` if there is no memory.
    pub fn try_zeroed(len: usize) -> Option<Self>
    where
        T: ZeroInit,
    {
        T::zeroed_slots(len, sealed::Token)
    }

    /// Gives the pages that lie wholly within these slots back to the system, as far as it accepts
    /// them; they read as zero afterwards. So a large array can be freed piece by piece.
    ///
    /// # Panics
    ///
    /// If the range is out of bounds.
    pub fn discard(&mut self, range: std::ops::Range<usize>)
    where
        T: ZeroInit,
    {
        let slots = &mut self[range];
        // The atomics of loom and shuttle are not plain memory.
        if !cfg!(any(corewise_loom, corewise_shuttle)) {
            let bytes = size_of_val(slots);
            // SAFETY: the slots are exclusively borrowed, and all zero bits are a valid value of
            // them, by `ZeroInit` 1.
            unsafe { crate::alloc::discard(slots.as_mut_ptr().cast(), bytes) };
        }
    }

    /// Requests small pages for slots that were not touched yet, if their memory comes from the
    /// system (see [`Slots::zeroed`]). Otherwise the first access to 2 MiB waits until the system
    /// has cleared all of them: 0.1 ms, on some virtual machines 4 ms. Small pages mean more TLB
    /// misses.
    pub fn prefer_small_pages(&mut self) {
        if self.mapped {
            let bytes = size_of_val::<[T]>(self);
            // SAFETY: the slots were mapped with this number of bytes and are not given back before
            // the drop (1).
            unsafe { crate::alloc::prefer_small(self.slots.cast(), bytes) };
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
            // SAFETY: mapped by `zeroed_slots` with the same number of bytes; its types need no
            // drop, by `ZeroInit` 1.
            unsafe { crate::alloc::unmap(self.slots.cast(), bytes) };
        } else {
            // SAFETY: the slots were leaked from a box by `From`, and are not used again.
            drop(unsafe { Box::from_raw(self.slots.as_ptr()) });
        }
    }
}

impl<T> Deref for Slots<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: we own the slots, and they are borrowed as `self` is.
        unsafe { self.slots.as_ref() }
    }
}

impl<T> DerefMut for Slots<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: we own the slots, and they are borrowed exclusively, as `self` is.
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
    /// Only this crate can name this type, so only this crate can call or implement `zeroed_slots`.
    #[derive(Debug)]
    pub struct Token;
}

/// The atomics for which all zero bits mean zero, false or null in the normal build. Sealed.
///
/// # Safety
///
/// 1. In the normal build all zero bits are a valid value of the type, and the type needs no drop.
pub unsafe trait ZeroInit: Sized {
    #[doc(hidden)]
    fn zeroed_slots(len: usize, _: sealed::Token) -> Option<Slots<Self>>;
}

macro_rules! zero_init {
    ($($type:ty: $zero:expr $(, <$param:ident>)?;)*) => {$(
        // SAFETY: in the normal build the type is std's, which has the layout of the integer,
        // boolean or pointer that it holds, and needs no drop (1).
        unsafe impl $(<$param>)? ZeroInit for $type {
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
                    crate::alloc::alloc_zeroed(layout, crate::alloc::MemoryNode::Local)?
                };
                // All zero bits are a valid value (1). The memory has the alignment that the layout
                // requires, and is given back the way it was allocated.
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
