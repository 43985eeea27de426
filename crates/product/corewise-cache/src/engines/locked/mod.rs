//! The engine `locked`: a lock, a hash table and an LRU list per shard.
//!
//! The baseline of every later figure, made as fast as this design allows: the hash is computed
//! once, values are copied outside the lock, memory is freed outside the lock, and a batch's cache
//! misses overlap.
//!
//! ```text
//!   hash of the key ─┬─ bits 40.. ──▶ shard ┌─────────────────────────────────┐
//!                    │                      │ hint: where the table lies       │ read without
//!                    │                      ├─────────────────────────────────┤ the lock, only
//!                    │                      │ Mutex                            │ to prefetch
//!                    └─ hashbrown ─────────▶│   table: HashTable<item pointer> │
//!                                           │   lru:   most recent … least     │
//!                                           │   dead:  flushed, not yet freed  │
//!                                           │   bytes, cas counter, statistics │
//!                                           └─────────────────────────────────┘
//! ```
//!
//! # A batch
//!
//! The engine executes operations in windows of [`WINDOW`]. For each window it hashes every key and
//! prefetches its table group; then it looks each item up under its lock, only to prefetch it; then
//! it executes each operation under its lock, in order. The three passes turn a chain of dependent
//! cache misses per operation into three rounds of misses that overlap across operations.
//!
//! # Disciplines
//!
//! [`References`] defines how long a hit excludes others: until its reply is made
//! ([`NoReferences`], this engine), or until it holds a reference to its item ([`ReferenceCount`],
//! the engine [`global_lock`](super::global_lock), which has one shard and prefetches nothing). The
//! guarantees below are those of the first.
//!
//! # Guarantees
//!
//! 1. Operations on one key are atomic and totally ordered (its shard's lock).
//! 2. A thread holds at most one lock at a time and calls nothing but the sink while holding it, so
//!    there is no deadlock.
//! 3. Eviction order is LRU per shard, exact to an eighth of the age at which items are evicted
//!    (see `shard.rs`). The budget is split evenly over shards.
//! 4. Memory charged is what the allocator gave for items plus what the tables take. It is at most
//!    the budget (less the owner's overhead), except that a table that has to grow takes its memory
//!    first and evicts for it at the next store.
//! 5. A critical section executes one operation. It evicts enough items to make room for that
//!    operation's item; only a large item needs many evictions.
//! 6. Expired items are removed by [`Session::maintain`], in steps, within seconds (see `expiry`).
//! 7. Progress: blocking. A thread preempted inside a shard delays the others of that shard.

mod exec;
mod references;
mod scan;
mod shard;

use super::delayed_flush::DelayedFlush;
use super::expiry::ExpirySearch;
use crate::alloc::{GlobalHeap, ItemAllocator};
use crate::contention;
use crate::engine::{ClassStats, Cursor, Engine, EngineStats, ScanStep, Session};
use crate::item;
use corewise_atomic::CachePadded;
use corewise_atomic::lock::{Mutex, MutexGuard};
use corewise_atomic::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use corewise_ops::{Deadline, Flow, ItemView, Now, Op, ReplySink, Update, Updated};
use exec::Exec;
pub use references::{NoReferences, ReferenceCount, References};
use shard::{Ptr, Shard, TableHint};
use std::hash::BuildHasher;
use std::sync::Arc;

/// Operations whose cache misses overlap.
pub const WINDOW: usize = 32;

/// Flushed items freed by one [`Session::maintain`].
const MAINTENANCE_STEP: usize = 256;

/// The most shards an engine may have.
pub const MAX_SHARDS: usize = 1 << 12;

/// What to do when the budget is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// Remove the least recently used items.
    #[default]
    Lru,
    /// Refuse new items (memcached's `-M`).
    Refuse,
}

/// Configuration of the engine.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The memory budget in bytes.
    pub memory: u64,
    /// The largest item in bytes: key, value, and 4 bytes for client flags other than 0.
    pub max_item_bytes: usize,
    /// What to do at the budget.
    pub eviction: Eviction,
    /// Threads that will use the engine. There are sixteen shards per thread, fewer if a shard's
    /// budget would not hold sixteen of the largest items.
    pub threads: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            memory: 1 << 30,
            max_item_bytes: 1 << 20,
            eviction: Eviction::Lru,
            threads: 4,
        }
    }
}

