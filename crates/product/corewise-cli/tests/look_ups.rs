//! Which commands count as hits and misses of the keyspace, alone and in transactions: as in Redis.

use crate::common;

use common::resp::{
    commands, connect, hits_and_misses, requests_on_keys, start, start_and_connect,
};
use common::{Client, Engine, Redis, skip};

for_all_engines_at_once! {
    ; of corewise:
    every_command_counts_the_same_alone_and_in_a_transaction
    look_ups_count_as_in_redis
    look_ups_of_an_unfinished_transaction_are_counted
    a_scan_for_a_type_looks_up_the_keys
}

/// What is stored before each line: the key `e` has expired.
const PRESENT: &str =
    "flushall\r\nset a hello\r\nset b help\r\nset n 12\r\nset e v pxat 1\r\nzadd z 1 m 2 n\r\n";

/// Keys that are present, absent, have expired, or have a number.
const PAIRS: &[[&str; 2]] = &[
    ["a", "x"],
    ["x", "a"],
    ["a", "a"],
    ["e", "b"],
    ["n", "b"],
    ["x", "y"],
];

/// What is tested beside the shortest requests of all commands with keys. Each line is a sequence
/// of requests; those in parentheses cannot be part of a transaction.
#[rustfmt::skip]
const LINES: &[&str] = &[
    "get", "mget a x a e b", "exists a x a e", "touch a x a", "getrange a 0 1", "getrange x 0 1",
    "getrange a x 1", "substr a -2 -1", "substr x 0 0", "getex a ex 10", "getex x ex 10",
    "getex e px 10000", "getex a persist", "getex x persist", "getex a exat 4102444800",
    "getex x exat 4102444800", "getex a pxat 1", "getex a ex 0", "getex x ex 0", "getex a foo",
    "getex x foo", "set a v", "set x v", "set a v get", "set x v get", "set e v get",
    "set a v nx get", "set x v nx get", "set a v xx get", "set x v xx get", "set a v nx",
    "set x v xx", "set a v keepttl", "set a v keepttl get", "set a v get ex 10", "set a v get ex 0",
    "set a v get exat 4102444800", "set x v get pxat 1", "set a v get foo", "setex a 10 v",
    "setex x 0 v", "psetex a 10000 v", "incrby n 5", "incrby n x", "decrby n 5",
    "incrbyfloat n 1.5", "setrange a 1 z", "setrange x 1 z", "setrange a -1 z", "setrange x 9000 z",
    "mset a 1 x 2", "msetnx x 1 y 2", "msetnx a 1 x 2", "expire a 10", "expire x 10",
    "expire a 10 foo", "expire a 10 xx", "pexpire a 10000", "pexpire a -1", "expireat a 4102444800",
    "pexpireat x 4102444800000", "del a x", "copy a b", "copy a b replace", "copy a x foo",
    "renamenx a b", "lcs a b", "lcs a b len", "lcs a x foo", "lcs a b idx minmatchlen x",
    "object encoding a", "object encoding x", "object refcount a", "object idletime x",
    "object freq a", "object freq x", "object foo a", "object encoding", "memory usage a",
    "memory usage x", "bitcount a 0", "bitcount x 0", "bitcount a 0 1", "bitcount a 0 1 foo",
    "bitpos a 2", "bitpos a 1 x", "getbit a -1", "bitfield a get u8 0",
    "bitfield x get u8 0 get u8 8", "bitfield a get u8 0 set u8 8 1", "bitfield a foo",
    "bitfield_ro a get u8 0", "bitfield_ro x get u8 0", "bitfield_ro a set u8 0 1",
    "bitop and x a y b", "bitop or a a a", "bitop not x a", "bitop not x a b", "bitop foo x a",
    "get e\r\nscan 0 count 1000", "scan 0 count 1000 match [ab]", "keys *", "keys a", "randomkey",
    "dbsize", "flushdb\r\nget a", "flushall\r\nget a", "time", "info", "config get maxmemory",
    "command count", "client id", "select 0", "echo x", "ping", "acl whoami", "cluster info",
    "lastsave", "latency latest", "module list", "publish a 1", "spublish a 1", "pubsub channels",
    "unsubscribe", "punsubscribe a", "sunsubscribe a", "readonly", "readwrite", "role",
    "slowlog len", "wait 0 0", "eval \"return redis.call('mget',KEYS[1],KEYS[2])\" 2 a x",
    "eval_ro \"return redis.call('strlen',KEYS[1])\" 1 a", "evalsha x 1 a", "evalsha_ro x 1 a",
    "script exists x",
    "zadd z 1 m", "zadd x 1 m", "zadd a 1 m", "zcard z", "zcard x", "zcard a", "zcount z 1 2", "zcount x 1 2",
    "zincrby z 1 m", "zincrby x 1 m", "zlexcount z - +", "zmscore z m x", "zmscore x m", "zpopmax z",
    "zpopmin x", "zpopmin z 0", "zrandmember z", "zrandmember x", "zrandmember x 5", "zrandmember z 0",
    "zrange z 0 -1", "zrange x 0 -1", "zrange a 0 -1", "zrange z 0 x", "zrangebylex z - +",
    "zrangebyscore z 1 2", "zrank z m", "zrank z x", "zrank x m", "zrem z m", "zrem x m",
    "zremrangebylex z - +", "zremrangebyrank z 0 0", "zremrangebyscore z 1 1", "zrevrange z 0 -1",
    "zrevrangebylex z + -", "zrevrangebyscore z 2 1", "zrevrank z m", "zscan z 0", "zscan x 0",
    "zscan z 0 count x", "zscan a 0", "zscore z m", "zscore z x", "zscore x m", "get z", "type z",
    "copy z x", "rename z x", "memory usage z", "object encoding z",
    "zunion 2 z x", "zunion 2 x z withscores", "zunion 3 z a x", "zunion 2 z e foo", "zunion x z",
    "zinter 2 z x", "zinter 2 x z", "zinter 2 z z weights 1 x", "zdiff 2 z z", "zdiff 2 x z",
    "zintercard 2 z z limit 1", "zintercard 2 z x", "zunionstore x 2 z y", "zunionstore z 2 z z",
    "zunionstore a 1 z", "zinterstore x 2 z y", "zinterstore x 2 z a", "zdiffstore x 2 z y",
    "zdiffstore a 1 x", "zrangestore x z 0 -1", "zrangestore z x 0 -1", "zrangestore x a 0 -1",
    "zrangestore x z 0 x", "zmpop 1 z min", "zmpop 2 x z max count 5", "zmpop 2 x y min",
    "zmpop 2 a z min",
    "get a\r\nset a 1\r\nget x\r\ngetset x 1\r\nget x", "(watch a x\r\nunwatch)",
    "(multi\r\nget a\r\nget x\r\ndiscard)", "(multi\r\nget a\r\nget\r\nexec)",
    "(watch a\r\nset a 1\r\nmulti\r\nget a\r\nexec)",
];

