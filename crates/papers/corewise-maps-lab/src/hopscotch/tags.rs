//! A byte for each cell, by which lookups find present and absent keys without their homes' infos.

use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicU8, AtomicU64, fence};
use corewise_atomic::{hint, mutant, ordering};
use corewise_maps::parts::{Heads, ZeroedBucket};

use super::info::H;
use super::segment::BUCKETS;

/// Tags that are compared together.
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
const GROUP: usize = 16;
#[cfg(any(corewise_loom, corewise_shuttle))]
const GROUP: usize = 1;
/// Groups in a neighbourhood.
pub(super) const GROUPS: usize = H.div_ceil(GROUP);
const WINDOW: usize = GROUPS * GROUP;

/// Cells of the largest table whose segments' words have a cache line each: 32 KiB of words.
const PADDED: usize = 1 << 15;

/// Eight bits of a hash, those farthest from the bits that choose the home. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(u8);

impl Tag {
    #[inline(always)]
    pub(super) fn of(hash: u64) -> Self {
        Self(((hash >> 56) as u8).max(1))
    }
}

/// The tag of a cell's pair, or 0: then lookups find the pair, if there is one, only by its home's
/// info.
struct Tagged(AtomicU8);

// SAFETY:
// 1. Zero is no tag, so lookups by tag find no pair in the cell.
unsafe impl ZeroedBucket for Tagged {
    fn empty() -> Self {
        Self(AtomicU8::new(0))
    }
}

/// What lookups by tag need to know of a segment, in a word: how often a pair has left one of its
/// cells or homes (48 bits), and how many of its homes are *unsettled*, that is, not shown exactly
/// by the tags. (Homes that are being changed, have keys in nodes, or were moved.)
pub(super) struct Changes(AtomicU64);

// SAFETY:
// 1. Zero means no departures, and all homes are settled.
unsafe impl ZeroedBucket for Changes {
    fn empty() -> Self {
        Self(AtomicU64::new(0))
    }
}

/// The value of [`Changes`] at one time.
#[derive(Clone, Copy)]
pub(super) struct ChangesSeen(u64);

impl Changes {
    /// More than the unsettled count of a segment's homes, each of which counts three times at
    /// most.
    const DEPARTURE: u64 = 1 << 16;

    #[inline(always)]
    pub(super) fn look(&self) -> ChangesSeen {
        // Acquire: pairs with the Release in `settle`, so that the tag of a pair that had left is
        // not seen, and those of the others are.
        ChangesSeen(self.0.load(Acquire))
    }

    /// Whether no word loaded from a cell of this segment since then belongs to a pair that was
    /// written later.
    #[inline(always)]
    pub(super) fn has_kept_all(&self, since: ChangesSeen) -> bool {
        // Acquire: pairs with the Release in `LockedHome::write`: a lookup that has read a word of
        // a later pair sees that the previous one has left.
        fence(Acquire);
        // Relaxed: only compared.
        let now = self.0.load(Relaxed);
        (now ^ since.0) < Self::DEPARTURE || mutant!("hop_hits_at_once")
    }

    /// Whether the tags loaded since then showed all that the homes of this segment had at that
    /// time.
    #[inline(always)]
    pub(super) fn was_settled(&self, since: ChangesSeen) -> bool {
        // Acquire: pairs with the Release in `hide`: a lookup that has missed a tag because it was
        // cleared sees that its home is not settled, or has changed.
        fence(Acquire);
        // Relaxed: only compared.
        since.0.is_multiple_of(Self::DEPARTURE) && self.0.load(Relaxed) == since.0
    }

    fn add(&self, by: u64) {
        // Release: pairs with the Acquire in `look`.
        self.0.fetch_add(by, Release);
    }
}

/// The tags of a table's cells, and the words that count their changes.
pub(super) struct Tags {
    tags: Heads<Tagged>,
    changes: Heads<Changes>,
    cells: usize,
    /// The distance of segments' words, as a power of two.
    stride: u32,
}

impl Tags {
    pub(super) fn try_new(cells: usize) -> Option<Self> {
        let stride = Self::stride(cells);
        Some(Self {
            tags: Heads::try_new(Self::len(cells))?,
            changes: Heads::try_new(cells.div_ceil(BUCKETS) << stride)?,
            cells,
            stride,
        })
    }

    /// In a small table, where threads contend, each word has a cache line; in a large table the
    /// words must stay cached.
    fn stride(cells: usize) -> u32 {
        if cells <= PADDED { 3 } else { 0 }
    }

