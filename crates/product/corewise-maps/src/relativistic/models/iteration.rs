//! Iterations during resizes that follow each other: an iterator pauses at each place of its way
//! while expansions, shrinks and updates take any number of steps. See *Order of chains* in
//! `resize.rs`.

use super::super::raw::RawIter;
use super::*;

/// Steps after each request: more than a resize of these tables takes if no reader delays it.
const STEPS: usize = 8;
/// More than the steps of any iterator here: it looks at four buckets and, in zipped chains, at
/// five nodes for each.
const LONGEST_WALK: usize = 24;

/// An iteration that runs step by step.
struct SlowIteration<'s> {
    // Dropped before the guard, which protects what this borrows.
    iter: RawIter<'s, Nodes>,
    seen: Vec<u64>,
    _guard: Guard<'s>,
}

impl<'s> SlowIteration<'s> {
    fn new(set: &'s Set) -> Self {
        let guard = set.domain.pin();
        Self {
            // SAFETY: used while the guard is held.
            iter: unsafe { set.raw.iter(&guard) },
            seen: Vec::new(),
            _guard: guard,
        }
    }

    fn is_done(&self) -> bool {
        self.iter.buckets_left() == 0
    }

    fn step(&mut self) {
        let found = self.iter.step().map(node);
        // SAFETY: the guard is held, so the node is alive: the checkers report violations.
        assert!(found.is_none_or(|node| unsafe { node.alive.read() }));
        self.seen.extend(found.map(|node| node.key));
    }

    fn finish(mut self) -> Vec<u64> {
        while !self.is_done() {
            self.step();
        }
        self.seen
    }
}

/// An update between two steps of a resize, of a key that is not stable.
#[derive(Clone, Copy, Debug)]
struct Update {
    operation: SetOperation,
    at: usize,
}

/// Resizes, one after the other, of a table whose chain has these keys at first, and an update.
#[derive(Clone, Debug)]
struct Scenario {
    keys: Vec<u64>,
    first_buckets: usize,
    sizes: &'static [usize],
    update: Option<Update>,
}

/// When an iteration begins, after how many of its steps it pauses, and when it goes on.
#[derive(Clone, Copy, Debug)]
struct Pause {
    begin: usize,
    after_steps: usize,
    until: usize,
}

impl Scenario {
    fn turns(&self) -> usize {
        self.sizes.len() * STEPS
    }

    fn turn(&self, set: &Set, turn: usize) {
        if turn.is_multiple_of(STEPS) {
            set.want(self.sizes[turn / STEPS]);
        }
        if let Some(update) = self.update.filter(|update| update.at == turn) {
            set.operate(update.operation);
        }
        set.step();
    }

    /// How often an iteration may yield a key.
    fn times(&self, key: u64) -> std::ops::RangeInclusive<usize> {
        match self.update.map(|update| update.operation) {
            Some(SetOperation::Insert(updated) | SetOperation::Remove(updated))
                if updated == key =>
            {
                0..=1
            }
            _ if self.keys.contains(&key) => 1..=1,
            _ => 0..=0,
        }
    }

    fn check(&self, seen: &[u64], pause: Pause) {
        for key in 1..=5 {
            let times = seen.iter().filter(|other| **other == key).count();
            assert!(
                self.times(key).contains(&times),
                "{key} in {seen:?}: {self:?}, {pause:?}"
            );
        }
    }

    /// Runs the scenario; returns whether the iteration was not over before its pause.
    fn run(&self, pause: Pause) -> bool {
        let set = Set::new(self.first_buckets, self.keys.iter().copied());
        (0..pause.begin).for_each(|turn| self.turn(&set, turn));
        // Readers of before do not delay the next cut: only what happens from here on may.
        set.domain.synchronize();
        let mut slow = SlowIteration::new(&set);
        (0..pause.after_steps).for_each(|_| {
            if !slow.is_done() {
                slow.step();
            }
        });
        let paused = !slow.is_done();
        if paused {
            (pause.begin..pause.until).for_each(|turn| self.turn(&set, turn));
        }
        self.check(&slow.finish(), pause);
        set.settle();
        paused
    }

