//! The synchronisation section (\[CHTBench\] §3.4.7 and chapter 4): one hashbrown map under one
//! lock of each kind, with contention counts.
//!
//! Each acquisition begins with a try, so that a lock that is taken is counted. Each thread keeps
//! its counts until its handle is dropped. The spinning locks and the elided one are those of
//! `corewise-locks`. They yield after a while, since a waiting thread may have displaced the holder
//! from its CPU; those in order of arrival then sleep.

use std::sync::{Mutex, PoisonError};

use corewise_locks::elide::{Elided, Retry, Rtm};
use corewise_locks::{
    Adaptive, Anderson, Clh, DistributedRw, Lock, Mcs, Parking, RawLock, RawSharedLock, SharedLock,
    Tas, Ticket, Ttas, TtasBackoff,
};
use crossbeam_utils::sync::ShardedLock;

use crate::adapters::elided::{elides, transactions};
use crate::adapters::global::{Global, Lock as GlobalLock, locks};
use crate::adapters::hashbrown::Map;
use crate::adapters::{listed, with_makers};
use crate::entry::Entry;
use crate::subject::{LockSubject, MeasuredLock};
use crate::table::{Bytes, Contention, U64};

/// A test-and-test-and-set lock whose sections are tried as transactions first (\[CHTBench\]
/// chapter 4).
type ElidedTtas<T> = Elided<T, Ttas, Retry<5>>;

locks! {
    [T: Send + 'static, L: RawLock + 'static] Lock<T, L>, Self::new, true;
    write(lock) lock.try_lock(), lock.lock();

    [T: Send + 'static] Mutex<T>, Self::new, true;
    write(lock) lock.try_lock().ok(), lock.lock().unwrap_or_else(PoisonError::into_inner);

    [T: Send + 'static] parking_lot::Mutex<T>, Self::new, true;
    write(lock) lock.try_lock(), lock.lock();

    [T: Send + Sync + 'static] parking_lot::RwLock<T>, Self::new, true;
    write(lock) lock.try_write(), lock.write();
    read(lock) lock.try_read(), lock.read();

    [T: Send + Sync + 'static] ShardedLock<T>, Self::new, true;
    write(lock) lock.try_write().ok(), lock.write().unwrap_or_else(PoisonError::into_inner);
    read(lock) lock.try_read().ok(), lock.read().unwrap_or_else(PoisonError::into_inner);
}

impl<T: Send + 'static> GlobalLock<T> for ElidedTtas<T> {
    const COUNTS: bool = true;
    fn new(value: T) -> Self {
        Self::new(value, Rtm::detect().ok())
    }
    #[inline]
    fn write<R>(&self, seen: &mut Contention, action: impl FnMut(&mut T) -> R) -> R {
        seen.acquisitions += 1;
        seen.contended += u64::from(self.is_locked());
        self.run_mut(action)
    }
    fn transactions(&self) -> Contention {
        transactions(&self.counts())
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
    fn contention(&self) -> Option<Contention> {
        Some(transactions(&self.counts()))
    }
}

/// An entry of a lock: a map behind it, with all kinds of keys, and the lock alone. The lock type
/// lacks its first type parameter.
macro_rules! entry {
    ($name:literal, [$($lock:tt)*] [$($manner:tt)*]) => {{
        type Of<K> = Global<$($lock)* <Map<K> $($manner)*>>;
        with_makers!(listed($name), Of)
            .subject::<LockSubject<$($lock)* <() $($manner)*>>>()
    }};
}

/// An entry of a lock that protects no map.
fn plain<L: MeasuredLock>(name: &str) -> Entry {
    listed(name).subject::<LockSubject<L>>()
}

pub(super) fn entries() -> Vec<Entry> {
    vec![
        entry!("lock:tas", [Lock] [, Tas]),
        entry!("lock:ttas", [Lock] [, Ttas]),
        entry!("lock:ticket", [Lock] [, Ticket]),
        entry!("lock:clh", [Lock] [, Clh]),
        entry!("lock:mcs", [Lock] [, Mcs]),
        entry!("lock:std-mutex", [Mutex] []),
        entry!("lock:parking-mutex", [parking_lot::Mutex] []),
        entry!("lock:parking-rwlock", [parking_lot::RwLock] []),
        entry!("lock:sharded-rwlock", [ShardedLock] []),
        elides(entry!("lock:elided-ttas", [ElidedTtas] [])),
        plain::<Lock<(), TtasBackoff>>("lock:ttas-backoff"),
        plain::<Lock<(), Anderson>>("lock:anderson"),
        plain::<Lock<(), Parking>>("lock:parking"),
        plain::<Lock<(), Adaptive>>("lock:adaptive"),
        plain::<SharedLock<(), DistributedRw>>("lock:distributed"),
        plain::<std::sync::RwLock<()>>("lock:std-rwlock"),
        plain::<parking_lot::FairMutex<()>>("lock:parking-fair"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four threads increment a number: no increment is lost.
    fn hammer<L: GlobalLock<u64>>() -> Contention {
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
        let all = Contention {
            acquisitions: sum(|s| s.acquisitions),
            contended: sum(|s| s.contended),
            ..lock.transactions()
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
        // Those of the threads, and the one that read the number.
        assert_eq!(seen.elided + seen.fallbacks, 200_001);
    }
}
