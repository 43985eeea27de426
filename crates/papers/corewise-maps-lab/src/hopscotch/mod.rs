//! Hopscotch hashing: one array, with every entry within a few cells of its hash's home.
//!
//! Sources: \[Hopscotch\]; \[CHTBench\] §3.2.3, and its observations in §3.4: reads are fast until
//! there are updates (§3.4.3), and the table cannot be resized (§3.4.2). [`HopscotchMap`] keeps the
//! neighbourhoods and displacements of \[Hopscotch\]. It has different locks, a different way for
//! lookups to detect changes, it grows concurrently with other operations, and every key has a
//! place.
//!
//! # Layout
//!
//! ```text
//!  arrays of a table with a power of two of buckets, which are a ring
//! ┌──────┬──────┬──────┬──────┬─ ─            infos: 8 bytes a bucket
//! │ info │ info │ info │ info │
//! └──┬───┴──────┴──────┴──────┴─ ─
//!    │  bit 63 ...... 36     35        34      33     32    31 ........ 0
//!    └▶ version         CHANGING OVERFLOW  MOVED   LOCK  hop bits: cell i of the neighbourhood has
//!                                                        a key of this home
//! ┌───────┬───────┬───────┬───────┬─ ─        cells: 16 bytes if a key and a value have 8
//! │ pair  │ pair  │ pair  │ pair  │
//! └───────┴───────┴───────┴───────┴─ ─
//!  └─ 0 ─┘ └─ 1 ─┘ └─ 2 ─┘ └─ 3 ─┘  ... 31: the neighbourhood of the first bucket
//! ┌─┬─┬─┬─┬─┬─┬─┬─┬─ ─                        tags: a byte; 8 bits of the pair's hash, or 0
//! └─┴─┴─┴─┴─┴─┴─┴─┴─ ─
//!
//!  segments, one for 64 buckets                  nodes, for pairs without a place in reach
//! ┌───────────────┬──────┬───────┬─────────┐    ┌──────────────────┬──────┬───────┬─ ─ ─ ─ ─┐
//! │ taken: a bit  │ lock │ nodes │ scratch │    │ removals │ held  │ next │ homes │ 6 cells │
//! │ for each cell │      │       │         │    └──────────────────┴──────┴───────┴─ ─ ─ ─ ─┘
//! └───────────────┴──────┴───┬───┴─────────┘        ▲
//! ┌─────────┐                └──────────────────────┘
//! │ changes │ a separate array: how often a pair has left a cell (48 bits); unsettled homes (16)
//! └─────────┘
//! ```
//!
//! A bucket has two roles. It is the *home* of some hashes, described by its info, and it is a
//! *cell*, which may hold a pair of any home whose neighbourhood includes it: one of the H = 32
//! homes before it. The hop bits of a home tell which cells of its neighbourhood hold its keys;
//! tags mostly tell the same, and are less to read. Zeroed memory is an empty table, and no key or
//! value is reserved.
//!
//! # Operations
//!
//! A *lookup* goes by tags. It reads the changes of its home's segment and compares the tags of the
//! neighbourhood with its own, 16 in one instruction. For each equal tag it copies the cell, checks
//! that no pair has left the segment since, and compares the key. If no tag is left, it checks that
//! the changes are still the same and all homes settled: then the key is absent. The home's cell is
//! prefetched before the tags are known: tags are few enough to be cached when cells are not.
//!
//! A home is *unsettled* while the tags do not show exactly what it has: while its info and its
//! tags are changed one after the other, while it has keys in nodes, and permanently once it was
//! moved. A lookup that meets an unsettled home in its home's segment, a departure, or a tag of a
//! cell in the next segment, goes by the *info* of the home instead. For each hop bit it copies the
//! cell, checks that the version is unchanged, and compares the key. If OVERFLOW is set, it also
//! looks in the segment's nodes; if CHANGING is set, it looks in the scratch first. At MOVED it
//! continues in the next table. If the version has changed, it restarts.
//!
//! An *update* first looks by the info. Unless that settles the matter, it locks the home by a
//! compare-and-swap of the info that it has seen: so what it has seen still holds, and it need not
//! look again.
//!
//! - An *insertion* claims the nearest free cell (a bit of `taken`), writes the pair, sets the hop
//!   bit, and then the tag, before it releases the lock. If the cell is out of reach, it displaces
//!   keys in between: a key whose home is within reach of the free cell moves there, and leaves a
//!   free cell that is nearer. Only if no free cell can be brought near does the pair go to a node.
//! - A *displacement* also locks the home of the displaced key. It writes the pair in the free
//!   cell, and then sets one hop bit, clears the other and changes the version, in one store.
//! - A *removal* clears the bit and changes the version in one store, and frees the cell.
//! - *Around each of these* the home is unsettled. Before it is settled again, the tag of a pair
//!   that leaves its cell is cleared, and after that the departure is counted; the new cell of a
//!   displaced pair gets the tag.
//! - A *replacement* writes the value in place, if that is one word. Otherwise it writes the new
//!   pair to the scratch of the segment, and directs lookups there (CHANGING) while it writes the
//!   cell.
//!
//! A *resize* moves one home of the smaller table at a time, with all homes of the other table that
//! belong to it. It locks them, inserts their pairs in the new table as any others, clears their
//! tags, and marks them MOVED; see [`copy_map`](corewise_maps::copy_map).
//!
//! # Correctness
//!
//! - *A hit is a pair that was in the map.* A cell is written only while no hop bit leads to it. A
//!   bit that leads to it is set after the pair is written (Release, with the info). Before the
//!   cell is written again, that bit is cleared, which changes the version. Suppose a lookup saw
//!   the bit and read in the cell a word of a later pair. That word was stored with Release after
//!   the change of the version, and the lookup has an Acquire fence between the cell and its second
//!   look at the info, which therefore sees the change. So no pair is compared, or even made,
//!   before it is known to be one: keys and values may be of any type. (A value that is replaced in
//!   place is one word, and always the same word.)
//! - *A hit by tag is a hit by info.* A tag is set after the hop bit and cleared before it: a
//!   lookup that finds a pair by its tag and one that finds it by its home's info agree. The pair
//!   is whole. Suppose a lookup read in the cell a word of a later pair. Before that word was
//!   written (Release), the first pair had left, its tag was cleared and the departure counted
//!   (Release). If the lookup's first look at the changes includes this departure, it has seen the
//!   tag cleared (Acquire), and then the tag of the later pair, which was set (Release) after the
//!   pair was written. Otherwise its second look includes the departure, after a fence (Acquire).
//! - *A miss by tags is a miss by info.* At the first look (Acquire) all homes of the segment were
//!   settled: the tags showed what was in them. If the key was there and its tag was not seen, the
//!   tag was cleared meanwhile (Release), after the home was unsettled. The second look sees that,
//!   after a fence (Acquire), or sees that there was a departure since. So the key was absent at
//!   the time of the first look.
//! - *A miss by info is a miss.* All keys of a home are where one info shows them, and the last
//!   second look has shown that all of them stayed there since the first. A displaced key is in the
//!   old cell before the store of the info, and in the new one after it.
//! - *The same info means an unchanged home.* A version has 28 bits, and may wrap around while a
//!   lookup sleeps. So each wraparound is counted for the table, before and after, and lookups
//!   compare that count, too: two words have to wrap around.
//! - *No thread waits for another home's lock while it holds one*, except for those of the new
//!   table while a home is moved: displacements try the lock, and take another key if it is held.
//!   Locks of segments are held for a few stores. So there is no deadlock, not even around the
//!   ring.
//! - *Moved homes do not change*: their locks cannot be taken, and their cells stay taken. So a
//!   lookup that is reading a home when it is marked reads what was in the map at that time, which
//!   is during the lookup.
//!
//! # Guarantees
//!
//! In addition to those of [`copy_map`](corewise_maps::copy_map):
//!
//! 1. *Lookups* write nothing and wait for no thread, lock, displacement or resize. They are
//!    lock-free and not wait-free. Going by tags terminates. Going by an info restarts if, since it
//!    began, a key of the same home was removed, displaced or put in a node, or a value of more
//!    than a word was replaced there; and, if it walks nodes, if a key was removed from a node that
//!    has keys of its home. Insertions in free cells and changes of other homes do not disturb it
//!    (except for a version that wraps around, once in 2^28 changes of a home).
//! 2. *A key that stays is found*, whatever is displaced and resized meanwhile.
//! 3. *Updates* look before they lock. An update without effect (`try_insert` of a present key,
//!    `remove` or `update` of an absent one) writes nothing.
//! 4. *Updates wait* for other updates of the same home, for a few stores, or some thousand cycles
//!    while one of them displaces keys; while their home is moved, until the move ends; and an
//!    insertion that has to displace keys, and can displace none because other threads hold their
//!    homes, until one of those is done.
//! 5. *Every key has a place*: at most 32 of one home's keys are in its neighbourhood, the others
//!    in nodes of its segment, which [`overflowing`](Overflowing::overflowing) counts. Lookups of
//!    such keys walk the nodes; lookups in homes without any do not. The table grows if an
//!    insertion had to displace a key and 0.9 of the cells are taken; for keys in nodes it grows
//!    only while it has no more buckets than entries.
//! 6. *Out of memory*, nothing is lost: an insertion that needs a node returns
//!    [`Full`](corewise_maps::copy_map::Full). Replacements and removals need no memory.
//! 7. *Foreign code*: hashers and comparisons run without a lock, except the hasher while a home is
//!    moved. If a comparison panics, nothing has been changed.
//!
//! # Limits
//!
//! | what | bound | beyond |
//! |---|---|---|
//! | a key and a value | 32 bytes together | not compiled |
//! | keys of one home in its neighbourhood | 32 | nodes |
//! | how far an insertion looks for a free cell | 1,024 buckets | nodes |
//! | nodes of a segment | what overflowed at one time; all 64 homes of the segment reuse their slots | |
//! | bytes, including nodes | [`Builder::max_bytes`](corewise_maps::copy_map::Builder::max_bytes), memory | [`Full`](corewise_maps::copy_map::Full) |
//! | removals from one node during one lookup | 2^58 | a wrong pair |
//! | removals from one segment's cells during one lookup | 2^48 | a wrong pair |
//! | changes of one home during one lookup | 2^90 | a wrong pair |
//!
//! A bucket whose pair has two words takes 25.1 bytes (26 in tables of up to 2^15 buckets), and 0.6
//! for its segment. With 0.45 to 0.9 entries per bucket, the range of a growing table, an entry
//! takes 29 to 57 bytes, and 27 if the table is 95 % full.
//!
//! # Choices, and rejected alternatives
//!
//! - *Tags* make lookups fast. With infos and cells alone, a lookup has to wait for an info to know
//!   which cell to wait for; and the fewer instructions depend on a load that is outstanding, the
//!   more lookups run in parallel. (Tags of a home's keys in its info, which avoid wrong cells but
//!   not that wait, made lookups beyond the caches slower.) With random keys, tags decide for 99 %
//!   of the keys if half of the cells are taken, 98 % at 75 %, 93 % at 90 %, 88 % at 95 %; and 89
//!   to 54 % of the keys are in the line of the home's cell. (`cargo test -p corewise-maps-lab
//!   --lib ways_to_a_key -- --nocapture` prints these figures.)
//! - *Changes of segments* resemble the paper's timestamps, but a lookup that meets one waits for
//!   no thread: it goes by the info instead. They are words in a separate array, which stays cached
//!   where segments would not; in tables of up to 2^15 buckets each has a cache line to itself,
//!   since threads contend there. The price is paid by updates, which write them twice.
//! - *Separate arrays*: tags find cells, so infos need not be next to them, as they are in the
//!   paper. An update, which reads and writes all arrays, prefetches from all of them at once.
//! - *H = 32*, so that hop bits and version are one word: a lookup's second look costs no
//!   additional line, displacements are one store, and locking is a compare-and-swap of the word
//!   that was seen. With 32, 0.2 % of the keys of a table that is 95 % full are in nodes (the same
//!   command prints it): where too many keys have their homes close together. With 64, which the
//!   paper also names, there would be fewer, and the version would be a separate word.
//! - *A version for each home*, where the paper has a timestamp for each segment: that one is
//!   changed by removals (\[CHTBench\] §3.4.5) and displacements anywhere near, in a separate line,
//!   and lookups of all its homes retry. Insertions in free cells do not change a version.
//! - *A lock for each home, in its info*: the paper locks a segment before any look, and has one
//!   segment per thread, which \[CHTBench\] names among its bottlenecks (§3.4.5, §3.4.7). Here an
//!   update without effect locks nothing.
//! - *Free cells are bits*, 64 in a word: an insertion at 95 % has to pass some 200 cells, as in
//!   linear probing, which are four words instead of seventy lines.
//! - *Which key is displaced*: as in the paper, the first key of the home farthest back.
//! - *A key in a node stays there* until it is removed, or the table resized: to bring it back,
//!   every removal would have to read nodes.
//! - *Low bits choose the home*, so small integers that are their own hashes are neighbours, and
//!   never displaced.

