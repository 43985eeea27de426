//! The table: how it makes room, and operations that continue in its successor.

use std::hash::Hash;
use std::ops::Range;

use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::Ordering::Relaxed;
use corewise_atomic::sync::atomic::{AtomicU64, AtomicUsize};
use corewise_atomic::{Backoff, CachePadded, hint, mutant};
use corewise_maps::copy_map::{CopyMap, Full, Table};
use corewise_maps::parts::{
    EntryChange, Heads, MemoryBudget, Moved, Moving, NoMemory, PairCell, Put, TableVersion, Torn,
};

use super::home_bucket::{HomeBucket, InfoWord, LockedHome, Refused, Unsettled};
use super::info::H;
use super::segment::{BUCKETS, Segment, Spare};
use super::tags::{Tag, Tags};

/// Most cells that an insertion searches for a free one.
#[cfg(not(corewise_stress))]
const FARTHEST: usize = 1_024;
#[cfg(corewise_stress)]
const FARTHEST: usize = 16;

/// The table of [`HopscotchMap`](super::HopscotchMap).
pub struct HopscotchTable<K, V> {
    infos: Heads<InfoWord>,
    cells: Heads<PairCell<K, V>>,
    tags: Tags,
    /// How often a home's version has wrapped around, counted twice: see `LockedHome::publish`.
    /// Read by every lookup, and hardly ever written.
    wraps: AtomicU64,
    segments: Heads<Segment<K, V>>,
    budget: Arc<MemoryBudget>,
    /// Number of pairs in nodes; insertions in progress may or may not be counted.
    overflow: CachePadded<AtomicUsize>,
}

/// A claimed cell.
pub(super) struct Room {
    /// Distance from the home.
    pub(super) offset: usize,
    /// Whether keys were displaced for it.
    pub(super) displaced: bool,
}

/// Why there is no room.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// Another thread has the home of a key that might be displaced.
    Busy,
    /// No key can be displaced, or no cell is free.
    Full,
}

impl<K: Copy, V: Copy> HopscotchTable<K, V> {
    #[inline(always)]
    fn mask(&self) -> usize {
        self.infos.len() - 1
    }

    /// The info of a home; the index wraps around the ring.
    #[inline(always)]
    pub(super) fn info(&self, index: usize) -> &AtomicU64 {
        // SAFETY: the length is a power of two, and the index a remainder modulo it.
        &unsafe { self.infos.get_unchecked(index & self.mask()) }.0
    }

    #[inline(always)]
    pub(super) fn cell(&self, index: usize) -> &PairCell<K, V> {
        // SAFETY: the length is that of `infos`, a power of two, and the index a remainder modulo
        // it.
        unsafe { self.cells.get_unchecked(index & self.mask()) }
    }

    #[inline(always)]
    pub(super) fn tags(&self) -> &Tags {
        &self.tags
    }

