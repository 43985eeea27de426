//! RESP over sockets: exact replies, items shared with memcached's protocol, hostile clients, and
//! random conversations whose replies are compared with those of redis-server.

use crate::common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::conversation::{converse_in_resp, play_each};
use common::resp::{
    commands_on_one_key, connect, converse, hits_and_misses, read_element, request, start,
    start_and_connect,
};
use common::{Client, Engine, Redis, TestServer, show, skip, wait_until};
use corewise_testkit::random::is_short;
use corewise_wire::resp::{ReplyReader, Value};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

for_every_engine! { of corewise:
    conversations_have_exact_replies
    filters_have_truth_values_in_resp3
    filters_in_a_transaction_cost_what_they_do
    a_large_filter_is_moved_but_not_copied
    an_item_expires_after_a_millisecond
    both_protocols_see_the_same_items
    counts_of_both_protocols_are_reset
    keys_of_resp_break_no_listing_of_memcached
    a_pipeline_of_all_kinds_is_answered_in_order
    connections_choose_their_version
    patterns_and_names_are_bounded
    a_memory_limit_is_set_or_refused
    malformed_requests_close_the_connection
    values_over_the_limit_are_refused_and_change_nothing
    large_values_come_back_whole
    a_scan_shows_every_key
    a_scan_shows_the_keys_that_stay_while_others_come_and_go
    a_client_that_does_not_read_is_bounded_and_loses_nothing
    a_thousand_idle_connections_are_served
    half_a_request_and_silence_take_little_memory
    clients_authenticate
    keys_of_all_lengths_are_set_and_read
    all_keys_are_listed_and_one_is_chosen
    size_and_idle_time_of_an_item_are_told
    clients_are_listed_and_closed
    clients_choose_which_requests_have_replies
    lines_of_http_close_the_connection
    random_conversations_agree_with_redis
}

#[test]
fn commands_are_described_as_by_redis_in_one_engine() {
    Engine::run_of_corewise(Engine::TESTED[0], commands_are_described_as_by_redis);
}

/// To add a case, add lines to the file.
fn conversations_have_exact_replies(engine: Engine) {
    for file in [
        include_str!("conversations/resp.txt"),
        include_str!("conversations/filters.txt"),
    ] {
        play_each(file, |text| {
            let server = start(engine, &[]);
            converse_in_resp(&server, text);
        });
    }
}

fn filters_have_truth_values_in_resp3(engine: Engine) {
    let (server, mut client) = start_and_connect(engine, &[]);
    client.send(b"hello 3\r\ncf.add k a\r\n");
    client.read_until(b"#t\r\n");
    client.ask("cf.addnx k a\r\n", "#f\r\n");
    client.ask("cf.exists k a\r\n", "#t\r\n");
    client.ask("cf.mexists k a none\r\n", "*2\r\n#t\r\n#f\r\n");
    client.ask("cf.insert k items b\r\n", "*1\r\n#t\r\n");
    client.ask("cf.insertnx k items b c\r\n", "*2\r\n:0\r\n:1\r\n");
    client.ask("cf.count k a\r\n", ":1\r\n");
    client.ask("cf.del k b\r\n", "#t\r\n");
    client.ask("cf.scandump k 999999\r\n", "*2\r\n:0\r\n_\r\n");
    client.send(b"cf.info k\r\n");
    client.read_until(b"%8\r\n+Size\r\n:1080\r\n");
    // To memcached it is a miss.
    let mut text = server.connect();
    text.ask("get k\r\n", "END\r\n");
    text.ask("append k 0 0 1\r\nx\r\n", "NOT_STORED\r\n");
    text.ask("delete k\r\n", "DELETED\r\n");
}

/// The reply to `EXEC` of a request that is queued several times: its first line.
fn first_line_of_exec(server: &TestServer, line: &str, times: usize) -> String {
    let mut client = connect(server);
    client.ask("multi\r\n", "+OK\r\n");
    let queued = "+QUEUED\r\n".repeat(times);
    client.ask(format!("{line}\r\n").repeat(times), queued);
    client.send(b"exec\r\n");
    client.line()
}

fn filters_in_a_transaction_cost_what_they_do(engine: Engine) {
    let (server, mut client) = start_and_connect(engine, &[]);
    // 32 subfilters of two buckets of 255 slots, which a compaction reads again and again.
    let mut header = [0_u64, 2, 0, 32].map(u64::to_le_bytes).concat();
    for number in [255_u16, 20, 1] {
        header.extend_from_slice(&number.to_le_bytes());
    }
    let words: [&[u8]; 4] = [b"cf.loadchunk", b"k", b"1", &header];
    client.ask("cf.add one a\r\n", ":1\r\n");
    let items = |key: &str, count: usize| format!("cf.mexists {key}{}", " x".repeat(count));
    for (line, times, is_executed) in [
        ("cf.compact k".to_owned(), 100, true),
        ("cf.compact k".to_owned(), 150, false),
        ("cf.del k x".to_owned(), 100, true),
        ("cf.del k x".to_owned(), 150, false),
        // No compaction moves anything there.
        ("cf.compact one".to_owned(), 150, true),
        ("cf.del one x".to_owned(), 150, true),
        (items("k", 1_000), 20, true),
        (items("k", 1_000), 50, false),
        (items("one", 1_000), 50, true),
        (items("one", 1_000), 80, false),
    ] {
        // A compaction leaves one subfilter.
        client.send(b"del k\r\n");
        client.line();
        client.ask(request(&words), "+OK\r\n");
        let first = first_line_of_exec(&server, &line, times);
        let expected = if is_executed { "*" } else { "-EXECABORT" };
        assert!(
            first.starts_with(expected),
            "{} {times}: {first}",
            &line[..12]
        );
    }
}

fn a_large_filter_is_moved_but_not_copied(engine: Engine) {
    let (_server, mut client) = start_and_connect(engine, &[]);
    client.ask("cf.reserve small 1000\r\n", "+OK\r\n");
    client.ask("copy small c\r\n", ":1\r\n");
    client.ask("cf.reserve large 2000000\r\n", "+OK\r\n");
    client.ask("cf.add large a\r\n", ":1\r\n");
    client.ask("copy large c\r\n", ":0\r\n");
    let refused = "-ERR not supported for this module key\r\n";
    client.ask("copy large c replace\r\n", refused);
    client.ask("rename large moved\r\n", "+OK\r\n");
    client.ask("cf.exists moved a\r\n", ":1\r\n");
}

fn an_item_expires_after_a_millisecond(engine: Engine) {
    let (_server, mut client) = start_and_connect(engine, &[]);
    client.ask("set k v px 1\r\n", "+OK\r\n");
    wait_until("the item expires", || {
        client.send(b"exists k\r\n");
        client.line() == ":0"
    });
}

