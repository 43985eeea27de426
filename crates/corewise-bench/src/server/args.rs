//! The command line of `bench server`, and its checked parameters.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use corewise_measure::number::parse_count;

use super::{Operation, Program};
use crate::args::Format;
use crate::error::BenchError;

/// Server threads, and maximum of client processes, in \[ATC11\] §6.2.
const PAPER: usize = 12;
/// Upper bound of each.
const MOST: usize = 1_000;

/// The figures that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Figure {
    /// GET and SET requests per second against client processes
    #[value(name = "atc11-8")]
    Atc11Eight,
}

/// The server to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// Lookups without a lock
    Relativistic,
    /// A lock for each shard
    Locked,
    /// One lock, and references to items: the paper's default engine
    GlobalLock,
    /// The memcached that is installed
    Memcached,
}

impl Engine {
    /// Returns whether it can be started.
    pub(super) fn is_installed(self) -> bool {
        let holds = |folder: &Path| folder.join("memcached").is_file();
        self != Self::Memcached
            || std::env::var_os("PATH")
                .is_some_and(|path| std::env::split_paths(&path).any(|folder| holds(&folder)))
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Relativistic => "relativistic",
            Self::Locked => "locked",
            Self::GlobalLock => "global-lock",
            Self::Memcached => "memcached",
        })
    }
}

/// Measure servers as papers did
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    corewise bench server --figure atc11-8 -o atc11-8.html\n  \
    corewise bench server --figure atc11-8 --quick --engine relativistic --engine global-lock\n\n\
    Each row has a server of its own; with the defaults the whole takes three quarters of an hour.\n\
    Exit codes: 0 measured, 1 failed, 2 bad option, 3 a reply was wrong and its row is void.")]
pub struct ServerArgs {
    /// The figure to measure
    #[arg(long, value_enum)]
    figure: Figure,
    /// Engines (comma-separated, or several options) [default: all, and memcached if installed]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ENGINES")]
    engine: Vec<Engine>,
    /// GET, SET, or both
    #[arg(long, value_enum, value_delimiter = ',', value_name = "OPERATIONS")]
    operation: Vec<Operation>,
    /// Server threads [default: 12, or the CPUs if they are fewer]
    #[arg(short, long, value_name = "N")]
    threads: Option<usize>,
    /// Client processes: numbers and ranges, as 1-4,8,12 [default: 1-12; with --quick 1,2,4]
    #[arg(short, long, value_name = "LIST")]
    clients: Option<String>,
    /// Connections of each client process
    #[arg(long, value_name = "N", default_value_t = 4)]
    connections: usize,
    /// Load before the first sample, in seconds [default: 20; with --quick 1]
    #[arg(long, value_name = "SECONDS")]
    warmup: Option<f64>,
    /// Length of a sample in seconds [default: 2; with --quick 0.5]
    #[arg(long, value_name = "SECONDS")]
    sample: Option<f64>,
    /// Samples of each row
    #[arg(long, value_name = "N", default_value_t = 3)]
    samples: usize,
    /// Keys, all of which are stored first
    #[arg(long, value_name = "N", default_value = "100k", value_parser = parse_count)]
    keys: u64,
    /// Bytes of each value
    #[arg(long, value_name = "BYTES", default_value_t = 32)]
    value_size: usize,
    /// Memory of the server in MiB
    #[arg(short, long, value_name = "MIB", default_value_t = 64)]
    memory_mib: u64,
    /// Fewer and shorter points
    #[arg(long)]
    quick: bool,
    /// The corewise to start as server and as client [default: this one]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Output file [default: FIGURE-DATE.html]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite the file
    #[arg(long)]
    replace: bool,
    /// json prints a line for each row, with all its samples
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// The checked parameters.
#[derive(Clone, Debug)]
pub(super) struct ServerPlan {
    pub(super) engines: Vec<Engine>,
    pub(super) operations: Vec<Operation>,
    pub(super) threads: usize,
    /// Whether `threads` was given.
    pub(super) chosen: bool,
    pub(super) clients: Vec<usize>,
    pub(super) connections: usize,
    pub(super) warmup: Duration,
    pub(super) sample: Duration,
    pub(super) samples: usize,
    pub(super) keys: u64,
    pub(super) value_size: usize,
    pub(super) memory_mib: u64,
}

impl ServerArgs {
    /// Returns the figure's name.
    pub(super) fn figure(&self) -> &'static str {
        match self.figure {
            Figure::Atc11Eight => "atc11-8",
        }
    }

