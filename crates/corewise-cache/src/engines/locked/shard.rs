//! One shard: table, eviction order, accounting. All of it behind one lock.
//!
//! # Eviction order
//!
//! The list runs from the most to the least recently used item. Moving an item
//! to the front on every hit would write to three cold cache lines per read,
//! so a hit moves it only if it has not been moved for
//! [`Shard::refresh_after_s`]: a minute, or an eighth of the idle time at which
//! items are being evicted if that is less. Where eviction is urgent (items
//! leave within seconds) every hit moves its item and the order is exact; in
//! general a position is wrong by at most an eighth of the time an item spends
//! in the list. An item that was read since it was last moved is moved when its
//! turn to be evicted comes, so what is in use survives the first evictions too.

use super::references::{NoReferences, References};
use crate::engine::{ClassStats, EngineStats};
use crate::item::{Item, Node, state};
use crate::size_class;
use corewise_atomic::hint::prefetch;
use corewise_atomic::sync::atomic::{AtomicUsize, Ordering};
use corewise_ops::{Absence, Deadline, ItemFlags, ItemView, Now};
use hashbrown::HashTable;
use std::cell::Cell;
use std::ptr::{NonNull, addr_of_mut};

/// What the engine keeps in front of an item's header.
#[derive(Default)]
pub(super) struct Links<R: References> {
    /// Towards the most recently used.
    newer: Option<Ptr<R>>,
    /// Towards the least recently used.
    older: Option<Ptr<R>>,
    /// When it was last moved to the front, in seconds.
    moved_s: u32,
    /// What the allocator gave, in bytes.
    pub(super) footprint: u32,
    /// Who holds it outside of the lock.
    references: R,
}

const _: () = assert!(size_of::<Links<NoReferences>>() == 24 || size_of::<usize>() != 8);

/// An item of this engine.
pub(super) type Ptr<R> = NonNull<Node<Links<R>>>;

/// The longest a hit leaves an item where it is in the eviction order.
const REFRESH_AT_MOST_S: u32 = 60;

/// Items passed over by one eviction because they were read since they were
/// last moved.
const SECOND_CHANCES: usize = 8;

/// Live items passed over by one store that may not evict, in search of one
/// that has expired.
const PASSED_OVER: usize = 64;

/// Bytes of an element of the table: a pointer.
const ELEMENT_BYTES: usize = size_of::<usize>();

/// Bytes that a table takes which had none before, at most.
const SMALLEST_TABLE: usize = 128;

/// The item behind a pointer of this shard.
///
/// Every pointer in a shard's table or lists is alive until it is unlinked
/// under the shard's lock and handed out as garbage, which happens only when
/// nobody holds a reference; the lifetime chosen by the caller must end before
/// the lock is released, or the reference dropped.
#[inline]
pub(super) fn item<'a, R: References>(node: Ptr<R>) -> Item<'a, Links<R>> {
    // SAFETY: see above; upheld by every caller in this module and in `exec`,
    // which hold the lock or a reference (or have not published the item yet).
    unsafe { Item::from_raw(node) }
}

/// The links of an item of this shard.
#[inline]
fn links<'a, R: References>(node: Ptr<R>) -> &'a mut Links<R> {
    // SAFETY: the node is alive (see `item`). Links are reached only under the
    // shard's lock and only through this function, whose results are never held
    // across another call of it for the same node.
    unsafe { &mut *addr_of_mut!((*node.as_ptr()).links) }
}

/// What the allocator gave for an item.
#[inline]
pub(super) fn footprint<R: References>(node: Ptr<R>) -> usize {
    links(node).footprint as usize
}

/// A doubly linked list through [`Links`].
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
    fn push_newest(&mut self, node: Ptr<R>) {
        links(node).newer = None;
        links(node).older = self.newest;
        match self.newest {
            Some(next) => links(next).newer = Some(node),
            None => self.oldest = Some(node),
        }
        self.newest = Some(node);
        self.len += 1;
    }

    fn remove(&mut self, node: Ptr<R>) {
        let (newer, older) = (links(node).newer, links(node).older);
        match newer {
            Some(newer) => links(newer).older = older,
            None => self.newest = older,
        }
        match older {
            Some(older) => links(older).newer = newer,
            None => self.oldest = newer,
        }
        self.len -= 1;
    }

    /// Puts `other` behind this list's oldest, leaving it empty. Constant time.
    fn append(&mut self, other: &mut Self) {
        let other = std::mem::take(other);
        let Some(other_newest) = other.newest else {
            return;
        };
        links(other_newest).newer = self.oldest;
        match self.oldest {
            Some(oldest) => links(oldest).older = Some(other_newest),
            None => self.newest = Some(other_newest),
        }
        self.oldest = other.oldest;
        self.len += other.len;
    }
}

