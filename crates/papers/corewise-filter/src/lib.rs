//! A concurrent cuckoo filter: a set of items in 8 to 20 bits each, which answers "certainly not"
//! or "probably". Unlike a Bloom filter it also removes and counts items.
//!
//! ```
//! use corewise_filter::CuckooFilter;
//!
//! let filter = CuckooFilter::with_fpr(1_000_000, 0.001)?; // 1.9 MB
//! filter.insert("item")?;
//! assert!(filter.contains("item"));
//! assert!(!filter.contains("another")); // for all but one in 1,000 other items
//! assert!(filter.remove("item"));
//! assert!(!filter.contains("item"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Which settings, and which crate
//!
//! | if | use |
//! |---|---|
//! | items come and go, many threads | [`CuckooFilter::with_fpr`] |
//! | the number of items is unknown | [`GrowingFilter`] |
//! | memory matters more than speed | [`Builder::semi_sorted`]: one bit less for each slot |
//! | all items are known beforehand, and none is removed | a static filter: `xorf` needs 9 bits for 0.4 % |
//! | nothing is removed, and one item in 50 may be a false positive | a Bloom filter: `fastbloom` |
//! | the answer must be exact | a set |
//!
//! An item that was inserted twice must be removed twice. Remove only items that were inserted: a
//! filter cannot tell an absent item from one with the same fingerprint.
//!
//! # Guarantees
//!
//! 1. *No false negative.* If an item was inserted before a call of `contains` begins, and is not
//!    removed before it ends, the call returns true, whatever other threads insert, remove or move.
//! 2. *False positives.* Of absent items [`CuckooFilter::fpr`] are found, for items and seeds that
//!    are independent. Beside updates a lookup may also return true for an item whose buckets
//!    change all the time, or whose fingerprint two words of a bucket show only together.
//! 3. *Atomicity.* Insertions, removals, counts and negative answers of one item are linearizable,
//!    where items that the filter cannot tell apart are one.
//! 4. *Progress.* `contains` is wait-free: it takes no lock and writes nothing. Updates wait for
//!    locks of stripes, which are held for some stores. No code of users runs under them.
//! 5. *Full.* A refused item changes nothing: see [`InsertError`]. No item is ever lost to make
//!    room.
//! 6. *Determinism.* The same calls by one thread leave the same bytes, on every machine. There is
//!    no random choice. (Items with slices of integers: see [`FilterHasher`].)
//! 7. *Panics.* No method panics, except where its documentation names a condition.
//!
//! # Sources
//!
//! \[CHTBench\] ch. 5, a thesis on concurrent hash tables, which elides the lock of the filter of
//! \[CuckooFilter\] (Fan, Andersen, Kaminsky, Mitzenmacher, CoNEXT 2014). Moves that are searched
//! first and made backwards are those of \[MemC3\] (NSDI 2013) and \[Cuckoo14\] (EuroSys 2014).
//!
//! Deviations:
//!
//! - The other bucket is H(φ) − i1 modulo any even number of buckets, where \[CuckooFilter\] has
//!   i1 ⊕ H(φ) modulo a power of two.
//! - \[CHTBench\] holds an elided lock during a whole insertion, and loses an item if it gives up
//!   (algorithm 5.5). Here moves are planned without a lock and made from the end, each under two
//!   striped locks.
//! - \[CHTBench\] looks up inside a transaction. Here lookups validate misses by versions.
//! - Both choose victims at random, up to 500. Here a breadth-first search visits 1,024 buckets.
//! - Semi-sorted buckets of every width are correct, and encoded without a search
//!   (\[CuckooFilter\] §5.2).
//!
//! # Memory
//!
//! ```text
//! CuckooFilter ─┬─ words     [u64]: buckets of b·f bits, or 4f − 4 if semi-sorted, without gaps
//!               ├─ versions  [u64]: one for each stripe of 8,192 slots (256 in small filters)
//!               └─ locks     [u32]: one for each stripe, with its number of items
//! ```
//!
//! | settings | bits per slot | per item at 95 % | false positives at 95 % |
//! |---|---|---|---|
//! | 8 bits | 8 | 8.4 | 2.9 % |
//! | 12 bits | 12 | 12.65 | 0.19 % |
//! | 13 bits, semi-sorted | 12 | 12.65 | 0.093 % |
//! | 16 bits | 16 | 16.9 | 0.012 % |
//!
//! # Limits
//!
//! | what | limit |
//! |---|---|
//! | buckets | [`MAX_BUCKETS`], so 2^33 to 2^35 slots |
//! | fingerprints | 1 to [`MAX_FINGERPRINT_BITS`] bits |
//! | copies of an item | 2b, with b slots in a bucket; in a growing filter, in its newest link |
//! | buckets that an insertion visits | [`Builder::search_limit`], 1,024 by default |
//! | links of a growing filter | [`MAX_LINKS`], [`MAX_BUCKETS`] each, and [`Growth::max_bytes`], 1 GiB by default |
//! | rounds of a lookup that is disturbed | 64 |
//!
//! Targets: those of `corewise-atomic`. Tested on x86-64 Linux.

#![forbid(unsafe_code)]

mod batch;
mod builder;
mod filter;
mod format;
mod growing;
mod hash;
#[cfg(test)]
mod models;
mod packed;
mod pairing;
mod path;
#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod properties;
/// Its program, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
pub mod redis;
mod semi_sorted;
mod shape;
mod stripes;
mod table;
#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod testing;
mod updates;

pub use batch::BatchError;
pub use builder::{Builder, DEFAULT_SEARCH_LIMIT};
pub use filter::{CuckooFilter, InsertError};
pub use format::LoadError;
pub use growing::{DEFAULT_MAX_BYTES, GrowingFilter, Growth, MAX_LINKS};
pub use hash::FilterHasher;
pub use path::MAX_SEARCH_LIMIT;
pub use shape::{BuildError, MAX_BUCKETS, MAX_FINGERPRINT_BITS};
