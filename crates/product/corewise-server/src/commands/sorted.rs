//! Commands on sorted sets.
//!
//! Every request is one operation. It is executed alone, as a call, if it names more than
//! [`MOST_BATCHED`] arguments, may show more than [`MOST_SHOWN`] members, or removes or scans a
//! range: then its arguments are parsed into memory of its own, and its reply is limited as that
//! of a transaction. Where there is no room for the members of a pop, they stay in the set.

use super::float::double;
use super::form::{ReplyShape, ScoresShown};
use super::glob::{self, Glob};
use super::operation::{Action, Failure, Operation, Parsed, integer};
use super::{Context, ReplyForm, first, keys, keyspace, text, until_nul};
use crate::codec::Parse;
use bumpalo::Bump;
use corewise_engine::Engine;
use corewise_ops::sorted::{
    Bounds, Conditions, Direction, MemberRange, MemberScan, Presence, ScoreChange, SortedOp,
    SortedRead, SortedResult, SortedWrite,
};
use corewise_ops::{Outcome, Verb};
use corewise_wire::Tally;
use corewise_wire::resp::{Args, Encoder, Version, parse_integer};
use std::ops::Bound;

/// The most arguments of a request in a batch.
const MOST_BATCHED: usize = 32;
/// The most members that a request in a batch shows.
const MOST_SHOWN: usize = 1 << 10;

mod error {
    pub(super) const XX_NX: &str = "ERR XX and NX options at the same time are not compatible";
    pub(super) const GT_LT_NX: &str =
        "ERR GT, LT, and/or NX options at the same time are not compatible";
    pub(super) const ONE_PAIR: &str = "ERR INCR option supports a single increment-element pair";
    pub(super) const RANGE: &str = "ERR min or max is not a float";
    pub(super) const LEX_RANGE: &str = "ERR min or max not valid string range item";
    pub(super) const NOT_POSITIVE: &str = "ERR value is out of range, must be positive";
    pub(super) const OUT_OF_RANGE: &str = "ERR value is out of range";
    pub(super) const COUNT: &str = "ERR value is out of range, value must between \
         -9223372036854775807 and 9223372036854775807";
    pub(super) const LIMIT: &str = "ERR syntax error, LIMIT is only supported in combination with \
         either BYSCORE or BYLEX";
    pub(super) const LONG_MEMBER: &str = "ERR the pattern is too long for a member of this length";
    pub(super) const WITHSCORES: &str =
        "ERR syntax error, WITHSCORES not supported in combination with BYLEX";
}

fn operation<'i>(
    key: &'i [u8],
    op: SortedOp<'i>,
    shape: ReplyShape,
    parse: &Parse<'i>,
) -> Operation<'i> {
    Operation::new(key, Verb::Sorted(parse.scratch.alloc(op)), shape)
}

fn read<'i>(
    key: &'i [u8],
    read: SortedRead<'i>,
    shape: ReplyShape,
    parse: &Parse<'i>,
) -> Parsed<'i> {
    operation(key, SortedOp::Read(read), shape, parse).into()
}

fn write<'i>(
    key: &'i [u8],
    write: SortedWrite<'i>,
    shape: ReplyShape,
    parse: &Parse<'i>,
) -> Parsed<'i> {
    operation(key, SortedOp::Write(write), shape, parse).into()
}

/// The parser's result for a request that is short enough for a batch.
fn batched_if_short<'i>(
    args: Args<'i>,
    parse: &Parse<'i>,
    parser: for<'p> fn(Args<'p>, &Parse<'p>) -> Parsed<'p>,
) -> Parsed<'i> {
    if args.len() > MOST_BATCHED {
        return Ok(Action::Call);
    }
    parser(args, parse)
}

/// Executes a request that the parser makes an operation of.
fn call<E: Engine>(
    cx: &mut Context<'_, E>,
    args: Args<'_>,
    parser: for<'p> fn(Args<'p>, &Parse<'p>) -> Parsed<'p>,
) {
    let scratch = Bump::new();
    let parse = Parse {
        scratch: &scratch,
        ..cx.parse
    };
    match parser(args, &parse) {
        Ok(Action::Op(operation)) => cx.run(&operation),
        Ok(_) => debug_assert!(false, "the parser makes operations"),
        Err(failure) => cx.reply().error(&failure.0),
    }
}

