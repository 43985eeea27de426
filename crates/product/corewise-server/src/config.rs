//! Configuration of a server, and the errors of starting and running it.

use corewise_ops::database::DATABASES;
use corewise_topology::PinPolicy;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// The engine that stores the items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// Lookups without locks, items in segments.
    #[default]
    Relativistic,
    /// A lock, a hash table and an LRU list for each shard.
    Locked,
    /// One global lock, and reference counts on items, as memcached had in \[ATC11\]. For
    /// comparison only.
    GlobalLock,
    /// Partitions with a lock each: LOCKHASH of \[CPHASH\].
    LockHash,
}

/// A protocol that the server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolKind {
    /// memcached's text, meta and binary protocols.
    Memcached,
    /// RESP, the protocol of Redis.
    Resp,
    /// The protocol of \[CPHASH\], which has no authentication.
    Cphash,
}

/// What happens when the memory limit is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// The engine's default: `s3-fifo` in `relativistic`, and `lru` in the others.
    #[default]
    Default,
    /// \[S3-FIFO\]: items that were not read since they were stored are evicted first, so a scan
    /// evicts nothing else.
    S3Fifo,
    /// The least recently used items are evicted; `relativistic` approximates that order.
    Lru,
    /// Random items are evicted.
    Random,
    /// New items are refused.
    None,
}

/// The protocols that memcached's listeners speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BindingProtocol {
    /// The first byte of a connection determines its protocol: text or binary. If clients must
    /// authenticate, only the text protocol is spoken.
    #[default]
    Auto,
    /// Only the text protocol.
    Ascii,
    /// Only the binary protocol.
    Binary,
}

/// The keys that a script may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScriptKeys {
    /// Those that it declares. Operations on other keys go on while it runs.
    #[default]
    Declared,
    /// All. No operation is executed while it runs.
    All,
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

named!(EngineKind, "an engine", "relativistic" => Relativistic, "locked" => Locked, "global-lock" => GlobalLock, "lockhash" => LockHash);
named!(BindingProtocol, "a protocol", "auto" => Auto, "ascii" => Ascii, "binary" => Binary);
named!(ScriptKeys, "a choice", "declared" => Declared, "all" => All);
named!(Eviction, "an eviction policy", "default" => Default, "s3-fifo" => S3Fifo, "lru" => Lru, "random" => Random, "none" => None);

impl Eviction {
    /// The policy of Redis that is closest. None of them counts how often an item is used, so it is
    /// not one of Redis's LFU policies.
    pub(crate) fn policy(self) -> &'static str {
        match self {
            Self::None => "noeviction",
            Self::Random => "allkeys-random",
            Self::Default | Self::S3Fifo | Self::Lru => "allkeys-lru",
        }
    }

    /// The policy that `engine` uses for this choice; `None` if it does not have it.
    pub(crate) fn of(self, engine: EngineKind) -> Option<Self> {
        match (engine, self) {
            (EngineKind::Relativistic, Self::Default) => Some(Self::S3Fifo),
            (EngineKind::Relativistic, _) => Some(self),
            (_, policy) => match policy {
                Self::Default | Self::Lru => Some(Self::Lru),
                Self::None => Some(Self::None),
                Self::S3Fifo | Self::Random => None,
            },
        }
    }
}

/// Where to listen, and the protocol of the connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAt {
    /// The protocol.
    pub protocol: ProtocolKind,
    /// The address.
    pub address: BindAddress,
}

