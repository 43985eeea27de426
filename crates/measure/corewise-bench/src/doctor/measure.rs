//! Checks that must be measured: about a second in all.

use std::fs;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use corewise_measure::ticks::Ticks;
use corewise_topology::{CpuId, allowed_cpus, pin_current_thread};

use super::Severity::{self, Note};
use super::{Finding, over, when};

/// Time for which all CPUs are watched for gaps at once.
const SPIN: Duration = Duration::from_secs(1);
/// Least time between two readings of a spinning thread that counts as a gap.
const GAP: Duration = Duration::from_micros(10);
/// Gaps in the execution of a thread that only reads the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Jitter {
    cpu: usize,
    /// Number of gaps of more than 10 µs.
    gaps: u64,
    /// The longest gap, whatever its length.
    longest_ns: f64,
    /// Share of the time in gaps of more than 10 µs.
    lost_share: f64,
}

/// Measures this machine, on the CPUs that the process may use.
pub(super) fn findings(clock: Ticks) -> Vec<Finding> {
    let cpus = allowed_cpus().unwrap_or_else(|| vec![0]);
    let before = cpu_times(Path::new("/"));
    let jitter = jitter(clock, &cpus);
    let after = cpu_times(Path::new("/"));
    let stolen = before.zip(after).and_then(|(a, b)| steal_share(a, b));
    let jitter = jitter.into_iter();
    let worst = jitter.max_by(|a, b| a.lost_share.total_cmp(&b.lost_share));
    let stolen = stolen.map(|share| {
        let advice = "the hypervisor runs others on your CPUs: use a machine with dedicated ones, \
                      or repeat more";
        Finding::new(
            "steal time",
            (over(share, 0.001, 0.01), percent(share)),
            advice,
        )
    });
    let jitter = worst.map(|worst| {
        let advice = "others run on these CPUs: stop them, or isolate CPUs (isolcpus=, nohz_full=) \
                      and pin to those";
        Finding::new("jitter", worst.judged(), advice)
    });
    stolen.into_iter().chain(jitter).collect()
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

impl Jitter {
    fn judged(&self) -> (Severity, String) {
        let evidence = format!(
            "CPU {} lost {} of its time in {} gaps over 10 µs, the longest {:.0} µs",
            self.cpu,
            percent(self.lost_share),
            self.gaps,
            self.longest_ns / 1e3
        );
        let severity = over(self.lost_share, 0.002, 0.01);
        (severity.max(when(self.longest_ns > 1e6, Note)), evidence)
    }
}

/// Returns the time of all CPUs and its stolen part, in the kernel's units, from the first line of
/// `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal, and two that the first two
/// contain.
fn cpu_times(root: &Path) -> Option<(u64, u64)> {
    let text = fs::read_to_string(root.join("proc/stat")).ok()?;
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let words = line.split_whitespace().map(|word| word.parse().ok());
    let times: Vec<u64> = words.take(8).collect::<Option<_>>()?;
    Some((times.iter().sum(), *times.get(7)?))
}

fn steal_share(before: (u64, u64), after: (u64, u64)) -> Option<f64> {
    let all = after.0.checked_sub(before.0).filter(|&all| all > 0)?;
    Some(after.1.saturating_sub(before.1) as f64 / all as f64)
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
        assert_eq!(before, (100, 5));
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
    fn what_was_measured_is_judged() {
        use super::super::Severity::{Ok, Warn};
        let jitter = |lost_share, longest_ns| Jitter {
            lost_share,
            longest_ns,
            ..Jitter::default()
        };
        assert_eq!(jitter(0.0, 5e3).judged().0, Ok);
        assert_eq!(jitter(0.0, 2e6).judged().0, Note);
        assert_eq!(jitter(0.05, 5e3).judged().0, Warn);
    }
}
