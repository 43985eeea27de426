//! Transactions of RESP over sockets: exact replies, watches, bounds, histories of several
//! connections that are checked for linearizability, and random conversations of two connections
//! whose replies are compared with those of redis-server.

use crate::common;

use std::net::SocketAddr;
use std::sync::Barrier;

use common::resp::{
    commands_on_one_key, connect, converse, hits_and_misses, read_reply, request, requests_on_keys,
    start, start_and_connect,
};
use common::{Client, Engine, Redis, TestServer, show, skip, wait_until};
use corewise_testkit::history::models::{Several, SeveralOp, SeveralOutcome, SeveralStep};
use corewise_testkit::history::{History, Recorder, Recording};
use corewise_testkit::random::is_short;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

for_every_engine! { of corewise:
    a_transaction_ends_with_its_connection
    a_request_that_is_too_long_aborts_a_transaction
    an_exec_fails_if_a_watched_key_has_changed
    commands_change_watched_keys_as_in_redis
    a_read_of_memcached_changes_a_watched_key_if_it_writes
    watches_end
    no_increment_is_lost_beside_other_writers
    an_exec_fails_if_a_watched_key_was_evicted
    a_transaction_without_memory_changes_nothing_but_goes_on
    a_flush_happens_before_or_after_a_transaction
    a_rename_keeps_flags_and_a_command_that_fails_changes_nothing
    transactions_are_bounded
    watches_count_as_memory_of_their_connections
    watches_are_refused_without_memory
    the_largest_transaction_is_executed
    histories_with_transactions_are_linearizable
    a_torn_mset_is_found_out
    conversations_of_two_connections_agree_with_redis
}

const OK: &str = "+OK\r\n";
const QUEUED: &str = "+QUEUED\r\n";
const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.\r\n";

/// RESP3 has one null, and `QUIT` discards a transaction.
fn a_transaction_ends_with_its_connection(engine: Engine) {
    let server = start(engine, &[]);
    let (mut one, mut other) = (connect(&server), connect(&server));
    one.send(b"hello 3\r\n");
    reply(&mut one);
    converse(
        &mut one,
        &[(
            "watch a\r\nset a 5\r\nmulti\r\nexec",
            "+OK\r\n+OK\r\n+OK\r\n_\r\n",
        )],
    );
    converse(
        &mut one,
        &[("multi\r\nset a 1\r\nquit", "+OK\r\n+QUEUED\r\n+OK\r\n")],
    );
    one.expect_end();
    other.ask("get a\r\n", "$1\r\n5\r\n");
}

/// A request that is too long is not executed, so the others of its transaction are not either.
fn a_request_that_is_too_long_aborts_a_transaction(engine: Engine) {
    let (_server, mut client) = start_and_connect(engine, &[]);
    client.ask("set a 1\r\nmulti\r\nset a 3\r\n", [OK, OK, QUEUED].concat());
    let value = "x".repeat(600 << 10);
    let pairs = ["a", "b", "c", "d"].map(|key| [key, &value]);
    let long = [&["MSET"], pairs.as_flattened()].concat();
    client.ask(
        request(&long),
        "-ERR request exceeds the maximum length\r\n",
    );
    converse(&mut client, &[("exec", ABORTED), ("get a", "$1\r\n1\r\n")]);
}

/// What changes between `WATCH k absent` and `EXEC`, its reply, and whether `EXEC` fails.
#[rustfmt::skip]
const CHANGES: &[(&str, &str, bool)] = &[
    ("get k", "$1\r\n5\r\n", false),
    ("set l 1", OK, false),
    ("set k 5", OK, true),
    ("set k 6 nx", "$-1\r\n", false),
    ("append k x", ":2\r\n", true),
    ("incr k", ":6\r\n", true),
    ("del none", ":0\r\n", false),
    ("del k", ":1\r\n", true),
    ("expire k 100", ":1\r\n", true),
    ("expire k 100 xx", ":0\r\n", false),
    ("persist k", ":0\r\n", false),
    ("getex k", "$1\r\n5\r\n", false),
    ("getex k persist", "$1\r\n5\r\n", false),
    ("getex k ex 100", "$1\r\n5\r\n", true),
    ("expire k -1", ":1\r\n", true),
    ("set absent 1", OK, true),
    ("set absent 1\r\ndel absent", "+OK\r\n:1\r\n", true),
    ("mset x 1 k 5", OK, true),
    ("mset x 1 y 5", OK, false),
    ("msetnx x 1 k 5", ":0\r\n", false),
    ("rename k x", OK, true),
    ("rename x k", OK, true),
    ("copy x k", ":0\r\n", false),
    ("copy x k replace", ":1\r\n", true),
    ("multi\r\nset k 1\r\nexec", "+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n", true),
    ("setbit k 2 1", ":1\r\n", false),
    ("setbit k 2 0", ":1\r\n", true),
    ("setbit k 8 0", ":0\r\n", true),
    ("setbit absent 0 0", ":0\r\n", true),
    ("bitfield k overflow fail incrby u2 0 100", "*1\r\n$-1\r\n", false),
    ("bitfield k set u8 0 53", "*1\r\n:53\r\n", false),
    ("bitfield k incrby u8 0 1", "*1\r\n:54\r\n", true),
    ("flushall", OK, true),
];

