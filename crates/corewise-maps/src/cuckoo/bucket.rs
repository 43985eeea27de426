//! Buckets: their cells, what overflows, and changing them under their locks.

use corewise_atomic::sync::atomic::AtomicU64;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::fence;
use corewise_atomic::{hint, mutant, ordering};

use super::overflow::Spare;
use super::state::{SLOTS, Side, State, Tag};
use super::table::CuckooTable;
use crate::copy_map::space;
use crate::copy_map::{Held, Moving, NoMemory};
use crate::pair::{PairCell, Torn};

/// The cells of a bucket, one for each slot.
pub(super) struct Cells<K, V>([PairCell<K, V>; SLOTS]);

// SAFETY: 1: cells of zeros are cells, and nothing is read of them before it was written.
unsafe impl<K: Copy, V: Copy> space::Bucket for Cells<K, V> {
    fn empty() -> Self {
        Self(std::array::from_fn(|_| PairCell::empty()))
    }
}

/// A bucket that hangs on another.
pub(super) struct Node<K, V> {
    word: AtomicU64,
    cells: Cells<K, V>,
}

// SAFETY: 1: a word of zeros is `State::EMPTY`; as above.
unsafe impl<K: Copy, V: Copy> space::Bucket for Node<K, V> {
    fn empty() -> Self {
        Self {
            word: AtomicU64::new(State::EMPTY.0),
            cells: space::Bucket::empty(),
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

    /// Of a bucket that hangs nowhere: makes it an empty one.
    pub(super) fn clear(&self) {
        // Relaxed, both: nobody else has it, and names are given out under a lock.
        self.word.store(State::EMPTY.0, Relaxed);
    }

    /// Of a bucket that hangs nowhere: notes the name of another one.
    pub(super) fn set_returned(&self, name: u32) {
        self.word.store(State::EMPTY.with_next(name).0, Relaxed);
    }
}

/// A bucket of the table or one that hangs on another: its word and its cells.
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
        // Acquire: pairs with the Release in `publish` and in `Locked::drop`, so that the pairs it tells of are
        // seen, or the successor and what was moved to it.
        State(self.word.load(Acquire))
    }

    /// What a slot's words are, of one pair or of several.
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
    /// 1. The slot is held, and nobody else changes the bucket.
    unsafe fn pair(self, slot: usize) -> (K, V) {
        // SAFETY: it was written before the slot was held, and nobody has written since, by 1.
        unsafe { self.load(slot).assume_whole() }
    }

    fn publish(self, state: State) {
        // Release: pairs with the Acquire in `state`.
        self.word.store(state.0, Release);
    }

    /// Writes a pair to a slot that is free.
    fn fill(self, slot: usize, pair: (K, V)) {
        if !mutant!("cuckoo_relaxed_pair") {
            // Release: pairs with the fence in `CuckooTable::is_undisturbed`. A lookup that takes one of these words
            // for one of the entry before sees that that was counted as removed or moved.
            fence(Release);
        }
        // Relaxed: after the fence.
        self.cells.0[slot].store(pair.0, pair.1, Relaxed);
    }

    /// Adds an entry to a bucket that nobody else can reach; false if it is full.
    pub(super) fn add(self, entry: &Entry<K, V>) -> bool {
        // Relaxed, both: nobody else is here before the old bucket is marked with Release.
        let state = State(self.word.load(Relaxed));
        let Some(slot) = state.free() else {
            return false;
        };
        self.cells.0[slot].store(entry.pair.0, entry.pair.1, Relaxed);
        let state = state.with(slot, entry.tag, entry.side);
        self.word.store(state.0, Relaxed);
        true
    }

    /// Hangs a bucket on one that nobody else can reach, before those that hang there.
    pub(super) fn hang_unshared(self, part: Part<'_, K, V>, name: u32) {
        // Relaxed, all: as in `add`.
        let (head, hung) = (self.word.load(Relaxed), part.word.load(Relaxed));
        let hung = State(hung).with_next(State(head).next().unwrap_or(0));
        part.word.store(hung.0, Relaxed);
        self.word.store(State(head).with_next(name).0, Relaxed);
    }

    /// Empties a bucket that nobody else can reach, and of which nothing hangs any more.
    pub(super) fn wipe(self) {
        // Relaxed: as in `add`.
        self.word.store(State::EMPTY.0, Relaxed);
    }
}

/// An entry that is inserted or on its way.
#[derive(Clone, Copy)]
pub struct Entry<K, V> {
    pub(super) pair: (K, V),
    pub(super) tag: Tag,
    pub(super) side: Side,
}

impl<K, V> Entry<K, V> {
    pub(super) fn new(pair: (K, V), tag: Tag, side: Side) -> Self {
        Self { pair, tag, side }
    }
}

/// A slot of a bucket that is locked.
pub(super) struct Place<'t, K, V> {
    part: Part<'t, K, V>,
    slot: usize,
}

impl<K, V> Clone for Place<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Place<'_, K, V> {}

/// A bucket that is locked until this is dropped, with those that hang on it.
pub struct Locked<'t, K: Copy, V: Copy> {
    table: &'t CuckooTable<K, V>,
    bucket: usize,
    /// What the bucket's word will be when it is unlocked.
    state: State,
}

impl<'t, K: Copy, V: Copy> Locked<'t, K, V> {
    /// # Safety
    ///
    /// 1. The caller has set the lock of this bucket, whose state was this, and leaves it to this value.
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

