//! The synchronisation section (\[CHTBench\] §3.4.7 and chapter 4): one hashbrown map under one
//! lock of each kind, with contention counts.
//!
//! Each acquisition begins with a try, so that a lock that is taken is counted. Each thread keeps
//! its counts until its handle is dropped. The spinning locks and the elided one are those of
//! `corewise-locks`. They yield after a while, since a waiting thread may have displaced the holder
//! from its CPU; those in order of arrival then sleep.

use std::hash::BuildHasher;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use corewise_locks::elide::{Elided, Retry, Rtm};
use corewise_locks::{
    Adaptive, Anderson, Clh, DistributedRw, Lock, Mcs, Parking, RawLock, RawSharedLock, SharedLock,
    Tas, Ticket, Ttas, TtasBackoff,
};
use crossbeam_utils::CachePadded;
use crossbeam_utils::sync::ShardedLock;
use hashbrown::HashMap;

use crate::adapters::global::Map;
use crate::adapters::hashbrown::insert_absent;
use crate::adapters::{rust, versions};
use crate::dyn_table::Entry;
use crate::hash::Common;
use crate::subject::{LockSubject, MeasuredLock};
use crate::table::{Bytes, Contention, Handle, Kind, Setup, Table, U64};

/// A test-and-test-and-set lock whose sections are tried as transactions first (\[CHTBench\]
/// chapter 4).
type ElidedTtas<T> = Elided<T, Ttas, Retry<5>>;

/// A lock that counts contention. Hardware may roll back and rerun the critical section; it takes
/// effect once.
pub(crate) trait Counted<T>: Send + Sync + 'static {
    /// Wraps a value.
    fn new(value: T) -> Self;
    /// Runs `action` with exclusive access to the value.
    fn write<R>(&self, seen: &mut Contention, action: impl FnMut(&mut T) -> R) -> R;
    /// Runs `action` with shared access, if the lock distinguishes readers.
    fn read<R>(&self, seen: &mut Contention, mut action: impl FnMut(&T) -> R) -> R {
        self.write(seen, |value| action(value))
    }
    /// Transactions that committed and that were aborted.
    fn transactions(&self) -> (u64, u64) {
        (0, 0)
    }
}

impl<T: Send + 'static, L: RawLock + 'static> Counted<T> for Lock<T, L> {
    fn new(value: T) -> Self {
        Self::new(value)
    }
    #[inline]
    fn write<R>(&self, seen: &mut Contention, mut action: impl FnMut(&mut T) -> R) -> R {
        seen.acquisitions += 1;
        let mut guard = self.try_lock().unwrap_or_else(|| {
            seen.contended += 1;
            self.lock()
        });
        action(&mut guard)
    }
}

impl<T: Send + 'static> Counted<T> for ElidedTtas<T> {
    fn new(value: T) -> Self {
        Self::new(value, Rtm::detect().ok())
    }
    #[inline]
    fn write<R>(&self, seen: &mut Contention, action: impl FnMut(&mut T) -> R) -> R {
        seen.acquisitions += 1;
        seen.contended += u64::from(self.is_locked());
        self.run_mut(action)
    }
    fn transactions(&self) -> (u64, u64) {
        let counts = self.counts();
        (counts.committed, counts.all_aborted())
    }
}

impl<T: Send + 'static> Counted<T> for Mutex<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }
    #[inline]
    fn write<R>(&self, seen: &mut Contention, mut action: impl FnMut(&mut T) -> R) -> R {
        seen.acquisitions += 1;
        let mut guard = match self.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => {
                seen.contended += 1;
                self.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        action(&mut guard)
    }
}

impl<T: Send + 'static> Counted<T> for parking_lot::Mutex<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }
    #[inline]
    fn write<R>(&self, seen: &mut Contention, mut action: impl FnMut(&mut T) -> R) -> R {
        seen.acquisitions += 1;
        let mut guard = self.try_lock().unwrap_or_else(|| {
            seen.contended += 1;
            self.lock()
        });
        action(&mut guard)
    }
}

