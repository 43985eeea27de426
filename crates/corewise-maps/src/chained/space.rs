//! Bucket arrays: made for their number of buckets, or reserved for all that they may ever have.

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
    /// A range of addresses of so many bytes.
    Reserved(usize),
}

// SAFETY: it owns its array of atomics.
unsafe impl Send for Heads {}
// SAFETY: as above.
unsafe impl Sync for Heads {}

impl Heads {
    /// So many buckets, or `None` if there is no memory.
    pub(super) fn try_new(len: usize) -> Option<Self> {
        let slots = Slots::<Head>::try_zeroed(len)?;
        Some(Self {
            base: NonNull::from(&*slots).cast(),
            len,
            owner: Owner::Slots { _slots: slots },
        })
    }

    /// Addresses for so many buckets; memory is used where it is touched. Where the system has no such
    /// ranges it is an array like another.
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

    /// Gives the memory of some buckets back, as far as they fill pages; they are empty or as they were
    /// afterwards.
    ///
    /// # Safety
    ///
    /// 1. Nobody uses these buckets at the time.
    pub(super) unsafe fn discard(&self, range: Range<usize>) {
        let whole = match self.owner {
            Owner::Slots { .. } => cfg!(not(any(corewise_loom, corewise_shuttle))),
            Owner::Reserved(_) => true,
        };
        if whole && range.end <= self.len && range.start < range.end {
            let bytes = range.len() * size_of::<Head>();
            // SAFETY: within the array, which is private anonymous memory; nobody uses it, by 1, and all
            // zero bits are a null pointer.
            unsafe { alloc::discard(self.base.as_ptr().add(range.start).cast(), bytes) };
        }
    }

    /// A bucket that is there.
    ///
    /// # Safety
    ///
    /// 1. `bucket` is less than the array's length.
    #[inline(always)]
    pub(super) unsafe fn at(&self, bucket: usize) -> &Head {
        debug_assert!(bucket < self.len);
        // SAFETY: within the array, by 1.
        unsafe { self.base.add(bucket).as_ref() }
    }
}

impl Deref for Heads {
    type Target = [Head];

    #[inline(always)]
    fn deref(&self) -> &[Head] {
        // SAFETY: our array, of so many values.
        unsafe { NonNull::slice_from_raw_parts(self.base, self.len).as_ref() }
    }
}

impl Drop for Heads {
    fn drop(&mut self) {
        if let Owner::Reserved(bytes) = self.owner {
            // SAFETY: from `reserve` with as many bytes; nobody else uses it any more.
            unsafe { alloc::release(self.base.cast(), bytes) };
        }
    }
}
