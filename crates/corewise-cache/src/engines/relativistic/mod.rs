//! The engine `relativistic`: lookups that take no lock, items in segments whose pages are the budget.
//!
//! Papers: Triplett, McKenney, Walpole, *Resizable, Scalable, Concurrent Hash Tables via Relativistic
//! Programming*, USENIX ATC 2011, §5 to §7 (memcached on such a table); Segcache, NSDI 2021 (segments);
//! S3-FIFO, SOSP 2023 (eviction).
//!
//! ```text
//!  hash of the key ─┬─▶ RawTable: bucket ─▶ item ─▶ item        lookups: a read-side section, no lock
//!                   │              8 bytes    │      the table's link is the item's first 8 bytes
//!                   ├─▶ stripe: lock, cas counter                writers of one key exclude each other
//!                   │                         ▼
//!                   │              ┌──────────────────────┐
//!                   │              │ segment: item│item│… │     one session appends to it
//!                   │              └──────────────────────┘
//!                   └─▶ ghost: was it evicted lately?            which queue a new item enters
//! ```
//!
//! `heap` has the memory, `evict` and `policy` what goes and when, `exec` the operations.
//!
//! # A batch
//!
//! Operations are taken in windows of [`WINDOW`]: hash every key and ask for its bucket; ask for each
//! bucket's first item; for the next one where that has another hash; execute. Misses of the cache
//! overlap.
//!
//! # Guarantees
//!
//! 1. *Operations on one key are linearizable*, with eviction, growth and flushes going on: a read takes
//!    effect when it finds the item; a write holds its key's stripe, and takes effect when it links,
//!    replaces or unlinks the item.
//! 2. *Reads* (`get` without touch, vivify, or a token to win) are wait-free but for the sink: no lock, no
//!    atomic read-modify-write; a hit on an item that was hit before writes nothing. A value is handed
//!    to the sink inside the section, from the item itself.
//! 3. *Writes* to different stripes meet in two places only: where a session has filled its segment, and
//!    in the number of bytes dead in a segment.
//! 4. *Memory.* Segments, bucket arrays, ghost, and what the owner says it uses itself
//!    ([`Engine::set_overhead`]) are at most the budget; what waits for readers is a part of the
//!    segments. The table asks before it grows, and room is made for the new array first. (When it shrinks,
//!    the smaller array is on top until items have made room for it.)
//! 5. *Eviction runs ahead*: while less than a reserve of some segments is left, each store looks
//!    through a few times as many bytes of old segments as it stores; so no store waits for more, unless
//!    it is large. Nobody evicts, or waits for readers, while it holds a stripe or is in a section.
//! 6. *Expired items* are taken back by [`Session::maintain`], in steps, within seconds and a sixteenth of
//!    a segment; flushed ones in the same way.
//! 7. *Progress*: reads wait for nobody. A writer waits for those of its stripe, and, when there is no
//!    memory, for readers; if one of them stays in a section for a second it is told that there is none.
//!
//! A session is in a section only while it is inside `submit` or `maintain`. So one that is idle holds up
//! nobody, and going offline is free. (Handles that announce quiescent states instead were considered:
//! entering a section costs 1.3 ns a window, and a handle that its owner forgets stops reclamation.)

mod appender;
mod core;
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
mod sparse;
mod tally;

use crate::engine::{ClassStats, Cursor, Engine, EngineStats, ScanStep, Session};
use crate::engines::verbs::NoItem;
use crate::item::{Contents, Item};
use crate::reservation::Reservation;
use appender::Appender;
use core::Core;
use core::Wanted;
use corewise_atomic::CachePadded;
use corewise_atomic::lock::Mutex;
use corewise_atomic::mutant;
use corewise_atomic::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use corewise_maps::relativistic::{self as maps, Link, RawTable};
use corewise_ops::{Absence, Deadline, Flow, ItemView, Now, Op, ReplySink};
use corewise_rcu::Guard;
use evict::Progress;
use exec::Exec;
use expire::Search;
use heap::{Heap, ItemArena, Ptr};
pub use heap::{MAX_MEMORY, MIN_MEMORY};
pub use policy::Eviction;
use policy::Policy;
use std::hash::BuildHasher;
use std::sync::Arc;
use tally::Tally;

