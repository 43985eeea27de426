//! One interface of node replication and the baselines.

use crate::{NodeReplicated, Sequential};

/// An operation on a sequential structure.
pub enum Operation<D: Sequential> {
    /// One that does not change it.
    Read(D::Read),
    /// One that may change it.
    Write(D::Write),
}

/// A structure made concurrent: the paper's `ExecuteConcurrent` (\[NR\] §3).
///
/// ```
/// use corewise_nr::baseline::SpinLocked;
/// use corewise_nr::{Concurrent, NodeReplicated, Operation, Sequential};
///
/// struct Counter(u64);
/// impl Sequential for Counter {
///     type Read = ();
///     type Write = u64;
///     type Response = u64;
///     fn read(&self, (): &()) -> u64 {
///         self.0
///     }
///     fn write(&mut self, more: &u64) -> u64 {
///         self.0 += more;
///         self.0
///     }
/// }
///
/// fn count(counter: &impl Concurrent<Counter>) -> u64 {
///     counter.execute(Operation::Write(3));
///     counter.execute(Operation::Read(()))
/// }
/// assert_eq!(count(&NodeReplicated::new(|_| Counter(0))), 3);
/// assert_eq!(count(&SpinLocked::new(Counter(0))), 3);
/// ```
pub trait Concurrent<D: Sequential>: Send + Sync {
    /// Executes an operation, which is linearizable.
    ///
    /// # Panics
    ///
    /// If the operation panics.
    fn execute(&self, operation: Operation<D>) -> D::Response;
}

impl<D: Sequential> Concurrent<D> for NodeReplicated<D> {
    #[inline]
    fn execute(&self, operation: Operation<D>) -> D::Response {
        match operation {
            Operation::Read(operation) => self.read(&operation),
            Operation::Write(operation) => self.write(operation),
        }
    }
}
