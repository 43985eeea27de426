//! Facts that must be measured: about two seconds in all.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use corewise_measure::ticks::Ticks;
use corewise_topology::{CpuId, allowed_cpus, pin_current_thread};
use serde::Serialize;

use crate::counters;

/// Time for which all CPUs are watched for gaps at once.
const SPIN: Duration = Duration::from_millis(300);
/// Least time between two readings of a spinning thread that counts as a gap.
pub(super) const GAP: Duration = Duration::from_micros(10);
/// Least time for which steal time is watched.
const STEAL_WINDOW: Duration = Duration::from_secs(1);
/// Repetitions of the fixed loop, and the duration of one.
const LOOPS: usize = 100;
const LOOP: Duration = Duration::from_millis(5);

/// Measured facts; `None` where measuring failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    /// The source of the benchmark's clock.
    pub clock: String,
    /// Its ticks per second.
    pub clock_hz: f64,
    /// Least nonzero difference of two readings.
    pub clock_resolution_ns: f64,
    /// Cost of timing an operation.
    pub clock_overhead_ns: f64,
    /// Gaps of each CPU.
    pub jitter: Vec<Jitter>,
    /// Share of all CPU time that the hypervisor stole while all CPUs were busy.
    pub steal_share: Option<f64>,
    /// Variation of a loop with a fixed number of instructions.
    pub noise: Noise,
    /// Why there are no hardware counters; `None` if there are.
    pub no_counters: Option<String>,
}

/// Gaps in the execution of a thread that only reads the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Jitter {
    /// The CPU.
    pub cpu: usize,
    /// Number of gaps of more than 10 µs.
    pub gaps: u64,
    /// The longest gap, whatever its length.
    pub longest_ns: f64,
    /// Share of the time in gaps of more than 10 µs.
    pub lost_share: f64,
}

/// Times of a fixed integer loop that takes about 5 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Noise {
    /// Repetitions.
    pub repetitions: usize,
    /// Median time.
    pub median_ns: f64,
    /// Distance of the 5th and the 95th percentile, as a share of the median.
    pub spread: f64,
    /// Distance of the least and the greatest, as a share of the median.
    pub range: f64,
}

/// Measures this machine, on the CPUs that the process may use.
pub fn measure() -> Measured {
    let clock = Ticks::get();
    let cpus = allowed_cpus().unwrap_or_else(|| vec![0]);
    let before = cpu_times(Path::new("/"));
    let started = Instant::now();
    let jitter = jitter(clock, &cpus);
    let noise = noise(clock, LOOPS);
    thread::sleep(STEAL_WINDOW.saturating_sub(started.elapsed()));
    let after = cpu_times(Path::new("/"));
    Measured {
        clock: clock.source().into(),
        clock_hz: clock.hz(),
        clock_resolution_ns: resolution_ns(clock),
        clock_overhead_ns: clock.ns_f64(clock.overhead()),
        jitter,
        steal_share: before.zip(after).and_then(|(a, b)| steal_share(a, b)),
        noise,
        no_counters: counters::probe().err(),
    }
}

/// Time of all CPUs and its stolen part, in the kernel's units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CpuTimes {
    all: u64,
    stolen: u64,
}

/// Reads the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal, and
/// two that the first two contain.
pub(super) fn cpu_times(root: &Path) -> Option<CpuTimes> {
    let text = fs::read_to_string(root.join("proc/stat")).ok()?;
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let times: Option<Vec<u64>> = line
        .split_whitespace()
        .take(8)
        .map(|word| word.parse().ok())
        .collect();
    let times = times?;
    Some(CpuTimes {
        all: times.iter().sum(),
        stolen: *times.get(7)?,
    })
}

pub(super) fn steal_share(before: CpuTimes, after: CpuTimes) -> Option<f64> {
    let all = after.all.checked_sub(before.all).filter(|&all| all > 0)?;
    Some(after.stolen.saturating_sub(before.stolen) as f64 / all as f64)
}

/// Spins on every CPU at the same time, one thread each.
fn jitter(clock: Ticks, cpus: &[usize]) -> Vec<Jitter> {
    let ready = Barrier::new(cpus.len());
    let ready = &ready;
    thread::scope(|scope| {
        let spin = |&cpu| {
            scope.spawn(move || {
                let pinned = pin_current_thread(CpuId(cpu)).is_ok();
                ready.wait();
                pinned.then(|| watch(clock, cpu, SPIN))
            })
        };
        let threads: Vec<_> = cpus.iter().map(spin).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.filter_map(|jitter| jitter.ok().flatten()).collect()
    })
}

