//! A filter that grows: a chain of filters, each with twice the buckets of the one before.
//!
//! # How removals stay right
//!
//! In a chain of independent filters a removal may take the fingerprint of another item in one
//! link, and leave its own in another link, where the other item is not found: a false negative.
//! Here the class of an item in a link, its fingerprint and pair of buckets, determines its classes
//! in all older links (see [`crate::pairing`]), and removals begin with the newest link. Let a
//! removal of x take, from link k, a copy that was inserted for w. Then w and x have equal classes
//! in k and in all older links, and the copy of x is in one of these: what is left is found by
//! lookups of w.
//!
//! # Invariants
//!
//! 1. A link is never removed or replaced. `count` links are complete.
//! 2. Lookups and removals visit the links from the newest to the oldest.
//! 3. Only the holder of `growth` adds a link, after it has checked that the newest is still the
//!    one that was full.

use std::sync::OnceLock;

use corewise_atomic::lock::Mutex;
use corewise_atomic::mutant;
use corewise_atomic::sync::atomic::AtomicUsize;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::builder::Builder;
use crate::filter::{CuckooFilter, InsertError};
use crate::hash::hash_of;
use crate::shape::{BuildError, FilterShape, MAX_DOUBLINGS, check_fpr};

use std::fmt;
use std::hash::Hash;

/// The most links of a growing filter, and the default. One more would exceed
/// [`MAX_BUCKETS`](crate::MAX_BUCKETS), however small the first one is.
pub const MAX_LINKS: usize = 1 + MAX_DOUBLINGS as usize;
/// Bytes by default: 1 GiB.
pub const DEFAULT_MAX_BYTES: usize = 1 << 30;

/// Locks of unique insertions; few in models.
const UNIQUE_LOCKS: usize = if cfg!(any(corewise_loom, corewise_shuttle)) {
    2
} else {
    64
};

/// How far a [`GrowingFilter`] grows. At these bounds insertions return [`InsertError::Full`].
///
/// By default memory is the bound: a filter grows while it takes no more than
/// [`DEFAULT_MAX_BYTES`]. It ends earlier where the next link would have more than
/// [`MAX_BUCKETS`](crate::MAX_BUCKETS), or where more links would need fingerprints of more than
/// [`MAX_FINGERPRINT_BITS`](crate::MAX_FINGERPRINT_BITS): with the lowest rates of false positives
/// a filter has few links, or only one.
///
/// ```
/// use corewise_filter::Growth;
/// let growth = Growth { max_links: 4, ..Growth::default() };
/// assert_eq!(growth.max_bytes, 1 << 30);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// The most links, 1 to [`MAX_LINKS`]; other values are taken for the nearest of these. A
    /// filter of n links has 2^n − 1 times the slots of its first.
    pub max_links: usize,
    /// The most bytes of the filter, as [`size_in_bytes`](GrowingFilter::size_in_bytes) counts
    /// them. The first link is exempt. Each link that these bytes have room for has an equal part
    /// of the false positives: more links need wider fingerprints, 3 bits for 8, 4 for 16, 5 for
    /// 31.
    pub max_bytes: usize,
}

impl Default for Growth {
    fn default() -> Self {
        Self {
            max_links: MAX_LINKS,
            max_bytes: DEFAULT_MAX_BYTES,
        }
    }
}

