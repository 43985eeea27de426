//! Encodes replies.

use corewise_ops::{ItemFlags, ItemView, Now, Outcome};

use super::reply;
use super::scan::Words;
use super::time::seconds_left;
use crate::cphash::REPLY_HEADER_LEN;
use crate::step::Tally;

/// The command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// `get`: a value.
    Get,
    /// `gets`: a value and its cas value.
    Gets,
    /// `gat`: a value, with a new time to live.
    Gat,
    /// `gats`: a value and its cas value, with a new time to live.
    Gats,
    /// `set`.
    Set,
    /// `add`.
    Add,
    /// `replace`.
    Replace,
    /// `append`.
    Append,
    /// `prepend`.
    Prepend,
    /// `cas`.
    Cas,
    /// `delete`.
    Delete,
    /// `incr`.
    Incr,
    /// `decr`.
    Decr,
    /// `touch`.
    Touch,
    /// `mg`.
    MetaGet,
    /// `ms`.
    MetaSet,
    /// `md`.
    MetaDelete,
    /// `ma`.
    MetaArith,
    /// `me`.
    MetaDebug,
    /// LOOKUP of [`cphash`](crate::cphash).
    Lookup,
    /// A `set` or `ms` over the size limit: the old item is removed, and the reply is an error
    /// whether there was one or not.
    StoreRefused,
    /// A `set` or `ms` for which there was no memory to read it: as above, with another error.
    StoreUnread,
}

impl Command {
    /// What a command counts as that is no meta command and no multiget.
    #[inline]
    const fn tally(self) -> Tally {
        match self {
            Self::Lookup => Tally::Get,
            Self::Set | Self::Add | Self::Replace | Self::Append | Self::Prepend => Tally::Store,
            Self::Cas => Tally::Cas,
            Self::Delete => Tally::Delete,
            Self::Incr => Tally::Incr,
            Self::Decr => Tally::Decr,
            Self::Touch => Tally::Touch,
            Self::StoreRefused => Tally::Refused,
            Self::StoreUnread => Tally::Unread,
            _ => Tally::None,
        }
    }
}

/// Properties of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bits(u8);

impl Bits {
    pub(super) const NONE: Self = Self(0);
    /// `noreply`, or the meta flag `q`.
    pub(super) const QUIET: Self = Self(1);
    /// The last key of its multiget.
    pub(super) const LAST: Self = Self(2);
    /// The meta flag `v`.
    pub(super) const VALUE: Self = Self(4);
    /// The meta flag `b`.
    pub(super) const BINARY: Self = Self(8);
    /// A meta set that appends or prepends.
    pub(super) const APPENDING: Self = Self(16);

    #[inline]
    pub(super) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[inline]
    fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// Encodes the reply to one operation.
///
/// Borrows the request's bytes: the key as it was sent, and the flags of a meta command.
///
/// ```
/// # use bumpalo::Bump;
/// # use corewise_ops::{Absence, Now, Outcome};
/// # use corewise_wire::Tally;
/// # use corewise_wire::memcached::{Codec, Limits, Step};
/// # let now = Now::new(1, 1);
/// # let (limits, scratch) = (Limits::default(), Bump::new());
/// let request = b"mg k Oabc k v\r\n";
/// let Step::Op { form, .. } = Codec::new(false).next(request, &limits, now, &scratch)
/// else { panic!() };
/// assert_eq!((form.tally(), form.is_meta()), (Tally::Get, true));
///
/// let mut out = Vec::new();
/// form.encode(&Outcome::Missing(Absence::Unknown), now, &mut out);
/// assert_eq!(out, b"EN Oabc kk\r\n");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ReplyEncoder<'i> {
    key: &'i [u8],
    flags: &'i [u8],
    /// Length of the data that came with a meta set.
    length: u32,
    command: Command,
    bits: Bits,
    tally: Tally,
}

/// Room for the fixed parts of a `VALUE` reply: the word, four numbers of at most twenty digits,
/// blanks, line breaks and `END`.
const VALUE_ROOM: usize = 64;

