//! Spin locks of one byte: test-and-set, test-and-test-and-set, and the latter with exponential
//! backoff (Anderson 1990).
//!
//! ```text
//! Tas, Ttas, TtasBackoff: 1 byte, is_held
//! ```
//!
//! # Guarantees
//!
//! Those of every lock of the crate, and:
//!
//! 1. *Fairness.* None: a thread may be overtaken any number of times.
//! 2. *Cost.* One read-modify-write to lock a free lock, one store to unlock.
//! 3. *Waiting.* All waiting threads access the lock's line. `Tas` takes it exclusively in each
//!    round; `Ttas` reads it, and all waiters write it after an unlock; `TtasBackoff` pauses for a
//!    random time whose limit doubles with each failed attempt.

use corewise_atomic::sync::atomic::AtomicBool;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::{Backoff, hint, ordering, thread};

use crate::{RawLock, constructor};

/// The word of all three locks.
#[derive(Debug)]
struct Flag {
    is_held: AtomicBool,
}

constructor! { [] Flag,
    fn new() -> Self {
        Self {
            is_held: AtomicBool::new(false),
        }
    }
}

impl Flag {
    #[inline(always)]
    fn take(&self) -> bool {
        // Acquire: pairs with the Release in `clear`, so the last holder's writes are seen.
        let acquire = ordering!(Acquire, "tas_relaxed");
        if cfg!(corewise_loom) {
            // loom may order a swap that found the flag set after the store that clears it, and
            // then the flag remains set. No processor does that: the swap read an earlier value.
            return self
                .is_held
                .compare_exchange(false, true, acquire, Relaxed) // Relaxed: nothing is read
                .is_ok();
        }
        !self.is_held.swap(true, acquire)
    }

    #[inline(always)]
    fn is_set(&self) -> bool {
        // Relaxed: a hint; `take` orders.
        self.is_held.load(Relaxed)
    }

    #[inline(always)]
    fn clear(&self) {
        // Release: pairs with the Acquire in `take`.
        let release = ordering!(Release, "tas_relaxed_release");
        self.is_held.store(false, release);
    }
}

/// Test-and-set: each round of a waiting thread is a read-modify-write.
///
/// It is the baseline of comparisons. Each round moves the cache line of the lock, so waiting
/// threads slow the holder down.
///
/// ```
/// use corewise_locks::{Lock, Tas};
///
/// let lock: Lock<Vec<u8>, Tas> = Lock::new(vec![]);
/// lock.lock().push(1);
/// assert_eq!(lock.into_inner(), [1]);
/// ```
#[derive(Debug)]
pub struct Tas(Flag);

/// Test-and-test-and-set: a waiting thread reads the lock, and writes once it has seen it free.
///
/// ```
/// use corewise_locks::{Lock, Ttas};
///
/// let lock: Lock<Vec<u8>, Ttas> = Lock::new(vec![]);
/// lock.lock().push(1);
/// assert_eq!(lock.into_inner(), [1]);
/// ```
#[derive(Debug)]
pub struct Ttas(Flag);

/// Test-and-test-and-set with exponential backoff: after each failed attempt a thread pauses for a
/// random time, whose limit doubles up to 1,024 pauses. From then on it also yields.
///
/// ```
/// use corewise_locks::{Lock, TtasBackoff};
///
/// let lock: Lock<Vec<u8>, TtasBackoff> = Lock::new(vec![]);
/// lock.lock().push(1);
/// assert_eq!(lock.into_inner(), [1]);
/// ```
#[derive(Debug)]
pub struct TtasBackoff(Flag);

/// The limit of pauses after the first failed attempt of [`TtasBackoff`].
const FIRST_LIMIT: u32 = 8;
/// The highest limit.
const LAST_LIMIT: u32 = 1_024;

/// Random pauses whose limit doubles.
struct RandomPauses {
    limit: u32,
    random: u32,
}

impl RandomPauses {
    fn new() -> Self {
        let place = 0u8;
        // The address of a local variable differs between threads. Xorshift needs a state other
        // than 0.
        let random = (hint::number_of(&raw const place) >> 4) as u32 | 1;
        Self {
            limit: FIRST_LIMIT,
            random,
        }
    }

    /// The number of pauses, and whether the thread yields afterwards.
    fn next(&mut self) -> (u32, bool) {
        // Marsaglia's xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        let pauses = self.random % self.limit + 1;
        let yields = self.limit == LAST_LIMIT;
        self.limit = (self.limit * 2).min(LAST_LIMIT);
        (pauses, yields)
    }

    fn pause(&mut self) {
        if cfg!(any(corewise_loom, corewise_shuttle)) {
            return thread::yield_now();
        }
        let (pauses, yields) = self.next();
        (0..pauses).for_each(|_| hint::spin_loop());
        if yields {
            thread::yield_now();
        }
    }
}

impl Tas {
    #[cold]
    fn wait(&self) {
        let mut backoff = Backoff::new();
        while !self.0.take() {
            backoff.snooze();
        }
    }
}

impl Ttas {
    #[cold]
    fn wait(&self) {
        let mut backoff = Backoff::new();
        while self.0.is_set() || !self.0.take() {
            backoff.snooze();
        }
    }
}

impl TtasBackoff {
    #[cold]
    fn wait(&self) {
        let mut pauses = RandomPauses::new();
        while self.0.is_set() || !self.0.take() {
            pauses.pause();
        }
    }
}

macro_rules! flag_lock {
    ($name:ident) => {
        constructor! { [] $name,
            /// Creates an unlocked lock.
            pub fn new() -> Self {
                Self(Flag::new())
            }
        }

        // SAFETY: the flag is set by one thread at a time, by a read-modify-write that found it
        // clear, and only the holder clears it (1). Release in `clear`, Acquire in `take` (2).
        unsafe impl RawLock for $name {
            #[cfg(not(any(corewise_loom, corewise_shuttle)))]
            const UNLOCKED: Self = Self::new();

            #[inline]
            fn lock(&self) {
                if !self.0.take() {
                    self.wait();
                }
            }

            #[inline]
            fn try_lock(&self) -> bool {
                !self.0.is_set() && self.0.take()
            }

            #[inline]
            unsafe fn unlock(&self) {
                self.0.clear();
            }

            #[inline]
            fn is_locked(&self) -> bool {
                self.0.is_set()
            }
        }

        #[cfg(not(any(corewise_loom, corewise_shuttle)))]
        const _: () = assert!(size_of::<$name>() == 1);
    };
}
flag_lock!(Tas);
flag_lock!(Ttas);
flag_lock!(TtasBackoff);

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_pauses_doubles_and_then_the_thread_yields() {
        let mut pauses = RandomPauses::new();
        let mut limit = FIRST_LIMIT;
        for round in 0..20 {
            let (number, yields) = pauses.next();
            assert!((1..=limit).contains(&number), "round {round}: {number}");
            assert_eq!(yields, round >= 7, "round {round}");
            limit = (limit * 2).min(LAST_LIMIT);
        }
    }
}
