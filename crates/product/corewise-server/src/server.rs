//! Starts a server: opens its listeners, makes its engine, and runs its loops.

use crate::auth::Users;
use crate::classes::Ages;
use crate::commands::SlowLog;
use crate::config::{Config, EngineKind, Eviction, RunError, StartError};
use crate::front::{Front, Loops, Signals, WAKE};
use crate::listener::{Listener, listen_tcp};
use crate::memory::ItemHeap;
use crate::metrics::Rates;
use crate::metrics::http::{self, Responder, Stage, Watchdog};
use crate::protocol::ProtocolKind;
use crate::shared::{ConnInfo, LoopState, Shared};
use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use corewise_engine::engines::{locked, lockhash, relativistic};
use corewise_engine::isolation::Isolation;
use corewise_engine::{Engine, SystemClock, TimeSource};
use corewise_wire::memcached::Limits;
use corewise_wire::resp;
use mio::net::TcpListener;
use mio::{Poll, Waker};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a request of RESP beside an item of the largest size, such as the keys of an `MGET`.
const MAX_KEYS_BYTES: usize = 1 << 20;

/// A server that listens but does not serve yet.
/// ```no_run
/// use corewise_server::{Config, Server};
/// let server = Server::bind(Config { threads: 2, ..Config::default() })?;
/// let banner = server.banner();
/// server.run(|| println!("{banner}"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Server {
    config: Config,
    users: Option<Users>,
    listeners: Vec<Listener>,
    /// The listeners for metrics and probes.
    for_metrics: Vec<TcpListener>,
    watchdog: Option<Watchdog>,
    poll: Poll,
    waker: Waker,
    signals: Signals,
}

impl Server {
    /// Opens the listening sockets and takes over SIGTERM, SIGINT, SIGUSR1 and SIGHUP. Starts no
    /// thread, so the caller may still change the process's identity.
    ///
    /// # Errors
    ///
    /// An address is in use or does not belong to this machine, the authentication file is
    /// unreadable or given together with a protocol without authentication, or the system has no
    /// file descriptors left.
    pub fn bind(mut config: Config) -> Result<Self, StartError> {
        let users = complete(&mut config)?;
        let poll = Poll::new().map_err(StartError::system("a poller"))?;
        let waker = Waker::new(poll.registry(), WAKE).map_err(StartError::system("a waker"))?;
        let (backlog, mode) = (config.backlog, config.unix_mode);
        let to_open = config.listeners.iter_mut();
        let listeners: Vec<Listener> = to_open
            .map(|at| Listener::open(at, backlog, mode))
            .collect::<Result<_, _>>()?;
        if listeners.is_empty() {
            return Err(StartError::NoAddress);
        }
        let for_metrics = config.metrics.iter_mut().map(listen_for_metrics);
        let for_metrics = for_metrics.collect::<Result<_, _>>()?;
        let signals = Signals::catch().map_err(StartError::system("signal handlers"))?;
        config.threads = config.threads.max(1);
        Ok(Self {
            config,
            users,
            listeners,
            for_metrics,
            watchdog: None,
            poll,
            waker,
            signals,
        })
    }

    /// Checks a configuration as [`bind`](Self::bind) does, but opens no socket.
    ///
    /// # Errors
    ///
    /// Those of `bind` for which [`StartError::is_usage`] holds.
    pub fn check(mut config: Config) -> Result<(), StartError> {
        complete(&mut config)?;
        let is_empty = config.listeners.is_empty();
        (!is_empty).then_some(()).ok_or(StartError::NoAddress)
    }

    /// Makes the running server call `report` once at its start and then at intervals of `every`,
    /// except when an event loop does not answer a question within a second.
    pub fn watch(&mut self, every: Duration, report: impl Fn() + Send + 'static) {
        let report = Box::new(report);
        self.watchdog = Some(Watchdog { every, report });
    }