/// Where a shard's table lies, for prefetching without its lock.
///
/// The two words may be torn or out of date: they are used for prefetch
/// instructions only, which never fault, so the worst a wrong one costs is a
/// useless cache line. The arithmetic follows hashbrown's layout (control bytes
/// from `control` up, elements from `control` down); should that change,
/// prefetches miss and nothing else happens. A test compares it with where
/// hashbrown really puts an element.
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

    /// Takes the table's place from an element known to lie in `bucket`.
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

    /// Fetches the control group and the elements a probe for `hash` starts at.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        let (control, element) = self.element(hash);
        for address in [control, element, element.wrapping_sub(64)] {
            prefetch(std::ptr::without_provenance::<u8>(address));
        }
    }
}

/// Event counters of one shard.
#[derive(Clone, Copy, Default)]
struct Events {
    total_items: u64,
    evictions: u64,
    evicted_unfetched: u64,
    reclaimed: u64,
    expired_unfetched: u64,
    out_of_memory: u64,
    lock_waits: u64,
    lock_wait_ns: u64,
}

/// Gauges and counters of one size class.
#[derive(Clone, Copy, Default)]
struct Class {
    items: u64,
    bytes: u64,
    evictions: u64,
    evicted_unfetched: u64,
    evicted_with_deadline: u64,
    evicted_idle_s: u32,
    reclaimed: u64,
    expired_unfetched: u64,
}

/// One shard.
pub(super) struct Shard<R: References> {
    table: HashTable<Ptr<R>>,
    /// How often the table has moved its elements; see `scan`.
    rehashes: u64,
    lru: List<R>,
    /// Flushed items: out of the table, not yet freed.
    dead: List<R>,
    dead_bytes: usize,
    /// Footprints of everything in `lru` and `dead`.
    item_bytes: usize,
    /// The last cas value given out; this shard's are congruent to its index
    /// modulo the number of shards, so all are distinct.
    cas: u64,
    cas_step: u64,
    /// How long the item evicted last had been idle.
    evicted_idle_s: u32,
    /// How long a hit leaves an item where it is; see the module.
    refresh_after_s: u32,
    events: Events,
    classes: Box<[Class]>,
}

// SAFETY: the pointers in a shard lead only to items owned by that shard.
unsafe impl<R: References> Send for Shard<R> {}

impl<R: References> Shard<R> {
    pub(super) fn new(index: u64, shards: u64) -> Self {
        Self {
            table: HashTable::new(),
            rehashes: 0,
            lru: List::default(),
            dead: List::default(),
            dead_bytes: 0,
            item_bytes: 0,
            cas: index,
            cas_step: shards,
            evicted_idle_s: 0,
            refresh_after_s: REFRESH_AT_MOST_S,
            events: Events::default(),
            classes: vec![Class::default(); size_class::COUNT].into_boxed_slice(),
        }
    }

    // ---- reads

    /// The live item of `key`. An expired one is unlinked on the way.
    #[inline]
    pub(super) fn find(
        &mut self,
        hash: u64,
        key: &[u8],
        now: Now,
        garbage: &mut Vec<Ptr<R>>,
    ) -> Result<Ptr<R>, Absence> {
        let found = self.table.find(hash, |&node| item(node).key() == key);
        let node = *found.ok_or(Absence::Unknown)?;
        if item(node).deadline().is_past(now) {
            self.expire(hash, node, garbage);
            return Err(Absence::Expired);
        }
        Ok(node)
    }

    #[cold]
    fn expire(&mut self, hash: u64, node: Ptr<R>, garbage: &mut Vec<Ptr<R>>) {
        if item(node).state() & state::FETCHED == 0 {
            self.events.expired_unfetched += 1;
            self.class(footprint(node)).expired_unfetched += 1;
        }
        self.unlink(hash, node, garbage);
    }

    /// Fetches the item (or what looks like it) that `hash` leads to.
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
    #[inline]
    pub(super) fn refresh(&mut self, node: Ptr<R>, now: Now) {
        if now.seconds().saturating_sub(links(node).moved_s) >= self.refresh_after_s {
            self.move_to_front(node, now);
        }
    }

