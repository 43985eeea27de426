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

use super::nothing::nothing;
use super::{BothTails, SlowCount, Tail};
use crate::clock;
use crate::contender::{CellContext, Contender, PhaseError};
use crate::dyn_table::DynTable;
use crate::error::BenchError;
use crate::latencies::Latencies;
use crate::record::{Record, Slice, Verdicts};
use crate::runner::{RowAccumulator, Runner, in_turn};
use crate::sections::growth::cells::limit;
use crate::suite::Task;
use crate::verify;
use crate::work::Start;
use crate::work::tails::{SLOW_US, Tails, TailsReport};

/// The threads in order, each with the index of its outcome.
const SIDES: [(&str, usize); 2] = [("writer", 2), ("reader", 0)];

/// Reports of both threads: the writer first.
type Sides = [TailsReport; 2];

/// Counts slow operations. The row's rate is that of the writer.
pub(super) fn run(
    runner: &mut Runner<'_>,
    task: &Task,
    contenders: &[Contender],
) -> Result<(), BenchError> {
    let mut books: Vec<Book> = contenders.iter().map(|_| Book::default()).collect();
    let (seed, progress) = (runner.seed, runner.progress.clone());
    let cell_context = runner.cell_context(&task.workload)?;
    let cell = task.workload.cell(cell_context.cpus());
    let mut records = Vec::new();
    for (repetition, at) in in_turn(task, contenders, seed ^ 0x7a115) {
        let (book, contender) = (&mut books[at], &contenders[at]);
        if !book.accumulator.out {
            let place = mix(seed ^ (repetition as u64) << 32);
            match repetition_of(
                &cell_context,
                contender,
                (repetition, place),
                book.last_ticks,
            ) {
                Ok(done) => records.push(book.book(contender, &cell.id, repetition, done)),
                Err(error) => book.accumulator.fail(contender, error)?,
            }
        }
        progress.inc(u64::from(at == 0));
    }
    for record in &records {
        runner.sink.write(record)?;
    }
    for (contender, book) in contenders.iter().zip(&mut books) {
        let tails = book.tails(contender.entry.null);
        if !tails.is_empty() {
            book.accumulator.fields.set(&BothTails(tails));
        }
    }
    let accumulators: Vec<RowAccumulator> =
        books.into_iter().map(|book| book.accumulator).collect();
    runner.histograms(contenders, &accumulators, &cell, false)?;
    runner.rows(task, contenders, &accumulators, &cell)
}

/// Accumulated results of a contender.
#[derive(Default)]
struct Book {
    accumulator: RowAccumulator,
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
    latencies: Option<Latencies>,
}

impl Kept {
    fn add(&mut self, report: &TailsReport) {
        self.operations += report.tally.counts.total();
        self.elapsed_ns += clock::ns(report.ticks);
        for (kept, count) in self.slow.iter_mut().zip(report.slow) {
            kept.push(count);
        }
        Latencies::merge(&mut self.latencies, report.latencies.clone());
    }

    fn longest_ns(&self) -> f64 {
        self.latencies.as_ref().map_or(0.0, Latencies::max_ns)
    }
}

/// One repetition.
struct Done {
    table: Sides,
    empty: Sides,
    checks: Verdicts,
    ran_on: Vec<usize>,
}

impl Book {
    fn book(&mut self, contender: &Contender, cell: &str, repetition: usize, done: Done) -> Record {
        let slice = slice(contender, cell, repetition, &done);
        let accumulator = &mut self.accumulator;
        accumulator.add(&slice);
        accumulator.out = !accumulator.problems.is_empty(); // a second try would take as long
        for (at, side) in self.sides.iter_mut().enumerate() {
            side.table.add(&done.table[at]);
            side.empty.add(&done.empty[at]);
            Latencies::merge(&mut accumulator.latencies, done.table[at].latencies.clone());
        }
        self.last_ticks = Some(done.table[0].ticks);
        Record::Slice(Box::new(slice))
    }

    /// Returns the summaries; none for the null table, which is the empty loop once more.
    fn tails(&self, null: bool) -> Vec<Tail> {
        let some = self.sides[0].table.operations > 0 && !null;
        let sides = SIDES.iter().zip(&self.sides).filter(|_| some);
        sides
            .map(|((name, outcome), side)| tail(name, *outcome, side))
            .collect()
    }
}

