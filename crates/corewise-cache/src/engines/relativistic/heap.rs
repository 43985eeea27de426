//! The heap: items in segments of one reserved range of addresses, counted by the page.
//!
//! After Segcache (Yang, Yue, Vinayak, *Segcache: a memory-efficient and scalable in-memory key-value
//! cache for small objects*, NSDI 2021, §3) as far as segments go: items are appended to an open segment,
//! never change place, and memory comes back a whole segment at a time. Which items stay is the eviction
//! policy's decision (`evict`), which copies what it keeps.
//!
//! ```text
//!  reserved addresses, most of them never touched
//! ┌────┬─────────┬─────────┬─ ─ ─ ─ ─ ─ ─ ─ ─┬─────────┬─────────┬───────────────────┐
//! │none│ segment │ segment │ fresh … … unused │ segment │ segment │ run of segments   │
//! └────┴────┬────┴─────────┴─ ─ ─ ─ ─ ─ ─ ─ ─┴────┬────┴─────────┴─────────┬─────────┘
//!   low: │ item │ item │ … │          high: │ item │ item │ no pages │  │ item │ no pages │
//!     small items, huge pages                  medium items                large item
//!
//!  a segment's numbers, on the side, reached by its index:
//!   fill        used 32 │ dead 32      bytes; used is 0 while it is open
//!   settled     32                     bytes of items whose writers have finished with them
//!   generation  32                     of all items in it; older than the last flush: flushed
//!   due_s       32                     when to look for expired items next
//!   sparse      1                      compaction may gain something; only where nothing may be evicted
//! ```
//!
//! A node's name in the table is its offset in granules of 8 bytes (16 to 64 beyond 8 GiB of memory), so
//! an address is `base + name × granule`, and an item's segment a shift of its name.
//!
//! # One rule for every size
//!
//! *A segment holds the pages that its items need, and no more.* What an item wastes is therefore bounded
//! for every size, see [`Kind`]:
//!
//! | item | lies in | holds | wasted at most |
//! |---|---|---|---|
//! | small: up to 1/16 of a segment | a low segment with others | the whole segment | 1/16: the tail |
//! | medium | a high segment with others | the pages in use when it is sealed | a page in half a segment |
//! | large: above 1/2 of a segment or 32 KiB | a separate run | its pages | a page in 32 KiB |
//!
//! A run begins at a segment and leaves the addresses behind its pages unused. Where addresses are not
//! plentiful (memory above 2 GiB), items are large from more bytes on: see [`Heap::large_above`].
//!
//! A segment that is open holds all its pages. The number of open segments is bounded by the
//! [appenders](super::appender), which sessions share.
//!
//! Nothing may be called sparse but for its dead bytes: those a copy gains, unused ones it does not.
//!
//! # States of a segment
//!
//! ```text
//!  free ─▶ open ─▶ sealed ⇄ claimed ─▶ retired ─▶ free
//!        appended to  in a queue  one thread walks it  a grace period
//!  free ─▶ reserved ─▶ sealed            a large item whose value is still to come
//!             └──────▶ free              it did not come
//! ```
//!
//! A sealed segment may be claimed only when it has settled: sessions write their items after they have
//! got room for them, without a lock.
//!
//! # Guarantees
//!
//! 1. An item's memory is not written or given away before a grace period after its removal from the
//!    table: its segment is retired when everything in it is dead, and reused after a grace period.
//! 2. Pages that may be resident are at most what the heap is [allowed](Heap::allow), but for what was
//!    allowed before and is in use: memory in use is given back by eviction only.
//! 3. Which thread may do what: the session that got room writes it; the one that has claimed a sealed segment walks
//!    it; anyone buries an item that it has unlinked. Everything else is under the pool's lock.
//! 4. Pages that are resident are used again before others are touched: a store of any size causes page
//!    faults only while the heap grows into its memory, or when the mix of sizes shifts.
//!
//! # Limits
//!
//! Segments are 1/512 of the memory, rounded up to a power of two: at least 32 KiB below 16 MiB of memory,
//! 64 KiB from there on, at most 256 KiB, and never less than a page. See [`MAX_MEMORY`].

use super::queues::{Place, Queues};
use super::runs::{Run, Runs};
use super::sparse::Marks;
use super::tally::Removed;
use crate::item::{Item, Node, state};
use corewise_atomic::alloc::{self, Layout};
use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use corewise_atomic::{Slots, mutant};
use corewise_maps::relativistic::{Arena, Link, NodeId};
use corewise_rcu::{Cookie, Domain};
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::ops::Range;
use std::ptr::NonNull;

/// The most memory that an engine can be given: names of 32 bits and granules of 64 bytes, most of the
/// range for runs that leave addresses unused.
pub const MAX_MEMORY: u64 = 64 << 30;
/// The least, below which it would hold nothing but open segments.
pub const MIN_MEMORY: u64 = 1 << 20;

const SMALLEST_GRANULE_LOG2: u32 = 3;
const LARGEST_GRANULE_LOG2: u32 = 6;
/// How many times the memory is reserved, if names reach that far: for the limit to be raised, and because
/// runs leave addresses unused. (More would cost the numbers of segments that are never used.)
const ROOM: u64 = if super::MODELLED { 3 } else { 16 };
const LEAST_RESERVED: u64 = if super::MODELLED { 0 } else { 4 << 30 };
/// Of huge pages: the usual ones; elsewhere some small pages more or less.
const HUGE_LOG2: u32 = 21;
/// Of segments.
const SMALLEST_LOG2: u32 = 15;
const LARGEST_LOG2: u32 = 18;
/// The smallest segments from [`AMPLE`] memory on: a page is a sixteenth of them.
const SMALLEST_AMPLE_LOG2: u32 = 16;
const AMPLE: u64 = 16 << 20;
/// Segments that the memory is cut into, at most.
const SEGMENTS_LOG2: u32 = 9;
/// The largest small item is as large as a segment by this.
const SMALL_LOG2: u32 = 4;
/// Items above this may be large: they waste a page at most, an eighth of this.
const LEAST_LARGE: usize = 32 << 10;
/// The same in pages, where these are larger than usual.
const LEAST_LARGE_PAGES: usize = 8;
/// Reserved runs are at most this share of the memory, or one item: nothing in them can be evicted.
const RESERVED_SHARE: u64 = 8;

/// An item of this engine, and its links.
pub(super) type Ptr = NonNull<Node<Link>>;

/// A segment, by its index.
pub(super) type Segment = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    Open,
    /// A run whose item is not whole and was never in the table. It is in no queue.
    Reserved,
    Sealed,
    Claimed,
    Retired,
}

/// Where items of a size lie; see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// With others in a low segment, of whose tail they waste little.
    Small,
    /// With others in a high segment, whose unused pages are not held.
    Medium,
    /// Alone.
    Large,
}

