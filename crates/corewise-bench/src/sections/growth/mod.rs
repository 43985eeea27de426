//! Growth from empty: a time line of stalls.

pub(crate) mod cells;
mod plot;

use corewise_measure::stats::Spread;

use crate::contender::Contender;
use crate::error::BenchError;
use crate::estimate;
use crate::figure::{Figure, Unit};
pub use crate::payload::Timeline;
use crate::plot::Part;
use crate::plot::style::Looks;
use crate::results::{Results, RowResults};
use crate::runner::Runner;
use crate::sections::Section;
use crate::suite::{Params, Task};
use crate::workload::{Rules, Workload};

/// The section.
#[derive(Debug)]
pub(crate) struct GrowthSection;

impl Rules for GrowthSection {
    fn name(&self) -> &'static str {
        "growth"
    }

    fn is_presized(&self) -> bool {
        false
    }
}

impl Section for GrowthSection {
    fn about(&self) -> &'static str {
        "growth from empty: a time line of stalls"
    }

    fn defaults(&self) -> Params {
        Params {
            repetitions: Some(5),
            ..Params::default()
        }
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

    fn seconds(&self, task: &Task, rows: usize) -> f64 {
        let of = &task.workload;
        let once = 5.0 * estimate::on_all(of, of.range) + estimate::around(of);
        estimate::repeated(task, rows, once)
    }

    /// The longest operation of each growth.
    fn figures(&self, row: &RowResults) -> Vec<Figure> {
        let lines = row.details::<Timeline>();
        let longest = lines.filter_map(|line| line.longest_ns.iter().max().copied());
        let Some(longest) = Spread::of(longest.map(|ns| ns as f64)) else {
            return Vec::new();
        };
        vec![Figure {
            name: "longest".to_owned(),
            unit: Unit::Nanoseconds,
            value: longest.median,
            spread: Some((longest.min, longest.max)),
        }]
    }

    fn page_rank(&self) -> u32 {
        12
    }

    fn parts(&self, results: &Results, looks: &Looks) -> Vec<Part> {
        let plots = plot::plots(results, looks);
        let lead = "Tables that start empty and grow: what their growing costs the operations that \
                    meet it.";
        vec![Part::new("growth", "Growth", lead, plots)]
    }
}
