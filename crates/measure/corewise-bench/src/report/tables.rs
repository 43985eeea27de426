//! The tables of words and numbers on the page.

use std::collections::BTreeSet;

use corewise_measure::number::three_digits;
use itertools::Itertools;
use maud::{Markup, html};

use crate::judge::{self, Noise};
use crate::plot::group::words;
use crate::plot::latencies;
use crate::plot::numbers::{contention, interval, table};
use crate::plot::style::{Looks, measured_once};
use crate::plot::svg::{bytes, plain, rate};
use crate::record::{Cell, Manifest, Role};
use crate::results::{CellResults, Results, RowResults, SectionResults, SourceFile, distinct};
use crate::sections;
use crate::suite::Suite;
use crate::table::TableInfo;

/// The numbers of each section, closed until a reader opens them: a block of lines for each cell,
/// a line for each table. Four columns fit on a phone.
pub(crate) fn verdicts(results: &Results, looks: &Looks) -> Markup {
    html! {
        @for section in &results.sections {
            @let shared = shared(section);
            details.verdicts {
                summary { (section.name) span { (shared.join(", ")) } }
                table.lines {
                    @for cell in &section.cells { (block(cell, &shared, looks)) }
                }
            }
        }
    }
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

/// The lines of a cell, the reference first, the harness last.
fn block(cell: &CellResults, shared: &[String], looks: &Looks) -> Markup {
    let noise = Noise::of([cell]);
    let repetitions = cell.rows.iter().map(|row| row.row.repetitions).max();
    let mut rows: Vec<&RowResults> = cell.rows.iter().collect();
    rows.sort_by_key(|row| (row.row.role, looks.place(&row.label)));
    html! {
        tbody {
            tr.cell title=(cell.cell.id) {
                th scope="rowgroup" {
                    (special(cell, shared))
                    small { (repetitions.unwrap_or(0)) " repetitions" }
                }
                th scope="col" { "rate" }
                th scope="col" { "over reference" }
                th scope="col" { "median / 99 / 99.9 %" }
            }
            @for row in rows { (line(row, noise, looks)) }
            @if !cell.cell.left_out.is_empty() { (left_out(&cell.cell)) }
        }
    }
}

/// The tables that were requested and could not be measured, and why.
fn left_out(cell: &Cell) -> Markup {
    let section = sections::find(&cell.section);
    html! {
        tr.plain {
            th scope="row" { (section.map_or("left out", |section| &section.preset().left_out)) }
            td colspan="3" { (cell.left_out.join(", ")) }
        }
    }
}

/// A line's name, and the CSS classes that select it with its table in the plots.
fn named(row: &RowResults, looks: &Looks) -> (String, String) {
    let label = &row.label;
    match row.row.role {
        Role::Reference => (label.clone(), " reference".to_owned()),
        Role::Again => (
            format!("{}: again (A/A)", measured_once(label)),
            " aa".to_owned(),
        ),
        Role::Null => (format!("{label}: harness (null)"), " null".to_owned()),
        Role::DynTable => {
            let column = looks.index(label).map(|at| format!(" col s{at}"));
            (label.clone(), column.unwrap_or_default())
        }
    }
}

fn line(row: &RowResults, noise: Noise, looks: &Looks) -> Markup {
    let (name, class) = named(row, looks);
    if row.void() {
        let why = row.problem().unwrap_or_default();
        return html! {
            tr class={ "void" (class) } {
                th scope="row" { (name) }
                td colspan="3" { b { "void" } ": " (why) }
            }
        };
    }
    let (kind, word) = judge::verdict((row.row.role, &row.row.verdict), row.row.ratio, noise);
    let counted = (row.counted()).filter_map(|(name, value)| Some((name, value?)));
    html! {
        tr class={ (kind) (class) } {
            th scope="row" { (name) }
            td {
                (row.row.rate.map_or("–".to_owned(), |of| rate(of.value)))
                @for (name, each) in counted { small { (three_digits(each)) " " (name) } }
                @if let Some(seen) = row.row.contention { small { (contention(seen)) } }
            }
            td {
                @if let Some(ratio) = &row.row.ratio {
                    b { (three_digits(ratio.value)) "×" } small { (interval(ratio)) }
                }
                span.word { (word) }
            }
            td { (latencies::line(row)) }
        }
    }
}

/// A field of a card.
type CardField = fn(&TableInfo) -> &String;

/// The fields of a card, by their heads.
const CARD: [(&str, CardField); 11] = [
    ("table", |card| &card.name),
    ("about", |card| &card.about),
    ("version", |card| &card.version),
    ("language", |card| &card.language),
    ("hasher", |card| &card.hasher),
    ("reclamation", |card| &card.reclamation),
    ("guarantees", |card| &card.guarantees),
    ("settings", |card| &card.settings),
    ("adapter", |card| &card.adapter),
    ("memory", |card| &card.memory),
    ("batches", |card| &card.batch),
];

pub(crate) fn cards(results: &Results) -> Markup {
    let cards = distinct(results.files.iter().flat_map(|file| &file.manifest.cards));
    let line = |card: &&TableInfo| CARD.map(|(_, text)| text(card).clone()).to_vec();
    let lines: Vec<_> = cards.iter().map(line).collect();
    html! {
        details #cards {
            summary { "Fairness cards: what each table is, and how it was run" }
            (table("cards", &CARD.map(|(head, _)| head), &lines))
        }
    }
}

