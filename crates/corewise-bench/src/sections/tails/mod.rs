//! Slow operations while a table grows from empty, by one writer beside one reader, against those
//! of an empty loop.

mod cells;
mod nothing;
mod plot;

use crate::contender::Contender;
use crate::error::BenchError;
use crate::estimate;
use crate::figure::{Figure, Unit};
pub use crate::payload::{BothTails, SlowCount, Tail};
use crate::plot::Part;
use crate::plot::style::Looks;
use crate::plot::svg::time;
use crate::record::Row;
use crate::results::{Results, RowResults};
use crate::runner::Runner;
use crate::sections::Section;
use crate::suite::{Params, Task};
use crate::workload::{Check, Rules, Workload};

/// The section.
#[derive(Debug)]
pub(crate) struct TailsSection;

/// Returns the slow operations of a row.
fn tails_of(row: &Row) -> Vec<Tail> {
    let tails = row.fields.get::<BothTails>();
    tails.unwrap_or_default().0
}

impl Rules for TailsSection {
    fn name(&self) -> &'static str {
        "tails"
    }

    fn checks(&self, workload: &Workload) -> Vec<Check> {
        vec![(
            workload.threads == 2,
            format!("threads: {} (2: a writer and a reader)", workload.threads),
        )]
    }

    fn is_presized(&self) -> bool {
        false
    }
}

impl Section for TailsSection {
    fn about(&self) -> &'static str {
        "growth by one writer beside one reader: slow operations against an empty loop's"
    }

    fn defaults(&self) -> Params {
        Params {
            repetitions: Some(5),
            initial: Some(vec![10_000_000]),
            ..Params::default()
        }
    }

    /// Two threads, whatever is requested; on one CPU they would measure the scheduler.
    fn thread_counts(&self, cpus: usize, oversubscribe: bool) -> Option<Vec<usize>> {
        Some(if cpus >= 2 || oversubscribe {
            vec![2]
        } else {
            Vec::new()
        })
    }

    /// Every key is inserted.
    fn range(&self, initial: u64, _: f64, _: f64) -> Option<u64> {
        Some(initial)
    }

    fn adapt(&self, workload: &mut Workload) {
        workload.initial = 0;
    }

    fn run(
        &self,
        runner: &mut Runner<'_>,
        task: &Task,
        contenders: &[Contender],
    ) -> Result<(), BenchError> {
        cells::run(runner, task, contenders)
    }

    /// One thread inserts, at its slowest while the table grows; then an empty loop runs for as
    /// long.
    fn seconds(&self, task: &Task, rows: usize) -> f64 {
        let of = &task.workload;
        let once = 4.0 * estimate::on_one(of, of.range) + estimate::around(of);
        estimate::repeated(task, rows, once)
    }

    fn lines(&self, row: &Row) -> Vec<String> {
        tails_of(row).iter().map(line).collect()
    }

    fn figures(&self, row: &RowResults) -> Vec<Figure> {
        tails_of(&row.row).iter().flat_map(shares).collect()
    }

    fn page_rank(&self) -> u32 {
        13
    }

    fn parts(&self, results: &Results, looks: &Looks) -> Vec<Part> {
        let plots = plot::plots(results, looks);
        let lead = "One writer grows the table, one reader looks up what is there by then; an empty \
                    loop says how many slow operations the machine makes by itself.";
        vec![Part {
            below: plot::summaries(results),
            ..Part::new("tails", "Slow operations in a growth", lead, plots)
        }]
    }
}

/// Formats the slow operations of a thread.
fn line(of: &Tail) -> String {
    let counts = of.slow.iter().map(|slow| {
        let word = if slow.within { "within" } else { "above" };
        format!(
            ", over {} µs {} ({word}: empty loop {:.1}, at most {:.1})",
            slow.over_us, slow.count, slow.expected, slow.allowed
        )
    });
    format!(
        "{}: 99.9 % {}, longest {} (empty loop {}){}",
        of.side,
        time(of.p999_ns),
        time(of.max_ns),
        time(of.empty_max_ns),
        counts.collect::<String>()
    )
}

/// Slow operations per 10,000, and those of the empty loop in the same time, per 10,000 of the
/// table's.
fn shares(tail: &Tail) -> Vec<Figure> {
    let share = |name: String, count: f64| Figure {
        name,
        unit: Unit::Plain,
        value: count * 1e4 / tail.operations.max(1) as f64,
        spread: None,
    };
    let both = tail.slow.iter().flat_map(|slow| {
        let over = slow.over_us;
        [
            share(format!("{} > {over} µs", tail.side), slow.count as f64),
            share(
                format!("{}, empty loop > {over} µs", tail.side),
                slow.expected,
            ),
        ]
    });
    both.collect()
}
