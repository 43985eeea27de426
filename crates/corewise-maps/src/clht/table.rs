//! The lock-based table: its buckets, and operations of a chain.

use std::marker::PhantomData;

use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::AtomicUsize;
use corewise_atomic::sync::atomic::Ordering::Relaxed;
use corewise_atomic::{CachePadded, hint, mutant};

use super::bucket::{Bucket, Found, Locked, SLOTS, Spare};
use crate::copy_map::space::{Heads, Space};
use crate::copy_map::{Full, Moved, NoMemory, Put, Stage, Table};
use crate::word::{Raw, Word, WordKey};

/// The table is doubled when one bucket of so many has overflowed.
const OVERFLOWING: usize = 8;

/// The table of [`LockBased`](super::LockBased).
pub struct LockBasedTable<K, V> {
    heads: Heads<Bucket>,
    space: Arc<Space>,
    /// Buckets that hang on others, give or take those being hung.
    overflow: CachePadded<AtomicUsize>,
    // Words may be with any thread, as `Word` says.
    _words: PhantomData<fn() -> (K, V)>,
}

/// An entry on its way.
struct Moving {
    child: usize,
    key: Raw,
    value: Raw,
}

impl<K: WordKey, V: Word> LockBasedTable<K, V> {
    #[inline(always)]
    fn mask(&self) -> u64 {
        self.heads.len() as u64 - 1
    }

    /// The first bucket of a hash.
    #[inline(always)]
    fn head(&self, hash: u64) -> &Bucket {
        let index = (hash & self.mask()) as usize;
        // SAFETY: their number is a power of two, and the index a remainder of it.
        unsafe { self.heads.get_unchecked(index) }
    }

    #[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
    pub(super) fn heads(&self) -> &[Bucket] {
        &self.heads
    }

    #[inline(always)]
    fn key(key: Raw) -> K {
        // SAFETY: what is in the table is our keys.
        unsafe { K::from_raw(key) }
    }

    #[inline(always)]
    fn value(value: Raw) -> V {
        // SAFETY: what is in the table is our values.
        unsafe { V::from_raw(value) }
    }

    /// Fills buckets that nobody else can reach; after an error they are empty.
    fn take_in(&self, entries: &mut [Moving]) -> Result<(), NoMemory> {
        entries.sort_unstable_by_key(|entry| entry.child);
        for child in entries.chunk_by(|one, other| one.child == other.child) {
            let mut tail = &self.heads[child[0].child];
            for entry in child {
                let hang = || {
                    self.overflow.fetch_add(1, Relaxed);
                    Spare::new(&self.space)
                };
                let Some(bucket) = Bucket::fill(tail, entry.key, entry.value, hang) else {
                    self.overflow.fetch_sub(1, Relaxed);
                    let filled = entries.iter().map(|entry| &self.heads[entry.child]);
                    filled.for_each(Bucket::wipe);
                    return Err(NoMemory);
                };
                tail = bucket;
            }
        }
        Ok(())
    }
}

impl<K: WordKey, V: Word> Table for LockBasedTable<K, V> {
    type Key = K;
    type Value = V;

    const FEWEST_BUCKETS: usize = 16;
    const SHARE: usize = 8;

    fn buckets_for(entries: usize) -> usize {
        // Half of the slots: then one bucket of 15 overflows.
        entries / SLOTS * 2 + 2
    }

    fn try_new(buckets: usize, space: &Arc<Space>) -> Option<Self> {
        assert!(buckets.is_power_of_two());
        let bytes = Heads::<Bucket>::bytes(buckets);
        if !space.take(bytes) {
            return None;
        }
        let Some(heads) = Heads::try_new(buckets) else {
            space.give(bytes);
            return None;
        };
        Some(Self {
            heads,
            space: space.clone(),
            overflow: CachePadded::new(AtomicUsize::new(0)),
            _words: PhantomData,
        })
    }

    #[inline(always)]
    fn buckets(&self) -> usize {
        self.heads.len()
    }

    #[inline]
    fn get(at: &Stage<Self>, hash: u64, key: &K) -> Option<V> {
        let value = at.follow(|table| table.head(hash).look_up(key.into_raw()));
        value.map(Self::value)
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        hint::prefetch(self.head(hash));
    }

    #[inline(always)]
    fn prefetch_more(&self, hash: u64) {
        self.head(hash).prefetch_next();
    }

