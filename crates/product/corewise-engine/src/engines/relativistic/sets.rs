//! The memory of the [objects](crate::objects) that items own: sorted sets, and filters, which are
//! meant where sets are named.
//!
//! Sets take their memory from a [heap](SetHeap), whose footprint [`budget`](Relativistic::budget)
//! takes from the segments. A set that no item owns any more is *dying*: `maintain` and sessions
//! that need room free it in steps. Its pages count until the heap has given them back, which it
//! does when nothing else is on them: if eviction leaves the other sets on sparse pages, it goes on
//! until enough of these are empty.
//!
//! # Guarantees
//!
//! 1. A write makes room before a set grows: compaction and eviction of items, with or without
//!    sets, in the one order of the [policy](super::policy). So segments, tables and sets exceed
//!    the budget by no more than the growth of one write for each session that writes to a set at
//!    the same time, and the pages that it begins.
//! 2. No step frees more than a [part](objects::free_part) of a set. Members that were removed in a
//!    long range are also freed [in steps](objects::settle), which need no visit of the set.
//! 3. The set of a linked item is reached and taken under the stripe of the item's key.
//! 4. The sets have a *share*: what the least number of segments leaves. When they exceed it, or
//!    would, sets are evicted and no strings, in steps, by `maintain` or by the write that needs
//!    room. A set that exceeds the share alone is evicted before all others. The others are
//!    evicted in the order of the clock policy: a *hand* goes round the table, and takes from
//!    each set one of its hits, or evicts it if it has none.

use super::Relativistic;
use super::compact::Compactor;
use super::evict::{EvictProgress, Site};
use super::heap::Ptr;
use super::session_state::{Patience, STEP_BYTES, SessionState};
use crate::item::{Item, state};
use crate::objects::{self, Object, ObjectMemory, SetHeap, Unsettled};
use corewise_atomic::lock::{Mutex, MutexGuard};
use corewise_atomic::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use corewise_maps::relativistic::Link;
use corewise_ops::{ItemKind, Now};
use std::ptr::NonNull;

/// Items and buckets that one step of a walk over the table visits.
const LOOKS: usize = 1 << 10;

/// The step by which the footprint of sets is rounded up in a budget: at most this number of bytes,
/// and this share of the memory.
const MOST_COUNTED: u64 = 64 << 10;
const COUNTED_SHARE: u64 = 1 << 10;

/// Rounds after which the hand has evicted every set that is not hit meanwhile.
const HAND_ROUNDS: u64 = 2 + (state::HITS >> state::HITS_SHIFT) as u64;

/// See the [module](self).
pub(super) struct Sets {
    heap: SetHeap,
    /// Bytes of all sets, the dying ones included.
    bytes: AtomicU64,
    /// The bytes that the last [budget](Relativistic::budget) has left to sets.
    counted: AtomicU64,
    /// Bytes of the dying sets.
    dying_bytes: AtomicU64,
    /// Sets that an item owns.
    live: AtomicU64,
    /// Bytes that all sets may have.
    share: AtomicU64,
    /// The most bytes of one set.
    most: AtomicU64,
    /// No set has more bytes than this.
    largest: AtomicU64,
    dying: Mutex<Vec<Object>>,
    unsettled: Mutex<Unsettled>,
    hand: Mutex<Hand>,
    compactor: Mutex<Compactor>,
    is_compacting: AtomicBool,
}

/// Walks over the table in search of sets to evict.
#[derive(Default)]
struct Hand {
    position: u32,
    /// The present round searches for sets that exceed this share alone.
    exceeding: Option<u64>,
}

impl Sets {
    pub(super) fn new(memory: u64) -> Self {
        Self {
            heap: SetHeap::new(memory),
            bytes: AtomicU64::new(0),
            counted: AtomicU64::new(0),
            dying_bytes: AtomicU64::new(0),
            live: AtomicU64::new(0),
            share: AtomicU64::new(0),
            most: AtomicU64::new(0),
            largest: AtomicU64::new(0),
            dying: Mutex::new(Vec::new()),
            unsettled: Mutex::default(),
            hand: Mutex::new(Hand::default()),
            compactor: Mutex::new(Compactor::default()),
            is_compacting: AtomicBool::new(false),
        }
    }

