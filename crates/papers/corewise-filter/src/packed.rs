//! Buckets of packed fingerprints, and comparisons of all slots of a word at once.
//!
//! ```text
//! bucket i = bits L·i .. L·(i+1) of the array, L = b·f; slot j at bit f·j of its bucket; 0 = empty
//!   b = 4, f = 12:  b0 s0 s1 s2 s3 | b1 s0 s1- ║ -s1 s2 s3 | b2 s0 s1 s2- ║ -s2 s3 | b3 …
//! ```
//!
//! The array ends with a word that no bucket uses: where a chunk may cross words, the next word is
//! read too, and holds no bits of the chunk if it ends before.
//!
//! A bucket is read in one to four *chunks* of at most 64 bits. The slots of a chunk are the lanes
//! of a word that is compared as a whole.
//!
//! Words are loaded and stored with Relaxed: locks order the accesses of updates, and the protocol
//! of [`crate::table`] those of lookups. A slot that crosses words may be seen half-written. That
//! adds a fingerprint that is in neither version, so at most a false positive, and hides none: the
//! bits of other slots are rewritten unchanged.

use corewise_atomic::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::shape::{MAX_SLOTS, group_shift};

/// Where the slots of a bucket are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackedLayout {
    slot_bits: u32,
    /// Slots of a chunk; a power of two.
    lanes: u32,
    chunks: u32,
    /// The lowest bit of each lane.
    low: u64,
}

/// The fingerprints in a bucket; zeros are empty slots.
pub(crate) type Fingerprints = [u32; MAX_SLOTS];

impl PackedLayout {
    pub(crate) const fn new(slots: u32, slot_bits: u32) -> Self {
        let mut lanes = slots;
        while lanes * slot_bits > 64 {
            lanes /= 2;
        }
        let mut low = 0;
        let mut lane = 0;
        while lane < lanes {
            low |= 1 << (lane * slot_bits);
            lane += 1;
        }
        Self {
            slot_bits,
            lanes,
            chunks: slots / lanes,
            low,
        }
    }

    #[inline(always)]
    const fn chunk_bits(&self) -> u32 {
        self.lanes * self.slot_bits
    }

    #[inline(always)]
    const fn bucket_bits(&self) -> u32 {
        self.chunks * self.chunk_bits()
    }

    /// The highest bit of each lane.
    #[inline(always)]
    const fn high(&self) -> u64 {
        self.low << (self.slot_bits - 1)
    }

    /// See [`FilterShape::group_shift`](crate::shape::FilterShape::group_shift).
    #[inline(always)]
    pub(crate) const fn group_shift(&self) -> u32 {
        group_shift(self.bucket_bits())
    }

    /// The index of the first word of a bucket.
    #[inline(always)]
    pub(crate) fn first_word(&self, bucket: u32) -> usize {
        ((u64::from(bucket) * u64::from(self.bucket_bits())) >> 6) as usize
    }

    /// The bits of a chunk, without anything above them.
    #[inline(always)]
    fn chunk(&self, words: &[AtomicU64], bucket: u32, chunk: u32) -> u64 {
        self.chunk_and_more(words, bucket, chunk) & (u64::MAX >> (64 - self.chunk_bits()))
    }

    /// The bits of a chunk, and any bits above them.
    #[inline(always)]
    fn chunk_and_more(&self, words: &[AtomicU64], bucket: u32, chunk: u32) -> u64 {
        let bits = self.chunk_bits();
        let start =
            u64::from(bucket) * u64::from(self.bucket_bits()) + u64::from(chunk) * u64::from(bits);
        let shift = (start & 63) as u32;
        let word = (start >> 6) as usize;
        // Relaxed: see the header.
        let lower = words[word].load(Relaxed) >> shift;
        if bits.is_power_of_two() {
            // It divides 64, and all starts are multiples of it: no chunk crosses words.
            return lower;
        }
        // The bits above the word, if the chunk has any there; otherwise bits above the chunk.
        // Relaxed: see the header.
        let upper = (words[word + 1].load(Relaxed) << 1) << (63 - shift);
        lower | upper
    }

