//! Buckets for chains that are full: taken from chunks, which belong to the table until it is freed.
//!
//! A table of millions of buckets frees its chunks, some dozens, without a look at its chains; and an allocator that
//! is given back a hundred thousand single buckets puts them in order for milliseconds, within somebody's insertion.

use std::ops::Deref;
use std::ptr::{self, NonNull};

use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicUsize};
use corewise_atomic::{mutant, ordering};

use super::bucket::{Bucket, State};
use crate::copy_map::space::{Heads, Space};

/// A table of so many buckets gets one more at a time, one of twice as many two, and so on: at most 1 % of a table is
/// memory that nothing has overflowed to.
const SINGLE: usize = 128;
/// The most that it gets at a time, 64 KiB: an update waits for no more.
const MOST: usize = 1 << 10;
/// Chunks that are freed at a time.
const SHARE: usize = 16;

/// The buckets that overflow in one table.
pub(super) struct Overflow<S> {
    /// The newest.
    chunk: AtomicPtr<Chunk<S>>,
    /// Those that were taken and hang nowhere, a chain of them.
    returned: AtomicPtr<Bucket<S>>,
    /// Buckets of a chunk.
    size: usize,
    /// Buckets that hang on others, give or take those being hung.
    hung: AtomicUsize,
    space: Arc<Space>,
}

struct Chunk<S> {
    buckets: Heads<Bucket<S>>,
    /// How many were asked for: more than there are, maybe.
    taken: AtomicUsize,
    /// The one before. Never changed once others see this one.
    before: *mut Chunk<S>,
}

impl<S: State> Overflow<S> {
    /// For a table of so many buckets.
    pub(super) fn new(buckets: usize, space: &Arc<Space>) -> Self {
        Self {
            chunk: AtomicPtr::new(ptr::null_mut()),
            returned: AtomicPtr::new(ptr::null_mut()),
            size: (buckets / SINGLE).clamp(1, MOST),
            hung: AtomicUsize::new(0),
            space: space.clone(),
        }
    }

    /// Buckets that hang on others, give or take those being hung.
    pub(super) fn hung(&self) -> usize {
        // Relaxed: a number that publishes nothing, here and below.
        self.hung.load(Relaxed)
    }

    /// An empty bucket, if there is memory. Lock-free, but for the allocator.
    pub(super) fn spare(&self) -> Option<Spare<'_, S>> {
        let bucket = match self.take_returned() {
            Some(bucket) => bucket,
            None => self.take_fresh()?,
        };
        Some(Spare {
            overflow: self,
            bucket,
        })
    }

    fn take_fresh(&self) -> Option<&Bucket<S>> {
        loop {
            // Acquire: pairs with the Release below: the chunk is seen whole.
            let newest = self.chunk.load(Acquire);
            // SAFETY: from a box that is freed with the table.
            if let Some(chunk) = unsafe { newest.as_ref() } {
                // Relaxed: each index is given out once, and the bucket was there before its chunk was seen.
                let index = if mutant!("clht_gives_twice") {
                    let taken = chunk.taken.load(Relaxed);
                    chunk.taken.store(taken + 1, Relaxed);
                    taken
                } else {
                    chunk.taken.fetch_add(1, Relaxed)
                };
                if let Some(bucket) = chunk.buckets.get(index) {
                    return Some(bucket);
                }
            }
            self.add_chunk(newest)?;
        }
    }

    /// Puts a chunk before the newest one, unless somebody else has.
    fn add_chunk(&self, newest: *mut Chunk<S>) -> Option<()> {
        let bytes = Heads::<Bucket<S>>::bytes(self.size);
        if !self.space.take(bytes) {
            // Relaxed: only to be compared.
            return (self.chunk.load(Relaxed) != newest).then_some(());
        }
        let Some(buckets) = Heads::try_new(self.size) else {
            self.space.give(bytes);
            return None;
        };
        let chunk = Box::into_raw(Box::new(Chunk {
            buckets,
            taken: AtomicUsize::new(0),
            before: newest,
        }));
        // Release: pairs with the Acquire in `take_fresh`. (Who sees a later chunk sees this one, too: it was put
        // there by somebody who did.)
        let added = self.chunk.compare_exchange(newest, chunk, Release, Relaxed);
        if added.is_err() {
            // SAFETY: nobody has seen it.
            drop(unsafe { Box::from_raw(chunk) });
            self.space.give(bytes);
        }
        Some(())
    }

    /// The first of those that were returned. Takes all of them for a moment, so that none can leave and come back
    /// while this one's follower is looked up.
    fn take_returned(&self) -> Option<&Bucket<S>> {
        // Relaxed: a hint.
        if self.returned.load(Relaxed).is_null() {
            return None;
        }
        // Acquire: pairs with the Release in `put_back`: their chain is seen, and what was done with them is past.
        let first = if mutant!("clht_takes_one") {
            self.take_one()
        } else {
            self.returned.swap(ptr::null_mut(), Acquire)
        };
        // SAFETY: a bucket of a chunk, which lives as long as the table.
        let first = unsafe { first.as_ref() }?;
        // Relaxed, both: they are ours.
        let rest = first.next.load(Relaxed);
        first.next.store(ptr::null_mut(), Relaxed);
        // SAFETY: as above.
        if let Some(rest) = unsafe { rest.as_ref() } {
            self.put_back(rest);
        }
        Some(first)
    }

    /// The mistake of a mutant: the follower may be out of date when the first one is taken.
    fn take_one(&self) -> *mut Bucket<S> {
        let first = self.returned.load(Acquire);
        // SAFETY: as in `take_returned`.
        let Some(bucket) = (unsafe { first.as_ref() }) else {
            return first;
        };
        let next = bucket.next.load(Relaxed);
        let taken = self
            .returned
            .compare_exchange(first, next, Acquire, Relaxed);
        bucket.next.store(ptr::null_mut(), Relaxed);
        taken.map_or(ptr::null_mut(), |first| first)
    }

    /// Puts a chain of buckets, which are the caller's alone, to those that were returned.
    fn put_back(&self, first: &Bucket<S>) {
        let last = first.chain().last().unwrap_or(first);
        // Relaxed: only to be compared, and to be read by who takes it with Acquire. (Who puts a chain before it
        // exchanges the word, which carries on what was released.)
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
    /// Frees some chunks of a table that nobody uses any more; whether there are more.
    pub(super) fn free_share(&mut self) -> bool {
        for _ in 0..SHARE {
            // Relaxed, both: nobody else is there.
            let newest = self.chunk.load(Relaxed);
            if newest.is_null() {
                return false;
            }
            // SAFETY: from a box, and nobody uses the table any more.
            let chunk = unsafe { Box::from_raw(newest) };
            self.chunk.store(chunk.before, Relaxed);
            let buckets = chunk.buckets.len();
            self.space.give(Heads::<Bucket<S>>::bytes(buckets));
        }
        true
    }
}

