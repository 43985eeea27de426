//! Buckets: their cells, their overflow buckets, and changes under their locks.

use corewise_atomic::sync::atomic::AtomicU64;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::fence;
use corewise_atomic::{hint, mutant, ordering};

use super::overflow::Spare;
use super::state::{SLOTS, Side, State, Tag};
use super::table::CuckooTable;
use crate::copy_map::memory_budget;
use crate::copy_map::{HeldBucket, Moving, NoMemory};
use crate::pair_cell::{PairCell, Torn};

/// The cells of a bucket, one for each slot.
pub(super) struct Cells<K, V>([PairCell<K, V>; SLOTS]);

// SAFETY: cells of zeros are valid, and a cell is read only after it was written (1).
unsafe impl<K: Copy, V: Copy> memory_budget::ZeroedBucket for Cells<K, V> {
    fn empty() -> Self {
        Self(std::array::from_fn(|_| PairCell::empty()))
    }
}

/// An overflow bucket, to which another bucket links.
pub(super) struct Node<K, V> {
    word: AtomicU64,
    cells: Cells<K, V>,
}

// SAFETY: a word of zeros is `State::EMPTY`, and cells of zeros are valid (1).
unsafe impl<K: Copy, V: Copy> memory_budget::ZeroedBucket for Node<K, V> {
    fn empty() -> Self {
        Self {
            word: AtomicU64::new(State::EMPTY.0),
            cells: memory_budget::ZeroedBucket::empty(),
        }
    }
}

impl<K: Copy, V: Copy> Node<K, V> {
    pub(super) fn part(&self) -> Part<'_, K, V> {
        Part {
            word: &self.word,
            cells: &self.cells,
        }
    }

    pub(super) fn state(&self) -> State {
        self.part().state()
    }

    /// Empties a bucket to which no other links.
    ///
    /// # Safety
    ///
    /// 1. Only the caller can reach the bucket.
    pub(super) unsafe fn clear(&self) {
        // Relaxed, both: no other thread has it, and IDs are handed out under a lock.
        self.word.store(State::EMPTY.0, Relaxed);
    }

    /// Stores the ID of another bucket in a bucket to which no other links.
    ///
    /// # Safety
    ///
    /// 1. Only the caller can reach the bucket.
    pub(super) unsafe fn set_returned(&self, id: u32) {
        // Relaxed: as in `clear`.
        self.word.store(State::EMPTY.with_next(id).0, Relaxed);
    }
}

/// A bucket of the table or an overflow bucket: its word and its cells.
pub(super) struct Part<'t, K, V> {
    pub(super) word: &'t AtomicU64,
    pub(super) cells: &'t Cells<K, V>,
}

impl<K, V> Clone for Part<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Part<'_, K, V> {}

impl<'t, K: Copy, V: Copy> Part<'t, K, V> {
    #[inline(always)]
    pub(super) fn state(self) -> State {
        // Acquire: pairs with the Release in `publish` and in `LockedBucket::drop`, so that the
        // pairs it describes are seen, or the successor and what was moved to it.
        State(self.word.load(Acquire))
    }

    /// The words of a slot, which may be of one pair or of several.
    #[inline(always)]
    pub(super) fn load(self, slot: usize) -> Torn<K, V> {
        self.cells.0[slot].load()
    }

    #[inline(always)]
    pub(super) fn prefetch(self, slot: usize) {
        hint::prefetch(&raw const self.cells.0[slot]);
    }

    /// The pair of a slot.
    ///
    /// # Safety
    ///
    /// 1. The slot is held, and no other thread changes the bucket.
    unsafe fn pair(self, slot: usize) -> (K, V) {
        // SAFETY: it was written before the slot was held, and no thread has written since, by 1.
        unsafe { self.load(slot).assume_whole() }
    }

    fn publish(self, state: State) {
        // Release: pairs with the Acquire in `state`.
        self.word.store(state.0, Release);
    }

