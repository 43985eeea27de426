//! Configuration of a run, and its limits.

mod replay;

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use corewise_measure::number::parse_count;
use corewise_topology::parse_cpu_list;
use serde::{Serialize, Serializer};

use crate::error::LoadError;

pub use replay::ReplayConfig;

/// Maximum number of connections of one run, over all client threads and per target.
pub const MAX_CONNECTIONS: u32 = 65_535;
/// Maximum number of requests in one batch of the closed loop.
pub const MAX_PIPELINE: u32 = 65_536;
/// Maximum number of keys in one request.
pub const MAX_MULTIGET: u32 = 10_000;
/// Maximum number of keys of the key space.
pub const MAX_KEYS: u64 = 1 << 32;
/// Maximum length of a value in bytes.
pub const MAX_VALUE_BYTES: u32 = 128 << 20;
/// Maximum length of a key in bytes (memcached's limit).
pub const MAX_KEY_BYTES: usize = 250;
/// Maximum number of client threads, and of threads of the empty responder.
pub const MAX_THREADS: u32 = 1_024;
/// Maximum number of requests that one connection may have outstanding in the open loop.
pub const MAX_OUTSTANDING: u32 = 1 << 20;
/// Maximum length of a run in seconds per target.
pub const MAX_SECONDS: f64 = 7.0 * 86_400.0;
/// Maximum rate of the open loop in requests per second.
pub const MAX_RATE: f64 = 1e9;
/// Maximum bytes of requests that all connections together may hold unsent.
pub const MAX_UNSENT_BYTES: u64 = 2 << 30;
/// Maximum length of a reply of the empty responder in bytes.
pub const MAX_FLOOR_REPLY_BYTES: u64 = 256 << 20;
/// Maximum number of slices of one run, over all targets; each is kept for the report.
pub const MAX_SLICES: u64 = 1 << 20;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An Internet socket.
    Tcp(SocketAddr),
    /// A Unix-domain stream socket, written `unix:/path`.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err("the address 'unix:' lacks a path".into());
            }
            return Ok(Self::Unix(path.into()));
        }
        let expected = "expected HOST:PORT or unix:/path";
        // ":PORT" means this machine.
        let host = if text.starts_with(':') {
            "127.0.0.1"
        } else {
            ""
        };
        format!("{host}{text}")
            .to_socket_addrs()
            .map_err(|e| format!("bad address '{text}' ({e}); {expected}"))?
            .next()
            .map(Self::Tcp)
            .ok_or_else(|| format!("bad address '{text}'; {expected}"))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => addr.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The protocol of the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// memcached's text commands: `get` with one or many keys, `set`.
    #[value(alias = "text")]
    Memcached,
    /// memcached's meta commands: `mg` and `ms`. A get of several keys is a sequence of quiet `mg`,
    /// ended by `mn`.
    Meta,
    /// Redis protocol version 2: `GET`, `MGET`, `SET`.
    Resp,
    /// LOOKUP and INSERT of \[CPHASH\] §4.1. Keys are hashes of 60 bits. An INSERT has no reply;
    /// see the crate's documentation.
    Cphash,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memcached => "memcached",
            Self::Meta => "meta",
            Self::Resp => "resp",
            Self::Cphash => "cphash",
        })
    }
}

/// A server under load; as options, server A.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct Target {
    /// Server A: HOST:PORT or unix:/path
    #[arg(
        id = "target",
        value_name = "TARGET",
        default_value = "127.0.0.1:11211"
    )]
    pub address: Address,
    /// Protocol of A
    #[arg(long, value_enum, default_value = "memcached")]
    pub protocol: Protocol,
    /// Process of A, to measure its CPU time
    #[arg(id = "server_pid", long = "server-pid", value_name = "PID")]
    pub pid: Option<u32>,
}

/// Numbers of CPUs, which are the value of a single option.
pub type CpuNumbers = Vec<usize>;

