//! Commands on keys, whatever their values are.

use super::{Context, first, glob, text, until_nul};
use corewise_cache::{Cursor, Engine, ScanStep};
use corewise_ops::{Deadline, Decision, Delete, Get, Outcome, Verb};
use corewise_wire::Tally;
use corewise_wire::resp::{Args, CommandOperation, parse_integer};

/// The items and buckets that a step of a scan visits, unless `COUNT` says otherwise.
const SCAN_COUNT: usize = 10;
/// The most that `COUNT` can ask for: one step holds up the connections of its loop.
const MAX_SCAN_COUNT: i64 = 10_000;
/// The items and buckets after which a step looks at what it has shown.
const SCAN_PART: usize = 64;
/// The buckets of a step that shows fewer items than it is asked for: a table whose size follows
/// from the memory limit may be nearly empty.
const MAX_SCAN_BUCKETS: usize = 4_096;
/// The bytes of keys after which a step ends.
const ENOUGH_BYTES: usize = 1 << 20;

/// `DEL key …`, `UNLINK key …`.
pub(super) fn del<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    cx.count_keys(args, |cx, key| {
        let mut is_deleted = false;
        let verb = Verb::Delete(Delete::default());
        cx.operate(Tally::Delete, key, verb, |outcome| {
            is_deleted = matches!(outcome, Outcome::Deleted);
        });
        is_deleted
    });
}

/// `EXISTS key …`.
pub(super) fn exists<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    cx.count_keys(args, |cx, key| cx.exists(Tally::Get, key));
}

/// `TOUCH key …`.
pub(super) fn touch<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    cx.count_keys(args, |cx, key| {
        let mut exists = false;
        let verb = Verb::Get(Get::default());
        cx.operate(Tally::Get, key, verb, |outcome| {
            exists = matches!(outcome, Outcome::Found(_));
        });
        exists
    });
}

/// `TYPE key`.
pub(super) fn type_of<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key] = first(&mut args);
    cx.run(&CommandOperation::type_of(key));
}

/// How a time is given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeForm {
    /// In seconds rather than milliseconds.
    pub(super) in_seconds: bool,
    /// Since the Unix epoch rather than from now on.
    pub(super) is_absolute: bool,
}

/// `EXPIRE key seconds [NX | XX | GT | LT]`.
pub(super) fn expire<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    let form = TimeForm {
        in_seconds: true,
        is_absolute: false,
    };
    set_deadline(cx, args, form, "expire");
}

/// `PEXPIRE key milliseconds [NX | XX | GT | LT]`.
pub(super) fn pexpire<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    let form = TimeForm {
        in_seconds: false,
        is_absolute: false,
    };
    set_deadline(cx, args, form, "pexpire");
}

/// `EXPIREAT key unix-time-seconds [NX | XX | GT | LT]`.
pub(super) fn expireat<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    let form = TimeForm {
        in_seconds: true,
        is_absolute: true,
    };
    set_deadline(cx, args, form, "expireat");
}

/// `PEXPIREAT key unix-time-milliseconds [NX | XX | GT | LT]`.
pub(super) fn pexpireat<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    let form = TimeForm {
        in_seconds: false,
        is_absolute: true,
    };
    set_deadline(cx, args, form, "pexpireat");
}

/// The condition under which a deadline is replaced.
#[derive(Clone, Copy, Default)]
struct Condition {
    none: bool,
    some: bool,
    later: bool,
    earlier: bool,
}

impl Condition {
    /// Whether a deadline may be replaced by `new`, which is none that never comes.
    fn allows(self, present: Deadline, new: Deadline) -> bool {
        let has_deadline = present != Deadline::NEVER;
        let is_later = has_deadline && new.to_bits() > present.to_bits();
        let is_earlier = !has_deadline || new.to_bits() < present.to_bits();
        !(self.none && has_deadline
            || self.some && !has_deadline
            || self.later && !is_later
            || self.earlier && !is_earlier)
    }

    /// Reads options; `None` after it has printed an error.
    fn parse<E: Engine>(cx: &mut Context<'_, E>, options: Args<'_>) -> Option<Self> {
        let mut condition = Self::default();
        for option in options {
            match option.to_ascii_lowercase().as_slice() {
                b"nx" => condition.none = true,
                b"xx" => condition.some = true,
                b"gt" => condition.later = true,
                b"lt" => condition.earlier = true,
                _ => {
                    let shown = until_nul(option);
                    cx.reply().error(&[b"ERR Unsupported option ", shown]);
                    return None;
                }
            }
        }
        if condition.none && (condition.some || condition.later || condition.earlier) {
            cx.error("ERR NX and XX, GT or LT options at the same time are not compatible");
            return None;
        }
        if condition.later && condition.earlier {
            cx.error("ERR GT and LT options at the same time are not compatible");
            return None;
        }
        Some(condition)
    }
}

