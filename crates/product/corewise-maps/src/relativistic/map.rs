//! The map: its nodes, their memory, and when to resize.

use std::hash::{BuildHasher, Hash};
use std::ptr::NonNull;

use corewise_rcu::{Domain, Limits, Pressure};

use super::chain::{Arena, Link};
use super::owned::PerThread;
use super::raw::RawTable;
use super::removed::{Removed, Waiting, Weigher};
use super::resize::{ResizeError, ResizeState};
use super::slab::{Magazine, Slabs};
use super::word::NodeId;
use crate::panics::Panics;

/// The default hasher: foldhash with a random seed for each map.
///
/// The map uses its quality variant, because the length of a chain depends on the hash. (With some
/// seeds of the fast variant, chains of consecutive numbers are more than twice as long.)
#[cfg(feature = "foldhash")]
pub type DefaultHasher = foldhash::quality::RandomState;
/// The default hasher: that of `std`, because the feature `foldhash` is off.
#[cfg(not(feature = "foldhash"))]
pub type DefaultHasher = std::hash::RandomState;

/// Buckets of a map that is created without a capacity.
#[cfg(not(corewise_stress))]
pub(super) const FEWEST_BUCKETS: usize = 32;
#[cfg(corewise_stress)]
pub(super) const FEWEST_BUCKETS: usize = 1;
/// A node of the table, as drawn in the header of the module.
#[repr(C)]
pub(super) struct Node<K, V> {
    pub(super) link: Link,
    /// The key of the entry.
    pub key: K,
    /// The value of the entry.
    pub value: V,
}

impl<K, V> Node<K, V> {
    /// # Safety
    ///
    /// 1. `link` is that of a `Node<K, V>`.
    #[inline(always)]
    pub(super) unsafe fn of(link: NonNull<Link>) -> NonNull<Self> {
        // The link is the first field.
        link.cast()
    }
}

/// A concurrent hash map with wait-free lookups that a resize does not disturb.
///
/// The map itself has the operations that are used most. Each of them enters a section, and those
/// that return an entry return it in a [`Ref`](super::Ref), which stays in that section. A handle,
/// which [`pin`](Self::pin) creates, has all operations, for one section: see
/// [`MapRef`](super::MapRef). It returns plain references, which are valid as long as the handle
/// is: use one for a few operations. With `&mut` the map has those of an exclusive owner. See the
/// [module](super) for the algorithm and its costs.
///
/// ```
/// use corewise_maps::RelativisticMap;
///
/// let map = RelativisticMap::new();
/// std::thread::scope(|scope| {
///     for name in ["ada", "grace", "barbara"] {
///         let map = &map;
///         scope.spawn(move || {
///             map.insert(name, name.len());
///         });
///     }
/// });
/// assert_eq!(map.get("grace").as_deref(), Some(&5));
/// let handle = map.pin();
/// assert_eq!(handle.update("grace", |n| n * 2), Some(&10));
/// assert_eq!(handle.values().sum::<usize>(), 3 + 10 + 7);
/// ```
///
/// # When keys and values are dropped
///
/// An entry that is removed or replaced stays valid for the handles and [`Ref`](super::Ref)s that
/// exist at that time. It is dropped after they are gone, together with others: by a later update
/// of this map, on the thread of that update; by [`settle`](Self::settle); or with the map. Only
/// the methods with `&mut` drop or return a value at once.
///
/// # Closures
///
/// The closures of updates run without a lock, and may use the map. One that is called with an
/// entry is called again if another thread has changed the entry meanwhile. One that makes the
/// value of an absent key is called at most once by its own call, but several threads that find the
/// key absent may call theirs at the same time: one value is inserted, and the others are dropped.
pub struct RelativisticMap<K, V, S = DefaultHasher> {
    pub(super) raw: RawTable<Slabs>,
    hasher: S,
    pub(super) threads: PerThread<Own, Waiting<K, V>>,
    pub(super) removed: Removed<K, V>,
}

// SAFETY: the map owns its entries, those that are removed and wait for readers too: nothing of
// them is with its domain. Handles and references borrow the map, so when it moves to another
// thread no thread has any. From then on that thread alone reads and drops entries, unless the map
// may be shared (`Sync`). So they must be `Send`, and need not be `Sync`.
unsafe impl<K: Send, V: Send, S: Send> Send for RelativisticMap<K, V, S> {}
// SAFETY: threads share the hasher and, by reference, the entries of the map, and drop those of
// others.
unsafe impl<K: Send + Sync, V: Send + Sync, S: Sync> Sync for RelativisticMap<K, V, S> {}

