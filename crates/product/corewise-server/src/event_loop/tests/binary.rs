//! Clients of memcached's binary protocol are refused in their protocol.

use super::*;

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
    let mut replies = Vec::new();
    client.take(&mut replies);
    (replies, client.is_closed)
}

#[test]
fn a_binary_request_is_refused_at_once_and_its_connection_closed() {
    for &completion in COMPLETIONS {
        let mut server = TestServer::new(completion);
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
}

#[test]
fn nothing_is_executed_that_follows_a_binary_request() {
    for &completion in COMPLETIONS {
        let mut server = TestServer::new(completion);
        let mut request = header(0);
        request.extend(b"set a 0 0 1\r\n1\r\nget a\r\n");
        let answer = answer(&mut server, &request, request.len());
        assert_eq!(answer, (REFUSAL.to_vec(), true));
        assert_eq!(server.executed(), [""; 0]);
    }
}
