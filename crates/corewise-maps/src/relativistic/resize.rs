//! Resizing: a state machine that is moved on in bounded steps.
//!
//! *Shrink* (§4): cross-link the chains of each new bucket, publish the smaller table, forget the
//! larger one. No step waits for readers; only the larger array's memory does.
//!
//! *Expand* (§4): point each new bucket into the chain of its parent (*zipped* chains), publish, and
//! unzip: in each sweep over the parents one run of each trunk is cut off, with a grace period
//! between sweeps.
//!
//! # Differences to the paper
//!
//! 1. Updates go on during all of it (§4.1 sketches this). While a new table is being built, a
//!    bucket's updates go to both tables as soon as it is linked: so a smaller table is published to
//!    updaters before it is to readers, bucket by bucket, and an update waits for one bucket's
//!    cross-linking at most.
//! 2. An expansion is *stacked* on one that is not unzipped yet: its buckets point into zipped
//!    chains. So growth never waits for readers, not even for the updater's own guard; chains grow
//!    by half a node for each level stacked. Levels are unzipped oldest first.
//! 3. The paper's `aux` check alone does not make removals safe, see
//!    [`raw`](super::raw#several-predecessors).
//! 4. Shrinking needs no wait before updates go on: an update after publication concerns the
//!    smaller table alone, readers of the larger one began before it.
//!
//! # A step
//!
//! Whoever updates calls [`RawTable::step`] when there is work. A resize is a sequence of *passes*
//! over the buckets of a table; a step takes a share of the pass under a lock that is only tried,
//! and works on it beside the others, so that those who insert do as much for the growth as they
//! cause. Whoever comes after the last share is done goes on to the next pass. A step visits some
//! `budget` buckets or polls a grace period. It runs no foreign code, so it cannot panic half-way;
//! where memory for a new array is missing, the table stays as it is and chains get longer.

use std::collections::VecDeque;
use std::ops::Range;
use std::ptr::NonNull;

use corewise_atomic::alloc::HUGE_PAGE;
use corewise_atomic::hint;
use corewise_atomic::mutant;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicU64, AtomicUsize};
use corewise_atomic::thread;
use corewise_rcu::{Cookie, Pinned};

use super::chain::{Arena, Link, nodes};
use super::raw::{MAX_LEVELS, Policy, RawTable};
use super::table::{Table, exchange, is_forwarded, load, store};
use super::word::{BUSY, HOLD, INIT, LOCK, NodeId, Probe, Word};

/// By how much a step's budget grows in a sweep that finds few buckets left to cut, at most.
const MOST_SPARSE: usize = 64;
/// Words of a dead table that are given back in one step: a huge page of them, or 512 small ones.
const DISCARD: usize = HUGE_PAGE / size_of::<u64>();
/// Buckets whose chains are fetched at the same time.
const TOGETHER: usize = 16;
/// Nodes of a chain that are fetched beforehand, at most.
const FAR: usize = 32;
/// The factor by which an automatic shrink goes at most.
const MAX_SHRINK: usize = 16;

/// What is being done.
pub(super) struct Resizer {
    policy: Policy,
    /// Buckets that somebody asked for, and how often there was no memory for them.
    wanted: Option<usize>,
    refused: u64,
    /// The pass that makes a new table, or opens it.
    build: Option<Pass>,
    /// Published tables in use; more than one while buckets are zipped.
    levels: usize,
    /// The sweep over the oldest table, or when the next one may begin.
    sweep: Option<Pass>,
    after: Cookie,
    /// Buckets that the next sweep over the oldest table passes for each that it finds something in,
    /// going by the last one.
    sparse: usize,
    garbage: VecDeque<Garbage>,
    /// Resizes completed: expansions, when unzipped, and shrinks.
    completed: u64,
    /// Shares given out.
    shares: usize,
    #[cfg(corewise_stress)]
    turn: usize,
}

