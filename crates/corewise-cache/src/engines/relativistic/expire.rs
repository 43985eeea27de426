//! The search for expired items.
//!
//! Once a second a round begins over the segments that are due. Expired items are removed; the
//! others stay in place. A segment is due again when a sixteenth of it has expired, so that it is
//! not walked for each item. One session at a time searches, in steps of a bounded number of bytes.

use super::Relativistic;
use super::evict::Site;
use super::heap::{Claim, Segment};
use crate::item::Item;
use corewise_atomic::barrier;
use corewise_maps::relativistic::Link;
use corewise_ops::Deadline;

/// Items visited in one section.
const BATCH: usize = 16;
/// Segments examined at once for one that is due, under the pool's lock.
const LOOKED_AT_ONCE: u32 = 256;

/// The state of the search. There is one per engine.
pub(super) struct Search {
    walk: Option<SearchWalk>,
    from: Segment,
    /// Segments that the present round has not yet reached.
    left: u32,
    /// The second of the last search through all segments, plus one.
    searched_all_s: u32,
    /// Deadlines and bytes of the items that stay in the segment being searched.
    deadlines: Vec<(u32, u32)>,
}

struct SearchWalk {
    claim: Claim,
    /// Offset of the next item.
    at: u32,
}

impl Search {
    pub(super) fn new() -> Self {
        Self {
            walk: None,
            from: 1,
            left: 0,
            searched_all_s: 0,
            deadlines: Vec::new(),
        }
    }

    /// Walks about `bytes` bytes of segments that contain expired items. Returns true if more work
    /// remains.
    pub(super) fn step(&mut self, site: &Site<'_>, bytes: usize) -> bool {
        let mut left = bytes as i64;
        while left > 0 {
            let Some(mut walk) = self.walk.take().or_else(|| self.begin(site)) else {
                return self.left > 0;
            };
            left -= i64::from(self.visit_some(site, &mut walk).max(1));
            if walk.at < walk.claim.used(&site.engine.heap) {
                self.walk = Some(walk);
            } else {
                self.end(site.engine, walk);
            }
        }
        true
    }

    /// Searches all due segments at once, but not twice in a second: deadlines are known to the
    /// second, and a full cache would do nothing else. Returns true if something had expired.
    pub(super) fn all(&mut self, site: &Site<'_>) -> bool {
        let now_s = site.now.seconds();
        if self.searched_all_s == now_s + 1 {
            return false;
        }
        self.searched_all_s = now_s + 1;
        let before = site.counters.found_expired.get();
        let heap = &site.engine.heap;
        let (mut from, mut looks) = (1, heap.used_segments());
        if let Some(walk) = self.walk.take() {
            self.end(site.engine, walk);
        }
        while let Some(claim) = heap.claim_where(&mut from, &mut looks, |candidate| {
            heap.due_s(candidate.segment) <= now_s
        }) {
            let mut walk = self.searched(site, claim);
            while walk.at < walk.claim.used(heap) {
                self.visit_some(site, &mut walk);
            }
            self.end(site.engine, walk);
        }
        site.counters.found_expired.get() != before
    }

    fn begin(&mut self, site: &Site<'_>) -> Option<SearchWalk> {
        let heap = &site.engine.heap;
        if self.left == 0 {
            if !site.engine.begins_search(site.now) {
                return None;
            }
            (self.from, self.left) = (1, heap.used_segments());
        }
        let mut looks = self.left.min(LOOKED_AT_ONCE);
        self.left -= looks;
        let now_s = site.now.seconds();
        let claim = heap.claim_where(&mut self.from, &mut looks, |candidate| {
            heap.due_s(candidate.segment) <= now_s
        });
        self.left += looks;
        Some(self.searched(site, claim?))
    }

    fn searched(&mut self, site: &Site<'_>, claim: Claim) -> SearchWalk {
        site.engine.heap.set_due_s(claim.segment, u32::MAX);
        // Pairs with the light barrier in `LockedOp::touched`. An item that is linked later is not
        // in a segment that can be claimed.
        barrier::heavy();
        self.deadlines.clear();
        SearchWalk { claim, at: 0 }
    }

    /// Visits some items in one section; returns the bytes walked.
    fn visit_some(&mut self, site: &Site<'_>, walk: &mut SearchWalk) -> u32 {
        let engine = site.engine;
        let heap = &engine.heap;
        let guard = engine.table.domain().pin();
        let begin = walk.at;
        for _ in 0..BATCH {
            // SAFETY: 1: the walk is one of this engine's search. 2: `at` is 0 first, and then what
            // was returned.
            let Some((node, next)) = (unsafe { heap.item_at(&walk.claim, walk.at) }) else {
                break;
            };
            walk.at = next;
            // SAFETY: the claim keeps the item alive.
            let (found, link): (Item<'_, Link>, &Link) =
                unsafe { (Item::from_raw(node), &(*node.as_ptr()).links) };
            let deadline = found.deadline();
            if link.is_removed() || deadline == Deadline::NEVER {
                continue;
            }
            if deadline.is_past(site.now) || engine.is_flushed(node) {
                // SAFETY: 1: pinned above. 2: the claim is ours.
                unsafe { site.remove(&guard, node, true) };
            } else {
                let bytes = heap.footprint(found) as u32;
                self.deadlines.push((engine.due_s(deadline), bytes));
            }
        }
        walk.at - begin
    }

    /// Ends the search of a segment and notes when it is due again.
    fn end(&mut self, engine: &Relativistic, walk: SearchWalk) {
        let heap = &engine.heap;
        self.deadlines.sort_unstable();
        let sixteenth = (heap.segment_bytes() / 16) as u32;
        let mut sum = 0;
        // A segment whose walk is abandoned half-way is due again at once.
        let is_whole = walk.at >= walk.claim.used(heap);
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
}
