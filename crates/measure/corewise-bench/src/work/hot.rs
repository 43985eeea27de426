//! Remove and reinsert: the same key again and again, or one key after the other.
//!
//! This workload isolates the cost of deferred reclamation, of locking a bucket and of keeping a
//! chain readable. Every outcome is known: a thread uses only its own keys, and must remove the
//! value that it inserted last.

use std::sync::Arc;

use crate::plan::Plan;
use crate::stamp::stamp;
use crate::stream::CHUNK;
use crate::table::{Kind, MapHandle, MeasuredMap};
use crate::work::worker::Worker;
use crate::work::{DriveReport, Loop, Part, SliceTimes};

/// A thread's position in its keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyPosition {
    /// The first position.
    first: usize,
    at: usize,
    /// How often the key at `at` has been reinserted.
    round: u32,
}

impl KeyPosition {
    /// The initial position.
    pub(crate) fn new(first: usize) -> Self {
        Self {
            first,
            at: first,
            round: 0,
        }
    }

    #[inline(always)]
    fn step(&mut self, keys: usize) {
        self.at += 1;
        if self.at == keys {
            self.at = 0;
        }
        self.round += u32::from(self.at == self.first);
    }
}

/// One thread's part of a short slice.
#[derive(Debug)]
pub struct Hot {
    /// Indices of the keys that only this thread touches, in the order of use.
    pub(crate) keys: Arc<[u32]>,
    /// The position to continue from.
    pub(crate) place: KeyPosition,
    /// Whether to stay at one key.
    pub(crate) stay: bool,
    pub(crate) times: SliceTimes,
}

impl Loop for Hot {
    /// The operations of the report are pairs of a remove and an insert.
    fn run<K: Kind, T: MeasuredMap<K>>(&mut self, map: &T, plan: &Plan, part: Part) -> DriveReport {
        let mut worker = Worker::<K, T>::new(map, plan, part, None);
        let mut problem = None;
        let (mut place, keys, stay) = (self.place, &*self.keys, self.stay);
        let chunk = || {
            for _ in 0..CHUNK {
                pair(&mut worker, keys[place.at], place.round, &mut problem);
                if stay {
                    place.round += 1
                } else {
                    place.step(keys.len())
                }
            }
            CHUNK as u64
        };
        let (pairs, ticks) = self.times.run(|| (), chunk);
        self.place = place;
        DriveReport {
            tally: worker.tally(),
            operations: pairs,
            ticks,
            problem,
            ..DriveReport::default()
        }
    }
}

/// Removes a key and reinserts it with its next value.
#[inline(always)]
fn pair<K: Kind, T: MeasuredMap<K>>(
    worker: &mut Worker<'_, K, T>,
    index: u32,
    round: u32,
    problem: &mut Option<String>,
) {
    let (key, first) = (worker.plan.key(index), worker.plan.first_number(index));
    // Stamps make numbers odd, so successive numbers differ by two.
    let number = |round: u32| first.wrapping_add(round.wrapping_mul(2));
    let (old, new) = (stamp(key, number(round)), stamp(key, number(round + 1)));
    let removed = worker.handle.remove(K::query(&mut worker.scratch, key));
    let value = K::value(&worker.scratch, new);
    let inserted = worker
        .handle
        .insert(K::query(&mut worker.scratch, key), value);
    worker
        .sums
        .lose_if(removed.is_some(), key, removed.unwrap_or(0));
    worker.sums.gain_if(inserted, key, new);
    worker.counts.count_remove(removed.is_some());
    worker.counts.count_insert(inserted);
    if removed != Some(old) || !inserted {
        complain(problem, key, (removed, old), inserted); // never taken, so well predicted
    }
}

#[cold]
fn complain(
    problem: &mut Option<String>,
    key: u64,
    (got, old): (Option<u64>, u64),
    inserted: bool,
) {
    let said = || match got {
        Some(got) if got == old => {
            debug_assert!(!inserted);
            format!("insert of key {key:#x} took it for present, after it was removed")
        }
        Some(got) => format!("remove of key {key:#x} gave {got:#x}, stored was {old:#x}"),
        None => format!("remove of key {key:#x} gave nothing, stored was {old:#x}"),
    };
    problem.get_or_insert_with(said);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_begin_where_the_thread_began() {
        let mut place = KeyPosition::new(1);
        let mut seen = Vec::new();
        for _ in 0..7 {
            seen.push((place.at, place.round));
            place.step(3);
        }
        let rounds = [(1, 0), (2, 0), (0, 0), (1, 1), (2, 1), (0, 1), (1, 2)];
        assert_eq!(seen, rounds);
        let mut alone = KeyPosition::new(0);
        alone.step(1);
        assert_eq!((alone.at, alone.round), (0, 1));
    }
}
