//! Conversations in RESP: with a server of ours, and with a redis-server beside it.

use std::time::Duration;

use super::{Client, Engine, TestServer};
use corewise_wire::resp::encode_request;

/// A server with a listener for RESP.
pub(crate) fn start(engine: Engine, options: &[&str]) -> TestServer {
    let listen = ["--resp", "127.0.0.1:0"];
    engine.with(&[&listen[..], options].concat())
}

pub(crate) fn connect(server: &TestServer) -> Client {
    Client::connect(server.resp_address())
}

/// The same, and a client of it.
pub(crate) fn start_and_connect(engine: Engine, options: &[&str]) -> (TestServer, Client) {
    let server = start(engine, options);
    let client = connect(&server);
    (server, client)
}

/// A request with these words, in multibulk form.
pub(crate) fn request<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
    let mut request = Vec::new();
    encode_request(&words, &mut request);
    request
}

/// Sends each line as one pipeline of inline requests, and expects the replies.
#[track_caller]
pub(crate) fn converse(client: &mut Client, lines: &[(&str, &str)]) {
    for (line, reply) in lines {
        client.ask(format!("{line}\r\n"), reply);
    }
}

/// The hits and misses of the keyspace that `INFO` tells, to a client of RESP2.
pub(crate) fn hits_and_misses(client: &mut Client) -> [u64; 2] {
    client.send(b"info stats\r\n");
    let text = String::from_utf8(read_element(client)).expect("text");
    ["keyspace_hits:", "keyspace_misses:"].map(|name| {
        let mut lines = text.lines();
        let number = lines.find_map(|line| line.strip_prefix(name));
        number.expect(name).parse().expect("a number")
    })
}

/// Reads the next line of a reply, with the bulk or verbatim string that it announces.
pub(crate) fn read_element(client: &mut Client) -> Vec<u8> {
    let mut bytes = client.read_until(b"\r\n");
    if matches!(bytes[0], b'$' | b'=') && bytes != b"$-1\r\n" {
        let len = String::from_utf8_lossy(&bytes[1..bytes.len() - 2]).parse::<usize>();
        bytes.extend(client.bytes_slowly(len.unwrap() + 2, Duration::ZERO));
    }
    bytes
}
