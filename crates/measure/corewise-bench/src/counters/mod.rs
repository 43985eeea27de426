//! Hardware counters and processor time of the measuring threads.
//!
//! A count is reported only if the counter was on the processor while it was enabled. Virtual
//! machines often open counters that never run, or that run and stay at zero: those give `None`
//! too, never 0. Only user-mode execution of the program is counted, not the kernel on its behalf;
//! processor time includes both.
//!
//! The events form groups (`perf_event_open(2)`), each of which the kernel counts together or not
//! at all. Where the processor has too few counters for all groups, the kernel lets them take
//! turns; the counts are then estimates, scaled by the time for which the group was enabled over
//! the time for which it counted.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::record::HardwareCounters;

/// Bytes that a miss of the last-level cache loads: the line of x86-64, and of most AArch64.
const LINE_BYTES: f64 = 64.0;

/// The counters of one thread.
///
/// Open, start and stop them on the thread that is to be counted. Starting and stopping are system
/// calls, so they belong outside of the measured time or well away from it.
#[derive(Debug)]
pub struct Counters {
    inner: imp::Counters,
    /// The thread's processor time at the start.
    processor_time: Option<Duration>,
}

impl Counters {
    /// Opens the counters that the system allows.
    pub fn open_for_this_thread() -> Self {
        Self {
            inner: imp::Counters::open(),
            processor_time: None,
        }
    }

    /// Starts counting.
    pub fn start(&mut self) {
        self.inner.start();
        self.processor_time = Some(processor_time());
    }

    /// Stops counting. Returns the counts since [`Counters::start`], all `None` without a start.
    pub fn stop(&mut self) -> HardwareCounters {
        let start = self.processor_time.take();
        let used = start.map(|start| processor_time().saturating_sub(start));
        HardwareCounters {
            processor_ns: used.map(|used| used.as_nanos() as u64),
            ..believed(self.inner.stop())
        }
    }

    /// Returns why there are no hardware counters; `None` if at least one was opened.
    pub fn why_not(&self) -> Option<&str> {
        self.inner.why_not()
    }
}

/// Returns the time for which this thread has run on a processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Tests the counters on a loop that executes instructions: `Ok` if instructions are counted.
///
/// # Errors
///
/// The reason, in one line.
pub fn probe() -> Result<(), String> {
    let mut counters = Counters::open_for_this_thread();
    if let Some(reason) = counters.why_not() {
        return Err(reason.to_owned());
    }
    counters.start();
    for step in 0..100_000_u64 {
        std::hint::black_box(step);
    }
    match counters.stop().instructions {
        Some(_) => Ok(()),
        None => Err("the counters open but never count (a machine without a PMU)".to_owned()),
    }
}

/// Adds the counters of several threads; a count that one thread lacks is `None`.
pub fn sum(threads: impl IntoIterator<Item = HardwareCounters>) -> HardwareCounters {
    let counters = threads.into_iter().reduce(HardwareCounters::plus);
    counters.unwrap_or_default()
}