/// The heap. See the [module](self).
pub(super) struct Heap {
    arena: ItemArena,
    segment_log2: u32,
    page_log2: u32,
    /// Bytes of the reservation, and whether it is one or the allocator's memory.
    reserved: usize,
    is_reservation: bool,
    huge_pages: bool,
    /// Whether dead bytes are summed up, and segments to compact are marked.
    sums_dead: bool,
    sparse: Marks,
    /// Segments that were looked at for a sparse one.
    #[cfg(test)]
    pub(super) looks: AtomicU64,
    /// By segment: used and dead bytes.
    fill: Slots<AtomicU64>,
    settled: Slots<AtomicU32>,
    generation: Slots<AtomicU32>,
    due_s: Slots<AtomicU32>,
    /// Bytes that may be resident.
    allowed: AtomicU64,
    /// Items of more bytes are large.
    large_above: AtomicUsize,
    /// Bytes of reserved runs.
    awaited: AtomicU64,
    /// Bytes of segments that are not free.
    held: AtomicU64,
    /// Bytes of those that wait for readers.
    retired: AtomicU64,
    /// Dead bytes in segments that are not retired, if they are summed up.
    dead: AtomicU64,
    /// Pages of the longest run, with what [`Runs::longest`] rounds.
    longest_run: AtomicU32,
    pool: Mutex<Pool>,
}

/// Names to addresses.
#[derive(Clone, Copy)]
pub(super) struct ItemArena {
    base: NonNull<u8>,
    granule_log2: u32,
}

// SAFETY: it only computes addresses; who follows them answers for what is there.
unsafe impl Send for ItemArena {}
// SAFETY: as for `Send`: it only computes addresses.
unsafe impl Sync for ItemArena {}

// SAFETY: the address of a name never changes, and an item stays where it is until a grace period after
// its removal (guarantee 1).
unsafe impl Arena for ItemArena {
    #[inline(always)]
    unsafe fn link(&self, id: NodeId) -> NonNull<Link> {
        let offset = (id.0.get() as usize) << self.granule_log2;
        // SAFETY: names are offsets within the reservation, and the links are an item's first bytes.
        unsafe { self.base.add(offset).cast() }
    }
}

struct Pool {
    queues: Queues,
    state: Vec<u8>,
    /// Free low segments whose pages may be resident.
    dirty: Vec<Segment>,
    /// Free low segments whose pages were given back.
    clean: Vec<Segment>,
    /// Segments from here on up to the lowest run were never used.
    fresh: Segment,
    /// Low segments that are not free.
    low_used: u64,
    waiting: VecDeque<Retired>,
    runs: Runs,
}

struct Retired {
    segment: Segment,
    after: Cookie,
}

/// A segment that is appended to.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) segment: Segment,
    pub(super) generation: u32,
    /// Bytes from the segment's beginning that are in use, and that ever were.
    used: u32,
    touched: u32,
    /// Pages from its beginning up to the last that was resident before.
    resident_before: u32,
}

/// Bytes and conditions of a request for memory.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) bytes: usize,
    /// The generation that the item will belong to, which must be the present one.
    pub(super) generation: u32,
    /// Bytes that must remain for others afterwards.
    pub(super) spare: u64,
}

impl Heap {
    /// A heap for `memory` bytes, or `None` if the system has no addresses for it. `sums_dead`: whether
    /// [`Heap::live_bytes`] and [`Heap::claim_sparsest`] will be asked for.
    pub(super) fn new(memory: u64, huge_pages: bool, sums_dead: bool) -> Option<Self> {
        Self::with_pages(memory, huge_pages, sums_dead, alloc::page_bytes())
    }

    /// The same, taking pages to have `page` bytes: a multiple of what they have.
    fn with_pages(memory: u64, huge_pages: bool, sums_dead: bool, page: usize) -> Option<Self> {
        let memory = memory.clamp(MIN_MEMORY, MAX_MEMORY);
        let mut granule_log2 = SMALLEST_GRANULE_LOG2;
        while (1 << (32 + granule_log2)) < 4 * memory && granule_log2 < LARGEST_GRANULE_LOG2 {
            granule_log2 += 1;
        }
        let page_log2 = page.ilog2();
        let segment_log2 = segment_log2(memory).max(page_log2);
        let wanted = (ROOM * memory)
            .max(LEAST_RESERVED)
            .min(1 << (32 + granule_log2));
        let (base, reserved, is_reservation) = addresses(wanted as usize, memory as usize * 3)?;
        let segments = reserved >> segment_log2;
        let pages_per_segment = 1 << (segment_log2 - page_log2);
        let heap = Self {
            arena: ItemArena { base, granule_log2 },
            segment_log2,
            page_log2,
            reserved,
            is_reservation,
            sums_dead,
            sparse: Marks::new(if sums_dead { segments } else { 1 })?,
            #[cfg(test)]
            looks: AtomicU64::new(0),
            fill: Slots::try_zeroed(segments)?,
            settled: Slots::try_zeroed(segments)?,
            generation: Slots::try_zeroed(segments)?,
            due_s: Slots::try_zeroed(segments)?,
            allowed: AtomicU64::new(memory),
            large_above: AtomicUsize::new(0),
            awaited: AtomicU64::new(0),
            held: AtomicU64::new(0),
            retired: AtomicU64::new(0),
            dead: AtomicU64::new(0),
            longest_run: AtomicU32::new(0),
            pool: Mutex::new(Pool::new(segments, pages_per_segment)),
            huge_pages,
        };
        heap.prefer_huge(memory);
        heap.choose_large(memory);
        Some(heap)
    }

    /// Asks for huge pages where small items will be, if that was wished. Not for runs, which leave pages
    /// unused; and not for the last sixteenth of `memory`, which the bucket arrays have in the end: the
    /// last huge page would be resident whole for a few segments.
    pub(super) fn prefer_huge(&self, memory: u64) {
        if self.huge_pages && self.is_reservation {
            let whole = (memory - memory / 16) >> HUGE_LOG2 << HUGE_LOG2;
            // SAFETY: the reservation is larger.
            unsafe { alloc::prefer_huge(self.arena.base, whole as usize) };
        }
    }

    #[inline(always)]
    pub(super) fn arena(&self) -> ItemArena {
        self.arena
    }

    /// Bytes of a segment.
    #[inline(always)]
    pub(super) fn segment_bytes(&self) -> u64 {
        1 << self.segment_log2
    }

    /// Where an item of `bytes` bytes lies.
    #[inline(always)]
    pub(super) fn kind(&self, bytes: usize) -> Kind {
        if bytes <= 1 << (self.segment_log2 - SMALL_LOG2) {
            Kind::Small
        } else if bytes <= self.large_above() {
            Kind::Medium
        } else {
            Kind::Large
        }
    }

    /// Items of more bytes are large. Half a segment at most, since two items must fit a segment; otherwise
    /// no less than [`LEAST_LARGE`], and so much that runs for `allowed` bytes of the smallest large items
    /// take half of the addresses.
    fn large_above(&self) -> usize {
        // Relaxed: a setting. An item that lies elsewhere than its size says by now is found by its address.
        self.large_above.load(Ordering::Relaxed)
    }

