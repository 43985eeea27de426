//! Paced cells: every table at the same rate.

use std::time::Duration;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::clock;
use crate::error::BenchError;
use crate::lane::{Lane, Scene, Trouble};
use crate::latencies::Latencies;
use crate::record::{Record, Role, Slice};
use crate::runner::{Course, Runner, lane_name};
use crate::stamp::Numbers;
use crate::suite::Task;
use crate::verify;
use crate::work::{Pace, Part, Start};
use crate::workload::{Method, Pacing, Workload};

impl Runner<'_> {
    /// Latencies from the intended start. The row's rate is that of operations done in time.
    pub(crate) fn paced(
        &mut self,
        task: &Task,
        lanes: &[Lane],
        pacing: Pacing,
    ) -> Result<(), BenchError> {
        let rate = match pacing {
            Pacing::Rate(rate) => rate,
            Pacing::Load(load) => load * self.capacity(task, lanes)?,
        };
        let mut courses: Vec<Course> = lanes.iter().map(|_| Course::default()).collect();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ 0x9ace);
        let mut records = Vec::new();
        let (seed, progress) = (self.seed, self.progress.clone());
        let scene = self.scene(&task.workload)?;
        let cpus = scene
            .crew
            .places()
            .iter()
            .flatten()
            .map(|cpu| cpu.0)
            .collect();
        for repetition in 0..task.repetitions {
            let mut order: Vec<usize> = (0..lanes.len()).collect();
            order.shuffle(&mut rng);
            for at in order {
                let course = &mut courses[at];
                if !course.out {
                    match repetition_of(&scene, &lanes[at], repetition, seed, rate) {
                        Ok((slice, latencies)) => records.push(book(course, slice, latencies)),
                        Err(trouble) => course.fail(&lanes[at], trouble)?,
                    }
                }
                progress.inc(u64::from(at == 0));
            }
        }
        let mut cell = task.workload.cell(cpus);
        cell.rate_per_s = Some(rate);
        for record in &records {
            self.sink.write(record)?;
        }
        for (lane, course) in lanes.iter().zip(&courses) {
            for histogram in course
                .latencies
                .iter()
                .flat_map(|all| all.records(&cell.id, &lane_name(lane), true))
            {
                self.sink.write(&Record::Histogram(Box::new(histogram)))?;
            }
        }
        self.rows(task, lanes, &courses, &cell)
    }

    /// What the reference does in closed loop.
    fn capacity(&mut self, task: &Task, lanes: &[Lane]) -> Result<f64, BenchError> {
        let closed = Workload {
            method: Method::Throughput,
            ..task.workload.clone()
        };
        let seed = self.seed;
        let scene = self.scene(&closed)?;
        let reference = lanes.iter().find(|lane| lane.role == Role::Reference);
        let lane =
            reference.ok_or_else(|| BenchError::Failed("a cell without reference".into()))?;
        let measure = || {
            let mut live = scene.prepare(lane, 0, seed)?;
            for _ in 0..scene.workload.slices.max(5) {
                scene.slice(&mut live, false)?;
            }
            Ok(live.rate())
        };
        measure().map_err(|trouble: Trouble| {
            BenchError::Failed(format!("the reference failed: {trouble:?}"))
        })
    }
}

fn book(course: &mut Course, slice: Slice, latencies: Latencies) -> Record {
    course.rates.resize(slice.repetition, f64::NAN);
    course.rates.push(slice.rate);
    course
        .problems
        .extend(slice.checks.problems.iter().cloned());
    course.operations += slice.operations;
    match &mut course.latencies {
        Some(all) => all.add(&latencies),
        none => *none = Some(latencies),
    }
    Record::Slice(Box::new(slice))
}

fn repetition_of(
    scene: &Scene<'_>,
    lane: &Lane,
    repetition: usize,
    seed: u64,
    rate: f64,
) -> Result<(Slice, Latencies), Trouble> {
    let workload = scene.workload;
    let mut live = scene.prepare(lane, repetition, seed)?;
    let ticks = |ms: f64| clock::ticks((ms * 1e6) as u64);
    let (warm_ticks, run_ticks) = (ticks(workload.warm_ms), ticks(workload.duration_ms));
    let gap_ticks = clock::ticks(1_000_000_000) as f64 * workload.threads as f64 / rate;
    let (streams, start) = (scene.streams.clone(), Start::of(workload.threads));
    let place = seed ^ (repetition as u64) << 32;
    let time = Duration::from_millis((3.0 * (workload.duration_ms + workload.warm_ms)) as u64);
    let reports = scene.all(
        "a paced slice",
        &live.subject,
        time,
        move |subject, plan, part: Part| {
            let stream = streams[part.thread].clone();
            let mut job = Pace {
                cursor: stream.cursor(place),
                stream,
                numbers: Numbers::of_thread(1_000 + part.thread),
                start: start.clone(),
                gap_ticks,
                warm_ticks,
                run_ticks,
                seed: place,
            };
            subject.pace(plan, part, &mut job)
        },
    )?;
    let mut latencies = Latencies::new();
    let (mut due, mut in_time) = (0, 0);
    let stream = verify::sum(reports.iter().map(|report| &report.tally));
    for report in &reports {
        latencies.add(&report.latencies);
        (due, in_time) = (due + report.due, in_time + report.in_time);
    }
    live.book_tally(&stream);
    let mut checks = scene.finish(lane, &live, seed)?;
    let ran_on = scene.whereabouts(&mut checks);
    let slice = Slice {
        cell: workload.id(),
        table: lane_name(lane),
        role: lane.role,
        repetition,
        rate: in_time as f64 / workload.duration_ms * 1e3,
        rates: Vec::new(),
        singles: Vec::new(),
        operations: due,
        elapsed_ns: (workload.duration_ms * 1e6) as u64,
        counts: stream.counts,
        prefill_ns: live.prefill_ns,
        checks,
        hardware: Default::default(),
        contention: live.contention(),
        ran_on,
    };
    Ok((slice, latencies))
}
