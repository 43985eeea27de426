//! Runs of segments, accounted by the page: the storage of medium and large items.
//!
//! A run consists of neighbouring segments of which only a prefix of pages is in use. Addresses are
//! plentiful and pages are not, so a run may leave addresses unused but holds no page that it does
//! not need. One bit per page tells whether it may be resident, in free runs too: a run that is
//! reused at the same length finds its pages in place and causes no page fault.
//!
//! ```text
//!  run of 2 segments, 5 of its 8 pages in use       a free run; its pages are still resident
//! ┌────┬────┬────┬────┰────┬────┬────┬────┐       ┌────┬────┬────┬────┐
//! │ ██ │ ██ │ ██ │ ██ ┃ ██ │    │    │    │       │ ░░ │ ░░ │ ░░ │    │
//! └────┴────┴────┴────┸────┴────┴────┴────┘       └────┴────┴────┴────┘
//! ```
//!
//! Invariant: pages of used runs behind their prefix are not resident. So pages that are resident
//! without being in use lie in free runs, and are counted.
//!
//! Everything here is under the pool's lock. Taking and giving back a run takes time logarithmic in
//! the number of runs, plus a look at each word of its bits; taking one may pass over free runs
//! that are too short.

use super::queues::Segment;
use std::collections::BTreeMap;
use std::ops::Range;

/// A run in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) segments: u32,
    /// Pages that it may use, from its beginning.
    pub(super) pages: u32,
    /// The run holds one item, which fills it.
    pub(super) is_large: bool,
}

/// The upper part of the reservation.
pub(super) struct Runs {
    /// No segment from here on is ever handed out as an ordinary segment.
    from: Segment,
    pages_per_segment: u32,
    free: BTreeMap<Segment, u32>,
    used: BTreeMap<Segment, Run>,
    /// One bit per page of the reservation.
    resident: Vec<u64>,
    /// How many pages may be resident, in use or free.
    resident_pages: u64,
    spare_pages: u64,
    /// The number of large runs of each length, by [`length_class`].
    lengths: [u32; LENGTH_CLASSES],
    /// Where [`Runs::spare`] searches next.
    next_spare: Segment,
}

impl Runs {
    pub(super) fn new(segments: usize, pages_per_segment: u32) -> Self {
        let pages = segments * pages_per_segment as usize;
        Self {
            from: segments as Segment,
            pages_per_segment,
            free: BTreeMap::new(),
            used: BTreeMap::new(),
            // Zeroed vectors, whose pages are allocated when touched: most are never used.
            resident: vec![0; pages.div_ceil(64)],
            resident_pages: 0,
            spare_pages: 0,
            lengths: [0; LENGTH_CLASSES],
            next_spare: 0,
        }
    }

    /// The lowest segment that was ever part of a run.
    pub(super) fn from(&self) -> Segment {
        self.from
    }

    pub(super) fn get(&self, segment: Segment) -> Option<Run> {
        self.used.get(&segment).copied()
    }

    pub(super) fn used(&self) -> impl Iterator<Item = Segment> {
        self.used.keys().copied()
    }

    pub(super) fn used_from(&self, from: Segment) -> Option<Segment> {
        self.used.range(from..).next().map(|(first, _)| *first)
    }

    pub(super) fn used_count(&self) -> u32 {
        self.used.len() as u32
    }

    /// Pages that may be resident, in use or free.
    pub(super) fn resident_pages(&self) -> u64 {
        self.resident_pages
    }

    /// Pages of free runs that may be resident.
    #[cfg(test)]
    fn spare_pages(&self) -> u64 {
        self.spare_pages
    }

