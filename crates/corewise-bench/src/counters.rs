//! Hardware counters of the measuring threads.
//!
//! A count is reported only if the counter was on the processor while it was enabled. Virtual
//! machines often open counters that never run, or that run and stay at zero: those give `None`
//! too, never 0. Only user-mode execution of the program is counted, not the kernel on its behalf.

use crate::record::HardwareCounters;

/// The counters of one thread.
///
/// Open, start and stop them on the thread that is to be counted. Starting and stopping are system
/// calls, so they belong outside of the measured time or well away from it.
#[derive(Debug)]
pub struct Counters {
    inner: imp::Counters,
}

impl Counters {
    /// Opens the counters that the system allows.
    pub fn open_for_this_thread() -> Self {
        Self {
            inner: imp::Counters::open(),
        }
    }

    /// Starts counting.
    pub fn start(&mut self) {
        self.inner.start();
    }

    /// Stops counting. Returns the counts since [`Counters::start`], all `None` without a start.
    pub fn stop(&mut self) -> HardwareCounters {
        believed(self.inner.stop())
    }

    /// Returns why there are no counters; `None` if at least one was opened.
    pub fn why_not(&self) -> Option<&str> {
        self.inner.why_not()
    }
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
    let both = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
    threads
        .into_iter()
        .reduce(|a, b| HardwareCounters {
            instructions: both(a.instructions, b.instructions),
            cycles: both(a.cycles, b.cycles),
            cache_misses: both(a.cache_misses, b.cache_misses),
            branch_misses: both(a.branch_misses, b.branch_misses),
        })
        .unwrap_or_default()
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
mod imp {
    use std::io;

    use perf_event::events::Hardware;
    use perf_event::{Builder, Counter};

    use super::{HardwareCounters, Reading, between};

    /// One counter and its reading at the start.
    struct One {
        counter: Counter,
        start: Option<Reading>,
    }

    const EVENTS: [Hardware; 4] = [
        Hardware::INSTRUCTIONS,
        Hardware::CPU_CYCLES,
        Hardware::CACHE_MISSES,
        Hardware::BRANCH_MISSES,
    ];

    pub(super) struct Counters {
        /// One for each of [`EVENTS`], as far as the system opens it.
        all: [Option<One>; 4],
        why_not: Option<String>,
    }

    impl std::fmt::Debug for Counters {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("Counters")
                .field("why_not", &self.why_not)
                .finish_non_exhaustive()
        }
    }

    impl Counters {
        pub(super) fn open() -> Self {
            let mut why_not = None;
            let all = EVENTS.map(|event| match Builder::new(event).build() {
                Ok(counter) => Some(One {
                    counter,
                    start: None,
                }),
                Err(error) => {
                    why_not.get_or_insert_with(|| reason(&error));
                    None
                }
            });
            let why_not = why_not.filter(|_| all.iter().all(Option::is_none));
            Self { all, why_not }
        }

        pub(super) fn start(&mut self) {
            for one in self.all.iter_mut().flatten() {
                one.start = read(&mut one.counter).ok();
                if one.counter.enable().is_err() {
                    one.start = None;
                }
            }
        }

        pub(super) fn stop(&mut self) -> HardwareCounters {
            for one in self.all.iter_mut().flatten() {
                let _ = one.counter.disable(); // the reading below shows whether it counted
            }
            let counts = self.all.each_mut().map(|one| {
                let one = one.as_mut()?;
                between(one.start.take()?, read(&mut one.counter).ok()?)
            });
            let [instructions, cycles, cache_misses, branch_misses] = counts;
            HardwareCounters {
                instructions,
                cycles,
                cache_misses,
                branch_misses,
            }
        }

        pub(super) fn why_not(&self) -> Option<&str> {
            self.why_not.as_deref()
        }
    }

    fn read(counter: &mut Counter) -> io::Result<Reading> {
        let data = counter.read_full()?;
        Ok(Reading {
            count: data.count(),
            enabled_ns: data.time_enabled().unwrap_or_default().as_nanos(),
            running_ns: data.time_running().unwrap_or_default().as_nanos(),
        })
    }

    /// Describes the kernel's error.
    fn reason(error: &io::Error) -> String {
        let why = match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => {
                "this machine has no hardware counters (a virtual machine without a PMU?)"
            }
            Some(libc::EACCES | libc::EPERM) => {
                "the kernel forbids it: /proc/sys/kernel/perf_event_paranoid must be 2 or less"
            }
            Some(libc::ENOSYS) => "this kernel was built without perf events",
            _ => "perf_event_open failed",
        };
        format!("{why} ({error})")
    }
}

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
    fn zeroes_that_cannot_be_are_not_believed() {
        let counts = |instructions, cycles| HardwareCounters {
            instructions,
            cycles,
            cache_misses: Some(0),
            branch_misses: Some(3),
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
    fn it_counts_or_says_why_not() {
        let mut counters = Counters::open_for_this_thread();
        assert_eq!(counters.stop(), HardwareCounters::default(), "not started");
        counters.start();
        let counts = counters.stop();
        assert_ne!(counts.instructions, Some(0));
        if let Some(reason) = counters.why_not() {
            assert_eq!(counts, HardwareCounters::default());
            assert!(!reason.is_empty() && !reason.contains('\n'));
        }
        if let Err(reason) = probe() {
            println!("{reason}");
        }
    }
}
