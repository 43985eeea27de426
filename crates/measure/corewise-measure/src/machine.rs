//! Facts about the machine, for the head of a report.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

/// The machine and the time of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// CPU model.
    pub cpu: String,
    /// CPUs this process may use.
    pub cpus: usize,
    /// Kernel release.
    pub kernel: String,
    /// The mode of transparent huge pages in force.
    pub transparent_hugepages: String,
    /// Start of the run, UTC.
    pub date: String,
}

impl Machine {
    /// Collects the facts; those that cannot be read are "unknown".
    pub fn look() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let pages = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            cpu: field(&cpuinfo, "model name")
                .unwrap_or("unknown")
                .to_string(),
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get()),
            kernel: or_unknown(release.trim()),
            transparent_hugepages: or_unknown(chosen(&pages.unwrap_or_default())),
            date: utc(now.as_secs()),
        }
    }
}

/// Memory of a server process at the end of a run.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Memory {
    /// Resident set in KiB.
    pub rss_kib: Option<u64>,
    /// Anonymous memory in huge pages, in KiB.
    pub huge_kib: Option<u64>,
}

impl Memory {
    /// Reads the memory of a process; what cannot be read is `None`.
    pub fn of(pid: u32) -> Self {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
        let kib = |text: Option<String>, name| {
            field(&text?, name)?
                .trim_end_matches(" kB")
                .trim()
                .parse()
                .ok()
        };
        Self {
            rss_kib: kib(read("status"), "VmRSS"),
            huge_kib: kib(read("smaps_rollup"), "AnonHugePages"),
        }
    }
}

/// CPU time that a process has used, as accounted by the kernel: in ticks of usually 10 ms, whose
/// sum is exact to a tick, and whose split into user and kernel time is sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// In user mode, in nanoseconds.
    pub user_ns: u64,
    /// In the kernel, in nanoseconds.
    pub kernel_ns: u64,
}

impl CpuTimes {
    /// Reads the times of a process, all its threads together.
    ///
    /// # Errors
    ///
    /// One line: there is no such process, or its statistics cannot be read.
    pub fn of(pid: u32) -> Result<Self, String> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|e| e.to_string())?;
        let (user, kernel) = parse_stat(&text).ok_or("unreadable stat")?;
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        Ok(Self {
            user_ns: user * tick_ns,
            kernel_ns: kernel * tick_ns,
        })
    }
}

/// Parses fields 14 and 15, counted after the name, which may hold spaces and parentheses.
fn parse_stat(text: &str) -> Option<(u64, u64)> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut next = || fields.next()?.parse().ok();
    Some((next()?, next()?))
}

/// Raises the number of files that this process may open to the permitted maximum.
pub fn raise_file_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: maximum,
                maximum,
            },
        );
    }
}

fn or_unknown(text: &str) -> String {
    if text.is_empty() { "unknown" } else { text }.to_string()
}

/// The value of the first line `name : value`, the format of `/proc`.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim())
}

/// The word in brackets, which marks the choice in force in `/sys`; empty without brackets.
pub fn chosen(text: &str) -> &str {
    text.split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or("", |(word, _)| word)
}

/// Converts seconds since 1970 to a date (the civil-from-days algorithm).
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    format!(
        "{:04}-{month:02}-{:02}T{:02}:{:02}:{:02}Z",
        era * 400 + year + u64::from(month <= 2),
        day - (153 * shifted + 2) / 5 + 1,
        rest / 3_600,
        rest / 60 % 60,
        rest % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(utc(1_795_233_600), "2026-11-21T04:00:00Z");
    }

    #[test]
    fn fields_and_choices_are_found() {
        assert_eq!(field("a\t: 1\nb b : x: y\n", "b b"), Some("x: y"));
        assert_eq!(field("a : 1", "b"), None);
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen(""), "");
    }

    #[test]
    fn stat_is_parsed_behind_any_name() {
        let line = "42 (a) b) c (x) S 1 42 42 0 -1 4194304 100 0 0 0 17 25 0 0 20 0 4 0 1000";
        assert_eq!(parse_stat(line), Some((17, 25)));
        assert_eq!(parse_stat("42 (short) S 1"), None);
        assert_eq!(parse_stat("nothing"), None);
    }

    #[test]
    fn cpu_times_of_a_process_that_is_not_there_are_an_error_of_one_line() {
        let error = CpuTimes::of(u32::MAX).expect_err("no such process");
        assert!(!error.is_empty() && !error.contains('\n'), "{error}");
    }

    #[test]
    fn own_memory_is_known() {
        assert!(
            Memory::of(std::process::id())
                .rss_kib
                .is_some_and(|kib| kib > 100)
        );
    }
}
