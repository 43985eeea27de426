//! Claims: one thread at a time walks a sealed segment.

use super::Heap;
use super::pool::{Candidate, Claim, State};
use crate::engines::relativistic::queues::{Queue, Queues, Segment};
#[cfg(test)]
use corewise_atomic::sync::atomic::Ordering;
use corewise_rcu::Domain;

impl Heap {
    /// Claims the segment that `choose` selects from those that may be claimed.
    pub(crate) fn claim(
        &self,
        choose: impl FnOnce(&Queues, &dyn Fn(Segment) -> bool) -> Option<Segment>,
    ) -> Option<Claim> {
        let mut pool = self.pool.lock();
        let segment = {
            let pool = &*pool;
            choose(&pool.queues, &|segment| pool.may_claim(self, segment))?
        };
        Some(pool.claim(segment))
    }

    /// Claims the first segment that may be claimed, starting at a random one.
    pub(crate) fn claim_random(&self, draw: u64) -> Option<Claim> {
        let mut pool = self.pool.lock();
        let high = pool.state.len() as u64 - u64::from(pool.runs.from());
        let drawn = draw % (u64::from(pool.fresh) + high).max(1);
        let mut from = match drawn.checked_sub(u64::from(pool.fresh)) {
            Some(above) => pool.runs.from() + above as Segment,
            None => drawn as Segment,
        };
        for _ in 0..pool.used_segments() + 1 {
            let segment = pool.next_used(from);
            if pool.may_claim(self, segment) {
                return Some(pool.claim(segment));
            }
            from = segment + 1;
        }
        None
    }

    /// Claims the first segment from `*from` on that may be claimed and that `wanted` accepts.
    /// Examines at most `*looks` segments. Advances `*from`, which wraps around, and reduces
    /// `*looks`.
    pub(crate) fn claim_where(
        &self,
        from: &mut Segment,
        looks: &mut u32,
        mut wanted: impl FnMut(Candidate) -> bool,
    ) -> Option<Claim> {
        let mut pool = self.pool.lock();
        while *looks > 0 {
            *looks -= 1;
            let segment = pool.next_used(*from);
            *from = segment + 1;
            self.count_look();
            if pool.may_claim(self, segment) && wanted(pool.candidate(self, segment)) {
                return Some(pool.claim(segment));
            }
        }
        None
    }

    /// Of the next `most` [marked](crate::engines::relativistic::sparse) segments from `*from` on
    /// that `wanted` accepts, claims the one that gains most.
    pub(crate) fn claim_sparsest(
        &self,
        from: &mut Segment,
        most: usize,
        wanted: impl Fn(Candidate) -> bool,
    ) -> Option<Claim> {
        let mut pool = self.pool.lock();
        let (low, high) = (1..pool.fresh, pool.runs.from()..pool.state.len() as Segment);
        // First the low segments and the runs from `*from` on, then those before it.
        let from_here = [
            (*from).max(low.start)..low.end,
            (*from).max(high.start)..high.end,
        ];
        let before = [
            low.start..low.end.min(*from),
            high.start..high.end.min(*from),
        ];
        let ranges = from_here.into_iter().chain(before);
        let marked = ranges.flat_map(|range| self.sparse.marked_in(range));
        let sparse = marked.filter_map(|segment| {
            self.count_look();
            // Cleared before the fill is read: see guarantee 1 of `sparse`.
            self.sparse.take(segment);
            let may_claim = pool.may_claim(self, segment);
            let candidate = may_claim.then(|| pool.candidate(self, segment));
            // A segment from which too little is gained loses its mark until its fill changes. One
            // that is in use but may not be claimed yet keeps it.
            let stays = match candidate {
                Some(candidate) => wanted(candidate),
                None => !pool.is(segment, State::Free) && !pool.is(segment, State::Retired),
            };
            if stays {
                self.sparse.mark(segment);
            }
            candidate.filter(|_| stays)
        });
        let best = sparse.take(most).max_by_key(Candidate::share)?.segment;
        *from = best + 1;
        Some(pool.claim(best))
    }

    fn count_look(&self) {
        // Relaxed: a number that only tests read.
        #[cfg(test)]
        self.looks.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a segment that is not free, reserved or retired has an older generation than this.
    pub(crate) fn has_older(&self, generation: u32) -> bool {
        let pool = self.pool.lock();
        let mut all = (1..pool.fresh).chain(pool.runs.used());
        all.any(|segment| {
            let has_items = [State::Open, State::Sealed, State::Claimed];
            has_items.iter().any(|state| pool.is(segment, *state))
                && self.generation(segment) < generation
        })
    }

    /// The approximate number of segments that may be in use: those that a round of
    /// [`Heap::claim_where`] visits.
    pub(crate) fn used_segments(&self) -> u32 {
        self.pool.lock().used_segments()
    }

    /// Ends a claim. The segment keeps its place, or is retired if nothing in it is live.
    pub(crate) fn unclaim(&self, domain: &Domain, claim: Claim) {
        let mut pool = self.pool.lock();
        pool.set(claim.segment, State::Sealed);
        if self.is_dead(claim.segment) {
            pool.retire(self, domain, claim.segment);
        }
    }

    /// Ends a claim by moving the segment to the end of a queue.
    pub(crate) fn unclaim_to(&self, domain: &Domain, claim: Claim, queue: Queue) {
        {
            let mut pool = self.pool.lock();
            let bytes = pool.bytes(self, claim.segment);
            pool.queues.remove(claim.segment, bytes);
            pool.queues.insert(claim.segment, queue, bytes);
        }
        self.unclaim(domain, claim);
    }
}
