//! A value behind a readers-writer lock.

use std::cell::UnsafeCell;
use std::marker::PhantomData;

use crate::mutex::access_by_guard;
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

/// The lock is held for reading until this is dropped. It stays on its thread.
#[must_use = "the lock is unlocked at once"]
pub struct SharedReadGuard<'a, T: ?Sized, L: RawSharedLock> {
    lock: &'a SharedLock<T, L>,
    /// Not `Send`: the lock keeps data of readers by thread.
    thread: PhantomData<*const ()>,
}

/// The lock is held for writing until this is dropped. It stays on its thread.
#[must_use = "the lock is unlocked at once"]
pub struct SharedWriteGuard<'a, T: ?Sized, L: RawSharedLock> {
    lock: &'a SharedLock<T, L>,
    /// Not `Send`: queue locks keep data of the holder in its thread.
    thread: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared references to the value only.
unsafe impl<T: ?Sized + Sync, L: RawSharedLock> Sync for SharedReadGuard<'_, T, L> {}
// SAFETY: a shared guard gives shared references to the value only.
unsafe impl<T: ?Sized + Sync, L: RawSharedLock> Sync for SharedWriteGuard<'_, T, L> {}

impl<T, L: RawSharedLock> SharedLock<T, L> {
    /// Creates an unlocked value. In a constant, use [`with_raw`](Self::with_raw).
    pub fn new(value: T) -> Self {
        Self::with_raw(L::new(), value)
    }

    /// Creates a value behind `raw`, which must be unlocked.
    pub const fn with_raw(raw: L, value: T) -> Self {
        Self {
            raw,
            value: UnsafeCell::new(value),
        }
    }

    /// Consumes the lock and returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, L: RawSharedLock> SharedLock<T, L> {
    /// Waits until no thread holds the lock for writing.
    #[inline]
    pub fn read(&self) -> SharedReadGuard<'_, T, L> {
        self.raw.lock_shared();
        SharedReadGuard {
            lock: self,
            thread: PhantomData,
        }
    }

    /// Locks for reading if no thread holds the lock for writing or is about to.
    #[inline]
    pub fn try_read(&self) -> Option<SharedReadGuard<'_, T, L>> {
        self.raw.try_lock_shared().then(|| SharedReadGuard {
            lock: self,
            thread: PhantomData,
        })
    }

    /// Waits until no thread holds the lock.
    #[inline]
    pub fn write(&self) -> SharedWriteGuard<'_, T, L> {
        self.raw.lock();
        SharedWriteGuard {
            lock: self,
            thread: PhantomData,
        }
    }

    /// Locks for writing if no thread holds the lock.
    #[inline]
    pub fn try_write(&self) -> Option<SharedWriteGuard<'_, T, L>> {
        self.raw.try_lock().then(|| SharedWriteGuard {
            lock: self,
            thread: PhantomData,
        })
    }

    /// Whether a thread holds the lock, for reading or writing. The answer may be outdated at once.
    pub fn is_locked(&self) -> bool {
        self.raw.is_locked()
    }

    /// The value, without locking: the exclusive borrow replaces the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T, L: RawSharedLock> From<T> for SharedLock<T, L> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized, L> std::fmt::Debug for SharedLock<T, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedLock(..)")
    }
}

access_by_guard!(SharedReadGuard, RawSharedLock);
access_by_guard!(mut SharedWriteGuard, RawSharedLock);

impl<T: ?Sized, L: RawSharedLock> Drop for SharedReadGuard<'_, T, L> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: locked by this thread, as guards are not `Send` (1). The lock is borrowed (2).
        unsafe { self.lock.raw.unlock_shared() };
    }
}

impl<T: ?Sized, L: RawSharedLock> Drop for SharedWriteGuard<'_, T, L> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: locked by this thread, as guards are not `Send` (1). The lock is borrowed (2).
        unsafe { self.lock.raw.unlock() };
    }
}
