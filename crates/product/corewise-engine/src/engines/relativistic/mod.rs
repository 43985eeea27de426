//! The engine `relativistic`: lookups take no lock, and items lie in segments whose pages are
//! charged to the budget.
//!
//! Sources: \[ATC11\] §5 to §7 (memcached on such a table), \[Segcache\] (segments), \[S3-FIFO\]
//! (eviction).
//!
//! ```text
//!  hash of the key ─┬─▶ RawTable: bucket ─▶ item ─▶ item    lookups: a read-side section, no lock
//!                   │              8 bytes    │      the link is the item's first 8 bytes
//!                   ├─▶ stripe: lock, cas counter            writers of one key exclude each other
//!                   │                         ▼
//!                   │              ┌──────────────────────┐
//!                   │              │ segment: item│item│… │     one session appends to it
//!                   │              └──────────────────────┘
//!                   └─▶ ghost: was it evicted lately?        which queue a new item enters
//! ```
//!
//! `heap` manages the memory, `evict` and `policy` decide what leaves and when, and `exec`
//! implements the operations.
//!
//! # A batch
//!
//! The engine executes operations in windows of [`WINDOW`]. It hashes every key and prefetches its
//! bucket; then it prefetches each bucket's first item, and the next item where the first has
//! another hash; then it executes the operations. The cache misses of the window overlap.
//!
//! # Guarantees
//!
//! 1. *Operations on one key are linearizable*, also during eviction, growth and flushes. A read
//!    takes effect when it finds the item. A write holds its key's stripe, and takes effect when it
//!    links, replaces or unlinks the item.
//! 2. *Reads* (`get` without touch, vivify, or a token to win) are wait-free except for the sink:
//!    they take no lock and do no atomic read-modify-write. A hit on an item that was hit before
//!    writes nothing. The sink receives the value inside the section, from the item itself.
//! 3. *Writes* to different stripes meet in two places only: where a session has filled its
//!    segment, and in a segment's count of dead bytes. When another 1/32 of a segment is dead, they
//!    also meet in the sum of dead bytes. (Under `Refuse`, each dead item is added to it.)
//! 4. *Memory.* Segments, bucket arrays, the ghost, sorted sets (see `sets`), and the owner's
//!    overhead ([`Engine::set_overhead`]) are at most the budget; memory that waits for readers is
//!    a part of the segments. The table asks before it grows, and room for the new array is made
//!    first. (When it shrinks, the smaller array comes on top of the budget until items have made
//!    room for it.)
//! 5. *Eviction runs ahead*: while less than a reserve of some segments is left, each store looks
//!    through old segments of a few times the bytes that it stores. So no store waits for more
//!    eviction than that, unless its item is large. No thread evicts, or waits for readers, while
//!    it holds a stripe or is in a section.
//! 6. *Expired items* are removed by [`Session::maintain`], in steps, within seconds (see
//!    `expire`); flushed items in the same way.
//! 7. *Progress*: reads wait for no other thread. A writer waits for the writers of its stripe,
//!    and, when there is no memory, for readers; if a reader stays in a section for a second, the
//!    write fails for lack of memory.
//!
//! A session is in a section only while it is inside `submit` or `maintain`. So an idle session
//! holds up no other, and going offline is free. (Rejected alternative: handles that announce
//! quiescent states. Entering a section costs 1.3 ns per window, and a handle that its owner
//! forgets stops reclamation.)

mod appender;
mod compact;
mod dump;
mod evict;
mod exec;
mod expire;
mod heap;
#[cfg(test)]
mod models;
mod policy;
#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod properties;
mod queues;
mod reserve;
#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod reserve_tests;
mod runs;
mod session_counters;
mod session_state;
mod sets;
mod sparse;

