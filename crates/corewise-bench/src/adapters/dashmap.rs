//! dashmap: shards of hashbrown's raw table behind spinning readers-writer locks.

use std::borrow::Borrow;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use dashmap::DashMap;

use crate::adapters::hashbrown::{GROUP, capacity_of};
use crate::adapters::{rust, versions};
use crate::dyn_table::Entry;
use crate::hash::Common;
use crate::table::{Bytes, Handle, Kind, Resize, Setup, Table, U64};

/// A dashmap map.
pub(crate) struct Dash<K: Kind, S> {
    map: DashMap<K::Key, K::Value, S>,
}

impl<K: Kind, S: BuildHasher + Default + Clone + Send + Sync + 'static> Table<K> for Dash<K, S> {
    type Handle<'t> = DashHandle<'t, K, S>;
    const ITERATES: bool = true;

    fn build(setup: &Setup) -> Self {
        Self {
            map: DashMap::with_capacity_and_hasher(setup.capacity, S::default()),
        }
    }
    fn handle(&self) -> Self::Handle<'_> {
        DashHandle { map: &self.map }
    }
    fn size(&self) -> Option<usize> {
        Some(self.map.len())
    }
}

impl<K: Kind, S: BuildHasher + Default + Clone + Send + Sync + 'static> Resize<K> for Dash<K, S> {
    /// Resizes the raw tables of the shards: `shrink_to_fit` shrinks as far as possible, not to a
    /// size.
    fn resize_to(&self, buckets: usize) {
        let shards = self.map.shards();
        let groups = buckets / shards.len();
        let capacity = capacity_of(groups);
        let hash = |key: &K::Key| self.map.hasher().hash_one(key);
        for shard in shards {
            let mut table = shard.write();
            // Compares buckets, not capacity: tombstones lower the capacity.
            if groups * GROUP > table.buckets() {
                let more = capacity.saturating_sub(table.len());
                table.reserve(more, |(key, _)| hash(key));
            } else {
                table.shrink_to(capacity, |(key, _)| hash(key));
            }
        }
    }
    fn buckets(&self) -> usize {
        let slots = self.map.shards().iter().map(|shard| shard.read().buckets());
        slots.sum::<usize>() / GROUP
    }
}

pub(crate) struct DashHandle<'t, K: Kind, S> {
    map: &'t DashMap<K::Key, K::Value, S>,
}

impl<K: Kind, S: BuildHasher + Clone> Handle<K> for DashHandle<'_, K, S> {
    #[inline]
    fn get(&mut self, key: &K::Query) -> Option<u64> {
        self.map.get(key).map(|entry| K::stamp(entry.value()))
    }
    #[inline]
    fn for_each(&mut self, mut visit: impl FnMut(&K::Query, u64)) {
        for entry in self.map.iter() {
            visit(entry.key().borrow(), K::stamp(entry.value()));
        }
    }
    #[inline]
    fn insert(&mut self, key: &K::Query, value: K::Value) -> bool {
        match self.map.entry(K::own(key)) {
            dashmap::Entry::Occupied(_) => false,
            dashmap::Entry::Vacant(entry) => {
                entry.insert(value);
                true
            }
        }
    }
    #[inline]
    fn remove(&mut self, key: &K::Query) -> Option<u64> {
        self.map.remove(key).map(|(_, value)| K::stamp(&value))
    }
}

pub(super) fn entry() -> Entry {
    let mut card = rust(
        "dashmap",
        versions::DASHMAP,
        "shards behind spinning readers-writer locks",
    );
    card.reclamation = "at once".into();
    card.guarantees = "linearizable; readers of a shard together, writers alone".into();
    card.settings += "; its default number of shards, four times the CPUs rounded up to a power of two; feature inline; a bucket of the section resize is a group of 16 slots, reached shard by shard through the raw tables";
    card.adapter =
        "values are read under the shard's lock; an insert owns its key before it looks".into();
    Entry::new(card)
        .u64::<Dash<U64, Common>>()
        .bytes::<Dash<Bytes, Common>>()
        .u64_native::<Dash<U64, RandomState>>()
        .bytes_native::<Dash<Bytes, RandomState>>()
        .u64_resize::<Dash<U64, Common>>()
        .bytes_resize::<Dash<Bytes, Common>>()
}
