//! The map: its tables, and how they are resized and freed.

use std::hash::BuildHasher;
use std::marker::PhantomData;
use std::mem;
use std::ptr::{self, NonNull};

use corewise_atomic::lock::{Mutex, MutexGuard};
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicBool, AtomicPtr};
use corewise_atomic::{Backoff, mutant};
use corewise_rcu::{Cookie, Domain, Guard, OwnedGuard, Section};

use super::memory_budget::MemoryBudget;
use super::{
    Builder, CopyMapRef, NoMemory, Put, ResizeStep, Table, TableVersion, Unlimited, grows_by,
};
use crate::counts::EntryCounts;
use crate::relativistic::{DefaultHasher, ResizeError};

/// Share multiplier for callers that only resize.
const LARGE: usize = 32;

/// Under `corewise_stress` resizes take as long as possible.
const fn share<T: Table>() -> usize {
    if cfg!(corewise_stress) { 1 } else { T::SHARE }
}

/// A concurrent hash map of `Copy` keys and values, which lie in its table and are returned as
/// copies.
///
/// Use it through the aliases of its tables, whose modules give the costs of lookups and updates:
///
/// | keys and values | alias |
/// |---|---|
/// | a [`Word`](crate::Word) each | [`clht::LockBased`](crate::clht::LockBased) |
/// | any, 32 bytes together; many entries or little memory | [`cuckoo::CuckooMap`](crate::cuckoo::CuckooMap) |
/// | values of any type | [`RelativisticMap`](crate::RelativisticMap), another map |
///
/// The map itself has the operations that are used most. A handle, which [`pin`](Self::pin) makes,
/// has all of them, and is cheaper for several in a row: see [`CopyMapRef`], and the
/// [module](super) for the guarantees of all tables.
///
/// ```
/// use corewise_maps::clht::LockBased;
///
/// let squares = LockBased::new();
/// std::thread::scope(|scope| {
///     for thread in 0..4u64 {
///         let squares = &squares;
///         scope.spawn(move || {
///             for n in (thread..1_000).step_by(4) {
///                 squares.insert(n, n * n);
///             }
///         });
///     }
/// });
/// assert_eq!(squares.get(&30), Some(900));
/// assert_eq!(squares.len(), 1_000);
/// ```
pub struct CopyMap<T, S = DefaultHasher, L = Unlimited> {
    current: AtomicPtr<TableVersion<T>>,
    /// Whether `retired` is non-empty. Next to `current`, since every update reads both.
    has_retired: AtomicBool,
    automatic: AtomicBool,
    max_buckets: usize,
    hasher: S,
    domain: Domain,
    budget: Arc<MemoryBudget>,
    counts: EntryCounts,
    /// Held by the thread that begins a resize.
    resizing: Mutex<()>,
    /// Tables that no thread can find any more, the oldest first.
    retired: Mutex<Vec<RetiredTable<T>>>,
    _owned: PhantomData<Box<TableVersion<T>>>,
    _limit: PhantomData<fn() -> L>,
}

/// The lock `resizing` of a map.
type Alone<'m> = MutexGuard<'m, ()>;

/// A table that was replaced and is no longer in a map.
struct RetiredTable<T> {
    version: NonNull<TableVersion<T>>,
    /// No thread has the table when this grace period is over.
    after: Cookie,
    /// Bytes of its arrays that are already freed.
    freed: usize,
}

// SAFETY: it owns the table, and accesses its entries only when no other thread has it any more.
unsafe impl<T: Send> Send for RetiredTable<T> {}

impl<T> Drop for RetiredTable<T> {
    fn drop(&mut self) {
        // SAFETY: made from a box, and dropped after a grace period or with the map.
        drop(unsafe { Box::from_raw(self.version.as_ptr()) });
    }
}

// Bounds of the methods, not of the block: so the compiler shows the message of the trait that keys
// or values lack.
impl<T> CopyMap<T> {
    /// Makes an empty map, which grows.
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let map = LockBased::new();
    /// assert_eq!(map.pin().insert(1, 2), None);
    /// ```
    pub fn new() -> Self
    where
        T: Table,
    {
        Self::builder().build()
    }

