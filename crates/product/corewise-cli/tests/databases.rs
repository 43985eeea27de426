//! Databases of RESP: conversations in several of them whose replies are compared with those of
//! redis-server, and what memcached's protocols see.

use crate::common;

use common::resp::{connect, converse, read_element, read_reply, request, start};
use common::{Client, Engine, Redis, show, skip};
use corewise_testkit::random::is_short;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

for_every_engine! { of corewise:
    conversations_in_several_databases_agree_with_redis
    memcached_sees_database_0
    a_flush_of_a_database_leaves_the_others
    a_walk_over_keys_is_one_over_a_database
    there_are_as_many_databases_as_the_options_say
    a_watch_is_of_a_key_in_its_database
    a_script_needs_all_keys_for_other_databases
    the_longest_key_has_room_in_every_database
}

const OK: &str = "+OK\r\n";

/// Some begin with bytes that stored keys of other databases begin with.
const KEYS: [&[u8]; 7] = [b"a", b"b", b"\x01a", b"\0\x01a", b"\x01", b"\x0fa", b""];

type Random = Xoshiro256PlusPlus;
type Words = Vec<Vec<u8>>;

struct Requests(Random);

impl Requests {
    fn key(&mut self) -> &'static [u8] {
        KEYS.choose(&mut self.0).unwrap()
    }

    fn database(&mut self) -> &'static [u8] {
        // The last ones are none.
        let indexes: &[&[u8]] = &[b"0", b"0", b"1", b"1", b"2", b"15", b"16", b"-1", b"x"];
        indexes.choose(&mut self.0).unwrap()
    }

    /// A request: its words.
    fn next(&mut self) -> Words {
        let (key, other, database) = (self.key(), self.key(), self.database());
        let words: &[&[u8]] = match self.0.random_range(0..36) {
            0..5 => &[b"select", database],
            5..8 => &[b"move", key, database],
            8 => &[b"copy", key, other, b"db", database],
            9 => &[b"copy", key, other, b"db", database, b"replace"],
            10 => &[b"copy", key, other, b"db", b"1", b"db", database],
            11 => &[b"dbsize"],
            12 => &[b"keys", b"*"],
            13 => &[b"keys", b"a*"],
            14 => &[b"persist", key],
            15 => &[b"flushdb"],
            16 => &[b"multi"],
            17..19 => &[b"exec"],
            19 => &[b"watch", key],
            20..23 => &[b"set", key, b"1"],
            23 => &[b"zadd", key, b"1", b"x"],
            24 => &[b"incr", key],
            25 => &[b"mget", key, other],
            26 => &[b"mset", key, b"2", other, b"3"],
            27 => &[b"rename", key, other],
            28 => &[b"del", key, other],
            29 => &[b"type", key],
            30 => &[b"bitop", b"or", key, key, other],
            31 => &[
                b"eval",
                b"redis.call('select', ARGV[1]) return redis.call('incr', KEYS[1])",
                b"1",
                key,
                database,
            ],
            32 => &[b"expire", key, b"1000"],
            33 => &[b"reset"],
            34 => &[b"msetnx", key, b"4", other, b"5"],
            _ => &[b"get", key],
        };
        words.iter().map(|word| word.to_vec()).collect()
    }
}

/// The reply, with keys in order.
fn ask(client: &mut Client, words: &[Vec<u8>]) -> Vec<Vec<u8>> {
    client.send(&request(words));
    let mut reply = read_reply(client);
    if words[0] == b"keys" {
        reply[1..].sort();
    }
    reply
}

/// `INFO keyspace` without times, and the database that the client has selected.
fn view(client: &mut Client) -> Vec<String> {
    client.send(b"info keyspace\r\nclient info\r\n");
    let [keyspace, info] = [(); 2].map(|()| {
        let text = read_element(client);
        String::from_utf8_lossy(&text).into_owned()
    });
    let keyspace = keyspace.lines().skip(1);
    let mut view: Vec<String> = keyspace
        .map(|line| line.split(",avg_ttl").next().unwrap_or(line).to_owned())
        .collect();
    view.extend(
        info.split(' ')
            .find(|field| field.starts_with("db="))
            .map(str::to_owned),
    );
    view
}

