//! Settings of a map.

use std::marker::PhantomData;

use corewise_atomic::sync::Arc;
use corewise_rcu::Domain;

use super::memory_budget::MemoryBudget;
use super::{CopyMap, Limited, Table, TableVersion, Unlimited};
use crate::relativistic::DefaultHasher;

/// Under `corewise_stress` tables begin with one bucket.
const fn fewest_buckets<T: Table>() -> usize {
    if cfg!(corewise_stress) {
        1
    } else {
        T::FEWEST_BUCKETS
    }
}

/// Settings of a new [`CopyMap`]; made by [`CopyMap::builder`].
///
/// ```
/// use corewise_maps::clht::LockBased;
/// use corewise_maps::copy_map::Full;
/// let map = LockBased::builder()
///     .buckets(1)
///     .max_buckets(1)
///     .max_bytes(128)
///     .build();
/// // One bucket, and one that overflows from it.
/// assert!((0..6).all(|key| map.pin().insert(key, 0).is_ok()));
/// assert_eq!(map.pin().insert(6, 0), Err(Full));
/// ```
pub struct Builder<T, S = DefaultHasher, L = Unlimited> {
    buckets: usize,
    max_buckets: usize,
    max_bytes: usize,
    automatic: bool,
    hasher: S,
    domain: Option<Domain>,
    _table: PhantomData<fn() -> (T, L)>,
}

impl<T: Table> Builder<T> {
    pub(super) fn new() -> Self {
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

impl<T: Table, S, L> Builder<T, S, L> {
    /// Sets the number of entries that the map has room for before it grows.
    ///
    /// ```
    /// # use corewise_maps::cuckoo::CuckooMap;
    /// let map = CuckooMap::<u64, u64>::builder().capacity(1_000).build();
    /// assert!(map.buckets() >= 256);
    /// ```
    pub fn capacity(mut self, entries: usize) -> Self {
        self.buckets = T::buckets_for(entries).max(fewest_buckets::<T>());
        self
    }

    /// Sets the number of buckets, rounded up to a power of two.
    ///
    /// ```
    /// # use corewise_maps::cuckoo::CuckooMap;
    /// let map = CuckooMap::<u64, u64>::builder().buckets(100).build();
    /// assert_eq!(map.buckets(), 128);
    /// ```
    pub fn buckets(mut self, buckets: usize) -> Self {
        self.buckets = buckets;
        self
    }

    /// Sets the most buckets that the map grows to, rounded down to a power of two; 2^40 if not
    /// set. Beyond that chains get longer.
    ///
    /// ```
    /// # use corewise_maps::cuckoo::CuckooMap;
    /// let map = CuckooMap::builder().buckets(1).max_buckets(7).build();
    /// (0..100u64).for_each(|key| assert_eq!(map.pin().insert(key, ()), None));
    /// assert!(map.buckets() <= 4);
    /// ```
    pub fn max_buckets(mut self, buckets: usize) -> Self {
        self.max_buckets = buckets;
        self
    }

    /// Limits the bytes of buckets, including those of replaced tables that wait for readers. If
    /// not set, the allocator is the limit.
    ///
    /// The map is a [`Limited`] one, whose insertions return a `Result`. With `usize::MAX` they
    /// report lack of memory, where those of an [`Unlimited`] map panic.
    ///
    /// While it grows, the map has two tables: with less than three times the size of the smaller
    /// one it does not grow.
    ///
    /// ```
    /// use corewise_maps::{clht::LockBased, copy_map::Full};
    /// let map = LockBased::builder().max_bytes(1 << 10).build();
    /// let inserted = (0..1_000u64).filter(|key| map.pin().insert(*key, 0u64) != Err(Full));
    /// assert!((16..200).contains(&inserted.count()) && map.bytes() <= 1 << 10);
    /// ```
    pub fn max_bytes(mut self, bytes: usize) -> Builder<T, S, Limited> {
        self.max_bytes = bytes;
        self.convert(|hasher| hasher)
    }

    /// Sets whether the map grows by itself; by default it does. It shrinks only when told to.
    ///
    /// ```
    /// # use corewise_maps::cuckoo::CuckooMap;
    /// let map = CuckooMap::builder().buckets(2).automatic_resize(false).build();
    /// (0..100u64).for_each(|key| assert_eq!(map.pin().insert(key, ()), None));
    /// assert_eq!(map.buckets(), 2);
    /// ```
    pub fn automatic_resize(mut self, automatic: bool) -> Self {
        self.automatic = automatic;
        self
    }

    /// Sets the hasher. It also runs while entries are moved, and must not use the map then.
    ///
    /// ```
    /// use std::hash::RandomState;
    /// use corewise_maps::cuckoo::CuckooMap;
    /// let map = CuckooMap::builder().hasher(RandomState::new()).build();
    /// map.pin().insert("key", 1);
    /// assert_eq!(map.pin().get(&"key"), Some(1));
    /// ```
    pub fn hasher<H>(self, hasher: H) -> Builder<T, H, L> {
        self.convert(|_| hasher)
    }

    fn convert<H, M>(self, hasher: impl FnOnce(S) -> H) -> Builder<T, H, M> {
        Builder {
            buckets: self.buckets,
            max_buckets: self.max_buckets,
            max_bytes: self.max_bytes,
            automatic: self.automatic,
            hasher: hasher(self.hasher),
            domain: self.domain,
            _table: PhantomData,
        }
    }

    /// Sets the RCU domain whose sections protect readers; the global one by default.
    ///
    /// ```
    /// use corewise_rcu::Domain;
    /// # use corewise_maps::cuckoo::CuckooMap;
    /// let domain = Domain::new();
    /// let map = CuckooMap::<u64, u64>::builder().domain(domain.clone()).build();
    /// assert_eq!(map.domain().id(), domain.id());
    /// ```
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
    ///
    /// ```
    /// # use corewise_maps::cuckoo::CuckooMap;
    /// let map = CuckooMap::<u64, u64>::builder().build();
    /// assert!(map.is_empty());
    /// ```
    pub fn build(self) -> CopyMap<T, S, L> {
        let Self { max_buckets, .. } = self;
        assert!(self.buckets > 0 && max_buckets > 0, "no buckets");
        let max_buckets = 1 << max_buckets.ilog2();
        let buckets = self.buckets.checked_next_power_of_two();
        let buckets = buckets.unwrap_or(usize::MAX).min(max_buckets);
        let budget = Arc::new(MemoryBudget::new(self.max_bytes));
        let table = T::try_new(buckets, &budget);
        let table = table.unwrap_or_else(|| panic!("no memory for {buckets} buckets"));
        let version = TableVersion::new(table);
        let domain = self.domain.unwrap_or_else(|| Domain::global().clone());
        CopyMap::of(
            version,
            budget,
            domain,
            (self.hasher, self.automatic, max_buckets),
        )
    }
}
