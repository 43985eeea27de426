//! The table: where there is room, and operations that go on in its successor.

use std::hash::Hash;
use std::ops::Range;

use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::Ordering::Relaxed;
use corewise_atomic::sync::atomic::{AtomicU64, AtomicUsize};
use corewise_atomic::{CachePadded, hint, mutant};

use super::home::{Home, Locked, Refused, Unsettled, Word};
use super::info::H;
use super::segment::{BUCKETS, Segment, Spare};
use super::tags::{Tag, Tags};
use crate::copy_map::space::{Heads, Space};
use crate::copy_map::{CopyMap, Full, Moved, Moving, NoMemory, Put, Stage, Table};
use crate::pair::PairCell;
use crate::waiting::Waiting;

/// How many cells an insertion looks at for a free one.
#[cfg(not(corewise_stress))]
const FARTHEST: usize = 1_024;
#[cfg(corewise_stress)]
const FARTHEST: usize = 16;

/// The table of [`HopscotchMap`](super::HopscotchMap).
pub struct HopscotchTable<K, V> {
    infos: Heads<Word>,
    cells: Heads<PairCell<K, V>>,
    tags: Tags,
    /// How often a home's version has come round, counted twice: see `Locked::publish`. Read with every lookup, and
    /// written hardly ever.
    wraps: AtomicU64,
    segments: Heads<Segment<K, V>>,
    space: Arc<Space>,
    /// Pairs in nodes, give or take those being put there.
    overflow: CachePadded<AtomicUsize>,
}

/// A claimed cell.
pub(super) struct Room {
    /// From the home.
    pub(super) offset: usize,
    /// Whether keys were displaced for it.
    pub(super) displaced: bool,
}

/// Why there is none.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// Somebody else has the home of a key that might be displaced.
    Busy,
    /// No key can be displaced, or no cell is free.
    Full,
}

impl<K: Copy, V: Copy> HopscotchTable<K, V> {
    #[inline(always)]
    fn mask(&self) -> usize {
        self.infos.len() - 1
    }

    /// The info of a number, around the ring.
    #[inline(always)]
    pub(super) fn info(&self, index: usize) -> &AtomicU64 {
        // SAFETY: their number is a power of two, and the index a remainder of it.
        &unsafe { self.infos.get_unchecked(index & self.mask()) }.0
    }

    #[inline(always)]
    pub(super) fn cell(&self, index: usize) -> &PairCell<K, V> {
        // SAFETY: as above; there are as many.
        unsafe { self.cells.get_unchecked(index & self.mask()) }
    }

    #[inline(always)]
    pub(super) fn tags(&self) -> &Tags {
        &self.tags
    }

