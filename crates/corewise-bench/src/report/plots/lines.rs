//! Throughput along an axis: threads, or entries.

use super::{begin, frame, height_for, mops, names};
use crate::record::Row;
use crate::report::svg::{Scale, bytes, short};
use crate::report::{Looks, Plot, grouped, plotted, tables, words};
use crate::results::Results;

/// Throughput against threads: every repetition a dot, medians joined, and what the best table on
/// one thread would reach if it lost nothing.
pub(super) fn scaling(results: &Results, looks: &Looks) -> Vec<Plot> {
    let rows = plotted(results, "scaling");
    let groups = grouped(&rows, |cell| cell.threads = 0);
    let groups = groups.iter().filter(|group| {
        group
            .iter()
            .any(|row| row.cell.threads != group[0].cell.threads)
    });
    groups
        .enumerate()
        .map(|(number, group)| one_scaling(results, looks, number, group))
        .collect()
}

fn one_scaling(results: &Results, looks: &Looks, number: usize, group: &[&Row]) -> Plot {
    let tables = tables(group);
    let height = height_for(tables.len());
    let what = words(&group[0].cell, &["threads"]);
    let mut plot = begin(
        "scaling",
        number,
        format!("Throughput against threads: {what}"),
        height,
    );
    let threads = |row: &Row| row.cell.threads as f64;
    let most = group.iter().map(|row| threads(row)).fold(1.0, f64::max);
    let rates = group.iter().flat_map(|row| results.rates(row)).map(mops);
    let alone = group
        .iter()
        .filter(|row| row.cell.threads == 1)
        .filter_map(|row| row.rate);
    let best = alone.map(|rate| mops(rate.value)).fold(0.0, f64::max);
    let y = Scale::from_zero(rates.chain([best * most]));
    let frame = frame(height, Scale::Linear(0.0, most + 0.5), y);
    frame.draw(&mut plot.svg, ("threads", "Mops/s"));
    if best > 0.0 {
        plot.svg
            .line("ideal", frame.at(1.0, best), frame.at(most, best * most));
    }
    for table in &tables {
        let look = looks.of_table(table);
        let mine: Vec<_> = group.iter().filter(|row| row.table == *table).collect();
        let line: Vec<_> = mine
            .iter()
            .filter_map(|row| {
                row.rate
                    .map(|rate| frame.at(threads(row), mops(rate.value)))
            })
            .collect();
        plot.svg.path(look, &line);
        for row in mine {
            for rate in results.rates(row) {
                let tip = format!(
                    "{table}, {} threads: {:.1} Mops/s",
                    row.cell.threads,
                    mops(rate)
                );
                plot.svg
                    .dot(look, frame.at(threads(row), mops(rate)), 2.2, &tip);
            }
        }
    }
    names(&mut plot, looks, &tables);
    plot.note = "Each dot is a repetition, lines join medians; dashed: the best single thread times the threads.".into();
    plot
}

/// Throughput against entries, with the caches marked: where keys and values alone fill a cache,
/// and, if memory was measured, from where to where the tables do.
pub(super) fn workingset(results: &Results, looks: &Looks) -> Vec<Plot> {
    let rows = plotted(results, "workingset");
    let groups = grouped(&rows, |cell| (cell.initial, cell.range) = (0, 0));
    groups
        .iter()
        .enumerate()
        .map(|(number, group)| one_workingset(results, looks, number, group))
        .collect()
}

fn one_workingset(results: &Results, looks: &Looks, number: usize, group: &[&Row]) -> Plot {
    let tables = tables(group);
    let height = height_for(tables.len());
    let what = words(&group[0].cell, &["initial"]);
    let mut plot = begin(
        "workingset",
        number,
        format!("Throughput against entries: {what}"),
        height,
    );
    let entries = |row: &Row| row.cell.initial as f64;
    let x = Scale::log(group.iter().map(|row| entries(row)));
    let y = Scale::log(
        group
            .iter()
            .filter_map(|row| row.rate)
            .flat_map(|r| [mops(r.low), mops(r.high)]),
    );
    let frame = frame(height, x, y);
    frame.draw(&mut plot.svg, ("entries (log)", "Mops/s (log)"));
    mark_caches(results, &mut plot, &frame, group[0]);
    for table in &tables {
        let look = looks.of_table(table);
        let mut line = Vec::new();
        for row in group.iter().filter(|row| row.table == *table) {
            if let Some(rate) = row.rate {
                let at = frame.at(entries(row), mops(rate.value));
                let tip = format!(
                    "{table}, {} entries: {:.1} Mops/s",
                    short(entries(row)),
                    mops(rate.value)
                );
                plot.svg.dot(look, at, 2.8, &tip);
                line.push(at);
            }
        }
        plot.svg.path(look, &line);
    }
    names(&mut plot, looks, &tables);
    plot.note = "Vertical lines: keys and values alone fill this cache. Shaded: the measured memory of the leanest to \
                 the largest table does (from the section memory, if it was run)."
        .into();
    plot
}

fn mark_caches(results: &Results, plot: &mut Plot, frame: &crate::report::svg::Frame, row: &Row) {
    let Scale::Log(from, to) = frame.x else {
        return;
    };
    let cell = &row.cell;
    let payload = ((cell.key_bytes.0 + cell.key_bytes.1) / 2 + cell.value_bytes) as f64;
    let sizes = results
        .memory
        .iter()
        .filter(|point| point.entries >= 100_000);
    let per_entry = sizes.map(|point| {
        point.live_bytes.unwrap_or(point.resident_bytes) as f64 / point.entries as f64
    });
    let (least, most) = per_entry
        .filter(|b| *b >= payload)
        .fold((f64::MAX, 0.0f64), |(a, b), v| (a.min(v), b.max(v)));
    for cache in results
        .manifests
        .iter()
        .take(1)
        .flat_map(|manifest| &manifest.machine.caches)
    {
        let size = cache.size_bytes as f64;
        if most > 0.0 && size / least > from && size / most < to {
            let (left, right) = (
                frame.x((size / most).max(from)),
                frame.x((size / least).min(to)),
            );
            let tip = format!(
                "level {}: {} to {} bytes an entry",
                cache.level,
                short(least),
                short(most)
            );
            plot.svg.rect(
                "class=\"band\"",
                (left, frame.corner.1),
                (right - left, frame.size.1),
                &tip,
            );
        }
        let entries = size / payload;
        if entries > from && entries < to {
            let x = frame.x(entries);
            plot.svg
                .line("mark", (x, frame.corner.1), (x, frame.bottom()));
            plot.svg.text(
                "tick",
                (x + 4.0, frame.corner.1 + 10.0),
                "start",
                &format!("L{} {}", cache.level, bytes(size)),
            );
        }
    }
}