/// The same in the protocol of memcached.
#[rustfmt::skip]
const CHANGES_OF_MEMCACHED: &[(&str, &str, bool)] = &[
    ("get k\r\n", "VALUE k 0 1\r\n5\r\nEND\r\n", false),
    ("set k 0 0 1\r\n5\r\n", "STORED\r\n", true),
    ("touch k 0\r\n", "TOUCHED\r\n", true),
    ("add k 0 0 1\r\n5\r\n", "NOT_STORED\r\n", false),
    ("incr k 1\r\n", "6\r\n", true),
    ("delete k\r\n", "DELETED\r\n", true),
    ("flush_all\r\n", "OK\r\n", true),
];

fn an_exec_fails_if_a_watched_key_has_changed(engine: Engine) {
    let server = start(engine, &[]);
    let (mut one, mut other, mut text) = (connect(&server), connect(&server), server.connect());
    for (change, reply, fails) in CHANGES {
        other.ask("mset k 5 x 1\r\ndel absent\r\n", "+OK\r\n:");
        other.line();
        one.ask("watch k absent\r\n", OK);
        other.ask(format!("{change}\r\n"), reply);
        let expected = if *fails { "*-1\r\n" } else { "*1\r\n+PONG\r\n" };
        one.ask(
            "multi\r\nping\r\nexec\r\n",
            format!("{OK}{QUEUED}{expected}"),
        );
    }
    // Commands of memcached count, too; so do those of the same client.
    for (change, reply, fails) in CHANGES_OF_MEMCACHED {
        other.ask("set k 5\r\n", OK);
        one.ask("watch k\r\n", OK);
        text.ask(change, reply);
        let expected = if *fails { "*-1\r\n" } else { "*1\r\n+PONG\r\n" };
        one.ask(
            "multi\r\nping\r\nexec\r\n",
            format!("{OK}{QUEUED}{expected}"),
        );
    }
    one.ask(
        "watch k\r\nset k 1\r\nmulti\r\nexec\r\n",
        "+OK\r\n+OK\r\n+OK\r\n*-1\r\n",
    );
    // An item that expires has changed, and one that had expired has not.
    one.ask("set k 1 px 1\r\nwatch k\r\n", "+OK\r\n+OK\r\n");
    wait_until("the item expires", || {
        other.send(b"exists k\r\n");
        other.line() == ":0"
    });
    // Whether it expired before or after WATCH, which saw it or did not, depends on time.
    one.send(b"multi\r\nping\r\nexec\r\n");
    (0..3).for_each(|_| _ = reply(&mut one));
    one.ask("watch k\r\nmulti\r\nexec\r\n", "+OK\r\n+OK\r\n*0\r\n");
}

/// Commands of memcached before and after `WATCH k`, and whether `EXEC` fails.
#[rustfmt::skip]
const META_GETS: &[(&str, &str, bool)] = &[
    ("set k 0 0 1\r\n5\r\n", "mg k v\r\n", false),
    ("mg k s\r\n", "mg k N30 R30\r\n", false), // it is there, for ever
    ("md k I\r\n", "mg k\r\n", true),          // it wins the stale item
    ("mg k s\r\n", "mg k\r\n", false),
    ("mg k s\r\n", "mg k T9\r\n", true),
    ("ms k 1 T20\r\n5\r\n", "mg k R30\r\n", true),
    ("mg k s\r\n", "mg k R30\r\n", false),
    ("md k\r\n", "mg k\r\n", false),
    ("mg k\r\n", "mg k N30\r\n", true),
];

/// All commands with keys, in their shortest form.
fn commands_change_watched_keys_as_in_redis(engine: Engine) {
    let server = start(engine, &[]);
    let Some(redis) = Redis::start() else {
        return skip("redis-server is not installed");
    };
    let pairs = [["k", "x"], ["x", "k"], ["k", "k"], ["absent", "k"]];
    let mut changes = 0;
    for change in requests_on_keys(&mut connect(&server), &pairs) {
        let replies = [
            [connect(&server), connect(&server)],
            [redis.connect(), redis.connect()],
        ]
        .map(|[mut one, mut other]| {
            other.send(b"flushall\r\nmset k 5 x 1\r\n");
            reply(&mut other);
            reply(&mut other);
            one.send(b"watch k x absent\r\n");
            reply(&mut one);
            other.send(format!("{change}\r\n").as_bytes());
            reply(&mut other);
            one.send(b"multi\r\nping\r\nexec\r\n");
            [(); 3].map(|()| reply(&mut one)).concat()
        });
        let [ours, theirs] = &replies;
        assert_eq!(show(ours), show(theirs), "{change}");
        changes += usize::from(ours.ends_with(b"*-1\r\n"));
    }
    assert!(changes > 20, "{changes} changes");
}

