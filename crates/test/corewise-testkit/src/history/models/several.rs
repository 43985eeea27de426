//! A map whose operations concern several keys at once.

use crate::history::Model;
use std::fmt::Debug;
use std::hash::Hash;

/// A map from the numbers below a count to values, whose operations are transactions.
///
/// All operations of a history are on one object, whatever keys they concern, so they are recorded
/// under one key of the history.
///
/// ```
/// use corewise_testkit::history::models::{Several, SeveralOp, SeveralOutcome, SeveralStep};
/// use corewise_testkit::history::{History, CallRecord};
///
/// let both = SeveralOp::of([SeveralStep::Set(0, 'x'), SeveralStep::Set(1, 'x')]);
/// let written = Some(vec![SeveralOutcome::Written; 2]);
/// let get = |key| SeveralOp::of([SeveralStep::Get(key)]);
/// let value = |value| Some(vec![SeveralOutcome::Value(value)]);
/// // While both are set, another thread sees the first and then no second.
/// let torn = History::new(vec![
///     CallRecord::new(0, (), both, 0).returning(written, 5),
///     CallRecord::new(1, (), get(0), 1).returning(value(Some('x')), 2),
///     CallRecord::new(1, (), get(1), 3).returning(value(None), 4),
/// ]);
/// assert!(torn.check(&Several::new(2)).violation().is_some());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Several<V> {
    keys: usize,
    values: std::marker::PhantomData<V>,
}

impl<V> Several<V> {
    /// Makes a map with this number of keys, without values at first.
    #[must_use]
    pub fn new(keys: usize) -> Self {
        Self {
            keys,
            values: std::marker::PhantomData,
        }
    }
}

/// One part of a [`SeveralOp`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeveralStep<V> {
    /// Read the value of a key.
    Get(usize),
    /// Give a key a value.
    Set(usize, V),
    /// Remove the value of a key.
    Remove(usize),
    /// Move the value of the first key to the second.
    Move(usize, usize),
}

/// The outcome of a [`SeveralStep`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeveralOutcome<V> {
    /// The value that was read.
    Value(Option<V>),
    /// Whether there was a value to remove or to move.
    Was(bool),
    /// The value has been written.
    Written,
}

/// A transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeveralOp<V> {
    /// It takes place only if these keys have these values. Otherwise, or if the object cannot be
    /// sure of that, it has no effect, and its outcome is `None`.
    pub only_if: Vec<(usize, Option<V>)>,
    /// What it does, in order.
    pub steps: Vec<SeveralStep<V>>,
}

impl<V> SeveralOp<V> {
    /// A transaction without a condition.
    pub fn of(steps: impl IntoIterator<Item = SeveralStep<V>>) -> Self {
        Self {
            only_if: Vec::new(),
            steps: steps.into_iter().collect(),
        }
    }
}

/// The state after an operation, and the outcomes of its steps.
type Effect<V> = (Vec<Option<V>>, Vec<SeveralOutcome<V>>);

impl<V: Clone + Eq> SeveralOp<V> {
    /// The state and the outcomes when it takes place in `state`; `None` if it may not.
    fn run(&self, state: &[Option<V>]) -> Option<Effect<V>> {
        let holds = |(key, value): &(usize, Option<V>)| state[*key] == *value;
        if !self.only_if.iter().all(holds) {
            return None;
        }
        let mut state = state.to_vec();
        let outcomes = self.steps.iter().map(|step| step.run(&mut state)).collect();
        Some((state, outcomes))
    }
}

impl<V: Clone> SeveralStep<V> {
    fn run(&self, state: &mut [Option<V>]) -> SeveralOutcome<V> {
        match self {
            Self::Get(key) => SeveralOutcome::Value(state[*key].clone()),
            Self::Set(key, value) => {
                state[*key] = Some(value.clone());
                SeveralOutcome::Written
            }
            Self::Remove(key) => SeveralOutcome::Was(state[*key].take().is_some()),
            Self::Move(from, to) => {
                let value = state[*from].take();
                let was_there = value.is_some();
                if was_there {
                    state[*to] = value;
                }
                SeveralOutcome::Was(was_there)
            }
        }
    }
}

impl<V: Clone + Eq + Hash + Debug> Model for Several<V> {
    type State = Vec<Option<V>>;
    type Op = SeveralOp<V>;
    type Outcome = Option<Vec<SeveralOutcome<V>>>;

    fn initial(&self) -> Self::State {
        vec![None; self.keys]
    }

    fn step(
        &self,
        state: &Self::State,
        op: &Self::Op,
        outcome: &Self::Outcome,
    ) -> Option<Self::State> {
        let Some(outcomes) = outcome else {
            return (!op.only_if.is_empty()).then(|| state.clone());
        };
        let (after, expected) = op.run(state)?;
        (expected == *outcomes).then_some(after)
    }

    fn pending(&self, state: &Self::State, op: &Self::Op) -> Vec<Self::State> {
        let after = op.run(state).map(|(after, _)| after);
        after.into_iter().chain([state.clone()]).collect()
    }

    fn only_reads(&self, op: &Self::Op, outcome: &Self::Outcome) -> bool {
        let is_get = |step| matches!(step, &SeveralStep::Get(_));
        outcome.is_none() || op.steps.iter().all(is_get)
    }
}
