//! The array of buckets, and how it is read beside updates.
//!
//! # A lookup
//!
//! 1. Read the versions of both stripes, *Acquire*.
//! 2. Read both buckets, *Relaxed*. A match is the answer.
//! 3. Fence *Acquire*, read the versions again. If they are equal and not WRITING, the item is
//!    absent.
//! 4. Otherwise repeat. After [`MISS_ROUNDS`] the answer is *yes*, the error that a filter may
//!    make.
//!
//! # A clear, by a move or a removal
//!
//! 10. Store the copy in its new bucket, *Relaxed*.
//! 11. Add a change to the version of the old bucket's stripe, *Release*.
//! 12. Fence *Release*, clear or overwrite the old slot, *Relaxed*.
//!
//! A lookup that misses a copy has read the new bucket before 10 and the old one after 12. Then its
//! fence pairs with that of 12, so its second look sees 11. Its first look cannot have seen 11, or
//! it would have seen 10. So the versions differ, and it reads again.
//!
//! Removals announce too, although nothing moves: let y be in bucket B, and let x, of the same
//! class, be inserted into A and then removed from B while a lookup for y reads A early and B late.
//! Without 11 it would miss y, of which a copy was present at all times.

use corewise_atomic::sync::atomic::{AtomicU64, Ordering::Relaxed};
use corewise_atomic::{Backoff, Slots, hint, mutant};

use crate::packed::{Fingerprints, PackedLayout};
use crate::pairing::{BucketPairing, ItemClass};
use crate::semi_sorted::SemiSortedLayout;
use crate::shape::{BuildError, FilterShape};
use crate::stripes::{HeldStripes, StripedVersions};

/// Rounds after which a lookup that is disturbed each time answers *yes*.
const MISS_ROUNDS: u32 = 64;

/// How fingerprints lie in a bucket. The widths that are used most have lookups compiled for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BucketLayout {
    Packed4x8,
    Packed4x12,
    Packed4x16,
    Packed(PackedLayout),
    SemiSorted13,
    SemiSorted(SemiSortedLayout),
}

const PACKED_4X8: PackedLayout = PackedLayout::new(4, 8);
const PACKED_4X12: PackedLayout = PackedLayout::new(4, 12);
const PACKED_4X16: PackedLayout = PackedLayout::new(4, 16);
const SEMI_SORTED_13: SemiSortedLayout = SemiSortedLayout::new(13);

/// Calls a method of the layout.
macro_rules! for_layout {
    ($layout:expr, $bind:ident => $body:expr) => {
        match $layout {
            BucketLayout::Packed4x8 => {
                let $bind = &PACKED_4X8;
                $body
            }
            BucketLayout::Packed4x12 => {
                let $bind = &PACKED_4X12;
                $body
            }
            BucketLayout::Packed4x16 => {
                let $bind = &PACKED_4X16;
                $body
            }
            BucketLayout::SemiSorted13 => {
                let $bind = &SEMI_SORTED_13;
                $body
            }
            BucketLayout::Packed($bind) => $body,
            BucketLayout::SemiSorted($bind) => $body,
        }
    };
}

impl BucketLayout {
    fn new(shape: &FilterShape) -> Self {
        match (shape.is_semi_sorted, shape.bucket_slots, shape.bits) {
            (false, 4, 8) => Self::Packed4x8,
            (false, 4, 12) => Self::Packed4x12,
            (false, 4, 16) => Self::Packed4x16,
            (false, slots, bits) => Self::Packed(PackedLayout::new(slots, bits)),
            (true, _, 13) => Self::SemiSorted13,
            (true, _, bits) => Self::SemiSorted(SemiSortedLayout::new(bits)),
        }
    }

    /// The widths without a variant, for rare steps of updates, which gain nothing by more code.
    fn general(&self) -> Self {
        match *self {
            Self::Packed4x8 => Self::Packed(PACKED_4X8),
            Self::Packed4x12 => Self::Packed(PACKED_4X12),
            Self::Packed4x16 => Self::Packed(PACKED_4X16),
            Self::SemiSorted13 => Self::SemiSorted(SEMI_SORTED_13),
            general => general,
        }
    }
}

/// What lookups, and updates of one bucket, need of a layout. All of it is inlined, so that a width
/// that is known at compile time costs no computation.
trait Layout {
    /// Whether buckets may be rewritten word by word.
    const REWRITES: bool;