/// A thread's private data in a map.
#[derive(Default)]
pub(super) struct Own {
    pub(super) magazine: Magazine,
    /// The change of the number of entries that was not reported to the table yet.
    pub(super) unreported: isize,
    /// Counts updates, for [`RawTable::step_after_update`]; wraps.
    pub(super) turn: usize,
}

impl<K, V> RelativisticMap<K, V> {
    /// Creates an empty map.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::new();
    /// map.insert("a", 1);
    /// assert_eq!(map.len(), 1);
    /// ```
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Creates an empty map with room for `entries` before it grows.
    ///
    /// # Panics
    ///
    /// As [`Builder::build`](super::Builder::build).
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::<u64, u64>::with_capacity(10_000);
    /// assert!(map.resize_state().buckets >= 10_000);
    /// ```
    pub fn with_capacity(entries: usize) -> Self {
        Self::builder().capacity(entries).build()
    }
}

impl<K, V, S> RelativisticMap<K, V, S> {
    /// A map of an empty table.
    pub(super) fn of(
        raw: RawTable<Slabs>,
        hasher: S,
        limits: Limits,
        weigh: Option<Weigher<K, V>>,
    ) -> Self {
        Self {
            raw,
            hasher,
            threads: PerThread::new(),
            removed: Removed::new(limits, weigh),
        }
    }

    /// Creates an empty map with this hasher.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// use std::hash::RandomState;
    /// let map = RelativisticMap::with_hasher(RandomState::new());
    /// map.insert("a", 1);
    /// ```
    pub fn with_hasher(hasher: S) -> Self {
        RelativisticMap::<K, V>::builder().hasher(hasher).build()
    }

    /// Creates an empty map with this hasher and room for `entries` before it grows.
    ///
    /// # Panics
    ///
    /// As [`Builder::build`](super::Builder::build).
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// use std::hash::RandomState;
    /// let map = RelativisticMap::with_capacity_and_hasher(1_000, RandomState::new());
    /// map.insert("a", 1);
    /// ```
    pub fn with_capacity_and_hasher(entries: usize, hasher: S) -> Self {
        let builder = RelativisticMap::<K, V>::builder().capacity(entries);
        builder.hasher(hasher).build()
    }

    /// The map's hasher.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// use std::hash::BuildHasher;
    /// let map = RelativisticMap::<u64, u64>::new();
    /// assert_eq!(map.hasher().hash_one(7), map.hasher().hash_one(7));
    /// ```
    pub fn hasher(&self) -> &S {
        &self.hasher
    }

    /// Creates an empty map with the settings of this one and room for the same number of entries.
    pub(super) fn empty_copy(&self) -> Self
    where
        S: Clone,
    {
        let mut builder = RelativisticMap::<K, V>::builder()
            .hasher(self.hasher.clone())
            .domain(self.domain().clone())
            .backlog_limits(self.removed.limits());
        if let Some(weigh) = self.removed.weigher() {
            builder = builder.weigher(weigh);
        }
        if self.raw.is_automatic() {
            builder.capacity(self.len()).build()
        } else {
            let buckets = self.resize_state().buckets;
            builder.automatic_resize(false).buckets(buckets).build()
        }
    }

    /// The domain whose guards protect readers.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::<u64, u64>::new();
    /// assert_eq!(map.domain().id(), corewise_rcu::Domain::global().id());
    /// ```
    pub fn domain(&self) -> &Domain {
        self.raw.domain()
    }

