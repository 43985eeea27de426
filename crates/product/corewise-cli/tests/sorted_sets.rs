//! Sorted sets over sockets: random conversations whose replies are compared with those of
//! redis-server, and what memcached's protocol sees of them.

use crate::common;
use crate::resp::{Reply, Requests, compare_with_redis, scan};

use common::resp::{commands_on_one_key, connect, converse, request, start, start_and_connect};
use common::{Client, Engine, Redis, skip};
use corewise_testkit::random::fewer;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

for_every_engine! { of corewise:
    random_conversations_on_sets_agree_with_redis
    combinations_agree_with_redis_in_transactions_and_scripts
    a_combination_shows_a_moving_member_once
    large_sets_are_combined_in_parts
    long_members_are_combined_in_parts
    each_look_up_of_a_long_member_is_many_steps
    scripts_tell_the_errors_of_numbers_of_keys
    a_combination_without_memory_changes_nothing
    zeros_nuls_and_large_scores_agree_with_redis
    a_long_member_is_matched_with_a_long_pattern
    memcached_sees_a_set_as_a_miss
    a_scan_shows_the_keys_of_a_type
    random_members_are_members
    a_scan_of_a_set_shows_all_members
}

/// Random requests on sorted sets, and some on strings under the same keys.
struct SetRequests(Requests);

impl SetRequests {
    fn pick(&mut self, words: &[&str]) -> String {
        self.0.pick(words).to_owned()
    }

    fn key(&mut self) -> String {
        self.pick(&["a", "b", "c", "d", "e"])
    }

    /// Members of few sets in common, of which some are too long for a flat set.
    fn member(&mut self) -> String {
        match self.0.0.random_range(0..40) {
            0 => "long".repeat(self.0.0.random_range(15..40)),
            1 => self.pick(&["", "\r\n", "\0"]),
            2..8 => format!("m{}", self.0.0.random_range(0..300)),
            _ => format!("m{}", self.0.0.random_range(0..12)),
        }
    }

    fn members(&mut self) -> Vec<String> {
        let most = if self.0.0.random_bool(0.03) { 300 } else { 4 };
        let count = self.0.0.random_range(1..=most);
        (0..count).map(|_| self.member()).collect()
    }

    fn score(&mut self) -> String {
        match self.0.0.random_range(0..10) {
            // Redis keeps the sign of a zero in large sets only.
            0 => self.0.float().replace("-0", "0"),
            1 => self.pick(&["inf", "-inf", "+inf", "1e17", "3.25", "0x10", "x"]),
            2 => format!("{}", self.0.0.random::<f64>() * 1e3),
            _ => self.0.0.random_range(-9..9).to_string(),
        }
    }

    fn add(&mut self) -> Vec<String> {
        let mut words = vec![self.pick(&["ZADD", "zadd"]), self.key()];
        for option in ["nx", "XX", "gt", "LT", "ch", "INCR"] {
            if self.0.0.random_bool(0.12) {
                words.push(option.to_owned());
            }
        }
        for member in self.members() {
            let mut score = self.score();
            // In a pipeline of many, one that is no number would nearly always fail.
            if words.len() > 12 && score.parse::<f64>().is_err() {
                "7".clone_into(&mut score);
            }
            words.extend([score, member]);
        }
        words
    }

    /// Sets in which all scores are equal, as ranges of members need them.
    fn lex(&mut self) -> Vec<String> {
        let key = self.pick(&["lex", "lexlex"]);
        let bound = |requests: &mut Self| match requests.0.0.random_range(0..8) {
            0 => requests.pick(&["-", "+", "x", "", "++", "(", "[", "-\0", "+\0x"]),
            1 => "-".to_owned(),
            2 => "+".to_owned(),
            _ => requests.pick(&["[", "("]) + &requests.member(),
        };
        match self.0.0.random_range(0..4) {
            0 => {
                let members = self.members();
                let pairs = members
                    .into_iter()
                    .flat_map(|member| ["0".to_owned(), member]);
                ["ZADD".to_owned(), key].into_iter().chain(pairs).collect()
            }
            1 => {
                let name = self.pick(&["ZLEXCOUNT", "zlexcount", "ZREMRANGEBYLEX"]);
                vec![name, key, bound(self), bound(self)]
            }
            2 => {
                let name = self.pick(&["ZRANGEBYLEX", "zrevrangebylex"]);
                let mut words = vec![name, key, bound(self), bound(self)];
                self.options(&mut words, &[]);
                words
            }
            _ => {
                let mut words = vec!["ZRANGE".to_owned(), key, bound(self), bound(self)];
                words.push("BYLEX".to_owned());
                self.options(&mut words, &["REV"]);
                words
            }
        }
    }

