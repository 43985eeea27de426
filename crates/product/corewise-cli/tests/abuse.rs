//! Input that must neither bring the server down nor keep it from serving other clients.
//!
//! `COREWISE_ABUSE_CLIENTS` sets how many clients, one after the other, send random bytes from each
//! of two threads; the default is 500.

use crate::common;

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{
    Client, Engine, Kind, PATIENCE, TestServer, concerns_the_server_under_test, raise_open_files,
    wait_until,
};
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

for_all_engines_at_once! {
    every_prefix_of_a_request_may_be_the_last_thing_heard
    random_bytes_do_no_harm
    a_thousand_connections_are_served_at_once
    a_client_that_dies_in_the_middle_of_a_set_stores_nothing
    a_client_that_never_reads_is_bounded_and_holds_nobody_up
    requests_behind_a_large_one_are_answered_once_a_slow_reader_reads
    absurd_lengths_are_refused
    a_multiget_of_ten_thousand_keys_is_answered
    large_values_may_arrive_in_small_pieces
    a_hundred_thousand_pipelined_requests_are_answered_in_order
    an_item_of_a_hundred_megabytes_is_kept_whole
    memory_comes_back_when_the_clients_are_gone
    replies_that_nobody_reads_keep_no_memory_of_items
    replies_that_nobody_reads_are_bounded_together
    large_values_are_whole_for_slow_readers_while_others_change_them
    readers_may_leave_in_the_middle_of_large_values
    many_clients_may_be_halfway_through_a_large_value
    large_and_small_replies_keep_their_order_for_a_slow_reader
    a_large_value_is_whole_although_it_is_overwritten_while_it_is_sent
    ; of corewise:
    a_server_told_to_stop_first_answers_what_it_received
    a_server_told_to_stop_lets_each_client_go_once_it_is_answered
    a_server_told_to_stop_in_the_middle_of_traffic_ends_between_replies
    several_addresses_lead_to_one_cache
    large_stores_over_the_memory_of_connections_are_refused_and_swallowed
    what_is_refused_for_lack_of_memory_is_not_served_stale
    large_stores_wait_for_memory_that_others_have_for_a_moment
}

/// One request of each kind.
const REQUESTS: [&str; 28] = [
    "set a 5 0 3\r\nabc\r\n",
    "add a 5 100 3 noreply\r\nabc\r\n",
    "replace a 5 0 0\r\n\r\n",
    "append a 0 0 2\r\n\r\n\r\n",
    "prepend a 0 -1 1\r\nx\r\n",
    "cas a 0 0 1 77\r\nx\r\n",
    "get a\r\n",
    "gets a b c\r\n",
    "gat 0 a b\r\n",
    "gats 100 a\r\n",
    "delete a\r\n",
    "delete a 0 noreply\r\n",
    "incr n 1\r\n",
    "decr n 18446744073709551615\r\n",
    "touch a 0\r\n",
    "flush_all\r\n",
    "flush_all 0 noreply\r\n",
    "version\r\n",
    "verbosity 0\r\n",
    "stats\r\n",
    "stats settings\r\n",
    "mn\r\n",
    "me a\r\n",
    "mg a s v t f c k Oq\r\n",
    "ms a 2 T0 F5 c\r\nhi\r\n",
    "ms YWJj 1 b k ME\r\nx\r\n",
    "md a q k\r\n",
    "ma n N0 J5 v\r\n",
];

/// The largest value with the default limit.
const LARGE: usize = 1024 * 1024 - 512;

fn abusive_clients() -> usize {
    let clients = std::env::var("COREWISE_ABUSE_CLIENTS");
    clients.map_or(500, |clients| clients.parse().expect("a number"))
}