fn a_read_of_memcached_changes_a_watched_key_if_it_writes(engine: Engine) {
    let server = start(engine, &[]);
    let (mut one, mut text) = (connect(&server), server.connect());
    for (before, change, fails) in META_GETS {
        text.send(before.as_bytes());
        text.line();
        one.ask("watch k\r\n", OK);
        text.send(change.as_bytes());
        if text.line().starts_with("VA ") {
            text.line();
        }
        let expected = if *fails { "*-1\r\n" } else { "*1\r\n+PONG\r\n" };
        one.ask(
            "multi\r\nping\r\nexec\r\n",
            format!("{OK}{QUEUED}{expected}"),
        );
    }
}

/// `EXEC`, `DISCARD`, `UNWATCH`, `RESET` and the end of a connection end watches.
fn watches_end(engine: Engine) {
    let server = start(engine, &[]);
    let (mut one, mut other) = (connect(&server), connect(&server));
    for (end, reply) in [
        ("multi\r\nexec", "+OK\r\n*0\r\n"),
        ("multi\r\ndiscard", "+OK\r\n+OK\r\n"),
        ("unwatch", OK),
        ("reset", "+RESET\r\n"),
    ] {
        one.ask(format!("watch k l\r\n{end}\r\n"), format!("{OK}{reply}"));
        other.ask("set k 1\r\n", OK);
        one.ask(
            "multi\r\nping\r\nexec\r\n",
            "+OK\r\n+QUEUED\r\n*1\r\n+PONG\r\n",
        );
    }
    // A failed EXEC ends them as well.
    one.ask("watch k\r\n", OK);
    other.ask("set k 1\r\n", OK);
    one.ask(
        "multi\r\nexec\r\nmulti\r\nexec\r\n",
        "+OK\r\n*-1\r\n+OK\r\n*0\r\n",
    );
    for request in ["quit", "watch k"] {
        let mut client = connect(&server);
        client.ask(format!("watch k\r\n{request}\r\n"), "+OK\r\n+OK\r\n");
    }
    other.ask("set k 1\r\nget k\r\n", "+OK\r\n$1\r\n1\r\n");
}

/// Sets `n` to one more than it is, unless it changes meanwhile. Returns whether it was set.
fn increment_if_unchanged(client: &mut Client) -> bool {
    client.ask("watch n\r\n", OK);
    client.send(b"get n\r\n");
    client.line();
    let n: u64 = client.line().parse().unwrap();
    client.ask(
        format!("multi\r\nset n {}\r\n", n + 1),
        [OK, QUEUED].concat(),
    );
    client.send(b"exec\r\n");
    match client.line().as_str() {
        "*-1" => false,
        "*1" => {
            client.expect(OK);
            true
        }
        other => panic!("{other}"),
    }
}

fn no_increment_is_lost_beside_other_writers(engine: Engine) {
    const ROUNDS: usize = 50;
    let (server, mut client) = start_and_connect(engine, &[]);
    client.ask("set n 0\r\n", OK);
    let (resp, text) = (server.resp_address(), server.address());
    let watcher = || {
        let mut client = Client::connect(resp);
        (0..ROUNDS)
            .filter(|_| increment_if_unchanged(&mut client))
            .count()
    };
    let count: usize = std::thread::scope(|scope| {
        let watchers = [(); 2].map(|()| scope.spawn(watcher));
        let mut text = Client::connect(text);
        for _ in 0..ROUNDS {
            for (client, request) in [(&mut client, "incr n\r\n"), (&mut text, "incr n 1\r\n")] {
                client.send(request.as_bytes());
                client.line();
            }
        }
        let counts = watchers.map(|watcher| watcher.join().unwrap());
        counts.into_iter().sum::<usize>() + 2 * ROUNDS
    });
    let n = count.to_string();
    client.ask("get n\r\n", format!("${}\r\n{n}\r\n", n.len()));
}

/// `SET key` with a value of this many bytes.
fn set(key: &str, len: usize) -> Vec<u8> {
    request(&["SET", key, &"x".repeat(len)])
}

fn an_exec_fails_if_a_watched_key_was_evicted(engine: Engine) {
    const MOST: usize = 10_000;
    const LEN: usize = 10_000;
    let server = start(engine, &["-m", "8"]);
    let (mut one, mut other) = (connect(&server), connect(&server));
    other.ask(set("k", LEN), OK);
    one.ask("watch k\r\n", OK);
    // Items of its size and by its client, which share its memory in every engine.
    let is_evicted = (0..MOST).any(|i| {
        other.ask(set(&format!("other{i}"), LEN), OK);
        other.send(b"exists k\r\n");
        other.line() == ":0"
    });
    assert!(is_evicted);
    one.ask("multi\r\nping\r\nexec\r\n", format!("{OK}{QUEUED}*-1\r\n"));
}