    /// Makes an empty map with room for `entries` before it grows.
    ///
    /// # Panics
    ///
    /// As [`Builder::build`].
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let map = LockBased::with_capacity(1_000);
    /// assert!(map.buckets() >= 1_000 / 3);
    /// assert_eq!(map.pin().insert(1, 2), None);
    /// ```
    pub fn with_capacity(entries: usize) -> Self
    where
        T: Table,
    {
        Self::builder().capacity(entries).build()
    }

    /// Makes an empty map with this number of buckets, rounded up to a power of two.
    ///
    /// # Panics
    ///
    /// As [`Builder::build`].
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let map = LockBased::<u64, u64>::with_buckets(100);
    /// assert_eq!(map.buckets(), 128);
    /// ```
    pub fn with_buckets(buckets: usize) -> Self
    where
        T: Table,
    {
        Self::builder().buckets(buckets).build()
    }

    /// Starts a builder for other settings.
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let map = LockBased::builder().buckets(64).automatic_resize(false).build();
    /// assert_eq!(map.pin().insert(1, 2), None);
    /// ```
    pub fn builder() -> Builder<T>
    where
        T: Table,
    {
        Builder::new()
    }
}

impl<T: Table, S> CopyMap<T, S> {
    /// Makes an empty map with this hasher.
    ///
    /// ```
    /// use std::hash::RandomState;
    /// let map = corewise_maps::clht::LockBased::with_hasher(RandomState::new());
    /// assert_eq!(map.pin().insert(1, 2), None);
    /// ```
    pub fn with_hasher(hasher: S) -> Self {
        CopyMap::<T>::builder().hasher(hasher).build()
    }

    /// Makes an empty map with this hasher and room for `entries` before it grows.
    ///
    /// ```
    /// use std::hash::RandomState;
    /// # use corewise_maps::clht::LockBased;
    /// let map = LockBased::with_capacity_and_hasher(1_000, RandomState::new());
    /// let buckets = map.buckets();
    /// (0..1_000).for_each(|key| assert_eq!(map.pin().insert(key, key), None));
    /// # if !cfg!(corewise_stress) {
    /// assert_eq!(map.buckets(), buckets);
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// As [`Builder::build`].
    pub fn with_capacity_and_hasher(entries: usize, hasher: S) -> Self {
        let builder = CopyMap::<T>::builder().capacity(entries);
        builder.hasher(hasher).build()
    }
}

impl<T: Table, S, L> CopyMap<T, S, L> {
    /// Makes a map of an empty table.
    pub(super) fn of(
        version: Box<TableVersion<T>>,
        budget: Arc<MemoryBudget>,
        domain: Domain,
        (hasher, automatic, max_buckets): (S, bool, usize),
    ) -> Self {
        CopyMap {
            current: AtomicPtr::new(Box::into_raw(version)),
            has_retired: AtomicBool::new(false),
            automatic: AtomicBool::new(automatic),
            max_buckets,
            hasher,
            domain,
            budget,
            counts: EntryCounts::new(),
            resizing: Mutex::new(()),
            retired: Mutex::new(Vec::new()),
            _owned: PhantomData,
            _limit: PhantomData,
        }
    }

    /// A builder for an empty map with the settings of this one, except for the byte limit.
    pub(super) fn builder_of_copy(&self) -> Builder<T, S>
    where
        S: Clone,
    {
        let builder = CopyMap::<T>::builder().max_buckets(self.max_buckets);
        let builder = builder.domain(self.domain.clone());
        // Relaxed: a setting that publishes nothing.
        let is_automatic = self.automatic.load(Relaxed);
        let builder = if is_automatic {
            builder.capacity(self.len())
        } else {
            builder.buckets(self.buckets())
        };
        builder
            .automatic_resize(is_automatic)
            .hasher(self.hasher.clone())
    }

