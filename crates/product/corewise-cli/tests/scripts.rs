//! Scripts of RESP: replies compared with those of redis-server, atomicity beside other clients,
//! bounds, and scripts that try to get out.

use crate::common;

use common::resp::{connect, request, start};
use common::{Client, Engine, Redis, TestServer, show, skip};
use corewise_testkit::random::is_short;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::Barrier;
use std::thread;

for_every_engine! { of corewise:
    scripts_agree_with_redis
    random_scripts_agree_with_redis
    a_script_reaches_the_keys_that_it_declares
    no_increment_of_a_script_is_lost
    a_script_that_writes_two_keys_is_seen_whole
    hostile_scripts_end
    large_scripts_are_executed
    a_script_leaves_nothing_behind
    scripts_are_executed_in_transactions
    a_script_of_another_loop_is_killed
    the_time_of_a_transaction_is_that_of_all_its_scripts
}

/// Sends a request, and returns its reply.
fn ask(client: &mut Client, words: &[&str]) -> Vec<u8> {
    const END: &[u8] = b"$8\r\nthe end.\r\n";
    client.send(&[request(words), request(&["ECHO", "the end."])].concat());
    let mut reply = client.read_until(END);
    reply.truncate(reply.len() - END.len());
    reply
}

/// The reply to a script with three keys and two arguments.
fn eval(client: &mut Client, script: &str) -> Vec<u8> {
    ask(client, &["EVAL", script, "3", "k", "l", "n", "a", "17"])
}

#[track_caller]
fn assert_reply(client: &mut Client, script: &str, expected: &str) {
    let reply = eval(client, script);
    assert_eq!(show(&reply), show(expected.as_bytes()), "{script}");
}

#[track_caller]
fn assert_error(client: &mut Client, script: &str, expected: &str) {
    let reply = String::from_utf8_lossy(&eval(client, script)).into_owned();
    let is_expected = match expected {
        BOUND => BOUNDS.iter().any(|text| reply.contains(text)),
        text => reply.contains(text),
    };
    assert!(reply.starts_with('-') && is_expected, "{script}: {reply}");
}

/// Scripts whose replies are the same, one a line; `|` stands for a line break.
const SAME: &str = include_str!("conversations/scripts.txt");

fn same() -> impl Iterator<Item = String> {
    let lines = SAME
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("##"));
    lines.map(|line| line.replace(" | ", "\n"))
}

fn scripts_agree_with_redis(engine: Engine) {
    let server = start(engine, &[]);
    let Some(redis) = Redis::start() else {
        return skip("redis-server is not installed");
    };
    for version in ["2", "3"] {
        let (mut ours, mut theirs) = (connect(&server), redis.connect());
        for client in [&mut ours, &mut theirs] {
            ask(client, &["HELLO", version]);
            ask(client, &["FLUSHALL"]);
        }
        let mut differences = Vec::new();
        for script in same() {
            let (ours, theirs) = (eval(&mut ours, &script), eval(&mut theirs, &script));
            if ours != theirs {
                let (ours, theirs) = (show(&ours), show(&theirs));
                differences.push(format!("{script}\n  {ours}\n  {theirs} in Redis"));
            }
        }
        assert!(
            differences.is_empty(),
            "RESP{version}\n{}",
            differences.join("\n")
        );
    }
}

/// Draws scripts: commands on three keys, and what is made of their replies.
struct Scripts(Xoshiro256PlusPlus);

impl Scripts {
    fn one_of(&mut self, all: &[&str]) -> String {
        (*all.choose(&mut self.0).unwrap()).to_owned()
    }

    fn value(&mut self, depth: usize) -> String {
        let values = [
            "1",
            "-7.9",
            "'x'",
            "''",
            "true",
            "false",
            "nil",
            "KEYS[1]",
            "ARGV[2]",
            "#ARGV",
            "{}",
            "2^40",
            "tostring(0.1)",
            "{ok='fine'}",
            "{err='E wrong'}",
            "math.floor(3.5)",
        ];
        if depth > 2 {
            return self.one_of(&values);
        }
        let inner = self.value(depth + 1);
        let other = self.value(depth + 1);
        match self.0.random_range(0..9) {
            0 => format!("{{{inner},{other}}}"),
            1 => self.call(),
            2 => format!("{{{}}}", self.call()),
            3 => format!("cjson.encode({{{inner}}})"),
            4 => format!("cmsgpack.pack({inner})"),
            5 => format!("string.format('%s', tostring({inner} == {other}))"),
            6 => "{map={a=1}}".to_owned(),
            _ => self.one_of(&values),
        }
    }

