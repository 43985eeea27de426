//! What a codec asks its caller to do next, the same for all protocols.

use corewise_ops::Verb;

use crate::memcached::{Admin, ReplyEncoder};

/// What to do with the first bytes of the input.
///
/// All borrowed data lives as long as the input and the scratch arena.
#[derive(Clone, Copy, Debug)]
pub enum Step<'i> {
    /// The codec cannot proceed until the input, counted from its start, holds at least `need`
    /// bytes.
    Incomplete {
        /// More bytes than the input has now: the length of the whole request if it is known,
        /// otherwise one byte more.
        need: usize,
    },
    /// The bytes are consumed, and nothing is to be sent.
    Skip {
        /// The number of bytes, at least one.
        consumed: usize,
    },
    /// One operation for the engine.
    Op {
        /// The number of consumed bytes.
        consumed: usize,
        /// The key, decoded.
        key: &'i [u8],
        /// The operation on it.
        verb: Verb<'i>,
        /// How to print the outcome.
        form: ReplyEncoder<'i>,
    },
    /// A fixed reply.
    Reply {
        /// The number of consumed bytes.
        consumed: usize,
        /// The reply to send.
        bytes: &'static [u8],
    },
    /// A command that only the server can execute.
    Admin {
        /// The number of consumed bytes.
        consumed: usize,
        /// The command.
        admin: Admin<'i>,
    },
    /// Send this reply (it may be empty), then close the connection.
    Close {
        /// The reply to send.
        reply: &'static [u8],
    },
}

impl Step<'_> {
    /// A fixed reply, or silence.
    #[inline]
    pub(crate) fn answer(consumed: usize, bytes: &'static [u8], silent: bool) -> Self {
        if silent {
            Self::Skip { consumed }
        } else {
            Self::Reply { consumed, bytes }
        }
    }
}

/// A store whose line or header has arrived and whose value has not; see
/// [`Codec::announced`](crate::memcached::Codec::announced).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced<'i> {
    /// Bytes of the input before the value.
    pub line_len: usize,
    /// Bytes of the value.
    pub value_len: usize,
    /// Bytes after the value that belong to the store: 2 for a line break, or 0.
    pub end_len: usize,
    /// The key, decoded.
    pub key: &'i [u8],
    /// The client flags that the item will have.
    pub client_flags: u32,
}
