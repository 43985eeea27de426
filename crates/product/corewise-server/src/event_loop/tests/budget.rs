//! The time budget of a connection in a turn. The clock moves with what the engine executes.

use super::*;
use crate::budget::BUDGET;
use crate::commands::{self, RespSession};
use corewise_wire::resp::encode_request;

/// What an operation takes on the clock of a [`slow_server`].
const OPERATION: Duration = Duration::from_micros(100);

/// A server with an engine whose operations take long.
fn slow_server() -> TestServer {
    slow_server_with(Config::default())
}

fn slow_server_with(config: Config) -> TestServer {
    let mut server = TestServer::with(config);
    let engine = Arc::clone(&server.engine);
    let clock = move || OPERATION * engine.script.lock().executed.len() as u32;
    server.event_loop.budget.clock = Box::new(clock);
    server
}

/// The most operations in a turn, for a connection whose steps have this number of them.
fn most(step: usize) -> usize {
    let budget = BUDGET.as_nanos() / OPERATION.as_nanos();
    budget as usize + 2 * step
}

#[test]
fn a_connection_has_a_time_budget_for_its_calls() {
    const REQUESTS: usize = 50;
    let mut server = slow_server();
    let mut clients: Vec<Client> = (0..3)
        .map(|_| server.connect_with(RespSession::new(true)))
        .collect();
    let mut other = server.connect();
    server.set("w", b"w");
    let request = format!("exists{}\r\necho x\r\n", " k".repeat(8));
    for client in &mut clients {
        client.send(request.repeat(REQUESTS).as_bytes());
    }
    let mut replies = vec![Vec::new(); clients.len()];
    while replies.iter().any(|replies| replies.len() < 11 * REQUESTS) {
        other.send(b"get w\r\n");
        let before = server.executed().len();
        server.turn();
        assert_eq!(other.taken(), hit("w", "w"));
        let executed = server.executed().len() - before - 1;
        assert!(executed <= clients.len() * most(8), "{executed}");
        for (client, replies) in clients.iter_mut().zip(&mut replies) {
            let before = replies.len();
            client.take(replies);
            assert!(replies.len() > before, "a connection was not served");
        }
    }
    for replies in replies {
        let expected = ":0\r\n$1\r\nx\r\n".repeat(REQUESTS);
        assert_same(&String::from_utf8(replies).unwrap(), &expected);
    }
    assert!(server.counters().conn_yields > 0);
}

#[test]
fn a_connection_has_a_time_budget_for_operations_on_large_values() {
    const REQUESTS: usize = 300;
    const STEP: usize = 3;
    let mut server = slow_server();
    let (mut client, mut other) = (server.connect(), server.connect());
    server.set("v", &vec![b'v'; OUTPUT_PAUSE / STEP]);
    server.set("w", b"w");
    // The last requests depend on the state of the codec.
    let request = "append v 0 0 1\r\nx\r\nmn\r\n".repeat(REQUESTS) + "get w w\r\n";
    client.send(request.as_bytes());
    let mut replies = String::new();
    while !replies.ends_with("END\r\n") {
        other.send(b"get w\r\n");
        let before = server.executed().len();
        server.turn();
        assert_eq!(other.taken(), hit("w", "w"));
        let executed = server.executed().len() - before - 1;
        assert!(executed <= most(STEP), "{executed}");
        replies += &client.taken();
    }
    let expected = "STORED\r\nMN\r\n".repeat(REQUESTS) + &hit("w", "w").replace("END\r\n", "");
    let expected = expected + &hit("w", "w");
    assert_same(&replies, &expected);
    assert_eq!(
        server
            .executed()
            .iter()
            .filter(|line| *line == "store v")
            .count(),
        REQUESTS
    );
}

#[test]
fn a_multiget_goes_on_where_its_budget_ended() {
    let mut server = slow_server();
    let mut client = server.connect();
    server.set("v", b"v");
    let times = 3 * BATCH + 5;
    let line = format!("get{}\r\n", " v".repeat(times));
    let replies = server.talk(&mut client, line.as_bytes());
    assert_same(
        &replies,
        &("VALUE v 0 1\r\nv\r\n".repeat(times) + "END\r\n"),
    );
    assert!(server.counters().conn_yields > 0);
}

