//! Semi-sorted buckets of four slots (Fan et al., §5.2; thesis §5.4.1), which save a bit a slot.
//!
//! ```text
//! bucket i = bits L·i .. L·(i+1), L = 4f - 4:  code:12, then high0 .. high3 of f - 4 bits each
//! ```
//!
//! The order of the slots carries no information, so they are sorted by their lowest four bits.
//! There are only 3,876 sorted sequences of four such nibbles: 12 bits instead of 16. The code of
//! n0 ≤ n1 ≤ n2 ≤ n3 is C(n0, 1) + C(n1 + 1, 2) + C(n2 + 2, 3) + C(n3 + 3, 4), its number in the
//! combinatorial number system, so no table of codes is searched. A table decodes them.
//!
//! A change rewrites the bucket, because the order changes. Where it crosses words, a lookup may
//! see a part of each version, and miss what both have: such a rewrite must be announced
//! ([`SemiSortedLayout::crosses_words`]).

use corewise_atomic::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::packed::Fingerprints;
use crate::shape::{MAX_SLOTS, group_shift};

const SLOTS: usize = 4;
const CODE_BITS: u32 = 12;
const CODES: usize = 3_876;
/// Each nibble of a number.
const NIBBLES: u16 = 0x1111;

/// C(n + k, k + 1) for the nibble n at place k.
const RANKS: [[u16; 16]; SLOTS] = {
    let mut ranks = [[0; 16]; SLOTS];
    let mut n = 0;
    while n < 16 {
        let c = n as u16;
        ranks[0][n] = c;
        ranks[1][n] = (c + 1) * c / 2;
        ranks[2][n] = (c + 2) * (c + 1) * c / 6;
        ranks[3][n] = ((c as u32 + 3) * (c as u32 + 2) * (c as u32 + 1) * c as u32 / 24) as u16;
        n += 1;
    }
    ranks
};

/// The nibbles of each code, the first in the lowest bits. Codes that do not exist, which a lookup
/// may see beside a rewrite, stand for four empty slots.
static DECODED: [u16; 1 << CODE_BITS] = {
    let mut decoded = [0; 1 << CODE_BITS];
    let mut nibbles = 0u32;
    while nibbles < 1 << 16 {
        let [a, b, c, d] = [
            nibbles & 15,
            nibbles >> 4 & 15,
            nibbles >> 8 & 15,
            nibbles >> 12,
        ];
        if a <= b && b <= c && c <= d {
            let [a, b, c, d] = [a as usize, b as usize, c as usize, d as usize];
            let code = RANKS[0][a] + RANKS[1][b] + RANKS[2][c] + RANKS[3][d];
            decoded[code as usize] = nibbles as u16;
        }
        nibbles += 1;
    }
    decoded
};

const _: () = assert!(size_of_val(&RANKS) == 128);

/// Where the parts of a semi-sorted bucket are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SemiSortedLayout {
    /// Bits of a fingerprint above the nibble: 1 to 28.
    high_bits: u32,
    /// The lowest bit of each high part, in a bucket of one word.
    low: u64,
}

impl SemiSortedLayout {
    pub(crate) const fn new(bits: u32) -> Self {
        let high_bits = bits - 4;
        let mut low = 0;
        let mut lane = 0;
        // Used for buckets of one word only; the others have bits that do not fit.
        while lane < 4 && lane * high_bits < 64 {
            low |= 1 << (lane * high_bits);
            lane += 1;
        }
        Self { high_bits, low }
    }

    #[inline(always)]
    const fn bucket_bits(&self) -> u32 {
        CODE_BITS + 4 * self.high_bits
    }

    /// See [`FilterShape::group_shift`](crate::shape::FilterShape::group_shift).
    #[inline(always)]
    pub(crate) const fn group_shift(&self) -> u32 {
        group_shift(self.bucket_bits())
    }

    #[inline(always)]
    fn start(&self, bucket: u32) -> (usize, u32) {
        let start = u64::from(bucket) * u64::from(self.bucket_bits());
        ((start >> 6) as usize, (start & 63) as u32)
    }

    #[inline(always)]
    pub(crate) fn first_word(&self, bucket: u32) -> usize {
        self.start(bucket).0
    }

    /// Whether a change of the bucket stores more than one word.
    #[inline(always)]
    pub(crate) fn crosses_words(&self, bucket: u32) -> bool {
        self.start(bucket).1 + self.bucket_bits() > 64
    }

    /// The bits of a bucket that fits a word.
    #[inline(always)]
    fn load_short(&self, words: &[AtomicU64], bucket: u32) -> u64 {
        let (word, shift) = self.start(bucket);
        let bits = self.bucket_bits();
        // The same word if the bucket ends in it: what it adds is masked.
        let next = word + ((shift + bits - 1) >> 6) as usize;
        // Relaxed: locks order the accesses of updates, and versions those of lookups.
        let lower = words[word].load(Relaxed) >> shift;
        let upper = (words[next].load(Relaxed) << 1) << (63 - shift);
        (lower | upper) & (u64::MAX >> (64 - bits))
    }