    /// The number of entries.
    ///
    /// Exact if no other thread changes it meanwhile. Otherwise a number between the least and the
    /// most there were, give or take one for each thread that writes. Linear in the number of
    /// threads.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1), ("b", 2)]);
    /// assert_eq!(map.len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        self.threads.entries()
    }

    /// Whether the map is empty; as exact as [`len`](Self::len).
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// assert!(RelativisticMap::<u64, u64>::new().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reserves room for `additional` entries.
    ///
    /// Enough buckets are in use when it returns, although their chains may still be zipped, and
    /// are kept until [`shrink_to_fit`](Self::shrink_to_fit). Never waits for readers.
    ///
    /// # Errors
    ///
    /// [`ResizeError::NoMemory`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::<u64, u64>::new();
    /// map.reserve(10_000)?;
    /// assert!(map.resize_state().buckets >= 10_000);
    /// # Ok::<(), corewise_maps::relativistic::ResizeError>(())
    /// ```
    pub fn reserve(&self, additional: usize) -> Result<(), ResizeError> {
        let entries = self.len().checked_add(additional);
        let _section = self.raw.domain().pin();
        self.raw.reserve(entries.ok_or(ResizeError::NoMemory)?)
    }

    /// Requests the smallest number of buckets that fits the entries, and permits the map to shrink
    /// to it in future. Updates (or [`settle`](Self::settle)) do the work. A map shrinks by
    /// halving, as long as its number of buckets is even. The shrink may wait for guards that were
    /// pinned before a growth ended. If the map has to grow first, it drops the request.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::<u64, u64>::with_capacity(10_000);
    /// map.shrink_to_fit();
    /// map.settle()?;
    /// assert!(map.resize_state().buckets < 100);
    /// # Ok::<(), corewise_maps::relativistic::ResizeError>(())
    /// ```
    pub fn shrink_to_fit(&self) {
        self.raw.shrink_to_fit();
    }

    /// Resizes to a number of buckets and waits until the chains are unzipped. A map that resizes
    /// by itself may resize again afterwards; see
    /// [`set_automatic_resize`](Self::set_automatic_resize). What was
    /// [reserved](Self::reserve) stays reserved: the map does not shrink by itself below that.
    ///
    /// Use powers of two. A resize goes by integer factors: if neither number of buckets divides
    /// the other, through their greatest common divisor, and then all entries are in that many
    /// chains. Separating a chain of `n` entries takes up to `n` grace periods: with 10,000 entries
    /// and a divisor of 1 a second and more, during which lookups walk long chains. The same holds
    /// for a table that grows by a factor in the thousands at once.
    ///
    /// # Errors
    ///
    /// [`ResizeError`]; nothing is changed, unless memory that was available at first runs out
    /// half-way.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// map.set_automatic_resize(false);
    /// map.resize_to(1 << 10)?;
    /// assert_eq!(map.resize_state().buckets, 1 << 10);
    /// # Ok::<(), corewise_maps::relativistic::ResizeError>(())
    /// ```
    pub fn resize_to(&self, buckets: usize) -> Result<(), ResizeError> {
        self.raw.resize_to(buckets)
    }

    /// Sets whether the map grows and shrinks by itself.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::<u64, u64>::new();
    /// let buckets = map.resize_state().buckets;
    /// map.set_automatic_resize(false);
    /// for n in 0..1_000 {
    ///     map.insert(n, n);
    /// }
    /// assert_eq!(map.resize_state().buckets, buckets);
    /// ```
    pub fn set_automatic_resize(&self, automatic: bool) {
        self.raw.set_automatic(automatic);
    }

    /// The progress of resizing.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map: RelativisticMap<u64, u64> = (0..10_000).map(|n| (n, n)).collect();
    /// println!("{:?}", map.resize_state());
    /// assert!(map.resize_state().buckets >= 10_000);
    /// ```
    pub fn resize_state(&self) -> ResizeState {
        self.raw.resize_state()
    }

    /// The length of the longest chain, nodes of other buckets included. Linear in the number of
    /// entries.
    ///
    /// If the table is not growing, a length above twenty indicates a bad hasher or an attack.
    /// While it grows, a zipped chain has the nodes of several buckets; of many, if a guard is held
    /// for long.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map: RelativisticMap<u64, u64> = (0..1_000).map(|n| (n, n)).collect();
    /// assert!(map.longest_chain() < 20);
    /// ```
    pub fn longest_chain(&self) -> usize {
        let section = self.raw.domain().pin();
        // SAFETY: the section is of the map's domain.
        unsafe { self.raw.longest_chain(&section) }
    }

    /// How full the backlog of removed entries is.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// use corewise_rcu::Pressure;
    /// let map = RelativisticMap::<u64, u64>::new();
    /// assert_eq!(map.pressure(), Pressure::Fine);
    /// ```
    pub fn pressure(&self) -> Pressure {
        self.removed.limits().pressure(self.backlog_bytes())
    }

    /// The [weight](super::Builder::weigher) of the removed entries that are not dropped yet, in
    /// bytes. Linear in the number of threads.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// map.remove("a");
    /// map.settle()?;
    /// assert_eq!(map.backlog_bytes(), 0);
    /// # Ok::<(), corewise_maps::relativistic::ResizeError>(())
    /// ```
    pub fn backlog_bytes(&self) -> usize {
        let open = self.threads.all_public().map(Waiting::bytes);
        open.fold(self.removed.bytes(), usize::saturating_add)
    }

    /// Bytes of nodes, used and free, without the bucket array.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map: RelativisticMap<u64, u64> = (0..1_000).map(|n| (n, n)).collect();
    /// assert!(map.node_bytes() >= 1_000 * 24);
    /// ```
    pub fn node_bytes(&self) -> usize {
        self.slabs().bytes()
    }

    /// Waits until the resize under way is complete and all readers of removed entries have left,
    /// then drops these entries: all that were removed before the call, by this thread or others,
    /// ended or alive. (Another thread may still be dropping some that it found first.)
    ///
    /// # Errors
    ///
    /// [`ResizeError::Pinned`] if the caller holds a guard of the domain.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map: RelativisticMap<u64, u64> = (0..1_000).map(|n| (n, n)).collect();
    /// map.settle()?;
    /// let guard = map.guard();
    /// assert!(map.settle().is_err()); // it would wait for this guard
    /// # drop(guard);
    /// # Ok::<(), corewise_maps::relativistic::ResizeError>(())
    /// ```
    pub fn settle(&self) -> Result<(), ResizeError> {
        self.report();
        self.raw.step(1 << 12);
        while !self.raw.is_settled() {
            self.raw.domain().try_synchronize()?;
            self.raw.step(1 << 12);
        }
        self.collect()?;
        self.give_memory_back();
        Ok(())
    }

    #[inline(always)]
    pub(super) fn slabs(&self) -> &Slabs {
        self.raw.arena()
    }

    /// # Safety
    ///
    /// 1. `id` is that of a node of this map that no thread frees while the pointer is used.
    #[inline(always)]
    pub(super) unsafe fn node(&self, id: NodeId) -> NonNull<Node<K, V>> {
        // SAFETY: all nodes of the map are such nodes; 1.
        unsafe { Node::of(self.slabs().link(id)) }
    }

    pub(super) fn report(&self) {
        let section = self.raw.domain().pin();
        let take = |own: &mut Own| std::mem::take(&mut own.unreported);
        // SAFETY: the section is one of the map's domain, as all sections of its handles (1).
        let unreported = unsafe { self.threads.with(&section, take) };
        self.raw.adjust(unreported);
    }

    fn give_memory_back(&self) {
        let section = self.raw.domain().pin();
        // SAFETY: the section is one of the map's domain, and the map's magazines are used with its
        // slabs only.
        unsafe {
            self.threads
                .with(&section, |own| self.slabs().flush(&mut own.magazine));
        }
    }
}

