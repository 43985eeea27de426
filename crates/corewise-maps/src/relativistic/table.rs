//! The bucket array, and what the flags of its words mean.
//!
//! | flags (but `LOCK`) | the bucket |
//! |---|---|
//! | none | *plain*: its chain is its own; updates need this word alone |
//! | `BUSY` | its chain is zipped with others, or not yet what readers use: the lock is elsewhere |
//! | `BUSY`, `INIT` | its children in the next table are in use too; the word is where unzipping goes on |
//! | `INIT` | *forwarded*: everything is in the next table, no update has business here |
//!
//! `LOCK`: an updater, or the resizer, has the bucket. `HOLD`: a node was removed from the zipped
//! chain since unzipping came by last (see `unzip`).
//!
//! Words only ever go plain → `BUSY` + `INIT` → forwarded, or `BUSY` → plain; a table whose words
//! are all forwarded is garbage.

use std::num::NonZero;
use std::ptr::NonNull;

use corewise_atomic::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use corewise_atomic::{Slots, mutant, ordering};

use super::word::{BUSY, HASH_BITS, INIT, Word, pure};

pub(super) struct Table {
    /// The number of buckets less one if that is a power of two, otherwise [`NO_MASK`].
    mask: usize,
    words: Slots<AtomicU64>,
    /// The table that follows: larger or smaller by a whole factor. Set once.
    next: AtomicPtr<Table>,
    /// Readers use it, or have used it.
    published: AtomicBool,
}

const NO_MASK: usize = usize::MAX;

impl Table {
    /// A table of plain, empty buckets; `None` if there is no memory for it, or hashes cannot tell
    /// so many buckets apart.
    pub(super) fn try_new(buckets: usize, published: bool) -> Option<Box<Table>> {
        if buckets > 1 << HASH_BITS {
            return None;
        }
        Some(Box::new(Table {
            mask: if buckets.is_power_of_two() {
                buckets - 1
            } else {
                NO_MASK
            },
            words: Slots::try_zeroed(buckets)?,
            next: AtomicPtr::new(std::ptr::null_mut()),
            published: AtomicBool::new(published),
        }))
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    /// The bucket of a hash; or of a bucket's number in a table that is larger by a whole factor.
    #[inline(always)]
    pub(super) fn index(&self, hash: u32) -> usize {
        if self.mask == NO_MASK {
            return self.remainder(hash);
        }
        hash as usize & self.mask
    }

    #[cold]
    fn remainder(&self, hash: u32) -> usize {
        // A division that cannot panic: the code that would clean up after it costs every lookup.
        let len = NonZero::new(self.words.len()).unwrap_or(NonZero::<usize>::MIN);
        pure(hash) as usize % len
    }

    #[inline(always)]
    pub(super) fn slot(&self, hash: u32) -> &AtomicU64 {
        // SAFETY: `index` is below the number of buckets, which is not 0.
        unsafe { self.words.get_unchecked(self.index(hash)) }
    }

    #[inline(always)]
    pub(super) fn slot_at(&self, bucket: usize) -> &AtomicU64 {
        &self.words[bucket]
    }

    #[inline(always)]
    pub(super) fn word(&self, hash: u32) -> Word {
        load(self.slot(hash))
    }

    /// The table that follows, if there is one.
    pub(super) fn next(&self) -> Option<NonNull<Table>> {
        // Acquire: pairs with the Release in `set_next`, so the table's fields are seen.
        NonNull::new(self.next.load(Acquire))
    }

    /// The table that follows, for someone who has seen `INIT` in one of this table's words.
    pub(super) fn follow(&self) -> &Table {
        let next = self
            .next()
            .expect("a bucket is forwarded, so a table follows");
        // SAFETY: tables live until a grace period after the words that lead to them are gone.
        unsafe { next.as_ref() }
    }

    pub(super) fn set_next(&self, next: *mut Table) {
        // Release: pairs with the Acquire in `next`.
        self.next.store(next, Release);
    }

    /// Whether readers have been sent here. True only after `current` says so.
    pub(super) fn is_published(&self) -> bool {
        // Acquire: pairs with the Release in `set_published`: whoever sees true sees `current`.
        self.published.load(Acquire)
    }

    pub(super) fn set_published(&self) {
        // Release: pairs with the Acquire in `is_published`.
        self.published.store(true, Release);
    }

    /// Gives back the memory of words `from..to` of a table that nobody uses any more, as far as
    /// whole pages go, so that dropping it is cheap.
    pub(super) fn discard(&mut self, from: usize, to: usize) {
        self.words.discard(from..to);
    }
}

/// Reads a bucket.
#[inline(always)]
pub(super) fn load(slot: &AtomicU64) -> Word {
    // Acquire: pairs with the Release in `store` and in the insertion's exchange, so that the
    // node's fields are seen.
    Word(slot.load(Acquire))
}

/// Writes a bucket, under the lock that covers it.
#[inline(always)]
pub(super) fn store(slot: &AtomicU64, word: Word) {
    // Release: pairs with the Acquire in `load`.
    slot.store(word.0, publish());
}

/// Release, of a store that shows a node or a table to readers.
#[inline(always)]
pub(super) fn publish() -> Ordering {
    ordering!(Release, "relaxed_link")
}

/// Replaces `from` by `to`; true if it was there.
#[inline(always)]
pub(super) fn exchange(slot: &AtomicU64, from: Word, to: Word) -> bool {
    // Acquire: pairs with the Release that unlocked the bucket. Release: pairs with `load`.
    // (Release on its own would do for insertions; taking locks needs Acquire.)
    let success = match mutant!("relaxed_link") {
        true => Acquire,
        false => AcqRel,
    };
    slot.compare_exchange(from.0, to.0, success, Relaxed)
        .is_ok()
}

/// Whether updates of the bucket must go to the next table.
#[inline(always)]
pub(super) fn is_forwarded(word: Word) -> bool {
    word.flags() & (INIT | BUSY) == INIT
}
