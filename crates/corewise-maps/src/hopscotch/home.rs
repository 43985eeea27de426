//! Homes: how one is read, and how it is changed by who has locked it.

use std::ops::ControlFlow;

use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicU64, fence};
use corewise_atomic::{hint, mutant, ordering};

use super::info::Info;
use super::segment::{BUCKETS, Node, Segment, Spare};
use super::table::{HopscotchTable, NoRoom};
use super::tags::{GROUPS, Tag};
use crate::copy_map::{Held, Moved, Moving, NoMemory, space};
use crate::pair::{PairCell, Torn};
use crate::waiting::Waiting;

/// A home's word.
pub(super) struct Word(pub(super) AtomicU64);

// SAFETY:
// 1. No hop bits.
unsafe impl space::Bucket for Word {
    fn empty() -> Self {
        Self(AtomicU64::new(0))
    }
}

/// A home of a table.
pub(super) struct Home<'t, K, V> {
    table: &'t HopscotchTable<K, V>,
    index: usize,
}

impl<K, V> Clone for Home<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Home<'_, K, V> {}

/// What a home was at one time.
#[derive(Clone, Copy)]
pub(super) struct Version {
    info: Info,
    wraps: u64,
}

/// The version is another one by now.
pub(super) struct Changed;

/// Tags do not say all.
pub(super) struct Unsettled;

/// Where a pair of a home lies.
pub(super) enum Place<'t, K, V> {
    /// In the cell of this number in the neighbourhood.
    Cell(usize),
    Slot(&'t Node<K, V>, usize),
    /// On its way to a cell or slot, which is being written.
    Scratch,
}

/// A pair of a home.
pub(super) struct Found<'t, K: Copy, V: Copy> {
    place: Place<'t, K, V>,
    torn: Torn<K, V>,
    pub(super) pair: (K, V),
}

/// What a home has of a key.
pub(super) struct Seen<'t, K: Copy, V: Copy> {
    version: Version,
    pub(super) found: Option<Found<'t, K, V>>,
}

impl<'t, K: Copy, V: Copy> Home<'t, K, V> {
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

    /// Its number in its segment.
    fn number(self) -> u8 {
        (self.index % BUCKETS) as u8
    }

    #[inline(always)]
    fn version(self) -> Version {
        // Acquire: pairs with the Release in `Locked::publish`: what was counted before the info that is
        // read next was there.
        let wraps = self.table.wraps().load(Acquire);
        // Acquire: pairs with the Release in `Locked::store`, so that the pairs that it leads to are seen, or
        // the successor and what was moved to it. (A lock taken since is an exchange of the same word, which
        // carries on what was released.)
        let info = Info(self.info().load(Acquire));
        Version { info, wraps }
    }

    /// Whether nothing was removed, displaced or rewritten between `version` and the loads before this one: then
    /// none of what they have read belongs to a later pair.
    #[inline(always)]
    fn is_unchanged(self, version: Version) -> bool {
        // Acquire: pairs with the Release in `Locked::write`: who has read a word of a later
        // pair sees the change that was before it.
        fence(Acquire);
        // Acquire: pairs with the Release in `Locked::store`: what was counted before it is seen next.
        let info = Info(self.info().load(Acquire));
        // Relaxed: as above.
        let is_same =
            info.has_version_of(version.info) && self.table.wraps().load(Relaxed) == version.wraps;
        is_same || mutant!("hop_no_second_look")
    }