    fn call(&mut self) -> String {
        let function = self.one_of(&["redis.call", "redis.pcall", "redis.pcall"]);
        let key = self.one_of(&["KEYS[1]", "KEYS[2]", "KEYS[3]"]);
        let rest = self.one_of(&[
            "'get',K",
            "'set',K,ARGV[2]",
            "'set',K,3.5",
            "'set',K,'v','nx'",
            "'set',K,'v','px',100000,'get'",
            "'incr',K",
            "'incrby',K,'x'",
            "'append',K,'y'",
            "'del',K,K",
            "'exists',K",
            "'strlen',K",
            "'mget',K,KEYS[1]",
            "'getrange',K,0,1",
            "'setrange',K,2,'ab'",
            "'ttl',K",
            "'persist',K",
            "'get'",
            "'nothing',K",
            "'rename',K,KEYS[1]",
            "'type',K",
            "'bitcount',K",
        ]);
        format!(
            "{function}({})",
            rest.replace('K', &key)
                .replace(&format!("{key}EYS"), "KEYS")
        )
    }

    fn script(&mut self) -> String {
        let mut script = String::new();
        for number in 0..self.0.random_range(0..3) {
            let value = self.value(1);
            script += &format!("local v{number} = {value}\n");
        }
        let value = self.value(0);
        script + &format!("return {value}")
    }
}

fn random_scripts_agree_with_redis(engine: Engine) {
    let server = start(engine, &[]);
    let Some(redis) = Redis::start() else {
        return skip("redis-server is not installed");
    };
    let mut scripts = Scripts(Xoshiro256PlusPlus::seed_from_u64(engine.seed(7)));
    let rounds = if is_short() { 60 } else { 400 };
    let (mut ours, mut theirs) = (connect(&server), redis.connect());
    for round in 0..rounds {
        let script = scripts.script();
        if round % 20 == 0 {
            for client in [&mut ours, &mut theirs] {
                ask(client, &["HELLO", if round % 40 == 0 { "2" } else { "3" }]);
                ask(client, &["FLUSHALL"]);
            }
        }
        let (our_reply, their_reply) = (eval(&mut ours, &script), eval(&mut theirs, &script));
        assert_eq!(show(&our_reply), show(&their_reply), "{script}");
    }
}

fn a_script_reaches_the_keys_that_it_declares(engine: Engine) {
    let server = start(engine, &[]);
    let mut client = connect(&server);
    let undeclared = "not among the KEYS";
    assert_reply(
        &mut client,
        "return redis.call('set', KEYS[2], 'v')",
        "+OK\r\n",
    );
    assert_error(
        &mut client,
        "return redis.call('set', 'other', 'v')",
        undeclared,
    );
    assert_error(
        &mut client,
        "return redis.call('mget', KEYS[1], 'other')",
        undeclared,
    );
    assert_error(&mut client, "return redis.call('flushall')", undeclared);
    assert_error(&mut client, "return redis.call('dbsize')", undeclared);
    client.ask(request(&["GET", "other"]), "$-1\r\n");
    client.ask(request(&["GET", "l"]), "$1\r\nv\r\n");

    let server = start(engine, &["--script-keys", "all"]);
    let mut client = connect(&server);
    assert_reply(
        &mut client,
        "return redis.call('set', 'other', 'v')",
        "+OK\r\n",
    );
    assert_reply(
        &mut client,
        "return redis.call('keys', '*')",
        "*1\r\n$5\r\nother\r\n",
    );
    assert_reply(&mut client, "return redis.call('flushall')", "+OK\r\n");
    client.ask(request(&["GET", "other"]), "$-1\r\n");
}

const INCREMENT: &str = "local n = tonumber(redis.call('get', KEYS[1]) or 0) redis.call('set', KEYS[1], n + 1) return n";

