//! Turns of an event loop over a fake engine: what clients may rely on, wherever the engine
//! completes their operations.
//!
//! Each test drives the loop by hand, one turn at a time, over socket pairs whose buffers hold a
//! few KiB.

use super::*;
use crate::buffer_accounting::{LARGE_VALUE as LARGE, OUTPUT_PAUSE, TAKES_NOTHING_MS};
use crate::conn::WAIT_MS;
use crate::fake_engine::{Completion, Fake};
use crate::shared::BATCH;
use corewise_engine::{SystemClock, TimeSource};
use corewise_wire::memcached::{self, reply};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

mod binary;
mod budget;
mod clock;
mod cphash;
mod late;
mod reply_room;
mod resp;
mod same_answer;
mod unfinished;

/// Bytes of the buffer of a socket, about.
const SOCKET_BYTES: usize = 4 << 10;

/// A server whose engine completes operations when they are submitted.
type TestServer = Server<false>;

struct Server<const LATE: bool> {
    event_loop: EventLoop<Fake<LATE>>,
    engine: Arc<Fake<LATE>>,
    inbox: Arc<Inbox>,
    events: Events,
    now: Now,
    /// Where the accepting thread would wait.
    _poll: Poll,
}

impl TestServer {
    fn new() -> Self {
        Self::with(Config::default())
    }

    fn with(config: Config) -> Self {
        Self::on(Arc::new(SystemClock::new()), Completion::InSubmit, config)
    }
}

impl<const LATE: bool> Server<LATE> {
    fn completing(completion: Completion) -> Self {
        Self::on(Arc::new(SystemClock::new()), completion, Config::default())
    }

    /// A server with this clock, which a test moves.
    fn on(clock: Arc<dyn TimeSource>, completion: Completion, config: Config) -> Self {
        let config = Config {
            threads: 1,
            memory: 64 << 20,
            ..config
        };
        let poll = Poll::new().unwrap();
        let waker = Waker::new(poll.registry(), WAKE).unwrap();
        let mut shared = crate::server::share(config, None, waker);
        shared.clock = clock;
        let shared = Arc::new(shared);
        let engine = Fake::new(completion);
        let now = shared.clock.now();
        let (mut event_loop, inbox) = EventLoop::new(0, shared, Arc::clone(&engine)).unwrap();
        event_loop.budget.clock = Box::new(|| Duration::ZERO);
        Self {
            event_loop,
            engine,
            inbox,
            events: Events::with_capacity(EVENTS),
            now,
            _poll: poll,
        }
    }

    fn connect(&mut self) -> Client {
        let asks_for_users = self.event_loop.shared.asks_for_users();
        self.connect_with(memcached::Codec::new(asks_for_users))
    }

    fn connect_with(&mut self, codec: impl Into<Codec>) -> Client {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        socket2::SockRef::from(&ours)
            .set_send_buffer_size(SOCKET_BYTES)
            .unwrap();
        let transport = Transport::from(OwnedFd::from(ours));
        let listener = Some("unix:test".to_owned());
        let info = ConnInfo::new(
            transport.fd(),
            "unix:test".to_owned(),
            listener,
            self.now.ms,
        );
        // Relaxed: one thread.
        self.event_loop.shared.loops[0]
            .connections
            .fetch_add(1, Ordering::Relaxed);
        let info = Arc::new(info);
        let pending = PendingConnection {
            transport,
            info,
            codec: codec.into(),
        };
        assert!(self.inbox.send(pending).is_ok());
        self.turn();
        Client {
            stream: theirs,
            is_closed: false,
        }
    }

    /// Serves what has arrived.
    fn turn(&mut self) {
        let no_wait = Some(Duration::ZERO);
        self.event_loop.wait(&mut self.events, no_wait).unwrap();
        self.event_loop.serve(&self.events, self.now);
    }

    /// Sends `request` and returns all replies, once nothing more happens.
    fn talk(&mut self, client: &mut Client, request: &[u8]) -> String {
        String::from_utf8(self.talk_bytes(client, request)).unwrap()
    }

