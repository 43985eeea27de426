//! Drives the codec of RESP like a connection does, and a second parser to compare it with.
#![allow(dead_code, reason = "each user takes a part")]

use bumpalo::Bump;
use corewise_wire::resp::{Codec, Limits, Parsed, Refusal};

/// What a client's input amounts to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Request(Vec<Vec<u8>>),
    Refused(Refusal),
    Close(String),
}

/// A connection without a socket.
pub(crate) struct Connection {
    pub(crate) codec: Codec,
    pub(crate) limits: Limits,
    pub(crate) unread: Vec<u8>,
    pub(crate) events: Vec<Event>,
    pub(crate) closed: bool,
    /// The most input that the codec has asked to be kept.
    pub(crate) most_kept: usize,
}

impl Connection {
    pub(crate) fn new(authenticated: bool, limits: Limits) -> Self {
        Self {
            codec: Codec::new(authenticated),
            limits,
            unread: Vec::new(),
            events: Vec::new(),
            closed: false,
            most_kept: 0,
        }
    }

    /// Receives a piece of input.
    pub(crate) fn feed(&mut self, piece: &[u8]) {
        if self.closed {
            return;
        }
        self.unread.extend_from_slice(piece);
        let mut at = 0;
        while let Some(consumed) = self.step(at) {
            at += consumed;
        }
        self.unread.drain(..at);
        self.most_kept = self.most_kept.max(self.unread.len());
    }

    /// Executes one step; `None` if the connection must wait or is closed.
    fn step(&mut self, at: usize) -> Option<usize> {
        let scratch = Bump::new();
        let input = &self.unread[at..];
        let before = self.codec;
        let parsed = self.codec.next(input, &self.limits, &scratch);
        let mut again = before;
        let repeated = again.next(input, &self.limits, &scratch);
        assert_eq!(format!("{repeated:?}"), format!("{parsed:?}"), "rewound");
        assert_eq!(again, self.codec, "rewound");
        match parsed {
            Parsed::Incomplete { need } => {
                assert!(need > input.len(), "{need}");
                None
            }
            Parsed::Skip { consumed } => {
                assert!((1..=input.len()).contains(&consumed));
                Some(consumed)
            }
            Parsed::Request { consumed, request } => {
                assert!((1..=input.len()).contains(&consumed));
                let args = request.args();
                assert_eq!(args.len(), args.count());
                let elements = std::iter::once(request.name()).chain(args);
                let elements = elements.map(<[u8]>::to_vec).collect();
                self.events.push(Event::Request(elements));
                Some(consumed)
            }
            Parsed::Refused { consumed, refusal } => {
                assert!((1..=input.len()).contains(&consumed));
                self.events.push(Event::Refused(refusal));
                Some(consumed)
            }
            Parsed::Close { reply } => {
                let reply = String::from_utf8_lossy(reply).into_owned();
                self.events.push(Event::Close(reply));
                self.closed = true;
                None
            }
        }
    }
}

/// What one connection makes of `pieces`.
pub(crate) fn receive<'a>(
    limits: Limits,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Connection {
    let mut connection = Connection::new(true, limits);
    pieces.into_iter().for_each(|piece| connection.feed(piece));
    connection
}

/// A second parser, for whole inputs: it follows the description of the protocol and shares no code
/// with the first one.
pub(crate) fn reference(input: &[u8], limits: Limits) -> Vec<Event> {
    let mut events = Vec::new();
    let mut rest = input;
    while !rest.is_empty() {
        let step = if rest[0] == b'*' {
            multibulk(rest, limits)
        } else {
            inline(rest, limits)
        };
        match step {
            Err(Stop::Wait) => break,
            Err(Stop::Close(text)) => {
                events.push(Event::Close(format!("-ERR Protocol error: {text}\r\n")));
                break;
            }
            Ok((consumed, event)) => {
                rest = &rest[consumed..];
                events.extend(event);
            }
        }
    }
    events
}

enum Stop {
    Wait,
    Close(String),
}

type Reference = Result<(usize, Option<Event>), Stop>;

fn close<T>(text: &str) -> Result<T, Stop> {
    Err(Stop::Close(text.to_owned()))
}

/// The text before the first `end`, if it has arrived with `more` bytes.
fn line<'t>(
    text: &'t [u8],
    end: u8,
    more: usize,
    max: usize,
    what: &str,
) -> Result<&'t [u8], Stop> {
    match text.iter().position(|byte| *byte == end) {
        Some(at) if at > max => close(what),
        Some(at) if at + more < text.len() => Ok(&text[..at]),
        None if text.len() > max => close(what),
        _ => Err(Stop::Wait),
    }
}