/// Operations whose cache misses are overlapped with one another.
pub const WINDOW: usize = 32;
/// Locks that exclude writers of a key from one another: one for each 4 KiB of memory, within these bounds.
const STRIPES: std::ops::RangeInclusive<u64> = if MODELLED { 4..=4 } else { 256..=4096 };
const BYTES_PER_STRIPE: u64 = 4096;
/// The checkers' atomics are dear.
const MODELLED: bool = cfg!(any(corewise_loom, corewise_shuttle));
/// An empty table has a bucket for this many bytes of memory, and [`BUCKETS`] of them: 1/512 of the memory,
/// untouched at first, instead of the first doublings.
const BYTES_PER_BUCKET: u64 = 4096;
const BUCKETS: std::ops::RangeInclusive<u64> = 1024..=1 << 20;
/// Buckets visited by one step of a resize.
const STEP: usize = 64;
/// Bytes of segments looked through by one [`Session::maintain`].
const MAINTENANCE_BYTES: usize = 16 << 10;
/// Buckets whose chains are measured in a second, and at once.
const SURVEYED: usize = 1 << 14;
const SURVEYED_AT_ONCE: usize = 1 << 8;

/// How to build the engine.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The memory budget in bytes, [`MIN_MEMORY`] to [`MAX_MEMORY`]; what is beyond is cut off.
    pub memory: u64,
    /// The largest item in bytes, header, key and value together.
    pub max_item_bytes: usize,
    /// What to do at the budget.
    pub eviction: Eviction,
    /// Ask for huge pages for items.
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

/// The system has no addresses for the memory that was asked for.
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
    policy: Policy,
    hasher: foldhash::quality::RandomState,
    /// A power of two.
    stripes: Box<[Mutex<Stripe>]>,
    appenders: Box<[CachePadded<Appender>]>,
    /// Appenders in use: those that fit the present limit.
    active: AtomicUsize,
    max_item_bytes: usize,
    memory: AtomicU64,
    /// Buckets that the table may have without asking.
    most_buckets: AtomicUsize,
    /// What the owner uses itself. It takes half of the memory at most.
    overhead: AtomicU64,
    /// Twice the number of flushes, and one if there may be items from before the last.
    flushes: CachePadded<AtomicU64>,
    /// What is left from before the last flush.
    flushed: Flushed,
    /// When the next delayed flush comes, `u64::MAX` for never.
    flush_at_ms: AtomicU64,
    /// Held by the one that performs it.
    flushing: Mutex<()>,
    /// The second whose search for expired items has begun.
    searched_s: AtomicU32,
    search: Mutex<Search>,
    survey: Mutex<Survey>,
    sessions: AtomicUsize,
    /// The number of the next session.
    next_session: AtomicUsize,
    tallies: Mutex<Tallies>,
}

/// What excludes the writers of a key: the source of their items' cas values, which grow.
pub(super) struct Stripe {
    cas: u64,
}

/// A walk round the table, for the length of its chains.
#[derive(Default)]
struct Survey {
    /// The next bucket, and how many are left to look at in this second.
    at: usize,
    left: usize,
    /// The longest chain of this round, and of this and the last one.
    round: usize,
    longest: usize,
}

struct Tallies {
    running: Vec<Arc<Tally>>,
    ended: Tally,
    /// What events were when they were reset.
    baseline: EngineStats,
    /// Of each class: evictions, and those of items that were never read.
    classes: Vec<ClassStats>,
}

/// Which flush was the last.
#[derive(Clone, Copy)]
pub(super) struct Generation {
    number: u32,
    /// There may be items from before it.
    has_older: bool,
}

impl Stripe {
    /// A cas value greater than all that this stripe gave out before; no other stripe has it.
    fn next_cas(&mut self) -> u64 {
        self.cas += *STRIPES.end();
        self.cas
    }
}

