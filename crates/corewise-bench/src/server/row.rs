//! Rows of the result, and their output.

use std::fmt;
use std::io::Write;
use std::path::Path;

use clap::ValueEnum;
use serde::Serialize;

use super::args::ServerPlan;
use crate::plot::svg::rate;
use crate::record::Manifest;
use crate::text;

/// The operation of all requests of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Operation {
    /// Reads, all of which hit
    Get,
    /// Stores of keys that are there
    Set,
}

impl Operation {
    /// Returns the name of the server's counter of the operation.
    pub(super) fn counter(self) -> &'static str {
        match self {
            Self::Get => "cmd_get",
            Self::Set => "cmd_set",
        }
    }

    pub(super) fn share_of_sets(self) -> &'static str {
        match self {
            Self::Get => "0",
            Self::Set => "1",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Get => "GET",
            Self::Set => "SET",
        })
    }
}

/// The result of an engine at a point.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) engine: String,
    /// The version that the server reports.
    pub(crate) version: String,
    pub(crate) operation: Operation,
    /// Client processes.
    pub(crate) clients: usize,
    /// Server threads.
    pub(crate) threads: usize,
    /// Requests per second that the server counted, by sample.
    pub(crate) samples_per_s: Vec<f64>,
    /// The server's CPU time in user mode.
    pub(crate) user_ns_per_request: f64,
    /// The server's CPU time in the kernel.
    pub(crate) kernel_ns_per_request: f64,
    /// Share of the server threads' time spent waiting for locks; `None` if the server does not
    /// report it.
    pub(crate) lock_wait_share: Option<f64>,
    /// Hits over gets; `None` without gets.
    pub(crate) hit_ratio: Option<f64>,
    /// Resident set over the server's memory limit.
    pub(crate) resident_over_limit: Option<f64>,
    /// Why the row is void; empty if it is not.
    pub(crate) problems: Vec<String>,
}

impl Row {
    /// Returns the greatest sample, as in the paper.
    pub(crate) fn max_per_s(&self) -> f64 {
        self.samples_per_s.iter().copied().fold(0.0, f64::max)
    }

    /// Returns the median of the samples.
    pub(crate) fn median_per_s(&self) -> f64 {
        let mut sorted = self.samples_per_s.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => 0.0,
            odd if odd % 2 == 1 => sorted[middle],
            _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
        }
    }

    fn line(&self) -> String {
        let dash = || "-".to_owned();
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        format!(
            "  {:<13} {:>10} {:>10}  {:>8.2} {:>9.2}  {:>9} {:>7} {:>9}{}",
            self.engine,
            rate(self.max_per_s()),
            rate(self.median_per_s()),
            self.user_ns_per_request / 1e3,
            self.kernel_ns_per_request / 1e3,
            self.lock_wait_share.map_or_else(dash, percent),
            self.hit_ratio
                .map_or_else(dash, |ratio| format!("{ratio:.4}")),
            self.resident_over_limit
                .map_or_else(dash, |ratio| format!("{ratio:.3}")),
            if self.problems.is_empty() {
                ""
            } else {
                "  void"
            },
        )
    }
}

/// The column heads.
const HEADS: &str =
    "  engine             max/s   median/s   user µs kernel µs  lock wait    hits RSS/limit";

/// Formats the rows as text.
pub(crate) fn listing(rows: &[Row]) -> String {
    let mut lines = Vec::new();
    let mut point = None;
    for row in rows {
        if point.replace((row.operation, row.clients)) != Some((row.operation, row.clients)) {
            lines.extend([point_line(row), HEADS.to_owned()]);
        }
        lines.push(row.line());
        lines.extend(
            row.problems
                .iter()
                .map(|problem| format!("    ! {problem}")),
        );
    }
    lines.join("\n")
}

fn point_line(row: &Row) -> String {
    format!("{}, client processes: {}", row.operation, row.clients)
}

