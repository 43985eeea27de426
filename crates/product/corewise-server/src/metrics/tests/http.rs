use super::super::http::{Responder, Stage, Watchdog};
use super::*;
use crate::event_loop::{EventLoop, Inbox};
use crate::front::Loops;
use mio::net::TcpListener;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A responder, and where it listens.
struct Site {
    responder: Responder,
    address: SocketAddr,
}

impl Site {
    /// With a page of metrics of this length.
    fn with(inboxes: Vec<Arc<Inbox>>, len: usize) -> Self {
        Self::watched(inboxes, len, None)
    }

    fn watched(inboxes: Vec<Arc<Inbox>>, len: usize, watchdog: Option<Watchdog>) -> Self {
        let listener = TcpListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let print = move |format| format!("{format:?}{}", "x".repeat(len));
        let responder =
            Responder::start(vec![listener], inboxes, Box::new(print), watchdog).unwrap();
        Self { responder, address }
    }

    fn serving() -> Self {
        let site = Self::with(Vec::new(), 0);
        site.responder.enter(Stage::Serving);
        site
    }

    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    /// What is answered to these bytes.
    fn ask(&self, bytes: &[u8]) -> String {
        let mut socket = self.connect();
        socket.write_all(bytes).unwrap();
        read(socket)
    }

    fn get(&self, path: &str) -> String {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
    }
}

fn read(mut socket: TcpStream) -> String {
    let mut reply = String::new();
    socket.read_to_string(&mut reply).unwrap();
    reply
}

/// The status of a reply whose framing is right.
fn status(reply: &str) -> &str {
    let (head, body) = reply.split_once("\r\n\r\n").expect(reply);
    let len = format!("Content-Length: {}", body.len());
    assert!(head.lines().any(|line| line == len), "{reply}");
    assert!(head.contains("\r\nConnection: close"), "{reply}");
    let status = head.strip_prefix("HTTP/1.1 ").expect(reply);
    status.split(' ').next().unwrap()
}

#[test]
fn each_request_gets_its_status() {
    let site = Site::serving();
    for (request, expected) in [
        ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "200"),
        ("GET /metrics?a=b HTTP/1.1\r\nhost: a\r\n\r\n", "200"),
        ("GET /metrics HTTP/1.0\r\n\r\n", "200"),
        ("GET /metrics HTTP/1.0\n\n", "200"),
        ("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", "200"),
        ("GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n", "200"),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "404"),
        ("GET /metricsx HTTP/1.1\r\nHost: a\r\n\r\n", "404"),
        ("GET /../metrics HTTP/1.1\r\nHost: a\r\n\r\n", "404"),
        ("DELETE /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "405"),
        (
            "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
            "405",
        ),
        ("GET /metrics HTTP/1.1\r\n\r\n", "400"),
        ("get a\r\n\r\n", "400"),
        ("\x16\x03\x01\0\n\r\n", "400"),
        ("GET /metrics HTTP/1.1\r\nHost : a\r\n\r\n", "400"),
    ] {
        let reply = site.ask(request.as_bytes());
        assert_eq!(status(&reply), expected, "{request:?}: {reply}");
        assert_eq!(
            reply.contains("\r\nAllow: GET, HEAD\r\n"),
            expected == "405"
        );
    }
    let fields = "a: b\r\n".repeat(65);
    let many = format!("GET /metrics HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    assert_eq!(status(&site.ask(many.as_bytes())), "431");
    // Longer than a head may be, also without an end of the line.
    let long = format!(
        "GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n",
        "a".repeat(9_000)
    );
    assert_eq!(status(&site.ask(long.as_bytes())), "431");
    assert_eq!(status(&site.ask(&[b'a'; 9_000])), "431");
}

