//! The [`Table`] implementation for [`CopyMap`](crate::copy_map::CopyMap): moving to another table,
//! and iteration.

use std::hash::Hash;
use std::ops::Range;

use corewise_atomic::sync::Arc;

use super::bucket::{CuckooEntry, LockedBucket};
use super::state::{Homes, SLOTS, Side};
use super::table::CuckooTable;
use crate::copy_map::memory_budget::MemoryBudget;
use crate::copy_map::{
    EntryChange, Full, Moved, Moving, NoMemory, Put, Table, TableVersion, grows_by,
};

/// The load, in sixteenths, at which a table grows once insertions have to move entries. The last
/// percents are the dear ones: filling a table to the end took as long as filling it to 13/16.
/// Large tables take it, because their memory counts more.
const SMALL_GROWS_AT: usize = 13;
const LARGE_GROWS_AT: usize = 15;
/// The load at which it grows if entries cannot be moved, because of iterations, and one bucket in
/// `OVERFLOWING` has overflowed. (Some overflow while a table is filled by a resize.)
const OVERFLOWING_GROWS_AT: usize = 12;
const OVERFLOWING: usize = 32;

impl<K: Copy + Eq + Hash, V: Copy> CuckooTable<K, V> {
    /// Adds an entry to the overflow buckets of a full bucket that no other thread can reach.
    ///
    /// # Safety
    ///
    /// 1. Only the caller can reach the bucket.
    unsafe fn add_to_chain(&self, moving: &Moving<CuckooEntry<K, V>>) -> Option<()> {
        let head = self.part(moving.bucket);
        if let Some(id) = head.state().next() {
            let last = self.overflow().node(id).part();
            // SAFETY: the overflow bucket is reached only through a bucket that only the caller can
            // reach, by 1.
            if unsafe { last.add(&moving.entry) } {
                return Some(());
            }
        }
        let spare = self.overflow().spare()?;
        let part = spare.node().part();
        // SAFETY: only the caller can reach the bucket, by 1, and the spare bucket (1). The ID is
        // that of the spare bucket, which is of this table (2).
        unsafe {
            part.add(&moving.entry);
            head.append_unshared(part, spare.link());
        }
        Some(())
    }
}

// SAFETY: a hit is a pair that was in the table, and the loads that find it are Acquire (1). A key
// has one entry, and a slot is changed under its bucket's lock, by the operation that reports it
// (2). `entries` copies each held slot (3). The arrays consist of atomics and of `PairCell`s of
// `Copy` types (4). See *Correctness* in the module's header.
unsafe impl<K: Copy + Eq + Hash, V: Copy> Table for CuckooTable<K, V> {
    type Key = K;
    type Value = V;
    type Entry = CuckooEntry<K, V>;
    type HeldBucket<'t>
        = LockedBucket<'t, K, V>
    where
        Self: 't;

    const FEWEST_BUCKETS: usize = 16;
    const SHARE: usize = 8;

    fn buckets_for(entries: usize) -> usize {
        // 19 of 20 slots; the maximum is 97 %.
        entries.saturating_add(entries / 19).div_ceil(SLOTS)
    }

    fn try_new(buckets: usize, budget: &Arc<MemoryBudget>) -> Option<Self> {
        Self::with_buckets(buckets, budget)
    }

    #[inline(always)]
    fn buckets(&self) -> usize {
        self.mask() as usize + 1
    }

    #[inline]
    fn get(at: &TableVersion<Self>, hash: u64, key: &K) -> Option<V> {
        let seen = Self::look_up(at, Homes::new(hash), key);
        seen.map(|seen| seen.pair.1)
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        let homes = Homes::new(hash);
        [Side::First, Side::Second]
            .into_iter()
            .for_each(|side| self.prefetch_word(homes.bucket(side, self.mask())));
    }

    #[inline(always)]
    fn prefetch_more(&self, hash: u64) {
        self.prefetch_pair(Homes::new(hash));
    }

