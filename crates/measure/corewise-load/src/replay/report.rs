//! The result of a replay, as data and as text.

use std::fmt;

use serde::Serialize;

use super::TENTHS;
use crate::config::{ReplayConfig, ValueSize};
use crate::load_stats::LoadStats;
use crate::probe::Identity;
use crate::report::{Percentiles, flatten, to_value};
use corewise_measure::machine::{Machine, Memory};

/// Tenths of the trace that warm up the cache.
const WARM: usize = 2;

/// What the server still held at the end.
#[derive(Clone, Debug, Serialize)]
pub struct LiveBytes {
    /// Keys that had been stored, each read once.
    pub asked: u64,
    /// Keys that were found.
    pub found: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// The result of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport {
    /// The machine and the date.
    pub machine: Machine,
    /// The server's address.
    pub address: String,
    /// The protocol.
    pub protocol: String,
    /// What the server reports about itself.
    pub identity: Identity,
    /// Memory of the server at the end of the trace, if its process is known.
    pub memory: Memory,
    /// The model of the trace.
    pub trace: String,
    /// Number of keys of the trace.
    pub keys: u64,
    /// Requests replayed.
    pub requests: u64,
    /// The requested share of overwrites.
    pub overwrites: f64,
    /// Seed.
    pub seed: u64,
    /// Value sizes, if they differ from those of the trace.
    pub value_bytes: Option<String>,
    /// Requested rate in requests per second; absent if the trace ran as fast as the server
    /// answered.
    pub rate_per_s: Option<u64>,
    /// Connections.
    pub connections: u32,
    /// Maximum number of requests in a batch.
    pub pipeline: u32,
    /// From the first request to the last reply, in nanoseconds.
    pub elapsed_ns: u64,
    /// Requests of the trace per second.
    pub requests_per_s: f64,
    /// Gets that hit.
    pub hits: u64,
    /// Gets that missed.
    pub misses: u64,
    /// Hits divided by gets; absent without gets.
    pub hit_ratio: Option<f64>,
    /// The hit ratio after the first two tenths of the trace.
    pub warm_hit_ratio: Option<f64>,
    /// The hit ratio of each tenth of the trace.
    pub tenths: Vec<Option<f64>>,
    /// Sets, after misses and as overwrites, including refused ones.
    pub stores: u64,
    /// Sets for which the server had no memory.
    pub refused: u64,
    /// Bytes of keys and values of all sets.
    pub stored_bytes: u64,
    /// Latency: from the virtual time if requests wait for it, otherwise from sending.
    pub latency: Percentiles,
    /// How late requests were sent, if they wait for their virtual times.
    pub lag: Option<Percentiles>,
    /// What the server still held at the end, if requested.
    pub live: Option<LiveBytes>,
}

fn hit_ratio<'a>(all_stats: impl IntoIterator<Item = &'a LoadStats>) -> Option<f64> {
    let (mut hits, mut gets) = (0, 0);
    for stats in all_stats {
        hits += stats.hits;
        gets += stats.hits + stats.misses;
    }
    (gets > 0).then(|| hits as f64 / gets as f64)
}

fn shown(ratio: Option<f64>) -> String {
    ratio.map_or("-".into(), |ratio| format!("{ratio:.4}"))
}

/// The progress line after each tenth.
pub(super) fn progress(tenth: u64, all_stats: &[LoadStats]) -> String {
    format!(
        "{tenth} of {TENTHS}: hit ratio {}",
        shown(hit_ratio(all_stats.last()))
    )
}