fn conversations_in_several_databases_agree_with_redis(engine: Engine) {
    let server = start(engine, &["--script-keys", "all"]);
    let Some(redis) = Redis::start() else {
        return skip("redis-server is not installed");
    };
    // Another seed makes other conversations.
    let mut requests = Requests(Random::seed_from_u64(engine.seed(57)));
    let rounds = if is_short() { 4 } else { 12 };
    let (mut views, mut errors) = (0, 0);
    for _ in 0..rounds {
        let mut ours = [connect(&server), connect(&server)];
        let mut theirs = [redis.connect(), redis.connect()];
        ours[0].ask("flushall\r\n", OK);
        theirs[0].ask("flushall\r\n", OK);
        let mut said = Vec::new();
        let mut in_multi = [false; 2];
        for _ in 0..200 {
            let number = requests.0.random_range(0..2);
            let words = requests.next();
            said.push(format!("{number}: {}", show(&words.join(&b' '))));
            let ends = || said[said.len().saturating_sub(40)..].join("\n");
            let (our_reply, their_reply) = (
                ask(&mut ours[number], &words),
                ask(&mut theirs[number], &words),
            );
            let has_listed = in_multi[number] && words[0] == b"exec";
            // The order of the keys that `EXEC` lists is not that of Redis.
            if has_listed {
                let sorted = |reply: &[Vec<u8>]| {
                    let mut reply = reply.to_vec();
                    reply.sort();
                    reply
                };
                assert_eq!(
                    sorted(&our_reply),
                    sorted(&their_reply),
                    "at the end of\n{}",
                    ends()
                );
            } else {
                assert!(
                    our_reply == their_reply,
                    "{} instead of {} at the end of\n{}",
                    show(&our_reply.concat()),
                    show(&their_reply.concat()),
                    ends()
                );
            }
            errors += usize::from(our_reply[0].starts_with(b"-"));
            match words[0].as_slice() {
                b"multi" => in_multi[number] = true,
                b"exec" | b"reset" => in_multi[number] = false,
                _ => {}
            }
            if !in_multi[number] {
                let (ours, theirs) = (view(&mut ours[number]), view(&mut theirs[number]));
                assert_eq!(ours, theirs, "at the end of\n{}", ends());
                views += usize::from(ours.len() > 4);
            }
        }
    }
    assert!(views > 10, "several databases had keys {views} times");
    assert!(errors > 10, "{errors} requests failed");
}

fn memcached_sees_database_0(engine: Engine) {
    let server = start(engine, &[]);
    let (mut client, mut text) = (connect(&server), server.connect());
    converse(
        &mut client,
        &[(
            "select 1\r\nset a one\r\nset only 1\r\nselect 0\r\nset a zero",
            &OK.repeat(5),
        )],
    );
    // In base64, a key that is the stored one of `a` in database 1.
    client.ask(request(&[&b"set"[..], b"\x01a", b"odd"]), OK);
    text.ask("get a only\r\n", "VALUE a 0 4\r\nzero\r\nEND\r\n");
    text.ask("mg AWE= b v k\r\n", "VA 3 kAWE= b\r\nodd\r\n");
    text.ask("md AWE= b\r\n", "HD\r\n");
    text.ask("ms AW9ubHk= 1 b\r\nx\r\n", "HD\r\n"); // \x01only
    text.send(b"lru_crawler mgdump all\r\n");
    let mut lines: Vec<String> = std::iter::from_fn(|| {
        let line = text.line();
        (!line.starts_with("EN")).then_some(line)
    })
    .collect();
    lines.sort();
    assert_eq!(lines.len(), 2, "{lines:?}");
    converse(
        &mut client,
        &[(
            "dbsize\r\nselect 1\r\ndbsize\r\nget a\r\nget only",
            ":2\r\n+OK\r\n:2\r\n$3\r\none\r\n$1\r\n1\r\n",
        )],
    );
    text.ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    client.ask("get a\r\n", "$3\r\none\r\n");
    text.ask("flush_all\r\n", "OK\r\n");
    client.ask("dbsize\r\n", ":0\r\n");
}

fn a_flush_of_a_database_leaves_the_others(engine: Engine) {
    let server = start(engine, &[]);
    let mut client = connect(&server);
    let many = if is_short() { 500 } else { 4_000 };
    for database in [0, 1, 2] {
        let mut requests = format!("select {database}\r\n");
        for number in 0..many {
            requests += &format!("set k{number} {database}\r\n");
        }
        client.ask(requests, OK.repeat(1 + many));
    }
    let sizes = |client: &mut Client, expected: [usize; 3]| {
        for (database, size) in expected.into_iter().enumerate() {
            client.ask(
                format!("select {database}\r\ndbsize\r\n"),
                format!("+OK\r\n:{size}\r\n"),
            );
        }
    };
    sizes(&mut client, [many; 3]);
    client.ask("select 1\r\nflushdb\r\nflushdb\r\n", OK.repeat(3));
    sizes(&mut client, [many, 0, many]);
    client.ask("select 0\r\nflushdb\r\nget k1\r\n", "+OK\r\n+OK\r\n$-1\r\n");
    sizes(&mut client, [0, 0, many]);
    // A flush of one database is no reason to leave out one of all.
    client.ask("select 1\r\nflushdb\r\nflushall\r\n", OK.repeat(3));
    sizes(&mut client, [0; 3]);
    converse(
        &mut client,
        &[
            ("select 3\r\nset a 1\r\nselect 0\r\nset b 1", &OK.repeat(4)),
            (
                "multi\r\nflushdb\r\nselect 3\r\nget a\r\nflushdb\r\ndbsize\r\nexec",
                &format!(
                    "+OK\r\n{}*5\r\n+OK\r\n+OK\r\n$1\r\n1\r\n+OK\r\n:0\r\n",
                    "+QUEUED\r\n".repeat(5)
                ),
            ),
            (
                "randomkey\r\nselect 0\r\nrandomkey",
                "$-1\r\n+OK\r\n$-1\r\n",
            ),
        ],
    );
}

