//! Bytes per entry by size, and bytes over time while a table is churned.

use crate::plot::Plot;
use crate::plot::chart::{Curve, Spot};
use crate::plot::dots::{Dots, Lane};
use crate::plot::group::{Group, describe, groups};
use crate::plot::lines::{Axis, Lines};
use crate::plot::style::Looks;
use crate::plot::svg::{Scale, bytes, count, extent, plain, ticks_as};
use crate::record::Interval;
use crate::results::{CellResults, Results, RowResults, by_key};
use crate::sections::memory::MemoryPoint;

/// The bytes of a point, and the most while filling, by name.
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

/// The right end of the scale for a payload of 16 bytes: what tables differ in lies below.
const MOST_EACH: f64 = 100.0;

/// A plot for each workload that has memory by size.
pub(crate) fn plots(results: &Results, looks: &Looks) -> Vec<Plot> {
    let has = |cell: &&CellResults| cell.rows.iter().any(|row| !row.memory.is_empty());
    let groups = groups(results.cells().filter(has), &["initial", "range"]);
    groups
        .iter()
        .filter_map(|group| plot(group, looks))
        .collect()
}

fn plot(group: &Group<'_>, looks: &Looks) -> Option<Plot> {
    let valid = group.rows().filter(|(_, row)| !row.void());
    let points = valid.flat_map(|(_, row)| row.memory.iter().map(move |point| (row, point)));
    let points = points.filter(|(_, point)| point.entries > 0);
    let mut sizes = by_key(points.map(|(row, point)| (point.entries, (row, point))));
    sizes.sort_by_key(|(entries, _)| std::cmp::Reverse(*entries));
    let (entries, points) = sizes.first()?;
    let payload = points[0].1.payload_bytes as f64 / *entries as f64;
    let x = Scale::linear(
        (payload / 10.0).floor() * 10.0,
        (MOST_EACH * payload / 16.0).max(MOST_EACH),
    );
    let blocks = sizes.iter().flat_map(|(entries, points)| {
        let heading = |name| format!("{} entries: {name}", count(*entries));
        MEASURES.map(|of| (heading(of.0), lanes(points, &of, looks)))
    });
    let blocks: Vec<_> = blocks.collect();
    let vary = ["initial", "range", "update_percent", "distribution"];
    let plot = Dots {
        kind: "memory",
        title: format!("Memory of an entry: {}", describe(group.cells[0], &vary)),
        note: format!(
            "Bytes per entry. The line ends at the most while the table was filled; a mark at the right \
             edge may be beyond the scale. Keys and values alone take {} B, the dashed line.",
            plain((payload * 10.0).round() / 10.0)
        ),
        x,
        ticks: ticks_as(&x, 5, plain),
        x_title: "bytes per entry",
        text: |each| format!("{each:.1} B"),
        guide: Some((payload, "keys and values alone")),
    };
    plot.draw(&blocks, looks)
}

/// The tables at a size, the most frugal first.
fn lanes<'a>(
    points: &[(&'a RowResults, &MemoryPoint)],
    measure: &Measure,
    looks: &Looks,
) -> Vec<Lane<'a>> {
    let lanes = points.iter();
    let lanes = lanes.filter_map(|(row, point)| lane(row, point, measure));
    let mut lanes: Vec<_> = lanes.collect();
    let bytes = |lane: &Lane<'_>| lane.all.as_ref().map_or(0.0, |(all, _)| all.value);
    let place = |lane: &Lane<'_>| looks.place(&lane.row.label);
    lanes.sort_by(|a, b| bytes(a).total_cmp(&bytes(b)).then(place(a).cmp(&place(b))));
    lanes
}

/// The bytes of a table, with a line to the most while it was filled.
fn lane<'a>(row: &'a RowResults, point: &MemoryPoint, measure: &Measure) -> Option<Lane<'a>> {
    let (name, taken, most) = measure;
    let each = |bytes: u64| bytes as f64 / point.entries as f64;
    let value = each(taken(point)?);
    let high = most(point).map_or(value, each).max(value);
    let title = format!(
        "{}, {} entries: {value:.1} B per entry ({name}), {high:.1} B at most while filling",
        row.label,
        count(point.entries)
    );
    let low = value;
    Some(Lane {
        row,
        dots: Vec::new(),
        all: Some((Interval { value, low, high }, title)),
    })
}

/// A plot for each cell that has memory over time.
pub(crate) fn garbage(results: &Results, looks: &Looks) -> Vec<Plot> {
    let draw = |cell| garbage_plot(cell, looks);
    results.cells().filter_map(draw).collect()
}

fn garbage_plot(cell: &CellResults, looks: &Looks) -> Option<Plot> {
    let rows = cell.rows.iter().filter(|row| !row.garbage.is_empty());
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
        curve.add_void(0.0, row);
        return curve;
    }
    let spot = |ms: f64, bytes: f64, text: String| Spot {
        at: (ms, bytes),
        text,
    };
    if let Some(garbage) = row.garbage.first() {
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
