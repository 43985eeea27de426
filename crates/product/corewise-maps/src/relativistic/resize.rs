//! Resizing: a state machine that advances in bounded steps.
//!
//! ```text
//!  build: the new table
//!        ┌──── begin, larger ─────────▶ Zip ─── built: publish, levels + 1 ─────────────────┐
//!      none ◀───────────────────────────────────────────────────────────────────────────────┤
//!        └──── begin, smaller ──▶ CrossLink ─── built: publish ──▶ Open ─── built: retire ──┘
//!              (may_shrink)
//!
//!  sweep: the oldest of several levels
//!        ┌──── begin_sweep, levels > 1 ──▶ Unzip ─── swept, nothing is left: retire, levels - 1 ─┐
//!        │     (`after` is over)             └────── swept, something is left to cut ────────────┤
//!      none ◀────────────────────────────────────────────────────── start the next `after` ──────┘
//!
//!  garbage: retired tables
//!      waits for its readers ──▶ is discarded in pieces, one a step ──▶ freed
//! ```
//!
//! A larger table may be built while an older one is unzipped. `after` is the grace period that
//! begins when a sweep ends or the second level is published.
//!
//! *Shrink* (\[ATC11\] §4): cross-link the chains of each new bucket, publish the smaller table,
//! and discard the larger one. Two steps wait for readers: the first, if an expansion ended a short
//! time ago (see [Order of chains](#order-of-chains)), and the one that frees the larger array.
//!
//! *Expand* (§4): point each new bucket into the chain of its parent (*zipped* chains), publish the
//! table, and unzip: each sweep over the parents cuts one run off each trunk, with a grace period
//! between sweeps.
//!
//! # Differences from the paper
//!
//! 1. Updates continue during a resize (§4.1 sketches this). While a new table is being built, a
//!    bucket's updates go to both tables as soon as it is linked. So a smaller table is published
//!    to updaters before it is published to readers, bucket by bucket, and an update waits for the
//!    cross-linking of one bucket at most.
//! 2. An expansion may be *stacked* on one that is not unzipped yet: its buckets point into zipped
//!    chains. So growth never waits for readers, not even for the updater's own guard. Chains grow
//!    by half a node for each stacked level. Levels are unzipped oldest first. A requested resize
//!    that waits for readers is dropped when the table has to grow.
//! 3. The paper's `aux` check alone does not make removals safe, see
//!    [`raw`](super::raw#several-predecessors).
//! 4. A shrink does not have to wait before updates continue: an update after publication concerns
//!    only the smaller table, and readers of the larger one began before it.
//!
//! 5. A shrink begins a grace period after the last cut of the expansion before it. The paper has
//!    lookups only, which need no order.
//!
//! # Order of chains
//!
//! A lookup needs only to reach its node. An iterator must reach each node of its bucket once, and
//! the chain on which it walks changes under it. It does, because of this invariant:
//!
//! *For every section there is an order of the nodes that no link contradicts while the section
//! lasts*: a link that exists at any time in it leads from a node to a later one, also the link of
//! a removed node. In short: a node that a reader has passed stays behind it.
//!
//! Each change keeps to the order of the links that are there:
//!
//! - *Insertion*: the new node is in front of all nodes to which the words that lead to it led. No
//!   link of another node leads to it.
//! - *Removal, replacement*: a link skips nodes, or the new node takes the place of the old one.
//!   The old node's own link stays, and it leads to nodes that were behind the old node.
//! - *Zip, publish, forward* change no link. *Cut*: a link skips nodes.
//! - *Cross-link*: all nodes of one chain get in front of all nodes of the next, in the order of
//!   the buckets. No link leads from one chain to another before (see below), so the new links
//!   contradict none that there are.
//!
//! But they may contradict links that *were* there. Before an expansion that has just ended, the
//! chain of its parent had the nodes of its children in any order, such as `b1 → a1 → a2`, where
//! the last cut removed `b1 → a1`. A reader of bucket B may have passed `b1` and stand on `a1`. The
//! cross-linked chain is `a1 → a2 → b1`: that reader would meet `b1` again. So a shrink waits until
//! no section is left that began before the last cut ([`LockedResizer::may_shrink`]). Then no link
//! between two buckets is left either, also not one of a removed node on which a reader stands.
//! Nothing else contradicts earlier links: expansions and shrinks after a shrink, and expansions
//! after an expansion, keep the order that they find.
//!
//! An iterator reads the words of its buckets one after the other, from the table in which it
//! began, or from a part of it, and that table may be an old one by then. Each word still leads to
//! all nodes of its bucket that stay in the table while the section lasts, maybe through removed
//! ones:
//!
//! - A *smaller* table follows: the words of the larger one change only while it is current, under
//!   the locks of its buckets. Later updates change links behind them. The links that a shrink
//!   adds are at the ends of chains, so they lead only to nodes that the iterator skips.
//! - A *larger* table follows: sweeps advance the words of the smaller one, and `forward` empties
//!   them, but only after a grace period since the larger table was published, and so after all
//!   sections in which the smaller one was found. Until then a word leads to whatever its chain had
//!   when the larger table was published.
//!
//! # Steps
//!
//! Updates call [`RawTable::step`] or [`RawTable::step_in_turn`] when there is work. A resize is a
//! sequence of *passes* over the buckets of a table. A step takes a [share](super::shares) of the
//! pass and works on it in parallel with other threads, so insertions do as much of the growth as
//! they cause. A step that takes the lock on resizing, which it only tries to acquire, starts the
//! next pass when the last share is done, and polls grace periods. A step visits about `budget`
//! buckets. It runs no foreign code, so it cannot panic half-way. If memory for a new array is not
//! available, the table stays as it is and chains get longer.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::time::Duration;