/// A [`CuckooFilter`] without a fixed capacity: when it is full, it adds one of twice the size,
/// until [`Growth`] ends that.
///
/// # Costs of growth
///
/// The rate of false positives that the filter is built for covers all links that it may get: it
/// holds when all of them are full. A lookup of an absent item visits all links, two buckets in
/// each: one link at the first capacity, and one more each time the number of items doubles. Half
/// of the items are in the newest link, which is visited first. So begin with the expected
/// capacity: a filter that has grown 1,000-fold has ten links, and fingerprints that are some bits
/// wider.
///
/// # Concurrency
///
/// Guarantees are those of [`CuckooFilter`], with these differences: `count` is exact only if no
/// update of the item runs meanwhile; a lookup or a removal may miss an item of which other threads
/// insert one copy and remove another while it runs, because it visits one link after the other (an
/// item that is not removed meanwhile is never missed); which link takes an item depends on the
/// threads, and an insertion may wait while another thread allocates a link.
///
/// # Copies
///
/// With b slots in a bucket, the *newest* link holds up to 2b copies of an item, and an insertion
/// is refused with [`InsertError::TooManyCopies`] if it does. Copies in older links, from the time
/// when these were the newest or had a free slot, do not count towards this limit. So an item with
/// fewer than 2b copies is never refused for this reason, and no item has more copies than 2b times
/// the number of links. All copies are counted, and can be removed.
///
/// ```
/// use corewise_filter::{Growth, GrowingFilter};
/// let filter = GrowingFilter::with_fpr(1_000, 0.01, Growth::default())?;
/// for n in 0..100_000 {
///     filter.insert(&n)?;
/// }
/// assert!((0..100_000).all(|n| filter.contains(&n)));
/// assert!(filter.fpr() < 0.01);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct GrowingFilter {
    /// The first `count` are set. `OnceLock` is `std`'s: what orders the accesses of other threads
    /// is `count`.
    links: [OnceLock<CuckooFilter>; MAX_LINKS],
    count: AtomicUsize,
    growth: Mutex<()>,
    /// Held by unique insertions of items that no link can tell apart, and of others.
    unique: [Mutex<()>; UNIQUE_LOCKS],
    limits: Growth,
    first: FilterShape,
    seed: u64,
    search_limit: usize,
}

/// The most links that the bounds permit, and the first of them, in which each slot of each link
/// has its part of the rate of false positives.
///
/// Fewer links need narrower fingerprints, so the numbers are tried from the greatest.
fn first_link(
    builder: &Builder,
    fpr: f64,
    growth: Growth,
) -> Result<(usize, FilterShape), BuildError> {
    let most = growth.max_links.clamp(1, MAX_LINKS);
    let permitted = (2..=most).rev().find_map(|links| {
        let shape = link_of(builder, fpr / links as f64).ok()?;
        has_room(&shape, links, growth.max_bytes).then_some((links, shape))
    });
    match permitted {
        Some(found) => Ok(found),
        None => Ok((1, link_of(builder, fpr)?)),
    }
}

/// The first link if each link has this rate of false positives.
fn link_of(builder: &Builder, fpr: f64) -> Result<FilterShape, BuildError> {
    if fpr == 0.0 {
        return Err(BuildError::FprTooLow); // the quotient of a subnormal number
    }
    let shape = builder.fpr(fpr).shape()?;
    // A link may get fuller than its capacity: every slot has its part.
    FilterShape::with_fpr(
        |bits| {
            let shape = FilterShape { bits, ..shape };
            Ok((shape, shape.slots()))
        },
        shape.bucket_slots,
        fpr,
    )
}

/// Whether a filter with this number of links has buckets and bytes for all of them.
fn has_room(first: &FilterShape, links: usize, bytes: usize) -> bool {
    let link = |index| Some(first.doubled(index as u32).ok()?.table_bytes());
    let own = size_of::<GrowingFilter>() as u64;
    let sum = (0..links).try_fold(own, |sum, index| Some(sum + link(index)?));
    sum.is_some_and(|sum| sum <= bytes as u64)
}

impl GrowingFilter {
    /// A filter whose first link takes `capacity` items, and whose rate of false positives never
    /// exceeds `fpr`, whatever it takes after that. As in [`CuckooFilter::with_fpr`], `fpr` is
    /// above 0 and below 1, and a capacity of 0 is taken for 1.
    ///
    /// # Errors
    ///
    /// See [`BuildError`].
    ///
    /// ```
    /// use corewise_filter::{BuildError, Growth, GrowingFilter};
    /// let filter = GrowingFilter::with_fpr(1_000, 1.0, Growth::default());
    /// assert_eq!(filter.err(), Some(BuildError::Fpr));
    /// ```
    pub fn with_fpr(capacity: usize, fpr: f64, growth: Growth) -> Result<Self, BuildError> {
        Self::with_builder(&CuckooFilter::builder().capacity(capacity), fpr, growth)
    }

