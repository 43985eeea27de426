//! The search for expired items.
//!
//! Once a second a round begins over the segments that are due, open ones included. Expired items
//! are removed; the others stay in place. A segment is due again when its next item expires, but
//! not before a [pause](pause_s), so that it is not walked for each item; or when a sixteenth of it
//! has expired. One session at a time searches, in steps of a bounded number of bytes.
//!
//! # Guarantees
//!
//! 1. *An expired item is removed* by the first round that begins in a later second than its
//!    deadline, or by the first one after the pause. A round that finds an item of a segment
//!    unfinished, or the segment claimed, leaves the segment to the next round.
//! 2. *No deadline is forgotten.* The search resets a segment's due time before it reads deadlines.
//!    A thread that links an item, or changes its deadline, lowers the due time again
//!    (`note_deadline`), unless the search is certain to see the deadline: see `reset_due_time`.
//! 3. A step walks a [given number of bytes](SegmentSearch::step), where the beginning of a walk
//!    counts as [`BEGIN_BYTES`].

use super::Relativistic;
use super::appender::{OPENS, WalkedOn};
use super::evict::Site;
use super::heap::{Claim, Heap, Ptr};
use super::queues::Segment;
use crate::item::Item;
use corewise_atomic::barrier;
use corewise_maps::relativistic::Link;
use corewise_ops::Deadline;
use corewise_rcu::Guard;

/// Items visited in one section.
const BATCH: usize = 16;
/// Segments examined at once for one that is due, under the pool's lock.
const LOOKED_AT_ONCE: u32 = 256;
/// What it costs to find a segment and to begin its walk, as bytes walked: locks and a barrier.
const BEGIN_BYTES: i64 = 4 << 10;
/// Bytes in segments for which the pause is a second longer. So the search walks no more than this
/// in a second on account of items that expire one by one.
const BYTES_PER_PAUSE_S_LOG2: u32 = 28;

/// The state of the search. There is one per engine.
pub(super) struct SegmentSearch {
    walk: Option<SearchWalk>,
    from: Segment,
    /// Segments that the present round has not yet reached.
    left: u32,
    /// Places for open segments that the present round has not yet reached.
    opens_left: usize,
    /// The second of the last search through all segments, plus one.
    searched_all_s: u32,
    /// Deadlines and bytes of the items that stay in the segment being searched.
    deadlines: Vec<(u32, u32)>,
}

enum SearchWalk {
    Sealed {
        claim: Claim,
        /// Offset of the next item.
        at: u32,
    },
    /// A segment at a place for open segments, where its offset is kept. It cannot be claimed.
    Open { segment: Segment, place: usize },
}

/// What a section has visited.
enum Searched {
    /// Bytes walked; more items follow.
    Some(u32),
    /// All items have been visited.
    Whole,
    /// The segment was sealed meanwhile.
    Lost,
}

/// Seconds between two walks over a segment in which less than a sixteenth expires.
fn pause_s(heap: &Heap) -> u32 {
    1 + (heap.held_bytes() >> BYTES_PER_PAUSE_S_LOG2) as u32
}

impl SegmentSearch {
    pub(super) fn new() -> Self {
        Self {
            walk: None,
            from: 1,
            left: 0,
            opens_left: 0,
            searched_all_s: 0,
            deadlines: Vec::new(),
        }
    }

    /// Walks about `bytes` bytes of segments that contain expired items. Returns true if more work
    /// remains.
    pub(super) fn step(&mut self, site: &Site<'_>, bytes: usize) -> bool {
        let mut left = bytes as i64;
        while left > 0 {
            let walk = self.walk.take().or_else(|| {
                left -= BEGIN_BYTES;
                self.begin_walk(site)
            });
            let Some(walk) = walk else {
                return self.left > 0;
            };
            left -= i64::from(self.continue_walk(site, walk));
        }
        true
    }

    /// Searches all due segments at once, but not twice in a second: deadlines are known to the
    /// second, and a full cache would do nothing else. Returns true if something had expired.
    pub(super) fn search_all(&mut self, site: &Site<'_>) -> bool {
        let now_s = site.now.seconds();
        if self.searched_all_s == now_s + 1 {
            return false;
        }
        self.searched_all_s = now_s + 1;
        let before = site.counters.found_expired.get();
        let heap = &site.engine.heap;
        let (mut from, mut looks) = (1, heap.used_segments());
        if let Some(walk) = self.walk.take() {
            self.end_walk(site, walk, false);
        }
        // This includes segments that are due in the course of this second.
        while let Some(claim) = heap.claim_where(&mut from, &mut looks, |candidate| {
            heap.due_s(candidate.segment) <= now_s + 1
        }) {
            let walk = self.search_sealed(site, claim);
            self.continue_walk(site, walk);
            while let Some(walk) = self.walk.take() {
                self.continue_walk(site, walk);
            }
        }
        site.counters.found_expired.get() != before
    }

