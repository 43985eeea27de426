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
/// Refused items after which a thread of it, and then all others, stop for a second attempt.
const MOST_REFUSED: usize = 64;

/// Why not all items of a batch were inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchError {
    /// The number of items that were inserted. By [`CuckooFilter::insert_hashes`] these are the
    /// first ones; by [`CuckooFilter::insert_parallel`] they may be any.
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
    /// An item that is refused beside other threads is tried again when they are done. If all items
    /// were inserted the result is `Ok`, and only then, whatever other threads insert and remove
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// If an item is refused again. [`BatchError::inserted`] items are in the filter, but not the
    /// first ones: the error does not tell which.
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
        self.insert_in_rounds(hashes, threads, || ())
    }

    /// Rounds of threads that insert until they are done or had many refusals. After each the
    /// caller alone inserts what was left, as far as the round had come; the first refusal then
    /// ends the batch. `after_round` is for tests.
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    fn insert_in_rounds(
        &self,
        hashes: &[u64],
        threads: NonZeroUsize,
        mut after_round: impl FnMut(),
    ) -> Result<(), BatchError> {
        let mut shared = ParallelBuild {
            filter: self,
            hashes,
            next: AtomicUsize::new(0),
            must_stop: AtomicBool::new(false),
        };
        let mut inserted = 0;
        loop {
            let (in_round, left) = shared.round(threads);
            inserted += in_round;
            after_round();
            for hash in left {
                let refused = |error| BatchError { inserted, error };
                self.insert_hash(hash).map_err(refused)?;
                inserted += 1;
            }
            if *shared.next.get_mut() >= hashes.len() {
                debug_assert_eq!(inserted, hashes.len());
                return Ok(());
            }
            *shared.must_stop.get_mut() = false;
        }
    }
}

/// What the threads of a parallel build share.
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
struct ParallelBuild<'a> {
    filter: &'a CuckooFilter,
    hashes: &'a [u64],
    /// The hashes before this one belong to a thread, or were handed to one in an earlier round.
    next: AtomicUsize,
    /// A thread had more refusals than a filter with room gives.
    must_stop: AtomicBool,
}

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
impl ParallelBuild<'_> {
    /// Lets the threads work. Returns the number of inserted items, and those that were taken by a
    /// thread and not inserted.
    fn round(&self, threads: NonZeroUsize) -> (usize, Vec<u64>) {
        // Relaxed: no other thread has it yet.
        let rest = self.hashes.len().saturating_sub(self.next.load(Relaxed));
        std::thread::scope(|scope| {
            let others = 1..threads.get().min(rest.div_ceil(CHUNK));
            let others: Vec<_> = others.map(|_| scope.spawn(|| self.work())).collect();
            let mut all = self.work();
            for other in others {
                let (inserted, left) = match other.join() {
                    Ok(result) => result,
                    Err(panic) => std::panic::resume_unwind(panic),
                };
                all.0 += inserted;
                all.1.extend(left);
            }
            all
        })
    }

    /// Inserts chunks until there are none, or a thread had too many refusals. Returns the number
    /// of inserted items, and all other items of its chunks: less than [`MOST_REFUSED`] and a
    /// chunk.
    fn work(&self) -> (usize, Vec<u64>) {
        let (mut inserted, mut left) = (0, Vec::new());
        // Relaxed: a hint to stop.
        while !self.must_stop.load(Relaxed) {
            // Relaxed: each chunk is handed out once, and the hashes are immutable.
            let start = self.next.fetch_add(CHUNK, Relaxed);
            if start >= self.hashes.len() {
                break;
            }
            let chunk = &self.hashes[start..self.hashes.len().min(start + CHUNK)];
            let stopped_at = self.filter.for_each_prefetched(chunk, |index, hash| {
                match self.filter.insert_hash(hash) {
                    Ok(()) => inserted += 1,
                    Err(_) => left.push(hash),
                }
                (left.len() < MOST_REFUSED).then_some(()).ok_or(index)
            });
            if let Err(index) = stopped_at {
                left.extend_from_slice(&chunk[index + 1..]);
                // Relaxed: a hint; the join of the threads orders the rest.
                self.must_stop.store(true, Relaxed);
                break;
            }
        }
        (inserted, left)
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;
    use crate::testing::Random;

    /// A filter of about 97 %, which refuses nearly all items, and the hashes in it.
    fn full(slots: usize) -> (CuckooFilter, Vec<u64>) {
        let filter = CuckooFilter::builder().slots(slots).bits(32).build();
        let filter = filter.expect("a small filter");
        let (mut random, mut hashes, mut refused) = (Random::new(1), Vec::new(), 0);
        while refused < 200 {
            let hash = random.next();
            match filter.insert_hash(hash) {
                Ok(()) => hashes.push(hash),
                Err(_) => refused += 1,
            }
        }
        (filter, hashes)
    }

    /// Room appears after each round of refusals, for some items or for all: what a round left is
    /// not forgotten. Swept over lengths around the bounds, threads, and the room of each round.
    #[test]
    fn what_a_round_leaves_is_inserted_or_refused() {
        for length in [
            1,
            MOST_REFUSED - 1,
            MOST_REFUSED,
            MOST_REFUSED + 1,
            CHUNK,
            3 * CHUNK + 5,
        ] {
            for threads in [1, 2, 5] {
                for room in [1, 2 * MOST_REFUSED, 2 * CHUNK, 6 * CHUNK] {
                    check_rounds(length, threads, room);
                }
            }
        }
    }

    fn check_rounds(length: usize, threads: usize, room: usize) {
        let (filter, mut old) = full(6 * CHUNK);
        // Far behind those of the full filter in the same sequence.
        let mut random = Random::new(1 << 40);
        let hashes: Vec<u64> = (0..length).map(|_| random.next()).collect();
        let threads = NonZeroUsize::new(threads).expect("not 0");
        let result = filter.insert_in_rounds(&hashes, threads, || {
            let mut removed = old.drain(..room.min(old.len()));
            assert!(removed.all(|hash| filter.remove_hash(hash)));
        });
        let found = hashes.iter().filter(|hash| filter.contains_hash(**hash));
        let (found, new) = (found.count(), filter.len() - old.len());
        match result {
            Ok(()) => assert_eq!((found, new), (length, length), "of {length}, {room}"),
            Err(error) => assert_eq!((found, new), (error.inserted, error.inserted), "{room}"),
        }
        if room == 6 * CHUNK {
            assert_eq!(result, Ok(()), "there is room for all");
        }
    }
}