    #[cold]
    fn move_to_front(&mut self, node: Ptr<R>, now: Now) {
        links(node).moved_s = now.seconds();
        if self.lru.newest != Some(node) {
            self.lru.remove(node);
            self.lru.push_newest(node);
        }
    }

    // ---- writes

    /// A fresh cas value, greater than any this shard gave out before.
    pub(super) fn next_cas(&mut self) -> u64 {
        self.cas += self.cas_step;
        self.cas
    }

    /// Makes sure that one more item fits the table without rehashing under an
    /// allocation that may fail. False: no memory.
    pub(super) fn reserve_slot(&mut self, hasher: impl Fn(&[u8]) -> u64) -> bool {
        let is_rehashed = Cell::new(false);
        let reserved = self.table.try_reserve(1, |&node| {
            is_rehashed.set(true);
            hasher(item(node).key())
        });
        self.rehashes += u64::from(is_rehashed.get());
        reserved.is_ok()
    }

    /// Links an item whose key is not in the table. A slot has been reserved.
    pub(super) fn link(&mut self, hash: u64, node: Ptr<R>, now: Now, hint: &TableHint) {
        let buckets_before = hint.buckets();
        let entry = self.table.insert_unique(hash, node, |_| {
            unreachable!("a slot was reserved under the same lock")
        });
        let (element, bucket) = (std::ptr::from_ref(entry.get()).addr(), entry.bucket_index());
        let buckets = self.table.num_buckets();
        if buckets != buckets_before {
            hint.set(element, bucket, buckets);
        }
        links(node).moved_s = now.seconds();
        self.charge(node);
        self.lru.push_newest(node);
        self.events.total_items += 1;
    }

    /// Puts `new` in the place of `old`, which becomes garbage.
    pub(super) fn replace(
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
        links(new).moved_s = now.seconds();
        self.charge(new);
        self.lru.remove(old);
        self.lru.push_newest(new);
        self.discharge(old);
        self.events.total_items += 1;
        self.give_up(old, garbage);
    }

    /// Takes an item out of table and list.
    pub(super) fn unlink(&mut self, hash: u64, node: Ptr<R>, garbage: &mut Vec<Ptr<R>>) {
        if let Ok(entry) = self.table.find_entry(hash, |&other| other == node) {
            entry.remove();
        }
        self.lru.remove(node);
        self.discharge(node);
        self.give_up(node, garbage);
    }

    /// Hands out an item that nothing leads to any more, unless somebody holds it, who will.
    #[inline]
    fn give_up(&mut self, node: Ptr<R>, garbage: &mut Vec<Ptr<R>>) {
        if links(node).references.unlink() {
            garbage.push(node);
        }
    }

    // ---- references

    /// Keeps the item alive until [`release`](Self::release), whatever becomes of its key.
    #[inline]
    pub(super) fn acquire(&mut self, node: Ptr<R>) {
        links(node).references.acquire();
    }

    /// Drops a reference.
    pub(super) fn release(&mut self, node: Ptr<R>, garbage: &mut Vec<Ptr<R>>) {
        if links(node).references.release() {
            garbage.push(node);
        }
    }

    fn charge(&mut self, node: Ptr<R>) {
        let bytes = footprint(node);
        self.item_bytes += bytes;
        let class = self.class(bytes);
        class.items += 1;
        class.bytes += bytes as u64;
    }

    fn discharge(&mut self, node: Ptr<R>) {
        let bytes = footprint(node);
        self.item_bytes -= bytes;
        let class = self.class(bytes);
        class.items -= 1;
        class.bytes -= bytes as u64;
    }

    fn class(&mut self, footprint: usize) -> &mut Class {
        &mut self.classes[size_class::of(footprint) as usize - 1]
    }

    // ---- memory

    fn bytes(&self) -> usize {
        self.item_bytes + self.table.allocation_size()
    }

    /// The most bytes by which one more element makes the table grow: hashbrown
    /// doubles a table that has no free slot, unless elements that were removed
    /// take more than half of the slots.
    #[inline]
    fn growth(&self) -> usize {
        let slots = self.table.num_buckets() / 8 * 7;
        if self.table.capacity() > self.table.len() || self.table.len() < slots / 2 {
            return 0;
        }
        self.table.allocation_size().max(SMALLEST_TABLE)
    }

