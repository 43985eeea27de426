//! Starting, accepting, stopping.
//!
//! The thread that calls [`Server::run`] accepts connections and receives signals. It hands each
//! connection to the event loop that has the fewest.

use crate::auth::Users;
use crate::classes::Ages;
use crate::codec::Codec;
use crate::complaints::Complaints;
use crate::config::{Config, EngineKind, Eviction, RunError, StartError};
use crate::event_loop::{EventLoop, Inbox, PendingConnection};
use crate::memory::ItemHeap;
use crate::shared::{ConnCard, LoopCard, Shared};
use crate::stream::Stream;
use crate::unix_socket::{self, SocketFile};
use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use corewise_cache::SystemClock;
use corewise_cache::engines::{locked, lockhash, relativistic};
use corewise_cache::isolation::Isolation;
use corewise_topology::{Topology, pin_current_thread, plan};
use corewise_wire::memcached::{self, Limits, reply};
use corewise_wire::{cphash, resp};
use mio::net::{TcpListener, UnixListener, UnixStream};
use mio::{Events, Interest, Poll, Token, Waker};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SIGNALS: Token = Token(usize::MAX);
const WAKE: Token = Token(usize::MAX - 1);
const HANGUPS: Token = Token(usize::MAX - 2);
/// Interval at which the accepting thread checks for room while it is paused.
const RETRY: Duration = Duration::from_millis(10);
/// After this time it tries to accept even if none of the server's connections was closed.
const RETRY_ANYWAY: Duration = Duration::from_secs(1);
/// Connections accepted from one listener before signals are checked. Few in unit tests, so that
/// they exceed it.
const ACCEPTED_AT_ONCE: usize = if cfg!(test) { 2 } else { 256 };
/// Bytes of a request of RESP beside an item of the largest size, such as the keys of an `MGET`.
const MAX_KEYS_BYTES: usize = 1 << 20;

/// A listening socket, and the protocol of its connections.
enum Listener {
    /// memcached's protocols over TCP.
    Tcp(TcpListener, SocketAddr),
    /// memcached's protocols over a Unix socket.
    Unix(UnixListener, String),
    /// The protocol of \[CPHASH\], over TCP.
    Cphash(TcpListener, SocketAddr),
    /// RESP over TCP.
    Resp(TcpListener, SocketAddr),
}

impl Listener {
    fn place(&self) -> String {
        match self {
            Self::Tcp(_, address) => format!("tcp:{address}"),
            Self::Unix(_, path) => format!("unix:{path}"),
            Self::Cphash(_, address) => format!("cphash:{address}"),
            Self::Resp(_, address) => format!("resp:{address}"),
        }
    }

    /// The codec of a new connection.
    fn codec(&self, shared: &Shared) -> Codec {
        match self {
            Self::Tcp(..) | Self::Unix(..) => memcached::Codec::new(shared.asks_for_users()).into(),
            Self::Cphash(..) => cphash::Codec::default().into(),
            Self::Resp(..) => crate::commands::CommandCodec::new(!shared.asks_for_users()).into(),
        }
    }

    /// The reply to a connection that is turned away. The protocol of \[CPHASH\] has no replies
    /// but values.
    fn refusal(&self) -> &'static [u8] {
        match self {
            Self::Tcp(..) | Self::Unix(..) => reply::TOO_MANY_CONNECTIONS,
            Self::Cphash(..) => b"",
            Self::Resp(..) => b"-ERR max number of clients reached\r\n",
        }
    }

    fn fd(&self) -> RawFd {
        match self {
            Self::Tcp(listener, _) | Self::Cphash(listener, _) | Self::Resp(listener, _) => {
                listener.as_raw_fd()
            }
            Self::Unix(listener, _) => listener.as_raw_fd(),
        }
    }

    fn accept(&self) -> io::Result<(Stream, String)> {
        match self {
            Self::Tcp(listener, _) | Self::Cphash(listener, _) | Self::Resp(listener, _) => {
                let (stream, peer) = listener.accept()?;
                // Without it, replies are delayed. A socket that is already closed shows later.
                let _ = stream.set_nodelay(true);
                Ok((Stream::Tcp(stream), format!("tcp:{peer}")))
            }
            Self::Unix(listener, path) => {
                Ok((Stream::Unix(listener.accept()?.0), format!("unix:{path}")))
            }
        }
    }
}

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
    poll: Poll,
    waker: Waker,
    signals: Signals,
    /// Removes the Unix socket's file at the end.
    socket_file: Option<SocketFile>,
}

