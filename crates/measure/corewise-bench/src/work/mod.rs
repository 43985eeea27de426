//! The loops that run on a table, each compiled for it.
//!
//! | phase | operations of a thread | report |
//! |---|---|---|
//! | `phases::fill` | inserts its part of the entries | sums of keys and values |
//! | `phases::churn` | removes and reinserts | sums |
//! | [`Drive`] | its stream, as fast as it can, for a time | counts, sums, a rate |
//! | `phases::probe` | looks up its part of all keys | sums of the entries found |
//! | `audit::audit` | operations whose outcome is known | the first that was wrong |
//!
//! Sections have further loops: see [`loops`].
//!
//! The sums reveal a loss. Inserted minus removed entries must equal the entries at the end: in
//! number, in sum of keys, in sum of values.

pub mod audit;
pub mod batched;
pub mod drive;
pub mod grow;
pub mod hot;
pub mod loops;
pub mod phases;
pub mod timed;
pub(crate) mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::clock;
use crate::plan::Plan;
use crate::record::OutcomeCounts;
use crate::table::{Kind, MeasuredMap};
pub use audit::AuditReport;
pub use corewise_measure::thread_pool::Part;
pub(crate) use corewise_measure::thread_pool::is_given_up;
pub use drive::{Drive, DriveReport};

/// One thread's part of a loop that is compiled for each table.
///
/// A value is the job of one thread: what to do, and the state that the next slice continues from.
pub trait Loop: Send + 'static {
    /// Runs the loop. The table's operations are inlined into it.
    fn run<K: Kind, T: MeasuredMap<K>>(&mut self, map: &T, plan: &Plan, part: Part) -> DriveReport;
}

/// Returns the indices of a thread's part, until the phase is given up.
pub(crate) fn indices(plan: &Plan, part: Part) -> impl Iterator<Item = u32> + use<> {
    let all = plan.part(part.thread, part.threads);
    all.take_while(|_| !is_given_up())
}

/// Entries by number, keys and values; the last two are sums modulo 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Number of entries; a difference may be negative.
    pub entries: i64,
    /// Sum of the keys.
    pub keys: u64,
    /// Sum of the stamps of the values.
    pub values: u64,
    /// Entries with a value that does not belong to its key.
    pub wrong: u64,
    /// The key of one of them.
    pub wrong_key: u64,
}

impl Sums {
    /// Adds an entry.
    #[inline(always)]
    pub fn gain(&mut self, key: u64, stamp: u64) {
        self.gain_if(true, key, stamp);
    }

    /// Adds an entry if `gained`. The condition is random, so there is no branch.
    #[inline(always)]
    pub fn gain_if(&mut self, gained: bool, key: u64, stamp: u64) {
        let mask = u64::from(gained).wrapping_neg();
        self.entries += i64::from(gained);
        self.keys = self.keys.wrapping_add(key & mask);
        self.values = self.values.wrapping_add(stamp & mask);
    }

    /// Removes an entry if `lost`.
    #[inline(always)]
    pub fn lose_if(&mut self, lost: bool, key: u64, stamp: u64) {
        let mask = u64::from(lost).wrapping_neg();
        self.entries -= i64::from(lost);
        self.keys = self.keys.wrapping_sub(key & mask);
        self.values = self.values.wrapping_sub(stamp & mask);
    }

    /// Adds the sums of another thread or phase.
    pub fn add(&mut self, other: &Self) {
        self.entries += other.entries;
        self.keys = self.keys.wrapping_add(other.keys);
        self.values = self.values.wrapping_add(other.values);
        self.wrong += other.wrong;
        self.wrong_key |= other.wrong_key * u64::from(self.wrong_key == 0);
    }

    /// Records a value that does not belong to its key, if there is one.
    #[inline(always)]
    pub fn check_if(&mut self, there: bool, key: u64, stamp: u64) {
        let wrong = there & !crate::stamp::belongs(stamp, key);
        self.wrong += u64::from(wrong);
        if wrong {
            self.wrong_key = key; // never taken, so well predicted
        }
    }
}

/// The operations of a thread on the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCounts {
    /// Outcomes.
    pub counts: OutcomeCounts,
    /// Gains minus losses.
    pub sums: Sums,
}

impl OpCounts {
    /// Adds the counts of another thread or phase.
    pub fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.sums.add(&other.sums);
    }
}

/// The evidence at the end of a repetition.
#[derive(Clone, Copy, Debug)]
pub struct Evidence {
    /// Gains minus losses of all phases.
    pub booked: Sums,
    /// The entries found one by one.
    pub found: Sums,
    /// Outcomes of the stream.
    pub stream: OutcomeCounts,
    /// The table's own count.
    pub reported: Option<usize>,
    /// Whether all keys are equally frequent.
    pub is_uniform: bool,
}

