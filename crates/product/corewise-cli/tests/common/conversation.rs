//! Conversations as text: what the client sends (`>`), and what the server must reply (`<`).
//!
//! ```text
//! > set greeting 5 0 5
//! > hello
//! < STORED
//!
//! newer
//! > mg greeting C
//! < CLIENT_ERROR invalid flag
//! ```
//!
//! Each line stands for its text and a line break; `>.` omits the line break. A blank line ends an
//! exchange: all its requests are sent, then all its replies are expected, and nothing else.
//! Requests and replies may contain Rust's escapes for bytes. In a reply `{any}` stands for any
//! number, and `{name}` for a number that is remembered: from then on it stands for this number.
//! `< closed` expects that the server hangs up. An exchange that begins with `newer` is about the
//! behaviour of memcached since 1.6.45, and is skipped with an older one.

//!
//! A conversation in RESP has a request and its reply in each line:
//!
//! ```text
//! set greeting hello -> +OK
//! mget greeting none -> *2 "hello" $-1
//! 2> get greeting -> "hello"
//! ```
//!
//! Words and quotes are those of inline requests. The words of a reply are its lines, and `"hello"`
//! stands for a bulk string. An error goes to the end of the line or to ` |`. `2>` begins a line of
//! the second client. In files a line `== title` begins a conversation.

use std::collections::HashMap;

use super::{Client, Kind, TestServer, show};

/// Plays each conversation of a file, after it has printed its title.
pub(crate) fn play_each(file: &str, play: impl Fn(&str)) {
    let file = file.strip_prefix("== ").expect("a title");
    for conversation in file.split("\n== ") {
        let (title, text) = conversation.split_once('\n').expect(conversation);
        println!("conversation: {title}");
        play(text);
    }
}

/// Runs a conversation in RESP on new connections.
pub(crate) fn converse_in_resp(server: &TestServer, text: &str) {
    let mut clients = [(); 2].map(|()| super::resp::connect(server));
    let is_said = |line: &&str| !line.is_empty() && !line.starts_with('#');
    for line in text.lines().filter(is_said) {
        println!("{line}");
        let (request, reply) = line.split_once(" -> ").expect(line);
        let of_second = request.strip_prefix("2> ");
        let client = &mut clients[usize::from(of_second.is_some())];
        client.ask(
            of_second.unwrap_or(request).to_owned() + "\r\n",
            resp_of(reply),
        );
    }
}

/// The bytes of a reply that is written as in a conversation.
fn resp_of(mut words: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !words.is_empty() {
        let (word, rest) = if let Some(quoted) = words.strip_prefix('"') {
            let mut quotes = quoted.match_indices('"').map(|(at, _)| at);
            let end = quotes.find(|at| !quoted[..*at].ends_with('\\'));
            let end = end.expect(words);
            let text = unescape(&quoted[..end]);
            bytes.extend(format!("${}\r\n", text.len()).bytes());
            (text, &quoted[end + 1..])
        } else {
            let end = if words.starts_with('-') { " |" } else { " " };
            let (word, rest) = words.split_once(end).unwrap_or((words, ""));
            (unescape(word), rest)
        };
        bytes.extend(word);
        bytes.extend(b"\r\n");
        words = rest.trim_start();
    }
    bytes
}

/// A request whose reply cannot be confused with any other.
const MARK_REQUEST: &[u8] = b"md no-such-key Omark\r\n";
const MARK_REPLY: &[u8] = b"NF Omark\r\n";

/// Runs a conversation on a new connection.
pub(crate) fn converse_with(server: &TestServer, text: &str) {
    let old = Kind::under_test() == Kind::Memcached && is_old(server);
    let mut talk = Talk {
        server,
        client: server.connect(),
        numbers: HashMap::new(),
    };
    for exchange in exchanges(text) {
        if !(exchange.newer && old) {
            talk.hold(&exchange);
        }
    }
}

/// Whether the server is a memcached before 1.6.45.
pub(crate) fn is_old(server: &TestServer) -> bool {
    let mut client = server.connect();
    client.send(b"version\r\n");
    let line = client.line();
    let patch = line.strip_prefix("VERSION 1.6.");
    patch.is_none_or(|patch| patch.parse().is_ok_and(|patch: u32| patch < 45))
}

