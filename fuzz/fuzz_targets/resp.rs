//! Arbitrary input in arbitrary pieces through the codec of RESP, compared with a second parser,
//! and the same input as replies.
//!
//! The first byte picks the limits, the next four the sizes of the pieces.
#![no_main]

use corewise_wire::resp::{Limits, ReplyReader};
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/product/corewise-wire/tests/resp_driver/mod.rs"]
mod resp_driver;

use resp_driver::{Connection, receive, reference};

/// The default limits, or limits that short input reaches.
fn limits(kind: u8) -> Limits {
    if kind.is_multiple_of(4) {
        return Limits::default();
    }
    Limits {
        max_elements: 20,
        max_bulk: 100,
        max_inline: 60,
        max_request: 150,
    }
}

/// Every value that is read takes bytes, and every value that is missing is counted.
fn read_replies(input: &[u8]) {
    let mut reader = ReplyReader::default();
    let mut rest = input;
    while let Ok(Some((consumed, _))) = reader.next(rest) {
        rest = &rest[consumed..];
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&[kind, ref sizes @ ..], input)) = data.split_first_chunk::<5>() else {
        return;
    };
    read_replies(input);
    let limits = limits(kind);
    let whole = receive(limits, [input]);
    assert_eq!(whole.events, reference(input, limits));
    let mut pieces = Connection::new(true, limits);
    let mut rest = input;
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, tail) = rest.split_at(rest.len().min(1 + usize::from(*size)));
        pieces.feed(piece);
        rest = tail;
    }
    assert_eq!(pieces.events, whole.events);
    assert_eq!(pieces.closed, whole.closed);
});
