//! The interface of a table under test, and its fairness card.
//!
//! An adapter implements [`MeasuredMap`] and [`MapHandle`] for one or both [`Kind`]s of keys, in
//! one small file under `adapters/`, and describes itself with a [`TableInfo`]. The harness never
//! calls through a pointer inside its measured loop: each adapter gets a loop compiled for it.
//!
//! # Contract
//!
//! 1. `insert` is insert-if-absent and returns whether it inserted; `remove` returns the removed
//!    value. A call that reports a change has taken effect before it returns.
//! 2. `get` and `remove` return the value's stamp as [`Kind::stamp`] reads it, which for byte
//!    values reads every byte: a table that returns references has no advantage over one that
//!    copies.
//! 3. A table is built for the number of entries that the harness announces ([`Setup::capacity`], 0
//!    for a table that is to grow), by its public interface.
//! 4. `get_many` is the table's batched lookup. A table without one keeps the default, a lookup for
//!    each key, and its card states that.
//! 5. An adapter adds nothing to an operation but what the table's interface requires (a guard, a
//!    registration), and its card states what that is.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;

/// Parameters for constructing a table.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Entries in the steady state; 0 if the table is to grow from empty.
    pub capacity: usize,
    /// Threads that use it concurrently.
    pub threads: usize,
    /// Length of a value in bytes, for memory budgets.
    pub value_bytes: usize,
    /// Length of the longest key in bytes.
    pub key_bytes: usize,
    /// Keys that are stored at the start; a cache may be built for fewer.
    pub entries: usize,
    /// Operations that a thread may have in flight.
    pub batch: usize,
    /// The CPUs for the threads that the subject brings; empty if threads are not pinned.
    pub own_cpus: Arc<[usize]>,
}

/// Sizes of the keys and values of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Lengths of the shortest and of the longest key in bytes; 8 and 8 for integers.
    pub key_bytes: (usize, usize),
    /// Length of a value in bytes; 8 for integers.
    pub value_bytes: usize,
}

/// A kind of keys and values.
///
/// The harness represents a key as a `u64` that is never 0, and a value as a *stamp*, a `u64` whose
/// upper half is derived from the key. A kind converts them to what the table stores.
pub trait Kind: Send + Sync + 'static {
    /// Its name on the command line and in results.
    const NAME: &'static str;
    /// A key as stored.
    type Key: Borrow<Self::Query> + Clone + Eq + Hash + Ord + Send + Sync + 'static;
    /// A key as looked up.
    type Query: ?Sized + Eq + Hash + Ord + Sync;
    /// A value as stored.
    type Value: Clone + Send + Sync + 'static;
    /// Buffers for the key that a thread looks up and the value that it is about to store.
    type Scratch: Send;

    /// Creates a scratch for keys and values of this shape.
    fn scratch(shape: &Shape) -> Self::Scratch;
    /// Writes the key of a nonzero number.
    fn query(scratch: &mut Self::Scratch, key: u64) -> &Self::Query;
    /// Returns the number of a key.
    fn number(query: &Self::Query) -> u64;
    /// Returns an owned key.
    fn own(query: &Self::Query) -> Self::Key;
    /// Returns the value with a stamp.
    fn value(scratch: &Self::Scratch, stamp: u64) -> Self::Value;
    /// Returns the stamp of a value; 0, which no value has, if its repetitions differ. (Values
    /// under 16 bytes contain the stamp once, so only its upper half can be checked.)
    fn stamp(value: &Self::Value) -> u64;
}

/// What a subject itself has measured, by name.
pub type Measurements = BTreeMap<String, f64>;

/// A concurrent hash table under test.
pub trait MeasuredMap<K: Kind>: Send + Sync + Sized + 'static {
    /// A thread's handle.
    type Handle<'t>: MapHandle<K>
    where
        Self: 't;

    /// Creates an empty table.
    fn build(setup: &Setup) -> Self;

    /// Creates a handle; called on the thread that uses it, which drops it at the end of its part.
    fn handle(&self) -> Self::Handle<'_>;

    /// Returns the number of entries as the table counts them; called while no thread writes.
    /// `None` if it has no such call.
    fn size(&self) -> Option<usize> {
        None
    }

    /// Reclaims deferred memory, as far as the table's interface allows; called while no handle
    /// exists.
    fn settle(&self) {}

    /// Returns acquisitions of a lock and how many of them found it taken, and transactions and how
    /// many of them aborted; `None` if the table does not count them.
    fn contention(&self) -> Option<Contention> {
        None
    }

    /// Returns what the table itself has measured; called after the last operation.
    fn measurements(&self) -> Measurements {
        Measurements::default()
    }
}