/// Commands that have nothing to do with keys, and would end or change the connections.
const UNRELATED: [&str; 7] = [
    "auth",
    "hello",
    "psubscribe",
    "quit",
    "reset",
    "ssubscribe",
    "subscribe",
];

/// The lines, and the shortest requests of all commands with keys.
fn lines(client: &mut Client) -> Vec<String> {
    let lines = LINES.iter().map(|line| (*line).to_owned());
    lines.chain(requests_on_keys(client, PAIRS)).collect()
}

/// Executes requests, whatever their replies are.
fn execute(client: &mut Client, requests: &str) {
    client.send(format!("{requests}\r\necho over-and-out\r\n").as_bytes());
    client.read_until(b"$12\r\nover-and-out\r\n");
}

/// The hits and misses of requests.
fn hits_and_misses_of(client: &mut Client, requests: &str) -> [u64; 2] {
    execute(client, PRESENT);
    let before = hits_and_misses(client);
    execute(client, requests);
    let after = hits_and_misses(client);
    [after[0] - before[0], after[1] - before[1]]
}

/// What memcached's statistics count of requests: commands, hits and misses that are not 0. Not
/// whether a miss found an item that has expired or was flushed: it may be removed before.
fn counts_of(memcached: &mut Client, client: &mut Client, requests: &str) -> String {
    let mut stats = || -> Vec<(String, u64)> {
        let text = memcached.stats("");
        let stats = text
            .lines()
            .filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
        let counts = stats.filter(|(name, _)| {
            let (name, end) = name.split_once('_').unwrap_or((name, ""));
            matches!((name, end), ("cmd", _) | (_, "hits" | "misses"))
        });
        counts
            .map(|(name, count)| (name.into(), count.parse().expect("a number")))
            .collect()
    };
    execute(client, PRESENT);
    let before = stats();
    execute(client, requests);
    let changes = stats().into_iter().zip(before);
    let changes = changes.filter(|(after, before)| after != before);
    let changes = changes.map(|((name, after), (_, before))| format!("{name}:{}", after - before));
    changes.collect::<Vec<_>>().join(" ")
}

