//! Walks through segments: eviction, compaction, the search for what has expired.
//!
//! A session claims a segment and walks it in steps of a bounded number of bytes, each in sections of
//! [`BATCH`] items. What is to be kept is copied, under its key's stripe, to a segment that the session
//! has open for that, and replaces itself in the table; what is not is removed. When the walk is over
//! nothing in the segment lives, and it is retired.
//!
//! *Eviction* takes the segment whose turn it is by the [policy](super::policy). *Compaction* takes one
//! of which little lives any more, because what was in it was overwritten, deleted or has expired, and
//! keeps all that lives. *Expiry* takes one that has a deadline behind it, removes what has expired, and
//! leaves the rest where it is; it comes again when a sixteenth of the segment has expired, so that a
//! segment is not walked for each item. *Flushed* segments are walked by eviction, before all others.

use super::Relativistic;
use super::core::forget;
use super::heap::{Claim, Open, Ptr, Segment};
use super::policy::{self, Eviction, Verdict};
use super::queues::{Place, Queue};
use super::tally::Tally;
use crate::item::{self, Item, state};
use corewise_atomic::mutant;
use corewise_maps::relativistic::Link;
use corewise_ops::{Deadline, Now};
use corewise_rcu::Guard;

/// Items visited in one section.
const BATCH: usize = 16;
/// Items whose buckets are asked for ahead.
const AHEAD: usize = 8;
/// Segments looked at for one to compact.
const SAMPLE: u32 = 256;
/// Segments looked at for one that is due, under the pool's lock.
const SEARCHED_AT_ONCE: u32 = 256;
/// Dead parts of a segment, of 32, from which on it is compacted rather than another evicted: 16 %. (What
/// is left at a segment's end, less than a quarter, does not count: compaction would leave as much.)
const DEAD_32NDS: u64 = 5;
/// The same if nothing may be evicted.
const DEAD_32NDS_REFUSING: u64 = 1;

/// A session's part of eviction.
pub(super) struct Evictor {
    walk: Option<Walk>,
    search: Option<Walk>,
    /// Where kept items go, for each queue.
    targets: [Option<Open>; 2],
    sparse_from: Segment,
    flushed_from: Segment,
    search_from: Segment,
    /// Segments that the present round of the search has not come to.
    search_left: u32,
    searched_all_ms: u64,
    /// Deadlines and bytes of what is left of the segment that is being searched.
    deadlines: Vec<(u32, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Evict,
    Compact,
    Expire,
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
struct Site<'s> {
    engine: &'s Relativistic,
    tally: &'s Tally,
    now: Now,
}

impl Evictor {
    pub(super) fn new() -> Self {
        Self {
            walk: None,
            search: None,
            targets: [None, None],
            sparse_from: 1,
            flushed_from: 1,
            search_from: 1,
            search_left: 0,
            searched_all_ms: 0,
            deadlines: Vec::new(),
        }
    }

    /// Walks through `bytes` of old segments, about. False if there was nothing to walk.
    pub(super) fn step(
        &mut self,
        engine: &Relativistic,
        tally: &Tally,
        now: Now,
        bytes: usize,
    ) -> bool {
        let site = Site { engine, tally, now };
        let mut left = bytes as i64;
        let mut compacts = true;
        while left > 0 {
            let next = self.walk.take();
            let Some(mut walk) = next.or_else(|| self.begin(&site, compacts)) else {
                return left < bytes as i64;
            };
            if walk.claim.is_large {
                left -= i64::from(engine.heap.tally(walk.claim.segment).0);
                self.walk_large(&site, walk);
                continue;
            }
            match self.walk_some(&site, &mut walk) {
                Stop::Tired(walked) => {
                    left -= i64::from(walked);
                    self.walk = Some(walk);
                }
                Stop::End => {
                    left -= BATCH as i64; // so that empty ones cost something
                    engine.end_eviction();
                    engine.heap.unclaim(engine.table.domain(), walk.claim);
                }
                Stop::NoRoom => {
                    engine.end_eviction();
                    engine.heap.unclaim(engine.table.domain(), walk.claim);
                    if !(compacts && engine.may_evict()) {
                        return false;
                    }
                    // Not even for a copy: something has to go.
                    compacts = false;
                }
            }
        }
        true
    }

