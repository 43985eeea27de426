//! Operations on sorted sets.
//!
//! A [`SortedOp`] has all arguments of its operation, and a [`SortedResult`] all that a reply is
//! made from, so an engine may execute the operation wherever the set is.

pub use corewise_nr::sorted_set::{Bounds, Conditions, Direction, Presence, ScoreChange};

use crate::Deadline;
use corewise_atomic::lock::Mutex;
use std::any::Any;
use std::fmt;

/// An operation on one sorted set.
///
/// A key without an item is an empty set, and a set that becomes empty is removed. A write that
/// adds members to an empty set makes an item that never expires.
///
/// Outcomes: [`Outcome::Sorted`], [`Outcome::WrongKind`]; [`Outcome::OutOfMemory`] and
/// [`Outcome::TooLarge`] of those that may add members. A write that fails leaves the set as it
/// was.
///
/// [`Outcome::Sorted`]: crate::Outcome::Sorted
/// [`Outcome::WrongKind`]: crate::Outcome::WrongKind
/// [`Outcome::OutOfMemory`]: crate::Outcome::OutOfMemory
/// [`Outcome::TooLarge`]: crate::Outcome::TooLarge
#[derive(Clone, Copy, Debug)]
pub enum SortedOp<'a> {
    /// A read.
    Read(SortedRead<'a>),
    /// A write.
    Write(SortedWrite<'a>),
}

/// A read of a sorted set.
#[derive(Clone, Copy, Debug)]
pub enum SortedRead<'a> {
    /// The number of members: [`SortedResult::Number`].
    Len,
    /// Bytes that item and set take: [`SortedResult::Number`].
    Usage,
    /// The score of a member: [`SortedResult::Score`].
    Score(&'a [u8]),
    /// The scores of these members: [`SortedResult::Scores`].
    Scores(&'a [&'a [u8]]),
    /// The number of members before this one: [`SortedResult::Rank`].
    Rank(&'a [u8], Direction),
    /// The number of members within the bounds: [`SortedResult::Number`].
    Count(Bounds<'a>),
    /// Members within the bounds: [`SortedResult::Members`].
    Range(MemberRange<'a>),
    /// Members drawn at random: [`SortedResult::Members`].
    Random {
        /// Their number; fewer if the set has fewer, or none.
        count: u64,
        /// Each is drawn once at most. Otherwise each is drawn from all members.
        are_distinct: bool,
        /// What is drawn depends on this number.
        seed: u64,
    },
    /// Some of all members, in an order that stays while others come and go:
    /// [`SortedResult::Scan`].
    Scan,
}

/// A part of the members within bounds.
#[derive(Clone, Copy, Debug)]
pub struct MemberRange<'a> {
    /// The bounds.
    pub bounds: Bounds<'a>,
    /// The order of the members, and the end from which ranks are counted.
    pub direction: Direction,
    /// The number of members to leave out first.
    pub skip: usize,
    /// The most members to show.
    pub most: usize,
}

/// A change of a sorted set.
#[derive(Clone, Copy, Debug)]
pub enum SortedWrite<'a> {
    /// Adds members or changes their scores; the scores are numbers: [`SortedResult::Inserted`].
    Add {
        /// Scores and members.
        pairs: &'a [(f64, &'a [u8])],
        /// Which of them may change.
        conditions: Conditions,
    },
    /// Adds to the score of a member, which is 0 if the member is absent: [`SortedResult::Score`],
    /// without a score if the conditions do not hold; or [`SortedResult::NotANumber`]. A zero has
    /// no sign in a set, but the score of a new member is reported with the sign of `delta`.
    Increment {
        /// What to add; a number.
        delta: f64,
        /// The member.
        member: &'a [u8],
        /// Whether the member may change.
        conditions: Conditions,
    },
    /// Removes members: [`SortedResult::Number`].
    Remove(&'a [&'a [u8]]),
    /// Removes the members within the bounds, whose ranks are counted from the lowest score:
    /// [`SortedResult::Number`].
    RemoveRange(Bounds<'a>),
    /// Removes members from one end and shows them: [`SortedResult::Members`]. Removes none if
    /// they are not all shown, for lack of room in the reply.
    Pop {
        /// The order of the members, of which the first ones are removed.
        direction: Direction,
        /// The most members to remove.
        most: usize,
    },
    /// Fills the slot from the item, and reports the number of members: [`SortedResult::Number`].
    Take {
        /// What is filled.
        slot: &'a SetSlot,
        /// What it gets.
        taken: Taken,
    },
    /// Replaces the item, of whatever kind, by one with the set in the slot:
    /// [`SortedResult::Number`]. If it fails, the slot is as it was.
    Put {
        /// Where the set comes from.
        slot: &'a SetSlot,
        /// When the new item expires.
        deadline: Deadline,
    },
    /// Adds members to the set in the slot, which the first such write makes there, whatever the
    /// key has: [`SortedResult::Number`], of the members in the slot. The bytes of the set are
    /// counted as those of a copy. If it fails, the slot has the members that it had before, or
    /// more.
    Gather {
        /// What gets the members.
        slot: &'a SetSlot,
        /// Scores, which are numbers, and members.
        pairs: &'a [(f64, &'a [u8])],
    },
    /// Empties the slot that has had a copy of the item, or of one that the key had before:
    /// [`SortedResult::Number`] 0. The bytes of the copy are no longer counted, but for an item
    /// that has it.
    EndCopy(&'a SetSlot),
}

