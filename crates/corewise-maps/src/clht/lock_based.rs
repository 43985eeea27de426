//! The map: hashing, counting, and when to resize.

use std::fmt;
use std::hash::BuildHasher;
use std::marker::PhantomData;
use std::ptr::NonNull;

use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicBool, AtomicPtr};
use corewise_atomic::{mutant, thread};
use corewise_rcu::{Cookie, Domain, Guard, Section};

use super::bucket::SLOTS;
use super::iter::Iter;
use super::space::Space;
use super::table::{Put, Step, Table};
use super::{Full, TryInsertError};
use crate::counts::Counts;
use crate::relativistic::{DefaultHasher, ResizeError};
use crate::word::{Raw, Word, WordKey};

/// Buckets of a map that was given no number.
#[cfg(not(corewise_stress))]
const FEWEST_BUCKETS: usize = 16;
#[cfg(corewise_stress)]
const FEWEST_BUCKETS: usize = 1;
/// Groups of buckets that an update moves.
#[cfg(not(corewise_stress))]
const SHARE: usize = 8;
#[cfg(corewise_stress)]
const SHARE: usize = 1;
/// The same for one who does nothing else.
const LARGE_SHARE: usize = 256;
/// The table is doubled when one bucket of so many has overflowed.
const OVERFLOWING: usize = 8;

/// A concurrent hash map of words, whose lookups cost one cache line and write nothing.
///
/// All access is through a handle, which [`pin`](Self::pin) makes; see [`LockBasedRef`] for the operations, and the
/// [module](super) for how it works and what it promises.
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
pub struct LockBased<K, V, S = DefaultHasher> {
    current: AtomicPtr<Table>,
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
    /// Tables that nobody finds any more, and the grace periods that they wait for.
    retired: Mutex<Vec<(Cookie, Retired)>>,
    // Words may be with any thread, as `Word` says.
    _words: PhantomData<fn() -> (K, V)>,
}

/// A table that is in no map any more.
struct Retired(NonNull<Table>);

// SAFETY: it owns the table, which is `Send`.
unsafe impl Send for Retired {}

