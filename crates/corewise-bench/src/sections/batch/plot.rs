//! Lookups in batches: rates as dots, and their ratios to single lookups in a table.

use maud::Markup;

use crate::plot::Plot;
use crate::plot::dots;
use crate::plot::numbers::{numbers, ratio};
use crate::plot::style::Looks;
use crate::plot::svg::{count, rate};
use crate::results::{CellResults, Results, RowResults};
use crate::sections::batch::BatchSummary;

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

/// A plot for each workload, with a block for each batch size.
pub(crate) fn plots(results: &Results, looks: &Looks) -> Vec<Plot> {
    let what = ("batch", "batch", "Lookups in batches");
    let heading = |cell: &CellResults| cell.cell.variant.clone();
    dots::by(results, looks, what, &["variant"], heading)
}

/// Ratios of batches to single lookups in the same table, as numbers.
pub(crate) fn summaries(results: &Results) -> Markup {
    let rows = results.rows().filter(|row| !row.void());
    let with = rows.filter_map(|row| Some((row, row.row.fields.get::<BatchSummary>()?)));
    let lines: Vec<_> = with.map(|(row, of)| line(row, &of)).collect();
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