    /// The TCP addresses of memcached's protocols that the server listens on, with the ports that
    /// the system chose.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.config.addresses_of(ProtocolKind::Memcached).collect()
    }

    /// Text to print when the server starts: version, engine, threads, memory, addresses, and a
    /// command to try.
    #[must_use]
    pub fn banner(&self) -> String {
        let c = &self.config;
        let mut text = format!(
            "corewise {}: engine {}, eviction {}, {} threads, {} MiB for items\n",
            env!("CARGO_PKG_VERSION"),
            c.engine,
            c.eviction,
            c.threads,
            c.memory >> 20,
        );
        text.extend(self.listeners.iter().map(Listener::announcement));
        let for_metrics = c.metrics.iter();
        text.extend(for_metrics.map(|address| format!("metrics on http://{address}/metrics\n")));
        for protocol in ProtocolKind::ALL {
            let mut of_protocol = self.listeners.iter().filter(|l| l.at.protocol == protocol);
            text.extend(of_protocol.next().map(Listener::how_to_try));
        }
        text
    }

    /// Serves until a signal or a command stops the server. Then stops accepting, answers what was
    /// received, and returns. Calls `ready` when all event loops run.
    ///
    /// # Errors
    ///
    /// See [`RunError`].
    pub fn run(self, ready: impl FnOnce()) -> Result<(), RunError> {
        match self.config.engine {
            EngineKind::Relativistic => {
                let engine = relativistic::Relativistic::try_new(relativistic::Config {
                    memory: self.config.memory,
                    max_item_bytes: limits(&self.config).max_payload(),
                    eviction: match self.config.eviction {
                        Eviction::None => relativistic::Eviction::Refuse,
                        Eviction::Lru => relativistic::Eviction::Lru,
                        Eviction::Random => relativistic::Eviction::Random,
                        Eviction::Default | Eviction::S3Fifo => relativistic::Eviction::S3Fifo,
                    },
                    huge_pages: self.config.huge_pages,
                });
                self.run_with(Arc::new(engine.map_err(|_| RunError::Memory)?), ready)
            }
            EngineKind::Locked => {
                let engine = self.locking::<locked::NoReferences>();
                self.run_with(engine, ready)
            }
            EngineKind::GlobalLock => {
                let engine = self.locking::<locked::ReferenceCount>();
                self.run_with(engine, ready)
            }
            EngineKind::LockHash => {
                let engine = lockhash::LockHashEngine::new(self.sharded());
                self.run_with(Arc::new(engine), ready)
            }
        }
    }

    fn locking<R: locked::References>(&self) -> Arc<locked::Locked<ItemHeap, R>> {
        Arc::new(locked::Locked::with_allocator(self.sharded(), ItemHeap))
    }

    /// The configuration of the engines that have shards or partitions.
    fn sharded(&self) -> locked::Config {
        locked::Config {
            memory: self.config.memory,
            max_item_bytes: limits(&self.config).max_payload(),
            eviction: match self.config.eviction {
                Eviction::None => locked::Eviction::Refuse,
                _ => locked::Eviction::Lru,
            },
            threads: self.config.threads,
        }
    }

    fn run_with<E: Engine>(self, engine: Arc<E>, ready: impl FnOnce()) -> Result<(), RunError> {
        let Self {
            config,
            users,
            listeners,
            for_metrics,
            watchdog,
            mut poll,
            waker,
            signals,
        } = self;
        let shared = Arc::new(share(config, users, waker));
        // Relaxed: no other thread runs yet.
        let bytes = engine.stats().bytes;
        shared.startup_bytes.store(bytes, Ordering::Relaxed);
        let mut loops = Loops::start(&shared, &engine).map_err(RunError::Thread)?;
        for listener in &listeners {
            let now_ms = shared.clock.now().ms;
            let info = ConnInfo::new(listener.fd(), listener.place(), None, now_ms);
            shared.connections.lock().insert(info.fd, Arc::new(info));
        }
        let responder = serve_metrics(for_metrics, watchdog, &loops, &shared, &engine);
        let responder = responder.map_err(RunError::Metrics)?;
        let enter = |stage| {
            responder
                .iter()
                .for_each(|responder| responder.enter(stage))
        };
        let mut front = Front::new(&shared, &loops.inboxes, listeners);
        let result = check_files().and_then(|()| {
            enter(Stage::Serving);
            ready();
            front.serve(&mut poll, signals)
        });
        enter(Stage::Stopping);
        drop(front);
        result.and(loops.join())
    }
}

fn listen_for_metrics(address: &mut SocketAddr) -> Result<TcpListener, StartError> {
    let opened = listen_tcp(address, http::BACKLOG);
    let opened = opened.map_err(|error| StartError::Listen {
        place: address.to_string(),
        error,
    })?;
    Ok(TcpListener::from_std(opened.into()))
}

/// Starts the thread that answers requests for metrics and reports to the watchdog, if there is
/// either.
fn serve_metrics<E: Engine>(
    listeners: Vec<TcpListener>,
    watchdog: Option<Watchdog>,
    loops: &Loops,
    shared: &Arc<Shared>,
    engine: &Arc<E>,
) -> io::Result<Option<Responder>> {
    if listeners.is_empty() && watchdog.is_none() {
        return Ok(None);
    }
    let (shared, engine) = (Arc::clone(shared), Arc::clone(engine));
    let print = move |format| {
        let now = shared.clock.now();
        crate::metrics::exposition(&shared, &*engine, now, format)
    };
    let inboxes = loops.inboxes.clone();
    Responder::start(listeners, inboxes, Box::new(print), watchdog).map(Some)
}