    /// A filter with these settings for its first link. Its rate of false positives never exceeds
    /// `fpr`, which replaces the precision of the builder.
    ///
    /// # Errors
    ///
    /// See [`BuildError`].
    ///
    /// ```
    /// use corewise_filter::{CuckooFilter, Growth, GrowingFilter};
    /// let builder = CuckooFilter::builder().capacity(1_000).semi_sorted(true);
    /// let filter = GrowingFilter::with_builder(&builder, 0.01, Growth::default())?;
    /// assert!(filter.is_empty());
    /// # Ok::<(), corewise_filter::BuildError>(())
    /// ```
    pub fn with_builder(builder: &Builder, fpr: f64, growth: Growth) -> Result<Self, BuildError> {
        // Before the division, which would make a valid rate of an invalid one.
        check_fpr(fpr)?;
        let (max_links, shape) = first_link(builder, fpr, growth)?;
        let filter = Self {
            links: std::array::from_fn(|_| OnceLock::new()),
            count: AtomicUsize::new(1),
            growth: Mutex::new(()),
            unique: std::array::from_fn(|_| Mutex::new(())),
            limits: Growth {
                max_links,
                ..growth
            },
            first: shape,
            seed: builder.seed,
            search_limit: builder.search_limit,
        };
        filter.add_link(0)?;
        Ok(filter)
    }

    /// Makes link `index`. The caller holds the lock of growth, or has the filter alone.
    fn add_link(&self, index: usize) -> Result<(), BuildError> {
        let shape = self.first.doubled(index as u32)?;
        let limit = self.search_limit;
        let link = CuckooFilter::with_shape(shape, self.seed, limit, shape.stripes())?;
        assert!(
            self.links[index].set(link).is_ok(),
            "each link is made once"
        );
        Ok(())
    }

    /// The links, from the oldest.
    pub(crate) fn links(&self) -> impl DoubleEndedIterator<Item = &CuckooFilter> {
        // Acquire: pairs with the Release in `grow`, so that the links are complete.
        let count = self.count.load(Acquire);
        let link = |link: &'_ OnceLock<CuckooFilter>| link.get().is_some();
        debug_assert!(self.links[..count].iter().all(link));
        self.links[..count].iter().filter_map(OnceLock::get)
    }

    /// The hash of an item, as the `*_hash` methods take it.
    #[inline]
    #[must_use]
    pub fn hash<T: Hash + ?Sized>(&self, item: &T) -> u64 {
        hash_of(item, self.seed)
    }

    /// Inserts a copy of the item, into the newest link, or a free slot of an older one.
    ///
    /// Complexity: as [`CuckooFilter::insert`]; if the newest link is full, a visit of the others,
    /// and an allocation. Progress: blocking.
    ///
    /// # Errors
    ///
    /// [`InsertError::Full`] if the filter must not grow any more, or there is no memory;
    /// [`InsertError::TooManyCopies`] if the newest link holds 2b copies, with b slots in a bucket.
    #[inline]
    pub fn insert<T: Hash + ?Sized>(&self, item: &T) -> Result<(), InsertError> {
        self.insert_hash(self.hash(item))
    }

