//! Keys, and what the tables make of them: a 60-bit ID that fits into a message.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Bits of an ID: a message has 64, and four of them are its opcode (\[CPHASH\] §3.1).
pub(crate) const ID_BITS: u32 = 60;
const ID_MASK: u64 = (1 << ID_BITS) - 1;

/// The longest key in bytes, 2^31 − 1.
///
/// No table contains a longer one: lookups and removals do not find it, and insertions fail with
/// [`InsertError::TooLarge`](crate::InsertError::TooLarge). Such a key is neither hashed nor
/// copied.
pub const MAX_KEY_BYTES: usize = (1 << 31) - 1;

/// A key: a number or bytes. All methods of the tables take `impl Into<Key>`.
///
/// A number below 2^60 is its own ID, as in the paper: nothing but the number is stored and
/// compared. Any other key is found by a 60-bit hash and then compared in full (\[CPHASH\] §8.2),
/// so no two keys are ever confused. A number and the same number as bytes are different keys.
///
/// ```
/// use corewise_cphash::Key;
/// assert_eq!(Key::from("two"), Key::Bytes(b"two"));
/// assert_eq!(Key::from(&String::from("two")), Key::Bytes(b"two"));
/// assert_ne!(Key::from(2), Key::from(&2u64.to_le_bytes()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key<'a> {
    /// A number; the cheapest key if it is below 2^60.
    Number(u64),
    /// Up to [`MAX_KEY_BYTES`] bytes.
    Bytes(&'a [u8]),
}

impl From<u64> for Key<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl<'a> From<&'a [u8]> for Key<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Key<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a> From<&'a str> for Key<'a> {
    fn from(text: &'a str) -> Self {
        Self::Bytes(text.as_bytes())
    }
}

impl<'a> From<&'a String> for Key<'a> {
    fn from(text: &'a String) -> Self {
        text.as_str().into()
    }
}

impl<'a> From<&'a Vec<u8>> for Key<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

/// Kind of a stored key. With the ID and the bytes it identifies the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    /// A number that is its own ID; nothing else is stored.
    Narrow,
    /// A number of more than 60 bits; its eight bytes are stored.
    Wide,
    Bytes,
}

/// A key as the partitions see it: its ID, and what an ID alone does not tell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity<'a> {
    /// 60 bits.
    pub(crate) id: u64,
    pub(crate) kind: KeyKind,
    rest: Rest<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Rest<'a> {
    /// The bytes of a wide number.
    Number([u8; 8]),
    Bytes(&'a [u8]),
}

impl<'a> Identity<'a> {
    /// A key that was taken apart: its ID, its kind and its bytes.
    pub(crate) fn with_bytes(id: u64, kind: KeyKind, bytes: &'a [u8]) -> Self {
        let rest = match <[u8; 8]>::try_from(bytes) {
            Ok(number) if kind == KeyKind::Wide => Rest::Number(number),
            _ => Rest::Bytes(bytes),
        };
        Self { id, kind, rest }
    }
}

impl Identity<'_> {
    #[inline]
    pub(crate) fn narrow(id: u64) -> Self {
        debug_assert!(id <= ID_MASK);
        Self {
            id,
            kind: KeyKind::Narrow,
            rest: Rest::Bytes(&[]),
        }
    }

    /// What is stored of the key beside its ID.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.rest {
            Rest::Number(bytes) => bytes,
            Rest::Bytes(bytes) => bytes,
        }
    }
}

/// Turns keys into IDs, and IDs into places. Seeded for each table.
#[derive(Clone, Debug)]
pub(crate) struct Identifier<S> {
    hasher: S,
    pub(crate) mixer: Mixer,
    /// [`MAX_KEY_BYTES`], or less in tests.
    pub(crate) longest: usize,
}

impl<S: BuildHasher> Identifier<S> {
    pub(crate) fn new(hasher: S) -> Self {
        Self {
            hasher,
            mixer: Mixer::new(),
            longest: MAX_KEY_BYTES,
        }
    }