    fn group_shift(&self) -> u32;
    fn contains(&self, words: &[AtomicU64], bucket: u32, fingerprint: u32) -> bool;
    fn either_contains(&self, words: &[AtomicU64], buckets: [u32; 2], fingerprint: u32) -> bool;
    fn replace(&self, words: &[AtomicU64], bucket: u32, old: u32, new: u32) -> bool;
    /// Whether a change of this bucket is such a rewrite.
    fn is_rewritten(&self, bucket: u32) -> bool;
}

macro_rules! layout {
    ($layout:ty, $rewrites:literal, $is_rewritten:expr) => {
        impl Layout for $layout {
            const REWRITES: bool = $rewrites;

            #[inline(always)]
            fn group_shift(&self) -> u32 {
                self.group_shift()
            }

            #[inline(always)]
            fn contains(&self, words: &[AtomicU64], bucket: u32, wanted: u32) -> bool {
                self.contains(words, bucket, wanted)
            }

            #[inline(always)]
            fn either_contains(&self, words: &[AtomicU64], buckets: [u32; 2], wanted: u32) -> bool {
                self.either_contains(words, buckets, wanted)
            }

            #[inline(always)]
            fn replace(&self, words: &[AtomicU64], bucket: u32, old: u32, new: u32) -> bool {
                self.replace(words, bucket, old, new)
            }

            #[inline(always)]
            fn is_rewritten(&self, bucket: u32) -> bool {
                $is_rewritten(self, bucket)
            }
        }
    };
}

layout!(PackedLayout, false, |_, _| false);
layout!(SemiSortedLayout, true, SemiSortedLayout::crosses_words);

pub(crate) struct FingerprintTable {
    words: Slots<AtomicU64>,
    pub(crate) stripes: StripedVersions,
    layout: BucketLayout,
    pub(crate) pairing: BucketPairing,
}

// Two cache lines.
const _: () = assert!(size_of::<FingerprintTable>() <= 128);

/// Where an item was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Located {
    /// Its bucket held the fingerprint a moment ago.
    In(u32),
    /// In neither bucket, at some moment during the call.
    Nowhere,
    /// Every round was disturbed.
    Unknown,
}

impl FingerprintTable {
    pub(crate) fn new(shape: &FilterShape, stripes: u32) -> Result<Self, BuildError> {
        let words = usize::try_from(shape.words()).map_err(|_| BuildError::Size)?;
        Ok(Self {
            words: Slots::try_zeroed(words).ok_or(BuildError::NoMemory)?,
            stripes: StripedVersions::new(shape, stripes).ok_or(BuildError::NoMemory)?,
            layout: BucketLayout::new(shape),
            pairing: BucketPairing::new(shape),
        })
    }

    pub(crate) fn size_in_bytes(&self) -> usize {
        size_of_val::<[_]>(&self.words) + self.stripes.size_in_bytes()
    }

    /// The words and the number of items at one moment. Updates wait meanwhile.
    pub(crate) fn snapshot(&self) -> (Vec<u64>, usize) {
        let mut words = Vec::with_capacity(self.words.len());
        let items = self.stripes.exclusively_all(|items, _| {
            // Relaxed: the locks order the stores of all updates.
            words.extend(self.words.iter().map(|word| word.load(Relaxed)));
            items
        });
        (words, items)
    }

    /// A copy of a table of this shape at one moment. Updates wait meanwhile.
    pub(crate) fn copy(&self, shape: &FilterShape) -> Result<Self, BuildError> {
        // The stripes of a filter are no more than 2^13.
        let copy = Self::new(shape, self.stripes.count() as u32)?;
        self.stripes.exclusively_all(|_, items| {
            for (to, from) in copy.words.iter().zip(self.words.iter()) {
                // Relaxed, both: the locks order the stores of all updates, and no other thread has
                // the copy.
                to.store(from.load(Relaxed), Relaxed);
            }
            copy.stripes.set_items(items);
        });
        Ok(copy)
    }

    /// Clears all slots. The caller has the filter alone.
    pub(crate) fn clear_all(&mut self) {
        // Relaxed: no other thread has the filter.
        self.words.iter().for_each(|word| word.store(0, Relaxed));
        self.stripes.set_items(&vec![0; self.stripes.count()]);
    }

    /// Stores a word of a filter that no other thread has yet.
    pub(crate) fn load_word(&self, index: usize, word: u64) {
        // Relaxed: no other thread has the filter.
        self.words[index].store(word, Relaxed);
    }