fn a_walk_over_keys_is_one_over_a_database(engine: Engine) {
    let server = start(engine, &[]);
    let mut client = connect(&server);
    let mut requests = String::new();
    for number in 0..3_000 {
        requests += &format!("set k{number} 0\r\n");
    }
    client.ask(requests, OK.repeat(3_000));
    client.ask("select 4\r\nmset one 1 two 2\r\n", OK.repeat(2));
    let bulk = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        text.lines().nth(1).unwrap().to_owned()
    };
    let (mut cursor, mut keys) = (String::from("0"), Vec::new());
    loop {
        client.send(format!("scan {cursor}\r\n").as_bytes());
        let reply = read_reply(&mut client);
        cursor = bulk(&reply[1]);
        keys.extend(reply[3..].iter().map(|key| bulk(key)));
        if cursor == "0" {
            break;
        }
    }
    keys.sort();
    keys.dedup();
    assert_eq!(keys, ["one", "two"]);
    let mut seen = [false; 2];
    while seen != [true; 2] {
        client.send(b"randomkey\r\n");
        let key = bulk(&read_element(&mut client));
        let at = keys.iter().position(|one| *one == key);
        seen[at.expect("a key of the database")] = true;
    }
}

fn there_are_as_many_databases_as_the_options_say(engine: Engine) {
    const NONE: &str = "-ERR DB index is out of range\r\n";
    let server = start(engine, &["--databases", "2"]);
    let mut client = connect(&server);
    converse(
        &mut client,
        &[
            (
                "config get databases",
                "*2\r\n$9\r\ndatabases\r\n$1\r\n2\r\n",
            ),
            ("select 1\r\nselect 2", &[OK, NONE].concat()),
            ("set a 1\r\nmove a 2", &[OK, NONE].concat()),
            ("copy a b db 2\r\ncopy a a db 0", &[NONE, ":1\r\n"].concat()),
            ("reset\r\nget a", "+RESET\r\n$1\r\n1\r\n"),
        ],
    );
}

fn a_watch_is_of_a_key_in_its_database(engine: Engine) {
    let server = start(engine, &[]);
    let (mut one, mut other) = (connect(&server), connect(&server));
    for (changed_in, reply) in [(0, "*1\r\n+PONG\r\n"), (1, "*-1\r\n")] {
        one.ask("select 1\r\nwatch a\r\nselect 0\r\n", OK.repeat(3));
        other.ask(format!("select {changed_in}\r\nset a 1\r\n"), OK.repeat(2));
        one.ask(
            "multi\r\nping\r\nexec\r\n",
            format!("+OK\r\n+QUEUED\r\n{reply}"),
        );
    }
    // By a key that is moved.
    one.ask("select 2\r\nwatch a\r\n", OK.repeat(2));
    other.ask("select 1\r\nmove a 2\r\n", "+OK\r\n:1\r\n");
    one.ask("multi\r\nping\r\nexec\r\n", "+OK\r\n+QUEUED\r\n*-1\r\n");
}

fn a_script_needs_all_keys_for_other_databases(engine: Engine) {
    let server = start(engine, &[]);
    let mut client = connect(&server);
    let mut call = |script: &[u8], reply: &str| {
        client.ask(request(&[b"eval", script, b"1", b"a"]), reply);
    };
    call(b"return redis.call('set', KEYS[1], 'x')", OK);
    for command in ["'get', KEYS[1]", "'move', KEYS[1], 2"] {
        let script = format!("redis.call('select', 1) return redis.pcall({command})['err']");
        let reply = "$87\r\nERR the command needs keys that are not among the KEYS of the script, see --script-keys\r\n";
        call(script.as_bytes(), reply);
    }
    // The script's database is not the client's.
    call(b"return redis.call('get', KEYS[1])", "$1\r\nx\r\n");
}

fn the_longest_key_has_room_in_every_database(engine: Engine) {
    let server = start(engine, &[]);
    let mut client = connect(&server);
    for first in [b'x', 1] {
        let longest = vec![first; 65_536];
        let too_long = vec![first; 65_537];
        for database in ["0", "9"] {
            client.ask(request(&["select", database]), OK);
            client.ask(request(&[b"set", &longest[..], b"v"]), OK);
            client.ask(request(&[b"get", &longest[..]]), "$1\r\nv\r\n");
            client.ask(request(&[b"del", &longest[..]]), ":1\r\n");
            client.ask(
                request(&[b"set", &too_long[..], b"v"]),
                "-ERR key or value exceeds the maximum size of an item\r\n",
            );
        }
    }
}
