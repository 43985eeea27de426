//! The state of one connection, and the framing of its input.

use bumpalo::Bump;
use corewise_ops::{Arith, Deadline, Delete, Get, Now, Store, StoreMode, Verb};

use super::HEADER_LEN;
use super::call::Call;
use super::reply_form::ReplyForm;
use super::request::{Command, Header, NoHeader, Rejected};
use super::response::{Echo, Failure};
use crate::memcached::{Admin, Limits, StatsRequest};
use crate::step::{Announced, Tally};

/// What to do with the first bytes of the input.
type Step<'i> = crate::step::Step<'i, ReplyForm<'i>, Call<'i>>;

/// Largest expiry time that is relative to now; larger ones are dates.
const MAX_RELATIVE_S: u32 = 60 * 60 * 24 * 30;
/// The expiry time with which a missing counter is not created.
const NO_INITIAL_VALUE: u32 = u32::MAX;

/// What to do with a store whose value is not in the input.
#[derive(Clone, Copy)]
enum Missing {
    /// Wait for the value.
    Awaited,
    /// Refuse the store: there is no memory to wait for the value.
    Refused,
    /// Proceed as if the value were there: the caller has it.
    Apart,
}

/// Parameters of every parser.
#[derive(Clone, Copy)]
struct Context<'c, 'i> {
    limits: &'c Limits,
    now: Now,
    scratch: &'i Bump,
    missing: Missing,
}

/// A request whose extras and key have arrived.
#[derive(Clone, Copy)]
struct Request<'i> {
    header: Header,
    command: Command,
    is_quiet: bool,
    extras: &'i [u8],
    key: &'i [u8],
}

/// Why there is no request.
enum NoRequest {
    /// Its header, extras or key have not arrived: this many bytes are needed.
    Unfinished(usize),
    /// It does not begin as a request does.
    Foreign,
    /// It is not executed.
    Rejected(Header, Rejected),
}

impl<'i> Request<'i> {
    /// Parses the header, extras and key at the start of `input`.
    #[inline]
    fn parse(input: &'i [u8]) -> Result<Self, NoRequest> {
        let header = match Header::parse(input) {
            Ok(header) => header,
            Err(NoHeader::Unfinished) => return Err(NoRequest::Unfinished(HEADER_LEN)),
            Err(NoHeader::Malformed) => return Err(NoRequest::Foreign),
        };
        let (command, is_quiet) = match header.check() {
            Ok(command) => command,
            Err(rejected) => return Err(NoRequest::Rejected(header, rejected)),
        };
        let Some(head) = input.get(HEADER_LEN..header.head_len()) else {
            return Err(NoRequest::Unfinished(header.head_len()));
        };
        let (extras, key) = head.split_at(header.extras_len);
        Ok(Self {
            header,
            command,
            is_quiet,
            extras,
            key,
        })
    }

    fn echo(&self) -> Echo {
        self.header.echo
    }

    /// The number in the extras at `at`. Its command has such extras.
    #[inline]
    fn extra_u32(&self, at: usize) -> u32 {
        let bytes = self
            .extras
            .get(at..)
            .and_then(|extras| extras.first_chunk());
        bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }

    /// The same for a number of eight bytes.
    fn extra_u64(&self, at: usize) -> u64 {
        let bytes = self
            .extras
            .get(at..)
            .and_then(|extras| extras.first_chunk());
        bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }

    /// The cas value that the item must have.
    #[inline]
    fn compare_cas(&self) -> Option<u64> {
        (self.header.cas != 0).then_some(self.header.cas)
    }

    /// An operation of the whole request except its value.
    #[inline]
    fn operation(&self, verb: Verb<'i>) -> Step<'i> {
        Step::op(self.header.head_len(), self.key, verb, self.form())
    }

    #[inline]
    fn form(&self) -> ReplyForm<'i> {
        ReplyForm::new(self.command, self.is_quiet, self.echo(), self.key)
    }

