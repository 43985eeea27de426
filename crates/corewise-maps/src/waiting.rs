//! How a thread waits for a lock that others hold for a handful of stores.

use corewise_atomic::{hint, thread};

/// Failed attempts before a thread gives way: whoever has the lock may have lost its processor.
const SPINS: u32 = 64;

/// Somebody who waits for another thread.
#[derive(Default)]
pub(crate) struct Waiting(u32);

impl Waiting {
    /// Waits for a moment, before the next attempt.
    pub(crate) fn a_moment(&mut self) {
        self.0 = self.0.saturating_add(1);
        if self.0 < SPINS {
            hint::spin_loop();
        } else {
            thread::yield_now();
        }
    }
}