use corewise_atomic::alloc::HUGE_PAGE;
use corewise_atomic::hint;
use corewise_atomic::lock::MutexGuard;
use corewise_atomic::mutant;
use corewise_atomic::sync::atomic::AtomicU64;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed};
use corewise_atomic::{Backoff, Sleeps};
use corewise_rcu::{Cookie, Pinned};

use super::chain::{Arena, Link, nodes};
use super::raw::RawTable;
use super::resizer::{Garbage, MAX_LEVELS, ResizePolicy, Resizer};
use super::shares::{Pass, PassKind, Ratio, Share};
use super::table::{BucketArray, exchange, is_forwarded, load, store};
use super::word::{BUSY, BucketWord, HOLD, INIT, LOCK, NodeId, PURE, Probe};

/// Maximum factor by which a step's budget grows in a sweep that finds few buckets left to cut.
const MOST_SPARSE: usize = 64;
/// The number of children of a bucket up to which a sweep visits as the budget says; with more
/// children it visits fewer buckets.
const SWEPT: usize = 4;
/// Words of a dead table that one step gives back: one huge page of them, or 512 small pages.
const DISCARD: usize = HUGE_PAGE / size_of::<u64>();
/// Distance in buckets between a bucket whose first node is prefetched and the one being visited.
const AHEAD: usize = 8;
/// Buckets of a table whose nodes are likely in a cache, so they are not prefetched.
const CACHED: usize = 1 << 12;
/// Buckets of a table whose nodes are likely in an outer cache, so only first ones are prefetched.
const NEARBY: usize = 1 << 16;
/// The number of a thread's steps of which one takes the lock on resizing, even while shares are
/// left: another pass may have to begin beside the one under way. Without shares a thread takes the
/// lock no more often, because it would only poll a grace period, and a poll reads cache lines that
/// readers write.
const PER_LOCK: usize = if cfg!(corewise_stress) { 2 } else { 4 };
/// Buckets by which an update of a map advances a resize. In small tables it is twice this number,
/// because insertions take a lock while chains are zipped.
const STEP: usize = if cfg!(corewise_stress) { 1 } else { 8 };
/// The number of a thread's updates for which it advances a resize at once, in tables that are
/// likely in a cache, and in larger ones. Powers of two.
const NEAR_BATCH: usize = 8;
const FAR_BATCH: usize = 4;
/// How a thread sleeps while it waits for readers. Each check takes the cache line of every
/// reader's record away from that reader.
const SLEEPS: Sleeps = Sleeps {
    after_rounds: 100,
    shortest: Duration::from_micros(100),
    longest: Duration::from_micros(100),
};

/// The resizer of a table, locked: only its owner replaces tables.
pub(super) struct LockedResizer<'t, A> {
    raw: &'t RawTable<A>,
    resizer: MutexGuard<'t, Resizer>,
}

/// Why a resize was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResizeError {
    /// The caller is in a section, and the resize would wait for that section.
    Pinned,
    /// Memory for the bucket array is not available, or no array can be that large.
    NoMemory,
    /// A table has at least one bucket.
    NoBuckets,
}

impl std::fmt::Display for ResizeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ResizeError::Pinned => {
                "the calling thread holds a guard, and a resize waits for guards"
            }
            ResizeError::NoMemory => "there is no memory for that many buckets",
            ResizeError::NoBuckets => "a table needs a bucket",
        })
    }
}

impl std::error::Error for ResizeError {}

impl From<Pinned> for ResizeError {
    fn from(_: Pinned) -> Self {
        ResizeError::Pinned
    }
}

/// The progress of resizing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResizeState {
    /// Buckets of the table that readers use.
    pub buckets: usize,
    /// Buckets of the table that is being built.
    pub building: Option<usize>,
    /// Expansions that are published but not unzipped yet.
    pub zipped: usize,
    /// Bucket arrays that wait for readers.
    pub retired: usize,
    /// The number of completed resizes.
    pub completed: u64,
}