    pub(super) fn json(&self) -> bool {
        self.format == Format::Json
    }

    pub(super) fn replace(&self) -> bool {
        self.replace
    }

    pub(super) fn output(&self) -> PathBuf {
        let by_date = || {
            let date = corewise_measure::machine::Machine::look().date;
            format!("{}-{}.html", self.figure(), date.replace([':', '-'], "")).into()
        };
        self.output.clone().unwrap_or_else(by_date)
    }

    pub(super) fn program(&self) -> Result<Program, BenchError> {
        let itself = || {
            std::env::current_exe()
                .map_err(|error| BenchError::Failed(format!("this program has no path: {error}")))
        };
        let path = self.program.clone().map_or_else(itself, Ok)?;
        if path.is_file() {
            Ok(Program(path))
        } else {
            Err(BenchError::Usage(format!(
                "program: there is no {}",
                path.display()
            )))
        }
    }

    /// Parses the options and checks their bounds.
    pub(super) fn plan(&self, cpus: usize) -> Result<ServerPlan, BenchError> {
        let (few, warmup_s, sample_s) = if self.quick {
            ("1,2,4", 1.0, 0.5)
        } else {
            ("1-12", 20.0, 2.0)
        };
        let clients = list(self.clients.as_deref().unwrap_or(few))?;
        let plan = ServerPlan {
            engines: every_if_none(&self.engine, Engine::value_variants()),
            operations: every_if_none(&self.operation, Operation::value_variants()),
            threads: self.threads.unwrap_or(PAPER.min(cpus)),
            chosen: self.threads.is_some(),
            clients,
            connections: self.connections,
            warmup: span("warmup", self.warmup.unwrap_or(warmup_s), 0.0)?,
            sample: span("sample", self.sample.unwrap_or(sample_s), 0.01)?,
            samples: self.samples,
            keys: self.keys,
            value_size: self.value_size,
            memory_mib: self.memory_mib,
        };
        within("threads", plan.threads, 1, MOST)?;
        within("connections", plan.connections, 1, MOST)?;
        within("samples", plan.samples, 1, MOST)?;
        within("keys", plan.keys, 1, 10_000_000)?;
        within("value-size", plan.value_size, 1, 500_000)?;
        within("memory-mib", plan.memory_mib, 1, 1 << 16)?;
        Ok(plan)
    }
}

fn every_if_none<T: Copy + PartialEq>(given: &[T], all: &[T]) -> Vec<T> {
    let chosen = |one: &&T| given.is_empty() || given.contains(one);
    all.iter().filter(chosen).copied().collect()
}

fn within<T: PartialOrd + fmt::Display>(
    name: &str,
    value: T,
    least: T,
    most: T,
) -> Result<(), BenchError> {
    if value >= least && value <= most {
        Ok(())
    } else {
        Err(BenchError::Usage(format!(
            "{name}: {value} ({least} to {most})"
        )))
    }
}

fn span(name: &str, seconds: f64, least: f64) -> Result<Duration, BenchError> {
    within(name, seconds, least, 3_600.0)?;
    Ok(Duration::from_secs_f64(seconds))
}

/// Parses a list such as `1-4,8,12`: ascending, each number once.
fn list(text: &str) -> Result<Vec<usize>, BenchError> {
    let bad = || BenchError::Usage(format!("clients: `{text}` (such as 1-4,8,12)"));
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |word: &str| word.trim().parse::<usize>().map_err(|_| bad());
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(bad());
        }
        within("clients", first, 1, MOST)?;
        within("clients", last, 1, MOST)?;
        numbers.extend(first..=last);
    }
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

impl ServerPlan {
    /// Returns the points of the figure: operations, then numbers of clients.
    pub(super) fn points(&self) -> Vec<(Operation, usize)> {
        let of = |&operation| {
            self.clients
                .iter()
                .map(move |&clients| (operation, clients))
        };
        self.operations.iter().flat_map(of).collect()
    }

