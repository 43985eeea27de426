//! Overflow buckets, allocated in chunks that belong to the table until it is freed.
//!
//! A table of millions of buckets frees some dozens of chunks without walking its chains. If it
//! freed a hundred thousand single buckets instead, the allocator would spend milliseconds to sort
//! them, within some thread's insertion.

use std::ops::Deref;
use std::ptr::{self, NonNull};

use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicUsize};
use corewise_atomic::{mutant, ordering};

use super::bucket::{Bucket, BucketState};
use crate::copy_map::memory_budget::{Heads, MemoryBudget};

/// The number of table buckets per bucket of a chunk: a table of `SINGLE` buckets allocates one
/// overflow bucket at a time, one of twice the size two, and so on. So at most 1 % of a table is
/// overflow memory that is not used yet.
const SINGLE: usize = 128;
/// The maximum size of a chunk in buckets, 64 KiB: the most that one update allocates and clears.
const MOST: usize = 1 << 10;
/// Chunks that are freed at a time.
const SHARE: usize = 16;

/// The overflow buckets of one table.
pub(super) struct Overflow<S> {
    /// The newest chunk.
    chunk: AtomicPtr<Chunk<S>>,
    /// A list of buckets that were taken and given back, and are in no chain.
    returned: AtomicPtr<Bucket<S>>,
    /// The number of buckets in a chunk.
    size: usize,
    /// Overflow buckets linked in chains, approximately: some may be about to be linked.
    linked: AtomicUsize,
    budget: Arc<MemoryBudget>,
}

struct Chunk<S> {
    buckets: Heads<Bucket<S>>,
    /// The number of buckets requested from this chunk; it may exceed the size of the chunk.
    taken: AtomicUsize,
    /// The previous chunk. Never changed once other threads see this one.
    before: *mut Chunk<S>,
}

impl<S: BucketState> Overflow<S> {
    /// The overflow buckets of a table of `buckets` buckets; none are allocated yet.
    pub(super) fn new(buckets: usize, budget: &Arc<MemoryBudget>) -> Self {
        Self {
            chunk: AtomicPtr::new(ptr::null_mut()),
            returned: AtomicPtr::new(ptr::null_mut()),
            size: (buckets / SINGLE).clamp(1, MOST),
            linked: AtomicUsize::new(0),
            budget: budget.clone(),
        }
    }

    /// The number of overflow buckets linked in chains, approximately: some may be about to be
    /// linked.
    pub(super) fn linked(&self) -> usize {
        // Relaxed: the count publishes nothing, here and below.
        self.linked.load(Relaxed)
    }

