//! The map: hashing, counting, and when to resize.

use std::fmt;
use std::hash::BuildHasher;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicBool, AtomicPtr};
use corewise_atomic::{mutant, thread};
use corewise_rcu::{Cookie, Domain, Guard, Section};

use super::iter::Iter;
use super::space::Space;
use super::{Full, Put, Stage, Step, Table, TryInsertError};
use crate::batch;
use crate::counts::Counts;
use crate::relativistic::{DefaultHasher, ResizeError};

/// How many times as much as after an update those move who do nothing else.
const LARGE: usize = 32;

/// Under stress tables begin with one bucket.
const fn fewest_buckets<T: Table>() -> usize {
    if cfg!(corewise_stress) {
        1
    } else {
        T::FEWEST_BUCKETS
    }
}

/// Under stress resizes take as long as they can.
const fn share<T: Table>() -> usize {
    if cfg!(corewise_stress) { 1 } else { T::SHARE }
}

/// A concurrent hash map of `Copy` keys and values, which lie in its table and are handed out as copies.
///
/// It goes by the names of its tables, whose modules say what lookups and updates cost:
/// [`clht::LockBased`](crate::clht::LockBased), [`clht::LockFree`](crate::clht::LockFree),
/// [`hopscotch::HopscotchMap`](crate::hopscotch::HopscotchMap), [`cuckoo::CuckooMap`](crate::cuckoo::CuckooMap). All access is through a handle, which [`pin`](Self::pin) makes; see [`CopyMapRef`] for the
/// operations, and the [module](super) for what all tables promise.
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
    current: AtomicPtr<Stage<T>>,
    /// Whether `retired` has something. Beside `current`, since every update reads both.
    has_retired: AtomicBool,
    automatic: AtomicBool,
    max_buckets: usize,
    hasher: S,
    domain: Domain,
    space: Arc<Space>,
    counts: Counts,
    /// Held by who begins a resize.
    resizing: Mutex<()>,
    /// Tables that nobody finds any more, the oldest first.
    retired: Mutex<Vec<Retired<T>>>,
    _owned: PhantomData<Box<Stage<T>>>,
}

/// A table that is in no map any more.
struct Retired<T> {
    stage: NonNull<Stage<T>>,
    /// Nobody has it when this is over.
    after: Cookie,
    /// Bytes of its arrays that were given back.
    freed: usize,
}

// SAFETY: it owns the table.
unsafe impl<T: Send> Send for Retired<T> {}

impl<T> Drop for Retired<T> {
    fn drop(&mut self) {
        // SAFETY: made from a box, and dropped after a grace period or with the map.
        drop(unsafe { Box::from_raw(self.stage.as_ptr()) });
    }
}

/// How a [`CopyMap`] is to be; from [`CopyMap::builder`].
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
    /// Room for this many entries before it grows.
    pub fn capacity(mut self, entries: usize) -> Self {
        self.buckets = T::buckets_for(entries).max(fewest_buckets::<T>());
        self
    }

    /// So many buckets, or the power of two above.
    pub fn buckets(mut self, buckets: usize) -> Self {
        self.buckets = buckets;
        self
    }

    /// The most buckets that it grows to, or the power of two below; if not set, 2^40. Beyond that chains get
    /// longer.
    pub fn max_buckets(mut self, buckets: usize) -> Self {
        self.max_buckets = buckets;
        self
    }

    /// The most bytes of buckets that it may have, those included that wait for readers. Without, all that the
    /// allocator gives.
    ///
    /// While it grows it has two tables: with less than three times the size of the smaller one it does not.
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Whether it grows by itself; if not set, it does. It shrinks when told to.
    pub fn automatic_resize(mut self, automatic: bool) -> Self {
        self.automatic = automatic;
        self
    }

    /// The hasher.
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

    /// The RCU domain whose sections protect readers; the global one if not set.
    pub fn domain(mut self, domain: Domain) -> Self {
        self.domain = Some(domain);
        self
    }

    /// The map.
    ///
    /// # Panics
    ///
    /// If there is no memory for the buckets, or a number of them is 0.
    pub fn build(self) -> CopyMap<T, S> {
        let Self { max_buckets, .. } = self;
        assert!(self.buckets > 0 && max_buckets > 0, "no buckets");
        let max_buckets = 1 << max_buckets.ilog2();
        let buckets = self.buckets.checked_next_power_of_two();
        let buckets = buckets.unwrap_or(usize::MAX).min(max_buckets);
        let space = Arc::new(Space::new(self.max_bytes));
        let table = T::try_new(buckets, &space);
        let table = table.unwrap_or_else(|| panic!("no memory for {buckets} buckets"));
        CopyMap {
            current: AtomicPtr::new(Box::into_raw(Stage::new(table))),
            has_retired: AtomicBool::new(false),
            automatic: AtomicBool::new(self.automatic),
            max_buckets,
            hasher: self.hasher,
            domain: self.domain.unwrap_or_else(|| Domain::global().clone()),
            space,
            counts: Counts::new(),
            resizing: Mutex::new(()),
            retired: Mutex::new(Vec::new()),
            _owned: PhantomData,
        }
    }
}

