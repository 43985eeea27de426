//! One partition: items, eviction order and accounting.
//!
//! A flush advances the partition's generation. Items of older generations are unreachable; they
//! are all at the old end of the LRU list, because only live items are moved, so they are the first
//! to make room.

use crate::engine::EngineStats;
use crate::engines::expiry::DueTime;
use crate::engines::lru;
use crate::engines::sharded::{Context, Rules};
use crate::engines::tally::Tally;
use crate::item::{self, Contents, Item, ItemNode};
use crate::objects::{self, Graveyard, ObjectMemory};
use corewise_cphash::raw::{END, RawElement, RawPartition, block_bytes};
use corewise_ops::{Absence, Deadline, ItemFlags, ItemKind, ItemView, Now};
use std::ptr::NonNull;

/// The engine's words in front of an item's header.
pub(super) struct Links {
    /// When the item was last moved to the front of the LRU list, in seconds.
    moved_s: u32,
    /// The partition's generation when the item was made.
    generation: u32,
}

/// An item of a partition.
pub(super) type Ptr = NonNull<ItemNode<Links>>;

/// See the [module](self).
///
/// # Safety of the methods
///
/// 1. The item is alive and of this partition: linked, or referenced.
pub(super) struct Partition {
    raw: RawPartition,
    generation: u32,
    /// Bytes of live items.
    live_bytes: usize,
    /// Sets that linked items own, and their bytes, with those of the dying ones.
    sets: usize,
    set_bytes: usize,
    dying: Graveyard,
    /// Flushed items that are still linked.
    dead: usize,
    dead_bytes: usize,
    /// The last cas value given out. A partition's values are congruent to its index modulo the
    /// number of partitions, so all are distinct.
    cas: u64,
    cas_step: u64,
    /// How long a hit leaves an item in its place; see `lru`.
    refresh_after_s: u32,
    due: DueTime,
    tally: Tally,
}

// SAFETY: the partition owns its elements; threads that hold references only read.
unsafe impl Send for Partition {}

/// What is freed when an item is replaced: bytes of the item, and of its set, those in steps.
#[derive(Clone, Copy, Default)]
pub(super) struct Returned {
    of_item: usize,
    of_set: usize,
}

/// The element of an item.
///
/// # Safety
///
/// 1. The item was made by a partition.
#[inline(always)]
unsafe fn element(node: Ptr) -> RawElement {
    // SAFETY: `Partition::create` writes items to the values of elements (1).
    unsafe { RawElement::of_value(node.cast()) }
}

/// The item.
///
/// # Safety
///
/// 1. The item is alive during `'a`.
#[inline(always)]
pub(super) unsafe fn item<'a>(node: Ptr) -> Item<'a, Links> {
    // SAFETY: the caller keeps the item alive during `'a` (1).
    unsafe { Item::from_raw(node) }
}

/// A field of the links, which belong to the thread that has the partition.
macro_rules! links {
    ($node:expr) => {
        (*$node.as_ptr()).links
    };
}

impl Drop for Partition {
    fn drop(&mut self) {
        self.flush();
        self.reap(if self.sets > 0 { usize::MAX } else { 0 });
    }
}

impl Partition {
    /// An empty partition, the `index`th of `count`.
    pub(super) fn new(index: usize, count: usize, dying: Graveyard) -> Self {
        Self {
            raw: RawPartition::new(0),
            generation: 0,
            live_bytes: 0,
            sets: 0,
            set_bytes: 0,
            dying,
            dead: 0,
            dead_bytes: 0,
            cas: index as u64,
            cas_step: count as u64,
            refresh_after_s: lru::REFRESH_AT_MOST_S,
            due: DueTime::new(),
            tally: Tally::new(),
        }
    }

    pub(super) fn tally(&mut self) -> &mut Tally {
        &mut self.tally
    }

    // ---- reads

    /// Brings the bucket of a hash closer to the processor.
    #[inline]
    pub(super) fn prefetch_bucket(&self, hash: u64) {
        self.raw.prefetch_bucket(hash);
    }

    /// Brings the first item in the bucket of a hash closer to the processor.
    #[inline]
    pub(super) fn prefetch_item(&self, hash: u64) {
        self.raw.prefetch_element(hash);
    }