fn no_increment_of_a_script_is_lost(engine: Engine) {
    for options in [&["-t", "4"][..], &["-t", "4", "--script-keys", "all"]] {
        let server = start(engine, options);
        let threads = 6;
        let each = if is_short() { 50 } else { 200 };
        let barrier = Barrier::new(threads);
        let digest = ask(&mut connect(&server), &["SCRIPT", "LOAD", INCREMENT]);
        let digest = String::from_utf8_lossy(&digest[5..45]).into_owned();
        thread::scope(|scope| {
            for thread in 0..threads {
                let (server, barrier, digest) = (&server, &barrier, &digest);
                scope.spawn(move || {
                    let mut client = connect(server);
                    ask(&mut client, &["PING"]);
                    barrier.wait();
                    for round in 0..each {
                        let reply = match (thread + round) % 3 {
                            0 => ask(&mut client, &["EVAL", INCREMENT, "1", "n"]),
                            1 => ask(&mut client, &["EVALSHA", digest, "1", "n"]),
                            // A command of another protocol's kind, which locks in its own way.
                            _ => ask(&mut client, &["INCR", "n"]),
                        };
                        assert_eq!(reply.first(), Some(&b':'), "{}", show(&reply));
                    }
                });
            }
        });
        let count = (threads * each).to_string();
        let expected = format!("${}\r\n{count}\r\n", count.len());
        connect(&server).ask(request(&["GET", "n"]), &expected);
    }
}

fn a_script_that_writes_two_keys_is_seen_whole(engine: Engine) {
    let server = start(engine, &["-t", "4"]);
    let rounds = if is_short() { 60 } else { 300 };
    let mut reader = connect(&server);
    ask(&mut reader, &["MSET", "a", "0", "b", "0"]);
    thread::scope(|scope| {
        let server: &TestServer = &server;
        scope.spawn(move || {
            let mut writer = connect(server);
            let script =
                "for _ = 1, 200 do redis.call('incr', KEYS[1]) redis.call('incr', KEYS[2]) end";
            for _ in 0..rounds {
                let reply = ask(&mut writer, &["EVAL", script, "2", "a", "b"]);
                assert_eq!(show(&reply), show(b"$-1\r\n"));
            }
        });
        for _ in 0..rounds {
            let both = "return redis.call('get', KEYS[1]) == redis.call('get', KEYS[2])";
            let reply = ask(&mut reader, &["EVAL_RO", both, "2", "b", "a"]);
            assert_eq!(show(&reply), show(b":1\r\n"));
        }
    });
}

/// In the place of an error text: one of those for a script that has spent its time or its memory.
const BOUND: &str = "bound";
const BOUNDS: [&str; 3] = [
    "time limit",
    "not enough memory",
    "exceeds the maximum length",
];

/// Scripts that take all time or memory, and a part of the error.
const HOSTILE: &[(&str, &str)] = &[
    ("while true do end", BOUND),
    (
        "while true do pcall(function() while true do end end) end",
        BOUND,
    ),
    (
        "local function f() return pcall(f) end while true do f() end",
        BOUND,
    ),
    (
        "while true do xpcall(function() while true do end end, function() return 1 end) end",
        BOUND,
    ),
    (
        "while true do coroutine.wrap(function() while true do end end)() end",
        BOUND,
    ),
    (
        "local f = function() while true do end end while true do coroutine.resume(coroutine.create(f)) end",
        BOUND,
    ),
    ("while true do redis.call('get', KEYS[1]) end", BOUND),
    ("while true do redis.pcall('nothing') end", BOUND),
    (
        "return string.find(('a'):rep(200), ('a-'):rep(60) .. 'b')",
        BOUND,
    ),
    (
        "return string.gsub(('a'):rep(3000), '.-.-.-.-.-.-b', 'x')",
        BOUND,
    ),
    (
        "return string.match(('(a'):rep(30000), '.-(.-)(.-)(.-)(.-)%1%2%3%4x')",
        BOUND,
    ),
    (
        "local t = {} for i = 1, 20000 do t[i] = i % 7 end while true do table.sort(t) end",
        BOUND,
    ),
    ("while true do collectgarbage() end", BOUND),
    ("return ('x'):rep(1e9)", BOUND),
    (
        "local t = {} while true do t[#t + 1] = ('x'):rep(1000) .. #t end",
        BOUND,
    ),
    ("local s = 'x' while true do s = s .. s end", BOUND),
    ("local s = ('x'):rep(1e6) return (s:gsub('x', s))", BOUND),
    (
        "local s = 'x' for _ = 1, 40 do s = cjson.encode({s, s, s}) end",
        BOUND,
    ),
    (
        "local t = {} for _ = 1, 60 do t = {t, t} end return cjson.encode(t)",
        BOUND,
    ),
    (
        "local t = {} for _ = 1, 15 do t = {t,t,t,t,t,t,t,t} end return cmsgpack.pack(t)",
        BOUND,
    ),
    (
        "local t = {} for _ = 1, 60 do t = {t, t} end return t",
        BOUND,
    ),
    (
        "local function f() return 1 + f() end return f()",
        "stack overflow",
    ),
    ("return cjson.decode(('['):rep(1e6))", "too many nested"),
    (
        "return ('a'):rep(300):find(('a?'):rep(300) .. ('a'):rep(300))",
        "too complex",
    ),
    ("error({err = {}})", "has no text"),
    ("error({})", "has no text"),
    (
        "error(setmetatable({}, {__index = function() error('q') end}))",
        "q",
    ),
    (
        "return loadstring(string.dump(function() return 1 end))()",
        "attempt to call",
    ),
    (
        "return os.execute('true')",
        "nonexistent global variable 'os'",
    ),
    (
        "return io.open('/etc/passwd')",
        "nonexistent global variable 'io'",
    ),
    (
        "return require('os')",
        "nonexistent global variable 'require'",
    ),
    (
        "return dofile('/etc/passwd')",
        "nonexistent global variable 'dofile'",
    ),
    (
        "return debug.getinfo(1)",
        "nonexistent global variable 'debug'",
    ),
    (
        "return package.path",
        "nonexistent global variable 'package'",
    ),
    ("return getfenv(0)", "nonexistent global variable 'getfenv'"),
    (
        "return newproxy(true)",
        "nonexistent global variable 'newproxy'",
    ),
];

