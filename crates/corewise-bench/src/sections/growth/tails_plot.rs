//! Growth beside a reader: the writer's rate as dots, and counts of slow operations in a table.

use maud::Markup;

use crate::plot::Plot;
use crate::plot::dots;
use crate::plot::numbers::numbers;
use crate::plot::style::Looks;
use crate::plot::svg::{count, grouped, plain, time};
use crate::results::{Results, RowResults};
use crate::sections::growth::{SlowCount, Tail, tails_of};
use crate::work::grow::SLOW_US;

/// A plot of all cells.
pub(crate) fn plots(results: &Results, looks: &Looks) -> Vec<Plot> {
    let what = ("tails", "tails", "Inserts of one writer beside one reader");
    dots::all(results, looks, what).into_iter().collect()
}

/// Slow operations, beside those of an empty loop.
pub(crate) fn summaries(results: &Results) -> Markup {
    let rows = results.rows().filter(|row| !row.void());
    let with = rows.flat_map(|row| tails_of(&row.row).into_iter().map(move |tail| (row, tail)));
    let lines: Vec<_> = with.map(|(row, tail)| line(row, &tail)).collect();
    let over = SLOW_US.map(|us| format!("over {us} µs (expected, at most)"));
    let mut heads = vec![
        "table",
        "entries",
        "thread",
        "operations",
        "99.9 %",
        "longest",
    ];
    heads.extend(over.iter().map(String::as_str));
    heads.push("longest of the empty loop");
    numbers(&heads, &lines)
}

fn line(row: &RowResults, tail: &Tail) -> Vec<String> {
    let mut line = vec![
        row.label.clone(),
        count(row.row.cell.range),
        tail.side.clone(),
        grouped(tail.operations),
        time(tail.p999_ns),
        time(tail.max_ns),
    ];
    line.extend(tail.slow.iter().map(slow));
    line.push(time(tail.empty_max_ns));
    line
}

fn slow(of: &SlowCount) -> String {
    let word = if of.within { "within" } else { "above" };
    let tenth = |value: f64| plain((value * 10.0).round() / 10.0);
    format!(
        "{} ({}, {}): {word}",
        of.count,
        tenth(of.expected),
        tenth(of.allowed)
    )
}
