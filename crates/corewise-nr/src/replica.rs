//! A replica: a copy of the structure, and how it executes the log.
//!
//! ```text
//!  Replica │ lock │ applied │   read by readers: one line          │ combiner's word │   own line
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
//! 2. *Completed covers visible*: a replica whose readers-writer lock is free has executed no entry
//!    that `completed` does not cover. A combiner executes entries of other combiners too, which
//!    are not complete for their own callers yet. A reader that sees their effects may return, and
//!    a later reader elsewhere must see them as well, so every advance raises `completed` before it
//!    unlocks. (The paper raises it only for the combiner's batch.)
//! 3. *Outcomes are delivered after `completed` covers them*, or the caller of a write could miss
//!    it in a read at another replica.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use corewise_atomic::cell::DataCell;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicU32, AtomicU64};
use corewise_atomic::{Backoff, CachePadded, Sleeps, mutant};

use crate::Sequential;
use crate::combining::Publications;
use crate::lock::{DistributedLock, WriteGuard};
use crate::log::{Content, FIRST, Log, Ring, Tail};

/// What executing an operation gave: a response, or what it panicked with.
pub(crate) type Outcome<D> = Result<<D as Sequential>::Response, Box<dyn Any + Send>>;

/// Entries that are executed under one acquisition of the readers-writer lock.
const RUN: u64 = 64;

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
    lock: DistributedLock,
    applied: AtomicU64,
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
                lock: DistributedLock::new(slots),
                applied: AtomicU64::new(0),
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
    pub(crate) fn lock(&self) -> &DistributedLock {
        &self.shared.lock
    }

    /// How far the replica has executed the log: one past the last entry; 0 if it is not live.
    #[inline]
    pub(crate) fn applied(&self) -> u64 {
        // Acquire: pairs with the Release in `set_applied`.
        self.shared.applied.load(Acquire)
    }

    pub(crate) fn set_applied(&self, applied: u64) {
        // Release: pairs with the Acquire in `applied`. With the scan in between, entries are
        // overwritten after they were executed here.
        self.shared.applied.store(applied, Release);
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
            // SAFETY: 1 and 2: the lock is held, and the replica is in this ring.
            let ring = unsafe { log.ring(state.log2) };
            let limit = target.limit(state.applied);
            let (run_end, content) = filled_run(ring, state.applied..limit);
            if run_end > state.applied {
                backoff.reset();
                // SAFETY: 1 and 2 are the caller's; the entries of the run are filled writes.
                if !unsafe { self.execute_run(log, ring, state, run_end, target) } {
                    return Reached::Readers;
                }
                if target.is_pause(run_end) {
                    return Reached::Pause;
                }
            } else if content == Content::Grow {
                state.log2 += 1;
                self.publish(log, state, run_end + 1, &(0..0));
                if target.is_pause(run_end + 1) {
                    return Reached::Pause;
                }
            } else if target.patience == Patience::Entries {
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
        log: &Log<D::Write>,
        ring: &Ring<D::Write>,
        state: &mut State<D>,
        end: u64,
        target: &Target,
    ) -> bool {
        let guard = match target.patience {
            Patience::None => match self.shared.lock.try_write() {
                Some(guard) => guard,
                None => return false,
            },
            Patience::Readers | Patience::Entries => self.shared.lock.write(),
        };
        let batch = &target.batch;
        let execute = |place: &mut Option<D>| {
            let data = place.as_mut().expect("a live replica has data");
            for index in state.applied..end {
                // SAFETY: the entry is filled, and this replica has not passed it (1).
                let outcome = unsafe { ring.with(index, |operation| execute(data, operation)) };
                if batch.contains(&index) {
                    let slot = state.batch[(index - batch.start) as usize].0;
                    // SAFETY: 1: the requests of the batch are answered here only, each once.
                    unsafe { self.answer((&mut state.own, &mut state.panics), slot, outcome) };
                } else {
                    state.panics += u64::from(outcome.is_err());
                    discard(outcome);
                }
            }
        };
        // SAFETY: both locks are held.
        unsafe { self.with_place(execute) };
        self.publish_and_unlock(log, state, end, guard, batch);
        true
    }

    /// Executes the next entry of the log, which is the caller's own write.
    ///
    /// # Safety
    ///
    /// 1. As for [`Replica::advance`].
    /// 2. The entry at `applied` is in this ring, and is a filled write.
    #[inline]
    pub(crate) unsafe fn execute_one(
        &self,
        log: &Log<D::Write>,
        ring: &Ring<D::Write>,
        state: &mut State<D>,
    ) -> Outcome<D> {
        let index = state.applied;
        let guard = self.shared.lock.write();
        let execute = |place: &mut Option<D>| {
            let data = place.as_mut().expect("a live replica has data");
            // SAFETY: 2, and this replica has not passed the entry (1).
            unsafe { ring.with(index, |operation| execute(data, operation)) }
        };
        // SAFETY: both locks are held.
        let outcome = unsafe { self.with_place(execute) };
        state.panics += u64::from(outcome.is_err());
        self.publish_and_unlock(log, state, index + 1, guard, &(index..index + 1));
        outcome
    }

    #[inline]
    fn publish_and_unlock(
        &self,
        log: &Log<D::Write>,
        state: &mut State<D>,
        end: u64,
        guard: WriteGuard<'_>,
        batch: &Range<u64>,
    ) {
        if mutant!("replica_completed_late") {
            state.applied = end;
            self.set_applied(end);
            drop(guard);
            log.complete(0, end);
        } else {
            self.publish(log, state, end, batch);
            drop(guard);
        }
    }

    /// Publishes that the replica has executed the log up to `end`. Before the readers-writer lock
    /// is unlocked: invariant 2.
    #[inline]
    fn publish(&self, log: &Log<D::Write>, state: &mut State<D>, end: u64, batch: &Range<u64>) {
        // Other replicas have completed what is before the own batch, as a rule. Without a batch,
        // they have completed everything.
        let guess = match batch.contains(&(end - 1)) {
            true => batch.start,
            false => log.completed(),
        };
        state.applied = end;
        self.counters.panics.set(state.panics);
        self.set_applied(end);
        log.complete(guess, end - u64::from(mutant!("replica_off_by_one")));
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
        // SAFETY: 1.
        unsafe { self.publications.answer(slot, outcome) };
        if mutant!("replica_done_first") {
            // SAFETY: 1; answered above.
            unsafe { self.publications.deliver(slot) };
        }
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
                // SAFETY: 1: the requests of the batch are answered here only, each once.
                unsafe { self.answer((&mut state.own, &mut state.panics), *slot, outcome) };
            }
        };
        // SAFETY: both locks are held.
        unsafe { self.with_place(execute_all) };
        self.counters.panics.set(state.panics);
        drop(guard);
    }

    /// Hands the outcomes of the batch over: invariant 3.
    ///
    /// # Safety
    ///
    /// 1. The caller holds the combiner's lock, and all requests of the batch are answered.
    pub(crate) unsafe fn deliver(&self, state: &State<D>) {
        if mutant!("replica_done_first") {
            return;
        }
        for &(slot, _) in &state.batch {
            if slot != OWN {
                // SAFETY: 1.
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

/// The end of the run of writes at the start of a range, and what ends it.
#[inline]
fn filled_run<W>(ring: &Ring<W>, range: Range<u64>) -> (u64, Content) {
    for index in range.clone() {
        let content = ring.content(index);
        if content != Content::Write {
            return (index, content);
        }
    }
    (range.end, Content::Write)
}

#[inline]
fn execute<D: Sequential>(data: &mut D, operation: &D::Write) -> Outcome<D> {
    // A panic leaves every replica in the same state, because writes are deterministic.
    catch_unwind(AssertUnwindSafe(|| data.write(operation)))
}

/// Drops a value of a user. A panic in its destructor must not harm the calling thread, to which
/// the value does not belong.
#[inline]
pub(crate) fn discard<T>(value: T) {
    if std::mem::needs_drop::<T>() {
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(value)));
        // What it panicked with may panic again when it is dropped, and only then is leaked.
        if let Err(payload) = dropped {
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(payload)));
            dropped.unwrap_or_else(std::mem::forget);
        }
    }
}
