//! Bytes per entry by size, and bytes over time while a table is churned.

use maud::{Markup, html};

use crate::plot::Plot;
use crate::plot::chart::{self, Curve, NAMES, Spot, WIDTH, legend};
use crate::plot::group::{Group, describe, groups};
use crate::plot::numbers::numbers;
use crate::plot::style::Looks;
use crate::plot::svg::{
    Anchor, Canvas, Frame, Scale, bytes, count, count_tick, extent, plain, ticks_as,
};
use crate::results::{CellResults, Results, RowResults};
use crate::sections::memory::{Garbage, MemoryPoint};

/// A panel: its name and its value of a point.
type Measure = (&'static str, fn(&MemoryPoint) -> Option<u64>);

const MEASURES: [Measure; 4] = [
    ("live bytes", |p| p.live_bytes),
    ("live bytes, most while filling", |p| p.peak_live_bytes),
    ("resident bytes", |p| Some(p.resident_bytes)),
    ("resident bytes, most while filling", |p| {
        Some(p.peak_resident_bytes)
    }),
];

const LEFT: f64 = 76.0;
const GAP: f64 = 34.0;
const PANEL: f64 = 220.0;

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
    let panels: Vec<(&str, Vec<Curve>)> = MEASURES
        .iter()
        .map(|measure| (measure.0, curves(group, measure, looks)))
        .filter(|(_, curves)| curves.iter().any(|curve| !curve.medians.is_empty()))
        .collect();
    let payload = payload(group);
    let all = panels.iter().flat_map(|(_, curves)| curves);
    let mut points: Vec<_> = all.flat_map(Curve::values).collect();
    points.extend(&payload);
    let (low, high) = extent(points.iter().map(|p| p.1).filter(|y| *y > 0.0))?;
    let x = Scale::log_over(points.iter().flat_map(|p| [p.0 / 1.2, p.0 * 1.2]));
    let y = Scale::log(low / 1.25, high * 1.25);
    let mut canvas = Canvas::default();
    let top = legend(&mut canvas, (LEFT, 14.0), &entries(group, looks)) + 24.0;
    let width = (WIDTH - LEFT - 14.0 - GAP) / 2.0;
    for (at, (name, curves)) in panels.iter().enumerate() {
        let frame = Frame {
            left: LEFT + (width + GAP) * (at % 2) as f64,
            top: top + (PANEL + 80.0) * (at / 2) as f64,
            width,
            height: PANEL,
            x,
            y,
        };
        panel(&mut canvas, &frame, (name, at % 2 == 0), (curves, &payload));
    }
    Some(Plot {
        kind: "memory",
        title: format!("Memory: {}", title(group)),
        note:
            "Bytes per entry by number of entries, both on logarithmic scales. The dashed line is \
               what keys and values alone take."
                .to_owned(),
        height: top + (PANEL + 80.0) * panels.len().div_ceil(2) as f64 - 24.0,
        body: canvas.out,
    })
}

fn title(group: &Group<'_>) -> String {
    let cell = group.cells.first();
    let vary = ["initial", "range", "update_percent", "distribution"];
    cell.map_or(String::new(), |cell| describe(cell, &vary))
}

fn entries(group: &Group<'_>, looks: &Looks) -> Vec<(String, crate::plot::style::Look, bool)> {
    let mut labels = group.labels();
    labels.sort_by_key(|label| looks.place(label));
    let find = |label: &str| {
        group
            .rows()
            .map(|(_, row)| row)
            .filter(|r| r.label == label)
            .collect()
    };
    let entry = |label: &&str| {
        let rows: Vec<&RowResults> = find(label);
        let look = looks.look(rows.first()?);
        let void = rows.iter().all(|row| row.void());
        Some(((*label).to_owned(), look, void))
    };
    labels.iter().filter_map(entry).collect()
}

fn curves(group: &Group<'_>, (name, measure): &Measure, looks: &Looks) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for (_, row) in group.rows().filter(|(_, row)| !row.void()) {
        let at = curves.iter().position(|curve| curve.name == row.label);
        let at = at.unwrap_or_else(|| {
            curves.push(Curve::new(looks.look(row), &row.label));
            curves.len() - 1
        });
        for point in row
            .details::<MemoryPoint>()
            .filter(|point| point.entries > 0)
        {
            let taken = measure(&point).filter(|taken| *taken > 0);
            curves[at].medians.extend(taken.map(|taken| {
                let each = taken as f64 / point.entries as f64;
                let entries = count(point.entries);
                Spot {
                    at: (point.entries as f64, each),
                    text: format!(
                        "{}, {entries} entries: {each:.1} B per entry ({name})",
                        row.label
                    ),
                }
            }));
        }
    }
    for curve in &mut curves {
        curve.medians.sort_by(|a, b| a.at.0.total_cmp(&b.at.0));
    }
    chart::sorted(looks, curves)
}

/// Returns entries, each with the bytes of keys and values.
fn payload(group: &Group<'_>) -> Vec<(f64, f64)> {
    let points = group.rows().flat_map(|(_, row)| row.details());
    let sized = points.filter(|point: &MemoryPoint| point.entries > 0);
    let each = |p: &MemoryPoint| p.payload_bytes as f64 / p.entries as f64;
    let mut line: Vec<_> = sized.map(|p| (p.entries as f64, each(&p))).collect();
    line.sort_by(|a, b| a.0.total_cmp(&b.0));
    line.dedup_by_key(|point| point.0);
    line
}

