//! The page: one file with everything in it, drawn from result files.

mod page;
mod plots;
mod svg;

use std::collections::HashMap;

use crate::record::{Cell, Role, Row};
use crate::results::Results;
use svg::Look;

/// A plot with what stands around it.
pub(crate) struct Plot {
    /// Its id in the page.
    pub(crate) id: String,
    /// Its kind, for the class.
    pub(crate) kind: &'static str,
    /// What it shows.
    pub(crate) title: String,
    /// How to read it.
    pub(crate) note: String,
    svg: svg::Svg,
}

/// The page of some results, readable without a network and without scripts.
pub fn html(results: &Results) -> String {
    page::page(results, plots::all(results))
}

/// One plot of the page as a file of its own, with its commit, date and machine below it. `None`
/// if the page has none of that id.
pub fn svg(results: &Results, id: &str) -> Option<String> {
    let plot = plots::all(results).into_iter().find(|plot| plot.id == id)?;
    Some(page::alone(results, plot))
}

/// The ids of all plots.
pub fn plots(results: &Results) -> Vec<String> {
    plots::all(results)
        .into_iter()
        .map(|plot| plot.id)
        .collect()
}

/// The looks of all tables of a page.
pub(crate) struct Looks(HashMap<String, usize>);

impl Looks {
    fn of(results: &Results) -> Self {
        let mut looks = HashMap::new();
        for row in results.rows.iter().filter(|row| is_plotted(row)) {
            let next = looks.len();
            looks.entry(row.table.clone()).or_insert(next);
        }
        Self(looks)
    }

    fn of_table(&self, table: &str) -> Look {
        Look(self.0.get(table).copied().unwrap_or(0))
    }
}

/// Rows that stand for tables and hold: no void ones, no harness, no second reference.
fn is_plotted(row: &Row) -> bool {
    matches!(row.role, Role::Subject | Role::Reference) && row.verdict != "void"
}

/// Rows of a section that are plotted.
fn plotted<'r>(results: &'r Results, section: &str) -> Vec<&'r Row> {
    results
        .rows
        .iter()
        .filter(|row| row.cell.section == section && is_plotted(row))
        .collect()
}

/// A cell in words, without the parameters that a plot has on its axes.
fn words(cell: &Cell, without: &[&str]) -> String {
    let mut parts = Vec::new();
    let mut say = |name: &str, text: String| {
        if !without.contains(&name) {
            parts.push(text);
        }
    };
    say(
        "initial",
        format!(
            "{} entries of {} keys",
            svg::short(cell.initial as f64),
            svg::short(cell.range as f64)
        ),
    );
    if cell.insert_percent == cell.remove_percent {
        say("updates", format!("{} % updates", cell.update_percent));
    } else {
        say(
            "updates",
            format!(
                "{} % inserts, {} % removes",
                cell.insert_percent, cell.remove_percent
            ),
        );
    }
    say("distribution", cell.distribution.clone());
    say(
        "threads",
        format!(
            "{} thread{}",
            cell.threads,
            if cell.threads == 1 { "" } else { "s" }
        ),
    );
    if cell.kind != "u64" {
        let (least, most) = cell.key_bytes;
        say(
            "kind",
            format!("keys of {least}-{most} B, values of {} B", cell.value_bytes),
        );
    }
    say("pin", format!("pinned {}", cell.pin));
    parts.join(", ")
}

/// Rows in groups that differ only in what `axis` clears, in the order of their appearance.
fn grouped<'r>(rows: &[&'r Row], axis: impl Fn(&mut Cell)) -> Vec<Vec<&'r Row>> {
    let mut groups: Vec<(Cell, Vec<&Row>)> = Vec::new();
    for row in rows {
        let mut key = row.cell.clone();
        key.id.clear();
        key.cpus.clear();
        axis(&mut key);
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, group)) => group.push(row),
            None => groups.push((key, vec![row])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// The tables of some rows, in the order of their appearance.
fn tables(rows: &[&Row]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for row in rows {
        if !names.contains(&row.table) {
            names.push(row.table.clone());
        }
    }
    names
}