fn value_reply(key: &str, value: &str) -> String {
    format!("VALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len())
}

fn set(key: &str, value: &str) -> String {
    format!("set {key} 0 0 {}\r\n{value}\r\n", value.len())
}

/// Sends to a server that may hang up meanwhile. Returns whether it took everything.
fn send_all(client: &mut Client, bytes: &[u8]) -> bool {
    match client.try_send(bytes) {
        Ok(()) => true,
        Err(error) => {
            assert_ne!(
                error.kind(),
                ErrorKind::WouldBlock,
                "the server stopped reading"
            );
            false
        }
    }
}

fn every_prefix_of_a_request_may_be_the_last_thing_heard(engine: Engine) {
    let server = engine.start();
    for request in REQUESTS.map(str::as_bytes) {
        for length in 0..=request.len() {
            let mut polite = server.connect();
            polite.send(&request[..length]);
            polite.finish();
            polite.read_to_end();
            // Another client leaves without reading the reply.
            server.connect().send(&request[..length]);
        }
    }
}

fn random_bytes_do_no_harm(engine: Engine) {
    let server = engine.start();
    let address = server.address();
    std::thread::scope(|scope| {
        for seed in 0..2 {
            scope.spawn(move || {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
                for _ in 0..abusive_clients() {
                    babble(&mut Client::connect(address), &mut random);
                }
            });
        }
    });
}

/// Sends random bytes, among them pieces of requests.
fn babble(client: &mut Client, random: &mut Xoshiro256PlusPlus) {
    for _ in 0..random.random_range(1..40) {
        let mut noise = [0; 64];
        random.fill_bytes(&mut noise);
        let length = random.random_range(0..noise.len());
        let request = REQUESTS.choose(random).unwrap().as_bytes();
        let from = random.random_range(0..request.len());
        let pieces: [&[u8]; 4] = [&noise[..length], request, &request[from..], b"\r\n"];
        if !send_all(client, pieces.choose(random).unwrap()) {
            return;
        }
    }
    if random.random_bool(0.5) {
        client.finish();
        client.read_to_end();
    }
}

fn a_thousand_connections_are_served_at_once(engine: Engine) {
    const COUNT: usize = 1_000;
    let files = raise_open_files();
    assert!(
        files > COUNT as u64 + 100,
        "only {files} open files are allowed"
    );
    let server = engine.with(&["-c", "2000"]);
    let mut clients: Vec<Client> = (0..COUNT).map(|_| server.connect()).collect();
    for round in 0..3 {
        for (n, client) in clients.iter_mut().enumerate() {
            client.send(set(&format!("k{n}"), &format!("{round}")).as_bytes());
        }
        for (n, client) in clients.iter_mut().enumerate() {
            client.expect("STORED\r\n");
            client.send(format!("get k{n}\r\n").as_bytes());
        }
        for (n, client) in clients.iter_mut().enumerate() {
            client.expect(value_reply(&format!("k{n}"), &format!("{round}")));
        }
    }
    drop(clients);
}

fn a_client_that_dies_in_the_middle_of_a_set_stores_nothing(engine: Engine) {
    let server = engine.start();
    for cut in [1, 50, 99, 100, 101] {
        let data = "x".repeat(cut);
        let mut client = server.connect();
        // Unread data makes the close abrupt.
        client.send(format!("mn\r\nset a 0 0 100\r\n{data}").as_bytes());
        drop(client);
    }
    let mut client = server.connect();
    client.ask("get a\r\n", "END\r\n");
}

fn a_client_that_never_reads_is_bounded_and_holds_nobody_up(engine: Engine) {
    let timeout = ["--slow-reader-timeout", "2s"];
    let corewise = Kind::under_test() == Kind::Corewise;
    let server = engine.with(if corewise { &timeout } else { &[] });
    let mut other = server.connect();
    other.ask(set("large", &"x".repeat(LARGE)), "STORED\r\n");
    let before = server.rss_kib();
    let stuck = server.connect();
    // A hundred thousand replies of a megabyte each.
    let mut socket = stuck.socket();
    socket
        .set_write_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let requests = "get large\r\n".repeat(1_000);
    for _ in 0..100 {
        if socket.write_all(requests.as_bytes()).is_err() {
            break;
        }
    }
    for n in 0..200 {
        other.ask(set("k", &n.to_string()), "STORED\r\n");
        other.ask("get k\r\n", value_reply("k", &n.to_string()));
    }
    if corewise {
        assert_hung_up(&mut socket);
    }
    let grown = server.peak_rss_kib().saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} KiB for one that never reads");
}

/// The server rewinds requests that it could not answer. It must not wait then for the length of
/// the large request.
fn requests_behind_a_large_one_are_answered_once_a_slow_reader_reads(engine: Engine) {
    let (_server, mut client) = engine.start_and_connect(&[]);
    let store = set("large", &"x".repeat(LARGE));
    let (half, rest) = store.split_at(store.len() - 100);
    client.send(half.as_bytes());
    std::thread::sleep(Duration::from_millis(50));
    let gets = 64;
    client.send(format!("{rest}{}mn\r\n", "get large\r\n".repeat(gets)).as_bytes());
    std::thread::sleep(Duration::from_millis(300)); // the server's socket buffer fills
    client.expect("STORED\r\n");
    let reply = value_reply("large", &"x".repeat(LARGE));
    for _ in 0..gets {
        client.expect(&reply);
    }
    client.expect("MN\r\n");
}

/// Sends until the server has hung up.
fn assert_hung_up(socket: &mut TcpStream) {
    wait_until("a slow reader is hung up on", || {
        match socket.write_all(b"mn\r\n") {
            Err(error) => error.kind() != ErrorKind::WouldBlock,
            Ok(()) => false,
        }
    });
}

fn absurd_lengths_are_refused(engine: Engine) {
    let server = engine.start();
    let before = server.peak_rss_kib();
    let mut lengths = vec![
        "-1",
        "-2147483648",
        "2147483647",
        "2147483648",
        "18446744073709551616",
        "1e3",
        "",
    ];
    if Kind::under_test() == Kind::Corewise {
        // memcached truncates these to their low 32 bits.
        lengths.extend(["4294967295", "4294967296", "9223372036854775807"]);
        lengths.push("18446744073709551615");
    }
    for length in lengths {
        for line in [
            format!("set a 0 0 {length}"),
            format!("set a 0 0 {length} noreply"),
            format!("cas a 0 0 {length} 1"),
            format!("append a 0 0 {length}"),
            format!("ms a {length}"),
        ] {
            let mut client = server.connect();
            client.send(format!("{line}\r\n").as_bytes());
            client.finish();
            let reply = String::from_utf8(client.read_to_end()).unwrap();
            let refused = reply.contains("ERROR") || (reply.is_empty() && line.contains("noreply"));
            assert!(refused, "{line}: {reply}");
        }
    }
    let grown = server.peak_rss_kib() - before;
    assert!(
        grown < 32 * 1024,
        "{grown} KiB for lengths that were refused"
    );
}

#[test]
fn a_line_without_an_end_is_not_kept() {
    let server = TestServer::start();
    let before = server.peak_rss_kib();
    for start in ["", "get ", "set ", "mg ", "ms a 5 "] {
        let mut client = server.connect();
        let block = "x".repeat(64 * 1024);
        client.try_send(start.as_bytes()).unwrap();
        let sent = (0..128)
            .take_while(|_| send_all(&mut client, block.as_bytes()))
            .count();
        // Either the server hung up, or it swallowed all of that.
        client.finish();
        client.read_to_end();
        println!("{start:?}: {sent} blocks of 64 KiB were taken");
    }
    let grown = server.peak_rss_kib() - before;
    assert!(grown < 24 * 1024, "{grown} KiB for lines without an end");
}