#[test]
fn a_stopping_loop_does_not_wait_for_all_requests_of_a_pipeline() {
    let mut server = slow_server();
    let mut client = server.connect_with(RespSession::new(true));
    let request = format!("exists{}\r\n", " k".repeat(40));
    client.send(request.repeat(100).as_bytes());
    server.inbox.close();
    server.turn();
    assert_eq!(client.taken(), ":0\r\n");
    assert!(!server.event_loop.is_drained(server.now));
    server.now.ms += DRAIN_MS;
    server.turn();
    assert_eq!(client.taken(), ":0\r\n");
    assert!(server.event_loop.is_drained(server.now));
}

/// Its client waits for the server, and not the other way round.
#[test]
fn a_connection_whose_requests_wait_for_their_turn_is_not_silent() {
    const REQUESTS: usize = 20;
    let config = Config {
        idle_timeout: Some(Duration::from_secs(10)),
        ..Config::default()
    };
    let mut server = slow_server_with(config);
    let mut client = server.connect_with(RespSession::new(true));
    let request = format!("exists{}\r\n", " k".repeat(40));
    client.send(request.repeat(REQUESTS).as_bytes());
    let mut replies = String::new();
    for _ in 0..REQUESTS {
        server.turn();
        replies += &client.taken();
        server.now.ms += 6_000;
        server.event_loop.sweep_if_due(server.now);
    }
    assert_eq!(replies, ":0\r\n".repeat(REQUESTS));
    assert!(!client.is_closed);
    server.now.ms += 10_000;
    server.event_loop.sweep_if_due(server.now);
    assert_eq!(server.counters().idle_kicks, 1);
}

/// What a client sent long ago, and could not be answered before, does not make it a client that
/// takes nothing.
#[test]
fn a_reply_that_begins_to_wait_is_not_given_up() {
    const CLIENTS: usize = 8;
    let config = Config {
        connection_memory: Some(2 << 20),
        eviction: crate::config::Eviction::None,
        ..Config::default()
    };
    let mut server = slow_server_with(config);
    server.set("v", &[b'v'; 300_000]);
    server.event_loop.sweep_if_due(server.now);
    let mut clients: Vec<Client> = (0..CLIENTS)
        .map(|_| server.connect_with(RespSession::new(true)))
        .collect();
    let long = format!("exists{}\r\n", " k".repeat(40));
    clients[0].send(format!("{}get v\r\n", long.repeat(20)).as_bytes());
    let mut taken = vec![String::new(); CLIENTS];
    for _ in 0..20 {
        server.turn();
        taken[0] += &clients[0].taken();
        server.now.ms += TAKES_NOTHING_MS;
    }
    for client in &mut clients[1..] {
        client.send(b"get v\r\n");
    }
    let expected = format!("$300000\r\n{}\r\n", "v".repeat(300_000));
    for _ in 0..3_000 {
        server.turn();
        for (client, taken) in clients.iter_mut().zip(&mut taken) {
            *taken += &client.taken();
        }
        server.now.ms += 1;
    }
    assert_same(&taken[0], &(":0\r\n".repeat(20) + &expected));
    taken[1..]
        .iter()
        .for_each(|taken| assert_same(taken, &expected));
}

#[test]
fn a_flush_that_follows_a_flush_is_the_same() {
    for resp in [false, true] {
        let mut server = TestServer::new();
        let (mut client, flush, get) = if resp {
            let client = server.connect_with(RespSession::new(true));
            (client, "flushall\r\nflushdb async\r\n", "get k\r\n")
        } else {
            (
                server.connect(),
                "flush_all\r\nflush_all 0\r\n",
                "get k\r\n",
            )
        };
        let flushes = flush.repeat(100);
        let request = format!("{flushes}{get}{flushes}bogus\r\n{flushes}verbosity 1\r\n{flushes}");
        let replies = server.talk(&mut client, request.as_bytes());
        assert_eq!(replies.matches("OK\r\n").count(), 800 + usize::from(!resp));
        let executed = ["flush", "get k", "flush", "flush", "flush"];
        assert_eq!(server.executed(), executed);
        assert_eq!(server.counters().cmd_flush, 800);
        // What is between two flushes is executed between them, also if it is in a transaction.
        if resp {
            let request =
                "flushall\r\nmulti\r\nflushall\r\nset k v\r\nexec\r\nflushall\r\nget k\r\n";
            let replies = server.talk(&mut client, request.as_bytes());
            assert!(replies.ends_with("+OK\r\n$-1\r\n"), "{replies}");
        }
    }
}