#[test]
fn head_is_answered_like_get_without_the_body() {
    let site = Site::serving();
    for path in ["/metrics", "/healthz", "/readyz", "/nothing"] {
        let get = site.get(path);
        let head = site.ask(format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        let (expected, body) = get.split_once("\r\n\r\n").unwrap();
        assert!(!body.is_empty());
        assert_eq!(head, format!("{expected}\r\n\r\n"));
    }
}

#[test]
fn the_format_is_negotiated() {
    let site = Site::serving();
    let accept = "Accept: application/openmetrics-text";
    let open = format!("GET /metrics HTTP/1.1\r\nHost: a\r\n{accept}\r\n\r\n");
    let open = site.ask(open.as_bytes());
    let kind = "\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
    assert!(
        open.contains(kind) && open.ends_with("OpenMetrics"),
        "{open}"
    );
    let text = site.get("/metrics");
    let kind = "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n";
    assert!(text.contains(kind) && text.ends_with("Text"), "{text}");
}

#[test]
fn the_server_is_ready_while_it_accepts() {
    let site = Site::with(Vec::new(), 0);
    let expect = |expected, word| {
        let reply = site.get("/readyz");
        assert_eq!(status(&reply), expected);
        assert!(reply.ends_with(&format!("\r\n\r\n{word}\n")), "{reply}");
    };
    expect("503", "starting");
    site.responder.enter(Stage::Serving);
    expect("200", "ready");
    site.responder.enter(Stage::Stopping);
    expect("503", "stopping");
}

#[test]
fn loops_that_run_are_healthy() {
    let server = Server::new();
    let shared = Arc::new(server.shared);
    let mut loops = Loops::start(&shared, &server.engine).unwrap();
    let site = Site::with(loops.inboxes.clone(), 0);
    site.responder.enter(Stage::Serving);
    for _ in 0..3 {
        assert_eq!(status(&site.get("/healthz")), "200");
    }
    // Once the server stops, loops that have ended are no fault.
    site.responder.enter(Stage::Stopping);
    loops.join().unwrap();
    std::thread::sleep(Duration::from_millis(1_100));
    assert_eq!(status(&site.get("/healthz")), "200");
}

/// A loop is stalled in its engine, whose lock is held. It is the first one, which needs the engine
/// for upkeep too.
#[test]
fn a_stalled_loop_is_named_and_others_are_served_meanwhile() {
    let server = Server::new();
    let shared = Arc::new(server.shared);
    let engine = &server.engine;
    let loops = Loops::start(&shared, engine).unwrap();
    let site = Site::with(loops.inboxes.clone(), 0);
    site.responder.enter(Stage::Serving);
    assert_eq!(status(&site.get("/healthz")), "200");
    let script = engine.script.lock();
    let (mut client, socket) = std::os::unix::net::UnixStream::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
    let info = crate::shared::ConnInfo::new(fd, String::new(), Some(String::new()), 0);
    let pending = crate::event_loop::PendingConnection {
        transport: std::os::fd::OwnedFd::from(socket).into(),
        info: Arc::new(info),
        codec: (crate::ProtocolKind::Memcached.facts().codec)(
            true,
            crate::config::BindingProtocol::Auto,
        ),
    };
    assert!(loops.inboxes[0].send(pending).is_ok());
    client.write_all(b"get a\r\n").unwrap();
    // The verdict from before is repeated for a second.
    std::thread::sleep(Duration::from_millis(1_100));
    let mut waiting = site.connect();
    waiting
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let start = Instant::now();
    assert_eq!(status(&site.get("/readyz")), "200");
    assert!(
        start.elapsed() < Duration::from_millis(900),
        "it waited for the verdict"
    );
    let reply = read(waiting);
    assert_eq!(status(&reply), "503");
    assert!(reply.ends_with("from event loop 0\n"), "{reply}");
    drop(script);
    let mut answer = [0; 5];
    client.read_exact(&mut answer).unwrap();
    std::thread::sleep(Duration::from_millis(1_100));
    assert_eq!(status(&site.get("/healthz")), "200");
}

/// A loop that takes nothing from its inbox.
#[test]
fn questions_to_a_stalled_loop_do_not_pile_up() {
    let server = Server::new();
    let shared = Arc::new(server.shared);
    let (_stalled, inbox) = EventLoop::new(0, shared, server.engine).unwrap();
    let site = Site::with(vec![inbox], 0);
    site.responder.enter(Stage::Serving);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| assert_eq!(status(&site.get("/healthz")), "503"));
        }
    });
    // They share a round, and what follows repeats its verdict.
    assert_eq!(status(&site.get("/healthz")), "503");
    assert!(start.elapsed() < Duration::from_millis(1_900));
}

#[test]
fn slow_and_silent_clients_are_closed_and_delay_others_by_seconds_at_most() {
    let site = Site::serving();
    // More than are open at a time.
    let silent: Vec<TcpStream> = (0..12).map(|_| site.connect()).collect();
    let mut half = site.connect();
    half.write_all(b"GET /metrics HT").unwrap();
    let start = Instant::now();
    assert_eq!(status(&site.get("/metrics")), "200");
    assert!(start.elapsed() < Duration::from_secs(10));
    for mut socket in silent {
        assert_eq!(socket.read(&mut [0]).unwrap(), 0);
    }
    assert_eq!(status(&read(half)), "408");
}

