//! The tables and filters of `corewise-maps-lab` under one elided lock (\[CHTBench\] chapters 4 and
//! 5), by the policies that the thesis compares.
//!
//! Lookups of the tables are no sections, and neither are updates without effect. Lookups of the
//! filters are, and those of `elided:gets`: the thesis does not say which it measured. Without
//! usable transactions every section takes the lock: the card states that, and the row has `under
//! the lock` of 100 %.

use std::ops::Deref;

use corewise_locks::elide::{Cause, Counts, Policy, Retry, Rtm, Scm, Slr, SlrScm, Subscribe};
use corewise_locks::{Mcs, Ttas};
use corewise_maps_lab::elided_clht::{
    Coarse, Fine, HtmRetry, ScmTtas, ScmTtasOpt, SlrMcs, SlrScmMcs, Versioned,
};
use corewise_maps_lab::elided_filter::ElidedFilter;

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

    // Twice the entries: it does not grow, and an overflow bucket stays with its bucket.
    [P: Policy] Fine<P>,
    |entries: usize| Self::new(2 * entries.max(LEAST_ENTRIES), Rtm::detect().ok()),
    |table: &Self| Some(transactions(&table.counts()));

    [] Versioned,
    Self::new,
    |_| None;
}

/// A filter whose insertions search before the section (consistency-oblivious), or in it.
struct Filter<L, P, const SEARCHES_BEFORE: bool = true>(ElidedFilter<L, P>);

impl<L: Subscribe + 'static, P: Policy, const SEARCHES_BEFORE: bool> MeasuredFilter
    for Filter<L, P, SEARCHES_BEFORE>
{
    fn build(setup: &Setup) -> Self {
        // It has room for a sixteenth more than it is asked for.
        let items = setup.capacity / 17 * 16;
        Self(ElidedFilter::new(items, Rtm::detect().ok()))
    }
    #[inline]
    fn insert(&self, item: u64) -> bool {
        let inserted = match SEARCHES_BEFORE {
            true => self.0.insert_cop(item),
            false => self.0.insert(item),
        };
        inserted.is_ok()
    }
    #[inline]
    fn remove(&self, item: u64) -> bool {
        self.0.remove(item)
    }
    #[inline]
    fn contains(&self, item: u64) -> bool {
        self.0.contains(item)
    }
    /// A lookup compares eight fingerprints of 16 bits, none of which is 0.
    fn false_positive_rate(&self) -> f64 {
        8.0 * self.0.len() as f64 / self.0.slots() as f64 / 65_535.0
    }
    fn slots(&self) -> usize {
        self.0.slots()
    }
    fn bytes(&self) -> usize {
        2 * self.0.slots()
    }
    fn contention(&self) -> Option<Contention> {
        Some(transactions(&self.0.counts()))
    }
}

fn map<T: MeasuredMap<U64>>(name: &str) -> Entry {
    listed(name).map::<U64, T>()
}

fn filter<F: MeasuredFilter>(name: &str) -> Entry {
    elides(listed(name).subject::<FilterSubject<F>>())
}

pub(super) fn entries() -> [Entry; 17] {
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
        filter::<Filter<Ttas, Retry<5>>>("elided-filter:retry-5"),
        filter::<Filter<Ttas, Retry<10>>>("elided-filter:retry-10"),
        filter::<Filter<Ttas, Retry<20>>>("elided-filter:retry-20"),
        filter::<Filter<Mcs, Retry<10>>>("elided-filter:retry-mcs"),
        filter::<Filter<Ttas, Retry<10>, false>>("elided-filter:without-cop"),
        filter::<Filter<Mcs, Slr>>("elided-filter:slr"),
        filter::<Filter<Ttas, Scm>>("elided-filter:scm"),
        filter::<Filter<Mcs, SlrScm>>("elided-filter:slr-scm"),
    ]
}
