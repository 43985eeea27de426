//! A lock that spins, queues or parks, depending on contention (thesis §3.4.7 asks for one).
//!
//! ```text
//! Adaptive, 256 bytes in two lines:
//!   word: FREE, HELD (mode spin), QUEUE, PARK | waiting: threads that spin | owner only: counts
//!   queue: Mcs | park: Parking
//! ```
//!
//! | mode | `word` | a thread holds the lock if |
//! |---|---|---|
//! | spin | FREE or HELD | it changed `word` from FREE to HELD |
//! | queue | QUEUE | it holds `queue` and has read QUEUE since |
//! | park | PARK | it holds `park` and has read PARK since |
//!
//! The holder changes the mode when it unlocks: it stores `word`, and unlocks the lock of the old
//! mode last. A thread that gets `queue` or `park` reads `word` again; if the mode is another one,
//! it unlocks and starts over.
//!
//! | from | to | when |
//! |---|---|---|
//! | spin | queue | 16 unlocks found three spinning threads or more, since a time without any |
//! | spin | park | likewise, and they outnumber the other CPUs at the last one |
//! | queue | park | the holder slept while it waited |
//! | queue, park | spin | at 64 unlocks in a row, no thread waits |
//!
//! A mode lasts for 256 unlocks at least. If a change is undone soon, this number doubles, up to
//! 65,536.
//!
//! # Guarantees
//!
//! Those of every lock of the crate, and:
//!
//! 1. *Fairness.* That of the mode: none, FIFO, none. Threads that wait when the mode changes start
//!    over.
//! 2. *Cost.* Uncontended: one read-modify-write to lock, one store to unlock.
//! 3. *Waiting.* A thread that waits sleeps in the end: in mode spin after some 100 µs, for 50 µs
//!    to 1 ms at a time; in the other modes until it is woken.
//! 4. *The mode is policy.* Exclusion does not depend on when modes change.

use std::time::Duration;

use corewise_atomic::sync::atomic::AtomicU32;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::{Backoff, CachePadded, Sleeps, mutant, ordering, static_cell};

use crate::{Mcs, Parking, RawLock, constructor};

const FREE: u32 = 0;
const HELD: u32 = 1;
const QUEUE: u32 = 2;
const PARK: u32 = 3;

/// Whether every decision is made at once, so that tests see all modes.
const IS_HASTY: bool = cfg!(any(corewise_loom, corewise_shuttle, corewise_stress));
/// Unlocks with many spinning threads after which the lock leaves spin mode.
const UP_AFTER: u32 = if IS_HASTY { 1 } else { 16 };
/// Threads that spin so that a queue pays.
const MANY_WAITING: u32 = if IS_HASTY { 1 } else { 3 };
/// Unlocks without a waiting thread after which the lock spins again.
const DOWN_AFTER: u32 = if IS_HASTY { 1 } else { 64 };
/// Unlocks for which a mode lasts at least.
const SHORTEST_DWELL: u32 = if IS_HASTY { 0 } else { 256 };
/// The limit to which that number doubles.
const LONGEST_DWELL: u32 = 1 << 16;
/// Spinning threads sleep, too, if nothing changes for long: few threads, or one long section.
const SLEEPS: Sleeps = Sleeps {
    after_rounds: 256,
    shortest: Duration::from_micros(50),
    longest: Duration::from_millis(1),
};

/// A lock that spins while contention is low, queues when it is high, and parks when there are more
/// threads than CPUs.
///
/// ```
/// use corewise_locks::{Adaptive, Lock};
///
/// let lock: Lock<u32, Adaptive> = Lock::new(1);
/// *lock.lock() += 1;
/// assert_eq!(lock.into_inner(), 2);
/// ```
#[derive(Debug)]
pub struct Adaptive {
    front: CachePadded<Front>,
    /// In one line: one of them is in use at a time.
    waits: CachePadded<Waits>,
}

#[derive(Debug)]
struct Waits {
    queue: Mcs,
    park: Parking,
}