    /// A home that is going to be changed.
    #[inline(always)]
    fn home_to_change(&self, hash: u64) -> Home<'_, K, V> {
        let home = hash as usize & self.mask();
        // What it is about to read and write lies in five places. None has to wait for another.
        hint::prefetch(self.info(home));
        hint::prefetch(self.cell(home));
        self.tags.prefetch(home);
        hint::prefetch(self.segment(home));
        Home::new(self, home)
    }

    /// The number of the cell that is so far from a home, around the ring.
    #[inline(always)]
    pub(super) fn cell_at(&self, home: usize, offset: usize) -> usize {
        (home + offset) & self.mask()
    }

    #[inline(always)]
    pub(super) fn segment(&self, index: usize) -> &Segment<K, V> {
        &self.segments[(index & self.mask()) / BUCKETS]
    }

    #[inline(always)]
    pub(super) fn wraps(&self) -> &AtomicU64 {
        &self.wraps
    }

    #[inline(always)]
    pub(super) fn home(&self, hash: u64) -> Home<'_, K, V> {
        Home::new(self, hash as usize & self.mask())
    }

    pub(super) fn count_overflow(&self, by: isize) {
        // Relaxed: a number that publishes nothing, here and below.
        self.overflow.fetch_add(by.cast_unsigned(), Relaxed);
    }

    fn overflow(&self) -> usize {
        self.overflow.load(Relaxed)
    }

    /// The arrays that lookups read, and their bytes.
    #[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
    pub(super) fn memory(&self) -> [(*const (), usize); 3] {
        fn of<B>(heads: &[B]) -> (*const (), usize) {
            (heads.as_ptr().cast(), size_of_val(heads))
        }
        [of(&self.infos), of(&self.cells), self.tags.memory()]
    }

    /// How many cells of a neighbourhood there are.
    fn reach(&self) -> usize {
        H.min(self.infos.len())
    }

    /// Gives back a cell that no home has.
    pub(super) fn free(&self, index: usize) {
        let index = index & self.mask();
        self.segment(index).free(index % BUCKETS);
    }

    /// Claims the first free cell from `from` on, within `FARTHEST`: how far it is from there.
    fn claim(&self, from: usize) -> Option<usize> {
        let farthest = FARTHEST.min(self.infos.len());
        let mut distance = 0;
        while distance < farthest {
            let index = (from + distance) & self.mask();
            let first = index % BUCKETS;
            let width = BUCKETS.min(self.infos.len());
            let wanted = u64::MAX << first & u64::MAX >> (BUCKETS - width);
            match self.segment(index).claim(wanted) {
                Ok(Some(cell)) => {
                    let distance = distance + cell - first;
                    if distance < farthest {
                        return Some(distance);
                    }
                    self.free(from + distance);
                    return None;
                }
                Ok(None) => distance += width - first,
                // Another was faster: it has one less to choose from.
                Err(()) => {}
            }
        }
        None
    }

    /// Claims a cell in the neighbourhood of a home, displacing keys if need be. The caller has the home's lock, and
    /// this waits for nobody.
    pub(super) fn make_room(&self, home: usize) -> Result<Room, NoRoom> {
        let mut distance = self.claim(home).ok_or(NoRoom::Full)?;
        let displaced = distance >= self.reach();
        while distance >= self.reach() {
            match self.bring_nearer(home + distance) {
                Ok(by) => distance -= by,
                Err(none) => {
                    self.free(home + distance);
                    return Err(none);
                }
            }
        }
        let offset = distance;
        Ok(Room { offset, displaced })
    }

    /// Has a key displaced to a claimed cell, whose own cell is the claimed one then: how much nearer that is.
    fn bring_nearer(&self, free: usize) -> Result<usize, NoRoom> {
        let mut none = NoRoom::Full;
        for distance in (1..H).rev() {
            // The ring is longer than that: a free cell is out of reach of somebody.
            let home = Home::new(self, (free - distance) & self.mask());
            match home.displace(distance) {
                Ok(Some(from)) => return Ok(distance - from),
                Ok(None) => {}
                Err(busy) => none = busy,
            }
        }
        Err(none)
    }

    /// [`get`](Table::get) where tags do not say all.
    #[inline(never)]
    fn get_slowly(at: &Stage<Self>, hash: u64, key: &K) -> Option<V>
    where
        K: Eq,
    {
        let mut tag = None;
        at.follow(|table| {
            let home = table.home(hash);
            // The first table's tags have been asked.
            let by_tag = tag.replace(Tag::of(hash)).map(|tag| home.by_tag(key, tag));
            match by_tag {
                Some(Ok(value)) => Ok(value),
                Some(Err(Unsettled)) | None => home.get(key),
            }
        })
    }

    /// Locks a home that has no way on yet.
    fn lock_unmoved(&self, home: usize) -> Locked<'_, K, V> {
        let home = Home::new(self, home);
        home.wait_and_lock().expect("only we move it")
    }
}

impl<K: Copy + Eq + Hash, V: Copy> Table for HopscotchTable<K, V> {
    type Key = K;
    type Value = V;
    type Entry = (K, V);
    type Held<'t>
        = Locked<'t, K, V>
    where
        Self: 't;

    const FEWEST_BUCKETS: usize = 32;
    // With the 0.9 insertions for a bucket that fill the successor, two would do.
    const SHARE: usize = 16;

    fn buckets_for(entries: usize) -> usize {
        entries.saturating_add(entries / 9 + 1)
    }

