//! Clients of memcached's binary protocol are refused in their protocol.

use crate::common;

use common::{Session, talk};
use corewise_wire::memcached::Limits;

/// A request with these fields and 17 bytes of a body.
fn request(opcode: u8, opaque: u32) -> Vec<u8> {
    let mut request = vec![0x80, opcode, 0, 5, 8, 0, 0, 0, 0, 0, 0, 17];
    request.extend(opaque.to_be_bytes());
    request.extend(77u64.to_be_bytes());
    request.extend(b"\0\0\0\0\0\0\0\0key\r\nmn\r\n");
    request
}

/// The response that the command is unknown.
fn refusal(opcode: u8, opaque: u32) -> Vec<u8> {
    let mut refusal = vec![0x81, opcode, 0, 0, 0, 0, 0x00, 0x81, 0, 0, 0, 15];
    refusal.extend(opaque.to_be_bytes());
    refusal.extend(0u64.to_be_bytes());
    refusal.extend(b"Unknown command");
    refusal
}

/// What a connection answers that receives these pieces, and whether it is closed.
fn answers<'p>(authentication: bool, pieces: impl Iterator<Item = &'p [u8]>) -> (Vec<u8>, bool) {
    let mut session = Session::new(authentication, Limits::default());
    pieces.for_each(|piece| session.feed(piece));
    (session.out, session.closed)
}

#[test]
fn each_command_is_unknown_however_its_request_is_split() {
    for authentication in [false, true] {
        for opcode in 0..=255 {
            let opaque = u32::from(opcode) * 0x0010_0305;
            let request = request(opcode, opaque);
            let expected = (refusal(opcode, opaque), true);
            for size in [1, 7, 23, 24, 25, request.len()] {
                let answers = answers(authentication, request.chunks(size));
                assert_eq!(answers, expected, "{opcode} in pieces of {size}");
            }
        }
    }
}

#[test]
fn an_unfinished_header_is_not_answered() {
    let request = request(0x0b, 1);
    for len in 1..24 {
        assert_eq!(answers(false, request[..len].chunks(len)), (vec![], false));
        assert_eq!(answers(false, request[..len].chunks(1)), (vec![], false));
    }
    assert!(answers(false, request[..24].chunks(1)).1);
}

#[test]
fn only_the_first_byte_of_a_connection_determines_its_protocol() {
    let mut input = b"mn\r\n".to_vec();
    input.extend(request(0x0b, 1));
    // The line break in the body ends a line.
    assert_eq!(talk(&input), "MN\r\nERROR\r\nMN\r\n");
    for first in (0..=255u8).filter(|byte| !b"\x80 ".contains(byte)) {
        let mut input = request(0x0b, 1);
        input[0] = first;
        let expected = if first == b'\n' { "ERROR\r\n" } else { "" };
        assert_eq!(
            talk(&input),
            format!("{expected}ERROR\r\nMN\r\n"),
            "{first}"
        );
    }
}
