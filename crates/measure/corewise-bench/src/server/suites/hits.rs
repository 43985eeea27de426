//! Hit ratios beside memcached's, of replayed traces: get, and on a miss set.

use std::path::PathBuf;

use clap::Args;
use corewise_load::config::{ReplayConfig, ValueSize};
use corewise_load::{ReplayReport, replay};
use corewise_measure::draw::mean_of_spread;
use corewise_measure::number::parse_count;
use corewise_measure::trace::{TraceConfig, TraceModel};

use super::{failed, failures_of, given_or, say_machine, target};
use crate::error::BenchError;
use crate::server::is_installed;
use crate::server::process::{Engine, Launch, Program};
use crate::text::say;

const TRACES: [&str; 9] = [
    "zipf:0.8",
    "zipf:1",
    "zipf:1.2",
    "zipf-scan",
    "short-ttl",
    "size-shift",
    "correlated",
    "correlated:large",
    "drift",
];
/// What corewise takes beyond its --memory, in KiB, as long as no run has shown it.
const BEYOND_KIB: u64 = 8_192;
/// With --quick, the most requests of a cell, and the most bytes of values.
const QUICK: (u64, u64) = (1_500_000, 1 << 30);

/// Hit ratios beside memcached's
///
/// For each trace and size memcached runs with -m SIZE; corewise gets the --memory with which its
/// resident set at the end of the trace is not larger than memcached's, which trial runs find.
/// Sizes are in MiB, hits the hit ratio after the first fifth of the trace, misses corewise's miss
/// ratio divided by memcached's; at the end comes their geometric mean.
///
/// With --sweep both run with the same -m, and each row is a cell of limit, exponent and value
/// size: zipf, three times the limit of keys and values, four requests for each key.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    corewise bench server hits -m 64 zipf:1 size-shift\n  \
    corewise bench server hits --sweep --quick\n  \
    corewise bench server hits --sweep -m 64 --exponents 1 --values 8000")]
pub(crate) struct HitsArgs {
    /// Traces of `corewise load --help` [default: all but turnover]
    traces: Vec<TraceModel>,
    /// memcached's limits in MB [default: 64,256; of a sweep 16,64,256,1024, or with --quick 16,64]
    #[arg(short = 'm', long, value_delimiter = ',', value_name = "LIST")]
    sizes: Vec<u64>,
    /// corewise's engine [default: the server's]
    #[arg(long, value_enum)]
    engine: Option<Engine>,
    /// The corewise to start as server [default: this one]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Server threads of both
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Keys of the population per MB, of which an MB holds about a sixth
    #[arg(long, value_name = "N", default_value = "16k", value_parser = parse_count)]
    keys: u64,
    /// Requests per key
    #[arg(long, value_name = "N", default_value_t = 5)]
    requests: u64,
    /// Seeds, a row for each; a sweep has the first
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "1")]
    seeds: Vec<u64>,
    /// Requests per second of short-ttl
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    rate: u64,
    /// Most runs of corewise for a row
    #[arg(long, value_name = "N", default_value_t = 3)]
    tries: usize,
    /// Cells of limit, exponent and value size at equal -m
    #[arg(long)]
    sweep: bool,
    /// Sweep: fewer limits and exponents, at most 1.5 million requests and 1 GiB of values a cell;
    /// leaves out cells with more keys
    #[arg(long)]
    quick: bool,
    /// Sweep: exponents of zipf [default: 0.8,1,1.2; with --quick 0.8,1]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    exponents: Vec<f64>,
    /// Sweep: value sizes, or MIN-MAX for log-uniform ones
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    #[arg(default_value = "50,200,2000,8000,30000,200000,50-200000")]
    values: Vec<ValueSize>,
}