impl Server {
    /// Opens the listening sockets and takes over SIGTERM, SIGINT, SIGUSR1 and SIGHUP. Starts no
    /// thread, so the caller may still change the process's identity.
    ///
    /// # Errors
    ///
    /// An address is in use or does not belong to this machine, the authentication file is
    /// unreadable or given together with [`Config::cphash_listen`], or the system has no file
    /// descriptors left.
    pub fn bind(mut config: Config) -> Result<Self, StartError> {
        check_engine(&mut config)?;
        if config.auth_file.is_some() && !config.cphash_listen.is_empty() {
            return Err(StartError::CphashAuth);
        }
        let users = config.auth_file.as_deref().map(Users::read).transpose()?;
        let poll = Poll::new().map_err(StartError::system("a poller"))?;
        let waker = Waker::new(poll.registry(), WAKE).map_err(StartError::system("a waker"))?;
        let mut listeners = Vec::new();
        for address in &mut config.listen {
            let listener = listen_on(address, config.backlog)?;
            listeners.push(Listener::Tcp(listener, *address));
        }
        for address in &mut config.cphash_listen {
            let listener = listen_on(address, config.backlog)?;
            listeners.push(Listener::Cphash(listener, *address));
        }
        for address in &mut config.resp_listen {
            let listener = listen_on(address, config.backlog)?;
            listeners.push(Listener::Resp(listener, *address));
        }
        let mut socket_file = None;
        if let Some(path) = &config.unix {
            let place = path.display().to_string();
            let (listener, file) =
                unix_socket::listen(path, config.unix_mode).map_err(|error| {
                    StartError::Listen {
                        place: place.clone(),
                        error,
                    }
                })?;
            socket_file = Some(file);
            listeners.push(Listener::Unix(listener, place));
        }
        if listeners.is_empty() {
            return Err(StartError::NoAddress);
        }
        let signals = Signals::catch().map_err(StartError::system("signal handlers"))?;
        config.threads = config.threads.max(1);
        Ok(Self {
            config,
            users,
            listeners,
            poll,
            waker,
            signals,
            socket_file,
        })
    }

