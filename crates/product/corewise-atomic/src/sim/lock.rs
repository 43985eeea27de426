//! Locks in the layout of `std`'s, with its interface, on which simulated threads wait in virtual
//! time.
//!
//! A simulated thread only tries the real lock, and waits for its address if another one holds it.
//! The first thread that waits is woken when the lock is released, and tries again: not fair.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::{self as real, LockResult, PoisonError, TryLockError, TryLockResult};

use super::AccessClass::Rmw;
use super::{announce, simulator};

/// Takes a lock by trying and waiting.
fn acquire<T, G>(lock: *const T, mut attempt: impl FnMut() -> TryLockResult<G>) -> Option<G> {
    let simulator = simulator()?;
    loop {
        announce(lock, Rmw);
        match attempt() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => simulator.wait(lock.cast()),
        }
    }
}

/// A guard that wakes a waiting thread after it has released the lock.
macro_rules! guard {
    ($name:ident of $lock:ident, $($mutable:ident)?, wakes all: $all:expr) => {
        /// The lock is held until this is dropped.
        pub struct $name<'a, T> {
            guard: ManuallyDrop<real::$name<'a, T>>,
            lock: &'a $lock<T>,
        }

        impl<T> Deref for $name<'_, T> {
            type Target = T;
            #[inline]
            fn deref(&self) -> &T {
                &self.guard
            }
        }

        $(impl<T> DerefMut for $name<'_, T> {
            #[inline]
            fn deref_mut(&mut self) -> &mut T {
                let $mutable = &mut self.guard;
                $mutable
            }
        })?

        impl<T> Drop for $name<'_, T> {
            fn drop(&mut self) {
                announce(self.lock, Rmw);
                // SAFETY: the guard is dropped here only, and not used again.
                unsafe { ManuallyDrop::drop(&mut self.guard) };
                if let Some(simulator) = simulator() {
                    simulator.wake((&raw const *self.lock).cast(), $all);
                }
            }
        }

        impl<T: std::fmt::Debug> std::fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                (**self).fmt(f)
            }
        }
    };
}

guard!(MutexGuard of Mutex, guard, wakes all: false);
guard!(RwLockReadGuard of RwLock, , wakes all: true);
guard!(RwLockWriteGuard of RwLock, guard, wakes all: true);

/// Methods that take a lock: blocking, and with another guard around the real one.
macro_rules! lock {
    ($lock:ident: $($method:ident, $attempt:ident, $guard:ident;)*) => {
        #[repr(transparent)]
        pub(crate) struct $lock<T>(real::$lock<T>);

        impl<T> $lock<T> {
            #[inline]
            pub(crate) fn new(value: T) -> Self {
                Self(real::$lock::new(value))
            }

            $(pub(crate) fn $method(&self) -> LockResult<$guard<'_, T>> {
                let guard = acquire(self, || self.0.$attempt());
                let real = || self.0.$method().unwrap_or_else(PoisonError::into_inner);
                let guard = ManuallyDrop::new(guard.unwrap_or_else(real));
                Ok($guard { guard, lock: self })
            })*

            pub(crate) fn get_mut(&mut self) -> LockResult<&mut T> {
                self.0.get_mut()
            }
        }
    };
}

lock!(Mutex: lock, try_lock, MutexGuard;);
lock!(RwLock: read, try_read, RwLockReadGuard; write, try_write, RwLockWriteGuard;);

impl<T> Mutex<T> {
    pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        announce(self, Rmw);
        let guard = match self.0.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(TryLockError::WouldBlock),
        };
        let guard = ManuallyDrop::new(guard);
        Ok(MutexGuard { guard, lock: self })
    }

    pub(crate) fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}
