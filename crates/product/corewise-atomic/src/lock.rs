//! Locks without poison.

#[cfg(corewise_sim)]
use crate::sim::lock as imp;
#[cfg(corewise_loom)]
use loom::sync as imp;
#[cfg(corewise_shuttle)]
use shuttle::sync as imp;
#[cfg(not(any(corewise_loom, corewise_shuttle, corewise_sim)))]
use std::sync as imp;
use std::sync::{PoisonError, TryLockError};

/// The lock is held until this is dropped.
pub type MutexGuard<'a, T> = imp::MutexGuard<'a, T>;

/// The lock is held for reading until this is dropped.
pub type RwLockReadGuard<'a, T> = imp::RwLockReadGuard<'a, T>;

/// The lock is held for writing until this is dropped.
pub type RwLockWriteGuard<'a, T> = imp::RwLockWriteGuard<'a, T>;

/// Mutual exclusion.
///
/// 1. *Order.* Everything before an unlock happens before everything after the next lock.
/// 2. *No poison.* A panic while the lock is held releases it, and the next owner sees the value as
///    the panic left it: code that calls foreign code under a lock must keep the value consistent.
/// 3. *Progress.* Blocking, not fair.
///
/// ```
/// # corewise_atomic::model(|| {
/// let total = corewise_atomic::lock::Mutex::new(0);
/// *total.lock() += 2;
/// assert_eq!(total.into_inner(), 2);
/// # });
/// ```
pub struct Mutex<T>(imp::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex. Not `const`, because the mutexes of loom and shuttle are not.
    #[inline]
    pub fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    /// Waits for the lock.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The value, without locking: the exclusive borrow replaces the lock.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Consumes the mutex and returns the value.
    #[inline]
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> std::fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mutex(..)")
    }
}

/// A readers-writer lock: shared by readers, or held by one writer.
///
/// 1. *Order.* Everything before an unlock for writing happens before everything after the next
///    lock; everything before an unlock for reading happens before everything after the next lock
///    for writing.
/// 2. *No poison*, as in [`Mutex`].
/// 3. *Progress.* Blocking. The system decides whether readers or writers go first, and a thread
///    that locks for reading twice may wait for ever for a writer in between.
///
/// ```
/// # corewise_atomic::model(|| {
/// let limits = corewise_atomic::lock::RwLock::new((1, 2));
/// limits.write().1 = 3;
/// let (one, other) = (limits.read(), limits.read());
/// assert_eq!((one.0, other.1), (1, 3));
/// # });
/// ```
pub struct RwLock<T>(imp::RwLock<T>);

impl<T> RwLock<T> {
    /// Creates an unlocked lock. Not `const`, as [`Mutex::new`].
    #[inline]
    pub fn new(value: T) -> Self {
        Self(imp::RwLock::new(value))
    }

    /// Waits until no thread holds the lock for writing.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no thread holds the lock.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, without locking: the exclusive borrow replaces the lock.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> std::fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RwLock(..)")
    }
}

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
const _: () = assert!(size_of::<RwLock<u64>>() == size_of::<std::sync::RwLock<u64>>());

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
const _: () = assert!(size_of::<Mutex<u64>>() == size_of::<std::sync::Mutex<u64>>());
