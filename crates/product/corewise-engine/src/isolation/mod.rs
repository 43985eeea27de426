//! Transactions over several keys, above any [engine](crate::Engine).
//!
//! An engine executes operations on one key. This module makes several operations, on any keys, one
//! atomic step (`MULTI`, `MSET`, `RENAME` of Redis), and tells a client whether keys have changed
//! (`WATCH`). Every thread that uses an engine together with it has a [`Member`], and submits its
//! operations through that.
//!
//! ```text
//!   batch ──▶ gate ──open──▶ engine                      no transaction runs, no key is watched
//!               │
//!               └─guarded──▶ lock the stripe ──▶ engine, one operation ──▶ note the change
//!
//!   transaction ──▶ guard the gate, wait for batches inside ──▶ lock all its stripes, ascending
//!               ──▶ engine, all its operations ──▶ unlock
//! ```
//!
//! The *gate* says whether operations must lock. While it is open, a batch pays for a store to a
//! line of its thread's, a load of a line that is seldom written, and another store. A transaction
//! guards the gate, waits until no batch that entered before is inside (`gate` explains how), and
//! from then on every operation locks the *stripe* of its key, one of [`STRIPES`] locks. So
//! transactions on different keys run side by side. The gate stays guarded for [`LINGER_MS`] after
//! the last transaction, so that clients that send many wait for batches seldom.
//!
//! # Guarantees
//!
//! 1. *Transactions are linearizable together with all operations on single keys, reads included.*
//!    A transaction holds the stripes of its keys from before its first operation until after its
//!    last. An operation of another member executes before or after it, never in between.
//! 2. *Watches.* [`Watches::are_unchanged`] answers false if one of the keys was written, deleted,
//!    evicted or flushed, or expired, since it was watched. A write of the same value counts. An
//!    operation that did not change the item (a refused store, a plain read) does not count.
//! 3. *No deadlock.* A transaction locks its stripes in ascending order and holds nothing else. An
//!    operation locks one stripe. A member inside the gate waits for no transaction.
//! 4. *Progress.* While the gate is open, operations wait for no transaction and keep the progress
//!    guarantees of the engine. Otherwise an operation waits for transactions on its stripe. A
//!    transaction waits for the batches of other members that are inside.
//! 5. *Panics.* A panic in a transaction, in an update or in a sink releases the stripes and leaves
//!    the gate. The operations that were executed before stay.
//!
//! Not covered: memory and time. An item may be evicted at any moment, also between two operations
//! of a transaction. A transaction sees items expire on the clock of its caller, which should pass
//! the same time to all its operations. A flush that was ordered for a later time
//! ([`Engine::flush_all`](crate::Engine::flush_all)) may become due in the middle of one. A flush
//! at once is atomic if its caller holds [all stripes](Isolation::begin_all).
//!
//! ```
//! use corewise_engine::engines::relativistic::{Config, Relativistic};
//! use corewise_engine::isolation::{Isolation, Watches};
//! use corewise_engine::{TimeSource, Engine, ManualClock};
//! use corewise_ops::{Change, Deadline, ItemView, Update, Updated};
//! use std::sync::Arc;
//!
//! struct Write(&'static [u8]);
//! impl Update for Write {
//!     fn update(&mut self, _: Option<&ItemView<'_>>) -> Change<'_> {
//!         Change::Write { value: self.0, client_flags: 0, deadline: Deadline::NEVER }
//!     }
//! }
//!
//! let now = ManualClock::new(1_700_000_000).now();
//! let mut session = Arc::new(Relativistic::new(Config::default())).session();
//! let isolation = Arc::new(Isolation::new());
//! let mut member = isolation.member();
//!
//! let mut watches = Watches::new(&isolation, now);
//! watches.add(&mut session, now, b"a");
//!
//! // Both keys change at once for the other members.
//! let mut transaction = isolation.begin(now, [&b"a"[..], b"b"]);
//! assert!(watches.are_unchanged(&transaction, &mut session, now));
//! for (key, value) in [(b"a", b"1"), (b"b", b"2")] {
//!     let updated = transaction.update(&mut session, now, key, &mut Write(value));
//!     assert_eq!(updated, Updated::Done);
//! }
//! assert!(!watches.are_unchanged(&transaction, &mut session, now));
//! drop(transaction);
//!
//! assert_eq!(member.update(&mut session, now, b"a", &mut Write(b"3")), Updated::Done);
//! ```

