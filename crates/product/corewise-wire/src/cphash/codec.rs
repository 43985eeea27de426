//! The server's side: the state of one connection, and the framing of its input.

use bumpalo::Bump;
use corewise_ops::{Delete, Get, Store, StoreMode, Verb};

use super::{HEADER_LEN, INSERT, KeyNumber, LOOKUP};
use crate::memcached::{Command, Limits, ReplyEncoder, Step};
use crate::step::Announced;

/// The largest value of an INSERT that is not refused: that of a `set` with a key of
/// [`KeyNumber::TEXT_LEN`] bytes and no client flags.
///
/// ```
/// use corewise_wire::{cphash::max_value_len, memcached::Limits};
/// assert_eq!(max_value_len(&Limits::default()), (1 << 20) - 59 - 15);
/// ```
#[must_use]
pub fn max_value_len(limits: &Limits) -> usize {
    limits.max_payload().saturating_sub(KeyNumber::TEXT_LEN)
}

/// The header of a request.
struct Header {
    is_insert: bool,
    size: u32,
    key: KeyNumber,
}

/// Why there is no header.
enum NoHeader {
    /// It has not arrived: this many bytes are needed.
    Unfinished(usize),
    /// It is none, so it is unknown where the next request begins.
    Malformed,
}

impl Header {
    /// Parses the header at the start of `input`. An unknown operation is found as soon as its four
    /// bytes are there, so a client of another protocol does not wait for a reply.
    #[inline]
    fn parse(input: &[u8]) -> Result<Self, NoHeader> {
        let Some(operation) = input.first_chunk() else {
            return Err(NoHeader::Unfinished(4));
        };
        let is_insert = match u32::from_le_bytes(*operation) {
            LOOKUP => false,
            INSERT => true,
            _ => return Err(NoHeader::Malformed),
        };
        let Some((header, _)) = input.split_first_chunk::<HEADER_LEN>() else {
            return Err(NoHeader::Unfinished(HEADER_LEN));
        };
        let [_, _, _, _, s0, s1, s2, s3, key @ ..] = *header;
        let size = u32::from_le_bytes([s0, s1, s2, s3]);
        let key = KeyNumber::new(u64::from_le_bytes(key)).ok_or(NoHeader::Malformed)?;
        if !is_insert && size != 0 {
            return Err(NoHeader::Malformed);
        }
        Ok(Self {
            is_insert,
            size,
            key,
        })
    }
}

/// What to do with an INSERT whose value is not in the input.
#[derive(Clone, Copy)]
enum Missing {
    /// Wait for the value.
    Awaited,
    /// Refuse the INSERT: there is no memory to wait for the value.
    Refused,
    /// Proceed as if the value were there: the caller has it.
    Apart,
}

/// The state of one connection.
///
/// A plain value: copy it before a step, and restore the copy to undo the step. A malformed header
/// (an unknown operation, a hash key of more than 60 bits, a LOOKUP with a size) closes the
/// connection. An INSERT over the size limit is skipped, and the old item is removed.
///
/// ```
/// use bumpalo::Bump;
/// use corewise_ops::{Absence, Now, Outcome, Verb};
/// use corewise_wire::{Step, cphash::Codec, memcached::Limits};
///
/// let now = Now::new(1_000, 1_800_000_000);
/// let (limits, scratch) = (Limits::default(), Bump::new());
/// let input = b"\x01\0\0\0\0\0\0\0\x2a\0\0\0\0\0\0\0";
/// let Step::Op { consumed: 16, key, verb: Verb::Get(_), form } =
///     Codec::default().next(input, &limits, &scratch)
/// else { panic!() };
/// assert_eq!(key, b"00000000000002a");
///
/// let mut out = Vec::new();
/// form.encode(&Outcome::Missing(Absence::Unknown), now, &mut out);
/// assert_eq!(out, [0, 0, 0, 0]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Codec {
    /// Remaining bytes of a value to discard.
    rest: u32,
}

impl Codec {
    /// Whether bytes of a value to discard have yet to arrive.
    #[inline]
    #[must_use]
    pub fn is_swallowing(&self) -> bool {
        self.rest > 0
    }

    /// Parses the unread `input` and returns what to do with its first bytes: never
    /// [`Step::Frame`] or [`Step::Call`].
    ///
    /// Takes constant time. Only the text of the key is allocated, in `scratch`. After
    /// [`Step::Incomplete`] the next call must see the same bytes with more behind them.
    #[inline]
    pub fn next<'i>(&mut self, input: &'i [u8], limits: &Limits, scratch: &'i Bump) -> Step<'i> {
        self.step(input, limits, scratch, Missing::Awaited)
    }

