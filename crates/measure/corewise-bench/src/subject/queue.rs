//! Priority queues: insert, remove the least key, find the least key (\[NR\] §4.1).
//!
//! Keys are unique: the index that the stream draws in the upper half, and a number of the thread
//! in the lower. So what was inserted and not removed is known by number and sum, and is compared
//! with what comes out in the end, which must be in order. A lookup finds the least key; it may
//! miss only in a queue that is empty at the time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::dyn_table::DynTable;
use crate::plan::Plan;
use crate::stream::{GET, INSERT};
use crate::subject::{Capability, External, Measurements, Operate, WithHandles, Work};
use crate::table::Setup;
use crate::work::{Evidence, OpCounts, Part, Sums, indices, is_given_up};

/// A thread's handle to a priority queue.
pub trait QueueHandle {
    /// Inserts a key; returns false if the queue has no room.
    fn insert(&mut self, key: u64) -> bool;
    /// Removes the least key.
    fn delete_min(&mut self) -> Option<u64>;
    /// Returns the least key.
    fn find_min(&mut self) -> Option<u64>;
}

/// A priority queue, and how many keys each thread has inserted.
#[derive(Debug)]
pub struct QueueSubject<Q> {
    queue: Q,
    inserted: Box<[CachePadded<AtomicU64>]>,
    is_out_of_order: AtomicBool,
}

/// A thread at a queue.
#[derive(Debug)]
pub struct QueueWorker<'s, H> {
    handle: H,
    /// The number of the thread's next key, which the subject keeps between two slices.
    number: u64,
    kept_number: &'s AtomicU64,
    part: Part,
    external: External,
    tally: OpCounts,
}

impl<H> Drop for QueueWorker<'_, H> {
    fn drop(&mut self) {
        self.kept_number.store(self.number, Ordering::Relaxed); // Relaxed: only this thread's
    }
}

impl<H: QueueHandle> QueueWorker<'_, H> {
    #[inline(always)]
    fn insert(&mut self, index: u32) {
        let number = self.number * self.part.threads as u64 + self.part.thread as u64;
        let key = u64::from(index) << 32 | u64::from(number as u32);
        self.number += 1;
        let inserted = self.handle.insert(key);
        self.tally.counts.count_insert(inserted);
        self.tally.sums.gain_if(inserted, key, 0);
    }

    #[inline(always)]
    fn delete_min(&mut self) -> Option<u64> {
        let removed = self.handle.delete_min();
        self.tally.counts.count_remove(removed.is_some());
        self.tally
            .sums
            .lose_if(removed.is_some(), removed.unwrap_or(0), 0);
        removed
    }
}

impl<H: QueueHandle> Work for QueueWorker<'_, H> {
    #[inline(always)]
    fn step(&mut self, index: u32, operation: u8) {
        if operation == GET {
            let found = self.handle.find_min();
            self.tally.counts.count_get(found.is_some());
        } else if operation == INSERT {
            self.insert(index);
        } else {
            self.delete_min();
        }
        self.external.work();
    }

    fn end(&mut self) -> OpCounts {
        self.tally
    }
}

impl<Q: WithHandles> Operate for QueueSubject<Q>
where
    for<'s> Q::Handle<'s>: QueueHandle,
{
    const CAPABILITY: Capability = Capability::Queue;
    type Worker<'s> = QueueWorker<'s, Q::Handle<'s>>;

    fn build(setup: &Setup) -> Self {
        Self {
            queue: Q::build(setup),
            inserted: (0..setup.threads).map(|_| CachePadded::default()).collect(),
            is_out_of_order: AtomicBool::new(false),
        }
    }

    fn worker(&self, plan: &Plan, part: Part) -> QueueWorker<'_, Q::Handle<'_>> {
        let kept_number = &*self.inserted[part.thread];
        QueueWorker {
            handle: self.queue.handle(part),
            number: kept_number.load(Ordering::Relaxed), // Relaxed: only this thread's
            kept_number,
            part,
            external: External::new(plan.work),
            tally: OpCounts::default(),
        }
    }
}

impl<Q: WithHandles> DynTable for QueueSubject<Q>
where
    for<'s> Q::Handle<'s>: QueueHandle,
{
    /// Inserts every index that is present at the start.
    fn fill(&self, plan: &Plan, part: Part) -> OpCounts {
        let mut worker = self.worker(plan, part);
        let indices = indices(plan, part).filter(|&index| plan.prefilled(index));
        indices.for_each(|index| worker.insert(index));
        worker.end()
    }

    /// The first thread removes all keys.
    fn probe(&self, plan: &Plan, part: Part) -> Sums {
        let mut found = Sums::default();
        if part.thread > 0 {
            return found;
        }
        let (mut worker, mut last) = (self.worker(plan, part), 0);
        while !is_given_up() {
            let least = worker.handle.find_min();
            let removed = worker.delete_min();
            let Some(key) = removed else { break };
            if key < last || least != removed {
                self.is_out_of_order.store(true, Ordering::Relaxed); // Relaxed: read after the part
            }
            last = key;
            found.gain(key, 0);
        }
        found
    }

    fn measurements(&self) -> Measurements {
        self.queue.measurements()
    }

    fn problems(&self, _: &Plan, evidence: &Evidence) -> Option<Vec<String>> {
        let (booked, found) = (&evidence.booked, &evidence.found);
        let (entries, there) = (booked.entries, found.entries);
        let refused = evidence.stream.insert_failed;
        // Relaxed: stored by a part that has ended.
        let is_out_of_order = self.is_out_of_order.load(Ordering::Relaxed);
        Some(problems! {
            entries != there =>
                "{there} keys came out in the end, {entries} were put in and not taken out";
            entries == there && booked.keys != found.keys =>
                "the keys that came out are not those that were put in";
            refused > 0 => "{refused} keys were refused";
            is_out_of_order => "the keys did not come out in order";
        })
    }
}
