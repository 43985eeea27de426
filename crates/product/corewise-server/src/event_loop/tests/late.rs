//! Engines that complete operations later: clients see the same bytes as with one that completes
//! them at once, whatever becomes of the other clients meanwhile.

use super::*;
use crate::config::{BindingProtocol, ProtocolKind};
use crate::turn::{MOST_BYTES, MOST_OF_CONN, MOST_REPLIES};
use corewise_testkit::random::Random;
use corewise_wire::cphash::{self, KeyNumber};
use std::net::Shutdown;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

type LateServer = Server<true>;

/// How the engines of these tests complete operations.
const LATE: &[Completion] = &[
    Completion::InSubmit,
    later(1_000, 7, 0),
    later(3, 1, 2),
    later(1, 1, 0),
    later(10_000, 1_000, 5),
];

const fn later(queue: usize, at_once: usize, idle: usize) -> Completion {
    Completion::InPoll {
        queue,
        at_once,
        idle,
    }
}

/// A request of a protocol on the keys of one client.
fn request(protocol: ProtocolKind, random: &mut Random, client: usize, most: usize) -> Vec<u8> {
    let key = format!("{client}-{}", random.below(4));
    let other = format!("{client}-{}", random.below(4));
    let most = if random.below(8) == 0 { most } else { 20 };
    let len = 1 + random.index(most);
    let value = random.choose(&["x", "7"]).repeat(len);
    let number = KeyNumber::new(1 + client as u64 * 10 + random.below(4)).unwrap();
    let text = match protocol {
        ProtocolKind::Memcached => match random.below(12) {
            0 | 1 => format!("set {key} 3 0 {len}\r\n{value}\r\n"),
            2 => format!("incr {key} 2\r\n"),
            3 => format!("get {key} {other} missing\r\n"),
            4 => format!("delete {key} noreply\r\n"),
            5 => "nonsense\r\n".to_owned(),
            6 => format!("mg {key} Oopaque k f v t\r\n"),
            7 => format!("ms {key} {len} Oq T0\r\n{value}\r\n"),
            8 => "verbosity 1\r\n".to_owned(),
            9 => format!("append {key} 0 0 {len}\r\n{value}\r\n"),
            10 => format!("mg {key} v q\r\nmn\r\n"),
            _ => format!("get {key}\r\n"),
        },
        ProtocolKind::Resp => match random.below(11) {
            0 | 1 => format!("set {key} {value}\r\n"),
            2 => format!("incr {key}\r\n"),
            3 => format!("mget {key} {other} missing\r\n"),
            4 => format!("append {key} {value}\r\n"),
            5 => format!("expire {key} -1\r\n"),
            6 => format!("multi\r\nincr {key}\r\nget {other}\r\nexec\r\n"),
            7 => format!("exists {key} {other}\r\n"),
            8 => "nonsense\r\n".to_owned(),
            9 => format!("getset {key} {value}\r\n"),
            _ => format!("get {key}\r\n"),
        },
        ProtocolKind::Cphash => {
            let mut bytes = Vec::new();
            if random.below(2) == 0 {
                cphash::encode_lookup(number, &mut bytes);
            } else {
                cphash::encode_insert(number, len as u32, &mut bytes);
                bytes.extend_from_slice(value.as_bytes());
            }
            return bytes;
        }
    };
    text.into_bytes()
}

/// Sends each client's requests and returns its replies, once nothing more happens.
fn drive<const LATE: bool>(
    server: &mut Server<LATE>,
    clients: &mut [Client],
    requests: &[Vec<u8>],
) -> Vec<Vec<u8>> {
    let mut sent = vec![0; clients.len()];
    let mut replies = vec![Vec::new(); clients.len()];
    let length = |replies: &Vec<Vec<u8>>| replies.iter().map(Vec::len).sum::<usize>();
    for _ in 0..1_000_000 {
        let before = (sent.clone(), length(&replies));
        for (client, (sent, request)) in clients.iter_mut().zip(sent.iter_mut().zip(requests)) {
            *sent += client.send_some(&request[*sent..]);
        }
        server.turn();
        for (client, replies) in clients.iter_mut().zip(&mut replies) {
            client.take(replies);
        }
        // The poller does not report a socket that only seems to be full.
        for (key, conn) in &mut server.event_loop.conns {
            if conn.is_blocked() && conn.transport.trickles.is_some() && !conn.queued {
                conn.queued = true;
                server.event_loop.ready.push(key);
            }
        }
        let is_idle = server.event_loop.ready.is_empty() && !server.event_loop.late.is_waiting();
        if is_idle && before == (sent.clone(), length(&replies)) {
            return replies;
        }
    }
    panic!("the server answers and answers");
}

