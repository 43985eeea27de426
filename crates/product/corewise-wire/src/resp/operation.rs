//! Commands that are one operation on one key.

use corewise_ops::{
    Deadline, Decide, Decided, Decision, Delete, Edit, Get, ItemView, Now, Store, StoreMode, Verb,
};

use super::encoder::Version;
use super::form::{Kind, ReplyForm};
use super::number::parse_integer;
use super::request::Args;
use crate::step::Tally;

/// The error text for an item or an argument that is no integer.
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
/// A `SETRANGE` up to this many bytes is an operation; one that may write more is a call, whose
/// limits are checked first.
const MAX_RANGE_END: i64 = 4 << 10;

/// The options of `SET`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetOptions {
    /// When the value is stored: [`StoreMode::Overwrite`], [`StoreMode::Add`] or
    /// [`StoreMode::Replace`].
    pub mode: StoreMode,
    /// The new deadline.
    pub deadline: Deadline,
    /// A present item keeps its deadline.
    pub keeps_deadline: bool,
    /// The reply is the old value.
    pub returns_old: bool,
}

impl Default for SetOptions {
    fn default() -> Self {
        Self {
            mode: StoreMode::Overwrite,
            deadline: Deadline::NEVER,
            keeps_deadline: false,
            returns_old: false,
        }
    }
}

/// One operation for the engine, and the form of its reply.
///
/// The constructors are named after the commands of Redis, and check nothing.
///
/// ```
/// use corewise_ops::Verb;
/// use corewise_wire::resp::CommandOperation;
/// let operation = CommandOperation::incrby(b"n", 5);
/// assert!(matches!((operation.key, operation.verb), (b"n", Verb::Edit(_))));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CommandOperation<'i> {
    /// The key.
    pub key: &'i [u8],
    /// What to do with its item.
    pub verb: Verb<'i>,
    kind: Kind,
    tally: Tally,
}

impl<'i> CommandOperation<'i> {
    /// The operation that a request is, if it is one. `name` is the name of the command in any
    /// case.
    ///
    /// `None` for all other requests: commands on several keys, options that are rare, arguments
    /// that are wrong.
    #[inline]
    pub(super) fn parse(name: &[u8], args: Args<'i>, now: Now) -> Option<Self> {
        match name {
            [b'g' | b'G', b'e' | b'E', b't' | b'T'] => {
                let [key] = exactly(args)?;
                Some(Self::get(key))
            }
            [b's' | b'S', b'e' | b'E', b't' | b'T'] => Self::parse_set(args, now),
            _ => Self::parse_rarer(name, args, now),
        }
    }

    fn parse_rarer(name: &[u8], args: Args<'i>, now: Now) -> Option<Self> {
        const LONGEST: usize = 8; // of the names of these commands
        let mut lower = [0; LONGEST];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        match args.len() {
            1 => {
                let [key] = exactly(args)?;
                Self::of_key(lower, key)
            }
            2 => {
                let [key, argument] = exactly(args)?;
                Self::of_two(lower, key, argument, now)
            }
            3 => {
                let [key, number, value] = exactly(args)?;
                Self::of_three(lower, key, number, value, now)
            }
            _ => None,
        }
    }

    /// A command whose only argument is a key.
    fn of_key(name: &[u8], key: &'i [u8]) -> Option<Self> {
        Some(match name {
            b"incr" => Self::incrby(key, 1),
            b"decr" => Self::incrby(key, -1),
            b"del" | b"unlink" => Self::del(key),
            b"exists" => Self::exists(key),
            b"getdel" => Self::getdel(key),
            b"getex" => Self::get(key),
            b"persist" => Self::persist(key),
            b"pttl" => Self::pttl(key),
            b"strlen" => Self::strlen(key),
            b"touch" => Self::touch(key),
            b"ttl" => Self::ttl(key),
            b"type" => Self::type_of(key),
            _ => return None,
        })
    }

