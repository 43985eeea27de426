//! The safe map over the raw table: nodes, their memory, reclamation, and when to resize.

use std::borrow::Borrow;
use std::cell::Cell;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::time::Duration;

use corewise_atomic::alloc::Layout;
use corewise_atomic::lock::Mutex;
use corewise_rcu::{Budget, Cookie, Domain, Guard, Limits, Pressure, RetireList, Section};
use corewise_rcu::{is_reclaiming, reclaiming};

use super::chain::{Arena, Link};
use super::owned::PerThread;
use super::raw::{Policy, RawIter, RawTable};
use super::resize::{ResizeError, ResizeState};
use super::slab::{Magazine, Slabs, View};
use super::word::NodeId;
use crate::batch;
use crate::panics::{self, Panics};

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
const FEWEST_BUCKETS: usize = 16;
#[cfg(corewise_stress)]
const FEWEST_BUCKETS: usize = 1;
/// Buckets by which an update advances a resize.
#[cfg(not(corewise_stress))]
const STEP: usize = 8;
#[cfg(corewise_stress)]
const STEP: usize = 1;

/// A node of the table, as drawn in the header of the module.
#[repr(C)]
pub(super) struct Node<K, V> {
    link: Link,
    pub(super) key: K,
    pub(super) value: V,
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

/// How long an update waits for readers when the backlog is over its soft limit.
const PATIENCE: Duration = Duration::from_secs(1);

/// A concurrent hash map with wait-free lookups that a resize does not disturb.
///
/// All access goes through a handle, which [`pin`](Self::pin) creates; it keeps the references that
/// it returns valid. Handles are cheap: use one for an operation or a few. See the [module](super)
/// for the algorithm and its costs, and [`MapRef`] for the operations.
///
/// ```
/// use corewise_maps::RelativisticMap;
///
/// let map = RelativisticMap::new();
/// std::thread::scope(|scope| {
///     for name in ["ada", "grace", "barbara"] {
///         let map = &map;
///         scope.spawn(move || {
///             map.pin().insert(name, name.len());
///         });
///     }
/// });
/// assert_eq!(map.pin().get("grace"), Some(&5));
/// assert_eq!(map.len(), 3);
/// ```
pub struct RelativisticMap<K, V, S = DefaultHasher> {
    pub(super) raw: RawTable<Slabs>,
    hasher: S,
    threads: PerThread<Own<K, V>>,
    backlog: Budget,
    /// Batches of removed entries beyond the soft limit, for any thread to free: a thread that ends
    /// may leave no more than that behind.
    surplus: Mutex<RetireList<Retired<K, V>>>,
}

// SAFETY: the map owns its entries; threads share them by reference, and drop those of others.
unsafe impl<K: Send + Sync, V: Send + Sync, S: Send> Send for RelativisticMap<K, V, S> {}
// SAFETY: the same as for `Send`; the hasher is shared.
unsafe impl<K: Send + Sync, V: Send + Sync, S: Sync> Sync for RelativisticMap<K, V, S> {}

/// A thread's private data in a map.
struct Own<K, V> {
    magazine: Magazine,
    retire_list: RetireList<Retired<K, V>>,
    /// The change of the number of entries that was not reported to the table yet.
    unreported: isize,
}

/// A node that was removed.
struct Retired<K, V>(NodeId, PhantomData<Node<K, V>>);

// SAFETY: it represents the node's key and value.
unsafe impl<K: Send, V: Send> Send for Retired<K, V> {}

impl<K, V> Default for Own<K, V> {
    fn default() -> Self {
        Self {
            magazine: Magazine::new(),
            retire_list: RetireList::new(),
            unreported: 0,
        }
    }
}

/// The settings of a [`RelativisticMap`]; returned by [`RelativisticMap::builder`].
///
/// ```
/// use corewise_maps::RelativisticMap;
/// let map: RelativisticMap<u64, u64> = RelativisticMap::builder()
///     .buckets(1 << 10)
///     .automatic_resize(false)
///     .build();
/// assert_eq!(map.resize_state().buckets, 1 << 10);
/// ```
pub struct Builder<K, V, S = DefaultHasher> {
    buckets: usize,
    automatic: bool,
    hasher: S,
    domain: Option<Domain>,
    limits: Limits,
    _entries: PhantomData<fn() -> (K, V)>,
}

impl<K, V, S> Builder<K, V, S> {
    /// Reserves room for this many entries before the map grows.
    pub fn capacity(mut self, entries: usize) -> Self {
        self.buckets = Policy::buckets_for(entries).max(FEWEST_BUCKETS);
        self
    }

