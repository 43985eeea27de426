//! The tables and filters of `corewise-maps-lab` under one elided lock (\[CHTBench\] chapters 4 and
//! 5), by the policies that the thesis compares.
//!
//! Lookups of the tables are no sections, and neither are updates without effect. Lookups of the
//! filters are, and those of `elided:gets`: the thesis does not say which it measured. Without
//! usable transactions every section takes the lock: the card states that, and the row has `under
//! the lock` of 100 %.

use std::ops::Deref;

use corewise_locks::Mcs;
use corewise_locks::elide::{Cause, Counts, Policy, Retry, Rtm, SlrScm, Subscribe};
use corewise_maps_lab::elided_clht::{
    Coarse, Fine, HtmRetry, ScmTtas, ScmTtasOpt, SlrMcs, SlrScmMcs, Versioned,
};
use corewise_maps_lab::elided_filter::{
    ElidedFilter, RetryFilter, ScmFilter, SlrFilter, SlrScmFilter,
};

use crate::adapters::listed;
use crate::entry::Entry;
use crate::subject::{FilterSubject, MeasuredFilter};
use crate::table::{Contention, MapHandle, MeasuredMap, Setup, U64};

/// Entries of a table that does not grow, in cells in which it is meant to.
const LEAST_ENTRIES: usize = 1 << 16;

/// Returns the counts of an elided lock.
pub(super) fn transactions(counts: &Counts) -> Contention {
    let explicit = [
        Cause::Locked,
        Cause::Nested,
        Cause::BadPrefix,
        Cause::Panicked,
        Cause::Explicit(0),
    ];
    Contention {
        elided: counts.committed,
        aborts: counts.all_aborted(),
        conflicts: counts.aborted_by(Cause::Conflict),
        capacity: counts.aborted_by(Cause::Capacity),
        explicit: explicit.map(|cause| counts.aborted_by(cause)).iter().sum(),
        fallbacks: counts.fallbacks,
        ..Contention::default()
    }
}

/// States on the card of an elided lock whether the machine has transactions.
pub(super) fn elides(mut entry: Entry) -> Entry {
    if let Err(reason) = Rtm::detect() {
        entry.card.settings = format!("{reason}; every section takes the lock");
    }
    entry
}

/// A table whose lookups are sections, too, but for those with which updates begin.
struct ElidedGets(SlrScmMcs);

impl Deref for ElidedGets {
    type Target = SlrScmMcs;
    fn deref(&self) -> &SlrScmMcs {
        &self.0
    }
}

impl ElidedGets {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get_elided(key)
    }
    #[inline]
    fn remove(&self, key: u64) -> Option<u64> {
        self.0.remove(key)
    }
}

/// Implements the interfaces of maps: how a table is built for a number of entries, and its counts.
macro_rules! maps {
    ($([$($of:tt)*] $table:ty, $build:expr, $counts:expr;)*) => {$(
        impl<$($of)*> MeasuredMap<U64> for $table {

            fn build(setup: &Setup) -> Self {
                $build(setup.capacity)
            }
            shared_by_threads!();
            fn size(&self) -> Option<usize> {
                Some(self.len())
            }
            fn contention(&self) -> Option<Contention> {
                $counts(self)
            }
        }

        impl<$($of)*> MapHandle<U64> for &$table {
            #[inline]
            fn get(&mut self, key: &u64) -> Option<u64> {
                <$table>::get(self, *key)
            }
            #[inline]
            fn insert(&mut self, key: &u64, value: u64) -> bool {
                let there = self.try_insert(*key, value);
                there.expect("it grows, or is large enough").is_none()
            }
            #[inline]
            fn remove(&mut self, key: &u64) -> Option<u64> {
                <$table>::remove(self, *key)
            }
        }
    )*};
}

maps! {
    [L: Subscribe + 'static, P: Policy] Coarse<L, P>,
    |entries| Self::new(entries, Rtm::detect().ok()),
    |table: &Self| Some(transactions(&table.counts()));

    [] ElidedGets,
    |entries| Self(SlrScmMcs::new(entries, Rtm::detect().ok())),
    |table: &Self| Some(transactions(&table.counts()));

    // Twice the entries: groups are not equally full, and it does not grow.
    [P: Policy] Fine<P>,
    |entries: usize| Self::new(2 * entries.max(LEAST_ENTRIES), Rtm::detect().ok()),
    |table: &Self| Some(transactions(&table.counts()));

    [] Versioned,
    Self::new,
    |_| None;
}

impl<L: Subscribe + 'static, P: Policy> MeasuredFilter for ElidedFilter<L, P> {
    fn build(setup: &Setup) -> Self {
        // It has room for a sixteenth more than it is asked for.
        Self::new(setup.capacity / 17 * 16, Rtm::detect().ok())
    }
    #[inline]
    fn insert(&self, item: u64) -> bool {
        self.insert_cop(item).is_ok()
    }
    #[inline]
    fn remove(&self, item: u64) -> bool {
        Self::remove(self, item)
    }
    #[inline]
    fn contains(&self, item: u64) -> bool {
        Self::contains(self, item)
    }
    /// A lookup compares eight fingerprints of 16 bits, none of which is 0.
    fn false_positive_rate(&self) -> f64 {
        8.0 * self.len() as f64 / self.slots() as f64 / 65_535.0
    }
    fn slots(&self) -> usize {
        Self::slots(self)
    }
    fn bytes(&self) -> usize {
        2 * Self::slots(self)
    }
    fn contention(&self) -> Option<Contention> {
        Some(transactions(&self.counts()))
    }
}

fn map<T: MeasuredMap<U64>>(name: &str) -> Entry {
    listed(name).map::<U64, T>()
}

fn filter<F: MeasuredFilter>(name: &str) -> Entry {
    elides(listed(name).subject::<FilterSubject<F>>())
}

pub(super) fn entries() -> [Entry; 15] {
    [
        map::<Coarse<Mcs, Retry<0>>>("elided:mcs"),
        elides(map::<SlrMcs>("elided:slr-mcs")),
        elides(map::<HtmRetry>("elided:retry-ttas")),
        elides(map::<ScmTtas>("elided:scm-ttas")),
        elides(map::<SlrScmMcs>("elided:slr-scm-mcs")),
        elides(map::<ElidedGets>("elided:gets")),
        elides(map::<ScmTtasOpt>("elided:scm-ttas-opt")),
        elides(map::<Fine<SlrScm>>("elided:fine")),
        map::<Versioned>("elided:versioned"),
        filter::<RetryFilter<5>>("elided-filter:retry-5"),
        filter::<RetryFilter<10>>("elided-filter:retry-10"),
        filter::<RetryFilter<20>>("elided-filter:retry-20"),
        filter::<SlrFilter>("elided-filter:slr"),
        filter::<ScmFilter>("elided-filter:scm"),
        filter::<SlrScmFilter>("elided-filter:slr-scm"),
    ]
}
