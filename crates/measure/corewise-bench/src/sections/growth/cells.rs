//! Growth cells: every table grows from empty, while no other is measured.

use std::sync::Arc;
use std::time::Duration;

use crate::cell_run::Done;
use crate::clock;
use crate::contender::{CellContext, PhaseError};
use crate::dyn_table::DynTable;
use crate::in_turn::Turn;
use crate::latencies::Latencies;
use crate::payload::{Measurements, SliceFields};
use crate::record::{OutcomeCounts, Slice, Verdicts};
use crate::work::grow::{Grow, GrowMode, Watch};
use crate::work::{DriveReport, Start, drive};

/// A growth that takes longer than this plus the time for each key is given up, and the row is
/// void.
const LIMIT: Duration = Duration::from_secs(10);
const LIMIT_PER_KEY: Duration = Duration::from_micros(10);

/// A repetition grows tables, without timing each operation, until they have taken this number of
/// insertions, but no more than [`MOST_GROWTHS`].
const LEAST_INSERTS: u32 = 200_000;
const MOST_GROWTHS: u32 = 100;

/// Runs a growth on all threads, until all keys are inserted or for a time.
pub(super) fn grow(
    context: &CellContext<'_>,
    table: &Arc<dyn DynTable>,
    mode: GrowMode,
    run_ticks: Option<u64>,
    seed: u64,
) -> Result<(Vec<DriveReport>, Vec<Grow>), PhaseError> {
    let limit = LIMIT + LIMIT_PER_KEY * context.plan.range;
    let job = Grow {
        start: Start::of(context.workload.threads),
        mode,
        progress: Arc::default(),
        run_ticks,
        limit_ticks: clock::ticks(limit.as_nanos() as u64),
        seed,
        watch: Watch::default(),
    };
    context.run("growth", table, limit, move |_| job.clone())
}

/// Looks up every key; nothing if the table stores nothing.
pub(super) fn check(
    turn: &Turn<'_>,
    table: &Arc<dyn DynTable>,
    reports: &[DriveReport],
) -> Result<Verdicts, PhaseError> {
    if turn.contender.entry.null {
        return Ok(Verdicts::default());
    }
    let booked = drive::total(reports).tally;
    let mut checks = turn.context.conservation(table, &booked)?;
    let problems = &mut checks.problems;
    let counts = booked.counts;
    if counts.get_misses > 0 {
        let (misses, gets) = (counts.get_misses, counts.gets());
        problems.push(format!(
            "{misses} of {gets} lookups missed keys that had been inserted"
        ));
    }
    if counts.insert_failed > 0 {
        let failed = counts.insert_failed;
        problems.push(format!("{failed} inserts took a new key for present"));
    }
    problems.extend(reports.iter().find_map(|report| report.problem.clone()));
    Ok(checks)
}

/// Grows tables without timing each operation, for the rate, and then one with. The rate is that of
/// all inserts that are not timed, over the time until the last thread was done.
pub(super) fn repetition_of(turn: &Turn<'_>) -> Result<Done, PhaseError> {
    let (context, contender) = (turn.context, turn.contender);
    let (mut counts, mut took_ns, mut problems) = (OutcomeCounts::default(), 0.0, Vec::new());
    for _ in 0..(LEAST_INSERTS / context.plan.range.max(1)).clamp(1, MOST_GROWTHS) {
        let table = context.make(contender);
        let (reports, _) = grow(context, &table, GrowMode::Untimed, None, turn.seed)?;
        problems.extend(check(turn, &table, &reports)?.problems);
        let total = drive::total(&reports);
        counts.add(&total.tally.counts);
        took_ns += clock::ns(total.ticks).max(1.0);
        if !problems.is_empty() {
            break;
        }
    }
    let table = context.make(contender);
    let (reports, jobs) = grow(context, &table, GrowMode::Timed, None, turn.seed)?;
    let mut checks = check(turn, &table, &reports)?;
    checks.problems.extend(problems);
    if !contender.entry.null {
        context.audit(&table, turn.seed, &mut checks)?;
    }
    let ran_on = context.whereabouts(&mut checks);
    let mut latencies = Latencies::default();
    for job in &jobs {
        latencies.add(&job.watch.latencies);
    }
    let slice = Slice {
        rate: counts.total() as f64 / took_ns * 1e9,
        operations: counts.total(),
        elapsed_ns: took_ns as u64,
        counts,
        checks,
        contention: table.contention(),
        ran_on,
        fields: SliceFields {
            measurements: Measurements::from([("longest".into(), latencies.max_ns())]),
            ..SliceFields::default()
        },
        ..contender.slice(&context.workload.id(), turn.repetition)
    };
    Ok(Done {
        slice,
        latencies: Some(latencies),
    })
}
