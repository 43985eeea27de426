//! The façade: nodes, hashing, reclamation.

use std::borrow::Borrow;
use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::AtomicPtr;
use corewise_rcu::{Domain, Guard, Pressure};

use super::algorithm::{Link, Lookups};
use super::{Resized, Table};
use crate::batch;
use crate::counts::Counts;
use crate::panics::Panics;
use crate::relativistic::{DefaultHasher, ResizeError};
use crate::shared::Shared;

/// A node: drawn from the global allocator.
#[repr(C)]
struct Node<K, V> {
    link: Link,
    key: K,
    value: V,
}

impl<K, V> Node<K, V> {
    /// # Safety
    ///
    /// 1. `link` is that of a `Node<K, V>`, which lives for `'a`.
    #[inline(always)]
    unsafe fn of<'a>(link: NonNull<Link>) -> &'a Self {
        // SAFETY: the link is the first field; the caller answers for the rest.
        unsafe { link.cast().as_ref() }
    }
}

/// A concurrent hash map over one of the [tables](super#the-tables).
///
/// ```
/// use corewise_maps::chained::{ChainedMap, SortedByReversedHash};
///
/// let map: ChainedMap<u64, &str, SortedByReversedHash> = ChainedMap::with_buckets(64);
/// assert!(map.pin().insert(1, "one"));
/// assert!(!map.pin().insert(1, "two"), "it is there");
/// map.resize_to(1024).unwrap();
/// assert_eq!(map.pin().get(&1), Some(&"one"));
/// assert_eq!(map.pin().remove(&1), Some(&"one"));
/// ```
pub struct ChainedMap<K, V, A: Table, S = DefaultHasher> {
    table: A,
    domain: Domain,
    hasher: S,
    counts: Counts,
    resizing: Mutex<()>,
    /// Invariant in `K` and `V`, as an owner of nodes must be that others insert into by `&self`: a map of longer-lived
    /// entries is no map of shorter-lived ones.
    _nodes: PhantomData<AtomicPtr<Node<K, V>>>,
}

// SAFETY: it owns its keys and values, and lends them to other threads; the table shares links alone.
unsafe impl<K: Send + Sync, V: Send + Sync, A: Table, S: Send> Send for ChainedMap<K, V, A, S> {}
// SAFETY: as above; a reference is enough to insert and to drop, so both must be `Send`, too.
unsafe impl<K: Send + Sync, V: Send + Sync, A: Table, S: Sync> Sync for ChainedMap<K, V, A, S> {}

impl<K, V, A: Table, S: Default> ChainedMap<K, V, A, S> {
    /// An empty map of so many buckets (or the power of two above), in the process's domain.
    ///
    /// # Panics
    ///
    /// If there is no memory for them.
    pub fn with_buckets(buckets: usize) -> Self {
        Self::in_domain(buckets, S::default(), Domain::global().clone())
    }
}

impl<K, V, A: Table, S> ChainedMap<K, V, A, S> {
    /// An empty map of so many buckets, with a hasher, whose readers are sections of this domain.
    ///
    /// # Panics
    ///
    /// If there is no memory for them.
    pub fn in_domain(buckets: usize, hasher: S, domain: Domain) -> Self {
        let table = A::try_new(buckets.max(1), &domain);
        Self {
            table: table.unwrap_or_else(|| panic!("no memory for {buckets} buckets")),
            domain,
            hasher,
            counts: Counts::new(),
            resizing: Mutex::new(()),
            _nodes: PhantomData,
        }
    }

    /// A handle, for one operation or a few. What it lends lives as long as it does. Wait-free.
    #[inline]
    pub fn pin(&self) -> ChainedRef<'_, K, V, A, S> {
        ChainedRef {
            map: self,
            guard: ManuallyDrop::new(self.domain.pin()),
            has_removed: Cell::new(false),
        }
    }

    /// The name of the table, as reports have it.
    pub fn name(&self) -> &'static str {
        A::NAME
    }

    /// The number of entries, give or take updates that are under way.
    pub fn len(&self) -> usize {
        self.counts.sum()
    }

    /// Whether there are none, as [`ChainedMap::len`] counts them.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many buckets readers use.
    pub fn buckets(&self) -> usize {
        self.table.buckets()
    }

    /// Takes so many buckets, or the power of two above, and waits until that is done: for one who resizes
    /// at the same time, for updates, and for readers.
    ///
    /// # Errors
    ///
    /// [`ResizeError`]. After [`ResizeError::NoMemory`] the map has as many buckets as before, or some number
    /// on the way.
    pub fn resize_to(&self, buckets: usize) -> Result<Resized, ResizeError> {
        if buckets == 0 {
            return Err(ResizeError::NoBuckets);
        }
        if self.domain.is_pinned() {
            return Err(ResizeError::Pinned);
        }
        let _alone = self.resizing.lock();
        self.table.resize(buckets)
    }

    /// Calls `each` with every entry, in no order.
    pub fn for_each(&mut self, mut each: impl FnMut(&K, &V)) {
        let mut links = Vec::new();
        self.table.take_all(|link| links.push(link));
        let section = self.domain.pin();
        // All go back before foreign code is called, which may panic.
        for link in &links {
            // SAFETY: a section of the map's domain; each was just taken out, and no two are equal.
            let _ = unsafe { self.table.insert(&section, *link, |_| false) };
        }
        for link in links {
            // SAFETY: the nodes are the map's, which is ours alone.
            let node = unsafe { Node::<K, V>::of(link) };
            each(&node.key, &node.value);
        }
    }
}

