//! Room for items: open segments, to which items are appended, and runs of large items.

use super::pool::{Pool, State};
use super::{Heap, ItemSizeClass, Ptr};
use crate::engines::relativistic::queues::{Queue, Segment};
use crate::engines::relativistic::runs::Run;
use crate::item::Item;
use corewise_atomic::mutant;
use corewise_atomic::sync::atomic::Ordering;
use corewise_rcu::Domain;
use std::ptr::NonNull;

/// A segment to which items are appended.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) segment: Segment,
    pub(crate) generation: u32,
    /// Bytes from the segment's beginning that are in use, and the most that ever were.
    used: u32,
    touched: u32,
    /// Pages from its beginning up to the last that was resident before it was opened.
    resident_before: u32,
    /// Offset of the next item of a [walk](Heap::begin_walk), and of the walk's end: 0 before the
    /// first one. Items before the end are settled.
    walked: u32,
    walk_end: u32,
}

impl Open {
    /// Whether a walk has begun since the segment was opened.
    pub(crate) fn is_walked(&self) -> bool {
        self.walk_end > 0
    }
}

/// A request for memory: bytes and conditions.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) bytes: usize,
    /// The generation that the item will belong to. It must be the present one.
    pub(crate) generation: u32,
    /// Bytes that must remain free afterwards.
    pub(crate) spare: u64,
}

impl Heap {
    /// Opens a segment for items of a size class, [small](ItemSizeClass::Small) or
    /// [medium](ItemSizeClass::Medium). `is_current` tells, under the pool's lock, whether the
    /// request's generation is still the present one.
    pub(crate) fn open(
        &self,
        domain: &Domain,
        kind: ItemSizeClass,
        request: Request,
        is_current: impl FnOnce() -> bool,
    ) -> Option<Open> {
        let mut pool = self.pool.lock();
        pool.collect(self, domain);
        let bytes = self.segment_bytes();
        if !is_current() || self.held_bytes() + bytes + request.spare > self.allowed() {
            return None;
        }
        let before = pool.resident(self);
        let (segment, resident_before) = match kind {
            ItemSizeClass::Small => (pool.take_low()?, 0),
            _ => pool.take_run(Run {
                segments: 1,
                pages: self.pages(bytes) as u32,
                is_large: false,
            })?,
        };
        self.hold(bytes);
        self.begin(&mut pool, segment, State::Open, request.generation);
        pool.trim_taken(self, before);
        Some(Open {
            segment,
            generation: request.generation,
            used: 0,
            touched: 0,
            resident_before,
            walked: 0,
            walk_end: 0,
        })
    }

    /// Initialises the numbers of a segment that is no longer free.
    fn begin(&self, pool: &mut Pool, segment: Segment, state: State, generation: u32) {
        pool.set(segment, state);
        let index = segment as usize;
        // Relaxed, all: published with the first item or by the pool's lock, which a flush that
        // looks for older generations takes.
        self.fill[index].store(0, Ordering::Relaxed);
        self.settled[index].store(0, Ordering::Relaxed);
        self.generation[index].store(generation, Ordering::Relaxed);
        self.due_s[index].store(u32::MAX, Ordering::Relaxed);
    }

    /// Takes room in an open segment, if it has enough.
    #[inline]
    pub(crate) fn append(&self, open: &mut Open, bytes: usize) -> Option<NonNull<u8>> {
        if open.used as u64 + bytes as u64 > self.segment_bytes() {
            return None;
        }
        // SAFETY: `used` is at most the segment's size (1).
        let memory = unsafe { self.address(open.segment, open.used) };
        open.used += bytes as u32;
        open.touched = open.touched.max(open.used);
        Some(memory)
    }

    /// Takes back the room that was appended last. Returns false if other room was appended since,
    /// or elsewhere.
    ///
    /// # Safety
    ///
    /// 1. `node` is an item of `bytes` bytes that was never linked and is not used any more.
    pub(crate) unsafe fn take_back(&self, open: &mut Open, node: Ptr, bytes: usize) -> bool {
        // SAFETY: `used` is at most the segment's size, and the offsets below are no larger (1).
        let address = |offset| unsafe { self.address(open.segment, offset) };
        let is_last =
            open.used as usize >= bytes && address(open.used - bytes as u32) == node.cast();
        if is_last {
            open.used -= bytes as u32;
        }
        is_last
    }