    /// Takes a run at or above `lowest`: the first that fits from the top down. Returns `None` if
    /// there are no addresses. From now on the pages that it may use count as resident.
    ///
    /// Returns the run's first segment, and how many of its pages, from the beginning up to the
    /// last resident one, were resident already.
    pub(super) fn take(&mut self, run: Run, lowest: Segment) -> Option<(Segment, u32)> {
        let count = run.segments;
        let fits = self.free.iter().rev().find(|(_, free)| **free >= count);
        let first = match fits.map(|(&first, &free)| (first, free)) {
            Some((first, free)) => {
                // The upper part is taken; the rest stays free.
                self.free.remove(&first);
                if free > count {
                    self.free.insert(first, free - count);
                }
                first + free - count
            }
            None => {
                // The lowest run so far moves down.
                let first = self.from.checked_sub(count);
                let first = first.filter(|first| *first >= lowest)?;
                self.from = first;
                first
            }
        };
        self.used.insert(first, run);
        self.lengths[length_class(run.pages)] += u32::from(run.is_large);
        let all = self.range(first, 0, count * self.pages_per_segment);
        self.spare_pages -= self.count_resident(all.clone());
        let last = self.last_resident(all.clone());
        let before = last.map_or(0, |last| (last + 1 - all.start) as u32);
        self.mark_resident(self.range(first, 0, run.pages));
        Some((first, before))
    }

    /// Pages of the longest large run, rounded up by at most a quarter; 0 if there is none.
    pub(super) fn longest(&self) -> u32 {
        let longest = self.lengths.iter().rposition(|count| *count > 0);
        longest.map_or(0, |class| {
            let (log2, quarter) = (class as u32 / 4, class as u32 % 4);
            (((5 + quarter) as u64) << log2).div_ceil(4) as u32
        })
    }

    /// Shortens a run to `pages` pages; a large run keeps its length. From now on the pages behind
    /// count as not resident; the caller discards those that may be.
    pub(super) fn shorten(&mut self, first: Segment, pages: u32) {
        if let Some(run) = self.used.get_mut(&first) {
            run.pages = pages;
            let all = run.segments * self.pages_per_segment;
            self.clear_resident(self.range(first, pages, all));
        }
    }

    /// Returns the lowest addresses to ordinary segments, if nothing there is used or resident.
    pub(super) fn retreat(&mut self) {
        let Some(&count) = self.free.get(&self.from) else {
            return;
        };
        let all = self.range(self.from, 0, count * self.pages_per_segment);
        if self.count_resident(all) == 0 {
            self.free.remove(&self.from);
            self.from += count;
        }
    }

    /// The pages of a run from its page `from` up to its page `to`, as page numbers of the
    /// reservation.
    pub(super) fn range(&self, first: Segment, from: u32, to: u32) -> Range<u64> {
        let begin = u64::from(first) * u64::from(self.pages_per_segment);
        begin + u64::from(from)..begin + u64::from(to)
    }

    /// Takes a run back and returns it, or `None` if the segment does not begin one. Its pages stay
    /// resident.
    pub(super) fn give_back(&mut self, segment: Segment) -> Option<Run> {
        let run = self.used.remove(&segment)?;
        self.lengths[length_class(run.pages)] -= u32::from(run.is_large);
        let (mut first, mut count) = (segment, run.segments);
        self.spare_pages +=
            self.count_resident(self.range(first, 0, count * self.pages_per_segment));
        // Joins the free runs after and before it.
        if let Some(after) = self.free.remove(&(segment + count)) {
            count += after;
        }
        if let Some((&before, &free)) = self.free.range(..segment).next_back()
            && before + free == segment
        {
            self.free.remove(&before);
            (first, count) = (before, count + free);
        }
        self.free.insert(first, count);
        Some(run)
    }