impl<A: Arena> RawTable<A> {
    /// Takes the lock on resizing.
    pub(super) fn resizer(&self) -> LockedResizer<'_, A> {
        LockedResizer {
            raw: self,
            resizer: self.resizer.lock(),
        }
    }

    fn try_resizer(&self) -> Option<LockedResizer<'_, A>> {
        let resizer = self.resizer.try_lock()?;
        Some(LockedResizer { raw: self, resizer })
    }

    /// Advances resizing by about `budget` buckets, and by one transition to another pass unless
    /// another thread has the lock. Never waits.
    pub fn step(&self, budget: usize) {
        self.step_in_turn(0, 0, budget);
    }

    /// As [`RawTable::step`], for the steps of one thread that follow each other: `thread` is a
    /// number that no other thread has at the same time, and `turn` counts the steps. Steps of
    /// several threads disturb each other less, and only one step in a few takes the lock.
    pub fn step_in_turn(&self, thread: usize, turn: usize, budget: usize) {
        if turn.is_multiple_of(PER_LOCK)
            && let Some(mut resizer) = self.try_resizer()
        {
            resizer.advance_all();
        }
        self.work_on_share(thread, turn / PER_LOCK, budget);
    }

    /// Advances resizing after a thread's update number `turn`; most of these calls do nothing.
    /// `thread` is as for [`RawTable::step_in_turn`].
    ///
    /// A step costs as much as visits to several buckets that are in a cache: it takes the lock, a
    /// share and a section. So one step advances the resize for several updates of a thread: for
    /// fewer in large tables, where visits wait for memory, so that the longest updates do not get
    /// much longer.
    #[inline]
    pub(super) fn step_after_update(&self, thread: usize, turn: usize) {
        if cfg!(any(corewise_loom, corewise_shuttle, corewise_stress)) {
            return self.step_in_turn(thread, turn, STEP);
        }
        // Relaxed: a hint.
        let batch = self.batch.load(Relaxed);
        // Threads take turns: many of them may have few updates each.
        if turn.wrapping_add(thread) & (batch - 1) == 0 {
            let per_update = if batch == NEAR_BATCH { 2 * STEP } else { STEP };
            self.step_in_turn(thread, turn / batch * PER_LOCK, batch * per_update);
        }
    }

    /// Takes a share of one of the passes under way, alternating between them with `turn`, and
    /// works on it.
    fn work_on_share(&self, thread: usize, turn: usize, budget: usize) {
        let [first, second] = match turn.is_multiple_of(2) {
            true => [&self.passes.sweep, &self.passes.build],
            false => [&self.passes.build, &self.passes.sweep],
        };
        if first.is_given_out() && second.is_given_out() {
            return;
        }
        // If the thread already has a section, that one suffices: a further one could be one too
        // many, and a share that is not worked on is never done.
        let own = !self.domain().is_pinned();
        let _section = own.then(|| self.domain().pin());
        let taken = first.take(thread, budget).map(|share| (first, share));
        let taken = taken.or_else(|| second.take(thread, budget).map(|share| (second, share)));
        let Some((shares, share)) = taken else {
            return;
        };
        // The share's tables stay because it is not done; the section keeps the tables that lead to
        // them.
        // SAFETY: this thread has just taken the share, and works on it once (1). It is in a
        // section, and the tables stay, see above (2).
        let unfinished = unsafe { work(self, &share) };
        shares.done(&share, unfinished);
    }

    /// Resizes to `buckets` and waits until the resize is done and the chains are unzipped.
    ///
    /// Resizes go by integer factors: through the greatest common divisor, if neither number
    /// divides the other. Separating a chain of `n` nodes takes up to `n` grace periods, so a
    /// divisor that is much smaller than the number of entries makes a resize very slow.
    ///
    /// # Errors
    ///
    /// [`ResizeError`]; nothing is changed, unless memory that was available at first runs out
    /// half-way.
    pub fn resize_to(&self, buckets: usize) -> Result<(), ResizeError> {
        if buckets == 0 {
            return Err(ResizeError::NoBuckets);
        }
        if self.domain().is_pinned() {
            return Err(ResizeError::Pinned);
        }
        let refused = {
            let mut resizer = self.resizer();
            if !resizer.has_memory_for(buckets) {
                return Err(ResizeError::NoMemory);
            }
            resizer.wanted = Some(buckets);
            resizer.refused
        };
        let mut backoff = Backoff::new();
        loop {
            self.work_on_share(0, 0, 1 << 10);
            // Not by `step`: of two threads that resize, each could find the lock held by the other
            // again and again.
            let mut resizer = self.resizer();
            resizer.advance_all();
            if resizer.is_settled() && resizer.wanted != Some(buckets) {
                // Meanwhile the table may have resized by itself, or another resize was requested.
                return if resizer.refused == refused {
                    Ok(())
                } else {
                    Err(ResizeError::NoMemory)
                };
            }
            let (is_waiting, after) = (resizer.is_waiting(), resizer.after);
            drop(resizer);
            if is_waiting {
                // Reports stalled readers.
                self.domain().poll(after);
                backoff.snooze_or_sleep(&SLEEPS);
            } else {
                backoff.reset();
            }
        }
    }

    /// Sets whether the table grows and shrinks by itself.
    pub fn set_automatic(&self, automatic: bool) {
        let mut resizer = self.resizer();
        resizer.policy.automatic = automatic;
        resizer.reconsider();
    }

    /// Whether the table grows and shrinks by itself.
    pub fn is_automatic(&self) -> bool {
        self.resizer.lock().policy.automatic
    }

    /// Reserves room for `entries`: enough buckets are in use when it returns, and are kept until
    /// [`RawTable::shrink_to_fit`]. Does not wait for readers.
    ///
    /// # Errors
    ///
    /// [`ResizeError::NoMemory`].
    pub fn reserve(&self, entries: usize) -> Result<(), ResizeError> {
        loop {
            let mut resizer = self.resizer();
            let buckets = resizer.newest().len();
            if resizer.build.is_none() {
                if ResizePolicy::most_entries(buckets) >= entries {
                    resizer.raise_min_buckets(buckets.min(ResizePolicy::buckets_for(entries)));
                    return Ok(());
                }
                let factor = ResizePolicy::buckets_for(entries).div_ceil(buckets);
                let to = buckets.checked_mul(factor.next_power_of_two().max(2));
                let to = to.ok_or(ResizeError::NoMemory)?;
                if !resizer.begin_build(to) {
                    return Err(ResizeError::NoMemory);
                }
                resizer.raise_min_buckets(ResizePolicy::buckets_for(entries));
            }
            // As in `resize_to`.
            resizer.advance_all();
            drop(resizer);
            self.work_on_share(0, 0, 1 << 10);
        }
    }

    /// Requests the smallest number of buckets that fits the entries and is reached by halving;
    /// later steps do the work.
    pub fn shrink_to_fit(&self) {
        let mut resizer = self.resizer();
        let fits = |buckets| ResizePolicy::most_entries(buckets) >= self.count().max(1);
        let mut buckets = resizer.newest().len();
        while buckets.is_multiple_of(2) && fits(buckets / 2) {
            buckets /= 2;
        }
        resizer.wanted = Some(buckets);
        resizer.policy.min_buckets = resizer.policy.min_buckets.min(buckets);
        // Relaxed: a hint.
        self.work.store(true, Relaxed);
    }

    /// The progress of resizing.
    pub fn resize_state(&self) -> ResizeState {
        let resizer = self.resizer();
        // SAFETY: the pass is under way, and the resizer, which retires its tables, is locked (1).
        let target = |build: &Pass| unsafe { build.target() }.len();
        ResizeState {
            buckets: resizer.newest().len(),
            building: resizer.build.as_ref().map(target),
            zipped: resizer.levels - 1,
            retired: resizer.garbage.len(),
            completed: resizer.completed,
        }
    }

    /// Whether no resize is under way, requested, or waiting for readers.
    pub fn is_settled(&self) -> bool {
        !self.resizer.lock().has_more()
    }

    /// Completes the resize under way without waiting for readers, for an exclusive owner.
    pub(super) fn finish_alone(&mut self) {
        loop {
            let resizer = self.resizer.get_mut();
            if resizer.is_settled() {
                return;
            }
            resizer.policy.automatic = false;
            resizer.wanted = None;
            resizer.after = Cookie::DONE;
            self.step(usize::MAX / 8);
        }
    }

    pub(super) fn set_thresholds(&self, policy: ResizePolicy, buckets: usize) {
        let above = ResizePolicy::most_entries(buckets);
        let (above, below) = match policy.automatic {
            true if buckets > policy.min_buckets => (above, ResizePolicy::fewest_entries(buckets)),
            true => (above, 0),
            false => (usize::MAX, 0),
        };
        // Relaxed: see `adjust`.
        self.grow_above.store(above, Relaxed);
        self.shrink_below.store(below, Relaxed);
        self.report_after
            .store(ResizePolicy::report_after(buckets), Relaxed);
        let batch = if buckets < NEARBY {
            NEAR_BATCH
        } else {
            FAR_BATCH
        };
        // Relaxed: a hint.
        self.batch.store(batch, Relaxed);
    }
}

