//! The state of one connection, and the framing of its input.

use bumpalo::Bump;
use corewise_ops::{Deadline, Get, Now, StoreMode, Verb};

use super::Step;
use super::admin;
use super::binary;
use super::classic::{self, Storage};
use super::meta;
use super::reply;
use super::reply_encoder::{Command, ReplyEncoder};
use super::scan::{exptime_token, find_space, short_digits, skip_spaces, token_end};
use super::time::deadline;
use super::{MAX_COMMAND_LINE, MAX_KEY_LEN, VERSION_LINE};
use crate::step::{Announced, Tally};

/// The limits and options of a server, the same for all its connections.
///
/// ```
/// use corewise_wire::memcached::Limits;
/// let limits = Limits { max_item_size: 2 << 20, ..Limits::default() };
/// assert_eq!(limits.max_line, 1 << 20);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest item in bytes, including the key and memcached's header (48 to 60 bytes). Larger
    /// stores are refused. memcached's `-I`; 1 MiB by default.
    pub max_item_size: usize,
    /// Longest line of a multiget in bytes; 1 MiB by default. For other lines see
    /// [`MAX_COMMAND_LINE`].
    pub max_line: usize,
    /// Whether `flush_all` is enabled (memcached's `-F` disables it).
    pub flush_enabled: bool,
    /// Whether `shutdown` is enabled (memcached's `-A` enables it).
    pub shutdown_enabled: bool,
    /// Whether items have a cas value (memcached's `-C` disables it); it counts eight bytes towards
    /// [`Limits::max_item_size`].
    pub cas_enabled: bool,
    /// Whether keys may be dumped (memcached's `-X` disables it).
    pub dump_enabled: bool,
    /// The highest size class; commands that name a higher one are refused. memcached has 63.
    pub size_classes: u32,
    /// The reply to `version`, line break included.
    pub version: &'static [u8],
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_item_size: 1 << 20,
            max_line: 1 << 20,
            flush_enabled: true,
            shutdown_enabled: false,
            cas_enabled: true,
            dump_enabled: true,
            size_classes: 63,
            version: VERSION_LINE,
        }
    }
}

/// The codec's position in its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Before the first byte, which determines the protocol.
    First,
    /// At the start of a line.
    Line,
    /// Inside data to discard, `rest` bytes of it.
    Swallow,
    /// Inside the keys of a multiget, `rest` bytes before its end.
    Keys,
}

/// The state of one connection.
///
/// A plain value: copy it before a step, and restore the copy to undo the step.
///
/// ```
/// # use bumpalo::Bump;
/// # use corewise_ops::Now;
/// use corewise_wire::memcached::{Codec, Limits, Step};
/// # let now = Now::new(1, 1);
/// # let (limits, scratch) = (Limits::default(), Bump::new());
/// let input = b"get a b\r\n";
/// let mut codec = Codec::new(false);
/// let Step::Op { consumed, key: b"a", .. } = codec.next(input, &limits, now, &scratch)
/// else { panic!() };
/// // One key at a time; the server may stop between any two.
/// let Step::Op { key: b"b", .. } = codec.next(&input[consumed..], &limits, now, &scratch)
/// else { panic!() };
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Codec {
    /// Remaining bytes of data to discard or of a multiget's line.
    rest: u64,
    /// The deadline that a `gat` gives to every key.
    deadline: Deadline,
    /// Bytes of the current unfinished line that are known to hold no line break.
    scanned: u32,
    mode: Mode,
    /// The command of the multiget.
    command: Command,
    authenticated: bool,
}

const _: () = assert!(size_of::<Codec>() <= 32);

/// A complete line, cut at the end of its first token.
#[derive(Clone, Copy)]
pub(super) struct CommandLine<'i> {
    /// All unread input, this line included.
    pub(super) input: &'i [u8],
    /// The line without its line break.
    pub(super) text: &'i [u8],
    /// The first token.
    pub(super) word: &'i [u8],
    /// The text after the first token.
    pub(super) args: &'i [u8],
    /// Length of the line with its line break.
    pub(super) len: usize,
}

