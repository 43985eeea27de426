//! Growth from empty: a time line of stalls, and slow operations beside a reader against those of
//! an empty loop.

mod cells;
mod plot;
mod tails;

use corewise_measure::stats::Spread;

use crate::cell_run::CellRun;
use crate::error::BenchError;
use crate::figure::{Figure, Unit};
use crate::in_turn;
pub use crate::payload::{SlowCount, Tail, Timeline};
use crate::plot::style::Looks;
use crate::plot::{Plot, dots};
use crate::price;
use crate::record::Row;
use crate::results::{Results, RowResults};
use crate::section::{LineFields, Section};
use crate::task::Task;
use crate::workload::{Check, Rules, Workload};

/// A section in which tables grow.
#[derive(Debug)]
pub(crate) struct GrowthSection {
    name: &'static str,
    /// Whether one writer grows the table beside one reader.
    has_reader: bool,
}

pub(crate) static GROWTH: GrowthSection = GrowthSection {
    name: "growth",
    has_reader: false,
};

pub(crate) static TAILS: GrowthSection = GrowthSection {
    name: "tails",
    has_reader: true,
};

impl Rules for GrowthSection {
    fn name(&self) -> &'static str {
        self.name
    }

    fn checks(&self, workload: &Workload) -> Vec<Check> {
        vec![(
            !self.has_reader || workload.threads == 2,
            format!("threads: {} (2: a writer and a reader)", workload.threads),
        )]
    }

    fn is_presized(&self) -> bool {
        false
    }
}

impl Section for GrowthSection {
    /// A writer and a reader, whatever is requested; on one CPU they would measure the scheduler.
    fn thread_counts(&self, cpus: usize, oversubscribe: bool) -> Option<Vec<usize>> {
        let is_measured = cpus >= 2 || oversubscribe;
        self.has_reader
            .then(|| is_measured.then_some(2).into_iter().collect())
    }

    fn adapt(&self, workload: &mut Workload) {
        workload.initial = 0;
    }

    fn run(&self, run: &mut CellRun<'_, '_>) -> Result<(), BenchError> {
        if self.has_reader {
            return tails::run(run);
        }
        let measured = in_turn::measure(run, &run.task.workload, cells::repetition_of)?;
        run.write(measured)
    }

    /// With a reader, one thread inserts, at its slowest while the table grows; then an empty loop
    /// runs for as long.
    fn seconds(&self, task: &Task, rows: usize) -> f64 {
        let of = &task.workload;
        let growths = if self.has_reader {
            4.0 * price::on_one(of, of.range)
        } else {
            5.0 * price::on_all(of, of.range)
        };
        price::repeated(task, rows, growths + price::around(of))
    }

    fn details(&self, row: &Row) -> Vec<LineFields> {
        row.fields.tails.iter().map(tails::fields).collect()
    }

    /// The longest operation of each growth, or the slow operations.
    fn figures(&self, row: &RowResults) -> Vec<Figure> {
        let lines = row.timelines.iter();
        let longest = lines.filter_map(|line| line.longest_ns.iter().max().copied());
        let longest = Spread::of(longest.map(|ns| ns as f64)).map(|longest| Figure {
            name: "longest".to_owned(),
            unit: Unit::Nanoseconds,
            value: longest.median,
            spread: Some((longest.min, longest.max)),
        });
        let tails = row.row.fields.tails.iter().flat_map(tails::shares);
        longest.into_iter().chain(tails).collect()
    }

    fn plots(&self, results: &Results, looks: &Looks) -> Vec<Plot> {
        if !self.has_reader {
            return plot::plots(results, looks);
        }
        let what = (self.name, self.name, &*self.preset().title);
        dots::all(results, looks, what).into_iter().collect()
    }
}
