//! Homes: reading one, and changing one under its lock.

use std::ops::ControlFlow;

use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicU64, fence};
use corewise_atomic::{Backoff, hint, mutant, ordering};
use corewise_maps::parts::{HeldBucket, Moved, Moving, NoMemory, PairCell, Torn, ZeroedBucket};

use super::info::Info;
use super::segment::{BUCKETS, Node, Segment, Spare};
use super::table::{HopscotchTable, NoRoom};
use super::tags::{GROUPS, Tag};

/// The word of a home.
pub(super) struct InfoWord(pub(super) AtomicU64);

// SAFETY:
// 1. Zero has no hop bits.
unsafe impl ZeroedBucket for InfoWord {
    fn empty() -> Self {
        Self(AtomicU64::new(0))
    }
}

/// A home of a table.
pub(super) struct HomeBucket<'t, K, V> {
    table: &'t HopscotchTable<K, V>,
    index: usize,
}

impl<K, V> Clone for HomeBucket<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for HomeBucket<'_, K, V> {}

/// The state of a home at one time.
#[derive(Clone, Copy)]
pub(super) struct Version {
    info: Info,
    wraps: u64,
}

/// The version has changed.
pub(super) struct Changed;

/// The tags are not sufficient.
pub(super) struct Unsettled;

/// The place of a pair of a home.
pub(super) enum PairPlace<'t, K, V> {
    /// In the cell at this offset in the neighbourhood.
    Cell(usize),
    /// In this slot of a node.
    Slot(&'t Node<K, V>, usize),
    /// On its way to a cell or slot, which is being written.
    Scratch,
}

/// A pair of a home.
pub(super) struct FoundPair<'t, K: Copy, V: Copy> {
    place: PairPlace<'t, K, V>,
    torn: Torn<K, V>,
    pub(super) pair: (K, V),
}

/// The result of looking for a key in its home.
pub(super) struct KeySearch<'t, K: Copy, V: Copy> {
    version: Version,
    pub(super) found: Option<FoundPair<'t, K, V>>,
}

impl<'t, K: Copy, V: Copy> HomeBucket<'t, K, V> {
    #[inline(always)]
    pub(super) fn new(table: &'t HopscotchTable<K, V>, index: usize) -> Self {
        Self { table, index }
    }