    /// Returns a home for an update.
    #[inline(always)]
    fn home_to_change(&self, hash: u64) -> HomeBucket<'_, K, V> {
        let home = hash as usize & self.mask();
        // The update reads and writes five places. None of the accesses has to wait for another.
        hint::prefetch(self.info(home));
        hint::prefetch(self.cell(home));
        self.tags.prefetch(home);
        hint::prefetch(self.segment(home));
        HomeBucket::new(self, home)
    }

    /// The index of the cell at `offset` from a home, around the ring.
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
    pub(super) fn home(&self, hash: u64) -> HomeBucket<'_, K, V> {
        HomeBucket::new(self, hash as usize & self.mask())
    }

    pub(super) fn count_overflow(&self, by: isize) {
        // Relaxed: a number that publishes nothing, here and below.
        self.overflow.fetch_add(by.cast_unsigned(), Relaxed);
    }

    fn overflow(&self) -> usize {
        self.overflow.load(Relaxed)
    }

    /// The arrays that lookups read, and their sizes in bytes.
    #[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
    pub(super) fn memory(&self) -> [(*const (), usize); 3] {
        fn of<B>(heads: &[B]) -> (*const (), usize) {
            (heads.as_ptr().cast(), size_of_val(heads))
        }
        [of(&self.infos), of(&self.cells), self.tags.memory()]
    }

    /// The number of cells in a neighbourhood.
    fn reach(&self) -> usize {
        H.min(self.infos.len())
    }

    /// Frees a cell that belongs to no home.
    ///
    /// # Safety
    ///
    /// 1. The caller has claimed the cell, or has taken the pair out of it and counted that.
    pub(super) unsafe fn free(&self, index: usize) {
        let index = index & self.mask();
        // SAFETY: the cell is the caller's, or its pair was taken out and counted (1).
        unsafe { self.segment(index).free(index % BUCKETS) };
    }

    /// Claims the first free cell from `from` on, within `FARTHEST`; returns its distance from
    /// there.
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
                    // SAFETY: the cell was claimed just now, and is not used (1).
                    unsafe { self.free(from + distance) };
                    return None;
                }
                Ok(None) => distance += width - first,
                // Another thread was faster: there is one free cell less.
                Err(()) => {}
            }
        }
        None
    }

    /// Claims a cell in the neighbourhood of a home, and displaces keys if necessary. The caller
    /// has the home's lock, and this waits for no thread.
    pub(super) fn make_room(&self, home: usize) -> Result<Room, NoRoom> {
        let mut distance = self.claim(home).ok_or(NoRoom::Full)?;
        let displaced = distance >= self.reach();
        while distance >= self.reach() {
            // SAFETY: the cell was claimed above, or is the one that was had in exchange (1).
            match unsafe { self.bring_nearer(home + distance) } {
                Ok(by) => distance -= by,
                Err(none) => {
                    // SAFETY: claimed, or in exchange for one that was (1).
                    unsafe { self.free(home + distance) };
                    return Err(none);
                }
            }
        }
        let offset = distance;
        Ok(Room { offset, displaced })
    }

    /// Displaces a key to a claimed cell, so that the key's cell is the claimed one; returns how
    /// much nearer that is.
    ///
    /// # Safety
    ///
    /// 1. The caller has claimed the cell. It has the other one instead afterwards.
    unsafe fn bring_nearer(&self, free: usize) -> Result<usize, NoRoom> {
        let mut none = NoRoom::Full;
        for distance in (1..H).rev() {
            // The ring is longer than `H`: the free cell is out of reach of the home that needs it.
            let home = HomeBucket::new(self, (free - distance) & self.mask());
            // SAFETY: the claimed cell is `distance` cells after this home (1).
            match unsafe { home.displace(distance) } {
                Ok(Some(from)) => return Ok(distance - from),
                Ok(None) => {}
                Err(busy) => none = busy,
            }
        }
        Err(none)
    }

    /// [`get`](Table::get) when the tags are not sufficient.
    #[inline(never)]
    fn get_slowly(version: &TableVersion<Self>, hash: u64, key: &K) -> Option<V>
    where
        K: Eq,
    {
        let mut tag = None;
        version.follow(|table| {
            let home = table.home(hash);
            // `get` has already tried the first table's tags.
            let by_tag = tag.replace(Tag::of(hash)).map(|tag| home.by_tag(key, tag));
            match by_tag {
                Some(Ok(value)) => Ok(value),
                Some(Err(Unsettled)) | None => home.get(key),
            }
        })
    }

    /// Locks a home that is not moved yet.
    fn lock_unmoved(&self, home: usize) -> LockedHome<'_, K, V> {
        let home = HomeBucket::new(self, home);
        home.wait_and_lock().expect("only we move it")
    }
}

// SAFETY: see *Correctness* in the module's header: 1: a pair is read whole, after the Acquire of
// the word that leads to it. 2: a home is changed under its lock, by the operation that reports it.
// 3: `pairs` visits every cell, slot and scratch of a home. 4: atomics and `PairCell`s of `Copy`
// types.
unsafe impl<K: Copy + Eq + Hash, V: Copy> Table for HopscotchTable<K, V> {
    type Key = K;
    type Value = V;
    type Entry = (K, V);
    type HeldBucket<'t>
        = LockedHome<'t, K, V>
    where
        Self: 't;

    const FEWEST_BUCKETS: usize = 32;
    // Two would do, since the successor takes 0.9 insertions per bucket to fill.
    const SHARE: usize = 16;

    fn buckets_for(entries: usize) -> usize {
        entries.saturating_add(entries / 9 + 1)
    }

    fn try_new(buckets: usize, budget: &Arc<MemoryBudget>) -> Option<Self> {
        // Larger pairs do not compile.
        const { assert!(PairCell::<K, V>::WORDS <= 4) };
        assert!(buckets.is_power_of_two());
        let segments = buckets.div_ceil(BUCKETS);
        let bytes = bytes::<K, V>(buckets);
        if !budget.take(bytes) {
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
            budget.give(bytes);
            return None;
        };
        Some(Self {
            infos,
            cells,
            tags,
            wraps: AtomicU64::new(0),
            segments,
            budget: budget.clone(),
            overflow: CachePadded::new(AtomicUsize::new(0)),
        })
    }