#[derive(Debug)]
struct Front {
    word: AtomicU32,
    /// Threads that spin.
    waiting: AtomicU32,
    /// Unlocks that speak for a change: in a row, or in spin mode since no thread spun. The holder
    /// writes it, and a thread that begins to spin.
    streak: AtomicU32,
    /// The fields below are accessed by the holder only.
    /// Unlocks until the mode may change.
    dwell_left: AtomicU32,
    /// The dwell of the last change.
    dwell: AtomicU32,
    /// Unlocks since the last change, up to the longest dwell.
    age: AtomicU32,
    /// Whether the holder slept while it queued.
    has_slept: AtomicU32,
}

static_cell! {
    static CPUS: u32 = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
}

constructor! { [] Adaptive,
    /// Creates an unlocked lock, which spins at first.
    pub fn new() -> Self {
        Self {
            front: CachePadded::new(Front {
                word: AtomicU32::new(FREE),
                waiting: AtomicU32::new(0),
                streak: AtomicU32::new(0),
                dwell_left: AtomicU32::new(0),
                dwell: AtomicU32::new(SHORTEST_DWELL),
                age: AtomicU32::new(LONGEST_DWELL),
                has_slept: AtomicU32::new(0),
            }),
            waits: CachePadded::new(Waits {
                queue: Mcs::new(),
                park: Parking::new(),
            }),
        }
    }
}

/// How an [`Adaptive`] lock lets threads wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Threads spin.
    Spin,
    /// Threads queue.
    Queue,
    /// Threads sleep.
    Park,
}

impl Front {
    /// Counts an unlock that speaks for a change, or one that does not. Returns whether to change.
    fn counts_for_change(&self, speaks_for: bool, needed: u32) -> bool {
        // Relaxed, all: only the holder accesses them.
        let age = self.age.load(Relaxed);
        self.age.store((age + 1).min(LONGEST_DWELL), Relaxed);
        // Relaxed, both: only the holder accesses it.
        let left = self.dwell_left.load(Relaxed);
        if left > 0 {
            self.dwell_left.store(left - 1, Relaxed);
            return false;
        }
        // Relaxed, both: policy only; see `begin_to_spin`.
        let streak = self.streak.load(Relaxed) + 1;
        let streak = if speaks_for { streak } else { 0 };
        self.streak.store(streak, Relaxed);
        streak >= needed
    }

    /// Begins a mode: it lasts longer if the last one was short.
    fn begin_mode(&self) {
        // Relaxed, all: only the holder accesses them.
        let dwell = self.dwell.load(Relaxed);
        let was_short = self.age.load(Relaxed) < dwell.saturating_mul(2);
        let dwell = if was_short {
            dwell.saturating_mul(2).min(LONGEST_DWELL)
        } else {
            SHORTEST_DWELL
        };
        // Relaxed, all: only the holder accesses them.
        self.dwell.store(dwell, Relaxed);
        self.dwell_left.store(dwell, Relaxed);
        self.streak.store(0, Relaxed);
        self.age.store(0, Relaxed);
    }

    /// The word after an unlock in spin mode.
    #[inline(always)]
    fn after_spin(&self) -> u32 {
        // Relaxed: a hint.
        let waiting = self.waiting.load(Relaxed);
        if waiting < MANY_WAITING {
            FREE
        } else {
            self.after_contention(waiting)
        }
    }

    #[cold]
    #[inline(never)]
    fn after_contention(&self, waiting: u32) -> u32 {
        if !self.counts_for_change(true, UP_AFTER) {
            return FREE;
        }
        self.begin_mode();
        if waiting >= *CPUS { PARK } else { QUEUE }
    }

    /// Counts a thread that begins to spin. The first one sets the streak to 0, so that unlocks
    /// without contention write `word` only.
    fn begin_to_spin(&self) {
        // Relaxed, both: policy only. The holder may overwrite the streak.
        if self.waiting.fetch_add(1, Relaxed) == 0 {
            self.streak.store(0, Relaxed);
        }
    }

    /// The word after an unlock in another mode.
    fn after_wait(&self, word: u32, is_awaited: bool) -> u32 {
        // Relaxed: only the holder accesses it.
        let has_slept = self.has_slept.load(Relaxed) != 0;
        let next = if has_slept && !self.counts_for_change(true, 1) {
            return word;
        } else if has_slept {
            PARK
        } else if self.counts_for_change(!is_awaited, DOWN_AFTER) {
            FREE
        } else {
            return word;
        };
        self.begin_mode();
        next
    }
}

