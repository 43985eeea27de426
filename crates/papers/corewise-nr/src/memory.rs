//! Where a [sorted set](crate::sorted_set) takes its memory from: the global allocator, or a source
//! of its owner's that counts and bounds it.

use std::alloc::Layout;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::sync::Arc;

use allocator_api2::alloc::{AllocError, Allocator, Global};

/// A source of blocks of memory.
///
/// # Safety
///
/// 1. `allocate` returns memory that is valid for reads and writes of the layout's size, has its
///    alignment, and is not handed out again before it is deallocated.
/// 2. A block stays valid until it is deallocated or the source is dropped. If `resize` returns
///    true, the block has the new size from then on, and what is in both sizes is unchanged;
///    otherwise the block is unchanged.
pub unsafe trait BlockSource: Send + Sync + UnwindSafe + RefUnwindSafe {
    /// Allocates a block; `None` if there is no memory. The layout's size is not zero.
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>>;

    /// Changes the size of a block where it is. Returns false if that is not possible.
    ///
    /// # Safety
    ///
    /// 1. The block came from `allocate` or `resize` of this source with the layout `old`, and was
    ///    not deallocated. The alignment of `new` is that of `old`, and its size is not zero.
    /// 2. No reference to a part of the block that is not in both sizes exists.
    unsafe fn resize(&self, block: NonNull<u8>, old: Layout, new: Layout) -> bool;

    /// Frees a block.
    ///
    /// # Safety
    ///
    /// 1. The block came from `allocate` or `resize` of this source with this layout, and was not
    ///    deallocated.
    /// 2. It is not used afterwards.
    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout);
}

/// A handle to a source of memory; the default is the global allocator.
#[derive(Clone, Default)]
pub struct SetMemory(Option<Arc<Box<dyn BlockSource>>>);

impl SetMemory {
    /// SetMemory from this source, which lives as long as anything that was allocated from it.
    #[must_use]
    pub fn new(source: impl BlockSource + 'static) -> Self {
        // The inner box makes the handle, of which each array of a set has one, a single word.
        Self(Some(Arc::new(Box::new(source))))
    }
}

impl std::fmt::Debug for SetMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "own" } else { "global" })
    }
}

fn block_of(memory: NonNull<u8>, layout: Layout) -> NonNull<[u8]> {
    NonNull::slice_from_raw_parts(memory, layout.size())
}

impl SetMemory {
    /// Changes the size of a block of the source, or of one without bytes.
    ///
    /// # Safety
    ///
    /// 1. As for [`Allocator::grow`] or [`Allocator::shrink`], whichever the layouts ask for.
    unsafe fn change_size(
        &self,
        source: &Arc<Box<dyn BlockSource>>,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let kept = old.size().min(new.size());
        // SAFETY: the block is one of the source's, since it has bytes, and was allocated with the
        // old layout (1); the caller uses no bytes beyond the new size (2). Both are by 1.
        if kept > 0 && old.align() == new.align() && unsafe { source.resize(block, old, new) } {
            return Ok(block_of(block, new));
        }
        let moved = self.allocate(new)?;
        // SAFETY: both blocks have the bytes that are kept, and do not overlap, because both are
        // allocated. The old one is not used afterwards, by 1.
        unsafe {
            moved.cast::<u8>().copy_from_nonoverlapping(block, kept);
            self.deallocate(block, old);
        }
        Ok(moved)
    }
}

