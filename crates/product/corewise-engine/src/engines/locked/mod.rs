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
//! The engine executes operations in windows of 32. For each window it hashes every key and
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
//! 6. Expired items are removed by [`Session::maintain`](crate::Session::maintain), in steps,
//!    within seconds (see `expiry`).
//! 7. Progress: blocking. A thread preempted inside a shard delays the others of that shard.

mod exec;
mod references;
mod scan;
mod shard;

use super::sharded::{Context, Rules, Shards, index_of};
use crate::alloc::{GlobalHeap, ItemAllocator};
use crate::contention;
use crate::engine::{ClassStats, Cursor, EngineStats, ScanStep};
use crate::item;
use crate::objects::{Graveyard, SetHeap};
use corewise_atomic::CachePadded;
use corewise_atomic::lock::{Mutex, MutexGuard};
use corewise_atomic::sync::atomic::{AtomicUsize, Ordering};
use corewise_ops::{Flow, ItemView, Now, Op, ReplySink, Update, Updated};
use exec::Exec;
pub use references::{NoReferences, ReferenceCount, References};
use shard::{Ptr, Room, Shard, TableHint};
use std::hash::BuildHasher;
use std::sync::Arc;

pub use super::sharded::{Config, Eviction, MAX_SHARDS};

/// The engine. See the [module](self).
pub type Locked<A = GlobalHeap, R = NoReferences> = super::sharded::Sharded<HashTables<A, R>>;

/// A shard and the part of it that may be read without its lock.
struct LockedShard<R: References> {
    hint: TableHint,
    shard: Mutex<Shard<R>>,
}

impl<R: References> LockedShard<R> {
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

/// The shards of a [`Locked`] engine.
pub struct HashTables<A: ItemAllocator, R: References> {
    slots: Box<[CachePadded<LockedShard<R>>]>,
    hasher: foldhash::fast::RandomState,
    allocator: A,
    /// Sets that are to be freed.
    dying: Arc<AtomicUsize>,
    set_heap: SetHeap,
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
        let (dying, set_heap) = (Arc::default(), SetHeap::new(config.memory));
        let slot = |index| {
            let graveyard = Graveyard::new(&dying, set_heap.memory());
            CachePadded::new(LockedShard {
                hint: TableHint::new(),
                shard: Mutex::new(Shard::new(index as u64, count as u64, graveyard)),
            })
        };
        let shards = HashTables {
            slots: (0..count).map(slot).collect(),
            hasher: foldhash::fast::RandomState::default(),
            allocator,
            dying,
            set_heap,
        };
        Self::over(shards, config)
    }
}

/// Items that were unlinked and are freed once the lock is released. Empty between operations.
pub struct UnlinkedItems<R: References>(Vec<Ptr<R>>);

impl<R: References> Default for UnlinkedItems<R> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

// SAFETY: it is empty whenever its session is not inside one of its methods, so moving it to
// another thread moves no item pointer.
unsafe impl<R: References> Send for UnlinkedItems<R> {}

impl<A: ItemAllocator, R: References> HashTables<A, R> {
    #[inline]
    fn slot(&self, hash: u64) -> &LockedShard<R> {
        &self.slots[index_of(hash, self.slots.len())]
    }

    /// Frees unreachable items.
    ///
    /// # Safety
    ///
    /// 1. The items were made by this engine, and given up: discarded, or handed out as garbage by
    ///    one of its shards. They are not used any more.
    #[inline]
    unsafe fn free(&self, garbage: &mut Vec<Ptr<R>>) {
        for node in garbage.drain(..) {
            // SAFETY: by 1 they were made with this allocator, and unlinked from table and lists
            // under their shard's lock; views of them ended with the sink's call inside that lock,
            // or before the last reference was dropped under it.
            unsafe { item::destroy(&self.allocator, node) };
        }
    }
}

impl<A: ItemAllocator, R: References> Drop for HashTables<A, R> {
    fn drop(&mut self) {
        let mut garbage = UnlinkedItems::default();
        for shard in 0..self.slots.len() {
            self.flush(shard);
            self.reap(shard, usize::MAX, &mut garbage);
        }
    }
}

impl<A: ItemAllocator, R: References> Shards for HashTables<A, R> {
    const ENGINE: &'static str = R::ENGINE;

    type Garbage = UnlinkedItems<R>;

