//! The filter that users see: [`CuckooFilter`].

use std::error::Error;
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::builder::Builder;
use crate::hash::FilterHasher;
use crate::pairing::ItemClass;
use crate::shape::{BuildError, FilterShape};
use crate::table::FingerprintTable;

/// Why an item was not inserted. The filter has the same items as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InsertError {
    /// The buckets of the item are full, and no fingerprint in them could move.
    ///
    /// If no other thread updates the filter, not even a bit has changed. Otherwise items may have
    /// moved within it, and it may be that other threads disturbed each attempt.
    Full,
    /// The buckets of the item hold nothing but this item: it was inserted 2b times, with b slots
    /// in a bucket.
    TooManyCopies,
}

impl fmt::Display for InsertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the filter is full",
            Self::TooManyCopies => "the filter has as many copies of the item as it can hold",
        })
    }
}

impl Error for InsertError {}

/// A set of items, approximately: it may find an item that was never inserted, at a known rate, and
/// always finds those that were. Unlike a Bloom filter it removes and counts items.
///
/// Any number of threads may call any methods at the same time. See the [crate] for guarantees.
///
/// ```
/// use corewise_filter::CuckooFilter;
///
/// let seen = CuckooFilter::with_fpr(1_000_000, 0.001)?;
/// std::thread::scope(|scope| {
///     for thread in 0..4u64 {
///         let seen = &seen;
///         scope.spawn(move || {
///             for n in 0..1_000 {
///                 seen.insert(&(thread, n)).unwrap();
///             }
///         });
///     }
/// });
/// assert!(seen.contains(&(3u64, 999)));
/// assert!(seen.remove(&(3u64, 999)));
/// assert_eq!(seen.len(), 3_999);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CuckooFilter {
    pub(crate) table: FingerprintTable,
    pub(crate) shape: FilterShape,
    pub(crate) seed: u64,
    /// The hasher of this seed, before an item.
    start: FilterHasher,
    pub(crate) search_limit: usize,
}

impl CuckooFilter {
    /// A filter for `capacity` items, which then finds one in 1 / `fpr` absent items. `fpr` is
    /// above 0 and below 1; a capacity of 0 is taken for 1. Other settings:
    /// [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// See [`BuildError`].
    ///
    /// ```
    /// use corewise_filter::CuckooFilter;
    /// let filter = CuckooFilter::with_fpr(1_000_000, 0.001)?;
    /// assert!(filter.size_in_bytes() < 2_000_000);
    /// # Ok::<(), corewise_filter::BuildError>(())
    /// ```
    pub fn with_fpr(capacity: usize, fpr: f64) -> Result<Self, BuildError> {
        Self::builder().capacity(capacity).fpr(fpr).build()
    }

