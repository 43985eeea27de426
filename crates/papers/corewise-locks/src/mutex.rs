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
///
/// static COUNT: Lock<u64> = Lock::new(0);
/// *COUNT.lock() += 1;
/// assert_eq!(*COUNT.lock(), 1);
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

impl<T: ?Sized, L: RawLock> Lock<T, L> {
    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> LockGuard<'_, T, L> {
        self.raw.lock();
        LockGuard::new(self)
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<LockGuard<'_, T, L>> {
        self.raw.try_lock().then(|| LockGuard::new(self))
    }
}

/// Implements what a value behind any kind of lock has.
macro_rules! locked_value {
    ($value:ident, $raw:ident) => {
        impl<T, L: $raw> $value<T, L> {
            /// Creates an unlocked value.
            #[cfg(not(any(corewise_loom, corewise_shuttle)))]
            pub const fn new(value: T) -> Self {
                Self {
                    raw: L::UNLOCKED,
                    value: UnsafeCell::new(value),
                }
            }

            /// Creates an unlocked value.
            #[cfg(any(corewise_loom, corewise_shuttle))]
            pub fn new(value: T) -> Self {
                Self {
                    raw: L::new(),
                    value: UnsafeCell::new(value),
                }
            }

            /// Consumes the lock and returns the value.
            pub fn into_inner(self) -> T {
                self.value.into_inner()
            }
        }

        impl<T: ?Sized, L: $raw> $value<T, L> {
            /// Whether a thread holds the lock. The answer may be outdated at once.
            pub fn is_locked(&self) -> bool {
                self.raw.is_locked()
            }

            /// The value, without locking: the exclusive borrow replaces the lock.
            pub fn get_mut(&mut self) -> &mut T {
                self.value.get_mut()
            }
        }

        impl<T, L: $raw> From<T> for $value<T, L> {
            fn from(value: T) -> Self {
                Self::new(value)
            }
        }

        impl<T: ?Sized, L> std::fmt::Debug for $value<T, L> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(concat!(stringify!($value), "(..)"))
            }
        }
    };
}
pub(crate) use locked_value;

locked_value!(Lock, RawLock);

/// Declares the guard of a value, which `unlock` ends. The value can be changed through it if it
/// is `mut`.
macro_rules! guard {
    ($(#[$doc:meta])* $guard:ident of $value:ident, $raw:ident::$unlock:ident $(= $default:ty)?) => {
        $(#[$doc])*
        #[must_use = "the lock is unlocked at once"]
        pub struct $guard<'a, T: ?Sized, L: $raw $(= $default)?> {
            lock: &'a $value<T, L>,
            /// Not `Send`: locks keep data of the holder in its thread.
            thread: PhantomData<*const ()>,
        }

        // SAFETY: a shared guard gives shared references to the value only.
        unsafe impl<T: ?Sized + Sync, L: $raw> Sync for $guard<'_, T, L> {}

        impl<'a, T: ?Sized, L: $raw> $guard<'a, T, L> {
            /// For a thread that has locked.
            #[inline(always)]
            fn new(lock: &'a $value<T, L>) -> Self {
                let thread = PhantomData;
                Self { lock, thread }
            }
        }

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

        impl<T: ?Sized, L: $raw> Drop for $guard<'_, T, L> {
            #[inline(always)]
            fn drop(&mut self) {
                // SAFETY: locked by this thread, as guards are not `Send` (1). The lock is
                // borrowed (2).
                unsafe { self.lock.raw.$unlock() };
            }
        }
    };
    ($(#[$doc:meta])* mut $guard:ident of $value:ident, $raw:ident::$unlock:ident $(= $default:ty)?) => {
        $crate::mutex::guard! { $(#[$doc])* $guard of $value, $raw::$unlock $(= $default)? }

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
pub(crate) use guard;

guard! {
    /// The lock is held until this is dropped. It stays on its thread.
    mut LockGuard of Lock, RawLock::unlock = Parking
}
