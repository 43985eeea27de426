//! What a server is told before it starts, and what can go wrong then.

use corewise_topology::PinPolicy;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Which engine keeps the items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// Lookups without a lock, items in segments.
    #[default]
    Relativistic,
    /// A lock, a hash table and an LRU list per shard.
    Locked,
    /// One lock for everything and references to items: what memcached did in the paper, for
    /// comparison only.
    GlobalLock,
}

/// What happens when the memory budget is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// What the engine does best: `s3-fifo`, but `lru` in `locked` and `global-lock`.
    #[default]
    Default,
    /// What was not read since it came goes first; scans take nothing else with them.
    S3Fifo,
    /// The least recently used items go; `relativistic` approximates that.
    Lru,
    /// Anything goes.
    Random,
    /// New items are refused.
    None,
}

macro_rules! named {
    ($type:ident, $what:literal, $($name:literal => $variant:ident),+) => {
        impl FromStr for $type {
            type Err = String;
            fn from_str(word: &str) -> Result<Self, String> {
                match word {
                    $($name => Ok(Self::$variant),)+
                    _ => Err(format!(concat!("`{}` is not ", $what, ": ", $("`", $name, "` ",)+ "can be chosen"), word)),
                }
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $name,)+ })
            }
        }
    };
}

named!(EngineKind, "an engine", "relativistic" => Relativistic, "locked" => Locked, "global-lock" => GlobalLock);
named!(Eviction, "an eviction policy", "default" => Default, "s3-fifo" => S3Fifo, "lru" => Lru, "random" => Random, "none" => None);

impl Eviction {
    /// The policy itself, or what it stands for; `None` if the engine does not have it.
    pub(crate) fn of(self, engine: EngineKind) -> Option<Self> {
        match (engine, self) {
            (EngineKind::Relativistic, Self::Default) => Some(Self::S3Fifo),
            (EngineKind::Relativistic, _) => Some(self),
            (EngineKind::Locked | EngineKind::GlobalLock, policy) => match policy {
                Self::Default | Self::Lru => Some(Self::Lru),
                Self::None => Some(Self::None),
                Self::S3Fifo | Self::Random => None,
            },
        }
    }
}

/// Everything a server can be told.
#[derive(Clone, Debug)]
pub struct Config {
    /// TCP addresses to listen on; port 0 picks a free one.
    pub listen: Vec<SocketAddr>,
    /// A Unix socket to listen on.
    pub unix: Option<PathBuf>,
    /// Its permissions.
    pub unix_mode: u32,
    /// Event loops, one thread each.
    pub threads: usize,
    /// Bytes for items and tables, and for the memory of connections.
    pub memory: u64,
    /// Bytes of the largest item, key and header included.
    pub max_item_size: usize,
    /// Bytes that connections may take, all together: half requests, replies
    /// that wait, and 2 MiB for each event loop. `None` is the
    /// [default](Self::connection_limit).
    pub connection_memory: Option<u64>,
    /// Connections served at once.
    pub max_connections: usize,
    /// After how long without a request a connection is closed.
    pub idle_timeout: Option<Duration>,
    /// After how long without reading a byte of waiting replies a connection is
    /// closed.
    pub slow_reader_timeout: Duration,
    /// The engine.
    pub engine: EngineKind,
    /// What happens at the memory budget.
    pub eviction: Eviction,
    /// Whether huge pages are asked for, for items. `locked` and `global-lock` leave pages to
    /// their allocator.
    pub huge_pages: bool,
    /// Which CPUs the event loops are pinned to.
    pub pin: PinPolicy,
    /// A file of `user:password` lines; clients must then authenticate.
    pub auth_file: Option<PathBuf>,
    /// Connections the kernel queues for us to accept.
    pub backlog: u32,
    /// Whether the `shutdown` command is obeyed.
    pub enable_shutdown: bool,
    /// Whether `flush_all` is obeyed.
    pub enable_flush: bool,
    /// Whether items have cas values (always kept; the setting is reported).
    pub enable_cas: bool,
    /// What separates a key's prefix from the rest in `stats detail`.
    pub prefix_delimiter: u8,
    /// Whether `stats detail` counts from the start.
    pub detail_stats: bool,
    /// Whether keys may be dumped.
    pub enable_dump: bool,
    /// At the connection limit: accept, say so and close (else leave new
    /// connections in the kernel's queue).
    pub maxconns_fast: bool,
    /// Verbosity reported by `stats settings`.
    pub verbosity: u8,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 11_211))],
            unix: None,
            unix_mode: 0o700,
            threads: 4,
            memory: 1 << 30,
            max_item_size: 1 << 20,
            connection_memory: None,
            max_connections: 1_024,
            idle_timeout: None,
            slow_reader_timeout: Duration::from_secs(60),
            engine: EngineKind::default(),
            eviction: Eviction::Default,
            huge_pages: true,
            pin: PinPolicy::None,
            auth_file: None,
            backlog: 1_024,
            enable_shutdown: false,
            enable_flush: true,
            enable_cas: true,
            prefix_delimiter: b':',
            detail_stats: false,
            enable_dump: true,
            maxconns_fast: true,
            verbosity: 0,
        }
    }
}

