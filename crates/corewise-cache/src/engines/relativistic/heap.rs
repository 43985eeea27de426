//! The heap: items in segments of one reserved address range, accounted by the page.
//!
//! Segments follow \[Segcache\] §3: items are appended to an open segment, never move within it,
//! and memory is freed one whole segment at a time. The eviction policy (`evict`) decides which
//! items stay, and copies them.
//!
//! ```text
//!  reserved addresses, most of them never touched
//! ┌────┬─────────┬─────────┬─ ─ ─ ─ ─ ─ ─ ─ ─┬─────────┬─────────┬───────────────────┐
//! │none│ segment │ segment │ fresh … … unused │ segment │ segment │ run of segments   │
//! └────┴────┬────┴─────────┴─ ─ ─ ─ ─ ─ ─ ─ ─┴────┬────┴─────────┴─────────┬─────────┘
//!   low: │ item │ item │ … │          high: │ item │ item │ no pages │  │ item │ no pages │
//!     small items, huge pages                  medium items                large item
//!
//!  a segment's numbers, stored outside the segment, by its index:
//!   fill        used 32 │ dead 32      bytes; used is 0 while it is open
//!   settled     32                     bytes of items whose writers have finished with them
//!   generation  32                     of all items in it; older than the last flush: flushed
//!   due_s       32                     when to look for expired items next
//!   sparse      1                      compaction may gain; used only where nothing may be evicted
//! ```
//!
//! A node ID in the table is the node's offset in granules of 8 bytes (16 to 64 beyond 8 GiB of
//! memory), so an address is `base + ID × granule`, and the ID shifted right gives the item's
//! segment.
//!
//! # One rule for every size
//!
//! *A segment holds the pages that its items need, and no more.* So the waste per item is bounded
//! for every size, see [`Kind`]:
//!
//! | item | lies in | holds | wasted at most |
//! |---|---|---|---|
//! | small: up to 1/16 of a segment | a low segment with others | the whole segment | 1/16: the tail |
//! | medium | a high segment with others | the pages in use when it is sealed | a page in half a segment |
//! | large: above 1/2 of a segment or 32 KiB | a separate run | its pages | a page in 32 KiB |
//!
//! A run begins at a segment boundary and leaves the addresses behind its pages unused. Where
//! addresses are not plentiful (memory above 2 GiB), items count as large from a larger size on:
//! see [`Heap::large_above`].
//!
//! An open segment holds all its pages. The [appenders](super::appender), which sessions share,
//! bound the number of open segments.
//!
//! A segment is sparse because of its dead bytes: a copy gains those. A copy gains unused bytes
//! only if the segment was sealed early, see `Pool::unused`.
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
//! A sealed segment may be claimed only when it has settled: sessions get room for items under a
//! lock, but write them without one.
//!
//! # Guarantees
//!
//! 1. An item's memory is not written or given away before a grace period after its removal from
//!    the table: its segment is retired when everything in it is dead, and reused after a grace
//!    period.
//! 2. Pages that may be resident are at most what the heap is [allowed](Heap::allow), except for
//!    pages that were allowed before and are in use: only eviction gives back memory in use.
//! 3. Access: the session that got room writes it; the thread that has claimed a sealed segment
//!    walks it; any thread that unlinked an item counts it as dead. Everything else is under the
//!    pool's lock.
//! 4. Resident pages are reused before others are touched: a store of any size causes page faults
//!    only while the heap grows into its memory, or when the mix of sizes shifts.
//!
//! # Limits
//!
//! Segments are 1/512 of the memory, rounded up to a power of two: at least 32 KiB below 16 MiB of
//! memory, 64 KiB from there on, at most 256 KiB, and never less than a page. See [`MAX_MEMORY`].

use super::queues::{Place, Queues};
use super::runs::{Run, Runs};
use super::session_counters::Removed;
use super::sparse::Marks;
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

/// The largest memory of an engine: node IDs have 32 bits and granules 64 bytes, and most of the
/// range is for runs that leave addresses unused.
pub const MAX_MEMORY: u64 = 64 << 30;
/// The smallest memory of an engine. With less, it would hold nothing but open segments.
pub const MIN_MEMORY: u64 = 1 << 20;