    /// Enters a read-side critical section and returns a handle, for one operation or a few.
    /// Wait-free.
    ///
    /// While the handle lives, tables that are replaced are not freed.
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let map = LockBased::from([(1, 2)]);
    /// let handle = map.pin();
    /// assert_eq!((handle.get(&1), handle.len()), (Some(2), 1));
    /// ```
    #[inline]
    pub fn pin(&self) -> CopyMapRef<'_, T, S, Guard<'_>, L> {
        CopyMapRef::of(self, self.domain.pin())
    }

    /// As [`pin`](Self::pin), with a handle that may be sent to another thread, and held over an
    /// `.await`. It costs more; see [`Domain::pin_owned`].
    ///
    /// The thread must not call [`settle`](Self::settle) or [`resize_to`](Self::resize_to) while it
    /// holds such a handle: they might wait for it for ever.
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let map = LockBased::from([(1, 2)]);
    /// let handle = map.pin_owned();
    /// std::thread::scope(|scope| {
    ///     scope.spawn(move || assert_eq!(handle.update(&1, |n| n + 1), Some(3)));
    /// });
    /// ```
    pub fn pin_owned(&self) -> CopyMapRef<'_, T, S, OwnedGuard<'_>, L> {
        CopyMapRef::of(self, self.domain.pin_owned())
    }