    /// Sizes and policies to choose.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn with_shape(
        shape: FilterShape,
        seed: u64,
        search_limit: usize,
        stripes: u32,
    ) -> Result<Self, BuildError> {
        Ok(Self {
            table: FingerprintTable::new(&shape, stripes)?,
            shape,
            seed,
            start: FilterHasher::new(seed),
            search_limit,
        })
    }

    /// The hash of an item, as the `*_hash` methods take it.
    ///
    /// ```
    /// use corewise_filter::CuckooFilter;
    /// let filter = CuckooFilter::with_fpr(1_000, 0.001)?;
    /// filter.insert("item")?;
    /// assert!(filter.contains_hash(filter.hash("item")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn hash<T: Hash + ?Sized>(&self, item: &T) -> u64 {
        let mut hasher = self.start.clone();
        item.hash(&mut hasher);
        hasher.finish()
    }

    #[inline(always)]
    pub(crate) fn class(&self, hash: u64) -> ItemClass {
        self.table.pairing.class(hash)
    }

    /// Inserts a copy of the item.
    ///
    /// Complexity: a lock and a store, or if the buckets of the item are full, a search over at
    /// most [`search_limit`](Builder::search_limit) buckets and two locks for each move. Progress:
    /// blocking; a lock is held for a few stores. `item` is hashed before.
    ///
    /// # Errors
    ///
    /// [`InsertError::Full`], and [`InsertError::TooManyCopies`] for the copy after 2b, with b
    /// slots in a bucket.
    ///
    /// ```
    /// use corewise_filter::{CuckooFilter, InsertError};
    /// let filter = CuckooFilter::with_fpr(1_000, 0.001)?;
    /// for _ in 0..8 {
    ///     filter.insert("item")?;
    /// }
    /// assert_eq!(filter.insert("item"), Err(InsertError::TooManyCopies));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn insert<T: Hash + ?Sized>(&self, item: &T) -> Result<(), InsertError> {
        self.insert_hash(self.hash(item))
    }

    /// As [`insert`](Self::insert), for an item whose hash is known. The hash must be uniform in
    /// all 64 bits: the upper ones choose a bucket, the lower 32 the fingerprint.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    #[inline]
    pub fn insert_hash(&self, hash: u64) -> Result<(), InsertError> {
        self.table.insert(&self.class(hash), self.search_limit)
    }

    /// Inserts the item if [`contains`](Self::contains) would not find it, in one step. Returns
    /// whether it was inserted.
    ///
    /// Complexity and progress: as [`insert`](Self::insert), with two locks.
    ///
    /// # Errors
    ///
    /// [`InsertError::Full`].
    ///
    /// ```
    /// use corewise_filter::CuckooFilter;
    /// let filter = CuckooFilter::with_fpr(1_000, 0.001)?;
    /// assert_eq!(filter.insert_unique("item"), Ok(true));
    /// assert_eq!(filter.insert_unique("item"), Ok(false));
    /// # Ok::<(), corewise_filter::BuildError>(())
    /// ```
    #[inline]
    pub fn insert_unique<T: Hash + ?Sized>(&self, item: &T) -> Result<bool, InsertError> {
        self.insert_unique_hash(self.hash(item))
    }

    /// As [`insert_unique`](Self::insert_unique), for an item whose hash is known.
    ///
    /// # Errors
    ///
    /// As [`insert_unique`](Self::insert_unique).
    #[inline]
    pub fn insert_unique_hash(&self, hash: u64) -> Result<bool, InsertError> {
        let class = self.class(hash);
        self.table.insert_unique(&class, self.search_limit)
    }

    /// Whether the item was inserted and not removed; also true for [`fpr`](Self::fpr) of the
    /// others.
    ///
    /// Complexity: two buckets are read, and read again if a fingerprint nearby was removed or
    /// moved meanwhile. Progress: wait-free; takes no lock and writes nothing. After 64 disturbed
    /// rounds it returns true.
    ///
    /// ```
    /// use corewise_filter::CuckooFilter;
    /// let filter = CuckooFilter::with_fpr(1_000, 0.001)?;
    /// assert!(!filter.contains("item"));
    /// # Ok::<(), corewise_filter::BuildError>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn contains<T: Hash + ?Sized>(&self, item: &T) -> bool {
        self.contains_hash(self.hash(item))
    }

    /// As [`contains`](Self::contains), for an item whose hash is known.
    #[inline]
    #[must_use]
    pub fn contains_hash(&self, hash: u64) -> bool {
        self.table.contains_hash(hash)
    }

    /// Removes a copy of the item. Returns whether there was one.
    ///
    /// Remove only what was inserted: a removal of anything else may match the fingerprint of an
    /// item, which is then missing.
    ///
    /// Complexity: as [`contains`](Self::contains), and a lock and a store if there is a copy.
    /// Progress: blocking; if there is none, wait-free as a rule.
    ///
    /// ```
    /// use corewise_filter::CuckooFilter;
    /// let filter = CuckooFilter::with_fpr(1_000, 0.001)?;
    /// filter.insert("item")?;
    /// assert!(filter.remove("item"));
    /// assert!(!filter.remove("item"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn remove<T: Hash + ?Sized>(&self, item: &T) -> bool {
        self.remove_hash(self.hash(item))
    }

    /// As [`remove`](Self::remove), for an item whose hash is known.
    #[inline]
    pub fn remove_hash(&self, hash: u64) -> bool {
        self.table.remove(&self.class(hash))
    }

    /// The number of copies of the item, up to 2b with b slots in a bucket, at one moment during
    /// the call. Copies of items that it cannot tell apart are counted too.
    ///
    /// Complexity: two locks. Progress: blocking.
    ///
    /// ```
    /// use corewise_filter::CuckooFilter;
    /// let filter = CuckooFilter::with_fpr(1_000, 0.001)?;
    /// filter.insert("item")?;
    /// filter.insert("item")?;
    /// assert_eq!(filter.count("item"), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn count<T: Hash + ?Sized>(&self, item: &T) -> usize {
        self.count_hash(self.hash(item))
    }

    /// As [`count`](Self::count), for an item whose hash is known.
    #[inline]
    #[must_use]
    pub fn count_hash(&self, hash: u64) -> usize {
        self.table.count(&self.class(hash))
    }

    /// Removes all items. The filter then equals a new one, and keeps its memory.
    ///
    /// Complexity: writes all buckets.
    ///
    /// ```
    /// use corewise_filter::CuckooFilter;
    /// let mut filter = CuckooFilter::with_fpr(1_000, 0.001)?;
    /// filter.insert("item")?;
    /// filter.clear();
    /// assert!(filter.is_empty() && !filter.contains("item"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clear(&mut self) {
        self.table.clear_all();
    }

    /// The number of items, copies included: exact if no update runs meanwhile.
    ///
    /// Complexity: reads a word for each stripe, of which there are 1 to 8,192.
    ///
    /// ```
    /// use corewise_filter::CuckooFilter;
    /// let filter = CuckooFilter::with_fpr(1_000, 0.001)?;
    /// filter.insert("item")?;
    /// assert_eq!((filter.len(), filter.is_empty()), (1, false));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.stripes.items()
    }

    /// Whether there is no item; as [`len`](Self::len).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of slots: no filter holds more items. See [`Builder::capacity`] for how many fit.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.shape.slots() as usize
    }

    /// The bytes of the filter: its buckets, its stripes and this value.
    #[must_use]
    pub fn size_in_bytes(&self) -> usize {
        size_of_val(self) + self.table.size_in_bytes()
    }

    /// The width of fingerprints in bits.
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.shape.bits
    }

    /// The rate of false positives that theory gives for the present number of items: the
    /// probability that one of n items has the fingerprint and the buckets of an absent one,
    /// 1 − (1 − 2 / (m (2^f − 1)))^n with m buckets and f bits.
    ///
    /// ```
    /// use corewise_filter::CuckooFilter;
    /// let filter = CuckooFilter::with_fpr(1_000, 0.001)?;
    /// assert_eq!(filter.fpr(), 0.0);
    /// (0..1_000).try_for_each(|n| filter.insert(&n))?;
    /// assert!(filter.fpr() < 0.001);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn fpr(&self) -> f64 {
        self.shape.fpr(self.len() as u64)
    }

    /// The items per slot, 0 to 1.
    #[must_use]
    pub fn load_factor(&self) -> f64 {
        self.len() as f64 / self.shape.slots() as f64
    }

    /// The bits of memory per item; infinite if there is none.
    #[must_use]
    pub fn bits_per_item(&self) -> f64 {
        8.0 * self.size_in_bytes() as f64 / self.len() as f64
    }
}

/// The copy is the filter at one moment: updates of the original wait meanwhile, lookups do not.
/// Both give the same answers, and after the same calls the same bytes.
///
/// # Panics
///
/// If there is no memory.
///
/// ```
/// use corewise_filter::CuckooFilter;
/// let filter = CuckooFilter::with_fpr(1_000, 0.001)?;
/// filter.insert("item")?;
/// let copy = filter.clone();
/// assert!(filter.remove("item"));
/// assert!(copy.contains("item"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl Clone for CuckooFilter {
    fn clone(&self) -> Self {
        let table = self.table.copy(&self.shape);
        Self {
            table: table.expect("memory for a copy of the filter"),
            shape: self.shape,
            seed: self.seed,
            start: self.start.clone(),
            search_limit: self.search_limit,
        }
    }
}

impl fmt::Debug for CuckooFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CuckooFilter")
            .field("len", &self.len())
            .field("slots", &self.slots())
            .field("bits", &self.shape.bits)
            .field("bucket_slots", &self.shape.bucket_slots)
            .field("semi_sorted", &self.shape.is_semi_sorted)
            .field("stripes", &self.table.stripes.count())
            .field("seed", &self.seed)
            .field("search_limit", &self.search_limit)
            .finish()
    }
}