impl<T: Table> CopyMap<T> {
    /// An empty map, which grows.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// An empty map with room for `entries` before it grows.
    pub fn with_capacity(entries: usize) -> Self {
        Self::builder().capacity(entries).build()
    }

    /// An empty map of so many buckets, or the power of two above.
    ///
    /// # Panics
    ///
    /// As [`Builder::build`].
    pub fn with_buckets(buckets: usize) -> Self {
        Self::builder().buckets(buckets).build()
    }

    /// A map with other settings.
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
    /// An empty map with this hasher.
    pub fn with_hasher(hasher: S) -> Self {
        CopyMap::<T>::builder().hasher(hasher).build()
    }

    /// A handle, and a read-side critical section, for one operation or a few. Wait-free.
    ///
    /// While it lives, no table is freed that was replaced since.
    #[inline]
    pub fn pin(&self) -> CopyMapRef<'_, T, S> {
        CopyMapRef {
            map: self,
            section: self.domain.pin(),
        }
    }

    /// A handle in a section that the caller has.
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

    /// Whether it grows by itself from now on; see [`Builder::automatic_resize`].
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

    /// The number of entries, give or take updates that are under way. Constant time.
    pub fn len(&self) -> usize {
        self.counts.sum()
    }

    /// Whether there are none, as [`CopyMap::len`] counts them.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many buckets hashes are divided among; while it is resized, those of the table before.
    pub fn buckets(&self) -> usize {
        let section = self.domain.pin();
        self.stage(&section).table().buckets()
    }

    /// Bytes of buckets: of the tables in use, of those that wait for readers, and of what overflows.
    pub fn bytes(&self) -> usize {
        self.space.used()
    }

    /// The table that operations begin with.
    #[inline(always)]
    pub(crate) fn stage<'g>(&'g self, _section: &'g impl Section) -> &'g Stage<T> {
        // Acquire: pairs with the Release in `finish`: all is in the successor. (The first table was there
        // before the map was shared.)
        // SAFETY: a table is freed a grace period after it was found for the last time (`finish`), and
        // its successors later. The section is of our domain: only handles and we ourselves call this.
        unsafe { &*self.current.load(Acquire) }
    }

    /// Frees a share of the oldest table that was replaced, if no reader has it any more; false if there is nothing to
    /// free, or another is at it.
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
        // Quietly: whoever is told of a stall may use the map.
        let is_over = |table: &Retired<T>| {
            self.domain.poll_quietly(table.after) || mutant!("clht_frees_at_once")
        };
        if !retired.first().is_some_and(is_over) {
            return false;
        }
        let mut oldest = retired.remove(0);
        self.has_retired.store(!retired.is_empty(), Relaxed);
        // Nobody waits for the lock, or finds this table, while some of it is freed.
        drop(retired);
        // SAFETY: a grace period has passed since somebody could find the table, and it is in the list no more.
        let freed = unsafe { oldest.stage.as_mut().free_share(oldest.freed) };
        if let Some(freed) = freed {
            oldest.freed = freed;
            self.retire(oldest, 0);
        }
        true
    }

    /// Calls `each` with every pair once, whatever its hash is by now: with what lies in the slots of buckets that were
    /// not moved, and of those that they are moved to.
    pub(super) fn for_each_mut(&mut self, mut each: impl FnMut(T::Key, T::Value)) {
        // Relaxed: the map is ours alone.
        // SAFETY: so are its tables, which it keeps.
        let mut next = unsafe { self.current.load(Relaxed).as_ref() };
        while let Some(stage) = next {
            for bucket in 0..stage.table().buckets() {
                // What was moved is met in the successor.
                let _moved = stage.table().for_each_in(bucket, |entry| {
                    let (key, value) = T::pair(&entry);
                    each(key, value);
                });
            }
            next = stage.next();
        }
    }

    /// Puts a table that nobody finds any more in the list, before the `at`th.
    fn retire(&self, table: Retired<T>, at: usize) {
        let mut retired = self.retired.lock();
        let at = at.min(retired.len());
        retired.insert(at, table);
        self.has_retired.store(true, Relaxed);
    }

    /// Makes the successor, which has everything, the table to begin with.
    fn finish(&self, old: &Stage<T>) {
        // The pointer that it was made with: it is freed by that. Relaxed: nobody else changes the word, since we
        // have counted the last group.
        let stage = NonNull::new(self.current.load(Relaxed)).expect("there is a table");
        debug_assert_eq!(stage.as_ptr().cast_const(), ptr::from_ref(old));
        // Release: pairs with the Acquire in `stage`. We have counted the last group, so all that was moved
        // was moved before.
        self.current.store(old.next_ptr(), Release);
        // Nobody finds the old one from here on, and only sections that run now can have it.
        let table = Retired {
            stage,
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

    /// Takes so many buckets, or the power of two above, and waits until the entries are there: for updates and
    /// others who resize. Lookups and updates go on meanwhile. Then waits for readers, to free the old table, unless
    /// the caller is in a section itself.
    ///
    /// A map that grows by itself goes its own way afterwards.
    ///
    /// If the new table has fewer buckets, or the map a limit of bytes, all entries are hashed and copied once more
    /// beforehand, to see to the memory for what overflows.
    ///
    /// # Errors
    ///
    /// [`ResizeError::NoBuckets`], or [`ResizeError::NoMemory`], also for more than
    /// [`Builder::max_buckets`]. After that the map is as before, with one exception: if other threads have
    /// inserted beside the resize, and the memory ran out for what they added, some entries are in the old table and
    /// some in the new one. Then updates, and the next call, go on as soon as removals make room.
    pub fn resize_to(&self, buckets: usize) -> Result<(), ResizeError> {
        if buckets == 0 {
            return Err(ResizeError::NoBuckets);
        }
        let buckets = buckets.checked_next_power_of_two();
        let buckets = buckets.filter(|buckets| *buckets <= self.max_buckets);
        let buckets = buckets.ok_or(ResizeError::NoMemory)?;
        let alone = self.resizing.lock();
        loop {
            match self.resize_alone(buckets) {
                // What was replaced may be memory enough.
                Err(ResizeError::NoMemory) if self.reap() => while self.reap() {},
                answer => break answer?,
            }
        }
        drop(alone);
        self.settle();
        Ok(())
    }

    /// [`resize_to`](Self::resize_to) under the lock `resizing`.
    fn resize_alone(&self, buckets: usize) -> Result<(), ResizeError> {
        self.complete()?;
        let before = self.buckets();
        if before == buckets {
            return Ok(());
        }
        let next = T::try_new(buckets, &self.space).ok_or(ResizeError::NoMemory)?;
        if buckets < before || self.space.is_limited() {
            self.rehearse(&next)?;
        }
        self.begin(next);
        self.complete()
    }

    /// Sees to it that a table has the memory for what will overflow there. Nobody else knows it yet.
    fn rehearse(&self, next: &T) -> Result<(), ResizeError> {
        let groups = self.buckets().min(next.buckets());
        for first in (0..groups).step_by(share::<T>() * LARGE) {
            let these = first..groups.min(first + share::<T>() * LARGE);
            let section = self.domain.pin();
            let rehearsed = self.stage(&section).rehearse(next, these, &self.hash_of());
            rehearsed.map_err(|_| ResizeError::NoMemory)?;
        }
        (0..next.buckets()).for_each(|bucket| next.wipe(bucket));
        Ok(())
    }

    /// Waits for readers and frees the tables that were replaced, unless the caller is in a section itself.
    /// (Otherwise later updates free them.)
    pub fn settle(&self) {
        if mutant!("clht_frees_at_once") || self.domain.try_synchronize().is_ok() {
            while self.reap() {}
        }
    }

    /// Begins a resize. The caller holds the lock `resizing`, and none is under way.
    fn begin(&self, next: T) {
        let section = self.domain.pin();
        let next = NonNull::from(Box::leak(Stage::new(next)));
        // SAFETY: the successor is retired after this table, or freed with it by `drop`. The lock is ours,
        // and who holds it has found no successor.
        unsafe { self.stage(&section).link(next) };
    }

    /// Moves everything to the successor, if there is one.
    fn complete(&self) -> Result<(), ResizeError> {
        loop {
            let section = self.domain.pin();
            let stage = self.stage(&section);
            if stage.next().is_none() {
                return Ok(());
            }
            match stage.step(share::<T>() * LARGE, &self.hash_of()) {
                Ok(Step::Last) => self.finish(stage),
                Ok(Step::Working) => {}
                Ok(Step::Idle) => thread::yield_now(),
                Err(_) => return Err(ResizeError::NoMemory),
            }
        }
    }

    /// After an update: moves a share of what is to be moved, and frees what was.
    #[inline]
    fn help(&self, section: &impl Section) {
        let stage = self.stage(section);
        if stage.next().is_some() {
            self.move_share(stage);
        }
        self.reap();
    }

    #[cold]
    fn move_share(&self, stage: &Stage<T>) {
        // Without memory the entries stay where they are, and the next one tries again.
        if stage.step(share::<T>(), &self.hash_of()) == Ok(Step::Last) {
            self.finish(stage);
        }
    }

    /// After an insertion that has found little room: doubles the table, if that is due and nobody else is at it.
    #[cold]
    fn grow(&self, section: &impl Section) {
        let stage = self.stage(section);
        let table = stage.table();
        let buckets = table.buckets();
        let is_due = cfg!(corewise_stress) || table.is_crowded(self.len());
        // Relaxed: a setting that publishes nothing.
        let automatic = self.automatic.load(Relaxed);
        if !automatic || !is_due || stage.next().is_some() || buckets >= self.max_buckets {
            return;
        }
        let Some(_alone) = self.resizing.try_lock() else {
            return;
        };
        let stage = self.stage(section);
        // Another may have been faster.
        if stage.next().is_none() && stage.table().buckets() == buckets {
            // Without memory the table fills up further.
            let next = T::try_new(buckets * 2, &self.space);
            next.into_iter().for_each(|next| self.begin(next));
        }
    }
}

impl<T, S> Drop for CopyMap<T, S> {
    fn drop(&mut self) {
        // Relaxed: nobody else has the map any more. Those retired drop themselves.
        let stage = self.current.load(Relaxed);
        // SAFETY: as above; it is made from a box, and so is its successor, if a resize is under way.
        // That has none: the next resize begins when it is current.
        unsafe {
            let next = (*stage).next_ptr();
            drop(Box::from_raw(stage));
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

/// A handle of a [`CopyMap`], in a read-side critical section.
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

impl<T: Table, S: BuildHasher, G: Section> CopyMapRef<'_, T, S, G> {
    /// The value of a key. Writes nothing; the table's module says how many cache lines it reads, and when it looks
    /// at a bucket again.
    #[inline]
    pub fn get(&self, key: &T::Key) -> Option<T::Value> {
        T::get(self.stage(), self.map.hash(key), key)
    }

    /// The values of several keys, in their order: what [`get`](Self::get) would say of each, with its progress.
    ///
    /// The keys of a group of 64 wait for memory together. That pays in tables larger than the caches, for batches of
    /// 16 keys and more; smaller ones are looked up sooner one by one. Each lookup is linearizable by itself and takes
    /// effect between the call and the return; together they are no snapshot, and another thread's updates may come
    /// between them.
    ///
    /// # Panics
    ///
    /// If there are not as many places in `out` as keys; then nothing is looked up.
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
            let stage = self.stage();
            batch::in_stages(
                keys,
                out,
                |key| self.map.hash(key),
                |hash| stage.table().prefetch(hash),
                |hash| stage.table().prefetch_more(hash),
                |_| {},
                |hash, key| T::get(stage, hash, key),
            );
        });
    }

    /// Whether the key is there; as [`get`](Self::get).
    #[inline]
    pub fn contains_key(&self, key: &T::Key) -> bool {
        self.get(key).is_some()
    }

    /// Inserts a pair; the value that it replaces, if the key is there.
    ///
    /// # Errors
    ///
    /// [`Full`], with nothing changed: the key is not there, there is no place for it, and no memory to make one, not
    /// even that of tables which were replaced and have no readers any more.
    pub fn insert(&self, key: T::Key, value: T::Value) -> Result<Option<T::Value>, Full> {
        self.put(key, value, true)
    }

    /// Inserts a pair unless the key is there. If it is, nothing is written.
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

    /// Replaces the value of a key by what `f` makes of it; the new value, or `None` if the key is not there, and
    /// nothing is written then. `f` is called without a lock, again if the value was changed meanwhile.
    pub fn update(&self, key: &T::Key, f: impl FnMut(T::Value) -> T::Value) -> Option<T::Value> {
        let new = self.update_alone(key, f)?;
        self.help();
        Some(new)
    }

    /// Removes a key; its value. Nothing is written if it is not there.
    pub fn remove(&self, key: &T::Key) -> Option<T::Value> {
        let value = self.remove_alone(key)?;
        self.help();
        Some(value)
    }

    /// All entries, in no order.
    ///
    /// What is there from the first call of `next` to the last comes once; what is inserted or removed meanwhile
    /// may come or not, and a key that is removed and inserted again may come twice. A pair is one that was in the
    /// map at some time during the iteration. Takes one bucket of the table, and what it has become since, at a
    /// time.
    pub fn iter(&self) -> Iter<'_, T, S> {
        Iter::new(self.map, self.stage())
    }

    #[inline(always)]
    fn stage(&self) -> &Stage<T> {
        self.map.stage(&self.section)
    }

    /// The value that is there.
    fn put(&self, key: T::Key, value: T::Value, replace: bool) -> Result<Option<T::Value>, Full> {
        let put = self.put_alone(key, value, replace)?;
        // Who was refused has written nothing, and writes nothing here.
        if replace || matches!(put, Put::New { .. }) {
            self.after_put(&put);
        }
        Ok(match put {
            Put::New { .. } => None,
            Put::There(there) => Some(there),
        })
    }

    /// [`put`](Self::put) without [`after_put`](Self::after_put). If foreign code panics nothing was put in.
    #[inline]
    pub(super) fn put_alone(
        &self,
        key: T::Key,
        value: T::Value,
        replace: bool,
    ) -> Result<Put<T::Value>, Full> {
        let hash = self.map.hash(&key);
        let put = loop {
            match T::put(self.stage(), hash, key, value, replace) {
                // What was replaced may be memory enough.
                Err(Full) if self.map.reap() => {}
                answer => break answer?,
            }
        };
        if let Put::New { .. } = put {
            self.map.counts.add(&self.section, 1);
        }
        Ok(put)
    }

    /// Begins a resize if it is due, and does a share of one. Hashes: the hasher may panic.
    #[inline]
    pub(super) fn after_put(&self, put: &Put<T::Value>) {
        if let Put::New { crowded: true } = put {
            self.map.grow(&self.section);
        }
        self.help();
    }

    /// [`update`](Self::update) without [`help`](Self::help). If foreign code panics nothing was changed.
    #[inline]
    pub(super) fn update_alone(
        &self,
        key: &T::Key,
        f: impl FnMut(T::Value) -> T::Value,
    ) -> Option<T::Value> {
        T::update(self.stage(), self.map.hash(key), key, f)
    }

    /// [`remove`](Self::remove) without [`help`](Self::help). If foreign code panics nothing was removed.
    #[inline]
    pub(super) fn remove_alone(&self, key: &T::Key) -> Option<T::Value> {
        let value = T::remove(self.stage(), self.map.hash(key), key)?;
        self.map.counts.add(&self.section, -1);
        Some(value)
    }

    /// After an update: does a share of the resize that is under way. Hashes: the hasher may panic.
    #[inline]
    pub(super) fn help(&self) {
        self.map.help(&self.section);
    }
}