impl Pass {
    /// # Safety
    ///
    /// 1. The pass is not done, or was not handled by `built` or `swept` yet: these retire its
    ///    tables.
    unsafe fn source(&self) -> &BucketArray {
        // SAFETY: only `built` and `swept` retire the tables of a pass, and have not yet, by 1.
        unsafe { self.from.as_ref() }
    }

    /// # Safety
    ///
    /// 1. As for [`Pass::source`].
    unsafe fn target(&self) -> &BucketArray {
        // SAFETY: only `built` and `swept` retire the tables of a pass, and have not yet, by 1.
        unsafe { self.to.as_ref() }
    }
}

/// Processes all buckets of a share; returns in how many a sweep left something to cut.
///
/// # Safety
///
/// 1. The share is one of a pass of `raw`, and was not worked on before.
/// 2. The caller is in a section of the domain of `raw`.
unsafe fn work(raw: &RawTable<impl Arena>, share: &Share) -> usize {
    // SAFETY: the pass is not done before this share is, so its tables are not retired (1).
    let (from, to) = unsafe { (share.pass.source(), share.pass.target()) };
    let arena = raw.arena();
    let buckets = share.buckets.clone();
    let pair = Expansion::new(arena, from, to);
    let mut unfinished = 0;
    // SAFETY: the caller is in a section, by 2. The share is one of a pass of `raw`, by 1, so these
    // are consecutive tables of `raw`, and no other thread works on its buckets.
    unsafe {
        match share.pass.kind {
            PassKind::Zip => {
                for bucket in buckets {
                    pair.warm(bucket);
                    if !pair.zip_pure(bucket) {
                        zip(raw, from, to, bucket);
                    }
                }
            }
            PassKind::CrossLink => buckets.for_each(|at| cross_link(arena, from, to, at)),
            PassKind::Open => buckets.for_each(|bucket| open(to, bucket)),
            PassKind::Unzip => {
                for (bucket, slot) in buckets.clone().zip(&pair.olds[buckets]) {
                    // In all sweeps but the first, most are.
                    if is_forwarded(load(slot)) {
                        continue;
                    }
                    pair.warm(bucket);
                    let is_done = pair.unzip(bucket);
                    unfinished += usize::from(!is_done);
                }
            }
        }
    }
    unfinished
}

impl<A> Deref for LockedResizer<'_, A> {
    type Target = Resizer;
    fn deref(&self) -> &Resizer {
        &self.resizer
    }
}

impl<A> DerefMut for LockedResizer<'_, A> {
    fn deref_mut(&mut self) -> &mut Resizer {
        &mut self.resizer
    }
}

