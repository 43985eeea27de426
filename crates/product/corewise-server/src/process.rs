//! What the kernel reports about this process.

use std::io;
use std::time::Duration;

/// User and system CPU time used so far.
pub(crate) fn cpu_time() -> io::Result<(Duration, Duration)> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    parse(&stat, ticks).ok_or_else(|| io::Error::other("unreadable process statistics"))
}

/// Parses fields 14 and 15 of the statistics line. The second field, the name, may contain blanks
/// and parentheses, so fields are counted from the last parenthesis.
fn parse(stat: &str, ticks_per_s: u64) -> Option<(Duration, Duration)> {
    let mut fields = stat[stat.rfind(')')? + 1..]
        .split_ascii_whitespace()
        .skip(11);
    let mut next = || {
        let ticks: u64 = fields.next()?.parse().ok()?;
        Some(Duration::from_micros(ticks * 1_000_000 / ticks_per_s))
    };
    Some((next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_may_hold_anything() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0";
        let (user, system) = parse(stat, 100).unwrap();
        assert_eq!(user, Duration::from_millis(1_500));
        assert_eq!(system, Duration::from_millis(500));
        assert!(parse("", 100).is_none());
    }
}
