//! One shard: table, eviction order and accounting, all behind one lock.
//!
//! The eviction order is that of [`lru`].

use super::references::{NoReferences, References};
use crate::engine::EngineStats;
use crate::engines::expiry::DueTime;
use crate::engines::lru;
use crate::engines::tally::Tally;
use crate::item::{Item, ItemNode};
use crate::objects::{self, Graveyard, ObjectMemory};
use corewise_atomic::hint::prefetch;
use corewise_atomic::sync::atomic::{AtomicUsize, Ordering};
use corewise_ops::{Absence, Deadline, ItemFlags, ItemKind, ItemView, Now};
use hashbrown::HashTable;
use std::cell::Cell;
use std::ptr::{NonNull, addr_of_mut};

/// The engine's words in front of an item's header.
#[derive(Default)]
pub(super) struct Links<R: References> {
    /// The next more recently used item.
    newer: Option<Ptr<R>>,
    /// The next less recently used item.
    older: Option<Ptr<R>>,
    /// When the item was last moved to the front, in seconds.
    moved_s: u32,
    /// Bytes that the allocator gave.
    pub(super) footprint: u32,
    /// References held outside the lock.
    references: R,
}

const _: () = assert!(size_of::<Links<NoReferences>>() == 24 || size_of::<usize>() != 8);

/// An item of this engine.
pub(super) type Ptr<R> = NonNull<ItemNode<Links<R>>>;

/// Bytes of a table element: a pointer.
const ELEMENT_BYTES: usize = size_of::<usize>();

/// Most bytes that the first allocation of a table takes.
const SMALLEST_TABLE: usize = 128;

/// The item behind a pointer.
///
/// # Safety
///
/// 1. The item stays alive during `'a`. An item in a shard's table or lists is alive until it is
///    unlinked under the shard's lock and handed out as garbage, which happens only when there are
///    no references: so `'a` ends before the lock is released, or before the reference is dropped.
#[inline]
pub(super) unsafe fn item<'a, R: References>(node: Ptr<R>) -> Item<'a, Links<R>> {
    // SAFETY: the caller keeps the item alive during `'a` (1).
    unsafe { Item::from_raw(node) }
}

/// The links of an item.
///
/// # Safety
///
/// 1. The item is alive, and the caller holds the lock of its shard, or only the caller can reach
///    the item.
/// 2. There is no other reference to the item's links during `'a`.
#[inline]
unsafe fn links<'a, R: References>(node: Ptr<R>) -> &'a mut Links<R> {
    // SAFETY: the item is alive and no other thread has it, by 1; this is the only reference to its
    // links, by 2.
    unsafe { &mut *addr_of_mut!((*node.as_ptr()).links) }
}

/// Bytes that the allocator gave for an item.
///
/// # Safety
///
/// 1. The item is alive.
#[inline]
pub(super) unsafe fn footprint<R: References>(node: Ptr<R>) -> usize {
    // SAFETY: alive, by 1; the field does not change after the item was made.
    unsafe { (*node.as_ptr()).links.footprint as usize }
}

/// A doubly linked list through [`Links`]. Its items are alive, and are those of one shard, which
/// owns the list.
struct List<R: References> {
    newest: Option<Ptr<R>>,
    oldest: Option<Ptr<R>>,
    len: usize,
}

impl<R: References> Default for List<R> {
    fn default() -> Self {
        Self {
            newest: None,
            oldest: None,
            len: 0,
        }
    }
}

impl<R: References> List<R> {
    /// # Safety
    ///
    /// 1. The item is one of the list's shard, alive and in no list, and stays alive while it is in
    ///    this one.
    unsafe fn push_newest(&mut self, node: Ptr<R>) {
        // SAFETY: items of our shard, which we have exclusively (1); each reference ends with its
        // statement (2).
        unsafe {
            links(node).newer = None;
            links(node).older = self.newest;
            match self.newest {
                Some(next) => links(next).newer = Some(node),
                None => self.oldest = Some(node),
            }
        }
        self.newest = Some(node);
        self.len += 1;
    }

    /// # Safety
    ///
    /// 1. The item is in this list.
    unsafe fn remove(&mut self, node: Ptr<R>) {
        // SAFETY: items of our shard, which we have exclusively (1); each reference is last used
        // before the next one is made (2).
        unsafe {
            let (newer, older) = (links(node).newer, links(node).older);
            match newer {
                Some(newer) => links(newer).older = older,
                None => self.newest = older,
            }
            match older {
                Some(older) => links(older).newer = newer,
                None => self.oldest = newer,
            }
        }
        self.len -= 1;
    }

