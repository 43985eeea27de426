//! The codec of a connection whose protocol is known at run time only, and what it makes of input.

use crate::commands::{self, CommandCounts, ReplyForm, RespSession};
use crate::metrics::Counters;
use crate::shared::Shared;
use bumpalo::Bump;
use corewise_ops::{Now, Outcome, database};
use corewise_wire::memcached::{Admin, ReplyEncoder};
use corewise_wire::{Announced, Step, Tally, binary, cphash, memcached, resp};
use std::time::Duration;

/// The limits and options of a server, for all protocols.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// Of memcached's protocols, and of that of \[CPHASH\].
    pub(crate) memcached: memcached::Limits,
    /// Of RESP.
    pub(crate) resp: resp::Limits,
}

/// What the meaning of input depends on, the same for a whole turn.
#[derive(Clone, Copy)]
pub(crate) struct Parse<'i> {
    pub(crate) limits: &'i Limits,
    pub(crate) now: Now,
    /// Milliseconds since the Unix epoch at `now`.
    pub(crate) unix_ms: u64,
    /// Every request of RESP is timed, and so becomes a call. A call may change it.
    pub(crate) is_timed: bool,
    /// Holds what steps borrow and the input does not have.
    pub(crate) scratch: &'i Bump,
}

/// The [stored key](database) of a key, in the scratch memory if it is another one.
#[inline]
pub(crate) fn stored_key<'i>(database: u8, key: &'i [u8], scratch: &'i Bump) -> &'i [u8] {
    if database::is_stored_as_is(database, key) {
        return key;
    }
    with_prefix(database, key, scratch)
}

#[cold]
fn with_prefix<'i>(database: u8, key: &[u8], scratch: &'i Bump) -> &'i [u8] {
    let stored = scratch.alloc_slice_fill_copy(1 + key.len(), database);
    stored[1..].copy_from_slice(key);
    stored
}

/// The step with the stored key of database 0, which is that of memcached's protocols.
#[inline]
fn of_database_0<'i, F, C>(mut step: Step<'i, F, C>, parse: &Parse<'i>) -> Step<'i, F, C> {
    if let Step::Op { key, .. } = &mut step {
        *key = stored_key(0, key, parse.scratch);
    }
    step
}

/// The same for a store whose value is received separately.
fn announced_in_0<'i>(mut store: Announced<'i>, parse: &Parse<'i>) -> Announced<'i> {
    store.key = stored_key(0, store.key, parse.scratch);
    store
}

impl<'i> Parse<'i> {
    pub(crate) fn new(shared: &'i Shared, now: Now, scratch: &'i Bump) -> Self {
        Self {
            limits: &shared.limits,
            now,
            unix_ms: shared.clock.unix_ms(now),
            is_timed: shared.slow_log.times_operations(),
            scratch,
        }
    }
}

/// A step of one protocol.
pub(crate) type StepOf<'i, P> = Step<'i, <P as Protocol>::Form<'i>, <P as Protocol>::Call<'i>>;

/// The state of one connection's codec.
///
/// A plain value: copy it before a step, and restore the copy to undo the step. The methods have
/// the promises and the costs of those of [`memcached::Codec`].
pub(crate) trait Protocol: Copy + Into<Codec> + TryFrom<Codec> {
    /// How to print the outcome of an operation.
    type Form<'i>: Into<Form<'i>>;
    /// A command that the server executes.
    type Call<'i>: Into<Call<'i>>;

    /// Parses the unread `input`.
    fn next<'i>(&mut self, input: &'i [u8], parse: &Parse<'i>) -> StepOf<'i, Self>;

    /// Gives up the unfinished request at the start of `input`.
    fn refuse<'i>(&mut self, input: &'i [u8], parse: &Parse<'i>) -> StepOf<'i, Self>;

    /// The store at the start of `input` of which only part of the value is missing.
    fn announced<'i>(&self, _: &'i [u8], _: &Parse<'i>) -> Option<Announced<'i>> {
        None
    }

