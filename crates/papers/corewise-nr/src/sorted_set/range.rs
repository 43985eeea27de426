//! Iteration over members in their order.

use std::iter::FusedIterator;
use std::ops;

use super::tree::TreePosition;
use super::{Direction, SortedSet};

/// Steps from which `nth` descends the tree instead of walking.
const FAR: usize = 8;

/// Members in their order, with their scores. See [`SortedSet::range`].
///
/// Double-ended, of known length, and `nth` and `nth_back` take `O(log n)`.
#[derive(Clone)]
pub struct Range<'a> {
    set: &'a SortedSet,
    /// The ranks that are left, in ascending order.
    ranks: ops::Range<usize>,
    /// The place of the first rank that is left, once it is known.
    front: Option<TreePosition>,
    /// The place of the last rank that is left, once it is known.
    back: Option<TreePosition>,
    direction: Direction,
}

impl<'a> Range<'a> {
    pub(super) fn new(set: &'a SortedSet, ranks: ops::Range<usize>, direction: Direction) -> Self {
        Self {
            set,
            ranks,
            front: None,
            back: None,
            direction,
        }
    }

    fn lowest(&mut self) -> Option<(&'a [u8], f64)> {
        let rank = self.ranks.next()?;
        let tree = &self.set.tree;
        let place = self.front.unwrap_or_else(|| tree.place(rank));
        self.front = tree.next(place);
        Some(self.set.items.records.item(tree.id(place)))
    }

    fn highest(&mut self) -> Option<(&'a [u8], f64)> {
        let rank = self.ranks.next_back()?;
        let tree = &self.set.tree;
        let place = self.back.unwrap_or_else(|| tree.place(rank));
        self.back = tree.previous(place);
        Some(self.set.items.records.item(tree.id(place)))
    }

    fn skip_lowest(&mut self, count: usize) {
        if count < FAR {
            for _ in 0..count {
                self.lowest();
            }
        } else {
            self.front = None;
            self.ranks.start += count.min(self.ranks.len());
        }
    }

    fn skip_highest(&mut self, count: usize) {
        if count < FAR {
            for _ in 0..count {
                self.highest();
            }
        } else {
            self.back = None;
            self.ranks.end -= count.min(self.ranks.len());
        }
    }
}

impl<'a> Iterator for Range<'a> {
    type Item = (&'a [u8], f64);

    fn next(&mut self) -> Option<Self::Item> {
        match self.direction {
            Direction::Ascending => self.lowest(),
            Direction::Descending => self.highest(),
        }
    }

    fn nth(&mut self, n: usize) -> Option<Self::Item> {
        match self.direction {
            Direction::Ascending => self.skip_lowest(n),
            Direction::Descending => self.skip_highest(n),
        }
        self.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.ranks.size_hint()
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match self.direction {
            Direction::Ascending => self.highest(),
            Direction::Descending => self.lowest(),
        }
    }

    fn nth_back(&mut self, n: usize) -> Option<Self::Item> {
        match self.direction {
            Direction::Ascending => self.skip_highest(n),
            Direction::Descending => self.skip_lowest(n),
        }
        self.next_back()
    }
}

impl ExactSizeIterator for Range<'_> {}

impl FusedIterator for Range<'_> {}

impl std::fmt::Debug for Range<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let left = self.ranks.len();
        write!(f, "Range({left} members, {:?})", self.direction)
    }
}
