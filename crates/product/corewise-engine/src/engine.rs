//! The interface of every engine: it takes batches of operations and delivers completions.
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
//! A lookup engine executes everything inside `submit` and has nothing pending afterwards. A
//! message-passing engine copies the operations into its rings in `submit` and completes them in
//! `poll`. [`Session::LATE`] tells which kind an engine is.
//!
//! # Guarantees
//!
//! 1. Operations of one session complete in submission order.
//! 2. Keys and values are borrowed only until `submit` returns.
//! 3. After a sink answers [`Flow::Pause`](corewise_ops::Flow::Pause), that call completes nothing
//!    more.
//! 4. The engine, not the length of the batch, bounds the number of operations executed in one
//!    critical section.
//! 5. No engine blocks its caller for another session's progress beyond a bounded critical section.

use crate::reservation::Reservation;
use corewise_ops::database::DATABASES;
use corewise_ops::{Deadline, ItemView, Now, Op, ReplySink, Store, Update, Updated, Verb};
use std::sync::Arc;
use std::task::Waker;

/// A cache engine, shared by all event loops.
pub trait Engine: Send + Sync + Sized + 'static {
    /// The handle of one thread.
    type Session: Session;

    /// The engine's name on the command line and in figures.
    fn name(&self) -> &'static str;

    /// Creates a handle for one thread.
    fn session(self: &Arc<Self>) -> Self::Session;

    /// Makes everything stored before `at` unreachable once `at` has come; [`Deadline::PAST`] means
    /// at once.
    ///
    /// When a call with a past deadline returns, no later operation sees anything stored before the
    /// call. Later operations and [`Session::maintain`] give the memory back in bounded steps. A
    /// later call replaces a flush that is not yet due.
    fn flush_all(&self, at: Deadline, now: Now);

    /// The memory budget in bytes.
    fn memory_limit(&self) -> u64;

    /// The largest memory budget that [`set_memory_limit`](Self::set_memory_limit) can set.
    fn most_memory(&self) -> u64 {
        u64::MAX
    }

    /// Changes the memory budget. After a reduction, later writes evict until the budget is met. A
    /// larger number counts as [`most_memory`](Self::most_memory).
    fn set_memory_limit(&self, bytes: u64);

    /// Sets the number of bytes that the engine's owner uses beside the engine and that count
    /// against the same budget.
    ///
    /// After an increase, later writes evict to make up for it. May be called from any thread, and
    /// is cheap.
    fn set_overhead(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Bytes that the engine holds beyond what the budget leaves it and that eviction is still to
    /// give back. 0 where eviction cannot.
    fn excess(&self) -> u64 {
        0
    }

    /// Counters since the start, summed over the engine, and gauges. They are not a snapshot of one
    /// instant. Of two calls that are ordered, the second returns no smaller counters.
    fn stats(&self) -> EngineStats;

    /// Statistics of each size class in use, ascending, likewise.
    fn size_classes(&self) -> Vec<ClassStats>;

    /// Shows some items as they stand at `now` and returns where to continue.
    ///
    /// One step looks at about `most_looks` items and buckets, and at one at least. A scan is the
    /// sequence of steps from [`Cursor::START`] until a step returns [`ScanStep::Done`].
    ///
    /// 1. An item that is live from the first step to the last is shown at least once, whatever is
    ///    stored, deleted, evicted or resized meanwhile. An overwritten item is shown in one of its
    ///    versions. In `relativistic` and `lockhash` it is shown exactly
    ///    once. In `locked` and `global-lock`, a
    ///    shard whose table was rehashed between two steps is shown again from its beginning;
    ///    [`ScanStep::Lost`] is returned if that happens eight times to one shard.
    /// 2. Nothing is kept between steps: a scan may be abandoned at any time, and any number of
    ///    scans may run concurrently. Any cursor is valid; one that no step returned shows some
    ///    part of the items.
    /// 3. A scan ends: a cursor only moves forwards, except for the restarts of guarantee 1.
    ///
    /// `show` runs inside critical sections; it should only copy.
    fn scan(
        &self,
        cursor: Cursor,
        most_looks: usize,
        now: Now,
        show: &mut dyn FnMut(&ItemView<'_>),
    ) -> ScanStep;

    /// A cursor within a scan: at its beginning for 0, near its end for the greatest number, and
    /// evenly in between. Takes constant time, and one lock at most.
    fn position(&self, fraction: u32) -> Cursor {
        let _ = fraction;
        Cursor::START
    }
}

/// Multiplies a number with a fraction of 2^32. Returns the whole part of the product, and the
/// fraction that is left.
pub(crate) fn scale(number: usize, fraction: u32) -> (usize, u32) {
    let product = number as u64 * u64::from(fraction);
    ((product >> 32) as usize, product as u32)
}

/// One thread's handle to an engine.
pub trait Session: Send {
    /// Whether operations may be pending after [`submit`](Self::submit). The caller then goes on
    /// with other work, and saves what it needs to print their replies. Otherwise every operation
    /// completes in `submit`: where the sink pauses, no later one has been executed.
    const LATE: bool = false;

    /// The number of operations that the next [`submit`](Self::submit) accepts at least, unless the
    /// sink pauses.
    fn room(&self) -> usize {
        usize::MAX
    }

    /// Sets what wakes this thread when operations that were pending can be polled. Meant for
    /// [`LATE`](Self::LATE) sessions.
    fn set_waker(&mut self, waker: Waker) {
        drop(waker);
    }

    /// Submits operations in order and returns how many were accepted.
    ///
    /// Fewer than all means that the sink paused or that a queue of the engine is full. Make room
    /// (write replies, [`poll`](Self::poll)) and submit the rest.
    fn submit<S: ReplySink>(&mut self, now: Now, ops: &[Op<'_>], sink: &mut S) -> usize;

    /// Allocates an item for `key` whose value of `value_len` bytes is still to be received, except
    /// for `arrived` bytes.
    ///
    /// No operation finds the item before it is [stored](Self::submit_reserved). Returns `None` if
    /// the value had better be stored by copying it: the value is small, there is no room, or much
    /// is reserved already for the part of the values that has arrived.
    ///
    /// This reserves memory only: the condition of the store and its deadline are those of the
    /// operation that is submitted.
    fn reserve(
        &mut self,
        now: Now,
        key: &[u8],
        value_len: usize,
        client_flags: u32,
        arrived: usize,
    ) -> Option<Reservation> {
        let _ = (now, key, value_len, client_flags, arrived);
        None
    }

    /// [Submits](Self::submit) a store with the value of `reservation` instead of the operation's
    /// value. Returns whether it was accepted.
    ///
    /// Any other verb is executed unchanged. The value is not copied if the reservation is this
    /// engine's, is full, and was made for the same key and client flags, unless the cache was
    /// flushed since it was made.
    fn submit_reserved<S: ReplySink>(
        &mut self,
        now: Now,
        op: &Op<'_>,
        reservation: Reservation,
        sink: &mut S,
    ) -> bool {
        self.submit(now, &[op_of(op, &reservation)], sink) == 1
    }

    /// Executes a change of one item, atomically with respect to every other operation on `key`.
    ///
    /// May be called only when no operation of this session is pending. A present item counts as
    /// read, whatever the change is. Like a verb it holds what excludes the writers of the key, and
    /// takes time in proportion to the value that it writes.
    fn update(&mut self, now: Now, key: &[u8], update: &mut dyn Update) -> Updated;

    /// Delivers completions that have become ready. Returns how many operations are still pending.
    fn poll<S: ReplySink>(&mut self, now: Now, sink: &mut S) -> usize;

    /// Does a bounded piece of housekeeping (such as freeing flushed items) that takes some tens of
    /// microseconds at most. Returns whether more is waiting.
    fn maintain(&mut self, now: Now) -> bool;

    /// Announces that this thread holds no reference into the engine and may sleep.
    ///
    /// This is a quiescent state that lasts until [`online`](Self::online). Engines without
    /// deferred reclamation ignore it.
    ///
    /// Returns whether the thread may sleep until an event or its [waker](Self::set_waker) wakes
    /// it. False if an operation can be polled now, or if pending operations need this thread.
    fn offline(&mut self) -> bool {
        true
    }

    /// Ends [`offline`](Self::offline). Nothing may be submitted between the two calls.
    fn online(&mut self) {}
}

/// The position at which a scan continues: 64 bits that only the engine that returned them can
/// interpret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(u64);

impl Cursor {
    /// The beginning of a scan: the number 0, which no step returns.
    pub const START: Self = Self(0);

    /// The cursor as a number, for a protocol that hands cursors to its clients.
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

/// The result of one step of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a scan goes on until a step returns `Done` or `Lost`"]
pub enum ScanStep {
    /// The scan continues from this cursor.
    More(Cursor),
    /// All items have been shown.
    Done,
    /// The scan cannot be completed: see guarantee 1 of [`Engine::scan`].
    Lost,
}

/// The operation with its value replaced by the reservation's.
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

/// Counters and gauges of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Items reachable now.
    pub items: u64,
    /// The part of `items` whose keys have the [prefix](corewise_ops::database) of this number.
    pub prefixed: [u64; DATABASES],
    /// Flushed items of these keys that are not yet unlinked, at most. (`prefixed` and these
    /// together are no fewer than the items that can be found, while no operation runs.)
    pub dead_prefixed: [u64; DATABASES],
    /// Items ever linked.
    pub total_items: u64,
    /// Bytes charged against the budget: items as the allocator gave them, the tables, and sets.
    pub bytes: u64,
    /// The part of `bytes` that the tables take.
    pub table_bytes: u64,
    /// Bytes of flushed items not yet given back (also in `bytes`).
    pub dead_bytes: u64,
    /// Buckets of all tables.
    pub buckets: u64,
    /// Live items removed to make room.
    pub evictions: u64,
    /// Evicted items that were never read.
    pub evicted_unfetched: u64,
    /// Expired items whose memory went to new ones.
    pub reclaimed: u64,
    /// Expired items removed that were never read.
    pub expired_unfetched: u64,
    /// Stores refused for lack of memory.
    pub out_of_memory: u64,
    /// Sorted sets that are not flat, and filters.
    pub sets: u64,
    /// Bytes of these sets, and of those that are yet to be freed (also in `bytes`).
    pub set_bytes: u64,
    /// Bytes that are resident for these sets beside `set_bytes`: free room on their pages. The
    /// budget counts them too.
    pub set_slack_bytes: u64,
    /// Seconds since the last use of the item evicted last (the maximum over shards).
    pub evicted_idle_s: u32,
    /// Independent locks or partitions.
    pub shards: u64,
    /// Expired items that the engine reclaimed by itself, before an operation asked for them or for
    /// their memory.
    pub expired_reclaimed: u64,
    /// Bytes of removed items and old tables that wait for a grace period (included in `bytes` or
    /// not, depending on the engine).
    pub backlog_bytes: u64,
    /// Grace periods that have ended.
    pub grace_periods: u64,
    /// The most items found in one chain.
    pub longest_chain: u64,
    /// One while a table is being resized, otherwise zero.
    pub table_resizing: u64,
    /// Expansions in progress whose chains are not yet unzipped.
    pub zipped_tables: u64,
    /// Segments of memory in total.
    pub segments: u64,
    /// Segments that are unused.
    pub segments_free: u64,
    /// Bytes of one segment.
    pub segment_bytes: u64,
    /// How often a thread that wanted a lock of items found it held by another thread.
    pub lock_waits: u64,
    /// Nanoseconds spent waiting for those locks, over all threads.
    pub lock_wait_ns: u64,
}

impl EngineStats {
    /// The items of a [database](corewise_ops::database).
    #[must_use]
    pub fn items_of(&self, database: u8) -> u64 {
        match database {
            0 => self.items.saturating_sub(self.prefixed[1..].iter().sum()),
            n => self.prefixed.get(usize::from(n)).copied().unwrap_or(0),
        }
    }

    /// Whether a database other than 0 has no items for certain, if no operation runs.
    #[must_use]
    pub fn is_empty(&self, database: u8) -> bool {
        let of = |counts: &[u64; DATABASES]| counts.get(usize::from(database)).copied();
        of(&self.prefixed) == Some(0) && of(&self.dead_prefixed) == Some(0)
    }
}

/// Counters and gauges of one size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// The class, as in [`ItemView::size_class`](corewise_ops::ItemView).
    pub class: u32,
    /// The largest footprint in the class, in bytes.
    pub max_bytes: u64,
    /// Items in the class.
    pub items: u64,
    /// Footprint of these items in bytes.
    pub bytes: u64,
    /// Evictions from the class.
    pub evictions: u64,
    /// Evicted items that were never read.
    pub evicted_unfetched: u64,
    /// Evicted items that had a deadline.
    pub evicted_with_deadline: u64,
    /// Seconds since the last use of the item evicted last (the maximum over sessions or shards).
    pub evicted_idle_s: u32,
    /// Expired items whose memory went to new ones.
    pub reclaimed: u64,
    /// Expired items removed that were never read.
    pub expired_unfetched: u64,
}
