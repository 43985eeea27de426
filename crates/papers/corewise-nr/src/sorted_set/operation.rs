//! The operations of a [`SortedSet`] as values, so that it can be replicated.
//!
//! Members in operations and responses are owned, because an operation outlives its caller's
//! borrows, and a response the replica's lock.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;

use super::{Conditions, Direction, Inserted, Presence, SortedSet, SortedSetError};
use crate::baseline::{Batch, Combine};
use crate::{Operation, Sequential};

/// A member with its score.
pub type ScoredMember = (Box<[u8]>, f64);

/// [`super::Bounds`] with owned members.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnedBounds {
    /// See [`super::Bounds::Rank`].
    Rank(i64, i64),
    /// See [`super::Bounds::Score`].
    Score(Bound<f64>, Bound<f64>),
    /// See [`super::Bounds::Lex`].
    Lex(Bound<Box<[u8]>>, Bound<Box<[u8]>>),
}

impl OwnedBounds {
    fn borrow(&self) -> super::Bounds<'_> {
        fn borrow(bound: &Bound<Box<[u8]>>) -> Bound<&[u8]> {
            bound.as_ref().map(|member| &member[..])
        }
        match self {
            &Self::Rank(first, last) => super::Bounds::Rank(first, last),
            &Self::Score(lower, upper) => super::Bounds::Score(lower, upper),
            Self::Lex(lower, upper) => super::Bounds::Lex(borrow(lower), borrow(upper)),
        }
    }
}

/// An operation that does not change the set.
#[derive(Clone, Debug, PartialEq)]
pub enum Read {
    /// [`SortedSet::len`]; the response is [`Response::Count`].
    Len,
    /// [`SortedSet::score`]; the response is [`Response::Score`].
    Score(Box<[u8]>),
    /// [`SortedSet::rank_and_score`]; the response is [`Response::Rank`].
    Rank(Box<[u8]>, Direction),
    /// [`SortedSet::at`]; the response is [`Response::Entries`], with one entry at most.
    At(usize, Direction),
    /// [`SortedSet::count`]; the response is [`Response::Count`].
    Count(OwnedBounds),
    /// [`SortedSet::range`]; the response is [`Response::Entries`].
    Range {
        /// Which members.
        bounds: OwnedBounds,
        /// In which order.
        direction: Direction,
        /// How many members to leave out first.
        offset: usize,
        /// The most members to return.
        limit: usize,
    },
    /// [`SortedSet::scan`]; the response is [`Response::Scanned`].
    Scan {
        /// 0, or the cursor of the last response.
        cursor: u64,
        /// The number of members to look at.
        count: usize,
    },
}

/// An operation that may change the set.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// [`SortedSet::insert_if`]; the response is [`Response::Inserted`].
    Insert {
        /// Which member.
        member: Box<[u8]>,
        /// Its score.
        score: f64,
        /// When to insert it.
        conditions: Conditions,
    },
    /// [`SortedSet::increment_if`]; the response is [`Response::Incremented`].
    Increment {
        /// Which member.
        member: Box<[u8]>,
        /// What to add to its score.
        delta: f64,
        /// When to change it.
        conditions: Conditions,
    },
    /// [`SortedSet::remove`]; the response is [`Response::Score`].
    Remove(Box<[u8]>),
    /// [`SortedSet::remove_range`]; the response is [`Response::Count`].
    RemoveRange(OwnedBounds),
    /// [`SortedSet::pop_many`]; the response is [`Response::Entries`].
    Pop {
        /// From which end.
        direction: Direction,
        /// The most members to remove.
        count: usize,
    },
    /// [`SortedSet::clear`]; the response is [`Response::Count`] with the number of members that
    /// there were.
    Clear,
}

/// What an operation returns.
#[derive(Clone, Debug, PartialEq)]
pub enum Response {
    /// A number of members.
    Count(usize),
    /// The score of a member, or its last score; `None` if the member was absent.
    Score(Option<f64>),
    /// The rank and the score of a member; `None` if it was absent.
    Rank(Option<(usize, f64)>),
    /// Members and their scores, in the order asked for.
    Entries(Vec<ScoredMember>),
    /// A part of the members.
    Scanned {
        /// The cursor for the next call; 0 after the last.
        cursor: u64,
        /// The members found.
        entries: Vec<ScoredMember>,
    },
    /// What an insertion did.
    Inserted(Result<Inserted, SortedSetError>),
    /// The new score, or `None` if a condition did not hold.
    Incremented(Result<Option<f64>, SortedSetError>),
}

fn owned((member, score): (&[u8], f64)) -> ScoredMember {
    (member.into(), score)
}

/// Increments of one member move it once.
impl Combine for SortedSet {
    fn combine(&mut self, batch: &mut Batch<Self>) {
        fn increment(batch: &Batch<SortedSet>, place: usize) -> Option<(&[u8], f64)> {
            match batch.operation(place) {
                Operation::Write(Write::Increment {
                    member,
                    delta,
                    conditions,
                }) if *conditions == Conditions::default() => Some((member, *delta)),
                _ => None,
            }
        }
        let member = |batch: &Batch<Self>, place| Some(Box::from(increment(batch, place)?.0));
        for places in batch.groups::<Box<[u8]>>(member) {
            let all = || places.iter().filter_map(|place| increment(batch, *place));
            let Some((member, _)) = all().next() else {
                continue;
            };
            let scores = self.increment_all(member, all().map(|(_, delta)| delta));
            for (place, score) in places.into_iter().zip(scores.into_iter().flatten()) {
                batch.answer(place, Response::Incremented(Ok(Some(score))));
            }
        }
    }
}

