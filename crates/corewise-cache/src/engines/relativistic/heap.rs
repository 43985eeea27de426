//! The heap: items in segments of one reserved range of addresses.
//!
//! After Segcache (Yang, Yue, Vinayak, *Segcache: a memory-efficient and scalable in-memory key-value
//! cache for small objects*, NSDI 2021, §3) as far as segments go: items are appended to a segment that
//! one thread has open, never change place, and memory comes back a whole segment at a time. What is
//! kept and what goes is the eviction policy's business (`evict`), which copies what it keeps.
//!
//! ```text
//!  reserved addresses, most of them never touched
//! ┌────┬─────────┬─────────┬─────────┬─ ─ ─ ─ ─ ─ ─ ─ ─ ─┬───────────────────┬──────────┐
//! │none│ segment │ segment │ segment │   fresh …  … unused │ large item, whole │ large …  │
//! └────┴────┬────┴─────────┴─────────┴─ ─ ─ ─ ─ ─ ─ ─ ─ ─┴───────────────────┴──────────┘
//!           │ item │ item │ dead │ item │ … │ room │
//!
//!  a segment's numbers, on the side, reached by its index:
//!   tally       used 32 │ dead 32      bytes; used is 0 while it is open
//!   generation  32                     of all items in it; older than the last flush: flushed
//!   due_s       32                     when to look for expired items next
//! ```
//!
//! A node's name in the table is its offset in granules of 8 bytes (16 to 32 beyond 8 GiB of memory),
//! so an address is `base + name × granule`, and an item's segment a shift of its name.
//!
//! # States of a segment
//!
//! ```text
//!  free ─▶ open ─▶ sealed ⇄ claimed ─▶ retired ─▶ free
//!           one thread's  in a queue   one thread walks it   a grace period
//! ```
//!
//! # Guarantees
//!
//! 1. An item's memory is not written or given away before a grace period after its removal from the
//!    table: its segment is retired when everything in it is dead, and reused after a grace period.
//! 2. Pages that may be resident are at most what the heap is [allowed](Heap::allow), but for what was
//!    allowed before and is in use: memory in use is given back by eviction only.
//! 3. Which thread may do what: the owner of an open segment appends to it; whoever has claimed a
//!    sealed one walks it; anyone buries an item that it has unlinked. Everything else is under the
//!    pool's lock, which nobody holds for long: constant time but for large items.
//!
//! # Limits
//!
//! Segments are 1/1,024 of the memory, rounded up to a power of two, 16 to 256 KiB. An item larger than a
//! quarter of a segment gets pages of its own. See [`MAX_MEMORY`].

use super::queues::{Place, Queues};
use crate::item::{Item, Node};
use corewise_atomic::alloc::{self, Layout};
use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use corewise_atomic::{Slots, mutant};
use corewise_maps::relativistic::{Arena, Link, NodeId};
use corewise_rcu::{Cookie, Domain};
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;
use std::ptr::NonNull;

/// The most memory that an engine can be given: names of 32 bits and granules of 32 bytes, half of the
/// range for large items.
pub const MAX_MEMORY: u64 = 64 << 30;
/// The least, below which it would hold nothing but open segments.
pub const MIN_MEMORY: u64 = 1 << 20;

const SMALLEST_GRANULE_LOG2: u32 = 3;
/// How many times the memory is reserved, if names reach so far: for the limit to be raised, and so that
/// there are runs for large items. (More would cost the numbers of segments that are never used.)
const ROOM: u64 = if super::MODELLED { 2 } else { 16 };
const LEAST_RESERVED: u64 = if super::MODELLED { 0 } else { 4 << 30 };
const PAGE: u64 = 4096;
/// Of huge pages: the usual ones; elsewhere some small pages more or less.
const HUGE_LOG2: u32 = 21;
/// Of segments.
const SMALLEST_LOG2: u32 = 14;
const LARGEST_LOG2: u32 = 18;
/// Segments that the memory is cut into, at most.
const SEGMENTS_LOG2: u32 = 10;
/// The largest item that lies in a segment with others is as large as a segment by this. (Halves of that
/// double what large items lose by whole pages; twice of it what is lost at the ends of segments.)
const SMALL_LOG2: u32 = 2;

/// An item of this engine, and its links.
pub(super) type Ptr = NonNull<Node<Link>>;

