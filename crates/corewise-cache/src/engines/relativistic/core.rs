//! What a session owns: the segments that it appends to, its part of eviction, its counts.

use super::Relativistic;
use super::evict::Evictor;
use super::heap::{Open, Ptr};
use super::policy;
use super::queues::{Place, Queue};
use super::tally::Tally;
use crate::item::{self, Contents, Item};
use corewise_atomic::hint;
use corewise_atomic::thread;
use corewise_maps::relativistic::Link;
use corewise_ops::Now;
use std::sync::Arc;

/// Bytes of old segments that are looked through for each byte stored, when little memory is left, when
/// half of that is, and when less.
const PACE: [usize; 3] = [4, 8, 32];
/// How often a session that needs memory looks whether readers have moved on, before it gives up.
const PATIENCE: u32 = 20_000;

pub(super) struct Core {
    pub(super) tally: Arc<Tally>,
    pub(super) evictor: Evictor,
    /// What is appended to now, for each queue.
    opens: [Option<Open>; 2],
    /// A large item that is not published yet.
    large: Option<(Open, Queue)>,
    /// Where the next item goes; decided when room is made for it.
    queue: Queue,
    /// The policy's state bits for it.
    state: u8,
    /// Entries linked less entries unlinked that the table has not been told of.
    pub(super) unreported: isize,
    /// There was no room for what the present operation needs.
    pub(super) refused: bool,
}

impl Core {
    pub(super) fn new(tally: Arc<Tally>) -> Self {
        Self {
            tally,
            evictor: Evictor::new(),
            opens: [None, None],
            large: None,
            queue: Queue::Main,
            state: 0,
            unreported: 0,
            refused: false,
        }
    }

    /// Where the next item goes, and the policy's state bits for it.
    pub(super) fn enter_at(&mut self, entrance: (Queue, u8)) {
        (self.queue, self.state) = entrance;
    }

    /// Sees to it that an item of so many bytes, already rounded, has room, in a segment of the present
    /// generation, and does a share of the eviction. Outside of sections and stripes. False: there is no
    /// memory for it.
    #[inline]
    pub(super) fn ensure(
        &mut self,
        engine: &Relativistic,
        now: Now,
        entrance: (Queue, u8),
        bytes: usize,
    ) -> bool {
        let heap = &engine.heap;
        let headroom = heap.headroom();
        let reserve = engine.reserve() as i64;
        if headroom < reserve {
            let pace = match headroom {
                _ if headroom > reserve / 2 => PACE[0],
                _ if headroom > 0 => PACE[1],
                _ => PACE[2],
            };
            self.evictor
                .step(engine, &self.tally, now, bytes.min(1 << 16) * pace);
        }
        self.enter_at(entrance);
        if bytes > heap.small_bytes() {
            return self.make_room(engine, now, heap.large_bytes(bytes));
        }
        let generation = engine.generation().number;
        let open = self.opens[self.queue as usize].as_ref();
        let fits =
            open.is_some_and(|open| open.generation == generation && heap.has_room(open, bytes));
        fits || self.open_next(engine, now)
    }

    /// A new segment in the place of the one that is full, or of another generation.
    #[cold]
    fn open_next(&mut self, engine: &Relativistic, now: Now) -> bool {
        self.seal(engine, self.queue);
        let (heap, domain) = (&engine.heap, engine.table.domain());
        loop {
            if !self.make_room(engine, now, heap.segment_bytes()) {
                return false;
            }
            let generation = engine.generation().number;
            let open = heap.open(domain, generation, engine.spare());
            if open.is_some() {
                self.opens[self.queue as usize] = open;
                return true;
            }
        }
    }

    fn seal(&mut self, engine: &Relativistic, queue: Queue) {
        if let Some(open) = self.opens[queue as usize].take() {
            engine
                .heap
                .seal(engine.table.domain(), open, Place::Newest(queue));
        }
    }

    /// Evicts, and waits for readers if need be, until so many bytes more may be held. Those who are in
    /// the middle of an operation hold up nobody for long; if a reader does, or nothing can be evicted,
    /// the answer is false.
    fn make_room(&mut self, engine: &Relativistic, now: Now, bytes: u64) -> bool {
        let heap = &engine.heap;
        engine.budget();
        let mut patience = PATIENCE;
        let mut fruitless = if engine.may_evict() { 100 } else { 3 };
        loop {
            heap.collect(engine.table.domain());
            if heap.held() + bytes + engine.spare() <= heap.allowed() {
                return true;
            }
            let worked = heap.headroom() < (bytes + engine.spare()) as i64
                && self.evictor.step(engine, &self.tally, now, 1 << 16);
            if worked {
                continue;
            }
            let others = heap.waiting_bytes() > 0 || engine.evictors() > 0;
            if !others {
                // They may have finished since we looked for something to do.
                fruitless -= 1;
            }
            if patience == 0 || fruitless == 0 {
                return false;
            }
            patience -= 1;
            wait(patience);
        }
    }

