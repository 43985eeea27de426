//! What a replay found, as data and as text.

use std::fmt;

use serde::Serialize;

use super::{ReplayConfig, TENTHS};
use crate::config::ValueSize;
use crate::probe::Identity;
use crate::report::{Percentiles, flatten, to_value};
use crate::tally::Tally;
use corewise_measure::machine::{Machine, Memory};

/// Tenths of the trace that warm the cache up.
const WARM: usize = 2;

/// What a server still held at the end.
#[derive(Clone, Debug, Serialize)]
pub struct LiveBytes {
    /// Keys that had been stored, each asked for once.
    pub asked: u64,
    /// Keys that were there.
    pub found: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// The result of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport {
    /// Where and when.
    pub machine: Machine,
    /// The server's address.
    pub address: String,
    /// What was spoken.
    pub protocol: String,
    /// What it says about itself.
    pub identity: Identity,
    /// Its memory at the end of the trace, if its process is known.
    pub memory: Memory,
    /// The law of the trace.
    pub trace: String,
    /// Its population.
    pub keys: u64,
    /// Requests replayed.
    pub requests: u64,
    /// The share of overwrites asked for.
    pub overwrites: f64,
    /// Seed.
    pub seed: u64,
    /// Sizes of values, if not those of the law.
    pub value_bytes: Option<String>,
    /// Requests a second asked for; absent if the trace ran as fast as the server answered.
    pub rate_per_s: Option<u64>,
    /// Connections.
    pub connections: u32,
    /// Most requests in a batch.
    pub pipeline: u32,
    /// From the first request to the last reply, in nanoseconds.
    pub elapsed_ns: u64,
    /// Requests of the trace in a second.
    pub requests_per_s: f64,
    /// Gets that hit.
    pub hits: u64,
    /// Gets that missed.
    pub misses: u64,
    /// Hits among gets; absent without gets.
    pub hit_ratio: Option<f64>,
    /// The same after the first two tenths of the trace.
    pub warm_hit_ratio: Option<f64>,
    /// The same by tenth of the trace.
    pub tenths: Vec<Option<f64>>,
    /// Sets, after misses and as overwrites, refused ones included.
    pub stores: u64,
    /// Sets the server had no memory for.
    pub refused: u64,
    /// Bytes of keys and values of all sets.
    pub stored_bytes: u64,
    /// Latency; from the virtual time on if requests wait for it, else from being sent.
    pub latency: Percentiles,
    /// How late requests were sent, if they wait for their virtual times.
    pub lag: Option<Percentiles>,
    /// What was still there at the end, if asked for.
    pub live: Option<LiveBytes>,
}

fn hit_ratio<'a>(tallies: impl IntoIterator<Item = &'a Tally>) -> Option<f64> {
    let (mut hits, mut gets) = (0, 0);
    for tally in tallies {
        hits += tally.hits;
        gets += tally.hits + tally.misses;
    }
    (gets > 0).then(|| hits as f64 / gets as f64)
}

fn shown(ratio: Option<f64>) -> String {
    ratio.map_or("-".into(), |ratio| format!("{ratio:.4}"))
}

/// A line after each tenth.
pub(super) fn progress(tenth: u64, tallies: &[Tally]) -> String {
    format!(
        "{tenth} of {TENTHS}: hit ratio {}",
        shown(hit_ratio(tallies.last()))
    )
}

impl ReplayReport {
    pub(super) fn new(
        config: &ReplayConfig,
        machine: Machine,
        identity: Identity,
        memory: Memory,
        tenths: &[Tally],
        (stores, stored_bytes): (u64, u64),
        live: Option<&Tally>,
    ) -> Self {
        let (trace, mut all) = (&config.trace, Tally::new());
        tenths.iter().for_each(|tally| all.merge(tally));
        let elapsed_ns = tenths.iter().map(|tally| tally.elapsed_ns).sum::<u64>();
        Self {
            machine,
            address: config.target.address.to_string(),
            protocol: config.target.protocol.to_string(),
            identity,
            memory,
            trace: trace.law.to_string(),
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
            tenths: tenths.iter().map(|tally| hit_ratio([tally])).collect(),
            stores,
            refused: all.refused,
            stored_bytes,
            latency: Percentiles::of(&all.latency),
            lag: config.paced.then(|| Percentiles::of(&all.lag)),
            live: live.map(|tally| LiveBytes {
                asked: tally.hits + tally.misses,
                found: tally.hits,
                bytes: tally.hit_bytes + tally.hits * config.key_size as u64,
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