    /// Sets the exact number of buckets; any number except 0.
    pub fn buckets(mut self, buckets: usize) -> Self {
        self.buckets = buckets;
        self
    }

    /// Sets whether the map grows and shrinks by itself; it does by default.
    pub fn automatic_resize(mut self, automatic: bool) -> Self {
        self.automatic = automatic;
        self
    }

    /// Sets the hasher.
    pub fn hasher<T>(self, hasher: T) -> Builder<K, V, T> {
        Builder {
            buckets: self.buckets,
            automatic: self.automatic,
            hasher,
            domain: self.domain,
            limits: self.limits,
            _entries: PhantomData,
        }
    }

    /// Sets the RCU domain; the default is the global one. A map with its own domain does not wait
    /// for guards of other structures.
    pub fn domain(mut self, domain: Domain) -> Self {
        self.domain = Some(domain);
        self
    }

    /// Sets the limits of removed entries that wait for readers, in bytes of nodes. (Memory that
    /// keys and values own elsewhere is not counted.)
    pub fn backlog_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Builds the map.
    ///
    /// # Panics
    ///
    /// If memory for the buckets is not available, or their number is 0.
    pub fn build(self) -> RelativisticMap<K, V, S> {
        let policy = Policy {
            min_buckets: self.buckets,
            automatic: self.automatic,
            huge_pages: true,
        };
        let domain = self.domain.unwrap_or_else(|| Domain::global().clone());
        let slabs = Slabs::new(Layout::new::<Node<K, V>>());
        RelativisticMap {
            raw: RawTable::new(self.buckets, policy, domain, slabs),
            hasher: self.hasher,
            threads: PerThread::new(),
            backlog: Budget::new(self.limits),
            surplus: Mutex::new(RetireList::new()),
        }
    }
}

impl<K, V> RelativisticMap<K, V> {
    /// Creates an empty map.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Creates an empty map with room for `entries` before it grows.
    ///
    /// # Panics
    ///
    /// As [`Builder::build`].
    pub fn with_capacity(entries: usize) -> Self {
        Self::builder().capacity(entries).build()
    }

    /// Returns a builder for a map with other settings.
    pub fn builder() -> Builder<K, V> {
        Builder {
            buckets: FEWEST_BUCKETS,
            automatic: true,
            hasher: DefaultHasher::default(),
            domain: None,
            limits: Limits::DEFAULT,
            _entries: PhantomData,
        }
    }
}

impl<K, V, S> RelativisticMap<K, V, S> {
    /// Creates an empty map with this hasher.
    pub fn with_hasher(hasher: S) -> Self {
        RelativisticMap::<K, V>::builder().hasher(hasher).build()
    }

    /// Creates an empty map with this hasher and room for `entries` before it grows.
    ///
    /// # Panics
    ///
    /// As [`Builder::build`].
    pub fn with_capacity_and_hasher(entries: usize, hasher: S) -> Self {
        let builder = RelativisticMap::<K, V>::builder().capacity(entries);
        builder.hasher(hasher).build()
    }

    /// The map's hasher.
    pub fn hasher(&self) -> &S {
        &self.hasher
    }