    /// Adds options of ranges.
    fn options(&mut self, words: &mut Vec<String>, others: &[&str]) {
        if self.0.0.random_bool(0.4) {
            words.push(self.pick(&["WITHSCORES", "withscores", "foo"]));
        }
        for other in others {
            if self.0.0.random_bool(0.4) {
                words.push((*other).to_owned());
            }
            if self.0.0.random_bool(0.05) {
                words.push(self.pick(&["REV", "byscore", "BYLEX"]));
            }
        }
        if self.0.0.random_bool(0.4) {
            words.push("LIMIT".to_owned());
            words.extend([self.0.number(), self.0.number()]);
        }
    }

    fn range(&mut self) -> Vec<String> {
        let by_score = |requests: &mut Self| match requests.0.0.random_range(0..6) {
            0 => requests.pick(&[
                "-inf", "+inf", "", "(", "x", " 1", "nan", "1e400", "\x0b1", "1\0",
            ]),
            1 => "(".to_owned() + &requests.score(),
            _ => requests.score(),
        };
        let mut words = match self.0.0.random_range(0..6) {
            0 => {
                let name = self.pick(&["ZCOUNT", "ZCOUNT", "zremrangebyscore"]);
                return vec![name, self.key(), by_score(self), by_score(self)];
            }
            5 => {
                let name = "ZREMRANGEBYRANK".to_owned();
                return vec![name, self.key(), self.0.number(), self.0.number()];
            }
            1 => {
                let name = self.pick(&["ZRANGEBYSCORE", "zrevrangebyscore"]);
                vec![name, self.key(), by_score(self), by_score(self)]
            }
            2 => {
                let mut words = vec!["ZRANGE".to_owned(), self.key()];
                words.extend([by_score(self), by_score(self), "BYSCORE".to_owned()]);
                words
            }
            3 => vec![
                "ZREVRANGE".to_owned(),
                self.key(),
                self.0.number(),
                self.0.number(),
            ],
            _ => vec![
                "ZRANGE".to_owned(),
                self.key(),
                self.0.number(),
                self.0.number(),
            ],
        };
        let others: &[&str] = if words[0] == "ZRANGE" { &["REV"] } else { &[] };
        self.options(&mut words, others);
        words
    }

    fn pop(&mut self) -> Vec<String> {
        let mut words = vec![self.key()];
        for more in [0.6, 0.05] {
            if self.0.0.random_bool(more) {
                words.push(self.pick(&["0", "1", "1", "2", "5", "-1", "x", "99999999999"]));
            }
        }
        let name = self.pick(&["ZPOPMIN", "zpopmax"]);
        words.insert(0, name);
        words
    }

    /// The number of some keys, and the keys.
    fn numbered(&mut self) -> Vec<String> {
        let keys: Vec<String> = (0..self.0.0.random_range(1..5))
            .map(|_| self.key())
            .collect();
        let count = match self.0.0.random_range(0..30) {
            // More than there are arguments: options that are taken for keys are not among the
            // KEYS of a script.
            0 => self.pick(&["0", "-1", "x", "99"]),
            _ => keys.len().to_string(),
        };
        std::iter::once(count).chain(keys).collect()
    }