    /// Bytes of all sets.
    pub(super) fn bytes(&self) -> u64 {
        // Relaxed: a number that others change at any time.
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes that are resident for sets.
    fn footprint(&self) -> u64 {
        (self.heap.footprint() + self.heap.outside()) as u64
    }

    pub(super) fn heap(&self) -> &SetHeap {
        &self.heap
    }

    /// The compactor, if there is something to do and no other thread does it.
    pub(super) fn compactor(&self) -> Option<MutexGuard<'_, Compactor>> {
        // Relaxed: a hint; the lock orders what the compactor has done.
        let has_work = self.is_compacting.load(Ordering::Relaxed) || self.heap.is_sparse();
        has_work.then(|| self.compactor.try_lock()).flatten()
    }

    pub(super) fn set_compacting(&self, is_compacting: bool) {
        // Relaxed: see `compactor`.
        self.is_compacting.store(is_compacting, Ordering::Relaxed);
    }

    /// What objects are made with.
    pub(super) fn memory(&self) -> &ObjectMemory {
        self.heap.memory()
    }

    pub(super) fn set_counted(&self, bytes: u64) {
        // Relaxed: see `bytes`.
        self.counted.store(bytes, Ordering::Relaxed);
    }

    /// Sets that items own.
    pub(super) fn live(&self) -> u64 {
        // Relaxed: a statistic; `Relativistic::drop` has the engine exclusively.
        self.live.load(Ordering::Relaxed)
    }

    /// Sets the share: what the memory and the `others` in it leave to sets.
    pub(super) fn set_share(&self, memory: u64, others: u64) {
        let share = memory.saturating_sub(others);
        // Relaxed, all: see `bytes`.
        self.share.store(share, Ordering::Relaxed);
        let most = share.min(memory / 4 * objects::MOST_QUARTERS);
        self.most.store(most, Ordering::Relaxed);
        self.largest.fetch_max(share, Ordering::Relaxed);
    }

    fn share(&self) -> u64 {
        // Relaxed: see `bytes`.
        self.share.load(Ordering::Relaxed)
    }

    /// Bytes that the share has left; below zero if the footprint exceeds it.
    fn left(&self) -> i64 {
        self.share() as i64 - self.footprint() as i64
    }

    /// The same without dying sets, and without the footprint's free room: while a set is freed,
    /// its pages have free room before they go back.
    fn left_by_living(&self) -> i64 {
        // Relaxed: see `bytes`.
        let dying = self.dying_bytes.load(Ordering::Relaxed);
        self.left() + (dying + self.heap.slack() as u64) as i64
    }

