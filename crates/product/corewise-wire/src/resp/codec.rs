//! The server's side: the state of one connection, and the framing of its input.

use bumpalo::Bump;

use super::inline;
use super::number::{parse_integer, short_number};
use super::request::Request;

/// What a connection may send, the same for all connections of a server.
///
/// ```
/// use corewise_wire::resp::Limits;
/// let limits = Limits { max_bulk: 1 << 20, ..Limits::default() };
/// assert_eq!(limits.max_inline, 65_536);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of elements of a request, 2^31 - 1 at most; 1,048,576 by default. A request
    /// that announces more closes the connection.
    pub max_elements: u32,
    /// Maximum length of one element in bytes; 512 MiB by default (Redis's `proto-max-bulk-len`).
    /// A request that announces more closes the connection.
    pub max_bulk: usize,
    /// Maximum length in bytes of an inline request, and of the line that announces a length,
    /// without its line break; 64 KiB by default, as in Redis. A longer line closes the connection.
    pub max_inline: usize,
    /// Maximum length in bytes of a request in multibulk form; 1 GiB by default. A longer request
    /// is discarded as it arrives, and refused at its end: [`Parsed::Refused`].
    pub max_request: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_elements: 1 << 20,
            max_bulk: 512 << 20,
            max_inline: 64 << 10,
            max_request: 1 << 30,
        }
    }
}

/// Maximum number of elements of a request before the client has authenticated, as in Redis.
const MAX_ELEMENTS_UNAUTHENTICATED: i64 = 10;
/// Maximum length of an element before the client has authenticated, as in Redis.
const MAX_BULK_UNAUTHENTICATED: i64 = 16_384;
/// The first count that is not read by the short way, which has no limit for clients that have not
/// authenticated.
const SHORT_COUNT: usize = MAX_ELEMENTS_UNAUTHENTICATED as usize + 1;
/// The longest line that is read by the short way, without its end.
const SHORT_LINE: usize = 4;
const _: () = assert!(MAX_BULK_UNAUTHENTICATED > 999);

/// What to do with the first bytes of the input.
///
/// Borrowed data lives as long as the input and the scratch arena.
#[derive(Clone, Copy, Debug)]
pub enum Parsed<'i> {
    /// The codec cannot proceed until the input, counted from its start, holds at least `need`
    /// bytes.
    Incomplete {
        /// More bytes than the input has now: the end of the current element if it is known,
        /// otherwise one byte more.
        need: usize,
    },
    /// The bytes are consumed, and nothing is to be sent: an empty request, or a part of a request
    /// that is being discarded.
    Skip {
        /// The number of bytes, at least one.
        consumed: usize,
    },
    /// A complete request.
    Request {
        /// The number of consumed bytes.
        consumed: usize,
        /// The request.
        request: Request<'i>,
    },
    /// The end of a request that was discarded. It is to be answered with an error.
    Refused {
        /// The number of consumed bytes.
        consumed: usize,
        /// Why the request was discarded.
        refusal: Refusal,
    },
    /// The input is malformed. Send this error, then close the connection.
    Close {
        /// The error in the form in which it is sent, the same in both versions of the protocol.
        reply: &'i [u8],
    },
}

/// Why a request was discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It was longer than [`Limits::max_request`].
    TooLong,
    /// There was no memory to collect it: [`Codec::refuse`].
    NoMemory,
}

impl Refusal {
    /// The error in the form in which it is sent, the same in both versions of the protocol.
    ///
    /// ```
    /// use corewise_wire::resp::Refusal;
    /// assert!(Refusal::NoMemory.line().starts_with(b"-OOM "));
    /// ```
    #[must_use]
    pub fn line(self) -> &'static [u8] {
        match self {
            Self::TooLong => b"-ERR request exceeds the maximum length\r\n",
            Self::NoMemory => b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        }
    }
}

/// The codec's position in its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// At the start of a request.
    Start,
    /// Inside a multibulk request, which is kept in the input.
    Elements,
    /// Inside a multibulk request that is discarded.
    Discard(Refusal),
}

/// The state of one connection: 24 bytes.
///
/// A plain value: copy it before a step, and restore the copy to undo the step.
///
/// ```
/// use bumpalo::Bump;
/// use corewise_wire::resp::{Codec, Limits, Parsed};
///
/// let (limits, scratch) = (Limits::default(), Bump::new());
/// let mut codec = Codec::new(true);
/// let input = b"*1\r\n$4\r\nPING\r\n";
/// // A part of a request is remembered: the next call sees it again, with more behind it.
/// let Parsed::Incomplete { need: 14 } = codec.next(&input[..10], &limits, &scratch)
/// else { panic!() };
/// let Parsed::Request { consumed: 14, request } = codec.next(input, &limits, &scratch)
/// else { panic!() };
/// assert_eq!(request.name(), b"PING");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codec {
    /// `Elements`: bytes of the input before the first incomplete element. `Discard`: bytes of the
    /// current element that have yet to arrive.
    position: usize,
    /// `Elements`: the number of elements of the request.
    count: u32,
    /// Elements that are not complete, or not discarded.
    left: u32,
    /// Bytes from the position on that are known to hold no end of a line.
    searched: u32,
    mode: Mode,
    /// Whether the limits for clients that have not authenticated are lifted.
    is_authenticated: bool,
}