/// A write that fails is no change of a key that is watched, either.
fn a_transaction_without_memory_changes_nothing_but_goes_on(engine: Engine) {
    const LEN: usize = 100_000;
    let server = start(engine, &["-M", "-m", "8"]);
    let (mut one, mut other) = (connect(&server), connect(&server));
    one.ask("set k kept\r\nwatch k\r\n", "+OK\r\n+OK\r\n");
    let out_of_memory = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    let mut stored = 0;
    loop {
        other.send(&set(&format!("other{stored}"), LEN));
        match other.line().as_str() {
            "+OK" => stored += 1,
            line => {
                assert_eq!(line, out_of_memory.trim_end());
                break;
            }
        }
    }
    assert!(stored > 10, "{stored}");
    other.ask(set("k", LEN), out_of_memory);
    one.ask("multi\r\n", OK);
    one.ask(set("k", LEN), QUEUED);
    one.ask("get k\r\nstrlen other0\r\n", QUEUED.repeat(2));
    one.ask(
        "exec\r\n",
        format!("*3\r\n{out_of_memory}$4\r\nkept\r\n:{LEN}\r\n"),
    );
    (0..stored).for_each(|i| other.ask(format!("del other{i}\r\n"), ":1\r\n"));
    wait_until("memory is free", || {
        other.send(&set("k", LEN));
        other.line() == "+OK"
    });
}

/// No transaction sees one of two keys that it has set flushed and the other not.
fn a_flush_happens_before_or_after_a_transaction(engine: Engine) {
    const ROUNDS: usize = 60;
    let server = start(engine, &[]);
    let (resp, text) = (server.resp_address(), server.address());
    let transaction = |client: &mut Client, requests: &str| {
        client.ask(
            format!("multi\r\n{requests}"),
            [OK, QUEUED, QUEUED].concat(),
        );
        client.send(b"exec\r\n");
        reply(client)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = Client::connect(text);
            (0..ROUNDS).for_each(|_| client.ask("flush_all\r\n", "OK\r\n"));
        });
        scope.spawn(|| {
            let mut client = Client::connect(resp);
            for i in 0..ROUNDS {
                let seen = transaction(&mut client, &format!("set a {i}\r\nset b {i}\r\n"));
                assert_eq!(seen, b"*2\r\n+OK\r\n+OK\r\n");
            }
        });
        let mut client = Client::connect(resp);
        for _ in 0..ROUNDS {
            let seen = transaction(&mut client, "get a\r\nget b\r\n");
            let values = seen.strip_prefix(b"*2\r\n").unwrap();
            let (a, b) = values.split_at(values.len() / 2);
            assert_eq!(show(a), show(b));
        }
    });
}

fn a_rename_keeps_flags_and_a_command_that_fails_changes_nothing(engine: Engine) {
    let (server, mut client) = start_and_connect(engine, &[]);
    client.ask("set b 2\r\n", OK);
    // Client flags of memcached belong to the item.
    let mut text = server.connect();
    text.ask("set t 7 0 1\r\n1\r\n", "STORED\r\n");
    client.ask("rename t u\r\n", OK);
    text.ask("get t u\r\n", "VALUE u 7 1\r\n1\r\nEND\r\n");
    // A command that fails changes nothing.
    let long = "k".repeat(65_537);
    let too_large = "-ERR key or value exceeds the maximum size of an item\r\n";
    let largest = "x".repeat(1_048_516);
    let larger = format!("{largest}x");
    for words in [
        &["mset", "a", "9", "b", &larger][..],
        &["msetnx", "a", "9", "h", &larger],
        &["mset", "a", "9", &long, "1"],
        &["msetnx", "a", "9", &long, "1"],
        &["rename", "u", &long],
    ] {
        client.ask(request(words), too_large);
    }
    client.ask("exists a u\r\n", ":1\r\n");
    client.ask(request(&["mset", "a", "9", "b", &largest]), OK);
}