impl<T: Send + Sync + 'static> Counted<T> for parking_lot::RwLock<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }
    #[inline]
    fn write<R>(&self, seen: &mut Contention, mut action: impl FnMut(&mut T) -> R) -> R {
        seen.acquisitions += 1;
        let mut guard = self.try_write().unwrap_or_else(|| {
            seen.contended += 1;
            self.write()
        });
        action(&mut guard)
    }
    #[inline]
    fn read<R>(&self, seen: &mut Contention, mut action: impl FnMut(&T) -> R) -> R {
        seen.acquisitions += 1;
        let guard = self.try_read().unwrap_or_else(|| {
            seen.contended += 1;
            self.read()
        });
        action(&guard)
    }
}

impl<T: Send + Sync + 'static> Counted<T> for ShardedLock<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }
    #[inline]
    fn write<R>(&self, seen: &mut Contention, mut action: impl FnMut(&mut T) -> R) -> R {
        seen.acquisitions += 1;
        let mut guard = self.try_write().unwrap_or_else(|_| {
            seen.contended += 1;
            self.write().unwrap_or_else(PoisonError::into_inner)
        });
        action(&mut guard)
    }
    #[inline]
    fn read<R>(&self, seen: &mut Contention, mut action: impl FnMut(&T) -> R) -> R {
        seen.acquisitions += 1;
        let guard = self.try_read().unwrap_or_else(|_| {
            seen.contended += 1;
            self.read().unwrap_or_else(PoisonError::into_inner)
        });
        action(&guard)
    }
}

/// Implements [`MeasuredLock`] for locks of nothing.
macro_rules! measured {
    ($([$($of:tt)*] $lock:ty: $exclusive:ident, $shared:ident;)*) => {$(
        impl $($of)* MeasuredLock for $lock {
            fn build() -> Self {
                <$lock>::new(())
            }
            #[inline(always)]
            fn exclusive(&self, mut section: impl FnMut()) {
                let _guard = self.$exclusive();
                section();
            }
            #[inline(always)]
            fn shared(&self, mut section: impl FnMut()) {
                let _guard = self.$shared();
                section();
            }
        }
    )*};
}

measured! {
    [<L: RawLock + 'static>] Lock<(), L>: lock, lock;
    [<L: RawSharedLock + 'static>] SharedLock<(), L>: write, read;
    [] Mutex<()>: lock, lock;
    [] std::sync::RwLock<()>: write, read;
    [] parking_lot::Mutex<()>: lock, lock;
    [] parking_lot::FairMutex<()>: lock, lock;
    [] parking_lot::RwLock<()>: write, read;
    [] ShardedLock<()>: write, read;
}

impl MeasuredLock for ElidedTtas<()> {
    fn build() -> Self {
        Self::new((), Rtm::detect().ok())
    }
    #[inline(always)]
    fn exclusive(&self, mut section: impl FnMut()) {
        self.run_mut(|()| section());
    }
}

/// A map behind a lock that counts contention.
pub(crate) struct Watched<L, S> {
    lock: L,
    /// Acquisitions, and contended ones. A handle adds its counts when it is dropped.
    seen: CachePadded<[AtomicU64; 2]>,
    hasher: PhantomData<fn() -> S>,
}

impl<K, S, L> Table<K> for Watched<L, S>
where
    K: Kind,
    S: BuildHasher + Default + Send + Sync + 'static,
    L: Counted<Map<K, S>>,
{
    type Handle<'t> = WatchedHandle<'t, L, S>;

    fn build(setup: &Setup) -> Self {
        let map = HashMap::with_capacity_and_hasher(setup.capacity, S::default());
        Self {
            lock: L::new(map),
            seen: Default::default(),
            hasher: PhantomData,
        }
    }
    fn handle(&self) -> Self::Handle<'_> {
        WatchedHandle {
            table: self,
            seen: Contention::default(),
        }
    }
    fn size(&self) -> Option<usize> {
        Some(self.lock.read(&mut Contention::default(), |map| map.len()))
    }
    fn contention(&self) -> Option<Contention> {
        // Relaxed: read while no handle exists; the threads' results came through a channel.
        let [acquisitions, contended] = [0, 1].map(|at| self.seen[at].load(Ordering::Relaxed));
        let (elided, aborts) = self.lock.transactions();
        Some(Contention {
            acquisitions,
            contended,
            elided,
            aborts,
        })
    }
}

pub(crate) struct WatchedHandle<'t, L, S> {
    table: &'t Watched<L, S>,
    seen: Contention,
}