const SMALLEST_GRANULE_LOG2: u32 = 3;
const LARGEST_GRANULE_LOG2: u32 = 6;
/// The reservation as a multiple of the memory, where node IDs reach that far: the limit may be
/// raised, and runs leave addresses unused. (More would cost memory for the numbers of segments
/// that are never used.)
const ROOM: u64 = if super::MODELLED { 3 } else { 16 };
const LEAST_RESERVED: u64 = if super::MODELLED { 0 } else { 4 << 30 };
/// Size of huge pages: the usual one. With other sizes, the covered range is off by some small
/// pages.
const HUGE_LOG2: u32 = 21;
/// Sizes of segments.
const SMALLEST_LOG2: u32 = 15;
const LARGEST_LOG2: u32 = 18;
/// The smallest segment size from [`AMPLE`] memory on: a page is a sixteenth of it.
const SMALLEST_AMPLE_LOG2: u32 = 16;
const AMPLE: u64 = 16 << 20;
/// The most segments that the memory is divided into.
const SEGMENTS_LOG2: u32 = 9;
/// The largest small item is a segment divided by two to this power.
const SMALL_LOG2: u32 = 4;
/// Items above this size may be large: they waste at most a page, an eighth of this.
const LEAST_LARGE: usize = 32 << 10;
/// The same in pages, where pages are larger than usual.
const LEAST_LARGE_PAGES: usize = 8;
/// Reserved runs are at most this share (1/8) of the memory, or one item: nothing in them can be
/// evicted.
const RESERVED_SHARE: u64 = 8;

/// A pointer to an item of this engine and its links.
pub(super) type Ptr = NonNull<Node<Link>>;

/// The index of a segment.
pub(super) type Segment = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    Open,
    /// A run whose item is incomplete and was never in the table. It is in no queue.
    Reserved,
    Sealed,
    Claimed,
    Retired,
}

/// Where items of a size lie; see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// With others in a low segment; they waste little of its tail.
    Small,
    /// With others in a high segment, which does not hold its unused pages.
    Medium,
    /// Alone in a run.
    Large,
}

/// The heap. See the [module](self).
pub(super) struct Heap {
    arena: ItemArena,
    segment_log2: u32,
    page_log2: u32,
    /// Bytes of the reserved range, and whether it is a reservation or the allocator's memory.
    reserved: usize,
    is_reservation: bool,
    huge_pages: bool,
    /// Whether the heap sums up dead bytes and marks segments to compact.
    sums_dead: bool,
    sparse: Marks,
    /// Number of segments examined in search of a sparse one.
    #[cfg(test)]
    pub(super) looks: AtomicU64,
    /// Used and dead bytes, by segment.
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
    /// Bytes of held segments that wait for readers.
    retired: AtomicU64,
    /// Dead bytes in segments that are not retired, if they are summed up.
    dead: AtomicU64,
    /// Pages of the longest run, rounded as in [`Runs::longest`].
    longest_run: AtomicU32,
    pool: Mutex<Pool>,
}

/// Converts node IDs to addresses.
#[derive(Clone, Copy)]
pub(super) struct ItemArena {
    base: NonNull<u8>,
    granule_log2: u32,
}

// SAFETY: it only computes addresses; code that dereferences them must prove that it may.
unsafe impl Send for ItemArena {}
// SAFETY: as for `Send`: it only computes addresses.
unsafe impl Sync for ItemArena {}

// SAFETY: the address of a node ID never changes, and an item stays where it is until a grace
// period after its removal (guarantee 1).
unsafe impl Arena for ItemArena {
    #[inline(always)]
    unsafe fn link(&self, id: NodeId) -> NonNull<Link> {
        let offset = (id.0.get() as usize) << self.granule_log2;
        // SAFETY: node IDs are offsets within the reservation, and the links are an item's first
        // bytes.
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
    /// Segments from here up to the lowest run were never used.
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

/// A segment to which items are appended.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) segment: Segment,
    pub(super) generation: u32,
    /// Bytes from the segment's beginning that are in use, and the most that ever were.
    used: u32,
    touched: u32,
    /// Pages from its beginning up to the last that was resident before it was opened.
    resident_before: u32,
}

/// A request for memory: bytes and conditions.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) bytes: usize,
    /// The generation that the item will belong to. It must be the present one.
    pub(super) generation: u32,
    /// Bytes that must remain free afterwards.
    pub(super) spare: u64,
}

