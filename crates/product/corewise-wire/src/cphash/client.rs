//! The client's side: requests to bytes, and the header of a reply to a size.

use super::{HEADER_LEN, INSERT, KeyNumber, LOOKUP, REPLY_HEADER_LEN};

/// Appends a LOOKUP to `out`.
///
/// ```
/// use corewise_wire::cphash::{KeyNumber, encode_lookup};
/// let mut out = Vec::new();
/// encode_lookup(KeyNumber::new(0x0102).unwrap(), &mut out);
/// assert_eq!(out, [1, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
/// ```
#[inline]
pub fn encode_lookup(key: KeyNumber, out: &mut Vec<u8>) {
    out.extend_from_slice(&header(LOOKUP, 0, key));
}

/// Appends the header of an INSERT to `out`. The caller appends the value, `size` bytes.
///
/// ```
/// use corewise_wire::cphash::{KeyNumber, encode_insert};
/// let mut out = Vec::new();
/// encode_insert(KeyNumber::new(3).unwrap(), 2, &mut out);
/// out.extend_from_slice(b"hi");
/// assert_eq!(out, *b"\x02\0\0\0\x02\0\0\0\x03\0\0\0\0\0\0\0hi");
/// ```
#[inline]
pub fn encode_insert(key: KeyNumber, size: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&header(INSERT, size, key));
}

/// The size in the header of a reply to a LOOKUP; zero means a miss.
///
/// ```
/// use corewise_wire::cphash::decode_size;
/// assert_eq!(decode_size([0x34, 0x12, 0, 0]), 0x1234);
/// ```
#[inline]
#[must_use]
pub fn decode_size(header: [u8; REPLY_HEADER_LEN]) -> u32 {
    u32::from_le_bytes(header)
}

#[inline]
fn header(operation: u32, size: u32, key: KeyNumber) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..4].copy_from_slice(&operation.to_le_bytes());
    header[4..8].copy_from_slice(&size.to_le_bytes());
    header[8..].copy_from_slice(&key.get().to_le_bytes());
    header
}
