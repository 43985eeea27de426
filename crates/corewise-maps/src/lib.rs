//! Concurrent hash tables.
//!
//! | table | use it for | lookups | updates | memory per entry (`u64`, `u64`) |
//! |---|---|---|---|---|
//! | [`RelativisticMap`] | maps that are read more than written, that grow and shrink, whose users hold guards | wait-free, not disturbed by a resize | lock-free insertions, a bucket's lock for the rest | 32 bytes and 11 to 21 of buckets |
//! | [`clht::LockBased`] | keys and values of one word ([`Word`]); many updates | lock-free, without a write or a wait; one cache line | a bucket's lock; one cache line; an update without effect writes nothing | 38 to 105 bytes of buckets, median 49 |
//! | [`clht::LockFree`] | the same, with threads that may be interrupted at any time | the same | insertions and removals lock-free; one cache line; an update without effect writes nothing | the same |
//! | [`hopscotch::HopscotchMap`] | pairs of up to 32 bytes; tables that are mostly read | lock-free, without a write or a wait; one cache line, and tags that stay in the caches | a home's lock; an update without effect writes nothing; lines of five arrays, which are requested together | 29 to 85 bytes of buckets, median 40 |
//! | [`cuckoo::CuckooMap`] | many small pairs of any `Copy` types, up to 32 bytes, in little memory | without a write or a lock; two words and one pair; repeated if an entry nearby was removed or moved meanwhile | one or two buckets' locks; displace other entries when the table is dense | 19 to 57 bytes of buckets, median 26 |
//!
//! (Bytes of buckets are measured while a map grows; the maximum is reached while two tables exist.
//! The example `bytes_per_entry` prints them.)
//!
//! The last four tables return copies; [`copy_map`] has what they share, and [`copy_map::BoxMap`]
//! stores values of any type in them. All tables use [`corewise_rcu`] to keep memory alive while
//! readers use it. A thread may hold a [`corewise_rcu::Guard`] while it updates the same table; a
//! thread with [`corewise_rcu::MAX_NESTED`] of them, or two fewer, cannot enter the sections that
//! operations need, and they panic.
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
//! Each table has `get_many` for lookups of several keys, whose memory accesses overlap. It pays
//! for batches of 16 keys and more, in tables that are larger than the caches.
//!
//! # When to use another table
//!
//! - Only one thread ever uses the map: `std`'s is smaller and faster.
//! - Large values are changed in place: here an update makes a new node or box, or a value has 31
//!   bytes at most.
//! - All operations are updates of random keys in [`hopscotch`] and [`cuckoo`], in small tables or
//!   by one thread: 64 shards of a locked map are faster.
//! - All operations are updates of random keys: [`RelativisticMap`] writes more cache lines for
//!   each than [`clht::LockBased`], which has entries in place.
//!
//! # Features
//!
//! - `foldhash` (default): the default hasher; without it, that of `std`.
//! - `serde`: serializes maps as maps.
//! - `rayon`: parallel iteration.
//! - `rename`: maps whose entries can be given another key in one step (`relativistic::rename`).
//!   Off by default because of a patent that the header of the module names.

mod batch;
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
#[cfg(test)]
#[path = "../tests/common/operation_pairs.rs"]
mod operation_pairs;
#[cfg(target_pointer_width = "64")]
mod pair_cell;
mod panics;
#[cfg(all(doctest, target_pointer_width = "64"))]
#[path = "../tests/common/refused.rs"]
mod refused;
pub mod relativistic;
mod shared;
#[cfg(target_pointer_width = "64")]
mod word;

pub use relativistic::RelativisticMap;
#[cfg(target_pointer_width = "64")]
pub use word::{Word, WordKey};

/// Parts that the tables of `corewise-maps-lab` share with these. Not a public interface: it may
/// change in every version.
#[doc(hidden)]
pub mod internals {
    pub use crate::batch::{in_groups, in_stages, prefetch_entry};
    pub use crate::counts::Counts;
    pub use crate::panics::Panics;
    pub use crate::shared::Shared;
}