fn a_multiget_of_ten_thousand_keys_is_answered(engine: Engine) {
    const KEYS: usize = 10_000;
    let (_server, mut client) = engine.start_and_connect(&[]);
    let (mut stores, mut request, mut reply) = (String::new(), String::from("get"), String::new());
    for n in 0..KEYS {
        let _ = write!(request, " key{n}");
        if n % 2 == 0 {
            let _ = write!(stores, "set key{n} 0 0 4 noreply\r\n{n:04}\r\n");
            let _ = write!(reply, "VALUE key{n} 0 4\r\n{n:04}\r\n");
        }
    }
    client.send(stores.as_bytes());
    client.ask(request + "\r\n", reply + "END\r\n");
}

#[test]
fn requests_may_arrive_one_byte_at_a_time() {
    let server = TestServer::start();
    let mut client = server.connect();
    let conversation = [
        ("set a 0 0 5\r\nab\r\nc\r\n", "STORED\r\n"),
        ("get a b\r\n", "VALUE a 0 5\r\nab\r\nc\r\nEND\r\n"),
        ("ms b 2 k Oq\r\nhi\r\n", "HD kb Oq\r\n"),
        ("mg b v\r\n", "VA 2\r\nhi\r\n"),
        (
            "set a 0 0 1\r\nxyz\r\n",
            "CLIENT_ERROR bad data chunk\r\nERROR\r\n",
        ),
        ("set n 0 0 1 noreply\r\n5\r\nincr n 7\r\n", "12\r\n"),
    ];
    for (request, reply) in conversation {
        for byte in request.as_bytes() {
            client.send(&[*byte]);
            std::thread::sleep(Duration::from_micros(200));
        }
        client.expect(reply);
    }
}

fn large_values_may_arrive_in_small_pieces(engine: Engine) {
    let server = engine.start();
    let value = pattern(LARGE);
    let mut clients: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    let requests: Vec<String> = (0..4).map(|n| set(&format!("k{n}"), &value)).collect();
    let pieces = requests[0].len().div_ceil(1_013);
    for piece in 0..pieces {
        for (client, request) in clients.iter_mut().zip(&requests) {
            let rest = &request.as_bytes()[piece * 1_013..];
            client.send(&rest[..rest.len().min(1_013)]);
        }
    }
    for (n, client) in clients.iter_mut().enumerate() {
        client.expect("STORED\r\n");
        client.ask(
            format!("get k{n}\r\n"),
            value_reply(&format!("k{n}"), &value),
        );
    }
}

fn a_hundred_thousand_pipelined_requests_are_answered_in_order(engine: Engine) {
    const COUNT: usize = 100_000;
    let (_server, mut client) = engine.start_and_connect(&[]);
    let (mut requests, mut replies) = (String::new(), String::new());
    for n in 0..COUNT {
        match n % 4 {
            0 => {
                let _ = write!(requests, "ms k{} 1 O{n}\r\nx\r\n", n % 1_000);
                let _ = write!(replies, "HD O{n}\r\n");
            }
            1 => {
                let _ = write!(requests, "mg k{} v O{n}\r\n", (n - 1) % 1_000);
                let _ = write!(replies, "VA 1 O{n}\r\nx\r\n");
            }
            2 => {
                let _ = write!(requests, "md nothing O{n}\r\n");
                let _ = write!(replies, "NF O{n}\r\n");
            }
            _ => {
                let _ = write!(requests, "get k{} nothing\r\n", (n - 3) % 1_000);
                let _ = write!(replies, "VALUE k{} 0 1\r\nx\r\nEND\r\n", (n - 3) % 1_000);
            }
        }
    }
    let mut socket = client.socket();
    let sender = std::thread::spawn(move || socket.write_all(requests.as_bytes()).unwrap());
    client.expect(replies);
    sender.join().unwrap();
}

#[test]
fn connections_over_the_limit_are_told_so_and_room_is_reused() {
    let server = TestServer::with(&["-c", "50"]);
    let (mut served, mut refused) = (Vec::new(), 0);
    for _ in 0..80 {
        let mut client = server.connect();
        // A refused client may be disconnected before it can send anything.
        let _ = client.try_send(b"mn\r\n");
        match client.try_line().as_deref() {
            Some("MN") => served.push(client),
            Some("ERROR Too many open connections") | None => refused += 1,
            Some(other) => panic!("{other}"),
        }
    }
    assert!(
        (30..=50).contains(&served.len()),
        "{} of 50 were served",
        served.len()
    );
    assert!(refused >= 30, "{refused} of 80 were refused");
    for client in &mut served {
        client.ask("mn\r\n", "MN\r\n");
    }
    drop(served);
    wait_until("there is room again", || {
        let mut client = server.connect();
        client.try_send(b"mn\r\n").is_ok() && client.try_line().as_deref() == Some("MN")
    });
}

#[test]
fn silent_connections_are_closed_after_the_idle_timeout() {
    let server = TestServer::with(&["-o", "idle_timeout=2"]);
    let (mut silent, mut busy) = (server.connect(), server.connect());
    silent.ask("mn\r\n", "MN\r\n");
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(3_500) {
        busy.ask("mn\r\n", "MN\r\n");
        std::thread::sleep(Duration::from_millis(200));
    }
    silent.expect_end();
    assert!(
        start.elapsed() < PATIENCE / 2,
        "closed after {:?}",
        start.elapsed()
    );
}

fn a_server_told_to_stop_first_answers_what_it_received(engine: Engine) {
    let mut server = engine.start();
    let value = "x".repeat(100_000);
    // No more than a busy machine sends in the five seconds after which the server ends anyway.
    let mut clients: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    clients[0].ask(set("a", &value), "STORED\r\n");
    let (requests, reply) = ("get a\r\n".repeat(60), value_reply("a", &value));
    for client in &mut clients {
        client.send(requests.as_bytes());
        // Its requests have arrived, and most of its replies do not fit the socket buffers yet.
        client.expect(&reply);
    }
    server.terminate();
    for client in &mut clients {
        (1..60).for_each(|_| client.expect(&reply));
    }
    clients.iter_mut().for_each(Client::expect_end);
    assert_eq!(server.wait().code(), Some(0), "{}", server.said());
}

