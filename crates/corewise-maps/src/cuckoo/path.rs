//! Room for a new entry: a cuckoo path is looked for without a lock, and a hole is moved along it.

use corewise_atomic::mutant;
use corewise_atomic::sync::atomic::Ordering::SeqCst;
use corewise_atomic::sync::atomic::fence;

use super::bucket::{Entry, Locked};
use super::state::{Homes, SLOTS, Side, Tag};
use super::table::CuckooTable;
use crate::copy_map::Stage;

/// Buckets that are looked at for one path. With 95 % of all slots held it takes some ten.
#[cfg(not(any(corewise_stress, corewise_loom)))]
const MOST_BUCKETS: usize = 512;
#[cfg(any(corewise_stress, corewise_loom))]
const MOST_BUCKETS: usize = 8;

/// An entry that would move, or the bucket that the search began with.
#[derive(Clone, Copy)]
struct Step {
    /// Where it would move to.
    bucket: usize,
    /// The step to the bucket where it is, and its slot and tag there.
    from: Option<(u16, u8, Tag)>,
}

const _: () = assert!(MOST_BUCKETS <= u16::MAX as usize && SLOTS <= u8::MAX as usize);

/// Moves entries until one of both buckets of a key has a free slot. False if there is no way; otherwise there was
/// one, though others may have changed that since.
pub(super) fn make_room<K: Copy, V: Copy>(at: &Stage<CuckooTable<K, V>>, homes: Homes) -> bool {
    let table = at.table();
    // While buckets go to another table, entries do not move within one: a new bucket must get nothing before
    // its group is there, and the old ones are about to have room.
    if table.mask() == 0 || at.next().is_some() || table.is_walked() {
        return false;
    }
    let mut steps = Search::new();
    let roots = [Side::First, Side::Second].map(|side| homes.bucket(side, table.mask()));
    let Some(mut last) = steps.search(table, roots) else {
        return false;
    };
    // The hole is in the bucket of the last step, and moves to where that one came from.
    while let Some((from, slot, tag)) = steps.0[last].from {
        let (from, to) = (usize::from(from), steps.0[last].bucket);
        let bucket = steps.0[from].bucket;
        match table.displace(bucket, slot.into(), tag, to) {
            Displaced::Done => last = from,
            Displaced::Stale => return true,
            Displaced::NotNow => return false,
        }
    }
    true
}

/// All steps looked at, breadth first: the list is its own queue.
struct Search(Vec<Step>);

impl Search {
    fn new() -> Self {
        Self(Vec::with_capacity(64))
    }

    /// The step to a bucket with a free slot.
    fn search<K: Copy, V: Copy>(
        &mut self,
        table: &CuckooTable<K, V>,
        roots: [usize; 2],
    ) -> Option<usize> {
        let root = |bucket| Step { bucket, from: None };
        self.0.extend(roots.map(root));
        let mut next = 0;
        while let Some(step) = self.0.get(next).copied() {
            let state = table.state(step.bucket);
            if state.is_moved() {
                return None;
            }
            if state.free().is_some() {
                return Some(next);
            }
            for (slot, tag) in state.held() {
                if self.0.len() == MOST_BUCKETS {
                    break;
                }
                let bucket = tag.other(step.bucket, table.mask());
                table.prefetch_word(bucket);
                let from = Some((next as u16, slot as u8, tag));
                self.0.push(Step { bucket, from });
            }
            next += 1;
        }
        None
    }
}

/// What came of moving an entry.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Displaced {
    Done,
    /// The path is not what it was.
    Stale,
    /// The table is being iterated over.
    NotNow,
}

impl<K: Copy, V: Copy> CuckooTable<K, V> {
    /// Moves an entry to its other bucket: it is there before it is gone from here.
    pub(super) fn displace(&self, from: usize, slot: usize, tag: Tag, to: usize) -> Displaced {
        let Some([mut source, mut target]) = self.lock_two(from, to) else {
            return Displaced::Stale;
        };
        let is_there = source.state().tag(slot) == Some(tag) || mutant!("cuckoo_stale_path");
        let (Some(place), true) = (target.free(), is_there) else {
            return Displaced::Stale;
        };
        // SeqCst: pairs with the one in `hold_moves`. Either we see the walk, or whoever walks sees our locks.
        fence(SeqCst);
        if self.is_walked() && !mutant!("cuckoo_moves_beside_walks") {
            return Displaced::NotNow;
        }
        let hole = source.place(slot);
        let side = source.state().side(slot).other();
        let entry = Entry::new(source.pair(hole), tag, side);
        if mutant!("cuckoo_clears_first") {
            source.remove(hole);
        }
        target.insert(place, &entry);
        target.publish();
        // Counted twice. Who sees that it is gone from here, and began before, looks again; and who began between
        // looks again if the slot has another entry by then. Who begins with this count sees it there.
        if !mutant!("cuckoo_counts_late") {
            self.count(from);
        }
        if !mutant!("cuckoo_clears_first") {
            source.remove(hole);
        }
        Displaced::Done
    }

    /// Locks two buckets of this table; `None` if one of them was moved to its successor.
    fn lock_two(&self, one: usize, other: usize) -> Option<[Locked<'_, K, V>; 2]> {
        // In the order of their numbers, as all do who wait.
        let first = self.lock(one.min(other)).ok()?;
        let second = self.lock(one.max(other)).ok()?;
        Some(if one < other {
            [first, second]
        } else {
            [second, first]
        })
    }
}
