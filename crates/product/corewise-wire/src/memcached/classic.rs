//! The classic commands except the multigets, which [`codec`](super::codec) handles.

use corewise_ops::{Arith, Delete, Get, Now, Store, StoreMode, Verb};

use super::MAX_KEY_LEN;
use super::Step;
use super::codec::{Codec, CommandLine, Context, Limits, Missing};
use super::reply;
use super::reply_encoder::{Command, ReplyEncoder};
use super::scan::{Args, exptime_token, u32_token, u64_token};
use super::time::deadline;

/// Longest value that a line may announce: memcached adds two to it in an `int`.
pub(super) const MAX_LENGTH: u64 = i32::MAX as u64 - 2;

/// memcached's item header and the end of the key; the two bytes after the value count too.
const ITEM_OVERHEAD: usize = 48 + 1 + 2;

/// A storage command whose line was valid.
#[derive(Clone, Copy)]
pub(super) struct Storage<'i> {
    pub(super) command: Command,
    pub(super) key: &'i [u8],
    pub(super) client_flags: u32,
    pub(super) exptime_s: i32,
    pub(super) length: usize,
    pub(super) compare_cas: Option<u64>,
    pub(super) noreply: bool,
}

/// Whether an item of this shape is over the limit, counted as memcached does.
pub(super) fn is_too_large(key_len: usize, client_flags: u32, length: usize, l: &Limits) -> bool {
    let flags = if client_flags == 0 { 0 } else { 4 };
    key_len + flags + length > l.max_payload()
}

impl Limits {
    /// The most bytes of key, value and client flags (4, or 0 if they are 0) that an item within
    /// [`Limits::max_item_size`] has.
    #[must_use]
    pub fn max_payload(&self) -> usize {
        let cas = if self.cas_enabled { 8 } else { 0 };
        self.max_item_size.saturating_sub(ITEM_OVERHEAD + cas)
    }
}

/// The length of a data block, if memcached would accept it.
pub(super) fn data_length(token: &[u8]) -> Option<usize> {
    u64_token(token)
        .filter(|len| *len <= MAX_LENGTH)
        .map(|len| len as usize)
}

/// Why the data of a store is refused.
#[derive(Clone, Copy)]
pub(super) enum Refused {
    /// The item would be over the limit.
    TooLarge,
    /// There is no memory to wait for it.
    NoRoom,
}

impl Refused {
    /// The reply of a command that does not change the old item.
    fn reply(self) -> &'static [u8] {
        match self {
            Self::TooLarge => reply::TOO_LARGE,
            Self::NoRoom => reply::OUT_OF_MEMORY_READING,
        }
    }

    /// The command that stands for a refused store that removes the old item.
    pub(super) fn command(self) -> Command {
        match self {
            Self::TooLarge => Command::StoreRefused,
            Self::NoRoom => Command::StoreUnread,
        }
    }
}

/// The data block after a line.
pub(super) enum Data<'i> {
    /// Incomplete: this many bytes of input are needed.
    Partial(usize),
    /// Incomplete, and there is no memory to wait for it.
    Refused,
    /// Not followed by a line break.
    Bad,
    /// The value; empty if it is not in the input.
    Value(&'i [u8]),
}

/// Splits `length` bytes and their line break off the input.
#[inline]
pub(super) fn data(input: &[u8], line_len: usize, length: usize, missing: Missing) -> Data<'_> {
    let end = line_len + length;
    match input.get(line_len..end + 2) {
        None => match missing {
            Missing::Awaited => Data::Partial(end + 2),
            Missing::Refused => Data::Refused,
            Missing::Apart([b'\r', b'\n']) => Data::Value(b""),
            Missing::Apart(_) => Data::Bad,
        },
        Some([value @ .., b'\r', b'\n']) => Data::Value(value),
        Some(_) => Data::Bad,
    }
}

impl Codec {
    /// Handles a storage command whose line of `line_len` bytes was valid.
    #[inline]
    pub(super) fn storage<'i>(
        &mut self,
        input: &'i [u8],
        line_len: usize,
        s: Storage<'i>,
        cx: Context<'_, 'i>,
    ) -> Step<'i> {
        if is_too_large(s.key.len(), s.client_flags, s.length, cx.limits) {
            return self.refuse_store(line_len, s, Refused::TooLarge);
        }
        let consumed = line_len + s.length + 2;
        let value = match data(input, line_len, s.length, cx.missing) {
            Data::Refused => return self.refuse_store(line_len, s, Refused::NoRoom),
            Data::Partial(need) => return Step::Incomplete { need },
            Data::Bad => return Step::answer(consumed, reply::BAD_DATA_CHUNK, s.noreply),
            Data::Value(value) => value,
        };
        let verb = Verb::Store(Store {
            client_flags: s.client_flags,
            deadline: deadline(s.exptime_s, cx.now),
            compare_cas: s.compare_cas,
            ..Store::new(mode(s.command), value)
        });
        let encoder = ReplyEncoder::classic(s.command, s.key, s.noreply);
        Step::op(consumed, s.key, verb, encoder)
    }

    /// Refuses a store: its data is discarded, and a `set` removes the old item.
    #[cold]
    fn refuse_store<'i>(&mut self, line_len: usize, s: Storage<'i>, refused: Refused) -> Step<'i> {
        self.swallow(s.length as u64 + 2);
        if s.command != Command::Set {
            return Step::answer(line_len, refused.reply(), s.noreply);
        }
        Step::op(
            line_len,
            s.key,
            Verb::Delete(Delete::default()),
            ReplyEncoder::classic(refused.command(), s.key, s.noreply),
        )
    }
}

