//! hashbrown behind one lock: the usual starting point of a program.
//!
//! [`Lock`] is the interface of the locks of the synchronisation section (\[CHTBench\] §3.4.7).
//! Implementations are here and in `locks.rs`.

use std::borrow::Borrow;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use hashbrown::HashMap;

use crate::adapters::hashbrown::{groups_of, insert_absent, regroup};
use crate::adapters::{rust, versions};
use crate::dyn_table::Entry;
use crate::hash::Common;
use crate::table::{Bytes, Handle, Kind, Resize, Setup, Table, U64};

/// A readers-writer lock, or a mutual exclusion lock that treats readers as writers.
pub(crate) trait Lock<T>: Send + Sync + 'static {
    /// Wraps a value.
    fn new(value: T) -> Self;
    /// Runs `action` with shared access to the value.
    fn read<R>(&self, action: impl FnOnce(&T) -> R) -> R;
    /// Runs `action` with exclusive access to the value.
    fn write<R>(&self, action: impl FnOnce(&mut T) -> R) -> R;
}

impl<T: Send + 'static> Lock<T> for Mutex<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }
    #[inline]
    fn read<R>(&self, action: impl FnOnce(&T) -> R) -> R {
        let guard: MutexGuard<'_, T> = self.lock().unwrap_or_else(PoisonError::into_inner);
        action(&guard)
    }
    #[inline]
    fn write<R>(&self, action: impl FnOnce(&mut T) -> R) -> R {
        action(&mut self.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T: Send + Sync + 'static> Lock<T> for RwLock<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }
    #[inline]
    fn read<R>(&self, action: impl FnOnce(&T) -> R) -> R {
        let guard: RwLockReadGuard<'_, T> = self.read().unwrap_or_else(PoisonError::into_inner);
        action(&guard)
    }
    #[inline]
    fn write<R>(&self, action: impl FnOnce(&mut T) -> R) -> R {
        let mut guard: RwLockWriteGuard<'_, T> =
            self.write().unwrap_or_else(PoisonError::into_inner);
        action(&mut guard)
    }
}

#[cfg(feature = "bench")]
impl<T: Send + Sync + 'static> Lock<T> for parking_lot::RwLock<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }
    #[inline]
    fn read<R>(&self, action: impl FnOnce(&T) -> R) -> R {
        action(&self.read())
    }
    #[inline]
    fn write<R>(&self, action: impl FnOnce(&mut T) -> R) -> R {
        action(&mut self.write())
    }
}

/// The hashbrown map of a kind.
pub(crate) type Map<K, S> = HashMap<<K as Kind>::Key, <K as Kind>::Value, S>;

/// A map behind one lock.
pub(crate) struct Global<L, S> {
    lock: L,
    hasher: std::marker::PhantomData<fn() -> S>,
}

impl<K: Kind, S: BuildHasher + Default + Send + Sync + 'static, L: Lock<Map<K, S>>> Table<K>
    for Global<L, S>
{
    type Handle<'t> = GlobalHandle<'t, L, S>;
    const ITERATES: bool = true;

    fn build(setup: &Setup) -> Self {
        let map = HashMap::with_capacity_and_hasher(setup.capacity, S::default());
        Self {
            lock: L::new(map),
            hasher: std::marker::PhantomData,
        }
    }
    fn handle(&self) -> Self::Handle<'_> {
        GlobalHandle { table: self }
    }
    fn size(&self) -> Option<usize> {
        Some(self.lock.read(|map| map.len()))
    }
}

impl<K: Kind, S: BuildHasher + Default + Send + Sync + 'static, L: Lock<Map<K, S>>> Resize<K>
    for Global<L, S>
{
    fn resize_to(&self, buckets: usize) {
        self.lock.write(|map| regroup::<K, S>(map, buckets));
    }
    fn buckets(&self) -> usize {
        self.lock.read(|map| groups_of::<K, S>(map))
    }
}