/// Checks that the process may open one more file, so that it can accept a connection.
fn check_files() -> Result<(), RunError> {
    std::fs::File::open("/dev/null")
        .map(drop)
        .map_err(RunError::Files)
}

/// Resolves the eviction policy, checks what does not depend on sockets, and reads the users.
fn complete(config: &mut Config) -> Result<Option<Users>, StartError> {
    check_engine(config)?;
    let mut protocols = config.listeners.iter().map(|at| at.protocol);
    if config.auth_file.is_some()
        && let Some(other) = protocols.find(|protocol| !protocol.authenticates())
    {
        return Err(StartError::NoAuthentication(other));
    }
    config.auth_file.as_deref().map(Users::read).transpose()
}

/// Resolves the eviction policy, and checks that the engine supports the amount of memory.
fn check_engine(config: &mut Config) -> Result<(), StartError> {
    let (engine, eviction) = (config.engine, config.eviction);
    config.eviction = eviction
        .of(engine)
        .ok_or(StartError::Eviction { engine, eviction })?;
    let (least, most) = match engine {
        EngineKind::Relativistic => (relativistic::MIN_MEMORY, relativistic::MAX_MEMORY),
        _ => (0, u64::MAX),
    };
    if !(least..=most).contains(&config.memory) {
        let (least, most) = (least >> 20, most >> 20);
        return Err(StartError::Memory {
            engine,
            least,
            most,
        });
    }
    Ok(())
}

fn limits(config: &Config) -> Limits {
    Limits {
        max_item_size: config.max_item_size,
        flush_enabled: config.enable_flush,
        shutdown_enabled: config.enable_shutdown,
        cas_enabled: config.enable_cas,
        dump_enabled: config.enable_dump,
        size_classes: corewise_engine::size_class::COUNT as u32,
        ..Limits::default()
    }
}

/// A request holds one item, or many keys.
fn resp_limits(config: &Config) -> resp::Limits {
    resp::Limits {
        max_request: config.max_item_size + MAX_KEYS_BYTES,
        ..resp::Limits::default()
    }
}

/// 40 random hexadecimal digits: std chooses random keys for its hashers.
fn random_id() -> String {
    let word = |_| format!("{:016x}", RandomState::new().build_hasher().finish());
    let mut digits: String = (0..3).map(word).collect();
    digits.truncate(40);
    digits
}

/// The state that all threads of a server share.
pub(crate) fn share(config: Config, users: Option<Users>, waker: Waker) -> Shared {
    let limits = crate::codec::Limits {
        memcached: limits(&config),
        resp: resp_limits(&config),
    };
    let loops =
        (0..config.threads).map(|_| corewise_atomic::CachePadded::new(LoopState::default()));
    let script_limits = crate::scripts::Limits {
        memory: config.script_memory,
    };
    let scripts = crate::scripts::Scripts::new(config.threads, script_limits);
    let clock = SystemClock::new();
    Shared {
        limits,
        started_s: clock.unix_time().as_secs(),
        clock: Arc::new(clock),
        isolation: Arc::new(Isolation::new()),
        scripts: Arc::new(scripts),
        users: Mutex::new(users.map(Arc::new)),
        loops: loops.collect(),
        connections: Mutex::new(HashMap::new()),
        buffer_limit: config.connection_limit(),
        reporting: Mutex::new(()),
        total_connections: AtomicU64::new(0),
        clients: AtomicU64::new(0),
        rejected_connections: AtomicU64::new(0),
        listen_disabled: AtomicU64::new(0),
        accepting: AtomicBool::new(true),
        listen_disabled_us: AtomicU64::new(0),
        replies_put_off: AtomicU64::new(0),
        dumps: AtomicU64::new(0),
        binary_clients: Mutex::default(),
        ages: Ages::default(),
        stopping: AtomicU8::new(crate::shared::stop::NO),
        main_waker: waker,
        detail: AtomicBool::new(config.detail_stats),
        prefixes: Mutex::new(HashMap::new()),
        baseline: Mutex::default(),
        rates: Rates::default(),
        slow_log: SlowLog::default(),
        peak_bytes: AtomicU64::new(0),
        startup_bytes: AtomicU64::new(0),
        run_id: random_id(),
        replication_id: random_id(),
        config,
    }
}