    fn choose_large(&self, allowed: u64) {
        let segment = self.segment_bytes();
        let by_addresses = u128::from(segment) * 2 * u128::from(allowed) / self.reserved as u128;
        let least = LEAST_LARGE.max(LEAST_LARGE_PAGES << self.page_log2);
        let above = least.max(by_addresses as usize).min(segment as usize / 2);
        // Relaxed: see `large_above`.
        self.large_above.store(above, Ordering::Relaxed);
    }

    /// Bytes that must be free so that an item of `bytes` bytes has room for certain.
    pub(super) fn needed(&self, bytes: usize) -> u64 {
        match self.kind(bytes) {
            Kind::Large => self.pages(bytes as u64) << self.page_log2,
            _ => self.segment_bytes(),
        }
    }

    fn pages(&self, bytes: u64) -> u64 {
        bytes.div_ceil(1 << self.page_log2)
    }

    /// What an item of `bytes` bytes takes.
    #[inline(always)]
    pub(super) fn rounded(&self, bytes: usize) -> usize {
        bytes.next_multiple_of(1 << self.arena.granule_log2)
    }

    /// What an item takes, without what its pages waste.
    #[inline(always)]
    pub(super) fn footprint(&self, item: Item<'_, Link>) -> usize {
        self.rounded(item.bytes())
    }

    /// What statistics want to know of an item that is removed.
    pub(super) fn removed(&self, item: Item<'_, Link>) -> Removed {
        Removed {
            footprint: self.footprint(item),
            unfetched: item.state() & state::FETCHED == 0,
        }
    }

    /// The name of an item.
    #[inline(always)]
    pub(super) fn name(&self, node: Ptr) -> NodeId {
        let offset = node.as_ptr().addr() - self.arena.base.as_ptr().addr();
        // The first segment is not used, so no item has the name 0.
        let name = NonZeroU32::new((offset >> self.arena.granule_log2) as u32);
        NodeId(name.expect("items lie behind the first segment"))
    }

    #[inline(always)]
    fn segment_at(&self, memory: NonNull<u8>) -> Segment {
        let offset = memory.as_ptr().addr() - self.arena.base.as_ptr().addr();
        (offset >> self.segment_log2) as Segment
    }

    /// The segment of an item: of a large one, the first of its run.
    #[inline(always)]
    pub(super) fn segment_of(&self, node: Ptr) -> Segment {
        self.segment_at(node.cast())
    }

    #[inline(always)]
    fn address(&self, segment: Segment, offset: u32) -> NonNull<u8> {
        let offset = ((segment as usize) << self.segment_log2) + offset as usize;
        // SAFETY: segments and what is appended to them lie within the reservation.
        unsafe { self.arena.base.add(offset) }
    }

    #[inline(always)]
    pub(super) fn generation(&self, segment: Segment) -> u32 {
        // Relaxed: set before anything in the segment was published.
        self.generation[segment as usize].load(Ordering::Relaxed)
    }

    // ---- budget

    /// The most bytes that can be allowed: a third of the reservation, since runs leave addresses unused.
    pub(super) fn most_allowed(&self) -> u64 {
        self.reserved as u64 / 3
    }

    /// Sets how many bytes may be resident; if that is less than before, gives free pages back.
    pub(super) fn allow(&self, bytes: u64) {
        // Relaxed: a setting.
        let before = self.allowed.swap(bytes, Ordering::Relaxed);
        self.choose_large(bytes);
        if bytes < before {
            self.pool.lock().trim(self);
        }
    }

    #[inline]
    pub(super) fn allowed(&self) -> u64 {
        // Relaxed: a setting.
        self.allowed.load(Ordering::Relaxed)
    }

    /// Bytes in segments that are not free.
    #[inline]
    pub(super) fn held(&self) -> u64 {
        // Relaxed: a number that publishes nothing.
        self.held.load(Ordering::Relaxed)
    }

    /// Bytes in segments that wait for readers.
    #[inline]
    pub(super) fn waiting_bytes(&self) -> u64 {
        // Relaxed: as in `held`.
        self.retired.load(Ordering::Relaxed)
    }

    /// Bytes that can still be had, now or when readers have moved on; negative if too much is held.
    ///
    /// Three numbers that others change meanwhile, so an estimate: what waits may just have been
    /// let go of.
    #[inline]
    pub(super) fn headroom(&self) -> i64 {
        self.allowed() as i64 - self.held() as i64 + self.waiting_bytes() as i64
    }

    /// Bytes held for what is not dead: what would be held if every segment was compacted. Only if dead
    /// bytes are summed up; an estimate, as [`Heap::headroom`].
    pub(super) fn live_bytes(&self) -> u64 {
        // Relaxed: as in `held`.
        let dead = self.dead.load(Ordering::Relaxed);
        self.held().saturating_sub(self.waiting_bytes() + dead)
    }

    /// Bytes of the largest item, or up to a quarter more; 0 if there is no large one.
    pub(super) fn largest_bytes(&self) -> u64 {
        // Relaxed: as in `held`.
        u64::from(self.longest_run.load(Ordering::Relaxed)) << self.page_log2
    }

