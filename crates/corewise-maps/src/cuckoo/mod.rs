//! Cuckoo hashing: every entry lies in one of two buckets, so a table may be 19/20 full and a lookup reads little.
//!
//! Papers: Fan, Andersen, Kaminsky, *MemC3: Compact and Concurrent MemCache with Dumber Caching and Smarter Hashing*,
//! NSDI 2013 (tags, optimistic lookups, holes that are moved backwards), and Li, Andersen, Kaminsky, Freedman,
//! *Algorithmic Improvements for Fast Concurrent Cuckoo Hashing*, EuroSys 2014 (several writers, breadth-first
//! search). What the thesis measures in §3.2.2 as "Cuckoo" descends from these; its §3.4.7 says what that one pays:
//! there, a lookup locks both buckets.
//!
//! # Layout
//!
//! ```text
//!  CuckooTable       words, 8 bytes a bucket       cells, 64 bytes a bucket of (u64, u64)
//! ┌──────────┐      ┌──────┬──────┬──────┬─ ─     ┌────────┬────────┬────────┬────────┬─ ─
//! │ words    ├─────▶│  0   │  1   │  2   │   ┌───▶│ pair 0 │ pair 1 │ pair 2 │ pair 3 │
//! │ cells    ├──────┼──────┴──────┴──────┴───┘    └────────┴────────┴────────┴────────┴─ ─
//! │ counts   ├────┐ │
//! │ overflow ├──┐ │ │ word of a bucket
//! └──────────┘  │ │ │ ┌─────────┬─────────┬───────┬──────┬────────┬───────┬───────┬───────┬───────┐
//!               │ │ └▶│ next    │ WRITING │ MOVED │ LOCK │ second │ tag 3 │ tag 2 │ tag 1 │ tag 0 │
//!               │ │   └──┬──────┴─────────┴───────┴──────┴────────┴───────┴───────┴───────┴───────┘
//!               │ │   63 │  39     38        37      36    35..32    31..24  23..16  15..8   7..0
//!               │ │      └─▶ the name of a bucket that overflows from this one, or 0
//!               │ └▶ up to 2^13 counts of changes, each for a stripe: the buckets whose numbers end alike
//!               └──▶ segments of 1, 2, 4, ... buckets that overflow: a word and cells
//! ```
//!
//! A slot holds an entry if its tag is not 0: eight bits of the hash, all of whose bits have a say in it. The first
//! bucket of a hash is its low bits, and the second differs from it by a number that follows from the tag. So the
//! other bucket of an entry follows from the bucket it lies in and its tag: to move it there needs neither its key
//! nor its hash. A bit for each slot says whether its entry lies in its second bucket.
//!
//! # Operations
//!
//! A *lookup* reads the counts of both stripes and the words of both buckets, and compares all eight tags at once. It
//! reads the pairs whose tags are equal, mostly one, and the count of its stripe once more. If that is as before, the
//! pair is one, and it is compared. If no pair has the key, and both counts are as before, there is none. Otherwise
//! it looks again.
//!
//! An *update* of a key locks its first bucket, and the second one only if the key may be there, which the tags say,
//! or is to go there. *Who has the first bucket of a key locked decides about it.* An insertion writes the pair to a
//! free slot, and then the word, which unlocks the bucket as well. A removal clears the tag, counts that, and unlocks.
//!
//! *If both buckets are full*, the unlocked insertion looks for a *cuckoo path*, breadth-first, by tags alone: an
//! entry of one of both buckets that could go to its other bucket if an entry from there went to its own, and so on to
//! a free slot. Then the hole is moved along the path, from its end to its beginning: for each entry both of its
//! buckets are locked; if it, or one with the same tag, is still there and the other has room, the entry is written
//! there and shown, the move is *counted*, the tag is cleared, and the move counted *once more*. Then the insertion
//! begins anew.
//!
//! *If there is no path*, the entry goes to a bucket that overflows from the first one, and the table doubles if three
//! quarters of it are held: it has keys of too few hashes otherwise, more than eight of one tag and bucket, say, and
//! growing would not help. While buckets are moved to another table no entries are displaced: what has no room
//! overflows until its bucket is moved, too. A removal draws in what overflowed.
//!
//! A *resize* moves a bucket of the smaller table, and all of the other whose numbers end alike, at a time: both
//! bucket numbers of a hash are cut to a table's size from numbers that do not depend on it, and so what lies in a
//! bucket on one side goes to a bucket that ends in its number, on the same side. An entry has then one bucket here
//! and one there, and a lookup looks at each where it is.
//!
//! An *iteration* takes bucket after bucket. While there is one, entries do not move to their other buckets; whoever
//! moves one has its buckets locked, and the iteration waits for that lock.
//!
//! # Why it is right
//!
//! - *A hit is a pair that was there.* A slot is written only when it is free, and after what freed it was counted;
//!   all of this under the bucket's lock. What is written comes after a fence (Release), and a lookup has one
//!   (Acquire) between its loads and its second look, which therefore sees the count, if a word was of a later entry.
//!   It has not begun with that count: who does sees that the slot was freed.
//! - *A value that is replaced* is one that was there, too. If it lies in one word that word is written. Otherwise
//!   WRITING is shown, the change counted, and the value written: a lookup that has begun before looks again, and one
//!   that begins then waits for these few stores.
//! - *An entry that moves is not missed.* It is in the other bucket before the first count, and leaves the first one
//!   after it. Say that a lookup finds an entry in neither bucket that is in the table all the time. So it has seen
//!   one bucket after the entry left, and by that the count of this move; if its first look was before that, it looks
//!   again. If not, it has seen the entry in the other bucket, or a later move from there, of which the same holds.
//!   The last one whose end it has seen must have led to a bucket in which it has seen it. The same goes for an entry
//!   that is drawn in.
//! - *A lookup beside a resize* looks again, besides, if one of its buckets was moved meanwhile. So if it has seen one
//!   bucket here and the other one there, the resize was not over, and in the new table nothing has changed sides.
//! - *Buckets that move together*, in a table that gets smaller, are marked one after the other, when all they have is in
//!   the new one. So to a key of two such buckets the first mark counts for both: by way of it somebody may have changed
//!   the key there already.
//! - *One key, one entry.* Insertions, removals and moves of a key have its first bucket locked, in whichever table
//!   that is. Marks are set under the same lock, and buckets that were moved do not change.
//! - *Nobody waits in a circle.* A lock is waited for by who has none of a later table, or of the same table and a
//!   higher number. An insertion that wants a lower one tries, and else lets go and locks both in order.
//! - *Nobody is in a new bucket before its entries are*, as in [`clht`](crate::clht): hashes lead there by marks.
//!
//! # Guarantees
//!
//! 1. *Lookups* write nothing and wait for no lock. They are optimistic: one looks again if, between two looks some
//!    nanoseconds apart, an entry of one of its two stripes was removed or moved to its other bucket, or a value of
//!    several words was replaced; so among those who do something, somebody gets on. While a value of several words is
//!    being written in a bucket that has the tag, it waits for that handful of stores. Insertions where there is room,
//!    and replaced values of one word, disturb nobody.
//! 2. *An update without effect writes nothing*: an insertion of a key that is there (`try_insert`), a removal or
//!    `update` of one that is not. Only if another thread was faster it has locked buckets in vain.
//! 3. *Updates* wait for those of the same buckets, for a handful of stores, and while such a bucket is moved to
//!    another table. An insertion looks at 512 buckets, at most, for a path, eight times at most, and then overflows.
//! 4. *A table that may not grow* ([`Builder::max_bytes`](crate::copy_map::Builder::max_bytes)) is filled to 95 % and
//!    more by keys whose hashes are good. Then an insertion says [`Full`](crate::copy_map::Full), with nothing changed
//!    but places. While somebody iterates over it, it says so earlier.
//! 5. *Linearizable*, also beside a resize.
//! 6. *Comparisons of keys* run without a lock in lookups, and with one in updates: they must not use the map. If one
//!    panics there, nothing has been changed. Whatever a hasher or a comparison says, entries may be missed or come
//!    twice, and nothing worse.
//!
//! What all tables of copies promise is in [`copy_map`](crate::copy_map).
//!
//! # Limits
//!
//! | what | bound | beyond |
//! |---|---|---|
//! | a pair | 32 bytes | not compiled |
//! | keys of the same two buckets | eight, and what overflows | longer chains, no growth |
//! | buckets that overflow | 2^25 in a table, memory | [`Full`](crate::copy_map::Full) |
//! | buckets looked at for a path | 512 | it overflows, or the table doubles |
//! | changes of a stripe during one lookup | 2^64 | a wrong pair |
//! | iterators that are forgotten (`mem::forget`) | none | the map overflows, and grows when three quarters are held |
//!
//! An entry of 16 bytes takes 18.9 in a table that is 95 % full, and twice that after it has doubled (the counts come
//! to 64 KiB, or 2 bytes an entry in small tables). One of 10^7 entries takes 30.2.
//!
//! A table that was shrunk to little more than its entries has what two buckets had in one: what overflows there stays
//! so until entries are removed or the table is resized again.
//!
//! # Choices, and what was rejected
//!
//! - *Words in an array of their own*, not before the cells (72 bytes, across lines): cells of 16 bytes a pair are a
//!   line a bucket, and the words of 10^6 entries stay in
//!   the nearer caches. A path is looked for in words alone.
//! - *All eight tags at once*: which of both buckets a key is in is as good as random, so a branch on it is
//!   mispredicted every other time.
//! - *Both words and the pairs of both buckets are asked for at once*, before the words say which pair it is: a lookup
//!   waits once instead of twice. That reads a line more than it needs, or two, and made lookups of a million
//!   entries 1.3 to 1.4 times as fast (`0.75 -> 1.06` of 64 locked shards in the same program; AMD EPYC, one
//!   thread, 2026-11-22).
//! - *Counts of changes, not versions that locks change*: in the papers a writer's lock is the readers' version, and
//!   every insertion makes readers of its stripe start again, or wait. Here a lock is a bit of the bucket's own word,
//!   in a line that the writer needs anyway, and counts are what lookups compare, shared by the buckets of a stripe. A
//!   count in each word would have 20 bits, which a thread that lost its processor for a moment may miss the wrap of.
//! - *A move counts twice*: with the first count alone a lookup that begins with it may take a slot's next entry for
//!   the one that left; with the second alone one that ends before it misses the entry.
//! - *One lock for most insertions*: the second bucket is locked only when it has the tag, or is needed.
//! - *Tags are made of a product of the hash*: with hashes that are the numbers themselves, all top bytes are 0.
//! - *Overflow, not a stash for all*: who looks for other keys does not see it. It hangs on a bucket by a name of 25
//!   bits, for which the word has room, and not for a pointer.
//! - *No alternate bucket within a block of neighbours*: blocks fill unevenly, and the fullest one would end a dense
//!   table early; 2^16 buckets, which fill evenly enough, are no locality any more.
//! - *Iterations hold up displacement*, rather than entries which are found by all 255 tags of each bucket, or a copy.

