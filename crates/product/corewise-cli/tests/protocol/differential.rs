//! Random conversations, also held with memcached: the replies must be the same, byte for byte.
//!
//! A script consists of a few phases. Each phase is sent on a new connection whose sending side is
//! then closed, so that a request with a wrong length swallows at most the rest of its phase.
//! Between phases the cas values are looked up for requests that need one. Before replies are
//! compared, legitimate differences are masked: cas values, sizes in memory, seconds that have
//! passed.
//!
//! `COREWISE_DIFFERENTIAL_SEED` and `COREWISE_DIFFERENTIAL_SCRIPTS` select other conversations.

use std::fmt::Write as _;

use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::common::{Engine, Kind, TestServer, show, skip};

const SEED: u64 = 0x5eed;
const SCRIPTS: u64 = 400;
/// memcached changes a counter in place only while nothing else holds the item. Otherwise it
/// replaces the item, which is visible: no padding, no fetched bit. So its background threads are
/// turned off, and it writes its replies, which hold items, after every second request; every other
/// request is [`BETWEEN`]. It has one worker: with several, one may still hold an item after it has
/// written the reply, while another one already serves the next connection.
const CALM: [&str; 6] = [
    "-t",
    "1",
    "-o",
    "no_lru_maintainer,no_lru_crawler",
    "-R",
    "1",
];
/// Follows every request.
const BETWEEN: &str = "mn\r\n";
const KEYS: [&str; 4] = ["a", "b", "c", "n"];
// No counter comes near 2^63: memcached 1.6.18 would also look for a minus sign behind the number.
const VALUES: [&str; 9] = [
    "",
    "x",
    "0",
    "7",
    "10",
    "99",
    "4294967296",
    "two words",
    "é\0\n",
];

/// Placeholder for the cas value that the key had before the phase.
const CAS_OF: &str = "@cas-";
/// Placeholder for a name unique to the script, so that scripts do not see each other's keys.
const SCRIPT: &str = "@script";

type Random = Xoshiro256PlusPlus;
type Phase = Vec<String>;

for_every_engine! {
    random_conversations_are_answered_as_by_memcached
}

fn random_conversations_are_answered_as_by_memcached(engine: Engine) {
    if !Kind::memcached_is_installed() {
        return skip("memcached is not installed");
    }
    let seed = from_environment("COREWISE_DIFFERENTIAL_SEED", SEED);
    let scripts = from_environment("COREWISE_DIFFERENTIAL_SCRIPTS", SCRIPTS);
    let servers = [TestServer::of(Kind::Memcached, &CALM), engine.with(&CALM)];
    let mut random = Random::seed_from_u64(seed);
    for number in 0..scripts {
        let script = random_script(&mut random);
        let replies = both(&servers, &script);
        if replies[0] != replies[1] {
            let first = describe(&script, replies);
            let minimal = minimise(&servers, script);
            let replies = both(&servers, &minimal);
            let minimal = describe(&minimal, replies);
            panic!("seed {seed}, script {number}:\n{first}\nand at its shortest:\n{minimal}");
        }
    }
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect(name))
}

fn random_script(random: &mut Random) -> Vec<Phase> {
    (0..3)
        .map(|_| {
            let length = random.random_range(1..25);
            (0..length).map(|_| random_request(random)).collect()
        })
        .collect()
}

fn pick<'a>(random: &mut Random, choices: &[&'a str]) -> &'a str {
    choices.choose(random).unwrap()
}

fn random_key(random: &mut Random) -> String {
    format!("{SCRIPT}{}", pick(random, &KEYS))
}

/// A cas value that is too large, or that `key` had at the beginning of the phase: other values
/// would test nothing.
fn random_cas(random: &mut Random, key: &str) -> String {
    match random.random_range(0..4) {
        0 => "99999999999".into(),
        _ => format!("{CAS_OF}{key}"),
    }
}

/// Occasionally replaces a sound argument by a broken one.
fn broken(random: &mut Random, sound: String) -> String {
    if random.random_range(0..60) > 0 {
        return sound;
    }
    pick(
        random,
        &["", "-1", "x", "18446744073709551616", "1 1", "noreply"],
    )
    .into()
}

fn random_request(random: &mut Random) -> String {
    match random.random_range(0..100) {
        0..20 => random_store(random),
        20..35 => random_retrieval(random),
        35..50 => random_change(random),
        50..65 => random_meta_get(random),
        65..80 => random_meta_set(random),
        80..87 => random_meta_delete(random),
        87..94 => random_meta_arithmetic(random),
        94..98 => format!(
            "{}\r\n",
            pick(random, &["", "nonsense", "get", "set a", "delete"])
        ),
        98 => "flush_all\r\n".into(),
        _ => format!("me {}\r\n", random_key(random)),
    }
}

