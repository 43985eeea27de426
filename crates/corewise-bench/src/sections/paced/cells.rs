//! Paced cells: every table runs at the same rate.

use std::time::Duration;

use crate::clock;
use crate::contender::PhaseError;
use crate::error::BenchError;
use crate::latencies::Latencies;
use crate::record::{Role, Slice};
use crate::runner::CellRun;
use crate::sections::closed_loop::{self, MixSlices, Slices};
use crate::sections::in_turn::{self, Done, Turn};
use crate::stamp::Numbers;
use crate::verify;
use crate::work::pace::Pace;
use crate::work::{Part, Start};
use crate::workload::Variant;

/// Measures latencies from the intended start. The row's rate is that of operations done in time.
pub(super) fn run(run: &mut CellRun<'_, '_>) -> Result<(), BenchError> {
    let rate = match run.task.workload.variant {
        Variant::Rate(rate) => rate,
        Variant::Load(load) => load * capacity(run)?,
        _ => return Err(BenchError::Failed("a paced cell without a rate".into())),
    };
    let repeat = |turn: &Turn<'_>| repetition_of(turn, rate);
    let mut measured = in_turn::measure(run, &run.task.workload, repeat)?;
    measured.cell.rate_per_s = Some(rate);
    measured.together = true;
    closed_loop::write(run, measured)
}

/// Measures the throughput of the reference in closed loop.
fn capacity(run: &mut CellRun<'_, '_>) -> Result<f64, BenchError> {
    let (task, contenders, seed) = (run.task, run.contenders, run.runner.seed);
    let cell_context = run.runner.cell_context(&task.workload)?;
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

fn repetition_of(turn: &Turn<'_>, rate: f64) -> Result<Done, PhaseError> {
    let &Turn {
        context,
        contender,
        repetition,
        seed,
        ..
    } = turn;
    let workload = context.workload;
    let mut live = context.prepare(contender, repetition, seed)?;
    let ticks = |ms: f64| clock::ticks((ms * 1e6) as u64);
    let (warm_ticks, run_ticks) = (ticks(workload.warm_ms), ticks(workload.duration_ms));
    let gap_ticks = clock::ticks(1_000_000_000) as f64 * workload.threads as f64 / rate;
    let (streams, start) = (context.streams.clone(), Start::of(workload.threads));
    let place = seed ^ (repetition as u64) << 32;
    let time = Duration::from_millis((3.0 * (workload.duration_ms + workload.warm_ms)) as u64);
    let reports = context.all(
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
    let mut checks = context.finish(contender, &mut live, seed)?;
    let ran_on = context.whereabouts(&mut checks);
    let slice = Slice {
        rate: in_time as f64 / workload.duration_ms * 1e3,
        operations: due,
        elapsed_ns: (workload.duration_ms * 1e6) as u64,
        counts: stream.counts,
        prefill_ns: live.prefill_ns,
        checks,
        contention: live.contention,
        ran_on,
        ..contender.slice(&workload.id(), repetition)
    };
    Ok(Done {
        slice,
        latencies: Some(latencies),
        detail: None,
    })
}
