//! What a codec asks its caller to do next, the same for all protocols.

use corewise_ops::Verb;

/// What to do with the first bytes of the input.
///
/// `F` is how the protocol prints the outcome of an operation, and `C` a command that the server
/// executes. All borrowed data lives as long as the input and the scratch arena.
#[derive(Clone, Copy, Debug)]
pub enum Step<'i, F, C> {
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
        form: F,
    },
    /// Bytes to send after the replies to earlier operations: a fixed reply, or the beginning of a
    /// reply whose other parts are the outcomes of operations.
    Frame {
        /// The number of consumed bytes.
        consumed: usize,
        /// The bytes to send.
        bytes: &'i [u8],
    },
    /// A command that the server executes once all earlier operations have completed. It prints
    /// its own reply.
    Call {
        /// The number of consumed bytes.
        consumed: usize,
        /// The command.
        call: C,
    },
    /// Send this reply (it may be empty), then close the connection.
    Close {
        /// The reply to send.
        reply: &'i [u8],
    },
}

/// What an operation counts as in the server's statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tally {
    /// Nothing.
    None,
    /// A look-up to read.
    Get,
    /// A look-up to change the deadline.
    Touch,
    /// Both of these.
    Gat,
    /// A store.
    Store,
    /// A store that compares the cas value.
    Cas,
    /// [`Get`](Self::Get) and [`Store`](Self::Store).
    GetSet,
    /// A removal.
    Delete,
    /// An increment of memcached.
    Incr,
    /// A decrement of memcached.
    Decr,
    /// A store over the size limit, which removes the old item.
    Refused,
    /// A store for which there was no memory to read it, which removes the old item.
    Unread,
}

impl<'i, F, C> Step<'i, F, C> {
    /// An operation on `key`.
    #[inline]
    pub fn op(consumed: usize, key: &'i [u8], verb: Verb<'i>, form: F) -> Self {
        Self::Op {
            consumed,
            key,
            verb,
            form,
        }
    }

    /// Bytes to send.
    #[inline]
    pub fn frame(consumed: usize, bytes: &'i [u8]) -> Self {
        Self::Frame { consumed, bytes }
    }

    /// A fixed reply, or silence.
    #[inline]
    pub(crate) fn answer(consumed: usize, bytes: &'static [u8], silent: bool) -> Self {
        if silent {
            Self::Skip { consumed }
        } else {
            Self::Frame { consumed, bytes }
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
