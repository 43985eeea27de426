//! What the engines have in common whose shards are behind locks.
//!
//! [`Sharded`] has the settings, executes batches in windows, and maintains its shards in turn.
//! [`Shards`] is what the engines differ in: the shards, and how one operation is executed.

use super::delayed_flush::DelayedFlush;
use super::expiry::ExpirySearch;
use crate::engine::{ClassStats, Cursor, Engine, EngineStats, ScanStep, Session};
use corewise_atomic::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use corewise_ops::{Deadline, Flow, ItemView, Now, Op, ReplySink, Update, Updated};
use std::sync::Arc;

/// Operations whose cache misses overlap.
const WINDOW: usize = 32;

/// Flushed items, and those that exceed a lower budget, freed by one [`Session::maintain`].
const MAINTENANCE_STEP: usize = 256;

/// The share of the memory by which the [slack](Shards::set_slack) of sets is rounded up in a
/// budget, and which it leaves to items.
const SLACK_STEPS: u64 = 64;

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
    /// The number of shards, a power of two.
    pub(super) fn shards(&self) -> usize {
        let for_threads = self.threads.clamp(1, MAX_SHARDS / 16) * 16;
        let for_items = (self.memory / 16 / self.max_item_bytes.max(1) as u64).max(1);
        let most = usize::try_from(for_items)
            .unwrap_or(MAX_SHARDS)
            .min(for_threads.next_power_of_two());
        1 << most.ilog2()
    }
}

/// The index of the shard, of `count`, that a hash belongs to; `count` is a power of two.
#[inline]
pub(super) fn index_of(hash: u64, count: usize) -> usize {
    // Uses neither the low bits (hashbrown's bucket) nor the top seven (its tag). Partitions of
    // `corewise_cphash` mix the lower 60 bits before they use them.
    (hash >> 40) as usize & (count - 1)
}

/// What operations must keep to.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A shard's budget in bytes.
    pub budget: usize,
    /// See [`Config::max_item_bytes`].
    pub max_item_bytes: usize,
    /// Whether live items may be evicted.
    pub may_evict: bool,
}

/// The context of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// The hash of its key.
    pub hash: u64,
    /// The present time.
    pub now: Now,
    /// What it must keep to.
    pub rules: Rules,
}

/// The shards of an engine. They are numbered; each method takes the lock of one at a time.
pub trait Shards: Send + Sync + 'static {
    /// The engine's name.
    const ENGINE: &'static str;

    /// Scratch of a session: items that were unlinked and are not yet freed. Empty between calls.
    type Garbage: Default + Send;

    /// The number of shards.
    fn count(&self) -> usize;

    /// The hash of a key.
    fn hash(&self, key: &[u8]) -> u64;

    /// Brings closer to the processor what the operations on these keys will read.
    fn prefetch(&self, hashes: &[u64]);

    /// Executes an operation and reports its outcome.
    fn execute<S: ReplySink>(
        &self,
        context: Context,
        op: &Op<'_>,
        garbage: &mut Self::Garbage,
        sink: &mut S,
    ) -> Flow;

    /// Executes a change that no verb describes.
    fn update(
        &self,
        context: Context,
        key: &[u8],
        update: &mut dyn Update,
        garbage: &mut Self::Garbage,
    ) -> Updated;

    /// Makes everything in a shard unreachable, to be freed by [`reap`](Self::reap).
    fn flush(&self, shard: usize);

    /// Frees up to `limit` flushed items of a shard; returns how many were there.
    fn reap(&self, shard: usize, limit: usize, garbage: &mut Self::Garbage) -> usize;

    /// Sets of which maintenance has to free a part: those that no item owns, and those with memory
    /// of removed members.
    fn sets_to_free(&self) -> usize;

    /// Bytes that are resident for the sets of all shards, and not in use.
    fn set_slack(&self) -> u64;

    /// Frees a part of such a set of a shard. Returns whether there was one.
    fn free_some(&self, shard: usize) -> bool;

    /// Makes a shard keep to the rules, in up to `most` steps that free or evict something; returns
    /// how many it took. Evicts nothing from a shard that keeps to them.
    fn shrink(
        &self,
        shard: usize,
        most: usize,
        rules: Rules,
        now: Now,
        garbage: &mut Self::Garbage,
    ) -> usize;

    /// Continues the search for expired items in a shard; see [`ExpirySearch::step`].
    fn search(
        &self,
        shard: usize,
        position: u64,
        looks: &mut usize,
        now: Now,
        garbage: &mut Self::Garbage,
    ) -> Option<u64>;

    /// Adds what a shard counts of each class.
    fn add_classes(&self, shard: usize, sums: &mut [ClassStats]);

    /// Adds the statistics of a shard.
    fn add_stats(&self, shard: usize, sum: &mut EngineStats);

    /// See [`Engine::scan`].
    fn scan(
        &self,
        cursor: Cursor,
        looks: usize,
        now: Now,
        show: &mut dyn FnMut(&ItemView<'_>),
    ) -> ScanStep;

    /// The cursor at a fraction of a shard; see [`Engine::position`].
    fn position(&self, shard: usize, fraction: u32) -> Cursor;
}

