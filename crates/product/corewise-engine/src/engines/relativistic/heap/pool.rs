//! The segments by their state: free, in a queue, waiting for readers.

use super::{DEAD_SHARE, DEAD_SLACK_SHARE, Heap, SMALL_LOG2, SPARE_SHARE};
use crate::engines::relativistic::queues::{Queues, Segment};
use crate::engines::relativistic::runs::{Run, Runs};
use corewise_atomic::mutant;
use corewise_atomic::sync::atomic::Ordering;
use corewise_rcu::{Cookie, Domain};
use std::collections::VecDeque;

/// The state of a segment; see the [parent](super#states-of-a-segment).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    Open,
    /// A run whose item is incomplete and was never in the table. It is in no queue.
    Reserved,
    Sealed,
    Claimed,
    Retired,
}

/// A sealed and settled segment that one thread walks.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) segment: Segment,
    pub(crate) is_large: bool,
}

impl Claim {
    /// Bytes in use from the segment's beginning, including dead bytes.
    pub(crate) fn used(&self, heap: &Heap) -> u32 {
        heap.fill(self.segment).0
    }
}

/// A segment that may be claimed.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) segment: Segment,
    /// Bytes that it holds.
    pub(crate) held: u64,
    /// Bytes that copying its live items elsewhere would gain: the dead bytes, and in a low segment
    /// the unused bytes, if they exceed the tail of a filled segment. (There are no pages behind a
    /// run's items, and a copy would have a tail as well.)
    pub(crate) gain: u64,
}

impl Candidate {
    /// The gain as a share of the held bytes, in 1,024ths.
    pub(crate) fn share(&self) -> u64 {
        self.gain * 1024 / self.held.max(1)
    }
}

/// What the lock of the heap protects: which segments are free, in use, and wait for readers.
pub(super) struct Pool {
    pub(super) queues: Queues,
    pub(super) state: Vec<u8>,
    /// Free low segments whose pages may be resident.
    dirty: Vec<Segment>,
    /// Free low segments whose pages were given back.
    clean: Vec<Segment>,
    /// Segments from here up to the lowest run were never used.
    pub(super) fresh: Segment,
    /// Low segments that are not free.
    low_used: u64,
    waiting: VecDeque<Retired>,
    pub(super) runs: Runs,
}

struct Retired {
    segment: Segment,
    after: Cookie,
}

impl Pool {
    pub(super) fn new(segments: usize, pages_per_segment: u32) -> Self {
        Self {
            queues: Queues::new(segments),
            state: vec![State::Free as u8; segments],
            dirty: Vec::new(),
            clean: Vec::new(),
            // An item in the first segment would have the node ID 0.
            fresh: 1,
            low_used: 0,
            waiting: VecDeque::new(),
            runs: Runs::new(segments, pages_per_segment),
        }
    }

    pub(super) fn is(&self, segment: Segment, state: State) -> bool {
        self.state[segment as usize] == state as u8
    }

    pub(super) fn set(&mut self, segment: Segment, state: State) {
        self.state[segment as usize] = state as u8;
    }

    pub(super) fn may_claim(&self, heap: &Heap, segment: Segment) -> bool {
        self.state.get(segment as usize) == Some(&(State::Sealed as u8)) && heap.is_settled(segment)
    }

    pub(super) fn candidate(&self, heap: &Heap, segment: Segment) -> Candidate {
        let (used, dead) = heap.fill(segment);
        Candidate {
            segment,
            held: self.bytes(heap, segment),
            gain: u64::from(dead) + self.unused(heap, segment, used),
        }
    }

    /// The bytes behind the last item of a sealed segment that a copy of its items gains. Only
    /// small items share segments that keep their unused pages, and only where one was sealed
    /// early is more unused than a tail.
    pub(super) fn unused(&self, heap: &Heap, segment: Segment, used: u32) -> u64 {
        let unused = heap.segment_bytes().saturating_sub(u64::from(used));
        let is_low = self.runs.get(segment).is_none();
        let is_early = is_low && unused > heap.segment_bytes() >> (SMALL_LOG2 - 1);
        if is_early || mutant!("counts_unused_as_gain") {
            unused
        } else {
            0
        }
    }

    pub(super) fn claim(&mut self, segment: Segment) -> Claim {
        self.set(segment, State::Claimed);
        Claim {
            segment,
            is_large: self.runs.get(segment).is_some_and(|run| run.is_large),
        }
    }

    pub(super) fn used_segments(&self) -> u32 {
        self.fresh + self.runs.used_count()
    }

    /// The first segment in use from `from` on: first the low ones, then the runs, then again from
    /// the start.
    pub(super) fn next_used(&self, from: Segment) -> Segment {
        if from < self.fresh {
            return from.max(1);
        }
        self.runs.used_from(from).unwrap_or(1)
    }