    /// Appends `other` behind this list's oldest item, leaving `other` empty. Constant time.
    ///
    /// # Safety
    ///
    /// 1. Both are lists of the same shard.
    unsafe fn append(&mut self, other: &mut Self) {
        let other = std::mem::take(other);
        let Some(other_newest) = other.newest else {
            return;
        };
        // SAFETY: items of our shard, which we have exclusively (1); each reference is last used
        // before the next one is made (2).
        unsafe {
            links(other_newest).newer = self.oldest;
            match self.oldest {
                Some(oldest) => links(oldest).older = Some(other_newest),
                None => self.newest = Some(other_newest),
            }
        }
        self.oldest = other.oldest;
        self.len += other.len;
    }
}

/// The location of a shard's table, for prefetching without its lock.
///
/// The two words may be torn or out of date. They are used for prefetch instructions only, which
/// never fault, so a wrong word costs at worst a useless cache line. The arithmetic follows
/// hashbrown's layout (control bytes from `control` up, elements from `control` down). If that
/// changes, prefetches miss and nothing else happens. A test compares it with where hashbrown
/// really puts an element.
pub(super) struct TableHint {
    control: AtomicUsize,
    mask: AtomicUsize,
}

impl TableHint {
    pub(super) fn new() -> Self {
        Self {
            control: AtomicUsize::new(0),
            mask: AtomicUsize::new(0),
        }
    }

    /// Derives the table's location from an element known to lie in `bucket`.
    fn set(&self, element: usize, bucket: usize, buckets: usize) {
        // Relaxed: see the type; no data is reached through these words.
        self.control
            .store(element + (bucket + 1) * ELEMENT_BYTES, Ordering::Relaxed);
        self.mask.store(buckets - 1, Ordering::Relaxed);
    }

    fn clear(&self) {
        // Relaxed: see the type.
        self.mask.store(0, Ordering::Relaxed);
    }

    fn buckets(&self) -> usize {
        // Relaxed: see the type.
        self.mask.load(Ordering::Relaxed) + 1
    }

    /// The address of the first element that a probe for `hash` looks at.
    fn element(&self, hash: u64) -> (usize, usize) {
        // Relaxed: see the type.
        let control = self.control.load(Ordering::Relaxed);
        let bucket = hash as usize & self.mask.load(Ordering::Relaxed);
        (
            control.wrapping_add(bucket),
            control.wrapping_sub((bucket + 1) * ELEMENT_BYTES),
        )
    }

    /// Prefetches the control group and the elements at which a probe for `hash` starts.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        let (control, element) = self.element(hash);
        for address in [control, element, element.wrapping_sub(64)] {
            prefetch(std::ptr::without_provenance::<u8>(address));
        }
    }
}

/// One shard. The items in its table and lists are alive and its own; an item in the table is also
/// in `lru`.
pub(super) struct Shard<R: References> {
    table: HashTable<Ptr<R>>,
    /// How often the table has moved its elements; see `scan`.
    rehashes: u64,
    lru: List<R>,
    /// Flushed items: removed from the table, not yet freed.
    dead: List<R>,
    dead_bytes: usize,
    /// Footprints of everything in `lru` and `dead`.
    item_bytes: usize,
    /// Sets that these items own, and their bytes, with those of the dying ones.
    sets: usize,
    set_bytes: usize,
    dying: Graveyard,
    /// The last cas value given out. A shard's values are congruent to its index modulo the number
    /// of shards, so all are distinct.
    cas: u64,
    cas_step: u64,
    /// How long a hit leaves an item in its place; see `lru`.
    refresh_after_s: u32,
    due: DueTime,
    /// The count of rehashes when the search for expired items came to this shard.
    searched_from: u64,
    tally: Tally,
}

// SAFETY: the pointers in a shard lead only to items owned by that shard.
unsafe impl<R: References> Send for Shard<R> {}