fn transactions_are_bounded(engine: Engine) {
    let (server, mut client) = start_and_connect(engine, &["-I", "1m"]);
    let too_long = "-ERR the transaction exceeds the maximum length\r\n";
    // Two MiB fit, as much as one request may have.
    let half = set("k", 1 << 19);
    client.ask("multi\r\n", OK);
    (0..3).for_each(|_| client.ask(&half, QUEUED));
    client.ask(&half, too_long);
    client.ask(&half, QUEUED); // it is not kept
    client.ask("exec\r\nexists k\r\n", format!("{ABORTED}:0\r\n"));
    // Keys that are watched.
    let many = |count: usize| -> String { (0..count).map(|i| format!(" {i}")).collect() };
    client.ask(format!("watch{}\r\n", many(1024)), OK);
    client.ask("watch x\r\n", "-ERR too many watched keys\r\n");
    client.ask("watch 5 7 5\r\n", OK); // they are watched already
    client.ask("unwatch\r\nwatch x\r\nunwatch\r\n", "+OK\r\n+OK\r\n+OK\r\n");
    // Replies: 100 of 1,000,000 bytes.
    client.ask(set("k", 1_000_000), OK);
    let mut transaction = "get k\r\n".repeat(100);
    transaction.push_str("set done 1\r\n");
    client.ask("multi\r\n", OK);
    client.ask(&transaction, QUEUED.repeat(101));
    client.send(b"exec\r\n");
    client.expect_end();
    // It was executed.
    connect(&server).ask("get done\r\n", "$1\r\n1\r\n");
}

fn watches_count_as_memory_of_their_connections(engine: Engine) {
    const CLIENTS: u64 = 8;
    let server = start(engine, &[]);
    let held = || server.connect().stat("read_buf_bytes");
    let before = held();
    let clients: Vec<Client> = (0..CLIENTS)
        .map(|client| {
            let keys: String = (0..1024).map(|key| format!(" {client}-{key}")).collect();
            let mut one = connect(&server);
            one.ask(format!("watch{keys}\r\n"), OK);
            one
        })
        .collect();
    // An entry here and one in the stripe, at least 56 bytes, and the key with its counts.
    wait_until("they are counted", || {
        held() > before + CLIENTS * 1024 * (56 + 16 + 3)
    });
    drop(clients);
    wait_until("they have gone", || held() <= before);
}

fn watches_are_refused_without_memory(engine: Engine) {
    const LEN: usize = 65_000;
    // More keys than connections may have memory for.
    const KEYS: usize = (8 << 20) / LEN;
    let (_server, mut client) = start_and_connect(engine, &["-m", "16"]);
    let mut watch = |i: usize| {
        client.send(&request(&["WATCH", &format!("{i:0LEN$}")]));
        client.line()
    };
    let refusal = (0..KEYS).map(&mut watch).find(|line| line != "+OK");
    let expected = "-OOM command not allowed when used memory > 'maxmemory'.";
    assert_eq!(refusal.as_deref(), Some(expected));
    assert_eq!(watch(0), "+OK"); // it is watched already
    client.ask("unwatch\r\nping\r\n", "+OK\r\n+PONG\r\n");
    client.ask("watch x\r\n", OK);
}

fn the_largest_transaction_is_executed(engine: Engine) {
    let (_server, mut client) = start_and_connect(engine, &[]);
    client.ask("multi\r\n", OK);
    let requests = 1 << 16;
    let mut thread_client = client.socket();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            use std::io::Write;
            thread_client
                .write_all("incr n\r\n".repeat(requests).as_bytes())
                .unwrap();
        });
        client.expect(QUEUED.repeat(requests));
    });
    client.ask(
        "ping\r\n",
        "-ERR the transaction exceeds the maximum length\r\n",
    );
    client.ask("exec\r\nmulti\r\n", format!("{ABORTED}{OK}"));
    client.ask("incr n\r\n".repeat(1_000), QUEUED.repeat(1_000));
    client.send(b"exec\r\n");
    client.expect("*1000\r\n");
    (1..=1_000).for_each(|n| client.expect(format!(":{n}\r\n")));
}

/// Reads one reply.
fn reply(client: &mut Client) -> Vec<u8> {
    read_reply(client).concat()
}

// ---- histories

const CONNECTIONS: u64 = 3;
const KEYS: usize = 3;
/// Operations of one connection in a history.
const OPERATIONS: u64 = 400;

type Random = Xoshiro256PlusPlus;
type Outcome = Option<Vec<SeveralOutcome<u64>>>;
type Recorded = History<(), SeveralOp<u64>, Outcome>;
type SeveralRecorder = Recorder<(), SeveralOp<u64>, Outcome>;

/// One connection to the listener for RESP and one to that of memcached.
struct Connection {
    client: Client,
    text: Client,
    random: Random,
    /// Distinguishes the keys of histories.
    history: u64,
}

impl Connection {
    fn key(&self, key: usize) -> String {
        format!("history{}-{key}", self.history)
    }

    /// The request for a step.
    fn request(&self, step: &SeveralStep<u64>) -> String {
        match step {
            SeveralStep::Get(key) => format!("get {}\r\n", self.key(*key)),
            SeveralStep::Set(key, value) => format!("set {} {value}\r\n", self.key(*key)),
            SeveralStep::Remove(key) => format!("del {}\r\n", self.key(*key)),
            SeveralStep::Move(from, to) => {
                format!("rename {} {}\r\n", self.key(*from), self.key(*to))
            }
        }
    }

