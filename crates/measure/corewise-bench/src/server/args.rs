//! The command line of `bench server`.

use std::fmt;
use std::path::PathBuf;

use clap::builder::{RangedU64ValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use itertools::Itertools;

use super::process::Engine;
use super::suites::ServerSuite;
use crate::allocator::name_of;
use crate::error::BenchError;
use crate::format::{Format, dated};

/// Server threads, and maximum of clients, in \[ATC11\] §6.2.
const PAPER: usize = 12;
/// Upper bound of each.
const MOST: usize = 1_000;

/// The operation of all requests of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Operation {
    /// Reads, all of which hit
    Get,
    /// Stores of keys that are there
    Set,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&name_of(self).to_uppercase())
    }
}

/// A parser of numbers from 1 to `MOST`.
fn count() -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::<usize>::new().range(1..=MOST as u64)
}

/// Parses seconds, at most an hour.
fn seconds(text: &str) -> Result<f64, String> {
    let parsed = text.parse().ok();
    let seconds = parsed.filter(|seconds| (0.0..=3_600.0).contains(seconds));
    seconds.ok_or_else(|| "not a number from 0 to 3600".into())
}

/// Parses milliseconds, above 0 and at most a minute.
fn milliseconds(text: &str) -> Result<f64, String> {
    let parsed = text.parse().ok();
    let ms = parsed.filter(|ms| *ms > 0.0 && *ms <= 60_000.0);
    ms.ok_or_else(|| "not a number above 0, up to 60000".into())
}

/// Measure servers as papers did, or compare them
#[derive(Clone, Debug, Args)]
#[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:\n  \
    corewise bench server rivals --seconds 5 'get32-*'\n  \
    corewise bench server --figure atc11-8 -o atc11-8.html\n  \
    corewise bench server --saturate 1 --operation get --threads 2\n  \
    corewise bench server --figure atc11-8 --quick --engine relativistic --engine global-lock\n\n\
    Each row starts a server; with the defaults the figure takes more than an hour.\n\
    Exit codes: 0 measured, 1 failed, 2 bad option, 3 a reply was wrong and its row is void.")]
pub struct ServerArgs {
    #[command(subcommand)]
    pub(super) suite: Option<ServerSuite>,
    /// The figure to measure: GET and SET requests per second against clients
    #[arg(long, value_parser = ["atc11-8"], required_unless_present = "saturate")]
    figure: Option<String>,
    /// Instead of a figure, search the highest rate at which each engine's 99.9th percentile is at
    /// most this
    #[arg(long, value_name = "MS", value_parser = milliseconds, conflicts_with_all = ["figure", "output"])]
    pub(super) saturate: Option<f64>,
    /// Engines (comma-separated, or several options) [default: all, memcached, redis, and of the
    /// others those installed]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ENGINES")]
    engine: Vec<Engine>,
    /// GET, SET, or both
    #[arg(long, value_enum, value_delimiter = ',', value_name = "OPERATIONS")]
    operation: Vec<Operation>,
    /// Server threads [default: 12, or the CPUs if they are fewer]
    #[arg(short, long, value_name = "N", value_parser = count())]
    threads: Option<usize>,
    /// Client threads: numbers and ranges, as 1-4,8,12 [default: 1-12; with --quick 1,2,4]
    #[arg(short, long, value_name = "LIST")]
    clients: Option<String>,
    /// Connections of each client
    #[arg(long, value_name = "N", default_value = "4", value_parser = count())]
    pub(super) connections: usize,
    /// Load before the first sample, in seconds [default: 20; with --quick 1]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    warmup: Option<f64>,
    /// Length of a sample in seconds [default: 2; with --quick 0.5]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    sample: Option<f64>,
    /// Samples of each row
    #[arg(long, value_name = "N", default_value = "3", value_parser = count())]
    samples: usize,
    /// Keys, all of which are stored first, such as 100k
    #[arg(long, value_name = "N", default_value = "100k")]
    pub(super) keys: String,
    /// Bytes of each value
    #[arg(long, value_name = "BYTES", default_value_t = 32)]
    pub(super) value_size: u32,
    /// Memory of the server in MiB
    #[arg(short, long, value_name = "MIB", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1 << 16))]
    pub(super) memory_mib: u64,
    /// Fewer and shorter points
    #[arg(long)]
    quick: bool,
    /// The corewise to start as server [default: this one]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Output file [default: FIGURE-DATE.html]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite the file
    #[arg(long)]
    pub(super) replace: bool,
    /// json prints a line for each row, with all its samples
    #[arg(long, value_enum, default_value = "text")]
    pub(super) format: Format,
}