    /// Returns the time from the first sample's start to the last one's end.
    pub(super) fn sampled(&self) -> Duration {
        self.sample * self.samples as u32
    }

    /// Describes the parameters.
    pub(super) fn line(&self) -> String {
        format!(
            "{} server threads, {} connections a client process, closed loop, {} keys of 12 bytes, \
             all stored first, {}-byte values, {} MiB; {} s warm-up, {} samples of {} s",
            self.threads,
            self.connections,
            self.keys,
            self.value_size,
            self.memory_mib,
            self.warmup.as_secs_f64(),
            self.samples,
            self.sample.as_secs_f64()
        )
    }

    /// Returns what a reader must know before believing the rows.
    pub(super) fn notes(&self, cpus: usize) -> Vec<String> {
        let mut notes = Vec::new();
        if self.threads > cpus {
            notes.push(format!(
                "{} server threads on {cpus} CPUs measure the scheduler",
                self.threads
            ));
        } else if self.threads < PAPER && !self.chosen {
            notes.push(format!(
                "{} server threads and not the paper's {PAPER}: there are {cpus} CPUs",
                self.threads
            ));
        }
        let most = self.clients.iter().max().copied().unwrap_or_default();
        if self.threads + most > cpus {
            notes.push(format!(
                "{} server threads and up to {most} client processes share {cpus} CPUs: no scaling is \
                 to be seen beyond",
                self.threads
            ));
        }
        notes
    }
}

impl AsRef<OsStr> for Program {
    fn as_ref(&self) -> &OsStr {
        self.0.as_os_str()
    }
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

    fn plan(line: &str, cpus: usize) -> Result<ServerPlan, BenchError> {
        let words = ["server", "--figure", "atc11-8"].into_iter();
        let words = words.chain(line.split_whitespace());
        Cli::try_parse_from(words).expect("syntax").args.plan(cpus)
    }

    #[test]
    fn the_defaults_are_the_papers_on_a_machine_like_the_papers() {
        let plan = plan("", 24).expect("valid");
        assert_eq!(plan.threads, 12);
        assert_eq!(plan.clients, (1..=12).collect::<Vec<_>>());
        assert_eq!((plan.connections, plan.samples), (4, 3));
        assert_eq!(plan.warmup, Duration::from_secs(20));
        assert_eq!(plan.sample, Duration::from_secs(2));
        assert_eq!(plan.points().len(), 24);
        assert_eq!(plan.engines.len(), 4);
        assert!(plan.notes(24).is_empty(), "{:?}", plan.notes(24));
    }

    #[test]
    fn a_small_machine_has_fewer_threads_and_a_note() {
        let small = plan("--quick", 2).expect("valid");
        assert_eq!((small.threads, small.clients), (2, vec![1, 2, 4]));
        let notes = plan("", 2).expect("valid").notes(2);
        assert!(notes[0].contains("not the paper's 12"), "{notes:?}");
        assert!(notes[1].contains("share 2 CPUs"), "{notes:?}");
        let notes = plan("--threads 12", 2).expect("valid").notes(2);
        assert!(notes[0].contains("scheduler"), "{notes:?}");
    }

    #[test]
    fn lists_are_numbers_and_ranges() {
        assert_eq!(list("12,1-3,2").expect("valid"), [1, 2, 3, 12]);
        for bad in ["", "0", "3-1", "a", "1001", "1-", "1-99999999"] {
            assert!(list(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_in_one_line() {
        for (line, word) in [
            ("--threads 0", "threads"),
            ("--warmup -1", "warmup"),
            ("--sample 0", "sample"),
            ("--samples 0", "samples"),
            ("--keys 0", "keys"),
            ("--clients 4-2", "clients"),
            ("--memory-mib 0", "memory-mib"),
        ] {
            let line = line.replace(" -1", "=-1");
            let error = plan(&line, 2).expect_err(&line);
            assert_eq!(error.exit_code(), 2);
            let text = error.to_string();
            assert!(text.contains(word) && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn engines_may_be_named_in_both_ways() {
        let plan = plan("--engine locked,global-lock --engine relativistic", 2).expect("valid");
        assert_eq!(
            plan.engines,
            [Engine::Relativistic, Engine::Locked, Engine::GlobalLock]
        );
    }
}