use crate::engine::{ClassStats, Cursor, Engine, EngineStats, ScanStep, Session};
use crate::engines::delayed_flush::DelayedFlush;
use crate::engines::verbs::NoItem;
use crate::item::{Contents, Item};
use crate::reservation::Reservation;
use appender::Appender;
use corewise_atomic::CachePadded;
use corewise_atomic::lock::Mutex;
use corewise_atomic::mutant;
use corewise_atomic::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use corewise_maps::relativistic::{self as maps, Link, RawTable};
use corewise_ops::database::{DATABASES, prefix};
use corewise_ops::{Absence, Deadline, Flow, ItemView, Now, Op, ReplySink, Update, Updated};
use corewise_rcu::Guard;
use evict::{EvictProgress, Evictor};
use exec::Exec;
use expire::SegmentSearch;
use heap::{Heap, ItemArena, Ptr};
pub use heap::{MAX_MEMORY, MIN_MEMORY};
pub use policy::Eviction;
use policy::Policy;
use session_counters::SessionCounters;
use session_state::SessionState;
use session_state::Wanted;
use sets::Sets;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Operations whose cache misses overlap.
pub const WINDOW: usize = 32;
/// Locks that exclude the writers of a key from one another: one per 4 KiB of memory, within these
/// bounds.
const STRIPES: std::ops::RangeInclusive<u64> = if MODELLED { 4..=4 } else { 256..=4096 };
const BYTES_PER_STRIPE: u64 = 4096;
/// Whether a model checker runs the engine. Its atomics are expensive.
const MODELLED: bool = cfg!(any(corewise_loom, corewise_shuttle));
/// An empty table has one bucket per this many bytes of memory, within the bounds of [`BUCKETS`]:
/// 1/512 of the memory, not touched at first, which saves the first doublings.
const BYTES_PER_BUCKET: u64 = 4096;
const BUCKETS: std::ops::RangeInclusive<u64> = 1024..=1 << 20;
/// Entries for each bucket, as a fraction, up to which a table in a full cache does not grow. An
/// array that is allocated at this load takes 5 to 11 bytes for each item. At the table's usual
/// load, at which it grows in a cache with free memory, it takes twice that. In a full cache these
/// bytes are taken from items. memcached doubles its table at the same load.
const FULL_LOAD: (u128, u128) = (3, 2);
/// Buckets that a resize visits after each operation. Between two doublings of a table of `n`
/// buckets there are at least 3/4 `n` operations, and a doubling visits some 2.5 `n` buckets, so
/// this is twice the number that suffices. More would delay the requests that arrive during a
/// resize.
const STEP: usize = 8;
/// Buckets below which the table quadruples. Fewer than in a map: here the memory of the buckets is
/// taken from items.
const QUADRUPLE_BELOW: usize = 1 << 12;
/// Buckets that a resize visits in one [`Session::maintain`].
const MAINTENANCE_STEP: usize = 64;
/// Bytes of segments visited by one [`Session::maintain`].
const MAINTENANCE_BYTES: usize = 16 << 10;
/// Buckets whose chains are measured per second, and per step.
const SURVEYED: usize = 1 << 14;
const SURVEYED_AT_ONCE: usize = 1 << 8;

/// Configuration of the engine.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The memory budget in bytes; clamped to [`MIN_MEMORY`]..=[`MAX_MEMORY`].
    pub memory: u64,
    /// The largest item in bytes: key, value, and 4 bytes for client flags other than 0.
    pub max_item_bytes: usize,
    /// What to do at the budget.
    pub eviction: Eviction,
    /// Whether to ask the system for huge pages for items.
    pub huge_pages: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            memory: 1 << 30,
            max_item_bytes: 1 << 20,
            eviction: Eviction::default(),
            huge_pages: true,
        }
    }
}

/// Error: the system has no address space for the requested memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoAddresses;

impl std::fmt::Display for NoAddresses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the system has no range of addresses for so much memory")
    }
}

impl std::error::Error for NoAddresses {}

/// The engine. See the [module](self).
pub struct Relativistic {
    table: RawTable<ItemArena>,
    heap: Heap,
    /// Beside fields that each read looks at.
    sets: CachePadded<Sets>,
    policy: Policy,
    hasher: foldhash::quality::RandomState,
    /// The number of stripes is a power of two.
    stripes: Box<[Mutex<Stripe>]>,
    appenders: Box<[CachePadded<Appender>]>,
    /// The evictor beside each appender.
    evictors: Box<[CachePadded<Mutex<Evictor>>]>,
    /// Appenders in use: the number that fits the present limit.
    active: AtomicUsize,
    max_item_bytes: usize,
    memory: AtomicU64,
    /// Held while the budget is computed and set.
    budgeting: Mutex<()>,
    /// Number of buckets up to which the table may grow without asking.
    most_buckets: AtomicUsize,
    /// Bytes that the owner uses; at most half of the memory is granted to it.
    overhead: AtomicU64,
    /// Twice the number of flushes, plus one if items from before the last flush may remain.
    flushes: CachePadded<AtomicU64>,
    /// What remains from before the last flush.
    flushed: Flushed,
    delayed_flush: DelayedFlush,
    /// The last second in which a search for expired items began.
    searched_s: AtomicU32,
    search: Mutex<SegmentSearch>,
    survey: Mutex<Survey>,
    sessions: AtomicUsize,
    /// The number that the next session gets.
    next_session: AtomicUsize,
    counters: Mutex<CounterRegistry>,
}

/// Excludes the writers of a key from one another, and issues their items' cas values, which
/// increase.
pub(super) struct Stripe {
    cas: u64,
}

/// A walk over the table that measures the length of its chains.
#[derive(Default)]
struct Survey {
    /// The next bucket, and the number of buckets left to visit in this second.
    at: usize,
    left: usize,
    /// The longest chain of this round, and that of this and the last round.
    round: usize,
    longest: usize,
}

struct CounterRegistry {
    running: Vec<Arc<SessionCounters>>,
    ended: SessionCounters,
}

/// The generation of the present items: the number of flushes.
#[derive(Clone, Copy)]
pub(super) struct Generation {
    number: u32,
    /// Items from before the last flush may remain.
    has_older: bool,
}

impl Stripe {
    /// A cas value greater than all that this stripe issued before; no other stripe issues it.
    fn next_cas(&mut self) -> u64 {
        self.cas += *STRIPES.end();
        self.cas
    }
}