fn hostile_scripts_end(engine: Engine) {
    let mut server = start(engine, &["--script-time", "100ms", "--script-memory", "8m"]);
    let mut client = connect(&server);
    for (script, expected) in HOSTILE {
        assert_error(&mut client, script, expected);
        // On a busy machine a script may spend its time before it begins.
        let reply = loop {
            let reply = eval(&mut client, "return {KEYS[1], ARGV[2]}");
            if reply.first() != Some(&b'-') {
                break reply;
            }
        };
        assert_eq!(show(&reply), show(b"*2\r\n$1\r\nk\r\n$2\r\n17\r\n"));
    }
    drop(client);
    server.assert_well();
}

fn large_scripts_are_executed(engine: Engine) {
    let server = start(engine, &["--script-time", "60s"]);
    let mut client = connect(&server);
    let deep = "local t = 1 for _ = 1, 200 do t = {t} end return t";
    assert_reply(&mut client, deep, &("*1\r\n".repeat(200) + ":1\r\n"));
    let keys: Vec<String> = (0..10_000).map(|number| format!("key{number}")).collect();
    let mut words = vec!["EVAL", "return #KEYS + #ARGV", "10000"];
    words.extend(keys.iter().map(String::as_str));
    client.ask(request(&words), ":10000\r\n");
}

fn a_script_leaves_nothing_behind(engine: Engine) {
    let server = start(engine, &["-t", "1"]);
    let mut client = connect(&server);
    let changes = [
        "string.x = 1",
        "x = 1",
        "_G.x = 1",
        "rawset(_G, 'x', 1)",
        "rawset(string, 'x', 1)",
        "setmetatable(_G, {__index = function() return 1 end})",
        "getmetatable(_G).__index = function() return 1 end",
        "getmetatable('').__index = function() return 1 end",
        "getmetatable('').__add = function() return 1 end",
        "redis.call = function() return 1 end",
        "table.insert(_G, 1)",
        "table.insert(string, 1)",
        "table.insert(getmetatable(''), 1)",
        "for _, name in ipairs({'string', 'math', 'cjson'}) do table.insert(_G[name], 'x') end",
        "local _, t = pairs(string) t.x = 1",
        "KEYS.x = 1 ARGV.x = 1 _G.KEYS.x = 1",
        "cjson.encode_max_depth(1)",
        "redis.setresp(3)",
        "math.randomseed(5) math.random()",
        "collectgarbage('stop')",
    ];
    let state = "local names = {} \
        for _, t in ipairs({string, table, math, redis, _G, cjson, bit, getmetatable('')}) do \
            for k in pairs(t) do names[#names + 1] = tostring(k) end \
            names[#names + 1] = tostring(rawget(t, 1)) .. tostring(rawget(t, 'x')) \
        end \
        table.sort(names) \
        return {table.concat(names, ' '), KEYS.x or 'none', ARGV.x or 'none', \
            cjson.encode({{{1}}}), ('x'):upper(), redis.call('get', KEYS[1])}";
    let before = eval(&mut client, state);
    assert!(before.starts_with(b"*6\r\n"), "{}", show(&before));
    for script in changes {
        eval(&mut client, &format!("pcall(function() {script} end)"));
        eval(&mut client, script);
        assert_eq!(show(&eval(&mut client, state)), show(&before), "{script}");
    }
}

