//! Comparing the results of two runs, row by row.
//!
//! Rows belong together by cell and table. The two runs were apart, so their repetitions are two
//! independent samples ([`Ratio::unpaired`]), and what else differed between them is not in the
//! interval: the warnings say what is known of it. A void row is never fine: neither side of it
//! is believed, and it is listed with what was wrong.
//!
//! An open-loop row that was offered another rate in each run stays undecided: what gets done in
//! time follows the offer below capacity, and falls with it above, so neither the rates nor their
//! shares of the offer tell the runs apart. A rate below one operation per second counts as one,
//! so that a table which got nothing done has a ratio too.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write;

use corewise_measure::stats::{Ratio, Verdict};
use serde::Serialize;
use serde_json::Value;

use crate::record::{Cell, Interval, Manifest, Row};
use crate::results::Results;

/// With fewer repetitions on each side, equal things look different too often: all of one side
/// above all of the other by chance is 1 in 10 with three, 1 in 35 with four.
const FEW: usize = 4;

/// What became of the rows of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// What stands in the way of believing it, a line each.
    pub warnings: Vec<String>,
    /// Rows of both runs, in the order of the new one.
    pub rows: Vec<Change>,
    /// Rows of the old run only.
    pub only_old: Vec<Name>,
    /// Rows of the new run only.
    pub only_new: Vec<Name>,
    /// Rows of both runs that measure something other than a rate, and are not void.
    pub unrated: Vec<Name>,
    /// How many rows came to what.
    pub summary: Summary,
}

/// A row of both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The cell's id.
    pub cell: String,
    /// The table.
    pub table: String,
    /// Operations per second in the old run: the median.
    pub old: Option<f64>,
    /// And in the new run.
    pub new: Option<f64>,
    /// New over old; above 1 is faster. `None` for void rows.
    pub ratio: Option<Interval>,
    /// What it means.
    pub outcome: Outcome,
    /// Whether the row of the old run is void.
    pub void_old: bool,
    /// Whether the row of the new run is void.
    pub void_new: bool,
    /// What was wrong with them.
    pub problems: Vec<String>,
}

/// What a row came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Faster than before.
    Faster,
    /// Slower than before.
    Slower,
    /// The same within 3 %.
    Equivalent,
    /// More repetitions would tell, or the same offered rate in both runs.
    Undecided,
    /// A check failed in either run.
    Void,
}

/// The name of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Name {
    /// The cell's id.
    pub cell: String,
    /// The table.
    pub table: String,
    /// Whether it is void.
    pub void: bool,
}

/// Numbers of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Rows of both runs that have a rate or are void.
    pub rows: usize,
    /// Of these faster.
    pub faster: usize,
    /// Slower.
    pub slower: usize,
    /// The same within 3 %.
    pub equivalent: usize,
    /// Neither.
    pub undecided: usize,
    /// Void in either run.
    pub void: usize,
}

/// Compares a new run with an old one.
pub fn compare(old: &Results, new: &Results) -> Comparison {
    let (before, after) = (Side::of(old), Side::of(new));
    let shared: Vec<Pair<'_>> = after
        .order
        .iter()
        .filter_map(|key| Some((before.entries.get(key)?, &after.entries[key])))
        .collect();
    let (judged, unrated): (Vec<Pair<'_>>, Vec<Pair<'_>>) =
        shared.iter().partition(|(old, new)| {
            old.void || new.void || (old.row.rate.is_some() && new.row.rate.is_some())
        });
    let rows: Vec<Change> = judged.iter().map(|(old, new)| change(old, new)).collect();
    let mut warnings = warnings(old, new);
    warnings.extend(other_cells(&shared));
    warnings.extend(few_repetitions(&judged));
    Comparison {
        warnings,
        summary: Summary::of(&rows),
        rows,
        only_old: before.without(&after),
        only_new: after.without(&before),
        unrated: unrated.iter().map(|(_, new)| new.name()).collect(),
    }
}