/// Spins on the clock and records gaps.
fn watch(clock: Ticks, cpu: usize, time: Duration) -> Jitter {
    let (gap, length) = (clock.ticks_of(GAP), clock.ticks_of(time));
    let mut jitter = Jitter {
        cpu,
        ..Jitter::default()
    };
    let start = clock.coarse();
    let (mut last, mut longest, mut lost) = (start, 0, 0);
    while last.saturating_sub(start) < length {
        let now = clock.coarse();
        let passed = now.saturating_sub(last);
        longest = longest.max(passed);
        if passed > gap {
            lost += passed;
            jitter.gaps += 1;
        }
        last = now;
    }
    jitter.longest_ns = clock.ns_f64(longest);
    jitter.lost_share = lost as f64 / (last - start) as f64;
    jitter
}

fn resolution_ns(clock: Ticks) -> f64 {
    let step = || {
        let first = clock.now();
        loop {
            let next = clock.now();
            if next != first {
                return next - first;
            }
        }
    };
    let least = (0..1_000).map(|_| step()).min().unwrap_or(0);
    clock.ns_f64(least)
}

/// The fixed loop: a dependent chain of multiplications, no memory accesses.
fn integer_loop(steps: u64) -> u64 {
    (0..steps).fold(black_box(1), |word, step| {
        (word ^ step).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

/// Times the loop `repetitions` times.
pub(super) fn noise(clock: Ticks, repetitions: usize) -> Noise {
    let time = |steps| {
        let start = clock.now();
        black_box(integer_loop(black_box(steps)));
        clock.now() - start
    };
    let trial_steps = 200_000;
    let trial = (0..5).map(|_| time(trial_steps)).min().unwrap_or(1).max(1);
    let steps = trial_steps * clock.ticks_of(LOOP) / trial;
    let mut times: Vec<f64> = (0..repetitions)
        .map(|_| clock.ns_f64(time(steps)))
        .collect();
    spread_of(&mut times)
}

fn spread_of(times: &mut [f64]) -> Noise {
    times.sort_by(f64::total_cmp);
    let Some(last) = times.len().checked_sub(1) else {
        return Noise::default();
    };
    let at = |share: f64| times[(share * last as f64).round() as usize];
    Noise {
        repetitions: times.len(),
        median_ns: at(0.5),
        spread: (at(0.95) - at(0.05)) / at(0.5),
        range: (at(1.0) - at(0.0)) / at(0.5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_a_share_of_all_time() {
        let root = tempfile::tempdir().expect("a directory");
        assert_eq!(cpu_times(root.path()), None);
        fs::create_dir(root.path().join("proc")).expect("a directory");
        let write = |text| fs::write(root.path().join("proc/stat"), text).expect("a file");
        write("cpu  10 0 10 70 5 0 0 5 9 9\ncpu0 1 2\n");
        let before = cpu_times(root.path()).expect("times");
        assert_eq!(
            before,
            CpuTimes {
                all: 100,
                stolen: 5
            }
        );
        write("cpu  60 0 10 100 5 0 0 25 9 9\n");
        let after = cpu_times(root.path()).expect("times");
        assert_eq!(steal_share(before, after), Some(0.2));
        assert_eq!(steal_share(after, after), None);
    }

    #[test]
    fn watching_counts_what_it_says() {
        for clock in [Ticks::get(), Ticks::portable()] {
            let jitter = watch(clock, 0, Duration::from_millis(20));
            assert!((0.0..=1.0).contains(&jitter.lost_share));
            assert!(jitter.gaps == 0 || jitter.longest_ns > 9_999.0);
        }
    }

    #[test]
    fn a_constant_loop_has_no_spread() {
        let noise = spread_of(&mut [5.0; 9]);
        assert_eq!(
            (noise.median_ns, noise.spread, noise.range),
            (5.0, 0.0, 0.0)
        );
        let noise = spread_of(&mut [11.0, 10.0, 9.0]);
        assert_eq!((noise.median_ns, noise.range), (10.0, 0.2));
        assert_eq!(spread_of(&mut []), Noise::default());
    }

    #[test]
    fn a_loop_takes_about_what_it_should() {
        let noise = noise(Ticks::get(), 3);
        assert!((1e6..1e9).contains(&noise.median_ns), "{noise:?}");
    }
}
