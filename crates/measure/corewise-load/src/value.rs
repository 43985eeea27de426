//! Values. A key determines the length and every byte of its value, so each hit can be checked
//! without remembering what was stored.
//!
//! ```text
//! byte   0        8                                   len
//!        [ tag    | FILLER[8 % 4096] FILLER[9 % 4096] ... ]
//! ```
//!
//! The tag is 48 bits of a hash of the key index in printable characters; a value shorter than
//! eight bytes is a prefix of it. No byte is a line break, so the empty responder can count lines.

use crate::config::ValueSize;
use corewise_measure::draw::mix;
use corewise_measure::trace::TraceConfig;

const TAG: usize = 8;
const FILLER_BYTES: usize = 4096;
static FILLER: [u8; FILLER_BYTES] = filler();

const fn filler() -> [u8; FILLER_BYTES] {
    let mut bytes = [0; FILLER_BYTES];
    let mut at = 0;
    while at < FILLER_BYTES {
        bytes[at] = b'a' + ((at * 7 + at / 26) % 26) as u8;
        at += 1;
    }
    bytes
}

/// Lengths and contents of all values of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values {
    lengths: Lengths,
}

#[derive(Clone, Copy, Debug)]
enum Lengths {
    Drawn(ValueSize),
    Traced(TraceConfig),
}

impl Values {
    pub(crate) fn new(size: ValueSize) -> Self {
        let lengths = Lengths::Drawn(size);
        Self { lengths }
    }

    /// The values of a trace.
    pub(crate) fn of_trace(trace: TraceConfig) -> Self {
        let lengths = Lengths::Traced(trace);
        Self { lengths }
    }

    /// Length of the value of `key` in bytes.
    #[inline]
    pub(crate) fn len(&self, key: u32) -> u32 {
        let size = match &self.lengths {
            Lengths::Drawn(size) => size,
            Lengths::Traced(trace) => return trace.value_bytes(u64::from(key)),
        };
        let span = size.max - size.min;
        if span == 0 {
            return size.min;
        }
        let draw = mix(u64::from(key) ^ 0x5a5a << 40) >> 32;
        size.min + ((draw * (u64::from(span) + 1)) >> 32) as u32
    }

    /// Time to live of `key` in seconds; 0 means forever.
    #[inline]
    pub(crate) fn ttl_s(&self, key: u32) -> u32 {
        match &self.lengths {
            Lengths::Drawn(_) => 0,
            Lengths::Traced(trace) => trace.ttl_ms(u64::from(key)).div_ceil(1000),
        }
    }

    /// Appends the first `len` bytes of the value of `key`.
    pub(crate) fn render(&self, key: u32, len: u32, out: &mut Vec<u8>) {
        let len = len as usize;
        let tag = tag(key);
        out.extend_from_slice(&tag[..len.min(TAG)]);
        let mut at = TAG;
        while at < len {
            let piece = filler_from(at, len - at);
            out.extend_from_slice(piece);
            at += piece.len();
        }
    }

    /// Whether the value of `key` contains `piece` at byte `at`.
    #[inline]
    pub(crate) fn matches(&self, key: u32, at: u32, piece: &[u8]) -> bool {
        let (mut at, mut rest) = (at as usize, piece);
        if at < TAG {
            let n = rest.len().min(TAG - at);
            if rest[..n] != tag(key)[at..at + n] {
                return false;
            }
            (at, rest) = (at + n, &rest[n..]);
        }
        while !rest.is_empty() {
            let expected = filler_from(at, rest.len());
            let n = expected.len();
            if rest[..n] != *expected {
                return false;
            }
            (at, rest) = (at + n, &rest[n..]);
        }
        true
    }
}

fn filler_from(at: usize, want: usize) -> &'static [u8] {
    let from = at % FILLER_BYTES;
    &FILLER[from..FILLER_BYTES.min(from + want)]
}

#[inline]
fn tag(key: u32) -> [u8; TAG] {
    let bits = mix(u64::from(key)) & 0x3f3f_3f3f_3f3f_3f3f;
    (bits + 0x3030_3030_3030_3030).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(min: u32, max: u32) -> Values {
        Values::new(ValueSize { min, max })
    }

    #[test]
    fn every_piece_of_a_value_matches_and_every_change_is_seen() {
        let values = values(20, 20);
        let mut value = Vec::new();
        values.render(77, 20, &mut value);
        for from in 0..=20 {
            for to in from..=20 {
                assert!(values.matches(77, from as u32, &value[from..to]));
            }
        }
        for at in 0..20 {
            let mut wrong = value.clone();
            wrong[at] ^= 1;
            assert!(!values.matches(77, 0, &wrong), "byte {at}");
        }
        assert!(!values.matches(78, 0, &value));
    }

    #[test]
    fn long_and_short_values_have_the_asked_length_and_no_line_end() {
        for len in [0, 1, 7, 8, 9, 4096, 10_000] {
            let mut value = Vec::new();
            values(len, len).render(5, len, &mut value);
            assert_eq!(value.len(), len as usize);
            assert!(value.iter().all(u8::is_ascii_graphic));
            assert!(values(len, len).matches(5, 0, &value));
        }
    }

    #[test]
    fn lengths_fill_the_range() {
        let values = values(10, 19);
        let mut seen = [0; 10];
        for key in 0..10_000 {
            seen[values.len(key) as usize - 10] += 1;
        }
        assert!(seen.iter().all(|&n| (800..1200).contains(&n)), "{seen:?}");
    }
}
