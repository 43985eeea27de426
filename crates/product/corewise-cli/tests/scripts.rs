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
    large_scripts_are_executed
    a_reply_that_is_too_long_is_an_error
    a_script_leaves_nothing_behind
    scripts_are_executed_in_transactions
    a_script_of_another_loop_is_killed
    the_time_of_a_transaction_is_that_of_all_its_scripts
    the_time_of_a_script_begins_before_it_is_compiled
}

/// Sends a request, and returns its reply.
fn ask(client: &mut Client, words: &[&str]) -> Vec<u8> {
    ask_each(client, &[words])
}

/// Sends requests, and returns their replies.
fn ask_each(client: &mut Client, requests: &[&[&str]]) -> Vec<u8> {
    const END: &[u8] = b"$8\r\nthe end.\r\n";
    let requests: Vec<u8> = requests.iter().flat_map(|words| request(words)).collect();
    client.send(&[requests, request(&["ECHO", "the end."])].concat());
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

/// Calls of the libraries with what is drawn: `@S` a text, `@N` a number, `@P` a pattern, `@R` a
/// replacement, `@V` any value, `@T` a table, `@F` a format, `@J` a text in JSON, `@M` one in
/// MessagePack, `@O` an operation of `bit`, `@A` an operator.
const CALLS: &[&str] = &[
    "string.find(@S,@P)",
    "string.find(@S,@P,@N)",
    "string.find(@S,@S,@N,true)",
    "string.match(@S,@P)",
    "string.match(@S,@P,@N)",
    "string.gsub(@S,@P,@R)",
    "string.gsub(@S,@P,@R,@N)",
    "string.gsub(@S,@P,{a='z',b=1})",
    "string.gsub(@S,@P,function(x,y) return y end)",
    "string.gsub(@S,@P,function(x) return x .. x end)",
    "string.gsub(@S,@P,function(x) return {} end)",
    "(function() local t = {} for x, y in string.gmatch(@S,@P) do \
        t[#t + 1] = tostring(x) .. tostring(y) end return table.concat(t, '|') end)()",
    "string.rep(@S,3)",
    "string.rep(@S,'2')",
    "string.sub(@S,@N,@N)",
    "string.byte(@S,@N,@N)",
    "string.char(@N,@N)",
    "string.upper(@V)",
    "string.reverse(@S)",
    "string.format(@F,@V,@V)",
    "tonumber(@V)",
    "tonumber(@S,16)",
    "tostring(@N)",
    "cjson.encode(@V)",
    "cjson.encode({@V,@V})",
    "cjson.decode(@J)",
    "cjson.encode(cjson.decode(@J))",
    "cmsgpack.pack(@V,@V)",
    "cmsgpack.unpack(@M)",
    "cjson.encode({cmsgpack.unpack(@M)})",
    "cmsgpack.unpack_one(@M,@N)",
    "cmsgpack.unpack_limit(@M,@N,@N)",
    "bit.@O(@N,@N)",
    "bit.@O(@V)",
    "math.floor(@N)",
    "math.fmod(@N,@N)",
    "table.concat(@T,@S)",
    "table.concat(@T,@S,1,2)",
    "(function() local t = @T table.insert(t,@V) table.insert(t,2,@V) return t end)()",
    "(function() local t = @T return {table.remove(t,2),table.remove(t),t} end)()",
    "(function() local t = @T table.sort(t) return t end)()",
    "(function() local t = @T table.foreachi(t, function(i, v) if i == 2 then return v end end) end)()",
    "table.maxn(@V)",
    "unpack(@T)",
    "select(@N,@V,@V)",
    "pcall(error,@S)",
    "error(@S)",
    "error(@S,2)",
    "assert(@V,@S)",
    "redis.sha1hex(@V)",
    "redis.error_reply(@V)",
    "redis.status_reply(@V)",
    "redis.pcall(@S,KEYS[1],@V)",
    "redis.pcall('set',KEYS[1],@V)",
    "redis.pcall('get',KEYS[1])",
    "type(@V)",
    "@V @A @V",
    "setmetatable({},{__index=function(t, k) return k end})[@S]",
    "next(@T)",
    "rawset({},@V,@V)",
];

#[rustfmt::skip]
const DRAWN: &[(char, &[&str])] = &[
    ('S', &["''", "'a'", "'abc'", "'hello world'", "'  12 '", "'0x1f'", "'1e3'", "'-7'", "'aXbXc'",
        "'k=v, k2=v2'", "'\\0a\\0'", "'((a)(b))'", "'nan'", "'\\255\\n'", "'a.b-c'", "'%d'"]),
    ('N', &["0", "1", "2", "3", "-1", "-2", "1.5", "100", "-0.5", "2^31", "2^53", "1e15", "1e100",
        "0/0", "1/0", "-1/0", "255", "65536", "'7'"]),
    ('P', &["'a'", "'%a+'", "'(%w+)=(%w+)'", "'.-b'", "'^a'", "'b$'", "'[a-c]+'", "'[^X]*'", "'%s*'",
        "'()'", "'(a)(b)'", "'%b()'", "'%f[%w]%w+'", "'.'", "'a*'", "''", "'[%]x]'", "'('", "'%'",
        "'[a'", "'x?'", "'%1'", "'(.)%1'", "'^'", "'[]x]'", "'%f'", "'[a-]'", "'a(b)()'"]),
    ('R', &["'x'", "'%0'", "'%1%1'", "'<%0>'", "'%2'", "'%'", "'%%'", "''", "7"]),
    ('F', &["'%d'", "'%s'", "'%5.2f'", "'%q'", "'%x'", "'%g'", "'%-5s|'", "'%c'", "'%05d'", "'%e'",
        "'%s %s'", "'%u'", "'%'", "'%y'", "'%10.4s'", "'%+d'", "'%.3s'", "'%999d'"]),
    ('V', &["@S", "@S", "@N", "@N", "true", "false", "nil", "cjson.null", "@T"]),
    ('T', &["{}", "{@V}", "{@V,@V}", "{@N,@N,@N}", "{@S,@S,@S}", "{k=@V}", "{@S,k=@V}", "{[3]=@V}"]),
    ('J', &["'[@j,@j]'", "'{\"a\":@j,\"b\":@j}'", "'@j'", "'@j x'", "'[@j'", "'{\"a\" @j}'"]),
    ('j', &["1", "-1", "01", "+1", ".5", "1.", "1e3", "0x10", "nan", "Infinity", "-", "1e400", "\"a\"",
        "\"\\\\u00e9\"", "\"\\\\ud83d\\\\ude00\"", "\"\\\\ud800\"", "\"\\\\x\"", "\"a", "true", "nul",
        "null", "[]", "{}", "[@j,@j]", "{\"k\":@j}"]),
    ('M', &["cmsgpack.pack(@V,@V)", "'\\@m\\@m\\@m\\@m'", "'\\@m\\@m\\@m\\@m\\@m\\@m\\@m\\@m\\@m\\@m'"]),
    ('m', &["000", "001", "127", "128", "129", "130", "145", "146", "161", "163", "192", "194", "195",
        "196", "202", "203", "204", "205", "206", "207", "208", "209", "210", "211", "217", "220", "222",
        "224", "255"]),
    ('O', &["band", "bor", "bxor", "lshift", "rshift", "arshift", "rol", "ror", "tohex", "bnot", "bswap"]),
    ('A', &["+", "-", "*", "/", "%", "..", "==", "<", "^", "and", "or"]),
];

impl Scripts {
    /// Replaces the letters behind `@` by what is drawn.
    fn expand(&mut self, template: &str, depth: usize) -> String {
        let mut parts = template.split('@');
        let mut text = parts.next().unwrap_or("").to_owned();
        for part in parts {
            let (_, all) = DRAWN
                .iter()
                .find(|(name, _)| part.starts_with(*name))
                .unwrap();
            // The last ones contain others.
            let all = if depth > 3 {
                &all[..all.len().min(4)]
            } else {
                all
            };
            let drawn = self.one_of(all);
            text += &self.expand(&drawn, depth + 1);
            text += &part[1..];
        }
        text
    }

    fn library_call(&mut self) -> String {
        let template = self.one_of(CALLS);
        self.expand(&template, 0)
    }

    fn script_with_libraries(&mut self) -> String {
        let call = self.library_call();
        match self.0.random_range(0..4) {
            0 => format!("local r = {{{call}}} return r"),
            1 => format!(
                "local r = {{pcall(function() local a, b = {call} return a, b end)}} return r"
            ),
            2 => format!("local a, b, c = {call} return {{type(a), a, b, c}}"),
            _ => format!(
                "local a = {call} local b = {} return {{a, b}}",
                self.library_call()
            ),
        }
    }
}

#[test]
fn random_calls_of_libraries_agree_with_redis() {
    // The engine has no part in it.
    Engine::run_of_corewise(Engine::TESTED[0], |engine| {
        let server = start(engine, &["--script-keys", "all", "--script-time", "60s"]);
        let Some(redis) = Redis::start() else {
            return skip("redis-server is not installed");
        };
        let mut scripts = Scripts(Xoshiro256PlusPlus::seed_from_u64(engine.seed(11)));
        let (mut ours, mut theirs) = (connect(&server), redis.connect());
        for _ in 0..if is_short() { 300 } else { 3_000 } {
            let script = scripts.script_with_libraries();
            let (our_reply, their_reply) = (eval(&mut ours, &script), eval(&mut theirs, &script));
            assert_eq!(show(&our_reply), show(&their_reply), "{script}");
        }
    });
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
    // No hook is called while the error of a hook is handled.
    (
        "local function loop() while true do end end xpcall(loop, loop)",
        BOUND,
    ),
    (
        "local function loop() while true do end end \
         while true do pcall(coroutine.wrap(function() xpcall(loop, loop) end)) end",
        BOUND,
    ),
    // No coroutine executes as many instructions as are between two looks at the time.
    (
        "local function f(n) if n > 0 then for _ = 1, 2 do coroutine.wrap(f)(n - 1) end end end f(150)",
        BOUND,
    ),
    (
        "local function f(n) if n > 0 then for _ = 1, 2 do \
         coroutine.resume(coroutine.create(f), n - 1) end end end f(150)",
        BOUND,
    ),
    (
        "local t = setmetatable({}, {__index = function(t, k) \
         return k > 90 and 1 or t[k + 1] + t[k + 1] end}) \
         return t[1]",
        BOUND,
    ),
    (
        "local t = setmetatable({}, {__tostring = function() while true do end end}) \
         while true do pcall(tostring, t) end",
        BOUND,
    ),
    (
        "while true do pcall(string.gsub, 'a', 'a', function() while true do end end) end",
        BOUND,
    ),
    ("while true do load(function() return ' ' end) end", BOUND),
    (
        "while true do pcall(loadstring('while true do end')) end",
        BOUND,
    ),
    // To compile a text takes a time in proportion to the square of its length.
    (
        "return type(loadstring('while 1 do ' .. ('do break end '):rep(8e4) .. 'end'))",
        BOUND,
    ),
    (
        "return type(loadstring('return ' .. ('a and '):rep(16e4) .. 'a'))",
        BOUND,
    ),
    (
        "return loadstring(('x'):rep(2e6))()",
        "attempt to call a nil value",
    ),
    // One call of a function in C takes long.
    ("table.insert({}, -2^31 + 9, 1)", "position out of bounds"),
    (
        "local t = {} for i = 1, 1e5 do t[i] = i end \
         while true do table.insert(t, 1, 1) table.remove(t, 1) end",
        BOUND,
    ),
    (
        "local s, t = ('x'):rep(2e6), {} for i = 1, 1e4 do t[i] = s end table.sort(t)",
        BOUND,
    ),
    (
        "local s, t = ('x'):rep(2e6), {} for i = 1, 1e4 do t[i] = s end table.sort(t, string.find)",
        BOUND,
    ),
    (
        "local s, t = ('x'):rep(1e6), {} for i = 1, 1e5 do t['%s' .. i] = s end \
         table.foreach(t, function(k, v) string.format(k, v) end)",
        BOUND,
    ),
    (
        "local s, t = ('x'):rep(1e6), {} for i = 1, 4e4 do t['%s' .. i] = s end \
         while true do table.foreach(t, string.len) end",
        BOUND,
    ),
    // Sets, and captures that are compared, take as long as they are.
    (
        "return ('a'):rep(1e4):find('[' .. ('b'):rep(2e6) .. 'a]*c')",
        BOUND,
    ),
    (
        "return ('a'):rep(1e4):find('%f[' .. ('b'):rep(2e6) .. ']')",
        BOUND,
    ),
    ("return ('x'):rep(2e6):find('(x*)%1%1%1%1b')", BOUND),
    (
        "local s = ('x'):rep(2e6) while true do redis.sha1hex(s) end",
        BOUND,
    ),
    ("return cjson.decode('[' .. ('1,'):rep(2e6) .. '1]')", BOUND),
    (
        "local s = '[' .. ('1,'):rep(1e4) .. '1]' while true do pcall(cjson.decode, s) end",
        BOUND,
    ),
    (
        "local s = ('\\1'):rep(2e6) return cjson.encode({s, s, s})",
        BOUND,
    ),
    (
        "return cmsgpack.unpack('\\221\\0\\127\\127\\127' .. ('\\1'):rep(2e6))",
        BOUND,
    ),
    (
        "return cmsgpack.unpack(('\\1'):rep(1e5))",
        "stack overflow (in function mp_unpack_full)",
    ),
    // What has no memory left is not caught, and leaves nothing behind.
    (
        "local t = {} while true do pcall(function() while true do t[#t + 1] = {} end end) end",
        BOUND,
    ),
    (
        "while true do pcall(string.rep, 'x', 2^31 - 1) end",
        "not enough memory",
    ),
    (
        "local s, t = ('x'):rep(2e6), {} for i = 1, 7000 do t[i] = s end \
         return redis.call('mset', unpack(t))",
        "exceed the memory of the script",
    ),
    (
        "local t = {} for i = 1, 7995 do t[i] = 'k' end \
         while true do pcall(redis.call, 'mget', unpack(t)) end",
        "stack overflow",
    ),
    ("error(('x'):rep(2e6))", "xxx"),
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
    // A thread's stack is not the bound of what is called by C or Rust.
    (
        "local function f() coroutine.wrap(f)() end f()",
        "C stack overflow",
    ),
    (
        "local function f() error(select(2, coroutine.resume(coroutine.create(f))), 0) end f()",
        "C stack overflow",
    ),
    (
        "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) return t[1]",
        "C stack overflow",
    ),
    (
        "local t t = setmetatable({}, {__tostring = function() return tostring(t) end}) tostring(t)",
        "C stack overflow",
    ),
    (
        "return loadstring('return ' .. ('('):rep(1e5))()",
        "attempt to call a nil value",
    ),
    (
        "local t = {} for _ = 1, 1e4 do t = {t} end return cjson.encode(t)",
        "excessive nesting",
    ),
    (
        "return cmsgpack.unpack(('\\145'):rep(1e5))",
        "Bad data format",
    ),
    // Only Lua's own error about memory ends a script.
    (
        "local ok, e = pcall(error, 'not enough memory', 0) error('caught ' .. e)",
        "caught not enough memory",
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

/// The processor time that a server has taken.
fn processor_time_s(client: &mut Client) -> f64 {
    let info = String::from_utf8_lossy(&ask(client, &["INFO", "cpu"])).into_owned();
    let fields = info.lines().filter_map(|line| line.split_once(':'));
    let used = fields.filter(|(name, _)| ["used_cpu_user", "used_cpu_sys"].contains(name));
    used.map(|(_, seconds)| seconds.parse::<f64>().unwrap())
        .sum()
}

/// What a hostile script may take without optimization; without bounds it takes a minute or more,
/// or gigabytes.
const MOST_PROCESSOR_TIME_S: f64 = 8.0;
const MOST_MEMORY_KIB: u64 = 128 << 10;

#[test]
fn hostile_scripts_end() {
    // The engine has no part in it.
    Engine::run_of_corewise(Engine::TESTED[0], |engine| {
        run_hostile(engine, "100ms", |expected| expected == BOUND);
        run_hostile(engine, "60s", |expected| expected != BOUND);
    });
}

/// Runs the hostile scripts that are chosen by what is expected of them.
fn run_hostile(engine: Engine, time: &str, is_chosen: fn(&str) -> bool) {
    let mut server = start(engine, &["--script-time", time, "--script-memory", "8m"]);
    let mut client = connect(&server);
    let memory_before = server.rss_kib();
    for (script, expected) in HOSTILE {
        if !is_chosen(expected) {
            continue;
        }
        let before_s = processor_time_s(&mut client);
        assert_error(&mut client, script, expected);
        let taken_s = processor_time_s(&mut client) - before_s;
        assert!(taken_s < MOST_PROCESSOR_TIME_S, "{script}: {taken_s} s");
        // On a busy machine a script may spend its time before it begins.
        let reply = loop {
            let reply = eval(&mut client, "return {KEYS[1], ARGV[2]}");
            if reply.first() != Some(&b'-') {
                break reply;
            }
        };
        assert_eq!(show(&reply), show(b"*2\r\n$1\r\nk\r\n$2\r\n17\r\n"));
    }
    let memory = server.peak_rss_kib() - memory_before;
    assert!(memory < MOST_MEMORY_KIB, "{memory} KiB");
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
    // Functions that were made and forgotten leave room for others.
    let gmatch = "local n = 0 \
        for i = 1, 20000 do for _ in string.gmatch('x', '.') do n = n + 1 end end return n";
    assert_reply(&mut client, gmatch, ":20000\r\n");
    assert_reply(&mut client, "return string.rep('', 2^31 - 1)", "$0\r\n\r\n");
    let many = "local t = {} for i = 1, 7000 do t[i] = 'k' end \
        return #redis.call('mget', unpack(t)) + #{cmsgpack.unpack(('\\1'):rep(7000))}";
    assert_reply(&mut client, many, ":14000\r\n");
    // Garbage is collected before there is no memory left, although most of it is in long strings.
    let garbage = "redis.call('set', KEYS[1], ('x'):rep(1e6)) \
        local t = {} for i = 1, 10000 do t[i] = {i} end \
        for i = 1, 80 do local v = redis.call('get', KEYS[1]) .. i end \
        for i = 1, 3 do local v = ('x'):rep(4e7) .. '' end \
        return #t";
    assert_reply(&mut client, garbage, ":10000\r\n");
}

/// The replies to one command are bounded while it runs.
fn a_reply_that_is_too_long_is_an_error(engine: Engine) {
    let server = start(engine, &["-I", "2m", "--script-time", "60s"]);
    let mut client = connect(&server);
    let script = "redis.call('set', KEYS[1], ('x'):rep(1e6)) \
        local t = {} for i = 1, 200 do t[i] = KEYS[1] end \
        return #redis.call('mget', unpack(t))";
    assert_error(&mut client, script, "the reply of the command exceeds");
    let script = script.replace("200", "8");
    assert_reply(&mut client, &script, ":8\r\n");
    // It concerns the next commands and transactions in no way.
    let script = "redis.call('del', KEYS[1]) redis.call('zadd', KEYS[1], 1, 'a', 2, 'b') \
        local r = redis.pcall('zrandmember', KEYS[1], -20000000) \
        return {r.err and 1 or 0, #redis.call('zrange', KEYS[1], 0, -1), \
            #redis.call('zpopmin', KEYS[1]), redis.call('zcard', KEYS[1])}";
    assert_reply(&mut client, script, "*4\r\n:1\r\n:2\r\n:2\r\n:1\r\n");
    for value in ["V", "{V}", "{ok = V}", "{err = V}", "{big_number = V}"] {
        let script = format!("return {}", value.replace('V', "('x'):rep(3e7)"));
        assert_error(&mut client, &script, "the reply of the script exceeds");
    }
}

fn the_time_of_a_script_begins_before_it_is_compiled(engine: Engine) {
    let server = start(engine, &["--script-time", "100ms"]);
    let mut client = connect(&server);
    let script = format!("while 1 do {} end", "do break end ".repeat(80_000));
    let requests = [
        request(&["EVAL", &script, "0"]),
        request(&["SCRIPT", "LOAD", &script]),
    ];
    let expect = |client: &mut Client| {
        client.expect("-ERR Script exceeded its time limit");
        client.read_until(b"\r\n");
    };
    for request in &requests {
        client.send(request);
        expect(&mut client);
    }
    client.ask(request(&["MULTI"]), "+OK\r\n");
    for request in &requests {
        client.ask(request.clone(), "+QUEUED\r\n");
    }
    client.send(&request(&["EXEC"]));
    client.expect("*2\r\n");
    requests.iter().for_each(|_| expect(&mut client));
    let long = format!("return 1 --{}", "x".repeat(1 << 20));
    client.send(&request(&["EVAL", &long, "0"]));
    client.expect("-ERR Error compiling script");
    let line = client.read_until(b"\r\n");
    assert!(line.ends_with(b"too long\r\n"), "{}", show(&line));
}

/// An error that ends a script is cut.
#[test]
fn an_error_is_as_long_as_it_may_be() {
    Engine::run_of_corewise(Engine::TESTED[0], |engine| {
        let server = start(engine, &[]);
        let mut client = connect(&server);
        let reply = eval(&mut client, "error(('x'):rep(2e6))");
        assert!(reply.len() < 32 << 10, "{}", reply.len());
        assert!(reply.starts_with(b"-ERR user_script:1: xxx"));
    });
}

/// Without scripts, the replies are those of a Redis whose user may not run them.
#[test]
fn scripts_can_be_turned_off() {
    Engine::run_of_corewise(Engine::TESTED[0], |engine| {
        let server = start(engine, &["--disable-scripts"]);
        let mut client = connect(&server);
        let refused = "-NOPERM this user has no permissions to run the 'eval' command\r\n";
        client.ask(request(&["EVAL", "return 1", "0"]), refused);
        let Some(redis) = Redis::start() else {
            return skip("redis-server is not installed");
        };
        let mut theirs = redis.connect();
        ask(&mut theirs, &["ACL", "SETUSER", "default", "-@scripting"]);
        for words in [
            &["EVAL", "return 1", "0"][..],
            &["EVALSHA", "x", "0"],
            &["EVAL_RO", "return 1", "0"],
            &["SCRIPT", "LOAD", "return 1"],
            &["SCRIPT", "KILL"],
            &["EVAL", "return 1"],
            &["GET", "k"],
        ] {
            let (ours, theirs) = (ask(&mut client, words), ask(&mut theirs, words));
            assert_eq!(show(&ours), show(&theirs), "{words:?}");
        }
        let transaction: [&[&str]; 5] = [
            &["MULTI"],
            &["SET", "k", "v"],
            &["EVAL", "return 1", "0"],
            &["EXEC"],
            &["GET", "k"],
        ];
        let (ours, theirs) = (
            ask_each(&mut client, &transaction),
            ask_each(&mut theirs, &transaction),
        );
        assert_eq!(show(&ours), show(&theirs));
    });
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
