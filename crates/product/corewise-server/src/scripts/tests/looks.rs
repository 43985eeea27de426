//! What tests see of the looks at the clock.

use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::time::Duration;

/// The looks at the clock during one script.
#[derive(Default)]
pub(in crate::scripts) struct Looks {
    count: Cell<usize>,
    last: Cell<Duration>,
    longest: Cell<Duration>,
    /// How many looks there may be, and how long they may take, before the script is killed.
    most: Cell<Option<(usize, Duration)>>,
}

/// The processor time of this thread, which other programs do not make longer.
fn now() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

impl Looks {
    pub(in crate::scripts) fn begin(&self) {
        self.count.set(0);
        self.last.set(now());
        self.longest.set(Duration::ZERO);
        self.most.set(None);
    }

    /// Notes a look. Returns whether the script must be killed.
    pub(in crate::scripts) fn note(&self) -> bool {
        let now = now();
        self.count.set(self.count.get() + 1);
        self.longest
            .set(self.longest.get().max(now.saturating_sub(self.last.get())));
        self.last.set(now);
        self.most
            .get()
            .is_some_and(|(count, until)| self.count.get() >= count || now >= until)
    }

    /// Kills the script after this number of looks, or after this time.
    pub(super) fn kill_after(&self, looks: usize, time: Duration) {
        self.most
            .set(Some((self.count.get() + looks, now() + time)));
    }

    /// The number of looks.
    pub(super) fn count(&self) -> usize {
        self.count.get()
    }

    /// The longest processor time without a look.
    pub(super) fn longest(&self) -> Duration {
        self.longest.get()
    }
}
