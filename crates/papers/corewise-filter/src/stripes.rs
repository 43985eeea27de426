//! Striped versions and locks.
//!
//! ```text
//! versions AtomicU64[S]: changes:63 WRITING:1   read by lookups; written by clears
//! locks    AtomicU32[S]: LOCK:1 items:31        never read by lookups
//! ```
//!
//! The stripe of bucket i is (i / G) mod S, where G buckets are whole words. So one lock covers all
//! words of a bucket, and its holder changes them with plain loads and stores.
//!
//! # Invariants
//!
//! 1. A thread takes the locks of an update in ascending order, equal ones once, and waits for
//!    nothing else while it holds them.
//! 2. Only the holder of a lock stores the version and the words of its stripe.
//! 3. The items of a stripe are those in its buckets whenever the lock is free.

use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicU32, AtomicU64, fence};
use corewise_atomic::{Backoff, Slots, mutant, ordering};

use crate::shape::FilterShape;

/// Set in a lock that is held.
const LOCK: u32 = 1 << 31;
/// Set in a version while words of its buckets are rewritten one by one.
const WRITING: u64 = 1;
/// A change of a version.
const CHANGE: u64 = 2;

pub(crate) struct StripedVersions {
    versions: Slots<AtomicU64>,
    locks: Slots<AtomicU32>,
    group_shift: u32,
}

/// The versions of the stripes of two buckets.
#[derive(Clone, Copy)]
pub(crate) struct TwoVersions<'a> {
    first: &'a AtomicU64,
    second: &'a AtomicU64,
}

impl TwoVersions<'_> {
    /// Reads them, before a lookup reads the buckets.
    #[inline(always)]
    pub(crate) fn read(self) -> SeenVersions {
        // Acquire: pairs with the Release in `announce_clear` and `rewrite`. A lookup that reads
        // the version of a clear sees what was stored before it: the copy that was moved.
        let acquire = ordering!(Acquire, "relaxed_version");
        SeenVersions([self.first.load(acquire), self.second.load(acquire)])
    }

    /// Whether the buckets that were read since `seen` lost nothing meanwhile. `may_be_writing` is
    /// whether buckets of the layout may be rewritten word by word.
    #[inline(always)]
    pub(crate) fn is_unchanged(self, seen: SeenVersions, may_be_writing: bool) -> bool {
        if mutant!("no_second_look") {
            return true;
        }
        // Acquire: pairs with the fences in `announce_clear` and `rewrite`. If a load before this
        // fence saw a clear, the loads below see its version.
        fence(Acquire);
        // Relaxed: ordered by the fence above.
        let first = self.first.load(Relaxed);
        let second = if mutant!("one_stripe") {
            seen.0[1]
        } else {
            // Relaxed: ordered by the fence above.
            self.second.load(Relaxed)
        };
        let writing = if may_be_writing {
            (first | second) & WRITING
        } else {
            0
        };
        // One branch.
        ((first ^ seen.0[0]) | (second ^ seen.0[1]) | writing) == 0
    }
}

/// The versions that a lookup has read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeenVersions([u64; 2]);

impl StripedVersions {
    /// `None` if there is no memory.
    pub(crate) fn new(shape: &FilterShape, stripes: u32) -> Option<Self> {
        assert!(stripes.is_power_of_two());
        Some(Self {
            versions: Slots::try_zeroed(stripes as usize)?,
            locks: Slots::try_zeroed(stripes as usize)?,
            group_shift: shape.group_shift(),
        })
    }

    pub(crate) fn size_in_bytes(&self) -> usize {
        size_of_val::<[_]>(&self.versions) + size_of_val::<[_]>(&self.locks)
    }

    pub(crate) fn count(&self) -> usize {
        self.locks.len()
    }

    #[inline(always)]
    pub(crate) fn stripe(&self, bucket: u32) -> usize {
        (bucket >> self.group_shift) as usize & (self.versions.len() - 1)
    }

