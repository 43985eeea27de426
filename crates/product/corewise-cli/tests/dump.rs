//! Dumps of keys: complete, in steps, and at the pace of their clients.

use crate::common;

use std::collections::HashMap;
use std::sync::mpsc::TryRecvError;
use std::time::Duration;

use common::{Client, Engine, Kind, concerns_the_server_under_test};

for_every_engine! {
    a_metadump_shows_every_item
    an_mgdump_shows_every_item_as_a_request
    a_dump_shows_the_classes_that_were_asked_for
    requests_behind_a_dump_are_answered_after_it
    a_client_that_does_not_read_its_dump_holds_up_nobody
    a_dump_shows_what_stays_while_others_come_and_go
}

/// Enough items for a dump of many steps.
const ITEMS: usize = 30_000;

/// Stores `key-0`, `key-1` and so on, with values of `length` bytes.
fn fill(client: &mut Client, items: usize, length: usize) {
    let value = "v".repeat(length);
    for first in (0..items).step_by(1_000) {
        let keys = first..items.min(first + 1_000);
        let sets: String = keys
            .map(|i| format!("ms key-{i} {length} q\r\n{value}\r\n"))
            .collect();
        client.ask(sets + "mn\r\n", "MN\r\n");
    }
}

/// How often each key occurs in the lines of a metadump.
fn keys_of(dump: &[u8]) -> HashMap<String, usize> {
    let mut keys = HashMap::new();
    let text = str::from_utf8(dump).unwrap();
    for line in text.lines().filter(|line| *line != "END") {
        let key = line.strip_prefix("key=").expect(line);
        let key = key.split(' ').next().unwrap();
        *keys.entry(key.to_owned()).or_default() += 1;
    }
    keys
}

fn a_metadump_shows_every_item(engine: Engine) {
    let (_server, mut client) = engine.start_and_connect(&[]);
    fill(&mut client, ITEMS, 10);
    for classes in ["all", "hash"] {
        client.send(format!("lru_crawler metadump {classes}\r\n").as_bytes());
        let keys = keys_of(&client.read_until(b"END\r\n"));
        assert_eq!(keys.len(), ITEMS, "of {classes}");
        assert!(keys.values().all(|times| *times == 1));
    }
}

fn an_mgdump_shows_every_item_as_a_request(engine: Engine) {
    if !concerns_the_server_under_test() {
        return; // newer than the memcached of most systems
    }
    let (_server, mut client) = engine.start_and_connect(&[]);
    fill(&mut client, ITEMS, 10);
    client.send(b"lru_crawler mgdump all\r\n");
    let dump = String::from_utf8(client.read_until(b"EN\r\n")).unwrap();
    let mut lines: Vec<&str> = dump.split_terminator("\r\n").collect();
    assert_eq!(lines.pop(), Some("EN"));
    lines.sort_unstable();
    let mut expected: Vec<String> = (0..ITEMS).map(|i| format!("mg key-{i}")).collect();
    expected.sort_unstable();
    assert!(lines == expected, "{} lines", lines.len());
}

fn a_dump_shows_the_classes_that_were_asked_for(engine: Engine) {
    let (_server, mut client) = engine.start_and_connect(&[]);
    client.ask("set small 0 0 1\r\nx\r\n", "STORED\r\n");
    client.ask(
        format!("set large 0 0 50000\r\n{}\r\n", "x".repeat(50_000)),
        "STORED\r\n",
    );
    let class = |client: &mut Client, key: &str| {
        client.send(format!("me {key}\r\n").as_bytes());
        let line = client.line();
        let (_, class) = line.split_once("cls=").unwrap();
        class.split(' ').next().unwrap().to_owned()
    };
    let [small, large] = ["small", "large"].map(|key| class(&mut client, key));
    for (classes, wanted) in [
        (small.clone(), vec!["small"]),
        (large.clone(), vec!["large"]),
        (format!("{small},{large}"), vec!["large", "small"]),
    ] {
        client.send(format!("lru_crawler metadump {classes}\r\n").as_bytes());
        let keys = keys_of(&client.read_until(b"END\r\n"));
        let mut keys: Vec<&str> = keys.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, wanted, "of {classes}");
    }
    if Kind::under_test() == Kind::Corewise {
        client.ask(
            format!("stats cachedump {large} 10\r\n"),
            "ITEM large [50000 b; 0 s]\r\nEND\r\n",
        );
    }
    for classes in ["0", "1,x", "999"] {
        client.ask(
            format!("lru_crawler metadump {classes}\r\n"),
            "BADCLASS invalid class id\r\n",
        );
    }
}

