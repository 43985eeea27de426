//! A byte for each cell, by which lookups find most pairs without the infos of their homes.

use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicU8, AtomicU64, fence};
use corewise_atomic::{hint, mutant, ordering};

use super::segment::BUCKETS;
use crate::copy_map::space::{self, Heads};

/// Tags that are looked at together.
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
pub(super) const GROUP: usize = 16;
#[cfg(any(corewise_loom, corewise_shuttle))]
pub(super) const GROUP: usize = 2;

/// Seven bits of a hash, those farthest from the ones that choose the home. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(u8);

impl Tag {
    #[inline(always)]
    pub(super) fn of(hash: u64) -> Self {
        Self((hash >> 57) as u8 | 0x80)
    }
}

/// The tag of a cell's pair, or 0: then lookups have to ask the pair's home for it, if there is one.
struct Tagged(AtomicU8);

// SAFETY:
// 1. 0 is no tag.
unsafe impl space::Bucket for Tagged {
    fn empty() -> Self {
        Self(AtomicU8::new(0))
    }
}

/// How often a pair has left one of a segment's cells.
pub(super) struct Departures(AtomicU64);

// SAFETY:
// 1. None.
unsafe impl space::Bucket for Departures {
    fn empty() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Departures {
    #[inline(always)]
    pub(super) fn count(&self) -> u64 {
        // Acquire: pairs with the Release in `Tags::hide`, so that the tag of a pair that had left before is
        // not seen.
        self.0.load(Acquire)
    }

    /// Whether what was loaded since there were `count` belongs to no pair that was written later.
    #[inline(always)]
    pub(super) fn are_still(&self, count: u64) -> bool {
        // Acquire: pairs with the Release in `Locked::write`: who has read a word of a later pair sees that the
        // one before has left.
        fence(Acquire);
        // Relaxed: only to be compared.
        self.0.load(Relaxed) == count
    }
}

/// The tags of a table's cells, and the departures from them.
pub(super) struct Tags {
    tags: Heads<Tagged>,
    departures: Heads<Departures>,
}

impl Tags {
    pub(super) fn try_new(cells: usize) -> Option<Self> {
        Some(Self {
            tags: Heads::try_new(Self::len(cells))?,
            departures: Heads::try_new(cells.div_ceil(BUCKETS))?,
        })
    }

    pub(super) fn bytes(cells: usize) -> usize {
        let departures = Heads::<Departures>::bytes(cells.div_ceil(BUCKETS));
        Heads::<Tagged>::bytes(Self::len(cells)).saturating_add(departures)
    }

    /// So many that a group may begin with any cell.
    fn len(cells: usize) -> usize {
        cells.saturating_add(GROUP - 1)
    }

    #[inline(always)]
    fn tagged(&self, cell: usize) -> &AtomicU8 {
        &self.tags[cell].0
    }

    /// Asks for what [`find`](Self::find) and the lookup after it read.
    #[inline(always)]
    pub(super) fn prefetch(&self, cell: usize) {
        hint::prefetch(self.tagged(cell));
        hint::prefetch(self.departures(cell));
    }

    #[inline(always)]
    pub(super) fn departures(&self, cell: usize) -> &Departures {
        &self.departures[cell / BUCKETS]
    }

    /// Whether a cell's pair has this tag, and lookups may take it.
    #[inline(always)]
    pub(super) fn has(&self, cell: usize, tag: Tag) -> bool {
        // Acquire: pairs with the Release in `show`, so that the pair is seen.
        self.tagged(cell).load(Acquire) == tag.0
    }

    /// Before a pair leaves its cell, of whose home the caller has the lock: from here on no lookup takes it from
    /// there. The tag it had.
    pub(super) fn hide(&self, cell: usize) -> Option<Tag> {
        let tag = self.clear(cell);
        if !mutant!("hop_leaves_uncounted") {
            // Release: pairs with the Acquire in `Departures::count`.
            self.departures(cell).0.fetch_add(1, Release);
        }
        tag
    }

    /// [`hide`](Self::hide), of a cell that will not be written again.
    pub(super) fn clear(&self, cell: usize) -> Option<Tag> {
        let tagged = self.tagged(cell);
        // Relaxed, both: written under the home's lock; what comes after is stored with Release.
        let tag = tagged.load(Relaxed);
        tagged.store(0, Relaxed);
        (tag != 0).then_some(Tag(tag))
    }

    /// After it is known where a pair is, and before the home's lock is released: lookups may take it from this cell.
    pub(super) fn show(&self, cell: usize, tag: Option<Tag>) {
        if let Some(Tag(tag)) = tag {
            // Release: pairs with the Acquire in `has`.
            let order = ordering!(Release, "hop_relaxed_tag");
            self.tagged(cell).store(tag, order);
        }
    }

    /// How far from `home` the first cell is that seems to have this tag, of the next few and short of the ring's end:
    /// a hint.
    #[inline(always)]
    pub(super) fn find(&self, home: usize, tag: Tag) -> Option<usize> {
        group::find(&self.tags[home..home + GROUP], tag.0)
    }