    fn try_new(buckets: usize, space: &Arc<Space>) -> Option<Self> {
        // Pairs that are too large do not compile.
        const { assert!(PairCell::<K, V>::WORDS <= 4) };
        assert!(buckets.is_power_of_two());
        let segments = buckets.div_ceil(BUCKETS);
        let bytes = bytes::<K, V>(buckets);
        if !space.take(bytes) {
            return None;
        }
        let all = || {
            Some((
                Heads::try_new(buckets)?,
                Heads::try_new(buckets)?,
                Tags::try_new(buckets)?,
                Heads::try_new(segments)?,
            ))
        };
        let Some((infos, cells, tags, segments)) = all() else {
            space.give(bytes);
            return None;
        };
        Some(Self {
            infos,
            cells,
            tags,
            wraps: AtomicU64::new(0),
            segments,
            space: space.clone(),
            overflow: CachePadded::new(AtomicUsize::new(0)),
        })
    }

    #[inline(always)]
    fn buckets(&self) -> usize {
        self.infos.len()
    }

    #[inline(always)]
    fn get(at: &Stage<Self>, hash: u64, key: &K) -> Option<V> {
        // What is inlined is what is short; the rest is for what has moved, too.
        match at.table().home(hash).by_tag(key, Tag::of(hash)) {
            Ok(value) => value,
            Err(Unsettled) => Self::get_slowly(at, hash, key),
        }
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        let home = hash as usize & self.mask();
        self.tags.prefetch(home);
        hint::prefetch(self.cell(home));
    }

    #[inline(always)]
    fn prefetch_more(&self, hash: u64) {
        self.home(hash).prefetch_first(Tag::of(hash));
    }

    fn put(at: &Stage<Self>, hash: u64, key: K, value: V, replace: bool) -> Result<Put<V>, Full> {
        let mut spare = None;
        let mut waiting = Waiting::default();
        at.follow(|table| {
            let home = table.home_to_change(hash);
            loop {
                let seen = home.look(&key)?;
                if let Some(found) = &seen.found {
                    if !replace {
                        return Ok(Ok(Put::There(found.pair.1)));
                    }
                    if let Some(locked) = home.lock(&seen) {
                        // The key that is there stays, and the value may be another by now.
                        let (there, old) = locked.pair(found.place());
                        locked.replace(found.place(), (there, value));
                        return Ok(Ok(Put::There(old)));
                    }
                } else if let Some(locked) = home.lock(&seen) {
                    match locked.insert((key, value), Tag::of(hash), &mut spare) {
                        Ok(crowded) => return Ok(Ok(Put::New { crowded })),
                        Err(Refused::Busy) => {}
                        Err(Refused::NeedsNode) => {
                            // Memory is asked for without the lock.
                            spare = Spare::new(&table.space);
                            if spare.is_none() {
                                return Ok(Err(Full));
                            }
                            continue;
                        }
                    }
                }
                waiting.a_moment();
            }
        })
    }

    fn remove(at: &Stage<Self>, hash: u64, key: &K) -> Option<V> {
        let mut waiting = Waiting::default();
        at.follow(|table| {
            let home = table.home_to_change(hash);
            loop {
                let seen = home.look(key)?;
                let Some(found) = &seen.found else {
                    return Ok(None);
                };
                if let Some(locked) = home.lock(&seen) {
                    let (_, old) = locked.pair(found.place());
                    locked.remove(found.place());
                    return Ok(Some(old));
                }
                waiting.a_moment();
            }
        })
    }

    fn update(at: &Stage<Self>, hash: u64, key: &K, mut new: impl FnMut(V) -> V) -> Option<V> {
        let mut waiting = Waiting::default();
        at.follow(|table| {
            let home = table.home_to_change(hash);
            loop {
                let seen = home.look(key)?;
                let Some(found) = &seen.found else {
                    return Ok(None);
                };
                let (there, old) = found.pair;
                let value = new(old);
                if let Some(locked) = home.lock(&seen)
                    && (locked.still_has(found) || mutant!("hop_updates_blindly"))
                {
                    locked.replace(found.place(), (there, value));
                    return Ok(Some(value));
                }
                waiting.a_moment();
            }
        })
    }

