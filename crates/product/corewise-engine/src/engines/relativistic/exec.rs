//! The operations.
//!
//! A plain `get` runs in a read-side section and takes no lock. Every other operation holds the
//! lock of its key's stripe while it runs ([`LockedOp`]), so that the writers of a key exclude one
//! another. [`verbs`] defines what the verbs mean.
//!
//! Room is made before a stripe is locked ([`SessionState::make_room`]): no thread evicts or waits
//! for readers while it holds a stripe or is in a section. An operation that finds inside that
//! there is no room gives up before it has changed anything, and is tried again, [a bounded number
//! of times](ATTEMPTS).

use super::heap::Ptr;
use super::session_state::{SessionState, Wanted};
use super::{Relativistic, Stripe};
use crate::contention;
use crate::engines::verbs::{self, Attempt, ItemStore, NeedsRoom, NoItem, Report};
use crate::item::{Contents, Item, state};
use crate::objects::{self, ObjectMemory};
use crate::reservation::Reservation;
use corewise_atomic::barrier;
use corewise_atomic::lock::MutexGuard;
use corewise_atomic::mutant;
use corewise_maps::relativistic::Link;
use corewise_ops::filter::FilterOp;
use corewise_ops::sorted::SortedOp;
use corewise_ops::{
    Absence, Flow, Get, Now, Op, Outcome, ReplySink, Store, StoreMode, Update, Updated, Verb,
};
use corewise_rcu::Guard;

/// How often an operation begins before it answers that there is no memory. It begins again when
/// another session interfered: took the room that was made, flushed the cache, or evicted the item
/// that was found.
const ATTEMPTS: u32 = 64;
/// How often a store makes its item before it locks the stripe, so that no thread waits while the
/// value is copied. After that it makes the item inside the lock; then it fails only if a flush
/// comes between two instructions.
const ATTEMPTS_OUTSIDE: u32 = 4;

/// One operation about to be executed.
pub(super) struct Exec<'e> {
    pub(super) engine: &'e Relativistic,
    pub(super) session_state: &'e mut SessionState,
    /// The key's hash, reduced to the part that the table uses.
    pub(super) hash: u64,
    pub(super) now: Now,
}

impl<'e> Exec<'e> {
    /// Executes `op` and reports its outcome. Inlined into the loop over a batch.
    #[inline(always)]
    pub(super) fn run<S: ReplySink>(mut self, op: &Op<'_>, sink: &mut S) -> Flow {
        let mut report = |outcome: Outcome<'_>| sink.complete(op.token, outcome);
        match op.verb {
            Verb::Get(get) => match self.read(op.key, &get, &mut report) {
                Some(flow) => flow,
                // It changes the item, or makes one.
                None => self.change(op, &mut report),
            },
            Verb::Store(store) if is_whole(&store) => self.store(op.key, &store, &mut report),
            Verb::Sorted(sorted) => {
                let is_write = matches!(sorted, SortedOp::Write(_));
                self.on_object(op.key, is_write, &mut report, |inside, report| {
                    objects::execute(inside, op.key, sorted, report)
                })
            }
            Verb::Filter(filter) => {
                let is_write = matches!(filter, FilterOp::Write(_));
                self.on_object(op.key, is_write, &mut report, |inside, report| {
                    objects::execute_filter(inside, op.key, filter, report)
                })
            }
            _ => self.change(op, &mut report),
        }
    }