fn scripts_are_executed_in_transactions(engine: Engine) {
    let server = start(engine, &[]);
    let (mut client, mut other) = (connect(&server), connect(&server));
    client.ask(request(&["MULTI"]), "+OK\r\n");
    client.ask(request(&["SET", "n", "5"]), "+QUEUED\r\n");
    client.ask(request(&["EVAL", INCREMENT, "1", "n"]), "+QUEUED\r\n");
    client.ask(
        request(&["EVAL", "return redis.call('get', 'm')", "0"]),
        "+QUEUED\r\n",
    );
    client.ask(request(&["GET", "n"]), "+QUEUED\r\n");
    other.ask(request(&["GET", "n"]), "$-1\r\n");
    client.send(&request(&["EXEC"]));
    client.expect("*4\r\n+OK\r\n:5\r\n-ERR the command needs keys");
    client.read_until(b"\r\n");
    client.expect("$1\r\n6\r\n");
    // A script changes a key that another client watches.
    client.ask(request(&["WATCH", "n"]), "+OK\r\n");
    other.ask(request(&["EVAL", INCREMENT, "1", "n"]), ":6\r\n");
    client.ask(
        [request(&["MULTI"]), request(&["EXEC"])].concat(),
        "+OK\r\n*-1\r\n",
    );
}

/// Waits until the server has an answer other than that nothing runs.
fn kill(client: &mut Client) -> Vec<u8> {
    loop {
        let reply = ask(client, &["SCRIPT", "KILL"]);
        if !reply.starts_with(b"-NOTBUSY") {
            return reply;
        }
        thread::yield_now();
    }
}

/// Two clients of different loops.
fn clients_of_two_loops(server: &TestServer) -> [Client; 2] {
    // Connections go to the loop with the fewest; each counts after its first reply.
    [(); 2].map(|()| {
        let mut client = connect(server);
        ask(&mut client, &["PING"]);
        client
    })
}

fn a_script_of_another_loop_is_killed(engine: Engine) {
    let server = start(engine, &["-t", "2", "--script-time", "60s"]);
    let [mut one, mut other] = clients_of_two_loops(&server);
    other.ask(
        request(&["SCRIPT", "KILL"]),
        "-NOTBUSY No scripts in execution right now.\r\n",
    );
    one.send(&request(&["EVAL", "while true do end", "0"]));
    assert_eq!(show(&kill(&mut other)), show(b"+OK\r\n"));
    one.expect("-ERR Script killed by user with SCRIPT KILL.");
    one.read_until(b"\r\n");
    // One that has written goes on, until another key tells it to end.
    let script = "redis.call('set', KEYS[1], 1) \
        local t = redis.call('time') local s = t[1] * 1e6 + t[2] \
        repeat t = redis.call('time') until t[1] * 1e6 + t[2] > s + 300000 return 'done'";
    one.send(&request(&["EVAL", script, "1", "k"]));
    loop {
        // Before it has written it can be killed, and then it runs again.
        let reply = kill(&mut other);
        if reply.starts_with(b"-UNKILLABLE") {
            break;
        }
        one.read_until(b"\r\n");
        one.send(&request(&["EVAL", script, "1", "k"]));
    }
    one.expect("$4\r\ndone\r\n");
}

fn the_time_of_a_transaction_is_that_of_all_its_scripts(engine: Engine) {
    let server = start(engine, &["--script-time", "100ms"]);
    let mut client = connect(&server);
    client.ask(request(&["MULTI"]), "+OK\r\n");
    for _ in 0..200 {
        let requests = request(&["EVAL", "while true do end", "0"]);
        client.ask(requests, "+QUEUED\r\n");
    }
    client.send(&request(&["EXEC"]));
    client.expect("*200\r\n");
    for _ in 0..200 {
        let line = client.read_until(b"\r\n");
        let line = String::from_utf8_lossy(&line);
        assert!(line.contains("time limit"), "{line}");
    }
}
