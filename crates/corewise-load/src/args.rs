//! The command line of the load generator.

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::config::{
    Address, Arrivals, Distribution, FloorOptions, LoadConfig, Mode, Protocol, Target, ValueSize,
};
use crate::error::LoadError;
use crate::slices::run;

/// How the report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// Everything, every slice too.
    Json,
    /// One `path value` per line, for shell scripts.
    Flat,
}

/// Put a memcached-protocol or Redis-protocol server under load and measure it.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    corewise load 127.0.0.1:11211 --prefill --pipeline 32\n  \
    corewise load 127.0.0.1:11211 --rate 50000 --seconds 30 --distribution zipf:0.99\n  \
    corewise load :11211 --server-pid 123 --vs :11311 --vs-pid 456 --floor --prefill --pin 1\n\n\
    Exit codes: 0 measured, 1 failed, 2 bad option, 3 the server answered wrongly.")]
pub struct LoadArgs {
    /// Server A: HOST:PORT or unix:/path
    #[arg(default_value = "127.0.0.1:11211")]
    pub target: String,
    /// Protocol of A
    #[arg(long, value_enum, default_value = "memcached")]
    pub protocol: Protocol,
    /// Process of A, to measure its CPU time
    #[arg(long, value_name = "PID")]
    pub server_pid: Option<u32>,
    /// Server B, alternated with A in short slices
    #[arg(long, value_name = "ADDR")]
    pub vs: Option<String>,
    /// Protocol of B [default: that of A]
    #[arg(long, value_enum, requires = "vs")]
    pub vs_protocol: Option<Protocol>,
    /// Process of B
    #[arg(long, value_name = "PID", requires = "vs")]
    pub vs_pid: Option<u32>,
    /// Measure an empty responder too and print figures net of it
    #[arg(long)]
    pub floor: bool,
    /// Threads of the empty responder
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub floor_threads: u32,
    /// CPUs of the empty responder, such as 0 or 0,2-3 (pin it like the servers)
    #[arg(long, value_name = "CPUS", requires = "floor")]
    pub floor_pin: Option<String>,
    /// Connections to each target, over all client threads
    #[arg(long, short, value_name = "N", default_value_t = 50)]
    pub connections: u32,
    /// Requests in one batch of a connection (closed loop)
    #[arg(long, short, value_name = "N", default_value_t = 1)]
    pub pipeline: u32,
    /// Keys in one get
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub multiget: u32,
    /// Size of the key space
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub keys: u64,
    /// uniform or zipf:EXPONENT, over the whole key space
    #[arg(long, value_name = "LAW", default_value = "uniform")]
    pub distribution: String,
    /// Value length in bytes, or MIN-MAX (each key keeps its own length)
    #[arg(long, value_name = "BYTES", default_value = "32")]
    pub value_size: String,
    /// Share of requests that are sets, 0 to 1
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.1,
        conflicts_with = "mix"
    )]
    pub set_ratio: f64,
    /// Gets to sets, such as 9:1
    #[arg(long, value_name = "GET:SET")]
    pub mix: Option<String>,
    /// Time under load per target, in seconds
    #[arg(long, short, default_value_t = 10.0)]
    pub seconds: f64,
    /// Load before the first slice, per target, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub warmup: f64,
    /// Client threads
    #[arg(long, short, value_name = "N", default_value_t = 1)]
    pub threads: u32,
    /// Open loop: requests per second over all connections
    #[arg(long, value_name = "PER_SECOND")]
    pub rate: Option<f64>,
    /// Open loop: how requests are spaced
    #[arg(long, value_enum, default_value = "poisson", requires = "rate")]
    pub arrivals: Arrivals,
    /// Open loop: requests a connection may have outstanding; more are dropped and reported
    #[arg(long, value_name = "N", default_value_t = 1024, requires = "rate")]
    pub max_outstanding: u32,
    /// Store every key on every server first
    #[arg(long)]
    pub prefill: bool,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Length of every key in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 12)]
    pub key_size: usize,
    /// What every key starts with
    #[arg(long, value_name = "TEXT", default_value = "key:")]
    pub key_prefix: String,
    /// Length of a slice in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 500)]
    pub slice_ms: u64,
    /// Discarded start of a slice in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 50)]
    pub slice_warm_ms: u64,
    /// CPUs of the client threads, such as 1 or 0,2-3
    #[arg(long, value_name = "CPUS")]
    pub pin: Option<String>,
    /// Fail after so long without any reply, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    pub reply_timeout_ms: u64,
    /// How the report is printed
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

/// A list of CPUs: `0`, `0,2`, `1-3`.
fn cpu_list(text: Option<&str>) -> Result<Vec<usize>, LoadError> {
    let bad = || {
        LoadError::config(format!(
            "bad CPU list '{}'; expected such as 0,2-3",
            text.unwrap_or("")
        ))
    };
    let mut cpus = Vec::new();
    for part in text.into_iter().flat_map(|text| text.split(',')) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u16 = first.trim().parse().map_err(|_| bad())?;
        let last: u16 = last.trim().parse().map_err(|_| bad())?;
        if first > last {
            return Err(bad());
        }
        cpus.extend((first..=last).map(usize::from));
    }
    Ok(cpus)
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

