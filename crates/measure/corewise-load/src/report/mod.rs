//! The result of a run, as data and as text.

mod text;

use std::fmt;

use hdrhistogram::Histogram;
use serde::Serialize;
use serde_json::Value;

use crate::config::{LoadConfig, LoadMode, Protocol};
use crate::cpu::CpuSource;
use crate::load_stats::LoadStats;
use crate::measured_target::{MeasuredTarget, TargetRole};
use crate::probe::Identity;
use corewise_measure::machine::{Machine, Memory};
use corewise_measure::stats::Spread;

/// Percentiles of a latency in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Percentiles {
    /// Median.
    pub p50_ns: u64,
    /// 90 %.
    pub p90_ns: u64,
    /// 99 %.
    pub p99_ns: u64,
    /// 99.9 %.
    pub p999_ns: u64,
    /// 99.99 %.
    pub p9999_ns: u64,
    /// Maximum.
    pub max_ns: u64,
    /// Number of requests.
    pub count: u64,
}

impl Percentiles {
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile);
        Self {
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            p9999_ns: at(0.9999),
            max_ns: histogram.max(),
            count: histogram.len(),
        }
    }
}

/// The measured part of one slice.
#[derive(Clone, Debug, Serialize)]
pub struct SliceReport {
    /// The target of the slice.
    pub role: TargetRole,
    /// The round, from 0; every target has one slice in each.
    pub round: u64,
    /// Requests completed.
    pub requests: u64,
    /// Keys read or stored.
    pub keys: u64,
    /// From the first request to the last reply, in nanoseconds.
    pub elapsed_ns: u64,
    /// User and system time of the server, in nanoseconds.
    pub cpu_ns: Option<u64>,
    /// CPU time of the client threads, in nanoseconds.
    pub client_ns: u64,
    /// Requests dropped because too many were outstanding (open loop).
    pub overload: u64,
    /// Latency of the slice.
    pub latency: Percentiles,
}

impl SliceReport {
    pub(crate) fn new(
        role: TargetRole,
        round: u64,
        stats: &LoadStats,
        cpu_ns: Option<u64>,
    ) -> Self {
        Self {
            role,
            round,
            requests: stats.requests,
            keys: stats.keys(),
            elapsed_ns: stats.elapsed_ns,
            cpu_ns,
            client_ns: stats.client_ns,
            overload: stats.overload,
            latency: Percentiles::of(&stats.latency),
        }
    }

    fn cpu_per_request(&self) -> Option<f64> {
        self.cpu_ns.map(|ns| ns as f64 / self.requests as f64)
    }

    fn requests_per_s(&self) -> f64 {
        self.requests as f64 * 1e9 / self.elapsed_ns as f64
    }
}

/// One target over the whole run.
#[derive(Clone, Debug, Serialize)]
pub struct TargetReport {
    /// The role of the target.
    pub role: TargetRole,
    /// The target's address.
    pub address: String,
    /// The protocol.
    pub protocol: String,
    /// What the server reports about itself.
    pub identity: Identity,
    /// The server's process.
    pub pid: Option<u32>,
    /// The source of its CPU time.
    pub cpu_source: Option<CpuSource>,
    /// Share of the server's CPU time in all rounds that was spent in the kernel, sampled by ticks.
    pub kernel_share: Option<f64>,
    /// Time that the server's threads waited for locks in all rounds, if the server reports it.
    pub lock_wait_us: Option<u64>,
    /// Memory of the server at the end.
    pub memory: Memory,
    /// Requests in the measured parts of slices.
    pub requests: u64,
    /// Sets among them.
    pub sets: u64,
    /// Keys that were found.
    pub hits: u64,
    /// Keys that were not found.
    pub misses: u64,
    /// Hits divided by keys read; absent without gets.
    pub hit_rate: Option<f64>,
    /// Requests dropped because too many were outstanding (open loop).
    pub overload: u64,
    /// Requests per second, by slice.
    pub requests_per_s: Option<Spread>,
    /// Keys per second, by slice.
    pub keys_per_s: Option<Spread>,
    /// Server CPU time per request in nanoseconds, by slice.
    pub cpu_ns_per_request: Option<Spread>,
    /// CPU time per request, less the empty responder's in the same round.
    pub net_ns_per_request: Option<Spread>,
    /// Server CPU time per key in nanoseconds, by slice.
    pub cpu_ns_per_key: Option<Spread>,
    /// Client CPU time per request in nanoseconds, by slice.
    pub client_ns_per_request: Option<Spread>,
    /// Latencies of all measured slices.
    pub latency: Percentiles,
    /// Open loop: how late requests left the client.
    pub lag: Option<Percentiles>,
}

