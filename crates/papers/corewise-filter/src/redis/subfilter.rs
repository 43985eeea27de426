//! One array of buckets.
//!
//! ```text
//! pieces  [[AtomicU64; 2^17]]: 1 MiB each, the last as long as is needed
//! word    eight slots, the first in the lowest byte
//! bucket  b slots, which may cross words
//! slot    fingerprint, or 0 if it is free
//! ```
//!
//! Any thread reads slots. Only the holder of the filter's lock stores them, so a slot is stored by
//! a load and a store of its word.

use corewise_atomic::sync::atomic::{AtomicU64, Ordering::Relaxed};
use corewise_atomic::{Slots, mutant};

/// Words of a piece; few in unit tests and under the stress build, so that buckets cross pieces.
const PIECE_WORDS: u64 = if cfg!(any(test, corewise_stress)) {
    4
} else {
    1 << 17
};
/// The lowest bit of each byte.
const LOW_BITS: u64 = 0x0101_0101_0101_0101;
/// The highest bit of each byte.
const HIGH_BITS: u64 = LOW_BITS << 7;

/// A part of the memory of a subfilter.
type Piece = Slots<AtomicU64>;

/// The number of buckets, and of slots in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SubfilterSize {
    /// A power of two.
    pub(super) buckets: u64,
    /// 1 to 255.
    pub(super) bucket_slots: u64,
}

impl SubfilterSize {
    /// `None` if they are more than [`i64::MAX`], which no iterator of a dump could count.
    pub(super) fn slots(self) -> Option<u64> {
        let slots = self.buckets.checked_mul(self.bucket_slots)?;
        (slots <= i64::MAX as u64).then_some(slots)
    }

    /// The words that a bucket fills, at least.
    pub(super) fn bucket_words(self) -> u64 {
        self.bucket_slots.div_ceil(8)
    }

    /// The bytes that such a subfilter takes.
    pub(super) fn bytes(self) -> Option<u64> {
        let words = self.slots()?.div_ceil(8);
        let pieces = words.div_ceil(PIECE_WORDS);
        let administration = pieces.checked_mul(size_of::<Piece>() as u64)?;
        let bytes = words.checked_mul(8)?.checked_add(administration)?;
        bytes.checked_add(size_of::<Subfilter>() as u64)
    }
}

pub(super) struct Subfilter {
    pieces: Vec<Piece>,
    size: SubfilterSize,
}

impl Subfilter {
    /// A subfilter without items; `None` if there is no memory.
    pub(super) fn new(size: SubfilterSize) -> Option<Self> {
        let words = size.slots()?.div_ceil(8);
        let count = usize::try_from(words.div_ceil(PIECE_WORDS)).ok()?;
        let mut pieces = Vec::new();
        pieces.try_reserve_exact(count).ok()?;
        for piece in 0..count as u64 {
            let len = (words - piece * PIECE_WORDS).min(PIECE_WORDS);
            pieces.push(Slots::try_zeroed(len as usize)?);
        }
        Some(Self { pieces, size })
    }

    /// Its memory, to be freed piece by piece.
    pub(super) fn into_pieces(self) -> Vec<Piece> {
        self.pieces
    }

    pub(super) fn slots(&self) -> u64 {
        self.size.buckets * self.size.bucket_slots
    }

    pub(super) fn size(&self) -> SubfilterSize {
        self.size
    }

    /// The bucket among the buckets of this subfilter.
    #[inline(always)]
    pub(super) fn bucket(&self, number: u64) -> u64 {
        number & (self.size.buckets - 1)
    }

    pub(super) fn bucket_of_slot(&self, slot: u64) -> u64 {
        slot / self.size.bucket_slots
    }

    /// The first slot of a bucket.
    pub(super) fn first_slot(&self, bucket: u64) -> u64 {
        self.bucket(bucket) * self.size.bucket_slots
    }

    #[inline(always)]
    fn word(&self, index: u64) -> &AtomicU64 {
        // Both fit a `usize`, because the pieces were allocated.
        &self.pieces[(index / PIECE_WORDS) as usize][(index % PIECE_WORDS) as usize]
    }