impl<L, S> Drop for WatchedHandle<'_, L, S> {
    fn drop(&mut self) {
        let seen = &self.seen;
        let counts = [seen.acquisitions, seen.contended];
        for (sum, count) in self.table.seen.iter().zip(counts) {
            sum.fetch_add(count, Ordering::Relaxed); // Relaxed: see `contention`
        }
    }
}

impl<K: Kind, S: BuildHasher + 'static, L: Counted<Map<K, S>>> Handle<K>
    for WatchedHandle<'_, L, S>
{
    #[inline]
    fn get(&mut self, key: &K::Query) -> Option<u64> {
        self.table
            .lock
            .read(&mut self.seen, |map| map.get(key).map(K::stamp))
    }
    #[inline]
    fn insert(&mut self, key: &K::Query, value: K::Value) -> bool {
        let mut value = Some(value);
        self.table.lock.write(&mut self.seen, |map| {
            let value = value.take().expect("what was rolled back did not take it");
            insert_absent::<K, S>(map, key, value)
        })
    }
    #[inline]
    fn remove(&mut self, key: &K::Query) -> Option<u64> {
        let removed = self.table.lock.write(&mut self.seen, |map| map.remove(key));
        removed.map(|value| K::stamp(&value))
    }
}

/// An entry of a lock for all kinds and hash functions. The lock type lacks its first type
/// parameter.
macro_rules! entry {
    ($name:literal, $about:literal, $version:expr, $settings:expr, [$($lock:tt)*] [$($manner:tt)*]) => {{
        type Of<K, S> = Watched<$($lock)* <Map<K, S> $($manner)*>, S>;
        let mut card = rust($name, $version, concat!("one hashbrown map under one lock: ", $about));
        card.reclamation = "at once; removed values are dropped after the lock is released".into();
        card.guarantees = "linearizable".into();
        card.settings = $settings.into();
        card.adapter = "tries the lock first and counts; spinning locks yield after a while".into();
        Entry::new(card)
            .u64::<Of<U64, Common>>()
            .bytes::<Of<Bytes, Common>>()
            .u64_native::<Of<U64, foldhash::fast::RandomState>>()
            .bytes_native::<Of<Bytes, foldhash::fast::RandomState>>()
            .subject::<LockSubject<$($lock)* <() $($manner)*>>>()
    }};
}

/// An entry of a lock that protects no map.
fn plain<L: MeasuredLock>(name: &str, about: &str, version: &str, settings: &str) -> Entry {
    let mut card = rust(name, version, about);
    card.hasher = "none".into();
    card.reclamation = "none".into();
    card.guarantees = "mutual exclusion".into();
    card.settings = settings.into();
    Entry::new(card).subject::<LockSubject<L>>()
}

/// The tables of the section.
pub(super) fn entries() -> Vec<Entry> {
    let mut entries = spinning();
    entries.extend(sleeping());
    entries.push(elided());
    entries.extend(without_map());
    entries
}

/// Locks of the section `lock` only.
fn without_map() -> Vec<Entry> {
    let parking = format!("parking_lot {}", versions::PARKING_LOT);
    let [ours, std] = [versions::OURS, "std"];
    let distributed = "a flag of each thread for readers; writers look at all";
    vec![
        plain::<Lock<(), TtasBackoff>>("lock:ttas-backoff", "TTAS", ours, "waits longer each time"),
        plain::<Lock<(), Anderson>>("lock:anderson", "Anderson's array lock", ours, "16 slots"),
        plain::<Lock<(), Parking>>("lock:parking", "parking lock", ours, "sleeps after a while"),
        plain::<Lock<(), Adaptive>>("lock:adaptive", "adaptive lock", ours, "TTAS, MCS or sleep"),
        plain::<SharedLock<(), DistributedRw>>(
            "lock:distributed",
            "distributed readers-writer lock",
            ours,
            distributed,
        ),
        plain::<std::sync::RwLock<()>>(
            "lock:std-rwlock",
            "std::sync::RwLock",
            std,
            "readers together",
        ),
        plain::<parking_lot::FairMutex<()>>(
            "lock:parking-fair",
            "parking_lot::FairMutex",
            &parking,
            "hands over in order of arrival",
        ),
    ]
}

