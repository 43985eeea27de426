//! Whose turn it is: what the waiting threads of [`Ticket`](crate::Ticket) and
//! [`Anderson`](crate::Anderson) read, and where they sleep.
//!
//! ```text
//! Turn, 4 bytes: bits 1-31: the ticket whose turn it is, or was | bit 0: SLEEPERS
//!
//! BUCKETS: first ──▶ sleeper ──▶ sleeper ◀── last     on the stacks of the sleeping threads
//! ```
//!
//! Tickets are even numbers. A thread whose turn does not come soon sleeps in the bucket of the
//! turn's address. Buckets are static, so locks that nobody sleeps at pay one bit for that.
//!
//! # Guarantees
//!
//! 1. *Writers.* Only the holder of the lock writes a ticket. Other threads set SLEEPERS, while
//!    they hold the bucket's mutex. If SLEEPERS is set, the holder writes in the mutex, too.
//! 2. *No lost wake-up.* A thread sets SLEEPERS and joins the list in one section of the mutex, and
//!    only if it did not find its turn when it set the bit. The bit stays while any thread sleeps
//!    at the turn. So the holder that passes the turn to a sleeping thread sees the bit, finds the
//!    thread and wakes it.
//! 3. *Cost.* Passing the turn on is one read-modify-write while no thread sleeps. Otherwise it
//!    takes the mutex, goes through the threads in the bucket until it has found the one to wake
//!    and another one of this turn, and makes a system call.

use std::cell::Cell;
use std::ptr;

use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use corewise_atomic::{hint, mutant, static_cell, thread};

use crate::wait::{self, QueueWait};

/// The difference between a ticket and the next one.
pub(crate) const STEP: u32 = 2;
/// Threads sleep at this turn.
const SLEEPERS: u32 = 1;

/// Lists of sleeping threads.
const BUCKET_BITS: u32 = if cfg!(any(corewise_loom, corewise_shuttle)) {
    0
} else {
    6
};

/// The ticket that may go on.
#[derive(Debug)]
pub(crate) struct TurnCounter(AtomicU32);

/// A sleeping thread. It lives on the thread's stack until `is_woken`.
struct Sleeper {
    turn: *const TurnCounter,
    ticket: u32,
    thread: thread::Thread,
    is_woken: AtomicBool,
    /// The next one in the bucket; accessed under its mutex.
    next: Cell<*const Sleeper>,
}

/// A list in the order of arrival.
struct Bucket {
    first: *const Sleeper,
    last: *const Sleeper,
}

// SAFETY: the sleepers in a bucket live until they are woken, and they are accessed by the thread
// that holds the bucket's mutex only.
unsafe impl Send for Bucket {}

static_cell! {
    static BUCKETS: Vec<Mutex<Bucket>> = (0..1 << BUCKET_BITS)
        .map(|_| Mutex::new(Bucket { first: ptr::null(), last: ptr::null() }))
        .collect();
}

/// The bucket of a turn: multiplicative hashing (Knuth, TAOCP 3 §6.4) of its address.
fn bucket(turn: *const TurnCounter) -> &'static Mutex<Bucket> {
    let hash = (hint::number_of(turn) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &BUCKETS[(hash >> 32) as usize & ((1 << BUCKET_BITS) - 1)]
}

impl Bucket {
    /// # Safety
    ///
    /// 1. The sleeper is in no bucket. It lives and stays in place until it is woken.
    unsafe fn push(&mut self, sleeper: &Sleeper) {
        let sleeper = ptr::from_ref(sleeper);
        // SAFETY: what is in the list lives, by 1.
        match unsafe { self.last.as_ref() } {
            Some(last) => last.next.set(sleeper),
            None => self.first = sleeper,
        }
        self.last = sleeper;
    }

    /// Removes the thread that waits for `ticket`, and returns it, and whether another thread
    /// sleeps at the turn.
    fn take(&mut self, turn: *const TurnCounter, ticket: u32) -> (Option<&'static Sleeper>, bool) {
        let (mut found, mut has_others) = (None, false);
        let (mut previous, mut place) = (ptr::null::<Sleeper>(), self.first);
        // SAFETY: what is in the list lives until it is woken, by 1 of `push`; so below. The result
        // is not used after that.
        while let Some(sleeper) = unsafe { place.as_ref::<'static>() } {
            let next = sleeper.next.get();
            if ptr::eq(sleeper.turn, turn) && sleeper.ticket != ticket {
                has_others = true;
            } else if ptr::eq(sleeper.turn, turn) {
                found = Some(sleeper);
                // SAFETY: it is in the list, so it lives, by 1 of `push`.
                match unsafe { previous.as_ref() } {
                    Some(previous) => previous.next.set(next),
                    None => self.first = next,
                }
                if next.is_null() {
                    self.last = previous;
                }
            }
            if found.is_some() && has_others {
                break;
            }
            if !found.is_some_and(|found| ptr::eq(found, sleeper)) {
                previous = place;
            }
            place = next;
        }
        (found, has_others)
    }
}

