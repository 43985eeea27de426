//! Latency of get, put and remove, by success and failure, at full load (\[CHTBench\] §3.4.5).

use crate::clock;
use crate::contender::{CellContext, Contender, PhaseError, RunningTable};
use crate::error::BenchError;
use crate::latencies::Latencies;
use crate::plan::{Kept, Plan};
use crate::plot::style::Looks;
use crate::plot::{Part as PagePart, latencies};
use crate::record::Fields;
use crate::results::Results;
use crate::runner::{RowAccumulator, Runner};
use crate::sections::Section;
use crate::sections::closed_loop::{self, Slices};
use crate::stream::Chunk;
use crate::suite::Task;
use crate::table::{Kind, Table};
use crate::work::worker::Worker;
use crate::work::{Drive, DriveReport, Loop, Part};

/// The section.
#[derive(Debug)]
pub(crate) struct LatencySection;

impl Section for LatencySection {
    fn name(&self) -> &'static str {
        "latency"
    }

    fn about(&self) -> &'static str {
        "latency of get, put and remove, by success and failure (3.4.5)"
    }

    fn run(
        &self,
        runner: &mut Runner<'_>,
        task: &Task,
        contenders: &[Contender],
    ) -> Result<(), BenchError> {
        let measured = closed_loop::measure::<TimedSlices>(runner, task, contenders)?;
        closed_loop::write(runner, task, contenders, measured)
    }

    fn page_rank(&self) -> u32 {
        10
    }

    fn parts(&self, results: &Results, looks: &Looks) -> Vec<PagePart> {
        let plots = latencies::plots(results, looks, ("latency", "Latency"), false);
        let lead = "Threads work as fast as they can; each timed operation is one of theirs.";
        vec![PagePart {
            below: latencies::summaries(results, looks, false),
            ..PagePart::new("latency", "Latency", lead, plots)
        }]
    }
}

/// The operations of a stream, of which one in each chunk is timed.
#[derive(Debug)]
pub(crate) struct Timed {
    drive: Drive,
    latencies: Latencies,
}

impl Loop for Timed {
    type Report = DriveReport;

    fn run<K: Kind, T: Table<K>>(&mut self, table: &T, plan: &Plan, part: Part) -> DriveReport {
        debug_assert_ne!(
            plan.kept,
            Kept::Half,
            "no section times operations beside kept keys"
        );
        let mut place = self.drive.run_ticks ^ std::ptr::from_ref(self) as u64;
        let latencies = &mut self.latencies;
        self.drive
            .run_chunks::<K, T>(table, plan, part, |worker, chunk| {
                place = place.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                timed::<K, T>(worker, chunk, (place >> 58) as usize, latencies);
            })
    }
}

/// Runs the operations of a chunk, with the one at `place` timed.
#[inline(always)]
fn timed<K: Kind, T: Table<K>>(
    worker: &mut Worker<'_, K, T>,
    chunk: Chunk<'_>,
    place: usize,
    latencies: &mut Latencies,
) {
    for (at, (&key, &operation)) in chunk.keys.iter().zip(chunk.operations).enumerate() {
        if at != place {
            worker.step(key, operation, chunk.shift);
        } else {
            let begin = clock::now();
            let outcome = worker.step(key, operation, chunk.shift);
            latencies.record(outcome, clock::now().wrapping_sub(begin));
        }
    }
}

/// Slices of the mix with a sample of latencies.
struct TimedSlices;

impl Slices for TimedSlices {
    type Progress = Option<Latencies>;

    fn start(_: &CellContext<'_>, _: u64) -> Result<Self, BenchError> {
        Ok(Self)
    }

    fn begin(&self, _: u64) -> Option<Latencies> {
        None
    }

    fn run(
        &self,
        context: &CellContext<'_>,
        table: &mut RunningTable,
        all: &mut Option<Latencies>,
    ) -> Result<(), PhaseError> {
        let done = context.drive(table, |drive| Timed {
            drive,
            latencies: Latencies::new(),
        })?;
        let mut reports = Vec::new();
        for (report, job) in done {
            Latencies::merge(all, job.latencies);
            reports.push((report, job.drive));
        }
        table.book(reports);
        Ok(())
    }

    fn finish(latencies: Option<Latencies>, accumulator: &mut RowAccumulator, _: &mut Fields) {
        if let Some(latencies) = latencies {
            Latencies::merge(&mut accumulator.latencies, latencies);
        }
    }
}