    fn hold(&self, bytes: u64) {
        // Relaxed: as in `held`; written under the pool's lock.
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    fn let_go(&self, bytes: u64) {
        // Relaxed: as above.
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes that may be resident, in use or free.
    #[cfg(test)]
    pub(super) fn resident(&self) -> u64 {
        self.pool.lock().resident(self)
    }

    // ---- room for items

    /// A segment for items of a kind, [small](Kind::Small) or [medium](Kind::Medium). `is_current` tells,
    /// under the pool's lock, whether the request's generation is the present one still.
    pub(super) fn open(
        &self,
        domain: &Domain,
        kind: Kind,
        request: Request,
        is_current: impl FnOnce() -> bool,
    ) -> Option<Open> {
        let mut pool = self.pool.lock();
        pool.collect(self, domain);
        let bytes = self.segment_bytes();
        if !is_current() || self.held() + bytes + request.spare > self.allowed() {
            return None;
        }
        let (segment, resident_before) = match kind {
            Kind::Small => (pool.take_low()?, 0),
            _ => pool.take_run(Run {
                segments: 1,
                pages: self.pages(bytes) as u32,
                is_large: false,
            })?,
        };
        self.hold(bytes);
        self.begin(&mut pool, segment, State::Open, request.generation);
        pool.trim(self);
        Some(Open {
            segment,
            generation: request.generation,
            used: 0,
            touched: 0,
            resident_before,
        })
    }

    /// A segment's numbers, when it is not free any more.
    fn begin(&self, pool: &mut Pool, segment: Segment, state: State, generation: u32) {
        pool.set(segment, state);
        let index = segment as usize;
        // Relaxed, all: published with the first item or by the pool's lock, which a flush that looks for
        // older generations takes.
        self.fill[index].store(0, Ordering::Relaxed);
        self.settled[index].store(0, Ordering::Relaxed);
        self.generation[index].store(generation, Ordering::Relaxed);
        self.due_s[index].store(u32::MAX, Ordering::Relaxed);
    }

    /// Room in an open segment, if it has any.
    #[inline]
    pub(super) fn append(&self, open: &mut Open, bytes: usize) -> Option<NonNull<u8>> {
        if open.used as u64 + bytes as u64 > self.segment_bytes() {
            return None;
        }
        let memory = self.address(open.segment, open.used);
        open.used += bytes as u32;
        open.touched = open.touched.max(open.used);
        Some(memory)
    }

    /// Takes the room that was appended last back. False if it is not the last, or elsewhere.
    pub(super) fn take_back(&self, open: &mut Open, node: Ptr, bytes: usize) -> bool {
        let is_last = open.used as usize >= bytes
            && self.address(open.segment, open.used - bytes as u32) == node.cast();
        if is_last {
            open.used -= bytes as u32;
        }
        is_last
    }

    /// Ends an open segment: it gives back the pages that it does not use, and goes to its place in the
    /// queues.
    pub(super) fn seal(&self, domain: &Domain, open: Open, place: Place) {
        let mut pool = self.pool.lock();
        self.give_back_tail(&mut pool, &open);
        if open.used == 0 {
            return pool.free(self, open.segment);
        }
        let bytes = pool.bytes(self, open.segment);
        pool.queues.insert(open.segment, place, bytes);
        pool.set(open.segment, State::Sealed);
        self.set_used(&mut pool, domain, open.segment, open.used);
        if self.sums_dead {
            self.sparse.mark(open.segment);
        }
    }

    /// Leaves to a run the pages that its items use.
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
        self.discard(tail);
        self.let_go(u64::from(run.pages - pages) << self.page_log2);
    }

    fn set_used(&self, pool: &mut Pool, domain: &Domain, segment: Segment, used: u32) {
        // AcqRel: pairs with that of `bury`, so that the thread that finds the segment dead, here or there, comes
        // after all who have unlinked an item of it.
        let before = self.fill[segment as usize].fetch_add(u64::from(used) << 32, Ordering::AcqRel);
        if before as u32 == used {
            pool.retire(self, domain, segment);
        }
    }

    /// Pages for a large item. Its segment is sealed at once, and cannot be claimed before the item is
    /// settled.
    pub(super) fn open_large(
        &self,
        domain: &Domain,
        request: Request,
        place: Place,
        is_current: impl FnOnce() -> bool,
    ) -> Option<NonNull<u8>> {
        let mut pool = self.pool.lock();
        let segment = self.take_large(&mut pool, domain, request, State::Sealed, is_current)?;
        let bytes = pool.bytes(self, segment);
        pool.queues.insert(segment, place, bytes);
        self.set_used(&mut pool, domain, segment, request.bytes as u32);
        pool.trim(self);
        Some(self.address(segment, 0))
    }

    /// A run for a large item, not yet in a queue.
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
        if !is_current() || self.held() + bytes + request.spare > self.allowed() {
            return None;
        }
        let (segment, before) = pool.take_run(Run {
            segments: bytes.div_ceil(self.segment_bytes()) as u32,
            pages: pages as u32,
            is_large: true,
        })?;
        pool.runs.shorten(segment, pages as u32);
        self.discard(pool.runs.range(segment, pages as u32, before));
        self.hold(bytes);
        pool.publish_longest(self);
        self.begin(pool, segment, state, request.generation);
        Some(segment)
    }

    // ---- reserved runs

    /// Whether a large item of `bytes` bytes may be reserved, room provided: as long as little is, and one in
    /// any case. (A buffer beside it would take as much.)
    pub(super) fn may_reserve(&self, bytes: usize) -> bool {
        // Relaxed: as in `held`.
        let awaited = self.awaited.load(Ordering::Relaxed);
        awaited == 0 || awaited + self.needed(bytes) <= self.allowed() / RESERVED_SHARE
    }

    /// Pages for a large item whose value comes later. The item must be in no table before it has
    /// [entered](Heap::enter), and is given up by [`Heap::release`].
    pub(super) fn reserve(
        &self,
        domain: &Domain,
        request: Request,
        is_current: impl FnOnce() -> bool,
    ) -> Option<NonNull<u8>> {
        let mut pool = self.pool.lock();
        if !self.may_reserve(request.bytes) {
            return None;
        }
        let segment = self.take_large(&mut pool, domain, request, State::Reserved, is_current)?;
        // Relaxed: as in `held`.
        self.awaited
            .fetch_add(pool.bytes(self, segment), Ordering::Relaxed);
        pool.trim(self);
        Some(self.address(segment, 0))
    }

    /// A reserved item of `bytes` bytes is whole: its segment goes to its place in the queues, unsettled.
    ///
    /// From now on [`Heap::has_older`] sees it. So an item that enters and is then found to be of the
    /// present generation is not overlooked by a later flush.
    pub(super) fn enter(&self, domain: &Domain, node: Ptr, bytes: usize, place: Place) {
        let segment = self.segment_of(node);
        let mut pool = self.pool.lock();
        debug_assert!(pool.is(segment, State::Reserved));
        let held = pool.bytes(self, segment);
        // Relaxed: as in `held`.
        self.awaited.fetch_sub(held, Ordering::Relaxed);
        pool.set(segment, State::Sealed);
        pool.queues.insert(segment, place, held);
        self.set_used(&mut pool, domain, segment, bytes as u32);
    }

    /// Frees the run of a reserved item. False, and nothing changed, if it has entered.
    pub(super) fn release(&self, node: Ptr) -> bool {
        let segment = self.segment_of(node);
        let mut pool = self.pool.lock();
        let is_reserved = pool.is(segment, State::Reserved);
        if is_reserved {
            // Relaxed: as in `held`.
            self.awaited
                .fetch_sub(pool.bytes(self, segment), Ordering::Relaxed);
            pool.free(self, segment);
        }
        is_reserved
    }

    /// Bytes of reserved runs.
    #[cfg(test)]
    pub(super) fn awaited(&self) -> u64 {
        // Relaxed: as in `held`.
        self.awaited.load(Ordering::Relaxed)
    }

    /// Counts an item as one whose writer has finished with it: it is linked, or abandoned. The caller is
    /// in the section that it published the item in, so that the segment cannot be in use again yet.
    #[inline]
    pub(super) fn settle(&self, node: Ptr, bytes: usize) {
        // Release: pairs with the Acquire in `is_settled`, so that the claimant sees the item written and
        // linked.
        self.settled[self.segment_of(node) as usize].fetch_add(bytes as u32, Ordering::Release);
    }

    fn is_settled(&self, segment: Segment) -> bool {
        // Acquire: pairs with the Release in `settle`. Relaxed: `used` is set under the pool's lock, which
        // the caller holds.
        let settled = self.settled[segment as usize].load(Ordering::Acquire);
        let used = self.fill[segment as usize].load(Ordering::Relaxed) >> 32;
        used == u64::from(settled) || mutant!("claims_unsettled")
    }

