//! Appenders: they give sessions room for items. Beside each is the evictor that makes it.
//!
//! An open segment holds all its pages, however few of them are used. So that many sessions do not
//! hold the cache's memory in nearly empty segments, they share a number of appenders that fits the
//! memory. Each appender has at most one open segment per queue and
//! [size class](super::heap::ItemSizeClass), and together these are at most 1/32 of the memory.
//!
//! ```text
//!  session 0 ─┐                ┌ small queue: [ small items │ medium items ]
//!  session 4 ─┼─▶ appender 0 ──┴ main queue:  [ small items │ medium items ]
//!  session 8 ─┘
//! ```
//!
//! # Guarantees
//!
//! 1. *Appending is short*: an appender's lock is held to advance an offset, or to open the next
//!    segment. Items are written without it; a segment whose items are not all settled is not
//!    claimed.
//! 2. *No memory is stranded*: any session may seal the open segments of any appender, and drive
//!    any evictor.
//! 3. *Lock order*: evictor, stripe, appender, pool. A thread may hold the evictor's lock while it
//!    waits for readers, but none of the others.

use super::Relativistic;
use super::heap::{Heap, ItemSizeClass, Open, Ptr, Request};
use super::queues::{Queue, Segment};
use corewise_atomic::lock::Mutex;
use corewise_atomic::mutant;
use std::ptr::NonNull;

/// An appender. See the [module](self).
pub(super) struct Appender {
    opens: Mutex<Opens>,
}

/// Open segments, by queue and kind.
type Opens = [[Option<Open>; 2]; 2];

/// The number of places for open segments of an appender.
pub(super) const OPENS: usize = 4;

/// The result of a [step](Appender::walk_on) through an open segment.
pub(super) enum WalkedOn {
    /// Bytes walked; more items follow.
    Some(u32),
    /// All items that were there when the walk began have been visited.
    End,
    /// The segment was sealed meanwhile.
    Sealed,
}

/// The number of appenders that fits `memory` bytes with segments of `segment` bytes: each has up
/// to four open segments.
pub(super) fn count(memory: u64, segment: u64) -> usize {
    const SEGMENTS_EACH: u64 = 128;
    const MOST: u64 = 64;
    if mutant!("an_appender_each") {
        return MOST as usize;
    }
    (memory / (segment * SEGMENTS_EACH)).clamp(1, MOST) as usize
}

impl Appender {
    pub(super) fn new() -> Self {
        Self {
            opens: Mutex::new(Opens::default()),
        }
    }

    /// Allocates room for an item that enters a queue. Returns `None` if there is none at the
    /// moment, or if the request's generation is not the present one. The caller writes an item
    /// there at once, and [settles](super::heap::Heap::settle) it.
    #[inline]
    pub(super) fn allocate(
        &self,
        engine: &Relativistic,
        queue: Queue,
        request: Request,
    ) -> Option<NonNull<u8>> {
        let (heap, domain) = (&engine.heap, engine.table.domain());
        let kind = heap.size_class(request.bytes);
        if kind == ItemSizeClass::Large {
            let is_current = || engine.generation().number == request.generation;
            heap.collect_for(domain, request.bytes);
            return heap.open_large(domain, request, queue, is_current);
        }
        let mut opens = self.opens.lock();
        let open = &mut opens[queue as usize][kind as usize];
        // A segment has items of one generation only, so that a flush hides all of them or none.
        match open {
            Some(open) if open.generation == request.generation => heap.append(open, request.bytes),
            _ => None,
        }
        .or_else(|| open_next(engine, open, queue, request))
    }

    /// Takes back the room of an item that was never linked. Returns false if others have appended
    /// since.
    ///
    /// # Safety
    ///
    /// 1. `node` is an item of `bytes` bytes that was never linked and is not used any more.
    pub(super) unsafe fn take_back(
        &self,
        engine: &Relativistic,
        queue: Queue,
        node: Ptr,
        bytes: usize,
    ) -> bool {
        let kind = engine.heap.size_class(bytes);
        if kind == ItemSizeClass::Large {
            return false;
        }
        let mut opens = self.opens.lock();
        let open = opens[queue as usize][kind as usize].as_mut();
        // SAFETY: the item was never linked and is not used any more, by 1.
        open.is_some_and(|open| unsafe { engine.heap.take_back(open, node, bytes) })
    }

    /// The open segment at a place.
    pub(super) fn open_segment(&self, place: usize) -> Option<Segment> {
        let opens = self.opens.lock();
        opens.as_flattened()[place]
            .as_ref()
            .map(|open| open.segment)
    }

    /// Begins a walk of an open segment. Returns false if it is no longer at this place, or if one
    /// of its items is not settled.
    pub(super) fn begin_walk(&self, heap: &Heap, place: usize, segment: Segment) -> bool {
        let mut opens = self.opens.lock();
        let open = opens.as_flattened_mut()[place].as_mut();
        open.is_some_and(|open| open.segment == segment && heap.begin_walk(open))
    }

    /// Fills `nodes` with the next items of the walk. They stay alive until the caller's section
    /// ends.
    pub(super) fn walk_on(
        &self,
        heap: &Heap,
        place: usize,
        segment: Segment,
        nodes: &mut [Option<Ptr>],
    ) -> WalkedOn {
        let mut opens = self.opens.lock();
        match &mut opens.as_flattened_mut()[place] {
            // Otherwise the segment was sealed since the walk began, or another one is open here.
            Some(open) if open.segment == segment && open.is_walked() => {
                match heap.walk_on(open, nodes) {
                    0 => WalkedOn::End,
                    walked => WalkedOn::Some(walked),
                }
            }
            _ => WalkedOn::Sealed,
        }
    }

    /// Seals the open segments of generations older than this.
    pub(super) fn seal_older(&self, engine: &Relativistic, generation: u32) {
        let mut opens = self.opens.lock();
        for queue in [Queue::Small, Queue::Main] {
            for open in &mut opens[queue as usize] {
                if open
                    .as_ref()
                    .is_some_and(|open| open.generation < generation)
                {
                    seal(engine, open, queue);
                }
            }
        }
    }
}

/// Allocates room in a new segment, replacing one that is full or of another generation.
#[cold]
fn open_next(
    engine: &Relativistic,
    open: &mut Option<Open>,
    queue: Queue,
    request: Request,
) -> Option<NonNull<u8>> {
    let is_current = || engine.generation().number == request.generation;
    if !is_current() {
        return None;
    }
    seal(engine, open, queue);
    let (heap, domain) = (&engine.heap, engine.table.domain());
    let kind = heap.size_class(request.bytes);
    heap.collect_for(domain, request.bytes);
    *open = heap.open(domain, kind, request, is_current);
    heap.append(open.as_mut()?, request.bytes)
}

fn seal(engine: &Relativistic, open: &mut Option<Open>, queue: Queue) {
    if let Some(open) = open.take() {
        let domain = engine.table.domain();
        engine.heap.seal(domain, open, queue);
    }
}
