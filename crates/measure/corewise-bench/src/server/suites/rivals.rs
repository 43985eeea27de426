//! CPU time per request and tail latency beside memcached and Redis: servers on one CPU, the client
//! on another, in alternating slices (see `corewise load --help`).

use clap::Args;
use corewise_load::config::{Arrivals, FloorOptions, KeyDistribution, LoadMode, Protocol, Target};
use corewise_load::report::MetricRatio;
use corewise_load::{LoadConfig, Report, Spread, TargetRole};
use corewise_measure::number::parse_count;

use super::{PlaceArgs, failures_of, fill, load, of, say_machine, shown, target};
use crate::error::BenchError;
use crate::format::Format;
use crate::server::is_installed;
use crate::server::process::{Engine, Launch, Program, Server};
use crate::text::say;

/// Memory of each server.
const MEMORY_KIB: u64 = 2 << 20;
/// Length of the closed loop that finds memcached's capacity.
const CAPACITY_SECONDS: f64 = 3.0;

/// CPU time per request and tail latency, beside memcached and Redis
///
/// Figures are the server's CPU time in microseconds per request (per key for multiget); open-loop
/// rows have latencies in microseconds. `net` is less the cost of an empty responder that is
/// measured in the same run. At the end come the README's tables, of the uniform rows.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example: corewise bench server rivals --seconds 5 'get32-*'")]
pub(crate) struct RivalsArgs {
    /// Rows, or the beginning of their names and `*` [default: all]
    rows: Vec<String>,
    /// Time under load of each server and row
    #[arg(short, long, value_name = "SECONDS", default_value_t = 10.0)]
    seconds: f64,
    /// Keys, all of which are stored first
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_count)]
    keys: u64,
    /// Connections to each server
    #[arg(long, value_name = "N", default_value_t = 50)]
    connections: u32,
    #[command(flatten)]
    place: PlaceArgs,
    /// Name the rows
    #[arg(short, long)]
    list: bool,
    /// json prints the whole report of each row
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

struct Row {
    name: &'static str,
    text: &'static str,
    rival: Who,
    ratio: &'static str,
    bar: f64,
    pipeline: u32,
    multiget: u32,
    set_ratio: f64,
}

/// A server, started once for all rows.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    /// With one thread on the CPU of servers.
    Corewise,
    /// With some threads, not pinned.
    Free(usize),
    Memcached,
    Redis,
}

/// The name of the row in open loop.
const OPEN: &str = "open";

#[rustfmt::skip]
const ROWS: [Row; 7] = [
    Row { name: "get32", text: "GET, 32 pipelined", rival: Who::Redis, ratio: "cpu_net", bar: 0.6, pipeline: 32, multiget: 1, set_ratio: 0.0 },
    Row { name: "set32", text: "SET, 32 pipelined", rival: Who::Memcached, ratio: "cpu_net", bar: 0.5, pipeline: 32, multiget: 1, set_ratio: 1.0 },
    Row { name: "mget50", text: "multiget of 50, per key", rival: Who::Memcached, ratio: "cpu_net", bar: 0.5, pipeline: 1, multiget: 50, set_ratio: 0.0 },
    Row { name: "get1", text: "GET, one at a time", rival: Who::Memcached, ratio: "cpu_gross", bar: 0.95, pipeline: 1, multiget: 1, set_ratio: 0.0 },
    Row { name: "set1", text: "SET, one at a time", rival: Who::Memcached, ratio: "cpu_gross", bar: 0.95, pipeline: 1, multiget: 1, set_ratio: 1.0 },
    Row { name: "threads2", text: "two threads to one, not pinned, 10 % sets, pipeline 32", rival: Who::Free(1), ratio: "cpu_gross", bar: 1.15, pipeline: 32, multiget: 1, set_ratio: 0.1 },
    Row { name: OPEN, text: "open loop, half of memcached's capacity, 10 % sets", rival: Who::Memcached, ratio: "p99", bar: 1.0, pipeline: 1, multiget: 1, set_ratio: 0.1 },
];

const LAWS: [(&str, KeyDistribution); 2] = [
    ("uniform", KeyDistribution::Uniform),
    ("zipf", KeyDistribution::Zipf(0.99)),
];

