//! dashmap: shards of hashbrown's raw table behind spinning readers-writer locks.

use std::borrow::Borrow;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use dashmap::DashMap;

use crate::adapters::hashbrown::{GROUP, capacity_of};
use crate::adapters::{library_map, listed, with_makers};
use crate::dyn_table::Entry;
use crate::hash::Common;
use crate::table::{Bytes, Handle, Kind, Resize, Setup, Table, U64};

library_map! {
    /// A dashmap map.
    Dash: DashMap, RandomState;
    get(map, key) map.get(key).map(|entry| K::stamp(entry.value()));
    insert(map, key, value) match map.entry(K::own(key)) {
        dashmap::Entry::Occupied(_) => false,
        dashmap::Entry::Vacant(entry) => {
            entry.insert(value);
            true
        }
    };
    remove(map, key) map.remove(key).map(|(_, value)| K::stamp(&value));
    visit(map, visit) {
        for entry in map.iter() {
            visit(entry.key().borrow(), K::stamp(entry.value()));
        }
    };
    settle(_map) {};
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

pub(super) fn entry() -> Entry {
    Dash::entry("dashmap")
        .u64_resize::<Dash<U64, Common>>()
        .bytes_resize::<Dash<Bytes, Common>>()
}