impl<R: References> Shard<R> {
    pub(super) fn new(index: u64, shards: u64, dying: Graveyard) -> Self {
        Self {
            table: HashTable::new(),
            rehashes: 0,
            lru: List::default(),
            dead: List::default(),
            dead_bytes: 0,
            item_bytes: 0,
            sets: 0,
            set_bytes: 0,
            dying,
            cas: index,
            cas_step: shards,
            refresh_after_s: lru::REFRESH_AT_MOST_S,
            due: DueTime::new(),
            searched_from: 0,
            tally: Tally::new(),
        }
    }

    // ---- reads

    /// Finds the live item of `key`. An expired one is unlinked on the way.
    #[inline]
    pub(super) fn find(
        &mut self,
        hash: u64,
        key: &[u8],
        now: Now,
        garbage: &mut Vec<Ptr<R>>,
    ) -> Result<Ptr<R>, Absence> {
        // SAFETY: an item in the table is alive until it is unlinked (1).
        let is_key = |&node: &Ptr<R>| unsafe { item(node) }.key() == key;
        let node = *self.table.find(hash, is_key).ok_or(Absence::Unknown)?;
        // SAFETY: the item was found in the table, so it is linked and alive (1, both).
        unsafe {
            if item(node).deadline().is_past(now) {
                self.expire(hash, node, garbage);
                return Err(Absence::Expired);
            }
        }
        Ok(node)
    }

    /// # Safety
    ///
    /// 1. The item is in this shard's table.
    #[cold]
    unsafe fn expire(&mut self, hash: u64, node: Ptr<R>, garbage: &mut Vec<Ptr<R>>) {
        // SAFETY: alive, and in the table (1, all).
        unsafe {
            self.tally.expire(item(node), footprint(node));
            self.unlink(hash, node, garbage);
        }
    }

    /// Prefetches the item (or a tag match) that `hash` leads to.
    #[inline]
    pub(super) fn prefetch_item(&self, hash: u64) {
        let _ = self.table.find(hash, |node| {
            let address = node.as_ptr().cast::<u8>();
            prefetch(address);
            prefetch(address.wrapping_add(64));
            true
        });
    }

    /// Moves an item to the front of the eviction order if it is due.
    ///
    /// # Safety
    ///
    /// 1. The item is in this shard's table.
    #[inline]
    pub(super) unsafe fn refresh(&mut self, node: Ptr<R>, now: Now) {
        // SAFETY: the item is in the table, and the shard is ours (1); the reference ends here (2).
        let moved_s = unsafe { links(node) }.moved_s;
        if now.seconds().saturating_sub(moved_s) >= self.refresh_after_s {
            // SAFETY: what is in the table is in `lru` (1).
            unsafe { self.move_to_front(node, now) };
        }
    }

    /// # Safety
    ///
    /// 1. The item is in `lru`.
    #[cold]
    unsafe fn move_to_front(&mut self, node: Ptr<R>, now: Now) {
        // SAFETY: the item is in the list, from which it is removed before it is pushed, and the
        // shard is ours (1, all). The reference ends with its statement (2).
        unsafe {
            links(node).moved_s = now.seconds();
            if self.lru.newest != Some(node) {
                self.lru.remove(node);
                self.lru.push_newest(node);
            }
        }
    }

    // ---- writes

    /// A new cas value, greater than any that this shard gave out before.
    pub(super) fn next_cas(&mut self) -> u64 {
        self.cas += self.cas_step;
        self.cas
    }

    /// Makes sure that one more item fits the table without a later rehash whose allocation may
    /// fail. Returns false if there is no memory.
    pub(super) fn reserve_slot(&mut self, hasher: impl Fn(&[u8]) -> u64) -> bool {
        let is_rehashed = Cell::new(false);
        let reserved = self.table.try_reserve(1, |&node| {
            is_rehashed.set(true);
            // SAFETY: an item in the table is alive until it is unlinked (1).
            hasher(unsafe { item(node) }.key())
        });
        self.rehashes += u64::from(is_rehashed.get());
        reserved.is_ok()
    }

    /// Links an item whose key is not in the table. A slot has been reserved.
    ///
    /// # Safety
    ///
    /// 1. Only the caller can reach the item. From now on it belongs to this shard, which hands it
    ///    out as garbage when it is unlinked.
    pub(super) unsafe fn link(&mut self, hash: u64, node: Ptr<R>, now: Now, hint: &TableHint) {
        let buckets_before = hint.buckets();
        let entry = self.table.insert_unique(hash, node, |_| {
            unreachable!("a slot was reserved under the same lock")
        });
        let (element, bucket) = (std::ptr::from_ref(entry.get()).addr(), entry.bucket_index());
        let buckets = self.table.num_buckets();
        if buckets != buckets_before {
            hint.set(element, bucket, buckets);
        }
        // SAFETY: the item is alive and ours, by our 1, and in no list (1, all). The reference ends
        // with its statement (2).
        unsafe {
            links(node).moved_s = now.seconds();
            self.charge(node);
            self.lru.push_newest(node);
        }
        self.tally.link();
    }