    /// A command with a key and another argument.
    fn of_two(name: &[u8], key: &'i [u8], argument: &'i [u8], now: Now) -> Option<Self> {
        Some(match name {
            b"append" => Self::append(key, argument),
            b"decrby" => Self::incrby(key, parse_integer(argument)?.checked_neg()?),
            b"expire" => Self::expire(key, Unit::Seconds.after(now, argument)?),
            b"getex" if argument.eq_ignore_ascii_case(b"persist") => Self::getex_persist(key),
            b"getset" => Self::getset(key, argument),
            b"incrby" => Self::incrby(key, parse_integer(argument)?),
            b"pexpire" => Self::expire(key, Unit::Milliseconds.after(now, argument)?),
            b"setnx" => Self::setnx(key, argument),
            _ => return None,
        })
    }

    /// A command with a key and two other arguments, most often a number and a value.
    fn of_three(
        name: &[u8],
        key: &'i [u8],
        number: &'i [u8],
        value: &'i [u8],
        now: Now,
    ) -> Option<Self> {
        Some(match name {
            b"getex" => {
                let unit = match number {
                    [b'e' | b'E', b'x' | b'X'] => Unit::Seconds,
                    [b'p' | b'P', b'x' | b'X'] => Unit::Milliseconds,
                    _ => return None,
                };
                Self::getex(key, unit.after(now, value)?)
            }
            b"getrange" | b"substr" => {
                Self::getrange(key, parse_integer(number)?, parse_integer(value)?)
            }
            b"psetex" => Self::set(key, value, Unit::Milliseconds.after(now, number)?),
            b"setex" => Self::set(key, value, Unit::Seconds.after(now, number)?),
            b"setrange" => {
                let offset = parse_integer(number).filter(|offset| *offset >= 0)?;
                let end = offset.checked_add(value.len() as i64)?;
                if end > MAX_RANGE_END {
                    return None;
                }
                Self::setrange(key, offset, value)
            }
            _ => return None,
        })
    }

    /// `SET key value [NX | XX] [GET] [EX s | PX ms | KEEPTTL]`.
    #[inline]
    fn parse_set(mut args: Args<'i>, now: Now) -> Option<Self> {
        let (key, value) = (args.next()?, args.next()?);
        let mut options = SetOptions::default();
        while let Some(option) = args.next() {
            let [first, b'x' | b'X'] = option else {
                options.parse_longer(option)?;
                continue;
            };
            let has_time = options.deadline != Deadline::NEVER || options.keeps_deadline;
            match first.to_ascii_lowercase() {
                b'n' if options.mode == StoreMode::Overwrite => options.mode = StoreMode::Add,
                b'x' if options.mode == StoreMode::Overwrite => options.mode = StoreMode::Replace,
                b'e' if !has_time => options.deadline = Unit::Seconds.after(now, args.next()?)?,
                b'p' if !has_time => {
                    options.deadline = Unit::Milliseconds.after(now, args.next()?)?;
                }
                _ => return None,
            }
        }
        Some(Self::set_with(key, value, options))
    }

