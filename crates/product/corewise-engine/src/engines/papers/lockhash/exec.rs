//! One operation on a partition that the caller has exclusively.

use super::partition::{Links, Partition, Ptr, Returned, item};
use crate::engines::sharded::Context;
use crate::engines::verbs::{self, ItemStore, NoItem};
use crate::item::{Contents, Item};
use crate::objects::{self, ObjectMemory};
use corewise_ops::{Absence, Flow, Now, Outcome, StoreMode, Update, Updated, Verb};

/// An operation about to be executed. It has a reference to the item that it found and one to the
/// item that it made, so that both stay alive until it is dropped.
pub(super) struct Execution<'x> {
    partition: &'x mut Partition,
    context: Context,
    key: &'x [u8],
    found: Option<Ptr>,
    fresh: Option<Ptr>,
    /// The operation has unlinked the item that it found.
    has_unlinked: bool,
}

impl<'x> Execution<'x> {
    #[inline]
    pub(super) fn new(partition: &'x mut Partition, context: Context, key: &'x [u8]) -> Self {
        Self {
            partition,
            context,
            key,
            found: None,
            fresh: None,
            has_unlinked: false,
        }
    }

    /// Executes the operation and reports its outcome, once.
    #[inline]
    pub(super) fn run(
        &mut self,
        verb: &Verb<'_>,
        mut report: impl FnMut(Outcome<'_>) -> Flow,
    ) -> Flow {
        let attempt = match *verb {
            Verb::Get(get) => verbs::get(self, get, report),
            Verb::Store(store) => match store.mode {
                StoreMode::Append | StoreMode::Prepend => verbs::extend(self, &store, &mut report),
                _ => verbs::make_and_put(self, self.key, &store, &mut report),
            },
            Verb::Delete(delete) => verbs::delete(self, delete, &mut report),
            Verb::Arith(arith) => verbs::arith(self, arith, &mut report),
            Verb::Edit(edit) => verbs::edit(self, self.key, &edit, &mut report),
            Verb::Sorted(sorted) => objects::execute(self, self.key, sorted, &mut report),
            Verb::Filter(filter) => objects::execute_filter(self, self.key, filter, &mut report),
        };
        // Room is made at once, so these engines never ask for it.
        attempt.unwrap_or(Flow::Continue)
    }

    /// Executes a change that no verb describes.
    pub(super) fn update(&mut self, update: &mut dyn Update) -> Updated {
        let updated = verbs::update(self, self.key, update);
        // Room is made at once, so these engines never ask for it.
        updated.unwrap_or(Updated::OutOfMemory)
    }

    /// What is freed when the item that was found last is replaced.
    fn returned(&self) -> Returned {
        let found = self.found.filter(|_| !self.has_unlinked);
        // SAFETY: the item that was found last is referenced, and still linked. Operations on sets
        // make no item while they refer to one (1).
        found.map_or(Returned::default(), |old| unsafe {
            self.partition.returned(old)
        })
    }
}

impl Drop for Execution<'_> {
    #[inline]
    fn drop(&mut self) {
        for node in [self.found, self.fresh].into_iter().flatten() {
            // SAFETY: the item is referenced, and the reference is this store's, given up once (1).
            unsafe { self.partition.release(node) };
        }
    }
}