impl Relativistic {
    /// Creates an engine.
    ///
    /// # Panics
    ///
    /// If the system has no addresses or no memory for the engine; see [`Relativistic::try_new`].
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::try_new(config).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Creates an engine.
    ///
    /// # Errors
    ///
    /// [`NoAddresses`].
    pub fn try_new(config: Config) -> Result<Self, NoAddresses> {
        let memory = config.memory.clamp(MIN_MEMORY, MAX_MEMORY);
        let refuses = config.eviction == Eviction::Refuse;
        let heap = Heap::new(memory, config.huge_pages, refuses).ok_or(NoAddresses)?;
        let domain = corewise_rcu::Builder::default().build("cache");
        let buckets = (memory / BYTES_PER_BUCKET).clamp(*BUCKETS.start(), *BUCKETS.end());
        let buckets: usize = 1 << buckets.ilog2();
        let sets = Sets::new(heap.most_allowed());
        let policy = maps::ResizePolicy {
            quadruple_below: QUADRUPLE_BELOW,
            min_buckets: buckets,
            automatic: true,
            // Requests that arrive while a huge page is cleared would wait.
            huge_pages: false,
        };
        let table = RawTable::new(buckets, policy, domain, heap.arena());
        table.set_most_buckets(buckets);
        let stripes = (memory / BYTES_PER_STRIPE).clamp(*STRIPES.start(), *STRIPES.end());
        let stripes = (0..1 << stripes.ilog2()).map(|cas| Mutex::new(Stripe { cas }));
        let appenders = appender::count(heap.most_allowed(), heap.segment_bytes());
        let evictors = (0..appenders).map(|_| CachePadded::new(Mutex::new(Evictor::new())));
        let appenders = (0..appenders).map(|_| CachePadded::new(Appender::new()));
        let engine = Self {
            table,
            heap,
            sets: CachePadded::new(sets),
            policy: Policy::new(config.eviction, memory),
            hasher: foldhash::quality::RandomState::default(),
            stripes: stripes.collect(),
            appenders: appenders.collect(),
            evictors: evictors.collect(),
            active: AtomicUsize::new(1),
            max_item_bytes: config.max_item_bytes,
            memory: AtomicU64::new(memory),
            budgeting: Mutex::new(()),
            most_buckets: AtomicUsize::new(buckets),
            overhead: AtomicU64::new(0),
            flushes: CachePadded::new(AtomicU64::new(0)),
            flushed: Flushed::default(),
            delayed_flush: DelayedFlush::new(),
            searched_s: AtomicU32::new(0),
            search: Mutex::new(SegmentSearch::new()),
            survey: Mutex::new(Survey::default()),
            sessions: AtomicUsize::new(0),
            next_session: AtomicUsize::new(0),
            counters: Mutex::new(CounterRegistry {
                running: Vec::new(),
                ended: SessionCounters::new(),
            }),
        };
        engine.set_active(memory);
        engine.budget();
        Ok(engine)
    }

