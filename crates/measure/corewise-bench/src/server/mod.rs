//! `corewise bench server`: figures of papers that measure a whole server, and suites that compare
//! it with others (see `suites`).
//!
//! # `atc11-8`
//!
//! Figure 8 of \[ATC11\], by the method of its §6.2: a server with 12 threads, one to 12 clients of
//! four connections each on the same machine. Each point has a fresh server, a warm-up of 20 s, and
//! three samples of 2 s of the rate, of which the greatest is the point.
//!
//! ```text
//!  for GET, SET:  for each number of clients:  for each engine:
//!
//!    start server ─▶ corewise load: fill ─▶ warm-up ─▶ sample ─▶ sample ─▶ sample ─▶ report
//! ```
//!
//! Besides the paper's figure each row has the median of its samples, the server's CPU time per
//! request in user mode and in the kernel (the paper uses the latter to explain why the default
//! engine scaled as far as it did), the share of its threads' time spent waiting for locks (the
//! paper used mutrace), its hit ratio, and its resident set over its memory limit. All of them are
//! from the report of `corewise load`.
//!
//! What differs from the paper, and what biases the figure, is in `docs/METHODOLOGY.md`.

mod args;
mod process;
mod report;
mod row;
mod saturate;
mod suites;

pub use args::ServerArgs;

use std::io::Write;
use std::path::{Path, PathBuf};

use self::process::Engine;
use self::row::Point;
use crate::error::BenchError;
use crate::format::Format;
use crate::manifest::manifest;
use crate::record::Record;
use crate::text::{self, say};

/// Exit status of a run with void rows.
const VOID: u8 = 3;

/// Measures, prints, and draws; returns the exit status.
pub(crate) fn run(args: &ServerArgs) -> Result<u8, BenchError> {
    if let Some(suite) = &args.suite {
        return suites::run(suite);
    }
    if let Some(most_ms) = args.saturate {
        return saturate::run(args, most_ms);
    }
    let (points, program) = (args.points()?, args.program()?);
    let engines = installed(args.engines())?;
    let page = args.output();
    // Checks that the page can be written before an hour is spent.
    crate::sink::Sink::create(&page, args.replace, false)?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let rows = points.iter().flat_map(|&(operation, clients)| {
        let program = &program;
        engines.iter().map(move |&engine| Point {
            args,
            program,
            engine,
            operation,
            clients,
            threads: args.threads(cpus),
        })
    });
    let most = points.iter().map(|(_, clients)| *clients).max();
    let notes = args.notes(cpus, most.unwrap_or_default());
    let done = measure(args, (args.line(cpus), notes), rows, &page);
    if done.is_err() {
        let _ = std::fs::remove_file(&page); // an empty file is harmless
    }
    done
}

fn measure<'p>(
    args: &ServerArgs,
    (plan, notes): (String, Vec<String>),
    points: impl Iterator<Item = Point<'p>>,
    page: &Path,
) -> Result<u8, BenchError> {
    let facts = manifest(&format!("server, figure {}", args.figure()));
    let is_json = args.format == Format::Json;
    let mut lead = vec![text::heading(&facts), plan];
    lead.extend(notes.into_iter().map(|note| format!("note: {note}")));
    if is_json {
        json(&Record::Manifest(Box::new(facts)));
    } else {
        say(&lead.join("\n"));
    }
    let (mut rows, mut listing) = (Vec::new(), String::new());
    for point in points {
        rows.push(point.measure()?);
        let text = row::listed(&rows);
        if is_json {
            json(&rows.last());
        } else {
            say(&text);
        }
        listing += &(text + "\n");
    }
    let ratios = row::ratios(&rows);
    let void = rows.iter().filter(|row| !row.problems.is_empty()).count();
    if !is_json {
        say(&format!("\n{}", ratios.join("\n")));
        let (rows, page) = (rows.len(), page.display());
        say(&format!("{rows} rows, {void} void; drawn in {page}"));
    }
    lead.extend(ratios);
    let html = report::page(lead, &rows, listing.trim());
    std::fs::write(page, html).map_err(|error| BenchError::of_file(page, error))?;
    Ok(if void > 0 { VOID } else { 0 })
}

fn json(line: &impl serde::Serialize) {
    if let Ok(text) = serde_json::to_string(line) {
        say(&text);
    }
}

/// Returns the installed engines. Reports the missing ones, or fails if none may be skipped.
fn installed(wanted: Vec<Engine>) -> Result<Vec<Engine>, BenchError> {
    let (there, missing): (Vec<_>, Vec<_>) =
        wanted.into_iter().partition(|engine| engine.is_installed());
    for engine in missing {
        let reason = format!("{engine} is not on PATH");
        let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
        if std::env::var("COREWISE_NO_SKIP").is_ok_and(|value| value == "1") {
            let text = format!("COREWISE_NO_SKIP=1, and skipped: {reason}");
            return Err(BenchError::Failed(text));
        }
    }
    if there.is_empty() {
        Err(BenchError::Usage("no engine is left to measure".into()))
    } else {
        Ok(there)
    }
}

/// Returns the program to start as server: this one, unless another is named.
fn program(given: Option<&Path>) -> Result<PathBuf, BenchError> {
    let itself = || {
        std::env::current_exe()
            .map_err(|error| BenchError::Failed(format!("this program has no path: {error}")))
    };
    let path = given.map(Path::to_path_buf).map_or_else(itself, Ok)?;
    if path.is_file() {
        return Ok(path);
    }
    Err(BenchError::Usage(format!(
        "program: there is no {}",
        path.display()
    )))
}

/// Returns whether a program is there: a path, or a name that is on PATH.
fn is_installed(program: impl AsRef<Path>) -> bool {
    let program = program.as_ref();
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_named = program.components().count() == 1;
    program.is_file()
        || is_named && std::env::split_paths(&paths).any(|of| of.join(program).is_file())
}
