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

#[cfg(corewise_loom)]
use loom::alloc as imp;
#[cfg(not(corewise_loom))]
use std::alloc as imp;