    /// The lowest bits of the lanes that hold the fingerprint. Only the lowest of them is exact:
    /// lanes above a match may be marked wrongly.
    #[inline(always)]
    fn some_matches(&self, chunk: u64, fingerprint: u32) -> u64 {
        // Lanes that match become zero. Subtracting 1 from each sets the high bit of a zero lane.
        let lanes = chunk ^ self.low.wrapping_mul(u64::from(fingerprint));
        lanes.wrapping_sub(self.low) & !lanes & self.high()
    }

    /// The number of lanes that hold the fingerprint.
    #[inline(always)]
    fn matches(&self, chunk: u64, fingerprint: u32) -> u32 {
        let lanes = chunk ^ self.low.wrapping_mul(u64::from(fingerprint));
        let below = self.high().wrapping_sub(self.low);
        // Adding carries into the high bit of a lane, and no further, unless its lower bits are
        // zero.
        let nonzero = ((lanes & below).wrapping_add(below)) | lanes;
        (!nonzero & self.high()).count_ones()
    }

    /// Whether a slot of the bucket holds the fingerprint; an empty one, if it is 0.
    #[inline(always)]
    pub(crate) fn contains(&self, words: &[AtomicU64], bucket: u32, fingerprint: u32) -> bool {
        let mut found = 0;
        for chunk in 0..self.chunks {
            found |= self.some_matches(self.chunk(words, bucket, chunk), fingerprint);
        }
        found != 0
    }

    /// Whether a slot of either bucket holds the fingerprint, by as few instructions as possible:
    /// the fewer a lookup has, the more lookups of a loop wait for memory at the same time.
    #[inline(always)]
    pub(crate) fn either_contains(
        &self,
        words: &[AtomicU64],
        buckets: [u32; 2],
        fingerprint: u32,
    ) -> bool {
        let [first, second] = buckets;
        if self.chunks > 1 {
            return self.contains(words, first, fingerprint)
                | self.contains(words, second, fingerprint);
        }
        let one = self.chunk_and_more(words, first, 0);
        let other = self.chunk_and_more(words, second, 0);
        let bits = self.chunk_bits();
        if 2 * bits <= 64 {
            // Both in one word.
            let both = one & (u64::MAX >> (64 - bits)) | other << bits;
            let low = self.low | self.low << bits;
            let lanes = both ^ low.wrapping_mul(u64::from(fingerprint));
            let found = lanes.wrapping_sub(low) & !lanes & (low << (self.slot_bits - 1));
            return found != 0;
        }
        // As `some_matches`: a borrow goes upwards, so bits above the lanes change none of them.
        let wanted = self.low.wrapping_mul(u64::from(fingerprint));
        let (one, other) = (one ^ wanted, other ^ wanted);
        let one = one.wrapping_sub(self.low) & !one;
        let other = other.wrapping_sub(self.low) & !other;
        (one | other) & self.high() != 0
    }

    /// The number of slots that hold the fingerprint.
    pub(crate) fn count(&self, words: &[AtomicU64], bucket: u32, fingerprint: u32) -> u32 {
        let counts =
            (0..self.chunks).map(|c| self.matches(self.chunk(words, bucket, c), fingerprint));
        counts.sum()
    }

    pub(crate) fn fingerprints(&self, words: &[AtomicU64], bucket: u32) -> Fingerprints {
        let mut found = [0; MAX_SLOTS];
        let mask = u64::MAX >> (64 - self.slot_bits);
        for chunk in 0..self.chunks {
            let bits = self.chunk(words, bucket, chunk);
            for lane in 0..self.lanes {
                let fingerprint = bits >> (lane * self.slot_bits) & mask;
                found[(chunk * self.lanes + lane) as usize] = fingerprint as u32;
            }
        }
        found
    }

    /// Replaces the first `old` in the bucket by `new`; 0 stands for an empty slot. Returns whether
    /// there was one. The caller holds the lock of the bucket's words.
    #[inline(always)]
    pub(crate) fn replace(&self, words: &[AtomicU64], bucket: u32, old: u32, new: u32) -> bool {
        for chunk in 0..self.chunks {
            let found = self.some_matches(self.chunk(words, bucket, chunk), old);
            if found != 0 {
                let lane = found.trailing_zeros() / self.slot_bits;
                self.write_slot(words, bucket, chunk * self.lanes + lane, new);
                return true;
            }
        }
        false
    }