    fn put(
        at: &Stage<Self>,
        hash: u64,
        key: K,
        value: V,
        replace: bool,
        _: &impl Fn(&K) -> u64,
    ) -> Result<Put<V>, Full> {
        let (key, value) = (key.into_raw(), value.into_raw());
        let mut spare = None;
        at.follow(|table| {
            let head = table.head(hash);
            if !replace && let Some(there) = head.look_up(key)? {
                return Ok(Ok(Put::There(Self::value(there))));
            }
            loop {
                let locked = head.lock()?;
                match locked.find(key) {
                    Found::At(place) => {
                        let there = locked.value(place);
                        if replace {
                            locked.replace(place, value);
                        }
                        return Ok(Ok(Put::There(Self::value(there))));
                    }
                    Found::Free(place) => {
                        locked.insert(place, key, value);
                        return Ok(Ok(Put::New { crowded: false }));
                    }
                    Found::Full(last) => {
                        if let Some(spare) = spare.take() {
                            locked.append(last, spare, key, value);
                            // Relaxed: a number that publishes nothing, here and below.
                            table.overflow.fetch_add(1, Relaxed);
                            return Ok(Ok(Put::New { crowded: true }));
                        }
                    }
                }
                // Memory is asked for without the lock.
                drop(locked);
                spare = Spare::new(&at.table().space);
                if spare.is_none() {
                    return Ok(Err(Full));
                }
            }
        })
    }

    fn remove(at: &Stage<Self>, hash: u64, key: &K) -> Option<V> {
        let key = key.into_raw();
        let value = at.follow(|table| {
            let head = table.head(hash);
            if head.look_up(key)?.is_none() {
                return Ok(None);
            }
            let locked = head.lock()?;
            let Found::At(place) = locked.find(key) else {
                return Ok(None);
            };
            let value = locked.value(place);
            locked.remove(place);
            Ok(Some(value))
        });
        value.map(Self::value)
    }

    fn update(at: &Stage<Self>, hash: u64, key: &K, mut new: impl FnMut(V) -> V) -> Option<V> {
        let key = key.into_raw();
        at.follow(|table| {
            let head = table.head(hash);
            loop {
                let Some(old) = head.look_up(key)? else {
                    return Ok(None);
                };
                let value = new(Self::value(old));
                let locked = head.lock()?;
                let Found::At(place) = locked.find(key) else {
                    return Ok(None);
                };
                if locked.value(place) == old {
                    locked.replace(place, value.into_raw());
                    return Ok(Some(value));
                }
            }
        })
    }

    fn for_each(
        at: &Stage<Self>,
        (mask, index): (u64, u64),
        hash_of: &impl Fn(&K) -> u64,
        each: &mut impl FnMut(K, V),
    ) {
        let table = at.table();
        let step = mask.min(table.mask()) as usize + 1;
        let first = (index & table.mask()) as usize;
        for (head, bucket) in table.heads.iter().enumerate().skip(first).step_by(step) {
            let wanted = |key, value| {
                let key = Self::key(key);
                if hash_of(&key) & mask == index {
                    each(key, Self::value(value));
                }
            };
            if let Err(Moved) = bucket.for_each(wanted) {
                let next = at.next().expect("moved to a successor");
                let of = if table.mask() > mask {
                    (table.mask(), head as u64)
                } else {
                    (mask, index)
                };
                Self::for_each(next, of, hash_of, each);
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
        let Ok(Some(first)) = self.heads[group].try_lock() else {
            return Ok(false);
        };
        let mut others = Vec::new();
        let many = self.heads.len() / groups - 1;
        others.try_reserve_exact(many).map_err(|_| NoMemory)?;
        for bucket in self.heads.iter().skip(group).step_by(groups).skip(1) {
            others.push(bucket.lock().expect("only we move it"));
        }
        let all = || std::iter::once(&first).chain(&others);
        if mutant!("clht_moves_early") {
            all().for_each(Locked::set_moved_early);
        }
        let mut entries = Vec::new();
        for locked in all() {
            let mut counted = 0;
            locked.for_each(|_, _| counted += 1);
            entries.try_reserve(counted).map_err(|_| NoMemory)?;
            locked.for_each(|key, value| {
                let hash = hash_of(&Self::key(key));
                // Whatever the hasher says, it is a bucket of the group.
                let child = (hash & to.mask()) as usize & !(groups - 1) | group;
                entries.push(Moving { child, key, value });
            });
        }
        to.take_in(&mut entries)?;
        first.set_moved();
        others.into_iter().for_each(Locked::set_moved);
        Ok(true)
    }

    fn is_crowded(&self, entries: usize) -> bool {
        let overflow = self.overflow.load(Relaxed);
        overflow * OVERFLOWING > self.heads.len() && entries >= self.heads.len()
    }
}

impl<K, V> Drop for LockBasedTable<K, V> {
    fn drop(&mut self) {
        // SAFETY: nobody else uses the table any more; so neither its chains.
        unsafe {
            for head in self.heads.as_mut() {
                head.free_overflow(&self.space);
            }
        }
        self.space.give(Heads::<Bucket>::bytes(self.heads.len()));
    }
}