    /// Claims what should be walked next; what must be compacted only if there may be room for copies.
    fn begin(&mut self, site: &Site<'_>, compacts: bool) -> Option<Walk> {
        let engine = site.engine;
        engine.begin_eviction();
        let found = self
            .begin_flushed(engine)
            .or_else(|| compacts.then(|| self.begin_sparse(engine)).flatten())
            .or_else(|| self.begin_policy(engine))
            .or_else(|| {
                // Nothing may be evicted: what has expired is all there is.
                let found = !engine.may_evict() && self.search_all(site);
                found.then(|| self.begin_sparse(engine)).flatten()
            });
        if found.is_none() {
            engine.end_eviction();
        }
        found
    }

    fn begin_flushed(&mut self, engine: &Relativistic) -> Option<Walk> {
        let generation = engine.generation();
        if !generation.has_older {
            return None;
        }
        let heap = &engine.heap;
        let mut looks = heap.used_segments();
        let claim = heap.claim_where(&mut self.flushed_from, &mut looks, |segment| {
            heap.generation(segment) < generation.number
        })?;
        Some(Walk::new(claim, Purpose::Evict, 0))
    }

    fn begin_sparse(&mut self, engine: &Relativistic) -> Option<Walk> {
        let heap = &engine.heap;
        let refusing = engine.policy.eviction() == Eviction::Refuse;
        let (mut looks, bound) = if refusing {
            (heap.used_segments(), DEAD_32NDS_REFUSING)
        } else {
            (SAMPLE, DEAD_32NDS)
        };
        let bytes = heap.segment_bytes();
        let is_sparse = |segment| {
            let (used, dead) = heap.tally(segment);
            let unused = bytes.saturating_sub(u64::from(used));
            let is_small = u64::from(used) <= bytes;
            is_small && (u64::from(dead) * 32 >= bytes * bound || unused * 6 >= bytes)
        };
        // The sparsest of the sample; the claim looks at it again.
        let mut best: Option<(u32, Segment)> = None;
        let mut from = self.sparse_from;
        let none = heap.claim_where(&mut from, &mut looks, |segment| {
            let (used, dead) = heap.tally(segment);
            let candidate = (used - dead.min(used), segment);
            if is_sparse(segment) && best.is_none_or(|best| candidate < best) {
                best = Some(candidate);
            }
            false
        });
        debug_assert!(none.is_none());
        self.sparse_from = from;
        let (_, mut segment) = best?;
        let claim = heap.claim_where(&mut segment, &mut 1, is_sparse)?;
        Some(Walk::new(claim, Purpose::Compact, 0))
    }

    fn begin_policy(&mut self, engine: &Relativistic) -> Option<Walk> {
        let claim = engine
            .heap
            .claim(|queues, is_sealed| engine.policy.choose(queues, is_sealed))?;
        Some(Walk::new(claim, Purpose::Evict, engine.mean_bytes()))
    }

    /// Some items of a walk, in one section.
    fn walk_some(&mut self, site: &Site<'_>, walk: &mut Walk) -> Stop {
        let engine = site.engine;
        let guard = engine.table.domain().pin();
        let begin = walk.at;
        for _ in 0..BATCH {
            walk.look_ahead(engine, &guard);
            let Some((node, next)) = engine.heap.item_at(&walk.claim, walk.at) else {
                return Stop::End;
            };
            if !self.visit(site, &guard, walk, node) {
                return Stop::NoRoom;
            }
            walk.at = next;
        }
        Stop::Tired(walk.at - begin)
    }