    /// How to print the outcome.
    #[inline]
    #[must_use]
    pub fn form(&self, version: Version) -> ReplyForm<'i> {
        ReplyForm::new(self.key, self.kind, self.tally, version)
    }

    #[inline]
    fn new(key: &'i [u8], verb: Verb<'i>, kind: Kind, tally: Tally) -> Self {
        Self {
            key,
            verb,
            kind,
            tally,
        }
    }

    #[inline]
    fn read(key: &'i [u8], kind: Kind) -> Self {
        Self::new(key, Verb::Get(Get::default()), kind, Tally::Get)
    }

    #[inline]
    fn store(
        key: &'i [u8],
        value: &'i [u8],
        mode: StoreMode,
        deadline: Deadline,
        kind: Kind,
    ) -> Self {
        let verb = Verb::Store(Store {
            mode,
            value,
            client_flags: 0,
            deadline,
            compare_cas: None,
            stale_if_older: false,
            new_cas: None,
            vivify: (mode == StoreMode::Append).then_some(deadline),
        });
        Self::new(key, verb, kind, Tally::Store)
    }

    fn quiet(key: &'i [u8], kind: Kind) -> Self {
        let get = Get {
            quiet: true,
            ..Get::default()
        };
        Self::new(key, Verb::Get(get), kind, Tally::Get)
    }

    fn edit(key: &'i [u8], edit: Edit<'i>, kind: Kind, tally: Tally) -> Self {
        Self::new(key, Verb::Edit(edit), kind, tally)
    }

    /// `GET key`.
    #[inline]
    #[must_use]
    pub fn get(key: &'i [u8]) -> Self {
        Self::read(key, Kind::Value)
    }

    /// `GETEX key` with a new deadline.
    #[must_use]
    pub fn getex(key: &'i [u8], deadline: Deadline) -> Self {
        let get = Get {
            touch: Some(deadline),
            ..Get::default()
        };
        Self::new(key, Verb::Get(get), Kind::Value, Tally::Gat)
    }

    /// `STRLEN key`.
    #[must_use]
    pub fn strlen(key: &'i [u8]) -> Self {
        Self::read(key, Kind::Length)
    }

    /// `TOUCH key`.
    #[must_use]
    pub fn touch(key: &'i [u8]) -> Self {
        Self::read(key, Kind::Flag)
    }

    /// `EXISTS key`.
    #[must_use]
    pub fn exists(key: &'i [u8]) -> Self {
        Self::quiet(key, Kind::Flag)
    }

    /// `TYPE key`.
    #[must_use]
    pub fn type_of(key: &'i [u8]) -> Self {
        Self::quiet(key, Kind::Type)
    }

    /// `TTL key`.
    #[must_use]
    pub fn ttl(key: &'i [u8]) -> Self {
        Self::quiet(key, Kind::SecondsLeft)
    }

    /// `PTTL key`.
    #[must_use]
    pub fn pttl(key: &'i [u8]) -> Self {
        Self::quiet(key, Kind::MillisecondsLeft)
    }

    /// `DEL key`, `UNLINK key`.
    #[must_use]
    pub fn del(key: &'i [u8]) -> Self {
        Self::new(
            key,
            Verb::Delete(Delete::default()),
            Kind::Flag,
            Tally::Delete,
        )
    }

    /// `GETEX key PERSIST`.
    #[must_use]
    pub fn getex_persist(key: &'i [u8]) -> Self {
        Self::edit(key, edit(persist, b"", 0), Kind::Old, Tally::Get)
    }

    /// `GETRANGE key start end`: the bytes from `start` to `end`, both included; negative numbers
    /// count from the end.
    #[must_use]
    pub fn getrange(key: &'i [u8], start: i64, end: i64) -> Self {
        let kind = if start < 0 && end < 0 && start > end {
            Kind::Range(1, 0)
        } else {
            // No value is so long that this makes a difference.
            let near = |at: i64| at.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
            Kind::Range(near(start), near(end))
        };
        Self::read(key, kind)
    }

    /// `EXPIRE key` with this deadline.
    #[must_use]
    pub fn expire(key: &'i [u8], deadline: Deadline) -> Self {
        let get = Get {
            touch: Some(deadline),
            ..Get::default()
        };
        Self::new(key, Verb::Get(get), Kind::Flag, Tally::Touch)
    }

    /// `PERSIST key`.
    #[must_use]
    pub fn persist(key: &'i [u8]) -> Self {
        Self::edit(key, edit(persist, b"", 0), Kind::Number, Tally::None)
    }

    /// `SET key value` with a deadline.
    #[inline]
    #[must_use]
    pub fn set(key: &'i [u8], value: &'i [u8], deadline: Deadline) -> Self {
        Self::store(key, value, StoreMode::Overwrite, deadline, Kind::Ok)
    }

    /// `SET key value` with options.
    #[inline]
    #[must_use]
    pub fn set_with(key: &'i [u8], value: &'i [u8], options: SetOptions) -> Self {
        if options.keeps_deadline || options.returns_old {
            return Self::assign(key, value, options);
        }
        let kind = if options.mode == StoreMode::Overwrite {
            Kind::Ok
        } else {
            Kind::OkOrNull
        };
        Self::store(key, value, options.mode, options.deadline, kind)
    }

    /// `SET key value` with an option that depends on the present item.
    fn assign(key: &'i [u8], value: &'i [u8], options: SetOptions) -> Self {
        let (kind, tally) = if options.returns_old {
            (Kind::Old, Tally::GetSet)
        } else {
            (Kind::OkOrNull, Tally::Store)
        };
        Self::edit(key, edit(assign, value, options.to_number()), kind, tally)
    }

    /// `SETNX key value`.
    #[must_use]
    pub fn setnx(key: &'i [u8], value: &'i [u8]) -> Self {
        Self::store(key, value, StoreMode::Add, Deadline::NEVER, Kind::Flag)
    }

    /// `APPEND key value`.
    #[must_use]
    pub fn append(key: &'i [u8], value: &'i [u8]) -> Self {
        Self::store(key, value, StoreMode::Append, Deadline::NEVER, Kind::Length)
    }

    /// `INCRBY key delta`.
    #[must_use]
    pub fn incrby(key: &'i [u8], delta: i64) -> Self {
        Self::edit(key, edit(add, b"", delta), Kind::Number, Tally::None)
    }

    /// `GETSET key value`.
    #[must_use]
    pub fn getset(key: &'i [u8], value: &'i [u8]) -> Self {
        Self::edit(key, edit(replace, value, 0), Kind::Old, Tally::GetSet)
    }

    /// `GETDEL key`.
    #[must_use]
    pub fn getdel(key: &'i [u8]) -> Self {
        Self::edit(key, edit(remove, b"", 0), Kind::Old, Tally::Get)
    }

    /// `SETRANGE key offset value`, where `offset` is not negative.
    #[must_use]
    pub fn setrange(key: &'i [u8], offset: i64, value: &'i [u8]) -> Self {
        Self::edit(key, edit(overlay, value, offset), Kind::Number, Tally::None)
    }
}

