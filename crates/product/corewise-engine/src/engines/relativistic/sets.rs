//! The memory of the [sorted sets](crate::objects) that items own.
//!
//! Sets take their memory from the allocator, and [`budget`](Relativistic::budget) takes it from
//! the segments. A set that no item owns any more is *dying*: `maintain` and sessions that need
//! room free it in steps, and it counts until then.
//!
//! # Guarantees
//!
//! 1. A write makes room before a set grows: compaction and eviction of items, with or without
//!    sets, in the one order of the [policy](super::policy). So segments, tables and sets exceed
//!    the budget by no more than the growth of one write for each session that writes to a set at
//!    the same time.
//! 2. No step frees more than [`FREED_AT_ONCE`] chunks of a set.
//! 3. The set of a linked item is reached and taken under the stripe of the item's key.

use super::Relativistic;
use super::evict::EvictProgress;
use super::heap::Ptr;
use super::session_state::{Patience, STEP_BYTES, SessionState};
use crate::item::Item;
use crate::objects::{self, Set};
use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::{AtomicU64, Ordering};
use corewise_maps::relativistic::Link;
use corewise_ops::Now;

/// Chunks, arrays and pages of a set that are freed in one step: 512 KiB at most.
const FREED_AT_ONCE: usize = 8;
/// Items and buckets that one step of a walk over the table visits.
const LOOKS: usize = 1 << 12;

/// See the [module](self).
pub(super) struct Sets {
    /// Bytes of all sets, the dying ones included.
    bytes: AtomicU64,
    /// Sets that an item owns.
    live: AtomicU64,
    /// Bytes by which the sets exceed what the least number of segments leaves them.
    deficit: AtomicU64,
    /// The most bytes of one set.
    most: AtomicU64,
    dying: Mutex<Vec<Set>>,
}

impl Sets {
    pub(super) fn new() -> Self {
        Self {
            bytes: AtomicU64::new(0),
            live: AtomicU64::new(0),
            deficit: AtomicU64::new(0),
            most: AtomicU64::new(0),
            dying: Mutex::new(Vec::new()),
        }
    }

    /// Bytes of all sets.
    pub(super) fn bytes(&self) -> u64 {
        // Relaxed: a number that others change at any time.
        self.bytes.load(Ordering::Relaxed)
    }

    /// Sets that items own.
    pub(super) fn live(&self) -> u64 {
        // Relaxed: a statistic; `Relativistic::drop` has the engine exclusively.
        self.live.load(Ordering::Relaxed)
    }

    /// Notes what the memory and the `others` in it leave to sets.
    pub(super) fn set_bounds(&self, memory: u64, others: u64) {
        let left = memory.saturating_sub(others);
        let most = left.min(memory / 4 * objects::MOST_QUARTERS);
        let deficit = self.bytes().saturating_sub(left);
        // Relaxed, both: see `bytes`.
        self.most.store(most, Ordering::Relaxed);
        self.deficit.store(deficit, Ordering::Relaxed);
    }