/// What is done to every bucket of a table, in shares.
#[derive(Clone, Copy)]
struct Pass {
    kind: Kind,
    from: NonNull<Table>,
    to: NonNull<Table>,
    /// Buckets given out, and how many there are.
    next: usize,
    end: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Points the buckets of a larger table into the chains of the one in use.
    Zip,
    /// Links the chains of the one in use for the buckets of a smaller table.
    CrossLink,
    /// Makes the buckets of the smaller table plain.
    Open,
    /// Cuts zipped chains.
    Unzip,
}

/// Passes under way: buckets that are not done.
pub(super) struct Left {
    build: AtomicUsize,
    sweep: AtomicUsize,
    /// Buckets in which the sweep has left something to cut.
    unfinished: AtomicUsize,
}

/// A table that readers may still be in.
struct Garbage {
    table: Box<Table>,
    after: Cookie,
    discarded: usize,
}

// SAFETY: the pointers are to tables of the `RawTable` that owns the resizer.
unsafe impl Send for Resizer {}

/// Why a resize was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResizeError {
    /// The caller is in a section and would wait for itself.
    Pinned,
    /// There is no memory for the bucket array, or no such array can be.
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

/// How far a resize is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResizeState {
    /// Buckets of the table that readers use.
    pub buckets: usize,
    /// Buckets of the table that is being built.
    pub building: Option<usize>,
    /// Expansions that are published and not unzipped yet.
    pub zipped: usize,
    /// Bucket arrays that wait for readers.
    pub retired: usize,
    /// Resizes completed.
    pub completed: u64,
}

impl<A: Arena> RawTable<A> {
    /// Moves resizing on by up to `budget` buckets, if nobody else is at it. Never waits.
    pub fn step(&self, budget: usize) {
        let share = match self.resizer.try_lock() {
            Some(mut resizer) => resizer.step(self, budget),
            None => return,
        };
        if let Some(share) = share {
            // The tables of the share stay because it is not done; those that lead to them, because
            // of the section. One that the thread has already will do: one more could be too many, and a
            // share that is not worked on is never done.
            let own = !self.domain().is_pinned();
            let _section = own.then(|| self.domain().pin());
            share.work(self);
        }
    }

    /// Resizes to `buckets` and waits until that is done and the chains are unzipped. Goes by
    /// whole factors: through the greatest common divisor, if neither number divides the other.
    ///
    /// # Errors
    ///
    /// [`ResizeError`]; nothing is changed, unless memory that was there at first is gone in the
    /// middle.
    pub fn resize_to(&self, buckets: usize) -> Result<(), ResizeError> {
        if buckets == 0 {
            return Err(ResizeError::NoBuckets);
        }
        if self.domain().is_pinned() {
            return Err(ResizeError::Pinned);
        }
        let refused = {
            let mut resizer = self.resizer.lock();
            if !resizer.has_memory_for(self, buckets) {
                return Err(ResizeError::NoMemory);
            }
            resizer.wanted = Some(buckets);
            resizer.refused
        };
        let mut rounds = 0;
        loop {
            self.step(1 << 10);
            let resizer = self.resizer.lock();
            if resizer.is_settled() && resizer.wanted != Some(buckets) {
                // It may have gone on by itself since, or been asked for another number.
                return match resizer.refused == refused {
                    true => Ok(()),
                    false => Err(ResizeError::NoMemory),
                };
            }
            let (waits, after) = (resizer.waits(self), resizer.after);
            drop(resizer);
            if waits {
                // Reports readers that stall.
                self.domain().poll(after);
                relax(&mut rounds);
            } else {
                rounds = 0;
            }
        }
    }

    /// Whether the table grows and shrinks by itself from now on.
    pub fn set_automatic(&self, automatic: bool) {
        let mut resizer = self.resizer.lock();
        resizer.policy.automatic = automatic;
        self.set_thresholds(resizer.policy, resizer.newest(self).len());
    }

    /// Whether the table grows and shrinks by itself.
    pub fn is_automatic(&self) -> bool {
        self.resizer.lock().policy.automatic
    }

