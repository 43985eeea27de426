//! A monotonic clock that loom, shuttle and tests control.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Nanoseconds since an arbitrary start, never going back.
///
/// Under loom and shuttle the clock advances only in [`crate::thread::sleep`] and
/// [`crate::thread::park_timeout`], so that a run can be repeated.
#[inline]
pub fn now_ns() -> u64 {
    #[cfg(any(corewise_loom, corewise_shuttle))]
    return virtual_clock::now_ns();
    #[cfg(corewise_sim)]
    if let Some(simulator) = crate::sim::simulator() {
        return simulator.now_ns();
    }
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    return real_now_ns();
}

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
fn real_now_ns() -> u64 {
    static START: std::sync::LazyLock<std::time::Instant> =
        std::sync::LazyLock::new(std::time::Instant::now);
    saturating_ns(START.elapsed())
}

fn saturating_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A source of time: the system's clock, or one that a test sets.
///
/// ```
/// use corewise_atomic::time::Clock;
/// use std::time::Duration;
///
/// let clock = Clock::manual();
/// let copy = clock.clone();
/// clock.advance(Duration::from_secs(2));
/// assert_eq!(copy.now_ns(), 2_000_000_000);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<AtomicU64>>);

impl Clock {
    /// The clock of [`now_ns`].
    pub fn monotonic() -> Self {
        Self(None)
    }

    /// A clock at zero that only [`Clock::advance`] moves; clones share it.
    pub fn manual() -> Self {
        Self(Some(Arc::default()))
    }

    /// Nanoseconds on this clock.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        match &self.0 {
            None => now_ns(),
            // Relaxed: a number that publishes nothing.
            Some(manual) => manual.load(Relaxed),
        }
    }

    /// Advances a manual clock; has no effect on the system's.
    pub fn advance(&self, by: Duration) {
        if let Some(manual) = &self.0 {
            // Relaxed: a number that publishes nothing.
            manual.fetch_add(saturating_ns(by), Relaxed);
        }
    }
}

#[cfg(any(corewise_loom, corewise_shuttle))]
pub(crate) use virtual_clock::{advance as advance_model_clock, reset as reset_model_clock};

/// One number per OS thread: loom and shuttle run all threads of a model on one OS thread, one at a
/// time.
#[cfg(any(corewise_loom, corewise_shuttle))]
mod virtual_clock {
    use std::cell::Cell;
    use std::time::Duration;

    std::thread_local! {
        static NOW_NS: Cell<u64> = const { Cell::new(0) };
    }

    pub(super) fn now_ns() -> u64 {
        NOW_NS.get()
    }

    pub(crate) fn advance(by: Duration) {
        NOW_NS.set(NOW_NS.get().saturating_add(super::saturating_ns(by)));
    }

    pub(crate) fn reset() {
        NOW_NS.set(0);
    }
}
