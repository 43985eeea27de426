//! The chained tables of `corewise-maps-lab`, resized on request: variants of the relativistic
//! table, and the baselines of \[ATC11\].

use std::hash::BuildHasher;

use corewise_maps_lab::baseline::{Ddds, RwLocked};
use corewise_maps_lab::chained::{
    self, Atc11, ChainedMap, InPlace, NoAuxiliary, OutOfPlace, PerEntry, SortedByHighBits,
    SortedByReversedHash, SplitOrdered,
};

use crate::adapters::{rust, versions};
use crate::dyn_table::Entry;
use crate::hash::Common;
use crate::table::{Handle, Kind, MOST_BATCHED, Resize, Setup, Table, U64};

/// A map over one of the tables.
pub(crate) struct Chained<K: Kind, A: chained::ChainedTable, S> {
    map: ChainedMap<K::Key, K::Value, A, S>,
}

/// Buckets for cells in which the table is meant to grow: these tables do not grow by themselves.
const LEAST_BUCKETS: usize = 1 << 10;

impl<K: Kind, A, S> Table<K> for Chained<K, A, S>
where
    A: chained::ChainedTable,
    S: BuildHasher + Default + Send + Sync + 'static,
{
    type Handle<'t> = ChainedHandle<'t, K, A, S>;

    fn build(setup: &Setup) -> Self {
        // As many buckets as the relativistic table would have, rounded up to a power of two.
        let buckets = setup.capacity + setup.capacity / 3 + 1;
        Self {
            map: ChainedMap::with_buckets(buckets.max(LEAST_BUCKETS)),
        }
    }
    fn handle(&self) -> Self::Handle<'_> {
        ChainedHandle { map: &self.map }
    }
    fn size(&self) -> Option<usize> {
        Some(self.map.len())
    }
    fn settle(&self) {
        corewise_rcu::Domain::global().barrier();
    }
}

impl<K: Kind, A, S> Resize<K> for Chained<K, A, S>
where
    A: chained::ChainedTable,
    S: BuildHasher + Default + Send + Sync + 'static,
{
    fn resize_to(&self, buckets: usize) {
        self.map
            .resize_to(buckets)
            .expect("there is memory, and no guard is held");
    }
    fn buckets(&self) -> usize {
        self.map.buckets()
    }
}

pub(crate) struct ChainedHandle<'t, K: Kind, A: chained::ChainedTable, S> {
    map: &'t ChainedMap<K::Key, K::Value, A, S>,
}

impl<K: Kind, A: chained::ChainedTable, S: BuildHasher> Handle<K> for ChainedHandle<'_, K, A, S> {
    #[inline]
    fn get(&mut self, key: &K::Query) -> Option<u64> {
        self.map.pin().get(key).map(K::stamp)
    }
    #[inline]
    fn get_many<'q>(
        &mut self,
        keys: impl ExactSizeIterator<Item = &'q K::Query>,
        out: &mut [Option<u64>],
    ) where
        K::Query: 'q,
    {
        let (map, mut found) = (self.map.pin(), [None; MOST_BATCHED]);
        let found = &mut found[..out.len()];
        map.get_many(keys, found);
        for (out, value) in out.iter_mut().zip(found) {
            *out = value.map(K::stamp);
        }
    }
    #[inline]
    fn insert(&mut self, key: &K::Query, value: K::Value) -> bool {
        self.map.pin().insert(K::own(key), value)
    }
    #[inline]
    fn remove(&mut self, key: &K::Query) -> Option<u64> {
        self.map.pin().remove(key).map(K::stamp)
    }
}

/// Returns the entry of one chained table.
///
/// Names begin with `chained:`. These tables take part only if they are named, or in the section
/// `resize`: other sections may need a table that grows by itself.
fn entry<A: chained::ChainedTable>(name: &str, about: &str, guarantees: &str) -> Entry {
    let mut card = rust(&format!("chained:{name}"), versions::OURS, about);
    card.reclamation = "RCU with membarrier: a removed node is a deferred closure".into();
    card.guarantees = guarantees.into();
    card.settings =
        "never resized but on request; buckets for 4/3 of the announced entries, 1,024 at \
                     least, a power of two"
            .into();
    card.batch =
        "get_many: asks for the buckets of up to 64 keys, then for their first nodes, then \
                  looks each up"
            .into();
    card.adapter =
        "one handle per operation or batch, as pin() makes; an insert owns its key, and makes its node, \
                    before it looks"
            .into();
    Entry::new(card)
        .u64::<Chained<U64, A, Common>>()
        .u64_resize::<Chained<U64, A, Common>>()
}

/// Names of the chained tables, for the section `resize`.
pub(crate) const NAMES: [&str; 10] = [
    "chained:out-of-place",
    "chained:atc11",
    "chained:in-place",
    "chained:no-auxiliary",
    "chained:sorted-reversed",
    "chained:sorted-high-bits",
    "chained:split-ordered",
    "chained:per-entry",
    "chained:ddds",
    "chained:rwlock",
];

pub(super) fn entries() -> [Entry; 10] {
    let paper = "lookups wait-free; updates lock one of up to 1,024 stripes, all of them while a \
                 resize walks over the table once";
    [
        entry::<OutOfPlace>(
            "out-of-place",
            "the paper's resize, both ways copied (ATC 2011, 4)",
            paper,
        ),
        entry::<Atc11>(
            "atc11",
            "expanded by copying, shrunk in place (ATC 2011, 6.1)",
            paper,
        ),
        entry::<InPlace>(
            "in-place",
            "resized in place both ways (ATC 2011, 4.2)",
            paper,
        ),
        entry::<NoAuxiliary>(
            "no-auxiliary",
            "unzipped without auxiliary storage (ATC 2011, 4)",
            paper,
        ),
        entry::<SortedByReversedHash>(
            "sorted-reversed",
            "chains sorted by the reversed hash (ATC 2011, 4.3)",
            paper,
        ),
        entry::<SortedByHighBits>(
            "sorted-high-bits",
            "buckets by the hash's high bits, sorted chains (ATC 2011, 4.3)",
            paper,
        ),
        entry::<SplitOrdered>(
            "split-ordered",
            "the relativistic split-ordered list (ATC 2011, 2)",
            "lookups wait-free, updates lock-free",
        ),
        entry::<PerEntry>(
            "per-entry",
            "entries moved one by one, as Linux's rhashtable does",
            "lookups start again, at most once for each entry of the bucket, beside a resize; updates lock one \
             of up to 1,024 stripes",
        ),
        entry::<Ddds>(
            "ddds",
            "Dynamic Dynamic Data Structures (Piggin; ATC 2011, 5): resized entry by entry",
            "lookups wait-free at rest; while it is resized they look in two tables, and a miss may be repeated; \
             updates lock one of up to 1,024 stripes",
        ),
        entry::<RwLocked>(
            "rwlock",
            "a chained table under one std::sync::RwLock (ATC 2011, 5)",
            "lookups and updates lock for reading, resizes for writing; updates lock one of up to 1,024 stripes \
             besides",
        ),
    ]
}