    fn talk_bytes(&mut self, client: &mut Client, request: &[u8]) -> Vec<u8> {
        let (mut sent, mut replies) = (0, Vec::new());
        for _ in 0..100_000 {
            let more = client.send_some(&request[sent..]);
            sent += more;
            self.turn();
            let before = replies.len();
            client.take(&mut replies);
            let is_idle = self.event_loop.ready.is_empty() && self.event_loop.dumping.is_empty();
            let is_sent = sent == request.len() || client.is_closed;
            if is_idle && is_sent && more == 0 && replies.len() == before {
                return replies;
            }
        }
        panic!("the server answers and answers");
    }

    fn counters(&self) -> Counters {
        self.event_loop.counters
    }

    fn executed(&self) -> Vec<String> {
        self.engine.script.lock().executed.clone()
    }

    fn set(&self, key: &str, value: &[u8]) {
        self.engine.script.lock().set(key, value);
    }

    /// Fills the buffers of all sockets, and returns what each client will take first.
    fn fill_sockets(&mut self) -> String {
        let mut filled = 0;
        for (_, conn) in &mut self.event_loop.conns {
            filled = 0;
            while conn.transport.send(&mut [b".", &[], &[]]).is_ok() {
                filled += 1;
            }
        }
        ".".repeat(filled)
    }

    /// Bytes of replies that wait for sockets.
    fn waiting_bytes(&self) -> usize {
        let conns = self.event_loop.conns.iter();
        conns.map(|(_, conn)| conn.output.len()).sum()
    }
}

struct Client {
    stream: UnixStream,
    /// The server has closed the connection.
    is_closed: bool,
}

impl Client {
    #[track_caller]
    fn send(&mut self, bytes: &[u8]) {
        assert_eq!(self.send_some(bytes), bytes.len(), "the socket is full");
    }

    /// Sends what the socket takes.
    fn send_some(&mut self, bytes: &[u8]) -> usize {
        let mut sent = 0;
        while sent < bytes.len() {
            match self.stream.write(&bytes[sent..]) {
                Ok(n) => sent += n,
                Err(_) => break,
            }
        }
        sent
    }

    /// Takes what has arrived.
    fn take(&mut self, into: &mut Vec<u8>) {
        let mut part = [0; 16 << 10];
        loop {
            match self.stream.read(&mut part) {
                Ok(0) => {
                    self.is_closed = true;
                    return;
                }
                Ok(n) => into.extend_from_slice(&part[..n]),
                Err(_) => return,
            }
        }
    }

    fn taken(&mut self) -> String {
        let mut replies = Vec::new();
        self.take(&mut replies);
        String::from_utf8(replies).unwrap()
    }
}