fn every_command_counts_the_same_alone_and_in_a_transaction(engine: Engine) {
    let server = start(engine, &[]);
    let (mut memcached, mut client) = (server.connect(), connect(&server));
    let mut lines = lines(&mut client);
    lines.retain(|line| !line.starts_with('('));
    for line in lines {
        let [alone, in_transaction] = [line.clone(), format!("multi\r\n{line}\r\nexec")]
            .map(|requests| counts_of(&mut memcached, &mut client, &requests));
        assert_eq!(alone, in_transaction, "{line:?}");
    }
    for (line, expected) in [
        ("get a", "cmd_get:1 get_hits:1"),
        ("get e", "cmd_get:1 get_misses:1"),
        ("set a v ex 10", "cmd_set:1"),
        ("set a v keepttl", "cmd_set:1"),
        ("set a v get", "cmd_get:1 cmd_set:1 get_hits:1"),
        ("getset x v", "cmd_get:1 cmd_set:1 get_misses:1"),
        ("getex a persist", "cmd_get:1 get_hits:1"),
        (
            "getex x ex 10",
            "cmd_get:1 cmd_touch:1 get_misses:1 touch_misses:1",
        ),
        ("expire a 10", "cmd_touch:1 touch_hits:1"),
        ("append a v", "cmd_set:1"),
        ("mset a 1 b 2", "cmd_set:2"),
        ("del a", "delete_hits:1"),
        ("del a x", "delete_misses:1 delete_hits:1"),
        ("lcs a b", "cmd_get:2 get_hits:2"),
        ("incr n", ""),
        ("persist a", ""),
    ] {
        assert_eq!(
            counts_of(&mut memcached, &mut client, line),
            expected,
            "{line:?}"
        );
    }
}

fn look_ups_count_as_in_redis(engine: Engine) {
    let server = start(engine, &[]);
    let Some(redis) = Redis::start() else {
        return skip("redis-server is not installed");
    };
    let mut clients = [connect(&server), redis.connect()];
    let lines = lines(&mut clients[0]);
    for line in &lines {
        let alone = line.trim_matches(['(', ')']).to_owned();
        let is_alone = alone != *line;
        let transaction = (!is_alone).then(|| format!("multi\r\n{line}\r\nexec"));
        for requests in std::iter::once(alone).chain(transaction) {
            let [ours, theirs] = clients
                .each_mut()
                .map(|client| hits_and_misses_of(client, &requests));
            assert_eq!(ours, theirs, "hits and misses of {requests:?}");
        }
    }
    for command in commands(&mut clients[0]) {
        let name = &*command.name;
        let is_tested = lines.iter().any(|line| {
            let requests = line.trim_matches(['(', ')']).split("\r\n");
            requests
                .filter_map(|request| request.split(' ').next())
                .any(|word| word == name)
        });
        assert!(
            is_tested || UNRELATED.contains(&name) || command.is_newer(),
            "{name}"
        );
    }
}

fn look_ups_of_an_unfinished_transaction_are_counted(engine: Engine) {
    let (_server, mut client) = start_and_connect(engine, &[]);
    execute(&mut client, "set a v\r\nget a\r\nget x");
    client.send(b"multi\r\nget a\r\ngetset x 1\r\nget a\r\ninfo stats\r\nexec\r\n");
    let text = client.read_until(b"keyspace_misses:2\r\n");
    let text = String::from_utf8(text).expect("text");
    assert!(text.contains("keyspace_hits:3\r\n"), "{text}");
}

fn a_scan_for_a_type_looks_up_the_keys(engine: Engine) {
    let server = start(engine, &[]);
    let Some(redis) = Redis::start() else {
        return skip("redis-server is not installed");
    };
    for options in [
        "",
        "type string",
        "type list",
        "type STRING match [abx]",
        "match [ab]",
    ] {
        let [ours, theirs] = [connect(&server), redis.connect()].map(|mut client| {
            execute(&mut client, PRESENT);
            execute(&mut client, "get e");
            let before = hits_and_misses(&mut client);
            let mut cursor = "0".to_owned();
            loop {
                client.send(format!("scan {cursor} count 1000 {options}\r\n").as_bytes());
                client.line();
                client.line();
                cursor = client.line();
                execute(&mut client, "ping");
                if cursor == "0" {
                    break;
                }
            }
            let after = hits_and_misses(&mut client);
            [after[0] - before[0], after[1] - before[1]]
        });
        assert_eq!(ours, theirs, "hits and misses of a scan {options}");
    }
}
