//! What commands make of their requests.

use super::form::{ReplyForm, ReplyShape};
use super::table::Command;
use super::text;
use crate::codec::Parse;
use corewise_ops::{
    Deadline, Decide, Decided, Decision, Delete, Edit, Get, Store, StoreMode, StoreRule, Verb,
};
use corewise_wire::Tally;
use corewise_wire::resp::{Args, Version, parse_integer};

/// A value that becomes at most this long by writing to a part of it may do so in a batch.
const MAX_BATCHED: i64 = 4 << 10;

/// What the arguments of a request mean, or the error that they are answered with.
pub(crate) type Parsed<'i> = Result<Action<'i>, Failure<'i>>;

/// What is to be done for a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action<'i> {
    /// One operation, which may be part of a batch.
    Op(Operation<'i>),
    /// One operation whose cost is that of a whole turn, so that it is executed alone.
    Alone(Operation<'i>),
    /// An operation on each argument. The reply is how many of them found an item.
    Count(fn(&'i [u8]) -> Operation<'i>),
    /// A `GET` of each argument, whose replies form an array.
    GetEach,
    /// The command executes the request itself.
    Call,
}

/// The parts of an error text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure<'i>(pub(crate) [&'i [u8]; 3]);

impl From<&'static str> for Failure<'_> {
    fn from(text: &'static str) -> Self {
        Self([text.as_bytes(), b"", b""])
    }
}

/// One operation for the engine, and the form of its reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation<'i> {
    pub(crate) key: &'i [u8],
    /// What to do with its item.
    pub(crate) verb: Verb<'i>,
    kind: ReplyShape,
    /// What it counts as, if not as its row says.
    tally: Option<Tally>,
}

impl<'i> From<Operation<'i>> for Parsed<'i> {
    #[inline]
    fn from(operation: Operation<'i>) -> Self {
        Ok(Action::Op(operation))
    }
}

impl<'i> Operation<'i> {
    #[inline]
    pub(super) fn new(key: &'i [u8], verb: Verb<'i>, kind: ReplyShape) -> Self {
        Self {
            key,
            verb,
            kind,
            tally: None,
        }
    }

    /// The operation, for arguments with which it does not count as the row says.
    pub(super) fn counting_as(self, tally: Tally) -> Self {
        let tally = Some(tally);
        Self { tally, ..self }
    }

    /// What it counts as, if its row says `of_row`.
    #[inline]
    pub(super) fn tally(&self, of_row: Tally) -> Tally {
        self.tally.unwrap_or(of_row)
    }