    /// Writes a pair to a free slot.
    ///
    /// # Safety
    ///
    /// 1. The slot is free or [being written](State::writing), which was counted if the slot was
    ///    held before.
    /// 2. The caller has the lock of the bucket, or only the caller can reach it.
    unsafe fn fill(self, slot: usize, pair: (K, V)) {
        if !mutant!("cuckoo_relaxed_pair") {
            // Release: pairs with the fence in `CuckooTable::is_undisturbed`. A lookup that takes
            // one of these words for one of the previous entry sees that the removal or move of
            // that entry was counted.
            fence(Release);
        }
        // Relaxed: after the fence.
        self.cells.0[slot].store(pair.0, pair.1, Relaxed);
    }

    /// Adds an entry to a bucket that no other thread can reach; false if it is full.
    ///
    /// # Safety
    ///
    /// 1. Only the caller can reach the bucket.
    pub(super) unsafe fn add(self, entry: &CuckooEntry<K, V>) -> bool {
        // Relaxed, both: no other thread gets here before the old bucket is marked with Release.
        let state = State(self.word.load(Relaxed));
        let Some(slot) = state.free() else {
            return false;
        };
        self.cells.0[slot].store(entry.pair.0, entry.pair.1, Relaxed);
        let state = state.with(slot, entry.tag, entry.side);
        // Relaxed: as above.
        self.word.store(state.0, Relaxed);
        true
    }

    /// Links a bucket to one that no other thread can reach, in front of its overflow buckets.
    ///
    /// # Safety
    ///
    /// 1. Only the caller can reach both buckets.
    /// 2. `id` is the ID of `part` in the table of this bucket.
    pub(super) unsafe fn append_unshared(self, part: Part<'_, K, V>, id: u32) {
        // Relaxed, all: as in `add`.
        let (head, word) = (self.word.load(Relaxed), part.word.load(Relaxed));
        let state = State(word).with_next(State(head).next().unwrap_or(0));
        part.word.store(state.0, Relaxed);
        self.word.store(State(head).with_next(id).0, Relaxed);
    }

    /// Empties a bucket that no other thread can reach. It links to no overflow bucket then.
    ///
    /// # Safety
    ///
    /// 1. Only the caller can reach the bucket.
    pub(super) unsafe fn wipe(self) {
        // Relaxed: as in `add`.
        self.word.store(State::EMPTY.0, Relaxed);
    }
}

/// An entry that is being inserted or moved.
#[derive(Clone, Copy)]
pub struct CuckooEntry<K, V> {
    pub(super) pair: (K, V),
    pub(super) tag: Tag,
    pub(super) side: Side,
}

impl<K, V> CuckooEntry<K, V> {
    pub(super) fn new(pair: (K, V), tag: Tag, side: Side) -> Self {
        Self { pair, tag, side }
    }
}

/// A slot of a locked bucket.
pub(super) struct SlotRef<'t, K, V> {
    part: Part<'t, K, V>,
    slot: usize,
}

impl<K, V> Clone for SlotRef<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for SlotRef<'_, K, V> {}

/// A bucket that is locked until this is dropped, with its overflow buckets.
pub struct LockedBucket<'t, K: Copy, V: Copy> {
    table: &'t CuckooTable<K, V>,
    bucket: usize,
    /// What the bucket's word will be when it is unlocked.
    state: State,
}

impl<'t, K: Copy, V: Copy> LockedBucket<'t, K, V> {
    /// # Safety
    ///
    /// 1. The caller has locked this bucket, whose state was `state`, and leaves the lock to this
    ///    value.
    pub(super) unsafe fn new(table: &'t CuckooTable<K, V>, bucket: usize, state: State) -> Self {
        Self {
            table,
            bucket,
            state,
        }
    }

