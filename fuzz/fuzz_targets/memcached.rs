//! Arbitrary input in arbitrary pieces through the memcached codec and a model
//! engine: nothing panics, every step makes progress, and neither the replies
//! nor the unread rest depend on how the input was cut.
//!
//! The first byte picks the session, the next four the sizes of the pieces.
#![no_main]

use corewise_wire::memcached::Limits;
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/corewise-wire/tests/common/mod.rs"]
mod common;

use common::{Session, transcript};

fn session(authentication_required: bool) -> Session {
    let limits = Limits {
        max_item_size: 300,
        max_line: 4096,
        shutdown_enabled: true,
        ..Limits::default()
    };
    Session::new(authentication_required, limits)
}

fuzz_target!(|data: &[u8]| {
    let Some((&[kind, ref sizes @ ..], input)) = data.split_first_chunk::<5>() else {
        return;
    };
    let authentication_required = kind % 8 == 0;
    let mut whole = session(authentication_required);
    whole.feed(input);

    let mut pieces = session(authentication_required);
    let mut rest = input;
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, tail) = rest.split_at(rest.len().min(1 + usize::from(*size)));
        pieces.feed(piece);
        rest = tail;
    }

    assert_eq!(transcript(&pieces), transcript(&whole));
    if !whole.closed {
        assert_eq!(pieces.unread, whole.unread);
    }
});
