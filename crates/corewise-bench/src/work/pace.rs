//! The open loop: operations start when they are due, not when the table has time for them.
//!
//! The arrivals are a Poisson process. Latency counts from the moment an operation was due, so a
//! stall is paid for by every operation that came due in its time (no coordinated omission).

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use corewise_measure::draw::mix;

use crate::clock;
use crate::latencies::Latencies;
use crate::plan::Plan;
use crate::stamp::Numbers;
use crate::stream::{Cursor, Stream};
use crate::table::{Kind, Table};
use crate::work::seat::Seat;
use crate::work::{Part, Start, Tally};

/// Pre-drawn times between arrivals.
const GAPS: usize = 1 << 16;

/// One thread's part of a paced run.
#[derive(Debug)]
pub struct Pace {
    /// What to do.
    pub stream: Arc<Stream>,
    /// Where to go on.
    pub cursor: Cursor,
    /// The value stream.
    pub numbers: Numbers,
    /// Everybody starts here.
    pub start: Start,
    /// Mean time between two arrivals at this thread.
    pub gap_ticks: f64,
    /// Time that is not recorded.
    pub warm_ticks: u64,
    /// Time in which operations come due that are recorded.
    pub run_ticks: u64,
    /// For the arrivals.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct PaceReport {
    /// All operations.
    pub tally: Tally,
    /// Operations that came due in the recorded time.
    pub due: u64,
    /// Those of them that were done before its end.
    pub in_time: u64,
    /// From the intended start to the end.
    pub latencies: Latencies,
}

/// Runs a stream at a rate. Operations still due at the end are done until twice the time is over.
pub(crate) fn pace<K: Kind, T: Table<K>>(
    table: &T,
    plan: &Plan,
    part: Part,
    job: &mut Pace,
) -> PaceReport {
    let gaps = gaps(job.seed ^ part.thread as u64, job.gap_ticks);
    let mut seat = Seat::<K, T>::new(table, plan, part, Some(job.numbers));
    let (mut due_count, mut in_time, mut latencies) = (0, 0, Latencies::new());
    let end = job.warm_ticks + job.run_ticks;
    let (mut due, mut arrivals) = (0u64, 0usize);
    job.start.wait();
    let begin = clock::coarse();
    'run: loop {
        let chunk = job.stream.chunk(&mut job.cursor);
        for (&key, &operation) in chunk.keys.iter().zip(chunk.operations) {
            due += gaps[arrivals % GAPS];
            arrivals += 1;
            if due >= end || clock::coarse().wrapping_sub(begin) > 2 * end {
                break 'run;
            }
            while clock::coarse().wrapping_sub(begin) < due {
                std::hint::spin_loop();
            }
            let outcome = seat.step(key, operation, chunk.shift);
            let done = clock::now().wrapping_sub(begin);
            if due >= job.warm_ticks {
                latencies.record(outcome, done.saturating_sub(due));
                due_count += 1;
                in_time += u64::from(done <= end);
            }
        }
    }
    job.numbers = seat.numbers;
    // Those that never had their turn.
    due_count += (end.saturating_sub(due) as f64 / job.gap_ticks) as u64;
    PaceReport {
        tally: seat.tally(),
        due: due_count,
        in_time,
        latencies,
    }
}

/// Exponentially distributed, in ticks.
fn gaps(seed: u64, mean: f64) -> Vec<u64> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(mix(seed ^ 0x6a9));
    (0..GAPS)
        .map(|_| (-(1.0 - rng.random::<f64>()).ln() * mean) as u64)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_have_the_mean_and_the_spread_of_a_poisson_process() {
        let gaps = gaps(1, 1_000.0);
        let mean = gaps.iter().sum::<u64>() as f64 / GAPS as f64;
        let longer = gaps.iter().filter(|&&gap| gap > 2_000).count() as f64 / GAPS as f64;
        assert!((mean - 1_000.0).abs() < 20.0, "{mean}");
        assert!((longer - (-2.0f64).exp()).abs() < 0.01, "{longer}");
    }
}
