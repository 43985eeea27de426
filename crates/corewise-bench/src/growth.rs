//! Growth cells: every table grows from empty, alone on the machine.

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::clock;
use crate::error::BenchError;
use crate::lane::{Lane, Scene, Trouble};
use crate::latencies::Latencies;
use crate::plan::Plan;
use crate::record::{Record, Slice, Timeline, Verdicts};
use crate::runner::{Course, Runner, lane_name};
use crate::subject::Subject;
use crate::suite::Task;
use crate::verify;
use crate::work::{Grow, GrowReport, Start, Tally};

/// A bin of the time line.
const BIN_MS: f64 = 10.0;
/// Growth that takes longer than this, and this for each key, is given up, and the row is void.
const LIMIT: Duration = Duration::from_secs(10);
const LIMIT_PER_KEY: Duration = Duration::from_micros(10);

/// The longest that a growth may take.
pub(crate) fn limit(plan: &Plan) -> Duration {
    LIMIT + LIMIT_PER_KEY * plan.range
}

impl Runner<'_> {
    /// Time lines and latencies of growth. The row's rate is of all inserts over the time until
    /// the last thread was done.
    pub(crate) fn growth(&mut self, task: &Task, lanes: &[Lane]) -> Result<(), BenchError> {
        let mut courses: Vec<Course> = lanes.iter().map(|_| Course::default()).collect();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ 0x940);
        let (seed, progress) = (self.seed, self.progress.clone());
        let scene = self.scene(&task.workload)?;
        let cpus = scene
            .crew
            .places()
            .iter()
            .flatten()
            .map(|cpu| cpu.0)
            .collect();
        let mut records = Vec::new();
        for repetition in 0..task.repetitions {
            let mut order: Vec<usize> = (0..lanes.len()).collect();
            order.shuffle(&mut rng);
            for at in order {
                let course = &mut courses[at];
                if !course.out {
                    match repetition_of(&scene, &lanes[at], repetition, seed) {
                        Ok(grown) => records.extend(grown.book(course)),
                        Err(trouble) => course.fail(&lanes[at], trouble)?,
                    }
                }
                progress.inc(u64::from(at == 0));
            }
        }
        for record in &records {
            self.sink.write(record)?;
        }
        let cell = task.workload.cell(cpus);
        for (lane, course) in lanes.iter().zip(&courses) {
            for histogram in course
                .latencies
                .iter()
                .flat_map(|all| all.records(&cell.id, &lane_name(lane), false))
            {
                self.sink.write(&Record::Histogram(Box::new(histogram)))?;
            }
        }
        self.rows(task, lanes, &courses, &cell)
    }
}

struct Grown {
    slice: Slice,
    timeline: Timeline,
    latencies: Latencies,
}

impl Grown {
    fn book(self, course: &mut Course) -> [Record; 2] {
        course.rates.resize(self.slice.repetition, f64::NAN);
        course.rates.push(self.slice.rate);
        course
            .problems
            .extend(self.slice.checks.problems.iter().cloned());
        course.operations += self.slice.operations;
        course.out = !course.problems.is_empty(); // once more would take as long
        match &mut course.latencies {
            Some(all) => all.add(&self.latencies),
            none => *none = Some(self.latencies),
        }
        [
            Record::Slice(Box::new(self.slice)),
            Record::Timeline(Box::new(self.timeline)),
        ]
    }
}

fn repetition_of(
    scene: &Scene<'_>,
    lane: &Lane,
    repetition: usize,
    seed: u64,
) -> Result<Grown, Trouble> {
    let subject = scene.make(lane);
    let limit = limit(&scene.plan);
    let job = Grow {
        start: Start::of(scene.workload.threads),
        bin_ticks: clock::ticks((BIN_MS * 1e6) as u64),
        limit_ticks: clock::ticks(limit.as_nanos() as u64),
    };
    let reports = scene.all("growth", &subject, limit, move |subject, plan, part| {
        subject.grow(plan, part, &job)
    })?;
    let booked = verify::sum(reports.iter().map(|report| &report.tally));
    let mut checks = match lane.entry.null {
        true => Verdicts::default(),
        false => checks(scene, &subject, &booked, seed)?,
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
        singles: Vec::new(),
        operations: booked.counts.total(),
        elapsed_ns: elapsed_ns as u64,
        counts: booked.counts,
        prefill_ns: 0,
        checks,
        hardware: Default::default(),
        contention: subject.contention(),
        ran_on,
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

/// Looks up every key, then the audit.
fn checks(
    scene: &Scene<'_>,
    subject: &Arc<dyn Subject>,
    booked: &Tally,
    seed: u64,
) -> Result<Verdicts, Trouble> {
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
