//! Reads and writes of a replicated structure (\[NR\] §3.3 to 3.7).
//!
//! **A write** takes the combiner's lock of its replica, or posts the operation and waits. The
//! combiner collects a batch, reserves entries in the log, fills them, executes the log up to the
//! end of its batch, and hands the outcomes over. A thread that gets the lock while no request is
//! posted executes its write without a batch. Two combiners that append at the same time do not
//! wait for each other: the one that loses the exchange executes what the other has appended, which
//! it must do in any case, and tries again.
//!
//! **A read** looks whether the next entry of its replica is filled (see `replica.rs`), and if it
//! is not, executes at once. If it is, the reader takes the combiner's lock and executes the
//! missing entries; if another thread holds that lock, it waits. The paper's reader "just waits"
//! for a combiner, which may leave before it has come so far; here it tries the lock again.
//!
//! **A full log.** A combiner that finds no room executes all filled entries on its replica,
//! determines the new `min`, and then executes entries on the slowest replica, unless a thread
//! holds that replica's lock or reads there. Then the log grows; at its limit, the combiner backs
//! off. It holds no reserved entry meanwhile, and only tries locks, so combiners that help each
//! other do not deadlock. The combiner whose batch holds the *low mark* determines `min` ahead of
//! time, and helps replicas that are far behind.
//!
//! **A lone replica** that has executed the whole log skips it. A replica that joins is a copy of
//! it, made under its combiner's lock.
//!
//! Locks are taken in the order `changes`, combiner, `members`. `members` is held for a few
//! instructions.

use std::any::Any;
use std::panic::resume_unwind;

use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicU32};
use corewise_atomic::{Backoff, Sleeps, Slots, mutant};
use corewise_locks::FlagReadGuard;

use crate::Sequential;
use crate::combining::{CombinerGuard, Wait};
use crate::compare::Comparisons;
use crate::discard::{Drops, discard};
use crate::log::{Content, Log, Reserved, Ring, Tail};
use crate::registration::{Registry, SlotAddress};
use crate::replica::{CombinerState, OWN, Outcome, Patience, RUN, Reached, Replica, Target};

/// Waiting for the slowest replica at the limit of the log.
const SLEEPS: Sleeps = Sleeps {
    after_rounds: 24,
    shortest: std::time::Duration::from_micros(50),
    longest: std::time::Duration::from_millis(1),
};

/// Entries that a combiner prefetches before it appends a batch.
const PREFETCHED: u64 = 4;

/// How often a combiner looks for more requests if its batch is smaller than `min_batch`.
const MIN_BATCH_ROUNDS: usize = 4;

/// A sequential structure made concurrent: replicas that execute the same log of writes.
///
/// Any number of threads call [`read`](Self::read), [`read_with`](Self::read_with) and
/// [`write`](Self::write). A thread registers
/// itself at its first call, with the replica of its NUMA node if there is one, and leaves when it
/// ends. [`handle`](Self::handle) registers explicitly.
///
/// ```
/// use corewise_nr::{NodeReplicated, Sequential};
/// use std::collections::BTreeMap;
///
/// struct Dictionary(BTreeMap<u64, u64>);
///
/// impl Sequential for Dictionary {
///     type Read = u64;
///     type Write = (u64, u64);
///     type Response = Option<u64>;
///     fn read(&self, key: &u64) -> Option<u64> {
///         self.0.get(key).copied()
///     }
///     fn write(&mut self, &(key, value): &(u64, u64)) -> Option<u64> {
///         self.0.insert(key, value)
///     }
/// }
///
/// let dictionary = NodeReplicated::new(|_| Dictionary(BTreeMap::new()));
/// std::thread::scope(|scope| {
///     scope.spawn(|| dictionary.write((1, 10)));
///     scope.spawn(|| dictionary.write((2, 20)));
/// });
/// assert_eq!(dictionary.write((1, 11)), Some(10));
/// assert_eq!(dictionary.read(&1), Some(11));
/// assert_eq!(dictionary.read_with(|inner| inner.0.len()), 2);
/// ```
///
/// # Guarantees
///
/// 1. *Linearizability.* Every operation takes effect at one moment between its call and its
///    return.
/// 2. *Progress.* Blocking: a thread that is preempted while it combines delays the others of its
///    replica, and in the end all writers, once the log is full. Waiting threads park. A read runs
///    beside other reads of its replica and beside everything on other replicas.
/// 3. *Panics.* A write that panics does so in every replica, which keeps what the panic left; only
///    its caller gets the panic. The panic hook runs once for each replica, inside the operation,
///    so it must not call the structure: that panics (4), and the standard library aborts the
///    process at any panic in a hook, even one that the hook would catch. A panic in the destructor
///    of an operation or a response reaches the caller that owns the value; elsewhere it is
///    swallowed. If destructors of replicas panic when the structure is dropped, all run, and the
///    first panic goes on. A read that panics affects nothing else, but the hook runs inside it.
/// 4. *No nesting.* An operation, or a closure given to [`read_with`](Self::read_with), that calls
///    the structure that executes it gets a panic. It must not wait for a thread that uses the
///    structure either: that would be a deadlock. Destructors of operations run outside, and may
///    call the structure; so may those of responses, except at other replicas, which drop their
///    responses while they execute the log.
/// 5. *Unpark tokens.* A call that has parked leaves the thread's unpark token set: the next
///    [`park`](std::thread::park) may return at once, and no `unpark` of other code is lost.
///
/// # Cost
///
/// Every write is executed once for each replica, and memory is needed for each replica. A read
/// writes one cache line that only the calling thread uses. Logged operations are dropped when
/// their entry is used again, so they may live for a lap of the log: always fewer than twice
/// [`Builder::max_log`](crate::Builder::max_log), also while a replica is idle or read for long.
/// A thread that uses several structures in turn looks its registration up in a hash table each
/// time it changes between them; a [`handle`](Self::handle) needs no look-up.
pub struct NodeReplicated<D: Sequential> {
    pub(crate) log: Log<D::Write>,
    /// Made when needed, and kept until the structure is dropped.
    replicas: Slots<AtomicPtr<Replica<D>>>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) members: Mutex<Members>,
    /// Held while a replica joins or leaves.
    pub(crate) changes: Mutex<()>,
    /// Live replicas. Changes from one to two only under the combiner's lock of the one.
    pub(crate) live: AtomicU32,
    pub(crate) settings: Settings,
    pub(crate) comparisons: Comparisons,
}

