//! Replies that have no room until other clients have taken theirs.

use super::*;
use crate::commands::RespSession;

/// Memory of connections: that of the loop, and room for a few replies.
const LIMIT: usize = 2 << 20;

fn server() -> TestServer {
    let config = Config {
        connection_memory: Some(LIMIT as u64),
        eviction: crate::config::Eviction::None,
        ..Config::default()
    };
    let mut server = TestServer::with(config);
    server.set("n", b"0");
    server.event_loop.sweep_if_due(server.now);
    server
}

/// Serves until the clients have taken all that comes. The first `silent` of them take nothing, and
/// the others a few bytes at a time. Checks that replies stay within the limit.
fn take_all(server: &mut TestServer, clients: &mut [Client], silent: usize) -> Vec<String> {
    let mut taken = vec![Vec::new(); clients.len()];
    let mut idle = 0;
    while idle < 300 {
        idle += 1;
        for (client, taken) in clients.iter_mut().zip(&mut taken).skip(silent) {
            let before = taken.len();
            client.take(taken);
            idle = if taken.len() > before { 0 } else { idle };
            server.turn();
            let limit = server.event_loop.shared.buffer_limit as usize;
            let most = limit + OUTPUT_PAUSE + LARGE + clients_room(server);
            assert!(server.waiting_bytes() <= most, "{}", server.waiting_bytes());
        }
        server.now.ms += 10;
        server.event_loop.sweep_if_due(server.now);
    }
    let texts = taken.into_iter().map(String::from_utf8);
    texts.map(Result::unwrap).collect()
}

fn clients_room(server: &TestServer) -> usize {
    server.event_loop.conns.len() * FREE
}

/// Sends each client's requests as far as its socket takes them.
fn send_all(server: &mut TestServer, clients: &mut [Client], request: &str) {
    for client in clients.iter_mut() {
        let mut sent = 0;
        while sent < request.len() {
            sent += client.send_some(&request.as_bytes()[sent..]);
            server.turn();
        }
    }
}

#[test]
fn a_client_that_takes_its_replies_is_never_cut_off() {
    for (bytes, times) in [
        (300_000, 3),
        (LARGE, 20),
        (LARGE - 1, 20),
        (13_000, 40),
        (1_000, 300),
    ] {
        for is_resp in [false, true] {
            let mut server = server();
            server.set("v", "v".repeat(bytes).as_bytes());
            let connect = |server: &mut TestServer| match is_resp {
                true => server.connect_with(RespSession::new(true)),
                false => server.connect(),
            };
            let mut clients: Vec<Client> = (0..16).map(|_| connect(&mut server)).collect();
            let value = "v".repeat(bytes);
            let reply = if is_resp {
                format!("${bytes}\r\n{value}\r\n")
            } else {
                hit("v", &value)
            };
            send_all(&mut server, &mut clients, &"get v\r\n".repeat(times));
            let taken = take_all(&mut server, &mut clients, 0);
            for (client, taken) in clients.iter().zip(&taken) {
                assert_same(taken, &reply.repeat(times));
                assert!(!client.is_closed);
            }
            let counters = server.counters();
            assert_eq!((counters.replies_refused, counters.slow_kicks), (0, 0));
            let reads = server.executed();
            let reads = reads.iter().filter(|op| *op == "get v").count();
            assert_eq!(reads, 16 * times + put_off(&server));
        }
    }
}

/// How many requests were executed once more.
fn put_off(server: &TestServer) -> usize {
    // Relaxed: one thread.
    let count = server
        .event_loop
        .shared
        .replies_put_off
        .load(Ordering::Relaxed);
    count as usize
}

#[test]
fn clients_that_take_nothing_make_room_for_others() {
    let bytes = 300_000;
    let mut server = server();
    server.set("v", "v".repeat(bytes).as_bytes());
    let mut clients: Vec<Client> = (0..12).map(|_| server.connect()).collect();
    send_all(&mut server, &mut clients, "incr n 1\r\nget v\r\nmn\r\n");
    assert!(put_off(&server) > 0 && server.counters().replies_refused == 0);
    let taken = take_all(&mut server, &mut clients, 6);
    let value = hit("v", &"v".repeat(bytes));
    for text in &taken[6..] {
        let (number, rest) = text.split_once("\r\n").unwrap();
        assert!((1..=12).contains(&number.parse().unwrap()));
        assert_same(rest, &format!("{value}MN\r\n"));
    }
    // A request behind one that waits waits, too, and those before it are not executed twice.
    let increments = server
        .executed()
        .iter()
        .filter(|op| *op == "arith n")
        .count();
    assert_eq!(increments, 12);
}

