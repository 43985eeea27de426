//! A replica: a copy of the structure, and how it executes the log.
//!
//! ```text
//!  Replica │ lock │ applied, next │   read by readers: one line    │ combiner's word │   own line
//!          │ flags of readers, slots for requests: own lines │ state: combiner only │ data │
//! ```
//!
//! `applied` is the paper's `localTail`, 0 if the replica is not live. `data` is read under the
//! readers-writer lock, or under the combiner's lock, and changed under both.
//!
//! # Invariants
//!
//! 1. *Only the holder of the combiner's lock advances* a replica. So a batch that is being
//!    appended is not executed by another thread, which would not know where its outcomes go.
//! 2. *In order*: a combiner executes an entry after it has found that entry and all before it
//!    filled, also if another combiner appended them.
//! 3. *Readers hold a replica where it is*: `applied` of a live replica, and `next`, which refers
//!    to the entry at `applied`, change only under the readers-writer lock, held for writing. The
//!    ring of that entry is not freed.
//!
//! # When a replica is up to date
//!
//! A read has to see every write that returned before the read began, and what an earlier read at
//! another replica saw. The paper's reader compares `localTail` with `completedTail`, a word that
//! every combiner raises with an exchange after each batch. Here the reader looks whether the *next
//! entry* of its replica is filled, and nobody maintains `completedTail`. The line of that entry is
//! needed in any case, to execute it. If the next entry, at `n`, is not filled, nothing is missing:
//!
//! - A write with index `i` that has returned was executed by the combiner that appended it, which
//!   had found all entries up to `i` filled (2), by Acquire loads that pair with the Release of
//!   those that filled them. If the write returned before the read began, these loads happen
//!   before the reader's load of entry `n`. For `n <= i` the reader's load would be later than
//!   another one of the same entry that found it filled, and so, by coherence, find it filled too.
//!   Hence `n > i`.
//! - An effect of the entry at `i` that an earlier read saw was brought about by a combiner of
//!   that read's replica, which had found all entries up to `i` filled. Its unlock for writing is
//!   acquired by that read, so again `n > i`.
//! - Entries are filled in any order. While the entry at `n` is a gap before filled ones, no
//!   replica has executed those, none of their writes has returned, and a read at `n` precedes
//!   them.
//!
//! The replica stays at `n` until the read ends (3), so the read takes effect when it loads the
//! entry.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use corewise_atomic::cell::DataCell;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use corewise_atomic::{Backoff, CachePadded, Sleeps, mutant};
use corewise_locks::{FlagRw, FlagWriteGuard};

use crate::Sequential;
use crate::combining::Publications;
use crate::discard::discard;
use crate::log::{Content, FIRST, Log, Ring, Tail};

/// What executing an operation gave: a response, or what it panicked with.
pub(crate) type Outcome<D> = Result<<D as Sequential>::Response, Box<dyn Any + Send>>;

/// Entries that are executed under one acquisition of the readers-writer lock.
pub(crate) const RUN: u64 = 64;

/// Waiting for an entry that another thread has reserved: that takes it a few instructions.
const SLEEPS: Sleeps = Sleeps {
    after_rounds: 64,
    shortest: std::time::Duration::from_micros(50),
    longest: std::time::Duration::from_millis(1),
};

/// In place of a slot: the operation is the combiner's own and was not posted.
pub(crate) const OWN: usize = usize::MAX;

pub(crate) struct Replica<D: Sequential> {
    shared: CachePadded<Shared>,
    pub(crate) publications: Publications<D::Write, Outcome<D>>,
    pub(crate) counters: Counters,
    pub(crate) state: DataCell<State<D>>,
    data: DataCell<Option<D>>,
}

/// What readers look at.
struct Shared {
    lock: FlagRw,
    applied: AtomicU64,
    /// The word that says whether the entry at `applied` is filled.
    next: AtomicPtr<AtomicU64>,
    /// Threads that combine for the replica and do nothing else.
    dedicated: AtomicU32,
}