/// The score that a text is. There is one zero, as in Redis's small sets: its large ones keep the
/// sign.
fn score(text: &[u8]) -> Option<f64> {
    double(text).map(|score| score + 0.0)
}

// ---- writes

/// `ZADD key [NX | XX] [GT | LT] [CH] [INCR] score member …`.
pub(super) fn zadd<'i>(args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    batched_if_short(args, parse, parse_zadd)
}

/// `ZADD` with many members.
pub(super) fn zadd_call<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    call(cx, args, parse_zadd);
}

fn parse_zadd<'i>(mut args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    let [key] = first(&mut args);
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    let (mut counts_changed, mut increments) = (false, false);
    let mut pairs = args;
    while let Some(option) = args.next() {
        match option.to_ascii_lowercase().as_slice() {
            b"nx" => nx = true,
            b"xx" => xx = true,
            b"gt" => gt = true,
            b"lt" => lt = true,
            b"ch" => counts_changed = true,
            b"incr" => increments = true,
            _ => break,
        }
        pairs = args;
    }
    if pairs.len() == 0 || !pairs.len().is_multiple_of(2) {
        return Err(text::SYNTAX.into());
    }
    if nx && xx {
        return Err(error::XX_NX.into());
    }
    if gt && (lt || nx) || lt && nx {
        return Err(error::GT_LT_NX.into());
    }
    if increments && pairs.len() > 2 {
        return Err(error::ONE_PAIR.into());
    }
    let conditions = Conditions {
        presence: match (nx, xx) {
            (true, _) => Presence::Absent,
            (_, true) => Presence::Present,
            _ => Presence::Any,
        },
        change: match (gt, lt) {
            (true, _) => ScoreChange::Greater,
            (_, true) => ScoreChange::Less,
            _ => ScoreChange::Any,
        },
    };
    let mut is_wrong = false;
    let count = pairs.len() / 2;
    let pairs = parse.scratch.alloc_slice_fill_with(count, |_| {
        let [score, member] = first(&mut pairs);
        // The reply to an increment keeps the sign of a zero.
        let parser = if increments { double } else { self::score };
        let score = parser(score);
        is_wrong |= score.is_none();
        (score.unwrap_or(0.0), member)
    });
    if is_wrong {
        return Err(text::NOT_A_FLOAT.into());
    }
    match *pairs {
        [(delta, member)] if increments => {
            let increment = SortedWrite::Increment {
                delta,
                member,
                conditions,
            };
            write(key, increment, ReplyShape::Score, parse)
        }
        _ => {
            let add = SortedWrite::Add { pairs, conditions };
            write(key, add, ReplyShape::Added { counts_changed }, parse)
        }
    }
}

/// `ZINCRBY key increment member`.
pub(super) fn zincrby<'i>(mut args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    let [key, delta, member] = first(&mut args);
    let increment = SortedWrite::Increment {
        delta: double(delta).ok_or(text::NOT_A_FLOAT)?,
        member,
        conditions: Conditions::default(),
    };
    write(key, increment, ReplyShape::Score, parse)
}

/// `ZREM key member …`.
pub(super) fn zrem<'i>(args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    batched_if_short(args, parse, parse_zrem)
}

/// `ZREM` of many members.
pub(super) fn zrem_call<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    call(cx, args, parse_zrem);
}

fn parse_zrem<'i>(mut args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    let [key] = first(&mut args);
    let members = parse.scratch.alloc_slice_fill_iter(args);
    write(key, SortedWrite::Remove(members), ReplyShape::Number, parse)
}

/// `ZREMRANGEBYRANK key start stop`.
pub(super) fn zremrangebyrank<'i>(args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    remove_range(args, By::Rank, parse)
}

/// `ZREMRANGEBYSCORE key min max`.
pub(super) fn zremrangebyscore<'i>(args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    remove_range(args, By::Score, parse)
}

/// `ZREMRANGEBYLEX key min max`.
pub(super) fn zremrangebylex<'i>(args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    remove_range(args, By::Lex, parse)
}

fn remove_range<'i>(mut args: Args<'i>, by: By, parse: &Parse<'i>) -> Parsed<'i> {
    let [key, min, max] = first(&mut args);
    let remove = SortedWrite::RemoveRange(by.bounds(min, max)?);
    let operation = operation(key, SortedOp::Write(remove), ReplyShape::Number, parse);
    // It may remove many.
    Ok(Action::Alone(operation))
}

