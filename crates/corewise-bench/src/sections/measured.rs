//! What rows have besides rates: figures, and a table of them below the plots.

use maud::Markup;

use crate::figure::{Figure, Unit};
use crate::plot::group::{contenders, describe, distinct, named};
use crate::plot::numbers::table;
use crate::plot::svg::rate;
use crate::record::Row;
use crate::results::{CellResults, Results, RowResults};
use crate::sections::Section;
use crate::subject::MeasuredRow;

/// The unit of a measurement.
fn unit(name: &str) -> Unit {
    match name {
        "false positives" | "hit rate" => Unit::Share,
        "bytes" => Unit::Bytes,
        _ => Unit::Plain,
    }
}

/// The measurements of the subject of a row.
pub(super) fn figures(row: &Row) -> Vec<Figure> {
    let MeasuredRow(measured) = &row.fields.measured;
    let figure = |(name, of): (&String, &_)| Figure::of_interval(name, unit(name), *of);
    measured.iter().map(figure).collect()
}

/// The rates, figures and remarks of the rows of a section that have figures.
pub(super) fn summaries(results: &Results, section: &(impl Section + ?Sized)) -> Markup {
    let rows = contenders(named(&results.sections, section.name()));
    let valid = rows.filter(|(_, row)| !row.void());
    let with = valid.map(|(cell, row)| (cell, row, section.figures(row)));
    let rows: Vec<_> = with.filter(|(.., figures)| !figures.is_empty()).collect();
    let names = distinct(rows.iter().flat_map(|row| &row.2).map(|of| &*of.name));
    let remarks = |row: &RowResults| section.lines(&row.row).join("\n");
    let has_remarks = rows.iter().any(|(_, row, _)| !remarks(row).is_empty());
    let heads = ["subject", "workload", "operations a second"].into_iter();
    let heads = heads.chain(names.iter().copied());
    let heads: Vec<&str> = heads.chain(has_remarks.then_some("remarks")).collect();
    let line = |(cell, row, figures): &(&CellResults, &RowResults, Vec<Figure>)| {
        let rate = row.row.rate.map_or("–".to_owned(), |all| rate(all.value));
        let text = |name: &&str| {
            let figure = figures.iter().find(|figure| figure.name == **name);
            figure.map_or("–".to_owned(), Figure::text)
        };
        let mut fields = vec![row.label.clone(), describe(cell, &["pin"]), rate];
        fields.extend(names.iter().map(text));
        fields.extend(has_remarks.then(|| remarks(row)));
        fields
    };
    table(
        "numbers",
        &heads,
        &rows.iter().map(line).collect::<Vec<_>>(),
    )
}
