//! A value behind a readers-writer lock.

use std::cell::UnsafeCell;
use std::marker::PhantomData;

use crate::mutex::{guard, locked_value};
use crate::{DistributedRw, RawSharedLock};

/// A value that one thread accesses exclusively, or any number of threads share, with a lock of
/// your choice.
///
/// Guarantees and progress are those of the lock. There is no poison: after a panic the next thread
/// sees the value as the panic left it.
///
/// ```
/// use corewise_locks::DistributedRwLock;
///
/// let limits = DistributedRwLock::new((1, 2));
/// limits.write().1 = 3;
/// let (one, other) = (limits.read(), limits.read());
/// assert_eq!((one.0, other.1), (1, 3));
///
/// static ZONES: DistributedRwLock<Vec<&str>> = DistributedRwLock::new(Vec::new());
/// ZONES.write().push("UTC");
/// assert_eq!(ZONES.read().len(), 1);
/// ```
#[derive(Default)]
pub struct SharedLock<T: ?Sized, L> {
    raw: L,
    value: UnsafeCell<T>,
}

/// A value behind the distributed readers-writer lock. See [`DistributedRw`].
pub type DistributedRwLock<T> = SharedLock<T, DistributedRw>;

// SAFETY: a thread gets an exclusive reference only while it holds the lock for writing, and shared
// ones only while no thread does, by 1 of `RawLock` and `RawSharedLock`.
unsafe impl<T: ?Sized + Send + Sync, L: RawSharedLock> Sync for SharedLock<T, L> {}
// SAFETY: the value moves with its lock.
unsafe impl<T: ?Sized + Send, L: RawSharedLock> Send for SharedLock<T, L> {}

guard! {
    /// The lock is held for reading until this is dropped. It stays on its thread.
    SharedReadGuard of SharedLock, RawSharedLock::unlock_shared
}

guard! {
    /// The lock is held for writing until this is dropped. It stays on its thread.
    mut SharedWriteGuard of SharedLock, RawSharedLock::unlock
}

locked_value!(SharedLock, RawSharedLock);

impl<T: ?Sized, L: RawSharedLock> SharedLock<T, L> {
    /// Waits until no thread holds the lock for writing.
    #[inline]
    pub fn read(&self) -> SharedReadGuard<'_, T, L> {
        self.raw.lock_shared();
        SharedReadGuard::new(self)
    }

    /// Locks for reading if no thread holds the lock for writing or is about to.
    #[inline]
    pub fn try_read(&self) -> Option<SharedReadGuard<'_, T, L>> {
        self.raw
            .try_lock_shared()
            .then(|| SharedReadGuard::new(self))
    }

    /// Waits until no thread holds the lock.
    #[inline]
    pub fn write(&self) -> SharedWriteGuard<'_, T, L> {
        self.raw.lock();
        SharedWriteGuard::new(self)
    }

    /// Locks for writing if no thread holds the lock.
    #[inline]
    pub fn try_write(&self) -> Option<SharedWriteGuard<'_, T, L>> {
        self.raw.try_lock().then(|| SharedWriteGuard::new(self))
    }
}
