//! Chained tables for comparison: the resize variations of the relativistic hash table, and the tables
//! that its paper compares it with.
//!
//! Paper: Triplett, McKenney, Walpole, *Resizable, Scalable, Concurrent Hash Tables via Relativistic
//! Programming*, USENIX ATC 2011, §4 to §5.
//!
//! [`RelativisticMap`](crate::RelativisticMap) is the table to use. These are what it was chosen from:
//! one façade, [`ChainedMap`], over tables that differ in how they are resized and in nothing else. A node
//! is a box of a link (the next node, the hash), the key and the value; removed nodes are freed a grace
//! period later; the number of buckets is a power of two and changes when [`ChainedMap::resize_to`] says
//! so.
//!
//! # The tables
//!
//! | algorithm | the larger table | the smaller table | waits for readers |
//! |---|---|---|---|
//! | [`OutOfPlace`] | copied, unzipped (§4) | copied, cross-linked (§4) | a run of each chain a wait, and one; a shrink one |
//! | [`Atc11`] | copied, unzipped | in place (§4.2): what §6.1 measured | the same |
//! | [`InPlace`] | in place, unzipped (§4.2) | in place | the same |
//! | [`NoAuxiliary`] | copied, unzipped without the old table's help (§4) | copied | the same |
//! | [`SortedByReversedHash`] | copied; chains sorted by the reversed hash (§4.3), one cut | copied | 2; a shrink one |
//! | [`SortedByHighBits`] | the same; buckets by the high bits of the hash (§4.3) | copied | 2; a shrink one |
//! | [`SplitOrdered`] | one more segment of buckets; lock-free updates (§2, future work) | the last segments are freed | none; a shrink 2 |
//! | [`PerEntry`] | entries are moved one by one (Linux's rhashtable) | the same | 1 |
//!
//! And the [baselines](crate::baseline): [`Ddds`] and [`RwLocked`] (§5), which move entries. They have guarantees of
//! their own.
//!
//! # What they cost, and which one is the default
//!
//! `corewise bench run --section resize -n 1 --repetitions 4`, then the same with `-u 10 --insert-share 90`, the mix
//! of §4.1 (2026-11-22, commit `ef0f554`, a two-core virtual machine that was otherwise idle): one thread and 2^16
//! entries, in millions of operations a second: lookups at rest with 2^13 and 2^14 buckets, and while another thread
//! resizes between them without pause; resizes a second; then the mix while it is resized, and resizes a second. The
//! intervals are some 10 % to either side at rest, up to 20 % beside a resize, and up to 40 % with updates.
//!
//! | table | 2^13 | 2^14 | resizing | resizes/s | mix, resizing | resizes/s |
//! |---|---|---|---|---|---|---|
//! | [`RelativisticMap`](crate::RelativisticMap) | 8.9 | 13.5 | 9.4 | 371 | 9.0 | 387 |
//! | [`OutOfPlace`] | 11.1 | 16.0 | 12.8 | 606 | 5.0 | 456 |
//! | [`Atc11`] | 11.2 | 16.3 | 12.5 | 527 | 5.1 | 366 |
//! | [`InPlace`] | 10.9 | 15.7 | 12.4 | 454 | 8.9 | 227 |
//! | [`NoAuxiliary`] | 10.7 | 15.3 | 12.5 | 420 | 7.0 | 215 |
//! | [`SortedByReversedHash`] | 9.6 | 15.2 | 11.1 | 438 | | |
//! | [`SortedByHighBits`] | 10.2 | 14.7 | 12.6 | 462 | 6.5 | 400 |
//! | [`SplitOrdered`] | 7.6 | 11.7 | 6.8 | 570 | 6.8 | 364 |
//! | [`PerEntry`] | 7.9 | 13.5 | 6.4 | 248 | 4.8 | 198 |
//! | [`Ddds`] | 10.9 | 15.2 | 6.0 | 297 | 5.1 | 268 |
//! | [`RwLocked`] | 8.3 | 11.4 | 0.2 | 478 | 0.0 | 551 |
//!
//! The paper's finding holds: its lookups beside a resize lie between those at the two sizes, and so do ours;
//! DDDS's lie below both. (Of ours at rest DDDS has 1.27 and 1.18, beside a resize 0.64, 0.51 to 0.69.)
//!
//! *The default* is [`RelativisticMap`](crate::RelativisticMap), the out-of-place resize with updates that go on
//! during all of it. Where nothing is updated it loses a quarter to the paper's own, at rest as beside a
//! resize: presumably since its nodes have names of 32 bits instead of addresses, which are translated at each node of
//! chains as long as this benchmark's (4 and 8 entries; its own are of one), and save 8 bytes an entry. With one update in ten
//! beside a resize it has 1.6 times (1.4 - 2.3) what the paper's measured configuration has, at as many resizes a
//! second: updates do not wait while a table is built. [`InPlace`] with 0.93 (0.56 - 1.43) and [`NoAuxiliary`] with
//! 0.90 (0.51 - 1.58) of it are not told apart from it, at little more than half as many resizes a second.
//!
//! *Sorted buckets*: `cargo run --release -p corewise-maps --example sorted_buckets` (2026-11-22, commit `53e8774`), 8 entries
//! a bucket, medians of the ratios to unsorted ones, and the lowest and highest of 15: by high bits a miss takes 0.81
//! (0.52 - 1.40), a failed removal 0.75 (0.57 - 1.73), a hit 1.05 (0.52 - 1.66); by the reversed hash 0.97, 0.91 and
//! 1.31. So what §4.3 announces is there in the medians at most: half of a short chain is saved, and a comparison
//! more is made at each node.
//!
//! # Guarantees
//!
//! 1. *Lookups* of these are wait-free, whatever else goes on, and find what is in the table. (Those of
//!    [`PerEntry`] may start again, beside a resize, once for each entry of the bucket.)
//! 2. *Updates* are linearizable. Those of [`SplitOrdered`] are lock-free. The others lock one of up to 1,024
//!    stripes of buckets, in which keys are compared (`K::eq` must not use the map). While a table is being
//!    made by a resize they all wait: for one walk over it (§4.1: *during the initial period … our resizers
//!    block all updates*), but not in [`PerEntry`]. After that each bucket is locked for its own moments only.
//!    Nobody waits for readers with a lock in hand.
//! 3. *A resize* is done by its caller, who waits for readers. Others that ask wait for the first.
//! 4. *Panics* in `Hash` and `Eq` leave the map as it was.
//!
//! # Limits
//!
//! Buckets: memory; 2^26 for tables that are resized in place, whose addresses are reserved at once.
//! Removed entries that wait for readers: the domain's limits; a handle that is dropped outside of other
//! sections helps when they are exceeded.

mod algorithm;
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
mod per_entry;
mod rwlock;
mod space;
mod split_ordered;
mod unsorted;

pub use algorithm::Resized;
pub use ddds::Ddds;
pub use map::{ChainedMap, ChainedRef};
pub use paper::{Atc11, InPlace, NoAuxiliary, OutOfPlace, SortedByHighBits, SortedByReversedHash};
pub use per_entry::PerEntry;
pub use rwlock::RwLocked;
pub use split_ordered::SplitOrdered;

/// The tables that [`ChainedMap`] may be over. Sealed: an implementation needs more than safe code.
pub trait Table: algorithm::Algorithm {}

impl<A: algorithm::Algorithm> Table for A {}
