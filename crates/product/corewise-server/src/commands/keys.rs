//! Commands on keys, whatever their values are.

use super::form::{ClockStart, ReplyShape, type_name};
use super::glob::{self, Glob};
use super::operation::{
    Failure, Operation, Parsed, TimeForm, decided, each, integer, invalid_time,
};
use super::{Context, first, text, until_nul};
use crate::codec::Parse;
use corewise_engine::{Cursor, Engine, ScanStep};
use corewise_ops::{Deadline, Decided, Decision, Edit, ItemView, StoreRule, database};
use corewise_wire::Tally;
use corewise_wire::resp::{Args, parse_integer};

/// The items and buckets that a step of a scan visits, unless `COUNT` says otherwise.
const SCAN_COUNT: usize = 10;
/// The most that `COUNT` can ask for: one step holds up the connections of its loop.
const MAX_SCAN_COUNT: i64 = 10_000;
/// The items and buckets after which a step looks at what it has shown.
pub(super) const SCAN_PART: usize = 64;
/// The buckets of a step that shows fewer items than it is asked for: a table whose size follows
/// from the memory limit may be nearly empty.
const MAX_SCAN_BUCKETS: usize = 4_096;
/// The bytes of keys, or of members, after which a step ends.
pub(super) const ENOUGH_BYTES: usize = 1 << 20;

/// `DEL key …`, `UNLINK key …`.
pub(super) fn del<'i>(args: Args<'i>, _: &Parse<'_>) -> Parsed<'i> {
    each(args, |key| Operation::delete(key, ReplyShape::Flag))
}

/// `EXISTS key …`.
pub(super) fn exists<'i>(args: Args<'i>, _: &Parse<'_>) -> Parsed<'i> {
    each(args, |key| Operation::peek(key, ReplyShape::Flag))
}

/// `TOUCH key …`.
pub(super) fn touch<'i>(args: Args<'i>, _: &Parse<'_>) -> Parsed<'i> {
    each(args, |key| {
        Operation::read(key, ReplyShape::Flag).of_any_kind()
    })
}

/// `TYPE key`.
pub(super) fn type_of<'i>(mut args: Args<'i>, _: &Parse<'_>) -> Parsed<'i> {
    let [key] = first(&mut args);
    Operation::peek(key, ReplyShape::Type).into()
}

/// `EXPIRE key seconds [NX | XX | GT | LT]`.
pub(super) fn expire<'i>(args: Args<'i>, parse: &Parse<'_>) -> Parsed<'i> {
    set_deadline(args, TimeForm::SECONDS, parse, "expire")
}

/// `PEXPIRE key milliseconds [NX | XX | GT | LT]`.
pub(super) fn pexpire<'i>(args: Args<'i>, parse: &Parse<'_>) -> Parsed<'i> {
    set_deadline(args, TimeForm::MILLISECONDS, parse, "pexpire")
}

/// `EXPIREAT key unix-time-seconds [NX | XX | GT | LT]`.
pub(super) fn expireat<'i>(args: Args<'i>, parse: &Parse<'_>) -> Parsed<'i> {
    set_deadline(args, TimeForm::UNIX_SECONDS, parse, "expireat")
}

/// `PEXPIREAT key unix-time-milliseconds [NX | XX | GT | LT]`.
pub(super) fn pexpireat<'i>(args: Args<'i>, parse: &Parse<'_>) -> Parsed<'i> {
    set_deadline(args, TimeForm::UNIX_MILLISECONDS, parse, "pexpireat")
}

/// The conditions under which a deadline is replaced, as bits.
mod condition {
    pub(super) const NONE: i64 = 1;
    pub(super) const SOME: i64 = 1 << 1;
    pub(super) const LATER: i64 = 1 << 2;
    pub(super) const EARLIER: i64 = 1 << 3;

    pub(super) fn parse(options: super::Args<'_>) -> Result<i64, super::Failure<'_>> {
        let mut conditions = 0;
        for option in options {
            conditions |= match option.to_ascii_lowercase().as_slice() {
                b"nx" => NONE,
                b"xx" => SOME,
                b"gt" => LATER,
                b"lt" => EARLIER,
                _ => {
                    let option = super::until_nul(option);
                    return Err(super::Failure([b"ERR Unsupported option ", option, b""]));
                }
            };
        }
        if conditions & NONE != 0 && conditions != NONE {
            return Err(
                "ERR NX and XX, GT or LT options at the same time are not compatible".into(),
            );
        }
        if conditions & (LATER | EARLIER) == LATER | EARLIER {
            return Err("ERR GT and LT options at the same time are not compatible".into());
        }
        Ok(conditions)
    }
}

/// The commands that set a deadline.
fn set_deadline<'i>(
    mut args: Args<'i>,
    form: TimeForm,
    parse: &Parse<'_>,
    command: &'static str,
) -> Parsed<'i> {
    let [key, time] = first(&mut args);
    let conditions = condition::parse(args)?;
    let deadline = form
        .deadline(integer(time)?, parse)
        .ok_or_else(|| invalid_time(command))?;
    if conditions == 0 && deadline != Deadline::PAST {
        return Operation::touch(key, deadline, ReplyShape::Flag)
            .of_any_kind()
            .into();
    }
    let edit = Edit {
        decide: replace_deadline,
        value: b"",
        number: conditions,
        rule: StoreRule {
            deadline,
            ..StoreRule::default()
        },
        any_kind: true,
    };
    Operation::edit_with(key, edit, ReplyShape::Number)
        .counting_as(Tally::None)
        .into()
}