    fn for_each_in(&self, bucket: usize, each: impl FnMut((K, V))) -> Result<(), Moved> {
        Home::new(self, bucket).pairs()?.into_iter().for_each(each);
        Ok(())
    }

    fn pair(pair: &(K, V)) -> (K, V) {
        *pair
    }

    fn home_of((key, _): &(K, V), hash_of: &impl Fn(&K) -> u64) -> u64 {
        hash_of(key)
    }

    fn try_hold(&self, bucket: usize) -> Option<Locked<'_, K, V>> {
        Home::new(self, bucket).try_lock().ok().flatten()
    }

    fn hold(&self, bucket: usize) -> Locked<'_, K, V> {
        self.lock_unmoved(bucket)
    }

    fn take_in(&self, entries: &mut [Moving<(K, V)>]) -> Result<(), NoMemory> {
        let mut spare = None;
        let mut put_in = |moving: &Moving<(K, V)>| {
            let mut waiting = Waiting::default();
            loop {
                // Others lock it to displace its keys.
                let locked = self.lock_unmoved(moving.bucket);
                match locked.insert(moving.entry, Tag::of(moving.number), &mut spare) {
                    Ok(_) => return true,
                    Err(Refused::Busy) => waiting.a_moment(),
                    Err(Refused::NeedsNode) => {
                        spare = Spare::new(&self.space);
                        if spare.is_none() {
                            return false;
                        }
                    }
                }
            }
        };
        if entries.iter().all(&mut put_in) {
            return Ok(());
        }
        entries.iter().for_each(|moving| self.wipe(moving.bucket));
        Err(NoMemory)
    }

    fn wipe(&self, bucket: usize) {
        self.lock_unmoved(bucket).clear();
    }

    /// The large ones. (On the segments nodes hang.)
    fn arrays(&self) -> [Range<*const u8>; 2] {
        [self.cells.range(), self.infos.range()]
    }

    fn is_crowded(&self, entries: usize) -> bool {
        let (buckets, overflow) = (self.infos.len(), self.overflow());
        // Cells are few; or many homes have more keys than cells, and the table would be full without them.
        let placed = entries.saturating_sub(overflow);
        placed >= buckets - buckets / 10 || overflow > buckets / 8 && entries >= buckets
    }
}

/// Of a table of so many buckets, without nodes.
fn bytes<K, V>(buckets: usize) -> usize {
    let segments = buckets.div_ceil(BUCKETS);
    let of_segments = Heads::<Segment<K, V>>::bytes(segments);
    [
        Heads::<Word>::bytes(buckets),
        Heads::<PairCell<K, V>>::bytes(buckets),
        Tags::bytes(buckets),
    ]
    .into_iter()
    .fold(of_segments, usize::saturating_add)
}

impl<K, V> Drop for HopscotchTable<K, V> {
    fn drop(&mut self) {
        let bytes = bytes::<K, V>(self.infos.len());
        // SAFETY: nobody else uses the table any more; so neither its segments.
        unsafe {
            for segment in self.segments.as_mut() {
                segment.free_nodes(&self.space);
            }
        }
        self.space.give(bytes);
    }
}

impl<K: Copy + Eq + Hash, V: Copy, S> CopyMap<HopscotchTable<K, V>, S> {
    /// How many entries found no place in their neighbourhood, give or take updates that are under way; while it is
    /// resized, of the table before. Constant time.
    ///
    /// Lookups of their homes are longer. With random keys it is one in ten thousand of a table that is 90 % full, and
    /// 2 in a thousand at 95 %.
    ///
    /// ```
    /// let map = corewise_maps::hopscotch::HopscotchMap::with_capacity(1_000);
    /// (0..1_000).for_each(|key| assert_eq!(map.pin().insert(key, key), Ok(None)));
    /// assert!(map.overflowing() < 10);
    /// ```
    pub fn overflowing(&self) -> usize {
        let section = self.domain().pin();
        self.stage(&section).table().overflow()
    }
}
