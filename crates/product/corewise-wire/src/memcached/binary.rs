//! memcached's binary protocol, as far as it takes to refuse it: without an answer, a client waits
//! for its timeout.
//!
//! ```text
//!   request   0x80 opcode │ lengths, 6 bytes                 │ body length, 4 │ opaque, 4 │ cas, 8
//!   refusal   0x81 opcode │ 0 0 0 0 │ status: 0x00 0x81      │ 0 0 0 15       │ opaque    │ 0 … 0
//!             "Unknown command"
//! ```

use super::Step;
use super::admin::Admin;

/// The first byte of a request.
pub(super) const REQUEST: u8 = 0x80;
/// The first byte of a response.
const RESPONSE: u8 = 0x81;
/// Length of the header of a request and of a response.
const HEADER: usize = 24;
/// The status of a response to an unknown command, and its text.
const UNKNOWN_COMMAND: [u8; 2] = [0x00, 0x81];
const TEXT: &[u8; 15] = b"Unknown command";

/// The parts of a request that its response repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinaryRequest {
    opcode: u8,
    opaque: [u8; 4],
}

impl BinaryRequest {
    /// The response that the command is unknown.
    ///
    /// ```
    /// use bumpalo::Bump;
    /// use corewise_ops::Now;
    /// use corewise_wire::Step;
    /// use corewise_wire::memcached::{Admin, Codec, Limits};
    ///
    /// let (limits, scratch) = (Limits::default(), Bump::new());
    /// let now = Now::new(1, 1);
    /// let mut request = [0; 24];
    /// request[..2].copy_from_slice(&[0x80, 0x0b]);
    /// let step = Codec::new(false).next(&request, &limits, now, &scratch);
    /// let Step::Call { call: Admin::Binary(request), .. } = step
    /// else { panic!() };
    /// let refusal = request.refusal();
    /// assert_eq!(refusal[..8], [0x81, 0x0b, 0, 0, 0, 0, 0x00, 0x81]);
    /// ```
    #[must_use]
    pub fn refusal(&self) -> [u8; HEADER + TEXT.len()] {
        let mut response = [0; HEADER + TEXT.len()];
        let (header, text) = response.split_at_mut(HEADER);
        header[0] = RESPONSE;
        header[1] = self.opcode;
        header[6..8].copy_from_slice(&UNKNOWN_COMMAND);
        header[11] = TEXT.len() as u8;
        header[12..16].copy_from_slice(&self.opaque);
        text.copy_from_slice(TEXT);
        response
    }
}

/// Parses the header at the start of `input`.
pub(super) fn request(input: &[u8]) -> Step<'_> {
    let Some(header) = input.first_chunk::<HEADER>() else {
        return Step::Incomplete { need: HEADER };
    };
    let [_, opcode, ..] = *header;
    let opaque = [header[12], header[13], header[14], header[15]];
    Step::Call {
        consumed: HEADER,
        call: Admin::Binary(BinaryRequest { opcode, opaque }),
    }
}
