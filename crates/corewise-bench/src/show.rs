//! `corewise bench show`: the figures of a result file, as text, and their ratios.
//!
//! A row has a figure for everything that its section measures:
//!
//! | section | figures |
//! |---|---|
//! | those with a rate | `rate` |
//! | `latency`, `paced` | `get hit 50 %`, `get hit 99 %`, ... for each operation and outcome |
//! | `hot` | `pair` |
//! | `batch` | `rate` in batches, `single`: the rate one by one, `batch over single` |
//! | `memory` | `live`, `live, most`, `resident`, `resident, most`: bytes an entry; `garbage, most` |
//! | `growth` | `longest`: the longest operation of a repetition |
//! | `tails` | `writer > 50 µs`, ... of 10,000 operations, and `empty loop > 50 µs` of as much time |
//! | `resize` | `of the slower size`, `of the faster size`, `resizes a second`, `in progress` |
//! | tables that count | `contended`, `aborts`: shares of critical sections |
//!
//! Ratios are to another table in the same cell, or of the same table to another cell. Rates have an
//! interval: of the repetitions in pairs in one cell, where tables are measured side by side, and of the two
//! medians otherwise. What is void is named and has no figures.

use std::fmt::Write;

use corewise_measure::stats::{Ratio, Spread};
use serde::Serialize;

use crate::record::{Interval, Role, Tail};
use crate::report::{rate_text, time_text};
use crate::results::{CellResults, Results, RowResults};

/// What is to be shown.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Cells whose names contain one of these; none for all.
    pub cells: Vec<String>,
    /// Tables; none for all.
    pub tables: Vec<String>,
    /// Figures whose names contain one of these; none for all.
    pub figures: Vec<String>,
    /// What ratios are to.
    pub to: To,
}

/// What figures are divided by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum To {
    /// Nothing.
    #[default]
    Nothing,
    /// The same figure of this table in the same cell.
    Table(String),
    /// The same figure of the same table in the cell of this name, or whose name alone contains it.
    Cell(String),
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Unit {
    /// Operations per second.
    Rate,
    Nanoseconds,
    Bytes,
    /// A part of 1.
    Share,
    /// A ratio or a count.
    Plain,
}

impl Unit {
    fn text(self, value: f64) -> String {
        match self {
            Self::Rate => rate_text(value),
            Self::Nanoseconds => time_text(value),
            Self::Bytes => format!("{value:.1} B"),
            Self::Share => format!("{:.1} %", value * 100.0),
            Self::Plain if value >= 99.95 => format!("{value:.0}"),
            Self::Plain => format!("{value:.2}"),
        }
    }
}

/// A figure of a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Figure {
    name: String,
    unit: Unit,
    value: f64,
    /// Its 95 % interval, where there is one.
    spread: Option<(f64, f64)>,
}

/// A figure as shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    cell: String,
    table: String,
    /// What is wrong with the row, which has no figures then.
    void: Option<String>,
    #[serde(flatten)]
    figure: Option<Figure>,
    ratio: Option<f64>,
    ratio_spread: Option<(f64, f64)>,
}

/// The lines that a query gives; an error if it names what the results do not have.
pub fn show(results: &Results, query: &Query) -> Result<Vec<Line>, String> {
    let other = match &query.to {
        To::Cell(name) => Some(cell_named(results, name)?),
        _ => None,
    };
    if let To::Table(name) = &query.to
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
                To::Nothing => None,
                To::Table(name) => row_of(cell, name),
                To::Cell(_) => other.and_then(|other| row_of(other, &row.label)),
            };
            lines.extend(lines_of(row, base, query));
        }
    }
    match lines.is_empty() {
        true => Err("no row has such a figure".to_owned()),
        false => Ok(lines),
    }
}

/// The lines as text: a heading for each cell, a line for each figure.
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

/// Whether a text contains one of some parts, or there are none.
fn any(parts: &[String], text: &str) -> bool {
    parts.is_empty() || parts.iter().any(|part| text.contains(&**part))
}

