//! Conversations of `corewise_testkit::conversation`, with a server.
//!
//! ```text
//! set greeting 5 0 5|hello -> STORED
//! newer: mg greeting C -> CLIENT_ERROR invalid flag
//! ```
//!
//! The requests of a row are sent together, then all its replies are expected, and nothing else. In
//! a reply `{any}` stands for any number, and `{name}` for a number that is remembered: from then
//! on it stands for this number. `<closed>` expects that the server hangs up. A row that begins
//! with `newer: ` is about the behaviour of memcached since 1.6.45, and is skipped with an older
//! one.
//!
//! A conversation in RESP has one request in each row:
//!
//! ```text
//! set greeting hello -> +OK
//! mget greeting none -> *2 "hello" $-1
//! 2> get greeting -> "hello"
//! ```
//!
//! Words and quotes are those of inline requests. The words of a reply are its lines, and `"hello"`
//! stands for a bulk string. An error goes to the end of the line or to ` |`. `2>` begins a line of
//! the second client.

use std::collections::HashMap;

use corewise_testkit::conversation::{bytes, conversations, repeated, rows, unescape};

use super::{Client, Kind, TestServer, show};

/// Plays each conversation of a file, after it has printed its title.
pub(crate) fn play_each(file: &str, play: impl Fn(&str)) {
    for (title, text) in conversations(file) {
        println!("conversation: {title}");
        play(text);
    }
}

/// Runs a conversation in RESP on new connections.
pub(crate) fn converse_in_resp(server: &TestServer, text: &str) {
    let mut clients = [(); 2].map(|()| super::resp::connect(server));
    for (row, [request, reply]) in rows(text) {
        println!("{row}");
        let of_second = request.strip_prefix("2> ");
        let client = &mut clients[usize::from(of_second.is_some())];
        let request = repeated(of_second.unwrap_or(request)) + "\r\n";
        client.ask(request, resp_of(&repeated(reply)));
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
    for (row, [request, reply]) in rows(text) {
        match row.strip_prefix("newer: ") {
            Some(_) if old => {}
            Some(_) => talk.hold(row, &request["newer: ".len()..], reply),
            None => talk.hold(row, request, reply),
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

struct Talk<'a> {
    server: &'a TestServer,
    client: Client,
    numbers: HashMap<String, String>,
}

impl Talk<'_> {
    fn hold(&mut self, row: &str, request: &str, reply: &str) {
        self.client.send(&self.fill_in(&bytes(request)));
        let open = reply.strip_suffix("<closed>");
        let got = if open.is_some() {
            let got = self.client.read_to_end();
            self.client = self.server.connect();
            got
        } else {
            self.client.send(MARK_REQUEST);
            let mut got = self.client.read_until(MARK_REPLY);
            got.truncate(got.len() - MARK_REPLY.len());
            got
        };
        let expected = bytes(&open.map_or(reply.to_owned(), |reply| reply.to_owned() + "\\."));
        let is_expected = self.matches(&expected, &got);
        assert!(is_expected, "\n  {row}\n  got {}\n", show(&got));
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
