//! Prints the outcomes of operations.

use super::table::Command;
use crate::codec::Parse;
use corewise_ops::sorted::{Members, SortedResult};
use corewise_ops::{ItemKind, ItemView, Now, Outcome};
use corewise_wire::Tally;
use corewise_wire::resp::{Encoder, Version};

/// Which reply an operation has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyShape {
    /// The value, or null.
    Value,
    /// The value, or null also if the item is no string.
    StringOrNull,
    /// The bytes of the value from the first place to the second, both included; negative places
    /// count from the end.
    Range(i32, i32),
    /// `OK`.
    Ok,
    /// `OK`, or null if the condition does not hold.
    OkOrNull,
    /// The length of the value.
    Length,
    /// 1 if the item was found, stored or deleted, otherwise 0.
    Flag,
    /// The type of the value.
    Type,
    /// The time to the deadline in seconds, -1 if there is none, -2 without an item.
    SecondsLeft,
    /// The time to the deadline in milliseconds, -1 if there is none, -2 without an item.
    MillisecondsLeft,
    /// The deadline as a Unix time in seconds, -1 if there is none, -2 without an item.
    UnixSeconds(ClockStart),
    /// The deadline as a Unix time in milliseconds, -1 if there is none, -2 without an item.
    UnixMilliseconds(ClockStart),
    /// The bit of the value at this offset, 0 behind the end.
    Bit(u32),
    /// What an edit reports, or a number or a rank of a sorted set.
    Number,
    /// The number of members that were added, or also of those whose scores have changed.
    Added { counts_changed: bool },
    /// A score, or the scores of several members.
    Score,
    /// The first member, or null.
    Member,
    /// Members; an error if the reply is longer than `most` bytes.
    Members { scores: ScoresShown, most: u32 },
    /// The value before an edit, or null.
    Old,
}

/// How a reply has the scores of its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScoresShown {
    Not,
    /// Behind each member.
    Flat,
    /// The same, but in RESP3 each member and its score are an array.
    Pairs,
    /// Each member and its score are an array, in RESP2 too.
    Nested,
}

impl ReplyShape {
    pub(super) fn members(scores: ScoresShown, most: usize) -> Self {
        Self::Members {
            scores,
            most: u32::try_from(most).unwrap_or(u32::MAX),
        }
    }
}

/// The Unix time at which the clock of deadlines was zero, in milliseconds. Packed, so that it
/// makes no form longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(Rust, packed(4))]
pub(super) struct ClockStart(u64);

impl ClockStart {
    pub(super) fn of(parse: &Parse<'_>) -> Self {
        Self(parse.unix_ms.wrapping_sub(parse.now.ms))
    }

    /// The Unix time of the item's deadline in milliseconds.
    fn unix_ms(self, item: &ItemView<'_>, now: Now) -> Option<u64> {
        let left = item.deadline.remaining_ms(now)?;
        Some(self.0.wrapping_add(now.ms).saturating_add(left))
    }
}

/// The bytes of [`ReplyShape::Range`].
fn range(value: &[u8], start: i32, end: i32) -> &[u8] {
    let len = value.len() as i64;
    let place = |at: i32| {
        let at = i64::from(at);
        if at < 0 { (at + len).max(0) } else { at }
    };
    let (start, end) = (place(start), place(end).min(len - 1));
    if start > end {
        return b"";
    }
    value.get(start as usize..=end as usize).unwrap_or(b"")
}

/// How to print the outcome of one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyForm<'i> {
    pub(super) key: &'i [u8],
    pub(super) kind: ReplyShape,
    pub(super) version: Version,
    pub(super) tally: Tally,
    pub(super) command: Command,
    /// It is a part of a call whose last operation counts as the call.
    pub(super) is_part: bool,
}

