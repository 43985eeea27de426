//! Walks through segments: eviction and compaction.
//!
//! An evictor claims a segment and walks it in steps of a bounded number of bytes, each in sections of
//! [`BATCH`] items. What is to be kept is copied, under its key's stripe, to where its session appends,
//! and replaces itself in the table; what is not is removed. When the walk is over nothing in the segment
//! lives, and it is retired.
//!
//! *Eviction* takes the segment whose turn it is by the [policy](super::policy). *Compaction* takes one
//! of which little lives any more, because what was in it was overwritten, deleted or has expired, and
//! keeps all that lives. *Flushed* segments are walked before all others. A large item is kept where it
//! is.
//!
//! # Guarantees
//!
//! 1. *Nothing is evicted without need*: a step begins with a headroom to reach, and ends as soon as that
//!    is reached. So what is evicted at once is at most what the stores since the last step took, and the
//!    rest of a segment.
//! 2. *Compaction gains*: a segment is compacted only if copying what lives in it takes less than it
//!    holds ([`Candidate::gain`](super::heap::Candidate)).
//! 3. *What is to be kept is evicted* only if there is no room for a copy and none to come, or if all
//!    memory was walked twice and everything in it was to be kept.
//! 4. *Sweeping* a flush removes nothing that was stored after it.

use super::Relativistic;
use super::appender::Appender;
use super::core::forget;
use super::heap::{Candidate, Claim, Heap, Ptr, Request, Segment};
use super::policy::{self, Eviction, Verdict};
use super::queues::{Place, Queue};
use super::tally::Tally;
use crate::item::{self, Item};
use corewise_atomic::mutant;
use corewise_maps::relativistic::Link;
use corewise_ops::{Deadline, Now};
use corewise_rcu::Guard;

/// Items visited in one section.
const BATCH: usize = 16;
/// Items whose buckets are asked for ahead.
const AHEAD: usize = 8;
/// Segments looked at for one to compact, if something may be evicted instead: as long as there are some,
/// and while there are none. A turnover of the memory still looks at every segment several times.
const SAMPLE: u32 = 64;
const SAMPLE_IDLE: u32 = 4;
/// Sparse segments of which the best is compacted, if nothing may be evicted.
const BEST_OF: usize = 16;
/// The share of a segment's bytes, in 32nds, that compaction must gain to be done rather than another
/// segment evicted: 16 %. It is more than what [small items waste](super::heap::Kind) in the copy.
const GAIN_32NDS: u64 = 5;
/// The same if nothing may be evicted. Less than the [slack](Relativistic::has_slack): once nothing is left
/// to compact, there is room.
const GAIN_32NDS_REFUSING: u64 = 1;
/// A walk that removed less than this share of what it walked, in 32nds, counts as one that kept
/// everything.
const FRUITFUL_32NDS: u64 = 1;

/// The part of an appender that makes room.
pub(super) struct Evictor {
    walk: Option<Walk>,
    sparse_from: Segment,
    /// How many are looked at for a sparse one next.
    sample: u32,
    flushed_from: Segment,
    /// Bytes walked for eviction since something was removed.
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
    /// Of the next item, and of the next whose bucket is asked for.
    at: u32,
    ahead: u32,
}

/// What a walk works with.
pub(super) struct Site<'s> {
    pub(super) engine: &'s Relativistic,
    /// Where copies go.
    pub(super) appender: &'s Appender,
    pub(super) tally: &'s Tally,
    pub(super) now: Now,
}

