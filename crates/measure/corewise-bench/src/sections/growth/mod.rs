//! Growth from empty: the longest operation, and slow operations beside a reader against those of
//! an empty loop.

mod cells;
mod tails;

use crate::cell_run::CellRun;
use crate::error::BenchError;
use crate::figure::Figure;
use crate::in_turn;
pub use crate::payload::{SlowCount, Tail};
use crate::plot::style::Looks;
use crate::plot::{Plot, dots};
use crate::price;
use crate::record::Row;
use crate::results::Results;
use crate::section::{Section, figures_of};
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

    /// The longest operation of a growth, or the slow operations.
    fn row_figures(&self, row: &Row) -> Vec<Figure> {
        let tails = row.fields.tails.iter().flat_map(tails::figures);
        figures_of(self.preset(), row)
            .into_iter()
            .chain(tails)
            .collect()
    }
    fn plots(&self, results: &Results, looks: &Looks) -> Vec<Plot> {
        let what = (self.name, self.name, &*self.preset().title);
        dots::all(results, looks, what).into_iter().collect()
    }
}
