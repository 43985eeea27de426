//! Moves the arrays of a set within its memory, so that a source whose pages are sparse can empty
//! some of them.

use super::Array;

/// What one step of a move may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MostMoved {
    /// Arrays that are looked at.
    pub looks: usize,
    /// Arrays that are moved.
    pub moves: usize,
}

/// A walk over the arrays of a set, which have the same order as long as the set does not change.
pub(super) struct Mover<'m> {
    skipped: usize,
    looked: usize,
    most: MostMoved,
    leaves: &'m mut dyn FnMut(usize) -> bool,
}

impl<'m> Mover<'m> {
    /// Passes over `from` arrays, then moves those whose address `leaves`.
    pub(super) fn new(
        from: usize,
        most: MostMoved,
        leaves: &'m mut dyn FnMut(usize) -> bool,
    ) -> Self {
        Self {
            skipped: from,
            looked: 0,
            most,
            leaves,
        }
    }

    /// The number of arrays looked at, if there may be more.
    pub(super) fn cut_after(&self) -> Option<usize> {
        self.is_cut().then_some(self.looked)
    }

    fn is_cut(&self) -> bool {
        self.looked == self.most.looks || self.most.moves == 0
    }

    #[inline]
    pub(super) fn visit<T>(&mut self, array: &mut Array<T>) {
        if self.skipped > 0 {
            self.skipped -= 1;
        } else if !self.is_cut() {
            self.looked += 1;
            self.look_at(array);
        }
    }

    fn look_at<T>(&mut self, array: &mut Array<T>) {
        if array.capacity() > 0 && (self.leaves)(array.as_ptr().addr()) {
            let memory = array.allocator().clone();
            let mut moved = Array::with_capacity_in(array.capacity(), memory);
            moved.append(array);
            *array = moved;
            self.most.moves -= 1;
        }
    }
}
