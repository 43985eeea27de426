//! Eviction and compaction: walks over segments.
//!
//! An evictor claims a segment and walks it in steps of a bounded number of bytes, in sections of
//! [`BATCH`] items. It copies an item that is to be kept, under its key's stripe, to where its
//! session appends, and replaces the item by the copy in the table. It removes the other items. At
//! the end of the walk nothing in the segment is live, and the segment is retired.
//!
//! *Eviction* takes the segment whose turn it is by the [policy]. *Compaction* takes
//! a segment with few live bytes, whose other items were overwritten, deleted or have expired, and
//! keeps all live items. *Flushed* segments are walked before all others. A large item is kept in
//! place.
//!
//! # Guarantees
//!
//! 1. *Nothing is evicted without need*: no walk over live items begins while a segment is left
//!    that compaction gains an eighth of. A step begins with a headroom to reach, and ends as soon
//!    as it is reached. So one step evicts at most what the stores since the last step took, and
//!    the rest of a segment.
//! 2. *Compaction gains*: a segment is compacted only if copying its live items takes less than the
//!    segment holds ([`Candidate::gain`](super::heap::Candidate)).
//! 3. *An item to be kept is evicted* only if there is no room for a copy and none to come, or if
//!    all memory was walked twice and everything in it was to be kept.
//! 4. *Flushing* removes nothing that was stored after the flush.

use super::Relativistic;
use super::appender::Appender;
use super::heap::{Candidate, Claim, Ptr, Request};
use super::policy::{self, Eviction, Fate};
use super::queues::{Queue, Segment};
use super::session_counters::SessionCounters;
use crate::item::{self, Item};
use corewise_atomic::lock::Mutex;
use corewise_atomic::mutant;
use corewise_maps::relativistic::Link;
use corewise_ops::{Deadline, Now};
use corewise_rcu::Guard;

/// Items visited in one section.
const BATCH: usize = 16;
/// Number of items ahead of the walk whose buckets are prefetched.
const AHEAD: usize = 8;
/// Number of sparse segments of which the best is compacted.
const BEST_OF: usize = 32;
/// Least share of a segment's bytes, in 32nds, that compaction must gain to be preferred to
/// evicting another segment: an eighth. It is more than
/// [small items waste](super::heap::ItemSizeClass) in the copy, and random overwrites of 93 % of
/// the segments' bytes leave a segment that gains it.
const GAIN_32NDS: u64 = 4;
/// The same if nothing may be evicted. It is less than the [slack](Relativistic::has_slack): when
/// nothing is left to compact, there is room.
const GAIN_32NDS_REFUSING: u64 = 1;
/// A walk that removed less than this share of the bytes it walked, in 32nds, counts as one that
/// kept everything.
const FRUITFUL_32NDS: u64 = 1;

/// Makes room beside an appender.
pub(super) struct Evictor {
    walk: Option<Walk>,
    sparse_from: Segment,
    flushed_from: Segment,
    /// Bytes walked for eviction since something was last removed.
    kept_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Evict,
    Compact,
}

#[derive(Debug)]
struct Walk {
    claim: Claim,
    purpose: Purpose,
    /// The mean size of items when the walk began.
    mean: usize,
    /// Offset of the next item, and of the next item whose bucket is prefetched.
    at: u32,
    ahead: u32,
}

/// The context of a walk.
pub(super) struct Site<'s> {
    pub(super) engine: &'s Relativistic,
    /// Where copies go.
    pub(super) appender: &'s Appender,
    pub(super) evictor: &'s Mutex<Evictor>,
    pub(super) counters: &'s SessionCounters,
    pub(super) now: Now,
}