pub(super) fn run(args: &HitsArgs) -> Result<u8, BenchError> {
    if !is_installed("memcached") {
        say("SKIPPED: memcached is not on PATH, so there is nothing to compare with");
        return Ok(0);
    }
    let mut hits = Hits {
        args,
        path: super::super::program(args.program.as_deref())?,
        is_headed: false,
        beyond_kib: BEYOND_KIB,
        misses: Vec::new(),
    };
    let status = if args.sweep {
        hits.sweep()?
    } else {
        hits.traces()?
    };
    if !hits.misses.is_empty() {
        let worst = hits.misses.iter().copied().fold(0.0, f64::max);
        let above = hits.misses.iter().filter(|misses| **misses > 1.0).count();
        let mean =
            hits.misses.iter().map(|misses| misses.ln()).sum::<f64>() / hits.misses.len() as f64;
        say(&format!(
            "{above} of {} rows with more misses; geometric mean of misses {:.3}; the worst {worst:.3}",
            hits.misses.len(),
            mean.exp()
        ));
    }
    Ok(status)
}

struct Hits<'a> {
    args: &'a HitsArgs,
    path: PathBuf,
    is_headed: bool,
    beyond_kib: u64,
    /// Corewise's miss ratio over memcached's, by row.
    misses: Vec<f64>,
}

