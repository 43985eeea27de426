//! Paths of moves that make room: searched without a lock, by breadth, before anything moves
//! (Cuckoo14, MemC3; Fan et al. move at random and at once).
//!
//! A path is a chain of buckets, each of which is the other bucket of a fingerprint in the one
//! before, from a bucket of the new item to one with room. Its moves are made from the end, so each
//! fingerprint has a free slot when it moves, and is in one of its buckets at all times. (Algorithm
//! 5.5 of the thesis moves from the beginning, keeps a fingerprint in a variable meanwhile, and
//! loses the last one when it gives up.)
//!
//! What the search reads may be outdated before a move is made, so each move verifies its buckets
//! under their locks.

use crate::pairing::ItemClass;
use crate::table::FingerprintTable;

/// Steps that need no allocation.
const INLINE_STEPS: usize = 64;
/// The most steps of a search, so that 16 bits identify one.
pub const MAX_SEARCH_LIMIT: usize = 1 << 16;

/// A bucket that was reached.
#[derive(Clone, Copy, Debug, Default)]
struct KickStep {
    bucket: u32,
    /// What would move here from the parent's bucket.
    fingerprint: u32,
    /// The index of the step before. The first two steps have none: they are each other's, because
    /// it is useless to move anything between two full buckets.
    parent: u16,
}

/// One fingerprint that moves to its other bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Displacement {
    pub(crate) fingerprint: u32,
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// Whether the new item takes its slot.
    pub(crate) is_last: bool,
}

/// The steps of a search.
struct Frontier {
    steps: [KickStep; INLINE_STEPS],
    more: Vec<KickStep>,
    len: usize,
}

impl Frontier {
    fn push(&mut self, step: KickStep) {
        match self.steps.get_mut(self.len) {
            Some(place) => *place = step,
            None => self.more.push(step),
        }
        self.len += 1;
    }

    fn get(&self, index: usize) -> KickStep {
        match self.steps.get(index) {
            Some(step) => *step,
            None => self.more[index - INLINE_STEPS],
        }
    }
}

/// A path to a bucket with room.
pub(crate) struct KickPath {
    frontier: Frontier,
    end: usize,
}

impl KickPath {
    /// Searches for the shortest path from the buckets of the item to a bucket with room, over at
    /// most `limit` buckets. Takes no lock and changes nothing.
    pub(crate) fn find(table: &FingerprintTable, class: &ItemClass, limit: usize) -> Option<Self> {
        let mut frontier = Frontier {
            steps: [KickStep::default(); INLINE_STEPS],
            more: Vec::new(),
            len: 0,
        };
        for (bucket, parent) in [(class.first, 1), (class.second, 0)] {
            frontier.push(KickStep {
                bucket,
                fingerprint: class.fingerprint,
                parent,
            });
        }
        let limit = limit.min(MAX_SEARCH_LIMIT);
        let mut next = 0;
        while next < frontier.len {
            let bucket = frontier.get(next).bucket;
            // Under the stress build the first buckets look full, so that every insertion moves.
            let may_end = !(cfg!(corewise_stress) && next < 2);
            if may_end && table.holds(bucket, 0) {
                return Some(Self {
                    frontier,
                    end: next,
                });
            }
            if frontier.len < limit {
                Self::expand(table, &mut frontier, next, limit);
            }
            next += 1;
        }
        None
    }

    /// Appends the other buckets of what is in the bucket of a step.
    fn expand(table: &FingerprintTable, frontier: &mut Frontier, index: usize, limit: usize) {
        let step = frontier.get(index);
        let parent = frontier.get(step.parent.into()).bucket;
        let fingerprints = table.fingerprints(step.bucket);
        for (slot, &fingerprint) in fingerprints.iter().enumerate() {
            if fingerprint == 0 || fingerprints[..slot].contains(&fingerprint) {
                continue;
            }
            let bucket = table.pairing.other(fingerprint, step.bucket);
            if bucket != parent && frontier.len < limit {
                table.prefetch(bucket);
                frontier.push(KickStep {
                    bucket,
                    fingerprint,
                    // The limit makes it fit.
                    parent: index as u16,
                });
            }
        }
    }

    /// The moves, from the end. None, if one of the item's buckets had room.
    pub(crate) fn displacements(&self) -> impl Iterator<Item = Displacement> {
        let mut index = self.end;
        std::iter::from_fn(move || {
            if index < 2 {
                return None;
            }
            let step = self.frontier.get(index);
            index = step.parent.into();
            Some(Displacement {
                fingerprint: step.fingerprint,
                from: self.frontier.get(index).bucket,
                to: step.bucket,
                is_last: index < 2,
            })
        })
    }
}
