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
//! The reader looks up random keys of those that the writer says it has inserted; one miss voids the
//! row. Operations of more than 3, 50 and 100 µs are counted. What a hypervisor or the
//! system takes away makes any loop slow now and then, at a rate per time and not per operation; so
//! the empty loop runs for the same time, with the same keys, clock reads and bookkeeping, and its
//! counts, scaled to the table's time, say how many were to be expected. The table is *within* if
//! its count is at most that and three standard deviations of a Poisson count, or three if there
//! were fewer than one to expect.
//!
//! # How it could mislead
//!
//! 1. The bound is for the count alone. A machine that is disturbed for seconds at a time hits the
//!    table and not the loop, or the other way round: look at the counts by repetition.
//! 2. The empty loop touches little memory. A table that takes new memory waits for the system to
//!    hand out and clear pages; that is counted as the table's, whose doing it is.
//! 3. `within` with many to expect says little: on a machine with a thousand slow empty operations
//!    a table may add ninety.
//! 4. Sizes are doubled few times in a growth. A stall of 50 ms at each of them is a count of
//!    twenty: look at the longest, too.

use std::sync::Arc;

use corewise_measure::draw::mix;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::clock;
use crate::error::BenchError;
use crate::growth::limit;
use crate::lane::{Lane, Scene, Trouble};
use crate::latencies::Latencies;
use crate::record::{Record, Slice, SlowCount, Tail, Verdicts};
use crate::runner::{Course, Runner, lane_name};
use crate::subject::{Subject, nothing};
use crate::suite::Task;
use crate::verify;
use crate::work::tails::SLOW_US;
use crate::work::{Start, Tails, TailsReport};

/// The threads, in their order, with the outcome that is theirs.
const SIDES: [(&str, usize); 2] = [("writer", 2), ("reader", 0)];

/// What both threads did: the writer first.
type Sides = [TailsReport; 2];

impl Runner<'_> {
    /// Counts of slow operations. The row's rate is that of the writer.
    pub(crate) fn tails(&mut self, task: &Task, lanes: &[Lane]) -> Result<(), BenchError> {
        let mut books: Vec<Book> = lanes.iter().map(|_| Book::default()).collect();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ 0x7a115);
        let (seed, progress) = (self.seed, self.progress.clone());
        let scene = self.scene(&task.workload)?;
        let places = scene.crew.places().iter().flatten();
        let cell = task.workload.cell(places.map(|cpu| cpu.0).collect());
        let mut records = Vec::new();
        for repetition in 0..task.repetitions {
            let mut order: Vec<usize> = (0..lanes.len()).collect();
            order.shuffle(&mut rng);
            for at in order {
                let (book, lane) = (&mut books[at], &lanes[at]);
                if !book.course.out {
                    let place = mix(seed ^ (repetition as u64) << 32);
                    match repetition_of(&scene, lane, (repetition, place), book.last_ticks) {
                        Ok(done) => records.push(book.book(lane, &cell.id, repetition, done)),
                        Err(trouble) => book.course.fail(lane, trouble)?,
                    }
                }
                progress.inc(u64::from(at == 0));
            }
        }
        for record in &records {
            self.sink.write(record)?;
        }
        for (lane, book) in lanes.iter().zip(&mut books) {
            book.course.tails = book.tails(lane.entry.null);
            let latencies = book.course.latencies.iter();
            for histogram in latencies.flat_map(|l| l.records(&cell.id, &lane_name(lane), false)) {
                self.sink.write(&Record::Histogram(Box::new(histogram)))?;
            }
        }
        let courses: Vec<Course> = books.into_iter().map(|book| book.course).collect();
        self.rows(task, lanes, &courses, &cell)
    }
}

/// What is kept of a lane.
#[derive(Default)]
struct Book {
    course: Course,
    /// Counts of the table and of the empty loop, by side.
    sides: [Side; 2],
    /// How long the last growth took.
    last_ticks: Option<u64>,
}

