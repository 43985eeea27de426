//! Replays a generated cache trace against a server, cache-aside.
//!
//! A get that misses is followed by a set of the value with the trace's size and time to live. Any
//! connection takes the next requests of the trace, up to `pipeline` at a time; what a batch missed
//! is stored at the start of the connection's next batch. So requests overtake each other by at most
//! `connections * pipeline`, and a key asked for again within that window misses again, on every
//! server alike.
//!
//! With a rate, requests are due at the trace's virtual times; a late server is not spared. Without
//! one the trace runs as fast as the server answers, which is refused for traces with times to live.
//!
//! Guarantees: (1) every byte of every hit is compared; (2) counts belong to drained stretches: no
//! request is outstanding where one tenth of the trace ends and the next begins; (3) a set the server
//! has no memory for is counted, not an error; (4) memory is bounded by what the connections hold and
//! one bit for each key of the trace.

mod player;
mod report;

use std::net::SocketAddr;

use crate::codec::Codec;
use crate::config::{
    Address, MAX_CONNECTIONS, MAX_KEYS, MAX_PIPELINE, MAX_RATE, MAX_UNSENT_BYTES, MAX_VALUE_BYTES,
    Protocol, Target, require, validate_keys, within,
};
use crate::crew::{name, pin};
use crate::driver::Driver;
use crate::error::LoadError;
use crate::probe::identify;
use crate::slices::check;
use crate::tally::Tally;
use corewise_measure::machine::{Machine, Memory};
use corewise_measure::trace::{Law, TraceConfig};

pub(crate) use player::Player;
pub use report::{LiveBytes, ReplayReport};

/// Parts of a trace that are counted apart.
pub(crate) const TENTHS: u64 = 10;

/// A replay.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayConfig {
    /// The server.
    pub target: Target,
    /// What to replay. Its `rate_per_s` is used if `paced`.
    pub trace: TraceConfig,
    /// Whether requests wait for their virtual times.
    pub paced: bool,
    /// Connections.
    pub connections: u32,
    /// Most requests in one batch of a connection, sets after misses not counted.
    pub pipeline: u32,
    /// Ask for every stored key at the end and sum what is still there.
    pub read_back: bool,
    /// What every key starts with.
    pub key_prefix: String,
    /// Length of every key in bytes; the rest is the zero-padded index.
    pub key_size: usize,
    /// CPUs the client may run on, the first counts; empty leaves it free.
    pub pin: Vec<usize>,
    /// Time without any reply after which the replay fails, in milliseconds.
    pub reply_timeout_ms: u64,
}

impl Default for ReplayConfig {
    fn default() -> Self {
        Self {
            target: Target {
                address: Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 11_211))),
                protocol: Protocol::Memcached,
                pid: None,
            },
            trace: TraceConfig::default(),
            paced: false,
            connections: 50,
            pipeline: 1,
            read_back: false,
            key_prefix: "key:".into(),
            key_size: 12,
            pin: Vec::new(),
            reply_timeout_ms: 10_000,
        }
    }
}

impl ReplayConfig {
    /// Checks every limit.
    ///
    /// # Errors
    ///
    /// [`LoadError::Config`] with one line that names the option.
    pub fn validate(&self) -> Result<(), LoadError> {
        let trace = &self.trace;
        within("connections", self.connections, 1, MAX_CONNECTIONS)?;
        within("pipeline", self.pipeline, 1, MAX_PIPELINE)?;
        within("keys", trace.keys, 1, corewise_measure::trace::MAX_KEYS)?;
        within("requests", trace.requests, 1, MAX_KEYS)?;
        within("overwrites", trace.overwrites, 0.0, 1.0)?;
        let smallest = trace.sizes.map_or(1, |(min, _)| min);
        within("value size", smallest, 1, MAX_VALUE_BYTES)?;
        within("rate", trace.rate_per_s, 1, MAX_RATE as u64)?;
        within("reply timeout (ms)", self.reply_timeout_ms, 1, 3_600_000)?;
        within("keys of the trace", trace.key_bound(), 1, MAX_KEYS)?;
        validate_keys(&self.key_prefix, self.key_size, trace.key_bound())?;
        require(self.paced || !matches!(trace.law, Law::ShortTtl(_)), || {
            format!("{} needs a rate: the server's clock is real", trace.law)
        })?;
        let bytes = u64::from(self.connections)
            * u64::from(self.pipeline)
            * (2 * u64::from(trace.max_value_bytes()) + 600);
        require(bytes <= MAX_UNSENT_BYTES, || {
            format!(
                "connections x pipeline x request size is {} MiB, the limit is {} MiB",
                bytes >> 20,
                MAX_UNSENT_BYTES >> 20
            )
        })
    }
}

/// Replays the trace and reports; `progress` gets a line after each tenth.
///
/// # Errors
///
/// [`LoadError::Config`] before anything is started; later anything else. A wrong reply ends the
/// replay: at once if the stream cannot be followed any more, at the end of its tenth otherwise.
pub fn replay(
    config: &ReplayConfig,
    progress: &mut dyn FnMut(&str),
) -> Result<ReplayReport, LoadError> {
    config.validate()?;
    corewise_measure::machine::raise_file_limit();
    let identity = identify(&config.target)?;
    pin(&config.pin, 0)?;
    let address = config.target.address.to_string();
    let codec = Codec::for_trace(config);
    let conns = config.connections as usize;
    let mut driver = Driver::connect(
        &config.target.address,
        codec,
        conns,
        config.reply_timeout_ms,
    )
    .map_err(|source| LoadError::Connect {
        target: address.clone(),
        source,
    })?;
    let mut player = Player::new(config);
    let mut run = |player: &mut Player| -> Result<Tally, LoadError> {
        let tally = driver
            .replay(player)
            .map_err(|fault| name(fault, &address, config.reply_timeout_ms))?;
        check(&address, &tally)?;
        Ok(tally)
    };
    let mut tenths = Vec::new();
    for tenth in 1..=TENTHS {
        player.play_until(config.trace.requests * tenth / TENTHS);
        tenths.push(run(&mut player)?);
        progress(&report::progress(tenth, &tenths));
    }
    let memory = config.target.pid.map(Memory::of).unwrap_or_default();
    let stored = player.stored();
    let live = match config.read_back {
        true => {
            progress("asking for every key that was stored");
            player.read_back();
            Some(run(&mut player)?)
        }
        false => None,
    };
    let machine = Machine::look();
    Ok(ReplayReport::new(
        config,
        machine,
        identity,
        memory,
        &tenths,
        stored,
        live.as_ref(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_checked_and_named() {
        let refuses = |change: fn(&mut ReplayConfig), word: &str| {
            let mut config = ReplayConfig::default();
            change(&mut config);
            let text = config.validate().expect_err(word).to_string();
            assert!(text.contains(word) && !text.contains('\n'), "{text}");
        };
        ReplayConfig::default().validate().expect("valid");
        refuses(|c| c.connections = 0, "connections");
        refuses(|c| c.pipeline = 0, "pipeline");
        refuses(|c| c.pipeline = 60_000, "MiB");
        refuses(|c| c.trace.keys = 0, "keys");
        refuses(|c| c.trace.requests = 0, "requests");
        refuses(|c| c.trace.overwrites = 1.5, "overwrites");
        refuses(|c| c.trace.rate_per_s = 0, "rate");
        refuses(|c| c.trace.law = Law::ShortTtl(1.0), "rate");
        refuses(|c| c.trace.sizes = Some((0, 9)), "value size");
        refuses(|c| c.key_size = 9, "key size");
        refuses(|c| c.reply_timeout_ms = 0, "timeout");
    }
}