    /// Reads the reply to a step.
    fn outcome(&mut self) -> SeveralOutcome<u64> {
        let reply = String::from_utf8(reply(&mut self.client)).unwrap();
        match reply.trim_end() {
            "+OK" => SeveralOutcome::Written,
            "$-1" => SeveralOutcome::Value(None),
            ":0" | "-ERR no such key" => SeveralOutcome::Was(false),
            ":1" => SeveralOutcome::Was(true),
            value => {
                let (_, value) = value.split_once("\r\n").expect(value);
                SeveralOutcome::Value(Some(value.parse().unwrap()))
            }
        }
    }

    /// The outcome of a step as the model has it: `RENAME` answers `OK` if there was a value.
    fn outcome_of(&mut self, step: &SeveralStep<u64>) -> SeveralOutcome<u64> {
        match (step, self.outcome()) {
            (SeveralStep::Move(..), SeveralOutcome::Written) => SeveralOutcome::Was(true),
            (_, outcome) => outcome,
        }
    }

    /// One operation that is no transaction.
    fn single(&mut self, step: &SeveralStep<u64>) -> Outcome {
        let request = self.request(step);
        self.client.send(request.as_bytes());
        Some(vec![self.outcome_of(step)])
    }

    /// The same in the protocol of memcached.
    fn single_of_memcached(&mut self, step: &SeveralStep<u64>) -> Outcome {
        let outcome = match step {
            SeveralStep::Get(key) => {
                self.text
                    .send(format!("get {}\r\n", self.key(*key)).as_bytes());
                let value = (self.text.line() != "END").then(|| {
                    let value = self.text.line().parse().unwrap();
                    self.text.expect("END\r\n");
                    value
                });
                SeveralOutcome::Value(value)
            }
            SeveralStep::Set(key, value) => {
                let value = value.to_string();
                let request = format!("set {} 0 0 {}\r\n{value}\r\n", self.key(*key), value.len());
                self.text.ask(request, "STORED\r\n");
                SeveralOutcome::Written
            }
            SeveralStep::Remove(key) => {
                self.text
                    .send(format!("delete {}\r\n", self.key(*key)).as_bytes());
                SeveralOutcome::Was(self.text.line() == "DELETED")
            }
            SeveralStep::Move(..) => return self.single(step),
        };
        Some(vec![outcome])
    }

    fn mset(&mut self, steps: &[SeveralStep<u64>]) -> Outcome {
        let mut request = "mset".to_owned();
        for step in steps {
            let SeveralStep::Set(key, value) = step else {
                panic!("{step:?} in MSET");
            };
            request += &format!(" {} {value}", self.key(*key));
        }
        self.client.ask(request + "\r\n", OK);
        Some(vec![SeveralOutcome::Written; steps.len()])
    }

    /// `MULTI`, the steps, `EXEC`.
    fn transaction(&mut self, steps: &[SeveralStep<u64>]) -> Outcome {
        let requests: String = steps.iter().map(|step| self.request(step)).collect();
        let queued = QUEUED.repeat(steps.len());
        self.client
            .ask(format!("multi\r\n{requests}"), OK.to_owned() + &queued);
        self.client.send(b"exec\r\n");
        let head = self.client.line();
        if head == "*-1" {
            return None;
        }
        assert_eq!(head, format!("*{}", steps.len()));
        Some(steps.iter().map(|step| self.outcome_of(step)).collect())
    }

    /// Some steps on different keys.
    fn steps(&mut self, unique: u64) -> Vec<SeveralStep<u64>> {
        let count = self.random.random_range(2..=3);
        let draw = |i: u64| {
            let key = self.random.random_range(0..KEYS);
            match self.random.random_range(0..6) {
                0..2 => SeveralStep::Get(key),
                2..4 => SeveralStep::Set(key, unique + i),
                4 => SeveralStep::Remove(key),
                _ => SeveralStep::Move(key, (key + 1) % KEYS),
            }
        };
        (0..count).map(draw).collect()
    }

    /// Performs and records an operation, or some. `unique` and the nine numbers after it are
    /// values that nobody else writes.
    fn perform(&mut self, recorder: &mut SeveralRecorder, unique: u64) {
        let key = self.random.random_range(0..KEYS);
        match self.random.random_range(0..10) {
            0..3 => {
                let get = SeveralStep::Get(key);
                recorder.record((), SeveralOp::of([get.clone()]), || self.single(&get));
            }
            3..5 => {
                let step = match self.random.random_range(0..4) {
                    0 => SeveralStep::Get(key),
                    1 => SeveralStep::Remove(key),
                    _ => SeveralStep::Set(key, unique),
                };
                let op = SeveralOp::of([step.clone()]);
                recorder.record((), op, || self.single_of_memcached(&step));
            }
            5 => {
                let step = SeveralStep::Move(key, (key + 1) % KEYS);
                recorder.record((), SeveralOp::of([step.clone()]), || self.single(&step));
            }
            6..8 => {
                let set = |i| SeveralStep::Set((key + i) % KEYS, unique + i as u64);
                let steps = [set(0), set(1)];
                recorder.record((), SeveralOp::of(steps.clone()), || self.mset(&steps));
            }
            8 => {
                let steps = self.steps(unique);
                let op = SeveralOp::of(steps.clone());
                recorder.record((), op, || self.transaction(&steps));
            }
            _ => self.compare_and_set(recorder, key, unique),
        }
    }

