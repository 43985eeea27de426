//! Anderson's array lock (Anderson 1990 §3.3).
//!
//! ```text
//! Anderson<N>, 128 (N + 1) bytes, in lines of 128:
//!   next, the next ticket to take | ticket, the holder's; only the holder accesses it
//!   turns[0] ... turns[N-1]: the last ticket of the slot whose turn it is or was (`turn`)
//! ```
//!
//! # Guarantees
//!
//! Those of every lock of the crate, and:
//!
//! 1. *Fairness.* FIFO, in the order of the read-modify-writes of `next`.
//! 2. *Cost.* One read-modify-write and one load of another line to lock a free lock, one
//!    read-modify-write of a third line to unlock. Waking a thread is a system call.
//! 3. *Waiting.* A thread reads the slot of its ticket. Up to `N` threads read different lines;
//!    with more, some share one. After 16 pauses and 16 yields a thread sleeps, as at
//!    [`Ticket`](crate::Ticket).
//! 4. *Limit.* 2^31 threads may wait at once; tickets wrap.
//! 5. *More threads than CPUs.* Each section costs a context switch, 1 to 3 µs, but no time slice
//!    of milliseconds; the crate's root has figures. Use [`Parking`](crate::Parking) or
//!    [`Adaptive`](crate::Adaptive) then.
//!
//! # Deviations
//!
//! A slot contains a ticket and not a flag. Anderson's flags are reset by their thread and require
//! that at most `N` threads wait; with tickets the lock is correct for any number of threads.
//! Unlocking is a read-modify-write instead of a store, which notices threads that sleep.

use corewise_atomic::sync::atomic::AtomicU32;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::{CachePadded, ordering};

use crate::turn::{STEP, TurnCounter};
use crate::{RawLock, constructor};

/// A FIFO lock with a cache line for each of `N` waiting threads. `N` is a power of two.
///
/// ```
/// use corewise_locks::{Anderson, Lock};
///
/// let lock: Lock<u32, Anderson<16>> = Lock::new(1);
/// *lock.lock() += 1;
/// assert_eq!(lock.into_inner(), 2);
/// ```
#[derive(Debug)]
pub struct Anderson<const N: usize = 16> {
    entry: CachePadded<Entry>,
    turns: [CachePadded<TurnCounter>; N],
}

#[derive(Debug)]
struct Entry {
    next: AtomicU32,
    /// Not shared between threads at once: only the holder accesses it.
    ticket: AtomicU32,
}

impl<const N: usize> Anderson<N> {
    /// Tickets are assigned to slots by their low bits, also when they wrap.
    const IS_POWER_OF_TWO: () = assert!(
        N.is_power_of_two() && N <= 1 << 31,
        "N must be a power of two, and at most 2^31"
    );

    #[inline(always)]
    fn turn(&self, ticket: u32) -> &TurnCounter {
        &self.turns[(ticket / STEP) as usize & (N - 1)]
    }

    #[inline(always)]
    fn is_turn_of(&self, ticket: u32) -> bool {
        // Acquire: pairs with the Release in `unlock`, so the last holder's writes are seen.
        let acquire = ordering!(Acquire, "anderson_lock_relaxed_turn");
        self.turn(ticket).ticket(acquire) == ticket
    }

    #[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
    pub(crate) fn next_ticket(&self) -> u32 {
        self.entry.next.load(Relaxed) // Relaxed: only compared
    }
}

constructor! { [const N: usize] Anderson<N>,
    /// Creates an unlocked lock.
    pub fn new() -> Self {
        let () = Self::IS_POWER_OF_TWO;
        Self {
            entry: CachePadded::new(Entry {
                next: AtomicU32::new(0),
                ticket: AtomicU32::new(0),
            }),
            #[cfg(not(any(corewise_loom, corewise_shuttle)))]
            // Ticket 0 has its turn, and no other slot contains a ticket that belongs to it.
            turns: [const { CachePadded::new(TurnCounter::new(0)) }; N],
            #[cfg(any(corewise_loom, corewise_shuttle))]
            turns: std::array::from_fn(|_| CachePadded::new(TurnCounter::new(0))),
        }
    }
}

// SAFETY: no two threads that wait have the same ticket, and one ticket has its turn at a time: the
// holder of ticket t gives the turn to t + 1. A slot still contains an older ticket then, whose
// thread has left (1). Release in `unlock`, Acquire in `is_turn_of` (2).
unsafe impl<const N: usize> RawLock for Anderson<N> {
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    const UNLOCKED: Self = Self::new();

    #[inline]
    fn lock(&self) {
        // Relaxed: the ticket is a number; the slot orders the holders.
        let ticket = self.entry.next.fetch_add(STEP, Relaxed);
        // Acquire: as in `is_turn_of`.
        let acquire = ordering!(Acquire, "anderson_lock_relaxed_turn");
        self.turn(ticket).wait_for(ticket, acquire);
        // Relaxed: only the holder accesses it.
        self.entry.ticket.store(ticket, Relaxed);
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // Relaxed: a guess, which the exchange below checks.
        let ticket = self.entry.next.load(Relaxed);
        // The lock is free if the next ticket has its turn already.
        let is_taken = self.is_turn_of(ticket)
            && self
                .entry
                .next
                // Relaxed: as in `lock`; `is_turn_of` has ordered already.
                .compare_exchange(ticket, ticket.wrapping_add(STEP), Relaxed, Relaxed)
                .is_ok();
        if is_taken {
            // Relaxed: only the holder accesses it.
            self.entry.ticket.store(ticket, Relaxed);
        }
        is_taken
    }

    #[inline]
    unsafe fn unlock(&self) {
        // Relaxed: only the holder accesses it.
        let next = self.entry.ticket.load(Relaxed).wrapping_add(STEP);
        // Release: pairs with the Acquire in `is_turn_of`.
        let release = ordering!(Release, "anderson_lock_relaxed_unlock");
        self.turn(next).pass_to(next, release);
    }

    #[inline]
    fn is_locked(&self) -> bool {
        // Relaxed: a hint.
        let next = self.entry.next.load(Relaxed);
        self.turn(next).ticket(Relaxed) != next
    }
}

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
const _: () = assert!(size_of::<Anderson<16>>() == size_of::<CachePadded<u8>>() * 17);

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn tickets_wrap() {
        let mut lock = Anderson::<2>::new();
        let last = STEP.wrapping_neg();
        lock.entry.next.store(last, Relaxed); // Relaxed: one thread
        *lock.turns[0] = TurnCounter::new(last - STEP);
        *lock.turns[1] = TurnCounter::new(last);
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
