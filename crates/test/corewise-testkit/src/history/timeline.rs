//! The operations on one key in the order of their returns.

use crate::history::CallRecord;
use std::ops::Range;

/// Most operations that can be open at once on a key: each is one bit in a configuration.
pub const MAX_OPEN: usize = 128;

/// More than [`MAX_OPEN`] operations are open at once.
#[derive(Debug)]
pub(crate) struct TooManyOpen;

/// A key's operations and, for each return in time order (a *step*), the operations open at that
/// moment: invoked before it and not returned before it.
pub(crate) struct Timeline<'h, K, O, R> {
    pub(crate) operations: &'h [&'h CallRecord<K, O, R>],
    /// A bit for each operation, unique among all operations open at the same time. The bit of a
    /// returned operation is reused.
    pub(crate) bits: Vec<u128>,
    /// The range of `open` that belongs to each step.
    steps: Vec<Range<usize>>,
    open: Vec<usize>,
    /// Number of operations that overlap another.
    pub(crate) concurrent: usize,
}

/// The open operations at one moment of the sweep over all invocations and returns.
struct Sweep {
    /// Earliest return first, pending operations last.
    open: Vec<usize>,
    bits_in_use: u128,
    overlaps: Vec<bool>,
}

impl<'h, K, O, R> Timeline<'h, K, O, R> {
    pub(crate) fn new(operations: &'h [&'h CallRecord<K, O, R>]) -> Result<Self, TooManyOpen> {
        let mut timeline = Self {
            operations,
            bits: vec![0; operations.len()],
            steps: Vec::with_capacity(operations.len()),
            open: Vec::new(),
            concurrent: 0,
        };
        let mut sweep = Sweep {
            open: Vec::new(),
            bits_in_use: 0,
            overlaps: vec![false; operations.len()],
        };
        for (_, returns, operation) in moments(operations) {
            if returns {
                timeline.give_back(&mut sweep, operation);
            } else {
                timeline.invoke(&mut sweep, operation)?;
            }
        }
        timeline.concurrent = sweep.overlaps.iter().filter(|overlaps| **overlaps).count();
        Ok(timeline)
    }

    fn invoke(&mut self, sweep: &mut Sweep, operation: usize) -> Result<(), TooManyOpen> {
        let bit = !sweep.bits_in_use & sweep.bits_in_use.wrapping_add(1); // the lowest free one
        if bit == 0 {
            return Err(TooManyOpen);
        }
        sweep.bits_in_use |= bit;
        self.bits[operation] = bit;
        for &other in &sweep.open {
            sweep.overlaps[other] = true;
            sweep.overlaps[operation] = true;
        }
        let rank = |other: usize| (self.operations[other].end(), other);
        let before = |&other: &usize| rank(other) < rank(operation);
        let place = sweep.open.partition_point(before);
        sweep.open.insert(place, operation);
        Ok(())
    }

    fn give_back(&mut self, sweep: &mut Sweep, operation: usize) {
        let start = self.open.len();
        self.open.extend_from_slice(&sweep.open);
        self.steps.push(start..self.open.len());
        let first = sweep.open.remove(0);
        debug_assert_eq!(first, operation, "the open operation that returns first");
        sweep.bits_in_use &= !self.bits[operation];
    }

    /// Number of operations that return.
    pub(crate) fn steps(&self) -> usize {
        self.steps.len()
    }

    /// The operations open at a step; the first is the one that returns.
    pub(crate) fn open(&self, step: usize) -> &[usize] {
        &self.open[self.steps[step].clone()]
    }
}

/// All invocations and returns in time order: time stamp, whether it is a return, operation. Among
/// equal stamps the invocations come first, so the operations overlap.
fn moments<K, O, R>(operations: &[&CallRecord<K, O, R>]) -> Vec<(u64, bool, usize)> {
    let of = |(index, operation): (usize, &&CallRecord<K, O, R>)| {
        let returns = operation.response.as_ref();
        let returns = returns.map(|response| (response.returned, true, index));
        [Some((operation.invoked, false, index)), returns]
    };
    let all = operations.iter().enumerate().flat_map(of).flatten();
    let mut moments: Vec<_> = all.collect();
    moments.sort_unstable();
    moments
}