    /// Continues after a value that was announced and received separately. The bytes behind it are
    /// in `end`, if there are any.
    fn next_apart<'i>(
        &mut self,
        head: &'i [u8],
        _end: [u8; 2],
        parse: &Parse<'i>,
    ) -> StepOf<'i, Self> {
        self.next(head, parse)
    }
}

/// The codec of one connection, for any protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Codec {
    /// memcached's text protocol.
    Memcached(memcached::Codec),
    /// LOOKUP and INSERT of \[CPHASH\].
    Cphash(cphash::Codec),
    /// RESP2 and RESP3.
    Resp(RespSession),
    /// memcached's binary protocol.
    Binary(binary::Codec),
}

const _: () = assert!(size_of::<Codec>() <= 32);

/// Evaluates an expression on the codec of whichever protocol.
macro_rules! with_codec {
    ($codec:expr, $one:ident => $body:expr) => {
        match $codec {
            $crate::codec::Codec::Memcached($one) => $body,
            $crate::codec::Codec::Cphash($one) => $body,
            $crate::codec::Codec::Resp($one) => $body,
            $crate::codec::Codec::Binary($one) => $body,
        }
    };
}
pub(crate) use with_codec;

impl Codec {
    /// See [`Protocol::announced`].
    pub(crate) fn announced<'i>(
        &self,
        input: &'i [u8],
        parse: &Parse<'i>,
    ) -> Option<Announced<'i>> {
        with_codec!(self, codec => Protocol::announced(codec, input, parse))
    }

    /// What is printed of a line that the codec answers by itself, if that is an error that is
    /// counted by its code.
    #[inline]
    pub(crate) fn counted_error<'i>(&self, line: &'i [u8]) -> Option<&'i [u8]> {
        match self {
            Self::Resp(session) if line.first() == Some(&b'-') => {
                Some(if session.is_silent() { b"" } else { line })
            }
            _ => None,
        }
    }

    /// Whether data to discard has yet to arrive.
    #[inline]
    pub(crate) fn is_swallowing(&self) -> bool {
        with_codec!(self, codec => codec.is_swallowing())
    }
}

/// The conversions between the codec of a protocol and that of any.
macro_rules! variant {
    ($variant:ident, $codec:ty) => {
        impl From<$codec> for Codec {
            #[inline]
            fn from(codec: $codec) -> Self {
                Self::$variant(codec)
            }
        }

        impl TryFrom<Codec> for $codec {
            type Error = ();

            fn try_from(codec: Codec) -> Result<Self, ()> {
                match codec {
                    Codec::$variant(codec) => Ok(codec),
                    _ => Err(()),
                }
            }
        }
    };
}

variant!(Memcached, memcached::Codec);
variant!(Cphash, cphash::Codec);
variant!(Resp, RespSession);
variant!(Binary, binary::Codec);

impl Protocol for memcached::Codec {
    type Form<'i> = ReplyEncoder<'i>;
    type Call<'i> = Admin<'i>;

    #[inline]
    fn next<'i>(&mut self, input: &'i [u8], parse: &Parse<'i>) -> StepOf<'i, Self> {
        of_database_0(
            self.next(input, &parse.limits.memcached, parse.now, parse.scratch),
            parse,
        )
    }

    fn refuse<'i>(&mut self, input: &'i [u8], parse: &Parse<'i>) -> StepOf<'i, Self> {
        of_database_0(
            self.refuse(input, &parse.limits.memcached, parse.now, parse.scratch),
            parse,
        )
    }

    fn announced<'i>(&self, input: &'i [u8], parse: &Parse<'i>) -> Option<Announced<'i>> {
        let store = self.announced(input, &parse.limits.memcached, parse.now, parse.scratch)?;
        Some(announced_in_0(store, parse))
    }

    fn next_apart<'i>(
        &mut self,
        head: &'i [u8],
        end: [u8; 2],
        parse: &Parse<'i>,
    ) -> StepOf<'i, Self> {
        let limits = &parse.limits.memcached;
        of_database_0(
            self.next_apart(head, end, limits, parse.now, parse.scratch),
            parse,
        )
    }
}

