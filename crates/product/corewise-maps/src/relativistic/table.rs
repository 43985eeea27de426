//! The bucket array and the meaning of the flags in its words.
//!
//! | flags (except `LOCK`) | state of the bucket |
//! |---|---|
//! | none | *plain*: its chain contains its own entries only; updates need this word alone |
//! | `BUSY` | its chain is zipped with others, or readers do not use it yet: another word has the lock |
//! | `BUSY`, `INIT` | its children in the next table are in use too; the word points to where unzipping resumes |
//! | `INIT` | *forwarded*: all entries are in the next table, and updates go there |
//!
//! `LOCK`: an updater or the resizer holds the bucket. `HOLD`: a node was removed from the zipped
//! chain since the last sweep visited the bucket (see `Expansion::unzip`). `PURE`, with `BUSY` and
//! `INIT`: when the bucket was zipped, all nodes of its chain belonged to one child, so nothing is
//! to be cut.
//!
//! The only transitions of a word are plain → `BUSY` + `INIT` → forwarded, and `BUSY` → plain. A
//! table whose words are all forwarded is garbage.

use std::num::NonZero;
use std::ops::Range;
use std::ptr::NonNull;

use corewise_atomic::alloc::{self, HUGE_PAGE};
use corewise_atomic::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use corewise_atomic::{Slots, mutant, ordering};

use super::word::{BUSY, BucketWord, HASH_BITS, INIT, NodeId, Probe, ShiftedHash, hash_bits};

pub(super) struct BucketArray {
    /// As `mask`, but 0 instead of [`NO_MASK`].
    lookup_mask: usize,
    /// The first of `words`, or the last if there is no mask: then every lookup finds an empty
    /// bucket at first, so that only lookups that find nothing check whether there is a mask.
    lookup_words: NonNull<AtomicU64>,
    /// The number of buckets minus one if that number is a power of two, otherwise [`NO_MASK`].
    mask: usize,
    buckets: usize,
    /// The buckets. If there is no mask, an empty word follows.
    words: Slots<AtomicU64>,
    /// The following table, larger or smaller by an integer factor. Set once.
    next: AtomicPtr<BucketArray>,
    /// Whether readers use this table or have used it.
    published: AtomicBool,
}

const NO_MASK: usize = usize::MAX;

// SAFETY: `lookup_words` points into the array of atomics that the table owns.
unsafe impl Send for BucketArray {}
// SAFETY: shared access through `lookup_words` is access to atomics only.
unsafe impl Sync for BucketArray {}

/// The least bytes of an array whose pages are likely to be fresh from the system.
const SMALL_MAPPED: usize = 128 << 10;

impl BucketArray {
    /// Creates a table of plain, empty buckets. Returns `None` if memory is not available, or if
    /// hashes have too few bits for this number of buckets.
    pub(super) fn try_new(
        buckets: usize,
        published: bool,
        huge_pages: bool,
    ) -> Option<Box<BucketArray>> {
        assert!(buckets > 0, "a table needs a bucket");
        if buckets > 1 << HASH_BITS {
            return None;
        }
        let has_mask = buckets.is_power_of_two();
        let mut words = Slots::<AtomicU64>::try_zeroed(buckets + usize::from(!has_mask))?;
        if !huge_pages {
            words.prefer_small_pages();
        }
        Some(Box::new(BucketArray {
            lookup_mask: if has_mask { buckets - 1 } else { 0 },
            lookup_words: NonNull::from(&words[if has_mask { 0 } else { buckets }..]).cast(),
            mask: if has_mask { buckets - 1 } else { NO_MASK },
            buckets,
            words,
            next: AtomicPtr::new(std::ptr::null_mut()),
            published: AtomicBool::new(published),
        }))
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.buckets
    }

    /// The bucket of a hash, or of a bucket index of a table that is larger by an integer factor.
    #[inline(always)]
    pub(super) fn index(&self, hash: u32) -> usize {
        if self.mask == NO_MASK {
            return self.remainder(hash);
        }
        hash as usize & self.mask
    }

    #[cold]
    fn remainder(&self, hash: u32) -> usize {
        // A division that cannot panic: the unwinding code would cost every lookup.
        let len = NonZero::new(self.buckets).unwrap_or(NonZero::<usize>::MIN);
        hash_bits(hash) as usize % len
    }

    #[inline(always)]
    pub(super) fn slot(&self, hash: u32) -> &AtomicU64 {
        // SAFETY: `index` is below the number of buckets, which `try_new` has checked is not 0.
        unsafe { self.words.get_unchecked(self.index(hash)) }
    }

    #[inline(always)]
    pub(super) fn slot_at(&self, bucket: usize) -> &AtomicU64 {
        &self.words[bucket]
    }

    /// The words of some buckets.
    pub(super) fn slots(&self, buckets: Range<usize>) -> &[AtomicU64] {
        &self.words[buckets]
    }

    #[inline(always)]
    pub(super) fn word(&self, hash: u32) -> BucketWord {
        load(self.slot(hash))
    }

