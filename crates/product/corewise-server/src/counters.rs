//! Counters of the event loops.
//!
//! Each loop counts in plain integers and publishes them once a turn, before its replies leave: a
//! client that has received a reply finds its request counted. Publishing is a plain store to
//! memory that no other thread writes.

use crate::codec::Form;
use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::{AtomicU64, Ordering};
use corewise_ops::{Absence, Outcome, Verb};
use corewise_wire::memcached::Command;

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
    lookup_hits, lookup_misses,
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
    pub(crate) fn count(&mut self, form: &Form<'_>, verb: &Verb<'_>, outcome: &Outcome<'_>) {
        self.operations += 1;
        let command = form.command();
        if matches!(
            command,
            Command::MetaGet | Command::MetaSet | Command::MetaDelete | Command::MetaArith
        ) {
            self.cmd_meta += 1;
        }
        match verb {
            Verb::Get(get) => self.count_get(command, get.touch.is_some(), outcome),
            Verb::Store(store) => self.count_store(store.compare_cas.is_some(), outcome),
            Verb::Delete(_) if command == Command::StoreRefused => self.store_too_large += 1,
            Verb::Delete(_) if command == Command::StoreUnread => self.store_no_memory += 1,
            Verb::Delete(_) => match outcome {
                Outcome::Missing(_) => self.delete_misses += 1,
                Outcome::Deleted | Outcome::Stored(_) => self.delete_hits += 1,
                _ => {}
            },
            Verb::Arith(arith) => {
                let (hits, misses) = if arith.decrement {
                    (&mut self.decr_hits, &mut self.decr_misses)
                } else {
                    (&mut self.incr_hits, &mut self.incr_misses)
                };
                match outcome {
                    Outcome::Counter { .. } => *hits += 1,
                    Outcome::Missing(_) => *misses += 1,
                    _ => {}
                }
            }
            Verb::Edit(_) => {
                if let Form::Resp(form) = form {
                    self.count_lookup(form.is_hit(verb, outcome));
                }
            }
        }
    }

    /// Counts a look-up to read that is no get of memcached's statistics, as Redis does. `is_hit`
    /// is `None` if it does not count.
    pub(crate) fn count_lookup(&mut self, is_hit: impl Into<Option<bool>>) {
        match is_hit.into() {
            Some(true) => self.lookup_hits += 1,
            Some(false) => self.lookup_misses += 1,
            None => {}
        }
    }

    fn count_get(&mut self, command: Command, touched: bool, outcome: &Outcome<'_>) {
        if command == Command::MetaDebug {
            return;
        }
        let only_touch = command == Command::Touch;
        if touched {
            self.cmd_touch += 1;
        }
        if !only_touch {
            self.cmd_get += 1;
        }
        match outcome {
            Outcome::Found(_) => {
                self.touch_hits += u64::from(touched);
                self.get_hits += u64::from(!only_touch);
            }
            Outcome::Missing(absence) => {
                self.touch_misses += u64::from(touched);
                self.get_misses += u64::from(!only_touch);
                self.get_expired += u64::from(*absence == Absence::Expired);
                self.get_flushed += u64::from(*absence == Absence::Flushed);
            }
            _ => {}
        }
    }

    fn count_store(&mut self, cas: bool, outcome: &Outcome<'_>) {
        self.cmd_set += 1;
        match outcome {
            Outcome::Stored(_) if cas => self.cas_hits += 1,
            Outcome::Missing(_) if cas => self.cas_misses += 1,
            Outcome::Exists => self.cas_badval += 1,
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