impl Protocol for cphash::Codec {
    type Form<'i> = ReplyEncoder<'i>;
    type Call<'i> = Admin<'i>;

    #[inline]
    fn next<'i>(&mut self, input: &'i [u8], parse: &Parse<'i>) -> StepOf<'i, Self> {
        of_database_0(
            self.next(input, &parse.limits.memcached, parse.scratch),
            parse,
        )
    }

    fn refuse<'i>(&mut self, input: &'i [u8], parse: &Parse<'i>) -> StepOf<'i, Self> {
        of_database_0(
            self.refuse(input, &parse.limits.memcached, parse.scratch),
            parse,
        )
    }

    fn announced<'i>(&self, input: &'i [u8], parse: &Parse<'i>) -> Option<Announced<'i>> {
        let store = self.announced(input, &parse.limits.memcached, parse.scratch)?;
        Some(announced_in_0(store, parse))
    }

    fn next_apart<'i>(
        &mut self,
        head: &'i [u8],
        _: [u8; 2],
        parse: &Parse<'i>,
    ) -> StepOf<'i, Self> {
        of_database_0(
            self.next_apart(head, &parse.limits.memcached, parse.scratch),
            parse,
        )
    }
}

impl Protocol for binary::Codec {
    type Form<'i> = binary::ReplyForm<'i>;
    type Call<'i> = binary::Call<'i>;

    #[inline]
    fn next<'i>(&mut self, input: &'i [u8], parse: &Parse<'i>) -> StepOf<'i, Self> {
        of_database_0(
            self.next(input, &parse.limits.memcached, parse.now, parse.scratch),
            parse,
        )
    }

    fn refuse<'i>(&mut self, input: &'i [u8], parse: &Parse<'i>) -> StepOf<'i, Self> {
        of_database_0(
            self.refuse(input, &parse.limits.memcached, parse.now, parse.scratch),
            parse,
        )
    }

    fn announced<'i>(&self, input: &'i [u8], parse: &Parse<'i>) -> Option<Announced<'i>> {
        let store = self.announced(input, &parse.limits.memcached)?;
        Some(announced_in_0(store, parse))
    }

    fn next_apart<'i>(
        &mut self,
        head: &'i [u8],
        _: [u8; 2],
        parse: &Parse<'i>,
    ) -> StepOf<'i, Self> {
        of_database_0(
            self.next_apart(head, &parse.limits.memcached, parse.now, parse.scratch),
            parse,
        )
    }
}

/// A command that the server executes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call<'i> {
    /// Of memcached's protocol.
    Memcached(Admin<'i>),
    /// Of RESP. The codec has checked the framing and nothing else.
    Resp(resp::Request<'i>),
    /// Of memcached's binary protocol.
    Binary(binary::Call<'i>),
}

/// How to print the outcome of one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form<'i> {
    /// In memcached's protocol, or in that of \[CPHASH\].
    Memcached(ReplyEncoder<'i>),
    /// In RESP.
    Resp(ReplyForm<'i>),
    /// In memcached's binary protocol.
    Binary(binary::ReplyForm<'i>),
}

// A batch has one for each operation.
const _: () = assert!(size_of::<Form<'static>>() <= 40);

/// How a call was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    Fully,
    /// Fully, and it was a flush. One that follows it at once has nothing to do: it had arrived
    /// before the first one was executed, so both may take effect together.
    ByFlush,
    /// It goes on in the next turn.
    NotYet,
    /// Not at all: the connection has changed its codec, which reads the request in the next turn.
    ByNewCodec,
}

impl<'i> From<Admin<'i>> for Call<'i> {
    #[inline]
    fn from(admin: Admin<'i>) -> Self {
        Self::Memcached(admin)
    }
}

impl<'i> From<resp::Request<'i>> for Call<'i> {
    #[inline]
    fn from(request: resp::Request<'i>) -> Self {
        Self::Resp(request)
    }
}

impl<'i> From<binary::Call<'i>> for Call<'i> {
    #[inline]
    fn from(call: binary::Call<'i>) -> Self {
        Self::Binary(call)
    }
}

impl<'i> From<ReplyEncoder<'i>> for Form<'i> {
    #[inline]
    fn from(encoder: ReplyEncoder<'i>) -> Self {
        Self::Memcached(encoder)
    }
}

