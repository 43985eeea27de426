//! The settings of a map.

use std::marker::PhantomData;

use corewise_atomic::alloc::Layout;
use corewise_rcu::{Domain, Limits};

use super::map::{DefaultHasher, FEWEST_BUCKETS, Node, RelativisticMap};
use super::raw::RawTable;
use super::removed::Weigher;
use super::resizer::ResizePolicy;
use super::slab::Slabs;

/// Buckets below which a map's table quadruples, or grows by 8 while it is small. Its buckets then
/// take up to 43 bytes per entry, or 85 while it is small, and 16 MiB at most.
const QUADRUPLE_BELOW: usize = 1 << 20;

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
    weigh: Option<Weigher<K, V>>,
    _entries: PhantomData<fn() -> (K, V)>,
}

impl<K, V, S> Builder<K, V, S> {
    /// Reserves room for this many entries before the map grows.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::<u64, u64>::builder().capacity(1_000).build();
    /// assert!(map.resize_state().buckets >= 1_000);
    /// ```
    pub fn capacity(mut self, entries: usize) -> Self {
        self.buckets = ResizePolicy::buckets_for(entries).max(FEWEST_BUCKETS);
        self
    }

    /// Sets the exact number of buckets; any number except 0.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::<u64, u64>::builder().buckets(100).build();
    /// assert_eq!(map.resize_state().buckets, 100);
    /// ```
    pub fn buckets(mut self, buckets: usize) -> Self {
        self.buckets = buckets;
        self
    }

    /// Sets whether the map grows and shrinks by itself; it does by default.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let builder = RelativisticMap::builder().buckets(8).automatic_resize(false);
    /// let map = builder.build();
    /// for n in 0..100 {
    ///     map.insert(n, n);
    /// }
    /// assert_eq!(map.resize_state().buckets, 8);
    /// ```
    pub fn automatic_resize(mut self, automatic: bool) -> Self {
        self.automatic = automatic;
        self
    }

    /// Sets the hasher.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// use std::hash::RandomState;
    /// let map = RelativisticMap::builder().hasher(RandomState::new()).build();
    /// map.insert("a", 1);
    /// ```
    pub fn hasher<T>(self, hasher: T) -> Builder<K, V, T> {
        Builder {
            buckets: self.buckets,
            automatic: self.automatic,
            hasher,
            domain: self.domain,
            limits: self.limits,
            weigh: self.weigh,
            _entries: PhantomData,
        }
    }

    /// Sets the RCU domain; the default is the global one. A map with its own domain does not wait
    /// for guards of other structures.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// use corewise_rcu::Domain;
    /// let domain = Domain::new();
    /// let map = RelativisticMap::<u64, u64>::builder().domain(domain.clone()).build();
    /// let _guard = corewise_rcu::pin(); // of the global domain
    /// assert!(map.settle().is_ok());
    /// ```
    pub fn domain(mut self, domain: Domain) -> Self {
        self.domain = Some(domain);
        self
    }

    /// Sets the limits of removed entries that wait for readers, in bytes of their weights: see
    /// [`weigher`](Self::weigher).
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// use corewise_rcu::Limits;
    /// let limits = Limits { soft: 1 << 20, hard: 1 << 24 };
    /// let map = RelativisticMap::<u64, u64>::builder().backlog_limits(limits).build();
    /// ```
    pub fn backlog_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets a function that returns the number of bytes that a key and a value own beside their own
    /// size: what a removed entry costs until it is dropped.
    ///
    /// Without it, an entry without a destructor weighs its size, and every other one 2 KiB, or if
    /// it is larger, the next power of two ([`default_weight`](corewise_rcu::default_weight)). A
    /// thread hands its removed entries to all threads, to be dropped after a grace period, when
    /// they weigh 64 KiB together.
    ///
    /// It is called once for each entry that is about to be removed or replaced, and again if
    /// another thread is faster. If it panics, the operation has changed nothing.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let builder = RelativisticMap::builder().weigher(|_: &u64, page: &Vec<u8>| page.capacity());
    /// let pages = builder.build();
    /// pages.insert(1, vec![0; 30_000]);
    /// pages.remove(&1);
    /// assert!(pages.backlog_bytes() >= 30_000);
    /// pages.settle()?;
    /// assert_eq!(pages.backlog_bytes(), 0);
    /// # Ok::<(), corewise_maps::relativistic::ResizeError>(())
    /// ```
    pub fn weigher(mut self, weigh: fn(&K, &V) -> usize) -> Self {
        self.weigh = Some(weigh);
        self
    }

    /// Builds the map.
    ///
    /// # Panics
    ///
    /// If memory for the buckets is not available, or their number is 0.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::builder().capacity(100).build();
    /// map.insert("a", 1);
    /// ```
    pub fn build(self) -> RelativisticMap<K, V, S> {
        let policy = ResizePolicy {
            quadruple_below: QUADRUPLE_BELOW,
            min_buckets: self.buckets,
            automatic: self.automatic,
            huge_pages: true,
        };
        let domain = self.domain.unwrap_or_else(|| Domain::global().clone());
        let slabs = Slabs::new(Layout::new::<Node<K, V>>());
        let raw = RawTable::new(self.buckets, policy, domain, slabs);
        RelativisticMap::of(raw, self.hasher, self.limits, self.weigh)
    }
}

impl<K, V> RelativisticMap<K, V> {
    /// Returns a builder for a map with other settings.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::<u64, u64>::builder().capacity(100).build();
    /// assert!(map.is_empty());
    /// ```
    pub fn builder() -> Builder<K, V> {
        Builder {
            buckets: FEWEST_BUCKETS,
            automatic: true,
            hasher: DefaultHasher::default(),
            domain: None,
            limits: Limits::DEFAULT,
            weigh: None,
            _entries: PhantomData,
        }
    }
}