impl TurnCounter {
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    pub(crate) const fn new(ticket: u32) -> Self {
        Self(AtomicU32::new(ticket))
    }

    #[cfg(any(corewise_loom, corewise_shuttle))]
    pub(crate) fn new(ticket: u32) -> Self {
        Self(AtomicU32::new(ticket))
    }

    /// The ticket whose turn it is, or was.
    #[inline(always)]
    pub(crate) fn ticket(&self, order: Ordering) -> u32 {
        self.0.load(order) & !SLEEPERS
    }

    /// Waits for the turn of `ticket`: pauses, then yields, then sleeps. `acquire` pairs with the
    /// `release` of [`pass_to`](Self::pass_to).
    #[inline]
    pub(crate) fn wait_for(&self, ticket: u32, acquire: Ordering) {
        if !QueueWait::until_or_tired(|| self.ticket(acquire) == ticket) {
            self.sleep(ticket);
        }
    }

    #[cold]
    fn sleep(&self, ticket: u32) {
        let sleeper = Sleeper {
            turn: self,
            ticket,
            thread: thread::current(),
            is_woken: AtomicBool::new(false),
            next: Cell::new(ptr::null()),
        };
        let mut bucket = bucket(self).lock();
        // Acquire: pairs with the Release in `pass_to`. If this is the thread's turn, the bit
        // remains, and the next one to pass the turn finds no sleeper and clears it.
        if self.0.fetch_or(SLEEPERS, Acquire) & !SLEEPERS == ticket {
            return;
        }
        if mutant!("turn_joins_late") {
            drop(bucket);
            bucket = self::bucket(self).lock();
        }
        // SAFETY: it is new, and this function returns after it was woken (1).
        unsafe { bucket.push(&sleeper) };
        drop(bucket);
        // Acquire: pairs with the Release in `pass_to_sleeper`.
        wait::sleep_until(|| sleeper.is_woken.load(Acquire));
    }

    /// Gives the turn to `ticket`; for the holder only. `release` pairs with the `acquire` of
    /// [`wait_for`](Self::wait_for).
    #[inline]
    pub(crate) fn pass_to(&self, ticket: u32, release: Ordering) {
        // Relaxed: the exchange checks it.
        let old = self.0.load(Relaxed);
        let is_passed = old & SLEEPERS == 0
            // Relaxed on failure: nothing is read.
            && self.0.compare_exchange(old, ticket, release, Relaxed).is_ok();
        if !is_passed {
            self.pass_to_sleeper(ticket);
        }
    }

    #[cold]
    fn pass_to_sleeper(&self, ticket: u32) {
        let mut bucket = bucket(self).lock();
        let (sleeper, has_others) = bucket.take(self, ticket);
        let bit = if has_others && !mutant!("turn_forgets_sleepers") {
            SLEEPERS
        } else {
            0
        };
        // Release: pairs with the Acquire in `wait_for` and `sleep`. A store suffices, because
        // others write in the mutex only (guarantee 1).
        self.0.store(ticket | bit, Release);
        drop(bucket);
        if let Some(sleeper) = sleeper {
            let thread = sleeper.thread.clone();
            // Release: pairs with the Acquire in `sleep`. The sleeper is not accessed any more.
            sleeper.is_woken.store(true, Release);
            if !mutant!("turn_forgets_to_wake") {
                thread::unpark(&thread);
            }
        }
    }
}

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
const _: () = assert!(size_of::<TurnCounter>() == 4);

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;

    /// The threads of two turns in one bucket are removed in any order, and the rest remains.
    #[test]
    fn sleepers_are_found_wherever_they_are() {
        let turns = [TurnCounter::new(0), TurnCounter::new(0)];
        let sleepers: Vec<Sleeper> = (0..6)
            .map(|number| Sleeper {
                turn: &turns[number % 2],
                ticket: number as u32 * STEP,
                thread: thread::current(),
                is_woken: AtomicBool::new(false),
                next: Cell::new(ptr::null()),
            })
            .collect();
        let orders = [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [2, 5, 0, 3, 4, 1]];
        for order in orders {
            let mut bucket = Bucket {
                first: ptr::null(),
                last: ptr::null(),
            };
            for sleeper in &sleepers {
                sleeper.next.set(ptr::null());
                // SAFETY: it lives to the end of the test, and the last bucket is empty (1).
                unsafe { bucket.push(sleeper) };
            }
            let mut left = [3, 3];
            for number in order {
                let (turn, ticket) = (&raw const turns[number % 2], number as u32 * STEP);
                left[number % 2] -= 1;
                let (found, has_others) = bucket.take(turn, ticket);
                assert!(ptr::eq(found.unwrap(), &raw const sleepers[number]));
                assert_eq!(has_others, left[number % 2] > 0, "{order:?}, {number}");
                assert!(bucket.take(turn, ticket).0.is_none(), "only once");
            }
            assert!(bucket.first.is_null() && bucket.last.is_null());
        }
    }
}
