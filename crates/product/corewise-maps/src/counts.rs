//! The number of entries of a table, counted in several places.

use corewise_atomic::sync::atomic::AtomicUsize;
use corewise_atomic::sync::atomic::Ordering::Relaxed;
use corewise_atomic::{CachePadded, Slots};
use corewise_rcu::Section;

/// Number of places that threads share.
const PLACES: usize = 16;

/// A counter that threads add to, each in a place that it has alone or shares with a few others.
pub struct EntryCounts(Slots<CachePadded<AtomicUsize>>);

impl Default for EntryCounts {
    fn default() -> Self {
        Self::new()
    }
}

impl EntryCounts {
    /// Creates a counter of zero.
    pub fn new() -> Self {
        let zero = |_| CachePadded::from(AtomicUsize::new(0));
        Self(Slots::from_fn(PLACES, zero))
    }

    /// Adds a number, in the place of the section's thread.
    #[inline]
    pub fn add(&self, section: &impl Section, by: isize) {
        let place = section.reader_index() % PLACES;
        // Relaxed: a number that publishes nothing, here and below.
        self.0[place].fetch_add(by.cast_unsigned(), Relaxed);
    }

    /// The sum, give or take additions in progress.
    pub fn sum(&self) -> usize {
        let counts = self.0.iter().map(|count| count.load(Relaxed));
        // A single place may be below zero, and so may the sum while other threads count.
        let sum = counts.fold(0, usize::wrapping_add);
        sum.cast_signed().max(0).cast_unsigned()
    }
}