    /// Makes room for `entries`: at least as many buckets are in use when it returns, and are kept
    /// until [`RawTable::shrink_to_fit`]. Does not wait for readers.
    ///
    /// # Errors
    ///
    /// [`ResizeError::NoMemory`].
    pub fn reserve(&self, entries: usize) -> Result<(), ResizeError> {
        loop {
            let mut resizer = self.resizer.lock();
            let buckets = resizer.newest(self).len();
            if resizer.build.is_none() {
                if Policy::most_entries(buckets) >= entries {
                    resizer.keep(self, buckets.min(Policy::buckets_for(entries)));
                    return Ok(());
                }
                let factor = Policy::buckets_for(entries).div_ceil(buckets);
                let to = buckets.checked_mul(factor.next_power_of_two().max(2));
                let to = to.ok_or(ResizeError::NoMemory)?;
                if !resizer.begin(self, to) {
                    return Err(ResizeError::NoMemory);
                }
                resizer.keep(self, Policy::buckets_for(entries));
            }
            drop(resizer);
            self.step(1 << 10);
        }
    }

    /// Asks for as few buckets as the entries can do with; done by later steps.
    pub fn shrink_to_fit(&self) {
        let mut resizer = self.resizer.lock();
        let fits = |buckets| Policy::most_entries(buckets) >= self.count().max(1);
        let mut buckets = resizer.newest(self).len();
        while buckets.is_multiple_of(2) && fits(buckets / 2) {
            buckets /= 2;
        }
        resizer.wanted = Some(buckets);
        resizer.policy.min_buckets = resizer.policy.min_buckets.min(buckets);
        // Relaxed: a hint.
        self.work.store(true, Relaxed);
    }

    /// How far resizing is.
    pub fn resize_state(&self) -> ResizeState {
        let resizer = self.resizer.lock();
        ResizeState {
            buckets: resizer.newest(self).len(),
            building: resizer.build.as_ref().map(|build| build.target().len()),
            zipped: resizer.levels - 1,
            retired: resizer.garbage.len(),
            completed: resizer.completed,
        }
    }

    /// Whether nothing is under way and nothing waits.
    pub fn is_settled(&self) -> bool {
        !self.resizer.lock().has_more()
    }

    /// Completes what is under way without waiting for readers, for an owner that nobody shares the
    /// table with.
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

    pub(super) fn set_thresholds(&self, policy: Policy, buckets: usize) {
        let above = Policy::most_entries(buckets);
        let (above, below) = match policy.automatic {
            true if buckets > policy.min_buckets => (above, buckets / 8),
            true => (above, 0),
            false => (usize::MAX, 0),
        };
        // Relaxed: see `adjust`.
        self.grow_above.store(above, Relaxed);
        self.shrink_below.store(below, Relaxed);
        self.report_after
            .store((buckets / 64).clamp(1, 64), Relaxed);
    }
}

impl Left {
    pub(super) fn new() -> Self {
        Self {
            build: AtomicUsize::new(0),
            sweep: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(0),
        }
    }

    fn of(&self, kind: Kind) -> &AtomicUsize {
        match kind {
            Kind::Unzip => &self.sweep,
            _ => &self.build,
        }
    }
}

impl Pass {
    fn source(&self) -> &Table {
        // SAFETY: a pass's tables are not retired before it is done; see `built` and `swept`.
        unsafe { self.from.as_ref() }
    }

    fn target(&self) -> &Table {
        // SAFETY: as above.
        unsafe { self.to.as_ref() }
    }

    fn is_done(&self, raw: &RawTable<impl Arena>) -> bool {
        // Acquire: pairs with the Release in `work`: all that was done to the buckets is seen.
        raw.left.of(self.kind).load(Acquire) == 0
    }

    /// The next buckets, at most `most` of them, as a pass of their own.
    fn share(&mut self, most: usize) -> Option<Pass> {
        let next = self.next;
        self.next = self.end.min(next.saturating_add(most.max(1)));
        let share = Pass {
            next,
            end: self.next,
            ..*self
        };
        (next < self.end).then_some(share)
    }

