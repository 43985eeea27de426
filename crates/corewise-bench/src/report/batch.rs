//! Lookups in batches: their rates as dots, and what they have of single lookups in a table.

use crate::record::BatchSummary;
use crate::report::Plot;
use crate::report::dots;
use crate::report::style::Looks;
use crate::report::svg::{count, rate};
use crate::report::tables::{numbers, ratio};
use crate::results::{CellResults, Results, RowResults};

const HEADS: [&str; 8] = [
    "table",
    "entries",
    "threads",
    "keys of a batch",
    "single lookups",
    "in batches",
    "batched / single",
    "rounds",
];

/// A plot for each workload, with a block for each size of batches.
pub(super) fn plots(results: &Results, looks: &Looks) -> Vec<Plot> {
    let what = ("batch", "batch", "Lookups in batches");
    let heading = |cell: &CellResults| cell.cell.variant.clone();
    dots::by(results, looks, what, &["variant"], heading)
}

/// What batches have of single lookups in the same table, in numbers.
pub(super) fn summaries(results: &Results) -> String {
    let rows = results.rows().filter(|row| !row.void());
    let with = rows.filter_map(|row| Some((row, row.row.batch.as_ref()?)));
    let lines: Vec<_> = with.map(|(row, of)| line(row, of)).collect();
    numbers(&HEADS, &lines)
}

fn line(row: &RowResults, of: &BatchSummary) -> Vec<String> {
    vec![
        row.label.clone(),
        count(row.row.cell.initial),
        row.row.cell.threads.to_string(),
        of.keys.to_string(),
        rate(of.single.value),
        row.row.rate.map_or("–".to_owned(), |all| rate(all.value)),
        ratio(of.ratio),
        of.pairs.to_string(),
    ]
}
