//! `corewise bench show`: the figures of a result file, as text, and their ratios.
//!
//! A row has a figure for everything that its section measures:
//!
//! | rows | figures |
//! |---|---|
//! | with a rate | `rate` |
//! | with latencies | `get hit 50 %`, `get hit 99 %`, ... for each operation and outcome |
//! | of a section with its own figures | see `docs/METHODOLOGY.md` |
//! | with a rate | `instructions`, `L1 load misses`, ...: of an operation; `processors in use`, `MB/s from memory` |
//! | of tables that count | `contended`, `aborts`: shares of critical sections |
//!
//! Ratios are to another table in the same cell, or of the same table to another cell. Several
//! files are one result, in which `TABLE [1]` and `TABLE [2]` are the rows of the first and the
//! second: so one file is compared with another. Ratios of rates have an interval: of paired
//! repetitions within one cell, where tables are measured side by side, and of the two medians
//! otherwise. Void rows are named without figures. What the machine does not count is `n/a` (null
//! in JSON): in one line, `counters`, or by name if it is asked for.

use std::fmt::Write;

use serde::Serialize;

use crate::figure::{Figure, Unit};
use crate::record::Role;
use crate::results::{CellResults, Results, RowResults};
use crate::sections;

/// The name of the line of a row without any hardware counter.
const NO_COUNTERS: &str = "counters";

/// Selects figures.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Query {
    /// Cells whose names contain this; may be repeated [default: all]
    #[arg(long = "cell", value_name = "TEXT")]
    pub cells: Vec<String>,
    /// Tables (comma-separated) [default: all]
    #[arg(long, value_delimiter = ',', value_name = "TABLES")]
    pub tables: Vec<String>,
    /// Figures whose names contain this; may be repeated [default: all]
    #[arg(long = "figure", value_name = "TEXT")]
    pub figures: Vec<String>,
    /// Ratios to this table in the same cell
    #[arg(long, value_name = "TABLE")]
    pub to: Option<String>,
    /// Ratios of each table to itself in this cell, or in the only one whose name contains this
    #[arg(long, value_name = "CELL", conflicts_with = "to")]
    pub to_cell: Option<String>,
}

/// A line of output.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Line {
    cell: String,
    table: String,
    /// The problem of a void row, which has no figures.
    void: Option<String>,
    #[serde(flatten)]
    figure: Option<Figure>,
    ratio: Option<f64>,
    ratio_spread: Option<(f64, f64)>,
}

/// Returns the lines of a query; an error if it names what the results do not have.
pub fn show(results: &Results, query: &Query) -> Result<Vec<Line>, String> {
    let other = query.to_cell.as_ref();
    let other = other.map(|name| cell_named(results, name)).transpose()?;
    if let Some(name) = &query.to
        && !results.rows().any(|row| row.label == *name)
    {
        return Err(format!("no row of the table `{name}`"));
    }
    let mut lines = Vec::new();
    for cell in results
        .cells()
        .filter(|cell| any(&query.cells, &cell.cell.id))
    {
        for row in &cell.rows {
            let wanted = query.tables.is_empty() || query.tables.contains(&row.label);
            if !wanted || row.row.role == Role::Again {
                continue;
            }
            let base = match &query.to {
                Some(name) => row_of(cell, name),
                None => other.and_then(|other| row_of(other, &row.label)),
            };
            lines.extend(lines_of(row, base, query));
        }
    }
    if lines.is_empty() {
        Err("no row has such a figure".to_owned())
    } else {
        Ok(lines)
    }
}

