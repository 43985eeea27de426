//! Hashing that gives the same values on every machine, in every process and version.

use std::hash::{Hash, Hasher};

/// Digits of π: constants without structure.
const ABSORB: u64 = 0x243f_6a88_85a3_08d3;
const LENGTH: u64 = 0x1319_8a2e_0370_7345;
const START: u64 = 0xa409_3822_299f_31d0;
const FINISH: u64 = 0x082e_fa98_ec4e_6c89;

/// The hasher of the filters. Its values are uniform in all 64 bits and are part of the byte
/// format: they never change, so that a filter that was stored can be loaded elsewhere.
///
/// It is fast and deterministic. It resists no adversary: a client who chooses items, and knows the
/// seed, can choose items that collide. Give the filter a secret
/// [seed](crate::Builder::seed) against clients who do not see the filter, and hash
/// with a keyed function, into the `*_hash` methods, against others.
///
/// # Portability
///
/// Integers are hashed as little-endian numbers, `usize` and `isize` as 64 bits. `std` hashes
/// *slices* of integers other than `u8` as bytes in the order of the machine: such items have other
/// hashes on big-endian machines, and slices of `usize` also on machines of 32 bits.
///
/// ```
/// use corewise_filter::FilterHasher;
/// use std::hash::Hasher;
///
/// let mut hasher = FilterHasher::new(0);
/// hasher.write_u64(1);
/// assert_eq!(hasher.finish(), 0xb06d_7d35_29a5_68fb);
/// ```
#[derive(Clone, Debug)]
pub struct FilterHasher {
    state: u64,
}

/// Multiplies to 128 bits and folds the halves.
#[inline(always)]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

impl FilterHasher {
    /// A hasher of the function with this seed.
    #[inline]
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            // Spread, so that a seed is more than a difference between items.
            state: fold(seed ^ START, ABSORB),
        }
    }

    #[inline(always)]
    fn absorb(&mut self, word: u64) {
        self.state = fold(self.state ^ word, ABSORB).wrapping_add(LENGTH);
    }
}

impl Default for FilterHasher {
    /// The function with the seed 0.
    #[inline]
    fn default() -> Self {
        Self::new(0)
    }
}

/// The hash of an item.
#[inline]
pub(crate) fn hash_of<T: Hash + ?Sized>(item: &T, seed: u64) -> u64 {
    let mut hasher = FilterHasher::new(seed);
    item.hash(&mut hasher);
    hasher.finish()
}

/// Methods that absorb an integer as one word, by way of an integer that says how it is widened.
macro_rules! absorb {
    ($($write:ident: $integer:ty as $widened:ty,)*) => {
        $(
            #[inline]
            fn $write(&mut self, number: $integer) {
                self.absorb(number as $widened as u64);
            }
        )*
    };
}

impl Hasher for FilterHasher {
    #[inline]
    fn finish(&self) -> u64 {
        // The second product spreads what the first one has left in its middle bits.
        fold(self.state, FINISH)
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.absorb(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        // The length in the upper byte, which the rest leaves free: slices of different lengths
        // differ although the rest is padded.
        self.absorb(u64::from_le_bytes(last) | (bytes.len() as u64) << 56);
    }

    absorb! {
        write_u8: u8 as u8,
        write_u16: u16 as u16,
        write_u32: u32 as u32,
        write_u64: u64 as u64,
        write_usize: usize as u64,
        write_i8: i8 as u8,
        write_i16: i16 as u16,
        write_i32: i32 as u32,
        write_i64: i64 as u64,
        // The width of `isize` must not matter.
        write_isize: isize as i64,
    }

    #[inline]
    fn write_u128(&mut self, number: u128) {
        self.absorb(number as u64);
        self.absorb((number >> 64) as u64);
    }

    #[inline]
    fn write_i128(&mut self, number: i128) {
        self.write_u128(number.cast_unsigned());
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Frozen: filters that were stored depend on them.
    #[test]
    fn hashes_never_change() {
        let vectors = [
            (hash_of(&0u64, 0), 0x99fe_4a24_90d5_438e),
            (hash_of(&1u64, 0), 0xb06d_7d35_29a5_68fb),
            (hash_of(&1u64, 1), 0x0a1f_a85b_4870_db74),
            (hash_of("", 0), 0xb356_6c45_6759_8a01),
            (hash_of("a filter", 0), 0x546d_343a_c3b6_ad89),
            (hash_of(&[1u8, 2, 3], 7), 0x510d_bbe0_07a8_fefd),
            (hash_of(&(1u8, -1i32, "x"), 0), 0x343d_6b29_a830_3f9e),
            (hash_of(&u128::MAX, 0), 0xedf3_b9b7_9786_96d8),
        ];
        for (index, (found, frozen)) in vectors.iter().enumerate() {
            assert_eq!(found, frozen, "vector {index} is {found:#018x}");
        }
    }

    #[test]
    fn widths_of_pointers_do_not_matter() {
        assert_eq!(hash_of(&5usize, 0), hash_of(&5u64, 0));
        assert_eq!(hash_of(&-5isize, 0), hash_of(&-5i64, 0));
    }

    #[test]
    fn bytes_of_different_lengths_differ() {
        let mut seen = HashSet::new();
        for length in 0..70 {
            let mut hasher = FilterHasher::new(0);
            hasher.write(&vec![0; length]);
            assert!(seen.insert(hasher.finish()), "length {length}");
        }
    }

    /// Every output bit is set for half of the items, and flips for half of the flips of any input
    /// bit: both within five standard deviations.
    #[test]
    fn every_bit_depends_on_every_bit() {
        let items = 4_096u64;
        let deviation = 5.0 * (items as f64).sqrt() / 2.0;
        let near_half = |count: u64| (count as f64 - items as f64 / 2.0).abs() < deviation;
        for out in 0..64 {
            let ones = (0..items).map(|n| hash_of(&n, 0) >> out & 1).sum();
            assert!(near_half(ones), "bit {out} is set {ones} times");
        }
        for flip in 0..64 {
            let mut flips = [0; 64];
            for n in (0..items).map(|n| n.wrapping_mul(ABSORB)) {
                let changed = hash_of(&n, 0) ^ hash_of(&(n ^ 1 << flip), 0);
                (0..64).for_each(|out| flips[out] += changed >> out & 1);
            }
            for (out, count) in flips.into_iter().enumerate() {
                assert!(near_half(count), "{flip} flips {out} {count} times");
            }
        }
    }
}