    /// An empty bucket, or `None` without memory. Lock-free, except for the allocator.
    pub(super) fn spare(&self) -> Option<SpareBucket<'_, S>> {
        let bucket = match self.take_returned() {
            Some(bucket) => bucket,
            None => self.take_fresh()?,
        };
        Some(SpareBucket {
            overflow: self,
            bucket,
        })
    }

    fn take_fresh(&self) -> Option<&Bucket<S>> {
        loop {
            // Acquire: pairs with the Release below, so the chunk is seen whole.
            let newest = self.chunk.load(Acquire);
            // SAFETY: from a box that is freed with the table.
            if let Some(chunk) = unsafe { newest.as_ref() } {
                // Relaxed: each index is given out once, and the bucket existed before its chunk
                // was published.
                let index = if mutant!("clht_gives_twice") {
                    let taken = chunk.taken.load(Relaxed);
                    chunk.taken.store(taken + 1, Relaxed);
                    taken
                } else {
                    // Relaxed: as above.
                    chunk.taken.fetch_add(1, Relaxed)
                };
                if let Some(bucket) = chunk.buckets.get(index) {
                    return Some(bucket);
                }
            }
            self.add_chunk(newest)?;
        }
    }

    /// Adds a chunk in front of `newest`, unless another thread has added one.
    fn add_chunk(&self, newest: *mut Chunk<S>) -> Option<()> {
        let bytes = Heads::<Bucket<S>>::bytes(self.size);
        if !self.budget.take(bytes) {
            // Relaxed: only compared.
            return (self.chunk.load(Relaxed) != newest).then_some(());
        }
        let Some(buckets) = Heads::try_new(self.size) else {
            self.budget.give(bytes);
            return None;
        };
        let chunk = Box::into_raw(Box::new(Chunk {
            buckets,
            taken: AtomicUsize::new(0),
            before: newest,
        }));
        // Release: pairs with the Acquire in `take_fresh`. (A thread that sees a later chunk sees
        // this one, too: the thread that added the later one had seen it.)
        let added = self.chunk.compare_exchange(newest, chunk, Release, Relaxed);
        if added.is_err() {
            // SAFETY: no other thread has seen it.
            drop(unsafe { Box::from_raw(chunk) });
            self.budget.give(bytes);
        }
        Some(())
    }

    /// Takes the first of the returned buckets. It takes the whole list for a moment, so that no
    /// bucket can leave the list and come back (ABA) while this thread reads the first one's
    /// successor.
    fn take_returned(&self) -> Option<&Bucket<S>> {
        // Relaxed: a hint.
        if self.returned.load(Relaxed).is_null() {
            return None;
        }
        // Acquire: pairs with the Release in `put_back`: the list is seen, and its buckets are no
        // longer used.
        let first = if mutant!("clht_takes_one") {
            self.take_one()
        } else {
            self.returned.swap(ptr::null_mut(), Acquire)
        };
        // SAFETY: a bucket of a chunk, which lives as long as the table.
        let first = unsafe { first.as_ref() }?;
        // Relaxed, both: the list is ours.
        let rest = first.next.load(Relaxed);
        first.next.store(ptr::null_mut(), Relaxed);
        // SAFETY: this is a bucket of a chunk, too. The rest of the list has no entries, and only
        // this thread has it (1).
        unsafe {
            if let Some(rest) = rest.as_ref() {
                self.put_back(rest);
            }
        }
        Some(first)
    }

    /// The bug of a mutant: the next pointer may be stale when the first bucket is taken.
    fn take_one(&self) -> *mut Bucket<S> {
        // Acquire: pairs with the Release in `put_back`.
        let first = self.returned.load(Acquire);
        // SAFETY: the pointer is null or to a bucket of a chunk, which lives as long as the table.
        let Some(bucket) = (unsafe { first.as_ref() }) else {
            return first;
        };
        // Relaxed, for both accesses to `next`: the bug, as the bucket is not ours before the
        // exchange. Acquire: as above. Relaxed, for its failure: nothing was taken.
        let next = bucket.next.load(Relaxed);
        let taken = self
            .returned
            .compare_exchange(first, next, Acquire, Relaxed);
        bucket.next.store(ptr::null_mut(), Relaxed);
        taken.map_or(ptr::null_mut(), |first| first)
    }

    /// Adds a list of buckets to the returned ones.
    ///
    /// # Safety
    ///
    /// 1. They are overflow buckets of this table, have no entries, and only the caller can reach
    ///    them, now and later.
    unsafe fn put_back(&self, first: &Bucket<S>) {
        let last = first.chain().last().unwrap_or(first);
        // Relaxed: only compared, and read by a thread that takes it with Acquire. (A thread that
        // adds a list before this one exchanges the word, which continues the release sequence.)
        let mut there = self.returned.load(Relaxed);
        loop {
            last.next.store(there, Relaxed);
            let first = ptr::from_ref(first).cast_mut();
            // Release: pairs with the Acquire in `take_returned`.
            let order = ordering!(Release, "clht_relaxed_return");
            match self
                .returned
                .compare_exchange_weak(there, first, order, Relaxed)
            {
                Ok(_) => return,
                Err(now) => there = now,
            }
        }
    }
}

impl<S> Overflow<S> {
    /// Frees some chunks of a table; returns whether there are more.
    ///
    /// # Safety
    ///
    /// 1. The chains of the table are no longer used. Afterwards the caller only calls this and
    ///    drops the table.
    pub(super) unsafe fn free_share(&mut self) -> bool {
        for _ in 0..SHARE {
            // Relaxed, both: no other thread is here.
            let newest = self.chunk.load(Relaxed);
            if newest.is_null() {
                return false;
            }
            // SAFETY: from a box, and the table is no longer used, by 1.
            let chunk = unsafe { Box::from_raw(newest) };
            // Relaxed: as above.
            self.chunk.store(chunk.before, Relaxed);
            let buckets = chunk.buckets.len();
            self.budget.give(Heads::<Bucket<S>>::bytes(buckets));
        }
        true
    }
}

