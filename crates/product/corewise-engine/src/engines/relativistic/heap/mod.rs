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
//!   sparse      1                      compaction may gain
//! ```
//!
//! A node ID in the table is the node's offset in granules of 8 bytes (16 to 1,024 beyond 8 GiB of
//! memory), so an address is `base + ID × granule`, and the ID shifted right gives the item's
//! segment. The units grow with the memory: see [`geometry`].
//!
//! # One rule for every size
//!
//! *A segment holds the pages that its items need, and no more.* So the waste per item is bounded
//! for every size, see [`ItemSizeClass`]:
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
//!    only while the live items grow, or when the mix of sizes shifts. While more than a quarter of
//!    the held bytes are dead, the heap [has a goal](Heap::ease) that compaction reaches. While the
//!    free pages that are resident exceed a quarter of the held bytes, each page that is touched
//!    gives another one back.
//!
//! # Files
//!
//! | file | contains |
//! |---|---|
//! | this one | the numbers of segments, addresses, what is resident, dead items |
//! | `geometry` | the sizes of granules, pages and segments |
//! | `room` | open segments, large and reserved items |
//! | `claims` | which segment a thread walks |
//! | `pool` | what the lock protects: the segments by state |

mod claims;
mod geometry;
mod pool;
mod room;
#[cfg(test)]
mod tests;

pub use geometry::{MAX_MEMORY, MIN_MEMORY};
pub(super) use pool::{Candidate, Claim};
pub(super) use room::{Open, Request};

use super::queues::Segment;
use super::session_counters::Removed;
use super::sparse::Marks;
use crate::item::{Item, ItemNode, state};
use corewise_atomic::alloc::{self, Layout};
use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use corewise_atomic::{Slots, mutant};
use corewise_maps::relativistic::{Arena, Link, NodeId};
use corewise_rcu::Domain;
use geometry::Geometry;
use pool::{Pool, State};
use std::num::NonZeroU32;
use std::ops::Range;
use std::ptr::NonNull;

/// Size of huge pages: the usual one. With other sizes, the covered range is off by some small
/// pages.
const HUGE_LOG2: u32 = 21;
/// The largest small item is a segment divided by two to this power.
const SMALL_LOG2: u32 = 4;
/// Dead bytes of a segment are summed up in steps of a segment divided by two to this power. So
/// threads that overwrite small items seldom meet at the sum.
const DEAD_STEPS_LOG2: u32 = 5;
/// Dead bytes beyond this share (1/4) of the held bytes are compacted before the heap grows. Random
/// overwrites then copy about as many bytes as they store.
const DEAD_SHARE: u64 = 4;
/// Dead bytes up to this share (1/16) of the memory do not count for that: they cost little, and
/// open segments, which cannot be compacted, may hold half as many.
const DEAD_SLACK_SHARE: u64 = 16;
/// Free pages beyond this share (1/4) of the held bytes are given back when others are touched.
const SPARE_SHARE: u64 = 4;
/// Items above this size may be large: they waste at most a page, an eighth of this.
const LEAST_LARGE: usize = 32 << 10;
/// The same in pages, where pages are larger than usual.
const LEAST_LARGE_PAGES: usize = 8;

/// A pointer to an item of this engine and its links.
pub(super) type Ptr = NonNull<ItemNode<Link>>;

/// Where items of a size lie; see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemSizeClass {
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
    /// Bytes of the reserved range.
    reserved: usize,
    /// Whether the range is a reservation of addresses; otherwise it is the allocator's memory.
    is_reservation: bool,
    huge_pages: bool,
    /// Dead bytes of a segment are summed up in steps of two to this power.
    dead_step_log2: u32,
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
    /// Dead bytes in segments that are not retired, in whole steps of each segment; wraps.
    dead: AtomicU64,
    /// Bytes that may be held before dead bytes have been compacted.
    goal: AtomicU64,
    /// Bytes of free segments that may be resident.
    spare: AtomicU64,
    /// Pages of the longest run, rounded as in [`Runs::longest`](super::runs::Runs::longest).
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

impl Heap {
    /// Creates a heap for `memory` bytes. Returns `None` if the system has no addresses for it.
    /// `is_exact` tells whether [`Heap::live_bytes`] must count every dead byte.
    pub(super) fn new(memory: u64, huge_pages: bool, is_exact: bool) -> Option<Self> {
        Self::with_pages(memory, huge_pages, is_exact, alloc::page_bytes())
    }