// SAFETY: `state` belongs to the holder of the combiner's lock, so it only moves between threads,
// as its contents may. `data` is read by several threads at a time, and `D` is `Sync`; it is
// changed under a lock that excludes them, and `D` is `Send`.
unsafe impl<D: Sequential> Sync for Replica<D> {}
// SAFETY: as for `Sync`; a replica has no tie to a thread.
unsafe impl<D: Sequential> Send for Replica<D> {}

/// What belongs to the combiner.
pub(crate) struct State<D: Sequential> {
    /// The number of the replica.
    pub(crate) index: usize,
    pub(crate) is_live: bool,
    /// As `Shared::applied`.
    pub(crate) applied: u64,
    /// The log2 of the capacity of the ring that holds the entry at `applied`.
    pub(crate) log2: u32,
    /// The tail seen last.
    pub(crate) tail: Tail,
    /// The slot at which collecting requests begins.
    pub(crate) next_slot: usize,
    /// The batch: slots, and operations until they are in the log.
    pub(crate) batch: Vec<(usize, Option<D::Write>)>,
    /// The outcome of the combiner's own operation.
    pub(crate) own: Option<Outcome<D>>,
    /// Writes that panicked.
    pub(crate) panics: u64,
}

/// Counts of a replica's combiners. Changed under the combiner's lock, read at any time.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) batches: Counter,
    pub(crate) writes: Counter,
    pub(crate) direct_writes: Counter,
    pub(crate) failed_appends: Counter,
    pub(crate) full_log_waits: Counter,
    pub(crate) helped: Counter,
    pub(crate) panics: Counter,
}

/// A number that one thread at a time increases.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        // Relaxed: a number for people. No other thread changes it meanwhile.
        self.0.store(self.get() + more, Relaxed);
    }

    #[inline]
    fn set(&self, value: u64) {
        // Relaxed: a number for people.
        self.0.store(value, Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        // Relaxed: a number for people.
        self.0.load(Relaxed)
    }
}