/// Parses a list of CPUs: `0`, `0,2`, `1-3`.
fn cpu_list(text: &str) -> Result<CpuNumbers, String> {
    parse_cpu_list(text).map_err(|error| format!("bad CPU list: {error}"))
}

/// The distribution of keys over the key space.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyDistribution {
    /// All keys are equally likely.
    Uniform,
    /// Zipf with this exponent over the whole key space.
    Zipf(f64),
}

impl FromStr for KeyDistribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "uniform" {
            return Ok(Self::Uniform);
        }
        let exponent = match text.strip_prefix("zipf") {
            Some("") => Some(0.99),
            Some(rest) => rest.strip_prefix(':').and_then(|e| e.parse::<f64>().ok()),
            None => None,
        };
        match exponent {
            Some(e) if e > 0.0 && e <= 10.0 => Ok(Self::Zipf(e)),
            _ => Err(format!(
                "bad distribution '{text}'; expected uniform or zipf:EXPONENT with 0 < EXPONENT <= 10"
            )),
        }
    }
}

impl fmt::Display for KeyDistribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(e) => write!(f, "zipf {e}"),
        }
    }
}

/// Length of values in bytes. Each key has a fixed length in this range, so that a hit can be
/// checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueSize {
    /// Minimum.
    pub min: u32,
    /// Maximum.
    pub max: u32,
}

impl ValueSize {
    /// The middle of the range.
    pub fn mean(self) -> u32 {
        self.min + (self.max - self.min) / 2
    }
}

impl FromStr for ValueSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (min, max) = text.split_once('-').unwrap_or((text, text));
        match (min.parse(), max.parse()) {
            (Ok(min), Ok(max)) if min <= max && max <= MAX_VALUE_BYTES => Ok(Self { min, max }),
            _ => Err(format!(
                "bad value size '{text}'; expected BYTES or MIN-MAX, at most {MAX_VALUE_BYTES}"
            )),
        }
    }
}

impl fmt::Display for ValueSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max {
            write!(f, "{}", self.min)
        } else {
            write!(f, "{}-{}", self.min, self.max)
        }
    }
}

/// The distribution of open-loop requests over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Exponential gaps, and each request on a random connection. This is the same as an
    /// independent Poisson process per connection.
    Poisson,
    /// Equal gaps, and connections in turn.
    Constant,
}

/// The event that makes the client send the next request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "mode", rename_all = "lowercase")]
pub enum LoadMode {
    /// The last reply to the connection's previous batch.
    Closed,
    /// The schedule, whether or not replies have arrived.
    Open {
        /// Requests per second over all connections.
        rate: f64,
        /// The distribution of requests over time.
        arrivals: Arrivals,
        /// Requests that one connection may have outstanding. A request that is due beyond this
        /// limit is dropped and counted as overload.
        max_outstanding: u32,
    },
}

/// Options of the empty responder: see the module `floor`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Args)]
pub struct FloorOptions {
    /// Threads of the empty responder
    #[arg(
        id = "floor_threads",
        long = "floor-threads",
        value_name = "N",
        default_value_t = 1
    )]
    pub threads: u32,
    /// CPUs of the empty responder, such as 0 or 0,2-3 (pin it like the servers)
    #[arg(
        id = "floor_pin",
        long = "floor-pin",
        value_name = "CPUS",
        requires = "floor"
    )]
    #[arg(value_parser = cpu_list, default_value = "", hide_default_value = true)]
    pub pin: CpuNumbers,
}

