//! Allocators of item memory.
//!
//! A memory budget must count the bytes that the allocator really took, so an engine asks the
//! allocator for that number. Binaries plug in their allocator. The library's default is the global
//! allocator, which cannot report true sizes; they are estimated by glibc's rule.

use std::alloc::Layout;
use std::ptr::NonNull;

/// Alignment of every item.
pub const ITEM_ALIGN: usize = 8;

/// An allocator of item memory.
///
/// # Safety
///
/// 1. `alloc` returns memory that is valid for reads and writes of `size` bytes, aligned to
///    [`ITEM_ALIGN`], and not handed out again before it is passed to `dealloc`.
/// 2. Both methods may be called from any thread at any time.
pub unsafe trait ItemAllocator: Send + Sync + 'static {
    /// Allocates at least `size` bytes. Returns the memory and the number of bytes really taken
    /// from the system for it, or `None` when there is no memory.
    fn alloc(&self, size: usize) -> Option<(NonNull<u8>, usize)>;

    /// Frees memory.
    ///
    /// # Safety
    ///
    /// `ptr` came from `alloc(size)` of the same allocator and is not used afterwards.
    unsafe fn dealloc(&self, ptr: NonNull<u8>, size: usize);

    /// The allocator's name, for reports.
    fn name(&self) -> &'static str;
}

/// The process's global allocator.
///
/// Sizes are estimated as glibc's `malloc` would round them: eight bytes of header, multiples of
/// sixteen, at least 32.
#[derive(Clone, Copy, Debug, Default)]
pub struct GlobalHeap;

fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size.max(1), ITEM_ALIGN).ok()
}

// SAFETY: std's global allocator gives both guarantees for the layout built here, whose alignment
// is ITEM_ALIGN.
unsafe impl ItemAllocator for GlobalHeap {
    fn alloc(&self, size: usize) -> Option<(NonNull<u8>, usize)> {
        let layout = layout(size)?;
        // SAFETY: `layout` never has size zero.
        let ptr = NonNull::new(unsafe { std::alloc::alloc(layout) })?;
        Some((ptr, (size + 8).next_multiple_of(16).max(32)))
    }

    unsafe fn dealloc(&self, ptr: NonNull<u8>, size: usize) {
        if let Some(layout) = layout(size) {
            // SAFETY: by this function's contract `ptr` came from `alloc(size)`, which used the
            // same layout.
            unsafe { std::alloc::dealloc(ptr.as_ptr(), layout) }
        }
    }

    fn name(&self) -> &'static str {
        "global"
    }
}
