//! Sequential specifications.

use std::fmt::Debug;
use std::hash::Hash;

/// A sequential object: the specification that a history is checked against. One model describes
/// one key; [`models`](crate::history::models) has some.
///
/// # How the checker uses it
///
/// The checker calls [`step`](Model::step) once or twice for each configuration and open operation,
/// so a step should be cheap and a state small. Equal states must behave alike in every future:
/// they are visited once.
///
/// A read, an operation with [`only_reads`](Model::only_reads), comes next as soon as it may, and
/// nothing else is tried. That loses no order: moved from its place in any explanation to the
/// front, it changes nothing for the others, and everything that returned before its invocation has
/// been placed. (It is not enough that an operation leaves *this* state unchanged. A
/// compare-exchange whose outcome no thread saw may fail now, and still be needed to succeed
/// later.)
///
/// # Examples
///
/// A counter that only tells the value after each increment:
///
/// ```
/// use corewise_testkit::history::{History, Model, CallRecord};
///
/// struct Counter;
///
/// impl Model for Counter {
///     type State = u64;
///     type Op = ();
///     type Outcome = u64;
///
///     fn initial(&self) -> u64 {
///         0
///     }
///     fn step(&self, state: &u64, _: &(), outcome: &u64) -> Option<u64> {
///         (*outcome == state + 1).then_some(*outcome)
///     }
///     fn pending(&self, state: &u64, _: &()) -> Vec<u64> {
///         vec![state + 1]
///     }
/// }
///
/// let twice_one = History::new(vec![
///     CallRecord::new(0, "hits", (), 0).returning(1, 2),
///     CallRecord::new(1, "hits", (), 1).returning(1, 3),
/// ]);
/// assert!(twice_one.check(&Counter).violation().is_some());
/// ```
pub trait Model {
    /// Everything that determines the future behaviour of the object.
    type State: Clone + Eq + Hash + Debug;
    /// An operation on the object.
    type Op: Debug;
    /// The result of an operation.
    type Outcome: Debug;

    /// The state before the first operation.
    fn initial(&self) -> Self::State;

    /// The state after `op` in `state` if the object may give `outcome` there, or `None` if it may
    /// not.
    fn step(
        &self,
        state: &Self::State,
        op: &Self::Op,
        outcome: &Self::Outcome,
    ) -> Option<Self::State>;

    /// The states after `op` in `state` when no thread has seen its outcome: one for each effect
    /// that `op` can have. A model that omits a possible effect produces false violations.
    fn pending(&self, state: &Self::State, op: &Self::Op) -> Vec<Self::State>;

    /// Whether `op` leaves the object unchanged in every state in which it may have `outcome`.
    /// Returning `false` is always correct; returning it for a read costs time.
    fn only_reads(&self, op: &Self::Op, outcome: &Self::Outcome) -> bool {
        let _ = (op, outcome);
        false
    }
}

impl<M: Model> Model for &M {
    type State = M::State;
    type Op = M::Op;
    type Outcome = M::Outcome;

    fn initial(&self) -> M::State {
        (**self).initial()
    }

    fn step(&self, state: &M::State, op: &M::Op, outcome: &M::Outcome) -> Option<M::State> {
        (**self).step(state, op, outcome)
    }

    fn pending(&self, state: &M::State, op: &M::Op) -> Vec<M::State> {
        (**self).pending(state, op)
    }

    fn only_reads(&self, op: &M::Op, outcome: &M::Outcome) -> bool {
        (**self).only_reads(op, outcome)
    }
}