fn a_server_told_to_stop_lets_each_client_go_once_it_is_answered(engine: Engine) {
    let mut server = engine.start();
    let value = "x".repeat(LARGE);
    let (mut idle, mut half, mut slow) = (server.connect(), server.connect(), server.connect());
    idle.ask(set("a", &value), "STORED\r\n");
    half.ask("mn\r\nset b 0 0 10\r\nabc", "MN\r\n");
    let reply = value_reply("a", &value);
    slow.send("get a\r\n".repeat(8).as_bytes());
    slow.expect(&reply);
    server.terminate();
    // Before the slow client has read all its replies.
    idle.expect_end();
    half.expect_end();
    (1..8).for_each(|_| slow.expect(&reply));
    slow.expect_end();
    assert_eq!(server.wait().code(), Some(0), "{}", server.said());
}

fn a_server_told_to_stop_in_the_middle_of_traffic_ends_between_replies(engine: Engine) {
    let mut server = engine.start();
    let address = server.address();
    let busy = |n: usize| {
        move || {
            let mut client = Client::connect(address);
            let batch = "mg nothing Oid\r\n".repeat(1 + n * 20);
            let mut replies = Vec::new();
            while client.try_send(batch.as_bytes()).is_ok() {
                let more = client.read_until_idle(Duration::from_millis(5));
                let gone = more.is_empty() && client.is_closed();
                replies.extend(more);
                if gone {
                    break;
                }
            }
            replies
        }
    };
    let clients: Vec<_> = (0..4).map(|n| std::thread::spawn(busy(n))).collect();
    std::thread::sleep(Duration::from_millis(300));
    server.terminate();
    assert_eq!(server.wait().code(), Some(0), "{}", server.said());
    for client in clients {
        let replies = client.join().unwrap();
        let text = String::from_utf8(replies).unwrap();
        assert!(text.ends_with("EN Oid\r\n"), "ends with a part of a reply");
        assert!(text.lines().all(|line| line == "EN Oid"));
    }
    assert!(
        TcpStream::connect(address).is_err(),
        "nobody listens any more"
    );
}

#[test]
fn a_server_can_be_started_again_on_the_same_port_at_once() {
    let mut server = TestServer::start();
    let address = server.address();
    for _ in 0..3 {
        // Connections that the server closes linger in the kernel.
        let mut clients: Vec<Client> = (0..10).map(|_| server.connect()).collect();
        clients
            .iter_mut()
            .for_each(|client| client.ask("mn\r\n", "MN\r\n"));
        server.terminate();
        server.wait();
        server = TestServer::at(address, &[]);
        assert_eq!(server.address(), address);
    }
}

#[test]
fn a_unix_socket_serves_and_a_stale_one_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let options = ["-s", path.to_str().unwrap(), "-a", "720"];
    for _ in 0..2 {
        let _server = TestServer::with(&options);
        let mut client = Client::connect_unix(&path);
        client.ask(set("a", "x"), "STORED\r\n");
        client.ask("get a\r\n", value_reply("a", "x"));
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o720);
        // Dropping the server kills it, so its socket file stays.
    }
}

#[test]
fn without_the_binary_protocol_its_clients_are_refused_and_reported_once() {
    const CLIENTS: usize = 200;
    if !concerns_the_server_under_test() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let address = "127.0.0.1:0";
    let options = ["-B", "ascii", "-l", address, "-s", path.to_str().unwrap()];
    let server = TestServer::with(&options);
    for number in 0..CLIENTS {
        let mut client = match number % 2 {
            0 => server.connect(),
            _ => Client::connect_unix(&path),
        };
        client.send(b"\x80\x0b\0\0\0\0\0\0\0\0\0\0wxyz\0\0\0\0\0\0\0\0");
        let refusal = b"\x81\x0b\0\0\0\0\0\x81\0\0\0\x0fwxyz\0\0\0\0\0\0\0\0Unknown command";
        assert_eq!(client.read_to_end(), refusal);
    }
    wait_until("the server reports it", || {
        server.said().contains("binary protocol")
    });
    let lines = server.said().matches("binary protocol").count();
    assert!(lines < CLIENTS / 10, "{lines} lines");
}

fn several_addresses_lead_to_one_cache(engine: Engine) {
    let server = engine.with(&["-l", "127.0.0.1:0,127.0.0.2:0"]);
    let addresses = server.addresses();
    assert_eq!(addresses.len(), 3, "{}", server.said());
    let mut first = Client::connect(addresses[0]);
    first.ask(set("a", "x"), "STORED\r\n");
    for address in &addresses[1..] {
        Client::connect(*address).ask("get a\r\n", value_reply("a", "x"));
    }
}

#[test]
fn nothing_is_served_before_authentication() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    std::fs::write(&file, "someone:secret\nother:word\n").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let server = TestServer::with(&["-Y", file.to_str().unwrap()]);

    let mut client = server.connect();
    client.ask("get a\r\n", "CLIENT_ERROR unauthenticated\r\n");
    client.ask("mn\r\n", "CLIENT_ERROR unauthenticated\r\n");
    client.ask(
        set("auth", "someone wrong"),
        "CLIENT_ERROR authentication failure\r\n",
    );
    client.ask(
        set("auth", "someone"),
        "CLIENT_ERROR bad authentication token format\r\n",
    );
    client.ask("get a\r\n", "CLIENT_ERROR unauthenticated\r\n");
    client.ask(set("anything", "someone secret"), "STORED\r\n");
    // The credentials were not stored as a value.
    client.ask("get anything\r\n", "END\r\n");
    client.ask(set("a", "x"), "STORED\r\n");

    let mut client = server.connect();
    client.ask("get a\r\n", "CLIENT_ERROR unauthenticated\r\n");
    client.ask(set("auth", "other word"), "STORED\r\n");
    client.ask("get a\r\n", value_reply("a", "x"));
}

