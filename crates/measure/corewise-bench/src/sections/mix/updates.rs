//! Throughput over the share of updates.

use crate::plot::Plot;
use crate::plot::group::{Group, groups, named, updates};
use crate::plot::lines::{Axis, Lines};
use crate::plot::rates::curves;
use crate::plot::style::Looks;
use crate::results::Results;

/// A plot for each workload of the section `updates`.
pub(crate) fn plots(results: &Results, looks: &Looks) -> Vec<Plot> {
    let cells = named(&results.sections, "updates");
    let vary = ["update_percent", "insert_percent", "remove_percent"];
    let draw = |group: &Group<'_>| {
        let shares = group.cells.iter().map(|cell| cell.cell.update_percent);
        let lines = Lines {
            kind: "updates",
            title: format!("Throughput by share of updates: {}", group.title),
            note: "Dots are repetitions, lines join their medians.".to_owned(),
            x: Axis::At(shares.collect()),
            x_title: "updates (%)",
        };
        let curves = curves(
            group.rows(),
            looks,
            |cell| cell.cell.update_percent,
            updates,
        );
        lines.draw(&curves, |_, _| {})
    };
    groups(cells, &vary).iter().filter_map(draw).collect()
}
