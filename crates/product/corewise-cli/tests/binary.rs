//! memcached's binary protocol over sockets: the same replies as memcached's, byte for byte, beside
//! the text protocol on the same items, and with other people's clients.
//!
//! `COREWISE_BINARY_SEED` and `COREWISE_BINARY_SCRIPTS` select other conversations.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::common::{
    Client, Engine, Kind, TestServer, concerns_the_server_under_test, show, skip, wait_until,
};

for_every_engine! {
    random_conversations_are_answered_as_by_memcached
    both_protocols_see_the_same_items
    a_counter_is_created_once
}

for_all_engines_at_once! {
    memccapable_is_content_with_the_binary_protocol
    pylibmc_works_in_the_binary_protocol
}

const SCRIPTS: u64 = 300;
/// As for the text protocol: memcached does nothing in the background, and has one worker.
const CALM: [&str; 6] = [
    "-t",
    "1",
    "-o",
    "no_lru_maintainer,no_lru_crawler",
    "-R",
    "1",
];
const GET: u8 = 0x00;
const SET: u8 = 0x01;
const INCREMENT: u8 = 0x05;
const QUIT: u8 = 0x07;
const NOOP: u8 = 0x0a;
const VERSION: u8 = 0x0b;
const STAT: u8 = 0x10;

type Random = Xoshiro256PlusPlus;

/// The cas value of a request.
#[derive(Clone, Copy, Debug)]
enum Cas {
    None,
    Wrong,
    /// The one that the key had at the beginning of the phase.
    Current,
}

/// A request whose cas value is not known yet.
#[derive(Clone, Debug)]
struct Request {
    opcode: u8,
    opaque: u32,
    cas: Cas,
    extras: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
    /// Whether it closes the connection before its body has arrived.
    is_malformed: bool,
    /// The body length that the header shows, if it is another one.
    body_len: Option<u32>,
}

impl Request {
    fn new(opcode: u8, key: &[u8]) -> Self {
        Self {
            opcode,
            opaque: 0,
            cas: Cas::None,
            extras: vec![],
            key: key.to_vec(),
            value: vec![],
            is_malformed: false,
            body_len: None,
        }
    }

    fn store(key: &[u8], value: &[u8]) -> Self {
        Self {
            extras: vec![0; 8],
            value: value.to_vec(),
            ..Self::new(SET, key)
        }
    }

    fn bytes(&self, cas: u64) -> Vec<u8> {
        let body = self.extras.len() + self.key.len() + self.value.len();
        let mut bytes = vec![0x80, self.opcode];
        bytes.extend((self.key.len() as u16).to_be_bytes());
        bytes.extend([self.extras.len() as u8, 0, 0, 0]);
        bytes.extend(self.body_len.unwrap_or(body as u32).to_be_bytes());
        bytes.extend(self.opaque.to_be_bytes());
        bytes.extend(cas.to_be_bytes());
        [&bytes[..], &self.extras, &self.key, &self.value].concat()
    }
}

/// The length of the message at the start of `bytes`, which has its header.
fn message_len(bytes: &[u8]) -> usize {
    24 + u32::from_be_bytes(bytes[8..12].try_into().unwrap()) as usize
}

/// Sends one request, and returns the response.
fn ask(client: &mut Client, request: &Request) -> Vec<u8> {
    client.send(&request.bytes(0));
    receive(client)
}

fn receive(client: &mut Client) -> Vec<u8> {
    let mut response = client.bytes_slowly(24, Duration::ZERO);
    let rest = message_len(&response) - 24;
    response.extend(client.bytes_slowly(rest, Duration::ZERO));
    response
}

fn cas_of(response: &[u8]) -> u64 {
    u64::from_be_bytes(response[16..24].try_into().unwrap())
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect(name))
}

