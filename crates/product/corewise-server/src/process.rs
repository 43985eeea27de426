//! What the kernel reports about this process.

use rustix::process::{Resource, getrlimit};
use std::io;
use std::time::Duration;

/// What the process has used so far.
pub(crate) struct Usage {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
    /// From the start of the system to that of the process.
    started: Duration,
    pub(crate) virtual_bytes: u64,
    pub(crate) resident_bytes: u64,
}

/// User and system CPU time that the first thread of the process has used so far.
pub(crate) fn main_thread_time() -> io::Result<(Duration, Duration)> {
    let usage = usage_in(&format!("/proc/self/task/{}/stat", std::process::id()))?;
    Ok((usage.user, usage.system))
}

/// What the process has used so far.
pub(crate) fn usage() -> io::Result<Usage> {
    usage_in("/proc/self/stat")
}

fn usage_in(path: &str) -> io::Result<Usage> {
    let stat = std::fs::read_to_string(path)?;
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let page = rustix::param::page_size() as u64;
    parse(&stat, ticks, page).ok_or_else(|| io::Error::other("unreadable process statistics"))
}

impl Usage {
    /// When the process started, since 1970.
    pub(crate) fn start_time(&self) -> Option<Duration> {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let boot = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
        Some(Duration::from_secs(boot.trim().parse().ok()?) + self.started)
    }
}

/// Number of open files.
pub(crate) fn open_files() -> io::Result<u64> {
    // One of the entries is the folder itself.
    Ok((std::fs::read_dir("/proc/self/fd")?.count() as u64).saturating_sub(1))
}

/// Maximum number of open files; `None` if there is no limit.
pub(crate) fn max_files() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Parses fields 14, 15, 22, 23 and 24 of the statistics line. The second field, the name, may
/// contain blanks and parentheses, so fields are counted from the last parenthesis.
fn parse(stat: &str, ticks_per_s: u64, page_bytes: u64) -> Option<Usage> {
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..]
        .split_ascii_whitespace()
        .collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let time = |field| {
        let us = u128::from(number(field)?) * 1_000_000 / u128::from(ticks_per_s);
        Some(Duration::from_micros(us as u64))
    };
    Some(Usage {
        user: time(14)?,
        system: time(15)?,
        started: time(22)?,
        virtual_bytes: number(23)?,
        resident_bytes: number(24)? * page_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn the_name_may_hold_anything() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 1 0 700 8192 3 0";
        let usage = parse(stat, 100, 4_096).unwrap();
        assert_eq!(usage.user, Duration::from_millis(1_500));
        assert_eq!(usage.system, Duration::from_millis(500));
        assert_eq!(usage.started, Duration::from_secs(7));
        assert_eq!((usage.virtual_bytes, usage.resident_bytes), (8_192, 12_288));
        assert!(parse("", 100, 4_096).is_none());
    }

    #[test]
    fn this_process_has_started_lately_and_has_open_files() {
        let usage = usage().unwrap();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let age = now.unwrap().abs_diff(usage.start_time().unwrap());
        assert!(age < Duration::from_secs(3_600), "{age:?}");
        assert!(usage.resident_bytes > 0 && usage.resident_bytes < usage.virtual_bytes);
        let before = open_files().unwrap();
        let more = [(); 40].map(|()| std::fs::File::open("/dev/null").unwrap());
        // Other tests open and close files meanwhile.
        let after = open_files().unwrap();
        assert!(before >= 3 && after + 20 > before + 40, "{before} {after}");
        assert!(max_files().is_none_or(|most| most >= after));
        drop(more);
    }
}