#[derive(Default)]
struct Exchange {
    newer: bool,
    requests: Vec<u8>,
    replies: Vec<u8>,
    closed: bool,
}

fn exchanges(text: &str) -> Vec<Exchange> {
    let mut all = vec![Exchange::default()];
    for line in text.lines().map(str::trim_start) {
        let exchange = all.last_mut().unwrap();
        match line.split_once(' ').unwrap_or((line, "")) {
            (">", words) => {
                exchange.requests.extend(unescape(words));
                exchange.requests.extend(b"\r\n");
            }
            (">.", words) => exchange.requests.extend(unescape(words)),
            ("<", "closed") => exchange.closed = true,
            ("<", words) => {
                exchange.replies.extend(unescape(words));
                exchange.replies.extend(b"\r\n");
            }
            ("newer", "") => exchange.newer = true,
            ("", "") => all.push(Exchange::default()),
            ("#", _) => {}
            _ => panic!("a line of a conversation begins with > >. < # or newer: {line}"),
        }
    }
    all.retain(|exchange| !exchange.requests.is_empty());
    all
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes();
    let mut plain = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            plain.push(byte);
            continue;
        }
        plain.push(match bytes.next().expect("something behind a backslash") {
            b'r' => b'\r',
            b'n' => b'\n',
            b't' => b'\t',
            b'0' => 0,
            b'x' => {
                let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                u8::from_str_radix(str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            other => other,
        });
    }
    plain
}

struct Talk<'a> {
    server: &'a TestServer,
    client: Client,
    numbers: HashMap<String, String>,
}

impl Talk<'_> {
    fn hold(&mut self, exchange: &Exchange) {
        self.client.send(&self.fill_in(&exchange.requests));
        let got = if exchange.closed {
            let got = self.client.read_to_end();
            self.client = self.server.connect();
            got
        } else {
            self.client.send(MARK_REQUEST);
            let mut got = self.client.read_until(MARK_REPLY);
            got.truncate(got.len() - MARK_REPLY.len());
            got
        };
        assert!(
            self.matches(&exchange.replies, &got),
            "\n  asked    {}\n  expected {}\n  got      {}\n",
            show(&exchange.requests),
            show(&exchange.replies),
            show(&got)
        );
    }

    /// Replaces each `{name}` with the number that was remembered.
    fn fill_in(&self, request: &[u8]) -> Vec<u8> {
        let mut filled = Vec::new();
        for part in parts(request) {
            match part {
                Part::Plain(bytes) => filled.extend(bytes),
                Part::Number(name) => filled.extend(self.numbers[name].bytes()),
            }
        }
        filled
    }

    fn matches(&mut self, expected: &[u8], mut got: &[u8]) -> bool {
        for part in parts(expected) {
            let Part::Number(name) = part else {
                let Part::Plain(bytes) = part else {
                    return false;
                };
                let Some(rest) = got.strip_prefix(bytes) else {
                    return false;
                };
                got = rest;
                continue;
            };
            let length = got.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let (digits, rest) = got.split_at(length);
            got = rest;
            let digits = str::from_utf8(digits).unwrap().to_owned();
            if digits.is_empty() {
                return false;
            }
            if name != "any" && *self.numbers.entry(name.into()).or_insert(digits.clone()) != digits
            {
                return false;
            }
        }
        got.is_empty()
    }
}

enum Part<'a> {
    Plain(&'a [u8]),
    Number(&'a str),
}

/// Splits at each `{name}`. Braces around anything but letters are plain text.
fn parts(text: &[u8]) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.iter().position(|byte| *byte == b'{') {
        let inner = &rest[start + 1..];
        let length = inner
            .iter()
            .take_while(|byte| byte.is_ascii_lowercase())
            .count();
        if length == 0 || inner.get(length) != Some(&b'}') {
            break;
        }
        parts.push(Part::Plain(&rest[..start]));
        parts.push(Part::Number(str::from_utf8(&inner[..length]).unwrap()));
        rest = &inner[length + 1..];
    }
    parts.push(Part::Plain(rest));
    parts
}
