//! Items' memory in the engines `locked` and `global-lock`: mimalloc, asked for the true size of what
//! it gave; and how it is made to let go of what was freed.

use corewise_cache::alloc::{ITEM_ALIGN, ItemAllocator};
use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::ptr::NonNull;

/// mimalloc for items, whatever the process's global allocator is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ItemHeap;

/// Gives back to the system what this thread has freed.
///
/// mimalloc keeps an empty page of each size that a thread has had, until the thread asks for more: with
/// eight loops and requests of 500 KB that is 30 MB. Some microseconds, so not after every request.
pub(crate) fn let_go() {
    // SAFETY: may be called at any time, whatever the process's global allocator is.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size.max(1), ITEM_ALIGN).ok()
}

// SAFETY: mimalloc returns memory of at least the layout's size and alignment,
// exclusively, from any thread.
unsafe impl ItemAllocator for ItemHeap {
    #[inline]
    fn alloc(&self, size: usize) -> Option<(NonNull<u8>, usize)> {
        // SAFETY: the layout's size is not zero; `usable_size` gets a live
        // pointer from the same allocator.
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