fn both_protocols_see_the_same_items(engine: Engine) {
    let server = start(engine, &[]);
    let (mut text, mut resp) = (server.connect(), connect(&server));
    resp.ask("set k hello\r\n", "+OK\r\n");
    text.ask("get k\r\n", "VALUE k 0 5\r\nhello\r\nEND\r\n");
    text.ask("set n 7 0 2\r\n10\r\n", "STORED\r\n");
    resp.ask("get n\r\n", "$2\r\n10\r\n");
    // The number is padded, as in memcached; the client flags stay.
    text.ask("decr n 1\r\n", "9\r\n");
    resp.ask("get n\r\n", "$2\r\n9 \r\n");
    resp.ask("incr n\r\n", ":10\r\n");
    text.ask("get n\r\n", "VALUE n 7 2\r\n10\r\nEND\r\n");
    resp.ask("set n x\r\n", "+OK\r\n");
    text.ask("get n\r\n", "VALUE n 0 1\r\nx\r\nEND\r\n");
    text.ask("touch k 1000\r\n", "TOUCHED\r\n");
    resp.ask("persist k\r\n", ":1\r\n");
    resp.ask("flushall\r\n", "+OK\r\n");
    text.ask("get k\r\n", "END\r\n");
    text.ask("set k 0 0 1\r\nv\r\n", "STORED\r\n");
    text.ask("flush_all\r\n", "OK\r\n");
    resp.ask("exists k\r\n", ":0\r\n");
}

fn counts_of_both_protocols_are_reset(engine: Engine) {
    let server = start(engine, &[]);
    let (mut memcached, mut resp) = (server.connect(), connect(&server));
    // A connection counts once the server has accepted it, which a reply
    // shows and a connect does not.
    resp.ask("ping\r\n", "+PONG\r\n");
    memcached.ask(
        "set k 0 0 1\r\nx\r\nget k\r\n",
        "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n",
    );
    // Those of memcached, as a whole and per size class.
    let mut counts = |part: &str| {
        let text = memcached.stats(part);
        let lines = text.lines().map(|line| line.rsplit_once(' '));
        let counts = lines.flatten().filter(|(name, _)| {
            let names = [
                "get_hits",
                "cmd_set",
                "total_connections",
                "rejected_connections",
            ];
            names.iter().any(|counted| name.ends_with(counted))
        });
        counts
            .map(|(_, count)| count.parse::<u64>().expect("a number"))
            .sum::<u64>()
    };
    let mut counts = || (counts(""), counts("slabs"));
    // A get, a set and two connections; the class has the get and the set.
    let (all, of_classes) = counts();
    assert!(all >= 4, "{all}");
    assert_eq!(of_classes, 2);
    converse(&mut resp, &[("config resetstat", "+OK\r\n")]);
    assert_eq!(counts(), (0, 0));
    resp.send(b"info stats\r\n");
    let text = read_element(&mut resp);
    let text = String::from_utf8(text).expect("statistics are text");
    for count in ["total_connections_received:0\r\n", "keyspace_hits:0\r\n"] {
        assert!(text.contains(count), "{text}");
    }
}

/// Keys that memcached's protocol cannot name do not disturb its listings.
fn keys_of_resp_break_no_listing_of_memcached(engine: Engine) {
    let server = start(engine, &[]);
    let (mut text, mut resp) = (server.connect(), connect(&server));
    text.ask("stats detail on\r\n", "OK\r\n");
    let long = "\u{1}".repeat(255);
    let far = "p".repeat(300) + ":";
    for key in ["", "a\r\nb", "in:a\r\nb", "in\r\n:c", &long, "in:d"] {
        resp.ask(request(&["SET", key, "v"]), "+OK\r\n");
    }
    resp.ask(request(&["GET", &far]), "$-1\r\n");
    text.send(b"lru_crawler mgdump all\r\n");
    let mut lines: Vec<String> = (0..5).map(|_| text.line()).collect();
    lines[..4].sort();
    let keys = ["YQ0KYg==", "aW46YQ0KYg==", "aW4NCjpj"].map(|key| format!("mg {key} b"));
    let mut expected = [&keys[..], &["mg in:d".to_owned()]].concat();
    expected.sort();
    expected.push("EN".to_owned());
    assert_eq!(lines, expected);
    text.ask(
        "stats detail dump\r\n",
        "PREFIX in get 0 hit 0 set 2 del 0\r\nEND\r\n",
    );
}

fn a_pipeline_of_all_kinds_is_answered_in_order(engine: Engine) {
    let (_server, mut client) = start_and_connect(engine, &[]);
    // A pipeline in which operations, frames and calls alternate.
    let (mut requests, mut replies) = (Vec::new(), String::new());
    for i in 0..2_000 {
        let key = format!("key{}", i % 10);
        requests.extend(request(&["SET", &key, &i.to_string()]));
        requests.extend(request(&["MGET", &key, "none", &key]));
        requests.extend(request(&["STRLEN", &key]));
        let len = i.to_string().len();
        let value = format!("${len}\r\n{i}\r\n");
        replies += &format!("+OK\r\n*3\r\n{value}$-1\r\n{value}:{len}\r\n");
    }
    client.ask(requests, replies);
}

fn connections_choose_their_version(engine: Engine) {
    let (server, mut client) = start_and_connect(engine, &[]);
    let greeting = |version: u8, id: u8| {
        let head = if version == 3 { "%8" } else { "*16" };
        let number = env!("CARGO_PKG_VERSION");
        let len = number.len();
        format!(
            "{head}\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n\
             $5\r\nproto\r\n:{version}\r\n$2\r\nid\r\n:{id}\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n\
             $4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n\
             $16\r\ncorewise_version\r\n${len}\r\n{number}\r\n"
        )
    };
    client.ask("hello\r\n", greeting(2, 1));
    client.ask("get k\r\n", "$-1\r\n");
    client.ask(
        "hello 3 setname me\r\nget k\r\nmget k\r\n",
        greeting(3, 1) + "_\r\n*1\r\n_\r\n",
    );
    client.ask("client getname\r\nclient id\r\n", "$2\r\nme\r\n:1\r\n");
    client.ask("config get save\r\n", "%1\r\n$4\r\nsave\r\n$0\r\n\r\n");
    client.ask("hello 4\r\n", "-NOPROTO unsupported protocol version\r\n");
    client.ask(
        "hello x\r\n",
        "-ERR Protocol version is not an integer or out of range\r\n",
    );
    client.ask(
        "hello 2 foo\r\n",
        "-ERR Syntax error in HELLO option 'foo'\r\n",
    );
    client.ask("get k\r\n", "_\r\n");
    client.ask(
        "reset\r\nget k\r\nclient getname\r\n",
        "+RESET\r\n$-1\r\n$-1\r\n",
    );
    client.ask(
        "client setname 'a b'\r\n",
        "-ERR Client names cannot contain spaces, newlines or special characters.\r\n",
    );
    client.ask(
        "ping\r\nping hi\r\necho hi\r\nselect 0\r\nselect 16\r\n",
        "+PONG\r\n$2\r\nhi\r\n$2\r\nhi\r\n+OK\r\n-ERR DB index is out of range\r\n",
    );
    let mut other = connect(&server);
    other.ask("hello 3\r\n", greeting(3, 2));
    client.ask("quit\r\nget k\r\n", "+OK\r\n");
    client.expect_end();
}