    /// What the home has of a key. Writes nothing, and waits for nobody.
    #[inline(always)]
    pub(super) fn look(self, key: &K) -> Result<Seen<'t, K, V>, Moved>
    where
        K: Eq,
    {
        loop {
            let version = self.version();
            if version.info.is_moved() {
                return Err(Moved);
            }
            let is_key = |found: Found<'t, K, V>| match found.pair.0 == *key {
                true => ControlFlow::Break(found),
                false => ControlFlow::Continue(()),
            };
            if let Ok(found) = self.visit(version, is_key) {
                return Ok(Seen { version, found });
            }
        }
    }

    /// The value of a key, as tags say, unless they do not say all. Writes nothing, and waits for nobody.
    #[inline(always)]
    pub(super) fn by_tag(self, key: &K, tag: Tag) -> Result<Option<V>, Unsettled>
    where
        K: Eq,
    {
        let Self { table, index } = self;
        let tags = table.tags();
        // Tags are few, and in the caches when cells are not: most pairs are in the line that their home's cell is in.
        hint::prefetch(table.cell(index));
        let changes = tags.changes(index);
        let before = changes.look();
        for group in 0..GROUPS {
            for offset in tags.find(index, group, tag) {
                let cell = table.cell_at(index, offset);
                if cell / BUCKETS != index / BUCKETS {
                    // Another segment's departures count.
                    return Err(Unsettled);
                }
                let torn = table.cell(cell).load();
                if !changes.has_kept_all(before) {
                    return Err(Unsettled);
                }
                // SAFETY: the tag was set after the pair was written, and the pair has not left since `before`, nor
                // had when the tag was seen: nor was the cell written, but for a value in one word.
                let (there, value) = unsafe { torn.assume_whole() };
                if there == *key {
                    return Ok(Some(value));
                }
            }
        }
        match changes.was_settled(before) {
            true => Ok(None),
            false => Err(Unsettled),
        }
    }

    /// The value of a key, as its home's info says.
    // Not inlined: `by_tag` is what is fast because there is little of it.
    #[inline(never)]
    pub(super) fn get(self, key: &K) -> Result<Option<V>, Moved>
    where
        K: Eq,
    {
        Ok(self.look(key)?.found.map(|found| found.pair.1))
    }

    /// Asks for the first pair that a lookup compares.
    #[inline(always)]
    pub(super) fn prefetch_first(self, tag: Tag) {
        if let Some(offset) = self.table.tags().find(self.index, 0, tag).next() {
            hint::prefetch(self.cell(offset));
        }
    }

    /// All pairs, as they were at one time.
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
            let each = |Found { place, pair, .. }: Found<'t, K, V>| {
                // What is in the scratch may still, or already, be in its slot.
                let again = matches!(place, Place::Slot(..)) && changing == Some(pair.0);
                if matches!(place, Place::Scratch) {
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

    /// Calls `each` with the home's pairs, until it breaks. If it does not, these were all at one time. What is in the
    /// scratch comes before what is in slots.
    #[inline(always)]
    fn visit<B>(
        self,
        version: Version,
        mut each: impl FnMut(Found<'t, K, V>) -> ControlFlow<B>,
    ) -> Result<Option<B>, Changed> {
        for offset in version.info.hops() {
            let torn = self.cell(offset).load();
            let found = self.whole(version, Place::Cell(offset), torn)?;
            if let ControlFlow::Break(answer) = each(found) {
                return Ok(Some(answer));
            }
        }
        if version.info.goes_further() {
            return self.visit_further(version, each);
        }
        Ok(None)
    }

    #[cold]
    fn visit_further<B>(
        self,
        version: Version,
        mut each: impl FnMut(Found<'t, K, V>) -> ControlFlow<B>,
    ) -> Result<Option<B>, Changed> {
        if version.info.is_changing() {
            let torn = self.segment().scratch().load();
            let found = self.whole(version, Place::Scratch, torn)?;
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
                // SAFETY: the slot was held since `state`, so it was not written since.
                let pair = unsafe { torn.assume_whole() };
                let place = Place::Slot(node, slot);
                if let ControlFlow::Break(answer) = each(Found { place, torn, pair }) {
                    return Ok(Some(answer));
                }
            }
        }
        // Those that were in a slot before, and are in the scratch, or those that were in the scratch.
        match self.is_unchanged(version) {
            true => Ok(None),
            false => Err(Changed),
        }
    }

    /// For tests: whether a lookup need not start again.
    #[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
    pub(super) fn is_as_seen(self, seen: &Seen<'t, K, V>) -> bool {
        self.is_unchanged(seen.version)
    }

    #[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
    pub(super) fn index(self) -> usize {
        self.index
    }

    #[inline(always)]
    fn whole(
        self,
        version: Version,
        place: Place<'t, K, V>,
        torn: Torn<K, V>,
    ) -> Result<Found<'t, K, V>, Changed> {
        if !self.is_unchanged(version) {
            return Err(Changed);
        }
        // SAFETY: the version leads to this place, and still did after the loads; before the place is
        // written the version changes, but for a value in one word.
        let pair = unsafe { torn.assume_whole() };
        Ok(Found { place, torn, pair })
    }

    /// Locks the home, if it still is as it was seen.
    pub(super) fn lock(self, seen: &Seen<'t, K, V>) -> Option<Locked<'t, K, V>> {
        let Version { info, wraps } = seen.version;
        let locked = self.exchange(info)?;
        // Relaxed: whoever has brought the version round has had the lock before us.
        (self.table.wraps().load(Relaxed) == wraps).then_some(locked)
    }

    /// Locks the home, whatever it is, unless somebody else changes its info.
    pub(super) fn try_lock(self) -> Result<Option<Locked<'t, K, V>>, Moved> {
        let Version { info, .. } = self.version();
        if info.is_moved() && !mutant!("hop_ignores_moved") {
            return Err(Moved);
        }
        Ok(self.exchange(info))
    }

    /// Locks the home, whatever it is. Waits for one who has the lock.
    pub(super) fn wait_and_lock(self) -> Result<Locked<'t, K, V>, Moved> {
        let mut waiting = Waiting::default();
        loop {
            if let Some(locked) = self.try_lock()? {
                return Ok(locked);
            }
            waiting.a_moment();
        }
    }

    fn exchange(self, info: Info) -> Option<Locked<'t, K, V>> {
        if info.is_locked() {
            return None;
        }
        // Acquire: pairs with the Release of the last owner, in `Locked::store`.
        let taken = self
            .info()
            .compare_exchange(info.0, info.locked().0, Acquire, Relaxed);
        // Not `then_some`: a lock that we do not have must not be made, and dropped.
        taken.is_ok().then(|| Locked { home: self, info })
    }

    /// Of a home between here and a free cell, `distance` cells from it: moves its first key there; how far from it
    /// the cell is that is free now. `Ok(None)` if there is no such key, `Err` if somebody else has the home.
    pub(super) fn displace(self, distance: usize) -> Result<Option<usize>, NoRoom> {
        let Version { info, .. } = self.version();
        if info.hops().before(distance).next().is_none() || info.is_moved() {
            return Ok(None);
        }
        let Ok(Some(mut locked)) = self.try_lock() else {
            return Err(NoRoom::Busy);
        };
        let Some(from) = locked.info.hops().before(distance).next() else {
            return Ok(None);
        };
        let pair = locked.pair(&Place::Cell(from));
        locked.write(distance, pair);
        let before = locked.info;
        locked.unsettle();
        let tag = locked.hide(from);
        let info = locked.info.with_hop(distance).without_hop(from);
        if mutant!("hop_clears_first") {
            locked.store(locked.info.without_hop(from).locked());
        }
        let info = match mutant!("hop_displaces_uncounted") {
            true => info,
            false => info.changed(),
        };
        locked.publish(info);
        locked.show(distance, tag);
        locked.settle(before, Some(from));
        Ok(Some(from))
    }
}