    /// Commands on several sets.
    fn combine(&mut self) -> Vec<String> {
        let name = self.pick(&[
            "ZUNION",
            "zinter",
            "ZDIFF",
            "ZINTERCARD",
            "zunionstore",
            "ZUNIONSTORE",
            "ZINTERSTORE",
            "ZDIFFSTORE",
            "ZMPOP",
            "zrangestore",
        ]);
        let lower = name.to_lowercase();
        let mut words = vec![name];
        if lower == "zrangestore" {
            words.push(self.key());
            let mut range = self.range();
            while !range[0].eq_ignore_ascii_case("zrange") {
                range = self.range();
            }
            // `WITHSCORES` is an error here.
            range.retain(|word| {
                !word.eq_ignore_ascii_case("withscores") || self.0.0.random_bool(0.1)
            });
            words.extend(range.into_iter().skip(1));
            return words;
        }
        if lower.ends_with("store") {
            words.push(self.key());
        }
        let numbered = self.numbered();
        let count = numbered.len() - 1;
        words.extend(numbered);
        if lower == "zmpop" {
            words.push(self.pick(&["MIN", "max", "MAX", "mean"]));
        }
        let options: &[&str] = match lower.as_str() {
            "zunion" | "zinter" => &["weights", "AGGREGATE", "WITHSCORES"],
            "zunionstore" | "zinterstore" => &["WEIGHTS", "aggregate"],
            "zdiff" => &["withscores"],
            "zintercard" => &["LIMIT"],
            "zmpop" => &["count"],
            _ => &[],
        };
        for option in options.iter().chain(&["COUNT", "withscores", "foo"]) {
            let odds = if options.contains(option) { 0.4 } else { 0.01 };
            if !self.0.0.random_bool(odds) {
                continue;
            }
            words.push((*option).to_owned());
            match option.to_lowercase().as_str() {
                // Redis's large sets would keep the sign of a zero.
                "weights" if lower.ends_with("store") => {
                    words.extend((0..count).map(|_| self.pick(&["1", "2", "0.5", "3.25", "inf"])));
                }
                "weights" => words.extend((0..count).map(|_| {
                    self.pick(&[
                        "1", "2", "-1", "0.1", "0", "-inf", "1e308", "3", "1", "2", "x",
                    ])
                })),
                "aggregate" => words.push(self.pick(&["sum", "MIN", "max", "avg"])),
                "limit" | "count" => words.push(self.pick(&["1", "2", "3", "10", "0", "-1", "x"])),
                _ => {}
            }
        }
        words
    }

    fn random_members(&mut self) -> Vec<String> {
        // What is drawn does not depend on chance.
        let counts = [
            "0",
            "1000",
            "1000",
            "5000000000000000000",
            "x",
            "9".repeat(20).as_str(),
        ]
        .map(str::to_owned);
        let mut words = vec![self.pick(&["ZRANDMEMBER", "zrandmember"]), self.key()];
        words.push(counts[self.0.0.random_range(0..counts.len())].clone());
        if self.0.0.random_bool(0.5) {
            words.push(self.pick(&["WITHSCORES", "withscores", "foo"]));
        }
        words
    }

    fn scan(&mut self) -> Vec<String> {
        let mut words = vec!["ZSCAN".to_owned(), self.key()];
        words.push(self.pick(&["0", "0", "0", "x"]));
        words.push("COUNT".to_owned());
        words.push(self.pick(&["10000", "10000", "5000", "0", "x"]));
        if self.0.0.random_bool(0.5) {
            words.push(self.pick(&["MATCH", "match", "type"]));
            words.push(self.pick(&["*", "m1*", "[l]*", "m?", "zset"]));
        }
        words
    }

    fn next(&mut self) -> Vec<String> {
        let of = |name: &str, words: Vec<String>| {
            std::iter::once(name.to_owned()).chain(words).collect()
        };
        match self.0.0.random_range(0..30) {
            27.. => self.combine(),
            0..6 => self.add(),
            6..10 => self.range(),
            10..13 => self.lex(),
            13 => of("ZINCRBY", vec![self.key(), self.score(), self.member()]),
            14 | 15 => {
                let mut words = vec![self.key()];
                words.extend(self.members());
                let name = self.pick(&["ZREM", "ZREM", "zmscore"]);
                of(&name, words)
            }
            16 => {
                let name = self.pick(&["ZRANK", "zrevrank", "ZSCORE"]);
                of(&name, vec![self.key(), self.member()])
            }
            17 => {
                let name = self.pick(&["ZCARD", "TYPE", "ttl", "PERSIST", "EXISTS", "touch"]);
                of(&name, vec![self.key()])
            }
            18 => {
                let name = self.pick(&["RENAME", "renamenx", "COPY"]);
                let mut words = vec![self.key(), self.key()];
                if name == "COPY" && self.0.0.random_bool(0.5) {
                    words.push("REPLACE".to_owned());
                }
                of(&name, words)
            }
            19 => {
                let name = self.pick(&["DEL", "unlink", "GETDEL", "INCR", "STRLEN", "bitcount"]);
                of(&name, vec![self.key()])
            }
            20 => {
                let name = self.pick(&["APPEND", "GETSET", "SETNX", "set", "incrbyfloat"]);
                of(&name, vec![self.key(), "1".to_owned()])
            }
            21 => {
                let name = self.pick(&["MGET", "lcs", "EXISTS"]);
                of(&name, vec![self.key(), self.key()])
            }
            22 => {
                let mut words = vec!["SET".to_owned(), self.key(), "v".to_owned()];
                let options = ["GET", "keepttl", "NX", "xx"];
                words.extend(
                    options
                        .map(str::to_owned)
                        .into_iter()
                        .filter(|_| self.0.0.random_bool(0.3)),
                );
                words
            }
            23 => self.pop(),
            24 => self.random_members(),
            25 => self.scan(),
            _ => self.0.of_strings_and_keys(),
        }
    }
}