/// A figure of A divided by the same figure of B, by round.
#[derive(Clone, Debug, Serialize)]
pub struct MetricRatio {
    /// The figure.
    pub metric: &'static str,
    /// The quotient; absent if no round has one.
    pub ratio: Option<Spread>,
    /// Rounds without a quotient, because a net figure was not above zero.
    pub rounds_left_out: usize,
}

/// The load: what was configured, and what follows from it.
#[derive(Clone, Debug, Serialize)]
pub struct LoadSummary {
    /// The configuration. The targets are among those of the report.
    #[serde(flatten)]
    pub config: LoadConfig,
    /// Rounds.
    pub rounds: u64,
    /// The meaning of the latencies.
    pub latency_is: String,
}

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The machine and the date.
    pub machine: Machine,
    /// What was sent.
    pub load: LoadSummary,
    /// The result of each target.
    pub targets: Vec<TargetReport>,
    /// Ratios of A to B.
    pub ratios: Vec<MetricRatio>,
    /// What a reader must know before using the numbers.
    pub notes: Vec<String>,
    /// All slices, in the order in which they ran.
    pub slices: Vec<SliceReport>,
}

impl Report {
    pub(crate) fn new(
        config: &LoadConfig,
        machine: Machine,
        measured_targets: &[MeasuredTarget],
        slices: Vec<SliceReport>,
    ) -> Self {
        let rounds = Rounds::new(config.rounds(), &slices);
        let targets: Vec<_> = measured_targets
            .iter()
            .map(|measured| TargetReport::new(config, measured, &slices, &rounds))
            .collect();
        let ratios = if config.vs.is_some() {
            rounds.ratios(config)
        } else {
            Vec::new()
        };
        let notes = notes(config, measured_targets, &targets);
        Self {
            machine,
            load: LoadSummary {
                config: config.clone(),
                rounds: config.rounds(),
                latency_is: latency_meaning(config),
            },
            targets,
            ratios,
            notes,
            slices,
        }
    }

    /// One `path value` per line, for scripts; slices are left out.
    ///
    /// Paths name targets and ratios instead of numbering them: `targets.a.hit_rate 1`,
    /// `ratios.cpu_net.ratio.median 0.5`.
    pub fn to_flat(&self) -> String {
        let mut out = String::new();
        flatten("machine", &to_value(&self.machine), &mut out);
        flatten("load", &to_value(&self.load), &mut out);
        for target in &self.targets {
            let role = to_value(&target.role);
            let path = format!("targets.{}", role.as_str().unwrap_or("unknown"));
            flatten(&path, &to_value(target), &mut out);
        }
        for ratio in &self.ratios {
            flatten(
                &format!("ratios.{}", ratio.metric),
                &to_value(ratio),
                &mut out,
            );
        }
        flatten("notes", &to_value(&self.notes), &mut out);
        out
    }

    /// The report as JSON.
    pub fn to_json(&self) -> String {
        format!("{:#}", to_value(self))
    }
}

pub(crate) fn to_value(value: &impl Serialize) -> Value {
    // Cannot fail: maps have string keys, and every type can be serialised.
    serde_json::to_value(value).unwrap_or(Value::Null)
}

pub(crate) fn flatten(path: &str, value: &Value, out: &mut String) {
    match value {
        Value::Null => {}
        Value::Object(map) => {
            map.iter()
                .for_each(|(name, value)| flatten(&format!("{path}.{name}"), value, out));
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(i, value)| flatten(&format!("{path}.{i}"), value, out)),
        Value::String(text) => *out += &format!("{path} {text}\n"),
        other => *out += &format!("{path} {other}\n"),
    }
}

/// Slices of the four roles, by round.
struct Rounds<'a> {
    by_role: [Vec<Option<&'a SliceReport>>; 4],
}

fn index(role: TargetRole) -> usize {
    role as usize
}