    fn load(&self, words: &[AtomicU64], bucket: u32) -> u128 {
        let (word, shift) = self.start(bucket);
        let bits = self.bucket_bits();
        let mut value = 0u128;
        let mut done = 0;
        while done < bits {
            let at = shift + done;
            // Relaxed: as in `load_short`, which orders nothing either.
            let loaded = words[word + (at >> 6) as usize].load(Relaxed) >> (at & 63);
            value |= u128::from(loaded) << done;
            done += 64 - (at & 63);
        }
        value & (u128::MAX >> (128 - bits))
    }

    /// Stores a bucket, word by word. The caller holds the lock of the words.
    fn store(&self, words: &[AtomicU64], bucket: u32, value: u128) {
        let (word, shift) = self.start(bucket);
        let bits = self.bucket_bits();
        let mut done = 0;
        while done < bits {
            let at = shift + done;
            let stored = (bits - done).min(64 - (at & 63));
            let mask = (u64::MAX >> (64 - stored)) << (at & 63);
            let part = ((value >> done) as u64) << (at & 63);
            let word = &words[word + (at >> 6) as usize];
            // Relaxed: the lock excludes other writers, and versions order lookups.
            word.store(word.load(Relaxed) & !mask | part & mask, Relaxed);
            done += stored;
        }
    }

    /// Whether a slot of the bucket holds the fingerprint; an empty one, if it is 0.
    #[inline(always)]
    pub(crate) fn contains(&self, words: &[AtomicU64], bucket: u32, fingerprint: u32) -> bool {
        if self.bucket_bits() > 64 {
            return self.fingerprints(words, bucket)[..SLOTS].contains(&fingerprint);
        }
        let value = self.load_short(words, bucket);
        let top = self.low << (self.high_bits - 1);
        // As in `PackedLayout::matches`: the exact lanes whose high parts match. Few do, so few
        // lookups decode.
        let lanes = (value >> CODE_BITS) ^ self.low.wrapping_mul(u64::from(fingerprint >> 4));
        let below = top.wrapping_sub(self.low);
        let highs = !(((lanes & below).wrapping_add(below)) | lanes) & top;
        highs != 0 && self.lanes_match(value, highs, fingerprint)
    }

    /// Whether a slot of either bucket holds the fingerprint.
    #[inline(always)]
    pub(crate) fn either_contains(
        &self,
        words: &[AtomicU64],
        buckets: [u32; 2],
        fingerprint: u32,
    ) -> bool {
        let [first, second] = buckets;
        self.contains(words, first, fingerprint) | self.contains(words, second, fingerprint)
    }

    /// Whether one of the lanes with a matching high part has the nibble too.
    #[inline]
    fn lanes_match(&self, value: u64, highs: u64, fingerprint: u32) -> bool {
        let wanted = NIBBLES * (fingerprint & 15) as u16;
        let nibbles = DECODED[(value & 0xfff) as usize] ^ wanted;
        (0..4).any(|lane| {
            let high = highs >> ((lane + 1) * self.high_bits - 1) & 1;
            high == 1 && nibbles >> (4 * lane) & 15 == 0
        })
    }

    pub(crate) fn count(&self, words: &[AtomicU64], bucket: u32, fingerprint: u32) -> u32 {
        let slots = self.fingerprints(words, bucket);
        slots[..SLOTS]
            .iter()
            .filter(|slot| **slot == fingerprint)
            .count() as u32
    }

    pub(crate) fn fingerprints(&self, words: &[AtomicU64], bucket: u32) -> Fingerprints {
        let value = self.load(words, bucket);
        let nibbles = DECODED[(value & 0xfff) as usize];
        let mask = u32::MAX >> (32 - self.high_bits);
        let mut found = [0; MAX_SLOTS];
        for (lane, slot) in found.iter_mut().take(SLOTS).enumerate() {
            let high = (value >> (CODE_BITS + lane as u32 * self.high_bits)) as u32 & mask;
            *slot = high << 4 | u32::from(nibbles >> (4 * lane) & 15);
        }
        found
    }

    /// Replaces one `old` in the bucket by `new`; 0 stands for an empty slot. Returns whether there
    /// was one. The caller holds the lock, and has announced the change if it crosses words.
    pub(crate) fn replace(&self, words: &[AtomicU64], bucket: u32, old: u32, new: u32) -> bool {
        let mut slots = self.fingerprints(words, bucket);
        let Some(slot) = slots[..SLOTS].iter_mut().find(|slot| **slot == old) else {
            return false;
        };
        *slot = new;
        self.store(words, bucket, self.encode(&mut slots));
        true
    }

