//! Growth from empty: a time line of stalls.

pub(crate) mod cells;
mod plot;

use corewise_measure::stats::Spread;
use serde::{Deserialize, Serialize};

use crate::contender::Contender;
use crate::error::BenchError;
use crate::estimate;
use crate::figure::{Figure, Unit};
use crate::plot::Part;
use crate::plot::style::Looks;
use crate::record::Payload;
use crate::results::{Results, RowResults};
use crate::runner::Runner;
use crate::sections::{Schema, Section};
use crate::suite::{Params, Task};
use crate::workload::Workload;

/// The section.
#[derive(Debug)]
pub(crate) struct GrowthSection;

/// Progress over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// The cell's id.
    pub cell: String,
    /// The table.
    pub table: String,
    /// Repetition, from 0.
    pub repetition: usize,
    /// Milliseconds of a bin.
    pub bin_ms: f64,
    /// Operations that ended in each bin.
    pub operations: Vec<u64>,
    /// The longest operation that ended in each bin.
    pub longest_ns: Vec<u64>,
}

impl Payload for Timeline {
    const NAME: &'static str = "timeline";
}

impl Section for GrowthSection {
    fn name(&self) -> &'static str {
        "growth"
    }

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

    fn is_presized(&self) -> bool {
        false
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

    fn payloads(&self) -> &'static [Schema] {
        &const { [Schema::record::<Timeline>()] }
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