    /// Does all buckets of a share.
    fn work(&self, raw: &RawTable<impl Arena>) {
        let (from, to) = (self.source(), self.target());
        let mut unfinished = 0;
        for first in (self.next..self.end).step_by(TOGETHER) {
            let buckets = first..self.end.min(first + TOGETHER);
            self.warm(raw.arena(), buckets.clone());
            for bucket in buckets {
                match self.kind {
                    Kind::Zip => zip(raw, from, to, bucket),
                    Kind::CrossLink => cross_link(raw.arena(), from, to, bucket),
                    Kind::Open => open(to, bucket),
                    Kind::Unzip => {
                        unfinished += usize::from(!unzip_bucket(raw.arena(), from, to, bucket));
                    }
                }
            }
        }
        if unfinished > 0 {
            // Relaxed: ordered by the Release below.
            raw.left.unfinished.fetch_add(unfinished, Relaxed);
        }
        // Release: pairs with the Acquire in `is_done`.
        raw.left
            .of(self.kind)
            .fetch_sub(self.end - self.next, Release);
    }
}

impl Pass {
    /// Brings the nodes that the pass is about to walk over into the cache: one walk waits for memory at
    /// every node, several side by side wait together.
    fn warm(&self, arena: &impl Arena, buckets: Range<usize>) {
        // (A model checker has no cache, and must look at every load.)
        let walks = matches!(self.kind, Kind::Zip | Kind::Unzip);
        if !walks || cfg!(any(corewise_loom, corewise_shuttle)) {
            return;
        }
        // SAFETY: the workers of a pass are in a section; here and below.
        let fetch = |id: &NodeId| hint::prefetch(unsafe { arena.link(*id) }.as_ptr());
        let mut chains = [None; TOGETHER];
        let chains = &mut chains[..buckets.len()];
        for (at, bucket) in chains.iter_mut().zip(buckets) {
            *at = load(self.source().slot_at(bucket)).first().inspect(fetch);
        }
        let mut left = FAR;
        while left > 0 && chains.iter().any(Option::is_some) {
            for at in chains.iter_mut() {
                // SAFETY: as above.
                *at = at.and_then(|id| unsafe { arena.link(id).as_ref() }.next());
                *at = at.inspect(fetch);
            }
            left -= 1;
        }
    }
}

