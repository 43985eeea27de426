//! A value behind a lock.

use std::cell::UnsafeCell;
use std::marker::PhantomData;

use crate::{Parking, RawLock};

/// A value that one thread at a time accesses, with a lock of your choice. The default,
/// [`Parking`], keeps its throughput when threads outnumber CPUs; the [crate] compares the locks.
///
/// Guarantees and progress are those of the lock. A panic while the lock is held unlocks it, and
/// the next thread sees the value as the panic left it.
///
/// ```
/// use corewise_locks::{Clh, Lock};
///
/// let words: Lock<Vec<&str>, Clh> = Lock::new(vec!["first"]);
/// words.lock().push("second");
/// assert_eq!(words.try_lock().unwrap().len(), 2);
/// ```
#[derive(Default)]
pub struct Lock<T: ?Sized, L = Parking> {
    raw: L,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that holds the lock gets a reference to the value, by 1 of `RawLock`, so
// `T: Sync` is not needed.
unsafe impl<T: ?Sized + Send, L: RawLock> Sync for Lock<T, L> {}
// SAFETY: the value moves with its lock.
unsafe impl<T: ?Sized + Send, L: RawLock> Send for Lock<T, L> {}

/// The lock is held until this is dropped. It stays on its thread.
#[must_use = "the lock is unlocked at once"]
pub struct LockGuard<'a, T: ?Sized, L: RawLock = Parking> {
    lock: &'a Lock<T, L>,
    /// Not `Send`: queue locks keep data of the holder in its thread.
    thread: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared references to the value only.
unsafe impl<T: ?Sized + Sync, L: RawLock> Sync for LockGuard<'_, T, L> {}

impl<T, L: RawLock> Lock<T, L> {
    /// Creates an unlocked value. In a constant, use [`with_raw`](Self::with_raw).
    pub fn new(value: T) -> Self {
        Self::with_raw(L::new(), value)
    }

    /// Creates a value behind `raw`, which must be unlocked.
    ///
    /// ```
    /// use corewise_locks::{Lock, Parking};
    ///
    /// static COUNT: Lock<u64> = Lock::with_raw(Parking::new(), 0);
    /// *COUNT.lock() += 1;
    /// ```
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

impl<T: ?Sized, L: RawLock> Lock<T, L> {
    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> LockGuard<'_, T, L> {
        self.raw.lock();
        self.guard()
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<LockGuard<'_, T, L>> {
        self.raw.try_lock().then(|| self.guard())
    }

    #[inline(always)]
    fn guard(&self) -> LockGuard<'_, T, L> {
        LockGuard {
            lock: self,
            thread: PhantomData,
        }
    }

    /// Whether a thread holds the lock. The answer may be outdated at once.
    pub fn is_locked(&self) -> bool {
        self.raw.is_locked()
    }

    /// The value, without locking: the exclusive borrow replaces the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T, L: RawLock> From<T> for Lock<T, L> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized, L> std::fmt::Debug for Lock<T, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lock(..)")
    }
}

/// Gives access to a value through the guard of its lock.
macro_rules! access_by_guard {
    ($guard:ident, $raw:ident) => {
        impl<T: ?Sized, L: $raw> std::ops::Deref for $guard<'_, T, L> {
            type Target = T;
            #[inline(always)]
            fn deref(&self) -> &T {
                // SAFETY: the thread holds the lock while the guard exists.
                unsafe { &*self.lock.value.get() }
            }
        }

        impl<T: ?Sized + std::fmt::Debug, L: $raw> std::fmt::Debug for $guard<'_, T, L> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                (**self).fmt(f)
            }
        }
    };
    (mut $guard:ident, $raw:ident) => {
        $crate::mutex::access_by_guard!($guard, $raw);

        impl<T: ?Sized, L: $raw> std::ops::DerefMut for $guard<'_, T, L> {
            #[inline(always)]
            fn deref_mut(&mut self) -> &mut T {
                // SAFETY: the thread holds the lock alone while the guard exists, and the guard is
                // borrowed exclusively.
                unsafe { &mut *self.lock.value.get() }
            }
        }
    };
}
pub(crate) use access_by_guard;

access_by_guard!(mut LockGuard, RawLock);

impl<T: ?Sized, L: RawLock> Drop for LockGuard<'_, T, L> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: locked by this thread, as guards are not `Send` (1). The lock is borrowed (2).
        unsafe { self.lock.raw.unlock() };
    }
}
