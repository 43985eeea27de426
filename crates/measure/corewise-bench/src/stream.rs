//! The operations of a thread: streams of operations and keys, drawn before anything is measured.
//!
//! Operations and keys are separate streams (\[CHTBench\] §3.3.1: `c` and `r`), of lengths that
//! share no divisor but a chunk, so a key gets another operation in each round. A pool of keys that
//! is drawn once and reused unchanged would be a smaller working set than the range and would leave
//! each key with the same last operation in every round; so
//!
//! - uniform keys are shifted by a new random distance in every round, which keeps them uniform and
//!   reaches the whole range;
//! - a part of all other pools is redrawn between repetitions.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use corewise_measure::draw::mix;

use crate::distribution::{Distribution, Sampler};

/// Keys in a thread's stream.
pub const KEYS: usize = 1 << 20;
/// Operations between two reads of the clock.
pub const CHUNK: usize = 64;
/// Operations in a thread's stream.
const OPERATIONS: usize = KEYS - CHUNK;
/// Keys of a stream that are compared with their distribution.
const CHECKED: usize = 1 << 14;
/// Keys redrawn between repetitions.
const RENEWED: usize = KEYS / 8;

/// A lookup.
pub const GET: u8 = 0;
/// An insert.
pub const INSERT: u8 = 1;
/// A remove.
pub const REMOVE: u8 = 2;

/// One thread's streams.
#[derive(Debug)]
pub struct Stream {
    keys: Vec<u32>,
    operations: Vec<u8>,
    sampler: Sampler,
    range: u32,
    renew: usize,
    rng: Xoshiro256PlusPlus,
    place: u32,
}

/// A position in a stream. Each table has a separate cursor, so that all tables see the same
/// stream.
#[derive(Clone, Debug)]
pub struct StreamCursor {
    key: usize,
    operation: usize,
    shift: u32,
    rng: Xoshiro256PlusPlus,
}

/// A stretch of the streams.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// Indices before the shift.
    pub keys: &'a [u32],
    /// The operations, one for each key.
    pub operations: &'a [u8],
    /// Shift of each index, modulo the range.
    pub shift: u32,
}

impl Stream {
    /// Draws the streams of a thread. `insert` and `remove` are shares of all operations.
    pub fn new(
        seed: u64,
        thread: (usize, usize),
        sampler: Sampler,
        range: u32,
        (insert, remove): (f64, f64),
    ) -> Self {
        let (number, threads) = thread;
        let mut kinds = Xoshiro256PlusPlus::seed_from_u64(mix(seed ^ 0x0b5 << 40) ^ number as u64);
        let operations = (0..OPERATIONS)
            .map(|_| {
                let draw: f64 = kinds.random();
                u8::from(draw < insert + remove)
                    + u8::from(draw >= insert && draw < insert + remove)
            })
            .collect();
        let mut stream = Self {
            keys: vec![0; KEYS],
            operations,
            range,
            renew: 0,
            rng: Xoshiro256PlusPlus::seed_from_u64(mix(seed ^ 0x4e75 << 40) ^ number as u64),
            place: (u64::from(range) * number as u64 / threads as u64) as u32,
            sampler,
        };
        stream.draw(KEYS);
        stream
    }

    fn draw(&mut self, count: usize) {
        for _ in 0..count {
            let at = self.renew;
            self.keys[at] = match self.sampler.distribution() {
                Distribution::Sequential => (at as u64 % u64::from(self.range)) as u32,
                _ => self.sampler.draw(&mut self.rng),
            };
            self.renew = (at + 1) % KEYS;
        }
    }

    /// Redraws a part of the keys.
    pub fn renew(&mut self) {
        if !matches!(
            self.sampler.distribution(),
            Distribution::Uniform | Distribution::Sequential | Distribution::Single
        ) {
            self.draw(RENEWED);
        }
    }

    /// Returns the first keys, at most [`CHECKED`], before any shift.
    pub(crate) fn first_keys(&self) -> &[u32] {
        &self.keys[..CHECKED]
    }

    /// Returns the range of the indices.
    pub fn range(&self) -> u32 {
        self.range
    }

    /// Returns a position to start from, the same for the same repetition.
    pub fn cursor(&self, seed: u64) -> StreamCursor {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(mix(seed ^ 0xc0_0001));
        let chunk = |rng: &mut Xoshiro256PlusPlus, length: usize| {
            rng.random_range(0..length / CHUNK) * CHUNK
        };
        let mut cursor = StreamCursor {
            key: chunk(&mut rng, KEYS),
            operation: chunk(&mut rng, OPERATIONS),
            shift: self.place,
            rng,
        };
        if self.sampler.distribution() != Distribution::Sequential {
            cursor.shift = 0;
            self.shift(&mut cursor);
        }
        cursor
    }