    /// Creates an empty map with the settings of this one and room for the same number of entries.
    pub(super) fn empty_copy(&self) -> Self
    where
        S: Clone,
    {
        let builder = RelativisticMap::<K, V>::builder()
            .hasher(self.hasher.clone())
            .domain(self.domain().clone())
            .backlog_limits(self.backlog.limits());
        if self.raw.is_automatic() {
            builder.capacity(self.len()).build()
        } else {
            let buckets = self.resize_state().buckets;
            builder.automatic_resize(false).buckets(buckets).build()
        }
    }

    /// The domain whose guards protect readers.
    pub fn domain(&self) -> &Domain {
        self.raw.domain()
    }

    /// Creates a handle, which enters a read-side critical section. Wait-free; see
    /// [`Domain::pin`](corewise_rcu::Domain::pin).
    ///
    /// While the handle lives, nothing that is removed from any map of the domain is freed: keep it
    /// for an operation or a few.
    #[inline(always)]
    pub fn pin(&self) -> MapRef<'_, K, V, S> {
        MapRef {
            section: ManuallyDrop::new(self.raw.domain().pin()),
            map: self,
            due: Cell::new(false),
        }
    }

    /// Creates a handle in a section that the caller already has: a [`Guard`],
    /// or a [`QsbrGuard`](corewise_rcu::QsbrGuard) of an event loop.
    ///
    /// # Panics
    ///
    /// If the section belongs to another domain than the map.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let (ages, towns) = (RelativisticMap::new(), RelativisticMap::new());
    /// let guard = corewise_rcu::pin();
    /// ages.within(&guard).insert("ada", 36);
    /// towns.within(&guard).insert("ada", "London");
    /// ```
    #[inline]
    pub fn within<'g, G: Section>(&'g self, section: &'g G) -> MapRef<'g, K, V, S, &'g G> {
        assert_eq!(
            section.domain_id(),
            self.raw.domain().id(),
            "the section is one of another domain"
        );
        MapRef {
            section: ManuallyDrop::new(section),
            map: self,
            due: Cell::new(false),
        }
    }

    /// The number of entries.
    ///
    /// Exact if no other thread changes it meanwhile. Otherwise a number between the least and the
    /// most there were, give or take one for each thread that writes. Linear in the number of
    /// threads.
    pub fn len(&self) -> usize {
        self.threads.entries()
    }

    /// Whether the map is empty; as exact as [`len`](Self::len).
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
    pub fn reserve(&self, additional: usize) -> Result<(), ResizeError> {
        let entries = self.len().checked_add(additional);
        let _section = self.raw.domain().pin();
        self.raw.reserve(entries.ok_or(ResizeError::NoMemory)?)
    }

    /// Requests the smallest number of buckets that fits the entries, and permits the map to shrink
    /// to it in future. Updates (or [`settle`](Self::settle)) do the work.
    pub fn shrink_to_fit(&self) {
        self.raw.shrink_to_fit();
    }

    /// Resizes to a number of buckets and waits until the chains are unzipped. A map that resizes
    /// by itself may resize again afterwards; see
    /// [`set_automatic_resize`](Self::set_automatic_resize).
    ///
    /// # Errors
    ///
    /// [`ResizeError`]; nothing is changed, unless memory that was available at first runs out
    /// half-way.
    pub fn resize_to(&self, buckets: usize) -> Result<(), ResizeError> {
        self.raw.resize_to(buckets)
    }

    /// Sets whether the map grows and shrinks by itself.
    pub fn set_automatic_resize(&self, automatic: bool) {
        self.raw.set_automatic(automatic);
    }

    /// The progress of resizing.
    pub fn resize_state(&self) -> ResizeState {
        self.raw.resize_state()
    }

    /// The length of the longest chain, nodes of other buckets included. Linear in the number of
    /// entries.
    ///
    /// A length above ten or twenty indicates a bad hasher, or keys that were chosen against it.
    pub fn longest_chain(&self) -> usize {
        let section = self.raw.domain().pin();
        // SAFETY: the section is of the map's domain.
        unsafe { self.raw.longest_chain(&section) }
    }

    /// How full the backlog of removed entries is.
    pub fn pressure(&self) -> Pressure {
        self.backlog.pressure()
    }

    /// Bytes of removed entries that wait for readers, except for each thread's last few.
    pub fn backlog_bytes(&self) -> usize {
        self.backlog.bytes()
    }

    /// Bytes of nodes, used and free, without the bucket array.
    pub fn node_bytes(&self) -> usize {
        self.slabs().bytes()
    }

    /// Waits until the resize under way is complete, then frees the entries that the calling thread
    /// removed, and those of other threads beyond the soft limit of the backlog.
    ///
    /// # Errors
    ///
    /// [`ResizeError::Pinned`] if the caller holds a guard of the domain.
    pub fn settle(&self) -> Result<(), ResizeError> {
        self.report();
        self.raw.step(1 << 12);
        while !self.raw.is_settled() {
            self.raw.domain().try_synchronize()?;
            self.raw.step(1 << 12);
        }
        // SAFETY: 1: pinned here.
        unsafe { self.close_batch(&self.raw.domain().pin()) };
        self.raw.domain().try_synchronize()?;
        self.reclaim_ready();
        self.give_memory_back();
        Ok(())
    }

    #[inline(always)]
    fn slabs(&self) -> &Slabs {
        self.raw.arena()
    }

    /// # Safety
    ///
    /// 1. `id` is that of a node of this map that no thread frees while the pointer is used.
    #[inline(always)]
    unsafe fn node(&self, id: NodeId) -> NonNull<Node<K, V>> {
        // SAFETY: all nodes of the map are such nodes; 1.
        unsafe { Node::of(self.slabs().link(id)) }
    }

    fn report(&self) {
        let section = self.raw.domain().pin();
        let take = |own: &mut Own<K, V>| std::mem::take(&mut own.unreported);
        // SAFETY: 1: sections of a map are of its domain.
        let unreported = unsafe { self.threads.with(&section, take) };
        self.raw.adjust(unreported);
    }

    /// Closes the batch of the section's thread; returns the cookie that it waits for.
    ///
    /// # Safety
    ///
    /// 1. The section is one of the map's domain.
    unsafe fn close_batch(&self, section: &impl Section) -> Cookie {
        let cookie = self.raw.domain().start_poll();
        let close = |own: &mut Own<K, V>| {
            own.retire_list.close(cookie, &self.backlog);
            if self.backlog.pressure() != Pressure::Fine {
                self.surplus.lock().adopt(&mut own.retire_list);
            }
        };
        // SAFETY: 1: as all sections that are used with this map, by our 1.
        unsafe { self.threads.with(section, close) };
        cookie
    }

    /// Reclaims all batches that no longer wait; returns false if this thread is already
    /// reclaiming. (A drop may remove more entries; the outer loop then reclaims them.)
    fn reclaim_ready(&self) -> bool {
        let owner = ptr::from_ref(self).cast();
        if is_reclaiming(owner) {
            return false;
        }
        reclaiming(owner, || while self.reclaim() {});
        true
    }

    /// Reclaims one batch that no longer waits; returns whether there was one. Drops keys and
    /// values outside of the section.
    fn reclaim(&self) -> bool {
        let batch = {
            let section = self.raw.domain().pin();
            // Quietly: the handler of a stall may use the map, and call this function again.
            let is_complete = |cookie| self.raw.domain().poll_quietly(cookie);
            // SAFETY: 1: sections of a map are of its domain.
            unsafe {
                self.threads.with(&section, |own| {
                    own.retire_list.take_ready(&self.backlog, is_complete)
                })
            }
        };
        let is_complete = |cookie| self.raw.domain().poll_quietly(cookie);
        let surplus = || self.surplus.lock().take_ready(&self.backlog, is_complete);
        let batch = batch.or_else(surplus);
        // SAFETY: 1: retired by handles of this map, and no longer waiting.
        let reclaim = |batch| unsafe { self.reclaim_batch(batch) };
        batch.map(reclaim).is_some()
    }

    fn give_memory_back(&self) {
        let section = self.raw.domain().pin();
        // SAFETY: 1: sections of a map are of its domain. 1: the map's magazines are used with its
        // slabs only.
        unsafe {
            self.threads
                .with(&section, |own| self.slabs().flush(&mut own.magazine));
        }
    }
}