impl<'i> ReplyEncoder<'i> {
    /// One key of a multiget, which counts as `tally`.
    #[inline]
    pub(super) fn get(command: Command, tally: Tally, key: &'i [u8], last: bool) -> Self {
        let bits = if last { Bits::LAST } else { Bits::NONE };
        Self {
            key,
            flags: b"",
            length: 0,
            command,
            bits,
            tally,
        }
    }

    /// Any other classic command.
    #[inline]
    pub(super) fn classic(command: Command, key: &'i [u8], noreply: bool) -> Self {
        let bits = if noreply { Bits::QUIET } else { Bits::NONE };
        Self {
            key,
            flags: b"",
            length: 0,
            command,
            bits,
            tally: command.tally(),
        }
    }

    /// A LOOKUP of [`cphash`](crate::cphash).
    #[inline]
    pub(crate) fn lookup(key: &'i [u8]) -> Self {
        Self::classic(Command::Lookup, key, false)
    }

    /// A command without a reply.
    #[inline]
    pub(crate) fn silent(command: Command, key: &'i [u8]) -> Self {
        Self::classic(command, key, true)
    }

    /// A meta command, which counts as `tally`.
    #[inline]
    pub(super) fn meta(
        command: Command,
        tally: Tally,
        key: &'i [u8],
        flags: &'i [u8],
        bits: Bits,
    ) -> Self {
        Self {
            key,
            flags,
            length: 0,
            command,
            bits,
            tally,
        }
    }

    /// A meta set of `length` bytes.
    #[inline]
    pub(super) fn storing(mut self, length: u32, appending: bool) -> Self {
        self.length = length;
        if appending {
            self.bits = self.bits.with(Bits::APPENDING);
        }
        self
    }

    /// What the operation counts as.
    #[inline]
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Whether it is also counted as a meta command.
    #[inline]
    #[must_use]
    pub fn is_meta(&self) -> bool {
        use Command::{MetaArith, MetaDelete, MetaGet, MetaSet};
        matches!(self.command, MetaGet | MetaSet | MetaDelete | MetaArith)
    }

