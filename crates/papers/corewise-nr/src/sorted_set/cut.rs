//! The ids of records that the tree has no more, and which have yet to leave the index.

use super::Array;
use super::mover::Mover;
use super::pages::Pages;
use crate::SetMemory;

/// Runs that are freed at once: together no more than an array of the index.
const RUNS: usize = 32;

/// See the module.
#[derive(Debug)]
pub(super) struct Cut {
    /// Those of one leaf each; none is empty.
    runs: Pages<Array<u32>>,
    len: usize,
    /// The capacities of all runs together.
    capacity: usize,
}

impl Cut {
    pub(super) fn new(memory: &SetMemory) -> Self {
        Self {
            runs: Pages::new(memory),
            len: 0,
            capacity: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes requested from the allocator.
    pub(super) fn memory(&self) -> usize {
        self.runs.memory() + self.capacity * size_of::<u32>()
    }

    pub(super) fn move_arrays(&mut self, mover: &mut Mover<'_>) {
        self.runs.move_arrays(mover, |run, mover| mover.visit(run));
    }

    pub(super) fn push(&mut self, ids: &[u32]) {
        let mut run = Array::with_capacity_in(ids.len(), self.runs.source().clone());
        run.extend_from_slice(ids);
        self.len += run.len();
        self.capacity += run.capacity();
        self.runs.push(run);
    }

    pub(super) fn pop(&mut self) -> Option<u32> {
        let last = self.runs.len().checked_sub(1)?;
        let run = &mut self.runs[last as u32];
        let id = run.pop();
        self.len -= 1;
        if run.is_empty() {
            self.drop_run();
        }
        id
    }

    /// Frees some runs, and returns whether there were any. Their records are forgotten.
    pub(super) fn drop_some(&mut self) -> bool {
        (0..RUNS).take_while(|_| self.drop_run()).count() > 0
    }

    fn drop_run(&mut self) -> bool {
        let Some(run) = self.runs.pop() else {
            return false;
        };
        self.len -= run.len();
        self.capacity -= run.capacity();
        true
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.runs.iter().flatten().copied()
    }
}

/// The clone has no room for more ids.
impl Clone for Cut {
    fn clone(&self) -> Self {
        let runs = self.runs.clone();
        Self {
            capacity: runs.iter().map(Array::capacity).sum(),
            len: self.len,
            runs,
        }
    }
}