impl<K, V, A: Table, S> Drop for ChainedMap<K, V, A, S> {
    /// If keys or values panic when they are dropped, the others are dropped all the same, and the first panic goes on.
    fn drop(&mut self) {
        let mut panics = Panics::default();
        self.table.take_all(|link| {
            // SAFETY: kept by `try_insert`, and handed out once; nobody else has the map any more.
            let node = unsafe { Shared::of(link.cast::<Node<K, V>>()) };
            panics.catch(|| drop(node));
        });
        panics.resume();
    }
}

impl<K, V, A: Table, S> fmt::Debug for ChainedMap<K, V, A, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(A::NAME)
            .field("len", &self.len())
            .field("buckets", &self.buckets())
            .finish_non_exhaustive()
    }
}

/// A handle of a [`ChainedMap`], and a read-side critical section.
pub struct ChainedRef<'m, K, V, A: Table, S = DefaultHasher> {
    map: &'m ChainedMap<K, V, A, S>,
    guard: ManuallyDrop<Guard<'m>>,
    /// Lookups need not ask how much waits.
    has_removed: Cell<bool>,
}

impl<K, V, A, S> ChainedRef<'_, K, V, A, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    A: Table,
    S: BuildHasher,
{
    /// The value of a key.
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let hash = self.map.hasher.hash_one(key);
        // SAFETY: our guard, as long as what is lent.
        let found = unsafe { self.map.table.find(&*self.guard, hash, self.is(key)) };
        // SAFETY: as above; links in the table are those of our nodes.
        found.map(|link| unsafe { &Node::<K, V>::of(link).value })
    }

    /// The values of several keys, in their order: what [`get`](Self::get) would say of each, with its progress
    /// (and its lock, where it takes one: keys are hashed and compared under it, and it is held for up to 64
    /// lookups).
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
    /// use corewise_maps::chained::{ChainedMap, OutOfPlace};
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
        let fetch = |link| batch::prefetch_entry(link, size_of::<Node<K, V>>());
        batch::in_groups(keys, out, |keys, out| {
            map.table.hold(|table| {
                batch::in_stages(
                    keys,
                    out,
                    |key| map.hasher.hash_one(key),
                    // SAFETY: our guard; here and below.
                    |hash| unsafe { table.fetch_bucket(section, hash) },
                    // SAFETY: as above.
                    |hash| fetch(unsafe { table.first(section, hash) }),
                    // SAFETY: as above.
                    |hash| fetch(unsafe { table.second(section, hash) }),
                    |hash, key| {
                        // SAFETY: as in `get`.
                        let found = unsafe { table.look_up(section, hash, self.is(key)) };
                        // SAFETY: as above.
                        found.map(|link| unsafe { &Node::<K, V>::of(link).value })
                    },
                );
            });
        });
    }

    /// Whether the key is there.
    #[inline]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.get(key).is_some()
    }

    /// Inserts unless the key is there; whether it did.
    pub fn insert(&self, key: K, value: V) -> bool {
        self.try_insert(key, value).is_ok()
    }

    /// Inserts unless the key is there.
    ///
    /// # Errors
    ///
    /// The value that is there.
    pub fn try_insert(&self, key: K, value: V) -> Result<(), &V> {
        let hash = self.map.hasher.hash_one(&key);
        let link = Link::new(hash);
        // Freed if it does not get in, also by a panic.
        let node = Shared::new(Node { link, key, value });
        let new = node.address().cast();
        // SAFETY: the node lives as long as it is not in the table.
        let key = unsafe { &Node::<K, V>::of(new).key };
        // SAFETY: our guard; the node is new, and is freed as `remove` and `drop` say.
        let inserted = unsafe { self.map.table.insert(&*self.guard, new, self.is(key)) };
        match inserted {
            Ok(()) => {
                node.keep();
                self.map.counts.add(&*self.guard, 1);
                Ok(())
            }
            // SAFETY: as in `get`.
            Err(found) => Err(unsafe { &Node::<K, V>::of(found).value }),
        }
    }

    /// Removes a key; its value, for as long as the handle lives.
    pub fn remove<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let hash = self.map.hasher.hash_one(key);
        // SAFETY: our guard.
        let removed = unsafe { self.map.table.remove(&*self.guard, hash, self.is(key)) }?;
        self.map.counts.add(&*self.guard, -1);
        self.has_removed.set(true);
        // SAFETY: kept by `try_insert`; it is in no table any more, and dropped after a grace period. Not a `Box`: readers
        // may be looking at it.
        let node = unsafe { Shared::of(removed.cast::<Node<K, V>>()) };
        let free = move || drop(node);
        self.map.domain.defer(size_of::<Node<K, V>>(), free);
        // SAFETY: dropped after our section at the earliest.
        Some(unsafe { &Node::<K, V>::of(removed).value })
    }

    #[inline(always)]
    fn is<'q, Q>(&self, key: &'q Q) -> impl FnMut(NonNull<Link>) -> bool + 'q
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        // SAFETY: the table asks about links in it, which are those of our nodes, in our section.
        move |link| unsafe { Node::<K, V>::of(link) }.key.borrow() == key
    }
}

impl<K, V, A: Table, S> Drop for ChainedRef<'_, K, V, A, S> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: not used again.
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