    /// As [`insert`](Self::insert), for an item whose hash is known.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_hash(&self, hash: u64) -> Result<(), InsertError> {
        loop {
            let mut links = self.links().rev();
            let Some(newest) = links.next() else {
                unreachable!("the first link is made with the filter");
            };
            match newest.insert_hash(hash) {
                Err(InsertError::Full) => {}
                result => return result,
            }
            let takes = |link: &CuckooFilter| link.table.place_in_room(&link.class(hash));
            if links.any(takes) {
                return Ok(());
            }
            self.grow(newest)?;
        }
    }

    /// Adds a link, unless `full` is no longer the newest.
    #[cold]
    fn grow(&self, full: &CuckooFilter) -> Result<(), InsertError> {
        let _held = self.growth.lock();
        // Relaxed: only the holder of the lock changes it.
        let count = self.count.load(Relaxed);
        let newest = self.links[count - 1].get();
        let is_newest = newest.is_some_and(|newest| std::ptr::eq(newest, full));
        if !is_newest && !mutant!("grow_unchecked") {
            return Ok(());
        }
        // There are buckets and bytes for this number of links; see `first_link`.
        if count == self.limits.max_links {
            return Err(InsertError::Full);
        }
        self.add_link(count).map_err(|_| InsertError::Full)?;
        // Release: pairs with the Acquire in `links`.
        self.count.store(count + 1, Release);
        Ok(())
    }

    /// Inserts the item if [`contains`](Self::contains) would not find it, in one step. Returns
    /// whether it was inserted.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    #[inline]
    pub fn insert_unique<T: Hash + ?Sized>(&self, item: &T) -> Result<bool, InsertError> {
        self.insert_unique_hash(self.hash(item))
    }

    /// As [`insert_unique`](Self::insert_unique), for an item whose hash is known.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_unique_hash(&self, hash: u64) -> Result<bool, InsertError> {
        // Items that a link cannot tell apart have equal buckets in the first link.
        let class = self.links[0].get().map(|first| first.class(hash));
        let bucket = class.map_or(0, |class| class.first.min(class.second));
        let lock = &self.unique[bucket as usize % UNIQUE_LOCKS];
        let _held = (!mutant!("unique_without_lock")).then(|| lock.lock());
        if self.contains_hash(hash) {
            return Ok(false);
        }
        self.insert_hash(hash).map(|()| true)
    }

    /// Whether the item was inserted and not removed; also true for [`fpr`](Self::fpr) of the
    /// others.
    ///
    /// Complexity: two buckets of each link. Progress: wait-free; takes no lock and writes nothing.
    #[inline]
    #[must_use]
    pub fn contains<T: Hash + ?Sized>(&self, item: &T) -> bool {
        self.contains_hash(self.hash(item))
    }

    /// As [`contains`](Self::contains), for an item whose hash is known.
    #[must_use]
    pub fn contains_hash(&self, hash: u64) -> bool {
        if mutant!("oldest_first") {
            return self.links().any(|link| link.contains_hash(hash));
        }
        self.links().rev().any(|link| link.contains_hash(hash))
    }

    /// Removes a copy of the item. Returns whether there was one. As
    /// [`CuckooFilter::remove`], only for items that were inserted.
    #[inline]
    pub fn remove<T: Hash + ?Sized>(&self, item: &T) -> bool {
        self.remove_hash(self.hash(item))
    }

    /// As [`remove`](Self::remove), for an item whose hash is known.
    pub fn remove_hash(&self, hash: u64) -> bool {
        if mutant!("remove_oldest_first") {
            return self.links().any(|link| link.remove_hash(hash));
        }
        self.links().rev().any(|link| link.remove_hash(hash))
    }

    /// The number of copies of the item in all links: exact if no update of the item runs.
    #[inline]
    #[must_use]
    pub fn count<T: Hash + ?Sized>(&self, item: &T) -> usize {
        self.count_hash(self.hash(item))
    }

    /// As [`count`](Self::count), for an item whose hash is known.
    #[must_use]
    pub fn count_hash(&self, hash: u64) -> usize {
        self.links().map(|link| link.count_hash(hash)).sum()
    }

    /// Removes all items, and all links but the first. The filter then equals a new one.
    ///
    /// Complexity: writes all buckets of the first link.
    ///
    /// ```
    /// use corewise_filter::{Growth, GrowingFilter};
    /// let mut filter = GrowingFilter::with_fpr(100, 0.01, Growth::default())?;
    /// (0..1_000).try_for_each(|n| filter.insert(&n))?;
    /// filter.clear();
    /// assert_eq!((filter.len(), filter.link_count()), (0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clear(&mut self) {
        let [first, others @ ..] = &mut self.links;
        others.iter_mut().for_each(|link| drop(link.take()));
        if let Some(first) = first.get_mut() {
            first.clear();
        }
        // Relaxed: no other thread has the filter.
        self.count.store(1, Relaxed);
    }

    /// The number of items, copies included: exact if no update runs meanwhile.
    #[must_use]
    pub fn len(&self) -> usize {
        self.links().map(CuckooFilter::len).sum()
    }

    /// Whether there is no item; as [`len`](Self::len).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of links.
    #[must_use]
    pub fn link_count(&self) -> usize {
        self.links().count()
    }

    /// The slots of all links.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.links().map(CuckooFilter::slots).sum()
    }

    /// The bytes of the filter: the buckets and stripes of all links, and this value.
    #[must_use]
    pub fn size_in_bytes(&self) -> usize {
        let tables = self.links().map(|link| link.table.size_in_bytes());
        size_of_val(self) + tables.sum::<usize>()
    }

    /// The rate of false positives that theory gives for the present items.
    #[must_use]
    pub fn fpr(&self) -> f64 {
        1.0 - self.links().map(|link| 1.0 - link.fpr()).product::<f64>()
    }

    /// The items per slot, 0 to 1.
    #[must_use]
    pub fn load_factor(&self) -> f64 {
        self.len() as f64 / self.slots() as f64
    }

    /// The bits of memory per item; infinite if there is none.
    #[must_use]
    pub fn bits_per_item(&self) -> f64 {
        8.0 * self.size_in_bytes() as f64 / self.len() as f64
    }
}

