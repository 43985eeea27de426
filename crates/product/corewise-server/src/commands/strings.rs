//! Commands on values.

use super::float::Extended;
use super::form::{ReplyForm, ReplyShape};
use super::keys::remove_deadline;
use super::operation::{
    Action, Failure, Operation, Parsed, TimeForm, decided, integer, invalid_time,
};
use super::{Context, first, text};
use crate::codec::Parse;
use corewise_engine::Engine;
use corewise_ops::{
    Deadline, Decided, Decision, Edit, ItemKind, ItemView, Outcome, StoreMode, StoreRule,
};
use corewise_wire::Tally;
use corewise_wire::resp::{Args, parse_integer};

/// The longest value that Redis allows, in bytes.
pub(super) const MAX_VALUE: i64 = 512 << 20;

/// The value of an item, or nothing.
pub(super) fn value_of<'v>(item: Option<&ItemView<'v>>) -> &'v [u8] {
    item.map_or(b"", |item| item.value)
}

/// A write that keeps what belongs to the present item beside its value.
pub(super) fn rewrite(old: Option<&ItemView<'_>>) -> Decision {
    Decision::Write {
        client_flags: old.map_or(0, |old| old.client_flags),
        deadline: old.map_or(Deadline::NEVER, |old| old.deadline),
    }
}

/// `GET key`.
#[inline(always)]
pub(super) fn get<'i>(mut args: Args<'i>, _: &Parse<'_>) -> Parsed<'i> {
    let key = args.next().unwrap_or(b"");
    Operation::read(key, ReplyShape::Value).into()
}

/// `STRLEN key`.
pub(super) fn strlen<'i>(mut args: Args<'i>, _: &Parse<'_>) -> Parsed<'i> {
    let [key] = first(&mut args);
    Operation::read(key, ReplyShape::Length).into()
}

/// `GETRANGE key start end`, `SUBSTR key start end`: the bytes from `start` to `end`, both
/// included; negative numbers count from the end.
pub(super) fn getrange<'i>(mut args: Args<'i>, _: &Parse<'_>) -> Parsed<'i> {
    let [key, start, end] = first(&mut args);
    let (start, end) = (integer(start)?, integer(end)?);
    let kind = if start < 0 && end < 0 && start > end {
        ReplyShape::Range(1, 0)
    } else {
        // No value is so long that this makes a difference.
        let near = |at: i64| at.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
        ReplyShape::Range(near(start), near(end))
    };
    Operation::read(key, kind).into()
}

/// The options of `SET` and `GETEX`.
#[derive(Default)]
struct Options<'i> {
    rule: StoreRule,
    returns_old: bool,
    persists: bool,
    time: Option<(&'i [u8], TimeForm)>,
}

impl<'i> Options<'i> {
    /// Reads options; `None` if the syntax is wrong.
    #[inline(always)]
    fn parse(mut args: Args<'i>, is_set: bool) -> Option<Self> {
        use StoreMode::{Add, Overwrite, Replace};
        let mut options = Self::default();
        while let Some(option) = args.next() {
            let mode = options.rule.mode;
            let form = match *option {
                [b'e' | b'E', b'x' | b'X'] => TimeForm::SECONDS,
                [b'p' | b'P', b'x' | b'X'] => TimeForm::MILLISECONDS,
                [b'n' | b'N', b'x' | b'X'] if is_set && mode != Replace => {
                    options.rule.mode = Add;
                    continue;
                }
                [b'x' | b'X', b'x' | b'X'] if is_set && matches!(mode, Overwrite | Replace) => {
                    options.rule.mode = Replace;
                    continue;
                }
                _ => match options.parse_longer(option, is_set)? {
                    Some(form) => form,
                    None => continue,
                },
            };
            // The last of several times of one form counts.
            let is_other = options.time.is_some_and(|(_, before)| before != form);
            if is_other || options.rule.keeps_deadline || options.persists {
                return None;
            }
            options.time = Some((args.next()?, form));
        }
        Some(options)
    }