/// The commands that set a deadline.
fn set_deadline<E: Engine>(
    cx: &mut Context<'_, E>,
    mut args: Args<'_>,
    form: TimeForm,
    command: &str,
) {
    let [key, time] = first(&mut args);
    let Some(condition) = Condition::parse(cx, args) else {
        return;
    };
    let Some(time) = parse_integer(time) else {
        return cx.error(text::NOT_AN_INTEGER);
    };
    let Some(deadline) = cx.deadline(time, form) else {
        return invalid_time(cx, command);
    };
    if args.len() == 0 && deadline != Deadline::PAST {
        return cx.run(&CommandOperation::expire(key, deadline));
    }
    let mut changed = false;
    let done = cx.update(key, |old, _| {
        changed = old.is_some_and(|old| condition.allows(old.deadline, deadline));
        match (changed, deadline) {
            (false, _) => Decision::Keep,
            (true, Deadline::PAST) => Decision::Remove,
            (true, deadline) => Decision::Touch(deadline),
        }
    });
    if done {
        cx.reply().integer(i64::from(changed));
    }
}

/// The error for a time that cannot be a deadline.
pub(super) fn invalid_time<E: Engine>(cx: &mut Context<'_, E>, command: &str) {
    let parts = [
        &b"ERR invalid expire time in '"[..],
        command.as_bytes(),
        b"' command",
    ];
    cx.reply().error(&parts);
}

/// `PERSIST key`.
pub(super) fn persist<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key] = first(&mut args);
    cx.run(&CommandOperation::persist(key));
}

/// `TTL key`.
pub(super) fn ttl<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key] = first(&mut args);
    cx.run(&CommandOperation::ttl(key));
}

/// `PTTL key`.
pub(super) fn pttl<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key] = first(&mut args);
    cx.run(&CommandOperation::pttl(key));
}

/// `EXPIRETIME key`.
pub(super) fn expiretime<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    time_left(cx, args, |now, left| {
        (now + left).saturating_add(500) / 1000
    });
}

/// `PEXPIRETIME key`.
pub(super) fn pexpiretime<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    time_left(cx, args, |now, left| now + left);
}

/// The commands that tell a deadline: -2 without an item, -1 without a deadline, otherwise what
/// `form` makes of the present Unix time and the time that is left, both in milliseconds.
fn time_left<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>, form: fn(u64, u64) -> u64) {
    let [key] = first(&mut args);
    let (now, unix_ms) = (cx.now, cx.unix_ms());
    let mut reply = -2;
    cx.peek(Tally::Get, key, |item| {
        reply = match item.map(|item| item.deadline.remaining_ms(now)) {
            None => -2,
            Some(None) => -1,
            Some(Some(left)) => form(unix_ms, left) as i64,
        };
    });
    cx.reply().integer(reply);
}

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`.
pub(super) fn scan<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [cursor] = first(&mut args);
    let Some(cursor) = parse_cursor(cursor) else {
        return cx.error("ERR invalid cursor");
    };
    let (mut pattern, mut count, mut shows_strings) = (&b"*"[..], SCAN_COUNT, true);
    let mut looks_up = false;
    while let Some(option) = args.next() {
        match (option.to_ascii_lowercase().as_slice(), args.next()) {
            (b"match", Some(value)) if value.len() > glob::MAX_PATTERN => {
                return cx.error(text::LONG_PATTERN);
            }
            (b"match", Some(value)) => pattern = value,
            (b"count", Some(value)) => match parse_integer(value) {
                None => return cx.error(text::NOT_AN_INTEGER),
                Some(..=0) => return cx.error(text::SYNTAX),
                Some(value) => count = value.min(MAX_SCAN_COUNT) as usize,
            },
            (b"type", Some(value)) => {
                shows_strings = value.eq_ignore_ascii_case(b"string");
                looks_up = true;
            }
            _ => return cx.error(text::SYNTAX),
        }
    }
    let (mut keys, mut matching): (Vec<Vec<u8>>, _) = (Vec::new(), 0);
    let step = scan_step(cx, cursor, count, |key| {
        if glob::matches(pattern, key) {
            matching += 1;
            keys.extend(shows_strings.then(|| key.to_vec()));
        }
    });
    // As in Redis, the type of a key is looked up.
    if looks_up {
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

/// Shows `count` keys to `look`, and more if they share a bucket; fewer if the keys are long, if
/// the client has spent its time budget, or after a number of buckets: the greater of `count`
/// and [`MAX_SCAN_BUCKETS`].
fn scan_step<E: Engine>(
    cx: &Context<'_, E>,
    mut cursor: Cursor,
    count: usize,
    mut look: impl FnMut(&[u8]),
) -> ScanStep {
    let (mut left, mut shown, mut bytes) = (count.max(MAX_SCAN_BUCKETS), 0, 0);
    loop {
        let part = left.min(count - shown).min(SCAN_PART);
        let step = cx.engine.scan(cursor, part, cx.now, &mut |item| {
            shown += 1;
            bytes += item.key.len();
            look(item.key);
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
fn parse_cursor(text: &[u8]) -> Option<Cursor> {
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
            let seen = parse_cursor(text).map(corewise_cache::Cursor::to_bits);
            assert_eq!(seen, expected, "{}", text.escape_ascii());
        }
    }
}
