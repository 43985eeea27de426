//! Raw memory, with a word about where it should live.
//!
//! loom reports memory taken here and never given back.

use std::ptr::NonNull;

pub use std::alloc::Layout;

/// Which NUMA node the memory is for.
///
/// A wish: it is recorded by the callers today and ignored by the allocator, which places pages
/// where they are first touched. So the thread that will use the memory should touch it first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Node {
    /// Wherever the caller runs.
    #[default]
    Local,
    /// The node with this number.
    Number(u32),
}

/// Memory of `layout`, not initialised; `None` when there is none, or when `layout` has no size.
///
/// Complexity: the global allocator's. Give it back with [`dealloc`].
#[track_caller]
pub fn alloc(layout: Layout, node: Node) -> Option<NonNull<u8>> {
    let _ = node;
    if layout.size() == 0 {
        return None;
    }
    // SAFETY: the layout has a size.
    NonNull::new(unsafe { imp::alloc(layout) })
}

/// As [`alloc`], with every byte zero.
#[track_caller]
pub fn alloc_zeroed(layout: Layout, node: Node) -> Option<NonNull<u8>> {
    let _ = node;
    if layout.size() == 0 {
        return None;
    }
    // SAFETY: the layout has a size.
    NonNull::new(unsafe { imp::alloc_zeroed(layout) })
}

/// Gives memory back.
///
/// # Safety
///
/// 1. `memory` came from [`alloc`] or [`alloc_zeroed`] with the same `layout` and was not given
///    back before.
/// 2. Nobody uses it any more.
#[track_caller]
pub unsafe fn dealloc(memory: NonNull<u8>, layout: Layout) {
    // SAFETY: the caller answers for 1 and 2.
    unsafe { imp::dealloc(memory.as_ptr(), layout) }
}

/// Gives the whole pages within `bytes` from `memory` on back to the system, if it takes them; they
/// read as zero when touched again. The memory stays allocated.
///
/// Complexity: a system call, and some 50 ns a page that was in use. Nothing happens on systems
/// other than Linux.
///
/// # Safety
///
/// 1. The memory came from [`alloc`] or [`alloc_zeroed`] (private anonymous memory).
/// 2. Nobody else uses it, and its owner can do with zeros or with what was there.
pub unsafe fn discard(memory: *mut u8, bytes: usize) {
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 4096;
        let start = memory.addr().next_multiple_of(PAGE);
        let end = (memory.addr() + bytes) & !(PAGE - 1);
        if start < end {
            let first = memory.with_addr(start).cast();
            // A refusal (pages of another size) leaves the memory as it was.
            // SAFETY: the caller answers for 1 and 2; the range lies within the memory.
            unsafe { libc::madvise(first, end - start, libc::MADV_DONTNEED) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (memory, bytes);
}

#[cfg(corewise_loom)]
use loom::alloc as imp;
#[cfg(not(corewise_loom))]
use std::alloc as imp;