    fn begin_walk(&mut self, site: &Site<'_>) -> Option<SearchWalk> {
        let engine = site.engine;
        let (heap, now_s) = (&engine.heap, site.now.seconds());
        // The round is over: the next one begins in a later second.
        if self.left == 0 {
            if !engine.begins_search(site.now) {
                return None;
            }
            (self.from, self.left) = (1, heap.used_segments());
            self.opens_left = engine.appenders.len() * OPENS;
            give_up_due_walks(engine, now_s);
        }
        // First the open segments, then the sealed ones, some of them in each call.
        while let Some(place) = self.opens_left.checked_sub(1) {
            self.opens_left = place;
            if let Some(walk) = self.search_open(engine, place, now_s) {
                return Some(walk);
            }
        }
        let mut looks = self.left.min(LOOKED_AT_ONCE);
        self.left -= looks;
        let claim = heap.claim_where(&mut self.from, &mut looks, |candidate| {
            heap.due_s(candidate.segment) <= now_s
        });
        self.left += looks;
        Some(self.search_sealed(site, claim?))
    }

    fn search_sealed(&mut self, site: &Site<'_>, claim: Claim) -> SearchWalk {
        self.reset_due_time(&site.engine.heap, claim.segment);
        SearchWalk::Sealed { claim, at: 0 }
    }

    /// Begins the walk of the open segment at a place if it is due and its items are settled.
    fn search_open(
        &mut self,
        engine: &Relativistic,
        place: usize,
        now_s: u32,
    ) -> Option<SearchWalk> {
        let heap = &engine.heap;
        let appender = &engine.appenders[place / OPENS];
        let segment = appender.open_segment(place % OPENS)?;
        if heap.due_s(segment) > now_s {
            return None;
        }
        self.reset_due_time(heap, segment);
        if !appender.begin_walk(heap, place % OPENS, segment) {
            heap.due_by(segment, 0); // it was sealed, or an item is being written
            return None;
        }
        Some(SearchWalk::Open { segment, place })
    }

    /// Resets the time, so that the search notices when a thread lowers it.
    ///
    /// An item that is linked later is not in a segment that can be claimed. In an open segment its
    /// room is appended later: after `begin_walk`, under the same lock, so its writer sees the
    /// reset time, and lowers it.
    fn reset_due_time(&mut self, heap: &Heap, segment: Segment) {
        heap.set_due_s(segment, u32::MAX);
        // Pairs with the light barrier in `LockedOp::touched`.
        barrier::heavy();
        self.deadlines.clear();
    }

    /// Visits some items of a segment in one section, and parks the rest of the walk. Returns the
    /// bytes walked.
    fn continue_walk(&mut self, site: &Site<'_>, mut walk: SearchWalk) -> u32 {
        let guard = site.engine.table.domain().pin();
        let mut nodes = [None; BATCH];
        let searched = find_some(site.engine, &mut walk, &mut nodes);
        for node in nodes.into_iter().flatten() {
            // SAFETY: the guard is of the table's domain (1). `find_some` has just returned the
            // item, which the claim of the walk or the guard keeps alive (2).
            unsafe { self.visit(site, &guard, node) };
        }
        drop(guard);
        match searched {
            Searched::Some(walked) => {
                self.walk = Some(walk);
                return walked.max(1);
            }
            Searched::Whole => self.end_walk(site, walk, true),
            Searched::Lost => self.end_walk(site, walk, false),
        }
        1
    }

