//! Replies to memcached's text protocol, as `conversations.txt` lists them.

use crate::common::{Session, transcript};
use corewise_wire::memcached::Limits;

/// The bytes of one side of a row, with a line break at its end unless the row says otherwise.
fn bytes(side: &str) -> Vec<u8> {
    let (text, end) = match side.strip_suffix("\\.") {
        Some(text) => (text, ""),
        None if side.ends_with("<closed>") => (side, ""),
        None => (side, "|"),
    };
    let text = repeated(text) + end;
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        match byte {
            b'|' => bytes.extend(b"\r\n"),
            b'\\' => bytes.push(match rest.next() {
                Some(b't') => b'\t',
                Some(b'n') => b'\n',
                Some(b'0') => 0,
                Some(b'x') => {
                    let digits: String = rest.by_ref().take(2).map(char::from).collect();
                    u8::from_str_radix(&digits, 16).expect("two digits")
                }
                other => other.expect("something behind a backslash"),
            }),
            _ => bytes.push(byte),
        }
    }
    bytes
}

/// Replaces each `{text*times}`.
fn repeated(text: &str) -> String {
    let mut whole = String::new();
    let mut parts = text.split('{');
    whole += parts.next().unwrap_or_default();
    for part in parts {
        let (repeat, rest) = part.split_once('}').expect("the end of a repetition");
        let (what, times) = repeat.split_once('*').expect("how often");
        whole += &what.repeat(times.parse().expect("a number"));
        whole += rest;
    }
    whole
}

#[test]
fn conversations_have_exact_replies() {
    let rows = include_str!("conversations.txt").lines();
    let is_row = |row: &&str| !row.is_empty() && !row.starts_with('#') && !row.starts_with("== ");
    for row in rows.filter(is_row) {
        let (request, reply) = match row.strip_suffix(" ->") {
            Some(request) => (request, "\\."),
            None => row.split_once(" -> ").expect(row),
        };
        let (is_guarded, request) = match request.strip_prefix("secret: ") {
            Some(request) => (true, request),
            None => (false, request),
        };
        let mut session = Session::new(is_guarded, Limits::default());
        let request = request.strip_prefix("a: ").map_or(request, |request| {
            session.feed(b"set a 5 100 2\r\nhi\r\n");
            session.out.clear();
            request
        });
        session.feed(&bytes(request));
        let expected = String::from_utf8(bytes(reply)).expect("a reply is text");
        assert_eq!(transcript(&session), expected, "{row}");
    }
}
