//! Latencies as dots: the median, 99 % and 99.9 % of each table, a panel for each operation; in
//! closed and in open loop.

use maud::{Markup, html};

use crate::latencies::OUTCOMES;
use crate::plot::Plot;
use crate::plot::chart::WIDTH;
use crate::plot::group::describe;
use crate::plot::numbers::table;
use crate::plot::style::Looks;
use crate::plot::svg::{
    Anchor, Canvas, Frame, Scale, Shape, Tick, extent, grouped, shorten, ticks_as, time,
};
use crate::record::{Histogram, Role};
use crate::results::{CellResults, Results, RowResults, distinct};

/// The percentiles that are shown, by their names in results, and the samples that they need.
const PERCENTILES: [(&str, u64); 3] = [("50", 1), ("99", 100), ("99.9", 1_000)];

/// Left edge of the first panel of a line; names stand on its left.
const LEFT: f64 = 150.0;
/// Height of a lane.
const LANE: f64 = 16.0;
/// Width between two panels.
const GAP: f64 = 42.0;
/// Height of a panel without its lanes.
const AROUND: f64 = 64.0;

/// A plot for each cell that has latencies, in open or in closed loop.
pub(crate) fn plots(
    results: &Results,
    looks: &Looks,
    what: (&'static str, &str),
    open: bool,
) -> Vec<Plot> {
    let cells = results.cells();
    let cells = cells.filter(|cell| (cell.cell.mode == "open") == open);
    cells.filter_map(|cell| plot(cell, looks, what)).collect()
}

fn plot(cell: &CellResults, looks: &Looks, (kind, what): (&'static str, &str)) -> Option<Plot> {
    let timed = cell.rows.iter().filter(|row| row.row.role != Role::Null);
    let timed = timed.filter(|row| !row.histograms.is_empty());
    let mut rows: Vec<&RowResults> = timed.collect();
    rows.sort_by_key(|row| looks.place(&row.label));
    let operations = operations(&rows);
    if operations.is_empty() {
        return None;
    }
    let valid = rows.iter().filter(|row| !row.void());
    let times = valid.flat_map(|row| &row.histograms).flat_map(percentiles);
    let (least, most) = extent(times.flatten()).unwrap_or((10.0, 1e4));
    let x = Scale::log(least / 1.2, most * 1.2);
    let mut canvas = Canvas::default();
    let columns = operations.len().min(2);
    let width = (WIDTH - LEFT - 14.0 - GAP * (columns - 1) as f64) / columns as f64;
    let height = rows.len() as f64 * LANE;
    let ticks = ticks_as(&x, 4, time);
    for (at, operation) in operations.iter().enumerate() {
        let (column, line) = (at % columns, at / columns);
        let frame = Frame {
            left: LEFT + (width + GAP) * column as f64,
            top: 22.0 + (height + AROUND) * line as f64,
            width,
            height,
            x,
            y: Scale::linear(0.0, 1.0),
        };
        panel(&mut canvas, (&frame, &ticks), operation, &rows, looks);
    }
    let lines = operations.len().div_ceil(columns);
    Some(Plot {
        kind,
        title: format!("{what}: {}", describe(cell, &[])),
        note: note(&rows),
        height: 22.0 + (height + AROUND) * lines as f64 - 20.0,
        body: canvas.out,
    })
}

fn note(rows: &[&RowResults]) -> String {
    let valid = rows.iter().filter(|row| !row.void());
    let samples: u64 = valid
        .flat_map(|r| &r.histograms)
        .map(|h| h.count)
        .fold(0, u64::saturating_add);
    format!(
        "{} operations timed. The large mark is the median, the dot 99 %, the ring 99.9 %; the scale is \
         logarithmic. A percentile without enough samples is left out.",
        grouped(samples)
    )
}

/// Returns the operations that were timed, in display order.
fn operations<'a>(rows: &[&'a RowResults]) -> Vec<&'a str> {
    let histograms = rows.iter().flat_map(|row| &row.histograms);
    let timed = histograms.filter(|histogram| histogram.count > 0);
    let mut found = distinct(timed.map(|histogram| &*histogram.operation));
    found.sort_by_key(|name| place(name));
    found
}

/// Returns the rank of an operation in the display order; all together come last.
fn place(operation: &str) -> usize {
    let known = OUTCOMES.iter().position(|known| *known == operation);
    known.unwrap_or(OUTCOMES.len())
}

/// Draws the panel of an operation, with a lane for each row.
fn panel(
    canvas: &mut Canvas,
    (frame, ticks): (&Frame, &[Tick]),
    operation: &str,
    rows: &[&RowResults],
    looks: &Looks,
) {
    canvas.open("smallmultiple");
    frame.x_grid(canvas, ticks);
    frame.axes(canvas, (ticks, &[]), ("", ""));
    let above = (frame.left, frame.top - 7.0);
    canvas.text("panel", above, Anchor::Start, operation);
    for (lane, row) in rows.iter().enumerate() {
        let y = frame.top + LANE * (lane as f64 + 0.5);
        canvas.open(&looks.look(row).class());
        if frame.left <= LEFT {
            let class = if row.void() { "gone" } else { "label" };
            let name = shorten(&row.label, 20);
            canvas.text(class, (LEFT - 10.0, y + 4.0), Anchor::End, &name);
        }
        let mut histograms = row.histograms.iter();
        if row.void() {
            let why = row.problem().unwrap_or_default();
            let size = (frame.width, 10.0);
            canvas.rect("hatched void", (frame.left, y - 5.0), size, why);
        } else if let Some(histogram) = histograms.find(|of| of.operation == operation) {
            marks(canvas, (frame, y), histogram, (row, looks));
        }
        canvas.close();
    }
    canvas.close();
}