    /// An option that has more than two letters: the form of a time behind it, if one is.
    #[cold]
    fn parse_longer(&mut self, option: &[u8], is_set: bool) -> Option<Option<TimeForm>> {
        match option.to_ascii_lowercase().as_slice() {
            b"exat" => return Some(Some(TimeForm::UNIX_SECONDS)),
            b"pxat" => return Some(Some(TimeForm::UNIX_MILLISECONDS)),
            b"get" if is_set => self.returns_old = true,
            b"keepttl" if is_set && self.time.is_none() => self.rule.keeps_deadline = true,
            b"persist" if !is_set && self.time.is_none() => self.persists = true,
            _ => return None,
        }
        Some(None)
    }
}

/// The deadline that a time means that must be positive; why there is none is found out apart.
#[inline(always)]
fn deadline_of(
    text: &[u8],
    form: TimeForm,
    parse: &Parse<'_>,
    command: &'static str,
) -> Result<Deadline, Failure<'static>> {
    let time = parse_integer(text).filter(|time| *time > 0);
    match time.and_then(|time| form.deadline(time, parse)) {
        Some(deadline) => Ok(deadline),
        None => Err(time_failure(text, command)),
    }
}

/// Why a text is no time that can be a deadline.
#[cold]
fn time_failure(text: &[u8], command: &'static str) -> Failure<'static> {
    integer(text).map_or_else(|failure| failure, |_| invalid_time(command))
}

/// `SET key value [NX | XX] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]`.
#[inline(always)]
pub(super) fn set<'i>(mut args: Args<'i>, parse: &Parse<'_>) -> Parsed<'i> {
    let (key, value) = (args.next().unwrap_or(b""), args.next().unwrap_or(b""));
    let Options {
        mut rule,
        returns_old,
        time,
        ..
    } = Options::parse(args, true).ok_or(text::SYNTAX)?;
    if let Some((time, form)) = time {
        rule.deadline = deadline_of(time, form, parse, "set")?;
    }
    let kind = match rule.mode {
        _ if returns_old => ReplyShape::Old,
        StoreMode::Overwrite if !rule.keeps_deadline => ReplyShape::Ok,
        _ => ReplyShape::OkOrNull,
    };
    if returns_old {
        return assignment(key, value, rule, kind)
            .counting_as(Tally::GetSet)
            .into();
    }
    if rule.keeps_deadline {
        return assignment(key, value, rule, kind).into();
    }
    Operation::store(key, value, rule.mode, rule.deadline, kind).into()
}

fn assignment<'i>(
    key: &'i [u8],
    value: &'i [u8],
    rule: StoreRule,
    kind: ReplyShape,
) -> Operation<'i> {
    let edit = Edit {
        decide: assign,
        value,
        number: 0,
        rule,
        // A value that is returned must be a string.
        any_kind: kind != ReplyShape::Old,
    };
    Operation::edit_with(key, edit, kind)
}

/// Stores the value as its rule says, and reports 1 if it was stored.
fn assign(
    edit: &Edit<'_>,
    old: Option<&ItemView<'_>>,
    new: &mut Vec<u8>,
) -> Result<Decided, &'static str> {
    let is_stored = match edit.rule.mode {
        StoreMode::Add => old.is_none(),
        StoreMode::Replace => old.is_some(),
        _ => true,
    };
    if !is_stored {
        return decided(Decision::Keep, 0);
    }
    new.extend_from_slice(edit.value);
    let kept = old.filter(|_| edit.rule.keeps_deadline);
    let write = Decision::Write {
        client_flags: 0,
        deadline: kept.map_or(edit.rule.deadline, |old| old.deadline),
    };
    decided(write, 1)
}

