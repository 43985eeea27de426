//! The number of entries of a table, counted in a few places.

use corewise_atomic::sync::atomic::AtomicUsize;
use corewise_atomic::sync::atomic::Ordering::Relaxed;
use corewise_atomic::{CachePadded, Slots};
use corewise_rcu::Section;

/// Threads share so many places.
const PLACES: usize = 16;

/// A number that threads add to, each in a place that it has to itself or shares with a few.
pub(crate) struct Counts(Slots<CachePadded<AtomicUsize>>);

impl Counts {
    pub(crate) fn new() -> Self {
        let zero = |_| CachePadded::from(AtomicUsize::new(0));
        Self(Slots::from_fn(PLACES, zero))
    }

    #[inline]
    pub(crate) fn add(&self, section: &impl Section, by: isize) {
        let place = section.reader_index() % PLACES;
        // Relaxed: a number that publishes nothing, here and below.
        self.0[place].fetch_add(by.cast_unsigned(), Relaxed);
    }

    /// The sum, give or take what is being added.
    pub(crate) fn sum(&self) -> usize {
        let counts = self.0.iter().map(|count| count.load(Relaxed));
        // One place may be below zero, and all of them, while others count.
        let sum = counts.fold(0, usize::wrapping_add);
        sum.cast_signed().max(0).cast_unsigned()
    }
}