/// Draws the percentiles of a histogram, with a tooltip.
fn marks(
    canvas: &mut Canvas,
    (frame, y): (&Frame, f64),
    histogram: &Histogram,
    (row, looks): (&RowResults, &Looks),
) {
    let [median, tail, far] = percentiles(histogram);
    let Some(median) = median else { return };
    let end = far.or(tail).unwrap_or(median);
    canvas.line("reach", (frame.x(median), y), (frame.x(end), y));
    let named = PERCENTILES.iter().zip([Some(median), tail, far]);
    let named = named.filter_map(|((name, _), ns)| Some(format!("{name} % {}", time(ns?))));
    let title = format!(
        "{}, {}: {} (mean {}, greatest {}, {} samples)",
        row.label,
        histogram.operation,
        named.collect::<Vec<_>>().join(", "),
        time(histogram.mean_ns),
        time(histogram.max_ns),
        histogram.count
    );
    for (ns, class) in [(tail, "bars"), (far, "open")] {
        if let Some(ns) = ns {
            canvas.mark(Shape::Circle, class, (frame.x(ns), y), 3.2, &title);
        }
    }
    let shape = looks.look(row).shape();
    canvas.mark(shape, "median", (frame.x(median), y), 4.6, &title);
}

/// Returns the shown percentiles of a histogram in nanoseconds, as far as it has samples for them.
fn percentiles(histogram: &Histogram) -> [Option<f64>; 3] {
    PERCENTILES.map(|(name, samples)| {
        let ns = histogram.percentiles_ns.get(name);
        ns.filter(|_| histogram.count >= samples)
            .map(|ns| ns.max(1.0))
    })
}

/// Returns the percentiles of a row's lookups, or of all its operations, in a line; `–` if its
/// operations were not timed.
pub(crate) fn line(row: &RowResults) -> String {
    let of = |name: &str| row.histograms.iter().find(|of| of.operation == name);
    let Some(histogram) = of("get hit").or_else(|| of("all")) else {
        return "–".to_owned();
    };
    let shown = percentiles(histogram).map(|ns| ns.map_or("–".to_owned(), time));
    shown.join(" / ")
}

/// The percentiles as numbers, in open or in closed loop, a table for each cell.
pub(crate) fn summaries(results: &Results, looks: &Looks, open: bool) -> Markup {
    const HEADS: [&str; 6] = ["table", "operation", "median", "99 %", "99.9 %", "samples"];
    let cells = results.cells();
    let cells = cells.filter(|cell| (cell.cell.mode == "open") == open);
    let cells = cells.map(|cell| (describe(cell, &[]), lines(cell, looks)));
    let cells: Vec<_> = cells.filter(|(_, lines)| !lines.is_empty()).collect();
    html! {
        @if !cells.is_empty() {
            details {
                summary { "Latencies as numbers" }
                @for (workload, lines) in &cells {
                    p.sub { (workload) }
                    (table("numbers", &HEADS, lines))
                }
            }
        }
    }
}

/// The percentiles of a cell, by operation and table.
fn lines(cell: &CellResults, looks: &Looks) -> Vec<Vec<String>> {
    let mut lines: Vec<(usize, usize, Vec<String>)> = Vec::new();
    for row in cell.rows.iter().filter(|row| !row.void()) {
        for histogram in row.histograms.iter().filter(|of| of.count > 0) {
            let operation = &histogram.operation;
            let mut line = vec![row.label.clone(), operation.clone()];
            let ns = percentiles(histogram);
            line.extend(ns.map(|ns| ns.map_or("–".to_owned(), time)));
            line.push(histogram.count.to_string());
            lines.push((place(operation), looks.place(&row.label), line));
        }
    }
    lines.sort();
    lines.into_iter().map(|(.., line)| line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(count: u64) -> Histogram {
        Histogram {
            cell: String::new(),
            table: String::new(),
            operation: "get hit".into(),
            count,
            mean_ns: 1.0,
            min_ns: 1.0,
            max_ns: 1.0,
            percentiles_ns: [("50", 70.0), ("99", 100.0), ("99.9", 900.0)]
                .map(|(name, ns)| (name.to_owned(), ns))
                .into(),
            buckets: Vec::new(),
        }
    }

    #[test]
    fn percentiles_need_enough_samples() {
        assert_eq!(percentiles(&histogram(99)), [Some(70.0), None, None]);
        assert_eq!(
            percentiles(&histogram(100)),
            [Some(70.0), Some(100.0), None]
        );
        let all = [Some(70.0), Some(100.0), Some(900.0)];
        assert_eq!(percentiles(&histogram(1000)), all);
    }
}
