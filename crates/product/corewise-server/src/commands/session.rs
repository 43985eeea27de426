//! Requests to steps: which commands are operations, and which are calls.

use bumpalo::Bump;

use super::form::{ReplyForm, ReplyShape};
use super::operation::{Action, Operation, Parsed};
use super::strings;
use super::table::{self, Command};
use crate::codec::{Parse, Protocol, StepOf, stored_key};
use corewise_atomic::mutant;
use corewise_ops::database::DATABASES;
use corewise_wire::Tally;
use corewise_wire::resp::{ArgForm, Args, Codec, Parsed as Framed, Refusal, Request, Version};

type Step<'i> = StepOf<'i, RespSession>;

/// The codec of a server's connection: [`Codec`] with the meaning of the most frequent commands.
///
/// | request | steps |
/// |---|---|
/// | [`Action::Op`] | one operation |
/// | [`Action::GetEach`] | a frame, and one operation for each key, between which the caller may stop |
/// | everything else, wrong arguments included | one call |
///
/// Before the client has authenticated, all requests are calls. A plain value of 32 bytes: copy it
/// before a step, and restore the copy to undo the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RespSession {
    codec: Codec,
    /// The keys of an `MGET` that are left, if the input begins with one, and above these bits the
    /// database that the client has selected. (A codec has no room for another byte.)
    keys_and_database: u32,
    keys: Option<ArgForm>,
    access: Access,
    version: Version,
    /// The command of the last request.
    last: Command,
}

/// Bits of the number of keys that are left of an `MGET`: more than the elements of a request have.
const KEYS_BITS: u32 = 28;
const MOST_KEYS: u32 = (1 << KEYS_BITS) - 1;
const _: () = assert!(DATABASES <= 1 << (u32::BITS - KEYS_BITS));

/// What becomes of the requests of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// The client has not authenticated: short requests only, all of them calls.
    Unauthenticated,
    /// Every request becomes a call.
    Calls,
    /// As `Calls`, and a request has been refused.
    CallsAfterRefusal,
    /// As `Calls`, and no request has a reply.
    Silent,
    /// As `Silent`, and a request has been refused.
    SilentAfterRefusal,
    /// As `Operations`, but the next request becomes a call, and has no reply.
    SilentNext,
    /// Frequent requests become operations.
    Operations,
}

/// Which requests have a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replies {
    /// All.
    All,
    /// All but the next one, which may be an empty request.
    AllButNext,
    /// None.
    None,
}

impl Protocol for RespSession {
    type Form<'i> = ReplyForm<'i>;
    type Call<'i> = Request<'i>;

    #[inline]
    fn next<'i>(&mut self, input: &'i [u8], parse: &Parse<'i>) -> Step<'i> {
        if let Some(keys) = self.keys
            && !input.is_empty()
        {
            return self.next_key(keys, input, parse);
        }
        let parsed = self.codec.next(input, &parse.limits.resp, parse.scratch);
        self.step(parsed, input, parse)
    }

    #[cold]
    fn refuse<'i>(&mut self, input: &'i [u8], parse: &Parse<'i>) -> Step<'i> {
        if self.keys.is_some() {
            return self.next(input, parse); // the request is whole
        }
        let parsed = self.codec.refuse(input, &parse.limits.resp, parse.scratch);
        self.step(parsed, input, parse)
    }
}

impl RespSession {
    /// The state of a new connection, which speaks RESP2; see [`Codec::new`].
    pub(crate) fn new(authenticated: bool) -> Self {
        Self {
            codec: Codec::new(authenticated),
            keys_and_database: 0,
            keys: None,
            access: if authenticated {
                Access::Operations
            } else {
                unauthenticated()
            },
            version: Version::Resp2,
            last: Command::NONE,
        }
    }

    /// Whether the client has authenticated, or need not.
    #[inline]
    pub(crate) fn is_authenticated(&self) -> bool {
        self.codec.is_authenticated()
    }

    /// Accepts operations from the next request on; see [`Codec::set_authenticated`].
    pub(crate) fn set_authenticated(&mut self) {
        if !self.is_authenticated() {
            self.codec.set_authenticated();
            self.access = Access::Operations;
        }
    }