impl<A: Arena> LockedResizer<'_, A> {
    /// The newest table in use.
    fn newest(&self) -> &BucketArray {
        // SAFETY: only the owner of this lock replaces tables, and the reference borrows the lock
        // (1).
        unsafe { self.raw.current() }
    }

    /// Whether the next step can do nothing until readers or other steps have made progress.
    fn is_waiting(&self) -> bool {
        let raw = self.raw;
        // A step has work in a pass while shares are left. When all are done, it has the transition
        // to the next pass. In between, other threads work on the last shares.
        let has_no_work = |pass: &Option<Pass>| {
            let pass = pass.as_ref().map(|pass| raw.passes.of(pass.kind));
            pass.is_none_or(|shares| shares.is_given_out() && !shares.is_done())
        };
        // The next sweep, or a shrink, may begin.
        let may_begin = self.sweep.is_none() && raw.domain().is_complete(self.after);
        has_no_work(&self.build) && has_no_work(&self.sweep) && !may_begin
    }

    /// Advances to the next pass if that is due, and frees a piece of a retired table.
    fn advance_all(&mut self) {
        let raw = self.raw;
        self.advance();
        self.collect();
        // No thread may see an idle state while something is due. (The stress build always has
        // something due.)
        if !self.has_more() && !cfg!(corewise_stress) {
            self.advance();
        }
        let more = self.has_more();
        // Relaxed: a hint; read by all updates, so it is written to change it only.
        if raw.work.load(Relaxed) != more {
            // Acquire: pairs with the Release in `adjust`: if this overwrites its request, the
            // count is seen below.
            raw.work.swap(more, Acquire);
        }
        if !more {
            raw.adjust(0);
        }
    }

    /// Makes at most one transition.
    fn advance(&mut self) {
        let raw = self.raw;
        let is_done = |pass: &Pass| raw.passes.of(pass.kind).is_done();
        if let Some(build) = self.build.take_if(|pass| is_done(pass)) {
            return self.built(build);
        }
        if let Some(sweep) = self.sweep.take_if(|pass| is_done(pass)) {
            return self.swept(sweep);
        }
        if self.build.is_none()
            && let Some(buckets) = self.due()
        {
            if !self.begin_build(buckets) {
                self.handle_no_memory();
            }
        } else if self.levels > 1 && self.sweep.is_none() {
            self.begin_sweep();
        }
    }

    /// The number of buckets to resize to now, if a resize is due.
    fn due(&mut self) -> Option<usize> {
        self.shrink_waits = false;
        let buckets = self.newest().len();
        if let Some(wanted) = self.wanted {
            let next = self.next_size_towards(wanted, buckets);
            let next = next.filter(|next| *next > buckets || self.may_shrink());
            if next.is_some() || self.wanted.is_none() || mutant!("request_delays_growth") {
                return next;
            }
            // The request waits for readers, and growth must not. A table that is full by now is
            // not to become smaller, so its growth replaces the request.
            let growth = self.growth(buckets);
            self.wanted.take_if(|_| growth.is_some());
            return growth;
        }
        #[cfg(corewise_stress)]
        if self.policy.automatic && self.levels < 4 {
            let next = self.next_size_under_stress(buckets);
            return next.filter(|next| *next > buckets || self.may_shrink());
        }
        self.growth(buckets).or_else(|| self.shrink(buckets))
    }

    /// The number of buckets to grow to automatically, if there are too many entries.
    fn growth(&self, buckets: usize) -> Option<usize> {
        let raw = self.raw;
        let count = raw.count();
        let is_full = count > ResizePolicy::most_entries(buckets) && self.levels < MAX_LEVELS - 2;
        if !is_full || !self.policy.automatic {
            return None;
        }
        let factor = ResizePolicy::buckets_for(count).div_ceil(buckets);
        // Relaxed: written under our lock.
        let most = raw.most_buckets.load(Relaxed);
        let least = self.policy.least_factor(buckets, most);
        let wanted = buckets.checked_mul(factor.next_power_of_two().max(least))?;
        self.within_bound(wanted)
    }

    /// The number of buckets to shrink to automatically, if there are few entries and no reader
    /// delays it.
    fn shrink(&mut self, buckets: usize) -> Option<usize> {
        let count = self.raw.count();
        let has_few = count < ResizePolicy::fewest_entries(buckets);
        let is_sparse = has_few && buckets > self.policy.min_buckets;
        if !is_sparse || !self.policy.automatic {
            return None;
        }
        let wanted = self.smaller_size(buckets, count)?;
        self.shrink_waits = !self.may_shrink();
        (!self.shrink_waits).then_some(wanted)
    }

    /// Whether chains may be cross-linked: no reader walks on one that belonged to several buckets;
    /// see [Order of chains](self#order-of-chains).
    fn may_shrink(&self) -> bool {
        let has_left = || {
            // Reports no stall, as in `begin_sweep`.
            mutant!("shrinks_at_once") || self.raw.domain().poll_quietly(self.after)
        };
        self.levels == 1 && has_left()
    }

    /// `wanted` if the owner's bound allows it. Otherwise this records `wanted` for the owner, and
    /// no growth is due until [`RawTable::set_most_buckets`].
    fn within_bound(&self, wanted: usize) -> Option<usize> {
        let raw = self.raw;
        // Relaxed, all: written under our lock, or hints.
        if wanted <= raw.most_buckets.load(Relaxed) {
            return Some(wanted);
        }
        raw.wanted_buckets.store(wanted, Relaxed);
        raw.grow_above.store(usize::MAX, Relaxed);
        None
    }

    /// Recomputes the counts that trigger growing and shrinking.
    pub(super) fn reconsider(&self) {
        let buckets = self.newest().len();
        self.raw.set_thresholds(self.policy, buckets);
    }

    /// Begins to build a table; returns false if memory for it is not available.
    fn begin_build(&mut self, buckets: usize) -> bool {
        let raw = self.raw;
        let from = self.newest();
        debug_assert!(from.len().is_multiple_of(buckets) || buckets.is_multiple_of(from.len()));
        let Some(new) = BucketArray::try_new(buckets, false, self.policy.huge_pages) else {
            return false;
        };
        new.populate();
        let to = NonNull::from(Box::leak(new));
        // Relaxed: see `RawTable::array_bytes`.
        raw.array_bytes
            .fetch_add(buckets * size_of::<u64>(), Relaxed);
        // SAFETY: tables are retired, and freed, in the order of this list (1 of `set_next`).
        // `publish` is called with the contract as in `built`, but for the mutant.
        unsafe {
            from.set_next(to.as_ptr());
            if mutant!("early_publish") {
                raw.publish(to.as_ptr());
            }
        }
        let kind = if buckets < from.len() {
            PassKind::CrossLink
        } else {
            PassKind::Zip
        };
        let end = from.len().min(buckets);
        self.build = Some(self.start(kind, NonNull::from(from), to, end));
        true
    }

    /// Handles a failed allocation of a table that was due: its request fails, or the table waits
    /// before it grows.
    fn handle_no_memory(&mut self) {
        let raw = self.raw;
        if self.wanted.take().is_some() {
            self.refused += 1;
            return;
        }
        // Try again only when the count has doubled. Relaxed, both: see `adjust`.
        let above = raw.grow_above.load(Relaxed);
        let above = above.max(raw.count().saturating_mul(2));
        raw.grow_above.store(above, Relaxed);
    }

    /// Raises the number of buckets below which the table does not shrink by itself, and drops a
    /// request for fewer.
    fn raise_min_buckets(&mut self, buckets: usize) {
        self.wanted.take_if(|wanted| *wanted < buckets);
        self.policy.min_buckets = self.policy.min_buckets.max(buckets);
        self.reconsider();
    }

    /// Whether memory for `buckets` is available; checked before an intermediate, smaller table is
    /// made.
    fn has_memory_for(&self, buckets: usize) -> bool {
        let now = self.newest().len();
        let direct = buckets.is_multiple_of(now) || now.is_multiple_of(buckets);
        direct || BucketArray::try_new(buckets, false, false).is_some()
    }

    /// Starts a pass over the first `end` buckets.
    fn start(
        &self,
        kind: PassKind,
        from: NonNull<BucketArray>,
        to: NonNull<BucketArray>,
        end: usize,
    ) -> Pass {
        let mut pass = Pass {
            kind,
            from,
            to,
            end,
            per_budget: Ratio { times: 1, by: 1 },
        };
        // SAFETY: the pass begins here, so its tables are not retired (1).
        let (source, target) = unsafe { (pass.source(), pass.target()) };
        let fan = source.len().max(target.len()) / end;
        let (times, by) = match kind {
            PassKind::Unzip => (self.sparse, (fan / SWEPT).max(1)),
            _ => (2, fan.max(2)),
        };
        pass.per_budget = Ratio { times, by };
        self.raw.passes.of(kind).start(pass);
        pass
    }

    /// Called when a pass over the new table is done: every bucket is linked, or opened.
    fn built(&mut self, pass: Pass) {
        let raw = self.raw;
        if pass.kind == PassKind::Open {
            // SAFETY: every bucket of the larger table was forwarded when it was linked, and the
            // smaller table follows (1).
            return unsafe { self.retire(pass.from, pass.to) };
        }
        // SAFETY: `begin` has linked the new table to the current one, and `retire` is given the
        // table later that it replaces (1 of `publish`). The pass is handled here, and does not
        // retire the target (1 of `target`).
        let target = unsafe {
            raw.publish(pass.to.as_ptr());
            pass.target()
        };
        target.set_published();
        raw.set_thresholds(self.policy, target.len());
        if pass.kind == PassKind::CrossLink {
            let end = target.len();
            self.build = Some(self.start(PassKind::Open, pass.from, pass.to, end));
            return;
        }
        self.levels += 1;
        if self.levels == 2 {
            self.wait_for_sweep();
        }
    }

    /// Starts the grace period that must end before the next sweep, or before a shrink.
    fn wait_for_sweep(&mut self) {
        self.after = if mutant!("no_wait_between_sweeps") {
            Cookie::DONE
        } else {
            self.raw.domain().start_poll()
        };
    }

    fn begin_sweep(&mut self) {
        let raw = self.raw;
        // This poll reports no stall: the stall hook may take the lock that this thread holds.
        if !raw.domain().poll_quietly(self.after) {
            return;
        }
        // SAFETY: only the owner of this lock retires the oldest table (1).
        let old = unsafe { raw.oldest() };
        let new = old.follow();
        let (from, to) = (NonNull::from(old), NonNull::from(new));
        self.sweep = Some(self.start(PassKind::Unzip, from, to, old.len()));
    }

    /// Called when a sweep is done. If it left nothing to cut, its level is done too.
    fn swept(&mut self, pass: Pass) {
        let raw = self.raw;
        let unfinished = raw.passes.sweep.unfinished();
        self.sparse = (pass.end / unfinished.max(1)).clamp(1, MOST_SPARSE);
        if unfinished == 0 {
            self.levels -= 1;
            self.sparse = 1;
            // SAFETY: the sweep has forwarded every bucket of the oldest table, and the next table
            // follows it (1).
            unsafe { self.retire(pass.from, pass.to) };
        }
        self.wait_for_sweep();
    }

    /// Retires `old`, the oldest table.
    ///
    /// # Safety
    ///
    /// 1. Every bucket of `old` is forwarded, and `next` follows it.
    unsafe fn retire(&mut self, old: NonNull<BucketArray>, next: NonNull<BucketArray>) {
        let raw = self.raw;
        // SAFETY: `next` follows the oldest table, of which every bucket is forwarded and so has no
        // lock, by 1. From here on no thread finds the old table.
        unsafe { raw.set_oldest(next.as_ptr()) };
        self.completed += 1;
        self.garbage.push_back(Garbage {
            table: old,
            after: if mutant!("retires_without_wait") {
                Cookie::DONE
            } else {
                raw.domain().start_poll()
            },
            discarded: 0,
        });
    }

    /// Frees the oldest retired table piece by piece, once readers have left it.
    fn collect(&mut self) {
        let raw = self.raw;
        let Some(garbage) = self.garbage.front_mut() else {
            return;
        };
        // Reports no stall, as in `begin_sweep`.
        if !raw.domain().poll_quietly(garbage.after) {
            return;
        }
        // SAFETY: no thread can find the table any more, and readers have left it.
        let table = unsafe { garbage.table.as_mut() };
        let len = table.len();
        let end = len.min(garbage.discarded + DISCARD);
        if len > DISCARD {
            table.discard(garbage.discarded, end);
        }
        // Relaxed: see `RawTable::array_bytes`.
        let freed = (end - garbage.discarded) * size_of::<u64>();
        raw.array_bytes.fetch_sub(freed, Relaxed);
        garbage.discarded = end;
        if end == len {
            let dead = self.garbage.pop_front();
            if mutant!("retires_without_wait") {
                // A thread that still uses the table must find nothing, rather than arbitrary
                // contents.
                let dead = std::mem::ManuallyDrop::new(dead.expect("it is the one above"));
                // SAFETY: the table is never freed, as `dead` leaks it.
                let dead = unsafe { dead.table.as_ref() };
                (0..len).for_each(|bucket| store(dead.slot_at(bucket), BucketWord::EMPTY));
            }
        }
    }
}