/// The replies to two clients.
fn answers<const LATE: bool>(
    protocol: ProtocolKind,
    completion: Completion,
    trickles: bool,
    requests: &[Vec<u8>],
) -> Vec<Vec<u8>> {
    let mut server = Server::<LATE>::completing(completion);
    let codec = protocol.facts().codec;
    let mut clients = [(); 2].map(|()| server.connect_with(codec(true, BindingProtocol::Auto)));
    for (_, conn) in &mut server.event_loop.conns {
        conn.transport.trickles = trickles.then_some(false);
    }
    drive(&mut server, &mut clients, requests)
}

#[test]
fn late_replies_are_the_same_bytes() {
    for protocol in ProtocolKind::ALL {
        for round in 0..4 {
            let mut random = Random::from_seed(round);
            // Values that the engine receives in place are among them.
            let (count, most) = [(40, 300), (100, 60_000)][usize::from(round % 3 == 0)];
            let requests = [0, 1].map(|client| {
                let requests = (0..count).map(|_| request(protocol, &mut random, client, most));
                requests.collect::<Vec<_>>().concat()
            });
            let expected = answers::<false>(protocol, Completion::InSubmit, false, &requests);
            for &completion in LATE {
                let trickles = most < 1_000 && round % 2 == 0;
                let found = answers::<true>(protocol, completion, trickles, &requests);
                let what = format!("{protocol}, {completion:?}, round {round}");
                for (found, expected) in found.iter().zip(&expected) {
                    let (found, expected) = (found.escape_ascii(), expected.escape_ascii());
                    let (found, expected) = (found.to_string(), expected.to_string());
                    if found != expected {
                        println!("{what}");
                    }
                    assert_same(&found, &expected);
                }
            }
        }
    }
}

/// Reads until nothing more comes. Returns the number of bytes.
fn read_all(server: &mut LateServer, client: &mut Client) -> usize {
    let mut replies = Vec::new();
    loop {
        let before = replies.len();
        client.take(&mut replies);
        serve_pending(server);
        if replies.len() == before {
            return before;
        }
    }
}

/// Serves until no operation is pending.
fn serve_pending(server: &mut LateServer) {
    server.turn();
    while server.event_loop.late.is_waiting() {
        server.turn();
    }
}

/// If the engine may have executed later requests already, a connection is closed when its reply
/// does not fit, or when it has taken nothing for a while and another one needs the memory.
#[test]
fn replies_wait_for_their_clients_within_a_limit() {
    const VALUE: usize = 4 << 20;
    let limit = 32 << 20; // half of the memory
    let whole = hit("v", &"v".repeat(VALUE)).len();
    for &completion in &LATE[1..] {
        let mut server = LateServer::completing(completion);
        server.set("v", &vec![b'v'; VALUE]);
        let mut clients: Vec<Client> = (0..12).map(|_| server.connect()).collect();
        for client in &mut clients {
            client.send(b"get v\r\n");
            serve_pending(&mut server);
            assert!(server.waiting_bytes() <= limit);
            server.now.ms += 1;
        }
        let kept = server.event_loop.conns.len();
        assert_eq!(kept, limit / VALUE);
        assert_eq!(server.counters().replies_refused, 12 - kept as u64);

        server.now.ms += TAKES_NOTHING_MS;
        let mut part = [0; 100_000];
        for _ in 0..20 {
            let _ = clients[0].stream.read(&mut part);
            server.turn(); // the first client takes something now and then
        }
        let mut late = server.connect();
        late.send(b"get v\r\n");
        serve_pending(&mut server);
        assert!(server.waiting_bytes() <= limit);
        assert_eq!(read_all(&mut server, &mut late), whole);
        let rest = clients
            .iter_mut()
            .map(|client| read_all(&mut server, client));
        let rest: Vec<usize> = rest.collect();
        assert!(rest[0] > VALUE / 2 && !clients[0].is_closed);
        assert!(
            clients[1].is_closed && rest[1] < VALUE,
            "it gave its memory"
        );
        assert!(rest[2..kept].iter().all(|&bytes| bytes == whole));
        assert!(clients[kept..].iter().all(|client| client.is_closed));
        assert_eq!(server.counters().replies_refused, 13 - kept as u64);
    }
}