fn target(address: &str, protocol: Protocol, pid: Option<u32>) -> Result<Target, LoadError> {
    // ":PORT" means this machine.
    let local = format!("127.0.0.1{address}");
    let address = if address.starts_with(':') {
        &local
    } else {
        address
    };
    let address = address.parse::<Address>().map_err(LoadError::Config)?;
    Ok(Target {
        address,
        protocol,
        pid,
    })
}

impl TryFrom<LoadArgs> for LoadConfig {
    type Error = LoadError;

    fn try_from(args: LoadArgs) -> Result<Self, LoadError> {
        let vs_protocol = args.vs_protocol.unwrap_or(args.protocol);
        let vs = args
            .vs
            .map(|vs| target(&vs, vs_protocol, args.vs_pid))
            .transpose()?;
        let floor_pin = cpu_list(args.floor_pin.as_deref())?;
        let floor = FloorOptions {
            threads: args.floor_threads,
            pin: floor_pin,
        };
        let mode = match args.rate {
            None => Mode::Closed,
            Some(rate) => {
                let (arrivals, max_outstanding) = (args.arrivals, args.max_outstanding);
                Mode::Open {
                    rate,
                    arrivals,
                    max_outstanding,
                }
            }
        };
        let config = Self {
            target: target(&args.target, args.protocol, args.server_pid)?,
            vs,
            floor: args.floor.then_some(floor),
            connections: args.connections,
            pipeline: args.pipeline,
            multiget: args.multiget,
            keys: args.keys,
            distribution: args
                .distribution
                .parse::<Distribution>()
                .map_err(LoadError::Config)?,
            value_size: args
                .value_size
                .parse::<ValueSize>()
                .map_err(LoadError::Config)?,
            set_ratio: args
                .mix
                .as_deref()
                .map_or(Ok(args.set_ratio), share_of_sets)?,
            seconds: args.seconds,
            warmup_seconds: args.warmup,
            threads: args.threads,
            mode,
            prefill: args.prefill,
            seed: args.seed,
            key_prefix: args.key_prefix,
            key_size: args.key_size,
            slice_ms: args.slice_ms,
            slice_warm_ms: args.slice_warm_ms,
            pin: cpu_list(args.pin.as_deref())?,
            reply_timeout_ms: args.reply_timeout_ms,
        };
        config.validate()?;
        Ok(config)
    }
}

/// The whole subcommand: runs, prints the report on standard output and
/// progress and errors on standard error. The caller's `main` must have called
/// [`maybe_run_from_env`](crate::floor::maybe_run_from_env) first.
pub fn main(args: LoadArgs) -> ExitCode {
    let format = args.format;
    let outcome =
        LoadConfig::try_from(args).and_then(|config| run(&config, &mut |line| eprintln!("{line}")));
    let report = match outcome {
        Ok(report) => report,
        Err(e) => {
            eprintln!("corewise: {e}");
            return ExitCode::from(e.exit_code());
        }
    };
    let text = match format {
        Format::Text => report.to_string(),
        Format::Json => report.to_json() + "\n",
        Format::Flat => report.to_flat(),
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: LoadArgs,
    }

    fn config(line: &str) -> Result<LoadConfig, LoadError> {
        let words = std::iter::once("load").chain(line.split_whitespace());
        LoadConfig::try_from(Cli::try_parse_from(words).expect("syntax").args)
    }

    #[test]
    fn defaults_of_both_doors_agree() {
        assert_eq!(config("").expect("valid"), LoadConfig::default());
    }

    #[test]
    fn options_reach_the_configuration() {
        let line = ":1234 --server-pid 5 --vs unix:/s --vs-pid 6 --vs-protocol resp --floor \
                    --floor-pin 0 --pin 1,3-4 --mix 9:1 --distribution zipf:1.1 --value-size 10-1000 \
                    --rate 1000 --arrivals constant";
        let config = config(line).expect("valid");
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
            Mode::Open {
                arrivals: Arrivals::Constant,
                ..
            }
        ));
    }

    #[test]
    fn bad_options_are_one_clear_line() {
        for (line, word) in [
            ("--mix 9", "mix"),
            ("--mix 0:0", "mix"),
            ("--pin 3-1", "CPU list"),
            ("--pin x", "CPU list"),
            ("nowhere", "address"),
            ("--distribution normal", "distribution"),
            ("--value-size 1-", "value size"),
            ("--connections 0", "connections"),
            ("--rate 0", "rate"),
        ] {
            let error = config(line).expect_err(line);
            let text = error.to_string();
            assert!(
                text.contains(word) && !text.contains('\n'),
                "{line}: {text}"
            );
            assert_eq!(error.exit_code(), 2);
        }
    }
}
