//! Models of common objects.
//!
//! | model | object | operations |
//! |---|---|---|
//! | [`MapEntry`] | one key of a map or a set | look-up, insertion, removal, compare-exchange, update |
//! | [`EvictingEntry`] | one key of a cache, which may forget | the same |
//! | [`Several`] | all keys of a map | transactions that read, write, remove and move |
//!
//! [`CacheCall`] has the calls of a cache in terms of these operations.

mod cache;
mod evicting;
mod several;

pub use cache::{CacheCall, ItemVersion};
pub use evicting::{EvictingEntry, KeptValue};
pub use several::{Several, SeveralOp, SeveralOutcome, SeveralStep};

use crate::history::Model;
use std::fmt::Debug;
use std::hash::Hash;

/// One key of a map, which holds a value or none.
///
/// Tables differ in what they return: every operation except [`EntryOp::Update`] takes any of the
/// outcomes [`Held`](EntryOutcome::Held), [`Present`](EntryOutcome::Present),
/// [`Done`](EntryOutcome::Done) and [`Silent`](EntryOutcome::Silent). The more an outcome tells,
/// the more a history can show; values that are written only once help most.
///
/// ```
/// use corewise_testkit::history::Model;
/// use corewise_testkit::history::models::{Content, EntryOp, EntryOutcome, MapEntry};
///
/// let entry = MapEntry::holding(5);
/// let state = entry.initial();
/// let refused = entry.step(&state, &EntryOp::TryInsert(6), &EntryOutcome::Done(false));
/// assert_eq!(refused, Some(Content::Holds(Some(5))));
/// let inserted = entry.step(&state, &EntryOp::TryInsert(6), &EntryOutcome::Done(true));
/// assert_eq!(inserted, None); // no map may say so
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapEntry<V> {
    initial: Option<V>,
}

impl<V> MapEntry<V> {
    /// Makes an entry that is empty at first.
    #[must_use]
    pub fn new() -> Self {
        Self { initial: None }
    }

    /// Makes an entry that holds `value` at first.
    #[must_use]
    pub fn holding(value: V) -> Self {
        Self {
            initial: Some(value),
        }
    }
}

impl<V> Default for MapEntry<V> {
    fn default() -> Self {
        Self::new()
    }
}

/// Operations on a [`MapEntry`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryOp<V> {
    /// Look the value up.
    Get,
    /// Store a value, whatever the entry holds.
    Insert(V),
    /// Store a value if the entry holds none.
    TryInsert(V),
    /// Remove the value.
    Remove,
    /// Store `new` (or remove) if the entry holds `expected`.
    CompareExchange {
        /// The value that the entry must hold.
        expected: Option<V>,
        /// The value that replaces it.
        new: Option<V>,
    },
    /// Compute a new value from the old one atomically. Both are known only after it returns, so
    /// its outcome is always [`EntryOutcome::Updated`].
    Update,
}

/// Outcomes of operations on a [`MapEntry`]. An outcome that does not go with its operation is a
/// violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryOutcome<V> {
    /// The value that the entry held before the operation.
    Held(Option<V>),
    /// Whether the entry held a value before the operation.
    Present(bool),
    /// Whether the operation found what it needs: [`EntryOp::Get`] and [`EntryOp::Remove`] need a
    /// value, [`EntryOp::TryInsert`] needs none, [`EntryOp::CompareExchange`] needs the expected
    /// one; [`EntryOp::Insert`] needs nothing.
    Done(bool),
    /// No information.
    Silent,
    /// The values that an [`EntryOp::Update`] saw and stored.
    Updated {
        /// The value that the entry held before.
        old: Option<V>,
        /// The value that it held afterwards.
        new: Option<V>,
    },
}

/// The state of a [`MapEntry`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Content<V> {
    /// This value, or none.
    Holds(Option<V>),
    /// Unknown: an update that never returned may have stored anything. The next outcome that tells
    /// the value is believed, and one that tells less may be forgotten, so the model refuses less
    /// than it could. It never refuses a correct outcome.
    Anything,
}

