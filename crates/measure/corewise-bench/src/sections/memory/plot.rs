//! Bytes per entry by size.

use crate::plot::Plot;
use crate::plot::dots::{Dots, Lane};
use crate::plot::group::{Group, describe, groups};
use crate::plot::style::Looks;
use crate::plot::svg::{Scale, count, plain, ticks_as};
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
