//! Room for a new entry: searches for a cuckoo path without a lock, and moves a hole along it.

use corewise_atomic::mutant;
use corewise_atomic::sync::atomic::Ordering::SeqCst;
use corewise_atomic::sync::atomic::fence;

use super::bucket::{CuckooEntry, LockedBucket};
use super::state::{Homes, SLOTS, Side, Tag};
use super::table::CuckooTable;
use crate::copy_map::TableVersion;

/// Most buckets that a search for a path visits. With 95 % of all slots held it visits some ten.
#[cfg(not(any(corewise_stress, corewise_loom)))]
const MOST_BUCKETS: usize = 512;
#[cfg(any(corewise_stress, corewise_loom))]
const MOST_BUCKETS: usize = 8;

/// A step of a path: an entry that would move, or a bucket at which the search began.
#[derive(Clone, Copy)]
struct PathStep {
    /// The bucket it would move to.
    bucket: usize,
    /// The step to the bucket that it is in, and its slot and tag there.
    from: Option<(u16, u8, Tag)>,
}

const _: () = assert!(MOST_BUCKETS <= u16::MAX as usize && SLOTS <= u8::MAX as usize);

/// Moves entries until one of a key's two buckets has a free slot. Returns false if there is no
/// path, or if entries must not move at present. Otherwise it is worth trying to insert again:
/// there was a free slot, or another thread has changed the path.
pub(super) fn make_room<K: Copy, V: Copy>(
    at: &TableVersion<CuckooTable<K, V>>,
    homes: Homes,
) -> bool {
    let table = at.table();
    // While buckets are moved to another table, entries do not move within one: a new bucket must
    // get nothing before its group is moved, and the old ones are about to have room.
    if table.mask() == 0 || at.next().is_some() || table.is_walked() {
        return false;
    }
    let mut steps = PathSearch::new();
    let roots = [Side::First, Side::Second].map(|side| homes.bucket(side, table.mask()));
    let Some(mut last) = steps.search(table, roots) else {
        return false;
    };
    // The hole is in the bucket of the last step, and moves to the bucket that the step's entry
    // came from.
    while let Some((from, slot, tag)) = steps.0[last].from {
        let (from, to) = (usize::from(from), steps.0[last].bucket);
        let bucket = steps.0[from].bucket;
        match table.displace(bucket, slot.into(), tag, to) {
            Displaced::Done => last = from,
            // Another thread has changed the path: the caller tries to insert again.
            Displaced::Stale => return true,
            // An iteration has begun, during which entries do not move.
            Displaced::NotNow => return false,
        }
    }
    true
}

/// All steps visited, breadth first: the list is also the queue.
struct PathSearch(Vec<PathStep>);

impl PathSearch {
    fn new() -> Self {
        Self(Vec::with_capacity(64))
    }

    /// Finds the step to a bucket with a free slot.
    fn search<K: Copy, V: Copy>(
        &mut self,
        table: &CuckooTable<K, V>,
        roots: [usize; 2],
    ) -> Option<usize> {
        let root = |bucket| PathStep { bucket, from: None };
        self.0.extend(roots.map(root));
        let mut next = 0;
        while let Some(step) = self.0.get(next).copied() {
            let state = table.state(step.bucket);
            // A resize has begun: entries no longer move within this table.
            if state.is_moved() {
                return None;
            }
            if state.free().is_some() {
                return Some(next);
            }
            for (slot, tag) in state.used_slots() {
                if self.0.len() == MOST_BUCKETS {
                    break;
                }
                let bucket = tag.other(step.bucket, table.mask());
                table.prefetch_word(bucket);
                let from = Some((next as u16, slot as u8, tag));
                self.0.push(PathStep { bucket, from });
            }
            next += 1;
        }
        None
    }
}

/// Result of moving an entry.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Displaced {
    Done,
    /// The path has changed since the search.
    Stale,
    /// The table is being iterated over.
    NotNow,
}

impl<K: Copy, V: Copy> CuckooTable<K, V> {
    /// Moves an entry to its other bucket: it is there before it leaves this one.
    pub(super) fn displace(&self, from: usize, slot: usize, tag: Tag, to: usize) -> Displaced {
        let Some([mut source, mut target]) = self.lock_two(from, to) else {
            return Displaced::Stale;
        };
        let is_there = source.state().tag(slot) == Some(tag) || mutant!("cuckoo_stale_path");
        let (Some(place), true) = (target.free(), is_there) else {
            return Displaced::Stale;
        };
        // SeqCst: pairs with the fence in `hold_moves`. Either we see the walk, or the walk sees
        // our locks.
        fence(SeqCst);
        if self.is_walked() && !mutant!("cuckoo_moves_beside_walks") {
            return Displaced::NotNow;
        }
        let hole = source.place(slot);
        let side = source.state().side(slot).other();
        // SAFETY: the source has a tag there, so the slot is held (1).
        let entry = CuckooEntry::new(unsafe { source.pair(hole) }, tag, side);
        if mutant!("cuckoo_clears_first") {
            // SAFETY: the slot is held: its pair was read under the same lock (1).
            unsafe { source.remove(hole) };
        }
        // SAFETY: the place is free, and the target is locked (1).
        unsafe { target.insert(place, &entry) };
        target.publish();
        // Counted twice. A lookup that began before and sees the entry gone from here retries. A
        // lookup that began between the two counts retries if the slot has another entry by then. A
        // lookup that begins with this count sees the entry in its new place.
        if !mutant!("cuckoo_counts_late") {
            self.count(from);
        }
        if !mutant!("cuckoo_clears_first") {
            // SAFETY: the slot is still held: its pair was read under the same lock (1).
            unsafe { source.remove(hole) };
        }
        Displaced::Done
    }

    /// Locks two buckets of this table; `None` if one of them was moved to its successor.
    fn lock_two(&self, one: usize, other: usize) -> Option<[LockedBucket<'_, K, V>; 2]> {
        // In the order of their numbers, as all threads that wait for locks.
        let first = self.lock(one.min(other)).ok()?;
        let second = self.lock(one.max(other)).ok()?;
        Some(if one < other {
            [first, second]
        } else {
            [second, first]
        })
    }
}