/// A table that resizes on request; optional.
///
/// An adapter of such a table implements this and registers it with
/// [`Entry::resized`](crate::entry::Entry::resized); the section `resize` measures no
/// other.
///
/// # Contract
///
/// 1. `resize_to` returns when the resize is complete: no operation that starts later encounters
///    any of it. It is called on a thread that holds no [`MapHandle`] at that time, while other
///    threads use theirs, and never by two threads at a time.
/// 2. Every key in the table can be found at every moment.
/// 3. A *bucket* is what the table itself calls one. If its interface counts entries only, or
///    cannot set a size exactly, the card says what a bucket stands for, and [`Resize::buckets`]
///    returns the actual number.
pub trait Resize<K: Kind>: MeasuredMap<K> {
    /// Resizes to `buckets` buckets, or to the nearest number that the table can have.
    fn resize_to(&self, buckets: usize);

    /// Returns the number of buckets; called by the resizing thread, or while no other uses the
    /// table.
    fn buckets(&self) -> usize;
}

/// Maximum number of keys in a batch of lookups.
pub const MOST_BATCHED: usize = crate::stream::CHUNK;

/// A thread's handle to a table.
pub trait MapHandle<K: Kind> {
    /// Returns the stamp of the key's value.
    fn get(&mut self, key: &K::Query) -> Option<u64>;
    /// Looks up a batch of at most [`MOST_BATCHED`] keys and writes the stamps of their values in
    /// order. `out` has one place per key.
    #[inline(always)]
    fn get_many<'q>(
        &mut self,
        keys: impl ExactSizeIterator<Item = &'q K::Query>,
        out: &mut [Option<u64>],
    ) where
        K::Query: 'q,
    {
        for (key, out) in keys.zip(out) {
            *out = self.get(key);
        }
    }
    /// Inserts if absent; returns whether it inserted.
    fn insert(&mut self, key: &K::Query, value: K::Value) -> bool;
    /// Removes; returns the stamp of the removed value.
    fn remove(&mut self, key: &K::Query) -> Option<u64>;
}

/// Lock statistics of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Contention {
    /// Critical sections that began with a try to take the lock.
    pub acquisitions: u64,
    /// Critical sections that found the lock taken at the first try.
    pub contended: u64,
    /// Critical sections that completed as a transaction.
    pub elided: u64,
    /// Transactions that aborted.
    pub aborts: u64,
    /// Those that aborted because another thread accessed the same cache lines.
    #[serde(default)]
    pub conflicts: u64,
    /// Those that aborted because they accessed more lines than the processor tracks.
    #[serde(default)]
    pub capacity: u64,
    /// Those that aborted themselves, as when they found the lock taken.
    #[serde(default)]
    pub explicit: u64,
    /// Critical sections of an elided lock that ran under the lock.
    #[serde(default)]
    pub fallbacks: u64,
}

impl Contention {
    /// Returns the number of critical sections.
    pub(crate) fn sections(&self) -> u64 {
        self.acquisitions.max(self.elided + self.fallbacks)
    }

    /// Combines each count with that of another.
    pub(crate) fn combine(self, other: Self, each: fn(u64, u64) -> u64) -> Self {
        Self {
            acquisitions: each(self.acquisitions, other.acquisitions),
            contended: each(self.contended, other.contended),
            elided: each(self.elided, other.elided),
            aborts: each(self.aborts, other.aborts),
            conflicts: each(self.conflicts, other.conflicts),
            capacity: each(self.capacity, other.capacity),
            explicit: each(self.explicit, other.explicit),
            fallbacks: each(self.fallbacks, other.fallbacks),
        }
    }
}

/// The fairness card of a table: what a reader must know before believing its rows.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TableInfo {
    /// Its name on the command line and in results.
    pub name: String,
    /// A short description.
    pub about: String,
    /// Version of the library.
    pub version: String,
    /// The language of its implementation.
    pub language: String,
    /// The hash function in this benchmark.
    pub hasher: String,
    /// How memory of removed entries is reclaimed.
    pub reclamation: String,
    /// Its guarantees to concurrent readers and writers.
    pub guarantees: String,
    /// Options that were set, and why.
    pub settings: String,
    /// What the adapter adds to each operation.
    pub adapter: String,
    /// Where its memory comes from.
    pub memory: String,
    /// How it performs a batch of lookups.
    #[serde(default = "no_batch")]
    pub batch: String,
}

impl TableInfo {
    /// Returns whether it is a table of this project.
    pub(crate) fn is_ours(&self) -> bool {
        self.language == "Rust" && self.version == env!("CARGO_PKG_VERSION")
    }
}

/// The `batch` field of a table without batched lookups.
pub fn no_batch() -> String {
    "no batch: one lookup after the other".into()
}

/// 64-bit integers to 64-bit integers.
#[derive(Debug)]
pub enum U64 {}

impl Kind for U64 {
    const NAME: &'static str = "u64";
    type Key = u64;
    type Query = u64;
    type Value = u64;
    type Scratch = u64;

    fn scratch(_: &Shape) -> u64 {
        0
    }
    #[inline(always)]
    fn query(scratch: &mut u64, key: u64) -> &u64 {
        *scratch = key;
        scratch
    }
    #[inline(always)]
    fn number(query: &u64) -> u64 {
        *query
    }
    #[inline(always)]
    fn own(query: &u64) -> u64 {
        *query
    }
    #[inline(always)]
    fn value(_: &u64, stamp: u64) -> u64 {
        stamp
    }
    #[inline(always)]
    fn stamp(value: &u64) -> u64 {
        *value
    }
}