impl<D: Sequential> Replica<D> {
    /// A replica that is not live.
    pub(crate) fn new(slots: usize, max_batch: usize) -> Self {
        Self {
            shared: CachePadded::new(Shared {
                lock: FlagRw::new(slots),
                applied: AtomicU64::new(0),
                next: AtomicPtr::new(ptr::null_mut()),
                dedicated: AtomicU32::new(0),
            }),
            publications: Publications::new(slots),
            counters: Counters::default(),
            state: DataCell::new(State {
                index: 0,
                is_live: false,
                applied: 0,
                log2: 0,
                tail: Tail {
                    index: FIRST,
                    log2: 0,
                },
                next_slot: 0,
                batch: Vec::with_capacity(max_batch),
                own: None,
                panics: 0,
            }),
            data: DataCell::new(None),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> &FlagRw {
        &self.shared.lock
    }

    /// How far the replica has executed the log: one past the last entry; 0 if it is not live.
    #[inline]
    pub(crate) fn applied(&self) -> u64 {
        // Acquire: pairs with the Release in `set_applied`.
        self.shared.applied.load(Acquire)
    }

    /// Publishes how far a live replica has executed the log, whose next entry is in this ring.
    /// Under the readers-writer lock, unless the replica is not live yet: invariant 3.
    #[inline]
    pub(crate) fn set_applied(&self, applied: u64, ring: &Ring<D::Write>) {
        let next = ptr::from_ref(ring.filled(applied)).cast_mut();
        // Relaxed: published with `applied`.
        self.shared.next.store(next, Relaxed);
        // Release: pairs with the Acquire in `applied`. With the scan in between, entries are
        // overwritten after they were executed here.
        self.shared.applied.store(applied, Release);
    }

    /// Publishes that the replica is not live any more. Under the readers-writer lock.
    pub(crate) fn end_life(&self) {
        // Release: pairs with the Acquire in `applied`.
        self.shared.applied.store(0, Release);
    }

    /// Whether the replica is live, and has executed the log up to `needed` or is up to date: see
    /// the module's header.
    ///
    /// # Safety
    ///
    /// 1. The caller holds the readers-writer lock for reading.
    #[inline]
    pub(crate) unsafe fn is_current(&self, needed: u64) -> bool {
        let applied = self.applied();
        if applied == 0 || applied >= needed || mutant!("reader_does_not_look") {
            return applied != 0;
        }
        // Relaxed: it was published with `applied`.
        let next = self.shared.next.load(Relaxed);
        // SAFETY: while the caller keeps writers of the replica out (1), it stays before this
        // entry, and a ring lives as long as a live replica is before one of its entries
        // (invariant 3).
        Content::load(unsafe { &*next }, applied) == Content::Empty
    }

    /// Whether writers should leave combining to a dedicated thread.
    #[inline]
    pub(crate) fn has_dedicated_combiner(&self) -> bool {
        // Relaxed: a hint.
        self.shared.dedicated.load(Relaxed) != 0
    }

    /// Says that the caller combines, until the result is dropped.
    pub(crate) fn dedicate(&self) -> Dedicated<'_> {
        // Relaxed: a hint.
        self.shared.dedicated.fetch_add(1, Relaxed);
        Dedicated(&self.shared.dedicated)
    }

    /// Calls `read` with the data.
    ///
    /// # Safety
    ///
    /// 1. The caller holds the readers-writer lock, or the combiner's lock.
    /// 2. The replica is live.
    #[inline]
    pub(crate) unsafe fn with_data<R>(&self, read: impl FnOnce(&D) -> R) -> R {
        // SAFETY: by 1 no thread changes it. By 2 it is there.
        let get = |data: *const Option<D>| unsafe { &*data }.as_ref();
        self.data
            .with(|data| read(get(data).expect("a live replica has data")))
    }

    /// Calls `change` with the place of the data.
    ///
    /// # Safety
    ///
    /// 1. The caller holds the combiner's lock.
    /// 2. It holds the readers-writer lock for writing, or the replica is not live.
    #[inline]
    pub(crate) unsafe fn with_place<R>(&self, change: impl FnOnce(&mut Option<D>) -> R) -> R {
        // SAFETY: by 1 and 2 no other thread uses it: readers that hold the lock of a replica that
        // is not live do not look at the data.
        self.data.with_mut(|data| change(unsafe { &mut *data }))
    }

    /// Executes the log up to `end`, and from `batch.start` on answers the requests of the batch.
    /// Ends early at what its patience does not allow to wait for, and at a multiple of `pause`.
    ///
    /// # Safety
    ///
    /// 1. The caller holds the combiner's lock, and `state` is this replica's, which is live.
    /// 2. The entries of `batch` are those of `state.batch`, reserved and filled by the caller, and
    ///    not answered.
    pub(crate) unsafe fn advance(
        &self,
        log: &Log<D::Write>,
        state: &mut State<D>,
        target: &Target,
    ) -> Reached {
        let mut backoff = Backoff::new();
        while state.applied < target.end {
            // SAFETY: the lock is held, and the replica is in this ring (1 and 2).
            let ring = unsafe { log.ring(state.log2) };
            let limit = target.limit(state.applied);
            let (run_end, content) = ring.filled_run(state.applied..limit);
            if run_end > state.applied {
                backoff.reset();
                // SAFETY: the caller upholds 1 and 2; the entries of the run are filled writes.
                if !unsafe { self.execute_run(ring, state, run_end, target) } {
                    return Reached::Readers;
                }
                if target.is_pause(run_end) {
                    return Reached::Pause;
                }
            } else if content == Content::Grow {
                // The next entry is in the next ring.
                // SAFETY: the caller upholds 1; it is a GROW entry.
                if !unsafe { self.change_ring(log, state, target.patience) } {
                    return Reached::Readers;
                }
                if target.is_pause(run_end + 1) {
                    return Reached::Pause;
                }
            } else if target.patience == Patience::Entries {
                // Another thread has reserved the next entry and is about to fill it.
                backoff.snooze_or_sleep(&SLEEPS);
            } else {
                return Reached::Empty;
            }
        }
        Reached::End
    }

    /// Executes the entries from `applied` to `end`, which are filled writes. False if there are
    /// readers for which it may not wait.
    ///
    /// # Safety
    ///
    /// 1. As for [`Replica::advance`].
    unsafe fn execute_run(
        &self,
        ring: &Ring<D::Write>,
        state: &mut State<D>,
        end: u64,
        target: &Target,
    ) -> bool {
        let Some(guard) = self.exclude_readers(target.patience) else {
            return false;
        };
        let batch = &target.batch;
        let execute = |place: &mut Option<D>| {
            let data = place.as_mut().expect("a live replica has data");
            for index in state.applied..end {
                // SAFETY: the entry is filled, and this replica has not passed it (1).
                let outcome = unsafe { ring.with(index, |operation| execute(data, operation)) };
                if batch.contains(&index) {
                    let slot = state.batch[(index - batch.start) as usize].0;
                    // SAFETY: the requests of the batch are answered here only, each once (1).
                    unsafe { self.answer((&mut state.own, &mut state.panics), slot, outcome) };
                } else {
                    state.panics += u64::from(outcome.is_err());
                    discard(outcome);
                }
            }
        };
        // SAFETY: both locks are held.
        unsafe { self.with_place(execute) };
        self.publish_and_unlock(ring, state, end, guard);
        true
    }

    /// Acquires the readers-writer lock for writing, if it may wait for readers.
    #[inline]
    fn exclude_readers(&self, patience: Patience) -> Option<FlagWriteGuard<'_>> {
        match patience {
            Patience::None => self.shared.lock.try_write(),
            Patience::Readers | Patience::Entries => Some(self.shared.lock.write()),
        }
    }

