//! Sources of time.
//!
//! An event loop reads the clock once per turn and passes the reading to everything it executes
//! ([`corewise_ops::Now`]). So one batch sees one time, and tests can move time by hand.
//!
//! # Guarantees
//!
//! 1. The time line of [`Now::ms`] is monotonic. No step of the wall clock moves it, or a deadline
//!    on it.
//! 2. Each reading follows the steps of the wall clock that precede it. So an absolute expiry time
//!    becomes a deadline by the wall clock at the time of the command.
//! 3. While the wall clock does not step, its distance to the time line is the same whole number of
//!    milliseconds in all readings. So an absolute time that becomes a deadline and then an
//!    absolute time again is the same.

use corewise_atomic::sync::atomic::{AtomicU64, Ordering};
use corewise_ops::Now;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds at which every time line starts. Well above [`corewise_ops::Deadline::PAST`], so
/// that no live item is older than the clock.
pub const ORIGIN_MS: u64 = 2_000;

const NS_PER_MS: i64 = 1_000_000;

/// A smaller change of the distance between the wall clock and the time line is no step.
const STEP_NS: u64 = 2_000_000;

/// How often the distance is measured before a change counts as a step: the thread may be
/// interrupted between two readings.
const MEASUREMENTS: usize = 8;

/// A source of [`Now`].
pub trait TimeSource: Send + Sync + 'static {
    /// The present instant. Monotonic in [`Now::ms`].
    fn now(&self) -> Now;

    /// Milliseconds since the Unix epoch at `now`, a reading of this clock, by the wall clock as
    /// the last reading found it.
    fn unix_ms(&self, now: Now) -> u64;

    /// The wall clock: time since the Unix epoch.
    fn unix_time(&self) -> Duration;
}

/// The machine's clocks: monotonic time since this value was made, and the wall clock.
///
/// ```
/// use corewise_engine::{TimeSource, SystemClock};
/// let clock = SystemClock::new();
/// let now = clock.now();
/// assert_eq!(clock.unix_ms(now) / 1000, now.unix_s);
/// ```
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
    distance: Distance,
}

impl SystemClock {
    /// Creates a clock whose time line starts now.
    #[must_use]
    pub fn new() -> Self {
        let mut clock = Self {
            started: Instant::now(),
            distance: Distance::default(),
        };
        let distance_ns = Measurement::best(|| clock.measure()).latest_ns();
        // A millisecond of the time line begins with one of the wall clock.
        let since_last_ms = Duration::from_nanos(distance_ns.rem_euclid(NS_PER_MS) as u64);
        clock.started = clock
            .started
            .checked_sub(since_last_ms)
            .unwrap_or(clock.started);
        clock.distance.set(distance_ns);
        clock
    }

    /// Nanoseconds on the time line.
    #[inline]
    fn line_ns(&self) -> i64 {
        nanoseconds(self.started.elapsed()) + ORIGIN_MS as i64 * NS_PER_MS
    }

    #[inline]
    fn unix_ns(&self) -> i64 {
        nanoseconds(self.unix_time())
    }

    fn measure(&self) -> Measurement {
        Measurement {
            before_ns: self.line_ns(),
            unix_ns: self.unix_ns(),
            after_ns: self.line_ns(),
        }
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
        let line_ns = self.line_ns();
        let distance_ns = self.unix_ns() - line_ns;
        self.distance.follow(distance_ns, || self.measure());
        let ms = (line_ns / NS_PER_MS) as u64;
        Now::new(ms, self.distance.unix_ms(ms) / 1000)
    }

    #[inline]
    fn unix_ms(&self, now: Now) -> u64 {
        self.distance.unix_ms(now.ms)
    }

    #[inline]
    fn unix_time(&self) -> Duration {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
    }
}

/// As 64-bit nanoseconds, which suffice until the year 2262.
#[inline]
fn nanoseconds(time: Duration) -> i64 {
    (time.as_secs() as i64)
        .wrapping_mul(1000 * NS_PER_MS)
        .wrapping_add(i64::from(time.subsec_nanos()))
}

/// A reading of the wall clock between two of the time line.
#[derive(Clone, Copy, Debug)]
struct Measurement {
    before_ns: i64,
    unix_ns: i64,
    after_ns: i64,
}

impl Measurement {
    /// The one of several that took the least time.
    fn best(mut measure: impl FnMut() -> Self) -> Self {
        let first = measure();
        (1..MEASUREMENTS).fold(first, |best, _| {
            let next = measure();
            if next.uncertainty_ns() < best.uncertainty_ns() {
                next
            } else {
                best
            }
        })
    }

    /// The greatest distance that agrees with the readings.
    fn latest_ns(&self) -> i64 {
        self.unix_ns - self.before_ns
    }