    /// Returns a handle in a section that the caller already has.
    ///
    /// # Panics
    ///
    /// If the section is not one of this map's domain.
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let (ages, towns) = (LockBased::from([('a', 36)]), LockBased::from([('a', 7)]));
    /// let guard = corewise_rcu::pin();
    /// assert_eq!(ages.within(&guard).get(&'a'), Some(36));
    /// assert_eq!(towns.within(&guard).get(&'a'), Some(7));
    /// ```
    #[inline]
    pub fn within<'g, G: Section>(&'g self, section: &'g G) -> CopyMapRef<'g, T, S, &'g G, L> {
        let ours = section.domain_id() == self.domain.id();
        assert!(ours, "the section is one of another domain");
        CopyMapRef::of(self, section)
    }

    /// Sets whether the map grows by itself from now on; see [`Builder::automatic_resize`].
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let map = LockBased::with_buckets(1);
    /// map.set_automatic_resize(false);
    /// (0..100).for_each(|key| assert_eq!(map.pin().insert(key, key), None));
    /// assert_eq!(map.buckets(), 1);
    /// ```
    pub fn set_automatic_resize(&self, automatic: bool) {
        // Relaxed: a setting that publishes nothing; also in `grow`.
        self.automatic.store(automatic, Relaxed);
    }

    /// The domain whose sections protect readers.
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let map = LockBased::<u64, u64>::new();
    /// assert_eq!(map.domain().id(), corewise_rcu::Domain::global().id());
    /// ```
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// The hasher.
    ///
    /// ```
    /// use std::hash::{BuildHasher, RandomState};
    /// # use corewise_maps::clht::LockBased;
    /// let map = LockBased::<u64, u64, _>::with_hasher(RandomState::new());
    /// assert_eq!(map.hasher().hash_one(7), map.hasher().hash_one(7));
    /// ```
    pub fn hasher(&self) -> &S {
        &self.hasher
    }

    /// The number of entries; updates in progress may or may not be counted. Constant time.
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let map = LockBased::from([(1, 2), (3, 4)]);
    /// assert_eq!(map.len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        self.counts.sum()
    }

    #[inline]
    pub(super) fn count(&self, section: &impl Section, by: isize) {
        self.counts.add(section, by);
    }

    /// Whether the map is empty, as counted by [`CopyMap::len`].
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// assert!(LockBased::<u64, u64>::new().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of buckets; during a resize, that of the old table.
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// assert_eq!(LockBased::<u64, u64>::with_buckets(64).buckets(), 64);
    /// ```
    pub fn buckets(&self) -> usize {
        self.pin().version().table().buckets()
    }

    /// Bytes of buckets: of the tables in use, of replaced tables that wait for readers, and of
    /// overflow buckets.
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// // A bucket is a cache line.
    /// assert_eq!(LockBased::<u64, u64>::with_buckets(64).bytes(), 64 * 64);
    /// ```
    pub fn bytes(&self) -> usize {
        self.budget.used()
    }

    /// Frees a share of the oldest replaced table, if no reader has it any more; returns false if
    /// there is nothing to free, or another thread is freeing.
    #[inline]
    pub(super) fn reap(&self) -> bool {
        // Relaxed: a hint; the lock orders the rest.
        self.has_retired.load(Relaxed) && self.reap_share()
    }

    #[cold]
    fn reap_share(&self) -> bool {
        let Some(mut retired) = self.retired.try_lock() else {
            return false;
        };
        // `poll_quietly`, because the callback for a stall may use the map.
        let is_over = |table: &RetiredTable<T>| {
            self.domain.poll_quietly(table.after) || mutant!("clht_frees_at_once")
        };
        if !retired.first().is_some_and(is_over) {
            return false;
        }
        let mut oldest = retired.remove(0);
        // Relaxed: written under the lock; see `reap`.
        self.has_retired.store(!retired.is_empty(), Relaxed);
        // Unlocked, so no thread waits for the lock or finds this table while a share is freed.
        drop(retired);
        // SAFETY: a grace period has passed since the table was reachable, and it is no longer in
        // the list.
        let freed = unsafe { oldest.version.as_mut().free_share(oldest.freed) };
        if let Some(freed) = freed {
            oldest.freed = freed;
            self.retire(oldest, 0);
        }
        true
    }

    /// The current table, or the one that is `after` tables later, if there is one.
    pub(super) fn table_version(&mut self, after: usize) -> Option<&TableVersion<T>> {
        // Relaxed: we have the map exclusively.
        // SAFETY: we also have its tables exclusively, and the map keeps them alive.
        let mut version = unsafe { self.current.load(Relaxed).as_ref() };
        for _ in 0..after {
            version = version?.next();
        }
        version
    }

    /// Inserts a table that is no longer reachable into the list, at index `at`.
    fn retire(&self, table: RetiredTable<T>, at: usize) {
        let mut retired = self.retired.lock();
        let at = at.min(retired.len());
        retired.insert(at, table);
        // Relaxed: written under the lock; see `reap`.
        self.has_retired.store(true, Relaxed);
    }

    /// Makes the successor, which has all entries, the current table.
    ///
    /// # Safety
    ///
    /// 1. `old` is the current table of this map, and one of its methods has just returned
    ///    [`ResizeStep::Last`] to the caller.
    unsafe fn finish(&self, old: &TableVersion<T>) {
        // Load the pointer that the table was made with, since the table is freed through it.
        // Relaxed: no other thread changes it, since we have counted the last group, by 1.
        let version = NonNull::new(self.current.load(Relaxed)).expect("there is a table");
        debug_assert_eq!(version.as_ptr().cast_const(), ptr::from_ref(old));
        // Release: pairs with the Acquire in `version`. We have counted the last group, so every
        // group was moved before.
        self.current.store(old.next_ptr(), Release);
        // From here on the old table is unreachable, and only sections that run now can have it.
        let table = RetiredTable {
            version,
            after: self.domain.start_poll(),
            freed: 0,
        };
        self.retire(table, usize::MAX);
    }
}

impl<T: Table, S: BuildHasher, L> CopyMap<T, S, L> {
    #[inline(always)]
    pub(super) fn hash(&self, key: &T::Key) -> u64 {
        self.hasher.hash_one(key)
    }

    #[inline(always)]
    pub(super) fn hash_of(&self) -> impl Fn(&T::Key) -> u64 {
        |key| self.hash(key)
    }