fn hit(key: &str, value: &str) -> String {
    format!("VALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len())
}

fn ascii(bytes: &'static [u8]) -> &'static str {
    std::str::from_utf8(bytes).unwrap()
}

/// Compares texts of which it would not help to print megabytes.
#[track_caller]
fn assert_same(found: &str, expected: &str) {
    if found != expected {
        let pairs = found.bytes().zip(expected.bytes());
        let at = pairs.take_while(|(a, b)| a == b).count();
        let part = |text: &str| {
            text[at.min(text.len())..]
                .chars()
                .take(80)
                .collect::<String>()
        };
        let lengths = (found.len(), expected.len());
        let (found, expected) = (part(found), part(expected));
        panic!("they differ at byte {at} of {lengths:?}: {found:?} for {expected:?}");
    }
}

#[test]
fn replies_leave_in_the_order_of_the_requests() {
    let mut server = TestServer::new();
    let mut client = server.connect();
    let request = b"set a 0 0 1\r\n1\r\nget a\r\nbogus\r\nincr a 2\r\nmn\r\nget a b\r\n\
        verbosity 1\r\nincr a 1\r\ndelete a\r\nget a\r\nmn\r\n";
    let replies = server.talk(&mut client, request);
    let expected = "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\nERROR\r\n3\r\nMN\r\n\
        VALUE a 0 1\r\n3\r\nEND\r\nOK\r\n4\r\nDELETED\r\nEND\r\nMN\r\n";
    assert_eq!(replies, expected);
}

#[test]
fn a_turn_answers_more_requests_than_a_batch_holds() {
    const REQUESTS: usize = 3 * BATCH + 7;
    let mut server = TestServer::new();
    let mut client = server.connect();
    server.set("n", b"0");
    let request: String = (0..REQUESTS)
        .map(|i| format!("incr n 1\r\nbad{i}\r\n"))
        .collect();
    let expected: String = (1..=REQUESTS)
        .map(|n| format!("{n}\r\nERROR\r\n"))
        .collect();
    assert_same(&server.talk(&mut client, request.as_bytes()), &expected);
    assert_eq!(server.executed().len(), REQUESTS);
    // One line, which the codec returns key by key.
    let keys: String = (0..REQUESTS)
        .map(|i| format!(" {}", ["n", "x"][i % 2]))
        .collect();
    let replies = server.talk(&mut client, format!("get{keys}\r\n").as_bytes());
    let item = format!("VALUE n 0 3\r\n{REQUESTS}\r\n");
    assert_same(&replies, &(item.repeat(REQUESTS.div_ceil(2)) + "END\r\n"));
    assert!(server.counters().batches > 6);
}

#[test]
fn connections_that_are_ready_together_share_a_batch() {
    let mut server = TestServer::new();
    let mut clients: Vec<Client> = (0..10).map(|_| server.connect()).collect();
    for (i, client) in clients.iter_mut().enumerate() {
        client.send(format!("set k{i} 0 0 1\r\n{i}\r\nget k{i}\r\nbogus\r\n").as_bytes());
    }
    let before = server.counters();
    server.turn();
    let counters = server.counters();
    assert_eq!(counters.turns, before.turns + 1);
    assert_eq!(counters.batches, before.batches + 1);
    assert_eq!(counters.operations, before.operations + 20);
    for (i, client) in clients.iter_mut().enumerate() {
        let expected = format!(
            "STORED\r\n{}ERROR\r\n",
            hit(&format!("k{i}"), &i.to_string())
        );
        assert_eq!(client.taken(), expected);
    }
}

/// A pipeline that counts and reads a value of `bytes` bytes, and its replies.
fn count_and_read(times: usize, bytes: usize) -> (String, String) {
    let value = hit("v", &"v".repeat(bytes));
    let replies = (1..=times).map(|n| format!("{n}\r\n{value}")).collect();
    ("incr n 1\r\nget v\r\n".repeat(times), replies)
}

/// A client that reads nothing for a while, beside one that does.
fn slow_reader(bytes: usize) {
    const TIMES: usize = 60;
    let mut server = TestServer::new();
    server.set("n", b"0");
    server.set("v", "v".repeat(bytes).as_bytes());
    server.set("w", b"w");
    let (request, expected) = count_and_read(TIMES, bytes);
    let (mut before, mut slow, mut behind) = (server.connect(), server.connect(), server.connect());
    before.send(&b"get w\r\n".repeat(20));
    slow.send(format!("{request}quit\r\nincr n 1000\r\n").as_bytes());
    behind.send(&b"get w\r\n".repeat(20));
    server.turn();
    // The others are answered in the same turn.
    for client in [&mut before, &mut behind] {
        assert_eq!(client.taken(), hit("w", "w").repeat(20));
    }
    let (mut replies, mut turns) = (Vec::new(), 0);
    while !slow.is_closed {
        let bound = OUTPUT_PAUSE + bytes + 100;
        assert!(
            server.waiting_bytes() <= bound,
            "{}",
            server.waiting_bytes()
        );
        slow.take(&mut replies);
        server.turn();
        turns += 1;
        assert!(turns < 10_000);
    }
    assert_same(std::str::from_utf8(&replies).unwrap(), &expected);
    let executed = server.executed();
    let count = |name| executed.iter().filter(|op| *op == name).count();
    let counts = (count("arith n"), count("get v"), count("get w"));
    assert_eq!(counts, (TIMES, TIMES, 40));
}

#[test]
fn a_slow_reader_delays_nobody_and_loses_nothing() {
    slow_reader(LARGE - 1);
}

#[test]
fn large_values_for_a_slow_reader_delay_nobody_and_lose_nothing() {
    slow_reader(LARGE);
}

/// Its input then lies in a separate buffer: the arena of a loop does not hold it.
#[test]
fn a_slow_reader_may_have_sent_more_than_one_read_takes() {
    const REQUESTS: usize = 5_000;
    let mut server = TestServer::new();
    server.set("n", b"0");
    server.set("v", &[b'v'; 900]);
    let mut client = server.connect();
    let (request, expected) = count_and_read(REQUESTS, 900);
    let sent = client.send_some(request.as_bytes());
    assert!(sent > SLICE);
    for _ in 0..100 {
        server.turn();
    }
    let most = OUTPUT_PAUSE / 900 + 3;
    assert!(
        server.executed().len() <= 2 * most,
        "{}",
        server.executed().len()
    );
    let replies = server.talk(&mut client, &request.as_bytes()[sent..]);
    assert_same(&replies, &expected);
    assert_eq!(server.executed().len(), 2 * REQUESTS);
}

#[test]
fn an_unfinished_request_does_not_hold_back_those_before_it() {
    let mut server = TestServer::new();
    server.set("n", b"0");
    server.set("v", &[b'v'; LARGE]);
    let mut client = server.connect();
    let (request, expected) = count_and_read(10, LARGE);
    let unfinished = format!("{request}set v 0 0 10000\r\n");
    assert_same(&server.talk(&mut client, unfinished.as_bytes()), &expected);
    let rest = "w".repeat(10_000) + "\r\n";
    let stored = server.talk(&mut client, rest.as_bytes());
    assert_eq!(stored, "STORED\r\n");
}

#[test]
fn a_multiget_goes_on_where_its_socket_was_full() {
    const KEYS: usize = 40;
    let mut server = TestServer::new();
    let mut client = server.connect();
    let mut expected = String::new();
    let mut line = "gets".to_owned();
    for i in 0..KEYS {
        let value = format!("{i:02}").repeat(LARGE / 2);
        let key = format!("k{i}");
        server.set(&key, value.as_bytes());
        let cas = server.engine.script.lock().model.items[key.as_bytes()].cas;
        line += &format!(" {key} missing");
        expected += &format!("VALUE {key} 0 {} {cas}\r\n{value}\r\n", value.len());
    }
    line += "\r\nmn\r\n";
    expected += "END\r\nMN\r\n";
    assert_same(&server.talk(&mut client, line.as_bytes()), &expected);
    assert_eq!(server.executed().len(), 2 * KEYS);
}

#[test]
fn an_error_does_not_disturb_its_neighbours() {
    let no_memory = ascii(reply::OUT_OF_MEMORY_STORING);
    let long_key = "k".repeat(251);
    let steps: [(String, &str); 9] = [
        ("set a 0 0 1\r\n1\r\n".into(), "STORED\r\n"),
        ("set full 0 0 3\r\nabc\r\n".into(), no_memory),
        ("incr a 1\r\n".into(), "2\r\n"),
        (format!("get {long_key}\r\n"), ascii(reply::BAD_FORMAT)),
        ("set a 0 0 1\r\nabc".into(), ascii(reply::BAD_DATA_CHUNK)),
        ("incr a 1\r\n".into(), "3\r\n"),
        ("incr text 1\r\n".into(), ascii(reply::NON_NUMERIC)),
        ("nonsense\r\n".into(), "ERROR\r\n"),
        ("get a\r\n".into(), "VALUE a 0 1\r\n3\r\nEND\r\n"),
    ];
    let request: String = steps.iter().map(|(request, _)| request.as_str()).collect();
    let expected: String = steps.iter().map(|(_, reply)| *reply).collect();
    let mut server = TestServer::new();
    let mut client = server.connect();
    server.set("text", b"abc");
    server
        .engine
        .script
        .lock()
        .no_memory
        .insert(b"full".to_vec());
    assert_eq!(server.talk(&mut client, request.as_bytes()), expected);
    assert!(!client.is_closed);
}

#[test]
fn noreply_is_executed_and_not_answered() {
    let mut server = TestServer::new();
    let mut client = server.connect();
    let request = b"set a 0 0 1 noreply\r\n1\r\nincr a 1 noreply\r\nincr a 1\r\n\
        delete b noreply\r\nflush_all noreply\r\nget a\r\n";
    assert_eq!(server.talk(&mut client, request), "3\r\nEND\r\n");
    let executed = [
        "store a", "arith a", "arith a", "delete b", "flush", "get a",
    ];
    assert_eq!(server.executed(), executed);
}

#[test]
fn quit_closes_behind_the_replies_to_what_was_sent_before() {
    let mut server = TestServer::new();
    let (mut client, mut other) = (server.connect(), server.connect());
    client.send(b"set a 0 0 1\r\n1\r\nget a\r\nquit\r\nset a 0 0 1\r\n2\r\n");
    other.send(b"mn\r\n");
    server.turn();
    assert_eq!(client.taken(), format!("STORED\r\n{}", hit("a", "1")));
    assert!(client.is_closed);
    assert_eq!(server.executed(), ["store a", "get a"]);
    assert_eq!(other.taken(), "MN\r\n");
    assert!(!other.is_closed);
}

#[test]
fn shutdown_is_the_last_request_of_its_connection() {
    let config = Config {
        enable_shutdown: true,
        ..Config::default()
    };
    let mut server = TestServer::with(config);
    let mut client = server.connect();
    let replies = server.talk(
        &mut client,
        b"set a 0 0 1\r\n1\r\nshutdown\r\nset a 0 0 1\r\n2\r\n",
    );
    assert_eq!(replies, "STORED\r\n");
    assert!(client.is_closed && server.event_loop.shared.is_stopping());
    assert_eq!(server.executed(), ["store a"]);
}

/// The accepting thread may still be handing over connections when another thread stops the server.
#[test]
fn a_loop_ends_only_when_no_more_connections_come() {
    let mut server = TestServer::new();
    server.event_loop.shared.stop();
    server.inbox.waker.wake().unwrap();
    server.turn();
    assert!(!server.event_loop.is_drained(server.now));
    let mut client = server.connect();
    client.send(b"mn\r\n");
    server.inbox.close();
    server.turn();
    assert_eq!(client.taken(), "MN\r\n");
    assert!(!server.event_loop.is_drained(server.now));
    server.now.ms += QUIET_MS;
    server.event_loop.drain(server.now);
    assert!(server.event_loop.is_drained(server.now));
}

/// Otherwise items that expire on a server without clients would stay.
#[test]
fn one_loop_wakes_for_upkeep_without_connections() {
    let mut server = TestServer::new();
    let often = Some(Duration::from_millis(SWEEP_EVERY_MS));
    assert_eq!(server.event_loop.timeout(false), often);
    server.event_loop.index = 1;
    assert_eq!(server.event_loop.timeout(false), None);
    server.event_loop.index = 0;
}

#[test]
fn a_loop_that_loses_its_poller_ends_with_an_error() {
    let server = TestServer::new();
    let other = std::fs::File::open("/dev/null").unwrap();
    let poller = server.event_loop.poll.as_raw_fd();
    // SAFETY: both descriptors are open and stay open. That of the poller, which the loop owns,
    // names another file from now on.
    assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), poller) }, poller);
    assert!(server.event_loop.run().is_err());
}

