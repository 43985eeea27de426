//! Memory of items in the engines `locked` and `global-lock`: mimalloc, which also reports the
//! usable size of each block. Also returns freed memory to the system.

use corewise_engine::alloc::{ITEM_ALIGN, ItemAllocator};
use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::ptr::NonNull;

/// mimalloc for items, regardless of the process's global allocator.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ItemHeap;

/// Returns the memory that this thread has freed to the system.
///
/// mimalloc keeps empty pages of each block size that a thread has used until the thread allocates
/// again. With several event loops and large requests, these pages take more than a small cache.
/// The call visits all pages of the thread, so do not make it for every request.
pub(crate) fn return_freed() {
    // SAFETY: may be called at any time, regardless of the process's global allocator.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size.max(1), ITEM_ALIGN).ok()
}

// SAFETY: mimalloc returns memory of at least the layout's size and alignment, exclusively, from
// any thread.
unsafe impl ItemAllocator for ItemHeap {
    #[inline]
    fn alloc(&self, size: usize) -> Option<(NonNull<u8>, usize)> {
        // SAFETY: the layout's size is not zero; `usable_size` gets a live pointer from the same
        // allocator.
        unsafe {
            let ptr = NonNull::new(MiMalloc.alloc(layout(size)?))?;
            Some((ptr, MiMalloc.usable_size(ptr.as_ptr())))
        }
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: NonNull<u8>, size: usize) {
        if let Some(layout) = layout(size) {
            // SAFETY: by contract `ptr` came from `alloc(size)`.
            unsafe { MiMalloc.dealloc(ptr.as_ptr(), layout) }
        }
    }

    fn name(&self) -> &'static str {
        "mimalloc"
    }
}
