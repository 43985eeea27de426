//! The operations, each one critical section of one shard.
//!
//! Every function here is written as *find, decide, make room, change, report*.
//! New items are made before the lock is taken where the value is known by then
//! (set, add, replace, cas), and inside it where it depends on the present item
//! (append, counters).

use super::shard::{Links, Ptr, Room, Shard, footprint, item};
use super::{Eviction, Locked, Slot};
use crate::alloc::ItemAllocator;
use crate::counter;
use crate::item::{Before, Contents, state};
use corewise_ops::{
    Absence, Arith, Delete, Flow, Get, ItemFlags, Now, Op, Outcome, ReplySink, Store, StoreMode,
    Verb,
};
use std::ops::{Deref, DerefMut};

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

/// Why an item could not be made or linked.
enum NoItem {
    TooLarge,
    OutOfMemory,
}

impl From<NoItem> for Outcome<'_> {
    fn from(why: NoItem) -> Self {
        match why {
            NoItem::TooLarge => Self::TooLarge,
            NoItem::OutOfMemory => Self::OutOfMemory,
        }
    }
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
        match op.verb {
            Verb::Get(get) => {
                let slot = self.slot;
                let shard = &mut *slot.shard.lock();
                Inside {
                    exec: &mut self,
                    shard,
                    key: op.key,
                }
                .get(get, report)
            }
            Verb::Store(store) => self.store(op.key, &store, &mut report),
            Verb::Delete(delete) => {
                let slot = self.slot;
                let shard = &mut *slot.shard.lock();
                Inside {
                    exec: &mut self,
                    shard,
                    key: op.key,
                }
                .delete(delete, report)
            }
            Verb::Arith(arith) => {
                let slot = self.slot;
                let shard = &mut *slot.shard.lock();
                Inside {
                    exec: &mut self,
                    shard,
                    key: op.key,
                }
                .arith(arith, report)
            }
            // A verb this engine has not learnt is not silently dropped.
            _ => report(Outcome::NotStored),
        }
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
    ) -> Flow {
        let extends = matches!(store.mode, StoreMode::Append | StoreMode::Prepend);
        // Outside the lock: allocate and copy.
        let fresh = if extends {
            None
        } else {
            let contents = Contents {
                key,
                value: [store.value, b""],
                client_flags: store.client_flags,
                deadline: store.deadline,
                state: 0,
            };
            Some(self.create(&contents))
        };
        let slot = self.slot;
        let shard = &mut *slot.shard.lock();
        let mut inside = Inside {
            exec: self,
            shard,
            key,
        };
        match fresh {
            None => inside.extend(store, report),
            Some(Ok(fresh)) => inside.put(store, fresh, report),
            Some(Err(why)) => inside.refuse(store, why, report),
        }
    }
}

impl<'e, A: ItemAllocator> Deref for Inside<'_, 'e, A> {
    type Target = Exec<'e, A>;
    fn deref(&self) -> &Self::Target {
        self.exec
    }
}

impl<A: ItemAllocator> DerefMut for Inside<'_, '_, A> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.exec
    }
}

impl<A: ItemAllocator> Inside<'_, '_, A> {
    #[inline]
    fn find(&mut self) -> Result<Ptr, Absence> {
        self.shard
            .find(self.exec.hash, self.key, self.exec.now, self.exec.garbage)
    }

    /// The cas value for a changed item.
    fn cas(&mut self, given: Option<u64>) -> u64 {
        given.unwrap_or_else(|| self.shard.next_cas())
    }

    /// Links `node` under the key, in the place of `old` if there is one, or
    /// gives it up for lack of room.
    fn publish(&mut self, node: Ptr, old: Option<Ptr>, cas: Option<u64>) -> Result<(), NoItem> {
        let engine = self.engine;
        let hasher = |key: &[u8]| engine.hash(key);
        let room = Room {
            need: footprint(node),
            budget: engine.budget_per_shard(),
            keep: old,
            may_evict: engine.eviction == Eviction::Lru,
            now: self.now,
            hasher: &hasher,
        };
        let fits = self.shard.make_room(&room, self.exec.garbage)
            && (old.is_some() || self.shard.reserve_slot(hasher));
        if !fits {
            self.garbage.push(node);
            return Err(NoItem::OutOfMemory);
        }
        item(node).set_cas(self.cas(cas));
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

    fn view(&self, node: Ptr, before: Before, flags: ItemFlags) -> corewise_ops::ItemView<'_> {
        item(node).view(before, flags, footprint(node))
    }