/// An engine over shards. See the [module](self).
pub struct Sharded<P: Shards> {
    shards: P,
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

impl<P: Shards> Sharded<P> {
    pub(super) fn over(shards: P, config: Config) -> Self {
        Self {
            shards,
            max_item_bytes: config.max_item_bytes,
            eviction: config.eviction,
            memory: AtomicU64::new(config.memory),
            overhead: AtomicU64::new(0),
            delayed_flush: DelayedFlush::new(),
            expiry: ExpirySearch::new(),
            flushes: AtomicUsize::new(0),
        }
    }

    fn shard_numbers(&self) -> std::ops::Range<usize> {
        0..self.shards.count()
    }

    /// What operations must keep to. The budget is a shard's share of the memory that the owner and
    /// the free room on the pages of sets leave. The engine keeps half of the memory whatever the
    /// owner uses, so that a flood of requests cannot empty the cache.
    #[inline]
    fn rules(&self) -> Rules {
        // Relaxed: settings; any recent values will do.
        let memory = self.memory.load(Ordering::Relaxed);
        let overhead = self.overhead.load(Ordering::Relaxed);
        let mut left = memory.saturating_sub(overhead).max(memory / 2);
        let slack = self.shards.set_slack();
        if slack > 0 {
            // In steps, so that a budget changes seldom.
            let slack = slack.next_multiple_of((memory / SLACK_STEPS).max(1));
            left = left.saturating_sub(slack).max(left / SLACK_STEPS);
        }
        Rules {
            budget: usize::try_from(left / self.shards.count() as u64).unwrap_or(usize::MAX),
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
        self.shard_numbers()
            .for_each(|shard| self.shards.flush(shard));
        // Release: pairs with the Acquire in `maintain`, so that a session that sees the count
        // finds the items.
        self.flushes.fetch_add(1, Ordering::Release);
    }
}

impl<P: Shards> Engine for Sharded<P> {
    type Session = ShardedSession<P>;

    fn name(&self) -> &'static str {
        P::ENGINE
    }

    fn session(self: &Arc<Self>) -> ShardedSession<P> {
        ShardedSession {
            engine: Arc::clone(self),
            hashes: Vec::with_capacity(WINDOW),
            garbage: P::Garbage::default(),
            reap_from: 0,
            flushes_reaped: 0,
            shrunk_to: usize::MAX,
            shrink_from: usize::MAX,
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
            shards: self.shards.count() as u64,
            set_slack_bytes: self.shards.set_slack(),
            ..EngineStats::default()
        };
        self.shard_numbers()
            .for_each(|shard| self.shards.add_stats(shard, &mut sum));
        sum
    }

    fn size_classes(&self) -> Vec<ClassStats> {
        let mut classes = vec![ClassStats::default(); crate::size_class::COUNT];
        self.shard_numbers()
            .for_each(|shard| self.shards.add_classes(shard, &mut classes));
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
        self.shards.scan(cursor, most_looks.max(1), now, show)
    }

