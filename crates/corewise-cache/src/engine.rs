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

use crate::reservation::Reservation;
use corewise_ops::{Deadline, ItemView, Now, Op, ReplySink, Store, Verb};
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

    /// Shows some items as they stand at `now` and says where to go on. One step looks at some
    /// `most_looks` items and buckets, and at least at one; a scan is the sequence of steps from
    /// [`Cursor::START`] until one returns [`ScanStep::Done`].
    ///
    /// 1. An item that is live from the first step to the last is shown at least once, whatever is
    ///    stored, deleted, evicted or resized meanwhile; an overwritten one is shown in one of its
    ///    versions. In `relativistic` it is shown exactly once. In `locked` and `global-lock` a shard
    ///    whose table was rehashed between two steps is shown again from its beginning, and
    ///    [`ScanStep::Lost`] is returned if that happens eight times to one shard.
    /// 2. Nothing is kept between steps: a scan may be left at any time, and any number of them may
    ///    run side by side. Any cursor is valid; one that no step returned shows some part of the
    ///    items.
    /// 3. A scan ends: a cursor only moves forwards, but for the restarts of 1.
    ///
    /// `show` runs inside critical sections; it should only copy.
    fn scan(
        &self,
        cursor: Cursor,
        most_looks: usize,
        now: Now,
        show: &mut dyn FnMut(&ItemView<'_>),
    ) -> ScanStep;
}

/// One thread's handle to an engine.
pub trait Session: Send {
    /// Submits operations in order. Returns how many were accepted; fewer than
    /// all means that the sink paused or a queue of the engine is full: make
    /// room (write replies, [`poll`](Self::poll)) and submit the rest.
    fn submit<S: ReplySink>(&mut self, now: Now, ops: &[Op<'_>], sink: &mut S) -> usize;

    /// Makes an item for `key` whose value of `value_len` bytes is still to come, and which nobody finds
    /// before it is [stored](Self::submit_reserved). `None` if the value had better be stored by copying it:
    /// it is small, there is no room, or much is reserved already.
    ///
    /// Nothing but the memory is decided here: neither the condition of the store nor its deadline.
    fn reserve(
        &mut self,
        now: Now,
        key: &[u8],
        value_len: usize,
        client_flags: u32,
    ) -> Option<Reservation> {
        let _ = (now, key, value_len, client_flags);
        None
    }

    /// [Submits](Self::submit) a store whose value is that of `reservation`, in the place of the
    /// operation's own; any other verb is executed as it is. Returns whether it was accepted.
    ///
    /// The value is not copied if the reservation is this engine's, full, and for the same key and client
    /// flags, unless the cache was flushed since it was made.
    fn submit_reserved<S: ReplySink>(
        &mut self,
        now: Now,
        op: &Op<'_>,
        reservation: Reservation,
        sink: &mut S,
    ) -> bool {
        self.submit(now, &[op_of(op, &reservation)], sink) == 1
    }

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

/// Where a scan goes on: 64 bits that mean something to the engine that returned them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(u64);

impl Cursor {
    /// The beginning of a scan: the number 0, which no step returns.
    pub const START: Self = Self(0);

    /// The number, for a protocol that hands cursors to its clients.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The inverse of [`Cursor::to_bits`].
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// What became of one step of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a scan goes on until a step returns `Done` or `Lost`"]
pub enum ScanStep {
    /// There is more, from here on.
    More(Cursor),
    /// Everything was shown.
    Done,
    /// The scan cannot be completed: see [`Engine::scan`], 1.
    Lost,
}

/// The operation with the reservation's value.
pub(crate) fn op_of<'a>(op: &Op<'a>, reservation: &'a Reservation) -> Op<'a> {
    let verb = match op.verb {
        Verb::Store(store) => Verb::Store(Store {
            value: reservation.value(),
            ..store
        }),
        verb => verb,
    };
    Op { verb, ..*op }
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
    /// Of those, never read.
    pub evicted_unfetched: u64,
    /// Of those, items with a deadline.
    pub evicted_with_deadline: u64,
    /// Seconds since the last use of the item evicted last (the greatest over sessions or shards).
    pub evicted_idle_s: u32,
    /// Expired items whose memory went to new ones.
    pub reclaimed: u64,
    /// Expired items removed that were never read.
    pub expired_unfetched: u64,
}
