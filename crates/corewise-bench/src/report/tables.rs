//! The tables of words and numbers on the page.

use maud::{Markup, html};

use crate::plot::group::words;
use crate::plot::numbers::{interval, plain_ratio};
use crate::plot::style::Looks;
use crate::plot::svg::{bytes, plain, rate};
use crate::record::{Interval, Manifest, Role};
use crate::report::{Extent, decision};
use crate::results::{CellResults, Results, RowResults, SectionResults, SourceFile};
use crate::table::TableInfo;

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
pub(crate) fn verdicts(results: &Results, looks: &Looks) -> Markup {
    html! { @for section in &results.sections { (verdict(section, looks)) } }
}

fn verdict(section: &SectionResults, looks: &Looks) -> Markup {
    let mut columns: Vec<Column<'_>> = Vec::new();
    for row in section.cells.iter().flat_map(|cell| &cell.rows) {
        let column = (Part::of(row), &*row.label);
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    columns.sort_by_key(|(part, label)| (*part, looks.place(label)));
    let shared = shared(section);
    html! {
        div.scroll {
            table.verdicts {
                caption { b { (section.name) } span { (shared.join(", ")) } }
                thead {
                    tr {
                        th.cell scope="col" { "cell" }
                        @for (part, label) in &columns { (column_head(*part, label, looks)) }
                    }
                }
                tbody { @for cell in &section.cells { (line(cell, (&columns, looks), &shared)) } }
            }
        }
    }
}

/// Returns the CSS classes of a column, which select it with its table in the plots.
fn chosen_by(part: Part, label: &str, looks: &Looks) -> String {
    match looks.index(label).filter(|_| part == Part::DynTable) {
        Some(at) => format!(" col s{at}"),
        None => String::new(),
    }
}

fn column_head(part: Part, label: &str, looks: &Looks) -> Markup {
    let (class, sub) = match part {
        Part::Reference | Part::DynTable => ("", None),
        Part::Again => ("aa", Some("again (A/A)")),
        Part::Null => ("null", Some("harness (null)")),
    };
    let class = format!("{class}{}", chosen_by(part, label, looks));
    html! {
        th scope="col" class=(class) {
            (label)
            @if let Some(sub) = sub { small { (sub) } }
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

fn line(
    cell: &CellResults,
    (columns, looks): (&[Column<'_>], &Looks),
    shared: &[String],
) -> Markup {
    let noise = decision::spread([cell]);
    let repetitions = cell.rows.iter().map(|row| row.row.repetitions).max();
    let in_column = |column: &Column<'_>| {
        let is = |row: &&RowResults| (Part::of(row), &*row.label) == *column;
        cell.rows.iter().find(is)
    };
    html! {
        tr {
            th.cell scope="row" title=(cell.cell.id) {
                (special(cell, shared))
                small { (repetitions.unwrap_or(0)) " repetitions" }
            }
            @for column in columns {
                @match in_column(column) {
                    Some(row) => (entry(row, noise, &chosen_by(column.0, column.1, looks))),
                    None => td.none { "–" },
                }
            }
        }
    }
}

/// Returns whether the interval of a ratio is beyond the A/A spread, a factor.
fn is_beyond(ratio: &Interval, noise: Option<f64>) -> bool {
    noise.is_some_and(|noise| ratio.low > noise || ratio.high < 1.0 / noise)
}

fn entry(row: &RowResults, noise: Option<f64>, column: &str) -> Markup {
    let role = match row.row.role {
        Role::Again => " aa",
        Role::Null => " null",
        Role::Reference => " reference",
        Role::DynTable => "",
    };
    let class = format!("{role}{column}");
    if row.void() {
        let why = row.problem().unwrap_or_default();
        return html! {
            td class={ "void" (class) } title=(why) { b { "void" } small { (why) } }
        };
    }
    let absolute = row.row.rate.map_or("–".to_owned(), |r| rate(r.value));
    let word = match (row.row.role, &*row.row.verdict) {
        (Role::Reference, "") => "reference",
        (_, word) => word,
    };
    let beyond = row.row.ratio.is_some_and(|ratio| is_beyond(&ratio, noise));
    let (kind, word) = match word {
        "faster" | "slower" if !beyond => ("within", format!("{word}, within A/A")),
        "faster" | "slower" | "equivalent" | "undecided" => (word, word.to_owned()),
        _ => ("plain", word.to_owned()),
    };
    let class = format!("{kind}{class}");
    html! {
        @match &row.row.ratio {
            Some(ratio) => td class=(class) title=(absolute) {
                b { (plain_ratio(ratio.value)) "×" }
                small { (interval(ratio)) }
                span.word { (word) }
            },
            None => td class=(class) { b { (absolute) } span.word { (word) } },
        }
    }
}

/// The fairness cards.
pub(crate) fn cards(results: &Results) -> Markup {
    let mut cards: Vec<_> = Vec::new();
    for card in results.files.iter().flat_map(|file| &file.manifest.cards) {
        if !cards.contains(&card) {
            cards.push(card);
        }
    }
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
    html! {
        details #cards {
            summary { "Fairness cards: what each table is, and how it was run" }
            div.scroll {
                table.cards {
                    thead { tr { @for head in heads { th scope="col" { (head) } } } }
                    tbody { @for card in cards { (card_row(card)) } }
                }
            }
        }
    }
}

fn card_row(card: &TableInfo) -> Markup {
    let texts = [
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
    ];
    html! {
        tr {
            th scope="row" { (card.name) }
            @for text in texts { td { (text) } }
        }
    }
}

/// A table of build and machine, with a column for each file.
pub(crate) fn environment(results: &Results) -> Markup {
    let facts: Vec<_> = results.files.iter().map(facts).collect();
    html! {
        div.scroll {
            table.facts {
                tbody {
                    @for at in 0..facts.first().map_or(0, Vec::len) {
                        tr {
                            th scope="row" { (facts[0][at].0) }
                            @for file in &facts { td { (file[at].1) } }
                        }
                    }
                }
            }
        }
    }
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

/// Returns the first digits of the commit, and whether the sources differed from it.
pub(crate) fn short_commit(manifest: &Manifest) -> String {
    let changed = if manifest.dirty { " with changes" } else { "" };
    let digits: String = manifest.commit.chars().take(8).collect();
    format!("{digits}{changed}")
}

/// Returns the date without the time.
pub(crate) fn day(manifest: &Manifest) -> &str {
    manifest.date.split('T').next().unwrap_or(&manifest.date)
}

/// Returns the commit, and whether the sources differed from it.
pub(crate) fn commit(manifest: &Manifest) -> String {
    let changed = if manifest.dirty { " with changes" } else { "" };
    format!("{}{changed}", manifest.commit)
}

/// Lists the commands that made the files, and those that repeat single rows.
pub(crate) fn commands(results: &Results, extent: Extent) -> Markup {
    let command = |file: &SourceFile| {
        let words = file.manifest.command.iter().map(|word| quoted(word));
        words.collect::<Vec<_>>().join(" ")
    };
    html! {
        @for file in &results.files { pre.command { code { (command(file)) } } }
        @match extent {
            Extent::Full => (replays(results)),
            Extent::Brief => p {
                "A single row is measured again by "
                code { "corewise bench replay FILE#CELL#TABLE" }
                "; the name of a cell is under the mouse in the verdicts."
            },
        }
        @for file in results.files.iter().filter(|file| !file.manifest.plan.is_empty()) {
            details.plan {
                summary { "The suite as run: " (file.manifest.suite) }
                pre { code { (file.manifest.plan) } }
            }
        }
    }
}

/// Lists the commands that repeat single rows.
fn replays(results: &Results) -> Markup {
    html! {
        details #replay {
            summary { "Commands that repeat single rows" }
            div.scroll {
                table.replay {
                    thead {
                        tr {
                            th scope="col" { "cell" }
                            th scope="col" { "table" }
                            th scope="col" { "command" }
                        }
                    }
                    tbody { @for row in results.rows() { (replay(results, row)) } }
                }
            }
        }
    }
}

fn replay(results: &Results, row: &RowResults) -> Markup {
    let path = results.files[row.file].path.display();
    let row_name = quoted(&format!("{path}#{}", row.number));
    let named = row.label.ends_with("(again)");
    html! {
        tr {
            td { (row.row.cell.id) }
            td { (row.label) @if row.row.role == Role::Again && !named { " (again)" } }
            td { code { "corewise bench replay " (row_name) } }
        }
    }
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
    fn only_ratios_beyond_the_spread_are_coloured() {
        let ratio = |low, high| Interval {
            value: 1.0,
            low,
            high,
        };
        for (low, high, noise, beyond) in [
            (1.06, 1.2, Some(1.05), true),
            (1.04, 1.2, Some(1.05), false),
            (0.8, 0.9, Some(1.05), true),
            (0.8, 0.97, Some(1.05), false),
            (1.5, 1.6, None, false),
        ] {
            assert_eq!(is_beyond(&ratio(low, high), noise), beyond, "{low} {high}");
        }
    }

    #[test]
    fn commands_survive_a_shell() {
        assert_eq!(quoted("--threads=1,2"), "--threads=1,2");
        assert_eq!(quoted("results.jsonl#3"), "results.jsonl#3");
        assert_eq!(quoted("it's a file"), "'it'\\''s a file'");
        assert_eq!(quoted(""), "''");
    }
}
