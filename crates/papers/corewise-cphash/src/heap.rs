//! The allocator of one partition: blocks of whole cache lines within a budget.
//!
//! Used by one thread at a time, so it needs no atomic operation (\[CPHASH\] §3.2). Freed blocks of
//! up to [`SMALL_LINES`] lines wait in a list for each size; a partition that replaces elements of
//! the same sizes takes blocks from there and never calls the global allocator. Larger blocks come
//! from and go to the global allocator.
//!
//! # Guarantees
//!
//! 1. *Budget.* The bytes of all blocks, those in the lists included, never exceed the budget at
//!    the time of an allocation. Lists are emptied before an allocation is refused. Reducing the
//!    budget empties the lists, and refuses allocations until enough blocks are free; it frees no
//!    block.
//! 2. *Cost.* Constant, plus at most one allocation by the global allocator, plus one call for each
//!    idle block that is freed.

use std::ptr::NonNull;

use corewise_atomic::alloc::{self, Layout, MemoryNode};

use crate::element::LINE;

/// Lines of the largest block that is kept for reuse.
const SMALL_LINES: usize = 16;

/// A free block; the first word of its memory leads to the next one.
type FreeBlock = Option<NonNull<u8>>;

pub(crate) struct Heap {
    budget: usize,
    /// Bytes of the blocks in use.
    used: usize,
    /// Bytes of the blocks in `free`.
    idle: usize,
    /// Free blocks of 1, 2, … lines.
    free: [FreeBlock; SMALL_LINES],
}

// SAFETY: the heap owns its free blocks.
unsafe impl Send for Heap {}

fn layout(lines: usize) -> Layout {
    // Sizes come from `element::Layout::lines`, which bounds them.
    Layout::from_size_align(lines * LINE, LINE).expect("blocks are below 8 GiB")
}

impl Heap {
    pub(crate) fn new(budget: usize) -> Self {
        Self {
            budget,
            used: 0,
            idle: 0,
            free: [None; SMALL_LINES],
        }
    }

    pub(crate) fn budget(&self) -> usize {
        self.budget
    }

    /// Bytes of the blocks in use.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Bytes of all blocks, in use or kept for reuse.
    pub(crate) fn held_bytes(&self) -> usize {
        self.used + self.idle
    }

    pub(crate) fn set_budget(&mut self, bytes: usize) {
        self.budget = bytes;
        if self.held_bytes() > self.budget {
            self.release_idle();
        }
    }

    /// Whether the budget has room for a block of these lines.
    #[inline]
    pub(crate) fn has_room(&self, lines: usize) -> bool {
        lines * LINE + self.used <= self.budget
    }

    /// A block of these lines, aligned to a line; `None` if the budget has no room for it, or the
    /// system has no memory.
    #[inline]
    pub(crate) fn allocate(&mut self, lines: usize) -> Option<NonNull<u8>> {
        if !self.has_room(lines) {
            return None;
        }
        self.take(lines)
    }

    /// As [`allocate`](Self::allocate), whatever the budget is. The caller checks it.
    #[inline]
    pub(crate) fn take(&mut self, lines: usize) -> Option<NonNull<u8>> {
        let bytes = lines * LINE;
        if let Some(list) = self.free.get_mut(lines - 1)
            && let Some(block) = *list
        {
            // SAFETY: a free block begins with the link to the next one.
            *list = unsafe { block.cast::<FreeBlock>().read() };
            self.idle -= bytes;
            self.used += bytes;
            return Some(block);
        }
        self.allocate_anew(lines)
    }

    #[cold]
    fn allocate_anew(&mut self, lines: usize) -> Option<NonNull<u8>> {
        let bytes = lines * LINE;
        if self.held_bytes() + bytes > self.budget {
            self.release_idle();
        }
        let block = alloc::alloc(layout(lines), MemoryNode::Local)?;
        self.used += bytes;
        Some(block)
    }

    /// Takes a block back.
    ///
    /// # Safety
    ///
    /// 1. `block` came from `allocate` of this heap with the same number of lines.
    /// 2. No code uses it afterwards.
    #[inline]
    pub(crate) unsafe fn free(&mut self, block: NonNull<u8>, lines: usize) {
        let bytes = lines * LINE;
        self.used -= bytes;
        // Model checkers are to see that the memory is gone.
        let is_kept = !cfg!(any(corewise_loom, corewise_shuttle, corewise_stress));
        if is_kept
            && self.held_bytes() + bytes <= self.budget
            && let Some(list) = self.free.get_mut(lines - 1)
        {
            // SAFETY: the block is ours now (2), and has room for a link.
            unsafe { block.cast::<FreeBlock>().write(*list) };
            *list = Some(block);
            self.idle += bytes;
        } else {
            // SAFETY: it came from `alloc` with this layout (1), and is not used any more (2).
            unsafe { alloc::dealloc(block, layout(lines)) };
        }
    }

    /// Gives all free blocks back to the global allocator.
    #[cold]
    pub(crate) fn release_idle(&mut self) {
        for lines in 1..=SMALL_LINES {
            while let Some(block) = self.free[lines - 1] {
                // SAFETY: a free block begins with the link to the next one; it came from `alloc`
                // with this layout, and leaves the list.
                unsafe {
                    self.free[lines - 1] = block.cast::<FreeBlock>().read();
                    alloc::dealloc(block, layout(lines));
                }
            }
        }
        self.idle = 0;
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        debug_assert_eq!(self.used, 0, "the partition frees its elements first");
        self.release_idle();
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_freed_block_is_used_again_and_counts_until_it_is_released() {
        let mut heap = Heap::new(4 * LINE);
        let first = heap.allocate(3).unwrap();
        assert!(heap.allocate(2).is_none());
        // SAFETY: allocated with 3 lines, and not used again.
        unsafe { heap.free(first, 3) };
        assert_eq!(heap.used(), 0);
        // The idle block makes way for one of another size.
        let second = heap.allocate(4).unwrap();
        assert_eq!((heap.used(), heap.held_bytes()), (4 * LINE, 4 * LINE));
        // SAFETY: allocated with 4 lines, and not used again.
        unsafe { heap.free(second, 4) };
        heap.set_budget(LINE);
        assert_eq!(heap.held_bytes(), 0);
        assert!(heap.allocate(2).is_none());
    }

    #[test]
    fn blocks_are_aligned_to_lines() {
        let mut heap = Heap::new(1 << 20);
        for lines in 1..40 {
            let block = heap.allocate(lines).unwrap();
            assert_eq!(block.addr().get() % LINE, 0);
            // SAFETY: allocated with these lines, and not used again.
            unsafe { heap.free(block, lines) };
            assert!(heap.held_bytes() <= heap.budget());
        }
    }
}
