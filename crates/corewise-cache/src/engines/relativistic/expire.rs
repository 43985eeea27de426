//! The search for expired items.
//!
//! Once a second a round begins over the segments that have a deadline behind them. What has expired is
//! removed, the rest stays where it is; the segment's turn comes again when a sixteenth of it has expired,
//! so that a segment is not walked for each item. One session at a time searches, in steps of a bounded
//! number of bytes.

use super::Relativistic;
use super::evict::Site;
use super::heap::{Claim, Segment};
use crate::item::Item;
use corewise_maps::relativistic::Link;
use corewise_ops::Deadline;

/// Items visited in one section.
const BATCH: usize = 16;
/// Segments looked at for one that is due, under the pool's lock.
const LOOKED_AT_ONCE: u32 = 256;

/// Where the search is. One for the engine.
pub(super) struct Search {
    walk: Option<SearchWalk>,
    from: Segment,
    /// Segments that the present round has not come to.
    left: u32,
    /// The second of the last search through everything, plus one.
    searched_all_s: u32,
    /// Deadlines and bytes of what stays in the segment that is being searched.
    deadlines: Vec<(u32, u32)>,
}

struct SearchWalk {
    claim: Claim,
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

    /// Looks through about `bytes` bytes of segments that have something expired in them. True if there is
    /// more to do.
    pub(super) fn step(&mut self, site: &Site<'_>, bytes: usize) -> bool {
        let mut left = bytes as i64;
        while left > 0 {
            let Some(mut walk) = self.walk.take().or_else(|| self.begin(site)) else {
                return self.left > 0;
            };
            left -= i64::from(self.visit_some(site, &mut walk).max(1));
            if site.engine.heap.item_at(&walk.claim, walk.at).is_some() {
                self.walk = Some(walk);
            } else {
                self.end(site.engine, walk);
            }
        }
        true
    }

    /// Looks through everything that is due, at once, but not twice in a second: deadlines are known to the
    /// second, and a full cache would do nothing else. True if something had expired.
    pub(super) fn all(&mut self, site: &Site<'_>) -> bool {
        let now_s = site.now.seconds();
        if self.searched_all_s == now_s + 1 {
            return false;
        }
        self.searched_all_s = now_s + 1;
        let before = site.tally.found_expired.get();
        let heap = &site.engine.heap;
        let (mut from, mut looks) = (1, heap.used_segments());
        if let Some(walk) = self.walk.take() {
            self.end(site.engine, walk);
        }
        while let Some(claim) = heap.claim_where(&mut from, &mut looks, |candidate| {
            heap.due_s(candidate.segment) <= now_s
        }) {
            let mut walk = self.searched(site, claim);
            while heap.item_at(&walk.claim, walk.at).is_some() {
                self.visit_some(site, &mut walk);
            }
            self.end(site.engine, walk);
        }
        site.tally.found_expired.get() != before
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
        self.deadlines.clear();
        SearchWalk { claim, at: 0 }
    }

    /// Some items, in one section; returns the bytes walked.
    fn visit_some(&mut self, site: &Site<'_>, walk: &mut SearchWalk) -> u32 {
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
            if deadline.is_past(site.now) || engine.is_flushed(node) {
                site.remove(&guard, node, true);
            } else {
                let bytes = heap.footprint(found) as u32;
                self.deadlines.push((engine.due_s(deadline), bytes));
            }
        }
        walk.at - begin
    }

    /// Ends the search of a segment: notes when to come again.
    fn end(&mut self, engine: &Relativistic, walk: SearchWalk) {
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
}
