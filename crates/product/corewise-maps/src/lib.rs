//! Concurrent hash tables.
//!
//! | table | use it for | lookups | updates | memory per entry (`u64`, `u64`) |
//! |---|---|---|---|---|
//! | [`RelativisticMap`], [`RelativisticSet`] | maps that are read more than written, that grow and shrink, whose users hold guards | wait-free, not disturbed by a resize | lock-free insertions, a bucket's lock for the rest | 32 bytes and 11 to 21 of buckets, up to 43 below 10^6 entries and 85 below 1,536, and 57 there while two tables exist |
//! | [`clht::LockBased`] | keys and values of one word ([`Word`]); many updates | lock-free, without a write or a wait; one cache line | a bucket's lock; one cache line; an update without effect writes nothing | 38 to 105 bytes of buckets, median 49 |
//! | [`cuckoo::CuckooMap`] | many small pairs of any `Copy` types, up to 32 bytes, in little memory | without a write or a lock; two words and one pair; repeated if an entry nearby was removed or moved meanwhile | one or two buckets' locks; displace other entries when the table is dense | 19 to 57 bytes of buckets, median 26 |
//!
//! (Bytes of buckets are measured while a map grows; the maximum is reached while two tables exist.
//! The example `bytes_per_entry` prints them.)
//!
//! The last two tables return copies; [`copy_map`] has what they share. With `()` as their values
//! they are sets. All tables use [`corewise_rcu`] to keep memory alive while readers use it. A
//! thread may hold a [`corewise_rcu::Guard`] while it updates the same table; a thread with
//! [`corewise_rcu::MAX_NESTED`] of them, or two fewer, cannot enter the sections that operations
//! need, and they panic.
//!
//! ```
//! use corewise_maps::RelativisticMap;
//!
//! let visits: RelativisticMap<String, u64> = RelativisticMap::new();
//! std::thread::scope(|scope| {
//!     for name in ["ada", "grace", "ada"] {
//!         let visits = &visits;
//!         scope.spawn(move || {
//!             visits.update_or_insert(name.to_owned(), |n| n + 1, 1);
//!         });
//!     }
//! });
//! assert_eq!(visits.get("ada").as_deref(), Some(&2));
//! let visits = visits.pin(); // a handle, for several operations and plain references
//! assert_eq!(visits.get("grace"), Some(&1));
//! ```
//!
//! [`RelativisticSet`] is a set with the same guarantees. [`methods`] lists what `std`, papaya and
//! dashmap call each operation. The examples of the crate are small programs: `word_count`,
//! `memo_cache`, `session_store`, `routing_table`, `dedupe`.
//!
//! Each table has `get_many` for lookups of several keys, whose memory accesses overlap. It pays
//! for batches of 16 keys and more, in tables that are larger than the caches.
//!
//! # If you need this, use that
//!
//! | you need | use |
//! |---|---|
//! | lookups that never wait, references to entries, a map that grows and shrinks | [`RelativisticMap`] |
//! | a set of that kind | [`RelativisticSet`] |
//! | an entry over an `.await` | [`RelativisticMap::pin_owned`]; a clone, or a value in an `Arc`, if it takes long |
//! | counters and other upserts | [`MapRef::update_or_insert`](relativistic::MapRef::update_or_insert); atomics as values if a few keys take all updates |
//! | integers to integers, many updates | [`clht::LockBased`] |
//! | little memory for small pairs | [`cuckoo::CuckooMap`] |
//! | `&mut` to an entry in place, or to hold it locked | dashmap, or scc's `HashMap` |
//! | large values that are changed in place | dashmap or scc: here an update makes a new node or box, or a value has 31 bytes at most |
//! | `async` updates that wait for a locked entry | scc, with its `_async` methods |
//! | pointers that stay valid without a lifetime | a map of `Arc`s, any of these |
//! | a memory limit, eviction, expiry | moka, quick_cache; the cache engines of Corewise |
//! | a consistent snapshot of all entries | `std`'s `RwLock<HashMap>`, or a persistent map (im, rpds) in an `ArcSwap` |
//! | one writer, all readers on one version, updates seen when published | left-right, evmap |
//! | keys in order, ranges | crossbeam-skiplist, scc's `TreeIndex` |
//! | keys that are known beforehand | phf; a plain `HashMap` behind an `Arc` |
//! | one thread, or hardly any contention | `std`'s `HashMap`, alone or in an `RwLock`: smaller, and faster for one thread |
//! | a map of this kind that is older and used more widely | papaya |
//!
//! If all operations are updates of random keys in [`cuckoo`], in small tables or by one thread, 64
//! shards of a locked map are faster. [`RelativisticMap`] writes more cache lines for each update
//! than [`clht::LockBased`], which has entries in place.
//!
//! # Features
//!
//! - `foldhash` (default): the default hasher; without it, that of `std`.
//! - `serde`: serializes maps as maps.
//! - `rayon`: parallel iteration.
//! - `raw`: the intrusive table under [`RelativisticMap`], for the Corewise cache, and what tables
//!   of other Corewise crates are made of (`parts`). Not for other users: it may change in any
//!   version.
//!
//! # Targets
//!
//! Targets with `std` and with atomics of 64 bits; others do not compile. With pointers of 32 bits
//! there is [`RelativisticMap`] only. The tests run on x86-64 Linux only; for AArch64 and 32-bit
//! x86 Linux, macOS, Windows and FreeBSD it is only checked that the crate compiles. Where
//! [`corewise_rcu`] has no `membarrier`, which is everywhere but on Linux, entering a section, and
//! so every `pin`, executes a fence.