    /// Counts the items in words that were loaded. `None` if no filter could have written them.
    pub(crate) fn count_loaded(&self, shape: &FilterShape) -> Option<u64> {
        let bits = u64::from(shape.buckets) * u64::from(shape.bucket_bits());
        let used = (bits / 64) as usize;
        // Relaxed: no other thread has the filter.
        let unused = |word: &AtomicU64, from: u64| word.load(Relaxed) >> from == 0;
        let (partial, rest) = self.words.get(used..)?.split_first()?;
        if !unused(partial, bits % 64) || !rest.iter().all(|word| unused(word, 0)) {
            return None;
        }
        let mut items = 0;
        for bucket in 0..shape.buckets {
            if let BucketLayout::SemiSorted(layout) = self.layout.general()
                && !layout.is_valid(&self.words, bucket)
            {
                return None;
            }
            let empty = self.copies(bucket, 0);
            self.stripes
                .count_loaded(bucket, shape.bucket_slots - empty);
            items += u64::from(shape.bucket_slots - empty);
        }
        Some(items)
    }

    /// Requests the words of a bucket.
    #[inline(always)]
    pub(crate) fn prefetch(&self, bucket: u32) {
        let word = for_layout!(&self.layout, layout => layout.first_word(bucket));
        hint::prefetch(&raw const self.words[word]);
    }

    /// Whether the bucket holds the fingerprint, or, if it is 0, has room. Exact under the lock of
    /// the bucket.
    #[inline(always)]
    pub(crate) fn holds(&self, bucket: u32, fingerprint: u32) -> bool {
        for_layout!(&self.layout, layout => layout.contains(&self.words, bucket, fingerprint))
    }

    pub(crate) fn copies(&self, bucket: u32, fingerprint: u32) -> u32 {
        for_layout!(&self.layout.general(), layout => {
            layout.count(&self.words, bucket, fingerprint)
        })
    }

    pub(crate) fn fingerprints(&self, bucket: u32) -> Fingerprints {
        for_layout!(&self.layout.general(), layout => layout.fingerprints(&self.words, bucket))
    }

    /// Whether the item with this hash is present. Progress: wait-free; writes nothing.
    ///
    /// The path of the usual widths, outside of links, is inlined into users. All else is in calls,
    /// so that this path has registers for all that it needs.
    #[inline(always)]
    pub(crate) fn contains_hash(&self, hash: u64) -> bool {
        match &self.layout {
            BucketLayout::Packed4x8 => self.contains_outside_links(hash, &PACKED_4X8),
            BucketLayout::Packed4x12 => self.contains_outside_links(hash, &PACKED_4X12),
            BucketLayout::Packed4x16 => self.contains_outside_links(hash, &PACKED_4X16),
            _ => self.contains_in_any_layout(hash),
        }
    }

    #[inline(always)]
    fn contains_outside_links<L: Layout>(&self, hash: u64, layout: &L) -> bool {
        match self.pairing.class_outside_links(hash) {
            Some(class) => self.is_present(&class, layout),
            None => self.contains_in_any_layout(hash),
        }
    }

    #[inline(never)]
    fn contains_in_any_layout(&self, hash: u64) -> bool {
        self.contains(&self.pairing.class(hash))
    }

    /// Whether the item is present.
    #[inline(always)]
    pub(crate) fn contains(&self, class: &ItemClass) -> bool {
        for_layout!(&self.layout, layout => self.is_present(class, layout))
    }

    #[inline(always)]
    fn is_present<L: Layout>(&self, class: &ItemClass, layout: &L) -> bool {
        let buckets = [class.first, class.second];
        let versions = self.stripes.versions(buckets, layout.group_shift());
        let seen = versions.read();
        if layout.either_contains(&self.words, buckets, class.fingerprint) {
            return true;
        }
        if versions.is_unchanged(seen, L::REWRITES) {
            return false;
        }
        self.is_present_disturbed(class.fingerprint, class.first, class.second)
    }

    /// The parts of the class, and not a reference, so that they need not be in memory.
    #[cold]
    #[inline(never)]
    fn is_present_disturbed(&self, fingerprint: u32, first: u32, second: u32) -> bool {
        let class = ItemClass {
            fingerprint,
            first,
            second,
        };
        self.locate(&class) != Located::Nowhere
    }

    /// Searches for the item. As [`FingerprintTable::contains`], but tells where it is.
    #[inline(never)]
    pub(crate) fn locate(&self, class: &ItemClass) -> Located {
        let buckets = [class.first, class.second];
        let versions = self.stripes.versions_of(buckets);
        let mut backoff = Backoff::new();
        for _ in 0..MISS_ROUNDS {
            let seen = versions.read();
            let found = buckets
                .into_iter()
                .find(|&bucket| self.holds(bucket, class.fingerprint));
            if let Some(bucket) = found {
                return Located::In(bucket);
            }
            if versions.is_unchanged(seen, true) {
                return Located::Nowhere;
            }
            backoff.snooze();
        }
        Located::Unknown
    }