    #[inline(always)]
    fn info(self) -> &'t AtomicU64 {
        self.table.info(self.index)
    }

    #[inline(always)]
    pub(super) fn cell(self, offset: usize) -> &'t PairCell<K, V> {
        self.table.cell(self.index + offset)
    }

    fn segment(self) -> &'t Segment<K, V> {
        self.table.segment(self.index)
    }

    /// The index of this home in its segment.
    fn number(self) -> u8 {
        (self.index % BUCKETS) as u8
    }

    #[inline(always)]
    fn version(self) -> Version {
        // Acquire: pairs with the Release in `LockedHome::publish`: the info that is read next is
        // not older than this count.
        let wraps = self.table.wraps().load(Acquire);
        // Acquire: pairs with the Release in `LockedHome::store`, so that the pairs it leads to are
        // seen, or the successor and what was moved to it. (Locking since then is an atomic
        // exchange of the same word, which continues the release sequence.)
        let info = Info(self.info().load(Acquire));
        Version { info, wraps }
    }

    /// Whether nothing was removed, displaced or rewritten between `version` and the loads before
    /// this call: then no word they have read belongs to a later pair.
    #[inline(always)]
    fn is_unchanged(self, version: Version) -> bool {
        // Acquire: pairs with the Release in `LockedHome::write`: a lookup that has read a word of
        // a later pair sees the change before it.
        fence(Acquire);
        // Acquire: pairs with the Release in `LockedHome::store`: the next load sees what was
        // counted before that store.
        let info = Info(self.info().load(Acquire));
        // Relaxed: as above.
        let is_same =
            info.has_version_of(version.info) && self.table.wraps().load(Relaxed) == version.wraps;
        is_same || mutant!("hop_no_second_look")
    }

    /// Looks for a key in its home. Writes nothing, and waits for no thread.
    #[inline(always)]
    pub(super) fn look(self, key: &K) -> Result<KeySearch<'t, K, V>, Moved>
    where
        K: Eq,
    {
        loop {
            let version = self.version();
            if version.info.is_moved() {
                return Err(Moved);
            }
            let is_key = |found: FoundPair<'t, K, V>| {
                if found.pair.0 == *key {
                    ControlFlow::Break(found)
                } else {
                    ControlFlow::Continue(())
                }
            };
            if let Ok(found) = self.visit(version, is_key) {
                return Ok(KeySearch { version, found });
            }
        }
    }

    /// Looks up a key by tag, unless the tags are not sufficient. Writes nothing, and waits for no
    /// thread.
    #[inline(always)]
    pub(super) fn by_tag(self, key: &K, tag: Tag) -> Result<Option<V>, Unsettled>
    where
        K: Eq,
    {
        let Self { table, index } = self;
        let tags = table.tags();
        // Before the tags are read: most pairs are in the cache line of their home's cell, and tags
        // are cached more often than cells.
        hint::prefetch(table.cell(index));
        let changes = tags.changes(index);
        let before = changes.look();
        for group in 0..GROUPS {
            for offset in tags.find(index, group, tag) {
                let cell = table.cell_at(index, offset);
                if cell / BUCKETS != index / BUCKETS {
                    // The cell is in the next segment, whose removals `before` does not count.
                    return Err(Unsettled);
                }
                let torn = table.cell(cell).load();
                if !changes.has_kept_all(before) {
                    return Err(Unsettled);
                }
                // SAFETY: the tag was set after the pair was written, and the pair has not left
                // since `before`, nor had it when the tag was seen: so the cell was not written,
                // but for a value in one word.
                let (there, value) = unsafe { torn.assume_whole() };
                if there == *key {
                    return Ok(Some(value));
                }
            }
        }
        if changes.was_settled(before) {
            Ok(None)
        } else {
            Err(Unsettled)
        }
    }

    /// Looks up a key by its home's info.
    // Not inlined: `by_tag` is fast because it is small.
    #[inline(never)]
    pub(super) fn get(self, key: &K) -> Result<Option<V>, Moved>
    where
        K: Eq,
    {
        Ok(self.look(key)?.found.map(|found| found.pair.1))
    }

    /// Prefetches the first pair that a lookup compares.
    #[inline(always)]
    pub(super) fn prefetch_first(self, tag: Tag) {
        if let Some(offset) = self.table.tags().find(self.index, 0, tag).next() {
            hint::prefetch(self.cell(offset));
        }
    }

    /// Returns all pairs that the home had at one point in time.
    pub(super) fn pairs(self) -> Result<Vec<(K, V)>, Moved>
    where
        K: Eq,
    {
        let mut pairs = Vec::new();
        loop {
            let version = self.version();
            if version.info.is_moved() {
                return Err(Moved);
            }
            pairs.clear();
            let mut changing = None;
            let each = |FoundPair { place, pair, .. }: FoundPair<'t, K, V>| {
                // While a pair is replaced, it is in the scratch and may be in its slot, too.
                let again = matches!(place, PairPlace::Slot(..)) && changing == Some(pair.0);
                if matches!(place, PairPlace::Scratch) {
                    changing = Some(pair.0);
                }
                if !again {
                    pairs.push(pair);
                }
                ControlFlow::<()>::Continue(())
            };
            if self.visit(version, each).is_ok() {
                return Ok(pairs);
            }
        }
    }

    /// Calls `each` with the home's pairs until it breaks. If it does not break, the home had all
    /// these pairs at one point in time. The pair in the scratch comes before those in slots.
    #[inline(always)]
    fn visit<B>(
        self,
        version: Version,
        mut each: impl FnMut(FoundPair<'t, K, V>) -> ControlFlow<B>,
    ) -> Result<Option<B>, Changed> {
        for offset in version.info.hops() {
            let torn = self.cell(offset).load();
            // SAFETY: loaded just now from a cell that the version leads to (1).
            let found = unsafe { self.whole(version, PairPlace::Cell(offset), torn) }?;
            if let ControlFlow::Break(answer) = each(found) {
                return Ok(Some(answer));
            }
        }
        if version.info.goes_further() {
            return self.visit_further(version, each);
        }
        Ok(None)
    }

    /// [`visit`](Self::visit), of the pairs outside of the neighbourhood.
    #[cold]
    fn visit_further<B>(
        self,
        version: Version,
        mut each: impl FnMut(FoundPair<'t, K, V>) -> ControlFlow<B>,
    ) -> Result<Option<B>, Changed> {
        if version.info.is_changing() {
            let torn = self.segment().scratch().load();
            // SAFETY: loaded just now from the scratch, which the version leads to (1).
            let found = unsafe { self.whole(version, PairPlace::Scratch, torn) }?;
            if let ControlFlow::Break(answer) = each(found) {
                return Ok(Some(answer));
            }
        }
        if !version.info.overflows() {
            return Ok(None);
        }
        for node in self.segment().nodes() {
            let state = node.state();
            for slot in node.slots_of(state, self.number()) {
                let torn = node.torn(slot);
                if !node.is_unchanged(state) {
                    return Err(Changed);
                }
                // SAFETY: the slot is held since `state`, so it was not written since.
                let pair = unsafe { torn.assume_whole() };
                let place = PairPlace::Slot(node, slot);
                if let ControlFlow::Break(answer) = each(FoundPair { place, torn, pair }) {
                    return Ok(Some(answer));
                }
            }
        }
        // A pair may have moved from a slot to the scratch, or from the scratch to a slot,
        // meanwhile.
        if self.is_unchanged(version) {
            Ok(None)
        } else {
            Err(Changed)
        }
    }

    /// For tests: whether a lookup need not restart.
    #[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
    pub(super) fn is_as_seen(self, seen: &KeySearch<'t, K, V>) -> bool {
        self.is_unchanged(seen.version)
    }

    #[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
    pub(super) fn index(self) -> usize {
        self.index
    }

    /// # Safety
    ///
    /// 1. The version leads to the place, and `torn` was loaded there after the version was read.
    #[inline(always)]
    unsafe fn whole(
        self,
        version: Version,
        place: PairPlace<'t, K, V>,
        torn: Torn<K, V>,
    ) -> Result<FoundPair<'t, K, V>, Changed> {
        if !self.is_unchanged(version) {
            return Err(Changed);
        }
        // SAFETY: the version leads to this place, by 1, and still did after the loads. Before the
        // place is written the version changes, except for a value in one word.
        let pair = unsafe { torn.assume_whole() };
        Ok(FoundPair { place, torn, pair })
    }

    /// Locks the home if it has not changed since it was seen.
    pub(super) fn lock(self, seen: &KeySearch<'t, K, V>) -> Option<LockedHome<'t, K, V>> {
        let Version { info, wraps } = seen.version;
        let locked = self.exchange(info)?;
        // Relaxed: a thread that wrapped the version around had the lock before us.
        (self.table.wraps().load(Relaxed) == wraps).then_some(locked)
    }

    /// Locks the home in any state, unless another thread holds the lock or changes the info.
    pub(super) fn try_lock(self) -> Result<Option<LockedHome<'t, K, V>>, Moved> {
        let Version { info, .. } = self.version();
        if info.is_moved() && !mutant!("hop_ignores_moved") {
            return Err(Moved);
        }
        Ok(self.exchange(info))
    }

    /// Locks the home in any state. Waits for the owner of the lock.
    pub(super) fn wait_and_lock(self) -> Result<LockedHome<'t, K, V>, Moved> {
        let mut backoff = Backoff::new();
        loop {
            if let Some(locked) = self.try_lock()? {
                return Ok(locked);
            }
            backoff.snooze();
        }
    }

    fn exchange(self, info: Info) -> Option<LockedHome<'t, K, V>> {
        if info.is_locked() {
            return None;
        }
        // Acquire: pairs with the Release of the previous owner, in `LockedHome::store`.
        let taken = self
            .info()
            .compare_exchange(info.0, info.locked().0, Acquire, Relaxed);
        // Not `then_some`, which would make and drop a `LockedHome` without the lock.
        taken.is_ok().then(|| LockedHome { home: self, info })
    }

    /// Moves the first of the home's keys to a free cell, `distance` cells after the home, if the
    /// key is before that cell. Returns the offset from the home of the cell that the key has left;
    /// `Ok(None)` if there is no such key, `Err` if another thread has locked the home.
    ///
    /// # Safety
    ///
    /// 1. The caller has claimed the free cell. If a cell is returned, the caller has claimed that
    ///    one instead.
    pub(super) unsafe fn displace(self, distance: usize) -> Result<Option<usize>, NoRoom> {
        let Version { info, .. } = self.version();
        // Without the lock: most homes have no key before the free cell.
        if info.hops().before(distance).next().is_none() || info.is_moved() {
            return Ok(None);
        }
        let Ok(Some(mut locked)) = self.try_lock() else {
            return Err(NoRoom::Busy);
        };
        // Again: the key may have left before the home was locked.
        let Some(from) = locked.info.hops().before(distance).next() else {
            return Ok(None);
        };
        // SAFETY: a hop bit leads to the cell (1). The caller has claimed the other one (1).
        unsafe {
            let pair = locked.pair(&PairPlace::Cell(from));
            locked.write(distance, pair);
        }
        let before = locked.info;
        locked.unsettle();
        let tag = locked.hide(from);
        let info = locked.info.with_hop(distance).without_hop(from);
        if mutant!("hop_clears_first") {
            locked.store(locked.info.without_hop(from).locked());
        }
        let info = if mutant!("hop_displaces_uncounted") {
            info
        } else {
            info.changed()
        };
        // One store leads readers to the new cell and away from the old one, so that they always
        // find the key. It changes the version, because the old cell may be written next.
        locked.publish(info);
        locked.show(distance, tag);
        locked.settle(before, Some(from));
        Ok(Some(from))
    }
}