    fn put(
        at: &TableVersion<Self>,
        hash: u64,
        key: K,
        value: V,
        replace: bool,
    ) -> Result<Put<V>, Full> {
        Self::put_pair(at, Homes::new(hash), (key, value), replace)
    }

    fn remove(at: &TableVersion<Self>, hash: u64, key: &K) -> Option<V> {
        Self::remove_key(at, Homes::new(hash), key)
    }

    fn change(
        at: &TableVersion<Self>,
        hash: u64,
        key: &K,
        decide: impl FnMut(V) -> EntryChange<V>,
    ) -> Option<(V, EntryChange<V>)> {
        Self::change_entry(at, Homes::new(hash), key, decide)
    }

    fn begin_walk(&self) {
        self.hold_moves();
    }

    fn end_walk(&self) {
        self.let_moves();
    }

    /// An entry belongs to the bucket it lies in; during a walk no entry leaves it for its other
    /// bucket.
    fn for_each_in(&self, bucket: usize, each: impl FnMut(CuckooEntry<K, V>)) -> Result<(), Moved> {
        self.entries(bucket)?.into_iter().for_each(each);
        Ok(())
    }

    unsafe fn pair(entry: &CuckooEntry<K, V>) -> (K, V) {
        entry.pair
    }

    /// An entry is on the same side in every table.
    unsafe fn home_of(entry: &CuckooEntry<K, V>, hash_of: &impl Fn(&K) -> u64) -> u64 {
        Homes::with_tag(hash_of(&entry.pair.0), entry.tag).number(entry.side)
    }

    fn homes(hash: u64) -> [u64; 2] {
        [Side::First, Side::Second].map(|side| Homes::new(hash).number(side))
    }

    fn try_hold(&self, bucket: usize) -> Result<Option<LockedBucket<'_, K, V>>, Moved> {
        self.try_lock(bucket)
    }

    fn hold(&self, bucket: usize) -> LockedBucket<'_, K, V> {
        self.lock(bucket).expect("only we move it")
    }

    unsafe fn take_in(&self, entries: &mut [Moving<CuckooEntry<K, V>>]) -> Result<(), NoMemory> {
        for moving in entries.iter() {
            // SAFETY: no other thread can reach these buckets, by the contract of `Table::take_in`.
            let added = unsafe {
                self.part(moving.bucket).add(&moving.entry) || self.add_to_chain(moving).is_some()
            };
            if !added {
                for moving in entries.iter() {
                    // SAFETY: no other thread can reach these buckets, by the contract of
                    // `Table::take_in`.
                    unsafe { self.wipe(moving.bucket) };
                }
                return Err(NoMemory);
            }
        }
        Ok(())
    }

    unsafe fn wipe(&self, bucket: usize) {
        let head = self.part(bucket);
        let mut next = head.state().next();
        // SAFETY: no other thread can reach the bucket's entries, by the contract of `Table::wipe`.
        unsafe { head.wipe() };
        while let Some(id) = next {
            // SAFETY: the ID is that of an overflow bucket to which this bucket, or one linked to
            // it, led. Only the caller can reach these, by the contract of `Table::wipe`.
            let spare = unsafe { self.overflow().take_back(id) };
            next = spare.node().state().next();
        }
    }

    fn arrays(&self) -> [Range<*const u8>; 2] {
        self.ranges()
    }

    fn is_crowded(&self, entries: usize) -> bool {
        // With fewer entries the keys have few distinct hashes: growing would not help them.
        let sixteenths = if self.overflow().linked() * OVERFLOWING > self.buckets() {
            OVERFLOWING_GROWS_AT
        } else if grows_by(self) > 2 {
            SMALL_GROWS_AT
        } else {
            LARGE_GROWS_AT
        };
        entries >= self.buckets().saturating_mul(SLOTS) / 16 * sixteenths
    }
}
