//! Arbitrary input in arbitrary pieces through the codec of memcached's binary protocol and a model
//! engine: nothing panics, every step makes progress, and neither the replies nor the unread rest
//! depend on how the input was cut.
//!
//! The first byte picks the connection, the next four the sizes of the pieces.
#![no_main]

use corewise_wire::memcached::Limits;
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/product/corewise-wire/tests/binary_driver/mod.rs"]
mod binary_driver;

use binary_driver::Connection;

/// Accepts items of up to 141 bytes, or none; has memory for unfinished requests, or not.
fn connection(kind: u8) -> Connection {
    Connection::new(Limits {
        max_item_size: if kind.is_multiple_of(8) { 0 } else { 200 },
        flush_enabled: kind & 16 == 0,
        dump_enabled: kind & 32 == 0,
        ..Limits::default()
    })
}

fuzz_target!(|data: &[u8]| {
    let Some((&[kind, ref sizes @ ..], input)) = data.split_first_chunk::<5>() else {
        return;
    };
    let mut whole = connection(kind);
    whole.feed(input);
    let mut pieces = connection(kind);
    pieces.in_parts = true;
    let mut starved = connection(kind);
    starved.no_room = true;
    let mut rest = input;
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, tail) = rest.split_at(rest.len().min(1 + usize::from(*size)));
        pieces.feed(piece);
        starved.feed(piece);
        rest = tail;
    }
    assert_eq!(pieces.out, whole.out);
    assert_eq!(pieces.closed, whole.closed);
    if !whole.closed {
        assert_eq!(pieces.unread, whole.unread);
    }
});
