//! Statistics, as monitoring tools for memcached read them.

use crate::common;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use common::{Client, Engine, Kind, TestServer, wait_until};

for_all_engines_at_once! {
    exporters_find_what_they_insist_on_and_it_is_true
    every_name_that_memcached_gives_is_given
    size_classes_are_counted
}

type Fields = BTreeMap<String, String>;

/// The Prometheus exporter's view of `stats`, `stats slabs` and `stats items`.
#[derive(Default)]
struct Scraped {
    general: Fields,
    slabs: BTreeMap<u32, Fields>,
    items: BTreeMap<u32, Fields>,
}

/// Parses as its client library does: lines of three words, names of one to three parts.
fn scrape(client: &mut Client) -> Scraped {
    let mut scraped = Scraped::default();
    for request in ["stats", "stats slabs", "stats items"] {
        for (name, value) in ask(client, request) {
            let parts: Vec<&str> = name.split(':').collect();
            let number = |part: &str| part.parse().expect("a class is a number");
            let (fields, name) = match parts[..] {
                [name] => (&mut scraped.general, name),
                [class, name] => (scraped.slabs.entry(number(class)).or_default(), name),
                [_, class, name] => (scraped.items.entry(number(class)).or_default(), name),
                _ => panic!("{name}"),
            };
            assert_eq!(fields.insert(name.into(), value), None, "{name} twice");
        }
    }
    scraped
}

fn ask(client: &mut Client, request: &str) -> Vec<(String, String)> {
    client.send(format!("{request}\r\n").as_bytes());
    let mut lines = Vec::new();
    loop {
        let line = client.line();
        if line == "END" {
            return lines;
        }
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["STAT", name, value] => lines.push((name.into(), value.into())),
            _ => panic!("not three words: {line}"),
        }
    }
}

/// Parses a number as the exporter does: as a float.
#[track_caller]
fn number(fields: &Fields, name: &str) -> f64 {
    let value = fields.get(name);
    let value = value.unwrap_or_else(|| panic!("no {name} in {fields:?}"));
    let parsed = value.parse();
    parsed.unwrap_or_else(|_| panic!("{name} is {value}"))
}

fn set(key: &str, length: usize) -> String {
    format!("set {key} 0 0 {length}\r\n{}\r\n", "x".repeat(length))
}

/// Executes some of every counted command.
fn work(client: &mut Client) {
    for n in 0..10 {
        client.ask(set(&format!("a{n}"), 20), "STORED\r\n");
        client.ask(set(&format!("b{n}"), 5_000), "STORED\r\n");
    }
    client.ask("delete a9\r\n", "DELETED\r\n");
    client.ask("delete a9\r\n", "NOT_FOUND\r\n");
    client.ask("set n 0 0 1\r\n1\r\n", "STORED\r\n");
    client.ask("incr n 1\r\n", "2\r\n");
    client.ask("incr x 1\r\n", "NOT_FOUND\r\n");
    client.ask("decr n 1\r\n", "1\r\n");
    client.ask("touch n 0\r\n", "TOUCHED\r\n");
    client.ask("touch x 0\r\n", "NOT_FOUND\r\n");
    client.ask("cas x 0 0 1 1\r\nx\r\n", "NOT_FOUND\r\n");
    client.ask("get x y n\r\n", "VALUE n 0 1\r\n1\r\nEND\r\n");
    client.send(b"gets n\r\n");
    let cas = client.line().rsplit(' ').next().unwrap().to_owned();
    client.expect("1\r\nEND\r\n");
    client.ask(format!("cas n 0 0 1 {cas}\r\n2\r\n"), "STORED\r\n");
    client.ask(format!("cas n 0 0 1 {cas}\r\n3\r\n"), "EXISTS\r\n");
}

fn exporters_find_what_they_insist_on_and_it_is_true(engine: Engine) {
    let (_server, mut client) = engine.start_and_connect(&[]);
    work(&mut client);
    let Scraped {
        general,
        slabs,
        items,
    } = scrape(&mut client);
    let counted = [
        ("cmd_set", 24.0),
        ("cmd_flush", 0.0),
        ("get_hits", 2.0),
        ("get_misses", 2.0),
        ("delete_hits", 1.0),
        ("delete_misses", 1.0),
        ("incr_hits", 1.0),
        ("incr_misses", 1.0),
        ("decr_hits", 1.0),
        ("decr_misses", 0.0),
        ("touch_hits", 1.0),
        ("touch_misses", 1.0),
        ("cas_hits", 1.0),
        ("cas_misses", 1.0),
        ("cas_badval", 1.0),
        ("curr_items", 20.0),
        ("evictions", 0.0),
        ("reclaimed", 0.0),
        ("store_too_large", 0.0),
        ("store_no_memory", 0.0),
        ("rejected_connections", 0.0),
        ("listen_disabled_num", 0.0),
        ("accepting_conns", 1.0),
        ("limit_maxbytes", 67_108_864.0),
        ("threads", 2.0),
    ];
    for (name, value) in counted {
        assert_eq!(number(&general, name), value, "{name}");
    }
    let at_least = [
        ("time", 1_000_000_000.0),
        ("uptime", 0.0),
        ("bytes", 50_000.0),
        ("bytes_read", 50_000.0),
        ("bytes_written", 100.0),
        ("total_items", 21.0),
        ("total_malloced", 50_000.0),
        ("curr_connections", 1.0),
        ("total_connections", 1.0),
        ("conn_yields", 0.0),
        ("hash_bytes", 8.0),
        ("hash_is_expanding", 0.0),
        ("hash_power_level", 0.0),
        ("read_buf_bytes", 0.0),
        ("read_buf_oom", 0.0),
        ("response_obj_bytes", 0.0),
        ("crawler_reclaimed", 0.0),
    ];
    for (name, value) in at_least {
        assert!(number(&general, name) >= value, "{name}: {general:?}");
    }
    assert!(general.contains_key("version"));
    for name in ["rusage_user", "rusage_system"] {
        let (seconds, micros) = general[name].split_once('.').expect("seconds.microseconds");
        assert!(seconds.parse::<u32>().is_ok() && micros.len() == 6);
        assert!(micros.parse::<u32>().is_ok(), "{}", general[name]);
    }
    classes_are_true(&slabs, &items);
    settings_are_read(&mut client);
}

