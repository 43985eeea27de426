//! The operations, each one critical section of one shard.
//!
//! What a verb means is in [`verbs`]; here is how this engine finds, makes, links and unlinks. New
//! items are made before the lock is taken where the value is known by then (set, add, replace, cas),
//! and inside it where it depends on the present item (append, counters).

use super::shard::{Links, Ptr, Room, Shard, footprint, item};
use super::{Eviction, Locked, Slot};
use crate::alloc::ItemAllocator;
use crate::engines::verbs::{self, Attempt, Keeper, NoItem};
use crate::item::{Contents, Item};
use corewise_ops::{Absence, Flow, Now, Op, Outcome, ReplySink, Store, StoreMode, Verb};

/// One operation about to be executed.
pub(super) struct Exec<'e, A: ItemAllocator> {
    engine: &'e Locked<A>,
    slot: &'e Slot,
    hash: u64,
    now: Now,
    garbage: &'e mut Vec<Ptr>,
}

/// An operation that holds its shard's lock.
struct Inside<'x, 'e, A: ItemAllocator> {
    exec: &'x mut Exec<'e, A>,
    shard: &'x mut Shard,
    key: &'x [u8],
}

impl<'e, A: ItemAllocator> Exec<'e, A> {
    #[inline]
    pub(super) fn new(
        engine: &'e Locked<A>,
        hash: u64,
        now: Now,
        garbage: &'e mut Vec<Ptr>,
    ) -> Self {
        Self {
            engine,
            slot: engine.slot(hash),
            hash,
            now,
            garbage,
        }
    }

    /// Executes `op` and reports its outcome.
    #[inline]
    pub(super) fn run<S: ReplySink>(mut self, op: &Op<'_>, sink: &mut S) -> Flow {
        let mut report = |outcome: Outcome<'_>| sink.complete(op.token, outcome);
        let attempt = match op.verb {
            Verb::Get(get) => self.inside(op.key, |inside| verbs::get(inside, get, report)),
            Verb::Store(store) => self.store(op.key, &store, &mut report),
            Verb::Delete(delete) => {
                self.inside(op.key, |inside| verbs::delete(inside, delete, &mut report))
            }
            Verb::Arith(arith) => {
                self.inside(op.key, |inside| verbs::arith(inside, arith, &mut report))
            }
            // A verb this engine has not learnt is not silently dropped.
            _ => Ok(report(Outcome::NotStored)),
        };
        // Room is made inside the lock, so this engine never asks for it.
        attempt.unwrap_or(Flow::Continue)
    }

    #[inline(always)]
    fn inside<R>(&mut self, key: &[u8], run: impl FnOnce(&mut Inside<'_, 'e, A>) -> R) -> R {
        let slot = self.slot;
        let shard = &mut *slot.shard.lock();
        run(&mut Inside {
            exec: self,
            shard,
            key,
        })
    }

    /// Makes an item that is not linked yet.
    fn create(&self, contents: &Contents<'_>) -> Result<Ptr, NoItem> {
        if contents.bytes::<Links>() > self.engine.max_item_bytes {
            return Err(NoItem::TooLarge);
        }
        let made =
            crate::item::create(&self.engine.allocator, Links::default(), contents, self.now);
        let (node, footprint) = made.ok_or(NoItem::OutOfMemory)?;
        // SAFETY: the item was just made; nobody else can reach it. Footprints
        // are below 2^32 because items are (`MAX_VALUE_BYTES`).
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
        let contents = Contents {
            key,
            value: [store.value, b""],
            client_flags: store.client_flags,
            deadline: store.deadline,
            state: 0,
        };
        let fresh = self.create(&contents);
        self.inside(key, |inside| verbs::put(inside, store, fresh, report))
    }
}

impl<A: ItemAllocator> Keeper for Inside<'_, '_, A> {
    type Links = Links;

    fn key(&self) -> &[u8] {
        self.key
    }

    #[inline]
    fn now(&self) -> Now {
        self.exec.now
    }

    #[inline]
    fn find(&mut self) -> Result<Ptr, Absence> {
        self.shard
            .find(self.exec.hash, self.key, self.exec.now, self.exec.garbage)
    }

    fn create(&mut self, contents: &Contents<'_>) -> Result<Ptr, NoItem> {
        self.exec.create(contents)
    }

    fn discard(&mut self, fresh: Ptr) {
        self.exec.garbage.push(fresh);
    }

    fn publish(&mut self, node: Ptr, old: Option<Ptr>, cas: Option<u64>) -> Result<(), NoItem> {
        let engine = self.exec.engine;
        let hasher = |key: &[u8]| engine.hash(key);
        let room = Room {
            need: footprint(node),
            budget: engine.budget_per_shard(),
            keep: old,
            may_evict: engine.eviction == Eviction::Lru,
            now: self.exec.now,
            hasher: &hasher,
        };
        let fits = self.shard.make_room(&room, self.exec.garbage)
            && (old.is_some() || self.shard.reserve_slot(hasher));
        if !fits {
            self.discard(node);
            return Err(NoItem::OutOfMemory);
        }
        item(node).set_cas(cas.unwrap_or_else(|| self.shard.next_cas()));
        match old {
            Some(old) => {
                self.shard
                    .replace(self.exec.hash, old, node, self.exec.now, self.exec.garbage);
            }
            None => self
                .shard
                .link(self.exec.hash, node, self.exec.now, &self.exec.slot.hint),
        }
        Ok(())
    }

    fn unlink(&mut self, node: Ptr) {
        self.shard.unlink(self.exec.hash, node, self.exec.garbage);
    }

    #[inline]
    fn hit(&mut self, node: Ptr) {
        item(node).record_hit(self.exec.now);
        self.shard.refresh(node, self.exec.now);
    }

    fn met(&mut self, node: Ptr) {
        self.shard.refresh(node, self.exec.now);
    }

    #[inline]
    fn item(&self, node: Ptr) -> Item<'_, Links> {
        item(node)
    }

    #[inline]
    fn footprint(&self, node: Ptr) -> usize {
        footprint(node)
    }
}
