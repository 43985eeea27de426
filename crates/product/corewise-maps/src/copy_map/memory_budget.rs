//! Memory of a map: the limit on it, and arrays of buckets.

use std::ops::{Deref, Range};
use std::ptr::NonNull;

use crate::pair_cell::PairCell;
use corewise_atomic::alloc::{self, Layout, MemoryNode};
use corewise_atomic::sync::atomic::AtomicUsize;
use corewise_atomic::sync::atomic::Ordering::Relaxed;

/// What the tables of a map share: the bytes of buckets in use, their limit, and the number of
/// iterations.
pub struct MemoryBudget {
    limit: usize,
    used: AtomicUsize,
    walks: AtomicUsize,
}

impl MemoryBudget {
    /// No byte is in use yet; `usize::MAX` is no limit.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            used: AtomicUsize::new(0),
            walks: AtomicUsize::new(0),
        }
    }

    /// Takes `bytes` if there is room for them; returns whether it did.
    pub fn take(&self, bytes: usize) -> bool {
        let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.limit);
        // Relaxed: a number that publishes nothing, here and below.
        self.used.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Gives back bytes that were [taken](Self::take).
    pub fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Relaxed);
    }

    /// The number of iterations in progress, as far as the tables count them.
    pub fn walks(&self) -> &AtomicUsize {
        &self.walks
    }

    /// Whether there is a limit.
    pub fn is_limited(&self) -> bool {
        self.limit != usize::MAX
    }

    /// The number of bytes in use.
    pub fn used(&self) -> usize {
        // Relaxed: as in `take`.
        self.used.load(Relaxed)
    }
}

/// What an array consists of initially.
///
/// # Safety
///
/// 1. In the normal build a bucket of all zero bytes is empty.
pub unsafe trait ZeroedBucket {
    /// A bucket without entries, for the checkers, whose atomics are not plain memory.
    fn empty() -> Self;
}

// SAFETY: a cell whose bytes are all zero is an empty cell (1).
unsafe impl<K: Copy, V: Copy> ZeroedBucket for PairCell<K, V> {
    fn empty() -> Self {
        Self::empty()
    }
}

/// The address range of an array.
pub fn range_of<T>(array: &[T]) -> Range<*const u8> {
    let Range { start, end } = array.as_ptr_range();
    start.cast()..end.cast()
}

/// An array of buckets, empty at first.
pub struct Heads<B> {
    base: NonNull<B>,
    len: usize,
    /// Mapped from the system instead of taken from the global allocator.
    mapped: bool,
}

// SAFETY: it owns its buckets, as a box does.
unsafe impl<B: Send> Send for Heads<B> {}
// SAFETY: a shared reference to it gives shared references to its buckets only.
unsafe impl<B: Sync> Sync for Heads<B> {}

/// Smallest array, in bytes, that is mapped from the system: its pages are faulted in one by one.
const MAPPED_FROM: usize = 1 << 20;

impl<B> Heads<B> {
    /// Allocates `len` buckets, or returns `None` if there is no memory. `len` is not 0; the size
    /// of a bucket may be.
    pub fn try_new(len: usize) -> Option<Self>
    where
        B: ZeroedBucket,
    {
        assert!(len > 0, "no buckets");
        let layout = Layout::array::<B>(len).ok()?;
        if layout.size() == 0 {
            // Values of size zero may lie anywhere.
            let base = NonNull::dangling();
            let mapped = false;
            return Some(Self { base, len, mapped });
        }
        // The checkers' atomics are not plain memory.
        let plain = !cfg!(any(corewise_loom, corewise_shuttle));
        let mapped = cfg!(target_os = "linux") && plain && layout.size() >= MAPPED_FROM;
        let memory = if mapped {
            alloc::map_zeroed(layout.size())?
        } else {
            alloc::alloc_zeroed(layout, MemoryNode::Local)?
        };
        let base = memory.cast::<B>();
        if !plain {
            for i in 0..len {
                // SAFETY: new memory for `len` buckets. (In the normal build all zero bytes are an
                // empty bucket, as `ZeroedBucket` promises. A page is aligned.)
                unsafe { base.add(i).write(B::empty()) };
            }
        }
        Some(Self { base, len, mapped })
    }

    /// The size of an array of `len` buckets in bytes.
    pub fn bytes(len: usize) -> usize {
        len.saturating_mul(size_of::<B>())
    }

    /// The address range of the buckets.
    pub fn range(&self) -> Range<*const u8> {
        range_of(self)
    }

    /// The buckets, for a thread that has them alone.
    ///
    /// # Safety
    ///
    /// 1. No other thread uses the buckets.
    pub unsafe fn as_mut(&mut self) -> &mut [B] {
        // SAFETY: our array of `len` buckets, and no other thread uses it.
        unsafe { NonNull::slice_from_raw_parts(self.base, self.len).as_mut() }
    }
}

impl<B> Deref for Heads<B> {
    type Target = [B];

    #[inline(always)]
    fn deref(&self) -> &[B] {
        // SAFETY: our array of `len` buckets.
        unsafe { NonNull::slice_from_raw_parts(self.base, self.len).as_ref() }
    }
}

impl<B> Drop for Heads<B> {
    fn drop(&mut self) {
        // SAFETY: the buckets are no longer used; if they have a size, `try_new` allocated them
        // with this layout.
        unsafe {
            NonNull::slice_from_raw_parts(self.base, self.len).drop_in_place();
            if self.mapped {
                alloc::unmap(self.base.cast(), Self::bytes(self.len));
            } else if size_of::<B>() > 0 {
                let layout = Layout::array::<B>(self.len).expect("it was allocated");
                alloc::dealloc(self.base.cast(), layout);
            }
        }
    }
}