/// `GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]`.
pub(super) fn getex<'i>(mut args: Args<'i>, parse: &Parse<'_>) -> Parsed<'i> {
    let [key] = first(&mut args);
    let options = Options::parse(args, false).ok_or(text::SYNTAX)?;
    match options.time {
        // If the item is absent, the time does not matter.
        Some((time, form)) => match deadline_of(time, form, parse, "getex") {
            Ok(deadline) => Operation::touch(key, deadline, ReplyShape::Value)
                .counting_as(Tally::Gat)
                .into(),
            Err(_) => Ok(Action::Call),
        },
        None if options.persists => {
            Operation::edit(key, remove_deadline, 0, ReplyShape::Old).into()
        }
        None => Operation::read(key, ReplyShape::Value).into(),
    }
}

/// `GETEX` with a wrong time, which is an error if there is an item.
pub(super) fn getex_wrongly<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key] = first(&mut args);
    let mut kind = None;
    cx.peek(cx.tally, key, |item| kind = item.map(|item| item.kind));
    if kind.is_some_and(|kind| kind != ItemKind::String) {
        return cx.error(ReplyForm::error_text(&Outcome::WrongKind));
    }
    let time = Options::parse(args, false).and_then(|options| options.time);
    match time.map(|(time, form)| deadline_of(time, form, &cx.parse, "getex")) {
        Some(Err(failure)) if kind.is_some() => cx.reply().error(&failure.0),
        _ => cx.reply().null(),
    }
}

/// `GETSET key value`.
pub(super) fn getset<'i>(mut args: Args<'i>, _: &Parse<'_>) -> Parsed<'i> {
    let [key, value] = first(&mut args);
    assignment(key, value, StoreRule::default(), ReplyShape::Old).into()
}

/// `GETDEL key`.
pub(super) fn getdel<'i>(mut args: Args<'i>, _: &Parse<'_>) -> Parsed<'i> {
    let [key] = first(&mut args);
    Operation::edit(key, remove, 0, ReplyShape::Old).into()
}

/// Removes the item.
fn remove(
    _: &Edit<'_>,
    _: Option<&ItemView<'_>>,
    _: &mut Vec<u8>,
) -> Result<Decided, &'static str> {
    decided(Decision::Remove, 0)
}

/// `SETNX key value`.
pub(super) fn setnx<'i>(mut args: Args<'i>, _: &Parse<'_>) -> Parsed<'i> {
    let [key, value] = first(&mut args);
    Operation::store(
        key,
        value,
        StoreMode::Add,
        Deadline::NEVER,
        ReplyShape::Flag,
    )
    .into()
}

/// `SETEX key seconds value`.
pub(super) fn setex<'i>(args: Args<'i>, parse: &Parse<'_>) -> Parsed<'i> {
    set_for_a_time(args, TimeForm::SECONDS, parse, "setex")
}

/// `PSETEX key milliseconds value`.
pub(super) fn psetex<'i>(args: Args<'i>, parse: &Parse<'_>) -> Parsed<'i> {
    set_for_a_time(args, TimeForm::MILLISECONDS, parse, "psetex")
}

fn set_for_a_time<'i>(
    mut args: Args<'i>,
    form: TimeForm,
    parse: &Parse<'_>,
    command: &'static str,
) -> Parsed<'i> {
    let [key, time, value] = first(&mut args);
    let deadline = deadline_of(time, form, parse, command)?;
    Operation::store(key, value, StoreMode::Overwrite, deadline, ReplyShape::Ok).into()
}

/// `APPEND key value`.
pub(super) fn append<'i>(mut args: Args<'i>, _: &Parse<'_>) -> Parsed<'i> {
    let [key, value] = first(&mut args);
    Operation::store(
        key,
        value,
        StoreMode::Append,
        Deadline::NEVER,
        ReplyShape::Length,
    )
    .into()
}

/// `SETRANGE key offset value`.
pub(super) fn setrange<'i>(mut args: Args<'i>, parse: &Parse<'_>) -> Parsed<'i> {
    let [key, offset, value] = first(&mut args);
    let offset = integer(offset)?;
    if offset < 0 {
        return Err("ERR offset is out of range".into());
    }
    let end = offset.saturating_add(value.len() as i64);
    if !value.is_empty() && end > MAX_VALUE {
        return Err("ERR string exceeds maximum allowed size (proto-max-bulk-len)".into());
    }
    // Before memory is taken for it.
    if !value.is_empty() && end as usize > parse.limits.memcached.max_item_size {
        return Err(ReplyForm::error_text(&Outcome::TooLarge).into());
    }
    let edit = Edit {
        decide: overlay,
        value,
        number: offset,
        rule: StoreRule::default(),
        any_kind: false,
    };
    let operation = Operation::edit_with(key, edit, ReplyShape::Number);
    operation.writing_to(end)
}