mod home_bucket;
mod info;
#[cfg(test)]
mod models;
mod segment;
mod table;
mod tags;
#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests;

use corewise_maps::copy_map::{CopyMap, Unlimited};
use corewise_maps::relativistic::DefaultHasher;

pub use table::{HopscotchTable, Overflowing};

/// A concurrent hash map of pairs of up to 32 bytes, dense, whose lookups usually wait for one
/// cache line, and write nothing.
///
/// Choose it for tables that are mostly read and do not fit in the caches, if keys or values are
/// not words. [`CuckooMap`](corewise_maps::cuckoo::CuckooMap) takes the same types and less memory.
/// With `()` as its values it is a set. See the [module](self) for how it works and what it
/// guarantees.
///
/// ```
/// use corewise_maps_lab::hopscotch::HopscotchMap;
///
/// let places = HopscotchMap::<[u8; 6], (f32, f32)>::with_capacity(1_000);
/// let map = places.pin();
/// assert_eq!(map.insert(*b"London", (51.5, -0.1)), None);
/// assert_eq!(map.get(b"London"), Some((51.5, -0.1)));
/// assert_eq!(map.update(b"London", |(lat, lon)| (lat, lon + 0.01)), Some((51.5, -0.09)));
/// assert_eq!(map.remove(b"London"), Some((51.5, -0.09)));
/// assert_eq!(map.get_or_insert_with(*b"Berlin", || (52.5, 13.4)), (52.5, 13.4));
/// assert_eq!(map.keys().collect::<Vec<_>>(), [*b"Berlin"]);
/// ```
///
/// A key and a value of more than 32 bytes together do not compile:
///
/// ```compile_fail
/// corewise_maps_lab::hopscotch::HopscotchMap::<u64, [u64; 4]>::new();
/// ```
///
/// Threads may share a map if they may send keys and values to each other:
///
/// ```compile_fail
/// fn share(_: impl Sync) {}
/// share(corewise_maps_lab::hopscotch::HopscotchMap::<u64, &'static std::cell::Cell<u64>>::new());
/// ```
///
/// The methods are those of [`CopyMap`] and its [handle](corewise_maps::copy_map::CopyMapRef).
pub type HopscotchMap<K, V, S = DefaultHasher, L = Unlimited> = CopyMap<HopscotchTable<K, V>, S, L>;
