//! Cuckoo hashing: every entry lies in one of two buckets, so a table can be 19/20 full and a
//! lookup reads few cache lines.
//!
//! Sources: \[MemC3\] (tags, optimistic lookups, holes that are moved backwards along the path) and
//! \[Cuckoo14\] (several writers, breadth-first search). The "Cuckoo" measured in \[CHTBench\]
//! §3.2.2 descends from these; its lookups lock both buckets, and §3.4.7 gives the cost of that.
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
//! └──────────┘  │ │ │ ┌──────┬─────────┬───────┬──────┬────────┬───────┬───────┬───────┬───────┐
//!               │ │ └▶│ next │ WRITING │ MOVED │ LOCK │ second │ tag 3 │ tag 2 │ tag 1 │ tag 0 │
//!               │ │   └──┬───┴─────────┴───────┴──────┴────────┴───────┴───────┴───────┴───────┘
//!               │ │   63 │ 39   38        37      36    35..32    31..24  23..16  15..8   7..0
//!               │ │      └─▶ the ID of an overflow bucket, or 0
//!               │ └▶ up to 2^13 change counts, one per stripe: the buckets whose numbers end alike
//!               └──▶ segments of 1, 2, 4, ... overflow buckets: a word and cells
//! ```
//!
//! A slot holds an entry if its tag is not 0. The tag is eight bits derived from all bits of the
//! hash. The first bucket of a hash is its low bits; the second differs from it by a number derived
//! from the tag. So the bucket an entry lies in and its tag determine its other bucket: moving the
//! entry there needs neither its key nor its hash. One bit per slot records whether the entry lies
//! in its second bucket.
//!
//! # Operations
//!
//! A *lookup* reads the counts of both stripes and the words of both buckets, and compares all
//! eight tags at once. It reads the pairs whose tags are equal, mostly one, and then reads the
//! count of the pair's stripe again. If the count is unchanged, the pair is consistent, and its key
//! is compared. If no pair has the key and both counts are unchanged, the key is absent. Otherwise
//! the lookup retries.
//!
//! An *update* of a key locks its first bucket. It locks the second bucket only if the tags show
//! that the key may be there, or if the key is to go there. *The thread that holds the lock of a
//! key's first bucket decides about the key.* An insertion writes the pair to a free slot and then
//! the word, which also unlocks the bucket. A removal clears the tag, counts the change, and
//! unlocks.
//!
//! *If both buckets are full*, the insertion unlocks them and searches for a *cuckoo path*,
//! breadth-first, by tags alone: an entry of either bucket that could go to its other bucket if an
//! entry there went to its own other bucket, and so on to a free slot. Then it moves the hole along
//! the path, from its end to its beginning. For each entry it locks both of the entry's buckets. If
//! the entry, or one with the same tag, is still there and the other bucket has room, it writes the
//! entry there and publishes it, *counts* the move, clears the tag, and counts the move *once
//! more*. Then the insertion restarts.
//!
//! *If there is no path*, the entry goes to an overflow bucket of the first bucket. The table
//! grows if one bucket in 32 has overflowed and three quarters of the slots are held. If fewer are
//! held, the keys have too few distinct hashes, say more than eight of one tag and bucket, and
//! growing would not help. It also grows if an insertion needs a path and 15 of 16 slots are held,
//! or 13 in a small table, which [quadruples](crate::copy_map): the last paths are the longest.
//! While buckets are moved to another table, entries are not displaced: an entry without room
//! overflows until its bucket is moved as well. A removal moves an overflowing entry into the
//! bucket.
//!
//! A *resize* moves one bucket of the smaller table at a time, with all buckets of the larger one
//! whose numbers end alike. Both bucket numbers of a hash are cut to a table's size from numbers
//! that do not depend on it. So an entry moves to a bucket whose number ends in the number of the
//! smaller table's bucket, on the same side. During the resize an entry may have one bucket in the
//! old table and one in the new, and a lookup reads each where it is.
//!
//! An *iteration* reads bucket after bucket, each with its overflow buckets, and reads them again
//! if its stripe was counted meanwhile: an entry may have left an overflow bucket. During an
//! iteration entries do not move to their other buckets. A move that has already begun holds the
//! locks of its buckets, and the iteration waits for them.
//!
//! # Correctness
//!
//! - *A hit is a pair that was in the table.* A slot is written only when it is free, after the
//!   change that freed it was counted, and all of this under the bucket's lock. The write comes
//!   after a Release fence. A lookup has an Acquire fence between its loads and its second look at
//!   the count, so it sees the count if one of the words is of a later entry. The lookup cannot
//!   have begun with that count: a lookup that does sees that the slot was freed.
//! - *A value that is being replaced* is read whole, too. If the value lies in one word, that word
//!   is written. Otherwise the update publishes WRITING, counts the change, and writes the value: a
//!   lookup that began before retries, and a lookup that begins then waits for these few stores.
//! - *An entry that moves is not missed.* It is in the other bucket before the first count, and
//!   leaves its bucket after it. Suppose a lookup finds an entry in neither bucket although it is
//!   in the table all the time. Then the lookup has read one bucket after the entry left it, and so
//!   sees the count of this move. If its first look at the counts was before that count, it
//!   retries. If not, it saw the entry in the other bucket, or it saw a later move from there, for
//!   which the same argument holds. The last move whose end it saw must have led to a bucket in
//!   which it saw the entry. The same argument holds for an entry that moves from an overflow
//!   bucket into its bucket.
//! - *A lookup during a resize* also retries if one of its buckets was moved meanwhile. So if it
//!   has read one bucket in the old table and the other one in the new, the resize was not over,
//!   and in the new table no entry has changed sides.
//! - *Buckets that move together*, when a table shrinks, are marked one after the other, after all
//!   their entries are in the new table. For a key whose two buckets are both in the group, the
//!   first mark therefore counts for both: another thread may have followed it and changed the key
//!   in the new table already.
//! - *One key, one entry.* Insertions, removals and moves of a key hold the lock of its first
//!   bucket, in whichever table that bucket is. (Not when an entry moves from an overflow bucket of
//!   its second one into that one. An update looks into a bucket with overflow buckets under its
//!   lock, and overflow buckets stay: see `rules_out_second`.) Marks are set under the same lock,
//!   and moved buckets do not change.
//! - *There is no deadlock.* A thread that waits for a lock holds none of a later table, and none
//!   of the same table with a higher number. An insertion that needs a lower one tries it, and if
//!   that fails, releases its lock and locks both in order.
//! - *No thread is in a new bucket before its entries are*, as in [`clht`](crate::clht): only marks
//!   lead there.
//!
//! # Guarantees
//!
//! 1. *Lookups* write nothing and wait for no lock. They are optimistic: a lookup retries if,
//!    between two reads some nanoseconds apart, an entry of one of its two stripes was removed or
//!    moved to its other bucket, or a value of several words was replaced. System-wide progress is
//!    guaranteed (lock-free), with one exception: while a value of several words is being written
//!    in a bucket that has the tag, a lookup waits for those few stores. Insertions where there is
//!    room, and replacements of values of one word, disturb no lookup.
//! 2. *An update without effect writes nothing*: an insertion of a present key (`try_insert`), a
//!    removal or `update` of an absent key. Only if another thread was faster has it locked buckets
//!    in vain.
//! 3. *Updates* wait for updates of the same buckets, for a few stores, and while such a bucket is
//!    moved to another table. An insertion searches at most 512 buckets for a path, at most eight
//!    times, and then overflows.
//! 4. *A table that may not grow* ([`Builder::max_bytes`](crate::copy_map::Builder::max_bytes)) is
//!    filled to 95 % and more by keys with good hashes. Then an insertion returns
//!    [`Full`](crate::copy_map::Full), and has changed nothing but the places of entries. During an
//!    iteration, insertions return it earlier; and beside an unfinished resize, if room could only
//!    be made with buckets that are still to be moved.
//! 5. *Linearizable*, also during a resize.
//! 6. *Comparisons of keys* run without a lock in lookups, and with one in updates: they must not
//!    use the map. If one panics there, nothing has been changed.
//!
//! The guarantees of all tables of copies are in [`copy_map`](crate::copy_map).
//!
//! # Limits
//!
//! | what | bound | beyond |
//! |---|---|---|
//! | a pair | 32 bytes | not compiled |
//! | keys of the same two buckets | eight, and the overflow buckets | longer chains, no growth |
//! | overflow buckets | 2^25 in a table, memory | [`Full`](crate::copy_map::Full) |
//! | buckets searched for a path | 512 | it overflows, or the table grows |
//! | changes of a stripe during one lookup | 2^64 | a wrong pair |
//! | iterators that are forgotten (`mem::forget`) | none | the map overflows, and grows when three quarters are held |
//!
//! An entry of 16 bytes takes 18.9 bytes in a table that is 95 % full, and 38.4 after a large one
//! has doubled (the counts take 64 KiB, or 2 bytes an entry in small tables). With 10^7 entries, an
//! entry takes 30.2 bytes. Small tables, which quadruple, take up to 123.
//!
//! In a table that was shrunk to little more than its entries, one bucket has the entries of two.
//! They overflow until entries are removed or the table is resized again.
//!
//! # Choices, and rejected alternatives
//!
//! - *A separate array of words*, instead of words before the cells (72 bytes, across lines): with
//!   pairs of 16 bytes the cells of a bucket are one line, and the words of 10^6 entries stay in
//!   the nearer caches. The search for a path reads words only.
//! - *All eight tags at once*: which of the two buckets has a key is as good as random, so a branch
//!   on it is mispredicted every other time.
//! - *The words and the pairs of both buckets are prefetched together*, before the words show which
//!   pair is needed: a lookup waits once instead of twice. That reads a line or two more than
//!   needed, and made lookups of a million entries 1.3 to 1.4 times as fast (`0.75 -> 1.06` of 64
//!   locked shards in the same program; AMD EPYC, one thread, 2026-11-22).
//! - *Counts of changes, not versions that locks change*: in the papers a writer's lock is the
//!   readers' version, and every insertion makes readers of its stripe restart or wait. Here a lock
//!   is a bit of the bucket's word, in a line that the writer needs anyway, and lookups compare
//!   counts shared by the buckets of a stripe. A count in each word would have 20 bits, and a
//!   thread that is preempted for a moment may miss its wraparound.
//! - *A move counts twice*: with the first count alone, a lookup that begins with it may take a
//!   slot's next entry for the one that left; with the second alone, a lookup that ends before it
//!   misses the entry.
//! - *One lock for most insertions*: the second bucket is locked only if it has the tag or is
//!   needed.
//! - *Tags are made from a product of the hash*: with identity hashes of small integers all top
//!   bytes are 0.
//! - *Overflow buckets, not a common stash*: lookups of other keys do not visit them. An overflow
//!   bucket is linked by an ID of 25 bits, for which the word has room, as it would not for a
//!   pointer.
//! - *No alternate bucket within a block of neighbours*: blocks fill unevenly, and the fullest one
//!   would end a dense table early; blocks of 2^16 buckets, which fill evenly enough, give no
//!   locality.
//! - *Iterations suspend displacement*. The alternatives were to find entries by all 255 tags of
//!   each bucket, or a copy.