fn patterns_and_names_are_bounded(engine: Engine) {
    let (_server, mut client) = start_and_connect(engine, &[]);
    let (longest, longer) = ("?".repeat(1_024), "?".repeat(1_025));
    for (request, empty) in [
        ("keys ", "*0\r\n"),
        ("config get x ", "*0\r\n"),
        ("command list filterby pattern ", "*0\r\n"),
        ("scan 0 count 9 match ", "*2\r\n"),
    ] {
        client.ask(
            format!("{request}{longer}\r\n"),
            "-ERR the pattern exceeds the maximum length\r\n",
        );
        client.ask(format!("{request}{longest}\r\n"), empty);
    }
    client.read_until(b"*0\r\n"); // the rest of the reply to SCAN
    let names = " foo".repeat(256);
    for (request, reply) in [
        ("command info", format!("*256\r\n{}", "$-1\r\n".repeat(256))),
        ("command docs", "*0\r\n".to_owned()),
    ] {
        client.ask(format!("{request}{names}\r\n"), reply);
        client.ask(
            format!("{request}{names} foo\r\n"),
            "-ERR too many names of commands\r\n",
        );
    }
}

/// Engines differ in the limits that they can set. None takes another one instead.
fn a_memory_limit_is_set_or_refused(engine: Engine) {
    const BYTES: u64 = 1_000_000_000 << 20;
    let server = start(engine, &[]);
    let (mut client, mut text) = (connect(&server), server.connect());
    client.send(format!("config set maxmemory {BYTES}\r\n").as_bytes());
    let is_set = client.line() == "+OK";
    text.ask(
        "cache_memlimit 1000000000\r\n",
        if is_set {
            "OK\r\n"
        } else {
            "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n"
        },
    );
    let limit = if is_set { BYTES } else { 64 << 20 }.to_string();
    client.ask(
        "config get maxmemory\r\n",
        format!("*2\r\n$9\r\nmaxmemory\r\n${}\r\n{limit}\r\n", limit.len()),
    );
}

fn malformed_requests_close_the_connection(engine: Engine) {
    let server = start(engine, &[]);
    let nested = "*1\r\n".repeat(1_000_000);
    let endless = "1".repeat(1 << 20);
    for (request, text) in [
        ("*1\r\n$999999999999\r\n", "invalid bulk length"),
        ("*1\r\n$-1\r\n", "invalid bulk length"),
        ("*99999999\r\n", "invalid multibulk length"),
        ("*2147483647\r\n", "invalid multibulk length"),
        ("get 'k\r\n", "unbalanced quotes in request"),
        (&nested, "expected '$', got '*'"),
        (&endless, "too big inline request"),
        (&format!("*{endless}"), "too big mbulk count string"),
        (&format!("*1\r\n${endless}"), "too big bulk count string"),
    ] {
        let mut client = connect(&server);
        // The server may hang up before everything is sent.
        let _ = client.try_send(format!("ping\r\n{request}").as_bytes());
        let expected = format!("+PONG\r\n-ERR Protocol error: {text}\r\n");
        if request.len() < 1_000 {
            client.expect(&expected);
            client.expect_end();
        } else {
            // A reset may overtake the reply.
            let got = client.read_to_end();
            assert!(expected.as_bytes().starts_with(&got), "{}", show(&got));
        }
    }
}

fn values_over_the_limit_are_refused_and_change_nothing(engine: Engine) {
    let (_server, mut client) = start_and_connect(engine, &["-I", "100k"]);
    client.ask("set k v\r\n", "+OK\r\n");
    let too_large = "-ERR key or value exceeds the maximum size of an item\r\n";
    let value = "x".repeat(200_000);
    client.ask(request(&["SET", "k", &value]), too_large);
    client.ask(request(&["APPEND", "k", &value]), too_large);
    client.ask("setrange k 150000 x\r\n", too_large);
    client.ask(request(&["SET", &"k".repeat(65_537), "v"]), too_large);
    client.ask(request(&["GET", &"k".repeat(70_000)]), "$-1\r\n");
    client.ask("get k\r\n", "$1\r\nv\r\n");
    // Longer than any request may be: it is discarded as it arrives.
    let value = "x".repeat(2_000_000);
    let mut pipeline = request(&["SET", "k", &value]);
    pipeline.extend(request(&["GET", "k"]));
    client.ask(
        pipeline,
        "-ERR request exceeds the maximum length\r\n$1\r\nv\r\n",
    );
}

fn large_values_come_back_whole(engine: Engine) {
    let (_server, mut client) = start_and_connect(engine, &[]);
    for size in [16_000, 48_000, 100_000, 1_000_000] {
        let value: String = (0..size)
            .map(|i| char::from(b'a' + (i % 23) as u8))
            .collect();
        let mut pipeline = request(&["SET", "k", &value]);
        pipeline.extend(request(&["MGET", "k", "k"]));
        pipeline.extend(request(&["GETRANGE", "k", "-3", "-1"]));
        let one = format!("${size}\r\n{value}\r\n");
        let end = &value[size - 3..];
        client.ask(pipeline, format!("+OK\r\n*2\r\n{one}{one}$3\r\n{end}\r\n"));
    }
}

fn a_scan_shows_every_key(engine: Engine) {
    let (_server, mut client) = start_and_connect(engine, &[]);
    client.ask("set key0 v\r\n", "+OK\r\n");
    let (shown, steps) = scan_in_steps(&mut client, "");
    assert!(shown.contains("key0"));
    // At most 2^15 buckets with 64 MiB.
    assert!(steps <= 16, "{steps} steps over a table with one key");
    for i in 1..500 {
        client.ask(format!("set key{i} v\r\n"), "+OK\r\n");
    }
    let shown = scan(&mut client, "match key*[02468] count 50");
    let expected: BTreeSet<String> = (0..500).step_by(2).map(|i| format!("key{i}")).collect();
    assert_eq!(shown, expected);
    client.ask("scan x\r\n", "-ERR invalid cursor\r\n");
    client.ask("scan 0 count 0\r\n", "-ERR syntax error\r\n");
    client.send(b"scan 0 type zset count 10000\r\n");
    client.expect("*2\r\n$");
    client.line();
    client.line();
    client.expect("*0\r\n");
}

