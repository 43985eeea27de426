//! The protocol of \[CPHASH\] over sockets, as `docs/CPHASH-PROTOCOL.md` specifies it: beside
//! memcached's on the same items, and under abuse. Messages are written byte by byte here.

use crate::common;

use std::collections::HashMap;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Client, Engine, PATIENCE, TestServer, raise_open_files, wait_until};
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

for_all_engines_at_once! {
    ; of corewise:
    a_thousand_connections_are_served_at_once
    a_client_that_never_reads_is_bounded_and_holds_nobody_up
    the_load_generator_verifies_every_value
}

for_every_engine! { of corewise:
    both_protocols_see_the_same_items
    random_requests_of_both_protocols_agree_with_a_table
    bytes_may_arrive_one_at_a_time
    random_bytes_do_no_harm
    every_prefix_of_a_request_may_be_the_last_thing_heard
    inserts_over_the_limit_are_skipped_and_remove_the_old_item
    an_insert_that_finds_no_memory_leaves_a_miss
}

/// The largest value with the default limit of 1 MiB.
const LARGEST: usize = 1_048_502;
const MISS: [u8; 4] = [0; 4];

fn request(operation: u32, size: u32, key: u64) -> Vec<u8> {
    let mut bytes = operation.to_le_bytes().to_vec();
    bytes.extend(size.to_le_bytes());
    bytes.extend(key.to_le_bytes());
    bytes
}

fn lookup(key: u64) -> Vec<u8> {
    request(1, 0, key)
}

fn insert(key: u64, value: &[u8]) -> Vec<u8> {
    [&request(2, value.len() as u32, key), value].concat()
}

fn hit(value: &[u8]) -> Vec<u8> {
    [&(value.len() as u32).to_le_bytes(), value].concat()
}

/// A server with both listeners.
fn start(engine: Engine, options: &[&str]) -> TestServer {
    let listen = ["--cphash-listen", "127.0.0.1:0"];
    engine.with(&[&listen[..], options].concat())
}

fn connect(server: &TestServer) -> Client {
    Client::connect(server.cphash_address())
}

fn both_protocols_see_the_same_items(engine: Engine) {
    let server = start(engine, &[]);
    let (mut text, mut binary) = (server.connect(), connect(&server));
    binary.ask([insert(42, b"hello"), lookup(42)].concat(), hit(b"hello"));
    text.ask(
        "get 00000000000002a\r\n",
        "VALUE 00000000000002a 0 5\r\nhello\r\nEND\r\n",
    );
    text.ask("append 00000000000002a 0 0 1\r\n!\r\n", "STORED\r\n");
    binary.ask(lookup(42), hit(b"hello!"));
    text.ask("set fffffffffffffff 7 0 3\r\nabc\r\n", "STORED\r\n");
    binary.ask(lookup((1 << 60) - 1), hit(b"abc"));
    text.ask("delete 00000000000002a\r\n", "DELETED\r\n");
    binary.ask(lookup(42), MISS);
    // An empty value is an item that looks like a miss.
    binary.ask([insert(1, b""), lookup(1)].concat(), MISS);
    text.ask(
        "get 000000000000001\r\n",
        "VALUE 000000000000001 0 0\r\n\r\nEND\r\n",
    );
    // Large values, which are neither received nor sent through buffers.
    for size in [40_000, 100_000, LARGEST] {
        let value = vec![b'v'; size];
        binary.ask(
            [insert(2, &value), lookup(2), lookup(2)].concat(),
            hit(&value).repeat(2),
        );
        let line = format!("VALUE 000000000000002 0 {size}\r\n");
        let reply = [line.as_bytes(), &value, b"\r\nEND\r\n"];
        text.ask("get 000000000000002\r\n", reply.concat());
    }
    text.ask("flush_all\r\n", "OK\r\n");
    binary.ask(lookup(2), MISS);
}