    /// Does to an item what the walk is for. False if it must be kept and there is no room for it.
    fn visit(&mut self, site: &Site<'_>, guard: &Guard<'_>, walk: &Walk, node: Ptr) -> bool {
        // SAFETY: the claim keeps the item.
        let found: Item<'_, Link> = unsafe { Item::from_raw(node) };
        // SAFETY: as above.
        let link = unsafe { &(*node.as_ptr()).links };
        if link.is_removed() {
            return true;
        }
        let verdict = if walk.purpose == Purpose::Compact {
            let state = found.state();
            Verdict::Keep(site.engine.policy.queue(state), state & policy::BITS)
        } else {
            let bytes = site.engine.heap.footprint(found);
            site.engine.policy.judge(found.state(), bytes, walk.mean)
        };
        match verdict {
            _ if site.is_over(walk, found) => site.remove(guard, walk, node),
            Verdict::Keep(queue, bits) => match self.target(site, walk, queue, node) {
                Target::Ready => self.keep(site, guard, node, queue, bits),
                Target::Full => return false,
                Target::None => site.evict(guard, node),
            },
            Verdict::Evict => site.evict(guard, node),
        }
        true
    }

    /// Copies an item to the target of a queue, which has room, and puts the copy in its place.
    fn keep(&mut self, site: &Site<'_>, guard: &Guard<'_>, node: Ptr, queue: Queue, bits: u8) {
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
            return;
        }
        let target = self.targets[queue as usize].as_mut();
        let Some((target, memory)) = target.and_then(|target| {
            let memory = heap.append(target, bytes)?;
            Some((target, memory))
        }) else {
            debug_assert!(false, "the target has room");
            return;
        };
        let state = bits | found.state() & !policy::BITS;
        // SAFETY: the memory is the heap's, of the item's size, and nobody else's.
        let copy = unsafe { item::copy(memory, Link::new(hash), found, state) };
        // SAFETY: the guard is of the table's domain, the node is in the table and kept by the claim; the
        // copy is the arena's, in no table, and has the same hash.
        let replaced = unsafe { engine.table.replace(guard, node.cast(), heap.name(copy)) };
        if replaced.is_none() {
            // Nobody else removes what is claimed without its stripe.
            debug_assert!(false, "the item was in the table");
            heap.take_back(target, copy, bytes);
            return;
        }
        engine.note_deadline(copy, found.deadline());
        site.tally.copied_bytes.add(bytes as u64);
        heap.bury(engine.table.domain(), node, bytes);
    }

    /// Sees to it that there is a target of the segment's generation with room for an item.
    fn target(&mut self, site: &Site<'_>, walk: &Walk, queue: Queue, node: Ptr) -> Target {
        let engine = site.engine;
        let generation = engine.heap.generation(walk.claim.segment);
        // SAFETY: the claim keeps the item.
        let bytes = engine.heap.footprint(unsafe { Item::from_raw(node) });
        let target = self.targets[queue as usize].as_ref();
        if target.is_some_and(|target| {
            target.generation == generation && engine.heap.has_room(target, bytes)
        }) {
            return Target::Ready;
        }
        self.seal(engine, queue);
        let opened = engine.heap.open(engine.table.domain(), generation, 0);
        let has_one = opened.is_some();
        self.targets[queue as usize] = opened;
        match walk.purpose {
            _ if has_one => Target::Ready,
            Purpose::Evict if engine.may_evict() => Target::None,
            _ => Target::Full,
        }
    }

    fn seal(&mut self, engine: &Relativistic, queue: Queue) {
        if let Some(open) = self.targets[queue as usize].take() {
            engine
                .heap
                .seal(engine.table.domain(), open, Place::Newest(queue));
        }
    }

