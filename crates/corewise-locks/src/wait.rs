//! How threads wait.

use corewise_atomic::{hint, thread};

/// Pauses of a waiting thread before it yields.
///
/// If the thread that must act next runs, it hands the lock over within a few pauses. If it does
/// not run, only a yield helps. 127 pauses, as [`Backoff`](corewise_atomic::Backoff) makes before
/// its first yield, cost a queue lock on one CPU three quarters of its throughput.
const PAUSES: u32 = 16;

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
}