    /// Finds the live item of `key`. A dead one is unlinked on the way.
    #[inline]
    pub(super) fn find(&mut self, hash: u64, key: &[u8], now: Now) -> Result<Ptr, Absence> {
        let is_key = |value: NonNull<u8>| {
            // SAFETY: a linked element has an item as its value (1).
            unsafe { item(value.cast()) }.key() == key
        };
        let found = self.raw.find(hash, is_key).ok_or(Absence::Unknown)?;
        let node: Ptr = found.value().cast();
        // SAFETY: the item was just found, so it is linked and alive until it is unlinked (1, all).
        unsafe {
            if self.is_flushed(node) {
                self.unlink(node);
                return Err(Absence::Flushed);
            }
            if item(node).deadline().is_past(now) {
                self.tally.expire(item(node), self.footprint(node));
                self.unlink(node);
                return Err(Absence::Expired);
            }
        }
        Ok(node)
    }

    /// # Safety
    ///
    /// 1. As described for the type.
    #[inline]
    unsafe fn is_flushed(&self, node: Ptr) -> bool {
        // SAFETY: alive (1), and the field belongs to us.
        unsafe { links!(node).generation != self.generation }
    }

    /// Bytes of the item's block.
    ///
    /// # Safety
    ///
    /// 1. As described for the type.
    #[inline]
    pub(super) unsafe fn footprint(&self, node: Ptr) -> usize {
        // SAFETY: the item is alive and ours, by our 1 (1, both).
        unsafe { self.raw.block_bytes_of(element(node)) }
    }

    /// Moves an item to the front of the eviction order if it is due.
    ///
    /// # Safety
    ///
    /// 1. As described for the type; the item is linked.
    #[inline]
    pub(super) unsafe fn refresh(&mut self, node: Ptr, now: Now) {
        // SAFETY: alive (1), and the field belongs to us.
        let moved_s = unsafe { links!(node).moved_s };
        if now.seconds().saturating_sub(moved_s) >= self.refresh_after_s {
            // SAFETY: the item is linked, as the caller guarantees (1).
            unsafe { self.move_to_front(node, now) };
        }
    }

    /// # Safety
    ///
    /// 1. As described for the type; the item is linked.
    #[cold]
    unsafe fn move_to_front(&mut self, node: Ptr, now: Now) {
        // SAFETY: alive (1), and the field belongs to us. 1, both.
        unsafe {
            links!(node).moved_s = now.seconds();
            self.raw.refresh(element(node));
        }
    }

    // ---- writes

    /// A new cas value, greater than any that this partition gave out before.
    pub(super) fn next_cas(&mut self) -> u64 {
        self.cas += self.cas_step;
        self.cas
    }

    /// Makes an item that is not linked, with a reference, the caller's. Evicts what is in its way;
    /// `returned` will be freed when it is linked.
    pub(super) fn create(
        &mut self,
        Context { hash, now, rules }: Context,
        contents: &Contents<'_>,
        returned: Returned,
    ) -> Option<Ptr> {
        if !contents.fits_header() {
            return None;
        }
        let len = contents.bytes::<Links>();
        if !self.make_room(block_bytes(len)?, returned, rules, now) {
            self.tally.refuse();
            return None;
        }
        let made = self.raw.allocate(hash, len)?;
        let links = Links {
            moved_s: now.seconds(),
            generation: self.generation,
        };
        // SAFETY: the value has this length, is aligned to eight bytes, and nothing else uses it
        // yet (1). 2: checked above.
        Some(unsafe { item::write(made.value(), links, contents, now) })
    }

    /// Makes an item reachable whose key has no other linked item.
    ///
    /// # Safety
    ///
    /// 1. As described for the type; `node` came from `create` and was not linked before.
    pub(super) unsafe fn link(&mut self, node: Ptr) {
        // SAFETY: the item is alive, ours and not linked, by our 1 (1 and 2 of
        // `RawPartition::link`, and 1 of the others).
        unsafe {
            self.raw.link(element(node));
            let bytes = self.footprint(node);
            self.live_bytes += bytes;
            self.tally.charge(item(node).key(), bytes);
            self.due.note(item(node).deadline());
        }
        self.tally.link();
        if self.raw.wants_to_grow() {
            self.raw.grow();
        }
    }

