//! Answers HTTP requests for the metrics and probes, on one thread beside the event loops.
//!
//! - `GET /metrics`: the metrics, as OpenMetrics if the client prefers that.
//! - `GET /healthz`: 200 if every event loop answers within a second, otherwise 503.
//! - `GET /readyz`: 200 while the listeners accept connections, 503 before that and while the
//!   server stops.
//!
//! It also reports to a [`Watchdog`], if there is one, while every event loop answers.
//!
//! # Guarantees
//!
//! 1. The thread waits for no client. A connection carries one request, and has a second for its
//!    head, a second for the verdict on the loops, three for the reply, and a second for closing.
//! 2. At most [`MAX_EXCHANGES`] connections are open, and [`BACKLOG`] wait in the kernel; each has
//!    a head of at most [`MAX_HEAD`] bytes and one reply. So clients that send or read slowly delay
//!    another one by seconds at most, and take no memory of clients of the cache.
//! 3. Without a request the thread sleeps. The event loops do nothing for it except to answer
//!    whether they run, once a second at most. A page of metrics takes the locks that `stats` and
//!    `stats conns` take.
//! 4. The thread yields to the event loops where they compete for a CPU (`NICE`), so that a flood
//!    of requests costs them little.

use super::Format;
use super::health::{ANSWER_IN, Health, Stalled};
use crate::event_loop::Inbox;
use corewise_atomic::sync::atomic::{AtomicU8, Ordering};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use slab::Slab;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Connections that the kernel may queue.
pub(crate) const BACKLOG: u32 = 16;
/// Maximum number of open connections.
const MAX_EXCHANGES: usize = 8;
/// Maximum length of the head of a request.
const MAX_HEAD: usize = 4 << 10;
/// Maximum number of header fields.
const MAX_FIELDS: usize = 64;
/// How long a client may take to send the head of its request, and to close.
const PHASE: Duration = Duration::from_secs(1);
/// How long a client may take to receive the reply.
const REPLY: Duration = Duration::from_secs(3);
/// Bytes that are discarded of a client that sends more than a request.
const MAX_DISCARDED: usize = 64 << 10;
/// After an error of the system, accepting is tried again after this time.
const RETRY: Duration = Duration::from_millis(500);

/// By how much the thread is nicer than the event loops.
const NICE: i32 = 5;

const WAKE: Token = Token(usize::MAX);
/// The tokens of listeners count from here.
const LISTENERS: usize = usize::MAX / 2;

/// What the server is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The listeners accept no connections yet.
    Starting,
    Serving,
    /// It answers what was received.
    Stopping,
    /// The responder is to end.
    Ended,
}

/// Prints the metrics.
pub(crate) type Print = Box<dyn Fn(Format) -> String + Send>;

/// What expects reports that the event loops run.
pub(crate) struct Watchdog {
    /// The time between two questions to the loops.
    pub(crate) every: Duration,
    /// Called when all loops have answered one in time.
    pub(crate) report: Box<dyn Fn() + Send>,
}

/// What the server tells the responder.
struct Control {
    /// A [`Stage`].
    stage: AtomicU8,
    waker: Arc<Waker>,
}

/// The thread that answers. Dropping this value ends it.
pub(crate) struct Responder {
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    /// Starts the thread. `print` prints the metrics. The first report to the watchdog is due at
    /// once.
    pub(crate) fn start(
        listeners: Vec<TcpListener>,
        inboxes: Vec<Arc<Inbox>>,
        print: Print,
        watchdog: Option<Watchdog>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        let control = Arc::new(Control {
            stage: AtomicU8::new(Stage::Starting as u8),
            waker: Arc::clone(&waker),
        });
        let mut service = Service {
            poll,
            listeners,
            exchanges: Slab::with_capacity(MAX_EXCHANGES),
            control: Arc::clone(&control),
            health: Health::new(inboxes, waker),
            print,
            report_at: watchdog.is_some().then(Instant::now),
            watchdog,
            owes_report: false,
            has_failed: false,
        };
        for (index, listener) in service.listeners.iter_mut().enumerate() {
            let token = Token(LISTENERS + index);
            let registry = service.poll.registry();
            registry.register(listener, token, Interest::READABLE)?;
        }
        let thread = std::thread::Builder::new().name("metrics".into());
        let thread = thread.spawn(move || {
            // On Linux it concerns this thread alone. If it is refused, the priority stays.
            let _ = rustix::process::nice(NICE);
            if let Err(error) = service.run() {
                tracing::error!(%error, "metrics are not served any longer");
            }
        })?;
        Ok(Self {
            control,
            thread: Some(thread),
        })
    }

