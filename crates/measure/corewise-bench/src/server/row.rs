//! A row: a fresh server, and the report of a load about it.

use std::path::Path;

use corewise_load::config::{Address, Target, ValueSize};
use corewise_load::{LoadConfig, LoadError, Report, Spread};
use corewise_measure::number::parse_count;
use serde::Serialize;

use super::args::{Operation, ServerArgs};
use super::process::{Engine, Launch, Program, Server};
use crate::error::BenchError;
use crate::plot::svg::rate;

/// Connections besides those of the clients.
const SPARE: usize = 64;
/// Exit status of `corewise load` after a wrong or missing reply.
const WRONG: u8 = 3;

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
        let mut server = self.start()?;
        let config = self.load(&server)?;
        Ok(match run(&mut server, &config)? {
            Ok(report) => self.row(Some(&report), Vec::new()),
            Err(problem) => self.row(None, vec![problem]),
        })
    }

    fn connections(&self) -> usize {
        self.clients * self.args.connections
    }

    /// Starts its server.
    pub(super) fn start(&self) -> Result<Server, BenchError> {
        let program = Program::of(self.engine, self.program);
        let launch = Launch {
            connections: Some(self.connections() + SPARE),
            ..Launch::new(program, self.threads, self.args.memory_mib << 10)
        };
        launch.start()
    }

    /// The load in closed loop, which fills the server first.
    pub(super) fn load(&self, server: &Server) -> Result<LoadConfig, BenchError> {
        let (slice_ms, seconds) = self.args.sampling();
        let keys = parse_count(&self.args.keys);
        Ok(LoadConfig {
            target: Target {
                address: Address::Tcp(server.address),
                protocol: self.engine.protocol(),
                pid: Some(server.pid()),
            },
            prefill: true,
            keys: keys.map_err(|what| BenchError::Usage(format!("keys: {what}")))?,
            value_size: ValueSize {
                min: self.args.value_size,
                max: self.args.value_size,
            },
            set_ratio: f64::from(u8::from(self.operation == Operation::Set)),
            threads: self.clients as u32,
            connections: self.connections() as u32,
            warmup_seconds: self.args.warmup_s(),
            slice_ms,
            slice_warm_ms: 0,
            seconds,
            ..LoadConfig::default()
        })
    }

    /// Returns the row of a report; without one it is void.
    fn row(&self, report: Option<&Report>, problems: Vec<String>) -> Row {
        let target = report.and_then(|report| report.targets.first());
        let median = |spread: Option<Spread>| spread.map_or(0.0, |spread| spread.median);
        let rate = target.and_then(|of| of.requests_per_s);
        let cpu_ns = median(target.and_then(|of| of.cpu_ns_per_request));
        let kernel_ns = cpu_ns * target.and_then(|of| of.kernel_share).unwrap_or_default();
        let slices = report.map_or(&[][..], |report| &report.slices);
        let measured_ns: f64 = slices.iter().map(|slice| slice.elapsed_ns as f64).sum();
        let available_us = measured_ns * self.threads as f64 / 1e3;
        let limit_kib = (self.args.memory_mib << 10) as f64;
        let per_s = slices
            .iter()
            .map(|of| of.requests as f64 * 1e9 / of.elapsed_ns as f64);
        Row {
            engine: self.engine.to_string(),
            version: target
                .and_then(|of| of.identity.version.clone())
                .unwrap_or_default(),
            operation: self.operation,
            clients: self.clients,
            threads: self.threads,
            samples_per_s: per_s.collect(),
            max_per_s: rate.map_or(0.0, |rate| rate.max),
            median_per_s: median(rate),
            user_ns_per_request: cpu_ns - kernel_ns,
            kernel_ns_per_request: kernel_ns,
            lock_wait_share: target
                .and_then(|of| of.lock_wait_us)
                .map(|us| us as f64 / available_us),
            hit_ratio: target.and_then(|of| of.hit_rate),
            resident_over_limit: target
                .and_then(|of| of.memory.rss_kib)
                .map(|kib| kib as f64 / limit_kib),
            problems,
        }
    }
}

/// Runs a load; a wrong or missing reply is a text that voids its row.
pub(super) fn run(
    server: &mut Server,
    config: &LoadConfig,
) -> Result<Result<Report, String>, BenchError> {
    let report = corewise_load::run(config, &mut |_| {});
    server.check()?;
    match report {
        Ok(report) => Ok(Ok(report)),
        Err(LoadError::Config(text)) => Err(BenchError::Usage(text)),
        Err(error) if error.exit_code() == WRONG => Ok(Err(error.to_string())),
        Err(error) => Err(BenchError::Failed(format!("a client failed: {error}"))),
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