    #[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
    pub(super) fn memory(&self) -> (*const (), usize) {
        let tags: &[Tagged] = &self.tags;
        (tags.as_ptr().cast(), size_of_val(tags))
    }
}

/// Which of a group's tags is the first one that is equal to another. To the language that is a Relaxed load of each;
/// nothing is concluded from them.
#[cfg(all(
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_endian = "little")
    ),
    not(any(miri, corewise_loom, corewise_shuttle, corewise_tsan))
))]
mod group {
    #[cfg(target_arch = "aarch64")]
    use std::arch::aarch64 as arch;
    use std::arch::asm;
    #[cfg(target_arch = "x86_64")]
    use std::arch::x86_64 as arch;

    use super::{GROUP, Tagged};

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn find(tags: &[Tagged], tag: u8) -> Option<usize> {
        assert!(tags.len() == GROUP);
        let group: arch::__m128i;
        // SAFETY: reads sixteen bytes, which are there, by the assertion.
        unsafe {
            asm!(
                "movdqu {group}, xmmword ptr [{tags}]",
                group = out(xmm_reg) group,
                tags = in(reg) tags.as_ptr(),
                options(nostack, readonly, preserves_flags)
            );
        }
        // SAFETY: every x86-64 has these.
        let same = unsafe {
            let same = arch::_mm_cmpeq_epi8(group, arch::_mm_set1_epi8(tag.cast_signed()));
            arch::_mm_movemask_epi8(same)
        };
        (same != 0).then(|| same.trailing_zeros() as usize)
    }

    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub(super) fn find(tags: &[Tagged], tag: u8) -> Option<usize> {
        assert!(tags.len() == GROUP);
        let group: arch::uint8x16_t;
        // SAFETY: reads sixteen bytes, which are there, by the assertion.
        unsafe {
            asm!(
                "ldr {group:q}, [{tags}]",
                group = out(vreg) group,
                tags = in(reg) tags.as_ptr(),
                options(nostack, readonly, preserves_flags)
            );
        }
        // SAFETY: every AArch64 with this target's name has these.
        let same = unsafe {
            let same = arch::vreinterpretq_u16_u8(arch::vceqq_u8(group, arch::vdupq_n_u8(tag)));
            // Four bits of each byte are left, in a word.
            arch::vget_lane_u64::<0>(arch::vreinterpret_u64_u8(arch::vshrn_n_u16::<4>(same)))
        };
        (same != 0).then(|| same.trailing_zeros() as usize / 4)
    }
}

/// As above.
#[cfg(not(all(
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_endian = "little")
    ),
    not(any(miri, corewise_loom, corewise_shuttle, corewise_tsan))
)))]
mod group {
    use corewise_atomic::sync::atomic::Ordering::Relaxed;

    use super::Tagged;

    pub(super) fn find(tags: &[Tagged], tag: u8) -> Option<usize> {
        // Relaxed: nothing is concluded from it.
        tags.iter().position(|tagged| tagged.0.load(Relaxed) == tag)
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_first_tag_of_a_group_is_found() {
        const CELLS: usize = 128;
        let tags = Tags::try_new(CELLS).unwrap();
        let tag = Tag::of;
        let [one, other] = [1 << 57, u64::MAX].map(tag);
        assert_eq!([tag(0), one, other], [0x80, 0x81, 0xff].map(Tag));
        // Also of the last cells, with what comes after them.
        for home in 0..CELLS {
            assert_eq!(tags.find(home, one), None);
            for cell in (home..CELLS.min(home + GROUP)).rev() {
                tags.show(cell, Some(one));
                assert_eq!(tags.find(home, one), Some(cell - home));
                assert_eq!(tags.find(home, other), None);
                assert!(tags.has(cell, one) && !tags.has(cell, other));
            }
            tags.show(home, Some(other));
            assert_eq!(tags.find(home, other), Some(0));
            assert_ne!(tags.find(home, one), Some(0));
            for cell in home..CELLS.min(home + GROUP) {
                let there = tags.clear(cell);
                assert_eq!(there, Some(if cell == home { other } else { one }));
            }
        }
    }

    #[test]
    fn departures_are_counted_for_their_segment() {
        let tags = Tags::try_new(BUCKETS * 2).unwrap();
        let count = |cell| tags.departures(cell).count();
        tags.show(BUCKETS, Some(Tag::of(0)));
        assert_eq!(tags.hide(BUCKETS), Some(Tag::of(0)));
        assert_eq!(tags.hide(BUCKETS), None);
        assert_eq!(
            [count(BUCKETS - 1), count(BUCKETS), count(2 * BUCKETS - 1)],
            [0, 2, 2]
        );
        assert!(!tags.departures(BUCKETS).are_still(0) && tags.departures(BUCKETS).are_still(2));
    }
}