    #[inline(always)]
    fn buckets(&self) -> usize {
        self.infos.len()
    }

    #[inline(always)]
    fn get(version: &TableVersion<Self>, hash: u64, key: &K) -> Option<V> {
        // Only the short path is inlined; the rest also follows moved homes.
        match version.table().home(hash).by_tag(key, Tag::of(hash)) {
            Ok(value) => value,
            Err(Unsettled) => Self::get_slowly(version, hash, key),
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

    fn put(
        version: &TableVersion<Self>,
        hash: u64,
        key: K,
        value: V,
        replace: bool,
    ) -> Result<Put<V>, Full> {
        let mut spare = None;
        let mut backoff = Backoff::new();
        version.follow(|table| {
            let home = table.home_to_change(hash);
            let mut reserved = Ok(());
            loop {
                let seen = home.look(&key)?;
                if let Some(found) = &seen.found {
                    if !replace {
                        return Ok(Ok(Put::There(found.pair.1)));
                    }
                    if let Some(locked) = home.lock(&seen) {
                        // The stored key stays, and the value may have changed by now.
                        // SAFETY: the home is locked as it was seen (1, both). The key that is
                        // there (2).
                        let old = unsafe {
                            let (there, old) = locked.pair(found.place());
                            locked.replace(found.place(), (there, value));
                            old
                        };
                        return Ok(Ok(Put::There(old)));
                    }
                } else if let Some(locked) = home.lock(&seen) {
                    match locked.insert((key, value), Tag::of(hash), &mut spare) {
                        Ok(crowded) => return Ok(Ok(Put::New { crowded })),
                        Err(Refused::Busy) => {}
                        Err(Refused::NeedsNode) => {
                            // Without memory: the home may have moved, or a place be free.
                            if let Err(full) = reserved {
                                return Ok(Err(full));
                            }
                            // Allocate without the lock.
                            spare = Spare::new(&table.budget);
                            reserved = spare.as_ref().map(|_| ()).ok_or(Full);
                            continue;
                        }
                    }
                }
                backoff.snooze();
            }
        })
    }

    fn remove(version: &TableVersion<Self>, hash: u64, key: &K) -> Option<V> {
        let mut backoff = Backoff::new();
        version.follow(|table| {
            let home = table.home_to_change(hash);
            loop {
                let seen = home.look(key)?;
                let Some(found) = &seen.found else {
                    return Ok(None);
                };
                if let Some(locked) = home.lock(&seen) {
                    // SAFETY: the home is locked as it was seen (1, both).
                    let old = unsafe {
                        let (_, old) = locked.pair(found.place());
                        locked.remove(found.place());
                        old
                    };
                    return Ok(Some(old));
                }
                backoff.snooze();
            }
        })
    }

    fn change(
        version: &TableVersion<Self>,
        hash: u64,
        key: &K,
        mut decide: impl FnMut(V) -> EntryChange<V>,
    ) -> Option<(V, EntryChange<V>)> {
        let mut backoff = Backoff::new();
        let mut known: Option<(Torn<K, V>, EntryChange<V>)> = None;
        version.follow(|table| {
            let home = table.home_to_change(hash);
            loop {
                let seen = home.look(key)?;
                let Some(found) = &seen.found else {
                    return Ok(None);
                };
                let (there, old) = found.pair;
                // `decide` is not called again for the same value: if it changes a neighbour, the
                // home has another version after each call.
                let change = match known {
                    Some((torn, change)) if found.is(&torn) => change,
                    _ => decide(old),
                };
                known = Some((found.torn(), change));
                if let EntryChange::Keep = change {
                    return Ok(Some((old, change)));
                }
                if let Some(locked) = home.lock(&seen)
                    && (locked.still_has(found) || mutant!("hop_updates_blindly"))
                {
                    let place = found.place();
                    // SAFETY: the home is locked as it was seen (1, both). The key that was found
                    // there (2).
                    unsafe {
                        match change {
                            EntryChange::Keep => {}
                            EntryChange::Replace(value) => locked.replace(place, (there, value)),
                            EntryChange::Remove => locked.remove(place),
                        }
                    }
                    return Ok(Some((old, change)));
                }
                backoff.snooze();
            }
        })
    }

    fn for_each_in(&self, bucket: usize, each: impl FnMut((K, V))) -> Result<(), Moved> {
        HomeBucket::new(self, bucket)
            .pairs()?
            .into_iter()
            .for_each(each);
        Ok(())
    }

    unsafe fn pair(pair: &(K, V)) -> (K, V) {
        *pair
    }

    unsafe fn home_of((key, _): &(K, V), hash_of: &impl Fn(&K) -> u64) -> u64 {
        hash_of(key)
    }

    fn try_hold(&self, bucket: usize) -> Result<Option<LockedHome<'_, K, V>>, Moved> {
        HomeBucket::new(self, bucket).try_lock()
    }

    fn hold(&self, bucket: usize) -> LockedHome<'_, K, V> {
        self.lock_unmoved(bucket)
    }