impl Drop for Retired {
    fn drop(&mut self) {
        // SAFETY: made from a box, and dropped after a grace period or with the map.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// How a [`LockBased`] is to be; from [`LockBased::builder`].
///
/// ```
/// use corewise_maps::clht::{Full, LockBased};
/// let map: LockBased<u64, u64> = LockBased::builder()
///     .buckets(1)
///     .max_buckets(1)
///     .max_bytes(128)
///     .build();
/// // One bucket, and one that overflows from it.
/// assert!((0..6).all(|key| map.pin().insert(key, 0).is_ok()));
/// assert_eq!(map.pin().insert(6, 0), Err(Full));
/// ```
pub struct Builder<K, V, S = DefaultHasher> {
    buckets: usize,
    max_buckets: usize,
    max_bytes: usize,
    automatic: bool,
    hasher: S,
    domain: Option<Domain>,
    _words: PhantomData<fn() -> (K, V)>,
}

impl<K, V, S> Builder<K, V, S> {
    /// Room for this many entries before it grows.
    pub fn capacity(mut self, entries: usize) -> Self {
        // Half of the slots: then one bucket of 15 overflows.
        self.buckets = (entries / SLOTS * 2 + 2).max(FEWEST_BUCKETS);
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
    pub fn hasher<T>(self, hasher: T) -> Builder<K, V, T> {
        Builder {
            buckets: self.buckets,
            max_buckets: self.max_buckets,
            max_bytes: self.max_bytes,
            automatic: self.automatic,
            hasher,
            domain: self.domain,
            _words: PhantomData,
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
    pub fn build(self) -> LockBased<K, V, S> {
        let Self { max_buckets, .. } = self;
        assert!(self.buckets > 0 && max_buckets > 0, "no buckets");
        let max_buckets = 1 << max_buckets.ilog2();
        let buckets = self.buckets.checked_next_power_of_two();
        let buckets = buckets.unwrap_or(usize::MAX).min(max_buckets);
        let space = Arc::new(Space::new(self.max_bytes));
        let table = Table::try_new(buckets, &space);
        let table = table.unwrap_or_else(|| panic!("no memory for {buckets} buckets"));
        LockBased {
            current: AtomicPtr::new(Box::into_raw(table)),
            has_retired: AtomicBool::new(false),
            automatic: AtomicBool::new(self.automatic),
            max_buckets,
            hasher: self.hasher,
            domain: self.domain.unwrap_or_else(|| Domain::global().clone()),
            space,
            counts: Counts::new(),
            resizing: Mutex::new(()),
            retired: Mutex::new(Vec::new()),
            _words: PhantomData,
        }
    }
}

impl<K, V> LockBased<K, V> {
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
    pub fn builder() -> Builder<K, V> {
        Builder {
            buckets: FEWEST_BUCKETS,
            max_buckets: 1 << 40,
            max_bytes: usize::MAX,
            automatic: true,
            hasher: DefaultHasher::default(),
            domain: None,
            _words: PhantomData,
        }
    }
}

impl<K, V> Default for LockBased<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V, S> LockBased<K, V, S> {
    /// An empty map with this hasher.
    pub fn with_hasher(hasher: S) -> Self {
        LockBased::<K, V>::builder().hasher(hasher).build()
    }

    /// A handle, and a read-side critical section, for one operation or a few. Wait-free.
    ///
    /// While it lives, no table is freed that was replaced since.
    #[inline]
    pub fn pin(&self) -> LockBasedRef<'_, K, V, S> {
        LockBasedRef {
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
    pub fn within<'g, G: Section>(&'g self, section: &'g G) -> LockBasedRef<'g, K, V, S, &'g G> {
        let ours = section.domain_id() == self.domain.id();
        assert!(ours, "the section is one of another domain");
        LockBasedRef { map: self, section }
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

    /// Whether there are none, as [`LockBased::len`] counts them.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many buckets hashes are divided among; while it is resized, those of the table before.
    pub fn buckets(&self) -> usize {
        let section = self.domain.pin();
        self.table(&section).len()
    }

    /// Bytes of buckets: of the tables in use, of those that wait for readers, and of what overflows.
    pub fn bytes(&self) -> usize {
        self.space.used()
    }

    /// The table that operations begin with.
    #[inline(always)]
    pub(super) fn table<'g>(&'g self, _section: &'g impl Section) -> &'g Table {
        // Acquire: pairs with the Release in `finish`: all is in the successor. (The first table was there
        // before the map was shared.)
        // SAFETY: a table is freed a grace period after it was found for the last time (`finish`), and
        // its successors later. The section is of our domain: only handles and we ourselves call this.
        unsafe { &*self.current.load(Acquire) }
    }

    /// Frees the tables that no reader has any more.
    fn reap(&self) {
        // Relaxed: a hint; the lock orders the rest.
        if !self.has_retired.load(Relaxed) {
            return;
        }
        let Some(mut retired) = self.retired.try_lock() else {
            return;
        };
        // Quietly: whoever is told of a stall may use the map.
        let is_over = |(cookie, _): &&(Cookie, Retired)| {
            self.domain.poll_quietly(*cookie) || mutant!("clht_frees_at_once")
        };
        let ready = retired.iter().take_while(is_over).count();
        let ready: Vec<_> = retired.drain(..ready).collect();
        self.has_retired.store(!retired.is_empty(), Relaxed);
        drop(retired);
        drop(ready);
    }

    /// Makes the successor, which has everything, the table to begin with.
    fn finish(&self, old: &Table) {
        // Release: pairs with the Acquire in `table`. We have counted the last group, so all that was moved
        // was moved before.
        self.current.store(old.next_ptr(), Release);
        // Nobody finds the old one from here on, and only sections that run now can have it.
        let cookie = self.domain.start_poll();
        let mut retired = self.retired.lock();
        retired.push((cookie, Retired(NonNull::from(old))));
        self.has_retired.store(true, Relaxed);
    }
}

impl<K: WordKey, V: Word, S: BuildHasher> LockBased<K, V, S> {
    #[inline(always)]
    pub(super) fn hash(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }

    #[inline(always)]
    pub(super) fn hash_of(&self) -> impl Fn(Raw) -> u64 {
        // SAFETY: what is in the table is our keys.
        |key| self.hash(&unsafe { K::from_raw(key) })
    }

    /// Takes so many buckets, or the power of two above, and waits until the entries are there: for updates and
    /// others who resize. Lookups and updates go on meanwhile. Then waits for readers, to free the old table, unless
    /// the caller is in a section itself.
    ///
    /// A map that grows by itself goes its own way afterwards.
    ///
    /// # Errors
    ///
    /// [`ResizeError::NoBuckets`], or [`ResizeError::NoMemory`], also for more than
    /// [`Builder::max_buckets`]. After that nothing is lost: if the memory for what overflows ran out while entries
    /// were moved, they lie in both tables, and updates try again.
    pub fn resize_to(&self, buckets: usize) -> Result<(), ResizeError> {
        if buckets == 0 {
            return Err(ResizeError::NoBuckets);
        }
        let buckets = buckets.checked_next_power_of_two();
        let buckets = buckets.filter(|buckets| *buckets <= self.max_buckets);
        let buckets = buckets.ok_or(ResizeError::NoMemory)?;
        let alone = self.resizing.lock();
        self.complete()?;
        if self.buckets() != buckets {
            self.begin(buckets)?;
            self.complete()?;
        }
        drop(alone);
        self.settle();
        Ok(())
    }

    /// Waits for readers and frees the tables that were replaced, unless the caller is in a section itself.
    /// (Otherwise later updates free them.)
    pub fn settle(&self) {
        if mutant!("clht_frees_at_once") || self.domain.try_synchronize().is_ok() {
            self.reap();
        }
    }

    /// Begins a resize. The caller holds the lock `resizing`, and none is under way.
    fn begin(&self, buckets: usize) -> Result<(), ResizeError> {
        let section = self.domain.pin();
        let next = Table::try_new(buckets, &self.space).ok_or(ResizeError::NoMemory)?;
        let next = NonNull::from(Box::leak(next));
        // SAFETY: the successor is retired after this table, or freed with it by `drop`. The lock is ours,
        // and who holds it has found no successor.
        unsafe { self.table(&section).link(next) };
        Ok(())
    }

    /// Moves everything to the successor, if there is one.
    fn complete(&self) -> Result<(), ResizeError> {
        loop {
            let section = self.domain.pin();
            let table = self.table(&section);
            if table.next().is_none() {
                return Ok(());
            }
            match table.step(LARGE_SHARE, &self.hash_of()) {
                Ok(Step::Last) => self.finish(table),
                Ok(Step::Working) => {}
                Ok(Step::Idle) => thread::yield_now(),
                Err(_) => return Err(ResizeError::NoMemory),
            }
        }
    }

    /// After an update: moves a share of what is to be moved, and frees what was.
    #[inline]
    fn help(&self, section: &impl Section) {
        let table = self.table(section);
        if table.next().is_some() {
            self.move_share(table);
        }
        self.reap();
    }

    #[cold]
    fn move_share(&self, table: &Table) {
        // Without memory the entries stay where they are, and the next one tries again.
        if table.step(SHARE, &self.hash_of()) == Ok(Step::Last) {
            self.finish(table);
        }
    }

    /// After a bucket has overflowed: doubles the table, if that is due and nobody else is at it.
    #[cold]
    fn grow(&self, section: &impl Section) {
        let table = self.table(section);
        let buckets = table.len();
        let stress = cfg!(corewise_stress);
        let is_due = stress || table.overflow() * OVERFLOWING > buckets && self.len() >= buckets;
        // Relaxed: a setting that publishes nothing.
        let automatic = self.automatic.load(Relaxed);
        if !automatic || !is_due || table.next().is_some() || buckets >= self.max_buckets {
            return;
        }
        let Some(_alone) = self.resizing.try_lock() else {
            return;
        };
        let table = self.table(section);
        // Another may have been faster.
        if table.next().is_none() && table.len() == buckets {
            // Without memory chains get longer.
            let _ = self.begin(buckets * 2);
        }
    }
}

impl<K, V, S> Drop for LockBased<K, V, S> {
    fn drop(&mut self) {
        // Relaxed: nobody else has the map any more. Those retired drop themselves.
        let table = self.current.load(Relaxed);
        // SAFETY: as above; the table is made from a box, and so is its successor, if a resize is under way.
        // That has none: the next resize begins when it is current.
        unsafe {
            let next = (*table).next_ptr();
            drop(Box::from_raw(table));
            if !next.is_null() {
                drop(Box::from_raw(next));
            }
        }
    }
}

impl<K, V, S> fmt::Debug for LockBased<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockBased")
            .field("len", &self.len())
            .field("buckets", &self.buckets())
            .finish_non_exhaustive()
    }
}

/// A handle of a [`LockBased`], in a read-side critical section.
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
pub struct LockBasedRef<'m, K, V, S = DefaultHasher, G = Guard<'m>> {
    pub(super) map: &'m LockBased<K, V, S>,
    section: G,
}

impl<K: WordKey, V: Word, S: BuildHasher, G: Section> LockBasedRef<'_, K, V, S, G> {
    /// The value of a key.
    ///
    /// One cache line, and one for each bucket that has overflowed. Writes nothing and waits for nobody; it looks
    /// at a bucket again only if the key was there and an entry of the bucket was removed between the first look
    /// and the second (lock-free).
    #[inline]
    pub fn get(&self, key: &K) -> Option<V> {
        let value = self.table().get(self.map.hash(key), key.into_raw());
        value.map(|value| self.value(value))
    }

    /// Whether the key is there; as [`get`](Self::get).
    #[inline]
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Inserts a pair; the value that it replaces, if the key is there. Locks the bucket.
    ///
    /// # Errors
    ///
    /// [`Full`], with nothing changed: the key is not there, its bucket has no free slot, and there is no memory for
    /// another one.
    pub fn insert(&self, key: K, value: V) -> Result<Option<V>, Full> {
        let old = self.put(key, value, true)?;
        Ok(old.map(|old| self.value(old)))
    }

    /// Inserts a pair unless the key is there. If it is, nothing is written. Otherwise locks the bucket.
    ///
    /// # Errors
    ///
    /// [`TryInsertError::Occupied`], or [`TryInsertError::Full`], as [`insert`](Self::insert).
    pub fn try_insert(&self, key: K, value: V) -> Result<(), TryInsertError<V>> {
        match self.put(key, value, false) {
            Ok(None) => Ok(()),
            Ok(Some(there)) => Err(TryInsertError::Occupied(self.value(there))),
            Err(Full) => Err(TryInsertError::Full),
        }
    }

    /// Replaces the value of a key by what `f` makes of it; the new value, or `None` if the key is not there, and
    /// nothing is written then. `f` is called without a lock, again if the value was changed meanwhile.
    pub fn update(&self, key: &K, mut f: impl FnMut(V) -> V) -> Option<V> {
        let f = |old| f(self.value(old)).into_raw();
        let new = self.table().update(self.map.hash(key), key.into_raw(), f)?;
        self.map.help(&self.section);
        Some(self.value(new))
    }

    /// Removes a key; its value. Nothing is written if it is not there. Otherwise locks the bucket.
    pub fn remove(&self, key: &K) -> Option<V> {
        let value = self.table().remove(self.map.hash(key), key.into_raw())?;
        self.map.counts.add(&self.section, -1);
        self.map.help(&self.section);
        Some(self.value(value))
    }

    /// All entries, in no order.
    ///
    /// What is there from the first call of `next` to the last comes once; what is inserted or removed meanwhile
    /// may come or not, and a key that is removed and inserted again may come twice. A pair is one that was in the
    /// map at some time during the iteration. Takes one bucket of the table, and what it has become since, at a
    /// time.
    pub fn iter(&self) -> Iter<'_, K, V, S> {
        Iter::new(self.map, self.table())
    }

    #[inline(always)]
    fn table(&self) -> &Table {
        self.map.table(&self.section)
    }

    #[inline(always)]
    fn value(&self, value: Raw) -> V {
        // SAFETY: what is in the table is our values.
        unsafe { V::from_raw(value) }
    }

    /// The value that is there.
    fn put(&self, key: K, value: V, replace: bool) -> Result<Option<Raw>, Full> {
        let hash = self.map.hash(&key);
        let (key, value) = (key.into_raw(), value.into_raw());
        match self.table().put(hash, key, value, replace)? {
            Put::New { hung } => {
                self.map.counts.add(&self.section, 1);
                if hung {
                    self.map.grow(&self.section);
                }
                self.map.help(&self.section);
                Ok(None)
            }
            Put::There(there) => {
                // Who was refused has written nothing, and writes nothing here.
                if replace {
                    self.map.help(&self.section);
                }
                Ok(Some(there))
            }
        }
    }
}
