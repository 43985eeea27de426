//! Counts of transactions and fallbacks.
//!
//! Each thread counts in its stripe, with plain stores, outside of transactions. Counts wrap.

use corewise_atomic::sync::atomic::AtomicU64;
use corewise_atomic::sync::atomic::Ordering::Relaxed;
use corewise_atomic::{CachePadded, Slots};

use super::Cause;
use super::abort::KINDS;
use crate::thread_index;

/// Stripes of a lock. Threads beyond share the last one.
const STRIPES: usize = if cfg!(any(corewise_loom, corewise_shuttle)) {
    1
} else {
    32
};

/// Counts of an [`Elided`](super::Elided) lock since it was created. While threads run sections,
/// the counts of a moment may not belong together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Transactions that began.
    pub started: u64,
    /// Transactions that committed.
    pub committed: u64,
    /// Transactions that were aborted, by [`Cause::kind`].
    pub aborted: [u64; KINDS],
    /// Sections that ran under the lock.
    pub fallbacks: u64,
    /// Sections that took the auxiliary lock.
    pub aided: u64,
}

impl Counts {
    /// Aborts for a cause.
    #[must_use]
    pub fn aborted_by(&self, cause: Cause) -> u64 {
        self.aborted[cause.kind()]
    }

    /// All aborts.
    #[must_use]
    pub fn all_aborted(&self) -> u64 {
        self.aborted.iter().sum()
    }
}

/// What is counted.
#[derive(Clone, Copy)]
pub(crate) enum Event {
    Started,
    Committed,
    Fallback,
    Aided,
    Aborted(Cause),
}

const EVENTS: usize = 4 + KINDS;

impl Event {
    #[inline(always)]
    fn index(self) -> usize {
        match self {
            Self::Started => 0,
            Self::Committed => 1,
            Self::Fallback => 2,
            Self::Aided => 3,
            Self::Aborted(cause) => 4 + cause.kind(),
        }
    }
}

struct Stripe([AtomicU64; EVENTS]);

pub(crate) struct Counters(Slots<CachePadded<Stripe>>);

impl Counters {
    pub(crate) fn new() -> Self {
        Self(Slots::from_fn(STRIPES, |_| {
            CachePadded::new(Stripe(std::array::from_fn(|_| AtomicU64::new(0))))
        }))
    }

    #[inline]
    pub(crate) fn count(&self, event: Event) {
        // The model checkers would try all orders of counts.
        if cfg!(any(corewise_loom, corewise_shuttle)) {
            return;
        }
        let index = thread_index::current() as usize;
        let own = self.0.get(index).filter(|_| index < STRIPES - 1);
        // Relaxed, all: counts order nothing.
        match own {
            // Only this thread writes its stripe.
            Some(stripe) => {
                let count = &stripe.0[event.index()];
                count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
            }
            None => {
                let shared = &self.0[STRIPES - 1].0[event.index()];
                shared.fetch_add(1, Relaxed); // Relaxed: counts order nothing
            }
        }
    }

    pub(crate) fn sum(&self) -> Counts {
        // Relaxed: counts order nothing.
        let sum = |index: usize| {
            self.0.iter().fold(0u64, |sum, stripe| {
                sum.wrapping_add(stripe.0[index].load(Relaxed)) // Relaxed: as above
            })
        };
        Counts {
            started: sum(0),
            committed: sum(1),
            fallbacks: sum(2),
            aided: sum(3),
            aborted: std::array::from_fn(|kind| sum(4 + kind)),
        }
    }
}