    /// The bucket and those that hang on it, with their states.
    fn parts(&self) -> impl Iterator<Item = (Part<'t, K, V>, State)> {
        let first = (self.head(), self.state);
        let table = self.table;
        std::iter::successors(Some(first), move |(_, state)| {
            let part = table.overflow().node(state.next()?).part();
            Some((part, part.state()))
        })
    }

    pub(super) fn find(&self, tag: Tag, key: &K) -> Option<Place<'t, K, V>>
    where
        K: Eq,
    {
        self.parts().find_map(|(part, state)| {
            let mut places = state.matches(tag).map(|slot| Place { part, slot });
            places.find(|place| self.pair(*place).0 == *key)
        })
    }

    /// A slot of the bucket itself.
    pub(super) fn place(&self, slot: usize) -> Place<'t, K, V> {
        let part = self.head();
        Place { part, slot }
    }

    /// A free slot of the bucket itself.
    pub(super) fn free(&self) -> Option<Place<'t, K, V>> {
        Some(self.place(self.state.free()?))
    }

    /// A free slot of those that hang on it.
    pub(super) fn free_overflow(&self) -> Option<Place<'t, K, V>> {
        let mut hung = self.parts().skip(1);
        hung.find_map(|(part, state)| {
            let slot = state.free()?;
            Some(Place { part, slot })
        })
    }

    /// Of a place that is held.
    pub(super) fn pair(&self, place: Place<'t, K, V>) -> (K, V) {
        // SAFETY: places of locked buckets are made by their owners, and held ones have a tag. The lock is ours.
        unsafe { place.part.pair(place.slot) }
    }

    pub(super) fn load(&self, place: Place<'t, K, V>) -> Torn<K, V> {
        place.part.load(place.slot)
    }

    /// Puts an entry in a place that is free.
    pub(super) fn insert(&mut self, place: Place<'t, K, V>, entry: &Entry<K, V>) {
        place.part.fill(place.slot, entry.pair);
        let state = |state: State| state.with(place.slot, entry.tag, entry.side);
        if self.is_head(place.part) {
            self.state = state(self.state);
        } else {
            place.part.publish(state(place.part.state()));
        }
    }

    /// Hangs a bucket with an entry on it.
    pub(super) fn hang(&mut self, spare: Spare<'t, K, V>, entry: &Entry<K, V>) {
        let part = spare.node().part();
        part.fill(0, entry.pair);
        let next = self.state.next().unwrap_or(0);
        let state = State::EMPTY.with(0, entry.tag, entry.side);
        part.publish(state.with_next(next));
        self.state = self.state.with_next(spare.hang());
    }

    /// Shows what was inserted before the bucket is unlocked.
    pub(super) fn publish(&self) {
        self.head().publish(self.state.locked());
    }

    /// Frees a place, and counts that: only after that may the bucket be unlocked, and the place be used again.
    pub(super) fn remove(&mut self, place: Place<'t, K, V>) {
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

    /// Fills a slot of the bucket itself, if one is free, with an entry of those that hang on it: it is there before it
    /// is gone from where it was.
    pub(super) fn draw_in(&mut self) {
        let mut hung = self.parts().skip(1).filter_map(|(part, state)| {
            let (slot, tag) = state.held().next()?;
            Some((Place { part, slot }, tag, state.side(slot)))
        });
        let (Some(free), Some((from, tag, side))) = (self.free(), hung.next()) else {
            return;
        };
        drop(hung);
        let entry = Entry::new(self.pair(from), tag, side);
        self.insert(free, &entry);
        self.publish();
        // Twice, as in `CuckooTable::displace`.
        if !mutant!("cuckoo_draws_late") {
            self.table.count(self.bucket);
        }
        self.remove(from);
    }

    /// Puts another value in the place of one; the key is the one that is there.
    pub(super) fn replace(&mut self, place: Place<'t, K, V>, pair: (K, V)) {
        let Place { part, slot } = place;
        if PairCell::<K, V>::VALUE_IS_IN_ONE_WORD {
            let order = ordering!(Release, "cuckoo_relaxed_replace");
            // Release: pairs with the fence in `CuckooTable::is_undisturbed`: who finds the value sees what was
            // written before it was put in.
            part.cells.0[slot].store_value(pair.0, pair.1, order);
            return;
        }
        // Readers who come now wait, and those who are here look again.
        if self.is_head(part) {
            self.head().publish(self.state.locked().writing());
        } else {
            part.publish(part.state().writing());
        }
        if !mutant!("cuckoo_torn") {
            self.table.count(self.bucket);
        }
        part.fill(slot, pair);
        if self.is_head(part) {
            self.publish();
        } else {
            part.publish(part.state().written());
        }
    }
}

impl<K: Copy, V: Copy> Held<Entry<K, V>> for Locked<'_, K, V> {
    fn copy(&self, to: &mut Vec<Moving<Entry<K, V>>>) -> Result<(), NoMemory> {
        for (part, state) in self.parts() {
            to.try_reserve(SLOTS).map_err(|_| NoMemory)?;
            to.extend(state.held().map(|(slot, tag)| {
                let pair = self.pair(Place { part, slot });
                Moving::new(Entry::new(pair, tag, state.side(slot)))
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

impl<K: Copy, V: Copy> Drop for Locked<'_, K, V> {
    fn drop(&mut self) {
        let order = ordering!(Release, "cuckoo_relaxed_publish");
        // Release: pairs with the Acquire in `state` and in `CuckooTable::try_lock`.
        self.head().word.store(self.state.0, order);
    }
}