impl Relativistic {
    /// An engine.
    ///
    /// # Panics
    ///
    /// If the system has no addresses or no memory for it; see [`Relativistic::try_new`].
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::try_new(config).unwrap_or_else(|error| panic!("{error}"))
    }

    /// An engine.
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
        let policy = maps::Policy {
            min_buckets: buckets,
            automatic: true,
        };
        let table = RawTable::new(buckets, policy, domain, heap.arena());
        table.set_most_buckets(buckets);
        let stripes = (memory / BYTES_PER_STRIPE).clamp(*STRIPES.start(), *STRIPES.end());
        let stripes = (0..1 << stripes.ilog2()).map(|cas| Mutex::new(Stripe { cas }));
        let appenders = appender::count(heap.most_allowed(), heap.segment_bytes());
        let appenders = (0..appenders).map(|_| CachePadded::new(Appender::new()));
        let engine = Self {
            table,
            heap,
            policy: Policy::new(config.eviction, memory),
            hasher: foldhash::quality::RandomState::default(),
            stripes: stripes.collect(),
            appenders: appenders.collect(),
            active: AtomicUsize::new(1),
            max_item_bytes: config.max_item_bytes,
            memory: AtomicU64::new(memory),
            most_buckets: AtomicUsize::new(buckets),
            overhead: AtomicU64::new(0),
            flushes: CachePadded::new(AtomicU64::new(0)),
            flushed: Flushed::default(),
            flush_at_ms: AtomicU64::new(u64::MAX),
            flushing: Mutex::new(()),
            searched_s: AtomicU32::new(0),
            search: Mutex::new(Search::new()),
            survey: Mutex::new(Survey::default()),
            sessions: AtomicUsize::new(0),
            next_session: AtomicUsize::new(0),
            tallies: Mutex::new(Tallies {
                running: Vec::new(),
                ended: Tally::new(),
                baseline: EngineStats::default(),
                classes: Vec::new(),
            }),
        };
        engine.set_active(memory);
        engine.budget();
        Ok(engine)
    }

    /// The hash of a key, as far as the table uses it.
    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        Link::reduce(self.hasher.hash_one(key))
    }

    #[inline]
    fn stripe(&self, hash: u64) -> &Mutex<Stripe> {
        // Not the low bits alone: those are the bucket.
        let index = (hash ^ hash >> 12) as usize & (self.stripes.len() - 1);
        &self.stripes[index]
    }

    // ---- lookups

    /// The item of a key, dead or alive.
    #[inline]
    fn find_any(&self, guard: &Guard<'_>, hash: u64, key: &[u8]) -> Option<Ptr> {
        // SAFETY: the guard is of the table's domain, and keeps what is found.
        unsafe {
            let found = self.table.find(guard, hash, |link| {
                Item::<Link>::from_raw(link.cast()).key() == key
            });
            found.map(|link| link.cast())
        }
    }

    /// The live item of a key.
    #[inline]
    fn find(&self, guard: &Guard<'_>, hash: u64, key: &[u8], now: Now) -> Result<Ptr, Absence> {
        let flushes = self.generation();
        let node = self.find_any(guard, hash, key).ok_or(Absence::Unknown)?;
        if flushes.has_older && self.heap.generation(self.heap.segment_of(node)) < flushes.number {
            return Err(Absence::Flushed);
        }
        // SAFETY: the guard keeps it.
        let found: Item<'_, Link> = unsafe { Item::from_raw(node) };
        if found.deadline().is_past(now) {
            return Err(Absence::Expired);
        }
        Ok(node)
    }

    // ---- flushes

    #[inline]
    fn generation(&self) -> Generation {
        // Acquire: pairs with the Release in `flush_now`: what happened before the flush is seen.
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
        // Release: pairs with the Acquire in `generation`. Relaxed: the value alone is needed.
        let _ = self
            .flushes
            .fetch_update(Ordering::Release, Ordering::Relaxed, next);
        let (items, bytes) = self.items_and_bytes();
        self.flushed.set(items, bytes);
    }

    /// Performs a delayed flush whose time has come. Called once per batch; afterwards nothing that it hides
    /// is seen, whoever performed it.
    #[inline]
    fn flush_if_due(&self, now: Now) {
        // Acquire: pairs with the Release in `flush_once`, so that one who finds no flush due any more comes
        // after the flush.
        let at = self.flush_at_ms.load(Ordering::Acquire);
        if at <= now.ms {
            self.flush_once(at);
        }
    }

    #[cold]
    fn flush_once(&self, at: u64) {
        let _flushing = self.flushing.lock();
        // Relaxed: under the lock, but for a flush that is ordered meanwhile.
        if self.flush_at_ms.load(Ordering::Relaxed) == at {
            self.flush_now();
            // Release: see `flush_if_due`. Relaxed: another one was ordered meanwhile, and is to come.
            let _ = self.flush_at_ms.compare_exchange(
                at,
                u64::MAX,
                Ordering::Release,
                Ordering::Relaxed,
            );
        }
    }

    /// Notes that nothing is left from before the last flush, if that is so.
    fn forget_flush(&self) {
        let generation = self.generation();
        if !generation.has_older || self.heap.has_older(generation.number) {
            return;
        }
        self.flushed.set(0, 0);
        let flushed = u64::from(generation.number) << 1;
        // Release: pairs with the Acquire in `generation`. A thread that sees that nothing is left looks at no
        // generation any more, so it must see all the removals; we have seen them by the pool's lock.
        // Relaxed: if there was another flush meanwhile, it is not ours to forget.
        let _ = self.flushes.compare_exchange(
            flushed | 1,
            flushed,
            Ordering::Release,
            Ordering::Relaxed,
        );
    }

    // ---- memory

    /// What an item will take, rounded.
    #[inline]
    fn size(&self, contents: &Contents<'_>) -> Result<usize, NoItem> {
        let bytes = contents.bytes::<Link>();
        if bytes > self.max_item_bytes || !contents.fits_header() {
            return Err(NoItem::TooLarge);
        }
        Ok(self.heap.rounded(bytes))
    }

    fn may_evict(&self) -> bool {
        self.policy.eviction() != Eviction::Refuse
    }

    // ---- appenders

    /// The appender of a session.
    #[inline]
    fn appender(&self, session: usize) -> &Appender {
        // Relaxed: a setting.
        let active = self.active.load(Ordering::Relaxed);
        &self.appenders[session % active]
    }

    /// All appenders, the session's first.
    fn appenders_from(&self, session: usize) -> impl Iterator<Item = &Appender> {
        // Relaxed: a setting.
        let first = session % self.active.load(Ordering::Relaxed);
        let (before, from) = self.appenders.split_at(first);
        from.iter().chain(before).map(|appender| &**appender)
    }

    /// Seals what appenders have open and of a generation older than this.
    fn seal_older(&self, generation: u32) {
        for appender in &self.appenders {
            appender.seal_older(self, generation);
        }
    }

    /// Sets how many appenders are used. What the others have open is sealed.
    fn set_active(&self, memory: u64) {
        let active = appender::count(memory, self.heap.segment_bytes());
        let active = active.min(self.appenders.len());
        // Relaxed: a setting; a session that still uses another appender does no harm.
        let before = self.active.swap(active, Ordering::Relaxed);
        if active < before {
            self.seal_older(u32::MAX);
        }
    }

    /// Memory that stores leave for eviction to copy into: a segment for each appender in use, and one
    /// more.
    #[inline]
    fn spare(&self) -> u64 {
        // Relaxed, both: settings, more or less.
        let sessions = self.sessions.load(Ordering::Relaxed);
        let active = self.active.load(Ordering::Relaxed);
        (sessions.min(active) as u64 + 1) * self.heap.segment_bytes()
    }

    /// Eviction runs while less than this is left.
    #[inline]
    fn reserve(&self) -> u64 {
        2 * self.spare()
    }

    /// Whether there is memory for an item at all, where nothing may be evicted. Items leave a share of the
    /// memory in which others can be overwritten, whose old places must be compacted first: 1/20, and a
    /// segment or the largest item that there is, up to a quarter.
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
            // So that counters go on: half of that room is theirs, should they need more digits.
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

    /// Works out what is left for segments, lets the table grow if there is room, and makes room if not.
    fn budget(&self) {
        // Relaxed, both: settings.
        let memory = self.memory.load(Ordering::Relaxed);
        let overhead = self.overhead.load(Ordering::Relaxed).min(memory / 2);
        let least = LEAST_SEGMENTS * self.heap.segment_bytes();
        let fixed = overhead + self.policy.bytes() + size_of_val(&*self.stripes) as u64;
        let left = |arrays: u64| memory.saturating_sub(fixed + arrays).max(least);
        let arrays = self.table.array_bytes() as u64 + self.granted_bytes();
        let wanted = self.table.wanted_buckets();
        let larger = left(arrays + array_bytes(wanted));
        let has_room = self.heap.held() <= larger;
        if wanted == 0 || !(has_room || self.may_evict()) {
            return self.heap.allow(left(arrays));
        }
        self.heap.allow(larger);
        if has_room {
            self.grant(wanted);
        }
    }

    /// Lets the table have an array of `buckets` buckets.
    fn grant(&self, buckets: usize) {
        // Relaxed: a setting. Before the table can act on it, so that nobody sees room that is not there.
        self.most_buckets.store(buckets, Ordering::Relaxed);
        self.table.set_most_buckets(buckets);
    }

    /// Bytes of an array that the table may make without asking, and has not made.
    fn granted_bytes(&self) -> u64 {
        // Relaxed: a setting.
        let most = self.most_buckets.load(Ordering::Relaxed);
        let state = self.table.resize_state();
        let newest = state.building.unwrap_or(0).max(state.buckets);
        if newest < most { array_bytes(most) } else { 0 }
    }

    /// Takes back leave to grow that the table does not use: it has shrunk since.
    fn revoke_grant(&self) {
        let state = self.table.resize_state();
        // Relaxed: a setting.
        let most = self.most_buckets.load(Ordering::Relaxed);
        if state.building.is_none() && state.zipped == 0 && state.buckets < most {
            self.grant(state.buckets);
        }
    }

    /// When to look for an item with this deadline, in seconds.
    fn due_s(&self, deadline: Deadline) -> u32 {
        // Rounded down: a segment may be looked at a second early, and once more.
        u32::try_from(deadline.to_bits() / 1000).unwrap_or(u32::MAX - 1)
    }

    /// Sees to it that an item is looked at when it has expired.
    #[inline]
    fn note_deadline(&self, node: Ptr, deadline: Deadline) {
        if deadline != Deadline::NEVER {
            let segment = self.heap.segment_of(node);
            self.heap.due_by(segment, self.due_s(deadline));
        }
    }

    /// Whether the caller is to begin a search for expired items: the first to ask in a second is.
    fn begins_search(&self, now: Now) -> bool {
        let now_s = now.seconds();
        // Relaxed, all: elects one.
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

    /// How many items are linked, and their bytes; read while others count.
    fn items_and_bytes(&self) -> (u64, u64) {
        let (mut items, mut bytes) = (0u64, 0u64);
        self.sum(|tally| {
            items = items.wrapping_add(tally.items.get());
            bytes = bytes.wrapping_add(tally.bytes.get());
        });
        (tally::gauge(items), tally::gauge(bytes))
    }

    /// The mean size of items, with what the heap rounds.
    fn mean_bytes(&self) -> usize {
        let (items, bytes) = self.items_and_bytes();
        (bytes / items.max(1)) as usize
    }

    /// Looks at the chains of some buckets, if nobody else does.
    fn look_at_chains(&self) {
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

    fn sum(&self, mut add: impl FnMut(&Tally)) {
        let tallies = self.tallies.lock();
        add(&tallies.ended);
        tallies.running.iter().for_each(|tally| add(tally));
    }
}

/// Bytes of an array of buckets.
fn array_bytes(buckets: usize) -> u64 {
    (buckets * size_of::<u64>()) as u64
}

/// Segments that the engine has at least, whatever the budget says.
const LEAST_SEGMENTS: u64 = 16;

impl Engine for Relativistic {
    type Session = RelativisticSession;

    fn name(&self) -> &'static str {
        "relativistic"
    }

    fn session(self: &Arc<Self>) -> RelativisticSession {
        let tally = Arc::new(Tally::new());
        self.tallies.lock().running.push(Arc::clone(&tally));
        // Relaxed: see `spare`.
        self.sessions.fetch_add(1, Ordering::Relaxed);
        // Relaxed: only distinct numbers are wanted.
        let number = self.next_session.fetch_add(1, Ordering::Relaxed);
        RelativisticSession {
            engine: Arc::clone(self),
            core: Core::new(tally, number),
            hashes: Vec::with_capacity(WINDOW),
        }
    }

    fn flush_all(&self, at: Deadline, now: Now) {
        if at.is_past(now) {
            self.flush_now();
        } else {
            let at_ms = if at == Deadline::NEVER {
                u64::MAX
            } else {
                at.to_bits()
            };
            // Relaxed: see `flush_once`.
            self.flush_at_ms.store(at_ms, Ordering::Relaxed);
        }
    }

    fn memory_limit(&self) -> u64 {
        // Relaxed: a setting.
        self.memory.load(Ordering::Relaxed)
    }

    fn set_memory_limit(&self, bytes: u64) {
        let bytes = bytes.clamp(MIN_MEMORY, self.heap.most_allowed());
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
            segments_free: self.heap.allowed().saturating_sub(self.heap.held()) / segment,
            segment_bytes: segment,
            ..EngineStats::default()
        };
        self.sum(|tally| tally.add_to(&mut sum));
        sum.items = tally::gauge(sum.items);
        sum.bytes = tally::gauge(sum.bytes);
        if self.generation().has_older {
            let (items, bytes) = self.flushed.get();
            sum.items = sum.items.saturating_sub(items);
            sum.dead_bytes = bytes.min(sum.bytes);
        }
        sum.bytes += arrays;
        self.tallies.lock().since_reset(&mut sum);
        sum
    }

    fn size_classes(&self) -> Vec<ClassStats> {
        let mut classes = vec![ClassStats::default(); crate::size_class::COUNT];
        self.sum(|tally| tally.add_classes(&mut classes));
        for class in &mut classes {
            class.items = tally::gauge(class.items);
            class.bytes = tally::gauge(class.bytes);
        }
        let tallies = self.tallies.lock();
        for (class, before) in classes.iter_mut().zip(&tallies.classes) {
            let less = |count: &mut u64, before: u64| *count = count.saturating_sub(before);
            less(&mut class.evictions, before.evictions);
            less(&mut class.evicted_unfetched, before.evicted_unfetched);
            less(
                &mut class.evicted_with_deadline,
                before.evicted_with_deadline,
            );
            less(&mut class.reclaimed, before.reclaimed);
            less(&mut class.expired_unfetched, before.expired_unfetched);
        }
        classes.retain(|class| class.items != 0 || class.evictions != 0);
        classes
    }

    fn reset_stats(&self) {
        let mut events = EngineStats::default();
        let mut classes = vec![ClassStats::default(); crate::size_class::COUNT];
        self.sum(|tally| {
            tally.add_to(&mut events);
            tally.add_classes(&mut classes);
        });
        let mut tallies = self.tallies.lock();
        tallies.baseline = events;
        tallies.classes = classes;
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
}

