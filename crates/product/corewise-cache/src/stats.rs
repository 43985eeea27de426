//! Counters in stripes, so that threads that count do not write the same cache line.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const STRIPES: usize = 32;

thread_local! {
    static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
}

#[derive(Default)]
#[repr(align(128))]
struct Stripe {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// What a cache has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Lookups that found a value.
    pub hits: u64,
    /// Lookups that found none.
    pub misses: u64,
    /// Entries that were removed to make room.
    pub evictions: u64,
    /// Entries that were removed because their time was over.
    pub expirations: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    stripes: [Stripe; STRIPES],
    pub(crate) evictions: AtomicU64,
    pub(crate) expirations: AtomicU64,
}

fn stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    STRIPE.with(|own| {
        if own.get() == usize::MAX {
            // Relaxed: only the number matters.
            own.set(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
        }
        own.get()
    })
}

impl Counters {
    pub(crate) fn count_lookup(&self, hit: bool) {
        let stripe = &self.stripes[stripe()];
        let counter = if hit { &stripe.hits } else { &stripe.misses };
        // Relaxed: a statistic orders nothing.
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Statistics {
        // Relaxed: a statistic orders nothing.
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Statistics {
            hits: self.stripes.iter().map(|s| load(&s.hits)).sum(),
            misses: self.stripes.iter().map(|s| load(&s.misses)).sum(),
            evictions: load(&self.evictions),
            expirations: load(&self.expirations),
        }
    }
}