    /// Begins a walk over the items of an open segment. Returns false if one is not settled.
    pub(crate) fn begin_walk(&self, open: &mut Open) -> bool {
        // Acquire: pairs with the Release in `settle`, so that the items are seen written and
        // linked, or abandoned.
        let settled = self.settled[open.segment as usize].load(Ordering::Acquire);
        let is_settled = settled == open.used || mutant!("walks_unsettled");
        if is_settled {
            (open.walked, open.walk_end) = (0, open.used);
        }
        is_settled
    }

    /// Fills `nodes` with the next items of the walk. Returns the bytes walked, 0 at the end. The
    /// items stay alive while the segment is open, and until the end of any section that began
    /// before it is sealed.
    pub(crate) fn walk_on(&self, open: &mut Open, nodes: &mut [Option<Ptr>]) -> u32 {
        let begin = open.walked;
        for place in nodes {
            if open.walked >= open.walk_end {
                break;
            }
            // SAFETY: the walk has not reached its end, which lies within the segment (1).
            let node: Ptr = unsafe { self.address(open.segment, open.walked) }.cast();
            // SAFETY: there is an item: items lie one after the other up to the walk's end, which
            // have all been written and settled, so none is taken back; an open segment is not
            // retired.
            let item = unsafe { Item::from_raw(node) };
            *place = Some(node);
            open.walked += self.footprint(item) as u32;
        }
        open.walked - begin
    }

    /// Seals an open segment: it gives back the pages that it does not use, and enters a queue at
    /// `queue`.
    pub(crate) fn seal(&self, domain: &Domain, open: Open, queue: Queue) {
        let mut pool = self.pool.lock();
        self.give_back_tail(&mut pool, &open);
        if open.used == 0 {
            return pool.free(self, open.segment);
        }
        let bytes = pool.bytes(self, open.segment);
        pool.queues.insert(open.segment, queue, bytes);
        pool.set(open.segment, State::Sealed);
        let unused = pool.unused(self, open.segment, open.used);
        // Relaxed: as in `held_bytes`. Before the segment can be retired, which subtracts it.
        self.dead.fetch_add(unused, Ordering::Relaxed);
        self.set_used(&mut pool, domain, open.segment, open.used);
        self.sparse.mark(open.segment);
    }

    /// Shrinks a run to the pages that its items use.
    fn give_back_tail(&self, pool: &mut Pool, open: &Open) {
        let Some(run) = pool.runs.get(open.segment) else {
            return;
        };
        if mutant!("keeps_tails") && open.used > 0 {
            return;
        }
        let pages = self.pages(u64::from(open.used)) as u32;
        pool.runs.shorten(open.segment, pages);
        let touched = self.pages(u64::from(open.touched)) as u32;
        let tail = pool
            .runs
            .range(open.segment, pages, touched.max(open.resident_before));
        // SAFETY: these pages of the run lie behind those that its items use (1).
        unsafe { self.discard(tail) };
        self.let_go(u64::from(run.pages - pages) << self.page_log2);
    }

    fn set_used(&self, pool: &mut Pool, domain: &Domain, segment: Segment, used: u32) {
        // AcqRel: pairs with that of `count_dead`, so that the thread that finds the segment dead,
        // here or there, comes after all threads that have unlinked an item of it.
        let before = self.fill[segment as usize].fetch_add(u64::from(used) << 32, Ordering::AcqRel);
        if before as u32 == used {
            pool.retire(self, domain, segment);
        }
    }

    /// Allocates pages for a large item. Its segment is sealed at once, and cannot be claimed
    /// before the item is settled.
    pub(crate) fn open_large(
        &self,
        domain: &Domain,
        request: Request,
        queue: Queue,
        is_current: impl FnOnce() -> bool,
    ) -> Option<NonNull<u8>> {
        let mut pool = self.pool.lock();
        let before = pool.resident(self);
        let segment = self.take_large(&mut pool, domain, request, State::Sealed, is_current)?;
        let bytes = pool.bytes(self, segment);
        pool.queues.insert(segment, queue, bytes);
        self.set_used(&mut pool, domain, segment, request.bytes as u32);
        pool.trim_taken(self, before);
        // SAFETY: the offset is 0, the beginning of the run (1).
        Some(unsafe { self.address(segment, 0) })
    }