    /// The TCP addresses of memcached's protocols that the server listens on, with the ports that
    /// the system chose.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.config.listen
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
        for listener in &self.listeners {
            // Writing to a String cannot fail.
            let _ = match listener {
                Listener::Tcp(_, address) => writeln!(text, "listening on {address}"),
                Listener::Unix(_, path) => writeln!(text, "listening on unix:{path}"),
                Listener::Cphash(_, address) => writeln!(text, "listening for cphash on {address}"),
                Listener::Resp(_, address) => writeln!(text, "listening for resp on {address}"),
            };
        }
        // One command for each protocol.
        let is_memcached =
            |listener: &&Listener| matches!(listener, Listener::Tcp(..) | Listener::Unix(..));
        let is_cphash = |listener: &&Listener| matches!(listener, Listener::Cphash(..));
        let is_resp = |listener: &&Listener| matches!(listener, Listener::Resp(..));
        for listener in [
            self.listeners.iter().find(is_memcached),
            self.listeners.iter().find(is_resp),
            self.listeners.iter().find(is_cphash),
        ] {
            text.extend(listener.map(how_to_try));
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

    fn run_with<E: corewise_cache::Engine>(
        self,
        engine: Arc<E>,
        ready: impl FnOnce(),
    ) -> Result<(), RunError> {
        let Self {
            config,
            users,
            listeners,
            mut poll,
            waker,
            signals,
            socket_file: _socket_file,
        } = self;
        let shared = Arc::new(share(config, users, waker));
        let mut loops = Loops::start(&shared, &engine).map_err(RunError::Thread)?;
        for listener in &listeners {
            let now_ms = shared.clock.now().ms;
            let card = ConnCard::new(listener.fd(), listener.place(), None, now_ms);
            shared.connections.lock().insert(card.fd, Arc::new(card));
        }
        let mut front = Front::new(&shared, &loops.inboxes, listeners);
        let result = check_files().and_then(|()| {
            ready();
            front.serve(&mut poll, signals)
        });
        drop(front);
        result.and(loops.join())
    }
}

/// Checks that the process may open one more file, so that it can accept a connection.
fn check_files() -> Result<(), RunError> {
    std::fs::File::open("/dev/null")
        .map(drop)
        .map_err(RunError::Files)
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
        size_classes: corewise_cache::size_class::COUNT as u32,
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

/// The state that all threads of a server share.
pub(crate) fn share(config: Config, users: Option<Users>, waker: Waker) -> Shared {
    let limits = crate::codec::Limits {
        memcached: limits(&config),
        resp: resp_limits(&config),
    };
    let loops = (0..config.threads).map(|_| corewise_atomic::CachePadded::new(LoopCard::default()));
    Shared {
        limits,
        clock: Arc::new(SystemClock::new()),
        isolation: Arc::new(Isolation::new()),
        users: Mutex::new(users.map(Arc::new)),
        loops: loops.collect(),
        connections: Mutex::new(HashMap::new()),
        buffer_limit: config.connection_limit(),
        telling: Mutex::new(()),
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
        config,
    }
}

type LoopThread = JoinHandle<io::Result<()>>;

/// Stops the server when it is dropped.
struct StopOnDrop(Arc<Shared>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// The event loops. They end when this is dropped.
struct Loops {
    inboxes: Vec<Arc<Inbox>>,
    threads: Vec<LoopThread>,
}

impl Loops {
    fn start<E: corewise_cache::Engine>(shared: &Arc<Shared>, engine: &Arc<E>) -> io::Result<Self> {
        let threads = shared.config.threads;
        let cpus = plan(&Topology::detect(), &shared.config.pin, threads);
        let mut loops = Self {
            inboxes: Vec::new(),
            threads: Vec::new(),
        };
        for index in 0..threads {
            let (event_loop, inbox) =
                EventLoop::new(index, Arc::clone(shared), Arc::clone(engine))?;
            let cpu = cpus.get(index).copied().flatten();
            let name = format!("loop-{index}");
            let stop = StopOnDrop(Arc::clone(shared));
            let thread = std::thread::Builder::new().name(name).spawn(move || {
                // A loop that panics or loses its poller stops the server. One that was told to
                // stop changes nothing.
                let _stop = stop;
                if let Some(cpu) = cpu
                    && let Err(error) = pin_current_thread(cpu)
                {
                    tracing::warn!(%error, index, "an event loop could not be pinned");
                }
                event_loop.run()
            })?;
            loops.inboxes.push(inbox);
            loops.threads.push(thread);
        }
        Ok(loops)
    }

    /// Tells the loops to stop, and waits until they have. Returns the error of the first that
    /// failed.
    fn join(&mut self) -> Result<(), RunError> {
        for inbox in &self.inboxes {
            inbox.close();
        }
        let mut result = Ok(());
        for thread in self.threads.drain(..) {
            result = result.and(match thread.join() {
                Ok(ended) => ended.map_err(RunError::LoopPoller),
                Err(_) => Err(RunError::LoopPanicked),
            });
        }
        result
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        // The server fails for another reason, or the loops have been joined.
        let _ = self.join();
    }
}

/// State of the accepting thread.
struct Front<'f> {
    shared: &'f Shared,
    inboxes: &'f [Arc<Inbox>],
    listeners: Vec<Listener>,
    /// Set while there is no room for a connection, or no file descriptor.
    paused: Option<Pause>,
    /// A listener may have more connections than were accepted at once.
    has_more: bool,
    complaints: Complaints,
}

/// A time in which connections are left in the kernel's queue.
struct Pause {
    /// Until when the pause is counted in the statistics.
    counted: Instant,
    /// When to try again. `open` is the number of open connections at the last attempt.
    retry: Instant,
    open: usize,
}

impl<'f> Front<'f> {
    fn new(shared: &'f Shared, inboxes: &'f [Arc<Inbox>], listeners: Vec<Listener>) -> Self {
        Self {
            shared,
            inboxes,
            listeners,
            paused: None,
            has_more: false,
            complaints: Complaints::default(),
        }
    }

    fn serve(&mut self, poll: &mut Poll, mut signals: Signals) -> Result<(), RunError> {
        self.register(poll, &mut signals)
            .map_err(RunError::Accept)?;
        let mut events = Events::with_capacity(64);
        while !self.shared.is_stopping() {
            match poll.poll(&mut events, self.timeout()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other.map_err(RunError::Accept)?,
            }
            let has = |token| events.iter().any(|event| event.token() == token);
            if has(SIGNALS) && has_come(&mut signals.stop) {
                tracing::info!("told to stop");
                break;
            }
            if has(HANGUPS) && has_come(&mut signals.hangup) {
                self.shared.reload_users();
            }
            if self.may_try() {
                self.accept();
            }
        }
        self.accept_last();
        Ok(())
    }

    /// Accepts the connections that were established before the server was told to stop, since
    /// their requests may have been received. Accepts a bounded number, so that a flood of new
    /// connections does not keep the server running.
    fn accept_last(&mut self) {
        for _ in 0..=self.shared.config.max_connections / ACCEPTED_AT_ONCE {
            self.accept();
            if !self.has_more {
                return;
            }
        }
    }

    fn register(&mut self, poll: &Poll, signals: &mut Signals) -> io::Result<()> {
        let registry = poll.registry();
        registry.register(&mut signals.stop, SIGNALS, Interest::READABLE)?;
        registry.register(&mut signals.hangup, HANGUPS, Interest::READABLE)?;
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            let token = Token(index);
            match listener {
                Listener::Tcp(l, _) | Listener::Cphash(l, _) | Listener::Resp(l, _) => {
                    registry.register(l, token, Interest::READABLE)?
                }
                Listener::Unix(l, _) => registry.register(l, token, Interest::READABLE)?,
            }
        }
        Ok(())
    }

    fn timeout(&self) -> Option<Duration> {
        match (self.has_more, &self.paused) {
            (true, None) => Some(Duration::ZERO),
            (_, paused) => paused.as_ref().map(|_| RETRY),
        }
    }

    /// Counts the time of a pause. Returns false while it continues: no connection was closed since
    /// the last attempt, which was less than [`RETRY_ANYWAY`] ago.
    fn may_try(&mut self) -> bool {
        let Some(pause) = &mut self.paused else {
            return true;
        };
        let now = Instant::now();
        let waited = now - std::mem::replace(&mut pause.counted, now);
        // Relaxed: a statistic.
        self.shared
            .listen_disabled_us
            .fetch_add(waited.as_micros() as u64, Ordering::Relaxed);
        let open = self.shared.open_connections();
        if open >= pause.open && now < pause.retry {
            return false;
        }
        (pause.open, pause.retry) = (open, now + RETRY_ANYWAY);
        true
    }

    /// Leaves connections in the kernel's queue for a while.
    fn pause(&mut self) {
        if self.paused.is_none() {
            let now = Instant::now();
            self.paused = Some(Pause {
                counted: now,
                retry: now + RETRY_ANYWAY,
                open: self.shared.open_connections(),
            });
            // Relaxed, both: statistics.
            self.shared.listen_disabled.fetch_add(1, Ordering::Relaxed);
            self.shared.accepting.store(false, Ordering::Relaxed);
        }
    }

    /// Ends a pause.
    fn resume(&mut self) {
        if self.paused.take().is_some() {
            // Relaxed: a statistic.
            self.shared.accepting.store(true, Ordering::Relaxed);
        }
    }

    /// Accepts from every listener, and pauses if there is no room.
    fn accept(&mut self) {
        self.has_more = false;
        let mut has_room = true;
        for index in 0..self.listeners.len() {
            has_room &= self.accept_some(index);
        }
        if has_room {
            self.resume()
        } else {
            self.pause()
        }
    }

    /// Accepts at most [`ACCEPTED_AT_ONCE`] connections, so that a flood of them does not delay
    /// signals. Returns false if there is no room for a connection.
    fn accept_some(&mut self, index: usize) -> bool {
        for _ in 0..ACCEPTED_AT_ONCE {
            let full = self.shared.open_connections() >= self.shared.config.max_connections;
            if full && !self.shared.config.maxconns_fast {
                return false;
            }
            match self.listeners[index].accept() {
                Ok((stream, _)) if full => self.turn_away(stream, &self.listeners[index]),
                Ok((stream, peer)) => self.hand_over(stream, peer, &self.listeners[index]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if concerns_one_connection(&error) => {}
                Err(error) => {
                    if let Some(unsaid) = self.complaints.due(Instant::now()) {
                        tracing::warn!(%error, unsaid, "cannot accept connections for the moment");
                    }
                    return false;
                }
            }
        }
        self.has_more = true;
        true
    }

    fn turn_away(&self, mut stream: Stream, listener: &Listener) {
        // Relaxed: a statistic.
        self.shared
            .rejected_connections
            .fetch_add(1, Ordering::Relaxed);
        // The connection is closed either way; a peer that is gone needs no reply.
        let _ = stream.write(listener.refusal());
    }

    fn hand_over(&self, stream: Stream, peer: String, listener: &Listener) {
        let codec = listener.codec(self.shared);
        let fd = stream.fd();
        let now_ms = self.shared.clock.now().ms;
        let mut card = ConnCard::new(fd, peer, Some(listener.place()), now_ms);
        if matches!(codec, Codec::Resp(_)) {
            // Relaxed: the numbers need only differ.
            card.client_id = 1 + self.shared.clients.fetch_add(1, Ordering::Relaxed);
        }
        let card = Arc::new(card);
        self.shared.connections.lock().insert(fd, Arc::clone(&card));
        // Relaxed: a statistic.
        self.shared
            .total_connections
            .fetch_add(1, Ordering::Relaxed);
        let mut pending = PendingConnection {
            stream,
            card,
            codec,
        };
        // Relaxed, all: see `Shared::open_connections`.
        let count = |index: usize| &self.shared.loops[index].connections;
        let of = |index| count(index).load(Ordering::Relaxed);
        let mut ended = Vec::new();
        while let Some(index) = fewest(self.inboxes.len(), &ended, of) {
            count(index).fetch_add(1, Ordering::Relaxed);
            match self.inboxes[index].send(pending) {
                Ok(()) => return,
                Err(returned) => pending = returned,
            }
            // Relaxed: as above.
            count(index).fetch_sub(1, Ordering::Relaxed);
            ended.push(index);
        }
        // No loop is left, and the server stops.
        self.shared.connections.lock().remove(&fd);
    }
}

/// The loop with the fewest connections that has not ended. Reads each count once: a sort might
/// find that they change meanwhile, and panic.
fn fewest(loops: usize, ended: &[usize], count: impl Fn(usize) -> usize) -> Option<usize> {
    let others = (0..loops).filter(|index| !ended.contains(index));
    others.min_by_key(|&index| count(index))
}

/// Listens on `address`, and replaces port 0 by the port that the system chose.
fn listen_on(address: &mut SocketAddr, backlog: u32) -> Result<TcpListener, StartError> {
    let listener = listen(*address, backlog).map_err(|error| StartError::Listen {
        place: address.to_string(),
        error,
    })?;
    *address = listener
        .local_addr()
        .map_err(StartError::system("a listening socket"))?;
    Ok(listener)
}

/// A command that talks to this listener, as a line of the banner.
fn how_to_try(listener: &Listener) -> String {
    let netcat = match listener {
        Listener::Tcp(_, address) => format!("nc {} {}", address.ip(), address.port()),
        Listener::Unix(_, path) => format!("nc -U {path}"),
        Listener::Cphash(_, address) => {
            return format!("try: corewise load {address} --protocol cphash --pipeline 32\n");
        }
        Listener::Resp(_, address) => {
            let (ip, port) = (address.ip(), address.port());
            return format!("try: redis-cli -h {ip} -p {port} set k hello\n");
        }
    };
    format!("try: printf 'set k 0 0 5\\r\\nhello\\r\\nget k\\r\\nquit\\r\\n' | {netcat}\n")
}

fn listen(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(TcpListener::from_std(socket.into()))
}

/// Whether an accept failed because of the connection, which is then gone, rather than for lack of
/// descriptors or memory.
fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::*;
    matches!(
        error.kind(),
        ConnectionAborted | Interrupted | NetworkDown | HostUnreachable | NetworkUnreachable
    )
}

/// Signals, delivered as bytes on sockets.
struct Signals {
    /// SIGTERM, SIGINT, and SIGUSR1, which stops memcached too.
    stop: UnixStream,
    /// SIGHUP.
    hangup: UnixStream,
}

impl Signals {
    fn catch() -> io::Result<Self> {
        Ok(Self {
            stop: catch(&[SIGTERM, SIGINT, SIGUSR1])?,
            hangup: catch(&[SIGHUP])?,
        })
    }
}

fn catch(signals: &[i32]) -> io::Result<UnixStream> {
    let (receiver, sender) = std::os::unix::net::UnixStream::pair()?;
    receiver.set_nonblocking(true)?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, sender.try_clone()?)?;
    }
    Ok(UnixStream::from_std(receiver))
}