fn classes_are_true(slabs: &BTreeMap<u32, Fields>, items: &BTreeMap<u32, Fields>) {
    let sum = |name| items.values().map(|class| number(class, name)).sum::<f64>();
    assert_eq!(sum("number"), 20.0);
    assert!(sum("mem_requested") >= 50_000.0);
    assert_eq!(sum("evicted"), 0.0);
    // memcached also counts chunks that it uses itself.
    let used = |class: &Fields| number(class, "used_chunks");
    assert!(slabs.values().map(used).sum::<f64>() >= 20.0);
    for class in slabs.values() {
        // Without these the exporter reports the server as down when it asks for classes.
        for name in ["cmd_set", "cas_hits", "cas_badval"] {
            number(class, name);
        }
        assert!(number(class, "chunk_size") > 0.0);
        let chunks = number(class, "used_chunks") + number(class, "free_chunks");
        assert!(number(class, "total_chunks") >= chunks);
    }
    // The exporter fails if a class has `mem_requested` in both: it takes it for a gauge in one and
    // for a counter in the other.
    for (class, fields) in slabs {
        let of_items = items.get(class);
        let twice = |name: &&String| of_items.is_some_and(|items| items.contains_key(*name));
        assert_eq!(fields.keys().find(twice), None, "class {class}");
    }
}

fn settings_are_read(client: &mut Client) {
    let settings: Fields = ask(client, "stats settings").into_iter().collect();
    assert_eq!(number(&settings, "maxconns"), 1024.0);
    assert_eq!(number(&settings, "maxbytes"), 67_108_864.0);
    assert_eq!(number(&settings, "num_threads"), 2.0);
    // If it is on, seven more must be present.
    let crawls = settings["lru_crawler"] == "yes";
    let more = ["lru_crawler_sleep", "hot_lru_pct", "warm_max_factor"];
    for name in more.iter().filter(|_| crawls) {
        number(&settings, name);
    }
    for name in ["cas_enabled", "flush_enabled", "lru_maintainer_thread"] {
        assert!(["yes", "no"].contains(&&*settings[name]), "{name}");
    }
}

/// The state in `stats conns` of the connection from this address; `None` if no loop has it yet.
fn state(client: &mut Client, peer: SocketAddr) -> Option<String> {
    let fields: Fields = ask(client, "stats conns").into_iter().collect();
    let there = format!("tcp:{peer}");
    let line = fields
        .iter()
        .find(|(name, value)| name.ends_with(":addr") && **value == there);
    let (name, _) = line?;
    Some(fields[&name.replace(":addr", ":state")].clone())
}

#[test]
fn connections_are_in_the_state_that_they_are_in() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.ask(set("large", 1_000_000), "STORED\r\n");
    let mut expect = |other: &Client, wanted: &str| {
        let peer = other.socket().local_addr().unwrap();
        wait_until(&format!("a connection is in {wanted}"), || {
            state(&mut client, peer).as_deref() == Some(wanted)
        });
    };
    let mut other = server.connect();
    expect(&other, "conn_new_cmd");
    other.ask("mn\r\n", "MN\r\n");
    expect(&other, "conn_read");
    other.send(b"get la");
    std::thread::sleep(Duration::from_millis(20));
    expect(&other, "conn_read");
    other.ask("st\r\n", "END\r\n");
    other.send(b"set a 0 0 100\r\nabc");
    expect(&other, "conn_nread");
    other.send(&[b'x'; 97]);
    other.ask("\r\n", "STORED\r\n");
    other.send(b"add a 0 0 9000000\r\nabc");
    expect(&other, "conn_swallow");
    // Replies that are never read.
    let mut other = server.connect();
    other.send("get large\r\n".repeat(20).as_bytes());
    expect(&other, "conn_mwrite");
    for _ in 0..20 {
        other.read_until(b"END\r\n");
    }
    expect(&other, "conn_read");
    let peer = client.socket().local_addr().unwrap();
    assert_eq!(state(&mut client, peer).unwrap(), "conn_parse_cmd");
    let listener = server.address();
    assert_eq!(state(&mut client, listener).unwrap(), "conn_listening");
}