impl Heap {
    /// Creates a heap for `memory` bytes. Returns `None` if the system has no addresses for it.
    /// `sums_dead` tells whether [`Heap::live_bytes`] and [`Heap::claim_sparsest`] will be called.
    pub(super) fn new(memory: u64, huge_pages: bool, sums_dead: bool) -> Option<Self> {
        Self::with_pages(memory, huge_pages, sums_dead, alloc::page_bytes())
    }

    /// As [`Heap::new`], with pages of `page` bytes: a multiple of the real page size.
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

    /// Asks for huge pages where small items will lie, if the configuration wants them.
    ///
    /// Runs get none, because they leave pages unused. The last sixteenth of `memory` gets none
    /// either: the bucket arrays finally take it, and the last huge page would be wholly resident
    /// for a few segments.
    pub(super) fn prefer_huge(&self, memory: u64) {
        if self.huge_pages && self.is_reservation {
            let whole = (memory - memory / 16) >> HUGE_LOG2 << HUGE_LOG2;
            let whole = (whole as usize).min(self.reserved);
            // SAFETY: 1: the reservation has at least as many bytes.
            unsafe { alloc::prefer_huge(self.arena.base, whole) };
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

    /// The size above which items are large.
    ///
    /// It is at most half a segment, since two items must fit a segment. Otherwise it is at least
    /// [`LEAST_LARGE`], and large enough that runs for `allowed` bytes of the smallest large items
    /// take half of the addresses.
    fn large_above(&self) -> usize {
        // Relaxed: a setting. An item that no longer lies where its size says is found by its
        // address.
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

    /// Bytes that must be free so that an item of `bytes` bytes is certain to have room.
    pub(super) fn needed(&self, bytes: usize) -> u64 {
        match self.kind(bytes) {
            Kind::Large => self.pages(bytes as u64) << self.page_log2,
            _ => self.segment_bytes(),
        }
    }

    fn pages(&self, bytes: u64) -> u64 {
        bytes.div_ceil(1 << self.page_log2)
    }

    /// The size of an item of `bytes` bytes, rounded to granules.
    #[inline(always)]
    pub(super) fn rounded(&self, bytes: usize) -> usize {
        bytes.next_multiple_of(1 << self.arena.granule_log2)
    }

    /// The bytes that an item takes, without the waste of its pages.
    #[inline(always)]
    pub(super) fn footprint(&self, item: Item<'_, Link>) -> usize {
        self.rounded(item.bytes())
    }

    /// The data that statistics need of a removed item.
    pub(super) fn removed(&self, item: Item<'_, Link>) -> Removed {
        Removed {
            footprint: self.footprint(item),
            unfetched: item.state() & state::FETCHED == 0,
        }
    }

    /// The node ID of an item.
    #[inline(always)]
    pub(super) fn id(&self, node: Ptr) -> NodeId {
        let offset = node.as_ptr().addr() - self.arena.base.as_ptr().addr();
        // The first segment is not used, so no item has the ID 0.
        let id = NonZeroU32::new((offset >> self.arena.granule_log2) as u32);
        NodeId(id.expect("items lie behind the first segment"))
    }

    #[inline(always)]
    fn segment_at(&self, memory: NonNull<u8>) -> Segment {
        let offset = memory.as_ptr().addr() - self.arena.base.as_ptr().addr();
        (offset >> self.segment_log2) as Segment
    }

    /// The segment of an item; for a large item, the first of its run.
    #[inline(always)]
    pub(super) fn segment_of(&self, node: Ptr) -> Segment {
        self.segment_at(node.cast())
    }

    /// # Safety
    ///
    /// 1. The offset is at most the size of the segment or run, which lies within the reservation.
    #[inline(always)]
    unsafe fn address(&self, segment: Segment, offset: u32) -> NonNull<u8> {
        let offset = ((segment as usize) << self.segment_log2) + offset as usize;
        // SAFETY: within the reservation, by 1.
        unsafe { self.arena.base.add(offset) }
    }

    #[inline(always)]
    pub(super) fn generation(&self, segment: Segment) -> u32 {
        // Relaxed: set before anything in the segment was published.
        self.generation[segment as usize].load(Ordering::Relaxed)
    }

    // ---- budget

    /// The most bytes that can be allowed: a third of the reservation, since runs leave addresses
    /// unused.
    pub(super) fn most_allowed(&self) -> u64 {
        self.reserved as u64 / 3
    }

    /// Sets how many bytes may be resident. If that is less than before, gives free pages back.
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
        // Relaxed: the number publishes nothing.
        self.held.load(Ordering::Relaxed)
    }

    /// Bytes in segments that wait for readers.
    #[inline]
    pub(super) fn waiting_bytes(&self) -> u64 {
        // Relaxed: as in `held`.
        self.retired.load(Ordering::Relaxed)
    }

    /// Bytes that can still be allocated, now or after readers have moved on; negative if too much
    /// is held.
    ///
    /// This is an estimate from three numbers that other threads change meanwhile: a retired
    /// segment may just have been freed.
    #[inline]
    pub(super) fn headroom(&self) -> i64 {
        self.allowed() as i64 - self.held() as i64 + self.waiting_bytes() as i64
    }

    /// Bytes held for live items: the bytes that would be held if every segment was compacted.
    /// Valid only if dead bytes are summed up; an estimate, as [`Heap::headroom`].
    pub(super) fn live_bytes(&self) -> u64 {
        // Relaxed: as in `held`.
        let dead = self.dead.load(Ordering::Relaxed);
        self.held().saturating_sub(self.waiting_bytes() + dead)
    }

    /// Bytes of the largest large item, rounded up by at most a quarter; 0 if there is none.
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

    /// Opens a segment for items of a kind, [small](Kind::Small) or [medium](Kind::Medium).
    /// `is_current` tells, under the pool's lock, whether the request's generation is still the
    /// present one.
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
    pub(super) fn append(&self, open: &mut Open, bytes: usize) -> Option<NonNull<u8>> {
        if open.used as u64 + bytes as u64 > self.segment_bytes() {
            return None;
        }
        // SAFETY: 1: `used` is at most the segment's size.
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
    pub(super) unsafe fn take_back(&self, open: &mut Open, node: Ptr, bytes: usize) -> bool {
        // SAFETY: 1: `used` is at most the segment's size.
        let address = |offset| unsafe { self.address(open.segment, offset) };
        let is_last =
            open.used as usize >= bytes && address(open.used - bytes as u32) == node.cast();
        if is_last {
            open.used -= bytes as u32;
        }
        is_last
    }

    /// Seals an open segment: it gives back the pages that it does not use, and enters a queue at
    /// `place`.
    pub(super) fn seal(&self, domain: &Domain, open: Open, place: Place) {
        let mut pool = self.pool.lock();
        self.give_back_tail(&mut pool, &open);
        if open.used == 0 {
            return pool.free(self, open.segment);
        }
        let bytes = pool.bytes(self, open.segment);
        pool.queues.insert(open.segment, place, bytes);
        pool.set(open.segment, State::Sealed);
        if self.sums_dead {
            let unused = pool.unused(self, open.segment, open.used);
            // Relaxed: as in `held`. Before the segment can be retired, which subtracts it.
            self.dead.fetch_add(unused, Ordering::Relaxed);
        }
        self.set_used(&mut pool, domain, open.segment, open.used);
        if self.sums_dead {
            self.sparse.mark(open.segment);
        }
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
        // SAFETY: 1: pages of the run behind those that its items use.
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
        // SAFETY: 1: the beginning of a run.
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
        if !is_current() || self.held() + bytes + request.spare > self.allowed() {
            return None;
        }
        let (segment, before) = pool.take_run(Run {
            segments: bytes.div_ceil(self.segment_bytes()) as u32,
            pages: pages as u32,
            is_large: true,
        })?;
        pool.runs.shorten(segment, pages as u32);
        // SAFETY: 1: pages of the new run behind those that it will use.
        unsafe { self.discard(pool.runs.range(segment, pages as u32, before)) };
        self.hold(bytes);
        pool.publish_longest(self);
        self.begin(pool, segment, state, request.generation);
        Some(segment)
    }

    // ---- reserved runs

    /// Whether a large item of `bytes` bytes may be reserved, given room: as long as little is
    /// reserved, and one item in any case. (A separate receive buffer would take the same memory.)
    pub(super) fn may_reserve(&self, bytes: usize) -> bool {
        // Relaxed: as in `held`.
        let awaited = self.awaited.load(Ordering::Relaxed);
        awaited == 0 || awaited + self.needed(bytes) <= self.allowed() / RESERVED_SHARE
    }

    /// Allocates pages for a large item whose value comes later. The item must be in no table
    /// before it has [entered](Heap::enter), and is given up by [`Heap::release`].
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
        // SAFETY: 1: the beginning of a run.
        Some(unsafe { self.address(segment, 0) })
    }

    /// Completes a reserved item of `bytes` bytes: its segment goes to its place in the queues,
    /// unsettled.
    ///
    /// From now on [`Heap::has_older`] sees it. So a later flush does not overlook an item that
    /// enters and is then found to be of the present generation.
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

    /// Frees the run of a reserved item. Returns false, and changes nothing, if the item has
    /// entered.
    ///
    /// # Safety
    ///
    /// 1. `node` came from [`Heap::reserve`], was not released, and is not used any more unless it
    ///    has entered.
    pub(super) unsafe fn release(&self, node: Ptr) -> bool {
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

    /// Counts an item whose writer has finished with it: it is linked, or abandoned. The caller is
    /// in the section in which it published the item, so the segment cannot be reused yet.
    ///
    /// # Safety
    ///
    /// 1. `node` is an item of `bytes` bytes that is written whole and was not settled before.
    #[inline]
    pub(super) unsafe fn settle(&self, node: Ptr, bytes: usize) {
        // Release: pairs with the Acquire in `is_settled`, so that the claimant sees the item
        // written and linked.
        self.settled[self.segment_of(node) as usize].fetch_add(bytes as u32, Ordering::Release);
    }

    fn is_settled(&self, segment: Segment) -> bool {
        // Acquire: pairs with the Release in `settle`. Relaxed: `used` is set under the pool's
        // lock, which the caller holds.
        let settled = self.settled[segment as usize].load(Ordering::Acquire);
        let used = self.fill[segment as usize].load(Ordering::Relaxed) >> 32;
        used == u64::from(settled) || mutant!("claims_unsettled")
    }

    // ---- dead items

    /// Counts `bytes` bytes of an item's segment as dead. Retires the segment when its last item is
    /// dead.
    ///
    /// # Safety
    ///
    /// 1. `node` is an item of `bytes` bytes and in no table: the caller has unlinked it, or it was
    ///    never linked. It was not counted before.
    #[inline]
    pub(super) unsafe fn count_dead(&self, domain: &Domain, node: Ptr, bytes: usize) {
        let segment = self.segment_of(node);
        if self.sums_dead {
            // Relaxed: as in `held`. Added before the segment can be retired, which subtracts it.
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
        // If the segment is claimed, the claimant will notice.
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

    /// Claims the segment that `choose` selects from those that may be claimed.
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

    /// Claims the first segment that may be claimed, starting at a random one.
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

    /// Claims the first segment from `*from` on that may be claimed and that `wanted` accepts.
    /// Examines at most `*looks` segments. Advances `*from`, which wraps around, and reduces
    /// `*looks`.
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

    /// Of the next `most` [marked](super::sparse) segments from `*from` on that `wanted` accepts,
    /// claims the one that gains most.
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
        // Relaxed: a number that only tests read.
        #[cfg(test)]
        self.looks.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a segment that is not free, reserved or retired has an older generation than this.
    pub(super) fn has_older(&self, generation: u32) -> bool {
        let pool = self.pool.lock();
        let mut all = (1..pool.fresh).chain(pool.runs.used());
        all.any(|segment| {
            let has_items = [State::Open, State::Sealed, State::Claimed];
            has_items.iter().any(|state| pool.is(segment, *state))
                && self.generation(segment) < generation
        })
    }

    /// The approximate number of segments that may be in use: those that a round of
    /// [`Heap::claim_where`] visits.
    pub(super) fn used_segments(&self) -> u32 {
        self.pool.lock().used_segments()
    }

    /// Ends a claim. The segment keeps its place, or is retired if nothing in it is live.
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

    /// Polls for the end of a grace period, then frees the segments that readers have left.
    pub(super) fn collect(&self, domain: &Domain) {
        if self.waiting_bytes() == 0 {
            return;
        }
        let Some(oldest) = self.pool.try_lock().and_then(|pool| pool.oldest()) else {
            return;
        };
        // Without the lock: polling may interrupt the other processors.
        if (domain.poll(oldest) || mutant!("no_grace_period"))
            && let Some(mut pool) = self.pool.try_lock()
        {
            pool.collect(self, domain);
        }
    }

    /// # Safety
    ///
    /// 1. The pages are those of the reservation, and hold no items.
    unsafe fn discard(&self, pages: Range<u64>) {
        if !pages.is_empty() {
            let from = (pages.start as usize) << self.page_log2;
            let bytes = ((pages.end - pages.start) as usize) << self.page_log2;
            // SAFETY: pages of the reservation that belong to no item, by 1.
            unsafe { alloc::discard(self.arena.base.add(from).as_ptr(), bytes) };
        }
    }

    // ---- walks and times

    /// The second in which the segment should be searched for expired items.
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

    /// The item at an offset of a claimed segment, and the offset of the next item.
    ///
    /// The item stays valid as long as the caller has the claim.
    ///
    /// # Safety
    ///
    /// 1. The claim is one of this heap.
    /// 2. The offset is 0, or was returned by this function for the same claim.
    #[inline]
    pub(super) unsafe fn item_at(&self, claim: &Claim, offset: u32) -> Option<(Ptr, u32)> {
        let (used, _) = self.fill(claim.segment);
        if offset >= used {
            return None;
        }
        // SAFETY: 1: below what the segment uses.
        let node: Ptr = unsafe { self.address(claim.segment, offset) }.cast();
        // SAFETY: by 1 and 2 there is an item: items lie one after the other up to `used`, were
        // written before the segment was settled, and stay until it is retired, which the claim
        // prevents.
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
    /// Bytes in use from the segment's beginning, including dead bytes.
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
    /// Bytes that copying its live items elsewhere would gain: the dead bytes, and in a low segment
    /// the unused bytes, if they exceed the tail of a filled segment. (There are no pages behind a
    /// run's items, and a copy would have a tail as well.)
    pub(super) gain: u64,
}

impl Candidate {
    /// The gain as a share of the held bytes, in 1,024ths.
    pub(super) fn share(&self) -> u64 {
        self.gain * 1024 / self.held.max(1)
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // Items have nothing to drop.
        // SAFETY: from `addresses`, and nothing uses the heap afterwards.
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

/// Reserves `most` bytes of addresses. Where the system refuses, reserves less, and finally takes
/// `least` bytes from the allocator.
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
            // An item in the first segment would have the node ID 0.
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
        Candidate {
            segment,
            held: self.bytes(heap, segment),
            gain: u64::from(dead) + self.unused(heap, segment, used),
        }
    }

    /// The bytes behind the last item of a sealed segment that a copy of its items gains. Only
    /// small items share segments that keep their unused pages, and only where one was sealed
    /// early is more unused than a tail.
    fn unused(&self, heap: &Heap, segment: Segment, used: u32) -> u64 {
        let unused = heap.segment_bytes().saturating_sub(u64::from(used));
        let is_low = self.runs.get(segment).is_none();
        let is_early = is_low && unused > heap.segment_bytes() >> (SMALL_LOG2 - 1);
        if is_early || mutant!("counts_unused_as_gain") {
            unused
        } else {
            0
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

    /// The first segment in use from `from` on: first the low ones, then the runs, then again from
    /// the start.
    fn next_used(&self, from: Segment) -> Segment {
        if from < self.fresh {
            return from.max(1);
        }
        self.runs.used_from(from).unwrap_or(1)
    }

    /// Takes a free low segment, preferably one whose pages are resident.
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

    /// Retires a segment in which everything is dead: removes it from the queues; it is free after
    /// a grace period.
    fn retire(&mut self, heap: &Heap, domain: &Domain, segment: Segment) {
        let bytes = self.bytes(heap, segment);
        self.queues.remove(segment, bytes);
        self.set(segment, State::Retired);
        // Relaxed, both: see `held`.
        heap.retired.fetch_add(bytes, Ordering::Relaxed);
        if heap.sums_dead {
            let (used, dead) = heap.fill(segment);
            let dead = u64::from(dead) + self.unused(heap, segment, used);
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

    /// The grace period that the longest-waiting segment needs.
    fn oldest(&self) -> Option<Cookie> {
        self.waiting.front().map(|oldest| oldest.after)
    }

    /// Frees the segments whose grace period is known to have ended.
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
                // SAFETY: 1: the segment is free.
                unsafe { heap.discard(self.runs.range(segment, 0, pages)) };
                self.clean.push(segment);
            } else if let Some(pages) = self.runs.spare(heap.pages(excess)) {
                // SAFETY: 1: pages of free runs.
                unsafe { heap.discard(pages) };
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
        settle(heap, node, bytes);
        Some(node)
    }

    fn settle(heap: &Heap, node: Ptr, bytes: usize) {
        // SAFETY: 1: the tests write an item before they settle it.
        unsafe { heap.settle(node, bytes) };
    }

    fn count_dead(heap: &Heap, domain: &Domain, node: Ptr, bytes: usize) {
        // SAFETY: 1: the tests have no table, and do not use the item any more.
        unsafe { heap.count_dead(domain, node, bytes) };
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
        // SAFETY: 1: a claim of this heap. 2: 0 first, and then what was returned.
        while let Some((node, next)) = unsafe { heap.item_at(&claim, at) } {
            // SAFETY: written above, and not freed.
            seen.push(unsafe { Item::from_raw(node) }.value().to_vec());
            at = next;
        }
        assert_eq!(seen, values);
        heap.unclaim(&domain, claim);
    }

    /// Otherwise a cache that may not evict refuses stores for bytes that nothing uses.
    #[test]
    fn the_unused_bytes_of_a_segment_sealed_early_are_not_live() {
        let (heap, domain) = heap();
        let bytes = bytes_of(&heap, 10);
        let mut open = open_small(&heap, &domain);
        let node = append(&heap, &mut open, &[1; 10]).unwrap();
        heap.seal(&domain, open, NEWEST);
        assert_eq!(heap.held(), heap.segment_bytes());
        assert_eq!(heap.live_bytes(), bytes as u64);
        count_dead(&heap, &domain, node, bytes);
        heap.collect(&domain);
        assert_eq!((heap.held(), heap.live_bytes()), (0, 0));
        assert_eq!(heap.dead.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_segment_comes_back_a_grace_period_after_its_last_item_died() {
        let (heap, domain) = heap();
        let mut open = open_small(&heap, &domain);
        let bytes = bytes_of(&heap, 10);
        let nodes = [0; 2].map(|_| append(&heap, &mut open, &[1; 10]).unwrap());
        count_dead(&heap, &domain, nodes[0], bytes);
        heap.seal(&domain, open, NEWEST);
        assert_eq!(heap.waiting_bytes(), 0);
        let guard = domain.pin();
        count_dead(&heap, &domain, nodes[1], bytes);
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
        count_dead(&heap, &domain, node, bytes_of(&heap, 10));
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
        count_dead(&heap, &domain, node, bytes_of(&heap, 10));
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
        settle(&heap, node, large);
        count_dead(&heap, &domain, node, large);
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

    /// Discarding pages never changes a neighbour, with pages of any size.
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
                    count_dead(&heap, &domain, node, bytes_of(&heap, len));
                }
                heap.collect(&domain);
                heap.allow(MEMORY / (1 + u64::from(round % 3)));
                heap.allow(MEMORY);
                for (node, value) in &kept {
                    // SAFETY: written above, and not counted as dead.
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
        settle(&heap, write(room, &[2; 20]), bytes_of(&heap, 20));
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
                count_dead(&heap, &domain, node, bytes_of(&heap, 100));
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
        // SAFETY: 1, both: the tests have no table, and do not use the item any more.
        unsafe {
            assert!(!heap.take_back(&mut open, first, bytes));
            assert!(heap.take_back(&mut open, second, bytes));
        }
        assert_eq!(append(&heap, &mut open, &[3; 8]), Some(second));
        heap.seal(&domain, open, NEWEST);
    }

    #[test]
    fn ids_lead_back_to_items() {
        let (heap, domain) = heap();
        let mut open = open_small(&heap, &domain);
        let node = append(&heap, &mut open, &[1; 10]).unwrap();
        let id = heap.id(node);
        // SAFETY: the node ID of a live item.
        assert_eq!(unsafe { heap.arena().link(id) }.cast(), node);
        heap.seal(&domain, open, NEWEST);
    }
}