    /// Executes a `get` that need not exclude other threads; returns `None` if it must.
    #[inline]
    fn read(
        &mut self,
        key: &[u8],
        get: &Get,
        report: &mut impl FnMut(Outcome<'_>) -> Flow,
    ) -> Option<Flow> {
        let engine = self.engine;
        let guard = engine.table.domain().pin();
        // SAFETY: the guard is of the table's domain (1).
        let absence = match unsafe { engine.find(&guard, self.hash, key, self.now) } {
            Ok(node) => {
                // SAFETY: found under the guard, which keeps the item alive.
                let found: Item<'_, Link> = unsafe { Item::from_raw(node) };
                if !found.is_string() && !get.any_kind {
                    return Some(report(Outcome::WrongKind));
                }
                let before = found.before(self.now);
                let sent = before.state & state::WIN_SENT != 0;
                let wins = !sent && may_win(get, found, before.state, self.now);
                // These change the item under the stripe.
                if get.touch.is_some() || wins {
                    return None;
                }
                if !get.quiet {
                    found.record_shared_hit(self.now);
                }
                let flags = verbs::win_flags(false, sent);
                let view = found.view(before, flags, engine.heap.footprint(found));
                return Some(report(Outcome::Found(view)));
            }
            Err(absence) => absence,
        };
        // A get that vivifies makes the item that is missing.
        let plain = get.vivify.is_none();
        plain.then(|| report(Outcome::Missing(absence)))
    }

    /// Set, add, replace, cas: makes the item before it locks the stripe.
    #[inline]
    fn store(
        &mut self,
        key: &[u8],
        store: &Store<'_>,
        report: &mut dyn FnMut(Outcome<'_>) -> Flow,
    ) -> Flow {
        self.store_after(key, store, report, || {})
    }

    /// As [`Self::store`], and calls `when_made` when the item has been made.
    #[inline]
    pub(super) fn store_after(
        &mut self,
        key: &[u8],
        store: &Store<'_>,
        report: &mut dyn FnMut(Outcome<'_>) -> Flow,
        mut when_made: impl FnMut(),
    ) -> Flow {
        let contents = Contents::new(key, store.value, store.client_flags, store.deadline);
        let (state, old_bytes) = self.peek(key);
        self.enter(state);
        if let Ok(bytes) = self.engine.size(&contents) {
            self.session_state.evict_ahead(self.engine, self.now, bytes);
        }
        self.session_state.refused = false;
        for attempt in 0..ATTEMPTS {
            let attempt = if attempt < ATTEMPTS_OUTSIDE {
                let fresh = self.make(&contents, old_bytes);
                when_made();
                // SAFETY: `make` has just made the item for this operation, and it is not linked
                // (1).
                self.inside(key, |inside| unsafe {
                    verbs::put(inside, store, fresh, report)
                })
            } else {
                self.inside(key, |inside| {
                    inside.old_bytes = old_bytes;
                    match inside.create(&contents) {
                        Err(NoItem::NotYet(bytes)) => Err(NeedsRoom(bytes)),
                        // SAFETY: the store itself has just made the item, and it is not linked
                        // (1).
                        fresh => unsafe { verbs::put(inside, store, fresh, report) },
                    }
                })
            };
            match attempt {
                Ok(flow) => return flow,
                Err(NeedsRoom(bytes)) => self.make_room(bytes, old_bytes, false),
            }
        }
        self.give_up(report)
    }

    /// Answers that there is no memory.
    #[cold]
    fn give_up(&mut self, report: &mut dyn FnMut(Outcome<'_>) -> Flow) -> Flow {
        self.session_state.counters.out_of_memory.add(1);
        report(Outcome::OutOfMemory)
    }

    /// The state bits of the present item, for the eviction policy, and its bytes.
    #[inline]
    pub(super) fn peek(&self, key: &[u8]) -> (Option<u8>, usize) {
        let engine = self.engine;
        let guard = engine.table.domain().pin();
        // SAFETY: the guard is of the table's domain (1).
        let Some(node) = (unsafe { engine.find_any(&guard, self.hash, key) }) else {
            return (None, 0);
        };
        // SAFETY: found under the guard, which keeps the item alive.
        let found = unsafe { Item::<Link>::from_raw(node) };
        (Some(found.state()), engine.heap.footprint(found))
    }

    /// Decides where the operation's new item goes, which replaces an item with this state.
    fn enter(&mut self, old: Option<u8>) {
        let entrance = self.engine.policy.entrance(self.hash, old);
        self.session_state.set_entrance(entrance);
    }

    /// Makes an item, after making room for it if necessary.
    fn make(&mut self, contents: &Contents<'_>, old_bytes: usize) -> Result<Ptr, NoItem> {
        let bytes = self.engine.size(contents)?;
        let wanted = Wanted {
            bytes,
            old_bytes,
            counts: false,
        };
        for _ in 0..ATTEMPTS {
            let made = self
                .session_state
                .create(self.engine, contents, wanted, self.now);
            if let Some(made) = made {
                return Ok(made);
            }
            if !self.session_state.make_room(self.engine, self.now, wanted) {
                break;
            }
        }
        self.session_state.counters.out_of_memory.add(1);
        Err(NoItem::OutOfMemory)
    }

    fn make_room(&mut self, bytes: usize, old_bytes: usize, counts: bool) {
        let wanted = Wanted {
            bytes,
            old_bytes,
            counts,
        };
        self.session_state.refused = !self.session_state.make_room(self.engine, self.now, wanted);
    }

    /// Executes the operations that need the stripe from the start.
    #[cold]
    fn change(&mut self, op: &Op<'_>, report: &mut dyn FnMut(Outcome<'_>) -> Flow) -> Flow {
        self.session_state.refused = false;
        let mut old_bytes = 0;
        // Before the stripe is locked: evict, and choose the queue of the new item.
        if makes_items(&op.verb) {
            let state;
            (state, old_bytes) = self.peek(op.key);
            self.enter(state);
            self.session_state
                .evict_ahead(self.engine, self.now, old_bytes);
        }
        for _ in 0..ATTEMPTS {
            let attempt = self.inside(op.key, |inside| match op.verb {
                Verb::Get(get) => verbs::get(inside, get, &mut *report),
                Verb::Store(store) => verbs::extend(inside, &store, report),
                Verb::Delete(delete) => verbs::delete(inside, delete, report),
                Verb::Arith(arith) => {
                    inside.counts = true;
                    verbs::arith(inside, arith, report)
                }
                Verb::Edit(edit) => verbs::edit(inside, op.key, &edit, report),
                Verb::Sorted(sorted) => objects::execute(inside, op.key, sorted, report),
                Verb::Filter(filter) => objects::execute_filter(inside, op.key, filter, report),
            });
            match attempt {
                Ok(flow) => return flow,
                Err(NeedsRoom(bytes)) => {
                    let counts = matches!(op.verb, Verb::Arith(_));
                    self.make_room(bytes, old_bytes, counts);
                }
            }
        }
        self.give_up(report)
    }

    /// Executes an operation on an object.
    #[cold]
    fn on_object(
        &mut self,
        key: &[u8],
        is_write: bool,
        report: Report<'_>,
        mut execute: impl FnMut(&mut LockedOp<'_>, Report<'_>) -> Attempt,
    ) -> Flow {
        self.session_state.refused = false;
        let mut old_bytes = 0;
        if is_write {
            let state;
            (state, old_bytes) = self.peek(key);
            self.enter(state);
            self.session_state
                .evict_ahead(self.engine, self.now, old_bytes);
        }
        for _ in 0..ATTEMPTS {
            let attempt = self.inside(key, |inside| execute(inside, &mut *report));
            if std::mem::take(&mut self.session_state.has_charged) {
                // What the set has taken is taken from the segments.
                self.engine.budget_for_sets();
            }
            match (attempt, self.session_state.wanted_growth.take()) {
                (Ok(flow), _) => return flow,
                (Err(NeedsRoom(_)), Some(growth)) => {
                    let session_state = &mut *self.session_state;
                    let wanted = (self.hash, growth);
                    session_state.refused =
                        !session_state.make_set_room(self.engine, self.now, wanted);
                }
                (Err(NeedsRoom(bytes)), None) => self.make_room(bytes, old_bytes, false),
            }
        }
        self.give_up(report)
    }

    /// Executes a change that no verb describes.
    pub(super) fn update(&mut self, key: &[u8], update: &mut dyn Update) -> Updated {
        self.session_state.refused = false;
        let (state, old_bytes) = self.peek(key);
        self.enter(state);
        self.session_state
            .evict_ahead(self.engine, self.now, old_bytes);
        for _ in 0..ATTEMPTS {
            match self.inside(key, |inside| verbs::update(inside, key, update)) {
                Ok(updated) => return updated,
                Err(NeedsRoom(bytes)) => self.make_room(bytes, old_bytes, false),
            }
        }
        self.session_state.counters.out_of_memory.add(1);
        Updated::OutOfMemory
    }

    /// Runs `run` with the key's stripe locked.
    #[inline]
    pub(super) fn inside<T>(&mut self, key: &[u8], run: impl FnOnce(&mut LockedOp<'_>) -> T) -> T {
        self.inside_with(key, None, run)
    }

    /// As [`Self::inside`], for the item of a reservation; no other item may be published then.
    #[inline]
    pub(super) fn inside_with<T>(
        &mut self,
        key: &[u8],
        reserved: Option<&Reservation>,
        run: impl FnOnce(&mut LockedOp<'_>) -> T,
    ) -> T {
        let engine = self.engine;
        let (stripe, waited) = contention::lock(engine.stripe(self.hash));
        if let Some(ns) = waited {
            self.session_state.counters.lock_waits.add(1);
            self.session_state.counters.lock_wait_ns.add(ns);
        }
        let mut inside = LockedOp {
            generation: engine.generation().number,
            engine,
            session_state: &mut *self.session_state,
            guard: engine.table.domain().pin(),
            stripe,
            hash: self.hash,
            now: self.now,
            key,
            old_bytes: 0,
            counts: false,
            reserved,
        };
        run(&mut inside)
    }
}

/// Whether the new item's value does not depend on the present item.
pub(super) fn is_whole(store: &Store<'_>) -> bool {
    !matches!(store.mode, StoreMode::Append | StoreMode::Prepend)
}

/// Whether the verb may make an item.
fn makes_items(verb: &Verb<'_>) -> bool {
    match verb {
        Verb::Get(get) => get.vivify.is_some(),
        Verb::Delete(delete) => delete.mark_stale || delete.drop_value,
        _ => true,
    }
}

/// Whether a get would win the item's token if it has not been sent.
#[inline]
fn may_win(get: &Get, found: Item<'_, Link>, state: u8, now: Now) -> bool {
    let is_near = |below| {
        let remaining = found.deadline().remaining_ms(now);
        remaining.is_some_and(|remaining| remaining < below)
    };
    get.claim_stale && state & state::STALE != 0 || get.recache_below_ms.is_some_and(is_near)
}

/// An operation that holds its key's stripe.
pub(super) struct LockedOp<'x> {
    engine: &'x Relativistic,
    session_state: &'x mut SessionState,
    /// Of the domain of the engine's table.
    guard: Guard<'x>,
    stripe: MutexGuard<'x, Stripe>,
    hash: u64,
    now: Now,
    key: &'x [u8],
    /// The generation when the operation took effect.
    generation: u32,
    /// Bytes of the item that was found.
    old_bytes: usize,
    /// The operation is an increment or decrement.
    counts: bool,
    /// The item to be published, if it is a reservation's: the reservation then gives it up, and is
    /// notified when it is linked.
    reserved: Option<&'x Reservation>,
}

impl LockedOp<'_> {
    fn generation_of(&self, node: Ptr) -> u32 {
        let heap = &self.engine.heap;
        heap.generation(heap.segment_of(node))
    }
}

// SAFETY: the guard keeps what `find` returns until this is dropped, and an item that was made and
// is not linked belongs to the operation (1). `publish` links the item or discards it, see there
// (2). The stripe is held, and `count_unlinked` takes the set (3).
unsafe impl ItemStore for LockedOp<'_> {
    type Links = Link;

    fn key(&self) -> &[u8] {
        self.key
    }

    #[inline]
    fn now(&self) -> Now {
        self.now
    }

    #[inline]
    fn find(&mut self) -> Result<Ptr, Absence> {
        let engine = self.engine;
        // SAFETY: the guard is of the table's domain (1).
        let found = unsafe { engine.find_any(&self.guard, self.hash, self.key) };
        let node = found.ok_or(Absence::Unknown)?;
        // SAFETY: found under the guard, which keeps the item alive.
        let found: Item<'_, Link> = unsafe { Item::from_raw(node) };
        if self.generation_of(node) < self.generation {
            // SAFETY: the item was found above, in the table, for the operation's key (1).
            unsafe { self.unlink(node) };
            return Err(Absence::Flushed);
        }
        if found.deadline().is_past(self.now) {
            self.session_state
                .counters
                .expired_found(engine.heap.removed(found));
            // SAFETY: the item was found above, in the table, for the operation's key (1).
            unsafe { self.unlink(node) };
            return Err(Absence::Expired);
        }
        self.old_bytes = engine.heap.footprint(found);
        Ok(node)
    }

    fn create(&mut self, contents: &Contents<'_>) -> Result<Ptr, NoItem> {
        let bytes = self.engine.size(contents)?;
        let wanted = Wanted {
            bytes,
            old_bytes: self.old_bytes,
            counts: self.counts,
        };
        match self
            .session_state
            .create(self.engine, contents, wanted, self.now)
        {
            Some(node) => Ok(node),
            None if self.session_state.refused => {
                self.session_state.counters.out_of_memory.add(1);
                Err(NoItem::OutOfMemory)
            }
            None => Err(NoItem::NotYet(bytes)),
        }
    }

    unsafe fn discard(&mut self, fresh: Ptr) {
        if self.reserved.is_none() {
            // SAFETY: the session has made the item for this operation, and it was not linked, by
            // the contract of this function (1).
            unsafe { self.session_state.discard(self.engine, fresh) };
        }
    }

    unsafe fn publish(
        &mut self,
        fresh: Ptr,
        old: Option<Ptr>,
        cas: Option<u64>,
    ) -> Result<(), NoItem> {
        let engine = self.engine;
        // SAFETY: no other thread can reach the item yet.
        let item: Item<'_, Link> = unsafe { Item::from_raw(fresh) };
        let bytes = engine.heap.footprint(item);
        let is_current = self.generation_of(fresh) == self.generation;
        if !is_current && !mutant!("publishes_in_any_generation") {
            // A flush came in between: the item would vanish together with the item it depends on.
            // SAFETY: `fresh` was made for this operation and is not linked (1).
            unsafe { self.discard(fresh) };
            return Err(NoItem::NotYet(bytes));
        }
        item.set_cas(cas.unwrap_or_else(|| self.stripe.next_cas()));
        engine.note_deadline(fresh, item.deadline());
        let id = engine.heap.id(fresh);
        match old {
            Some(old) => {
                // SAFETY: the guard is of the table's domain; `old` was found under it; `fresh` is
                // an item of the arena's in no table, of the same key.
                let replaced = unsafe { engine.table.replace(&self.guard, old.cast(), id) };
                if replaced.is_none() && !mutant!("forgets_the_eviction") {
                    // The old item has been evicted since it was found, and readers may have missed
                    // it: a value derived from it, or stored because it was present, would come
                    // back.
                    // SAFETY: `fresh` was made for this operation and is not linked (1).
                    unsafe { self.discard(fresh) };
                    return Err(NoItem::NotYet(bytes));
                }
                // SAFETY: the new item has just replaced this one in the table under the guard (1).
                // The stripe is held (2).
                unsafe { engine.count_unlinked(&self.session_state.counters, old) };
            }
            None => {
                // SAFETY: the guard is of the table's domain; `fresh` is an item of the arena's in
                // no table. (The key's other writers are excluded, so the key is not in the table.)
                let inserted = unsafe { engine.table.insert(&self.guard, id, |_| false) };
                debug_assert!(inserted.is_ok());
                self.session_state.unreported += 1;
            }
        }
        if let Some(reservation) = self.reserved.take() {
            // SAFETY: the item is stored, so the reservation is only dropped afterwards, by the
            // contract of `publish_reserved` (1).
            unsafe { reservation.disown_item() };
        }
        self.session_state.counters.total_items.add(1);
        self.session_state.counters.linked(item.key(), bytes);
        // SAFETY: the item is written whole and has just been linked (1).
        unsafe { engine.heap.settle(fresh, bytes) };
        Ok(())
    }

    fn has_set_room(&mut self, bytes: usize, growth: usize) -> bool {
        self.engine.set_room() >= growth as i64 && self.engine.may_have_set(bytes + growth)
    }

    fn make_set_room(&mut self, bytes: usize, growth: usize) -> Result<(), NoItem> {
        if self.has_set_room(bytes, growth) {
            return Ok(());
        }
        if self.session_state.refused || !self.engine.may_have_set(bytes + growth) {
            self.session_state.counters.out_of_memory.add(1);
            return Err(NoItem::OutOfMemory);
        }
        self.session_state.wanted_growth = Some(growth);
        Err(NoItem::NotYet(growth))
    }

    fn charge_set(&mut self, before: usize, after: usize) {
        self.engine.sets.charge(before, after);
        self.session_state.has_charged |= before != after;
    }

    fn note_unsettled_set(&mut self) {
        self.engine.sets.note_unsettled(self.hash);
    }

    fn set_account(&self) -> usize {
        0
    }

    fn object_memory(&self) -> &ObjectMemory {
        self.engine.sets.memory()
    }

    fn next_cas(&mut self) -> u64 {
        self.stripe.next_cas()
    }

    unsafe fn unlink(&mut self, node: Ptr) {
        // SAFETY: the guard is of the table's domain, and the node was found under it, by 1.
        let removed = unsafe { self.engine.table.remove(&self.guard, node.cast()) };
        if removed.is_some() {
            self.session_state.unreported -= 1;
            // SAFETY: the item was just removed from the table, under the guard (1). The stripe is
            // held (2).
            unsafe {
                self.engine
                    .count_unlinked(&self.session_state.counters, node)
            };
        }
    }

    unsafe fn hit(&mut self, node: Ptr) {
        // SAFETY: the node is one of this store's items and still linked, by the contract of this
        // function.
        unsafe { self.item(node) }.record_shared_hit(self.now);
    }

    unsafe fn touched(&mut self, node: Ptr) {
        // SAFETY: the node is one of this store's items and still linked, by the contract of this
        // function.
        let deadline = unsafe { self.item(node) }.deadline();
        // Pairs with the heavy barrier in `SegmentSearch::reset_due_time`: either the search sees
        // the deadline, or this thread sees that the search has reset the due time, and
        // `note_deadline` lowers it again.
        barrier::light();
        self.engine.note_deadline(node, deadline);
    }

    unsafe fn touch_on_add(&mut self, node: Ptr) {
        // SAFETY: the node is one of this store's items and still linked, by the contract of this
        // function.
        unsafe { self.item(node) }.record_use(self.now, 0);
    }

    unsafe fn item(&self, node: Ptr) -> Item<'_, Link> {
        // SAFETY: found under the guard, or made for this operation, by 1.
        unsafe { Item::from_raw(node) }
    }

    unsafe fn footprint(&self, node: Ptr) -> usize {
        // SAFETY: the node is one of this store's items and still linked, by the contract of this
        // function.
        self.engine.heap.footprint(unsafe { self.item(node) })
    }
}
