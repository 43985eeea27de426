//! The meta commands: `mg ms md ma me`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bumpalo::Bump;
use corewise_ops::{Arith, Deadline, Delete, Get, Store, StoreMode, Verb, Vivify};

use super::Step;
use super::classic::{Data, Refused, data, data_length, is_too_large, legal_key};
use super::codec::{Codec, CommandLine, Context};
use super::reply;
use super::reply_encoder::{Bits, Command, ReplyEncoder};
use super::scan::{Words, exptime_token, skip_spaces, u32_token, u64_token};
use super::time::{deadline, recache_below_ms};
use crate::step::Tally;

/// Maximum number of tokens on a line, command and key included.
const MAX_TOKENS: usize = 20;

/// Longest opaque in bytes; with its letter it has 32.
const MAX_OPAQUE: usize = 31;

/// An error line.
type Refusal = &'static [u8];

/// The key of a meta command and the contents of its flags. Every command accepts every flag.
struct Request<'i> {
    /// The key as it was sent.
    sent_key: &'i [u8],
    /// The key decoded.
    key: &'i [u8],
    /// The flags as they were sent.
    text: &'i [u8],
    bits: Bits,
    no_bump: bool,
    invalidate: bool,
    drop_value: bool,
    vivify: Option<Deadline>,
    touch: Option<Deadline>,
    recache_below_ms: Option<u64>,
    client_flags: u32,
    compare_cas: Option<u64>,
    new_cas: Option<u64>,
    mode: u8,
    initial: u64,
    delta: u64,
}

impl<'i> Request<'i> {
    /// A request without flags.
    #[inline]
    fn new() -> Self {
        Self {
            sent_key: b"",
            key: b"",
            text: b"",
            bits: Bits::NONE,
            no_bump: false,
            invalidate: false,
            drop_value: false,
            vivify: None,
            touch: None,
            recache_below_ms: None,
            client_flags: 0,
            compare_cas: None,
            new_cas: None,
            mode: 0,
            initial: 0,
            delta: 1,
        }
    }

    /// Parses the key and the flags of a command without data.
    #[inline]
    fn read(&mut self, args: &'i [u8], cx: Context<'_, 'i>) -> Result<(), Refusal> {
        let (key, text) = first(args).ok_or(reply::BAD_FORMAT)?;
        self.read_flags(key, text, 2, cx)
    }

    /// Checks the key and parses the flags; `fixed` tokens precede them.
    ///
    /// Parsing stops at a repeated or unknown flag; of the other errors the last one is reported.
    fn read_flags(
        &mut self,
        key: &'i [u8],
        text: &'i [u8],
        fixed: usize,
        cx: Context<'_, 'i>,
    ) -> Result<(), Refusal> {
        (self.sent_key, self.key, self.text) = (key, key, text);
        legal_key(key).ok_or(reply::BAD_FORMAT)?;
        let room = MAX_TOKENS - fixed;
        if text.len() > 2 * room - 1 && Words(text).count() > room {
            return Err(reply::META_TOO_MANY_FLAGS);
        }
        let mut seen = 0u128;
        let mut error = None;
        for token in Words(text) {
            let letter = token[0];
            if letter >= 127 || seen & (1 << letter) != 0 {
                return Err(reply::META_DUPLICATE_FLAG);
            }
            seen |= 1 << letter;
            match self.flag(letter, &token[1..], cx) {
                Ok(()) => {}
                Err(reply::META_INVALID_FLAG) => return Err(reply::META_INVALID_FLAG),
                Err(bytes) => error = Some(bytes),
            }
        }
        error.map_or(Ok(()), Err)
    }

    /// Parses one flag and its argument.
    #[inline]
    fn flag(&mut self, letter: u8, arg: &[u8], cx: Context<'_, 'i>) -> Result<(), Refusal> {
        match letter {
            // These flags affect only the printing of the reply.
            b'c' | b'f' | b'h' | b'k' | b'l' | b's' | b't' | b'L' | b'P' => {}
            b'v' => self.bits = self.bits.with(Bits::VALUE),
            b'q' => self.bits = self.bits.with(Bits::QUIET),
            b'u' => self.no_bump = true,
            b'I' => self.invalidate = true,
            b'x' => self.drop_value = true,
            b'b' => {
                self.key = decode(self.sent_key, cx.scratch).ok_or(reply::META_BAD_BASE64)?;
                self.bits = self.bits.with(Bits::BINARY);
            }
            b'O' if arg.len() > MAX_OPAQUE => return Err(reply::META_LONG_OPAQUE),
            b'O' => {}
            _ => return self.flag_with_argument(letter, arg, cx),
        }
        Ok(())
    }

