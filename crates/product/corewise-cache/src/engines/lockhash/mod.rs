//! The engine `lockhash`: partitions of [`corewise_cphash`], each behind a lock.
//!
//! LOCKHASH of \[CPHASH\] §4.2, as a cache engine.
//!
//! ```text
//!   hash of the key ─┬─ bits 40.. ──▶ lock │ partition: buckets ─▶ item ─▶ item
//!                    └─ lower 60 ────────▶ │            LRU list, allocator, budget
//! ```
//!
//! # Guarantees
//!
//! 1. Operations on one key are atomic and totally ordered (its partition's lock).
//! 2. A thread holds at most one lock at a time and calls nothing but the sink while holding it, so
//!    there is no deadlock.
//! 3. Eviction order is LRU per partition, exact to an eighth of the age at which items are evicted
//!    (see `lru`). The budget is split evenly over partitions.
//! 4. Memory charged is that of the items, in whole cache lines, and of the buckets. It is at most
//!    the budget (less the owner's overhead), except while one item replaces another, and except
//!    that blocks kept for reuse are not charged; these and the charged bytes together are at most
//!    the budget.
//! 5. A critical section executes one operation, and makes room for its item.
//! 6. Expired items are removed by [`Session::maintain`], in steps, within seconds (see `expiry`).
//! 7. Progress: blocking.
//!
//! # Differences from the paper
//!
//! - Values are copied while the lock is held.
//! - The lock is the one that the other engines use, which sleeps after some attempts. A spin lock
//!   wastes the rest of a time slice when its holder has been preempted, which event loops are.
//! - The number of partitions follows the number of threads, as in `locked`, and not the 4,096 of
//!   the paper's 80 hardware threads; each must hold several of the largest items.
//! - The number of buckets grows with the items.

use super::delayed_flush::DelayedFlush;
use super::expiry::ExpirySearch;
use super::locked::{Config, Eviction};
use super::partitioned::{Execution, Partition, Rules, index_of};
use crate::contention;
use crate::engine::{ClassStats, Cursor, Engine, EngineStats, ScanStep, Session};
use corewise_atomic::CachePadded;
use corewise_atomic::lock::{Mutex, MutexGuard};
use corewise_atomic::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use corewise_ops::{Deadline, Flow, ItemView, Now, Op, ReplySink, Update, Updated};
use std::hash::BuildHasher;
use std::sync::Arc;

/// Operations whose cache misses overlap.
const WINDOW: usize = 32;

/// Flushed items freed by one [`Session::maintain`].
const MAINTENANCE_STEP: usize = 256;

/// The engine. See the [module](self).
///
/// ```
/// use corewise_cache::Engine;
/// use corewise_cache::engines::lockhash::LockHashEngine;
/// use corewise_cache::engines::locked::Config;
///
/// let cache = LockHashEngine::new(Config::default());
/// assert_eq!((cache.name(), cache.stats().shards), ("lockhash", 64));
/// ```
pub struct LockHashEngine {
    partitions: Box<[CachePadded<Mutex<Partition>>]>,
    hasher: foldhash::fast::RandomState,
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

impl LockHashEngine {
    /// An empty cache.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let count = config.shards();
        let partition = |index| CachePadded::new(Mutex::new(Partition::new(index, count)));
        Self {
            partitions: (0..count).map(partition).collect(),
            hasher: foldhash::fast::RandomState::default(),
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
    fn partition(&self, hash: u64) -> &Mutex<Partition> {
        &self.partitions[index_of(hash, self.partitions.len())]
    }

    /// What operations must keep to. The budget is a partition's share of the memory that the owner
    /// leaves. The engine keeps half of the memory whatever the owner uses, so that a flood of
    /// requests cannot empty the cache.
    fn rules(&self) -> Rules {
        // Relaxed: settings; any recent values will do.
        let memory = self.memory.load(Ordering::Relaxed);
        let overhead = self.overhead.load(Ordering::Relaxed);
        let left = memory.saturating_sub(overhead).max(memory / 2);
        Rules {
            budget: usize::try_from(left / self.partitions.len() as u64).unwrap_or(usize::MAX),
            max_item_bytes: self.max_item_bytes,
            may_evict: self.eviction == Eviction::Lru,
        }
    }

    /// Performs a delayed flush whose time has come. Called once per batch.
    #[inline]
    fn flush_if_due(&self, now: Now) {
        self.delayed_flush.run_if_due(now, || self.flush_now());
    }

    fn flush_now(&self) {
        self.for_each_partition(Partition::flush);
        // Release: pairs with the Acquire in `maintain`, so that a session that sees the count
        // finds the items.
        self.flushes.fetch_add(1, Ordering::Release);
    }

    fn for_each_partition(&self, mut f: impl FnMut(&mut Partition)) {
        for partition in &self.partitions {
            f(&mut partition.lock());
        }
    }

    /// Frees up to [`MAINTENANCE_STEP`] flushed items, visiting the partitions in turn from
    /// `*from`. Returns whether any were found.
    fn reap(&self, from: &mut usize) -> bool {
        let mut reaped = 0;
        for _ in 0..self.partitions.len() {
            let partition = &self.partitions[*from % self.partitions.len()];
            reaped += partition.lock().reap(MAINTENANCE_STEP - reaped);
            if reaped == MAINTENANCE_STEP {
                break;
            }
            *from = from.wrapping_add(1);
        }
        reaped > 0
    }

    /// Removes some expired items. Returns whether more is to be done at once.
    fn expire(&self, now: Now) -> bool {
        let count = self.partitions.len();
        self.expiry.step(count, now, |index, position, looks| {
            self.partitions[index].lock().search(position, looks, now)
        })
    }
}

/// Takes a partition's lock and counts the time it waited, if any.
#[inline]
fn lock(partition: &Mutex<Partition>) -> MutexGuard<'_, Partition> {
    let (mut partition, waited) = contention::lock(partition);
    if let Some(ns) = waited {
        partition.tally().waited(ns);
    }
    partition
}

impl Engine for LockHashEngine {
    type Session = LockHashSession;