impl ReplayReport {
    pub(super) fn new(
        config: &ReplayConfig,
        machine: Machine,
        identity: Identity,
        memory: Memory,
        tenths: &[LoadStats],
        (stores, stored_bytes): (u64, u64),
        live: Option<&LoadStats>,
    ) -> Self {
        let (trace, mut all) = (&config.trace, LoadStats::new());
        tenths.iter().for_each(|stats| all.merge(stats));
        let elapsed_ns = tenths.iter().map(|stats| stats.elapsed_ns).sum::<u64>();
        Self {
            machine,
            address: config.target.address.to_string(),
            protocol: config.target.protocol.to_string(),
            identity,
            memory,
            trace: trace.model.to_string(),
            keys: trace.keys,
            requests: trace.requests,
            overwrites: trace.overwrites,
            seed: trace.seed,
            value_bytes: trace
                .sizes
                .map(|(min, max)| ValueSize { min, max }.to_string()),
            rate_per_s: config.paced.then_some(trace.rate_per_s),
            connections: config.connections,
            pipeline: config.pipeline,
            elapsed_ns,
            requests_per_s: trace.requests as f64 * 1e9 / elapsed_ns as f64,
            hits: all.hits,
            misses: all.misses,
            hit_ratio: hit_ratio([&all]),
            warm_hit_ratio: hit_ratio(&tenths[WARM.min(tenths.len())..]),
            tenths: tenths.iter().map(|stats| hit_ratio([stats])).collect(),
            stores,
            refused: all.refused,
            stored_bytes,
            latency: Percentiles::of(&all.latency),
            lag: config.paced.then(|| Percentiles::of(&all.lag)),
            live: live.map(|stats| LiveBytes {
                asked: stats.hits + stats.misses,
                found: stats.hits,
                bytes: stats.hit_bytes + stats.hits * config.key_size as u64,
            }),
        }
    }

    /// One `path value` per line, for scripts: `replay.hit_ratio 0.9`.
    pub fn to_flat(&self) -> String {
        let mut out = String::new();
        flatten("replay", &to_value(self), &mut out);
        out
    }

    /// The report as JSON.
    pub fn to_json(&self) -> String {
        format!("{:#}", to_value(self))
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn us(percentiles: &Percentiles) -> String {
    let us = |ns: u64| ns as f64 / 1000.0;
    format!(
        "p50 {:.1}, p99 {:.1}, p99.9 {:.1}, longest {:.1} us",
        us(percentiles.p50_ns),
        us(percentiles.p99_ns),
        us(percentiles.p999_ns),
        us(percentiles.max_ns)
    )
}

impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let m = &self.machine;
        writeln!(
            f,
            "machine  {}, {} CPUs, Linux {}, {}",
            m.cpu, m.cpus, m.kernel, m.date
        )?;
        let version = self
            .identity
            .version
            .as_deref()
            .unwrap_or("version unknown");
        write!(f, "server   {} {}, {version}", self.address, self.protocol)?;
        match self.memory.rss_kib {
            Some(kib) => writeln!(f, ", {} MiB resident", kib >> 10)?,
            None => writeln!(f)?,
        }
        writeln!(
            f,
            "trace    {}, {} keys, {} requests, {:.1} % overwrites; values {}; seed {}",
            self.trace,
            self.keys,
            self.requests,
            self.overwrites * 100.0,
            self.value_bytes.as_deref().unwrap_or("of the trace"),
            self.seed
        )?;
        let pace = match self.rate_per_s {
            Some(rate) => format!("{rate} requests/s"),
            None => "as fast as it answers".into(),
        };
        writeln!(
            f,
            "load     {pace}, {} connections, pipeline {}; took {:.1} s, {:.0} requests/s",
            self.connections,
            self.pipeline,
            self.elapsed_ns as f64 / 1e9,
            self.requests_per_s
        )?;
        self.outcome(f)
    }
}

impl ReplayReport {
    /// Prints what the replay found.
    fn outcome(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths: Vec<_> = self.tenths.iter().map(|&ratio| shown(ratio)).collect();
        writeln!(f)?;
        writeln!(f, "gets     {} hits, {} misses", self.hits, self.misses)?;
        writeln!(
            f,
            "hits     {} of all gets, {} after the first two tenths",
            shown(self.hit_ratio),
            shown(self.warm_hit_ratio)
        )?;
        writeln!(f, "tenths   {}", tenths.join(" "))?;
        writeln!(
            f,
            "sets     {}, {} of keys and values, {} refused for lack of memory",
            self.stores,
            mib(self.stored_bytes),
            self.refused
        )?;
        writeln!(f, "latency  {}", us(&self.latency))?;
        if let Some(lag) = &self.lag {
            writeln!(f, "late     {}", us(lag))?;
        }
        if let Some(live) = &self.live {
            writeln!(
                f,
                "live     {} of {} keys that were stored, {} of keys and values",
                live.found,
                live.asked,
                mib(live.bytes)
            )?;
        }
        Ok(())
    }
}