    /// Tells the thread what the server is doing.
    pub(crate) fn enter(&self, stage: Stage) {
        // Release: pairs with the Acquire in `stage`.
        self.control.stage.store(stage as u8, Ordering::Release);
        if stage == Stage::Ended
            && let Err(error) = self.control.waker.wake()
        {
            tracing::error!(%error, "the thread of the metrics cannot be woken");
        }
    }
}

impl Watchdog {
    fn tell(&self, stalled: &Stalled) {
        if stalled.is_empty() {
            (self.report)();
        } else {
            tracing::error!(
                ?stalled,
                "event loops do not answer, so the watchdog is not told"
            );
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.enter(Stage::Ended);
        // A panic of the thread has been reported, and concerns no other thread.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Control {
    fn stage(&self) -> Stage {
        // Acquire: pairs with the Release in `enter`, so what the server did before is seen.
        let stage = self.stage.load(Ordering::Acquire);
        let stages = [Stage::Starting, Stage::Serving, Stage::Stopping];
        let stage = stages.into_iter().find(|one| *one as u8 == stage);
        stage.unwrap_or(Stage::Ended)
    }
}

/// A connection with its one request.
struct Exchange {
    socket: TcpStream,
    phase: Phase,
    /// When the phase must have ended.
    deadline: Instant,
}

enum Phase {
    /// Receives the head of the request.
    Head(Vec<u8>),
    /// Waits for the verdict on the event loops; `has_body` is false for `HEAD`.
    Health { has_body: bool },
    /// Sends the reply; counts the bytes sent.
    Reply(Vec<u8>, usize),
    /// Has sent the reply, and waits for the client to close: a socket that is closed with unread
    /// bytes may lose the reply. Counts the bytes discarded.
    Close(usize),
}

/// What is to be done with a connection.
enum Next {
    /// It waits for its socket or for the verdict.
    Wait,
    /// The head has arrived.
    Route,
    End,
}

/// State of the thread.
struct Service {
    poll: Poll,
    listeners: Vec<TcpListener>,
    exchanges: Slab<Exchange>,
    control: Arc<Control>,
    health: Health,
    print: Print,
    watchdog: Option<Watchdog>,
    /// When the loops are asked for the watchdog.
    report_at: Option<Instant>,
    /// Whether the watchdog waits for the verdict of the round in progress.
    owes_report: bool,
    /// The system refused to accept a connection.
    has_failed: bool,
}

impl Service {
    fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(2 * MAX_EXCHANGES);
        while self.control.stage() != Stage::Ended {
            match self.poll.poll(&mut events, self.timeout()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in &events {
                self.step(event.token().0);
            }
            self.expire();
            self.ask_for_watchdog();
            self.settle();
            self.accept();
        }
        Ok(())
    }

    fn timeout(&self) -> Option<Duration> {
        let deadlines = self.exchanges.iter().map(|(_, exchange)| exchange.deadline);
        let now = Instant::now();
        let retry = self.has_failed.then(|| now + RETRY);
        let own = [self.health.deadline(), self.report_at, retry];
        let next = deadlines.chain(own.into_iter().flatten()).min();
        // The poller rounds to milliseconds.
        next.map(|next| next.saturating_duration_since(now) + Duration::from_millis(1))
    }

    /// Accepts connections while there is room. Others wait in the kernel's queue.
    fn accept(&mut self) {
        self.has_failed = false;
        for index in 0..self.listeners.len() {
            while self.exchanges.len() < MAX_EXCHANGES {
                match self.listeners[index].accept() {
                    Ok((socket, _)) => self.begin(socket),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => {
                        tracing::debug!(%error, "a connection for metrics could not be accepted");
                        self.has_failed = true;
                        break;
                    }
                }
            }
        }
    }

    fn begin(&mut self, mut socket: TcpStream) {
        let entry = self.exchanges.vacant_entry();
        let token = Token(entry.key());
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        if let Err(error) = registry.register(&mut socket, token, interest) {
            tracing::debug!(%error, "a connection for metrics could not be registered");
            return;
        }
        // The first event tells that the socket is writable.
        entry.insert(Exchange {
            socket,
            phase: Phase::Head(Vec::new()),
            deadline: Instant::now() + PHASE,
        });
    }

    /// Serves a connection until its socket makes it wait.
    fn step(&mut self, key: usize) {
        while let Some(exchange) = self.exchanges.get_mut(key) {
            match exchange.advance() {
                Next::Wait => return,
                Next::Route => self.route(key),
                Next::End => {
                    self.exchanges.remove(key);
                }
            }
        }
    }

    /// Decides about a request whose head has arrived.
    fn route(&mut self, key: usize) {
        let exchange = &mut self.exchanges[key];
        let Phase::Head(head) = &exchange.phase else {
            return;
        };
        let has_body = !head.starts_with(b"HEAD ");
        let reply = match parse(head) {
            Err(reply) => reply,
            Ok(Page::Metrics(format)) => Reply {
                status: "200 OK",
                content_type: format.content_type(),
                text: (self.print)(format),
            },
            Ok(Page::Ready) => ready(self.control.stage()),
            Ok(Page::Health) => match self.health.ask(Instant::now()) {
                Some(stalled) => verdict(stalled, self.control.stage()),
                None => {
                    // The round ends earlier.
                    exchange.enter(Phase::Health { has_body }, 2 * ANSWER_IN);
                    return;
                }
            },
        };
        exchange.reply(&reply, has_body);
    }

    /// Asks the loops for the watchdog if it is time to.
    fn ask_for_watchdog(&mut self) {
        let now = Instant::now();
        let Some(watchdog) = &self.watchdog else {
            return;
        };
        if self.report_at.is_some_and(|at| at > now) {
            return;
        }
        self.report_at = Some(now + watchdog.every);
        match self.health.ask(now) {
            Some(stalled) => watchdog.tell(stalled),
            None => self.owes_report = true,
        }
    }

    /// Answers the connections, and the watchdog, that wait for the verdict if there is one now.
    fn settle(&mut self) {
        let Some(stalled) = self.health.settle(Instant::now()) else {
            return;
        };
        if std::mem::take(&mut self.owes_report)
            && let Some(watchdog) = &self.watchdog
        {
            watchdog.tell(stalled);
        }
        let reply = verdict(stalled, self.control.stage());
        let mut answered = Vec::new();
        for (key, exchange) in &mut self.exchanges {
            if let Phase::Health { has_body } = exchange.phase {
                exchange.reply(&reply, has_body);
                answered.push(key);
            }
        }
        answered.into_iter().for_each(|key| self.step(key));
    }

    /// Ends the connections whose time is over. One that is in the middle of its request is told.
    /// First serves what has arrived: where the CPUs are busy, it is this thread that is late.
    fn expire(&mut self) {
        let now = Instant::now();
        let late = self.exchanges.iter().filter(|(_, e)| e.deadline <= now);
        let late: Vec<usize> = late.map(|(key, _)| key).collect();
        for key in late {
            self.step(key);
            let Some(exchange) = self.exchanges.get_mut(key) else {
                continue;
            };
            if exchange.deadline > now {
                continue;
            }
            match &exchange.phase {
                Phase::Head(head) if !head.is_empty() => {
                    let text = "the request did not arrive within a second";
                    let has_body = !head.starts_with(b"HEAD ");
                    exchange.reply(&Reply::plain("408 Request Timeout", text), has_body);
                    self.step(key);
                }
                _ => {
                    self.exchanges.remove(key);
                }
            }
        }
    }
}

impl Exchange {
    fn enter(&mut self, phase: Phase, time: Duration) {
        self.phase = phase;
        self.deadline = Instant::now() + time;
    }

    fn reply(&mut self, reply: &Reply, has_body: bool) {
        self.enter(Phase::Reply(reply.bytes(has_body), 0), REPLY);
    }

    /// Receives and sends what the socket allows.
    fn advance(&mut self) -> Next {
        loop {
            let result = match &mut self.phase {
                Phase::Head(head) => {
                    let mut piece = [0; 1_024];
                    let room = piece.len().min(MAX_HEAD - head.len());
                    match self.socket.read(&mut piece[..room]) {
                        Ok(0) => return Next::End,
                        Ok(n) => {
                            head.extend_from_slice(&piece[..n]);
                            if is_complete(head, n) || head.len() == MAX_HEAD {
                                return Next::Route;
                            }
                            Ok(())
                        }
                        Err(error) => Err(error),
                    }
                }
                Phase::Health { .. } => return Next::Wait,
                Phase::Reply(bytes, sent) => match self.socket.write(&bytes[*sent..]) {
                    Ok(n) => {
                        *sent += n;
                        if *sent == bytes.len() {
                            // A client that is gone shows at the next read.
                            let _ = self.socket.shutdown(Shutdown::Write);
                            self.enter(Phase::Close(0), PHASE);
                        }
                        Ok(())
                    }
                    Err(error) => Err(error),
                },
                Phase::Close(discarded) => match self.socket.read(&mut [0; 4_096]) {
                    Ok(n) if n > 0 && *discarded < MAX_DISCARDED => {
                        *discarded += n;
                        Ok(())
                    }
                    Ok(_) => return Next::End,
                    Err(error) => Err(error),
                },
            };
            match result {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Next::Wait,
                Err(_) => return Next::End,
            }
        }
    }
}

/// Whether a head ends in its last `n` bytes, with an empty line.
fn is_complete(head: &[u8], n: usize) -> bool {
    let from = head.len().saturating_sub(n + 3);
    let last = &head[from..];
    last.windows(2).any(|end| end == b"\n\n") || last.windows(3).any(|end| end == b"\n\r\n")
}

/// What a request asks for.
#[derive(Debug, PartialEq)]
enum Page {
    Metrics(Format),
    Health,
    Ready,
}

/// A reply to a request.
#[derive(Debug, PartialEq)]
struct Reply {
    status: &'static str,
    content_type: &'static str,
    text: String,
}

impl Reply {
    /// A line of text.
    fn plain(status: &'static str, line: &str) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            text: format!("{line}\n"),
        }
    }

    fn bytes(&self, has_body: bool) -> Vec<u8> {
        let (status, kind, len) = (self.status, self.content_type, self.text.len());
        let allow = if status.starts_with("405") {
            "Allow: GET, HEAD\r\n"
        } else {
            ""
        };
        let body = if has_body { &*self.text } else { "" };
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\n{allow}\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n{body}"
        )
        .into_bytes()
    }
}