#[test]
fn a_command_for_the_server_takes_effect_between_its_neighbours() {
    let mut server = TestServer::new();
    let (mut client, mut other) = (server.connect(), server.connect());
    let request = b"set a 0 0 1\r\n1\r\nflush_all\r\nget a\r\nset a 0 0 1\r\n2\r\nget a\r\n";
    let expected = format!("STORED\r\nOK\r\nEND\r\nSTORED\r\n{}", hit("a", "2"));
    assert_eq!(server.talk(&mut client, request), expected);
    let executed = ["store a", "flush", "get a", "store a", "get a"];
    assert_eq!(server.executed(), executed);
    // The replies of a turn to several connections stay apart.
    client.send(b"get a\r\n");
    other.send(b"verbosity 1\r\nget b\r\n");
    server.turn();
    assert_eq!(client.taken(), hit("a", "2"));
    assert_eq!(other.taken(), "OK\r\nEND\r\n");
}

#[test]
fn a_dump_ends_before_the_next_request_is_executed() {
    let mut server = TestServer::new();
    let mut client = server.connect();
    let request = b"set a 0 0 1\r\n1\r\nlru_crawler mgdump all\r\nset b 0 0 1\r\n2\r\n";
    let replies = server.talk(&mut client, request);
    assert_eq!(replies, "STORED\r\nmg a\r\nEN\r\nSTORED\r\n");
}