/// Locks a bucket by its own word, and returns the word without the lock.
fn lock(slot: &AtomicU64) -> BucketWord {
    let mut backoff = Backoff::new();
    loop {
        let word = load(slot);
        if !word.has(LOCK) && exchange(slot, word, word.set_flags(LOCK)) {
            return word;
        }
        backoff.snooze();
    }
}

/// Makes a bucket of a smaller table that readers use plain.
fn open(table: &BucketArray, bucket: usize) {
    let slot = table.slot_at(bucket);
    let word = lock(slot);
    store(slot, word.replace_flags(0));
}

/// Shrink, steps 2 and 3 of \[ATC11\] §4: joins the chains that belong to `bucket` of the smaller
/// table into one.
///
/// # Safety
///
/// 1. The caller is in a section of the table's domain; `from` and `new` are consecutive tables,
///    and their nodes are in `arena`.
unsafe fn cross_link(arena: &impl Arena, from: &BucketArray, new: &BucketArray, bucket: usize) {
    let parts = || (bucket..from.len()).step_by(new.len());
    // Updates of any of them wait. No thread that waits for one of these locks holds another.
    for part in parts() {
        lock(from.slot_at(part));
    }
    // Back to front: `rest` is the chain joined so far, and each chain is put in front of it.
    let mut rest = BucketWord::EMPTY;
    for part in parts().rev() {
        let first = load(from.slot_at(part)).replace_flags(0);
        if rest.first().is_none() {
            rest = first;
            continue;
        }
        // SAFETY: the chain is locked, and the caller is in a section, by 1.
        if let Some((_, last)) = unsafe { nodes(arena, first.first()) }.last() {
            last.set_next(rest.first());
            rest = if mutant!("narrow_filter") {
                first
            } else {
                first.covering(rest)
            };
        }
    }
    store(new.slot_at(bucket), rest.set_flags(BUSY));
    // This unlocks and forwards the old buckets: their updates continue in the new one.
    for part in parts() {
        let slot = from.slot_at(part);
        store(slot, load(slot).replace_flags(INIT));
    }
}