impl<S> Drop for Overflow<S> {
    fn drop(&mut self) {
        while self.free_share() {}
    }
}

/// A bucket that is in no chain, and its owner's alone. Dropped, it is given back.
pub(super) struct Spare<'t, S: State> {
    overflow: &'t Overflow<S>,
    bucket: &'t Bucket<S>,
}

impl<S: State> Spare<'_, S> {
    pub(super) fn as_ptr(&self) -> *mut Bucket<S> {
        ptr::from_ref(self.bucket).cast_mut()
    }

    /// The bucket, for a chain of the table.
    pub(super) fn into_ptr(self) -> NonNull<Bucket<S>> {
        // Relaxed: see `hung`.
        self.overflow.hung.fetch_add(1, Relaxed);
        let bucket = NonNull::from(self.bucket);
        std::mem::forget(self);
        bucket
    }
}

impl<S: State> Deref for Spare<'_, S> {
    type Target = Bucket<S>;

    fn deref(&self) -> &Bucket<S> {
        self.bucket
    }
}

impl<S: State> Drop for Spare<'_, S> {
    fn drop(&mut self) {
        // Who could not hang it has written to it.
        self.bucket.wipe();
        self.overflow.put_back(self.bucket);
    }
}

#[cfg(test)]
mod models {
    use corewise_atomic::sync::Arc;
    use corewise_atomic::sync::atomic::Ordering::Relaxed;

    use super::Overflow;
    use crate::clht::lock_based::Lock;
    use crate::copy_map::numbers::beside;
    use crate::copy_map::space::Space;

    /// So many buckets were taken before, and given back.
    fn overflow(buckets: usize, returned: usize) -> Arc<Overflow<Lock>> {
        let space = Arc::new(Space::new(usize::MAX));
        let overflow = Overflow::new(buckets, &space);
        let spares: Vec<_> = (0..returned).map(|_| overflow.spare().unwrap()).collect();
        drop(spares);
        Arc::new(overflow)
    }

    /// Takes one for good.
    fn keep(overflow: &Overflow<Lock>) -> usize {
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
                assert_eq!(overflow.hung(), 2);
            });
        }
    }

    /// One takes two and gives back the first of them, while the other takes one.
    #[test]
    fn a_bucket_that_comes_back_is_taken_once() {
        corewise_atomic::model_bounded(3, || {
            let overflow = overflow(1, 2);
            let to_and_fro = |overflow: &Overflow<Lock>| {
                let first = overflow.spare().unwrap();
                // Who could not hang it has written to it.
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
