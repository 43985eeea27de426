//! Compares two results: which rows became faster or slower.
//!
//! Rows are matched by cell and table; the reference's second measurement is a separate row. The
//! ratio of a row, new over old, is [`Ratio::unpaired`], since nothing pairs the repetitions of
//! both sides:
//!
//! | interval | verdict |
//! |---|---|
//! | within 0.97 to 1.03 | equivalent |
//! | above 1 | faster |
//! | below 1 | slower |
//! | anything else, or fewer than [`LEAST_REPETITIONS`] on a side | undecided |
//!
//! A row that is void on either side has no ratio and the verdict `void`.

use std::collections::HashMap;
use std::fmt::Write;

use corewise_measure::stats::{Ratio, SpeedVerdict, Spread};
use itertools::Itertools;
use serde::Serialize;

pub use crate::judge::LEAST_REPETITIONS;
use crate::record::{Interval, Manifest, Role};
use crate::results::{Results, RowResults};

/// The result of comparing two results.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// Differences between the runs, other than the tables, that could explain a difference in
    /// rates.
    pub warnings: Vec<String>,
    /// Rows in both results, in the order of the old result.
    pub rows: Vec<Compared>,
    /// Rows only in the old result.
    pub only_old: Vec<RowName>,
    /// Rows only in the new result.
    pub only_new: Vec<RowName>,
    /// Rows in both results without a rate to compare.
    pub without_rate: Vec<RowName>,
}

/// The name of a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct RowName {
    /// The cell's id.
    pub cell: String,
    /// The table.
    pub table: String,
    /// Whether it is the reference's second measurement in the cell.
    pub again: bool,
}

/// A row in both results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The name of the row.
    #[serde(flatten)]
    pub name: RowName,
    /// Median of the old rates, operations per second.
    pub old_rate: Option<f64>,
    /// Median of the new rates, operations per second.
    pub new_rate: Option<f64>,
    /// New rate over old rate; `None` if a side is void.
    pub ratio: Option<Interval>,
    /// The verdict.
    pub verdict: RowVerdict,
}

/// The verdict on a row of the new result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RowVerdict {
    /// Faster than it was.
    Faster,
    /// Slower than it was.
    Slower,
    /// As fast as it was, within 3 %.
    Equivalent,
    /// The repetitions do not decide.
    Undecided,
    /// Void in the old result, valid in the new one.
    VoidBefore,
    /// Void in the new result.
    Void,
}

/// The verdicts as words.
const WORDS: [(RowVerdict, &str); 6] = [
    (RowVerdict::Faster, "faster"),
    (RowVerdict::Slower, "slower"),
    (RowVerdict::Equivalent, "equivalent"),
    (RowVerdict::Undecided, "undecided"),
    (RowVerdict::VoidBefore, "void before"),
    (RowVerdict::Void, "void"),
];

/// Compares a new result with an old one.
pub fn compare(old: &Results, new: &Results) -> Comparison {
    let (old_rows, new_rows) = (index(old), index(new));
    let mut comparison = Comparison {
        warnings: warnings(old, new),
        ..Comparison::default()
    };
    for row in old.rows() {
        let name = RowName::of(row);
        match new_rows.get(&name) {
            None => comparison.only_old.push(name),
            Some(other) => comparison.add(name, row, other),
        }
    }
    let only_new = new.rows().map(RowName::of);
    comparison.only_new = only_new.filter(|n| !old_rows.contains_key(n)).collect();
    comparison
}

impl Comparison {
    /// Returns whether a row is slower.
    ///
    /// A void row of the new result counts, too: a broken table must not pass as not slower. So
    /// does a comparison in which no row has a rate on both sides.
    pub fn fails(&self) -> bool {
        let bad = |row: &Compared| matches!(row.verdict, RowVerdict::Slower | RowVerdict::Void);
        self.rows.is_empty() || self.rows.iter().any(bad)
    }

    /// Counts the rows with a verdict.
    pub fn count(&self, verdict: RowVerdict) -> usize {
        let with = self.rows.iter().filter(|row| row.verdict == verdict);
        with.count()
    }

    /// Returns the comparison as a text table.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for warning in &self.warnings {
            let _ = writeln!(out, "warning: {warning}");
        }
        let table = aligned(&self.lines());
        out.push_str(&table);
        self.tally(&mut out);
        for (names, what) in [
            (&self.only_old, "only in the old file"),
            (&self.only_new, "only in the new file"),
            (&self.without_rate, "no rate to compare"),
        ] {
            for name in names {
                let _ = writeln!(out, "{what}: {} {}", name.cell, name.shown());
            }
        }
        out
    }

    /// Returns the comparison as JSON.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    fn add(&mut self, name: RowName, old: &RowResults, new: &RowResults) {
        let rates = (rates(old), rates(new));
        if (old.void() || new.void()) || !(rates.0.is_empty() || rates.1.is_empty()) {
            self.rows.push(compared(name, (old, new), rates));
        } else {
            self.without_rate.push(name);
        }
    }

    fn lines(&self) -> Vec<[String; 6]> {
        let head = ["cell", "table", "old", "new", "new/old", "verdict"];
        let mut lines = vec![head.map(str::to_owned)];
        for row in &self.rows {
            let rate = |rate: Option<f64>| rate.map_or("–".into(), crate::plot::svg::rate);
            let ratio = row.ratio.map_or("–".into(), |ratio| {
                format!("{:.3} [{:.3}, {:.3}]", ratio.value, ratio.low, ratio.high)
            });
            lines.push([
                row.name.cell.clone(),
                row.name.shown(),
                rate(row.old_rate),
                rate(row.new_rate),
                ratio,
                row.verdict.word().to_owned(),
            ]);
        }
        lines
    }

    fn tally(&self, out: &mut String) {
        let counts = WORDS.map(|(verdict, word)| (self.count(verdict), word));
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let words = counts.map(|(n, word)| format!("{n} {word}")).join(", ");
        let _ = writeln!(out, "{} rows: {words}", self.rows.len());
    }
}