    /// Gives up the unfinished request at the start of `input`. Call it instead of
    /// [`next`](Self::next) after a [`Step::Incomplete`], when there is no memory to hold the rest.
    ///
    /// The value of an INSERT is discarded as it arrives, and the old item is removed. After an
    /// unfinished header the connection is closed.
    #[cold]
    pub fn refuse<'i>(&mut self, input: &'i [u8], limits: &Limits, scratch: &'i Bump) -> Step<'i> {
        match self.step(input, limits, scratch, Missing::Refused) {
            Step::Incomplete { .. } => Step::Close { reply: b"" },
            step => step,
        }
    }

    /// The INSERT at the start of `input`, if [`next`](Self::next) has returned
    /// [`Step::Incomplete`] and only part of its value is missing. The caller may then receive the
    /// value elsewhere and continue with [`next_apart`](Self::next_apart).
    #[must_use]
    pub fn announced<'i>(
        &self,
        input: &'i [u8],
        limits: &Limits,
        scratch: &'i Bump,
    ) -> Option<Announced<'i>> {
        let header = Header::parse(input).ok().filter(|h| h.is_insert)?;
        let value_len = header.size as usize;
        let is_whole = input.len() - HEADER_LEN >= value_len;
        if self.rest > 0 || is_whole || value_len > max_value_len(limits) {
            return None;
        }
        Some(Announced {
            line_len: HEADER_LEN,
            value_len,
            end_len: 0,
            key: scratch.alloc(header.key.text()),
            client_flags: 0,
        })
    }

    /// Returns what [`next`](Self::next) would for `header` and the value that it
    /// [announced](Self::announced), which the caller has received separately. The value of the
    /// operation is empty, and `consumed` includes the value, although it is not in the input.
    #[cold]
    pub fn next_apart<'i>(
        &mut self,
        header: &'i [u8],
        limits: &Limits,
        scratch: &'i Bump,
    ) -> Step<'i> {
        self.step(header, limits, scratch, Missing::Apart)
    }

    #[inline]
    fn step<'i>(
        &mut self,
        input: &'i [u8],
        limits: &Limits,
        scratch: &'i Bump,
        missing: Missing,
    ) -> Step<'i> {
        if self.rest > 0 {
            return self.swallowed(input);
        }
        let header = match Header::parse(input) {
            Ok(header) => header,
            Err(NoHeader::Unfinished(need)) => return Step::Incomplete { need },
            Err(NoHeader::Malformed) => return Step::Close { reply: b"" },
        };
        if header.is_insert {
            return self.insert(input, &header, limits, scratch, missing);
        }
        let key = scratch.alloc(header.key.text());
        Step::op(
            HEADER_LEN,
            key,
            Verb::Get(Get::default()),
            ReplyEncoder::lookup(key),
        )
    }

    #[inline]
    fn insert<'i>(
        &mut self,
        input: &'i [u8],
        header: &Header,
        limits: &Limits,
        scratch: &'i Bump,
        missing: Missing,
    ) -> Step<'i> {
        let size = header.size as usize;
        if size > max_value_len(limits) {
            return self.refuse_insert(header, Command::StoreRefused, scratch);
        }
        let consumed = HEADER_LEN + size;
        let value = match (input.get(HEADER_LEN..consumed), missing) {
            (Some(value), _) => value,
            (None, Missing::Apart) => b"",
            (None, Missing::Awaited) => return Step::Incomplete { need: consumed },
            (None, Missing::Refused) => {
                return self.refuse_insert(header, Command::StoreUnread, scratch);
            }
        };
        let key = scratch.alloc(header.key.text());
        let verb = Verb::Store(Store::new(StoreMode::Set, value));
        Step::op(consumed, key, verb, ReplyEncoder::silent(Command::Set, key))
    }

    /// Refuses an INSERT: its value is discarded, and the old item is removed, so that a later
    /// LOOKUP misses rather than finds what its owner meant to replace.
    #[cold]
    fn refuse_insert<'i>(
        &mut self,
        header: &Header,
        command: Command,
        scratch: &'i Bump,
    ) -> Step<'i> {
        self.rest = header.size;
        let key = scratch.alloc(header.key.text());
        Step::op(
            HEADER_LEN,
            key,
            Verb::Delete(Delete::default()),
            ReplyEncoder::silent(command, key),
        )
    }

    /// Discards the bytes at hand, up to the end of the value.
    fn swallowed<'i>(&mut self, input: &[u8]) -> Step<'i> {
        if input.is_empty() {
            return Step::Incomplete { need: 1 };
        }
        let consumed = input.len().min(self.rest as usize);
        self.rest -= consumed as u32;
        Step::Skip { consumed }
    }
}