    fn count(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Passes one and two over a window: the tables, then the items.
    fn prefetch(&self, hashes: &[u64]) {
        if R::COUNTED {
            return; // no lock to spare for it
        }
        for &hash in hashes {
            self.slot(hash).hint.prefetch(hash);
        }
        for &hash in hashes {
            self.slot(hash).lock().prefetch_item(hash);
        }
    }

    /// Pass three for one operation.
    #[inline]
    fn execute<S: ReplySink>(
        &self,
        context: Context,
        op: &Op<'_>,
        UnlinkedItems(garbage): &mut UnlinkedItems<R>,
        sink: &mut S,
    ) -> Flow {
        let flow = Exec::new(self, context, garbage).run(op, sink);
        // SAFETY: all from the operation, whose lock and references are gone (1).
        unsafe { self.free(garbage) };
        flow
    }

    fn update(
        &self,
        context: Context,
        key: &[u8],
        update: &mut dyn Update,
        UnlinkedItems(garbage): &mut UnlinkedItems<R>,
    ) -> Updated {
        let updated = Exec::new(self, context, garbage).update(key, update);
        // SAFETY: all from the change, whose lock is released (1).
        unsafe { self.free(garbage) };
        updated
    }

    fn flush(&self, shard: usize) {
        let slot = &self.slots[shard];
        let table = slot.lock().flush(&slot.hint);
        drop(table); // outside the lock: it may be large
    }

    fn reap(
        &self,
        shard: usize,
        limit: usize,
        UnlinkedItems(garbage): &mut UnlinkedItems<R>,
    ) -> usize {
        let reaped = self.slots[shard].lock().reap(limit, garbage);
        // SAFETY: our shard has unlinked these items and handed them out; no code uses them any
        // more (1).
        unsafe { self.free(garbage) };
        reaped
    }

    fn sets_to_free(&self) -> usize {
        // Relaxed: the sets are reached through their shard's lock.
        self.dying.load(Ordering::Relaxed)
    }

    fn set_slack(&self) -> u64 {
        self.set_heap.slack() as u64
    }

    fn free_some(&self, shard: usize) -> bool {
        let mut shard = self.slots[shard].lock();
        shard.free_some() || shard.settle_some(|key| self.hash(key))
    }

    fn shrink(
        &self,
        shard: usize,
        most: usize,
        rules: Rules,
        now: Now,
        UnlinkedItems(garbage): &mut UnlinkedItems<R>,
    ) -> usize {
        let hasher = |key: &[u8]| self.hash(key);
        let room = Room {
            need: 0,
            budget: rules.budget,
            keep: None,
            returned: 0,
            may_evict: rules.may_evict,
            now,
            hasher: &hasher,
        };
        let steps = self.slots[shard].lock().shrink(most, &room, garbage);
        // SAFETY: our shard has unlinked these items and handed them out; no code uses them any
        // more (1).
        unsafe { self.free(garbage) };
        steps
    }

    fn search(
        &self,
        shard: usize,
        position: u64,
        looks: &mut usize,
        now: Now,
        UnlinkedItems(garbage): &mut UnlinkedItems<R>,
    ) -> Option<u64> {
        let hasher = |key: &[u8]| self.hash(key);
        let next = self.slots[shard]
            .lock()
            .search(position as usize, looks, now, hasher, garbage);
        // SAFETY: our shard has unlinked these items and handed them out; no code uses them any
        // more (1).
        unsafe { self.free(garbage) };
        next.map(|bucket| bucket as u64)
    }

    fn add_classes(&self, shard: usize, sums: &mut [ClassStats]) {
        self.slots[shard].lock().tally().add_classes(sums);
    }

    fn add_stats(&self, shard: usize, sum: &mut EngineStats) {
        self.slots[shard].lock().add_stats(sum);
    }

    fn scan(
        &self,
        cursor: Cursor,
        mut looks: usize,
        now: Now,
        show: &mut dyn FnMut(&ItemView<'_>),
    ) -> ScanStep {
        let mut place = scan::ScanPosition::of(cursor);
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

    fn position(&self, shard: usize, fraction: u32) -> Cursor {
        match self.slots.get(shard) {
            Some(slot) => scan::ScanPosition::within(shard, &mut slot.lock(), fraction).cursor(),
            None => Cursor::START,
        }
    }
}