    /// Passes a GROW entry. False if there are readers for which it may not wait.
    ///
    /// # Safety
    ///
    /// 1. As for [`Replica::advance`], and the entry at `applied` is a GROW entry.
    #[cold]
    #[inline(never)]
    unsafe fn change_ring(
        &self,
        log: &Log<D::Write>,
        state: &mut State<D>,
        patience: Patience,
    ) -> bool {
        let is_careless = mutant!("grow_beside_readers");
        let guard = (!is_careless).then(|| self.exclude_readers(patience));
        if guard.as_ref().is_some_and(Option::is_none) {
            return false;
        }
        state.log2 += 1;
        state.applied += 1;
        // SAFETY: the caller holds the lock (1); the live replica is in this ring from here on.
        self.set_applied(state.applied, unsafe { log.ring(state.log2) });
        true
    }

    /// Executes entries of the log, of which the one at `own`, the last, is the caller's write.
    ///
    /// # Safety
    ///
    /// 1. As for [`Replica::advance`].
    /// 2. The entries from `applied` to `own` are in this ring, and are filled writes.
    #[inline]
    pub(crate) unsafe fn execute_up_to(
        &self,
        ring: &Ring<D::Write>,
        state: &mut State<D>,
        own: u64,
    ) -> Outcome<D> {
        let guard = self.shared.lock.write();
        let execute_all = |place: &mut Option<D>| {
            let data = place.as_mut().expect("a live replica has data");
            for index in state.applied..own {
                // SAFETY: a filled write of this ring (2), which this replica has not passed (1).
                let outcome = unsafe { ring.with(index, |operation| execute(data, operation)) };
                state.panics += u64::from(outcome.is_err());
                discard(outcome);
            }
            // SAFETY: likewise.
            unsafe { ring.with(own, |operation| execute(data, operation)) }
        };
        // SAFETY: both locks are held.
        let outcome = unsafe { self.with_place(execute_all) };
        state.panics += u64::from(outcome.is_err());
        self.publish_and_unlock(ring, state, own + 1, guard);
        outcome
    }

    /// Publishes that the replica has executed the log up to `end`, and lets readers in.
    #[inline]
    fn publish_and_unlock(
        &self,
        ring: &Ring<D::Write>,
        state: &mut State<D>,
        end: u64,
        guard: FlagWriteGuard<'_>,
    ) {
        state.applied = end;
        self.counters.panics.set(state.panics);
        self.set_applied(end, ring);
        drop(guard);
    }

    /// Keeps the outcome of an operation of the batch.
    ///
    /// # Safety
    ///
    /// 1. The caller holds the combiner's lock, has taken the request, and has not answered it.
    unsafe fn answer(
        &self,
        (own, panics): (&mut Option<Outcome<D>>, &mut u64),
        slot: usize,
        outcome: Outcome<D>,
    ) {
        *panics += u64::from(outcome.is_err());
        if slot == OWN {
            *own = Some(outcome);
            return;
        }
        // SAFETY: the caller holds the lock, and answers the taken request once (1).
        unsafe { self.publications.answer(slot, outcome) };
    }

