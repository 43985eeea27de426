//! papaya: lock-free open addressing with entries behind pointers.

use std::borrow::Borrow;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use papaya::{Guard, HashMap, LocalGuard};

use crate::adapters::{rust, versions};
use crate::dyn_table::Entry;
use crate::hash::Common;
use crate::table::{Bytes, Handle, Kind, Setup, Table, U64};

/// A papaya map.
pub(crate) struct Papaya<K: Kind, S> {
    map: HashMap<K::Key, K::Value, S>,
}

impl<K: Kind, S: BuildHasher + Default + Send + Sync + 'static> Table<K> for Papaya<K, S> {
    type Handle<'t> = PapayaHandle<'t, K, S>;
    const ITERATES: bool = true;

    fn build(setup: &Setup) -> Self {
        Self {
            map: HashMap::with_capacity_and_hasher(setup.capacity, S::default()),
        }
    }
    fn handle(&self) -> Self::Handle<'_> {
        PapayaHandle { map: &self.map }
    }
    fn size(&self) -> Option<usize> {
        Some(self.map.len())
    }
    fn settle(&self) {
        self.map.guard().flush();
    }
}

pub(crate) struct PapayaHandle<'t, K: Kind, S> {
    map: &'t HashMap<K::Key, K::Value, S>,
}

impl<K: Kind, S: BuildHasher> PapayaHandle<'_, K, S> {
    #[inline]
    fn guard(&self) -> LocalGuard<'_> {
        self.map.guard()
    }
}

impl<K: Kind, S: BuildHasher> Handle<K> for PapayaHandle<'_, K, S> {
    #[inline]
    fn get(&mut self, key: &K::Query) -> Option<u64> {
        self.map.get(key, &self.guard()).map(K::stamp)
    }
    #[inline]
    fn for_each(&mut self, mut visit: impl FnMut(&K::Query, u64)) {
        let guard = self.guard();
        let entries = self.map.iter(&guard);
        entries.for_each(|(key, value)| visit(key.borrow(), K::stamp(value)));
    }
    #[inline]
    fn insert(&mut self, key: &K::Query, value: K::Value) -> bool {
        self.map
            .try_insert(K::own(key), value, &self.guard())
            .is_ok()
    }
    #[inline]
    fn remove(&mut self, key: &K::Query) -> Option<u64> {
        self.map.remove(key, &self.guard()).map(K::stamp)
    }
}

pub(super) fn entry() -> Entry {
    let mut card = rust(
        "papaya",
        versions::PAPAYA,
        "lock-free, entries behind pointers",
    );
    card.reclamation = "hyaline (seize), in batches of its default size".into();
    card.guarantees = "lock-free reads and writes; incremental resize (its default)".into();
    card.settings += "; reserve can only grow it, so it takes no part in the section resize";
    card.adapter =
        "one local guard per operation, as pin() takes; an insert owns its key before it looks"
            .into();
    Entry::new(card)
        .u64::<Papaya<U64, Common>>()
        .bytes::<Papaya<Bytes, Common>>()
        .u64_native::<Papaya<U64, RandomState>>()
        .bytes_native::<Papaya<Bytes, RandomState>>()
}