impl<'i> From<ReplyForm<'i>> for Form<'i> {
    #[inline]
    fn from(form: ReplyForm<'i>) -> Self {
        Self::Resp(form)
    }
}

impl<'i> From<binary::ReplyForm<'i>> for Form<'i> {
    #[inline]
    fn from(form: binary::ReplyForm<'i>) -> Self {
        Self::Binary(form)
    }
}

impl<'i> Form<'i> {
    /// What the operation counts as.
    #[inline]
    pub(crate) fn tally(&self) -> Tally {
        match self {
            Self::Memcached(form) => form.tally(),
            Self::Resp(form) => form.tally(),
            Self::Binary(form) => form.tally(),
        }
    }

    /// Counts an operation that has completed as a meta command of memcached or as a command of
    /// RESP, beside its [`tally`](Self::tally).
    #[inline]
    pub(crate) fn count(
        &self,
        counters: &mut Counters,
        commands: &CommandCounts,
        outcome: &Outcome<'_>,
    ) {
        match self {
            Self::Memcached(form) => counters.cmd_meta += u64::from(form.is_meta()),
            Self::Resp(form) => commands.completed(form, outcome),
            Self::Binary(_) => {}
        }
    }

    /// Whether a batch is timed before which its loop has executed this many.
    #[inline]
    pub(crate) fn is_timed(batches: u64) -> bool {
        commands::is_timed(batches)
    }

    /// Counts that an operation of a timed batch took this long.
    pub(crate) fn count_time(&self, commands: &CommandCounts, time: Duration) {
        if let Self::Resp(form) = self {
            commands.timed(form, time);
        }
    }

    /// The key as it was sent: for a meta command with the `b` flag, its base64 form.
    #[inline]
    pub(crate) fn key(&self) -> &'i [u8] {
        match self {
            Self::Memcached(form) => form.key(),
            Self::Resp(form) => form.key(),
            Self::Binary(form) => form.key(),
        }
    }

    /// The bytes of the request that it borrows.
    pub(crate) fn borrowed(&self) -> [&'i [u8]; 2] {
        match self {
            Self::Memcached(form) => form.borrowed(),
            Self::Resp(form) => [form.key(), b""],
            Self::Binary(form) => [form.key(), b""],
        }
    }

    /// The same form with copies of what [`borrowed`](Self::borrowed) returns, so that it may
    /// outlive the request.
    pub(crate) fn with_borrowed<'o>(&self, [key, flags]: [&'o [u8]; 2]) -> Form<'o> {
        match self {
            Self::Memcached(form) => Form::Memcached(form.with_borrowed([key, flags])),
            Self::Resp(form) => Form::Resp(form.with_key(key)),
            Self::Binary(form) => Form::Binary(form.with_key(key)),
        }
    }

    /// Appends the reply, which may be empty, to `out`: see [`ReplyEncoder::encode`].
    #[inline]
    pub(crate) fn encode(&self, outcome: &Outcome<'_>, now: Now, out: &mut Vec<u8>) {
        match self {
            Self::Memcached(form) => form.encode(outcome, now, out),
            Self::Resp(form) => form.encode(outcome, now, out),
            Self::Binary(form) => form.encode(outcome, out),
        }
    }

    /// Appends the reply without the value and what follows it, and returns both: see
    /// [`ReplyEncoder::encode_parts`].
    pub(crate) fn encode_parts<'v>(
        &self,
        outcome: &Outcome<'v>,
        now: Now,
        out: &mut Vec<u8>,
    ) -> Option<(&'v [u8], &'static [u8])> {
        match self {
            Self::Memcached(form) => form.encode_parts(outcome, now, out),
            Self::Resp(form) => form.encode_parts(outcome, now, out),
            Self::Binary(form) => form.encode_parts(outcome, out),
        }
    }
}