    // ---- dead items

    /// Counts `bytes` bytes of an item's segment as dead: the item is in no table. The segment is retired
    /// when it was the last.
    #[inline]
    pub(super) fn bury(&self, domain: &Domain, node: Ptr, bytes: usize) {
        let segment = self.segment_of(node);
        if self.sums_dead {
            // Relaxed: as in `held`. Before the segment can be retired, which takes it off.
            self.dead.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        // AcqRel: see `set_used`.
        let before = self.fill[segment as usize].fetch_add(bytes as u64, Ordering::AcqRel);
        let (used, dead) = (before >> 32, u64::from(before as u32) + bytes as u64);
        if used == dead {
            self.retire_dead(domain, segment);
        } else if self.sums_dead {
            self.sparse.mark(segment);
        }
    }

    #[cold]
    fn retire_dead(&self, domain: &Domain, segment: Segment) {
        let mut pool = self.pool.lock();
        // If it is claimed, the claimant will find out.
        if pool.is(segment, State::Sealed) && self.is_dead(segment) {
            pool.retire(self, domain, segment);
        }
    }

    fn is_dead(&self, segment: Segment) -> bool {
        // Acquire: see `set_used`.
        let fill = self.fill[segment as usize].load(Ordering::Acquire);
        fill >> 32 == u64::from(fill as u32)
    }

    /// Used and dead bytes of a sealed segment.
    fn fill(&self, segment: Segment) -> (u32, u32) {
        // Relaxed: numbers that decide nothing about lifetimes.
        let fill = self.fill[segment as usize].load(Ordering::Relaxed);
        ((fill >> 32) as u32, fill as u32)
    }

    // ---- claims

    /// Claims the segment that `choose` finds, of those that may be claimed.
    pub(super) fn claim(
        &self,
        choose: impl FnOnce(&Queues, &dyn Fn(Segment) -> bool) -> Option<Segment>,
    ) -> Option<Claim> {
        let mut pool = self.pool.lock();
        let segment = {
            let pool = &*pool;
            choose(&pool.queues, &|segment| pool.may_claim(self, segment))?
        };
        Some(pool.claim(segment))
    }

    /// Claims the first segment that may be claimed from a random one on.
    pub(super) fn claim_random(&self, draw: u64) -> Option<Claim> {
        let mut pool = self.pool.lock();
        let high = pool.state.len() as u64 - u64::from(pool.runs.from());
        let drawn = draw % (u64::from(pool.fresh) + high).max(1);
        let mut from = match drawn.checked_sub(u64::from(pool.fresh)) {
            Some(above) => pool.runs.from() + above as Segment,
            None => drawn as Segment,
        };
        for _ in 0..pool.used_segments() + 1 {
            let segment = pool.next_used(from);
            if pool.may_claim(self, segment) {
                return Some(pool.claim(segment));
            }
            from = segment + 1;
        }
        None
    }

    /// Claims the first segment from `*from` on that may be claimed and that `wanted` accepts, looking at
    /// `*looks` at most. Both move on; `*from` round and round.
    pub(super) fn claim_where(
        &self,
        from: &mut Segment,
        looks: &mut u32,
        mut wanted: impl FnMut(Candidate) -> bool,
    ) -> Option<Claim> {
        let mut pool = self.pool.lock();
        while *looks > 0 {
            *looks -= 1;
            let segment = pool.next_used(*from);
            *from = segment + 1;
            self.count_look();
            if pool.may_claim(self, segment) && wanted(pool.candidate(self, segment)) {
                return Some(pool.claim(segment));
            }
        }
        None
    }

    /// Claims the segment that gains most of the next `most` that `wanted` accepts, of those that are
    /// [marked](super::sparse), from `*from` on.
    pub(super) fn claim_sparsest(
        &self,
        from: &mut Segment,
        most: usize,
        wanted: impl Fn(Candidate) -> bool,
    ) -> Option<Claim> {
        let mut pool = self.pool.lock();
        let sparse = self.sparse.marked_from(*from).filter_map(|segment| {
            self.count_look();
            self.sparse.take(segment);
            let may_claim = pool.may_claim(self, segment);
            let candidate = may_claim.then(|| pool.candidate(self, segment));
            let stays = match candidate {
                Some(candidate) => wanted(candidate),
                None => !pool.is(segment, State::Free) && !pool.is(segment, State::Retired),
            };
            if stays {
                self.sparse.mark(segment);
            }
            candidate.filter(|_| stays)
        });
        let best = sparse.take(most).max_by_key(Candidate::share)?.segment;
        *from = best + 1;
        Some(pool.claim(best))
    }

    fn count_look(&self) {
        #[cfg(test)]
        self.looks.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a segment other than a free, reserved or retired one has an older generation than this.
    pub(super) fn has_older(&self, generation: u32) -> bool {
        let pool = self.pool.lock();
        let mut all = (1..pool.fresh).chain(pool.runs.used());
        all.any(|segment| {
            let has_items = [State::Open, State::Sealed, State::Claimed];
            has_items.iter().any(|state| pool.is(segment, *state))
                && self.generation(segment) < generation
        })
    }

    /// Segments that may be in use, about: those that a round of [`Heap::claim_where`] goes over.
    pub(super) fn used_segments(&self) -> u32 {
        self.pool.lock().used_segments()
    }

    /// Ends a claim; the segment goes back where it was, or is retired if nothing in it lives.
    pub(super) fn unclaim(&self, domain: &Domain, claim: Claim) {
        let mut pool = self.pool.lock();
        pool.set(claim.segment, State::Sealed);
        if self.is_dead(claim.segment) {
            pool.retire(self, domain, claim.segment);
        }
    }

    /// Ends a claim by moving the segment to another place.
    pub(super) fn unclaim_to(&self, domain: &Domain, claim: Claim, place: Place) {
        {
            let mut pool = self.pool.lock();
            let bytes = pool.bytes(self, claim.segment);
            pool.queues.remove(claim.segment, bytes);
            pool.queues.insert(claim.segment, place, bytes);
        }
        self.unclaim(domain, claim);
    }

    /// Frees what readers have left, after a look at where they are.
    pub(super) fn collect(&self, domain: &Domain) {
        if self.waiting_bytes() == 0 {
            return;
        }
        let Some(oldest) = self.pool.try_lock().and_then(|pool| pool.oldest()) else {
            return;
        };
        // Without the lock: it may interrupt the other processors.
        if (domain.poll(oldest) || mutant!("no_grace_period"))
            && let Some(mut pool) = self.pool.try_lock()
        {
            pool.collect(self, domain);
        }
    }

    fn discard(&self, pages: Range<u64>) {
        if !pages.is_empty() {
            let from = (pages.start as usize) << self.page_log2;
            let bytes = ((pages.end - pages.start) as usize) << self.page_log2;
            // SAFETY: pages of the reservation that belong to no item: free, or behind what a segment uses.
            unsafe { alloc::discard(self.arena.base.add(from).as_ptr(), bytes) };
        }
    }

    // ---- walks and times

    /// When the segment should be looked through for expired items, in seconds.
    #[inline]
    pub(super) fn due_s(&self, segment: Segment) -> u32 {
        // Relaxed: a hint.
        self.due_s[segment as usize].load(Ordering::Relaxed)
    }

    /// Sets that time.
    pub(super) fn set_due_s(&self, segment: Segment, due_s: u32) {
        // Relaxed: as above.
        self.due_s[segment as usize].store(due_s, Ordering::Relaxed);
    }

    /// Makes that time no later than this.
    #[inline]
    pub(super) fn due_by(&self, segment: Segment, due_s: u32) {
        if due_s < self.due_s(segment) {
            // Relaxed: as above.
            self.due_s[segment as usize].fetch_min(due_s, Ordering::Relaxed);
        }
    }

    /// The item at an offset of a claimed segment, and the offset of the next.
    ///
    /// The item is in the caller's hands as long as it has the claim.
    #[inline]
    pub(super) fn item_at(&self, claim: &Claim, offset: u32) -> Option<(Ptr, u32)> {
        let (used, _) = self.fill(claim.segment);
        if offset >= used {
            return None;
        }
        let node: Ptr = self.address(claim.segment, offset).cast();
        // SAFETY: items lie one behind the other up to `used`, written before the segment was settled, and
        // stay until it is retired, which the claim prevents.
        let item = unsafe { Item::from_raw(node) };
        Some((node, offset + self.footprint(item) as u32))
    }
}

/// A sealed and settled segment that one thread walks.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) segment: Segment,
    pub(super) is_large: bool,
}

impl Claim {
    /// Bytes in use from the segment's beginning, dead ones included.
    pub(super) fn used(&self, heap: &Heap) -> u32 {
        heap.fill(self.segment).0
    }
}

/// A segment that may be claimed.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    pub(super) segment: Segment,
    /// Bytes that it holds.
    pub(super) held: u64,
    /// Bytes that copying what lives in it elsewhere would gain: the dead ones, and in a low segment what was
    /// left unused, if that is more than the tail of a segment that was filled. (Behind a run's items there
    /// are no pages, and a copy would have a tail as well.)
    pub(super) gain: u64,
}