/// Replaces the deadline under the conditions that the number has, and reports 1 if it did.
fn replace_deadline(
    edit: &Edit<'_>,
    old: Option<&ItemView<'_>>,
    _: &mut Vec<u8>,
) -> Result<Decided, &'static str> {
    let Some(old) = old else {
        return decided(Decision::Keep, 0);
    };
    let asks_for = |condition| edit.number & condition != 0;
    let new = edit.rule.deadline;
    // An item without a deadline has one that never comes.
    let has_deadline = old.deadline != Deadline::NEVER;
    let is_later = has_deadline && new.to_bits() > old.deadline.to_bits();
    let is_earlier = !has_deadline || new.to_bits() < old.deadline.to_bits();
    if asks_for(condition::NONE) && has_deadline
        || asks_for(condition::SOME) && !has_deadline
        || asks_for(condition::LATER) && !is_later
        || asks_for(condition::EARLIER) && !is_earlier
    {
        return decided(Decision::Keep, 0);
    }
    match new {
        Deadline::PAST => decided(Decision::Remove, 1),
        new => decided(Decision::Touch(new), 1),
    }
}

/// `PERSIST key`.
pub(super) fn persist<'i>(mut args: Args<'i>, _: &Parse<'_>) -> Parsed<'i> {
    let [key] = first(&mut args);
    Operation::edit(key, remove_deadline, 0, ReplyShape::Number)
        .of_any_kind()
        .into()
}

/// Removes the deadline, and reports 1 if there was one.
pub(super) fn remove_deadline(
    _: &Edit<'_>,
    old: Option<&ItemView<'_>>,
    _: &mut Vec<u8>,
) -> Result<Decided, &'static str> {
    match old {
        Some(old) if old.deadline != Deadline::NEVER => {
            decided(Decision::Touch(Deadline::NEVER), 1)
        }
        _ => decided(Decision::Keep, 0),
    }
}

/// `TTL key`.
pub(super) fn ttl<'i>(mut args: Args<'i>, _: &Parse<'_>) -> Parsed<'i> {
    let [key] = first(&mut args);
    Operation::peek(key, ReplyShape::SecondsLeft).into()
}

/// `PTTL key`.
pub(super) fn pttl<'i>(mut args: Args<'i>, _: &Parse<'_>) -> Parsed<'i> {
    let [key] = first(&mut args);
    Operation::peek(key, ReplyShape::MillisecondsLeft).into()
}

/// `EXPIRETIME key`.
pub(super) fn expiretime<'i>(mut args: Args<'i>, parse: &Parse<'_>) -> Parsed<'i> {
    let [key] = first(&mut args);
    Operation::peek(key, ReplyShape::UnixSeconds(ClockStart::of(parse))).into()
}

/// `PEXPIRETIME key`.
pub(super) fn pexpiretime<'i>(mut args: Args<'i>, parse: &Parse<'_>) -> Parsed<'i> {
    let [key] = first(&mut args);
    Operation::peek(key, ReplyShape::UnixMilliseconds(ClockStart::of(parse))).into()
}

/// The options of a scan.
pub(super) struct ScanOptions<'a> {
    pub(super) pattern: &'a [u8],
    /// What `COUNT` says, up to [`MAX_SCAN_COUNT`].
    pub(super) count: usize,
    /// What `TYPE` says.
    wanted: Option<&'a [u8]>,
}