/// Why an insertion was refused.
#[derive(Debug)]
pub(super) enum Refused {
    /// Others are displacing keys; nothing is locked any more.
    Busy,
    /// There is no room within reach and in nodes.
    NeedsNode,
}

/// A home that is locked until this is dropped.
pub struct Locked<'t, K: Copy, V: Copy> {
    home: Home<'t, K, V>,
    /// What the home's word is but for the lock, and will be when it is unlocked.
    info: Info,
}

impl<K: Copy, V: Copy> Held<(K, V)> for Locked<'_, K, V> {
    fn copy(&self, to: &mut Vec<Moving<(K, V)>>) -> Result<(), NoMemory> {
        let before = to.len();
        let mut waiting = Waiting::default();
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
                // Another home's pair was removed from a node.
                Err(_) => to.truncate(before),
            }
            waiting.a_moment();
        }
    }

    fn set_moved(self) {
        // It stays unsettled, and its cells are not written again.
        self.unsettle();
        let Home { table, index } = self.home;
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

impl<'t, K: Copy, V: Copy> Locked<'t, K, V> {
    /// The pair of a place.
    pub(super) fn pair(&self, place: &Place<'t, K, V>) -> (K, V) {
        // SAFETY: it is the home's, and nobody but us writes it.
        unsafe { self.torn(place).assume_whole() }
    }

    fn torn(&self, place: &Place<'t, K, V>) -> Torn<K, V> {
        self.at(place).load()
    }

    fn at(&self, place: &Place<'t, K, V>) -> &'t PairCell<K, V> {
        match place {
            Place::Cell(offset) => self.home.cell(*offset),
            Place::Slot(node, slot) => node.cell(*slot),
            Place::Scratch => self.home.segment().scratch(),
        }
    }

    /// Whether a pair is still what it was when it was found, in this home as it was seen.
    pub(super) fn still_has(&self, found: &Found<'t, K, V>) -> bool {
        self.torn(&found.place).is_same(&found.torn)
    }

    /// Calls `each` with all pairs, until it breaks.
    pub(super) fn visit<B>(
        &self,
        each: impl FnMut(Found<'t, K, V>) -> ControlFlow<B>,
    ) -> Result<Option<B>, Changed> {
        self.home.visit(self.home.version(), each)
    }

    /// Adds a pair, whose key is not there; whether it was hard to find a place.
    pub(super) fn insert(
        mut self,
        pair: (K, V),
        tag: Tag,
        spare: &mut Option<Spare<'_, K, V>>,
    ) -> Result<bool, Refused> {
        let home = self.home;
        match home.table.make_room(home.index) {
            Ok(room) => {
                self.write(room.offset, pair);
                let info = self.info.with_hop(room.offset);
                self.unsettle();
                if mutant!("hop_shows_early") {
                    self.show(room.offset, Some(tag));
                }
                let before = self.info;
                self.publish(info);
                self.show(room.offset, Some(tag));
                self.settle(before, None);
                Ok(room.displaced)
            }
            Err(NoRoom::Busy) => Err(Refused::Busy),
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

    pub(super) fn remove(mut self, place: &Place<'t, K, V>) {
        let (home, before) = (self.home, self.info);
        self.unsettle();
        match place {
            Place::Cell(offset) => {
                if !mutant!("hop_hides_late") {
                    self.hide(*offset);
                }
                let info = before.without_hop(*offset);
                self.publish(match mutant!("hop_uncounted") {
                    true => info,
                    false => info.changed(),
                });
                if mutant!("hop_hides_late") {
                    self.hide(*offset);
                }
                self.settle(before, Some(*offset));
                drop(self);
                home.table.free(home.index + offset);
            }
            Place::Slot(node, slot) => {
                self.remove_slot(node, *slot);
                self.publish(self.info.changed());
                self.settle(before, None);
            }
            Place::Scratch => unreachable!("a home that is changing is locked by another"),
        }
    }

    fn remove_slot(&mut self, node: &Node<K, V>, slot: usize) {
        let home = self.home;
        let overflows = home.segment().lock().remove(node, slot, home.number());
        home.table.count_overflow(-1);
        self.info = self.info.overflowing(overflows);
    }

    /// Replaces the pair of a place by another of the same key.
    pub(super) fn replace(self, place: &Place<'t, K, V>, pair: (K, V)) {
        if mutant!("hop_replaces_in_place") {
            return self.at(place).store(pair.0, pair.1, Release);
        }
        if PairCell::<K, V>::VALUE_IS_IN_ONE_WORD {
            // Release: pairs with the fence in `is_unchanged`, for a value that refers to memory.
            self.at(place).store_value(pair.0, pair.1, Release);
            return;
        }
        self.replace_by_scratch(place, pair);
    }

    fn replace_by_scratch(mut self, place: &Place<'t, K, V>, pair: (K, V)) {
        let (home, before) = (self.home, self.info);
        let segment = home.segment().lock();
        segment.write_scratch(pair);
        self.unsettle();
        let (hidden, tag) = match place {
            Place::Cell(offset) => (before.without_hop(*offset), self.empty(*offset)),
            _ => (before, None),
        };
        let hidden = hidden.changing().changed();
        self.publish(hidden);
        match place {
            Place::Cell(offset) => self.write(*offset, pair),
            Place::Slot(node, slot) => segment.rewrite(node, *slot, home.number(), pair),
            Place::Scratch => {}
        }
        self.publish(before.changed().changed());
        if let Place::Cell(offset) = place {
            self.show(*offset, tag);
        }
        self.settle(before, None);
        // The scratch may be another's from here on.
        drop(segment);
    }

    /// Removes all pairs.
    pub(super) fn clear(mut self) {
        let (home, before) = (self.home, self.info);
        self.unsettle();
        for node in home.segment().nodes() {
            while let Some(slot) = node.slots_of(node.state(), home.number()).next() {
                self.remove_slot(node, slot);
            }
        }
        for offset in before.hops() {
            self.empty(offset);
        }
        self.publish(self.info.without_hops().changed());
        self.settle(before, None);
        drop(self);
        before
            .hops()
            .for_each(|offset| home.table.free(home.index + offset));
    }

    /// See [`Tags::unsettle`](super::tags::Tags::unsettle).
    fn unsettle(&self) {
        self.home.table.tags().unsettle(self.home.index);
    }

    /// Settles the home, which was locked with this info, unless it has keys in nodes. If a pair has left a cell:
    /// which one.
    fn settle(&self, before: Info, left: Option<usize>) {
        let Home { table, index } = self.home;
        let (had, has) = (before.overflows(), self.info.overflows());
        let times = 1 + u64::from(had) - u64::from(has);
        let left = left.map(|offset| table.cell_at(index, offset));
        table.tags().settle(index, times, left);
    }

    /// Before a pair leaves its cell, of an unsettled home: see [`Tags::hide`](super::tags::Tags::hide).
    fn hide(&self, offset: usize) -> Option<Tag> {
        let Home { table, index } = self.home;
        table.tags().hide(table.cell_at(index, offset))
    }

    /// [`hide`](Self::hide), for a cell that may be written at once.
    fn empty(&self, offset: usize) -> Option<Tag> {
        let Home { table, index } = self.home;
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

    /// Writes a pair in a cell that no home has.
    fn write(&self, offset: usize, (key, value): (K, V)) {
        // Release: pairs with the fence in `is_unchanged`. A lookup that reads one of these words sees the change
        // by which the cell was left.
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
        let comes_round = !info.has_version_of(self.info) && info.is_first_version();
        let count = || {
            if comes_round {
                // Release: pairs with the Acquire in `version`: who has this count reads no info that was
                // there before the one counted (before its store) or before that (after it).
                self.home.table.wraps().fetch_add(1, Release);
            }
        };
        count();
        self.store(info.locked());
        count();
        self.info = info;
    }

    fn store(&self, info: Info) {
        let order = ordering!(Release, "hop_relaxed_publish");
        // Release: pairs with the Acquire in `version`, `is_unchanged` and `exchange`.
        self.home.info().store(info.0, order);
    }
}

impl<K: Copy, V: Copy> Drop for Locked<'_, K, V> {
    fn drop(&mut self) {
        self.store(self.info);
    }
}

impl<K: Copy, V: Copy> Seen<'_, K, V> {
    /// For tests: the cell in which a key was found, if it was in one.
    #[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
    pub(super) fn cell(&self, home: Home<'_, K, V>) -> Option<usize> {
        match self.found.as_ref()?.place {
            Place::Cell(offset) => Some(home.table.cell_at(home.index, offset)),
            _ => None,
        }
    }
}

impl<'t, K: Copy, V: Copy> Found<'t, K, V> {
    pub(super) fn place(&self) -> &Place<'t, K, V> {
        &self.place
    }
}
