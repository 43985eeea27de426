//! Cells of the section `tails`: slow operations while a table grows from empty, by one writer
//! beside one reader, against those of an empty loop.
//!
//! ```text
//! repetition   for each table, order drawn anew
//!              [ table grows ][ empty loop, as long ]   in even repetitions
//!              [ empty loop, as long ][ table grows ]   in odd ones
//!              look up every key, audit, drop
//! ```
//!
//! The reader looks up random keys of those that the writer reports as inserted; one miss voids the
//! row. Operations of more than 3, 50 and 100 µs are counted. Preemption by a hypervisor or the
//! system makes any loop slow now and then, at a rate per time and not per operation. So the empty
//! loop runs for the same time, with the same keys, clock reads and bookkeeping. Its counts, scaled
//! to the table's time, are the expected counts. The table is *within* if its count is at most the
//! expected one plus three standard deviations of a Poisson count, where the deviation is taken as
//! at least 1.
//!
//! # Bias
//!
//! 1. The bound applies to the total count. A machine that is disturbed for seconds at a time
//!    affects the table and not the loop, or the other way round: check the counts by repetition.
//! 2. The empty loop touches little memory. A table that takes new memory waits for the system to
//!    supply and clear pages; that is attributed to the table, which causes it.
//! 3. `within` with many expected means little: on a machine with a thousand slow empty operations
//!    a table may add ninety.
//! 4. A growth doubles the size few times. A stall of 50 ms at each doubling is a count of twenty:
//!    check the longest, too.

use std::sync::Arc;

use corewise_measure::draw::mix;
use itertools::Itertools;

use super::cells::{check, grow};
use super::{SlowCount, Tail};
use crate::adapters::null;
use crate::cell_run::{CellRun, Done};
use crate::clock;
use crate::contender::{CellContext, PhaseError};
use crate::dyn_table::DynTable;
use crate::error::BenchError;
use crate::figure::{Figure, Unit};
use crate::in_turn::{self, Turn};
use crate::latencies::Latencies;
use crate::plot::svg::{grouped, time};
use crate::record::Slice;
use crate::section::LineFields;
use crate::work::grow::{GrowMode, SLOW_US, Watch};
use crate::work::{DriveReport, drive};

/// The threads in order, each with the index of its outcome.
const SIDES: [(&str, usize); 2] = [("writer", 2), ("reader", 0)];

/// Counts slow operations. The row's rate is that of the writer.
pub(super) fn run(run: &mut CellRun<'_, '_>) -> Result<(), BenchError> {
    let contenders = run.contenders;
    let mut books: Vec<Book> = contenders.iter().map(|_| Book::default()).collect();
    let mut measured = in_turn::measure(run, &run.task.workload, |turn| {
        books[turn.at].repetition_of(turn)
    })?;
    let books = contenders.iter().zip(&books);
    for (accumulator, (contender, book)) in measured.accumulators.iter_mut().zip(books) {
        // The null table is the empty loop once more.
        if book.last_ticks.is_some() && !contender.entry.null {
            let sides = SIDES.iter().zip(&book.sides);
            let tails = sides.map(|((name, outcome), side)| tail(name, *outcome, side));
            accumulator.fields.tails = tails.collect();
        }
    }
    run.write(measured)
}

/// Accumulated results of a contender.
#[derive(Default)]
struct Book {
    /// Counts of the table and of the empty loop, by side.
    sides: [Side; 2],
    /// Duration of the last growth.
    last_ticks: Option<u64>,
}

/// Results of a thread over all repetitions, with the table and in the empty loop.
#[derive(Default)]
struct Side {
    table: Kept,
    empty: Kept,
}

/// Sums and counts by repetition.
#[derive(Default)]
struct Kept {
    operations: u64,
    elapsed_ns: f64,
    /// By the index in [`SLOW_US`].
    slow: [Vec<u64>; SLOW_US.len()],
    latencies: Latencies,
}

/// The report of a thread and the times of its operations.
type Grown = (DriveReport, Watch);

impl Kept {
    fn add(&mut self, (report, watch): &Grown) {
        self.operations += report.operations;
        self.elapsed_ns += clock::ns(report.ticks);
        for (kept, count) in self.slow.iter_mut().zip(watch.slow) {
            kept.push(count);
        }
        self.latencies.add(&watch.latencies);
    }
}

