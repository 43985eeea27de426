//! Requests to steps: which commands are operations, and which are calls.

use bumpalo::Bump;
use corewise_ops::Now;

use super::codec::{Access, Codec, Keys, Limits, Parsed, Refusal};
use super::encoder::Version;
use super::inline;
use super::operation::CommandOperation;
use super::request::{Args, Request};
use crate::step::{Call, Step};

/// The codec of a server's connection: [`Codec`] with the meaning of the most frequent commands.
///
/// | request | steps |
/// |---|---|
/// | `GET key`, `SET key value [NX \| XX] [GET] [EX s \| PX ms \| KEEPTTL]` | one operation |
/// | `GETEX key [EX s \| PX ms \| PERSIST]`, `GETRANGE SUBSTR` | one operation |
/// | `DEL EXISTS TOUCH UNLINK` with one key, `PERSIST PTTL TTL TYPE` | one operation |
/// | `EXPIRE PEXPIRE` without options and with a time from now on | one operation |
/// | `DECR DECRBY INCR INCRBY APPEND GETDEL GETSET PSETEX SETEX SETNX STRLEN` | one operation |
/// | `SETRANGE` up to 4 KiB | one operation |
/// | `MGET key …` | a frame, and one operation for each key, between which the caller may stop |
/// | `PING` | a frame |
/// | everything else, wrong arguments included | one call |
///
/// Before the client has authenticated, all requests are calls. A plain value of 24 bytes: copy it
/// before a step, and restore the copy to undo the step.
///
/// ```
/// use bumpalo::Bump;
/// use corewise_ops::Now;
/// use corewise_wire::resp::{CommandCodec, Limits};
/// use corewise_wire::{Call, Step};
///
/// let now = Now { ms: 1_000, unix_s: 1_800_000_000 };
/// let (limits, scratch) = (Limits::default(), Bump::new());
/// let input = b"MGET a b\r\nTIME\r\n";
/// let mut codec = CommandCodec::new(true);
/// let mut at = 0;
/// let mut steps = Vec::new();
/// while at < input.len() {
///     at += match codec.next(&input[at..], &limits, now, &scratch) {
///         Step::Frame { consumed, bytes } => { steps.push(bytes); consumed }
///         Step::Op { consumed, key, .. } => { steps.push(key); consumed }
///         Step::Call { consumed, call: Call::Resp(request) } => {
///             steps.push(request.name());
///             consumed
///         }
///         other => panic!("{other:?}"),
///     };
/// }
/// assert_eq!(steps, [&b"*2\r\n"[..], b"a", b"b", b"TIME"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandCodec(Codec);

/// Which requests have a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replies {
    /// All.
    All,
    /// All but the next one, which may be an empty request.
    AllButNext,
    /// None.
    None,
}

impl CommandCodec {
    /// The state of a new connection, which speaks RESP2; see [`Codec::new`].
    #[must_use]
    pub fn new(authenticated: bool) -> Self {
        Self(Codec::new(authenticated))
    }