/// Locks whose threads spin first.
fn spinning() -> Vec<Entry> {
    vec![
        entry!(
            "lock:tas",
            "test-and-set",
            versions::OURS,
            "swaps until it gets it",
            [Lock] [, Tas]
        ),
        entry!(
            "lock:ttas",
            "test-and-test-and-set",
            versions::OURS,
            "reads until it is free, then swaps",
            [Lock] [, Ttas]
        ),
        entry!(
            "lock:ticket",
            "ticket lock",
            versions::OURS,
            "in order of arrival; sleeps in the end",
            [Lock] [, Ticket]
        ),
        entry!(
            "lock:clh",
            "CLH queue lock",
            versions::OURS,
            "in order of arrival, each waits on its predecessor's line; sleeps in the end",
            [Lock] [, Clh]
        ),
        entry!(
            "lock:mcs",
            "MCS queue lock",
            versions::OURS,
            "in order of arrival, each waits on its own line; sleeps in the end",
            [Lock] [, Mcs]
        ),
    ]
}

/// Locks whose threads sleep after a while.
fn sleeping() -> Vec<Entry> {
    let crossbeam = format!("crossbeam-utils {}", versions::CROSSBEAM);
    let parking = format!("parking_lot {}", versions::PARKING_LOT);
    vec![
        entry!(
            "lock:std-mutex",
            "std::sync::Mutex",
            "std",
            "sleeps in the kernel after a while",
            [Mutex] []
        ),
        entry!(
            "lock:parking-mutex",
            "parking_lot::Mutex",
            &parking,
            "sleeps after a while",
            [parking_lot::Mutex] []
        ),
        entry!(
            "lock:parking-rwlock",
            "parking_lot::RwLock",
            &parking,
            "readers together",
            [parking_lot::RwLock] []
        ),
        entry!(
            "lock:sharded-rwlock",
            "crossbeam ShardedLock",
            &crossbeam,
            "readers of different threads on different lines",
            [ShardedLock] []
        ),
    ]
}

fn elided() -> Entry {
    let elision = match Rtm::detect() {
        Ok(_) => "RTM: five transactions, begun while the lock is free, then the lock",
        Err(_) => "no usable RTM on this machine: a TTAS lock in fact",
    };
    entry!(
        "lock:elided-ttas",
        "TTAS lock, elided by hardware transactions",
        versions::OURS,
        elision,
        [ElidedTtas] []
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four threads increment a number: no increment is lost.
    fn hammer<L: Counted<u64>>() -> Contention {
        let lock = L::new(0);
        let seen: Vec<Contention> = std::thread::scope(|scope| {
            let count = || {
                let mut seen = Contention::default();
                for _ in 0..50_000 {
                    lock.write(&mut seen, |value| *value += 1);
                }
                seen
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .collect()
        });
        assert_eq!(
            lock.read(&mut Contention::default(), |value| *value),
            200_000
        );
        let sum = |of: fn(&Contention) -> u64| seen.iter().map(of).sum();
        let (elided, aborts) = lock.transactions();
        let all = Contention {
            acquisitions: sum(|s| s.acquisitions),
            contended: sum(|s| s.contended),
            elided,
            aborts,
        };
        assert_eq!(all.acquisitions, 200_000);
        all
    }

    #[test]
    fn every_lock_excludes() {
        for seen in [
            hammer::<Lock<u64, Tas>>(),
            hammer::<Lock<u64, Ttas>>(),
            hammer::<Lock<u64, Ticket>>(),
            hammer::<Lock<u64, Mcs>>(),
            hammer::<Lock<u64, Clh>>(),
            hammer::<Mutex<u64>>(),
            hammer::<parking_lot::Mutex<u64>>(),
            hammer::<parking_lot::RwLock<u64>>(),
            hammer::<ShardedLock<u64>>(),
        ] {
            assert_eq!((seen.elided, seen.aborts), (0, 0));
            assert!(seen.contended <= seen.acquisitions);
        }
    }

    #[test]
    fn elision_happens_where_it_can_and_excludes_in_any_case() {
        let seen = hammer::<ElidedTtas<u64>>();
        match Rtm::detect() {
            Ok(_) => assert!(seen.elided + seen.aborts > 0, "{seen:?}"),
            Err(_) => assert_eq!((seen.elided, seen.aborts), (0, 0)),
        }
    }
}