impl<K, V, S> Drop for RelativisticMap<K, V, S> {
    /// No other thread has the map, so nothing waits. If the drop of a key or value panics, the
    /// others are dropped all the same, and the first panic is resumed.
    fn drop(&mut self) {
        let mut magazine = Magazine::new();
        let mut panics = Panics::default();
        let mut reclaim_batch = |slabs: &Slabs, id: NodeId| {
            // SAFETY: the node is the map's, and reached once: it is either in the table or in a
            // retire list.
            panics.catch(|| unsafe { Node::<K, V>::of(slabs.link(id)).drop_in_place() });
            // SAFETY: the slot is one of these slabs, and its contents are gone (1). The magazine
            // is used in this function only (2).
            unsafe { slabs.free(&mut magazine, id) };
        };
        self.raw.for_each_mut(&mut reclaim_batch);
        let slabs = self.raw.arena();
        let (threads, removed) = (&mut self.threads, &mut self.removed);
        removed.take_all(threads, |node| reclaim_batch(slabs, node));
        panics.resume();
    }
}

impl<K, V, S> RelativisticMap<K, V, S>
where
    S: BuildHasher,
{
    #[inline(always)]
    pub(super) fn hash<Q: ?Sized + Hash>(&self, key: &Q) -> u64 {
        self.hasher.hash_one(key)
    }
}