impl Candidate {
    /// The share of what it holds that would be gained, in 1,024ths.
    pub(super) fn share(&self) -> u64 {
        self.gain * 1024 / self.held.max(1)
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // Items have nothing to drop.
        // SAFETY: from `addresses`, and nobody uses the heap any more.
        unsafe {
            if self.is_reservation {
                alloc::release(self.arena.base, self.reserved);
            } else {
                alloc::dealloc(self.arena.base, own_layout(self.reserved));
            }
        }
    }
}

fn segment_log2(memory: u64) -> u32 {
    let wanted = memory.next_power_of_two().ilog2() - SEGMENTS_LOG2;
    let least = if memory < AMPLE {
        SMALLEST_LOG2
    } else {
        SMALLEST_AMPLE_LOG2
    };
    wanted.clamp(least, LARGEST_LOG2)
}

/// A reservation of `most` bytes; or, where the system gives none, less, and at last `least` bytes of the
/// allocator's memory.
fn addresses(most: usize, least: usize) -> Option<(NonNull<u8>, usize, bool)> {
    let mut bytes = most;
    while bytes >= least {
        if let Some(base) = alloc::reserve(bytes) {
            return Some((base, bytes, true));
        }
        bytes /= 2;
    }
    let base = alloc::alloc_zeroed(own_layout(least), alloc::Node::Local)?;
    Some((base, least, false))
}

fn own_layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, alloc::page_bytes()).expect("no more than an address range")
}

impl Pool {
    fn new(segments: usize, pages_per_segment: u32) -> Self {
        Self {
            queues: Queues::new(segments),
            state: vec![State::Free as u8; segments],
            dirty: Vec::new(),
            clean: Vec::new(),
            // An item in the first would have the name 0.
            fresh: 1,
            low_used: 0,
            waiting: VecDeque::new(),
            runs: Runs::new(segments, pages_per_segment),
        }
    }

    fn is(&self, segment: Segment, state: State) -> bool {
        self.state[segment as usize] == state as u8
    }

    fn set(&mut self, segment: Segment, state: State) {
        self.state[segment as usize] = state as u8;
    }

    fn may_claim(&self, heap: &Heap, segment: Segment) -> bool {
        self.state.get(segment as usize) == Some(&(State::Sealed as u8)) && heap.is_settled(segment)
    }

    fn candidate(&self, heap: &Heap, segment: Segment) -> Candidate {
        let (used, dead) = heap.fill(segment);
        let held = self.bytes(heap, segment);
        let unused = heap.segment_bytes().saturating_sub(u64::from(used));
        let is_low = self.runs.get(segment).is_none();
        let gain =
            if is_low && unused > held >> (SMALL_LOG2 - 1) || mutant!("counts_unused_as_gain") {
                u64::from(dead) + unused
            } else {
                u64::from(dead)
            };
        Candidate {
            segment,
            held,
            gain,
        }
    }

    fn claim(&mut self, segment: Segment) -> Claim {
        self.set(segment, State::Claimed);
        Claim {
            segment,
            is_large: self.runs.get(segment).is_some_and(|run| run.is_large),
        }
    }

    fn used_segments(&self) -> u32 {
        self.fresh + self.runs.used_count()
    }

    /// The first segment in use from `from` on; the low ones, then the runs, then from the start.
    fn next_used(&self, from: Segment) -> Segment {
        if from < self.fresh {
            return from.max(1);
        }
        self.runs.used_from(from).unwrap_or(1)
    }

    /// A free low segment, if possible one whose pages are resident.
    fn take_low(&mut self) -> Option<Segment> {
        let segment = match self.dirty.pop().or_else(|| self.clean.pop()) {
            Some(segment) => segment,
            None => {
                if self.fresh == self.runs.from() {
                    self.runs.retreat();
                }
                let is_free = self.fresh < self.runs.from();
                self.fresh += u32::from(is_free);
                is_free.then(|| self.fresh - 1)?
            }
        };
        self.low_used += 1;
        Some(segment)
    }

    fn take_run(&mut self, run: Run) -> Option<(Segment, u32)> {
        let lowest = self.fresh;
        self.runs.take(run, lowest)
    }

    /// A segment in which everything is dead: out of the queues, free after a grace period.
    fn retire(&mut self, heap: &Heap, domain: &Domain, segment: Segment) {
        let bytes = self.bytes(heap, segment);
        self.queues.remove(segment, bytes);
        self.set(segment, State::Retired);
        // Relaxed, both: see `held`.
        heap.retired.fetch_add(bytes, Ordering::Relaxed);
        if heap.sums_dead {
            let dead = u64::from(heap.fill(segment).1);
            heap.dead.fetch_sub(dead, Ordering::Relaxed);
        }
        self.waiting.push_back(Retired {
            segment,
            after: domain.start_poll(),
        });
    }