impl Adaptive {
    /// How threads wait at present. A hint, for measurements.
    pub fn mode(&self) -> Mode {
        // Relaxed: a hint.
        match self.front.word.load(Relaxed) {
            QUEUE => Mode::Queue,
            PARK => Mode::Park,
            _ => Mode::Spin,
        }
    }

    /// Acquire: pairs with the Release stores in `unlock`.
    #[inline(always)]
    fn word(&self) -> u32 {
        self.front.word.load(Acquire)
    }

    #[inline(always)]
    fn take(&self) -> bool {
        // Acquire: pairs with the Release in `unlock`. Relaxed on failure: nothing is read.
        let acquire = ordering!(Acquire, "adaptive_relaxed_take");
        self.front
            .word
            .compare_exchange(FREE, HELD, acquire, Relaxed)
            .is_ok()
    }

    /// Spins, and sleeps now and then if that takes long, until the lock is taken (true), or the
    /// mode changes (false).
    fn spin(&self) -> bool {
        self.front.begin_to_spin();
        let mut backoff = Backoff::new();
        let is_taken = loop {
            // Relaxed: a hint; the exchange orders, and the other modes read it again.
            match self.front.word.load(Relaxed) {
                FREE if self.take() => break true,
                FREE | HELD => backoff.snooze_or_sleep(&SLEEPS),
                _ => break false,
            }
        };
        // Relaxed: the number of threads is a hint.
        self.front.waiting.fetch_sub(1, Relaxed);
        is_taken
    }

    #[cold]
    fn lock_slowly(&self) {
        loop {
            let is_taken = match self.word() {
                QUEUE => {
                    let has_slept = self.waits.queue.lock_reporting_sleep();
                    let is_taken = self.word() == QUEUE || mutant!("adaptive_no_recheck");
                    if is_taken {
                        // Relaxed: only the holder accesses it.
                        self.front.has_slept.store(u32::from(has_slept), Relaxed);
                    } else {
                        // SAFETY: locked above by this thread.
                        unsafe { self.waits.queue.unlock() };
                    }
                    is_taken
                }
                PARK => {
                    self.waits.park.lock();
                    let is_taken = self.word() == PARK;
                    if is_taken {
                        // Relaxed: only the holder accesses it.
                        self.front.has_slept.store(0, Relaxed);
                    } else {
                        // SAFETY: locked above by this thread.
                        unsafe { self.waits.park.unlock() };
                    }
                    is_taken
                }
                _ => self.spin(),
            };
            if is_taken {
                return;
            }
        }
    }

    /// Tries the lock of a mode, and backs out if the mode is another one by now.
    fn try_mode(&self, lock: &impl RawLock, word: u32) -> bool {
        if !lock.try_lock() {
            return false;
        }
        let is_taken = self.word() == word;
        if is_taken {
            // Relaxed: only the holder accesses it.
            self.front.has_slept.store(0, Relaxed);
        } else {
            // SAFETY: locked above by this thread.
            unsafe { lock.unlock() };
        }
        is_taken
    }

    /// Unlocks in queue or park mode.
    #[cold]
    unsafe fn unlock_waited(&self, word: u32) {
        let is_queue = word == QUEUE;
        let is_awaited = if is_queue {
            self.waits.queue.has_waiter()
        } else {
            self.waits.park.is_awaited()
        };
        let next = self.front.after_wait(word, is_awaited);
        let unlock = || {
            // SAFETY: the caller holds the lock, and so the lock of the mode.
            unsafe {
                if is_queue {
                    self.waits.queue.unlock();
                } else {
                    self.waits.park.unlock();
                }
            }
        };
        let is_early = mutant!("adaptive_switch_late");
        if is_early {
            unlock();
        }
        if next != word {
            // Release: pairs with the Acquire in `word` and `take`, for threads that get the lock
            // in the next mode.
            let release = ordering!(Release, "adaptive_relaxed_switch");
            self.front.word.store(next, release);
        }
        if !is_early {
            unlock();
        }
    }
}

