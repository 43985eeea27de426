//! The traits of `lock_api`.

use ::lock_api::{GuardNoSend, RawMutex};

use crate::{Anderson, Clh, Mcs, RawLock, Tas, Ticket, Ttas, TtasBackoff};

macro_rules! raw_mutex {
    ($($name:ty),*) => {$(
        // SAFETY: exclusion by 1 of `RawLock`; guards stay on their thread, as its `unlock` needs.
        unsafe impl RawMutex for $name {
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
                // SAFETY: 1: the trait requires that the current context holds the lock. 2: it
                // requires a pinned or borrowed lock by its guards.
                unsafe { RawLock::unlock(self) };
            }

            #[inline]
            fn is_locked(&self) -> bool {
                RawLock::is_locked(self)
            }
        }
    )*};
}
raw_mutex!(Tas, Ttas, TtasBackoff, Ticket, Anderson<16>, Clh, Mcs);