    /// Equal contents give equal bits: slots with equal nibbles are sorted by their high parts.
    fn encode(&self, slots: &mut Fingerprints) -> u128 {
        let slots = &mut slots[..SLOTS];
        slots.sort_unstable_by_key(|slot| (slot & 15, *slot));
        let ranks = slots.iter().zip(&RANKS);
        let code: u16 = ranks.map(|(slot, rank)| rank[(slot & 15) as usize]).sum();
        let high = |lane: usize, slot: u32| {
            u128::from(slot >> 4) << (CODE_BITS + lane as u32 * self.high_bits)
        };
        let highs = slots.iter().enumerate();
        highs.fold(u128::from(code), |value, (lane, slot)| {
            value | high(lane, *slot)
        })
    }

    /// Whether the bucket could have been written by [`SemiSortedLayout::replace`].
    pub(crate) fn is_valid(&self, words: &[AtomicU64], bucket: u32) -> bool {
        let value = self.load(words, bucket);
        let has_code = ((value & 0xfff) as usize) < CODES;
        has_code && self.encode(&mut self.fingerprints(words, bucket)) == value
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;
    use crate::testing::Random;
    use std::collections::HashSet;

    /// Each of the 3,876 combinations of the paper has a different code, which decodes to it.
    #[test]
    fn every_combination_of_nibbles_has_a_code() {
        let layout = SemiSortedLayout::new(5);
        let mut codes = HashSet::new();
        for combination in 0..1u32 << 16 {
            let mut nibbles = [0, 4, 8, 12].map(|shift| combination >> shift & 15);
            let mut slots = [0; MAX_SLOTS];
            slots[..4].copy_from_slice(&nibbles);
            let code = layout.encode(&mut slots) as usize;
            assert!(code < CODES);
            codes.insert(code);
            nibbles.sort_unstable();
            let decoded = [0, 4, 8, 12].map(|shift| u32::from(DECODED[code]) >> shift & 15);
            assert_eq!(decoded, nibbles);
        }
        assert_eq!(codes.len(), CODES);
        assert!(DECODED[CODES..].iter().all(|&nibbles| nibbles == 0));
    }

    /// Widths of which the reference implementation returns false negatives (5, 9, 17) included.
    #[test]
    fn buckets_are_multisets_at_every_width() {
        for bits in 5..=32 {
            check_width(bits);
        }
    }

    fn check_width(bits: u32) {
        let layout = SemiSortedLayout::new(bits);
        let words = 4 * layout.bucket_bits() as usize;
        let words: Vec<_> = (0..words).map(|_| AtomicU64::new(0)).collect();
        let mut buckets = vec![[0u32; 4]; 256];
        let mut random = Random::new(bits.into());
        for round in 0..4_000 {
            let bucket = random.below(256) as usize;
            let slots = &mut buckets[bucket];
            let any = match round % 3 {
                // Nearly equal fingerprints, so that nibbles and high parts match separately.
                0 => random.next() as u32 & 0x13,
                _ => random.next() as u32,
            } & (u32::MAX >> (32 - bits));
            let old = [any, 0, slots[0], slots[3]][random.below(4) as usize];
            let new = [any, 0][random.below(2) as usize];
            let slot = slots.iter_mut().find(|slot| **slot == old);
            let is_there = slot.is_some();
            slot.into_iter().for_each(|slot| *slot = new);
            let bucket = bucket as u32;
            assert_eq!(layout.contains(&words, bucket, old), is_there);
            assert_eq!(layout.replace(&words, bucket, old, new), is_there);
            assert!(layout.is_valid(&words, bucket));
            check_contents(&layout, &words, &buckets, &mut random);
        }
    }

    fn check_contents(
        layout: &SemiSortedLayout,
        words: &[AtomicU64],
        buckets: &[[u32; 4]],
        random: &mut Random,
    ) {
        let bucket = random.below(256) as u32;
        let mut expected = buckets[bucket as usize];
        let mut found = layout.fingerprints(words, bucket);
        expected.sort_unstable();
        found[..4].sort_unstable();
        assert_eq!(found[..4], expected);
        for fingerprint in expected {
            assert!(layout.contains(words, bucket, fingerprint));
            let count = expected.iter().filter(|slot| **slot == fingerprint).count();
            assert_eq!(layout.count(words, bucket, fingerprint) as usize, count);
        }
        let other = expected[0] ^ 1 << random.below(5);
        let is_there = expected.contains(&other);
        assert_eq!(layout.contains(words, bucket, other), is_there);
    }

    #[test]
    fn bits_that_no_bucket_has_are_invalid() {
        let layout = SemiSortedLayout::new(8);
        let words = [const { AtomicU64::new(0) }; 1];
        for (bits, is_valid) in [
            (0, true),
            (CODES as u64 - 1, true),
            (CODES as u64, false),
            (0xfff, false),
            // Equal nibbles, and high parts in the wrong order.
            (1 << 12, false),
            (1 << 24, true),
        ] {
            words[0].store(bits, Relaxed);
            assert_eq!(layout.is_valid(&words, 0), is_valid, "{bits:#x}");
        }
    }
}