    /// Makes an item unreachable. It stays alive while there are references.
    ///
    /// # Safety
    ///
    /// 1. As described for the type; the item is linked.
    pub(super) unsafe fn unlink(&mut self, node: Ptr) {
        // SAFETY: the item is alive, ours and linked, by our 1 (1, all).
        unsafe {
            if item(node).kind().owns_object() {
                self.free_set(node);
            }
            let bytes = self.footprint(node);
            if self.is_flushed(node) {
                self.dead -= 1;
                self.dead_bytes -= bytes;
            } else {
                self.live_bytes -= bytes;
                self.tally.discharge(item(node).key(), bytes);
            }
            self.raw.unlink(element(node));
        }
    }

    // ---- expiry

    /// Notes the deadline of an item, which has changed.
    pub(super) fn touched(&mut self, deadline: Deadline) {
        self.due.note(deadline);
    }

    /// Continues a walk that removes expired items at a position, until `looks` items and buckets
    /// were looked at. Returns where to continue, or `None` at the end, or if nothing is due.
    pub(super) fn search(&mut self, mut position: u64, looks: &mut usize, now: Now) -> Option<u64> {
        if position == 0 && !self.due.begin(now) {
            return None;
        }
        let mut expired: Vec<Ptr> = Vec::new();
        while position < END && *looks > 0 {
            *looks -= 1;
            let due = &mut self.due;
            position = self.raw.visit(position, &mut |value| {
                let node: Ptr = value.cast();
                *looks = looks.saturating_sub(1);
                // SAFETY: `visit` shows linked elements, whose items are alive (1).
                let deadline = unsafe { item(node) }.deadline();
                if deadline.is_past(now) {
                    expired.push(node);
                } else {
                    due.keep(deadline);
                }
            });
        }
        for node in expired {
            // SAFETY: linked until the last line (1, all).
            unsafe {
                if !self.is_flushed(node) {
                    self.tally.reclaim(item(node), self.footprint(node));
                }
                self.unlink(node);
            }
        }
        if position < END {
            return Some(position);
        }
        let items = self.raw.elements() as u64 * self.cas_step;
        self.due.end(now, items, true);
        None
    }

    // ---- references

    /// Keeps the item alive until [`release`](Self::release).
    ///
    /// # Safety
    ///
    /// 1. As described for the type.
    #[inline]
    pub(super) unsafe fn acquire(&mut self, node: Ptr) {
        // SAFETY: the item is alive and ours, by our 1 (1, both).
        unsafe { self.raw.acquire(element(node)) };
    }

    /// Gives up a reference.
    ///
    /// # Safety
    ///
    /// 1. As described for the type; the reference is the caller's.
    #[inline]
    pub(super) unsafe fn release(&mut self, node: Ptr) {
        // SAFETY: the item is alive and ours, by our 1 (1, both).
        unsafe { self.raw.release(element(node)) };
    }

    /// What is freed when an item is replaced to which the caller has a reference: no item if there
    /// are others.
    ///
    /// # Safety
    ///
    /// 1. As described for the type; the item is linked, and nothing refers to its set.
    pub(super) unsafe fn returned(&self, node: Ptr) -> Returned {
        // SAFETY: the item is alive and ours, by our 1 (1, all); it owns its set. Only the thread
        // that has the partition follows the pointer; the reference ends here (2).
        unsafe {
            let of_item = match self.raw.references(element(node)) {
                1 => self.footprint(node),
                _ => 0,
            };
            let of_set = match item(node).kind() {
                kind if kind.owns_object() => objects::bytes_of(item(node)),
                _ => 0,
            };
            Returned { of_item, of_set }
        }
    }

    // ---- memory

    /// Makes room for `need` bytes. Frees dying sets and flushed items first, then evicts from the
    /// old end; expired items count as reclaimed. But where the sets alone exceed the budget, which
    /// was lowered, evicts [sets](Self::evict_sets) only, until they do not. Referenced items are
    /// passed over, because evicting them frees nothing.
    fn make_room(&mut self, need: usize, returned: Returned, rules: Rules, now: Now) -> bool {
        while !self.has_room(need, returned, rules) {
            if !self.free_or_evict(returned, rules, now) {
                // What replaces an item that is not smaller needs none; the budget was lowered.
                return need <= returned.of_item;
            }
        }
        true
    }

