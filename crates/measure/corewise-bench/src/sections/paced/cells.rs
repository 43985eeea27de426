//! Paced cells: every table runs at the same rate.

use crate::cell_run::{CellRun, Done};
use crate::clock;
use crate::closed_loop;
use crate::contender::PhaseError;
use crate::error::BenchError;
use crate::in_turn::{self, Turn};
use crate::latencies::Latencies;
use crate::record::{Role, Slice};
use crate::work::pace::Pace;
use crate::workload::{Variant, Workload};

/// Short slices in which the throughput of the reference is measured.
const CAPACITY_SLICES: usize = 5;

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
    run.write(measured)
}

/// Measures the throughput of the reference in closed loop.
fn capacity(run: &mut CellRun<'_, '_>) -> Result<f64, BenchError> {
    let (task, contenders, seed) = (run.task, run.contenders, run.runner.seed);
    let workload = Workload {
        slices: CAPACITY_SLICES,
        ..task.workload.clone()
    };
    let cell_context = run.runner.cell_context(&workload)?;
    let reference = contenders
        .iter()
        .find(|contender| contender.role == Role::Reference);
    let contender =
        reference.ok_or_else(|| BenchError::Failed("a cell without reference".into()))?;
    let measure = || {
        let mut live = cell_context.prepare(contender, 0, seed)?;
        for _ in 0..CAPACITY_SLICES {
            closed_loop::mix(&cell_context, &mut live)?;
        }
        Ok(live.rate())
    };
    measure()
        .map_err(|error: PhaseError| BenchError::Failed(format!("the reference failed: {error:?}")))
}

fn repetition_of(turn: &Turn<'_>, rate: f64) -> Result<Done, PhaseError> {
    let (context, contender, seed) = (turn.context, turn.contender, turn.seed);
    let (workload, repetition) = (context.workload, turn.repetition);
    let mut live = context.prepare(contender, repetition, seed)?;
    let gap_ticks = clock::ticks(1_000_000_000) as f64 * workload.threads as f64 / rate;
    let (reports, jobs) = context.drive(&live, move |drive| Pace {
        drive,
        gap_ticks,
        seed: seed ^ (repetition as u64) << 32,
        in_time: 0,
        latencies: Latencies::default(),
    })?;
    live.add_slice(&reports);
    let mut latencies = Latencies::default();
    jobs.iter().for_each(|job| latencies.add(&job.latencies));
    let in_time: u64 = jobs.iter().map(|job| job.in_time).sum();
    let checks = context.finish(contender, &mut live, seed)?;
    let slice = Slice {
        rate: in_time as f64 / workload.duration_ms * 1e3,
        rates: Vec::new(),
        ..context.record(contender, repetition, &live, checks)
    };
    Ok(Done {
        slice,
        latencies: Some(latencies),
        detail: None,
    })
}
