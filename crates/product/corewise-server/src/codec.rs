//! The codec of a connection whose protocol is known at run time only, and what it makes of input.

use crate::commands::{CommandCodec, ReplyForm};
use bumpalo::Bump;
use corewise_ops::{Now, Outcome};
use corewise_wire::memcached::{Admin, Command, ReplyEncoder};
use corewise_wire::{Announced, cphash, memcached, resp};

/// What to do with the first bytes of the input.
pub(crate) type Step<'i> = corewise_wire::Step<'i, Form<'i>, Call<'i>>;

/// The limits and options of a server, for all protocols.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// Of memcached's protocol, and of that of \[CPHASH\].
    pub(crate) memcached: memcached::Limits,
    /// Of RESP.
    pub(crate) resp: resp::Limits,
}

impl From<memcached::Limits> for Limits {
    fn from(memcached: memcached::Limits) -> Self {
        Self {
            memcached,
            ..Self::default()
        }
    }
}

/// The codec of one connection, for any protocol.
///
/// Its methods have the promises and the costs of the methods of the three codecs. A plain value:
/// copy it before a step, and restore the copy to undo the step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Codec {
    /// memcached's text protocol.
    Memcached(memcached::Codec),
    /// LOOKUP and INSERT of \[CPHASH\].
    Cphash(cphash::Codec),
    /// RESP2 and RESP3.
    Resp(CommandCodec),
}

const _: () = assert!(size_of::<Codec>() <= 32);

impl From<memcached::Codec> for Codec {
    fn from(codec: memcached::Codec) -> Self {
        Self::Memcached(codec)
    }
}

impl From<cphash::Codec> for Codec {
    fn from(codec: cphash::Codec) -> Self {
        Self::Cphash(codec)
    }
}

impl From<CommandCodec> for Codec {
    fn from(codec: CommandCodec) -> Self {
        Self::Resp(codec)
    }
}

impl Codec {
    /// Parses the unread `input`: see [`memcached::Codec::next`],
    /// [`cphash::Codec::next`] and [`CommandCodec::next`].
    #[inline]
    pub(crate) fn next<'i>(
        &mut self,
        input: &'i [u8],
        limits: &Limits,
        now: Now,
        scratch: &'i Bump,
    ) -> Step<'i> {
        match self {
            Self::Memcached(codec) => lift(codec.next(input, &limits.memcached, now, scratch)),
            Self::Cphash(codec) => lift(codec.next(input, &limits.memcached, scratch)),
            Self::Resp(codec) => codec.next(input, &limits.resp, now, scratch),
        }
    }

    /// Gives up the unfinished request at the start of `input`: see [`memcached::Codec::refuse`],
    /// [`cphash::Codec::refuse`] and [`CommandCodec::refuse`].
    #[cold]
    pub(crate) fn refuse<'i>(
        &mut self,
        input: &'i [u8],
        limits: &Limits,
        now: Now,
        scratch: &'i Bump,
    ) -> Step<'i> {
        match self {
            Self::Memcached(codec) => lift(codec.refuse(input, &limits.memcached, now, scratch)),
            Self::Cphash(codec) => lift(codec.refuse(input, &limits.memcached, scratch)),
            Self::Resp(codec) => codec.refuse(input, &limits.resp, now, scratch),
        }
    }

    /// The store at the start of `input` of which only part of the value is missing: see
    /// [`memcached::Codec::announced`] and [`cphash::Codec::announced`]. RESP announces none.
    pub(crate) fn announced<'i>(
        &self,
        input: &'i [u8],
        limits: &Limits,
        now: Now,
        scratch: &'i Bump,
    ) -> Option<Announced<'i>> {
        match self {
            Self::Memcached(codec) => codec.announced(input, &limits.memcached, now, scratch),
            Self::Cphash(codec) => codec.announced(input, &limits.memcached, scratch),
            Self::Resp(_) => None,
        }
    }

    /// Continues after a value that was received separately: see [`memcached::Codec::next_apart`]
    /// and [`cphash::Codec::next_apart`]. The latter has no `end`, so it is ignored. RESP announces
    /// no store, so there is nothing to continue after.
    #[cold]
    pub(crate) fn next_apart<'i>(
        &mut self,
        head: &'i [u8],
        end: [u8; 2],
        limits: &Limits,
        now: Now,
        scratch: &'i Bump,
    ) -> Step<'i> {
        match self {
            Self::Memcached(codec) => {
                lift(codec.next_apart(head, end, &limits.memcached, now, scratch))
            }
            Self::Cphash(codec) => lift(codec.next_apart(head, &limits.memcached, scratch)),
            Self::Resp(codec) => codec.next(head, &limits.resp, now, scratch),
        }
    }

    /// Whether data to discard has yet to arrive.
    #[inline]
    pub(crate) fn is_swallowing(&self) -> bool {
        match self {
            Self::Memcached(codec) => codec.is_swallowing(),
            Self::Cphash(codec) => codec.is_swallowing(),
            Self::Resp(codec) => codec.is_swallowing(),
        }
    }

    /// Accepts every command from now on: see [`memcached::Codec::set_authenticated`]. The protocol
    /// of \[CPHASH\] has no authentication, so this changes nothing there.
    pub(crate) fn set_authenticated(&mut self) {
        match self {
            Self::Memcached(codec) => codec.set_authenticated(),
            Self::Cphash(_) => {}
            Self::Resp(codec) => codec.set_authenticated(),
        }
    }
}