impl<'a> ScanOptions<'a> {
    /// Reads the options, or returns the error text. `TYPE` may be among them if it is `of_keys`.
    pub(super) fn parse(mut args: Args<'a>, of_keys: bool) -> Result<Self, &'static str> {
        let mut options = Self {
            pattern: b"*",
            count: SCAN_COUNT,
            wanted: None,
        };
        while let Some(option) = args.next() {
            match (option.to_ascii_lowercase().as_slice(), args.next()) {
                (b"match", Some(value)) if value.len() > glob::MAX_PATTERN => {
                    return Err(text::LONG_PATTERN);
                }
                (b"match", Some(value)) => options.pattern = value,
                (b"count", Some(value)) => match parse_integer(value) {
                    None => return Err(text::NOT_AN_INTEGER),
                    Some(..=0) => return Err(text::SYNTAX),
                    Some(value) => options.count = value.min(MAX_SCAN_COUNT) as usize,
                },
                (b"type", Some(value)) if of_keys => options.wanted = Some(value),
                _ => return Err(text::SYNTAX),
            }
        }
        Ok(options)
    }
}

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`.
pub(super) fn scan<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [cursor] = first(&mut args);
    let Some(cursor) = parse_cursor(cursor) else {
        return cx.error("ERR invalid cursor");
    };
    let options = match ScanOptions::parse(args, true) {
        Ok(options) => options,
        Err(text) => return cx.error(text),
    };
    let ScanOptions {
        pattern,
        count,
        wanted,
    } = options;
    let (mut keys, mut matching): (Vec<Vec<u8>>, _) = (Vec::new(), 0);
    let glob = Glob::new(pattern);
    let step = scan_step(cx, cursor, count, |key, item| {
        if glob.matches(key) {
            matching += 1;
            let is_shown = wanted.is_none_or(|wanted: &[u8]| {
                wanted.eq_ignore_ascii_case(type_name(item.kind).as_bytes())
            });
            keys.extend(is_shown.then(|| key.to_vec()));
        }
    });
    // As in Redis, the type of a key is looked up.
    if wanted.is_some() {
        cx.counters.cmd_get += matching;
        cx.counters.get_hits += matching;
    }
    let next = match step {
        ScanStep::More(next) => next.to_bits(),
        ScanStep::Done => 0,
        ScanStep::Lost => {
            return cx.error("ERR the table was resized too often during the scan, start again");
        }
    };
    let mut reply = cx.reply();
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.array(keys.len());
    keys.iter().for_each(|key| reply.bulk(key));
}

/// The items that `SCAN` with these arguments visits at most, but for those that share a bucket.
pub(super) fn scan_items(args: Args<'_>) -> usize {
    let counts = args.skip(1).filter_map(parse_integer);
    let count = counts.max().unwrap_or(0).clamp(0, MAX_SCAN_COUNT) as usize;
    count.max(SCAN_PART)
}

/// Shows `count` keys of the database that is selected to `look`, and more if they share a bucket;
/// fewer if the keys are long, if the client has spent its time budget, or after a number of
/// buckets and of keys of other databases: the greater of `count` and [`MAX_SCAN_BUCKETS`].
fn scan_step<E: Engine>(
    cx: &Context<'_, E>,
    mut cursor: Cursor,
    count: usize,
    mut look: impl FnMut(&[u8], &ItemView<'_>),
) -> ScanStep {
    let selected = cx.codec.database();
    let (mut left, mut shown, mut bytes) = (count.max(MAX_SCAN_BUCKETS), 0, 0);
    loop {
        let part = left.min(count - shown).min(SCAN_PART);
        let step = cx.engine.scan(cursor, part, cx.parse.now, &mut |item| {
            let (database, key) = database::split(item.key);
            if database == selected {
                shown += 1;
                bytes += key.len();
                look(key, item);
            }
        });
        left -= part;
        match step {
            ScanStep::More(next)
                if left > 0 && shown < count && bytes < ENOUGH_BYTES && !cx.must_pause() =>
            {
                cursor = next;
            }
            _ => return step,
        }
    }
}

/// The cursor that a text means, as `strtoul` reads it: with a sign, and none at all is 0.
pub(super) fn parse_cursor(text: &[u8]) -> Option<Cursor> {
    let text = until_nul(text);
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let mut number = 0_u64;
    for digit in digits {
        let digit = digit.is_ascii_digit().then(|| digit - b'0')?;
        number = number.checked_mul(10)?.checked_add(digit.into())?;
    }
    let is_whole = text.is_empty() || !digits.is_empty();
    let number = if is_negative {
        number.wrapping_neg()
    } else {
        number
    };
    is_whole.then(|| Cursor::from_bits(number))
}

#[cfg(test)]
mod tests {
    use super::parse_cursor;

    #[test]
    fn cursors_are_read_as_redis_reads_them() {
        for (text, expected) in [
            (&b""[..], Some(0)),
            (b"17", Some(17)),
            (b"007", Some(7)),
            (b"+7", Some(7)),
            (b"-1", Some(u64::MAX)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"-18446744073709551615", Some(1)),
            (b"18446744073709551616", None),
            (b"\0x", Some(0)),
            (b"-", None),
            (b" 1", None),
            (b"1 ", None),
            (b"0x10", None),
        ] {
            let seen = parse_cursor(text).map(corewise_engine::Cursor::to_bits);
            assert_eq!(seen, expected, "{}", text.escape_ascii());
        }
    }
}