fn an_item_of_a_hundred_megabytes_is_kept_whole(engine: Engine) {
    const BYTES: usize = 100 * 1024 * 1024;
    // One for all engines, and in pieces: most of the time went into copies.
    static VALUE: LazyLock<String> = LazyLock::new(|| pattern(BYTES));
    let (_server, mut client) = engine.start_and_connect(&["-m", "512", "-I", "128m"]);
    let store = |client: &mut Client, line: String, reply| {
        client.send(line.as_bytes());
        client.send(VALUE.as_bytes());
        client.ask("\r\n", reply);
    };
    store(
        &mut client,
        format!("set large 0 0 {BYTES}\r\n"),
        "STORED\r\n",
    );
    client.ask("get large\r\n", format!("VALUE large 0 {BYTES}\r\n"));
    for piece in VALUE.as_bytes().chunks(100_000) {
        client.expect(piece);
    }
    client.expect("\r\nEND\r\n");
    store(&mut client, format!("ms large {BYTES}\r\n"), "HD\r\n");
    client.ask("mg large s\r\n", format!("HD s{BYTES}\r\n"));
    client.ask("delete large\r\n", "DELETED\r\n");
}

fn memory_comes_back_when_the_clients_are_gone(engine: Engine) {
    raise_open_files();
    let (server, mut client) = engine.start_and_connect(&["-c", "2000"]);
    let value = "x".repeat(LARGE);
    // The memory of items is touched once before measuring.
    for n in 0..100 {
        client.ask(set(&format!("warm{n}"), &value), "STORED\r\n");
    }
    let before = server.rss_kib();
    let mut clients: Vec<Client> = (0..300).map(|_| server.connect()).collect();
    for client in &mut clients {
        // Part of a large value, and a long list of keys whose values are never read.
        client.send(format!("get{}\r\n", " warm99".repeat(200)).as_bytes());
        client.send(format!("set a 0 0 {LARGE}\r\n").as_bytes());
        let half = &value.as_bytes()[..100_000];
        let _ = client.socket().set_nonblocking(true);
        let _ = client.try_send(half);
    }
    let during = server.rss_kib();
    drop(clients);
    let mut after = 0;
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        after = server.rss_kib();
        if after < before + 32 * 1024 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(
        after < before + 32 * 1024,
        "resident: {before} KiB before, {during} KiB during, {after} KiB after"
    );
}

const NO_MEMORY: &str = "SERVER_ERROR out of memory reading request";

/// Bytes of input that every connection may have.
const FREE: u64 = 32 * 1024;

fn large_stores_over_the_memory_of_connections_are_refused_and_swallowed(engine: Engine) {
    let (server, mut client) = engine.start_and_connect(&["--connection-memory", "8m"]);
    for n in 0..100 {
        client.ask(set(&format!("small{n}"), &n.to_string()), "STORED\r\n");
    }
    let value = "x".repeat(LARGE);
    let (half, rest) = value.split_at(LARGE * 3 / 4);
    // An engine may receive some values in the memory of their items: at most half of it.
    let mut others: Vec<Client> = (0..60).map(|_| server.connect()).collect();
    for (n, other) in others.iter_mut().enumerate() {
        other.send(format!("set k{n} 0 0 {LARGE}\r\n{half}").as_bytes());
    }
    wait_until("all has arrived", || {
        client.stat("bytes_read") > (60 * half.len()) as u64
    });
    let (held, limit) = (
        client.stat("connection_buffer_bytes"),
        client.stat("connection_buffer_limit"),
    );
    assert_eq!(limit, 8 << 20);
    assert!(held <= limit + 61 * FREE, "{held} bytes of {limit}");
    // A small request always has room.
    client.ask(set("small", &"y".repeat(10_000)), "STORED\r\n");
    let (mut stored, mut refused) = (0, Vec::new());
    for (n, other) in others.iter_mut().enumerate() {
        other.send(format!("{rest}\r\nget small7\r\n").as_bytes());
        match other.line().as_str() {
            "STORED" => stored += 1,
            NO_MEMORY => refused.push(n),
            line => panic!("{line}"),
        }
        other.expect(value_reply("small7", "7"));
    }
    assert!(stored >= 2, "{stored} of 60 were stored");
    assert!(refused.len() >= 10, "{} of 60 were refused", refused.len());
    assert_eq!(client.stat("read_buf_oom"), refused.len() as u64);
    // There is room again.
    for n in refused.into_iter().take(10) {
        client.ask(format!("get k{n}\r\n"), "END\r\n");
        others[n].ask(set(&format!("k{n}"), &value), "STORED\r\n");
        client.ask(
            format!("get k{n}\r\n"),
            value_reply(&format!("k{n}"), &value),
        );
    }
    for n in 0..100 {
        client.ask(
            format!("get small{n}\r\n"),
            value_reply(&format!("small{n}"), &n.to_string()),
        );
    }
    drop(others);
    wait_until("the memory is given back", || {
        client.stat("connection_buffer_bytes") < 5 << 20
    });
}

/// All of the largest value but its end, which is [`rest`].
fn most() -> String {
    "x".repeat(LARGE - 100_000)
}

fn rest() -> String {
    "x".repeat(100_000)
}

