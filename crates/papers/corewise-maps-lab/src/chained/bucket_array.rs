//! Bucket arrays, allocated for their length or reserved for the maximum length.

use std::ops::{Deref, Range};
use std::ptr::NonNull;

use corewise_atomic::{Slots, alloc};

use super::algorithm::Head;

/// An array of buckets, empty at first.
pub(super) struct Heads {
    base: NonNull<Head>,
    len: usize,
    owner: Owner,
}

enum Owner {
    Slots {
        _slots: Slots<Head>,
    },
    /// A range of addresses, with its length in bytes.
    Reserved(usize),
}

// SAFETY: it owns its array of atomics.
unsafe impl Send for Heads {}
// SAFETY: a shared reference gives access to atomics only.
unsafe impl Sync for Heads {}

impl Heads {
    /// An array of `len` buckets, or `None` if there is no memory.
    pub(super) fn try_new(len: usize) -> Option<Self> {
        let slots = Slots::<Head>::try_zeroed(len)?;
        Some(Self {
            base: NonNull::from(&*slots).cast(),
            len,
            owner: Owner::Slots { _slots: slots },
        })
    }

    /// Reserves addresses for `len` buckets; memory is used when it is touched. On systems without
    /// such ranges it allocates the array.
    pub(super) fn reserve(len: usize) -> Option<Self> {
        let bytes = len * size_of::<Head>();
        // The checkers' atomics are not plain memory.
        let plain = !cfg!(any(corewise_loom, corewise_shuttle));
        let Some(base) = plain.then(|| alloc::reserve(bytes)).flatten() else {
            return Self::try_new(len);
        };
        Some(Self {
            // Zeroed memory, at a multiple of a page: an array of null pointers.
            base: base.cast(),
            len,
            owner: Owner::Reserved(bytes),
        })
    }

    /// Gives back the memory of some buckets, as far as they fill pages. Afterwards they are empty
    /// or unchanged.
    ///
    /// # Safety
    ///
    /// 1. No thread uses these buckets at the time.
    pub(super) unsafe fn discard(&self, range: Range<usize>) {
        let whole = match self.owner {
            Owner::Slots { .. } => cfg!(not(any(corewise_loom, corewise_shuttle))),
            Owner::Reserved(_) => true,
        };
        if whole && range.end <= self.len && range.start < range.end {
            let bytes = range.len() * size_of::<Head>();
            // SAFETY: within the array, which is private anonymous memory; no thread uses it, by 1,
            // and all zero bits are a null pointer.
            unsafe { alloc::discard(self.base.as_ptr().add(range.start).cast(), bytes) };
        }
    }

    /// The bucket at an index, without a bounds check.
    ///
    /// # Safety
    ///
    /// 1. `bucket` is less than the array's length.
    #[inline(always)]
    pub(super) unsafe fn at(&self, bucket: usize) -> &Head {
        debug_assert!(bucket < self.len);
        // SAFETY: the index is less than the array's length, by 1.
        unsafe { self.base.add(bucket).as_ref() }
    }
}

impl Deref for Heads {
    type Target = [Head];

    #[inline(always)]
    fn deref(&self) -> &[Head] {
        // SAFETY: our array, of `len` values.
        unsafe { NonNull::slice_from_raw_parts(self.base, self.len).as_ref() }
    }
}

impl Drop for Heads {
    fn drop(&mut self) {
        if let Owner::Reserved(bytes) = self.owner {
            // SAFETY: from `reserve` with the same length; no longer used.
            unsafe { alloc::release(self.base.cast(), bytes) };
        }
    }
}
