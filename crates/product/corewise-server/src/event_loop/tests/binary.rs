//! Clients of memcached's binary protocol: served, or refused in their protocol.

use super::*;
use crate::config::BindingProtocol;

/// A server without the binary protocol.
fn ascii() -> TestServer {
    let config = Config {
        binding: BindingProtocol::Ascii,
        ..Config::default()
    };
    TestServer::with(config)
}

/// The header of a request whose body has this length.
fn header(body: usize) -> Vec<u8> {
    let mut header = vec![0x80, 0x01, 0, 1, 8, 0, 0, 0];
    header.extend((body as u32).to_be_bytes());
    header.extend([1, 2, 3, 4]);
    header.extend([0; 8]);
    header
}

const REFUSAL: &[u8] =
    b"\x81\x01\0\0\0\0\x00\x81\0\0\0\x0f\x01\x02\x03\x04\0\0\0\0\0\0\0\0Unknown command";

/// What a client receives that sends `request`, `size` bytes a turn, and whether it was
/// disconnected.
fn answer(server: &mut TestServer, request: &[u8], size: usize) -> (Vec<u8>, bool) {
    let mut client = server.connect();
    for piece in request.chunks(size) {
        client.send_some(piece);
        server.turn();
    }
    server.turn(); // for a request that has changed the codec
    let mut replies = Vec::new();
    client.take(&mut replies);
    (replies, client.is_closed)
}

#[test]
fn a_binary_request_is_refused_at_once_and_its_connection_closed() {
    let mut server = ascii();
    let mut other = server.connect();
    // More than a turn reads, but what a socket holds.
    for body in [0, 1, 9, 1_000, SLICE + 1] {
        let mut request = header(body);
        request.resize(24 + body, b'\n');
        for size in [1, 23, 24, request.len()] {
            let sent = &request[..request.len().min(24 * size)];
            let answer = answer(&mut server, sent, size);
            assert_eq!(answer, (REFUSAL.to_vec(), true), "{body} {size}");
        }
    }
    assert_eq!(server.talk(&mut other, b"mn\r\n"), "MN\r\n");
    assert_eq!(server.event_loop.conns.len(), 1);
}

#[test]
fn nothing_is_executed_that_follows_a_binary_request() {
    let mut server = ascii();
    let mut request = header(0);
    request.extend(b"set a 0 0 1\r\n1\r\nget a\r\n");
    let answer = answer(&mut server, &request, request.len());
    assert_eq!(answer, (REFUSAL.to_vec(), true));
    assert_eq!(server.executed(), [""; 0]);
}

/// Requests that set `k` to `v` and read it, and a request for the protocol's version of `get k`.
const CONVERSATION: &[u8] = b"\x80\x11\0\x01\x08\0\0\0\0\0\0\x0a....\0\0\0\0\0\0\0\0\
    \0\0\0\x05\0\0\0\0kv\
    \x80\x0c\0\x01\0\0\0\0\0\0\0\x01wxyz\0\0\0\0\0\0\0\0k\
    \x80\x17\0\0\0\0\0\0\0\0\0\0....\0\0\0\0\0\0\0\0";

#[test]
fn the_first_byte_determines_the_protocol_however_the_input_is_cut() {
    for size in [1, 5, 23, 24, 25, CONVERSATION.len()] {
        let mut server = TestServer::new();
        let mut other = server.connect();
        let (replies, is_closed) = answer(&mut server, CONVERSATION, size);
        assert!(is_closed, "{size}");
        assert_eq!(replies[..16], *b"\x81\x0c\0\x01\x04\0\0\0\0\0\0\x06wxyz");
        assert_eq!(replies[24..], *b"\0\0\0\x05kv", "{size}");
        assert_eq!(
            server.talk(&mut other, b"get k\r\n"),
            "VALUE k 5 1\r\nv\r\nEND\r\n"
        );
        assert_eq!(server.event_loop.counters.conn_yields, 0);
    }
}

#[test]
fn a_statistic_does_not_disturb_the_replies_before_it() {
    let mut server = TestServer::new();
    let mut reset = [0; 24 + 5];
    reset[..12].copy_from_slice(b"\x80\x10\0\x05\0\0\0\0\0\0\0\x05");
    reset[24..].copy_from_slice(b"reset");
    let mut noop = [0; 24];
    noop[..2].copy_from_slice(b"\x80\x0a");
    let request = [&noop[..], &reset, &noop].concat();
    let (replies, is_closed) = answer(&mut server, &request, request.len());
    assert!(!is_closed);
    let opcodes: Vec<u8> = replies.chunks(24).map(|reply| reply[1]).collect();
    assert_eq!(opcodes, [0x0a, 0x10, 0x0a]);
}
