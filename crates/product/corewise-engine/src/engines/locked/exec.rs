//! The operations. Each one is a critical section of one shard.
//!
//! [`verbs`] defines what a verb means. This module defines how the engine finds, makes, links and
//! unlinks items. A new item is made before the lock is taken if its value is known by then (set,
//! add, replace, cas), and inside the lock if the value depends on the present item (append,
//! counters). Where items have references, the outcome of a hit is reported after the lock is
//! released.

use super::shard::{Links, Ptr, Room, Shard, footprint, item};
use super::{HashTables, LockedShard, References};
use crate::alloc::ItemAllocator;
use crate::engines::sharded::{Context, Shards};
use crate::engines::verbs::{self, Attempt, ItemStore, NoItem};
use crate::item::{Before, Contents, Item};
use crate::objects::{self, ObjectMemory};
use corewise_ops::{
    Absence, Flow, Get, ItemFlags, ItemView, Now, Op, Outcome, ReplySink, Store, StoreMode, Update,
    Updated, Verb,
};

/// One operation about to be executed.
pub(super) struct Exec<'e, A: ItemAllocator, R: References> {
    shards: &'e HashTables<A, R>,
    slot: &'e LockedShard<R>,
    context: Context,
    garbage: &'e mut Vec<Ptr<R>>,
}

/// An operation that holds its shard's lock.
struct LockedOp<'x, 'e, A: ItemAllocator, R: References> {
    exec: &'x mut Exec<'e, A, R>,
    shard: &'x mut Shard<R>,
    key: &'x [u8],
    /// An item to be reported outside the lock, kept alive by a reference.
    found: Option<(Ptr<R>, ItemView<'e>)>,
}

/// A reference to an item, [acquired](Shard::acquire) in the shard of `exec`. Dropping it takes the
/// lock.
struct AcquiredItem<'h, 'e, A: ItemAllocator, R: References> {
    exec: &'h mut Exec<'e, A, R>,
    node: Ptr<R>,
}

impl<A: ItemAllocator, R: References> Drop for AcquiredItem<'_, '_, A, R> {
    fn drop(&mut self) {
        let mut shard = self.exec.slot.lock();
        // SAFETY: it is the reference that this value stands for (1).
        unsafe { shard.release(self.node, self.exec.garbage) };
    }
}

impl<'e, A: ItemAllocator, R: References> Exec<'e, A, R> {
    #[inline]
    pub(super) fn new(
        shards: &'e HashTables<A, R>,
        context: Context,
        garbage: &'e mut Vec<Ptr<R>>,
    ) -> Self {
        Self {
            shards,
            slot: shards.slot(context.hash),
            context,
            garbage,
        }
    }

    /// Executes `op` and reports its outcome.
    #[inline]
    pub(super) fn run<S: ReplySink>(mut self, op: &Op<'_>, sink: &mut S) -> Flow {
        let mut report = |outcome: Outcome<'_>| sink.complete(op.token, outcome);
        let attempt = match op.verb {
            Verb::Get(get) => self.get(op.key, get, &mut report),
            Verb::Store(store) => self.store(op.key, &store, &mut report),
            Verb::Delete(delete) => {
                self.inside(op.key, |inside| verbs::delete(inside, delete, &mut report))
            }
            Verb::Arith(arith) => {
                self.inside(op.key, |inside| verbs::arith(inside, arith, &mut report))
            }
            Verb::Edit(edit) => self.inside(op.key, |inside| {
                verbs::edit(inside, op.key, &edit, &mut report)
            }),
            Verb::Sorted(sorted) => self.inside(op.key, |inside| {
                objects::execute(inside, op.key, sorted, &mut report)
            }),
            Verb::Filter(filter) => self.inside(op.key, |inside| {
                objects::execute_filter(inside, op.key, filter, &mut report)
            }),
        };
        // Room is made inside the lock, so this engine never asks for it.
        attempt.unwrap_or(Flow::Continue)
    }

    /// Executes a change that no verb describes.
    pub(super) fn update(mut self, key: &[u8], update: &mut dyn Update) -> Updated {
        let updated = self.inside(key, |inside| verbs::update(inside, key, update));
        // Room is made inside the lock, so this engine never asks for it.
        updated.unwrap_or(Updated::OutOfMemory)
    }

