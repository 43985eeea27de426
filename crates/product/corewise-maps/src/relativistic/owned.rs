//! Per-thread data of a map, without locks.
//!
//! A section identifies the record that its thread (or an owned guard) has in the domain, and the
//! domain guarantees that no two of them have the same record at a time (`corewise_rcu::Section`).
//! So the slot with the record's index belongs to the section's holder as long as it lasts. What a
//! holder leaves in its slot goes to the next one. A part of each slot is open to all threads.
//!
//! Slots are allocated in blocks of 4, 4, 8, 16, ... and live as long as the map.

use std::ptr;

use corewise_atomic::cell::DataCell;
use corewise_atomic::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicUsize};
use corewise_atomic::{CachePadded, Slots};
use corewise_rcu::Section;

/// Number of slots in the first block.
const FIRST: usize = 4;
const BLOCKS: usize = usize::BITS as usize - FIRST.ilog2() as usize;

/// One slot for each thread: a `T` that only this thread uses, and a `P` that all threads use.
pub(super) struct PerThread<T, P> {
    blocks: [AtomicPtr<Block<T, P>>; BLOCKS],
}

type Block<T, P> = Slots<CachePadded<ThreadSlot<T, P>>>;

struct ThreadSlot<T, P> {
    own: DataCell<T>,
    public: P,
    /// Insertions minus removals of this thread, wrapping; written by this thread only.
    entries: AtomicUsize,
}

impl<T: Default, P: Default> PerThread<T, P> {
    pub(super) fn new() -> Self {
        Self {
            blocks: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        }
    }

    /// Calls `f` with the slot of the section's thread. `f` must not call foreign code or this
    /// function.
    ///
    /// # Safety
    ///
    /// 1. All sections used with this map belong to one domain.
    #[inline]
    pub(super) unsafe fn with<R>(&self, section: &impl Section, f: impl FnOnce(&mut T) -> R) -> R {
        let slot = self.slot(section.reader_index());
        // SAFETY: the slot is this thread's while the section lives, and its next owner sees what
        // this one did (`Section`); the only other access is by `&mut self`.
        slot.own.with_mut(|own| f(unsafe { &mut *own }))
    }

    /// As [`PerThread::with`], and adds `by` to the thread's count of entries.
    ///
    /// # Safety
    ///
    /// 1. As there.
    #[inline]
    pub(super) unsafe fn count<R>(
        &self,
        section: &impl Section,
        by: isize,
        f: impl FnOnce(&mut T, &P) -> R,
    ) -> R {
        let slot = self.slot(section.reader_index());
        // Relaxed, both: only this thread writes it, and it publishes nothing.
        let entries = slot.entries.load(Relaxed).wrapping_add_signed(by);
        slot.entries.store(entries, Relaxed);
        // SAFETY: the slot is this thread's while the section lives, and its next owner sees what
        // this one did (`Section`); the only other access is by `&mut self`.
        slot.own
            .with_mut(|own| f(unsafe { &mut *own }, &slot.public))
    }

    /// The public part of the slot of the section's thread.
    #[inline]
    pub(super) fn public(&self, section: &impl Section) -> &P {
        &self.slot(section.reader_index()).public
    }

    #[inline]
    fn slot(&self, index: usize) -> &ThreadSlot<T, P> {
        let (block, offset) = place(index);
        // Acquire: pairs with the Release in `make`, so that the slots are seen.
        let at = self.blocks[block].load(Acquire);
        let at = if at.is_null() { self.make(block) } else { at };
        // SAFETY: blocks live as long as the directory.
        let block = unsafe { &*at };
        &block[offset]
    }

    #[cold]
    fn make(&self, block: usize) -> *mut Block<T, P> {
        let len = if block == 0 {
            FIRST
        } else {
            FIRST << (block - 1)
        };
        let slots = Slots::from_fn(len, |_| {
            CachePadded::new(ThreadSlot {
                own: DataCell::new(T::default()),
                public: P::default(),
                entries: AtomicUsize::new(0),
            })
        });
        let new = Box::into_raw(Box::new(slots));
        // AcqRel: Release pairs with the Acquire in `slot`. Acquire on failure: as there.
        match self.blocks[block].compare_exchange(ptr::null_mut(), new, AcqRel, Acquire) {
            Ok(_) => new,
            Err(theirs) => {
                // SAFETY: made above, and no other thread has seen it.
                drop(unsafe { Box::from_raw(new) });
                theirs
            }
        }
    }
}

impl<T, P> PerThread<T, P> {
    fn blocks(&self) -> impl Iterator<Item = *mut Block<T, P>> {
        // Acquire: as in `slot`.
        let blocks = self.blocks.iter().map(|block| block.load(Acquire));
        blocks.filter(|block| !block.is_null())
    }

    fn slots(&self) -> impl Iterator<Item = &ThreadSlot<T, P>> {
        // SAFETY: blocks live as long as the directory.
        let blocks = self.blocks().map(|block| unsafe { &*block });
        blocks.flat_map(|block| block.iter().map(|slot| &**slot))
    }

    /// The public parts of all slots.
    pub(super) fn all_public(&self) -> impl Iterator<Item = &P> {
        self.slots().map(|slot| &slot.public)
    }

    /// The sum of all counts: exact while no thread counts.
    pub(super) fn entries(&self) -> usize {
        // Relaxed: as in `count`.
        let sum = self.slots().fold(0usize, |sum, slot| {
            sum.wrapping_add(slot.entries.load(Relaxed))
        });
        sum.cast_signed().max(0).cast_unsigned()
    }

    /// Visits all slots, for the exclusive owner of the map.
    pub(super) fn for_each_mut(&mut self, mut visit: impl FnMut(&mut P)) {
        for block in self.blocks() {
            // SAFETY: blocks live as long as the directory, which is ours alone.
            for slot in unsafe { &mut *block }.iter_mut() {
                visit(&mut slot.public);
            }
        }
    }
}

impl<T, P> Drop for PerThread<T, P> {
    fn drop(&mut self) {
        for block in self.blocks() {
            // SAFETY: made by `make`, and freed once.
            drop(unsafe { Box::from_raw(block) });
        }
    }
}

/// Block and offset of a slot.
#[inline]
fn place(index: usize) -> (usize, usize) {
    let rounds = index / FIRST;
    match rounds {
        0 => (0, index),
        _ => {
            let block = rounds.ilog2() as usize + 1;
            (block, index - (FIRST << (block - 1)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_has_a_place_of_its_own() {
        let mut next = (0, 0);
        for index in 0..1000 {
            assert_eq!(place(index), next);
            let len = if next.0 == 0 {
                FIRST
            } else {
                FIRST << (next.0 - 1)
            };
            next = if next.1 + 1 == len {
                (next.0 + 1, 0)
            } else {
                (next.0, next.1 + 1)
            };
        }
    }
}