/// Why there is no complete line.
enum NoLine {
    /// Its end has not arrived.
    Unfinished,
    /// It is too long; close the connection with this reply.
    TooLong(&'static [u8]),
}

/// Parameters of every parser.
#[derive(Clone, Copy)]
pub(super) struct Context<'c, 'i> {
    pub(super) limits: &'c Limits,
    pub(super) now: Now,
    pub(super) scratch: &'i Bump,
    pub(super) missing: Missing,
}

/// What to do with a store whose data is not in the input.
#[derive(Clone, Copy)]
pub(super) enum Missing {
    /// Wait for the data.
    Awaited,
    /// Refuse the store: there is no memory to wait for the data.
    Refused,
    /// Proceed as if the data were there: the caller has the value, and these two bytes followed
    /// it.
    Apart([u8; 2]),
}

impl Codec {
    /// The state of a new connection.
    #[must_use]
    pub fn new(authentication_required: bool) -> Self {
        Self {
            rest: 0,
            deadline: Deadline::NEVER,
            scanned: 0,
            mode: Mode::First,
            command: Command::Get,
            authenticated: !authentication_required,
        }
    }

    /// Call this when the credentials were right: every command is accepted from now on.
    pub fn set_authenticated(&mut self) {
        self.authenticated = true;
    }

    /// Whether commands are accepted.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.authenticated
    }

    /// Whether data to discard has yet to arrive.
    #[inline]
    #[must_use]
    pub fn is_swallowing(&self) -> bool {
        self.mode == Mode::Swallow
    }

