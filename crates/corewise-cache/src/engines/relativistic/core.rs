//! What a session owns: its share of eviction, room for the item it is about to write, its counts.

use super::Relativistic;
use super::appender::Appender;
use super::evict::{Progress, Site};
use super::heap::{Ptr, Request};
use super::policy;
use super::queues::Queue;
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
/// Bytes of old segments looked through in one step.
const STEP_BYTES: usize = 1 << 16;
/// How often a session that needs memory looks whether readers have moved on, before it gives up: about a
/// second.
const PATIENCE: u32 = 20_000;
/// How often all memory is walked for one item, at most; and if nothing may be evicted.
const TURNS: u64 = 4;
const TURNS_REFUSING: u64 = 1;
/// How often it looks for something to evict where there was nothing: some tenths of a second, in which a
/// thread that was interrupted while it wrote an item, or walked a segment, gets on.
const LOOKS: u32 = 4_000;
/// After how many looks it seals what others have open.
const LOOKS_BEFORE_SEALING: u32 = 64;
/// The same if nothing may be evicted.
const LOOKS_REFUSING: u32 = 3;

pub(super) struct Core {
    pub(super) tally: Arc<Tally>,
    /// The session's number, which chooses its appender.
    number: usize,
    /// Where the next item goes; decided when room is made for it.
    queue: Queue,
    /// The policy's state bits for it.
    state: u8,
    /// Entries linked less entries unlinked that the table has not been told of.
    pub(super) unreported: isize,
    /// There was no room for what the present operation needs.
    pub(super) refused: bool,
}

/// An item that is to be stored.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// Already rounded.
    pub(super) bytes: usize,
    /// Bytes of the item whose place it takes; 0 if there is none.
    pub(super) old_bytes: usize,
    /// A counter that is incremented or decremented: it may need a few more digits.
    pub(super) counts: bool,
}

impl Core {
    pub(super) fn new(tally: Arc<Tally>, number: usize) -> Self {
        Self {
            tally,
            number,
            queue: Queue::Main,
            state: 0,
            unreported: 0,
            refused: false,
        }
    }

