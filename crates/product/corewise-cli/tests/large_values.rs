//! Large values, which a server may receive in the memory of their items: of all sizes, arriving in
//! all ways, and with other operations executed before they are complete.

use crate::common;

use std::fmt::Write as _;
use std::time::Duration;

use common::{Client, Engine, Kind, raise_open_files};

for_every_engine! {
    values_of_all_sizes_are_kept_verbatim
    a_large_store_may_be_cut_anywhere
    a_large_value_without_its_line_break_is_refused_and_reading_goes_on
    replies_to_pipelined_large_stores_keep_their_order
    replies_keep_their_order_beside_other_clients_large_values
    a_flush_may_come_between_the_line_and_the_end_of_a_value
    conditions_are_looked_at_when_the_value_has_come
    clients_that_announce_much_and_stop_hold_up_nobody
    a_cache_that_may_not_evict_keeps_every_large_value
}

/// Bytes without a line break that are others at every position, but for a few, and for every key.
fn value(key: usize, length: usize) -> String {
    // A part of it that is moved shows, and it takes few instructions without optimization.
    const REST: &str = "0-1-2-3-4-5-6-7-8-9-a-b-c-d-e-f-g-h-i-j-k-l-m-n-o-p-q-r-s-t-u-v-w-x-y-z-";
    let mut text = String::with_capacity(length + REST.len() + 48);
    while text.len() < length {
        let _ = write!(text, "{key}.{}|{REST}", text.len());
    }
    text.truncate(length);
    text
}

fn set(key: &str, value: &str) -> String {
    format!("set {key} 5 0 {}\r\n{value}\r\n", value.len())
}

fn found(key: &str, value: &str) -> String {
    format!("VALUE {key} 5 {}\r\n{value}\r\nEND\r\n", value.len())
}