impl Sequential for SortedSet {
    type Read = Read;
    type Write = Write;
    type Response = Response;

    fn read(&self, operation: &Read) -> Response {
        match operation {
            Read::Len => Response::Count(self.len()),
            Read::Score(member) => Response::Score(self.score(member)),
            Read::Rank(member, direction) => {
                Response::Rank(self.rank_and_score(member, *direction))
            }
            Read::At(rank, direction) => {
                Response::Entries(self.at(*rank, *direction).map(owned).into_iter().collect())
            }
            Read::Count(bounds) => Response::Count(self.count(bounds.borrow())),
            Read::Range {
                bounds,
                direction,
                offset,
                limit,
            } => {
                let range = self.range(bounds.borrow(), *direction);
                Response::Entries(range.skip(*offset).take(*limit).map(owned).collect())
            }
            Read::Scan { cursor, count } => {
                let mut entries = Vec::new();
                let cursor = self.scan(*cursor, *count, |member, score| {
                    entries.push((member.into(), score));
                });
                Response::Scanned { cursor, entries }
            }
        }
    }

    fn write(&mut self, operation: &Write) -> Response {
        match operation {
            Write::Insert {
                member,
                score,
                conditions,
            } => Response::Inserted(self.insert_if(member, *score, *conditions)),
            Write::Increment {
                member,
                delta,
                conditions,
            } => Response::Incremented(self.increment_if(member, *delta, *conditions)),
            Write::Remove(member) => Response::Score(self.remove(member)),
            Write::RemoveRange(bounds) => Response::Count(self.remove_range(bounds.borrow())),
            Write::Pop { direction, count } => Response::Entries(self.pop_many(*direction, *count)),
            Write::Clear => {
                let len = self.len();
                self.clear();
                Response::Count(len)
            }
        }
    }

    /// Answers removals of absent members, and insertions and increments that are refused, fail or
    /// keep the score.
    fn write_as_read(&self, operation: &Write) -> Option<Response> {
        match operation {
            Write::Insert {
                member,
                score,
                conditions,
            } => Some(Response::Inserted(self.insert_as_read(
                member,
                *score,
                *conditions,
            )?)),
            Write::Increment {
                member,
                delta,
                conditions,
            } => Some(Response::Incremented(self.increment_as_read(
                member,
                *delta,
                *conditions,
            )?)),
            Write::Remove(member) => (!self.contains(member)).then_some(Response::Score(None)),
            Write::RemoveRange(bounds) => {
                (self.count(bounds.borrow()) == 0).then_some(Response::Count(0))
            }
            Write::Pop { count, .. } => {
                (*count == 0 || self.is_empty()).then(|| Response::Entries(Vec::new()))
            }
            Write::Clear => self.is_empty().then_some(Response::Count(0)),
        }
    }

    /// A checksum of the members, their scores, and the ids of their records in both the index and
    /// the tree.
    fn digest(&self) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        for id in self.tree.ids(0..self.len()) {
            let (member, score) = self.items.records.item(id);
            (id, member, score.to_bits()).hash(&mut hasher);
        }
        for id in self.items.index.ids() {
            id.hash(&mut hasher);
        }
        Some(hasher.finish())
    }
}

impl SortedSet {
    /// The result of [`insert_if`](Self::insert_if), unless it would change the set.
    fn insert_as_read(
        &self,
        member: &[u8],
        score: f64,
        conditions: Conditions,
    ) -> Option<Result<Inserted, SortedSetError>> {
        if score.is_nan() {
            return Some(Err(SortedSetError::NotANumber));
        }
        match self.score(member) {
            Some(old) if !conditions.allow(old, score) => Some(Ok(Inserted::Refused)),
            Some(old) => (old == score).then_some(Ok(Inserted::Unchanged)),
            None if !conditions.allow_adding() => Some(Ok(Inserted::Refused)),
            None => (self.len() >= self.limit).then_some(Err(SortedSetError::Full)),
        }
    }

    /// The result of [`increment_if`](Self::increment_if), unless it would change the set.
    fn increment_as_read(
        &self,
        member: &[u8],
        delta: f64,
        conditions: Conditions,
    ) -> Option<Result<Option<f64>, SortedSetError>> {
        if delta.is_nan() {
            return Some(Err(SortedSetError::NotANumber));
        }
        match self.score(member) {
            Some(_) if conditions.presence == Presence::Absent => Some(Ok(None)),
            Some(old) if (old + delta).is_nan() => Some(Err(SortedSetError::NotANumber)),
            Some(old) if !conditions.allow(old, old + delta) => Some(Ok(None)),
            Some(old) => (old + delta == old).then_some(Ok(Some(old + delta))),
            None if !conditions.allow_adding() => Some(Ok(None)),
            None => (self.len() >= self.limit).then_some(Err(SortedSetError::Full)),
        }
    }
}
