//! The operations.
//!
//! A plain `get` runs in a read-side section and takes no lock. Everything else holds the lock of its
//! key's stripe while it runs ([`Inside`]), so that the writers of a key exclude one another; what the
//! verbs mean is in [`verbs`](crate::engines::verbs).
//!
//! Room is made before a stripe is locked ([`Core::ensure`]): nobody evicts, and nobody waits for
//! readers, with a stripe or in a section. A verb that finds out how much it needs only inside
//! (`append`) gives up before it has changed anything, and is tried again.

use super::core::Core;
use super::heap::Ptr;
use super::{Relativistic, Stripe};
use crate::contention;
use crate::engines::verbs::{self, Attempt, Keeper, NeedsRoom, NoItem};
use crate::item::{Contents, Item, state};
use corewise_atomic::lock::MutexGuard;
use corewise_atomic::mutant;
use corewise_maps::relativistic::Link;
use corewise_ops::{Absence, Flow, Get, Now, Op, Outcome, ReplySink, Store, StoreMode, Verb};
use corewise_rcu::Guard;

/// How often a verb is tried again because what it needs has grown meanwhile, before it is told that
/// there is no memory.
const ATTEMPTS: u32 = 16;

/// One operation about to be executed.
pub(super) struct Exec<'e> {
    pub(super) engine: &'e Relativistic,
    pub(super) core: &'e mut Core,
    /// Reduced to what the table uses.
    pub(super) hash: u64,
    pub(super) now: Now,
}

impl<'e> Exec<'e> {
    /// Executes `op` and reports its outcome.
    #[inline]
    pub(super) fn run<S: ReplySink>(mut self, op: &Op<'_>, sink: &mut S) -> Flow {
        let mut report = |outcome: Outcome<'_>| sink.complete(op.token, outcome);
        match op.verb {
            Verb::Get(get) => match self.read(op.key, &get, &mut report) {
                Some(flow) => flow,
                None => self.change(op, &mut report),
            },
            Verb::Store(store) if is_whole(&store) => self.store(op.key, &store, &mut report),
            _ => self.change(op, &mut report),
        }
    }

