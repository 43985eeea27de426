//! The open loop: operations start when they are due, whether or not the table is busy.
//!
//! The arrivals are a Poisson process. Latency counts from the time an operation was due, so a
//! stall delays every operation that came due during it (no coordinated omission).

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use corewise_measure::draw::mix;

use crate::clock;
use crate::latencies::Latencies;
use crate::plan::Plan;
use crate::table::{Kind, MeasuredMap};
use crate::work::worker::Worker;
use crate::work::{Drive, DriveReport, Loop, Part, SliceTimes};

/// Number of pre-drawn times between arrivals.
const GAPS: usize = 1 << 16;

/// One thread's part of a paced run.
#[derive(Debug)]
pub struct Pace {
    /// The operations. Those that come due in the measured time are recorded.
    pub(crate) drive: Drive,
    /// Mean time between two arrivals at this thread.
    pub(crate) gap_ticks: f64,
    /// Seed of the arrivals.
    pub(crate) seed: u64,
    /// Recorded operations that finished before the end.
    pub(crate) in_time: u64,
    /// Latencies of recorded operations, from the intended start to the end.
    pub(crate) latencies: Latencies,
}

impl Loop for Pace {
    /// Operations still due at the end run until twice the time is over. The operations of the
    /// report are those that came due.
    fn run<K: Kind, T: MeasuredMap<K>>(&mut self, map: &T, plan: &Plan, part: Part) -> DriveReport {
        let gaps = gaps(self.seed ^ part.thread as u64, self.gap_ticks);
        let drive = &mut self.drive;
        let SliceTimes {
            warm_ticks,
            run_ticks,
            ..
        } = drive.times;
        let mut worker = Worker::<K, T>::new(map, plan, part, Some(drive.numbers));
        let end = warm_ticks + run_ticks;
        let (mut due, mut due_count, mut arrivals) = (0u64, 0, 0usize);
        let begin = drive.times.start.wait();
        'run: loop {
            let chunk = drive.stream.chunk(&mut drive.cursor);
            for (&key, &operation) in chunk.keys.iter().zip(chunk.operations) {
                due += gaps[arrivals % GAPS];
                arrivals += 1;
                if due >= end || clock::coarse().saturating_sub(begin) > 2 * end {
                    break 'run;
                }
                while clock::coarse().saturating_sub(begin) < due {
                    std::hint::spin_loop();
                }
                let outcome = worker.step::<false>(key, operation, chunk.shift);
                let done = clock::now().saturating_sub(begin);
                if due >= warm_ticks {
                    self.latencies.record(outcome, done.saturating_sub(due));
                    due_count += 1;
                    self.in_time += u64::from(done <= end);
                }
            }
        }
        drive.numbers = worker.numbers;
        // Operations that never started.
        due_count += (end.saturating_sub(due) as f64 / self.gap_ticks) as u64;
        DriveReport {
            tally: worker.tally(),
            operations: due_count,
            ticks: run_ticks,
            ..DriveReport::default()
        }
    }
}

/// Exponentially distributed times, in ticks.
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
