//! The tables of words and numbers on the page.

use std::fmt::Write;

use crate::plot::group::words;
use crate::plot::numbers::{interval, plain_ratio};
use crate::plot::style::Looks;
use crate::plot::svg::{bytes, escape, plain, rate};
use crate::record::{Manifest, Role};
use crate::report::Extent;
use crate::results::{CellResults, Results, RowResults, SectionResults, SourceFile};

/// A column of a verdict table: its content, and the name of the table.
type Column<'a> = (Part, &'a str);

/// Kinds of columns in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Reference,
    Again,
    DynTable,
    Null,
}

impl Part {
    fn of(row: &RowResults) -> Self {
        match row.row.role {
            Role::Reference => Self::Reference,
            Role::DynTable => Self::DynTable,
            Role::Again => Self::Again,
            Role::Null => Self::Null,
        }
    }
}

/// A verdict table for each section.
pub(crate) fn verdicts(results: &Results, looks: &Looks) -> String {
    let tables = results
        .sections
        .iter()
        .map(|section| verdict(section, looks));
    tables.collect()
}

fn verdict(section: &SectionResults, looks: &Looks) -> String {
    let mut columns: Vec<Column<'_>> = Vec::new();
    for row in section.cells.iter().flat_map(|cell| &cell.rows) {
        let column = (Part::of(row), &*row.label);
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    columns.sort_by_key(|(part, label)| (*part, looks.place(label)));
    let shared = shared(section);
    let mut out = format!(
        "<div class=\"scroll\"><table class=\"verdicts\"><caption><b>{}</b><span>{}</span></caption><thead><tr>\
         <th scope=\"col\" class=\"cell\">cell</th>",
        escape(&section.name),
        escape(&shared.join(", "))
    );
    for (part, label) in &columns {
        let (class, sub) = match part {
            Part::Reference | Part::DynTable => ("", ""),
            Part::Again => (" class=\"aa\"", "<small>again (A/A)</small>"),
            Part::Null => (" class=\"null\"", "<small>harness (null)</small>"),
        };
        let _ = write!(out, "<th scope=\"col\"{class}>{}{sub}</th>", escape(label));
    }
    out.push_str("</tr></thead><tbody>");
    for cell in &section.cells {
        line(&mut out, cell, &columns, &shared);
    }
    out + "</tbody></table></div>\n"
}

/// Returns the words that all cells of a section share.
fn shared(section: &SectionResults) -> Vec<String> {
    let mut cells = section.cells.iter().map(|cell| words(cell, &[]));
    let mut shared = cells.next().unwrap_or_default();
    for other in cells {
        shared.retain(|word| other.contains(word));
    }
    shared
}

/// Returns the words that distinguish a cell; its id if there are none.
fn special(cell: &CellResults, shared: &[String]) -> String {
    let mut own = words(cell, &[]);
    own.retain(|word| !shared.contains(word));
    if own.is_empty() {
        return cell.cell.id.clone();
    }
    own.join(", ")
}

fn line(out: &mut String, cell: &CellResults, columns: &[Column<'_>], shared: &[String]) {
    let repetitions = cell.rows.iter().map(|row| row.row.repetitions).max();
    let _ = write!(
        out,
        "<tr><th scope=\"row\" class=\"cell\" title=\"{}\">{}<small>{} repetitions</small></th>",
        escape(&cell.cell.id),
        escape(&special(cell, shared)),
        repetitions.unwrap_or(0)
    );
    for column in columns {
        let is = |row: &&RowResults| (Part::of(row), &*row.label) == *column;
        match cell.rows.iter().find(is) {
            Some(row) => out.push_str(&entry(row)),
            None => out.push_str("<td class=\"none\">–</td>"),
        }
    }
    out.push_str("</tr>\n");
}

fn entry(row: &RowResults) -> String {
    let class = match row.row.role {
        Role::Again => " aa",
        Role::Null => " null",
        Role::Reference => " reference",
        Role::DynTable => "",
    };
    if row.void() {
        let why = escape(row.problem().unwrap_or_default());
        return format!(
            "<td class=\"void{class}\" title=\"{why}\"><b>void</b><small>{why}</small></td>"
        );
    }
    let absolute = row.row.rate.map_or("–".to_owned(), |r| rate(r.value));
    let word = match (row.row.role, &*row.row.verdict) {
        (Role::Reference, "") => "reference",
        (_, word) => word,
    };
    let known = ["faster", "slower", "equivalent", "undecided"];
    let kind = known
        .iter()
        .find(|known| **known == word)
        .unwrap_or(&"plain");
    match &row.row.ratio {
        Some(ratio) => format!(
            "<td class=\"{kind}{class}\" title=\"{}\"><b>{}×</b><small>{}</small>\
             <span class=\"word\">{}</span></td>",
            escape(&absolute),
            plain_ratio(ratio.value),
            interval(ratio),
            escape(word)
        ),
        None => format!(
            "<td class=\"{kind}{class}\"><b>{}</b><span class=\"word\">{}</span></td>",
            escape(&absolute),
            escape(word)
        ),
    }
}

/// The fairness cards.
pub(crate) fn cards(results: &Results) -> String {
    let mut cards: Vec<_> = Vec::new();
    for card in results.files.iter().flat_map(|file| &file.manifest.cards) {
        if !cards.contains(&card) {
            cards.push(card);
        }
    }
    let mut out = String::from(
        "<details id=\"cards\"><summary>Fairness cards: what each table is, and how it was run\
         </summary><div class=\"scroll\"><table class=\"cards\"><thead><tr>",
    );
    let heads = [
        "table",
        "about",
        "version",
        "language",
        "hasher",
        "reclamation",
        "guarantees",
        "settings",
        "adapter",
        "memory",
        "batches",
    ];
    for head in heads {
        let _ = write!(out, "<th scope=\"col\">{head}</th>");
    }
    out.push_str("</tr></thead><tbody>");
    for card in cards {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(&card.name));
        for text in [
            &card.about,
            &card.version,
            &card.language,
            &card.hasher,
            &card.reclamation,
            &card.guarantees,
            &card.settings,
            &card.adapter,
            &card.memory,
            &card.batch,
        ] {
            let _ = write!(out, "<td>{}</td>", escape(text));
        }
        out.push_str("</tr>\n");
    }
    out + "</tbody></table></div></details>\n"
}

/// A table of build and machine, with a column for each file.
pub(crate) fn environment(results: &Results) -> String {
    let facts: Vec<_> = results.files.iter().map(facts).collect();
    let mut out = String::from("<div class=\"scroll\"><table class=\"facts\"><tbody>");
    for at in 0..facts.first().map_or(0, Vec::len) {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", facts[0][at].0);
        for file in &facts {
            let _ = write!(out, "<td>{}</td>", escape(&file[at].1));
        }
        out.push_str("</tr>\n");
    }
    out + "</tbody></table></div>\n"
}

fn facts(file: &SourceFile) -> Vec<(&'static str, String)> {
    let of = &file.manifest;
    let machine = &of.machine;
    let seconds = file
        .end
        .map_or("unknown".to_owned(), |end| format!("{} s", end.seconds));
    let loaded = format!("{:.2}", machine.load_1min);
    vec![
        ("file", file.path.display().to_string()),
        ("suite", of.suite.clone()),
        ("date (UTC)", of.date.clone()),
        ("length of the run", seconds),
        ("CPU", machine.cpu.clone()),
        (
            "CPUs, cores, sockets",
            format!("{}, {}, {}", machine.cpus, machine.cores, machine.sockets),
        ),
        ("caches", caches(of)),
        ("memory", bytes(machine.memory_bytes as f64)),
        ("kernel", machine.kernel.clone()),
        ("virtual machine", yes(machine.virtual_machine)),
        ("load at the start", loaded),
        (
            "timestamp counter",
            format!("{:.3} GHz", machine.tsc_hz / 1e9),
        ),
        (
            "cost of timing",
            format!("{} ns, subtracted", plain(machine.timing_overhead_ns)),
        ),
        ("memory allocator", of.allocator.clone()),
        ("pages", of.pages.clone()),
        ("commit", commit(of)),
        ("compiler", of.rustc.clone()),
        ("build", of.build.clone()),
        ("features", of.features.join(", ")),
        ("seed", of.seed.to_string()),
        ("format", of.schema.to_string()),
    ]
}

fn yes(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_owned()
}

fn caches(manifest: &Manifest) -> String {
    let caches = manifest.machine.caches.iter().map(|cache| {
        let size = bytes(cache.size_bytes as f64);
        format!("L{} {size} for {} CPUs", cache.level, cache.shared_by)
    });
    caches.collect::<Vec<_>>().join("; ")
}

/// Returns the commit, and whether the sources differed from it.
pub(crate) fn commit(manifest: &Manifest) -> String {
    let changed = if manifest.dirty { " with changes" } else { "" };
    format!("{}{changed}", manifest.commit)
}

/// Lists the commands that made the files, and those that repeat single rows.
pub(crate) fn commands(results: &Results, extent: Extent) -> String {
    let mut out = String::new();
    for file in &results.files {
        let words = file.manifest.command.iter().map(|word| quoted(word));
        let command = words.collect::<Vec<_>>().join(" ");
        let _ = writeln!(
            out,
            "<pre class=\"command\"><code>{}</code></pre>",
            escape(&command)
        );
    }
    match extent {
        Extent::Full => out.push_str(&replays(results)),
        Extent::Brief => out.push_str(
            "<p>A single row is measured again by <code>corewise bench replay FILE#CELL#TABLE</code>; the name of a \
             cell is under the mouse in the verdicts.</p>\n",
        ),
    }
    for file in results
        .files
        .iter()
        .filter(|file| !file.manifest.plan.is_empty())
    {
        let _ = writeln!(
            out,
            "<details class=\"plan\"><summary>The suite as run: {}</summary><pre><code>{}</code></pre>\
             </details>",
            escape(&file.manifest.suite),
            escape(&file.manifest.plan)
        );
    }
    out
}

/// Lists the commands that repeat single rows.
fn replays(results: &Results) -> String {
    let mut out = String::from(
        "<details id=\"replay\"><summary>Commands that repeat single rows</summary>\
         <div class=\"scroll\"><table class=\"replay\"><thead><tr><th scope=\"col\">cell</th>\
         <th scope=\"col\">table</th><th scope=\"col\">command</th></tr></thead><tbody>",
    );
    for row in results.rows() {
        let path = results.files[row.file].path.display();
        let command = format!(
            "corewise bench replay {}",
            quoted(&format!("{path}#{}", row.number))
        );
        let named = row.label.ends_with("(again)");
        let again = if row.row.role == Role::Again && !named {
            " (again)"
        } else {
            ""
        };
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}{again}</td><td><code>{}</code></td></tr>",
            escape(&row.row.cell.id),
            escape(&row.label),
            escape(&command)
        );
    }
    out + "</tbody></table></div></details>\n"
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let safe = |char: char| char.is_ascii_alphanumeric() || "-_./=,:+@%#".contains(char);
    if !word.is_empty() && !word.starts_with('#') && word.chars().all(safe) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_survive_a_shell() {
        assert_eq!(quoted("--threads=1,2"), "--threads=1,2");
        assert_eq!(quoted("results.jsonl#3"), "results.jsonl#3");
        assert_eq!(quoted("it's a file"), "'it'\\''s a file'");
        assert_eq!(quoted(""), "''");
    }
}
