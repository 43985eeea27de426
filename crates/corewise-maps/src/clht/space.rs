//! Memory of a table: how much there may be, and arrays of buckets.

use std::ops::Deref;
use std::ptr::NonNull;

use corewise_atomic::alloc::{self, Layout, Node};
use corewise_atomic::sync::atomic::AtomicUsize;
use corewise_atomic::sync::atomic::Ordering::Relaxed;

use super::bucket::Bucket;

/// Bytes of buckets that a map has and may have.
pub(super) struct Space {
    limit: usize,
    used: AtomicUsize,
}

impl Space {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            used: AtomicUsize::new(0),
        }
    }

    /// Whether there is room for so many bytes, which are taken then.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.limit);
        // Relaxed: a number that publishes nothing, here and below.
        self.used.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    pub(super) fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Relaxed);
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }
}

/// An array of first buckets, empty at first.
pub(super) struct Heads {
    base: NonNull<Bucket>,
    len: usize,
    /// Straight from the system, not from the global allocator.
    mapped: bool,
}

// SAFETY: it owns its buckets, which are atomics.
unsafe impl Send for Heads {}
// SAFETY: as above.
unsafe impl Sync for Heads {}

/// Bytes from which on an array comes from the system: its pages are put in place one by one.
const MAPPED_FROM: usize = 1 << 20;

impl Heads {
    /// So many buckets, or `None` if there is no memory for them. Their number is not 0.
    pub(super) fn try_new(len: usize) -> Option<Self> {
        assert!(len > 0, "no buckets");
        let layout = Layout::array::<Bucket>(len).ok()?;
        // The checkers' atomics are not plain memory.
        let plain = !cfg!(any(corewise_loom, corewise_shuttle));
        let mapped = cfg!(target_os = "linux") && plain && layout.size() >= MAPPED_FROM;
        let memory = if mapped {
            alloc::map_zeroed(layout.size())?
        } else {
            alloc::alloc_zeroed(layout, Node::Local)?
        };
        let base = memory.cast::<Bucket>();
        if !plain {
            for i in 0..len {
                // SAFETY: new memory for so many buckets. (In the normal build all bytes zero are an empty one:
                // its atomics have the layout of the integers and pointers they hold. A page is aligned.)
                unsafe { base.add(i).write(Bucket::empty()) };
            }
        }
        Some(Self { base, len, mapped })
    }

    pub(super) fn bytes(len: usize) -> usize {
        len.saturating_mul(size_of::<Bucket>())
    }

    /// # Safety
    ///
    /// 1. Nobody else uses the buckets.
    pub(super) unsafe fn as_mut(&mut self) -> &mut [Bucket] {
        // SAFETY: our array, of so many buckets, and nobody else uses it.
        unsafe { NonNull::slice_from_raw_parts(self.base, self.len).as_mut() }
    }
}

impl Deref for Heads {
    type Target = [Bucket];

    #[inline(always)]
    fn deref(&self) -> &[Bucket] {
        // SAFETY: our array, of so many buckets.
        unsafe { NonNull::slice_from_raw_parts(self.base, self.len).as_ref() }
    }
}

impl Drop for Heads {
    fn drop(&mut self) {
        // SAFETY: nobody uses the buckets any more; they were allocated by `try_new`, with this layout.
        unsafe {
            NonNull::slice_from_raw_parts(self.base, self.len).drop_in_place();
            if self.mapped {
                alloc::unmap(self.base.cast(), Self::bytes(self.len));
            } else {
                let layout = Layout::array::<Bucket>(self.len).expect("it was allocated");
                alloc::dealloc(self.base.cast(), layout);
            }
        }
    }
}