    fn frame(&self, bytes: &'i [u8]) -> Step<'i> {
        Step::frame(self.header.head_len(), bytes)
    }

    fn call(&self, admin: Admin<'i>) -> Step<'i> {
        Step::Call {
            consumed: self.header.head_len(),
            call: Call {
                admin,
                echo: self.echo(),
                is_quiet: self.is_quiet,
            },
        }
    }
}

/// The state of one connection.
///
/// A plain value: copy it before a step, and restore the copy to undo the step.
///
/// ```
/// use bumpalo::Bump;
/// use corewise_ops::{Absence, Now, Outcome, Verb};
/// use corewise_wire::{Step, binary::Codec, memcached::Limits};
///
/// let now = Now::new(1_000, 1_800_000_000);
/// let (limits, scratch) = (Limits::default(), Bump::new());
/// let mut request = [0; 25];
/// request[0] = 0x80;
/// request[3] = 1;
/// request[11] = 1;
/// request[24] = b'k';
/// let Step::Op { consumed: 25, key: b"k", verb: Verb::Get(_), form } =
///     Codec::default().next(&request, &limits, now, &scratch)
/// else { panic!() };
///
/// let mut out = Vec::new();
/// form.encode(&Outcome::Missing(Absence::Unknown), &mut out);
/// assert_eq!(out[..8], [0x81, 0, 0, 0, 0, 0, 0, 1]);
/// assert_eq!(out[24..], *b"Not found");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Codec {
    /// Remaining bytes of a body to discard.
    rest: u32,
}

impl Codec {
    /// Whether bytes of a body to discard have yet to arrive.
    #[inline]
    #[must_use]
    pub fn is_swallowing(&self) -> bool {
        self.rest > 0
    }