    /// The operation if it writes the byte before `end`: alone, unless few bytes come before it.
    pub(super) fn writing_to(self, end: i64) -> Parsed<'i> {
        if end > MAX_BATCHED {
            return Ok(Action::Alone(self));
        }
        self.into()
    }

    /// How to print the outcome, and what to count it as, if the row says `of_row`; and under
    /// which command.
    #[inline]
    pub(super) fn form(&self, command: Command, of_row: Tally, version: Version) -> ReplyForm<'i> {
        ReplyForm {
            key: self.key,
            kind: self.kind,
            version,
            tally: self.tally(of_row),
            command,
            is_part: false,
        }
    }

    /// A look-up that counts as a use of the item.
    #[inline]
    pub(super) fn read(key: &'i [u8], kind: ReplyShape) -> Self {
        Self::new(key, Verb::Get(Get::default()), kind)
    }

    /// A look-up that does not, for items of any kind.
    pub(super) fn peek(key: &'i [u8], kind: ReplyShape) -> Self {
        let get = Get::QUIET;
        Self::new(key, Verb::Get(get), kind)
    }

    /// A look-up that replaces the deadline.
    pub(super) fn touch(key: &'i [u8], deadline: Deadline, kind: ReplyShape) -> Self {
        let get = Get::touching(deadline);
        Self::new(key, Verb::Get(get), kind)
    }

    /// Stores the value; `Append` creates the item if there is none.
    #[inline]
    pub(super) fn store(
        key: &'i [u8],
        value: &'i [u8],
        mode: StoreMode,
        deadline: Deadline,
        kind: ReplyShape,
    ) -> Self {
        let store = Store {
            deadline,
            vivify: (mode == StoreMode::Append).then_some(deadline),
            ..Store::new(mode, value)
        };
        Self::new(key, Verb::Store(store), kind)
    }

    pub(super) fn delete(key: &'i [u8], kind: ReplyShape) -> Self {
        Self::new(key, Verb::Delete(Delete::default()), kind)
    }

    /// An edit with a number and no value.
    pub(super) fn edit(key: &'i [u8], decide: Decide, number: i64, kind: ReplyShape) -> Self {
        let edit = Edit {
            decide,
            value: b"",
            number,
            rule: StoreRule::default(),
            any_kind: false,
        };
        Self::edit_with(key, edit, kind)
    }

    /// The same for items of any kind.
    pub(super) fn of_any_kind(mut self) -> Self {
        match &mut self.verb {
            Verb::Get(get) => get.any_kind = true,
            Verb::Edit(edit) => edit.any_kind = true,
            Verb::Store(_) | Verb::Delete(_) | Verb::Arith(_) => {}
            Verb::Sorted(_) | Verb::Filter(_) => {}
        }
        self
    }

    pub(super) fn edit_with(key: &'i [u8], edit: Edit<'i>, kind: ReplyShape) -> Self {
        Self::new(key, Verb::Edit(edit), kind)
    }
}

/// What an edit does and reports.
pub(super) fn decided(decision: Decision, number: i64) -> Result<Decided, &'static str> {
    Ok(Decided { decision, number })
}

/// The integer that an argument is.
#[inline]
pub(super) fn integer(text: &[u8]) -> Result<i64, Failure<'static>> {
    parse_integer(text).ok_or(text::NOT_AN_INTEGER.into())
}

/// An operation on the argument, or on each if there are several.
pub(super) fn each<'i>(args: Args<'i>, operation: fn(&'i [u8]) -> Operation<'i>) -> Parsed<'i> {
    match (args.len(), { args }.next()) {
        (1, Some(key)) => operation(key).into(),
        _ => Ok(Action::Count(operation)),
    }
}

/// How a time is given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeForm {
    /// In seconds rather than milliseconds.
    pub(super) in_seconds: bool,
    /// Since the Unix epoch rather than from now on.
    pub(super) is_absolute: bool,
}

impl TimeForm {
    pub(super) const SECONDS: Self = Self {
        in_seconds: true,
        is_absolute: false,
    };
    pub(super) const MILLISECONDS: Self = Self {
        in_seconds: false,
        is_absolute: false,
    };
    pub(super) const UNIX_SECONDS: Self = Self {
        in_seconds: true,
        is_absolute: true,
    };
    pub(super) const UNIX_MILLISECONDS: Self = Self {
        in_seconds: false,
        is_absolute: true,
    };

    /// The deadline that a time means; `None` if Redis cannot represent it.
    #[inline]
    pub(super) fn deadline(self, time: i64, parse: &Parse<'_>) -> Option<Deadline> {
        let unix_ms = parse.unix_ms as i64;
        let ms = time.checked_mul(if self.in_seconds { 1000 } else { 1 })?;
        let left = if self.is_absolute {
            ms.saturating_sub(unix_ms)
        } else {
            ms.checked_add(unix_ms)?;
            ms
        };
        Some(if left > 0 {
            Deadline::after_ms(parse.now, left as u64)
        } else {
            Deadline::PAST
        })
    }
}

/// The error for a time that cannot be a deadline.
#[cold]
pub(super) fn invalid_time(command: &'static str) -> Failure<'static> {
    let command = command.as_bytes();
    Failure([b"ERR invalid expire time in '", command, b"' command"])
}