/// What [`SortedWrite::Take`] takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A copy of the set, whose bytes are counted before there is one.
    Copy,
    /// What a new item for the set has to know. The item stays as it is.
    Claim,
    /// The set. The item is removed.
    Set,
}

/// The place of a set between [`SortedWrite::Take`] and [`SortedWrite::Put`] of the same engine.
///
/// A set is copied in three steps: a [`Taken::Copy`] is taken from the first key and put under the
/// second; then follows [`SortedWrite::EndCopy`] of the first key, also if the set was not put.
///
/// A new set is made in the same way: [`SortedWrite::Gather`], as often as needed, then the other
/// two steps, all of the key that gets the set.
///
/// A set moves in four steps: a [`Taken::Claim`] is taken from the first key and put under the
/// second, then a [`Taken::Set`]. Only the first `Put` may find no memory, and has changed nothing
/// then. The second does nothing if the second key has lost its item since the first.
///
/// Between the steps no one else may write to the keys.
pub struct SetSlot(Mutex<Option<Box<dyn Any + Send>>>);

impl SetSlot {
    /// An empty slot.
    #[must_use]
    pub fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Fills the slot. For engines.
    pub fn fill(&self, set: Box<dyn Any + Send>) {
        *self.0.lock() = Some(set);
    }

    /// Empties the slot. For engines.
    pub fn take(&self) -> Option<Box<dyn Any + Send>> {
        self.0.lock().take()
    }
}

impl Default for SetSlot {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SetSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SetSlot")
    }
}

/// What a [`SortedOp`] reports.
#[derive(Clone, Copy)]
pub enum SortedResult<'a> {
    /// A number of members or bytes.
    Number(u64),
    /// What became of the members of [`SortedWrite::Add`].
    Inserted {
        /// Members that were absent.
        added: u64,
        /// Members that have another score now.
        changed: u64,
    },
    /// A score, unless there is none.
    Score(Option<f64>),
    /// The scores of several members.
    Scores(&'a dyn Scores),
    /// A rank, unless the member is absent.
    Rank(Option<u64>),
    /// Members with their scores.
    Members(&'a dyn Members),
    /// What a scan is continued with.
    Scan(&'a dyn MemberScan),
    /// The score would not be a number, so nothing was changed.
    NotANumber,
}

impl fmt::Debug for SortedResult<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "Number({number})"),
            Self::Inserted { added, changed } => write!(f, "Inserted({added}, {changed})"),
            Self::Score(score) => write!(f, "Score({score:?})"),
            Self::Scores(scores) => write!(f, "Scores({})", scores.len()),
            Self::Rank(rank) => write!(f, "Rank({rank:?})"),
            Self::Members(members) => write!(f, "Members({})", members.len()),
            Self::Scan(_) => f.write_str("Scan"),
            Self::NotANumber => f.write_str("NotANumber"),
        }
    }
}

/// Members that an engine shows.
pub trait Members {
    /// Their number.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shows each in its order, until `show` returns false.
    fn show(&self, show: &mut dyn FnMut(&[u8], f64) -> bool);
}

/// A set that is scanned.
pub trait MemberScan {
    /// Shows about `count` members and returns the cursor to continue with, or 0 after the last
    /// one. A scan begins with 0. From there to the end it shows each member that stays in the set
    /// at least once.
    fn step(&self, cursor: u64, count: usize, show: &mut dyn FnMut(&[u8], f64)) -> u64;

    /// Whether the set is of the kind [`ItemKind::FlatSet`](crate::ItemKind::FlatSet).
    fn is_flat(&self) -> bool;
}

/// Scores that an engine shows.
pub trait Scores {
    /// Their number.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shows the score of each member, `None` for an absent one.
    fn show(&self, show: &mut dyn FnMut(Option<f64>));
}
