//! What rows have besides rates: figures, and a table of them below the plots.

use maud::Markup;

use crate::figure::{Figure, Unit};
use crate::plot::group::{contenders, describe, distinct, named};
use crate::plot::numbers::table;
use crate::plot::svg::rate;
use crate::record::{Interval, Row};
use crate::results::{CellResults, Results, RowResults};
use crate::sections::presets::Preset;
use crate::sections::{LineFields, Section};
use crate::table::Contention;

/// The time of an operation of a thread, if the preset has a name for it, the measurements of the
/// subject, and how its elided sections ended.
pub(super) fn figures(preset: &Preset, row: &Row) -> Vec<Figure> {
    let unit = |name: &String| preset.units.get(name).copied().unwrap_or(Unit::Plain);
    let figure = |(name, of): (&String, &_)| Figure::of_interval(name, unit(name), *of);
    let valid = row.rate.filter(|_| row.verdict != "void");
    let ns = |rate: f64| row.cell.threads as f64 * 1e9 / rate;
    let operation = valid.zip(preset.operation.as_ref()).map(|(rate, name)| {
        let time = Interval {
            value: ns(rate.value),
            low: ns(rate.high),
            high: ns(rate.low),
        };
        Figure::of_interval(name, Unit::Nanoseconds, time)
    });
    let measured = row.fields.measured.iter().map(figure);
    let elision = elision(row.contention.unwrap_or_default());
    operation
        .into_iter()
        .chain(measured)
        .chain(elision)
        .collect()
}

/// The share of an elided lock's sections that ran under the lock, and of its transactions that
/// aborted, by cause.
fn elision(seen: Contention) -> impl Iterator<Item = Figure> {
    let known = seen.conflicts + seen.capacity + seen.explicit;
    let begun = seen.elided + seen.aborts;
    let shares = [
        (
            "under the lock",
            seen.fallbacks,
            seen.elided + seen.fallbacks,
        ),
        ("conflicts", seen.conflicts, begun),
        ("capacity aborts", seen.capacity, begun),
        ("explicit aborts", seen.explicit, begun),
        ("other aborts", seen.aborts.saturating_sub(known), begun),
    ];
    let is_elided = seen.fallbacks + known > 0;
    let shares = shares.into_iter();
    let shares = shares.filter(move |(_, _, all)| is_elided && *all > 0);
    shares.map(|(name, part, all)| Figure::new(name, Unit::Share, part as f64 / all as f64))
}

/// The details of all rows of a section, or their rates and figures.
pub(super) fn summaries(results: &Results, section: &(impl Section + ?Sized)) -> Markup {
    let rows = contenders(named(&results.sections, section.name()));
    let valid = rows.filter(|(_, row)| !row.void());
    let lines: Vec<LineFields> = valid
        .flat_map(|(cell, row)| lines(section, cell, row))
        .collect();
    let heads = distinct(lines.iter().flatten().map(|(head, _)| &**head));
    let text = |line: &LineFields, head: &str| {
        let field = line.iter().find(|(name, _)| name == head);
        field.map_or("–".to_owned(), |(_, text)| text.clone())
    };
    let line = |line: &LineFields| heads.iter().map(|head| text(line, head)).collect();
    table(
        "numbers",
        &heads,
        &lines.iter().map(line).collect::<Vec<_>>(),
    )
}

/// The lines of a row: none if it has nothing but its rate.
fn lines(
    section: &(impl Section + ?Sized),
    cell: &CellResults,
    row: &RowResults,
) -> Vec<LineFields> {
    let mut details = section.details(&row.row);
    let figures = section.figures(row);
    if details.is_empty() && !figures.is_empty() {
        let rate = row
            .row
            .rate
            .map(|of| ("operations a second".to_owned(), rate(of.value)));
        let figures = figures.into_iter().map(|of| (of.name.clone(), of.text()));
        details.push(rate.into_iter().chain(figures).collect());
    }
    let start = [
        ("subject".to_owned(), row.label.clone()),
        ("workload".to_owned(), describe(cell, &["pin"])),
    ];
    let line = |fields: LineFields| start.iter().cloned().chain(fields).collect();
    details.into_iter().map(line).collect()
}