impl Resizer {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            policy,
            wanted: None,
            refused: 0,
            build: None,
            levels: 1,
            sweep: None,
            after: Cookie::DONE,
            sparse: 1,
            garbage: VecDeque::new(),
            completed: 0,
            shares: 0,
            #[cfg(corewise_stress)]
            turn: 0,
        }
    }

    /// Asks for so many buckets.
    #[cfg(test)]
    pub(super) fn ask(&mut self, buckets: usize) {
        self.wanted = Some(buckets);
    }

    /// The newest table in use.
    fn newest<'t>(&self, raw: &'t RawTable<impl Arena>) -> &'t Table {
        // SAFETY: only this resizer replaces tables, and it is locked.
        unsafe { raw.current() }
    }

    fn is_settled(&self) -> bool {
        self.build.is_none() && self.levels == 1
    }

    /// Whether the next step cannot do anything before readers, or other steps, have moved on.
    fn waits(&self, raw: &RawTable<impl Arena>) -> bool {
        let has_none = |pass: &Option<Pass>| {
            let pass = pass.as_ref();
            pass.is_none_or(|pass| pass.next == pass.end && !pass.is_done(raw))
        };
        let may_sweep = self.levels > 1 && raw.domain().is_complete(self.after);
        has_none(&self.build) && has_none(&self.sweep) && !(self.sweep.is_none() && may_sweep)
    }

    /// Goes on to the next pass, if that is due, and gives a share of one out.
    fn step(&mut self, raw: &RawTable<impl Arena>, budget: usize) -> Option<Pass> {
        self.advance(raw);
        self.collect(raw);
        // Nobody is to see that nothing is under way while something is due. (Under the stress build
        // something always is.)
        if !self.has_more() && !cfg!(corewise_stress) {
            self.advance(raw);
        }
        let share = self.share(budget);
        let more = self.has_more();
        // Relaxed: a hint.
        raw.work.store(more, Relaxed);
        if !more {
            raw.adjust(0);
        }
        share
    }

    /// Whether anything is under way or waits.
    fn has_more(&self) -> bool {
        !self.is_settled() || !self.garbage.is_empty() || self.wanted.is_some()
    }

    /// One transition at most.
    fn advance(&mut self, raw: &RawTable<impl Arena>) {
        let is_done = |pass: &Pass| pass.is_done(raw);
        if let Some(build) = self.build.take_if(|pass| is_done(pass)) {
            return self.built(raw, build);
        }
        if let Some(sweep) = self.sweep.take_if(|pass| is_done(pass)) {
            return self.swept(raw, sweep);
        }
        if self.build.is_none()
            && let Some(buckets) = self.due(raw)
        {
            self.begin(raw, buckets);
        } else if self.levels > 1 && self.sweep.is_none() {
            self.begin_sweep(raw);
        }
    }

    /// Of the two passes that may be under way, each in turn.
    fn share(&mut self, budget: usize) -> Option<Pass> {
        self.shares += 1;
        let sweep_budget = budget.saturating_mul(self.sparse);
        let build = |build: &mut Pass| {
            let fan = build.source().len().max(build.target().len()) / build.end;
            build.share(budget / fan.max(2) * 2)
        };
        let sweep = |sweep: &mut Pass| sweep.share(sweep_budget);
        if self.shares.is_multiple_of(2) {
            let share = self.sweep.as_mut().and_then(sweep);
            share.or_else(|| self.build.as_mut().and_then(build))
        } else {
            let share = self.build.as_mut().and_then(build);
            share.or_else(|| self.sweep.as_mut().and_then(sweep))
        }
    }

    /// The number of buckets to resize to now, if there should be another.
    fn due(&mut self, raw: &RawTable<impl Arena>) -> Option<usize> {
        let buckets = self.newest(raw).len();
        if let Some(wanted) = self.wanted {
            return self.way_to(wanted, buckets);
        }
        #[cfg(corewise_stress)]
        if self.policy.automatic && self.levels < 4 {
            return self.stressed(buckets);
        }
        if !self.policy.automatic {
            return None;
        }
        let count = raw.count();
        if count > Policy::most_entries(buckets) && self.levels < MAX_LEVELS - 2 {
            let factor = Policy::buckets_for(count).div_ceil(buckets);
            let wanted = buckets.checked_mul(factor.next_power_of_two().max(2));
            return wanted.and_then(|wanted| self.within_bound(raw, wanted));
        }
        let can_shrink = self.levels == 1 && buckets > self.policy.min_buckets;
        (can_shrink && count < buckets / 8).then(|| self.shrunk(buckets, count))?
    }

    /// So many buckets if the owner allows them. If not, the owner is told, and nothing is due any more
    /// until [`RawTable::set_most_buckets`].
    fn within_bound(&self, raw: &RawTable<impl Arena>, wanted: usize) -> Option<usize> {
        // Relaxed, all: written under our lock, or hints.
        if wanted <= raw.most_buckets.load(Relaxed) {
            return Some(wanted);
        }
        raw.wanted_buckets.store(wanted, Relaxed);
        raw.grow_above.store(usize::MAX, Relaxed);
        None
    }

    /// Sets the counts at which to grow and to shrink anew.
    pub(super) fn reconsider(&mut self, raw: &RawTable<impl Arena>) {
        raw.set_thresholds(self.policy, self.newest(raw).len());
    }

    /// The next number on the way by whole factors, `None` if there, or not before unzipping.
    fn way_to(&mut self, wanted: usize, buckets: usize) -> Option<usize> {
        if wanted == buckets {
            if self.is_settled() {
                self.wanted = None;
            }
            return None;
        }
        if wanted.is_multiple_of(buckets) {
            return (self.levels < MAX_LEVELS - 2).then_some(wanted);
        }
        let common = greatest_common_divisor(wanted, buckets);
        (self.levels == 1).then_some(common)
    }

    /// Half of the buckets, or fewer; `None` if their number is odd.
    fn shrunk(&self, buckets: usize, count: usize) -> Option<usize> {
        let fits = |factor: &usize| {
            buckets.is_multiple_of(*factor)
                && buckets / factor >= (2 * count).max(self.policy.min_buckets)
        };
        let factors = std::iter::successors(Some(2), |factor| Some(factor * 2));
        let factors = factors.take_while(|factor| *factor <= MAX_SHRINK);
        factors
            .take_while(fits)
            .last()
            .map(|factor| buckets / factor)
    }

    /// Under the stress build every chance is taken, there and back again, by twos and threes.
    #[cfg(corewise_stress)]
    fn stressed(&mut self, buckets: usize) -> Option<usize> {
        self.turn += 1;
        let factor = 2 + self.turn / 3 % 2;
        if !self.turn.is_multiple_of(3) && buckets < 64 {
            return Some(buckets * factor);
        }
        let shrinks = self.levels == 1 && buckets.is_multiple_of(factor) && buckets > factor;
        shrinks.then(|| buckets / factor)
    }

    /// Begins to build a table; false if there is no memory for it.
    fn begin(&mut self, raw: &RawTable<impl Arena>, buckets: usize) -> bool {
        let from = self.newest(raw);
        debug_assert!(from.len().is_multiple_of(buckets) || buckets.is_multiple_of(from.len()));
        let Some(new) = Table::try_new(buckets, false) else {
            self.refuse(raw);
            return false;
        };
        let to = NonNull::from(Box::leak(new));
        // Relaxed: see `RawTable::array_bytes`.
        raw.array_bytes
            .fetch_add(buckets * size_of::<u64>(), Relaxed);
        from.set_next(to.as_ptr());
        if mutant!("early_publish") {
            raw.publish(to.as_ptr());
        }
        let kind = match buckets < from.len() {
            true => Kind::CrossLink,
            false => Kind::Zip,
        };
        let end = from.len().min(buckets);
        self.build = Some(self.start(raw, kind, NonNull::from(from), to, end));
        true
    }

    /// There is no memory for a table.
    fn refuse(&mut self, raw: &RawTable<impl Arena>) {
        if self.wanted.take().is_some() {
            self.refused += 1;
            return;
        }
        // Not again before there are twice as many. Relaxed, both: see `adjust`.
        let above = raw.grow_above.load(Relaxed);
        let above = above.max(raw.count().saturating_mul(2));
        raw.grow_above.store(above, Relaxed);
    }

    /// Does not shrink below so many buckets by itself.
    fn keep(&mut self, raw: &RawTable<impl Arena>, buckets: usize) {
        self.policy.min_buckets = self.policy.min_buckets.max(buckets);
        raw.set_thresholds(self.policy, self.newest(raw).len());
    }

    /// Whether the number can be reached; asked before a smaller table is made on the way.
    fn has_memory_for(&self, raw: &RawTable<impl Arena>, buckets: usize) -> bool {
        let now = self.newest(raw).len();
        let direct = buckets.is_multiple_of(now) || now.is_multiple_of(buckets);
        direct || Table::try_new(buckets, false).is_some()
    }

    fn start(
        &self,
        raw: &RawTable<impl Arena>,
        kind: Kind,
        from: NonNull<Table>,
        to: NonNull<Table>,
        end: usize,
    ) -> Pass {
        // Relaxed: whoever takes a share has the lock after us.
        raw.left.of(kind).store(end, Relaxed);
        let next = 0;
        Pass {
            kind,
            from,
            to,
            next,
            end,
        }
    }

    /// A pass of the new table is done: every bucket is linked, or opened.
    fn built(&mut self, raw: &RawTable<impl Arena>, pass: Pass) {
        if pass.kind == Kind::Open {
            return self.retire(raw, pass.from, pass.to);
        }
        raw.publish(pass.to.as_ptr());
        pass.target().set_published();
        raw.set_thresholds(self.policy, pass.target().len());
        if pass.kind == Kind::CrossLink {
            let end = pass.target().len();
            self.build = Some(self.start(raw, Kind::Open, pass.from, pass.to, end));
            return;
        }
        self.levels += 1;
        if self.levels == 2 {
            self.wait_for_sweep(raw);
        }
    }

    /// Readers must move on before the next sweep.
    fn wait_for_sweep(&mut self, raw: &RawTable<impl Arena>) {
        self.after = match mutant!("no_wait_between_sweeps") {
            true => Cookie::DONE,
            false => raw.domain().start_poll(),
        };
    }

    fn begin_sweep(&mut self, raw: &RawTable<impl Arena>) {
        // Quietly: whoever is told of a stall may ask for the lock that we hold.
        if !raw.domain().poll_quietly(self.after) {
            return;
        }
        // SAFETY: only this resizer replaces tables, and it is locked.
        let old = unsafe { raw.oldest() };
        let new = old.follow();
        // Relaxed: as in `start`.
        raw.left.unfinished.store(0, Relaxed);
        let (from, to) = (NonNull::from(old), NonNull::from(new));
        self.sweep = Some(self.start(raw, Kind::Unzip, from, to, old.len()));
    }

    /// A sweep is done; if it has left nothing, so is its level.
    fn swept(&mut self, raw: &RawTable<impl Arena>, pass: Pass) {
        // Relaxed: ordered by the Acquire in `is_done`.
        let unfinished = raw.left.unfinished.load(Relaxed);
        self.sparse = (pass.end / unfinished.max(1)).clamp(1, MOST_SPARSE);
        if unfinished == 0 {
            self.levels -= 1;
            self.sparse = 1;
            self.retire(raw, pass.from, pass.to);
        }
        self.wait_for_sweep(raw);
    }

    /// Every bucket of `old`, the oldest table, is forwarded.
    fn retire(&mut self, raw: &RawTable<impl Arena>, old: NonNull<Table>, next: NonNull<Table>) {
        raw.set_oldest(next.as_ptr());
        self.completed += 1;
        self.garbage.push_back(Garbage {
            // SAFETY: made from a box by `begin` or `RawTable::new`; nobody finds it any more, and
            // who has found it is waited for.
            table: unsafe { Box::from_raw(old.as_ptr()) },
            after: match mutant!("retires_without_wait") {
                true => Cookie::DONE,
                false => raw.domain().start_poll(),
            },
            discarded: 0,
        });
    }

    /// Frees the oldest dead table bit by bit, if readers have left it.
    fn collect(&mut self, raw: &RawTable<impl Arena>) {
        let Some(garbage) = self.garbage.front_mut() else {
            return;
        };
        // Quietly: as in `begin_sweep`.
        if !raw.domain().poll_quietly(garbage.after) {
            return;
        }
        let len = garbage.table.len();
        let end = len.min(garbage.discarded + DISCARD);
        if len > DISCARD {
            garbage.table.discard(garbage.discarded, end);
        }
        // Relaxed: see `RawTable::array_bytes`.
        let freed = (end - garbage.discarded) * size_of::<u64>();
        raw.array_bytes.fetch_sub(freed, Relaxed);
        garbage.discarded = end;
        if end == len {
            let dead = self.garbage.pop_front();
            if mutant!("retires_without_wait") {
                // Whoever is still there finds nothing, rather than what is there by chance.
                let dead = Box::leak(dead.expect("it is the one above").table);
                (0..len).for_each(|bucket| store(dead.slot_at(bucket), Word::EMPTY));
            }
        }
    }
}