/// Byte strings to byte strings.
///
/// A key is 16 hexadecimal digits and padding to a length within the shape's limits that follows
/// from the key. A value repeats its stamp.
#[derive(Debug)]
pub enum Bytes {}

/// The scratch of [`Bytes`].
#[derive(Debug)]
pub struct ByteScratch {
    key: Box<[u8]>,
    shortest: usize,
    /// Longest minus shortest length, plus one.
    spread: u64,
    value_bytes: usize,
}

impl Kind for Bytes {
    const NAME: &'static str = "bytes";
    type Key = Box<[u8]>;
    type Query = [u8];
    type Value = Box<[u8]>;
    type Scratch = ByteScratch;

    fn scratch(shape: &Shape) -> ByteScratch {
        let (shortest, longest) = shape.key_bytes;
        assert!((16..=longest).contains(&shortest) && shape.value_bytes >= 8);
        ByteScratch {
            key: vec![b'.'; longest].into(),
            shortest,
            spread: (longest - shortest + 1) as u64,
            value_bytes: shape.value_bytes,
        }
    }

    #[inline]
    fn query(scratch: &mut ByteScratch, key: u64) -> &[u8] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        for (at, digit) in scratch.key[..16].iter_mut().enumerate() {
            *digit = DIGITS[(key >> (60 - 4 * at)) as usize & 15];
        }
        let more =
            (u128::from(corewise_measure::draw::mix(key)) * u128::from(scratch.spread)) >> 64;
        &scratch.key[..scratch.shortest + more as usize]
    }

    #[inline]
    fn number(query: &[u8]) -> u64 {
        let digit = |byte: u8| u64::from(byte & 15) + 9 * u64::from(byte >> 6);
        let digits = query.iter().take(16);
        digits.fold(0, |number, &byte| number << 4 | digit(byte))
    }

    #[inline]
    fn own(query: &[u8]) -> Box<[u8]> {
        query.into()
    }

    #[inline]
    fn value(scratch: &ByteScratch, stamp: u64) -> Box<[u8]> {
        let mut value = vec![0; scratch.value_bytes];
        let word = stamp.to_ne_bytes();
        for chunk in value.chunks_mut(8) {
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        value.into()
    }

    #[inline]
    fn stamp(value: &Box<[u8]>) -> u64 {
        let Some(word) = value.first_chunk::<8>() else {
            return 0;
        };
        let (words, rest) = value.as_chunks::<8>();
        let same = words
            .iter()
            .fold(true, |same, other| same & (other == word));
        if same && *rest == word[..rest.len()] {
            u64::from_ne_bytes(*word)
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_themselves() {
        let mut scratch = U64::scratch(&Shape {
            key_bytes: (8, 8),
            value_bytes: 8,
        });
        assert_eq!(*U64::query(&mut scratch, 7), 7);
        assert_eq!(U64::stamp(&99), 99);
        assert_eq!(Bytes::stamp(&Box::from(*b"short")), 0);
    }

    #[test]
    fn byte_keys_differ_and_keep_to_their_lengths() {
        let shape = Shape {
            key_bytes: (16, 250),
            value_bytes: 8,
        };
        let mut scratch = Bytes::scratch(&shape);
        let keys: std::collections::HashSet<_> = (1..=10_000)
            .map(|key| Bytes::own(Bytes::query(&mut scratch, key)))
            .collect();
        assert_eq!(keys.len(), 10_000);
        let lengths = || keys.iter().map(|key| key.len());
        assert_eq!((lengths().min(), lengths().max()), (Some(16), Some(250)));
    }

    #[test]
    fn keys_have_their_numbers() {
        let shape = Shape {
            key_bytes: (16, 40),
            value_bytes: 8,
        };
        let (mut integer, mut bytes) = (U64::scratch(&shape), Bytes::scratch(&shape));
        for key in [1, 0x0123_4567_89ab_cdef, u64::MAX] {
            assert_eq!(U64::number(U64::query(&mut integer, key)), key);
            assert_eq!(Bytes::number(Bytes::query(&mut bytes, key)), key);
        }
    }

    #[test]
    fn every_byte_of_a_value_counts() {
        for value_bytes in [16, 64, 100, 4096] {
            let scratch = Bytes::scratch(&Shape {
                key_bytes: (16, 16),
                value_bytes,
            });
            let value = Bytes::value(&scratch, 0x0102_0304_0506_0708);
            assert_eq!(value.len(), value_bytes);
            assert_eq!(Bytes::stamp(&value), 0x0102_0304_0506_0708);
            for at in [0, 7, value_bytes / 2, value_bytes - 1] {
                let mut broken = value.clone();
                broken[at] ^= 1;
                assert_eq!(Bytes::stamp(&broken), 0, "byte {at}");
            }
        }
    }
}