impl ServerArgs {
    pub(super) fn figure(&self) -> &str {
        self.figure.as_deref().unwrap_or_default()
    }

    pub(super) fn output(&self) -> PathBuf {
        let given = self.output.clone();
        given.unwrap_or_else(|| dated(self.figure(), "html"))
    }

    pub(super) fn program(&self) -> Result<PathBuf, BenchError> {
        super::program(self.program.as_deref())
    }

    pub(super) fn engines(&self) -> Vec<Engine> {
        let mut engines = all_if_none(&self.engine);
        engines.retain(|engine| !self.engine.is_empty() || engine.is_usual());
        engines
    }

    pub(super) fn threads(&self, cpus: usize) -> usize {
        self.threads.unwrap_or(PAPER.min(cpus))
    }

    /// Returns the numbers of clients: ascending, each once.
    pub(super) fn clients(&self) -> Result<Vec<usize>, BenchError> {
        let default = if self.quick { "1,2,4" } else { "1-12" };
        let text = self.clients.as_deref().unwrap_or(default);
        let numbers = corewise_topology::parse_cpu_list(text).unwrap_or_default();
        let numbers = numbers.into_iter().sorted_unstable().dedup().collect_vec();
        let within = |number: &usize| (1..=MOST).contains(number);
        if numbers.is_empty() || !numbers.iter().all(within) {
            let text = format!("clients: `{text}` (such as 1-4,8,12; at most {MOST})");
            return Err(BenchError::Usage(text));
        }
        Ok(numbers)
    }

    /// Returns the number of clients of a search for the highest rate: the most that were given, or
    /// one for each CPU that the server's threads leave.
    pub(super) fn most_clients(&self, cpus: usize) -> Result<usize, BenchError> {
        let left = cpus.saturating_sub(self.threads(cpus)).max(1);
        let given = self.clients.is_some();
        Ok(if given {
            self.clients()?.pop().unwrap_or(left)
        } else {
            left
        })
    }

    /// Returns the operations.
    pub(super) fn operations(&self) -> Vec<Operation> {
        all_if_none(&self.operation)
    }

    /// Returns the points of the figure: operations, then numbers of clients.
    pub(super) fn points(&self) -> Result<Vec<(Operation, usize)>, BenchError> {
        let clients = self.clients()?;
        let operations = self.operations().into_iter();
        let of = |operation| clients.iter().map(move |&clients| (operation, clients));
        Ok(operations.flat_map(of).collect())
    }

    pub(super) fn warmup_s(&self) -> f64 {
        self.warmup.unwrap_or(if self.quick { 1.0 } else { 20.0 })
    }

    /// Returns the length of a sample in milliseconds, and of all of them in seconds.
    pub(super) fn sampling(&self) -> (u64, f64) {
        let default = if self.quick { 0.5 } else { 2.0 };
        let ms = (self.sample.unwrap_or(default) * 1e3).round() as u64;
        (ms, (ms * self.samples as u64) as f64 / 1e3)
    }

    /// Describes the parameters.
    pub(super) fn line(&self, cpus: usize) -> String {
        format!(
            "{} server threads, {} connections a client, closed loop, {} keys of 12 bytes, \
             all stored first, {}-byte values, {} MiB; {} s warm-up, {} samples of {} s",
            self.threads(cpus),
            self.connections,
            self.keys,
            self.value_size,
            self.memory_mib,
            self.warmup_s(),
            self.samples,
            self.sampling().0 as f64 / 1e3
        )
    }