impl Comparison {
    /// A table, what it does not cover, and a summary in the last line.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for warning in &self.warnings {
            let _ = writeln!(text, "warning: {warning}");
        }
        if !self.rows.is_empty() {
            text += if text.is_empty() { "" } else { "\n" };
            text += &table(&self.rows);
        }
        for (title, names) in [
            ("only in the old file", &self.only_old),
            ("only in the new file", &self.only_new),
            ("without a rate, not compared", &self.unrated),
        ] {
            text += &list(title, names);
        }
        text += if text.is_empty() { "" } else { "\n" };
        text + &self.summary.line()
    }

    /// One JSON document.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() // it has string keys only
    }

    /// Whether a row is slower, or void in the new run only.
    pub fn fails_on_slower(&self) -> bool {
        let bad = |row: &Change| row.outcome == Outcome::Slower || (row.void_new && !row.void_old);
        self.rows.iter().any(bad) || self.only_new.iter().any(|name| name.void)
    }
}

impl Outcome {
    /// In one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Void => "void",
            Self::Faster => Verdict::Faster.word(),
            Self::Slower => Verdict::Slower.word(),
            Self::Equivalent => Verdict::Equivalent.word(),
            Self::Undecided => Verdict::Undecided.word(),
        }
    }
}

impl From<Verdict> for Outcome {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Faster => Self::Faster,
            Verdict::Slower => Self::Slower,
            Verdict::Equivalent => Self::Equivalent,
            Verdict::Undecided => Self::Undecided,
        }
    }
}

impl Summary {
    fn of(rows: &[Change]) -> Self {
        let count = |outcome| rows.iter().filter(|row| row.outcome == outcome).count();
        Self {
            rows: rows.len(),
            faster: count(Outcome::Faster),
            slower: count(Outcome::Slower),
            equivalent: count(Outcome::Equivalent),
            undecided: count(Outcome::Undecided),
            void: count(Outcome::Void),
        }
    }

    /// All of it in one line.
    pub fn line(&self) -> String {
        format!(
            "{}: {} faster, {} slower, {} equivalent, {} undecided, {} void",
            rows(self.rows),
            self.faster,
            self.slower,
            self.equivalent,
            self.undecided,
            self.void
        )
    }
}

/// Cell and table.
type Key<'r> = (&'r str, &'r str);

/// A row in the old and in the new run.
type Pair<'r> = (&'r Entry<'r>, &'r Entry<'r>);

/// The rows of a run by name.
struct Side<'r> {
    entries: HashMap<Key<'r>, Entry<'r>>,
    order: Vec<Key<'r>>,
}

/// A row and the rates of its repetitions. Were it in the files twice, then it is void if either
/// is, and has the repetitions of both.
struct Entry<'r> {
    row: &'r Row,
    void: bool,
    problems: Vec<&'r str>,
    rates: Vec<f64>,
}

impl<'r> Side<'r> {
    fn of(results: &'r Results) -> Self {
        let mut side = Self {
            entries: HashMap::new(),
            order: Vec::new(),
        };
        for row in &results.rows {
            let key = (row.cell.id.as_str(), row.table.as_str());
            let entry = side.entries.entry(key).or_insert_with(|| {
                side.order.push(key);
                Entry::of(row)
            });
            entry.void |= row.verdict == "void";
            entry
                .problems
                .extend(row.problems.iter().map(String::as_str));
        }
        for slice in &results.slices {
            let key = (slice.cell.as_str(), slice.table.as_str());
            if let Some(entry) = side.entries.get_mut(&key) {
                entry.rates.push(slice.rate.max(1.0));
            }
        }
        side
    }

    /// Names of the rows that another run has not.
    fn without(&self, other: &Self) -> Vec<Name> {
        let mine = self.order.iter();
        mine.filter(|key| !other.entries.contains_key(*key))
            .map(|key| self.entries[key].name())
            .collect()
    }
}