    /// The part of a key's hash that the table uses.
    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        Link::reduce(self.hasher.hash_one(key))
    }

    #[inline]
    fn stripe(&self, hash: u64) -> &Mutex<Stripe> {
        // The low bits choose the bucket, so others are mixed in.
        let index = (hash ^ hash >> 12) as usize & (self.stripes.len() - 1);
        &self.stripes[index]
    }

    // ---- lookups

    /// Finds the item of a key, dead or alive.
    ///
    /// # Safety
    ///
    /// 1. The guard is of the table's domain.
    #[inline]
    unsafe fn find_any(&self, guard: &Guard<'_>, hash: u64, key: &[u8]) -> Option<Ptr> {
        // SAFETY: the guard is of the table's domain, by 1, and keeps the found item alive.
        unsafe {
            let found = self.table.find(guard, hash, |link| {
                Item::<Link>::from_raw(link.cast()).key() == key
            });
            found.map(|link| link.cast())
        }
    }

    /// Finds the live item of a key.
    ///
    /// # Safety
    ///
    /// 1. The guard is of the table's domain.
    #[inline]
    unsafe fn find(
        &self,
        guard: &Guard<'_>,
        hash: u64,
        key: &[u8],
        now: Now,
    ) -> Result<Ptr, Absence> {
        let flushes = self.generation();
        // SAFETY: the guard is of the table's domain, by 1.
        let found = unsafe { self.find_any(guard, hash, key) };
        let node = found.ok_or(Absence::Unknown)?;
        if flushes.has_older && self.heap.generation(self.heap.segment_of(node)) < flushes.number {
            return Err(Absence::Flushed);
        }
        // SAFETY: the guard keeps the item alive.
        let found: Item<'_, Link> = unsafe { Item::from_raw(node) };
        if found.deadline().is_past(now) {
            return Err(Absence::Expired);
        }
        Ok(node)
    }

    // ---- flushes

    #[inline]
    fn generation(&self) -> Generation {
        // Acquire: pairs with the Release in `flush_now`, so that effects from before the flush are
        // seen.
        let flushes = self.flushes.load(Ordering::Acquire);
        Generation {
            number: (flushes >> 1) as u32,
            has_older: flushes & 1 != 0,
        }
    }

    fn is_flushed(&self, node: Ptr) -> bool {
        self.heap.generation(self.heap.segment_of(node)) < self.generation().number
    }

    fn flush_now(&self) {
        let next = |flushes: u64| Some(((flushes >> 1) + 1) << 1 | 1);
        // Release: pairs with the Acquire in `generation`. Relaxed: only the value is needed.
        let _ = self
            .flushes
            .fetch_update(Ordering::Release, Ordering::Relaxed, next);
        let (items, bytes) = self.items_and_bytes();
        self.flushed.set(items, bytes, self.prefixed());
    }

    /// Performs a delayed flush whose time has come. Called once per batch.
    #[inline]
    fn flush_if_due(&self, now: Now) {
        self.delayed_flush.run_if_due(now, || self.flush_now());
    }

    /// Notes that nothing remains from before the last flush, if that is the case.
    fn complete_flush(&self) {
        let generation = self.generation();
        if !generation.has_older || self.heap.has_older(generation.number) {
            return;
        }
        self.flushed.set(0, 0, [0; DATABASES]);
        let flushed = u64::from(generation.number) << 1;
        // A thread that sees that nothing remains no longer checks generations, so it must see all
        // the removals; this thread has seen them through the pool's lock. After another flush,
        // this thread must not clear the bit.
        // Release: pairs with the Acquire in `generation`. Relaxed: on failure nothing is done.
        let _ = self.flushes.compare_exchange(
            flushed | 1,
            flushed,
            Ordering::Release,
            Ordering::Relaxed,
        );
    }

    // ---- memory

    /// The rounded size of an item.
    #[inline]
    fn size(&self, contents: &Contents<'_>) -> Result<usize, NoItem> {
        if contents.payload() > self.max_item_bytes || !contents.fits_header() {
            return Err(NoItem::TooLarge);
        }
        Ok(self.heap.rounded(contents.bytes::<Link>()))
    }

    fn may_evict(&self) -> bool {
        self.policy.eviction() != Eviction::Refuse
    }

    /// Counts as dead an item that the caller has unlinked.
    ///
    /// # Safety
    ///
    /// 1. The caller has unlinked the item from the engine's table, in a section that began before
    ///    and has not ended, and counts it once.
    /// 2. If the item owns a set, the caller holds the stripe of its key.
    #[inline]
    unsafe fn count_unlinked(&self, counters: &SessionCounters, node: Ptr) {
        // SAFETY: the caller's section keeps the item alive, by 1; 1 and 2 are those of the callee.
        unsafe {
            if Item::<Link>::from_raw(node).kind().owns_object() {
                self.count_unlinked_set(counters, node);
            } else {
                self.count_unlinked_item(counters, node);
            }
        }
    }

    /// As [`Self::count_unlinked`], of an item that owns a set.
    ///
    /// # Safety
    ///
    /// 1. As of [`Self::count_unlinked`], 1 and 2.
    #[cold]
    unsafe fn count_unlinked_set(&self, counters: &SessionCounters, node: Ptr) {
        // SAFETY: by 1 the item was unlinked under its stripe, and is counted once (1, both).
        unsafe {
            self.retire_set(node);
            self.count_unlinked_item(counters, node);
        }
    }

    /// As [`Self::count_unlinked`], of the item without its set.
    ///
    /// # Safety
    ///
    /// 1. As of [`Self::count_unlinked`], 1.
    #[inline]
    unsafe fn count_unlinked_item(&self, counters: &SessionCounters, node: Ptr) {
        // SAFETY: the caller's section keeps the item alive, by 1.
        let item = unsafe { Item::<Link>::from_raw(node) };
        let bytes = self.heap.footprint(item);
        counters.unlinked(item.key(), bytes);
        if self.generation().has_older && self.is_flushed(node) {
            self.flushed.unlinked(item.key(), bytes);
        }
        // SAFETY: by 1 the item was unlinked, and is counted once (1).
        unsafe { self.heap.count_dead(self.table.domain(), node, bytes) };
    }

    // ---- appenders

    /// The appender of a session.
    #[inline]
    fn appender(&self, session: usize) -> &Appender {
        // Relaxed: a setting.
        let active = self.active.load(Ordering::Relaxed);
        &self.appenders[session % active]
    }

    /// The evictor beside a session's appender.
    fn evictor(&self, session: usize) -> &Mutex<Evictor> {
        // Relaxed: a setting.
        let active = self.active.load(Ordering::Relaxed);
        &self.evictors[session % active]
    }

    /// All evictors, beginning with the session's.
    fn evictors_from(&self, session: usize) -> impl Iterator<Item = &Mutex<Evictor>> {
        // Relaxed: a setting.
        let first = session % self.active.load(Ordering::Relaxed);
        let (before, from) = self.evictors.split_at(first);
        from.iter().chain(before).map(|evictor| &**evictor)
    }

    /// Seals the appenders' open segments of generations older than this.
    fn seal_older(&self, generation: u32) {
        for appender in &self.appenders {
            appender.seal_older(self, generation);
        }
    }

    /// Sets the number of appenders in use. Open segments of the others are sealed.
    fn set_active(&self, memory: u64) {
        let active = appender::count(memory, self.heap.segment_bytes());
        let active = active.min(self.appenders.len());
        // Relaxed: a setting; a session may still use another appender without harm.
        let before = self.active.swap(active, Ordering::Relaxed);
        if active < before {
            self.seal_older(u32::MAX);
        }
    }

    /// Memory that stores leave for eviction to copy into: one segment per appender in use, and one
    /// more.
    #[inline]
    fn spare(&self) -> u64 {
        // Relaxed, both: approximate settings.
        let sessions = self.sessions.load(Ordering::Relaxed);
        let active = self.active.load(Ordering::Relaxed);
        (sessions.min(active) as u64 + 1) * self.heap.segment_bytes()
    }

    /// Headroom below which stores evict.
    #[inline]
    fn reserve(&self) -> u64 {
        2 * self.spare()
    }

    /// Whether there is memory for an item under `-M`, where nothing may be evicted.
    ///
    /// Live items leave a share of the memory free, so that items can be overwritten: the bytes of
    /// an old version can be used again only after compaction. The share is 1/20 of the memory,
    /// plus a segment or the largest item that there is, up to a quarter.
    #[inline]
    fn may_grow(&self, wanted: Wanted) -> bool {
        self.may_evict() || wanted.bytes <= wanted.old_bytes || self.has_slack(wanted)
    }

    fn has_slack(&self, wanted: Wanted) -> bool {
        let allowed = self.heap.allowed();
        let largest = self.heap.needed(wanted.bytes);
        let largest = largest.max(self.heap.largest_bytes());
        let slack = allowed / 20 + largest.min(allowed / 4);
        let slack = match wanted.counts {
            // Keeps counters working: half of that slack is reserved for counters that need more
            // digits.
            true if wanted.old_bytes > 0 => slack / 2,
            _ if mutant!("no_slack") => 0,
            _ => slack,
        };
        let growth = match wanted.old_bytes {
            0 => wanted.bytes,
            old => wanted.bytes - old,
        };
        self.heap.live_bytes() + growth as u64 + slack + self.spare() <= allowed
    }

    /// Computes the memory left for segments. If the table wants to grow and will
    /// [need it](Self::needs_buckets), lets it grow if there is room, and makes room otherwise.
    fn budget(&self) {
        // One thread at a time, so that none sets a budget from numbers that are older than those
        // of the last one.
        let _alone = self.budgeting.lock();
        // Relaxed, both: settings. Who changes one calls this afterwards, and the lock orders it.
        let memory = self.memory.load(Ordering::Relaxed);
        let overhead = self.overhead.load(Ordering::Relaxed).min(memory / 2);
        let least = LEAST_SEGMENTS * self.heap.segment_bytes();
        let fixed = overhead + self.policy.bytes() + size_of_val(&*self.stripes) as u64;
        let sets = self.counted_sets();
        self.sets.set_counted(sets);
        let left = |arrays: u64| memory.saturating_sub(fixed + sets + arrays).max(least);
        // The grant is read before the arrays: if the table allocates the granted array in between,
        // its bytes count twice instead of not at all.
        let granted = self.granted_bytes();
        let arrays = self.table.array_bytes() as u64 + granted;
        self.sets.set_share(memory, fixed + arrays + least);
        let wanted = self.table.wanted_buckets();
        let larger = left(arrays + array_bytes(wanted));
        let has_room = self.heap.held_bytes() <= larger;
        let grows = wanted != 0 && (has_room || self.may_evict());
        if !(grows && self.needs_buckets()) {
            return self.heap.allow(left(arrays));
        }
        self.heap.allow(larger);
        if has_room {
            self.grant(wanted);
        }
    }

    /// Whether the table, which is beyond its [usual load](maps::ResizePolicy), must grow at the
    /// expense of items: its load would be above [`FULL_LOAD`] if the memory were full of items of
    /// the present mean size.
    fn needs_buckets(&self) -> bool {
        if mutant!("grows_at_any_load") {
            return true;
        }
        let (held, allowed) = (self.heap.held_bytes().max(1), self.heap.allowed());
        let count = self.table.reported_len() as u128;
        let when_full = count * u128::from(allowed.max(held)) / u128::from(held);
        let buckets = self.table.resize_state().buckets as u128;
        when_full * FULL_LOAD.1 > buckets * FULL_LOAD.0
    }

    /// Allows the table an array of `buckets` buckets.
    fn grant(&self, buckets: usize) {
        // Relaxed: a setting. Stored before the table can act on it, so that no thread counts on
        // memory that the array will take.
        self.most_buckets.store(buckets, Ordering::Relaxed);
        self.table.set_most_buckets(buckets);
    }

    /// Bytes of the array that the table may allocate without asking and has not yet allocated.
    fn granted_bytes(&self) -> u64 {
        // Relaxed: a setting.
        let most = self.most_buckets.load(Ordering::Relaxed);
        let state = self.table.resize_state();
        let newest = state.building.unwrap_or(0).max(state.buckets);
        if newest < most { array_bytes(most) } else { 0 }
    }

    /// Revokes a permission to grow that the table no longer needs because it has shrunk.
    fn revoke_grant(&self) {
        // No other thread grants meanwhile.
        let _alone = self.budgeting.lock();
        let state = self.table.resize_state();
        // Relaxed: a setting.
        let most = self.most_buckets.load(Ordering::Relaxed);
        if state.building.is_none() && state.zipped == 0 && state.buckets < most {
            self.grant(state.buckets);
        }
    }

    /// The second in which to look for an item with this deadline.
    fn due_s(&self, deadline: Deadline) -> u32 {
        // Rounded up: in the second before, the item may still be alive.
        u32::try_from(deadline.to_bits().div_ceil(1000)).unwrap_or(u32::MAX - 1)
    }

    /// Makes sure that the item's segment is visited when the item has expired.
    #[inline]
    fn note_deadline(&self, node: Ptr, deadline: Deadline) {
        if deadline != Deadline::NEVER {
            let segment = self.heap.segment_of(node);
            self.heap.due_by(segment, self.due_s(deadline));
        }
    }

    /// Whether the caller must begin a search for expired items: the first caller in a second must.
    fn begins_search(&self, now: Now) -> bool {
        let now_s = now.seconds();
        // Relaxed, all: elects one thread.
        let before = self.searched_s.load(Ordering::Relaxed);
        let begins = now_s > before
            && self
                .searched_s
                .compare_exchange(before, now_s, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if begins {
            self.survey.lock().left = SURVEYED;
            self.revoke_grant();
        }
        begins
    }

    /// The number of linked items and their bytes, read while other threads count.
    fn items_and_bytes(&self) -> (u64, u64) {
        let (mut items, mut bytes) = (0u64, 0u64);
        self.counters.lock().sum(|counters| {
            items = items.wrapping_add(counters.items.get());
            bytes = bytes.wrapping_add(counters.bytes.get());
        });
        (
            session_counters::gauge(items),
            session_counters::gauge(bytes),
        )
    }

    /// The number of linked items by the prefixes of their keys, likewise.
    fn prefixed(&self) -> [u64; DATABASES] {
        let mut sum = [0; DATABASES];
        self.counters
            .lock()
            .sum(|counters| counters.add_prefixed(&mut sum));
        sum.map(session_counters::gauge)
    }

    /// The mean rounded size of items.
    fn mean_bytes(&self) -> usize {
        let (items, bytes) = self.items_and_bytes();
        (bytes / items.max(1)) as usize
    }

    /// Measures the chains of some buckets, unless another thread does.
    fn survey_chains(&self) {
        let Some(mut survey) = self.survey.try_lock() else {
            return;
        };
        if survey.left == 0 {
            return;
        }
        let count = survey.left.min(SURVEYED_AT_ONCE);
        survey.left -= count;
        let guard = self.table.domain().pin();
        // SAFETY: the guard is of the table's domain.
        let (longest, next) = unsafe { self.table.longest_chain_of(&guard, survey.at, count) };
        survey.round = survey.round.max(longest);
        survey.longest = survey.longest.max(survey.round);
        survey.at = next;
        if next == 0 {
            survey.longest = std::mem::take(&mut survey.round);
        }
    }
}

