//! The table as one of [`CopyMap`](crate::copy_map::CopyMap): its way to another one, and iteration.

use std::hash::Hash;
use std::ops::Range;

use corewise_atomic::sync::Arc;

use super::bucket::{Entry, Locked};
use super::state::{Homes, SLOTS, Side};
use super::table::CuckooTable;
use crate::copy_map::space::Space;
use crate::copy_map::{Full, Moved, Moving, NoMemory, Put, Stage, Table};

impl<K: Copy + Eq + Hash, V: Copy> CuckooTable<K, V> {
    /// Puts an entry in a bucket that nobody else can reach and that has no room for it.
    fn add_to_chain(&self, moving: &Moving<Entry<K, V>>) -> Option<()> {
        let head = self.part(moving.bucket);
        if let Some(name) = head.state().next()
            && self.overflow().node(name).part().add(&moving.entry)
        {
            return Some(());
        }
        let spare = self.overflow().spare()?;
        let part = spare.node().part();
        part.add(&moving.entry);
        head.hang_unshared(part, spare.hang());
        Some(())
    }
}

impl<K: Copy + Eq + Hash, V: Copy> Table for CuckooTable<K, V> {
    type Key = K;
    type Value = V;
    type Entry = Entry<K, V>;
    type Held<'t>
        = Locked<'t, K, V>
    where
        Self: 't;

    const FEWEST_BUCKETS: usize = 16;
    const SHARE: usize = 8;

    fn buckets_for(entries: usize) -> usize {
        // 19 of 20 slots; the most is 97 %.
        entries.saturating_add(entries / 19).div_ceil(SLOTS)
    }

    fn try_new(buckets: usize, space: &Arc<Space>) -> Option<Self> {
        Self::with_buckets(buckets, space)
    }

    #[inline(always)]
    fn buckets(&self) -> usize {
        self.mask() as usize + 1
    }

    #[inline]
    fn get(at: &Stage<Self>, hash: u64, key: &K) -> Option<V> {
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

    fn put(at: &Stage<Self>, hash: u64, key: K, value: V, replace: bool) -> Result<Put<V>, Full> {
        Self::put_pair(at, Homes::new(hash), (key, value), replace)
    }

    fn remove(at: &Stage<Self>, hash: u64, key: &K) -> Option<V> {
        Self::remove_key(at, Homes::new(hash), key)
    }

    fn update(at: &Stage<Self>, hash: u64, key: &K, new: impl FnMut(V) -> V) -> Option<V> {
        Self::update_value(at, Homes::new(hash), key, new)
    }

    fn begin_walk(&self) {
        self.hold_moves();
    }

    fn end_walk(&self) {
        self.let_moves();
    }

    /// An entry belongs to the bucket it lies in, which no entry leaves for its other one during a walk.
    fn for_each_in(&self, bucket: usize, each: impl FnMut(Entry<K, V>)) -> Result<(), Moved> {
        self.entries(bucket)?.into_iter().for_each(each);
        Ok(())
    }

    fn pair(entry: &Entry<K, V>) -> (K, V) {
        entry.pair
    }

    /// On the same side in every table.
    fn home_of(entry: &Entry<K, V>, hash_of: &impl Fn(&K) -> u64) -> u64 {
        Homes::with_tag(hash_of(&entry.pair.0), entry.tag).number(entry.side)
    }

    fn try_hold(&self, bucket: usize) -> Option<Locked<'_, K, V>> {
        self.try_lock(bucket).ok().flatten()
    }

    fn hold(&self, bucket: usize) -> Locked<'_, K, V> {
        self.lock(bucket).expect("only we move it")
    }

    fn take_in(&self, entries: &mut [Moving<Entry<K, V>>]) -> Result<(), NoMemory> {
        for moving in entries.iter() {
            if self.part(moving.bucket).add(&moving.entry) {
                continue;
            }
            if self.add_to_chain(moving).is_none() {
                entries.iter().for_each(|moving| self.wipe(moving.bucket));
                return Err(NoMemory);
            }
        }
        Ok(())
    }

    fn wipe(&self, bucket: usize) {
        let head = self.part(bucket);
        let mut next = head.state().next();
        head.wipe();
        while let Some(name) = next {
            let spare = self.overflow().unhang(name);
            next = spare.node().state().next();
        }
    }

    fn arrays(&self) -> [Range<*const u8>; 2] {
        self.ranges()
    }

    fn is_crowded(&self, entries: usize) -> bool {
        // A table of fewer has keys of few hashes: growing would not help them.
        entries >= self.buckets().saturating_mul(SLOTS) / 4 * 3
    }
}
