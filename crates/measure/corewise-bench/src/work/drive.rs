//! The closed loop: a stream of operations, as fast as the table answers.

use std::cell::RefCell;
use std::sync::Arc;

use crate::clock;
use crate::counters::{self, Counters};
use crate::plan::{Kept, Plan};
use crate::record::HardwareCounters;
use crate::stamp::Numbers;
use crate::stream::{CHUNK, Chunk, Stream, StreamCursor};
use crate::table::{Kind, MeasuredMap};
use crate::work::worker::Worker;
use crate::work::{Loop, OpCounts, Part, SliceTimes};

thread_local! {
    /// Opened once per thread; without system support, starting and stopping do nothing.
    static COUNTERS: RefCell<Counters> = RefCell::new(Counters::open_for_this_thread());
}

/// One thread's part of a short slice. As a [`Loop`] it runs the operations of its stream; the
/// loops of some sections extend it.
#[derive(Debug)]
pub struct Drive {
    /// The operations.
    pub stream: Arc<Stream>,
    /// The position in the stream.
    pub cursor: StreamCursor,
    /// The value stream.
    pub numbers: Numbers,
    /// Start, warm-up and measured time.
    pub times: SliceTimes,
}

/// The report of a loop. What only one loop measures is in its job.
#[derive(Clone, Debug, Default)]
pub struct DriveReport {
    /// All operations, measured or not.
    pub tally: OpCounts,
    /// Lookups, measured or not, that missed a key that stays ([`Plan::keeps`]).
    pub kept_misses: u64,
    /// Measured operations.
    pub operations: u64,
    /// Measured time.
    pub ticks: u64,
    /// Hardware counters of the measured time.
    pub hardware: HardwareCounters,
    /// The first wrong outcome among those known beforehand, in words.
    pub problem: Option<String>,
}

impl DriveReport {
    /// Completes a report of measured operations with all operations.
    pub(crate) fn report(self, tally: OpCounts, kept_misses: u64) -> Self {
        Self {
            tally,
            kept_misses,
            ..self
        }
    }

    /// Returns the operations per second.
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / clock::ns(self.ticks) * 1e9
    }
}

/// Returns the sums of all threads, with the time of the last one, without problems.
pub(crate) fn total(reports: &[DriveReport]) -> DriveReport {
    let mut total = DriveReport {
        hardware: counters::sum(reports.iter().map(|report| report.hardware)),
        ..DriveReport::default()
    };
    for report in reports {
        total.tally.add(&report.tally);
        total.kept_misses += report.kept_misses;
        total.operations += report.operations;
        total.ticks = total.ticks.max(report.ticks);
    }
    total
}

impl Loop for Drive {
    fn run<K: Kind, T: MeasuredMap<K>>(&mut self, map: &T, plan: &Plan, part: Part) -> DriveReport {
        match plan.kept {
            Kept::Half => self.run_chunks(map, plan, part, |worker, chunk| {
                for (&key, &operation) in chunk.keys.iter().zip(chunk.operations) {
                    worker.step::<true>(key, operation, chunk.shift);
                }
            }),
            Kept::None | Kept::All => self.run_chunks(map, plan, part, |worker, chunk| {
                for (&key, &operation) in chunk.keys.iter().zip(chunk.operations) {
                    worker.step::<false>(key, operation, chunk.shift);
                }
            }),
        }
    }
}

impl Drive {
    /// Runs the chunks of the stream one after the other until the time is over. `execute` runs
    /// the operations of one; between two chunks the clock is read.
    #[inline(always)]
    pub(crate) fn run_chunks<'t, K: Kind, T: MeasuredMap<K>>(
        &mut self,
        map: &'t T,
        plan: &Plan,
        part: Part,
        mut execute: impl FnMut(&mut Worker<'t, K, T>, Chunk<'_>),
    ) -> DriveReport {
        let mut worker = Worker::<K, T>::new(map, plan, part, Some(self.numbers));
        let measured = self.measure(|chunk| execute(&mut worker, chunk));
        self.numbers = worker.numbers;
        let kept_misses = match plan.kept {
            Kept::All => worker.counts.get_misses,
            Kept::None | Kept::Half => worker.kept_misses,
        };
        measured.report(worker.tally(), kept_misses)
    }

    /// Runs chunks until the warm-up is over, and then until the measured time is.
    #[inline(always)]
    pub(crate) fn measure(&mut self, mut execute: impl FnMut(Chunk<'_>)) -> DriveReport {
        let (stream, cursor) = (&*self.stream, &mut self.cursor);
        let begin = || COUNTERS.with_borrow_mut(Counters::start);
        let (operations, ticks) = self.times.run(begin, || {
            execute(stream.chunk(cursor));
            CHUNK as u64
        });
        DriveReport {
            operations,
            ticks,
            hardware: COUNTERS.with_borrow_mut(Counters::stop),
            ..DriveReport::default()
        }
    }
}