    /// The items in all stripes: exact if no update runs.
    pub(crate) fn items(&self) -> usize {
        // Relaxed: counts that publish nothing.
        let items = |lock: &AtomicU32| (lock.load(Relaxed) & !LOCK) as usize;
        self.locks.iter().map(items).sum()
    }

    /// The versions of two buckets, for a lookup.
    #[inline(always)]
    pub(crate) fn versions_of(&self, buckets: [u32; 2]) -> TwoVersions<'_> {
        self.versions(buckets, self.group_shift)
    }

    /// The same, where the layout with this shift is known at compile time.
    #[inline(always)]
    pub(crate) fn versions(&self, buckets: [u32; 2], group_shift: u32) -> TwoVersions<'_> {
        debug_assert_eq!(group_shift, self.group_shift);
        let [first, second] = buckets;
        let mask = self.versions.len() - 1;
        TwoVersions {
            first: &self.versions[(first >> group_shift) as usize & mask],
            second: &self.versions[(second >> group_shift) as usize & mask],
        }
    }

    /// Takes the locks of two buckets, and releases them after `body`, also if it panics.
    ///
    /// All updates except those of the whole filter go through here.
    #[inline(always)]
    pub(crate) fn exclusively<R>(
        &self,
        buckets: [u32; 2],
        body: impl FnOnce(&mut HeldStripes<'_>) -> R,
    ) -> R {
        body(&mut self.hold(buckets))
    }

    /// Takes the locks of two buckets, until the guard is dropped. For the usual paths, into which
    /// the compiler does not inline the closure of [`exclusively`](Self::exclusively).
    #[inline(always)]
    pub(crate) fn hold(&self, buckets: [u32; 2]) -> HeldStripes<'_> {
        let [one, other] = buckets.map(|bucket| self.stripe(bucket));
        let is_swapped = one > other && !mutant!("any_order");
        let (low, high) = if is_swapped {
            (other, one)
        } else {
            (one, other)
        };
        let low = HeldStripe {
            index: low,
            items: self.lock(low),
        };
        let high = (high != low.index).then(|| HeldStripe {
            index: high,
            items: self.lock(high),
        });
        HeldStripes {
            stripes: self,
            low,
            high,
        }
    }

    /// Takes all locks, and releases them after `body`, which gets the number of all items, and
    /// that of each stripe. Lookups go on.
    pub(crate) fn exclusively_all<R>(&self, body: impl FnOnce(usize, &[u32]) -> R) -> R {
        let mut held = AllStripes {
            stripes: self,
            items: Vec::with_capacity(self.count()),
        };
        let mut sum = 0;
        for stripe in 0..self.count() {
            let items = self.lock(stripe);
            held.items.push(items);
            sum += items as usize;
            if mutant!("piecewise") {
                held.items.clear();
                // Release: as `unlock`, but too early.
                self.locks[stripe].store(items, Release);
            }
        }
        body(sum, &held.items)
    }

    /// Sets the number of items in a bucket of a filter that no other thread has yet.
    pub(crate) fn count_loaded(&self, bucket: u32, items: u32) {
        let lock = &self.locks[self.stripe(bucket)];
        // Relaxed: no other thread has the filter.
        lock.store(lock.load(Relaxed) + items, Relaxed);
    }

    /// Sets the numbers of items of the stripes of a filter that no other thread has.
    pub(crate) fn set_items(&self, items: &[u32]) {
        for (lock, &items) in self.locks.iter().zip(items) {
            // Relaxed: no other thread has the filter.
            lock.store(items, Relaxed);
        }
    }

    /// Takes a lock; returns the number of items.
    #[inline(always)]
    fn lock(&self, stripe: usize) -> u32 {
        let lock = &self.locks[stripe];
        // Relaxed: a guess, which the exchange checks.
        let items = lock.load(Relaxed) & !LOCK;
        // Acquire: pairs with the Release in `unlock`, so that the holder before has stored all.
        match lock.compare_exchange_weak(items, items | LOCK, Acquire, Relaxed) {
            Ok(_) => items,
            Err(_) => Self::lock_slowly(lock),
        }
    }

    #[cold]
    fn lock_slowly(lock: &AtomicU32) -> u32 {
        let mut backoff = Backoff::new();
        loop {
            // Relaxed: a guess, which the exchange checks.
            let seen = lock.load(Relaxed);
            // Acquire: pairs with the Release in `unlock`. Relaxed on failure: nothing is read.
            if seen & LOCK == 0
                && lock
                    .compare_exchange_weak(seen, seen | LOCK, Acquire, Relaxed)
                    .is_ok()
            {
                return seen;
            }
            backoff.snooze();
        }
    }

    #[inline(always)]
    fn unlock(&self, stripe: &HeldStripe) {
        // Release: pairs with the Acquire of the next holder.
        self.locks[stripe.index].store(stripe.items, Release);
    }
}