/// Their replies are many times longer than they are.
#[test]
fn unread_statistics_are_bounded() {
    const REQUESTS: usize = 1_500;
    let mut server = TestServer::new();
    let mut client = server.connect();
    client.send(&b"stats\r\n".repeat(REQUESTS));
    server.turn();
    let waiting = server.waiting_bytes();
    assert!(waiting <= OUTPUT_PAUSE + (16 << 10), "{waiting} bytes");
    let replies = server.talk(&mut client, b"mn\r\n");
    assert_eq!(replies.matches("END\r\n").count(), REQUESTS);
    assert!(replies.ends_with("END\r\nMN\r\n"));
}

#[test]
fn a_client_that_is_gone_harms_no_other() {
    let mut server = TestServer::new();
    server.set("v", &[b'v'; LARGE]);
    let (mut gone, mut other) = (server.connect(), server.connect());
    gone.send(&b"get v\r\n".repeat(50));
    other.send(b"get a\r\nmn\r\n");
    drop(gone);
    server.turn();
    assert_eq!(other.taken(), "END\r\nMN\r\n");
    server.turn();
    assert_eq!(server.event_loop.conns.len(), 1);
}

/// A value that is received in place if the engine reserves memory for it.
fn long_value() -> String {
    "0123456789".repeat(10_000)
}

