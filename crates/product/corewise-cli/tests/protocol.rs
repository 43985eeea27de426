//! Replies of memcached's text protocol, byte for byte.

use crate::common;
#[path = "protocol/differential.rs"]
mod differential;
#[path = "protocol/expiry.rs"]
mod expiry;

use common::conversation::{converse_with, play_each};
use common::{Engine, Kind};

for_all_engines_at_once! {
    conversations_have_exact_replies
    an_expiry_time_of_more_than_thirty_days_is_a_date
    an_item_is_gone_after_its_time
    flush_all_can_be_refused
    stats_count_what_was_done
    keys_can_be_listed
    listing_keys_can_be_refused
    shutdown_obeys_where_it_is_enabled
    an_item_larger_than_the_limit_is_refused_and_the_old_one_goes
    the_largest_item_just_below_the_limit_is_stored
    without_eviction_a_full_server_refuses_items
    with_eviction_a_full_server_forgets_something_old
}

#[test]
fn every_engine_there_is_is_tested() {
    assert_eq!(Engine::all_there_are(), Engine::TESTED);
}

/// To add a case, add lines to the file.
fn conversations_have_exact_replies(engine: Engine) {
    play_each(include_str!("conversations/memcached.txt"), |text| {
        engine.converse(text);
    });
}

fn an_expiry_time_of_more_than_thirty_days_is_a_date(engine: Engine) {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let soon = now + 100;
    engine.converse(&format!(
        "set a 0 {soon} 1|x|get a -> STORED|VALUE a 0 1|x|END"
    ));
}

fn an_item_is_gone_after_its_time(engine: Engine) {
    let server = engine.start();
    let stored = "set a 0 1 1|x|get a -> STORED|VALUE a 0 1|x|END";
    converse_with(&server, stored);
    // memcached's clock ticks once a second.
    std::thread::sleep(std::time::Duration::from_millis(2_100));
    let gone = "get a|mg a v|incr a 1|replace a 0 0 1|x -> END|EN|NOT_FOUND|NOT_STORED";
    converse_with(&server, &format!("{gone}\nadd a 0 0 1|y -> STORED"));
}

fn flush_all_can_be_refused(engine: Engine) {
    let refused = "CLIENT_ERROR flush_all not allowed";
    let row = format!("set a 0 0 1|x|flush_all|get a -> STORED|{refused}|VALUE a 0 1|x|END");
    converse_with(&engine.with(&["-F"]), &row);
}

fn stats_count_what_was_done(engine: Engine) {
    let (server, mut client) = engine.start_and_connect(&[]);
    client.ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    client.ask("get a b\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n");
    client.ask("delete b\r\n", "NOT_FOUND\r\n");
    client.ask("touch a 0\r\n", "TOUCHED\r\n");
    let stats = client.stats("");
    for line in [
        "curr_items 1",
        "total_items 1",
        "cmd_get 2",
        "cmd_set 1",
        "get_hits 1",
        "get_misses 1",
        "delete_misses 1",
        "cmd_touch 1",
        "touch_hits 1",
        "threads 2",
        "limit_maxbytes 67108864",
        &format!("pid {}", server.pid()),
    ] {
        let line = format!("STAT {line}\r\n");
        assert!(stats.contains(&line), "{line} is not in {stats}");
    }
    for name in [
        "uptime",
        "time",
        "version",
        "curr_connections",
        "bytes",
        "evictions",
        "bytes_read",
        "bytes_written",
        "rusage_user",
        "pointer_size",
        "cas_misses",
        "incr_misses",
        "cmd_flush",
    ] {
        assert!(
            stats.contains(&format!("STAT {name} ")),
            "{name} is not in {stats}"
        );
    }
    for (group, name) in [("settings", "maxconns 1024"), ("settings", "num_threads 2")] {
        let stats = client.stats(group);
        assert!(
            stats.contains(&format!("STAT {name}\r\n")),
            "{name} is not in {stats}"
        );
    }
    for group in ["items", "slabs", "conns"] {
        let stats = client.stats(group);
        assert!(stats.starts_with("STAT "), "{stats}");
    }
}