    /// Stores the fingerprint in a free slot of the bucket, if there is one.
    #[inline(never)]
    pub(crate) fn place(&self, held: &mut HeldStripes<'_>, bucket: u32, fingerprint: u32) -> bool {
        for_layout!(&self.layout.general(), layout => {
            self.place_in(layout, held, bucket, fingerprint)
        })
    }

    #[inline(always)]
    fn place_in<L: Layout>(
        &self,
        layout: &L,
        held: &mut HeldStripes<'_>,
        bucket: u32,
        fingerprint: u32,
    ) -> bool {
        let is_placed = if layout.is_rewritten(bucket) {
            layout.contains(&self.words, bucket, 0)
                && held.rewrite(bucket, || {
                    layout.replace(&self.words, bucket, 0, fingerprint)
                })
        } else {
            layout.replace(&self.words, bucket, 0, fingerprint)
        };
        if is_placed {
            held.count_placed(bucket);
        }
        is_placed
    }

    /// Clears a copy of the fingerprint, which the caller has seen in the bucket under the lock.
    pub(crate) fn clear(&self, held: &mut HeldStripes<'_>, bucket: u32, fingerprint: u32) {
        self.overwrite(held, bucket, fingerprint, 0);
        held.count_cleared(bucket);
    }

    /// Replaces a copy of `old`, which the caller has seen in the bucket under the lock.
    #[inline(never)]
    pub(crate) fn overwrite(&self, held: &mut HeldStripes<'_>, bucket: u32, old: u32, new: u32) {
        for_layout!(&self.layout.general(), layout => {
            self.overwrite_in(layout, held, bucket, old, new);
        });
    }

    #[inline(always)]
    fn overwrite_in<L: Layout>(
        &self,
        layout: &L,
        held: &mut HeldStripes<'_>,
        bucket: u32,
        old: u32,
        new: u32,
    ) {
        if layout.is_rewritten(bucket) {
            held.rewrite(bucket, || layout.replace(&self.words, bucket, old, new));
            return;
        }
        let is_unannounced = new == 0 && mutant!("remove_unannounced");
        if !is_unannounced && !mutant!("bumps_late") {
            held.announce_clear(bucket);
        }
        layout.replace(&self.words, bucket, old, new);
        if mutant!("bumps_late") {
            held.announce_clear(bucket);
        }
    }

    /// Places the fingerprint of the item if one of its buckets has room.
    #[inline(always)]
    pub(crate) fn place_in_room(&self, class: &ItemClass) -> bool {
        for_layout!(&self.layout, layout => {
            self.place_in_room_of(layout, class.first, class.fingerprint)
                || self.place_in_room_of(layout, class.second, class.fingerprint)
        })
    }

    #[inline(always)]
    fn place_in_room_of<L: Layout>(&self, layout: &L, bucket: u32, fingerprint: u32) -> bool {
        if !layout.contains(&self.words, bucket, 0) {
            return false;
        }
        let mut held = self.stripes.hold([bucket; 2]);
        self.place_in(layout, &mut held, bucket, fingerprint)
    }

    /// Clears a copy of the item that stays in a bucket. May find none if other threads move it.
    #[inline(always)]
    pub(crate) fn take_at_once(&self, class: &ItemClass) -> bool {
        for_layout!(&self.layout, layout => {
            self.take_seen_in(layout, class.first, class.fingerprint)
                || self.take_seen_in(layout, class.second, class.fingerprint)
        })
    }

    #[inline(always)]
    fn take_seen_in<L: Layout>(&self, layout: &L, bucket: u32, fingerprint: u32) -> bool {
        layout.contains(&self.words, bucket, fingerprint)
            && self.take_in(layout, bucket, fingerprint)
    }

    /// Clears a copy of the item in this bucket, if there is one.
    #[inline(never)]
    pub(crate) fn take(&self, bucket: u32, class: &ItemClass) -> bool {
        for_layout!(&self.layout.general(), layout => {
            self.take_in(layout, bucket, class.fingerprint)
        })
    }

    #[inline(always)]
    fn take_in<L: Layout>(&self, layout: &L, bucket: u32, fingerprint: u32) -> bool {
        let mut held = self.stripes.hold([bucket; 2]);
        let is_there = layout.contains(&self.words, bucket, fingerprint);
        if is_there {
            self.overwrite_in(layout, &mut held, bucket, fingerprint, 0);
            held.count_cleared(bucket);
        }
        is_there
    }
}