#[test]
fn a_large_value_is_received_in_place() {
    for &completion in LATE {
        let mut server = LateServer::completing(completion);
        let (mut client, mut other) = (server.connect(), server.connect());
        let value = long_value();
        client.send(b"set v 0 0 100000\r\n");
        client.send(&value.as_bytes()[..50_000]);
        serve_pending(&mut server);
        assert_eq!(server.engine.reservations(), 1);
        let requests = [
            format!("{}\r\nget v\r\nmn\r\n", &value[50_000..]).into_bytes(),
            b"mn\r\n".to_vec(),
        ];
        let replies = drive(&mut server, &mut [client, other], &requests);
        let expected = format!("STORED\r\n{}MN\r\n", hit("v", &value));
        assert_same(&String::from_utf8_lossy(&replies[0]), &expected);
        assert_eq!(server.engine.reservations(), 0);
        assert_eq!(server.engine.script.lock().stored_reserved, 1);
        other = server.connect();
        assert_eq!(server.talk(&mut other, b"mn\r\n"), "MN\r\n");
    }
}

/// Guarantee 4.
#[test]
fn the_replies_of_a_closed_connection_go_to_no_other() {
    for &completion in &[later(1_000, 1, 0), later(300, 2, 1)] {
        let mut server = LateServer::completing(completion);
        server.set("gone", b"gone");
        server.set("here", b"here");
        let mut gone = server.connect();
        gone.send(&b"get gone\r\n".repeat(300));
        server.turn();
        assert!(server.event_loop.late.saved().0 >= MOST_OF_CONN - 2);
        drop(gone);
        while server.event_loop.conns.contains(0) {
            server.turn();
        }
        assert!(server.event_loop.late.saved().0 > 200, "{completion:?}");
        let mut here = server.connect();
        assert!(server.event_loop.conns.contains(0), "it has the same key");
        let replies = drive(&mut server, &mut [here], &[b"get here\r\n".to_vec()]);
        assert_eq!(replies, [hit("here", "here").into_bytes()]);
        here = server.connect();
        assert_eq!(server.talk(&mut here, b"mn\r\n"), "MN\r\n");
    }
}

#[test]
fn a_client_that_sends_no_more_gets_all_its_replies() {
    for &completion in LATE {
        let mut server = LateServer::completing(completion);
        server.set("n", b"0");
        let client = server.connect();
        let request = [&b"incr n 1\r\n".repeat(600)[..], b"quit\r\n"].concat();
        let expected: String = (1..=600).map(|n| format!("{n}\r\n")).collect();
        let mut clients = [client];
        clients[0].send(&request);
        clients[0].stream.shutdown(Shutdown::Write).unwrap();
        let replies = drive(&mut server, &mut clients, &[Vec::new()]);
        assert_same(str::from_utf8(&replies[0]).unwrap(), &expected);
        assert!(clients[0].is_closed, "{completion:?}");
    }
}

/// Guarantee 6.
#[test]
fn a_stopping_loop_answers_what_is_pending() {
    for &completion in LATE {
        let mut server = LateServer::completing(completion);
        server.set("n", b"0");
        let mut client = server.connect();
        client.send(&b"incr n 1\r\n".repeat(400));
        server.inbox.close();
        let mut replies = Vec::new();
        while !server.event_loop.is_drained(server.now) {
            server.turn();
            client.take(&mut replies);
            if !server.event_loop.late.is_waiting() {
                server.now.ms += 1;
            }
            server.event_loop.drain(server.now);
        }
        let expected: String = (1..=400).map(|n| format!("{n}\r\n")).collect();
        assert_same(str::from_utf8(&replies).unwrap(), &expected);
        assert!(!server.event_loop.late.is_waiting(), "{completion:?}");
    }
}