const _: () = assert!(size_of::<Codec>() <= 24);

/// Why there is no line.
enum NoLine {
    /// Its end has not arrived.
    Unfinished,
    /// It is over the limit.
    TooLong,
}

/// Why there is no length.
enum NoLength<'i> {
    /// Its line has not arrived.
    Unfinished,
    /// The connection must be closed with this error.
    Malformed(&'i [u8]),
}

impl Codec {
    /// The state of a new connection. Until the client has authenticated, a request may have 10
    /// elements of 16 KiB only.
    #[must_use]
    pub fn new(authenticated: bool) -> Self {
        Self {
            position: 0,
            count: 0,
            left: 0,
            searched: 0,
            mode: Mode::Start,
            is_authenticated: authenticated,
        }
    }

    /// Whether the limits for clients that have not authenticated are lifted.
    #[inline]
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    /// Lifts the limits for clients that have not authenticated, from the next length on.
    pub fn set_authenticated(&mut self) {
        self.is_authenticated = true;
    }

    /// Whether the rest of a request that is discarded has yet to arrive.
    #[inline]
    #[must_use]
    pub fn is_swallowing(&self) -> bool {
        matches!(self.mode, Mode::Discard(_))
    }

    /// Parses the unread `input` and returns what to do with its first bytes.
    ///
    /// Takes time in proportion to the number of elements that have arrived since the last call,
    /// and for an inline request to its length. Allocates only the words of an inline request, in
    /// `scratch`. After [`Parsed::Incomplete`] the next call must see the same bytes with more
    /// behind them.
    #[inline]
    pub fn next<'i>(&mut self, input: &'i [u8], limits: &Limits, scratch: &'i Bump) -> Parsed<'i> {
        match (self.mode, input.first()) {
            (_, None) => Parsed::Incomplete { need: 1 },
            (Mode::Start, Some(b'*')) => self.multibulk(input, limits, scratch),
            (Mode::Start, Some(_)) => self.inline(input, limits, scratch),
            (Mode::Elements, _) => self.elements(input, limits, scratch),
            (Mode::Discard(refusal), _) => self.discard(input, limits, scratch, refusal),
        }
    }