/// A segment, by its index.
pub(super) type Segment = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    Open,
    Sealed,
    Claimed,
    Retired,
}

/// The heap. See the [module](self).
pub(super) struct Heap {
    arena: ItemArena,
    segment_log2: u32,
    /// Bytes of the reservation, and whether it is one or the allocator's memory.
    reserved: usize,
    is_reservation: bool,
    huge_pages: bool,
    /// By segment: used and dead bytes.
    tally: Slots<AtomicU64>,
    generation: Slots<AtomicU32>,
    due_s: Slots<AtomicU32>,
    /// Bytes that may be resident.
    allowed: AtomicU64,
    /// Bytes of segments that are not free.
    held: AtomicU64,
    /// Bytes of those that wait for readers.
    retired: AtomicU64,
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
// SAFETY: as above.
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
    /// Free segments whose pages may be resident.
    dirty: Vec<Segment>,
    /// Free segments whose pages were given back.
    clean: Vec<Segment>,
    /// Segments from here on up to `large_from` were never used.
    fresh: Segment,
    waiting: VecDeque<Retired>,
    large: Large,
}

struct Retired {
    segment: Segment,
    after: Cookie,
}

/// The upper end of the reservation, where large items have runs of segments.
struct Large {
    /// Nothing above is ever handed out as a segment.
    from: Segment,
    /// Runs that are free, by their first segment: how many segments.
    free: BTreeMap<Segment, u32>,
    /// Those in use: how many segments, and how many bytes are held.
    used: BTreeMap<Segment, (u32, u64)>,
}

/// A segment that one thread appends to.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) segment: Segment,
    pub(super) generation: u32,
    /// Bytes from the segment's beginning that are in use.
    used: u32,
}

impl Heap {
    /// A heap for so much memory, or `None` if the system has no addresses for it.
    pub(super) fn new(memory: u64, huge_pages: bool) -> Option<Self> {
        let memory = memory.clamp(MIN_MEMORY, MAX_MEMORY);
        let mut granule_log2 = SMALLEST_GRANULE_LOG2;
        while (1 << (32 + granule_log2)) < 4 * memory && granule_log2 < 5 {
            granule_log2 += 1;
        }
        let wanted = memory.next_power_of_two().ilog2() - SEGMENTS_LOG2;
        let segment_log2 = wanted.clamp(SMALLEST_LOG2, LARGEST_LOG2);
        let wanted = (ROOM * memory)
            .max(LEAST_RESERVED)
            .min(1 << (32 + granule_log2));
        let (base, reserved, is_reservation) = addresses(wanted as usize, memory as usize * 2)?;
        let segments = reserved >> segment_log2;
        let heap = Self {
            arena: ItemArena { base, granule_log2 },
            segment_log2,
            reserved,
            is_reservation,
            tally: Slots::try_zeroed(segments)?,
            generation: Slots::try_zeroed(segments)?,
            due_s: Slots::try_zeroed(segments)?,
            allowed: AtomicU64::new(memory),
            held: AtomicU64::new(0),
            retired: AtomicU64::new(0),
            pool: Mutex::new(Pool::new(segments)),
            huge_pages,
        };
        heap.prefer_huge(memory);
        Some(heap)
    }

    /// Asks for huge pages where segments will be, if that was wished. Not for large items, which leave
    /// holes between them; and not for the last sixteenth of so much memory, which the bucket arrays have
    /// in the end: the last huge page would be resident whole for a few segments.
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

    /// The largest item that lies in a segment with others.
    #[inline(always)]
    pub(super) fn small_bytes(&self) -> usize {
        1 << (self.segment_log2 - SMALL_LOG2)
    }

    /// What an item of so many bytes takes.
    #[inline(always)]
    pub(super) fn rounded(&self, bytes: usize) -> usize {
        bytes.next_multiple_of(1 << self.arena.granule_log2)
    }

