//! CPU time of a server process, from one source for all servers of a run.
//!
//! `/proc/PID/task/*/schedstat` contains user plus system time of each thread in nanoseconds, as
//! charged by the scheduler. It is updated when a thread stops running, so it is read after a
//! drained slice, when the server is asleep. It does not include threads that have ended meanwhile.
//! Where the kernel lacks it, `/proc/PID/stat` gives ticks, usually of 10 ms.

use std::{fmt, fs};

use corewise_measure::machine::CpuTimes;

use crate::error::LoadError;

/// The source of CPU times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CpuSource {
    /// The scheduler's nanoseconds, summed over threads.
    Schedstat,
    /// Clock ticks of the process.
    Ticks,
}

impl fmt::Display for CpuSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Schedstat => "schedstat",
            Self::Ticks => "ticks",
        })
    }
}

/// Reads the CPU time of one process.
#[derive(Clone, Copy, Debug)]
pub struct CpuMeter {
    pid: u32,
    source: CpuSource,
}

impl CpuMeter {
    /// A meter with the best source that the kernel has for `pid`.
    ///
    /// # Errors
    ///
    /// [`LoadError::Cpu`] if there is no such process.
    pub fn new(pid: u32) -> Result<Self, LoadError> {
        let fine = Self {
            pid,
            source: CpuSource::Schedstat,
        };
        if fine.read_ns().is_ok_and(|ns| ns > 0) {
            return Ok(fine);
        }
        let coarse = Self {
            pid,
            source: CpuSource::Ticks,
        };
        coarse.read_ns().map(|_| coarse)
    }

    /// A meter of the same process with the coarser source.
    pub(crate) fn with_ticks(self) -> Self {
        Self {
            source: CpuSource::Ticks,
            ..self
        }
    }

    pub(crate) fn source(&self) -> CpuSource {
        self.source
    }

    /// User plus system time so far, in nanoseconds.
    ///
    /// # Errors
    ///
    /// [`LoadError::Cpu`] if the process has ended.
    pub fn read_ns(&self) -> Result<u64, LoadError> {
        let fail = |detail: String| LoadError::Cpu {
            pid: self.pid,
            detail,
        };
        match self.source {
            CpuSource::Schedstat => schedstat_sum(self.pid).map_err(fail),
            CpuSource::Ticks => CpuTimes::of(self.pid)
                .map(|times| times.user_ns + times.kernel_ns)
                .map_err(fail),
        }
    }
}

fn schedstat_sum(pid: u32) -> Result<u64, String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).map_err(|e| e.to_string())?;
    let mut sum = 0;
    for task in tasks.flatten() {
        // A thread may end between the listing and the read.
        let Ok(text) = fs::read_to_string(task.path().join("schedstat")) else {
            continue;
        };
        sum += parse_schedstat(&text).ok_or("unreadable schedstat")?;
    }
    Ok(sum)
}

/// Time on CPU: the first of three numbers.
fn parse_schedstat(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedstat_is_parsed() {
        assert_eq!(parse_schedstat("115236 70905 2\n"), Some(115_236));
        assert_eq!(parse_schedstat(""), None);
        assert_eq!(parse_schedstat("x 1 2"), None);
    }

    #[test]
    fn own_time_grows_with_work_in_both_sources() {
        let meter = CpuMeter::new(std::process::id()).expect("own process");
        for meter in [meter, meter.with_ticks()] {
            let before = meter.read_ns().expect("readable");
            let start = std::time::Instant::now();
            while start.elapsed().as_millis() < 100 {
                std::hint::black_box(0);
            }
            // Other test threads may starve this one, so the bound is low.
            std::thread::yield_now();
            let grown = meter.read_ns().expect("readable") - before;
            assert!(grown >= 5_000_000, "{:?}: {grown}", meter.source());
        }
    }

    #[test]
    fn an_absent_process_is_an_error_of_one_line() {
        let error = CpuMeter::new(u32::MAX)
            .expect_err("no such process")
            .to_string();
        assert!(error.contains("4294967295") && !error.contains('\n'));
    }
}