impl Hits<'_> {
    fn run(
        &self,
        program: Program,
        kib: u64,
        config: &ReplayConfig,
    ) -> Result<ReplayReport, BenchError> {
        let server = Launch::new(program, self.args.threads, kib).start()?;
        let target = target(&server, config.target.protocol);
        let config = ReplayConfig {
            target,
            ..config.clone()
        };
        replay(&config, &mut |_| {}).map_err(failed)
    }

    fn ours(&self) -> Program {
        let (path, engine) = (self.path.clone(), self.args.engine);
        Program::Corewise { path, engine }
    }

    fn traces(&mut self) -> Result<u8, BenchError> {
        let args = self.args;
        let all = TRACES.map(|name| name.parse().expect("a trace"));
        let mut status = 0;
        for &megabytes in given_or(&args.sizes, &[64, 256]) {
            for &model in given_or(&args.traces, &all) {
                for &seed in &args.seeds {
                    let name = format!("{model}, seed {seed}");
                    let done = self.trace(&name, model, megabytes, seed);
                    status = failures_of(&name, done)?.max(status);
                }
            }
        }
        Ok(status)
    }

    fn trace(
        &mut self,
        name: &str,
        model: TraceModel,
        megabytes: u64,
        seed: u64,
    ) -> Result<(), BenchError> {
        let keys = self.args.keys * megabytes;
        let trace = TraceConfig {
            model,
            keys,
            requests: keys * self.args.requests,
            rate_per_s: self.args.rate,
            seed,
            ..TraceConfig::default()
        };
        let config = ReplayConfig {
            trace,
            paced: matches!(model, TraceModel::ShortTtl(_)),
            connections: 8,
            pipeline: 16,
            ..ReplayConfig::default()
        };
        let theirs = self.run(Program::memcached(), megabytes << 10, &config)?;
        let aim = rss(&theirs);
        let (mut best, mut kib) = (None, aim.saturating_sub(self.beyond_kib));
        for _ in 0..self.args.tries {
            kib = kib.max(1_024);
            let ours = self.run(self.ours(), kib, &config)?;
            let resident = rss(&ours);
            self.beyond_kib = resident.saturating_sub(kib);
            if resident <= aim && best.as_ref().is_none_or(|(_, of)| rss(of) < resident) {
                best = Some((kib, ours));
            }
            // As large as memcached to 2 %: good. Else aim at 1 % less, a step at a time.
            if resident <= aim && resident * 100 >= aim * 98 {
                break;
            }
            kib = (kib + aim * 99 / 100).saturating_sub(resident);
        }
        self.head(
            &theirs,
            &format!(
                "{} keys per MB, {} requests per key",
                self.args.keys, self.args.requests
            ),
            "trace | -m | memcached rss, hits | corewise --memory, rss, hits, rss/memory | misses",
        );
        let Some((kib, ours)) = best else {
            let what = format!("no --memory found for {} MiB", aim >> 10);
            return Err(BenchError::Failed(what));
        };
        let mib = |kib: u64| kib as f64 / 1024.0;
        let misses = self.misses_of(&ours, &theirs);
        say(&format!(
            "{name} | {megabytes} | {:.1}, {:.4} | {:.1}, {:.1}, {:.4}, {:.3} | {misses:.3}",
            mib(aim),
            hit_ratio(&theirs),
            mib(kib),
            mib(rss(&ours)),
            hit_ratio(&ours),
            rss(&ours) as f64 / kib as f64
        ));
        say_refusals(&ours, &theirs);
        Ok(())
    }

    fn sweep(&mut self) -> Result<u8, BenchError> {
        let (args, mut status) = (self.args, 0);
        let (limits, exponents) = match args.quick {
            true => (&[16, 64][..], &[0.8, 1.0][..]),
            false => (&[16, 64, 256, 1024][..], &[0.8, 1.0, 1.2][..]),
        };
        for &megabytes in given_or(&args.sizes, limits) {
            for &exponent in given_or(&args.exponents, exponents) {
                for &values in &args.values {
                    let name = format!("m{megabytes} zipf:{exponent} {values}");
                    let done = self.cell(&name, megabytes, exponent, values);
                    status = failures_of(&name, done)?.max(status);
                }
            }
        }
        Ok(status)
    }

    /// Measures one cell at equal limits.
    fn cell(
        &mut self,
        name: &str,
        megabytes: u64,
        exponent: f64,
        values: ValueSize,
    ) -> Result<(), BenchError> {
        let item = mean_of_spread(values.min, values.max) as u64 + 12;
        let keys = 3 * (megabytes << 20) / item;
        let mut requests = (4 * keys).max(200_000);
        if self.args.quick {
            requests = requests.min(QUICK.0).min(QUICK.1 / item);
            // The cache would not fill.
            if requests <= keys {
                return Ok(());
            }
        }
        let trace = TraceConfig {
            model: TraceModel::Zipf(exponent),
            keys,
            requests,
            overwrites: 0.0,
            seed: self.args.seeds[0],
            sizes: Some((values.min, values.max)),
            ..TraceConfig::default()
        };
        let config = ReplayConfig {
            trace,
            connections: 4,
            // Where there are few keys, few requests overtake each other.
            pipeline: (keys / 4_000).clamp(1, 16) as u32,
            ..ReplayConfig::default()
        };
        let ours = self.run(self.ours(), megabytes << 10, &config)?;
        let theirs = self.run(Program::memcached(), megabytes << 10, &config)?;
        self.head(
            &theirs,
            "the same -m",
            "cell | corewise's hits | memcached's hits | misses | verdict",
        );
        let misses = self.misses_of(&ours, &theirs);
        let (a, b) = (hit_ratio(&ours), hit_ratio(&theirs));
        let word = if a >= b { "ok" } else { "MISSED" };
        say(&format!("{name} | {a:.4} | {b:.4} | {misses:.3} | {word}"));
        say_refusals(&ours, &theirs);
        Ok(())
    }

    fn misses_of(&mut self, ours: &ReplayReport, theirs: &ReplayReport) -> f64 {
        let of_theirs = 1.0 - hit_ratio(theirs);
        let misses = if of_theirs > 0.0 {
            (1.0 - hit_ratio(ours)) / of_theirs
        } else {
            1.0
        };
        self.misses.push(misses);
        misses
    }

    fn head(&mut self, theirs: &ReplayReport, what: &str, heads: &str) {
        if !std::mem::replace(&mut self.is_headed, true) {
            say_machine(&theirs.machine);
            let version = theirs.identity.version.as_deref().unwrap_or("unknown");
            let engine = self
                .args
                .engine
                .map_or("default".into(), |engine| engine.to_string());
            let threads = self.args.threads;
            say(&format!(
                "servers: memcached {version}, corewise engine {engine}; {threads} thread(s) each, {what}"
            ));
            say(heads);
        }
    }
}

/// The resident set in KiB.
fn rss(report: &ReplayReport) -> u64 {
    report.memory.rss_kib.unwrap_or_default()
}

fn hit_ratio(report: &ReplayReport) -> f64 {
    report.warm_hit_ratio.unwrap_or_default()
}

fn say_refusals(ours: &ReplayReport, theirs: &ReplayReport) {
    for (name, report) in [("corewise", ours), ("memcached", theirs)] {
        if report.refused > 0 {
            say(&format!(
                "  note: {name} refused {} sets for lack of memory",
                report.refused
            ));
        }
    }
}