impl<'i> ReplyForm<'i> {
    /// The form for a call, whose reply may have `most` bytes.
    pub(super) fn with_room(mut self, most: usize) -> Self {
        if let ReplyShape::Members { scores, .. } = self.kind {
            self.kind = ReplyShape::members(scores, most);
        }
        self
    }

    /// Whether it shows members of a set within a range.
    pub(super) fn is_range(&self) -> bool {
        matches!(self.kind, ReplyShape::Members { .. })
    }

    /// The key.
    #[inline]
    pub(crate) fn key(&self) -> &'i [u8] {
        self.key
    }

    /// The same form with a copy of the key, so that it may outlive the request.
    pub(crate) fn with_key<'o>(&self, key: &'o [u8]) -> ReplyForm<'o> {
        ReplyForm { key, ..*self }
    }

    /// The command that the operation counts as a call of.
    #[inline]
    pub(super) fn command(&self) -> Command {
        self.command
    }

    /// How many calls of its command the operation completes.
    #[inline]
    pub(super) fn calls(&self) -> u64 {
        u64::from(!self.is_part)
    }

    /// What the operation counts as.
    #[inline]
    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// Appends the reply to `out`.
    #[inline]
    pub(crate) fn encode(&self, outcome: &Outcome<'_>, now: Now, out: &mut Vec<u8>) {
        let mut reply = Encoder::new(self.version, out);
        match (self.kind, outcome) {
            (ReplyShape::Value | ReplyShape::StringOrNull, Outcome::Found(view)) => {
                reply.bulk(view.value);
            }
            (ReplyShape::Value | ReplyShape::StringOrNull, Outcome::Missing(_)) => reply.null(),
            (ReplyShape::Ok, Outcome::Stored(_)) => reply.fixed(b"+OK\r\n"),
            _ => self.encode_rarer(outcome, now, out),
        }
    }

    fn encode_rarer(&self, outcome: &Outcome<'_>, now: Now, out: &mut Vec<u8>) {
        let mut reply = Encoder::new(self.version, out);
        match (self.kind, outcome) {
            (ReplyShape::Range(start, end), Outcome::Found(view)) => {
                reply.bulk(range(view.value, start, end));
            }
            (ReplyShape::Range(..), Outcome::Missing(_)) => reply.bulk(b""),
            (ReplyShape::OkOrNull, Outcome::Stored(_) | Outcome::Edited { number: 1, .. }) => {
                reply.fixed(b"+OK\r\n");
            }
            (ReplyShape::OkOrNull, Outcome::NotStored | Outcome::Edited { .. }) => reply.null(),
            (ReplyShape::Length, Outcome::Found(view) | Outcome::Stored(view)) => {
                reply.integer(view.value.len() as i64);
            }
            (ReplyShape::Flag, Outcome::Found(_) | Outcome::Stored(_) | Outcome::Deleted) => {
                reply.fixed(b":1\r\n");
            }
            (ReplyShape::Length | ReplyShape::Flag, Outcome::Missing(_) | Outcome::NotStored) => {
                reply.fixed(b":0\r\n");
            }
            (ReplyShape::StringOrNull, Outcome::WrongKind) => reply.null(),
            (ReplyShape::Type, Outcome::Found(view)) => reply.simple(type_name(view.kind)),
            (ReplyShape::Type, Outcome::Missing(_)) => reply.fixed(b"+none\r\n"),
            (ReplyShape::MillisecondsLeft, Outcome::Found(view)) => {
                reply.integer(ms_left(view, now).unwrap_or(-1));
            }
            (ReplyShape::SecondsLeft, Outcome::Found(view)) => {
                let rounded = |ms: i64| ms.saturating_add(500) / 1000;
                reply.integer(ms_left(view, now).map_or(-1, rounded));
            }
            (ReplyShape::UnixMilliseconds(start), Outcome::Found(view)) => {
                reply.integer(start.unix_ms(view, now).map_or(-1, |ms| ms as i64));
            }
            (ReplyShape::UnixSeconds(start), Outcome::Found(view)) => {
                let rounded = |ms: u64| (ms.saturating_add(500) / 1000) as i64;
                reply.integer(start.unix_ms(view, now).map_or(-1, rounded));
            }
            (
                ReplyShape::SecondsLeft
                | ReplyShape::MillisecondsLeft
                | ReplyShape::UnixSeconds(_)
                | ReplyShape::UnixMilliseconds(_),
                Outcome::Missing(_),
            ) => reply.fixed(b":-2\r\n"),
            (ReplyShape::Bit(offset), Outcome::Found(view)) => {
                reply.integer(bit(view.value, offset.into()).into());
            }
            (ReplyShape::Bit(_), Outcome::Missing(_)) => reply.fixed(b":0\r\n"),
            (ReplyShape::Number, Outcome::Edited { number, .. }) => reply.integer(*number),
            (_, Outcome::Sorted { result, .. }) => self.encode_sorted(result, out),
            (ReplyShape::Old, Outcome::Edited { old: None, .. }) => reply.null(),
            (ReplyShape::Old, Outcome::Edited { old: Some(old), .. }) => reply.bulk(old),
            _ => reply.error(&[Self::error_text(outcome).as_bytes()]),
        }
    }

    fn encode_sorted(&self, result: &SortedResult<'_>, out: &mut Vec<u8>) {
        let mut reply = Encoder::new(self.version, out);
        match (self.kind, *result) {
            (ReplyShape::Added { counts_changed }, SortedResult::Inserted { added, changed }) => {
                let changed = if counts_changed { changed } else { 0 };
                reply.integer((added + changed) as i64);
            }
            (_, SortedResult::Number(number) | SortedResult::Rank(Some(number))) => {
                reply.integer(number as i64);
            }
            (_, SortedResult::Rank(None) | SortedResult::Score(None)) => reply.null(),
            (_, SortedResult::Score(Some(score))) => reply.double(score),
            (_, SortedResult::Scores(scores)) => {
                reply.array(scores.len());
                scores.show(&mut |score| match score {
                    Some(score) => reply.double(score),
                    None => reply.null(),
                });
            }
            (ReplyShape::Members { scores, most }, SortedResult::Members(members)) => {
                encode_members(members, scores, most as usize, self.version, out);
            }
            (ReplyShape::Member, SortedResult::Members(members)) if members.is_empty() => {
                reply.null();
            }
            (ReplyShape::Member, SortedResult::Members(members)) => {
                members.show(&mut |member, _| {
                    Encoder::new(self.version, out).bulk(member);
                    false
                });
            }
            (_, SortedResult::NotANumber) => {
                reply.error(&[NOT_A_NUMBER.as_bytes()]);
            }
            (
                _,
                SortedResult::Members(_) | SortedResult::Scan(_) | SortedResult::Inserted { .. },
            ) => {
                debug_assert!(false, "the shape of {result:?}");
                reply.error(&[UNEXPECTED.as_bytes()]);
            }
        }
    }

    /// Appends the head of a value, and returns the value and what follows it; or appends the whole
    /// reply if it has no value.
    pub(crate) fn encode_parts<'v>(
        &self,
        outcome: &Outcome<'v>,
        now: Now,
        out: &mut Vec<u8>,
    ) -> Option<(&'v [u8], &'static [u8])> {
        let (ReplyShape::Value | ReplyShape::StringOrNull, Outcome::Found(view)) =
            (self.kind, outcome)
        else {
            self.encode(outcome, now, out);
            return None;
        };
        Encoder::new(self.version, out).bulk_head(view.value.len());
        Some((view.value, b"\r\n"))
    }

    /// The error text that the outcome is printed as, if it is a failure.
    #[inline]
    pub(super) fn failure(&self, outcome: &Outcome<'_>) -> Option<&'static str> {
        let fails = match outcome {
            Outcome::Found(_) | Outcome::Stored(_) | Outcome::Missing(_) => false,
            Outcome::OutOfMemory
            | Outcome::TooLarge
            | Outcome::NonNumeric
            | Outcome::Refused(_) => true,
            Outcome::WrongKind => self.kind != ReplyShape::StringOrNull,
            Outcome::Sorted {
                result: SortedResult::NotANumber,
                ..
            } => return Some(NOT_A_NUMBER),
            _ => false,
        };
        fails.then(|| Self::error_text(outcome))
    }

    /// The error text for an operation that failed, without `-` and line break.
    pub(crate) fn error_text(outcome: &Outcome<'_>) -> &'static str {
        match outcome {
            Outcome::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.",
            Outcome::TooLarge => "ERR key or value exceeds the maximum size of an item",
            Outcome::NonNumeric => "ERR value is not an integer or out of range",
            Outcome::Refused(why) => why,
            Outcome::WrongKind => {
                "WRONGTYPE Operation against a key holding the wrong kind of value"
            }
            Outcome::Found(_)
            | Outcome::Stored(_)
            | Outcome::Counter { .. }
            | Outcome::Deleted
            | Outcome::Missing(_)
            | Outcome::NotStored
            | Outcome::Edited { .. }
            | Outcome::Sorted { .. }
            | Outcome::Filter { .. }
            | Outcome::Exists => UNEXPECTED,
        }
    }
}

/// The bit, 0 behind the end.
pub(super) fn bit(value: &[u8], at: u64) -> bool {
    let byte = value.get((at >> 3) as usize);
    byte.is_some_and(|byte| byte >> (7 - at % 8) & 1 == 1)
}

/// Why members are not shown.
const TOO_LONG: &str = "ERR the members take too much memory for one reply, ask for fewer";

const NOT_A_NUMBER: &str = "ERR resulting score is not a number (NaN)";
const UNEXPECTED: &str = "ERR the engine gave an unexpected answer";

/// The name of a kind, as `TYPE` tells it.
pub(super) fn type_name(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::String => "string",
        ItemKind::FlatSet | ItemKind::Set => "zset",
        ItemKind::Filter => "MBbloomCF",
    }
}