    /// Makes room for `need` bytes within `budget`, and for a slot of the table
    /// unless an item is replaced: frees flushed items first, then evicts from
    /// the old end (expired items count as reclaimed). `keep` is passed over,
    /// and its bytes count as free: it is about to be replaced.
    pub(super) fn make_room(&mut self, room: &Room<'_, R>, garbage: &mut Vec<Ptr<R>>) -> bool {
        let returned = room.keep.map_or(0, footprint);
        let growth = |shard: &Self| room.keep.map_or_else(|| shard.growth(), |_| 0);
        while self.bytes() - returned + room.need + growth(self) > room.budget {
            if self.reap(1, garbage) == 1 {
                continue;
            }
            let Some(victim) = self.victim(room) else {
                self.events.out_of_memory += 1;
                return false;
            };
            self.evict(victim, room, garbage);
        }
        true
    }

    /// The item to remove next. One that was read in a later second than it
    /// was last moved is moved to the front instead, up to
    /// [`SECOND_CHANCES`] in a row; and so is every live one where none may be
    /// evicted, up to [`PASSED_OVER`], so that each store looks further.
    fn victim(&mut self, room: &Room<'_, R>) -> Option<Ptr<R>> {
        let mut chances = if room.may_evict {
            SECOND_CHANCES
        } else {
            PASSED_OVER
        };
        loop {
            let oldest = self.lru.oldest?;
            let victim = if Some(oldest) == room.keep {
                links(oldest).newer?
            } else {
                oldest
            };
            if item(victim).deadline().is_past(room.now) {
                return Some(victim);
            }
            let read_s = room.now.seconds() - item(victim).idle_s(room.now);
            let unread = read_s <= links(victim).moved_s;
            if chances == 0 || (room.may_evict && unread) {
                return room.may_evict.then_some(victim);
            }
            chances -= 1;
            self.move_to_front(victim, room.now);
        }
    }

    fn evict(&mut self, node: Ptr<R>, room: &Room<'_, R>, garbage: &mut Vec<Ptr<R>>) {
        let victim = item(node);
        let unfetched = victim.state() & state::FETCHED == 0;
        if victim.deadline().is_past(room.now) {
            self.events.reclaimed += 1;
            self.events.expired_unfetched += u64::from(unfetched);
            let class = self.class(footprint(node));
            class.reclaimed += 1;
            class.expired_unfetched += u64::from(unfetched);
        } else {
            self.events.evictions += 1;
            self.events.evicted_unfetched += u64::from(unfetched);
            self.evicted_idle_s = victim.idle_s(room.now);
            self.refresh_after_s = (self.evicted_idle_s / 8).min(REFRESH_AT_MOST_S);
            let class = self.class(footprint(node));
            class.evictions += 1;
            class.evicted_unfetched += u64::from(unfetched);
            class.evicted_with_deadline += u64::from(victim.deadline() != Deadline::NEVER);
            class.evicted_idle_s = victim.idle_s(room.now);
        }
        let hash = (room.hasher)(victim.key());
        self.unlink(hash, node, garbage);
    }

    /// Makes everything unreachable. The items go to the dead list; the old
    /// table is handed out to be freed outside the lock. Constant time but for
    /// the class counters.
    pub(super) fn flush(&mut self, hint: &TableHint) -> HashTable<Ptr<R>> {
        self.dead.append(&mut self.lru);
        self.dead_bytes = self.item_bytes;
        for class in &mut self.classes {
            (class.items, class.bytes) = (0, 0);
        }
        hint.clear();
        std::mem::take(&mut self.table)
    }

    /// Moves up to `limit` flushed items to `garbage`; returns how many.
    pub(super) fn reap(&mut self, limit: usize, garbage: &mut Vec<Ptr<R>>) -> usize {
        let mut reaped = 0;
        while reaped < limit {
            let Some(node) = self.dead.oldest else { break };
            self.dead.remove(node);
            self.item_bytes -= footprint(node);
            self.dead_bytes -= footprint(node);
            self.give_up(node, garbage);
            reaped += 1;
        }
        reaped
    }

    // ---- statistics

    /// Somebody waited so long for this shard's lock.
    #[cold]
    pub(super) fn waited(&mut self, ns: u64) {
        self.events.lock_waits += 1;
        self.events.lock_wait_ns += ns;
    }

    pub(super) fn add_stats(&self, sum: &mut EngineStats) {
        let e = &self.events;
        sum.items += self.lru.len as u64;
        sum.total_items += e.total_items;
        sum.bytes += self.bytes() as u64;
        sum.table_bytes += self.table.allocation_size() as u64;
        sum.dead_bytes += self.dead_bytes as u64;
        sum.buckets += self.table.num_buckets() as u64;
        sum.evictions += e.evictions;
        sum.evicted_unfetched += e.evicted_unfetched;
        sum.reclaimed += e.reclaimed;
        sum.expired_unfetched += e.expired_unfetched;
        sum.out_of_memory += e.out_of_memory;
        sum.lock_waits += e.lock_waits;
        sum.lock_wait_ns += e.lock_wait_ns;
        sum.evicted_idle_s = sum.evicted_idle_s.max(self.evicted_idle_s);
    }