fn random_conversations_on_sets_agree_with_redis(engine: Engine) {
    let seed = engine.seed(55);
    let random = Xoshiro256PlusPlus::seed_from_u64(seed);
    compare_with_redis(engine, |client| {
        let mut names = commands_on_one_key(client);
        names.retain(|name| name != "zrandmember");
        let mut requests = SetRequests(Requests(random, names));
        move || (requests.0.0.random_range(1..15), requests.next())
    });
}

/// As single requests, as those of a transaction, and as those of a script.
fn combinations_agree_with_redis_in_transactions_and_scripts(engine: Engine) {
    const SCRIPT: &str = "return redis.pcall(unpack(ARGV))";
    const KEYS: [&str; 7] = ["a", "b", "c", "d", "e", "lex", "lexlex"];
    let server = start(engine, &[]);
    let Some(redis) = Redis::start() else {
        return skip("redis-server is not installed");
    };
    let random = Xoshiro256PlusPlus::seed_from_u64(engine.seed(56));
    let mut requests = SetRequests(Requests(random, vec!["TYPE".to_owned()]));
    for version in ["2", "3"] {
        let mut clients = [connect(&server), redis.connect()];
        for client in &mut clients {
            client.ask("flushall\r\n", "+OK\r\n");
            client.send(&request(&["HELLO", version]));
            Reply::read(client, &["hello".to_owned()]);
        }
        let words = |line: &str| vec![line.to_owned()];
        let mut agree = |words: &[String]| {
            let [ours, theirs] = clients.each_mut().map(|client| {
                client.send(&request(words));
                // Without a name: nothing about the reply is left out.
                Reply::read(client, &[String::new()])
            });
            assert!(ours.agrees_with(&theirs), "{words:?}: {ours:?} {theirs:?}");
        };
        for _ in 0..fewer(150) {
            (0..3).for_each(|_| agree(&requests.add()));
            agree(&requests.combine());
            agree(&words("multi"));
            (0..3).for_each(|_| agree(&requests.combine()));
            agree(&words("exec"));
            let mut script = vec!["eval".to_owned(), SCRIPT.to_owned(), KEYS.len().to_string()];
            script.extend(KEYS.map(str::to_owned));
            script.extend(requests.combine());
            agree(&script);
        }
    }
}

