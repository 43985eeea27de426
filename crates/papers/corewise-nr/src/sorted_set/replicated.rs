//! The operations of a [`SortedSet`] as methods of a replicated one, and of its handles.

use std::ops::Bound;

use super::operation::{OwnedBounds, Response, ScoredMember, Write};
use super::{Bounds, Conditions, Direction, Inserted, SortedSet, SortedSetError};
use crate::{Handle, NodeReplicated};

impl From<Bounds<'_>> for OwnedBounds {
    fn from(bounds: Bounds<'_>) -> Self {
        fn owned(bound: Bound<&[u8]>) -> Bound<Box<[u8]>> {
            bound.map(Box::from)
        }
        match bounds {
            Bounds::Rank(first, last) => Self::Rank(first, last),
            Bounds::Score(lower, upper) => Self::Score(lower, upper),
            Bounds::Lex(lower, upper) => Self::Lex(owned(lower), owned(upper)),
        }
    }
}

/// The contents of a response of this kind.
macro_rules! contents {
    ($kind:ident of $response:expr) => {
        match $response {
            Response::$kind(contents) => contents,
            other => unreachable!("{other:?} is the response of another operation"),
        }
    };
}

macro_rules! typed {
    ($($(#[$doc:meta])* $type:ty;)+) => {$(
        $(#[$doc])*
        impl $type {
            /// As [`SortedSet::len`].
            #[must_use]
            pub fn len(&self) -> usize {
                self.read_with(SortedSet::len)
            }

            /// As [`SortedSet::is_empty`].
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.read_with(SortedSet::is_empty)
            }

            /// As [`SortedSet::score`].
            #[must_use]
            pub fn score(&self, member: &[u8]) -> Option<f64> {
                self.read_with(|set| set.score(member))
            }

            /// As [`SortedSet::rank`].
            #[must_use]
            pub fn rank(&self, member: &[u8], direction: Direction) -> Option<usize> {
                self.read_with(|set| set.rank(member, direction))
            }

            /// As [`SortedSet::count`].
            #[must_use]
            pub fn count(&self, bounds: Bounds<'_>) -> usize {
                self.read_with(|set| set.count(bounds))
            }

            /// The members that [`SortedSet::range`] yields, after the first `offset`, and no more
            /// than `limit`.
            #[must_use]
            pub fn range(
                &self,
                bounds: Bounds<'_>,
                direction: Direction,
                offset: usize,
                limit: usize,
            ) -> Vec<ScoredMember> {
                self.read_with(|set| {
                    let range = set.range(bounds, direction).skip(offset).take(limit);
                    range.map(|(member, score)| (member.into(), score)).collect()
                })
            }

            /// As [`SortedSet::insert`].
            ///
            /// # Errors
            ///
            /// As there.
            pub fn insert(&self, member: &[u8], score: f64) -> Result<Inserted, SortedSetError> {
                contents!(Inserted of self.write(Write::Insert {
                    member: member.into(),
                    score,
                    conditions: Conditions::default(),
                }))
            }

            /// As [`SortedSet::insert_if`]; a read, if the set stays as it is.
            ///
            /// # Errors
            ///
            /// As there.
            pub fn insert_if(
                &self,
                member: &[u8],
                score: f64,
                conditions: Conditions,
            ) -> Result<Inserted, SortedSetError> {
                contents!(Inserted of self.write_or_read(Write::Insert {
                    member: member.into(),
                    score,
                    conditions,
                }))
            }

            /// As [`SortedSet::increment`].
            ///
            /// # Errors
            ///
            /// As there.
            pub fn increment(&self, member: &[u8], delta: f64) -> Result<f64, SortedSetError> {
                let score = contents!(Incremented of self.write(Write::Increment {
                    member: member.into(),
                    delta,
                    conditions: Conditions::default(),
                }))?;
                Ok(score.expect("nothing is refused without a condition"))
            }

            /// As [`SortedSet::increment_if`]; a read, if the set stays as it is.
            ///
            /// # Errors
            ///
            /// As there.
            pub fn increment_if(
                &self,
                member: &[u8],
                delta: f64,
                conditions: Conditions,
            ) -> Result<Option<f64>, SortedSetError> {
                contents!(Incremented of self.write_or_read(Write::Increment {
                    member: member.into(),
                    delta,
                    conditions,
                }))
            }

            /// As [`SortedSet::remove`]; a read, if the member is absent.
            pub fn remove(&self, member: &[u8]) -> Option<f64> {
                contents!(Score of self.write_or_read(Write::Remove(member.into())))
            }

            /// As [`SortedSet::remove_range`]; a read, if the range is empty.
            pub fn remove_range(&self, bounds: Bounds<'_>) -> usize {
                contents!(Count of self.write_or_read(Write::RemoveRange(bounds.into())))
            }

            /// As [`SortedSet::pop_many`]; a read, if there is nothing to remove.
            pub fn pop_many(&self, direction: Direction, count: usize) -> Vec<ScoredMember> {
                contents!(Entries of self.write_or_read(Write::Pop { direction, count }))
            }

            /// As [`SortedSet::clear`]; returns how many members there were.
            pub fn clear(&self) -> usize {
                contents!(Count of self.write_or_read(Write::Clear))
            }
        }
    )+};
}

typed! {
    /// The operations of a [`SortedSet`]. Others are reads with a closure, see
    /// [`read_with`](NodeReplicated::read_with).
    ///
    /// ```
    /// use corewise_nr::sorted_set::Direction;
    /// use corewise_nr::{NodeReplicated, SortedSet};
    ///
    /// let scores = NodeReplicated::new(|_| SortedSet::new());
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| scores.increment(b"ada", 10.0).unwrap());
    ///     scope.spawn(|| scores.increment(b"ada", 5.0).unwrap());
    /// });
    /// scores.insert(b"grace", 12.0)?;
    /// assert_eq!(scores.score(b"ada"), Some(15.0));
    /// assert_eq!(scores.rank(b"ada", Direction::Descending), Some(0));
    /// assert_eq!(scores.remove(b"grace"), Some(12.0));
    /// # Ok::<(), corewise_nr::sorted_set::SortedSetError>(())
    /// ```
    NodeReplicated<SortedSet>;
    /// The operations of a [`SortedSet`], as those of the replicated one.
    Handle<'_, SortedSet>;
}