    fn stored(&self, node: Ptr) -> Outcome<'_> {
        Outcome::Stored(self.view(node, Before::default(), ItemFlags::NONE))
    }

    // ---- reads

    #[inline]
    fn get(mut self, get: Get, mut report: impl FnMut(Outcome<'_>) -> Flow) -> Flow {
        let node = match self.find() {
            Ok(node) => node,
            Err(absence) => return self.miss(&get, absence, &mut report),
        };
        let found = item(node);
        let before = found.before(self.now);
        let flags = self.win(node, &get);
        if !get.quiet {
            found.record_hit(self.now);
            self.shard.refresh(node, self.exec.now);
        }
        report(Outcome::Found(self.view(node, before, flags)))
    }

    /// Touches the item and hands out or reports its win token.
    #[inline]
    fn win(&self, node: Ptr, get: &Get) -> ItemFlags {
        let found = item(node);
        let (was, remaining) = (found.state(), found.deadline().remaining_ms(self.now));
        let claim = get.claim_stale && was & state::STALE != 0;
        let recache = get
            .recache_below_ms
            .is_some_and(|below| remaining.is_some_and(|r| r < below));
        let sent = was & state::WIN_SENT != 0;
        let won = (claim || recache) && !sent;
        if won || get.touch.is_some() {
            let deadline = get.touch.unwrap_or(found.deadline());
            found.set_life(deadline, if won { was | state::WIN_SENT } else { was });
        }
        match (won, sent) {
            (true, _) => ItemFlags::WON,
            (false, true) => ItemFlags::WIN_SENT,
            (false, false) => ItemFlags::NONE,
        }
    }

    #[cold]
    fn miss(
        &mut self,
        get: &Get,
        absence: Absence,
        report: &mut dyn FnMut(Outcome<'_>) -> Flow,
    ) -> Flow {
        let Some(vivify) = get.vivify else {
            return report(Outcome::Missing(absence));
        };
        let contents = Contents {
            key: self.key,
            value: [b"", b""],
            client_flags: 0,
            deadline: vivify.deadline,
            state: if get.quiet {
                state::WIN_SENT
            } else {
                state::WIN_SENT | state::FETCHED // its creator has seen it
            },
        };
        let made = self.create(&contents).and_then(|node| {
            self.publish(node, None, vivify.new_cas)?;
            Ok(node)
        });
        match made {
            Ok(node) => report(Outcome::Found(self.view(
                node,
                Before::default(),
                ItemFlags::WON,
            ))),
            Err(why) => report(why.into()),
        }
    }

    // ---- writes

    /// Set, add, replace, cas: `fresh` is the new item.
    fn put(
        &mut self,
        store: &Store<'_>,
        fresh: Ptr,
        report: &mut dyn FnMut(Outcome<'_>) -> Flow,
    ) -> Flow {
        let old = self.find().ok();
        if let Some(refusal) = self.condition(store, old) {
            self.garbage.push(fresh);
            return report(refusal);
        }
        if let (Some(old), Some(cas)) = (old, store.compare_cas)
            && item(old).cas() != cas
        {
            // Stored as stale: keeps the deadline, and the win token if sent.
            let kept = item(old).state() & state::WIN_SENT;
            item(fresh).set_life(item(old).deadline(), state::STALE | kept);
        }
        match self.publish(fresh, old, store.new_cas) {
            Ok(()) => report(self.stored(fresh)),
            Err(why) => self.refuse(store, why, report),
        }
    }

    /// Why a store must not happen, if so.
    fn condition(&mut self, store: &Store<'_>, old: Option<Ptr>) -> Option<Outcome<'static>> {
        let Some(old) = old else {
            return match (store.compare_cas, store.mode) {
                (Some(_), StoreMode::Set) => Some(Outcome::Missing(Absence::Unknown)),
                (_, StoreMode::Replace) => Some(Outcome::NotStored),
                _ => None,
            };
        };
        if store.mode == StoreMode::Add {
            self.shard.refresh(old, self.exec.now);
            return Some(Outcome::NotStored);
        }
        let wanted = store.compare_cas?;
        let present = item(old).cas();
        let acceptable = wanted == present || (store.stale_if_older && wanted < present);
        (!acceptable).then_some(Outcome::Exists)
    }

    /// A store that found no memory. What a `set` meant to overwrite goes.
    #[cold]
    fn refuse(
        &mut self,
        store: &Store<'_>,
        why: NoItem,
        report: &mut dyn FnMut(Outcome<'_>) -> Flow,
    ) -> Flow {
        if store.mode == StoreMode::Set
            && store.compare_cas.is_none()
            && let Ok(old) = self.find()
        {
            self.unlink(old);
        }
        report(why.into())
    }

    /// Append and prepend.
    fn extend(&mut self, store: &Store<'_>, report: &mut dyn FnMut(Outcome<'_>) -> Flow) -> Flow {
        let old = self.find().ok();
        if let Some(refusal) = self.condition(store, old) {
            return report(refusal);
        }
        let contents = match (old, store.vivify) {
            (Some(old), _) => {
                let old = item(old);
                let parts = [old.value(), store.value];
                Contents {
                    key: self.key,
                    value: if store.mode == StoreMode::Append {
                        parts
                    } else {
                        [parts[1], parts[0]]
                    },
                    client_flags: old.client_flags(),
                    deadline: old.deadline(),
                    state: 0, // as in memcached: a new item
                }
            }
            (None, Some(deadline)) => Contents {
                key: self.key,
                value: [store.value, b""],
                client_flags: store.client_flags,
                deadline,
                state: 0,
            },
            (None, None) => return report(Outcome::NotStored),
        };
        match self.rewrite(&contents, old, store.new_cas) {
            Ok(node) => report(self.stored(node)),
            Err(why) => report(why.into()),
        }
    }

    /// Makes an item and links it in the place of `old`.
    fn rewrite(
        &mut self,
        contents: &Contents<'_>,
        old: Option<Ptr>,
        cas: Option<u64>,
    ) -> Result<Ptr, NoItem> {
        let node = self.create(contents)?;
        self.publish(node, old, cas)?;
        Ok(node)
    }

    fn delete(mut self, delete: Delete, mut report: impl FnMut(Outcome<'_>) -> Flow) -> Flow {
        let node = match self.find() {
            Ok(node) => node,
            Err(absence) => return report(Outcome::Missing(absence)),
        };
        if delete
            .compare_cas
            .is_some_and(|cas| cas != item(node).cas())
        {
            return report(Outcome::Exists);
        }
        if !delete.mark_stale && !delete.drop_value {
            self.unlink(node);
            return report(Outcome::Deleted);
        }
        match self.keep_deleted(node, delete) {
            Ok(node) => report(self.stored(node)),
            Err(why) => report(why.into()),
        }
    }

    /// A delete that keeps the item: stale, without its value, or both.
    fn keep_deleted(&mut self, node: Ptr, delete: Delete) -> Result<Ptr, NoItem> {
        let old = item(node);
        let (mut deadline, mut state) = (old.deadline(), old.state());
        if delete.mark_stale {
            deadline = delete.touch.unwrap_or(deadline);
            state = (state | state::STALE) & !state::WIN_SENT;
        }
        if delete.drop_value {
            let contents = Contents {
                key: self.key,
                value: [b"", b""],
                client_flags: 0,
                deadline,
                state,
            };
            return self.rewrite(&contents, Some(node), delete.new_cas);
        }
        old.set_life(deadline, state);
        old.set_cas(self.cas(delete.new_cas));
        Ok(node)
    }

    fn arith(mut self, arith: Arith, mut report: impl FnMut(Outcome<'_>) -> Flow) -> Flow {
        let node = match self.find() {
            Ok(node) => node,
            Err(absence) => return self.new_counter(arith, absence, &mut report),
        };
        let old = item(node);
        if old.value_len() == 0 {
            // Before the cas value is looked at, as in memcached.
            return report(Outcome::NonNumeric);
        }
        if arith.compare_cas.is_some_and(|cas| cas != old.cas()) {
            return report(Outcome::Exists);
        }
        let Some(value) = counter::parse(old.value()) else {
            return report(Outcome::NonNumeric);
        };
        let value = counter::apply(value, arith.delta, arith.decrement);
        let text = counter::Text::new(value, old.value_len());
        // As in memcached, a counter that outgrows its text is a new item.
        let grown = text.as_bytes().len() > old.value_len();
        let contents = Contents {
            key: self.key,
            value: [text.as_bytes(), b""],
            client_flags: old.client_flags(),
            deadline: arith.touch.unwrap_or(old.deadline()),
            state: if grown { 0 } else { old.state() },
        };
        match self.rewrite(&contents, Some(node), arith.new_cas) {
            Ok(node) => {
                let view = self.view(node, Before::default(), ItemFlags::NONE);
                report(Outcome::Counter { value, view })
            }
            Err(why) => report(why.into()),
        }
    }

    #[cold]
    fn new_counter(
        &mut self,
        arith: Arith,
        absence: Absence,
        report: &mut dyn FnMut(Outcome<'_>) -> Flow,
    ) -> Flow {
        let Some((value, deadline)) = arith.vivify else {
            return report(Outcome::Missing(absence));
        };
        let text = counter::Text::new(value, 0);
        let contents = Contents {
            key: self.key,
            value: [text.as_bytes(), b""],
            client_flags: 0,
            deadline,
            state: 0,
        };
        match self.rewrite(&contents, None, arith.new_cas) {
            Ok(node) => {
                let view = self.view(node, Before::default(), ItemFlags::NONE);
                report(Outcome::Counter { value, view })
            }
            Err(why) => report(why.into()),
        }
    }
}
