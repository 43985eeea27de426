//! Sixty-four hashbrown maps, each behind its parking_lot readers-writer lock.

use std::borrow::Borrow;
use std::hash::BuildHasher;

use crossbeam_utils::CachePadded;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::RwLock;

use crate::adapters::global::Map;
use crate::adapters::hashbrown::{groups_of, insert_absent, regroup};
use crate::adapters::{listed, with_makers};
use crate::entry::Entry;
use crate::hash::Common;
use crate::table::{Bytes, Kind, MapHandle, MeasuredMap, Resize, Setup, U64};

/// Number of shards; a power of two.
const SHARDS: usize = 64;
/// hashbrown takes the top seven bits of a hash for its tags and the low bits for the position.
const SHIFT: u32 = 64 - 7 - SHARDS.trailing_zeros();

/// A shard, padded to cache lines.
type Shard<K, S> = CachePadded<RwLock<Map<K, S>>>;

/// A sharded map.
pub(crate) struct Sharded<K: Kind, S> {
    shards: Box<[Shard<K, S>]>,
    hasher: S,
}

impl<K: Kind, S: BuildHasher> Sharded<K, S> {
    #[inline]
    fn shard(&self, key: &K::Query) -> &RwLock<Map<K, S>> {
        &self.shards[(self.hasher.hash_one(key) >> SHIFT) as usize % SHARDS]
    }
}

impl<K: Kind, S: BuildHasher + Default + Clone + Send + Sync + 'static> MeasuredMap<K>
    for Sharded<K, S>
{
    const ITERATES: bool = true;

    fn build(setup: &Setup) -> Self {
        let hasher = S::default();
        // Shard sizes scatter around their mean; a reserve of four standard deviations avoids a
        // resize.
        let share = setup.capacity as f64 / SHARDS as f64;
        let capacity = if setup.capacity == 0 {
            0
        } else {
            (share + 4.0 * share.sqrt()).ceil() as usize
        };
        let shard = |_| {
            let map = HashMap::with_capacity_and_hasher(capacity, hasher.clone());
            CachePadded::new(RwLock::new(map))
        };
        Self {
            shards: (0..SHARDS).map(shard).collect(),
            hasher: hasher.clone(),
        }
    }
    shared_by_threads!();
    fn size(&self) -> Option<usize> {
        Some(self.shards.iter().map(|shard| shard.read().len()).sum())
    }
}

impl<K: Kind, S: BuildHasher + Default + Clone + Send + Sync + 'static> Resize<K>
    for Sharded<K, S>
{
    fn resize_to(&self, buckets: usize) {
        for shard in &self.shards {
            regroup::<K, S>(&mut shard.write(), buckets / SHARDS);
        }
    }
    fn buckets(&self) -> usize {
        let groups = |shard: &Shard<K, S>| groups_of::<K, S>(&shard.read());
        self.shards.iter().map(groups).sum()
    }
}

impl<K: Kind, S: BuildHasher> MapHandle<K> for &Sharded<K, S> {
    #[inline]
    fn get(&mut self, key: &K::Query) -> Option<u64> {
        self.shard(key).read().get(key).map(K::stamp)
    }
    #[inline]
    fn for_each(&mut self, mut visit: impl FnMut(&K::Query, u64)) {
        for shard in &self.shards {
            let map = shard.read();
            map.iter()
                .for_each(|(key, value)| visit(key.borrow(), K::stamp(value)));
        }
    }
    #[inline]
    fn insert(&mut self, key: &K::Query, value: K::Value) -> bool {
        insert_absent::<K, S>(&mut self.shard(key).write(), key, value)
    }
    #[inline]
    fn remove(&mut self, key: &K::Query) -> Option<u64> {
        let removed = self.shard(key).write().remove(key);
        removed.map(|value| K::stamp(&value))
    }
}

pub(super) fn entry() -> Entry {
    with_makers!(resize listed("sharded64"), Sharded, RandomState)
}