impl Book {
    fn repetition_of(&mut self, turn: &Turn<'_>) -> Result<Done, PhaseError> {
        let (context, contender) = (turn.context, turn.contender);
        let seed = mix(turn.seed ^ (turn.repetition as u64) << 32);
        let empty = |ticks| {
            let null = null::of_kind(&context.workload.kind);
            run_loops(context, &null, seed, Some(ticks))
        };
        let before = self.last_ticks.filter(|_| turn.repetition % 2 == 1);
        let before = before.map(empty).transpose()?;
        let table = context.make(contender);
        let grown = run_loops(context, &table, seed, None)?;
        let [writer, reader] = grown.each_ref().map(|(report, _)| report.clone());
        let empty = before.map_or_else(|| empty(writer.ticks), Ok)?;
        let reports = [writer.clone(), reader];
        let mut checks = check(turn, &table, &reports)?;
        if !contender.entry.null {
            context.audit(&table, seed, &mut checks)?;
        }
        let ran_on = context.whereabouts(&mut checks);
        let mut latencies = Latencies::default();
        for (at, side) in self.sides.iter_mut().enumerate() {
            side.table.add(&grown[at]);
            side.empty.add(&empty[at]);
            latencies.add(&grown[at].1.latencies);
        }
        self.last_ticks = Some(writer.ticks);
        let slice = Slice {
            rate: writer.rate(),
            operations: writer.operations,
            elapsed_ns: clock::ns(writer.ticks) as u64,
            counts: drive::total(&reports).tally.counts,
            checks,
            ran_on,
            ..contender.slice(&context.workload.id(), turn.repetition)
        };
        Ok(Done {
            slice,
            latencies: Some(latencies),
        })
    }
}

/// Runs the writer and the reader, until all keys are inserted or for a time.
fn run_loops(
    context: &CellContext<'_>,
    table: &Arc<dyn DynTable>,
    seed: u64,
    run_ticks: Option<u64>,
) -> Result<[Grown; 2], PhaseError> {
    let (reports, jobs) = grow(context, table, GrowMode::BesideReader, run_ticks, seed)?;
    let watches = jobs.into_iter().map(|job| job.watch);
    let grown = reports.into_iter().zip(watches).collect_array();
    grown.ok_or_else(|| PhaseError::Failed("growth takes two threads".into()))
}

fn tail(name: &str, outcome: usize, Side { table, empty }: &Side) -> Tail {
    let scale = table.elapsed_ns / empty.elapsed_ns.max(1.0);
    let slow = SLOW_US.iter().zip(table.slow.iter().zip(&empty.slow));
    Tail {
        side: name.into(),
        operations: table.operations,
        elapsed_ns: table.elapsed_ns as u64,
        p999_ns: table.latencies.percentile_ns(outcome, 99.9),
        max_ns: table.latencies.max_ns(),
        slow: slow
            .map(|(&over_us, (counts, empty))| slow_count(over_us, counts, empty, scale))
            .collect(),
        empty_operations: empty.operations,
        empty_elapsed_ns: empty.elapsed_ns as u64,
        empty_max_ns: empty.latencies.max_ns(),
    }
}

fn slow_count(over_us: u64, counts: &[u64], empty: &[u64], scale: f64) -> SlowCount {
    let (count, empty_count) = (counts.iter().sum(), empty.iter().sum::<u64>());
    let expected = empty_count as f64 * scale;
    let allowed = expected + 3.0 * expected.sqrt().max(1.0);
    SlowCount {
        over_us,
        count,
        counts: counts.to_vec(),
        empty_count,
        empty_counts: empty.to_vec(),
        expected,
        allowed,
        within: count as f64 <= allowed,
    }
}

/// Describes the slow operations of a thread.
pub(super) fn fields(of: &Tail) -> LineFields {
    let counts = of.slow.iter().map(|slow| {
        let word = if slow.within { "within" } else { "above" };
        let (count, expected, allowed) = (slow.count, slow.expected, slow.allowed);
        (
            format!("over {} µs", slow.over_us),
            format!("{count} ({word}: empty loop {expected:.1}, at most {allowed:.1})"),
        )
    });
    let named = |name: &str, text: String| (name.to_owned(), text);
    let start = [
        named("thread", of.side.clone()),
        named("operations", grouped(of.operations)),
        named("99.9 %", time(of.p999_ns)),
        named("longest", time(of.max_ns)),
        named("longest of the empty loop", time(of.empty_max_ns)),
    ];
    start.into_iter().chain(counts).collect()
}

/// Slow operations per 10,000, and those of the empty loop in the same time, per 10,000 of the
/// table's.
pub(super) fn shares(tail: &Tail) -> Vec<Figure> {
    let share = |of: &str, slow: &SlowCount, count: f64| {
        let name = format!("{}{of} > {} µs", tail.side, slow.over_us);
        Figure::new(
            &name,
            Unit::Plain,
            count * 1e4 / tail.operations.max(1) as f64,
        )
    };
    let both = tail.slow.iter().flat_map(|slow| {
        [
            share("", slow, slow.count as f64),
            share(", empty loop", slow, slow.expected),
        ]
    });
    both.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_deviations_are_allowed_and_three_at_least() {
        let cases = [
            (3, 0, 1.0, true),
            (4, 0, 1.0, false),
            (190, 100, 1.6, true),
            (198, 100, 1.6, false),
            (130, 100, 1.0, true),
            (131, 100, 1.0, false),
        ];
        for (count, empty, scale, within) in cases {
            let slow = slow_count(50, &[count - 1, 1], &[empty], scale);
            assert_eq!((slow.count, slow.empty_count), (count, empty));
            assert_eq!(slow.within, within, "{count} with {empty} times {scale}");
        }
    }
}