struct HeldStripe {
    index: usize,
    items: u32,
}

/// The locks of one or two stripes, held. What the code under them may do is the methods of this
/// type and stores to the words of these stripes; an elided lock would offer the same.
pub(crate) struct HeldStripes<'a> {
    stripes: &'a StripedVersions,
    low: HeldStripe,
    high: Option<HeldStripe>,
}

impl HeldStripes<'_> {
    #[inline(always)]
    fn stripe(&mut self, bucket: u32) -> &mut HeldStripe {
        let index = self.stripes.stripe(bucket);
        match &mut self.high {
            Some(high) if high.index == index => high,
            _ => {
                debug_assert!(
                    self.low.index == index,
                    "the stripe of {bucket} is not held"
                );
                &mut self.low
            }
        }
    }

    /// Counts an item that was placed in the bucket.
    #[inline(always)]
    pub(crate) fn count_placed(&mut self, bucket: u32) {
        self.stripe(bucket).items += 1;
    }

    /// Counts an item that was cleared from the bucket.
    #[inline(always)]
    pub(crate) fn count_cleared(&mut self, bucket: u32) {
        self.stripe(bucket).items -= 1;
    }

    /// Tells lookups that a slot of the bucket will be cleared or overwritten by a store that
    /// follows.
    #[inline(always)]
    pub(crate) fn announce_clear(&mut self, bucket: u32) {
        let version = &self.stripes.versions[self.stripe(bucket).index];
        // Relaxed: only the holder of the lock stores versions.
        let next = version.load(Relaxed).wrapping_add(CHANGE);
        // Release: pairs with the Acquire in `read`. Who sees this version sees where the copy
        // went.
        version.store(next, Release);
        if !mutant!("no_release_fence") {
            // Release: pairs with the fence in `is_unchanged`. Who sees the clear sees the version.
            fence(Release);
        }
    }

    /// Rewrites a bucket that crosses words, whatever changes: lookups that overlap see that.
    #[inline(always)]
    pub(crate) fn rewrite<R>(&mut self, bucket: u32, rewrite: impl FnOnce() -> R) -> R {
        let version = &self.stripes.versions[self.stripe(bucket).index];
        // Relaxed: only the holder of the lock stores versions.
        let before = version.load(Relaxed);
        if !mutant!("no_window") {
            // Relaxed: ordered before the words by the fence below.
            version.store(before | WRITING, Relaxed);
            // Release: pairs with the fence in `is_unchanged`. Who sees one of the words sees
            // WRITING or a later version.
            fence(Release);
        }
        let result = rewrite();
        // Release: pairs with the Acquire in `read`. Who sees this version sees all words.
        version.store(before.wrapping_add(CHANGE), Release);
        result
    }
}

impl Drop for HeldStripes<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.high.iter().for_each(|high| self.stripes.unlock(high));
        self.stripes.unlock(&self.low);
    }
}

/// All locks, or during their acquisition those of the first stripes, held.
struct AllStripes<'a> {
    stripes: &'a StripedVersions,
    items: Vec<u32>,
}

impl Drop for AllStripes<'_> {
    fn drop(&mut self) {
        for (index, &items) in self.items.iter().enumerate() {
            self.stripes.unlock(&HeldStripe { index, items });
        }
    }
}
