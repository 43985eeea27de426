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
//! | [`SortedByHighBits`] | the same; buckets by the high bits of the hash (§4.3) | copied | 2; a shrink one |
//!
//! The [baselines](crate::baseline) are [`Ddds`], [`LiteralDdds`] and [`RwLocked`] (§5). They move
//! entries and have their own guarantees.
//!
//! # What they cost, and which one is the default
//!
//! Measured with `corewise bench run --section resize -n 1 --repetitions 4`, then the same with
//! `-u 10 --insert-share 90`, the mix of §4.1 (2026-11-22, commit `ef0f554`, a two-core virtual
//! machine that was otherwise idle). One thread and 2^16 entries. In millions of operations a
//! second: lookups at rest with 2^13 and with 2^14 buckets, and lookups while another thread
//! resizes between the two without pause, with the resizes a second; then the mix while the table
//! is resized, with the resizes a second. The intervals are some 10 % to either side at rest, up to
//! 20 % during resizes, and up to 40 % with updates.
//!
//! | table | 2^13 | 2^14 | resizing | resizes/s | mix, resizing | resizes/s |
//! |---|---|---|---|---|---|---|
//! | [`RelativisticMap`] | 8.9 | 13.5 | 9.4 | 371 | 9.0 | 387 |
//! | [`OutOfPlace`] | 11.1 | 16.0 | 12.8 | 606 | 5.0 | 456 |
//! | [`Atc11`] | 11.2 | 16.3 | 12.5 | 527 | 5.1 | 366 |
//! | [`InPlace`] | 10.9 | 15.7 | 12.4 | 454 | 8.9 | 227 |
//! | [`NoAuxiliary`] | 10.7 | 15.3 | 12.5 | 420 | 7.0 | 215 |
//! | [`SortedByReversedHash`] | 9.6 | 15.2 | 11.1 | 438 | | |
//! | [`SortedByHighBits`] | 10.2 | 14.7 | 12.6 | 462 | 6.5 | 400 |
//! | [`Ddds`] | 10.9 | 15.2 | 6.0 | 297 | 5.1 | 268 |
//! | [`RwLocked`] | 8.3 | 11.4 | 0.2 | 478 | 0.0 | 551 |
//!
//! The paper's finding holds: the rate of its lookups during a resize lies between the rates at the
//! two sizes, and so does ours. That of DDDS lies below both. (Relative to our table, DDDS has 1.27
//! and 1.18 at rest, and 0.64, 0.51 to 0.69, during a resize.)
//!
//! *The default* is [`RelativisticMap`]: the out-of-place resize, with updates during all of it.
//! Without updates it is a quarter slower than the paper's own algorithm, at rest as well as during
//! a resize. The presumed reason: its nodes have node IDs of 32 bits instead of addresses. They are
//! translated at each node of chains as long as this benchmark's (4 and 8 entries; its own chains
//! have one), and save 8 bytes an entry. With one update in ten during a resize it has 1.6 times
//! (1.4 - 2.3) the rate of the paper's measured configuration, with the same number of resizes a
//! second, because updates do not wait while a table is built. [`InPlace`], with 0.93 (0.56 - 1.43)
//! of its rate, and [`NoAuxiliary`], with 0.90 (0.51 - 1.58), are not distinguishable from it, with
//! little more than half the resizes a second.
//!
//! *Sorted buckets* (example `sorted_buckets` of commit `53e8774`, 2026-11-22; the benchmark has
//! the tables `chained:sorted-high-bits` and `chained:sorted-reversed`), 8 entries a bucket;
//! medians of the ratios to unsorted buckets, with the lowest and highest of 15. Sorted by high
//! bits, a miss takes 0.81 (0.52 - 1.40), a failed removal 0.75 (0.57 - 1.73), a hit 1.05 (0.52 -
//! 1.66); by the reversed hash 0.97, 0.91 and 1.31. So the gain that §4.3 announces shows in the
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
pub use paper::{Atc11, InPlace, NoAuxiliary, OutOfPlace, SortedByHighBits, SortedByReversedHash};
pub use rwlock::RwLocked;

/// The tables that [`ChainedMap`] supports. Sealed: an implementation needs more than safe code.
pub trait ChainedTable: algorithm::Algorithm {}

impl<A: algorithm::Algorithm> ChainedTable for A {}