fn random_requests_of_both_protocols_agree_with_a_table(engine: Engine) {
    let server = start(engine, &[]);
    let (mut text, mut binary) = (server.connect(), connect(&server));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut table: HashMap<u64, Vec<u8>> = HashMap::new();
    for _ in 0..300 {
        // A pipeline over one protocol, then one over the other, which sees its effects.
        let (mut requests, mut replies) = (Vec::new(), Vec::new());
        let is_text = random.random_bool(0.4);
        for _ in 0..random.random_range(1..30) {
            let number: u64 = random.random_range(0..20);
            let name = format!("{number:015x}");
            if random.random_bool(0.4) {
                let size = *[1, 3, 100, 5_000, 50_000].choose(&mut random).unwrap();
                let value = vec![random.random_range(b'a'..=b'z'); size];
                if is_text {
                    requests.extend(format!("set {name} 0 0 {size} noreply\r\n").bytes());
                    requests.extend([&value[..], b"\r\n"].concat());
                } else {
                    requests.extend(insert(number, &value));
                }
                table.insert(number, value);
            } else if is_text {
                requests.extend(format!("get {name}\r\n").bytes());
                if let Some(value) = table.get(&number) {
                    replies.extend(format!("VALUE {name} 0 {}\r\n", value.len()).bytes());
                    replies.extend([value, &b"\r\n"[..]].concat());
                }
                replies.extend(b"END\r\n");
            } else {
                requests.extend(lookup(number));
                replies.extend(table.get(&number).map_or(MISS.to_vec(), |value| hit(value)));
            }
        }
        // The end of the pipeline, so that the other connection finds it executed.
        if is_text {
            text.ask(
                [&requests[..], b"mn\r\n"].concat(),
                [&replies[..], b"MN\r\n"].concat(),
            );
        } else {
            let end = lookup(1_000);
            binary.ask([requests, end].concat(), [&replies[..], &MISS].concat());
        }
    }
}

fn bytes_may_arrive_one_at_a_time(engine: Engine) {
    let server = start(engine, &[]);
    let input = [
        insert(5, b"hello"),
        lookup(5),
        insert(5, b""),
        lookup(5),
        lookup(6),
    ]
    .concat();
    let mut client = connect(&server);
    for byte in &input {
        client.send(&[*byte]);
        std::thread::sleep(Duration::from_micros(300));
    }
    client.expect([&hit(b"hello")[..], &MISS, &MISS].concat());
    // A large value in pieces, whose last byte comes with the next request.
    let value = vec![b'l'; 70_000];
    let input = [insert(7, &value), lookup(7)].concat();
    let (pieces, rest) = input.split_at(70_015);
    for piece in pieces.chunks(9_000) {
        client.send(piece);
        std::thread::sleep(Duration::from_millis(2));
    }
    client.ask(rest, hit(&value));
}

fn random_bytes_do_no_harm(engine: Engine) {
    let server = start(engine, &[]);
    let until = Instant::now() + Duration::from_secs(1);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    let (mut connections, mut closed) = (0, 0);
    while Instant::now() < until {
        let mut client = connect(&server);
        connections += 1;
        for _ in 0..random.random_range(1..30) {
            let mut noise = [0; 40];
            random.fill_bytes(&mut noise);
            let key = u64::from(noise[0] % 4);
            let pieces = [
                noise[..random.random_range(0..40)].to_vec(),
                lookup(key),
                insert(key, &noise[..random.random_range(0..40)]),
                request(2, random.random_range(0..3_000_000), key),
                request(random.random_range(0..4), random.random_range(0..3), key),
                vec![0; random.random_range(0..60_000)],
            ];
            if client
                .try_send(pieces.choose(&mut random).unwrap())
                .is_err()
            {
                closed += 1;
                break;
            }
        }
    }
    assert!(
        connections > 10 && closed > 0,
        "{connections} connections, {closed} closed"
    );
}