/// Returns the processors that the measured threads kept busy, and the megabytes a second that they
/// loaded from memory. The latter is a lower bound: writes and prefetches are not in it.
pub(crate) fn used(
    counted: &HardwareCounters,
    elapsed_ns: u64,
) -> [(&'static str, Option<f64>); 2] {
    let over_time = |value: u64| value as f64 / elapsed_ns.max(1) as f64;
    let (busy, missed) = (counted.processor_ns, counted.last_level_load_misses);
    [
        ("processors in use", busy.map(over_time)),
        // A byte in a nanosecond is a thousand megabytes in a second.
        (
            "MB/s from memory",
            missed.map(|misses| 1e3 * over_time(misses) * LINE_BYTES),
        ),
    ]
}

/// Discards implausible counts. No program runs without instructions and cycles, so a zero of
/// either means that the counter does not work; if instructions do not work, neither do the misses.
fn believed(mut counts: HardwareCounters) -> HardwareCounters {
    let zero = Some(0);
    if counts.instructions == zero {
        return HardwareCounters::default();
    }
    if counts.cycles == zero {
        counts.cycles = None;
    }
    counts
}

/// A reading of one counter.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(not(all(feature = "bench", target_os = "linux")), allow(dead_code))]
struct Reading {
    count: u64,
    /// Time for which the counter was enabled.
    enabled_ns: u128,
    /// Time for which the counter ran on the processor.
    running_ns: u128,
}

/// Returns the count between two readings, scaled up if the counter shared the processor's counters
/// with others. `None` if it never ran.
#[cfg_attr(not(all(feature = "bench", target_os = "linux")), allow(dead_code))]
fn between(start: Reading, end: Reading) -> Option<u64> {
    let count = end.count.checked_sub(start.count)?;
    let enabled = end.enabled_ns.checked_sub(start.enabled_ns)?;
    let running = end.running_ns.checked_sub(start.running_ns)?;
    match running {
        0 => None,
        _ if running >= enabled => Some(count),
        _ => Some((u128::from(count) * enabled / running) as u64),
    }
}

#[cfg(all(feature = "bench", target_os = "linux"))]
mod imp;

#[cfg(not(all(feature = "bench", target_os = "linux")))]
mod imp {
    use super::HardwareCounters;

    #[derive(Debug)]
    pub(super) struct Counters;

    impl Counters {
        pub(super) fn open() -> Self {
            Self
        }
        pub(super) fn start(&mut self) {}
        pub(super) fn stop(&mut self) -> HardwareCounters {
            HardwareCounters::default()
        }
        pub(super) fn why_not(&self) -> Option<&str> {
            Some("this program was built without hardware counters (feature bench, on Linux)")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(count: u64, enabled_ns: u128, running_ns: u128) -> Reading {
        Reading {
            count,
            enabled_ns,
            running_ns,
        }
    }

    #[test]
    fn a_counter_that_never_ran_has_no_count() {
        let start = reading(0, 0, 0);
        assert_eq!(between(start, reading(0, 1_000, 0)), None);
        assert_eq!(between(start, reading(10, 1_000, 1_000)), Some(10));
        assert_eq!(between(start, reading(10, 1_000, 250)), Some(40));
        let earlier = reading(10, 1_000, 250);
        assert_eq!(between(earlier, reading(15, 1_500, 750)), Some(5));
        assert_eq!(between(earlier, reading(10, 2_000, 250)), None);
    }

    #[test]
    fn impossible_zero_counts_are_discarded() {
        let counts = |instructions, cycles| HardwareCounters {
            instructions,
            cycles,
            cache_misses: Some(0),
            branch_misses: Some(3),
            ..HardwareCounters::default()
        };
        assert_eq!(
            believed(counts(Some(0), Some(0))),
            HardwareCounters::default()
        );
        assert_eq!(believed(counts(Some(9), Some(0))), counts(Some(9), None));
        assert_eq!(believed(counts(Some(9), Some(8))), counts(Some(9), Some(8)));
    }

    #[test]
    fn a_sum_lacks_what_one_thread_lacks() {
        let thread = |instructions, cycles| HardwareCounters {
            instructions,
            cycles,
            ..HardwareCounters::default()
        };
        let all = sum([thread(Some(1), Some(2)), thread(Some(3), None)]);
        assert_eq!(all, thread(Some(4), None));
        assert_eq!(sum([]), HardwareCounters::default());
    }

    #[test]
    fn processors_and_memory_are_over_the_measured_time() {
        let counted = HardwareCounters {
            processor_ns: Some(3_000_000),
            last_level_load_misses: Some(2_000),
            ..HardwareCounters::default()
        };
        let values = |counted| used(&counted, 2_000_000).map(|(_, value)| value);
        // 2,000 lines of 64 bytes in 2 ms.
        assert_eq!(values(counted), [Some(1.5), Some(64.0)]);
        assert_eq!(values(HardwareCounters::default()), [None, None]);
    }

    #[test]
    fn processor_time_passes_while_a_thread_works() {
        let mut counters = Counters::open_for_this_thread();
        counters.start();
        let begin = std::time::Instant::now();
        while processor_time() < counters.processor_time.unwrap() + Duration::from_millis(5) {
            std::hint::black_box(0);
        }
        let ns = counters.stop().processor_ns.expect("it was started");
        assert!(ns >= 5_000_000, "{ns}");
        assert!(
            u128::from(ns) <= begin.elapsed().as_nanos() + 1_000_000,
            "{ns}"
        );
        assert_eq!(counters.stop().processor_ns, None, "not started again");
    }

    #[test]
    fn it_counts_or_says_why_not() {
        let mut counters = Counters::open_for_this_thread();
        assert_eq!(counters.stop(), HardwareCounters::default(), "not started");
        counters.start();
        let mut counts = counters.stop();
        assert_ne!(counts.instructions, Some(0));
        assert!(counts.processor_ns.take().is_some(), "every Linux has it");
        if let Some(reason) = counters.why_not() {
            assert_eq!(counts, HardwareCounters::default());
            assert!(!reason.is_empty() && !reason.contains('\n'));
        }
        if let Err(reason) = probe() {
            println!("{reason}");
        }
    }
}
