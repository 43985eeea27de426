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

/// The unit of a measurement.
fn unit(name: &str) -> Unit {
    match name {
        "false positives" | "hit rate" => Unit::Share,
        "bytes" => Unit::Bytes,
        "client ns" | "server ns" => Unit::Nanoseconds,
        _ => Unit::Plain,
    }
}

/// The measurements of the subject of a row.
pub(super) fn figures(row: &Row) -> Vec<Figure> {
    let MeasuredRow(measured) = row.fields.get().unwrap_or_default();
    let figure = |(name, of): (&String, &_)| Figure::of_interval(name, unit(name), *of);
    measured.iter().map(figure).collect()
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
