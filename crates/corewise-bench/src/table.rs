//! What a table must offer to be measured, and what it tells about itself.
//!
//! An adapter implements [`Table`] and [`Handle`] for one or both [`Kind`]s of keys, in one small
//! file under `adapters/`, and describes itself with a [`Card`]. The harness never calls through a
//! pointer inside its measured loop: each adapter gets a loop of its own, compiled for it.
//!
//! # Contract
//!
//! 1. `insert` is insert-if-absent and says whether it inserted; `remove` says what it removed. A
//!    call that says so has taken effect before it returns.
//! 2. `get` and `remove` give the value's stamp as [`Kind::stamp`] reads it, which for byte
//!    values looks at every byte: a table that hands out references has no head start over one
//!    that copies.
//! 3. A table is built for the number of entries that the harness announces
//!    ([`Setup::capacity`], 0 for a table that is to grow), by the means its own users have.
//! 4. `get_many` is the table's own batched lookup. A table without one leaves the default, a lookup for each key, and
//!    its card says so.
//! 5. An adapter adds nothing to an operation but what the table's interface asks for (a guard, a
//!    registration), and its card says what that is.

use std::borrow::Borrow;
use std::hash::Hash;

/// What the harness tells a table that is about to be built.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Entries that it will hold in a steady state; 0 if it is to grow from empty.
    pub capacity: usize,
    /// Threads that will use it at a time.
    pub threads: usize,
    /// Bytes of a value, of which memory budgets must know.
    pub value_bytes: usize,
    /// Bytes of the longest key.
    pub key_bytes: usize,
}

/// Sizes of the keys and values of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of the shortest and of the longest key; 8 and 8 for integers.
    pub key_bytes: (usize, usize),
    /// Bytes of a value; 8 for integers.
    pub value_bytes: usize,
}

/// A kind of keys and values.
///
/// The harness thinks of a key as a `u64` that is never 0, and of a value as a *stamp*, a `u64`
/// whose upper half is made of the key. A kind turns them into what the table stores.
pub trait Kind: Send + Sync + 'static {
    /// Its name on the command line and in results.
    const NAME: &'static str;
    /// A key as stored.
    type Key: Borrow<Self::Query> + Clone + Eq + Hash + Ord + Send + Sync + 'static;
    /// A key as looked up.
    type Query: ?Sized + Eq + Hash + Ord + Sync;
    /// A value as stored.
    type Value: Clone + Send + Sync + 'static;
    /// Where a thread writes the key it looks up and the value it is about to store.
    type Scratch: Send;

    /// A scratch for keys and values of this shape.
    fn scratch(shape: &Shape) -> Self::Scratch;
    /// The key made of a number other than 0.
    fn query(scratch: &mut Self::Scratch, key: u64) -> &Self::Query;
    /// An owned key.
    fn own(query: &Self::Query) -> Self::Key;
    /// The value that carries a stamp.
    fn value(scratch: &Self::Scratch, stamp: u64) -> Self::Value;
    /// The stamp of a value; 0, which no value has, if its repetitions differ. (Of values under 16
    /// bytes only the stamp itself can be checked, by its upper half.)
    fn stamp(value: &Self::Value) -> u64;
    /// The bytes of a key, for tables that know nothing else.
    fn key_bytes(query: &Self::Query) -> &[u8];
    /// The bytes of a value.
    fn value_bytes(value: &Self::Value) -> &[u8];
    /// The stamp of a value given by its bytes; 0 if any of them is wrong.
    fn stamp_of_bytes(bytes: &[u8]) -> u64;
}

/// A concurrent hash table under test.
pub trait Table<K: Kind>: Send + Sync + Sized + 'static {
    /// One thread's way to it.
    type Handle<'t>: Handle<K>
    where
        Self: 't;

    /// An empty table.
    fn build(setup: &Setup) -> Self;

    /// A handle; called on the thread that uses it, which drops it when its part is done.
    fn handle(&self) -> Self::Handle<'_>;

    /// The number of entries as the table itself counts them, asked while nobody writes. `None`
    /// if it has no such call.
    fn size(&self) -> Option<usize>;

    /// Frees what the table has put off, as far as its interface allows; called while no handle
    /// exists.
    fn settle(&self) {}

    /// Acquisitions of a lock and how many of them found it taken, or transactions and how many
    /// of them aborted; `None` where the table does not count.
    fn contention(&self) -> Option<Contention> {
        None
    }
}

