//! The codec of a connection whose protocol is known at run time only.

use bumpalo::Bump;
use corewise_ops::Now;

use crate::step::{Announced, Step};
use crate::{cphash, memcached, resp};

/// The limits and options of a server, for all protocols.
///
/// ```
/// use corewise_wire::{Limits, memcached};
/// let limits = Limits::from(memcached::Limits { max_item_size: 2 << 20, ..Default::default() });
/// assert_eq!(limits.resp.max_inline, 65_536);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Of memcached's protocol, and of that of \[CPHASH\].
    pub memcached: memcached::Limits,
    /// Of RESP.
    pub resp: resp::Limits,
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
///
/// ```
/// # use bumpalo::Bump;
/// # use corewise_ops::Now;
/// # let now = Now { ms: 1, unix_s: 1 };
/// use corewise_wire::{Codec, Limits, Step, cphash, memcached, resp};
///
/// let (limits, scratch) = (Limits::default(), Bump::new());
/// let mut text = Codec::from(memcached::Codec::new(false));
/// assert!(matches!(text.next(b"get k\r\n", &limits, now, &scratch), Step::Op { .. }));
/// let mut binary = Codec::from(cphash::Codec::default());
/// assert!(matches!(binary.next(b"get k\r\n", &limits, now, &scratch), Step::Close { .. }));
/// let mut resp = Codec::from(resp::CommandCodec::new(true));
/// assert!(matches!(resp.next(b"get k\r\n", &limits, now, &scratch), Step::Op { .. }));
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Codec {
    /// memcached's text protocol.
    Memcached(memcached::Codec),
    /// LOOKUP and INSERT of \[CPHASH\].
    Cphash(cphash::Codec),
    /// RESP2 and RESP3.
    Resp(resp::CommandCodec),
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

impl From<resp::CommandCodec> for Codec {
    fn from(codec: resp::CommandCodec) -> Self {
        Self::Resp(codec)
    }
}

impl Codec {
    /// Parses the unread `input`: see [`memcached::Codec::next`],
    /// [`cphash::Codec::next`] and [`resp::CommandCodec::next`].
    #[inline]
    pub fn next<'i>(
        &mut self,
        input: &'i [u8],
        limits: &Limits,
        now: Now,
        scratch: &'i Bump,
    ) -> Step<'i> {
        match self {
            Self::Memcached(codec) => codec.next(input, &limits.memcached, now, scratch),
            Self::Cphash(codec) => codec.next(input, &limits.memcached, scratch),
            Self::Resp(codec) => codec.next(input, &limits.resp, now, scratch),
        }
    }

    /// Gives up the unfinished request at the start of `input`: see [`memcached::Codec::refuse`],
    /// [`cphash::Codec::refuse`] and [`resp::CommandCodec::refuse`].
    #[cold]
    pub fn refuse<'i>(
        &mut self,
        input: &'i [u8],
        limits: &Limits,
        now: Now,
        scratch: &'i Bump,
    ) -> Step<'i> {
        match self {
            Self::Memcached(codec) => codec.refuse(input, &limits.memcached, now, scratch),
            Self::Cphash(codec) => codec.refuse(input, &limits.memcached, scratch),
            Self::Resp(codec) => codec.refuse(input, &limits.resp, now, scratch),
        }
    }

    /// The store at the start of `input` of which only part of the value is missing: see
    /// [`memcached::Codec::announced`] and [`cphash::Codec::announced`]. RESP announces none.
    #[must_use]
    pub fn announced<'i>(
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
    pub fn next_apart<'i>(
        &mut self,
        head: &'i [u8],
        end: [u8; 2],
        limits: &Limits,
        now: Now,
        scratch: &'i Bump,
    ) -> Step<'i> {
        match self {
            Self::Memcached(codec) => codec.next_apart(head, end, &limits.memcached, now, scratch),
            Self::Cphash(codec) => codec.next_apart(head, &limits.memcached, scratch),
            Self::Resp(codec) => codec.next(head, &limits.resp, now, scratch),
        }
    }

    /// Whether data to discard has yet to arrive.
    #[inline]
    #[must_use]
    pub fn is_swallowing(&self) -> bool {
        match self {
            Self::Memcached(codec) => codec.is_swallowing(),
            Self::Cphash(codec) => codec.is_swallowing(),
            Self::Resp(codec) => codec.is_swallowing(),
        }
    }

    /// Accepts every command from now on: see [`memcached::Codec::set_authenticated`]. The protocol
    /// of \[CPHASH\] has no authentication, so this changes nothing there.
    pub fn set_authenticated(&mut self) {
        match self {
            Self::Memcached(codec) => codec.set_authenticated(),
            Self::Cphash(_) => {}
            Self::Resp(codec) => codec.set_authenticated(),
        }
    }
}