/// Locks a bucket's own word, and returns it without the lock.
fn lock(slot: &AtomicU64) -> Word {
    loop {
        let word = load(slot);
        if !word.has(LOCK) && exchange(slot, word, word.and_flags(LOCK)) {
            return word;
        }
        hint::spin_loop();
    }
}

/// Makes a bucket of a smaller table that readers use plain.
fn open(table: &Table, bucket: usize) {
    let slot = table.slot_at(bucket);
    let word = lock(slot);
    store(slot, word.with_flags(0));
}

/// Shrink, steps 2 and 3 of §4: makes one chain of those that belong to `bucket` of the smaller
/// table.
fn cross_link(arena: &impl Arena, from: &Table, new: &Table, bucket: usize) {
    let parts = || (bucket..from.len()).step_by(new.len());
    // Updates on any of them wait. Nobody who waits for one holds another.
    for part in parts() {
        lock(from.slot_at(part));
    }
    let mut rest = Word::EMPTY;
    for part in parts().rev() {
        let first = load(from.slot_at(part)).with_flags(0);
        if rest.first().is_none() {
            rest = first;
            continue;
        }
        // SAFETY: the chain is locked, and we are in a section.
        if let Some((_, last)) = unsafe { nodes(arena, first.first()) }.last() {
            last.lead_to(rest.first());
            rest = match mutant!("narrow_filter") {
                true => first,
                false => first.covering(rest),
            };
        }
    }
    store(new.slot_at(bucket), rest.and_flags(BUSY));
    for part in parts() {
        let slot = from.slot_at(part);
        store(slot, load(slot).with_flags(INIT));
    }
}