/// Expand, step 2 of \[ATC11\] §4: points the children of a bucket to their first nodes in its
/// chain.
///
/// # Safety
///
/// 1. The caller is in a section of the domain of `raw`; `from` and `new` are consecutive tables of
///    it.
#[inline(never)]
unsafe fn zip(raw: &RawTable<impl Arena>, from: &BucketArray, new: &BucketArray, bucket: usize) {
    // For this table, a bucket index serves as the hash of its nodes.
    // SAFETY: the caller is in a section, by 1, and the lineage is unlocked below.
    let lineage = unsafe { raw.lock(bucket as u32) };
    let slot = from.slot_at(bucket);
    let word = load(slot);
    // While expansions are stacked, the chain contains nodes of other buckets.
    let is_plain = word.flags() == LOCK;
    let mut used = None;
    let mut pure = if is_plain { PURE } else { 0 };
    // Other threads do not use the new words before this one has `INIT`.
    // SAFETY: the chain is locked, and the caller is in a section, by 1.
    for (id, link) in unsafe { nodes(raw.arena(), word.first()) } {
        if is_plain || from.index(link.hash()) == bucket {
            let child = new.index(link.hash());
            if *used.get_or_insert(child) != child && !mutant!("always_pure") {
                pure = 0;
            }
            // The child's word keeps its first node, and its filter gets each node.
            let child = new.slot_at(child);
            let own = load(child);
            let first = own.first().unwrap_or(id);
            store(child, own.prepend(first, Probe::new(link.hash())));
        }
    }
    Expansion::new(raw.arena(), from, new).for_each_child(bucket, |child| {
        store(child, load(child).set_flags(BUSY));
    });
    store(slot, word.set_flags(INIT | BUSY | pure));
    lineage.unlock();
}

/// Two consecutive tables of an expansion, with the slices of their words at hand. A pass needs
/// both for every bucket; read from the tables, they would be loaded again after each store.
struct Expansion<'t, A> {
    arena: &'t A,
    new: &'t BucketArray,
    olds: &'t [AtomicU64],
    news: &'t [AtomicU64],
}

impl<'t, A: Arena> Expansion<'t, A> {
    #[inline(always)]
    fn new(arena: &'t A, old: &'t BucketArray, new: &'t BucketArray) -> Self {
        Self {
            arena,
            new,
            olds: old.slots(0..old.len()),
            news: new.slots(0..new.len()),
        }
    }

    /// Calls `each` with the words of the larger table that belong to a bucket of the smaller one.
    #[inline(always)]
    fn for_each_child(&self, bucket: usize, each: impl Fn(&AtomicU64)) {
        // A loop, because `step_by` divides.
        let mut bucket = bucket;
        while let Some(child) = self.news.get(bucket) {
            each(child);
            bucket += self.olds.len();
        }
    }

