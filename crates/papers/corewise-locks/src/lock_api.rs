//! The traits of `lock_api`. Every unlock of a FIFO lock is fair.

use ::lock_api::{GuardNoSend, RawMutex, RawMutexFair, RawRwLock};

use crate::{
    Adaptive, Anderson, Clh, DistributedRw, Mcs, Parking, RawLock, RawSharedLock, Tas, Ticket,
    Ttas, TtasBackoff,
};

macro_rules! raw_mutex {
    ($([$($generics:tt)*] $name:ty),* $(,)?) => {$(
        // SAFETY: exclusion by 1 of `RawLock`; guards stay on their thread, as its `unlock` needs.
        unsafe impl<$($generics)*> RawMutex for $name {
            const INIT: Self = Self::new();
            type GuardMarker = GuardNoSend;

            #[inline]
            fn lock(&self) {
                RawLock::lock(self);
            }

            #[inline]
            fn try_lock(&self) -> bool {
                RawLock::try_lock(self)
            }

            #[inline]
            unsafe fn unlock(&self) {
                // SAFETY: the trait requires that the current context holds the lock (1). Guards
                // borrow the lock; `force_unlock` of a lock that was moved since its guard was
                // leaked panics at locks with nodes by address, and does no harm at others (2).
                unsafe { RawLock::unlock(self) };
            }

            #[inline]
            fn is_locked(&self) -> bool {
                RawLock::is_locked(self)
            }
        }
    )*};
}
raw_mutex!(
    [] Tas,
    [] Ttas,
    [] TtasBackoff,
    [] Ticket,
    [const N: usize] Anderson<N>,
    [] Clh,
    [] Mcs,
    [] Parking,
    [] Adaptive,
);

macro_rules! fair {
    ($([$($generics:tt)*] $name:ty),* $(,)?) => {$(
        // SAFETY: an unlock hands the lock to the thread that has waited longest.
        unsafe impl<$($generics)*> RawMutexFair for $name {
            #[inline]
            unsafe fn unlock_fair(&self) {
                // SAFETY: the caller's obligations are the same.
                unsafe { RawMutex::unlock(self) };
            }
        }
    )*};
}
fair!([] Ticket, [const N: usize] Anderson<N>, [] Clh, [] Mcs);

// SAFETY: exclusion by 1 of `RawLock` and `RawSharedLock`; guards stay on their thread, as the
// methods that unlock need.
unsafe impl<const S: usize> RawRwLock for DistributedRw<S> {
    const INIT: Self = Self::new();
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        RawSharedLock::lock_shared(self);
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        RawSharedLock::try_lock_shared(self)
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: the trait requires that the current context holds the lock, and its guards borrow
        // it (1 and 2).
        unsafe { RawSharedLock::unlock_shared(self) };
    }

    #[inline]
    fn lock_exclusive(&self) {
        RawLock::lock(self);
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        RawLock::try_lock(self)
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the trait requires that the current context holds the lock exclusively, and its
        // guards borrow it (1 and 2).
        unsafe { RawLock::unlock(self) };
    }

    #[inline]
    fn is_locked(&self) -> bool {
        RawLock::is_locked(self)
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        self.is_write_locked()
    }
}
