//! Appenders: where sessions get room for items, and the eviction that makes it.
//!
//! An open segment holds all its pages, however little is in it. So that many sessions do not hold the
//! cache's memory in segments that are nearly empty, they share a number of appenders that fits the
//! memory: each has at most one open segment for each queue and [kind](super::heap::Kind), and together
//! these are at most 1/32 of the memory.
//!
//! ```text
//!  session 0 ─┐                ┌ small queue: [ small items │ medium items ]
//!  session 4 ─┼─▶ appender 0 ──┤ main queue:  [ small items │ medium items ]
//!  session 8 ─┘                └ evictor: the segment it walks
//! ```
//!
//! # Guarantees
//!
//! 1. *Appending is short*: the lock of an appender is held to move a mark, or to open the next segment.
//!    Items are written without it; a segment whose items are not all settled is not claimed.
//! 2. *No memory is stranded*: any session may seal what any appender has open, and drive any evictor.
//! 3. *Order of locks*: evictor, stripe, appender, pool. Nobody waits for readers with one of them but the
//!    evictor's.

use super::Relativistic;
use super::evict::Evictor;
use super::heap::{Kind, Open, Ptr, Request};
use super::queues::{Place, Queue};
use corewise_atomic::lock::Mutex;
use corewise_atomic::mutant;
use std::ptr::NonNull;

/// See the [module](self).
pub(super) struct Appender {
    opens: Mutex<Opens>,
    pub(super) evictor: Mutex<Evictor>,
}

/// By queue and kind.
type Opens = [[Option<Open>; 2]; 2];

/// How many appenders fit `memory` bytes with segments of `segment` bytes: each has up to four segments
/// open.
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
            evictor: Mutex::new(Evictor::new()),
        }
    }

    /// Room for an item that enters a queue; `None` if there is none at the moment, or if the request's
    /// generation is not the present one. The caller writes an item there at once, and
    /// [settles](super::heap::Heap::settle) it.
    #[inline]
    pub(super) fn allocate(
        &self,
        engine: &Relativistic,
        queue: Queue,
        request: Request,
    ) -> Option<NonNull<u8>> {
        let (heap, domain) = (&engine.heap, engine.table.domain());
        let kind = heap.kind(request.bytes);
        if kind == Kind::Large {
            let is_current = || engine.generation().number == request.generation;
            return heap.open_large(domain, request, Place::Newest(queue), is_current);
        }
        let mut opens = self.opens.lock();
        let open = &mut opens[queue as usize][kind as usize];
        match open {
            Some(open) if open.generation == request.generation => heap.append(open, request.bytes),
            _ => None,
        }
        .or_else(|| open_next(engine, open, queue, request))
    }

    /// Takes back the room of an item that was never linked. False if others have appended since.
    pub(super) fn take_back(
        &self,
        engine: &Relativistic,
        queue: Queue,
        node: Ptr,
        bytes: usize,
    ) -> bool {
        let kind = engine.heap.kind(bytes);
        if kind == Kind::Large {
            return false;
        }
        let mut opens = self.opens.lock();
        let open = opens[queue as usize][kind as usize].as_mut();
        open.is_some_and(|open| engine.heap.take_back(open, node, bytes))
    }

    /// Seals what is open and of a generation older than this.
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

/// Room in a new segment, in the place of one that is full or of another generation.
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
    let kind = heap.kind(request.bytes);
    *open = heap.open(domain, kind, request, is_current);
    heap.append(open.as_mut()?, request.bytes)
}

fn seal(engine: &Relativistic, open: &mut Option<Open>, queue: Queue) {
    if let Some(open) = open.take() {
        let domain = engine.table.domain();
        engine.heap.seal(domain, open, Place::Newest(queue));
    }
}