    /// Makes an item where there is room; `None` if there is none.
    #[inline]
    pub(super) fn create(
        &mut self,
        engine: &Relativistic,
        contents: &Contents<'_>,
        bytes: usize,
        now: Now,
    ) -> Option<Ptr> {
        let heap = &engine.heap;
        let hash = engine.hash(contents.key);
        let memory = if bytes > heap.small_bytes() {
            let generation = engine.generation().number;
            let open = heap.open_large(engine.table.domain(), generation, bytes, engine.spare())?;
            let memory = heap.large_address(&open);
            self.large = Some((open, self.queue));
            memory
        } else {
            let open = self.opens[self.queue as usize].as_mut()?;
            heap.append(open, bytes)?
        };
        // SAFETY: the memory is the heap's, of the item's size rounded up, aligned to a granule, and
        // nobody else's; `size` has looked at the lengths.
        let node = unsafe { item::write(memory, Link::new(hash), contents, now) };
        // SAFETY: as above.
        unsafe { Item::from_raw(node) }.set_state(policy::BITS, self.state);
        Some(node)
    }

    /// Gives up an item that was not linked.
    #[cold]
    pub(super) fn discard(&mut self, engine: &Relativistic, fresh: Ptr) {
        if let Some((open, _)) = self.large.take() {
            return engine.heap.abandon(open);
        }
        // SAFETY: nobody else has the item.
        let bytes = engine.heap.footprint(unsafe { Item::from_raw(fresh) });
        let open = self.opens[self.queue as usize].as_mut();
        let taken_back = open.is_some_and(|open| engine.heap.take_back(open, fresh, bytes));
        debug_assert!(taken_back, "what is given up was appended last");
        if !taken_back {
            // SAFETY: as above.
            unsafe { (*fresh.as_ptr()).links.abandon() };
            engine.heap.bury(engine.table.domain(), fresh, bytes);
        }
    }

    /// A large item has been published.
    #[inline]
    pub(super) fn seal_large(&mut self, engine: &Relativistic) {
        if let Some((open, queue)) = self.large.take() {
            let place = Place::Newest(queue);
            engine.heap.seal(engine.table.domain(), open, place);
        }
    }

    /// An item was unlinked by this session.
    #[inline]
    pub(super) fn forget(&self, engine: &Relativistic, node: Ptr) {
        forget(engine, &self.tally, node);
    }

    /// Seals everything, and tells the table of everything, when the session ends.
    pub(super) fn end(&mut self, engine: &Relativistic) {
        self.evictor.end(engine);
        self.seal_older(engine, u32::MAX);
        engine.table.adjust(std::mem::take(&mut self.unreported));
    }

    /// Seals what is open and of an older generation.
    pub(super) fn seal_older(&mut self, engine: &Relativistic, generation: u32) {
        for queue in [Queue::Small, Queue::Main] {
            let open = self.opens[queue as usize].as_ref();
            if open.is_some_and(|open| open.generation < generation) {
                self.seal(engine, queue);
            }
        }
        self.evictor.seal_older(engine, generation);
    }
}

/// Counts an item as dead that the caller has unlinked, in a section that began before.
#[inline]
pub(super) fn forget(engine: &Relativistic, tally: &Tally, node: Ptr) {
    // SAFETY: the caller's section keeps the item.
    let bytes = engine.heap.footprint(unsafe { Item::from_raw(node) });
    tally.unlinked(bytes);
    if engine.generation().has_older && engine.is_flushed(node) {
        engine.flushed.unlinked(bytes);
    }
    engine.heap.bury(engine.table.domain(), node, bytes);
}

/// Lets others run: readers, or those who are evicting.
fn wait(patience: u32) {
    if patience > PATIENCE - 64 && !cfg!(any(corewise_loom, corewise_shuttle)) {
        hint::spin_loop();
    } else if patience > PATIENCE - 1_000 {
        thread::yield_now();
    } else {
        thread::sleep(std::time::Duration::from_micros(50));
    }
}