    /// Takes a free low segment, preferably one whose pages are resident.
    pub(super) fn take_low(&mut self) -> Option<Segment> {
        let segment = match self.dirty.pop().or_else(|| self.clean.pop()) {
            Some(segment) => segment,
            None => {
                if self.fresh == self.runs.from() {
                    self.runs.retreat();
                }
                let is_free = self.fresh < self.runs.from();
                self.fresh += u32::from(is_free);
                is_free.then(|| self.fresh - 1)?
            }
        };
        self.low_used += 1;
        Some(segment)
    }

    pub(super) fn take_run(&mut self, run: Run) -> Option<(Segment, u32)> {
        let lowest = self.fresh;
        self.runs.take(run, lowest)
    }

    /// Retires a segment in which everything is dead: removes it from the queues; it is free after
    /// a grace period.
    pub(super) fn retire(&mut self, heap: &Heap, domain: &Domain, segment: Segment) {
        let bytes = self.bytes(heap, segment);
        self.queues.remove(segment, bytes);
        self.set(segment, State::Retired);
        // Relaxed, here and below: see `held_bytes`.
        heap.retired.fetch_add(bytes, Ordering::Relaxed);
        let (used, dead) = heap.fill(segment);
        let dead = heap.whole_steps(dead.into()) + self.unused(heap, segment, used);
        heap.dead.fetch_sub(dead, Ordering::Relaxed);
        self.waiting.push_back(Retired {
            segment,
            after: domain.start_poll(),
        });
    }

    /// Bytes that a segment holds.
    pub(super) fn bytes(&self, heap: &Heap, segment: Segment) -> u64 {
        let run = self.runs.get(segment);
        run.map_or(heap.segment_bytes(), |run| {
            u64::from(run.pages) << heap.page_log2
        })
    }

    /// The grace period that the longest-waiting segment needs.
    pub(super) fn oldest(&self) -> Option<Cookie> {
        self.waiting.front().map(|oldest| oldest.after)
    }

    /// Frees the segments whose grace period is known to have ended.
    pub(super) fn collect(&mut self, heap: &Heap, domain: &Domain) {
        while let Some(oldest) = self.waiting.front() {
            if !domain.is_complete(oldest.after) && !mutant!("no_grace_period") {
                return;
            }
            let segment = oldest.segment;
            self.waiting.pop_front();
            // Relaxed: see `held_bytes`.
            heap.retired
                .fetch_sub(self.bytes(heap, segment), Ordering::Relaxed);
            self.free(heap, segment);
        }
    }

    pub(super) fn free(&mut self, heap: &Heap, segment: Segment) {
        self.set(segment, State::Free);
        heap.let_go(self.bytes(heap, segment));
        if self.runs.give_back(segment).is_none() {
            self.low_used -= 1;
            self.dirty.push(segment);
        }
        self.publish_longest(heap);
        self.trim(heap);
    }

    pub(super) fn publish_longest(&self, heap: &Heap) {
        // Relaxed: as in `held_bytes`.
        heap.longest_run
            .store(self.runs.longest(), Ordering::Relaxed);
    }

    /// Bytes that may be resident, in use or free.
    pub(super) fn resident(&self, heap: &Heap) -> u64 {
        let low = (self.low_used + self.dirty.len() as u64) << heap.segment_log2;
        low + (self.runs.resident_pages() << heap.page_log2)
    }

    /// Gives back free pages while more may be resident than is allowed, and sets the goal.
    pub(super) fn trim(&mut self, heap: &Heap) {
        self.trim_to(heap, heap.allowed());
        let most_dead = (heap.held_bytes() / DEAD_SHARE).max(heap.allowed() / DEAD_SLACK_SHARE);
        let goal = if heap.dead() > most_dead && !mutant!("grows_before_it_compacts") {
            self.resident(heap).min(heap.allowed())
        } else {
            heap.allowed()
        };
        let spare = self.resident(heap).saturating_sub(heap.held_bytes());
        // Relaxed, both: a setting, and as in `held_bytes`.
        heap.goal.store(goal, Ordering::Relaxed);
        heap.spare.store(spare, Ordering::Relaxed);
    }

    /// Trims after memory was taken, when `before` bytes were resident before: if many were free,
    /// there are no more afterwards.
    pub(super) fn trim_taken(&mut self, heap: &Heap, before: u64) {
        if self.resident(heap) > before {
            let held = heap.held_bytes();
            self.trim_to(heap, before.max(held + held / SPARE_SHARE));
        }
        self.trim(heap);
    }

    fn trim_to(&mut self, heap: &Heap, most: u64) {
        loop {
            let excess = self.resident(heap).saturating_sub(most);
            if excess == 0 {
                return;
            }
            if let Some(segment) = self.dirty.pop() {
                let pages = 1 << (heap.segment_log2 - heap.page_log2);
                // SAFETY: the segment is free, so its pages hold no items (1).
                unsafe { heap.discard(self.runs.range(segment, 0, pages)) };
                self.clean.push(segment);
            } else if let Some(pages) = self.runs.spare(heap.pages(excess)) {
                // SAFETY: the pages are those of free runs, which hold no items (1).
                unsafe { heap.discard(pages) };
            } else {
                return;
            }
        }
    }
}