    /// Parses the unread `input` and returns what to do with its first bytes.
    ///
    /// Pure except for the state in `self`: no I/O, and no allocation other than base64 keys in
    /// `scratch`, which the caller may reset once the operations were submitted and their replies
    /// printed. After [`Step::Incomplete`] the next call must see the same bytes with more behind
    /// them.
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
        // The search of a line seen before resumes where it stopped.
        let plain = self.mode == Mode::Line && self.scanned == 0 && self.authenticated;
        // The two commands that make up most traffic, in their simplest form. Their steps are built
        // here and not passed through other functions, because they are large.
        match input.first_chunk::<4>() {
            Some(b"get ") if plain => {
                if let Some(key) = fast_get(input) {
                    return Step::op(
                        4 + key.len() + 2,
                        key,
                        Verb::Get(Get::default()),
                        ReplyEncoder::get(Command::Get, Tally::Get, key, true),
                    );
                }
            }
            Some(b"set ") if plain => {
                if let Some((storage, line_len)) = fast_set(input) {
                    return self.storage(input, line_len, storage, cx);
                }
            }
            _ => {}
        }
        self.general(input, cx)
    }

    /// Gives up the unfinished request at the start of `input`. Call it instead of
    /// [`next`](Self::next) after a [`Step::Incomplete`], when there is no memory to hold the rest.
    ///
    /// The reply to a store is [`reply::OUT_OF_MEMORY_READING`], its data is discarded as it
    /// arrives, and a `set` or `ms` removes the old item, all as if it were over the size limit.
    /// The reply to an unfinished line is the same, and the connection is closed: it is unknown
    /// what follows the line.
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
        match self.general(input, cx) {
            Step::Incomplete { .. } => Step::Close {
                reply: reply::OUT_OF_MEMORY_READING,
            },
            step => step,
        }
    }

    /// The store at the start of `input`, if [`next`](Self::next) has returned [`Step::Incomplete`]
    /// and only the store's data is missing. The caller may then receive the value elsewhere and
    /// continue with [`next_apart`](Self::next_apart).
    ///
    /// `None` also for `append` and `prepend`, whose value is only a part of the item's, and for
    /// credentials.
    #[must_use]
    pub fn announced<'i>(
        &self,
        input: &'i [u8],
        limits: &Limits,
        now: Now,
        scratch: &'i Bump,
    ) -> Option<Announced<'i>> {
        if !matches!(self.mode, Mode::First | Mode::Line) || !self.authenticated {
            return None;
        }
        let line_len = memchr::memchr(b'\n', input)? + 1;
        let mut copy = *self;
        let step = copy.next_apart(&input[..line_len], *b"\r\n", limits, now, scratch);
        let Step::Op {
            consumed,
            key,
            verb: Verb::Store(store),
            ..
        } = step
        else {
            return None;
        };
        if matches!(store.mode, StoreMode::Append | StoreMode::Prepend) || consumed <= input.len() {
            return None;
        }
        Some(Announced {
            line_len,
            value_len: consumed - line_len - 2,
            end_len: 2,
            key,
            client_flags: store.client_flags,
        })
    }

    /// Returns what [`next`](Self::next) would for `line` and its data, which the caller has
    /// received separately: a value of the length that the line [announced](Self::announced), and
    /// `end`, the two bytes that followed it.
    ///
    /// There are two differences. The value of the operation is empty, and `consumed` includes the
    /// data, although it is not in the input.
    #[cold]
    pub fn next_apart<'i>(
        &mut self,
        line: &'i [u8],
        end: [u8; 2],
        limits: &Limits,
        now: Now,
        scratch: &'i Bump,
    ) -> Step<'i> {
        let cx = Context {
            limits,
            now,
            scratch,
            missing: Missing::Apart(end),
        };
        self.general(line, cx)
    }

    /// Handles any state and any command.
    fn general<'i>(&mut self, input: &'i [u8], cx: Context<'_, 'i>) -> Step<'i> {
        match self.mode {
            Mode::First => self.first(input, cx),
            Mode::Swallow => self.swallowed(input),
            Mode::Keys => self.next_key(input, 0),
            Mode::Line => match self.line(input, cx.limits) {
                Err(NoLine::Unfinished) => Step::Incomplete {
                    need: input.len() + 1,
                },
                Err(NoLine::TooLong(reply)) => Step::Close { reply },
                Ok(line) if self.authenticated => self.command(line, cx),
                Ok(line) => admin::authenticate(self, line),
            },
        }
    }

    /// Handles the beginning of a connection.
    #[cold]
    fn first<'i>(&mut self, input: &'i [u8], cx: Context<'_, 'i>) -> Step<'i> {
        match input.first() {
            None => Step::Incomplete { need: 1 },
            Some(&binary::REQUEST) => binary::request(input),
            Some(_) => {
                self.mode = Mode::Line;
                self.general(input, cx)
            }
        }
    }

    /// Discards the data at hand, up to the amount to discard.
    fn swallowed<'i>(&mut self, input: &[u8]) -> Step<'i> {
        if input.is_empty() {
            return Step::Incomplete { need: 1 };
        }
        let consumed = self.rest.min(input.len() as u64);
        self.rest -= consumed;
        if self.rest == 0 {
            self.mode = Mode::Line;
        }
        Step::Skip {
            consumed: consumed as usize,
        }
    }

    /// Sets `len` bytes of data to be discarded before the next line.
    pub(super) fn swallow(&mut self, len: u64) {
        self.rest = len;
        self.mode = Mode::Swallow;
    }

    /// Finds the line at the start of `input`.
    fn line<'i>(&mut self, input: &'i [u8], limits: &Limits) -> Result<CommandLine<'i>, NoLine> {
        let from = input.len().min(self.scanned as usize);
        let found = memchr::memchr(b'\n', &input[from..]).map(|at| from + at);
        let seen = found.unwrap_or(input.len());
        if seen > MAX_COMMAND_LINE {
            if !self.authenticated || !is_multiget(input) {
                return Err(NoLine::TooLong(b""));
            }
            if seen > limits.max_line {
                return Err(NoLine::TooLong(reply::OUT_OF_MEMORY_READING));
            }
        }
        let Some(end) = found else {
            self.scanned = u32::try_from(input.len()).unwrap_or(u32::MAX);
            return Err(NoLine::Unfinished);
        };
        self.scanned = 0;
        let cr = usize::from(end > 1 && input[end - 1] == b'\r');
        let text = &input[..end - cr];
        let rest = &text[skip_spaces(text)..];
        let (word, args) = rest.split_at(find_space(rest));
        Ok(CommandLine {
            input,
            text,
            word,
            args,
            len: end + 1,
        })
    }

    /// Parses one command line of an authenticated connection.
    fn command<'i>(&mut self, line: CommandLine<'i>, cx: Context<'_, 'i>) -> Step<'i> {
        match line.word {
            b"mg" => meta::get(line, cx),
            b"ms" => meta::set(self, line, cx),
            b"md" => meta::delete(line, cx),
            b"ma" => meta::arith(line, cx),
            b"me" => meta::debug(line, cx),
            b"mn" => Step::frame(line.len, reply::META_NOOP),
            b"get" => self.multiget(line, Command::Get),
            b"gets" => self.multiget(line, Command::Gets),
            b"gat" => self.get_and_touch(line, Command::Gat, cx.now),
            b"gats" => self.get_and_touch(line, Command::Gats, cx.now),
            b"set" => classic::store(self, line, Command::Set, cx),
            b"add" => classic::store(self, line, Command::Add, cx),
            b"replace" => classic::store(self, line, Command::Replace, cx),
            b"append" => classic::store(self, line, Command::Append, cx),
            b"prepend" => classic::store(self, line, Command::Prepend, cx),
            b"cas" => classic::store(self, line, Command::Cas, cx),
            b"delete" => classic::delete(line),
            b"incr" => classic::arith(line, Command::Incr),
            b"decr" => classic::arith(line, Command::Decr),
            b"touch" => classic::touch(line, cx.now),
            _ => admin::command(line, cx),
        }
    }

    /// `get KEY…`, `gets KEY…`.
    fn multiget<'i>(&mut self, line: CommandLine<'i>, command: Command) -> Step<'i> {
        self.deadline = Deadline::NEVER;
        if skip_spaces(line.args) == line.args.len() {
            return Step::frame(line.len, reply::ERROR);
        }
        self.keys(line, line.args, command)
    }

    /// `gat EXPTIME KEY…`, `gats EXPTIME KEY…`.
    fn get_and_touch<'i>(&mut self, line: CommandLine<'i>, command: Command, now: Now) -> Step<'i> {
        let consumed = line.len;
        let text = &line.args[skip_spaces(line.args)..];
        let (exptime, keys) = text.split_at(find_space(text));
        if exptime.is_empty() {
            return Step::frame(consumed, reply::ERROR);
        }
        let Some(exptime_s) = exptime_token(exptime) else {
            return Step::frame(consumed, reply::BAD_EXPTIME);
        };
        if skip_spaces(keys) == keys.len() {
            return Step::frame(consumed, reply::END);
        }
        self.deadline = deadline(exptime_s, now);
        self.keys(line, keys, command)
    }

    /// Checks all keys of a multiget, then returns the first.
    fn keys<'i>(&mut self, line: CommandLine<'i>, keys: &'i [u8], command: Command) -> Step<'i> {
        if has_long_key(keys) {
            return Step::frame(line.len, reply::BAD_FORMAT);
        }
        self.command = command;
        self.mode = Mode::Keys;
        self.rest = line.len as u64;
        let start = line.text.len() - keys.len();
        self.next_key(line.input, start + skip_spaces(keys))
    }

    /// Returns the key at `start` of a multiget of which `self.rest` bytes are left.
    #[inline]
    fn next_key<'i>(&mut self, input: &'i [u8], start: usize) -> Step<'i> {
        let len = self.rest as usize;
        let Some(line) = input.get(..len) else {
            return Step::Incomplete { need: len };
        };
        let end = match line {
            [.., b'\r', b'\n'] => len - 2,
            _ => len.saturating_sub(1),
        };
        let tail = line.get(start..end).unwrap_or(b"");
        let (key, tail) = tail.split_at(find_space(tail));
        let next = end - tail.len() + skip_spaces(tail);
        let last = next == end;
        let consumed = if last { len } else { next };
        self.rest -= consumed as u64;
        if last {
            self.mode = Mode::Line;
        }
        let (touch, tally) = match self.command {
            Command::Gat | Command::Gats => (Some(self.deadline), Tally::Gat),
            _ => (None, Tally::Get),
        };
        let verb = Verb::Get(Get {
            touch,
            ..Get::default()
        });
        Step::op(
            consumed,
            key,
            verb,
            ReplyEncoder::get(self.command, tally, key, last),
        )
    }
}