/// The keys that a whole scan shows.
pub(crate) fn scan(client: &mut Client, options: &str) -> BTreeSet<String> {
    scan_in_steps(client, options).0
}

/// The same, and the number of steps.
fn scan_in_steps(client: &mut Client, options: &str) -> (BTreeSet<String>, u32) {
    let (mut shown, mut cursor, mut steps) = (BTreeSet::new(), String::from("0"), 0);
    loop {
        steps += 1;
        client.send(format!("scan {cursor} {options}\r\n").as_bytes());
        client.expect("*2\r\n$");
        client.line();
        cursor = client.line();
        let count: usize = client.line()[1..].parse().unwrap();
        for _ in 0..count {
            client.line();
            shown.insert(client.line());
        }
        if cursor == "0" {
            return (shown, steps);
        }
    }
}

/// The table grows meanwhile.
fn a_scan_shows_the_keys_that_stay_while_others_come_and_go(engine: Engine) {
    const OTHERS: usize = 20_000;
    let (server, mut client) = start_and_connect(engine, &[]);
    let stay: BTreeSet<String> = (0..100).map(|i| format!("stay{i}")).collect();
    for key in &stay {
        client.ask(format!("set {key} v\r\n"), "+OK\r\n");
    }
    let address = server.resp_address();
    std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            let mut client = Client::connect(address);
            for from in (0..OTHERS).step_by(500) {
                let set: String = (from..from + 500)
                    .map(|i| format!("set other{i} v\r\n"))
                    .collect();
                client.ask(set, "+OK\r\n".repeat(500));
                let del: String = (from..from + 250)
                    .map(|i| format!("del other{i}\r\n"))
                    .collect();
                client.ask(del, ":1\r\n".repeat(250));
            }
        });
        let mut scans = 0;
        while scans == 0 || !others.is_finished() {
            assert_eq!(scan(&mut client, "match stay* count 1000"), stay);
            scans += 1;
        }
    });
}

fn a_client_that_does_not_read_is_bounded_and_loses_nothing(engine: Engine) {
    let (server, mut client) = start_and_connect(engine, &[]);
    let value = "v".repeat(10_000);
    client.ask(request(&["SET", "k", &value]), "+OK\r\n");
    let keys = ["k"; 50];
    let mget = request(&[&["MGET"][..], &keys].concat());
    let one = format!("$10000\r\n{value}\r\n");
    let (rounds, reply) = (100, format!("*50\r\n{}:{}\r\n", one.repeat(50), 10_000));
    // 50 MB of replies; the other side reads only when everything has been sent.
    let mut socket = client.socket();
    let sender = std::thread::spawn(move || {
        use std::io::Write as _;
        for _ in 0..rounds {
            socket.write_all(&mget).unwrap();
            socket.write_all(b"strlen k\r\n").unwrap();
        }
    });
    let mut other = connect(&server);
    for _ in 0..100 {
        other.ask("ping\r\n", "+PONG\r\n");
    }
    sender.join().unwrap();
    for _ in 0..rounds {
        client.expect(&reply);
    }
}

fn a_thousand_idle_connections_are_served(engine: Engine) {
    common::raise_open_files();
    let server = start(engine, &["-c", "1100"]);
    let mut clients: Vec<Client> = (0..1_000).map(|_| connect(&server)).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        client.ask("incr n\r\n", format!(":{}\r\n", index + 1));
    }
}

fn half_a_request_and_silence_take_little_memory(engine: Engine) {
    let server = start(engine, &[]);
    let before_kib = server.rss_kib();
    let halves = [
        "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$900000\r\nabc",
        "*1048576\r\n$4\r\nMGET\r\n$1\r\n",
        "*3\r\n$3\r\nSET\r\n$1",
        "set k valu",
    ];
    let mut clients: Vec<Client> = (0..200).map(|_| connect(&server)).collect();
    for (client, half) in clients.iter_mut().zip(halves.iter().cycle()) {
        client.send(half.as_bytes());
    }
    let mut other = connect(&server);
    other.ask("get k\r\nping\r\n", "$-1\r\n+PONG\r\n");
    let taken_kib = server.rss_kib().saturating_sub(before_kib);
    assert!(taken_kib < 32 << 10, "{taken_kib} KiB");
    // One request is completed; the others leave nothing.
    clients[3].ask("e\r\nget k\r\n", "+OK\r\n$5\r\nvalue\r\n");
    drop(clients);
    other.ask("get k\r\ndbsize\r\n", "$5\r\nvalue\r\n:1\r\n");
}

fn clients_authenticate(engine: Engine) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    std::fs::write(&file, "ann:secret\ndefault:pass\n").unwrap();
    let (server, mut client) = start_and_connect(engine, &["--auth-file", file.to_str().unwrap()]);
    let no_auth = "-NOAUTH Authentication required.\r\n";
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    client.ask("get k\r\nset k v\r\nmget k\r\nping\r\n", no_auth.repeat(4));
    client.ask("auth nobody x\r\nauth wrong\r\n", wrong.repeat(2));
    client.ask(
        "exec\r\n",
        "-EXECABORT Transaction discarded because of: NOAUTH Authentication required.\r\n",
    );
    // Nothing is kept for a client, and its requests are short.
    client.ask(
        "multi\r\nwatch k\r\nclient reply off\r\nclient setname x\r\n",
        no_auth.repeat(4),
    );
    for (request, what) in [("*11\r\n", "multibulk"), ("*1\r\n$16385\r\n", "bulk")] {
        let mut client = connect(&server);
        let error = format!("-ERR Protocol error: unauthenticated {what} length\r\n");
        client.ask(request, error);
        client.expect_end();
    }
    client.ask("auth ann secret\r\nset k v\r\n", "+OK\r\n+OK\r\n");
    client.ask("reset\r\nget k\r\n", format!("+RESET\r\n{no_auth}"));
    client.ask("auth pass\r\nget k\r\n", "+OK\r\n$1\r\nv\r\n");
    let mut other = connect(&server);
    other.send(b"hello 3\r\n");
    assert!(other.line().starts_with("-NOAUTH HELLO must be called"));
    other.send(b"hello 3 auth ann secret\r\n");
    assert_eq!(other.line(), "%8");
    let open = start(engine, &[]);
    let mut client = connect(&open);
    client.send(b"auth pass\r\n");
    assert!(
        client
            .line()
            .starts_with("-ERR AUTH <password> called without any password")
    );
}