    /// Parses one flag whose argument is a number or a mode.
    fn flag_with_argument(
        &mut self,
        letter: u8,
        arg: &[u8],
        cx: Context<'_, 'i>,
    ) -> Result<(), Refusal> {
        let seconds = || exptime_token(arg).ok_or(reply::META_BAD_TOKEN);
        let number = |refusal| u64_token(arg).ok_or(refusal);
        match letter {
            b'T' => self.touch = Some(deadline(seconds()?, cx.now)),
            b'N' => self.vivify = Some(deadline(seconds()?, cx.now)),
            b'R' => self.recache_below_ms = recache_below_ms(seconds()?, cx.now),
            b'F' => self.client_flags = u32_token(arg).ok_or(reply::BAD_FORMAT)?,
            b'C' => self.compare_cas = Some(number(reply::META_BAD_TOKEN)?),
            b'E' => self.new_cas = Some(number(reply::META_BAD_TOKEN)?),
            b'J' => self.initial = number(reply::META_BAD_INITIAL)?,
            b'D' => self.delta = number(reply::META_BAD_DELTA)?,
            b'M' => match arg {
                [mode] => self.mode = *mode,
                _ => return Err(reply::META_BAD_MODE_LENGTH),
            },
            _ => return Err(reply::META_INVALID_FLAG),
        }
        Ok(())
    }

    /// The encoder of the reply.
    fn encoder(&self, command: Command, tally: Tally) -> ReplyEncoder<'i> {
        ReplyEncoder::meta(command, tally, self.sent_key, self.text, self.bits)
    }

    /// An operation that needs no data.
    fn step(&self, consumed: usize, command: Command, tally: Tally, verb: Verb<'i>) -> Step<'i> {
        Step::op(consumed, self.key, verb, self.encoder(command, tally))
    }
}

/// Decodes a base64 key; accepts only the canonical form.
fn decode<'i>(key: &[u8], scratch: &'i Bump) -> Option<&'i [u8]> {
    let buffer = scratch.alloc_slice_fill_copy(key.len() / 4 * 3 + 3, 0u8);
    let len = BASE64.decode_slice(key, buffer).ok()?;
    let buffer: &'i [u8] = buffer;
    (len > 0).then(|| &buffer[..len])
}

/// Splits the first token off a line.
#[inline]
fn first(args: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut words = Words(args);
    let word = words.next()?;
    Some((word, &words.0[skip_spaces(words.0)..]))
}

/// `mg KEY FLAG…`.
pub(super) fn get<'i>(line: CommandLine<'i>, cx: Context<'_, 'i>) -> Step<'i> {
    let mut r = Request::new();
    if let Err(bytes) = r.read(line.args, cx) {
        return Step::frame(line.len, bytes);
    }
    let verb = Verb::Get(Get {
        touch: r.touch,
        vivify: r.vivify.map(|deadline| Vivify {
            deadline,
            new_cas: r.new_cas,
        }),
        recache_below_ms: r.recache_below_ms,
        claim_stale: true,
        quiet: r.no_bump,
        any_kind: false,
    });
    let tally = if r.touch.is_some() {
        Tally::Gat
    } else {
        Tally::Get
    };
    r.step(line.len, Command::MetaGet, tally, verb)
}

/// `md KEY FLAG…`.
pub(super) fn delete<'i>(line: CommandLine<'i>, cx: Context<'_, 'i>) -> Step<'i> {
    let mut r = Request::new();
    if let Err(bytes) = r.read(line.args, cx) {
        return Step::frame(line.len, bytes);
    }
    let verb = Verb::Delete(Delete {
        compare_cas: r.compare_cas,
        mark_stale: r.invalidate,
        drop_value: r.drop_value,
        touch: r.touch,
        new_cas: r.new_cas,
    });
    r.step(line.len, Command::MetaDelete, Tally::Delete, verb)
}

/// `ma KEY FLAG…`.
pub(super) fn arith<'i>(line: CommandLine<'i>, cx: Context<'_, 'i>) -> Step<'i> {
    let mut r = Request::new();
    if let Err(bytes) = r.read(line.args, cx) {
        return Step::frame(line.len, bytes);
    }
    let tally = match r.mode {
        0 | b'I' | b'+' => Tally::Incr,
        b'D' | b'-' => Tally::Decr,
        _ => {
            return Step::frame(line.len, reply::META_BAD_ARITH_MODE);
        }
    };
    let verb = Verb::Arith(Arith {
        delta: r.delta,
        decrement: tally == Tally::Decr,
        // Zero means no comparison, as in memcached.
        compare_cas: r.compare_cas.filter(|cas| *cas != 0),
        new_cas: r.new_cas,
        touch: r.touch,
        vivify: r.vivify.map(|deadline| (r.initial, deadline)),
    });
    r.step(line.len, Command::MetaArith, tally, verb)
}