    /// `None` if the key is too long for any table.
    #[inline(always)]
    pub(crate) fn identify<'a>(&self, key: Key<'a>) -> Option<Identity<'a>> {
        if self.is_too_long(&key) {
            return None;
        }
        Some(self.identify_short(key))
    }

    #[inline(always)]
    fn is_too_long(&self, key: &Key<'_>) -> bool {
        matches!(key, Key::Bytes(bytes) if bytes.len() > self.longest)
    }

    /// Of a key that is not too long.
    #[inline]
    fn identify_short<'a>(&self, key: Key<'a>) -> Identity<'a> {
        match key {
            Key::Number(number) if number <= ID_MASK => Identity::narrow(number),
            Key::Number(number) => Identity {
                id: self.mixer.mix(number) & ID_MASK,
                kind: KeyKind::Wide,
                rest: Rest::Number(number.to_le_bytes()),
            },
            Key::Bytes(bytes) => Identity {
                id: self.hash(bytes) & ID_MASK,
                kind: KeyKind::Bytes,
                rest: Rest::Bytes(bytes),
            },
        }
    }

    #[inline]
    fn hash(&self, bytes: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(bytes);
        hasher.finish()
    }
}

/// Spreads IDs over partitions and buckets. Numbers come from users, and perhaps from the network,
/// so it has a seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mixer {
    seed: u64,
    factor: u64,
}

impl Mixer {
    pub(crate) fn new() -> Self {
        if cfg!(any(corewise_loom, corewise_shuttle)) {
            // Every execution of a model has to be the same.
            return Self::with_seeds(1, 1);
        }
        // `RandomState` is the standard library's source of randomness.
        let random = RandomState::new();
        Self::with_seeds(random.hash_one(1), random.hash_one(2))
    }

    pub(crate) fn with_seeds(seed: u64, factor: u64) -> Self {
        // Odd, and with bits in both halves.
        let factor = factor | 1 << 63 | 1 << 31 | 1;
        Self { seed, factor }
    }

    /// A hash of the ID. Its upper half chooses the partition and its lower half the bucket.
    #[inline]
    pub(crate) fn mix(self, id: u64) -> u64 {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let product = u128::from(id ^ self.seed) * u128::from(self.factor);
        let folded = (product >> 64) as u64 ^ product as u64;
        // A second round, because a product's low bits depend on the low bits of its factors only.
        let product = u128::from(folded) * u128::from(GOLDEN);
        (product >> 64) as u64 ^ product as u64
    }

    /// The partition, of `count`, that a hash belongs to.
    #[inline]
    pub(crate) fn partition_of(hash: u64, count: usize) -> usize {
        ((hash >> 32) as usize * count) >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_numbers_are_their_ids_and_others_keep_their_bytes() {
        let identifier = Identifier::new(RandomState::new());
        let narrow = identifier.identify(Key::Number(ID_MASK)).unwrap();
        assert_eq!((narrow.id, narrow.kind), (ID_MASK, KeyKind::Narrow));
        assert!(narrow.bytes().is_empty());
        let wide = identifier.identify(Key::Number(ID_MASK + 1)).unwrap();
        assert_eq!(wide.kind, KeyKind::Wide);
        assert_eq!(wide.bytes(), (ID_MASK + 1).to_le_bytes());
        assert!(wide.id <= ID_MASK);
        let bytes = identifier.identify(Key::from("key")).unwrap();
        assert_eq!((bytes.bytes(), bytes.kind), (&b"key"[..], KeyKind::Bytes));
    }

    #[test]
    fn consecutive_numbers_spread_over_partitions_and_buckets() {
        for seed in 0..20u64 {
            let mixer = Mixer::with_seeds(seed << 60, seed);
            let mut partitions = [0; 16];
            let mut buckets = [0; 16];
            for id in 0..16_000 {
                let hash = mixer.mix(id);
                partitions[Mixer::partition_of(hash, 16)] += 1;
                buckets[hash as usize % 16] += 1;
            }
            let is_even = |counts: &[i32]| counts.iter().all(|count| (800..1200).contains(count));
            assert!(is_even(&partitions), "{seed}: {partitions:?}");
            assert!(is_even(&buckets), "{seed}: {buckets:?}");
        }
    }

    #[test]
    fn every_partition_is_in_range() {
        for count in [1, 3, 4096] {
            assert_eq!(Mixer::partition_of(0, count), 0);
            assert_eq!(Mixer::partition_of(u64::MAX, count), count - 1);
        }
    }
}