// Sound because `Sequential` requires `Send` and `Sync` of everything in it; the raw pointers are
// owned boxes. `AtomicPtr` makes both automatic.

pub(crate) struct Members {
    /// The live replicas.
    pub(crate) live: Vec<usize>,
    /// The log2 of the capacity of the oldest ring that is not freed.
    pub(crate) oldest_ring: u32,
    /// The epoch of the replica at each index: no two replicas have the same one.
    pub(crate) epochs: Vec<u64>,
}

/// See [`Builder`](crate::Builder).
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) min_batch: usize,
    pub(crate) max_batch: usize,
    pub(crate) bypass_single: bool,
    pub(crate) compare_every: u64,
}

/// Values to drop when the thread holds no lock and is not inside an operation any more.
pub(crate) struct Garbage<W> {
    operations: Vec<W>,
    rings: Vec<Ring<W>>,
}

impl<W> Garbage<W> {
    #[inline]
    pub(crate) fn new() -> Self {
        Self {
            operations: Vec::new(),
            rings: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn discard(self) {
        if !self.operations.is_empty() || !self.rings.is_empty() {
            self.discard_all();
        }
    }

    #[cold]
    fn discard_all(self) {
        self.operations.into_iter().for_each(discard);
    }
}

/// A live replica and how far it has executed the log.
#[derive(Clone, Copy)]
pub(crate) struct Slowest {
    index: usize,
    applied: u64,
}

/// What became of an attempt to execute entries on another replica.
#[derive(PartialEq, Eq)]
pub(crate) enum Help {
    /// It has executed some.
    Advanced,
    /// Another thread holds its lock, or readers are in the way.
    Busy,
    /// It has left, or its next entry is not filled.
    Nothing,
}

/// A replica that is up to date for a read, and stays live meanwhile.
pub(crate) struct Reading<'a, D: Sequential> {
    replica: &'a Replica<D>,
    _guard: FlagReadGuard<'a>,
}

impl<D: Sequential> Reading<'_, D> {
    #[inline]
    pub(crate) fn with<R>(self, read: impl FnOnce(&D) -> R) -> R {
        // SAFETY: the lock is held, and `is_current` has found under it that the replica is live,
        // which ends under the lock.
        unsafe { self.replica.with_data(read) }
    }
}

impl<D: Sequential> NodeReplicated<D> {
    pub(crate) fn from_parts(
        log: Log<D::Write>,
        log2: u32,
        replicas: usize,
        registry: Arc<Registry>,
        settings: Settings,
    ) -> Self {
        Self {
            log,
            replicas: Slots::from_fn(replicas, |_| AtomicPtr::new(std::ptr::null_mut())),
            registry,
            members: Mutex::new(Members {
                live: Vec::new(),
                oldest_ring: log2,
                epochs: vec![0; replicas],
            }),
            changes: Mutex::new(()),
            live: AtomicU32::new(0),
            comparisons: Comparisons::default(),
            settings,
        }
    }

    pub(crate) fn max_replicas(&self) -> usize {
        self.replicas.len()
    }