impl<K, V, S> RelativisticMap<K, V, S> {
    /// Drops a batch that no longer waits for readers. A panic in the drop of a key or value is
    /// reported by the panic hook and goes no further: the thread that reclaims an entry is rarely
    /// the one that removed it.
    ///
    /// # Safety
    ///
    /// 1. The batch is one of this map, and a grace period has passed since it was closed.
    unsafe fn reclaim_batch(&self, mut batch: Vec<Retired<K, V>>) {
        let mut nodes = batch.iter();
        // SAFETY: a grace period has passed since the node was removed, by 1, so no other thread
        // has it; the iterator yields it once.
        let drop_all = |retired: &Retired<K, V>| unsafe { self.node(retired.0).drop_in_place() };
        while let Err(payload) =
            catch_unwind(AssertUnwindSafe(|| nodes.by_ref().for_each(drop_all)))
        {
            panics::discard(payload);
        }
        let section = self.raw.domain().pin();
        let give = |own: &mut Own<K, V>| {
            for retired in batch.drain(..) {
                // SAFETY: 1: dropped above, and a slot of these slabs. 2: a magazine of this map.
                unsafe { self.slabs().free(&mut own.magazine, retired.0) };
            }
            if self.slabs().is_wasteful(self.raw.count()) {
                // SAFETY: 1: a magazine of this map.
                unsafe { self.slabs().flush(&mut own.magazine) };
            }
            own.retire_list.recycle(std::mem::take(&mut batch));
        };
        // SAFETY: sections of a map are of its domain.
        unsafe { self.threads.with(&section, give) };
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
            // SAFETY: 1: a slot of these slabs, whose contents are gone. 2: used here only.
            unsafe { slabs.free(&mut magazine, id) };
        };
        self.raw.for_each_mut(&mut reclaim_batch);
        let (slabs, backlog) = (self.raw.arena(), &self.backlog);
        self.threads.for_each_mut(|own| {
            for retired in own.retire_list.take_all(backlog) {
                reclaim_batch(slabs, retired.0);
            }
        });
        for retired in self.surplus.get_mut().take_all(backlog) {
            reclaim_batch(slabs, retired.0);
        }
        panics.resume();
    }
}