    /// Gives up the unfinished request at the start of `input`. Call it instead of
    /// [`next`](Self::next) after a [`Parsed::Incomplete`], when there is no memory to hold the
    /// rest.
    ///
    /// A multibulk request is discarded as it arrives; at its end the codec returns
    /// [`Parsed::Refused`]. After an unfinished line the connection is closed: it is unknown what
    /// follows the line.
    #[cold]
    pub fn refuse<'i>(
        &mut self,
        input: &'i [u8],
        limits: &Limits,
        scratch: &'i Bump,
    ) -> Parsed<'i> {
        match self.next(input, limits, scratch) {
            Parsed::Incomplete { .. } if self.mode == Mode::Elements => {
                self.begin_discard(Refusal::NoMemory)
            }
            Parsed::Incomplete { .. } if self.mode == Mode::Start => Parsed::Close {
                reply: Refusal::NoMemory.line(),
            },
            parsed => parsed,
        }
    }

    /// The line of a multibulk request, and its elements.
    #[inline]
    fn multibulk<'i>(&mut self, input: &'i [u8], limits: &Limits, scratch: &'i Bump) -> Parsed<'i> {
        if let Some((count @ 1..SHORT_COUNT, after)) = short_number(input, b'*')
            && count <= limits.max_elements as usize
            && limits.max_inline >= SHORT_LINE
        {
            return self.begin(after, count as u32, input, limits, scratch);
        }
        self.long_multibulk(input, limits, scratch)
    }

    /// The same for every line.
    fn long_multibulk<'i>(
        &mut self,
        input: &'i [u8],
        limits: &Limits,
        scratch: &'i Bump,
    ) -> Parsed<'i> {
        let (line, after) = match self.line(input, b'\r', limits.max_inline) {
            Ok(found) => found,
            Err(NoLine::Unfinished) => return unfinished(input),
            Err(NoLine::TooLong) => {
                return Parsed::Close {
                    reply: b"-ERR Protocol error: too big mbulk count string\r\n",
                };
            }
        };
        let max = i64::from(limits.max_elements.min(i32::MAX as u32));
        let count = match parse_integer(&line[1..]) {
            Some(count) if count <= max => count,
            _ => {
                return Parsed::Close {
                    reply: b"-ERR Protocol error: invalid multibulk length\r\n",
                };
            }
        };
        if count > MAX_ELEMENTS_UNAUTHENTICATED && !self.is_authenticated() {
            return Parsed::Close {
                reply: b"-ERR Protocol error: unauthenticated multibulk length\r\n",
            };
        }
        if count <= 0 {
            return Parsed::Skip { consumed: after };
        }
        self.begin(after, count as u32, input, limits, scratch)
    }

    /// The elements of a request whose line has the length `after`: at once if the whole request is
    /// here and its elements are short.
    #[inline]
    fn begin<'i>(
        &mut self,
        after: usize,
        count: u32,
        input: &'i [u8],
        limits: &Limits,
        scratch: &'i Bump,
    ) -> Parsed<'i> {
        self.searched = 0;
        let most = input.len().min(limits.max_request);
        let (mut position, mut left) = (after, count);
        while let Some((len, head)) = short_length(&input[position..], limits)
            && position + head + len + 2 <= most
        {
            position += head + len + 2;
            left -= 1;
            if left == 0 {
                return Parsed::Request {
                    consumed: position,
                    request: Request::new(&input[after..position], count),
                };
            }
        }
        self.mode = Mode::Elements;
        self.position = position;
        self.count = count;
        self.left = left;
        self.elements(input, limits, scratch)
    }

    /// The elements of a multibulk request from `position` on.
    #[inline]
    fn elements<'i>(&mut self, input: &'i [u8], limits: &Limits, scratch: &'i Bump) -> Parsed<'i> {
        while self.left > 0 {
            let rest = input.get(self.position..).unwrap_or(b"");
            let (len, head) = match self.length(rest, limits, scratch) {
                Ok(found) => found,
                // The end of the line is yet to come, so the request is longer.
                Err(NoLength::Unfinished) if input.len() >= limits.max_request => {
                    return self.begin_discard(Refusal::TooLong);
                }
                Err(NoLength::Unfinished) => return unfinished(input),
                Err(NoLength::Malformed(reply)) => return Parsed::Close { reply },
            };
            let end = (self.position + head + 2).saturating_add(len);
            if end > limits.max_request {
                return self.begin_discard(Refusal::TooLong);
            }
            if end > input.len() {
                return Parsed::Incomplete { need: end };
            }
            self.position = end;
            self.left -= 1;
        }
        let consumed = self.position;
        let count = self.count;
        self.restart();
        let elements = input.get(..consumed).unwrap_or(b"");
        Parsed::Request {
            consumed,
            request: Request::new(after_line(elements), count),
        }
    }

    /// The length of the element at the start of `rest`, and that of its line.
    #[inline]
    fn length<'i>(
        &mut self,
        rest: &[u8],
        limits: &Limits,
        scratch: &'i Bump,
    ) -> Result<(usize, usize), NoLength<'i>> {
        if let Some(found) = short_length(rest, limits) {
            self.searched = 0;
            return Ok(found);
        }
        self.long_length(rest, limits, scratch)
    }

    /// The same for every line.
    fn long_length<'i>(
        &mut self,
        rest: &[u8],
        limits: &Limits,
        scratch: &'i Bump,
    ) -> Result<(usize, usize), NoLength<'i>> {
        let (line, after) = match self.line(rest, b'\r', limits.max_inline) {
            Ok(found) => found,
            Err(NoLine::Unfinished) => return Err(NoLength::Unfinished),
            Err(NoLine::TooLong) => {
                return Err(NoLength::Malformed(
                    b"-ERR Protocol error: too big bulk count string\r\n",
                ));
            }
        };
        let Some((b'$', digits)) = line.split_first() else {
            return Err(NoLength::Malformed(expected_dollar(rest, scratch)));
        };
        let max = i64::try_from(limits.max_bulk).unwrap_or(i64::MAX);
        let len = parse_integer(digits).filter(|len| (0..=max).contains(len));
        match len {
            None => Err(NoLength::Malformed(
                b"-ERR Protocol error: invalid bulk length\r\n",
            )),
            Some(len) if len > MAX_BULK_UNAUTHENTICATED && !self.is_authenticated() => Err(
                NoLength::Malformed(b"-ERR Protocol error: unauthenticated bulk length\r\n"),
            ),
            Some(len) => Ok((len as usize, after)),
        }
    }

    /// Consumes the elements at hand, and discards the others as they arrive.
    #[cold]
    fn begin_discard<'i>(&mut self, refusal: Refusal) -> Parsed<'i> {
        let consumed = self.position;
        self.position = 0;
        self.mode = Mode::Discard(refusal);
        Parsed::Skip { consumed }
    }

    /// Discards what is at hand of the elements of a request.
    #[cold]
    fn discard<'i>(
        &mut self,
        input: &'i [u8],
        limits: &Limits,
        scratch: &'i Bump,
        refusal: Refusal,
    ) -> Parsed<'i> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            let gone = self.position.min(rest.len());
            at += gone;
            self.position -= gone;
            if self.position > 0 {
                return Parsed::Skip { consumed: at };
            }
            if self.left == 0 {
                self.restart();
                return Parsed::Refused {
                    consumed: at,
                    refusal,
                };
            }
            match self.length(&input[at..], limits, scratch) {
                Ok((len, head)) => {
                    self.position = (head + 2).saturating_add(len);
                    self.left -= 1;
                }
                Err(NoLength::Malformed(reply)) => return Parsed::Close { reply },
                Err(NoLength::Unfinished) if at == 0 => return unfinished(input),
                Err(NoLength::Unfinished) => return Parsed::Skip { consumed: at },
            }
        }
    }

    /// An inline request.
    fn inline<'i>(&mut self, input: &'i [u8], limits: &Limits, scratch: &'i Bump) -> Parsed<'i> {
        let line = match self.line(input, b'\n', limits.max_inline) {
            Ok((line, _)) => line,
            Err(NoLine::Unfinished) => return unfinished(input),
            Err(NoLine::TooLong) => {
                return Parsed::Close {
                    reply: b"-ERR Protocol error: too big inline request\r\n",
                };
            }
        };
        let consumed = line.len() + 1;
        let text = line.strip_suffix(b"\r").unwrap_or(line);
        match inline::rewrite(text, scratch) {
            Ok((_, 0)) => Parsed::Skip { consumed },
            Ok((elements, count)) => Parsed::Request {
                consumed,
                request: Request::new(elements, count),
            },
            Err(inline::Unbalanced) => Parsed::Close {
                reply: b"-ERR Protocol error: unbalanced quotes in request\r\n",
            },
        }
    }

    /// Finds the line that ends before the first `end` in `text`, and the length of the line with
    /// what ends it: `\n`, or `\r` and one byte more.
    #[inline]
    fn line<'t>(
        &mut self,
        text: &'t [u8],
        end: u8,
        max: usize,
    ) -> Result<(&'t [u8], usize), NoLine> {
        let window = &text[..text.len().min(max.saturating_add(1))];
        let from = window.len().min(self.searched as usize);
        let ending = if end == b'\r' { 2 } else { 1 };
        match memchr::memchr(end, &window[from..]).map(|at| from + at) {
            Some(at) if at + ending <= text.len() => {
                self.searched = 0;
                Ok((&text[..at], at + ending))
            }
            Some(_) => Err(NoLine::Unfinished),
            None if text.len() > max => Err(NoLine::TooLong),
            None => {
                self.searched = u32::try_from(text.len()).unwrap_or(u32::MAX);
                Err(NoLine::Unfinished)
            }
        }
    }

    /// Returns to the start of a request.
    #[inline]
    fn restart(&mut self) {
        self.mode = Mode::Start;
        self.position = 0;
    }
}

