//! Executes memcached requests from standard input against a model table and prints the replies, to
//! compare them byte by byte with those of another server.
//!
//! `printf 'set k 0 0 2\r\nhi\r\nget k\r\n' | cargo run -p corewise-wire --example wire_pipe`

use std::io::{Read as _, Write as _};

#[path = "../tests/common/mod.rs"]
mod common;

fn main() -> std::io::Result<()> {
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input)?;
    let mut session = common::Session::new(false, Default::default());
    session.feed(&input);
    std::io::stdout().write_all(&session.out)?;
    if session.closed {
        print!("<EOF>");
    }
    Ok(())
}
