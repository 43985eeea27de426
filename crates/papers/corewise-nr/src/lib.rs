//! Node replication: turns a sequential data structure into a linearizable concurrent one, with a
//! replica for each NUMA node.
//!
//! Source: \[NR\] (I. Calciu, S. Sen, M. Balakrishnan, M. K. Aguilera, *How to Implement Any
//! Concurrent Data Structure*, CACM 2018).
//!
//! ```text
//!   threads of node 0            threads of node 1
//!   post writes │ read           post writes │ read
//!   ┌───────────▼──────┐         ┌───────────▼──────┐
//!   │ slots, combiner  │         │ slots, combiner  │     one thread at a time combines
//!   ├──────────────────┤         ├──────────────────┤
//!   │ replica          │         │ replica          │     under a readers-writer lock
//!   └──────────▲───────┘         └────────▲─────────┘
//!       applied│                   applied│                executed up to here
//!   ┌──────────┴──────────────────────────┴──────────┐
//!   │ shared log of writes                           │     appended to with one exchange a batch
//!   └────────────────────────────────────────────────┘
//!     min                                       tail
//! ```
//!
//! [`NodeReplicated`] states what it guarantees. [`Sequential`] is what a structure must provide,
//! [`Builder`] has the limits, and [`baseline`] has other methods behind the same interface,
//! [`Concurrent`]. [`SortedSet`] and [`structures`] are structures to replicate.
//!
//! # Several structures that change together
//!
//! Put them into one [`Sequential`] structure whose operations change both; that is what the paper
//! does for Redis' sorted sets (*coupled data structures*):
//!
//! ```
//! use corewise_nr::{NodeReplicated, Sequential};
//! use std::collections::{BTreeSet, HashMap};
//!
//! #[derive(Default)]
//! struct Scores {
//!     by_member: HashMap<u64, u64>,
//!     by_score: BTreeSet<(u64, u64)>,
//! }
//!
//! impl Sequential for Scores {
//!     type Read = u64;
//!     type Write = (u64, u64);
//!     type Response = Option<u64>;
//!     /// The score of a member.
//!     fn read(&self, member: &u64) -> Option<u64> {
//!         self.by_member.get(member).copied()
//!     }
//!     /// Sets a score, and returns the former one.
//!     fn write(&mut self, &(member, score): &(u64, u64)) -> Option<u64> {
//!         let old = self.by_member.insert(member, score);
//!         old.map(|old| self.by_score.remove(&(old, member)));
//!         self.by_score.insert((score, member));
//!         old
//!     }
//! }
//!
//! let scores = NodeReplicated::new(|_| Scores::default());
//! scores.write((7, 100));
//! assert_eq!(scores.write((7, 50)), Some(100));
//! scores.read_with(|scores| assert_eq!(scores.by_member.len(), scores.by_score.len()));
//! ```
//!
//! # Deviations from the paper
//!
//! - There is no `completedTail`, which the paper's combiners raise and its readers load. A replica
//!   is up to date if its next entry is not filled; `replica.rs` says why. The paper raises
//!   `completedTail` for the own batch only, after executing entries of other combiners too, so two
//!   reads at different replicas can be out of order; here they cannot.
//! - A combiner without posted requests appends where the filled entries end, without a load of the
//!   tail, and executes those entries and its own in one critical section.
//! - Indexes of the log are one past the last entry throughout; a reader that waits for a combiner
//!   tries its lock again; a writer that finds the log full advances its own replica first. The
//!   paper's text leaves these open or is off by one.
//! - A reader that refreshes its replica holds the combiner's lock: if it held the readers-writer
//!   lock only, it could execute a batch whose outcomes are still to be delivered.
//! - Writers execute the log on idle replicas; no thread is needed for that.
//! - A lone replica skips the log; see [`Builder::bypass_single`].
//! - Node-local pools are left to the allocator of the program. A replica's memory is placed by the
//!   thread that touches it first.
//!
//! # Limits
//!
//! See [`Builder`]. Targets: those of `corewise-atomic`. Tested on x86-64 Linux.

#[doc = "Its program, as a test."]
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
pub mod baseline;
mod combining;
mod compare;
#[cfg(doctest)]
mod compile_fail;
mod concurrent;
mod discard;
mod handle;
mod log;
mod members;
mod memory;
#[cfg(test)]
mod models;
mod registration;
mod replica;
mod replicated;
mod sequential;
pub mod sorted_set;
pub mod structures;

pub use compare::{Checkpoint, Divergence};
pub use concurrent::{Concurrent, Operation};
pub use handle::{Handle, NoReplica};
pub use members::{
    BuildError, Builder, MAX_LOG, MAX_REPLICAS, MAX_SLOTS, RemoveError, ReplicaId, ReplicaStats,
    ReplicationStats, TooMany,
};
pub use memory::{BlockSource, SetMemory};
pub use replicated::NodeReplicated;
pub use sequential::Sequential;
pub use sorted_set::SortedSet;