/// Serialises as text.
fn as_text<S: Serializer>(value: &impl fmt::Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// Configuration of a run. What is no option itself follows from options of
/// [`LoadArgs`](crate::LoadArgs).
#[derive(Clone, Debug, PartialEq, Serialize, Args)]
pub struct LoadConfig {
    /// Server A.
    #[command(flatten)]
    #[serde(skip)]
    pub target: Target,
    /// Server B, whose slices alternate with A's.
    #[arg(skip)]
    #[serde(skip)]
    pub vs: Option<Target>,
    /// Options of the empty responder, if it is measured too.
    #[arg(skip)]
    pub floor: Option<FloorOptions>,
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
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_count)]
    pub keys: u64,
    /// uniform or zipf:EXPONENT, over the whole key space
    #[arg(long, value_name = "DISTRIBUTION", default_value = "uniform")]
    #[serde(serialize_with = "as_text")]
    pub distribution: KeyDistribution,
    /// Lengths of values.
    #[arg(skip = ValueSize { min: 32, max: 32 })]
    #[serde(rename = "value_bytes", serialize_with = "as_text")]
    pub value_size: ValueSize,
    /// Share of requests that are sets, 0 to 1
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.1,
        conflicts_with = "mix"
    )]
    pub set_ratio: f64,
    /// Time under load per target, in seconds
    #[arg(long, short, default_value_t = 10.0)]
    pub seconds: f64,
    /// Load before the first slice, per target, in seconds
    #[arg(
        id = "warmup",
        long = "warmup",
        value_name = "SECONDS",
        default_value_t = 1.0
    )]
    pub warmup_seconds: f64,
    /// Client threads
    #[arg(long, short, value_name = "N", default_value_t = 1)]
    pub threads: u32,
    /// Closed or open loop.
    #[arg(skip = LoadMode::Closed)]
    #[serde(flatten)]
    pub mode: LoadMode,
    /// Store every key on every server first
    #[arg(long)]
    pub prefill: bool,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Prefix of every key
    #[arg(long, value_name = "TEXT", default_value = "key:")]
    pub key_prefix: String,
    /// Length of every key in bytes (cphash: keys are hashes of 60 bits)
    #[arg(long, value_name = "BYTES", default_value_t = 12)]
    #[serde(rename = "key_bytes")]
    pub key_size: usize,
    /// Length of a slice in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 500)]
    pub slice_ms: u64,
    /// Discarded start of a slice in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 50)]
    pub slice_warm_ms: u64,
    /// CPUs of the client threads, such as 1 or 0,2-3
    #[arg(long, value_name = "CPUS", value_parser = cpu_list)]
    #[arg(default_value = "", hide_default_value = true)]
    pub pin: CpuNumbers,
    /// Fail after this long without any reply, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    pub reply_timeout_ms: u64,
}

impl Default for LoadConfig {
    fn default() -> Self {
        Self {
            target: Target {
                address: Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 11_211))),
                protocol: Protocol::Memcached,
                pid: None,
            },
            vs: None,
            floor: None,
            connections: 50,
            pipeline: 1,
            multiget: 1,
            keys: 1_000_000,
            distribution: KeyDistribution::Uniform,
            value_size: ValueSize { min: 32, max: 32 },
            set_ratio: 0.1,
            seconds: 10.0,
            warmup_seconds: 1.0,
            threads: 1,
            mode: LoadMode::Closed,
            prefill: false,
            seed: 1,
            key_prefix: "key:".into(),
            key_size: 12,
            slice_ms: 500,
            slice_warm_ms: 50,
            pin: Vec::new(),
            reply_timeout_ms: 10_000,
        }
    }
}

/// Returns an error with the message unless the condition holds.
pub(crate) fn require(holds: bool, message: impl FnOnce() -> String) -> Result<(), LoadError> {
    if holds {
        Ok(())
    } else {
        Err(LoadError::Config(message()))
    }
}

/// Returns an error unless `low <= value <= high`.
pub(crate) fn within<T: PartialOrd + fmt::Display>(
    name: &str,
    value: T,
    low: T,
    high: T,
) -> Result<(), LoadError> {
    require(value >= low && value <= high, || {
        format!("{name} must be between {low} and {high}, not {value}")
    })
}