    /// Bytes by which the sets exceed their share.
    pub(super) fn excess(&self) -> u64 {
        if self.bytes() == 0 {
            return 0; // of what the heap keeps nothing can be evicted
        }
        u64::try_from(-self.left()).unwrap_or(0)
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
    fn retire(&self, set: Object) {
        // Relaxed, both: a statistic; see `bytes`.
        self.live.fetch_sub(1, Ordering::Relaxed);
        self.dying_bytes
            .fetch_add(set.bytes() as u64, Ordering::Relaxed);
        if let Some(set) = self.free_of(set) {
            self.dying.lock().push(set);
        }
    }

    /// Frees a part of a dying set; returns what is left.
    fn free_of(&self, set: Object) -> Option<Object> {
        let (freed, rest) = objects::free_part(set);
        // Relaxed, both: see `bytes`.
        for sum in [&self.bytes, &self.dying_bytes] {
            sum.fetch_sub(freed as u64, Ordering::Relaxed);
        }
        rest
    }

    /// Notes that the set of a key with this hash is to be settled.
    pub(super) fn note_unsettled(&self, hash: u64) {
        self.unsettled.lock().add(hash);
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
    /// The footprint of all sets as a budget counts it: rounded up, so that few writes change it.
    pub(super) fn counted_sets(&self) -> u64 {
        // Relaxed: a setting.
        let memory = self.memory.load(Ordering::Relaxed);
        let step = (memory / COUNTED_SHARE).clamp(1, MOST_COUNTED);
        self.sets.footprint().next_multiple_of(step)
    }

    /// Computes the budget again, if the last one has counted the sets otherwise.
    pub(super) fn budget_for_sets(&self) {
        // Relaxed: a write that has changed the bytes and finds them counted lies within what was
        // left to sets.
        if self.counted_sets() != self.sets.counted.load(Ordering::Relaxed) {
            self.budget();
        }
    }

    /// Bytes by which sets may grow now.
    pub(super) fn set_room(&self) -> i64 {
        let headroom = self.heap.allowed() as i64 - (self.heap.held_bytes() + self.spare()) as i64;
        headroom.min(self.sets.left())
    }

    /// Whether sets are to be evicted because they exceed their share.
    #[inline]
    pub(super) fn must_evict_sets(&self) -> bool {
        self.sets.bytes() > 0 && self.sets.left() < 0 && self.may_evict()
    }

    /// The steps in which all sets can be evicted and freed: the hand goes round once for those
    /// that exceed the share alone, and once more than there are hits to take.
    pub(super) fn steps_of_sets(&self) -> u64 {
        if self.sets.bytes() == 0 {
            return 0;
        }
        let looks = self.table.resize_state().buckets + self.table.reported_len();
        self.sets.footprint() / STEP_BYTES as u64 + HAND_ROUNDS * (looks / LOOKS + 1) as u64
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
    /// 1. The caller has unlinked the item, which owns an object, under the stripe of its
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

    /// Frees some memory of removed members of a set. Returns whether there was one to look for.
    /// Must be called outside sections and stripes.
    pub(super) fn settle_some(&self) -> bool {
        let Some(hash) = self.sets.unsettled.lock().take() else {
            return false;
        };
        let _stripe = self.stripe(hash).lock();
        let guard = self.table.domain().pin();
        let is_set = |link: NonNull<Link>| {
            // SAFETY: the guard keeps visited items alive.
            unsafe { Item::<Link>::from_raw(link.cast()) }.kind() == ItemKind::Set
        };
        // SAFETY: the guard is of the table's domain, and keeps the found item alive.
        let found = unsafe { self.table.find(&guard, hash, is_set) };
        if let Some(link) = found {
            // SAFETY: the item was found in the table, from which none with a set is removed
            // without the stripe, so it owns its set (1, both). The stripe excludes all others that
            // follow the pointer; the reference ends below (2). Items whose hashes the table does
            // not tell apart have the same stripe.
            let set = unsafe { objects::set_of(Item::<Link>::from_raw(link.cast())) };
            let before = objects::bytes(set);
            let has_more = objects::settle(set);
            let after = objects::bytes(set);
            self.sets.charge(before, after);
            if has_more {
                self.sets.note_unsettled(hash);
            }
        }
        true
    }

    /// Bytes of the set of an item that was found by a scan.
    ///
    /// # Safety
    ///
    /// 1. The caller's section keeps the item, which owns an object and was linked.
    unsafe fn bytes_of_set(&self, node: Ptr) -> usize {
        // SAFETY: the caller's section keeps the item alive, by 1.
        let (item, link): (Item<'_, Link>, &Link) =
            unsafe { (Item::from_raw(node), &(*node.as_ptr()).links) };
        let _stripe = self.stripe(link.reduced_hash()).lock();
        if link.is_removed() {
            return 0;
        }
        // SAFETY: the item was linked and is not removed, so it owns its set (1). The stripe
        // excludes all others that follow the pointer; the reference ends here (2).
        unsafe { objects::bytes_of(item) }
    }

    /// Frees all sets of a table that is dropped.
    pub(super) fn free_sets(&mut self) {
        if self.sets.live() == 0 {
            return;
        }
        let guard = self.table.domain().pin();
        let mut position = Some(0);
        while let Some(from) = position {
            let visit = |link: NonNull<Link>| {
                // SAFETY: the guard keeps visited items alive.
                let item: Item<'_, Link> = unsafe { Item::from_raw(link.cast()) };
                if item.kind().owns_object() {
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

impl Hand {
    /// Evicts sets until the living ones leave `left` bytes of the share, among those at the hand's
    /// next [`LOOKS`] items and buckets; not the set of the hash `keep`.
    fn step(&mut self, site: &Site<'_>, left: i64, keep: Option<u64>) {
        let (engine, sets) = (site.engine, &site.engine.sets);
        let share = sets.share();
        // Relaxed, both: see `Sets::bytes`.
        if self.exceeding.is_none() && sets.largest.load(Ordering::Relaxed) > share {
            (self.position, self.exceeding) = (0, Some(share));
        }
        let guard = engine.table.domain().pin();
        let visit = |link: NonNull<Link>| {
            let node: Ptr = link.cast();
            // SAFETY: the guard keeps visited items alive.
            let item: Item<'_, Link> = unsafe { Item::from_raw(node) };
            if !item.kind().owns_object() || sets.left_by_living() >= left {
                return;
            }
            // SAFETY: the guard is of the table's domain, and has kept the item since it was found
            // in the table (1 and 2; 1 of `spares`).
            unsafe {
                if item.deadline().is_past(site.now) || engine.is_flushed(node) {
                    site.remove(&guard, node, false);
                } else if !self.spares(engine, node, share, keep) {
                    site.evict(&guard, node);
                }
            }
        };
        // SAFETY: the guard is of the table's domain and outlives the visits.
        let next = unsafe { engine.table.scan(&guard, self.position, LOOKS, visit) };
        self.position = next.unwrap_or(0);
        if next.is_none()
            && let Some(share) = self.exceeding.take()
        {
            // Relaxed: see `Sets::bytes`. Sets have grown to the share at most.
            sets.largest
                .store(share.max(sets.share()), Ordering::Relaxed);
        }
    }

    /// Whether the hand passes over a set. Takes one of its hits, unless the round is one for sets
    /// that exceed the share alone.
    ///
    /// # Safety
    ///
    /// 1. The caller's section keeps the item, which owns an object and was linked.
    unsafe fn spares(
        &self,
        engine: &Relativistic,
        node: Ptr,
        share: u64,
        keep: Option<u64>,
    ) -> bool {
        // SAFETY: the caller's section keeps the item alive, by 1.
        let (item, link): (Item<'_, Link>, &Link) =
            unsafe { (Item::from_raw(node), &(*node.as_ptr()).links) };
        if keep == Some(link.reduced_hash()) {
            return true;
        }
        if self.exceeding.is_some() {
            // SAFETY: by 1 (1).
            return unsafe { engine.bytes_of_set(node) } as u64 <= share;
        }
        let hits = (item.state() & state::HITS) >> state::HITS_SHIFT;
        if hits > 0 {
            item.set_state(state::HITS, (hits - 1) << state::HITS_SHIFT);
        }
        hits > 0
    }
}

impl SessionState {
    /// A step towards sets that may grow by `growth` bytes within their share: frees a part of a
    /// dying set, or evicts sets, but not the one of the hash `keep`. Must be called outside
    /// sections and stripes.
    #[cold]
    pub(super) fn evict_sets(
        &self,
        engine: &Relativistic,
        now: Now,
        growth: usize,
        keep: Option<u64>,
    ) -> EvictProgress {
        let (sets, growth) = (&engine.sets, growth as i64);
        let frees = sets.free_some();
        let left = if sets.left_by_living() < growth {
            Some(growth)
        } else if !frees && sets.left() < growth {
            // Free room is in the way, among sets that live.
            Some(growth + sets.heap.slack() as i64)
        } else {
            None
        };
        if let Some(left) = left {
            let Some(mut hand) = sets.hand.try_lock() else {
                return EvictProgress::Blocked; // another session evicts
            };
            hand.step(&self.site(engine, now), left, keep);
        } else if !frees {
            return EvictProgress::Blocked; // other sessions free the rest
        }
        engine.budget();
        EvictProgress::Made
    }

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

    /// Frees and evicts until the set of a hash may grow by `growth` bytes. Must be called outside
    /// sections and stripes. Returns false if there is no memory.
    #[cold]
    pub(super) fn make_set_room(
        &mut self,
        engine: &Relativistic,
        now: Now,
        (hash, growth): (u64, usize),
    ) -> bool {
        let mut patience = Patience::new(engine);
        let mut compacts = true;
        loop {
            let frees = engine.sets.free_some() || engine.settle_some();
            engine.heap.collect(engine.table.domain());
            engine.budget();
            if engine.set_room() >= growth as i64 {
                return true;
            }
            if frees {
                continue;
            }
            let exceeds = engine.sets.left() < growth as i64;
            let target = (growth as u64 + engine.spare()) as i64;
            let mut progress = match (engine.may_evict(), compacts) {
                (true, _) if exceeds => self.evict_sets(engine, now, growth, Some(hash)),
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