    pub(super) fn bytes(cells: usize) -> usize {
        let segments = cells.div_ceil(BUCKETS);
        let changes = Heads::<Changes>::bytes(segments << Self::stride(cells));
        Heads::<Tagged>::bytes(Self::len(cells)).saturating_add(changes)
    }

    /// Long enough for a window to begin with any cell: after the last tag the first ones are
    /// repeated.
    fn len(cells: usize) -> usize {
        cells.saturating_add(WINDOW - 1)
    }

    #[inline(always)]
    fn tagged(&self, cell: usize) -> &AtomicU8 {
        &self.tags[cell].0
    }

    /// All copies of a cell's tag.
    fn all_of(&self, cell: usize) -> impl Iterator<Item = &AtomicU8> {
        let more = self.tags[cell..].iter().step_by(self.cells);
        more.map(|tagged| &tagged.0)
    }

    /// Prefetches what lookups read before they know a cell.
    #[inline(always)]
    pub(super) fn prefetch(&self, home: usize) {
        hint::prefetch(self.tagged(home));
        hint::prefetch(self.changes(home));
    }

    /// The changes of the segment of a cell or home.
    #[inline(always)]
    pub(super) fn changes(&self, index: usize) -> &Changes {
        &self.changes[(index / BUCKETS) << self.stride]
    }

    /// Unsettles a home before the caller, which has its lock, changes what the tags should show:
    /// lookups then go by its info.
    pub(super) fn unsettle(&self, home: usize) {
        if !mutant!("hop_stays_settled") {
            // Relaxed: the next change is stored with Release.
            self.changes(home).0.fetch_add(1, Relaxed);
        }
    }

    /// Settles a home that was unsettled `times` times. Called after the tags show what the home
    /// has, and before the cell `left`, which a pair of the home has left, may be written again.
    pub(super) fn settle(&self, home: usize, times: u64, left: Option<usize>) {
        let times = if mutant!("hop_stays_settled") {
            0
        } else {
            times
        };
        let home = self.changes(home);
        let mut removals = 0;
        if let Some(cell) = left
            && !mutant!("hop_leaves_uncounted")
        {
            removals = Changes::DEPARTURE;
            let cell = self.changes(cell);
            if !std::ptr::eq(cell, home) {
                cell.add(removals);
            }
        }
        home.add(removals.wrapping_sub(times));
    }

    /// Clears and returns the tag of a pair that is about to leave its cell. The caller has the
    /// lock of the pair's home, which is unsettled. From here on no lookup takes the pair from
    /// there by its tag.
    pub(super) fn hide(&self, cell: usize) -> Option<Tag> {
        // Relaxed: written under the home's lock.
        let tag = self.tagged(cell).load(Relaxed);
        for tagged in self.all_of(cell) {
            // Release: pairs with the fence in `was_settled`.
            tagged.store(0, ordering!(Release, "hop_relaxed_hide"));
        }
        (tag != 0).then_some(Tag(tag))
    }

    /// Sets the tag of a pair, after its home's info leads to the cell and before the home is
    /// settled: lookups may then take the pair from this cell.
    pub(super) fn show(&self, cell: usize, tag: Option<Tag>) {
        let Some(Tag(tag)) = tag else {
            return;
        };
        for tagged in self.all_of(cell) {
            // Release: pairs with the fence in `find`, so that the pair is seen.
            tagged.store(tag, ordering!(Release, "hop_relaxed_tag"));
        }
    }

    /// The offsets from `home` of the cells with this tag, in one group of its neighbourhood. (The
    /// last group may have a few more cells.)
    #[inline(always)]
    pub(super) fn find(&self, home: usize, group: usize, tag: Tag) -> Offsets {
        let first = group * GROUP;
        let tags = &self.tags[home + first..home + first + GROUP];
        let matches = group::matches(tags, tag.0);
        let offsets = Offsets { first, matches };
        // Acquire: pairs with the Release in `show`: the pair that has the tag is seen.
        fence(Acquire);
        offsets
    }

    #[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
    pub(super) fn memory(&self) -> (*const (), usize) {
        let tags: &[Tagged] = &self.tags;
        (tags.as_ptr().cast(), size_of_val(tags))
    }
}

/// Offsets from a home, the nearest first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offsets {
    first: usize,
    matches: u32,
}

impl Iterator for Offsets {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.matches == 0 {
            return None;
        }
        let next = self.matches.trailing_zeros();
        self.matches &= self.matches - 1;
        Some(self.first + next as usize)
    }
}

