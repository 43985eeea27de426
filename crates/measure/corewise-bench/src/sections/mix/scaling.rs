//! Throughput against threads, and over the share of updates.

use crate::plot::Plot;
use crate::plot::group::{Group, groups, named, threads, updates};
use crate::plot::lines::{Axis, Lines};
use crate::plot::over_threads::{self, NOTE, by_threads, node_ends};
use crate::plot::rates::curves;
use crate::plot::style::Looks;
use crate::results::{CellResults, Results};

/// A plot for each workload of a section, over its numbers of threads.
pub(crate) fn over_threads(
    results: &Results,
    looks: &Looks,
    (section, what): (&'static str, &str),
) -> Vec<Plot> {
    let groups = groups(named(&results.sections, section), &["threads"]);
    let draw = |group: &Group<'_>| {
        let title = format!("{what}: {}", group.title);
        let words = |cell: &CellResults| threads(cell.cell.threads);
        let curves = curves(group.rows(), looks, by_threads, words);
        let about = (section, title, NOTE.to_owned());
        let ends = node_ends(results, &group.cells[0].cell.pin);
        over_threads::over_threads(about, "threads", &curves, &ends)
    };
    groups.iter().filter_map(draw).collect()
}

/// A plot for each workload of the section `updates`.
pub(crate) fn over_updates(results: &Results, looks: &Looks) -> Vec<Plot> {
    let vary = ["update_percent", "insert_percent", "remove_percent"];
    let groups = groups(named(&results.sections, "updates"), &vary);
    let share = |cell: &CellResults| cell.cell.update_percent;
    let draw = |group: &Group<'_>| {
        let lines = Lines {
            kind: "updates",
            title: format!("Throughput by share of updates: {}", group.title),
            note: "Dots are repetitions, lines join their medians.".to_owned(),
            x: Axis::At(group.cells.iter().map(|cell| share(cell)).collect()),
            x_title: "updates (%)",
        };
        let curves = curves(group.rows(), looks, share, updates);
        lines.draw(&curves, |_, _| {})
    };
    groups.iter().filter_map(draw).collect()
}