/// The bytes of the shortest member in a reply: `$0` and two line breaks.
const LEAST_MEMBER: usize = 6;

/// As many bytes of members are always shown: more than those of a flat set, which are already
/// removed when a pop shows them.
const ALWAYS_SHOWN: usize = 16 << 10;

/// Appends members as an array, of pairs if RESP3 has scores; an error instead of more than `most`
/// bytes.
pub(super) fn encode_members(
    members: &dyn Members,
    scores: ScoresShown,
    most: usize,
    version: Version,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    let most = ALWAYS_SHOWN.max(most);
    let are_pairs =
        scores == ScoresShown::Nested || scores == ScoresShown::Pairs && version == Version::Resp3;
    let with_scores = scores != ScoresShown::Not;
    let elements = if with_scores && !are_pairs { 2 } else { 1 };
    // A set of which only a part has room is not read for nothing.
    let mut is_too_long = members.len().saturating_mul(LEAST_MEMBER) > most;
    Encoder::new(version, out).array(members.len().saturating_mul(elements));
    members.show(&mut |member, score| {
        is_too_long |= out.len() - start + member.len() > most;
        if is_too_long {
            return false;
        }
        let mut reply = Encoder::new(version, out);
        if are_pairs {
            reply.array(2);
        }
        reply.bulk(member);
        if with_scores {
            reply.double(score);
        }
        true
    });
    if is_too_long {
        out.truncate(start);
        Encoder::new(version, out).error(&[TOO_LONG.as_bytes()]);
    }
}

/// Milliseconds until an item expires.
fn ms_left(item: &ItemView<'_>, now: Now) -> Option<i64> {
    item.deadline.remaining_ms(now).map(|ms| ms as i64)
}
