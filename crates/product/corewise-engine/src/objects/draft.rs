//! A set while it is changed: a flat one as a copy, which becomes a larger one when it must.

use super::{Object, Set, flat};
use corewise_nr::SetMemory;
use corewise_nr::sorted_set::{
    Bounds, Conditions, Inserted, MAX_MEMBERS, SortedSet, SortedSetError,
};
use corewise_ops::ItemKind;

/// A set that can be changed.
pub(super) trait Changeable {
    fn insert(
        &mut self,
        member: &[u8],
        score: f64,
        conditions: Conditions,
    ) -> Result<Inserted, SortedSetError>;

    /// The score before, if the member was present, and after; `None` if the conditions do not
    /// hold.
    fn increment(
        &mut self,
        member: &[u8],
        delta: f64,
        conditions: Conditions,
    ) -> Result<Option<(Option<f64>, f64)>, SortedSetError>;

    /// Returns whether the member was there.
    fn remove(&mut self, member: &[u8]) -> bool;

    /// Removes the members within the bounds; returns their number.
    fn remove_range(&mut self, bounds: Bounds<'_>) -> usize;
}

impl Changeable for SortedSet {
    fn insert(
        &mut self,
        member: &[u8],
        score: f64,
        conditions: Conditions,
    ) -> Result<Inserted, SortedSetError> {
        self.insert_if(member, score, conditions)
    }

    fn increment(
        &mut self,
        member: &[u8],
        delta: f64,
        conditions: Conditions,
    ) -> Result<Option<(Option<f64>, f64)>, SortedSetError> {
        self.increment_from(member, delta, conditions)
    }

    fn remove(&mut self, member: &[u8]) -> bool {
        SortedSet::remove(self, member).is_some()
    }

    fn remove_range(&mut self, bounds: Bounds<'_>) -> usize {
        self.detach_range(bounds)
    }
}

/// See the module.
pub(super) enum Draft {
    /// With the memory of the set that it may become.
    Flat(Vec<u8>, SetMemory),
    Set(Set),
}

/// What is in a slot: the steps of a move are those of [`SetSlot`](corewise_ops::sorted::SetSlot).
pub(super) enum Slotted {
    /// A copy of a flat set, which is moved as one too, or a new flat set.
    Flat(Vec<u8>),
    /// A copy of an object, or a new one, until it is put, and the bytes that this account counts
    /// for it.
    Copy {
        object: Option<Object>,
        bytes: usize,
        account: usize,
    },
    Claim(Claimed),
    /// The second key has an item with an empty object. Its account may be that of the first.
    Ready {
        is_same_account: bool,
    },
    /// The object, and the bytes by which the account of both keys counts more than their items
    /// have.
    Moved {
        object: Object,
        carried: usize,
    },
}

/// An object that is about to move: its bytes, and the account that counts them.
#[derive(Clone, Copy)]
pub(super) struct Claimed {
    pub(super) kind: ItemKind,
    pub(super) bytes: usize,
    pub(super) account: usize,
}

impl Draft {
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Flat(bytes, _) => bytes.is_empty(),
            Self::Set(set) => set.is_empty(),
        }
    }

    /// Gives a member a score, whether it is there or not.
    pub(super) fn set_score(&mut self, member: &[u8], score: f64) -> Result<(), SortedSetError> {
        if let Self::Flat(bytes, memory) = self {
            flat::remove(bytes, member);
            if flat::add(bytes, member, score) {
                return Ok(());
            }
            let mut set = SortedSet::with_memory(MAX_MEMBERS, 0, memory);
            for (score, member) in flat::entries(bytes) {
                set.insert(member, score)?;
            }
            *self = Self::Set(set.boxed());
        }
        if let Self::Set(set) = self {
            set.insert(member, score)?;
        }
        Ok(())
    }
}

impl Changeable for Draft {
    fn insert(
        &mut self,
        member: &[u8],
        score: f64,
        conditions: Conditions,
    ) -> Result<Inserted, SortedSetError> {
        let old = match self {
            Self::Set(set) => return set.insert_if(member, score, conditions),
            Self::Flat(bytes, _) => flat::score_and_rank(bytes, member),
        };
        let (is_allowed, inserted) = match old {
            None => (conditions.allow_adding(), Inserted::Added),
            Some((old, _)) if conditions.allow(old, score) && old == score => {
                return Ok(Inserted::Unchanged);
            }
            Some((old, _)) => (conditions.allow(old, score), Inserted::Changed { old }),
        };
        if !is_allowed {
            return Ok(Inserted::Refused);
        }
        self.set_score(member, score)?;
        Ok(inserted)
    }

    fn increment(
        &mut self,
        member: &[u8],
        delta: f64,
        conditions: Conditions,
    ) -> Result<Option<(Option<f64>, f64)>, SortedSetError> {
        let old = match self {
            Self::Set(set) => return set.increment_from(member, delta, conditions),
            Self::Flat(bytes, _) => flat::score_and_rank(bytes, member),
        };
        let score = match old {
            None if !conditions.allow_adding() => return Ok(None),
            None => delta,
            Some(_) if conditions.presence == corewise_nr::sorted_set::Presence::Absent => {
                return Ok(None);
            }
            Some((old, _)) => {
                let score = old + delta;
                if score.is_nan() {
                    return Err(SortedSetError::NotANumber);
                }
                if !conditions.allow(old, score) {
                    return Ok(None);
                }
                if old == score {
                    return Ok(Some((Some(old), score)));
                }
                score
            }
        };
        self.set_score(member, score)?;
        Ok(Some((old.map(|(old, _)| old), score)))
    }

    fn remove(&mut self, member: &[u8]) -> bool {
        match self {
            Self::Flat(bytes, _) => flat::remove(bytes, member),
            Self::Set(set) => set.remove(member).is_some(),
        }
    }

    fn remove_range(&mut self, bounds: Bounds<'_>) -> usize {
        match self {
            Self::Flat(bytes, _) => flat::remove_range(bytes, bounds),
            Self::Set(set) => set.detach_range(bounds),
        }
    }
}