    /// Resizes to this number of buckets, rounded up to a power of two, and waits until all entries
    /// are moved; this includes waiting for updates and other resizes. Lookups and updates continue
    /// meanwhile. Then waits for readers, to free the old table, unless the caller is in a section
    /// itself.
    ///
    /// A map that grows by itself may resize again afterwards.
    ///
    /// If the new table has fewer buckets, or the map has a byte limit, all entries are first
    /// hashed and copied once more, to make sure of the memory for overflow buckets.
    ///
    /// # Errors
    ///
    /// [`ResizeError::NoBuckets`], or [`ResizeError::NoMemory`], also for more than
    /// [`Builder::max_buckets`]. After an error the map is as before, with one exception: if other
    /// threads inserted during the resize and the memory ran out for their entries, some entries
    /// are in the old table and some in the new one. Updates and the next call then continue as
    /// soon as removals make room.
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let map: LockBased<u64, u64> = (0..100).map(|n| (n, n)).collect();
    /// map.resize_to(1_024).unwrap();
    /// assert_eq!((map.buckets(), map.len()), (1_024, 100));
    /// ```
    pub fn resize_to(&self, buckets: usize) -> Result<(), ResizeError> {
        if buckets == 0 {
            return Err(ResizeError::NoBuckets);
        }
        let alone = self.resizing.lock();
        self.resize_locked(buckets, &alone)?;
        drop(alone);
        self.settle();
        Ok(())
    }

    /// Makes room for `additional` entries: afterwards the table has the buckets that
    /// [`with_capacity`](CopyMap::with_capacity) would give it. Never waits for readers; waits for
    /// a resize in progress, and otherwise takes the time of one.
    ///
    /// # Errors
    ///
    /// As [`resize_to`](Self::resize_to).
    ///
    /// ```
    /// # use corewise_maps::cuckoo::CuckooMap;
    /// let map = CuckooMap::new();
    /// map.reserve(10_000).unwrap();
    /// let buckets = map.buckets();
    /// (0..10_000u64).for_each(|key| assert_eq!(map.pin().insert(key, key), None));
    /// # if !cfg!(corewise_stress) {
    /// assert_eq!(map.buckets(), buckets);
    /// # }
    /// ```
    pub fn reserve(&self, additional: usize) -> Result<(), ResizeError> {
        let entries = self.len().checked_add(additional);
        let buckets = T::buckets_for(entries.ok_or(ResizeError::NoMemory)?);
        // Checked without the lock first: usually there is room.
        if buckets <= self.buckets() {
            return Ok(());
        }
        let alone = self.resizing.lock();
        self.complete()?;
        self.resize_locked(buckets.max(self.buckets()), &alone)
    }

    /// [`resize_to`](Self::resize_to), with the lock `resizing` held, without waiting for readers.
    fn resize_locked(&self, buckets: usize, alone: &Alone<'_>) -> Result<(), ResizeError> {
        let buckets = buckets.checked_next_power_of_two();
        let buckets = buckets.filter(|buckets| *buckets <= self.max_buckets);
        let buckets = buckets.ok_or(ResizeError::NoMemory)?;
        loop {
            match self.resize_alone(buckets, alone) {
                // Freeing replaced tables may give enough memory.
                Err(ResizeError::NoMemory) if self.reap() => while self.reap() {},
                answer => return answer,
            }
        }
    }

    /// One attempt of [`resize_locked`](Self::resize_locked).
    fn resize_alone(&self, buckets: usize, alone: &Alone<'_>) -> Result<(), ResizeError> {
        self.complete()?;
        let before = self.buckets();
        if before == buckets {
            return Ok(());
        }
        let mut next = T::try_new(buckets, &self.budget).ok_or(ResizeError::NoMemory)?;
        if buckets < before || self.budget.is_limited() {
            self.rehearse(&mut next)?;
        }
        self.begin(next, alone);
        self.complete()
    }

