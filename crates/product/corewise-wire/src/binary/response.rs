//! Headers of responses, and errors.

use bumpalo::Bump;

use super::{HEADER_LEN, RESPONSE};

/// An error: the status of its response, and the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    status: u16,
    text: &'static [u8],
}

impl Failure {
    const fn new(status: u16, text: &'static [u8]) -> Self {
        Self { status, text }
    }

    pub(super) const NOT_FOUND: Self = Self::new(0x01, b"Not found");
    pub(super) const EXISTS: Self = Self::new(0x02, b"Data exists for key.");
    pub(super) const TOO_LARGE: Self = Self::new(0x03, b"Too large.");
    pub(super) const INVALID: Self = Self::new(0x04, b"Invalid arguments");
    pub(super) const NOT_STORED: Self = Self::new(0x05, b"Not stored.");
    pub(super) const NON_NUMERIC: Self =
        Self::new(0x06, b"Non-numeric server-side value for incr or decr");
    pub(super) const FORBIDDEN: Self = Self::new(0x20, b"Auth failure.");
    pub(super) const UNKNOWN_COMMAND: Self = Self::new(0x81, b"Unknown command");
    pub(super) const NO_ROOM_FOR_ITEM: Self = Self::new(0x82, b"Out of memory allocating item");
    pub(super) const NO_ROOM_FOR_COUNTER: Self =
        Self::new(0x82, b"Out of memory incrementing value");
}

/// The lengths of the parts of a response's body.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Body {
    pub(super) extras: u8,
    pub(super) key: usize,
    pub(super) value: usize,
}

/// The parts of a request that its response repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Echo {
    pub(super) opcode: u8,
    pub(super) opaque: [u8; 4],
}

impl Echo {
    /// The header of a response with this body.
    #[inline]
    pub(super) fn header(self, status: u16, body: Body, cas: u64) -> [u8; HEADER_LEN] {
        let total = usize::from(body.extras) + body.key + body.value;
        let mut header = [0; HEADER_LEN];
        header[0] = RESPONSE;
        header[1] = self.opcode;
        // A key has at most 250 bytes, and an item less than 4 GiB.
        header[2..4].copy_from_slice(&(body.key as u16).to_be_bytes());
        header[4] = body.extras;
        header[6..8].copy_from_slice(&status.to_be_bytes());
        header[8..12].copy_from_slice(&(total as u32).to_be_bytes());
        header[12..16].copy_from_slice(&self.opaque);
        header[16..].copy_from_slice(&cas.to_be_bytes());
        header
    }

    /// Appends the response to a success without a body.
    pub(super) fn push_success(self, cas: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.header(0, Body::default(), cas));
    }

    /// Appends an error.
    pub(super) fn push_failure(self, failure: Failure, out: &mut Vec<u8>) {
        out.reserve(HEADER_LEN + failure.text.len());
        out.extend_from_slice(&self.header_of(failure));
        out.extend_from_slice(failure.text);
    }

    /// Appends the error that there is no item, with the key instead of the text.
    pub(super) fn push_missing_key(self, key: &[u8], out: &mut Vec<u8>) {
        let body = Body {
            key: key.len(),
            ..Body::default()
        };
        out.reserve(HEADER_LEN + key.len());
        out.extend_from_slice(&self.header(Failure::NOT_FOUND.status, body, 0));
        out.extend_from_slice(key);
    }

    /// Appends one statistic; without a name and a value, the end of a list.
    pub(super) fn push_stat(self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let body = Body {
            extras: 0,
            key: name.len(),
            value: value.len(),
        };
        out.reserve(HEADER_LEN + name.len() + value.len());
        out.extend_from_slice(&self.header(0, body, 0));
        out.extend_from_slice(name);
        out.extend_from_slice(value);
    }

    fn header_of(self, failure: Failure) -> [u8; HEADER_LEN] {
        let body = Body {
            value: failure.text.len(),
            ..Body::default()
        };
        self.header(failure.status, body, 0)
    }

    /// An error.
    #[cold]
    pub(super) fn failure(self, failure: Failure, scratch: &Bump) -> &[u8] {
        joined(&self.header_of(failure), failure.text, scratch)
    }

    /// A success with this value.
    pub(super) fn success<'i>(self, value: &[u8], scratch: &'i Bump) -> &'i [u8] {
        let body = Body {
            value: value.len(),
            ..Body::default()
        };
        joined(&self.header(0, body, 0), value, scratch)
    }
}

fn joined<'i>(header: &[u8; HEADER_LEN], text: &[u8], scratch: &'i Bump) -> &'i [u8] {
    let bytes = scratch.alloc_slice_fill_copy(HEADER_LEN + text.len(), 0);
    let (head, tail) = bytes.split_at_mut(HEADER_LEN);
    head.copy_from_slice(header);
    tail.copy_from_slice(text);
    bytes
}
