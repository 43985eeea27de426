//! A clock that is cheap enough to time a single operation of a table.
//!
//! ```
//! use corewise_measure::ticks::Ticks;
//!
//! let clock = Ticks::get();
//! let start = clock.now();
//! std::hint::black_box(7 * 6);
//! let took = (clock.now() - start).saturating_sub(clock.overhead());
//! println!("{} ns", clock.ns_f64(took));
//! ```
//!
//! | machine | source |
//! |---|---|
//! | x86-64 with an invariant timestamp counter | `rdtsc`, ordered by `lfence` |
//! | aarch64 | `CNTVCT_EL0`, ordered by `isb` |
//! | any other | [`Instant`], in nanoseconds |
//!
//! # Guarantees
//!
//! 1. Ticks of one thread never run backwards. Ticks of different CPUs are comparable as far as the
//!    machine keeps its counters synchronized, which `corewise bench doctor` checks.
//! 2. [`Ticks::now`] is ordered: the instructions before it are complete before it reads the clock,
//!    and no instruction after it starts before the read. [`Ticks::coarse`] guarantees neither.
//! 3. The rate is the median of several windows, each compared with [`Instant`], so one interrupted
//!    window does not change it.

#[cfg_attr(all(target_arch = "x86_64", not(miri)), path = "x86_64.rs")]
#[cfg_attr(all(target_arch = "aarch64", not(miri)), path = "aarch64.rs")]
#[cfg_attr(
    any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))),
    path = "portable.rs"
)]
mod native;
#[path = "portable.rs"]
mod portable;

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// Number of calibration windows; odd.
const WINDOWS: usize = 9;
/// Length of a window: long compared with the error of its two ends, some ten nanoseconds.
const WINDOW: Duration = Duration::from_millis(5);
/// Number of empty operations timed for the overhead; odd.
const EMPTY_OPERATIONS: usize = 4_001;

/// A calibrated clock. Copy it to where it is used, so that readings touch no shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    native: bool,
    hz: f64,
    /// Nanoseconds per tick, times 2^32.
    ns_q32: u64,
    overhead: u64,
}

impl Ticks {
    /// Returns the clock of this process, calibrated at the first call, which takes about 50 ms.
    pub fn get() -> Self {
        static CLOCK: OnceLock<Ticks> = OnceLock::new();
        *CLOCK.get_or_init(Self::calibrate)
    }

    /// Makes the best clock of the machine, calibrated now.
    pub fn calibrate() -> Self {
        Self::of(native::is_usable())
    }

    /// Makes the clock that runs on every machine, based on [`Instant`]; a tick is a nanosecond.
    pub fn portable() -> Self {
        Self::of(false)
    }

    fn of(native: bool) -> Self {
        let mut clock = Self {
            native,
            hz: 1e9,
            ns_q32: 1 << 32,
            overhead: 0,
        };
        if native {
            clock.hz = measure_hz(clock);
            clock.ns_q32 = (1e9 / clock.hz * (1_u64 << 32) as f64).round() as u64;
        }
        clock.overhead = measure_overhead(clock);
        clock
    }

    /// Reads the time, ordered against the instructions around it. For latencies.
    #[inline(always)]
    pub fn now(self) -> u64 {
        if self.native {
            native::now()
        } else {
            portable::now()
        }
    }

    /// Reads the time, cheaper and unordered: the processor may read it some tens of instructions
    /// early or late. For deadlines.
    #[inline(always)]
    pub fn coarse(self) -> u64 {
        if self.native {
            native::coarse()
        } else {
            portable::coarse()
        }
    }

    /// Converts ticks to nanoseconds, rounded down; exact to 2^-32 of a nanosecond per tick.
    #[inline(always)]
    pub fn ns(self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.ns_q32)) >> 32) as u64
    }

    /// Converts ticks to nanoseconds with their fraction, for averages and reports.
    pub fn ns_f64(self, ticks: u64) -> f64 {
        ticks as f64 * 1e9 / self.hz
    }

    /// Ticks per second.
    pub fn hz(self) -> f64 {
        self.hz
    }

    /// Converts a duration to ticks, rounded up, at most `u64::MAX`.
    pub fn ticks_of(self, duration: Duration) -> u64 {
        (duration.as_secs_f64() * self.hz).ceil() as u64
    }

    /// The latency that timing alone adds: the median difference of two calls of [`Ticks::now`] in
    /// a row, in ticks, measured during calibration.
    pub fn overhead(self) -> u64 {
        self.overhead
    }

    /// The source of the clock: `rdtsc`, `CNTVCT_EL0` or `Instant`.
    pub fn source(self) -> &'static str {
        if self.native {
            native::NAME
        } else {
            portable::NAME
        }
    }
}