#[test]
fn a_large_value_is_received_in_place() {
    let mut server = TestServer::new();
    let (mut client, mut other) = (server.connect(), server.connect());
    let value = long_value();
    client.send(b"get v\r\nset v 0 0 100000\r\n");
    client.send(&value.as_bytes()[..50_000]);
    server.turn();
    assert_eq!(client.taken(), "END\r\n");
    assert_eq!(server.engine.reservations(), 1);
    assert_eq!(server.talk(&mut other, b"get v\r\n"), "END\r\n");
    // Read back in the turn that stores it: `STORED` must leave first.
    let rest = format!("{}\r\nget v\r\nmn\r\n", &value[50_000..]);
    let replies = server.talk(&mut client, rest.as_bytes());
    assert_same(&replies, &format!("STORED\r\n{}MN\r\n", hit("v", &value)));
    assert_eq!(server.engine.reservations(), 0);
    assert_eq!(server.engine.script.lock().stored_reserved, 1);
    assert_eq!(server.executed(), ["get v", "get v", "store v", "get v"]);
}

#[test]
fn a_store_whose_reply_waits_delays_the_requests_behind_it() {
    let mut server = TestServer::new();
    let mut client = server.connect();
    let value = long_value();
    client.send(format!("set v 0 0 100000\r\n{}", &value[1..]).as_bytes());
    server.turn();
    let filler = server.fill_sockets();
    client.send(format!("{}\r\nget v\r\n", &value[..1]).as_bytes());
    server.turn();
    assert_eq!(server.executed(), ["store v"]);
    let rotated = format!("{}{}", &value[1..], &value[..1]);
    let expected = format!("{filler}STORED\r\n{}", hit("v", &rotated));
    assert_same(&server.talk(&mut client, b""), &expected);
}

#[test]
fn values_of_several_connections_may_be_complete_in_one_turn() {
    let mut server = TestServer::new();
    let mut clients: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    let value = "x".repeat(LARGE);
    for (i, client) in clients.iter_mut().enumerate() {
        client.send(format!("set v{i} 0 0 {LARGE}\r\n{}", &value[1..]).as_bytes());
    }
    server.turn();
    assert_eq!(server.engine.reservations(), 3);
    for (i, client) in clients.iter_mut().enumerate() {
        client.send(format!("x\r\nget v{i} v{i}\r\n").as_bytes());
    }
    server.turn();
    let stored = server.engine.script.lock().stored_reserved;
    assert_eq!(stored, 3);
    for (i, client) in clients.iter_mut().enumerate() {
        let item = format!("VALUE v{i} 0 {LARGE}\r\n{value}\r\n");
        let expected = format!("STORED\r\n{item}{item}END\r\n");
        assert_same(&server.talk(client, b""), &expected);
    }
}

