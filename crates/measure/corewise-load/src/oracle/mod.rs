//! Checks which items a server keeps, with an oracle that knows every acknowledged item.
//!
//! | check | what it does | what it measures |
//! |---|---|---|
//! | `fill` | writes new keys until the limit is exceeded several times | live bytes at each sample, resident set, CPU time |
//! | `refuse` | stores new keys on a server that does not evict until it refuses | when it refuses, and every acknowledged item that is missing |
//! | `refill` | fills, sends `flush_all`, fills again at once | how many of the new items survive |
//! | `mixed` | all commands, random sizes, expiry, `flush_all`, `cache_memlimit` | resident set; a reply that contradicts the oracle fails the run |
//!
//! One client thread drives all connections in *rounds*: it sends a batch on each connection, then
//! reads all replies. So all event loops of the server work at the same time, and between two
//! rounds no request is outstanding. A window bounds the bytes of a round. Connections take turns,
//! so that each event loop gets its share even if the window holds one item.
//!
//! Guarantees: (1) the oracle counts an item as stored only if the server acknowledged it; (2)
//! every value that is returned is compared byte for byte, and a wrong one fails the run; (3)
//! samples are taken between two rounds.

mod fill;
mod keep;
mod mixed;
mod model;
mod report;
mod session;
mod sizes;

use std::net::SocketAddr;

use clap::ValueEnum;
use corewise_measure::machine::{CpuTimes, Machine, field, raise_file_limit};

use crate::clients::pin;
use crate::config::{
    Address, MAX_CONNECTIONS, MAX_PIPELINE, MAX_SECONDS, Target, require, validate_keys, within,
};
use crate::error::LoadError;
use crate::keys::KeyFormat;
use crate::probe::identify;
use crate::value::Values;
use crate::{config::Protocol, config::ValueSize};

pub use fill::FillReport;
pub use keep::{RefillReport, RefuseReport};
pub use mixed::MixedReport;
pub use report::OracleReport;
use session::{Reply, Session};
use sizes::SizePlan;
pub use sizes::Sizes;

/// A connection's batch ends when it has this many bytes of keys and values, or its share of the
/// window.
const BATCH_BYTES: u64 = 32 << 10;
/// Maximum number of keys of a check.
const MAX_CHECK_KEYS: u64 = 1 << 31;

/// The property to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Check {
    /// Live bytes while new keys are written until the limit is exceeded
    Fill,
    /// A server that does not evict: when it refuses, and which items it lost
    Refuse,
    /// Survival of items stored right after flush_all
    Refill,
    /// All commands, random sizes, expiry, flush_all and cache_memlimit; every reply is checked
    Mixed,
}

/// Configuration of a check.
#[derive(Clone, Debug, PartialEq)]
pub struct OracleConfig {
    /// The server; it must speak memcached's text protocol.
    pub target: Target,
    /// What to check.
    pub check: Check,
    /// The server's memory limit in bytes.
    pub limit_bytes: u64,
    /// Sizes of the values.
    pub sizes: Sizes,
    /// `fill`: how many times the limit is written.
    pub turnovers: f64,
    /// `mixed`: time under load, in seconds.
    pub seconds: f64,
    /// `mixed`: whether the server evicts. If it does not, no acknowledged item may be missing.
    pub evicts: bool,
    /// `mixed`: seed of all random choices.
    pub seed: u64,
    /// Connections.
    pub connections: u32,
    /// Maximum number of requests in one batch of a connection.
    pub pipeline: u32,
    /// Prefix of every key.
    pub key_prefix: String,
    /// Length of every key in bytes; the rest is the zero-padded index.
    pub key_size: usize,
    /// CPUs of the client, of which the first is used; empty means not pinned.
    pub pin: Vec<usize>,
    /// Time without any reply after which the check fails, in milliseconds.
    pub reply_timeout_ms: u64,
}

impl Default for OracleConfig {
    fn default() -> Self {
        Self {
            target: Target {
                address: Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 11_211))),
                protocol: Protocol::Memcached,
                pid: None,
            },
            check: Check::Fill,
            limit_bytes: 64 << 20,
            sizes: Sizes::One(32),
            turnovers: 4.0,
            seconds: 10.0,
            evicts: true,
            seed: 1,
            connections: 50,
            pipeline: 1,
            key_prefix: "key:".into(),
            key_size: 12,
            pin: Vec::new(),
            reply_timeout_ms: 10_000,
        }
    }
}