impl Config {
    /// The number of shards or partitions, a power of two.
    pub(super) fn shards(&self) -> usize {
        let for_threads = self.threads.clamp(1, MAX_SHARDS / 16) * 16;
        let for_items = (self.memory / 16 / self.max_item_bytes.max(1) as u64).max(1);
        let most = usize::try_from(for_items)
            .unwrap_or(MAX_SHARDS)
            .min(for_threads.next_power_of_two());
        1 << most.ilog2()
    }
}

/// A shard and the part of it that may be read without its lock.
struct Slot<R: References> {
    hint: TableHint,
    shard: Mutex<Shard<R>>,
}

impl<R: References> Slot<R> {
    /// Takes the shard's lock and counts the time it waited, if any.
    #[inline]
    fn lock(&self) -> MutexGuard<'_, Shard<R>> {
        let (mut shard, waited) = contention::lock(&self.shard);
        if let Some(ns) = waited {
            shard.tally().waited(ns);
        }
        shard
    }
}

/// The engine. See the [module](self).
pub struct Locked<A: ItemAllocator = GlobalHeap, R: References = NoReferences> {
    slots: Box<[CachePadded<Slot<R>>]>,
    hasher: foldhash::fast::RandomState,
    allocator: A,
    max_item_bytes: usize,
    eviction: Eviction,
    memory: AtomicU64,
    /// Bytes that the owner uses of the budget.
    overhead: AtomicU64,
    delayed_flush: DelayedFlush,
    expiry: ExpirySearch,
    /// Completed flushes. A session with a lower count has items to free.
    flushes: AtomicUsize,
}

impl<R: References> Locked<GlobalHeap, R> {
    /// An engine whose items live in the global heap.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::with_allocator(config, GlobalHeap)
    }
}

impl<A: ItemAllocator, R: References> Locked<A, R> {
    /// An engine whose items come from `allocator`.
    #[must_use]
    pub fn with_allocator(config: Config, allocator: A) -> Self {
        let count = if R::COUNTED { 1 } else { config.shards() };
        let slots = (0..count)
            .map(|index| {
                let shard = Shard::new(index as u64, count as u64);
                CachePadded::new(Slot {
                    hint: TableHint::new(),
                    shard: Mutex::new(shard),
                })
            })
            .collect();
        Self {
            slots,
            hasher: foldhash::fast::RandomState::default(),
            allocator,
            max_item_bytes: config.max_item_bytes,
            eviction: config.eviction,
            memory: AtomicU64::new(config.memory),
            overhead: AtomicU64::new(0),
            delayed_flush: DelayedFlush::new(),
            expiry: ExpirySearch::new(),
            flushes: AtomicUsize::new(0),
        }
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    #[inline]
    fn slot(&self, hash: u64) -> &Slot<R> {
        // Uses neither the low bits (hashbrown's bucket) nor the top seven (its tag).
        let index = (hash >> 40) as usize & (self.slots.len() - 1);
        &self.slots[index]
    }

    /// A shard's share of the memory that the owner leaves. The engine keeps half of the memory
    /// whatever the owner uses, so that a flood of requests cannot empty the cache.
    fn budget_per_shard(&self) -> usize {
        // Relaxed: settings; any recent values will do.
        let memory = self.memory.load(Ordering::Relaxed);
        let overhead = self.overhead.load(Ordering::Relaxed);
        let left = memory.saturating_sub(overhead).max(memory / 2);
        usize::try_from(left / self.slots.len() as u64).unwrap_or(usize::MAX)
    }

    /// Performs a delayed flush whose time has come. Called once per batch.
    #[inline]
    fn flush_if_due(&self, now: Now) {
        self.delayed_flush.run_if_due(now, || self.flush_now());
    }

    fn flush_now(&self) {
        for slot in &self.slots {
            let table = slot.lock().flush(&slot.hint);
            drop(table); // outside the lock: it may be large
        }
        // Release: pairs with the Acquire in `maintain`, so that a session that sees the count
        // finds the items.
        self.flushes.fetch_add(1, Ordering::Release);
    }

    /// Frees unreachable items.
    ///
    /// # Safety
    ///
    /// 1. The items were made by this engine, and given up: discarded, or handed out as garbage by
    ///    one of its shards. They are not used any more.
    unsafe fn free(&self, garbage: &mut Vec<Ptr<R>>) {
        for node in garbage.drain(..) {
            // SAFETY: by 1 they were made with this allocator, and unlinked from table and lists
            // under their shard's lock; views of them ended with the sink's call inside that lock,
            // or before the last reference was dropped under it.
            unsafe { item::destroy(&self.allocator, node) }
        }
    }

    /// Frees up to [`MAINTENANCE_STEP`] flushed items, visiting the shards in turn from `*from`.
    /// Returns whether any were found.
    ///
    /// # Safety
    ///
    /// 1. As for [`free`](Self::free), of what is in `garbage` already.
    unsafe fn reap(&self, from: &mut usize, garbage: &mut Vec<Ptr<R>>) -> bool {
        for _ in 0..self.slots.len() {
            let slot = &self.slots[*from % self.slots.len()];
            if slot.lock().reap(MAINTENANCE_STEP - garbage.len(), garbage) == 0 {
                *from = from.wrapping_add(1);
            } else if garbage.len() == MAINTENANCE_STEP {
                break;
            }
        }
        let found = !garbage.is_empty();
        // SAFETY: 1: from our shards, or by our 1.
        unsafe { self.free(garbage) };
        found
    }

    /// Removes some expired items. Returns whether more is to be done at once.
    ///
    /// # Safety
    ///
    /// 1. As for [`free`](Self::free), of what is in `garbage` already.
    unsafe fn expire(&self, now: Now, garbage: &mut Vec<Ptr<R>>) -> bool {
        let more = self
            .expiry
            .step(self.slots.len(), now, |shard, from, looks| {
                let mut shard = self.slots[shard].lock();
                let hasher = |key: &[u8]| self.hash(key);
                let next = shard.search(from as usize, looks, now, hasher, garbage);
                next.map(|bucket| bucket as u64)
            });
        // SAFETY: 1: from our shards, or by our 1.
        unsafe { self.free(garbage) };
        more
    }

    fn for_each_shard(&self, mut f: impl FnMut(&mut Shard<R>)) {
        for slot in &self.slots {
            f(&mut slot.lock());
        }
    }
}

impl<A: ItemAllocator, R: References> Drop for Locked<A, R> {
    fn drop(&mut self) {
        let mut garbage = Vec::new();
        for slot in &self.slots {
            let mut shard = slot.lock();
            drop(shard.flush(&slot.hint));
            shard.reap(usize::MAX, &mut garbage);
        }
        // SAFETY: 1: all from our shards.
        unsafe { self.free(&mut garbage) };
    }
}

impl<A: ItemAllocator, R: References> Engine for Locked<A, R> {
    type Session = LockedSession<A, R>;