    /// Parses the unread `input` and returns what to do with its first bytes.
    ///
    /// Takes constant time. Only fixed responses are allocated, in `scratch`. After
    /// [`Step::Incomplete`](crate::Step::Incomplete) the next call must see the same bytes with
    /// more behind them.
    #[inline]
    pub fn next<'i>(
        &mut self,
        input: &'i [u8],
        limits: &Limits,
        now: Now,
        scratch: &'i Bump,
    ) -> Step<'i> {
        let cx = Context {
            limits,
            now,
            scratch,
            missing: Missing::Awaited,
        };
        self.step(input, cx)
    }

    /// Gives up the unfinished request at the start of `input`. Call it instead of
    /// [`next`](Self::next) after a [`Step::Incomplete`](crate::Step::Incomplete), when there is no
    /// memory to hold the rest.
    ///
    /// The value of a store is discarded as it arrives, and a `Set` removes the old item. After an
    /// unfinished header or key the connection is closed.
    #[cold]
    pub fn refuse<'i>(
        &mut self,
        input: &'i [u8],
        limits: &Limits,
        now: Now,
        scratch: &'i Bump,
    ) -> Step<'i> {
        let cx = Context {
            limits,
            now,
            scratch,
            missing: Missing::Refused,
        };
        match self.step(input, cx) {
            Step::Incomplete { .. } => Step::Close { reply: b"" },
            step => step,
        }
    }

    /// The store at the start of `input`, if [`next`](Self::next) has returned
    /// [`Step::Incomplete`](crate::Step::Incomplete) and only part of its value is missing. The
    /// caller may then receive the value elsewhere and continue with
    /// [`next_apart`](Self::next_apart).
    ///
    /// `None` also for `Append` and `Prepend`, whose value is only a part of the item's.
    #[must_use]
    pub fn announced<'i>(&self, input: &'i [u8], limits: &Limits) -> Option<Announced<'i>> {
        if self.rest > 0 {
            return None;
        }
        let request = Request::parse(input).ok()?;
        let stores = matches!(
            request.command,
            Command::Set | Command::Add | Command::Replace
        );
        let (line_len, value_len) = (request.header.head_len(), request.header.value_len());
        let is_whole = input.len() - line_len >= value_len;
        if !stores || is_whole || is_too_large(&request, limits) {
            return None;
        }
        Some(Announced {
            line_len,
            value_len,
            end_len: 0,
            key: request.key,
            client_flags: client_flags(&request),
        })
    }

    /// Returns what [`next`](Self::next) would for `head`, the header, extras and key, and the
    /// value that it [announced](Self::announced), which the caller has received separately. The
    /// value of the operation is empty, and `consumed` includes the value, although it is not in
    /// the input.
    #[cold]
    pub fn next_apart<'i>(
        &mut self,
        head: &'i [u8],
        limits: &Limits,
        now: Now,
        scratch: &'i Bump,
    ) -> Step<'i> {
        let cx = Context {
            limits,
            now,
            scratch,
            missing: Missing::Apart,
        };
        self.step(head, cx)
    }

    #[inline]
    fn step<'i>(&mut self, input: &'i [u8], cx: Context<'_, 'i>) -> Step<'i> {
        if self.rest > 0 {
            return self.swallowed(input);
        }
        let request = match Request::parse(input) {
            Ok(request) => request,
            Err(NoRequest::Unfinished(need)) => return Step::Incomplete { need },
            Err(NoRequest::Foreign) => return Step::Close { reply: b"" },
            Err(NoRequest::Rejected(header, rejected)) => {
                return self.reject(&header, rejected, cx.scratch);
            }
        };
        use Command as C;
        match request.command {
            C::Get | C::GetKey => request.operation(Verb::Get(Get::default())),
            C::Touch | C::GetAndTouch | C::GetKeyAndTouch => request.operation(Verb::Get(
                Get::touching(deadline(request.extra_u32(0), cx.now)),
            )),
            C::Set | C::Add | C::Replace | C::Append | C::Prepend => {
                self.store(input, &request, cx)
            }
            C::Delete => request.operation(Verb::Delete(Delete {
                compare_cas: request.compare_cas(),
                ..Delete::default()
            })),
            C::Increment | C::Decrement => request.operation(arithmetic(&request, cx.now)),
            _ => administer(&request, cx),
        }
    }

    /// Answers a request that is not executed.
    #[cold]
    fn reject<'i>(&mut self, header: &Header, rejected: Rejected, scratch: &'i Bump) -> Step<'i> {
        match rejected {
            Rejected::Malformed(failure) => Step::Close {
                reply: header.echo.failure(failure, scratch),
            },
            Rejected::Unknown => {
                self.rest = header.body_len;
                Step::frame(
                    HEADER_LEN,
                    header.echo.failure(Failure::UNKNOWN_COMMAND, scratch),
                )
            }
        }
    }

    #[inline]
    fn store<'i>(
        &mut self,
        input: &'i [u8],
        request: &Request<'i>,
        cx: Context<'_, 'i>,
    ) -> Step<'i> {
        if is_too_large(request, cx.limits) {
            return self.refuse_store(request, Tally::Refused, Failure::TOO_LARGE, cx.scratch);
        }
        let head_len = request.header.head_len();
        let consumed = head_len + request.header.value_len();
        let value = match (input.get(head_len..consumed), cx.missing) {
            (Some(value), _) => value,
            (None, Missing::Apart) => b"",
            (None, Missing::Awaited) => return Step::Incomplete { need: consumed },
            (None, Missing::Refused) => {
                let failure = Failure::NO_ROOM_FOR_ITEM;
                return self.refuse_store(request, Tally::Unread, failure, cx.scratch);
            }
        };
        let compare_cas = request.compare_cas();
        let verb = Verb::Store(Store {
            client_flags: client_flags(request),
            deadline: deadline(request.extra_u32(4), cx.now),
            compare_cas,
            ..Store::new(mode(request.command, compare_cas.is_some()), value)
        });
        Step::op(
            consumed,
            request.key,
            verb,
            match compare_cas {
                Some(_) => request.form().counting(Tally::Cas),
                None => request.form(),
            },
        )
    }

    /// Refuses a store: its value is discarded, and a `Set` removes the old item, so that no client
    /// reads a value that its owner meant to replace.
    #[cold]
    fn refuse_store<'i>(
        &mut self,
        request: &Request<'i>,
        tally: Tally,
        failure: Failure,
        scratch: &'i Bump,
    ) -> Step<'i> {
        self.rest = request.header.value_len() as u32;
        if request.command != Command::Set {
            return request.frame(request.echo().failure(failure, scratch));
        }
        Step::op(
            request.header.head_len(),
            request.key,
            Verb::Delete(Delete::default()),
            request.form().counting(tally),
        )
    }

    /// Discards the bytes at hand, up to the end of the body.
    fn swallowed<'i>(&mut self, input: &[u8]) -> Step<'i> {
        if input.is_empty() {
            return Step::Incomplete { need: 1 };
        }
        let consumed = input.len().min(self.rest as usize);
        self.rest -= consumed as u32;
        Step::Skip { consumed }
    }
}

