//! hashbrown behind one lock: the usual starting point of a program.
//!
//! [`Lock`] is the interface of the locks of the synchronisation section (\[CHTBench\] §3.4.7).
//! Implementations are here and in `locks.rs`.

use std::sync::{Mutex, PoisonError, RwLock};

use crossbeam_utils::CachePadded;
use hashbrown::HashMap;

use crate::adapters::hashbrown::{Map, groups_of, insert_absent, regroup};
use crate::adapters::{listed, with_makers};
use crate::entry::Entry;
use crate::hash::Common;
use crate::table::{Bytes, Contention, Kind, MapHandle, MeasuredMap, Resize, Setup, U64};

/// A readers-writer lock, or a mutual exclusion lock that treats readers as writers. Hardware may
/// roll back and rerun the critical section; it takes effect once.
pub(crate) trait Lock<T>: Send + Sync + 'static {
    /// Whether it counts its acquisitions, which begin with a try.
    const COUNTS: bool;
    /// Wraps a value.
    fn new(value: T) -> Self;
    /// Runs `action` with exclusive access to the value.
    fn write<R>(&self, contention: &mut Contention, action: impl FnMut(&mut T) -> R) -> R;
    /// Runs `action` with shared access, if the lock distinguishes readers.
    fn read<R>(&self, contention: &mut Contention, mut action: impl FnMut(&T) -> R) -> R {
        self.write(contention, |value| action(value))
    }
    /// The counts of its transactions.
    fn transactions(&self) -> Contention {
        Contention::default()
    }
}

/// A lock that is neither tried first nor counted.
pub(crate) struct Uncounted<L>(L);

/// Implements [`Lock`]: how to make one, how to try and how to take it, for writing and for
/// reading.
macro_rules! locks {
    ($(
        [$($of:tt)*] $type:ty, $new:expr, $counts:literal;
        write($lock:ident) $try_write:expr, $write:expr;
        $(read($reader:ident) $try_read:expr, $read:expr;)?
    )*) => {$(
        impl<$($of)*> $crate::adapters::global::Lock<T> for $type {
            const COUNTS: bool = $counts;
            fn new(value: T) -> Self {
                $new(value)
            }
            locks! { write(mut guard, &mut guard, &mut T, $counts, $lock, $try_write, $write) }
            $(locks! { read(guard, &guard, &T, $counts, $reader, $try_read, $read) })?
        }
    )*};
    ($name:ident(
        $($guard:ident)+, $value:expr, $Value:ty, $counts:literal, $lock:ident, $try:expr, $block:expr
    )) => {
        #[inline]
        fn $name<R>(&self, contention: &mut Contention, mut action: impl FnMut($Value) -> R) -> R {
            let $lock = self;
            contention.acquisitions += u64::from($counts);
            let $($guard)+ = $try.unwrap_or_else(|| {
                contention.contended += u64::from($counts);
                $block
            });
            action($value)
        }
    };
}

#[cfg(feature = "bench")]
pub(super) use locks;

locks! {
    [T: Send + 'static] Uncounted<Mutex<T>>, |value| Self(Mutex::new(value)), false;
    write(lock) None, lock.0.lock().unwrap_or_else(PoisonError::into_inner);

    [T: Send + Sync + 'static] Uncounted<RwLock<T>>, |value| Self(RwLock::new(value)), false;
    write(lock) None, lock.0.write().unwrap_or_else(PoisonError::into_inner);
    read(lock) None, lock.0.read().unwrap_or_else(PoisonError::into_inner);
}

#[cfg(feature = "bench")]
locks! {
    [T: Send + Sync + 'static] Uncounted<parking_lot::RwLock<T>>,
    |value| Self(parking_lot::RwLock::new(value)), false;
    write(lock) None, lock.0.write();
    read(lock) None, lock.0.read();
}

pub(crate) struct Global<L> {
    lock: L,
    /// A handle adds its counts when it is dropped.
    seen: CachePadded<Mutex<Contention>>,
}

impl<K: Kind, L: Lock<Map<K>>> MeasuredMap<K> for Global<L> {
    type Handle<'t> = GlobalHandle<'t, L>;

    fn build(setup: &Setup) -> Self {
        let map = HashMap::with_capacity_and_hasher(setup.capacity, Common);
        Self {
            lock: L::new(map),
            seen: Default::default(),
        }
    }
    fn handle(&self) -> Self::Handle<'_> {
        GlobalHandle {
            table: self,
            seen: Contention::default(),
        }
    }
    fn size(&self) -> Option<usize> {
        Some(self.lock.read(&mut Contention::default(), |map| map.len()))
    }
    fn contention(&self) -> Option<Contention> {
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        L::COUNTS.then(|| seen.combine(self.lock.transactions(), |seen, more| seen + more))
    }
}

impl<K: Kind, L: Lock<Map<K>>> Resize<K> for Global<L> {
    fn resize_to(&self, buckets: usize) {
        let unused = &mut Contention::default();
        self.lock.write(unused, |map| regroup::<K>(map, buckets));
    }
    fn buckets(&self) -> usize {
        let unused = &mut Contention::default();
        self.lock.read(unused, |map| groups_of::<K>(map))
    }
}

pub(crate) struct GlobalHandle<'t, L> {
    table: &'t Global<L>,
    seen: Contention,
}

impl<L> Drop for GlobalHandle<'_, L> {
    fn drop(&mut self) {
        let sum = self.table.seen.lock();
        let mut sum = sum.unwrap_or_else(PoisonError::into_inner);
        *sum = sum.combine(self.seen, |sum, more| sum + more);
    }
}

impl<K: Kind, L: Lock<Map<K>>> MapHandle<K> for GlobalHandle<'_, L> {
    #[inline]
    fn get(&mut self, key: &K::Query) -> Option<u64> {
        let lock = &self.table.lock;
        lock.read(&mut self.seen, |map| map.get(key).map(K::stamp))
    }
    #[inline]
    fn insert(&mut self, key: &K::Query, value: K::Value) -> bool {
        let mut value = Some(value);
        self.table.lock.write(&mut self.seen, |map| {
            let value = value.take().expect("what was rolled back did not take it");
            insert_absent::<K>(map, key, value)
        })
    }
    #[inline]
    fn remove(&mut self, key: &K::Query) -> Option<u64> {
        let removed = self.table.lock.write(&mut self.seen, |map| map.remove(key));
        removed.map(|value| K::stamp(&value))
    }
}

type MutexMap<K> = Global<Uncounted<Mutex<Map<K>>>>;
type RwMap<K> = Global<Uncounted<RwLock<Map<K>>>>;
#[cfg(feature = "bench")]
type ParkingMap<K> = Global<Uncounted<parking_lot::RwLock<Map<K>>>>;

pub(super) fn entries() -> Vec<Entry> {
    vec![
        with_makers!(resize listed("mutex"), MutexMap),
        with_makers!(resize listed("rwlock"), RwMap),
        #[cfg(feature = "bench")]
        with_makers!(resize listed("parking-rwlock"), ParkingMap),
    ]
}
