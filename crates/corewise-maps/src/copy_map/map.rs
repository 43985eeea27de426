//! The map: hashing, counting, and when to resize.

use std::fmt;
use std::hash::BuildHasher;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use corewise_atomic::lock::{Mutex, MutexGuard};
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicBool, AtomicPtr};
use corewise_atomic::{Backoff, mutant};
use corewise_rcu::{Cookie, Domain, Guard, Section};

use super::iter::Iter;
use super::memory_budget::MemoryBudget;
use super::{Full, Put, Step, Table, TableVersion, TryInsertError};
use crate::batch;
use crate::counts::Counts;
use crate::relativistic::{DefaultHasher, ResizeError};

/// Share multiplier for callers that only resize.
const LARGE: usize = 32;

/// Under `corewise_stress` tables begin with one bucket.
const fn fewest_buckets<T: Table>() -> usize {
    if cfg!(corewise_stress) {
        1
    } else {
        T::FEWEST_BUCKETS
    }
}

/// Under `corewise_stress` resizes take as long as possible.
const fn share<T: Table>() -> usize {
    if cfg!(corewise_stress) { 1 } else { T::SHARE }
}

/// A concurrent hash map of `Copy` keys and values, which lie in its table and are returned as
/// copies.
///
/// Use it through the aliases of its tables, whose modules give the costs of lookups and updates:
/// [`clht::LockBased`](crate::clht::LockBased), [`clht::LockFree`](crate::clht::LockFree),
/// [`hopscotch::HopscotchMap`](crate::hopscotch::HopscotchMap),
/// [`cuckoo::CuckooMap`](crate::cuckoo::CuckooMap). All access is through a handle, which
/// [`pin`](Self::pin) makes. See [`CopyMapRef`] for the operations and the [module](super) for the
/// guarantees of all tables.
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
///                 squares.pin().insert(n, n * n).unwrap();
///             }
///         });
///     }
/// });
/// assert_eq!(squares.pin().get(&30), Some(900));
/// assert_eq!(squares.len(), 1_000);
/// ```
pub struct CopyMap<T, S = DefaultHasher> {
    current: AtomicPtr<TableVersion<T>>,
    /// Whether `retired` is non-empty. Next to `current`, since every update reads both.
    has_retired: AtomicBool,
    automatic: AtomicBool,
    max_buckets: usize,
    hasher: S,
    domain: Domain,
    budget: Arc<MemoryBudget>,
    counts: Counts,
    /// Held by the thread that begins a resize.
    resizing: Mutex<()>,
    /// Tables that no thread can find any more, the oldest first.
    retired: Mutex<Vec<Retired<T>>>,
    _owned: PhantomData<Box<TableVersion<T>>>,
}

/// The lock `resizing` of a map.
type Alone<'m> = MutexGuard<'m, ()>;

/// A table that was replaced and is no longer in a map.
struct Retired<T> {
    version: NonNull<TableVersion<T>>,
    /// No thread has the table when this grace period is over.
    after: Cookie,
    /// Bytes of its arrays that are already freed.
    freed: usize,
}

// SAFETY: it owns the table.
unsafe impl<T: Send> Send for Retired<T> {}

impl<T> Drop for Retired<T> {
    fn drop(&mut self) {
        // SAFETY: made from a box, and dropped after a grace period or with the map.
        drop(unsafe { Box::from_raw(self.version.as_ptr()) });
    }
}

/// Settings of a new [`CopyMap`]; made by [`CopyMap::builder`].
///
/// ```
/// use corewise_maps::clht::LockBased;
/// use corewise_maps::copy_map::Full;
/// let map: LockBased<u64, u64> = LockBased::builder()
///     .buckets(1)
///     .max_buckets(1)
///     .max_bytes(128)
///     .build();
/// // One bucket, and one that overflows from it.
/// assert!((0..6).all(|key| map.pin().insert(key, 0).is_ok()));
/// assert_eq!(map.pin().insert(6, 0), Err(Full));
/// ```
pub struct Builder<T, S = DefaultHasher> {
    buckets: usize,
    max_buckets: usize,
    max_bytes: usize,
    automatic: bool,
    hasher: S,
    domain: Option<Domain>,
    _table: PhantomData<fn() -> T>,
}