/// A table of build and machine, with a column for each file.
pub(crate) fn environment(results: &Results) -> Markup {
    let files: Vec<_> = results.files.iter().map(facts).collect();
    let names = files.first().into_iter().flatten().enumerate();
    let line = |(at, (name, _)): (usize, &(&str, String))| {
        let each = files.iter().map(|file| file[at].1.clone());
        [(*name).to_owned()].into_iter().chain(each).collect()
    };
    table("facts", &[], &names.map(line).collect::<Vec<_>>())
}

fn facts(file: &SourceFile) -> Vec<(&'static str, String)> {
    let of = &file.manifest;
    let machine = &of.machine;
    let seconds = file
        .end
        .map_or("unknown".to_owned(), |end| format!("{} s", end.seconds));
    let loaded = format!("{:.2}", machine.load_1min);
    let is_virtual = if machine.virtual_machine { "yes" } else { "no" };
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
        ("virtual machine", is_virtual.to_owned()),
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
        ("commit", of.named_commit()),
        ("compiler", of.rustc.clone()),
        ("build", of.build.clone()),
        ("features", of.features.join(", ")),
        ("not in this build", missing(of)),
        ("seed", of.seed.to_string()),
        ("format", of.schema.to_string()),
    ]
}

/// Returns the tables that the suite takes if they are in the build, and that were not.
fn missing(of: &Manifest) -> String {
    let Ok(suite) = Suite::parse(&of.plan) else {
        return "unknown".to_owned();
    };
    let params = suite.section.iter().map(|section| &section.params);
    let tables = params
        .chain([&suite.defaults])
        .filter_map(|of| of.tables.as_ref());
    let optional = tables.flatten().filter_map(|name| name.strip_suffix('?'));
    let is_built = |name: &&str| of.cards.iter().any(|card| card.name == *name);
    let names: BTreeSet<&str> = optional.filter(|name| !is_built(name)).collect();
    match names.len() {
        0 => "nothing that the suite names".to_owned(),
        _ => Vec::from_iter(names).join(", "),
    }
}

fn caches(manifest: &Manifest) -> String {
    let mut caches = manifest.machine.caches.iter().map(|cache| {
        let size = bytes(cache.size_bytes as f64);
        format!("L{} {size} for {} CPUs", cache.level, cache.shared_by)
    });
    caches.join("; ")
}

/// Returns the first digits of the commit, and whether the sources differed from it.
pub(crate) fn short_commit(manifest: &Manifest) -> String {
    let changed = if manifest.dirty { " with changes" } else { "" };
    let digits: String = manifest.commit.chars().take(8).collect();
    format!("{digits}{changed}")
}

pub(crate) fn day(manifest: &Manifest) -> &str {
    manifest.date.split('T').next().unwrap_or(&manifest.date)
}

pub(crate) fn commands(results: &Results) -> Markup {
    let command = |file: &SourceFile| {
        let words = file.manifest.command.iter();
        words.map(|word| quoted(word)).join(" ")
    };
    html! {
        @for file in &results.files { pre.command { code { (command(file)) } } }
        p {
            "A single row is measured again by "
            code { "corewise bench replay FILE#CELL#TABLE" }
            "; the name of a cell is under the mouse in the verdicts."
        }
        @for file in results.files.iter().filter(|file| !file.manifest.plan.is_empty()) {
            details.plan {
                summary { "The suite as run: " (file.manifest.suite) }
                pre { code { (file.manifest.plan) } }
            }
        }
    }
}

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
