//! Growth cells: every table grows from empty, while no other is measured.

use std::sync::Arc;
use std::time::Duration;

use super::Timeline;
use super::worker::{Grow, GrowReport};
use crate::clock;
use crate::contender::{CellContext, Contender, PhaseError};
use crate::dyn_table::DynTable;
use crate::error::BenchError;
use crate::latencies::Latencies;
use crate::plan::Plan;
use crate::record::{Detail, Fields, Record, Slice, Verdicts};
use crate::runner::{RowAccumulator, Runner, in_turn, lane_name};
use crate::suite::Task;
use crate::verify;
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

/// Measures time lines and latencies of growth. The row's rate is that of all inserts over the
/// time until the last thread was done.
pub(super) fn run(
    runner: &mut Runner<'_>,
    task: &Task,
    lanes: &[Contender],
) -> Result<(), BenchError> {
    let mut courses: Vec<RowAccumulator> =
        lanes.iter().map(|_| RowAccumulator::default()).collect();
    let (seed, progress) = (runner.seed, runner.progress.clone());
    let scene = runner.scene(&task.workload)?;
    let cell = task.workload.cell(scene.cpus());
    let mut records = Vec::new();
    for (repetition, at) in in_turn(task, lanes, seed ^ 0x940) {
        let course = &mut courses[at];
        if !course.out {
            match repetition_of(&scene, &lanes[at], repetition, seed) {
                Ok(grown) => records.extend(grown.book(course)),
                Err(trouble) => course.fail(&lanes[at], trouble)?,
            }
        }
        progress.inc(u64::from(at == 0));
    }
    for record in &records {
        runner.sink.write(record)?;
    }
    runner.histograms(lanes, &courses, &cell, false)?;
    runner.rows(task, lanes, &courses, &cell)
}

struct Grown {
    slice: Slice,
    timeline: Timeline,
    latencies: Latencies,
}

impl Grown {
    fn book(self, course: &mut RowAccumulator) -> [Record; 2] {
        course.add(&self.slice);
        course.out = !course.problems.is_empty(); // a second try would take as long
        Latencies::merge(&mut course.latencies, self.latencies);
        [
            Record::Slice(Box::new(self.slice)),
            Record::Detail(Box::new(Detail::of(&self.timeline))),
        ]
    }
}

fn repetition_of(
    scene: &CellContext<'_>,
    lane: &Contender,
    repetition: usize,
    seed: u64,
) -> Result<Grown, PhaseError> {
    let subject = scene.make(lane);
    let limit = limit(&scene.plan);
    let start = Start::of(scene.workload.threads);
    let job = move || Grow {
        start: start.clone(),
        bin_ticks: clock::ticks((BIN_MS * 1e6) as u64),
        limit_ticks: clock::ticks(limit.as_nanos() as u64),
    };
    let reports = scene.all("growth", &subject, limit, move |subject, plan, part| {
        subject.run(plan, part, &mut job())
    })?;
    let booked = verify::sum(reports.iter().map(|report| &report.tally));
    let mut checks = if lane.entry.null {
        Verdicts::default()
    } else {
        checks(scene, &subject, &booked, seed)?
    };
    if !lane.entry.null && reports.iter().any(|report| !report.finished) {
        checks.problems.push(format!(
            "not done after {} s, at {} entries",
            limit.as_secs(),
            booked.sums.entries
        ));
    }
    let ran_on = scene.whereabouts(&mut checks);
    let ticks = reports.iter().map(|report| report.ticks).max().unwrap_or(1);
    let elapsed_ns = clock::ns(ticks).max(1.0);
    let slice = Slice {
        cell: scene.workload.id(),
        table: lane_name(lane),
        role: lane.role,
        repetition,
        rate: booked.counts.total() as f64 / elapsed_ns * 1e9,
        rates: Vec::new(),
        operations: booked.counts.total(),
        elapsed_ns: elapsed_ns as u64,
        counts: booked.counts,
        prefill_ns: 0,
        checks,
        hardware: Default::default(),
        contention: subject.contention(),
        ran_on,
        fields: Fields::default(),
    };
    let timeline = timeline(&slice, &reports);
    let mut latencies = Latencies::new();
    reports
        .iter()
        .for_each(|report| latencies.add(&report.latencies));
    Ok(Grown {
        slice,
        timeline,
        latencies,
    })
}

/// Looks up every key, then audits.
fn checks(
    scene: &CellContext<'_>,
    subject: &Arc<dyn DynTable>,
    booked: &OpCounts,
    seed: u64,
) -> Result<Verdicts, PhaseError> {
    let mut checks = scene.conservation(subject, booked)?;
    scene.audit(subject, seed, &mut checks)?;
    Ok(checks)
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