impl<T: Table, S> Builder<T, S> {
    /// Sets the number of entries that the map has room for before it grows.
    pub fn capacity(mut self, entries: usize) -> Self {
        self.buckets = T::buckets_for(entries).max(fewest_buckets::<T>());
        self
    }

    /// Sets the number of buckets, rounded up to a power of two.
    pub fn buckets(mut self, buckets: usize) -> Self {
        self.buckets = buckets;
        self
    }

    /// Sets the most buckets that the map grows to, rounded down to a power of two; 2^40 if not
    /// set. Beyond that chains get longer.
    pub fn max_buckets(mut self, buckets: usize) -> Self {
        self.max_buckets = buckets;
        self
    }

    /// Limits the bytes of buckets, including those of replaced tables that wait for readers. If
    /// not set, the allocator is the limit.
    ///
    /// While it grows, the map has two tables: with less than three times the size of the smaller
    /// one it does not grow.
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Sets whether the map grows by itself; by default it does. It shrinks only when told to.
    pub fn automatic_resize(mut self, automatic: bool) -> Self {
        self.automatic = automatic;
        self
    }

    /// Sets the hasher.
    pub fn hasher<H>(self, hasher: H) -> Builder<T, H> {
        Builder {
            buckets: self.buckets,
            max_buckets: self.max_buckets,
            max_bytes: self.max_bytes,
            automatic: self.automatic,
            hasher,
            domain: self.domain,
            _table: PhantomData,
        }
    }

    /// Sets the RCU domain whose sections protect readers; the global one by default.
    pub fn domain(mut self, domain: Domain) -> Self {
        self.domain = Some(domain);
        self
    }

    /// Builds the map.
    ///
    /// # Panics
    ///
    /// If there is no memory for the buckets ([`Builder::max_bytes`] counts as memory), or if
    /// `buckets` or `max_buckets` is 0.
    pub fn build(self) -> CopyMap<T, S> {
        let Self { max_buckets, .. } = self;
        assert!(self.buckets > 0 && max_buckets > 0, "no buckets");
        let max_buckets = 1 << max_buckets.ilog2();
        let buckets = self.buckets.checked_next_power_of_two();
        let buckets = buckets.unwrap_or(usize::MAX).min(max_buckets);
        let budget = Arc::new(MemoryBudget::new(self.max_bytes));
        let table = T::try_new(buckets, &budget);
        let table = table.unwrap_or_else(|| panic!("no memory for {buckets} buckets"));
        CopyMap {
            current: AtomicPtr::new(Box::into_raw(TableVersion::new(table))),
            has_retired: AtomicBool::new(false),
            automatic: AtomicBool::new(self.automatic),
            max_buckets,
            hasher: self.hasher,
            domain: self.domain.unwrap_or_else(|| Domain::global().clone()),
            budget,
            counts: Counts::new(),
            resizing: Mutex::new(()),
            retired: Mutex::new(Vec::new()),
            _owned: PhantomData,
        }
    }
}

impl<T: Table> CopyMap<T> {
    /// Makes an empty map, which grows.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Makes an empty map with room for `entries` before it grows.
    ///
    /// # Panics
    ///
    /// As [`Builder::build`].
    pub fn with_capacity(entries: usize) -> Self {
        Self::builder().capacity(entries).build()
    }

    /// Makes an empty map with this number of buckets, rounded up to a power of two.
    ///
    /// # Panics
    ///
    /// As [`Builder::build`].
    pub fn with_buckets(buckets: usize) -> Self {
        Self::builder().buckets(buckets).build()
    }