fn tail(name: &str, outcome: usize, Side { table, empty }: &Side) -> Tail {
    let scale = table.elapsed_ns / empty.elapsed_ns.max(1.0);
    let slow = SLOW_US.iter().zip(table.slow.iter().zip(&empty.slow));
    let p999 = |latencies: &Latencies| latencies.percentile_ns(outcome, 99.9);
    Tail {
        side: name.into(),
        operations: table.operations,
        elapsed_ns: table.elapsed_ns as u64,
        p999_ns: table.latencies.as_ref().map_or(0.0, p999),
        max_ns: table.longest_ns(),
        slow: slow
            .map(|(&over_us, (counts, empty))| slow_count(over_us, counts, empty, scale))
            .collect(),
        empty_operations: empty.operations,
        empty_elapsed_ns: empty.elapsed_ns as u64,
        empty_max_ns: empty.longest_ns(),
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

fn slice(contender: &Contender, cell: &str, repetition: usize, done: &Done) -> Slice {
    let writer = &done.table[0];
    let stream = verify::sum(done.table.iter().map(|report| &report.tally));
    let elapsed_ns = clock::ns(writer.ticks).max(1.0);
    Slice {
        rate: writer.tally.counts.total() as f64 / elapsed_ns * 1e9,
        operations: writer.tally.counts.total(),
        elapsed_ns: elapsed_ns as u64,
        counts: stream.counts,
        checks: done.checks.clone(),
        ran_on: done.ran_on.clone(),
        ..contender.slice(cell, repetition)
    }
}

fn repetition_of(
    cell_context: &CellContext<'_>,
    contender: &Contender,
    (repetition, seed): (usize, u64),
    last_ticks: Option<u64>,
) -> Result<Done, PhaseError> {
    let empty = |ticks| {
        run_loops(
            cell_context,
            &nothing(&cell_context.workload.kind),
            seed,
            Some(ticks),
        )
    };
    let before = last_ticks.filter(|_| repetition % 2 == 1).map(empty);
    let before = before.transpose()?;
    let dyn_table = cell_context.make(contender);
    let table = run_loops(cell_context, &dyn_table, seed, None)?;
    let empty = before.map_or_else(|| empty(table[0].ticks), Ok)?;
    let mut checks = if contender.entry.null {
        Verdicts::default()
    } else {
        check(cell_context, &dyn_table, &table, seed)?
    };
    let ran_on = cell_context.whereabouts(&mut checks);
    Ok(Done {
        table,
        empty,
        checks,
        ran_on,
    })
}

/// Runs both threads, until all keys are inserted or for a time.
fn run_loops(
    cell_context: &CellContext<'_>,
    dyn_table: &Arc<dyn DynTable>,
    seed: u64,
    run_ticks: Option<u64>,
) -> Result<Sides, PhaseError> {
    let limit = limit(&cell_context.plan);
    let job = Tails {
        start: Start::of(SIDES.len()),
        progress: Arc::default(),
        run_ticks,
        limit_ticks: clock::ticks(limit.as_nanos() as u64),
        seed,
    };
    let reports = cell_context.all("growth", dyn_table, limit, move |dyn_table, plan, part| {
        dyn_table.run(plan, part, &mut job.clone())
    })?;
    <Sides>::try_from(reports).map_err(|_| PhaseError::Failed("growth takes two threads".into()))
}

fn check(
    cell_context: &CellContext<'_>,
    dyn_table: &Arc<dyn DynTable>,
    sides: &Sides,
    seed: u64,
) -> Result<Verdicts, PhaseError> {
    let booked = verify::sum(sides.iter().map(|side| &side.tally));
    let mut checks = cell_context.conservation(dyn_table, &booked)?;
    let (misses, gets) = (booked.counts.get_misses, booked.counts.gets());
    if misses > 0 {
        let text = format!("{misses} of {gets} lookups missed keys that had been inserted");
        checks.problems.push(text);
    }
    if booked.counts.insert_failed > 0 {
        let failed = booked.counts.insert_failed;
        checks
            .problems
            .push(format!("{failed} inserts took a new key for present"));
    }
    if sides.iter().any(|side| !side.finished) {
        let entries = booked.sums.entries;
        checks
            .problems
            .push(format!("not done in time, at {entries} entries"));
    }
    cell_context.audit(dyn_table, seed, &mut checks)?;
    Ok(checks)
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
