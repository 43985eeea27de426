//! The hash function that all tables share.
//!
//! With different hash functions, a comparison of tables would compare the functions. So every
//! table runs with [`Common`].
//! The C and C++ peers reimplement the function in `peers/peer.h`; a test compares the two.

use std::hash::{BuildHasher, Hasher};

/// Odd, from the digits of pi, as are the other constants.
const MULTIPLIER: u64 = 0x2d35_8dcc_aa6c_78a5;
const SEED: u64 = 0x243f_6a88_85a3_08d3;

/// One folded multiplication for an integer; foldhash with a fixed seed for byte strings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Common;

/// The state of [`Common`].
#[derive(Clone, Copy, Debug)]
pub struct CommonHasher(u64);

/// Returns the common hash of an integer key.
#[inline(always)]
pub const fn hash_u64(key: u64) -> u64 {
    let wide = (key ^ SEED) as u128 * MULTIPLIER as u128;
    (wide >> 64) as u64 ^ wide as u64
}

impl BuildHasher for Common {
    type Hasher = CommonHasher;

    #[inline(always)]
    fn build_hasher(&self) -> CommonHasher {
        CommonHasher(0)
    }
}

impl Hasher for CommonHasher {
    #[inline(always)]
    fn write_u64(&mut self, word: u64) {
        self.0 = hash_u64(self.0 ^ word);
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let mut inner = foldhash::fast::FixedState::with_seed(self.0).build_hasher();
        inner.write(bytes);
        self.0 = inner.finish();
    }

    /// Ignores the length that precedes the bytes of a slice: the bytes imply it.
    #[inline(always)]
    fn write_usize(&mut self, _: usize) {}

    #[inline(always)]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// The description of [`Common`] on cards.
pub const COMMON: &str = "common: one folded multiplication (foldhash for byte strings)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_take_one_multiplication() {
        assert_eq!(Common.hash_one(12_345_u64), hash_u64(12_345));
    }

    #[test]
    fn low_and_high_bits_spread() {
        for shift in [0, 54] {
            let mut seen = [0u32; 1024];
            for key in 1..=65_536_u64 {
                seen[(hash_u64(key) >> shift) as usize & 1023] += 1;
            }
            let fullest = seen.iter().max().copied();
            assert!(
                fullest.is_some_and(|n| n < 128),
                "{fullest:?} at bit {shift}"
            );
        }
    }

    #[test]
    fn byte_strings_differ_in_every_byte() {
        let key = [7u8; 40];
        for at in 0..40 {
            let mut other = key;
            other[at] ^= 1;
            assert_ne!(Common.hash_one(&key[..]), Common.hash_one(&other[..]));
        }
    }
}
