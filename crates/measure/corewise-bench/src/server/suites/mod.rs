//! Suites that compare `corewise serve` with other servers.
//!
//! | suite | what it compares |
//! |---|---|
//! | `rivals` | CPU time per request and tail latency, with memcached and Redis; prints the README's table |
//! | `resp` | CPU time per command of Redis's protocol, with Redis, by `redis-benchmark` |
//! | `hits` | hit ratios, with memcached |
//! | `tail` | the tail of latency while the cache grows, evicts, and lets items expire |
//!
//! A missed bar is a finding and no failure: the exit status is 0 unless a reply was wrong or a run
//! could not be made (1), or an option is bad (2). A server that is not installed has no rows.

mod hits;
mod resp;
mod rivals;
mod tail;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use corewise_load::config::{Address, Protocol, Target};
use corewise_load::{LoadConfig, LoadError, Report, TargetRole};
use corewise_measure::machine::Machine;
use corewise_topology::CpuId;

use super::process::{Launch, Program, Server};
use crate::error::BenchError;
use crate::text::say;

/// What to compare.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum ServerSuite {
    Rivals(rivals::RivalsArgs),
    Resp(resp::RespArgs),
    Hits(hits::HitsArgs),
    Tail(tail::TailArgs),
}

/// Measures a suite; returns the exit status.
pub(super) fn run(suite: &ServerSuite) -> Result<u8, BenchError> {
    match suite {
        ServerSuite::Rivals(args) => rivals::run(args),
        ServerSuite::Resp(args) => resp::run(args),
        ServerSuite::Hits(args) => hits::run(args),
        ServerSuite::Tail(args) => tail::run(args),
    }
}

/// Where programs run.
#[derive(Clone, Debug, Args)]
struct PlaceArgs {
    /// The corewise to start as server [default: this one]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// CPU of the servers and of the empty responder
    #[arg(long, value_name = "CPU", default_value_t = 0)]
    server_cpu: usize,
    /// CPU of the client
    #[arg(long, value_name = "CPU", default_value_t = 1)]
    client_cpu: usize,
    /// Pin nothing; nor is anything pinned on a single CPU
    #[arg(long)]
    no_pin: bool,
}

impl PlaceArgs {
    fn pins(&self) -> bool {
        !self.no_pin && std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1)
    }

    fn server(&self) -> Option<CpuId> {
        self.pins().then_some(CpuId(self.server_cpu))
    }

    fn client(&self) -> Vec<usize> {
        self.pins().then_some(self.client_cpu).into_iter().collect()
    }

    /// How to start corewise with one thread, on the CPU of servers.
    fn corewise(&self, memory_kib: u64) -> Result<Launch, BenchError> {
        let (path, engine) = (super::program(self.program.as_deref())?, None);
        Ok(Launch {
            cpu: self.server(),
            ..Launch::new(Program::Corewise { path, engine }, 1, memory_kib)
        })
    }

    fn line(&self) -> String {
        if !self.pins() {
            return "pinning: none".into();
        }
        let (servers, client) = (self.server_cpu, self.client_cpu);
        format!("pinning: servers and empty responder on CPU {servers}, client on CPU {client}")
    }
}

fn say_machine(machine: &Machine) {
    let Machine {
        cpu,
        cpus,
        kernel,
        date,
        transparent_hugepages,
    } = machine;
    say(&format!(
        "machine: {cpu}, {cpus} CPUs, Linux {kernel}, transparent huge pages {transparent_hugepages}, {date}"
    ));
}

fn target(server: &Server, protocol: Protocol) -> Target {
    Target {
        address: Address::Tcp(server.address),
        protocol,
        pid: Some(server.pid()),
    }
}

fn load(config: &LoadConfig) -> Result<Report, BenchError> {
    corewise_load::run(config, &mut |_| {}).map_err(failed)
}

/// Stores all keys of a load.
fn fill(config: &LoadConfig) -> Result<Report, BenchError> {
    load(&LoadConfig {
        prefill: true,
        set_ratio: 0.0,
        warmup_seconds: 0.0,
        seconds: 0.2,
        slice_ms: 100,
        slice_warm_ms: 0,
        ..config.clone()
    })
}

fn failed(error: LoadError) -> BenchError {
    match error {
        LoadError::Config(text) => BenchError::Usage(text),
        other => BenchError::Failed(other.to_string()),
    }
}

/// The result of a target.
fn of(
    report: &Report,
    role: TargetRole,
) -> Result<&corewise_load::report::TargetReport, BenchError> {
    let found = report.targets.iter().find(|target| target.role == role);
    found.ok_or_else(|| BenchError::Failed("the load has no such target".into()))
}

/// Prints what went wrong with a row; the others go on.
fn failures_of(row: &str, done: Result<(), BenchError>) -> Result<u8, BenchError> {
    match done {
        Ok(()) => Ok(0),
        Err(error @ BenchError::Usage(_)) => Err(error),
        Err(error) => {
            say(&format!("{row} | FAILED: {error}"));
            Ok(1)
        }
    }
}

/// What was given, or else all of these.
fn given_or<'a, T>(given: &'a [T], all: &'a [T]) -> &'a [T] {
    if given.is_empty() { all } else { given }
}

fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    corewise_measure::stats::Spread::of(values).map(|spread| spread.median)
}

/// A number with three decimals, or a dash.
fn shown(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.3}"))
}