/// Guarantee 2.
#[test]
fn saved_replies_are_bounded() {
    for (count, key_len, least) in [(18, 8, MOST_REPLIES), (4, 2_000, MOST_BYTES / 2_001)] {
        let mut server = LateServer::completing(later(100_000, 100, 0));
        server.engine.script.lock().is_asleep = true;
        let codec = ProtocolKind::Resp.facts().codec;
        let mut clients: Vec<Client> = (0..count)
            .map(|_| server.connect_with(codec(true, BindingProtocol::Auto)))
            .collect();
        let request = format!("get {}\r\n", "k".repeat(key_len)).repeat(300);
        let mut sent = vec![0; count];
        for _ in 0..40 {
            for (client, sent) in clients.iter_mut().zip(&mut sent) {
                *sent += client.send_some(&request.as_bytes()[*sent..]);
            }
            server.turn();
            let (replies, bytes) = server.event_loop.late.saved();
            assert!(replies <= MOST_REPLIES && bytes <= MOST_BYTES);
        }
        assert!(server.event_loop.late.saved().0 >= least);
        assert!(server.event_loop.ready.is_empty(), "they wait");
        server.engine.script.lock().is_asleep = false;
        let rest: Vec<Vec<u8>> = sent
            .iter()
            .map(|&n| request.as_bytes()[n..].to_vec())
            .collect();
        for replies in drive(&mut server, &mut clients, &rest) {
            assert_same(str::from_utf8(&replies).unwrap(), &"$-1\r\n".repeat(300));
        }
    }
}

/// A transaction of another thread waits until the pending operations have completed, although
/// clients send more.
#[test]
fn a_transaction_begins_although_the_clients_of_a_loop_go_on() {
    let mut server = LateServer::completing(later(50, 3, 0));
    let isolation = Arc::clone(&server.event_loop.shared.isolation);
    let now = server.now;
    let has_begun = AtomicBool::new(false);
    let mut client = server.connect();
    let requests = b"get a\r\n".repeat(100);
    std::thread::scope(|scope| {
        let fill = |server: &mut LateServer, client: &mut Client| {
            client.send_some(&requests);
            server.turn();
            client.take(&mut Vec::new());
        };
        (0..10).for_each(|_| fill(&mut server, &mut client));
        assert!(server.event_loop.late.is_pending());
        scope.spawn(|| {
            drop(isolation.begin(now, [&b"a"[..]]));
            // Release: pairs with the Acquire below.
            has_begun.store(true, Ordering::Release);
        });
        let start = Instant::now();
        // Acquire: pairs with the Release above.
        while !has_begun.load(Ordering::Acquire) && start.elapsed() < Duration::from_secs(10) {
            fill(&mut server, &mut client);
        }
        let has_begun = has_begun.load(Ordering::Acquire); // Acquire: as above
        // So that the other thread ends in any case.
        while server.event_loop.late.is_waiting() {
            server.turn();
            client.take(&mut Vec::new());
        }
        assert!(has_begun, "the loop must stop submitting");
    });
}

#[test]
fn a_loop_sleeps_while_operations_are_pending_if_the_engine_wakes_it() {
    let long = Some(Duration::from_secs(60));
    let start = Instant::now();
    let mut server = LateServer::completing(later(50, 3, 0));
    let mut client = server.connect();
    client.send(&b"get a\r\n".repeat(20));
    server.turn();
    assert!(server.event_loop.late.is_pending());
    // The engine can be polled now: the loop does not sleep.
    server.event_loop.wait(&mut server.events, long).unwrap();
    server.engine.script.lock().is_asleep = true;
    let engine = Arc::clone(&server.engine);
    let waker = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        let mut script = engine.script.lock();
        script.is_asleep = false;
        script.waker.as_ref().unwrap().wake_by_ref();
    });
    server.event_loop.wait(&mut server.events, long).unwrap();
    waker.join().unwrap();
    assert!(start.elapsed() < Duration::from_secs(30));
    assert_eq!(
        drive(&mut server, &mut [client], &[Vec::new()])[0].len(),
        100
    );
}
