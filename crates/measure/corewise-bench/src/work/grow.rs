//! Growth from empty: as fast as it goes, or with every stall recorded, by all threads or by one
//! writer beside one reader.
//!
//! The same loops run on the null table, so that disturbances by the machine are counted in the
//! same way. A thread that times its operations reads the clock once an operation, and every moment
//! between its start and its end belongs to some operation: no stall can hide between two.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use corewise_measure::draw::mix;
use crossbeam_utils::CachePadded;

use crate::clock;
use crate::latencies::Latencies;
use crate::plan::Plan;
use crate::table::{Kind, MeasuredMap};
use crate::work::worker::Worker;
use crate::work::{DriveReport, Loop, Part, Start, is_given_up};

/// Operations between two looks at the clock, if they are not timed.
const LOOK_EVERY: usize = 256;
/// Limits in microseconds; operations that take longer are counted.
pub(crate) const SLOW_US: [u64; 3] = [3, 50, 100];

/// What the threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrowMode {
    /// All insert. Timing each operation costs more than many an insertion, so the rate is measured
    /// without.
    Untimed,
    /// All insert, and each operation is timed.
    Timed,
    /// Thread 0 inserts, thread 1 looks up what is there by then; each operation is timed.
    BesideReader,
}

/// Shared by writer and reader.
#[derive(Debug, Default)]
pub struct GrowProgress {
    /// Number of keys inserted, from the first index on.
    inserted: CachePadded<AtomicU32>,
    /// Whether the writer is done.
    done: CachePadded<AtomicBool>,
}

/// One thread's part of a growth.
#[derive(Clone, Debug)]
pub struct Grow {
    /// All threads start here.
    pub(crate) start: Start,
    pub(crate) mode: GrowMode,
    /// The writer's progress, beside a reader.
    pub(crate) progress: Arc<GrowProgress>,
    /// Runs for this time, over the keys again and again; if `None`, until all are inserted.
    pub(crate) run_ticks: Option<u64>,
    /// Time limit.
    pub(crate) limit_ticks: u64,
    /// Seed of the keys to look up.
    pub(crate) seed: u64,
    /// The times of its operations.
    pub(crate) watch: Watch,
}

impl Loop for Grow {
    /// The time of the report is that until this thread finished.
    fn run<K: Kind, T: MeasuredMap<K>>(&mut self, map: &T, plan: &Plan, part: Part) -> DriveReport {
        let mut worker = Worker::<K, T>::new(map, plan, part, None);
        self.start.wait();
        self.watch.begin();
        let finished = match (self.mode, part.thread) {
            (GrowMode::Untimed, _) => self.insert(&mut worker, part),
            (GrowMode::BesideReader, 1..) => self.read(&mut worker),
            _ => {
                let _done = Done(self.progress.clone());
                self.write(&mut worker, part)
            }
        };
        let tally = worker.tally();
        let late = || format!("not done in time, at {} entries", tally.sums.entries);
        DriveReport {
            tally,
            operations: tally.counts.total(),
            ticks: self.watch.elapsed(),
            problem: (!finished).then(late),
            ..DriveReport::default()
        }
    }
}

/// Releases the reader on drop, also after a panic of the writer.
struct Done(Arc<GrowProgress>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.done.store(true, Ordering::Relaxed); // Relaxed: publishes no other data
    }
}

/// Times operations; the end of one is the start of the next.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    begin: u64,
    last: u64,
    limits: [u64; SLOW_US.len()],
    /// Operations that took longer than each of [`SLOW_US`].
    pub(crate) slow: [u64; SLOW_US.len()],
    pub(crate) latencies: Latencies,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            begin: 0,
            last: 0,
            limits: SLOW_US.map(|us| clock::ticks(us * 1_000)),
            slow: [0; SLOW_US.len()],
            latencies: Latencies::default(),
        }
    }
}

impl Watch {
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

impl Grow {
    /// Inserts every key of a part; returns whether it finished.
    #[inline(always)]
    fn insert<K: Kind, T: MeasuredMap<K>>(
        &mut self,
        worker: &mut Worker<'_, K, T>,
        part: Part,
    ) -> bool {
        let watch = &mut self.watch;
        for (count, index) in worker.plan.part(part.thread, part.threads).enumerate() {
            worker.insert(worker.plan.key(index));
            if count % LOOK_EVERY == 0 {
                watch.last = clock::now();
                if watch.elapsed() > self.limit_ticks || is_given_up() {
                    return false;
                }
            }
        }
        watch.last = clock::now();
        true
    }

    /// Inserts every key of a part, and times each operation; returns whether it finished.
    #[inline(always)]
    fn write<K: Kind, T: MeasuredMap<K>>(
        &mut self,
        worker: &mut Worker<'_, K, T>,
        part: Part,
    ) -> bool {
        let watch = &mut self.watch;
        let has_reader = self.mode == GrowMode::BesideReader;
        let writers = if has_reader { 1 } else { part.threads };
        let until = self.run_ticks.unwrap_or(self.limit_ticks);
        let mut inserted = 0;
        loop {
            for index in worker.plan.part(part.thread, writers) {
                let outcome = 2 + usize::from(!worker.insert(worker.plan.key(index)));
                if has_reader {
                    inserted = inserted.max(index + 1);
                    // Release: pairs with the Acquire in `read`, so that a reader that sees a key
                    // comes after its insert whatever the table guarantees.
                    self.progress.inserted.store(inserted, Ordering::Release);
                }
                watch.note(outcome);
                if watch.elapsed() >= until || is_given_up() {
                    return self.run_ticks.is_some();
                }
            }
            if self.run_ticks.is_none() {
                return true;
            }
        }
    }

    /// Looks up random keys among those inserted, until the writer is done.
    #[inline(always)]
    fn read<K: Kind, T: MeasuredMap<K>>(&mut self, worker: &mut Worker<'_, K, T>) -> bool {
        let watch = &mut self.watch;
        let mut draws = self.seed;
        // Relaxed: see `Done`.
        while !self.progress.done.load(Ordering::Relaxed) && !is_given_up() {
            // Acquire: pairs with the Release in `write`.
            let there = self.progress.inserted.load(Ordering::Acquire);
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
}