    fn name(&self) -> &'static str {
        R::ENGINE
    }

    fn session(self: &Arc<Self>) -> LockedSession<A, R> {
        LockedSession {
            engine: Arc::clone(self),
            hashes: Vec::with_capacity(WINDOW),
            garbage: Vec::new(),
            reap_from: 0,
            flushes_reaped: 0,
        }
    }

    fn flush_all(&self, at: Deadline, now: Now) {
        if at.is_past(now) {
            self.flush_now();
        } else {
            self.delayed_flush.order(at);
        }
    }

    fn memory_limit(&self) -> u64 {
        // Relaxed: a setting.
        self.memory.load(Ordering::Relaxed)
    }

    fn set_memory_limit(&self, bytes: u64) {
        // Relaxed: a setting.
        self.memory.store(bytes, Ordering::Relaxed);
    }

    fn set_overhead(&self, bytes: u64) {
        // Relaxed: a setting.
        self.overhead.store(bytes, Ordering::Relaxed);
    }

    fn stats(&self) -> EngineStats {
        let mut sum = EngineStats {
            shards: self.slots.len() as u64,
            ..EngineStats::default()
        };
        self.for_each_shard(|shard| shard.add_stats(&mut sum));
        sum
    }

    fn size_classes(&self) -> Vec<ClassStats> {
        let mut classes = vec![ClassStats::default(); crate::size_class::COUNT];
        self.for_each_shard(|shard| shard.tally().add_classes(&mut classes));
        classes.retain(|class| class.items != 0 || class.evictions != 0);
        classes
    }