impl<V: Clone + Eq> EntryOp<V> {
    /// Whether the operation achieves its purpose on an entry that holds `held`.
    fn succeeds(&self, held: &Option<V>) -> bool {
        match self {
            Self::Get | Self::Remove => held.is_some(),
            Self::TryInsert(_) => held.is_none(),
            Self::CompareExchange { expected, .. } => held == expected,
            Self::Insert(_) | Self::Update => true,
        }
    }

    /// The content after the operation if it succeeds on `before`.
    fn success(&self, before: Content<V>) -> Content<V> {
        match self {
            Self::Get => before,
            Self::Insert(value) | Self::TryInsert(value) => Content::Holds(Some(value.clone())),
            Self::Remove => Content::Holds(None),
            Self::CompareExchange { new, .. } => Content::Holds(new.clone()),
            Self::Update => Content::Anything,
        }
    }
}

impl<V: Clone + Eq> EntryOutcome<V> {
    /// Whether `op` may have this outcome on an entry that holds `held`.
    fn agrees(&self, op: &EntryOp<V>, held: &Option<V>) -> bool {
        match self {
            Self::Held(seen) | Self::Updated { old: seen, .. } => seen == held,
            Self::Present(present) => *present == held.is_some(),
            Self::Done(done) => *done == op.succeeds(held),
            Self::Silent => true,
        }
    }

    /// The value that the entry held before, if the outcome tells it.
    fn before(&self) -> Option<&Option<V>> {
        match self {
            Self::Held(held) | Self::Updated { old: held, .. } => Some(held),
            _ => None,
        }
    }
}

/// The content after `op` on an entry that holds `held`.
fn after<V: Clone + Eq>(op: &EntryOp<V>, held: &Option<V>) -> Content<V> {
    let before = Content::Holds(held.clone());
    if op.succeeds(held) {
        op.success(before)
    } else {
        before
    }
}

/// The content after `op` if the content before is unknown.
fn after_anything<V: Clone + Eq>(op: &EntryOp<V>, outcome: &EntryOutcome<V>) -> Content<V> {
    use EntryOutcome::{Done, Present};
    match (op, outcome) {
        (EntryOp::Insert(_) | EntryOp::Remove, _) | (_, Done(true)) => {
            op.success(Content::Anything)
        }
        (EntryOp::Get, Done(false) | Present(false)) => Content::Holds(None),
        _ => Content::Anything,
    }
}

impl<V: Clone + Eq + Hash + Debug> Model for MapEntry<V> {
    type State = Content<V>;
    type Op = EntryOp<V>;
    type Outcome = EntryOutcome<V>;

    fn initial(&self) -> Content<V> {
        Content::Holds(self.initial.clone())
    }

    fn step(
        &self,
        state: &Content<V>,
        op: &EntryOp<V>,
        outcome: &EntryOutcome<V>,
    ) -> Option<Content<V>> {
        let held = match state {
            Content::Holds(held) => Some(held),
            Content::Anything => outcome.before(),
        };
        if held.is_some_and(|held| !outcome.agrees(op, held)) {
            return None;
        }
        match (op, outcome) {
            (EntryOp::Update, EntryOutcome::Updated { new, .. }) => {
                Some(Content::Holds(new.clone()))
            }
            (EntryOp::Update, _) | (_, EntryOutcome::Updated { .. }) => None,
            _ => Some(held.map_or_else(|| after_anything(op, outcome), |held| after(op, held))),
        }
    }

    fn pending(&self, state: &Content<V>, op: &EntryOp<V>) -> Vec<Content<V>> {
        vec![match state {
            Content::Holds(held) => after(op, held),
            Content::Anything => after_anything(op, &EntryOutcome::Silent),
        }]
    }

    fn only_reads(&self, op: &EntryOp<V>, outcome: &EntryOutcome<V>) -> bool {
        match (op, outcome) {
            (EntryOp::Get, _) | (_, EntryOutcome::Done(false)) => true,
            (EntryOp::Update, EntryOutcome::Updated { old, new }) => old == new,
            (_, EntryOutcome::Held(held)) => after(op, held) == Content::Holds(held.clone()),
            _ => false,
        }
    }
}
