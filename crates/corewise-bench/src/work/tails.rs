//! Growth by one writer beside one reader, with every slow operation counted.
//!
//! The same two loops run on `Nothing`, no table at all, so that what the machine does to any
//! loop is counted in the same way. Each thread reads the clock once an operation, and every
//! moment between its start and its end lies in some operation: no stall can hide between two.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use corewise_measure::draw::mix;
use crossbeam_utils::CachePadded;

use crate::clock;
use crate::latencies::Latencies;
use crate::plan::Plan;
use crate::table::{Handle, Kind, Setup, Table};
use crate::work::seat::Seat;
use crate::work::{Part, Start, Tally, is_given_up};

/// Operations that take longer than one of these are counted; in microseconds.
pub const SLOW_US: [u64; 3] = [3, 50, 100];

/// What writer and reader share.
#[derive(Debug, Default)]
pub struct Progress {
    /// How many keys have been inserted, the first of all indices.
    inserted: CachePadded<AtomicU32>,
    /// Whether the writer is done.
    done: CachePadded<AtomicBool>,
}

/// One thread's part of a growth: thread 0 writes, thread 1 reads.
#[derive(Clone, Debug)]
pub struct Tails {
    /// Everybody starts here.
    pub start: Start,
    /// How far the writer is.
    pub progress: Arc<Progress>,
    /// Runs for this time, over the keys again and again; without it, until all are inserted.
    pub run_ticks: Option<u64>,
    /// Gives up after this time.
    pub limit_ticks: u64,
    /// For the keys that are looked up.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct TailsReport {
    /// Outcomes.
    pub tally: Tally,
    /// Time until this thread was done.
    pub ticks: u64,
    /// Whether it was done in time.
    pub finished: bool,
    /// Operations that took longer than each of [`SLOW_US`].
    pub slow: [u64; SLOW_US.len()],
    /// Latencies of all operations.
    pub latencies: Latencies,
}

/// Runs one thread's part.
pub(crate) fn tails<K: Kind, T: Table<K>>(
    table: &T,
    plan: &Plan,
    part: Part,
    job: &Tails,
) -> TailsReport {
    let mut seat = Seat::<K, T>::new(table, plan, part, None);
    let mut watch = Watch::new();
    job.start.wait();
    watch.begin();
    let finished = match part.thread {
        0 => {
            let _done = Done(&job.progress);
            write(&mut seat, &mut watch, job)
        }
        _ => read(&mut seat, &mut watch, job),
    };
    TailsReport {
        tally: seat.tally(),
        ticks: watch.elapsed(),
        finished,
        slow: watch.slow,
        latencies: watch.latencies,
    }
}

/// Sets the reader free, by a panic of the writer too.
struct Done<'a>(&'a Progress);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.done.store(true, Ordering::Relaxed); // Relaxed: it hands over nothing but itself
    }
}

/// Times operations, the end of one being the start of the next.
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

/// Inserts every key in turn; whether it came to the end.
#[inline(always)]
fn write<K: Kind, T: Table<K>>(seat: &mut Seat<'_, K, T>, watch: &mut Watch, job: &Tails) -> bool {
    let range = seat.plan.range;
    let until = job.run_ticks.unwrap_or(job.limit_ticks);
    let (mut at, mut most) = (0, 0);
    loop {
        let outcome = 2 + usize::from(!seat.insert(seat.plan.key(at)));
        at += 1;
        most = most.max(at);
        // Release: pairs with the Acquire in `read`, so that a reader that knows of a key comes
        // after its insert whatever the table promises.
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

/// Looks up random keys of those that are there, until the writer is done.
#[inline(always)]
fn read<K: Kind, T: Table<K>>(seat: &mut Seat<'_, K, T>, watch: &mut Watch, job: &Tails) -> bool {
    let mut draws = job.seed;
    // Relaxed: see `Done`.
    while !job.progress.done.load(Ordering::Relaxed) && !is_given_up() {
        // Acquire: pairs with the Release in `write`.
        let there = job.progress.inserted.load(Ordering::Acquire);
        if there == 0 {
            watch.last = clock::now(); // nothing to look up yet is no slow operation
            continue;
        }
        draws = draws.wrapping_add(1);
        let index = (u128::from(mix(draws)) * u128::from(there)) >> 64;
        let outcome = usize::from(!seat.get(seat.plan.key(index as u32)));
        watch.note(outcome);
    }
    true
}

/// No table, for any kind of key: the empty loop.
pub(crate) struct Nothing;

impl<K: Kind> Table<K> for Nothing {
    type Handle<'t> = Self;

    fn build(_: &Setup) -> Self {
        Self
    }
    fn handle(&self) -> Self {
        Self
    }
    fn size(&self) -> Option<usize> {
        None
    }
}

impl<K: Kind> Handle<K> for Nothing {
    #[inline(always)]
    fn get(&mut self, key: &K::Query) -> Option<u64> {
        std::hint::black_box(key);
        None
    }
    #[inline(always)]
    fn insert(&mut self, key: &K::Query, value: K::Value) -> bool {
        std::hint::black_box((key, &value));
        true
    }
    #[inline(always)]
    fn remove(&mut self, key: &K::Query) -> Option<u64> {
        std::hint::black_box(key);
        None
    }
}
