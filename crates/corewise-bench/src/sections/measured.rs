//! What rows have besides rates: figures, and a table of them below the plots.

use maud::Markup;

use crate::figure::{Figure, Unit};
use crate::plot::group::{self, named};
use crate::plot::numbers::numbers;
use crate::plot::svg::rate;
use crate::record::{Role, Row};
use crate::results::{CellResults, Results, RowResults};
use crate::sections::Section;
use crate::subject::MeasuredRow;
use crate::table::Contention;

/// The unit of a measurement.
fn unit(name: &str) -> Unit {
    match name {
        "false positives" | "false positives when full" | "hit rate" | "load when full" => {
            Unit::Share
        }
        "bytes" => Unit::Bytes,
        _ => Unit::Plain,
    }
}

/// The measurements of the subject of a row, and how its elided sections ended.
pub(super) fn figures(row: &Row) -> Vec<Figure> {
    let MeasuredRow(measured) = row.fields.get().unwrap_or_default();
    let figure = |(name, of): (&String, &_)| Figure::of_interval(name, unit(name), *of);
    let measured = measured.iter().map(figure);
    measured
        .chain(elision(row.contention.unwrap_or_default()))
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
    shares.map(|(name, part, all)| Figure {
        name: name.to_owned(),
        unit: Unit::Share,
        value: part as f64 / all as f64,
        spread: None,
    })
}

/// All rates and measurements of a section, as numbers.
pub(super) fn summaries(results: &Results, section: &dyn Section) -> Markup {
    let cells = || named(&results.sections, section.name());
    let is_shown =
        |row: &&RowResults| !row.void() && matches!(row.row.role, Role::DynTable | Role::Reference);
    let rows = || {
        cells().flat_map(move |cell| {
            cell.rows
                .iter()
                .filter(is_shown)
                .map(move |row| (cell, row))
        })
    };
    let mut names: Vec<String> = Vec::new();
    for figure in rows().flat_map(|(_, row)| section.row_figures(&row.row)) {
        if !names.contains(&figure.name) {
            names.push(figure.name);
        }
    }
    if names.is_empty() {
        return Markup::default();
    }
    let heads = ["subject", "workload", "operations a second"].into_iter();
    let heads: Vec<&str> = heads.chain(names.iter().map(String::as_str)).collect();
    let lines: Vec<_> = rows()
        .map(|(cell, row)| line(cell, row, &section.row_figures(&row.row), &names))
        .collect();
    numbers(&heads, &lines)
}

fn line(cell: &CellResults, row: &RowResults, figures: &[Figure], names: &[String]) -> Vec<String> {
    let rate = row.row.rate.map_or("–".to_owned(), |all| rate(all.value));
    let text = |name: &String| {
        let figure = figures.iter().find(|figure| figure.name == *name);
        figure.map_or("–".to_owned(), Figure::text)
    };
    let mut fields = vec![row.label.clone(), group::describe(cell, &["pin"]), rate];
    fields.extend(names.iter().map(text));
    fields
}