/// Opens clients in the middle of a large store until the memory of connections is used up.
fn fill_connections(server: &TestServer, client: &mut Client) -> Vec<Client> {
    let refused = client.stat("read_buf_oom");
    let mut holders = Vec::new();
    // The client that is refused must forget what it has sent.
    while client.stat("read_buf_oom") == refused {
        let mut holder = server.connect();
        let seen = client.stat("bytes_read") as usize;
        holder.send(format!("set held 0 0 {LARGE}\r\n{}", most()).as_bytes());
        wait_until("it has arrived", || {
            client.stat("bytes_read") as usize > seen + most().len()
        });
        holders.push(holder);
        assert!(holders.len() < 100, "all were taken");
    }
    holders
}

fn what_is_refused_for_lack_of_memory_is_not_served_stale(engine: Engine) {
    let (server, mut client) = engine.start_and_connect(&["--connection-memory", "5200k"]);
    let (most, rest) = (most(), rest());
    // Clients that hold memory are closed when they have been silent for some seconds.
    let mut holders = Vec::new();
    for (line, kept) in [
        ("set a 0 0", false),
        ("ms a", false),
        ("add a 0 0", true),
        ("append a 0 0", true),
    ] {
        drop(holders);
        wait_until("they are gone", || client.stat("curr_connections") == 1);
        holders = fill_connections(&server, &mut client);
        client.ask(set("a", "old"), "STORED\r\n");
        client.send(format!("{line} {LARGE}\r\n{most}").as_bytes());
        client.expect(format!("{NO_MEMORY}\r\n"));
        client.send(format!("{rest}\r\n").as_bytes());
        let reply = if kept {
            value_reply("a", "old")
        } else {
            "END\r\n".into()
        };
        client.ask("get a\r\n", reply);
    }
    // A line may be long, too; the server does not know where it would have ended.
    let keys = " nothing".repeat(100_000);
    let mut lister = server.connect();
    send_all(&mut lister, format!("mn\r\nget{keys}").as_bytes());
    lister.expect(format!("MN\r\n{NO_MEMORY}\r\n"));
    lister.expect_end();
    let held = client.stat("connection_buffer_bytes");
    // A client whose store was accepted, and so late that its value is in a buffer. The last client
    // was refused, and perhaps the one before it.
    let late = holders.len() - 3;
    holders[late].ask(format!("{rest}\r\n"), "STORED\r\n");
    wait_until("its memory is free", || {
        client.stat("connection_buffer_bytes") < held - 900_000
    });
    client.ask(set("a", &most), "STORED\r\n");
}

fn large_stores_wait_for_memory_that_others_have_for_a_moment(engine: Engine) {
    let (server, mut client) = engine.start_and_connect(&["--connection-memory", "5200k"]);
    let mut holders: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    let seen = client.stat("bytes_read") as usize;
    for (n, holder) in holders.iter_mut().enumerate() {
        holder.send(format!("set held{n} 0 0 {LARGE}\r\n{}", most()).as_bytes());
    }
    wait_until("they have arrived", || {
        client.stat("bytes_read") as usize > seen + 4 * most().len()
    });
    let value = "y".repeat(LARGE);
    let others: Vec<_> = (0..6)
        .map(|n| {
            let (mut other, value) = (server.connect(), value.clone());
            std::thread::spawn(move || other.ask(set(&format!("k{n}"), &value), "STORED\r\n"))
        })
        .collect();
    std::thread::sleep(Duration::from_millis(100));
    for holder in &mut holders {
        holder.ask(format!("{}\r\n", rest()), "STORED\r\n");
    }
    others.into_iter().for_each(|other| other.join().unwrap());
    assert_eq!(client.stat("read_buf_oom"), 0);
    client.ask("get k5\r\n", value_reply("k5", &value));
}

#[test]
fn half_sent_stores_do_not_keep_the_memory_from_others_for_good() {
    if !concerns_the_server_under_test() {
        return;
    }
    raise_open_files();
    let server = TestServer::with(&["-c", "500"]);
    let mut client = server.connect();
    let half = vec![b'x'; LARGE / 2];
    let before = client.stat("bytes_read") as usize;
    let stuck: Vec<Client> = (0..300)
        .map(|n| {
            let mut other = server.connect();
            other.send(format!("set k{n} 0 0 {LARGE}\r\n").as_bytes());
            other.send(&half);
            other
        })
        .collect();
    // A refusal that is still to come would be mistaken for one of the following.
    wait_until("all halves have arrived", || {
        client.stat("bytes_read") as usize > before + stuck.len() * half.len()
    });
    let limit = client.stat("connection_buffer_limit");
    let held = client.stat("connection_buffer_bytes");
    assert!(held <= limit + 301 * FREE, "{held} bytes of {limit}");
    // They are silent and hold memory that others ask for.
    let holders = fill_connections(&server, &mut client);
    let value = "x".repeat(LARGE);
    wait_until("a large value is stored", || {
        client.ask(set("small", "y"), "STORED\r\n");
        client.send(set("large", &value).as_bytes());
        std::thread::sleep(Duration::from_millis(100));
        client.line() == "STORED"
    });
    client.ask("get large\r\n", value_reply("large", &value));
    assert!(client.stat("slow_reader_kicks") > 0);
    drop((stuck, holders));
}

/// A value that shows where it was cut.
fn pattern(length: usize) -> String {
    const LETTERS: &str = "abcdefghijklmnopqrstuvwxyz";
    let mut pattern = LETTERS.repeat(length.div_ceil(LETTERS.len()));
    pattern.truncate(length);
    pattern
}

/// Sends on another thread and reads in small pieces, so that the server often meets a full socket.
fn sip(client: &mut Client, requests: String, replies: &str) {
    let mut socket = client.socket();
    let sender = std::thread::spawn(move || socket.write_all(requests.as_bytes()).unwrap());
    for (n, piece) in replies.as_bytes().chunks(300_001).enumerate() {
        if n % 4 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        client.expect(piece);
    }
    sender.join().unwrap();
}

