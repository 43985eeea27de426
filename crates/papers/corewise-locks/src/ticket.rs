//! The ticket lock (Mellor-Crummey and Scott 1991 §2.2).
//!
//! ```text
//! Ticket, 8 bytes: next, the next ticket to take | serving, the ticket whose turn it is (`turn`)
//! ```
//!
//! # Guarantees
//!
//! Those of every lock of the crate, and:
//!
//! 1. *Fairness.* FIFO, in the order of the read-modify-writes of `next`.
//! 2. *Cost.* One read-modify-write to lock a free lock, one to unlock. Waking a thread is a system
//!    call.
//! 3. *Waiting.* All waiting threads read the lock's line, and an unlock makes all of them read it
//!    again. After 16 pauses and 16 yields a thread sleeps, so that the thread whose turn it is
//!    does not have to wait for a CPU behind threads that only yield.
//! 4. *Limit.* 2^31 threads may wait at once; tickets wrap.
//! 5. *More threads than CPUs.* Each section costs a context switch, 1 to 3 µs, but no time slice
//!    of milliseconds; the crate's root has figures. Use [`Parking`](crate::Parking) or
//!    [`Adaptive`](crate::Adaptive) then.
//!
//! # Deviation
//!
//! In the paper threads spin until their turn and unlocking is a store. Here it is a
//! read-modify-write, which notices threads that sleep.

use corewise_atomic::ordering;
use corewise_atomic::sync::atomic::AtomicU32;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::turn::{STEP, TurnCounter};
use crate::{RawLock, constructor};

/// A FIFO lock of two counters. All waiting threads read one cache line.
///
/// ```
/// use corewise_locks::{Lock, Ticket};
///
/// static SERVED: Lock<Vec<u32>, Ticket> = Lock::new(Vec::new());
/// SERVED.lock().push(7);
/// assert_eq!(*SERVED.lock(), [7]);
/// ```
#[derive(Debug)]
pub struct Ticket {
    next: AtomicU32,
    serving: TurnCounter,
}

constructor! { [] Ticket,
    /// Creates an unlocked lock.
    pub fn new() -> Self {
        Self {
            next: AtomicU32::new(0),
            serving: TurnCounter::new(0),
        }
    }
}

impl Ticket {
    #[inline(always)]
    fn is_turn_of(&self, ticket: u32) -> bool {
        // Acquire: pairs with the Release in `unlock`, so the last holder's writes are seen.
        self.serving
            .ticket(ordering!(Acquire, "ticket_relaxed_turn"))
            == ticket
    }

    #[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
    pub(crate) fn next_ticket(&self) -> u32 {
        self.next.load(Relaxed) // Relaxed: only compared
    }
}

// SAFETY: no two threads that wait have the same ticket, and `serving` is one ticket until its
// holder passes the turn on (1). Release in `unlock`, Acquire in `is_turn_of` (2).
unsafe impl RawLock for Ticket {
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    const UNLOCKED: Self = Self::new();

    #[inline]
    fn lock(&self) {
        // Relaxed: the ticket is a number; `serving` orders the holders.
        let ticket = self.next.fetch_add(STEP, Relaxed);
        // Acquire: as in `is_turn_of`.
        let acquire = ordering!(Acquire, "ticket_relaxed_turn");
        self.serving.wait_for(ticket, acquire);
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // Relaxed: a guess, which the exchange below checks.
        let ticket = self.next.load(Relaxed);
        // The lock is free if the next ticket has its turn already. The turn remains until a
        // thread takes that ticket.
        self.is_turn_of(ticket)
            && self
                .next
                // Relaxed: as in `lock`; `is_turn_of` has ordered already.
                .compare_exchange(ticket, ticket.wrapping_add(STEP), Relaxed, Relaxed)
                .is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
        // Relaxed: only the holder writes the ticket in `serving`.
        let next = self.serving.ticket(Relaxed).wrapping_add(STEP);
        // Release: pairs with the Acquire in `is_turn_of`.
        let release = ordering!(Release, "ticket_relaxed_unlock");
        self.serving.pass_to(next, release);
    }

    #[inline]
    fn is_locked(&self) -> bool {
        // Relaxed: a hint. A holder's ticket is served before it is seen as taken only if the
        // answer is outdated anyway.
        self.serving.ticket(Relaxed) != self.next.load(Relaxed)
    }
}

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
const _: () = assert!(size_of::<Ticket>() == 8);

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn tickets_wrap() {
        let lock = Ticket {
            next: AtomicU32::new(STEP.wrapping_neg()),
            serving: TurnCounter::new(STEP.wrapping_neg()),
        };
        for _ in 0..3 {
            lock.lock();
            assert!(lock.is_locked() && !lock.try_lock());
            // SAFETY: this thread has locked the lock (1), which stays where it is (2).
            unsafe { lock.unlock() };
            assert!(!lock.is_locked() && lock.try_lock());
            // SAFETY: `try_lock` has locked the lock (1), which stays where it is (2).
            unsafe { lock.unlock() };
        }
    }
}
