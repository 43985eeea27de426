//! Large items whose values are received in place.
//!
//! Such an item has a separate run of segments, which is in no queue until the value is complete
//! (`State::Reserved` of the [heap](super::heap)). So no thread walks it, and a slow client holds
//! up no other. Storing it publishes an item that was made long before, with one difference: there
//! may have been a flush since. Then the item is not of the present generation, and its value is
//! copied.

use super::Relativistic;
use super::exec::{Exec, is_whole};
use super::heap::{ItemSizeClass, Ptr, Request};
use super::session_state::{Wanted, abandon};
use crate::engine::op_of;
use crate::engines::verbs;
use crate::item::{self, Contents, Item};
use crate::reservation::{Reservation, Reserver};
use corewise_maps::relativistic::Link;
use corewise_ops::{Deadline, Flow, Op, Outcome, ReplySink, Store, Verb};
use std::ptr::NonNull;
use std::sync::Arc;

/// Reserved runs are at most this share (1/8) of the memory, or one item, for values of which less
/// than [`ARRIVED_SHARE`] has arrived.
const RESERVED_SHARE: u64 = 8;
/// The share (1/4) of a value that must have arrived before more is reserved.
const ARRIVED_SHARE: usize = 4;

impl Reserver for Relativistic {
    unsafe fn release(&self, item: NonNull<u8>) {
        let node: Ptr = item.cast();
        // SAFETY: the item is one of a reservation and not used any more, by the contract of this
        // function. If it has entered, it was not linked.
        unsafe {
            if !self.heap.release(node) {
                let bytes = self.heap.footprint(Item::from_raw(node));
                abandon(self, node, bytes);
            }
        }
    }
}

