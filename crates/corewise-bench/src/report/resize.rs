//! Operations beside a thread that resizes: a block for each size at rest and one for the resizing.

use crate::record::ResizeSummary;
use crate::report::Plot;
use crate::report::style::Looks;
use crate::report::svg::{plain, rate};
use crate::report::tables::{numbers, ratio};
use crate::report::{dots, group};
use crate::results::{CellResults, Results, RowResults};

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
pub(super) fn plots(results: &Results, looks: &Looks) -> Vec<Plot> {
    let what = ("resize", "resize", "Operations");
    let heading = |cell: &CellResults| cell.cell.variant.clone();
    dots::by(results, looks, what, &["variant"], heading)
}

/// Where the rates beside a resizer lie, in numbers.
pub(super) fn summaries(results: &Results) -> String {
    let rows = results.rows().filter(|row| !row.void());
    let with = rows.filter_map(|row| Some((row, row.row.resize.as_ref()?)));
    let lines: Vec<_> = with.map(|(row, of)| line(row, of)).collect();
    numbers(&HEADS, &lines)
}

/// The share of the time in which a resize was in progress, marked if it is too low.
pub(super) fn busy(of: &ResizeSummary) -> String {
    let share = format!("{:.1} %", of.busy_share.value * 100.0);
    match of.is_continuous() {
        true => share,
        false => format!(
            "{share}, less than {:.0} %",
            ResizeSummary::LEAST_BUSY * 100.0
        ),
    }
}

fn line(row: &RowResults, of: &ResizeSummary) -> Vec<String> {
    let at = |buckets: usize, value: f64| format!("{} at {buckets}", rate(value));
    let shared = if of.own_cpu { "" } else { ", CPU shared" };
    vec![
        row.label.clone(),
        group::updates(&row.row.cell),
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