    /// Bytes that a segment holds.
    fn bytes(&self, heap: &Heap, segment: Segment) -> u64 {
        let run = self.runs.get(segment);
        run.map_or(heap.segment_bytes(), |run| {
            u64::from(run.pages) << heap.page_log2
        })
    }

    /// When the segment that has waited longest is free.
    fn oldest(&self) -> Option<Cookie> {
        self.waiting.front().map(|oldest| oldest.after)
    }

    /// Frees what is known to have been left by readers.
    fn collect(&mut self, heap: &Heap, domain: &Domain) {
        while let Some(oldest) = self.waiting.front() {
            if !domain.is_complete(oldest.after) && !mutant!("no_grace_period") {
                return;
            }
            let segment = oldest.segment;
            self.waiting.pop_front();
            // Relaxed: see `held`.
            heap.retired
                .fetch_sub(self.bytes(heap, segment), Ordering::Relaxed);
            self.free(heap, segment);
        }
    }

    fn free(&mut self, heap: &Heap, segment: Segment) {
        self.set(segment, State::Free);
        heap.let_go(self.bytes(heap, segment));
        if self.runs.give_back(segment).is_none() {
            self.low_used -= 1;
            self.dirty.push(segment);
        }
        self.publish_longest(heap);
        self.trim(heap);
    }

    fn publish_longest(&self, heap: &Heap) {
        if heap.sums_dead {
            // Relaxed: as in `held`.
            heap.longest_run
                .store(self.runs.longest(), Ordering::Relaxed);
        }
    }

    /// Bytes that may be resident, in use or free.
    fn resident(&self, heap: &Heap) -> u64 {
        let low = (self.low_used + self.dirty.len() as u64) << heap.segment_log2;
        low + (self.runs.resident_pages() << heap.page_log2)
    }