/// A table that takes another number of buckets when it is told to; optional.
///
/// An adapter of such a table implements this and registers it with
/// [`Entry::u64_resize`](crate::subject::Entry::u64_resize); the section `resize` measures no other.
///
/// # Contract
///
/// 1. `resize_to` returns when the resize is complete: no operation that starts later meets any
///    of it. It is called on a thread that holds no [`Handle`] at that time, while other threads
///    use theirs, and never by two threads at a time.
/// 2. Every key that is in the table stays to be found, at every moment.
/// 3. A *bucket* is what the table itself calls one. Where its interface speaks of entries only,
///    or where a size cannot be had exactly, the card says what a bucket stands for, and
///    [`Resize::buckets`] tells what it came to.
pub trait Resize<K: Kind>: Table<K> {
    /// Takes so many buckets, or the nearest number that the table can have.
    fn resize_to(&self, buckets: usize);

    /// How many it has; asked by the thread that resizes, or while no other uses the table.
    fn buckets(&self) -> usize;
}

/// The most keys of a batch of lookups.
pub const MOST_BATCHED: usize = crate::stream::CHUNK;

/// One thread's way to a table.
pub trait Handle<K: Kind> {
    /// The stamp of the key's value.
    fn get(&mut self, key: &K::Query) -> Option<u64>;
    /// The stamps of the values of several keys, up to [`MOST_BATCHED`], in their order; as many places as keys.
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
    /// Inserts if absent; whether it did.
    fn insert(&mut self, key: &K::Query, value: K::Value) -> bool;
    /// Removes; the stamp of the removed value.
    fn remove(&mut self, key: &K::Query) -> Option<u64>;
}

/// What a table's locks saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Contention {
    /// Critical sections entered.
    pub acquisitions: u64,
    /// Those that found the lock taken at first sight.
    pub contended: u64,
    /// Critical sections that ran as a transaction to its end.
    pub elided: u64,
    /// Transactions that aborted.
    pub aborts: u64,
}

/// The fairness card of a table: what a reader must know before believing its rows.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Card {
    /// Its name on the command line and in results.
    pub name: String,
    /// What it is, in a few words.
    pub about: String,
    /// Version of the library.
    pub version: String,
    /// The language of its implementation.
    pub language: String,
    /// The hash function it runs with here.
    pub hasher: String,
    /// How memory of removed entries is reclaimed.
    pub reclamation: String,
    /// What it promises to concurrent readers and writers.
    pub guarantees: String,
    /// Options that were set, and why.
    pub settings: String,
    /// What the adapter adds to each operation.
    pub adapter: String,
    /// Where its memory comes from.
    pub memory: String,
    /// What it does with a batch of lookups.
    #[serde(default = "no_batch")]
    pub batch: String,
}

/// What the card of a table without batched lookups says.
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
    fn key_bytes(query: &u64) -> &[u8] {
        bytes_of(query)
    }
    fn value_bytes(value: &u64) -> &[u8] {
        bytes_of(value)
    }
    fn stamp_of_bytes(bytes: &[u8]) -> u64 {
        bytes.try_into().map_or(0, u64::from_ne_bytes)
    }
}

/// The bytes of an integer, in this machine's order.
fn bytes_of(number: &u64) -> &[u8] {
    // SAFETY: eight initialised bytes without padding live behind the reference, for as long as
    // it does, and bytes have no alignment.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(number).cast(), 8) }
}

/// Byte strings to byte strings.
///
/// A key is 16 hexadecimal digits and a filling up to a length between the shape's limits that
/// follows from the key. A value is its stamp, again and again.
#[derive(Debug)]
pub enum Bytes {}

/// The scratch of [`Bytes`].
#[derive(Debug)]
pub struct ByteScratch {
    key: Box<[u8]>,
    shortest: usize,
    /// Longest less shortest, plus one.
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
        Self::stamp_of_bytes(value)
    }
    fn key_bytes(query: &[u8]) -> &[u8] {
        query
    }
    fn value_bytes(value: &Box<[u8]>) -> &[u8] {
        value
    }

    #[inline]
    fn stamp_of_bytes(bytes: &[u8]) -> u64 {
        let Some(word) = bytes.first_chunk::<8>() else {
            return 0;
        };
        let (words, rest) = bytes.as_chunks::<8>();
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
        assert_eq!(U64::stamp_of_bytes(U64::value_bytes(&99)), 99);
        assert_eq!(U64::stamp_of_bytes(b"short"), 0);
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
