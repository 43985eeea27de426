//! Arbitrary input in arbitrary pieces through the codec of the CPHASH protocol and a model engine;
//! see `pieces`.
//!
//! The first byte picks the session, the next four the sizes of the pieces.
#![no_main]

use corewise_wire::memcached::Limits;
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/product/corewise-wire/tests/common/mod.rs"]
mod common;
mod pieces;

use common::Session;

/// Accepts values of up to 126 bytes, or none.
fn session(accepts_values: bool) -> Session {
    let limits = Limits {
        max_item_size: if accepts_values { 200 } else { 0 },
        ..Limits::default()
    };
    Session::cphash(limits)
}

fuzz_target!(|data: &[u8]| {
    if let Some((&[kind, ref sizes @ ..], input)) = data.split_first_chunk::<5>() {
        pieces::compare(|| session(kind % 8 != 0), *sizes, input);
    }
});