impl SetOptions {
    /// The bits of a number for the options beside the deadline, which has the lower 48.
    const KEEPS_DEADLINE: i64 = 1 << 48;
    const IF_ABSENT: i64 = 1 << 49;
    const IF_PRESENT: i64 = 1 << 50;

    /// An option that has more than two letters; `None` if it is none, or has an argument.
    #[cold]
    fn parse_longer(&mut self, option: &[u8]) -> Option<()> {
        if option.eq_ignore_ascii_case(b"get") {
            self.returns_old = true;
        } else if option.eq_ignore_ascii_case(b"keepttl") && self.deadline == Deadline::NEVER {
            self.keeps_deadline = true;
        } else {
            return None;
        }
        Some(())
    }

    /// Everything but `returns_old`, for [`assign`].
    fn to_number(self) -> i64 {
        let condition = match self.mode {
            StoreMode::Add => Self::IF_ABSENT,
            StoreMode::Replace => Self::IF_PRESENT,
            _ => 0,
        };
        let kept = if self.keeps_deadline {
            Self::KEEPS_DEADLINE
        } else {
            0
        };
        self.deadline.to_bits() as i64 | condition | kept
    }
}

/// All arguments, if there are `N`.
#[inline]
fn exactly<'i, const N: usize>(mut args: Args<'i>) -> Option<[&'i [u8]; N]> {
    (args.len() == N).then(|| std::array::from_fn(|_| args.next().unwrap_or(b"")))
}

/// The unit of a time.
#[derive(Clone, Copy)]
enum Unit {
    Seconds,
    Milliseconds,
}

impl Unit {
    /// The deadline after this time; `None` if it is no time from now on. What Redis calls an
    /// invalid time is none either.
    #[inline]
    fn after(self, now: Now, time: &[u8]) -> Option<Deadline> {
        let time = parse_integer(time).filter(|time| *time > 0)?;
        let ms = match self {
            Self::Seconds => time.checked_mul(1000)?,
            Self::Milliseconds => time,
        };
        (ms < i64::MAX / 2).then(|| Deadline::after_ms(now, ms as u64))
    }
}

