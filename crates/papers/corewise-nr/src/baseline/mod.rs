//! Other ways to make a sequential structure concurrent (\[NR\] figure 4), to compare with.
//!
//! | name in the paper | type | reads run beside | writes |
//! |---|---|---|---|
//! | SL | [`SpinLocked`] | nothing | one by one |
//! | RWL | [`ReadersWriterLocked`] | reads | one by one |
//! | FC | [`FlatCombining`] | nothing | combined |
//! | FC, structure-specific | [`FlatCombining::with_combining`] | nothing | combined in [`Combine::combine`] |
//! | FC+ | [`FlatCombiningPlus`] | reads | combined; there is a `with_combining`, too |
//!
//! All of them are [`Concurrent`](crate::Concurrent), take any number of threads, and survive
//! operations that panic. An operation that calls the structure that executes it gets a panic, as
//! in node replication: it would wait for itself for ever. The readers-writer lock of RWL and FC+
//! is that of node replication (§3.8), as in the paper.
//!
//! Deviation: Hendler et al. keep publication records in a list from which records age out. Here
//! they are the slots of node replication, which are claimed and given back by threads.

mod flat_combining;
mod locks;

pub use flat_combining::{Batch, Combine, FlatCombining, FlatCombiningPlus};
pub use locks::{ReadersWriterLocked, SpinLocked};

/// Slots of a baseline that belong to one thread each.
const OWN_SLOTS: usize = if cfg!(corewise_stress) { 1 } else { 64 };

/// Slots that all further threads share.
const SHARED_SLOTS: usize = if cfg!(corewise_stress) { 1 } else { 4 };
