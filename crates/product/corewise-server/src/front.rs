//! The event loops' threads, and the thread that accepts their connections.
//!
//! The thread that calls [`Server::run`](crate::Server::run) accepts connections and receives
//! signals. It hands each connection to the event loop that has the fewest.

use crate::complaints::Complaints;
use crate::config::RunError;
use crate::event_loop::{EventLoop, Inbox, PendingConnection};
use crate::listener::Listener;
use crate::shared::{ConnInfo, Shared};
use crate::transport::Transport;
use corewise_atomic::sync::atomic::Ordering;
use corewise_engine::Engine;
use corewise_topology::{Topology, pin_current_thread, plan};
use mio::net::UnixStream;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use std::io::{self, Read};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The stack of an event loop, of which the system gives it the pages that it touches: scripts nest
/// calls, tables and texts in JSON as deep as [`scripts`](crate::scripts) allows.
const LOOP_STACK: usize = 16 << 20;
const SIGNALS: Token = Token(usize::MAX);
pub(crate) const WAKE: Token = Token(usize::MAX - 1);
const HANGUPS: Token = Token(usize::MAX - 2);
/// Interval at which the accepting thread checks for room while it is paused.
const RETRY: Duration = Duration::from_millis(10);
/// After this time it tries to accept even if none of the server's connections was closed.
const RETRY_ANYWAY: Duration = Duration::from_secs(1);
/// Connections accepted from one listener before signals are checked. Few in unit tests, so that
/// they exceed it.
const ACCEPTED_AT_ONCE: usize = if cfg!(test) { 2 } else { 256 };

type LoopThread = JoinHandle<io::Result<()>>;

/// Stops the server when it is dropped.
struct StopOnDrop(Arc<Shared>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// The event loops. They end when this is dropped.
pub(crate) struct Loops {
    pub(crate) inboxes: Vec<Arc<Inbox>>,
    threads: Vec<LoopThread>,
}

impl Loops {
    pub(crate) fn start<E: Engine>(shared: &Arc<Shared>, engine: &Arc<E>) -> io::Result<Self> {
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
            let thread = std::thread::Builder::new().name(name);
            let thread = thread.stack_size(LOOP_STACK).spawn(move || {
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
    pub(crate) fn join(&mut self) -> Result<(), RunError> {
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
pub(crate) struct Front<'f> {
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
    pub(crate) fn new(
        shared: &'f Shared,
        inboxes: &'f [Arc<Inbox>],
        listeners: Vec<Listener>,
    ) -> Self {
        Self {
            shared,
            inboxes,
            listeners,
            paused: None,
            has_more: false,
            complaints: Complaints::default(),
        }
    }

    pub(crate) fn serve(&mut self, poll: &mut Poll, mut signals: Signals) -> Result<(), RunError> {
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
        for (index, listener) in self.listeners.iter().enumerate() {
            let mut source = SourceFd(&listener.fd());
            registry.register(&mut source, Token(index), Interest::READABLE)?;
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
                Ok((transport, _)) if full => self.turn_away(transport, &self.listeners[index]),
                Ok((transport, peer)) => self.hand_over(transport, peer, &self.listeners[index]),
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

    fn turn_away(&self, mut transport: Transport, listener: &Listener) {
        // Relaxed: a statistic.
        self.shared
            .rejected_connections
            .fetch_add(1, Ordering::Relaxed);
        // The connection is closed either way; a peer that is gone needs no reply.
        let _ = transport.send(&mut [listener.at.protocol.facts().refusal, &[], &[]]);
    }

    fn hand_over(&self, transport: Transport, peer: String, listener: &Listener) {
        let facts = listener.at.protocol.facts();
        let fd = transport.fd();
        let now_ms = self.shared.clock.now().ms;
        let mut info = ConnInfo::new(fd, peer, Some(listener.place()), now_ms);
        if facts.numbers_clients {
            // Relaxed: the numbers need only differ.
            info.client_id = 1 + self.shared.clients.fetch_add(1, Ordering::Relaxed);
        }
        let info = Arc::new(info);
        self.shared.connections.lock().insert(fd, Arc::clone(&info));
        // Relaxed: a statistic.
        self.shared
            .total_connections
            .fetch_add(1, Ordering::Relaxed);
        let mut pending = PendingConnection {
            transport,
            info,
            codec: (facts.codec)(!self.shared.asks_for_users(), self.shared.config.binding),
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
pub(crate) struct Signals {
    /// SIGTERM, SIGINT, and SIGUSR1, which stops memcached too.
    stop: UnixStream,
    /// SIGHUP.
    hangup: UnixStream,
}

impl Signals {
    pub(crate) fn catch() -> io::Result<Self> {
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
    use crate::ProtocolKind;
    use crate::config::{BindAddress, Config, ListenAt};
    use crate::fake_engine::{Completion, FakeEngine, PANIC_KEY};
    use crate::server::share;
    use mio::Waker;
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
        let path = folder.path().join("socket");
        let mut at = ListenAt {
            protocol: ProtocolKind::Memcached,
            address: BindAddress::Unix(path),
        };
        let listener = Listener::open(&mut at, 1_024, 0o700).unwrap();
        (folder, listener)
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
