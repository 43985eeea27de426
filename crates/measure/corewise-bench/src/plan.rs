//! What every thread of a run must know: the keys, and which are present at the start.

use clap::ValueEnum;
use corewise_measure::draw::{Scramble, mix};
use serde::{Deserialize, Serialize};

use crate::table::Shape;

/// Odd, so that multiplying by it is a permutation of the integers.
const MIXED: u64 = 0xd6e8_feb8_6659_fd93;

/// How indices become keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyMap {
    /// Spread over all 64-bit integers, like hashes, pointers and random numbers.
    #[default]
    Mixed,
    /// 1, 2, 3 and so on, like counters, and the keys of the thesis. With a weak hash function
    /// they fill a table more evenly than random keys.
    Dense,
}

/// Which keys stay while a stream runs. A lookup that misses one of them is the table's fault,
/// whatever the other threads do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kept {
    /// None is known to stay.
    #[default]
    None,
    /// Keys of even indices. An update that draws one of them goes to the next index.
    Half,
    /// All keys: they are present from the start, and there are no updates.
    All,
}

/// The keys of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Sizes of keys and values.
    pub shape: Shape,
    /// Number of keys (r); indices are below it.
    pub range: u32,
    /// Number of keys present at the start (i).
    pub initial: u32,
    /// Threads (n).
    pub threads: usize,
    /// Which keys stay.
    pub kept: Kept,
    /// Work beside an operation, in the unit of the subject's capability.
    pub work: u32,
    multiplier: u64,
    order: Scramble,
}

impl Plan {
    /// A plan; `initial` is at most `range`, which is at least 1.
    pub fn new(shape: Shape, range: u32, initial: u32, threads: usize, keys: KeyMap) -> Self {
        let multiplier = match keys {
            KeyMap::Mixed => MIXED,
            KeyMap::Dense => 1,
        };
        Self {
            shape,
            range,
            initial,
            threads,
            kept: Kept::None,
            work: 0,
            multiplier,
            order: Scramble::new(range.into()),
        }
    }

    /// Sets which keys stay. With [`Kept::Half`] the range is even, and `initial` is at least half
    /// of it: the kept keys are present from the start.
    pub fn keeping(mut self, kept: Kept) -> Self {
        self.kept = kept;
        if kept == Kept::Half {
            self.order = Scramble::new((self.range / 2).max(1).into());
        }
        self
    }

    /// Sets the work beside an operation.
    pub fn working(self, work: u32) -> Self {
        Self { work, ..self }
    }

    /// With [`Kept::Half`], returns the plan of the keys that do not stay: their number, and how
    /// many are present at the start.
    pub fn updated_half(&self) -> Self {
        let half = self.range / 2;
        let initial = self.initial - half;
        Self {
            kept: Kept::None,
            range: half,
            initial,
            ..*self
        }
    }

    /// Returns whether the key of this index stays.
    #[inline(always)]
    pub const fn keeps(&self, index: u32) -> bool {
        match self.kept {
            Kept::None => false,
            Kept::Half => index.is_multiple_of(2),
            Kept::All => true,
        }
    }

    /// With [`Kept::Half`], returns the index that an update of `index` goes to.
    #[inline(always)]
    pub const fn updated(index: u32) -> u32 {
        index | 1
    }

    /// Returns the key of an index: never 0.
    #[inline(always)]
    pub const fn key(&self, index: u32) -> u64 {
        (index as u64 + 1).wrapping_mul(self.multiplier)
    }

    /// Returns whether the key of this index is present at the start. Exactly [`Plan::initial`]
    /// are, in no pattern that a branch predictor could learn.
    pub fn prefilled(&self, index: u32) -> bool {
        match self.kept {
            Kept::Half if self.keeps(index) => true,
            Kept::Half => {
                let others = u64::from(self.initial) - u64::from(self.range / 2);
                self.order.apply(u64::from(index / 2)) < others
            }
            Kept::None | Kept::All => self.order.apply(index.into()) < u64::from(self.initial),
        }
    }

    /// Returns the number in the initial value of an index.
    pub fn first_number(&self, index: u32) -> u32 {
        mix(index.into()) as u32
    }

    /// Returns one thread's indices; neighbours go to different threads.
    pub fn part(
        &self,
        thread: usize,
        threads: usize,
    ) -> impl ExactSizeIterator<Item = u32> + use<> {
        (thread as u32..self.range).step_by(threads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_initial_entries_are_there_at_the_start() {
        let shape = Shape {
            key_bytes: (8, 8),
            value_bytes: 8,
        };
        for (range, initial) in [(1, 0), (1, 1), (1000, 500), (777, 700)] {
            let plan = Plan::new(shape, range, initial, 1, KeyMap::Mixed);
            let parts = (0..3).flat_map(|thread| plan.part(thread, 3));
            assert_eq!(
                parts.filter(|&index| plan.prefilled(index)).count(),
                initial as usize
            );
        }
    }

    #[test]
    fn kept_keys_are_there_at_the_start_and_no_update_goes_to_them() {
        let shape = Shape {
            key_bytes: (8, 8),
            value_bytes: 8,
        };
        for (range, initial) in [(2, 1), (2, 2), (1000, 500), (1000, 950)] {
            let plan = Plan::new(shape, range, initial, 1, KeyMap::Mixed).keeping(Kept::Half);
            let there = (0..range).filter(|&index| plan.prefilled(index)).count();
            assert_eq!(there, initial as usize);
            for index in 0..range {
                assert!(!plan.keeps(index) || plan.prefilled(index));
                assert!(Plan::updated(index) < range && !plan.keeps(Plan::updated(index)));
            }
        }
    }

    #[test]
    fn keys_are_never_zero() {
        let shape = Shape {
            key_bytes: (8, 8),
            value_bytes: 8,
        };
        for map in [KeyMap::Mixed, KeyMap::Dense] {
            let plan = Plan::new(shape, u32::MAX, 0, 1, map);
            assert!(
                [0, 1, u32::MAX - 1]
                    .iter()
                    .all(|&index| plan.key(index) != 0)
            );
        }
    }
}