    /// Whether the client has authenticated, or need not.
    #[inline]
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.0.is_authenticated()
    }

    /// Accepts operations from the next request on; see [`Codec::set_authenticated`].
    pub fn set_authenticated(&mut self) {
        self.0.set_authenticated();
    }

    /// From the next request on, and until [`end_calls`](Self::end_calls), every request becomes a
    /// call, so that the caller can collect requests. The client must have authenticated.
    ///
    /// ```
    /// # use bumpalo::Bump;
    /// # use corewise_ops::Now;
    /// # use corewise_wire::resp::{CommandCodec, Limits};
    /// # use corewise_wire::Step;
    /// # let now = Now { ms: 1_000, unix_s: 1_800_000_000 };
    /// # let (limits, scratch) = (Limits::default(), Bump::new());
    /// let mut codec = CommandCodec::new(true);
    /// codec.begin_calls();
    /// let step = codec.next(b"GET k\r\n", &limits, now, &scratch);
    /// assert!(matches!(step, Step::Call { .. }));
    /// assert!(!codec.end_calls());
    /// let step = codec.next(b"GET k\r\n", &limits, now, &scratch);
    /// assert!(matches!(step, Step::Op { .. }));
    /// ```
    pub fn begin_calls(&mut self) {
        debug_assert!(self.is_authenticated());
        self.0.access = match self.0.access {
            Access::Silent | Access::SilentAfterRefusal => Access::Silent,
            _ => Access::Calls,
        };
    }

    /// Ends [`begin_calls`](Self::begin_calls). Returns whether a request was
    /// [refused](super::Parsed::Refused) since.
    pub fn end_calls(&mut self) -> bool {
        let (access, has_refused) = match self.0.access {
            Access::Calls => (Access::Operations, false),
            Access::CallsAfterRefusal => (Access::Operations, true),
            Access::SilentAfterRefusal => (Access::Silent, true),
            access => (access, false),
        };
        self.0.access = access;
        has_refused
    }

    /// Decides which of the requests that follow have a reply. Those that have none become calls,
    /// or are skipped if they are [refused](super::Parsed::Refused), and an error that closes the
    /// connection is empty. The client must have authenticated, and not be between
    /// [`begin_calls`](Self::begin_calls) and [`end_calls`](Self::end_calls).
    ///
    /// ```
    /// # use bumpalo::Bump;
    /// # use corewise_ops::Now;
    /// # use corewise_wire::resp::{CommandCodec, Limits, Replies};
    /// # use corewise_wire::Step;
    /// # let now = Now { ms: 1_000, unix_s: 1_800_000_000 };
    /// # let (limits, scratch) = (Limits::default(), Bump::new());
    /// let mut codec = CommandCodec::new(true);
    /// codec.set_replies(Replies::AllButNext);
    /// let step = codec.next(b"GET k\r\n", &limits, now, &scratch);
    /// assert!(matches!(step, Step::Call { .. }));
    /// assert!(codec.takes_silence(), "the call has no reply");
    /// let step = codec.next(b"GET k\r\n", &limits, now, &scratch);
    /// assert!(matches!(step, Step::Op { .. }));
    /// ```
    pub fn set_replies(&mut self, replies: Replies) {
        debug_assert!(self.is_authenticated());
        self.0.access = match replies {
            Replies::All => Access::Operations,
            Replies::AllButNext => Access::SilentNext,
            Replies::None => Access::Silent,
        };
    }

    /// Whether the call that was the last step has no reply. Call it once for each call, before it
    /// is executed.
    #[inline]
    pub fn takes_silence(&mut self) -> bool {
        match self.0.access {
            Access::Silent | Access::SilentAfterRefusal => true,
            Access::SilentNext => {
                self.0.access = Access::Operations;
                true
            }
            _ => false,
        }
    }

    /// The version of the protocol that the client has chosen.
    #[inline]
    #[must_use]
    pub fn version(&self) -> Version {
        self.0.version
    }

    /// Replies to the requests that follow are in this version.
    pub fn set_version(&mut self, version: Version) {
        self.0.version = version;
    }

    /// Whether the rest of a request that is discarded has yet to arrive.
    #[inline]
    #[must_use]
    pub fn is_swallowing(&self) -> bool {
        self.0.is_swallowing()
    }

    /// Parses the unread `input` and returns what to do with its first bytes: see [`Codec::next`].
    #[inline]
    pub fn next<'i>(
        &mut self,
        input: &'i [u8],
        limits: &Limits,
        now: Now,
        scratch: &'i Bump,
    ) -> Step<'i> {
        if self.0.keys != Keys::No && !input.is_empty() {
            return self.next_key(input, scratch);
        }
        let parsed = self.0.next(input, limits, scratch);
        self.step(parsed, input, now, scratch)
    }

    /// Gives up the unfinished request at the start of `input`: see [`Codec::refuse`].
    #[cold]
    pub fn refuse<'i>(
        &mut self,
        input: &'i [u8],
        limits: &Limits,
        now: Now,
        scratch: &'i Bump,
    ) -> Step<'i> {
        if self.0.keys != Keys::No {
            return self.next(input, limits, now, scratch); // the request is whole
        }
        let parsed = self.0.refuse(input, limits, scratch);
        self.step(parsed, input, now, scratch)
    }

    #[inline]
    fn step<'i>(
        &mut self,
        parsed: Parsed<'i>,
        input: &'i [u8],
        now: Now,
        scratch: &'i Bump,
    ) -> Step<'i> {
        match parsed {
            Parsed::Incomplete { need } => Step::Incomplete { need },
            Parsed::Skip { consumed } => {
                // An empty request counts as the next one; a part of a discarded request does not.
                if self.0.access == Access::SilentNext && !self.is_swallowing() {
                    self.0.access = Access::Operations;
                }
                Step::Skip { consumed }
            }
            Parsed::Close { reply } => Step::Close {
                reply: if self.is_silent() { b"" } else { reply },
            },
            Parsed::Refused { consumed, refusal } => self.refused(consumed, refusal),
            Parsed::Request { consumed, request } => {
                self.request(consumed, request, input, now, scratch)
            }
        }
    }

    /// Whether the next request has no reply.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        matches!(
            self.0.access,
            Access::Silent | Access::SilentAfterRefusal | Access::SilentNext
        )
    }

    #[cold]
    fn refused<'i>(&mut self, consumed: usize, refusal: Refusal) -> Step<'i> {
        let is_silent = self.is_silent();
        self.0.access = match self.0.access {
            Access::Calls => Access::CallsAfterRefusal,
            Access::Silent => Access::SilentAfterRefusal,
            Access::SilentNext => Access::Operations,
            access => access,
        };
        if is_silent {
            return Step::Skip { consumed };
        }
        Step::Frame {
            consumed,
            bytes: refusal.line(),
        }
    }

    #[inline]
    fn request<'i>(
        &mut self,
        consumed: usize,
        request: Request<'i>,
        input: &'i [u8],
        now: Now,
        scratch: &'i Bump,
    ) -> Step<'i> {
        let call = Step::Call {
            consumed,
            call: Call::Resp(request),
        };
        if self.0.access != Access::Operations {
            return call;
        }
        let (name, args) = (request.name(), request.args());
        if let Some(operation) = CommandOperation::parse(name, args, now) {
            return self.operation(consumed, &operation);
        }
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"mget") && args.len() > 0 => {
                self.multiget(consumed, args, input, scratch)
            }
            4 if name.eq_ignore_ascii_case(b"ping") && args.len() == 0 => Step::Frame {
                consumed,
                bytes: b"+PONG\r\n",
            },
            _ => call,
        }
    }

    #[inline]
    fn operation<'i>(&self, consumed: usize, operation: &CommandOperation<'i>) -> Step<'i> {
        Step::Op {
            consumed,
            key: operation.key,
            verb: operation.verb,
            form: operation.form(self.version()).into(),
        }
    }

    /// The frame of an `MGET`. Its keys are left in the input, one for each of the steps after it.
    fn multiget<'i>(
        &mut self,
        consumed: usize,
        args: Args<'i>,
        input: &'i [u8],
        scratch: &'i Bump,
    ) -> Step<'i> {
        let is_inline = input.first() != Some(&b'*');
        let keys_at = if is_inline {
            let rest = inline::first(input, scratch).map_or(0, |(_, rest)| rest.len());
            input.len() - rest
        } else {
            // The elements of the request are followed by the rest of the input.
            consumed - args.rest().len()
        };
        self.0.keys = if is_inline { Keys::Words } else { Keys::Bulk };
        self.0.left = args.len() as u32;
        Step::Frame {
            consumed: keys_at,
            bytes: array_head(args.len(), scratch),
        }
    }

    /// The next key of an `MGET`.
    #[cold]
    fn next_key<'i>(&mut self, input: &'i [u8], scratch: &'i Bump) -> Step<'i> {
        let (key, rest) = match self.0.keys {
            Keys::Words => inline::first(input, scratch).unwrap_or((b"", input)),
            Keys::Bulk | Keys::No => {
                let mut args = Args::new(input, self.0.left);
                (args.next().unwrap_or(b""), args.rest())
            }
        };
        let mut consumed = input.len() - rest.len();
        self.0.left = self.0.left.saturating_sub(1);
        if self.0.left == 0 {
            if self.0.keys == Keys::Words {
                consumed += memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
            }
            self.0.keys = Keys::No;
        }
        self.operation(consumed, &CommandOperation::get(key))
    }
}

/// The head of an array of `len` elements.
fn array_head(len: usize, scratch: &Bump) -> &[u8] {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(len).as_bytes();
    let head = scratch.alloc_slice_fill_copy(digits.len() + 3, b'*');
    head[1..=digits.len()].copy_from_slice(digits);
    head[digits.len() + 1..].copy_from_slice(b"\r\n");
    head
}
