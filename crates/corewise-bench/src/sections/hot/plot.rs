//! Remove and reinsert: pairs per second as dots, and nanoseconds per pair in a table.

use maud::Markup;

use crate::plot::Plot;
use crate::plot::numbers::numbers;
use crate::plot::style::Looks;
use crate::plot::svg::{count, plain};
use crate::plot::{dots, group};
use crate::results::{CellResults, Results};
use crate::sections::hot::PairTime;

/// A plot for each number of entries, with a block for each number of threads and choice of keys.
pub(crate) fn plots(results: &Results, looks: &Looks) -> Vec<Plot> {
    let what = ("hot", "hot", "Pairs of remove and insert");
    let heading = |cell: &CellResults| {
        let threads = group::threads(cell.cell.threads);
        format!("{threads}, {}", keys(cell))
    };
    dots::by(results, looks, what, &["distribution", "threads"], heading)
}

fn keys(cell: &CellResults) -> &'static str {
    match &*cell.cell.distribution {
        "single" => "one hot key each",
        _ => "random keys",
    }
}

/// Nanoseconds per pair.
pub(crate) fn summaries(results: &Results) -> Markup {
    let rows = results.cells().flat_map(|cell| {
        let valid = cell.rows.iter().filter(|row| !row.void());
        valid.filter_map(move |row| Some((cell, row, row.row.fields.get::<PairTime>()?.0)))
    });
    let ns = |ns: f64| plain((ns * 10.0).round() / 10.0);
    let lines: Vec<_> = rows
        .map(|(cell, row, pair)| {
            vec![
                row.label.clone(),
                count(cell.cell.initial),
                keys(cell).to_owned(),
                cell.cell.threads.to_string(),
                ns(pair.value),
                format!("{} – {}", ns(pair.low), ns(pair.high)),
            ]
        })
        .collect();
    let heads = ["table", "entries", "keys", "threads", "ns a pair", "95 %"];
    numbers(&heads, &lines)
}