fn random_store(random: &mut Random) -> String {
    let command = pick(
        random,
        &[
            "set", "set", "set", "add", "replace", "append", "prepend", "cas",
        ],
    );
    let (key, value) = (random_key(random), pick(random, &VALUES));
    let flags = pick(random, &["0", "5", "4294967295"]);
    let expiry = pick(random, &["0", "0", "0", "1000", "-1", "4294967295"]);
    // The other numbers stay valid: newer servers swallow the data of a line that they refuse, and
    // memcached 1.6.18 does not.
    let mut length = value.len().to_string();
    if command != "cas" {
        length = broken(random, length);
    }
    let mut line = format!("{command} {key} {flags} {expiry} {length}");
    if command == "cas" {
        let _ = write!(line, " {}", random_cas(random, &key));
    }
    line + noreply(random) + "\r\n" + value + "\r\n"
}

fn noreply(random: &mut Random) -> &'static str {
    pick(random, &["", "", "", "", " noreply"])
}

fn random_retrieval(random: &mut Random) -> String {
    let mut line: String = pick(random, &["get", "get", "gets", "gat", "gats"]).into();
    if line.starts_with("gat") {
        let expiry = pick(random, &["0", "1000"]).into();
        let _ = write!(line, " {}", broken(random, expiry));
    }
    for _ in 0..random.random_range(1..5) {
        let _ = write!(line, " {}", random_key(random));
    }
    line + "\r\n"
}

fn random_change(random: &mut Random) -> String {
    let command = pick(random, &["incr", "incr", "decr", "delete", "touch"]);
    let argument = match command {
        "delete" => String::new(),
        "touch" => pick(random, &["0", "1000", "-1", "4294967295"]).into(),
        _ => pick(random, &["0", "1", "9", "1000", "4294967296"]).into(),
    };
    let key = random_key(random);
    let argument = broken(random, argument);
    format!("{command} {key} {argument}{}\r\n", noreply(random))
}

/// Some of these flags, each at most once, in random order.
fn some_flags(random: &mut Random, key: &str, flags: &[&str]) -> String {
    let mut chosen = String::new();
    let count = random.random_range(0..5);
    for flag in flags.sample(random, count) {
        let cas = random_cas(random, key);
        let _ = write!(chosen, " {}", flag.replace("CAS", &cas));
    }
    once_each(chosen)
}

/// Occasionally, flags that are an error; all versions agree on the reply for `mg` and `ms` only.
fn broken_flags(random: &mut Random) -> &'static str {
    match random.random_range(0..50) {
        0 => " k k",
        1 => " Tx",
        2 => " Oo Oo",
        _ => "",
    }
}

fn random_meta_get(random: &mut Random) -> String {
    let key = random_key(random);
    let flags = [
        "c", "f", "h", "k", "l", "Oab", "q", "s", "t", "u", "v", "v", "N1000", "R500", "R5000",
        "T1000", "T0", "P", "Lx",
    ];
    let mut flags = last_t(some_flags(random, &key, &flags));
    // memcached sets and compares the time to live in the order of these flags.
    if flags.contains('T') {
        for flag in [" R5000", " R500", " N1000"] {
            flags = flags.replace(flag, "");
        }
    }
    format!("mg {key}{flags}{}\r\n", broken_flags(random))
}

fn random_meta_set(random: &mut Random) -> String {
    let key = random_key(random);
    let flags = [
        "c", "CCAS", "CCAS", "F7", "I", "k", "Oab", "q", "T1000", "T-1", "ME", "MA", "MP", "MR",
        "MS",
    ];
    let flags = some_flags(random, &key, &flags) + broken_flags(random);
    let value = pick(random, &VALUES);
    let length = broken(random, value.len().to_string());
    format!("ms {key} {length}{flags}\r\n{value}\r\n")
}

fn random_meta_delete(random: &mut Random) -> String {
    let key = random_key(random);
    let flags = ["CCAS", "I", "I", "k", "Oab", "q", "T1000"];
    let flags = some_flags(random, &key, &flags);
    format!("md {key}{flags}\r\n")
}

fn random_meta_arithmetic(random: &mut Random) -> String {
    let key = random_key(random);
    let flags = [
        "CCAS", "N1000", "J13", "D5", "MI", "MD", "q", "t", "c", "v", "v", "k", "Oab",
    ];
    // No T: memcached loses it when the counter must be replaced.
    let mut flags = last_t(some_flags(random, &key, &flags));
    // Newer servers also suppress the reply for a counter that was created.
    if flags.contains('N') {
        flags = flags.replace(" q", "");
    }
    format!("ma {key}{flags}\r\n")
}

/// Keeps the first of the flags that share a letter; repeated flags are an error.
fn once_each(flags: String) -> String {
    let mut seen = Vec::new();
    let mut kept = String::new();
    for flag in flags.split_whitespace() {
        let letter = flag.as_bytes()[0];
        if !seen.contains(&letter) {
            seen.push(letter);
            let _ = write!(kept, " {flag}");
        }
    }
    kept
}