impl Config {
    /// What an event loop has for all its connections, about and at most.
    const LOOP_BYTES: u64 = 2 << 20;

    /// What all event loops have for their connections: 2 MiB each, and together not more than a
    /// quarter of `memory`.
    fn loops_bytes(&self) -> u64 {
        (self.threads as u64 * Self::LOOP_BYTES).min(self.memory / 4)
    }

    /// The bound on the memory of connections in bytes.
    ///
    /// Unless it is chosen: what the event loops need (2 MiB each, a quarter of `memory` at most), and
    /// an eighth of `memory`, at least 16 MiB or a quarter of it, whichever is less, and at least the
    /// largest item and as much again or an eighth of `memory`, whichever is less: such an item must find
    /// room besides some replies that wait. It is taken from the items only while it is used, so it may be
    /// generous: with 64 MiB and items of 1 MiB sixteen clients can be in the middle of such an item at
    /// once.
    #[must_use]
    pub fn connection_limit(&self) -> u64 {
        let largest = self.max_item_size as u64;
        let items = largest + largest.min(self.memory / 8);
        let least = (self.memory / 4).min(16 << 20);
        let requests = (self.memory / 8).max(least).max(items);
        self.connection_memory
            .unwrap_or(requests + self.loops_bytes())
    }

    /// Files that are open beside connections, at most: listeners, event queues, the standard three,
    /// logs.
    #[must_use]
    pub fn reserved_files(&self) -> u64 {
        64 + 4 * self.threads as u64
    }

    /// The least that `connection_memory` may be: 2 MiB for each event loop (a quarter of `memory` at
    /// most), and one of the largest items with its line.
    #[must_use]
    pub fn least_connection_memory(&self) -> u64 {
        self.loops_bytes() + self.max_item_size as u64 + (64 << 10)
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address could not be listened on.
    #[error("cannot listen on {place}: {error}")]
    Listen {
        /// The address or path.
        place: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// The engine has no such eviction policy.
    #[error("the engine `{engine}` has no eviction policy `{eviction}`")]
    Eviction {
        /// The engine.
        engine: EngineKind,
        /// The policy.
        eviction: Eviction,
    },
    /// The engine cannot have so much memory.
    #[error("the engine `{engine}` takes {least} to {most} MiB of memory")]
    Memory {
        /// The engine.
        engine: EngineKind,
        /// Of memory, in MiB.
        least: u64,
        /// The same.
        most: u64,
    },
    /// Nothing to listen on.
    #[error("no address to listen on")]
    NoAddress,
    /// The authentication file is missing or malformed.
    #[error("authentication file {path}: {reason}")]
    AuthFile {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Signals, pollers or pipes could not be set up.
    #[error("cannot set up {what}: {error}")]
    System {
        /// What failed.
        what: &'static str,
        /// What the system said.
        error: std::io::Error,
    },
}

impl StartError {
    /// Whether the configuration is wrong, and not the state of the system.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Eviction { .. } | Self::Memory { .. } => true,
            Self::NoAddress | Self::AuthFile { .. } => true,
            Self::Listen { .. } | Self::System { .. } => false,
        }
    }

    pub(crate) fn system(what: &'static str) -> impl Fn(std::io::Error) -> Self {
        move |error| Self::System { what, error }
    }
}

/// Why a running server stopped other than by being told to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The system has no addresses for the memory of the items.
    #[error("the system has no range of addresses for the memory that was asked for")]
    Memory,
    /// The accepting thread lost its poller.
    #[error("waiting for connections failed: {0}")]
    Accept(std::io::Error),
    /// An event loop could not be started.
    #[error("cannot start an event loop: {0}")]
    Thread(std::io::Error),
    /// An event loop ended with a panic.
    #[error("an event loop panicked; its connections are lost")]
    LoopPanicked,
}