    /// Makes sure that a table has the memory for its overflow buckets. No other thread knows the
    /// table yet.
    fn rehearse(&self, next: &mut T) -> Result<(), ResizeError> {
        let groups = self.buckets().min(next.buckets());
        for first in (0..groups).step_by(share::<T>() * LARGE) {
            let these = first..groups.min(first + share::<T>() * LARGE);
            let handle = self.pin();
            let rehearsed = handle.version().rehearse(next, these, &self.hash_of());
            rehearsed.map_err(|_| ResizeError::NoMemory)?;
        }
        // SAFETY: the new table is borrowed exclusively, so no other thread can reach its entries
        // (1).
        (0..next.buckets()).for_each(|bucket| unsafe { next.wipe(bucket) });
        Ok(())
    }

    /// Waits for readers and frees the replaced tables, unless the caller is in a section itself.
    /// (Otherwise later updates free them.)
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let map: LockBased<u64, u64> = (0..1_000).map(|n| (n, n)).collect();
    /// map.settle();
    /// assert_eq!(map.len(), 1_000);
    /// ```
    pub fn settle(&self) {
        if mutant!("clht_frees_at_once") || self.domain.try_synchronize().is_ok() {
            while self.reap() {}
        }
    }

    /// Makes the table to grow to, if there is memory.
    fn larger_table(&self, table: &T) -> Option<T> {
        let buckets = table.buckets();
        let most = buckets.saturating_mul(grows_by(table));
        let large = if most <= self.max_buckets && !self.budget.is_limited() {
            T::try_new(most, &self.budget)
        } else {
            None
        };
        large.or_else(|| T::try_new(buckets * 2, &self.budget))
    }

    /// Begins a resize to an empty table, with the lock `resizing` held.
    ///
    /// # Panics
    ///
    /// If a resize is in progress.
    fn begin(&self, next: T, _alone: &Alone<'_>) {
        let handle = self.pin();
        let version = handle.version();
        assert!(version.next().is_none(), "a resize is in progress");
        let next = NonNull::from(Box::leak(TableVersion::new(next)));
        // SAFETY: the successor is retired after this table, or freed with it by `drop` (1). There
        // is no successor yet, and only the thread that holds the lock links one (2). `next` was
        // just made, and only this thread has it (3).
        unsafe { version.link(next) };
    }

    /// Moves all entries to the successor, if there is one.
    fn complete(&self) -> Result<(), ResizeError> {
        let mut backoff = Backoff::new();
        loop {
            let handle = self.pin();
            let version = handle.version();
            if version.next().is_none() {
                return Ok(());
            }
            match version.step(share::<T>() * LARGE, &self.hash_of()) {
                // SAFETY: only a step of the current table ends with `Last`, and this one has just
                // done so (1).
                Ok(ResizeStep::Last) => unsafe { self.finish(version) },
                Ok(ResizeStep::Working) => {}
                Ok(ResizeStep::Idle) => backoff.snooze(),
                Err(_) => return Err(ResizeError::NoMemory),
            }
        }
    }
}

impl<T, S, L> Drop for CopyMap<T, S, L> {
    fn drop(&mut self) {
        // Relaxed: no other thread has the map. Retired tables drop themselves.
        let version = self.current.load(Relaxed);
        // SAFETY: the map is ours alone; the table is made from a box, and so is its successor, if
        // a resize is in progress. The successor has none: the next resize begins when the
        // successor is current.
        unsafe {
            let next = (*version).next_ptr();
            drop(Box::from_raw(version));
            if !next.is_null() {
                drop(Box::from_raw(next));
            }
        }
    }
}

impl<T: Table, S, G: Section, L> CopyMapRef<'_, T, S, G, L> {
    /// The table that operations begin with.
    #[inline(always)]
    pub(crate) fn version(&self) -> &TableVersion<T> {
        // Acquire: pairs with the Release in `finish`, so everything is seen in the successor. (The
        // first table was there before the map was shared.)
        // SAFETY: a table is freed a grace period after it was last reachable (`finish`), and its
        // successors later. The handle's section is of the map's domain (`pin`, `within`), and the
        // reference borrows the handle.
        unsafe { &*self.map.current.load(Acquire) }
    }
}

