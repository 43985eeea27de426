//! The plots, one file for each kind.

mod categories;
mod curves;
mod growth;
mod heat;
mod lines;
mod memory;

use crate::report::svg::{Frame, Scale, Svg};
use crate::report::{Looks, Plot};
use crate::results::Results;

/// Width of a plot.
const WIDTH: f64 = 880.0;
/// Room for names to the right.
const LEGEND: f64 = 176.0;
/// Room for the axis to the left, and above and below.
const LEFT: f64 = 62.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 48.0;

/// Every plot that the results have data for.
pub(super) fn all(results: &Results) -> Vec<Plot> {
    let looks = Looks::of(results);
    let kinds: [fn(&Results, &Looks) -> Vec<Plot>; 12] = [
        lines::scaling,
        heat::updates,
        lines::workingset,
        |r, l| categories::by(r, l, "distribution"),
        |r, l| categories::by(r, l, "resizing"),
        |r, l| categories::by(r, l, "pinning"),
        |r, l| categories::by(r, l, "sync"),
        |r, l| curves::percentiles(r, l, "latency"),
        |r, l| curves::percentiles(r, l, "paced"),
        growth::timelines,
        memory::entries,
        memory::garbage,
    ];
    kinds
        .iter()
        .flat_map(|kind| kind(results, &looks))
        .collect()
}

/// A plot that is not drawn yet; `number` counts those of its kind.
fn begin(kind: &'static str, number: usize, title: String, height: f64) -> Plot {
    Plot {
        id: format!("plot-{kind}-{number}"),
        kind,
        title,
        note: String::new(),
        svg: Svg::new(WIDTH, height),
    }
}

/// A field that leaves room for the axes and the names.
fn frame(height: f64, x: Scale, y: Scale) -> Frame {
    Frame {
        corner: (LEFT, TOP),
        size: (WIDTH - LEFT - LEGEND, height - TOP - BOTTOM),
        x,
        y,
    }
}

/// A height that so many names fit into.
fn height_for(names: usize) -> f64 {
    (names as f64 * 17.0 + 30.0).max(320.0)
}

/// Names with their looks, beside a field.
fn names(plot: &mut Plot, looks: &Looks, tables: &[String]) {
    let named: Vec<_> = tables
        .iter()
        .map(|name| (name.clone(), looks.of_table(name)))
        .collect();
    plot.svg.legend((WIDTH - LEGEND + 16.0, TOP + 8.0), &named);
}

/// Millions per second.
fn mops(rate: f64) -> f64 {
    rate / 1e6
}
