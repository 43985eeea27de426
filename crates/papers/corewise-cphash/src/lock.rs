//! Spin locks for partitions: a test-and-test-and-set lock, and Anderson's array lock.
//!
//! Critical sections are short and run no code of users, so waiting threads spin, and yield after
//! some rounds, because the holder may have been preempted.
//!
//! # Guarantees
//!
//! 1. *Exclusion and order.* Everything before a release happens before everything after the next
//!    acquisition.
//! 2. *Fairness.* [`SpinLock`]: none. [`AndersonLock`]: first come, first served.
//! 3. *Progress.* Blocking.

use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicBool, AtomicUsize};
use corewise_atomic::{Backoff, CachePadded, Slots, ordering};

mod sealed {
    /// Only locks of this crate protect partitions.
    pub trait Sealed {}
    impl Sealed for super::SpinLock {}
    impl Sealed for super::AndersonLock {}
}

/// A lock that `LockHash` can use. Sealed.
pub trait PartitionLock: sealed::Sealed + Send + Sync + Default + 'static {
    /// What the holder needs to release the lock.
    #[doc(hidden)]
    type Ticket;

    /// Waits for the lock.
    #[doc(hidden)]
    fn acquire(&self) -> Self::Ticket;

    /// Releases the lock.
    ///
    /// # Safety
    ///
    /// 1. The caller acquired the lock with this ticket and has not released it.
    #[doc(hidden)]
    unsafe fn release(&self, ticket: Self::Ticket);
}

/// The default lock: one word, one cache miss to acquire if it is free, and none to release
/// (\[CPHASH\] §6.2).
#[derive(Debug)]
pub struct SpinLock {
    is_held: AtomicBool,
}

impl Default for SpinLock {
    fn default() -> Self {
        Self {
            is_held: AtomicBool::new(false),
        }
    }
}

impl PartitionLock for SpinLock {
    type Ticket = ();

    #[inline]
    fn acquire(&self) {
        // Acquire: pairs with the Release in `release`.
        let acquire = ordering!(Acquire, "spin_lock_relaxed_acquire");
        // Relaxed on failure: nothing is read then.
        if self
            .is_held
            .compare_exchange_weak(false, true, acquire, Relaxed)
            .is_err()
        {
            self.acquire_slowly();
        }
    }

    #[inline]
    unsafe fn release(&self, (): ()) {
        // Release: pairs with the Acquire of the next holder.
        let release = ordering!(Release, "spin_lock_relaxed_release");
        self.is_held.store(false, release);
    }
}

impl SpinLock {
    #[cold]
    fn acquire_slowly(&self) {
        let mut backoff = Backoff::new();
        loop {
            // Relaxed: a hint that the exchange below may succeed.
            while self.is_held.load(Relaxed) {
                backoff.snooze();
            }
            // Acquire: pairs with the Release in `release`. Relaxed on failure: nothing is read.
            let acquire = ordering!(Acquire, "spin_lock_relaxed_acquire");
            if self
                .is_held
                .compare_exchange_weak(false, true, acquire, Relaxed)
                .is_ok()
            {
                return;
            }
        }
    }
}

/// Slots of an Anderson lock. With more waiting threads, some wait on one cache line.
const ANDERSON_SLOTS: usize = if cfg!(any(corewise_loom, corewise_shuttle)) {
    2
} else {
    16
};

/// T. E. Anderson's array lock: each waiting thread spins on another cache line, so a release
/// disturbs one waiter only. It costs two cache misses to acquire and one to release, also if it
/// is free, and 2 KiB for each lock (\[CPHASH\] §6.2 compares it with the spin lock).
///
/// A slot contains the ticket whose turn it is, and not a flag as in Anderson's paper, so the lock
/// is correct for any number of threads. (T. E. Anderson, *The performance of spin lock
/// alternatives for shared-memory multiprocessors*, IEEE TPDS 1(1), 1990.)
#[derive(Debug)]
pub struct AndersonLock {
    next: CachePadded<AtomicUsize>,
    turns: Slots<CachePadded<AtomicUsize>>,
}

impl Default for AndersonLock {
    fn default() -> Self {
        Self {
            next: CachePadded::new(AtomicUsize::new(ANDERSON_SLOTS)),
            // The first ticket is the number of slots, so that no slot has its turn by accident.
            turns: Slots::from_fn(ANDERSON_SLOTS, |slot| {
                let turn = if slot == 0 { ANDERSON_SLOTS } else { 0 };
                CachePadded::new(AtomicUsize::new(turn))
            }),
        }
    }
}

impl PartitionLock for AndersonLock {
    type Ticket = usize;

    #[inline]
    fn acquire(&self) -> usize {
        // Relaxed: the ticket only names a slot; the slot orders the holders. Tickets would be
        // repeated after 2^64 acquisitions.
        let ticket = self.next.fetch_add(1, Relaxed);
        let slot = &self.turns[ticket % ANDERSON_SLOTS];
        // Acquire: pairs with the Release in `release`.
        let acquire = ordering!(Acquire, "anderson_relaxed_acquire");
        let mut backoff = Backoff::new();
        while slot.load(acquire) != ticket {
            backoff.snooze();
        }
        ticket
    }

    #[inline]
    unsafe fn release(&self, ticket: usize) {
        let next = ticket.wrapping_add(1);
        // Release: pairs with the Acquire of the next holder.
        let release = ordering!(Release, "anderson_relaxed_release");
        self.turns[next % ANDERSON_SLOTS].store(next, release);
    }
}

/// Calls `body` while holding the lock, and releases it also if `body` panics.
#[inline(always)]
pub(crate) fn with<L: PartitionLock, R>(lock: &L, body: impl FnOnce() -> R) -> R {
    struct HeldLock<'a, L: PartitionLock> {
        lock: &'a L,
        ticket: Option<L::Ticket>,
    }
    impl<L: PartitionLock> Drop for HeldLock<'_, L> {
        #[inline(always)]
        fn drop(&mut self) {
            if let Some(ticket) = self.ticket.take() {
                // SAFETY: acquired below with this ticket, which is given up here.
                unsafe { self.lock.release(ticket) };
            }
        }
    }
    let _held = HeldLock {
        lock,
        ticket: Some(lock.acquire()),
    };
    body()
}

#[cfg(test)]
mod models {
    use super::*;
    use corewise_atomic::cell::DataCell;
    use corewise_atomic::sync::Arc;
    use corewise_atomic::{model, thread};

    fn every_increment_is_kept<L: PartitionLock>(threads: usize) {
        let shared = Arc::new((L::default(), DataCell::new(0)));
        let add_one = |shared: &(L, DataCell<i32>)| {
            with(&shared.0, || {
                // SAFETY: the lock is held.
                shared.1.with_mut(|value| unsafe { *value += 1 });
            });
        };
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || add_one(&shared))
            })
            .collect();
        add_one(&shared);
        others.into_iter().for_each(|other| other.join().unwrap());
        // SAFETY: the other threads are gone.
        assert_eq!(unsafe { shared.1.read() }, threads as i32);
    }

    #[test]
    fn a_spin_lock_excludes() {
        model(|| every_increment_is_kept::<SpinLock>(2));
    }

    /// Three threads, and two slots under the model checkers.
    #[test]
    fn an_anderson_lock_excludes() {
        corewise_atomic::model_bounded(2, || every_increment_is_kept::<AndersonLock>(3));
    }

    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    #[test]
    fn a_panic_releases_the_lock() {
        let lock = SpinLock::default();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            with(&lock, || panic!("expected"));
        }));
        assert!(panicked.is_err());
        assert_eq!(with(&lock, || 1), 1);
    }
}