    /// Links `new` in place of `old`, which becomes garbage.
    ///
    /// # Safety
    ///
    /// 1. `old` is in this shard's table.
    /// 2. 1 of [`link`](Self::link) holds for `new`.
    pub(super) unsafe fn replace(
        &mut self,
        hash: u64,
        old: Ptr<R>,
        new: Ptr<R>,
        now: Now,
        garbage: &mut Vec<Ptr<R>>,
    ) {
        if let Some(slot) = self.table.find_mut(hash, |&node| node == old) {
            *slot = new;
        }
        // SAFETY: both are alive and ours, by our 1 and 2; `old` was in `lru`, `new` in no list;
        // `old` is unlinked at the end (1, all). The reference ends with its statement (2).
        unsafe {
            links(new).moved_s = now.seconds();
            self.charge(new);
            self.lru.remove(old);
            self.lru.push_newest(new);
            self.discharge(old);
            self.give_up(old, garbage);
        }
        self.tally.link();
    }

    /// Removes an item from table and list.
    ///
    /// # Safety
    ///
    /// 1. The item is in this shard's table.
    pub(super) unsafe fn unlink(&mut self, hash: u64, node: Ptr<R>, garbage: &mut Vec<Ptr<R>>) {
        if let Ok(entry) = self.table.find_entry(hash, |&other| other == node) {
            entry.remove();
        }
        // SAFETY: what was in the table is in `lru`, and is unlinked now (1, all).
        unsafe {
            self.lru.remove(node);
            self.discharge(node);
            self.give_up(node, garbage);
        }
    }

    /// Adds an unreachable item to `garbage`, unless it is referenced; then the session that drops
    /// the last reference does so.
    ///
    /// # Safety
    ///
    /// 1. The item is alive and this shard's, and was just removed from its table and lists.
    #[inline]
    unsafe fn give_up(&mut self, node: Ptr<R>, garbage: &mut Vec<Ptr<R>>) {
        // SAFETY: alive, by our 1 (1).
        let item = unsafe { item(node) };
        if item.kind().owns_object() {
            // SAFETY: the item was linked, and its set is taken here only (1). Only the thread that
            // has the shard follows the pointer (2).
            let set = unsafe { objects::take(item) };
            self.sets -= 1;
            self.set_bytes -= self.dying.add(set);
        }
        // SAFETY: the item is alive and ours, by our 1 (1); the reference ends here (2).
        if unsafe { links(node) }.references.unlink() {
            garbage.push(node);
        }
    }

    // ---- expiry

    /// Notes the deadline of an item, which has changed.
    pub(super) fn touched(&mut self, deadline: Deadline) {
        self.due.note(deadline);
    }

    /// Continues a walk that removes expired items at a bucket, for `looks` buckets. Returns the
    /// bucket at which to continue, or `None` at the end, or if nothing is due.
    pub(super) fn search(
        &mut self,
        from: usize,
        looks: &mut usize,
        now: Now,
        hasher: impl Fn(&[u8]) -> u64,
        garbage: &mut Vec<Ptr<R>>,
    ) -> Option<usize> {
        if from == 0 {
            if !self.due.begin(now) {
                return None;
            }
            self.searched_from = self.rehashes;
        }
        let end = self.table.num_buckets();
        let from = from.min(end);
        let to = end.min(from + *looks);
        *looks -= to - from;
        for bucket in from..to {
            let Some(&node) = self.table.get_bucket(bucket) else {
                continue;
            };
            // SAFETY: in the table until it is unlinked (1, all).
            unsafe {
                let found = item(node);
                if found.deadline().is_past(now) {
                    self.tally.reclaim(found, footprint(node));
                    self.unlink(hasher(found.key()), node, garbage);
                } else {
                    self.due.keep(found.deadline());
                }
            }
        }
        if to < end {
            return Some(to);
        }
        // A rehash moves items from buckets that are still to come to some that are behind.
        let is_whole = self.rehashes == self.searched_from;
        let items = self.lru.len as u64 * self.cas_step;
        self.due.end(now, items, is_whole);
        None
    }

