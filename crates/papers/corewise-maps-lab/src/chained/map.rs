//! The façade over the tables: nodes, hashing, reclamation.

use std::borrow::Borrow;
use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::AtomicPtr;
use corewise_maps::parts::{EntryCounts, Panics, Shared, in_groups, in_stages, prefetch_entry};
use corewise_maps::relativistic::{DefaultHasher, ResizeError};
use corewise_rcu::{Domain, Guard, Pressure, default_weight};

use super::algorithm::{ChainLink, Lookups};
use super::{ChainedTable, Resized};

/// A node, allocated from the global allocator.
#[repr(C)]
struct Node<K, V> {
    link: ChainLink,
    key: K,
    value: V,
}

impl<K, V> Node<K, V> {
    /// # Safety
    ///
    /// 1. `link` is the link of a `Node<K, V>` that lives for `'a`.
    #[inline(always)]
    unsafe fn of<'a>(link: NonNull<ChainLink>) -> &'a Self {
        // SAFETY: the link is the first field; the caller guarantees the rest.
        unsafe { link.cast().as_ref() }
    }
}

/// A concurrent hash map over one of the [tables](super#the-tables).
///
/// ```
/// use corewise_maps_lab::chained::{ChainedMap, SortedByReversedHash};
///
/// let map: ChainedMap<u64, &str, SortedByReversedHash> = ChainedMap::with_buckets(64);
/// assert!(map.pin().insert(1, "one"));
/// assert!(!map.pin().insert(1, "two"), "it is there");
/// map.resize_to(1024).unwrap();
/// assert_eq!(map.pin().get(&1), Some(&"one"));
/// assert_eq!(map.pin().remove(&1), Some(&"one"));
/// ```
pub struct ChainedMap<K, V, A: ChainedTable, S = DefaultHasher> {
    table: A,
    domain: Domain,
    hasher: S,
    counts: EntryCounts,
    resizing: Mutex<()>,
    /// Invariant in `K` and `V`, because nodes can be inserted through `&self`: a map of
    /// longer-lived entries must not be used as a map of shorter-lived ones.
    _nodes: PhantomData<AtomicPtr<Node<K, V>>>,
}

// SAFETY: the map owns its keys and values, and lends them to other threads; the table shares links
// only.
unsafe impl<K: Send + Sync, V: Send + Sync, A: ChainedTable, S: Send> Send
    for ChainedMap<K, V, A, S>
{
}
// SAFETY: the map owns its keys and values, and a reference to it is enough to look up, to insert
// and to drop them, so both must be `Send` and `Sync`.
unsafe impl<K: Send + Sync, V: Send + Sync, A: ChainedTable, S: Sync> Sync
    for ChainedMap<K, V, A, S>
{
}

impl<K, V, A: ChainedTable, S: Default> ChainedMap<K, V, A, S> {
    /// An empty map with at least `buckets` buckets (a power of two), in the global domain.
    ///
    /// # Panics
    ///
    /// If there is no memory for the buckets.
    pub fn with_buckets(buckets: usize) -> Self {
        Self::in_domain(buckets, S::default(), Domain::global().clone())
    }
}

impl<K, V, A: ChainedTable, S> ChainedMap<K, V, A, S> {
    /// An empty map with at least `buckets` buckets (a power of two), with a hasher, whose readers
    /// are sections of this domain.
    ///
    /// # Panics
    ///
    /// If there is no memory for the buckets.
    pub fn in_domain(buckets: usize, hasher: S, domain: Domain) -> Self {
        let table = A::try_new(buckets.max(1), &domain);
        Self {
            table: table.unwrap_or_else(|| panic!("no memory for {buckets} buckets")),
            domain,
            hasher,
            counts: EntryCounts::new(),
            resizing: Mutex::new(()),
            _nodes: PhantomData,
        }
    }