/// Serves both clients until `client` has its reply, with a `get w` of the other client in each
/// turn, and returns the reply and the number of turns.
fn converse(server: &mut TestServer, client: &mut Client, other: &mut Client) -> (String, usize) {
    let (mut reply, mut turns) = (String::new(), 0);
    while reply.is_empty() {
        other.send(b"get w\r\n");
        let before = server.executed().len();
        server.turn();
        turns += 1;
        assert_eq!(other.taken(), hit("w", "w"));
        let executed = server.executed().len() - before - 1;
        assert!(executed <= most(64), "{executed}");
        reply = client.taken();
    }
    (reply, turns)
}

#[test]
fn a_long_call_goes_on_where_its_budget_ended() {
    const KEYS: usize = 500;
    let mut server = slow_server();
    let (mut client, mut other) = (
        server.connect_with(RespSession::new(true)),
        server.connect(),
    );
    server.set("w", b"w");
    let keys: Vec<String> = (0..KEYS).map(|i| format!("k{i:04}")).collect();
    for key in &keys {
        server.set(key, b"v");
    }
    let all = keys.join(" ");
    for (name, count) in [
        ("touch", KEYS),
        ("exists", KEYS),
        ("del", KEYS),
        ("unlink", 0),
    ] {
        client.send(format!("client reply skip\r\necho x\r\n{name} {all} none\r\n").as_bytes());
        let (reply, turns) = converse(&mut server, &mut client, &mut other);
        assert_eq!(reply, format!(":{count}\r\n"), "{name}");
        assert!(turns > 5, "{turns}");
    }
    let calls = server.counters().resp_calls;
    client.send(format!("client reply skip\r\ndel {all}\r\nget w\r\n").as_bytes());
    let (reply, turns) = converse(&mut server, &mut client, &mut other);
    assert_eq!(reply, "$1\r\nw\r\n");
    assert!(turns > 5, "{turns}");
    assert_eq!(server.counters().resp_calls, calls + 2);
}

/// The value of a field of a text.
fn field<'t>(text: &'t str, name: &str) -> &'t str {
    let (_, rest) = text.split_once(name).expect(text);
    rest.split([',', '\r']).next().unwrap()
}

#[test]
fn a_long_call_is_one_entry_of_the_slow_log() {
    let mut server = slow_server();
    let mut client = server.connect_with(RespSession::new(true));
    let ok = server.talk(&mut client, b"config set slowlog-log-slower-than 0\r\n");
    assert_eq!(ok, "+OK\r\n");
    let mut turns = 0;
    for (line, reply) in [
        ("slowlog reset", "+OK"),
        ("config resetstat", "+OK"),
        ("touch", ":0"),
    ] {
        let keys = if line == "touch" {
            " k".repeat(500)
        } else {
            String::new()
        };
        client.send(format!("{line}{keys}\r\n").as_bytes());
        turns = 0;
        let mut taken = String::new();
        while taken.is_empty() {
            server.turn();
            turns += 1;
            taken = client.taken();
        }
        assert_eq!(taken, format!("{reply}\r\n"));
    }
    assert!(turns > 5, "{turns}");
    let stats = server.talk(&mut client, b"info commandstats\r\n");
    let (_, stats) = stats.split_once("cmdstat_touch:").expect(&stats);
    assert_eq!(field(stats, "calls="), "1");
    // `SLOWLOG RESET`, `CONFIG RESETSTAT`, `TOUCH` and `INFO`.
    let log = server.talk(&mut client, b"slowlog get\r\n");
    assert!(log.starts_with("*4\r\n"), "{log}");
    let entries: Vec<&str> = log.split("*6\r\n").collect();
    let touch = entries.iter().find(|entry| entry.contains("\r\ntouch\r\n"));
    let us: u64 = touch
        .unwrap()
        .split("\r\n:")
        .nth(2)
        .unwrap()
        .split('\r')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let counted: u64 = field(stats, "usec=").parse().unwrap();
    assert!(us.abs_diff(counted) <= 1, "{us} {counted}");
}