/// An integer that is printed as it was read.
fn integer(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let value = text.parse::<i64>().ok()?;
    (value.to_string() == text).then_some(value)
}

fn multibulk(input: &[u8], limits: Limits) -> Reference {
    let head = line(
        input,
        b'\r',
        1,
        limits.max_inline,
        "too big mbulk count string",
    )?;
    let count = integer(&head[1..]).filter(|count| *count <= i64::from(limits.max_elements));
    let Some(count) = count else {
        return close("invalid multibulk length");
    };
    let mut at = head.len() + 2;
    let mut elements = Vec::new();
    let mut is_long = false;
    for _ in 0..count {
        let head = line(
            &input[at..],
            b'\r',
            1,
            limits.max_inline,
            "too big bulk count string",
        )?;
        if head.first() != Some(&b'$') {
            let found = char::from(*input.get(at).expect("a line"));
            let found = if found.is_ascii_control() && "\r\n".contains(found) {
                ' '
            } else {
                found
            };
            let found = String::from_utf8_lossy(&[found as u8]).into_owned();
            return close(&format!("expected '$', got '{found}'"));
        }
        let len = integer(&head[1..]).and_then(|len| usize::try_from(len).ok());
        let Some(len) = len.filter(|len| *len <= limits.max_bulk) else {
            return close("invalid bulk length");
        };
        let start = at + head.len() + 2;
        at = start + len + 2;
        is_long |= at > limits.max_request;
        if at > input.len() {
            return Err(Stop::Wait);
        }
        elements.push(input[start..start + len].to_vec());
    }
    let event = match (elements.is_empty(), is_long) {
        (true, _) => None,
        (_, true) => Some(Event::Refused(Refusal::TooLong)),
        (_, false) => Some(Event::Request(elements)),
    };
    Ok((at, event))
}

fn inline(input: &[u8], limits: Limits) -> Reference {
    let line = line(input, b'\n', 0, limits.max_inline, "too big inline request")?;
    let consumed = line.len() + 1;
    let text = line.strip_suffix(b"\r").unwrap_or(line);
    let Some(words) = words(text) else {
        return close("unbalanced quotes in request");
    };
    Ok((
        consumed,
        (!words.is_empty()).then_some(Event::Request(words)),
    ))
}

fn is_blank(byte: u8) -> bool {
    [b' ', b'\t', b'\n', 0x0b, 0x0c, b'\r'].contains(&byte)
}

/// The words of a line, by an automaton over its bytes; `None` if the quotes do not match.
fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        Between,
        Bare,
        Double,
        Single,
        Closed,
    }
    let mut words: Vec<Vec<u8>> = Vec::new();
    let mut state = State::Between;
    let mut at = 0;
    while at < line.len() {
        let byte = line[at];
        at += 1;
        match state {
            State::Closed if !is_blank(byte) => return None,
            State::Between | State::Closed if is_blank(byte) => state = State::Between,
            State::Bare if is_blank(byte) && byte != 0x0b && byte != 0x0c => state = State::Between,
            State::Between | State::Bare | State::Closed => {
                if state == State::Between {
                    words.push(Vec::new());
                }
                state = match byte {
                    b'"' => State::Double,
                    b'\'' => State::Single,
                    _ => State::Bare,
                };
                if state == State::Bare {
                    words.last_mut()?.push(byte);
                }
            }
            State::Single if byte == b'\\' && line.get(at) == Some(&b'\'') => {
                words.last_mut()?.push(b'\'');
                at += 1;
            }
            State::Single if byte == b'\'' => state = State::Closed,
            State::Double if byte == b'"' => state = State::Closed,
            State::Double if byte == b'\\' && at < line.len() => {
                let digits = line.get(at + 1..at + 3).filter(|_| line[at] == b'x');
                let code = digits
                    .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))
                    .and_then(|digits| std::str::from_utf8(digits).ok())
                    .and_then(|digits| u8::from_str_radix(digits, 16).ok());
                let escaped = match line[at] {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'a' => 7,
                    b'b' => 8,
                    other => other,
                };
                at += if code.is_some() { 3 } else { 1 };
                words.last_mut()?.push(code.unwrap_or(escaped));
            }
            State::Single | State::Double => words.last_mut()?.push(byte),
        }
    }
    (!matches!(state, State::Single | State::Double)).then_some(words)
}
