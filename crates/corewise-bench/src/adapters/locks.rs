//! The synchronisation section (\[CHTBench\] §3.4.7 and chapter 4): one hashbrown map under one
//! lock of each kind, with contention counts.
//!
//! Each acquisition begins with a try, so that a lock that is taken is counted. Each thread keeps
//! its counts until its handle is dropped. All spinning locks yield after a while, since a waiting
//! thread may have displaced the holder from its CPU.

use std::cell::UnsafeCell;
use std::hash::BuildHasher;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use crossbeam_utils::CachePadded;
use crossbeam_utils::sync::ShardedLock;
use hashbrown::HashMap;

use crate::adapters::global::Map;
use crate::adapters::hashbrown::insert_absent;
use crate::adapters::rtm::{CONFLICT, EXPLICIT, RETRY, Rtm, STARTED};
use crate::adapters::{rust, versions};
use crate::dyn_table::Entry;
use crate::hash::Common;
use crate::table::{Bytes, Contention, Handle, Kind, Setup, Table, U64};

/// Spins on a taken lock before the thread yields.
const SPINS: u32 = 200;
/// Transactions that are tried before the lock is taken (\[CHTBench\] chapter 4).
const TRIES: u32 = 5;

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
}

/// Spins for a while, then yields.
#[inline]
fn relax(spins: &mut u32) {
    *spins += 1;
    if *spins < SPINS {
        std::hint::spin_loop();
    } else {
        *spins = 0;
        std::thread::yield_now();
    }
}

/// One-word spin locks; the elided one tries transactions first.
pub(crate) struct Spin<T, M> {
    taken: CachePadded<AtomicBool>,
    rtm: Option<Rtm>,
    value: UnsafeCell<T>,
    manner: PhantomData<fn() -> M>,
}

// SAFETY: only the thread that set `taken` reaches the value, or a transaction that has read
// `taken` as clear; it commits only if `taken` is still clear and no other thread touched what it
// touched.
unsafe impl<T: Send, M> Sync for Spin<T, M> {}

/// The waiting policy of a spin lock.
pub(crate) trait SpinPolicy: 'static {
    /// Whether it reads before it swaps.
    const TESTS: bool;
    /// Whether it tries transactions.
    const ELIDES: bool;
}
pub(crate) enum Tas {}
pub(crate) enum Ttas {}
pub(crate) enum Elided {}
impl SpinPolicy for Tas {
    const TESTS: bool = false;
    const ELIDES: bool = false;
}
impl SpinPolicy for Ttas {
    const TESTS: bool = true;
    const ELIDES: bool = false;
}
impl SpinPolicy for Elided {
    const TESTS: bool = true;
    const ELIDES: bool = true;
}

impl<T, M: SpinPolicy> Spin<T, M> {
    #[inline]
    fn is_taken(&self) -> bool {
        // Relaxed: only a hint, or inside a transaction, which orders by itself.
        self.taken.load(Ordering::Relaxed)
    }

    #[inline]
    fn try_take(&self) -> bool {
        // Acquire: pairs with the Release in `locked`, so the last holder's writes are seen.
        if M::TESTS && self.is_taken() {
            return false;
        }
        !self.taken.swap(true, Ordering::Acquire)
    }

    #[inline]
    fn locked<R>(&self, seen: &mut Contention, action: &mut impl FnMut(&mut T) -> R) -> R {
        if !self.try_take() {
            seen.contended += 1;
            let mut spins = 0;
            while !self.try_take() {
                relax(&mut spins);
            }
        }
        // SAFETY: this thread set `taken`, and no other thread gets here until it is cleared.
        let result = action(unsafe { &mut *self.value.get() });
        // Release: pairs with the Acquire in `try_take`.
        self.taken.store(false, Ordering::Release);
        result
    }

    /// Runs `action` once as a transaction, without the lock. The lock word is in the transaction's
    /// read set, so a thread that takes the lock aborts the transaction. It begins only while the
    /// lock is free: behind a taken lock it would abort and take the lock too, and all others after
    /// it (the lemming effect).
    #[inline]
    fn elide<R>(&self, rtm: Rtm, action: &mut impl FnMut(&mut T) -> R) -> Result<R, u32> {
        let mut spins = 0;
        while self.is_taken() {
            relax(&mut spins);
        }
        let status = rtm.begin();
        if status != STARTED {
            return Err(status);
        }
        if self.is_taken() {
            rtm.abort();
        }
        // SAFETY: the transaction has exclusive access to the value or has no effect, see `Sync`
        // above.
        let result = action(unsafe { &mut *self.value.get() });
        rtm.end();
        Ok(result)
    }
}