    /// A handle for one operation or a few. References that it returns live as long as the handle.
    /// Wait-free.
    #[inline]
    pub fn pin(&self) -> ChainedRef<'_, K, V, A, S> {
        ChainedRef {
            map: self,
            guard: ManuallyDrop::new(self.domain.pin()),
            has_removed: Cell::new(false),
        }
    }

    /// The name of the table in reports.
    pub fn name(&self) -> &'static str {
        A::NAME
    }

    /// The number of entries, approximate while updates run.
    pub fn len(&self) -> usize {
        self.counts.sum()
    }

    /// Whether [`ChainedMap::len`] is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of buckets that readers use.
    pub fn buckets(&self) -> usize {
        self.table.buckets()
    }

    /// Resizes to `buckets` buckets, or the next power of two, and waits until that is done: for a
    /// concurrent resize, for updates, and for readers.
    ///
    /// # Errors
    ///
    /// [`ResizeError`]. After [`ResizeError::NoMemory`] the map has its previous number of buckets,
    /// or some number on the way to the new one.
    pub fn resize_to(&self, buckets: usize) -> Result<Resized, ResizeError> {
        if buckets == 0 {
            return Err(ResizeError::NoBuckets);
        }
        if self.domain.is_pinned() {
            return Err(ResizeError::Pinned);
        }
        let _alone = self.resizing.lock();
        // SAFETY: we hold the lock of resizes, and are in no section, as was checked (1).
        unsafe { self.table.resize(buckets) }
    }

    /// Calls `each` with every entry, in no particular order.
    pub fn for_each(&mut self, mut each: impl FnMut(&K, &V)) {
        let mut links = Vec::new();
        self.table.take_all(|link| links.push(link));
        let section = self.domain.pin();
        // All links go back before foreign code is called, because it may panic.
        for link in &links {
            // SAFETY: a section of the map's domain; each link was just taken out, and no two keys
            // are equal.
            let _ = unsafe { self.table.insert(&section, *link, |_| false) };
        }
        for link in links {
            // SAFETY: the nodes belong to the map, which we have alone.
            let node = unsafe { Node::<K, V>::of(link) };
            each(&node.key, &node.value);
        }
    }
}

impl<K, V, A: ChainedTable, S> Drop for ChainedMap<K, V, A, S> {
    /// If keys or values panic when they are dropped, the others are still dropped, and the first
    /// panic is resumed.
    fn drop(&mut self) {
        let mut panics = Panics::default();
        self.table.take_all(|link| {
            // SAFETY: kept by `try_insert`, and taken out once; no other thread has the map.
            let node = unsafe { Shared::of(link.cast::<Node<K, V>>()) };
            panics.catch(|| drop(node));
        });
        panics.resume();
    }
}

impl<K, V, A: ChainedTable, S> fmt::Debug for ChainedMap<K, V, A, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(A::NAME)
            .field("len", &self.len())
            .field("buckets", &self.buckets())
            .finish_non_exhaustive()
    }
}

/// A handle to a [`ChainedMap`], which is also a read-side critical section.
pub struct ChainedRef<'m, K, V, A: ChainedTable, S = DefaultHasher> {
    map: &'m ChainedMap<K, V, A, S>,
    guard: ManuallyDrop<Guard<'m>>,
    /// Set by removals: handles that only look up need not check the domain's pressure.
    has_removed: Cell<bool>,
}

