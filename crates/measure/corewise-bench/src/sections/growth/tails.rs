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
//! to the table's time, are the expected counts: a table that adds no slow operations is within
//! about three times their square root.
//!
//! # Bias
//!
//! 1. Counts are totals. A machine that is disturbed for seconds at a time affects the table and
//!    not the loop, or the other way round.
//! 2. The empty loop touches little memory. A table that takes new memory waits for the system to
//!    supply and clear pages; that is attributed to the table, which causes it.
//! 3. A growth doubles the size few times. A stall of 50 ms at each doubling is a count of twenty:
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
use crate::record::Slice;
use crate::work::grow::{GrowMode, SLOW_US, Watch};
use crate::work::{DriveReport, drive};

/// The threads in order.
const SIDES: [&str; 2] = ["writer", "reader"];

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
            let tails = sides.map(|(name, side)| tail(name, side));
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

/// Sums over all repetitions.
#[derive(Default)]
struct Kept {
    operations: u64,
    elapsed_ns: f64,
    /// By the index in [`SLOW_US`].
    slow: [u64; SLOW_US.len()],
    latencies: Latencies,
}

/// The report of a thread and the times of its operations.
type Grown = (DriveReport, Watch);

impl Kept {
    fn add(&mut self, (report, watch): &Grown) {
        self.operations += report.operations;
        self.elapsed_ns += clock::ns(report.ticks);
        for (kept, count) in self.slow.iter_mut().zip(watch.slow) {
            *kept += count;
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

fn tail(name: &str, Side { table, empty }: &Side) -> Tail {
    let scale = table.elapsed_ns / empty.elapsed_ns.max(1.0);
    let slow = SLOW_US.iter().zip(table.slow.iter().zip(&empty.slow));
    let slow = slow.map(|(&over_us, (&count, &empty))| SlowCount {
        over_us,
        count,
        expected: empty as f64 * scale,
    });
    Tail {
        side: name.into(),
        operations: table.operations,
        max_ns: table.latencies.max_ns(),
        slow: slow.collect(),
        empty_max_ns: empty.latencies.max_ns(),
    }
}

/// Slow operations per 10,000, and those of the empty loop in the same time, per 10,000 of the
/// table's; and the longest of both.
pub(super) fn figures(tail: &Tail) -> Vec<Figure> {
    let each = |count: f64| count * 1e4 / tail.operations.max(1) as f64;
    let counts = tail.slow.iter().flat_map(|slow| {
        let limit = slow.over_us;
        [
            (format!(" > {limit} µs"), slow.count as f64),
            (format!(", empty loop > {limit} µs"), slow.expected),
        ]
    });
    let plain = counts.map(|(name, count)| (name, Unit::Plain, each(count)));
    let longest = [
        (", longest", tail.max_ns),
        (", empty loop, longest", tail.empty_max_ns),
    ];
    let longest = longest.map(|(name, ns)| (name.to_owned(), Unit::Nanoseconds, ns));
    let figure = |(name, unit, value): (String, _, _)| {
        Figure::new(&format!("{}{name}", tail.side), unit, value)
    };
    plain.chain(longest).map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_operations_of_the_empty_loop_are_scaled_to_the_tables_time() {
        let (mut table, mut empty) = (Kept::default(), Kept::default());
        (table.operations, table.elapsed_ns, table.slow[1]) = (10_000, 3e6, 4);
        (empty.elapsed_ns, empty.slow[1]) = (1e6, 2);
        let tail = tail("writer", &Side { table, empty });
        assert_eq!((tail.slow[1].count, tail.slow[1].expected), (4, 6.0));
        let figures = figures(&tail);
        let of = |name: &str| figures.iter().find(|of| of.name == name).expect(name).value;
        assert_eq!(of("writer > 50 µs"), 4.0);
        assert_eq!(of("writer, empty loop > 50 µs"), 6.0);
        assert_eq!(of("writer, longest"), tail.max_ns);
    }
}