    pub(super) fn appender<'e>(&self, engine: &'e Relativistic) -> &'e Appender {
        engine.appender(self.number)
    }

    pub(super) fn site<'s>(&'s self, engine: &'s Relativistic, now: Now) -> Site<'s> {
        Site {
            engine,
            appender: self.appender(engine),
            tally: &self.tally,
            now,
        }
    }

    /// Where the next item goes, and the policy's state bits for it.
    pub(super) fn enter_at(&mut self, entrance: (Queue, u8)) {
        (self.queue, self.state) = entrance;
    }

    /// Does a share of the eviction for `bytes` bytes that will be stored. Outside of sections and stripes.
    #[inline]
    pub(super) fn evict_ahead(&mut self, engine: &Relativistic, now: Now, bytes: usize) {
        let headroom = engine.heap.headroom();
        let reserve = engine.reserve() as i64;
        if headroom < reserve {
            let pace = match headroom {
                _ if headroom > reserve / 2 => PACE[0],
                _ if headroom > 0 => PACE[1],
                _ => PACE[2],
            };
            self.evict_some(engine, now, reserve, bytes.min(STEP_BYTES) * pace);
        }
    }

    /// Walks until the heap's headroom is `target`, but no more than about `bytes` bytes. Outside of sections
    /// and stripes.
    #[cold]
    pub(super) fn evict_some(
        &mut self,
        engine: &Relativistic,
        now: Now,
        target: i64,
        bytes: usize,
    ) -> Progress {
        let site = self.site(engine, now);
        let Some(mut evictor) = site.appender.evictor.try_lock() else {
            return Progress::None; // another session is at it
        };
        evictor.make_headroom(&site, target, bytes)
    }

    /// Evicts, and waits for readers if need be, until an item has room. Outside of sections and stripes.
    ///
    /// Sessions that are in the middle of an operation hold up nobody for long; if a reader does, or
    /// nothing can be evicted, the answer is false: there is no memory for it.
    #[cold]
    pub(super) fn make_room(&mut self, engine: &Relativistic, now: Now, wanted: Wanted) -> bool {
        let heap = &engine.heap;
        engine.budget();
        let needed = heap.needed(wanted.bytes) + engine.spare();
        if needed > heap.allowed() {
            return false;
        }
        let (turns, mut looks) = if engine.may_evict() {
            (TURNS, LOOKS)
        } else {
            (TURNS_REFUSING, LOOKS_REFUSING)
        };
        let mut steps = 64 + turns * heap.held() / STEP_BYTES as u64;
        let mut patience = PATIENCE;
        loop {
            heap.collect(engine.table.domain());
            // Otherwise compaction cannot help: the limit was lowered below what lives.
            let has_space = engine.may_evict() || heap.live_bytes() + needed <= heap.allowed();
            let may_grow = has_space && engine.may_grow(wanted);
            if may_grow && heap.held() + needed <= heap.allowed() {
                return true;
            }
            let progress = if may_grow {
                self.drive_evictors(engine, now, needed as i64)
            } else {
                self.take_back_dead(engine, now)
            };
            if progress == Progress::Made && steps > 0 {
                steps -= 1;
                continue;
            }
            if progress == Progress::None && heap.waiting_bytes() == 0 {
                // Others may have finished since we looked for something to do; or they hold what there
                // is in open segments.
                if looks.is_multiple_of(LOOKS_BEFORE_SEALING) || !engine.may_evict() {
                    engine.seal_older(u32::MAX);
                }
                looks -= 1;
            }
            if patience == 0 || looks == 0 || steps == 0 {
                return false;
            }
            patience -= 1;
            wait(patience);
        }
    }

    /// A step of eviction, by the session's own evictor or another, until the heap's headroom is `target`.
    fn drive_evictors(&mut self, engine: &Relativistic, now: Now, target: i64) -> Progress {
        if engine.heap.headroom() >= target {
            return Progress::Blocked; // only readers are waited for
        }
        let site = self.site(engine, now);
        let mut best = Progress::None;
        for appender in engine.appenders_from(self.number) {
            let Some(mut evictor) = appender.evictor.try_lock() else {
                best = Progress::Blocked;
                continue;
            };
            match evictor.make_headroom(&site, target, STEP_BYTES) {
                Progress::Made => return Progress::Made,
                Progress::Blocked => best = Progress::Blocked,
                Progress::None => {}
            }
        }
        best
    }

    /// Removes what has been flushed or has expired, where nothing else may be removed.
    fn take_back_dead(&mut self, engine: &Relativistic, now: Now) -> Progress {
        let site = self.site(engine, now);
        let swept = engine.generation().has_older && {
            engine.seal_older(engine.generation().number);
            let evictor = site.appender.evictor.try_lock();
            evictor.is_some_and(|mut evictor| evictor.sweep(&site, STEP_BYTES))
        };
        let expired = !swept && {
            let search = engine.search.try_lock();
            search.is_some_and(|mut search| search.all(&site))
        };
        if swept || expired {
            Progress::Made
        } else {
            Progress::None
        }
    }

    /// Makes an item where there is room; `None` if there is none at the moment. The caller links it, or
    /// [discards](Core::discard) it.
    #[inline]
    pub(super) fn create(
        &mut self,
        engine: &Relativistic,
        contents: &Contents<'_>,
        wanted: Wanted,
        now: Now,
    ) -> Option<Ptr> {
        if !engine.may_grow(wanted) {
            return None;
        }
        let request = Request {
            bytes: wanted.bytes,
            generation: engine.generation().number,
            spare: engine.spare(),
        };
        let memory = self
            .appender(engine)
            .allocate(engine, self.queue, request)?;
        let hash = engine.hash(contents.key);
        // SAFETY: the memory is the heap's, of the item's size rounded up, aligned to a granule, and
        // nobody else's; `size` has looked at the lengths.
        let node = unsafe { item::write(memory, Link::new(hash), contents, now) };
        // SAFETY: just written, and nobody else has it.
        unsafe { Item::from_raw(node) }.set_state(policy::BITS, self.state);
        Some(node)
    }

    /// Gives up an item that was not linked.
    #[cold]
    pub(super) fn discard(&mut self, engine: &Relativistic, fresh: Ptr) {
        // SAFETY: nobody else has the item.
        let bytes = engine.heap.footprint(unsafe { Item::from_raw(fresh) });
        let appender = self.appender(engine);
        if !appender.take_back(engine, self.queue, fresh, bytes) {
            // SAFETY: as above.
            unsafe { abandon(engine, fresh, bytes) };
        }
    }

    /// An item was unlinked by this session.
    #[inline]
    pub(super) fn forget(&self, engine: &Relativistic, node: Ptr) {
        forget(engine, &self.tally, node);
    }

    /// Tells the table of everything, and leaves nothing half done, when the session ends.
    pub(super) fn end(&mut self, engine: &Relativistic) {
        if let Some(mut evictor) = self.appender(engine).evictor.try_lock() {
            evictor.end(engine);
        }
        engine.table.adjust(std::mem::take(&mut self.unreported));
    }
}

/// Gives up an item of a sealed or open segment.
///
/// # Safety
///
/// The item was never linked, is not settled, and is the caller's alone.
pub(super) unsafe fn abandon(engine: &Relativistic, fresh: Ptr, bytes: usize) {
    let _section = engine.table.domain().pin();
    // SAFETY: the caller's; the segment is not reused before the section ends.
    unsafe { (*fresh.as_ptr()).links.abandon() };
    engine.heap.settle(fresh, bytes);
    engine.heap.bury(engine.table.domain(), fresh, bytes);
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

/// Lets others run: readers, or sessions that are evicting.
fn wait(patience: u32) {
    if patience > PATIENCE - 64 && !cfg!(any(corewise_loom, corewise_shuttle)) {
        hint::spin_loop();
    } else if patience > PATIENCE - 1_000 {
        thread::yield_now();
    } else {
        thread::sleep(std::time::Duration::from_micros(50));
    }
}