mod changes;
mod gate;
#[cfg(test)]
mod models;
#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests;
mod watches;

use crate::engine::Session;
use crate::reservation::Reservation;
use changes::{NotingSink, NotingUpdate};
use corewise_atomic::lock::{Mutex, MutexGuard};
use corewise_atomic::{Backoff, CachePadded, mutant};
use corewise_ops::{Flow, Now, Op, ReplySink, Update, Updated};
use gate::{Gate, Inside};
use std::hash::BuildHasher;
use std::slice;
use std::sync::Arc;
use watches::Watch;
pub use watches::Watches;

/// Locks that operations and transactions take while the gate is guarded.
pub const STRIPES: usize = if MODELLED { 2 } else { 1024 };
/// Whether a model checker runs the module. It needs the same stripes in every run.
const MODELLED: bool = cfg!(any(corewise_loom, corewise_shuttle));
/// How long the gate stays guarded after the last transaction or watch, in milliseconds.
pub const LINGER_MS: u64 = 20;

/// Excludes operations on the keys with certain hashes from one another.
#[derive(Default)]
struct KeyStripe {
    /// The watches of these keys.
    watches: Vec<Watch>,
}

impl KeyStripe {
    /// Tells the watches of the key that it has changed.
    #[inline]
    fn note_change(&self, key: &[u8]) {
        if mutant!("misses_a_write") {
            return;
        }
        self.watches
            .iter()
            .filter(|watch| watch.is_of(key))
            .for_each(Watch::set_changed);
    }
}

/// The state that all threads share which use one engine. See the [module](self).
pub struct Isolation {
    gate: Gate,
    stripes: Box<[Mutex<KeyStripe>]>,
    hasher: foldhash::fast::RandomState,
}

impl Default for Isolation {
    fn default() -> Self {
        Self::new()
    }
}

impl Isolation {
    /// Creates the state for one engine, without members.
    #[must_use]
    pub fn new() -> Self {
        Self {
            gate: Gate::new(),
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            hasher: foldhash::fast::RandomState::default(),
        }
    }

    /// Registers a thread that will submit operations.
    ///
    /// Waits for a transaction that is waiting for other members.
    #[must_use]
    pub fn member(self: &Arc<Self>) -> Member {
        Member {
            inside: self.gate.register(),
            isolation: Arc::clone(self),
            stays_inside: false,
        }
    }

    #[inline]
    fn stripe_of(&self, key: &[u8]) -> usize {
        if MODELLED {
            return key.first().map_or(0, |byte| usize::from(*byte)) % STRIPES;
        }
        // The engines use other hash functions, so keys of one bucket do not share a stripe.
        (self.hasher.hash_one(key) >> 32) as usize & (STRIPES - 1)
    }

    #[inline]
    fn lock(&self, key: &[u8]) -> MutexGuard<'_, KeyStripe> {
        self.stripes[self.stripe_of(key)].lock()
    }

    /// Begins a transaction on these keys.
    ///
    /// Waits for other members as guarantee 4 of the [module](self) says. Takes time in proportion
    /// to the number of keys and members. The calling thread must have no operation pending and no
    /// other transaction, or it waits for itself.
    pub fn begin<K: AsRef<[u8]>>(
        &self,
        now: Now,
        keys: impl IntoIterator<Item = K>,
    ) -> IsolatedTransaction<'_> {
        let keys = keys.into_iter();
        let mut stripes: Vec<usize> = keys.map(|key| self.stripe_of(key.as_ref())).collect();
        if mutant!("locks_in_the_order_of_keys") {
            let mut seen = [false; STRIPES];
            stripes.retain(|stripe| !std::mem::replace(&mut seen[*stripe], true));
        } else {
            stripes.sort_unstable();
            stripes.dedup();
        }
        self.begin_with(now, stripes)
    }

    /// Begins a transaction on all keys.
    ///
    /// As [`begin`](Self::begin), and takes time in proportion to [`STRIPES`].
    pub fn begin_all(&self, now: Now) -> IsolatedTransaction<'_> {
        self.begin_with(now, (0..STRIPES).collect())
    }

    fn begin_with(&self, now: Now, stripes: Vec<usize>) -> IsolatedTransaction<'_> {
        self.gate.guard();
        // From here on `Drop` leaves the gate, also if a lock panics.
        let mut transaction = IsolatedTransaction {
            isolation: self,
            locked: Vec::with_capacity(stripes.len()),
            now,
        };
        for stripe in stripes {
            let guard = self.stripes[stripe].lock();
            transaction.locked.push((stripe, guard));
        }
        transaction
    }
}

