//! Consistency-oblivious programming (Avni, Suissa; thesis §5.4, algorithms 5.9 and 5.10).
//!
//! An operation is divided into a read-only prefix, which runs without any synchronisation, and the
//! rest, which runs as a transaction: it verifies what the prefix found, and completes the
//! operation. So the transaction is small, and conflicts with the prefix cost nothing.
//!
//! Deviations: algorithm 5.9 does not wait for the lock after an abort, and 5.10 ignores the result
//! of its verification; here both do. A prefix that gives up leads to the lock.

use super::{Transaction, Tx};

/// An operation on `T` for [`Elided::cop`](super::Elided::cop).
///
/// Under `prefix`, other threads change the data, so it must end after a bounded number of steps
/// whatever it reads.
pub trait Cop<T, B: Transaction> {
    /// What the prefix finds.
    type Plan;
    /// The result of the operation.
    type Output;

    /// The read-only prefix, without synchronisation. `None` if it gives up; the operation then
    /// runs under the lock.
    fn prefix(&self, data: &T) -> Option<Self::Plan>;

    /// Whether the plan can be completed now. A plan that is outdated is made again.
    fn verify<'t>(&self, data: &'t T, tx: &Tx<'t, B>, plan: &Self::Plan) -> bool;

    /// Completes the operation, in the transaction that has verified the plan.
    fn complete<'t>(&self, data: &'t T, tx: &Tx<'t, B>, plan: &Self::Plan) -> Self::Output;

    /// The whole operation, under the lock.
    fn serial<'t>(&self, data: &'t T, tx: &Tx<'t, B>) -> Self::Output;
}