mod bucket;
mod migration;
#[cfg(test)]
mod models;
mod overflow;
mod path;
mod state;
mod table;
#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests;
mod update;

use crate::copy_map::{CopyMap, Unlimited, operations};
use crate::relativistic::DefaultHasher;
use std::hash::Hash;

pub use table::CuckooTable;

/// A dense map of small pairs: an entry lies in one of two buckets, and lookups lock neither. See
/// the [module](self) for how it works.
///
/// Choose it if there are many entries or little memory, or if keys or values are not words. Keys
/// are any `Copy + Eq + Hash`, values any `Copy`; a pair has at most 32 bytes. With `()` as its
/// values it is a set.
///
/// ```
/// use corewise_maps::cuckoo::CuckooMap;
///
/// let prices: CuckooMap<[u8; 3], (f64, bool)> = CuckooMap::with_capacity(1_000);
/// prices.pin().insert(*b"tea", (1.25, true));
/// prices.pin().try_insert(*b"rum", (9.75, false)).unwrap();
/// let raised = prices.pin().update(b"tea", |(price, fresh)| (price * 2.0, fresh));
/// assert_eq!(raised, Some((2.5, true)));
/// prices.pin().retain(|_, (_, fresh)| fresh);
/// assert!(prices.into_iter().eq([(*b"tea", (2.5, true))]));
///
/// let seen: CuckooMap<u128, ()> = CuckooMap::from([(7, ()), (8, ())]);
/// assert_eq!(seen.pin().insert(7, ()), Some(()));
/// assert_eq!(seen.len(), 2);
/// ```
///
/// ```compile_fail
/// // More than 32 bytes.
/// corewise_maps::cuckoo::CuckooMap::<u64, [u64; 4]>::new();
/// ```
///
/// The methods below are those of [`CopyMap`]. Its handle, from [`pin`](CopyMap::pin), has:
///
#[doc = operations!("CopyMapRef")]
pub type CuckooMap<K, V, S = DefaultHasher, L = Unlimited> = CopyMap<CuckooTable<K, V>, S, L>;

impl<K: Copy + Eq + Hash, V: Copy, S, L> CopyMap<CuckooTable<K, V>, S, L> {
    /// The number of overflow buckets in the current table. There are some for keys chosen against
    /// the table, and temporarily while it grows. Constant time.
    ///
    /// ```
    /// let map = corewise_maps::cuckoo::CuckooMap::new();
    /// (0..1_000).for_each(|key| assert_eq!(map.pin().insert(key, key), None));
    /// map.resize_to(1).unwrap();
    /// // What one bucket has no room for: 996 entries, four in each.
    /// assert_eq!(map.overflowing(), 249);
    /// ```
    pub fn overflowing(&self) -> usize {
        self.pin().version().table().overflow().linked()
    }
}
