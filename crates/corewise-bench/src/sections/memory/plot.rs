//! Bytes per entry by size, and bytes over time while a table is churned.

use crate::plot::Plot;
use crate::plot::chart::{Curve, Spot, WIDTH};
use crate::plot::group::{Group, describe, groups};
use crate::plot::lanes::{LANE, LEFT, panel};
use crate::plot::lines::{Axis, Lines};
use crate::plot::style::Looks;
use crate::plot::svg::{Anchor, Canvas, Frame, Scale, bytes, count, extent, plain, ticks_as};
use crate::results::{CellResults, Results, RowResults};
use crate::sections::memory::{Garbage, MemoryPoint};

/// A panel: its name, the bytes of a point, and the most while filling.
type Measure = (
    &'static str,
    fn(&MemoryPoint) -> Option<u64>,
    fn(&MemoryPoint) -> Option<u64>,
);

const MEASURES: [Measure; 2] = [
    ("live bytes", |p| p.live_bytes, |p| p.peak_live_bytes),
    (
        "resident bytes",
        |p| Some(p.resident_bytes),
        |p| Some(p.peak_resident_bytes),
    ),
];

const GAP: f64 = 30.0;
/// Height of a block without its lanes.
const AROUND: f64 = 66.0;

/// The right end of the scale for a payload of 16 bytes: what tables differ in lies below.
const MOST_EACH: f64 = 100.0;

/// A table at a size.
type Placed<'a> = (&'a RowResults, MemoryPoint);

/// A plot for each workload that has memory by size.
pub(crate) fn plots(results: &Results, looks: &Looks) -> Vec<Plot> {
    let has = |cell: &&CellResults| cell.rows.iter().any(|row| row.has::<MemoryPoint>());
    let groups = groups(results.cells().filter(has), &["initial", "range"]);
    groups
        .iter()
        .filter_map(|group| plot(group, looks))
        .collect()
}

fn plot(group: &Group<'_>, looks: &Looks) -> Option<Plot> {
    let blocks = blocks(group, looks);
    let (_, first) = blocks.first()?;
    let (_, point) = first.first()?;
    let payload = point.payload_bytes as f64 / point.entries as f64;
    let most = (MOST_EACH * payload / 16.0).max(MOST_EACH);
    let x = Scale::linear((payload / 10.0).floor() * 10.0, most);
    let width = (WIDTH - LEFT - 14.0 - GAP) / 2.0;
    let mut canvas = Canvas::default();
    let mut top = 0.0;
    for (entries, placed) in &blocks {
        let heading = format!("{} entries", count(*entries));
        canvas.text("panel", (4.0, top + 16.0), Anchor::Start, &heading);
        let height = LANE * placed.len() as f64;
        for (at, measure) in MEASURES.iter().enumerate() {
            let frame = Frame {
                left: LEFT + (width + GAP) * at as f64,
                top: top + 24.0,
                width,
                height,
                x,
                y: Scale::linear(0.0, 1.0),
            };
            let x = frame.x(payload);
            let line = crate::plot::svg::through(&[(x, frame.top), (x, frame.bottom())]);
            canvas.path("guide payload", &line, "keys and values alone");
            let heading = (measure.0, &*ticks_as(&frame.x, 5, plain));
            let rows = (placed.iter().map(|(row, _)| *row), looks);
            let mut points = placed.iter().map(|(_, point)| point);
            panel(&mut canvas, &frame, heading, rows, |canvas, y, row| {
                if let Some(point) = points.next() {
                    marks(canvas, (&frame, y), (measure, row, point), looks);
                }
            });
        }
        top += height + AROUND;
    }
    Some(Plot {
        kind: "memory",
        title: format!("Memory of an entry: {}", title(group)),
        note: format!(
            "Bytes per entry. The line ends at the most while the table was filled; an arrow is a value \
             beyond the scale. Keys and values alone take {} B, the dashed line.",
            plain((payload * 10.0).round() / 10.0)
        ),
        height: top - 8.0,
        body: canvas.out,
    })
}

fn title(group: &Group<'_>) -> String {
    let cell = group.cells.first();
    let vary = ["initial", "range", "update_percent", "distribution"];
    cell.map_or(String::new(), |cell| describe(cell, &vary))
}

