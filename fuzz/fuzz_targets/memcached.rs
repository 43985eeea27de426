//! Arbitrary input in arbitrary pieces through the memcached codec and a model engine; see
//! `pieces`.
//!
//! The first byte picks the session, the next four the sizes of the pieces.
#![no_main]

use corewise_wire::memcached::Limits;
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/product/corewise-wire/tests/common/mod.rs"]
mod common;
mod pieces;

use common::Session;

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
    if let Some((&[kind, ref sizes @ ..], input)) = data.split_first_chunk::<5>() {
        pieces::compare(|| session(kind % 8 == 0), *sizes, input);
    }
});
