//! Configuration of a replay, and its limits.

use std::net::SocketAddr;

use corewise_measure::trace::{TraceConfig, TraceModel};

use super::{
    Address, MAX_CONNECTIONS, MAX_KEYS, MAX_PIPELINE, MAX_RATE, MAX_UNSENT_BYTES, MAX_VALUE_BYTES,
    Protocol, Target, require, validate_keys, within,
};
use crate::error::LoadError;

/// Configuration of a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayConfig {
    /// The server.
    pub target: Target,
    /// The trace. Its `rate_per_s` is used if `paced`.
    pub trace: TraceConfig,
    /// Whether requests wait for their virtual times.
    pub paced: bool,
    /// Connections.
    pub connections: u32,
    /// Maximum number of requests in one batch of a connection, not counting sets after misses.
    pub pipeline: u32,
    /// Whether to read every stored key at the end and sum the bytes that are still there.
    pub read_back: bool,
    /// Prefix of every key.
    pub key_prefix: String,
    /// Length of every key in bytes; the rest is the zero-padded index.
    pub key_size: usize,
    /// CPUs of the client, of which the first is used; empty means not pinned.
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
    /// Validates all options.
    ///
    /// # Errors
    ///
    /// [`LoadError::Config`] with one line that names the option.
    pub fn validate(&self) -> Result<(), LoadError> {
        let trace = &self.trace;
        require(self.target.protocol != Protocol::Cphash, || {
            "a trace cannot be replayed in the cphash protocol, which has no expiry times and no \
             replies to stores"
                .into()
        })?;
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
        require(
            self.paced || !matches!(trace.model, TraceModel::ShortTtl(_)),
            || format!("{} needs a rate: the server's clock is real", trace.model),
        )?;
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
        refuses(|c| c.target.protocol = Protocol::Cphash, "cphash");
        refuses(|c| c.connections = 0, "connections");
        refuses(|c| c.pipeline = 0, "pipeline");
        refuses(|c| c.pipeline = 60_000, "MiB");
        refuses(|c| c.trace.keys = 0, "keys");
        refuses(|c| c.trace.requests = 0, "requests");
        refuses(|c| c.trace.overwrites = 1.5, "overwrites");
        refuses(|c| c.trace.rate_per_s = 0, "rate");
        refuses(|c| c.trace.model = TraceModel::ShortTtl(1.0), "rate");
        refuses(|c| c.trace.sizes = Some((0, 9)), "value size");
        refuses(|c| c.key_size = 9, "key size");
        refuses(|c| c.reply_timeout_ms = 0, "timeout");
    }
}
