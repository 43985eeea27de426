//! Lookups in batches against single ones, in tables that are larger than the caches.
//!
//! The keys of a stream are looked up several at a time. Half of the keys are always present and
//! the others never, so every outcome is known but for the value's number. Slices of batches and
//! of single lookups alternate, on the same table. The rate of a row counts lookups in batches.
//!
//! # Bias
//!
//! 1. *Single lookups overlap, too.* Those of a stream do not depend on each other, so the
//!    processor runs several at once, and the ratio is to that. A program that needs an answer
//!    before it knows its next key has slower single lookups, and cannot batch them.
//! 2. *A batch has one guard* (or registration), where single lookups have one each. In tables that
//!    fit in a cache that is most of the difference; batches of one key, a separate cell, do not
//!    have it.
//! 3. *Keys are generated.* Byte keys are written before they are hashed, in batches as for single
//!    lookups; in a server they would come from a buffer that is already in a cache.

use corewise_measure::stats::{Ratio, Spread};

use crate::cell_run::{CellRun, Done};
use crate::closed_loop::{self, Slices};
use crate::contender::{CellContext, PhaseError, RunningTable};
use crate::error::BenchError;
use crate::figure::{Figure, Unit};
use crate::params::Params;
pub use crate::payload::BatchSummary;
use crate::plan::Kept;
use crate::plot::style::Looks;
use crate::plot::{Plot, dots};
use crate::price;
use crate::record::{Cell, Row, Slice};
use crate::results::{CellResults, Results};
use crate::section::Section;
use crate::table::MOST_BATCHED;
use crate::task::Task;
use crate::work::batched::Batched;
use crate::workload::{Check, Rules, Variant, Workload, within};

#[derive(Debug)]
pub(crate) struct BatchSection;

impl Rules for BatchSection {
    fn name(&self) -> &'static str {
        "batch"
    }

    fn checks(&self, workload: &Workload) -> Vec<Check> {
        vec![within(
            "batch",
            workload.batch(),
            (1, MOST_BATCHED),
            " keys",
        )]
    }

    fn kept(&self, _: &Workload) -> Kept {
        Kept::Half
    }

    fn id_suffix(&self, workload: &Workload) -> String {
        format!(",batch={}", workload.batch())
    }

    fn describe(&self, workload: &Workload, cell: &mut Cell) {
        cell.variant = format!("batches of {}", workload.batch());
    }
}

impl Section for BatchSection {
    fn variants(&self, params: &Params) -> Vec<Variant> {
        let sizes = params.batch.iter().flatten();
        sizes.map(|&keys| Variant::Batch(keys)).collect()
    }

    /// Half of the keys are always present, the others never.
    fn range(&self, initial: u64, _: f64, _: f64) -> Option<u64> {
        Some(initial.saturating_mul(2))
    }

    fn adapt(&self, workload: &mut Workload) {
        (workload.insert_percent, workload.remove_percent) = (0.0, 0.0);
    }

    fn run(&self, run: &mut CellRun<'_, '_>) -> Result<(), BenchError> {
        let mut measured = closed_loop::measure(run, |_, _| Ok(BatchSlices))?;
        for (contender, accumulator) in run.contenders.iter().zip(&mut measured.accumulators) {
            let is_its =
                |slice: &&Slice| slice.table == contender.name() && slice.role == contender.role;
            let slices = measured.slices.iter().filter(is_its);
            accumulator.fields.batch = summary(run.task.workload.batch(), slices);
        }
        run.write(measured)
    }

    fn seconds(&self, task: &Task, rows: usize) -> f64 {
        let of = &task.workload;
        let once = 2.0 * price::measured(of) + price::around(of);
        price::repeated(task, rows, once)
    }

    fn row_figures(&self, row: &Row) -> Vec<Figure> {
        let of = row.fields.batch.iter();
        let both = |of: &BatchSummary| {
            [
                Figure::of_interval("single", Unit::Rate, of.single),
                Figure::of_interval("batch over single", Unit::Plain, of.ratio),
            ]
        };
        of.flat_map(both).collect()
    }

    fn plots(&self, results: &Results, looks: &Looks) -> Vec<Plot> {
        let what = (self.name(), &*self.preset().title);
        let heading = |cell: &CellResults| cell.cell.variant.clone();
        dots::by(results, looks, what, &["variant"], heading)
    }
}

/// One slice of lookups in batches and one of single lookups; the order alternates.
struct BatchSlices;

impl Slices for BatchSlices {
    /// Rates of single lookups, one for each rate in batches.
    type Progress = Vec<f64>;

    fn run(
        &self,
        context: &CellContext<'_>,
        table: &mut RunningTable,
        singles: &mut Vec<f64>,
    ) -> Result<(), PhaseError> {
        let first = singles.len().is_multiple_of(2);
        for batched in [first, !first] {
            if batched {
                let keys = context.workload.batch();
                let job = move |drive| Batched { drive, keys };
                let (reports, jobs) = context.drive(table, job)?;
                table.add_slice(&reports);
                table.store_positions(jobs.into_iter().map(|job| job.drive));
            } else {
                let (reports, drives) = context.drive(table, |drive| drive)?;
                singles.push(table.check_slice(&reports).1);
                table.store_positions(drives.into_iter());
            }
        }
        Ok(())
    }

    fn finish(singles: Vec<f64>, done: &mut Done) {
        done.slice.fields.singles = singles;
    }
}

/// Summarises batches against single lookups, round by round.
fn summary<'a>(keys: usize, slices: impl Iterator<Item = &'a Slice>) -> Option<BatchSummary> {
    let of_slice = |slice: &'a Slice| {
        let singles = slice.fields.singles.iter().copied();
        slice.rates.iter().copied().zip(singles)
    };
    let pairs: Vec<(f64, f64)> = slices.flat_map(of_slice).collect();
    Some(BatchSummary {
        keys,
        pairs: pairs.len(),
        single: Spread::of(pairs.iter().map(|(_, single)| *single))?.into(),
        ratio: Ratio::paired(pairs.iter().copied())?.into(),
    })
}