/// Each turn parses the whole request.
#[test]
fn a_call_on_many_keys_goes_on_in_a_bounded_number_of_turns() {
    const KEYS: usize = 6_400;
    let mut server = slow_server();
    let mut client = server.connect_with(RespSession::new(true));
    let request = format!("exists{}\r\n", " k".repeat(KEYS));
    client.send(request.as_bytes());
    let (mut reply, mut turns) = (String::new(), 0);
    while reply.is_empty() {
        server.turn();
        turns += 1;
        reply = client.taken();
    }
    assert_eq!(reply, ":0\r\n");
    assert!((10..=33).contains(&turns), "{turns}");
    assert_eq!(server.executed().len(), KEYS);
}

#[test]
fn keys_are_listed_in_steps() {
    const KEYS: usize = 20_000;
    let mut server = slow_server();
    let (mut client, mut other) = (
        server.connect_with(RespSession::new(true)),
        server.connect(),
    );
    server.set("w", b"w");
    let keys: Vec<String> = (0..KEYS).map(|i| format!("k{i:05}")).collect();
    for key in &keys {
        server.set(key, b"v");
    }
    client.send(b"keys k0*5\r\n");
    let (mut reply, turns) = converse(&mut server, &mut client, &mut other);
    assert!(turns > 10, "{turns}");
    let held = |server: &TestServer| {
        server
            .event_loop
            .conns
            .iter()
            .map(|(_, conn)| conn.held().input)
            .sum::<usize>()
    };
    let wanted: Vec<&String> = keys
        .iter()
        .filter(|key| key.starts_with("k0") && key.ends_with('5'))
        .collect();
    let expected = format!("*{}\r\n", wanted.len())
        + &wanted
            .iter()
            .map(|key| format!("$6\r\n{key}\r\n"))
            .collect::<String>();
    reply += &server.talk(&mut client, b"");
    assert_same(&reply, &expected);
    // What is found counts as memory of the connection until then.
    client.send(b"keys *\r\n");
    server.turn();
    server.turn();
    let early = held(&server);
    assert!(early > 20 * 64 * 12, "{early}");
    let reply = server.talk(&mut client, b"");
    assert!(reply.starts_with(&format!("*{}\r\n", KEYS + 1)));
    assert!(held(&server) < early);
}

/// Requests whose time depends on values, with the number of them, about, that a transaction may
/// have on a value of a million bytes: of commands that read or write it otherwise than once, and
/// of those whose other arguments matter.
const ON_VALUES: &[(&str, usize)] = &[
    ("append v x", 134),
    ("bitcount v", 1_069),
    ("bitfield v incrby u8 0 1", 134),
    ("bitop not none v", 67),
    ("bitpos v 1", 1_069),
    ("copy v none replace", 67),
    ("move v 1", 67),
    ("getrange v -1 -1", 268),
    ("lcs v v", 38),
    ("mget v none v", 134),
    ("rename v none", 67),
    ("renamenx v none", 67),
    ("set v x get", 268),
    ("setbit v 1 1", 134),
    ("setrange v 0 x", 134),
    ("substr v 0 -1", 268),
];

/// Requests of these commands that read and write little.
const ON_PARTS: &[&str] = &[
    "getrange v 0 999",
    "set v 1",
    "set w 1",
    "substr v 0 999",
    "zadd z 1 a",
    "zcard z",
    "zcount z 1 2",
    "zincrby z 1 a",
    "zlexcount z - +",
    "zmscore z a",
    "zpopmax z",
    "zpopmin z 5",
    "zrandmember z",
    "zrange z 0 -1",
    "zrangebylex z - +",
    "zrangebyscore z 1 2",
    "zrank z a",
    "zrem z a",
    "zremrangebylex z - +",
    "zremrangebyrank z 0 -1",
    "zremrangebyscore z 1 2",
    "zrevrange z 0 -1",
    "zrevrangebylex z + -",
    "zrevrangebyscore z 2 1",
    "zrevrank z a",
    "zscan z 0",
    "zscore z a",
];