impl<T: Send + 'static, M: SpinPolicy> Counted<T> for Spin<T, M> {
    fn new(value: T) -> Self {
        let rtm = if M::ELIDES { Rtm::detect() } else { None };
        let taken = CachePadded::new(AtomicBool::new(false));
        Self {
            taken,
            rtm,
            value: UnsafeCell::new(value),
            manner: PhantomData,
        }
    }

    #[inline]
    fn write<R>(&self, seen: &mut Contention, mut action: impl FnMut(&mut T) -> R) -> R {
        seen.acquisitions += 1;
        if let Some(rtm) = self.rtm {
            seen.contended += u64::from(self.is_taken());
            for _ in 0..TRIES {
                match self.elide(rtm, &mut action) {
                    Ok(result) => {
                        seen.elided += 1;
                        return result;
                    }
                    Err(status) => {
                        seen.aborts += 1;
                        if status & (EXPLICIT | RETRY | CONFLICT) == 0 {
                            break; // too large, or never possible
                        }
                    }
                }
            }
        }
        self.locked(seen, &mut action)
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

/// The ticket lock of spin.
type Ticket<T> = spin::mutex::TicketMutex<T, spin::relax::Yield>;

impl<T: Send + 'static> Counted<T> for Ticket<T> {
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

/// The MCS lock of mcslock.
type Mcs<T> = mcslock::raw::yields::Mutex<T>;

impl<T: Send + 'static> Counted<T> for Mcs<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }
    #[inline]
    fn write<R>(&self, seen: &mut Contention, mut action: impl FnMut(&mut T) -> R) -> R {
        seen.acquisitions += 1;
        let tried = self.try_lock_then(|value| value.map(&mut action));
        tried.unwrap_or_else(|| {
            seen.contended += 1;
            self.lock_then(action)
        })
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

/// A map behind a lock that counts contention.
pub(crate) struct Watched<L, S> {
    lock: L,
    /// Acquisitions, contended, elided, aborts. A handle adds its counts when it is dropped.
    seen: CachePadded<[AtomicU64; 4]>,
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
        let [acquisitions, contended, elided, aborts] =
            [0, 1, 2, 3].map(|at| self.seen[at].load(Ordering::Relaxed));
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
        let counts = [seen.acquisitions, seen.contended, seen.elided, seen.aborts];
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
    }};
}

/// The tables of the section.
pub(super) fn entries() -> Vec<Entry> {
    let mut entries = spinning();
    entries.extend(sleeping());
    entries.push(elided());
    entries
}

/// Locks whose threads only spin.
fn spinning() -> Vec<Entry> {
    let ours = "ours";
    vec![
        entry!(
            "lock:tas",
            "test-and-set",
            ours,
            "swaps until it gets it",
            [Spin] [, Tas]
        ),
        entry!(
            "lock:ttas",
            "test-and-test-and-set",
            ours,
            "reads until it is free, then swaps",
            [Spin] [, Ttas]
        ),
        entry!(
            "lock:ticket",
            "ticket lock",
            &format!("spin {}", versions::SPIN),
            "in order of arrival",
            [Ticket] []
        ),
        entry!(
            "lock:mcs",
            "MCS queue lock",
            &format!("mcslock {}", versions::MCSLOCK),
            "in order of arrival, each waits on a line of its own",
            [Mcs] []
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
        Some(_) => "RTM: five transactions, begun while the lock is free, then the lock",
        None => "no usable RTM on this machine: a TTAS lock in fact",
    };
    entry!(
        "lock:elided-ttas",
        "TTAS lock, elided by hardware transactions",
        "ours",
        elision,
        [Spin] [, Elided]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let all = Contention {
            acquisitions: sum(|s| s.acquisitions),
            contended: sum(|s| s.contended),
            elided: sum(|s| s.elided),
            aborts: sum(|s| s.aborts),
        };
        assert_eq!(all.acquisitions, 200_000);
        all
    }

    #[test]
    fn every_lock_excludes() {
        for seen in [
            hammer::<Spin<u64, Tas>>(),
            hammer::<Spin<u64, Ttas>>(),
            hammer::<Ticket<u64>>(),
            hammer::<Mcs<u64>>(),
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
        let seen = hammer::<Spin<u64, Elided>>();
        match Rtm::detect() {
            // Some machines advertise transactions but abort all of them.
            Some(_) => assert!(seen.elided + seen.aborts > 0, "{seen:?}"),
            None => assert_eq!((seen.elided, seen.aborts), (0, 0)),
        }
    }
}