    pub(super) fn table(&self) -> &'t CuckooTable<K, V> {
        self.table
    }

    pub(super) fn bucket(&self) -> usize {
        self.bucket
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    fn head(&self) -> Part<'t, K, V> {
        self.table.part(self.bucket)
    }

    fn is_head(&self, part: Part<'_, K, V>) -> bool {
        std::ptr::eq(part.word, self.head().word)
    }

    /// The bucket and its overflow buckets, with their states.
    fn parts(&self) -> impl Iterator<Item = (Part<'t, K, V>, State)> {
        let first = (self.head(), self.state);
        let table = self.table;
        std::iter::successors(Some(first), move |(_, state)| {
            let part = table.overflow().node(state.next()?).part();
            Some((part, part.state()))
        })
    }

    pub(super) fn find(&self, tag: Tag, key: &K) -> Option<SlotRef<'t, K, V>>
    where
        K: Eq,
    {
        self.parts().find_map(|(part, state)| {
            let mut places = state.matches(tag).map(|slot| SlotRef { part, slot });
            // SAFETY: the slot has a tag in the state of its bucket, so it is held (1).
            places.find(|place| unsafe { self.pair(*place) }.0 == *key)
        })
    }

    /// A slot of the bucket itself.
    pub(super) fn place(&self, slot: usize) -> SlotRef<'t, K, V> {
        let part = self.head();
        SlotRef { part, slot }
    }

    /// A free slot of the bucket itself.
    pub(super) fn free(&self) -> Option<SlotRef<'t, K, V>> {
        Some(self.place(self.state.free()?))
    }

    /// A free slot of the overflow buckets.
    pub(super) fn free_overflow(&self) -> Option<SlotRef<'t, K, V>> {
        let mut overflow = self.parts().skip(1);
        overflow.find_map(|(part, state)| {
            let slot = state.free()?;
            Some(SlotRef { part, slot })
        })
    }

    /// The pair of a held place.
    ///
    /// # Safety
    ///
    /// 1. The place is one of this bucket or its overflow buckets, and is held.
    pub(super) unsafe fn pair(&self, place: SlotRef<'t, K, V>) -> (K, V) {
        // SAFETY: held, by 1, and no other thread changes the bucket: the lock is ours.
        unsafe { place.part.pair(place.slot) }
    }

    pub(super) fn load(&self, place: SlotRef<'t, K, V>) -> Torn<K, V> {
        place.part.load(place.slot)
    }

    /// Writes an entry to a free place.
    ///
    /// # Safety
    ///
    /// 1. The place is one of this bucket or its overflow buckets, and is free.
    pub(super) unsafe fn insert(&mut self, place: SlotRef<'t, K, V>, entry: &CuckooEntry<K, V>) {
        // SAFETY: the place is free, by 1, and `remove` has counted the entry that it held before
        // (1). The lock of the bucket is held by this value (2).
        unsafe { place.part.fill(place.slot, entry.pair) };
        let state = |state: State| state.with(place.slot, entry.tag, entry.side);
        if self.is_head(place.part) {
            self.state = state(self.state);
        } else {
            place.part.publish(state(place.part.state()));
        }
    }

    /// Puts an entry into an overflow bucket, and links that to this bucket.
    ///
    /// # Safety
    ///
    /// 1. The overflow bucket is one of this bucket's table.
    pub(super) unsafe fn append(&mut self, spare: Spare<'t, K, V>, entry: &CuckooEntry<K, V>) {
        let part = spare.node().part();
        // SAFETY: the spare bucket is empty, and only this thread can reach it.
        unsafe { part.fill(0, entry.pair) };
        let next = self.state.next().unwrap_or(0);
        let state = State::EMPTY.with(0, entry.tag, entry.side);
        part.publish(state.with_next(next));
        self.state = self.state.with_next(spare.link());
    }

    /// Publishes insertions before the bucket is unlocked.
    pub(super) fn publish(&self) {
        self.head().publish(self.state.locked());
    }

    /// Frees a place and counts that. Only after that may the bucket be unlocked and the place be
    /// reused.
    ///
    /// # Safety
    ///
    /// 1. The place is one of this bucket or its overflow buckets, and is held.
    pub(super) unsafe fn remove(&mut self, place: SlotRef<'t, K, V>) {
        if self.is_head(place.part) {
            self.state = self.state.without(place.slot);
            self.publish();
        } else {
            let state = place.part.state();
            place.part.publish(state.without(place.slot));
        }
        if !mutant!("cuckoo_uncounted") {
            self.table.count(self.bucket);
        }
    }

    /// Moves an entry of the overflow buckets to a free slot of the bucket itself, if there is one.
    /// The entry is in its new place before it leaves the old one. An empty overflow bucket stays:
    /// `LockedHomes::rules_out_second` relies on that.
    pub(super) fn refill_from_overflow(&mut self) {
        let mut overflowing = self.parts().skip(1).filter_map(|(part, state)| {
            let (slot, tag) = state.used_slots().next()?;
            Some((SlotRef { part, slot }, tag, state.side(slot)))
        });
        let (Some(free), Some((from, tag, side))) = (self.free(), overflowing.next()) else {
            return;
        };
        drop(overflowing);
        // SAFETY: the slot has a tag in the state of its overflow bucket, so it is held (1).
        let entry = CuckooEntry::new(unsafe { self.pair(from) }, tag, side);
        // SAFETY: `free` returned a free slot of the bucket itself (1).
        unsafe { self.insert(free, &entry) };
        self.publish();
        // Counted twice, as in `CuckooTable::displace`.
        if !mutant!("cuckoo_draws_late") {
            self.table.count(self.bucket);
        }
        // SAFETY: the slot is still held: its pair was read under the same lock (1).
        unsafe { self.remove(from) };
    }

    /// Replaces the value of a place.
    ///
    /// # Safety
    ///
    /// 1. The place is one of this bucket or its overflow buckets, and is held.
    /// 2. The key in `pair` is the one that is there, with the same bytes.
    pub(super) unsafe fn replace(&mut self, place: SlotRef<'t, K, V>, pair: (K, V)) {
        let SlotRef { part, slot } = place;
        if PairCell::<K, V>::VALUE_IS_IN_ONE_WORD {
            // Release: pairs with the fence in `CuckooTable::is_undisturbed`: a lookup that finds
            // the value sees what was written before the value was stored.
            let order = ordering!(Release, "cuckoo_relaxed_replace");
            part.cells.0[slot].store_value(pair.0, pair.1, order);
            return;
        }
        // Readers that begin now wait, and readers that have begun retry.
        if self.is_head(part) {
            self.head().publish(self.state.locked().writing());
        } else {
            part.publish(part.state().writing());
        }
        if !mutant!("cuckoo_torn") {
            self.table.count(self.bucket);
        }
        // SAFETY: the slot was published as being written, and counted (1). The lock of the bucket
        // is held by this value (2).
        unsafe { part.fill(slot, pair) };
        if self.is_head(part) {
            self.publish();
        } else {
            part.publish(part.state().written());
        }
    }
}