    // ---- references

    /// Keeps the item alive until [`release`](Self::release), whatever happens to its key.
    ///
    /// # Safety
    ///
    /// 1. The item is in this shard's table.
    #[inline]
    pub(super) unsafe fn acquire(&mut self, node: Ptr<R>) {
        // SAFETY: the item is alive and ours, by our 1 (1); the reference ends here (2).
        unsafe { links(node) }.references.acquire();
    }

    /// Drops a reference.
    ///
    /// # Safety
    ///
    /// 1. The caller has acquired the reference in this shard, and no longer uses the item.
    pub(super) unsafe fn release(&mut self, node: Ptr<R>, garbage: &mut Vec<Ptr<R>>) {
        // SAFETY: the reference keeps the item alive (1); the borrow ends here (2).
        if unsafe { links(node) }.references.release() {
            garbage.push(node);
        }
    }

    /// # Safety
    ///
    /// 1. The item is alive.
    unsafe fn charge(&mut self, node: Ptr<R>) {
        // SAFETY: the caller guarantees that the item is alive (1).
        let (bytes, item) = unsafe { (footprint(node), item(node)) };
        self.item_bytes += bytes;
        self.tally.charge(item.key(), bytes);
        self.due.note(item.deadline());
    }

    /// # Safety
    ///
    /// 1. The item is alive.
    unsafe fn discharge(&mut self, node: Ptr<R>) {
        // SAFETY: the caller guarantees that the item is alive (1).
        let (bytes, item) = unsafe { (footprint(node), item(node)) };
        self.item_bytes -= bytes;
        self.tally.discharge(item.key(), bytes);
    }

    // ---- memory

    pub(super) fn bytes(&self) -> usize {
        self.item_bytes + self.set_bytes + self.table.allocation_size()
    }

    /// Counts an operation that found no room.
    pub(super) fn refuse(&mut self) {
        self.tally.refuse();
    }

    /// The memory of objects.
    pub(super) fn object_memory(&self) -> &ObjectMemory {
        self.dying.memory()
    }

    /// Frees a part of a dying set. Returns whether there was one.
    pub(super) fn free_some(&mut self) -> bool {
        let freed = self.dying.free_some();
        self.set_bytes -= freed.unwrap_or(0);
        freed.is_some()
    }

    /// Notes that the set of a key with this hash is to be settled.
    pub(super) fn note_unsettled_set(&mut self, hash: u64) {
        self.dying.note_unsettled(hash);
    }

    /// Frees some memory of removed members of a set. Returns whether there was one to look for.
    pub(super) fn settle_some(&mut self, hasher: impl Fn(&[u8]) -> u64) -> bool {
        let Some(hash) = self.dying.next_unsettled() else {
            return false;
        };
        // SAFETY: an item in the table is alive until it is unlinked (1).
        let found = self.table.find(hash, |&node| unsafe {
            let owner = item(node);
            owner.kind() == ItemKind::Set && hasher(owner.key()) == hash
        });
        if let Some(&node) = found {
            // SAFETY: in the table, so that it is alive and owns its set (1, both). Only the thread
            // that has the shard follows the pointer; the reference ends below (2).
            let set = unsafe { objects::set_of(item(node)) };
            let before = objects::bytes(set);
            let has_more = objects::settle(set);
            let after = objects::bytes(set);
            self.charge_set(before, after);
            if has_more {
                self.dying.note_unsettled(hash);
            }
        }
        true
    }

    /// Counts a set that took `before` bytes and takes `after` bytes; a new one took none.
    pub(super) fn charge_set(&mut self, before: usize, after: usize) {
        self.sets += usize::from(before == 0);
        self.set_bytes += after;
        self.set_bytes -= before;
    }

    /// The most bytes by which one more element makes the table grow: hashbrown doubles a table
    /// that has no free slot, unless removed elements take more than half of the slots.
    #[inline]
    fn growth(&self) -> usize {
        let slots = self.table.num_buckets() / 8 * 7;
        if self.table.capacity() > self.table.len() || self.table.len() < slots / 2 {
            return 0;
        }
        self.table.allocation_size().max(SMALLEST_TABLE)
    }