fn random_conversations_are_answered_as_by_memcached(engine: Engine) {
    if !Kind::memcached_is_installed() {
        return skip("memcached is not installed");
    }
    let seed = std::env::var("COREWISE_BINARY_SEED").map_or_else(
        |_| engine.seed(0xb1),
        |seed| seed.parse().expect("a number"),
    );
    let servers = [TestServer::of(Kind::Memcached, &CALM), engine.with(&CALM)];
    let mut random = Random::seed_from_u64(seed);
    for number in 0..from_environment("COREWISE_BINARY_SCRIPTS", SCRIPTS) {
        for _ in 0..3 {
            let phase = random_phase(&mut random, number);
            let piece = *[1, 5, 24, 60, usize::MAX].choose(&mut random).unwrap();
            // A connection that is closed before all of its input has arrived may lose replies.
            let is_closed_early = phase.iter().any(|request| request.is_malformed);
            let piece = if is_closed_early { 0 } else { piece };
            let [theirs, ours] = [0, 1].map(|at| replies(&servers[at], &phase, piece * at));
            if let Some(difference) = difference(&phase, &theirs, &ours) {
                panic!("seed {seed}, script {number}: {difference}");
            }
        }
    }
}

/// The first different response, with the requests up to it.
fn difference(phase: &[Request], theirs: &[Vec<u8>], ours: &[Vec<u8>]) -> Option<String> {
    let most = theirs.len().max(ours.len());
    let at = (0..most).find(|&at| theirs.get(at) != ours.get(at))?;
    let shown = |replies: &[Vec<u8>]| replies.get(at).map_or("nothing".into(), |r| show(r));
    let opaque = |reply: &Vec<u8>| reply.get(12..16).map(<[u8]>::to_vec);
    let of = theirs.get(at).or(ours.get(at)).and_then(opaque);
    let is_before = |request: &&Request| Some(request.opaque.to_be_bytes().to_vec()) <= of;
    let requests: Vec<String> = match of == Some(vec![0; 4]) {
        true => phase.iter().map(|request| format!("{request:?}")).collect(),
        false => phase
            .iter()
            .take_while(is_before)
            .map(|r| format!("{r:?}"))
            .collect(),
    };
    let (theirs, ours) = (shown(theirs), shown(ours));
    let requests = requests.join("\n  ");
    Some(format!("\n  {requests}\nmemcached: {theirs}\nhere: {ours}"))
}

/// The requests of a connection. One that closes it is the last.
fn random_phase(random: &mut Random, script: u64) -> Vec<Request> {
    let mut phase = Vec::new();
    for opaque in 0..random.random_range(1..30) {
        let mut request = random_request(random, script);
        request.opaque = opaque << 8 | opaque;
        let is_last = match random.random_range(0..100) {
            0 => {
                request = malformed(random, request);
                true
            }
            _ => matches!(request.opcode, QUIT | 0x17),
        };
        phase.push(request);
        if is_last {
            break;
        }
    }
    phase
}

fn random_request(random: &mut Random, script: u64) -> Request {
    let key = format!(
        "s{script:06}{}",
        ["a", "b", "n", "n"].choose(random).unwrap()
    );
    let cas = *[Cas::None, Cas::None, Cas::Wrong, Cas::Current]
        .choose(random)
        .unwrap();
    let mut request = Request::new(0, key.as_bytes());
    match random.random_range(0..100) {
        0..25 => {
            request.opcode = *[0x01, 0x01, 0x02, 0x03, 0x11, 0x12, 0x13]
                .choose(random)
                .unwrap();
            request.cas = cas;
            request.extras = [flags(random), exptime(random)].concat();
            request.value = value(random);
        }
        25..35 => {
            request.opcode = *[0x0e, 0x0f, 0x19, 0x1a].choose(random).unwrap();
            request.cas = cas;
            request.value = value(random);
        }
        35..55 => request.opcode = *[0x00, 0x09, 0x0c, 0x0d].choose(random).unwrap(),
        55..65 => {
            request.opcode = *[0x1c, 0x1d, 0x1e, 0x23, 0x24].choose(random).unwrap();
            request.extras = exptime(random);
        }
        65..72 => {
            request.opcode = *[0x04, 0x14].choose(random).unwrap();
            request.cas = cas;
        }
        72..90 => {
            request.opcode = *[0x05, 0x06, 0x15, 0x16].choose(random).unwrap();
            request.cas = cas;
            let delta = *[0u64, 1, 9, 1_000].choose(random).unwrap();
            let initial = *[0u64, 7, 99, 1 << 33].choose(random).unwrap();
            let exptime = match random.random_range(0..3) {
                0 => vec![0xff; 4],
                _ => exptime(random),
            };
            request.extras = [&delta.to_be_bytes()[..], &initial.to_be_bytes(), &exptime].concat();
        }
        _ => {
            request.key.clear();
            without_a_key(random, &mut request);
        }
    }
    request
}

