//! A session's state: its share of eviction, room for the item it is about to write, its counters.

use super::Relativistic;
use super::appender::Appender;
use super::evict::{EvictProgress, Evictor, Site};
use super::heap::{Ptr, Request};
use super::policy;
use super::queues::Queue;
use super::session_counters::SessionCounters;
use crate::item::{self, Contents, Item};
use corewise_atomic::lock::Mutex;
use corewise_atomic::{Backoff, Sleeps, mutant};
use corewise_maps::relativistic::Link;
use corewise_ops::Now;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of old segments walked per byte stored, when the headroom is below the reserve, when it is
/// below half of the reserve, and when there is none.
const PACE: [usize; 3] = [4, 8, 32];
/// Bytes of old segments walked in one step.
pub(super) const STEP_BYTES: usize = 1 << 16;
/// How often a session that needs memory checks whether readers have moved on, before it gives up:
/// about a second.
const CHECKS: u32 = 20_000;
/// How it sleeps between two such checks.
const SLEEPS: Sleeps = Sleeps {
    after_rounds: 1_000,
    shortest: Duration::from_micros(50),
    longest: Duration::from_micros(50),
};
/// How often all memory is walked for one item, at most; [`ROUNDS_REFUSING`] applies if nothing may
/// be evicted.
const ROUNDS: u64 = 4;
const ROUNDS_REFUSING: u64 = 1;
/// How often a session searches for something to evict after it found nothing. This takes some
/// tenths of a second. A thread that was interrupted while it wrote an item or walked a segment can
/// proceed in that time.
const SEARCHES: u32 = 4_000;
/// Number of searches after which the session seals the open segments of others.
const SEARCHES_BEFORE_SEALING: u32 = 64;
/// As [`SEARCHES`], if nothing may be evicted.
const SEARCHES_REFUSING: u32 = 3;

pub(super) struct SessionState {
    pub(super) counters: Arc<SessionCounters>,
    /// The session's number, which chooses its appender.
    number: usize,
    /// The queue of the next item; decided when room is made for it.
    queue: Queue,
    /// The policy's state bits for the next item.
    state: u8,
    /// Entries linked minus entries unlinked that the session has not yet reported to the table.
    pub(super) unreported: isize,
    /// Counts the session's steps of a resize; wraps.
    turn: usize,
    /// There was no room for the present operation.
    pub(super) refused: bool,
    /// The bytes by which the present operation wants a set to grow, if there was no room for it.
    pub(super) wanted_growth: Option<usize>,
    /// The present operation has changed the memory of a set.
    pub(super) has_charged: bool,
}

/// An item that is to be stored.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// Bytes of the item, rounded.
    pub(super) bytes: usize,
    /// Bytes of the item that it replaces; 0 if there is none.
    pub(super) old_bytes: usize,
    /// The item is a counter that is incremented or decremented: it may need a few more digits.
    pub(super) counts: bool,
}

/// How long a session that needs memory goes on.
pub(super) struct Patience {
    steps: u64,
    checks_left: u32,
    searches_left: u32,
    backoff: Backoff,
}

impl Patience {
    pub(super) fn new(engine: &Relativistic) -> Self {
        let (rounds, searches_left) = if engine.may_evict() {
            (ROUNDS, SEARCHES)
        } else {
            (ROUNDS_REFUSING, SEARCHES_REFUSING)
        };
        Self {
            steps: 64
                + rounds * engine.heap.held_bytes() / STEP_BYTES as u64
                + engine.steps_of_sets(),
            checks_left: CHECKS,
            searches_left,
            backoff: Backoff::new(),
        }
    }

    /// Whether to look for memory again after this progress; waits before, if others have to do
    /// something first. `may_grow` tells whether segments may be sealed.
    pub(super) fn lasts(
        &mut self,
        engine: &Relativistic,
        progress: EvictProgress,
        may_grow: bool,
    ) -> bool {
        // As long as walks make progress, no wait is needed; the steps bound them.
        if progress == EvictProgress::Made && self.steps > 0 {
            self.steps -= 1;
            return true;
        }
        if progress == EvictProgress::None && engine.heap.waiting_bytes() == 0 {
            // Other sessions may have finished since this one looked for something to do; or their
            // open segments hold all there is. Without `may_grow` no segment is sealed: the memory
            // is full of live items, and a segment that is sealed early keeps its unused bytes
            // until it is compacted.
            let seals =
                self.searches_left.is_multiple_of(SEARCHES_BEFORE_SEALING) || !engine.may_evict();
            if seals && (may_grow || mutant!("seals_when_full")) {
                engine.seal_older(u32::MAX);
            }
            self.searches_left -= 1;
        }
        if self.checks_left == 0 || self.searches_left == 0 || self.steps == 0 {
            return false;
        }
        self.checks_left -= 1;
        self.backoff.snooze_or_sleep(&SLEEPS);
        true
    }
}

