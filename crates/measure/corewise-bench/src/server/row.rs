//! A row: a fresh server, and the report of `corewise load` about it.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::Serialize;
use serde_json::Value;

use super::args::{Engine, Operation, ServerArgs};
use super::process::{Server, last_line};
use crate::error::BenchError;
use crate::plot::svg::rate;

/// Connections besides those of the clients.
const SPARE: usize = 64;
/// Exit status of `corewise load` after a bad option.
const BAD_OPTION: i32 = 2;
/// Exit status of `corewise load` after a wrong or missing reply.
const WRONG: i32 = 3;

/// The parameters of a row.
pub(super) struct Point<'p> {
    pub(super) args: &'p ServerArgs,
    pub(super) program: &'p Path,
    pub(super) engine: Engine,
    pub(super) operation: Operation,
    pub(super) clients: usize,
    /// Server threads.
    pub(super) threads: usize,
}

/// The result of an engine at a point.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename = "server")]
pub(crate) struct Row {
    pub(crate) engine: String,
    /// The version that the server reports.
    pub(crate) version: String,
    pub(crate) operation: Operation,
    /// Client threads.
    pub(crate) clients: usize,
    /// Server threads.
    pub(crate) threads: usize,
    /// Requests per second, by sample.
    pub(crate) samples_per_s: Vec<f64>,
    /// The greatest sample, as in the paper.
    pub(crate) max_per_s: f64,
    pub(crate) median_per_s: f64,
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

impl Point<'_> {
    /// Starts a server, puts it under load, and returns the row.
    pub(super) fn measure(&self) -> Result<Row, BenchError> {
        let connections = self.clients * self.args.connections;
        let mut server = Server::start(self, connections + SPARE)?;
        let output = self
            .load(&server, connections)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| BenchError::Failed(format!("cannot start a client: {error}")))?;
        server.check()?;
        let said = String::from_utf8_lossy(&output.stderr);
        let said = last_line(&said);
        match output.status.code() {
            Some(0) => {
                let report = serde_json::from_slice(&output.stdout);
                let unread = |error| BenchError::Failed(format!("the client's report: {error}"));
                Ok(self.row(&report.map_err(unread)?, Vec::new()))
            }
            Some(WRONG) => Ok(self.row(&Value::Null, vec![said.to_owned()])),
            Some(BAD_OPTION) => Err(BenchError::Usage(said.to_owned())),
            _ => Err(BenchError::Failed(format!("a client failed: {said}"))),
        }
    }

    fn load(&self, server: &Server, connections: usize) -> Command {
        let (slice_ms, seconds) = self.args.sampling();
        let share_of_sets = u8::from(self.operation == Operation::Set);
        let mut command = Command::new(self.program);
        command
            .args(["load", &server.address.to_string()])
            .args(["--server-pid", &server.pid().to_string()])
            .args(["--prefill", "--keys", &self.args.keys])
            .args(["--value-size", &self.args.value_size.to_string()])
            .args(["--set-ratio", &share_of_sets.to_string()])
            .args(["--threads", &self.clients.to_string()])
            .args(["--connections", &connections.to_string()])
            .arg(format!("--warmup={}", self.args.warmup_s()))
            .args(["--slice-ms", &slice_ms.to_string()])
            .args(["--slice-warm-ms", "0"])
            .args(["--seconds", &seconds.to_string()])
            .args(["--format", "json"]);
        command
    }

    /// Returns the row of a report of `corewise load`.
    fn row(&self, report: &Value, problems: Vec<String>) -> Row {
        let target = &report["targets"][0];
        let number = |of: &Value, name: &str| of[name].as_f64();
        let of_spread = |name: &str, end: &str| number(&target[name], end).unwrap_or_default();
        let cpu_ns = of_spread("cpu_ns_per_request", "median");
        let kernel_ns = cpu_ns * number(target, "kernel_share").unwrap_or_default();
        let slices = report["slices"].as_array().map(Vec::as_slice);
        let slices = slices.unwrap_or_default().iter();
        let slices =
            slices.filter_map(|of| Some((number(of, "requests")?, number(of, "elapsed_ns")?)));
        let measured_ns: f64 = slices.clone().map(|(_, ns)| ns).sum();
        let available_us = measured_ns * self.threads as f64 / 1e3;
        let limit_kib = (self.args.memory_mib << 10) as f64;
        Row {
            engine: self.engine.to_string(),
            version: target["identity"]["version"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            operation: self.operation,
            clients: self.clients,
            threads: self.threads,
            samples_per_s: slices.map(|(requests, ns)| requests * 1e9 / ns).collect(),
            max_per_s: of_spread("requests_per_s", "max"),
            median_per_s: of_spread("requests_per_s", "median"),
            user_ns_per_request: cpu_ns - kernel_ns,
            kernel_ns_per_request: kernel_ns,
            lock_wait_share: number(target, "lock_wait_us").map(|us| us / available_us),
            hit_ratio: number(target, "hit_rate"),
            resident_over_limit: number(&target["memory"], "rss_kib").map(|kib| kib / limit_kib),
            problems,
        }
    }
}