/// Items that were flushed and not unlinked yet, and their bytes: statistics, which are right when
/// nobody stores or deletes while a flush is made.
#[derive(Default)]
struct Flushed {
    items: AtomicU64,
    bytes: AtomicU64,
}

impl Flushed {
    // Relaxed, all: statistics.

    fn set(&self, items: u64, bytes: u64) {
        self.items.store(items, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    fn unlinked(&self, bytes: usize) {
        let less = |count: &AtomicU64, by: u64| {
            let less = |count: u64| Some(count.saturating_sub(by));
            let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        };
        less(&self.items, 1);
        less(&self.bytes, bytes as u64);
    }

    fn get(&self) -> (u64, u64) {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (get(&self.items), get(&self.bytes))
    }
}

impl Tallies {
    /// Takes what events were at the last reset off.
    fn since_reset(&self, sum: &mut EngineStats) {
        let before = &self.baseline;
        let less = |count: &mut u64, before: u64| *count = count.wrapping_sub(before);
        less(&mut sum.total_items, before.total_items);
        less(&mut sum.evictions, before.evictions);
        less(&mut sum.evicted_unfetched, before.evicted_unfetched);
        less(&mut sum.reclaimed, before.reclaimed);
        less(&mut sum.expired_reclaimed, before.expired_reclaimed);
        less(&mut sum.expired_unfetched, before.expired_unfetched);
        less(&mut sum.out_of_memory, before.out_of_memory);
        less(&mut sum.lock_waits, before.lock_waits);
        less(&mut sum.lock_wait_ns, before.lock_wait_ns);
    }
}

/// One thread's handle to a [`Relativistic`] engine.
pub struct RelativisticSession {
    engine: Arc<Relativistic>,
    core: Core,
    /// Scratch: the hashes of the current window.
    hashes: Vec<u64>,
}

impl RelativisticSession {
    /// Hashes a window's keys, and asks for their buckets and first items.
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

    /// Removes some of what was flushed. True if there is more.
    fn sweep_flushed(&self, now: Now) -> bool {
        let engine = &*self.engine;
        let generation = engine.generation();
        if !generation.has_older {
            return false;
        }
        engine.seal_older(generation.number);
        let site = self.core.site(engine, now);
        let more = engine.appenders_from(0).any(|appender| {
            let evictor = appender.evictor.try_lock();
            evictor.is_none_or(|mut evictor| evictor.sweep(&site, MAINTENANCE_BYTES))
        });
        if !more {
            engine.forget_flush();
        }
        more || engine.generation().has_older
    }

    /// What is due after changes: the table's count and its resizing.
    #[inline]
    fn after_changes(&mut self) {
        let table = &self.engine.table;
        if self.core.unreported.unsigned_abs() >= table.report_after() {
            table.adjust(std::mem::take(&mut self.core.unreported));
        }
        if table.has_work() {
            table.step(STEP);
        }
        if table.wanted_buckets() != 0 {
            self.engine.budget();
        }
    }
}

/// Cache lines of an item that are asked for: header, key, and the beginning of the value.
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
                    core: &mut self.core,
                    hash: self.hashes[index],
                    now,
                };
                done += 1;
                let flow = exec.run(op, sink);
                self.after_changes();
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
    ) -> Option<Reservation> {
        let mut exec = Exec {
            engine: &self.engine,
            core: &mut self.core,
            hash: self.engine.hash(key),
            now,
        };
        exec.reserve(&self.engine, key, value_len, client_flags)
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
            core: &mut self.core,
            hash: self.engine.hash(op.key),
            now,
        };
        let _ = exec.run_reserved(op, &reservation, sink); // there is nothing left to pause
        self.after_changes();
        true
    }

    fn poll<S: ReplySink>(&mut self, _now: Now, _sink: &mut S) -> usize {
        0 // everything completes in `submit`
    }

    fn maintain(&mut self, now: Now) -> bool {
        let engine = Arc::clone(&self.engine);
        engine.flush_if_due(now);
        engine.budget();
        engine.heap.collect(engine.table.domain());
        let mut more = self.sweep_flushed(now);
        let reserve = engine.reserve() as i64;
        if engine.heap.headroom() < reserve {
            let progress = self
                .core
                .evict_some(&engine, now, reserve, MAINTENANCE_BYTES);
            // Otherwise nothing may be evicted, or others are at it: looking again at once helps nobody.
            more |= progress == Progress::Made;
        }
        if let Some(mut search) = engine.search.try_lock() {
            more |= search.step(&self.core.site(&engine, now), MAINTENANCE_BYTES);
        }
        engine.look_at_chains();
        self.after_changes();
        more | (self.engine.heap.waiting_bytes() > 0) | self.engine.table.has_work()
    }
}

impl Drop for RelativisticSession {
    fn drop(&mut self) {
        let engine = &*self.engine;
        self.core.end(engine);
        // Relaxed: see `spare`.
        engine.sessions.fetch_sub(1, Ordering::Relaxed);
        let mut tallies = engine.tallies.lock();
        let tally = &self.core.tally;
        tallies.running.retain(|other| !Arc::ptr_eq(other, tally));
        tallies.ended.absorb(tally);
    }
}
