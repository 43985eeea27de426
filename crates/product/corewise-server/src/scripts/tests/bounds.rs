//! What scripts may take: looks at the clock while they run, and allocations that fail.

use crate::scripts::cache::Script;
use crate::scripts::run_state::RunState;
use crate::scripts::sandbox::Sandbox;
use crate::scripts::watchdog::Watchdog;
use crate::scripts::{Commands, HOOK_EVERY, Kill, MOST_WORK, Run, sha1};
use corewise_testkit::random::{fewer, is_short};
use corewise_wire::resp::{Request, Version};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use std::{hint, thread};

const MEMORY: usize = 16 << 20;

/// Answers `redis.call`. `redis.call('kill')` lets the script be killed soon.
struct Fake {
    watchdog: Rc<Watchdog>,
}

impl Commands for Fake {
    fn call(
        &mut self,
        request: Request<'_>,
        _version: Version,
        reply: &mut Vec<u8>,
    ) -> Result<(), String> {
        match request.name() {
            b"kill" => {
                let looks = &self.watchdog.looks;
                looks.kill_after(LOOKS, MOST_WITHOUT_LOOK);
                reply.extend_from_slice(b"+OK\r\n");
            }
            b"list" => reply.extend_from_slice(b"*3\r\n:1\r\n$-1\r\n$3\r\nabc\r\n"),
            _ => reply.extend_from_slice(b"+OK\r\n"),
        }
        Ok(())
    }
}

/// Looks at the clock before a script is killed that has begun.
const LOOKS: usize = 1_000;

fn sandbox() -> Sandbox {
    Sandbox::new(MEMORY, Arc::new(RunState::default())).unwrap()
}

fn parse(text: &str) -> Arc<Script> {
    Arc::new(Script::parse(sha1::hex(text.as_bytes()), text.as_bytes()).unwrap())
}

fn run(sandbox: &mut Sandbox, text: &str) -> String {
    let run = Run {
        script: &parse(text),
        keys: &[b"key"],
        args: &[b"a", b"17"],
        loop_index: 0,
        version: Version::Resp2,
        most: MEMORY,
    };
    let mut fake = Fake {
        watchdog: Rc::clone(sandbox.watchdog()),
    };
    let mut out = Vec::new();
    match sandbox.run(&run, None, &mut fake, &mut out) {
        Ok(()) => String::from_utf8_lossy(&out).into_owned(),
        Err(error) => format!("-{error}"),
    }
}

#[test]
fn who_is_told_that_a_script_is_killed_is_told_the_truth() {
    let state = Arc::new(RunState::default());
    let mut sandbox = Sandbox::new(MEMORY, Arc::clone(&state)).unwrap();
    let is_over = AtomicBool::new(false);
    let (kills, failures) = thread::scope(|threads| {
        let killer = threads.spawn(|| {
            let (mut kills, mut pause) = (0, 0);
            while !is_over.load(Relaxed) {
                kills += usize::from(state.kill() == Kill::Done);
                pause = (pause + 97) % 1_024;
                (0..pause).for_each(|_| hint::spin_loop());
            }
            kills
        });
        let is_killed = |text: &str| text.contains("killed by user");
        let mut failures = 0;
        for number in 0..fewer(3_000) {
            let text = format!("return {number}");
            match sandbox.load(&parse(&text), None) {
                Err(text) => failures += usize::from(is_killed(&text)),
                Ok(()) => failures += usize::from(is_killed(&run(&mut sandbox, &text))),
            }
        }
        is_over.store(true, Relaxed);
        (killer.join().unwrap(), failures)
    });
    assert_eq!(kills, failures);
}

/// The looks while an instruction is executed this number of times on a text of this length.
fn looks(instruction: &str, length: usize, times: usize) -> usize {
    let mut sandbox = sandbox();
    let text = format!(
        "local a, n = ('1'):rep({length}), 0 local b = a .. '1' {} return 7",
        format!("{instruction} ").repeat(times)
    );
    assert_eq!(run(&mut sandbox, &text), ":7\r\n", "{instruction}");
    sandbox.watchdog().looks.count()
}

#[test]
fn the_longer_texts_are_the_more_often_the_clock_is_read() {
    const TIMES: usize = 160;
    for instruction in [
        "n = a + 1",
        "n = a < b",
        "n = -a",
        "for _ = a, 0 do end",
        "n = #a",
        "n = a .. 1",
    ] {
        let short = looks(instruction, 100, TIMES);
        let least = TIMES / HOOK_EVERY as usize;
        assert!(
            (least..10 * least).contains(&short),
            "{instruction}: {short}"
        );
        let middle = looks(instruction, MOST_WORK / 8, TIMES);
        assert!(middle >= TIMES / 4, "{instruction}: {middle}");
    }
    let long = looks("n = a + 1", MEMORY / 5, TIMES);
    assert!(long >= TIMES / 2, "{long}");
}