#[test]
fn a_request_may_arrive_byte_by_byte() {
    let site = Site::serving();
    let mut socket = site.connect();
    socket.set_nodelay(true).unwrap();
    for byte in b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n" {
        socket.write_all(&[*byte]).unwrap();
    }
    assert_eq!(status(&read(socket)), "200");
}

#[test]
fn a_client_that_reads_nothing_is_closed() {
    const LEN: usize = 64 << 20;
    let site = Site::with(Vec::new(), LEN);
    let length_read_after = |seconds| {
        let mut slow = site.connect();
        slow.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        std::thread::sleep(Duration::from_secs(seconds));
        let mut reply = Vec::new();
        let _ = slow.read_to_end(&mut reply); // it may be reset
        reply.len()
    };
    // Nothing tells the client when it is closed, and a busy server begins late.
    assert!(
        [5, 10, 20, 40]
            .into_iter()
            .any(|seconds| length_read_after(seconds) < LEN)
    );
    // One that reads gets all of it.
    assert_eq!(status(&site.get("/metrics")), "200");
}

#[test]
fn the_thread_ends_beside_open_connections() {
    let site = Site::with(Vec::new(), 64 << 20);
    let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut sockets = [(); 10].map(|()| site.connect());
    for socket in &mut sockets[..4] {
        socket.write_all(request).unwrap();
    }
    let start = Instant::now();
    let address = site.address;
    drop(site);
    assert!(start.elapsed() < Duration::from_millis(900));
    assert!(TcpStream::connect(address).is_err(), "it listens no longer");
}

#[test]
fn random_bytes_harm_nobody() {
    let site = Site::serving();
    let mut next = 1_u32;
    for _ in 0..200 {
        let mut socket = site.connect();
        let bytes: Vec<u8> = (0..300)
            .map(|_| {
                next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                b"GET /metrics HTTP/1.1\r\n\r\n:\0\xff "[(next >> 16) as usize % 29]
            })
            .collect();
        let _ = socket.write_all(&bytes); // it may be refused before its end
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let _ = socket.read(&mut [0; 100]);
    }
    assert_eq!(status(&site.get("/readyz")), "200");
}

/// A responder that reports to a watchdog, and the reports.
fn watched(inboxes: Vec<Arc<Inbox>>, every: Duration) -> (Site, mpsc::Receiver<()>) {
    let (sender, reports) = mpsc::channel();
    let watchdog = Watchdog {
        every,
        report: Box::new(move || sender.send(()).unwrap_or_default()), // the test may be over
    };
    (Site::watched(inboxes, 0, Some(watchdog)), reports)
}

#[test]
fn the_watchdog_is_told_only_while_all_loops_answer() {
    let server = Server::new();
    let shared = Arc::new(server.shared);
    let loops = Loops::start(&shared, &server.engine).unwrap();
    let (site, reports) = watched(loops.inboxes.clone(), Duration::from_millis(20));
    for _ in 0..3 {
        reports.recv_timeout(PATIENCE).unwrap();
    }
    drop(site);
    let (_stalled, inbox) = EventLoop::new(0, shared, server.engine).unwrap();
    let inboxes = loops.inboxes.iter().cloned();
    let (site, reports) = watched(inboxes.chain([inbox]).collect(), Duration::from_millis(20));
    site.responder.enter(Stage::Serving);
    // The watchdog waits for the same verdict.
    assert_eq!(status(&site.get("/healthz")), "503");
    assert_eq!(reports.try_recv(), Err(mpsc::TryRecvError::Empty));
}

/// The watchdog's next question is far away, so a late answer must count.
#[test]
fn a_loop_that_answers_late_is_reported_at_once() {
    let server = Server::new();
    let shared = Arc::new(server.shared);
    let (late, inbox) = EventLoop::new(0, shared, server.engine).unwrap();
    let (site, reports) = watched(vec![Arc::clone(&inbox)], Duration::from_secs(3_600));
    site.responder.enter(Stage::Serving);
    assert_eq!(status(&site.get("/healthz")), "503");
    assert_eq!(reports.try_recv(), Err(mpsc::TryRecvError::Empty));
    std::thread::scope(|scope| {
        scope.spawn(|| late.run().unwrap());
        let report = reports.recv_timeout(PATIENCE);
        let health = site.get("/healthz");
        inbox.close();
        report.unwrap();
        assert_eq!(status(&health), "200");
    });
}