/// Why an insertion was refused.
#[derive(Debug)]
pub(super) enum Refused {
    /// Other threads are displacing keys; nothing is locked any more.
    Busy,
    /// There is no room within reach or in nodes.
    NeedsNode,
}

/// A home that is locked until this is dropped.
pub struct LockedHome<'t, K: Copy, V: Copy> {
    home: HomeBucket<'t, K, V>,
    /// The home's word except for the lock; its value when it is unlocked.
    info: Info,
}

// SAFETY: `visit` shows the home's pairs as they were at one time (1). The lock is held, and a home
// that is marked is not locked again (2).
unsafe impl<K: Copy, V: Copy> HeldBucket<(K, V)> for LockedHome<'_, K, V> {
    fn copy(&self, to: &mut Vec<Moving<(K, V)>>) -> Result<(), NoMemory> {
        let before = to.len();
        let mut backoff = Backoff::new();
        loop {
            let copied = self.visit(|found| {
                if to.try_reserve(1).is_err() {
                    return ControlFlow::Break(NoMemory);
                }
                to.push(Moving::new(found.pair));
                ControlFlow::Continue(())
            });
            match copied {
                Ok(None) => return Ok(()),
                Ok(Some(none)) => return Err(none),
                // A pair of another home was removed from a node.
                Err(_) => to.truncate(before),
            }
            backoff.snooze();
        }
    }

    fn set_moved(self) {
        // The home stays unsettled, and its cells are not written again.
        self.unsettle();
        let HomeBucket { table, index } = self.home;
        if !mutant!("hop_moves_tagged") {
            for offset in self.info.hops() {
                table.tags().hide(table.cell_at(index, offset));
            }
        }
        let info = self.info.moved();
        self.leave(info);
    }

    fn set_moved_early(&self) {
        self.unsettle();
        for offset in self.info.hops() {
            self.hide(offset);
        }
        self.store(self.info.moved().locked());
    }
}

