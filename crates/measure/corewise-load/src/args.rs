//! The command line of the load generator.

use std::io::Write;
use std::process::ExitCode;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use corewise_measure::number::{parse_count, parse_rate};
use serde::Serialize;

use crate::config::{
    Address, Arrivals, FloorOptions, LoadConfig, LoadMode, Protocol, ReplayConfig, Target,
    ValueSize,
};
use crate::error::LoadError;
use crate::oracle::{Check, OracleConfig, OracleReport, check_server};
use crate::replay::{ReplayReport, replay};
use crate::report::{Report, to_value};
use crate::slices::run;
use corewise_measure::trace::{TraceConfig, TraceModel};

/// Format of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// For people.
    Text,
    /// All data, including every slice.
    Json,
    /// One `path value` per line, for shell scripts.
    Flat,
}

/// Put a server of the memcached, Redis or CPHASH protocol under load and measure it.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    corewise load 127.0.0.1:11211 --prefill --pipeline 32\n  \
    corewise load 127.0.0.1:11211 --rate 50000 --seconds 30 --distribution zipf:0.99\n  \
    corewise load :11211 --server-pid 123 --vs :11311 --vs-pid 456 --floor --prefill --pin 1\n  \
    corewise load --trace zipf-scan:0.9 --requests 10000000 --pipeline 16 --connections 8\n  \
    corewise load --trace short-ttl --rate 50000 --seconds 120 --pipeline 16\n  \
    corewise load --oracle fill --limit 64 --value-size 8000 --connections 8 --pipeline 16\n  \
    corewise load :11311 --protocol cphash --prefill --pipeline 32 --mix 7:3\n\n\
    Traces, replayed cache-aside (a get that misses is followed by a set): zipf[:EXPONENT],\n\
    zipf-scan[:EXPONENT], short-ttl[:EXPONENT], size-shift[:EXPONENT], drift[:EXPONENT],\n\
    correlated[:small|large], turnover (stores new keys only).\n\n\
    Oracle: fill (live bytes while new keys are written through the limit), refuse (a server\n\
    that does not evict: when it refuses, what it loses), refill (what survives of items stored\n\
    right after flush_all), mixed (all commands with random sizes, expiry, flush_all and\n\
    cache_memlimit for --seconds; every reply is checked).\n\n\
    Exit codes: 0 measured, 1 failed, 2 bad option, 3 the server answered wrongly.")]
pub struct LoadArgs {
    #[command(flatten)]
    load: LoadConfig,
    /// Server B, alternated with A in short slices
    #[arg(long, value_name = "ADDR")]
    vs: Option<Address>,
    /// Protocol of B [default: that of A]
    #[arg(long, value_enum, requires = "vs")]
    vs_protocol: Option<Protocol>,
    /// Process of B
    #[arg(long, value_name = "PID", requires = "vs")]
    vs_pid: Option<u32>,
    /// Also measure an empty responder, and print figures net of it
    #[arg(long)]
    floor: bool,
    #[command(flatten)]
    floor_options: FloorOptions,
    /// Value length in bytes, or MIN-MAX (each key keeps its length; log-uniform with --trace and
    /// --oracle); with --oracle also A+B (mixed), A,B (one after the other) and A..B (growing)
    /// [default: 32, or that of the trace]
    #[arg(long, value_name = "BYTES")]
    value_size: Option<String>,
    /// Ratio of gets to sets, such as 9:1
    #[arg(long, value_name = "GET:SET")]
    mix: Option<String>,
    /// Open loop or trace: requests per second over all connections
    #[arg(long, value_name = "PER_SECOND", value_parser = parse_rate)]
    rate: Option<f64>,
    /// Open loop: distribution of the gaps between requests
    #[arg(long, value_enum, default_value = "poisson", requires = "rate")]
    arrivals: Arrivals,
    /// Open loop: requests that a connection may have outstanding; more are dropped and reported
    #[arg(long, value_name = "N", default_value_t = 1024, requires = "rate")]
    max_outstanding: u32,
    /// Replay a generated cache trace: NAME or NAME:PARAM, see below
    #[arg(
        long,
        value_name = "MODEL",
        conflicts_with_all = [
            "vs", "floor", "multiget", "distribution", "set_ratio", "mix", "warmup", "threads",
            "arrivals", "max_outstanding", "prefill", "slice_ms", "slice_warm_ms",
        ]
    )]
    trace: Option<TraceModel>,
    /// Trace: number of requests [default: with --rate those due within --seconds, else ten per
    /// key]
    #[arg(long, value_name = "N", requires = "trace", value_parser = parse_count)]
    requests: Option<u64>,
    /// Trace: share of requests that store without a get, 0 to 1 [default: 1/30]
    #[arg(long, value_name = "SHARE", requires = "trace")]
    overwrites: Option<f64>,
    /// Trace: get every stored key at the end and sum the bytes that are still there
    #[arg(long, requires = "trace")]
    read_back: bool,
    /// Check what the server keeps, with an oracle that knows every acknowledged item
    #[arg(
        long,
        value_enum,
        value_name = "CHECK",
        requires = "limit",
        conflicts_with_all = [
            "trace", "vs", "floor", "multiget", "distribution", "set_ratio", "mix", "warmup",
            "threads", "rate", "keys", "prefill", "slice_ms", "slice_warm_ms",
        ]
    )]
    oracle: Option<Check>,
    /// Oracle: the server's memory limit in MiB
    #[arg(long, value_name = "MIB", requires = "oracle")]
    limit: Option<u64>,
    /// Oracle fill: how many times the limit is written
    #[arg(long, value_name = "N", default_value_t = 4.0, requires = "oracle")]
    turnovers: f64,
    /// Oracle mixed: the server does not evict, so no acknowledged item may be missing
    #[arg(long, requires = "oracle")]
    no_evictions: bool,
    /// Format of the report
    #[arg(long, value_enum, default_value = "text")]
    format: ReportFormat,
}

