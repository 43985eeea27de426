//! Operations on many items, whose memory accesses overlap.
//!
//! A lookup of an item waits for two cache lines. In a batch the lines of the item [`AHEAD`] places
//! further are requested before an item is looked up, so that the processor waits for many at once:
//! a sliding window, which needs no memory.

use std::error::Error;
use std::fmt;
use std::num::NonZeroUsize;

use corewise_atomic::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::filter::{CuckooFilter, InsertError};

/// How far ahead of the lookups memory is requested, in items.
const AHEAD: usize = 12;
/// Items that a thread of [`CuckooFilter::insert_parallel`] takes at a time.
const CHUNK: usize = 4_096;
/// Refused items that a thread of it keeps for a second attempt.
const MOST_REFUSED: usize = 64;

/// Why not all items of a batch were inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchError {
    /// The number of items that were inserted. By [`CuckooFilter::insert_hashes`] these are the
    /// first ones.
    pub inserted: usize,
    /// Why an item was not.
    pub error: InsertError,
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} after {} items of the batch",
            self.error, self.inserted
        )
    }
}

impl Error for BatchError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

impl CuckooFilter {
    /// Requests the buckets of the item.
    #[inline(always)]
    fn prefetch_hash(&self, hash: u64) {
        let class = self.table.pairing.class(hash);
        self.table.prefetch(class.first);
        self.table.prefetch(class.second);
    }

    /// Calls `each` with every hash and its index, after its buckets were requested.
    #[inline(always)]
    fn for_each_prefetched<E>(
        &self,
        hashes: &[u64],
        mut each: impl FnMut(usize, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        hashes
            .iter()
            .take(AHEAD)
            .for_each(|hash| self.prefetch_hash(*hash));
        for (index, &hash) in hashes.iter().enumerate() {
            if let Some(&ahead) = hashes.get(index + AHEAD) {
                self.prefetch_hash(ahead);
            }
            each(index, hash)?;
        }
        Ok(())
    }

    /// Looks up many items, given as [`hash`](Self::hash)es: `found[i]` is
    /// [`contains_hash`](Self::contains_hash) of `hashes[i]`.
    ///
    /// Faster than single lookups in filters that are larger than the caches. Progress: wait-free.
    ///
    /// # Panics
    ///
    /// If `found` has another length than `hashes`.
    ///
    /// ```
    /// use corewise_filter::CuckooFilter;
    /// let filter = CuckooFilter::with_fpr(1_000, 0.001)?;
    /// filter.insert("item")?;
    /// let mut found = [false; 2];
    /// filter.contains_hashes(&["item", "other"].map(|item| filter.hash(item)), &mut found);
    /// assert_eq!(found, [true, false]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn contains_hashes(&self, hashes: &[u64], found: &mut [bool]) {
        assert_eq!(hashes.len(), found.len(), "an answer for each hash");
        let _: Result<(), ()> = self.for_each_prefetched(hashes, |index, hash| {
            found[index] = self.contains_hash(hash);
            Ok(())
        });
    }

    /// Inserts many items, given as [`hash`](Self::hash)es, in their order, up to the first that is
    /// refused.
    ///
    /// Faster than single insertions in filters that are larger than the caches. Progress: as
    /// [`insert`](Self::insert).
    ///
    /// # Errors
    ///
    /// If an item is refused; those before it are in the filter.
    ///
    /// ```
    /// use corewise_filter::CuckooFilter;
    /// let filter = CuckooFilter::with_fpr(1_000, 0.001)?;
    /// let hashes: Vec<u64> = (0..1_000).map(|n| filter.hash(&n)).collect();
    /// filter.insert_hashes(&hashes)?;
    /// assert!(filter.contains(&999));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert_hashes(&self, hashes: &[u64]) -> Result<(), BatchError> {
        self.for_each_prefetched(hashes, |inserted, hash| {
            let refused = |error| BatchError { inserted, error };
            self.insert_hash(hash).map_err(refused)
        })
    }

    /// Inserts many items, given as [`hash`](Self::hash)es, by `threads` threads, of which the
    /// caller is one. Their order is lost, and so is the determinism of the filter's bytes; which
    /// items it finds does not depend on the order.
    ///
    /// An item that is refused beside other threads is tried again when they are done.
    ///
    /// # Errors
    ///
    /// If an item is refused finally. Which of the others are in the filter is not told.
    ///
    /// # Panics
    ///
    /// If the system cannot create a thread.
    ///
    /// ```
    /// use corewise_filter::CuckooFilter;
    /// use std::num::NonZeroUsize;
    /// let filter = CuckooFilter::with_fpr(50_000, 0.001)?;
    /// let hashes: Vec<u64> = (0..50_000).map(|n| filter.hash(&n)).collect();
    /// filter.insert_parallel(&hashes, NonZeroUsize::new(2).unwrap())?;
    /// assert_eq!(filter.len(), 50_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    pub fn insert_parallel(&self, hashes: &[u64], threads: NonZeroUsize) -> Result<(), BatchError> {
        let shared = ParallelBuild {
            filter: self,
            hashes,
            next: AtomicUsize::new(0),
            must_stop: AtomicBool::new(false),
        };
        let (inserted, refused) = std::thread::scope(|scope| {
            let others = 1..threads.get().min(hashes.len().div_ceil(CHUNK));
            let others: Vec<_> = others.map(|_| scope.spawn(|| shared.work())).collect();
            let mut all = shared.work();
            for other in others {
                let (inserted, refused) = match other.join() {
                    Ok(result) => result,
                    Err(panic) => std::panic::resume_unwind(panic),
                };
                all.0 += inserted;
                all.1.extend(refused);
            }
            all
        });
        for (again, &hash) in refused.iter().enumerate() {
            self.insert_hash(hash).map_err(|error| BatchError {
                inserted: inserted + again,
                error,
            })?;
        }
        Ok(())
    }
}

/// What the threads of a parallel build share.
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
struct ParallelBuild<'a> {
    filter: &'a CuckooFilter,
    hashes: &'a [u64],
    next: AtomicUsize,
    /// A thread had more refusals than a filter with room gives.
    must_stop: AtomicBool,
}

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
impl ParallelBuild<'_> {
    /// Inserts chunks until there are none. Returns the number of inserted items, and refused ones.
    fn work(&self) -> (usize, Vec<u64>) {
        let (mut inserted, mut refused) = (0, Vec::new());
        // Relaxed: a hint to stop.
        while !self.must_stop.load(Relaxed) {
            // Relaxed: each chunk is handed out once, and the hashes are immutable.
            let start = self.next.fetch_add(CHUNK, Relaxed);
            if start >= self.hashes.len() {
                break;
            }
            let chunk = &self.hashes[start..self.hashes.len().min(start + CHUNK)];
            let result = self.filter.for_each_prefetched(chunk, |_, hash| {
                match self.filter.insert_hash(hash) {
                    Ok(()) => inserted += 1,
                    Err(_) => refused.push(hash),
                }
                (refused.len() < MOST_REFUSED).then_some(()).ok_or(())
            });
            if result.is_err() {
                // Relaxed: a hint; the join of the threads orders the rest.
                self.must_stop.store(true, Relaxed);
                break;
            }
        }
        (inserted, refused)
    }
}