    /// Starts a builder for other settings.
    pub fn builder() -> Builder<T> {
        Builder {
            buckets: fewest_buckets::<T>(),
            max_buckets: 1 << 40,
            max_bytes: usize::MAX,
            automatic: true,
            hasher: DefaultHasher::default(),
            domain: None,
            _table: PhantomData,
        }
    }
}

impl<T: Table> Default for CopyMap<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Table, S> CopyMap<T, S> {
    /// Makes an empty map with this hasher.
    pub fn with_hasher(hasher: S) -> Self {
        CopyMap::<T>::builder().hasher(hasher).build()
    }

    /// Enters a read-side critical section and returns a handle, for one operation or a few.
    /// Wait-free.
    ///
    /// While the handle lives, tables that are replaced are not freed.
    #[inline]
    pub fn pin(&self) -> CopyMapRef<'_, T, S> {
        CopyMapRef {
            map: self,
            section: self.domain.pin(),
        }
    }

    /// Returns a handle in a section that the caller already has.
    ///
    /// # Panics
    ///
    /// If the section is not one of this map's domain.
    #[inline]
    pub fn within<'g, G: Section>(&'g self, section: &'g G) -> CopyMapRef<'g, T, S, &'g G> {
        let ours = section.domain_id() == self.domain.id();
        assert!(ours, "the section is one of another domain");
        CopyMapRef { map: self, section }
    }

    /// Sets whether the map grows by itself from now on; see [`Builder::automatic_resize`].
    pub fn set_automatic_resize(&self, automatic: bool) {
        // Relaxed: see `grow`.
        self.automatic.store(automatic, Relaxed);
    }

    /// The domain whose sections protect readers.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// The hasher.
    pub fn hasher(&self) -> &S {
        &self.hasher
    }

    /// The number of entries; updates in progress may or may not be counted. Constant time.
    pub fn len(&self) -> usize {
        self.counts.sum()
    }

    /// Whether the map is empty, as counted by [`CopyMap::len`].
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of buckets; during a resize, that of the old table.
    pub fn buckets(&self) -> usize {
        self.pin().version().table().buckets()
    }

    /// Bytes of buckets: of the tables in use, of replaced tables that wait for readers, and of
    /// overflow buckets.
    pub fn bytes(&self) -> usize {
        self.budget.used()
    }

    /// Frees a share of the oldest replaced table, if no reader has it any more; returns false if
    /// there is nothing to free, or another thread is freeing.
    #[inline]
    fn reap(&self) -> bool {
        // Relaxed: a hint; the lock orders the rest.
        self.has_retired.load(Relaxed) && self.reap_share()
    }

    #[cold]
    fn reap_share(&self) -> bool {
        let Some(mut retired) = self.retired.try_lock() else {
            return false;
        };
        // `poll_quietly`, because the callback for a stall may use the map.
        let is_over = |table: &Retired<T>| {
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

    /// Calls `each` once with every pair, whatever its hash is now: visits the slots of unmoved
    /// buckets, and of the successor's buckets.
    pub(super) fn for_each_mut(&mut self, mut each: impl FnMut(T::Key, T::Value)) {
        // Relaxed: we have the map exclusively.
        // SAFETY: we also have its tables exclusively, and the map keeps them alive.
        let mut next = unsafe { self.current.load(Relaxed).as_ref() };
        while let Some(version) = next {
            for bucket in 0..version.table().buckets() {
                // Moved entries are visited in the successor.
                let _moved = version.table().for_each_in(bucket, |entry| {
                    // SAFETY: 1: an entry of this table.
                    let (key, value) = unsafe { T::pair(&entry) };
                    each(key, value);
                });
            }
            next = version.next();
        }
    }

    /// Inserts a table that is no longer reachable into the list, at index `at`.
    fn retire(&self, table: Retired<T>, at: usize) {
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
    /// 1. `old` is the current table of this map, and its [`step`](TableVersion::step) has just
    ///    returned [`Step::Last`] to the caller.
    unsafe fn finish(&self, old: &TableVersion<T>) {
        // Load the pointer that the table was made with, since the table is freed through it.
        // Relaxed: no other thread changes it, since we have counted the last group, by 1.
        let version = NonNull::new(self.current.load(Relaxed)).expect("there is a table");
        debug_assert_eq!(version.as_ptr().cast_const(), ptr::from_ref(old));
        // Release: pairs with the Acquire in `version`. We have counted the last group, so every
        // group was moved before.
        self.current.store(old.next_ptr(), Release);
        // From here on the old table is unreachable, and only sections that run now can have it.
        let table = Retired {
            version,
            after: self.domain.start_poll(),
            freed: 0,
        };
        self.retire(table, usize::MAX);
    }
}

impl<T: Table, S: BuildHasher> CopyMap<T, S> {
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
    pub fn resize_to(&self, buckets: usize) -> Result<(), ResizeError> {
        if buckets == 0 {
            return Err(ResizeError::NoBuckets);
        }
        let buckets = buckets.checked_next_power_of_two();
        let buckets = buckets.filter(|buckets| *buckets <= self.max_buckets);
        let buckets = buckets.ok_or(ResizeError::NoMemory)?;
        let alone = self.resizing.lock();
        loop {
            match self.resize_alone(buckets, &alone) {
                // Freeing replaced tables may give enough memory.
                Err(ResizeError::NoMemory) if self.reap() => while self.reap() {},
                answer => break answer?,
            }
        }
        drop(alone);
        self.settle();
        Ok(())
    }

    /// [`resize_to`](Self::resize_to), with the lock `resizing` held.
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
        // SAFETY: 1: the table is borrowed exclusively.
        (0..next.buckets()).for_each(|bucket| unsafe { next.wipe(bucket) });
        Ok(())
    }

    /// Waits for readers and frees the replaced tables, unless the caller is in a section itself.
    /// (Otherwise later updates free them.)
    pub fn settle(&self) {
        if mutant!("clht_frees_at_once") || self.domain.try_synchronize().is_ok() {
            while self.reap() {}
        }
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
        // SAFETY: 1: the successor is retired after this table, or freed with it by `drop`. 2:
        // there is no successor, and only the thread with the lock links one. 3: `next` was ours.
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
                // SAFETY: 1: a step ends so only in the current table.
                Ok(Step::Last) => unsafe { self.finish(version) },
                Ok(Step::Working) => {}
                Ok(Step::Idle) => backoff.snooze(),
                Err(_) => return Err(ResizeError::NoMemory),
            }
        }
    }
}

