//! Paced cells: every table runs at the same rate.

use std::time::Duration;

use super::Pacing;
use super::worker::Pace;
use crate::clock;
use crate::contender::{CellContext, Contender, PhaseError};
use crate::error::BenchError;
use crate::latencies::Latencies;
use crate::record::{Fields, Record, Role, Slice};
use crate::runner::{RowAccumulator, Runner, in_turn, lane_name};
use crate::sections::closed_loop::{MixSlices, Slices};
use crate::stamp::Numbers;
use crate::suite::Task;
use crate::verify;
use crate::work::{Part, Start};

/// Measures latencies from the intended start. The row's rate is that of operations done in time.
pub(super) fn run(
    runner: &mut Runner<'_>,
    task: &Task,
    lanes: &[Contender],
    pacing: Pacing,
) -> Result<(), BenchError> {
    let rate = match pacing {
        Pacing::Rate(rate) => rate,
        Pacing::Load(load) => load * capacity(runner, task, lanes)?,
    };
    let mut courses: Vec<RowAccumulator> =
        lanes.iter().map(|_| RowAccumulator::default()).collect();
    let mut records = Vec::new();
    let (seed, progress) = (runner.seed, runner.progress.clone());
    let scene = runner.scene(&task.workload)?;
    let mut cell = task.workload.cell(scene.cpus());
    cell.rate_per_s = Some(rate);
    for (repetition, at) in in_turn(task, lanes, seed ^ 0x9ace) {
        let course = &mut courses[at];
        if !course.out {
            match repetition_of(&scene, &lanes[at], repetition, seed, rate) {
                Ok((slice, latencies)) => records.push(book(course, slice, latencies)),
                Err(trouble) => course.fail(&lanes[at], trouble)?,
            }
        }
        progress.inc(u64::from(at == 0));
    }
    for record in &records {
        runner.sink.write(record)?;
    }
    runner.histograms(lanes, &courses, &cell, true)?;
    runner.rows(task, lanes, &courses, &cell)
}

/// Measures the throughput of the reference in closed loop.
fn capacity(runner: &mut Runner<'_>, task: &Task, lanes: &[Contender]) -> Result<f64, BenchError> {
    let seed = runner.seed;
    let scene = runner.scene(&task.workload)?;
    let reference = lanes.iter().find(|lane| lane.role == Role::Reference);
    let lane = reference.ok_or_else(|| BenchError::Failed("a cell without reference".into()))?;
    let measure = || {
        let mut live = scene.prepare(lane, 0, seed)?;
        for _ in 0..scene.workload.slices.max(5) {
            MixSlices.run(&scene, &mut live, &mut ())?;
        }
        Ok(live.rate())
    };
    measure().map_err(|trouble: PhaseError| {
        BenchError::Failed(format!("the reference failed: {trouble:?}"))
    })
}

fn book(course: &mut RowAccumulator, slice: Slice, latencies: Latencies) -> Record {
    course.add(&slice);
    Latencies::merge(&mut course.latencies, latencies);
    Record::Slice(Box::new(slice))
}

fn repetition_of(
    scene: &CellContext<'_>,
    lane: &Contender,
    repetition: usize,
    seed: u64,
    rate: f64,
) -> Result<(Slice, Latencies), PhaseError> {
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
            subject.run(plan, part, &mut job)
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
        operations: due,
        elapsed_ns: (workload.duration_ms * 1e6) as u64,
        counts: stream.counts,
        prefill_ns: live.prefill_ns,
        checks,
        hardware: Default::default(),
        contention: live.contention(),
        ran_on,
        fields: Fields::default(),
    };
    Ok((slice, latencies))
}