    fn position(&self, fraction: u32) -> Cursor {
        let (shard, rest) = crate::engine::scale(self.shards.count(), fraction);
        self.shards.position(shard, rest)
    }
}

/// One thread's handle to a [`Sharded`] engine.
pub struct ShardedSession<P: Shards> {
    engine: Arc<Sharded<P>>,
    /// Scratch: the hashes of the current window.
    hashes: Vec<u64>,
    garbage: P::Garbage,
    /// The shard that maintenance visits next.
    reap_from: usize,
    /// The number of flushes whose items are known to be freed.
    flushes_reaped: usize,
    /// The budget that the shards before `shrink_from` were made to keep to.
    shrunk_to: usize,
    shrink_from: usize,
}

impl<P: Shards> ShardedSession<P> {
    /// Frees up to [`MAINTENANCE_STEP`] flushed items, visiting the shards in turn. Returns whether
    /// any were found.
    fn reap(&mut self) -> bool {
        let shards = &self.engine.shards;
        let mut reaped = 0;
        for _ in 0..shards.count() {
            let shard = self.reap_from % shards.count();
            reaped += shards.reap(shard, MAINTENANCE_STEP - reaped, &mut self.garbage);
            if reaped == MAINTENANCE_STEP {
                break;
            }
            self.reap_from = self.reap_from.wrapping_add(1);
        }
        reaped > 0
    }

    /// Frees a part of a set that no item owns, or memory of removed members. Returns whether there
    /// was any.
    fn free_some(&self) -> bool {
        let shards = &self.engine.shards;
        if shards.sets_to_free() == 0 {
            return false;
        }
        self.engine
            .shard_numbers()
            .any(|shard| shards.free_some(shard));
        true
    }
}

impl<P: Shards> ShardedSession<P> {
    /// Makes shards keep to a budget that was lowered, in turn. Returns whether there is more to
    /// do.
    fn shrink(&mut self, now: Now) -> bool {
        let (shards, rules) = (&self.engine.shards, self.engine.rules());
        if !rules.may_evict {
            return false;
        }
        if rules.budget < self.shrunk_to {
            self.shrink_from = 0;
        }
        self.shrunk_to = rules.budget;
        let mut left = MAINTENANCE_STEP;
        while left > 0 && self.shrink_from < shards.count() {
            let steps = shards.shrink(self.shrink_from, left, rules, now, &mut self.garbage);
            if steps < left {
                self.shrink_from += 1;
            }
            left = left.saturating_sub(steps + 1); // a lock counts as a step
        }
        self.shrink_from < shards.count()
    }
}

impl<P: Shards> Session for ShardedSession<P> {
    fn submit<S: ReplySink>(&mut self, now: Now, ops: &[Op<'_>], sink: &mut S) -> usize {
        let engine = &*self.engine;
        engine.flush_if_due(now);
        let (shards, rules) = (&engine.shards, engine.rules());
        let mut done = 0;
        for window in ops.chunks(WINDOW) {
            self.hashes.clear();
            self.hashes
                .extend(window.iter().map(|op| shards.hash(op.key)));
            if window.len() > 1 {
                shards.prefetch(&self.hashes); // else there is nothing to overlap with
            }
            for (op, &hash) in window.iter().zip(&self.hashes) {
                done += 1;
                let context = Context { hash, now, rules };
                if shards.execute(context, op, &mut self.garbage, sink) == Flow::Pause {
                    return done;
                }
            }
        }
        done
    }

    fn update(&mut self, now: Now, key: &[u8], update: &mut dyn Update) -> Updated {
        let engine = &*self.engine;
        engine.flush_if_due(now);
        let context = Context {
            hash: engine.shards.hash(key),
            now,
            rules: engine.rules(),
        };
        engine
            .shards
            .update(context, key, update, &mut self.garbage)
    }

    fn poll<S: ReplySink>(&mut self, _now: Now, _sink: &mut S) -> usize {
        0 // everything completes in `submit`
    }

    fn maintain(&mut self, now: Now) -> bool {
        let engine = &*self.engine;
        engine.flush_if_due(now);
        let (shards, garbage) = (&engine.shards, &mut self.garbage);
        let search = |shard, position, looks: &mut usize| {
            shards.search(shard, position, looks, now, garbage)
        };
        let expires = engine.expiry.step(shards.count(), now, search);
        // Acquire: pairs with the Release in `flush_now`.
        let flushes = engine.flushes.load(Ordering::Acquire);
        if self.flushes_reaped != flushes && !self.reap() {
            self.flushes_reaped = flushes; // a whole round found nothing
        }
        let is_flushing = self.flushes_reaped != flushes;
        self.free_some() | self.shrink(now) | expires | is_flushing
    }
}