/// Names of statistics, with the numbers of classes and connections replaced.
fn names(client: &mut Client, request: &str) -> Vec<String> {
    let is_number = |part: &str| part.parse::<u32>().is_ok();
    let normal = |(name, _): (String, String)| {
        let parts = name.split(':');
        let parts = parts.map(|part| if is_number(part) { "N" } else { part });
        parts.collect::<Vec<_>>().join(":")
    };
    ask_any(client, request).into_iter().map(normal).collect()
}

/// Like `ask`, but values may contain blanks.
fn ask_any(client: &mut Client, request: &str) -> Vec<(String, String)> {
    client.send(format!("{request}\r\n").as_bytes());
    let mut lines = Vec::new();
    loop {
        let line = client.line();
        match line.split_once(' ') {
            None if line == "END" => return lines,
            Some(("STAT", stat)) => {
                let (name, value) = stat.split_once(' ').unwrap_or((stat, ""));
                lines.push((name.into(), value.into()));
            }
            _ => panic!("not a statistic: {line}"),
        }
    }
}

fn every_name_that_memcached_gives_is_given(engine: Engine) {
    if !Kind::memcached_is_installed() {
        return common::skip("memcached is not installed");
    }
    if Kind::under_test() == Kind::Memcached {
        return;
    }
    let (ours, theirs) = (engine.start(), TestServer::of(Kind::Memcached, &[]));
    let [mut ours, mut theirs] = [ours.connect(), theirs.connect()];
    work(&mut ours);
    work(&mut theirs);
    let mut missing = Vec::new();
    for request in [
        "stats",
        "stats items",
        "stats slabs",
        "stats settings",
        "stats conns",
    ] {
        let given = names(&mut ours, request);
        let twice =
            (1..given.len()).find(|&i| !given[i].contains('N') && given[..i].contains(&given[i]));
        assert_eq!(twice.map(|i| &given[i]), None, "twice in {request}");
        for name in names(&mut theirs, request) {
            if !given.contains(&name) {
                missing.push(format!("{request}: {name}"));
            }
        }
    }
    missing.sort_unstable();
    missing.dedup();
    assert_eq!(missing, [""; 0]);
}

fn size_classes_are_counted(engine: Engine) {
    if Kind::under_test() == Kind::Memcached {
        return; // its classes also have other counts
    }
    let (_server, mut client) = engine.start_and_connect(&[]);
    client.ask(set("old", 20), "STORED\r\n");
    std::thread::sleep(Duration::from_millis(2_100));
    work(&mut client);
    let Scraped {
        general,
        slabs,
        items,
    } = scrape(&mut client);
    let slab = |name| slabs.values().map(|class| number(class, name)).sum::<f64>();
    for (name, value) in [
        ("get_hits", 2.0),
        ("cmd_set", 23.0),
        ("incr_hits", 1.0),
        ("decr_hits", 1.0),
        ("cas_hits", 1.0),
        ("touch_hits", 1.0),
    ] {
        assert_eq!(slab(name), value, "{name}");
    }
    assert!(slab("total_pages") >= 2.0);
    let ages = items.values().map(|class| number(class, "age"));
    let oldest = ages.fold(0.0, f64::max);
    assert!((1.0..10.0).contains(&oldest), "{oldest}");
    // The client is connected to a loop, which has an arena.
    let bytes = number(&general, "connection_buffer_bytes");
    assert!(bytes > 500_000.0 && bytes < number(&general, "connection_buffer_limit"));
    assert_eq!(number(&general, "lru_crawler_starts"), 0.0);
    client.send(b"lru_crawler metadump all\r\n");
    client.read_until(b"END\r\n");
    let general = scrape(&mut client).general;
    assert_eq!(number(&general, "lru_crawler_starts"), 1.0);
    assert_eq!(number(&general, "lru_crawler_running"), 0.0);
    let items = number(&general, "curr_items");
    assert_eq!(number(&general, "crawler_items_checked"), items);
    client.ask("stats reset\r\n", "RESET\r\n");
    let Scraped { general, slabs, .. } = scrape(&mut client);
    assert_eq!(number(&general, "crawler_items_checked"), 0.0);
    assert!(slabs.values().all(|class| number(class, "get_hits") == 0.0));
}

/// The get must come while the item is still there: loops reclaim flushed items within moments, and
/// `locked` and `global-lock` forget them at once.
#[test]
fn a_get_of_a_flushed_item_is_counted() {
    let server = TestServer::start();
    let mut client = server.connect();
    for n in 0..10 {
        client.ask(set(&format!("a{n}"), 20), "STORED\r\n");
    }
    // memcached's flush affects items of an earlier second.
    std::thread::sleep(Duration::from_millis(2_100));
    client.ask("flush_all\r\nget a1\r\n", "OK\r\nEND\r\n");
    let general = scrape(&mut client).general;
    assert_eq!(number(&general, "get_flushed"), 1.0);
    assert_eq!(number(&general, "get_misses"), 1.0);
}