fn every_prefix_of_a_request_may_be_the_last_thing_heard(engine: Engine) {
    let server = start(engine, &[]);
    for message in [lookup(9), insert(9, b"nine")] {
        for length in 0..message.len() {
            let mut polite = connect(&server);
            polite.send(&message[..length]);
            polite.finish();
            polite.expect_end();
            connect(&server).send(&message[..length]);
        }
    }
    connect(&server).ask(lookup(9), MISS);
    // A half-closed connection is answered in full.
    let mut polite = connect(&server);
    polite.send(&[insert(9, b"nine"), lookup(9), lookup(9)].concat());
    polite.finish();
    polite.expect(hit(b"nine").repeat(2));
    polite.expect_end();
}

fn inserts_over_the_limit_are_skipped_and_remove_the_old_item(engine: Engine) {
    let server = start(engine, &[]);
    let mut client = connect(&server);
    for size in [LARGEST + 1, 5_000_000] {
        client.ask([insert(1, b"old"), lookup(1)].concat(), hit(b"old"));
        client.send(&insert(1, &vec![b'x'; size]));
        client.ask(
            [lookup(1), insert(2, b"in step"), lookup(2)].concat(),
            [&MISS, &hit(b"in step")[..]].concat(),
        );
    }
    assert_eq!(server.connect().stat("store_too_large"), 2);
    // A size of 4 GiB takes no memory, and its client may leave.
    let mut absurd: Vec<Client> = (0..50).map(|_| connect(&server)).collect();
    for client in &mut absurd {
        client.send(&[request(2, u32::MAX, 3), vec![0; 100_000]].concat());
    }
    wait_until("all are refused", || {
        server.connect().stat("store_too_large") == 52
    });
    drop(absurd);
    client.ask(lookup(3), MISS);
}

fn a_thousand_connections_are_served_at_once(engine: Engine) {
    const COUNT: u64 = 1_000;
    assert!(
        raise_open_files() > COUNT + 100,
        "more open files are needed"
    );
    let server = start(engine, &["-c", "2000"]);
    let mut clients: Vec<Client> = (0..COUNT).map(|_| connect(&server)).collect();
    for round in 0..3u8 {
        for (n, client) in clients.iter_mut().enumerate() {
            let n = n as u64;
            client.send(&[insert(n, &[round; 9]), lookup(n), lookup(COUNT)].concat());
        }
        for client in &mut clients {
            client.expect([&hit(&[round; 9])[..], &MISS].concat());
        }
    }
}

fn a_client_that_never_reads_is_bounded_and_holds_nobody_up(engine: Engine) {
    let options = ["--slow-reader-timeout", "2s"];
    let server = start(engine, &options);
    let value = vec![b'v'; 10_000];
    let mut client = connect(&server);
    client.ask([insert(1, &value), lookup(1)].concat(), hit(&value));
    let before = server.rss_kib();
    let silent = connect(&server);
    let lookups = lookup(1).repeat(1_000);
    let sender = silent.socket();
    sender.set_nonblocking(true).unwrap();
    let mut sent = 0;
    for _ in 0..100 {
        sent += std::io::Write::write(&mut &sender, &lookups[sent % 16..]).unwrap_or(0);
        client.ask(lookup(1), hit(&value));
    }
    assert!(sent > 10_000, "only {sent} bytes were taken");
    assert!(
        server.rss_kib() < before + 16_384,
        "{} KiB, {before} before",
        server.rss_kib()
    );
    wait_until("the slow reader is closed", || {
        server.connect().stat("curr_connections") == 2
    });
    client.ask(lookup(1), hit(&value));
}

fn an_insert_that_finds_no_memory_leaves_a_miss(engine: Engine) {
    let server = start(engine, &["-m", "8", "-M"]);
    let mut client = connect(&server);
    let value = vec![b'v'; 100_000];
    let count = 200;
    let mut stored = 0;
    for key in 0..count {
        client.send(&[insert(key, &value), lookup(key)].concat());
        let size = client.bytes_slowly(4, Duration::ZERO);
        if size != MISS {
            client.expect(&value);
            stored += 1;
        }
    }
    let refused = server.connect().stat("store_no_memory");
    assert!(
        stored > 10 && refused > 10,
        "{stored} stored, {refused} refused"
    );
    assert_eq!(stored + refused, count);
}

