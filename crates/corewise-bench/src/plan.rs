//! What every thread of a run must know: which keys there are and which are there at the start.

use corewise_measure::draw::{Scramble, mix};

use crate::table::Shape;

/// Odd, so that multiplying by it is a permutation of the integers.
const MIXED: u64 = 0xd6e8_feb8_6659_fd93;

/// How keys are made of indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyMap {
    /// Spread over all 64-bit integers: what hashes, pointers and random numbers look like.
    #[default]
    Mixed,
    /// 1, 2, 3 and so on: what counters look like, and the keys of the thesis. With a weak hash
    /// function they fill a table more evenly than chance would.
    Dense,
}

/// The keys of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Sizes of keys and values.
    pub shape: Shape,
    /// Indices are below this (r).
    pub range: u32,
    /// How many of them are present at the start (i).
    pub initial: u32,
    /// Threads (n).
    pub threads: usize,
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
            multiplier,
            order: Scramble::new(range.into()),
        }
    }

    /// The key of an index: never 0.
    #[inline(always)]
    pub const fn key(&self, index: u32) -> u64 {
        (index as u64 + 1).wrapping_mul(self.multiplier)
    }

    /// Whether the key of this index is present at the start. Exactly [`Plan::initial`] are, in no
    /// pattern that a branch predictor could learn.
    pub fn prefilled(&self, index: u32) -> bool {
        self.order.apply(index.into()) < u64::from(self.initial)
    }

    /// The number in the value that is stored under an index at the start.
    pub fn first_number(&self, index: u32) -> u32 {
        mix(index.into()) as u32
    }

    /// One thread's part of the indices: neighbours go to different threads.
    pub fn part(&self, thread: usize, threads: usize) -> impl Iterator<Item = u32> + use<> {
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
