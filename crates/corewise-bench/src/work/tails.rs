//! Growth by one writer beside one reader; counts every slow operation.
//!
//! The same two loops run on `Nothing`, the null table, so that disturbances by the machine are
//! counted in the same way. Each thread reads the clock once an operation, and every moment between
//! its start and its end belongs to some operation: no stall can hide between two.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use corewise_measure::draw::mix;
use crossbeam_utils::CachePadded;

use crate::clock;
use crate::latencies::Latencies;
use crate::plan::Plan;
use crate::table::{Kind, Table};
use crate::work::worker::Worker;
use crate::work::{Loop, OpCounts, Part, Start, is_given_up};

/// Limits in microseconds; operations that take longer are counted.
pub(crate) const SLOW_US: [u64; 3] = [3, 50, 100];

/// Shared by writer and reader.
#[derive(Debug, Default)]
pub struct TailProgress {
    /// Number of keys inserted, from the first index on.
    inserted: CachePadded<AtomicU32>,
    /// Whether the writer is done.
    done: CachePadded<AtomicBool>,
}

/// One thread's part of a growth: thread 0 writes, thread 1 reads.
#[derive(Clone, Debug)]
pub struct Tails {
    /// All threads start here.
    pub(crate) start: Start,
    /// The writer's progress.
    pub(crate) progress: Arc<TailProgress>,
    /// Runs for this time, over the keys again and again; if `None`, until all are inserted.
    pub(crate) run_ticks: Option<u64>,
    /// Time limit.
    pub(crate) limit_ticks: u64,
    /// Seed of the keys to look up.
    pub(crate) seed: u64,
}

/// The report of a growth.
#[derive(Clone, Debug)]
pub struct TailsReport {
    /// Outcomes.
    pub(crate) tally: OpCounts,
    /// Time until this thread finished.
    pub(crate) ticks: u64,
    /// Whether it finished in time.
    pub(crate) finished: bool,
    /// Operations that took longer than each of [`SLOW_US`].
    pub(crate) slow: [u64; SLOW_US.len()],
    /// Latencies of all operations.
    pub(crate) latencies: Latencies,
}

impl Loop for Tails {
    type Report = TailsReport;

    fn run<K: Kind, T: Table<K>>(&mut self, table: &T, plan: &Plan, part: Part) -> TailsReport {
        let mut worker = Worker::<K, T>::new(table, plan, part, None);
        let mut watch = Watch::new();
        self.start.wait();
        watch.begin();
        let finished = match part.thread {
            0 => {
                let _done = Done(&self.progress);
                write(&mut worker, &mut watch, self)
            }
            _ => read(&mut worker, &mut watch, self),
        };
        TailsReport {
            tally: worker.tally(),
            ticks: watch.elapsed(),
            finished,
            slow: watch.slow,
            latencies: watch.latencies,
        }
    }
}

/// Releases the reader on drop, also after a panic of the writer.
struct Done<'a>(&'a TailProgress);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.done.store(true, Ordering::Relaxed); // Relaxed: publishes no other data
    }
}

/// Times operations; the end of one is the start of the next.
struct Watch {
    begin: u64,
    last: u64,
    limits: [u64; SLOW_US.len()],
    slow: [u64; SLOW_US.len()],
    latencies: Latencies,
}

impl Watch {
    fn new() -> Self {
        Self {
            begin: 0,
            last: 0,
            limits: SLOW_US.map(|us| clock::ticks(us * 1_000)),
            slow: [0; SLOW_US.len()],
            latencies: Latencies::new(),
        }
    }

    fn begin(&mut self) {
        self.begin = clock::now();
        self.last = self.begin;
    }

    #[inline(always)]
    fn note(&mut self, outcome: usize) {
        let now = clock::now();
        let took = now.wrapping_sub(self.last);
        self.latencies.record(outcome, took);
        for (slow, limit) in self.slow.iter_mut().zip(self.limits) {
            *slow += u64::from(took > limit);
        }
        self.last = now;
    }

    #[inline(always)]
    fn elapsed(&self) -> u64 {
        self.last.wrapping_sub(self.begin)
    }
}

/// Inserts every key in turn; returns whether it finished.
#[inline(always)]
fn write<K: Kind, T: Table<K>>(
    worker: &mut Worker<'_, K, T>,
    watch: &mut Watch,
    job: &Tails,
) -> bool {
    let range = worker.plan.range;
    let until = job.run_ticks.unwrap_or(job.limit_ticks);
    let (mut at, mut most) = (0, 0);
    loop {
        let outcome = 2 + usize::from(!worker.insert(worker.plan.key(at)));
        at += 1;
        most = most.max(at);
        // Release: pairs with the Acquire in `read`, so that a reader that sees a key comes after
        // its insert whatever the table guarantees.
        job.progress.inserted.store(most, Ordering::Release);
        watch.note(outcome);
        if at == range {
            if job.run_ticks.is_none() {
                return true;
            }
            at = 0;
        }
        if watch.elapsed() >= until || is_given_up() {
            return job.run_ticks.is_some();
        }
    }
}

/// Looks up random keys among those inserted, until the writer is done.
#[inline(always)]
fn read<K: Kind, T: Table<K>>(
    worker: &mut Worker<'_, K, T>,
    watch: &mut Watch,
    job: &Tails,
) -> bool {
    let mut draws = job.seed;
    // Relaxed: see `Done`.
    while !job.progress.done.load(Ordering::Relaxed) && !is_given_up() {
        // Acquire: pairs with the Release in `write`.
        let there = job.progress.inserted.load(Ordering::Acquire);
        if there == 0 {
            watch.last = clock::now(); // an empty table is no slow operation
            continue;
        }
        draws = draws.wrapping_add(1);
        let index = (u128::from(mix(draws)) * u128::from(there)) >> 64;
        let outcome = usize::from(!worker.get(worker.plan.key(index as u32)));
        watch.note(outcome);
    }
    true
}