/// Runs the load generator against the server and returns its figures.
fn load(server: &TestServer, options: &str) -> HashMap<String, f64> {
    let output = Command::new(env!("CARGO_BIN_EXE_corewise"))
        .arg("load")
        .arg(server.cphash_address().to_string())
        .args("--protocol cphash --prefill --keys 1000 --warmup 0 --connections 8".split(' '))
        .args("--value-size 1-60000 --format flat --seconds 0.3 --slice-ms 100".split(' '))
        .args(options.split(' '))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let report = String::from_utf8(output.stdout).unwrap();
    let figures = report.lines().filter_map(|line| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    figures.collect()
}

fn the_load_generator_verifies_every_value(engine: Engine) {
    let server = start(engine, &["-m", "128"]);
    for options in ["--pipeline 32 --mix 7:3", "--rate 2000 --mix 1:1"] {
        let figures = load(&server, options);
        let figure = |name: &str| figures[&format!("targets.a.{name}")];
        assert_eq!(figure("hit_rate"), 1.0, "{options}: {figures:?}");
        assert!(figure("sets") > 50.0, "{options}: {figures:?}");
    }
    assert!(server.connect().stat("cmd_get") > 100);
    assert_eq!(server.connect().stat("get_misses"), 0);
    assert_eq!(server.connect().stat("curr_items"), 1000);
}

#[test]
fn malformed_headers_close_the_connection_behind_earlier_replies() {
    Engine::run(Engine::TESTED[0], |engine| {
        let server = start(engine, &[]);
        for bad in [
            request(0, 0, 1),
            request(3, 0, 1),
            request(1, 1, 1),
            request(1, 0, 1 << 60),
            request(2, 1, 1 << 63),
            b"version\r\n".to_vec(),
        ] {
            let mut client = connect(&server);
            client.send(&[insert(4, b"four"), lookup(4), bad].concat());
            client.expect(hit(b"four"));
            client.expect_end();
        }
    });
}

#[test]
fn connections_count_as_those_of_other_listeners_do() {
    Engine::run(Engine::TESTED[0], |engine| {
        let server = start(engine, &["-c", "3", "--idle-timeout", "1500ms"]);
        let mut text = server.connect();
        let (mut first, mut second) = (connect(&server), connect(&server));
        second.ask(lookup(1), MISS);
        text.ask("mn\r\n", "MN\r\n");
        // Turned away without a byte, which would be taken for a size.
        connect(&server).expect_end();
        let conns = text.stats("conns");
        let listener = format!("listen_addr cphash:{}", server.cphash_address());
        assert_eq!(conns.matches(&listener).count(), 2, "{conns}");
        let setting = text.stat_of("settings", "cphash_listen");
        assert_eq!(setting, server.cphash_address().to_string());
        assert!(
            server.said().contains("--protocol cphash"),
            "{}",
            server.said()
        );
        // Idle connections are closed, one that never sent anything too.
        for client in [&mut first, &mut second] {
            client.expect_end();
        }
    });
}

#[test]
fn a_server_told_to_stop_first_answers_what_it_received() {
    Engine::run(Engine::TESTED[0], |engine| {
        let mut server = start(engine, &[]);
        let mut client = connect(&server);
        client.send(&[insert(4, b"four"), lookup(4).repeat(1_000)].concat());
        client.expect(hit(b"four"));
        server.terminate();
        client.expect(hit(b"four").repeat(999));
        client.expect_end();
        assert!(server.wait().success());
    });
}

#[test]
fn a_server_with_users_does_not_start_with_this_listener() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    std::fs::write(&users, "ann:secret\n").unwrap();
    let start = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_corewise"))
        .args(["serve", "-p", "-1", "--cphash-listen", "127.0.0.1:0", "-Y"])
        .arg(&users)
        .output()
        .unwrap();
    assert!(start.elapsed() < PATIENCE);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("no authentication") && said.lines().count() == 1,
        "{said}"
    );
}