/// One byte more is needed, at least.
fn unfinished<'i>(input: &[u8]) -> Parsed<'i> {
    Parsed::Incomplete {
        need: input.len() + 1,
    }
}

/// The length of the element at the start of `rest` and that of its line, if the line is short.
#[inline]
fn short_length(rest: &[u8], limits: &Limits) -> Option<(usize, usize)> {
    let (len, after) = short_number(rest, b'$')?;
    (len <= limits.max_bulk && limits.max_inline >= SHORT_LINE).then_some((len, after))
}

/// What follows the first line of a multibulk request.
#[inline]
fn after_line(request: &[u8]) -> &[u8] {
    if let Some((_, after)) = short_number(request, b'*') {
        return request.get(after..).unwrap_or(b"");
    }
    let end = request.iter().position(|byte| *byte == b'\r').unwrap_or(0);
    request.get(end + 2..).unwrap_or(b"")
}

/// The error for an element that begins with another byte. Redis prints line breaks as blanks.
#[cold]
fn expected_dollar<'i>(element: &[u8], scratch: &'i Bump) -> &'i [u8] {
    let reply = scratch.alloc_slice_copy(b"-ERR Protocol error: expected '$', got 'x'\r\n");
    let place = reply.len() - b"x'\r\n".len();
    reply[place] = match element.first() {
        None | Some(b'\r' | b'\n') => b' ',
        Some(byte) => *byte,
    };
    reply
}
