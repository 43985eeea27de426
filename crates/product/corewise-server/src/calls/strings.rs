//! Commands on values.

use super::float::Extended;
use super::keys::{TimeForm, invalid_time};
use super::{Context, first, text};
use corewise_cache::Engine;
use corewise_ops::{Deadline, Decision, ItemView, Outcome, Store, StoreMode, Verb};
use corewise_wire::Tally;
use corewise_wire::resp::{Args, CommandOperation, ReplyForm, SetOptions, parse_integer};

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
pub(super) fn get<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key] = first(&mut args);
    cx.run(&CommandOperation::get(key));
}

/// `STRLEN key`.
pub(super) fn strlen<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key] = first(&mut args);
    cx.run(&CommandOperation::strlen(key));
}

/// `GETRANGE key start end`, `SUBSTR key start end`.
pub(super) fn getrange<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key, start, end] = first(&mut args);
    let (Some(start), Some(end)) = (parse_integer(start), parse_integer(end)) else {
        return cx.error(text::NOT_AN_INTEGER);
    };
    cx.run(&CommandOperation::getrange(key, start, end));
}

/// The options of `SET` and `GETEX`.
#[derive(Default)]
struct Options<'i> {
    if_absent: bool,
    if_present: bool,
    returns_old: bool,
    keeps_deadline: bool,
    persists: bool,
    time: Option<(&'i [u8], TimeForm)>,
}

impl<'i> Options<'i> {
    /// Reads options; `None` if the syntax is wrong.
    fn parse(mut args: Args<'i>, is_set: bool) -> Option<Self> {
        let mut options = Self::default();
        while let Some(option) = args.next() {
            match option.to_ascii_lowercase().as_slice() {
                b"nx" if is_set && !options.if_present => options.if_absent = true,
                b"xx" if is_set && !options.if_absent => options.if_present = true,
                b"get" if is_set => options.returns_old = true,
                b"keepttl" if is_set && options.time.is_none() => options.keeps_deadline = true,
                b"persist" if !is_set && options.time.is_none() => options.persists = true,
                unit @ (b"ex" | b"px" | b"exat" | b"pxat") => {
                    let form = TimeForm {
                        in_seconds: unit[0] == b'e',
                        is_absolute: unit.len() == 4,
                    };
                    // The last of several times of one form counts.
                    let is_other = options.time.is_some_and(|(_, before)| before != form);
                    if is_other || options.keeps_deadline || options.persists {
                        return None;
                    }
                    options.time = Some((args.next()?, form));
                }
                _ => return None,
            }
        }
        Some(options)
    }
}

/// The deadline that a time means; `None` after it has printed an error.
fn deadline_of<E: Engine>(
    cx: &mut Context<'_, E>,
    time: &[u8],
    form: TimeForm,
    command: &str,
) -> Option<Deadline> {
    let Some(time) = parse_integer(time) else {
        cx.error(text::NOT_AN_INTEGER);
        return None;
    };
    let deadline = cx.deadline(time, form).filter(|_| time > 0);
    if deadline.is_none() {
        invalid_time(cx, command);
    }
    deadline
}

/// `SET key value [NX | XX] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]`.
pub(super) fn set<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key, value] = first(&mut args);
    let Some(options) = Options::parse(args, true) else {
        return cx.error(text::SYNTAX);
    };
    let deadline = match options.time {
        None => Deadline::NEVER,
        Some((time, form)) => match deadline_of(cx, time, form, "set") {
            Some(deadline) => deadline,
            None => return,
        },
    };
    let mode = match (options.if_absent, options.if_present) {
        (true, _) => StoreMode::Add,
        (_, true) => StoreMode::Replace,
        _ => StoreMode::Overwrite,
    };
    let options = SetOptions {
        mode,
        deadline,
        keeps_deadline: options.keeps_deadline,
        returns_old: options.returns_old,
    };
    cx.run(&CommandOperation::set_with(key, value, options));
}