impl<S> Drop for Overflow<S> {
    fn drop(&mut self) {
        // SAFETY: the table is being dropped, so its chains are no longer used (1).
        while unsafe { self.free_share() } {}
    }
}

/// A bucket that is in no chain and that only its owner can reach. Dropping it gives it back.
pub struct SpareBucket<'t, S: BucketState> {
    overflow: &'t Overflow<S>,
    bucket: &'t Bucket<S>,
}

impl<S: BucketState> SpareBucket<'_, S> {
    /// Its address.
    pub fn as_ptr(&self) -> *mut Bucket<S> {
        ptr::from_ref(self.bucket).cast_mut()
    }

    /// The bucket, to be linked in a chain of the table.
    pub fn into_ptr(self) -> NonNull<Bucket<S>> {
        // Relaxed: see `linked`.
        self.overflow.linked.fetch_add(1, Relaxed);
        let bucket = NonNull::from(self.bucket);
        std::mem::forget(self);
        bucket
    }
}

impl<S: BucketState> Deref for SpareBucket<'_, S> {
    type Target = Bucket<S>;

    fn deref(&self) -> &Bucket<S> {
        self.bucket
    }
}

impl<S: BucketState> Drop for SpareBucket<'_, S> {
    fn drop(&mut self) {
        // A thread that failed to link the bucket may have written to it.
        // SAFETY: the bucket was never linked, so only this value can reach it, and it is not used
        // any more.
        unsafe {
            self.bucket.wipe();
            self.overflow.put_back(self.bucket);
        }
    }
}

#[cfg(test)]
mod models {
    use corewise_atomic::sync::Arc;
    use corewise_atomic::sync::atomic::Ordering::Relaxed;

    use super::Overflow;
    use crate::clht::lock_based::LockState;
    use crate::copy_map::memory_budget::MemoryBudget;
    use crate::copy_map::numbers::beside;

    /// The overflow buckets of a table of `buckets` buckets, after `returned` of them were taken
    /// and given back.
    fn overflow(buckets: usize, returned: usize) -> Arc<Overflow<LockState>> {
        let budget = Arc::new(MemoryBudget::new(usize::MAX));
        let overflow = Overflow::new(buckets, &budget);
        let spares: Vec<_> = (0..returned).map(|_| overflow.spare().unwrap()).collect();
        drop(spares);
        Arc::new(overflow)
    }

    /// Takes a bucket and keeps it.
    fn keep(overflow: &Overflow<LockState>) -> usize {
        let spare = overflow.spare().unwrap();
        let is_empty = spare.state.load(Relaxed) == 0 && spare.next.load(Relaxed).is_null();
        assert!(is_empty, "a bucket with something in it");
        spare.into_ptr().as_ptr().addr()
    }

    #[test]
    fn a_bucket_is_taken_once() {
        for (buckets, returned) in [(1, 0), (512, 0), (1, 2), (1, 3)] {
            corewise_atomic::model_bounded(3, move || {
                let overflow = overflow(buckets, returned);
                let (one, other) = beside(&overflow, keep, keep);
                assert_ne!(one, other);
                assert_eq!(overflow.linked(), 2);
            });
        }
    }

    /// One thread takes two buckets and gives back the first, while the other takes one.
    #[test]
    fn a_bucket_that_comes_back_is_taken_once() {
        corewise_atomic::model_bounded(3, || {
            let overflow = overflow(1, 2);
            let to_and_fro = |overflow: &Overflow<LockState>| {
                let first = overflow.spare().unwrap();
                // A thread that failed to link the bucket may have written to it.
                first.state.store(2, Relaxed);
                let second = keep(overflow);
                drop(first);
                second
            };
            let (one, other) = beside(&overflow, to_and_fro, keep);
            let third = keep(&overflow);
            assert!(one != other && one != third && other != third);
        });
    }
}
