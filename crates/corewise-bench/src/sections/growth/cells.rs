//! Growth cells: every table grows from empty, while no other is measured.

use std::sync::Arc;
use std::time::Duration;

use super::Timeline;
use crate::clock;
use crate::contender::{CellContext, Contender, PhaseError};
use crate::dyn_table::DynTable;
use crate::error::BenchError;
use crate::latencies::Latencies;
use crate::plan::Plan;
use crate::record::{Counts, Detail, Record, Slice, Verdicts};
use crate::runner::{RowAccumulator, Runner, in_turn};
use crate::suite::Task;
use crate::verify;
use crate::work::grow::{Grow, GrowReport};
use crate::work::{OpCounts, Start};

/// Width of a bin of the time line.
const BIN_MS: f64 = 10.0;
/// A growth that takes longer than this plus the time for each key is given up, and the row is
/// void.
const LIMIT: Duration = Duration::from_secs(10);
const LIMIT_PER_KEY: Duration = Duration::from_micros(10);

/// Returns the time limit of a growth.
pub(crate) fn limit(plan: &Plan) -> Duration {
    LIMIT + LIMIT_PER_KEY * plan.range
}

/// A repetition grows tables, without timing each operation, until they have taken this number of
/// insertions, but no more than [`MOST_GROWTHS`].
const LEAST_INSERTS: u32 = 200_000;
const MOST_GROWTHS: u32 = 100;

/// Measures rates, time lines and latencies of growth. The row's rate is that of all inserts that
/// are not timed one by one, over the time until the last thread was done.
pub(super) fn run(
    runner: &mut Runner<'_>,
    task: &Task,
    contenders: &[Contender],
) -> Result<(), BenchError> {
    let mut accumulators: Vec<RowAccumulator> = contenders
        .iter()
        .map(|_| RowAccumulator::default())
        .collect();
    let (seed, progress) = (runner.seed, runner.progress.clone());
    let cell_context = runner.cell_context(&task.workload)?;
    let cell = task.workload.cell(cell_context.cpus());
    let mut records = Vec::new();
    for (repetition, at) in in_turn(task, contenders, seed ^ 0x940) {
        let accumulator = &mut accumulators[at];
        if !accumulator.out {
            match repetition_of(&cell_context, &contenders[at], repetition, seed) {
                Ok(grown) => records.extend(grown.book(accumulator)),
                Err(error) => accumulator.fail(&contenders[at], error)?,
            }
        }
        progress.inc(u64::from(at == 0));
    }
    for record in &records {
        runner.sink.write(record)?;
    }
    runner.histograms(contenders, &accumulators, &cell, false)?;
    runner.rows(task, contenders, &accumulators, &cell)
}

struct Grown {
    slice: Slice,
    timeline: Timeline,
    latencies: Latencies,
}

impl Grown {
    fn book(self, accumulator: &mut RowAccumulator) -> [Record; 2] {
        accumulator.add(&self.slice);
        accumulator.out = !accumulator.problems.is_empty(); // a second try would take as long
        Latencies::merge(&mut accumulator.latencies, self.latencies);
        [
            Record::Slice(Box::new(self.slice)),
            Record::Detail(Box::new(Detail::of(&self.timeline))),
        ]
    }
}

/// A table that has grown.
struct Growth {
    dyn_table: Arc<dyn DynTable>,
    reports: Vec<GrowReport>,
    booked: OpCounts,
    /// Time until the last thread was done.
    elapsed_ns: f64,
}

fn grow(
    cell_context: &CellContext<'_>,
    contender: &Contender,
    is_timed: bool,
) -> Result<Growth, PhaseError> {
    let dyn_table = cell_context.make(contender);
    let limit = limit(&cell_context.plan);
    let start = Start::of(cell_context.workload.threads);
    let job = move || Grow {
        start: start.clone(),
        bin_ticks: clock::ticks((BIN_MS * 1e6) as u64),
        limit_ticks: clock::ticks(limit.as_nanos() as u64),
        is_timed,
    };
    let reports = cell_context.all("growth", &dyn_table, limit, move |dyn_table, plan, part| {
        dyn_table.run(plan, part, &mut job())
    })?;
    let ticks = reports.iter().map(|report| report.ticks).max().unwrap_or(1);
    Ok(Growth {
        booked: verify::sum(reports.iter().map(|report| &report.tally)),
        elapsed_ns: clock::ns(ticks).max(1.0),
        dyn_table,
        reports,
    })
}

impl Growth {
    /// Looks up every key.
    fn checks(
        &self,
        cell_context: &CellContext<'_>,
        contender: &Contender,
    ) -> Result<Verdicts, PhaseError> {
        if contender.entry.null {
            return Ok(Verdicts::default());
        }
        let mut checks = cell_context.conservation(&self.dyn_table, &self.booked)?;
        if self.reports.iter().any(|report| !report.finished) {
            checks.problems.push(format!(
                "not done after {} s, at {} entries",
                limit(&cell_context.plan).as_secs(),
                self.booked.sums.entries
            ));
        }
        Ok(checks)
    }
}

/// Grows tables without timing each operation, for the rate, and then one with.
fn repetition_of(
    cell_context: &CellContext<'_>,
    contender: &Contender,
    repetition: usize,
    seed: u64,
) -> Result<Grown, PhaseError> {
    let (mut counts, mut elapsed_ns, mut problems) = (Counts::default(), 0.0, Vec::new());
    for _ in 0..(LEAST_INSERTS / cell_context.plan.range.max(1)).clamp(1, MOST_GROWTHS) {
        let growth = grow(cell_context, contender, false)?;
        problems.extend(growth.checks(cell_context, contender)?.problems);
        counts.add(&growth.booked.counts);
        elapsed_ns += growth.elapsed_ns;
        if !problems.is_empty() {
            break;
        }
    }
    let growth = grow(cell_context, contender, true)?;
    let mut checks = growth.checks(cell_context, contender)?;
    checks.problems.extend(problems);
    if !contender.entry.null {
        cell_context.audit(&growth.dyn_table, seed, &mut checks)?;
    }
    let ran_on = cell_context.whereabouts(&mut checks);
    let slice = Slice {
        rate: counts.total() as f64 / elapsed_ns * 1e9,
        operations: counts.total(),
        elapsed_ns: elapsed_ns as u64,
        counts,
        checks,
        contention: growth.dyn_table.contention(),
        ran_on,
        ..contender.slice(&cell_context.workload.id(), repetition)
    };
    let timeline = timeline(&slice, &growth.reports);
    let mut latencies = Latencies::new();
    let reports = growth.reports.iter();
    reports.for_each(|report| latencies.add(&report.latencies));
    Ok(Grown {
        slice,
        timeline,
        latencies,
    })
}

fn timeline(slice: &Slice, reports: &[GrowReport]) -> Timeline {
    let bins = reports
        .iter()
        .map(|report| report.bins.len())
        .max()
        .unwrap_or(0);
    let (mut operations, mut longest) = (vec![0; bins], vec![0; bins]);
    for report in reports {
        for (bin, &(count, ticks)) in report.bins.iter().enumerate() {
            operations[bin] += count;
            longest[bin] = longest[bin].max(clock::ns(ticks) as u64);
        }
    }
    Timeline {
        cell: slice.cell.clone(),
        table: slice.table.clone(),
        repetition: slice.repetition,
        bin_ms: BIN_MS,
        operations,
        longest_ns: longest,
    }
}