/// The address of a listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindAddress {
    /// A TCP address. With port 0, the system chooses a free port.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// What to listen on.
    pub listeners: Vec<ListenAt>,
    /// Where to answer HTTP requests for metrics and probes. With port 0, the system chooses a
    /// port.
    pub metrics: Vec<SocketAddr>,
    /// Which of memcached's protocols its listeners speak.
    pub binding: BindingProtocol,
    /// Permissions of Unix sockets.
    pub unix_mode: u32,
    /// Number of event loops, one thread each.
    pub threads: usize,
    /// Bytes for items and tables, and for the memory of connections.
    pub memory: u64,
    /// Bytes of the largest item, including key and header.
    pub max_item_size: usize,
    /// Bytes that all connections together may take: incomplete requests, waiting replies, and 2
    /// MiB for each event loop. `None` selects the [default](Self::connection_limit).
    pub connection_memory: Option<u64>,
    /// Maximum number of open connections.
    pub max_connections: usize,
    /// How long a connection may be without a request before it is closed.
    pub idle_timeout: Option<Duration>,
    /// How long a client may leave waiting replies unread before its connection is closed.
    pub slow_reader_timeout: Duration,
    /// The engine.
    pub engine: EngineKind,
    /// What happens when the memory limit is reached.
    pub eviction: Eviction,
    /// Whether to ask for huge pages for items. Only `relativistic` does; the other engines leave
    /// pages to their allocator.
    pub huge_pages: bool,
    /// The CPUs that event loops are pinned to.
    pub pin: PinPolicy,
    /// A file of `user:password` lines. If there is one, clients must authenticate.
    pub auth_file: Option<PathBuf>,
    /// Connections that the kernel queues until the server accepts them.
    pub backlog: u32,
    /// Whether the `shutdown` command is obeyed.
    pub enable_shutdown: bool,
    /// Whether `flush_all` is obeyed.
    pub enable_flush: bool,
    /// Whether items have cas values. They always have; the setting is only reported.
    pub enable_cas: bool,
    /// The byte that separates a key's prefix from the rest in `stats detail`.
    pub prefix_delimiter: u8,
    /// Whether `stats detail` counts from the start.
    pub detail_stats: bool,
    /// Whether clients may list keys.
    pub enable_dump: bool,
    /// At the connection limit: accept, reply with an error and close. Otherwise new connections
    /// stay in the kernel's queue.
    pub maxconns_fast: bool,
    /// The verbosity that `stats settings` reports.
    pub verbosity: u8,
    /// Whether clients may use scripts.
    pub enable_scripts: bool,
    /// How long a script may take, or all scripts of a transaction together.
    pub script_time: Duration,
    /// The number of databases of RESP, 1 to [`DATABASES`].
    pub databases: u8,
    /// Bytes that the scripts of one event loop may take.
    pub script_memory: usize,
    /// The keys that a script may use.
    pub script_keys: ScriptKeys,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listeners: vec![ListenAt {
                protocol: ProtocolKind::Memcached,
                address: BindAddress::Tcp(([127, 0, 0, 1], 11_211).into()),
            }],
            metrics: Vec::new(),
            binding: BindingProtocol::Auto,
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
            enable_scripts: true,
            script_time: Duration::from_secs(5),
            databases: DATABASES as u8,
            script_memory: 64 << 20,
            script_keys: ScriptKeys::Declared,
        }
    }
}

impl Config {
    /// The TCP addresses to listen on, with their protocols.
    pub fn tcp_addresses(&self) -> impl Iterator<Item = (ProtocolKind, SocketAddr)> {
        self.listeners.iter().filter_map(|at| match at.address {
            BindAddress::Tcp(address) => Some((at.protocol, address)),
            BindAddress::Unix(_) => None,
        })
    }

    /// Those of one protocol.
    pub(crate) fn addresses_of(&self, kind: ProtocolKind) -> impl Iterator<Item = SocketAddr> {
        let addresses = self.tcp_addresses();
        addresses.filter_map(move |(other, address)| (other == kind).then_some(address))
    }

    /// The paths of the Unix sockets to listen on, with their protocols.
    pub fn unix_paths(&self) -> impl Iterator<Item = (ProtocolKind, &Path)> {
        self.listeners.iter().filter_map(|at| match &at.address {
            BindAddress::Tcp(_) => None,
            BindAddress::Unix(path) => Some((at.protocol, &**path)),
        })
    }

    /// The path of the first one for memcached's protocols.
    #[must_use]
    pub fn unix_path(&self) -> Option<&Path> {
        let mut paths = self.unix_paths();
        paths.find_map(|(kind, path)| (kind == ProtocolKind::Memcached).then_some(path))
    }

    /// Bytes that an event loop takes for all its connections, approximately and at most.
    const LOOP_BYTES: u64 = 2 << 20;

    /// Bytes that all event loops take for their connections: 2 MiB each, and a quarter of `memory`
    /// at most.
    fn loops_bytes(&self) -> u64 {
        (self.threads as u64 * Self::LOOP_BYTES).min(self.memory / 4)
    }

