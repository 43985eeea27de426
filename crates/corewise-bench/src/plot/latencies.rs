//! Latencies by percentile, a panel for each operation; in closed and in open loop.

use crate::plot::Plot;
use crate::plot::chart::{WIDTH, legend};
use crate::plot::group::describe;
use crate::plot::style::Looks;
use crate::plot::svg::{Anchor, Canvas, Frame, Point, Scale, Tick, extent, grouped, time};
use crate::record::Histogram;
use crate::results::{CellResults, Results, RowResults};

/// Operations in display order.
const OPERATIONS: [&str; 7] = [
    "get hit",
    "get miss",
    "insert ok",
    "insert fail",
    "remove ok",
    "remove fail",
    "all",
];

const PERCENTILES: [(f64, &str); 5] = [
    (1.0, "0"),
    (10.0, "90"),
    (100.0, "99"),
    (1_000.0, "99.9"),
    (10_000.0, "99.99"),
];

const LEFT: f64 = 74.0;
const GAP: f64 = 30.0;
const PANEL: f64 = 200.0;

/// A plot for each cell that has latencies, in open or in closed loop.
pub(crate) fn plots(
    results: &Results,
    looks: &Looks,
    what: (&'static str, &str),
    open: bool,
) -> Vec<Plot> {
    let cells = results.cells();
    let of_mode = cells.filter(|cell| (cell.cell.mode == "open") == open);
    of_mode.filter_map(|cell| plot(cell, looks, what)).collect()
}

fn plot(cell: &CellResults, looks: &Looks, (kind, what): (&'static str, &str)) -> Option<Plot> {
    let rows: Vec<&RowResults> = cell
        .rows
        .iter()
        .filter(|r| !r.histograms.is_empty())
        .collect();
    let operations = operations(&rows);
    if operations.is_empty() {
        return None;
    }
    let valid = rows.iter().filter(|row| !row.void());
    let curves = valid.flat_map(|row| &row.histograms).map(curve);
    let times = curves.flatten().map(|(_, ns)| ns);
    let (least, most) = extent(times).unwrap_or((10.0, 1e4));
    let y = Scale::log(least / 1.2, most * 1.2);
    let mut canvas = Canvas::default();
    let entries: Vec<_> = rows
        .iter()
        .map(|row| (row.label.clone(), looks.look(row), row.void()))
        .collect();
    let top = legend(&mut canvas, (LEFT, 14.0), &entries) + 26.0;
    let columns = operations.len().min(3);
    let width = (WIDTH - LEFT - 14.0 - GAP * (columns - 1) as f64) / columns as f64;
    for (at, operation) in operations.iter().enumerate() {
        let (column, line) = (at % columns, at / columns);
        let frame = Frame {
            left: LEFT + (width + GAP) * column as f64,
            top: top + (PANEL + 76.0) * line as f64,
            width,
            height: PANEL,
            x: Scale::log(1.0, 12_000.0),
            y,
        };
        panel(
            &mut canvas,
            &frame,
            (operation, column == 0),
            (&rows, looks),
        );
    }
    let lines = operations.len().div_ceil(columns);
    Some(Plot {
        kind,
        title: format!("{what}: {}", describe(cell, &[])),
        note: note(&rows),
        height: top + (PANEL + 76.0) * lines as f64 - 20.0,
        body: canvas.out,
    })
}

fn note(rows: &[&RowResults]) -> String {
    let valid = rows.iter().filter(|row| !row.void());
    let samples: u64 = valid.flat_map(|r| &r.histograms).map(|h| h.count).sum();
    let samples = grouped(samples);
    format!(
        "{samples} operations timed. A curve at 99 says how long all but the slowest hundredth took \
         at most; curves end where there are no samples left to tell."
    )
}

fn operations(rows: &[&RowResults]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for histogram in rows.iter().flat_map(|row| &row.histograms) {
        if !found.contains(&histogram.operation) {
            found.push(histogram.operation.clone());
        }
    }
    let place = |name: &String| OPERATIONS.iter().position(|known| known == name);
    found.sort_by_key(|name| place(name).unwrap_or(OPERATIONS.len()));
    found
}

fn panel(
    canvas: &mut Canvas,
    frame: &Frame,
    (operation, first): (&str, bool),
    (rows, looks): (&[&RowResults], &Looks),
) {
    canvas.open("smallmultiple");
    let ticks: Vec<Tick> = PERCENTILES.map(|(x, label)| (x, label.to_owned())).into();
    let mut times = crate::plot::svg::ticks_as(&frame.y, 5, time);
    if !first {
        times.iter_mut().for_each(|(_, label)| label.clear());
    }
    let y_title = if first { "latency" } else { "" };
    for (x, _) in &ticks {
        canvas.line(
            "grid",
            (frame.x(*x), frame.top),
            (frame.x(*x), frame.bottom()),
        );
    }
    frame.axes(
        canvas,
        (&ticks, &times),
        ("percentile of operations", y_title),
    );
    let at = (frame.left, frame.top - 8.0);
    canvas.text("panel", at, Anchor::Start, operation);
    for row in rows.iter().filter(|row| !row.void()) {
        let of_operation = row.histograms.iter().filter(|h| h.operation == operation);
        for histogram in of_operation {
            canvas.open(&looks.look(row).class());
            let points: Vec<_> = curve(histogram).into_iter().map(|p| frame.at(p)).collect();
            canvas.polyline("curve", &points);
            marks(canvas, frame, histogram, (row, looks));
            canvas.close();
        }
    }
    canvas.close();
}

/// Draws marks at the named percentiles, with tooltips.
fn marks(
    canvas: &mut Canvas,
    frame: &Frame,
    histogram: &Histogram,
    (row, looks): (&RowResults, &Looks),
) {
    let points = curve(histogram);
    let look = looks.look(row);
    for (x, label) in PERCENTILES.iter().skip(1) {
        let reached = points.iter().find(|(at, _)| (at / x - 1.0).abs() < 1e-6);
        if let Some((_, ns)) = reached {
            let title = format!(
                "{}, {}: {label} % within {} (mean {}, greatest {}, {} samples)",
                row.label,
                histogram.operation,
                time(*ns),
                time(histogram.mean_ns),
                time(histogram.max_ns),
                histogram.count
            );
            canvas.mark(look.shape(), "median", frame.at((*x, *ns)), 3.8, &title);
        }
    }
}

/// Returns 1/(1-p) and the latency there, at even steps, as far as there are samples.
fn curve(histogram: &Histogram) -> Vec<Point> {
    const STEPS: i32 = 40;
    let total: u64 = histogram.buckets.iter().map(|(_, samples)| samples).sum();
    if total == 0 {
        return from_percentiles(histogram);
    }
    let mut buckets = histogram.buckets.clone();
    buckets.sort_unstable();
    let xs = (0..=4 * STEPS).map(|at| 10f64.powf(f64::from(at) / f64::from(STEPS)));
    let mut curve = Vec::new();
    let (mut at, mut passed) = (0, buckets[0].1);
    for x in xs.take_while(|x| *x <= total as f64) {
        let wanted = ((1.0 - 1.0 / x) * total as f64).ceil().max(1.0) as u64;
        while passed < wanted && at + 1 < buckets.len() {
            at += 1;
            passed += buckets[at].1;
        }
        curve.push((x, (buckets[at].0 as f64).max(1.0)));
    }
    curve
}

fn from_percentiles(histogram: &Histogram) -> Vec<Point> {
    let named = histogram.percentiles_ns.iter().filter_map(|(name, ns)| {
        let percent: f64 = name.parse().ok()?;
        (percent < 100.0).then(|| (100.0 / (100.0 - percent), ns.max(1.0)))
    });
    let mut points: Vec<Point> = named.collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}