    /// The replica at an index, live or not; `None` if none was ever there.
    #[inline]
    pub(crate) fn replica_at(&self, index: usize) -> Option<&Replica<D>> {
        // Acquire: pairs with the Release in `replica_or_new`.
        let replica = self.replicas[index].load(Acquire);
        // SAFETY: made in `replica_or_new`, and freed when the structure is dropped.
        unsafe { replica.as_ref() }
    }

    /// The replica at an index that threads have registered with.
    #[inline]
    pub(crate) fn replica(&self, index: usize) -> &Replica<D> {
        self.replica_at(index)
            .expect("threads register with replicas that exist")
    }

    /// The replica at an index, made if there was none. Under `changes`.
    pub(crate) fn replica_or_new(&self, index: usize) -> &Replica<D> {
        if let Some(replica) = self.replica_at(index) {
            return replica;
        }
        let replica = Replica::new(self.registry.slots(), self.settings.max_batch);
        let replica = Box::into_raw(Box::new(replica));
        // Release: pairs with the Acquire in `replica_at`.
        self.replicas[index].store(replica, Release);
        // SAFETY: made above, and freed when the structure is dropped.
        unsafe { &*replica }
    }

    /// Executes a read on a replica, which reflects every operation that returned before the call,
    /// and returns the response.
    ///
    /// Complexity and source: as [`read_with`](Self::read_with). Blocking.
    ///
    /// # Panics
    ///
    /// If the operation panics, and if the thread is inside an operation of this structure.
    #[inline]
    pub fn read(&self, operation: &D::Read) -> D::Response {
        self.read_with(|data| data.read(operation))
    }

    /// As [`read`](Self::read), with any closure: calls `f` with a replica's data, and returns its
    /// result. For reads that the structure has no operation for, and for those that would copy
    /// their operands or their result.
    ///
    /// Complexity: loads of two lines of the replica and of one entry of the log, and one write to
    /// a line of the calling thread, if the replica is up to date; else the log since it was is
    /// executed first. Blocking.
    ///
    /// # Panics
    ///
    /// If `f` panics, and if the thread is inside an operation of this structure.
    ///
    /// Source: \[NR\] §3.6.
    #[inline]
    pub fn read_with<R>(&self, f: impl FnOnce(&D) -> R) -> R {
        self.registry.enter(|| {
            loop {
                if let Some(reading) = self.try_read(Registry::place(&self.registry)) {
                    return reading.with(f);
                }
            }
        })
    }

    /// Executes a write on every replica, sooner or later, and returns the response.
    ///
    /// Complexity: a combined batch costs four transfers of shared cache lines and one for each
    /// operation; with a single replica it costs none. Blocking.
    ///
    /// # Panics
    ///
    /// With the operation's payload if the operation panics, and if the thread is inside an
    /// operation of this structure.
    ///
    /// Source: \[NR\] §3.3, 3.4.
    #[inline]
    pub fn write(&self, operation: D::Write) -> D::Response {
        let mut operation = operation;
        loop {
            let mut garbage = Garbage::new();
            let result = self
                .registry
                .enter(|| self.try_write(Registry::place(&self.registry), operation, &mut garbage));
            garbage.discard();
            match result {
                Ok(outcome) => return unwrap(outcome),
                // The replica has left: the thread's next place is at another one.
                Err(back) => operation = back,
            }
        }
    }

    /// Executes a write that often changes nothing, such as the removal of a key that may be
    /// absent: first as a read, by [`Sequential::write_as_read`], and as a write if that returns
    /// `None`.
    ///
    /// ```
    /// # use corewise_nr::{NodeReplicated, Sequential};
    /// struct Bits(u64);
    ///
    /// impl Sequential for Bits {
    ///     type Read = ();
    ///     type Write = u32; // a bit to set
    ///     type Response = bool; // whether it was set before
    ///     fn read(&self, (): &()) -> bool {
    ///         self.0 != 0
    ///     }
    ///     fn write(&mut self, &bit: &u32) -> bool {
    ///         let before = self.0;
    ///         self.0 |= 1 << bit;
    ///         before == self.0
    ///     }
    ///     fn write_as_read(&self, &bit: &u32) -> Option<bool> {
    ///         (self.0 >> bit & 1 == 1).then_some(true)
    ///     }
    /// }
    ///
    /// let bits = NodeReplicated::new(|_| Bits(0));
    /// assert!(!bits.write_or_read(5));
    /// assert!(bits.write_or_read(5)); // as a read
    /// assert_eq!(bits.stats().writes(), 1);
    /// ```
    ///
    /// Complexity: that of [`read`](Self::read), and then that of [`write`](Self::write) if the
    /// write changes something.
    ///
    /// # Panics
    ///
    /// As [`write`](Self::write).
    ///
    /// Source: \[NR\] practical considerations, *fake update operations*.
    #[inline]
    pub fn write_or_read(&self, operation: D::Write) -> D::Response {
        match self.read_with(|data| data.write_as_read(&operation)) {
            Some(response) => response,
            None => self.write(operation),
        }
    }