/// Replaces the bytes from the number on by the value, after zeros if the item is shorter, and
/// reports the length.
fn overlay(
    edit: &Edit<'_>,
    old: Option<&ItemView<'_>>,
    new: &mut Vec<u8>,
) -> Result<Decided, &'static str> {
    let before = value_of(old);
    if edit.value.is_empty() {
        return decided(Decision::Keep, before.len() as i64);
    }
    let start = edit.number as usize;
    let end = start + edit.value.len();
    new.extend_from_slice(before);
    new.resize(before.len().max(end), 0);
    new[start..end].copy_from_slice(edit.value);
    decided(rewrite(old), new.len() as i64)
}

/// `INCR key`.
pub(super) fn incr<'i>(mut args: Args<'i>, _: &Parse<'_>) -> Parsed<'i> {
    let [key] = first(&mut args);
    Operation::edit(key, add, 1, ReplyShape::Number).into()
}

/// `DECR key`.
pub(super) fn decr<'i>(mut args: Args<'i>, _: &Parse<'_>) -> Parsed<'i> {
    let [key] = first(&mut args);
    Operation::edit(key, add, -1, ReplyShape::Number).into()
}

/// `INCRBY key increment`.
pub(super) fn incrby<'i>(mut args: Args<'i>, _: &Parse<'_>) -> Parsed<'i> {
    let [key, delta] = first(&mut args);
    Operation::edit(key, add, integer(delta)?, ReplyShape::Number).into()
}

/// `DECRBY key decrement`.
pub(super) fn decrby<'i>(mut args: Args<'i>, _: &Parse<'_>) -> Parsed<'i> {
    let [key, delta] = first(&mut args);
    let delta = integer(delta)?.checked_neg();
    let delta = delta.ok_or("ERR decrement would overflow")?;
    Operation::edit(key, add, delta, ReplyShape::Number).into()
}

/// Adds the number to the integer that the item has, 0 without one, and reports the sum.
fn add(
    edit: &Edit<'_>,
    old: Option<&ItemView<'_>>,
    new: &mut Vec<u8>,
) -> Result<Decided, &'static str> {
    // memcached's `decr` pads a number that gets shorter with blanks.
    let present = old.map_or(Some(0), |old| parse_integer(old.value.trim_ascii_end()));
    let sum = present
        .ok_or(text::NOT_AN_INTEGER)?
        .checked_add(edit.number)
        .ok_or("ERR increment or decrement would overflow")?;
    new.extend_from_slice(itoa::Buffer::new().format(sum).as_bytes());
    decided(rewrite(old), sum)
}

/// `INCRBYFLOAT key increment`.
pub(super) fn incrbyfloat<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key, delta] = first(&mut args);
    let delta = Extended::parse(delta);
    let mut result = Err(text::NOT_A_FLOAT);
    let done = cx.update(key, |old, new| {
        let present = old.map_or(Some(Extended::ZERO), |old| Extended::parse(old.value));
        let (Some(present), Some(delta)) = (present, delta) else {
            return Decision::Keep;
        };
        let sum = present.checked_add(delta);
        result = sum
            .map(Extended::print)
            .ok_or("ERR increment would produce NaN or Infinity");
        let Ok(sum) = &result else {
            return Decision::Keep;
        };
        new.extend_from_slice(sum.as_bytes());
        rewrite(old)
    });
    match (done, result) {
        (false, _) => {}
        (true, Ok(sum)) => cx.reply().bulk(sum.as_bytes()),
        (true, Err(text)) => cx.error(text),
    }
}