impl SessionState {
    pub(super) fn new(counters: Arc<SessionCounters>, number: usize) -> Self {
        Self {
            counters,
            number,
            queue: Queue::Main,
            state: 0,
            unreported: 0,
            turn: 0,
            refused: false,
            wanted_growth: None,
            has_charged: false,
        }
    }

    /// The session's number, and the number of its next step of a resize.
    pub(super) fn next_turn(&mut self) -> (usize, usize) {
        self.turn = self.turn.wrapping_add(1);
        (self.number, self.turn)
    }

    pub(super) fn appender<'e>(&self, engine: &'e Relativistic) -> &'e Appender {
        engine.appender(self.number)
    }

    fn evictor<'e>(&self, engine: &'e Relativistic) -> &'e Mutex<Evictor> {
        engine.evictor(self.number)
    }

    pub(super) fn site<'s>(&'s self, engine: &'s Relativistic, now: Now) -> Site<'s> {
        Site {
            engine,
            appender: self.appender(engine),
            evictor: self.evictor(engine),
            counters: &self.counters,
            now,
        }
    }

    /// Sets the queue of the next item and the policy's state bits for it.
    pub(super) fn set_entrance(&mut self, entrance: (Queue, u8)) {
        (self.queue, self.state) = entrance;
    }

    /// Does a share of the eviction for `bytes` bytes that will be stored. Must be called outside
    /// sections and stripes.
    #[inline]
    pub(super) fn evict_ahead(&mut self, engine: &Relativistic, now: Now, bytes: usize) {
        let headroom = engine.heap.ease();
        let reserve = engine.reserve() as i64;
        if headroom < reserve {
            let pace = match headroom {
                _ if headroom > reserve / 2 => PACE[0],
                _ if headroom > 0 => PACE[1],
                _ => PACE[2],
            };
            self.evict_some(engine, now, reserve, bytes.min(STEP_BYTES) * pace);
        }
    }

    /// Walks until the heap's headroom is `target`, but for no more than about `bytes` bytes. Must
    /// be called outside sections and stripes.
    #[cold]
    pub(super) fn evict_some(
        &mut self,
        engine: &Relativistic,
        now: Now,
        target: i64,
        bytes: usize,
    ) -> EvictProgress {
        if engine.must_evict_sets() {
            return self.evict_sets(engine, now, 0, None);
        }
        // What is dying or sparse is freed before anything is evicted for its bytes.
        if engine.sets.bytes() > 0
            && engine.sets.free_some() | engine.settle_some() | engine.compact_sets()
        {
            engine.budget();
        }
        let site = self.site(engine, now);
        let Some(mut evictor) = site.evictor.try_lock() else {
            return EvictProgress::None; // another session is evicting
        };
        evictor.make_headroom(&site, target, bytes)
    }

    /// Evicts, and waits for readers if necessary, until an item has room. Must be called outside
    /// sections and stripes.
    ///
    /// Sessions in the middle of an operation do not hold up others for long. If a reader does, or
    /// if nothing can be evicted, returns false: there is no memory for the item.
    #[cold]
    pub(super) fn make_room(&mut self, engine: &Relativistic, now: Now, wanted: Wanted) -> bool {
        let heap = &engine.heap;
        engine.budget();
        let needed = heap.needed(wanted.bytes) + engine.spare();
        if needed > heap.allowed() {
            return false;
        }
        let mut patience = Patience::new(engine);
        loop {
            // Frees retired segments that readers have left.
            heap.collect(engine.table.domain());
            // Otherwise compaction cannot help: the limit was lowered below the bytes of the live
            // items.
            let has_space = engine.may_evict() || heap.live_bytes() + needed <= heap.allowed();
            let may_grow = has_space && engine.may_grow(wanted);
            if may_grow && heap.held_bytes() + needed <= heap.allowed() {
                return true;
            }
            // Without room to grow, only dead items may go.
            let progress = if may_grow {
                self.drive_evictors(engine, now, needed as i64)
            } else {
                self.remove_dead(engine, now)
            };
            if !patience.lasts(engine, progress, may_grow) {
                return false;
            }
        }
    }

    /// Runs a step of eviction, unless the heap's headroom has reached `target`: with the session's
    /// evictor, or with one of the others whose walk is parked. Those begin no walks: a walk that
    /// has no room for a copy keeps its segment claimed, and so few evictors may have one.
    pub(super) fn drive_evictors(
        &mut self,
        engine: &Relativistic,
        now: Now,
        target: i64,
    ) -> EvictProgress {
        if engine.heap.headroom() >= target {
            return EvictProgress::Blocked; // only readers have to move on
        }
        // Walks over segments evict strings too.
        if engine.must_evict_sets() {
            return self.evict_sets(engine, now, 0, None);
        }
        let site = self.site(engine, now);
        // Stops at the first evictor that makes progress.
        let mut best = EvictProgress::None;
        for (others, evictor) in engine.evictors_from(self.number).enumerate() {
            let Some(mut evictor) = evictor.try_lock() else {
                best = EvictProgress::Blocked;
                continue;
            };
            let progress = match others {
                // The session's own evictor.
                0 => evictor.make_headroom(&site, target, STEP_BYTES),
                _ => evictor.finish_walk(&site, target, STEP_BYTES),
            };
            match progress {
                EvictProgress::Made => return EvictProgress::Made,
                EvictProgress::Blocked => best = EvictProgress::Blocked,
                EvictProgress::None => {}
            }
        }
        best
    }

    /// Removes flushed or expired items, where nothing else may be removed.
    pub(super) fn remove_dead(&mut self, engine: &Relativistic, now: Now) -> EvictProgress {
        let site = self.site(engine, now);
        let swept = engine.generation().has_older && {
            engine.seal_older(engine.generation().number);
            let evictor = site.evictor.try_lock();
            evictor.is_some_and(|mut evictor| evictor.sweep(&site, STEP_BYTES))
        };
        let expired = !swept && {
            let search = engine.search.try_lock();
            search.is_some_and(|mut search| search.search_all(&site))
        };
        if swept || expired {
            EvictProgress::Made
        } else {
            EvictProgress::None
        }
    }

    /// Makes an item; returns `None` if there is no room at the moment. The caller links the item,
    /// or [discards](SessionState::discard) it.
    #[inline]
    pub(super) fn create(
        &mut self,
        engine: &Relativistic,
        contents: &Contents<'_>,
        wanted: Wanted,
        now: Now,
    ) -> Option<Ptr> {
        if !engine.may_grow(wanted) {
            return None;
        }
        let request = Request {
            bytes: wanted.bytes,
            generation: engine.generation().number,
            spare: engine.spare(),
        };
        let memory = self
            .appender(engine)
            .allocate(engine, self.queue, request)?;
        let hash = engine.hash(contents.key);
        // SAFETY: the memory is the heap's, of the item's size rounded up, aligned to a granule,
        // and not used by anything else; `size` has checked the lengths.
        let node = unsafe { item::write(memory, Link::new(hash), contents, now) };
        // SAFETY: just written, and no other thread can reach it.
        unsafe { Item::from_raw(node) }.set_state(policy::BITS, self.state);
        Some(node)
    }

    /// Gives up an item that was not linked.
    ///
    /// # Safety
    ///
    /// 1. The item came from [`create`](Self::create), was never linked, and is not used any more.
    #[cold]
    pub(super) unsafe fn discard(&mut self, engine: &Relativistic, fresh: Ptr) {
        // SAFETY: only we can reach the item, by 1.
        let bytes = engine.heap.footprint(unsafe { Item::from_raw(fresh) });
        let appender = self.appender(engine);
        // SAFETY: only the caller can reach the item, which was never linked and is not settled, by
        // 1.
        unsafe {
            if !appender.take_back(engine, self.queue, fresh, bytes) {
                abandon(engine, fresh, bytes);
            }
        }
    }

    /// Ends the session: gives up a parked walk and reports the remaining count to the table.
    pub(super) fn end(&mut self, engine: &Relativistic) {
        if let Some(mut evictor) = self.evictor(engine).try_lock() {
            evictor.end(engine);
        }
        engine.table.adjust(std::mem::take(&mut self.unreported));
    }
}

/// Gives up an item of a sealed or open segment.
///
/// # Safety
///
/// 1. The item was never linked, is not settled, and only the caller can reach it.
pub(super) unsafe fn abandon(engine: &Relativistic, fresh: Ptr, bytes: usize) {
    let _section = engine.table.domain().pin();
    // SAFETY: only the caller can reach the item, which was never linked and is not settled, by 1.
    // The segment is not reused before the section ends.
    unsafe {
        (*fresh.as_ptr()).links.abandon();
        engine.heap.settle(fresh, bytes);
        engine.heap.count_dead(engine.table.domain(), fresh, bytes);
    }
}