    /// Compacts a segment, or evicts what is in it.
    #[cfg(test)]
    pub(super) fn walk_all(
        &mut self,
        engine: &Relativistic,
        tally: &Tally,
        now: Now,
        claim: Claim,
        purpose: Purpose,
    ) {
        let site = Site { engine, tally, now };
        let mut walk = Walk::new(claim, purpose, 0);
        while let Stop::Tired(_) = self.walk_some(&site, &mut walk) {}
        engine.heap.unclaim(engine.table.domain(), walk.claim);
    }

    /// A segment of one large item: it is kept where it is.
    fn walk_large(&mut self, site: &Site<'_>, walk: Walk) {
        let engine = site.engine;
        let (heap, domain) = (&engine.heap, engine.table.domain());
        engine.end_eviction();
        let Some((node, _)) = heap.item_at(&walk.claim, 0) else {
            return heap.unclaim(domain, walk.claim);
        };
        let guard = domain.pin();
        // SAFETY: the claim keeps the item.
        let (found, link): (Item<'_, Link>, &Link) =
            unsafe { (Item::from_raw(node), &(*node.as_ptr()).links) };
        if link.is_removed() {
            return heap.unclaim(domain, walk.claim);
        }
        if site.is_over(&walk, found) {
            site.remove(&guard, &walk, node);
            return heap.unclaim(domain, walk.claim);
        }
        let bytes = heap.footprint(found);
        match engine.policy.judge(found.state(), bytes, walk.mean) {
            Verdict::Keep(queue, bits) => {
                found.set_state(policy::BITS, bits);
                heap.unclaim_to(domain, walk.claim, Place::Newest(queue));
            }
            Verdict::Evict => {
                site.evict(&guard, node);
                heap.unclaim(domain, walk.claim);
            }
        }
    }

    // ---- expiry

    /// Looks through `bytes` of segments that have something expired in them, about. Rounds begin once a
    /// second, and one session of all does each. True if there is more to do.
    pub(super) fn search(
        &mut self,
        engine: &Relativistic,
        tally: &Tally,
        now: Now,
        bytes: usize,
    ) -> bool {
        let site = Site { engine, tally, now };
        let mut left = bytes as i64;
        while left > 0 {
            let Some(mut walk) = self.search.take().or_else(|| self.begin_search(&site)) else {
                return self.search_left > 0;
            };
            left -= i64::from(self.search_some(&site, &mut walk));
            if engine.heap.item_at(&walk.claim, walk.at).is_some() {
                self.search = Some(walk);
            } else {
                self.end_search(engine, walk);
            }
        }
        true
    }

    /// Looks through everything that is due, at once, but not twice in a millisecond. True if something
    /// had expired.
    fn search_all(&mut self, site: &Site<'_>) -> bool {
        if self.searched_all_ms == site.now.ms {
            return false;
        }
        self.searched_all_ms = site.now.ms;
        let before = site.tally.found_expired.get();
        let heap = &site.engine.heap;
        let (mut from, mut looks) = (1, heap.used_segments());
        let now_s = site.now.seconds();
        if let Some(walk) = self.search.take() {
            self.end_search(site.engine, walk);
        }
        while let Some(claim) = heap.claim_where(&mut from, &mut looks, |segment| {
            heap.due_s(segment) <= now_s
        }) {
            let mut walk = self.searched(site, claim);
            while heap.item_at(&walk.claim, walk.at).is_some() {
                self.search_some(site, &mut walk);
            }
            self.end_search(site.engine, walk);
        }
        site.tally.found_expired.get() != before
    }

    fn begin_search(&mut self, site: &Site<'_>) -> Option<Walk> {
        let heap = &site.engine.heap;
        if self.search_left == 0 {
            if !site.engine.begins_search(site.now) {
                return None;
            }
            (self.search_from, self.search_left) = (1, heap.used_segments());
        }
        let mut looks = self.search_left.min(SEARCHED_AT_ONCE);
        self.search_left -= looks;
        let now_s = site.now.seconds();
        let claim = heap.claim_where(&mut self.search_from, &mut looks, |segment| {
            heap.due_s(segment) <= now_s
        });
        self.search_left += looks;
        Some(self.searched(site, claim?))
    }

    fn searched(&mut self, site: &Site<'_>, claim: Claim) -> Walk {
        site.engine.heap.set_due_s(claim.segment, u32::MAX);
        self.deadlines.clear();
        Walk::new(claim, Purpose::Expire, 0)
    }

    /// Some items of a search; the bytes walked. At the end the claim is given up.
    fn search_some(&mut self, site: &Site<'_>, walk: &mut Walk) -> u32 {
        let engine = site.engine;
        let heap = &engine.heap;
        let guard = engine.table.domain().pin();
        let begin = walk.at;
        for _ in 0..BATCH {
            let Some((node, next)) = heap.item_at(&walk.claim, walk.at) else {
                break;
            };
            walk.at = next;
            // SAFETY: the claim keeps the item.
            let (found, link): (Item<'_, Link>, &Link) =
                unsafe { (Item::from_raw(node), &(*node.as_ptr()).links) };
            let deadline = found.deadline();
            if link.is_removed() || deadline == Deadline::NEVER {
                continue;
            }
            if site.is_over(walk, found) {
                site.remove(&guard, walk, node);
            } else {
                let bytes = heap.footprint(found) as u32;
                self.deadlines.push((engine.due_s(deadline), bytes));
            }
        }
        walk.at - begin
    }

    /// Ends a search: notes when to come again.
    fn end_search(&mut self, engine: &Relativistic, walk: Walk) {
        let heap = &engine.heap;
        self.deadlines.sort_unstable();
        let sixteenth = (heap.segment_bytes() / 16) as u32;
        let mut sum = 0;
        // A walk that is given up half-way comes again at once.
        let is_whole = heap.item_at(&walk.claim, walk.at).is_none();
        let enough = self.deadlines.iter().find(|(_, bytes)| {
            sum += bytes;
            sum >= sixteenth
        });
        if !is_whole {
            heap.due_by(walk.claim.segment, 0);
        }
        if let Some((due_s, _)) = enough.or(self.deadlines.last()) {
            heap.due_by(walk.claim.segment, *due_s);
        }
        heap.unclaim(engine.table.domain(), walk.claim);
    }

    // ---- the end

    /// Seals targets of older generations.
    pub(super) fn seal_older(&mut self, engine: &Relativistic, generation: u32) {
        for queue in [Queue::Small, Queue::Main] {
            let target = self.targets[queue as usize].as_ref();
            if target.is_some_and(|target| target.generation < generation) {
                self.seal(engine, queue);
            }
        }
    }

    /// Gives everything back, when the session ends.
    pub(super) fn end(&mut self, engine: &Relativistic) {
        let domain = engine.table.domain();
        if let Some(walk) = self.walk.take() {
            engine.end_eviction();
            engine.heap.unclaim(domain, walk.claim);
        }
        if let Some(walk) = self.search.take() {
            self.end_search(engine, walk);
        }
    }
}

/// Where a kept item can go.
enum Target {
    Ready,
    /// Nowhere, and it may be evicted instead.
    None,
    /// Nowhere, and it must be kept.
    Full,
}

/// How a walk stopped.
enum Stop {
    /// After so many bytes.
    Tired(u32),
    End,
    /// There is no memory for what must be kept.
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

    /// Removes an item that is over.
    fn remove(&self, guard: &Guard<'_>, walk: &Walk, node: Ptr) {
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
            let unfetched = found.state() & state::FETCHED == 0;
            self.tally
                .expired(unfetched, walk.purpose == Purpose::Expire);
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
        let unfetched = found.state() & state::FETCHED == 0;
        let bytes = self.engine.heap.footprint(found);
        self.tally.evicted(bytes, found.idle_s(self.now), unfetched);
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