/// Moves `t` to the end: memcached answers a `t` before a `T` or an `N` with the previous time to
/// live.
fn last_t(flags: String) -> String {
    match flags.strip_suffix(" t").unwrap_or(&flags).split_once(" t ") {
        Some((before, behind)) => format!("{before} {behind} t"),
        None => flags,
    }
}

/// A server's replies to each phase, with legitimate differences masked.
fn replies(server: &TestServer, script: &[Phase], name: &str) -> Vec<Vec<u8>> {
    script
        .iter()
        .map(|phase| {
            let text: String = phase
                .iter()
                .flat_map(|request| [request, BETWEEN])
                .collect();
            let request = fill_in(server, &text, name);
            let mut client = server.connect();
            client.send(request.as_bytes());
            client.finish();
            cover(&client.read_to_end())
        })
        .collect()
}

/// Replaces the placeholders.
fn fill_in(server: &TestServer, text: &str, name: &str) -> String {
    let mut text = text.to_owned();
    for key in KEYS {
        let placeholder = format!("{CAS_OF}{SCRIPT}{key}");
        if text.contains(&placeholder) {
            let cas = cas_of(server, &format!("{name}{key}"));
            text = text.replace(&placeholder, &cas);
        }
    }
    text.replace(SCRIPT, name)
}

fn cas_of(server: &TestServer, key: &str) -> String {
    let mut client = server.connect();
    client.send(format!("mg {key} c u\r\n").as_bytes());
    let line = client.line();
    match line.split_once(" c") {
        Some((_, rest)) => rest.split(' ').next().unwrap().into(),
        None => "88888888888".into(),
    }
}

fn cover(reply: &[u8]) -> Vec<u8> {
    let lines = reply.split_inclusive(|byte| *byte == b'\n');
    lines.flat_map(cover_line).collect()
}

fn cover_line(line: &[u8]) -> Vec<u8> {
    let Ok(text) = str::from_utf8(line) else {
        return line.to_vec();
    };
    let words: Vec<&str> = text.trim_end().split(' ').collect();
    let covered: Vec<String> = match words[..] {
        ["VALUE", _, _, _, _] => words[..4].iter().map(|word| (*word).into()).collect(),
        ["ME", ..] => vec!["ME".into(), words[1].into()],
        ["HD" | "VA" | "NS" | "EX" | "NF" | "EN", ..] => words.iter().map(cover_flag).collect(),
        _ => return line.to_vec(),
    };
    (covered.join(" ") + "\r\n").into_bytes()
}

fn cover_flag(word: &&str) -> String {
    let (letter, number) = word.split_at(word.len().min(1));
    match (letter, number.parse::<u64>()) {
        ("c", Ok(1..)) => "c#".into(),
        ("t", Ok(seconds)) => format!("t{}", seconds.div_ceil(100) * 100),
        ("l", Ok(_)) => "l#".into(),
        _ => (*word).into(),
    }
}

fn differs(servers: &[TestServer; 2], script: &[Phase]) -> bool {
    let [theirs, ours] = both(servers, script);
    theirs != ours
}

fn both(servers: &[TestServer; 2], script: &[Phase]) -> [Vec<Vec<u8>>; 2] {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NAMES: AtomicU64 = AtomicU64::new(0);
    let name = format!("s{:08}", NAMES.fetch_add(1, Ordering::Relaxed));
    [0, 1].map(|at| {
        let replies = replies(&servers[at], script, &name);
        // Names differ between runs of a script.
        let plain = |reply: Vec<u8>| String::from_utf8_lossy(&reply).replace(&name, "");
        replies
            .into_iter()
            .map(|reply| plain(reply).into_bytes())
            .collect()
    })
}

/// Removes one request after another as long as the servers still disagree.
fn minimise(servers: &[TestServer; 2], mut script: Vec<Phase>) -> Vec<Phase> {
    loop {
        let before = script.concat().len();
        for phase in 0..script.len() {
            let mut at = 0;
            while at < script[phase].len() {
                let mut shorter = script.clone();
                shorter[phase].remove(at);
                if differs(servers, &shorter) {
                    script = shorter;
                } else {
                    at += 1;
                }
            }
        }
        if script.concat().len() == before {
            return script;
        }
    }
}

fn describe(script: &[Phase], [theirs, ours]: [Vec<Vec<u8>>; 2]) -> String {
    let mut text = String::new();
    for ((phase, theirs), ours) in script.iter().zip(theirs).zip(ours) {
        for request in phase {
            let request = request.replace(SCRIPT, "");
            let _ = writeln!(text, "  > {}", show(request.as_bytes()));
        }
        let _ = writeln!(text, "  memcached {}", show(&theirs));
        let _ = writeln!(text, "  corewise  {}", show(&ours));
    }
    text
}
