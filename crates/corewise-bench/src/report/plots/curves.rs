//! Latency percentiles.

use super::{BOTTOM, LEFT, LEGEND, TOP, WIDTH, begin, height_for, names};
use crate::record::{Histogram, Row};
use crate::report::svg::{Frame, Scale, duration};
use crate::report::{Looks, Plot, plotted, words};
use crate::results::Results;

/// Beyond this, percentiles are not drawn: 99.999 %.
const LAST: f64 = 1e5;

/// One plot for each cell of a section, with a field for each operation.
pub(super) fn percentiles(results: &Results, looks: &Looks, section: &'static str) -> Vec<Plot> {
    let rows = plotted(results, section);
    let mut cells: Vec<&Row> = Vec::new();
    for row in &rows {
        if !cells.iter().any(|other| other.cell.id == row.cell.id) {
            cells.push(row);
        }
    }
    cells
        .into_iter()
        .enumerate()
        .filter_map(|(number, row)| one(results, looks, section, number, row))
        .collect()
}

fn one(
    results: &Results,
    looks: &Looks,
    section: &'static str,
    number: usize,
    row: &Row,
) -> Option<Plot> {
    let wanted = |h: &&Histogram| {
        let held = results
            .rows
            .iter()
            .any(|r| r.cell.id == h.cell && r.table == h.table && super::super::is_plotted(r));
        h.cell == row.cell.id
            && held
            && (section != "paced" || h.operation == "all")
            && h.count >= 20
    };
    let histograms: Vec<&Histogram> = results.histograms.iter().filter(wanted).collect();
    let mut operations: Vec<&str> = Vec::new();
    let mut tables: Vec<String> = Vec::new();
    for histogram in &histograms {
        if !operations.contains(&histogram.operation.as_str()) {
            operations.push(&histogram.operation);
        }
        if !tables.contains(&histogram.table) {
            tables.push(histogram.table.clone());
        }
    }
    if operations.is_empty() {
        return None;
    }
    let (columns, each) = if operations.len() == 1 {
        (1, height_for(tables.len()))
    } else {
        (2, 260.0)
    };
    let lines = operations.len().div_ceil(columns);
    let height = (lines as f64 * each).max(height_for(tables.len()));
    let what = words(&row.cell, &[]);
    let rate = row
        .cell
        .rate_per_s
        .map(|rate| format!(" at {:.2} M operations/s", rate / 1e6))
        .unwrap_or_default();
    let mut plot = begin(
        section,
        number,
        format!("Latency percentiles{rate}: {what}"),
        height,
    );
    let width = (WIDTH - LEGEND) / columns as f64;
    let y = Scale::log(histograms.iter().flat_map(|h| {
        [
            h.percentiles_ns["50"].min(h.mean_ns),
            h.percentiles_ns["99.99"],
        ]
    }));
    for (at, operation) in operations.iter().enumerate() {
        let corner = (
            (at % columns) as f64 * width + LEFT,
            (at / columns) as f64 * each + TOP + 10.0,
        );
        let frame = Frame {
            corner,
            size: (width - LEFT - 12.0, each - TOP - BOTTOM - 10.0),
            x: Scale::Log(1.0, LAST),
            y: y.clone(),
        };
        let mine = histograms
            .iter()
            .filter(|h| h.operation == *operation)
            .copied();
        field(&mut plot, looks, &frame, operation, mine);
    }
    names(&mut plot, looks, &tables);
    plot.note = match section {
        "paced" => "From the moment an operation was due to its end; all operations together.".into(),
        _ => "A sample of the operations at full load; the cost of timing is measured and subtracted.".into(),
    };
    Some(plot)
}

fn field<'h>(
    plot: &mut Plot,
    looks: &Looks,
    frame: &Frame,
    operation: &str,
    histograms: impl Iterator<Item = &'h Histogram>,
) {
    let percent = |x: f64| match 100.0 - 100.0 / x {
        p if p <= 0.0 => "0".into(),
        p => format!("{}", (p * 1e4).round() / 1e4),
    };
    frame.draw_with(&mut plot.svg, ("percentile", ""), &percent, &duration);
    plot.svg.text(
        "title",
        (frame.corner.0 + 4.0, frame.corner.1 - 3.0),
        "start",
        operation,
    );
    for histogram in histograms {
        plot.svg
            .path(looks.of_table(&histogram.table), &curve(histogram, frame));
    }
}

/// The points of a histogram's curve, thinned to what can be seen.
fn curve(histogram: &Histogram, frame: &Frame) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut below = 0;
    for &(ns, count) in &histogram.buckets {
        let x = histogram.count as f64 / (histogram.count - below).max(1) as f64;
        below += count;
        if x > LAST {
            break;
        }
        let at = frame.at(x, ns as f64);
        if points
            .last()
            .is_none_or(|last| (at.0 - last.0).abs() + (at.1 - last.1).abs() > 0.8)
        {
            points.push(at);
        }
    }
    points
}