/// Returns the valid tables at each size, the most frugal first; the greatest size first.
fn blocks<'a>(group: &Group<'a>, looks: &Looks) -> Vec<(u64, Vec<Placed<'a>>)> {
    let mut blocks: Vec<(u64, Vec<Placed<'a>>)> = Vec::new();
    for (_, row) in group.rows().filter(|(_, row)| !row.void()) {
        for point in row.details::<MemoryPoint>().filter(|p| p.entries > 0) {
            match blocks.iter_mut().find(|(size, _)| *size == point.entries) {
                Some((_, placed)) => placed.push((row, point)),
                None => blocks.push((point.entries, vec![(row, point)])),
            }
        }
    }
    blocks.sort_by_key(|(entries, _)| std::cmp::Reverse(*entries));
    for (_, placed) in &mut blocks {
        let taken = |p: &MemoryPoint| p.live_bytes.unwrap_or(p.resident_bytes);
        placed.sort_by_key(|(row, point)| (taken(point), looks.place(&row.label)));
    }
    blocks
}

/// Draws the bytes of a table, and a line to the most while it was filled.
fn marks(
    canvas: &mut Canvas,
    (frame, y): (&Frame, f64),
    ((name, taken, most), row, point): (&Measure, &RowResults, &MemoryPoint),
    looks: &Looks,
) {
    let each = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 / point.entries as f64);
    let Some(value) = each(taken(point)) else {
        return;
    };
    let most = each(most(point)).unwrap_or(value).max(value);
    let title = format!(
        "{}, {} entries: {value:.1} B per entry ({name}), {most:.1} B at most while filling",
        row.label,
        count(point.entries)
    );
    let (_, end) = frame.x.ends();
    if value > end {
        let text = format!("{value:.0} B →");
        canvas.text("value", (frame.right(), y + 4.0), Anchor::End, &text);
        return;
    }
    canvas.line("reach", (frame.x(value), y), (frame.x(most.min(end)), y));
    let shape = looks.look(row).shape();
    canvas.mark(shape, "median", (frame.x(value), y), 4.6, &title);
}

/// A plot for each cell that has memory over time.
pub(crate) fn garbage(results: &Results, looks: &Looks) -> Vec<Plot> {
    let draw = |cell| garbage_plot(cell, looks);
    results.cells().filter_map(draw).collect()
}

fn garbage_plot(cell: &CellResults, looks: &Looks) -> Option<Plot> {
    let rows = cell.rows.iter().filter(|row| row.has::<Garbage>());
    let curves: Vec<Curve> = rows.map(|row| churn(row, looks)).collect();
    let spots = || curves.iter().flat_map(Curve::values);
    let (low, high) = extent(spots().map(|(_, bytes)| bytes))?;
    let (low, high) = (low.min(0.0), high.max(1.0));
    let pad = (high - low) * 0.05;
    let scale = Scale::linear(low - if low < 0.0 { pad } else { 0.0 }, high + pad);
    let length = spots().map(|(ms, _)| ms).fold(1.0, f64::max);
    let lines = Lines {
        kind: "garbage",
        title: format!("Memory while churned: {}", describe(cell, &[])),
        note:
            "Bytes more than before the churn, the number of entries being steady. The mark at the \
               end is what is left after the table has settled."
                .to_owned(),
        x: Axis::Over(Scale::linear(0.0, length * 1.03), |ms| plain(ms / 1e3)),
        x_title: "time (s)",
        values: Some((scale, byte_ticks(&scale), "")),
    };
    lines.draw(&curves, |_, _| {})
}

/// Returns ticks at powers of two.
fn byte_ticks(scale: &Scale) -> Vec<(f64, String)> {
    let (low, high) = scale.ends();
    let rough = (high - low) / 6.0;
    let step = 2f64.powf(rough.max(1.0).log2().ceil());
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    let ticks = (first..=last).map(|at| at as f64 * step);
    ticks.map(|value| (value, bytes(value))).collect()
}

/// The churn of a table in its first repetition: a line, and a mark at its end.
fn churn(row: &RowResults, looks: &Looks) -> Curve {
    let mut curve = Curve::new(looks.look(row), &row.label);
    if row.void() {
        curve
            .voids
            .push((0.0, row.problem().unwrap_or_default().to_owned()));
        return curve;
    }
    let spot = |ms: f64, bytes: f64, text: String| Spot {
        at: (ms, bytes),
        text,
    };
    if let Some(garbage) = row.details::<Garbage>().next() {
        let samples = garbage.over_bytes.iter().enumerate();
        let at = |index: usize| garbage.interval_ms * index as f64;
        let sample = |(index, over): (usize, &i64)| spot(at(index), *over as f64, String::new());
        curve.medians = samples.map(sample).collect();
        let settled = garbage.settled_bytes as f64;
        let text = format!(
            "{}: {} left after settling ({})",
            row.label,
            bytes(settled),
            garbage.source
        );
        let end = at(garbage.over_bytes.len().saturating_sub(1));
        curve.medians.push(spot(end, settled, text));
    }
    curve
}