    #[inline(always)]
    fn write_slot(&self, words: &[AtomicU64], bucket: u32, slot: u32, fingerprint: u32) {
        let start = u64::from(bucket) * u64::from(self.bucket_bits())
            + u64::from(slot) * u64::from(self.slot_bits);
        let shift = (start & 63) as u32;
        let word = (start >> 6) as usize;
        let mask = u64::MAX >> (64 - self.slot_bits);
        let write = |word: &AtomicU64, mask: u64, bits: u64| {
            // Relaxed: see the header. Not atomic as a whole: the lock excludes other writers.
            word.store(word.load(Relaxed) & !mask | bits, Relaxed);
        };
        write(&words[word], mask << shift, u64::from(fingerprint) << shift);
        let written = 64 - shift;
        if written < self.slot_bits {
            let rest = u64::from(fingerprint) >> written;
            write(&words[word + 1], mask >> written, rest);
        }
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;
    use crate::testing::Random;

    /// All layouts, over words of random bits, against slots that are read bit by bit.
    #[test]
    fn slots_are_where_the_header_says() {
        for slots in [2, 4, 8] {
            for bits in 1..=32 {
                check_layout(slots, bits);
            }
        }
    }

    fn slot_of(words: &[AtomicU64], start: usize, bits: u32) -> u32 {
        let bit = |at: usize| words[at / 64].load(Relaxed) >> (at % 64) & 1;
        (0..bits as usize).fold(0, |value, i| value | (bit(start + i) as u32) << i)
    }

    fn check_layout(slots: u32, bits: u32) {
        let layout = PackedLayout::new(slots, bits);
        let (bucket_bits, buckets) = ((slots * bits) as usize, 64);
        assert_eq!(layout.bucket_bits() as usize, bucket_bits);
        let mut random = Random::new(u64::from(slots * 100 + bits));
        let sparse = |random: &mut Random| random.next() & random.next();
        let words: Vec<_> = (0..=bucket_bits)
            .map(|_| AtomicU64::new(sparse(&mut random)))
            .collect();
        let expected = |bucket: usize| {
            let start = bucket * bucket_bits;
            let slot = |j: usize| slot_of(&words, start + j * bits as usize, bits);
            (0..slots as usize).map(slot).collect::<Vec<u32>>()
        };
        for round in 0..400 {
            let bucket = random.below(buckets) as usize;
            let mut slots_before = expected(bucket);
            let neighbours = [expected((bucket + 63) % 64), expected((bucket + 1) % 64)];
            let found = layout.fingerprints(&words, bucket as u32);
            assert_eq!(found[..slots as usize], slots_before);
            let any = random.next() as u32 & (u32::MAX >> (32 - bits));
            let old = [any, 0, slots_before[round % slots as usize]][round % 3];
            let count = slots_before.iter().filter(|&&slot| slot == old).count();
            assert_eq!(layout.count(&words, bucket as u32, old) as usize, count);
            assert_eq!(layout.contains(&words, bucket as u32, old), count > 0);
            let other = random.below(buckets) as usize;
            let is_in_other = expected(other).contains(&old);
            for pair in [[bucket, other], [other, bucket]] {
                let pair = pair.map(|bucket| bucket as u32);
                let is_found = layout.either_contains(&words, pair, old);
                assert_eq!(is_found, count > 0 || is_in_other);
            }
            let new = random.next() as u32 & (u32::MAX >> (32 - bits));
            assert_eq!(layout.replace(&words, bucket as u32, old, new), count > 0);
            if let Some(slot) = slots_before.iter_mut().find(|slot| **slot == old) {
                *slot = new;
            }
            assert_eq!(expected(bucket), slots_before);
            let after = [expected((bucket + 63) % 64), expected((bucket + 1) % 64)];
            assert_eq!(after, neighbours, "a store changes no other bucket");
        }
    }

    #[test]
    fn constants_have_the_layout_of_the_paper() {
        let layout = PackedLayout::new(4, 12);
        assert_eq!((layout.lanes, layout.chunks), (4, 1));
        assert_eq!(layout.low, 0x0010_0100_1001);
        let wide = PackedLayout::new(8, 32);
        assert_eq!((wide.lanes, wide.chunks), (2, 4));
    }
}
