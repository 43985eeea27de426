//! Growth from empty, as fast as it goes or with every stall recorded.

use crate::clock;
use crate::latencies::Latencies;
use crate::plan::Plan;
use crate::table::{Kind, Table};
use crate::work::worker::Worker;
use crate::work::{Loop, OpCounts, Part, Start, is_given_up};

/// Bins of a time line; the last one takes all later operations.
const BINS: usize = 60_000;

/// One thread's part of a growth.
#[derive(Clone, Debug)]
pub struct Grow {
    /// All threads start here.
    pub(crate) start: Start,
    /// Width of a bin.
    pub(crate) bin_ticks: u64,
    /// Time limit.
    pub(crate) limit_ticks: u64,
    /// Whether each operation is timed. That costs more than many an insertion, so the rate is
    /// measured without.
    pub(crate) is_timed: bool,
}

/// The report of a growth.
#[derive(Clone, Debug)]
pub struct GrowReport {
    /// Counts of the inserts.
    pub(crate) tally: OpCounts,
    /// Time until this thread finished.
    pub(crate) ticks: u64,
    /// Whether it inserted all of its keys in time.
    pub(crate) finished: bool,
    /// Number of operations that ended in each bin, and the longest of them in ticks; empty if they
    /// are not timed.
    pub(crate) bins: Vec<(u64, u64)>,
    /// Latencies of all operations, if they are timed.
    pub(crate) latencies: Latencies,
}

/// Operations between two looks at the clock, if they are not timed.
const LOOK_EVERY: usize = 256;

impl Loop for Grow {
    type Report = GrowReport;

    /// Inserts every key of a part.
    fn run<K: Kind, T: Table<K>>(&mut self, table: &T, plan: &Plan, part: Part) -> GrowReport {
        if self.is_timed {
            self.timed::<K, T>(table, plan, part)
        } else {
            self.untimed::<K, T>(table, plan, part)
        }
    }
}

impl Grow {
    fn untimed<K: Kind, T: Table<K>>(&self, table: &T, plan: &Plan, part: Part) -> GrowReport {
        let mut worker = Worker::<K, T>::new(table, plan, part, None);
        let mut finished = true;
        self.start.wait();
        let begin = clock::now();
        for (count, index) in plan.part(part.thread, part.threads).enumerate() {
            worker.insert(plan.key(index));
            if count % LOOK_EVERY == 0 {
                let elapsed = clock::now().wrapping_sub(begin);
                if elapsed > self.limit_ticks || is_given_up() {
                    finished = false;
                    break;
                }
            }
        }
        GrowReport {
            ticks: clock::now().wrapping_sub(begin),
            tally: worker.tally(),
            finished,
            bins: Vec::new(),
            latencies: Latencies::new(),
        }
    }

    /// Each operation is timed: two reads of the clock, one of which also starts the next
    /// operation.
    fn timed<K: Kind, T: Table<K>>(&self, table: &T, plan: &Plan, part: Part) -> GrowReport {
        let mut worker = Worker::<K, T>::new(table, plan, part, None);
        let mut bins = Vec::with_capacity(1024);
        let mut latencies = Latencies::new();
        let mut finished = true;
        self.start.wait();
        let begin = clock::now();
        let mut last = begin;
        for index in plan.part(part.thread, part.threads) {
            let outcome = 2 + usize::from(!worker.insert(plan.key(index)));
            let now = clock::now();
            let took = now.wrapping_sub(last);
            latencies.record(outcome, took);
            note(
                &mut bins,
                (now.wrapping_sub(begin) / self.bin_ticks) as usize,
                took,
            );
            last = now;
            if now.wrapping_sub(begin) > self.limit_ticks || is_given_up() {
                finished = false;
                break;
            }
        }
        GrowReport {
            tally: worker.tally(),
            ticks: last.wrapping_sub(begin),
            finished,
            bins,
            latencies,
        }
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
