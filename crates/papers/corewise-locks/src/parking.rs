//! A lock whose waiting threads sleep.
//!
//! ```text
//! Parking, 24 bytes: word: FREE 0, HELD 1, AWAITED 2 | list: Ttas | first, last: under `list`
//!
//! first ──▶ waiter ──▶ waiter ◀── last     on the stacks of the waiting threads
//! ```
//!
//! # Guarantees
//!
//! Those of every lock of the crate, and:
//!
//! 1. *Fairness.* Threads are woken in the order in which they began to sleep, but any running
//!    thread may take the lock before them.
//! 2. *Cost.* One read-modify-write to lock a free lock, one to unlock it. Waking a thread is a
//!    system call.
//! 3. *Waiting.* A thread spins and yields for eleven rounds, then sleeps.
//! 4. *No lost wake-up.* If threads sleep, then `word` is AWAITED, or a thread that was woken has
//!    not looked at `word` yet. A thread sets AWAITED and joins the list under `list`, and an
//!    unlock that finds AWAITED takes one from the list under `list`.

use std::ptr;

use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32};
use corewise_atomic::{Backoff, mutant, ordering, thread};

use crate::{RawLock, Ttas, constructor, wait};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and threads may sleep.
const AWAITED: u32 = 2;

/// A lock whose waiting threads sleep after a while, for long sections and more threads than CPUs.
///
/// ```
/// use corewise_locks::{Lock, Parking};
///
/// let lock: Lock<u32, Parking> = Lock::new(1);
/// *lock.lock() += 1;
/// assert_eq!(lock.into_inner(), 2);
/// ```
#[derive(Debug)]
pub struct Parking {
    word: AtomicU32,
    list: Ttas,
    first: AtomicPtr<Waiter>,
    last: AtomicPtr<Waiter>,
}

/// A sleeping thread. It lives on the thread's stack until `is_woken`.
#[derive(Debug)]
struct Waiter {
    thread: thread::Thread,
    is_woken: AtomicBool,
    /// The next one in the list; accessed under `list`.
    next: AtomicPtr<Waiter>,
}

constructor! { [] Parking,
    /// Creates an unlocked lock.
    pub fn new() -> Self {
        Self {
            word: AtomicU32::new(FREE),
            list: Ttas::new(),
            first: AtomicPtr::new(ptr::null_mut()),
            last: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

impl Parking {
    #[inline(always)]
    fn take(&self) -> bool {
        // Acquire: pairs with the Release in `unlock`. Relaxed on failure: nothing is read.
        self.word
            .compare_exchange(FREE, HELD, Acquire, Relaxed)
            .is_ok()
    }

    #[cold]
    fn lock_slowly(&self) {
        let mut backoff = Backoff::new();
        while !backoff.is_completed() {
            backoff.snooze();
            wait::watch::look();
            if !self.is_locked() && self.take() {
                return;
            }
        }
        let waiter = Waiter {
            thread: thread::current(),
            is_woken: AtomicBool::new(false),
            next: AtomicPtr::new(ptr::null_mut()),
        };
        // SAFETY: the waiter lives until it was woken: nothing below returns before, except if it
        // did not join the list (1).
        while !unsafe { self.take_or_join(&waiter) } {
            // Acquire: pairs with the Release in `wake_one`, so that the waiter is not reused
            // before the other thread has read it.
            wait::sleep_until(|| waiter.is_woken.load(Acquire));
            // Relaxed: the list's lock publishes it.
            waiter.is_woken.store(false, Relaxed);
        }
    }

    /// Marks the lock as awaited. If it was free, it is now held; otherwise the waiter joins the
    /// list.
    ///
    /// # Safety
    ///
    /// 1. The waiter is in no list, and if it joins, it lives and stays in place until it is woken.
    unsafe fn take_or_join(&self, waiter: &Waiter) -> bool {
        let is_late = mutant!("park_enqueues_late");
        if is_late && self.mark_awaited() {
            return true;
        }
        self.list.lock();
        let is_taken = !is_late && self.mark_awaited();
        if !is_taken {
            let waiter = ptr::from_ref(waiter).cast_mut();
            // Relaxed, all: the list's lock orders.
            let last = self.last.load(Relaxed);
            self.last.store(waiter, Relaxed);
            if last.is_null() {
                self.first.store(waiter, Relaxed);
            } else {
                // Relaxed: as above.
                // SAFETY: a waiter in the list lives, by 1.
                unsafe { (*last).next.store(waiter, Relaxed) };
            }
        }
        // SAFETY: locked above by this thread.
        unsafe { self.list.unlock() };
        is_taken
    }

    /// Returns whether the lock was free.
    fn mark_awaited(&self) -> bool {
        // Acquire: pairs with the Release in `unlock`.
        self.word.swap(AWAITED, Acquire) == FREE
    }

    #[cold]
    fn wake_one(&self) {
        self.list.lock();
        // Relaxed, all: the list's lock orders.
        let first = self.first.load(Relaxed);
        // SAFETY: a waiter in the list lives until it is woken, by 1 of `take_or_join`.
        let waiter = unsafe { first.as_ref() };
        if let Some(waiter) = waiter {
            let next = waiter.next.load(Relaxed);
            waiter.next.store(ptr::null_mut(), Relaxed);
            // Relaxed, both: the list's lock orders.
            self.first.store(next, Relaxed);
            if next.is_null() {
                self.last.store(ptr::null_mut(), Relaxed);
            }
        }
        // SAFETY: locked above by this thread.
        unsafe { self.list.unlock() };
        if let Some(waiter) = waiter {
            let thread = waiter.thread.clone();
            // Release: pairs with the Acquire in `lock_slowly`; the waiter is not accessed any
            // more.
            waiter.is_woken.store(true, Release);
            thread::unpark(&thread);
        }
    }

    /// Whether threads may sleep. Exact for the holder, except that it may be true after the last
    /// one was woken.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        // Relaxed: a hint.
        self.word.load(Relaxed) == AWAITED
    }
}

// SAFETY: the word becomes HELD or AWAITED by a read-modify-write that found it FREE, and only the
// holder makes it FREE (1). Release in `unlock`, Acquire in `take` and `mark_awaited` (2).
unsafe impl RawLock for Parking {
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    const UNLOCKED: Self = Self::new();

    #[inline]
    fn lock(&self) {
        if !self.take() {
            self.lock_slowly();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.take()
    }

    #[inline]
    unsafe fn unlock(&self) {
        // Release: pairs with the Acquire in `take` and `mark_awaited`.
        let release = ordering!(Release, "parking_relaxed_unlock");
        if self.word.swap(FREE, release) == AWAITED {
            self.wake_one();
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        // Relaxed: a hint.
        self.word.load(Relaxed) != FREE
    }
}

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
const _: () = assert!(size_of::<Parking>() == 8 + 2 * size_of::<usize>());
