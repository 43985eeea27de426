//! Counts bytes without a counter that all threads write to.
//!
//! ```text
//! SHARDS[thread mod 64].pending   what this thread added since it last published, within ±64 KiB
//! TOTAL.bytes                     what was published
//! TOTAL.peak                      the most of it
//! ```

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicUsize};

use crossbeam_utils::CachePadded;

/// A thread publishes its allocations and frees once they add up to this many bytes.
pub const DRIFT_BYTES: i64 = 64 * 1024;

/// Number of shards; threads beyond it share them.
const SHARDS: usize = 64;

/// Bytes allocated through the program's allocator since counting began, and bucket arrays mapped
/// directly from the system.
///
/// Exact while no thread allocates, with two exceptions. `live_bytes` is negative if more was freed
/// of earlier allocations than allocated since, so take differences. `peak_bytes` may be off by
/// [`DRIFT_BYTES`] for each thread that allocates, 4 MiB at most, in either direction, but is never
/// below `live_bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Allocated and not freed.
    pub live_bytes: i64,
    /// The peak of `live_bytes`.
    pub peak_bytes: i64,
}

/// Counters that guard no other memory. Every update is atomic by itself, so none is lost, and a
/// reader needs exact sums only after it has joined or stopped the threads that write.
pub(super) struct Counter {
    shards: [CachePadded<AtomicI64>; SHARDS],
    bytes: CachePadded<AtomicI64>,
    peak: AtomicI64,
    /// Bytes mapped directly from the system.
    mapped: fn() -> usize,
}

pub(super) static COUNTER: Counter = Counter::new(corewise_atomic::alloc::mapped_bytes);

impl Counter {
    const fn new(mapped: fn() -> usize) -> Self {
        Self {
            mapped,
            shards: [const { CachePadded::new(AtomicI64::new(0)) }; SHARDS],
            bytes: CachePadded::new(AtomicI64::new(0)),
            peak: AtomicI64::new(0),
        }
    }

    #[inline]
    fn add(&self, shard: usize, delta: i64) {
        let pending = &self.shards[shard % SHARDS];
        // Relaxed: see `Counter`.
        let drift = pending.fetch_add(delta, Relaxed) + delta;
        if drift.abs() >= DRIFT_BYTES {
            self.publish(pending);
        }
    }

    #[cold]
    fn publish(&self, pending: &AtomicI64) {
        // Relaxed: see `Counter`. Another thread of the same shard may publish at the same time;
        // each byte is taken from `pending` once.
        let moved = pending.swap(0, Relaxed);
        let bytes = self.bytes.fetch_add(moved, Relaxed) + moved;
        self.peak.fetch_max(bytes + self.mapped(), Relaxed);
    }

    fn mapped(&self) -> i64 {
        (self.mapped)() as i64
    }

    fn live(&self) -> i64 {
        // Relaxed: see `Counter`. Bytes on their way from a shard to the sum may be missed.
        let pending: i64 = self.shards.iter().map(|shard| shard.load(Relaxed)).sum();
        self.bytes.load(Relaxed) + pending + self.mapped()
    }

    pub(super) fn read(&self) -> Counted {
        let live_bytes = self.live();
        // Relaxed: see `Counter`.
        let peak_bytes = self.peak.fetch_max(live_bytes, Relaxed).max(live_bytes);
        Counted {
            live_bytes,
            peak_bytes,
        }
    }

    pub(super) fn reset_peak(&self) {
        // Relaxed: see `Counter`.
        self.peak.store(self.live(), Relaxed);
    }
}

/// Returns the number of the calling thread, assigned at its first call. It neither allocates nor
/// registers a destructor, so the allocator may call it at any time of a thread's life.
#[inline]
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            // Relaxed: only needs to be a different number each time.
            number.set(NEXT.fetch_add(1, Relaxed));
        }
        number.get()
    })
}

#[inline]
pub(super) fn add(delta: i64) {
    COUNTER.add(thread_number(), delta);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact_and_the_peak_is_within_its_bound() {
        let counter = Counter::new(|| 0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let counter = &counter;
                scope.spawn(move || {
                    (0..10_000).for_each(|_| counter.add(thread, 1_000));
                    (0..9_999).for_each(|_| counter.add(thread, -1_000));
                });
            }
        });
        let Counted {
            live_bytes,
            peak_bytes,
        } = counter.read();
        assert_eq!(live_bytes, 4_000);
        assert!(peak_bytes >= 10_000_000 - DRIFT_BYTES, "{peak_bytes}");
        assert!(peak_bytes <= 40_000_000 + 4 * DRIFT_BYTES, "{peak_bytes}");
    }

    #[test]
    fn what_was_there_before_counts_negative() {
        let counter = Counter::new(|| 0);
        counter.add(0, -1_000_000);
        assert_eq!(counter.read().live_bytes, -1_000_000);
        counter.reset_peak();
        counter.add(1, 300_000);
        counter.add(70, -100_000);
        assert_eq!(
            counter.read(),
            Counted {
                live_bytes: -800_000,
                peak_bytes: -700_000
            }
        );
    }

    #[test]
    fn the_peak_is_never_below_what_is_live() {
        let counter = Counter::new(|| 0);
        counter.add(3, 10);
        assert_eq!(
            counter.read(),
            Counted {
                live_bytes: 10,
                peak_bytes: 10
            }
        );
    }

    #[test]
    fn threads_have_numbers_of_their_own() {
        let mine = thread_number();
        assert_eq!(mine, thread_number());
        let other = std::thread::spawn(thread_number).join().expect("no panic");
        assert_ne!(mine, other);
    }
}