fn without_a_key(random: &mut Random, request: &mut Request) {
    match random.random_range(0..8) {
        0 => request.opcode = NOOP,
        1 => request.opcode = VERSION,
        2 => {
            request.opcode = *[0x08, 0x18].choose(random).unwrap();
            // With a delay, memcached 1.6.18 forgets the flush before it, and its items come back.
            let delays: [&[u8]; 2] = [b"", &[0; 4]];
            request.extras = delays.choose(random).unwrap().to_vec();
        }
        3 => {
            request.opcode = STAT;
            let names: [&[u8]; 4] = [b"reset", b"nothing", b"detail on", b"detail off"];
            request.key = names.choose(random).unwrap().to_vec();
        }
        4 => request.opcode = 0x20,
        5 => {
            request.opcode = *[0x21, 0x22].choose(random).unwrap();
            request.key = b"PLAIN".to_vec();
            request.value = b"\0user\0secret".to_vec();
        }
        6 => request.opcode = *[QUIT, 0x17].choose(random).unwrap(),
        _ => {
            // memcached discards too much if there are extras or a key.
            request.opcode = *[0x1f, 0x25, 0x30, 0x7f, 0xff].choose(random).unwrap();
            request.value = value(random);
        }
    }
}

/// A request of a wrong shape.
fn malformed(random: &mut Random, mut request: Request) -> Request {
    // Bytes that a server has not read when it closes the connection may cost its last replies.
    request.value.truncate(100);
    request.is_malformed = true;
    let body = request.extras.len() + request.key.len() + request.value.len();
    match random.random_range(0..4) {
        0 => request.key = vec![b'k'; *[251, 252, 1_000].choose(random).unwrap()],
        1 => {
            request.opcode = random.random_range(0..0x1b);
            request.key.clear();
            request.extras = vec![0; 3];
        }
        2 if body > 0 => {
            request.value.clear();
            let head = request.extras.len() + request.key.len();
            request.body_len = Some((head as u32).saturating_sub(1));
        }
        _ => {
            request.opcode = *[0x00, 0x04, 0x05, 0x07, 0x0a, 0x0b].choose(random).unwrap();
            request.value = b"no value".to_vec();
        }
    }
    request
}

fn flags(random: &mut Random) -> Vec<u8> {
    let flags = *[0, 5, u32::MAX].choose(random).unwrap();
    flags.to_be_bytes().to_vec()
}

/// Never, soon, and dates in the past and in the future.
fn exptime(random: &mut Random) -> Vec<u8> {
    let choices = [0u32, 0, 0, 1_000, 2_592_000, 2_592_001, 4_000_000_000];
    choices.choose(random).unwrap().to_be_bytes().to_vec()
}

fn value(random: &mut Random) -> Vec<u8> {
    // No counter comes near 2^63: memcached 1.6.18 would also look for a minus sign behind it.
    let values: [&[u8]; 8] = [
        b"",
        b"x",
        b"0",
        b"7",
        b"10",
        b"99",
        b"4294967296",
        b"\x80\0\r\n",
    ];
    match random.random_range(0..100) {
        0 => vec![b'v'; 1 << 20],
        1 => vec![b'v'; 100_000],
        _ => values.choose(random).unwrap().to_vec(),
    }
}