/// Bytes of an array of buckets.
fn array_bytes(buckets: usize) -> u64 {
    (buckets * size_of::<u64>()) as u64
}

/// The least number of segments that the engine gets, whatever the budget.
const LEAST_SEGMENTS: u64 = 16;

impl Engine for Relativistic {
    type Session = RelativisticSession;

    fn name(&self) -> &'static str {
        "relativistic"
    }

    fn session(self: &Arc<Self>) -> RelativisticSession {
        let counters = Arc::new(SessionCounters::new());
        self.counters.lock().running.push(Arc::clone(&counters));
        // Relaxed: see `spare`.
        self.sessions.fetch_add(1, Ordering::Relaxed);
        // Relaxed: only distinct numbers are needed.
        let number = self.next_session.fetch_add(1, Ordering::Relaxed);
        RelativisticSession {
            engine: Arc::clone(self),
            session_state: SessionState::new(counters, number),
            hashes: Vec::with_capacity(WINDOW),
        }
    }

    fn flush_all(&self, at: Deadline, now: Now) {
        if at.is_past(now) {
            self.flush_now();
        } else {
            self.delayed_flush.order(at);
        }
    }

    fn memory_limit(&self) -> u64 {
        // Relaxed: a setting.
        self.memory.load(Ordering::Relaxed)
    }

    fn most_memory(&self) -> u64 {
        self.heap.most_allowed()
    }

    fn set_memory_limit(&self, bytes: u64) {
        let bytes = bytes.clamp(MIN_MEMORY, self.most_memory());
        // Relaxed: a setting.
        let before = self.memory.swap(bytes, Ordering::Relaxed);
        if bytes > before {
            self.heap.prefer_huge(bytes);
        }
        self.set_active(bytes);
        self.budget();
    }

    fn set_overhead(&self, bytes: u64) {
        // Relaxed: a setting.
        self.overhead.store(bytes, Ordering::Relaxed);
        self.budget();
    }

    fn excess(&self) -> u64 {
        if !self.may_evict() {
            return 0;
        }
        let held = self.heap.held_bytes();
        let excess = held.saturating_sub(self.heap.allowed());
        // Reserved runs and open segments cannot be evicted.
        let least = self.heap.awaited() + 2 * self.reserve();
        let of_items = if held > least { excess } else { 0 };
        of_items + self.sets.excess()
    }

    fn stats(&self) -> EngineStats {
        let arrays = self.table.array_bytes() as u64;
        let state = self.table.resize_state();
        let segment = self.heap.segment_bytes();
        let resizes = state.building.is_some() || state.zipped > 0;
        let mut sum = EngineStats {
            table_bytes: arrays,
            buckets: state.buckets as u64,
            shards: 1,
            backlog_bytes: self.heap.waiting_bytes(),
            grace_periods: self.table.domain().grace_periods(),
            longest_chain: self.survey.lock().longest as u64,
            table_resizing: u64::from(resizes),
            zipped_tables: state.zipped as u64,
            segments: self.heap.allowed() / segment,
            segments_free: self.heap.allowed().saturating_sub(self.heap.held_bytes()) / segment,
            segment_bytes: segment,
            ..EngineStats::default()
        };
        self.counters
            .lock()
            .sum(|counters| counters.add_to(&mut sum));
        sum.items = session_counters::gauge(sum.items);
        sum.bytes = session_counters::gauge(sum.bytes);
        sum.prefixed = sum.prefixed.map(session_counters::gauge);
        if self.generation().has_older {
            let (items, bytes) = self.flushed.get();
            self.flushed
                .move_prefixed(&mut sum.prefixed, &mut sum.dead_prefixed);
            sum.items = sum.items.saturating_sub(items);
            sum.dead_bytes = bytes.min(sum.bytes);
        }
        sum.bytes += arrays + self.sets.bytes();
        sum.sets = self.sets.live();
        sum.set_bytes = self.sets.bytes();
        sum.set_slack_bytes = self.sets.heap().slack() as u64;
        sum
    }

    fn size_classes(&self) -> Vec<ClassStats> {
        let mut classes = vec![ClassStats::default(); crate::size_class::COUNT];
        self.counters
            .lock()
            .sum(|counters| counters.add_classes(&mut classes));
        for class in &mut classes {
            class.items = session_counters::gauge(class.items);
            class.bytes = session_counters::gauge(class.bytes);
        }
        classes.retain(|class| class.items != 0 || class.evictions != 0);
        classes
    }

    fn scan(
        &self,
        cursor: Cursor,
        most_looks: usize,
        now: Now,
        show: &mut dyn FnMut(&ItemView<'_>),
    ) -> ScanStep {
        self.scan_step(cursor, most_looks, now, show)
    }

    fn position(&self, fraction: u32) -> Cursor {
        Cursor::from_bits(u64::from(fraction >> 1))
    }
}