/// A barrier that makes threads start together.
#[derive(Clone, Debug)]
pub struct Start {
    /// Threads that have not arrived, and the last arrival so far in ticks.
    state: Arc<(AtomicUsize, AtomicU64)>,
}

impl Start {
    /// A barrier for `threads` threads; usable once.
    pub fn of(threads: usize) -> Self {
        Self {
            state: Arc::new((AtomicUsize::new(threads), AtomicU64::new(0))),
        }
    }

    /// Waits for all threads, unless the phase is given up: a thread that panicked never arrives.
    /// Spins at first, as the others are about to arrive. Returns when the last has arrived.
    pub fn wait(&self) -> u64 {
        let (missing, last) = &*self.state;
        last.fetch_max(clock::coarse(), Ordering::Relaxed); // Relaxed: ordered by the next line
        // Release, Acquire: who finds no thread missing sees the arrivals of all.
        missing.fetch_sub(1, Ordering::Release);
        let mut looks = 0u32;
        while missing.load(Ordering::Acquire) != 0 && !is_given_up() {
            looks += 1;
            if looks < 2_000 {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        last.load(Ordering::Relaxed) // Relaxed: ordered by the loop
    }
}

/// The times of a short slice.
#[derive(Clone, Debug)]
pub struct SliceTimes {
    /// All threads start here.
    pub start: Start,
    /// Unmeasured time, to warm the caches.
    pub warm_ticks: u64,
    /// Measured time.
    pub run_ticks: u64,
}

impl SliceTimes {
    /// Runs `some` until the warm-up is over, then `begin`, and then `some` until the measured time
    /// is. Returns the sum of what it returned in the measured time, and that time.
    ///
    /// It is the same time for all threads. What lies across one of its ends counts in part. If
    /// each thread had its own, one that waits for a lock until the others have left would measure
    /// alone afterwards, and an unfair lock would seem to let threads run side by side.
    #[inline(always)]
    pub(crate) fn run(&self, begin: impl FnOnce(), mut some: impl FnMut() -> u64) -> (u64, u64) {
        let start = self.start.wait();
        // A thread's clock may be behind that of the thread that arrived last.
        let now = || clock::coarse().saturating_sub(start);
        let (opens, closes) = (self.warm_ticks, self.warm_ticks + self.run_ticks);
        let (mut sum, mut at) = (0, now());
        while at < opens && !is_given_up() {
            let (from, count) = (at, some());
            at = now().max(from);
            sum += part(count, (from, at), (opens, closes));
        }
        begin();
        while at < closes && !is_given_up() {
            let (from, count) = (at, some());
            at = now().max(from);
            sum += part(count, (from, at), (opens, closes));
        }
        (sum, self.run_ticks)
    }
}

/// Returns the part of `count` operations, done in a time, that was done in another one.
#[inline(always)]
fn part(count: u64, (from, to): (u64, u64), (opens, closes): (u64, u64)) -> u64 {
    if opens <= from && to <= closes && from < to {
        return count;
    }
    let inside = to.min(closes).saturating_sub(from.max(opens));
    (count as f64 * inside as f64 / (to - from).max(1) as f64).round() as u64
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// One thread has what the other needs, as long as the measured time lasts.
    #[test]
    fn who_waits_for_all_of_the_measured_time_measures_one_batch_at_most() {
        let times = SliceTimes {
            start: Start::of(2),
            warm_ticks: clock::ticks(1_000_000),
            run_ticks: clock::ticks(10_000_000),
        };
        let has_left = AtomicBool::new(false);
        let calls = AtomicUsize::new(0);
        let waits = || {
            calls.fetch_add(1, Ordering::Relaxed);
            while !has_left.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            64
        };
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| times.run(|| (), waits));
            let (_, ticks) = times.run(|| (), || 1);
            has_left.store(true, Ordering::Release);
            let (_, same) = waiting.join().expect("it has not panicked");
            assert_eq!((ticks, same), (times.run_ticks, times.run_ticks));
        });
        // None if it was not running itself.
        assert!(calls.into_inner() <= 1);
    }

    #[test]
    fn what_lies_across_the_ends_counts_in_part() {
        for (from, to, counted) in [
            (100, 200, 64),
            (120, 140, 64),
            (90, 110, 32),
            (150, 250, 32),
            (0, 400, 16),
            (0, 100, 0),
            (200, 300, 0),
            (150, 150, 0),
        ] {
            assert_eq!(part(64, (from, to), (100, 200)), counted, "{from} to {to}");
        }
    }
}
