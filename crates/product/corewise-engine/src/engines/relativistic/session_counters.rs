//! A session's counters: only the session writes them, and statistics read them.

use crate::engine::{ClassStats, EngineStats};
use crate::size_class;
use corewise_atomic::Slots;
use corewise_atomic::sync::atomic::{AtomicU64, Ordering};
use corewise_ops::database::{DATABASES, prefix};

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident),+) => {
        /// Events and gauges of one session. Only the sums over all sessions are meaningful.
        pub(super) struct SessionCounters {
            $($(#[$doc])* pub(super) $name: Count,)+
            /// Items whose keys have a prefix, linked minus unlinked.
            prefixed: [Count; DATABASES],
            classes: Slots<AtomicU64>,
        }

        impl SessionCounters {
            pub(super) fn new() -> Self {
                Self {
                    $($name: Count(AtomicU64::new(0)),)+
                    prefixed: std::array::from_fn(|_| Count(AtomicU64::new(0))),
                    classes: Slots::from_fn(COLUMNS * size_class::COUNT, |_| AtomicU64::new(0)),
                }
            }

            /// Adds another session's numbers to these, which no thread writes at the moment.
            pub(super) fn absorb(&self, other: &Self) {
                $(self.$name.add(other.$name.get());)+
                for (sum, part) in self.prefixed.iter().zip(&other.prefixed) {
                    sum.add(part.get());
                }
                for (index, (sum, part)) in self.classes.iter().zip(other.classes.iter()).enumerate() {
                    match index % COLUMNS {
                        // Relaxed: a statistic.
                        IDLE_S => sum.store(get(sum).max(get(part)), Ordering::Relaxed),
                        _ => add(sum, get(part)),
                    }
                }
            }
        }
    };
}

events! {
    /// Items linked minus items unlinked.
    items,
    /// Bytes of these items, as the heap rounds them.
    bytes,
    /// Items ever stored.
    total_items,
    evictions,
    evicted_unfetched,
    /// Expired items that eviction or compaction removed.
    reclaimed,
    /// Expired items that the search removed.
    found_expired,
    expired_unfetched,
    out_of_memory,
    /// Seconds since the last use of the item evicted last.
    evicted_idle_s,
    /// Bytes that eviction and compaction have copied.
    copied_bytes,
    /// How often an operation found its stripe locked.
    lock_waits,
    lock_wait_ns
}

/// A counter with one writer. It wraps, so that a gauge may fall below zero in one session.
pub(super) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(super) fn add(&self, by: u64) {
        add(&self.0, by);
    }

    #[inline]
    pub(super) fn sub(&self, by: u64) {
        add(&self.0, by.wrapping_neg());
    }

    pub(super) fn set(&self, to: u64) {
        // Relaxed: as in `add`.
        self.0.store(to, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        get(&self.0)
    }
}

#[inline]
fn add(count: &AtomicU64, by: u64) {
    // Relaxed, both: a statistic with one writer.
    let before = count.load(Ordering::Relaxed);
    count.store(before.wrapping_add(by), Ordering::Relaxed);
}

/// A sum of gauges over sessions that keep counting. If one session subtracted what another had
/// added, and only the first was read in time, the sum is below zero for a moment; it is returned
/// as 0.
pub(super) fn gauge(sum: u64) -> u64 {
    (sum as i64).max(0) as u64
}

fn get(count: &AtomicU64) -> u64 {
    // Relaxed: a statistic.
    count.load(Ordering::Relaxed)
}

/// Number of counters per size class.
const COLUMNS: usize = 8;
const ITEMS: usize = 0;
const BYTES: usize = 1;
const EVICTIONS: usize = 2;
const UNFETCHED: usize = 3;
/// Seconds since the last use of the item evicted last; not a sum.
const IDLE_S: usize = 4;
const WITH_DEADLINE: usize = 5;
const RECLAIMED: usize = 6;
const EXPIRED_UNFETCHED: usize = 7;

/// An item that was removed because it was evicted or had expired.
#[derive(Clone, Copy)]
pub(super) struct Removed {
    /// Bytes that it took.
    pub(super) footprint: usize,
    /// The item was never read.
    pub(super) unfetched: bool,
}

impl SessionCounters {
    fn column(&self, footprint: usize, column: usize) -> &AtomicU64 {
        &self.classes[(size_class::of(footprint) as usize - 1) * COLUMNS + column]
    }

    /// Counts an item that was linked.
    #[inline]
    pub(super) fn linked(&self, key: &[u8], footprint: usize) {
        if let Some(prefix) = prefix(key) {
            self.prefixed[usize::from(prefix)].add(1);
        }
        self.items.add(1);
        self.bytes.add(footprint as u64);
        add(self.column(footprint, ITEMS), 1);
        add(self.column(footprint, BYTES), footprint as u64);
    }

    /// Counts an item that was unlinked.
    #[inline]
    pub(super) fn unlinked(&self, key: &[u8], footprint: usize) {
        if let Some(prefix) = prefix(key) {
            self.prefixed[usize::from(prefix)].sub(1);
        }
        self.items.sub(1);
        self.bytes.sub(footprint as u64);
        add(self.column(footprint, ITEMS), u64::MAX);
        let less = (footprint as u64).wrapping_neg();
        add(self.column(footprint, BYTES), less);
    }

    /// Counts an unlinked item that was live and was evicted.
    pub(super) fn evicted(&self, removed: Removed, idle_s: u32, has_deadline: bool) {
        let Removed {
            footprint,
            unfetched,
        } = removed;
        self.evictions.add(1);
        self.evicted_unfetched.add(u64::from(unfetched));
        self.evicted_idle_s.set(u64::from(idle_s));
        add(self.column(footprint, EVICTIONS), 1);
        add(self.column(footprint, UNFETCHED), u64::from(unfetched));
        add(
            self.column(footprint, WITH_DEADLINE),
            u64::from(has_deadline),
        );
        // Relaxed: a statistic.
        self.column(footprint, IDLE_S)
            .store(u64::from(idle_s), Ordering::Relaxed);
    }

    /// Counts an unlinked item that had expired. `looked_for` tells whether the search found it;
    /// otherwise eviction or compaction came across it.
    pub(super) fn expired(&self, removed: Removed, looked_for: bool) {
        if looked_for {
            self.found_expired.add(1);
        } else {
            self.reclaimed.add(1);
            add(self.column(removed.footprint, RECLAIMED), 1);
        }
        self.expired_found(removed);
    }

    /// Counts an item that an operation found expired.
    pub(super) fn expired_found(&self, removed: Removed) {
        let unfetched = u64::from(removed.unfetched);
        self.expired_unfetched.add(unfetched);
        add(self.column(removed.footprint, EXPIRED_UNFETCHED), unfetched);
    }

    pub(super) fn add_to(&self, sum: &mut EngineStats) {
        let more = |to: &mut u64, count: &Count| *to = to.wrapping_add(count.get());
        more(&mut sum.items, &self.items);
        more(&mut sum.bytes, &self.bytes);
        self.add_prefixed(&mut sum.prefixed);
        more(&mut sum.total_items, &self.total_items);
        more(&mut sum.evictions, &self.evictions);
        more(&mut sum.evicted_unfetched, &self.evicted_unfetched);
        more(&mut sum.reclaimed, &self.reclaimed);
        more(&mut sum.expired_reclaimed, &self.found_expired);
        more(&mut sum.expired_unfetched, &self.expired_unfetched);
        more(&mut sum.out_of_memory, &self.out_of_memory);
        more(&mut sum.lock_waits, &self.lock_waits);
        more(&mut sum.lock_wait_ns, &self.lock_wait_ns);
        sum.evicted_idle_s = sum.evicted_idle_s.max(self.evicted_idle_s.get() as u32);
    }

    /// Adds the items whose keys have a prefix.
    pub(super) fn add_prefixed(&self, sum: &mut [u64; DATABASES]) {
        for (sum, count) in sum.iter_mut().zip(&self.prefixed) {
            *sum = sum.wrapping_add(count.get());
        }
    }

    pub(super) fn add_classes(&self, sums: &mut [ClassStats]) {
        for (index, sum) in sums.iter_mut().enumerate() {
            let of = |column| get(&self.classes[index * COLUMNS + column]);
            sum.class = index as u32 + 1;
            sum.max_bytes = size_class::max_bytes(sum.class);
            sum.items = sum.items.wrapping_add(of(ITEMS));
            sum.bytes = sum.bytes.wrapping_add(of(BYTES));
            sum.evictions = sum.evictions.wrapping_add(of(EVICTIONS));
            sum.evicted_unfetched = sum.evicted_unfetched.wrapping_add(of(UNFETCHED));
            sum.evicted_idle_s = sum.evicted_idle_s.max(of(IDLE_S) as u32);
            let more = |to: &mut u64, column| *to = to.wrapping_add(of(column));
            more(&mut sum.evicted_with_deadline, WITH_DEADLINE);
            more(&mut sum.reclaimed, RECLAIMED);
            more(&mut sum.expired_unfetched, EXPIRED_UNFETCHED);
        }
    }
}