/// The range that a command removes, if its arguments are right.
pub(super) fn removed_range<'i>(name: &str, mut args: Args<'i>) -> Option<Bounds<'i>> {
    let by = match name {
        "zremrangebyrank" => By::Rank,
        "zremrangebyscore" => By::Score,
        "zremrangebylex" => By::Lex,
        _ => return None,
    };
    let [_, min, max] = first(&mut args);
    by.bounds(min, max).ok()
}

/// `ZPOPMIN key [count]`.
pub(super) fn zpopmin<'i>(args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    pop(args, Direction::Ascending, parse)
}

/// `ZPOPMAX key [count]`.
pub(super) fn zpopmax<'i>(args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    pop(args, Direction::Descending, parse)
}

fn pop<'i>(mut args: Args<'i>, direction: Direction, parse: &Parse<'i>) -> Parsed<'i> {
    let [key] = first(&mut args);
    if args.len() > 1 {
        return Err(text::SYNTAX.into());
    }
    let (scores, most) = match args.next() {
        None => (ScoresShown::Flat, 1),
        Some(count) => {
            let count = parse_integer(count).and_then(|count| usize::try_from(count).ok());
            (ScoresShown::Pairs, count.ok_or(error::NOT_POSITIVE)?)
        }
    };
    let shape = ReplyShape::members(scores, parse.limits.resp.max_request);
    let write = SortedOp::Write(SortedWrite::Pop { direction, most });
    let operation = operation(key, write, shape, parse);
    if most > MOST_SHOWN {
        return Ok(Action::Alone(operation));
    }
    operation.into()
}

// ---- reads

/// `ZCARD key`.
pub(super) fn zcard<'i>(mut args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    let [key] = first(&mut args);
    read(key, SortedRead::Len, ReplyShape::Number, parse)
}

/// `ZSCORE key member`.
pub(super) fn zscore<'i>(mut args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    let [key, member] = first(&mut args);
    read(key, SortedRead::Score(member), ReplyShape::Score, parse)
}

/// `ZMSCORE key member …`.
pub(super) fn zmscore<'i>(args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    batched_if_short(args, parse, parse_zmscore)
}

/// `ZMSCORE` of many members.
pub(super) fn zmscore_call<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    call(cx, args, parse_zmscore);
}

fn parse_zmscore<'i>(mut args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    let [key] = first(&mut args);
    let members = parse.scratch.alloc_slice_fill_iter(args);
    read(key, SortedRead::Scores(members), ReplyShape::Score, parse)
}

/// `ZRANK key member`.
pub(super) fn zrank<'i>(args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    rank(args, Direction::Ascending, parse)
}

/// `ZREVRANK key member`.
pub(super) fn zrevrank<'i>(args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    rank(args, Direction::Descending, parse)
}

fn rank<'i>(mut args: Args<'i>, direction: Direction, parse: &Parse<'i>) -> Parsed<'i> {
    let [key, member] = first(&mut args);
    let rank = SortedRead::Rank(member, direction);
    read(key, rank, ReplyShape::Number, parse)
}

/// `ZCOUNT key min max`.
pub(super) fn zcount<'i>(args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    count(args, By::Score, parse)
}

/// `ZLEXCOUNT key min max`.
pub(super) fn zlexcount<'i>(args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    count(args, By::Lex, parse)
}

fn count<'i>(mut args: Args<'i>, by: By, parse: &Parse<'i>) -> Parsed<'i> {
    let [key, min, max] = first(&mut args);
    let bounds = by.bounds(min, max)?;
    read(key, SortedRead::Count(bounds), ReplyShape::Number, parse)
}