fn keys_of_all_lengths_are_set_and_read(engine: Engine) {
    let (_server, mut client) = start_and_connect(engine, &[]);
    let lengths = [0, 1, 249, 250, 251, 254, 255, 256, 257, 65_535, 65_536];
    let key = |len: usize| -> String { (0..len).map(|i| char::from((i % 128) as u8)).collect() };
    for len in lengths {
        client.ask(request(&["SET", &key(len), &len.to_string()]), "+OK\r\n");
    }
    for len in lengths {
        let text = format!("{len}+");
        client.ask(
            request(&["APPEND", &key(len), "+"]),
            format!(":{}\r\n", text.len()),
        );
        let reply = format!("${}\r\n{text}\r\n", text.len());
        client.ask(request(&["GET", &key(len)]), &reply);
        client.ask(request(&["EXPIRE", &key(len), "-1"]), ":1\r\n");
        client.ask(request(&["EXISTS", &key(len)]), ":0\r\n");
    }
}

fn all_keys_are_listed_and_one_is_chosen(engine: Engine) {
    let (_server, mut client) = start_and_connect(engine, &[]);
    client.ask("randomkey\r\nkeys *\r\n", "$-1\r\n*0\r\n");
    let mut names: Vec<String> = (0..3_000).map(|i| format!("key{i:04}")).collect();
    // By visiting all keys, and by a random place.
    for stored in [0..1, 1..3_000] {
        let sets = names[stored.clone()].iter();
        let sets: String = sets.map(|name| format!("set {name} v\r\n")).collect();
        client.ask(sets, "+OK\r\n".repeat(stored.len()));
        client.send(b"randomkey\r\n");
        assert_eq!(client.line(), "$7");
        assert!(names[..stored.end].contains(&client.line()));
    }
    client.send(b"keys key*[13579]\r\n");
    assert_eq!(client.line(), "*1500");
    let mut shown = Vec::new();
    for _ in 0..1_500 {
        client.line();
        shown.push(client.line());
    }
    shown.sort();
    names.retain(|name| name.ends_with(['1', '3', '5', '7', '9']));
    assert_eq!(shown, names);
}

fn size_and_idle_time_of_an_item_are_told(engine: Engine) {
    let (_server, mut client) = start_and_connect(engine, &[]);
    client.ask(request(&["SET", "k", &"v".repeat(1_000)]), "+OK\r\n");
    let mut number = |line: &str| -> u64 {
        client.send(format!("{line}\r\n").as_bytes());
        client.line()[1..].parse().unwrap()
    };
    assert!((1_000..2_000).contains(&number("memory usage k samples 0")));
    assert!(number("object idletime k") < 1_000);
}

fn clients_are_listed_and_closed(engine: Engine) {
    let (server, mut client) = start_and_connect(engine, &[]);
    let mut others: Vec<Client> = (0..3).map(|_| connect(&server)).collect();
    let mut ids = Vec::new();
    for (index, other) in others.iter_mut().enumerate() {
        other.ask(format!("client setname other{index}\r\n"), "+OK\r\n");
        other.send(b"client id\r\n");
        ids.push(other.line()[1..].to_owned());
    }
    let list = |client: &mut Client, line: &str| -> String {
        client.send(format!("{line}\r\n").as_bytes());
        let len: usize = client.line()[1..].parse().unwrap();
        let text = client.bytes_slowly(len + 2, Duration::ZERO);
        String::from_utf8(text).unwrap()
    };
    let all = list(&mut client, "client list");
    for (index, id) in ids.iter().enumerate() {
        let line = format!("id={id} ");
        let line = all.lines().find(|text| text.starts_with(&line)).unwrap();
        assert!(line.contains(&format!(" name=other{index} ")), "{line}");
    }
    let own = list(&mut client, "client info");
    assert!(all.contains(own.split(" age=").next().unwrap()), "{own}");
    let two = list(
        &mut client,
        &format!("client list id {} {}", ids[0], ids[2]),
    );
    assert_eq!(two.trim_end().lines().count(), 2, "{two}");
    assert_eq!(list(&mut client, "client list type pubsub"), "\r\n");
    // By number, by address, and itself.
    client.ask(format!("client kill id {}\r\n", ids[0]), ":1\r\n");
    others[0].expect_end();
    let line = all
        .lines()
        .find(|line| line.contains("name=other1"))
        .unwrap();
    let address = line
        .split(' ')
        .find_map(|field| field.strip_prefix("addr="));
    client.ask(format!("client kill {}\r\n", address.unwrap()), "+OK\r\n");
    others[1].expect_end();
    client.ask("client kill type pubsub skipme no\r\n", ":0\r\n");
    others[2].ask("ping\r\n", "+PONG\r\n");
    client.send(b"client kill skipme no\r\n");
    assert!(client.line().starts_with(':'));
    client.expect_end();
    others[2].expect_end();
}

fn clients_choose_which_requests_have_replies(engine: Engine) {
    let server = start(engine, &[]);
    converse(
        &mut connect(&server),
        &[
            ("client reply skip\r\nset k 1\r\nget k", "$1\r\n1\r\n"),
            (
                "client reply skip\r\nclient reply skip\r\nfoo\r\nping",
                "+PONG\r\n",
            ),
            ("client reply skip\r\nclient reply on", "+OK\r\n"),
            (
                "client reply skip\r\nmulti\r\nincr k\r\nexec",
                "+QUEUED\r\n*1\r\n:2\r\n",
            ),
            (
                "client reply off\r\nincr k\r\nclient reply skip\r\nfoo\r\nmget k\r\n\
                 client reply foo\r\nmulti\r\nincr k\r\nexec\r\nclient reply on\r\nget k",
                "+OK\r\n$1\r\n4\r\n",
            ),
            ("client reply off\r\nreset\r\nping", "+RESET\r\n+PONG\r\n"),
            ("client reply skip\r\nreset\r\nping", "+PONG\r\n"),
            ("client reply skip\r\n\r\nping", "+PONG\r\n"),
            ("client reply skip\r\n*0\r\nping", "+PONG\r\n"),
            (
                "client reply skip\r\n*-1\r\nping\r\nping",
                "+PONG\r\n+PONG\r\n",
            ),
            (
                "multi\r\nclient reply off",
                "+OK\r\n-ERR Command not allowed inside a transaction\r\n",
            ),
            (
                "exec",
                "-EXECABORT Transaction discarded because of previous errors.\r\n",
            ),
        ],
    );
    // A request that is refused has no reply either, nor has one that closes the connection.
    let mut client = connect(&server);
    client.send(b"client reply off\r\n");
    let long = "x".repeat(3 << 20);
    client.send(&request(&["SET", "k", &long]));
    client.ask("client reply on\r\nget k\r\n", "+OK\r\n$1\r\n4\r\n");
    client.send(b"client reply off\r\nget k\r\n*x\r\n");
    client.expect_end();
}

