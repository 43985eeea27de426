//! flurry: a port of Java's ConcurrentHashMap.

use std::borrow::Borrow;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use flurry::HashMap;

use crate::adapters::{rust, versions};
use crate::dyn_table::Entry;
use crate::hash::Common;
use crate::table::{Bytes, Handle, Kind, Setup, Table, U64};

/// A flurry map.
pub(crate) struct Flurry<K: Kind, S> {
    map: HashMap<K::Key, K::Value, S>,
}

impl<K: Kind, S: BuildHasher + Default + Send + Sync + 'static> Table<K> for Flurry<K, S> {
    type Handle<'t> = FlurryHandle<'t, K, S>;
    const ITERATES: bool = true;

    fn build(setup: &Setup) -> Self {
        Self {
            map: HashMap::with_capacity_and_hasher(setup.capacity, S::default()),
        }
    }
    fn handle(&self) -> Self::Handle<'_> {
        FlurryHandle { map: &self.map }
    }
    fn size(&self) -> Option<usize> {
        Some(self.map.len())
    }
    fn settle(&self) {
        self.map.guard().flush();
    }
}

pub(crate) struct FlurryHandle<'t, K: Kind, S> {
    map: &'t HashMap<K::Key, K::Value, S>,
}

impl<K: Kind, S: BuildHasher> Handle<K> for FlurryHandle<'_, K, S> {
    #[inline]
    fn get(&mut self, key: &K::Query) -> Option<u64> {
        self.map.get(key, &self.map.guard()).map(K::stamp)
    }
    #[inline]
    fn for_each(&mut self, mut visit: impl FnMut(&K::Query, u64)) {
        let guard = self.map.guard();
        let entries = self.map.iter(&guard);
        entries.for_each(|(key, value)| visit(key.borrow(), K::stamp(value)));
    }
    #[inline]
    fn insert(&mut self, key: &K::Query, value: K::Value) -> bool {
        self.map
            .try_insert(K::own(key), value, &self.map.guard())
            .is_ok()
    }
    #[inline]
    fn remove(&mut self, key: &K::Query) -> Option<u64> {
        self.map.remove(key, &self.map.guard()).map(K::stamp)
    }
}

pub(super) fn entry() -> Entry {
    let mut card = rust(
        "flurry",
        versions::FLURRY,
        "Java's ConcurrentHashMap: chains, a lock per bucket for writes",
    );
    card.reclamation = "hyaline (seize 0.3), in batches of its default size".into();
    card.guarantees = "lock-free reads; all threads help a resize".into();
    card.settings += "; never shrinks, so it takes no part in the section resize";
    card.adapter =
        "one guard per operation, as pin() takes; an insert owns its key before it looks".into();
    Entry::new(card)
        .u64::<Flurry<U64, Common>>()
        .bytes::<Flurry<Bytes, Common>>()
        .u64_native::<Flurry<U64, RandomState>>()
        .bytes_native::<Flurry<Bytes, RandomState>>()
}