    /// The first slot of each word of the bucket, with the high bits of the slots that have this
    /// value.
    #[inline(always)]
    fn matches(&self, bucket: u64, value: u8) -> impl Iterator<Item = (u64, u64)> {
        let first = self.first_slot(bucket);
        let end = first + self.size.bucket_slots;
        (first / 8..end.div_ceil(8)).map(move |index| {
            let start = index * 8;
            let below = u64::MAX << (8 * first.saturating_sub(start));
            let above = u64::MAX >> (8 * (start + 8).saturating_sub(end));
            // Relaxed: the versions order slots for lookups, the lock for writers.
            let word = self.word(index).load(Relaxed);
            (start, equal_bytes(word, value) & below & above)
        })
    }

    /// The first slot of a bucket with this value.
    #[inline(always)]
    pub(super) fn find(&self, bucket: u64, value: u8) -> Option<u64> {
        let mut matches = self.matches(bucket, value);
        let (start, bits) = matches.find(|(_, bits)| *bits != 0)?;
        Some(start + u64::from(bits.trailing_zeros() / 8))
    }

    /// The slots of a bucket with this value.
    pub(super) fn count(&self, bucket: u64, value: u8) -> u64 {
        let counts = self.matches(bucket, value);
        counts.map(|(_, bits)| u64::from(bits.count_ones())).sum()
    }

    /// The values of the eight slots from this multiple of eight on.
    pub(super) fn eight(&self, slot: u64) -> u64 {
        // Relaxed: the lock orders the stores of writers.
        self.word(slot / 8).load(Relaxed)
    }

    pub(super) fn get(&self, slot: u64) -> u8 {
        (self.eight(slot) >> (8 * (slot % 8))) as u8
    }

    /// Stores a slot. Only for the holder of the lock.
    #[inline(always)]
    pub(super) fn set(&self, slot: u64, value: u8) {
        let (word, shift) = (self.word(slot / 8), 8 * (slot % 8));
        // Relaxed: the lock orders the stores of writers.
        let others = word.load(Relaxed) & !(0xff << shift);
        // Relaxed: the versions order slots for lookups.
        word.store(others | u64::from(value) << shift, Relaxed);
    }

    /// Stores the slots of a subfilter of the same size, whose stores its caller excludes. Only
    /// while no other thread has this one.
    pub(super) fn copy_from(&self, other: &Self) {
        for index in 0..self.slots().div_ceil(8) {
            // Relaxed: who gets the copy is given it by other means.
            self.word(index).store(other.eight(index * 8), Relaxed);
        }
    }

    /// Appends the slots of a range.
    pub(super) fn append_to(&self, out: &mut Vec<u8>, first: u64, end: u64) {
        for index in first / 8..end.div_ceil(8) {
            let bytes = self.eight(index * 8).to_le_bytes();
            let (from, to) = part_of_word(index, first, end);
            out.extend_from_slice(&bytes[from..to]);
        }
    }

    /// Stores slots from `first` on. Only for the holder of the lock.
    pub(super) fn overwrite(&self, first: u64, data: &[u8]) {
        let end = first + data.len() as u64;
        let mut rest = data;
        for index in first / 8..end.div_ceil(8) {
            let word = self.word(index);
            let (from, to) = part_of_word(index, first, end);
            let (part, others) = rest.split_at(to - from);
            rest = others;
            // Relaxed: the lock orders the stores of writers.
            let mut bytes = word.load(Relaxed).to_le_bytes();
            bytes[from..to].copy_from_slice(part);
            // Relaxed: the versions order slots for lookups.
            word.store(u64::from_le_bytes(bytes), Relaxed);
        }
    }
}

/// The part of a word, in bytes, that lies in a range of slots.
fn part_of_word(index: u64, first: u64, end: u64) -> (usize, usize) {
    let start = index * 8;
    // Both are at most 8.
    let from = first.saturating_sub(start) as usize;
    (from, (end - start).min(8) as usize)
}

/// The high bit of each byte of the word that is equal to `value`.
#[inline(always)]
fn equal_bytes(word: u64, value: u8) -> u64 {
    let differences = word ^ (LOW_BITS * u64::from(value));
    // The sum has the high bit of a byte if one of its other bits is set; no byte carries.
    let sums = (differences & !HIGH_BITS) + !HIGH_BITS;
    if mutant!("redis_borrowing_bytes") {
        return differences.wrapping_sub(LOW_BITS) & !differences & HIGH_BITS;
    }
    !(sums | differences) & HIGH_BITS
}