fn lines_of_http_close_the_connection(engine: Engine) {
    let server = start(engine, &[]);
    let post = b"POST / HTTP/1.1\r\nset k 1\r\n".as_slice();
    let host = b"get k\r\nhOSt: localhost\r\nset k 1\r\n".as_slice();
    let queued = b"multi\r\nset k 1\r\n*1\r\n$4\r\nPoSt\r\nexec\r\n".as_slice();
    for (input, reply) in [
        (post, ""),
        (host, "$-1\r\n"),
        (queued, "+OK\r\n+QUEUED\r\n"),
    ] {
        let mut client = connect(&server);
        client.send(input);
        client.expect(reply);
        client.expect_end();
    }
    connect(&server).ask("exists k\r\n", ":0\r\n");
}

/// Requests, word by word.
#[rustfmt::skip]
const LINES: &[&str] = &[
    "PING", "ping hi", "ECHO x", "select 0", "SELECT 16", "select x", "client foo", "config foo",
    "config get", "foo", "foo a b", "client setname", "hello 9", "hello x", "hello 2 foo",
    "hello 3 auth", "getex a persist", "getex b persist ex", "flushall foo", "client kill",
    "client kill foo", "client kill id x", "client kill id 0", "client kill id 99999",
    "client kill foo bar", "client kill type foo", "client no-evict", "client no-evict foo",
    "client no-evict on", "client unblock 99999", "client unblock 9 foo", "client unblock 9 error x",
    "client UnBlock 9 error x", "client list foo", "client list id", "client list id x", "client list type foo", "client info x",
    "client getname", "object", "object foo a", "object freq", "object freq none",
    "object encoding none", "memory", "memory foo", "memory usage none", "memory usage a foo",
    "memory usage a samples -1", "memory usage none samples x", "command getkeys",
    "command getkeys get", "command getkeys foo a", "command getkeys ping a",
    "command getkeys get a b", "command getkeys mget a b c", "command getkeys bitop not a b",
    "command getkeys lcs a b len", "command getkeys memory usage a",
    "command getkeys memory foo a", "command list x",
    "command getkeys zunion 2 a b c", "command getkeys zinter 0 a", "command getkeys zdiff x a",
    "command getkeys zunionstore d 2 a b", "command getkeys zinterstore d 2 a",
    "command getkeys zdiffstore d -1 a", "command getkeys zintercard 1 a limit 2",
    "command getkeys zrangestore a b 0 1", "command getkeys zmpop 2 a min",
    "command getkeys eval x 1 a b", "command getkeys eval x 2 a", "command getkeys eval x x a",
    "command list filterby foo x", "command list filterby module x", "command info foo hello",
    "config set a", "config set a b c", "config set foo 1", "keys", "randomkey x", "scan x",
    "scan -", "scan 1x", "scan 18446744073709551616", "config set maxmemory x",
    "config set maxmemory x maxmemory 1", "config set maxmemory 1 foo 2", "getex none ex 0",
    "getex none px x", "getex a px 0", "getex b exat x", "getex c pxat -1", "hello 3 auth a b foo",
    "hello 3 auth default b foo", "client reply", "client reply foo",
    "client reply on", "client reply on x",
];

/// Random requests that both servers must answer the same, and the names of the commands on one
/// key.
pub(crate) struct Requests(pub(crate) Xoshiro256PlusPlus, pub(crate) Vec<String>);

