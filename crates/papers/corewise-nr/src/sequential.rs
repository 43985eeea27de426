//! What a data structure must provide to be replicated.

/// A sequential data structure with operations that are values (§2 of the paper: `Execute` and
/// `IsReadOnly`).
///
/// Every replica executes the same writes in the same order, so a write must be *deterministic*:
/// its effect and response depend only on the state and the operation. Time, random seeds and
/// cursors are arguments of the operation. An operation must not block, and must not call the
/// structure that executes it. A write may panic, if it panics deterministically.
pub trait Sequential: Send + Sync {
    /// An operation that does not change the structure.
    type Read: Send;
    /// An operation that may change the structure. Replicas on several threads execute the same
    /// value.
    type Write: Send + Sync;
    /// What an operation returns.
    type Response: Send;

    /// Executes a read.
    fn read(&self, operation: &Self::Read) -> Self::Response;

    /// Executes a write.
    fn write(&mut self, operation: &Self::Write) -> Self::Response;

    /// Executes a write that turns out to change nothing, and returns `None` if it would change
    /// something (the *fake updates* of §3.7). The default always returns `None`.
    fn write_as_read(&self, operation: &Self::Write) -> Option<Self::Response> {
        let _ = operation;
        None
    }

    /// A checksum of the whole state, for comparing replicas; `None` if the structure has none.
    fn digest(&self) -> Option<u64> {
        None
    }
}
