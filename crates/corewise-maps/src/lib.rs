//! Concurrent hash tables.
//!
//! | table | for | lookups | updates | memory an entry (`u64`, `u64`) |
//! |---|---|---|---|---|
//! | [`RelativisticMap`] | maps that are read more than written, that grow and shrink, whose users hold guards | wait-free, never disturbed by a resize | lock-free insertions, a bucket's lock for the rest | 32 bytes and 11 to 21 of buckets |
//! | [`clht::LockBased`] | keys and values of one word ([`Word`]); many updates | lock-free, without a write or a wait; one cache line | a bucket's lock; one cache line; what changes nothing writes nothing | 38 to 105 bytes of buckets, median 49 |
//! | [`clht::LockFree`] | the same, beside threads that may be interrupted at any time | the same | insertions and removals lock-free; one cache line; what changes nothing writes nothing | the same |
//! | [`hopscotch::HopscotchMap`] | pairs of up to 32 bytes; tables that are mostly read | lock-free, without a write or a wait; one cache line, and tags that stay in the caches | a home's lock; what changes nothing writes nothing; lines of five arrays, which are asked for at once | 29 to 85 bytes of buckets, median 40 |
//! | [`cuckoo::CuckooMap`] | many small pairs of any `Copy` types, up to 32 bytes, in little memory | without a write or a lock; two words and one pair; again if an entry nearby was removed or moved meanwhile | one or two buckets' locks; displace others when the table is dense | 19 to 57 bytes of buckets, median 26 |
//!
//! (Bytes of buckets while a map grows, the most beside a table that is being replaced: printed by the example
//! `bytes_per_entry`.)
//!
//! [`chained`] has the resize variations that this one was chosen from, [`baseline`] what its paper compares it
//! with.
//! The last four hand out copies; [`copy_map`] has what they share, and [`copy_map::BoxMap`] puts values of any type in
//! them. All tables keep what a reader looks at alive by [`corewise_rcu`]; a [`corewise_rcu::Guard`] may be held while the
//! same table is updated.
//!
//! ```
//! use corewise_maps::RelativisticMap;
//!
//! let sessions = RelativisticMap::new();
//! sessions.pin().insert("ada", 1);
//! let visits = sessions.pin().update("ada", |visits| visits + 1).copied();
//! assert_eq!(visits, Some(2));
//! ```
//!
//! Each has `get_many`, for several keys at once, whose waits for memory overlap: for batches of 16 keys and more, in
//! tables that are larger than the caches.
//!
//! # Where others are better
//!
//! - A map that is only ever touched by one thread: `std`'s is smaller and faster.
//! - Large values that are changed in place: here a change makes a new node or box, or a value has 31 bytes at most.
//! - Nothing but updates of random keys in [`hopscotch`] and [`cuckoo`], in small tables or by one thread: 64 shards of a map
//!   behind locks are faster.
//! - Nothing but updates of random keys: [`RelativisticMap`] writes more cache lines for each than
//!   [`clht::LockBased`], which has entries in place.
//!
//! # Features
//!
//! `foldhash` (default): the default hasher; without it that of `std`. `serde`: maps as maps.
//! `rayon`: parallel iteration. `rename`: maps whose entries can be given another key in one step
//! (`relativistic::rename`); off by default for the sake of a patent that its header names.

pub mod baseline;
mod batch;
pub mod chained;
#[cfg(target_pointer_width = "64")]
pub mod clht;
#[cfg(all(doctest, target_pointer_width = "64"))]
mod compile_fail;
#[cfg(target_pointer_width = "64")]
pub mod copy_map;
mod counts;
#[cfg(target_pointer_width = "64")]
pub mod cuckoo;
#[cfg(test)]
#[path = "../tests/common/every.rs"]
mod every;
#[cfg(test)]
#[path = "../tests/common/hashing.rs"]
mod hashing;
#[cfg(target_pointer_width = "64")]
pub mod hopscotch;
#[cfg(target_pointer_width = "64")]
mod pair;
#[cfg(test)]
mod pairs;
mod panics;
pub mod relativistic;
mod shared;
mod waiting;
#[cfg(target_pointer_width = "64")]
mod word;

pub use relativistic::RelativisticMap;
#[cfg(target_pointer_width = "64")]
pub use word::{Word, WordKey};