/// A handle of a [`RelativisticMap`]: a read-side critical section in which the map is used.
/// References that it returns are valid as long as the handle is borrowed.
///
/// Updates are visible to every handle at once, also to handles that were created earlier. `K` and
/// `V` are compared, hashed, cloned and dropped outside of all locks. If that panics, the map stays
/// consistent, and the operation has either taken effect or not.
///
/// | | cost | progress |
/// |---|---|---|
/// | `get`, `contains_key`, ... | constant, expected | wait-free |
/// | `insert`, `remove`, ... | constant, expected | lock-free except for the bucket: an update waits for another update of the same bucket, and for a resize step on it |
///
/// A handle cannot be sent to another thread:
///
/// ```compile_fail,E0277
/// let map = corewise_maps::RelativisticMap::from([(1, 2)]);
/// let handle = map.pin();
/// std::thread::scope(|scope| scope.spawn(move || drop(handle)));
/// ```
///
/// References cannot outlive the handle:
///
/// ```compile_fail,E0505
/// let map = corewise_maps::RelativisticMap::from([(1, 2)]);
/// let handle = map.pin();
/// let value = handle.get(&1);
/// drop(handle);
/// assert_eq!(value, Some(&2));
/// ```
///
/// Stored references must outlive the map:
///
/// ```compile_fail,E0597
/// let map = corewise_maps::RelativisticMap::new();
/// {
///     let word = String::from("short");
///     map.pin().insert(1, word.as_str());
/// }
/// assert_eq!(map.len(), 1);
/// ```
///
/// A map whose contents threads must not share cannot be shared:
///
/// ```compile_fail,E0277
/// let map = corewise_maps::RelativisticMap::from([(1, std::rc::Rc::new(2))]);
/// std::thread::scope(|scope| scope.spawn(|| map.len()));
/// ```
pub struct MapRef<'m, K, V, S = DefaultHasher, G: Section = Guard<'m>> {
    section: ManuallyDrop<G>,
    map: &'m RelativisticMap<K, V, S>,
    /// Whether a batch of removed entries may be ready when the section ends.
    due: Cell<bool>,
}

