//! The interfaces of locks without data.

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
///     // SAFETY: locked above by this thread (1), and borrowed, so it has not moved (2).
///     unsafe { lock.unlock() };
///     result
/// }
/// assert_eq!(with(&Ticket::new(), || 1 + 1), 2);
/// ```
///
/// # Safety
///
/// An implementation guarantees that `default` makes an unlocked lock, that `UNLOCKED` is one, and:
///
/// 1. *Exclusion.* From the return of `lock`, or of a `try_lock` that returned true, until the next
///    call of `unlock`, no other `lock` returns and no other `try_lock` returns true.
/// 2. *Order.* Everything before an `unlock` happens before everything after the next `lock`.
pub unsafe trait RawLock: Default + Send + Sync + 'static {
    /// An unlocked lock, for constants. (Model checkers have no constant atomics, so it is missing
    /// in their builds.)
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    #[allow(
        clippy::declare_interior_mutable_const,
        reason = "each use of it makes a lock"
    )]
    const UNLOCKED: Self;

    /// Creates an unlocked lock.
    fn new() -> Self {
        Self::default()
    }

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

/// A lock that threads hold exclusively, for writing, or together with others, for reading: what
/// [`SharedLock`](crate::SharedLock) needs. The methods of [`RawLock`] are for writing.
///
/// # Safety
///
/// An implementation guarantees, beside what [`RawLock`] requires:
///
/// 1. *Exclusion.* From the return of `lock_shared`, or of a `try_lock_shared` that returned true,
///    until the matching `unlock_shared`, no thread holds the lock for writing.
/// 2. *Order.* Everything before an `unlock` happens before everything after the next
///    `lock_shared`, and everything before an `unlock_shared` before everything after the next
///    `lock`.
pub unsafe trait RawSharedLock: RawLock {
    /// Waits until no thread holds the lock for writing, and locks it for reading.
    fn lock_shared(&self);

    /// Locks for reading if no thread holds the lock for writing or is about to. Never waits.
    fn try_lock_shared(&self) -> bool;

    /// Ends a read lock.
    ///
    /// # Safety
    ///
    /// 1. The calling thread holds the lock for reading.
    /// 2. The lock was not moved since.
    unsafe fn unlock_shared(&self);

    /// Whether a thread holds the lock for writing or is about to get it. As
    /// [`is_locked`](RawLock::is_locked), it is a hint.
    fn is_write_locked(&self) -> bool;
}