    /// Runs the scenario with pauses of all lengths, at all places, of an iteration that begins at
    /// each turn. (An update outside the pause would be none.)
    fn run_with_every_pause(&self) {
        let (latest, earliest) = match self.update {
            Some(update) => (update.at, update.at + 1),
            None => (self.turns() - 1, 0),
        };
        for begin in 0..=latest {
            for until in begin.max(earliest)..=self.turns() {
                let is_paused = |after_steps| {
                    self.run(Pause {
                        begin,
                        after_steps,
                        until,
                    })
                };
                assert!((0..LONGEST_WALK).any(|after_steps| !is_paused(after_steps)));
            }
        }
    }

    /// Without a reader, each resize is done before the next one is requested.
    fn assert_unhindered(&self) {
        let set = Set::new(self.first_buckets, self.keys.iter().copied());
        for turn in 0..self.turns() {
            self.turn(&set, turn);
            if turn % STEPS == STEPS - 1 {
                let state = set.raw.resize_state();
                let reached = (state.buckets, state.building, state.zipped);
                assert_eq!(reached, (self.sizes[turn / STEPS], None, 0));
            }
        }
    }
}

/// The orders of four keys in a chain.
fn orders() -> impl Iterator<Item = Vec<u64>> {
    (0..4u64.pow(4)).filter_map(|number| {
        let keys: Vec<u64> = (0..4)
            .map(|at| number >> (2 * at) & 3)
            .map(|key| key + 1)
            .collect();
        (1..=4).all(|key| keys.contains(&key)).then_some(keys)
    })
}

#[test]
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
fn a_paused_iteration_yields_each_key_once() {
    // The first number of buckets, the following ones, and of how many orders one is tried.
    let resizes: [(usize, &[usize], usize); 3] =
        [(1, &[2, 1], 1), (1, &[4, 2], 5), (2, &[1, 2, 1], 5)];
    for (first_buckets, sizes, stride) in resizes {
        for keys in orders().step_by(stride) {
            let scenario = Scenario {
                keys,
                first_buckets,
                sizes,
                update: None,
            };
            scenario.assert_unhindered();
            scenario.run_with_every_pause();
        }
    }
}

#[test]
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
fn a_paused_iteration_yields_each_key_once_beside_an_update() {
    use SetOperation::{Insert, Remove, Replace};
    for keys in [[1, 2, 4, 3], [2, 1, 4, 3], [1, 2, 3, 4]] {
        for operation in [Insert(5), Remove(2), Remove(1), Replace(2)] {
            for at in 0..2 * STEPS {
                Scenario {
                    keys: keys.to_vec(),
                    first_buckets: 1,
                    sizes: &[2, 1],
                    update: Some(Update { operation, at }),
                }
                .run_with_every_pause();
            }
        }
    }
}

/// The last cut of an expansion, and a shrink, beside an iteration. In the chain 1, 2, 4 the first
/// cut is the last one; a shrink makes it 2, 4, 1.
#[test]
fn an_iteration_beside_a_cut_and_the_next_shrink() {
    corewise_atomic::model_bounded(2, || {
        let set = under_way(Set::new(1, [1, 2, 4]), 2, 2);
        // The grace period before the cut is over.
        set.domain.synchronize();
        beside(
            &set,
            |set| {
                set.step();
                set.want(1);
                (0..3).for_each(|_| set.step());
            },
            |set| assert_eq!(set.keys(), [1, 2, 4]),
        );
        set.finish();
        assert_eq!(set.raw.buckets(), 1);
        assert_eq!(set.keys(), [1, 2, 4]);
    });
}

/// A shrink that is due by itself and must wait for a reader counts as work, so it is not
/// forgotten. (The stress build resizes at every opportunity.)
#[test]
#[cfg(not(corewise_stress))]
fn a_shrink_begins_when_its_readers_have_left() {
    corewise_atomic::model(|| {
        let set = Set::new(1, [1, 2]);
        set.want(16);
        (0..2).for_each(|_| set.step());
        set.domain.synchronize();
        let guard = set.domain.pin();
        // The only cut, and the end of the expansion.
        (0..2).for_each(|_| set.step());
        assert_eq!(set.raw.resize_state().zipped, 0);
        set.raw.set_automatic(true);
        (0..STEPS).for_each(|_| set.step());
        assert_eq!(set.raw.resize_state().building, None);
        assert!(set.raw.has_work() && !set.raw.is_settled());
        drop(guard);
        set.finish();
        assert_eq!(set.raw.buckets(), 1);
        assert_eq!(set.keys(), [1, 2]);
    });
}