/// The copy has all items that are present during the whole call, and may have any of those that
/// are inserted or removed meanwhile. Updates of the original wait while their link is copied,
/// lookups do not.
///
/// # Panics
///
/// If there is no memory.
impl Clone for GrowingFilter {
    fn clone(&self) -> Self {
        // No link is added meanwhile.
        let _held = self.growth.lock();
        // Relaxed: only the holder of the lock changes it.
        let count = self.count.load(Relaxed);
        let links = std::array::from_fn(|_| OnceLock::new());
        // From the newest to the oldest, as lookups, so that the copy misses no item.
        for index in (0..count).rev() {
            if let Some(link) = self.links[index].get() {
                let is_new = links[index].set(link.clone()).is_ok();
                debug_assert!(is_new, "each link is copied once");
            }
        }
        Self {
            links,
            count: AtomicUsize::new(count),
            growth: Mutex::new(()),
            unique: std::array::from_fn(|_| Mutex::new(())),
            limits: self.limits,
            first: self.first,
            seed: self.seed,
            search_limit: self.search_limit,
        }
    }
}

impl fmt::Debug for GrowingFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_struct("GrowingFilter");
        list.field("links", &self.links().collect::<Vec<_>>());
        list.field("limits", &self.limits).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;

    /// The number of links is the greatest that memory, buckets and fingerprints permit, for every
    /// first capacity.
    #[test]
    fn memory_or_a_named_bound_ends_growth() {
        let capacities = (0..40).map(|shift| 1usize << shift);
        for (capacity, fpr) in
            capacities.flat_map(|capacity| [0.5, 0.01, 1e-6, 1e-8].map(|fpr| (capacity, fpr)))
        {
            let builder = CuckooFilter::builder().capacity(capacity);
            for max_bytes in [0, 1 << 16, DEFAULT_MAX_BYTES, usize::MAX] {
                let growth = Growth {
                    max_bytes,
                    ..Growth::default()
                };
                let Ok((links, shape)) = first_link(&builder, fpr, growth) else {
                    assert!(link_of(&builder, fpr).is_err(), "{capacity} {fpr}");
                    continue;
                };
                assert!(shape.fpr(shape.slots()) <= fpr / links as f64);
                assert!(links == 1 || has_room(&shape, links, max_bytes));
                let next = link_of(&builder, fpr / (links + 1) as f64);
                let grows = next.is_ok_and(|next| has_room(&next, links + 1, max_bytes));
                assert!(!grows, "{links} of {capacity}, {fpr}, {max_bytes} bytes");
            }
        }
    }
}