/// Parses the head of a request, or decides how to refuse it.
fn parse(head: &[u8]) -> Result<Page, Reply> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            let line = format!("a request has at most {MAX_HEAD} bytes and {MAX_FIELDS} fields");
            let status = "431 Request Header Fields Too Large";
            return Err(Reply::plain(status, &line));
        }
        Err(error) => {
            let line = format!("this is no request of HTTP/1.1: {error}");
            return Err(Reply::plain("400 Bad Request", &line));
        }
    }
    let field = |name: &str| {
        let mut fields = request.headers.iter();
        fields.find(|field| field.name.eq_ignore_ascii_case(name))
    };
    if request.version == Some(1) && field("host").is_none() {
        let line = "a request of HTTP/1.1 needs the field Host";
        return Err(Reply::plain("400 Bad Request", line));
    }
    let path = request.path.unwrap_or_default();
    let page = match path.split(['?', '#']).next().unwrap_or_default() {
        "/metrics" => {
            let accept = field("accept").map_or(&b""[..], |field| field.value);
            Page::Metrics(Format::preferred(&String::from_utf8_lossy(accept)))
        }
        "/healthz" => Page::Health,
        "/readyz" => Page::Ready,
        _ => {
            let line = "there is nothing here: try /metrics, /healthz or /readyz";
            return Err(Reply::plain("404 Not Found", line));
        }
    };
    if !matches!(request.method, Some("GET" | "HEAD")) {
        let line = "this page can be read only: use GET or HEAD";
        return Err(Reply::plain("405 Method Not Allowed", line));
    }
    Ok(page)
}

fn ready(stage: Stage) -> Reply {
    match stage {
        Stage::Serving => Reply::plain("200 OK", "ready"),
        Stage::Starting => Reply::plain("503 Service Unavailable", "starting"),
        Stage::Stopping | Stage::Ended => Reply::plain("503 Service Unavailable", "stopping"),
    }
}

/// The reply about the event loops. A loop that has ended because the server stops is well.
fn verdict(stalled: &Stalled, stage: Stage) -> Reply {
    let is_stopping = matches!(stage, Stage::Stopping | Stage::Ended);
    if stalled.is_empty() || is_stopping {
        return Reply::plain("200 OK", "ok");
    }
    let numbers: Vec<String> = stalled.iter().map(usize::to_string).collect();
    let line = format!(
        "no answer within a second from event loop {}",
        numbers.join(", ")
    );
    Reply::plain("503 Service Unavailable", &line)
}
