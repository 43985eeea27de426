//! Throughput by table and share of updates.

use super::{LEFT, WIDTH, begin, mops};
use crate::record::Row;
use crate::report::svg::short;
use crate::report::{Looks, Plot, grouped, plotted, tables, words};
use crate::results::Results;

/// Room for the names of tables.
const NAMES: f64 = 110.0;
/// Height of a row.
const ROW: f64 = 24.0;

/// One map for each workload that was measured with several shares of updates.
pub(super) fn updates(results: &Results, _: &Looks) -> Vec<Plot> {
    let rows = plotted(results, "updates");
    let groups = grouped(&rows, |cell| {
        (
            cell.update_percent,
            cell.insert_percent,
            cell.remove_percent,
        ) = (0.0, 0.0, 0.0)
    });
    groups
        .iter()
        .enumerate()
        .map(|(number, group)| one(number, group))
        .collect()
}

fn one(number: usize, group: &[&Row]) -> Plot {
    let tables = tables(group);
    let mut shares: Vec<f64> = group.iter().map(|row| row.cell.update_percent).collect();
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    let what = words(&group[0].cell, &["updates"]);
    let height = tables.len() as f64 * ROW + 56.0;
    let mut plot = begin(
        "updates",
        number,
        format!("Throughput by share of updates: {what}"),
        height,
    );
    let width = (WIDTH - NAMES - LEFT) / shares.len() as f64;
    for (column, share) in shares.iter().enumerate() {
        let best = best(group, *share);
        let left = NAMES + column as f64 * width;
        plot.svg.text(
            "tick",
            (left + width / 2.0, tables.len() as f64 * ROW + 20.0),
            "middle",
            &format!("{share} %"),
        );
        for (line, table) in tables.iter().enumerate() {
            let top = line as f64 * ROW + 4.0;
            let row = group
                .iter()
                .find(|row| row.table == *table && row.cell.update_percent == *share);
            if let Some(rate) = row.and_then(|row| row.rate) {
                // From a tenth of the best, which is palest, to the best.
                let strength = (1.0 + (rate.value / best).log10()).clamp(0.0, 1.0);
                let style = format!(
                    "class=\"heat\" fill-opacity=\"{:.2}\"",
                    0.06 + 0.74 * strength
                );
                let tip = format!("{table}, {share} % updates: {:.1} Mops/s", mops(rate.value));
                plot.svg
                    .rect(&style, (left + 1.0, top), (width - 2.0, ROW - 2.0), &tip);
                plot.svg.text(
                    "label",
                    (left + width / 2.0, top + 15.0),
                    "middle",
                    &short(mops(rate.value)),
                );
            }
        }
    }
    for (line, table) in tables.iter().enumerate() {
        plot.svg.text(
            "label",
            (NAMES - 8.0, line as f64 * ROW + 19.0),
            "end",
            table,
        );
    }
    let middle = NAMES + width * shares.len() as f64 / 2.0;
    plot.svg.text(
        "title",
        (middle, height - 12.0),
        "middle",
        "updates, half of them inserts unless said otherwise; Mops/s",
    );
    plot.note = "The stronger the colour, the nearer to the best table of the column; a tenth of it is blank.".into();
    plot
}

fn best(group: &[&Row], share: f64) -> f64 {
    let column = group.iter().filter(|row| row.cell.update_percent == share);
    column
        .filter_map(|row| row.rate)
        .map(|rate| rate.value)
        .fold(f64::MIN_POSITIVE, f64::max)
}