    /// As [`Heap::new`], with pages of `page` bytes: a multiple of the real page size.
    fn with_pages(memory: u64, huge_pages: bool, is_exact: bool, page: usize) -> Option<Self> {
        let memory = memory.clamp(MIN_MEMORY, MAX_MEMORY);
        let Geometry {
            granule_log2,
            page_log2,
            segment_log2,
            reserved,
        } = Geometry::new(memory, page);
        let (base, reserved, is_reservation) = addresses(reserved as usize, memory as usize * 3)?;
        let segments = reserved >> segment_log2;
        let pages_per_segment = 1 << (segment_log2 - page_log2);
        let heap = Self {
            arena: ItemArena { base, granule_log2 },
            segment_log2,
            page_log2,
            reserved,
            is_reservation,
            dead_step_log2: if is_exact {
                0
            } else {
                segment_log2 - DEAD_STEPS_LOG2
            },
            sparse: Marks::new(segments)?,
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
            goal: AtomicU64::new(memory),
            spare: AtomicU64::new(0),
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
            // SAFETY: the memory comes from `reserve`, which has reserved at least `whole` bytes
            // (1).
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
    pub(super) fn size_class(&self, bytes: usize) -> ItemSizeClass {
        if bytes <= 1 << (self.segment_log2 - SMALL_LOG2) {
            ItemSizeClass::Small
        } else if bytes <= self.large_above() {
            ItemSizeClass::Medium
        } else {
            ItemSizeClass::Large
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
        match self.size_class(bytes) {
            ItemSizeClass::Large => self.pages(bytes as u64) << self.page_log2,
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
        // SAFETY: the offset lies within the reserved range, by 1.
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
        if bytes != before {
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
    pub(super) fn held_bytes(&self) -> u64 {
        // Relaxed: the number publishes nothing.
        self.held.load(Ordering::Relaxed)
    }

    /// Bytes in segments that wait for readers.
    #[inline]
    pub(super) fn waiting_bytes(&self) -> u64 {
        // Relaxed: as in `held_bytes`.
        self.retired.load(Ordering::Relaxed)
    }

    /// Bytes that can still be allocated, now or after readers have moved on; negative if too much
    /// is held.
    ///
    /// This is an estimate from three numbers that other threads change meanwhile: a retired
    /// segment may just have been freed.
    #[inline]
    pub(super) fn headroom(&self) -> i64 {
        self.allowed() as i64 - self.held_bytes() as i64 + self.waiting_bytes() as i64
    }

    /// As [`Heap::headroom`], but less while there are many dead bytes: then it is what can be
    /// allocated without touching pages that are not resident. Only compaction may raise it beyond
    /// the headroom.
    #[inline]
    pub(super) fn ease(&self) -> i64 {
        // Relaxed: a setting.
        let goal = self.goal.load(Ordering::Relaxed);
        goal as i64 - self.held_bytes() as i64 + self.waiting_bytes() as i64
    }

    /// Dead bytes that compaction can gain.
    fn dead(&self) -> u64 {
        // Relaxed: as in `held_bytes`. A thread may subtract the bytes of a retired segment before
        // another has added its last ones: then the sum is negative.
        (self.dead.load(Ordering::Relaxed) as i64).max(0) as u64
    }

    /// Bytes held for live items: the bytes that would be held if every segment was compacted. An
    /// estimate, as [`Heap::headroom`].
    pub(super) fn live_bytes(&self) -> u64 {
        self.held_bytes()
            .saturating_sub(self.waiting_bytes() + self.dead())
    }

    /// Bytes of the largest large item, rounded up by at most a quarter; 0 if there is none.
    pub(super) fn largest_bytes(&self) -> u64 {
        // Relaxed: as in `held_bytes`.
        u64::from(self.longest_run.load(Ordering::Relaxed)) << self.page_log2
    }

    fn hold(&self, bytes: u64) {
        // Relaxed: as in `held_bytes`; written under the pool's lock.
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
        // AcqRel: see `set_used`.
        let before = self.fill[segment as usize].fetch_add(bytes as u64, Ordering::AcqRel);
        let (used, dead_before) = (before >> 32, u64::from(before as u32));
        let dead = dead_before + bytes as u64;
        let steps = self.whole_steps(dead) - self.whole_steps(dead_before);
        if steps > 0 {
            // Relaxed: as in `held_bytes`.
            self.dead.fetch_add(steps, Ordering::Relaxed);
        }
        if used == dead {
            self.retire_dead(domain, segment);
        } else if steps > 0 {
            self.sparse.mark(segment);
        }
    }

    /// The dead bytes of a segment that are summed up.
    #[inline(always)]
    fn whole_steps(&self, dead: u64) -> u64 {
        dead >> self.dead_step_log2 << self.dead_step_log2
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

    /// [Collects](Heap::collect) if an item of `bytes` bytes might touch pages that are not
    /// resident.
    pub(super) fn collect_for(&self, domain: &Domain, bytes: usize) {
        // Relaxed: as in `held_bytes`.
        let spare = self.spare.load(Ordering::Relaxed);
        let wanted = self.needed(bytes) + self.waiting_bytes();
        if spare < wanted && !mutant!("touches_first") {
            self.collect(domain);
        }
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
        // SAFETY: the offset is below the number of bytes that the segment uses (1).
        let node: Ptr = unsafe { self.address(claim.segment, offset) }.cast();
        // SAFETY: by 1 and 2 there is an item: items lie one after the other up to `used`, were
        // written before the segment was settled, and stay until it is retired, which the claim
        // prevents.
        let item = unsafe { Item::from_raw(node) };
        Some((node, offset + self.footprint(item) as u32))
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
    let base = alloc::alloc_zeroed(own_layout(least), alloc::MemoryNode::Local)?;
    Some((base, least, false))
}

fn own_layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, alloc::page_bytes()).expect("no more than an address range")
}