/// A server's responses to a phase, with cas values replaced by their numbers. Sends `piece` bytes
/// at a time, or all at once if that is 0.
fn replies(server: &TestServer, phase: &[Request], piece: usize) -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    for request in phase {
        let cas = match request.cas {
            Cas::None => 0,
            Cas::Wrong => 99_999_999_999,
            Cas::Current => {
                let key = Request::new(GET, &request.key);
                let mut client = server.connect();
                match cas_of(&ask(&mut client, &key)) {
                    0 => 88_888_888_888,
                    cas => cas,
                }
            }
        };
        // Lets memcached write its replies, which hold items.
        bytes.extend(Request::new(NOOP, b"").bytes(0));
        bytes.extend(request.bytes(cas));
    }
    let mut client = server.connect();
    let piece = if piece == 0 { usize::MAX } else { piece };
    for part in bytes.chunks(piece.max(bytes.len() / 1_000)) {
        // The last request may close the connection before it has arrived.
        let _ = client.try_send(part);
    }
    client.finish();
    covered(&client.read_to_end())
}

/// The responses, with the differences that are legitimate replaced.
fn covered(mut replies: &[u8]) -> Vec<Vec<u8>> {
    let mut numbers = HashMap::from([(0, 0)]);
    let mut covered = Vec::new();
    while replies.len() >= 24 {
        let (response, rest) = replies.split_at(message_len(replies).min(replies.len()));
        let mut response = response.to_vec();
        let next = numbers.len() as u64;
        let number = *numbers.entry(cas_of(&response)).or_insert(next);
        response[16..24].copy_from_slice(&number.to_be_bytes());
        if response[1] == VERSION && response[7] == 0 {
            response.truncate(8);
        }
        covered.push(response);
        replies = rest;
    }
    if !replies.is_empty() {
        covered.push(replies.to_vec());
    }
    covered
}

fn both_protocols_see_the_same_items(engine: Engine) {
    let server = engine.start();
    let (mut text, mut binary) = (server.connect(), server.connect());
    assert_eq!(ask(&mut binary, &Request::store(b"k", b"hello"))[7], 0);
    text.ask("get k\r\n", "VALUE k 0 5\r\nhello\r\nEND\r\n");
    text.ask("set k 7 0 3\r\nabc\r\n", "STORED\r\n");
    let found = ask(&mut binary, &Request::new(GET, b"k"));
    assert_eq!(found[24..], *b"\0\0\0\x07abc");
    text.ask(
        "gets k\r\n",
        format!("VALUE k 7 3 {}\r\nabc\r\nEND\r\n", cas_of(&found)),
    );
    // Large values, which are neither received nor sent through buffers.
    for size in [40_000, 100_000, 1_000_000] {
        let value: Vec<u8> = (0..size).map(|at| at as u8).collect();
        assert_eq!(ask(&mut binary, &Request::store(b"k", &value))[7], 0);
        for _ in 0..2 {
            let found = ask(&mut binary, &Request::new(GET, b"k"));
            assert!(found[28..] == value, "{size}");
        }
        let line = format!("VALUE k 0 {size}\r\n");
        text.ask(
            "get k\r\n",
            [line.as_bytes(), &value, b"\r\nEND\r\n"].concat(),
        );
    }
    let refused = ask(&mut binary, &Request::store(b"k", &vec![0; 1 << 20]));
    assert_eq!(refused[24..], *b"Too large.");
    text.ask("get k\r\n", "END\r\n");
}

fn a_counter_is_created_once(engine: Engine) {
    const THREADS: u64 = 4;
    const KEYS: u64 = 200;
    let server = engine.start();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut client = server.connect();
                for number in 0..KEYS {
                    let extras = [1u64.to_be_bytes(), 10u64.to_be_bytes()].concat();
                    let request = Request {
                        extras: [&extras[..], &[0; 4]].concat(),
                        ..Request::new(INCREMENT, format!("n{number}").as_bytes())
                    };
                    assert_eq!(ask(&mut client, &request)[7], 0);
                }
            });
        }
    });
    let mut client = server.connect();
    for number in 0..KEYS {
        let found = ask(
            &mut client,
            &Request::new(GET, format!("n{number}").as_bytes()),
        );
        assert_eq!(found[28..], *(10 + THREADS - 1).to_string().as_bytes());
    }
}