    /// Reports with the lock held, or, for a hit, with a reference that keeps its item alive.
    #[inline]
    fn get(
        &mut self,
        key: &[u8],
        get: Get,
        report: &mut impl FnMut(Outcome<'_>) -> Flow,
    ) -> Attempt {
        let (attempt, found) = self.inside(key, |inside| {
            let attempt = verbs::get(inside, get, &mut *report);
            (attempt, inside.found.take())
        });
        let Some((node, view)) = found else {
            return attempt;
        };
        let _held = AcquiredItem { exec: self, node };
        Ok(report(Outcome::Found(view)))
    }

    #[inline(always)]
    fn inside<T>(&mut self, key: &[u8], run: impl FnOnce(&mut LockedOp<'_, 'e, A, R>) -> T) -> T {
        let slot = self.slot;
        let shard = &mut *slot.lock();
        run(&mut LockedOp {
            exec: self,
            shard,
            key,
            found: None,
        })
    }

    /// Makes an item that is not linked yet.
    fn create(&self, contents: &Contents<'_>) -> Result<Ptr<R>, NoItem> {
        if contents.payload() > self.context.rules.max_item_bytes || !contents.fits_header() {
            return Err(NoItem::TooLarge);
        }
        let allocator = &self.shards.allocator;
        let made = crate::item::create(allocator, Links::default(), contents, self.context.now);
        let (node, footprint) = made.ok_or(NoItem::OutOfMemory)?;
        // SAFETY: the item was just made; no other thread can reach it. Footprints are below 2^32
        // because items are (`MAX_VALUE_BYTES`).
        unsafe { (*node.as_ptr()).links.footprint = footprint as u32 };
        Ok(node)
    }

    fn store(
        &mut self,
        key: &[u8],
        store: &Store<'_>,
        report: &mut dyn FnMut(Outcome<'_>) -> Flow,
    ) -> Attempt {
        if matches!(store.mode, StoreMode::Append | StoreMode::Prepend) {
            return self.inside(key, |inside| verbs::extend(inside, store, report));
        }
        // Outside the lock: allocate and copy.
        let contents = Contents::new(key, store.value, store.client_flags, store.deadline);
        let fresh = self.create(&contents);
        // SAFETY: made above, for this operation (1).
        self.inside(key, |inside| unsafe {
            verbs::put(inside, store, fresh, report)
        })
    }
}

/// Bytes that are freed when an item is replaced, those of its set in steps.
///
/// # Safety
///
/// 1. The item is in the table of a shard that the caller has locked, and nothing refers to its
///    set.
unsafe fn returned<R: References>(node: Ptr<R>) -> usize {
    // SAFETY: in the table, by 1 (1, all). The shard is locked; the reference ends here (2).
    unsafe {
        let owner = item(node);
        let of_set = match owner.kind() {
            kind if kind.owns_object() => objects::bytes_of(owner),
            _ => 0,
        };
        footprint(node) + of_set
    }
}

// SAFETY: the shard's lock is held until this is dropped, and what is unlinked meanwhile is
// garbage, which is freed after that (1); `Shard::give_up` takes its set (3). 2: see `publish`.
unsafe impl<A: ItemAllocator, R: References> ItemStore for LockedOp<'_, '_, A, R> {
    type Links = Links<R>;

    fn key(&self) -> &[u8] {
        self.key
    }

    #[inline]
    fn now(&self) -> Now {
        self.exec.context.now
    }

    #[inline]
    fn find(&mut self) -> Result<Ptr<R>, Absence> {
        self.shard.find(
            self.exec.context.hash,
            self.key,
            self.exec.context.now,
            self.exec.garbage,
        )
    }

    fn create(&mut self, contents: &Contents<'_>) -> Result<Ptr<R>, NoItem> {
        self.exec.create(contents)
    }

    unsafe fn discard(&mut self, fresh: Ptr<R>) {
        self.exec.garbage.push(fresh);
    }

    unsafe fn publish(
        &mut self,
        node: Ptr<R>,
        old: Option<Ptr<R>>,
        cas: Option<u64>,
    ) -> Result<(), NoItem> {
        let (shards, rules) = (self.exec.shards, self.exec.context.rules);
        let hasher = |key: &[u8]| shards.hash(key);
        let room = Room {
            // SAFETY: a store's items are alive until the store is dropped (1).
            need: unsafe { footprint(node) },
            budget: rules.budget,
            keep: old,
            // SAFETY: found in this shard's table, under the lock that we have (1).
            returned: old.map_or(0, |old| unsafe { returned(old) }),
            may_evict: rules.may_evict,
            now: self.exec.context.now,
            hasher: &hasher,
        };
        // SAFETY: `old` was found in this shard's table, under the lock that we have (1).
        let fits = unsafe { self.shard.make_room(&room, self.exec.garbage) }
            && (old.is_some() || self.shard.reserve_slot(hasher));
        if !fits {
            // SAFETY: the item was made for this store and is not linked (1).
            unsafe { self.discard(node) };
            return Err(NoItem::OutOfMemory);
        }
        // SAFETY: an item of ours, which this function keeps (1).
        unsafe { item(node) }.set_cas(cas.unwrap_or_else(|| self.shard.next_cas()));
        // SAFETY: `old` is in the table still, since `make_room` has kept it (1). Only we can reach
        // the new item (2, and 1 for `link`).
        unsafe {
            match old {
                Some(old) => {
                    self.shard.replace(
                        self.exec.context.hash,
                        old,
                        node,
                        self.exec.context.now,
                        self.exec.garbage,
                    );
                }
                None => {
                    self.shard.link(
                        self.exec.context.hash,
                        node,
                        self.exec.context.now,
                        &self.exec.slot.hint,
                    );
                }
            }
        }
        Ok(())
    }

    fn has_set_room(&mut self, bytes: usize, growth: usize) -> bool {
        let budget = self.exec.context.rules.budget;
        objects::may_take(bytes + growth, budget) && self.shard.bytes() + growth <= budget
    }

    fn make_set_room(&mut self, bytes: usize, growth: usize) -> Result<(), NoItem> {
        let (shards, rules) = (self.exec.shards, self.exec.context.rules);
        // Before anything is evicted for it.
        if !objects::may_take(bytes + growth, rules.budget) {
            self.shard.refuse();
            return Err(NoItem::OutOfMemory);
        }
        let hasher = |key: &[u8]| shards.hash(key);
        let keep = self.find().ok();
        let room = Room {
            need: growth,
            budget: rules.budget,
            keep,
            returned: 0,
            may_evict: rules.may_evict,
            now: self.exec.context.now,
            hasher: &hasher,
        };
        // SAFETY: `keep` was found in this shard's table, under the lock that we have (1).
        if unsafe { self.shard.make_room(&room, self.exec.garbage) } {
            Ok(())
        } else {
            Err(NoItem::OutOfMemory)
        }
    }

    fn charge_set(&mut self, before: usize, after: usize) {
        self.shard.charge_set(before, after);
    }

    fn note_unsettled_set(&mut self) {
        self.shard.note_unsettled_set(self.exec.context.hash);
    }

    fn set_account(&self) -> usize {
        std::ptr::from_ref(&*self.shard).addr()
    }

    fn object_memory(&self) -> &ObjectMemory {
        self.shard.object_memory()
    }

    fn next_cas(&mut self) -> u64 {
        self.shard.next_cas()
    }

    unsafe fn unlink(&mut self, node: Ptr<R>) {
        // SAFETY: found in this shard's table, under the lock that we have (1).
        unsafe {
            self.shard
                .unlink(self.exec.context.hash, node, self.exec.garbage)
        };
    }

    #[inline]
    unsafe fn show(
        &mut self,
        node: Ptr<R>,
        before: Before,
        flags: ItemFlags,
        report: &mut impl FnMut(Outcome<'_>) -> Flow,
    ) -> Flow {
        // SAFETY: an item of ours, alive until the lock is released or, if the view is reported
        // later, until the reference that is acquired below is dropped (1, both).
        let view = unsafe { item(node).view(before, flags, footprint(node)) };
        if !R::COUNTED {
            return report(Outcome::Found(view));
        }
        // SAFETY: found in this shard's table (1).
        unsafe { self.shard.acquire(node) };
        self.found = Some((node, view));
        Flow::Continue // ignored: `Exec::get` reports
    }

    #[inline]
    unsafe fn hit(&mut self, node: Ptr<R>) {
        // SAFETY: found in this shard's table (1, both).
        unsafe {
            item(node).record_hit(self.exec.context.now);
            self.shard.refresh(node, self.exec.context.now);
        }
    }

    unsafe fn touched(&mut self, node: Ptr<R>) {
        // SAFETY: a store's items are alive until the store is dropped (1).
        self.shard.touched(unsafe { item(node) }.deadline());
    }

    unsafe fn touch_on_add(&mut self, node: Ptr<R>) {
        // SAFETY: found in this shard's table (1).
        unsafe { self.shard.refresh(node, self.exec.context.now) };
    }

    #[inline]
    unsafe fn item(&self, node: Ptr<R>) -> Item<'_, Links<R>> {
        // SAFETY: an item of ours, which we keep while we are borrowed (1).
        unsafe { item(node) }
    }

    #[inline]
    unsafe fn footprint(&self, node: Ptr<R>) -> usize {
        // SAFETY: a store's items are alive until the store is dropped (1).
        unsafe { footprint(node) }
    }
}