    /// Takes at most `most` neighbouring pages of free runs that may be resident. From now on they
    /// count as not resident, and the caller discards them.
    pub(super) fn spare(&mut self, most: u64) -> Option<Range<u64>> {
        if self.spare_pages == 0 {
            return None;
        }
        let from_next = self.free.range(self.next_spare..);
        let found = from_next
            .chain(self.free.range(..self.next_spare))
            .find_map(|(&first, &count)| {
                let all = self.range(first, 0, count * self.pages_per_segment);
                Some((first, self.first_resident(all)?))
            });
        let (first, stretch) = found?;
        self.next_spare = first;
        let stretch = stretch.start..stretch.end.min(stretch.start + most);
        let cleared = self.clear_resident(stretch)?;
        self.spare_pages -= cleared.end - cleared.start;
        Some(cleared)
    }

    // ---- the bits

    /// The first stretch of resident pages.
    fn first_resident(&self, pages: Range<u64>) -> Option<Range<u64>> {
        let start = self.first_page(pages.clone(), true)?;
        let end = self
            .first_page(start..pages.end, false)
            .unwrap_or(pages.end);
        Some(start..end)
    }

    /// The first page whose residency is `is_resident`.
    fn first_page(&self, pages: Range<u64>, is_resident: bool) -> Option<u64> {
        words(pages).find_map(|(index, mask, base)| {
            let word = self.resident[index];
            let wanted = if is_resident { word } else { !word } & mask;
            (wanted != 0).then(|| base + u64::from(wanted.trailing_zeros()))
        })
    }

    fn last_resident(&self, pages: Range<u64>) -> Option<u64> {
        let last = |(index, mask, base): (usize, u64, u64)| {
            let ones = self.resident[index] & mask;
            (ones != 0).then(|| base + 63 - u64::from(ones.leading_zeros()))
        };
        words(pages).filter_map(last).last()
    }

    fn count_resident(&self, pages: Range<u64>) -> u64 {
        let ones = |(index, mask, _): (usize, u64, u64)| (self.resident[index] & mask).count_ones();
        words(pages).map(|word| u64::from(ones(word))).sum()
    }

    fn mark_resident(&mut self, pages: Range<u64>) {
        for (index, mask, _) in words(pages) {
            let word = &mut self.resident[index];
            self.resident_pages += u64::from((mask & !*word).count_ones());
            *word |= mask;
        }
    }

    /// Clears the bits of the pages. Returns the range from the first to the last page that was
    /// resident.
    fn clear_resident(&mut self, pages: Range<u64>) -> Option<Range<u64>> {
        let mut cleared: Option<Range<u64>> = None;
        for (index, mask, base) in words(pages) {
            let word = &mut self.resident[index];
            let ones = *word & mask;
            if ones == 0 {
                continue;
            }
            self.resident_pages -= u64::from(ones.count_ones());
            *word &= !mask;
            let start = base + u64::from(ones.trailing_zeros());
            let end = base + 64 - u64::from(ones.leading_zeros());
            cleared = Some(cleared.map_or(start, |before| before.start)..end);
        }
        cleared
    }
}

const LENGTH_CLASSES: usize = 128;

/// The length class of a run: four classes for each power of two.
fn length_class(pages: u32) -> usize {
    let log2 = pages.max(1).ilog2();
    let quarter = (u64::from(pages.max(1)) << 2 >> log2) as usize & 3;
    log2 as usize * 4 + quarter
}