// SAFETY: `copy` appends the slots with tags, of the bucket and of its overflow buckets (1). The
// lock is held until the drop, and a bucket that is marked is not locked again (2).
unsafe impl<K: Copy, V: Copy> HeldBucket<CuckooEntry<K, V>> for LockedBucket<'_, K, V> {
    fn copy(&self, to: &mut Vec<Moving<CuckooEntry<K, V>>>) -> Result<(), NoMemory> {
        for (part, state) in self.parts() {
            to.try_reserve(SLOTS).map_err(|_| NoMemory)?;
            to.extend(state.used_slots().map(|(slot, tag)| {
                // SAFETY: the slot has a tag in the state of its bucket, so it is held (1).
                let pair = unsafe { self.pair(SlotRef { part, slot }) };
                Moving::new(CuckooEntry::new(pair, tag, state.side(slot)))
            }));
        }
        Ok(())
    }

    fn set_moved(mut self) {
        self.state = self.state.moved();
    }

    fn set_moved_early(&self) {
        self.head().publish(self.state.moved().locked());
    }
}

impl<K: Copy, V: Copy> Drop for LockedBucket<'_, K, V> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `state` and in `CuckooTable::try_lock`.
        let order = ordering!(Release, "cuckoo_relaxed_publish");
        self.head().word.store(self.state.0, order);
    }
}
