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

mod plot;

use corewise_measure::stats::{Ratio, Spread};

use crate::contender::{CellContext, Contender, PhaseError, RunningTable};
use crate::error::BenchError;
use crate::estimate;
use crate::figure::{Figure, Unit};
pub use crate::payload::{BatchSummary, SingleRates};
use crate::plan::Kept;
use crate::plot::Part as PagePart;
use crate::plot::style::Looks;
use crate::record::{Cell, Fields, Slice};
use crate::results::{Results, RowResults};
use crate::runner::{RowAccumulator, Runner};
use crate::sections::Section;
use crate::sections::closed_loop::{self, Slices};
use crate::suite::{Params, Task, Threads};
use crate::table::MOST_BATCHED;
use crate::work::batched::Batched;
use crate::workload::{Check, Rules, Variant, Workload};

/// The section.
#[derive(Debug)]
pub(crate) struct BatchSection;

/// Keys of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BatchKeys(usize);

fn keys_of(workload: &Workload) -> usize {
    workload.variant.get::<BatchKeys>().0
}

impl Rules for BatchSection {
    fn name(&self) -> &'static str {
        "batch"
    }

    fn checks(&self, workload: &Workload) -> Vec<Check> {
        let keys = keys_of(workload);
        vec![(
            (1..=MOST_BATCHED).contains(&keys),
            format!("batch: {keys} keys (1 to {MOST_BATCHED})"),
        )]
    }

    fn kept(&self, _: &Workload) -> Kept {
        Kept::Half
    }

    fn id_suffix(&self, workload: &Workload) -> String {
        format!(",batch={}", keys_of(workload))
    }

    fn describe(&self, workload: &Workload, cell: &mut Cell) {
        cell.variant = format!("batches of {}", keys_of(workload));
    }
}

impl Section for BatchSection {
    fn about(&self) -> &'static str {
        "lookups in batches against single ones, in tables that are larger than the caches"
    }

    /// Tables with batched lookups, and others for comparison.
    fn defaults(&self) -> Params {
        const TABLES: [&str; 9] = [
            "relativistic",
            "clht-lb",
            "sharded64?",
            "papaya?",
            "dashmap?",
            "scc-index?",
            "urcu-memb?",
            "libcuckoo?",
            "rwlock",
        ];
        let tables = TABLES.iter().chain(&crate::adapters::CHAINED);
        Params {
            threads: Some(vec![Threads::Number(1)]),
            initial: Some(vec![10_000_000]),
            batch: Some(vec![1, 16, 64]),
            tables: Some(tables.map(|name| (*name).to_string()).collect()),
            ..Params::default()
        }
    }

    fn variants(&self, params: &Params) -> Vec<Variant> {
        let sizes = params.batch.iter().flatten();
        sizes.map(|&keys| Variant::of(BatchKeys(keys))).collect()
    }

    /// Half of the keys are always present, the others never.
    fn range(&self, initial: u64, _: f64, _: f64) -> Option<u64> {
        Some(initial.saturating_mul(2))
    }

    fn adapt(&self, workload: &mut Workload) {
        (workload.insert_percent, workload.remove_percent) = (0.0, 0.0);
    }

    fn run(
        &self,
        runner: &mut Runner<'_>,
        task: &Task,
        contenders: &[Contender],
    ) -> Result<(), BenchError> {
        let mut measured = closed_loop::measure::<BatchSlices>(runner, task, contenders)?;
        for (contender, accumulator) in contenders.iter().zip(&mut measured.accumulators) {
            let is_its =
                |slice: &&Slice| slice.table == contender.name() && slice.role == contender.role;
            let slices = measured.slices.iter().filter(is_its);
            if let Some(summary) = summary(keys_of(&task.workload), slices) {
                accumulator.fields.set(&summary);
            }
        }
        closed_loop::write(runner, task, contenders, measured)
    }

    fn seconds(&self, task: &Task, rows: usize) -> f64 {
        let of = &task.workload;
        let once = 2.0 * estimate::measured(of) + estimate::around(of);
        estimate::repeated(task, rows, once)
    }

    fn figures(&self, row: &RowResults) -> Vec<Figure> {
        let Some(of) = row.row.fields.get::<BatchSummary>() else {
            return Vec::new();
        };
        vec![
            Figure::of_interval("single", Unit::Rate, of.single),
            Figure::of_interval("batch over single", Unit::Plain, of.ratio),
        ]
    }

    fn page_rank(&self) -> u32 {
        7
    }

    fn parts(&self, results: &Results, looks: &Looks) -> Vec<PagePart> {
        let plots = plot::plots(results, looks);
        let lead = "Lookups of several keys in one call, against single lookups in the same table and round: a table that \
             knows the keys can ask for their cache lines together. The cards say which tables do.";
        vec![PagePart {
            below: plot::summaries(results),
            ..PagePart::new("batch", "Batches", lead, plots)
        }]
    }
}

/// One slice of lookups in batches and one of single lookups; the order alternates.
struct BatchSlices {
    keys: usize,
}

impl Slices for BatchSlices {
    /// Rates of single lookups, one for each rate in batches.
    type Progress = Vec<f64>;

    fn start(context: &CellContext<'_>, _: u64) -> Result<Self, BenchError> {
        let keys = keys_of(context.workload);
        Ok(Self { keys })
    }

    fn begin(&self, _: u64) -> Vec<f64> {
        Vec::new()
    }

    fn run(
        &self,
        context: &CellContext<'_>,
        table: &mut RunningTable,
        singles: &mut Vec<f64>,
    ) -> Result<(), PhaseError> {
        let first = table.rates.len().is_multiple_of(2);
        for batched in [first, !first] {
            if batched {
                let keys = self.keys;
                let done = context.drive(table, move |drive| Batched { drive, keys })?;
                let drives = done.into_iter().map(|(report, job)| (report, job.drive));
                table.book(drives.collect());
            } else {
                let done = context.drive(table, |drive| drive)?;
                singles.push(table.book_beside(done));
            }
        }
        Ok(())
    }

    fn finish(singles: Vec<f64>, _: &mut RowAccumulator, fields: &mut Fields) {
        if !singles.is_empty() {
            fields.set(&SingleRates(singles));
        }
    }
}

/// Summarises batches against single lookups, round by round.
fn summary<'a>(keys: usize, slices: impl Iterator<Item = &'a Slice>) -> Option<BatchSummary> {
    let of_slice = |slice: &Slice| {
        let singles = slice.fields.get::<SingleRates>();
        let singles = singles.map_or(Vec::new(), |SingleRates(rates)| rates);
        slice.rates.clone().into_iter().zip(singles)
    };
    let pairs: Vec<(f64, f64)> = slices.flat_map(of_slice).collect();
    Some(BatchSummary {
        keys,
        pairs: pairs.len(),
        single: Spread::of(pairs.iter().map(|(_, single)| *single))?.into(),
        ratio: Ratio::paired(pairs.iter().copied())?.into(),
    })
}
