//! The interface of every engine: batches in, completions out.
//!
//! ```text
//!   event loop (one thread)                          engine (shared)
//!   ┌───────────────────────┐   submit(ops, sink)   ┌───────────────┐
//!   │ gather requests of all │ ────────────────────▶ │ a lookup engine│
//!   │ readable connections   │ ◀──── complete() ──── │ answers now    │
//!   │                        │                       ├───────────────┤
//!   │ write replies          │   poll(sink)          │ a message-     │
//!   │                        │ ────────────────────▶ │ passing engine │
//!   │                        │ ◀──── complete() ──── │ answers later  │
//!   └───────────────────────┘                       └───────────────┘
//! ```
//!
//! A lookup engine executes everything inside `submit` and has nothing pending
//! afterwards; a message-passing engine copies the operations into its rings in
//! `submit` and completes them in `poll`. Callers are written for the second
//! and are right for the first.
//!
//! # Guarantees
//!
//! 1. Operations of one session complete in submission order.
//! 2. Keys and values are borrowed only until `submit` returns.
//! 3. After a sink answers [`Flow::Pause`](corewise_ops::Flow::Pause) nothing
//!    more is completed in that call.
//! 4. The number of operations executed in one critical section is bounded by
//!    the engine, not by the length of the batch.
//! 5. No engine blocks its caller for another session's progress beyond a
//!    bounded critical section.

use corewise_ops::{Deadline, ItemView, Now, Op, ReplySink};
use std::sync::Arc;

/// A cache engine, shared by all event loops.
pub trait Engine: Send + Sync + Sized + 'static {
    /// One thread's handle.
    type Session: Session;

    /// The name used on the command line and in figures.
    fn name(&self) -> &'static str;

    /// A handle for one thread.
    fn session(self: &Arc<Self>) -> Self::Session;

    /// Makes everything stored before `at` unreachable once `at` has come;
    /// [`Deadline::PAST`] is at once. When the call with a past deadline
    /// returns, no later operation sees anything stored before the call. Memory
    /// is given back in bounded steps by later operations and
    /// [`Session::maintain`]. A later call replaces a flush that has not come
    /// yet.
    fn flush_all(&self, at: Deadline, now: Now);

    /// The memory budget in bytes.
    fn memory_limit(&self) -> u64;

    /// Changes the memory budget; a smaller one is reached by evicting as later
    /// writes come.
    fn set_memory_limit(&self, bytes: u64);

    /// Says how much memory the engine's owner uses beside it that counts
    /// against the same budget, in bytes. More of it is made up for by evicting
    /// as later writes come. May be called from any thread, and is cheap.
    fn set_overhead(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Counters, summed over the engine. Not a snapshot of one instant.
    fn stats(&self) -> EngineStats;

    /// Statistics of each size class in use, ascending.
    fn size_classes(&self) -> Vec<ClassStats>;

    /// Sets event counters (not gauges) back to zero.
    fn reset_stats(&self);

    /// Shows up to `limit` items of a size class, for debugging, as they stand
    /// at `now`. `show` runs inside critical sections, each of which looks at a
    /// bounded number of items; it should only copy.
    fn sample(&self, size_class: u32, limit: usize, now: Now, show: &mut dyn FnMut(&ItemView<'_>));
}

/// One thread's handle to an engine.
pub trait Session: Send {
    /// Submits operations in order. Returns how many were accepted; fewer than
    /// all means that the sink paused or a queue of the engine is full: make
    /// room (write replies, [`poll`](Self::poll)) and submit the rest.
    fn submit<S: ReplySink>(&mut self, now: Now, ops: &[Op<'_>], sink: &mut S) -> usize;

    /// Delivers completions that have become ready. Returns how many operations
    /// are still pending.
    fn poll<S: ReplySink>(&mut self, now: Now, sink: &mut S) -> usize;

    /// Does a bounded piece of housekeeping (freeing flushed items, say), some
    /// tens of microseconds at most. Returns whether more is waiting.
    fn maintain(&mut self, now: Now) -> bool;

    /// Announces that this thread holds no reference into the engine and may
    /// sleep: a quiescent state that lasts until [`online`](Self::online).
    /// Engines without deferred reclamation ignore it.
    fn offline(&mut self) {}

    /// Ends [`offline`](Self::offline). Nothing may be submitted in between.
    fn online(&mut self) {}
}

/// What an engine counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Items reachable now.
    pub items: u64,
    /// Items ever linked.
    pub total_items: u64,
    /// Bytes charged against the budget: items as the allocator gave them, and
    /// the tables.
    pub bytes: u64,
    /// Of `bytes`, the tables'.
    pub table_bytes: u64,
    /// Bytes of flushed items not yet given back (also in `bytes`).
    pub dead_bytes: u64,
    /// Buckets of all tables.
    pub buckets: u64,
    /// Live items removed to make room.
    pub evictions: u64,
    /// Of those, never read.
    pub evicted_unfetched: u64,
    /// Expired items whose memory went to new ones.
    pub reclaimed: u64,
    /// Expired items removed that were never read.
    pub expired_unfetched: u64,
    /// Stores refused for lack of memory.
    pub out_of_memory: u64,
    /// Seconds since the last use of the item evicted last (the greatest over
    /// shards).
    pub evicted_idle_s: u32,
    /// Independent locks or partitions.
    pub shards: u64,
    /// Expired items whose memory the engine took back by itself, before anyone
    /// asked for them or for their room.
    pub expired_reclaimed: u64,
    /// Bytes of removed items and old tables that wait for readers (also in
    /// `bytes` or not, as the engine keeps them).
    pub backlog_bytes: u64,
    /// Grace periods that have ended.
    pub grace_periods: u64,
    /// The most items found in one chain.
    pub longest_chain: u64,
    /// One while a table is being resized, else zero.
    pub table_resizing: u64,
    /// Expansions under way whose chains are not taken apart yet.
    pub zipped_tables: u64,
    /// Segments of memory that there are.
    pub segments: u64,
    /// Of those, unused.
    pub segments_free: u64,
    /// Bytes of one segment.
    pub segment_bytes: u64,
    /// How often a lock of items was held by somebody else when it was wanted.
    pub lock_waits: u64,
    /// For how long it was then waited for, in nanoseconds, over all threads.
    pub lock_wait_ns: u64,
}

/// What an engine counts per size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// The class, as in [`ItemView::size_class`](corewise_ops::ItemView).
    pub class: u32,
    /// The largest footprint in the class, in bytes.
    pub max_bytes: u64,
    /// Items in it.
    pub items: u64,
    /// Their footprint in bytes.
    pub bytes: u64,
    /// Evictions from it.
    pub evictions: u64,
}