// What only `raw` exports. With the feature, which the workspace enables, both lints apply.
#![cfg_attr(not(feature = "raw"), allow(dead_code, unreachable_pub))]

mod batch;
#[cfg(target_pointer_width = "64")]
pub mod clht;
mod collection;
#[cfg(all(doctest, target_pointer_width = "64"))]
mod compile_fail;
#[cfg(target_pointer_width = "64")]
pub mod copy_map;
mod counts;
#[cfg(target_pointer_width = "64")]
pub mod cuckoo;
mod equivalent;
#[cfg(target_pointer_width = "64")]
mod pair_cell;
#[cfg(doc)]
#[doc = include_str!("../docs/METHODS.md")]
pub mod methods {}
mod panics;
/// Its program, as a test.
#[cfg(all(doctest, target_pointer_width = "64"))]
#[doc = include_str!("../README.md")]
mod readme {}
pub mod relativistic;
mod shared;
#[cfg(target_pointer_width = "64")]
mod word;

pub use equivalent::Equivalent;
pub use relativistic::{RelativisticMap, RelativisticSet};
#[cfg(target_pointer_width = "64")]
pub use word::{Word, WordKey};

/// What a table of another crate is made of: implementations of [`copy_map::Table`] for entries in
/// place, and what maps of nodes share with [`RelativisticMap`]. Exempt from semantic versioning.
#[cfg(feature = "raw")]
pub mod parts {
    pub use crate::batch::{in_groups, in_stages, prefetch_entry};
    #[cfg(target_pointer_width = "64")]
    pub use crate::copy_map::memory_budget::{Heads, MemoryBudget, ZeroedBucket, range_of};
    #[cfg(target_pointer_width = "64")]
    pub use crate::copy_map::table_version::{
        EntryChange, HeldBucket, Moved, Moving, NoMemory, Put, ResizeStep, TableVersion,
    };
    pub use crate::counts::EntryCounts;
    #[cfg(target_pointer_width = "64")]
    pub use crate::word::Raw;

    /// The chains of [`clht`](crate::clht), for another variant of their updates.
    #[cfg(target_pointer_width = "64")]
    pub mod clht {
        pub use crate::clht::bucket::{Bucket, BucketState, SLOTS, SlotEntry};
        pub use crate::clht::lock_based::LockBasedForm;
        pub use crate::clht::overflow::SpareBucket;
        pub use crate::clht::table::{ClhtTable, ClhtVariant, SpareMemory};
    }

    #[cfg(target_pointer_width = "64")]
    pub use crate::pair_cell::{FENCED_LOAD, PairCell, Torn};
    pub use crate::panics::Panics;
    pub use crate::shared::Shared;
}