    /// The key as it was sent: for a meta command with the `b` flag, its base64 form.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &'i [u8] {
        self.key
    }

    /// The bytes of the request that it borrows: the key, and the flags of a meta command.
    #[must_use]
    pub fn borrowed(&self) -> [&'i [u8]; 2] {
        [self.key, self.flags]
    }

    /// The same encoder with copies of what [`borrowed`](Self::borrowed) returns, so that it may
    /// outlive the request.
    #[must_use]
    pub fn with_borrowed<'o>(&self, [key, flags]: [&'o [u8]; 2]) -> ReplyEncoder<'o> {
        ReplyEncoder {
            key,
            flags,
            length: self.length,
            command: self.command,
            bits: self.bits,
            tally: self.tally,
        }
    }

    /// Whether the request asks for no reply to an ordinary outcome (`noreply`, `q`).
    #[inline]
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.bits.has(Bits::QUIET)
    }

    /// Appends the reply, which may be empty, to `out`.
    ///
    /// Reserves once, so it allocates at most once, and only while `out` has not grown to its
    /// working size.
    #[inline]
    pub fn encode(&self, outcome: &Outcome<'_>, now: Now, out: &mut Vec<u8>) {
        match self.command {
            Command::Get | Command::Gets | Command::Gat | Command::Gats => {
                self.encode_get(outcome, out);
            }
            Command::MetaGet
            | Command::MetaSet
            | Command::MetaDelete
            | Command::MetaArith
            | Command::MetaDebug => self.encode_meta(outcome, now, out),
            Command::Lookup => encode_lookup(outcome, out),
            _ if self.is_quiet() => {}
            _ => self.encode_line(outcome, out),
        }
    }

    /// Like [`encode`](Self::encode), but omits the value of an item that was found and the bytes
    /// after it, and returns both, so that a large value need not be copied to be sent. `None` if
    /// the reply contains no value; it is then complete.
    ///
    /// ```
    /// # use bumpalo::Bump;
    /// # use corewise_ops::{Deadline, ItemFlags, ItemKind, ItemView, Now, Outcome};
    /// # use corewise_wire::memcached::{Codec, Limits, Step};
    /// # let now = Now::new(1, 1);
    /// # let (limits, scratch) = (Limits::default(), Bump::new());
    /// # let view = ItemView { key: b"k", value: b"hello", client_flags: 7, cas: 1,
    /// #     deadline: Deadline::NEVER, idle_s: 0, flags: ItemFlags::NONE, footprint: 64,
    /// #     size_class: 1, kind: ItemKind::String };
    /// let Step::Op { form, .. } =
    ///     Codec::new(false).next(b"get k\r\n", &limits, now, &scratch)
    /// else { panic!() };
    /// let mut out = Vec::new();
    /// let (value, tail) = form.encode_parts(&Outcome::Found(view), now, &mut out).unwrap();
    /// assert_eq!(out, b"VALUE k 7 5\r\n");
    /// assert_eq!((value, tail), (&b"hello"[..], &b"\r\nEND\r\n"[..]));
    /// ```
    pub fn encode_parts<'v>(
        &self,
        outcome: &Outcome<'v>,
        now: Now,
        out: &mut Vec<u8>,
    ) -> Option<(&'v [u8], &'static [u8])> {
        match (self.command, outcome) {
            (Command::Get | Command::Gets | Command::Gat | Command::Gats, Outcome::Found(view)) => {
                out.reserve(VALUE_ROOM + self.key.len());
                self.encode_value_head(view, out);
                Some((view.value, self.value_tail()))
            }
            (Command::MetaGet, Outcome::Found(view)) if self.bits.has(Bits::VALUE) => {
                self.reserve(0, out);
                self.encode_hit_head(view, view.value.len(), now, out);
                Some((view.value, reply::LINE_BREAK))
            }
            (Command::Lookup, Outcome::Found(_)) => {
                let (head, value) = lookup_parts(outcome);
                out.extend_from_slice(&head);
                Some((value, b""))
            }
            _ => {
                self.encode(outcome, now, out);
                None
            }
        }
    }

    /// One key of a multiget.
    #[inline]
    fn encode_get(&self, outcome: &Outcome<'_>, out: &mut Vec<u8>) {
        if let Outcome::Found(view) = outcome {
            self.encode_value(view, out);
        } else if self.bits.has(Bits::LAST) {
            out.extend_from_slice(reply::END);
        }
    }

    /// Prints `VALUE key flags length[ cas]`, the value, and `END` after the last value.
    #[inline]
    fn encode_value(&self, view: &ItemView<'_>, out: &mut Vec<u8>) {
        out.reserve(VALUE_ROOM + self.key.len() + view.value.len());
        self.encode_value_head(view, out);
        out.extend_from_slice(view.value);
        out.extend_from_slice(self.value_tail());
    }

    /// Prints the line before a value.
    #[inline]
    fn encode_value_head(&self, view: &ItemView<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"VALUE ");
        out.extend_from_slice(self.key);
        number(b' ', u64::from(view.client_flags), out);
        number(b' ', view.value.len() as u64, out);
        if matches!(self.command, Command::Gets | Command::Gats) {
            number(b' ', view.cas, out);
        }
        out.extend_from_slice(reply::LINE_BREAK);
    }

    /// The bytes after a value.
    #[inline]
    fn value_tail(&self) -> &'static [u8] {
        if self.bits.has(Bits::LAST) {
            b"\r\nEND\r\n"
        } else {
            reply::LINE_BREAK
        }
    }

    /// The classic commands that answer with one line.
    #[inline]
    fn encode_line(&self, outcome: &Outcome<'_>, out: &mut Vec<u8>) {
        if let (Command::Incr | Command::Decr, Outcome::Counter { value, .. }) =
            (self.command, outcome)
        {
            out.extend_from_slice(itoa::Buffer::new().format(*value).as_bytes());
            out.extend_from_slice(b"\r\n");
            return;
        }
        out.extend_from_slice(match self.command {
            Command::StoreRefused => reply::TOO_LARGE,
            Command::StoreUnread => reply::OUT_OF_MEMORY_READING,
            Command::Delete => delete_line(outcome),
            Command::Touch => touch_line(outcome),
            Command::Incr | Command::Decr => arith_line(outcome),
            command => store_line(command, outcome),
        });
    }

    /// Any meta command.
    fn encode_meta(&self, outcome: &Outcome<'_>, now: Now, out: &mut Vec<u8>) {
        let quiet = self.is_quiet();
        match (self.command, outcome) {
            (Command::MetaDebug, Outcome::Found(view)) => self.encode_debug(view, now, out),
            (Command::MetaDebug, _) => out.extend_from_slice(reply::META_MISS),
            (Command::MetaGet, Outcome::Found(view)) => self.encode_hit(view, view.value, now, out),
            (Command::MetaArith, Outcome::Counter { .. }) if quiet => {}
            (Command::MetaArith, Outcome::Counter { value, view }) => {
                let mut digits = itoa::Buffer::new();
                self.encode_hit(view, digits.format(*value).as_bytes(), now, out);
            }
            // A vivify that finds no room is a miss.
            (Command::MetaGet, Outcome::Missing(_) | Outcome::WrongKind | Outcome::OutOfMemory)
                if quiet => {}
            (Command::MetaGet, Outcome::Missing(_) | Outcome::WrongKind | Outcome::OutOfMemory) => {
                self.encode_status(b"EN", None, out);
            }
            (_, Outcome::Stored(_) | Outcome::Deleted) if quiet => {}
            (_, Outcome::Stored(view)) => self.encode_status(b"HD", Some(view), out),
            (_, Outcome::Deleted) => self.encode_status(b"HD", None, out),
            (_, Outcome::Exists) => self.encode_status(b"EX", None, out),
            (_, Outcome::NotStored) => self.encode_status(b"NS", None, out),
            (Command::MetaSet, Outcome::Missing(_) | Outcome::WrongKind)
                if self.bits.has(Bits::APPENDING) =>
            {
                self.encode_status(b"NS", None, out);
            }
            (_, Outcome::Missing(_) | Outcome::WrongKind) => self.encode_status(b"NF", None, out),
            _ => self.encode_failure(outcome, out),
        }
    }

    /// Prints the outcomes that are errors, regardless of the flags.
    #[cold]
    fn encode_failure(&self, outcome: &Outcome<'_>, out: &mut Vec<u8>) {
        let appending = self.bits.has(Bits::APPENDING);
        out.extend_from_slice(match (self.command, outcome) {
            (Command::MetaSet, Outcome::TooLarge | Outcome::OutOfMemory) if appending => {
                return self.encode_status(b"NS", None, out);
            }
            (_, Outcome::TooLarge) => reply::TOO_LARGE,
            (Command::MetaSet, Outcome::OutOfMemory) => reply::OUT_OF_MEMORY_STORING,
            (_, Outcome::OutOfMemory) => reply::OUT_OF_MEMORY,
            (_, Outcome::NonNumeric) => reply::NON_NUMERIC,
            _ => reply::UNHANDLED,
        });
    }

    /// Prints `HD` or `VA`: an item, with the details that the flags request.
    fn encode_hit(&self, view: &ItemView<'_>, value: &[u8], now: Now, out: &mut Vec<u8>) {
        let with_value = self.bits.has(Bits::VALUE);
        self.reserve(if with_value { value.len() } else { 0 }, out);
        self.encode_hit_head(view, value.len(), now, out);
        if with_value {
            out.extend_from_slice(value);
            out.extend_from_slice(reply::LINE_BREAK);
        }
    }

    /// Prints `HD` or `VA` up to the value, which has `len` bytes.
    fn encode_hit_head(&self, view: &ItemView<'_>, len: usize, now: Now, out: &mut Vec<u8>) {
        if self.bits.has(Bits::VALUE) {
            out.extend_from_slice(b"VA");
            number(b' ', len as u64, out);
        } else {
            out.extend_from_slice(b"HD");
        }
        for token in Words(self.flags) {
            self.encode_flag(token, view, now, out);
        }
        if self.command == Command::MetaGet {
            encode_item_flags(view.flags, out);
        }
        out.extend_from_slice(reply::LINE_BREAK);
    }

    /// Prints the reply to one flag of a hit.
    #[inline]
    fn encode_flag(&self, token: &[u8], view: &ItemView<'_>, now: Now, out: &mut Vec<u8>) {
        let get = self.command == Command::MetaGet;
        match token[0] {
            b'k' => self.encode_key(out),
            b'O' => opaque(token, out),
            b'c' => flag(b'c', view.cas, out),
            b't' => match seconds_left(view.deadline, now) {
                Some(seconds) => flag(b't', seconds, out),
                None => out.extend_from_slice(b" t-1"),
            },
            b'f' if get => flag(b'f', u64::from(view.client_flags), out),
            b's' if get => flag(b's', view.value.len() as u64, out),
            b'l' if get => flag(b'l', u64::from(view.idle_s), out),
            b'h' if get => flag(
                b'h',
                u64::from(view.flags.contains(ItemFlags::FETCHED)),
                out,
            ),
            _ => {}
        }
    }

    /// Prints a status, and the flags that can be answered without reading an item; for a meta set
    /// also the cas value and size.
    fn encode_status(&self, status: &[u8; 2], view: Option<&ItemView<'_>>, out: &mut Vec<u8>) {
        let set = self.command == Command::MetaSet;
        self.reserve(0, out);
        out.extend_from_slice(status);
        for token in Words(self.flags) {
            match token[0] {
                b'k' => self.encode_key(out),
                b'O' => opaque(token, out),
                b'c' if set => flag(b'c', view.map_or(0, |v| v.cas), out),
                b's' if set => {
                    let length = view.map_or(self.length as usize, |v| v.value.len());
                    flag(b's', length as u64, out);
                }
                _ => {}
            }
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Prints ` kKEY`, and ` b` if it is base64.
    fn encode_key(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b" k");
        out.extend_from_slice(self.key);
        if self.bits.has(Bits::BINARY) {
            out.extend_from_slice(b" b");
        }
    }

    /// `ME key exp= …`.
    fn encode_debug(&self, view: &ItemView<'_>, now: Now, out: &mut Vec<u8>) {
        out.reserve(160 + self.key.len());
        out.extend_from_slice(b"ME ");
        out.extend_from_slice(self.key);
        match seconds_left(view.deadline, now) {
            Some(seconds) => field(b" exp=", seconds, out),
            None => out.extend_from_slice(b" exp=-1"),
        }
        field(b" la=", u64::from(view.idle_s), out);
        field(b" cas=", view.cas, out);
        let fetched = view.flags.contains(ItemFlags::FETCHED);
        out.extend_from_slice(if fetched { b" fetch=yes" } else { b" fetch=no" });
        field(b" cls=", u64::from(view.size_class), out);
        field(b" size=", view.footprint as u64, out);
        out.extend_from_slice(b"\r\n");
    }

    /// Reserves room for a meta reply: a flag of one letter and a blank becomes at most a blank, a
    /// letter and twenty digits.
    #[inline]
    fn reserve(&self, value_len: usize, out: &mut Vec<u8>) {
        out.reserve(64 + 11 * self.flags.len() + self.key.len() + value_len);
    }
}

