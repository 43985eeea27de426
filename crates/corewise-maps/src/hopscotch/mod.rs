//! Hopscotch hashing: one array, every entry within a few cells of where its hash leads.
//!
//! Papers: Herlihy, Shavit, Tzafrir, *Hopscotch Hashing*, DISC 2008; the thesis that the benchmark follows, §3.2.3, and
//! what §3.4 observed of it: reads are fast until there are updates (§3.4.3), and it cannot be resized (§3.4.2).
//! [`HopscotchMap`] keeps its neighbourhoods and displacements. It has other locks and another way for lookups to
//! notice changes, it grows beside them, and no key is ever without a place.
//!
//! # Layout
//!
//! ```text
//!  arrays of a table with a power of two of buckets, which are a ring
//! ┌──────┬──────┬──────┬──────┬─ ─            infos: 8 bytes a bucket
//! │ info │ info │ info │ info │
//! └──┬───┴──────┴──────┴──────┴─ ─
//!    │  bit 63 ...... 36     35        34      33     32    31 ........ 0
//!    └▶ version         CHANGING OVERFLOW  MOVED   LOCK  hop bits: cell i of the neighbourhood has a key of
//!                                                        this home
//! ┌───────┬───────┬───────┬───────┬─ ─        cells: 16 bytes if a key and a value have 8
//! │ pair  │ pair  │ pair  │ pair  │
//! └───────┴───────┴───────┴───────┴─ ─
//!  └─ 0 ─┘ └─ 1 ─┘ └─ 2 ─┘ └─ 3 ─┘  ... 31: the neighbourhood of the first bucket
//! ┌─┬─┬─┬─┬─┬─┬─┬─┬─ ─                        tags: a byte; 8 bits of the pair's hash, or 0
//! └─┴─┴─┴─┴─┴─┴─┴─┴─ ─
//!
//!  segments, one for 64 buckets                  nodes, for what has no place within reach
//! ┌───────────────┬──────┬───────┬─────────┐    ┌──────────────────┬──────┬───────┬─ ─ ─ ─ ─┐
//! │ taken: a bit  │ lock │ nodes │ scratch │    │ removals │ held  │ next │ homes │ 6 cells │
//! │ for each cell │      │       │         │    └──────────────────┴──────┴───────┴─ ─ ─ ─ ─┘
//! └───────────────┴──────┴───┬───┴─────────┘        ▲
//! ┌─────────┐                └──────────────────────┘
//! │ changes │ in an array of their own: how often a pair has left a cell (48 bits); homes that are unsettled (16)
//! └─────────┘
//! ```
//!
//! A bucket is two things: the *home* that hashes lead to, which its info is about, and a *cell*, which may hold a
//! pair of any home that it is within reach of: one of the H = 32 before it. Which cells of its neighbourhood hold a
//! home's keys is said by its hop bits; tags mostly say the same, and are less to read. Zeroed memory is an empty table,
//! and no key or value is reserved.
//!
//! # Operations
//!
//! A *lookup* goes by tags: it reads the changes of its home's segment, and compares the tags of the neighbourhood, 16 in
//! one instruction, with its own. For each that is equal it copies the cell, sees that no pair has left the segment since,
//! and compares the key. If none is left it sees that the changes are still the same, and all homes settled: then the key is
//! not there. The home's cell is asked for before the tags are known: they are few enough to be in the caches when
//! cells are not.
//!
//! A home is *unsettled* while tags do not show all that it has and nothing else: as long as its info and its tags are
//! changed one after the other, while it has keys in nodes, and for good when it was moved. Whoever meets one in his
//! home's segment, a departure, or a tag of the next segment's cells, goes by the *info* of the home. For each hop bit
//! he copies the cell, sees that the version is still the same, and compares the key. If OVERFLOW is set he looks in the
//! segment's nodes, too; if CHANGING is, first in the scratch. At MOVED he goes on in the next table. If the version was
//! changed he starts again.
//!
//! An *update* looks first, by the info. Unless that settles it, it locks the home, by exchanging the very info
//! that it has seen: so what it has seen still holds, and it need not look again.
//!
//! - An *insertion* claims the nearest free cell (a bit of `taken`), writes the pair, sets the hop bit, and then the tag,
//!   before it releases the lock. If the cell is out of reach, keys in between are displaced: a key whose home is within
//!   reach of the free cell goes there, and its cell is the free one now, which is nearer. Only if no free cell can be
//!   brought near the pair goes to a node.
//! - A *displacement* has the other home locked, too: it writes the pair in the free cell, and then sets one hop bit,
//!   clears the other and changes the version, in one store.
//! - A *removal* clears the bit and changes the version in one store, and gives the cell back.
//! - *Around each of these* the home is unsettled: before it is settled again the tag of a pair that leaves its cell is
//!   cleared, and after that the departure counted; where a displaced pair is now gets the tag.
//! - A *replacement* writes the value in place, if that is one word. Otherwise the new pair is written to the scratch of
//!   the segment, and lookups are sent there (CHANGING) while the cell is written.
//!
//! A *resize* moves a home of the smaller table at a time, with all of the other table that belong to it: they are
//! locked, their pairs inserted in the new table as any other, their tags cleared, and they are marked MOVED; see
//! [`copy_map`](crate::copy_map).
//!
//! # Why it is right
//!
//! - *A hit is a pair that was there.* A cell is written only while no hop bit leads to it. A bit that leads to it is set
//!   after the pair is written (Release, with the info), and before the cell is written again that bit is cleared, which
//!   changes the version. Say a lookup saw the bit, and read in the cell a word of a later pair. That was stored with
//!   Release, after the change of the version; the lookup has a fence (Acquire) between the cell and its second look at
//!   the info: which therefore sees the change. So no pair is compared, or as much as made, before it is known to be one:
//!   keys and values may be of any type. (A value that is replaced in place is one word, and always the same one.)
//! - *A hit by tag is one by info.* A tag is set after the hop bit, and cleared before it: who finds a pair by its tag
//!   and who does so by its home's info agree. The pair is whole: say a lookup read in the cell a word of a later pair.
//!   Before that was written (Release) the first one had left, its tag was cleared and the departure counted (Release).
//!   If the lookup's first look at the changes has this one, it has seen the tag cleared (Acquire), and then that of the
//!   later pair, which was set (Release) after it was written. If not, its second look has it, after a fence (Acquire).
//! - *A miss by tags is one by info.* At the first look (Acquire) all homes of the segment were settled: tags showed
//!   what was in them. Had the key been there, and its tag not seen, then because it was cleared meanwhile (Release), after
//!   its home was unsettled: which the second look sees, after a fence (Acquire), or that there was a departure since.
//!   So there was no such key at the time of the first look.
//! - *A miss by info is one, too.* All keys of a home are where one info says; the last second look has shown that all of
//!   them stayed there since the first. A key that is displaced is in the old cell before that store, and in the new one
//!   after it.
//! - *The same info is the same home.* A version has 28 bits, and may come round while a lookup sleeps. So each time one
//!   does is counted for the table, before and after, and lookups compare that count, too: two words have to come round.
//! - *Nobody waits with a lock for another home's*, but for those of the new table while a home is moved: displacements
//!   try the lock, and take another key if somebody has it. Locks of segments are held for a few stores. So there is no
//!   deadlock, also not around the ring.
//! - *Homes that were moved do not change*: there is no lock of theirs to be had, and their cells stay taken. So who is in
//!   one when it is marked reads what was in the map at that time, which is during its own.
//!
//! # Guarantees
//!
//! Besides those of [`copy_map`](crate::copy_map):
//!
//! 1. *Lookups* write nothing and wait for nobody, not for a lock, a displacement or a resize either. They are lock-free
//!    and not wait-free: going by tags ends, but going by an info starts again if a key of its own home was removed, displaced or put in a node since it
//!    began, or a value of more than a word replaced there; and if it walks nodes, if a key was removed from one that has
//!    keys of its home. Insertions in free cells and what is done to other homes do not disturb it (but for a version
//!    that comes round, once in 2^28 changes of a home).
//! 2. *A key that stays is found*, whatever is displaced and resized meanwhile.
//! 3. *Updates* look before they lock. One without effect (`try_insert` of a key that is there, `remove` or `update` of
//!    one that is not) writes nothing.
//! 4. *Updates wait* for others of the same home, for a handful of stores, or some thousand cycles while that one
//!    displaces keys; while their home is moved, until it is; and an insertion that has to displace keys, and can
//!    displace none because others have their homes, until one of those is done.
//! 5. *Whatever the keys, they have a place*: of one home's keys 32 at most are in its neighbourhood, the others in nodes
//!    of its segment, [`overflowing`](HopscotchMap::overflowing) counts them. Lookups of such keys walk the nodes; those
//!    of homes without any do not. The table doubles if an insertion had to displace something and 0.9 of the cells are
//!    taken; for keys in nodes it does only while it has no more buckets than entries.
//! 6. *Without memory* nothing is lost: an insertion that needs a node says [`Full`](crate::copy_map::Full). Replacements
//!    and removals need none.
//! 7. *Foreign code*: hashers and comparisons run without a lock, but for the hasher while a home is moved. A comparison
//!    that panics has changed nothing.
//!
//! # Limits
//!
//! | what | bound | beyond |
//! |---|---|---|
//! | a key and a value | 32 bytes together | not compiled |
//! | keys of one home in its neighbourhood | 32 | nodes |
//! | how far an insertion looks for a free cell | 1,024 buckets | nodes |
//! | nodes of a segment | what overflowed at one time; their slots are used again, by all of its 64 homes | |
//! | bytes of nodes and all | [`Builder::max_bytes`](crate::copy_map::Builder::max_bytes), memory | [`Full`](crate::copy_map::Full) |
//! | removals from one node during one lookup | 2^58 | a wrong pair |
//! | departures from one segment's cells during one lookup | 2^48 | a wrong pair |
//! | changes of one home during one lookup | 2^90 | a wrong pair |
//!
//! A bucket of two words has 25.1 bytes (26 in tables of up to 2^15), and 0.6 of a segment: with 0.45 to 0.9 entries for
//! each, which is where a growing table is, an entry takes 29 to 57 bytes, and 27 if the table is 95 % full.
//!
//! # Choices, and what was rejected
//!
//! - *Tags* are what a lookup is fast by. Of the infos and cells alone, a lookup has to wait for an info to know which
//!   cell to wait for, and the fewer instructions stand behind a load that is not there yet, the more lookups are on their
//!   way at once. (Tags of a home's keys in its info, which avoid wrong cells but not that wait, made lookups
//!   slower beyond the caches, not faster.) With random keys tags decide for 99 % of them if half of the cells are
//!   taken, 98 % at 75 %, 93 % at 90 %, 88 % at 95 %; and 89 to 54 % of the keys are in the line of the home's cell.
//!   (`cargo test -p corewise-maps --lib ways_to_a_key -- --nocapture` prints them.)
//! - *Changes of segments*, as the paper's timestamps, but a lookup that meets one waits for nobody: there is
//!   another way. They are words of an array of their own, which stays in the caches where segments would not; up to 2^15
//!   buckets each has a line to itself, since there threads meet. The price is an update's: it writes them twice.
//! - *An array each*: tags find cells, so infos need not be beside them, as they are in the paper. An update, which reads and
//!   writes all of them, asks for all at once.
//! - *H = 32*, since hop bits and version are one word then: a lookup's second look costs no line, displacements are
//!   one store, and locks are exchanges of what was seen. With 32, 0.2 % of the keys of a table that is 95 % full are in
//!   nodes (the same command): where too many keys have their homes close together. With the 64 that the paper names too
//!   they would be fewer, and the version a word of its own.
//! - *A version for each home*, where the paper has a timestamp for each segment: that is changed by removals (§3.4.5)
//!   and displacements anywhere near, in a line of its own, and lookups of all its homes look again. Insertions in free
//!   cells do not change a version.
//! - *A lock for each home, in its info*: the paper locks a segment before it looks for anything, and has as many as there
//!   are threads, which the thesis names among its bottlenecks (§3.4.5, §3.4.7). Here who has nothing to do locks
//!   nothing.
//! - *Free cells are bits*, 64 in a word: an insertion at 95 % has some 200 cells to pass, as in linear probing, which
//!   are four words instead of seventy lines.
//! - *Which key is displaced*: the paper's choice, the home farthest back, and its first key.
//! - *A key in a node stays there* until it is removed, or the table resized: bringing it back would look at nodes with
//!   every removal.
//! - *Low bits choose the home*, so numbers that are their own hashes are neighbours, and never displaced.