/// Formats the lines: a heading for each cell, a line for each figure.
pub fn text(lines: &[Line]) -> String {
    let mut out = String::new();
    let mut cell = "";
    for line in lines {
        if cell != line.cell {
            cell = &line.cell;
            let _ = writeln!(out, "{cell}");
        }
        let _ = write!(out, "  {:<16} ", line.table);
        let Some(figure) = &line.figure else {
            let why = line.void.as_deref().unwrap_or_default();
            let _ = writeln!(out, "void: {why}");
            continue;
        };
        let text = |value| figure.unit.text(value);
        let within = |spread: Option<(f64, f64)>, text: &dyn Fn(f64) -> String| {
            spread.map_or(String::new(), |(low, high)| {
                format!("({} - {})", text(low), text(high))
            })
        };
        let _ = write!(
            out,
            "{:<22} {:>11} {:<25}",
            figure.name,
            text(figure.value),
            within(figure.spread, &text)
        );
        if let Some(ratio) = line.ratio {
            let plain = |value| format!("{value:.2}");
            let spread = within(line.ratio_spread, &plain);
            let _ = write!(out, " {:>7} {spread}", plain(ratio));
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out
}

/// Returns whether a text contains one of the parts, or there are none.
fn any(parts: &[String], text: &str) -> bool {
    parts.is_empty() || parts.iter().any(|part| text.contains(&**part))
}

/// Returns the cell of that name, or the only one whose name contains it.
fn cell_named<'a>(results: &'a Results, name: &str) -> Result<&'a CellResults, String> {
    if let Some(cell) = results.cells().find(|cell| cell.cell.id == name) {
        return Ok(cell);
    }
    let mut found = results.cells().filter(|cell| cell.cell.id.contains(name));
    match (found.next(), found.count()) {
        (Some(cell), 0) => Ok(cell),
        (None, _) => Err(format!("no cell `{name}`")),
        (Some(_), more) => Err(format!("{} cells are called `{name}`", more + 1)),
    }
}

fn row_of<'a>(cell: &'a CellResults, table: &str) -> Option<&'a RowResults> {
    let is = |row: &&RowResults| row.label == table && row.row.role != Role::Again;
    cell.rows.iter().find(is).filter(|row| !row.void())
}

fn lines_of(row: &RowResults, base: Option<&RowResults>, query: &Query) -> Vec<Line> {
    let line = |figure| Line {
        cell: row.row.cell.id.clone(),
        table: row.label.clone(),
        figure,
        ..Line::default()
    };
    if row.void() {
        let void = row.problem().map(str::to_owned);
        return vec![Line { void, ..line(None) }];
    }
    let others = base.map(figures).unwrap_or_default();
    let is_asked_for = |figure: &Figure| match &*query.figures {
        [] => !figure.value.is_nan() || figure.name == NO_COUNTERS,
        parts => any(parts, &figure.name),
    };
    let wanted = figures(row).into_iter().filter(is_asked_for);
    let with_ratio = |figure: Figure| {
        let other = others.iter().find(|other| other.name == figure.name);
        let rates = match (figure.unit, base) {
            (Unit::Rate, Some(base)) => row.rate_ratio(base),
            _ => None,
        };
        let plain = other.map(|other| figure.value / other.value);
        let ratio = rates.map(|rates| rates.value).or(plain);
        Line {
            ratio: ratio.filter(|ratio| ratio.is_finite()),
            ratio_spread: rates.map(|rates| (rates.low, rates.high)),
            ..line(Some(figure))
        }
    };
    wanted.map(with_ratio).collect()
}

/// Returns all figures of a row.
fn figures(row: &RowResults) -> Vec<Figure> {
    let mut found = Vec::new();
    if let Some(rate) = row.row.rate {
        found.push(Figure::of_interval("rate", Unit::Rate, rate));
    }
    for histogram in &row.histograms {
        for (percent, ns) in &histogram.percentiles_ns {
            let name = format!("{} {percent} %", histogram.operation);
            found.push(Figure::new(&name, Unit::Nanoseconds, *ns));
        }
    }
    if let Some(section) = sections::find(&row.row.cell.section) {
        found.extend(section.figures(row));
    }
    if row.row.rate.is_some() {
        if row.row.per_operation.is_empty() {
            found.push(Figure::new(NO_COUNTERS, Unit::Plain, f64::NAN));
        }
        for (name, value) in row.counted() {
            found.push(Figure::new(name, Unit::Plain, value.unwrap_or(f64::NAN)));
        }
    }
    if let Some(seen) = row.row.contention {
        let share = |part: u64, all: u64| part as f64 / all as f64;
        if seen.acquisitions > 0 {
            let contended = share(seen.contended, seen.acquisitions);
            found.push(Figure::new("contended", Unit::Share, contended));
        }
        if seen.elided + seen.aborts > 0 {
            let aborts = share(seen.aborts, seen.sections());
            found.push(Figure::new("aborts", Unit::Share, aborts));
        }
    }
    found
}