    fn has_room(&mut self, need: usize, returned: Returned, rules: Rules) -> bool {
        // Sets have their memory from elsewhere.
        let sets = self.set_bytes - returned.of_set;
        self.raw.set_budget(rules.budget.saturating_sub(sets));
        self.raw.has_room(need, returned.of_item)
    }

    /// A step of [`make_room`](Self::make_room). Returns false if there was nothing to do.
    fn free_or_evict(&mut self, returned: Returned, rules: Rules, now: Now) -> bool {
        if self.free_some() || self.reap(1) == 1 {
            return true;
        }
        let exceeds = self.set_bytes - returned.of_set > rules.budget;
        if rules.may_evict && exceeds && self.evict_sets(rules.budget, now) {
            return true;
        }
        let Some(victim) = self.victim(rules.may_evict, now) else {
            return false;
        };
        // SAFETY: linked (1).
        unsafe { self.evict(victim, now) };
        true
    }

    /// Frees and evicts until the partition keeps to the rules, in up to `most` steps; returns how
    /// many it took.
    pub(super) fn shrink(&mut self, most: usize, rules: Rules, now: Now) -> usize {
        let returned = Returned::default();
        (0..most)
            .take_while(|_| {
                !self.has_room(0, returned, rules) && self.free_or_evict(returned, rules, now)
            })
            .count()
    }

    /// # Safety
    ///
    /// 1. As described for the type; the item is linked.
    unsafe fn evict(&mut self, victim: Ptr, now: Now) {
        // SAFETY: linked until the last line (1, all).
        unsafe {
            let bytes = self.footprint(victim);
            if let Some(idle_s) = self.tally.evict(item(victim), bytes, now) {
                self.refresh_after_s = lru::refresh_after_s(idle_s);
            }
            self.unlink(victim);
        }
    }