    fn scan(
        &self,
        cursor: Cursor,
        most_looks: usize,
        now: Now,
        show: &mut dyn FnMut(&ItemView<'_>),
    ) -> ScanStep {
        let mut place = scan::ScanPosition::of(cursor);
        let mut looks = most_looks.max(1);
        while let Some(slot) = self.slots.get(place.shard) {
            if looks == 0 {
                return ScanStep::More(place.cursor());
            }
            if !place.scan(&mut slot.lock(), &mut looks, now, show) {
                return ScanStep::Lost;
            }
        }
        ScanStep::Done
    }

    fn position(&self, fraction: u32) -> Cursor {
        let (shard, rest) = crate::engine::scale(self.slots.len(), fraction);
        match self.slots.get(shard) {
            Some(slot) => scan::ScanPosition::within(shard, &mut slot.lock(), rest).cursor(),
            None => Cursor::START,
        }
    }
}

/// One thread's handle to a [`Locked`] engine.
pub struct LockedSession<A: ItemAllocator = GlobalHeap, R: References = NoReferences> {
    engine: Arc<Locked<A, R>>,
    /// Scratch: the hashes of the current window.
    hashes: Vec<u64>,
    /// Scratch: unlinked items, freed once the lock is released. Empty between operations.
    garbage: Vec<Ptr<R>>,
    /// The shard that maintenance visits next.
    reap_from: usize,
    /// The number of flushes whose items are known to be freed.
    flushes_reaped: usize,
}

// SAFETY: `garbage` is empty whenever the session is not inside one of its methods, so moving it to
// another thread moves no item pointer.
unsafe impl<A: ItemAllocator, R: References> Send for LockedSession<A, R> {}

impl<A: ItemAllocator, R: References> LockedSession<A, R> {
    /// Passes one and two over a window: hash, prefetch the tables, prefetch the items.
    fn prepare(&mut self, window: &[Op<'_>]) {
        let engine = &*self.engine;
        self.hashes.clear();
        self.hashes
            .extend(window.iter().map(|op| engine.hash(op.key)));
        if window.len() < 2 || R::COUNTED {
            return; // nothing to overlap with, or no lock to spare for it
        }
        for &hash in &self.hashes {
            engine.slot(hash).hint.prefetch(hash);
        }
        for &hash in &self.hashes {
            engine.slot(hash).lock().prefetch_item(hash);
        }
    }

    /// Pass three for one operation.
    fn execute<S: ReplySink>(&mut self, hash: u64, now: Now, op: &Op<'_>, sink: &mut S) -> Flow {
        let flow = Exec::new(&self.engine, hash, now, &mut self.garbage).run(op, sink);
        if !self.garbage.is_empty() {
            // SAFETY: 1: all from the operation, whose lock and references are gone.
            unsafe { self.engine.free(&mut self.garbage) };
        }
        flow
    }
}

impl<A: ItemAllocator, R: References> Session for LockedSession<A, R> {
    fn submit<S: ReplySink>(&mut self, now: Now, ops: &[Op<'_>], sink: &mut S) -> usize {
        self.engine.flush_if_due(now);
        let mut done = 0;
        for window in ops.chunks(WINDOW) {
            self.prepare(window);
            for (index, op) in window.iter().enumerate() {
                let hash = self.hashes[index];
                done += 1;
                if self.execute(hash, now, op, sink) == Flow::Pause {
                    return done;
                }
            }
        }
        done
    }

    fn update(&mut self, now: Now, key: &[u8], update: &mut dyn Update) -> Updated {
        self.engine.flush_if_due(now);
        let hash = self.engine.hash(key);
        let updated = Exec::new(&self.engine, hash, now, &mut self.garbage).update(key, update);
        if !self.garbage.is_empty() {
            // SAFETY: 1: all from the change, whose lock is released.
            unsafe { self.engine.free(&mut self.garbage) };
        }
        updated
    }

    fn poll<S: ReplySink>(&mut self, _now: Now, _sink: &mut S) -> usize {
        0 // everything completes in `submit`
    }

    fn maintain(&mut self, now: Now) -> bool {
        self.engine.flush_if_due(now);
        // SAFETY: 1: the session's garbage is empty.
        let expires = unsafe { self.engine.expire(now, &mut self.garbage) };
        // Acquire: pairs with the Release in `flush_now`.
        let flushes = self.engine.flushes.load(Ordering::Acquire);
        if self.flushes_reaped == flushes {
            return expires;
        }
        // SAFETY: 1: the session's garbage is empty.
        if !unsafe { self.engine.reap(&mut self.reap_from, &mut self.garbage) } {
            self.flushes_reaped = flushes; // a whole round found nothing
        }
        expires | (self.flushes_reaped != flushes)
    }
}