impl OracleConfig {
    /// Validates all options.
    ///
    /// # Errors
    ///
    /// [`LoadError::Config`] with one line that names the option.
    pub fn validate(&self) -> Result<(), LoadError> {
        within("connections", self.connections, 1, MAX_CONNECTIONS)?;
        within("pipeline", self.pipeline, 1, MAX_PIPELINE)?;
        within("limit (bytes)", self.limit_bytes, 1 << 20, 1 << 40)?;
        within("turnovers", self.turnovers, 0.1, 1e6)?;
        within("seconds", self.seconds, 0.01, MAX_SECONDS)?;
        within("reply timeout (ms)", self.reply_timeout_ms, 1, 3_600_000)?;
        require(self.target.protocol == Protocol::Memcached, || {
            "the oracle speaks memcached's text protocol only".into()
        })?;
        require(u64::from(self.sizes.largest()) <= self.limit_bytes, || {
            format!(
                "values of {} bytes do not fit the limit",
                self.sizes.largest()
            )
        })?;
        let most = (self.limit_bytes as f64 * self.turnovers.max(keep::NEVER_REFUSED)) as u64;
        let keys = most / (u64::from(self.sizes.smallest()) + self.key_size as u64);
        within("keys of the check", keys, 1, MAX_CHECK_KEYS)?;
        validate_keys(&self.key_prefix, self.key_size, keys)
    }
}

/// Runs the check and returns the report. `progress` occasionally gets a line.
///
/// # Errors
///
/// [`LoadError::Config`] before anything is started; [`LoadError::Mismatch`] if a value was wrong
/// or an item was present that must be absent; any other error later.
pub fn check_server(
    config: &OracleConfig,
    progress: &mut dyn FnMut(&str),
) -> Result<OracleReport, LoadError> {
    config.validate()?;
    raise_file_limit();
    let identity = identify(&config.target)?;
    pin(&config.pin, 0)?;
    let mut fleet = Fleet::connect(config)?;
    let mut report = OracleReport::new(config, Machine::look(), identity);
    match config.check {
        Check::Fill => report.fill = Some(fill::run(config, &mut fleet, progress)?),
        Check::Refuse => report.refuse = Some(keep::refuse(config, &mut fleet, progress)?),
        Check::Refill => report.refill = Some(keep::refill(config, &mut fleet, progress)?),
        Check::Mixed => report.mixed = Some(mixed::run(config, &mut fleet, progress)?),
    }
    fleet.verdict()?;
    Ok(report)
}

/// The connections, and the operations that all checks share.
struct Fleet {
    sessions: Vec<Session>,
    /// The session that sends the first batch of the next round.
    turn: usize,
    /// A connection for statistics and administration.
    control: Session,
    keys: KeyFormat,
    values: Values,
    pipeline: u32,
    /// Maximum bytes of keys and values in a round; a round sends at least one item.
    window: u64,
    pid: Option<u32>,
    target: String,
    mismatches: u64,
    first_mismatch: Option<String>,
}

impl Fleet {
    fn connect(config: &OracleConfig) -> Result<Self, LoadError> {
        let open = || Session::connect(&config.target.address, config.reply_timeout_ms);
        Ok(Self {
            sessions: (0..config.connections)
                .map(|_| open())
                .collect::<Result<_, _>>()?,
            turn: 0,
            control: open()?,
            keys: KeyFormat::new(&config.key_prefix, config.key_size),
            values: Values::new(ValueSize { min: 0, max: 0 }),
            pipeline: config.pipeline,
            window: config.limit_bytes / 16,
            pid: config.target.pid,
            target: config.target.address.to_string(),
            mismatches: 0,
            first_mismatch: None,
        })
    }

    fn key(&self, index: u32) -> Vec<u8> {
        let mut key = Vec::new();
        self.keys.render(index, &mut key);
        key
    }

    /// Takes the keys of one round from `keys`, grouped by session.
    fn deal(
        &mut self,
        plan: &SizePlan,
        keys: &mut dyn Iterator<Item = u32>,
    ) -> Vec<(usize, Vec<u32>)> {
        let (mut dealt, mut bytes) = (Vec::new(), 0);
        let share = (self.window / self.sessions.len() as u64).clamp(1, BATCH_BYTES);
        for _ in 0..self.sessions.len() {
            if bytes > 0 && bytes >= self.window {
                break;
            }
            let (mut batch, end) = (Vec::new(), bytes + share);
            while bytes < end && (batch.len() as u32) < self.pipeline {
                let Some(key) = keys.next() else { break };
                bytes += plan.bytes(key);
                batch.push(key);
            }
            if batch.is_empty() {
                break;
            }
            dealt.push((self.turn, batch));
            self.turn = (self.turn + 1) % self.sessions.len();
        }
        dealt
    }

    /// Sets the keys of one round. `done` gets each key and whether the server stored it. Returns
    /// whether there was any key.
    fn set_round(
        &mut self,
        plan: &SizePlan,
        keys: &mut dyn Iterator<Item = u32>,
        done: &mut dyn FnMut(u32, bool),
    ) -> Result<bool, LoadError> {
        let dealt = self.deal(plan, keys);
        for (session, batch) in &dealt {
            let session = &mut self.sessions[*session];
            for &key in batch {
                let len = plan.len(key);
                session.out.extend_from_slice(b"set ");
                self.keys.render(key, &mut session.out);
                session.out.extend_from_slice(b" 0 0 ");
                session
                    .out
                    .extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
                session.out.extend_from_slice(b"\r\n");
                self.values.render(key, len, &mut session.out);
                session.out.extend_from_slice(b"\r\n");
            }
            session.flush()?;
        }
        for (session, batch) in &dealt {
            for &key in batch {
                let session = &mut self.sessions[*session];
                match session.reply(b"")? {
                    Reply::Stored => done(key, true),
                    Reply::NoMemory => done(key, false),
                    other => return Err(session.wrong(format!("{other:?} to a set"))),
                }
            }
        }
        Ok(!dealt.is_empty())
    }