    /// The bound on the memory of connections in bytes.
    ///
    /// Unless `connection_memory` is set, it is the memory of the event loops (2 MiB each, a
    /// quarter of `memory` at most) plus the largest of:
    ///
    /// - an eighth of `memory`;
    /// - 16 MiB or a quarter of `memory`, whichever is less;
    /// - the largest item, plus the same again or an eighth of `memory`, whichever is less: such an
    ///   item must find room beside some waiting replies.
    ///
    /// It is taken from the items only while it is used, so it can be generous: with 64 MiB and
    /// items of 1 MiB, sixteen clients can be in the middle of such an item at once.
    #[must_use]
    pub fn connection_limit(&self) -> u64 {
        let largest = self.max_item_size as u64;
        let items = largest + largest.min(self.memory / 8);
        let least = (self.memory / 4).min(16 << 20);
        let requests = (self.memory / 8).max(least).max(items);
        self.connection_memory
            .unwrap_or(requests + self.loops_bytes())
    }

    /// Maximum number of files that are open beside connections: listeners, event queues, the
    /// standard streams, logs.
    #[must_use]
    pub fn reserved_files(&self) -> u64 {
        64 + 4 * self.threads as u64
    }

    /// The minimum of `connection_memory`: 2 MiB for each event loop (a quarter of `memory` at
    /// most), and one item of the largest size with its command line.
    #[must_use]
    pub fn least_connection_memory(&self) -> u64 {
        self.loops_bytes() + self.max_item_size as u64 + (64 << 10)
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The server cannot listen on an address.
    #[error("cannot listen on {place}: {error}")]
    Listen {
        /// The address or path.
        place: String,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The engine does not support this eviction policy.
    #[error("the engine `{engine}` has no eviction policy `{eviction}`")]
    Eviction {
        /// The engine.
        engine: EngineKind,
        /// The policy.
        eviction: Eviction,
    },
    /// The engine does not support this amount of memory.
    #[error("the engine `{engine}` takes {least} to {most} MiB of memory")]
    Memory {
        /// The engine.
        engine: EngineKind,
        /// Minimum in MiB.
        least: u64,
        /// Maximum in MiB.
        most: u64,
    },
    /// Clients must authenticate, but the protocol of a listener has no authentication.
    #[error("the {0} protocol has no authentication: {0}-listen and auth-file exclude each other")]
    NoAuthentication(ProtocolKind),
    /// There is nothing to listen on.
    #[error("no address to listen on")]
    NoAddress,
    /// The authentication file is missing or malformed.
    #[error("authentication file {path}: {reason}")]
    AuthFile {
        /// The file.
        path: String,
        /// What is wrong with the file.
        reason: String,
    },
    /// Signals, pollers or pipes cannot be set up.
    #[error("cannot set up {what}: {error}")]
    System {
        /// What failed.
        what: &'static str,
        /// The error of the system.
        error: std::io::Error,
    },
}

impl StartError {
    /// Whether the configuration is wrong, rather than the state of the system.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Eviction { .. } | Self::Memory { .. } | Self::NoAuthentication(_) => true,
            Self::NoAddress | Self::AuthFile { .. } => true,
            Self::Listen { .. } | Self::System { .. } => false,
        }
    }

    pub(crate) fn system(what: &'static str) -> impl Fn(std::io::Error) -> Self {
        move |error| Self::System { what, error }
    }
}

/// Why a running server stopped without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The system has no address range for the memory of the items.
    #[error(
        "the system refuses the addresses of three times the memory (-m), which the engine reserves \
         without using them: see `ulimit -v` and `vm.overcommit_memory`"
    )]
    Memory,
    /// The accepting thread's poller failed.
    #[error("waiting for connections failed: {0}")]
    Accept(std::io::Error),
    /// An event loop cannot be started.
    #[error("cannot start an event loop: {0}")]
    Thread(std::io::Error),
    /// The thread that answers requests for metrics cannot be started.
    #[error("cannot start the thread of the metrics: {0}")]
    Metrics(std::io::Error),
    /// The server could not accept a single connection.
    #[error("no file is left for connections: {0}")]
    Files(std::io::Error),
    /// An event loop panicked.
    #[error("an event loop panicked; its connections are lost")]
    LoopPanicked,
    /// An event loop's poller failed.
    #[error("an event loop lost its poller, and its connections are lost: {0}")]
    LoopPoller(std::io::Error),
}