    /// Allocates a run for a large item and puts it in no queue.
    fn take_large(
        &self,
        pool: &mut Pool,
        domain: &Domain,
        request: Request,
        state: State,
        is_current: impl FnOnce() -> bool,
    ) -> Option<Segment> {
        let pages = self.pages(request.bytes as u64);
        let bytes = pages << self.page_log2;
        pool.collect(self, domain);
        if !is_current() || self.held_bytes() + bytes + request.spare > self.allowed() {
            return None;
        }
        let (segment, before) = pool.take_run(Run {
            segments: bytes.div_ceil(self.segment_bytes()) as u32,
            pages: pages as u32,
            is_large: true,
        })?;
        pool.runs.shorten(segment, pages as u32);
        // SAFETY: these pages of the new run lie behind those that it will use (1).
        unsafe { self.discard(pool.runs.range(segment, pages as u32, before)) };
        self.hold(bytes);
        pool.publish_longest(self);
        self.begin(pool, segment, state, request.generation);
        Some(segment)
    }

    /// Whether a large item of `bytes` bytes may be reserved, given room: as long as no more than
    /// `most` is reserved, and one item in any case. (A separate receive buffer would take the same
    /// memory.)
    pub(crate) fn may_reserve(&self, bytes: usize, most: u64) -> bool {
        let awaited = self.awaited();
        awaited == 0 || awaited + self.needed(bytes) <= most
    }

    /// Allocates pages for a large item whose value comes later. The item must be in no table
    /// before it has [entered](Heap::enter), and is given up by [`Heap::release`]. At most `most`
    /// bytes are reserved.
    pub(crate) fn reserve(
        &self,
        domain: &Domain,
        request: Request,
        most: u64,
        is_current: impl FnOnce() -> bool,
    ) -> Option<NonNull<u8>> {
        let mut pool = self.pool.lock();
        if !self.may_reserve(request.bytes, most) {
            return None;
        }
        let before = pool.resident(self);
        let segment = self.take_large(&mut pool, domain, request, State::Reserved, is_current)?;
        // Relaxed: as in `held_bytes`.
        self.awaited
            .fetch_add(pool.bytes(self, segment), Ordering::Relaxed);
        pool.trim_taken(self, before);
        // SAFETY: the offset is 0, the beginning of the run (1).
        Some(unsafe { self.address(segment, 0) })
    }

    /// Completes a reserved item of `bytes` bytes: its segment goes to the end of a queue,
    /// unsettled.
    ///
    /// From now on [`Heap::has_older`] sees it. So a later flush does not overlook an item that
    /// enters and is then found to be of the present generation.
    pub(crate) fn enter(&self, domain: &Domain, node: Ptr, bytes: usize, queue: Queue) {
        let segment = self.segment_of(node);
        let mut pool = self.pool.lock();
        debug_assert!(pool.is(segment, State::Reserved));
        let held = pool.bytes(self, segment);
        // Relaxed: as in `held_bytes`.
        self.awaited.fetch_sub(held, Ordering::Relaxed);
        pool.set(segment, State::Sealed);
        pool.queues.insert(segment, queue, held);
        self.set_used(&mut pool, domain, segment, bytes as u32);
    }

    /// Frees the run of a reserved item. Returns false, and changes nothing, if the item has
    /// entered.
    ///
    /// # Safety
    ///
    /// 1. `node` came from [`Heap::reserve`], was not released, and is not used any more unless it
    ///    has entered.
    pub(crate) unsafe fn release(&self, node: Ptr) -> bool {
        let segment = self.segment_of(node);
        let mut pool = self.pool.lock();
        let is_reserved = pool.is(segment, State::Reserved);
        if is_reserved {
            // Relaxed: as in `held_bytes`.
            self.awaited
                .fetch_sub(pool.bytes(self, segment), Ordering::Relaxed);
            pool.free(self, segment);
        }
        is_reserved
    }

    /// Bytes of reserved runs.
    pub(crate) fn awaited(&self) -> u64 {
        // Relaxed: as in `held_bytes`.
        self.awaited.load(Ordering::Relaxed)
    }
}