fn panel(
    canvas: &mut Canvas,
    frame: &Frame,
    (name, first): (&str, bool),
    (curves, payload): (&[Curve], &[(f64, f64)]),
) {
    canvas.open("smallmultiple");
    let x_ticks = ticks_as(&frame.x, 6, count_tick);
    let label = |value| if first { plain(value) } else { String::new() };
    let y_ticks = ticks_as(&frame.y, 5, label);
    let y_title = if first { "bytes per entry" } else { "" };
    frame.axes(canvas, (&x_ticks, &y_ticks), ("entries", y_title));
    canvas.text("panel", (frame.left, frame.top - 8.0), Anchor::Start, name);
    let (left, right) = frame.x.ends();
    if let (Some(first), Some(last)) = (payload.first(), payload.last()) {
        let mut line = vec![(left, first.1)];
        line.extend(payload);
        line.push((right, last.1));
        let line: Vec<_> = line.into_iter().map(|point| frame.at(point)).collect();
        canvas.path(
            "guide payload",
            &crate::plot::svg::through(&line),
            "keys and values alone",
        );
        let at = (frame.right() - 4.0, frame.y(last.1) - 6.0);
        canvas.text("remark", at, Anchor::End, "payload");
    }
    chart::curves(canvas, frame, curves);
    canvas.close();
}

/// A plot for each cell that has memory over time.
pub(crate) fn garbage(results: &Results, looks: &Looks) -> Vec<Plot> {
    let draw = |cell| garbage_plot(cell, looks);
    results.cells().filter_map(draw).collect()
}

fn garbage_plot(cell: &CellResults, looks: &Looks) -> Option<Plot> {
    let rows: Vec<&RowResults> = cell
        .rows
        .iter()
        .filter(|row| row.has::<Garbage>())
        .collect();
    let valid = || rows.iter().filter(|row| !row.void());
    let churned: Vec<Garbage> = valid().flat_map(|row| row.details()).collect();
    if rows.is_empty() {
        return None;
    }
    let length = churned.iter().map(length_ms).fold(1.0, f64::max);
    let over = churned
        .iter()
        .flat_map(|g| g.over_bytes.iter().chain([&g.settled_bytes]));
    let (low, high) = extent(over.map(|b| *b as f64)).unwrap_or((0.0, 1.0));
    let (low, high) = (low.min(0.0), high.max(1.0));
    let pad = (high - low) * 0.05;
    let frame = Frame {
        left: 90.0,
        top: 14.0,
        width: WIDTH - 90.0 - NAMES,
        height: chart::height_for(rows.len()),
        x: Scale::linear(0.0, length * 1.03),
        y: Scale::linear(low - if low < 0.0 { pad } else { 0.0 }, high + pad),
    };
    let mut canvas = Canvas::default();
    let x_ticks = ticks_as(&frame.x, 8, |ms| plain(ms / 1e3));
    let y_ticks = byte_ticks(&frame.y);
    frame.axes(&mut canvas, (&x_ticks, &y_ticks), ("time (s)", ""));
    let title = (frame.left - 74.0, frame.top + frame.height / 2.0);
    canvas.upright("axistitle", title, "memory above the start");
    let curves: Vec<Curve> = rows
        .iter()
        .map(|row| churn(&mut canvas, &frame, row, looks))
        .collect();
    chart::names(&mut canvas, &frame, &curves);
    Some(Plot {
        kind: "garbage",
        title: format!("Memory while churned: {}", describe(cell, &[])),
        note:
            "Bytes more than before the churn, the number of entries being steady. The mark at the \
               end is what is left after the table has settled."
                .to_owned(),
        height: frame.bottom() + 50.0,
        body: canvas.out,
    })
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

fn length_ms(garbage: &Garbage) -> f64 {
    garbage.interval_ms * garbage.over_bytes.len().saturating_sub(1) as f64
}

/// Draws the churn of a table; returns a curve for its label.
fn churn(canvas: &mut Canvas, frame: &Frame, row: &RowResults, looks: &Looks) -> Curve {
    let look = looks.look(row);
    let mut named = Curve::new(look, &row.label);
    if row.void() {
        return named;
    }
    canvas.open(&look.class());
    for garbage in row.details::<Garbage>() {
        let samples = garbage.over_bytes.iter().enumerate();
        let at = |(index, over): (usize, &i64)| (garbage.interval_ms * index as f64, *over as f64);
        let points: Vec<_> = samples.map(at).collect();
        let drawn: Vec<_> = points.iter().map(|point| frame.at(*point)).collect();
        canvas.polyline("curve", &drawn);
        let settled = (length_ms(&garbage), garbage.settled_bytes as f64);
        let title = format!(
            "{}: {} left after settling ({})",
            row.label,
            bytes(settled.1),
            garbage.source
        );
        canvas.mark(look.shape(), "median", frame.at(settled), 5.0, &title);
        named.medians = points
            .last()
            .map(|at| Spot {
                at: *at,
                text: String::new(),
            })
            .into_iter()
            .collect();
    }
    canvas.close();
    named
}

/// Memory that tables keep after their entries are gone, where it was measured.
pub(crate) fn leftovers(results: &Results) -> Markup {
    let rows = results.rows().filter(|row| !row.void());
    let points = rows.flat_map(|row| row.details::<MemoryPoint>().map(move |p| (row, p)));
    let shown = |value: Option<u64>| value.map_or("–".to_owned(), |b| bytes(b as f64));
    let lines: Vec<_> = points
        .filter(|(_, point)| point.emptied_bytes.or(point.dropped_bytes).is_some())
        .map(|(row, point)| {
            vec![
                row.label.clone(),
                point.entries.to_string(),
                shown(point.live_bytes),
                shown(point.emptied_bytes),
                shown(point.dropped_bytes),
            ]
        })
        .collect();
    html! {
        @if !lines.is_empty() {
            details #leftovers {
                summary {
                    "What stays allocated after all entries are removed, and after the table is dropped"
                }
                (numbers(&["table", "entries", "full", "emptied", "dropped"], &lines))
            }
        }
    }
}
