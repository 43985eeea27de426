//! The segments from which compaction may gain.
//!
//! A full cache searches for a segment to compact before it evicts, and one that may not evict does
//! so at every store. There may be thousands of segments and nothing to gain from any, so the
//! search does not visit them all: a thread that adds to the summed dead bytes of a segment, or
//! seals the segment, *marks* it, and the search visits marked segments only. The marks are a
//! bitmap with one bit per segment; a search reads one word for every 64 segments.
//!
//! # Guarantees
//!
//! 1. *Nothing is missed*: a segment whose summed dead bytes have changed since the last search
//!    visited it is marked. The thread that changes the fill sets the mark afterwards
//!    ([`Marks::mark`]); a search clears the mark before it reads the fill ([`Marks::take`]). Both
//!    are read-modify-writes of the same word, so one precedes the other. If the mark was set
//!    first, the search that clears it sees the new fill. If it was cleared first, the mark remains
//!    for the next search.
//! 2. A segment that may not be claimed yet keeps its mark.

use corewise_atomic::sync::atomic::{AtomicU64, Ordering, Ordering::AcqRel};
use corewise_atomic::{Slots, mutant, ordering};

use super::queues::Segment;
use std::ops::Range;

/// A bitmap of marked segments. See the [module](self).
pub(super) struct Marks {
    words: Slots<AtomicU64>,
}

impl Marks {
    /// Creates marks for segments below `segments`; returns `None` if there is no memory.
    pub(super) fn new(segments: usize) -> Option<Self> {
        let words = Slots::try_zeroed(segments.div_ceil(64))?;
        Some(Self { words })
    }

    /// Marks a segment whose fill has changed.
    pub(super) fn mark(&self, segment: Segment) {
        if !mutant!("forgets_sparse") {
            // AcqRel: pairs with that of `take`, so that the thread that clears the mark sees the
            // fill. The mark is set even if it seems to be set: a plain load may return the value
            // from before it was cleared.
            let bit = 1 << (segment % 64);
            self.words[segment as usize / 64].fetch_or(bit, ordering!(AcqRel, "relaxed_mark"));
        }
    }

    /// Clears a segment's mark, before its fill is read.
    pub(super) fn take(&self, segment: Segment) {
        // AcqRel: see `mark`.
        let bit = 1 << (segment % 64);
        self.words[segment as usize / 64].fetch_and(!bit, ordering!(AcqRel, "relaxed_take"));
    }

    /// Iterates over the marked segments of a range. Segments marked during the iteration may be
    /// among them.
    pub(super) fn marked_in(&self, range: Range<Segment>) -> impl Iterator<Item = Segment> {
        let words = range.start as usize / 64..(range.end as usize).div_ceil(64);
        let within = words.flat_map(|index| {
            // Relaxed: a hint; `take` decides.
            let word = self.words[index].load(Ordering::Relaxed);
            bits(word).map(move |bit| index as Segment * 64 + bit)
        });
        within.filter(move |segment| range.contains(segment))
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
    fn marked_segments_of_a_range_are_found_once() {
        let marks = Marks::new(200).unwrap();
        let marked = [1, 63, 64, 130, 199];
        marked.iter().for_each(|&segment| marks.mark(segment));
        for from in 0..=200 {
            for to in 0..=200 {
                let found: Vec<Segment> = marks.marked_in(from..to).collect();
                let expected = marked.iter().copied();
                let expected = expected.filter(|segment| (from..to).contains(segment));
                assert_eq!(found, expected.collect::<Vec<_>>(), "{from}..{to}");
            }
        }
        marks.take(64);
        assert_eq!(marks.marked_in(64..200).next(), Some(130));
    }
}

#[cfg(test)]
mod models {
    use super::*;
    use corewise_atomic::sync::atomic::AtomicUsize;
    use corewise_atomic::{model, thread};
    use std::sync::Arc;

    /// Guarantee 1. Mutants `forgets_sparse`, `relaxed_mark`, `relaxed_take`.
    #[test]
    fn a_search_sees_the_fill_or_leaves_the_mark() {
        model(|| {
            let shared = Arc::new((Marks::new(1).unwrap(), AtomicUsize::new(9)));
            shared.0.mark(3);
            let other = Arc::clone(&shared);
            // Relaxed fills: the test checks that the marks order them.
            let remover = thread::spawn(move || {
                other.1.store(5, Ordering::Relaxed);
                other.0.mark(3);
            });
            shared.0.take(3);
            let seen = shared.1.load(Ordering::Relaxed);
            remover.join().unwrap();
            let is_marked = shared.0.marked_in(0..64).any(|segment| segment == 3);
            assert!(seen == 5 || is_marked, "a change of the fill was missed");
        });
    }
}