/// The key of `get KEY\r\n`.
#[inline]
fn fast_get(input: &[u8]) -> Option<&[u8]> {
    let key = fast_key(input)?;
    input[4 + key.len()..].starts_with(b"\r\n").then_some(key)
}

/// `set KEY DIGITS DIGITS DIGITS[ noreply]\r\n`, and the length of the line.
#[inline]
fn fast_set(input: &[u8]) -> Option<(Storage<'_>, usize)> {
    let key = fast_key(input)?;
    let mut at = 4 + key.len();
    let mut numbers = [0; 3];
    for number in &mut numbers {
        if input.get(at) != Some(&b' ') {
            return None;
        }
        let (value, digits) = short_digits(&input[at + 1..])?;
        *number = value;
        at += 1 + digits;
    }
    let (line_len, noreply) = match &input[at..] {
        [b'\r', b'\n', ..] => (at + 2, false),
        tail if tail.starts_with(b" noreply\r\n") => (at + 10, true),
        _ => return None,
    };
    if numbers[2] > classic::MAX_LENGTH {
        return None;
    }
    let storage = Storage {
        command: Command::Set,
        key,
        client_flags: u32::try_from(numbers[0]).ok()?,
        exptime_s: numbers[1] as i32,
        length: numbers[2] as usize,
        compare_cas: None,
        noreply,
    };
    Some((storage, line_len))
}

