//! Sixty-four hashbrown maps, each behind its parking_lot readers-writer lock.

use std::hash::BuildHasher;

use crossbeam_utils::CachePadded;
use hashbrown::HashMap;
use parking_lot::RwLock;

use crate::adapters::hashbrown::{Map, groups_of, insert_absent, regroup};
use crate::adapters::{listed, with_makers};
use crate::entry::Entry;
use crate::hash::Common;
use crate::table::{Bytes, Kind, MapHandle, MeasuredMap, Resize, Setup, U64};

/// Number of shards; a power of two.
const SHARDS: usize = 64;
/// hashbrown takes the top seven bits of a hash for its tags and the low bits for the position.
const SHIFT: u32 = 64 - 7 - SHARDS.trailing_zeros();

/// A shard, padded to cache lines.
type Shard<K> = CachePadded<RwLock<Map<K>>>;

pub(crate) struct Sharded<K: Kind> {
    shards: Box<[Shard<K>]>,
}

impl<K: Kind> Sharded<K> {
    #[inline]
    fn shard(&self, key: &K::Query) -> &RwLock<Map<K>> {
        &self.shards[(Common.hash_one(key) >> SHIFT) as usize % SHARDS]
    }
}

impl<K: Kind> MeasuredMap<K> for Sharded<K> {
    fn build(setup: &Setup) -> Self {
        // Shard sizes scatter around their mean; a reserve of four standard deviations avoids a
        // resize.
        let share = setup.capacity as f64 / SHARDS as f64;
        let capacity = if setup.capacity == 0 {
            0
        } else {
            (share + 4.0 * share.sqrt()).ceil() as usize
        };
        let shard = |_| {
            let map = HashMap::with_capacity_and_hasher(capacity, Common);
            CachePadded::new(RwLock::new(map))
        };
        Self {
            shards: (0..SHARDS).map(shard).collect(),
        }
    }
    shared_by_threads!();
    fn size(&self) -> Option<usize> {
        Some(self.shards.iter().map(|shard| shard.read().len()).sum())
    }
}

impl<K: Kind> Resize<K> for Sharded<K> {
    fn resize_to(&self, buckets: usize) {
        for shard in &self.shards {
            regroup::<K>(&mut shard.write(), buckets / SHARDS);
        }
    }
    fn buckets(&self) -> usize {
        let groups = |shard: &Shard<K>| groups_of::<K>(&shard.read());
        self.shards.iter().map(groups).sum()
    }
}

impl<K: Kind> MapHandle<K> for &Sharded<K> {
    #[inline]
    fn get(&mut self, key: &K::Query) -> Option<u64> {
        self.shard(key).read().get(key).map(K::stamp)
    }
    #[inline]
    fn insert(&mut self, key: &K::Query, value: K::Value) -> bool {
        insert_absent::<K>(&mut self.shard(key).write(), key, value)
    }
    #[inline]
    fn remove(&mut self, key: &K::Query) -> Option<u64> {
        let removed = self.shard(key).write().remove(key);
        removed.map(|value| K::stamp(&value))
    }
}

pub(super) fn entry() -> Entry {
    with_makers!(resize listed("sharded64"), Sharded)
}