/// The share of sets in `GET:SET`.
fn share_of_sets(mix: &str) -> Result<f64, LoadError> {
    let parts = mix.split_once(':').and_then(|(get, set)| {
        Some((
            get.trim().parse::<u32>().ok()?,
            set.trim().parse::<u32>().ok()?,
        ))
    });
    match parts {
        Some((get, set)) if (get, set) != (0, 0) => {
            Ok(f64::from(set) / (f64::from(get) + f64::from(set)))
        }
        _ => Err(LoadError::config(format!(
            "bad mix '{mix}'; expected GET:SET such as 9:1"
        ))),
    }
}

impl LoadArgs {
    /// The value sizes that were given, if any.
    fn sizes<S: FromStr<Err = String>>(&self) -> Result<Option<S>, LoadError> {
        let sizes = self.value_size.as_deref().map(str::parse);
        sizes.transpose().map_err(LoadError::Config)
    }
}

impl TryFrom<LoadArgs> for LoadConfig {
    type Error = LoadError;

    fn try_from(args: LoadArgs) -> Result<Self, LoadError> {
        let sizes = args.sizes()?;
        let mut config = args.load;
        config.value_size = sizes.unwrap_or(config.value_size);
        config.vs = args.vs.map(|address| Target {
            address,
            protocol: args.vs_protocol.unwrap_or(config.target.protocol),
            pid: args.vs_pid,
        });
        config.floor = args.floor.then_some(args.floor_options);
        if let Some(mix) = args.mix {
            config.set_ratio = share_of_sets(&mix)?;
        }
        if let Some(rate) = args.rate {
            let (arrivals, max_outstanding) = (args.arrivals, args.max_outstanding);
            config.mode = LoadMode::Open {
                rate,
                arrivals,
                max_outstanding,
            };
        }
        config.validate()?;
        Ok(config)
    }
}

impl TryFrom<LoadArgs> for ReplayConfig {
    type Error = LoadError;

    fn try_from(args: LoadArgs) -> Result<Self, LoadError> {
        let sizes = args.sizes()?;
        let (load, defaults) = (args.load, TraceConfig::default());
        let requests = match (args.requests, args.rate) {
            (Some(requests), _) => requests,
            (None, Some(rate)) => (rate * load.seconds) as u64,
            (None, None) => load.keys.saturating_mul(10),
        };
        let config = Self {
            target: load.target,
            trace: TraceConfig {
                model: args.trace.unwrap_or(defaults.model),
                keys: load.keys,
                requests,
                rate_per_s: args.rate.map_or(defaults.rate_per_s, |rate| rate as u64),
                overwrites: args.overwrites.unwrap_or(defaults.overwrites),
                seed: load.seed,
                sizes: sizes.map(|ValueSize { min, max }| (min, max)),
            },
            paced: args.rate.is_some(),
            connections: load.connections,
            pipeline: load.pipeline,
            read_back: args.read_back,
            key_prefix: load.key_prefix,
            key_size: load.key_size,
            pin: load.pin,
            reply_timeout_ms: load.reply_timeout_ms,
        };
        config.validate()?;
        Ok(config)
    }
}