fn large_and_small_replies_keep_their_order_for_a_slow_reader(engine: Engine) {
    let (server, mut client) = engine.start_and_connect(&[]);
    // Around the size from which values are not copied, and the largest size.
    let sizes = [0, 100, 32_767, 32_768, 40_000, 100_000, 600_000, LARGE];
    let values = sizes.map(pattern);
    for (n, value) in values.iter().enumerate() {
        client.ask(set(&format!("k{n}"), value), "STORED\r\n");
    }
    client.ask(set("n", "0"), "STORED\r\n");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let (mut requests, mut replies, mut counter) = (String::new(), String::new(), 0);
    for _ in 0..400 {
        let n = random.random_range(0..values.len());
        let (value, length) = (&values[n], sizes[n]);
        match random.random_range(0..6) {
            0 => {
                let _ = write!(requests, "mg k{n} v s\r\n");
                let _ = write!(replies, "VA {length} s{length}\r\n{value}\r\n");
            }
            1 => {
                let _ = write!(requests, "get nothing k{n} k1 k{n}\r\n");
                let found = format!("VALUE k{n} 0 {length}\r\n{value}\r\n");
                let one = format!("VALUE k1 0 100\r\n{}\r\n", values[1]);
                let _ = write!(replies, "{found}{one}{found}END\r\n");
            }
            2 => {
                requests += "what\r\n";
                replies += "ERROR\r\n";
            }
            // Requests executed before the socket was full are not executed again.
            3 => {
                counter += 1;
                requests += "incr n 1\r\n";
                let _ = write!(replies, "{counter}\r\n");
            }
            _ => {
                let _ = write!(requests, "get k{n}\r\n");
                replies += &value_reply(&format!("k{n}"), value);
            }
        }
    }
    sip(&mut client, requests, &replies);
    let mut other = server.connect();
    other.ask("get n\r\n", value_reply("n", &counter.to_string()));
}