/// The key after a command word of three letters, if its length is legal.
#[inline]
fn fast_key(input: &[u8]) -> Option<&[u8]> {
    let window = &input[4..input.len().min(4 + MAX_KEY_LEN + 1)];
    let len = token_end(window);
    (1..=MAX_KEY_LEN).contains(&len).then(|| &window[..len])
}

/// Whether a long line may be a multiget: the command word, after at most a hundred blanks.
fn is_multiget(input: &[u8]) -> bool {
    let blanks = skip_spaces(&input[..input.len().min(101)]);
    let text = &input[blanks..];
    blanks <= 100
        && [&b"get "[..], b"gets ", b"gat ", b"gats "]
            .iter()
            .any(|word| text.starts_with(word))
}

/// Whether any token is longer than a key may be. Searches backwards for one blank in every 250
/// bytes or so, and does not read every byte.
fn has_long_key(keys: &[u8]) -> bool {
    let mut rest = keys;
    while rest.len() > MAX_KEY_LEN {
        match memchr::memrchr(b' ', &rest[..=MAX_KEY_LEN]) {
            Some(at) => rest = &rest[at + 1..],
            None => return true,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Now = Now::new(5_000, 1_800_000_000);

    /// Requests near the limits of what the fast paths accept.
    fn request() -> impl Strategy<Value = String> {
        let number = "(0|7|12|-1|4294967296|99999999999|1x|)";
        let tail = "(\r\n|\n| \r\n| noreply\r\n| noreply\n|\r| noreply|)";
        let key = "([a-z\t]{0,12}|[a-z]{248,253}|a b|\r)";
        let gap = "( | |  )";
        let pattern = |text: String| proptest::string::string_regex(&text).expect("a pattern");
        let numbers = format!("{gap}{number}{gap}{number}{gap}{number}");
        prop_oneof![
            pattern(format!("get{gap}{key}{tail}")),
            pattern(format!("set{gap}{key}{numbers}{tail}[a-c]{{0,9}}\\r?\\n?")),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn short_cuts_change_nothing(request in request(), behind in "[a-z\r\n ]{0,4}") {
            let input = format!("{request}{behind}");
            let (limits, scratch) = (Limits::default(), Bump::new());
            let mut quick = Codec::new(false);
            quick.mode = Mode::Line;
            let mut slow = quick;
            let cx = Context { limits: &limits, now: NOW, scratch: &scratch, missing: Missing::Awaited };
            let fast = quick.next(input.as_bytes(), &limits, NOW, &scratch);
            let general = slow.general(input.as_bytes(), cx);
            prop_assert_eq!(format!("{fast:?}"), format!("{general:?}"));
        }
    }

    #[test]
    fn long_keys_are_found_wherever_they_stand() {
        let long = "k".repeat(MAX_KEY_LEN + 1);
        let legal = &long[1..];
        assert!(!has_long_key(b""));
        assert!(!has_long_key(legal.as_bytes()));
        assert!(has_long_key(long.as_bytes()));
        for before in 0..600 {
            let keys = format!("{} {long}", "ab ".repeat(before));
            assert!(has_long_key(keys.as_bytes()));
            let keys = format!("{}{legal} {legal}", " ".repeat(before));
            assert!(!has_long_key(keys.as_bytes()));
            let keys = format!("{}{long} x", " ".repeat(before));
            assert!(has_long_key(keys.as_bytes()));
        }
    }
}