    /// Returns what a reader must know before believing the rows.
    pub(super) fn notes(&self, cpus: usize, most: usize) -> Vec<String> {
        let mut notes = Vec::new();
        let threads = self.threads(cpus);
        if threads > cpus {
            notes.push(format!(
                "{threads} server threads on {cpus} CPUs measure the scheduler"
            ));
        } else if threads < PAPER && self.threads.is_none() {
            notes.push(format!(
                "{threads} server threads and not the paper's {PAPER}: there are {cpus} CPUs"
            ));
        }
        if threads + most > cpus {
            notes.push(format!(
                "{threads} server threads and up to {most} clients share {cpus} CPUs: no scaling \
                 is to be seen beyond"
            ));
        }
        notes
    }
}

fn all_if_none<T: Copy + PartialEq + ValueEnum>(given: &[T]) -> Vec<T> {
    let chosen = |one: &&T| given.is_empty() || given.contains(one);
    T::value_variants().iter().filter(chosen).copied().collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: ServerArgs,
    }

    fn parsed(line: &str) -> Result<ServerArgs, clap::Error> {
        let words = ["server", "--figure", "atc11-8"].into_iter();
        let words = words.chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.args)
    }

    fn args(line: &str) -> ServerArgs {
        parsed(line).expect("valid")
    }

    #[test]
    fn the_defaults_are_the_papers_on_a_machine_like_the_papers() {
        let args = args("");
        assert_eq!(args.threads(24), 12);
        assert_eq!(args.clients().expect("valid"), Vec::from_iter(1..=12));
        assert_eq!(args.connections, 4);
        assert_eq!((args.warmup_s(), args.sampling()), (20.0, (2_000, 6.0)));
        assert_eq!(args.points().expect("valid").len(), 24);
        assert!(args.engines().starts_with(&Engine::value_variants()[..6]));
        assert_eq!(args.notes(24, 12), Vec::<String>::new());
    }

    #[test]
    fn a_small_machine_has_fewer_threads_and_a_note() {
        let small = args("--quick");
        let clients = small.clients().expect("valid");
        assert_eq!((small.threads(2), clients), (2, vec![1, 2, 4]));
        let notes = args("").notes(2, 12);
        assert!(notes[0].contains("not the paper's 12"), "{notes:?}");
        assert!(notes[1].contains("share 2 CPUs"), "{notes:?}");
        let notes = args("--threads 12").notes(2, 12);
        assert!(notes[0].contains("scheduler"), "{notes:?}");
    }

    #[test]
    fn clients_are_numbers_and_ranges() {
        let clients = |text| args(&format!("--clients={text}")).clients();
        assert_eq!(clients("12,1-3,2").expect("valid"), [1, 2, 3, 12]);
        for bad in ["", "0", "3-1", "a", "1001", "1-", "1-99999999"] {
            let error = clients(bad).expect_err(bad);
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn what_is_out_of_bounds_is_refused() {
        for line in [
            "--threads 0",
            "--samples 0",
            "--connections 1001",
            "--memory-mib 0",
            "--sample nan",
            "--sample=-1",
            "--warmup inf",
            "--saturate 1",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_search_needs_no_figure_but_a_bound() {
        let parsed =
            |words: &str| Cli::try_parse_from(["server"].into_iter().chain(words.split(' ')));
        for bad in [
            "--saturate=0",
            "--saturate=nan",
            "--saturate=-1",
            "--saturate=60001",
            "--quick",
        ] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
        let args = parsed("--saturate 0.5 --threads 4").expect("valid").args;
        assert_eq!(args.saturate, Some(0.5));
        let clients = |cpus| args.most_clients(cpus).expect("valid");
        assert_eq!((clients(24), clients(2)), (20, 1));
        let args = parsed("--saturate 1 --clients 1-3").expect("valid").args;
        assert_eq!(args.most_clients(2).expect("valid"), 3);
    }

    #[test]
    fn engines_may_be_named_in_both_ways() {
        let engines = args("--engine locked,global-lock --engine relativistic").engines();
        let named = [Engine::Relativistic, Engine::Locked, Engine::GlobalLock];
        assert_eq!(engines, named);
    }
}