/// Whether compaction gains so much of a segment.
fn gains(least_32nds: u64) -> impl Fn(Candidate) -> bool {
    move |candidate| candidate.gain * 32 >= candidate.held * least_32nds
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The headroom is reached, or as much was walked as was asked for.
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
            sample: SAMPLE,
            flushed_from: 1,
            kept_bytes: 0,
        }
    }

    /// Walks until the heap's headroom is `target`, but no more than about `bytes` bytes.
    pub(super) fn make_headroom(&mut self, site: &Site<'_>, target: i64, bytes: usize) -> Progress {
        let heap = &site.engine.heap;
        let (mut left, mut compacts) = (bytes as i64, true);
        while left > 0 && heap.headroom() < target {
            let next = self.walk.take();
            let Some(walk) = next.or_else(|| self.begin(site, compacts)) else {
                return Progress::None;
            };
            let purpose = walk.purpose;
            match self.go_on(site, walk) {
                Stop::After(walked) => left -= i64::from(walked.max(1)),
                Stop::Blocked => return Progress::Blocked,
                // Not even room for a copy: something has to go.
                Stop::NoRoom if purpose == Purpose::Compact && site.engine.may_evict() => {
                    compacts = false;
                }
                Stop::NoRoom => return Progress::None,
            }
        }
        Progress::Made
    }

    /// Walks through flushed segments, about `bytes` bytes. False if there are none left to walk.
    pub(super) fn sweep(&mut self, site: &Site<'_>, bytes: usize) -> bool {
        let engine = site.engine;
        let generation = engine.generation().number;
        let mut left = bytes as i64;
        while left > 0 {
            let parked = self.walk.take();
            let walk = match parked {
                Some(walk) if engine.heap.generation(walk.claim.segment) < generation => walk,
                parked => {
                    // It may hold what was stored since; another walk begins with it again.
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
            let Stop::After(walked) = self.go_on(site, walk) else {
                debug_assert!(false, "what was flushed needs no room");
                return false;
            };
            left -= i64::from(walked.max(1));
        }
        true
    }

    /// Claims what should be walked next; what must be compacted only if there may be room for copies.
    fn begin(&mut self, site: &Site<'_>, compacts: bool) -> Option<Walk> {
        let engine = site.engine;
        self.begin_flushed(engine)
            .or_else(|| compacts.then(|| self.begin_sparse(engine)).flatten())
            .or_else(|| begin_policy(engine))
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
        let heap = &engine.heap;
        let claim = if engine.may_evict() {
            self.sample_sparse(heap)
        } else {
            let from = &mut self.sparse_from;
            heap.claim_sparsest(from, BEST_OF, gains(GAIN_32NDS_REFUSING))
        };
        Some(Walk::new(claim?, Purpose::Compact, 0))
    }

    /// The one of a sample that gains most; the claim looks at it again.
    fn sample_sparse(&mut self, heap: &Heap) -> Option<Claim> {
        let mut looks = self.sample.min(heap.used_segments());
        let is_sparse = gains(GAIN_32NDS);
        let mut best: Option<(u64, Segment)> = None;
        let mut from = self.sparse_from;
        let none = heap.claim_where(&mut from, &mut looks, |candidate| {
            let share = candidate.share();
            if is_sparse(candidate) && best.is_none_or(|(best, _)| share > best) {
                best = Some((share, candidate.segment));
            }
            false
        });
        debug_assert!(none.is_none());
        self.sparse_from = from;
        self.sample = if best.is_some() { SAMPLE } else { SAMPLE_IDLE };
        let (_, mut segment) = best?;
        heap.claim_where(&mut segment, &mut 1, is_sparse)
    }

    /// Goes on with a walk: for some items, in one section. What is left of it is parked.
    fn go_on(&mut self, site: &Site<'_>, mut walk: Walk) -> Stop {
        let (heap, domain) = (&site.engine.heap, site.engine.table.domain());
        if walk.claim.is_large {
            let walked = walk.claim.used(heap);
            let removed = visit_large(site, walk, self.forces(heap.allowed()));
            self.count_walked(u64::from(walked), removed);
            return Stop::After(walked);
        }
        match self.visit_some(site, &mut walk) {
            Visited::Some(walked) => {
                self.walk = Some(walk);
                Stop::After(walked)
            }
            Visited::End(walked) => {
                heap.unclaim(domain, walk.claim);
                Stop::After(walked)
            }
            Visited::NoRoom if heap.waiting_bytes() > 0 => {
                self.walk = Some(walk);
                Stop::Blocked
            }
            Visited::NoRoom => {
                heap.unclaim(domain, walk.claim);
                Stop::NoRoom
            }
        }
    }

    /// Some items of a walk, in one section.
    fn visit_some(&mut self, site: &Site<'_>, walk: &mut Walk) -> Visited {
        let engine = site.engine;
        let guard = engine.table.domain().pin();
        let forces = self.forces(engine.heap.allowed());
        let (begin, mut removed) = (walk.at, 0);
        for _ in 0..BATCH {
            walk.look_ahead(engine, &guard);
            let Some((node, next)) = engine.heap.item_at(&walk.claim, walk.at) else {
                self.count_walked(u64::from(walk.at - begin), removed);
                return Visited::End(walk.at - begin);
            };
            match visit(site, &guard, walk, node, forces) {
                Visit::Kept => {}
                Visit::Removed => removed += u64::from(next - walk.at),
                Visit::NoRoom => return Visited::NoRoom,
            }
            walk.at = next;
        }
        self.count_walked(u64::from(walk.at - begin), removed);
        Visited::Some(walk.at - begin)
    }

    fn count_walked(&mut self, walked: u64, removed: u64) {
        if removed * 32 >= walked * FRUITFUL_32NDS {
            self.kept_bytes = 0;
        } else {
            self.kept_bytes += walked;
        }
    }

    /// Whether what is to be kept is evicted nevertheless.
    fn forces(&self, allowed: u64) -> bool {
        self.kept_bytes > 2 * allowed
    }

    /// Compacts a segment, or evicts what is in it.
    #[cfg(test)]
    pub(super) fn walk_all(&mut self, site: &Site<'_>, claim: Claim, purpose: Purpose) {
        let mut walk = Walk::new(claim, purpose, 0);
        while let Visited::Some(_) = self.visit_some(site, &mut walk) {}
        let domain = site.engine.table.domain();
        site.engine.heap.unclaim(domain, walk.claim);
    }

    /// Gives up a walk that is parked.
    pub(super) fn end(&mut self, engine: &Relativistic) {
        if let Some(walk) = self.walk.take() {
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

/// Does to an item what the walk is for.
fn visit(site: &Site<'_>, guard: &Guard<'_>, walk: &Walk, node: Ptr, forces: bool) -> Visit {
    // SAFETY: the claim keeps the item.
    let (found, link): (Item<'_, Link>, &Link) =
        unsafe { (Item::from_raw(node), &(*node.as_ptr()).links) };
    if link.is_removed() {
        return Visit::Removed;
    }
    if site.is_over(walk, found) {
        site.remove(guard, node, false);
        return Visit::Removed;
    }
    let engine = site.engine;
    let verdict = match walk.purpose {
        Purpose::Compact => {
            let state = found.state();
            Verdict::Keep(engine.policy.queue(state), state & policy::BITS)
        }
        Purpose::Evict if forces => Verdict::Evict,
        Purpose::Evict => {
            let bytes = engine.heap.footprint(found);
            let draw = walk.draw(link.reduced_hash(), site.now);
            engine.policy.judge(found.state(), bytes, walk.mean, draw)
        }
    };
    match verdict {
        Verdict::Keep(queue, bits) => match keep(site, guard, walk, node, queue, bits) {
            Visit::NoRoom if walk.purpose == Purpose::Evict && engine.heap.waiting_bytes() == 0 => {
                site.evict(guard, node);
                Visit::Removed
            }
            visit => visit,
        },
        Verdict::Evict => {
            site.evict(guard, node);
            Visit::Removed
        }
    }
}

/// Copies an item to where it is appended to a queue, and puts the copy in its place.
fn keep(
    site: &Site<'_>,
    guard: &Guard<'_>,
    walk: &Walk,
    node: Ptr,
    queue: Queue,
    bits: u8,
) -> Visit {
    let engine = site.engine;
    let heap = &engine.heap;
    // SAFETY: the claim keeps the item.
    let (found, link): (Item<'_, Link>, &Link) =
        unsafe { (Item::from_raw(node), &(*node.as_ptr()).links) };
    let bytes = heap.footprint(found);
    let hash = link.reduced_hash();
    // Its deadline and tokens change under the stripe only, so the copy has the last of them.
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
        // Or it was flushed just now, and will be removed when the walk comes to it again.
        return Visit::NoRoom;
    };
    let state = bits | found.state() & !policy::BITS;
    // SAFETY: the memory is the heap's, of the item's size, and nobody else's.
    let copy = unsafe { item::copy(memory, Link::new(hash), found, state) };
    // SAFETY: the guard is of the table's domain, the node is in the table and kept by the claim; the
    // copy is the arena's, in no table, and has the same hash.
    let replaced = unsafe { engine.table.replace(guard, node.cast(), heap.name(copy)) };
    heap.settle(copy, bytes);
    if replaced.is_none() {
        // Nobody else removes what is claimed without its stripe.
        debug_assert!(false, "the item was in the table");
        // SAFETY: it was never linked.
        unsafe { (*copy.as_ptr()).links.abandon() };
        heap.bury(engine.table.domain(), copy, bytes);
        return Visit::Removed;
    }
    engine.note_deadline(copy, found.deadline());
    site.tally.copied_bytes.add(bytes as u64);
    heap.bury(engine.table.domain(), node, bytes);
    Visit::Kept
}

/// A run with one item: it is kept where it is. Returns the bytes removed.
fn visit_large(site: &Site<'_>, walk: Walk, forces: bool) -> u64 {
    let engine = site.engine;
    let (heap, domain) = (&engine.heap, engine.table.domain());
    let Some((node, _)) = heap.item_at(&walk.claim, 0) else {
        heap.unclaim(domain, walk.claim);
        return 0;
    };
    let guard = domain.pin();
    // SAFETY: the claim keeps the item.
    let (found, link): (Item<'_, Link>, &Link) =
        unsafe { (Item::from_raw(node), &(*node.as_ptr()).links) };
    let bytes = heap.footprint(found);
    if !link.is_removed() {
        if site.is_over(&walk, found) {
            site.remove(&guard, node, false);
        } else {
            let draw = walk.draw(link.reduced_hash(), site.now);
            match engine.policy.judge(found.state(), bytes, walk.mean, draw) {
                Verdict::Keep(queue, bits) if !forces => {
                    found.set_state(policy::BITS, bits);
                    heap.unclaim_to(domain, walk.claim, Place::Newest(queue));
                    return 0;
                }
                _ => site.evict(&guard, node),
            }
        }
    }
    heap.unclaim(domain, walk.claim);
    bytes as u64
}

/// What became of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Visit {
    Kept,
    /// It is in no table any more.
    Removed,
    /// It is to be kept, and there is no room for a copy.
    NoRoom,
}

/// What became of some items.
enum Visited {
    /// Bytes walked; there are more.
    Some(u32),
    /// Bytes walked, up to the segment's end.
    End(u32),
    NoRoom,
}

/// How a step stopped.
enum Stop {
    /// When this many bytes were walked.
    After(u32),
    /// There is no room for what must be kept, before readers move on.
    Blocked,
    /// There is no room for what must be kept.
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

    /// A random number for an item's turn.
    fn draw(&self, hash: u64, now: Now) -> u32 {
        policy::random(hash ^ u64::from(self.claim.segment) << 32 ^ now.ms)
    }

    /// Asks for the buckets of items to come.
    fn look_ahead(&mut self, engine: &Relativistic, guard: &Guard<'_>) {
        let steps = if self.ahead <= self.at { AHEAD } else { 1 };
        self.ahead = self.ahead.max(self.at);
        for _ in 0..steps {
            let Some((node, next)) = engine.heap.item_at(&self.claim, self.ahead) else {
                return;
            };
            self.ahead = next;
            // SAFETY: the claim keeps the item; the guard is of the table's domain.
            unsafe {
                let hash = (*node.as_ptr()).links.reduced_hash();
                engine.table.prefetch(guard, hash);
            }
        }
    }
}

impl Site<'_> {
    /// Whether the item is not to be found any more: flushed, or expired.
    fn is_over(&self, walk: &Walk, found: Item<'_, Link>) -> bool {
        let generation = self.engine.heap.generation(walk.claim.segment);
        generation < self.engine.generation().number || found.deadline().is_past(self.now)
    }

    /// Removes an item that is over, from a segment that the caller has claimed. `searched`: it was looked
    /// for.
    pub(super) fn remove(&self, guard: &Guard<'_>, node: Ptr, searched: bool) {
        // SAFETY: the claim keeps the item.
        let (found, link): (Item<'_, Link>, &Link) =
            unsafe { (Item::from_raw(node), &(*node.as_ptr()).links) };
        // Nobody may touch it in between.
        let _stripe = self.engine.stripe(link.reduced_hash()).lock();
        let is_flushed = self.engine.is_flushed(node);
        let is_past = found.deadline().is_past(self.now);
        if !(is_flushed || is_past) {
            return;
        }
        if self.unlink(guard, node) && !is_flushed {
            self.tally
                .expired(self.engine.heap.removed(found), searched);
        }
    }

    fn evict(&self, guard: &Guard<'_>, node: Ptr) {
        if !self.unlink(guard, node) {
            return;
        }
        // SAFETY: the guard keeps the item.
        let (found, link): (Item<'_, Link>, &Link) =
            unsafe { (Item::from_raw(node), &(*node.as_ptr()).links) };
        self.engine
            .policy
            .evicted(link.reduced_hash(), found.state());
        let has_deadline = found.deadline() != Deadline::NEVER;
        let removed = self.engine.heap.removed(found);
        self.tally
            .evicted(removed, found.idle_s(self.now), has_deadline);
    }

    /// Whether it was we who took the item out of the table.
    fn unlink(&self, guard: &Guard<'_>, node: Ptr) -> bool {
        // SAFETY: the guard is of the table's domain; the claim has kept the node, so it was in the table
        // or was removed in this section or before, which `remove` sees by its mark.
        let removed = unsafe { self.engine.table.remove(guard, node.cast()) };
        if removed.is_some() {
            self.engine.table.adjust(-1);
            forget(self.engine, self.tally, node);
        }
        removed.is_some()
    }
}
