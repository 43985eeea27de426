//! What a section is: a kind of experiment, with its defaults and texts from `presets.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use maud::Markup;
use serde::Deserialize;

use crate::cell_run::CellRun;
use crate::closed_loop;
use crate::contender::Contender;
use crate::entry::{Entry, Maker};
use crate::error::BenchError;
use crate::figure::{Figure, Unit};
use crate::params::Params;
use crate::plot::group::{contenders, describe, named};
use crate::plot::numbers::table;
use crate::plot::style::Looks;
use crate::plot::svg::rate;
use crate::plot::{Part, Plot};
use crate::price;
use crate::record::{Interval, Row};
use crate::results::{CellResults, Results, RowResults, distinct};
use crate::subject::Capability;
use crate::table::Contention;
use crate::task::Task;
use crate::workload::{Rules, Variant, Workload};

/// The defaults of a section.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Preset {
    /// What the section measures, in a line.
    pub(crate) about: String,
    /// Its heading on the page, and the text below.
    pub(crate) heading: String,
    pub(crate) lead: String,
    /// The beginning of the titles of its plots, unless each has its own.
    #[serde(default)]
    pub(crate) title: String,
    /// The name of the time of an operation of a thread, if that is a figure.
    pub(crate) operation: Option<String>,
    /// The units of the measurements of its subjects; those of the others are plain numbers.
    #[serde(default)]
    pub(crate) units: BTreeMap<String, Unit>,
    /// Whether every key is present at the start, or is inserted: there is one for each entry.
    #[serde(default)]
    pub(crate) all_keys: bool,
    /// Why requested tables have no row, for the line that names them.
    #[serde(default = "left_out")]
    pub(crate) left_out: String,
    /// Its rank among the sections of the page, the least first.
    pub(crate) rank: u32,
    /// Its parameters, where they differ from those of all sections.
    #[serde(default)]
    pub(crate) params: Params,
}

fn left_out() -> String {
    "left out".to_owned()
}

pub(crate) static PRESETS: LazyLock<BTreeMap<String, Preset>> = LazyLock::new(|| {
    let text = include_str!("../presets.toml");
    toml::from_str(text).expect("a test reads every preset")
});

/// A kind of experiment. All methods but `plots` have defaults, which are those of a
/// section that measures the throughput of a mix in closed loop.
pub(crate) trait Section: Rules {
    /// Returns its defaults and its texts, from `presets.toml`.
    fn preset(&self) -> &'static Preset {
        &PRESETS[self.name()]
    }

    /// Returns the values of what it varies besides the common parameters.
    fn variants(&self, _: &Params) -> Vec<Variant> {
        vec![Variant::default()]
    }

    /// Returns its numbers of threads on a machine, if no parameter decides them.
    fn thread_counts(&self, _cpus: usize, _oversubscribe: bool) -> Option<Vec<usize>> {
        None
    }

    /// Returns the number of keys for `initial` entries, a percentage of updates and a share of
    /// inserts among them; `None` if the parameters decide it.
    fn range(&self, initial: u64, _updates: f64, _insert_share: f64) -> Option<u64> {
        self.preset().all_keys.then_some(initial)
    }

    /// Sets parameters that the section does not leave to the suite.
    fn adapt(&self, _: &mut Workload) {}

    /// Returns what a subject needs to take part.
    fn capability(&self) -> Capability {
        Capability::Map
    }

    /// Returns the maker of a subject; `None` if it lacks what the workload needs.
    fn maker(&self, entry: &Entry, workload: &Workload) -> Option<Maker> {
        match self.capability() {
            Capability::Map => entry.maker(&workload.kind, workload.native_hash),
            other => entry.subject_maker(other, workload.threads),
        }
    }

    /// Returns whether a contender has a row.
    fn takes_part(&self, _: &Contender) -> bool {
        true
    }

    /// Measures the cells of a task, and writes their rows and all other records.
    fn run(&self, run: &mut CellRun<'_, '_>) -> Result<(), BenchError> {
        let measured = closed_loop::measure(run, |_, _| Ok(closed_loop::mix))?;
        run.write(measured)
    }

    /// Estimates the seconds of a task with `rows` rows in each cell.
    fn seconds(&self, task: &Task, rows: usize) -> f64 {
        price::repeated(task, rows, price::closed_loop(&task.workload))
    }

    /// Returns the end of a row's line on the terminal: its figures, unless it has details.
    fn remark(&self, row: &Row) -> String {
        if !self.details(row).is_empty() {
            return String::new();
        }
        let figures = self.row_figures(row).into_iter();
        let texts = figures.map(|of| format!("  {} {}", of.name, of.text()));
        texts.collect()
    }

    /// Returns what is said of a row in place of its figures: lines below its line on the terminal,
    /// and in the table below the plots.
    fn details(&self, _: &Row) -> Vec<LineFields> {
        Vec::new()
    }

    /// Returns the figures in the summary of a row: the time of an operation if the preset names
    /// it, and what the subject or the section measured.
    fn row_figures(&self, row: &Row) -> Vec<Figure> {
        figures_of(self.preset(), row)
    }

    /// Returns the figures of a row besides rate, latencies and contention, for `bench show`.
    fn figures(&self, row: &RowResults) -> Vec<Figure> {
        self.row_figures(&row.row)
    }

    /// Draws its plots.
    fn plots(&self, results: &Results, looks: &Looks) -> Vec<Plot>;

    /// Returns the tables below its plots: the details or the figures of its rows.
    fn below(&self, results: &Results, _: &Looks) -> Markup {
        summaries(results, self)
    }

    /// Returns the part of the page with its plots.
    fn part(&self, results: &Results, looks: &Looks) -> Part {
        let preset = self.preset();
        let plots = self.plots(results, looks);
        Part {
            below: self.below(results, looks),
            ..Part::new(self.name(), &preset.heading, &preset.lead, plots)
        }
    }

    /// Returns all its parts of the page; those without plots are omitted.
    fn parts(&self, results: &Results, looks: &Looks) -> Vec<Part> {
        vec![self.part(results, looks)]
    }
}

