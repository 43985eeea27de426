//! Growth from empty, with every stall on record.

use crate::clock;
use crate::latencies::Latencies;
use crate::plan::Plan;
use crate::table::{Kind, Table};
use crate::work::seat::Seat;
use crate::work::{Part, Start, Tally, is_given_up};

/// Bins of a time line; later operations go into the last.
const BINS: usize = 60_000;

/// One thread's part of a growth.
#[derive(Clone, Debug)]
pub struct Grow {
    /// Everybody starts here.
    pub start: Start,
    /// Length of a bin.
    pub bin_ticks: u64,
    /// Gives up after this time.
    pub limit_ticks: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct GrowReport {
    /// What was inserted.
    pub tally: Tally,
    /// Time until this thread was done.
    pub ticks: u64,
    /// Whether it inserted all of its keys in time.
    pub finished: bool,
    /// Operations that ended in each bin, and the longest of them in ticks.
    pub bins: Vec<(u64, u64)>,
    /// Latencies of all operations.
    pub latencies: Latencies,
}

/// Inserts every key of a part. Each operation is timed: two reads of the clock, one of which
/// serves the next operation as its first.
pub(crate) fn grow<K: Kind, T: Table<K>>(
    table: &T,
    plan: &Plan,
    part: Part,
    job: &Grow,
) -> GrowReport {
    let mut seat = Seat::<K, T>::new(table, plan, part, None);
    let mut bins = Vec::with_capacity(1024);
    let mut latencies = Latencies::new();
    let mut finished = true;
    job.start.wait();
    let begin = clock::now();
    let mut last = begin;
    for index in plan.part(part.thread, part.threads) {
        let outcome = 2 + usize::from(!seat.insert(plan.key(index)));
        let now = clock::now();
        let took = now.wrapping_sub(last);
        latencies.record(outcome, took);
        note(
            &mut bins,
            (now.wrapping_sub(begin) / job.bin_ticks) as usize,
            took,
        );
        last = now;
        if now.wrapping_sub(begin) > job.limit_ticks || is_given_up() {
            finished = false;
            break;
        }
    }
    GrowReport {
        tally: seat.tally(),
        ticks: last.wrapping_sub(begin),
        finished,
        bins,
        latencies,
    }
}

#[inline]
fn note(bins: &mut Vec<(u64, u64)>, bin: usize, took: u64) {
    let bin = bin.min(BINS - 1);
    if bin >= bins.len() {
        bins.resize(bin + 1, (0, 0));
    }
    bins[bin].0 += 1;
    bins[bin].1 = bins[bin].1.max(took);
}
