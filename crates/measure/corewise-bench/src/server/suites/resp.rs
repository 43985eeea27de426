//! CPU time per command of Redis's protocol, beside redis-server, by `redis-benchmark`. In each
//! round both servers do the same work one after the other, in alternating order.

use std::path::PathBuf;
use std::process::Command;

use clap::{Args, ValueEnum};
use corewise_load::CpuMeter;
use corewise_measure::machine::Machine;
use corewise_measure::number::parse_count;
use corewise_topology::run_on;

use super::{PlaceArgs, failed, given_or, median, say_machine};
use crate::allocator::name_of;
use crate::error::BenchError;
use crate::server::is_installed;
use crate::server::process::{Engine, Launch, Program, Server};
use crate::text::say;

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Row {
    Get,
    Set,
    Incr,
    Mset10,
    Mget50,
}

impl Row {
    /// The keys of a request.
    fn keys(self) -> u64 {
        match self {
            Self::Mset10 => 10,
            Self::Mget50 => 50,
            _ => 1,
        }
    }

    /// The greatest ratio that is hoped for.
    fn bar(self) -> Option<f64> {
        matches!(self, Self::Get | Self::Set | Self::Mget50).then_some(0.5)
    }
}

/// CPU time per command of Redis's protocol, beside redis-server
///
/// Figures are CPU time of the server (user and system, all threads) in microseconds per request,
/// for MGET and MSET per key; a ratio is that of one round.
#[derive(Clone, Debug, Args)]
pub(crate) struct RespArgs {
    /// Commands [default: all]
    #[arg(value_enum)]
    rows: Vec<Row>,
    /// Rounds
    #[arg(short, long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Requests of a run; a tenth for mget50 and mset10
    #[arg(short = 'n', long, value_name = "N", default_value = "1M", value_parser = parse_count)]
    requests: u64,
    /// The other server, called with the options of redis-server
    #[arg(long, value_name = "PATH", default_value = "redis-server")]
    redis: PathBuf,
    /// Key space
    #[arg(long, value_name = "N", default_value = "100k", value_parser = parse_count)]
    keys: u64,
    /// Threads of corewise
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Requests in flight of a connection
    #[arg(long, value_name = "N", default_value_t = 32)]
    pipeline: u32,
    #[command(flatten)]
    place: PlaceArgs,
}

/// Measures the rows.
pub(super) fn run(args: &RespArgs) -> Result<u8, BenchError> {
    if !is_installed("redis-benchmark") || !is_installed(&args.redis) {
        say("SKIPPED: redis-server and redis-benchmark are not on PATH");
        return Ok(0);
    }
    let corewise = Launch {
        threads: args.threads,
        resp: true,
        ..args.place.corewise(1 << 20)?
    };
    let redis = Launch {
        program: Program::Rival(Engine::Redis, args.redis.clone()),
        ..corewise.clone()
    };
    let servers = [corewise.start()?, redis.start()?];
    say_machine(&Machine::look());
    say(&format!(
        "us of server CPU per request (MGET, MSET: per key), -P {}, {} rounds of {} requests; {}",
        args.pipeline,
        args.rounds,
        args.requests,
        args.place.line()
    ));
    say("| command | corewise | redis | ratio median [min-max] | bar | verdict |");
    say("|---|---|---|---|---|---|");
    for row in given_or(&args.rows, Row::value_variants()) {
        args.row(*row, &servers)?;
    }
    Ok(0)
}

impl RespArgs {
    fn row(&self, row: Row, servers: &[Server; 2]) -> Result<(), BenchError> {
        // All keys, and warm.
        for server in servers {
            self.client(server, 3 * self.keys, &["-t", "set"])?;
            self.measure(row, server)?;
        }
        let mut ns = [Vec::new(), Vec::new()];
        for round in 0..self.rounds {
            for at in [round % 2, 1 - round % 2] {
                ns[at].push(self.measure(row, &servers[at])?);
            }
        }
        let ratios: Vec<f64> = ns[0]
            .iter()
            .zip(&ns[1])
            .map(|(ours, theirs)| ours / theirs)
            .collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(0.0, f64::max);
        let ratio = median(ratios).unwrap_or(f64::NAN);
        let (bar, verdict) = row.bar().map_or(("-".into(), "-"), |bar| {
            (
                format!("<= {bar}"),
                ["missed", "met"][usize::from(ratio <= bar)],
            )
        });
        let [ours, theirs] = ns.map(|ns| median(ns).unwrap_or(f64::NAN) / 1e3);
        say(&format!(
            "| {} | {ours:.3} | {theirs:.3} | {ratio:.2} [{least:.2}-{most:.2}] | {bar} | {verdict} |",
            name_of(&row).to_uppercase()
        ));
        Ok(())
    }

    /// Nanoseconds of the server's CPU time per request, or per key.
    fn measure(&self, row: Row, server: &Server) -> Result<f64, BenchError> {
        let keys = row.keys();
        let requests = if keys > 1 {
            self.requests / 10
        } else {
            self.requests
        };
        let meter = CpuMeter::new(server.pid()).map_err(failed)?;
        let before = meter.read_ns().map_err(failed)?;
        let many = [&["mget"][..], &["key:__rand_int__"; 50]].concat();
        match row {
            Row::Mget50 => self.client(server, requests, &many)?,
            Row::Mset10 => self.client(server, requests, &["-t", "mset"])?,
            _ => self.client(server, requests, &["-t", &name_of(&row)])?,
        }
        let after = meter.read_ns().map_err(failed)?;
        Ok((after - before) as f64 / (requests * keys) as f64)
    }

    fn client(&self, server: &Server, requests: u64, what: &[&str]) -> Result<(), BenchError> {
        let mut command = Command::new("redis-benchmark");
        command
            .args([
                "-p",
                &server.address.port().to_string(),
                "-c",
                "50",
                "-d",
                "32",
                "-q",
            ])
            .args([
                "-P",
                &self.pipeline.to_string(),
                "-n",
                &requests.to_string(),
            ])
            .args(["-r", &self.keys.to_string()])
            .args(what);
        let cpus: Vec<_> = self
            .place
            .client()
            .into_iter()
            .map(corewise_topology::CpuId)
            .collect();
        let output = if cpus.is_empty() {
            command.output()
        } else {
            run_on(&cpus, || command.output())
        };
        let wrong = |what: String| BenchError::Failed(format!("redis-benchmark: {what}"));
        let output = output.map_err(|error| wrong(error.to_string()))?;
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        let error = said
            .lines()
            .find(|line| line.to_lowercase().contains("error"));
        match error {
            None if output.status.success() => Ok(()),
            _ => Err(wrong(error.unwrap_or("it failed").to_owned())),
        }
    }
}
