//! The hash of items, and where it puts a fingerprint.

/// The multiplier of MurmurHash64A.
const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
/// By which it shifts.
const SHIFT: u32 = 47;
/// By which a fingerprint is multiplied to get from one of its buckets to the other.
const OTHER_BUCKET: u64 = 0x5bd1_e995;

/// The hash by which RedisBloom files an item: MurmurHash64A with seed 0, as A. Appleby has
/// published it, of a little-endian machine.
///
/// It is not keyed: a client can choose items that share their buckets. Such items make insertions
/// fail or the filter grow, as they do in RedisBloom.
///
/// ```
/// use corewise_filter::redis::item_hash;
/// assert_eq!(item_hash(b""), 0);
/// assert_ne!(item_hash(b"item"), item_hash(b"items"));
/// ```
#[must_use]
pub fn item_hash(item: &[u8]) -> u64 {
    // Seed 0 combined with the length.
    let mut hash = (item.len() as u64).wrapping_mul(MULTIPLIER);
    let (words, tail) = item.as_chunks::<8>();
    for word in words {
        let mixed = u64::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        let mixed = (mixed ^ (mixed >> SHIFT)).wrapping_mul(MULTIPLIER);
        hash = (hash ^ mixed).wrapping_mul(MULTIPLIER);
    }
    if !tail.is_empty() {
        let mut word = [0; 8];
        word[..tail.len()].copy_from_slice(tail);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ (hash >> SHIFT)).wrapping_mul(MULTIPLIER);
    hash ^ (hash >> SHIFT)
}

/// A number whose low bits are the other bucket of a fingerprint that is in `bucket`, or may be: it
/// is its own inverse.
#[inline(always)]
pub(super) fn other_bucket(fingerprint: u8, bucket: u64) -> u64 {
    bucket ^ (u64::from(fingerprint) * OTHER_BUCKET)
}

/// What a filter knows of an item. The buckets are the low bits of two numbers, so that they are
/// known for every size of a subfilter.
#[derive(Clone, Copy, Debug)]
pub(super) struct FiledItem {
    pub(super) fingerprint: u8,
    pub(super) buckets: [u64; 2],
}

impl FiledItem {
    #[inline(always)]
    pub(super) fn new(hash: u64) -> Self {
        // At most 255, and never 0, which is a free slot.
        Self::in_bucket((hash % 255 + 1) as u8, hash)
    }

    /// The item with this fingerprint in this bucket, in every smaller subfilter too.
    #[inline(always)]
    pub(super) fn in_bucket(fingerprint: u8, bucket: u64) -> Self {
        Self {
            fingerprint,
            buckets: [bucket, other_bucket(fingerprint, bucket)],
        }
    }
}