/// The commands that are not about one key.
fn administer<'i>(request: &Request<'i>, cx: Context<'_, 'i>) -> Step<'i> {
    let echo = request.echo();
    match request.command {
        Command::Quit if request.is_quiet => Step::Close { reply: b"" },
        Command::Quit => Step::Close {
            reply: echo.success(b"", cx.scratch),
        },
        Command::Version => {
            let line = cx.limits.version;
            let version = line.strip_prefix(b"VERSION ").unwrap_or(line);
            request.frame(echo.success(version.trim_ascii_end(), cx.scratch))
        }
        Command::Flush if !cx.limits.flush_enabled => {
            request.frame(echo.failure(Failure::FORBIDDEN, cx.scratch))
        }
        Command::Flush => {
            let at = deadline(request.extra_u32(0), cx.now);
            request.call(Admin::FlushAll {
                at: (at != Deadline::NEVER).then_some(at),
                noreply: false,
            })
        }
        Command::Stat => match statistics(request.key, cx.limits) {
            Some(group) => request.call(Admin::Stats(group)),
            None => request.frame(echo.failure(Failure::NOT_FOUND, cx.scratch)),
        },
        _ => request.frame(echo.success(b"", cx.scratch)),
    }
}

/// The group of statistics of this name. memcached compares some names with the beginning only.
fn statistics<'i>(name: &[u8], limits: &Limits) -> Option<StatsRequest<'i>> {
    Some(match name {
        b"" => StatsRequest::General,
        b"items" => StatsRequest::Items,
        b"slabs" => StatsRequest::Slabs,
        b"sizes" => StatsRequest::Sizes,
        b"sizes_enable" => StatsRequest::SizesEnable,
        b"sizes_disable" => StatsRequest::SizesDisable,
        _ if name.starts_with(b"reset") => StatsRequest::Reset,
        _ if name.starts_with(b"settings") => StatsRequest::Settings,
        _ if !limits.dump_enabled => return None,
        _ if name.starts_with(b"detail on") => StatsRequest::DetailOn,
        _ if name.starts_with(b"detail off") => StatsRequest::DetailOff,
        _ if name.starts_with(b"detail dump") => StatsRequest::DetailDump,
        _ => return None,
    })
}

/// A change of a counter.
fn arithmetic<'i>(request: &Request<'i>, now: Now) -> Verb<'i> {
    let exptime_s = request.extra_u32(16);
    let initial = (request.extra_u64(8), deadline(exptime_s, now));
    Verb::Arith(Arith {
        decrement: request.command == Command::Decrement,
        compare_cas: request.compare_cas(),
        vivify: (exptime_s != NO_INITIAL_VALUE).then_some(initial),
        ..Arith::new(request.extra_u64(0))
    })
}

/// The condition of a store. With a cas value, there must be an item, whatever the command is.
#[inline]
fn mode(command: Command, compares_cas: bool) -> StoreMode {
    match command {
        Command::Append => StoreMode::Append,
        Command::Prepend => StoreMode::Prepend,
        Command::Add if !compares_cas => StoreMode::Add,
        Command::Replace if !compares_cas => StoreMode::Replace,
        _ => StoreMode::Set,
    }
}

/// The client flags of a store: those of `Append` and `Prepend` are the item's.
#[inline]
fn client_flags(request: &Request<'_>) -> u32 {
    request.extra_u32(0)
}

/// Whether the item of a store would be over the limit.
#[inline]
fn is_too_large(request: &Request<'_>, limits: &Limits) -> bool {
    let flags = if client_flags(request) == 0 { 0 } else { 4 };
    request.key.len() + flags + request.header.value_len() > limits.max_payload()
}

/// The deadline that an expiry time stands for.
#[inline]
fn deadline(exptime_s: u32, now: Now) -> Deadline {
    if exptime_s == 0 {
        return Deadline::NEVER;
    }
    let seconds = match exptime_s {
        ..=MAX_RELATIVE_S => u64::from(exptime_s),
        _ => u64::from(exptime_s).saturating_sub(now.unix_s),
    };
    if seconds == 0 {
        return Deadline::PAST;
    }
    Deadline::after_ms(now, seconds.saturating_mul(1_000))
}
