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
//! # What they cost
//!
//! `corewise bench run --section resize -n 1 --repetitions 4` (2026-11-22, a two-core virtual machine that was
//! otherwise idle): one reader of 2^16 entries, all present, in millions of lookups a second; at rest with
//! 2^13 and 2^14 buckets, and while another thread resizes between them without pause; resizes a second. The
//! intervals are some 10 % to either side at rest, and up to 20 % beside a resize.
//!
//! | table | 2^13 | 2^14 | resizing | resizes/s |
//! |---|---|---|---|---|
//! | [`RelativisticMap`](crate::RelativisticMap) | 10.1 | 14.6 | 9.5 | 273 |
//! | [`OutOfPlace`] | 10.3 | 15.7 | 12.1 | 568 |
//! | [`Atc11`] | 10.1 | 14.8 | 12.3 | 557 |
//! | [`InPlace`] | 10.4 | 15.0 | 12.9 | 474 |
//! | [`NoAuxiliary`] | 11.3 | 16.1 | 12.6 | 488 |
//! | [`SortedByReversedHash`] | 7.1 | 11.5 | 9.0 | 410 |
//! | [`SplitOrdered`] | 7.1 | 11.3 | 6.4 | 552 |
//! | [`PerEntry`] | 8.4 | 12.5 | 6.0 | 253 |
//! | [`Ddds`] | 10.1 | 14.7 | 5.9 | 289 |
//! | [`RwLocked`] | 10.4 | 11.5 | 0.6 | 446 |
//!
//! So the paper's finding holds: its lookups beside a resize lie between those at the two sizes, DDDS's below
//! both. Ours do not lie between yet: what lets updates go on during all of a resize, and expansions be
//! stacked, costs readers more than the paper's simpler ways.
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
mod modelled;
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