fn requests_behind_a_dump_are_answered_after_it(engine: Engine) {
    let (_server, mut client) = engine.start_and_connect(&[]);
    fill(&mut client, ITEMS, 10);
    client
        .send(b"mn\r\nlru_crawler metadump all\r\nget key-7\r\nlru_crawler metadump all\r\nmn\r\n");
    client.finish();
    client.expect("MN\r\n");
    for request in 0..2 {
        let dump = client.read_until(b"END\r\n");
        if request == 0 {
            assert_eq!(keys_of(&dump).len(), ITEMS);
            client.expect("VALUE key-7 0 10\r\nvvvvvvvvvv\r\nEND\r\n");
        } else {
            assert_eq!(keys_of(&dump).len(), ITEMS);
        }
    }
    client.expect("MN\r\n");
    client.expect_end();
}

fn a_client_that_does_not_read_its_dump_holds_up_nobody(engine: Engine) {
    if !concerns_the_server_under_test() {
        return; // memcached reports its buffers under other names
    }
    // Some 8 MB of lines: more than the socket buffers take.
    let items = 120_000;
    let (server, mut client) = engine.start_and_connect(&["-m", "256"]);
    fill(&mut client, items, 1);
    let mut slow: Vec<Client> = (0..2).map(|_| server.connect()).collect();
    for other in &mut slow {
        other.send(b"lru_crawler metadump all\r\n");
    }
    // Until all dumps wait: nothing more is written.
    let mut written = 0;
    common::wait_until("the dumps wait for their clients", || {
        std::thread::sleep(Duration::from_millis(100));
        let before = std::mem::replace(&mut written, client.stat("bytes_written"));
        written - before < 20_000
    });
    let held = client.stat("response_obj_bytes");
    assert!(held < 2 * (300 << 10), "{held} bytes of replies are held");
    // A reply that waited for a dump would not come: nobody reads one yet.
    for _ in 0..1_000 {
        client.ask("get key-1\r\n", "VALUE key-1 0 1\r\nv\r\nEND\r\n");
    }
    for other in &mut slow {
        let keys = keys_of(&other.read_until(b"END\r\n"));
        assert_eq!(keys.len(), items);
    }
}

fn a_dump_shows_what_stays_while_others_come_and_go(engine: Engine) {
    let (server, mut client) = engine.start_and_connect(&[]);
    fill(&mut client, ITEMS, 10);
    std::thread::scope(|scope| {
        let (over, until) = std::sync::mpsc::channel::<()>();
        let mut other = server.connect();
        scope.spawn(move || {
            for round in 0.. {
                if until.try_recv() != Err(TryRecvError::Empty) {
                    return;
                }
                let keys = (0..2_000).map(|i| round / 2 % 20 * 2_000 + i);
                let requests: String = keys
                    .map(|i| match round % 2 {
                        0 => format!("ms other-{i} 1 q\r\nx\r\n"),
                        _ => format!("delete other-{} noreply\r\n", (i + 20_000) % 40_000),
                    })
                    .collect();
                other.ask(requests + "mn\r\n", "MN\r\n");
            }
        });
        for _ in 0..5 {
            client.send(b"lru_crawler metadump all\r\n");
            let keys = keys_of(&client.read_until(b"END\r\n"));
            let shown = (0..ITEMS).filter(|i| keys.contains_key(&format!("key-{i}")));
            assert_eq!(shown.count(), ITEMS);
        }
        over.send(()).unwrap();
    });
}