    /// What an item takes that is not large.
    #[inline(always)]
    pub(super) fn footprint(&self, item: Item<'_, Link>) -> usize {
        self.rounded(item.bytes())
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
    pub(super) fn segment_of(&self, node: Ptr) -> Segment {
        let offset = node.as_ptr().addr() - self.arena.base.as_ptr().addr();
        (offset >> self.segment_log2) as Segment
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

    /// The most bytes that can be allowed: half of the reservation, the other is for large items.
    pub(super) fn most_allowed(&self) -> u64 {
        self.reserved as u64 / 2
    }

    /// Sets how many bytes may be resident.
    pub(super) fn allow(&self, bytes: u64) {
        // Relaxed: a setting.
        self.allowed.store(bytes, Ordering::Relaxed);
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

    fn hold(&self, bytes: u64) {
        // Relaxed: as in `held`; written under the pool's lock.
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    fn let_go(&self, bytes: u64) {
        // Relaxed: as above.
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    // ---- open segments

    /// A segment to append to, if there may be another beside `spare` bytes that are kept for others.
    pub(super) fn open(&self, domain: &Domain, generation: u32, spare: u64) -> Option<Open> {
        let mut pool = self.pool.lock();
        pool.collect(self, domain);
        let bytes = self.segment_bytes();
        if self.held() + bytes + spare > self.allowed() {
            return None;
        }
        let segment = pool.take()?;
        self.hold(bytes);
        pool.set(segment, State::Open);
        drop(pool);
        // Relaxed, all: published with the first item, or by the seal.
        self.tally[segment as usize].store(0, Ordering::Relaxed);
        self.generation[segment as usize].store(generation, Ordering::Relaxed);
        self.due_s[segment as usize].store(u32::MAX, Ordering::Relaxed);
        Some(Open {
            segment,
            generation,
            used: 0,
        })
    }

    /// Room for an item of so many bytes, already rounded, in an open segment.
    #[inline]
    pub(super) fn append(&self, open: &mut Open, bytes: usize) -> Option<NonNull<u8>> {
        if open.used as u64 + bytes as u64 > self.segment_bytes() {
            return None;
        }
        let memory = self.address(open.segment, open.used);
        open.used += bytes as u32;
        Some(memory)
    }

    /// Whether an item of so many bytes has room in an open segment.
    #[inline]
    pub(super) fn has_room(&self, open: &Open, bytes: usize) -> bool {
        open.used as u64 + bytes as u64 <= self.segment_bytes()
    }

    /// Takes the item appended last, which nobody has seen, back out. False if it is not the last.
    pub(super) fn take_back(&self, open: &mut Open, node: Ptr, bytes: usize) -> bool {
        let is_last = open.used as usize >= bytes
            && self.address(open.segment, open.used - bytes as u32) == node.cast();
        if is_last {
            open.used -= bytes as u32;
        }
        is_last
    }

    /// Ends an open segment: it goes to its place in the queues.
    pub(super) fn seal(&self, domain: &Domain, open: Open, place: Place) {
        let segment = open.segment as usize;
        let mut pool = self.pool.lock();
        // AcqRel: pairs with that of `bury`, so that whoever finds the segment dead, here or there, comes
        // after all who have unlinked an item of it.
        let before = self.tally[segment].fetch_add(u64::from(open.used) << 32, Ordering::AcqRel);
        pool.queues.insert(open.segment, place);
        pool.set(open.segment, State::Sealed);
        if before as u32 == open.used {
            pool.retire(self, domain, open.segment);
        }
    }

    // ---- large items

    /// What a large item takes: whole pages.
    pub(super) fn large_bytes(&self, bytes: usize) -> u64 {
        (bytes as u64).next_multiple_of(PAGE)
    }

    /// Pages for an item that is large, in a segment of its own, which is open.
    pub(super) fn open_large(
        &self,
        domain: &Domain,
        generation: u32,
        bytes: usize,
        spare: u64,
    ) -> Option<Open> {
        let held = self.large_bytes(bytes);
        let mut pool = self.pool.lock();
        pool.collect(self, domain);
        if self.held() + held + spare > self.allowed() {
            return None;
        }
        let count = held.div_ceil(self.segment_bytes()) as u32;
        let fresh = pool.fresh;
        let segment = pool.large.take(count, held, fresh)?;
        self.hold(held);
        pool.set(segment, State::Open);
        // Its pages come fresh from the system: others that are resident and free may have to go.
        pool.trim(self);
        drop(pool);
        // Relaxed, all: as in `open`.
        self.tally[segment as usize].store(0, Ordering::Relaxed);
        self.generation[segment as usize].store(generation, Ordering::Relaxed);
        self.due_s[segment as usize].store(u32::MAX, Ordering::Relaxed);
        Some(Open {
            segment,
            generation,
            used: bytes as u32,
        })
    }

    /// Where a large item's segment begins.
    pub(super) fn large_address(&self, open: &Open) -> NonNull<u8> {
        self.address(open.segment, 0)
    }

    /// Gives up an open segment in which nothing was ever published.
    pub(super) fn abandon(&self, open: Open) {
        self.pool.lock().free(self, open.segment);
    }

    // ---- dead items

    /// Counts so many bytes of an item's segment as dead: the item is in no table. The segment is
    /// retired when it was the last.
    #[inline]
    pub(super) fn bury(&self, domain: &Domain, node: Ptr, bytes: usize) {
        let segment = self.segment_of(node);
        // AcqRel: see `seal`.
        let before = self.tally[segment as usize].fetch_add(bytes as u64, Ordering::AcqRel);
        let (used, dead) = (before >> 32, u64::from(before as u32) + bytes as u64);
        if used == dead {
            self.retire_dead(domain, segment);
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
        // Acquire: see `seal`.
        let tally = self.tally[segment as usize].load(Ordering::Acquire);
        tally >> 32 == u64::from(tally as u32)
    }

    /// Used and dead bytes of a sealed segment.
    pub(super) fn tally(&self, segment: Segment) -> (u32, u32) {
        // Relaxed: numbers that decide nothing about lifetimes.
        let tally = self.tally[segment as usize].load(Ordering::Relaxed);
        ((tally >> 32) as u32, tally as u32)
    }

    // ---- claims

    /// Claims the sealed segment that `choose` finds in the queues.
    pub(super) fn claim(
        &self,
        choose: impl FnOnce(&mut Queues, &dyn Fn(Segment) -> bool) -> Option<Segment>,
    ) -> Option<Claim> {
        let mut pool = self.pool.lock();
        let Pool { queues, state, .. } = &mut *pool;
        let is_sealed = |segment: Segment| state[segment as usize] == State::Sealed as u8;
        let segment = choose(queues, &is_sealed)?;
        pool.set(segment, State::Claimed);
        Some(Claim {
            segment,
            is_large: pool.large.used.contains_key(&segment),
        })
    }

    /// Claims the first of the sealed segments from `*from` on for which `wanted` says so, looking at
    /// `*looks` at most. Both move on; `*from` round and round.
    pub(super) fn claim_where(
        &self,
        from: &mut Segment,
        looks: &mut u32,
        mut wanted: impl FnMut(Segment) -> bool,
    ) -> Option<Claim> {
        let mut pool = self.pool.lock();
        while *looks > 0 {
            *looks -= 1;
            let segment = pool.next_used(*from);
            *from = segment + 1;
            if pool.is(segment, State::Sealed) && wanted(segment) {
                pool.set(segment, State::Claimed);
                return Some(Claim {
                    segment,
                    is_large: pool.large.used.contains_key(&segment),
                });
            }
        }
        None
    }

    /// Whether a segment other than a free or retired one has an older generation than this.
    pub(super) fn has_older(&self, generation: u32) -> bool {
        let pool = self.pool.lock();
        let small = 1..pool.fresh;
        let mut all = small.chain(pool.large.used.keys().copied());
        all.any(|segment| {
            !pool.is(segment, State::Free)
                && !pool.is(segment, State::Retired)
                && self.generation(segment) < generation
        })
    }

    /// Segments that may be in use, about: those that a round of [`Heap::claim_where`] goes over.
    pub(super) fn used_segments(&self) -> u32 {
        let pool = self.pool.lock();
        pool.fresh + pool.large.used.len() as u32
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
            pool.queues.remove(claim.segment);
            pool.queues.insert(claim.segment, place);
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

    /// Gives back resident pages beyond what is allowed, as far as they are free.
    pub(super) fn trim(&self) {
        self.pool.lock().trim(self);
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
        let (used, _) = self.tally(claim.segment);
        if offset >= used {
            return None;
        }
        let node: Ptr = self.address(claim.segment, offset).cast();
        // SAFETY: items lie one behind the other up to `used`, written before the segment was sealed,
        // and stay until it is retired, which the claim prevents.
        let item = unsafe { Item::from_raw(node) };
        Some((node, offset + self.footprint(item) as u32))
    }
}

/// A sealed segment that one thread walks.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) segment: Segment,
    pub(super) is_large: bool,
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
    Layout::from_size_align(bytes, PAGE as usize).expect("no more than an address range")
}

impl Pool {
    fn new(segments: usize) -> Self {
        Self {
            queues: Queues::new(segments),
            state: vec![State::Free as u8; segments],
            dirty: Vec::new(),
            clean: Vec::new(),
            // An item in the first would have the name 0.
            fresh: 1,
            waiting: VecDeque::new(),
            large: Large {
                from: segments as Segment,
                free: BTreeMap::new(),
                used: BTreeMap::new(),
            },
        }
    }

    fn is(&self, segment: Segment, state: State) -> bool {
        self.state[segment as usize] == state as u8
    }

    fn set(&mut self, segment: Segment, state: State) {
        self.state[segment as usize] = state as u8;
    }

    /// The first segment in use from `from` on; the small ones, then the large, then from the start.
    fn next_used(&self, from: Segment) -> Segment {
        if from < self.fresh {
            return from.max(1);
        }
        let large = self.large.used.range(from..).next();
        large.map_or(1, |(&first, _)| first)
    }

    /// A free segment, if possible one whose pages are resident.
    fn take(&mut self) -> Option<Segment> {
        if let Some(segment) = self.dirty.pop() {
            return Some(segment);
        }
        if let Some(segment) = self.clean.pop() {
            return Some(segment);
        }
        let is_free = self.fresh < self.large.from;
        self.fresh += u32::from(is_free);
        is_free.then(|| self.fresh - 1)
    }

    /// A segment in which everything is dead: out of the queues, free after a grace period.
    fn retire(&mut self, heap: &Heap, domain: &Domain, segment: Segment) {
        self.queues.remove(segment);
        self.set(segment, State::Retired);
        // Relaxed: see `held`.
        heap.retired
            .fetch_add(self.bytes(heap, segment), Ordering::Relaxed);
        self.waiting.push_back(Retired {
            segment,
            after: domain.start_poll(),
        });
    }

    fn bytes(&self, heap: &Heap, segment: Segment) -> u64 {
        let large = self.large.used.get(&segment);
        large.map_or(heap.segment_bytes(), |(_, bytes)| *bytes)
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
        match self.large.give_back(segment) {
            Some(bytes) => {
                // SAFETY: the pages of a run that nobody can reach any more.
                unsafe { alloc::discard(heap.address(segment, 0).as_ptr(), bytes as usize) };
            }
            None => self.dirty.push(segment),
        }
        self.trim(heap);
    }

    /// Gives back the pages of free segments while more would be resident than is allowed.
    fn trim(&mut self, heap: &Heap) {
        let bytes = heap.segment_bytes();
        while heap.held() + self.dirty.len() as u64 * bytes > heap.allowed() {
            let Some(segment) = self.dirty.pop() else {
                return;
            };
            // SAFETY: the pages of a free segment.
            unsafe { alloc::discard(heap.address(segment, 0).as_ptr(), bytes as usize) };
            self.clean.push(segment);
        }
    }
}

impl Large {
    /// A run of `count` segments at or above `fresh`: the first that fits, from the top down.
    fn take(&mut self, count: u32, held: u64, fresh: Segment) -> Option<Segment> {
        let fits = self.free.iter().rev().find(|(_, free)| **free >= count);
        let first = match fits.map(|(&first, &free)| (first, free)) {
            Some((first, free)) => {
                self.free.remove(&first);
                if free > count {
                    self.free.insert(first, free - count);
                }
                first + free - count
            }
            None => {
                let first = self
                    .from
                    .checked_sub(count)
                    .filter(|first| *first >= fresh)?;
                self.from = first;
                first
            }
        };
        self.used.insert(first, (count, held));
        Some(first)
    }

    /// Takes a run back; how many bytes it held, or `None` if the segment is none.
    fn give_back(&mut self, segment: Segment) -> Option<u64> {
        let (mut count, held) = self.used.remove(&segment)?;
        let mut first = segment;
        if let Some(after) = self.free.remove(&(segment + count)) {
            count += after;
        }
        if let Some((&before, &free)) = self.free.range(..segment).next_back()
            && before + free == segment
        {
            self.free.remove(&before);
            (first, count) = (before, count + free);
        }
        if first == self.from {
            self.from += count;
        } else {
            self.free.insert(first, count);
        }
        Some(held)
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
        let heap = Heap::new(MEMORY, false).expect("addresses");
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
        let memory = heap.append(open, bytes_of(heap, value.len()))?;
        Some(write(memory, value))
    }

    #[test]
    fn items_of_a_sealed_segment_are_walked_in_order() {
        let (heap, domain) = heap();
        let mut open = heap.open(&domain, 3, 0).unwrap();
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
        let mut open = heap.open(&domain, 0, 0).unwrap();
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
        let mut open = heap.open(&domain, 0, 0).unwrap();
        let node = append(&heap, &mut open, &[1; 10]).unwrap();
        heap.bury(&domain, node, bytes_of(&heap, 10));
        heap.seal(&domain, open, NEWEST);
        assert_eq!(heap.waiting_bytes(), heap.segment_bytes());
    }

    #[test]
    fn a_claimed_segment_is_retired_by_the_claimant() {
        let (heap, domain) = heap();
        let mut open = heap.open(&domain, 0, 0).unwrap();
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
        let opened: Vec<Open> = std::iter::from_fn(|| heap.open(&domain, 0, spare)).collect();
        assert_eq!(heap.held() + spare, MEMORY);
        assert!(heap.open_large(&domain, 0, 5_000, spare).is_none());
        let large = heap.open_large(&domain, 0, 5_000, 0).unwrap();
        assert_eq!(heap.held() + spare, MEMORY + 8_192);
        heap.abandon(large);
        opened.into_iter().for_each(|open| heap.abandon(open));
        assert_eq!(heap.held(), 0);
        assert_eq!(heap.headroom(), MEMORY as i64);
    }

    #[test]
    fn free_segments_are_given_back_when_less_is_allowed() {
        let (heap, domain) = heap();
        let opened: Vec<Open> = std::iter::from_fn(|| heap.open(&domain, 0, 0)).collect();
        let count = opened.len();
        for mut open in opened {
            append(&heap, &mut open, &[9; 100]).unwrap();
            heap.abandon(open);
        }
        heap.allow(MEMORY / 2);
        heap.trim();
        {
            let pool = heap.pool.lock();
            assert_eq!((pool.dirty.len(), pool.clean.len()), (count / 2, count / 2));
        }
        heap.allow(MEMORY);
        let again: Vec<Open> = std::iter::from_fn(|| heap.open(&domain, 0, 0)).collect();
        assert_eq!(again.len(), count, "those given back can be had again");
    }

    #[test]
    fn what_was_appended_last_can_be_taken_back() {
        let (heap, domain) = heap();
        let mut open = heap.open(&domain, 0, 0).unwrap();
        let bytes = bytes_of(&heap, 8);
        let first = append(&heap, &mut open, &[1; 8]).unwrap();
        let second = append(&heap, &mut open, &[2; 8]).unwrap();
        assert!(!heap.take_back(&mut open, first, bytes));
        assert!(heap.take_back(&mut open, second, bytes));
        assert_eq!(append(&heap, &mut open, &[3; 8]), Some(second));
        heap.abandon(open);
    }

    #[test]
    fn runs_for_large_items_are_joined_again() {
        let mut large = Large {
            from: 100,
            free: BTreeMap::new(),
            used: BTreeMap::new(),
        };
        let runs: Vec<Segment> = (0..10).map(|_| large.take(5, 1, 1).unwrap()).collect();
        assert_eq!((runs[0], runs[9], large.from), (95, 50, 50));
        assert_eq!(
            large.take(60, 1, 1),
            None,
            "no room above the fresh segments"
        );
        for run in [3, 5, 4, 8] {
            assert_eq!(large.give_back(runs[run]), Some(1));
        }
        assert_eq!(large.give_back(runs[3]), None, "it is not in use");
        assert_eq!(large.free, BTreeMap::from([(55, 5), (70, 15)]));
        assert_eq!(
            large.take(6, 1, 1),
            Some(79),
            "the end of the first that fits"
        );
        for run in [0, 1, 2, 6, 7, 9] {
            large.give_back(runs[run]);
        }
        large.give_back(79);
        assert_eq!((large.from, large.free.len()), (100, 0));
    }

    #[test]
    fn names_lead_back_to_items() {
        let (heap, domain) = heap();
        let mut open = heap.open(&domain, 0, 0).unwrap();
        let node = append(&heap, &mut open, &[1; 10]).unwrap();
        let name = heap.name(node);
        // SAFETY: the name of an item that lives.
        assert_eq!(unsafe { heap.arena().link(name) }.cast(), node);
        heap.abandon(open);
    }
}