    /// Counts a set that took `before` bytes and takes `after` bytes; a new one took none.
    pub(super) fn charge(&self, before: usize, after: usize) {
        if before == 0 {
            // Relaxed: a statistic.
            self.live.fetch_add(1, Ordering::Relaxed);
        }
        let (before, after) = (before as u64, after as u64);
        if before != after {
            // Relaxed: see `bytes`. Wraps to a lower number if the set has shrunk.
            self.bytes
                .fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// Frees a set that no item owns, in steps.
    fn retire(&self, set: Set) {
        // Relaxed: a statistic.
        self.live.fetch_sub(1, Ordering::Relaxed);
        if let Some(set) = self.free_of(set) {
            self.dying.lock().push(set);
        }
    }

    /// Frees a part of a set; returns what is left.
    fn free_of(&self, mut set: Set) -> Option<Set> {
        let before = objects::bytes(&set);
        let has_more = set.drop_some(FREED_AT_ONCE);
        let after = if has_more { objects::bytes(&set) } else { 0 };
        // Relaxed: see `bytes`.
        self.bytes
            .fetch_sub((before - after) as u64, Ordering::Relaxed);
        has_more.then_some(set)
    }

    /// Does a step of freeing. Returns whether there was something to free.
    pub(super) fn free_some(&self) -> bool {
        let Some(set) = self.dying.lock().pop() else {
            return false;
        };
        if let Some(set) = self.free_of(set) {
            self.dying.lock().push(set);
        }
        true
    }
}

impl Relativistic {
    /// Bytes by which sets may grow now.
    pub(super) fn set_room(&self) -> i64 {
        self.heap.allowed() as i64 - (self.heap.held() + self.kept_from_sets()) as i64
    }

    /// Bytes of the segments' budget that sets may not have.
    fn kept_from_sets(&self) -> u64 {
        // Relaxed: see `Sets::bytes`.
        self.sets.deficit.load(Ordering::Relaxed) + self.spare()
    }

    /// Whether a set may take this number of bytes.
    pub(super) fn may_have_set(&self, bytes: usize) -> bool {
        // Relaxed: see `Sets::bytes`.
        bytes as u64 <= self.sets.most.load(Ordering::Relaxed)
    }

    /// Takes the set of an item that was unlinked.
    ///
    /// # Safety
    ///
    /// 1. The caller has unlinked the item, which is of the kind `Set`, under the stripe of its
    ///    key, and calls this once.
    #[cold]
    pub(super) unsafe fn retire_set(&self, node: Ptr) {
        // SAFETY: the caller's section keeps the item alive, by 1.
        let (item, link): (Item<'_, Link>, &Link) =
            unsafe { (Item::from_raw(node), &(*node.as_ptr()).links) };
        debug_assert!(
            self.stripe(link.reduced_hash()).try_lock().is_none(),
            "the set of an item is taken under its stripe"
        );
        // SAFETY: the item was linked, and its set is taken here only, once, by 1 (1). Every thread
        // that follows the pointer holds the stripe, as the caller does, and has found the item
        // linked (2).
        self.sets.retire(unsafe { objects::take(item) });
    }

    /// Frees all sets of a table that is dropped.
    pub(super) fn free_sets(&mut self) {
        if self.sets.live() == 0 {
            return;
        }
        let guard = self.table.domain().pin();
        let mut position = Some(0);
        while let Some(from) = position {
            let visit = |link: std::ptr::NonNull<Link>| {
                // SAFETY: the guard keeps visited items alive.
                let item: Item<'_, Link> = unsafe { Item::from_raw(link.cast()) };
                if item.kind() == corewise_ops::ItemKind::Set {
                    // SAFETY: a linked item owns its set, and each is visited once, because nothing
                    // changes the table (1). The engine is dropped, so there are no references (2).
                    drop(unsafe { objects::take(item) });
                }
            };
            // SAFETY: the guard is of the table's domain and outlives the visits.
            position = unsafe { self.table.scan(&guard, from, LOOKS, visit) };
        }
    }
}

impl SessionState {
    /// A step of eviction without compaction.
    fn evict_only(&self, engine: &Relativistic, now: Now, target: i64) -> EvictProgress {
        if engine.heap.headroom() >= target {
            return EvictProgress::Blocked; // only readers have to move on
        }
        let site = self.site(engine, now);
        match site.evictor.try_lock() {
            Some(mut evictor) => evictor.evict_only(&site, target, STEP_BYTES),
            None => EvictProgress::Blocked,
        }
    }

    /// Frees and evicts until a set may grow by `growth` bytes. Must be called outside sections and
    /// stripes. Returns false if there is no memory.
    #[cold]
    pub(super) fn make_set_room(&mut self, engine: &Relativistic, now: Now, growth: usize) -> bool {
        let mut patience = Patience::new(engine);
        let mut compacts = true;
        loop {
            let frees = engine.sets.free_some();
            engine.heap.collect(engine.table.domain());
            engine.budget();
            if engine.set_room() >= growth as i64 {
                return true;
            }
            if frees {
                continue;
            }
            let target = (growth as u64 + engine.kept_from_sets()) as i64;
            let mut progress = match (engine.may_evict(), compacts) {
                (true, true) => self.drive_evictors(engine, now, target),
                (true, false) => self.evict_only(engine, now, target),
                (false, _) => self.remove_dead(engine, now),
            };
            if progress == EvictProgress::None && engine.may_evict() {
                // The items of sets are small, so all may be in open segments.
                engine.seal_older(u32::MAX);
                (compacts, progress) = (false, EvictProgress::Made);
            }
            if !patience.lasts(engine, progress, true) {
                return false;
            }
        }
    }
}
