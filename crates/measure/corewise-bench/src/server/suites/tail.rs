//! The tail of latency while the cache is disturbed, beside memcached's.
//!
//! Latencies are of an open loop (from the intended start, 10 % sets) with separate connections and
//! keys. All the time another load sets keys at a constant rate: for the steady value, which is
//! measured before and after in the same server, keys that are there already; in `grow` and `evict`
//! new ones. So only what the row names is different. Servers are started afresh for each round and
//! take turns; figures are medians of the rounds. Where the load itself was late by much of the
//! tail (it shares its CPU, or the machine is busy), the row tells nothing.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use corewise_load::config::{Arrivals, LoadMode, Protocol};
use corewise_load::{LoadConfig, TargetRole, statistic};
use corewise_measure::machine::{Machine, Memory};
use corewise_measure::number::parse_count;

use super::{PlaceArgs, failures_of, fill, given_or, load, median, of, say_machine, shown, target};
use crate::error::BenchError;
use crate::format::name_of;
use crate::server::is_installed;
use crate::server::process::{Engine, Launch, Program, Server};
use crate::text::say;

/// Head start of the other load, and how long it goes on after the measured one.
const AROUND: Duration = Duration::from_millis(500);
/// Seconds in which the items that expire are stored, and in which the disturbed measurement begins
/// before they expire.
const STORING_S: u64 = 15;
const EARLY_S: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Row {
    /// The cache grows from nothing to all items
    Grow,
    /// New items come into a full cache, so that each takes another one's place
    Evict,
    /// Many items expire in the same second
    Expire,
}

/// The tail of latency while the cache grows, evicts, and lets items expire
///
/// A row has, for corewise and for memcached: the steady p99.9, that while disturbed, and their
/// ratio with its range; the resident set over the limit; the hit ratio; the p99.9 of the load's
/// own lateness. Nothing here is a bar.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example: corewise bench server tail --engine locked -r 5 evict expire")]
pub(crate) struct TailArgs {
    /// What disturbs [default: all]; grow takes items / sets seconds a round and server
    #[arg(value_enum)]
    rows: Vec<Row>,
    /// Time of each steady measurement, and of evict and expire
    #[arg(short, long, value_name = "N", default_value_t = 15)]
    seconds: u64,
    /// Rounds
    #[arg(short, long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// corewise's engine [default: the server's]
    #[arg(long, value_enum)]
    engine: Option<Engine>,
    /// Server threads of both
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Measured requests per second
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    rate: u32,
    /// Sets of the other load per second
    #[arg(long, value_name = "N", default_value_t = 40_000)]
    sets: u32,
    /// Items of grow
    #[arg(long, value_name = "N", default_value = "10M", value_parser = parse_count)]
    items: u64,
    /// Items of expire
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_count)]
    expiring: u64,
    /// Limit in grow and expire
    #[arg(long, value_name = "MB", default_value_t = 2_048)]
    memory: u64,
    /// Limit in evict
    #[arg(long, value_name = "MB", default_value_t = 128)]
    small: u64,
    #[command(flatten)]
    place: PlaceArgs,
}

/// The figures of a round, latencies in milliseconds.
struct Round {
    steady: f64,
    disturbed: f64,
    rss_over_limit: f64,
    hit_ratio: f64,
    late: f64,
}