    /// Begins a read at a place. `None` if the replica has left.
    #[inline]
    pub(crate) fn try_read(&self, place: SlotAddress) -> Option<Reading<'_, D>> {
        let replica = self.replica(place.replica());
        self.read_if_current(replica, place, u64::MAX)
            .or_else(|| self.read_late(replica, place))
    }

    /// Begins a read if the replica is live, and has executed the log up to `needed` or is up to
    /// date.
    #[inline]
    fn read_if_current<'a>(
        &self,
        replica: &'a Replica<D>,
        place: SlotAddress,
        needed: u64,
    ) -> Option<Reading<'a, D>> {
        // SAFETY: the thread's place, inside one operation (1).
        let guard = replica.lock().read(unsafe { place.flag() });
        // SAFETY: `guard` holds the readers-writer lock for reading (1).
        let is_current = unsafe { replica.is_current(needed) };
        is_current.then(|| Reading {
            replica,
            _guard: guard,
        })
    }

    /// Begins a read at a replica that is not up to date, or has left.
    #[inline(never)]
    fn read_late<'a>(
        &'a self,
        replica: &'a Replica<D>,
        place: SlotAddress,
    ) -> Option<Reading<'a, D>> {
        let lock = &replica.publications.lock;
        let mut wait = Wait::new();
        // What the read has to see is below the tail. Loaded when needed: it costs a transfer.
        let mut needed = None;
        loop {
            if let Some(held) = lock.try_lock()
                && !mutant!("reader_only_waits")
            {
                // SAFETY: `held` is the guard of this replica's combiner's lock (1).
                let is_live = unsafe { self.refresh_held(replica, &held) };
                return is_live.then(|| {
                    // SAFETY: the thread's place, inside one operation (1).
                    let flag = unsafe { place.flag() };
                    // SAFETY: writers hold the combiner's lock (1). The next one acquires it after
                    // we have released it (2).
                    let guard = unsafe { replica.lock().read_excluding_writers(flag) };
                    Reading {
                        replica,
                        _guard: guard,
                    }
                });
            }
            let needed = *needed.get_or_insert_with(|| self.log.tail().index);
            wait.pause(lock);
            if let Some(reading) = self.read_if_current(replica, place, needed) {
                return Some(reading);
            }
        }
    }

    /// Brings a replica up to date. False if it has left.
    ///
    /// # Safety
    ///
    /// 1. `_held` is the combiner's lock of this replica.
    unsafe fn refresh_held(&self, replica: &Replica<D>, _held: &CombinerGuard<'_>) -> bool {
        replica.state.with_mut(|state| {
            // SAFETY: the state belongs to the holder (1).
            let state = unsafe { &mut *state };
            if state.is_live {
                // SAFETY: the caller holds the lock (1), and the replica is live.
                unsafe { self.catch_up(replica, state) };
            }
            state.is_live
        })
    }

    /// Executes the log up to an entry that is not filled, or up to its present end.
    ///
    /// # Safety
    ///
    /// 1. As for [`NodeReplicated::execute_log`].
    unsafe fn catch_up(&self, replica: &Replica<D>, state: &mut CombinerState<D>) {
        // As a rule this ends at an entry that is not filled, without a look at the tail.
        let end = state.applied + RUN;
        // SAFETY: the caller holds the lock of a live replica (1); no batch is in the log.
        let reached = unsafe { self.execute(replica, state, end, Patience::Readers, 0..0) };
        if reached == Reached::End {
            // SAFETY: the caller holds the lock of a live replica (1).
            unsafe { self.execute_log(replica, state, self.log.tail().index, Patience::Readers) };
        }
    }

    /// Writes at a place. Returns the operation if the replica has left.
    #[inline]
    pub(crate) fn try_write(
        &self,
        place: SlotAddress,
        operation: D::Write,
        garbage: &mut Garbage<D::Write>,
    ) -> Result<Outcome<D>, D::Write> {
        let replica = self.replica(place.replica());
        // A thread that does nothing else executes the replica's writes.
        if replica.has_dedicated_combiner() {
            return self.write_posted(replica, place, operation, garbage);
        }
        // Another thread combines: it, or the one after it, takes the write along.
        let Some(held) = replica.publications.lock.try_lock() else {
            return self.write_posted(replica, place, operation, garbage);
        };
        let result = replica.state.with_mut(|state| {
            // SAFETY: the lock is held, so the state is ours.
            let state = unsafe { &mut *state };
            // Nobody waits: a batch of one needs no collecting and no slots.
            if state.is_live
                && self.settings.min_batch == 1
                && !replica.publications.is_any_posted()
            {
                // SAFETY: the lock is held, and the replica is live.
                return Ok(unsafe { self.write_alone(replica, state, operation, garbage) });
            }
            // SAFETY: `held` is the guard of the combiner's lock, and the state is this replica's
            // (1).
            unsafe { self.combine(replica, state, Some(operation), garbage) }
                .expect("an outcome of the own operation")
        });
        drop(held);
        result
    }

    /// Posts a write, and waits for its outcome or combines.
    #[inline(never)]
    fn write_posted(
        &self,
        replica: &Replica<D>,
        place: SlotAddress,
        operation: D::Write,
        garbage: &mut Garbage<D::Write>,
    ) -> Result<Outcome<D>, D::Write> {
        let lead = |held: CombinerGuard<'_>, own: Option<D::Write>| {
            let result = replica.state.with_mut(|state| {
                // SAFETY: the lock is held, so the state is ours.
                let state = unsafe { &mut *state };
                // SAFETY: `held` is the guard of the combiner's lock, and the state is this
                // replica's (1).
                unsafe { self.combine(replica, state, own, garbage) }
            });
            drop(held);
            result
        };
        let is_patient = replica.has_dedicated_combiner();
        replica
            .publications
            .execute(place, operation, is_patient, lead)
    }

    /// Executes a write of the combiner while no request is posted: a batch of one.
    ///
    /// # Safety
    ///
    /// 1. As for [`NodeReplicated::combine`], and the replica is live.
    #[inline]
    unsafe fn write_alone(
        &self,
        replica: &Replica<D>,
        state: &mut CombinerState<D>,
        operation: D::Write,
        garbage: &mut Garbage<D::Write>,
    ) -> Outcome<D> {
        replica.counters.batches.add(1);
        replica.counters.writes.add(1);
        if self.is_alone(state) {
            replica.counters.direct_writes.add(1);
            // SAFETY: the caller holds the lock (1) of the only live replica.
            let outcome = unsafe { replica.execute_one_directly(state, &operation) };
            if std::mem::needs_drop::<D::Write>() {
                garbage.operations.push(operation);
            }
            return outcome;
        }
        // SAFETY: the caller holds the lock of a live replica (1), whose batch is empty.
        unsafe { self.append_one(replica, state, operation, garbage) }
    }

    /// Appends a write of the combiner where the filled entries end, and executes the log so far.
    /// There the exchange succeeds as a rule, and those entries are needed to execute them in any
    /// case; a load of the tail would cost one more transfer.
    ///
    /// # Safety
    ///
    /// 1. As for [`NodeReplicated::append`], with an empty batch.
    unsafe fn append_one(
        &self,
        replica: &Replica<D>,
        state: &mut CombinerState<D>,
        operation: D::Write,
        garbage: &mut Garbage<D::Write>,
    ) -> Outcome<D> {
        // SAFETY: the lock is held, and the replica is in this ring.
        let ring = unsafe { self.log.ring(state.log2) };
        let (end, content) = ring.filled_run(state.applied..state.applied + RUN);
        if content == Content::Empty && self.settings.compare_every == 0 {
            state.tail = Tail {
                index: end,
                log2: state.log2,
            };
            ring.prefetch_for_filling(end);
            let mut reserved = self.log.try_reserve(&mut state.tail, 1);
            if mutant!("append_executes_a_gap") && reserved == Reserved::Lost {
                reserved = self.log.try_reserve(&mut state.tail, 1);
            }
            if let Reserved::From(start) = reserved {
                // SAFETY: `try_reserve` has reserved the index in this ring, and it is filled here
                // only (1).
                let old = unsafe { ring.fill(start, operation) };
                if std::mem::needs_drop::<D::Write>() {
                    garbage.operations.extend(old);
                }
                // SAFETY: the caller holds the lock (1). `start` is `end`, so the entries from
                // `applied` on are filled writes of this ring.
                let outcome = unsafe { replica.execute_up_to(ring, state, start) };
                self.help_at_low_mark(replica, start..start + 1, state.tail, garbage);
                return outcome;
            }
        }
        // The guess was wrong: another replica has appended, the log is full or grows here, or
        // replicas are compared.
        // SAFETY: the caller holds the lock of a live replica (1); the batch is still empty.
        unsafe { self.append_one_late(replica, state, operation, garbage) }
    }

    /// As [`NodeReplicated::append_one`], after the attempt with a guess has failed.
    ///
    /// # Safety
    ///
    /// 1. As for [`NodeReplicated::append_one`].
    #[inline(never)]
    unsafe fn append_one_late(
        &self,
        replica: &Replica<D>,
        state: &mut CombinerState<D>,
        operation: D::Write,
        garbage: &mut Garbage<D::Write>,
    ) -> Outcome<D> {
        state.batch.push((OWN, Some(operation)));
        // SAFETY: the caller holds the lock of a live replica (1); the batch is its write.
        unsafe { self.append(replica, state, garbage) };
        state.batch.clear();
        state.own.take().expect("executed")
    }

    /// Executes one batch of posted requests, with the combiner's own if there is one.
    ///
    /// # Safety
    ///
    /// 1. The caller holds the combiner's lock, and `state` is the replica's.
    pub(crate) unsafe fn combine(
        &self,
        replica: &Replica<D>,
        state: &mut CombinerState<D>,
        own: Option<D::Write>,
        garbage: &mut Garbage<D::Write>,
    ) -> Option<Result<Outcome<D>, D::Write>> {
        // The replica has left: what was posted meanwhile goes back to its posters, who move to
        // another replica.
        if !state.is_live {
            if !mutant!("leave_without_bounce") {
                // SAFETY: the caller holds the lock (1); no request is taken.
                unsafe { replica.publications.bounce() };
            }
            return own.map(Err);
        }
        // SAFETY: the caller holds the lock (1), and the replica is live.
        unsafe { self.collect(replica, state, own) };
        // A waiting thread has got the lock after another combiner had answered it. The log is
        // executed all the same: the next read here needs it.
        if state.batch.is_empty() {
            // SAFETY: the caller holds the lock (1), and the replica is live.
            unsafe { self.catch_up(replica, state) };
            return None;
        }
        replica.counters.batches.add(1);
        replica.counters.writes.add(state.batch.len() as u64);
        if self.is_alone(state) {
            replica.counters.direct_writes.add(state.batch.len() as u64);
            // SAFETY: the caller holds the lock (1) of the only live replica.
            unsafe { replica.execute_directly(state, &mut garbage.operations) };
            // SAFETY: the caller holds the lock (1); the batch is answered.
            unsafe { replica.deliver(state) };
        } else {
            // SAFETY: the caller holds the lock of a live replica (1); the batch is collected.
            unsafe { self.append(replica, state, garbage) };
        }
        state.batch.clear();
        state.own.take().map(Ok)
    }

    /// Collects a batch.
    ///
    /// # Safety
    ///
    /// 1. As for [`NodeReplicated::combine`], and the replica is live.
    unsafe fn collect(
        &self,
        replica: &Replica<D>,
        state: &mut CombinerState<D>,
        own: Option<D::Write>,
    ) {
        debug_assert!(state.batch.is_empty());
        state.batch.extend(own.map(|own| (OWN, Some(own))));
        let mut backoff = Backoff::new();
        for round in 0..=MIN_BATCH_ROUNDS {
            let room = self.settings.max_batch - state.batch.len();
            let batch = &mut state.batch;
            let accept = |slot, request| batch.push((slot, Some(request)));
            // SAFETY: the caller holds the combiner's lock of this replica (1).
            state.next_slot = unsafe { replica.publications.take(state.next_slot, room, accept) };
            if state.batch.len() >= self.settings.min_batch || round == MIN_BATCH_ROUNDS {
                return;
            }
            // SAFETY: the caller holds the lock (1), and the batch is not in the log yet.
            unsafe { self.catch_up(replica, state) };
            backoff.snooze();
        }
    }

    /// Whether the log can be skipped: no other replica is live, and this one, whose combiner's
    /// lock is held, has executed all of it.
    #[inline]
    fn is_alone(&self, state: &CombinerState<D>) -> bool {
        // Acquire: pairs with the AcqRel of a replica that has left, so that the tail below covers
        // what it appended. That another one joins is excluded by the lock.
        self.settings.bypass_single
            && (self.live.load(Acquire) == 1 || mutant!("lone_misses_the_other"))
            && self.log.tail().index == state.applied
    }

    /// Appends the batch to the log and executes the log up to its end.
    ///
    /// # Safety
    ///
    /// 1. As for [`NodeReplicated::combine`]; the replica is live, and the batch collected.
    unsafe fn append(
        &self,
        replica: &Replica<D>,
        state: &mut CombinerState<D>,
        garbage: &mut Garbage<D::Write>,
    ) {
        let count = state.batch.len() as u64;
        // SAFETY: the lock is held, and the replica is in this ring.
        let ring = unsafe { self.log.ring(state.log2) };
        // The entries of other replicas since the last batch: fetched at the same time.
        (state.applied..state.applied + PREFETCHED).for_each(|index| ring.prefetch(index));
        Self::guess_tail(ring, state);
        // SAFETY: the caller holds the lock of a live replica (1).
        let start = unsafe { self.reserve(replica, state, count, garbage) };
        let end = start + count;
        // SAFETY: the lock is held, and the replica has not passed the entries reserved above.
        let ring = unsafe { self.log.ring(state.tail.log2) };
        for (index, (_, operation)) in (start..).zip(&mut state.batch) {
            let operation = operation.take().expect("collected");
            // SAFETY: reserved above; each index once.
            let old = unsafe { ring.fill(index, operation) };
            if std::mem::needs_drop::<D::Write>() {
                garbage.operations.extend(old);
            }
        }
        // SAFETY: the lock is held, and the replica is live; the batch is filled.
        unsafe { self.execute_batch(replica, state, start..end) };
        // SAFETY: the lock is held; the batch is answered.
        unsafe { replica.deliver(state) };
        self.help_at_low_mark(replica, start..end, state.tail, garbage);
    }

    /// Notes as the tail where the filled entries end: as in [`NodeReplicated::append_one`].
    #[inline]
    fn guess_tail(ring: &Ring<D::Write>, state: &mut CombinerState<D>) {
        let (end, content) = ring.filled_run(state.applied..state.applied + RUN);
        if content == Content::Empty && state.tail.index < end {
            state.tail = Tail {
                index: end,
                log2: state.log2,
            };
        }
    }

    /// Reserves entries for the batch.
    ///
    /// # Safety
    ///
    /// 1. As for [`NodeReplicated::append`].
    unsafe fn reserve(
        &self,
        replica: &Replica<D>,
        state: &mut CombinerState<D>,
        count: u64,
        garbage: &mut Garbage<D::Write>,
    ) -> u64 {
        // Fetched while the tail is.
        // SAFETY: the lock is held, and the replica is in this ring.
        unsafe { self.log.ring(state.log2) }.prefetch_for_filling(state.tail.index);
        match self.log.try_reserve(&mut state.tail, count) {
            Reserved::From(start) => start,
            // SAFETY: the caller holds the lock of a live replica (1).
            _ => unsafe { self.reserve_late(replica, state, count, garbage) },
        }
    }

    /// Reserves entries for the batch after the first attempt has failed.
    ///
    /// # Safety
    ///
    /// 1. As for [`NodeReplicated::append`].
    #[inline(never)]
    unsafe fn reserve_late(
        &self,
        replica: &Replica<D>,
        state: &mut CombinerState<D>,
        count: u64,
        garbage: &mut Garbage<D::Write>,
    ) -> u64 {
        let mut backoff = Backoff::new();
        loop {
            match self.log.try_reserve(&mut state.tail, count) {
                Reserved::From(start) => return start,
                Reserved::Lost => {
                    replica.counters.failed_appends.add(1);
                    // What the other combiner has appended is before the batch in any case. While
                    // it is executed, that combiner may append more at no cost.
                    let end = state.tail.index;
                    // SAFETY: the lock is held (1), and the batch is not in the log yet.
                    unsafe { self.execute_log(replica, state, end, Patience::Readers) };
                }
                Reserved::Full => {
                    replica.counters.full_log_waits.add(1);
                    // SAFETY: the caller holds the lock of a live replica (1).
                    if !unsafe { self.make_room(replica, state, count, garbage) } {
                        backoff.snooze_or_sleep(&SLEEPS);
                    }
                }
            }
        }
    }

    /// Makes room in a full log. False if the caller should wait before it tries again.
    ///
    /// # Safety
    ///
    /// 1. As for [`NodeReplicated::append`].
    unsafe fn make_room(
        &self,
        replica: &Replica<D>,
        state: &mut CombinerState<D>,
        count: u64,
        garbage: &mut Garbage<D::Write>,
    ) -> bool {
        // This replica must not be what keeps entries.
        // SAFETY: the lock is held (1), and the batch is not in the log yet.
        unsafe { self.execute_log(replica, state, self.log.tail().index, Patience::Readers) };
        let slowest = self.scan(garbage);
        if self.log.has_room(self.log.tail(), count + 1) {
            return true;
        }
        // No replica is behind this one, whose next entry is reserved and not filled yet.
        if slowest.applied == state.applied {
            return false;
        }
        match self.help(slowest.index) {
            Help::Advanced => {
                self.scan(garbage);
                true
            }
            // It may be read for long. Writers do not wait for that while the log can grow.
            Help::Busy => self.log.grow(),
            // It has left since the scan, or waits for an entry as well: both end soon.
            Help::Nothing => false,
        }
    }

    /// If the entries hold the low mark, helps replicas that are far behind, and determines `min`.
    #[inline]
    fn help_at_low_mark(
        &self,
        replica: &Replica<D>,
        entries: std::ops::Range<u64>,
        tail: Tail,
        garbage: &mut Garbage<D::Write>,
    ) {
        let room = tail.capacity() - 1 - self.settings.max_batch as u64;
        if entries.contains(&(self.log.min() + room)) {
            self.help_far_behind(replica, entries.end, tail, garbage);
        }
    }

    /// Helps replicas that are far behind `end`, and determines `min`.
    #[cold]
    fn help_far_behind(
        &self,
        replica: &Replica<D>,
        end: u64,
        tail: Tail,
        garbage: &mut Garbage<D::Write>,
    ) {
        let far = end.saturating_sub(tail.capacity() / 2);
        for index in 0..self.max_replicas() {
            let other = self.replica_at(index);
            let is_far = |other: &Replica<D>| (1..far).contains(&other.applied());
            if other.is_some_and(is_far) && !mutant!("idle_is_not_helped") {
                let helped = self.help(index) == Help::Advanced;
                replica.counters.helped.add(u64::from(helped));
            }
        }
        self.scan(garbage);
    }

    /// Determines `min`, and takes out rings that every live replica has passed.
    pub(crate) fn scan(&self, garbage: &mut Garbage<D::Write>) -> Slowest {
        let mut members = self.members.lock();
        let applied = |&index: &usize| (self.replica(index).applied(), index);
        let (applied, index) = members.live.iter().map(applied).min().expect("one is live");
        // SAFETY: `applied` acquires what each replica released; replicas join and leave under the
        // mutex, with a value that is not lower than another's; and calls are ordered by it.
        unsafe { self.log.set_min(applied) };
        // SAFETY: `set_min` was called above, and the mutex that orders these calls is still locked
        // (1).
        while let Some(ring) = unsafe { self.log.take_passed_ring(members.oldest_ring) } {
            members.oldest_ring += 1;
            garbage.rings.push(ring);
        }
        Slowest { index, applied }
    }

    /// Executes filled entries on another replica, if no thread holds its lock. Waits for nothing.
    pub(crate) fn help(&self, index: usize) -> Help {
        let replica = self.replica(index);
        let Some(_held) = replica.publications.lock.try_lock() else {
            return Help::Busy;
        };
        replica.state.with_mut(|state| {
            // SAFETY: the lock is held, so the state is ours.
            let state = unsafe { &mut *state };
            if !state.is_live {
                return Help::Nothing;
            }
            let before = state.applied;
            let end = self.log.tail().index;
            // SAFETY: the lock is held; live; no batch.
            let reached = unsafe { self.execute(replica, state, end, Patience::None, 0..0) };
            match reached {
                _ if state.applied > before => Help::Advanced,
                Reached::Readers => Help::Busy,
                _ => Help::Nothing,
            }
        })
    }

    /// Executes entries on a replica that are not a batch of the caller's.
    ///
    /// # Safety
    ///
    /// 1. The caller holds the combiner's lock, `state` is the replica's, and it is live.
    pub(crate) unsafe fn execute_log(
        &self,
        replica: &Replica<D>,
        state: &mut CombinerState<D>,
        end: u64,
        patience: Patience,
    ) {
        // SAFETY: the caller holds the lock of a live replica (1); there is no batch.
        unsafe { self.execute(replica, state, end, patience, 0..0) };
    }

    /// Executes the log up to the end of a batch.
    ///
    /// # Safety
    ///
    /// 1. As for [`Replica::advance`].
    unsafe fn execute_batch(
        &self,
        replica: &Replica<D>,
        state: &mut CombinerState<D>,
        batch: std::ops::Range<u64>,
    ) {
        // SAFETY: the caller holds the lock of a live replica (1), and has filled the batch.
        unsafe { self.execute(replica, state, batch.end, Patience::Entries, batch) };
    }

    /// # Safety
    ///
    /// 1. As for [`Replica::advance`].
    unsafe fn execute(
        &self,
        replica: &Replica<D>,
        state: &mut CombinerState<D>,
        end: u64,
        patience: Patience,
        batch: std::ops::Range<u64>,
    ) -> Reached {
        let target = Target {
            end,
            patience,
            batch,
            pause: self.settings.compare_every,
        };
        loop {
            // SAFETY: the conditions are the same, and the caller upholds them (1).
            let reached = unsafe { replica.advance(&self.log, state, &target) };
            if reached != Reached::Pause {
                return reached;
            }
            // SAFETY: the lock is held, and the replica is live.
            unsafe { self.compare(replica, state) };
        }
    }
}

/// The response, or the panic, of an operation.
#[inline]
pub(crate) fn unwrap<T>(outcome: Result<T, Box<dyn Any + Send>>) -> T {
    outcome.unwrap_or_else(|payload| resume_unwind(payload))
}

impl<D: Sequential> Drop for NodeReplicated<D> {
    fn drop(&mut self) {
        self.registry.close();
        let mut drops = Drops::default();
        for replica in self.replicas.iter() {
            // Relaxed: the structure is not shared.
            let replica = replica.load(Relaxed);
            if replica.is_null() {
                continue;
            }
            // SAFETY: made in `replica_or_new`, freed once.
            drops.drop(unsafe { Box::from_raw(replica) });
        }
        drops.finish();
    }
}
