//! Counting bytes without a counter that all threads write to.
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

/// A thread publishes what it allocated or freed once it comes to this many bytes.
pub const DRIFT_BYTES: i64 = 64 * 1024;

/// Threads beyond this many share shards.
const SHARDS: usize = 64;

/// Bytes allocated through the program's allocator since counting began, and bucket arrays that come
/// straight from the system.
///
/// Exact while no thread allocates, with two provisos: `live_bytes` is negative if more was freed
/// of what had been allocated before counting than allocated since, so take differences; and
/// `peak_bytes` may be off by [`DRIFT_BYTES`] for each thread that allocates, 4 MiB at most, in
/// either direction, but is never below `live_bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Allocated and not freed.
    pub live_bytes: i64,
    /// The most that was live at any time.
    pub peak_bytes: i64,
}

/// Relaxed throughout: the counters stand for no other memory, every update is atomic by itself,
/// and a reader wants exact sums only after it has joined or stopped the threads that write.
struct Counter {
    shards: [CachePadded<AtomicI64>; SHARDS],
    bytes: CachePadded<AtomicI64>,
    peak: AtomicI64,
    /// Bytes that came straight from the system.
    mapped: fn() -> usize,
}

static COUNTER: Counter = Counter::new(corewise_atomic::alloc::mapped_bytes);

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
        let drift = pending.fetch_add(delta, Relaxed) + delta;
        if drift.abs() >= DRIFT_BYTES {
            self.publish(pending);
        }
    }

    #[cold]
    fn publish(&self, pending: &AtomicI64) {
        let moved = pending.swap(0, Relaxed);
        let bytes = self.bytes.fetch_add(moved, Relaxed) + moved;
        self.peak.fetch_max(bytes + self.mapped(), Relaxed);
    }

    fn mapped(&self) -> i64 {
        (self.mapped)() as i64
    }

    fn live(&self) -> i64 {
        let pending: i64 = self.shards.iter().map(|shard| shard.load(Relaxed)).sum();
        self.bytes.load(Relaxed) + pending + self.mapped()
    }

    fn read(&self) -> Counted {
        let live_bytes = self.live();
        let peak_bytes = self.peak.fetch_max(live_bytes, Relaxed).max(live_bytes);
        Counted {
            live_bytes,
            peak_bytes,
        }
    }

    fn reset_peak(&self) {
        self.peak.store(self.live(), Relaxed);
    }
}

/// The number of the calling thread, given at its first call. Neither allocates nor registers a
/// destructor, so it may be called from inside the allocator at any time of a thread's life.
#[inline]
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Relaxed));
        }
        number.get()
    })
}

#[inline]
pub(super) fn add(delta: i64) {
    COUNTER.add(thread_number(), delta);
}

pub(super) fn read() -> Counted {
    COUNTER.read()
}

pub(super) fn reset_peak() {
    COUNTER.reset_peak();
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