pub(super) fn run(args: &TailArgs) -> Result<u8, BenchError> {
    let engine = args
        .engine
        .map_or("default".into(), |engine| engine.to_string());
    say_machine(&Machine::look());
    say(&format!(
        "server:  corewise engine {engine}, {} thread(s); {}\n\
         load:    {}/s measured on 50 connections, 100000 keys, 10 % sets; beside it {} sets/s; {} rounds, \
         {} s each\n\
         row | corewise p99.9 steady, during, ratio [range] | memcached | rss/limit | hit ratio | load late",
        args.threads,
        args.place.line(),
        args.rate,
        args.sets,
        args.rounds,
        args.seconds
    ));
    let mut status = 0;
    for row in given_or(&args.rows, Row::value_variants()) {
        let mut rounds = [Vec::new(), Vec::new()];
        for _ in 0..args.rounds {
            for (at, rounds) in rounds.iter_mut().enumerate() {
                if at == 1 && !is_installed("memcached") {
                    continue;
                }
                let round = args
                    .launch(*row, at == 1)
                    .and_then(|launch| args.round(*row, &launch));
                status =
                    failures_of(&name_of(row), round.map(|round| rounds.push(round)))?.max(status);
            }
        }
        let both = |of: fn(&Round) -> f64| {
            let middle = |rounds: &Vec<Round>| shown(median(rounds.iter().map(of)));
            format!("{}, {}", middle(&rounds[0]), middle(&rounds[1]))
        };
        say(&format!(
            "{} | {} | {} | {} | {} | {} ms",
            args.words(*row),
            latencies(&rounds[0]),
            latencies(&rounds[1]),
            both(|of| of.rss_over_limit),
            both(|of| of.hit_ratio),
            both(|of| of.late)
        ));
    }
    Ok(status)
}

/// Steady and disturbed p99.9 and their ratio with its range.
fn latencies(rounds: &[Round]) -> String {
    let ratios = || rounds.iter().map(|of| of.disturbed / of.steady);
    let Some(ratio) = median(ratios()) else {
        return "-".into();
    };
    format!(
        "{}, {} ms, {ratio:.2} [{:.2}-{:.2}]",
        shown(median(rounds.iter().map(|of| of.steady))),
        shown(median(rounds.iter().map(|of| of.disturbed))),
        ratios().fold(f64::INFINITY, f64::min),
        ratios().fold(0.0, f64::max)
    )
}

impl TailArgs {
    fn limit(&self, row: Row) -> u64 {
        if row == Row::Evict {
            self.small
        } else {
            self.memory
        }
    }

    fn words(&self, row: Row) -> String {
        let limit = self.limit(row);
        match row {
            Row::Grow => format!(
                "grow: {} new items at {}/s, -m {limit}",
                self.items, self.sets
            ),
            Row::Evict => format!("evict: new items at {}/s, -m {limit}", self.sets),
            Row::Expire => format!("expire: {} items at once, -m {limit}", self.expiring),
        }
    }

    fn launch(&self, row: Row, is_memcached: bool) -> Result<Launch, BenchError> {
        let mut launch = self.place.corewise(self.limit(row) << 10)?;
        launch.threads = self.threads;
        match &mut launch.program {
            program if is_memcached => *program = Program::memcached(),
            Program::Corewise { engine, .. } => *engine = self.engine,
            _ => {}
        }
        Ok(launch)
    }