    /// Prefetches nodes that a pass is about to read: the first of a bucket that is `2 * AHEAD`
    /// buckets away, and the second of one that is [`AHEAD`] buckets away, whose first has arrived
    /// by now.
    ///
    /// # Safety
    ///
    /// 1. The caller is in a section of the table's domain, and its nodes are in the arena.
    #[inline(always)]
    unsafe fn warm(&self, bucket: usize) {
        // (A model checker has no cache and must examine every load.)
        if self.olds.len() <= CACHED || cfg!(any(corewise_loom, corewise_shuttle)) {
            return;
        }
        let first = |bucket| {
            let word = self.olds.get(bucket).map(load)?;
            let first = word.first().filter(|_| !word.has(PURE))?;
            // SAFETY: the ID was read from a word, in the section.
            Some(unsafe { self.arena.link(first) })
        };
        if let Some(link) = first(bucket + 2 * AHEAD) {
            hint::prefetch(link.as_ptr());
        }
        if self.olds.len() < NEARBY {
            return;
        }
        // SAFETY: a node that a word leads to is not freed during the section.
        if let Some(next) = first(bucket + AHEAD).and_then(|link| unsafe { link.as_ref() }.next()) {
            // SAFETY: the ID was read from a link, in the section.
            hint::prefetch(unsafe { self.arena.link(next) }.as_ptr());
        }
    }

    /// As [`zip`], without a lock, for a plain bucket all of whose nodes belong to one child;
    /// returns false if the bucket is another one, or is updated meanwhile.
    ///
    /// The exchange fails if a node was inserted, or the first node removed or replaced, since the
    /// word was read: the section keeps IDs from being reused, so another chain has another word.
    /// An update of a later node leaves the word as it was, and the rest in the same child.
    ///
    /// # Safety
    ///
    /// 1. The caller is in a section of the domain of the tables, whose nodes are in the arena. No
    ///    other thread links this bucket.
    #[inline(always)]
    unsafe fn zip_pure(&self, bucket: usize) -> bool {
        let slot = &self.olds[bucket];
        let word = load(slot);
        if word.flags() != 0 {
            return false;
        }
        let mut used = None;
        // SAFETY: the word was read in the caller's section, by 1.
        for (_, link) in unsafe { nodes(self.arena, word.first()) } {
            let child = self.new.index(link.hash());
            if *used.get_or_insert(child) != child {
                return false;
            }
        }
        // Other threads do not use the new words before the old one has `INIT`.
        self.for_each_child(bucket, |child| {
            store(child, BucketWord::EMPTY.set_flags(BUSY));
        });
        if let Some(child) = used {
            store(&self.news[child], word.set_flags(BUSY));
        }
        let linked = word.set_flags(INIT | BUSY | PURE);
        if mutant!("zip_by_store") {
            store(slot, linked);
            return true;
        }
        if exchange(slot, word, linked) {
            return true;
        }
        self.for_each_child(bucket, |child| store(child, BucketWord::EMPTY));
        false
    }

    /// Expand, step 6 of \[ATC11\] §4 for one bucket of the old table: cuts the run at the start of
    /// its trunk off from nodes of other children. If nothing is left to cut, forwards the bucket
    /// and returns true.
    ///
    /// # Safety
    ///
    /// 1. The caller is in a section of the domain of the tables, whose nodes are in the arena. The
    ///    bucket is not forwarded, and no other thread unzips it.
    #[inline(always)]
    unsafe fn unzip(&self, bucket: usize) -> bool {
        let slot = &self.olds[bucket];
        let word = lock(slot);
        if word.has(HOLD) {
            // A node was removed from the trunk since the last sweep, and its readers still follow
            // the old trunk: the next sweep cuts.
            store(slot, word.replace_flags(INIT | BUSY));
            return false;
        }
        if !word.has(PURE)
            // SAFETY: the bucket was locked above, and the caller is in a section, by 1.
            && let Some(trunk) = unsafe { cut(self.arena, word.first(), self.new) }
        {
            store(slot, BucketWord::to_any(trunk).replace_flags(INIT | BUSY));
            return false;
        }
        self.forward(bucket);
        true
    }

    /// Gives the children of a bucket their own locks, and sends updates there.
    #[inline(always)]
    fn forward(&self, bucket: usize) {
        self.for_each_child(bucket, |child| {
            let word = load(child);
            if !word.has(INIT) {
                store(child, word.replace_flags(0));
            }
        });
        store(&self.olds[bucket], BucketWord::EMPTY.replace_flags(INIT));
    }
}

/// Cuts the first run of a trunk; returns the rest of the trunk, or `None` if nothing is left to
/// cut.
///
/// # Safety
///
/// 1. The trunk's lineage is locked, and the caller is in a section of the table's domain.
unsafe fn cut(arena: &impl Arena, trunk: Option<NodeId>, new: &BucketArray) -> Option<NodeId> {
    let child = |link: &Link| new.index(link.hash());
    // SAFETY: the lineage is locked and the caller is in a section, by 1, so the chain's nodes are
    // kept.
    let mut nodes = unsafe { nodes(arena, trunk) };
    // The first run: the nodes at the front that belong to the same child. `last` is its last node.
    let (_, mut last) = nodes.next()?;
    let own = child(last);
    // The first node of another child begins the rest. If there is none, there is nothing to cut.
    let (rest, other) = loop {
        match nodes.next()? {
            (_, link) if child(link) == own => last = link,
            (id, link) => break (id, child(link)),
        }
    };
    let mut is_one_run = true;
    for (id, link) in nodes {
        let child = child(link);
        if child == own {
            // The next run of this child: the cut skips the nodes of others in between.
            last.set_next(Some(id));
            return Some(rest);
        }
        is_one_run &= child == other;
    }
    // The rest has no node of this child.
    last.set_next(None);
    // If all the rest belongs to one child, nothing is left to cut.
    (!is_one_run).then_some(rest)
}