impl Requests {
    pub(crate) fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words.choose(&mut self.0).expect("words")
    }

    pub(crate) fn key(&mut self) -> String {
        self.pick(&["a", "b", "c", "d", "", "key with blanks", "\r\n"])
            .to_owned()
    }

    pub(crate) fn value(&mut self) -> String {
        match self.0.random_range(0..6) {
            0 => self.0.random_range(-20..20).to_string(),
            1 => self
                .pick(&[
                    "9223372036854775807",
                    "-9223372036854775808",
                    "1.5",
                    "+1",
                    "01",
                    "",
                ])
                .to_owned(),
            2 => "v".repeat(self.0.random_range(0..3_000)),
            _ => self.pick(&["hello", "a\r\nb", "\0", "12"]).to_owned(),
        }
    }

    pub(crate) fn number(&mut self) -> String {
        match self.0.random_range(0..8) {
            0 => self
                .pick(&[
                    "x",
                    "",
                    "9223372036854775807",
                    "-9223372036854775808",
                    "1.0",
                    " 1",
                ])
                .to_owned(),
            _ => self.0.random_range(-12..12).to_string(),
        }
    }

    /// A time from now on in milliseconds that is over, or far away from all others.
    fn time_left(&mut self) -> &'static str {
        self.pick(&[
            "0",
            "-1",
            "x",
            "9223372036854775807",
            "500000",
            "9000000",
            "800000000",
        ])
    }

    /// A time since the epoch in milliseconds.
    fn time(&mut self) -> &'static str {
        self.pick(&[
            "1",
            "0",
            "-5",
            "x",
            "4102444800000",
            "4202444800001",
            "4302444800002",
        ])
    }

    pub(crate) fn options(&mut self, options: &[&str]) -> Vec<String> {
        let count = self.pick(&["0", "0", "1", "1", "2"]).parse().unwrap();
        (0..count).map(|_| self.pick(options).to_owned()).collect()
    }

    fn set(&mut self) -> Vec<String> {
        let mut words = vec!["SET".to_owned(), self.key(), self.value()];
        words.extend(self.options(&["nx", "XX", "get", "keepttl", "foo", "exat"]));
        match self.0.random_range(0..4) {
            0 => words.extend(["PX".to_owned(), self.time_left().to_owned()]),
            1 => words.extend(["pxat".to_owned(), self.time().to_owned()]),
            _ => {}
        }
        words.extend(self.options(&["nx", "xx", "GET", "KEEPTTL"]));
        words
    }

    fn expire(&mut self) -> Vec<String> {
        if self.0.random_bool(0.4) {
            let mut words = vec![
                "PEXPIRE".to_owned(),
                self.key(),
                self.time_left().to_owned(),
            ];
            words.extend(self.options(&["nx", "XX", "foo"]));
            return words;
        }
        let mut words = vec!["PEXPIREAT".to_owned(), self.key(), self.time().to_owned()];
        words.extend(self.options(&["nx", "XX", "gt", "LT", "foo"]));
        words
    }

    /// A request with one key and these kinds of further arguments: a value or a number.
    fn on_key(&mut self, name: &str, kinds: &str) -> Vec<String> {
        let mut words = vec![name.to_owned(), self.key()];
        for kind in kinds.chars() {
            words.push(if kind == 'v' {
                self.value()
            } else {
                self.number()
            });
        }
        words
    }

    pub(crate) fn float(&mut self) -> String {
        let float = self.pick(&[
            "1.5",
            "-0.1",
            "3.0e3",
            "0x1.8p-3",
            ".5",
            "5.",
            "1e-17",
            "1e400",
            "-1e4000",
            "inf",
            "-Infinity",
            "nan",
            " 1",
            "1 ",
            "",
            "1e",
            "0x",
            "1.2.3",
            "17179869184",
            "-0",
            "0.30000000000000004",
            "18446744073709551615",
            "123456789.123456789",
            "1e-4945",
        ]);
        if self.0.random_bool(0.5) {
            return float.to_owned();
        }
        let digits = self.0.random_range(-1_000_000_000..1_000_000_000_i64);
        format!("{digits}e{}", self.0.random_range(-30..10))
    }

    /// A subcommand of `BITFIELD`.
    fn field(&mut self) -> Vec<String> {
        let name = self.pick(&["get", "SET", "incrby", "overflow"]);
        if name == "overflow" {
            let how = self.pick(&["wrap", "SAT", "fail", "sat", "foo"]);
            return vec![name.to_owned(), how.to_owned()];
        }
        let kind = self.pick(&[
            "u1", "i1", "u4", "i5", "u8", "i8", "i17", "u32", "u63", "i64", "i63", "u64", "i65",
            "x8", "u", "i0",
        ]);
        let offset = match self.0.random_range(0..8) {
            0 => self.pick(&["-1", "x", "#", "4294967296"]).to_owned(),
            1 | 2 => format!("#{}", self.0.random_range(0..5)),
            _ => self.0.random_range(0..100).to_string(),
        };
        let mut words = vec![name.to_owned(), kind.to_owned(), offset];
        if name != "get" {
            let number = match self.0.random_range(0..3) {
                0 => (self.0.random::<i64>() >> 2).to_string(),
                _ => self.number(),
            };
            // Redis overflows when `OVERFLOW SAT` sets a number close to the least.
            let is_least = name == "SET" && number == i64::MIN.to_string();
            words.push(if is_least { "0".to_owned() } else { number });
        }
        words
    }

    /// A command on bits.
    fn bits(&mut self) -> Vec<String> {
        match self.0.random_range(0..6) {
            0 => {
                let offset = self.0.random_range(0..200).to_string();
                let bit = self.pick(&["0", "1", "1", "2", "x", "01"]).to_owned();
                vec!["SETBIT".to_owned(), self.key(), offset, bit]
            }
            1 => self.on_key("getbit", "n"),
            2 => {
                let range = self.range();
                let mut words = self.on_key("bitcount", range);
                words.extend(self.options(&["bit", "BYTE", "foo"]).into_iter().take(1));
                words
            }
            3 => {
                let bit = self.pick(&["0", "1", "0", "1", "2", "x"]).to_owned();
                let range = self.range();
                let mut words = self.on_key("BITPOS", range);
                words.insert(2, bit);
                words.extend(self.options(&["BIT", "byte", "foo"]).into_iter().take(1));
                words
            }
            4 => {
                let name = self.pick(&["BITFIELD", "bitfield", "bitfield_ro"]);
                let mut words = vec![name.to_owned(), self.key()];
                for _ in 0..self.0.random_range(0..4) {
                    words.extend(self.field());
                }
                words
            }
            _ => {
                let name = self.pick(&["and", "OR", "xor", "not", "foo"]);
                let count = self.0.random_range(2..5);
                let keys: Vec<String> = (0..count).map(|_| self.key()).collect();
                [vec!["BITOP".to_owned(), name.to_owned()], keys].concat()
            }
        }
    }

    /// The kinds of arguments of a range.
    fn range(&mut self) -> &'static str {
        self.pick(&["", "n", "nn", "nn"])
    }

    fn lcs(&mut self) -> Vec<String> {
        let mut words = vec!["LCS".to_owned(), self.key(), self.key()];
        for option in self.options(&["len", "IDX", "withmatchlen", "MINMATCHLEN", "foo", "idx"]) {
            let takes_number = option == "MINMATCHLEN";
            words.push(option);
            if takes_number {
                words.push(self.number());
            }
        }
        words
    }

    fn next(&mut self) -> Vec<String> {
        let mut words = match self.0.random_range(0..60) {
            0..48 => self.of_strings_and_keys(),
            48..54 => self.bits(),
            54..58 => vec!["INCRBYFLOAT".to_owned(), self.key(), self.float()],
            58 => {
                let pattern = self.pick(&["*", "**", "[ab]", "?", "", "key*", "x*"]);
                vec!["KEYS".to_owned(), pattern.to_owned()]
            }
            _ => self.lcs(),
        };
        // Fewer words may have replies that differ: names, clients, memory, a random key. A name
        // may be shorter here.
        let may_be_shorter =
            !["hello", "client", "command", "memory", "randomkey"].contains(&&*words[0]);
        match self.0.random_range(0..50) {
            0 if may_be_shorter && words.len() > 1 => _ = words.pop(),
            // Not behind a name whose number is gone: a deadline in some milliseconds may pass
            // between the two servers. Nor as a pattern: a long one is refused here.
            1 if !["client", "keys"].contains(&&*words[0].to_lowercase()) => {
                words.push(self.value());
            }
            _ => {}
        }
        words
    }

    pub(crate) fn of_strings_and_keys(&mut self) -> Vec<String> {
        match self.0.random_range(0..12) {
            0 | 1 => self.set(),
            2 => self.expire(),
            3 | 4 => {
                let mut name = self.1.choose(&mut self.0).expect("commands").clone();
                if self.0.random_bool(0.5) {
                    name = name.to_uppercase();
                }
                self.on_key(&name, "")
            }
            5 => {
                let name = self.pick(&["APPEND", "getset", "SETNX"]);
                self.on_key(name, "v")
            }
            6 => {
                let name = self.pick(&["INCRBY", "decrby"]);
                self.on_key(name, "n")
            }
            7 => {
                let name = self.pick(&["GETRANGE", "substr"]);
                self.on_key(name, "nn")
            }
            8 => self.on_key("SETRANGE", "nv"),
            9 => {
                let name = self.pick(&["MGET", "DEL", "unlink", "EXISTS", "touch"]);
                let count = self.0.random_range(1..5);
                let keys = (0..count).map(|_| self.key());
                std::iter::once(name.to_owned()).chain(keys).collect()
            }
            10 => {
                let line = self.pick(LINES);
                line.split(' ').map(str::to_owned).collect()
            }
            _ => {
                let name = self.pick(&["SETEX", "psetex"]);
                vec![
                    name.to_owned(),
                    self.key(),
                    self.pick(&["0", "-1", "x", "100000"]).to_owned(),
                    self.value(),
                ]
            }
        }
    }
}

