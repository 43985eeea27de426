//! `corewise bench server`: figures of papers that measure a whole server.
//!
//! # `atc11-8`
//!
//! Figure 8 of Triplett, McKenney and Walpole, "Resizable, Scalable, Concurrent Hash Tables via
//! Relativistic Programming" (USENIX ATC 2011), by the method of its section 6.2: a server with 12
//! threads, one to 12 client processes of four connections each on the same machine; each point has a
//! server of its own, a warm-up of 20 s, and three samples of 2 s of the rate that the server itself
//! counts, of which the greatest is the point.
//!
//! ```text
//!  for GET, SET:  for each number of client processes:  for each engine:
//!
//!    start server ─▶ fill ─▶ start clients ─▶ warm-up ─▶ stats ─▶ stats ─▶ stats ─▶ stats ─▶ clients end
//!                                                          └ sample ┴ sample ┴ sample ┘       and verify
//! ```
//!
//! Beside the paper's figure each row has the median of its samples, the server's CPU time per request
//! in user mode and in the kernel (the paper explains with the second why the default engine scaled as
//! far as it did), the share of its threads' time spent waiting for locks (the paper used mutrace), its
//! hit ratio, and its resident set over its memory limit.
//!
//! # Differences from the paper
//!
//! * The clients are `corewise load`: closed loop, one request outstanding on each connection, each
//!   reply compared byte by byte. They come when the server is filled, by another client before; the
//!   paper's fill it during the warm-up.
//! * Engines take turns at each point instead of one after the other, so that what the machine does
//!   meanwhile happens to all of them.
//! * A machine with fewer CPUs has fewer server threads, and says so.
//!
//! # Bias
//!
//! * Clients and server share the machine: beyond `threads + clients = CPUs` a point says what the
//!   scheduler makes of both.
//! * The maximum of three samples is kind to a noisy engine; the median is beside it.
//! * CPU time is accounted in ticks; its split into user and kernel is sampled by the kernel. It
//!   includes what the samples' `stats` commands cost.

mod args;
mod clients;
mod measure;
mod process;
mod row;
mod stats;

pub use args::ServerArgs;
#[cfg(test)]
pub(crate) use row::tests;
pub(crate) use row::{Operation, Row, listing, ratios};

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::BenchError;
use crate::manifest;
use crate::report;
use args::Engine;
use measure::Point;
use process::Program;

/// Exit status of a run with void rows.
const VOID: u8 = 3;

/// Measures, prints, and draws; gives the exit status.
pub(crate) fn run(args: &ServerArgs) -> Result<u8, BenchError> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let plan = args.plan(cpus)?;
    let program = args.program()?;
    let engines = installed(&plan.engines)?;
    let mut output = Output::create(args)?;
    let facts = manifest::manifest(manifest::Run {
        suite: format!("server, figure {}", args.figure()),
        ..manifest::Run::default()
    });
    let mut notes = plan.notes(cpus);
    let mut table = row::Table::new(args.json());
    table.head(&facts, &plan, &notes);
    let mut rows = Vec::new();
    for (operation, clients) in plan.points() {
        for &engine in &engines {
            let point = Point {
                plan: &plan,
                program: &program,
                engine,
                operation,
                clients,
            };
            let row = measure::measure(&point)?;
            table.row(&row);
            rows.push(row);
        }
    }
    table.ratios(&rows);
    if engines.len() < plan.engines.len() {
        notes.push("memcached is not installed".into());
    }
    let page = report::server_page(&facts, &plan.line(), &notes, &rows);
    output.write(&page)?;
    table.end(&rows, output.path());
    let void = rows.iter().any(|row| !row.problems.is_empty());
    Ok(if void { VOID } else { 0 })
}

/// The engines that there are. What is missing is said, or fails if nothing may be skipped.
fn installed(wanted: &[Engine]) -> Result<Vec<Engine>, BenchError> {
    let (there, missing): (Vec<_>, Vec<_>) =
        wanted.iter().partition(|engine| engine.is_installed());
    for engine in missing {
        let reason = format!("{engine} is not on PATH");
        let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
        if std::env::var("COREWISE_NO_SKIP").is_ok_and(|value| value == "1") {
            return Err(BenchError::Failed(format!(
                "COREWISE_NO_SKIP=1, and skipped: {reason}"
            )));
        }
    }
    match there.is_empty() {
        true => Err(BenchError::Usage("no engine is left to measure".into())),
        false => Ok(there),
    }
}

/// The page, which must not exist unless it may be replaced; removed again if nothing comes of it.
struct Output {
    path: PathBuf,
    written: bool,
}

impl Output {
    fn create(args: &ServerArgs) -> Result<Self, BenchError> {
        let path = args.output();
        // Whether it can be written is found out before an hour is spent.
        crate::sink::Sink::create(Some(&path), args.replace(), false)?;
        Ok(Self {
            path,
            written: false,
        })
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn write(&mut self, page: &str) -> Result<(), BenchError> {
        std::fs::write(&self.path, page).map_err(|error| BenchError::File {
            path: self.path.display().to_string(),
            error,
        })?;
        self.written = true;
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.written {
            let _ = std::fs::remove_file(&self.path); // an empty file harms nobody
        }
    }
}