    fn shift(&self, cursor: &mut StreamCursor) {
        match self.sampler.distribution() {
            Distribution::Uniform => cursor.shift = cursor.rng.random_range(0..self.range),
            Distribution::Sequential => {
                let next = u64::from(cursor.shift) + KEYS as u64;
                cursor.shift = (next % u64::from(self.range)) as u32;
            }
            _ => {}
        }
    }

    /// Returns the next [`CHUNK`] operations.
    #[inline]
    pub fn chunk(&self, cursor: &mut StreamCursor) -> Chunk<'_> {
        let chunk = Chunk {
            keys: &self.keys[cursor.key..cursor.key + CHUNK],
            operations: &self.operations[cursor.operation..cursor.operation + CHUNK],
            shift: cursor.shift,
        };
        cursor.key += CHUNK;
        cursor.operation += CHUNK;
        if cursor.key == KEYS {
            cursor.key = 0;
            self.shift(cursor);
        }
        if cursor.operation == OPERATIONS {
            cursor.operation = 0;
        }
        chunk
    }
}

/// Returns `index + shift` modulo `range`, without a division; both are below `range`.
#[inline(always)]
pub const fn shifted(index: u32, shift: u32, range: u32) -> u32 {
    // The difference wraps around only if the sum is below the range; it is then the greater one.
    let sum = index as u64 + shift as u64;
    let less = sum.wrapping_sub(range as u64);
    if less < sum { less as u32 } else { sum as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(distribution: Distribution, range: u32, updates: (f64, f64)) -> Stream {
        Stream::new(
            1,
            (0, 2),
            Sampler::new(distribution, range.into()),
            range,
            updates,
        )
    }

    #[test]
    fn shifting_is_addition_modulo_the_range() {
        for range in [1, 2, 7, u32::MAX] {
            for (index, shift) in [
                (0, 0),
                (range - 1, range - 1),
                (range / 2, range / 2),
                (0, range - 1),
            ] {
                let sum = (u64::from(index) + u64::from(shift)) % u64::from(range);
                assert_eq!(u64::from(shifted(index, shift, range)), sum);
            }
        }
    }

    #[test]
    fn operations_have_their_shares() {
        let stream = stream(Distribution::Uniform, 100, (0.35, 0.05));
        let count = |kind| stream.operations.iter().filter(|&&op| op == kind).count() as f64;
        let all = stream.operations.len() as f64;
        assert!((count(INSERT) / all - 0.35).abs() < 0.002);
        assert!((count(REMOVE) / all - 0.05).abs() < 0.002);
        assert!((count(GET) / all - 0.60).abs() < 0.002);
    }

    #[test]
    fn rounds_reach_a_range_larger_than_the_pool() {
        let range = 1 << 24;
        let stream = stream(Distribution::Uniform, range, (0.0, 0.0));
        let mut cursor = stream.cursor(1);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..3 * KEYS / CHUNK {
            let chunk = stream.chunk(&mut cursor);
            seen.extend(
                chunk
                    .keys
                    .iter()
                    .map(|&key| shifted(key, chunk.shift, range)),
            );
        }
        assert!(seen.len() > 5 * KEYS / 2, "{}", seen.len());
    }

    #[test]
    fn a_sequential_stream_goes_through_all_keys_in_turn() {
        let range = 3_000_000;
        let stream = stream(Distribution::Sequential, range, (0.0, 0.0));
        let mut cursor = stream.cursor(1);
        let mut last = None;
        for _ in 0..2 * KEYS / CHUNK {
            let chunk = stream.chunk(&mut cursor);
            for &key in chunk.keys {
                let key = shifted(key, chunk.shift, range);
                if let Some(last) = last {
                    assert_eq!(key, (last + 1) % range);
                }
                last = Some(key);
            }
        }
    }

    #[test]
    fn equal_seeds_give_equal_places() {
        let stream = stream(Distribution::Zipf(0.99), 1000, (0.1, 0.1));
        let (mut a, mut b) = (stream.cursor(5), stream.cursor(5));
        assert_eq!(stream.chunk(&mut a).keys, stream.chunk(&mut b).keys);
    }
}