// SAFETY: what was found and what was made is referenced until this is dropped; a second search
// finds the same item, because only we change the partition (1). 2: see `publish`. 3: the caller
// has the partition exclusively, whose `unlink` takes the set.
unsafe impl ItemStore for Execution<'_> {
    type Links = Links;

    fn key(&self) -> &[u8] {
        self.key
    }

    #[inline]
    fn now(&self) -> Now {
        self.context.now
    }

    #[inline]
    fn find(&mut self) -> Result<Ptr, Absence> {
        let node = self
            .partition
            .find(self.context.hash, self.key, self.context.now)?;
        if self.found.is_none() && self.fresh != Some(node) {
            // SAFETY: the item was just found, so it is linked (1).
            unsafe { self.partition.acquire(node) };
            self.found = Some(node);
        }
        Ok(node)
    }

    fn may_create(&self, contents: &Contents<'_>) -> bool {
        contents.payload() <= self.context.rules.max_item_bytes && contents.fits_header()
    }

    fn create(&mut self, contents: &Contents<'_>) -> Result<Ptr, NoItem> {
        if !self.may_create(contents) {
            return Err(NoItem::TooLarge);
        }
        let returned = self.returned();
        let made = self.partition.create(self.context, contents, returned);
        self.fresh = made;
        made.ok_or(NoItem::OutOfMemory)
    }

    unsafe fn discard(&mut self, fresh: Ptr) {
        debug_assert_eq!(self.fresh, Some(fresh));
        if let Some(fresh) = self.fresh.take() {
            // SAFETY: the item is referenced, and the reference is this store's, given up once (1).
            unsafe { self.partition.release(fresh) };
        }
    }

    unsafe fn publish(
        &mut self,
        fresh: Ptr,
        old: Option<Ptr>,
        cas: Option<u64>,
    ) -> Result<(), NoItem> {
        let cas = cas.unwrap_or_else(|| self.partition.next_cas());
        // SAFETY: `fresh` is referenced and was not linked; `old` is linked (1, all).
        unsafe {
            item(fresh).set_cas(cas);
            if let Some(old) = old {
                self.has_unlinked = true;
                self.partition.unlink(old);
            }
            self.partition.link(fresh);
        }
        Ok(())
    }

    fn has_set_room(&mut self, bytes: usize, growth: usize) -> bool {
        self.partition
            .has_set_room(self.context.rules, bytes, growth)
    }

    fn make_set_room(&mut self, bytes: usize, growth: usize) -> Result<(), NoItem> {
        // The item that was found is referenced, so it is not evicted.
        if self.partition.make_set_room(self.context, bytes, growth) {
            Ok(())
        } else {
            Err(NoItem::OutOfMemory)
        }
    }

    fn charge_set(&mut self, before: usize, after: usize) {
        self.partition.charge_set(before, after);
    }

    fn note_unsettled_set(&mut self) {
        self.partition.note_unsettled_set(self.context.hash);
    }

    fn set_account(&self) -> usize {
        std::ptr::from_ref(&*self.partition).addr()
    }

    fn object_memory(&self) -> &ObjectMemory {
        self.partition.object_memory()
    }

    fn next_cas(&mut self) -> u64 {
        self.partition.next_cas()
    }

    unsafe fn unlink(&mut self, node: Ptr) {
        self.has_unlinked = true;
        // SAFETY: the item is one of this store's and linked, as the caller guarantees (1).
        unsafe { self.partition.unlink(node) };
    }

    #[inline]
    unsafe fn hit(&mut self, node: Ptr) {
        // SAFETY: the item is one of this store's, which are alive, and linked, as the caller
        // guarantees (1, both).
        unsafe {
            item(node).record_hit(self.context.now);
            self.partition.refresh(node, self.context.now);
        }
    }

    unsafe fn touched(&mut self, node: Ptr) {
        // SAFETY: the item is one of this store's, which are alive until it is dropped (1).
        self.partition.touched(unsafe { item(node) }.deadline());
    }

    unsafe fn touch_on_add(&mut self, node: Ptr) {
        // SAFETY: the item is one of this store's and linked, as the caller guarantees (1).
        unsafe { self.partition.refresh(node, self.context.now) };
    }

    #[inline]
    unsafe fn item(&self, node: Ptr) -> Item<'_, Links> {
        // SAFETY: alive while we are borrowed (1).
        unsafe { item(node) }
    }

    #[inline]
    unsafe fn footprint(&self, node: Ptr) -> usize {
        // SAFETY: the item is one of this store's, which are alive until it is dropped (1).
        unsafe { self.partition.footprint(node) }
    }
}