/// `ZRANDMEMBER key [count [WITHSCORES]]`.
pub(super) fn zrandmember<'i>(mut args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    let [key] = first(&mut args);
    let random = |count, are_distinct| SortedRead::Random {
        count,
        are_distinct,
        seed: keyspace::random(),
    };
    let Some(count) = args.next() else {
        return read(key, random(1, true), ReplyShape::Member, parse);
    };
    let count = integer(count)?;
    if count == i64::MIN {
        return Err(error::COUNT.into());
    }
    let scores = match args.next() {
        None => ScoresShown::Not,
        Some(option) if option.eq_ignore_ascii_case(b"withscores") && args.len() == 0 => {
            ScoresShown::Pairs
        }
        Some(_) => return Err(text::SYNTAX.into()),
    };
    if scores != ScoresShown::Not && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(error::OUT_OF_RANGE.into());
    }
    let random = SortedOp::Read(random(count.unsigned_abs(), count > 0));
    let shape = ReplyShape::members(scores, parse.limits.resp.max_request);
    let operation = operation(key, random, shape, parse);
    if count.unsigned_abs() > MOST_SHOWN as u64 {
        return Ok(Action::Alone(operation));
    }
    operation.into()
}

/// `ZSCAN key cursor [MATCH pattern] [COUNT count]`.
pub(super) fn zscan<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key, cursor] = first(&mut args);
    let Some(cursor) = keys::parse_cursor(cursor) else {
        return cx.error("ERR invalid cursor");
    };
    let options = keys::ScanOptions::parse(args, false);
    let glob = Glob::new(options.as_ref().map_or(b"*", |options| options.pattern));
    let version = cx.codec.version();
    let (mut text, mut count, mut visited, mut bytes) = (Vec::new(), 0, 0, 0);
    let (mut next, mut part, mut tally) = (cursor.to_bits(), Part::default(), cx.tally);
    loop {
        let mut failure = None;
        let op = SortedOp::Read(SortedRead::Scan);
        cx.operate(tally, key, Verb::Sorted(&op), |outcome| {
            let Outcome::Sorted {
                result: SortedResult::Scan(scan),
                is_found,
                ..
            } = outcome
            else {
                return failure = Some(ReplyForm::error_text(outcome));
            };
            match &options {
                Ok(options) => next = part.read(*scan, next, options.count - visited),
                // Without a set they are not looked at.
                Err(why) => failure = is_found.then_some(*why),
            }
        });
        match (failure, &options) {
            (Some(text), _) if visited == 0 => return cx.error(text),
            (None, Ok(options)) => {
                let (members, looked_at) = (part.places.len(), part.members.len());
                if glob.steps(part.longest()) > glob::MAX_STEPS {
                    return cx.error(error::LONG_MEMBER);
                }
                part.show(|member, score| {
                    if glob.matches(member) {
                        count += 2;
                        Encoder::new(version, &mut text).bulk(member);
                        scanned_score(score, part.is_flat, &mut text);
                    }
                });
                visited += members.max(part.steps);
                bytes += looked_at;
                let is_enough = visited >= options.count || bytes >= keys::ENOUGH_BYTES;
                if next == 0 || is_enough || cx.must_pause() {
                    break;
                }
            }
            // The set was replaced after a part of it, or there is none.
            _ => {
                next = 0;
                break;
            }
        }
        // The parts are one look-up.
        tally = Tally::None;
    }
    let mut reply = cx.reply();
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.array(count);
    cx.out.extend_from_slice(&text);
}

/// Prints a score as Redis's `ZSCAN` does: a bulk string in either version; one that is an integer
/// with all digits if the set is small, because those have integers then.
fn scanned_score(score: f64, is_flat: bool, text: &mut Vec<u8>) {
    /// The first number for which `%.17g` has an exponent.
    const LEAST: f64 = 1e17;
    /// The largest integers in a listpack.
    const MOST: f64 = (1_u64 << 62) as f64;
    let mut encoder = Encoder::new(Version::Resp2, text);
    if is_flat && (LEAST..=MOST).contains(&score.abs()) {
        encoder.bulk((score as i64).to_string().as_bytes());
    } else {
        encoder.double(score);
    }
}

/// A copy of members that `ZSCAN` visits. They are matched when others may have the set again: long
/// patterns take much time for each long member.
#[derive(Default)]
struct Part {
    members: Vec<u8>,
    /// Where each member ends, and its score.
    places: Vec<(usize, f64)>,
    /// How often a step of the scan was asked for.
    steps: usize,
    /// They are those of a small set.
    is_flat: bool,
}

impl Part {
    /// The bytes of members after which a part ends.
    const BYTES: usize = 64 << 10;