/// The cell of that name, or the only one whose name contains it.
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
        void: None,
        figure,
        ratio: None,
        ratio_spread: None,
    };
    if row.void() {
        let void = row.problem().map(str::to_owned);
        return vec![Line { void, ..line(None) }];
    }
    let others = base.map(figures).unwrap_or_default();
    let wanted = figures(row).into_iter();
    let wanted = wanted.filter(|figure| any(&query.figures, &figure.name));
    let with_ratio = |figure: Figure| {
        let other = others.iter().find(|other| other.name == figure.name);
        let rates = match (figure.unit, base) {
            (Unit::Rate, Some(base)) => rate_ratio(row, base),
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

/// The ratio of two rows' rates with its interval, if both have repetitions.
fn rate_ratio(row: &RowResults, base: &RowResults) -> Option<Interval> {
    let beside = row.file == base.file && row.row.cell.id == base.row.cell.id;
    if !beside {
        let sorted = |row: &RowResults| {
            let mut rates = row.rates();
            rates.sort_by(f64::total_cmp);
            rates
        };
        return crate::compare::ratio(&sorted(base), &sorted(row));
    }
    let pairs = row.slices.iter().filter_map(|slice| {
        let mut others = base.slices.iter();
        let other = others.find(|other| other.repetition == slice.repetition)?;
        Some((slice.rate, other.rate))
    });
    Ratio::paired(pairs).map(Interval::from)
}

/// Everything that was measured of a row.
fn figures(row: &RowResults) -> Vec<Figure> {
    let mut found = Vec::new();
    let mut add = |name: &str, unit, value: f64, spread: Option<(f64, f64)>| {
        let name = name.to_owned();
        found.push(Figure {
            name,
            unit,
            value,
            spread,
        });
    };
    let ends = |of: Interval| Some((of.low, of.high));
    if let Some(rate) = row.row.rate {
        add("rate", Unit::Rate, rate.value, ends(rate));
    }
    if let Some(pair) = row.row.pair_ns {
        add("pair", Unit::Nanoseconds, pair.value, ends(pair));
    }
    if let Some(of) = &row.row.batch {
        add("single", Unit::Rate, of.single.value, ends(of.single));
        add(
            "batch over single",
            Unit::Plain,
            of.ratio.value,
            ends(of.ratio),
        );
    }
    for histogram in &row.histograms {
        for (percent, ns) in &histogram.percentiles_ns {
            let name = format!("{} {percent} %", histogram.operation);
            add(&name, Unit::Nanoseconds, *ns, None);
        }
    }
    if let Some(longest) = longest(row) {
        add(
            "longest",
            Unit::Nanoseconds,
            longest.median,
            Some((longest.min, longest.max)),
        );
    }
    for tail in &row.row.tails {
        for (name, share) in slow(tail) {
            add(&name, Unit::Plain, share, None);
        }
    }
    if let Some(of) = &row.row.resize {
        for (name, unit, value) in [
            ("of the slower size", Unit::Plain, of.to_slower),
            ("of the faster size", Unit::Plain, of.to_faster),
            ("resizes a second", Unit::Plain, of.resizes_per_s),
            ("in progress", Unit::Share, of.busy_share),
        ] {
            add(name, unit, value.value, ends(value));
        }
    }
    if let Some(seen) = row.row.contention {
        let share = |part: u64| part as f64 / seen.acquisitions.max(1) as f64;
        add("contended", Unit::Share, share(seen.contended), None);
        if seen.elided + seen.aborts > 0 {
            add("aborts", Unit::Share, share(seen.aborts), None);
        }
    }
    found.extend(memory(row));
    found
}

/// The longest operation of each growth.
fn longest(row: &RowResults) -> Option<Spread> {
    let longest = row
        .timelines
        .iter()
        .filter_map(|line| line.longest_ns.iter().max());
    Spread::of(longest.map(|ns| *ns as f64))
}

/// Slow operations of 10,000, and those of the empty loop in as much time, for as many of the table's.
fn slow(tail: &Tail) -> Vec<(String, f64)> {
    let of_all = |count: f64| count * 1e4 / tail.operations.max(1) as f64;
    let both = tail.slow.iter().flat_map(|slow| {
        let over = slow.over_us;
        [
            (
                format!("{} > {over} µs", tail.side),
                of_all(slow.count as f64),
            ),
            (
                format!("{}, empty loop > {over} µs", tail.side),
                of_all(slow.expected),
            ),
        ]
    });
    both.collect()
}

/// Bytes an entry, and the most that waited to be reclaimed.
fn memory(row: &RowResults) -> Vec<Figure> {
    let figure = |name: &str, bytes: f64| Figure {
        name: name.to_owned(),
        unit: Unit::Bytes,
        value: bytes,
        spread: None,
    };
    let mut found = Vec::new();
    for point in row.memory.iter().filter(|point| point.entries > 0) {
        let measures = [
            ("live", point.live_bytes),
            ("live, most", point.peak_live_bytes),
            ("resident", Some(point.resident_bytes)),
            ("resident, most", Some(point.peak_resident_bytes)),
        ];
        let taken = measures
            .into_iter()
            .filter_map(|(name, bytes)| Some((name, bytes?)));
        found.extend(taken.map(|(name, bytes)| figure(name, bytes as f64 / point.entries as f64)));
    }
    for garbage in row.garbage.iter().filter(|garbage| garbage.entries > 0) {
        let most = garbage.over_bytes.iter().copied().max().unwrap_or(0).max(0);
        found.push(figure(
            "garbage, most",
            most as f64 / garbage.entries as f64,
        ));
    }
    found
}
