//! The codec of a connection whose protocol is known at run time only.

use bumpalo::Bump;
use corewise_ops::Now;

use crate::memcached::Limits;
use crate::step::{Announced, Step};
use crate::{cphash, memcached};

/// The codec of one connection, for either protocol.
///
/// Its methods have the promises and the costs of the methods of the two codecs. A plain value:
/// copy it before a step, and restore the copy to undo the step.
///
/// ```
/// # use bumpalo::Bump;
/// # use corewise_ops::Now;
/// # let now = Now { ms: 1, unix_s: 1 };
/// use corewise_wire::{Codec, Step, cphash, memcached};
///
/// let (limits, scratch) = (memcached::Limits::default(), Bump::new());
/// let mut text = Codec::from(memcached::Codec::new(false));
/// assert!(matches!(text.next(b"get k\r\n", &limits, now, &scratch), Step::Op { .. }));
/// let mut binary = Codec::from(cphash::Codec::default());
/// assert!(matches!(binary.next(b"get k\r\n", &limits, now, &scratch), Step::Close { .. }));
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Codec {
    /// memcached's text protocol.
    Memcached(memcached::Codec),
    /// LOOKUP and INSERT of \[CPHASH\].
    Cphash(cphash::Codec),
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

impl Codec {
    /// Parses the unread `input`: see [`memcached::Codec::next`] and [`cphash::Codec::next`].
    #[inline]
    pub fn next<'i>(
        &mut self,
        input: &'i [u8],
        limits: &Limits,
        now: Now,
        scratch: &'i Bump,
    ) -> Step<'i> {
        match self {
            Self::Memcached(codec) => codec.next(input, limits, now, scratch),
            Self::Cphash(codec) => codec.next(input, limits, scratch),
        }
    }

    /// Gives up the unfinished request at the start of `input`: see [`memcached::Codec::refuse`]
    /// and [`cphash::Codec::refuse`].
    #[cold]
    pub fn refuse<'i>(
        &mut self,
        input: &'i [u8],
        limits: &Limits,
        now: Now,
        scratch: &'i Bump,
    ) -> Step<'i> {
        match self {
            Self::Memcached(codec) => codec.refuse(input, limits, now, scratch),
            Self::Cphash(codec) => codec.refuse(input, limits, scratch),
        }
    }

    /// The store at the start of `input` of which only part of the value is missing: see
    /// [`memcached::Codec::announced`] and [`cphash::Codec::announced`].
    #[must_use]
    pub fn announced<'i>(
        &self,
        input: &'i [u8],
        limits: &Limits,
        now: Now,
        scratch: &'i Bump,
    ) -> Option<Announced<'i>> {
        match self {
            Self::Memcached(codec) => codec.announced(input, limits, now, scratch),
            Self::Cphash(codec) => codec.announced(input, limits, scratch),
        }
    }

    /// Continues after a value that was received separately: see [`memcached::Codec::next_apart`]
    /// and [`cphash::Codec::next_apart`]. The latter has no `end`, so it is ignored.
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
            Self::Memcached(codec) => codec.next_apart(head, end, limits, now, scratch),
            Self::Cphash(codec) => codec.next_apart(head, limits, scratch),
        }
    }

    /// Whether data to discard has yet to arrive.
    #[inline]
    #[must_use]
    pub fn is_swallowing(&self) -> bool {
        match self {
            Self::Memcached(codec) => codec.is_swallowing(),
            Self::Cphash(codec) => codec.is_swallowing(),
        }
    }

    /// Accepts every command from now on: see [`memcached::Codec::set_authenticated`]. The other
    /// protocol has no authentication, so this changes nothing there.
    pub fn set_authenticated(&mut self) {
        if let Self::Memcached(codec) = self {
            codec.set_authenticated();
        }
    }
}
