//! Operations beside a resizing thread: a block for each size at rest and one while resizing.

use maud::Markup;

use crate::plot::Plot;
use crate::plot::numbers::{numbers, ratio};
use crate::plot::style::Looks;
use crate::plot::svg::{plain, rate};
use crate::plot::{dots, group};
use crate::results::{CellResults, Results, RowResults};
use crate::sections::resize::ResizeSummary;

const HEADS: [&str; 12] = [
    "table",
    "updates",
    "readers",
    "smaller size",
    "larger size",
    "resizing",
    "of the slower",
    "of the faster",
    "verdict",
    "resizes/s",
    "in progress",
    "beside another's",
];

/// A plot for each workload of the section `resize`.
pub(crate) fn plots(results: &Results, looks: &Looks) -> Vec<Plot> {
    let what = ("resize", "resize", "Operations");
    let heading = |cell: &CellResults| cell.cell.variant.clone();
    dots::by(results, looks, what, &["variant"], heading)
}

/// Positions of the rates beside a resizing thread, as numbers.
pub(crate) fn summaries(results: &Results) -> Markup {
    let rows = results.rows().filter(|row| !row.void());
    let with = rows.filter_map(|row| Some((row, row.row.fields.get::<ResizeSummary>()?)));
    let lines: Vec<_> = with.map(|(row, of)| line(row, &of)).collect();
    numbers(&HEADS, &lines)
}

/// The share of the time in which a resize was in progress, marked if it is too low.
pub(crate) fn busy(of: &ResizeSummary) -> String {
    let share = format!("{:.1} %", of.busy_share.value * 100.0);
    if of.is_continuous() {
        share
    } else {
        format!(
            "{share}, less than {:.0} %",
            ResizeSummary::LEAST_BUSY * 100.0
        )
    }
}

fn line(row: &RowResults, of: &ResizeSummary) -> Vec<String> {
    let at = |buckets: usize, value: f64| format!("{} at {buckets}", rate(value));
    let shared = if of.own_cpu { "" } else { ", CPU shared" };
    vec![
        row.label.clone(),
        group::mix(&row.row.cell),
        row.row.cell.threads.to_string(),
        at(of.buckets.0, of.small.value),
        at(of.buckets.1, of.large.value),
        rate(of.resizing.value),
        ratio(of.to_slower),
        ratio(of.to_faster),
        format!("{} ({} pairs{shared})", of.position, of.pairs),
        plain(of.resizes_per_s.value.round()),
        busy(of),
        ratio(of.machine),
    ]
}
