//! The interface of a lock without data.

/// Mutual exclusion without data: what [`Lock`](crate::Lock) needs of a lock.
///
/// The methods are safe to call, except that only the holder may unlock.
///
/// ```
/// use corewise_locks::{RawLock, Ticket};
///
/// fn with<L: RawLock, R>(lock: &L, section: impl FnOnce() -> R) -> R {
///     lock.lock();
///     let result = section(); // a panic would leave the lock locked; `Lock` handles that
///     // SAFETY: 1: locked above by this thread. 2: it is borrowed.
///     unsafe { lock.unlock() };
///     result
/// }
/// assert_eq!(with(&Ticket::new(), || 1 + 1), 2);
/// ```
///
/// # Safety
///
/// An implementation guarantees:
///
/// 1. *Exclusion.* From the return of `lock`, or of a `try_lock` that returned true, until the next
///    call of `unlock`, no other `lock` returns and no other `try_lock` returns true.
/// 2. *Order.* Everything before an `unlock` happens before everything after the next `lock`.
pub unsafe trait RawLock: Send + Sync + 'static {
    /// Creates an unlocked lock.
    fn new() -> Self
    where
        Self: Sized;

    /// Waits for the lock.
    fn lock(&self);

    /// Takes the lock if it is free. Never waits.
    fn try_lock(&self) -> bool;

    /// Releases the lock.
    ///
    /// # Safety
    ///
    /// 1. The calling thread holds the lock.
    /// 2. The lock was not moved since it was locked.
    unsafe fn unlock(&self);

    /// Whether a thread holds the lock or is about to get it. The answer may be outdated when the
    /// method returns, and it orders nothing.
    fn is_locked(&self) -> bool;
}