/// Who fetches a stale item first has won it, so the request cannot be executed again.
#[test]
fn a_reply_that_has_no_room_and_cannot_be_repeated_closes_its_connection() {
    let bytes = 300_000;
    let mut server = server();
    let value = "v".repeat(bytes);
    let mut clients: Vec<Client> = (0..12).map(|_| server.connect()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        server.set(&format!("v{n}"), value.as_bytes());
        let request = format!("md v{n} I\r\nmg v{n} v\r\nmn\r\n");
        send_all(&mut server, std::slice::from_mut(client), &request);
        let most = server.event_loop.shared.buffer_limit as usize + clients_room(&server);
        assert!(server.waiting_bytes() <= most, "{}", server.waiting_bytes());
    }
    let refused = server.counters().replies_refused;
    assert!(refused > 0 && put_off(&server) == 0, "{refused}");
    let reads = server.executed();
    let reads = reads.iter().filter(|op| op.starts_with("get v")).count();
    assert_eq!(reads, clients.len());
    let taken = take_all(&mut server, &mut clients, 0);
    for (client, text) in clients.iter().zip(&taken) {
        let is_whole = text.ends_with("v\r\nMN\r\n");
        assert!(text.starts_with("HD\r\nVA 300000 X W\r\nv"));
        assert_ne!(is_whole, client.is_closed);
    }
    let closed = clients.iter().filter(|client| client.is_closed).count();
    assert_eq!(closed as u64, refused);
}

/// A reply that is longer than the limit allows is sent when no other waits.
#[test]
fn a_reply_over_the_limit_waits_for_others_that_wait_and_for_nothing_else() {
    let config = Config {
        connection_memory: Some(FREE as u64),
        eviction: crate::config::Eviction::None,
        ..Config::default()
    };
    let mut server = TestServer::with(config);
    server.set("v", &[b'v'; 300_000]);
    server.event_loop.sweep_if_due(server.now);
    let mut clients = [server.connect(), server.connect()];
    let filler = server.fill_sockets();
    clients[0].send(b"mn\r\n");
    server.turn();
    clients[1].send(b"get v\r\n");
    server.turn();
    assert!(put_off(&server) > 0);
    let taken = take_all(&mut server, &mut clients, 0);
    assert_same(&taken[0], &format!("{filler}MN\r\n"));
    let value = hit("v", &"v".repeat(300_000));
    assert_same(&taken[1], &format!("{filler}{value}"));
}

/// Items make room for buffers between turns, so one turn must not take much.
#[test]
fn one_turn_keeps_few_replies() {
    let mut server = TestServer::new();
    server.set("v", &[b'v'; 1_000]);
    let mut clients: Vec<Client> = (0..25).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(&b"get v\r\n".repeat(500));
    }
    server.turn();
    let most = (1 << 20) + OUTPUT_PAUSE + LARGE + clients_room(&server);
    let waiting = server.waiting_bytes();
    assert!(waiting <= most, "{waiting} bytes");
    assert!(
        server
            .event_loop
            .conns
            .iter()
            .all(|(_, conn)| conn.is_blocked())
    );
    let taken = take_all(&mut server, &mut clients, 0);
    let reply = hit("v", &"v".repeat(1_000)).repeat(500);
    taken.iter().for_each(|text| assert_same(text, &reply));
}

/// Memory for replies is taken from items, which make room more slowly than replies are printed.
#[test]
fn replies_wait_while_items_make_room() {
    for bytes in [1_000, 13_000, LARGE, 300_000] {
        let config = Config {
            connection_memory: Some(32 << 20),
            ..Config::default()
        };
        let mut server = TestServer::with(config);
        server.set("v", "v".repeat(bytes).as_bytes());
        let mut clients: Vec<Client> = (0..16).map(|_| server.connect()).collect();
        server.engine.script.lock().excess = 1 << 20;
        let times = 600_000 / bytes;
        send_all(&mut server, &mut clients, &"get v\r\n".repeat(times));
        // One reply of any length, and the rest what every connection may have.
        let waiting: usize = server
            .event_loop
            .conns
            .iter()
            .map(|(_, conn)| conn.held().output)
            .sum();
        let most = bytes + OUTPUT_PAUSE + clients_room(&server);
        assert!(waiting <= most, "{waiting} bytes wait of values of {bytes}");
        server.engine.script.lock().excess = 0;
        let taken = take_all(&mut server, &mut clients, 0);
        let reply = hit("v", &"v".repeat(bytes));
        for (client, taken) in clients.iter().zip(&taken) {
            assert_same(taken, &reply.repeat(times));
            assert!(!client.is_closed);
        }
        assert_eq!(server.counters().replies_refused, 0);
    }
}