/// Whether a signal of this socket has arrived. Several signals may arrive as one.
fn has_come(signals: &mut UnixStream) -> bool {
    let mut bytes = [0; 1 << 10];
    matches!(signals.read(&mut bytes), Ok(n) if n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_engine::{Completion, FakeEngine, PANIC_KEY};
    use std::cell::Cell;
    use std::io::Write;
    use std::os::unix::net;

    /// The state of a server, and the poller of its accepting thread.
    fn server(threads: usize) -> (Poll, Arc<Shared>) {
        let poll = Poll::new().unwrap();
        let waker = Waker::new(poll.registry(), WAKE).unwrap();
        let config = Config {
            threads,
            memory: 64 << 20,
            ..Config::default()
        };
        (poll, Arc::new(share(config, None, waker)))
    }

    /// A listener in a folder that is removed with the first value.
    fn listen_in_folder() -> (tempfile::TempDir, Listener) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket").display().to_string();
        let listener = UnixListener::bind(&path).unwrap();
        (folder, Listener::Unix(listener, path))
    }

    fn connect(folder: &tempfile::TempDir) -> net::UnixStream {
        net::UnixStream::connect(folder.path().join("socket")).unwrap()
    }

    fn pair() -> (net::UnixStream, UnixStream) {
        let (sender, receiver) = net::UnixStream::pair().unwrap();
        receiver.set_nonblocking(true).unwrap();
        (sender, UnixStream::from_std(receiver))
    }

    /// The signal and the connections are found in one poll.
    #[test]
    fn connections_that_wait_when_the_server_is_told_to_stop_are_handed_over() {
        let (mut poll, shared) = server(1);
        let engine = FakeEngine::new(Completion::InSubmit);
        let (_event_loop, inbox) = EventLoop::new(0, Arc::clone(&shared), engine).unwrap();
        let inboxes = [inbox];
        let (folder, listener) = listen_in_folder();
        let clients: Vec<_> = (0..=2 * ACCEPTED_AT_ONCE)
            .map(|_| connect(&folder))
            .collect();
        let ((mut sender, stop), (_other_sender, hangup)) = (pair(), pair());
        sender.write_all(b"x").unwrap();
        let mut front = Front::new(&shared, &inboxes, vec![listener]);
        front.serve(&mut poll, Signals { stop, hangup }).unwrap();
        assert_eq!(shared.open_connections(), clients.len());
    }

    #[test]
    fn a_loop_that_panics_stops_the_server() {
        let (mut poll, shared) = server(1);
        let engine = FakeEngine::new(Completion::InSubmit);
        let mut loops = Loops::start(&shared, &engine).unwrap();
        let (folder, listener) = listen_in_folder();
        let mut client = connect(&folder);
        write!(client, "get {PANIC_KEY}\r\n").unwrap();
        Front::new(&shared, &loops.inboxes, vec![listener]).accept();
        let panicked = loops.threads.remove(0).join();
        assert!(panicked.is_err());
        assert!(shared.is_stopping());
        // The accepting thread is woken.
        let mut events = Events::with_capacity(1);
        poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        assert!(events.iter().any(|event| event.token() == WAKE));
    }

    #[test]
    fn counts_that_change_meanwhile_are_read_once() {
        let reads = Cell::new(0);
        let changing = |_| {
            reads.set(reads.get() + 1);
            64 - reads.get() % 7
        };
        assert!(fewest(64, &[], changing).is_some());
        assert_eq!(reads.get(), 64);
        let counts = [3, 1, 2];
        let in_order = [vec![], vec![1], vec![1, 2], vec![1, 2, 0]];
        let found = in_order.map(|ended| fewest(3, &ended, |index| counts[index]));
        assert_eq!(found, [Some(1), Some(2), Some(0), None]);
    }

    #[test]
    fn a_loop_that_has_failed_gets_no_connections() {
        let (_poll, shared) = server(2);
        let engine = FakeEngine::new(Completion::InSubmit);
        let mut loops = Loops::start(&shared, &engine).unwrap();
        let failing = loops.threads.remove(0);
        let (folder, listener) = listen_in_folder();
        let mut front = Front::new(&shared, &loops.inboxes, vec![listener]);
        let mut bad = connect(&folder);
        bad.write_all(b"mn\r\n").unwrap();
        front.accept();
        // Turns end with the publication of what the loop holds.
        bad.read_exact(&mut [0; 4]).unwrap();
        write!(bad, "get {PANIC_KEY}\r\n").unwrap();
        assert!(failing.join().is_err());
        // Relaxed: ordered by the join.
        assert_eq!(shared.loops[0].buffer_bytes.load(Ordering::Relaxed), 0);
        assert_eq!(shared.open_connections(), 0);
        assert!(shared.connections.lock().is_empty());
        let mut others = [(); 3].map(|()| connect(&folder));
        front.accept_last();
        assert_eq!(shared.open_connections(), others.len());
        for other in &mut others {
            let patience = Some(Duration::from_secs(60));
            other.set_read_timeout(patience).unwrap();
            other.write_all(b"mn\r\n").unwrap();
            let mut reply = [0; 4];
            other.read_exact(&mut reply).unwrap();
            assert_eq!(&reply, b"MN\r\n");
        }
        drop(others);
        let listeners = front.listeners;
        loops.join().unwrap();
        // Without any loop, a connection is closed.
        let mut late = connect(&folder);
        let mut front = Front::new(&shared, &loops.inboxes, listeners);
        front.accept_last();
        assert_eq!(shared.open_connections(), 0);
        assert_eq!(late.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn the_loops_end_with_a_server_that_fails_to_start() {
        let (_poll, shared) = server(2);
        let engine = FakeEngine::new(Completion::InSubmit);
        drop(Loops::start(&shared, &engine).unwrap());
        // Each has had a reference.
        assert_eq!(Arc::strong_count(&shared), 1);
    }

    #[test]
    fn the_error_of_a_loop_is_that_of_the_server() {
        let failed = std::thread::spawn(|| Err(io::ErrorKind::Other.into()));
        let panicked = std::thread::spawn(|| panic!("as the test wants"));
        let mut loops = Loops {
            inboxes: Vec::new(),
            threads: vec![failed, panicked, std::thread::spawn(|| Ok(()))],
        };
        assert!(matches!(loops.join(), Err(RunError::LoopPoller(_))));
    }
}
