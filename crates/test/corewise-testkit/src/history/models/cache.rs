//! Calls to a cache, as operations on one of its entries.

use super::{EntryOp, EntryOutcome};

/// A call to a cache that keeps numbers, on one key. Its history is checked against a
/// [`MapEntry`](super::MapEntry), or against an [`EvictingEntry`](super::EvictingEntry) if the
/// cache may evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheCall {
    /// Read the value.
    Get,
    /// Read the value and set a time to live in the future.
    Touch,
    /// Read the value and make the item expire.
    Expire,
    /// Store a value.
    Set(u64),
    /// Store a value if there is none.
    Add(u64),
    /// Store a value over the version that the caller has seen, if that is still current.
    Swap {
        /// The version that the caller has seen.
        seen: ItemVersion,
        /// The value to store.
        new: u64,
    },
    /// Add one to the value, if there is one.
    Incr,
    /// Remove the item.
    Delete,
}

/// A value as a read returned it, with its cas value.
///
/// The model compares values only, so no two stores of a history may write the same value under one
/// key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemVersion {
    /// The value.
    pub value: u64,
    /// Its cas value.
    pub cas: u64,
}

impl CacheCall {
    /// Number of faces of the die that [`CacheCall::draw`] expects.
    pub const FACES: u32 = 20;

    /// A call of a mix with many conflicts: six in twenty calls increment, and three replace the
    /// version that the caller has `seen`. `face` is random, below [`CacheCall::FACES`]; a store
    /// writes `unique`.
    #[must_use]
    pub fn draw(face: u32, unique: u64, seen: Option<ItemVersion>) -> Self {
        match face {
            0..4 => Self::Get,
            4 => Self::Touch,
            5 => Self::Expire,
            6..9 => Self::Set(unique),
            9 => Self::Add(unique),
            10..13 => seen.map_or(Self::Get, |seen| Self::Swap { seen, new: unique }),
            13..19 => Self::Incr,
            _ => Self::Delete,
        }
    }

    /// The call as an operation on an entry.
    ///
    /// ```
    /// use corewise_testkit::history::Model;
    /// use corewise_testkit::history::models::{CacheCall, EntryOutcome, ItemVersion, MapEntry};
    ///
    /// let seen = ItemVersion { value: 4, cas: 77 };
    /// let swap = CacheCall::Swap { seen, new: 5 };
    /// let entry = MapEntry::holding(4);
    /// assert!(entry.step(&entry.initial(), &swap.op(), &EntryOutcome::Done(true)).is_some());
    /// let incremented = CacheCall::incremented(Some(6));
    /// assert!(entry.step(&entry.initial(), &CacheCall::Incr.op(), &incremented).is_none());
    /// ```
    #[must_use]
    pub fn op(self) -> EntryOp<u64> {
        match self {
            Self::Get | Self::Touch => EntryOp::Get,
            Self::Set(value) => EntryOp::Insert(value),
            Self::Add(value) => EntryOp::TryInsert(value),
            Self::Swap { seen, new } => EntryOp::CompareExchange {
                expected: Some(seen.value),
                new: Some(new),
            },
            Self::Incr => EntryOp::Update,
            Self::Delete | Self::Expire => EntryOp::Remove,
        }
    }

    /// The outcome of a read that returned this version.
    #[must_use]
    pub fn read(version: Option<ItemVersion>) -> EntryOutcome<u64> {
        EntryOutcome::Held(version.map(|version| version.value))
    }

    /// The outcome of an increment that returned this value.
    #[must_use]
    pub fn incremented(new: Option<u64>) -> EntryOutcome<u64> {
        let old = new.map(|new| new - 1);
        EntryOutcome::Updated { old, new }
    }
}