/// The fields of a line: their names and their texts.
pub(crate) type LineFields = Vec<(String, String)>;

/// The time of an operation of a thread, if the preset has a name for it, the measurements of the
/// subject, and how its elided sections ended.
fn figures_of(preset: &Preset, row: &Row) -> Vec<Figure> {
    let unit = |name: &String| preset.units.get(name).copied().unwrap_or(Unit::Plain);
    let figure = |(name, of): (&String, &_)| Figure::of_interval(name, unit(name), *of);
    let valid = row.rate.filter(|_| row.verdict != "void");
    let ns = |rate: f64| row.cell.threads as f64 * 1e9 / rate;
    let operation = valid.zip(preset.operation.as_ref()).map(|(rate, name)| {
        let time = Interval {
            value: ns(rate.value),
            low: ns(rate.high),
            high: ns(rate.low),
        };
        Figure::of_interval(name, Unit::Nanoseconds, time)
    });
    let measured = row.fields.measured.iter().map(figure);
    let elision = elision(row.contention.unwrap_or_default());
    operation
        .into_iter()
        .chain(measured)
        .chain(elision)
        .collect()
}

/// The sections of an elided lock and the transactions that they began (\[CHTBench\] tables 4.2 to
/// 4.4), the share of the sections that ran under the lock, and of the transactions that aborted,
/// in all and by cause.
fn elision(seen: Contention) -> Vec<Figure> {
    let known = seen.conflicts + seen.capacity + seen.explicit;
    if seen.fallbacks + known == 0 {
        return Vec::new();
    }
    let begun = seen.elided + seen.aborts;
    let sections = seen.elided + seen.fallbacks;
    let counts = [
        ("sections", sections),
        ("transactions", begun),
        ("aborts", seen.aborts),
    ];
    let shares = [
        ("under the lock", seen.fallbacks, sections),
        ("abort rate", seen.aborts, begun),
        ("conflicts", seen.conflicts, begun),
        ("capacity aborts", seen.capacity, begun),
        ("explicit aborts", seen.explicit, begun),
        ("other aborts", seen.aborts.saturating_sub(known), begun),
    ];
    let count = |(name, count)| Figure::new(name, Unit::Plain, count as f64);
    let share = |(name, part, all)| Figure::new(name, Unit::Share, part as f64 / all as f64);
    let shares = shares.into_iter().filter(|(_, _, all)| *all > 0);
    let counts = counts.into_iter().map(count);
    counts.chain(shares.map(share)).collect()
}

/// The details of all rows of a section, or their rates and figures.
fn summaries(results: &Results, section: &(impl Section + ?Sized)) -> Markup {
    let rows = contenders(named(&results.sections, section.name()));
    let valid = rows.filter(|(_, row)| !row.void());
    let lines: Vec<LineFields> = valid
        .flat_map(|(cell, row)| lines(section, cell, row))
        .collect();
    let heads = distinct(lines.iter().flatten().map(|(head, _)| &**head));
    let text = |line: &LineFields, head: &str| {
        let field = line.iter().find(|(name, _)| name == head);
        field.map_or("–".to_owned(), |(_, text)| text.clone())
    };
    let line = |line: &LineFields| heads.iter().map(|head| text(line, head)).collect();
    table(
        "numbers",
        &heads,
        &lines.iter().map(line).collect::<Vec<_>>(),
    )
}

/// The lines of a row: none if it has nothing but its rate.
fn lines(
    section: &(impl Section + ?Sized),
    cell: &CellResults,
    row: &RowResults,
) -> Vec<LineFields> {
    let mut details = section.details(&row.row);
    let figures = section.figures(row);
    if details.is_empty() && !figures.is_empty() {
        let rate = row
            .row
            .rate
            .map(|of| ("operations a second".to_owned(), rate(of.value)));
        let figures = figures.into_iter().map(|of| (of.name.clone(), of.text()));
        details.push(rate.into_iter().chain(figures).collect());
    }
    let start = [
        ("subject".to_owned(), row.label.clone()),
        ("workload".to_owned(), describe(cell, &["pin"])),
    ];
    let line = |fields: LineFields| start.iter().cloned().chain(fields).collect();
    details.into_iter().map(line).collect()
}