    /// Makes room for `need` bytes within `budget`, and for a slot of the table unless an item is
    /// replaced.
    ///
    /// Frees dying sets and flushed items first, then evicts from the old end (expired items count
    /// as reclaimed); but where the sets alone exceed the budget, which was lowered, evicts
    /// [sets](Self::evict_sets) only, until they do not. `keep` is passed over.
    ///
    /// # Safety
    ///
    /// 1. `keep` is in this shard's table.
    pub(super) unsafe fn make_room(
        &mut self,
        room: &Room<'_, R>,
        garbage: &mut Vec<Ptr<R>>,
    ) -> bool {
        let growth = |shard: &Self| room.keep.map_or_else(|| shard.growth(), |_| 0);
        while self.bytes() - room.returned + room.need + growth(self) > room.budget {
            if !self.free_or_evict(room, garbage) {
                // What replaces an item that is not smaller needs none; the budget was lowered.
                let is_replaced = room.need <= room.returned;
                if !is_replaced {
                    self.tally.refuse();
                }
                return is_replaced;
            }
        }
        true
    }

    /// A step of [`make_room`](Self::make_room). Returns false if there was nothing to do.
    fn free_or_evict(&mut self, room: &Room<'_, R>, garbage: &mut Vec<Ptr<R>>) -> bool {
        if self.free_some() || self.reap(1, garbage) == 1 || self.evict_sets(room, garbage) {
            return true;
        }
        let Some(victim) = self.victim(room) else {
            return false;
        };
        // SAFETY: the victim is in `lru`, and so in the table (1).
        unsafe { self.evict(victim, room, garbage) };
        true
    }

    /// Frees and evicts until the shard keeps to the budget, in up to `most` steps; returns how
    /// many it took.
    pub(super) fn shrink(
        &mut self,
        most: usize,
        room: &Room<'_, R>,
        garbage: &mut Vec<Ptr<R>>,
    ) -> usize {
        (0..most)
            .take_while(|_| self.bytes() > room.budget && self.free_or_evict(room, garbage))
            .count()
    }

    fn living_set_bytes(&self) -> usize {
        self.set_bytes - self.dying.bytes()
    }

    /// Evicts sets until those that live do not exceed the budget: those first that exceed it
    /// alone, then the least recently used ones. Returns whether there was one.
    fn evict_sets(&mut self, room: &Room<'_, R>, garbage: &mut Vec<Ptr<R>>) -> bool {
        let before = self.sets;
        for least in [room.budget, 0] {
            let mut next = self.lru.oldest;
            while let Some(node) = next
                && room.may_evict
                && self.living_set_bytes().saturating_sub(room.returned) > room.budget
            {
                // SAFETY: the item is in `lru`, so it is alive and, if it is one, an owner of a set
                // (1, all). The shard is ours; the references end with their statements (2).
                unsafe {
                    next = links(node).newer;
                    let owner = item(node);
                    if Some(node) != room.keep
                        && owner.kind().owns_object()
                        && objects::bytes_of(owner) > least
                    {
                        self.evict(node, room, garbage);
                    }
                }
            }
        }
        self.sets < before
    }

    /// The item to remove next.
    ///
    /// An item that was read in a later second than it was last moved is moved to the front
    /// instead, up to [`lru::SECOND_CHANCES`] in a row. Where nothing may be evicted, every live
    /// item is moved, up to [`lru::PASSED_OVER`], so that each store looks further.
    fn victim(&mut self, room: &Room<'_, R>) -> Option<Ptr<R>> {
        let mut chances = lru::chances(room.may_evict);
        loop {
            let oldest = self.lru.oldest?;
            let victim = if Some(oldest) == room.keep {
                // SAFETY: the item is in `lru`, and the shard is ours (1); the reference ends
                // here (2).
                unsafe { links(oldest) }.newer?
            } else {
                oldest
            };
            // SAFETY: the item is in `lru` until this function returns (1, both); the reference to
            // its links ends here (2).
            let (found, moved_s) = unsafe { (item(victim), links(victim).moved_s) };
            if found.deadline().is_past(room.now) {
                return Some(victim);
            }
            let read_s = room.now.seconds() - found.idle_s(room.now);
            let unread = read_s <= moved_s;
            if chances == 0 || (room.may_evict && unread) {
                return room.may_evict.then_some(victim);
            }
            chances -= 1;
            // SAFETY: the item is in `lru`, where it is moved (1).
            unsafe { self.move_to_front(victim, room.now) };
        }
    }

