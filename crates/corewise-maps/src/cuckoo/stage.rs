//! The table as one of [`CopyMap`](crate::copy_map::CopyMap): its way to another one, and iteration.

use std::hash::Hash;

use corewise_atomic::mutant;
use corewise_atomic::sync::Arc;

use super::bucket::{Entry, Locked};
use super::state::{Homes, SLOTS, Side};
use super::table::CuckooTable;
use crate::copy_map::space::Space;
use crate::copy_map::{Full, Moved, NoMemory, Put, Stage, Table};

/// An entry on its way.
struct Moving<K, V> {
    child: usize,
    entry: Entry<K, V>,
}

impl<K: Copy + Eq + Hash, V: Copy> CuckooTable<K, V> {
    /// Where an entry that lies in a bucket of one table lies in another: on the same side, whose bucket ends in the
    /// same bits.
    fn home_of(entry: &Entry<K, V>, hash_of: &impl Fn(&K) -> u64) -> u64 {
        Homes::with_tag(hash_of(&entry.pair.0), entry.tag).number(entry.side)
    }

    /// Fills buckets that nobody else can reach; after an error they are empty.
    fn take_in(&self, entries: &[Moving<K, V>]) -> Result<(), NoMemory> {
        for moving in entries {
            if self.part(moving.child).add(&moving.entry) {
                continue;
            }
            if self.add_to_chain(moving).is_none() {
                entries.iter().for_each(|moving| self.wipe(moving.child));
                return Err(NoMemory);
            }
        }
        Ok(())
    }

    /// Empties a bucket that nobody else can reach.
    fn wipe(&self, bucket: usize) {
        let head = self.part(bucket);
        let mut next = head.state().next();
        head.wipe();
        while let Some(name) = next {
            let spare = self.overflow().unhang(name);
            next = spare.node().state().next();
        }
    }

    /// As [`take_in`](Self::take_in), of what the bucket itself has no room for.
    fn add_to_chain(&self, moving: &Moving<K, V>) -> Option<()> {
        let head = self.part(moving.child);
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

    fn put(
        at: &Stage<Self>,
        hash: u64,
        key: K,
        value: V,
        replace: bool,
        _: &impl Fn(&K) -> u64,
    ) -> Result<Put<V>, Full> {
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
    fn for_each(
        at: &Stage<Self>,
        (mask, index): (u64, u64),
        hash_of: &impl Fn(&K) -> u64,
        each: &mut impl FnMut(K, V),
    ) {
        let table = at.table();
        let step = mask.min(table.mask()) as usize + 1;
        let first = (index & table.mask()) as usize;
        for bucket in (first..table.buckets()).step_by(step) {
            match table.entries(bucket) {
                Ok(entries) => {
                    let wanted = |entry: &Entry<K, V>| {
                        mask <= table.mask() || Self::home_of(entry, hash_of) & mask == index
                    };
                    let wanted = entries.into_iter().filter(wanted);
                    wanted.for_each(|entry| each(entry.pair.0, entry.pair.1));
                }
                Err(Moved) => {
                    let next = at.next().expect("moved to a successor");
                    let of = if table.mask() > mask {
                        (table.mask(), bucket as u64)
                    } else {
                        (mask, index)
                    };
                    Self::for_each(next, of, hash_of, each);
                }
            }
        }
    }

    /// The smaller of both tables has one bucket whose number ends in `group`, and nobody but us can reach those of
    /// `to`: the way there is a mark on one of ours, which we have locked, or being the map's table, which `to` is
    /// not before all is moved.
    fn move_group(
        &self,
        to: &Self,
        group: usize,
        hash_of: &impl Fn(&K) -> u64,
    ) -> Result<bool, NoMemory> {
        let groups = self.groups(to);
        // The first one decides who moves the group.
        let Ok(Some(first)) = self.try_lock(group) else {
            return Ok(false);
        };
        let mut others = Vec::new();
        let many = self.buckets() / groups - 1;
        others.try_reserve_exact(many).map_err(|_| NoMemory)?;
        for bucket in (group..self.buckets()).step_by(groups).skip(1) {
            others.push(self.lock(bucket).expect("only we move it"));
        }
        let all = || std::iter::once(&first).chain(&others);
        if mutant!("cuckoo_moves_early") {
            all().for_each(Locked::set_moved_early);
        }
        let mut entries = Vec::new();
        for locked in all() {
            let mut counted = 0;
            locked.for_each(|_| counted += 1);
            entries.try_reserve(counted).map_err(|_| NoMemory)?;
            locked.for_each(|entry| {
                // Whatever the hasher says, it is a bucket of the group.
                let home = Self::home_of(&entry, hash_of) & to.mask();
                let child = home as usize & !(groups - 1) | group;
                entries.push(Moving { child, entry });
            });
        }
        to.take_in(&entries)?;
        first.set_moved();
        others.into_iter().for_each(Locked::set_moved);
        Ok(true)
    }

    fn is_crowded(&self, entries: usize) -> bool {
        // A table of fewer has keys of few hashes: growing would not help them.
        entries >= self.buckets().saturating_mul(SLOTS) / 4 * 3
    }
}