    /// Removes an item if it has expired, and notes its deadline otherwise.
    ///
    /// # Safety
    ///
    /// 1. The guard is of the table's domain.
    /// 2. `node` is an item of this engine that a claim of the caller or the guard keeps alive.
    unsafe fn visit(&mut self, site: &Site<'_>, guard: &Guard<'_>, node: Ptr) {
        let engine = site.engine;
        // SAFETY: a claim or the guard keeps the item alive, by 2.
        let (found, link): (Item<'_, Link>, &Link) =
            unsafe { (Item::from_raw(node), &(*node.as_ptr()).links) };
        let deadline = found.deadline();
        if link.is_removed() || deadline == Deadline::NEVER {
            return;
        }
        if deadline.is_past(site.now) || engine.is_flushed(node) {
            // SAFETY: the guard is of the table's domain, by 1, and a claim or the guard keeps the
            // item alive, by 2.
            unsafe { site.remove(guard, node, true) };
        } else {
            let bytes = engine.heap.footprint(found) as u32;
            self.deadlines.push((engine.due_s(deadline), bytes));
        }
    }

    /// Ends the search of a segment, of which all items were visited if it `is_whole`, and notes
    /// when the segment is due again.
    fn end_walk(&mut self, site: &Site<'_>, walk: SearchWalk, is_whole: bool) {
        let heap = &site.engine.heap;
        let (SearchWalk::Sealed {
            claim: Claim { segment, .. },
            ..
        }
        | SearchWalk::Open { segment, .. }) = walk;
        if is_whole {
            // Due when a sixteenth of the segment has expired, or, after the pause, when the next
            // item has.
            self.deadlines.sort_unstable();
            let sixteenth = (heap.segment_bytes() / 16) as u32;
            let mut sum = 0;
            let enough = self.deadlines.iter().find(|(_, bytes)| {
                sum += bytes;
                sum >= sixteenth
            });
            let resumes_s = site.now.seconds() + pause_s(heap);
            let next = self.deadlines.first();
            let next_s = next.map(|(due_s, _)| (*due_s).max(resumes_s));
            let due_s = enough.map(|(due_s, _)| *due_s).into_iter().chain(next_s);
            if let Some(due_s) = due_s.min() {
                heap.due_by(segment, due_s);
            }
        } else {
            // The next round repeats the search.
            heap.due_by(segment, 0);
        }
        if let SearchWalk::Sealed { claim, .. } = walk {
            heap.unclaim(site.engine.table.domain(), claim);
        }
    }
}

/// Finds the next items of a walk. They are kept by its claim, or, if the segment is open, by the
/// section of the caller.
fn find_some(
    engine: &Relativistic,
    walk: &mut SearchWalk,
    nodes: &mut [Option<Ptr>; BATCH],
) -> Searched {
    let heap = &engine.heap;
    match walk {
        SearchWalk::Sealed { claim, at } => {
            let begin = *at;
            for place in nodes {
                // SAFETY: the walk is one of this engine's search (1). `at` is 0 first, and then
                // what this function returned for the claim (2).
                let Some((node, next)) = (unsafe { heap.item_at(claim, *at) }) else {
                    break;
                };
                (*place, *at) = (Some(node), next);
            }
            match *at - begin {
                0 => Searched::Whole,
                walked => Searched::Some(walked),
            }
        }
        SearchWalk::Open { segment, place } => {
            let appender = &engine.appenders[*place / OPENS];
            match appender.walk_on(heap, *place % OPENS, *segment, nodes) {
                WalkedOn::Some(walked) => Searched::Some(walked),
                WalkedOn::End => Searched::Whole,
                WalkedOn::Sealed => Searched::Lost,
            }
        }
    }
}

/// Gives up the evictors' walks of segments that are due, which could not be claimed otherwise.
fn give_up_due_walks(engine: &Relativistic, now_s: u32) {
    for evictor in &engine.evictors {
        if let Some(mut evictor) = evictor.try_lock() {
            evictor.give_up_if(engine, |segment| engine.heap.due_s(segment) <= now_s);
        }
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::super::{Config, Relativistic};
    use crate::engine::{Engine, Session};
    use corewise_ops::{
        Deadline, Flow, Now, Op, Outcome, ReplySink, Store, StoreMode, Token, Verb,
    };
    use std::sync::Arc;

    struct Ignore;

    impl ReplySink for Ignore {
        fn complete(&mut self, _: Token, _: Outcome<'_>) -> Flow {
            Flow::Continue
        }
    }

    const fn at(ms: u64) -> Now {
        Now::new(ms, 0)
    }

    /// On an idle cache no store continues the walk.
    #[test]
    fn a_parked_walk_does_not_keep_expired_items() {
        let engine = Arc::new(Relativistic::new(Config {
            memory: 16 << 20,
            huge_pages: false,
            ..Config::default()
        }));
        let mut session = engine.session();
        for key in 0..1_000u32 {
            let store = Store::new(StoreMode::Set, b"v").until(Deadline::at_ms(6_000));
            let (key, verb) = (key.to_le_bytes(), Verb::Store(store));
            session.submit(at(5_000), &[Op::new(0, &key, verb)], &mut Ignore);
        }
        engine.seal_older(u32::MAX);
        {
            let site = session.session_state.site(&engine, at(5_000));
            let mut evictor = site.evictor.lock();
            evictor.make_headroom(&site, i64::MAX, 1);
            assert!(evictor.is_walking());
        }
        assert!(engine.stats().items > 900);
        while session.maintain(at(6_000)) {}
        assert_eq!(engine.stats().items, 0);
    }
}