    /// Reads the keys. `done` gets each key and whether it was found.
    fn read_back(
        &mut self,
        plan: &SizePlan,
        keys: &mut dyn Iterator<Item = u32>,
        done: &mut dyn FnMut(u32, bool),
    ) -> Result<(), LoadError> {
        loop {
            let dealt = self.deal(plan, keys);
            if dealt.is_empty() {
                return Ok(());
            }
            for (session, batch) in &dealt {
                let session = &mut self.sessions[*session];
                for &key in batch {
                    session.out.extend_from_slice(b"get ");
                    self.keys.render(key, &mut session.out);
                    session.out.extend_from_slice(b"\r\n");
                }
                session.flush()?;
            }
            for (session, batch) in dealt {
                for key in batch {
                    done(key, self.read_one(session, key, plan.len(key))?);
                }
            }
        }
    }

    /// Reads the reply to a get of `key` and compares the value.
    fn read_one(&mut self, session: usize, key: u32, len: u32) -> Result<bool, LoadError> {
        let name = self.key(key);
        let values = self.values;
        let Some(value) = self.sessions[session].value(&name)? else {
            return Ok(false);
        };
        let right = value.len() == len as usize && values.matches(key, 0, value);
        if !right {
            let (got, name) = (value.len(), String::from_utf8_lossy(&name));
            self.mismatch(format!(
                "{name} has {got} bytes that are not the {len} that were stored"
            ));
        }
        Ok(true)
    }

    fn mismatch(&mut self, text: String) {
        self.mismatches += 1;
        self.first_mismatch.get_or_insert(text);
    }

    /// Returns an error if any reply so far was wrong.
    fn verdict(&self) -> Result<(), LoadError> {
        match &self.first_mismatch {
            None => Ok(()),
            Some(first) => Err(LoadError::Mismatch {
                target: self.target.clone(),
                count: self.mismatches,
                first: first.clone(),
            }),
        }
    }

    /// The statistics about what the server holds.
    fn sample(&mut self, stored_bytes: u64) -> Result<Sample, LoadError> {
        let stats = self.control.stats()?;
        let number = |name: &str| {
            let found = stats.iter().find(|(stat, _)| stat == name);
            found.and_then(|(_, value)| value.parse::<u64>().ok())
        };
        let missing = || {
            self.control
                .wrong("no curr_items or bytes in the statistics")
        };
        Ok(Sample {
            stored_bytes,
            items: number("curr_items").ok_or_else(missing)?,
            bytes: number("bytes").ok_or_else(missing)?,
            evictions: number("evictions").unwrap_or(0),
            rss_kib: self.status_kib("VmRSS"),
        })
    }

    /// A line of the server's `/proc/PID/status` in KiB.
    fn status_kib(&self, name: &str) -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid?)).ok()?;
        field(&text, name)?
            .trim_end_matches(" kB")
            .trim()
            .parse()
            .ok()
    }

    /// CPU time of the server so far.
    fn cpu_ns(&self) -> Option<u64> {
        let times = CpuTimes::of(self.pid?).ok()?;
        Some(times.user_ns + times.kernel_ns)
    }
}

/// What the server held between two rounds.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Bytes of keys and values that were acknowledged before.
    stored_bytes: u64,
    items: u64,
    /// As the server reports them.
    bytes: u64,
    evictions: u64,
    rss_kib: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_checked_and_named() {
        let refuses = |change: fn(&mut OracleConfig), word: &str| {
            let mut config = OracleConfig::default();
            change(&mut config);
            let text = config.validate().expect_err(word).to_string();
            assert!(text.contains(word) && !text.contains('\n'), "{text}");
        };
        OracleConfig::default().validate().expect("valid");
        refuses(|c| c.connections = 0, "connections");
        refuses(|c| c.pipeline = 0, "pipeline");
        refuses(|c| c.limit_bytes = 5, "limit");
        refuses(|c| c.turnovers = 0.0, "turnovers");
        refuses(|c| c.seconds = 0.0, "seconds");
        refuses(|c| c.sizes = Sizes::One(100 << 20), "do not fit");
        refuses(|c| c.target.protocol = Protocol::Resp, "text protocol");
        refuses(|c| c.key_size = 4, "key size");
        refuses(|c| c.reply_timeout_ms = 0, "timeout");
    }
}