    /// `WATCH` and `GET`, recorded as one read, and then a transaction that sees the same value.
    fn compare_and_set(&mut self, recorder: &mut SeveralRecorder, key: usize, unique: u64) {
        let get = SeveralStep::Get(key);
        let seen = recorder.record((), SeveralOp::of([get.clone()]), || {
            self.client.ask(format!("watch {}\r\n", self.key(key)), OK);
            self.single(&get)
        });
        let Some([SeveralOutcome::Value(seen)]) = seen.as_deref() else {
            panic!("{seen:?} for a value");
        };
        let op = SeveralOp {
            only_if: vec![(key, *seen)],
            steps: vec![get, SeveralStep::Set(key, unique)],
        };
        let steps = op.steps.clone();
        recorder.record((), op, || self.transaction(&steps));
    }
}

/// Records a history of all connections.
fn record(server: &TestServer, seed: u64) -> Recorded {
    let recording = Recording::new();
    let start = Barrier::new(CONNECTIONS as usize);
    let addresses: (SocketAddr, SocketAddr) = (server.resp_address(), server.address());
    std::thread::scope(|scope| {
        for number in 0..CONNECTIONS {
            let mut recorder = recording.recorder(OPERATIONS as usize);
            let mut connection = Connection {
                client: Client::connect(addresses.0),
                text: Client::connect(addresses.1),
                random: Random::seed_from_u64(seed << 8 | number),
                history: seed,
            };
            let start = &start;
            scope.spawn(move || {
                start.wait();
                for i in 0..OPERATIONS {
                    let unique = (i * CONNECTIONS + number + 1) * 10;
                    connection.perform(&mut recorder, unique);
                }
            });
        }
    });
    recording.finish().unwrap()
}

/// At most three operations are open at once, and values are written once, so the checker visits
/// few configurations and always decides.
fn histories_with_transactions_are_linearizable(engine: Engine) {
    let server = start(engine, &[]);
    let mut concurrent = 0;
    for seed in 0..3 {
        let verdict = record(&server, seed).check(&Several::new(KEYS));
        println!("seed {seed}: {verdict}");
        concurrent += verdict.assert_linearizable().concurrent;
    }
    assert!(concurrent > 0, "no operation overlapped another");
}

/// The check that the histories pass would find an `MSET` that is no transaction: here a client
/// sends one as two commands, and another reads in between.
fn a_torn_mset_is_found_out(engine: Engine) {
    let server = start(engine, &[]);
    for is_torn in [false, true] {
        let connection = |number| Connection {
            client: connect(&server),
            text: server.connect(),
            random: Random::seed_from_u64(number),
            history: u64::from(is_torn),
        };
        let (mut one, mut other) = (connection(0), connection(1));
        let recording = Recording::new();
        let (mut writes, mut reads) = (recording.recorder(1), recording.recorder(2));
        let steps = [SeveralStep::Set(0, 1), SeveralStep::Set(1, 1)];
        writes.record((), SeveralOp::of(steps.clone()), || {
            if is_torn {
                one.single(&steps[0]);
            } else {
                one.mset(&steps);
            }
            for key in 0..2 {
                let get = SeveralStep::Get(key);
                reads.record((), SeveralOp::of([get.clone()]), || other.single(&get));
            }
            if is_torn {
                one.single(&steps[1]);
            }
            Some(vec![SeveralOutcome::Written; 2])
        });
        drop((writes, reads));
        let verdict = recording.finish().unwrap().check(&Several::new(2));
        assert_eq!(verdict.clone().violation().is_some(), is_torn, "{verdict}");
    }
}

// ---- conversations

#[rustfmt::skip]
const OTHERS: &[&str] = &[
    "flushall", "ping", "nonsense", "select 1x", "select 1", "select 0", "flushdb", "move a 1",
    "object encoding", "client setname", "config foo", "memory usage", "command count x",
];

/// Requests of two clients that interfere, and the names of the commands on one key.
struct Requests(Random, Vec<String>);

impl Requests {
    fn pick(&mut self, from: &[&'static str]) -> &'static str {
        from.choose(&mut self.0).unwrap()
    }

    fn key(&mut self) -> &'static str {
        self.pick(&["a", "b", "c"])
    }

    fn value(&mut self) -> &'static str {
        self.pick(&["1", "2", "x", "''"])
    }

