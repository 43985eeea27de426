//! Chained tables for comparison: the resize variants of the relativistic hash table, and the
//! tables that its paper compares it with.
//!
//! Paper: \[ATC11\] §4 to §5.
//!
//! [`RelativisticMap`] is the table to use. These are the alternatives to it: one façade,
//! [`ChainedMap`], over tables that differ only in how they are resized. A node is a box with a
//! link (the next node, the hash), the key and the value. Removed nodes are freed a grace period
//! later. The number of buckets is a power of two; only [`ChainedMap::resize_to`] changes it.
//!
//! # The tables
//!
//! | algorithm | expansion | shrink | waits for readers |
//! |---|---|---|---|
//! | [`OutOfPlace`] | copied, unzipped (§4) | copied, cross-linked (§4) | one, and one per run of a chain; a shrink one |
//! | [`Atc11`] | copied, unzipped | in place (§4.2): what §6.1 measured | the same |
//! | [`InPlace`] | in place, unzipped (§4.2) | in place | the same |
//! | [`NoAuxiliary`] | copied, unzipped without the old table's help (§4) | copied | the same |
//! | [`SortedByReversedHash`] | copied; chains sorted by the reversed hash (§4.3), one cut | copied | 2; a shrink one |
//!
//! The [baselines](crate::baseline) are [`Ddds`], [`LiteralDdds`] and [`RwLocked`] (§5). They move
//! entries and have their own guarantees.
//!
//! # Which one is the default
//!
//! [`RelativisticMap`]: the out-of-place resize, with updates during all of it. Without updates it
//! is a quarter slower than the paper's own algorithm, at rest as well as during a resize. The
//! presumed reason: its nodes have node IDs of 32 bits instead of addresses. They are translated at
//! each node of chains as long as the benchmark's, and save 8 bytes an entry. With one update in
//! ten during a resize it has 1.6 times (1.4 - 2.3) the rate of [`Atc11`], with the same number of
//! resizes a second, because updates do not wait while a table is built. [`InPlace`], with 0.93
//! (0.56 - 1.43) of its rate, and [`NoAuxiliary`], with 0.90 (0.51 - 1.58), are not distinguishable
//! from it, with little more than half the resizes a second. (`corewise bench run --section resize
//! -n 1 -u 10 --insert-share 90 --repetitions 4`, two CPUs, 2026-11-22, commit `ef0f554`;
//! `docs/BENCHMARKS.md` has more.)
//!
//! *Sorted buckets* of 8 entries, by the reversed hash, take 0.97 of the time of unsorted ones for
//! a miss, 0.91 for a failed removal and 1.31 for a hit; by the hash's high bits, which §4.3 names
//! as the alternative, 0.81, 0.75 and 1.05, with intervals from 0.52 to 1.7 (example
//! `sorted_buckets` of commit `53e8774`, 2026-11-22). So the gain that §4.3 announces shows in the
//! medians at most: half of a short chain is saved, but each node costs one more comparison.
//!
//! # Guarantees
//!
//! 1. *Lookups* of these tables are wait-free, whatever runs concurrently, and find what is in the
//!    table.
//! 2. *Updates* are linearizable. They lock one of up to 1,024 stripes of buckets and compare keys
//!    under that lock (`K::eq` must not use the map). All updates wait while a resize builds a
//!    table: for one walk over it (§4.1: *during the initial period … our resizers block all
//!    updates*). After that each bucket is locked only while it is changed. No thread waits for
//!    readers while it holds a lock.
//! 3. *A resize* is done by its caller, which waits for readers. Concurrent callers wait for the
//!    first.
//! 4. *Panics* in `Hash` and `Eq` leave the map unchanged.
//!
//! # Limits
//!
//! Buckets: memory; 2^26 for tables that are resized in place, whose addresses are reserved at
//! once. Removed entries that wait for readers: the limits of the domain; when they are exceeded,
//! dropping a handle outside of other sections helps to free them.

#[cfg(doc)]
use corewise_maps::RelativisticMap;

mod algorithm;
mod bucket_array;
mod ddds;
#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod explorer;
mod map;
#[cfg(test)]
mod model_set;
#[cfg(test)]
mod models;
mod order;
mod paper;
mod rwlock;
mod unsorted;

pub use algorithm::Resized;
pub use ddds::{Ddds, LiteralDdds};
pub use map::{ChainedMap, ChainedRef};
pub use paper::{Atc11, InPlace, NoAuxiliary, OutOfPlace, SortedByReversedHash};
pub use rwlock::RwLocked;

/// The tables that [`ChainedMap`] supports. Sealed: an implementation needs more than safe code.
pub trait ChainedTable: algorithm::Algorithm {}

impl<A: algorithm::Algorithm> ChainedTable for A {}