impl<K, V, S, G: Section> Drop for MapRef<'_, K, V, S, G> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.section) };
        if self.due.get() {
            self.map.relieve();
        }
    }
}

impl<K, V, S> RelativisticMap<K, V, S> {
    /// Runs after a handle that closed a batch: reclaims what is ready. Beyond the soft limit, if
    /// the thread holds no other guard, also waits for readers to make more ready.
    #[cold]
    fn relieve(&self) {
        if !self.reclaim_ready() || self.backlog.pressure() == Pressure::Fine {
            return;
        }
        // The wait is bounded: a reader may be waiting for this thread.
        if self.raw.domain().synchronize_timeout(PATIENCE) == Ok(true) {
            self.reclaim_ready();
        }
    }
}

impl<'m, K, V, S, G: Section> MapRef<'m, K, V, S, G> {
    /// The map that this is a handle of.
    pub fn map(&self) -> &'m RelativisticMap<K, V, S> {
        self.map
    }

    /// As [`RelativisticMap::len`].
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// As [`RelativisticMap::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    #[inline(always)]
    pub(super) fn raw_iter(&self) -> RawIter<'_, Slabs> {
        // SAFETY: the section is of the map's domain, and what is lent borrows this handle.
        unsafe { self.map.raw.iter(&*self.section) }
    }

    /// # Safety
    ///
    /// 1. `link` is that of a node of this map, found in this section.
    #[inline(always)]
    pub(super) unsafe fn node(&self, link: NonNull<Link>) -> &Node<K, V> {
        // SAFETY: all links of this map are of such nodes, and the section keeps it alive, by 1.
        unsafe { Node::of(link).as_ref() }
    }

    /// Finds the node with a key.
    #[inline(always)]
    pub(super) fn find<Q>(&self, hash: u64, key: &Q) -> Option<&Node<K, V>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq,
    {
        // SAFETY: the section is of the map's domain; links are of nodes of this map, and its slabs
        // were made for them.
        unsafe {
            let eq = |link| self.node(link).key.borrow() == key;
            let view = View::<Node<K, V>>::new(self.map.slabs());
            let raw = &self.map.raw;
            let link = raw.find_by(&view, &*self.section, hash, eq)?;
            Some(self.node(link))
        }
    }

    /// Applies `give` to the nodes with some keys, or to `None` for absent keys. Each is found as
    /// by [`find`](Self::find), in groups as [`crate::batch`] describes.
    ///
    /// # Panics
    ///
    /// If `out` and `keys` differ in length.
    #[inline(always)]
    pub(super) fn find_many<'h, 'q, Q, T>(
        &'h self,
        keys: impl IntoIterator<Item = &'q Q, IntoIter: ExactSizeIterator>,
        out: &mut [T],
        give: impl Fn(Option<&'h Node<K, V>>) -> T,
    ) where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash + 'q,
        S: BuildHasher,
    {
        let (raw, section) = (&self.map.raw, &*self.section);
        // SAFETY: its slabs were made for such nodes.
        let view = unsafe { View::<Node<K, V>>::new(self.map.slabs()) };
        let fetch = |node: Option<NonNull<Link>>| {
            let node = node.map_or(ptr::null(), |link| link.as_ptr().cast_const());
            batch::prefetch_entry(node, size_of::<Node<K, V>>());
        };
        batch::in_groups(keys, out, |keys, out| {
            batch::in_stages(
                keys,
                out,
                |key| self.map.hash(key),
                // SAFETY: the section is of the map's domain.
                |hash| unsafe { raw.prefetch(section, hash) },
                // SAFETY: the section is of the map's domain; the view is of the table's arena.
                |hash| fetch(unsafe { raw.first_by(&view, section, hash) }),
                // SAFETY: the section is of the map's domain; the view is of the table's arena.
                |hash| fetch(unsafe { raw.second_by(&view, section, hash) }),
                |hash, key| give(self.find(hash, key)),
            );
        });
    }

    /// Creates a node that is in no table.
    #[inline]
    pub(super) fn make(&self, hash: u64, key: K, value: V) -> Fresh<'_, 'm, K, V, S, G> {
        let slabs = self.map.slabs();
        // SAFETY: 1: the section is of the map's domain. 1: a magazine of this map.
        let slot = unsafe {
            let threads = &self.map.threads;
            threads.with(&*self.section, |own| slabs.alloc(&mut own.magazine))
        };
        let Some(id) = slot else {
            std::alloc::handle_alloc_error(Layout::new::<Node<K, V>>())
        };
        let link = Link::new(hash);
        // SAFETY: the slot has the layout of a node and is ours.
        let node = unsafe {
            let node = self.map.node(id);
            node.write(Node { link, key, value });
            node
        };
        Fresh {
            handle: self,
            id,
            node,
        }
    }

    /// Removes a node that was found; returns false if it is gone.
    ///
    /// # Safety
    ///
    /// 1. The node was found or linked by this handle.
    #[inline]
    pub(super) unsafe fn unlink(&self, node: &Node<K, V>) -> bool {
        let node = NonNull::from(node);
        // SAFETY: the section is of the map's domain, and the node was found in it, by 1.
        let removed = unsafe { self.map.raw.remove(&*self.section, node.cast()) };
        if let Some(removed) = removed {
            // SAFETY: 1: removed just now.
            unsafe { self.retire(removed, -1) };
        }
        removed.is_some()
    }

    /// Keeps a removed node until readers have left it.
    ///
    /// # Safety
    ///
    /// 1. The caller has removed the node from this map's table.
    #[inline]
    unsafe fn retire(&self, node: NodeId, by: isize) {
        let bytes = size_of::<Node<K, V>>();
        let retired = Retired(node, PhantomData);
        self.changed(by, |retire_list| retire_list.push(retired, bytes));
    }

    /// Counts, retires, and does a share of the resizing.
    #[inline]
    fn changed(&self, by: isize, retire: impl FnOnce(&mut RetireList<Retired<K, V>>) -> bool) {
        let map = self.map;
        let update = |own: &mut Own<K, V>| {
            let full = retire(&mut own.retire_list);
            own.unreported += by;
            let due = own.unreported.unsigned_abs() >= map.raw.report_after();
            let report = if due {
                std::mem::take(&mut own.unreported)
            } else {
                0
            };
            (full, report)
        };
        // SAFETY: the section is of the map's domain.
        let (full, report) = unsafe { map.threads.count(&*self.section, by, update) };
        if report != 0 {
            map.raw.adjust(report);
        }
        if map.raw.has_work() {
            map.raw.step(STEP);
        }
        if full {
            self.close();
        }
    }

    #[cold]
    fn close(&self) {
        let map = self.map;
        // SAFETY: 1: the handle's section.
        let cookie = unsafe { map.close_batch(&*self.section) };
        map.raw.domain().poll(cookie);
        self.due.set(true);
    }
}