/// A reply: its bytes without the times that depend on when they were asked for, and those times in
/// milliseconds.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    bytes: Vec<u8>,
    times_ms: Vec<i64>,
}

impl Reply {
    /// Reads the reply to a request.
    pub(crate) fn read(client: &mut Client, request: &[String]) -> Self {
        let mut reply = Self::default();
        let mut reader = ReplyReader::default();
        let name = request[0].to_lowercase();
        let unit_ms = if name.starts_with('p') { 1 } else { 1_000 };
        let is_time = name.ends_with("ttl") || name.ends_with("expiretime");
        let mut is_begun = false;
        let mut elements = Vec::new();
        while !is_begun || !reader.is_complete() {
            is_begun = true;
            let bytes = read_element(client);
            let (consumed, value) = reader.next(&bytes).unwrap().expect("a whole value");
            assert_eq!(consumed, bytes.len());
            match value {
                Value::Integer(time) if is_time && time > 0 => {
                    reply.times_ms.push(time * unit_ms);
                }
                _ => elements.push(bytes),
            }
        }
        if name == "zscan" {
            elements = elements.iter().map(|text| plain_number(text)).collect();
        }
        if ["keys", "zrandmember", "zscan"].contains(&name.as_str()) {
            elements.sort(); // in no particular order
        }
        reply.bytes = elements.concat();
        reply
    }

    /// Whether two replies are the same. Different deadlines in these conversations are farther
    /// apart than the time that a pipeline takes.
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        let mut times = self.times_ms.iter().zip(&other.times_ms);
        self.bytes == other.bytes
            && self.times_ms.len() == other.times_ms.len()
            && times.all(|(a, b)| (a - b).abs() < 100_000)
    }
}

/// An element without its length, if it is a number: how Redis prints the scores of a scan depends
/// on the set's encoding.
fn plain_number(element: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(element);
    let number = text
        .lines()
        .nth(1)
        .and_then(|text| text.parse::<f64>().ok());
    number.map_or_else(
        || element.to_vec(),
        |number| format!("{number:?}").into_bytes(),
    )
}

/// Removes the notes on a command's keys: one pair of a map.
fn without_notes(text: &str) -> String {
    let mut text = text.to_owned();
    while let Some((before, after)) = text.split_once("*8\r\n$5\r\nnotes\r\n") {
        let mut lines = after.splitn(3, "\r\n");
        let rest = lines.nth(2).unwrap();
        text = format!("{before}*6\r\n{rest}");
    }
    text
}

/// What is told of commands and subcommands is what Redis tells, without its notes on keys, and
/// without the lists of subcommands, of which there are fewer here.
fn commands_are_described_as_by_redis(engine: Engine) {
    let server = start(engine, &[]);
    let Some(redis) = Redis::start() else {
        return skip("redis-server is not installed");
    };
    let (mut ours, mut theirs) = (connect(&server), redis.connect());
    ours.send(b"command list\r\n");
    let count: usize = ours.line()[1..].parse().unwrap();
    let names: Vec<String> = (0..count)
        .map(|_| {
            ours.line();
            ours.line()
        })
        .collect();
    let is_compared = |name: &&String| {
        let has_subcommands = names
            .iter()
            .any(|other| other.starts_with(&format!("{name}|")));
        // Redis 7 does not have the others.
        let is_newer = ["delex", "delifeq"].contains(&name.as_str()) || name.starts_with("cf.");
        !has_subcommands && !is_newer
    };
    for name in names.iter().filter(is_compared) {
        let words = ["command".to_owned(), "info".to_owned(), name.clone()];
        let [our_reply, their_reply] = [&mut ours, &mut theirs].map(|client| {
            client.send(&request(&["COMMAND", "INFO", name]));
            without_notes(&String::from_utf8(Reply::read(client, &words).bytes).unwrap())
        });
        assert_eq!(our_reply, their_reply, "{name}");
    }
    assert!(names.iter().filter(is_compared).count() > 70, "{names:?}");
}

fn random_conversations_agree_with_redis(engine: Engine) {
    // Another seed makes other conversations.
    let seed = engine.seed(11);
    compare_with_redis(engine, |client| {
        let names = commands_on_one_key(client);
        let mut requests = Requests(Xoshiro256PlusPlus::seed_from_u64(seed), names);
        move || (requests.0.random_range(1..15), requests.next())
    });
}

/// Compares the replies to pipelines of requests with those of Redis. `begin` makes a function that
/// draws a request, and the length of the pipeline if the request is the first of one.
pub(crate) fn compare_with_redis<N: FnMut() -> (usize, Vec<String>)>(
    engine: Engine,
    begin: impl FnOnce(&mut Client) -> N,
) {
    let server = start(engine, &[]);
    let Some(redis) = Redis::start() else {
        return skip("redis-server is not installed");
    };
    let rounds = if is_short() { 10 } else { 40 };
    let mut observers = [connect(&server), redis.connect()];
    let mut next = begin(&mut observers[0]);
    for round in 0..rounds {
        let (mut ours, mut theirs) = (connect(&server), redis.connect());
        for client in [&mut ours, &mut theirs] {
            client.ask("flushall\r\n", "+OK\r\n");
            if round % 3 == 0 {
                client.send(b"hello 3\r\n");
                Reply::read(client, &["hello".to_owned()]);
            }
        }
        for _ in 0..20 {
            let (len, first) = next();
            let others = (1..len).map(|_| next().1);
            let pipeline: Vec<Vec<String>> = std::iter::once(first).chain(others).collect();
            let bytes = pipeline.iter().flat_map(|words| request(words));
            let bytes: Vec<u8> = bytes.collect();
            ours.send(&bytes);
            theirs.send(&bytes);
            for words in &pipeline {
                let our_reply = Reply::read(&mut ours, words);
                let their_reply = Reply::read(&mut theirs, words);
                assert!(
                    our_reply.agrees_with(&their_reply),
                    "{words:?}: {} {:?} instead of {} {:?}",
                    show(&our_reply.bytes),
                    our_reply.times_ms,
                    show(&their_reply.bytes),
                    their_reply.times_ms
                );
            }
            let [ours, theirs] = observers.each_mut().map(hits_and_misses);
            assert_eq!(ours, theirs, "hits and misses after {pipeline:?}");
        }
    }
}