    /// # Safety
    ///
    /// 1. The item is in this shard's table.
    unsafe fn evict(&mut self, node: Ptr<R>, room: &Room<'_, R>, garbage: &mut Vec<Ptr<R>>) {
        // SAFETY: in the table until it is unlinked below (1, both).
        let (victim, bytes) = unsafe { (item(node), footprint(node)) };
        if let Some(idle_s) = self.tally.evict(victim, bytes, room.now) {
            self.refresh_after_s = lru::refresh_after_s(idle_s);
        }
        let hash = (room.hasher)(victim.key());
        // SAFETY: the item is in the table (1).
        unsafe { self.unlink(hash, node, garbage) };
    }

    /// Makes everything unreachable. The items go to the dead list. The old table is returned, to
    /// be freed outside the lock. Constant time except for the class counters.
    pub(super) fn flush(&mut self, hint: &TableHint) -> HashTable<Ptr<R>> {
        // SAFETY: both lists are of this shard (1).
        unsafe { self.dead.append(&mut self.lru) };
        self.dead_bytes = self.item_bytes;
        self.tally.discharge_all();
        hint.clear();
        std::mem::take(&mut self.table)
    }

    /// Moves up to `limit` flushed items to `garbage`; returns how many.
    pub(super) fn reap(&mut self, limit: usize, garbage: &mut Vec<Ptr<R>>) -> usize {
        let mut reaped = 0;
        while reaped < limit {
            let Some(node) = self.dead.oldest else { break };
            // SAFETY: in the list `dead` and in no table; given up at the end (1, all).
            unsafe {
                self.dead.remove(node);
                self.item_bytes -= footprint(node);
                self.dead_bytes -= footprint(node);
                self.give_up(node, garbage);
            }
            reaped += 1;
        }
        reaped
    }

    // ---- statistics

    pub(super) fn tally(&mut self) -> &mut Tally {
        &mut self.tally
    }

    pub(super) fn add_stats(&self, sum: &mut EngineStats) {
        self.tally.add_events(sum);
        sum.items += self.lru.len as u64;
        sum.bytes += self.bytes() as u64;
        sum.sets += self.sets as u64;
        sum.set_bytes += self.set_bytes as u64;
        sum.table_bytes += self.table.allocation_size() as u64;
        sum.dead_bytes += self.dead_bytes as u64;
        sum.buckets += self.table.num_buckets() as u64;
    }

    /// How often the table has moved its elements.
    pub(super) fn rehashes(&self) -> u64 {
        self.rehashes
    }

    /// Buckets of the table.
    pub(super) fn buckets(&self) -> usize {
        self.table.num_buckets()
    }

    /// Shows the live items in a range of buckets.
    pub(super) fn show(
        &self,
        buckets: std::ops::Range<usize>,
        now: Now,
        show: &mut dyn FnMut(&ItemView<'_>),
    ) {
        for &node in buckets.filter_map(|bucket| self.table.get_bucket(bucket)) {
            // SAFETY: in the table, and the shard is borrowed (1, both).
            let (found, bytes) = unsafe { (item(node), footprint(node)) };
            if !found.deadline().is_past(now) {
                show(&found.view(found.before(now), ItemFlags::NONE, bytes));
            }
        }
    }
}

/// The arguments of [`Shard::make_room`].
pub(super) struct Room<'a, R: References> {
    /// Bytes that will be charged afterwards.
    pub(super) need: usize,
    /// The shard's budget.
    pub(super) budget: usize,
    /// The item that stays, or is about to be replaced.
    pub(super) keep: Option<Ptr<R>>,
    /// Bytes that will be free when it is replaced.
    pub(super) returned: usize,
    /// Whether live items may be evicted.
    pub(super) may_evict: bool,
    /// The present time.
    pub(super) now: Now,
    /// The engine's hash of a key.
    pub(super) hasher: &'a dyn Fn(&[u8]) -> u64,
}

#[cfg(test)]
mod tests {
    use super::super::references::ReferenceCount;
    use super::*;
    use crate::alloc::GlobalHeap;
    use crate::item::{self, Contents};

    const NOW: Now = Now::new(9_000, 0);