// SAFETY: blocks are those of the global allocator, or of a source that every clone keeps alive; by
// the source's guarantees they are valid until they are deallocated. Blocks of size zero are
// dangling, and are neither read nor freed.
unsafe impl Allocator for SetMemory {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        match &self.0 {
            Some(source) if layout.size() > 0 => {
                let memory = source.allocate(layout).ok_or(AllocError)?;
                Ok(block_of(memory, layout))
            }
            _ => Global.allocate(layout),
        }
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: by the caller's contract the block came from this handle or a clone, with this
        // layout, so from the branch that is taken here (1), and is not used afterwards (2).
        unsafe {
            match &self.0 {
                Some(source) if layout.size() > 0 => source.deallocate(block, layout),
                _ => Global.deallocate(block, layout),
            }
        }
    }

    unsafe fn grow(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let Some(source) = &self.0 else {
            // SAFETY: by the caller's contract, which is that of the global allocator.
            return unsafe { Global.grow(block, old, new) };
        };
        // SAFETY: by the caller's contract.
        unsafe { self.change_size(source, block, old, new) }
    }

    unsafe fn shrink(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let Some(source) = &self.0 else {
            // SAFETY: by the caller's contract, which is that of the global allocator.
            return unsafe { Global.shrink(block, old, new) };
        };
        // SAFETY: by the caller's contract.
        unsafe { self.change_size(source, block, old, new) }
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;
    use std::alloc::{GlobalAlloc, Layout};
    use std::ptr::NonNull;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use proptest::prelude::*;

    use super::{BlockSource, SetMemory};
    use crate::sorted_set::{Bounds, Direction, MAX_MEMBERS, MostMoved, SortedSet};

    /// The system's allocator, and the bytes that it has given.
    #[derive(Clone, Default)]
    struct Counting(Arc<AtomicUsize>);

    // SAFETY: the system's allocator keeps both guarantees; `resize` changes nothing.
    unsafe impl BlockSource for Counting {
        fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
            self.0.fetch_add(layout.size(), Relaxed);
            // SAFETY: the size is not zero, by the trait's contract.
            NonNull::new(unsafe { System.alloc(layout) })
        }

        unsafe fn resize(&self, _: NonNull<u8>, old: Layout, new: Layout) -> bool {
            old == new
        }

        unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
            self.0.fetch_sub(layout.size(), Relaxed);
            // SAFETY: the block is one of the system's and has this layout, by the trait's
            // contract.
            unsafe { System.dealloc(block.as_ptr(), layout) }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(Vec<u8>),
        Remove(Vec<u8>),
        Pop(usize),
        Keep(i64),
        /// Members of these ranks, in steps.
        Detach(i64, i64),
        Empty,
        DropSome,
        Clone,
        /// From an array on, at most this number.
        Move(usize, usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let member = || prop::collection::vec(0..4_u8, 1..40);
        prop_oneof![
            30 => member().prop_map(Step::Insert),
            6 => member().prop_map(Step::Remove),
            1 => (0..20_usize).prop_map(Step::Pop),
            1 => (0..20_i64).prop_map(Step::Keep),
            2 => (0..20_i64, 0..40_i64).prop_map(|(from, to)| Step::Detach(from, to)),
            1 => Just(Step::Empty),
            1 => Just(Step::DropSome),
            1 => Just(Step::Clone),
            3 => (0..20_usize, 0..40_usize).prop_map(|(from, moves)| Step::Move(from, moves)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 128 }))]

        /// All memory of a set comes from its source, and moving its arrays changes nothing.
        #[test]
        fn a_set_takes_its_memory_from_its_source(steps in prop::collection::vec(step(), 0..400)) {
            let counting = Counting::default();
            let bytes = || counting.0.load(Relaxed);
            let mut set = SortedSet::with_memory(MAX_MEMBERS, 0, &SetMemory::new(counting.clone()));
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Insert(member) => {
                        set.insert(&member, number as f64).expect("room");
                    }
                    Step::Remove(member) => {
                        set.remove(&member);
                    }
                    Step::Pop(count) => {
                        set.pop_many(Direction::Ascending, count);
                    }
                    Step::Keep(count) => {
                        set.remove_range(Bounds::Rank(0, -1 - count));
                    }
                    Step::Detach(from, to) => {
                        set.detach_range(Bounds::Rank(from, to));
                    }
                    Step::Empty => set = set.emptied(),
                    Step::DropSome => {
                        set.drop_some(3);
                    }
                    Step::Clone => set = set.clone(),
                    Step::Move(from, moves) => {
                        let (members, before) = (set.clone(), set.memory());
                        let most = MostMoved { looks: usize::MAX, moves };
                        let mut moved = 0;
                        let next = set.move_arrays(from, most, &mut |_| {
                            moved += 1;
                            true
                        });
                        prop_assert!(moved <= moves && (moved == moves || next.is_none()));
                        prop_assert_eq!(set.memory(), before);
                        set.assert_valid();
                        prop_assert_eq!(&set, &members);
                    }
                }
                prop_assert_eq!(bytes(), set.memory());
            }
            let boxed = set.boxed();
            prop_assert_eq!(bytes(), boxed.memory() + size_of::<SortedSet>());
            drop(boxed);
            prop_assert_eq!(bytes(), 0);
        }
    }
}
