//! hashbrown without any synchronisation: an upper bound for concurrent tables.

use std::cell::UnsafeCell;

use hashbrown::HashMap;

use crate::adapters::{listed, with_makers};
use crate::entry::Entry;
use crate::hash::Common;
use crate::table::{Bytes, Kind, MapHandle, MeasuredMap, Setup, U64};

/// The hashbrown map of a kind.
pub(super) type Map<K> = HashMap<<K as Kind>::Key, <K as Kind>::Value, Common>;

/// A map that one thread may use at a time.
///
/// [`MeasuredMap`] has no such restriction, so the list entry adds it: [`Entry::max_threads`] is
/// one, and the harness runs no cell with more threads on it. Channels order the phases of that
/// thread.
pub(crate) struct Alone<K: Kind> {
    map: UnsafeCell<Map<K>>,
}

// SAFETY: one thread uses the map at a time, see above; the contents are Send.
unsafe impl<K: Kind> Sync for Alone<K> {}

pub(super) fn entry() -> Entry {
    with_makers!(listed("hashbrown"), Alone).max_threads(1)
}

impl<K: Kind> MeasuredMap<K> for Alone<K> {
    type Handle<'t> = AloneHandle<'t, K>;

    fn build(setup: &Setup) -> Self {
        let map = HashMap::with_capacity_and_hasher(setup.capacity, Common);
        Self {
            map: UnsafeCell::new(map),
        }
    }
    fn handle(&self) -> Self::Handle<'_> {
        // SAFETY: one thread uses the map at a time, and it drops a handle before it takes another.
        let map = unsafe { &mut *self.map.get() };
        AloneHandle { map }
    }
    fn size(&self) -> Option<usize> {
        // SAFETY: the harness asks for the size while no handle exists.
        Some(unsafe { &*self.map.get() }.len())
    }
}

pub(crate) struct AloneHandle<'t, K: Kind> {
    map: &'t mut Map<K>,
}

impl<K: Kind> MapHandle<K> for AloneHandle<'_, K> {
    #[inline]
    fn get(&mut self, key: &K::Query) -> Option<u64> {
        self.map.get(key).map(K::stamp)
    }
    #[inline]
    fn insert(&mut self, key: &K::Query, value: K::Value) -> bool {
        insert_absent::<K>(self.map, key, value)
    }
    #[inline]
    fn remove(&mut self, key: &K::Query) -> Option<u64> {
        self.map.remove(key).map(|value| K::stamp(&value))
    }
}

/// Slots of a group: the unit of hashbrown's probing, and its closest analogue of a bucket with a
/// chain.
pub(super) const GROUP: usize = 16;

/// Entries that fit into `groups` groups: seven eighths of the slots.
pub(super) const fn capacity_of(groups: usize) -> usize {
    groups * GROUP / 8 * 7
}

/// The number of groups of a map, computed from its memory: the reported capacity excludes
/// tombstones.
pub(super) fn groups_of<K: Kind>(map: &Map<K>) -> usize {
    // An entry and a control byte a slot. The other ten or so bytes do not change the power of two.
    let slots = map.allocation_size() / (size_of::<(K::Key, K::Value)>() + 1);
    slots.checked_ilog2().map_or(0, |bits| (1 << bits) / GROUP)
}

/// Resizes a hashbrown map to `groups` groups: by `reserve` if it grows, else by `shrink_to`. Both
/// allocate anew and move all entries.
pub(super) fn regroup<K: Kind>(map: &mut Map<K>, groups: usize) {
    let capacity = capacity_of(groups);
    if groups > groups_of::<K>(map) {
        map.reserve(capacity.saturating_sub(map.len()));
    } else {
        map.shrink_to(capacity);
    }
}

/// Inserts if absent, with one search; makes an owned key only if it is stored.
#[inline]
pub(super) fn insert_absent<K: Kind>(map: &mut Map<K>, key: &K::Query, value: K::Value) -> bool {
    use hashbrown::hash_map::RawEntryMut;
    match map.raw_entry_mut().from_key(key) {
        RawEntryMut::Occupied(_) => false,
        RawEntryMut::Vacant(entry) => {
            entry.insert(K::own(key), value);
            true
        }
    }
}
