//! Counters of the event loops.
//!
//! Each loop counts in plain integers and publishes them once a turn, before its replies leave: a
//! client that has received a reply finds its request counted. Publishing is a plain store to
//! memory that no other thread writes.

use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::{AtomicU64, Ordering};
use corewise_ops::{Absence, Outcome};
use corewise_wire::Tally;

macro_rules! counters {
    ($($field:ident),+ $(,)?) => {
        /// Counts of one loop, private to it.
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $field: u64),+ }

        /// Counts of one loop, readable by other threads.
        #[derive(Debug, Default)]
        pub(crate) struct Published { $($field: AtomicU64),+ }

        impl Published {
            /// Publishes a loop's counts. Called by that loop only.
            pub(crate) fn publish(&self, counters: &Counters) {
                // Relaxed: independent statistics.
                $(self.$field.store(counters.$field, Ordering::Relaxed);)+
            }

            /// Adds these counts to `sum`.
            pub(crate) fn add_to(&self, sum: &mut Counters) {
                // Relaxed: independent statistics.
                $(sum.$field += self.$field.load(Ordering::Relaxed);)+
            }
        }

        impl Counters {
            /// The counts since `base`.
            pub(crate) fn since(&self, base: &Self) -> Self {
                Self { $($field: self.$field.wrapping_sub(base.$field)),+ }
            }
        }
    };
}

counters! {
    cmd_get, cmd_set, cmd_flush, cmd_touch, cmd_meta,
    get_hits, get_misses, get_expired, get_flushed,
    delete_hits, delete_misses, incr_hits, incr_misses, decr_hits, decr_misses,
    cas_hits, cas_misses, cas_badval, touch_hits, touch_misses,
    store_too_large, store_no_memory, read_buf_oom, replies_refused, auth_cmds, auth_errors,
    bytes_read, bytes_written, idle_kicks, slow_kicks, conn_yields,
    turns, batches, operations, resp_calls, dumps, dumped_items,
}

/// Counts at the last reset of the statistics.
///
/// Both methods call `read`, which returns the current counts, while they hold the lock. The lock
/// orders these reads, and counts only grow, so no baseline exceeds the counts it is returned with.
#[derive(Default)]
pub(crate) struct Baseline<T>(Mutex<T>);

impl<T: Clone> Baseline<T> {
    /// Makes the current counts the baseline.
    pub(crate) fn reset(&self, read: impl FnOnce() -> T) {
        let mut base = self.0.lock();
        *base = read();
    }

    /// The current counts and the baseline.
    pub(crate) fn counts_and_base(&self, read: impl FnOnce() -> T) -> (T, T) {
        let base = self.0.lock();
        (read(), base.clone())
    }
}

impl Counters {
    /// Counts one completed operation.
    #[inline]
    pub(crate) fn count(&mut self, tally: Tally, outcome: &Outcome<'_>) {
        self.operations += 1;
        if tally == Tally::Get {
            return self.count_lookup(1, 0, outcome);
        }
        match tally {
            Tally::None | Tally::Get => {}
            Tally::Touch => self.count_lookup(0, 1, outcome),
            Tally::Gat => self.count_lookup(1, 1, outcome),
            Tally::Store => self.count_store(outcome),
            Tally::Cas => {
                self.count_store(outcome);
                match outcome {
                    Outcome::Stored(_) => self.cas_hits += 1,
                    Outcome::Missing(_) => self.cas_misses += 1,
                    Outcome::Exists => self.cas_badval += 1,
                    _ => {}
                }
            }
            Tally::GetSet => {
                self.count_lookup(1, 0, outcome);
                self.count_store(outcome);
            }
            Tally::Delete => match outcome {
                Outcome::Deleted | Outcome::Stored(_) => self.delete_hits += 1,
                Outcome::Missing(_) => self.delete_misses += 1,
                _ => {}
            },
            Tally::Incr => match outcome {
                Outcome::Counter { .. } => self.incr_hits += 1,
                Outcome::Missing(_) => self.incr_misses += 1,
                _ => {}
            },
            Tally::Decr => match outcome {
                Outcome::Counter { .. } => self.decr_hits += 1,
                Outcome::Missing(_) => self.decr_misses += 1,
                _ => {}
            },
            Tally::Refused => self.store_too_large += 1,
            Tally::Unread => self.store_no_memory += 1,
        }
    }

    /// Counts a look-up as `gets` and as `touches`, each 0 or 1.
    #[inline]
    fn count_lookup(&mut self, gets: u64, touches: u64, outcome: &Outcome<'_>) {
        self.cmd_get += gets;
        self.cmd_touch += touches;
        if let Outcome::Found(_) = outcome {
            self.get_hits += gets;
            self.touch_hits += touches;
            return;
        }
        match outcome {
            Outcome::Edited { old: Some(_), .. } => self.get_hits += gets,
            Outcome::Edited { old: None, .. } => self.get_misses += gets,
            Outcome::Missing(absence) => {
                self.get_misses += gets;
                self.touch_misses += touches;
                self.get_expired += u64::from(*absence == Absence::Expired);
                self.get_flushed += u64::from(*absence == Absence::Flushed);
            }
            _ => {}
        }
    }

    #[inline]
    fn count_store(&mut self, outcome: &Outcome<'_>) {
        self.cmd_set += 1;
        match outcome {
            Outcome::TooLarge => self.store_too_large += 1,
            Outcome::OutOfMemory => self.store_no_memory += 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_reset_comes_between_the_counts_and_the_baseline() {
        let baseline = Baseline::default();
        let read = || {
            assert!(baseline.0.try_lock().is_none(), "the lock is free");
            7
        };
        baseline.reset(read);
        assert_eq!(baseline.counts_and_base(read), (7, 7));
    }
}