    fn round(&self, row: Row, launch: &Launch) -> Result<Round, BenchError> {
        let server = &launch.start()?;
        // 0 if the server does not have it.
        let stat = |name| {
            let of: Option<u64> = statistic(&target(server, Protocol::Memcached), name);
            of.unwrap_or_default()
        };
        let keys = |prefix: &str, keys, key_size| LoadConfig {
            target: target(server, Protocol::Memcached),
            keys,
            key_prefix: prefix.into(),
            key_size,
            pin: self.place.client(),
            ..LoadConfig::default()
        };
        let measured = keys("p:", 100_000, 12);
        let (present, absent) = (keys("b:", 100_000, 16), keys("n:", 1_000_000_000, 16));
        fill(&measured)?;
        fill(&present)?;
        let expiry = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let expiry = expiry + STORING_S + self.seconds;
        if row == Row::Expire {
            self.store_expiring(server, expiry)?;
        }
        let before = self.measure(&measured, &present, self.seconds)?;
        let mut evicted = 0;
        let (other, seconds) = match row {
            Row::Grow => (&absent, (self.items / u64::from(self.sets)).max(1)),
            Row::Evict => {
                // Items of 16 and 32 bytes: more than there is room for. Those that are measured
                // were not used meanwhile, and are to be there in the beginning.
                fill(&keys("f:", self.small << 14, 16))?;
                fill(&measured)?;
                evicted = stat("evictions");
                (&absent, self.seconds)
            }
            Row::Expire => {
                let begin = UNIX_EPOCH + Duration::from_secs(expiry - EARLY_S);
                let waits = begin.duration_since(SystemTime::now());
                thread::sleep(
                    waits.map_err(|_| BenchError::Failed("the items expired too early".into()))?,
                );
                if stat("curr_items") < self.expiring {
                    say("note: not all items were kept until they expired");
                }
                (&present, self.seconds)
            }
        };
        let during = self.measure(&measured, other, seconds)?;
        if row == Row::Evict && stat("evictions") <= evicted {
            say("note: nothing was evicted");
        }
        let rss_kib = Memory::of(server.pid()).rss_kib.unwrap_or_default();
        if row == Row::Evict {
            fill(&present)?;
        }
        let after = self.measure(&measured, &present, self.seconds)?;
        Ok(Round {
            steady: (before.p999 * after.p999).sqrt(),
            disturbed: during.p999,
            rss_over_limit: rss_kib as f64 / launch.memory_kib as f64,
            hit_ratio: during.hit_ratio,
            late: during.late,
        })
    }

    /// Measures beside a load that sets keys.
    fn measure(
        &self,
        measured: &LoadConfig,
        other: &LoadConfig,
        seconds: u64,
    ) -> Result<Tail, BenchError> {
        let open = |config: &LoadConfig, rate, seconds: f64| LoadConfig {
            mode: LoadMode::Open {
                rate: f64::from(rate),
                arrivals: Arrivals::Poisson,
                max_outstanding: 1_024,
            },
            warmup_seconds: 0.0,
            seconds,
            slice_ms: (seconds * 1e3) as u64,
            slice_warm_ms: 0,
            ..config.clone()
        };
        let (measured, longer) = (
            open(measured, self.rate, seconds as f64),
            2.0 * AROUND.as_secs_f64(),
        );
        let sets = LoadConfig {
            set_ratio: 1.0,
            connections: 8,
            ..open(other, self.sets, seconds as f64 + longer)
        };
        let (report, sets) = thread::scope(|scope| {
            let sets = scope.spawn(|| load(&sets));
            thread::sleep(AROUND);
            (load(&measured), sets.join())
        });
        sets.map_err(|_| BenchError::Failed("the other load panicked".into()))??;
        let report = report?;
        let target = of(&report, TargetRole::A)?;
        if target.overload > 0 {
            say(&format!(
                "note: {} requests were not sent, so the tail is too good",
                target.overload
            ));
        }
        let ms = |ns: u64| ns as f64 / 1e6;
        Ok(Tail {
            p999: ms(target.latency.p999_ns),
            hit_ratio: target.hit_rate.unwrap_or_default(),
            late: target.lag.map_or(0.0, |lag| ms(lag.p999_ns)),
        })
    }

    /// Stores the items that expire at once.
    fn store_expiring(&self, server: &Server, at_s: u64) -> Result<(), BenchError> {
        let store = || {
            let stream = TcpStream::connect(server.address)?;
            let mut out = BufWriter::new(&stream);
            for item in 0..self.expiring {
                write!(
                    out,
                    "set x:{item:014} 0 {at_s} 32 noreply\r\n{item:032}\r\n"
                )?;
            }
            write!(out, "mn\r\n")?;
            out.flush()?;
            BufReader::new(&stream).read_line(&mut String::new())
        };
        let failed = |error| BenchError::Failed(format!("the items that are to expire: {error}"));
        store().map(drop).map_err(failed)
    }
}

/// The result of a measurement, latencies in milliseconds.
struct Tail {
    p999: f64,
    hit_ratio: f64,
    late: f64,
}
