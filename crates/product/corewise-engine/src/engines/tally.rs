//! Counters and gauges of one shard or partition, and of its size classes.

use crate::engine::{ClassStats, EngineStats};
use crate::item::{Item, state};
use crate::size_class;
use corewise_ops::database::{DATABASES, prefix};
use corewise_ops::{Deadline, Now};

/// Counts of events.
#[derive(Clone, Copy, Default)]
struct Events {
    total_items: u64,
    evictions: u64,
    evicted_unfetched: u64,
    reclaimed: u64,
    expired_reclaimed: u64,
    expired_unfetched: u64,
    out_of_memory: u64,
    lock_waits: u64,
    lock_wait_ns: u64,
}

/// Gauges and counters of one size class.
#[derive(Clone, Copy, Default)]
struct Class {
    items: u64,
    bytes: u64,
    evictions: u64,
    evicted_unfetched: u64,
    evicted_with_deadline: u64,
    evicted_idle_s: u32,
    reclaimed: u64,
    expired_unfetched: u64,
}

/// See the [module](self).
pub(super) struct Tally {
    /// How long the item evicted last had been idle.
    evicted_idle_s: u32,
    events: Events,
    /// The live items whose keys have a prefix.
    prefixed: [u64; DATABASES],
    classes: Box<[Class]>,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            evicted_idle_s: 0,
            events: Events::default(),
            prefixed: [0; DATABASES],
            classes: vec![Class::default(); size_class::COUNT].into_boxed_slice(),
        }
    }

    fn class(&mut self, footprint: usize) -> &mut Class {
        &mut self.classes[size_class::of(footprint) as usize - 1]
    }

    /// Counts an item of this key and footprint as live.
    #[inline]
    pub(super) fn charge(&mut self, key: &[u8], footprint: usize) {
        if let Some(prefix) = prefix(key) {
            self.prefixed[usize::from(prefix)] += 1;
        }
        let class = self.class(footprint);
        class.items += 1;
        class.bytes += footprint as u64;
    }

    /// Ends [`charge`](Self::charge).
    #[inline]
    pub(super) fn discharge(&mut self, key: &[u8], footprint: usize) {
        if let Some(prefix) = prefix(key) {
            self.prefixed[usize::from(prefix)] -= 1;
        }
        let class = self.class(footprint);
        class.items -= 1;
        class.bytes -= footprint as u64;
    }

    /// No item is live any more.
    pub(super) fn discharge_all(&mut self) {
        self.prefixed = [0; DATABASES];
        for class in &mut self.classes {
            (class.items, class.bytes) = (0, 0);
        }
    }

    /// Counts an item that was linked.
    #[inline]
    pub(super) fn link(&mut self) {
        self.events.total_items += 1;
    }

    /// Counts an expired item that an operation found.
    pub(super) fn expire<L>(&mut self, item: Item<'_, L>, footprint: usize) {
        if item.state() & state::FETCHED == 0 {
            self.events.expired_unfetched += 1;
            self.class(footprint).expired_unfetched += 1;
        }
    }

    /// Counts an expired item that the search removes.
    pub(super) fn reclaim<L>(&mut self, item: Item<'_, L>, footprint: usize) {
        self.events.expired_reclaimed += 1;
        self.expire(item, footprint);
    }

    /// Counts an item that makes room: as reclaimed if it has expired, and as evicted otherwise.
    /// Returns how long it had been idle if it is evicted.
    pub(super) fn evict<L>(
        &mut self,
        victim: Item<'_, L>,
        footprint: usize,
        now: Now,
    ) -> Option<u32> {
        let unfetched = u64::from(victim.state() & state::FETCHED == 0);
        if victim.deadline().is_past(now) {
            self.events.reclaimed += 1;
            self.events.expired_unfetched += unfetched;
            let class = self.class(footprint);
            class.reclaimed += 1;
            class.expired_unfetched += unfetched;
            return None;
        }
        let idle_s = victim.idle_s(now);
        self.events.evictions += 1;
        self.events.evicted_unfetched += unfetched;
        self.evicted_idle_s = idle_s;
        let class = self.class(footprint);
        class.evictions += 1;
        class.evicted_unfetched += unfetched;
        class.evicted_with_deadline += u64::from(victim.deadline() != Deadline::NEVER);
        class.evicted_idle_s = idle_s;
        Some(idle_s)
    }

    /// Counts a store that was refused.
    pub(super) fn refuse(&mut self) {
        self.events.out_of_memory += 1;
    }

    /// Counts a wait of `ns` nanoseconds for the lock.
    #[cold]
    pub(super) fn waited(&mut self, ns: u64) {
        self.events.lock_waits += 1;
        self.events.lock_wait_ns += ns;
    }

    /// Adds the counts of events, and of live items whose keys have a prefix.
    pub(super) fn add_events(&self, sum: &mut EngineStats) {
        let e = &self.events;
        for (sum, count) in sum.prefixed.iter_mut().zip(self.prefixed) {
            *sum += count;
        }
        sum.total_items += e.total_items;
        sum.evictions += e.evictions;
        sum.evicted_unfetched += e.evicted_unfetched;
        sum.reclaimed += e.reclaimed;
        sum.expired_reclaimed += e.expired_reclaimed;
        sum.expired_unfetched += e.expired_unfetched;
        sum.out_of_memory += e.out_of_memory;
        sum.lock_waits += e.lock_waits;
        sum.lock_wait_ns += e.lock_wait_ns;
        sum.evicted_idle_s = sum.evicted_idle_s.max(self.evicted_idle_s);
    }

    /// Adds what is counted of each class; `sums` has all classes.
    pub(super) fn add_classes(&self, sums: &mut [ClassStats]) {
        for (index, (class, sum)) in self.classes.iter().zip(sums).enumerate() {
            sum.class = index as u32 + 1;
            sum.max_bytes = size_class::max_bytes(sum.class);
            sum.items += class.items;
            sum.bytes += class.bytes;
            sum.evictions += class.evictions;
            sum.evicted_unfetched += class.evicted_unfetched;
            sum.evicted_with_deadline += class.evicted_with_deadline;
            sum.evicted_idle_s = sum.evicted_idle_s.max(class.evicted_idle_s);
            sum.reclaimed += class.reclaimed;
            sum.expired_unfetched += class.expired_unfetched;
        }
    }
}