mod bucket;
#[cfg(test)]
mod models;
mod overflow;
mod path;
mod stage;
mod state;
mod table;
#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests;
mod update;

use std::hash::Hash;
use std::ptr::NonNull;

use crate::copy_map::{BoxMap, CopyMap};
use crate::relativistic::DefaultHasher;

pub use table::CuckooTable;

/// A dense map of small pairs: an entry has two buckets to lie in, and lookups lock neither. See the
/// [module](self).
///
/// Keys are any `Copy + Eq + Hash`, values any `Copy`; together they have at most 32 bytes.
///
/// ```
/// use corewise_maps::cuckoo::CuckooMap;
///
/// let prices: CuckooMap<[u8; 3], (f64, bool)> = CuckooMap::new();
/// prices.pin().insert(*b"tea", (1.25, true)).unwrap();
/// let raised = prices.pin().update(b"tea", |(price, fresh)| (price * 2.0, fresh));
/// assert_eq!(raised, Some((2.5, true)));
/// ```
///
/// ```compile_fail
/// // More than 32 bytes.
/// corewise_maps::cuckoo::CuckooMap::<u64, [u64; 4]>::new();
/// ```
pub type CuckooMap<K, V, S = DefaultHasher> = CopyMap<CuckooTable<K, V>, S>;

/// Cuckoo hashing with values of any type, in boxes. See [`BoxMap`].
pub type Boxed<K, V, S = DefaultHasher> = BoxMap<V, CuckooTable<K, NonNull<V>>, S>;

impl<K: Copy + Eq + Hash, V: Copy, S> CopyMap<CuckooTable<K, V>, S> {
    /// Buckets that hang on others in the table that operations begin with: some for keys that were chosen against it,
    /// and for a moment while it grows. Constant time.
    ///
    /// ```
    /// let map = corewise_maps::cuckoo::CuckooMap::new();
    /// (0..1_000).for_each(|key| assert!(map.pin().insert(key, key).is_ok()));
    /// map.resize_to(1).unwrap();
    /// // What one bucket has no room for: 996 entries, four in each.
    /// assert_eq!(map.overflowing(), 249);
    /// ```
    pub fn overflowing(&self) -> usize {
        let section = self.domain().pin();
        self.stage(&section).table().overflow().hung()
    }
}