/// Expand, step 2 of §4: points the children of a bucket to their first nodes in its chain.
fn zip(raw: &RawTable<impl Arena>, from: &Table, new: &Table, bucket: usize) {
    // A bucket's number is a hash of its nodes as far as this table goes.
    let lineage = raw.lock_slowly(bucket as u32);
    let slot = from.slot_at(bucket);
    let word = load(slot);
    // Nobody else has the new words before this one has `INIT`.
    // SAFETY: the chain is locked, and we are in a section.
    for (id, link) in unsafe { nodes(raw.arena(), word.first()) } {
        // While expansions are stacked there are other buckets' nodes in the chain.
        if from.index(link.hash()) == bucket {
            let child = new.slot(link.hash());
            let own = load(child);
            let first = own.first().unwrap_or(id);
            store(child, own.prepend(first, Probe::new(link.hash())));
        }
    }
    for child in (bucket..new.len()).step_by(from.len()) {
        let child = new.slot_at(child);
        store(child, load(child).and_flags(BUSY));
    }
    store(slot, word.and_flags(INIT | BUSY));
    lineage.unlock();
}

/// Expand, step 6 of §4 for one bucket of the old table: cuts the run at its trunk's beginning off
/// from nodes of other children. True, and the bucket is forwarded, if nothing is left to cut.
fn unzip_bucket(arena: &impl Arena, old: &Table, new: &Table, bucket: usize) -> bool {
    let slot = old.slot_at(bucket);
    if is_forwarded(load(slot)) {
        return true;
    }
    let word = lock(slot);
    if word.has(HOLD) {
        store(slot, word.with_flags(INIT | BUSY));
        return false;
    }
    match cut(arena, word.first(), new) {
        Some(trunk) => {
            store(slot, Word::to_any(trunk).with_flags(INIT | BUSY));
            false
        }
        None => {
            forward(old, new, bucket);
            true
        }
    }
}