pub(super) fn run(args: &RivalsArgs) -> Result<u8, BenchError> {
    let all = ROWS.iter().flat_map(|row| LAWS.map(|law| (row, law)));
    let name = |row: &Row, law: &str| format!("{}-{law}", row.name);
    if args.list {
        all.for_each(|(row, (law, _))| say(&name(row, law)));
        return Ok(0);
    }
    let is_one = |pattern: &String, name: &str| match pattern.strip_suffix('*') {
        Some(head) => name.starts_with(head),
        None => name == pattern,
    };
    let is_none = |pattern: &&String| {
        !all.clone()
            .any(|(row, (law, _))| is_one(pattern, &name(row, law)))
    };
    if let Some(bad) = args.rows.iter().find(is_none) {
        return Err(BenchError::Usage(format!(
            "no row matches `{bad}`; see --list"
        )));
    }
    let mut rivals = Rivals {
        args,
        running: Vec::new(),
        readme: Vec::new(),
        open: Vec::new(),
        is_headed: false,
    };
    let mut status = 0;
    for (row, (law, distribution)) in all {
        let name = name(row, law);
        if args.rows.is_empty() || args.rows.iter().any(|pattern| is_one(pattern, &name)) {
            status = failures_of(&name, rivals.row(row, distribution))?.max(status);
        }
    }
    for (heads, lines) in [
        ("workload | corewise | rival | gross | net", rivals.readme),
        ("latency in µs | corewise | rival | ratio", rivals.open),
    ] {
        if !lines.is_empty() {
            let rule = "---|".repeat(heads.split('|').count());
            say(&format!("\n| {heads} |\n|{rule}\n{}", lines.join("\n")));
        }
    }
    Ok(status)
}

struct Rivals<'a> {
    args: &'a RivalsArgs,
    running: Vec<(Who, Server)>,
    /// Lines of the README's tables: CPU time, and latency in open loop.
    readme: Vec<String>,
    open: Vec<String>,
    is_headed: bool,
}