/// Checks that `keys` keys have room behind the prefix.
pub(crate) fn validate_keys(prefix: &str, size: usize, keys: u64) -> Result<(), LoadError> {
    within("key size", size, 1, MAX_KEY_BYTES)?;
    let clean = prefix.bytes().all(|b| b.is_ascii_graphic());
    require(clean, || {
        "the key prefix may hold only printable ASCII without spaces".into()
    })?;
    let digits = size.saturating_sub(prefix.len());
    let room = u32::try_from(digits)
        .ok()
        .and_then(|d| 10u64.checked_pow(d));
    require(digits > 0 && room.is_none_or(|room| room >= keys), || {
        format!("{keys} keys do not fit a key size of {size} with the prefix '{prefix}'")
    })
}

impl LoadConfig {
    /// Validates all options.
    ///
    /// # Errors
    ///
    /// [`LoadError::Config`] with one line that names the option.
    pub fn validate(&self) -> Result<(), LoadError> {
        within("connections", self.connections, 1, MAX_CONNECTIONS)?;
        within("pipeline", self.pipeline, 1, MAX_PIPELINE)?;
        within("multiget", self.multiget, 1, MAX_MULTIGET)?;
        within("keys", self.keys, 1, MAX_KEYS)?;
        within("threads", self.threads, 1, MAX_THREADS)?;
        within("set ratio", self.set_ratio, 0.0, 1.0)?;
        within("warmup", self.warmup_seconds, 0.0, MAX_SECONDS)?;
        within(
            "value size",
            self.value_size.max,
            self.value_size.min,
            MAX_VALUE_BYTES,
        )?;
        within("reply timeout (ms)", self.reply_timeout_ms, 1, 3_600_000)?;
        require(self.threads <= self.connections, || {
            format!("{} threads need as many connections", self.threads)
        })?;
        validate_keys(&self.key_prefix, self.key_size, self.keys)?;
        self.validate_slices()?;
        self.validate_protocols()?;
        self.validate_mode()?;
        self.validate_memory()?;
        self.validate_floor()
    }

    fn validate_slices(&self) -> Result<(), LoadError> {
        within("seconds", self.seconds, 0.01, MAX_SECONDS)?;
        within("slice (ms)", self.slice_ms, 2, 3_600_000)?;
        require(self.slice_warm_ms < self.slice_ms, || {
            format!(
                "the discarded {} ms leave nothing of a slice",
                self.slice_warm_ms
            )
        })?;
        within("rounds (seconds / slice)", self.rounds(), 1, MAX_SLICES / 4)
    }

    /// Whether a target has this protocol.
    pub(crate) fn has_protocol(&self, protocol: Protocol) -> bool {
        let targets = [Some(&self.target), self.vs.as_ref()];
        targets
            .into_iter()
            .flatten()
            .any(|t| t.protocol == protocol)
    }

    fn validate_protocols(&self) -> Result<(), LoadError> {
        if !self.has_protocol(Protocol::Cphash) {
            return Ok(());
        }
        require(self.multiget == 1, || {
            "the cphash protocol has no multiget; use pipeline".into()
        })?;
        require(self.value_size.min > 0, || {
            "the value size must be at least 1: an empty value looks like a miss in the cphash \
             protocol"
                .into()
        })
    }

    fn validate_mode(&self) -> Result<(), LoadError> {
        let LoadMode::Open {
            rate,
            max_outstanding,
            ..
        } = self.mode
        else {
            return Ok(());
        };
        within("rate", rate, 0.001, MAX_RATE)?;
        within("max outstanding", max_outstanding, 1, MAX_OUTSTANDING)?;
        require(self.pipeline == 1, || {
            "pipeline belongs to the closed loop; with a rate, requests go out one by one".into()
        })
    }

    fn validate_memory(&self) -> Result<(), LoadError> {
        let set = if self.set_ratio > 0.0 || self.prefill {
            self.value_size.max
        } else {
            0
        };
        let request = (u64::from(set) + 300).max(u64::from(self.multiget) * 300);
        let window = match self.mode {
            LoadMode::Closed => u64::from(self.pipeline),
            LoadMode::Open { .. } => 1,
        };
        let bytes = request * window * u64::from(self.connections);
        require(bytes <= MAX_UNSENT_BYTES, || {
            format!(
                "connections x pipeline x request size is {} MiB, the limit is {} MiB",
                bytes >> 20,
                MAX_UNSENT_BYTES >> 20
            )
        })
    }