/// Returns the ratios of each engine to `global-lock` at the most clients.
pub(crate) fn ratios(rows: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    for base in rows.iter().filter(|row| row.engine == "global-lock") {
        let of_it = |row: &&Row| row.operation == base.operation;
        let most = rows.iter().filter(of_it).map(|row| row.clients).max();
        if most != Some(base.clients) || !base.problems.is_empty() {
            continue;
        }
        let beside = rows.iter().filter(of_it).filter(|row| {
            row.clients == base.clients && row.engine != base.engine && row.problems.is_empty()
        });
        let ratio = |row: &Row| {
            format!(
                "{} {:.2} ({:.2})",
                row.engine,
                row.max_per_s() / base.max_per_s(),
                row.median_per_s() / base.median_per_s()
            )
        };
        let ratios: Vec<_> = beside.map(ratio).collect();
        if !ratios.is_empty() {
            lines.push(format!(
                "{} with {} client processes over global-lock, by maximum (by median): {}",
                base.operation,
                base.clients,
                ratios.join(", ")
            ));
        }
    }
    lines
}

/// A line of JSON output.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'l> {
    Manifest(&'l Manifest),
    Server(&'l Row),
}

/// Prints rows to standard output as they arrive.
pub(super) struct RowPrinter {
    json: bool,
    shown: Vec<(Operation, usize)>,
}

impl RowPrinter {
    pub(super) fn new(json: bool) -> Self {
        Self {
            json,
            shown: Vec::new(),
        }
    }

    pub(super) fn head(&self, facts: &Manifest, plan: &ServerPlan, notes: &[String]) {
        if self.json {
            return json(&Line::Manifest(facts));
        }
        say(&text::heading(facts));
        say(&plan.line());
        for note in notes {
            say(&format!("note: {note}"));
        }
    }

    pub(super) fn row(&mut self, row: &Row) {
        if self.json {
            return json(&Line::Server(row));
        }
        let point = (row.operation, row.clients);
        if self.shown.last() != Some(&point) {
            self.shown.push(point);
            say(&format!("\n{}\n{HEADS}", point_line(row)));
        }
        say(&row.line());
        for problem in &row.problems {
            say(&format!("    ! {problem}"));
        }
    }

    pub(super) fn ratios(&self, rows: &[Row]) {
        if !self.json {
            say("");
            ratios(rows).iter().for_each(|line| say(line));
        }
    }

    pub(super) fn end(&self, rows: &[Row], page: &Path) {
        if !self.json {
            let void = rows.iter().filter(|row| !row.problems.is_empty()).count();
            let page = page.display();
            say(&format!(
                "{} rows, {void} void; drawn in {page}",
                rows.len()
            ));
        }
    }
}

fn json(line: &Line<'_>) {
    if let Ok(text) = serde_json::to_string(line) {
        say(&text);
    }
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}"); // a closed pipe is no error
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn row(engine: &str, operation: Operation, clients: usize, rate: f64) -> Row {
        Row {
            engine: engine.into(),
            version: "1".into(),
            operation,
            clients,
            threads: 2,
            samples_per_s: vec![rate, rate / 4.0, rate / 2.0],
            user_ns_per_request: 1_000.0,
            kernel_ns_per_request: 5_250.0,
            lock_wait_share: Some(0.125),
            hit_ratio: Some(1.0),
            resident_over_limit: None,
            problems: Vec::new(),
        }
    }

    #[test]
    fn the_maximum_and_the_median_of_the_samples_are_shown() {
        let row = row("locked", Operation::Get, 4, 80_000.0);
        assert_eq!((row.max_per_s(), row.median_per_s()), (80_000.0, 40_000.0));
        let text = listing(&[row]);
        for word in [
            "GET, client processes: 4",
            "80.0 k/s",
            "40.0 k/s",
            "5.25",
            "12.5 %",
            "1.0000",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        let widths = text.lines().skip(1).map(|line| line.chars().count());
        assert_eq!(widths.clone().max(), widths.min(), "{text}");
    }

    #[test]
    fn ratios_are_of_valid_rows_with_the_most_clients() {
        let get = |engine, clients, rate| row(engine, Operation::Get, clients, rate);
        let mut rows = vec![
            get("relativistic", 1, 10.0),
            get("global-lock", 1, 10.0),
            get("relativistic", 2, 30.0),
            get("locked", 2, 15.0),
            get("global-lock", 2, 20.0),
            row("global-lock", Operation::Set, 2, 20.0),
        ];
        let lines = ratios(&rows);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("GET with 2 client processes"));
        assert!(
            lines[0].ends_with("relativistic 1.50 (1.50), locked 0.75 (0.75)"),
            "{lines:?}"
        );
        rows[3].problems.push("wrong".into());
        assert!(!ratios(&rows)[0].contains("locked"));
        rows[4].problems.push("wrong".into());
        assert!(ratios(&rows).is_empty());
    }
}