mod home;
mod info;
#[cfg(test)]
mod models;
mod segment;
mod table;
mod tags;
#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests;

use std::ptr::NonNull;

use crate::copy_map::{BoxMap, CopyMap, CopyMapRef};
use crate::relativistic::DefaultHasher;

pub use table::HopscotchTable;

/// A concurrent hash map of pairs of up to 32 bytes, dense, whose lookups wait for one cache line as a rule, and write
/// nothing.
///
/// All access is through a handle, which [`pin`](CopyMap::pin) makes; see [`CopyMapRef`] for the operations, and the
/// [module](self) for how it works and what it promises.
///
/// ```
/// use corewise_maps::hopscotch::HopscotchMap;
///
/// let places = HopscotchMap::<[u8; 6], (f32, f32)>::with_capacity(1_000);
/// let map = places.pin();
/// assert_eq!(map.insert(*b"London", (51.5, -0.1)), Ok(None));
/// assert_eq!(map.get(b"London"), Some((51.5, -0.1)));
/// assert_eq!(map.update(b"London", |(lat, lon)| (lat, lon + 0.01)), Some((51.5, -0.09)));
/// assert_eq!(map.remove(b"London"), Some((51.5, -0.09)));
/// assert_eq!(map.get(b"London"), None);
/// ```
///
/// A key and a value of more than 32 bytes together do not compile:
///
/// ```compile_fail
/// corewise_maps::hopscotch::HopscotchMap::<u64, [u64; 4]>::new();
/// ```
///
/// Threads may share a map if they may send keys and values to each other:
///
/// ```compile_fail
/// fn share(_: impl Sync) {}
/// share(corewise_maps::hopscotch::HopscotchMap::<u64, &'static std::cell::Cell<u64>>::new());
/// ```
pub type HopscotchMap<K, V, S = DefaultHasher> = CopyMap<HopscotchTable<K, V>, S>;

/// A handle of a [`HopscotchMap`].
pub type HopscotchMapRef<'m, K, V, S = DefaultHasher, G = corewise_rcu::Guard<'m>> =
    CopyMapRef<'m, HopscotchTable<K, V>, S, G>;

/// Hopscotch hashing with values of any type, in boxes. See [`BoxMap`].
pub type Boxed<K, V, S = DefaultHasher> = BoxMap<V, HopscotchTable<K, NonNull<V>>, S>;