/// A command that the server executes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call<'i> {
    /// Of memcached's protocol.
    Memcached(Admin<'i>),
    /// Of RESP. The codec has checked the framing and nothing else.
    Resp(resp::Request<'i>),
}

/// How to print the outcome of one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form<'i> {
    /// In memcached's protocol, or in that of \[CPHASH\].
    Memcached(ReplyEncoder<'i>),
    /// In RESP.
    Resp(ReplyForm<'i>),
}

impl<'i> From<Admin<'i>> for Call<'i> {
    #[inline]
    fn from(admin: Admin<'i>) -> Self {
        Self::Memcached(admin)
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

impl<'i> Form<'i> {
    /// The command that the operation counts as in memcached's statistics.
    #[inline]
    pub(crate) fn command(&self) -> Command {
        match self {
            Self::Memcached(form) => form.command(),
            Self::Resp(form) => form.command(),
        }
    }

    /// The key as it was sent: for a meta command with the `b` flag, its base64 form.
    #[inline]
    pub(crate) fn key(&self) -> &'i [u8] {
        match self {
            Self::Memcached(form) => form.key(),
            Self::Resp(form) => form.key(),
        }
    }

    /// Appends the reply, which may be empty, to `out`: see [`ReplyEncoder::encode`].
    #[inline]
    pub(crate) fn encode(&self, outcome: &Outcome<'_>, now: Now, out: &mut Vec<u8>) {
        match self {
            Self::Memcached(form) => form.encode(outcome, now, out),
            Self::Resp(form) => form.encode(outcome, now, out),
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
        }
    }
}

/// A step of one protocol as one of any.
#[inline]
fn lift<'i, F: Into<Form<'i>>, C: Into<Call<'i>>>(step: corewise_wire::Step<'i, F, C>) -> Step<'i> {
    use corewise_wire::Step as Wire;
    match step {
        Wire::Incomplete { need } => Step::Incomplete { need },
        Wire::Skip { consumed } => Step::Skip { consumed },
        Wire::Op {
            consumed,
            key,
            verb,
            form,
        } => Step::Op {
            consumed,
            key,
            verb,
            form: form.into(),
        },
        Wire::Frame { consumed, bytes } => Step::Frame { consumed, bytes },
        Wire::Call { consumed, call } => Step::Call {
            consumed,
            call: call.into(),
        },
        Wire::Close { reply } => Step::Close { reply },
    }
}