    /// Reads up to `most` members, or a few more; returns the cursor of the next part.
    fn read(&mut self, scan: &dyn MemberScan, mut cursor: u64, most: usize) -> u64 {
        self.members.clear();
        self.places.clear();
        self.steps = 0;
        self.is_flat = scan.is_flat();
        for _ in 0..most.min(keys::SCAN_PART) {
            if self.members.len() >= Self::BYTES {
                break;
            }
            // One by one, since members may be long. A step may show none.
            self.steps += 1;
            cursor = scan.step(cursor, 1, &mut |member, score| {
                self.members.extend_from_slice(member);
                self.places.push((self.members.len(), score));
            });
            if cursor == 0 {
                break;
            }
        }
        cursor
    }

    /// The length of the longest member.
    fn longest(&self) -> usize {
        let (mut start, mut longest) = (0, 0);
        for &(end, _) in &self.places {
            (start, longest) = (end, longest.max(end - start));
        }
        longest
    }

    fn show(&self, mut show: impl FnMut(&[u8], f64)) {
        let mut start = 0;
        for &(end, score) in &self.places {
            show(&self.members[start..end], score);
            start = end;
        }
    }
}

// ---- ranges

/// What the bounds of a range are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Rank,
    Score,
    Lex,
}

/// Bounds that contain nothing.
const NOTHING: Bounds<'static> =
    Bounds::Score(Bound::Included(f64::NAN), Bound::Included(f64::NAN));

impl By {
    fn bounds<'i>(self, min: &'i [u8], max: &'i [u8]) -> Result<Bounds<'i>, Failure<'static>> {
        Ok(match self {
            Self::Rank => Bounds::Rank(integer(min)?, integer(max)?),
            Self::Score => Bounds::Score(score_bound(min)?, score_bound(max)?),
            Self::Lex => match (lex_bound(min)?, lex_bound(max)?) {
                (LexBound::Highest, _) | (_, LexBound::Lowest) => NOTHING,
                (min, max) => Bounds::Lex(min.into(), max.into()),
            },
        })
    }
}

/// A bound of scores, as `strtod` reads it: after blanks, up to a NUL, and none at all is 0.
fn score_bound(text: &[u8]) -> Result<Bound<f64>, Failure<'static>> {
    let text = until_nul(text);
    let (is_open, number) = match text {
        [b'(', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let score = match number {
        b"" => Some(0.0),
        _ => super::float::any_double(trim_blanks(number)),
    };
    match score.filter(|score| !score.is_nan()) {
        Some(score) if is_open => Ok(Bound::Excluded(score)),
        Some(score) => Ok(Bound::Included(score)),
        None => Err(error::RANGE.into()),
    }
}

/// The text without what `isspace` accepts at its beginning, the vertical tab included.
fn trim_blanks(text: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let blanks = text.iter().take_while(|byte| is_blank(byte)).count();
    &text[blanks..]
}

/// A bound of members.
enum LexBound<'i> {
    Lowest,
    Highest,
    Included(&'i [u8]),
    Excluded(&'i [u8]),
}

/// A bound of members. A NUL ends the text that means an end of the order, as in Redis, but no
/// member.
fn lex_bound(text: &[u8]) -> Result<LexBound<'_>, Failure<'static>> {
    match text {
        [b'-'] | [b'-', 0, ..] => Ok(LexBound::Lowest),
        [b'+'] | [b'+', 0, ..] => Ok(LexBound::Highest),
        [b'[', member @ ..] => Ok(LexBound::Included(member)),
        [b'(', member @ ..] => Ok(LexBound::Excluded(member)),
        _ => Err(error::LEX_RANGE.into()),
    }
}

impl<'i> From<LexBound<'i>> for Bound<&'i [u8]> {
    fn from(bound: LexBound<'i>) -> Self {
        match bound {
            LexBound::Lowest | LexBound::Highest => Self::Unbounded,
            LexBound::Included(member) => Self::Included(member),
            LexBound::Excluded(member) => Self::Excluded(member),
        }
    }
}

/// `ZRANGE key min max [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]`.
pub(super) fn zrange<'i>(args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    range(args, None, None, parse)
}

/// `ZREVRANGE key start stop [WITHSCORES]`.
pub(super) fn zrevrange<'i>(args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    range(args, Some(By::Rank), Some(Direction::Descending), parse)
}