    /// From the next request on, and until [`end_calls`](Self::end_calls), every request becomes a
    /// call, so that the caller can collect requests. The client must have authenticated.
    pub(crate) fn begin_calls(&mut self) {
        debug_assert!(self.is_authenticated());
        self.access = match self.access {
            Access::Silent | Access::SilentAfterRefusal => Access::Silent,
            _ => Access::Calls,
        };
    }

    /// Ends [`begin_calls`](Self::begin_calls). Returns whether a request was
    /// [refused](Framed::Refused) since.
    pub(crate) fn end_calls(&mut self) -> bool {
        let (access, has_refused) = match self.access {
            Access::Calls => (Access::Operations, false),
            Access::CallsAfterRefusal => (Access::Operations, true),
            Access::SilentAfterRefusal => (Access::Silent, true),
            access => (access, false),
        };
        self.access = access;
        has_refused
    }

    /// Decides which of the requests that follow have a reply. Those that have none become calls.
    /// Errors of this codec are not printed while it [is silent](Self::is_silent). The client must
    /// have authenticated, and not be between
    /// [`begin_calls`](Self::begin_calls) and [`end_calls`](Self::end_calls).
    pub(crate) fn set_replies(&mut self, replies: Replies) {
        debug_assert!(self.is_authenticated());
        self.access = match replies {
            Replies::All => Access::Operations,
            Replies::AllButNext => Access::SilentNext,
            Replies::None => Access::Silent,
        };
    }

    /// Whether the call that was the last step has no reply. Call it once for each call, before it
    /// is executed.
    #[inline]
    pub(crate) fn takes_silence(&mut self) -> bool {
        match self.access {
            Access::Silent | Access::SilentAfterRefusal => true,
            Access::SilentNext => {
                self.access = Access::Operations;
                true
            }
            _ => false,
        }
    }

    /// The version of the protocol that the client has chosen.
    #[inline]
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// Replies to the requests that follow are in this version.
    pub(crate) fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// The database that the client has selected.
    #[inline]
    pub(crate) fn database(&self) -> u8 {
        (self.keys_and_database >> KEYS_BITS) as u8
    }

    /// The keys of the requests that follow are those of this database.
    pub(crate) fn set_database(&mut self, database: u8) {
        let keys = self.keys_and_database & MOST_KEYS;
        self.keys_and_database = u32::from(database) << KEYS_BITS | keys;
    }

    /// The command of the last request.
    pub(crate) fn last(&self) -> Command {
        self.last
    }

    /// Notes the command of a call.
    pub(super) fn note(&mut self, command: Command) {
        self.last = command;
    }

    /// Whether the rest of a request that is discarded has yet to arrive.
    #[inline]
    pub(crate) fn is_swallowing(&self) -> bool {
        self.codec.is_swallowing()
    }