/// The words that contain the bits of these pages: index, mask, and the page of the lowest bit.
fn words(pages: Range<u64>) -> impl Iterator<Item = (usize, u64, u64)> {
    let first = pages.start / 64;
    let end = if pages.is_empty() {
        first
    } else {
        pages.end.div_ceil(64)
    };
    (first..end).map(move |index| {
        let base = index * 64;
        let from = pages.start.max(base) - base;
        let to = pages.end.min(base + 64) - base;
        let below = |bit: u64| 1u64.checked_shl(bit as u32).map_or(u64::MAX, |bit| bit - 1);
        (index as usize, below(to) & !below(from), base)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(segments: u32, pages: u32) -> Run {
        Run {
            segments,
            pages,
            is_large: true,
        }
    }

    #[test]
    fn free_runs_are_joined_again() {
        let mut runs = Runs::new(100, 4);
        let taken: Vec<Segment> = (0..10)
            .map(|_| runs.take(run(5, 20), 1).unwrap().0)
            .collect();
        assert_eq!((taken[0], taken[9], runs.from), (95, 50, 50));
        assert_eq!(runs.take(run(60, 1), 1), None, "no addresses are left");
        for index in [3, 5, 4, 8] {
            assert_eq!(runs.give_back(taken[index]), Some(run(5, 20)));
        }
        assert_eq!(runs.give_back(taken[3]), None, "it is not in use");
        assert_eq!(runs.free, BTreeMap::from([(55, 5), (70, 15)]));
        assert_eq!(runs.take(run(6, 1), 1), Some((79, 24)));
    }

    #[test]
    fn a_run_that_is_used_again_finds_its_pages() {
        let mut runs = Runs::new(100, 32);
        let (first, before) = runs.take(run(3, 70), 1).unwrap();
        assert_eq!(
            (before, runs.resident_pages(), runs.spare_pages()),
            (0, 70, 0)
        );
        runs.give_back(first);
        assert_eq!((runs.resident_pages(), runs.spare_pages()), (70, 70));
        assert_eq!(runs.take(run(3, 66), 1), Some((first, 70)));
        assert_eq!((runs.resident_pages(), runs.spare_pages()), (70, 0));
        runs.shorten(first, 66);
        assert_eq!(runs.resident_pages(), 66);
    }

    #[test]
    fn the_longest_run_is_told_to_a_quarter() {
        for pages in (1..300).chain([1 << 20, (1 << 25) + 7, u32::MAX / 2]) {
            let class = length_class(pages);
            let mut runs = Runs::new(1, 1);
            assert_eq!(runs.longest(), 0);
            runs.lengths[class] = 1;
            let reported = runs.longest();
            assert!(
                reported >= pages && reported <= pages + pages / 4 + 1,
                "{pages}: {reported}"
            );
        }
    }

    #[test]
    fn resident_pages_are_counted_as_a_set_would() {
        use std::collections::BTreeSet;
        let (mut runs, per) = (Runs::new(64, 8), 8u32);
        let (mut used, mut resident) = (Vec::<(Segment, Run)>::new(), BTreeSet::<u64>::new());
        let mut draw = 1u64;
        let mut next = |below: u64| {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (draw >> 33) % below
        };
        for _ in 0..5_000 {
            match next(4) {
                0 | 1 => {
                    let segments = 1 + next(5) as u32;
                    let wanted = run(segments, 1 + next(u64::from(segments * per)) as u32);
                    let Some((first, _)) = runs.take(wanted, 1) else {
                        continue;
                    };
                    resident.extend(runs.range(first, 0, wanted.pages));
                    let behind = runs.range(first, wanted.pages, segments * per);
                    runs.shorten(first, wanted.pages);
                    resident.retain(|page| !behind.contains(page));
                    used.push((first, wanted));
                }
                2 if !used.is_empty() => {
                    let (first, was) = used.swap_remove(next(used.len() as u64) as usize);
                    assert_eq!(runs.give_back(first), Some(was));
                }
                _ => {
                    let Some(pages) = runs.spare(1 + next(20)) else {
                        assert_eq!(runs.spare_pages(), 0);
                        continue;
                    };
                    for page in pages {
                        assert!(resident.remove(&page), "it was resident");
                        let segment = (page / u64::from(per)) as Segment;
                        assert!(used.iter().all(|(first, run)| {
                            !(*first..first + run.segments).contains(&segment)
                        }));
                    }
                }
            }
            let in_use: u64 = used.iter().map(|(_, run)| u64::from(run.pages)).sum();
            assert_eq!(runs.resident_pages(), resident.len() as u64);
            assert_eq!(runs.spare_pages(), resident.len() as u64 - in_use);
        }
    }
}