/// The most processor time without a look. One function takes a second and more on such texts if it
/// reads them again and again.
const MOST_WITHOUT_LOOK: Duration = Duration::from_millis(250);

/// The names of all functions that a script sees.
fn functions() -> Vec<String> {
    let all = run(
        &mut sandbox(),
        "local names = {} \
         for name, value in pairs(_G) do \
             if type(value) == 'function' then names[#names + 1] = name end \
             if type(value) == 'table' and name ~= '_G' then \
                 for inner, f in pairs(value) do \
                     if type(f) == 'function' then names[#names + 1] = name .. '.' .. inner end \
                 end \
             end \
         end \
         table.sort(names) return table.concat(names, ' ')",
    );
    let names = all.lines().nth(1).unwrap_or("");
    names.split(' ').map(str::to_owned).collect()
}

/// Long arguments. `kill` comes before the first call, and the script does not end by itself.
const SWEEP: &str = "
local S, T, U = ('x'):rep(1e6), {}, {}
local N = (' '):rep(1e6) .. '1'
for i = 1, 1e4 do T[i] = i U[i] = 'text' .. i % 7 end
local F = function() return 1 end
local M = setmetatable({}, {__index = function(t, k) return k end, __tostring = function() return S end})
local J = '[' .. ('1,'):rep(4e5) .. '1]'
local P = '\\221\\0\\6\\0\\0' .. ('\\1'):rep(4e5)
local L = {}
for i = 1, 2e3 do L[i] = N end
local lists = {
    L, {('%d'):rep(#L - 1), unpack(L, 2)}, {0, unpack(L, 2)}, {L},
    {S}, {T}, {U}, {F}, {M}, {J}, {P}, {S, S}, {T, S}, {S, T}, {U, S}, {S, 1}, {T, 1}, {U, ''},
    {T, 1, 1}, {1e4, S}, {1e6, 1e6}, {2^31, 2^31}, {F, F}, {F, S}, {T, F}, {U, F}, {M, 1}, {S, 'x', S},
    {S, 'x', 'y'}, {S, 'x', F}, {S, 'x', T}, {S, 'x-', ''}, {'%s%s', S, S}, {'%q', S}, {'get', S, S},
    {T, ',', 1, 1e4}, {T, -2^31, 2^31 - 1}, {S, 2, -1}, {S, -1e6, 1e6}, {J, 1, 1}, {P, 1, 1},
    {S, '.-.-.-.-.-y'}, {S, '(x*)%1%1y'}, {S, '[^y]*y', 'z'},
}
redis.call('kill')
while true do
    for i = 1, #lists do
        pcall(NAME, unpack(lists[i]))
    end
end";

#[test]
fn no_function_keeps_a_script_from_being_killed() {
    let names = functions();
    assert!(names.len() > 80, "{names:?}");
    let mut slow = Vec::new();
    let mut most = Duration::ZERO;
    for name in names {
        let mut sandbox = sandbox();
        let reply = run(&mut sandbox, &SWEEP.replace("NAME", &name));
        let is_expected = ["killed", "not enough memory", "stack overflow"]
            .iter()
            .any(|end| reply.contains(end));
        let names_script = reply.contains(" script: ");
        assert!(is_expected && names_script, "{name}: {reply}");
        let longest = sandbox.watchdog().looks.longest();
        most = most.max(longest);
        if longest > MOST_WITHOUT_LOOK {
            slow.push((name, longest));
        }
    }
    println!("at most {most:?} without a look at the clock");
    assert!(slow.is_empty(), "{slow:?}");
}

#[test]
fn each_call_of_maxn_reads_the_clock() {
    let mut sandbox = sandbox();
    let text = "local t = {1} for _ = 1, 100 do table.maxn(t) end return 7";
    assert_eq!(run(&mut sandbox, text), ":7\r\n");
    assert!(sandbox.watchdog().looks.count() >= 100);
}

#[test]
fn compiled_scripts_are_bounded_by_their_bytes() {
    let mut sandbox = sandbox();
    sandbox.collect();
    let before = sandbox.left();
    let longest = MEMORY / 16 / 8;
    let text = |number: usize, len: usize| {
        let text = format!("local f = function() return {number} end return 7 --");
        let statements = "x() ".repeat((len - text.len() - 40) / 4);
        let text = format!("do {text}\nend if nil then {statements} end");
        format!("{text}{}", " ".repeat(len - text.len()))
    };
    let mut most = 0;
    for number in 0..100 {
        assert_eq!(run(&mut sandbox, &text(number, longest / 8)), ":7\r\n");
        most = most.max(sandbox.compiled());
        sandbox.collect();
        let left = sandbox.left().saturating_sub(before);
        assert!(left <= MEMORY / 8, "{left} bytes after {number} scripts");
    }
    assert_eq!(most, 8);
    let kept = sandbox.compiled();
    assert_eq!(run(&mut sandbox, &text(100, longest + 1)), ":7\r\n");
    assert_eq!(sandbox.compiled(), kept);
    sandbox.follow_flushes(1);
    assert_eq!(sandbox.compiled(), 0);
    assert!(sandbox.is_clean());
}

#[test]
fn the_clock_is_read_while_keys_are_copied() {
    let mut sandbox = sandbox();
    let script = Arc::new(Script::parse(sha1::hex(b"return 7"), b"return 7").unwrap());
    let keys = vec![&b"key"[..]; 100_000];
    let run = Run {
        script: &script,
        keys: &keys,
        args: &keys,
        loop_index: 0,
        version: Version::Resp2,
        most: MEMORY,
    };
    let mut fake = Fake {
        watchdog: Rc::clone(sandbox.watchdog()),
    };
    let mut out = Vec::new();
    sandbox.run(&run, None, &mut fake, &mut out).unwrap();
    assert_eq!(out, b":7\r\n");
    let looks = sandbox.watchdog().looks.count();
    assert!(looks >= 2 * keys.len() / 256, "{looks}");
}

/// Scripts that allocate in all libraries, and their replies.
const ALLOCATING: &[(&str, &str)] = &[
    (
        "return {1, 'two', {3}}",
        "*3\r\n:1\r\n$3\r\ntwo\r\n*1\r\n:3\r\n",
    ),
    ("return #redis.call('list')", ":3\r\n"),
    ("return redis.pcall('set', KEYS[1], 1.5)", "+OK\r\n"),
    (
        "return cjson.encode(cjson.decode('{\"a\":[1,{\"b\":\"c\"}]}'))",
        "$19\r\n{\"a\":[1,{\"b\":\"c\"}]}\r\n",
    ),
    (
        "return cmsgpack.unpack(cmsgpack.pack({1, {2, 'x'}}))[2]",
        "*2\r\n:2\r\n$1\r\nx\r\n",
    ),
    (
        "return (('hello world'):gsub('o', '0'))",
        "$11\r\nhell0 w0rld\r\n",
    ),
    (
        "return (('hello'):gsub('l', function(c) return c:upper() end))",
        "$5\r\nheLLo\r\n",
    ),
    (
        "local n = 0 for a, b in ('k=v, l=w'):gmatch('(%w)=(%w)') do n = n + 1 end return n",
        ":2\r\n",
    ),
    ("return select(2, pcall(error, 'x'))", "$1\r\nx\r\n"),
    (
        "return select(2, xpcall(function() error('x', 0) end, function(e) return e .. 'y' end))",
        "$2\r\nxy\r\n",
    ),
    (
        "return coroutine.wrap(function(a) return a .. 'b' end)('a')",
        "$2\r\nab\r\n",
    ),
    ("return loadstring('return ' .. 7)()", ":7\r\n"),
    (
        "local t = {3, 1, 2} table.sort(t) return table.concat(t, ',')",
        "$5\r\n1,2,3\r\n",
    ),
    (
        "return redis.sha1hex('a')",
        "$40\r\n86f7e437faa5a7fce15d1ddcb9eaeaea377667b8\r\n",
    ),
    ("return redis.error_reply('E x')", "-E x\r\n"),
    (
        "return string.format('%5.1f|%s|%q', 1.25, 'a', 'b')",
        "$11\r\n  1.2|a|\"b\"\r\n",
    ),
    (
        "return bit.tohex(255) .. tostring(math.random(5) > 0)",
        "$12\r\n000000fftrue\r\n",
    ),
];

/// Each allocation of a script fails once, in steps that are shorter than any of Lua's objects.
#[test]
fn a_script_ends_well_wherever_an_allocation_fails() {
    const STEP: usize = 24;
    for (text, expected) in ALLOCATING {
        let is_well = |reply: &str| reply == *expected;
        let mut ended = 0;
        let mut left = 0;
        while ended < 3 {
            let mut sandbox = sandbox();
            sandbox.leave(left);
            let reply = run(&mut sandbox, text);
            assert!(
                is_well(&reply) || reply.contains("not enough memory"),
                "{text}, {left}: {reply}"
            );
            ended += usize::from(is_well(&reply));
            assert!(left < 1 << 20, "{text}");
            if sandbox.is_clean() {
                sandbox.leave(MEMORY);
                let again = run(&mut sandbox, text);
                assert!(is_well(&again), "{text}, {left}: {again}");
            }
            left += if is_short() { 8 * STEP } else { STEP };
        }
    }
}
