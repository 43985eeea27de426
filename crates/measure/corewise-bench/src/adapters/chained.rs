//! The chained tables of `corewise-maps-lab`, resized on request: variants of the relativistic
//! table, and the baselines of \[ATC11\].

use corewise_maps_lab::baseline::{Ddds, LiteralDdds, RwLocked};
use corewise_maps_lab::chained::{
    self, Atc11, ChainedMap, InPlace, NoAuxiliary, OutOfPlace, SortedByReversedHash,
};

use crate::adapters::{listed, stamps_of};
use crate::entry::Entry;
use crate::hash::Common;
use crate::table::{Kind, MapHandle, MeasuredMap, Resize, Setup, U64};

/// A map over one of the tables.
pub(crate) struct Chained<K: Kind, A: chained::ChainedTable> {
    map: ChainedMap<K::Key, K::Value, A, Common>,
}

/// Buckets for cells in which the table is meant to grow: these tables do not grow by themselves.
const LEAST_BUCKETS: usize = 1 << 10;

impl<K: Kind, A: chained::ChainedTable> MeasuredMap<K> for Chained<K, A> {
    fn build(setup: &Setup) -> Self {
        // The number of buckets of a relativistic table, rounded up to a power of two.
        let buckets = setup.capacity + setup.capacity / 3 + 1;
        Self {
            map: ChainedMap::with_buckets(buckets.max(LEAST_BUCKETS)),
        }
    }
    shared_by_threads!();
    fn size(&self) -> Option<usize> {
        Some(self.map.len())
    }
    fn settle(&self) {
        corewise_rcu::Domain::global().barrier();
    }
}

impl<K: Kind, A: chained::ChainedTable> Resize<K> for Chained<K, A> {
    fn resize_to(&self, buckets: usize) {
        self.map
            .resize_to(buckets)
            .expect("there is memory, and no guard is held");
    }
    fn buckets(&self) -> usize {
        self.map.buckets()
    }
}

pins_each_time! {
    [K: Kind, A: chained::ChainedTable] Chained<K, A>, |map, key, value| map.insert(key, value)
}

/// Declares the chained tables. Names begin with `chained:`. These tables take part only if they
/// are named, or in the section `resize`: other sections may need a table that grows by itself.
macro_rules! chained {
    ($($table:ty: $name:literal,)*) => {
        pub(super) fn entries() -> Vec<Entry> {
            vec![$(
                listed($name)
                    .map::<U64, Chained<U64, $table>>()
                    .resized::<U64, Chained<U64, $table>>(),
            )*]
        }
    };
}

chained! {
    OutOfPlace: "chained:out-of-place",
    Atc11: "chained:atc11",
    InPlace: "chained:in-place",
    NoAuxiliary: "chained:no-auxiliary",
    SortedByReversedHash: "chained:sorted-reversed",
    Ddds: "chained:ddds",
    LiteralDdds: "chained:ddds-literal",
    RwLocked: "chained:rwlock",
}