/// What updates do for a resize.
impl<T: Table, S: BuildHasher, G: Section, L> CopyMapRef<'_, T, S, G, L> {
    /// Begins a resize if it is due, and does a share of one. Hashes, so the hasher may panic.
    #[inline]
    pub(super) fn after_put(&self, put: &Put<T::Value>) {
        if let Put::New { crowded: true } = put {
            self.grow();
        }
        self.help();
    }

    /// After an update: moves a share of a resize in progress, and frees a share of a replaced
    /// table. Hashes, so the hasher may panic.
    #[inline]
    pub(super) fn help(&self) {
        let version = self.version();
        if version.next().is_some() {
            let _step = self.move_share(version);
        }
        self.map.reap();
    }

    #[cold]
    fn move_share(&self, version: &TableVersion<T>) -> Result<ResizeStep, NoMemory> {
        // Without memory the entries stay where they are, and the next update tries again.
        self.finish_if_last(version, version.step(share::<T>(), &self.map.hash_of()))
    }

    fn finish_if_last(
        &self,
        version: &TableVersion<T>,
        step: Result<ResizeStep, NoMemory>,
    ) -> Result<ResizeStep, NoMemory> {
        if step == Ok(ResizeStep::Last) {
            // SAFETY: the table is the map's, and only a step of the current table ends with `Last`
            // (1).
            unsafe { self.map.finish(version) };
        }
        step
    }

    /// Whether to repeat an insertion that found neither a slot nor memory: a share of a replaced
    /// table was freed, or a resize has moved the buckets of the key to a table that may have room.
    /// `refused` is the table that the insertion began with; `settled` is the last such table for
    /// which the insertion was repeated although this call did nothing; it is null at first.
    #[cold]
    pub(super) fn makes_room(
        &self,
        refused: &TableVersion<T>,
        hash: u64,
        settled: &mut *const TableVersion<T>,
    ) -> bool {
        if self.map.reap() {
            return true;
        }
        if refused.next().is_none() {
            return false;
        }
        let is_some = |step: &_| matches!(step, Ok(ResizeStep::Working | ResizeStep::Last));
        let step = self.finish_if_last(refused, refused.move_homes(hash, &self.map.hash_of()));
        // Another thread may have moved these buckets after the refusal: repeat once for each
        // table.
        if is_some(&step) || !ptr::eq(mem::replace(settled, refused), refused) {
            return true;
        }
        // In a cuckoo table, entries may be displaced to other buckets once those are moved.
        is_some(&step.and_then(|_| self.move_share(refused)))
    }

    /// After an insertion that found its bucket crowded: begins to grow, if that is due and no
    /// other thread is resizing.
    #[cold]
    fn grow(&self) {
        let (map, version) = (self.map, self.version());
        let table = version.table();
        let buckets = table.buckets();
        // Relaxed: a setting that publishes nothing.
        let automatic = map.automatic.load(Relaxed);
        if !automatic || version.next().is_some() || buckets >= map.max_buckets {
            return;
        }
        if !cfg!(corewise_stress) && !table.is_crowded(map.len()) {
            return;
        }
        let Some(alone) = map.resizing.try_lock() else {
            return;
        };
        let version = self.version();
        // Another thread may have been faster.
        if version.next().is_none() && version.table().buckets() == buckets {
            // Without memory the table fills up further.
            let next = map.larger_table(version.table());
            next.into_iter().for_each(|next| map.begin(next, &alone));
        }
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use corewise_testkit::hashing::Hashing;
    use corewise_testkit::random::{Random, fewer};

    use super::*;
    use crate::clht::LockBasedTable;
    use crate::copy_map::{Full, Limited, Put};
    use crate::cuckoo::CuckooTable;

    type Map = CopyMap<LockBasedTable<u64, u64>, Hashing, Limited>;

    /// A map that is moving from 256 buckets to 512.
    fn resizing(bytes: usize) -> Map {
        let builder = CopyMap::<LockBasedTable<u64, u64>>::builder();
        let builder = builder.buckets(256).max_bytes(bytes);
        let builder = builder.automatic_resize(false).hasher(Hashing::Own);
        let map = builder.domain(Domain::new()).build();
        for key in [255, 511, 767] {
            assert_eq!(map.pin().insert(key, key), Ok(None));
        }
        let next = LockBasedTable::try_new(512, &map.budget).expect("there is memory");
        map.begin(next, &map.resizing.lock());
        map
    }

    #[test]
    fn what_was_refused_before_a_move_is_inserted_after_it() {
        let map = resizing(resizing(1 << 30).bytes());
        let handle = map.pin();
        let refused = handle.version();
        let put = |version| LockBasedTable::put(version, 1023, 1023, 0, false);
        assert_eq!(put(refused), Err(Full));
        while handle.version().next().is_some() {
            handle.help();
        }
        assert!(handle.makes_room(refused, 1023, &mut ptr::null()));
        assert_eq!(put(handle.version()), Ok(Put::New { crowded: false }));
    }

    #[test]
    fn buckets_that_another_thread_held_are_moved_for_an_insertion() {
        let map = resizing(resizing(1 << 30).bytes());
        let handle = map.pin();
        let held = handle.version().table().hold(255);
        for _ in 0..1 << 12 {
            handle.help();
        }
        drop(held);
        assert!(handle.version().next().is_some());
        assert_eq!(handle.insert(1023, 0), Ok(None));
    }

    /// A cuckoo table of 256 buckets, of which some have overflow buckets, on its way to 512, and
    /// no memory for more.
    #[test]
    fn one_bucket_of_two_that_cannot_be_moved_refuses_nothing() {
        type Cuckoo = CuckooTable<u64, u64>;
        let resizing = |bytes, keys: &mut dyn Iterator<Item = u64>| {
            let builder = CopyMap::<Cuckoo>::builder();
            let builder = builder.buckets(256).max_bytes(bytes);
            let builder = builder.automatic_resize(false).hasher(Hashing::Own);
            let map: CopyMap<Cuckoo, _, Limited> = builder.domain(Domain::new()).build();
            for key in keys.take(1_100) {
                assert_eq!(map.pin().insert(key, key), Ok(None));
            }
            let next = Cuckoo::try_new(512, &map.budget).expect("there is memory");
            map.begin(next, &map.resizing.lock());
            map
        };
        let mut half_moved = 0;
        for seed in 0..fewer(20) {
            let mut random = Random::from_seed(seed);
            // Distinct, and most are of few buckets, whose entries go to the same ones.
            let crowd = random.below(32) + 1;
            let keys: Vec<u64> = (0..10_000)
                .map(|number| match random.index(4) {
                    0 => (number << 20) + random.below(512),
                    _ => (number << 20) + random.below(crowd),
                })
                .collect();
            let bytes = resizing(1 << 30, &mut keys.iter().copied()).bytes();
            let mut keys = keys.iter().copied();
            let map = resizing(bytes, &mut keys);
            let handle = map.pin();
            let refused = handle.version();
            let put = |version, key| Cuckoo::put(version, map.hash_of()(&key), key, 0, false);
            let Some(key) = keys.find(|&key| put(refused, key) == Err(Full)) else {
                continue;
            };
            // Another thread moves the second bucket; that of the first has only begun.
            let hash = map.hash_of()(&key);
            let [one, other] = Cuckoo::homes(hash).map(|home| home as usize & 255);
            let held = refused.table().hold(one);
            for _ in 0..1 << 12 {
                handle.help();
            }
            drop(held);
            let is_moved = |bucket| refused.table().try_hold(bucket).is_err();
            let other_is_moved = is_moved(other);
            let again = handle.makes_room(refused, hash, &mut ptr::null());
            half_moved += usize::from(other_is_moved && !is_moved(one));
            assert!(
                again || put(handle.version(), key) == Err(Full),
                "seed {seed}"
            );
        }
        assert!(half_moved > 0);
    }
}