impl<'r> Entry<'r> {
    fn of(row: &'r Row) -> Self {
        Self {
            row,
            void: false,
            problems: Vec::new(),
            rates: Vec::new(),
        }
    }

    fn name(&self) -> Name {
        Name {
            cell: self.row.cell.id.clone(),
            table: self.row.table.clone(),
            void: self.void,
        }
    }
}

fn change(old: &Entry<'_>, new: &Entry<'_>) -> Change {
    let void = old.void || new.void;
    let ratio = Ratio::unpaired(&new.rates, &old.rates).filter(|_| !void);
    let outcome = match ratio {
        _ if void => Outcome::Void,
        Some(ratio) if old.row.cell.rate_per_s == new.row.cell.rate_per_s => ratio.verdict.into(),
        _ => Outcome::Undecided,
    };
    let median = |entry: &Entry<'_>| entry.row.rate.map(|rate| rate.value);
    let problems = |side: &str, entry: &Entry<'_>| -> Vec<String> {
        let problems = entry.problems.iter();
        problems.map(|what| format!("{side}: {what}")).collect()
    };
    Change {
        cell: new.row.cell.id.clone(),
        table: new.row.table.clone(),
        old: median(old),
        new: median(new),
        ratio: ratio.map(|ratio| Interval {
            value: ratio.value,
            low: ratio.low,
            high: ratio.high,
        }),
        outcome,
        void_old: old.void,
        void_new: new.void,
        problems: [problems("old", old), problems("new", new)].concat(),
    }
}

/// What else differs between the runs.
fn warnings(old: &Results, new: &Results) -> Vec<String> {
    let cut = |side: &'static str, results: &Results| -> Vec<String> {
        let files = results.truncated.iter();
        files
            .map(|file| format!("the {side} file {file} was cut off; its last rows are missing"))
            .collect()
    };
    let mut warnings = [cut("old", old), cut("new", new)].concat();
    if let (Some(old), Some(new)) = (old.manifests.first(), new.manifests.first()) {
        let pairs = facts(old).into_iter().zip(facts(new));
        let differing = pairs.filter(|((_, old), (_, new))| old != new);
        warnings.extend(differing.map(|((name, old), (_, new))| {
            format!("the {name} differs: `{old}` in the old file, `{new}` in the new one")
        }));
        warnings.extend(same_commit(old, new));
    }
    warnings
}