impl<'a> Rounds<'a> {
    fn new(rounds: u64, slices: &'a [SliceReport]) -> Self {
        let mut by_role = [(); 4].map(|()| vec![None; rounds as usize]);
        for slice in slices {
            by_role[index(slice.role)][slice.round as usize] = Some(slice);
        }
        Self { by_role }
    }

    fn figure(
        &self,
        role: TargetRole,
        round: usize,
        of: impl Fn(&SliceReport) -> Option<f64>,
    ) -> Option<f64> {
        self.by_role[index(role)]
            .get(round)
            .copied()
            .flatten()
            .and_then(of)
    }

    fn cpu(&self, role: TargetRole, round: usize) -> Option<f64> {
        self.figure(role, round, SliceReport::cpu_per_request)
    }

    /// CPU time per request, less the floor's in the same round.
    fn net(&self, role: TargetRole, round: usize) -> Option<f64> {
        let own = if role == TargetRole::B {
            self.cpu(TargetRole::FloorB, round)
        } else {
            None
        };
        let floor = own.or_else(|| self.cpu(TargetRole::Floor, round))?;
        Some(self.cpu(role, round)? - floor)
    }

    fn rounds(&self) -> std::ops::Range<usize> {
        0..self.by_role[0].len()
    }

    fn ratios(&self, config: &LoadConfig) -> Vec<MetricRatio> {
        let mut ratios = vec![self.ratio("cpu_gross", |role, round| self.cpu(role, round))];
        if config.floor.is_some() {
            ratios.push(self.ratio("cpu_net", |role, round| self.net(role, round)));
        }
        let mut add = |name, of: fn(&SliceReport) -> f64| {
            let by = |role, round| self.figure(role, round, |slice| Some(of(slice)));
            ratios.push(self.ratio(name, by));
        };
        add("requests_per_s", SliceReport::requests_per_s);
        add("p50", |slice| slice.latency.p50_ns as f64);
        add("p99", |slice| slice.latency.p99_ns as f64);
        add("p999", |slice| slice.latency.p999_ns as f64);
        ratios
    }

    fn ratio(
        &self,
        metric: &'static str,
        of: impl Fn(TargetRole, usize) -> Option<f64>,
    ) -> MetricRatio {
        let mut rounds_left_out = 0;
        let mut quotients = Vec::new();
        for round in self.rounds() {
            match (of(TargetRole::A, round), of(TargetRole::B, round)) {
                (Some(a), Some(b)) if b > 0.0 && a > 0.0 => quotients.push(a / b),
                (Some(_), Some(_)) => rounds_left_out += 1,
                _ => {}
            }
        }
        MetricRatio {
            metric,
            ratio: Spread::of(quotients),
            rounds_left_out,
        }
    }
}

impl TargetReport {
    fn new(
        config: &LoadConfig,
        measured: &MeasuredTarget,
        slices: &[SliceReport],
        rounds: &Rounds<'_>,
    ) -> Self {
        let mine = || slices.iter().filter(|slice| slice.role == measured.role);
        let total = &measured.total;
        let asked = total.hits + total.misses;
        let net = rounds
            .rounds()
            .filter_map(|round| rounds.net(measured.role, round));
        let is_server = matches!(measured.role, TargetRole::A | TargetRole::B);
        let open = matches!(config.mode, LoadMode::Open { .. });
        Self {
            role: measured.role,
            address: measured.target.address.to_string(),
            protocol: measured.target.protocol.to_string(),
            identity: measured.identity.clone(),
            pid: measured.target.pid,
            cpu_source: measured.meter.map(|meter| meter.source()),
            kernel_share: measured.kernel_share,
            lock_wait_us: measured.lock_wait_us,
            memory: measured.memory,
            requests: total.requests,
            sets: total.sets,
            hits: total.hits,
            misses: total.misses,
            hit_rate: (asked > 0).then(|| total.hits as f64 / asked as f64),
            overload: total.overload,
            requests_per_s: Spread::of(mine().map(SliceReport::requests_per_s)),
            keys_per_s: Spread::of(mine().map(|s| s.keys as f64 * 1e9 / s.elapsed_ns as f64)),
            cpu_ns_per_request: Spread::of(mine().filter_map(SliceReport::cpu_per_request)),
            net_ns_per_request: if is_server { Spread::of(net) } else { None },
            cpu_ns_per_key: Spread::of(
                mine().filter_map(|s| s.cpu_ns.map(|ns| ns as f64 / s.keys as f64)),
            ),
            client_ns_per_request: Spread::of(
                mine().map(|s| s.client_ns as f64 / s.requests as f64),
            ),
            latency: Percentiles::of(&total.latency),
            lag: open.then(|| Percentiles::of(&total.lag)),
        }
    }
}