    unsafe fn take_in(&self, entries: &mut [Moving<(K, V)>]) -> Result<(), NoMemory> {
        let mut spare = None;
        let mut put_in = |moving: &Moving<(K, V)>| {
            let mut backoff = Backoff::new();
            loop {
                // Other threads lock it to displace its keys.
                let locked = self.lock_unmoved(moving.bucket);
                match locked.insert(moving.entry, Tag::of(moving.number), &mut spare) {
                    Ok(_) => return true,
                    Err(Refused::Busy) => backoff.snooze(),
                    Err(Refused::NeedsNode) => {
                        spare = Spare::new(&self.budget);
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
        // SAFETY: the caller migrates these buckets alone (1).
        entries
            .iter()
            .for_each(|moving| unsafe { self.wipe(moving.bucket) });
        Err(NoMemory)
    }

    unsafe fn wipe(&self, bucket: usize) {
        self.lock_unmoved(bucket).clear();
    }

    /// The large arrays. (The segments are not among them, because nodes hang on them.)
    fn arrays(&self) -> [Range<*const u8>; 2] {
        [self.cells.range(), self.infos.range()]
    }

    fn is_crowded(&self, entries: usize) -> bool {
        let (buckets, overflow) = (self.infos.len(), self.overflow());
        // Few cells are free; or many homes have more keys than cells, and the table would be full
        // without them.
        let placed = entries.saturating_sub(overflow);
        placed >= buckets - buckets / 10 || overflow > buckets / 8 && entries >= buckets
    }
}

/// The bytes of a table of `buckets` buckets, without nodes.
fn bytes<K, V>(buckets: usize) -> usize {
    let segments = buckets.div_ceil(BUCKETS);
    let of_segments = Heads::<Segment<K, V>>::bytes(segments);
    [
        Heads::<InfoWord>::bytes(buckets),
        Heads::<PairCell<K, V>>::bytes(buckets),
        Tags::bytes(buckets),
    ]
    .into_iter()
    .fold(of_segments, usize::saturating_add)
}

impl<K, V> Drop for HopscotchTable<K, V> {
    fn drop(&mut self) {
        let bytes = bytes::<K, V>(self.infos.len());
        // SAFETY: no other thread uses the table, and so none uses its segments.
        unsafe {
            for segment in self.segments.as_mut() {
                segment.free_nodes(&self.budget);
            }
        }
        self.budget.give(bytes);
    }
}

/// What a [`HopscotchMap`](super::HopscotchMap) tells besides what every map of copies does.
pub trait Overflowing {
    /// The number of entries that found no place in their neighbourhood; updates in progress may or
    /// may not be counted. During a resize it is the number in the old table. Constant time.
    ///
    /// Lookups in the homes of these entries are longer. With random keys it is one entry in ten
    /// thousand in a table that is 90 % full, and 2 in a thousand at 95 %.
    ///
    /// ```
    /// use corewise_maps_lab::hopscotch::{HopscotchMap, Overflowing};
    ///
    /// let map = HopscotchMap::with_capacity(1_000);
    /// (0..1_000).for_each(|key| assert_eq!(map.pin().insert(key, key), None));
    /// assert!(map.overflowing() <= map.len());
    /// println!("{} of {} entries overflow", map.overflowing(), map.len());
    /// ```
    fn overflowing(&self) -> usize;
}

impl<K: Copy + Eq + Hash, V: Copy, S, L> Overflowing for CopyMap<HopscotchTable<K, V>, S, L> {
    fn overflowing(&self) -> usize {
        self.pin().table_version().table().overflow()
    }
}