    #[inline]
    fn step<'i>(&mut self, parsed: Framed<'i>, input: &'i [u8], parse: &Parse<'i>) -> Step<'i> {
        match parsed {
            Framed::Incomplete { need } => Step::Incomplete { need },
            Framed::Skip { consumed } => {
                // An empty request counts as the next one; a part of a discarded request does not.
                if self.access == Access::SilentNext && !self.is_swallowing() {
                    self.access = Access::Operations;
                }
                Step::Skip { consumed }
            }
            Framed::Close { reply } => Step::Close { reply },
            Framed::Refused { consumed, refusal } => self.refused(consumed, refusal),
            Framed::Request { consumed, request } => self.request(consumed, request, input, parse),
        }
    }

    /// Whether the next request has no reply.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(
            self.access,
            Access::Silent | Access::SilentAfterRefusal | Access::SilentNext
        )
    }

    #[cold]
    fn refused<'i>(&mut self, consumed: usize, refusal: Refusal) -> Step<'i> {
        self.access = match self.access {
            Access::Calls => Access::CallsAfterRefusal,
            Access::Silent => Access::SilentAfterRefusal,
            Access::SilentNext => Access::Operations,
            access => access,
        };
        Step::frame(consumed, refusal.line())
    }

    #[inline]
    fn request<'i>(
        &mut self,
        consumed: usize,
        request: Request<'i>,
        input: &'i [u8],
        parse: &Parse<'i>,
    ) -> Step<'i> {
        let call = Step::Call {
            consumed,
            call: request,
        };
        if self.access != Access::Operations || parse.is_timed {
            return call;
        }
        let (name, args) = (request.name(), request.args());
        // The two most frequent commands are read here, without a look at the table.
        match *name {
            [b'g' | b'G', b'e' | b'E', b't' | b'T'] if args.len() == 1 => self.parsed(
                strings::get(args, parse),
                (Command::GET, Tally::Get),
                consumed,
                request,
                input,
                parse,
            ),
            [b's' | b'S', b'e' | b'E', b't' | b'T'] if args.len() >= 2 => self.parsed(
                strings::set(args, parse),
                (Command::SET, Tally::Store),
                consumed,
                request,
                input,
                parse,
            ),
            _ => match table::find(name) {
                Some(command) if command.accepts(args.len() + 1) => {
                    let parsed = (command.parse)(args, parse);
                    let row = (command, command.tally);
                    self.parsed(parsed, row, consumed, request, input, parse)
                }
                _ => call,
            },
        }
    }

    /// The step for a request of which the command has read the arguments. Inlined, so that an
    /// operation is not copied.
    #[inline(always)]
    fn parsed<'i>(
        &mut self,
        parsed: Parsed<'i>,
        (command, tally): (Command, Tally),
        consumed: usize,
        request: Request<'i>,
        input: &'i [u8],
        parse: &Parse<'i>,
    ) -> Step<'i> {
        self.last = command;
        match parsed {
            Ok(Action::Op(operation)) => {
                let key = stored_key(self.database(), operation.key, parse.scratch);
                self.operation(consumed, key, &operation, command, tally)
            }
            Ok(Action::GetEach) => self.multiget(consumed, request.args(), input, parse),
            Ok(Action::Alone(_) | Action::Count(_) | Action::Call) | Err(_) => Step::Call {
                consumed,
                call: request,
            },
        }
    }

    #[inline]
    fn operation<'i>(
        &self,
        consumed: usize,
        key: &'i [u8],
        operation: &Operation<'i>,
        command: Command,
        tally: Tally,
    ) -> Step<'i> {
        Step::op(
            consumed,
            key,
            operation.verb,
            operation.form(command, tally, self.version()),
        )
    }

    /// The frame of an `MGET`. Its keys are left in the input, one for each of the steps after it.
    fn multiget<'i>(
        &mut self,
        consumed: usize,
        args: Args<'i>,
        input: &'i [u8],
        parse: &Parse<'i>,
    ) -> Step<'i> {
        let (keys, keys_at) = args.position_in(input, consumed, parse.scratch);
        self.keys = Some(keys);
        debug_assert_eq!(self.keys_and_database & MOST_KEYS, 0);
        self.keys_and_database |= args.len() as u32 & MOST_KEYS;
        Step::frame(keys_at, array_head(args.len(), parse.scratch))
    }

    /// The next key of an `MGET`.
    #[cold]
    fn next_key<'i>(&mut self, keys: ArgForm, input: &'i [u8], parse: &Parse<'i>) -> Step<'i> {
        let left = (self.keys_and_database & MOST_KEYS).saturating_sub(1);
        self.keys_and_database = u32::from(self.database()) << KEYS_BITS | left;
        let is_last = left == 0;
        let (key, consumed) = keys.take(input, is_last, parse.scratch);
        if is_last {
            self.keys = None;
        }
        let operation = Operation::read(key, ReplyShape::StringOrNull);
        let form = operation.form(Command::MGET, Tally::Get, self.version());
        let form = ReplyForm {
            is_part: !is_last,
            ..form
        };
        let key = stored_key(self.database(), key, parse.scratch);
        Step::op(consumed, key, operation.verb, form)
    }
}

/// The access of a client before it authenticates.
fn unauthenticated() -> Access {
    if mutant!("parses_before_auth") {
        Access::Operations
    } else {
        Access::Unauthenticated
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