/// How many requests that read a value of a million bytes, about, a transaction may have.
const READS: usize = 268;

/// Commands that have no keys and a long reply, with the number of them, about, that a transaction
/// may have.
const WITHOUT_KEYS: &[(&str, usize)] = &[
    ("acl cat", 4_000),
    ("command docs", 255),
    ("info", 1_900),
    ("slowlog get", 3_900),
    ("slowlog get -1", 40),
    ("slowlog get 500", 82),
    ("slowlog get 9999999", 40),
];

const TOO_LONG: &str = "-EXECABORT Transaction discarded because it would take too long.\r\n";

/// Executes a command several times in a transaction. Returns the reply to `EXEC`, and what the
/// engine has executed for it.
fn transaction(command: &str, times: usize) -> (String, Vec<String>) {
    let mut server = TestServer::new();
    let mut client = server.connect_with(RespSession::new(true));
    server.set("v", &[b'1'; 1_000_000]);
    let queue = format!("multi\r\n{}", format!("{command}\r\n").repeat(times));
    let queued = server.talk(&mut client, queue.as_bytes());
    assert_eq!(queued, "+OK\r\n".to_owned() + &"+QUEUED\r\n".repeat(times));
    let before = server.executed().len();
    let reply = server.talk(&mut client, b"exec\r\n");
    (reply, server.executed().split_off(before))
}

#[test]
fn a_transaction_that_would_take_too_long_is_not_executed() {
    for &(request, most) in ON_VALUES {
        assert_most(request, most);
    }
    for request in ON_PARTS {
        assert_cheap(request);
    }
    let is_listed = |name: &str| {
        let mut listed = ON_VALUES.iter();
        listed.any(|(request, _)| request.split(' ').next() == Some(name))
    };
    for (name, request, reads_strings) in commands::requests_on("v") {
        if is_listed(name) {
            continue;
        }
        if reads_strings {
            assert_most(&request, READS);
        } else {
            assert_cheap(&request);
        }
        // Whatever its row says: what prints a value has read it.
        let (reply, _) = transaction(&request, 1);
        assert!(reads_strings || reply.len() < 1_000, "{request}");
    }
    for &(request, most) in WITHOUT_KEYS {
        let (reply, _) = transaction(request, most * 11 / 10);
        assert!(reply == TOO_LONG, "{request}");
        let (reply, _) = transaction(request, (most * 9 / 10).min(40));
        assert!(reply != TOO_LONG, "{request}");
    }
}

/// A transaction of more requests than `most` is refused before it reads a value twice.
fn assert_most(request: &str, most: usize) {
    let (reply, executed) = transaction(request, most * 11 / 10);
    assert!(reply == TOO_LONG, "{request}");
    let keys = executed.iter().filter(|line| line.starts_with("get "));
    assert_eq!(keys.count(), executed.len(), "{request}: {executed:?}");
    assert!(executed.len() <= 2, "{request}: {executed:?}");
    let (reply, _) = transaction(request, (most * 9 / 10).min(20));
    assert!(reply != TOO_LONG, "{request}");
}

/// A transaction may have many requests like this one.
fn assert_cheap(request: &str) {
    let (reply, _) = transaction(request, 300);
    assert!(reply.starts_with("*300\r\n"), "{request}");
}

