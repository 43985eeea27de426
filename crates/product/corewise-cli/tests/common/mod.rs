//! A server under test, and a blocking client that sends and expects bytes.
//!
//! `COREWISE_TEST_SERVER=memcached` runs the same tests against memcached. A test that passes with
//! both states what memcached does, rather than what we wish.

#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "each test program uses its part of this"
)]

mod client;
pub(crate) mod conversation;
#[macro_use]
mod engine;
mod redis;
pub(crate) mod resp;
mod server;

pub(crate) use client::Client;
pub(crate) use engine::Engine;
pub(crate) use redis::Redis;
pub(crate) use server::{Kind, TestServer};

use std::time::{Duration, Instant};

/// Longer than anything in these tests takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Reports that a test did not run. With `COREWISE_NO_SKIP=1` that is a failure.
pub(crate) fn skip(reason: &str) {
    println!("SKIPPED: {reason}");
    let forbidden = std::env::var("COREWISE_NO_SKIP").is_ok_and(|value| value == "1");
    assert!(!forbidden, "COREWISE_NO_SKIP=1, and skipped: {reason}");
}

/// Whether a test of behaviour specific to Corewise should continue.
pub(crate) fn concerns_the_server_under_test() -> bool {
    let corewise = Kind::under_test() == Kind::Corewise;
    if !corewise {
        println!("not for memcached");
    }
    corewise
}

/// Waits until a condition holds, and fails if it does not within [`PATIENCE`].
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Bytes as an assertion prints them: escaped, and shortened if there are many.
pub(crate) fn show(bytes: &[u8]) -> String {
    const MOST: usize = 2_000;
    let shown = bytes[..bytes.len().min(MOST)].escape_ascii();
    match bytes.len() {
        0..=MOST => format!("{shown}"),
        all => format!("{shown}… ({all} bytes)"),
    }
}

/// Raises the limit of open files to the maximum, and returns it.
pub(crate) fn raise_open_files() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, all).expect("to raise a limit to its maximum");
    maximum.unwrap_or(u64::MAX)
}