fn keys_can_be_listed(engine: Engine) {
    // memcached lists only one of its queues, and its maintainer moves items between them.
    let server = engine.with(&["-o", "no_lru_maintainer"]);
    let rows = "set a 0 0 1|x|me a -> STORED|\
               ME a exp=-1 la={any} cas={any} fetch=no cls={class} size={any}\n\
               stats cachedump {class} 0 -> ITEM a [1 b; 0 s]|END";
    converse_with(&server, rows);
    let mut client = server.connect();
    client.send(b"lru_crawler metadump all\r\n");
    let keys = String::from_utf8(client.read_until(b"END\r\n")).unwrap();
    assert!(keys.starts_with("key=a exp=-1 la="), "{keys}");
    assert_eq!(keys.lines().count(), 2, "{keys}");
}

fn listing_keys_can_be_refused(engine: Engine) {
    let server = engine.with(&["-X"]);
    for (request, reply) in [
        (
            "stats cachedump 1 0",
            "CLIENT_ERROR stats cachedump not allowed",
        ),
        ("lru_crawler metadump all", "ERROR metadump not allowed"),
    ] {
        let mut client = server.connect();
        client.ask(format!("{request}\r\n"), format!("{reply}\r\n"));
    }
    let row = "newer: stats detail on -> CLIENT_ERROR stats detail not allowed";
    converse_with(&server, row);
}

fn shutdown_obeys_where_it_is_enabled(engine: Engine) {
    for (request, code) in [("shutdown\r\n", 0), ("shutdown graceful\r\n", 0)] {
        let (mut server, mut client) = engine.start_and_connect(&["-A"]);
        client.ask(
            "shutdown nonsense\r\n",
            "CLIENT_ERROR invalid shutdown mode\r\n",
        );
        client.send(request.as_bytes());
        let status = server.wait();
        // memcached implements plain `shutdown` by sending itself a signal.
        if Kind::under_test() == Kind::Corewise {
            assert_eq!(status.code(), Some(code), "{request}");
        }
    }
}

fn an_item_larger_than_the_limit_is_refused_and_the_old_one_goes(engine: Engine) {
    let server = engine.start();
    let large = "x".repeat(1024 * 1024);
    for (command, gone) in [("set", "END\r\n"), ("ms", "END\r\n")] {
        let mut client = server.connect();
        client.ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
        let line = match command {
            "ms" => format!("ms a {}", large.len()),
            _ => format!("set a 0 0 {}", large.len()),
        };
        client.ask(
            format!("{line}\r\n{large}\r\n"),
            "SERVER_ERROR object too large for cache\r\n",
        );
        client.ask("get a\r\n", gone);
    }
}

fn the_largest_item_just_below_the_limit_is_stored(engine: Engine) {
    let (_server, mut client) = engine.start_and_connect(&[]);
    let large = "x".repeat(1024 * 1024 - 512);
    let length = large.len();
    client.ask(format!("set a 0 0 {length}\r\n{large}\r\n"), "STORED\r\n");
    client.ask(
        "get a\r\n",
        format!("VALUE a 0 {length}\r\n{large}\r\nEND\r\n"),
    );
}

fn without_eviction_a_full_server_refuses_items(engine: Engine) {
    let (_server, mut client) = engine.start_and_connect(&["-M", "-m", "8"]);
    let value = "x".repeat(100_000);
    let mut stored = 0;
    let refusal = loop {
        client.send(format!("set k{stored} 0 0 {}\r\n{value}\r\n", value.len()).as_bytes());
        match client.line() {
            line if line == "STORED" => stored += 1,
            line => break line,
        }
        assert!(stored < 500, "stored 50 MB in 8 MB");
    };
    assert_eq!(refusal, "SERVER_ERROR out of memory storing object");
    assert!(stored > 20, "only {stored} items of 100 kB in 8 MB");
    client.ask(
        "get k0\r\n",
        format!("VALUE k0 0 {}\r\n{value}\r\nEND\r\n", value.len()),
    );
}

fn with_eviction_a_full_server_forgets_something_old(engine: Engine) {
    let (_server, mut client) = engine.start_and_connect(&["-m", "8"]);
    let value = "x".repeat(50_000);
    for n in 0..1_000 {
        client.ask(
            format!("set k{n} 0 0 {}\r\n{value}\r\n", value.len()),
            "STORED\r\n",
        );
    }
    client.ask(
        "get k999\r\n",
        format!("VALUE k999 0 {}\r\n{value}\r\nEND\r\n", value.len()),
    );
    let hits = (0..1_000)
        .filter(|n| {
            client.send(format!("mg k{n} s\r\n").as_bytes());
            client.line().starts_with("HD")
        })
        .count();
    assert!((40..=170).contains(&hits), "{hits} items of 50 kB in 8 MB");
}
