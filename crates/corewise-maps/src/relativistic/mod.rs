//! The relativistic hash table: readers that never wait, retry or notice that it is being resized.
//!
//! Paper: Triplett, McKenney, Walpole, *Resizable, Scalable, Concurrent Hash Tables via Relativistic
//! Programming*, USENIX ATC 2011, §3 to §4.1.
//!
//! [`RelativisticMap`] is the map; [`RawTable`] is the table under it, for those who bring nodes of
//! their own.
//!
//! # Layout
//!
//! ```text
//!  RawTable            Table (one, or a few while it is resized)
//! ┌─────────┐         ┌──────┬──────┬──────┬─ ─
//! │ current ├────────▶│ word │ word │ word │       a word, 8 bytes: name of the first node, a filter
//! │ oldest  │         └──┬───┴──────┴──────┴─ ─    of what the chain may hold, four flags
//! └─────────┘            ▼
//!                     ┌──────┬──────┬─────────────┐        ┌──────┬──────┬─────────────┐
//!                     │ next │ hash │ key, value  │        │ next │ hash │ key, value  │
//!                     └──┬───┴──────┴─────────────┘        └──────┴──────┴─────────────┘
//!                        └──────────────────────────────────▲       Node: 8 bytes and K, V
//! ```
//!
//! Nodes never move and are never copied. A node is where it was put until it is removed, and lives
//! in a slab of its map (`slab`); a reference to its value is good as long as the guard is held.
//!
//! Words name nodes by 32-bit numbers, which an [`Arena`] turns into addresses: for a map, by one look
//! into the directory of its slabs; for a cache, by adding them to the address of its memory.
//!
//! # Guarantees
//!
//! 1. *Lookups* are wait-free: one load of the table, one of the bucket, two for each node on the
//!    way (its address, and the node). No read-modify-write, no fence, no retry, whatever else goes on.
//! 2. *A present key is found*, also while the table is resized or the key's value is replaced.
//! 3. *Updates are linearizable.* A lookup that begins after an update has returned sees it, also one
//!    under a guard that was made before. A replacement is one step: readers find the old value or
//!    the new one.
//! 4. *Progress.* An insertion into a bucket that nobody updates is one exchange. A removal or
//!    replacement locks the bucket for a handful of stores. While a bucket is being resized all
//!    updates of it lock it. Nobody waits for a grace period while a lock is held.
//! 5. *Resizing* is done in small steps by those who update ([`RelativisticMap::settle`] does the
//!    rest). Growth waits for no reader: expansions are stacked, see `resize`. A thread may update
//!    under a guard that it holds for ever; then nothing is freed, and chains get longer by half a
//!    node for each doubling.
//! 6. *Panics* in `Hash`, `Eq`, `Clone`, `Drop` and closures leave the map whole: none of them runs
//!    under a lock or in the middle of an update.
//! 7. *Iteration*: see [`MapRef::iter`].
//!
//! # Limits
//!
//! | what | bound | beyond |
//! |---|---|---|
//! | entries | memory; some number from 2^31 to 2^32 | allocation fails as in `std` |
//! | buckets | 2^31 | chains get longer |
//! | load | 3 entries for 4 buckets, [`Builder::automatic_resize`] | the table doubles; if there is no memory for that, chains get longer |
//! | removed entries that wait for readers | [`Builder::backlog_limits`], and 64 KiB a thread | see [`MapRef::try_upsert`] |
//! | free memory kept for a thread | 256 KiB | it goes to the map's other threads, then to the allocator |
//! | free slabs kept | one, and a thread's fresh one: 2 MiB each at most | they are given back |
//! | stacked expansions | 46 | chains get longer |
//!
//! # Choices, and what was rejected
//!
//! - *Links are names of 32 bits*, so that a link and 31 bits of the hash are one word of 8 bytes, and
//!   read together. With addresses for links a node of two words had 32 bytes instead of 24. Most
//!   lookups of absent keys end at the 16-bit filter of the bucket and look at no node.
//! - *Huge pages* are asked for where memory is 2 MiB or more, see ARCHITECTURE.md for what else was
//!   measured.
//! - *The lock of a bucket is a bit of its word*, which an update must have in its cache anyway. A
//!   lock on the side would be a line of its own.
//! - *Load 3/4*, see `raw`.

mod chain;
mod iter;
mod map;
#[cfg(test)]
mod models;
mod ops;
mod owned;
mod raw;
// Models are built without features.
#[cfg(any(feature = "rename", corewise_loom, corewise_shuttle))]
pub mod rename;
mod resize;
mod scan;
mod slab;
mod table;
mod traits;
mod word;

pub use chain::{Arena, Link};
#[cfg(feature = "rayon")]
pub use iter::ParIter;
pub use iter::{Iter, Keys, Values};
pub use map::{Builder, DefaultHasher, MapRef, RelativisticMap};
pub use ops::{Changed, Compute, Entry, OccupiedEntry, OccupiedError, Operation, VacantEntry};
pub use raw::{Policy, RawIter, RawTable};
pub use resize::{ResizeError, ResizeState};
pub use word::NodeId;
