//! Lookups beside a thread that resizes: a block for each size at rest and one for the resizing.

use crate::record::ResizeSummary;
use crate::report::Plot;
use crate::report::dots;
use crate::report::style::Looks;
use crate::report::svg::{plain, rate};
use crate::report::tables::{numbers, ratio};
use crate::results::{CellResults, Results, RowResults};

const HEADS: [&str; 11] = [
    "table",
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
    let what = ("resize", "resize", "Lookups");
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

fn line(row: &RowResults, of: &ResizeSummary) -> Vec<String> {
    let at = |buckets: usize, value: f64| format!("{} at {buckets}", rate(value));
    let shared = if of.own_cpu { "" } else { ", CPU shared" };
    vec![
        row.label.clone(),
        row.row.cell.threads.to_string(),
        at(of.buckets.0, of.small.value),
        at(of.buckets.1, of.large.value),
        rate(of.resizing.value),
        ratio(of.to_slower),
        ratio(of.to_faster),
        format!("{} ({} pairs{shared})", of.position, of.pairs),
        plain(of.resizes_per_s.value.round()),
        format!("{:.1} %", of.busy_share.value * 100.0),
        ratio(of.machine),
    ]
}
