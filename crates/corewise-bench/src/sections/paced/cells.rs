//! Paced cells: every table runs at the same rate.

use std::time::Duration;

use super::Pacing;
use crate::clock;
use crate::contender::{CellContext, Contender, PhaseError};
use crate::error::BenchError;
use crate::latencies::Latencies;
use crate::record::{Record, Role, Slice};
use crate::runner::{RowAccumulator, Runner, in_turn};
use crate::sections::closed_loop::{MixSlices, Slices};
use crate::stamp::Numbers;
use crate::suite::Task;
use crate::verify;
use crate::work::pace::Pace;
use crate::work::{Part, Start};

/// Measures latencies from the intended start. The row's rate is that of operations done in time.
pub(super) fn run(
    runner: &mut Runner<'_>,
    task: &Task,
    contenders: &[Contender],
    pacing: Pacing,
) -> Result<(), BenchError> {
    let rate = match pacing {
        Pacing::Rate(rate) => rate,
        Pacing::Load(load) => load * capacity(runner, task, contenders)?,
    };
    let mut accumulators: Vec<RowAccumulator> = contenders
        .iter()
        .map(|_| RowAccumulator::default())
        .collect();
    let mut records = Vec::new();
    let (seed, progress) = (runner.seed, runner.progress.clone());
    let cell_context = runner.cell_context(&task.workload)?;
    let mut cell = task.workload.cell(cell_context.cpus());
    cell.rate_per_s = Some(rate);
    for (repetition, at) in in_turn(task, contenders, seed ^ 0x9ace) {
        let accumulator = &mut accumulators[at];
        if !accumulator.out {
            match repetition_of(&cell_context, &contenders[at], repetition, seed, rate) {
                Ok((slice, latencies)) => records.push(book(accumulator, slice, latencies)),
                Err(error) => accumulator.fail(&contenders[at], error)?,
            }
        }
        progress.inc(u64::from(at == 0));
    }
    for record in &records {
        runner.sink.write(record)?;
    }
    runner.histograms(contenders, &accumulators, &cell, true)?;
    runner.rows(task, contenders, &accumulators, &cell)
}

/// Measures the throughput of the reference in closed loop.
fn capacity(
    runner: &mut Runner<'_>,
    task: &Task,
    contenders: &[Contender],
) -> Result<f64, BenchError> {
    let seed = runner.seed;
    let cell_context = runner.cell_context(&task.workload)?;
    let reference = contenders
        .iter()
        .find(|contender| contender.role == Role::Reference);
    let contender =
        reference.ok_or_else(|| BenchError::Failed("a cell without reference".into()))?;
    let measure = || {
        let mut live = cell_context.prepare(contender, 0, seed)?;
        for _ in 0..cell_context.workload.slices.max(5) {
            MixSlices.run(&cell_context, &mut live, &mut ())?;
        }
        Ok(live.rate())
    };
    measure()
        .map_err(|error: PhaseError| BenchError::Failed(format!("the reference failed: {error:?}")))
}

fn book(accumulator: &mut RowAccumulator, slice: Slice, latencies: Latencies) -> Record {
    accumulator.add(&slice);
    Latencies::merge(&mut accumulator.latencies, latencies);
    Record::Slice(Box::new(slice))
}

fn repetition_of(
    cell_context: &CellContext<'_>,
    contender: &Contender,
    repetition: usize,
    seed: u64,
    rate: f64,
) -> Result<(Slice, Latencies), PhaseError> {
    let workload = cell_context.workload;
    let mut live = cell_context.prepare(contender, repetition, seed)?;
    let ticks = |ms: f64| clock::ticks((ms * 1e6) as u64);
    let (warm_ticks, run_ticks) = (ticks(workload.warm_ms), ticks(workload.duration_ms));
    let gap_ticks = clock::ticks(1_000_000_000) as f64 * workload.threads as f64 / rate;
    let (streams, start) = (cell_context.streams.clone(), Start::of(workload.threads));
    let place = seed ^ (repetition as u64) << 32;
    let time = Duration::from_millis((3.0 * (workload.duration_ms + workload.warm_ms)) as u64);
    let reports = cell_context.all(
        "a paced slice",
        &live.dyn_table,
        time,
        move |dyn_table, plan, part: Part| {
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
            dyn_table.run(plan, part, &mut job)
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
    let mut checks = cell_context.finish(contender, &live, seed)?;
    let ran_on = cell_context.whereabouts(&mut checks);
    let slice = Slice {
        rate: in_time as f64 / workload.duration_ms * 1e3,
        operations: due,
        elapsed_ns: (workload.duration_ms * 1e6) as u64,
        counts: stream.counts,
        prefill_ns: live.prefill_ns,
        checks,
        contention: live.contention(),
        ran_on,
        ..contender.slice(&workload.id(), repetition)
    };
    Ok((slice, latencies))
}
