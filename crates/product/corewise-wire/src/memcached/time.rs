//! Converts expiry times of the protocol to deadlines of the engine.

use corewise_ops::{Deadline, Now};

/// Largest expiry time that is relative to now; larger ones are dates.
const MAX_RELATIVE_S: i32 = 60 * 60 * 24 * 30;

/// The deadline that an expiry time stands for.
#[inline]
pub(super) fn deadline(exptime_s: i32, now: Now) -> Deadline {
    match exptime_s {
        0 => Deadline::NEVER,
        ..0 => Deadline::PAST,
        _ => seconds_from_now(exptime_s, now).map_or(Deadline::PAST, |s| {
            Deadline::after_ms(now, s.saturating_mul(1000))
        }),
    }
}

/// Seconds until a positive expiry time; `None` if it has passed.
fn seconds_from_now(exptime_s: i32, now: Now) -> Option<u64> {
    let seconds = u64::from(exptime_s.unsigned_abs());
    if exptime_s <= MAX_RELATIVE_S {
        return Some(seconds);
    }
    seconds.checked_sub(now.unix_s).filter(|s| *s > 0)
}

/// Converts the expiry time of a recache flag to the remaining life, in milliseconds, below which a
/// client wins the recache.
pub(super) fn recache_below_ms(exptime_s: i32, now: Now) -> Option<u64> {
    if exptime_s <= 0 {
        return None;
    }
    seconds_from_now(exptime_s, now).map(|s| s.saturating_mul(1000))
}

/// When a `flush_all` takes effect: `None` means at once.
pub(super) fn flush_at(exptime_s: i32, now: Now) -> Option<Deadline> {
    if exptime_s <= 0 {
        return None;
    }
    seconds_from_now(exptime_s, now).map(|s| Deadline::after_ms(now, s.saturating_mul(1000)))
}

/// Whole seconds left, rounded up; `None` for never.
#[inline]
pub(super) fn seconds_left(deadline: Deadline, now: Now) -> Option<u64> {
    deadline.remaining_ms(now).map(|ms| ms.div_ceil(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now::new(10_000, 1_700_000_000);

    #[test]
    fn zero_is_never_and_negative_is_past() {
        assert_eq!(deadline(0, NOW), Deadline::NEVER);
        assert_eq!(deadline(-1, NOW), Deadline::PAST);
        assert_eq!(deadline(i32::MIN, NOW), Deadline::PAST);
    }

    #[test]
    fn thirty_days_are_relative_and_one_second_more_is_a_date() {
        assert_eq!(
            deadline(2_592_000, NOW),
            Deadline::at_ms(10_000 + 2_592_000_000)
        );
        assert_eq!(deadline(2_592_001, NOW), Deadline::PAST);
        assert_eq!(deadline(1_700_000_000, NOW), Deadline::PAST);
        assert_eq!(deadline(1_700_000_003, NOW), Deadline::at_ms(13_000));
        let last = Deadline::after_ms(NOW, (i32::MAX as u64 - NOW.unix_s) * 1000);
        assert_eq!(deadline(i32::MAX, NOW), last);
    }

    #[test]
    fn seconds_left_round_up() {
        assert_eq!(seconds_left(Deadline::NEVER, NOW), None);
        assert_eq!(seconds_left(Deadline::at_ms(10_001), NOW), Some(1));
        assert_eq!(seconds_left(Deadline::at_ms(11_000), NOW), Some(1));
        assert_eq!(seconds_left(Deadline::at_ms(11_001), NOW), Some(2));
        assert_eq!(seconds_left(Deadline::PAST, NOW), Some(0));
    }

    #[test]
    fn recache_windows_and_flush_delays_become_times() {
        assert_eq!(recache_below_ms(30, NOW), Some(30_000));
        assert_eq!(recache_below_ms(0, NOW), None);
        assert_eq!(recache_below_ms(-3, NOW), None);
        assert_eq!(recache_below_ms(1_700_000_005, NOW), Some(5_000));
        assert_eq!(flush_at(0, NOW), None);
        assert_eq!(flush_at(-1, NOW), None);
        assert_eq!(flush_at(2, NOW), Some(Deadline::at_ms(12_000)));
        assert_eq!(flush_at(1_600_000_000, NOW), None);
    }
}