    fn node<R: References>(key: &[u8]) -> Ptr<R> {
        let contents = Contents::new(key, b"v", 0, Deadline::NEVER);
        let (node, footprint) =
            item::create(&GlobalHeap, Links::default(), &contents, NOW).unwrap();
        // SAFETY: the item was just made, so it is alive and only we can reach it (1), without
        // another reference (2).
        unsafe { links(node) }.footprint = footprint as u32;
        node
    }

    fn free<R: References>(garbage: &mut Vec<Ptr<R>>) {
        for node in garbage.drain(..) {
            // SAFETY: unlinked by the tests and not used again.
            unsafe { item::destroy(&GlobalHeap, node) }
        }
    }

    #[test]
    fn the_prefetch_hint_points_at_the_element_hashbrown_stored() {
        let (mut shard, hint) = (
            Shard::<NoReferences>::new(0, 1, Graveyard::default()),
            TableHint::new(),
        );
        let mut exact = 0u32;
        for i in 0u64..500 {
            let hash = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            assert!(shard.reserve_slot(|key| {
                u64::from_le_bytes(key.try_into().unwrap()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            }));
            // SAFETY: the item was just made, so only we can reach it; it is freed below (1).
            unsafe { shard.link(hash, node(&i.to_le_bytes()), NOW, &hint) };
            // SAFETY: an item in the table is alive until it is unlinked (1).
            let is_key = |&n: &Ptr<NoReferences>| unsafe { item(n) }.key() == i.to_le_bytes();
            let element = shard.table.find(hash, is_key).unwrap();
            let (control, first) = hint.element(hash);
            let at = std::ptr::from_ref(element) as usize;
            // Within the first probe group (16 buckets) unless it wrapped or moved on.
            exact += u32::from(at <= first && first - at < 16 * ELEMENT_BYTES);
            assert!(control > at);
        }
        assert!(
            exact > 350,
            "only {exact} of 500 elements lie where the hint says"
        );
        let mut garbage = Vec::new();
        drop(shard.flush(&hint));
        shard.reap(usize::MAX, &mut garbage);
        free(&mut garbage);
    }

    #[test]
    fn flushing_twice_keeps_every_item_on_the_dead_list_until_reaped() {
        let (mut shard, hint) = (
            Shard::<NoReferences>::new(0, 1, Graveyard::default()),
            TableHint::new(),
        );
        for round in 0u8..2 {
            for i in 0u8..10 {
                assert!(shard.reserve_slot(|key| u64::from(key[0])));
                // SAFETY: the item was just made, so only we can reach it; it is freed below (1).
                unsafe { shard.link(u64::from(i), node(&[i, round]), NOW, &hint) };
            }
            assert_eq!(shard.flush(&hint).len(), 10);
        }
        let mut garbage = Vec::new();
        assert_eq!(shard.reap(15, &mut garbage), 15);
        assert_eq!(shard.reap(usize::MAX, &mut garbage), 5);
        assert_eq!((shard.item_bytes, shard.dead_bytes), (0, 0));
        free(&mut garbage);
    }

    #[test]
    fn an_unlinked_item_is_garbage_only_when_it_is_released() {
        let (mut shard, hint) = (
            Shard::<ReferenceCount>::new(0, 1, Graveyard::default()),
            TableHint::new(),
        );
        let mut garbage = Vec::new();
        for way in 0u64..3 {
            let (held, other) = (node(&[1]), node(&[1]));
            assert!(shard.reserve_slot(|_| 7));
            // SAFETY: both were just made; `held` is in the table, and alive as long as the
            // reference (1 and 2, all).
            unsafe {
                shard.link(7, held, NOW, &hint);
                shard.acquire(held);
                match way {
                    0 => shard.unlink(7, held, &mut garbage),
                    1 => shard.replace(7, held, other, NOW, &mut garbage),
                    _ => {
                        drop(shard.flush(&hint));
                        assert_eq!(shard.reap(usize::MAX, &mut garbage), 1);
                    }
                }
                assert_eq!(garbage, [], "it is still held");
                assert_eq!(item(held).value(), b"v");
                shard.release(held, &mut garbage);
            }
            assert_eq!(garbage, [held]);
            free(&mut garbage);
            if way == 1 {
                // SAFETY: it has replaced the other one in the table (1).
                unsafe { shard.unlink(7, other, &mut garbage) };
            } else {
                garbage.push(other);
            }
            free(&mut garbage);
        }
        assert_eq!(shard.item_bytes, 0);
    }
}