    fn name(&self) -> &'static str {
        "lockhash"
    }

    fn session(self: &Arc<Self>) -> LockHashSession {
        LockHashSession {
            engine: Arc::clone(self),
            hashes: Vec::with_capacity(WINDOW),
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
            shards: self.partitions.len() as u64,
            ..EngineStats::default()
        };
        self.for_each_partition(|partition| partition.add_stats(&mut sum));
        sum
    }

    fn size_classes(&self) -> Vec<ClassStats> {
        let mut classes = vec![ClassStats::default(); crate::size_class::COUNT];
        self.for_each_partition(|partition| partition.add_classes(&mut classes));
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
        partitioned_scan(
            &self.partitions,
            cursor,
            most_looks,
            |partition, position, looks| partition.lock().scan(position, looks, now, show),
        )
    }

    fn position(&self, fraction: u32) -> Cursor {
        let (index, rest) = crate::engine::scale(self.partitions.len(), fraction);
        Cursor::from_bits((index as u64) << 32 | u64::from(rest))
    }
}

/// A step of a scan: the cursor is the number of a partition and a position in it.
fn partitioned_scan<P>(
    partitions: &[P],
    cursor: Cursor,
    most_looks: usize,
    mut scan: impl FnMut(&P, u64, &mut usize) -> Option<u64>,
) -> ScanStep {
    let bits = cursor.to_bits();
    let (mut index, mut position) = ((bits >> 32) as usize, bits & u64::from(u32::MAX));
    let mut looks = most_looks.max(1);
    while let Some(partition) = partitions.get(index) {
        if looks == 0 {
            return ScanStep::More(Cursor::from_bits((index as u64) << 32 | position));
        }
        match scan(partition, position, &mut looks) {
            Some(next) => position = next,
            None => (index, position) = (index + 1, 0),
        }
    }
    ScanStep::Done
}

/// One thread's handle to a [`LockHashEngine`].
pub struct LockHashSession {
    engine: Arc<LockHashEngine>,
    /// Scratch: the hashes of the current window.
    hashes: Vec<u64>,
    /// The partition that maintenance visits next.
    reap_from: usize,
    /// The number of flushes whose items are known to be freed.
    flushes_reaped: usize,
}

impl LockHashSession {
    /// Hashes a window's keys, and brings their items closer to the processor.
    fn prepare(&mut self, window: &[Op<'_>]) {
        let engine = &*self.engine;
        let hash = |op: &Op<'_>| engine.hasher.hash_one(op.key);
        self.hashes.clear();
        self.hashes.extend(window.iter().map(hash));
        if window.len() < 2 {
            return; // nothing to overlap with
        }
        // A bucket has arrived when its first item is asked for: others were asked for meanwhile.
        for &hash in &self.hashes {
            engine.partition(hash).lock().prefetch_bucket(hash);
        }
        for &hash in &self.hashes {
            engine.partition(hash).lock().prefetch_item(hash);
        }
    }
}

impl Session for LockHashSession {
    fn submit<S: ReplySink>(&mut self, now: Now, ops: &[Op<'_>], sink: &mut S) -> usize {
        self.engine.flush_if_due(now);
        let rules = self.engine.rules();
        let mut done = 0;
        for window in ops.chunks(WINDOW) {
            self.prepare(window);
            for (op, &hash) in window.iter().zip(&self.hashes) {
                done += 1;
                let mut partition = lock(self.engine.partition(hash));
                let mut execution = Execution::new(&mut partition, rules, op.key, hash, now);
                let report = |outcome: corewise_ops::Outcome<'_>| sink.complete(op.token, outcome);
                if execution.run(&op.verb, report) == Flow::Pause {
                    return done;
                }
            }
        }
        done
    }

    fn update(&mut self, now: Now, key: &[u8], update: &mut dyn Update) -> Updated {
        self.engine.flush_if_due(now);
        let hash = self.engine.hasher.hash_one(key);
        let mut partition = lock(self.engine.partition(hash));
        Execution::new(&mut partition, self.engine.rules(), key, hash, now).update(update)
    }

    fn poll<S: ReplySink>(&mut self, _now: Now, _sink: &mut S) -> usize {
        0 // everything completes in `submit`
    }

    fn maintain(&mut self, now: Now) -> bool {
        self.engine.flush_if_due(now);
        let expires = self.engine.expire(now);
        // Acquire: pairs with the Release in `flush_now`.
        let flushes = self.engine.flushes.load(Ordering::Acquire);
        if self.flushes_reaped != flushes && !self.engine.reap(&mut self.reap_from) {
            self.flushes_reaped = flushes; // a whole round found nothing
        }
        expires | (self.flushes_reaped != flushes)
    }
}