    /// The least such distance is less by this.
    fn uncertainty_ns(&self) -> i64 {
        self.after_ns - self.before_ns
    }
}

/// The distance from the time line to the wall clock in milliseconds: the wall clock's time at the
/// zero of the time line, as the bits of a signed number.
#[derive(Debug, Default)]
struct Distance(AtomicU64);

impl Distance {
    fn set(&self, distance_ns: i64) {
        // Relaxed: the value guards nothing; a thread that misses it measures the step itself.
        let ms = distance_ns.div_euclid(NS_PER_MS) as u64;
        self.0.store(ms, Ordering::Relaxed);
    }

    #[inline]
    fn ms(&self) -> u64 {
        // Relaxed: see `set`.
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    fn unix_ms(&self, line_ms: u64) -> u64 {
        line_ms.saturating_add_signed(self.ms() as i64)
    }

    /// Follows a step of the wall clock, if the distance that was read shows one. Interruptions of
    /// the reading are recognized by `measure`.
    #[inline]
    fn follow(&self, read_ns: i64, measure: impl FnMut() -> Measurement) {
        if self.change_ns(read_ns).unsigned_abs() >= STEP_NS {
            self.follow_step(measure);
        }
    }

    #[cold]
    fn follow_step(&self, measure: impl FnMut() -> Measurement) {
        let best = Measurement::best(measure);
        let most = self.change_ns(best.latest_ns());
        let least = most - best.uncertainty_ns();
        let step = STEP_NS as i64;
        if most <= -step || least >= step {
            self.set(best.latest_ns());
        }
    }

    #[inline]
    fn change_ns(&self, distance_ns: i64) -> i64 {
        distance_ns.wrapping_sub((self.ms() as i64).wrapping_mul(NS_PER_MS))
    }
}

/// A clock that moves only when it is told to.
///
/// ```
/// use corewise_engine::{TimeSource, ManualClock};
/// let clock = ManualClock::new(1_700_000_000);
/// let before = clock.now();
/// clock.advance_ms(1_500);
/// assert_eq!(clock.now().ms, before.ms + 1_500);
/// assert_eq!(clock.now().unix_s, 1_700_000_001);
/// clock.step_wall_clock_ms(-3_600_000);
/// assert_eq!(clock.now().ms, before.ms + 1_500);
/// assert_eq!(clock.now().unix_s, 1_699_996_401);
/// ```
#[derive(Debug)]
pub struct ManualClock {
    elapsed_ms: AtomicU64,
    unix_ms_at_start: AtomicU64,
}

impl ManualClock {
    /// Creates a clock whose wall time stands at `unix_s`.
    #[must_use]
    pub fn new(unix_s: u64) -> Self {
        Self {
            elapsed_ms: AtomicU64::new(0),
            unix_ms_at_start: AtomicU64::new(unix_s * 1000),
        }
    }

    /// Moves both time lines forward.
    pub fn advance_ms(&self, ms: u64) {
        // Relaxed: a test's own synchronisation orders it; the value guards nothing.
        self.elapsed_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// Moves the wall clock, but not the time line, forward or back.
    pub fn step_wall_clock_ms(&self, ms: i64) {
        // Relaxed: see `advance_ms`. An addition that wraps moves it back.
        self.unix_ms_at_start
            .fetch_add(ms as u64, Ordering::Relaxed);
    }
}

impl TimeSource for ManualClock {
    fn now(&self) -> Now {
        // Relaxed: see `advance_ms`.
        let elapsed = self.elapsed_ms.load(Ordering::Relaxed);
        let now = Now::new(ORIGIN_MS + elapsed, 0);
        Now {
            unix_s: self.unix_ms(now) / 1000,
            ..now
        }
    }

    fn unix_ms(&self, now: Now) -> u64 {
        // Relaxed: see `advance_ms`.
        let start = self.unix_ms_at_start.load(Ordering::Relaxed);
        start.wrapping_add(now.ms - ORIGIN_MS)
    }