impl<K, V, A, S> ChainedRef<'_, K, V, A, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    A: ChainedTable,
    S: BuildHasher,
{
    /// Returns the value of a key.
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let hash = self.map.hasher.hash_one(key);
        // SAFETY: our guard, which lives as long as the reference.
        let found = unsafe { self.map.table.find(&*self.guard, hash, self.is(key)) };
        // SAFETY: the link was found in the guard's section, which keeps its node; links in the
        // table belong to our nodes.
        found.map(|link| unsafe { &Node::<K, V>::of(link).value })
    }

    /// Looks up several keys and stores their values in `out`, in the same order: for each, the
    /// result of [`get`](Self::get), with its progress guarantee. (If the table has a lock for
    /// lookups, keys are hashed and compared under it, and it is held for up to 64 lookups.)
    ///
    /// The memory accesses of a group of 64 keys overlap. That pays in tables larger than the
    /// caches, for batches of 16 keys and more; in smaller tables single lookups are faster. Each
    /// lookup is linearizable by itself and takes effect between the call and the return. Together
    /// they are not a snapshot: updates of other threads may come between them.
    ///
    /// # Panics
    ///
    /// If `keys` and `out` differ in length; then nothing is looked up.
    ///
    /// ```
    /// use corewise_maps_lab::chained::{ChainedMap, OutOfPlace};
    ///
    /// let map: ChainedMap<u64, &str, OutOfPlace> = ChainedMap::with_buckets(64);
    /// let map = map.pin();
    /// map.insert(1, "one");
    /// let mut values = [None; 2];
    /// map.get_many(&[2, 1], &mut values);
    /// assert_eq!(values, [None, Some(&"one")]);
    /// ```
    pub fn get_many<'h, 'q, Q>(
        &'h self,
        keys: impl IntoIterator<Item = &'q Q, IntoIter: ExactSizeIterator>,
        out: &mut [Option<&'h V>],
    ) where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized + 'q,
    {
        let (map, section) = (self.map, &*self.guard);
        let fetch = |link| prefetch_entry(link, size_of::<Node<K, V>>());
        in_groups(keys, out, |keys, out| {
            map.table.hold(|table| {
                in_stages(
                    keys,
                    out,
                    |key| map.hasher.hash_one(key),
                    // SAFETY: our guard is a section of the table's domain.
                    |hash| unsafe { table.fetch_bucket(section, hash) },
                    // SAFETY: our guard is a section of the table's domain.
                    |hash| fetch(unsafe { table.first(section, hash) }),
                    // SAFETY: our guard is a section of the table's domain.
                    |hash| fetch(unsafe { table.second(section, hash) }),
                    |hash, key| {
                        // SAFETY: our guard is a section of the table's domain, and outlives the
                        // references in `out`.
                        let found = unsafe { table.look_up(section, hash, self.is(key)) };
                        // SAFETY: found under our guard, which keeps it.
                        found.map(|link| unsafe { &Node::<K, V>::of(link).value })
                    },
                );
            });
        });
    }

    /// Whether the key is present.
    #[inline]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.get(key).is_some()
    }

    /// Inserts the pair unless the key is present; returns whether it did.
    pub fn insert(&self, key: K, value: V) -> bool {
        self.try_insert(key, value).is_ok()
    }

    /// Inserts the pair unless the key is present.
    ///
    /// # Errors
    ///
    /// The present value.
    pub fn try_insert(&self, key: K, value: V) -> Result<(), &V> {
        let hash = self.map.hasher.hash_one(&key);
        let link = ChainLink::new(hash);
        // Freed if it is not inserted, also after a panic.
        let node = Shared::new(Node { link, key, value });
        let new = node.address().cast();
        // SAFETY: the node lives while it is not in the table.
        let key = unsafe { &Node::<K, V>::of(new).key };
        // SAFETY: our guard; the node is new, and is freed by `remove` or `drop`.
        let inserted = unsafe { self.map.table.insert(&*self.guard, new, self.is(key)) };
        match inserted {
            Ok(()) => {
                node.keep();
                self.map.counts.add(&*self.guard, 1);
                Ok(())
            }
            // SAFETY: the link was found in the guard's section, which keeps its node; links in the
            // table belong to our nodes.
            Err(found) => Err(unsafe { &Node::<K, V>::of(found).value }),
        }
    }

    /// Removes a key and returns its value, which lives as long as the handle.
    pub fn remove<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let hash = self.map.hasher.hash_one(key);
        // SAFETY: our guard is a section of the table's domain, and outlives the returned
        // reference.
        let removed = unsafe { self.map.table.remove(&*self.guard, hash, self.is(key)) }?;
        self.map.counts.add(&*self.guard, -1);
        self.has_removed.set(true);
        // SAFETY: kept by `try_insert`; it is no longer in a table, and is dropped after a grace
        // period. Not a `Box`: readers may still use it.
        let node = unsafe { Shared::of(removed.cast::<Node<K, V>>()) };
        let free = move || drop(node);
        self.map.domain.defer(default_weight::<Node<K, V>>(), free);
        // SAFETY: dropped after our section at the earliest.
        Some(unsafe { &Node::<K, V>::of(removed).value })
    }

    #[inline(always)]
    fn is<'q, Q>(&self, key: &'q Q) -> impl FnMut(NonNull<ChainLink>) -> bool + 'q
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        // SAFETY: the table asks about links in it, which belong to our nodes, in our section.
        move |link| unsafe { Node::<K, V>::of(link) }.key.borrow() == key
    }
}

impl<K, V, A: ChainedTable, S> Drop for ChainedRef<'_, K, V, A, S> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard is dropped here only, and is not used again.
        unsafe { ManuallyDrop::drop(&mut self.guard) };
        if !self.has_removed.get() {
            return;
        }
        let domain = &self.map.domain;
        if domain.pressure() != Pressure::Fine && !domain.is_pinned() {
            domain.barrier();
        }
    }
}