    fn validate_floor(&self) -> Result<(), LoadError> {
        let Some(floor) = &self.floor else {
            return Ok(());
        };
        within("floor threads", floor.threads, 0, MAX_THREADS)?;
        let reply = u64::from(self.multiget) * (u64::from(self.value_size.mean()) + 300);
        require(reply <= MAX_FLOOR_REPLY_BYTES, || {
            format!(
                "the empty responder's replies would exceed {} MiB",
                MAX_FLOOR_REPLY_BYTES >> 20
            )
        })?;
        let resp = self.has_protocol(Protocol::Resp);
        let mixed = self.set_ratio > 0.0 && self.set_ratio < 1.0;
        require(!(resp && mixed && self.multiget == 2), || {
            "the empty responder cannot tell SET from MGET of two keys; choose another multiget"
                .into()
        })
    }

    /// Number of slices of each target.
    pub fn rounds(&self) -> u64 {
        ((self.seconds * 1_000.0 / self.slice_ms as f64).round() as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuses(change: impl FnOnce(&mut LoadConfig), word: &str) {
        let mut config = LoadConfig::default();
        change(&mut config);
        let text = config.validate().expect_err(word).to_string();
        assert!(text.contains(word) && !text.contains('\n'), "{text}");
    }

    #[test]
    fn defaults_are_valid() {
        LoadConfig::default().validate().expect("valid");
    }

    #[test]
    fn limits_are_refused_in_one_line() {
        refuses(|c| c.connections = 65_536, "connections");
        refuses(|c| c.keys = (1 << 32) + 1, "keys");
        refuses(|c| c.key_size = 9, "key size");
        refuses(|c| c.key_prefix = "a b".into(), "prefix");
        refuses(|c| c.threads = 51, "connections");
        refuses(|c| c.set_ratio = 1.5, "set ratio");
        refuses(|c| c.set_ratio = f64::NAN, "set ratio");
        refuses(|c| c.seconds = f64::INFINITY, "seconds");
        refuses(|c| c.slice_warm_ms = 500, "slice");
        refuses(
            |c| (c.value_size.max, c.pipeline) = (MAX_VALUE_BYTES, 32),
            "limit",
        );
        let cphash = |c: &mut LoadConfig| c.target.protocol = Protocol::Cphash;
        refuses(|c| (c.multiget, _) = (2, cphash(c)), "multiget");
        refuses(|c| (c.value_size.min, _) = (0, cphash(c)), "value size");
        refuses(
            |c| {
                c.pipeline = 2;
                c.mode = LoadMode::Open {
                    rate: 1.0,
                    arrivals: Arrivals::Poisson,
                    max_outstanding: 1,
                };
            },
            "pipeline",
        );
        refuses(
            |c| {
                c.target.protocol = Protocol::Resp;
                c.multiget = 2;
                c.floor = Some(FloorOptions::default());
            },
            "responder",
        );
    }

    #[test]
    fn options_parse_and_print() {
        assert_eq!("zipf".parse(), Ok(KeyDistribution::Zipf(0.99)));
        assert_eq!("zipf:1.2".parse(), Ok(KeyDistribution::Zipf(1.2)));
        assert!("zipf:-1".parse::<KeyDistribution>().is_err());
        assert!("zipf:nan".parse::<KeyDistribution>().is_err());
        assert_eq!("10-1000".parse(), Ok(ValueSize { min: 10, max: 1000 }));
        assert!("10-5".parse::<ValueSize>().is_err());
        assert!("-5".parse::<ValueSize>().is_err());
        assert_eq!("unix:/a".parse(), Ok(Address::Unix("/a".into())));
        assert!("unix:".parse::<Address>().is_err());
        assert!("nonsense".parse::<Address>().is_err());
        assert_eq!(
            "127.0.0.1:1".parse::<Address>().expect("valid").to_string(),
            "127.0.0.1:1"
        );
    }
}