    pub(super) fn add_classes(&self, sums: &mut [ClassStats]) {
        for (index, (class, sum)) in self.classes.iter().zip(sums).enumerate() {
            sum.class = index as u32 + 1;
            sum.max_bytes = size_class::max_bytes(sum.class);
            sum.items += class.items;
            sum.bytes += class.bytes;
            sum.evictions += class.evictions;
            sum.evicted_unfetched += class.evicted_unfetched;
            sum.evicted_with_deadline += class.evicted_with_deadline;
            sum.evicted_idle_s = sum.evicted_idle_s.max(class.evicted_idle_s);
            sum.reclaimed += class.reclaimed;
            sum.expired_unfetched += class.expired_unfetched;
        }
    }

    pub(super) fn reset_stats(&mut self) {
        self.events = Events::default();
        for class in &mut self.classes {
            *class = Class {
                items: class.items,
                bytes: class.bytes,
                ..Class::default()
            };
        }
    }

    /// How often the table has moved its elements.
    pub(super) fn rehashes(&self) -> u64 {
        self.rehashes
    }

    /// Buckets of the table.
    pub(super) fn buckets(&self) -> usize {
        self.table.num_buckets()
    }

    /// Shows the live items in some buckets.
    pub(super) fn show(
        &self,
        buckets: std::ops::Range<usize>,
        now: Now,
        show: &mut dyn FnMut(&ItemView<'_>),
    ) {
        for &node in buckets.filter_map(|bucket| self.table.get_bucket(bucket)) {
            if !item(node).deadline().is_past(now) {
                show(&item(node).view(item(node).before(now), ItemFlags::NONE, footprint(node)));
            }
        }
    }
}

/// What [`Shard::make_room`] is asked for.
pub(super) struct Room<'a, R: References> {
    /// Bytes to be charged afterwards.
    pub(super) need: usize,
    /// The shard's budget.
    pub(super) budget: usize,
    /// The item about to be replaced.
    pub(super) keep: Option<Ptr<R>>,
    /// Whether live items may go.
    pub(super) may_evict: bool,
    /// The clock.
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
    use corewise_ops::Deadline;

    const NOW: Now = Now {
        ms: 9_000,
        unix_s: 0,
    };

    fn node<R: References>(key: &[u8]) -> Ptr<R> {
        let contents = Contents {
            key,
            value: [b"v", b""],
            client_flags: 0,
            deadline: Deadline::NEVER,
            state: 0,
        };
        let (node, footprint) =
            item::create(&GlobalHeap, Links::default(), &contents, NOW).unwrap();
        links(node).footprint = footprint as u32;
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
        let (mut shard, hint) = (Shard::<NoReferences>::new(0, 1), TableHint::new());
        let mut exact = 0u32;
        for i in 0u64..500 {
            let hash = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            assert!(shard.reserve_slot(|key| {
                u64::from_le_bytes(key.try_into().unwrap()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            }));
            shard.link(hash, node(&i.to_le_bytes()), NOW, &hint);
            let element = shard
                .table
                .find(hash, |&n| item(n).key() == i.to_le_bytes())
                .unwrap();
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
        let (mut shard, hint) = (Shard::<NoReferences>::new(0, 1), TableHint::new());
        for round in 0u8..2 {
            for i in 0u8..10 {
                assert!(shard.reserve_slot(|key| u64::from(key[0])));
                shard.link(u64::from(i), node(&[i, round]), NOW, &hint);
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
    fn a_held_item_is_garbage_only_when_it_is_released_whoever_unlinks_it() {
        let (mut shard, hint) = (Shard::<ReferenceCount>::new(0, 1), TableHint::new());
        let mut garbage = Vec::new();
        for way in 0u64..3 {
            let (held, other) = (node(&[1]), node(&[1]));
            assert!(shard.reserve_slot(|_| 7));
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
            assert_eq!(garbage, [held]);
            free(&mut garbage);
            if way == 1 {
                shard.unlink(7, other, &mut garbage);
            } else {
                garbage.push(other);
            }
            free(&mut garbage);
        }
        assert_eq!(shard.item_bytes, 0);
    }
}