    /// Gives back free pages while more may be resident than is allowed.
    fn trim(&mut self, heap: &Heap) {
        loop {
            let excess = self.resident(heap).saturating_sub(heap.allowed());
            if excess == 0 {
                return;
            }
            if let Some(segment) = self.dirty.pop() {
                let pages = 1 << (heap.segment_log2 - heap.page_log2);
                heap.discard(self.runs.range(segment, 0, pages));
                self.clean.push(segment);
            } else if let Some(pages) = self.runs.spare(heap.pages(excess)) {
                heap.discard(pages);
            } else {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::{self, Contents};
    use corewise_ops::Now;
    use corewise_rcu::Builder;

    const MEMORY: u64 = 1 << 20;
    const NEWEST: Place = Place::Newest(super::super::queues::Queue::Main);

    fn heap() -> (Heap, Domain) {
        let heap = Heap::new(MEMORY, false, true).expect("addresses");
        (heap, Builder::default().build("test"))
    }

    fn write(memory: NonNull<u8>, value: &[u8]) -> Ptr {
        let contents = Contents {
            key: b"key",
            value: [value, b""],
            client_flags: 0,
            deadline: corewise_ops::Deadline::NEVER,
            state: 0,
        };
        let now = Now {
            ms: 5_000,
            unix_s: 0,
        };
        // SAFETY: the tests append as many bytes as the item takes.
        unsafe { item::write(memory, Link::new(7), &contents, now) }
    }

    fn bytes_of(heap: &Heap, value: usize) -> usize {
        heap.rounded(size_of::<Node<Link>>() + 3 + value)
    }

    fn append(heap: &Heap, open: &mut Open, value: &[u8]) -> Option<Ptr> {
        let bytes = bytes_of(heap, value.len());
        let node = write(heap.append(open, bytes)?, value);
        heap.settle(node, bytes);
        Some(node)
    }

    fn request(bytes: usize, spare: u64) -> Request {
        Request {
            bytes,
            generation: 3,
            spare,
        }
    }

    fn open(heap: &Heap, domain: &Domain, kind: Kind, spare: u64) -> Option<Open> {
        heap.open(domain, kind, request(0, spare), || true)
    }

    fn open_small(heap: &Heap, domain: &Domain) -> Open {
        open(heap, domain, Kind::Small, 0).expect("room")
    }

    #[test]
    fn items_of_a_sealed_segment_are_walked_in_order() {
        let (heap, domain) = heap();
        let mut open = open_small(&heap, &domain);
        let values: Vec<Vec<u8>> = (0..50).map(|len| vec![len; usize::from(len)]).collect();
        let nodes: Vec<Ptr> = values
            .iter()
            .map(|value| append(&heap, &mut open, value).unwrap())
            .collect();
        assert_eq!(heap.generation(heap.segment_of(nodes[9])), 3);
        heap.seal(&domain, open, NEWEST);
        let claim = heap.claim(|queues, _| queues.oldest(super::super::queues::Queue::Main));
        let claim = claim.unwrap();
        let (mut at, mut seen) = (0, Vec::new());
        while let Some((node, next)) = heap.item_at(&claim, at) {
            // SAFETY: written above, and not freed.
            seen.push(unsafe { Item::from_raw(node) }.value().to_vec());
            at = next;
        }
        assert_eq!(seen, values);
        heap.unclaim(&domain, claim);
    }

    #[test]
    fn a_segment_comes_back_a_grace_period_after_its_last_item_died() {
        let (heap, domain) = heap();
        let mut open = open_small(&heap, &domain);
        let bytes = bytes_of(&heap, 10);
        let nodes = [0; 2].map(|_| append(&heap, &mut open, &[1; 10]).unwrap());
        heap.bury(&domain, nodes[0], bytes);
        heap.seal(&domain, open, NEWEST);
        assert_eq!(heap.waiting_bytes(), 0);
        let guard = domain.pin();
        heap.bury(&domain, nodes[1], bytes);
        assert_eq!(heap.waiting_bytes(), heap.segment_bytes());
        heap.collect(&domain);
        assert_eq!(heap.held(), heap.segment_bytes(), "a reader may be in it");
        drop(guard);
        heap.collect(&domain);
        assert_eq!((heap.held(), heap.waiting_bytes()), (0, 0));
    }

    #[test]
    fn what_dies_before_the_seal_counts() {
        let (heap, domain) = heap();
        let mut open = open_small(&heap, &domain);
        let node = append(&heap, &mut open, &[1; 10]).unwrap();
        heap.bury(&domain, node, bytes_of(&heap, 10));
        heap.seal(&domain, open, NEWEST);
        assert_eq!(heap.waiting_bytes(), heap.segment_bytes());
    }

    #[test]
    fn a_claimed_segment_is_retired_by_the_claimant() {
        let (heap, domain) = heap();
        let mut open = open_small(&heap, &domain);
        let node = append(&heap, &mut open, &[1; 10]).unwrap();
        heap.seal(&domain, open, NEWEST);
        let claim = heap.claim_where(&mut 1, &mut 8, |_| true).unwrap();
        assert!(heap.claim_where(&mut 1, &mut 8, |_| true).is_none());
        heap.bury(&domain, node, bytes_of(&heap, 10));
        assert_eq!(heap.waiting_bytes(), 0);
        heap.unclaim(&domain, claim);
        assert_eq!(heap.waiting_bytes(), heap.segment_bytes());
    }

    #[test]
    fn no_more_is_given_out_than_is_allowed() {
        let (heap, domain) = heap();
        let spare = 4 * heap.segment_bytes();
        let opened = std::iter::from_fn(|| open(&heap, &domain, Kind::Small, spare));
        let opened: Vec<Open> = opened.collect();
        assert_eq!(heap.held() + spare, MEMORY);
        let large = heap.segment_bytes() as usize * 2 - 9;
        let newest = || true;
        let refused = heap.open_large(&domain, request(large, spare), NEWEST, newest);
        assert!(refused.is_none());
        let room = heap.open_large(&domain, request(large, 0), NEWEST, newest);
        let room = room.expect("the spare memory");
        assert_eq!(heap.held() + spare, MEMORY + 2 * heap.segment_bytes());
        let node = write(room, &[7; 10]);
        heap.settle(node, large);
        heap.bury(&domain, node, large);
        opened
            .into_iter()
            .for_each(|open| heap.seal(&domain, open, NEWEST));
        heap.collect(&domain);
        assert_eq!((heap.held(), heap.waiting_bytes()), (0, 0));
        assert_eq!(heap.headroom(), MEMORY as i64);
    }

    #[test]
    fn nothing_is_opened_for_a_generation_that_has_ended() {
        let (heap, domain) = heap();
        let ended = || false;
        assert!(
            heap.open(&domain, Kind::Small, request(9, 0), ended)
                .is_none()
        );
        let large = request(heap.segment_bytes() as usize, 0);
        assert!(heap.open_large(&domain, large, NEWEST, ended).is_none());
        assert_eq!(heap.held(), 0);
    }

    #[test]
    fn a_medium_segment_holds_the_pages_in_use() {
        for page in [4 << 10, 16 << 10, 64 << 10] {
            let heap = Heap::with_pages(MEMORY, false, true, page).expect("addresses");
            let domain = Builder::default().build("test");
            let mut medium = open(&heap, &domain, Kind::Medium, 0).expect("room");
            let mut count = 0;
            let value = (heap.segment_bytes() as usize * 2).div_ceil(5);
            assert_eq!(heap.kind(value + 50), Kind::Medium);
            while append(&heap, &mut medium, &vec![1; value]).is_some() {
                count += 1;
            }
            assert_eq!((count, heap.held()), (2, heap.segment_bytes()));
            let used = bytes_of(&heap, value) * count;
            heap.seal(&domain, medium, NEWEST);
            assert_eq!(heap.held(), used.next_multiple_of(page) as u64);
        }
    }

    /// Whatever is discarded, no neighbour loses a byte: with pages of any size.
    #[test]
    fn giving_pages_back_leaves_what_lives_alone() {
        for page in [4 << 10, 16 << 10, 64 << 10] {
            let heap = Heap::with_pages(MEMORY, false, false, page).expect("addresses");
            let domain = Builder::default().build("test");
            let mut kept: Vec<(Ptr, Vec<u8>)> = Vec::new();
            for round in 0..200u32 {
                let kind = [Kind::Small, Kind::Medium][round as usize % 2];
                let Some(mut opened) = open(&heap, &domain, kind, 0) else {
                    break;
                };
                let len =
                    (heap.segment_bytes() as usize / 3).min(1000 + 977 * round as usize % 9000);
                let value = vec![round as u8 | 1; len];
                let node = append(&heap, &mut opened, &value).expect("room");
                heap.seal(&domain, opened, NEWEST);
                if round % 3 == 0 {
                    kept.push((node, value));
                } else {
                    heap.bury(&domain, node, bytes_of(&heap, len));
                }
                heap.collect(&domain);
                heap.allow(MEMORY / (1 + u64::from(round % 3)));
                heap.allow(MEMORY);
                for (node, value) in &kept {
                    // SAFETY: written above, and not buried.
                    assert_eq!(unsafe { Item::from_raw(*node) }.value(), value);
                }
            }
            assert!(kept.len() > 3);
        }
    }

    #[test]
    fn an_unsettled_segment_is_not_claimed() {
        let (heap, domain) = heap();
        let mut open = open_small(&heap, &domain);
        append(&heap, &mut open, &[1; 10]).unwrap();
        let room = heap.append(&mut open, bytes_of(&heap, 20)).unwrap();
        heap.seal(&domain, open, NEWEST);
        assert!(heap.claim_where(&mut 1, &mut 8, |_| true).is_none());
        assert!(heap.claim_random(17).is_none());
        heap.settle(write(room, &[2; 20]), bytes_of(&heap, 20));
        assert!(heap.claim_where(&mut 1, &mut 8, |_| true).is_some());
    }

    #[test]
    fn free_segments_are_given_back_when_less_is_allowed() {
        let (heap, domain) = heap();
        for kind in [Kind::Small, Kind::Medium] {
            let all =
                || -> Vec<Open> { std::iter::from_fn(|| open(&heap, &domain, kind, 0)).collect() };
            let opened = all();
            let count = opened.len();
            assert!(count as u64 * heap.segment_bytes() == MEMORY);
            for mut open in opened {
                let node = append(&heap, &mut open, &[9; 100]).unwrap();
                heap.seal(&domain, open, NEWEST);
                heap.bury(&domain, node, bytes_of(&heap, 100));
            }
            heap.collect(&domain);
            heap.allow(MEMORY / 2);
            assert!(heap.resident() <= MEMORY / 2);
            heap.allow(MEMORY);
            let again = all();
            assert_eq!(again.len(), count, "those given back can be had again");
            again
                .into_iter()
                .for_each(|open| heap.seal(&domain, open, NEWEST));
        }
    }

    #[test]
    fn what_was_appended_last_can_be_taken_back() {
        let (heap, domain) = heap();
        let mut open = open_small(&heap, &domain);
        let bytes = bytes_of(&heap, 8);
        let first = append(&heap, &mut open, &[1; 8]).unwrap();
        let second = append(&heap, &mut open, &[2; 8]).unwrap();
        assert!(!heap.take_back(&mut open, first, bytes));
        assert!(heap.take_back(&mut open, second, bytes));
        assert_eq!(append(&heap, &mut open, &[3; 8]), Some(second));
        heap.seal(&domain, open, NEWEST);
    }

    #[test]
    fn names_lead_back_to_items() {
        let (heap, domain) = heap();
        let mut open = open_small(&heap, &domain);
        let node = append(&heap, &mut open, &[1; 10]).unwrap();
        let name = heap.name(node);
        // SAFETY: the name of an item that lives.
        assert_eq!(unsafe { heap.arena().link(name) }.cast(), node);
        heap.seal(&domain, open, NEWEST);
    }
}