/// The reply to a LOOKUP of [`cphash`](crate::cphash): a size and a value. A miss is size 0, and so
/// is a value whose length does not fit, of which there is none.
#[inline]
fn lookup_parts<'v>(outcome: &Outcome<'v>) -> ([u8; REPLY_HEADER_LEN], &'v [u8]) {
    let value = match outcome {
        Outcome::Found(view) => view.value,
        _ => b"",
    };
    match u32::try_from(value.len()) {
        Ok(size) => (size.to_le_bytes(), value),
        Err(_) => (0u32.to_le_bytes(), b""),
    }
}

/// Appends the reply to a LOOKUP.
#[inline]
fn encode_lookup(outcome: &Outcome<'_>, out: &mut Vec<u8>) {
    let (head, value) = lookup_parts(outcome);
    out.reserve(head.len() + value.len());
    out.extend_from_slice(&head);
    out.extend_from_slice(value);
}

/// Prints win token and staleness, in memcached's order.
#[inline]
fn encode_item_flags(flags: ItemFlags, out: &mut Vec<u8>) {
    if flags.contains(ItemFlags::WIN_SENT) {
        out.extend_from_slice(b" Z");
    }
    if flags.contains(ItemFlags::STALE) {
        out.extend_from_slice(b" X");
    }
    if flags.contains(ItemFlags::WON) {
        out.extend_from_slice(b" W");
    }
}