    /// A `get` that need not exclude anybody; `None` if it must.
    #[inline]
    fn read(
        &mut self,
        key: &[u8],
        get: &Get,
        report: &mut impl FnMut(Outcome<'_>) -> Flow,
    ) -> Option<Flow> {
        let engine = self.engine;
        let guard = engine.table.domain().pin();
        let absence = match engine.find(&guard, self.hash, key, self.now) {
            Ok(node) => {
                // SAFETY: found under the guard, which keeps it.
                let found: Item<'_, Link> = unsafe { Item::from_raw(node) };
                let before = found.before(self.now);
                let sent = before.state & state::WIN_SENT != 0;
                let wins = !sent && may_win(get, found, before.state, self.now);
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
        let plain = get.vivify.is_none();
        plain.then(|| report(Outcome::Missing(absence)))
    }

    /// Set, add, replace, cas: the item is made before the stripe is locked.
    #[inline]
    fn store(
        &mut self,
        key: &[u8],
        store: &Store<'_>,
        report: &mut dyn FnMut(Outcome<'_>) -> Flow,
    ) -> Flow {
        self.store_after(key, store, report, || {})
    }

    /// The same, with something to be done when the item has been made.
    #[inline]
    pub(super) fn store_after(
        &mut self,
        key: &[u8],
        store: &Store<'_>,
        report: &mut dyn FnMut(Outcome<'_>) -> Flow,
        mut when_made: impl FnMut(),
    ) -> Flow {
        let contents = Contents {
            key,
            value: [store.value, b""],
            client_flags: store.client_flags,
            deadline: store.deadline,
            state: 0,
        };
        let mut attempts = 0;
        loop {
            let fresh = self.make(&contents, attempts, self.peek(key));
            when_made();
            let attempt = self.inside(key, |inside| verbs::put(inside, store, fresh, report));
            match attempt {
                Ok(flow) => return flow,
                Err(NeedsRoom(_)) => attempts += 1,
            }
        }
    }

    /// The state bits of what is there now, for the eviction policy.
    fn peek(&self, key: &[u8]) -> Option<u8> {
        let engine = self.engine;
        let guard = engine.table.domain().pin();
        let node = engine.find_any(&guard, self.hash, key)?;
        // SAFETY: found under the guard, which keeps it.
        Some(unsafe { Item::<Link>::from_raw(node) }.state())
    }

    fn make(
        &mut self,
        contents: &Contents<'_>,
        attempts: u32,
        old: Option<u8>,
    ) -> Result<Ptr, NoItem> {
        let bytes = self.engine.size(contents)?;
        for _ in attempts..ATTEMPTS {
            if !self.ensure(bytes, old) {
                break;
            }
            if let Some(made) = self.core.create(self.engine, contents, bytes, self.now) {
                return Ok(made);
            }
            // Another session has taken the room for a large item.
        }
        self.core.tally.out_of_memory.add(1);
        Err(NoItem::OutOfMemory)
    }

    /// All that needs the stripe from the start.
    #[cold]
    fn change(&mut self, op: &Op<'_>, report: &mut dyn FnMut(Outcome<'_>) -> Flow) -> Flow {
        let mut attempts = 0;
        self.core.refused = false;
        if makes_items(&op.verb) {
            let entrance = self.engine.policy.entrance(self.hash, self.peek(op.key));
            self.core.enter_at(entrance);
        }
        loop {
            let attempt = self.inside(op.key, |inside| match op.verb {
                Verb::Get(get) => verbs::get(inside, get, &mut *report),
                Verb::Store(store) => verbs::extend(inside, &store, report),
                Verb::Delete(delete) => verbs::delete(inside, delete, report),
                Verb::Arith(arith) => verbs::arith(inside, arith, report),
                // A verb this engine has not learnt is not silently dropped.
                _ => Ok(report(Outcome::NotStored)),
            });
            match attempt {
                Ok(flow) => return flow,
                Err(NeedsRoom(bytes)) => {
                    attempts += 1;
                    let has_room = attempts < ATTEMPTS && self.ensure(bytes, self.peek(op.key));
                    self.core.refused = !has_room;
                }
            }
        }
    }

    fn ensure(&mut self, bytes: usize, old: Option<u8>) -> bool {
        let entrance = self.engine.policy.entrance(self.hash, old);
        self.core.ensure(self.engine, self.now, entrance, bytes)
    }

    /// Runs something with the key's stripe locked.
    #[inline]
    pub(super) fn inside(
        &mut self,
        key: &[u8],
        run: impl FnOnce(&mut Inside<'_>) -> Attempt,
    ) -> Attempt {
        let engine = self.engine;
        let (stripe, waited) = contention::lock(engine.stripe(self.hash));
        if let Some(ns) = waited {
            self.core.tally.lock_waits.add(1);
            self.core.tally.lock_wait_ns.add(ns);
        }
        let mut inside = Inside {
            generation: engine.generation().number,
            engine,
            core: &mut *self.core,
            guard: engine.table.domain().pin(),
            stripe,
            hash: self.hash,
            now: self.now,
            key,
        };
        run(&mut inside)
    }
}

/// Whether the item is known before the present one is seen.
fn is_whole(store: &Store<'_>) -> bool {
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

/// Whether a get would win the item's token, if it has not been sent.
#[inline]
fn may_win(get: &Get, found: Item<'_, Link>, state: u8, now: Now) -> bool {
    let is_near = |below| {
        let remaining = found.deadline().remaining_ms(now);
        remaining.is_some_and(|remaining| remaining < below)
    };
    get.claim_stale && state & state::STALE != 0 || get.recache_below_ms.is_some_and(is_near)
}

/// An operation that holds its key's stripe.
pub(super) struct Inside<'x> {
    engine: &'x Relativistic,
    core: &'x mut Core,
    guard: Guard<'x>,
    stripe: MutexGuard<'x, Stripe>,
    hash: u64,
    now: Now,
    key: &'x [u8],
    /// Of flushes, as it was when the operation took effect.
    generation: u32,
}

impl Inside<'_> {
    fn generation_of(&self, node: Ptr) -> u32 {
        let heap = &self.engine.heap;
        heap.generation(heap.segment_of(node))
    }
}

impl Keeper for Inside<'_> {
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
        let node = engine
            .find_any(&self.guard, self.hash, self.key)
            .ok_or(Absence::Unknown)?;
        // SAFETY: found under the guard, which keeps it.
        let found: Item<'_, Link> = unsafe { Item::from_raw(node) };
        if self.generation_of(node) < self.generation {
            self.unlink(node);
            return Err(Absence::Flushed);
        }
        if found.deadline().is_past(self.now) {
            let unfetched = found.state() & state::FETCHED == 0;
            self.core.tally.expired_unfetched.add(u64::from(unfetched));
            self.unlink(node);
            return Err(Absence::Expired);
        }
        Ok(node)
    }

    fn create(&mut self, contents: &Contents<'_>) -> Result<Ptr, NoItem> {
        let bytes = self.engine.size(contents)?;
        match self.core.create(self.engine, contents, bytes, self.now) {
            Some(node) => Ok(node),
            None if self.core.refused => {
                self.core.tally.out_of_memory.add(1);
                Err(NoItem::OutOfMemory)
            }
            None => Err(NoItem::NotYet(bytes)),
        }
    }

    fn discard(&mut self, fresh: Ptr) {
        self.core.discard(self.engine, fresh);
    }

    fn publish(&mut self, fresh: Ptr, old: Option<Ptr>, cas: Option<u64>) -> Result<(), NoItem> {
        let engine = self.engine;
        // SAFETY: nobody else has the item yet.
        let item: Item<'_, Link> = unsafe { Item::from_raw(fresh) };
        let bytes = engine.heap.footprint(item);
        let is_current = self.generation_of(fresh) == self.generation;
        if !is_current && !mutant!("publishes_in_any_generation") {
            // A flush came in between: the item would be gone with what it is stored on top of.
            self.discard(fresh);
            return Err(NoItem::NotYet(bytes));
        }
        item.set_cas(cas.unwrap_or_else(|| self.stripe.next_cas()));
        engine.note_deadline(fresh, item.deadline());
        let name = engine.heap.name(fresh);
        match old {
            Some(old) => {
                // SAFETY: the guard is of the table's domain; `old` was found under it; `fresh` is an item
                // of the arena's in no table, of the same key.
                let replaced = unsafe { engine.table.replace(&self.guard, old.cast(), name) };
                if replaced.is_none() && !mutant!("forgets_the_eviction") {
                    // It has been evicted since it was found, and readers may have missed it: what was
                    // made of it, or stored because it was there, would come back.
                    self.discard(fresh);
                    return Err(NoItem::NotYet(bytes));
                }
                self.core.forget(engine, old);
            }
            None => {
                // SAFETY: as above; the key's other writers are excluded, so it is not there.
                let inserted = unsafe { engine.table.insert(&self.guard, name, |_| false) };
                debug_assert!(inserted.is_ok());
                self.core.unreported += 1;
            }
        }
        self.core.tally.total_items.add(1);
        self.core.tally.linked(bytes);
        self.core.seal_large(engine);
        Ok(())
    }

    fn unlink(&mut self, node: Ptr) {
        // SAFETY: the guard is of the table's domain, and the node was found under it.
        let removed = unsafe { self.engine.table.remove(&self.guard, node.cast()) };
        if removed.is_some() {
            self.core.unreported -= 1;
            self.core.forget(self.engine, node);
        }
    }

    fn hit(&mut self, node: Ptr) {
        self.item(node).record_shared_hit(self.now);
    }

    fn touched(&mut self, node: Ptr) {
        self.engine.note_deadline(node, self.item(node).deadline());
    }

    fn met(&mut self, node: Ptr) {
        self.item(node).record_use(self.now, 0);
    }

    fn item(&self, node: Ptr) -> Item<'_, Link> {
        // SAFETY: found under the guard, or made by this operation.
        unsafe { Item::from_raw(node) }
    }

    fn footprint(&self, node: Ptr) -> usize {
        self.engine.heap.footprint(self.item(node))
    }
}