impl Rivals<'_> {
    /// Starts and fills a server, unless it runs.
    fn target(&mut self, who: Who) -> Result<Target, BenchError> {
        let args = self.args;
        let protocol = [Protocol::Memcached, Protocol::Resp][usize::from(who == Who::Redis)];
        if let Some((_, server)) = self.running.iter().find(|(of, _)| *of == who) {
            return Ok(target(server, protocol));
        }
        let corewise = args.place.corewise(MEMORY_KIB)?;
        let launch = match who {
            Who::Corewise => corewise,
            Who::Free(threads) => Launch {
                threads,
                cpu: None,
                ..corewise
            },
            Who::Memcached => Launch {
                program: Program::memcached(),
                ..corewise
            },
            Who::Redis => Launch {
                program: Program::Rival(Engine::Redis, "redis-server".into()),
                ..corewise
            },
        };
        let server = launch.start()?;
        let target = target(&server, protocol);
        self.running.push((who, server));
        let report = fill(&self.config(target.clone(), KeyDistribution::Uniform))?;
        if of(&report, TargetRole::A)?.misses > 0 {
            say(&format!(
                "note: {} lost keys while it was filled",
                launch.name()
            ));
        }
        Ok(target)
    }

    fn config(&self, target: Target, distribution: KeyDistribution) -> LoadConfig {
        LoadConfig {
            target,
            keys: self.args.keys,
            connections: self.args.connections,
            distribution,
            pin: self.args.place.client(),
            ..LoadConfig::default()
        }
    }

    fn row(&mut self, row: &Row, distribution: KeyDistribution) -> Result<(), BenchError> {
        let text = format!("{}, {distribution}", row.text);
        let program = match row.rival {
            Who::Redis => "redis-server",
            Who::Memcached => "memcached",
            _ => "",
        };
        if !program.is_empty() && !is_installed(program) {
            say(&format!("| {text} | skipped: {program} is not on PATH |"));
            return Ok(());
        }
        let is_free = matches!(row.rival, Who::Free(_));
        let own = self.target(if is_free { Who::Free(2) } else { Who::Corewise })?;
        let rival = self.target(row.rival)?;
        let mut config = self.config(own, distribution);
        let servers = self.args.place.server().filter(|_| !is_free);
        let pin = servers.map(|cpu| cpu.0).into_iter().collect();
        if is_free {
            config.pin.clear();
        }
        config.seconds = self.args.seconds;
        config.vs = Some(rival.clone());
        (config.pipeline, config.multiget, config.set_ratio) =
            (row.pipeline, row.multiget, row.set_ratio);
        if row.name == OPEN {
            let closed = LoadConfig {
                seconds: CAPACITY_SECONDS,
                ..self.config(rival, distribution)
            };
            let report = load(&closed)?;
            let capacity = of(&report, TargetRole::A)?.requests_per_s;
            let rate = (capacity.map_or(0.0, |spread| spread.median) / 2.0).floor();
            config.mode = LoadMode::Open {
                rate,
                arrivals: Arrivals::Poisson,
                max_outstanding: 1_024,
            };
        } else {
            config.floor = Some(FloorOptions { threads: 1, pin });
        }
        let report = load(&config)?;
        if self.args.format == Format::Json {
            say(&report.to_json());
            return Ok(());
        }
        self.head(&report)?;
        self.say(row, &text, distribution, &report)
    }

    fn say(
        &mut self,
        row: &Row,
        text: &str,
        law: KeyDistribution,
        report: &Report,
    ) -> Result<(), BenchError> {
        let (a, b) = (of(report, TargetRole::A)?, of(report, TargetRole::B)?);
        let version = b.identity.version.as_deref().unwrap_or_default();
        let version = version.trim_start_matches("redis ");
        let rival = match row.rival {
            Who::Redis => format!("Redis {version}"),
            Who::Memcached => format!("memcached {version}"),
            _ => "corewise with one thread".into(),
        };
        let ratio_of = |name: &str| report.ratios.iter().find(|ratio| ratio.metric == name);
        let mut lines = Vec::new();
        if let LoadMode::Open { rate, .. } = report.load.config.mode {
            let us = |ns: u64| Some(ns as f64 / 1e3);
            for (name, ours, theirs) in [
                ("p99", a.latency.p99_ns, b.latency.p99_ns),
                ("p999", a.latency.p999_ns, b.latency.p999_ns),
            ] {
                let text = format!("{text}, {rate}/s, {name}");
                lines.push((text, us(ours), us(theirs), None, ratio_of(name)));
            }
        } else {
            let us = |target: &corewise_load::report::TargetReport| {
                let per_key = row.multiget > 1;
                let ns = if per_key {
                    target.cpu_ns_per_key
                } else {
                    target.cpu_ns_per_request
                };
                ns.map(|spread| spread.median / 1e3)
            };
            let floor = us(of(report, TargetRole::Floor)?);
            lines.push((text.to_owned(), us(a), us(b), floor, ratio_of(row.ratio)));
        }
        for (at, (text, ours, theirs, floor, ratio)) in lines.into_iter().enumerate() {
            let (ours, theirs, floor) = (shown(ours), shown(theirs), shown(floor));
            let verdict = verdict(ratio, row.bar);
            say(&format!(
                "| {text} | {ours} | {rival} {theirs} | {floor} | {verdict} |"
            ));
            let is_rival = !matches!(row.rival, Who::Free(_));
            if law == KeyDistribution::Uniform && at == 0 && is_rival {
                let start = format!("| {} | {ours} | {rival}: {theirs}", row.text);
                let median = |name| {
                    let spread = ratio_of(name).and_then(|ratio| ratio.ratio);
                    spread.map_or("-".into(), |of| format!("{:.2}", of.median))
                };
                if row.name == OPEN {
                    self.open.push(format!("{start} | {} |", median("p99")));
                } else {
                    let (gross, net) = (median("cpu_gross"), median("cpu_net"));
                    self.readme.push(format!("{start} | {gross} | {net} |"));
                }
            }
        }
        for target in [a, b].iter().filter(|target| target.misses > 0) {
            let (misses, role) = (target.misses, target.role);
            say(&format!(
                "note: {misses} misses of {role:?} although all keys were stored"
            ));
        }
        let overloads = report.notes.iter().filter(|note| note.contains("OVERLOAD"));
        overloads.for_each(|note| say(&format!("note: {note}")));
        Ok(())
    }

    fn head(&mut self, report: &Report) -> Result<(), BenchError> {
        if std::mem::replace(&mut self.is_headed, true) {
            return Ok(());
        }
        say_machine(&report.machine);
        let source = of(report, TargetRole::A)?.cpu_source;
        let source = source.map_or("-".into(), |source| source.to_string());
        say(&format!(
            "load:    {} connections, {} keys of 12 bytes, all stored first, 32-byte values, 1 client \
             thread, {} s per row and server, CPU time by {source}",
            self.args.connections, self.args.keys, self.args.seconds
        ));
        say(&self.args.place.line());
        say("| bar | corewise | rival | floor | ratio median [95 %] | target | verdict |");
        say("|---|---|---|---|---|---|---|");
        Ok(())
    }
}

fn interval(of: Spread) -> String {
    format!("[{:.3}-{:.3}]", of.low, of.high)
}

/// The ratio, the bar, and whether it holds.
fn verdict(ratio: Option<&MetricRatio>, bar: f64) -> String {
    let Some((of, spread)) = ratio.and_then(|of| Some((of, of.ratio?))) else {
        return format!("not above the floor | <= {bar} | unknown");
    };
    let left_out = match of.rounds_left_out {
        0 => String::new(),
        rounds => format!(" ({rounds} rounds left out)"),
    };
    let (name, word) = (of.metric.trim_start_matches("cpu_"), ["MISSED", "ok"]);
    let word = word[usize::from(spread.median <= bar)];
    format!(
        "{name} {:.3} {}{left_out} | <= {bar} | {word}",
        spread.median,
        interval(spread)
    )
}