/// Number and bytes of items that were flushed and not yet unlinked. These are statistics, exact
/// only if nothing is stored or deleted while a flush is made.
#[derive(Default)]
struct Flushed {
    items: AtomicU64,
    bytes: AtomicU64,
    /// The items whose keys have a prefix.
    prefixed: [AtomicU64; DATABASES],
}

impl Flushed {
    fn set(&self, items: u64, bytes: u64, prefixed: [u64; DATABASES]) {
        // Relaxed, all: statistics.
        self.items.store(items, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        for (count, items) in self.prefixed.iter().zip(prefixed) {
            count.store(items, Ordering::Relaxed);
        }
    }

    /// Subtracts the items whose keys have a prefix from `linked`, and adds them to `dead`.
    fn move_prefixed(&self, linked: &mut [u64; DATABASES], dead: &mut [u64; DATABASES]) {
        for ((linked, dead), count) in linked.iter_mut().zip(dead).zip(&self.prefixed) {
            // Relaxed: a statistic.
            *dead = count.load(Ordering::Relaxed).min(*linked);
            *linked -= *dead;
        }
    }

    fn unlinked(&self, key: &[u8], bytes: usize) {
        let less = |count: &AtomicU64, by: u64| {
            let less = |count: u64| Some(count.saturating_sub(by));
            // Relaxed, both: statistics.
            let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        };
        less(&self.items, 1);
        less(&self.bytes, bytes as u64);
        if let Some(prefix) = prefix(key) {
            less(&self.prefixed[usize::from(prefix)], 1);
        }
    }

    fn get(&self) -> (u64, u64) {
        // Relaxed: statistics.
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (get(&self.items), get(&self.bytes))
    }
}

impl CounterRegistry {
    /// Calls `add` with the counters of all sessions that ever were.
    fn sum(&self, mut add: impl FnMut(&SessionCounters)) {
        add(&self.ended);
        self.running.iter().for_each(|counters| add(counters));
    }
}

/// One thread's handle to a [`Relativistic`] engine.
pub struct RelativisticSession {
    engine: Arc<Relativistic>,
    session_state: SessionState,
    /// Scratch: the hashes of the current window.
    hashes: Vec<u64>,
}

impl RelativisticSession {
    /// Hashes a window's keys, and prefetches their buckets and first items.
    fn prepare(&mut self, window: &[Op<'_>]) {
        let engine = &*self.engine;
        self.hashes.clear();
        self.hashes
            .extend(window.iter().map(|op| engine.hash(op.key)));
        if window.len() < 2 {
            return; // nothing to overlap with
        }
        let guard = engine.table.domain().pin();
        // SAFETY: the guard is of the table's domain.
        unsafe {
            for &hash in &self.hashes {
                engine.table.prefetch(&guard, hash);
            }
            for &hash in &self.hashes {
                engine.table.prefetch_first(&guard, hash, ITEM_LINES);
            }
            for &hash in &self.hashes {
                engine.table.prefetch_second(&guard, hash, ITEM_LINES);
            }
        }
    }

    /// Removes some flushed items. Returns true if more remain.
    fn sweep_flushed(&self, now: Now) -> bool {
        let engine = &*self.engine;
        let generation = engine.generation();
        if !generation.has_older {
            return false;
        }
        engine.seal_older(generation.number);
        let site = self.session_state.site(engine, now);
        let more = engine.evictors_from(0).any(|evictor| {
            let evictor = evictor.try_lock();
            evictor.is_none_or(|mut evictor| evictor.sweep(&site, MAINTENANCE_BYTES))
        });
        if !more {
            engine.complete_flush();
        }
        more || engine.generation().has_older
    }

    /// Does the work due after changes: the table's count, and its resizing, by up to `buckets`
    /// buckets.
    #[inline]
    fn after_changes(&mut self, buckets: usize) {
        let table = &self.engine.table;
        if self.session_state.unreported.unsigned_abs() >= table.report_after() {
            table.adjust(std::mem::take(&mut self.session_state.unreported));
            if table.wanted_buckets() != 0 {
                self.engine.budget();
            }
        }
        if table.has_work() {
            let (number, turn) = self.session_state.next_turn();
            table.step_in_turn(number, turn, buckets);
        }
    }
}

/// Cache lines of an item that are prefetched: header, key, and the beginning of the value.
const ITEM_LINES: usize = 2;

impl Session for RelativisticSession {
    fn submit<S: ReplySink>(&mut self, now: Now, ops: &[Op<'_>], sink: &mut S) -> usize {
        self.engine.flush_if_due(now);
        let mut done = 0;
        for window in ops.chunks(WINDOW) {
            self.prepare(window);
            for (index, op) in window.iter().enumerate() {
                let exec = Exec {
                    engine: &self.engine,
                    session_state: &mut self.session_state,
                    hash: self.hashes[index],
                    now,
                };
                done += 1;
                let flow = exec.run(op, sink);
                self.after_changes(STEP);
                if flow == Flow::Pause {
                    return done;
                }
            }
        }
        done
    }

    fn reserve(
        &mut self,
        now: Now,
        key: &[u8],
        value_len: usize,
        client_flags: u32,
        arrived: usize,
    ) -> Option<Reservation> {
        let mut exec = Exec {
            engine: &self.engine,
            session_state: &mut self.session_state,
            hash: self.engine.hash(key),
            now,
        };
        exec.reserve(&self.engine, key, value_len, client_flags, arrived)
    }

    fn submit_reserved<S: ReplySink>(
        &mut self,
        now: Now,
        op: &Op<'_>,
        reservation: Reservation,
        sink: &mut S,
    ) -> bool {
        self.engine.flush_if_due(now);
        let exec = Exec {
            engine: &self.engine,
            session_state: &mut self.session_state,
            hash: self.engine.hash(op.key),
            now,
        };
        let _ = exec.run_reserved(op, &reservation, sink); // one operation leaves nothing to pause
        self.after_changes(STEP);
        true
    }

    fn update(&mut self, now: Now, key: &[u8], update: &mut dyn Update) -> Updated {
        self.engine.flush_if_due(now);
        let mut exec = Exec {
            engine: &self.engine,
            session_state: &mut self.session_state,
            hash: self.engine.hash(key),
            now,
        };
        let updated = exec.update(key, update);
        self.after_changes(STEP);
        updated
    }

    fn poll<S: ReplySink>(&mut self, _now: Now, _sink: &mut S) -> usize {
        0 // everything completes in `submit`
    }

    fn maintain(&mut self, now: Now) -> bool {
        let engine = Arc::clone(&self.engine);
        engine.flush_if_due(now);
        let frees = engine.sets.bytes() > 0 && engine.sets.free_some() | engine.settle_some();
        let compacts = engine.compact_sets();
        engine.budget();
        engine.heap.collect(engine.table.domain());
        let mut more = self.sweep_flushed(now) | frees | compacts;
        let reserve = engine.reserve() as i64;
        if engine.heap.ease() < reserve || engine.must_evict_sets() {
            let progress = self
                .session_state
                .evict_some(&engine, now, reserve, MAINTENANCE_BYTES);
            // Without progress, nothing may be evicted, or other sessions evict already: trying
            // again at once does not help.
            more |= progress == EvictProgress::Made;
        }
        if let Some(mut search) = engine.search.try_lock() {
            more |= search.step(&self.session_state.site(&engine, now), MAINTENANCE_BYTES);
        }
        engine.survey_chains();
        self.after_changes(MAINTENANCE_STEP);
        more | (self.engine.heap.waiting_bytes() > 0) | self.engine.table.has_work()
    }
}

impl Drop for Relativistic {
    fn drop(&mut self) {
        self.free_sets();
    }
}

impl Drop for RelativisticSession {
    fn drop(&mut self) {
        let engine = &*self.engine;
        self.session_state.end(engine);
        // Relaxed: see `spare`.
        engine.sessions.fetch_sub(1, Ordering::Relaxed);
        let mut registry = engine.counters.lock();
        let counters = &self.session_state.counters;
        registry
            .running
            .retain(|other| !Arc::ptr_eq(other, counters));
        registry.ended.absorb(counters);
    }
}