/// A member that a transaction moves is in one of the sets, whenever they are united.
fn a_combination_shows_a_moving_member_once(engine: Engine) {
    let server = start(engine, &["-t", "2"]);
    let mut reader = connect(&server);
    reader.ask("zadd a 1 m\r\n", ":1\r\n");
    let moves = |from, to| {
        let mut writer = connect(&server);
        let moves = format!("multi\r\nzunionstore {to} 2 a b\r\ndel {from}\r\nexec\r\n");
        move || {
            for _ in 0..fewer(1_000) {
                writer.ask(&moves, "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n");
                let deleted = writer.line();
                assert!([":0", ":1"].contains(&&*deleted), "{deleted}");
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(moves("a", "b"));
        scope.spawn(moves("b", "a"));
        for _ in 0..fewer(1_000) {
            reader.ask(
                "zunion 2 a b withscores\r\n",
                "*2\r\n$1\r\nm\r\n$1\r\n1\r\n",
            );
            reader.ask("zintercard 2 a b\r\n", ":0\r\n");
        }
    });
}

/// Adds the numbers of a range to a set, as members whose scores they are.
fn add_numbers(client: &mut Client, key: &str, numbers: std::ops::Range<u32>) {
    let numbers: Vec<u32> = numbers.collect();
    for part in numbers.chunks(1_000) {
        let mut words = vec!["zadd".to_owned(), key.to_owned()];
        words.extend(
            part.iter()
                .flat_map(|number| [number.to_string(), number.to_string()]),
        );
        client.send(&request(&words));
        assert_eq!(client.line(), format!(":{}", part.len()));
    }
}

fn large_sets_are_combined_in_parts(engine: Engine) {
    let (_server, mut client) = start_and_connect(engine, &[]);
    add_numbers(&mut client, "a", 0..4_096);
    add_numbers(&mut client, "b", 2_000..7_000);
    converse(
        &mut client,
        &[
            ("zunionstore u 2 a b", ":7000\r\n"),
            ("zinterstore i 2 a b aggregate max", ":2096\r\n"),
            ("zdiffstore d 2 a b", ":2000\r\n"),
            ("zintercard 2 b a", ":2096\r\n"),
            ("zintercard 2 b a limit 1500", ":1500\r\n"),
            ("zrangestore r a 10 -1", ":4086\r\n"),
            (
                "zrangestore s a (3000 0 byscore rev limit 500 2000",
                ":2000\r\n",
            ),
            ("zrange s 0 0", "*1\r\n$3\r\n500\r\n"),
            ("zscore u 1999", "$4\r\n1999\r\n"),
            ("zscore u 2000", "$4\r\n4000\r\n"),
            ("zscore u 6999", "$4\r\n6999\r\n"),
            ("zscore i 4095", "$4\r\n4095\r\n"),
            ("zrange d -1 -1", "*1\r\n$4\r\n1999\r\n"),
            ("zrange r 0 0", "*1\r\n$2\r\n10\r\n"),
            // A source may be the destination.
            ("zunionstore a 3 a b a weights 1 1 0", ":7000\r\n"),
            ("zdiffstore a 2 a b", ":2000\r\n"),
            (
                "zmpop 2 none a max count 2",
                "*2\r\n$1\r\na\r\n*2\r\n*2\r\n$4\r\n1999\r\n$4\r\n1999\r\n*2\r\n$4\r\n1998\r\n$4\r\n1998\r\n",
            ),
        ],
    );
    // A source that is named again is asked again only where that changes the scores.
    let keys = "u ".repeat(700);
    for (command, reply) in [
        (format!("zinterstore r 700 {keys}"), TOO_MANY),
        (format!("zintercard 700 {keys}"), ":7000\r\n"),
        (format!("zdiff 701 u {keys}"), "*0\r\n"),
        (format!("zdiffstore r 702 u b {keys}"), ":0\r\n"),
    ] {
        client.ask(format!("{command}\r\n"), reply);
    }
}

fn long_members_are_combined_in_parts(engine: Engine) {
    let (_server, mut client) = start_and_connect(engine, &[]);
    // More than a part has room for, and one that is longer than a part.
    for (key, numbers) in [("a", 0..60), ("b", 30..90)] {
        for number in numbers {
            let len = if number == 40 { 300_000 } else { 10_000 };
            let member = format!("{number:02}{}", "x".repeat(len));
            client.send(&request(&["zadd", key, &number.to_string(), &member]));
            assert_eq!(client.line(), ":1");
        }
    }
    converse(
        &mut client,
        &[
            ("zunionstore u 2 a b", ":90\r\n"),
            ("zinterstore i 2 a b", ":30\r\n"),
            ("zintercard 2 a b limit 28", ":28\r\n"),
            ("zdiffstore d 2 a b", ":30\r\n"),
            ("zrangestore r a 0 -1", ":60\r\n"),
            ("zcount r 0 59", ":60\r\n"),
            ("zrangestore r a 50 4 byscore rev limit 1 44", ":44\r\n"),
            ("zcount r 6 49", ":44\r\n"),
            ("zrangestore r a 10 54", ":45\r\n"),
            ("zcount r 10 54", ":45\r\n"),
            ("zcount u 60 118", ":60\r\n"),
            ("zcount i 60 118", ":30\r\n"),
            ("zcount d 0 29", ":30\r\n"),
        ],
    );
}

fn each_look_up_of_a_long_member_is_many_steps(engine: Engine) {
    let (_server, mut client) = start_and_connect(engine, &[]);
    let member = "x".repeat(900_000);
    client.send(&request(&["zadd", "k", "1", &member]));
    assert_eq!(client.line(), ":1");
    let keys = "k ".repeat(5_000);
    for (command, reply) in [
        (format!("zinterstore r 100 {}", "k ".repeat(100)), ":1\r\n"),
        (format!("zinterstore s 5000 {keys}"), TOO_MANY),
        (format!("zintercard 5000 {keys}"), ":1\r\n"),
        (format!("zdiff 5000 {keys}"), "*0\r\n"),
        ("exists r s".to_owned(), ":1\r\n"),
        ("multi".to_owned(), "+OK\r\n"),
        (format!("zinter 5000 {keys}"), "+QUEUED\r\n"),
    ] {
        client.ask(format!("{command}\r\n"), reply);
    }
    client.send(b"exec\r\n");
    client.expect("-");
}

/// Without the keys that it says it has, a request needs none that the script has not declared.
fn scripts_tell_the_errors_of_numbers_of_keys(engine: Engine) {
    let (_server, mut client) = start_and_connect(engine, &[]);
    for (words, reply) in [
        ("'zunion', '3', 'c', 'limit'", "-ERR syntax error"),
        ("'zmpop', '9', 'c', 'min'", "-ERR syntax error"),
        (
            "'zinterstore', 'd', 'x', 'c'",
            "-ERR value is not an integer or out of range",
        ),
        (
            "'zunion', '1', 'c'",
            "-ERR the command needs keys that are not among the KEYS of the script, \
            see --script-keys",
        ),
    ] {
        let script = format!("return redis.pcall({words})");
        client.send(&request(&["eval", &script, "0"]));
        assert_eq!(client.line(), reply, "{words}");
    }
}

fn a_combination_without_memory_changes_nothing(engine: Engine) {
    let (_server, mut client) = start_and_connect(engine, &["-m", "16"]);
    for (key, from) in [("a", 0), ("b", 30_000), ("c", 60_000)] {
        add_numbers(&mut client, key, from..from + 30_000);
    }
    client.ask("set k v\r\n", "+OK\r\n");
    client.ask(
        "zunionstore k 3 a b c\r\n",
        "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    );
    client.ask("get k\r\n", "$1\r\nv\r\n");
    client.ask("zrangestore k a 0 99\r\n", ":100\r\n");
    client.ask("zcard k\r\n", ":100\r\n");
}

/// Requests whose replies are those of Redis byte by byte.
const ON_EDGES: &[&[&str]] = &[
    &["ZINCRBY", "z", "-0", "new"],
    &["ZINCRBY", "z", "-0", "new"],
    &["ZADD", "z", "INCR", "-0.0", "other"],
    &["ZADD", "z", "-0", "third"],
    &["ZRANGE", "z", "0", "-1", "WITHSCORES"],
    &["ZADD", "s", "1", "a", "2", "b", "3", "c"],
    &["ZRANGEBYSCORE", "s", "1\0", "(3\0x"],
    &["ZCOUNT", "s", "(1\0", "+inf\0"],
    &["ZCOUNT", "s", "\0", "2\0\0"],
    &["ZCOUNT", "s", "x\0", "1"],
    &["ZRANGEBYSCORE", "s", "(\0", "9"],
    &["ZADD", "l", "0", "a", "0", "b", "0", "b\0", "0", "c"],
    &["ZRANGEBYLEX", "l", "-\0x", "[b\0"],
    &["ZRANGEBYLEX", "l", "(b", "+\0"],
    &["ZLEXCOUNT", "l", "-\0", "+\0y"],
    &["ZLEXCOUNT", "l", "-x", "+"],
    &[
        "ZADD",
        "e",
        "1e17",
        "a",
        "-1e17",
        "b",
        "123456789012345680",
        "c",
    ],
    &[
        "ZADD",
        "e",
        "4611686018427387904",
        "d",
        "4611686018427388928",
        "e",
    ],
    &[
        "ZADD",
        "e",
        "-4611686018427387904",
        "f",
        "1e300",
        "g",
        "0.5",
        "h",
    ],
    &["ZSCAN", "e", "0"],
    &["ZRANGE", "e", "0", "-1", "WITHSCORES"],
    // Too long for a small set.
    &["ZADD", "one", "1e17", LONG],
    &["ZSCAN", "one", "0"],
    &["ZUNION", "2", "s", "e", "WEIGHTS", "0", "-1", "WITHSCORES"],
    &[
        "ZINTER",
        "2",
        "s",
        "s",
        "WEIGHTS",
        "inf",
        "-inf",
        "WITHSCORES",
    ],
    &["ZUNIONSTORE", "e2", "1", "e", "WEIGHTS", "0.1"],
    &["ZRANGE", "e2", "0", "-1", "WITHSCORES"],
    &["ZMPOP", "2", "none", "e2", "MAX", "COUNT", "2"],
    &["ZSCAN", "s", "-1"],
    &["ZSCAN", "s", "1", "COUNT", "1"],
    &["ZSCAN", "s", "18446744073709551616"],
    &["ZSCAN", "s", "-"],
    &["ZSCAN", "none", "-1"],
];

const TOO_MANY: &str = "-ERR the sets have too many members for one command\r\n";
const LONG: &str = "a member of more than sixty-four bytes, after which Redis makes a skip list";

fn zeros_nuls_and_large_scores_agree_with_redis(engine: Engine) {
    let server = start(engine, &[]);
    let Some(redis) = Redis::start() else {
        return skip("redis-server is not installed");
    };
    for version in ["2", "3"] {
        let mut clients = [connect(&server), redis.connect()];
        let mut ask = |words: &[&str]| {
            clients.each_mut().map(|client| {
                client.send(&request(words));
                // Without a name: nothing about the reply is left out.
                Reply::read(client, &[String::new()])
            })
        };
        ask(&["FLUSHALL"]);
        ask(&["HELLO", version]);
        for words in ON_EDGES {
            let [ours, theirs] = ask(words);
            assert!(ours.agrees_with(&theirs), "{words:?}: {ours:?} {theirs:?}");
        }
    }
}

/// A match takes no more than some steps for each byte, so other clients are not held up for long.
fn a_long_member_is_matched_with_a_long_pattern(engine: Engine) {
    let server = start(engine, &[]);
    let mut client = connect(&server);
    let member = "a".repeat(900_000);
    client.send(&request(&["ZADD", "k", "1", &member]));
    assert_eq!(client.line(), ":1");
    let pattern = format!("*{}b*", "a".repeat(1_000));
    client.send(&request(&["ZSCAN", "k", "0", "MATCH", &pattern]));
    client.expect("*2\r\n$1\r\n0\r\n*0\r\n");
    let pattern = format!("*{}*", "a".repeat(1_000));
    client.send(&request(&["ZSCAN", "k", "0", "MATCH", &pattern]));
    client.expect(format!(
        "*2\r\n$1\r\n0\r\n*2\r\n$900000\r\n{member}\r\n$1\r\n1\r\n"
    ));
    let pattern = "a".repeat(1_025);
    client.send(&request(&["ZSCAN", "k", "0", "MATCH", &pattern]));
    client.expect("-ERR the pattern exceeds the maximum length\r\n");
}

fn memcached_sees_a_set_as_a_miss(engine: Engine) {
    let server = start(engine, &[]);
    let (mut text, mut resp) = (server.connect(), connect(&server));
    for len in [1, 300] {
        resp.ask("del k\r\n", if len == 1 { ":0\r\n" } else { ":1\r\n" });
        for number in 0..len {
            resp.ask(format!("zadd k {number} m{number}\r\n"), ":1\r\n");
        }
        text.ask("get k\r\n", "END\r\n");
        text.ask("gat 100 k\r\n", "END\r\n");
        text.ask("mg k v\r\n", "EN\r\n");
        text.ask("mg k v N30\r\n", "EN\r\n");
        text.ask("me k\r\n", "EN\r\n");
        text.ask("incr k 1\r\n", "NOT_FOUND\r\n");
        text.ask("ma k\r\n", "NF\r\n");
        text.ask("touch k 100\r\n", "NOT_FOUND\r\n");
        text.ask("append k 0 0 1\r\nx\r\n", "NOT_STORED\r\n");
        text.ask("ms k 1 MA\r\nx\r\n", "NS\r\n");
        text.ask("cas k 0 0 1 5\r\nx\r\n", "NOT_FOUND\r\n");
        text.ask("add k 0 0 1\r\nx\r\n", "NOT_STORED\r\n");
        text.ask("md k I\r\n", "NF\r\n");
        text.ask("md k x\r\n", "NF\r\n");
        text.ask("md k C5\r\n", "NF\r\n");
        text.ask("lru_crawler metadump all\r\n", "END\r\n");
        resp.ask("ttl k\r\n", ":-1\r\n");
        resp.ask("zcard k\r\n", format!(":{len}\r\n"));
        // These replace or remove it, whatever it is.
        text.ask("replace k 0 0 1\r\nx\r\n", "STORED\r\n");
        resp.ask("type k\r\n", "+string\r\n");
        resp.ask("del k\r\nzadd k 1 m\r\n", ":1\r\n:1\r\n");
        text.ask("set k 0 0 1\r\nx\r\n", "STORED\r\n");
        resp.ask(
            "zadd k 1 m\r\n",
            "-WRONGTYPE Operation against a key holding the wrong kind \
            of value\r\n",
        );
        resp.ask("del k\r\nzadd k 1 m\r\n", ":1\r\n:1\r\n");
        text.ask("delete k\r\n", "DELETED\r\n");
        resp.ask("zadd k 1 m\r\n", ":1\r\n");
    }
}

fn a_scan_shows_the_keys_of_a_type(engine: Engine) {
    let server = start(engine, &[]);
    let mut client = connect(&server);
    client.ask("set s v\r\n", "+OK\r\n");
    client.ask("zadd flat 1 a\r\n", ":1\r\n");
    let long = "long".repeat(50);
    client.ask(format!("zadd large 1 {long}\r\n"), ":1\r\n");
    let mut keys = |options| Vec::from_iter(scan(&mut client, options));
    assert_eq!(keys("count 1000 type zset"), ["flat", "large"]);
    assert_eq!(keys("count 1000 type STRING"), ["s"]);
    assert_eq!(keys("count 1000 type list"), [""; 0]);
    assert_eq!(keys("count 1000"), ["flat", "large", "s"]);
}

/// The elements of an array, each of which is one line or a bulk string.
fn elements(client: &mut Client) -> Vec<String> {
    let head = client.line();
    let count: usize = head[1..].parse().unwrap();
    (0..count)
        .map(|_| {
            client.line();
            client.line()
        })
        .collect()
}

fn random_members_are_members(engine: Engine) {
    let server = start(engine, &[]);
    let mut client = connect(&server);
    client.ask("zrandmember none\r\n", "$-1\r\n");
    client.ask("zrandmember none -5\r\n", "*0\r\n");
    client.ask("zadd one 7 a\r\n", ":1\r\n");
    client.ask("zrandmember one\r\n", "$1\r\na\r\n");
    client.ask(
        "zrandmember one -2 withscores\r\n",
        "*4\r\n$1\r\na\r\n$1\r\n7\r\n$1\r\na\r\n$1\r\n7\r\n",
    );
    client.ask(
        "zrandmember one -4611686018427387905 withscores\r\n",
        "-ERR value is out of range\r\n",
    );
    client.ask(
        "zrandmember one -9000000000000000000\r\n",
        "-ERR the members take too much memory for one reply, ask for fewer\r\n",
    );
    for len in [20_u32, 400] {
        for number in 0..len {
            client.ask(format!("zadd {len} {number} {number}\r\n"), ":1\r\n");
        }
        for count in [-3_000, 15, 1_000] {
            client.send(format!("zrandmember {len} {count}\r\n").as_bytes());
            let mut drawn = elements(&mut client);
            let expected = if count < 0 {
                3_000
            } else {
                len.min(count as u32)
            };
            assert_eq!(drawn.len() as u32, expected);
            assert!(
                drawn
                    .iter()
                    .all(|member| member.parse::<u32>().unwrap() < len)
            );
            drawn.sort();
            drawn.dedup();
            // Of 3,000 draws, few of 400 members get none.
            let least = if count < 0 { len * 9 / 10 } else { expected };
            assert!(drawn.len() as u32 >= least, "{drawn:?}");
        }
    }
}

fn a_scan_of_a_set_shows_all_members(engine: Engine) {
    let server = start(engine, &[]);
    let mut client = connect(&server);
    for len in [0_u32, 20, 1_000] {
        for number in 0..len {
            client.ask(format!("zadd {len} {number} {number}\r\n"), ":1\r\n");
        }
        let (mut cursor, mut shown, mut steps) = ("0".to_owned(), Vec::new(), 0);
        loop {
            client.send(format!("zscan {len} {cursor} count 50\r\n").as_bytes());
            assert_eq!(client.line(), "*2");
            client.line();
            cursor = client.line();
            let pairs = elements(&mut client);
            for pair in pairs.chunks(2) {
                assert_eq!(pair[0], pair[1], "member and score");
                shown.push(pair[0].parse::<u32>().unwrap());
            }
            steps += 1;
            if cursor == "0" {
                break;
            }
        }
        shown.sort();
        assert_eq!(shown, Vec::from_iter(0..len));
        assert_eq!(steps > 10, len == 1_000, "{steps} steps");
    }
}