/// `me KEY [b]`.
pub(super) fn debug<'i>(line: CommandLine<'i>, cx: Context<'_, 'i>) -> Step<'i> {
    let consumed = line.len;
    let keys = first(line.args).and_then(|(sent_key, rest)| {
        let key = legal_key(sent_key)?;
        let binary = Words(rest).next() == Some(b"b");
        Some((
            sent_key,
            if binary {
                decode(key, cx.scratch)?
            } else {
                key
            },
        ))
    });
    let Some((sent_key, key)) = keys else {
        return Step::frame(consumed, reply::BAD_FORMAT);
    };
    let verb = Verb::Get(Get {
        any_kind: false,
        ..Get::QUIET
    });
    let encoder = ReplyEncoder::meta(Command::MetaDebug, Tally::None, sent_key, b"", Bits::NONE);
    Step::op(consumed, key, verb, encoder)
}

/// `ms KEY LENGTH FLAG…` and its data.
pub(super) fn set<'i>(codec: &mut Codec, line: CommandLine<'i>, cx: Context<'_, 'i>) -> Step<'i> {
    let fields = first(line.args).and_then(|(key, rest)| {
        let (length, text) = first(rest)?;
        Some((key, data_length(length)?, text))
    });
    let Some((key, length, text)) = fields else {
        return Step::frame(line.len, reply::BAD_FORMAT);
    };
    let mut request = Request::new();
    let mode = match request
        .read_flags(key, text, 3, cx)
        .and_then(|()| store_mode(&request))
    {
        Ok(mode) => mode,
        Err(bytes) => {
            codec.swallow(length as u64 + 2);
            return Step::frame(line.len, bytes);
        }
    };
    if is_too_large(request.key.len(), request.client_flags, length, cx.limits) {
        return refuse(codec, line.len, length, &request, Refused::TooLarge);
    }
    match data(line.input, line.len, length, cx.missing) {
        Data::Refused => refuse(codec, line.len, length, &request, Refused::NoRoom),
        Data::Partial(need) => Step::Incomplete { need },
        Data::Bad => Step::frame(line.len + length + 2, reply::BAD_DATA_CHUNK),
        Data::Value(value) => stored((line.len, length), &request, mode, value),
    }
}

/// The store mode that the mode flag of a meta set selects.
fn store_mode(request: &Request<'_>) -> Result<StoreMode, Refusal> {
    Ok(match request.mode {
        0 | b'S' => StoreMode::Set,
        b'E' => StoreMode::Add,
        b'A' => StoreMode::Append,
        b'P' => StoreMode::Prepend,
        b'R' => StoreMode::Replace,
        _ => return Err(reply::META_BAD_SET_MODE),
    })
}

/// Refuses a meta set: its data is discarded, and the old item is removed.
#[cold]
fn refuse<'i>(
    codec: &mut Codec,
    consumed: usize,
    length: usize,
    request: &Request<'i>,
    refused: Refused,
) -> Step<'i> {
    codec.swallow(length as u64 + 2);
    let encoder = ReplyEncoder::classic(refused.command(), request.sent_key, false);
    Step::op(
        consumed,
        request.key,
        Verb::Delete(Delete::default()),
        encoder,
    )
}

/// The operation of a meta set whose data has arrived, given the lengths of the line and the value.
fn stored<'i>(
    (line_len, length): (usize, usize),
    request: &Request<'i>,
    mode: StoreMode,
    value: &'i [u8],
) -> Step<'i> {
    let appending = matches!(mode, StoreMode::Append | StoreMode::Prepend);
    let (mode, compare_cas) = match (mode, request.compare_cas) {
        // A comparison already implies that the item exists.
        (StoreMode::Set | StoreMode::Replace, Some(cas)) => (StoreMode::Set, Some(cas)),
        // An item that must be absent has no cas value to compare with.
        (StoreMode::Add, _) => (StoreMode::Add, None),
        (mode, cas) => (mode, cas.filter(|cas| *cas != 0)),
    };
    let tally = if compare_cas.is_some() {
        Tally::Cas
    } else {
        Tally::Store
    };
    let verb = Verb::Store(Store {
        mode,
        value,
        client_flags: request.client_flags,
        deadline: request.touch.unwrap_or(Deadline::NEVER),
        compare_cas,
        stale_if_older: request.invalidate && !appending && compare_cas.is_some(),
        new_cas: request.new_cas,
        vivify: request.vivify.filter(|_| appending),
    });
    let encoder = request
        .encoder(Command::MetaSet, tally)
        .storing(length as u32, appending);
    Step::op(line_len + length + 2, request.key, verb, encoder)
}
