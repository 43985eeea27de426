//! The one flush that may be scheduled for a later time, as with memcached's `flush_all DELAY`.
//!
//! # Guarantees
//!
//! 1. A thread that returns from [`run_if_due`](DelayedFlush::run_if_due) at or after the flush's
//!    time is ordered after the flush, whichever thread performed it: it does not see what the
//!    flush hides.
//! 2. A flush is performed once, and not before its time. A flush scheduled meanwhile replaces it
//!    or, if it is already being performed, follows it.
//!
//! Cost when no flush is due: one load.

use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::{AtomicU64, Ordering, Ordering::Acquire, Ordering::Release};
use corewise_atomic::{mutant, ordering};
use corewise_ops::{Deadline, Now};

const NEVER: u64 = u64::MAX;

/// A scheduled flush. See the [module](self).
pub(super) struct DelayedFlush {
    /// The time of the flush, or [`NEVER`]. Written by the holder of `performing`.
    at_ms: AtomicU64,
    /// Held by the thread that performs the flush, or schedules one.
    performing: Mutex<()>,
}

impl DelayedFlush {
    pub(super) fn new() -> Self {
        Self {
            at_ms: AtomicU64::new(NEVER),
            performing: Mutex::new(()),
        }
    }

    /// Schedules a flush, replacing the one that was scheduled before, if any. Waits for one that
    /// is being performed: its end would take this one for itself if both had the same time.
    pub(super) fn order(&self, at: Deadline) {
        let at_ms = if at == Deadline::NEVER {
            NEVER
        } else {
            at.to_bits()
        };
        let _performing = (!mutant!("orders_beside_a_flush")).then(|| self.performing.lock());
        // Release: pairs with the Acquire in `run_if_due`. A thread that reads this time does not
        // read what the end of an earlier flush has stored, and is ordered after that flush too.
        self.at_ms
            .store(at_ms, ordering!(Release, "relaxed_order_after_a_flush"));
    }

    /// Performs the flush if its time has come and no other thread has performed it.
    #[inline]
    pub(super) fn run_if_due(&self, now: Now, flush: impl FnOnce()) {
        // Acquire: pairs with the Release in `run` and in `order`, so that a thread that finds no
        // flush due is ordered after the last one.
        let at_ms = self.at_ms.load(ordering!(Acquire, "relaxed_look_at_flush"));
        if at_ms <= now.ms {
            self.run(at_ms, flush);
        }
    }

    #[cold]
    fn run(&self, at_ms: u64, flush: impl FnOnce()) {
        let _performing = self.performing.lock();
        let first = mutant!("takes_the_time_first");
        // Relaxed: only the holder of the lock writes it.
        if self.at_ms.load(Ordering::Relaxed) == at_ms {
            if first {
                self.at_ms.store(NEVER, Ordering::Relaxed);
            }
            flush();
            // Release: pairs with the Acquire in `run_if_due`.
            let release = ordering!(Release, "relaxed_end_of_flush");
            self.at_ms.store(NEVER, release);
        }
    }
}

#[cfg(test)]
mod models {
    use super::*;
    use corewise_atomic::sync::atomic::AtomicUsize;
    use corewise_atomic::{model, thread};
    use std::sync::Arc;

    /// Mutants `takes_the_time_first`, `relaxed_look_at_flush`, `relaxed_end_of_flush`.
    #[test]
    fn a_thread_that_sees_no_due_flush_sees_its_effects() {
        model(|| {
            let now = Now::new(7, 0);
            let shared = Arc::new((DelayedFlush::new(), AtomicUsize::new(0)));
            shared.0.order(Deadline::at_ms(7));
            let run = move |shared: &(DelayedFlush, AtomicUsize)| {
                // Relaxed: the test checks that the flush itself orders it.
                let (delayed, flushes) = shared;
                delayed.run_if_due(now, || _ = flushes.fetch_add(1, Ordering::Relaxed));
                assert_eq!(flushes.load(Ordering::Relaxed), 1);
            };
            let other = Arc::clone(&shared);
            let thread = thread::spawn(move || run(&other));
            run(&shared);
            thread.join().unwrap();
        });
    }

    /// Mutant `relaxed_order_after_a_flush`.
    #[test]
    fn a_thread_that_sees_a_later_flush_sees_the_effects_of_the_one_before() {
        model(|| {
            let now = Now::new(7, 0);
            let shared = Arc::new((DelayedFlush::new(), AtomicUsize::new(0)));
            shared.0.order(Deadline::at_ms(7));
            let other = Arc::clone(&shared);
            let thread = thread::spawn(move || {
                let (delayed, flushes) = &*other;
                // Relaxed, both: the test checks that the flush orders them.
                delayed.run_if_due(now, || _ = flushes.fetch_add(1, Ordering::Relaxed));
                assert_eq!(flushes.load(Ordering::Relaxed), 1);
            });
            let (delayed, flushes) = &*shared;
            // Relaxed: as above.
            delayed.run_if_due(now, || _ = flushes.fetch_add(1, Ordering::Relaxed));
            delayed.order(Deadline::at_ms(9));
            thread.join().unwrap();
        });
    }

    /// Mutant `orders_beside_a_flush`.
    #[test]
    fn a_flush_of_the_same_time_follows_the_one_that_is_performed() {
        model(|| {
            let now = Now::new(7, 0);
            // The last change, and the last change before a flush.
            let (change, flushed) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let shared = Arc::new((DelayedFlush::new(), change, flushed));
            shared.0.order(Deadline::at_ms(7));
            let run = move |shared: &(DelayedFlush, AtomicUsize, AtomicUsize)| {
                // Relaxed, both: the lock orders the flushes, and each after what was changed
                // before it was scheduled.
                let (delayed, change, flushed) = shared;
                let flush = || flushed.store(change.load(Ordering::Relaxed), Ordering::Relaxed);
                delayed.run_if_due(now, flush);
            };
            let other = Arc::clone(&shared);
            let thread = thread::spawn(move || run(&other));
            // Relaxed: as above.
            shared.1.store(1, Ordering::Relaxed);
            shared.0.order(Deadline::at_ms(7));
            run(&shared);
            thread.join().unwrap();
            // Relaxed: as above.
            assert_eq!(shared.2.load(Ordering::Relaxed), 1);
        });
    }
}