/// ` Oopaque`.
#[inline]
fn opaque(token: &[u8], out: &mut Vec<u8>) {
    out.push(b' ');
    out.extend_from_slice(token);
}

/// Prints a blank, a letter and a number.
#[inline]
fn flag(letter: u8, value: u64, out: &mut Vec<u8>) {
    out.push(b' ');
    number(letter, value, out);
}

/// Prints a name and a number.
fn field(name: &[u8], value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Prints a byte and a number.
#[inline]
fn number(lead: u8, value: u64, out: &mut Vec<u8>) {
    if value < 10 {
        out.extend_from_slice(&[lead, b'0' + value as u8]);
    } else if value < 100 {
        let (tens, ones) = (value as u8 / 10, value as u8 % 10);
        out.extend_from_slice(&[lead, b'0' + tens, b'0' + ones]);
    } else {
        out.push(lead);
        out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }
}

/// The reply to a classic store.
#[inline]
fn store_line(command: Command, outcome: &Outcome<'_>) -> &'static [u8] {
    let appending = matches!(command, Command::Append | Command::Prepend);
    match outcome {
        Outcome::Stored(_) => reply::STORED,
        Outcome::NotStored => reply::NOT_STORED,
        Outcome::Exists => reply::EXISTS,
        Outcome::Missing(_) | Outcome::WrongKind if command == Command::Cas => reply::NOT_FOUND,
        Outcome::Missing(_) | Outcome::WrongKind => reply::NOT_STORED,
        // An item to which nothing can be appended or prepended is unchanged.
        Outcome::TooLarge | Outcome::OutOfMemory if appending => reply::NOT_STORED,
        Outcome::TooLarge => reply::TOO_LARGE,
        Outcome::OutOfMemory => reply::OUT_OF_MEMORY_STORING,
        _ => reply::UNHANDLED,
    }
}

/// The reply to a `delete`.
fn delete_line(outcome: &Outcome<'_>) -> &'static [u8] {
    match outcome {
        Outcome::Deleted => reply::DELETED,
        Outcome::Missing(_) | Outcome::WrongKind => reply::NOT_FOUND,
        _ => reply::UNHANDLED,
    }
}

/// The reply to a `touch`.
fn touch_line(outcome: &Outcome<'_>) -> &'static [u8] {
    match outcome {
        Outcome::Found(_) => reply::TOUCHED,
        Outcome::Missing(_) | Outcome::WrongKind => reply::NOT_FOUND,
        _ => reply::UNHANDLED,
    }
}

/// The reply to an `incr` or `decr` that failed.
fn arith_line(outcome: &Outcome<'_>) -> &'static [u8] {
    match outcome {
        Outcome::Missing(_) | Outcome::WrongKind => reply::NOT_FOUND,
        Outcome::NonNumeric => reply::NON_NUMERIC,
        Outcome::OutOfMemory | Outcome::TooLarge => reply::OUT_OF_MEMORY,
        _ => reply::UNHANDLED,
    }
}
