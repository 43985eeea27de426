//! Cells that differ in one thing only, and workloads in words.

use crate::record::{Cell, Role};
use crate::report::svg;
use crate::results::{CellResults, RowResults, Section};

/// Cells that make one plot.
#[derive(Debug)]
pub(super) struct Group<'a> {
    /// What they have in common.
    pub(super) title: String,
    pub(super) cells: Vec<&'a CellResults>,
}

impl<'a> Group<'a> {
    /// Rows of tables with their cells, without the harness and the reference's second appearance.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&'a CellResults, &'a RowResults)> {
        let pairs = |cell: &&'a CellResults| {
            let cell = *cell;
            cell.rows.iter().map(move |row| (cell, row))
        };
        let all = self.cells.iter().flat_map(pairs);
        all.filter(|(_, row)| matches!(row.row.role, Role::Subject | Role::Reference))
    }

    /// The tables in it, in the order in which they appear.
    pub(super) fn labels(&self) -> Vec<&'a str> {
        let mut labels: Vec<&str> = Vec::new();
        for (_, row) in self.rows() {
            if !labels.contains(&&*row.label) {
                labels.push(&row.label);
            }
        }
        labels
    }
}

/// Sections of that name.
pub(super) fn named<'a>(
    sections: &'a [Section],
    name: &'a str,
) -> impl Iterator<Item = &'a CellResults> {
    let of_name = sections.iter().filter(move |section| section.name == name);
    of_name.flat_map(|section| &section.cells)
}

/// Groups cells that agree in everything but these fields of [`Cell`].
pub(super) fn groups<'a>(
    cells: impl Iterator<Item = &'a CellResults>,
    vary: &[&str],
) -> Vec<Group<'a>> {
    let mut keys: Vec<String> = Vec::new();
    let mut groups: Vec<Group<'a>> = Vec::new();
    for cell in cells {
        let key = key(&cell.cell, vary);
        let at = keys.iter().position(|known| *known == key);
        let at = at.unwrap_or_else(|| {
            keys.push(key);
            groups.push(Group {
                title: describe(&cell.cell, vary),
                cells: Vec::new(),
            });
            groups.len() - 1
        });
        groups[at].cells.push(cell);
    }
    groups
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

/// A workload in a line, without the fields that vary and without what is as usual.
pub(super) fn describe(cell: &Cell, vary: &[&str]) -> String {
    words(cell, vary).join(", ")
}

/// The same, thing by thing.
pub(super) fn words(cell: &Cell, vary: &[&str]) -> Vec<String> {
    let mut words = Vec::new();
    let mut say = |fields: &[&str], unusual: bool, text: String| {
        if unusual && !fields.iter().any(|field| vary.contains(field)) {
            words.push(text);
        }
    };
    let entries = svg::count(cell.initial);
    say(&["initial"], true, format!("{entries} entries"));
    let odd_range = cell.range != 2 * cell.initial;
    let range = svg::count(cell.range);
    say(&["range", "initial"], odd_range, format!("{range} keys"));
    say(&["update_percent"], true, updates(cell));
    say(&["distribution"], true, cell.distribution.clone());
    say(&["kind"], cell.kind != "u64", sizes(cell));
    say(
        &["keys"],
        cell.keys != "mixed",
        format!("{} keys", cell.keys),
    );
    say(
        &["hash"],
        cell.hash != "common",
        format!("{} hash", cell.hash),
    );
    let prefill = format!("filled by {}", cell.prefill);
    say(&["prefill"], cell.prefill != "all", prefill);
    say(&["threads"], true, threads(cell.threads));
    say(&["pin"], true, format!("pin {}", cell.pin));
    say(&["variant"], !cell.variant.is_empty(), cell.variant.clone());
    if let Some(rate) = cell.rate_per_s {
        words.push(format!("open loop at {}", svg::rate(rate)));
    }
    words
}

/// Threads in words.
pub(super) fn threads(count: usize) -> String {
    counted(count, "thread")
}

/// So many of something.
pub(super) fn counted(count: usize, what: &str) -> String {
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

/// The share of updates in words.
pub(super) fn updates(cell: &Cell) -> String {
    let share = |percent: f64| svg::plain(percent);
    let (all, insert, remove) = (
        cell.update_percent,
        cell.insert_percent,
        cell.remove_percent,
    );
    if cell.section == "hot" {
        "each removed and inserted again".to_owned()
    } else if cell.section == "tails" {
        "inserts beside lookups".to_owned()
    } else if all == 0.0 {
        "lookups only".to_owned()
    } else if insert == remove {
        format!("{} % updates", share(all))
    } else {
        format!("{} % inserts, {} % removes", share(insert), share(remove))
    }
}