// SAFETY: only the holder changes `word`, except from FREE to HELD, so the mode is constant while
// the lock is held in queue or park mode, and the lock of that mode excludes; a thread in another
// lock reads `word` and backs out. In spin mode FREE to HELD excludes (1). A holder stores `word`
// with Release or unlocks the lock of the mode, and the next one reads the same (2).
unsafe impl RawLock for Adaptive {
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    const UNLOCKED: Self = Self::new();

    #[inline]
    fn lock(&self) {
        // Relaxed: a hint. A failed exchange would take the line away from the holder.
        if self.front.word.load(Relaxed) != FREE || !self.take() {
            self.lock_slowly();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        match self.word() {
            FREE => self.take(),
            QUEUE => self.try_mode(&self.waits.queue, QUEUE),
            PARK => self.try_mode(&self.waits.park, PARK),
            _ => false,
        }
    }

    #[inline]
    unsafe fn unlock(&self) {
        // Relaxed: only the holder changes it.
        let word = self.front.word.load(Relaxed);
        if word == HELD {
            // Release: pairs with the Acquire in `take` and `word`.
            let release = ordering!(Release, "adaptive_relaxed_unlock");
            self.front.word.store(self.front.after_spin(), release);
        } else {
            // SAFETY: the caller holds the lock.
            unsafe { self.unlock_waited(word) };
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        // Relaxed: a hint.
        match self.front.word.load(Relaxed) {
            FREE => false,
            HELD => true,
            QUEUE => self.waits.queue.is_locked(),
            _ => self.waits.park.is_locked(),
        }
    }
}

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
const _: () = assert!(size_of::<Adaptive>() == 2 * size_of::<CachePadded<u8>>());

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle, corewise_stress))))]
mod tests {
    use super::*;

    fn unlocks(lock: &Adaptive, number: u32, waiting: u32) {
        for _ in 0..number {
            lock.lock();
            // Relaxed: one thread.
            lock.front.waiting.store(waiting, Relaxed);
            // SAFETY: this thread has locked the lock (1), which stays where it is (2).
            unsafe { lock.unlock() };
            lock.front.waiting.store(0, Relaxed);
        }
    }

    #[test]
    fn the_mode_follows_contention_and_returns() {
        let lock = Adaptive::new();
        unlocks(&lock, 1_000, 2);
        assert_eq!(lock.mode(), Mode::Spin);
        unlocks(&lock, UP_AFTER, (*CPUS).max(MANY_WAITING));
        assert_eq!(lock.mode(), Mode::Park);
        unlocks(&lock, SHORTEST_DWELL + DOWN_AFTER - 1, 0);
        assert_eq!(lock.mode(), Mode::Park);
        unlocks(&lock, 1, 0);
        assert_eq!(lock.mode(), Mode::Spin);
    }

    #[test]
    fn a_mode_that_was_short_makes_the_next_one_longer() {
        let lock = Adaptive::new();
        let mut dwells = Vec::new();
        for _ in 0..12 {
            unlocks(&lock, LONGEST_DWELL + UP_AFTER, 0);
            unlocks(&lock, UP_AFTER, u32::MAX);
            dwells.push(lock.front.dwell.load(Relaxed)); // Relaxed: one thread
            unlocks(&lock, SHORTEST_DWELL + DOWN_AFTER, 0);
            dwells.push(lock.front.dwell.load(Relaxed)); // Relaxed: one thread
        }
        assert!(dwells.iter().all(|dwell| *dwell <= LONGEST_DWELL));
        assert!(
            dwells.iter().any(|dwell| *dwell > SHORTEST_DWELL),
            "{dwells:?}"
        );
    }

    #[test]
    fn a_queueing_thread_that_sleeps_makes_the_lock_park() {
        let lock = Adaptive::new();
        lock.front.word.store(QUEUE, Relaxed); // Relaxed: one thread
        unlocks(&lock, 1, 0);
        assert_eq!(lock.mode(), Mode::Queue);
        lock.lock();
        lock.front.has_slept.store(1, Relaxed); // Relaxed: one thread
        // SAFETY: this thread has locked the lock (1), which stays where it is (2).
        unsafe { lock.unlock() };
        assert_eq!(lock.mode(), Mode::Park);
        assert!(!lock.is_locked() && lock.try_lock() && lock.is_locked());
        // SAFETY: this thread has locked the lock again (1), which stays where it is (2).
        unsafe { lock.unlock() };
    }
}
