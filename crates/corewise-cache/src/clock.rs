//! Sources of time.
//!
//! An event loop reads the clock once per turn and passes the reading to everything it executes
//! ([`corewise_ops::Now`]). So one batch sees one time, and tests can move time by hand.

use corewise_atomic::sync::atomic::{AtomicU64, Ordering};
use corewise_ops::Now;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds at which every time line starts. Well above [`corewise_ops::Deadline::PAST`], so
/// that no live item is older than the clock.
pub const ORIGIN_MS: u64 = 2_000;

/// A source of [`Now`].
pub trait TimeSource: Send + Sync + 'static {
    /// The present instant. Monotonic in [`Now::ms`].
    fn now(&self) -> Now;
}

/// The machine's clocks: monotonic time since this value was made, and the wall clock as it stood
/// then, advanced by the same amount.
///
/// Stepping the wall clock later does not move deadlines. Absolute expiry times are understood
/// against the wall clock at start plus the time elapsed.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
    unix_ms_at_start: u64,
}

impl SystemClock {
    /// Creates a clock whose time line starts now.
    #[must_use]
    pub fn new() -> Self {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let now = Instant::now();
        // A millisecond of this clock begins with one of the wall clock.
        let since_last_ms = Duration::from_nanos(u64::from(unix.subsec_nanos() % 1_000_000));
        Self {
            started: now.checked_sub(since_last_ms).unwrap_or(now),
            unix_ms_at_start: unix.as_millis() as u64,
        }
    }

    /// Milliseconds since the Unix epoch at `now`, a reading of this clock.
    ///
    /// ```
    /// use corewise_cache::{TimeSource, SystemClock};
    /// let clock = SystemClock::new();
    /// let now = clock.now();
    /// assert_eq!(clock.unix_ms(now) / 1000, now.unix_s);
    /// ```
    #[inline]
    #[must_use]
    pub fn unix_ms(&self, now: Now) -> u64 {
        self.unix_ms_at_start + now.ms.saturating_sub(ORIGIN_MS)
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl TimeSource for SystemClock {
    #[inline]
    fn now(&self) -> Now {
        let elapsed = self.started.elapsed().as_millis() as u64;
        Now {
            ms: ORIGIN_MS + elapsed,
            unix_s: (self.unix_ms_at_start + elapsed) / 1000,
        }
    }
}

/// A clock that moves only when it is told to.
///
/// ```
/// use corewise_cache::{TimeSource, ManualClock};
/// let clock = ManualClock::new(1_700_000_000);
/// let before = clock.now();
/// clock.advance_ms(1_500);
/// assert_eq!(clock.now().ms, before.ms + 1_500);
/// assert_eq!(clock.now().unix_s, 1_700_000_001);
/// ```
#[derive(Debug)]
pub struct ManualClock {
    elapsed_ms: AtomicU64,
    unix_s_at_start: u64,
}

impl ManualClock {
    /// Creates a clock whose wall time stands at `unix_s`.
    #[must_use]
    pub fn new(unix_s: u64) -> Self {
        Self {
            elapsed_ms: AtomicU64::new(0),
            unix_s_at_start: unix_s,
        }
    }

    /// Moves both time lines forward.
    pub fn advance_ms(&self, ms: u64) {
        // Relaxed: a test's own synchronisation orders it; the value guards nothing.
        self.elapsed_ms.fetch_add(ms, Ordering::Relaxed);
    }
}

impl TimeSource for ManualClock {
    fn now(&self) -> Now {
        // Relaxed: see `advance_ms`.
        let elapsed = self.elapsed_ms.load(Ordering::Relaxed);
        Now {
            ms: ORIGIN_MS + elapsed,
            unix_s: self.unix_s_at_start + elapsed / 1000,
        }
    }
}