/// `GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]`.
pub(super) fn getex<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key] = first(&mut args);
    let Some(options) = Options::parse(args, false) else {
        return cx.error(text::SYNTAX);
    };
    let Some((time, form)) = options.time else {
        return cx.run(&if options.persists {
            CommandOperation::getex_persist(key)
        } else {
            CommandOperation::get(key)
        });
    };
    let start = cx.out.len();
    if let Some(deadline) = deadline_of(cx, time, form, "getex") {
        cx.run(&CommandOperation::getex(key, deadline));
    } else if !cx.exists(Tally::Gat, key) {
        // As in Redis, the time does not matter then.
        cx.out.truncate(start);
        cx.reply().null();
    }
}

/// `GETSET key value`.
pub(super) fn getset<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key, value] = first(&mut args);
    cx.run(&CommandOperation::getset(key, value));
}

/// `GETDEL key`.
pub(super) fn getdel<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key] = first(&mut args);
    cx.run(&CommandOperation::getdel(key));
}

/// Stores a value. Returns whether it was stored, `None` after it has printed an error.
pub(super) fn store<E: Engine>(
    cx: &mut Context<'_, E>,
    key: &[u8],
    value: &[u8],
    mode: StoreMode,
    deadline: Deadline,
) -> Option<bool> {
    let store = Store {
        mode,
        value,
        client_flags: 0,
        deadline,
        compare_cas: None,
        stale_if_older: false,
        new_cas: None,
        vivify: None,
    };
    let mut result = Err("");
    cx.operate(Tally::None, key, Verb::Store(store), |outcome| {
        result = match outcome {
            Outcome::Stored(_) => Ok(true),
            Outcome::NotStored => Ok(false),
            failure => Err(ReplyForm::error_text(failure)),
        };
    });
    result.inspect_err(|text| cx.error(text)).ok()
}

/// `SETNX key value`.
pub(super) fn setnx<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key, value] = first(&mut args);
    cx.run(&CommandOperation::setnx(key, value));
}

/// `SETEX key seconds value`.
pub(super) fn setex<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    set_for_a_time(cx, args, true, "setex");
}

/// `PSETEX key milliseconds value`.
pub(super) fn psetex<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    set_for_a_time(cx, args, false, "psetex");
}

fn set_for_a_time<E: Engine>(
    cx: &mut Context<'_, E>,
    mut args: Args<'_>,
    in_seconds: bool,
    command: &str,
) {
    let [key, time, value] = first(&mut args);
    let form = TimeForm {
        in_seconds,
        is_absolute: false,
    };
    let Some(deadline) = deadline_of(cx, time, form, command) else {
        return;
    };
    cx.run(&CommandOperation::set(key, value, deadline));
}

/// `APPEND key value`.
pub(super) fn append<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key, value] = first(&mut args);
    cx.run(&CommandOperation::append(key, value));
}

/// `SETRANGE key offset value`.
pub(super) fn setrange<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key, offset, value] = first(&mut args);
    let Some(offset) = parse_integer(offset) else {
        return cx.error(text::NOT_AN_INTEGER);
    };
    if offset < 0 {
        return cx.error("ERR offset is out of range");
    }
    let end = offset.saturating_add(value.len() as i64);
    if !value.is_empty() && end > MAX_VALUE {
        return cx.error("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    }
    // Before memory is taken for it.
    if !value.is_empty() && end as usize > cx.shared.config.max_item_size {
        return cx.error(ReplyForm::error_text(&Outcome::TooLarge));
    }
    cx.run(&CommandOperation::setrange(key, offset, value));
}

/// `INCR key`.
pub(super) fn incr<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key] = first(&mut args);
    cx.run(&CommandOperation::incrby(key, 1));
}

/// `DECR key`.
pub(super) fn decr<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key] = first(&mut args);
    cx.run(&CommandOperation::incrby(key, -1));
}

/// `INCRBY key increment`.
pub(super) fn incrby<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key, delta] = first(&mut args);
    match parse_integer(delta) {
        Some(delta) => cx.run(&CommandOperation::incrby(key, delta)),
        None => cx.error(text::NOT_AN_INTEGER),
    }
}

/// `DECRBY key decrement`.
pub(super) fn decrby<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key, delta] = first(&mut args);
    match parse_integer(delta).map(i64::checked_neg) {
        Some(Some(delta)) => cx.run(&CommandOperation::incrby(key, delta)),
        Some(None) => cx.error("ERR decrement would overflow"),
        None => cx.error(text::NOT_AN_INTEGER),
    }
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