    /// Executes a write of the caller without the log.
    ///
    /// # Safety
    ///
    /// 1. As for [`Replica::execute_directly`].
    #[inline]
    pub(crate) unsafe fn execute_one_directly(
        &self,
        state: &mut State<D>,
        operation: &D::Write,
    ) -> Outcome<D> {
        let guard = self.shared.lock.write();
        let execute = |place: &mut Option<D>| {
            let data = place.as_mut().expect("a live replica has data");
            execute(data, operation)
        };
        // SAFETY: both locks are held.
        let outcome = unsafe { self.with_place(execute) };
        drop(guard);
        if outcome.is_err() {
            state.panics += 1;
            self.counters.panics.set(state.panics);
        }
        outcome
    }

    /// Executes the batch without the log.
    ///
    /// # Safety
    ///
    /// 1. The caller holds the combiner's lock, and `state` is this replica's, which is live.
    /// 2. No other replica is live, and this one has executed the whole log.
    pub(crate) unsafe fn execute_directly(
        &self,
        state: &mut State<D>,
        garbage: &mut Vec<D::Write>,
    ) {
        let guard = self.shared.lock.write();
        let execute_all = |place: &mut Option<D>| {
            let data = place.as_mut().expect("a live replica has data");
            for (slot, operation) in &mut state.batch {
                let operation = operation.take().expect("collected");
                let outcome = execute(data, &operation);
                if std::mem::needs_drop::<D::Write>() {
                    garbage.push(operation);
                }
                // SAFETY: the requests of the batch are answered here only, each once (1).
                unsafe { self.answer((&mut state.own, &mut state.panics), *slot, outcome) };
            }
        };
        // SAFETY: both locks are held.
        unsafe { self.with_place(execute_all) };
        self.counters.panics.set(state.panics);
        drop(guard);
    }

    /// Hands the outcomes of the batch over.
    ///
    /// # Safety
    ///
    /// 1. The caller holds the combiner's lock, and all requests of the batch are answered.
    pub(crate) unsafe fn deliver(&self, state: &State<D>) {
        for &(slot, _) in &state.batch {
            if slot != OWN {
                // SAFETY: the caller holds the lock, and the request is answered (1).
                unsafe { self.publications.deliver(slot) };
            }
        }
    }
}

/// A thread is a dedicated combiner until this is dropped.
pub(crate) struct Dedicated<'a>(&'a AtomicU32);

impl Drop for Dedicated<'_> {
    fn drop(&mut self) {
        // Relaxed: a hint.
        self.0.fetch_sub(1, Relaxed);
    }
}

/// How far to execute.
pub(crate) struct Target {
    pub(crate) end: u64,
    pub(crate) patience: Patience,
    /// The indexes of the caller's batch; empty if it has none.
    pub(crate) batch: Range<u64>,
    /// Pause at multiples of this index; 0 for never.
    pub(crate) pause: u64,
}

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Nothing: the thread belongs to another replica.
    None,
    /// Readers of the replica.
    Readers,
    /// Readers, and entries that are reserved and not filled.
    Entries,
}

/// Why executing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// The target.
    End,
    /// An entry that is not filled.
    Empty,
    /// Readers for which it may not wait.
    Readers,
    /// A multiple of [`Target::pause`].
    Pause,
}

impl Target {
    /// The end of the longest run from `at`.
    fn limit(&self, at: u64) -> u64 {
        let limit = self.end.min(at + RUN);
        match at.checked_div(self.pause) {
            Some(laps) => limit.min((laps + 1) * self.pause),
            None => limit,
        }
    }

    fn is_pause(&self, at: u64) -> bool {
        self.pause != 0 && at.is_multiple_of(self.pause)
    }
}

#[inline]
fn execute<D: Sequential>(data: &mut D, operation: &D::Write) -> Outcome<D> {
    // A panic leaves every replica in the same state, because writes are deterministic.
    catch_unwind(AssertUnwindSafe(|| data.write(operation)))
}
