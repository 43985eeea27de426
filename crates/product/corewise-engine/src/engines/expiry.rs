//! The search for expired items in the engines that have shards or partitions.
//!
//! Once a second a round begins over all shards. A shard is walked if its next deadline has passed:
//! expired items are removed, and the deadlines of the others tell when the shard is due again, but
//! not before a [pause](DueTime::end), so that it is not walked for each item. One session at a
//! time searches, in steps of a bounded number of buckets; a lock is held for some of them.
//!
//! # Guarantees
//!
//! 1. *An expired item is removed* by the first round that begins in a later second than its
//!    deadline, or by the first one after the pause of its shard.
//! 2. *No deadline is forgotten*: everything that links an item or changes a deadline notes it in
//!    the shard's [`DueTime`], under the shard's lock.

use corewise_atomic::lock::Mutex;
use corewise_ops::{Deadline, Now};

/// Buckets visited by one step.
const STEP: usize = 256;
/// Buckets visited while a shard is locked.
const LOCKED: usize = 32;
/// Items of an engine for which the pause is a second longer. So the search visits no more than
/// this in a second on account of items that expire one by one.
const ITEMS_PER_PAUSE_S: u64 = 1 << 19;

/// The search of an engine.
pub(super) struct ExpirySearch(Mutex<Round>);

#[derive(Default)]
struct Round {
    /// The second in which it began.
    began_s: u32,
    /// The next shard, and the position in it.
    shard: usize,
    position: u64,
}

impl ExpirySearch {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Round {
            shard: usize::MAX,
            ..Round::default()
        }))
    }

    /// Continues the search in `shards` shards, unless another session does. Returns whether more
    /// is to be done at once.
    ///
    /// `visit` locks a shard and visits it from a position on, for the given number of buckets,
    /// which it reduces. It returns where to continue, or `None` at the end or if nothing is due.
    pub(super) fn step(
        &self,
        shards: usize,
        now: Now,
        mut visit: impl FnMut(usize, u64, &mut usize) -> Option<u64>,
    ) -> bool {
        let Some(mut round) = self.0.try_lock() else {
            return false;
        };
        // The last round is over: begin one in a later second.
        if round.shard >= shards {
            if now.seconds() <= round.began_s {
                return false;
            }
            *round = Round {
                began_s: now.seconds(),
                ..Round::default()
            };
        }
        let mut left = STEP;
        while left > 0 && round.shard < shards {
            let most = left.min(LOCKED);
            let mut looks = most;
            match visit(round.shard, round.position, &mut looks) {
                Some(next) => round.position = next,
                None => (round.shard, round.position) = (round.shard + 1, 0),
            }
            left = left.saturating_sub(most - looks + 1); // a lock counts as a bucket
        }
        round.shard < shards
    }
}

/// When a shard is to be searched; under its lock.
pub(super) struct DueTime {
    /// No item that is linked expires before this second, except those behind the search.
    due_s: u32,
    /// The shard is not searched before this second.
    resumes_s: u32,
    /// The earliest deadline of the items that the present walk has kept.
    kept_s: u32,
}

impl DueTime {
    pub(super) fn new() -> Self {
        Self {
            due_s: u32::MAX,
            resumes_s: 0,
            kept_s: u32::MAX,
        }
    }

    /// Notes the deadline of an item that is linked, or whose deadline has changed.
    #[inline]
    pub(super) fn note(&mut self, deadline: Deadline) {
        self.due_s = self.due_s.min(second_of(deadline));
    }

    /// Begins a walk over the shard if it is due.
    pub(super) fn begin(&mut self, now: Now) -> bool {
        let is_due = self.due_s <= now.seconds() && self.resumes_s <= now.seconds();
        if is_due {
            (self.due_s, self.kept_s) = (u32::MAX, u32::MAX);
        }
        is_due
    }

    /// Notes the deadline of an item that the walk has kept.
    #[inline]
    pub(super) fn keep(&mut self, deadline: Deadline) {
        self.kept_s = self.kept_s.min(second_of(deadline));
    }

    /// Ends the walk, in an engine with `items` items. A walk that may have missed some items of
    /// the shard is not whole, and is repeated.
    pub(super) fn end(&mut self, now: Now, items: u64, is_whole: bool) {
        let pause_s = 1 + u32::try_from(items / ITEMS_PER_PAUSE_S).unwrap_or(u32::MAX / 2);
        self.resumes_s = now.seconds().saturating_add(pause_s);
        self.due_s = self.due_s.min(if is_whole { self.kept_s } else { 0 });
    }
}

/// The second from whose beginning on an item with this deadline has expired.
#[inline]
fn second_of(deadline: Deadline) -> u32 {
    if deadline == Deadline::NEVER {
        return u32::MAX;
    }
    u32::try_from(deadline.to_bits().div_ceil(1000)).unwrap_or(u32::MAX - 1)
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;

    const fn at(second: u64) -> Now {
        Now::new(second * 1000, 0)
    }

    #[test]
    fn a_round_visits_every_shard_in_steps_once_a_second() {
        let search = ExpirySearch::new();
        let mut visits = Vec::new();
        let mut step = |now| {
            let before = visits.len();
            let more = search.step(10, now, |shard, position, looks| {
                visits.push((shard, position));
                *looks = 0;
                (position < 40).then(|| position + 20)
            });
            (more, visits.len() - before)
        };
        for second in [5, 6, 9] {
            let each = STEP.div_ceil(LOCKED + 1);
            for _ in 0..3 {
                assert_eq!(step(at(second)), (true, each));
            }
            assert_eq!(step(at(second)), (false, 30 - 3 * each));
            assert_eq!(step(at(second)), (false, 0), "once a second");
        }
        let every: Vec<_> = (0..10)
            .flat_map(|shard| [0, 20, 40].map(|at| (shard, at)))
            .collect();
        assert_eq!(visits, every.repeat(3));
    }

    #[test]
    fn a_shard_is_due_in_the_second_after_its_next_deadline_and_after_the_pause() {
        let mut due = DueTime::new();
        assert!(!due.begin(at(u64::from(u32::MAX) - 1)));
        due.note(Deadline::NEVER);
        due.note(Deadline::MAX);
        due.note(Deadline::at_ms(7_001));
        assert!(!due.begin(at(7)) && due.begin(at(8)));
        due.keep(Deadline::at_ms(9_000));
        due.note(Deadline::at_ms(30_000));
        due.end(at(8), 5 * ITEMS_PER_PAUSE_S, true);
        assert!(!due.begin(at(13)) && due.begin(at(14)));
        due.keep(Deadline::at_ms(30_000));
        due.end(at(14), 0, true);
        assert!(!due.begin(at(29)) && due.begin(at(30)));
        due.end(at(30), 0, false);
        assert!(!due.begin(at(30)) && due.begin(at(31)), "it missed some");
        due.end(at(31), u64::MAX, true);
    }
}