// ---- edits

fn edit(decide: Decide, value: &[u8], number: i64) -> Edit<'_> {
    Edit {
        decide,
        value,
        number,
    }
}

/// A write that keeps what belongs to the present item beside its value.
fn rewrite(old: Option<&ItemView<'_>>) -> Decision {
    Decision::Write {
        client_flags: old.map_or(0, |old| old.client_flags),
        deadline: old.map_or(Deadline::NEVER, |old| old.deadline),
    }
}

/// Adds the number to the integer that the item has, 0 without one, and reports the sum.
fn add(
    edit: &Edit<'_>,
    old: Option<&ItemView<'_>>,
    new: &mut Vec<u8>,
) -> Result<Decided, &'static str> {
    // memcached's `decr` pads a number that gets shorter with blanks.
    let present = old.map_or(Some(0), |old| parse_integer(old.value.trim_ascii_end()));
    let number = present
        .ok_or(NOT_AN_INTEGER)?
        .checked_add(edit.number)
        .ok_or("ERR increment or decrement would overflow")?;
    new.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    Ok(Decided {
        decision: rewrite(old),
        number,
    })
}

/// Replaces the bytes from the number on by the value, after zeros if the item is shorter, and
/// reports the length.
fn overlay(
    edit: &Edit<'_>,
    old: Option<&ItemView<'_>>,
    new: &mut Vec<u8>,
) -> Result<Decided, &'static str> {
    let before = old.map_or(&b""[..], |old| old.value);
    if edit.value.is_empty() {
        return Ok(Decided {
            decision: Decision::Keep,
            number: before.len() as i64,
        });
    }
    let start = edit.number as usize;
    let end = start + edit.value.len();
    new.extend_from_slice(before);
    new.resize(before.len().max(end), 0);
    new[start..end].copy_from_slice(edit.value);
    Ok(Decided {
        decision: rewrite(old),
        number: new.len() as i64,
    })
}

/// Stores the value, without flags and deadline.
fn replace(
    edit: &Edit<'_>,
    _: Option<&ItemView<'_>>,
    new: &mut Vec<u8>,
) -> Result<Decided, &'static str> {
    new.extend_from_slice(edit.value);
    Ok(Decided {
        decision: Decision::Write {
            client_flags: 0,
            deadline: Deadline::NEVER,
        },
        number: 0,
    })
}

/// Stores the value as [`SetOptions`] say, and reports 1 if it was stored.
fn assign(
    edit: &Edit<'_>,
    old: Option<&ItemView<'_>>,
    new: &mut Vec<u8>,
) -> Result<Decided, &'static str> {
    let has = |option: i64| edit.number & option != 0;
    let is_stored = !(has(SetOptions::IF_ABSENT) && old.is_some()
        || has(SetOptions::IF_PRESENT) && old.is_none());
    let decision = if is_stored {
        new.extend_from_slice(edit.value);
        let kept = old.filter(|_| has(SetOptions::KEEPS_DEADLINE));
        Decision::Write {
            client_flags: 0,
            deadline: kept.map_or(Deadline::from_bits(edit.number as u64), |old| old.deadline),
        }
    } else {
        Decision::Keep
    };
    Ok(Decided {
        decision,
        number: i64::from(is_stored),
    })
}

/// Removes the item.
fn remove(
    _: &Edit<'_>,
    _: Option<&ItemView<'_>>,
    _: &mut Vec<u8>,
) -> Result<Decided, &'static str> {
    Ok(Decided {
        decision: Decision::Remove,
        number: 0,
    })
}

/// Removes the deadline, and reports 1 if there was one.
fn persist(
    _: &Edit<'_>,
    old: Option<&ItemView<'_>>,
    _: &mut Vec<u8>,
) -> Result<Decided, &'static str> {
    let changed = old.is_some_and(|old| old.deadline != Deadline::NEVER);
    Ok(Decided {
        decision: if changed {
            Decision::Touch(Deadline::NEVER)
        } else {
            Decision::Keep
        },
        number: i64::from(changed),
    })
}