impl RowName {
    fn of(row: &RowResults) -> Self {
        Self {
            cell: row.row.cell.id.clone(),
            table: row.row.table.clone(),
            again: row.row.role == Role::Again,
        }
    }

    fn shown(&self) -> String {
        let named = self.table.ends_with(" (again)"); // see `runner::contender_name`
        let again = if self.again && !named { " (again)" } else { "" };
        format!("{}{again}", self.table)
    }
}

impl RowVerdict {
    /// Returns the verdict as a word.
    pub fn word(self) -> &'static str {
        let named = WORDS.iter().find(|(verdict, _)| *verdict == self);
        named.map_or("", |(_, word)| word)
    }

    fn of(verdict: SpeedVerdict, repetitions: usize) -> Self {
        match verdict {
            _ if repetitions < LEAST_REPETITIONS => Self::Undecided,
            SpeedVerdict::Faster => Self::Faster,
            SpeedVerdict::Slower => Self::Slower,
            SpeedVerdict::Equivalent => Self::Equivalent,
            SpeedVerdict::Undecided => Self::Undecided,
        }
    }
}

fn index(results: &Results) -> HashMap<RowName, &RowResults> {
    let rows = results.rows();
    rows.map(|row| (RowName::of(row), row)).collect()
}

/// Returns the positive rates of a row.
fn rates(row: &RowResults) -> Vec<f64> {
    let mut rates = row.rates();
    rates.retain(|rate| *rate > 0.0);
    rates
}

fn compared(
    name: RowName,
    (old, new): (&RowResults, &RowResults),
    (old_rates, new_rates): (Vec<f64>, Vec<f64>),
) -> Compared {
    let ratio = Ratio::unpaired(&new_rates, &old_rates).filter(|_| !old.void() && !new.void());
    let verdict = match &ratio {
        _ if new.void() => RowVerdict::Void,
        _ if old.void() => RowVerdict::VoidBefore,
        None => RowVerdict::Undecided,
        Some(ratio) => RowVerdict::of(ratio.verdict, old_rates.len().min(new_rates.len())),
    };
    let median = |row: &RowResults, rates: Vec<f64>| {
        let rates = Spread::of(rates).filter(|_| !row.void());
        rates.map(|rates| rates.median)
    };
    Compared {
        name,
        old_rate: median(old, old_rates),
        new_rate: median(new, new_rates),
        ratio: ratio.map(Interval::from),
        verdict,
    }
}

/// A fact of a manifest.
type Fact = fn(&Manifest) -> String;

/// Returns the parameters that were given and that no cell's name holds.
fn unnamed(manifest: &Manifest) -> String {
    let names = ["slices =", "warm-ms =", "churn ="];
    let is_unnamed = |line: &&str| names.iter().any(|name| line.starts_with(name));
    let given = manifest.plan.lines().filter(is_unnamed);
    let words = manifest.command.iter().flat_map(|word| word.split('='));
    let numa = words.skip_while(|word| *word != "--numa").take(2);
    given.chain(numa).unique().join(" ")
}

/// Returns the differences between the runs other than the tables' speed.
fn warnings(old: &Results, new: &Results) -> Vec<String> {
    let facts: [(&str, Fact); 9] = [
        ("machine", |m| m.machine.named()),
        ("kernel", |m| m.machine.kernel.clone()),
        ("allocator", |m| m.allocator.clone()),
        ("page policy", |m| m.pages.clone()),
        ("compiler", |m| m.rustc.clone()),
        ("build", |m| m.build.clone()),
        ("commit", Manifest::named_commit),
        ("seed", |m| m.seed.to_string()),
        ("slices, warm-up, churn or NUMA policy", unnamed),
    ];
    let mut warnings: Vec<String> = facts
        .iter()
        .filter_map(|(what, fact)| {
            let [old, new] = [old, new].map(|of| of.each(|file| fact(&file.manifest)));
            (old != new).then(|| format!("the {what} differs: {old} before, {new} now"))
        })
        .collect();
    for (side, results) in [("old", old), ("new", new)] {
        let files = results.files.iter();
        let notes = files.flat_map(|file| file.notes());
        warnings.extend(notes.map(|note| format!("in the {side} file {note}")));
    }
    warnings
}

/// Pads columns to equal width; aligns the first two left, numbers right.
fn aligned(lines: &[[String; 6]]) -> String {
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max();
    let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(|at| width(at).unwrap_or(0));
    let mut out = String::new();
    for [cell, table, old, new, ratio, verdict] in lines {
        let _ = writeln!(
            out,
            "{cell:a$}  {table:b$}  {old:>c$}  {new:>d$}  {ratio:>e$}  {verdict}"
        );
    }
    out
}