/// Cuts the first run of a trunk; the rest of the trunk, or nothing if it is one run.
fn cut(arena: &impl Arena, trunk: Option<NodeId>, new: &Table) -> Option<NodeId> {
    let child = |link: &Link| new.index(link.hash());
    // SAFETY: the lineage is locked, and we are in a section.
    let mut nodes = unsafe { nodes(arena, trunk) };
    let (_, mut last) = nodes.next()?;
    let own = child(last);
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
            last.lead_to(Some(id));
            return Some(rest);
        }
        is_one_run &= child == other;
    }
    last.lead_to(None);
    // If one child has all the rest, there is nothing to cut any more.
    (!is_one_run).then_some(rest)
}

/// Gives the children of a bucket their own locks, and sends updates there.
fn forward(old: &Table, new: &Table, bucket: usize) {
    for child in (bucket..new.len()).step_by(old.len()) {
        let slot = new.slot_at(child);
        let word = load(slot);
        if !word.has(INIT) {
            store(slot, word.with_flags(0));
        }
    }
    store(old.slot_at(bucket), Word::EMPTY.with_flags(INIT));
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    match a % b {
        0 => b,
        rest => greatest_common_divisor(b, rest),
    }
}

/// Waits for readers a little: a look at them takes the cache line of each reader's record away from
/// it, so looks are some microseconds apart.
fn relax(rounds: &mut u32) {
    *rounds += 1;
    match *rounds {
        ..=20 if !cfg!(any(corewise_loom, corewise_shuttle)) => {
            (0..50).for_each(|_| hint::spin_loop());
        }
        21..=100 => thread::yield_now(),
        _ => thread::sleep(std::time::Duration::from_micros(100)),
    }
}