/// Where a request is cut makes no difference, nor whether values are received in place.
#[test]
fn a_value_is_answered_alike_in_place_and_copied() {
    let value = long_value();
    let (stored, read_back) = ("STORED\r\n", hit("v", &value));
    let bad = ascii(reply::BAD_DATA_CHUNK);
    let set = format!("set v 0 0 {}", value.len());
    let no_memory = ascii(reply::OUT_OF_MEMORY_STORING);
    let cases: [(String, String); 6] = [
        (
            format!("{set}\r\n{value}\r\nget v\r\n"),
            format!("{stored}{read_back}"),
        ),
        (
            format!("{set} noreply\r\n{value}\r\nget v\r\n"),
            read_back.clone(),
        ),
        (
            format!("{set}\r\n{value}xxget v\r\n"),
            format!("{bad}END\r\n"),
        ),
        (
            format!("{set}\r\n{value}\rxget v\r\n"),
            format!("{bad}END\r\n"),
        ),
        (
            format!("set full 0 0 100000\r\n{value}\r\nget v\r\n"),
            format!("{no_memory}END\r\n"),
        ),
        (
            format!("add a 0 0 100000\r\n{value}\r\nget a\r\n"),
            format!("NOT_STORED\r\n{}", hit("a", "1")),
        ),
    ];
    for (request, expected) in &cases {
        let line = request.find('\n').unwrap() + 1;
        let end = line + value.len();
        for cut in [
            line - 2,
            line,
            line + 1,
            end - 1,
            end,
            end + 1,
            end + 2,
            end + 5,
        ] {
            for reserves in [true, false] {
                let mut server = TestServer::new();
                let mut client = server.connect();
                server.set("a", b"1");
                let mut script = server.engine.script.lock();
                script.reserves = reserves;
                script.no_memory.insert(b"full".to_vec());
                drop(script);
                let (first, second) = request.as_bytes().split_at(cut);
                let mut replies = server.talk(&mut client, first);
                replies += &server.talk(&mut client, second);
                assert_same(&replies, expected);
                assert_eq!(server.engine.reservations(), 0);
            }
        }
    }
}

#[test]
fn a_value_over_the_limit_is_refused_and_skipped() {
    let config = Config {
        max_item_size: 50_000,
        ..Config::default()
    };
    let value = long_value();
    let mut server = TestServer::with(config.clone());
    let mut client = server.connect();
    server.set("v", b"old");
    let request = format!("set v 0 0 100000\r\n{value}\r\nget v\r\nmn\r\n");
    let replies = server.talk(&mut client, request.as_bytes());
    // The old value goes, too: its owner meant to overwrite it.
    assert_eq!(replies, format!("{}END\r\nMN\r\n", ascii(reply::TOO_LARGE)));
    assert_eq!(server.executed(), ["delete v", "get v"]);
}

#[test]
fn a_value_for_which_connections_have_no_memory_is_refused_and_skipped() {
    let config = Config {
        connection_memory: Some(FREE as u64),
        ..Config::default()
    };
    let value = long_value();
    let mut server = TestServer::with(config.clone());
    let mut client = server.connect();
    server.engine.script.lock().reserves = false;
    server.set("v", b"old");
    let request = format!("set v 0 0 100000\r\n{value}\r\nget v\r\nmn\r\n");
    // It waits for memory; meanwhile the socket's buffer may fill up.
    client.send(&request.as_bytes()[..40_000]);
    for _ in 0..10 {
        server.turn();
    }
    assert_eq!(client.taken(), "");
    server.now.ms += WAIT_MS;
    let replies = server.talk(&mut client, &request.as_bytes()[40_000..]);
    let refused = ascii(reply::OUT_OF_MEMORY_READING);
    assert_eq!(replies, format!("{refused}END\r\nMN\r\n"));
    assert_eq!(server.executed(), ["delete v", "get v"]);
}

#[test]
fn a_value_is_discarded_if_its_client_disconnects() {
    for reserves in [true, false] {
        let mut server = TestServer::new();
        server.engine.script.lock().reserves = reserves;
        let mut client = server.connect();
        client.send(b"get a\r\nset v 0 0 100000\r\n0123456789");
        server.turn();
        assert_eq!(server.engine.reservations(), usize::from(reserves));
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        server.turn();
        server.turn();
        assert_eq!(client.taken(), "END\r\n");
        assert!(client.is_closed);
        assert_eq!(server.engine.reservations(), 0);
        assert_eq!(server.executed(), ["get a"]);
    }
}