impl TryFrom<LoadArgs> for OracleConfig {
    type Error = LoadError;

    fn try_from(args: LoadArgs) -> Result<Self, LoadError> {
        let sizes = args.sizes()?;
        let (load, defaults) = (args.load, Self::default());
        let config = Self {
            target: load.target,
            check: args.oracle.unwrap_or(defaults.check),
            limit_bytes: args.limit.unwrap_or(64).saturating_mul(1 << 20),
            sizes: sizes.unwrap_or(defaults.sizes),
            turnovers: args.turnovers,
            seconds: load.seconds,
            evicts: !args.no_evictions,
            seed: load.seed,
            connections: load.connections,
            pipeline: load.pipeline,
            key_prefix: load.key_prefix,
            key_size: load.key_size,
            pin: load.pin,
            reply_timeout_ms: load.reply_timeout_ms,
        };
        config.validate()?;
        Ok(config)
    }
}

/// Runs the whole subcommand: prints the report on standard output, and progress and errors on
/// standard error. The caller's `main` must have called
/// [`maybe_run_from_env`](crate::floor::maybe_run_from_env) first.
pub fn main(args: LoadArgs) -> ExitCode {
    let text = match printed(args) {
        Ok(text) => text,
        Err(e) => {
            eprintln!("corewise: {e}");
            return ExitCode::from(e.exit_code());
        }
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Runs the subcommand and returns the output.
fn printed(args: LoadArgs) -> Result<String, LoadError> {
    let (format, mut progress) = (args.format, |line: &str| eprintln!("{line}"));
    Ok(if args.oracle.is_some() {
        let report = check_server(&OracleConfig::try_from(args)?, &mut progress)?;
        written(&report, format, OracleReport::to_flat)
    } else if args.trace.is_some() {
        let report = replay(&ReplayConfig::try_from(args)?, &mut progress)?;
        written(&report, format, ReplayReport::to_flat)
    } else {
        let report = run(&LoadConfig::try_from(args)?, &mut progress)?;
        written(&report, format, Report::to_flat)
    })
}

fn written<R: Serialize + ToString>(
    report: &R,
    format: ReportFormat,
    to_flat: fn(&R) -> String,
) -> String {
    match format {
        ReportFormat::Text => report.to_string(),
        ReportFormat::Json => format!("{:#}\n", to_value(report)),
        ReportFormat::Flat => to_flat(report),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use clap::Parser;

    use super::*;
    use crate::oracle::Sizes;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: LoadArgs,
    }

    fn parsed<C: TryFrom<LoadArgs, Error = LoadError>>(line: &str) -> Result<C, LoadError> {
        let words = std::iter::once("load").chain(line.split_whitespace());
        // The program prints the first line of such an error.
        let first = |error: clap::Error| error.to_string().lines().next().unwrap_or("").to_owned();
        let cli = Cli::try_parse_from(words).map_err(|error| LoadError::config(first(error)))?;
        C::try_from(cli.args)
    }

    /// Checks that each command line is refused with one line that has the word.
    fn assert_refused<C: TryFrom<LoadArgs, Error = LoadError> + fmt::Debug>(all: &[(&str, &str)]) {
        for (line, word) in all {
            let error = parsed::<C>(line).expect_err(line);
            let text = error.to_string();
            let is_clear = text.contains(word) && !text.contains('\n');
            assert!(is_clear, "{line}: {text}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn defaults_of_command_line_and_library_agree() {
        assert_eq!(
            parsed::<LoadConfig>("").expect("valid"),
            LoadConfig::default()
        );
    }

    #[test]
    fn options_reach_the_configuration() {
        let line = ":1234 --server-pid 5 --vs unix:/s --vs-pid 6 --vs-protocol resp --floor \
                    --floor-pin 0 --pin 1,3-4 --mix 9:1 --distribution zipf:1.1 --value-size 10-1000 \
                    --rate 1000 --arrivals constant";
        let config: LoadConfig = parsed(line).expect("valid");
        assert_eq!(config.target.address.to_string(), "127.0.0.1:1234");
        assert_eq!(
            config.vs.map(|vs| (vs.protocol, vs.pid)),
            Some((Protocol::Resp, Some(6)))
        );
        assert_eq!(config.floor.map(|floor| floor.pin), Some(vec![0]));
        assert_eq!(config.pin, [1, 3, 4]);
        assert_eq!(config.set_ratio, 0.1);
        assert_eq!(config.value_size, ValueSize { min: 10, max: 1000 });
        assert!(matches!(
            config.mode,
            LoadMode::Open {
                arrivals: Arrivals::Constant,
                ..
            }
        ));
    }

    #[test]
    fn options_of_a_trace_reach_the_configuration() {
        let config = parsed::<ReplayConfig>("--trace zipf").expect("valid");
        assert_eq!(config, ReplayConfig::default());
        let config: ReplayConfig = parsed(
            ":1234 --trace short-ttl:0.9 --keys 500 --rate 2000 --seconds 3 --overwrites 0 \
             --seed 7 --pipeline 4 --connections 2 --read-back --protocol meta --value-size 50-9000",
        )
        .expect("valid");
        let expected = TraceConfig {
            model: TraceModel::ShortTtl(0.9),
            keys: 500,
            requests: 6000,
            rate_per_s: 2000,
            overwrites: 0.0,
            seed: 7,
            sizes: Some((50, 9000)),
        };
        assert_eq!(config.trace, expected);
        assert!(config.paced && config.read_back);
        assert_eq!((config.connections, config.pipeline), (2, 4));
        assert_eq!(config.target.protocol, Protocol::Meta);
        let config: ReplayConfig = parsed("--trace turnover --requests 99").expect("valid");
        assert_eq!((config.trace.requests, config.paced), (99, false));
    }

    #[test]
    fn options_of_a_check_reach_the_configuration() {
        let config: OracleConfig = parsed("--oracle fill --limit 64").expect("valid");
        assert_eq!(config, OracleConfig::default());
        let line =
            ":1234 --oracle refuse --limit 2 --value-size 50+8000 --connections 3 --pipeline 4";
        let config: OracleConfig = parsed(line).expect("valid");
        assert_eq!((config.check, config.limit_bytes), (Check::Refuse, 2 << 20));
        assert_eq!(config.sizes, Sizes::Mix(50, 8000));
        assert_eq!((config.connections, config.pipeline), (3, 4));
        assert!(parsed::<OracleConfig>("--oracle fill --limit 64 --value-size 9-1").is_err());
        let alone = ["load", "--oracle", "fill"];
        assert!(Cli::try_parse_from(alone).is_err(), "a limit is needed");
    }

    #[test]
    fn bad_options_of_a_trace_are_one_clear_line() {
        assert_refused::<ReplayConfig>(&[
            ("--trace bell", "bell"),
            ("--trace zipf:9", "exponent"),
            ("--trace short-ttl", "rate"),
            ("--trace zipf --requests 0", "requests"),
            ("--trace turnover --requests 200000000", "key size"),
        ]);
        for conflict in [
            "--vs :1",
            "--prefill",
            "--mix 1:1",
            "--floor",
            "--multiget 2",
        ] {
            let words = format!("load --trace zipf {conflict}");
            assert!(Cli::try_parse_from(words.split(' ')).is_err(), "{conflict}");
        }
        assert!(Cli::try_parse_from(["load", "--requests", "5"]).is_err());
    }

    #[test]
    fn bad_options_are_one_clear_line() {
        assert_refused::<LoadConfig>(&[
            ("--mix 9", "mix"),
            ("--mix 0:0", "mix"),
            ("--pin 3-1", "CPU list"),
            ("--pin x", "CPU list"),
            ("nowhere", "address"),
            ("--distribution normal", "distribution"),
            ("--value-size 1-", "value size"),
            ("--connections 0", "connections"),
            ("--rate 0", "rate"),
        ]);
    }
}
