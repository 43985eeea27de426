//! The one flush that may be scheduled for a later time, as with memcached's `flush_all DELAY`.
//!
//! # Guarantees
//!
//! 1. A thread that returns from [`run_if_due`](DelayedFlush::run_if_due) at or after the flush's
//!    time is ordered after the flush, whichever thread performed it: it does not see what the
//!    flush hides.
//! 2. A flush is performed once. A flush scheduled meanwhile replaces it or, if it is already being
//!    performed, stays scheduled.
//!
//! Cost when no flush is due: one load.

use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::{AtomicU64, Ordering, Ordering::Acquire, Ordering::Release};
use corewise_atomic::{mutant, ordering};
use corewise_ops::{Deadline, Now};

const NEVER: u64 = u64::MAX;

/// A scheduled flush. See the [module](self).
pub(super) struct DelayedFlush {
    /// The time of the flush, or [`NEVER`].
    at_ms: AtomicU64,
    /// Held by the thread that performs the flush.
    performing: Mutex<()>,
}

impl DelayedFlush {
    pub(super) fn new() -> Self {
        Self {
            at_ms: AtomicU64::new(NEVER),
            performing: Mutex::new(()),
        }
    }

    /// Schedules a flush, replacing the one that was scheduled before, if any.
    pub(super) fn order(&self, at: Deadline) {
        let at_ms = if at == Deadline::NEVER {
            NEVER
        } else {
            at.to_bits()
        };
        // Relaxed: the store publishes nothing.
        self.at_ms.store(at_ms, Ordering::Relaxed);
    }

    /// Performs the flush if its time has come and no other thread has performed it.
    #[inline]
    pub(super) fn run_if_due(&self, now: Now, flush: impl FnOnce()) {
        // Acquire: pairs with the Release in `clear`, so that a thread that finds no flush due is
        // ordered after it.
        let at_ms = self.at_ms.load(ordering!(Acquire, "relaxed_look_at_flush"));
        if at_ms <= now.ms {
            self.run(at_ms, flush);
        }
    }

    #[cold]
    fn run(&self, at_ms: u64, flush: impl FnOnce()) {
        if mutant!("takes_the_time_first") {
            let ours = self.clear(at_ms);
            return if ours {
                flush()
            };
        }
        let _performing = self.performing.lock();
        // Relaxed: only the holder of the lock clears it.
        if self.at_ms.load(Ordering::Relaxed) == at_ms {
            flush();
            self.clear(at_ms);
        }
    }

    /// Clears the time, unless another flush was scheduled meanwhile.
    fn clear(&self, at_ms: u64) -> bool {
        // Release: pairs with the Acquire in `run_if_due`. Relaxed: a value found instead is not
        // followed.
        let release = ordering!(Release, "relaxed_end_of_flush");
        let cleared = self
            .at_ms
            .compare_exchange(at_ms, NEVER, release, Ordering::Relaxed);
        cleared.is_ok()
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
    fn who_finds_no_flush_due_comes_after_it() {
        model(|| {
            let now = Now { ms: 7, unix_s: 0 };
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
}