/// The result of [`Member::run`]: what has become of its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunCounts {
    /// The number of operations that were accepted, from the first on.
    pub accepted: usize,
    /// The number of operations that were accepted and have not completed.
    pub pending: usize,
}

/// One thread's handle.
pub struct Member {
    isolation: Arc<Isolation>,
    /// Whether the thread is inside the gate.
    inside: Arc<CachePadded<gate::Flag>>,
    /// It stays inside until the operations that are pending have completed.
    stays_inside: bool,
}

impl Member {
    /// Enters the gate; `None` if operations must lock their stripes.
    #[inline]
    fn enter(&self) -> Option<Inside<'_>> {
        if self.stays_inside {
            return Some(Inside::of(&self.inside));
        }
        self.isolation.gate.enter(&self.inside)
    }

    /// [Submits](Session::submit) operations, and delivers completions once.
    ///
    /// While operations are pending, repeat the call with the rest of the operations, or none. Once
    /// a transaction waits for this thread, none is accepted until nothing is pending.
    #[inline]
    pub fn run<S: Session, K: ReplySink>(
        &mut self,
        session: &mut S,
        now: Now,
        ops: &[Op<'_>],
        sink: &mut K,
    ) -> RunCounts {
        let Some(inside) = self.enter() else {
            return RunCounts {
                accepted: self.run_guarded(session, now, ops, sink),
                pending: 0,
            };
        };
        let waits = self.stays_inside && self.isolation.gate.is_wanted();
        let accepted = if waits && !mutant!("submits_behind_gate") {
            0
        } else {
            session.submit(now, ops, sink)
        };
        let pending = session.poll(now, sink);
        let stays_inside = pending > 0;
        if stays_inside {
            std::mem::forget(inside);
        } else {
            drop(inside);
        }
        self.stays_inside = stays_inside;
        RunCounts { accepted, pending }
    }

    /// Executes operations one by one, each with its stripe locked.
    #[cold]
    fn run_guarded<S: Session, K: ReplySink>(
        &mut self,
        session: &mut S,
        now: Now,
        ops: &[Op<'_>],
        sink: &mut K,
    ) -> usize {
        let mut accepted = 0;
        for op in ops {
            let stripe = self.isolation.lock(op.key);
            accepted += 1;
            if execute(Some(&stripe), session, now, op, sink) == Flow::Pause {
                break;
            }
        }
        self.isolation.gate.open_if_unused(now);
        accepted
    }

    /// Executes one operation. No operation may be pending.
    pub fn run_one<S: Session, K: ReplySink>(
        &mut self,
        session: &mut S,
        now: Now,
        op: &Op<'_>,
        sink: &mut K,
    ) {
        let progress = self.run(session, now, slice::from_ref(op), sink);
        debug_assert_eq!(progress.accepted, 1, "nothing is pending");
        let mut backoff = Backoff::new();
        while self.stays_inside {
            backoff.snooze();
            self.run(session, now, &[], sink);
        }
    }

    /// [Submits](Session::submit_reserved) a store whose value was received in place, and waits for
    /// its completion. No operation may be pending.
    pub fn run_reserved<S: Session, K: ReplySink>(
        &mut self,
        session: &mut S,
        now: Now,
        op: &Op<'_>,
        reservation: Reservation,
        sink: &mut K,
    ) {
        let inside = self.enter();
        let stripe = inside.is_none().then(|| self.isolation.lock(op.key));
        let mut noting = NotingSink::new(&op.verb, sink);
        let accepted = session.submit_reserved(now, op, reservation, &mut noting);
        debug_assert!(accepted, "nothing is pending");
        finish(session, now, &mut noting);
        if let Some(stripe) = stripe
            && noting.is_changed
        {
            stripe.note_change(op.key);
        }
    }

    /// Executes a change of one item: [`Session::update`].
    pub fn update<S: Session>(
        &mut self,
        session: &mut S,
        now: Now,
        key: &[u8],
        update: &mut dyn Update,
    ) -> Updated {
        if let Some(_inside) = self.enter() {
            return session.update(now, key, update);
        }
        let updated = {
            let stripe = self.isolation.lock(key);
            update_in(Some(&stripe), session, now, key, update)
        };
        self.isolation.gate.open_if_unused(now);
        updated
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.isolation.gate.unregister(&self.inside);
    }
}

/// Waits until the pending operations have completed.
fn finish<S: Session, K: ReplySink>(session: &mut S, now: Now, sink: &mut K) {
    let mut backoff = Backoff::new();
    while session.poll(now, sink) > 0 {
        backoff.snooze();
    }
}

/// Executes one operation whose stripe is locked.
fn execute<S: Session, K: ReplySink>(
    stripe: Option<&KeyStripe>,
    session: &mut S,
    now: Now,
    op: &Op<'_>,
    sink: &mut K,
) -> Flow {
    let mut noting = NotingSink::new(&op.verb, sink);
    let accepted = session.submit(now, slice::from_ref(op), &mut noting);
    debug_assert_eq!(accepted, 1, "nothing is pending");
    finish(session, now, &mut noting);
    if noting.is_changed
        && let Some(stripe) = stripe
    {
        stripe.note_change(op.key);
    }
    noting.flow
}

/// Executes a change of an item whose stripe is locked.
fn update_in<S: Session>(
    stripe: Option<&KeyStripe>,
    session: &mut S,
    now: Now,
    key: &[u8],
    update: &mut dyn Update,
) -> Updated {
    let mut noting = NotingUpdate::new(update);
    let updated = session.update(now, key, &mut noting);
    if noting.is_changed
        && updated == Updated::Done
        && let Some(stripe) = stripe
    {
        stripe.note_change(key);
    }
    updated
}

/// A running transaction: it ends when this is dropped.
#[must_use = "it ends when it is dropped"]
pub struct IsolatedTransaction<'i> {
    isolation: &'i Isolation,
    /// The stripes that are locked, ascending.
    locked: Vec<(usize, MutexGuard<'i, KeyStripe>)>,
    /// When it began.
    now: Now,
}

impl IsolatedTransaction<'_> {
    /// The locked stripe of a key.
    fn stripe(&self, key: &[u8]) -> Option<&KeyStripe> {
        let wanted = self.isolation.stripe_of(key);
        let at = self
            .locked
            .binary_search_by_key(&wanted, |(stripe, _)| *stripe);
        debug_assert!(at.is_ok(), "a key of the transaction");
        let (_, stripe) = self.locked.get(at.ok()?)?;
        Some(stripe)
    }

    /// Executes one operation on a key of the transaction. No operation may be pending.
    ///
    /// An operation on another key is executed, but is not part of the transaction, and a watch may
    /// miss it. Debug builds panic.
    pub fn run<S: Session, K: ReplySink>(
        &mut self,
        session: &mut S,
        now: Now,
        op: &Op<'_>,
        sink: &mut K,
    ) {
        let _ = execute(self.stripe(op.key), session, now, op, sink);
    }

    /// Executes operations in order, as [`run`](Self::run) executes each, whatever the sink
    /// answers.
    ///
    /// While none of the keys is watched, their cache misses overlap as in a batch.
    pub fn run_all<S: Session, K: ReplySink>(
        &mut self,
        session: &mut S,
        now: Now,
        ops: &[Op<'_>],
        sink: &mut K,
    ) {
        let is_watched =
            |(_, stripe): &(usize, MutexGuard<'_, KeyStripe>)| !stripe.watches.is_empty();
        if self.locked.iter().any(is_watched) {
            return ops
                .iter()
                .for_each(|op| self.run(session, now, op, &mut *sink));
        }
        let mut first = 0;
        let mut backoff = Backoff::new();
        loop {
            first += session.submit(now, &ops[first..], sink);
            if session.poll(now, sink) == 0 && first == ops.len() {
                return;
            }
            backoff.snooze();
        }
    }

    /// Executes a change of one item of the transaction: [`Session::update`]. For other keys see
    /// [`run`](Self::run).
    pub fn update<S: Session>(
        &mut self,
        session: &mut S,
        now: Now,
        key: &[u8],
        update: &mut dyn Update,
    ) -> Updated {
        update_in(self.stripe(key), session, now, key, update)
    }
}

impl Drop for IsolatedTransaction<'_> {
    fn drop(&mut self) {
        self.locked.clear();
        self.isolation.gate.leave(self.now);
    }
}
