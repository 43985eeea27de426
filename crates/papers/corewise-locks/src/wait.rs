//! How threads wait.

use corewise_atomic::{hint, mutant, thread};

/// Pauses of a waiting thread before it yields.
///
/// If the thread that must act next runs, it hands the lock over within a few pauses. If it does
/// not run, only a yield helps. 127 pauses, as [`Backoff`](corewise_atomic::Backoff) makes before
/// its first yield, cost a queue lock on one CPU three quarters of its throughput.
const PAUSES: u32 = 16;

/// Yields of a waiting thread before it sleeps, if it can.
const YIELDS: u32 = if cfg!(any(corewise_loom, corewise_shuttle, corewise_stress)) {
    1
} else {
    16
};

/// The waiting loop of a thread in a queue: some pauses, then yields.
pub(crate) struct QueueWait {
    rounds: u32,
}

impl QueueWait {
    #[inline]
    pub(crate) fn new() -> Self {
        Self { rounds: 0 }
    }

    /// Pauses once. Returns whether the thread yielded.
    #[inline]
    pub(crate) fn pause(&mut self) -> bool {
        // loom and shuttle need a yield, and learn nothing from several pauses.
        if self.rounds < PAUSES && !cfg!(any(corewise_loom, corewise_shuttle)) {
            self.rounds += 1;
            hint::spin_loop();
            false
        } else {
            thread::yield_now();
            true
        }
    }

    /// Pauses until `is_done` returns true.
    #[inline]
    pub(crate) fn until(mut is_done: impl FnMut() -> bool) {
        let mut wait = Self::new();
        while !is_done() {
            wait.pause();
        }
    }

    /// Pauses until `is_done` returns true, or the thread should sleep. Returns whether it is done.
    #[inline]
    pub(crate) fn until_or_tired(mut is_done: impl FnMut() -> bool) -> bool {
        let mut wait = Self::new();
        let mut yields = 0;
        loop {
            watch::look();
            if is_done() {
                return true;
            }
            if yields == YIELDS {
                return false;
            }
            yields += u32::from(wait.pause());
        }
    }
}

/// Looks of a waiting thread before it sleeps, at most.
#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
pub(crate) const MOST_LOOKS: u32 = PAUSES + YIELDS + 1;

/// What the waiting threads of a test do. Nothing is counted elsewhere.
#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
pub(crate) mod watch {
    use std::cell::RefCell;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::SeqCst;

    /// The counts of some threads.
    #[derive(Debug, Default)]
    pub(crate) struct Watch {
        /// How often they looked at what they wait for.
        pub(crate) looks: AtomicU32,
        /// Threads that sleep.
        pub(crate) asleep: AtomicU32,
    }

    thread_local! {
        static WATCH: RefCell<Option<Arc<Watch>>> = const { RefCell::new(None) };
    }

    /// From now on this thread counts in `watch`.
    pub(crate) fn join(watch: &Arc<Watch>) {
        WATCH.with(|own| *own.borrow_mut() = Some(watch.clone()));
    }

    fn current() -> Option<Arc<Watch>> {
        // None also in destructors of thread-locals.
        WATCH.try_with(|own| own.borrow().clone()).ok().flatten()
    }

    pub(crate) fn look() {
        if let Some(watch) = current() {
            watch.looks.fetch_add(1, SeqCst); // SeqCst, here and below: it is not hot
        }
    }

    pub(crate) fn sleep(park: impl FnOnce()) {
        let watch = current();
        if let Some(watch) = &watch {
            watch.asleep.fetch_add(1, SeqCst); // SeqCst: as above
        }
        park();
        if let Some(watch) = &watch {
            watch.asleep.fetch_sub(1, SeqCst); // SeqCst: as above
        }
    }
}

#[cfg(not(all(test, not(any(corewise_loom, corewise_shuttle)))))]
pub(crate) mod watch {
    #[inline(always)]
    pub(crate) fn look() {}

    #[inline(always)]
    pub(crate) fn sleep(park: impl FnOnce()) {
        park();
    }
}

/// Parks until `is_woken` returns true. The thread that makes it true unparks this one afterwards.
///
/// A thread has one unpark token for all purposes, and code around the lock may wait for it as
/// well: it checks its condition, locks, and parks. If the lock took the token of that other
/// wake-up, the thread would sleep for ever. So this leaves a token. At worst the next `park`
/// returns early, which callers of `park` must expect.
pub(crate) fn sleep_until(mut is_woken: impl FnMut() -> bool) {
    let mut has_parked = false;
    while !is_woken() {
        watch::sleep(thread::park);
        has_parked = true;
    }
    if has_parked && !mutant!("sleep_takes_token") {
        thread::unpark(&thread::current());
    }
}

#[cfg(test)]
mod models {
    use super::*;
    use corewise_atomic::model;
    use corewise_atomic::sync::Arc;
    use corewise_atomic::sync::atomic::AtomicBool;
    use corewise_atomic::sync::atomic::Ordering::{Acquire, Release};

    /// A thread that was unparked for another reason before it slept still is afterwards. (Not
    /// through a lock: in loom a yield drops the token.)
    #[test]
    fn a_sleep_keeps_the_unpark_token() {
        model(|| {
            let is_woken = Arc::new(AtomicBool::new(false));
            let shared = is_woken.clone();
            let sleeping = thread::spawn(move || {
                thread::unpark(&thread::current());
                // Acquire: pairs with the Release below.
                sleep_until(|| shared.load(Acquire));
                // If the token is gone, the model ends as a deadlock.
                thread::park();
            });
            // Release: pairs with the Acquire above.
            is_woken.store(true, Release);
            thread::unpark(sleeping.thread());
            sleeping.join().unwrap();
        });
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_pauses_a_few_times_and_then_yields() {
        let mut wait = QueueWait::new();
        let yields: Vec<bool> = (0..PAUSES + 3).map(|_| wait.pause()).collect();
        assert_eq!(yields.iter().filter(|yields| **yields).count(), 3);
        assert!(yields.is_sorted());
    }

    #[test]
    fn a_thread_that_can_sleep_stops_yielding_after_some_turns() {
        let mut looks = 0;
        assert!(!QueueWait::until_or_tired(|| {
            looks += 1;
            false
        }));
        assert_eq!(looks, PAUSES + YIELDS + 1);
        assert!(QueueWait::until_or_tired(|| {
            looks -= 1;
            looks == 3
        }));
    }
}
