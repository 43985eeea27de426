//! Latency of get, put and remove, by success and failure, at full load (\[CHTBench\] §3.4.5).

use crate::cell_run::{CellRun, Done};
use crate::closed_loop::{self, Slices};
use crate::contender::{CellContext, PhaseError, RunningTable};
use crate::error::BenchError;
use crate::latencies::Latencies;
use crate::plot::style::Looks;
use crate::plot::{Plot, latencies};
use crate::results::Results;
use crate::section::Section;
use crate::work::timed::Timed;
use crate::workload::Rules;

#[derive(Debug)]
pub(crate) struct LatencySection;

impl Rules for LatencySection {
    fn name(&self) -> &'static str {
        "latency"
    }
}

impl Section for LatencySection {
    fn run(&self, run: &mut CellRun<'_, '_>) -> Result<(), BenchError> {
        let measured = closed_loop::measure(run, |_, _| Ok(TimedSlices))?;
        run.write(measured)
    }

    fn plots(&self, results: &Results, looks: &Looks) -> Vec<Plot> {
        latencies::plots(results, looks, (self.name(), &self.preset().title))
    }
}

/// Slices of the mix with a sample of latencies.
struct TimedSlices;

impl Slices for TimedSlices {
    type Progress = Option<Latencies>;

    fn run(
        &self,
        context: &CellContext<'_>,
        table: &mut RunningTable,
        all: &mut Option<Latencies>,
    ) -> Result<(), PhaseError> {
        let (reports, jobs) = context.drive(table, |drive| Timed {
            drive,
            latencies: Latencies::default(),
        })?;
        table.add_slice(&reports);
        for job in &jobs {
            all.get_or_insert_default().add(&job.latencies);
        }
        table.store_positions(jobs.into_iter().map(|job| job.drive));
        Ok(())
    }

    fn finish(latencies: Option<Latencies>, done: &mut Done) {
        done.latencies = latencies;
    }
}