pub(crate) struct GlobalHandle<'t, L, S> {
    table: &'t Global<L, S>,
}

impl<K: Kind, S: BuildHasher + 'static, L: Lock<Map<K, S>>> Handle<K> for GlobalHandle<'_, L, S> {
    #[inline]
    fn get(&mut self, key: &K::Query) -> Option<u64> {
        self.table.lock.read(|map| map.get(key).map(K::stamp))
    }
    #[inline]
    fn for_each(&mut self, mut visit: impl FnMut(&K::Query, u64)) {
        self.table.lock.read(|map| {
            map.iter()
                .for_each(|(key, value)| visit(key.borrow(), K::stamp(value)));
        });
    }
    #[inline]
    fn insert(&mut self, key: &K::Query, value: K::Value) -> bool {
        self.table
            .lock
            .write(|map| insert_absent::<K, S>(map, key, value))
    }
    #[inline]
    fn remove(&mut self, key: &K::Query) -> Option<u64> {
        let removed = self.table.lock.write(|map| map.remove(key));
        removed.map(|value| K::stamp(&value))
    }
}

pub(super) fn entries() -> Vec<Entry> {
    type MutexMap<K, S> = Global<Mutex<Map<K, S>>, S>;
    type RwMap<K, S> = Global<RwLock<Map<K, S>>, S>;
    let mutex = card("mutex", "std::sync::Mutex<hashbrown>", "mutual exclusion");
    let rwlock = card(
        "rwlock",
        "std::sync::RwLock<hashbrown>",
        "readers together, writers alone",
    );
    let entries = vec![
        Entry::new(mutex)
            .u64::<MutexMap<U64, Common>>()
            .bytes::<MutexMap<Bytes, Common>>()
            .u64_native::<MutexMap<U64, foldhash::fast::RandomState>>()
            .bytes_native::<MutexMap<Bytes, foldhash::fast::RandomState>>()
            .u64_resize::<MutexMap<U64, Common>>()
            .bytes_resize::<MutexMap<Bytes, Common>>(),
        Entry::new(rwlock)
            .u64::<RwMap<U64, Common>>()
            .bytes::<RwMap<Bytes, Common>>()
            .u64_native::<RwMap<U64, foldhash::fast::RandomState>>()
            .bytes_native::<RwMap<Bytes, foldhash::fast::RandomState>>()
            .u64_resize::<RwMap<U64, Common>>()
            .bytes_resize::<RwMap<Bytes, Common>>(),
    ];
    #[cfg(feature = "bench")]
    let entries = {
        type ParkingMap<K, S> = Global<parking_lot::RwLock<Map<K, S>>, S>;
        let mut card = card(
            "parking-rwlock",
            "parking_lot::RwLock<hashbrown>",
            "readers together, writers alone",
        );
        card.version = format!(
            "parking_lot {}, hashbrown {}",
            versions::PARKING_LOT,
            versions::HASHBROWN
        );
        let entry = Entry::new(card)
            .u64::<ParkingMap<U64, Common>>()
            .bytes::<ParkingMap<Bytes, Common>>()
            .u64_native::<ParkingMap<U64, foldhash::fast::RandomState>>()
            .bytes_native::<ParkingMap<Bytes, foldhash::fast::RandomState>>()
            .u64_resize::<ParkingMap<U64, Common>>()
            .bytes_resize::<ParkingMap<Bytes, Common>>();
        entries.into_iter().chain([entry]).collect()
    };
    entries
}

fn card(name: &str, about: &str, guarantees: &str) -> crate::table::TableInfo {
    let mut card = rust(name, versions::HASHBROWN, about);
    card.reclamation = "at once; removed values are dropped after the lock is released".into();
    card.guarantees = format!("linearizable: {guarantees}");
    card.adapter = "one lock around each operation; values are read inside it".into();
    card.settings += "; a bucket of the section resize is a group of 16 slots, reached by reserve and shrink_to under the lock";
    card
}
