//! Throughput by something without order: distributions, placements, locks.

use super::{begin, frame, height_for, mops, names};
use crate::record::{Cell, Row};
use crate::report::svg::Scale;
use crate::report::{Looks, Plot, grouped, plotted, tables, words};
use crate::results::Results;

/// What a section's categories are, and how they are taken out of a cell.
struct Axis {
    title: &'static str,
    word: &'static str,
    of: fn(&Row) -> String,
    clear: fn(&mut Cell),
    about: &'static str,
}

fn axis(section: &str) -> Axis {
    match section {
        "distribution" => Axis {
            title: "distribution of keys",
            word: "distribution",
            of: |row| row.cell.distribution.clone(),
            clear: |cell| cell.distribution.clear(),
            about: "Throughput by distribution",
        },
        "pinning" => Axis {
            title: "placement of threads",
            word: "pin",
            of: |row| row.cell.pin.clone(),
            clear: |cell| cell.pin.clear(),
            about: "Throughput by placement",
        },
        "sync" => Axis {
            title: "lock",
            word: "",
            of: |row| row.table.trim_start_matches("lock:").to_string(),
            clear: |_| {},
            about: "One table under different locks",
        },
        _ => Axis {
            title: "threads",
            word: "threads",
            of: |row| row.cell.threads.to_string(),
            clear: |cell| cell.threads = 0,
            about: "Throughput while tables grow",
        },
    }
}

/// The plots of a section.
pub(super) fn by(results: &Results, looks: &Looks, section: &'static str) -> Vec<Plot> {
    let axis = axis(section);
    let rows = plotted(results, section);
    let groups = grouped(&rows, axis.clear);
    groups
        .iter()
        .enumerate()
        .map(|(number, group)| one(results, looks, (section, &axis), number, group))
        .collect()
}

fn one(
    results: &Results,
    looks: &Looks,
    (section, axis): (&'static str, &Axis),
    number: usize,
    group: &[&Row],
) -> Plot {
    let tables = tables(group);
    let mut slots: Vec<String> = Vec::new();
    for row in group {
        let slot = (axis.of)(row);
        if !slots.contains(&slot) {
            slots.push(slot);
        }
    }
    let height = height_for(tables.len());
    let what = words(&group[0].cell, &[axis.word]);
    let mut plot = begin(section, number, format!("{}: {what}", axis.about), height);
    let all = group.iter().flat_map(|row| results.rates(row)).map(mops);
    let frame = frame(height, Scale::Slots(slots.clone()), Scale::from_zero(all));
    frame.draw(&mut plot.svg, (axis.title, "Mops/s"));
    let width = frame.size.0 / slots.len() as f64;
    for (at, table) in tables.iter().enumerate() {
        let look = looks.of_table(table);
        // Tables side by side within a slot; with a lock a slot, each has its own.
        let shift = match section {
            "sync" => 0.0,
            _ => ((at as f64 + 0.5) / tables.len() as f64 - 0.5) * width * 0.8,
        };
        for row in group.iter().filter(|row| row.table == *table) {
            let slot = slots
                .iter()
                .position(|slot| *slot == (axis.of)(row))
                .unwrap_or(0);
            let x = frame.x(slot as f64) + shift;
            for rate in results.rates(row) {
                plot.svg.dot(
                    look,
                    (x, frame.y(mops(rate))),
                    2.0,
                    &format!("{table}: {:.1} Mops/s", mops(rate)),
                );
            }
            if let Some(rate) = row.rate {
                let y = frame.y(mops(rate.value));
                plot.svg.path(look, &[(x - 5.0, y), (x + 5.0, y)]);
                plot.svg.path(
                    look,
                    &[(x, frame.y(mops(rate.low))), (x, frame.y(mops(rate.high)))],
                );
            }
            if let Some(seen) = row.contention.filter(|_| section == "sync") {
                let share = seen.contended as f64 / seen.acquisitions.max(1) as f64 * 100.0;
                plot.svg.text(
                    "tick",
                    (
                        x + 8.0,
                        frame.y(mops(row.rate.map_or(0.0, |r| r.value))) - 6.0,
                    ),
                    "start",
                    &format!("{share:.0} %"),
                );
            }
        }
    }
    names(&mut plot, looks, &tables);
    plot.note = match section {
        "sync" => "Beside each lock the share of critical sections that found it taken; aborts are in the table above.".into(),
        _ => "Dots are repetitions, bars medians with their 95 % intervals.".into(),
    };
    plot
}
