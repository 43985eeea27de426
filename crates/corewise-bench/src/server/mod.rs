//! `corewise bench server`: figures of papers that measure a whole server.
//!
//! # `atc11-8`
//!
//! Figure 8 of \[ATC11\], by the method of its §6.2: a server with 12 threads, one to 12 client
//! processes of four connections each on the same machine. Each point has a fresh server, a warm-up
//! of 20 s, and three samples of 2 s of the rate that the server itself counts, of which the
//! greatest is the point.
//!
//! ```text
//!  for GET, SET:  for each number of client processes:  for each engine:
//!
//!    start server ─▶ fill ─▶ start clients ─▶ warm-up
//!      ─▶ stats ─▶ stats ─▶ stats ─▶ stats ─▶ clients end and verify
//!           └ sample ┴ sample ┴ sample ┘
//! ```
//!
//! Besides the paper's figure each row has the median of its samples, the server's CPU time per
//! request in user mode and in the kernel (the paper uses the latter to explain why the default
//! engine scaled as far as it did), the share of its threads' time spent waiting for locks (the
//! paper used mutrace), its hit ratio, and its resident set over its memory limit.
//!
//! # Differences from the paper
//!
//! * The clients are `corewise load`: closed loop, one request outstanding on each connection, each
//!   reply compared byte by byte. They start after another client has filled the server; the
//!   paper's fill it during the warm-up.
//! * Engines alternate at each point instead of running one after the other, so that disturbances
//!   of the machine affect all of them.
//! * A machine with fewer CPUs gets fewer server threads, and the report notes it.
//!
//! # Bias
//!
//! * Clients and server share the machine: beyond `threads + clients = CPUs` a point also measures
//!   how the scheduler divides it.
//! * The maximum of three samples favours a noisy engine; the median is beside it.
//! * CPU time is accounted in ticks; its split into user and kernel is sampled by the kernel. It
//!   includes the cost of the samples' `stats` commands.

mod args;
mod clients;
mod measure;
mod process;
mod report;
mod row;
mod stats;

pub use args::ServerArgs;

use std::io::Write;
use std::path::{Path, PathBuf};

use self::args::Engine;
use self::measure::Point;
use self::process::Program;
use self::row::Operation;
use crate::error::BenchError;
use crate::manifest;

/// Exit status of a run with void rows.
const VOID: u8 = 3;

/// Measures, prints, and draws; returns the exit status.
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
    let mut printer = row::RowPrinter::new(args.json());
    printer.head(&facts, &plan, &notes);
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
            printer.row(&row);
            rows.push(row);
        }
    }
    printer.ratios(&rows);
    if engines.len() < plan.engines.len() {
        notes.push("memcached is not installed".into());
    }
    let page = report::page(&facts, &plan.line(), &notes, &rows);
    output.write(&page)?;
    printer.end(&rows, output.path());
    let void = rows.iter().any(|row| !row.problems.is_empty());
    Ok(if void { VOID } else { 0 })
}

/// Returns the installed engines. Reports the missing ones, or fails if none may be skipped.
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
    if there.is_empty() {
        Err(BenchError::Usage("no engine is left to measure".into()))
    } else {
        Ok(there)
    }
}

/// The page. It must not exist unless it may be replaced, and is removed if there is no result.
struct Output {
    path: PathBuf,
    written: bool,
}

impl Output {
    fn create(args: &ServerArgs) -> Result<Self, BenchError> {
        let path = args.output();
        // Checks that the page can be written before an hour is spent.
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
            let _ = std::fs::remove_file(&self.path); // an empty file is harmless
        }
    }
}