impl Exec<'_> {
    /// Makes an item for `key` whose value comes later, except for `arrived` bytes, if the item
    /// would be large and there is room for it.
    pub(super) fn reserve(
        &mut self,
        owner: &Arc<Relativistic>,
        key: &[u8],
        value_len: usize,
        client_flags: u32,
        arrived: usize,
    ) -> Option<Reservation> {
        let engine = self.engine;
        let contents = Contents::new(key, b"", client_flags, Deadline::NEVER);
        let fits = contents.fits_header() && value_len <= item::MAX_VALUE_BYTES;
        if !fits || contents.payload() + value_len > engine.max_item_bytes {
            return None;
        }
        let bytes = engine.heap.rounded(contents.bytes::<Link>() + value_len);
        let most = engine.most_reserved(arrived >= value_len / ARRIVED_SHARE);
        if engine.heap.size_class(bytes) != ItemSizeClass::Large
            || !engine.heap.may_reserve(bytes, most)
        {
            return None;
        }
        let memory = self.room_for(key, bytes, most)?;
        let link = Link::new(self.hash);
        // SAFETY: the memory is the heap's, of the item's size rounded up, aligned to a granule,
        // and not used by anything else; the lengths fit. Only items that have entered are read.
        let (node, value) =
            unsafe { item::write_head(memory, link, &contents, value_len, self.now) };
        let owner: Arc<Relativistic> = Arc::clone(owner);
        // SAFETY: the run stays reserved until it is released, or entered and linked.
        Some(unsafe { Reservation::new(owner, node.cast(), value, value_len) })
    }

    /// Allocates room for a large item of `bytes` bytes. Where nothing may be evicted, succeeds
    /// only if the room is already there.
    fn room_for(&mut self, key: &[u8], bytes: usize, most: u64) -> Option<NonNull<u8>> {
        let engine = self.engine;
        let may_evict = engine.may_evict();
        let old_bytes = if may_evict { 0 } else { self.peek(key).1 };
        let wanted = Wanted {
            bytes,
            old_bytes,
            counts: false,
        };
        self.session_state.evict_ahead(engine, self.now, bytes);
        let found = engine.reserve_run(wanted, most);
        if found.is_some() || !may_evict || !self.session_state.make_room(engine, self.now, wanted)
        {
            return found;
        }
        engine.reserve_run(wanted, most)
    }

    /// Executes a store with the reservation's value.
    #[cold]
    pub(super) fn run_reserved<S: ReplySink>(
        mut self,
        op: &Op<'_>,
        reservation: &Reservation,
        sink: &mut S,
    ) -> Flow {
        let op = op_of(op, reservation);
        let mut report = |outcome: Outcome<'_>| sink.complete(op.token, outcome);
        if let Verb::Store(store) = &op.verb
            && let Some(node) = self.made_for(op.key, store, reservation)
        {
            // SAFETY: the item is the reservation's, whole and not linked. Afterwards only the view
            // of its value is used, and only if there is an error (1).
            let published =
                unsafe { self.publish_reserved(node, op.key, store, reservation, &mut report) };
            if let Ok(flow) = published {
                return flow;
            }
        }
        self.run(&op, sink)
    }

    /// The item of the reservation, if it can be stored in place.
    fn made_for(&self, key: &[u8], store: &Store<'_>, reservation: &Reservation) -> Option<Ptr> {
        let engine = self.engine;
        let node: Ptr = reservation
            .item_of(std::ptr::from_ref(engine).cast())?
            .cast();
        // SAFETY: the item is the reservation's, and whole.
        let made: Item<'_, Link> = unsafe { Item::from_raw(node) };
        let fits = made.key() == key && made.client_flags() == store.client_flags;
        (fits && is_whole(store) && !engine.is_flushed(node)).then_some(node)
    }

    /// Stores the item. An error means that it could not be stored, and that nothing was reported.
    ///
    /// # Safety
    ///
    /// 1. `node` is the item of the reservation, [whole](Reservation::item_of) and not linked. The
    ///    reservation is not used afterwards if there is no error.
    unsafe fn publish_reserved(
        &mut self,
        node: Ptr,
        key: &[u8],
        store: &Store<'_>,
        reservation: &Reservation,
        report: &mut dyn FnMut(Outcome<'_>) -> Flow,
    ) -> verbs::Attempt {
        let engine = self.engine;
        let (old, _) = self.peek(key);
        let (queue, bits) = engine.policy.entrance(self.hash, old);
        // SAFETY: the item is the reservation's, and whole, by 1.
        let made: Item<'_, Link> = unsafe { Item::from_raw(node) };
        made.begin_life(store.deadline, bits, self.now);
        let bytes = engine.heap.footprint(made);
        // Enters before the stripe is locked and the generation is read: see `Heap::enter`.
        let domain = engine.table.domain();
        engine.heap.enter(domain, node, bytes, queue);
        self.session_state.refused = false;
        // SAFETY: the item was made for the store of this reservation, and is not linked, by 1.
        self.inside_with(key, Some(reservation), |inside| unsafe {
            verbs::put(inside, store, Ok(node), report)
        })
    }
}

impl Relativistic {
    /// Bytes that may be reserved: little for values of which little has arrived, since nothing in
    /// reserved runs can be evicted. Otherwise up to half, beside which the largest item has room:
    /// receive buffers would take as much memory from the items, and some of it twice while the
    /// values are copied.
    fn most_reserved(&self, much_has_arrived: bool) -> u64 {
        let allowed = self.heap.allowed();
        let little = allowed / RESERVED_SHARE;
        if much_has_arrived && self.may_evict() {
            let largest = self.heap.needed(self.max_item_bytes);
            little.max(allowed.saturating_sub(largest) / 2)
        } else {
            little
        }
    }

    /// Allocates a run for a large item whose value comes later.
    fn reserve_run(&self, wanted: Wanted, most: u64) -> Option<NonNull<u8>> {
        if !self.may_grow(wanted) {
            return None;
        }
        let request = Request {
            bytes: wanted.bytes,
            generation: self.generation().number,
            spare: self.spare(),
        };
        let is_current = || self.generation().number == request.generation;
        self.heap
            .reserve(self.table.domain(), request, most, is_current)
    }
}