fn measure_overhead(clock: Ticks) -> u64 {
    let mut took: Vec<u64> = (0..EMPTY_OPERATIONS)
        .map(|_| {
            let start = clock.now();
            clock.now() - start
        })
        .collect();
    *took.select_nth_unstable(EMPTY_OPERATIONS / 2).1
}

/// The same moment on both clocks.
#[derive(Clone, Copy)]
struct Anchor {
    instant: Instant,
    ticks: u64,
}

/// Takes the fastest of several readings, so that neither an interrupt nor a cold cache lies
/// between the two clocks.
fn anchor(clock: Ticks) -> Anchor {
    let read = || {
        let before = clock.now();
        let instant = Instant::now();
        let gap = clock.now() - before;
        let ticks = before + gap / 2;
        (gap, Anchor { instant, ticks })
    };
    let tries = (0..16).map(|_| read());
    let (_, best) = tries.min_by_key(|(gap, _)| *gap).unwrap_or_else(read);
    best
}

fn measure_hz(clock: Ticks) -> f64 {
    let mut rates = [0.0; WINDOWS];
    let mut start = anchor(clock);
    for rate in &mut rates {
        thread::sleep(WINDOW);
        let end = anchor(clock);
        *rate = (end.ticks - start.ticks) as f64 / (end.instant - start.instant).as_secs_f64();
        start = end;
    }
    *rates.select_nth_unstable_by(WINDOWS / 2, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The machine's clock and the portable one.
    fn both() -> [Ticks; 2] {
        [Ticks::get(), Ticks::portable()]
    }

    #[test]
    fn it_runs_forward() {
        for clock in both() {
            let mut last = clock.now();
            for _ in 0..100_000 {
                let next = clock.now();
                assert!(next >= last, "{}: {last} then {next}", clock.source());
                last = next;
            }
        }
    }

    #[test]
    fn it_agrees_with_the_system() {
        for clock in both() {
            let start = anchor(clock);
            thread::sleep(Duration::from_millis(30));
            let end = anchor(clock);
            let true_ns = (end.instant - start.instant).as_nanos() as f64;
            let error = clock.ns_f64(end.ticks - start.ticks) / true_ns - 1.0;
            assert!(error.abs() < 1e-3, "{}: off by {error}", clock.source());
        }
    }

    #[test]
    fn coarse_readings_keep_near_ordered_ones() {
        for clock in both() {
            let before = clock.now();
            let coarse = clock.coarse();
            let after = clock.now();
            let slack = clock.ticks_of(Duration::from_micros(100));
            assert!(coarse + slack >= before && coarse <= after + slack);
        }
    }

    #[test]
    fn conversions_are_inverse() {
        for clock in both() {
            for ms in [1, 300, 3_600_000] {
                let duration = Duration::from_millis(ms);
                let back = clock.ns(clock.ticks_of(duration));
                let exact = duration.as_nanos() as f64;
                let error = (back as f64 - exact).abs();
                // Each conversion rounds to whole units; a tick may be longer than a nanosecond.
                assert!(
                    error <= 2.0 + exact * 1e-8,
                    "{}: {ms} ms off by {error} ns",
                    clock.source()
                );
            }
            assert_eq!((clock.ns(0), clock.ticks_of(Duration::ZERO)), (0, 0));
            let exact = clock.ns_f64(12_345);
            assert!((clock.ns(12_345) as f64 - exact).abs() <= 1.0);
        }
    }

    #[test]
    fn overhead_is_small_and_not_negative() {
        for clock in both() {
            assert!(clock.ns(clock.overhead()) < 10_000, "{clock:?}");
        }
        assert!(Ticks::portable().hz() == 1e9);
    }
}
