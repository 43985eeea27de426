//! Groups of cells that differ in few fields, and descriptions of workloads.

use crate::payload::operations;
use crate::plan::KeyMap;
use crate::plot::svg;
use crate::record::{Cell, Role};
use crate::results::{CellResults, RowResults, SectionResults, by_key};

#[derive(Debug)]
pub(crate) struct Group<'a> {
    /// Description of what the cells share.
    pub(crate) title: String,
    pub(crate) cells: Vec<&'a CellResults>,
}

impl<'a> Group<'a> {
    /// Returns the rows of the tables with their cells.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&'a CellResults, &'a RowResults)> {
        contenders(self.cells.iter().copied())
    }
}

/// Returns rows with their cells, without the null table and the reference's second measurement.
pub(crate) fn contenders<'a>(
    cells: impl Iterator<Item = &'a CellResults>,
) -> impl Iterator<Item = (&'a CellResults, &'a RowResults)> {
    let all = cells.flat_map(|cell| cell.rows.iter().map(move |row| (cell, row)));
    all.filter(|(_, row)| matches!(row.row.role, Role::DynTable | Role::Reference))
}

/// Returns the cells of the sections of that name.
pub(crate) fn named<'a>(
    sections: &'a [SectionResults],
    name: &'a str,
) -> impl Iterator<Item = &'a CellResults> {
    let of_name = sections.iter().filter(move |section| section.name == name);
    of_name.flat_map(|section| &section.cells)
}

/// Groups cells that agree in everything but these fields of [`Cell`].
pub(crate) fn groups<'a>(
    cells: impl Iterator<Item = &'a CellResults>,
    vary: &[&str],
) -> Vec<Group<'a>> {
    let group = |cells: Vec<&'a CellResults>| Group {
        title: describe(cells[0], vary),
        cells,
    };
    let groups = by_key(cells.map(|cell| (key(&cell.cell, vary), cell)));
    groups.into_iter().map(|(_, cells)| group(cells)).collect()
}

fn key(cell: &Cell, vary: &[&str]) -> String {
    let mut value = serde_json::to_value(cell).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        for field in vary
            .iter()
            .chain(&["id", "cpus", "duration_ms", "left_out"])
        {
            fields.remove(*field);
        }
    }
    value.to_string()
}

/// Describes a workload in a line, without the fields that vary and without default values.
pub(crate) fn describe(cell: &CellResults, vary: &[&str]) -> String {
    words(cell, vary).join(", ")
}

/// Returns the parts of [`describe`].
pub(crate) fn words(of: &CellResults, vary: &[&str]) -> Vec<String> {
    let cell = &of.cell;
    let mut words = Vec::new();
    let mut say = |fields: &[&str], unusual: bool, text: String| {
        if unusual && !fields.iter().any(|field| vary.contains(field)) {
            words.push(text);
        }
    };
    let entries = svg::count(cell.initial);
    say(&["initial"], true, format!("{entries} entries"));
    let odd_range = cell.range != cell.initial.saturating_mul(2);
    let range = svg::count(cell.range);
    say(&["range", "initial"], odd_range, format!("{range} keys"));
    say(&["update_percent"], true, updates(of));
    say(&["distribution"], true, cell.distribution.clone());
    say(&["kind"], cell.kind != "u64", sizes(cell));
    say(
        &["keys"],
        cell.keys == KeyMap::Dense,
        "dense keys".to_owned(),
    );
    say(&["threads"], true, threads(cell.threads));
    say(&["pin"], true, format!("pin {}", cell.pin));
    say(&["variant"], !cell.variant.is_empty(), cell.variant.clone());
    words
}

pub(crate) fn threads(count: usize) -> String {
    counted(count, "thread")
}

pub(crate) fn counted(count: usize, what: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {what}{ending}")
}

fn sizes(cell: &Cell) -> String {
    let (least, most) = cell.key_bytes;
    format!(
        "{} with keys of {least} to {most} B and values of {} B",
        cell.kind, cell.value_bytes
    )
}

pub(crate) fn updates(cell: &CellResults) -> String {
    match operations(&cell.cell.section) {
        Some(words) => words.to_owned(),
        None => mix(&cell.cell),
    }
}

/// Describes the shares of updates in a mix.
pub(crate) fn mix(cell: &Cell) -> String {
    let share = |percent: f64| svg::plain(percent);
    let (all, insert, remove) = (
        cell.update_percent,
        cell.insert_percent,
        cell.remove_percent,
    );
    if all == 0.0 {
        "lookups only".to_owned()
    } else if insert == remove {
        format!("{} % updates", share(all))
    } else {
        format!("{} % inserts, {} % removes", share(insert), share(remove))
    }
}