/// Compares a group's tags with one tag, and returns a bit for each. To the language it is a
/// Relaxed load of each tag.
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

    const _: () = assert!(GROUP == 16);

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn matches(tags: &[Tagged], tag: u8) -> u32 {
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
        // SAFETY: every x86-64 processor has these instructions.
        unsafe {
            let same = arch::_mm_cmpeq_epi8(group, arch::_mm_set1_epi8(tag.cast_signed()));
            arch::_mm_movemask_epi8(same).cast_unsigned()
        }
    }

    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub(super) fn matches(tags: &[Tagged], tag: u8) -> u32 {
        const BITS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];

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
        // SAFETY: every AArch64 target has these instructions; `BITS` has sixteen elements.
        unsafe {
            let same = arch::vceqq_u8(group, arch::vdupq_n_u8(tag));
            // Adds neighbours three times: one byte of bits for every eight tags.
            let mut bits = arch::vandq_u8(same, arch::vld1q_u8(BITS.as_ptr()));
            for _ in 0..3 {
                bits = arch::vpaddq_u8(bits, bits);
            }
            u32::from(arch::vgetq_lane_u16::<0>(arch::vreinterpretq_u16_u8(bits)))
        }
    }
}

/// As above, portably.
#[cfg(not(all(
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_endian = "little")
    ),
    not(any(miri, corewise_loom, corewise_shuttle, corewise_tsan))
)))]
mod group {
    use super::Tagged;
    use corewise_maps::parts::FENCED_LOAD;

    pub(super) fn matches(tags: &[Tagged], tag: u8) -> u32 {
        let is_same = |tagged: &Tagged| u32::from(tagged.0.load(FENCED_LOAD) == tag);
        let tags = tags.iter().enumerate();
        tags.fold(0, |all, (at, tagged)| all | is_same(tagged) << at)
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;

    fn find(tags: &Tags, home: usize, tag: Tag) -> impl Iterator<Item = usize> {
        (0..GROUPS).flat_map(move |group| tags.find(home, group, tag))
    }

    #[test]
    fn all_tags_of_a_window_are_found() {
        for cells in [1, 2, 16, 128] {
            let tags = Tags::try_new(cells).unwrap();
            let tag = Tag::of;
            let [one, other] = [1 << 56, u64::MAX].map(tag);
            assert_eq!([tag(0), one, other], [1, 1, 0xff].map(Tag));
            // Around the ring, and more than once if it is short.
            for home in 0..cells {
                let mut expected = Vec::new();
                assert_eq!(find(&tags, home, one).count(), 0);
                for offset in (0..cells.min(WINDOW)).step_by(3) {
                    tags.show((home + offset) % cells, Some(one));
                    expected.extend((offset..WINDOW).step_by(cells));
                    expected.sort_unstable();
                    assert!(find(&tags, home, one).eq(expected.iter().copied()));
                    assert_eq!(find(&tags, home, other).count(), 0);
                }
                tags.show(home, Some(other));
                assert!(find(&tags, home, other).eq((0..WINDOW).step_by(cells)));
                for cell in 0..cells {
                    let there = tags.hide(cell);
                    assert!(cell != home || there == Some(other));
                    assert_eq!(tags.hide(cell), None);
                }
            }
        }
    }

    #[test]
    fn changes_are_counted_for_their_segments() {
        let tags = Tags::try_new(BUCKETS * 3).unwrap();
        let [home, cell, other] = [BUCKETS - 1, BUCKETS, 2 * BUCKETS].map(|at| tags.changes(at));
        let seen = || [home, cell, other].map(Changes::look);
        let before = seen();
        tags.unsettle(BUCKETS - 1);
        let meanwhile = seen();
        assert!(!home.was_settled(before[0]) && !home.was_settled(meanwhile[0]));
        assert!(home.has_kept_all(before[0]) && cell.was_settled(before[1]));
        tags.settle(BUCKETS - 1, 1, Some(BUCKETS));
        let after = seen();
        assert!(!home.was_settled(before[0]) && home.was_settled(after[0]));
        assert!(!cell.has_kept_all(before[1]) && cell.has_kept_all(after[1]));
        assert!(!home.has_kept_all(meanwhile[0]));
        assert!(other.was_settled(before[2]) && other.has_kept_all(before[2]));
        // A change without a departure leaves the word as it was.
        tags.unsettle(0);
        tags.settle(0, 1, None);
        assert!(home.was_settled(after[0]));
    }
}
