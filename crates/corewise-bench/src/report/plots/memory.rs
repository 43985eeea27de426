//! Memory: bytes per entry, and garbage over time.

use super::{begin, frame, height_for, names};
use crate::record::{Garbage, MemoryPoint};
use crate::report::svg::{Scale, bytes, short};
use crate::report::{Looks, Plot};
use crate::results::Results;

/// A way to read a point, and its name.
type Reading = (&'static str, &'static str, fn(&MemoryPoint) -> Option<u64>);

const READINGS: [Reading; 3] = [
    ("Bytes allocated per entry", "live", |point| {
        point.live_bytes
    }),
    (
        "Peak of bytes allocated per entry, while growing from empty",
        "peak",
        |point| point.peak_live_bytes,
    ),
    ("Resident bytes per entry", "resident", |point| {
        Some(point.resident_bytes)
    }),
];

/// One plot for each reading that there is.
pub(super) fn entries(results: &Results, looks: &Looks) -> Vec<Plot> {
    let some = READINGS
        .iter()
        .filter(|(.., read)| held(results).any(|point| read(point).is_some_and(|b| b > 0)));
    some.enumerate()
        .map(|(number, reading)| one(results, looks, number, reading))
        .collect()
}

/// Points whose rows are not void.
fn held(results: &Results) -> impl Iterator<Item = &MemoryPoint> {
    let void = |point: &MemoryPoint| {
        results.rows.iter().any(|row| {
            row.cell.id == point.cell && row.table == point.table && row.verdict == "void"
        })
    };
    results.memory.iter().filter(move |point| !void(point))
}

fn one(results: &Results, looks: &Looks, number: usize, (title, _, read): &Reading) -> Plot {
    let mut tables: Vec<String> = Vec::new();
    for point in held(results) {
        if !tables.contains(&point.table) {
            tables.push(point.table.clone());
        }
    }
    let height = height_for(tables.len());
    let mut plot = begin("memory", number, (*title).to_string(), height);
    let each = |point: &MemoryPoint| {
        read(point)
            .map(|b| b as f64 / point.entries.max(1) as f64)
            .filter(|b| *b > 0.0)
    };
    let payload = |point: &MemoryPoint| point.payload_bytes as f64 / point.entries.max(1) as f64;
    let x = Scale::log(held(results).map(|point| point.entries as f64));
    let y =
        Scale::log(held(results).flat_map(|point| each(point).into_iter().chain([payload(point)])));
    let frame = frame(height, x, y);
    frame.draw(&mut plot.svg, ("entries (log)", "bytes per entry (log)"));
    for table in &tables {
        let look = looks.of_table(table);
        let mut line = Vec::new();
        for point in held(results).filter(|point| point.table == *table) {
            if let Some(value) = each(point) {
                let at = frame.at(point.entries as f64, value);
                let tip = format!(
                    "{table}, {} entries: {value:.1} bytes each",
                    short(point.entries as f64)
                );
                plot.svg.dot(look, at, 2.8, &tip);
                line.push(at);
            }
        }
        plot.svg.path(look, &line);
    }
    if let Some(point) = held(results).next() {
        let y = frame.y(payload(point));
        plot.svg
            .line("mark", (frame.corner.0, y), (frame.right(), y));
        plot.svg.text(
            "tick",
            (frame.right() - 4.0, y - 4.0),
            "end",
            "key and value",
        );
    }
    names(&mut plot, looks, &tables);
    plot.note = "Each table at each size in a process of its own, grown from empty.".into();
    plot
}

/// What piles up while half of all operations insert and half remove.
pub(super) fn garbage(results: &Results, looks: &Looks) -> Vec<Plot> {
    let mut sizes: Vec<u64> = results
        .garbage
        .iter()
        .map(|garbage| garbage.entries)
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    let largest = sizes.last().copied();
    let lines: Vec<&Garbage> = results
        .garbage
        .iter()
        .filter(|garbage| Some(garbage.entries) == largest)
        .collect();
    match lines.first() {
        Some(first) => vec![one_garbage(looks, &lines, first.entries)],
        None => Vec::new(),
    }
}

fn one_garbage(looks: &Looks, lines: &[&Garbage], entries: u64) -> Plot {
    let tables: Vec<String> = lines.iter().map(|line| line.table.clone()).collect();
    let height = height_for(tables.len());
    let title = format!(
        "Memory over time under churn, {} entries",
        short(entries as f64)
    );
    let mut plot = begin("garbage", 0, title, height);
    let end = lines
        .iter()
        .map(|line| line.over_bytes.len() as f64 * line.interval_ms)
        .fold(1.0, f64::max);
    let all = || {
        lines
            .iter()
            .flat_map(|line| line.over_bytes.iter().map(|b| *b as f64))
    };
    let (least, most) = (all().fold(0.0, f64::min), all().fold(1024.0, f64::max));
    let frame = frame(height, Scale::Linear(0.0, end), Scale::Linear(least, most));
    frame.draw_with(
        &mut plot.svg,
        ("milliseconds of churn", "bytes over the start"),
        &short,
        &bytes,
    );
    for line in lines {
        let points = line.over_bytes.iter().enumerate();
        let points: Vec<_> = points
            .map(|(at, b)| frame.at(at as f64 * line.interval_ms, *b as f64))
            .collect();
        plot.svg.path(looks.of_table(&line.table), &points);
    }
    names(&mut plot, looks, &tables);
    plot.note = "Half inserts, half removes over the keys that were there: a table that reclaims at once falls to half its \
                 entries and stays; what rises above that waits for reclamation."
        .into();
    plot
}
