//! How many server threads the load needs: \[CPHASH\] §8.1, with hysteresis.
//!
//! A poll is busy if it finds a message. Serving threads report their busy polls. After a round of
//! reports, one from each thread on average, the round is *high* if more than three quarters of the
//! polls were busy, and *low* if less than a quarter were. [`ROUNDS`] high rounds in a row add a
//! thread, and [`ROUNDS`] low ones remove one. Between the two nothing changes, and a thread more
//! or less moves the share of busy polls by less than that gap from two threads on, so the number
//! does not swing.

use std::ops::RangeInclusive;

/// Rounds in a row that change the number of threads.
const ROUNDS: u32 = 4;

pub(super) struct Load {
    range: RangeInclusive<usize>,
    busy: u64,
    polls: u64,
    reports: usize,
    high: u32,
    low: u32,
}

impl Load {
    pub(super) fn new(range: RangeInclusive<usize>) -> Self {
        Self {
            range,
            busy: 0,
            polls: 0,
            reports: 0,
            high: 0,
            low: 0,
        }
    }

    /// Counts a report of one of `serving` threads. Returns another number of threads if that would
    /// suit the load better.
    pub(super) fn report(&mut self, busy: u32, polls: u32, serving: usize) -> Option<usize> {
        self.busy += u64::from(busy);
        self.polls += u64::from(polls);
        self.reports += 1;
        if self.reports < serving {
            return None;
        }
        let (is_high, is_low) = (4 * self.busy > 3 * self.polls, 4 * self.busy < self.polls);
        (self.busy, self.polls, self.reports) = (0, 0, 0);
        self.high = if is_high { self.high + 1 } else { 0 };
        self.low = if is_low { self.low + 1 } else { 0 };
        let wanted = if self.high >= ROUNDS {
            serving + 1
        } else if self.low >= ROUNDS {
            serving.saturating_sub(1)
        } else {
            return None;
        };
        (self.high, self.low) = (0, 0);
        let wanted = wanted.clamp(*self.range.start(), *self.range.end());
        (wanted != serving).then_some(wanted)
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;

    /// Reports of equal threads that share work for `needed` threads.
    fn follow(load: &mut Load, mut serving: usize, needed: f64, rounds: usize) -> Vec<usize> {
        let mut seen = vec![serving];
        for _ in 0..rounds * serving {
            let busy = (needed / serving as f64).min(1.0) * 1000.0;
            if let Some(next) = load.report(busy as u32, 1000, serving) {
                serving = next;
                seen.push(serving);
            }
        }
        seen
    }

    #[test]
    fn threads_follow_the_load_within_their_range() {
        let mut load = Load::new(1..=4);
        assert_eq!(follow(&mut load, 1, 3.9, 100), [1, 2, 3, 4]);
        assert_eq!(follow(&mut load, 4, 0.0, 100), [4, 3, 2, 1]);
    }

    #[test]
    fn a_constant_load_settles() {
        for tenth in 0..50 {
            for start in 1..=4 {
                let mut load = Load::new(1..=4);
                let seen = follow(&mut load, start, f64::from(tenth) / 10.0, 200);
                let is_monotonic = seen.is_sorted() || seen.is_sorted_by(|a, b| a >= b);
                assert!(is_monotonic, "{tenth}: {seen:?}");
            }
        }
    }

    #[test]
    fn a_short_burst_changes_nothing() {
        let mut load = Load::new(1..=4);
        for _ in 0..100 {
            assert_eq!(load.report(1000, 1000, 2), None);
            assert_eq!(load.report(1000, 1000, 2), None);
            assert_eq!(load.report(500, 1000, 2), None);
            assert_eq!(load.report(500, 1000, 2), None);
        }
    }
}
