//! Growth cells: every table grows from empty, while no other is measured.

use std::sync::Arc;
use std::time::Duration;

use super::Timeline;
use crate::clock;
use crate::contender::{CellContext, PhaseError};
use crate::dyn_table::DynTable;
use crate::latencies::Latencies;
use crate::record::{Counts, Record, Slice, Verdicts};
use crate::sections::in_turn::{Done, Turn};
use crate::verify;
use crate::work::grow::{Grow, GrowMode, GrowReport};
use crate::work::{OpCounts, Start};

/// Width of a bin of the time line.
const BIN_MS: f64 = 10.0;
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
) -> Result<Vec<GrowReport>, PhaseError> {
    let limit = LIMIT + LIMIT_PER_KEY * context.plan.range;
    let has_timeline = mode == GrowMode::Timed;
    let job = Grow {
        start: Start::of(context.workload.threads),
        mode,
        progress: Arc::default(),
        bin_ticks: if has_timeline {
            clock::ticks((BIN_MS * 1e6) as u64)
        } else {
            0
        },
        run_ticks,
        limit_ticks: clock::ticks(limit.as_nanos() as u64),
        seed,
    };
    context.all("growth", table, limit, move |table, plan, part| {
        table.run(plan, part, &mut job.clone())
    })
}

/// Looks up every key; nothing if the table stores nothing.
pub(super) fn check(
    turn: &Turn<'_>,
    table: &Arc<dyn DynTable>,
    reports: &[GrowReport],
) -> Result<Verdicts, PhaseError> {
    if turn.contender.entry.null {
        return Ok(Verdicts::default());
    }
    let booked = verify::sum(reports.iter().map(|report| &report.tally));
    let mut checks = turn.context.conservation(table, &booked)?;
    let problems = &mut checks.problems;
    let OpCounts { counts, sums } = booked;
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
    if reports.iter().any(|report| !report.finished) {
        problems.push(format!("not done in time, at {} entries", sums.entries));
    }
    Ok(checks)
}

/// Returns the time until the last thread was done.
fn elapsed_ns(reports: &[GrowReport]) -> f64 {
    let ticks = reports.iter().map(|report| report.ticks).max();
    clock::ns(ticks.unwrap_or(1)).max(1.0)
}

/// Grows tables without timing each operation, for the rate, and then one with. The rate is that of
/// all inserts that are not timed, over the time until the last thread was done.
pub(super) fn repetition_of(turn: &Turn<'_>) -> Result<Done, PhaseError> {
    let Turn {
        context, contender, ..
    } = turn;
    let (mut counts, mut took_ns, mut problems) = (Counts::default(), 0.0, Vec::new());
    for _ in 0..(LEAST_INSERTS / context.plan.range.max(1)).clamp(1, MOST_GROWTHS) {
        let table = context.make(contender);
        let reports = grow(context, &table, GrowMode::Untimed, None, turn.seed)?;
        problems.extend(check(turn, &table, &reports)?.problems);
        reports
            .iter()
            .for_each(|report| counts.add(&report.tally.counts));
        took_ns += elapsed_ns(&reports);
        if !problems.is_empty() {
            break;
        }
    }
    let table = context.make(contender);
    let reports = grow(context, &table, GrowMode::Timed, None, turn.seed)?;
    let mut checks = check(turn, &table, &reports)?;
    checks.problems.extend(problems);
    if !contender.entry.null {
        context.audit(&table, turn.seed, &mut checks)?;
    }
    let ran_on = context.whereabouts(&mut checks);
    let slice = Slice {
        rate: counts.total() as f64 / took_ns * 1e9,
        operations: counts.total(),
        elapsed_ns: took_ns as u64,
        counts,
        checks,
        contention: table.contention(),
        ran_on,
        ..contender.slice(&context.workload.id(), turn.repetition)
    };
    let mut latencies = Latencies::new();
    reports
        .iter()
        .for_each(|report| latencies.add(&report.latencies));
    Ok(Done {
        detail: Some(Record::Timeline(Box::new(timeline(&slice, &reports)))),
        slice,
        latencies: Some(latencies),
    })
}

fn timeline(slice: &Slice, reports: &[GrowReport]) -> Timeline {
    let bins = reports.iter().map(|report| report.bins.len()).max();
    let bins = bins.unwrap_or(0);
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