/// `ZRANGEBYSCORE key min max [WITHSCORES] [LIMIT offset count]`.
pub(super) fn zrangebyscore<'i>(args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    range(args, Some(By::Score), Some(Direction::Ascending), parse)
}

/// `ZREVRANGEBYSCORE key max min [WITHSCORES] [LIMIT offset count]`.
pub(super) fn zrevrangebyscore<'i>(args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    range(args, Some(By::Score), Some(Direction::Descending), parse)
}

/// `ZRANGEBYLEX key min max [LIMIT offset count]`.
pub(super) fn zrangebylex<'i>(args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    range(args, Some(By::Lex), Some(Direction::Ascending), parse)
}

/// `ZREVRANGEBYLEX key max min [LIMIT offset count]`.
pub(super) fn zrevrangebylex<'i>(args: Args<'i>, parse: &Parse<'i>) -> Parsed<'i> {
    range(args, Some(By::Lex), Some(Direction::Descending), parse)
}

/// The commands that show a range. `by` and `direction` are those of the command, if it has no
/// options for them.
fn range<'i>(
    mut args: Args<'i>,
    by: Option<By>,
    direction: Option<Direction>,
    parse: &Parse<'i>,
) -> Parsed<'i> {
    let [key] = first(&mut args);
    let (range, scores) = member_range(args, by, direction, true)?;
    let shape = ReplyShape::members(scores, parse.limits.resp.max_request);
    let operation = operation(key, SortedOp::Read(SortedRead::Range(range)), shape, parse);
    if most_shown(&range) > MOST_SHOWN {
        return Ok(Action::Alone(operation));
    }
    operation.into()
}

/// The range that the arguments behind the key describe, and whether scores are shown, which a
/// command that shows nothing has no option for. `by` and `direction` as in [`range`].
pub(super) fn member_range<'i>(
    mut args: Args<'i>,
    by: Option<By>,
    direction: Option<Direction>,
    is_shown: bool,
) -> Result<(MemberRange<'i>, ScoresShown), Failure<'static>> {
    let [mut min, mut max] = first(&mut args);
    let (mut chosen_by, mut chosen_direction) = (by, direction);
    let (mut with_scores, mut offset, mut limit) = (false, 0, -1);
    while let Some(option) = args.next() {
        match option.to_ascii_lowercase().as_slice() {
            b"withscores" if is_shown => with_scores = true,
            b"limit" if args.len() >= 2 => {
                let [skipped, shown] = first(&mut args);
                (offset, limit) = (integer(skipped)?, integer(shown)?);
            }
            b"rev" if chosen_direction.is_none() => chosen_direction = Some(Direction::Descending),
            b"bylex" if chosen_by.is_none() => chosen_by = Some(By::Lex),
            b"byscore" if chosen_by.is_none() => chosen_by = Some(By::Score),
            _ => return Err(text::SYNTAX.into()),
        }
    }
    let by = chosen_by.unwrap_or(By::Rank);
    let direction = chosen_direction.unwrap_or_default();
    if limit != -1 && by == By::Rank {
        return Err(error::LIMIT.into());
    }
    if with_scores && by == By::Lex {
        return Err(error::WITHSCORES.into());
    }
    if direction == Direction::Descending && by != By::Rank {
        (min, max) = (max, min);
    }
    let bounds = by.bounds(min, max)?;
    let is_nothing = offset < 0 && by != By::Rank;
    let range = MemberRange {
        bounds: if is_nothing { NOTHING } else { bounds },
        direction,
        // By rank, an offset without a limit means nothing.
        skip: if by == By::Rank {
            0
        } else {
            offset.max(0) as usize
        },
        most: usize::try_from(limit).unwrap_or(usize::MAX),
    };
    let scores = if with_scores {
        ScoresShown::Pairs
    } else {
        ScoresShown::Not
    };
    Ok((range, scores))
}

/// The most members that a range may have, as far as that does not depend on the set.
pub(super) fn most_shown(range: &MemberRange<'_>) -> usize {
    let within = match range.bounds {
        Bounds::Rank(first, last) if (first < 0) == (last < 0) => {
            usize::try_from(last.saturating_sub(first).saturating_add(1)).unwrap_or(0)
        }
        _ => usize::MAX,
    };
    within.min(range.most)
}