fn a_large_value_is_whole_although_it_is_overwritten_while_it_is_sent(engine: Engine) {
    let server = engine.start();
    let address = server.address();
    let versions: Vec<String> = [40_000, 333_333, 900_000, 64 << 10]
        .iter()
        .zip('a'..)
        .map(|(length, letter)| letter.to_string().repeat(*length))
        .collect();
    server.connect().ask(set("k", &versions[0]), "STORED\r\n");
    let reading = AtomicUsize::new(3);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = Client::connect(address);
            // SeqCst: only tells the writer when to stop.
            while reading.load(Ordering::SeqCst) > 0 {
                for version in &versions {
                    writer.ask(set("k", version), "STORED\r\n");
                }
            }
        });
        for _ in 0..3 {
            scope.spawn(|| {
                let mut reader = Client::connect(address);
                for _ in 0..20 {
                    reader.send("get k\r\n".repeat(5).as_bytes());
                    std::thread::sleep(Duration::from_millis(3));
                    for _ in 0..5 {
                        let head = reader.line();
                        let length = head.rsplit(' ').next().unwrap().parse::<usize>().unwrap();
                        let version = versions.iter().find(|v| v.len() == length);
                        let version = version.unwrap_or_else(|| panic!("{head}"));
                        reader.expect(format!("{version}\r\nEND\r\n"));
                    }
                }
                // SeqCst: as above.
                reading.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
}

/// A large value of one letter. Length and letter both identify the version.
fn version(number: usize) -> String {
    let letter = char::from(b'a' + (number % 26) as u8);
    letter.to_string().repeat(LARGE - number % 26 * 1_000)
}

/// Reads one reply to `get`, slowly, and fails unless it is one complete version. Returns whether
/// there was one.
fn read_version(client: &mut Client, pause: Duration) -> bool {
    let line = client.line();
    if line == "END" {
        return false;
    }
    let length = line.rsplit(' ').next().unwrap().parse().unwrap();
    let value = client.bytes_slowly(length, pause);
    let number = usize::from(value[0] - b'a');
    let is_whole = value == version(number).as_bytes();
    assert!(is_whole, "{line}, of {}", char::from(value[0]));
    client.expect("\r\nEND\r\n");
    true
}

/// The cache is small and may not evict, so memory would soon run out.
fn replies_that_nobody_reads_keep_no_memory_of_items(engine: Engine) {
    // Where waiting replies are short of memory, silent clients are closed after 5 s.
    let room: &[&str] = match Kind::under_test() {
        Kind::Corewise => &["--connection-memory", "12m"],
        Kind::Memcached => &[],
    };
    let server = engine.with(&[&["-M", "-m", "16"], room].concat());
    let mut other = server.connect();
    other.ask(set("large", &version(0)), "STORED\r\n");
    let before = server.rss_kib();
    let mut stuck: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    for client in &mut stuck {
        client.send(&b"get large\r\n".repeat(1_000));
    }
    for number in 1..200 {
        other.ask(set("large", &version(number)), "STORED\r\n");
        if number % 10 == 0 {
            other.ask("delete large\r\n", "DELETED\r\n");
        }
    }
    let grown = server.rss_kib().saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} KiB for four that never read");
    for mut client in stuck {
        // Replies that are read after all are also complete.
        for _ in 0..5 {
            read_version(&mut client, Duration::ZERO);
        }
    }
}

/// Waiting replies take half of the memory limit at most, and give it back.
fn replies_that_nobody_reads_are_bounded_together(engine: Engine) {
    const BYTES: usize = 7_000_000;
    let server = engine.with(&["-m", "64", "-I", "8m"]);
    let mut other = server.connect();
    other.ask(set("large", &"x".repeat(BYTES)), "STORED\r\n");
    let before = server.rss_kib();
    let silent: Vec<Client> = (0..24)
        .map(|_| {
            let mut client = server.connect();
            // The sockets take one or two.
            client.send(&b"get large\r\n".repeat(8));
            other.ask("mn\r\n", "MN\r\n");
            client
        })
        .collect();
    wait_until("the limit is reached", || {
        other.stat("response_obj_oom") > 0
    });
    let grown = server.peak_rss_kib().saturating_sub(before);
    // Without a limit they would take 160 MiB. The peak has more than half of the memory limit: the
    // allocator keeps freed memory for some milliseconds. That made 27 to 66 MiB of it.
    assert!(grown < 96 * 1024, "{grown} KiB for replies");
    // A client that reads gets its reply in spite of them, once they have been silent for a while:
    // one second if they hold the memory on its own loop, five if they hold it on the other.
    let whole = format!("VALUE large 0 {BYTES}\r\n\r\nEND\r\n").len() + BYTES;
    wait_until("a client that reads gets its reply", || {
        // The waiting replies leave less memory to items, so it may have been evicted.
        other.send(b"mg large s\r\n");
        if other.line() == "EN" {
            other.send(set("large", &"x".repeat(BYTES)).as_bytes());
            other.line();
        }
        let mut reader = server.connect();
        reader.send(b"get large\r\nquit\r\n");
        reader.read_to_end().len() == whole
    });
    drop(silent);
}

/// The values are overwritten, deleted and evicted.
fn large_values_are_whole_for_slow_readers_while_others_change_them(engine: Engine) {
    const READERS: usize = 4;
    const REPLIES: usize = 12;
    let server = engine.with(&["-m", "16"]);
    let address = server.address();
    let mut writer = server.connect();
    writer.ask(set("large", &version(0)), "STORED\r\n");
    let reading = AtomicUsize::new(READERS);
    std::thread::scope(|scope| {
        let reading = &reading;
        let reader = |number| {
            move || {
                let _done = Done(reading);
                let mut client = Client::connect(address);
                let pause = Duration::from_millis(number);
                // All requests of a batch may fall between a delete and the next store.
                let batches = (0..100).map(|_| {
                    client.send("get large\r\n".repeat(REPLIES).as_bytes());
                    let found = (0..REPLIES).filter(|_| read_version(&mut client, pause));
                    found.count()
                });
                batches.into_iter().find(|&found| found > 0).unwrap_or(0)
            }
        };
        let readers: Vec<_> = (0..READERS as u64)
            .map(|n| scope.spawn(reader(n)))
            .collect();
        let mut number = 1;
        while reading.load(Ordering::Relaxed) > 0 {
            writer.ask(set("large", &version(number)), "STORED\r\n");
            match number % 16 {
                3 | 8 => writer.ask("delete large\r\n", "DELETED\r\n"),
                13 => {
                    for n in 0..16 {
                        writer.ask(set(&format!("k{n}"), &version(n)), "STORED\r\n");
                    }
                }
                _ => {}
            }
            number += 1;
        }
        let found: Vec<usize> = readers.into_iter().map(|r| r.join().unwrap()).collect();
        println!("{number} versions, replies with one: {found:?}");
        assert!(found.iter().all(|&found| found > 0));
    });
}

/// Decrements a counter when dropped, so also after a panic.
struct Done<'a>(&'a AtomicUsize);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn readers_may_leave_in_the_middle_of_large_values(engine: Engine) {
    let server = engine.with(&["-M", "-m", "16"]);
    let mut writer = server.connect();
    writer.ask(set("large", &version(0)), "STORED\r\n");
    let before = server.rss_kib();
    for number in 0..100 {
        let mut leaver = server.connect();
        leaver.send("get large\r\n".repeat(8).as_bytes());
        leaver.bytes_slowly(1_000, Duration::ZERO);
        writer.ask(set("large", &version(number)), "STORED\r\n");
    }
    writer.send(b"get large\r\n");
    assert!(read_version(&mut writer, Duration::ZERO));
    let grown = server.rss_kib().saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} KiB for readers that have left");
}

fn many_clients_may_be_halfway_through_a_large_value(engine: Engine) {
    const COUNT: usize = 60;
    let corewise = Kind::under_test() == Kind::Corewise;
    // Otherwise some of them would be refused.
    let room = ["-m", "128", "--connection-memory", "80m"];
    let server = engine.with(if corewise { &room } else { &room[..2] });
    let mut other = server.connect();
    let before = server.rss_kib();
    let mut senders: Vec<(usize, Client)> = (0..COUNT).map(|n| (n, server.connect())).collect();
    let request = |n: usize| set(&format!("k{n}"), &version(n));
    for (n, sender) in &mut senders {
        sender.send(&request(*n).as_bytes()[..LARGE / 2]);
    }
    for n in 0..200 {
        other.ask(set("small", &n.to_string()), "STORED\r\n");
        other.ask("get small\r\n", value_reply("small", &n.to_string()));
    }
    // At most one buffer of the announced length for each.
    let grown = server.rss_kib().saturating_sub(before);
    let most = 2 * COUNT * LARGE / 1024;
    assert!(grown < most as u64, "{grown} KiB for {COUNT} halves");
    // Every other client leaves.
    senders.retain(|(n, _)| n % 2 == 0);
    for (n, sender) in &mut senders {
        sender.send(&request(*n).as_bytes()[LARGE / 2..]);
    }
    for (_, sender) in &mut senders {
        sender.expect("STORED\r\n");
    }
    for n in 0..COUNT {
        other.send(format!("get k{n}\r\n").as_bytes());
        let found = read_version(&mut other, Duration::ZERO);
        assert_eq!(found, n % 2 == 0, "k{n}");
    }
}