impl<'t, K: Copy, V: Copy> LockedHome<'t, K, V> {
    /// The pair of a place.
    ///
    /// # Safety
    ///
    /// 1. It is a place of this home, as it is now.
    pub(super) unsafe fn pair(&self, place: &PairPlace<'t, K, V>) -> (K, V) {
        // SAFETY: it is a place of this home, by 1, and only we write it.
        unsafe { self.torn(place).assume_whole() }
    }

    fn torn(&self, place: &PairPlace<'t, K, V>) -> Torn<K, V> {
        self.at(place).load()
    }

    fn at(&self, place: &PairPlace<'t, K, V>) -> &'t PairCell<K, V> {
        match place {
            PairPlace::Cell(offset) => self.home.cell(*offset),
            PairPlace::Slot(node, slot) => node.cell(*slot),
            PairPlace::Scratch => self.home.segment().scratch(),
        }
    }

    /// Whether a pair is unchanged since it was found; the home was locked as it was seen then.
    pub(super) fn still_has(&self, found: &FoundPair<'t, K, V>) -> bool {
        self.torn(&found.place).is_same(&found.torn)
    }

    /// Calls `each` with all pairs, until it breaks.
    pub(super) fn visit<B>(
        &self,
        each: impl FnMut(FoundPair<'t, K, V>) -> ControlFlow<B>,
    ) -> Result<Option<B>, Changed> {
        self.home.visit(self.home.version(), each)
    }

    /// Adds a pair whose key is absent. Returns whether the neighbourhood is crowded, so that keys
    /// were displaced for the pair or it is in a node.
    pub(super) fn insert(
        mut self,
        pair: (K, V),
        tag: Tag,
        spare: &mut Option<Spare<'_, K, V>>,
    ) -> Result<bool, Refused> {
        let home = self.home;
        match home.table.make_room(home.index) {
            Ok(room) => {
                // SAFETY: `make_room` has claimed the cell for this home (1).
                unsafe { self.write(room.offset, pair) };
                let info = self.info.with_hop(room.offset);
                self.unsettle();
                if mutant!("hop_shows_early") {
                    self.show(room.offset, Some(tag));
                }
                let before = self.info;
                // The tag comes after the bit: no lookup by tag finds the pair before a lookup by
                // the info does.
                self.publish(info);
                self.show(room.offset, Some(tag));
                self.settle(before, None);
                Ok(room.displaced)
            }
            Err(NoRoom::Busy) => Err(Refused::Busy),
            // The neighbourhood has no room that displacing could make: a node takes the pair.
            Err(NoRoom::Full) => {
                let segment = home.segment().lock();
                if !segment.insert(home.number(), pair, spare) {
                    return Err(Refused::NeedsNode);
                }
                drop(segment);
                home.table.count_overflow(1);
                let before = self.info;
                self.unsettle();
                self.publish(before.overflowing(true).changed());
                self.settle(before, None);
                Ok(true)
            }
        }
    }

    /// Removes the pair of a place.
    ///
    /// # Safety
    ///
    /// 1. It is a place of this home, as it is now.
    pub(super) unsafe fn remove(mut self, place: &PairPlace<'t, K, V>) {
        let (home, before) = (self.home, self.info);
        self.unsettle();
        match place {
            PairPlace::Cell(offset) => {
                if !mutant!("hop_hides_late") {
                    self.hide(*offset);
                }
                let info = before.without_hop(*offset);
                self.publish(if mutant!("hop_uncounted") {
                    info
                } else {
                    info.changed()
                });
                if mutant!("hop_hides_late") {
                    self.hide(*offset);
                }
                self.settle(before, Some(*offset));
                drop(self);
                // SAFETY: the pair has left it, and `settle` has counted that (1).
                unsafe { home.table.free(home.index + offset) };
            }
            PairPlace::Slot(node, slot) => {
                // SAFETY: the slot has a pair of this home (1).
                unsafe { self.remove_slot(node, *slot) };
                self.publish(self.info.changed());
                self.settle(before, None);
            }
            PairPlace::Scratch => unreachable!("a home that is changing is locked by another"),
        }
    }

    /// # Safety
    ///
    /// 1. The slot has a pair of this home.
    unsafe fn remove_slot(&mut self, node: &Node<K, V>, slot: usize) {
        let home = self.home;
        let segment = home.segment().lock();
        // SAFETY: nodes with pairs of this home are those of its segment (1).
        let overflows = unsafe { segment.remove(node, slot, home.number()) };
        drop(segment);
        home.table.count_overflow(-1);
        self.info = self.info.overflowing(overflows);
    }

    /// Replaces the pair of a place by another of the same key.
    ///
    /// # Safety
    ///
    /// 1. It is a place of this home, as it is now.
    /// 2. The key in `pair` is the one that is there, with the same bytes.
    pub(super) unsafe fn replace(self, place: &PairPlace<'t, K, V>, pair: (K, V)) {
        if mutant!("hop_replaces_in_place") {
            // Release: as below.
            return self.at(place).store(pair.0, pair.1, Release);
        }
        if PairCell::<K, V>::VALUE_IS_IN_ONE_WORD {
            // Release: pairs with the fence in `is_unchanged`, for a value that refers to memory.
            self.at(place).store_value(pair.0, pair.1, Release);
            return;
        }
        // SAFETY: the place is one of this home, as it is now (1).
        unsafe { self.replace_by_scratch(place, pair) };
    }

    /// # Safety
    ///
    /// 1. It is a place of this home, as it is now.
    unsafe fn replace_by_scratch(mut self, place: &PairPlace<'t, K, V>, pair: (K, V)) {
        let (home, before) = (self.home, self.info);
        let segment = home.segment().lock();
        segment.write_scratch(pair);
        self.unsettle();
        let (hidden, tag) = match place {
            PairPlace::Cell(offset) => (before.without_hop(*offset), self.empty(*offset)),
            _ => (before, None),
        };
        let hidden = hidden.changing().changed();
        // Readers find the new pair in the scratch from here on; the old place may be written.
        self.publish(hidden);
        match place {
            // SAFETY: hidden above, which was counted; no other thread frees the cell (1).
            PairPlace::Cell(offset) => unsafe { self.write(*offset, pair) },
            // SAFETY: the slot has a pair of this home (1).
            PairPlace::Slot(node, slot) => unsafe {
                segment.rewrite(node, *slot, home.number(), pair);
            },
            PairPlace::Scratch => {}
        }
        // The home is as before, two versions later: readers find the new pair in the old place.
        self.publish(before.changed().changed());
        if let PairPlace::Cell(offset) = place {
            self.show(*offset, tag);
        }
        self.settle(before, None);
        // Other homes of the segment may use the scratch after this.
        drop(segment);
    }

    /// Removes all pairs.
    pub(super) fn clear(mut self) {
        let (home, before) = (self.home, self.info);
        self.unsettle();
        for node in home.segment().nodes() {
            while let Some(slot) = node.slots_of(node.state(), home.number()).next() {
                // SAFETY: found just now, under our lock (1).
                unsafe { self.remove_slot(node, slot) };
            }
        }
        for offset in before.hops() {
            self.empty(offset);
        }
        self.publish(self.info.without_hops().changed());
        self.settle(before, None);
        drop(self);
        for offset in before.hops() {
            // SAFETY: `empty` has taken the pair out and counted that (1).
            unsafe { home.table.free(home.index + offset) };
        }
    }

    /// See [`Tags::unsettle`](super::tags::Tags::unsettle).
    fn unsettle(&self) {
        self.home.table.tags().unsettle(self.home.index);
    }

    /// Settles the home, which was locked with the info `before`, unless it has keys in nodes.
    /// `left` is the offset of a cell that a pair has left, if any.
    fn settle(&self, before: Info, left: Option<usize>) {
        let HomeBucket { table, index } = self.home;
        let (had, has) = (before.overflows(), self.info.overflows());
        // Once for the `unsettle` of this change. A home with keys in nodes stays unsettled once:
        // its first one keeps that count, and its last one takes it back.
        let times = 1 + u64::from(had) - u64::from(has);
        let left = left.map(|offset| table.cell_at(index, offset));
        table.tags().settle(index, times, left);
    }

    /// Called before a pair of an unsettled home leaves its cell: see
    /// [`Tags::hide`](super::tags::Tags::hide).
    fn hide(&self, offset: usize) -> Option<Tag> {
        let HomeBucket { table, index } = self.home;
        table.tags().hide(table.cell_at(index, offset))
    }

    /// [`hide`](Self::hide), for a cell that may be written immediately.
    fn empty(&self, offset: usize) -> Option<Tag> {
        let HomeBucket { table, index } = self.home;
        let tag = self.hide(offset);
        let cell = table.cell_at(index, offset);
        table.tags().settle(index, 0, Some(cell));
        tag
    }

    /// See [`Tags::show`](super::tags::Tags::show).
    fn show(&self, offset: usize, tag: Option<Tag>) {
        let table = self.home.table;
        table
            .tags()
            .show(table.cell_at(self.home.index, offset), tag);
    }

    /// Writes a pair in a cell that belongs to no home.
    ///
    /// # Safety
    ///
    /// 1. The caller has claimed the cell, or has taken the home's pair out of it and counted that.
    unsafe fn write(&self, offset: usize, (key, value): (K, V)) {
        // Release: pairs with the fence in `is_unchanged`. A lookup that reads one of these words
        // sees the change by which the previous pair left the cell.
        let order = ordering!(Release, "hop_relaxed_pair");
        self.home.cell(offset).store(key, value, order);
    }

    /// Unlocks the home with another info.
    fn leave(mut self, info: Info) {
        if info.has_version_of(self.info) || !info.is_first_version() {
            self.info = info;
        } else {
            self.publish(info);
        }
    }

    /// Gives the home another info, while it stays locked.
    fn publish(&mut self, info: Info) {
        let wraps_around = !info.has_version_of(self.info) && info.is_first_version();
        let count = || {
            if wraps_around {
                // Release: pairs with the Acquire in `version`: a thread that has the first count
                // reads no info older than the present one, and a thread that has the second reads
                // none older than the new one.
                self.home.table.wraps().fetch_add(1, Release);
            }
        };
        count();
        self.store(info.locked());
        count();
        self.info = info;
    }

    fn store(&self, info: Info) {
        // Release: pairs with the Acquire in `version`, `is_unchanged` and `exchange`.
        let order = ordering!(Release, "hop_relaxed_publish");
        self.home.info().store(info.0, order);
    }
}

impl<K: Copy, V: Copy> Drop for LockedHome<'_, K, V> {
    fn drop(&mut self) {
        self.store(self.info);
    }
}

impl<K: Copy, V: Copy> KeySearch<'_, K, V> {
    /// For tests: the cell in which a key was found, if it was in a cell.
    #[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
    pub(super) fn cell(&self, home: HomeBucket<'_, K, V>) -> Option<usize> {
        match self.found.as_ref()?.place {
            PairPlace::Cell(offset) => Some(home.table.cell_at(home.index, offset)),
            _ => None,
        }
    }
}

impl<'t, K: Copy, V: Copy> FoundPair<'t, K, V> {
    pub(super) fn place(&self) -> &PairPlace<'t, K, V> {
        &self.place
    }

    /// The words that the pair was read from.
    pub(super) fn torn(&self) -> Torn<K, V> {
        self.torn
    }

    /// Whether it was read from the same words.
    pub(super) fn is(&self, words: &Torn<K, V>) -> bool {
        self.torn.is_same(words)
    }
}
