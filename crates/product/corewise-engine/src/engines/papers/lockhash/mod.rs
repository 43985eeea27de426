//! The engine `lockhash`: partitions of [`corewise_cphash`], each behind a lock.
//!
//! LOCKHASH of \[CPHASH\] §4.2, as a cache engine.
//!
//! ```text
//!   hash of the key ─┬─ bits 40.. ──▶ lock │ partition: buckets ─▶ item ─▶ item
//!                    └─ lower 60 ────────▶ │            LRU list, allocator, budget
//! ```
//!
//! ```text
//!  element │ header, 40 │ 8 │ links, 8 │ header, 24 │ client flags │ key │ value │ unused
//!          └ corewise_cphash ┴ the item, as in `item.rs` ────────────────────────┘
//! ```
//!
//! `Partition` owns the items, the eviction order and the accounting of its part of the hashes.
//! `Execution` executes one operation on it. Both run while the caller has the partition
//! exclusively, and know no locks.
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
//! 6. Expired items are removed by [`Session::maintain`](crate::Session::maintain), in steps,
//!    within seconds (see `expiry`).
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

mod exec;
mod partition;

use crate::contention;
use crate::engine::{ClassStats, Cursor, EngineStats, ScanStep};
use crate::engines::sharded::{Config, Context, Rules, Sharded, Shards, index_of};
use crate::objects::{Graveyard, SetHeap};
use corewise_atomic::CachePadded;
use corewise_atomic::lock::{Mutex, MutexGuard};
use corewise_atomic::sync::atomic::{AtomicUsize, Ordering};
use corewise_ops::{Flow, ItemView, Now, Op, ReplySink, Update, Updated};
use exec::Execution;
use partition::Partition;
use std::hash::BuildHasher;
use std::sync::Arc;

/// The engine. See the [module](self).
///
/// ```
/// use corewise_engine::Engine;
/// use corewise_engine::engines::lockhash::LockHashEngine;
/// use corewise_engine::engines::locked::Config;
///
/// let cache = LockHashEngine::new(Config::default());
/// assert_eq!((cache.name(), cache.stats().shards), ("lockhash", 64));
/// ```
pub type LockHashEngine = Sharded<Partitions>;

/// The partitions of a [`LockHashEngine`].
pub struct Partitions {
    partitions: Box<[CachePadded<Mutex<Partition>>]>,
    hasher: foldhash::fast::RandomState,
    /// Sets that are to be freed.
    dying: Arc<AtomicUsize>,
    set_heap: SetHeap,
}

impl LockHashEngine {
    /// An empty cache.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let count = config.shards();
        let (dying, set_heap) = (Arc::default(), SetHeap::new(config.memory));
        let partition = |index| {
            let graveyard = Graveyard::new(&dying, set_heap.memory());
            CachePadded::new(Mutex::new(Partition::new(index, count, graveyard)))
        };
        let shards = Partitions {
            partitions: (0..count).map(partition).collect(),
            hasher: foldhash::fast::RandomState::default(),
            dying,
            set_heap,
        };
        Self::over(shards, config)
    }
}

impl Partitions {
    #[inline]
    fn partition(&self, hash: u64) -> &Mutex<Partition> {
        &self.partitions[index_of(hash, self.partitions.len())]
    }

    /// Takes the lock of a hash's partition and counts the time it waited, if any.
    #[inline]
    fn lock(&self, hash: u64) -> MutexGuard<'_, Partition> {
        let (mut partition, waited) = contention::lock(self.partition(hash));
        if let Some(ns) = waited {
            partition.tally().waited(ns);
        }
        partition
    }
}

impl Shards for Partitions {
    const ENGINE: &'static str = "lockhash";

    type Garbage = ();

    fn count(&self) -> usize {
        self.partitions.len()
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    fn prefetch(&self, hashes: &[u64]) {
        // A bucket has arrived when its first item is asked for: others were asked for meanwhile.
        for &hash in hashes {
            self.partition(hash).lock().prefetch_bucket(hash);
        }
        for &hash in hashes {
            self.partition(hash).lock().prefetch_item(hash);
        }
    }

    #[inline]
    fn execute<S: ReplySink>(
        &self,
        context: Context,
        op: &Op<'_>,
        (): &mut (),
        sink: &mut S,
    ) -> Flow {
        let mut partition = self.lock(context.hash);
        Execution::new(&mut partition, context, op.key)
            .run(&op.verb, |outcome| sink.complete(op.token, outcome))
    }

    fn update(
        &self,
        context: Context,
        key: &[u8],
        update: &mut dyn Update,
        (): &mut (),
    ) -> Updated {
        let mut partition = self.lock(context.hash);
        Execution::new(&mut partition, context, key).update(update)
    }

    fn flush(&self, shard: usize) {
        self.partitions[shard].lock().flush();
    }

    fn reap(&self, shard: usize, limit: usize, (): &mut ()) -> usize {
        self.partitions[shard].lock().reap(limit)
    }

    fn sets_to_free(&self) -> usize {
        // Relaxed: the sets are reached through their partition's lock.
        self.dying.load(Ordering::Relaxed)
    }

    fn set_slack(&self) -> u64 {
        self.set_heap.slack() as u64
    }

    fn free_some(&self, shard: usize) -> bool {
        let mut partition = self.partitions[shard].lock();
        partition.free_some() || partition.settle_some()
    }

    fn shrink(&self, shard: usize, most: usize, rules: Rules, now: Now, (): &mut ()) -> usize {
        self.partitions[shard].lock().shrink(most, rules, now)
    }

    fn search(
        &self,
        shard: usize,
        position: u64,
        looks: &mut usize,
        now: Now,
        (): &mut (),
    ) -> Option<u64> {
        self.partitions[shard].lock().search(position, looks, now)
    }

    fn add_classes(&self, shard: usize, sums: &mut [ClassStats]) {
        self.partitions[shard].lock().tally().add_classes(sums);
    }

    fn add_stats(&self, shard: usize, sum: &mut EngineStats) {
        self.partitions[shard].lock().add_stats(sum);
    }

    /// The cursor is the number of a partition and a position in it.
    fn scan(
        &self,
        cursor: Cursor,
        mut looks: usize,
        now: Now,
        show: &mut dyn FnMut(&ItemView<'_>),
    ) -> ScanStep {
        let bits = cursor.to_bits();
        let (mut index, mut position) = ((bits >> 32) as usize, bits & u64::from(u32::MAX));
        while let Some(partition) = self.partitions.get(index) {
            if looks == 0 {
                return ScanStep::More(Cursor::from_bits((index as u64) << 32 | position));
            }
            match partition.lock().scan(position, &mut looks, now, show) {
                Some(next) => position = next,
                None => (index, position) = (index + 1, 0),
            }
        }
        ScanStep::Done
    }

    fn position(&self, shard: usize, fraction: u32) -> Cursor {
        Cursor::from_bits((shard as u64) << 32 | u64::from(fraction))
    }
}