#[test]
fn the_cost_of_a_transaction_follows_what_it_writes() {
    for (writes, most) in [
        (&["set w LONG"][..], 268),
        (&["set w HALF", "append w HALF"], 268),
        (&["setrange w 999999 x"], 268),
        (&["setbit w 7999999 1"], 268),
        (&["bitfield w set u8 7999992 1"], 268),
        (&["set x LONG", "copy x w replace"], 260),
        (&["set x LONG", "rename x w"], 260),
        (&["set x LONG", "bitop not w x"], 260),
        (&["incr w", "append w 1", "incrby w 5", "set w 1"], 1_000),
    ] {
        for (times, is_executed) in [(most * 9 / 10, true), (most * 11 / 10, most == 1_000)] {
            let mut server = TestServer::new();
            let mut client = server.connect_with(RespSession::new(true));
            let [half, long] = [500_000, 1_000_000].map(|len| "1".repeat(len));
            let writes = writes
                .join("\r\n")
                .replace("HALF", &half)
                .replace("LONG", &long);
            let mut request = Vec::new();
            for line in writes.split("\r\n") {
                let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
                encode_request(&words, &mut request);
            }
            let gets = "get w\r\n".repeat(times);
            let request = [b"multi\r\n", &request[..], gets.as_bytes()].concat();
            let replies = server.talk(&mut client, &request);
            assert!(replies.ends_with("QUEUED\r\n"), "{replies}");
            let replies = server.talk(&mut client, b"exec\r\n");
            let name = &writes[..writes.len().min(40)];
            assert_eq!(replies.starts_with('-'), !is_executed, "{name} {times}");
            let executed = server.executed();
            let mut stored = executed.iter().filter(|line| !line.starts_with("get"));
            assert_eq!(stored.next().is_some(), is_executed, "{name} {times}");
        }
    }
}

/// Executes these requests on a server with a set of 2 MB at `big`: the reply to `EXEC`, and how
/// often the set was shown.
fn transaction_on_a_set(requests: &str) -> (String, usize) {
    let mut server = TestServer::new();
    let mut client = server.connect_with(RespSession::new(true));
    server.engine.script.lock().members = 2_000;
    server.engine.script.lock().stats.set_bytes = 2_000_000;
    let replies = server.talk(&mut client, format!("multi\r\n{requests}").as_bytes());
    assert!(replies.ends_with("QUEUED\r\n"), "{replies}");
    let reply = server.talk(&mut client, b"exec\r\n");
    let executed = server.executed();
    let shown = executed.iter().filter(|line| *line == "sorted big");
    (reply, shown.count())
}

/// The reply to a command if the set at `big` has this number of members of a thousand bytes, and
/// how often the command reads the set or its length.
fn command_on_a_set(members: usize, request: &str) -> (String, usize) {
    let mut server = TestServer::new();
    let mut client = server.connect_with(RespSession::new(true));
    server.engine.script.lock().members = members;
    let reply = server.talk(&mut client, format!("{request}\r\n").as_bytes());
    let executed = server.executed();
    let reads = executed.iter().filter(|line| *line == "sorted big");
    (reply, reads.count())
}

#[test]
fn commands_on_several_sets_read_parts_of_few_bytes() {
    // A part of 256 KiB has 262 of the members.
    for request in ["zdiff 1 big", "zunion 1 big", "zinter 1 big"] {
        let (reply, reads) = command_on_a_set(2_000, request);
        assert!(reply.starts_with('*'), "{request}: {reply:.80}");
        assert_eq!(reads, 1 + 8, "{request}");
    }
    // The result is refused by the part with which it is too large, a doubling before at most.
    let (reply, reads) = command_on_a_set(1_000_000, "zdiff 1 big");
    assert!(reply.starts_with("-OOM"), "{reply:.80} {reads}");
    assert!((20..80).contains(&reads), "{reads}");
}

#[test]
fn the_bytes_of_members_are_steps_of_a_command() {
    const TOO_MANY: &str = "-ERR the sets have too many members for one command\r\n";
    // Each part takes 262 steps, and one for each 64 of its 262,000 bytes.
    let most = (1 << 22) / (262 + 262_000 / 64);
    let (reply, reads) = command_on_a_set(4_000_000, "zunion 1 big");
    assert_eq!((&*reply, reads), (TOO_MANY, 1 + most + 1));
    let (reply, reads) = command_on_a_set(5_000_000, "zunion 1 big");
    assert_eq!((&*reply, reads), (TOO_MANY, 1));
}

#[test]
fn ranges_in_a_transaction_end_where_its_replies_are_too_long() {
    let (reply, shown) = transaction_on_a_set(&"zrange big 0 -1\r\n".repeat(4));
    assert!(reply.starts_with("*4\r\n*2000\r\n"), "{}", reply.len());
    assert!(reply.len() > 8_000_000 && shown == 4, "{shown}");
    // A quarter of 64 MiB has room for eight of them.
    let (reply, shown) = transaction_on_a_set(&"zrange big 0 -1\r\n".repeat(500));
    assert_eq!((&reply[..], shown), ("", 9));
}

