//! The relativistic table of `corewise-maps`: RCU, chained, resized while readers read.

use std::borrow::Borrow;
use std::hash::BuildHasher;

use corewise_maps::RelativisticMap;
use corewise_maps::relativistic::DefaultHasher;

use crate::adapters::{listed, with_makers};
use crate::dyn_table::Entry;
use crate::hash::Common;
use crate::table::{Bytes, Handle, Kind, MOST_BATCHED, Resize, Setup, Table, U64};

/// A relativistic map.
pub(crate) struct Relativistic<K: Kind, S> {
    map: RelativisticMap<K::Key, K::Value, S>,
}

impl<K: Kind, S: BuildHasher + Default + Send + Sync + 'static> Table<K> for Relativistic<K, S> {
    type Handle<'t> = &'t Self;
    const ITERATES: bool = true;

    fn build(setup: &Setup) -> Self {
        Self {
            map: RelativisticMap::with_capacity_and_hasher(setup.capacity, S::default()),
        }
    }
    fn handle(&self) -> &Self {
        self
    }
    fn size(&self) -> Option<usize> {
        Some(self.map.len())
    }
    fn settle(&self) {
        self.map.settle().expect("no guard is held");
    }
}

impl<K: Kind, S: BuildHasher + Default + Send + Sync + 'static> Resize<K> for Relativistic<K, S> {
    fn resize_to(&self, buckets: usize) {
        self.map.set_automatic_resize(false);
        self.map
            .resize_to(buckets)
            .expect("there is memory, and no guard is held");
    }
    fn buckets(&self) -> usize {
        self.map.resize_state().buckets
    }
}

impl<K: Kind, S: BuildHasher> Handle<K> for &Relativistic<K, S> {
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
    fn for_each(&mut self, mut visit: impl FnMut(&K::Query, u64)) {
        self.map
            .pin()
            .iter()
            .for_each(|(key, value)| visit(key.borrow(), K::stamp(value)));
    }
    #[inline]
    fn insert(&mut self, key: &K::Query, value: K::Value) -> bool {
        self.map.pin().try_insert(K::own(key), value).is_ok()
    }
    #[inline]
    fn remove(&mut self, key: &K::Query) -> Option<u64> {
        self.map.pin().remove(key).map(K::stamp)
    }
}

pub(super) fn entry() -> Entry {
    with_makers!(resize listed("relativistic"), Relativistic, DefaultHasher)
}