#[test]
fn statistics_are_those_of_the_text_protocol() {
    let server = TestServer::start();
    let mut text = server.connect();
    let lines = text.stats("settings");
    let mut binary = server.connect();
    binary.send(&Request::new(STAT, b"settings").bytes(0));
    let mut printed = String::new();
    loop {
        let response = receive(&mut binary);
        let key_len = usize::from(response[3]);
        let (name, value) = response[24..].split_at(key_len);
        if name.is_empty() {
            break;
        }
        let [name, value] = [name, value].map(String::from_utf8_lossy);
        printed += &format!("STAT {name} {value}\r\n");
    }
    assert_eq!(printed + "END\r\n", lines);
    assert!(lines.contains("STAT binding_protocol auto-negotiate\r\n"));
}

#[test]
fn the_protocol_may_be_fixed() {
    if !concerns_the_server_under_test() {
        return;
    }
    let server = TestServer::with(&["-B", "binary"]);
    let mut client = server.connect();
    assert_eq!(ask(&mut client, &Request::new(NOOP, b""))[7], 0);
    let mut text = server.connect();
    text.send(b"get k\r\n");
    assert_eq!(text.read_to_end(), b"");
    let server = TestServer::with(&["-B", "ascii"]);
    assert_eq!(
        server.connect().stat_of("settings", "binding_protocol"),
        "ascii"
    );
    let mut client = server.connect();
    client.send(&Request::new(NOOP, b"").bytes(0));
    assert!(client.read_to_end().ends_with(b"Unknown command"));
}

#[test]
fn clients_that_must_authenticate_cannot_use_the_binary_protocol() {
    if !concerns_the_server_under_test() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    std::fs::write(&users, "ann:secret\n").unwrap();
    let server = TestServer::with(&["-Y", users.to_str().unwrap()]);
    let mut client = server.connect();
    client.send(&Request::store(b"k", b"v").bytes(0));
    assert!(client.read_to_end().ends_with(b"Unknown command"));
    let mut text = server.connect();
    text.ask("set x 0 0 10\r\nann secret\r\n", "STORED\r\n");
    text.ask("get k\r\n", "END\r\n");
    assert_eq!(text.stat_of("settings", "binding_protocol"), "ascii");
}

#[test]
fn resp_is_spoken_on_a_unix_socket() {
    if !concerns_the_server_under_test() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("redis.sock");
    let mut server = TestServer::with(&["--unixsocket", path.to_str().unwrap()]);
    wait_until("the socket is there", || path.exists());
    let mut client = Client::connect_unix(&path);
    client.ask("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n", "+OK\r\n");
    server
        .connect()
        .ask("get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n");
    assert_eq!(
        server.connect().stat_of("settings", "domain_socket"),
        "NULL"
    );
    server.terminate();
    assert!(server.wait().success());
    assert!(!path.exists());
}

/// Runs a client against a new server, and requires that it succeeds.
fn succeeds(engine: Engine, client: &mut Command, arguments: &[&str]) {
    let server = engine.start();
    let port = server.address().port().to_string();
    let output = client.arg(port).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complained}");
}

/// libmemcached's test program for servers.
fn memccapable_is_content_with_the_binary_protocol(engine: Engine) {
    // It has no option without effect, and rejects `-?`.
    if Command::new("memccapable").arg("-?").output().is_err() {
        return skip("memccapable is not installed");
    }
    let mut client = Command::new("memccapable");
    client.args(["-b", "-h", "127.0.0.1", "-t", "20", "-p"]);
    succeeds(engine, &mut client, &[]);
}

/// The checks are those of the text protocol.
fn pylibmc_works_in_the_binary_protocol(engine: Engine) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let installed = folder.join("../../../target/ci-venv/bin/python");
    let python = std::env::var_os("COREWISE_TEST_PYTHON").map_or(installed, PathBuf::from);
    let imports = Command::new(&python)
        .args(["-c", "import pylibmc"])
        .output();
    if !imports.is_ok_and(|output| output.status.success()) {
        return skip("pylibmc is not installed for Python");
    }
    let script = folder.join("tests/clients/with_pylibmc.py");
    succeeds(engine, Command::new(python).arg(script), &["binary"]);
}