    /// Evicts sets until those that live do not exceed the budget, except those of referenced
    /// items: those first that exceed it alone, then the least recently used ones. Returns whether
    /// there was one.
    fn evict_sets(&mut self, budget: usize, now: Now) -> bool {
        let mut owners: Vec<(bool, u32, Ptr)> = Vec::with_capacity(self.sets);
        let mut position = 0;
        while position < END {
            let raw = &self.raw;
            position = raw.visit(position, &mut |value| {
                let node: Ptr = value.cast();
                // SAFETY: linked, so that it owns its set (1, all). Only the thread that has the
                // partition follows the pointer, and nothing refers to the sets of items without
                // references; the reference ends here (2).
                unsafe {
                    if item(node).kind().owns_object() && raw.references(element(node)) == 0 {
                        let fits = objects::bytes_of(item(node)) <= budget;
                        owners.push((fits, links!(node).moved_s, node));
                    }
                }
            });
        }
        owners.sort_unstable();
        let before = self.sets;
        for (_, _, node) in owners {
            if self.set_bytes - self.dying.bytes() <= budget {
                break;
            }
            // SAFETY: linked (1).
            unsafe { self.evict(node, now) };
        }
        self.sets < before
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

    /// Whether a set that takes `bytes` may grow by `growth` as things are.
    pub(super) fn has_set_room(&mut self, rules: Rules, bytes: usize, growth: usize) -> bool {
        self.raw
            .set_budget(rules.budget.saturating_sub(self.set_bytes));
        objects::may_take(bytes + growth, rules.budget) && self.raw.has_room(growth, 0)
    }

    /// Makes room for `growth` more bytes of a set that takes `bytes`, as for an item; evicts
    /// nothing for a set that may not be so large.
    pub(super) fn make_set_room(&mut self, context: Context, bytes: usize, growth: usize) -> bool {
        let Context { rules, now, .. } = context;
        let has_room = objects::may_take(bytes + growth, rules.budget)
            && self.make_room(growth, Returned::default(), rules, now);
        if !has_room {
            self.tally.refuse();
        }
        has_room
    }

    /// Notes that the set of a key with this hash is to be settled.
    pub(super) fn note_unsettled_set(&mut self, hash: u64) {
        self.dying.note_unsettled(hash);
    }

    /// Frees some memory of removed members of a set. Returns whether there was one to look for.
    pub(super) fn settle_some(&mut self) -> bool {
        let Some(hash) = self.dying.next_unsettled() else {
            return false;
        };
        let is_set = |value: NonNull<u8>| {
            // SAFETY: a linked element has an item as its value (1).
            unsafe { item(value.cast()) }.kind() == ItemKind::Set
        };
        if let Some(found) = self.raw.find(hash, is_set) {
            // SAFETY: the item was just found, so it is linked, and owns its set (1, both). Only
            // the thread that has the partition follows the pointer; the reference ends below (2).
            let set = unsafe { objects::set_of(item(found.value().cast())) };
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

    /// Frees the set of an item that owns one.
    ///
    /// # Safety
    ///
    /// 1. As described for the type; the item is linked and about to be unlinked.
    #[cold]
    unsafe fn free_set(&mut self, node: Ptr) {
        // SAFETY: the item is linked, and its set is taken here only (1). Only the thread that has
        // the partition follows the pointer (2).
        let set = unsafe { objects::take(item(node)) };
        self.sets -= 1;
        self.set_bytes -= self.dying.add(set);
    }

    /// The item to remove next. An item that was read in a later second than it was last moved is
    /// moved to the front instead, as in `locked`.
    fn victim(&mut self, may_evict: bool, now: Now) -> Option<Ptr> {
        let mut chances = lru::chances(may_evict);
        for _ in 0..self.raw.elements() {
            let oldest = self.raw.oldest()?;
            let node: Ptr = oldest.value().cast();
            // SAFETY: linked; the field belongs to us (1, all).
            unsafe {
                if self.raw.references(oldest) != 0 {
                    self.raw.refresh(oldest);
                    continue;
                }
                if item(node).deadline().is_past(now) {
                    return Some(node);
                }
                let read_s = now.seconds() - item(node).idle_s(now);
                let is_unread = read_s <= links!(node).moved_s;
                if chances == 0 || (may_evict && is_unread) {
                    return may_evict.then_some(node);
                }
                chances -= 1;
                self.move_to_front(node, now);
            }
        }
        None
    }

    /// Makes everything unreachable. Constant time except for the class counters.
    pub(super) fn flush(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.dead = self.raw.elements();
        self.dead_bytes += self.live_bytes;
        self.live_bytes = 0;
        self.tally.discharge_all();
    }

    /// Frees up to `limit` flushed items; returns how many.
    pub(super) fn reap(&mut self, limit: usize) -> usize {
        let mut reaped = 0;
        while reaped < limit && self.dead > 0 {
            let Some(oldest) = self.raw.oldest() else {
                break;
            };
            // SAFETY: linked, and flushed, because flushed items are older than all others (1).
            unsafe { self.unlink(oldest.value().cast()) };
            reaped += 1;
        }
        reaped
    }

    // ---- statistics and scans

    pub(super) fn add_stats(&self, sum: &mut EngineStats) {
        self.tally.add_events(sum);
        sum.items += (self.raw.elements() - self.dead) as u64;
        sum.bytes += (self.raw.used_bytes() + self.set_bytes) as u64;
        sum.sets += self.sets as u64;
        sum.set_bytes += self.set_bytes as u64;
        sum.table_bytes += self.raw.table_bytes() as u64;
        sum.dead_bytes += self.dead_bytes as u64;
        sum.buckets += self.raw.buckets() as u64;
    }

    /// Shows the live items from `position` on, until the end or until `looks` items and buckets
    /// were looked at. Returns where to continue, or `None` at the end.
    pub(super) fn scan(
        &self,
        mut position: u64,
        looks: &mut usize,
        now: Now,
        show: &mut dyn FnMut(&ItemView<'_>),
    ) -> Option<u64> {
        while position < END {
            if *looks == 0 {
                return Some(position);
            }
            *looks -= 1;
            position = self.raw.visit(position, &mut |value| {
                let node: Ptr = value.cast();
                *looks = looks.saturating_sub(1);
                // SAFETY: `visit` shows linked elements, whose items are alive (1, all).
                unsafe {
                    let found = item(node);
                    if !self.is_flushed(node) && !found.deadline().is_past(now) {
                        let bytes = self.footprint(node);
                        show(&found.view(found.before(now), ItemFlags::NONE, bytes));
                    }
                }
            });
        }
        None
    }
}
