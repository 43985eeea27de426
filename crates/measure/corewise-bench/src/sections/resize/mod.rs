//! Lookups, or a mix, beside a thread that resizes without pause, and at both sizes at rest
//! (\[ATC11\] §6.1 and §4.1).

mod atc11;
mod cells;
mod worker;

use crate::cell_run::CellRun;
use crate::entry::{Entry, Maker};
use crate::error::BenchError;
use crate::figure::{Figure, Unit};
use crate::params::Params;
pub use crate::payload::ResizeSummary;
use crate::plan::Kept;
use crate::plot::style::Looks;
use crate::plot::{Part, Plot, dots};
use crate::price;
use crate::record::Row;
use crate::results::{CellResults, Results};
use crate::section::Section;
use crate::task::Task;
use crate::workload::{Buckets, Check, MAX_RANGE, Rules, Variant, Workload};

#[derive(Debug)]
pub(crate) struct ResizeSection;

pub(crate) fn buckets(workload: &Workload) -> Buckets {
    match workload.variant {
        Variant::Buckets(buckets) => buckets,
        _ => Buckets::default(),
    }
}

impl Rules for ResizeSection {
    fn name(&self) -> &'static str {
        "resize"
    }

    fn checks(&self, workload: &Workload) -> Vec<Check> {
        let Buckets { small, large } = buckets(workload);
        vec![(
            small < large && small >= 1 && large as u64 <= MAX_RANGE,
            format!("buckets: {small}-{large} (1 to {MAX_RANGE}, the smaller first)"),
        )]
    }

    fn kept(&self, workload: &Workload) -> Kept {
        if workload.updates() > 0.0 {
            Kept::Half
        } else {
            Kept::All
        }
    }

    fn id_suffix(&self, workload: &Workload) -> String {
        let Buckets { small, large } = buckets(workload);
        format!(",b={small}-{large}")
    }

    fn ids(&self, workload: &Workload, id: String) -> Vec<String> {
        let Buckets { small, large } = buckets(workload);
        let base = id.trim_end_matches(&format!("{small}-{large}")).to_owned();
        vec![id, format!("{base}{small}"), format!("{base}{large}")]
    }
}

impl Section for ResizeSection {
    fn variants(&self, params: &Params) -> Vec<Variant> {
        let (small, large) = params.buckets.unwrap_or_default();
        vec![Variant::Buckets(Buckets { small, large })]
    }

    /// Without updates every key is always present. With updates half of all keys stay and the
    /// others are in the steady state of updates with this share of inserts, so that the size stays
    /// constant.
    fn range(&self, initial: u64, updates: f64, insert_share: f64) -> Option<u64> {
        let beside_kept = || 2 * (initial as f64 / (1.0 + insert_share)).round() as u64;
        Some(if updates > 0.0 {
            beside_kept()
        } else {
            initial
        })
    }

    fn maker(&self, entry: &Entry, workload: &Workload) -> Option<Maker> {
        entry.resizable_maker(&workload.kind)
    }

    fn run(&self, run: &mut CellRun<'_, '_>) -> Result<(), BenchError> {
        cells::run(run, buckets(&run.task.workload))
    }

    fn seconds(&self, task: &Task, rows: usize) -> f64 {
        let workload = &task.workload;
        let once = 4.0 * price::measured(workload) + 2.0 * price::around(workload);
        price::repeated(task, rows, once)
    }

    fn row_figures(&self, row: &Row) -> Vec<Figure> {
        let summaries = row.fields.resize.iter();
        let all = |summary: &ResizeSummary| {
            [
                Figure::of_interval("of the slower size", Unit::Plain, summary.to_slower),
                Figure::of_interval("of the faster size", Unit::Plain, summary.to_faster),
                Figure::of_interval("resizes a second", Unit::Plain, summary.resizes_per_s),
                Figure::of_interval("in progress", Unit::Share, summary.busy_share),
                Figure::of_interval("beside another's resize", Unit::Plain, summary.machine),
            ]
        };
        summaries.flat_map(all).collect()
    }

    fn plots(&self, results: &Results, looks: &Looks) -> Vec<Plot> {
        let what = (self.name(), &*self.preset().title);
        let heading = |cell: &CellResults| cell.cell.variant.clone();
        dots::by(results, looks, what, &["variant"], heading)
    }

    /// The paper's figures precede the other plots.
    fn parts(&self, results: &Results, looks: &Looks) -> Vec<Part> {
        let figures = Part::new(
            "atc11",
            "Figures 3 to 7 of the relativistic table's paper",
            "Rates over readers, as the paper draws them (Triplett, McKenney, Walpole, ATC 2011: 65,536 entries, \
             8,192 and 16,384 buckets): at a fixed size, while one more thread resizes the table, and both for \
             each table.",
            atc11::plots(results, looks),
        );
        vec![figures, self.part(results, looks)]
    }
}

/// Formats the share of the time in which a resize was in progress, marked if it is too low.
fn busy(summary: &ResizeSummary) -> String {
    let share = format!("{:.1} %", summary.busy_share.value * 100.0);
    if summary.is_continuous() {
        share
    } else {
        format!(
            "{share}, less than {:.0} %",
            ResizeSummary::LEAST_BUSY * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Interval;

    #[test]
    fn a_row_that_was_not_resized_all_the_time_is_marked() {
        let at = |value: f64| Interval {
            value,
            low: value,
            high: value,
        };
        let said = |share: f64| {
            busy(&ResizeSummary {
                buckets: (8, 16),
                pairs: 15,
                small: at(1e6),
                large: at(2e6),
                resizing: at(1.5e6),
                to_slower: at(1.5),
                to_faster: at(0.75),
                machine: at(0.9),
                resizes_per_s: at(100.0),
                busy_share: at(share),
                own_cpu: true,
            })
        };
        assert_eq!(said(0.899), "89.9 %, less than 90 %");
        assert_eq!(said(0.9), "90.0 %");
    }
}