    fn keys(&mut self) -> String {
        let count = self.0.random_range(1..4);
        (0..count).map(|_| format!(" {}", self.key())).collect()
    }

    fn pairs(&mut self) -> String {
        let count = self.0.random_range(1..4);
        (0..count)
            .map(|_| format!(" {} {}", self.key(), self.value()))
            .collect()
    }

    fn next(&mut self) -> String {
        let (key, other, value) = (self.key(), self.key(), self.value());
        let mut line = match self.0.random_range(0..32) {
            0..4 => "multi".to_owned(),
            4..8 => "exec".to_owned(),
            8..11 => format!("watch{}", self.keys()),
            11 => self
                .pick(&["unwatch", "discard", "discard", "reset"])
                .to_owned(),
            12 => self.pick(OTHERS).to_owned(),
            13 => format!("mset{}", self.pairs()),
            14 => format!("msetnx{}", self.pairs()),
            15 => format!("rename {key} {other}"),
            16 => format!("renamenx {key} {other}"),
            17 => {
                let options =
                    self.pick(&["", " replace", " db 0", " db 1", " db 16", " db x", " foo"]);
                format!("copy {key} {other}{options}")
            }
            18 => {
                let options = self.pick(&[" nx", " xx", " get", " px 100000", " ex 0"]);
                format!("set {key} {value}{options}")
            }
            19..22 => format!("set {key} {value}"),
            22 => {
                let name = self.1.choose(&mut self.0).expect("commands");
                format!("{name} {key}")
            }
            23 => format!(
                "{} {key} {value}",
                self.pick(&["append", "getset", "setnx"])
            ),
            24 => format!(
                "{} {key} {}",
                self.pick(&["pexpire", "getex"]),
                self.pick(&[
                    "100000",
                    "100000 xx",
                    "-1",
                    "x",
                    "px 100000",
                    "px x",
                    "persist"
                ])
            ),
            25 => format!(
                "{}{}",
                self.pick(&["del", "unlink", "exists", "touch"]),
                self.keys()
            ),
            26..28 => format!("mget{}", self.keys()),
            _ => format!("get {key}"),
        };
        if self.0.random_bool(0.03) {
            line += " more";
        }
        line
    }
}

/// Whether two elements are times of deadlines 100 seconds ahead, in seconds or milliseconds, which
/// two servers do not tell at the same moment.
fn are_times(ours: &[u8], theirs: &[u8]) -> bool {
    let number = |element: &[u8]| -> Option<i64> {
        let text = std::str::from_utf8(element).ok()?;
        text.strip_prefix(':')?.trim_end().parse().ok()
    };
    let (Some(ours), Some(theirs)) = (number(ours), number(theirs)) else {
        return false;
    };
    let least = ours.min(theirs);
    let most_apart = match least {
        ..50 => 0,
        50..10_000 => 50,
        _ => 90_000,
    };
    ours.abs_diff(theirs) <= most_apart
}

fn conversations_of_two_connections_agree_with_redis(engine: Engine) {
    let server = start(engine, &[]);
    let Some(redis) = Redis::start() else {
        return skip("redis-server is not installed");
    };
    // Another seed makes other conversations.
    let seed = engine.seed(13);
    let of_one_key = commands_on_one_key(&mut connect(&server));
    let mut requests = Requests(Random::seed_from_u64(seed), of_one_key);
    let rounds = if is_short() { 5 } else { 15 };
    let mut observers = [connect(&server), redis.connect()];
    for round in 0..rounds {
        let mut ours = [connect(&server), connect(&server)];
        let mut theirs = [redis.connect(), redis.connect()];
        for client in [&mut ours[0], &mut theirs[0]] {
            client.ask("flushall\r\n", OK);
            if round % 3 == 0 {
                client.send(b"hello 3\r\n");
                reply(client);
            }
        }
        let mut said = Vec::new();
        for _ in 0..150 {
            let number = requests.0.random_range(0..2);
            let line = requests.next();
            said.push(format!("{number}: {line}"));
            let request = format!("{line}\r\n");
            ours[number].send(request.as_bytes());
            theirs[number].send(request.as_bytes());
            let our_reply = read_reply(&mut ours[number]);
            let their_reply = read_reply(&mut theirs[number]);
            let mut pairs = our_reply.iter().zip(&their_reply);
            assert!(
                our_reply.len() == their_reply.len()
                    && pairs.all(|(ours, theirs)| ours == theirs || are_times(ours, theirs)),
                "{} instead of {} at the end of\n{}",
                show(&our_reply.concat()),
                show(&their_reply.concat()),
                said[said.len().saturating_sub(60)..].join("\n")
            );
            let [ours, theirs] = observers.each_mut().map(hits_and_misses);
            assert_eq!(ours, theirs, "hits and misses after {line}");
        }
    }
}
