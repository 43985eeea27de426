//! The loops that run on a table, each compiled for it.
//!
//! | phase | what a thread does | what comes of it |
//! |---|---|---|
//! | `phases::fill` | inserts its part of the entries | sums of keys and values |
//! | `phases::churn` | removes and reinserts | sums |
//! | `drive::drive` | its stream, or lookups of its keys in batches, as fast as it can, for a time | counts, sums, a rate, latencies |
//! | `pace::pace` | its stream, at a rate | latencies from the intended start |
//! | `grow::grow` | inserts into the empty table | a time line |
//! | `hot::hot` | removes and reinserts keys of its own, for a time | pairs, the first wrong outcome |
//! | `resize::resize` | changes the number of buckets, back and forth | how often, and how long it took |
//! | `tails::tails` | inserts into the empty table, or looks up what is there by then | slow operations |
//! | `phases::probe` | looks up its part of all keys | sums of what is there |
//! | `audit::audit` | operations whose outcome is known | the first that was wrong |
//!
//! The sums make a loss visible: what was inserted less what was removed, by number, by key and by
//! value, must be what is there at the end.

pub mod audit;
pub mod drive;
pub mod grow;
pub mod hot;
pub mod pace;
pub mod phases;
pub mod resize;
mod seat;
pub mod tails;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub use audit::AuditReport;
pub use drive::{Drive, DriveReport};
pub use grow::{Grow, GrowReport};
pub use hot::{Hot, HotReport, Place};
pub use pace::{Pace, PaceReport};
pub use resize::{Readers, ResizeReport, Resizing};
pub use tails::{Tails, TailsReport};

use crate::record::Counts;

/// The order of threads that no crew has to give up a phase: never.
static NEVER: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Set while the phase that this thread's crew runs is to be given up: a table took too long.
    static GIVE_UP: Cell<&'static AtomicBool> = const { Cell::new(&NEVER) };
}

/// Makes this thread leave its phases when `order` is set. What a phase that was given up reports
/// is not to be used.
pub(crate) fn obey(order: &'static AtomicBool) {
    GIVE_UP.set(order);
}

/// Whether to leave.
#[inline(always)]
fn is_given_up() -> bool {
    // Relaxed: it hands over nothing but itself, and a late reader does a few operations more.
    GIVE_UP.get().load(Ordering::Relaxed)
}

/// Which thread of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// From 0.
    pub thread: usize,
    /// All.
    pub threads: usize,
}

/// Entries by number, keys and values; the last two are sums modulo 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// How many; as a difference it may be negative.
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
    /// One more entry.
    #[inline(always)]
    pub fn gain(&mut self, key: u64, stamp: u64) {
        self.gain_if(true, key, stamp);
    }

    /// One more entry, or none. Whether is a coin toss, so there is no branch.
    #[inline(always)]
    pub fn gain_if(&mut self, gained: bool, key: u64, stamp: u64) {
        let mask = u64::from(gained).wrapping_neg();
        self.entries += i64::from(gained);
        self.keys = self.keys.wrapping_add(key & mask);
        self.values = self.values.wrapping_add(stamp & mask);
    }

    /// One less, or none.
    #[inline(always)]
    pub fn lose_if(&mut self, lost: bool, key: u64, stamp: u64) {
        let mask = u64::from(lost).wrapping_neg();
        self.entries -= i64::from(lost);
        self.keys = self.keys.wrapping_sub(key & mask);
        self.values = self.values.wrapping_sub(stamp & mask);
    }

    /// Adds another thread's or phase's.
    pub fn add(&mut self, other: &Self) {
        self.entries += other.entries;
        self.keys = self.keys.wrapping_add(other.keys);
        self.values = self.values.wrapping_add(other.values);
        self.wrong += other.wrong;
        self.wrong_key |= other.wrong_key * u64::from(self.wrong_key == 0);
    }

    /// Notes a value that is not its key's, if there is one.
    #[inline(always)]
    pub fn check_if(&mut self, there: bool, key: u64, stamp: u64) {
        let wrong = there & !crate::stamp::belongs(stamp, key);
        self.wrong += u64::from(wrong);
        if wrong {
            self.wrong_key = key; // never, so well predicted
        }
    }
}

/// What a thread did to the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Outcomes.
    pub counts: Counts,
    /// Gains less losses.
    pub sums: Sums,
}

impl Tally {
    /// Adds another thread's or phase's.
    pub fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.sums.add(&other.sums);
    }
}

/// Makes threads start together: everybody waits until everybody waits.
#[derive(Clone, Debug)]
pub struct Start {
    missing: Arc<AtomicUsize>,
}

impl Start {
    /// For so many threads, once.
    pub fn of(threads: usize) -> Self {
        Self {
            missing: Arc::new(AtomicUsize::new(threads)),
        }
    }

    /// Waits; busily at first, as the others are about to come.
    pub fn wait(&self) {
        // Relaxed: what threads share was handed to them through a channel before; this only
        // aligns them in time.
        self.missing.fetch_sub(1, Ordering::Relaxed);
        let mut looks = 0u32;
        while self.missing.load(Ordering::Relaxed) != 0 {
            looks += 1;
            if looks < 2_000 {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}