    /// The first node of a hash's bucket, if the bucket may hold that hash.
    #[inline(always)]
    pub(super) fn first_for(&self, hash: u32, shifted: ShiftedHash) -> Option<NodeId> {
        let bucket = hash as usize & self.lookup_mask;
        // SAFETY: one of `words`, of which there are at least `lookup_mask` + 1 from here on.
        let word = load(unsafe { self.lookup_words.add(bucket).as_ref() });
        let first = word.first_for(shifted.probe());
        if first.is_none() && self.mask == NO_MASK {
            return self.first_without_mask(hash);
        }
        first
    }

    #[cold]
    #[inline(never)]
    fn first_without_mask(&self, hash: u32) -> Option<NodeId> {
        self.word(hash).first_for(Probe::new(hash))
    }

    /// The following table, if any.
    pub(super) fn next(&self) -> Option<NonNull<BucketArray>> {
        // Acquire: pairs with the Release in `set_next`, so the table's fields are seen.
        NonNull::new(self.next.load(Acquire))
    }

    /// The following table, for callers that have seen `INIT` in one of this table's words.
    pub(super) fn follow(&self) -> &BucketArray {
        let next = self
            .next()
            .expect("a bucket is forwarded, so a table follows");
        // SAFETY: it is freed after this table, by the contract of `set_next`.
        unsafe { next.as_ref() }
    }

    /// # Safety
    ///
    /// 1. `next` is freed, or mutably borrowed, only after this table is freed.
    pub(super) unsafe fn set_next(&self, next: *mut BucketArray) {
        // Release: pairs with the Acquire in `next`.
        self.next.store(next, Release);
    }

    /// Whether readers have been sent here. True only after `current` leads here.
    pub(super) fn is_published(&self) -> bool {
        // Acquire: pairs with the Release in `set_published`: a thread that sees true sees
        // `current`.
        self.published.load(Acquire)
    }

    pub(super) fn set_published(&self) {
        // Release: pairs with the Acquire in `is_published`.
        self.published.store(true, Release);
    }

    /// Maps the pages of an array that is about to be written as a whole. The first access to a
    /// word is a load, for which the system would map the page of zeros, and replace it at the
    /// first store, with an interrupt for all threads of the process.
    ///
    /// Larger arrays have huge pages; smaller ones are in memory that an allocator has at hand.
    pub(super) fn populate(&self) {
        let bytes = size_of_val::<[AtomicU64]>(&self.words);
        // The checkers' atomics are not plain memory.
        if (SMALL_MAPPED..HUGE_PAGE).contains(&bytes) && !cfg!(any(corewise_loom, corewise_shuttle))
        {
            alloc::populate(self.words.as_ptr().cast(), bytes);
        }
    }

    /// Returns the memory of words `from..to` to the system, as far as they cover whole pages, so
    /// that dropping the table is cheap. No other thread may use the table.
    pub(super) fn discard(&mut self, from: usize, to: usize) {
        self.words.discard(from..to);
    }
}

/// Loads a bucket's word.
#[inline(always)]
pub(super) fn load(slot: &AtomicU64) -> BucketWord {
    // Acquire: pairs with the Release in `store` and in the insertion's exchange, so that the
    // node's fields are seen.
    BucketWord(slot.load(Acquire))
}

/// Stores a bucket's word, under the lock that covers it.
#[inline(always)]
pub(super) fn store(slot: &AtomicU64, word: BucketWord) {
    // Release: pairs with the Acquire in `load`.
    slot.store(word.0, publish());
}

/// Release, for a store that shows a node or a table to readers.
#[inline(always)]
pub(super) fn publish() -> Ordering {
    ordering!(Release, "relaxed_link")
}

/// Compare-exchange from `from` to `to`; returns whether it succeeded.
#[inline(always)]
pub(super) fn exchange(slot: &AtomicU64, from: BucketWord, to: BucketWord) -> bool {
    // Acquire: pairs with the Release that unlocked the bucket. Release: pairs with `load`.
    // (Release alone would suffice for insertions; taking locks needs Acquire.)
    let success = if mutant!("relaxed_link") {
        Acquire
    } else {
        AcqRel
    };
    // Relaxed: the word that is found on failure is not used.
    slot.compare_exchange(from.0, to.0, success, Relaxed)
        .is_ok()
}

/// Whether updates of the bucket must go to the next table.
#[inline(always)]
pub(super) fn is_forwarded(word: BucketWord) -> bool {
    word.flags() & (INIT | BUSY) == INIT
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    /// A lookup reads the bucket that an update of the same hash writes, in tables with a mask and
    /// without.
    #[test]
    fn lookups_and_updates_agree_on_the_bucket() {
        for buckets in 1..20 {
            let table = BucketArray::try_new(buckets, true, true).unwrap();
            let find = |hash| table.first_for(hash, ShiftedHash::new(hash));
            for hash in (0..1 << HASH_BITS).step_by((1 << HASH_BITS) / 97) {
                assert_eq!(find(hash), None, "{hash} of {buckets}");
                let node = NodeId(NonZeroU32::new(hash + 1).unwrap());
                let slot = table.slot(hash);
                store(slot, BucketWord::EMPTY.prepend(node, Probe::new(hash)));
                assert_eq!(find(hash), Some(node), "{hash} of {buckets}");
                store(slot, BucketWord::EMPTY);
            }
        }
    }
}