/// The condition of a storage command.
fn mode(command: Command) -> StoreMode {
    match command {
        Command::Add => StoreMode::Add,
        Command::Replace => StoreMode::Replace,
        Command::Append => StoreMode::Append,
        Command::Prepend => StoreMode::Prepend,
        _ => StoreMode::Set,
    }
}

/// `set|add|replace|append|prepend KEY FLAGS EXPTIME LENGTH [noreply]`,
/// `cas KEY FLAGS EXPTIME LENGTH CAS [noreply]`.
pub(super) fn store<'i>(
    codec: &mut Codec,
    line: CommandLine<'i>,
    command: Command,
    cx: Context<'_, 'i>,
) -> Step<'i> {
    let args = Args::split(line.args);
    let wanted = if command == Command::Cas { 5 } else { 4 };
    if args.count != wanted && args.count != wanted + 1 {
        return Step::frame(line.len, reply::ERROR);
    }
    let noreply = args.noreply();
    let Some(length) = data_length(args.get(3)) else {
        return Step::answer(line.len, reply::BAD_FORMAT, noreply);
    };
    match storage_line(command, &args, length) {
        Some(storage) => codec.storage(line.input, line.len, storage, cx),
        None => {
            codec.swallow(length as u64 + 2);
            Step::answer(line.len, reply::BAD_FORMAT, noreply)
        }
    }
}

/// Parses the line of a storage command; `None` if a field is wrong.
fn storage_line<'i>(command: Command, args: &Args<'i>, length: usize) -> Option<Storage<'i>> {
    let cas = match command {
        Command::Cas => Some(u64_token(args.get(4))?),
        _ => None,
    };
    Some(Storage {
        command,
        key: legal_key(args.get(0))?,
        client_flags: u32_token(args.get(1))?,
        exptime_s: exptime_token(args.get(2))?,
        length,
        compare_cas: cas,
        noreply: args.noreply(),
    })
}

/// The key, if its length is legal.
pub(super) fn legal_key(key: &[u8]) -> Option<&[u8]> {
    (1..=MAX_KEY_LEN).contains(&key.len()).then_some(key)
}

/// `delete KEY [0] [noreply]`.
pub(super) fn delete(line: CommandLine<'_>) -> Step<'_> {
    let args = Args::split(line.args);
    let consumed = line.len;
    let noreply = args.count > 1 && args.noreply();
    let zero = args.get(1) == b"0";
    match args.count {
        1 => {}
        2 if zero || noreply => {}
        3 if zero && noreply => {}
        2 | 3 => return Step::answer(consumed, reply::DELETE_USAGE, noreply),
        _ => {
            return Step::frame(consumed, reply::ERROR);
        }
    }
    match legal_key(args.get(0)) {
        None => Step::answer(consumed, reply::BAD_FORMAT, noreply),
        Some(key) => Step::op(
            consumed,
            key,
            Verb::Delete(Delete::default()),
            ReplyEncoder::classic(Command::Delete, key, noreply),
        ),
    }
}

/// `incr|decr KEY DELTA [noreply]`.
pub(super) fn arith(line: CommandLine<'_>, command: Command) -> Step<'_> {
    let args = Args::split(line.args);
    let consumed = line.len;
    if args.count != 2 && args.count != 3 {
        return Step::frame(consumed, reply::ERROR);
    }
    let noreply = args.noreply();
    let Some(key) = legal_key(args.get(0)) else {
        return Step::answer(consumed, reply::BAD_FORMAT, noreply);
    };
    let Some(delta) = u64_token(args.get(1)) else {
        return Step::answer(consumed, reply::BAD_DELTA, noreply);
    };
    let verb = Verb::Arith(Arith {
        decrement: command == Command::Decr,
        ..Arith::new(delta)
    });
    Step::op(
        consumed,
        key,
        verb,
        ReplyEncoder::classic(command, key, noreply),
    )
}

/// `touch KEY EXPTIME [noreply]`.
pub(super) fn touch(line: CommandLine<'_>, now: Now) -> Step<'_> {
    let args = Args::split(line.args);
    let consumed = line.len;
    if args.count != 2 && args.count != 3 {
        return Step::frame(consumed, reply::ERROR);
    }
    let noreply = args.noreply();
    let Some(key) = legal_key(args.get(0)) else {
        return Step::answer(consumed, reply::BAD_FORMAT, noreply);
    };
    let Some(exptime_s) = exptime_token(args.get(1)) else {
        return Step::answer(consumed, reply::BAD_EXPTIME, noreply);
    };
    let verb = Verb::Get(Get::touching(deadline(exptime_s, now)));
    Step::op(
        consumed,
        key,
        verb,
        ReplyEncoder::classic(Command::Touch, key, noreply),
    )
}