/// A node that is in no table yet; dropping it frees it.
pub(super) struct Fresh<'h, 'm, K, V, S, G: Section> {
    handle: &'h MapRef<'m, K, V, S, G>,
    id: NodeId,
    node: NonNull<Node<K, V>>,
}

impl<'h, K, V, S, G: Section> Fresh<'h, '_, K, V, S, G> {
    /// Links the node unless its key is present; otherwise returns the present node and this one.
    #[inline]
    #[expect(clippy::type_complexity, reason = "the two nodes of an occupied key")]
    pub(super) fn link(self) -> Result<&'h Node<K, V>, (&'h Node<K, V>, Self)>
    where
        K: Eq,
    {
        let (handle, node) = (self.handle, self.node);
        // SAFETY: the section is of the map's domain; the node is fresh, stays in its slot and is
        // freed by `retire` alone.
        let inserted = unsafe {
            let key = &node.as_ref().key;
            let eq = |link| handle.node(link).key == *key;
            handle.map.raw.insert(&*handle.section, self.id, eq)
        };
        match inserted {
            Ok(()) => {
                std::mem::forget(self);
                handle.changed(1, |_| false);
                // SAFETY: linked, and kept by the section.
                Ok(unsafe { node.as_ref() })
            }
            // SAFETY: 1: found in this section.
            Err(found) => Err((unsafe { handle.node(found) }, self)),
        }
    }

    /// Replaces a node; returns this one if that node is gone.
    ///
    /// # Safety
    ///
    /// 1. `old` was found by this node's handle, by the hash that this node was made with.
    #[inline]
    pub(super) unsafe fn swap(self, old: &'h Node<K, V>) -> Result<&'h Node<K, V>, Self> {
        let (handle, node) = (self.handle, self.node);
        let old = NonNull::from(old);
        // SAFETY: as in `link`; `old` was found in this section, and has the same hash, by 1.
        let replaced = unsafe {
            let raw = &handle.map.raw;
            raw.replace(&*handle.section, old.cast(), self.id)
        };
        let Some(replaced) = replaced else {
            return Err(self);
        };
        std::mem::forget(self);
        // SAFETY: 1: removed just now.
        unsafe { handle.retire(replaced, 0) };
        // SAFETY: linked, and kept by the section.
        Ok(unsafe { node.as_ref() })
    }

    /// Returns the value, drops the key, and frees the node's memory.
    pub(super) fn into_value(self) -> V {
        // SAFETY: the node is ours; `forget` keeps it from being dropped again.
        let Node { key, value, .. } = unsafe { self.node.read() };
        self.free();
        std::mem::forget(self);
        // Before `value` is returned: it would be leaked if this panicked.
        drop(key);
        value
    }

    fn free(&self) {
        let map = self.handle.map;
        // SAFETY: 1: the section is of the map's domain. 1 and 2: a slot and a magazine of the
        // map's slabs; its contents are gone.
        unsafe {
            map.threads.with(&*self.handle.section, |own| {
                map.slabs().free(&mut own.magazine, self.id);
            });
        }
    }
}

impl<K, V, S, G: Section> Drop for Fresh<'_, '_, K, V, S, G> {
    fn drop(&mut self) {
        /// Frees the slot even if the drop panics.
        struct Free<'f, 'h, 'm, K, V, S, G: Section>(&'f Fresh<'h, 'm, K, V, S, G>);
        impl<K, V, S, G: Section> Drop for Free<'_, '_, '_, K, V, S, G> {
            fn drop(&mut self) {
                self.0.free();
            }
        }
        let free = Free(self);
        // SAFETY: no other thread has seen the node.
        unsafe { free.0.node.drop_in_place() };
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