#[test]
fn the_cost_of_copying_a_set_follows_it_to_other_keys() {
    for (times, is_executed) in [(100, true), (140, false)] {
        for first in ["", "rename big k\r\n", "copy big k\r\n"] {
            let key = if first.is_empty() { "big" } else { "k" };
            let copies = format!("copy {key} c replace\r\n").repeat(times);
            let (reply, _) = transaction_on_a_set(&format!("{first}{copies}"));
            assert_eq!(reply.starts_with('*'), is_executed, "{first}{times}");
        }
    }
    let member = "m".repeat(500_000);
    for (times, is_executed) in [(50, true), (300, false)] {
        let copies = "copy k c replace\r\n".repeat(times);
        let mut requests = Vec::new();
        encode_request(&[b"zadd", b"k", b"1", member.as_bytes()], &mut requests);
        let requests = String::from_utf8(requests).unwrap() + &copies;
        let (reply, _) = transaction_on_a_set(&requests);
        assert_eq!(reply.starts_with('*'), is_executed, "{times}");
    }
}

#[test]
fn the_cost_of_a_transaction_follows_the_members_that_it_removes_draws_or_matches() {
    for (request, most) in [
        ("zremrangebyrank big 0 -1", 63),
        ("zremrangebyscore big 1 2", 63),
        ("zremrangebylex big - +", 63),
        ("zpopmin big 5000", 63),
        ("zpopmax big 200", 620),
        ("zrandmember big 5000", 255),
        ("zrandmember big -5000", 104),
        ("zscan big 0 match *ab*", 32),
        ("zscan big 0 match LONG", 4),
        ("zscan big 0 match *ab", 10_000),
        ("zscan big 0", 10_000),
        ("zpopmin big", 10_000),
        ("zcount big 1 2", 10_000),
        ("zmpop 1 big min", 10_000),
        ("zmpop 2 none big max count 5000", 63),
        // By their bytes, which are looked up in each source: a thousand for each member.
        ("zdiff 2 big none", 67),
        ("zinter 2 big none", 10_000),
        ("zunionstore k 1 big", 16),
        ("zrangestore k big 0 9", 134),
        ("zrangestore k big 0 -1", 16),
        ("zunionstore k 1 big\r\nzremrangebyrank k 0 -1", 2),
        // What moves is as large as its bytes tell.
        ("rename big k\r\nzremrangebyrank k 0 -1", 2),
    ] {
        for (times, is_executed) in [(most * 9 / 10, true), (most * 11 / 10 + 1, most == 10_000)] {
            let times = times.min(1_000);
            let request = request.replace("LONG", &format!("*{}*", "ab".repeat(511)));
            let (reply, _) = transaction_on_a_set(&format!("{request}\r\n").repeat(times));
            assert_eq!(reply != TOO_LONG, is_executed, "{request} {times}");
        }
    }
    let pairs = " 1 m".repeat(1_000);
    for (times, is_executed) in [(100, true), (140, false)] {
        let adds = format!("zadd k{pairs}\r\n").repeat(times);
        for removal in ["zcard k", "zremrangebyrank k 0 -1"] {
            let (reply, _) = transaction_on_a_set(&format!("{adds}{removal}\r\n"));
            let is_cheap = removal == "zcard k";
            assert_eq!(
                reply != TOO_LONG,
                is_executed || is_cheap,
                "{removal} {times}"
            );
        }
    }
}

#[test]
fn a_bitop_of_too_many_bytes_changes_nothing() {
    let mut server = TestServer::new();
    let mut client = server.connect_with(RespSession::new(true));
    server.set("v", &[b'v'; 1_000_000]);
    for (sources, reply) in [(3, ":1000000"), (80, "-ERR BITOP reads too many bytes")] {
        let request = format!("bitop or d{}\r\n", " v".repeat(sources));
        let replies = server.talk(&mut client, request.as_bytes());
        assert_eq!(replies, format!("{reply}\r\n"));
    }
    let executed = server.executed();
    let stores = executed.iter().filter(|line| *line == "store d");
    assert_eq!(stores.count(), 1);
}