impl Row {
    fn line(&self) -> String {
        let dash = || "-".to_owned();
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let void = if self.problems.is_empty() {
            ""
        } else {
            "  void"
        };
        format!(
            "  {:<13} {:>10} {:>10}  {:>8.2} {:>9.2}  {:>9} {:>7} {:>9}{void}",
            self.engine,
            rate(self.max_per_s),
            rate(self.median_per_s),
            self.user_ns_per_request / 1e3,
            self.kernel_ns_per_request / 1e3,
            self.lock_wait_share.map_or_else(dash, percent),
            self.hit_ratio
                .map_or_else(dash, |ratio| format!("{ratio:.4}")),
            self.resident_over_limit
                .map_or_else(dash, |ratio| format!("{ratio:.3}")),
        )
    }
}

/// The column heads.
const HEADS: &str =
    "  engine             max/s   median/s   user µs kernel µs  lock wait    hits RSS/limit";

/// Formats the last row as text, below the heads if it is the first of its point.
pub(crate) fn listed(rows: &[Row]) -> String {
    let Some((row, before)) = rows.split_last() else {
        return String::new();
    };
    let is_beside = |other: &Row| (other.operation, other.clients) == (row.operation, row.clients);
    let mut lines = Vec::new();
    if !before.last().is_some_and(is_beside) {
        let point = format!("\n{}, clients: {}", row.operation, row.clients);
        lines.extend([point, HEADS.to_owned()]);
    }
    lines.push(row.line());
    let problems = row.problems.iter();
    lines.extend(problems.map(|problem| format!("    ! {problem}")));
    lines.join("\n")
}

/// Returns the ratios of each engine to `global-lock` at the most clients.
pub(crate) fn ratios(rows: &[Row]) -> Vec<String> {
    let most = |of: &Row| {
        let same = rows.iter().filter(|row| row.operation == of.operation);
        same.map(|row| row.clients).max()
    };
    let valid = || rows.iter().filter(|row| row.problems.is_empty());
    let bases = valid().filter(|row| row.engine == "global-lock");
    let line = |base: &Row| {
        let beside = valid().filter(|row| {
            (row.operation, row.clients) == (base.operation, base.clients)
                && row.engine != base.engine
        });
        let ratios: Vec<_> = beside
            .map(|row| {
                let by_max = row.max_per_s / base.max_per_s;
                let by_median = row.median_per_s / base.median_per_s;
                format!("{} {by_max:.2} ({by_median:.2})", row.engine)
            })
            .collect();
        (!ratios.is_empty()).then(|| {
            format!(
                "{} with {} clients over global-lock, by maximum (by median): {}",
                base.operation,
                base.clients,
                ratios.join(", ")
            )
        })
    };
    bases
        .filter(|base| most(base) == Some(base.clients))
        .filter_map(line)
        .collect()
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
            max_per_s: rate,
            median_per_s: rate / 2.0,
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
        let mut rows = vec![row("locked", Operation::Get, 4, 80_000.0)];
        let text = listed(&rows);
        for word in [
            "GET, clients: 4",
            "80.0 k/s",
            "40.0 k/s",
            "5.25",
            "12.5 %",
            "1.0000",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        let widths = text.lines().skip(2).map(|line| line.chars().count());
        assert_eq!(widths.clone().max(), widths.min(), "{text}");
        rows.push(row("memcached", Operation::Get, 4, 80_000.0));
        assert_eq!(listed(&rows).lines().count(), 1);
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
        assert!(lines[0].starts_with("GET with 2 clients"));
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
