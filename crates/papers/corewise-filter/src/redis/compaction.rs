//! How items move from newer subfilters to older ones.
//!
//! From the newest subfilter on, each item goes to the first free slot in its buckets of the oldest
//! subfilter that has one. A subfilter that is newest and has become empty is popped. A compaction
//! after a removal ends with the first subfilter that keeps an item; one that was asked for goes on
//! through all but the first.
//!
//! The bucket of a fingerprint, with the other bucket that follows from it, gives both buckets of
//! the item in every older subfilter, since these have fewer buckets by a power of two.

use corewise_atomic::sync::atomic::Ordering::{Relaxed, Release};
use corewise_atomic::{mutant, ordering};

use super::hash::FiledItem;
use super::subfilter::Subfilter;
use super::versions::MOVING;
use super::{CompactionRuns, RedisCuckoo, SlotStore, WriterState};

/// The work that a removal does of the compaction that it begins, and a good amount for a step. One
/// is a word of eight free slots; a fingerprint is as much as a bucket has words, and twice that
/// for each older subfilter in which its buckets are full. The work of one fingerprint may exceed
/// it.
pub const STEP_WORK: u64 = 1 << 15;

/// How far a compaction is.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompactionCursor {
    /// The subfilter.
    index: usize,
    /// The next slot in it, a multiple of eight.
    slot: u64,
    /// Whether the subfilter keeps an item, or may.
    pub(super) keeps: bool,
    /// Whether it goes on after a subfilter that keeps something.
    goes_on: bool,
}

impl RedisCuckoo {
    /// Begins the compaction of `CF.COMPACT`, which [`compact_step`](Self::compact_step) does.
    ///
    /// # Errors
    ///
    /// If another compaction runs.
    pub fn start_compaction(&self) -> Result<(), CompactionRuns> {
        let mut state = self.writer.lock();
        if state.compaction.is_some() {
            return Err(CompactionRuns);
        }
        self.begin(&mut state, true);
        Ok(())
    }

    /// Does this much of the compaction that runs, if any, see [`STEP_WORK`]; returns whether there
    /// is more to do.
    pub fn compact_step(&self, work: u64) -> bool {
        self.step(&mut self.writer.lock(), work)
    }

    /// Whether a compaction runs.
    #[must_use]
    pub fn is_compacting(&self) -> bool {
        self.writer.lock().compaction.is_some()
    }

    /// Begins a compaction if a removal requires one, and does a part of it; returns whether it has
    /// begun one and there is more to do.
    pub(super) fn compact_after_removal(&self, state: &mut WriterState) -> bool {
        // RedisBloom compares floating point numbers.
        let is_due = state.deletions as f64 > state.items as f64 * 0.1;
        // Relaxed: only the holder of the lock stores it.
        let is_wanted = is_due && self.count.load(Relaxed) > 1 && state.compaction.is_none();
        if is_wanted {
            self.begin(state, false);
        }
        is_wanted && self.step(state, STEP_WORK)
    }

    fn begin(&self, state: &mut WriterState, goes_on: bool) {
        state.compaction = Some(CompactionCursor {
            // Relaxed: only the holder of the lock stores it.
            index: self.count.load(Relaxed) - 1,
            slot: 0,
            keeps: false,
            goes_on,
        });
    }

    fn step(&self, state: &mut WriterState, work: u64) -> bool {
        let Some(mut cursor) = state.compaction.take() else {
            return false;
        };
        let mut left = work.max(1);
        while cursor.index > 0 {
            let subfilter = self.in_use().nth(cursor.index).expect("it is in use");
            while cursor.slot < subfilter.slots() {
                if left == 0 {
                    state.compaction = Some(cursor);
                    return true;
                }
                left = left.saturating_sub(self.move_eight(subfilter, &mut cursor));
            }
            if !cursor.keeps {
                self.pop(cursor.index);
            } else if !cursor.goes_on {
                break;
            }
            cursor = CompactionCursor {
                index: cursor.index - 1,
                slot: 0,
                keeps: false,
                ..cursor
            };
        }
        state.deletions = 0;
        false
    }

    /// Moves what it can of the next eight slots; returns the work that this was.
    fn move_eight(&self, subfilter: &Subfilter, cursor: &mut CompactionCursor) -> u64 {
        let first = cursor.slot;
        cursor.slot += 8;
        let fingerprints = subfilter.eight(first).to_le_bytes();
        let bucket_words = subfilter.size().bucket_words();
        let mut work = 1;
        for (slot, fingerprint) in (first..).zip(fingerprints) {
            if fingerprint != 0 {
                let probed = self.move_to_older(subfilter, cursor, slot, fingerprint);
                work += bucket_words * (1 + 2 * probed);
            }
        }
        work
    }

    /// Moves an item to an older subfilter; returns the number of those in which it found no room.
    fn move_to_older(
        &self,
        subfilter: &Subfilter,
        cursor: &mut CompactionCursor,
        slot: u64,
        fingerprint: u8,
    ) -> u64 {
        let item = FiledItem::in_bucket(fingerprint, subfilter.bucket_of_slot(slot));
        let older = self.in_use().take(cursor.index);
        let free = older.zip(0..).find_map(|(older, probed)| {
            let slot = Self::find_slot(older, &item, 0)?;
            Some((older, slot, probed))
        });
        let Some((older, free, probed)) = free else {
            cursor.keeps = true;
            return cursor.index as u64;
        };
        let copy = SlotStore {
            subfilter: older,
            slot: free,
            value: fingerprint,
        };
        let clear = SlotStore {
            subfilter,
            slot,
            value: 0,
        };
        if mutant!("redis_clears_before_copy") {
            self.store([clear, copy].into_iter(), MOVING);
        } else {
            self.store([copy, clear].into_iter(), MOVING);
        }
        probed
    }

    /// Takes the subfilter with this index out of use if it is the newest. It is empty.
    fn pop(&self, index: usize) {
        // Relaxed: only the holder of the lock stores it.
        if index + 1 == self.count.load(Relaxed) {
            // Release: pairs with the Acquire in `in_use`: all items are in the others.
            self.count
                .store(index, ordering!(Release, "redis_relaxed_pop"));
        }
    }
}