/// Whether compaction gains at least this share of a segment.
fn gains(least_32nds: u64) -> impl Fn(Candidate) -> bool {
    move |candidate| candidate.gain * 32 >= candidate.held * least_32nds
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EvictProgress {
    /// The headroom is reached, or the requested number of bytes was walked.
    Made,
    /// Readers must move on first.
    Blocked,
    /// There is nothing to evict or compact.
    None,
}

impl Evictor {
    pub(super) fn new() -> Self {
        Self {
            walk: None,
            sparse_from: 1,
            flushed_from: 1,
            kept_bytes: 0,
        }
    }

    /// Walks until the heap's headroom is `target`, but for no more than about `bytes` bytes.
    /// Compacts until its [ease](super::heap::Heap::ease) is.
    pub(super) fn make_headroom(
        &mut self,
        site: &Site<'_>,
        target: i64,
        bytes: usize,
    ) -> EvictProgress {
        self.walk_until(site, target, bytes, true, true)
    }

    /// As [`Self::make_headroom`], but compacts nothing. Compaction gains segments only, and where
    /// sets have nearly all memory, few segments are left to gain.
    pub(super) fn evict_only(
        &mut self,
        site: &Site<'_>,
        target: i64,
        bytes: usize,
    ) -> EvictProgress {
        self.walk_until(site, target, bytes, true, false)
    }

    /// As [`Self::make_headroom`], but begins no walk: continues the one that is parked.
    pub(super) fn finish_walk(
        &mut self,
        site: &Site<'_>,
        target: i64,
        bytes: usize,
    ) -> EvictProgress {
        let begins = mutant!("others_begin_walks");
        self.walk_until(site, target, bytes, begins, true)
    }

    fn walk_until(
        &mut self,
        site: &Site<'_>,
        target: i64,
        bytes: usize,
        begins: bool,
        mut compacts: bool,
    ) -> EvictProgress {
        let heap = &site.engine.heap;
        let mut left = bytes as i64;
        while left > 0 && heap.ease() < target {
            // With enough headroom, only compaction may raise the ease to the target.
            let evicts = heap.headroom() < target;
            let mut next = self.walk.take();
            // A parked walk that would evict live items is given up then.
            if let Some(walk) = next.take_if(|walk| !evicts && walk.evicts_live(site.engine)) {
                heap.unclaim(site.engine.table.domain(), walk.claim);
            }
            if next.is_none() && begins {
                next = self.begin_walk(site, compacts, evicts);
            }
            let Some(walk) = next else {
                // A caller that begins no walks has made progress with the one that was parked.
                let walked = left < bytes as i64;
                return if walked && !begins {
                    EvictProgress::Made
                } else {
                    EvictProgress::None
                };
            };
            let purpose = walk.purpose;
            // Collected outside the walk's section, in which no grace period ends.
            heap.collect_for(site.engine.table.domain(), 1);
            match self.continue_walk(site, walk) {
                WalkStop::After(walked) => left -= i64::from(walked.max(1)),
                WalkStop::AfterSet(_) => {
                    site.engine.budget();
                    return EvictProgress::Made;
                }
                WalkStop::Blocked => return EvictProgress::Blocked,
                // There is not even room for a copy, so something must be evicted.
                WalkStop::NoRoom if purpose == Purpose::Compact && site.engine.may_evict() => {
                    compacts = false;
                }
                WalkStop::NoRoom => return EvictProgress::None,
            }
        }
        EvictProgress::Made
    }

    /// Walks flushed segments, about `bytes` bytes. Returns false if none are left.
    pub(super) fn sweep(&mut self, site: &Site<'_>, bytes: usize) -> bool {
        let engine = site.engine;
        let generation = engine.generation().number;
        let mut left = bytes as i64;
        while left > 0 {
            let parked = self.walk.take();
            let walk = match parked {
                Some(walk) if engine.heap.generation(walk.claim.segment) < generation => walk,
                parked => {
                    // The segment of the parked walk may hold items that were stored since the
                    // flush: it is given up, and a later walk begins at its start.
                    if let Some(walk) = parked {
                        engine.heap.unclaim(engine.table.domain(), walk.claim);
                    }
                    let next = self.begin_flushed(engine).or_else(|| {
                        let any = mutant!("sweeps_what_lives");
                        any.then(|| begin_policy(engine)).flatten()
                    });
                    match next {
                        Some(walk) => walk,
                        None => return false,
                    }
                }
            };
            let (WalkStop::After(walked) | WalkStop::AfterSet(walked)) =
                self.continue_walk(site, walk)
            else {
                debug_assert!(false, "what was flushed needs no room");
                return false;
            };
            left -= i64::from(walked.max(1));
        }
        true
    }

    /// Claims the segment to walk next. A segment that must be compacted is claimed only if
    /// `compacts`: there may be room for copies. Live items are evicted only if `evicts`.
    fn begin_walk(&mut self, site: &Site<'_>, compacts: bool, evicts: bool) -> Option<Walk> {
        let engine = site.engine;
        self.begin_flushed(engine)
            .or_else(|| compacts.then(|| self.begin_sparse(engine)).flatten())
            .or_else(|| evicts.then(|| begin_policy(engine)).flatten())
    }

    fn begin_flushed(&mut self, engine: &Relativistic) -> Option<Walk> {
        let generation = engine.generation();
        if !generation.has_older {
            return None;
        }
        let heap = &engine.heap;
        let mut looks = heap.used_segments();
        let claim = heap.claim_where(&mut self.flushed_from, &mut looks, |candidate| {
            heap.generation(candidate.segment) < generation.number
        })?;
        Some(Walk::new(claim, Purpose::Evict, 0))
    }

    fn begin_sparse(&mut self, engine: &Relativistic) -> Option<Walk> {
        let least = if engine.may_evict() {
            GAIN_32NDS
        } else {
            GAIN_32NDS_REFUSING
        };
        let from = &mut self.sparse_from;
        let claim = engine.heap.claim_sparsest(from, BEST_OF, gains(least));
        Some(Walk::new(claim?, Purpose::Compact, 0))
    }

    /// Continues a walk for some items, in one section, and parks the rest of it.
    fn continue_walk(&mut self, site: &Site<'_>, mut walk: Walk) -> WalkStop {
        let (heap, domain) = (&site.engine.heap, site.engine.table.domain());
        if walk.claim.is_large {
            let walked = walk.claim.used(heap);
            let removed = visit_large(site, walk, self.forces(heap.allowed()));
            self.count_walked(u64::from(walked), removed);
            return WalkStop::After(walked);
        }
        match self.visit_some(site, &mut walk) {
            Visited::Some(walked) => {
                self.walk = Some(walk);
                WalkStop::After(walked)
            }
            Visited::Set(walked) => {
                self.walk = Some(walk);
                WalkStop::AfterSet(walked)
            }
            Visited::End(walked) => {
                heap.unclaim(domain, walk.claim);
                WalkStop::After(walked)
            }
            // Retired segments become free when readers have left: the walk continues then.
            Visited::NoRoom if heap.waiting_bytes() > 0 => {
                self.walk = Some(walk);
                WalkStop::Blocked
            }
            Visited::NoRoom => {
                heap.unclaim(domain, walk.claim);
                WalkStop::NoRoom
            }
        }
    }

    /// Visits some items of a walk, in one section.
    fn visit_some(&mut self, site: &Site<'_>, walk: &mut Walk) -> Visited {
        let engine = site.engine;
        let guard = engine.table.domain().pin();
        let forces = self.forces(engine.heap.allowed());
        let (begin, mut removed) = (walk.at, 0);
        for _ in 0..BATCH {
            // SAFETY: the guard is of the table's domain (1). Evictors walk segments of their
            // engine (2).
            unsafe { walk.look_ahead(engine, &guard) };
            // SAFETY: evictors walk segments of their engine (1). `at` is 0 first, and then
            // what this function returned for the claim (2).
            let Some((node, next)) = (unsafe { engine.heap.item_at(&walk.claim, walk.at) }) else {
                self.count_walked(u64::from(walk.at - begin), removed);
                return Visited::End(walk.at - begin);
            };
            // SAFETY: the guard is of the table's domain (1). The node was just found in the walk's
            // claim (2).
            match unsafe { visit(site, &guard, walk, node, forces) } {
                Visit::Kept => {}
                Visit::Removed => removed += u64::from(next - walk.at),
                Visit::RemovedSet => {
                    walk.at = next;
                    self.kept_bytes = 0;
                    return Visited::Set(walk.at - begin);
                }
                Visit::NoRoom => {
                    self.count_walked(u64::from(walk.at - begin), removed);
                    return Visited::NoRoom;
                }
            }
            walk.at = next;
        }
        self.count_walked(u64::from(walk.at - begin), removed);
        Visited::Some(walk.at - begin)
    }

    fn count_walked(&mut self, walked: u64, removed: u64) {
        if walked == 0 && !mutant!("forgets_what_was_kept") {
            return; // the segment's end, or no room for the first copy
        }
        if removed * 32 >= walked * FRUITFUL_32NDS {
            self.kept_bytes = 0;
        } else {
            self.kept_bytes += walked;
        }
    }

    /// Whether the walk evicts items although they are to be kept.
    fn forces(&self, allowed: u64) -> bool {
        self.kept_bytes > 2 * allowed
    }

    /// Compacts a segment, or evicts its items.
    #[cfg(test)]
    pub(super) fn walk_all(&mut self, site: &Site<'_>, claim: Claim, purpose: Purpose) {
        let mut walk = Walk::new(claim, purpose, 0);
        while let Visited::Some(_) | Visited::Set(_) = self.visit_some(site, &mut walk) {}
        let domain = site.engine.table.domain();
        site.engine.heap.unclaim(domain, walk.claim);
    }

    #[cfg(test)]
    pub(super) fn is_walking(&self) -> bool {
        self.walk.is_some()
    }

    /// Gives up a parked walk.
    pub(super) fn end(&mut self, engine: &Relativistic) {
        self.give_up_if(engine, |_| true);
    }

    /// Gives up a parked walk of a segment for which `gives_up` holds.
    pub(super) fn give_up_if(
        &mut self,
        engine: &Relativistic,
        gives_up: impl FnOnce(Segment) -> bool,
    ) {
        if let Some(walk) = self.walk.take_if(|walk| gives_up(walk.claim.segment)) {
            engine.heap.unclaim(engine.table.domain(), walk.claim);
        }
    }
}

fn begin_policy(engine: &Relativistic) -> Option<Walk> {
    let (heap, policy) = (&engine.heap, &engine.policy);
    let claim = match policy.eviction() {
        Eviction::Refuse => None,
        Eviction::Random => heap.claim_random(policy.draw()),
        _ => heap.claim(|queues, may_claim| policy.choose(queues, may_claim)),
    };
    Some(Walk::new(claim?, Purpose::Evict, engine.mean_bytes()))
}

/// Keeps or removes an item, by the purpose of the walk.
///
/// # Safety
///
/// 1. The guard is of the table's domain.
/// 2. `node` is an item of the walk's claim, which is one of this engine.
unsafe fn visit(site: &Site<'_>, guard: &Guard<'_>, walk: &Walk, node: Ptr, forces: bool) -> Visit {
    // SAFETY: the claim keeps the item alive, by 2.
    let (found, link): (Item<'_, Link>, &Link) =
        unsafe { (Item::from_raw(node), &(*node.as_ptr()).links) };
    if link.is_removed() {
        return Visit::Removed;
    }
    if site.is_over(walk, found) {
        // SAFETY: the guard is of the table's domain, by 1, and the item is in a segment that the
        // walk has claimed, by 2.
        unsafe { site.remove(guard, node, false) };
        return Visit::Removed;
    }
    let engine = site.engine;
    let fate = match walk.purpose {
        Purpose::Compact => {
            let state = found.state();
            Fate::Keep(engine.policy.queue(state), state & policy::BITS)
        }
        Purpose::Evict if forces => Fate::Evict,
        Purpose::Evict => {
            let bytes = match found.kind() {
                // Neither a tax on a large set nor a bonus for its tiny item.
                kind if kind.owns_object() => walk.mean,
                _ => engine.heap.footprint(found),
            };
            let draw = walk.draw(link.reduced_hash(), site.now);
            engine.policy.judge(found.state(), bytes, walk.mean, draw)
        }
    };
    match fate {
        // SAFETY: the contract of `keep` is the one of this function.
        Fate::Keep(queue, bits) => match unsafe { keep(site, guard, walk, node, queue, bits) } {
            // No room will come from readers either, so the item cannot be kept.
            Visit::NoRoom if walk.purpose == Purpose::Evict && engine.heap.waiting_bytes() == 0 => {
                // SAFETY: the guard is of the table's domain, by 1, and the item is in a segment
                // that the walk has claimed, by 2.
                unsafe { site.evict(guard, node) }
            }
            visit => visit,
        },
        Fate::Evict => {
            // SAFETY: the guard is of the table's domain, by 1, and the item is in a segment that
            // the walk has claimed, by 2.
            unsafe { site.evict(guard, node) }
        }
    }
}

/// Copies an item into an open segment of a queue, and replaces it by the copy.
///
/// # Safety
///
/// 1. The guard is of the table's domain.
/// 2. `node` is an item of the walk's claim, which is one of this engine.
unsafe fn keep(
    site: &Site<'_>,
    guard: &Guard<'_>,
    walk: &Walk,
    node: Ptr,
    queue: Queue,
    bits: u8,
) -> Visit {
    let engine = site.engine;
    let heap = &engine.heap;
    // SAFETY: the claim keeps the item alive, by 2.
    let (found, link): (Item<'_, Link>, &Link) =
        unsafe { (Item::from_raw(node), &(*node.as_ptr()).links) };
    let bytes = heap.footprint(found);
    let hash = link.reduced_hash();
    // Deadline and tokens change under the stripe only, so the copy has their last values.
    let _stripe = (!mutant!("moves_without_stripe")).then(|| engine.stripe(hash).lock());
    if link.is_removed() {
        return Visit::Removed;
    }
    let request = Request {
        bytes,
        generation: heap.generation(walk.claim.segment),
        spare: 0,
    };
    let Some(memory) = site.appender.allocate(engine, queue, request) else {
        // There is no room, or a flush has begun meanwhile: then the walk removes the item when it
        // visits it again.
        return Visit::NoRoom;
    };
    let state = bits | found.state() & !policy::BITS;
    // SAFETY: the memory is the heap's, of the item's size, and not used by anything else.
    let copy = unsafe { item::copy(memory, Link::new(hash), found, state) };
    // SAFETY: the guard is of the table's domain, the node is in the table and kept by the claim;
    // the copy is the arena's, in no table, and has the same hash.
    let replaced = unsafe { engine.table.replace(guard, node.cast(), heap.id(copy)) };
    // SAFETY: the copy has just been written whole (1).
    unsafe { heap.settle(copy, bytes) };
    if replaced.is_none() {
        // No other thread removes an item of a claimed segment without its stripe.
        debug_assert!(false, "the item was in the table");
        // SAFETY: the copy was never linked, so it is in no table (1).
        unsafe {
            (*copy.as_ptr()).links.abandon();
            heap.count_dead(engine.table.domain(), copy, bytes);
        }
        return Visit::Removed;
    }
    engine.note_deadline(copy, found.deadline());
    site.counters.copied_bytes.add(bytes as u64);
    // SAFETY: the copy has just replaced the item in the table (1).
    unsafe { heap.count_dead(engine.table.domain(), node, bytes) };
    Visit::Kept
}

/// Visits a run with one item, which is kept in place. Returns the bytes removed.
fn visit_large(site: &Site<'_>, walk: Walk, forces: bool) -> u64 {
    let engine = site.engine;
    let (heap, domain) = (&engine.heap, engine.table.domain());
    // SAFETY: evictors walk segments of their engine (1). The offset is 0 (2).
    let Some((node, _)) = (unsafe { heap.item_at(&walk.claim, 0) }) else {
        heap.unclaim(domain, walk.claim);
        return 0;
    };
    let guard = domain.pin();
    // SAFETY: the claim keeps the item alive.
    let (found, link): (Item<'_, Link>, &Link) =
        unsafe { (Item::from_raw(node), &(*node.as_ptr()).links) };
    let bytes = heap.footprint(found);
    if !link.is_removed() {
        if site.is_over(&walk, found) {
            // SAFETY: the guard is of the table's domain (1). The item is in the walk's claim (2).
            unsafe { site.remove(&guard, node, false) };
        } else {
            let draw = walk.draw(link.reduced_hash(), site.now);
            match engine.policy.judge(found.state(), bytes, walk.mean, draw) {
                Fate::Keep(queue, bits) if !forces => {
                    found.set_state(policy::BITS, bits);
                    heap.unclaim_to(domain, walk.claim, queue);
                    return 0;
                }
                _ => {
                    // SAFETY: the guard is of the table's domain (1). The item is in the walk's
                    // claim (2).
                    unsafe { site.evict(&guard, node) };
                }
            }
        }
    }
    heap.unclaim(domain, walk.claim);
    bytes as u64
}

/// The result of a visit to an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visit {
    Kept,
    /// The item is no longer in a table.
    Removed,
    /// As `Removed`, and a set was taken, whose bytes are freed.
    RemovedSet,
    /// The item is to be kept, and there is no room for a copy.
    NoRoom,
}

/// The result of a visit to some items.
enum Visited {
    /// Bytes walked; more items follow.
    Some(u32),
    /// Bytes walked, up to an item whose set was freed; more may follow.
    Set(u32),
    /// Bytes walked, up to the segment's end.
    End(u32),
    NoRoom,
}

/// Why a step stopped.
enum WalkStop {
    /// This many bytes were walked.
    After(u32),
    /// As `After`, and a set was freed: the step is over, whatever it was to walk.
    AfterSet(u32),
    /// There is no room for an item to be kept until readers move on.
    Blocked,
    /// There is no room for an item to be kept.
    NoRoom,
}

impl Walk {
    fn new(claim: Claim, purpose: Purpose, mean: usize) -> Self {
        Self {
            claim,
            purpose,
            mean,
            at: 0,
            ahead: 0,
        }
    }

    /// Whether the walk may evict live items: it is not one over a flushed segment.
    fn evicts_live(&self, engine: &Relativistic) -> bool {
        let generation = engine.heap.generation(self.claim.segment);
        self.purpose == Purpose::Evict && generation >= engine.generation().number
    }

    /// A random number for an item's turn.
    fn draw(&self, hash: u64, now: Now) -> u32 {
        policy::random(hash ^ u64::from(self.claim.segment) << 32 ^ now.ms)
    }

    /// Prefetches the buckets of the next items.
    ///
    /// # Safety
    ///
    /// 1. The guard is of the table's domain.
    /// 2. The walk's claim is one of this engine.
    unsafe fn look_ahead(&mut self, engine: &Relativistic, guard: &Guard<'_>) {
        let steps = if self.ahead <= self.at { AHEAD } else { 1 };
        self.ahead = self.ahead.max(self.at);
        for _ in 0..steps {
            // SAFETY: the claim is one of this engine, by 2 (1). `ahead` is `at`, or what this
            // function returned for the claim (2).
            let Some((node, next)) = (unsafe { engine.heap.item_at(&self.claim, self.ahead) })
            else {
                return;
            };
            self.ahead = next;
            // SAFETY: the claim keeps the item alive; the guard is of the table's domain, by 1.
            unsafe {
                let hash = (*node.as_ptr()).links.reduced_hash();
                engine.table.prefetch(guard, hash);
            }
        }
    }
}

impl Site<'_> {
    /// Whether the item can no longer be found: it is flushed, or has expired.
    fn is_over(&self, walk: &Walk, found: Item<'_, Link>) -> bool {
        let generation = self.engine.heap.generation(walk.claim.segment);
        generation < self.engine.generation().number || found.deadline().is_past(self.now)
    }

    /// Removes a flushed or expired item. `searched` tells whether a search for expired items found
    /// it.
    ///
    /// # Safety
    ///
    /// 1. The guard is of the table's domain.
    /// 2. `node` is an item of this engine, in a segment that the caller has claimed, or was found
    ///    in an open segment under the guard.
    pub(super) unsafe fn remove(&self, guard: &Guard<'_>, node: Ptr, searched: bool) {
        // SAFETY: the claim or the guard keeps the item alive, by 2.
        let (found, link): (Item<'_, Link>, &Link) =
            unsafe { (Item::from_raw(node), &(*node.as_ptr()).links) };
        // No other thread may touch it in between.
        let _stripe = self.engine.stripe(link.reduced_hash()).lock();
        let is_flushed = self.engine.is_flushed(node);
        let is_past = found.deadline().is_past(self.now);
        if !(is_flushed || is_past) {
            return;
        }
        // SAFETY: the contract of `unlink` is the one of this function; the stripe is held (3).
        if unsafe { self.unlink(guard, node) } && !is_flushed {
            self.counters
                .expired(self.engine.heap.removed(found), searched);
        }
    }

    /// # Safety
    ///
    /// 1. and 2. of [`Site::remove`].
    pub(super) unsafe fn evict(&self, guard: &Guard<'_>, node: Ptr) -> Visit {
        // SAFETY: the claim or the guard keeps the item alive, by 2.
        let (found, link): (Item<'_, Link>, &Link) =
            unsafe { (Item::from_raw(node), &(*node.as_ptr()).links) };
        let owns_set = found.kind().owns_object();
        // A thread that follows its pointer holds the stripe.
        let _stripe = (owns_set && !mutant!("evicts_sets_without_stripe"))
            .then(|| self.engine.stripe(link.reduced_hash()).lock());
        // SAFETY: the contract of `unlink` is the one of this function; the stripe is held if the
        // item owns a set (3).
        if !unsafe { self.unlink(guard, node) } {
            return Visit::Removed;
        }
        self.engine
            .policy
            .evicted(link.reduced_hash(), found.state());
        let has_deadline = found.deadline() != Deadline::NEVER;
        let removed = self.engine.heap.removed(found);
        self.counters
            .evicted(removed, found.idle_s(self.now), has_deadline);
        if owns_set {
            Visit::RemovedSet
        } else {
            Visit::Removed
        }
    }

    /// Removes the item from the table. Returns false if another thread has done so.
    ///
    /// # Safety
    ///
    /// 1. and 2. of [`Site::remove`].
    /// 3. If the item owns a set, the caller holds the stripe of its key.
    unsafe fn unlink(&self, guard: &Guard<'_>, node: Ptr) -> bool {
        // SAFETY: the guard is of the table's domain, by 1; the claim or the guard has kept the
        // node, so it was in the table or was removed in this section or before, which `remove`
        // sees by its mark.
        let removed = unsafe { self.engine.table.remove(guard, node.cast()) };
        if removed.is_some() {
            self.engine.table.adjust(-1);
            // SAFETY: the item was just removed from the table, under the guard (1). 3 (2).
            unsafe { self.engine.count_unlinked(self.counters, node) };
        }
        removed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee 3: the end of a segment, or a lack of room for a copy, is not an eviction. Mutant
    /// `forgets_what_was_kept`.
    #[test]
    fn steps_that_walk_nothing_do_not_count() {
        let mut evictor = Evictor::new();
        for _ in 0..3 {
            evictor.count_walked(1_000, 0);
            evictor.count_walked(0, 0);
        }
        assert!(evictor.forces(1_000));
        evictor.count_walked(1_000, 500);
        assert!(!evictor.forces(1_000));
    }
}