/// Sends `pieces`, with a pause after each, so that the server reads them separately.
fn send_in_pieces(client: &mut Client, pieces: &[&[u8]]) {
    for piece in pieces {
        client.send(piece);
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn values_of_all_sizes_are_kept_verbatim(engine: Engine) {
    // With segments of three sizes.
    for memory in ["4", "64", "256"] {
        let (_server, mut client) = engine.start_and_connect(&["-m", memory, "-I", "900k"]);
        let edges = [
            8 << 10,
            16 << 10,
            32 << 10,
            48 << 10,
            64 << 10,
            128 << 10,
            256 << 10,
            512 << 10,
        ];
        let near = edges
            .iter()
            .flat_map(|edge| [-200, -57, -50, -49, -2, -1, 0, 1, 3, 4096].map(|d| edge + d));
        for (key, length) in near.chain([100_000, 900_000]).enumerate() {
            let (name, value) = (format!("k{key}"), value(key, length as usize));
            client.ask(set(&name, &value), "STORED\r\n");
            client.ask(format!("get {name}\r\n"), found(&name, &value));
            client.ask(
                format!("ms {name} {length} F5 T0 k\r\n{value}\r\n"),
                format!("HD k{name}\r\n"),
            );
            client.ask(format!("get {name}\r\n"), found(&name, &value));
        }
    }
}

fn a_large_store_may_be_cut_anywhere(engine: Engine) {
    let (_server, mut client) = engine.start_and_connect(&["-m", "16"]);
    let value = value(7, 40_000);
    let requests = format!("{}get k\r\nmn\r\n", set("k", &value));
    let replies = format!("STORED\r\n{}MN\r\n", found("k", &value));
    let head = 0..30;
    let middle = [16_000, 16_383, 16_384, 16_385, 20_000, 32_768];
    let tail = requests.len() - 24..requests.len();
    for cut in head.chain(middle).chain(tail) {
        let (first, second) = requests.as_bytes().split_at(cut);
        send_in_pieces(&mut client, &[first, second]);
        client.expect(&replies);
    }
    // The line with a few bytes of the value, then most of the value, and the last bytes one by
    // one.
    let (line, rest) = requests.as_bytes().split_at(21);
    let (most, last) = rest.split_at(39_990);
    let mut pieces = vec![line, most];
    pieces.extend(last.chunks(1));
    send_in_pieces(&mut client, &pieces);
    client.expect(&replies);
}

fn a_large_value_without_its_line_break_is_refused_and_reading_goes_on(engine: Engine) {
    let (_server, mut client) = engine.start_and_connect(&["-m", "16"]);
    client.ask(set("k", "old"), "STORED\r\n");
    let value = value(3, 60_000);
    for end in ["ab", "\n\r", "\rx", "x\n"] {
        for (line, reply) in [
            ("set k 5 0 60000", "CLIENT_ERROR bad data chunk\r\n"),
            ("ms k 60000", "CLIENT_ERROR bad data chunk\r\n"),
            ("add other 5 0 60000 noreply", ""),
        ] {
            let request = format!("{line}\r\n{value}{end}get k\r\nget other\r\n");
            let replies = format!("{reply}{}END\r\n", found("k", "old"));
            client.ask(&request, &replies);
            let (most, rest) = request.as_bytes().split_at(line.len() + 2 + 60_001);
            send_in_pieces(&mut client, &[&most[..20_000], &most[20_000..], rest]);
            client.expect(&replies);
        }
    }
}

fn replies_to_pipelined_large_stores_keep_their_order(engine: Engine) {
    let (_server, mut client) = engine.start_and_connect(&["-m", "64"]);
    let (mut requests, mut replies) = (String::new(), String::new());
    for n in 0..30 {
        let value = value(n, 20_000 + n * 9_000);
        requests.push_str(&format!(
            "mn\r\nget missing\r\n{}get k{n}\r\n",
            set(&format!("k{n}"), &value)
        ));
        replies.push_str(&format!(
            "MN\r\nEND\r\nSTORED\r\n{}",
            found(&format!("k{n}"), &value)
        ));
    }
    let mut sender = client.socket();
    let thread = std::thread::spawn(move || {
        use std::io::Write as _;
        sender.write_all(requests.as_bytes()).expect("it is read");
    });
    client.expect(&replies);
    thread.join().expect("the sender");
}

/// Values of several clients become complete in one turn of the loop, each followed by a get of it.
fn replies_keep_their_order_beside_other_clients_large_values(engine: Engine) {
    let server = engine.with(&["-m", "64", "-t", "1"]);
    let clients: Vec<Client> = (0..8).map(|_| server.connect()).collect();
    std::thread::scope(|scope| {
        for (n, mut client) in clients.into_iter().enumerate() {
            scope.spawn(move || {
                let (key, value) = (format!("k{n}"), value(n, 60_000 + 7_000 * n));
                let request = format!("{}get {key}\r\n", set(&key, &value));
                let reply = format!("STORED\r\n{}", found(&key, &value));
                for _ in 0..60 {
                    client.send(request.as_bytes());
                    client.expect(&reply);
                }
            });
        }
    });
}

fn a_flush_may_come_between_the_line_and_the_end_of_a_value(engine: Engine) {
    let server = engine.with(&["-m", "64"]);
    let (mut client, mut other) = (server.connect(), server.connect());
    for round in 0..20 {
        let value = value(round, 150_000);
        let request = set("k", &value);
        let (half, rest) = request.as_bytes().split_at(80_000);
        send_in_pieces(&mut client, &[half]);
        other.ask(set("small", "x"), "STORED\r\n");
        other.ask("flush_all\r\n", "OK\r\n");
        other.ask("get small\r\n", "END\r\n");
        client.send(rest);
        client.expect("STORED\r\n");
        other.ask("get k\r\n", found("k", &value));
        other.ask("flush_all\r\n", "OK\r\n");
        other.ask("get k\r\n", "END\r\n");
    }
}

fn conditions_are_looked_at_when_the_value_has_come(engine: Engine) {
    let server = engine.with(&["-m", "64"]);
    let (mut client, mut other) = (server.connect(), server.connect());
    let value = value(1, 200_000);
    for (line, before, meanwhile, reply) in [
        (
            "add k 5 0 200000",
            "delete k\r\n",
            set("k", "x"),
            "NOT_STORED\r\n",
        ),
        (
            "replace k 5 0 200000",
            "touch k 0\r\n",
            "delete k\r\n".to_owned(),
            "NOT_STORED\r\n",
        ),
        (
            "cas k 5 0 200000 1",
            "touch k 0\r\n",
            set("k", "y"),
            "EXISTS\r\n",
        ),
        (
            "set k 5 0 200000",
            "touch k 0\r\n",
            "delete k\r\n".to_owned(),
            "STORED\r\n",
        ),
        (
            "set k 5 -1 200000",
            "touch k 0\r\n",
            set("k", "z"),
            "STORED\r\n",
        ),
    ] {
        other.send(before.as_bytes());
        other.line();
        let request = format!("{line}\r\n{value}\r\n");
        let (half, rest) = request.as_bytes().split_at(120_000);
        send_in_pieces(&mut client, &[half]);
        other.send(meanwhile.as_bytes());
        other.line();
        client.send(rest);
        client.expect(reply);
    }
    client.ask("get k\r\n", "END\r\n"); // it has expired
}

fn clients_that_announce_much_and_stop_hold_up_nobody(engine: Engine) {
    raise_open_files();
    let (server, mut client) = engine.start_and_connect(&["-m", "64", "-c", "1000"]);
    for round in 0..3 {
        let mut stuck: Vec<Client> = (0..200).map(|_| server.connect()).collect();
        for other in &mut stuck {
            other.send(format!("set k{round} 0 0 500000\r\nbegun").as_bytes());
        }
        // More than the memory limit, beside the announced values, and received in the same way.
        for key in 0..300 {
            let (name, value) = (format!("k{key}"), value(key, 100_000 + key * 1_000));
            client.ask(set(&name, &value), "STORED\r\n");
            client.ask(format!("get {name}\r\n"), found(&name, &value));
        }
        // One of the stuck clients finally continues; the others have left.
        let value = value(round, 499_995);
        let mut last = stuck.pop().expect("one");
        drop(stuck);
        last.send(format!("{value}\r\n").as_bytes());
        assert_eq!(last.line(), "STORED", "round {round}");
        let whole = format!("begun{value}");
        let reply = format!("VALUE k{round} 0 500000\r\n{whole}\r\nEND\r\n");
        client.ask(format!("get k{round}\r\n"), reply);
    }
    let grown = server.rss_kib();
    assert!(grown < 160 * 1024, "{grown} KiB resident");
}

fn a_cache_that_may_not_evict_keeps_every_large_value(engine: Engine) {
    let (_server, mut client) = engine.start_and_connect(&["-m", "16", "-M"]);
    let length = |key: usize| 50_000 + key % 7 * 10_000;
    let mut kept = Vec::new();
    for key in 0..400 {
        let (name, value) = (format!("k{key}"), value(key, length(key)));
        client.send(set(&name, &value).as_bytes());
        match client.line().as_str() {
            "STORED" => kept.push(key),
            line => assert!(line.starts_with("SERVER_ERROR out of memory"), "{line}"),
        }
    }
    assert!(
        (50..300).contains(&kept.len()),
        "{} values stored",
        kept.len()
    );
    for &key in &kept {
        let (name, value) = (format!("k{key}"), value(key, length(key)));
        client.ask(format!("get {name}\r\n"), found(&name, &value));
    }
    if Kind::under_test() == Kind::Corewise {
        assert_eq!(client.stat("evictions"), 0);
    }
}
