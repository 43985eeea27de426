//! Which segments compaction may gain from, where nothing may be evicted.
//!
//! A cache that is full and may not evict looks for something to compact at every store. There may be
//! thousands of segments and nothing to gain from any, so it does not look at them: a segment is *marked*
//! by whoever makes it worth a look (one who buries an item of it, or seals it), and only marked ones are
//! looked at. One bit a segment; a search costs a word for each 64 segments.
//!
//! # Guarantees
//!
//! 1. *Nothing is missed*: a segment whose numbers make it worth a look, and that no search has looked at
//!    since, is marked. The one who changes the numbers marks afterwards ([`Marks::mark`]); a search takes
//!    the mark away before it looks ([`Marks::take`]). Of the two read-modify-writes of the word one comes
//!    first: if the mark, it is taken by this search, which then sees the numbers; if the taking, the mark
//!    stays for the next.
//! 2. A segment that may not be claimed yet keeps its mark.

use corewise_atomic::sync::atomic::{AtomicU64, Ordering};
use corewise_atomic::{Slots, mutant};

use super::heap::Segment;

/// See the [module](self).
pub(super) struct Marks {
    words: Slots<AtomicU64>,
}

impl Marks {
    /// For segments below `segments`; `None` if there is no memory.
    pub(super) fn new(segments: usize) -> Option<Self> {
        let words = Slots::try_zeroed(segments.div_ceil(64))?;
        Some(Self { words })
    }

    /// Marks a segment whose numbers have changed.
    pub(super) fn mark(&self, segment: Segment) {
        if !mutant!("forgets_sparse") {
            // AcqRel: pairs with that of `take`, so that one who takes the mark sees the numbers. Not after a
            // look whether it is there: that could be of a time before the mark was taken.
            self.words[segment as usize / 64].fetch_or(1 << (segment % 64), Ordering::AcqRel);
        }
    }

    /// Takes a segment's mark away, before its numbers are looked at.
    pub(super) fn take(&self, segment: Segment) {
        // AcqRel: see `mark`.
        self.words[segment as usize / 64].fetch_and(!(1 << (segment % 64)), Ordering::AcqRel);
    }

    /// The marked segments, each once: those from `from` on and then those before it. What is marked
    /// meanwhile may be among them.
    pub(super) fn marked_from(&self, from: Segment) -> impl Iterator<Item = Segment> {
        let count = self.words.len();
        let (first, bit) = ((from as usize / 64) % count, from % 64);
        let behind = !0 << bit;
        (0..=count).flat_map(move |step| {
            let index = (first + step) % count;
            let wanted = match step {
                0 => behind,
                _ if step == count => !behind,
                _ => !0,
            };
            // Relaxed: a hint; `take` decides.
            let word = self.words[index].load(Ordering::Relaxed) & wanted;
            bits(word).map(move |bit| index as Segment * 64 + bit)
        })
    }
}

/// The positions of the bits of a word.
fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        word &= word.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn marked_segments_are_found_once_from_anywhere() {
        let marks = Marks::new(200).unwrap();
        let marked = [1, 63, 64, 130, 199];
        marked.iter().for_each(|&segment| marks.mark(segment));
        for from in 0..260 {
            let from = from as Segment;
            let found: Vec<Segment> = marks.marked_from(from).collect();
            let mut sorted = found.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, marked, "from {from}");
            if let Some(next) = marked.iter().find(|&&segment| segment >= from) {
                assert_eq!(found[0], *next, "from {from}");
            }
        }
        marks.take(64);
        assert_eq!(marks.marked_from(64).next(), Some(130));
    }
}