/// What should be the same if only the program is to be compared.
fn facts(manifest: &Manifest) -> [(&'static str, String); 6] {
    [
        ("CPU", manifest.machine.cpu.clone()),
        ("number of CPUs", manifest.machine.cpus.to_string()),
        ("allocator", manifest.allocator.clone()),
        ("page policy", manifest.pages.clone()),
        ("compiler", manifest.rustc.clone()),
        ("build", manifest.build.clone()),
    ]
}

fn same_commit(old: &Manifest, new: &Manifest) -> Option<String> {
    if old.commit != new.commit {
        return None;
    }
    let changes = match old.dirty || new.dirty {
        true => ", with changes that are not recorded",
        false => "",
    };
    Some(match new.commit.as_str() {
        "unknown" => "the commit of both files is unknown".into(),
        commit => format!("both files are of the same commit {commit}{changes}"),
    })
}

/// Parameters that are no part of a cell's name and differ nevertheless.
fn other_cells(pairs: &[Pair<'_>]) -> Option<String> {
    let (mut cells, mut names) = (HashSet::new(), BTreeSet::new());
    for (old, new) in pairs {
        if old.row.cell != new.row.cell && cells.insert(&new.row.cell.id) {
            names.extend(differing(&old.row.cell, &new.row.cell));
        }
    }
    let names: Vec<_> = names.into_iter().collect();
    (!cells.is_empty()).then(|| {
        let number = match cells.len() {
            1 => "1 cell was".into(),
            number => format!("{number} cells were"),
        };
        format!("{number} measured with another {}", names.join(", "))
    })
}

/// The names of the fields in which two cells differ.
fn differing(old: &Cell, new: &Cell) -> Vec<String> {
    let fields = |cell| serde_json::to_value(cell).unwrap_or_default();
    let (old, new) = (fields(old), fields(new));
    let names = new.as_object().into_iter().flat_map(|map| map.iter());
    names
        .filter(|(name, value)| old.get(name.as_str()).unwrap_or(&Value::Null) != *value)
        .map(|(name, _)| name.clone())
        .collect()
}

fn few_repetitions(pairs: &[Pair<'_>]) -> Option<String> {
    let few = |(old, new): &&Pair<'_>| {
        !old.void && !new.void && old.rates.len().min(new.rates.len()) < FEW
    };
    match pairs.iter().filter(few).count() {
        0 => None,
        1 => Some(format!(
            "1 row has fewer than {FEW} repetitions; its verdict may be chance"
        )),
        number => Some(format!(
            "{number} rows have fewer than {FEW} repetitions; their verdicts may be chance"
        )),
    }
}

fn rows(number: usize) -> String {
    match number {
        1 => "1 row".into(),
        _ => format!("{number} rows"),
    }
}

/// Rows in aligned columns, problems below them.
fn table(rows: &[Change]) -> String {
    let head = [
        "cell",
        "table",
        "old Mops/s",
        "new Mops/s",
        "ratio",
        "95 %",
        "verdict",
    ];
    let cells: Vec<[String; 7]> = std::iter::once(head.map(String::from))
        .chain(rows.iter().map(columns))
        .collect();
    let width = |at: usize| cells.iter().map(|line| line[at].chars().count()).max();
    let widths: Vec<usize> = (0..head.len()).map(|at| width(at).unwrap_or(0)).collect();
    let problems = std::iter::once(&[][..]).chain(rows.iter().map(|row| &row.problems[..]));
    let mut text = String::new();
    for (line, problems) in cells.iter().zip(problems) {
        let padded: Vec<String> = line.iter().zip(&widths).enumerate().map(pad).collect();
        let _ = writeln!(text, "{}", padded.join("  ").trim_end());
        for problem in problems {
            let _ = writeln!(text, "    ! {problem}");
        }
    }
    text
}

/// Words to the left, numbers to the right.
fn pad((at, (text, &width)): (usize, (&String, &usize))) -> String {
    match at {
        2..=5 => format!("{text:>width$}"),
        _ => format!("{text:<width$}"),
    }
}

fn columns(row: &Change) -> [String; 7] {
    let mops = |rate: Option<f64>| rate.map_or("n/a".into(), |rate| format!("{:.3}", rate / 1e6));
    let (ratio, interval) = row.ratio.map_or_else(Default::default, |ratio| {
        (
            format!("{:.3}", ratio.value),
            format!("{:.3} - {:.3}", ratio.low, ratio.high),
        )
    });
    let side = match (row.void_old, row.void_new) {
        (true, true) => " (both)",
        (true, false) => " (old)",
        (false, true) => " (new)",
        (false, false) => "",
    };
    [
        row.cell.clone(),
        row.table.clone(),
        mops(row.old),
        mops(row.new),
        ratio,
        interval,
        format!("{}{side}", row.outcome.word()),
    ]
}

/// Names under a title; nothing without names.
fn list(title: &str, names: &[Name]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{title} ({}):\n", rows(names.len()));
    for name in names {
        let void = if name.void { "  void" } else { "" };
        let _ = writeln!(text, "  {}  {}{void}", name.cell, name.table);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::sample::{self, Sample};

    /// Rates of five repetitions around one that differ by as much as `spread`.
    fn around(rate: f64, spread: f64) -> [f64; 5] {
        [0.0, 1.0, -1.0, 0.5, -0.5].map(|step| rate * (1.0 + step * spread))
    }

    fn sample(rows: &[(&str, f64, f64)]) -> Sample {
        rows.iter()
            .fold(Sample::new(), |sample, (table, rate, spread)| {
                sample.row("scaling", 2, table, &around(*rate, *spread))
            })
    }

    fn new_commit(sample: Sample) -> Results {
        sample.head(|head| head.commit = "fedcba".into()).results()
    }

    fn one(old: f64, new: f64, spread: f64) -> Comparison {
        let old = sample(&[("corewise", old, spread)]).results();
        compare(&old, &new_commit(sample(&[("corewise", new, spread)])))
    }

    #[test]
    fn verdicts_follow_from_the_repetitions() {
        for (old, new, spread, outcome) in [
            (1e6, 1.2e6, 0.01, Outcome::Faster),
            (1e6, 0.8e6, 0.01, Outcome::Slower),
            (1e6, 1.001e6, 0.002, Outcome::Equivalent),
            (1e6, 1.05e6, 0.3, Outcome::Undecided),
            (1e6, 0.0, 0.01, Outcome::Slower),
            (0.0, 0.0, 0.01, Outcome::Equivalent),
        ] {
            let comparison = one(old, new, spread);
            assert_eq!(comparison.rows[0].outcome, outcome, "{old} {new}");
            assert_eq!(comparison.fails_on_slower(), outcome == Outcome::Slower);
            assert!(comparison.warnings.is_empty(), "{:?}", comparison.warnings);
        }
        let row = &one(1e6, 1.2e6, 0.01).rows[0];
        assert_eq!((row.old, row.new), (Some(1e6), Some(1.2e6)));
        let ratio = row.ratio.expect("a ratio");
        assert!((ratio.value - 1.2).abs() < 0.01 && ratio.low <= 1.2 && ratio.high >= 1.2);
    }

    #[test]
    fn void_rows_are_never_fine() {
        let good = || sample(&[("corewise", 1e6, 0.01)]);
        let bad = || good().void("a key was lost");
        for (old, new, fails, word) in [
            (bad(), good(), false, "void (old)"),
            (good(), bad(), true, "void (new)"),
            (bad(), bad(), false, "void (both)"),
        ] {
            let comparison = compare(&old.results(), &new_commit(new));
            assert_eq!(comparison.rows[0].outcome, Outcome::Void);
            assert_eq!(comparison.rows[0].ratio, None);
            assert_eq!(comparison.fails_on_slower(), fails);
            let text = comparison.text();
            assert!(
                text.contains(word) && text.contains(": a key was lost"),
                "{text}"
            );
            assert!(text.ends_with("0 undecided, 1 void"), "{text}");
        }
    }

    #[test]
    fn rows_of_one_file_are_listed() {
        let old = sample(&[("corewise", 1e6, 0.01), ("gone", 1e6, 0.01)]).results();
        let new = || sample(&[("corewise", 1e6, 0.001), ("come", 1e6, 0.01)]);
        let comparison = compare(&old, &new_commit(new()));
        let names = |names: &[Name]| names.iter().map(|name| name.table.clone()).collect();
        let (gone, come): (Vec<_>, Vec<_>) =
            (names(&comparison.only_old), names(&comparison.only_new));
        assert_eq!(
            (gone, come),
            (vec!["gone".into()], vec!["come".to_string()])
        );
        assert_eq!(comparison.summary.rows, 1);
        assert!(!comparison.fails_on_slower());
        let text = comparison.text();
        assert!(
            text.contains("only in the old file (1 row):\n  scaling/"),
            "{text}"
        );
        let void = compare(&old, &new_commit(new().void("lost")));
        assert!(void.fails_on_slower() && void.text().contains("  come  void\n"));
    }

    #[test]
    fn rows_without_a_rate_are_not_judged() {
        let sample = || Sample::new().row("memory", 1, "corewise", &[]);
        let comparison = compare(&sample().results(), &new_commit(sample()));
        assert_eq!((comparison.rows.len(), comparison.unrated.len()), (0, 1));
        assert!(
            comparison
                .text()
                .contains("without a rate, not compared (1 row)")
        );
        let void = compare(&sample().results(), &new_commit(sample().void("lost")));
        assert_eq!((void.summary.void, void.unrated.len()), (1, 0));
        assert!(void.fails_on_slower());
    }

    #[test]
    fn open_loop_rows_are_judged_at_the_same_offered_rate_only() {
        let sample = |offered: f64| {
            let mut cell = sample::cell("paced", 2);
            (cell.mode, cell.rate_per_s) = ("open".into(), Some(offered));
            Sample::new().row_in(cell, "corewise", &around(offered, 0.001))
        };
        let judge = |offered| compare(&sample(1e6).results(), &new_commit(sample(offered)));
        assert_eq!(judge(1e6).rows[0].outcome, Outcome::Equivalent);
        let other = judge(0.8e6);
        assert_eq!(other.rows[0].outcome, Outcome::Undecided);
        let warning = "1 cell was measured with another rate_per_s";
        assert_eq!(other.warnings, [warning]);
        assert!(!other.fails_on_slower());
    }

    #[test]
    fn differences_between_the_runs_are_warned_of() {
        let old = sample(&[("corewise", 1e6, 0.01)]);
        let warnings = |new: Results| compare(&old.results(), &new).warnings;
        let same = warnings(old.results());
        assert_eq!(same.len(), 1);
        assert!(same[0].starts_with("both files are of the same commit 0123"));
        let changes: [fn(&mut Manifest); 6] = [
            |head| head.machine.cpu = "Another".into(),
            |head| head.machine.cpus = 8,
            |head| head.allocator = "system".into(),
            |head| head.pages = "huge".into(),
            |head| head.rustc = "rustc 1.96.0".into(),
            |head| head.build = "debug".into(),
        ];
        for change in changes {
            let new = warnings(new_commit(old.clone().head(change)));
            assert!(new.len() == 1 && new[0].contains("differs: `"), "{new:?}");
        }
        let dirty = warnings(old.clone().head(|head| head.dirty = true).results());
        assert!(dirty[0].ends_with("with changes that are not recorded"));
        let mut cut = new_commit(old.clone());
        cut.truncated = cut.files.clone();
        assert!(warnings(cut)[0].contains("sample.jsonl was cut off"));
        let few = Sample::new().row("scaling", 2, "corewise", &[1e6]);
        assert!(warnings(new_commit(few))[0].starts_with("1 row has fewer than 4"));
    }

    #[test]
    fn the_text_is_aligned_and_ends_with_the_summary() {
        let old = sample(&[("corewise", 1e6, 0.01), ("a longer name", 12e6, 0.001)]).results();
        let new = sample(&[("corewise", 2e6, 0.01), ("a longer name", 12e6, 0.001)]);
        let text = compare(&old, &new_commit(new)).text();
        let lines: Vec<_> = text.lines().collect();
        let ends = |word| {
            let ends = lines.iter().filter_map(move |line| line.find(word));
            ends.collect::<Vec<_>>()
        };
        assert_eq!(
            ends("verdict"),
            ends("faster").into_iter().take(1).collect::<Vec<_>>()
        );
        assert_eq!(
            ends("verdict"),
            ends("equivalent").into_iter().take(1).collect::<Vec<_>>()
        );
        let summary = "2 rows: 1 faster, 0 slower, 1 equivalent, 0 undecided, 0 void";
        assert_eq!(lines.last(), Some(&summary));
    }

    #[test]
    fn the_json_is_one_document() {
        let json: Value = serde_json::from_str(&one(1e6, 0.8e6, 0.01).json()).expect("JSON");
        assert_eq!(json["summary"]["slower"], 1);
        assert_eq!(json["rows"][0]["outcome"], "slower");
        assert_eq!(json["rows"][0]["void_new"], false);
    }

    #[test]
    fn nothing_compares_with_nothing() {
        let comparison = compare(&Results::default(), &Results::default());
        let nothing = "0 rows: 0 faster, 0 slower, 0 equivalent, 0 undecided, 0 void";
        assert_eq!(comparison.text(), nothing);
        assert!(!comparison.fails_on_slower());
    }
}