/// The meaning of latencies in the report.
fn latency_meaning(config: &LoadConfig) -> String {
    match config.mode {
        LoadMode::Closed if config.pipeline == 1 => "service time of a request".into(),
        LoadMode::Closed => format!("service time within a batch of {}", config.pipeline),
        LoadMode::Open { .. } => "from the intended start".into(),
    }
}

fn notes(
    config: &LoadConfig,
    measured_targets: &[MeasuredTarget],
    targets: &[TargetReport],
) -> Vec<String> {
    let mut notes: Vec<String> = measured_targets
        .iter()
        .flat_map(|measured| measured.notes.clone())
        .collect();
    if config.has_protocol(Protocol::Cphash) {
        notes.push(
            "keys of the cphash protocol are hashes of 60 bits, whatever the key size".into(),
        );
        notes.push(
            "an INSERT has no reply: its latency ends with the next LOOKUP's, and a batch that \
             would end with an INSERT has one more LOOKUP, so fewer requests are sets than asked for"
                .into(),
        );
    }
    for target in targets {
        if target.overload > 0 {
            let limit = match config.mode {
                LoadMode::Open {
                    max_outstanding, ..
                } => max_outstanding,
                LoadMode::Closed => 0,
            };
            notes.push(format!(
                "OVERLOAD: {:?} left {} requests unsent because {limit} were outstanding on \
                 their connection; its percentiles are too good",
                target.role, target.overload
            ));
        }
        if config.prefill && target.misses > 0 {
            notes.push(format!(
                "{:?} was filled with every key and missed {} times: it evicted or lost keys",
                target.role, target.misses
            ));
        }
        if target
            .net_ns_per_request
            .is_some_and(|net| net.median <= 0.0)
        {
            notes.push(format!(
                "{:?} cost no more than the empty responder: its net figures mean nothing",
                target.role
            ));
        }
        if target.cpu_source == Some(CpuSource::Ticks) {
            notes.push(format!(
                "{:?}: CPU time in clock ticks; use longer slices",
                target.role
            ));
        }
    }
    notes
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::write(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(role: TargetRole, round: u64, cpu_ns: u64) -> SliceReport {
        let mut stats = LoadStats::new();
        (stats.requests, stats.elapsed_ns) = (10, 1_000);
        SliceReport::new(role, round, &stats, Some(cpu_ns))
    }

    #[test]
    fn net_ratios_subtract_the_floor_of_the_same_round() {
        let mut slices = Vec::new();
        for (round, floor) in [(0, 10), (1, 30), (2, 90)] {
            slices.push(slice(TargetRole::A, round, 20 + floor));
            slices.push(slice(
                TargetRole::B,
                round,
                if round == 2 { 80 } else { 40 + floor },
            ));
            slices.push(slice(TargetRole::Floor, round, floor));
        }
        let rounds = Rounds::new(3, &slices);
        let net = rounds.ratio("cpu_net", |role, round| rounds.net(role, round));
        let spread = net.ratio.expect("two rounds");
        assert_eq!(
            (spread.median, spread.rounds, net.rounds_left_out),
            (0.5, 2, 1)
        );
    }

    #[test]
    fn b_is_measured_against_its_own_floor_if_there_is_one() {
        let slices = [
            slice(TargetRole::A, 0, 30),
            slice(TargetRole::B, 0, 60),
            slice(TargetRole::Floor, 0, 10),
            slice(TargetRole::FloorB, 0, 20),
        ];
        let rounds = Rounds::new(1, &slices);
        assert_eq!(
            (rounds.net(TargetRole::A, 0), rounds.net(TargetRole::B, 0)),
            (Some(2.0), Some(4.0))
        );
    }

    #[test]
    fn flat_lines_name_every_leaf() {
        let mut out = String::new();
        let value = serde_json::json!({"a": {"b": 1.5, "c": null}, "d": ["x y"]});
        flatten("top", &value, &mut out);
        assert_eq!(out, "top.a.b 1.5\ntop.d.0 x y\n");
    }
}