impl<T, S> Drop for CopyMap<T, S> {
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

impl<T: Table, S> fmt::Debug for CopyMap<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyMap")
            .field("len", &self.len())
            .field("buckets", &self.buckets())
            .finish_non_exhaustive()
    }
}

/// A handle to a [`CopyMap`], in a read-side critical section.
///
/// ```
/// use corewise_maps::clht::LockBased;
///
/// let stock = LockBased::new();
/// let stock = stock.pin();
/// assert_eq!(stock.insert('a', 3), Ok(None));
/// assert_eq!(stock.update(&'a', |n| n - 1), Some(2));
/// assert_eq!(stock.remove(&'a'), Some(2));
/// assert_eq!(stock.get(&'a'), None);
/// ```
pub struct CopyMapRef<'m, T, S = DefaultHasher, G = Guard<'m>> {
    map: &'m CopyMap<T, S>,
    section: G,
}

impl<T: Table, S, G: Section> CopyMapRef<'_, T, S, G> {
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

impl<T: Table, S: BuildHasher, G: Section> CopyMapRef<'_, T, S, G> {
    /// Returns the value of a key. Writes nothing; the table's module states how many cache lines
    /// it reads and when it retries a bucket.
    #[inline]
    pub fn get(&self, key: &T::Key) -> Option<T::Value> {
        T::get(self.version(), self.map.hash(key), key)
    }

    /// Looks up several keys, in order: each result is what [`get`](Self::get) would return, with
    /// its progress guarantee.
    ///
    /// The lookups of 64 keys at a time overlap their cache misses. That pays in tables larger than
    /// the caches, for batches of 16 keys and more; smaller tables are faster with single lookups.
    /// Each lookup is linearizable by itself and takes effect between the call and the return.
    /// Together they are no snapshot: updates of other threads may take effect between them.
    ///
    /// # Panics
    ///
    /// If the length of `out` differs from the number of keys; then nothing is looked up.
    ///
    /// ```
    /// use corewise_maps::clht::LockBased;
    ///
    /// let squares = LockBased::new();
    /// let squares = squares.pin();
    /// (0..10u64).for_each(|n| assert_eq!(squares.insert(n, n * n), Ok(None)));
    /// let mut values = [None; 3];
    /// squares.get_many(&[9, 10, 3], &mut values);
    /// assert_eq!(values, [Some(81), None, Some(9)]);
    /// ```
    pub fn get_many<'q>(
        &self,
        keys: impl IntoIterator<Item = &'q T::Key, IntoIter: ExactSizeIterator>,
        out: &mut [Option<T::Value>],
    ) where
        T::Key: 'q,
    {
        batch::in_groups(keys, out, |keys, out| {
            let version = self.version();
            batch::in_stages(
                keys,
                out,
                |key| self.map.hash(key),
                |hash| version.table().prefetch(hash),
                |hash| version.table().prefetch_more(hash),
                |_| {},
                |hash, key| T::get(version, hash, key),
            );
        });
    }

    /// Whether the key is present; as [`get`](Self::get).
    #[inline]
    pub fn contains_key(&self, key: &T::Key) -> bool {
        self.get(key).is_some()
    }

    /// Inserts a pair; returns the value that it replaces, if the key was present.
    ///
    /// # Errors
    ///
    /// [`Full`], with nothing changed: the key is absent, it has no free place, and there is no
    /// memory to make one, not even from replaced tables without readers.
    pub fn insert(&self, key: T::Key, value: T::Value) -> Result<Option<T::Value>, Full> {
        self.put(key, value, true)
    }

    /// Inserts a pair unless the key is present; then nothing is written.
    ///
    /// # Errors
    ///
    /// [`TryInsertError::Occupied`], or [`TryInsertError::Full`], as [`insert`](Self::insert).
    pub fn try_insert(&self, key: T::Key, value: T::Value) -> Result<(), TryInsertError<T::Value>> {
        match self.put(key, value, false) {
            Ok(None) => Ok(()),
            Ok(Some(there)) => Err(TryInsertError::Occupied(there)),
            Err(Full) => Err(TryInsertError::Full),
        }
    }

    /// Replaces the value of a key with `f(old)`; returns the new value, or `None` if the key is
    /// absent, and then writes nothing. `f` runs without a lock, and runs again if the value was
    /// changed meanwhile.
    pub fn update(&self, key: &T::Key, f: impl FnMut(T::Value) -> T::Value) -> Option<T::Value> {
        let new = self.update_alone(key, f)?;
        self.help();
        Some(new)
    }

    /// Removes a key and returns its value. Writes nothing if the key is absent.
    pub fn remove(&self, key: &T::Key) -> Option<T::Value> {
        let value = self.remove_alone(key)?;
        self.help();
        Some(value)
    }

    /// Iterates over all entries, in no particular order.
    ///
    /// An entry that is present from the first call of `next` to the last is returned once. An
    /// entry that is inserted or removed meanwhile may or may not be returned, and a key that is
    /// removed and inserted again may be returned twice. Each returned pair was in the map at some
    /// time during the iteration. The iterator copies one bucket of the table, and what it was
    /// split or merged into since, at a time.
    pub fn iter(&self) -> Iter<'_, T, S> {
        Iter::new(self.map, self.version())
    }

    /// Inserts a pair; returns the value that was present.
    fn put(&self, key: T::Key, value: T::Value, replace: bool) -> Result<Option<T::Value>, Full> {
        let put = self.put_alone(key, value, replace)?;
        // A refused `try_insert` has written nothing, and writes nothing here.
        if replace || matches!(put, Put::New { .. }) {
            self.after_put(&put);
        }
        Ok(match put {
            Put::New { .. } => None,
            Put::There(there) => Some(there),
        })
    }

    /// [`put`](Self::put) without [`after_put`](Self::after_put). If foreign code panics, nothing
    /// was inserted.
    #[inline]
    pub(super) fn put_alone(
        &self,
        key: T::Key,
        value: T::Value,
        replace: bool,
    ) -> Result<Put<T::Value>, Full> {
        let hash = self.map.hash(&key);
        let put = loop {
            match T::put(self.version(), hash, key, value, replace) {
                // Freeing replaced tables may give enough memory.
                Err(Full) if self.map.reap() => {}
                answer => break answer?,
            }
        };
        if let Put::New { .. } = put {
            self.map.counts.add(&self.section, 1);
        }
        Ok(put)
    }

    /// Begins a resize if it is due, and does a share of one. Hashes, so the hasher may panic.
    #[inline]
    pub(super) fn after_put(&self, put: &Put<T::Value>) {
        if let Put::New { crowded: true } = put {
            self.grow();
        }
        self.help();
    }

    /// [`update`](Self::update) without [`help`](Self::help). If foreign code panics, nothing was
    /// changed.
    #[inline]
    pub(super) fn update_alone(
        &self,
        key: &T::Key,
        f: impl FnMut(T::Value) -> T::Value,
    ) -> Option<T::Value> {
        T::update(self.version(), self.map.hash(key), key, f)
    }

    /// [`remove`](Self::remove) without [`help`](Self::help). If foreign code panics, nothing was
    /// removed.
    #[inline]
    pub(super) fn remove_alone(&self, key: &T::Key) -> Option<T::Value> {
        let value = T::remove(self.version(), self.map.hash(key), key)?;
        self.map.counts.add(&self.section, -1);
        Some(value)
    }

    /// After an update: moves a share of a resize in progress, and frees a share of a replaced
    /// table. Hashes, so the hasher may panic.
    #[inline]
    pub(super) fn help(&self) {
        let version = self.version();
        if version.next().is_some() {
            self.move_share(version);
        }
        self.map.reap();
    }

    #[cold]
    fn move_share(&self, version: &TableVersion<T>) {
        // Without memory the entries stay where they are, and the next update tries again.
        if version.step(share::<T>(), &self.map.hash_of()) == Ok(Step::Last) {
            // SAFETY: 1: `help` calls this with the map's table, in which a step ends so only while
            // it is current.
            unsafe { self.map.finish(version) };
        }
    }

    /// After an insertion that found its bucket crowded: begins to double the table, if that is due
    /// and no other thread is resizing.
    #[cold]
    fn grow(&self) {
        let (map, version) = (self.map, self.version());
        let table = version.table();
        let buckets = table.buckets();
        let is_due = cfg!(corewise_stress) || table.is_crowded(map.len());
        // Relaxed: a setting that publishes nothing.
        let automatic = map.automatic.load(Relaxed);
        if !automatic || !is_due || version.next().is_some() || buckets >= map.max_buckets {
            return;
        }
        let Some(alone) = map.resizing.try_lock() else {
            return;
        };
        let version = self.version();
        // Another thread may have been faster.
        if version.next().is_none() && version.table().buckets() == buckets {
            // Without memory the table fills up further.
            let next = T::try_new(buckets * 2, &map.budget);
            next.into_iter().for_each(|next| map.begin(next, &alone));
        }
    }
}