    fn unix_time(&self) -> Duration {
        Duration::from_millis(self.unix_ms(self.now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = NS_PER_MS;

    /// A pair of clocks: readings take time, and a pause may come between two of them.
    struct Clocks {
        line_ns: i64,
        distance_ns: i64,
        /// How long each of the next readings takes.
        pauses_ns: Vec<i64>,
    }

    impl Clocks {
        const READING_NS: i64 = 30;

        fn at(distance_ns: i64) -> Self {
            Self {
                line_ns: 2_000 * MS,
                distance_ns,
                pauses_ns: Vec::new(),
            }
        }

        fn line_ns(&mut self) -> i64 {
            let pause = self.pauses_ns.pop().unwrap_or(0);
            self.line_ns += Self::READING_NS + pause;
            self.line_ns
        }

        fn unix_ns(&mut self) -> i64 {
            self.line_ns() + self.distance_ns
        }

        fn measure(&mut self) -> Measurement {
            Measurement {
                before_ns: self.line_ns(),
                unix_ns: self.unix_ns(),
                after_ns: self.line_ns(),
            }
        }

        /// What [`SystemClock::now`] does.
        fn read(&mut self, distance: &Distance) {
            let line_ns = self.line_ns();
            let read_ns = self.unix_ns() - line_ns;
            distance.follow(read_ns, || self.measure());
        }
    }

    fn distance_of(distance_ns: i64) -> Distance {
        let distance = Distance::default();
        distance.set(distance_ns);
        distance
    }

    /// Distances whose fractions of a millisecond are at all places, before and after 1970.
    fn distances() -> impl Iterator<Item = i64> {
        let fractions = [0, 1, 30, 1_000, 499_999, 999_970, 999_999];
        let whole = [-MS, 0, 1_700_000_000_000 * MS];
        whole
            .into_iter()
            .flat_map(move |whole| fractions.map(|fraction| whole + fraction))
    }

    #[test]
    fn steps_of_the_wall_clock_are_followed() {
        for before_ns in distances() {
            for step_ms in [4, 50, 999, 1_000, 3_600_000, 40_000_000_000] {
                for step_ns in [step_ms * MS, -step_ms * MS] {
                    let distance = distance_of(before_ns);
                    let mut clocks = Clocks::at(before_ns + step_ns);
                    clocks.read(&distance);
                    let expected = clocks.distance_ns.div_euclid(MS);
                    let error_ms = distance.ms() as i64 - expected;
                    assert!((0..=1).contains(&error_ms), "{before_ns} {step_ns}");
                }
            }
        }
    }

    #[test]
    fn the_distance_stays_the_same_without_a_step() {
        for distance_ns in distances() {
            let distance = distance_of(distance_ns);
            let before = distance.ms();
            let mut clocks = Clocks::at(distance_ns);
            for drift_ns in [0, MS - 1, 0, 1 - MS, 0] {
                clocks.distance_ns = distance_ns + drift_ns;
                clocks.read(&distance);
                assert_eq!(distance.ms(), before, "{distance_ns} {drift_ns}");
            }
        }
    }

    #[test]
    fn small_steps_add_up() {
        let distance = distance_of(0);
        let mut clocks = Clocks::at(0);
        for _ in 0..100 {
            clocks.distance_ns += MS / 2;
            clocks.read(&distance);
            let late_ns = clocks.distance_ns - distance.ms() as i64 * MS;
            assert!(late_ns.unsigned_abs() <= STEP_NS, "{late_ns}");
        }
    }

    #[test]
    fn an_interruption_is_no_step() {
        for interrupted in 0..MEASUREMENTS * 3 + 2 {
            let distance = distance_of(0);
            let mut clocks = Clocks::at(0);
            clocks.pauses_ns = vec![0; MEASUREMENTS * 3 + 2];
            // The last element is the pause before the first reading.
            clocks.pauses_ns[interrupted] = 5_000 * MS;
            clocks.pauses_ns[MEASUREMENTS * 3] = 70 * MS;
            clocks.read(&distance);
            assert_eq!(distance.ms(), 0, "{interrupted}");
        }
    }

    #[test]
    fn a_thread_that_is_interrupted_all_the_time_does_not_see_steps_where_none_are() {
        let distance = distance_of(0);
        let mut clocks = Clocks::at(0);
        clocks.pauses_ns = vec![9 * MS; MEASUREMENTS * 3 + 2];
        clocks.read(&distance);
        assert_eq!(distance.ms(), 0);
    }

    #[test]
    fn a_reading_of_the_system_clock_follows_the_wall_clock() {
        for error_ms in [-3_600_000, 3_600_000] {
            let clock = SystemClock::new();
            let right = clock.unix_ms(clock.now());
            clock
                .distance
                .set((right as i64 + error_ms - ORIGIN_MS as i64) * MS);
            assert!(clock.unix_ms(clock.now()).abs_diff(right) < 600_000);
        }
    }

    #[test]
    fn milliseconds_of_the_system_clock_are_those_of_the_wall_clock() {
        let clock = SystemClock::new();
        let first = clock.now();
        let start = clock.unix_ms(first) - first.ms;
        for _ in 0..10_000 {
            let now = clock.now();
            assert_eq!(now.unix_s, clock.unix_ms(now) / 1000);
            assert!(now.ms >= first.ms);
        }
        assert!(start > 0);
    }
}