/// A thread over all repetitions, at the table and in the empty loop.
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
    /// By the place in [`SLOW_US`].
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
        match &mut self.latencies {
            Some(all) => all.add(&report.latencies),
            none => *none = Some(report.latencies.clone()),
        }
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
    fn book(&mut self, lane: &Lane, cell: &str, repetition: usize, done: Done) -> Record {
        let slice = slice(lane, cell, repetition, &done);
        let course = &mut self.course;
        course.rates.resize(repetition, f64::NAN);
        course.rates.push(slice.rate);
        course
            .problems
            .extend(slice.checks.problems.iter().cloned());
        course.operations += slice.operations;
        course.out = !course.problems.is_empty(); // once more would take as long
        for (at, side) in self.sides.iter_mut().enumerate() {
            side.table.add(&done.table[at]);
            side.empty.add(&done.empty[at]);
            let latencies = &done.table[at].latencies;
            match &mut course.latencies {
                Some(all) => all.add(latencies),
                none => *none = Some(latencies.clone()),
            }
        }
        self.last_ticks = Some(done.table[0].ticks);
        Record::Slice(Box::new(slice))
    }

    /// The summaries; none for the harness, which is the empty loop once more.
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

fn slice(lane: &Lane, cell: &str, repetition: usize, done: &Done) -> Slice {
    let writer = &done.table[0];
    let stream = verify::sum(done.table.iter().map(|report| &report.tally));
    let elapsed_ns = clock::ns(writer.ticks).max(1.0);
    Slice {
        cell: cell.into(),
        table: lane_name(lane),
        role: lane.role,
        repetition,
        rate: writer.tally.counts.total() as f64 / elapsed_ns * 1e9,
        rates: Vec::new(),
        singles: Vec::new(),
        operations: writer.tally.counts.total(),
        elapsed_ns: elapsed_ns as u64,
        counts: stream.counts,
        prefill_ns: 0,
        checks: done.checks.clone(),
        hardware: Default::default(),
        contention: None,
        ran_on: done.ran_on.clone(),
    }
}

fn repetition_of(
    scene: &Scene<'_>,
    lane: &Lane,
    (repetition, seed): (usize, u64),
    last_ticks: Option<u64>,
) -> Result<Done, Trouble> {
    let empty = |ticks| run(scene, &nothing(&scene.workload.kind), seed, Some(ticks));
    let before = last_ticks.filter(|_| repetition % 2 == 1).map(empty);
    let before = before.transpose()?;
    let subject = scene.make(lane);
    let table = run(scene, &subject, seed, None)?;
    let empty = before.map_or_else(|| empty(table[0].ticks), Ok)?;
    let mut checks = match lane.entry.null {
        true => Verdicts::default(),
        false => check(scene, &subject, &table, seed)?,
    };
    let ran_on = scene.whereabouts(&mut checks);
    Ok(Done {
        table,
        empty,
        checks,
        ran_on,
    })
}

/// Both threads, until all keys are in or for a time.
fn run(
    scene: &Scene<'_>,
    subject: &Arc<dyn Subject>,
    seed: u64,
    run_ticks: Option<u64>,
) -> Result<Sides, Trouble> {
    let limit = limit(&scene.plan);
    let job = Tails {
        start: Start::of(SIDES.len()),
        progress: Arc::default(),
        run_ticks,
        limit_ticks: clock::ticks(limit.as_nanos() as u64),
        seed,
    };
    let reports = scene.all("growth", subject, limit, move |subject, plan, part| {
        subject.tails(plan, part, &job)
    })?;
    <Sides>::try_from(reports).map_err(|_| Trouble::Failed("growth takes two threads".into()))
}

fn check(
    scene: &Scene<'_>,
    subject: &Arc<dyn Subject>,
    sides: &Sides,
    seed: u64,
) -> Result<Verdicts, Trouble> {
    let booked = verify::sum(sides.iter().map(|side| &side.tally));
    let mut checks = scene.conservation(subject, &booked)?;
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
    scene.audit(subject, seed, &mut checks)?;
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
