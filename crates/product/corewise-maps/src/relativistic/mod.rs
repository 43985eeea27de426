//! A hash table that resizes without disturbing its readers: lookups never wait or retry.
//!
//! Source: Triplett, McKenney, Walpole, *Resizable, Scalable, Concurrent Hash Tables via
//! Relativistic Programming*, USENIX ATC 2011, §3 to §4.1; cited as \[ATC11\], or as "the paper" in
//! this module.
//!
//! [`RelativisticMap`] is the map, and [`RelativisticSet`] a set of the same kind. `RawTable` is
//! the intrusive table under them, whose callers provide the nodes; the feature `raw` exports it,
//! without promises about later versions.
//!
//! # Layout
//!
//! ```text
//!  RawTable            BucketArray (one, or a few during a resize)
//! ┌─────────┐         ┌──────┬──────┬──────┬─ ─
//! │ current ├────────▶│ word │ word │ word │     a word, 8 bytes: node ID of the first
//! │ oldest  │         └──┬───┴──────┴──────┴─ ─  node, a filter over the chain, five flags
//! └─────────┘            ▼
//!                     ┌──────┬──────┬─────────────┐        ┌──────┬──────┬─────────────┐
//!                     │ next │ hash │ key, value  │        │ next │ hash │ key, value  │
//!                     └──┬───┴──────┴─────────────┘        └──────┴──────┴─────────────┘
//!                        └──────────────────────────────────▲       Node: 8 bytes and K, V
//! ```
//!
//! Nodes are never moved or copied. A node stays at its address until it is removed, and its memory
//! comes from a slab of its map (`slab`). A reference to its value is valid while the guard is
//! held.
//!
//! Words refer to nodes by 32-bit node IDs, which an `Arena` turns into addresses: a map looks up
//! the directory of its slabs once; a cache adds the ID to the base address of its memory.
//!
//! # Guarantees
//!
//! 1. *Lookups* are wait-free: one load of the table pointer, one of the bucket, and two for each
//!    node on the way (its address, and the node). A lookup performs no read-modify-write, no fence
//!    and no retry, whatever other threads do.
//! 2. *A present key is found*, also during a resize and while the key's value is replaced.
//! 3. *Updates are linearizable.* A lookup that begins after an update has returned sees it, also
//!    under a guard that was created earlier. A replacement is atomic: readers find the old value
//!    or the new one.
//! 4. *Progress.* An insertion into a bucket without concurrent updates is one compare-exchange. A
//!    removal or replacement locks the bucket for a handful of stores. While a bucket is being
//!    resized, all its updates lock it. No thread waits for a grace period while it holds a lock.
//! 5. *Resizing* is done in small steps by updates ([`RelativisticMap::settle`] does the rest).
//!    Growth does not wait for readers: expansions are stacked, see `resize`. A thread may update
//!    under a guard that it never drops; then nothing is freed, and chains get longer by half a
//!    node for each doubling.
//! 6. *Panics* in `Hash`, `Eq`, `Clone`, `Drop` and closures leave the map consistent: none of them
//!    runs under a lock or in the middle of an update.
//!
//! # Limits
//!
//! | what | bound | beyond |
//! |---|---|---|
//! | entries | memory; some number from 2^31 to 2^32 | allocation fails as in `std` |
//! | buckets | 2^31 | chains get longer |
//! | load | 3 entries for 4 buckets, [`Builder::automatic_resize`] | the table doubles; below 2^20 buckets it quadruples, and below 2^9 it grows by 8; without memory for that, chains get longer |
//! | removed entries that wait for readers | [`Builder::backlog_limits`], and 64 KiB per thread, by [weight](Builder::weigher) | see [`MapRef::try_upsert`] |
//! | free memory kept for a thread | 256 KiB, and a thousandth of the map's nodes that were never used | goes to the map's other threads, then to the allocator |
//! | free slabs kept | one: 2 MiB at most | are returned to the allocator |
//! | stacked expansions | 46 | chains get longer |
//!
//! # Design choices and rejected alternatives
//!
//! - *Links are 32-bit node IDs*, so that a link and 31 bits of the hash share one 8-byte word and
//!   are read together. With addresses as links, a node of two words took 32 bytes instead of 24.
//!   Most lookups of absent keys end at the 16-bit filter of the bucket and read no node.
//! - *Huge pages* are requested for memory of 2 MiB or more; ARCHITECTURE.md lists what else was
//!   measured.
//! - *The lock of a bucket is a bit of its word*, which an update needs in its cache anyway. A
//!   separate lock would cost a cache line.
//! - *Load 3/4*, see `raw`.

mod builder;
mod bulk;
mod chain;
mod direct;
mod entry;
mod exclusive;
mod handle;
mod iter;
mod lendable;
mod lookup;
mod map;
#[cfg(test)]
mod models;
mod ops;
mod owned;
mod raw;
mod reclaim;
mod removed;
mod resize;
mod resizer;
mod scan;
pub mod set;
mod shares;
mod slab;
mod table;
mod traits;
mod word;

pub use builder::Builder;
pub use bulk::{Drain, ExtractIf};
#[cfg(feature = "raw")]
pub use chain::{Arena, Link};
pub use direct::{Ref, RefIter};
pub use entry::{Entry, ModifiedEntry, OccupiedEntry, VacantEntry};
pub use exclusive::{DrainMut, IntoIter, IterMut, ValuesMut};
pub use handle::MapRef;
#[cfg(feature = "rayon")]
pub use iter::ParIter;
pub use iter::{Iter, Keys, Values};
pub use map::{DefaultHasher, RelativisticMap};
pub use ops::{Changed, Compute, OccupiedError, Operation};
#[cfg(feature = "raw")]
pub use raw::{RawIter, RawTable};
pub use resize::{ResizeError, ResizeState};
#[cfg(feature = "raw")]
pub use resizer::ResizePolicy;
pub use set::{RelativisticSet, SetRef};
#[cfg(feature = "raw")]
pub use word::NodeId;
