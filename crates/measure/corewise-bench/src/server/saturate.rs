//! `--saturate`: the highest rate at which a server holds a 99.9th percentile.
//!
//! A closed loop fills the server and finds its capacity. Then rates are offered in open loop,
//! where a latency counts from the time at which the request was due. A rate *holds* if the 99.9th
//! percentile of the median sample is within the bound and no request was left unsent. The search
//! doubles the capacity while it holds, and then halves the distance between the highest rate that
//! held and the lowest that did not.

use corewise_load::config::{Arrivals, LoadMode};
use corewise_load::{LoadConfig, Report};
use corewise_measure::stats::Spread;
use serde::Serialize;

use super::args::{Operation, ServerArgs};
use super::row::{self, Point};
use super::{VOID, installed, json};
use crate::error::BenchError;
use crate::format::Format;
use crate::manifest::manifest;
use crate::plot::svg::rate;
use crate::record::Record;
use crate::text::{self, say};

/// Most doublings of the rate of the closed loop.
const DOUBLINGS: usize = 4;
/// Halvings: the result is within a 64th of the distance between two doublings.
const HALVINGS: usize = 6;
/// Requests that a connection may have outstanding.
const OUTSTANDING: u32 = 1_024;

/// The result of an engine.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "saturation")]
struct Saturation {
    engine: String,
    version: String,
    operation: Operation,
    clients: usize,
    threads: usize,
    p999_ms_bound: f64,
    /// Requests per second in closed loop.
    closed_per_s: f64,
    /// The highest rate that held; 0 if none did.
    rate_per_s: f64,
    offered: Vec<Offered>,
    /// Why the row is void; empty if it is not.
    problems: Vec<String>,
}

/// A rate that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Offered {
    rate_per_s: f64,
    /// Of the median sample.
    p999_ms: f64,
    unsent: u64,
    holds: bool,
}

/// Searches for each operation and engine; returns the exit status.
pub(super) fn run(args: &ServerArgs, most_ms: f64) -> Result<u8, BenchError> {
    let program = args.program()?;
    let engines = installed(args.engines())?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let (clients, threads) = (args.most_clients(cpus)?, args.threads(cpus));
    let facts = manifest("server, saturation");
    let is_json = args.format == Format::Json;
    if is_json {
        json(&Record::Manifest(Box::new(facts)));
    } else {
        say(&text::heading(&facts));
        say(&args.line(cpus));
        for note in args.notes(cpus, clients) {
            say(&format!("note: {note}"));
        }
        say(&format!(
            "clients: {clients}; p99.9 from the due time, at most {most_ms} ms"
        ));
    }
    let mut status = 0;
    for operation in args.operations() {
        for &engine in &engines {
            let point = Point {
                args,
                program: &program,
                engine,
                operation,
                clients,
                threads,
            };
            let done = search(&point, most_ms)?;
            if is_json {
                json(&done);
            } else {
                say(&done.line());
            }
            if !done.problems.is_empty() {
                status = VOID;
            }
        }
    }
    Ok(status)
}

fn search(point: &Point<'_>, most_ms: f64) -> Result<Saturation, BenchError> {
    let mut server = point.start()?;
    let closed = point.load(&server)?;
    let mut done = Saturation {
        engine: point.engine.to_string(),
        version: String::new(),
        operation: point.operation,
        clients: point.clients,
        threads: point.threads,
        p999_ms_bound: most_ms,
        closed_per_s: 0.0,
        rate_per_s: 0.0,
        offered: Vec::new(),
        problems: Vec::new(),
    };
    let report = match row::run(&mut server, &closed)? {
        Ok(report) => report,
        Err(problem) => {
            done.problems.push(problem);
            return Ok(done);
        }
    };
    let target = report.targets.first();
    let version = target.and_then(|of| of.identity.version.clone());
    done.version = version.unwrap_or_default();
    let median = target.and_then(|of| of.requests_per_s);
    let closed_per_s = median.map_or(0.0, |spread| spread.median);
    done.closed_per_s = closed_per_s;
    let Saturation {
        offered, problems, ..
    } = &mut done;
    let holds = |rate: f64| {
        let open = LoadConfig {
            prefill: false,
            mode: LoadMode::Open {
                rate,
                arrivals: Arrivals::Poisson,
                max_outstanding: OUTSTANDING,
            },
            ..closed.clone()
        };
        let one = match row::run(&mut server, &open)? {
            Ok(report) => Offered::of(&report, rate, most_ms),
            Err(problem) => {
                problems.push(problem);
                return Ok(false);
            }
        };
        offered.push(one);
        Ok(one.holds)
    };
    done.rate_per_s = highest(closed_per_s, holds)?;
    Ok(done)
}

/// Returns the highest rate that holds, as far as the search goes; 0 if none does.
fn highest(
    capacity: f64,
    mut holds: impl FnMut(f64) -> Result<bool, BenchError>,
) -> Result<f64, BenchError> {
    let (mut low, mut high) = (0.0, capacity);
    for _ in 0..DOUBLINGS {
        if !holds(high)? {
            break;
        }
        (low, high) = (high, 2.0 * high);
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if holds(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

impl Offered {
    fn of(report: &Report, rate_per_s: f64, most_ms: f64) -> Self {
        let samples = report.slices.iter();
        let p999 = Spread::of(samples.map(|slice| slice.latency.p999_ns as f64 / 1e6));
        let p999_ms = p999.map_or(f64::INFINITY, |spread| spread.median);
        let unsent = report.targets.iter().map(|target| target.overload).sum();
        Self {
            rate_per_s,
            p999_ms,
            unsent,
            holds: p999_ms <= most_ms && unsent == 0,
        }
    }
}

impl Saturation {
    fn line(&self) -> String {
        let (held, closed) = (rate(self.rate_per_s), rate(self.closed_per_s));
        let mut line = format!(
            "  {} {:<13} {held:>10}, closed loop {closed:>10}  {}",
            self.operation, self.engine, self.version
        );
        for problem in &self.problems {
            line += &format!("\n    ! {problem}");
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offers rates to a server that holds those up to `most`.
    fn search(capacity: f64, most: f64) -> (f64, usize) {
        let mut offers = 0;
        let found = highest(capacity, |rate| {
            offers += 1;
            Ok(rate <= most)
        });
        (found.expect("no load fails"), offers)
    }

    #[test]
    fn the_highest_rate_is_found_from_above_and_from_below_the_capacity() {
        for most in [0.5, 10.0, 63.0, 99.9, 100.0, 100.1, 333.0, 799.0, 1_599.0] {
            let (found, offers) = search(100.0, most);
            // What is halved is at most as large as the rate below it, or the capacity.
            let step = f64::max(100.0, most) / f64::from(1 << HALVINGS);
            assert!(found <= most && most - found <= step, "{most}: {found}");
            assert!(offers <= DOUBLINGS + HALVINGS, "{most}: {offers}");
        }
        assert_eq!(search(100.0, 0.0).0, 0.0, "none holds");
        assert!(search(100.0, 1e9).0 > 1_500.0, "the search ends");
    }
}
