//! The chained tables of `corewise-maps`, which are resized on request: the baselines of the relativistic
//! table's paper.

use std::hash::BuildHasher;

use corewise_maps::baseline::{Ddds, RwLocked};
use corewise_maps::chained::{self, ChainedMap};
use corewise_maps::relativistic::DefaultHasher;

use crate::adapters::{rust, versions};
use crate::hash::Common;
use crate::subject::Entry;
use crate::table::{Bytes, Card, Handle, Kind, Resize, Setup, Table, U64};

/// The map over one of the tables.
pub(crate) struct Chained<K: Kind, A: chained::Table, S> {
    map: ChainedMap<K::Key, K::Value, A, S>,
}

/// Buckets of a table that is to grow, which these do not by themselves.
const LEAST_BUCKETS: usize = 1 << 10;

impl<K: Kind, A, S> Table<K> for Chained<K, A, S>
where
    A: chained::Table,
    S: BuildHasher + Default + Send + Sync + 'static,
{
    type Handle<'t> = ChainedHandle<'t, K, A, S>;

    fn build(setup: &Setup) -> Self {
        // As many as the relativistic table has for as many entries; the power of two above.
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
    A: chained::Table,
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

pub(crate) struct ChainedHandle<'t, K: Kind, A: chained::Table, S> {
    map: &'t ChainedMap<K::Key, K::Value, A, S>,
}

impl<K: Kind, A: chained::Table, S: BuildHasher> Handle<K> for ChainedHandle<'_, K, A, S> {
    #[inline]
    fn get(&mut self, key: &K::Query) -> Option<u64> {
        self.map.pin().get(key).map(K::stamp)
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

fn entry<A: chained::Table>(card: Card) -> Entry {
    Entry::new(card)
        .u64::<Chained<U64, A, Common>>()
        .bytes::<Chained<Bytes, A, Common>>()
        .u64_resize::<Chained<U64, A, Common>>()
        .bytes_resize::<Chained<Bytes, A, Common>>()
        .u64_native::<Chained<U64, A, DefaultHasher>>()
        .bytes_native::<Chained<Bytes, A, DefaultHasher>>()
}

fn card(name: &str, about: &str) -> Card {
    let mut card = rust(name, versions::OURS, about);
    card.reclamation = "RCU with membarrier: a removed node is a deferred closure".into();
    card.settings =
        "never resized but on request; buckets for 4/3 of the announced entries, 1,024 at \
                     least, a power of two"
            .into();
    card.adapter =
        "one handle per operation, as pin() makes; an insert owns its key, and makes its node, \
                    before it looks"
            .into();
    card
}

pub(super) fn entries() -> [Entry; 2] {
    let mut ddds = card(
        "ddds",
        "Dynamic Dynamic Data Structures (Piggin) of corewise-maps: chained, resized entry by entry",
    );
    ddds.guarantees = "lookups wait-free at rest; while it is resized they look in two tables, and a miss may be \
                       repeated; updates lock one of up to 1,024 stripes"
        .into();
    let mut rwlock = card(
        "rwlock-table",
        "a chained table of corewise-maps under one std::sync::RwLock",
    );
    rwlock.guarantees = "lookups and updates lock for reading, resizes for writing; updates lock one of up to 1,024 \
                         stripes besides"
        .into();
    [entry::<Ddds>(ddds), entry::<RwLocked>(rwlock)]
}
