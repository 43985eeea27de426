//! One key of a cache.

use super::{Content, EntryOp, EntryOutcome, MapEntry};
use crate::history::Model;
use std::fmt::Debug;
use std::hash::Hash;

/// One key of a cache: a [`MapEntry`] whose value may vanish, unrecorded, between any two
/// operations. A value that has vanished, been overwritten or been removed never comes back.
///
/// Operations and outcomes are those of a [`MapEntry`], with the same limits for an update that
/// never returned. A history of a cache that evicts nothing is better checked against a
/// [`MapEntry`], which accepts fewer histories.
///
/// ```
/// use corewise_testkit::history::Model;
/// use corewise_testkit::history::models::{EntryOp, EntryOutcome, EvictingEntry};
///
/// let entry = EvictingEntry::holding(5);
/// let state = entry.initial();
/// let read = |state, held| entry.step(state, &EntryOp::Get, &EntryOutcome::Held(held));
/// assert_eq!(read(&state, Some(5)), Some(state.clone()));
/// let vanished = read(&state, None).unwrap();
/// assert_eq!(read(&vanished, Some(5)), None); // it came back
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictingEntry<V> {
    initial: Option<V>,
}

impl<V> EvictingEntry<V> {
    /// Makes an entry that is empty at first.
    #[must_use]
    pub fn new() -> Self {
        Self { initial: None }
    }

    /// Makes an entry that holds `value` at first, or has lost it.
    #[must_use]
    pub fn holding(value: V) -> Self {
        Self {
            initial: Some(value),
        }
    }
}

impl<V> Default for EvictingEntry<V> {
    fn default() -> Self {
        Self::new()
    }
}

/// The state of an [`EvictingEntry`]: its value, unless that was evicted since the last operation.
///
/// The larger the set, the more may follow. So a read that leaves it unchanged may come next
/// immediately ([`Model::only_reads`]): at its old place it could only have made the set smaller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeptValue<V> {
    /// One of these values, each once and ascending, or none. There are several after an operation
    /// whose outcome does not tell whether it stored anything.
    OneOf(Vec<V>),
    /// As [`Content::Anything`].
    Anything,
}

impl<V: Clone + Ord> KeptValue<V> {
    /// All possible contents now, whether or not the value was evicted just now.
    fn contents(&self) -> Vec<Content<V>> {
        match self {
            Self::Anything => vec![Content::Anything],
            Self::OneOf(values) => {
                let held = values.iter().cloned().map(Some);
                held.chain([None]).map(Content::Holds).collect()
            }
        }
    }

    /// The state with these possible contents; `None` if there are none.
    fn of(contents: Vec<Content<V>>) -> Option<Self> {
        if contents.is_empty() {
            return None;
        }
        let mut values = Vec::new();
        for content in contents {
            match content {
                Content::Holds(held) => values.extend(held),
                Content::Anything => return Some(Self::Anything),
            }
        }
        values.sort_unstable();
        values.dedup();
        Some(Self::OneOf(values))
    }
}

impl<V: Clone + Ord + Hash + Debug> Model for EvictingEntry<V> {
    type State = KeptValue<V>;
    type Op = EntryOp<V>;
    type Outcome = EntryOutcome<V>;

    fn initial(&self) -> KeptValue<V> {
        KeptValue::OneOf(self.initial.iter().cloned().collect())
    }

    fn step(
        &self,
        state: &KeptValue<V>,
        op: &EntryOp<V>,
        outcome: &EntryOutcome<V>,
    ) -> Option<KeptValue<V>> {
        let after = |content: &Content<V>| MapEntry::new().step(content, op, outcome);
        KeptValue::of(state.contents().iter().filter_map(after).collect())
    }

    fn pending(&self, state: &KeptValue<V>, op: &EntryOp<V>) -> Vec<KeptValue<V>> {
        let after = |content: &Content<V>| MapEntry::new().pending(content, op);
        let contents = state.contents().iter().flat_map(after).collect();
        KeptValue::of(contents).into_iter().collect()
    }

    fn only_reads(&self, op: &EntryOp<V>, outcome: &EntryOutcome<V>) -> bool {
        MapEntry::new().only_reads(op, outcome)
    }
}
