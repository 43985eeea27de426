//! Lock elision: sections of a lock run as hardware transactions, side by side, and take the lock
//! only if that fails.
//!
//! Sources: thesis ch. 4; \[Elision\] (Afek, Levy, Morrison, PODC 2014), for SLR and SCM.
//! [`policy`] has the policies and what they do after an abort; [`Rtm`] and [`Scripted`] are the
//! sources of transactions.
//!
//! ```
//! use corewise_locks::elide::{Elided, Rtm, SlrScm};
//! use corewise_locks::Mcs;
//! use std::sync::atomic::AtomicU64;
//!
//! // With transactions if the processor has them, otherwise with the lock.
//! let pair: Elided<[AtomicU64; 2], Mcs, SlrScm> =
//!     Elided::new(Default::default(), Rtm::detect().ok());
//! pair.run(|[one, other], tx| {
//!     tx.store(one, tx.load(one) + 1);
//!     tx.store(other, tx.load(other) + 1);
//! });
//! let both = pair.run(|[one, other], tx| (tx.load(one), tx.load(other)));
//! assert_eq!(both, (1, 1));
//! ```
//!
//! # Layout
//!
//! ```text
//! Elided: main lock, in its own line | auxiliary MCS lock, in its own line | data
//!         counts: elsewhere, a line for each thread
//! ElidedParts: for each part, main lock | auxiliary MCS lock; data; counts of all parts as above
//! ```
//!
//! # A section
//!
//! 1. If the policy reads the lock at begin, the thread waits until the lock is free, for at most
//!    64 yields.
//! 2. It attempts a transaction. If that commits, the section is done.
//! 3. Otherwise the [policy] decides: again, again with the auxiliary lock, or the main lock.
//! 4. Under the main lock the same closure runs once more. The auxiliary lock is unlocked last.
//!
//! A thread waits and counts outside of transactions only. It takes the auxiliary lock before the
//! main lock, so threads do not wait in a circle.
//!
//! # Guarantees
//!
//! 1. *Atomicity.* Sections of one lock take effect one after the other, as far as they access
//!    shared data by [`Tx`] (with [`Rtm`]: by any means).
//! 2. *Once.* A closure may run several times, but only the effects of its last run remain, on
//!    data that is accessed by `Tx`. It should have no other effects.
//! 3. *Progress.* Blocking. A section makes at most `ALONE + AIDED` attempts, plus 64 after which
//!    the lock was held; then it takes the lock. So threads that abort each other do not do so for
//!    ever (no livelock).
//! 4. *No poison.* A section that panics in a transaction panics again under the lock, which is
//!    then unlocked.
//! 5. *No recursion.* A section must not run a section of the same lock; it would wait for ever.
//!    Sections of other locks may nest: with `Rtm` both become one transaction, provided that the
//!    inner lock is free; otherwise the outer one is aborted with [`Cause::Nested`], and takes its
//!    lock.
//!
//! # Which sections may use SLR, and why
//!
//! With [`Slr`] and [`SlrScm`] a transaction runs beside a section that holds the lock, and may see
//! that section's intermediate states (it is not *opaque*). It is not committed then, but until it
//! ends, it computes with them. So the closure of [`run`](Elided::run) gets `&T` with `T: Sync`,
//! and never `&mut T`: at every instant what it reads is what memory contains, so it behaves like a
//! thread that reads `T` without any lock at that instant, which safe code with `&T` may do.
//! It can be confused, and panic or loop; an index that is out of bounds panics, and a panic in a
//! transaction is an abort. Endless loops are aborted by the timer with `Rtm`; with [`Scripted`] a
//! load validates all earlier ones.
//!
//! Unsafe code in a section must therefore be sound without the lock. [`run_mut`](Elided::run_mut)
//! gives `&mut T`, and requires a policy that is [`Opaque`].

mod abort;
mod cop;
pub mod policy;
mod rtm;
mod scripted;
mod stats;
mod tx;

use std::cell::{Cell, UnsafeCell};

use corewise_atomic::{CachePadded, Slots, mutant, thread_local};

pub use abort::{Abort, Cause};
pub use cop::Cop;
pub use policy::{Opaque, Policy, Retry, Scm, ScmOpt, Slr, SlrScm, When};
pub use rtm::{NoTransactions, Rtm};
pub use scripted::{AttemptOutcome, Script, Scripted};
pub use stats::Counts;
pub use tx::{ReadTx, Transaction, Tx, TxAtomic};

use crate::wait::QueueWait;
use crate::{
    Clh, DistributedRw, Lock, Mcs, RawLock, RawSharedLock, Tas, Ticket, Ttas, TtasBackoff,
};
use abort::{CODE_BAD_PREFIX, CODE_NESTED};
use policy::{Budget, Next};
use stats::{Counters, Event};

/// Yields of a thread that waits until the lock is free before an attempt.
const WAIT_YIELDS: u32 = if cfg!(any(corewise_loom, corewise_shuttle)) {
    2
} else {
    64
};

/// A lock that transactions can read.
///
/// # Safety
///
/// An implementation guarantees:
///
/// 1. *Word.* From a read-modify-write or SeqCst fence that `lock` executes before it returns, to a
///    store in `unlock`, `is_locked` returns true on every thread that is ordered after the former
///    and before the latter; so does `is_write_locked`, if the lock is held for writing.
/// 2. `is_locked` makes no system call and accesses few cache lines.
pub unsafe trait Subscribe: RawLock {}

// SAFETY: the flag is set by the exchange in `lock` and cleared in `unlock` (1). One load (2).
unsafe impl Subscribe for Tas {}
// SAFETY: the flag is set by an exchange in `lock` and cleared in `unlock` (1). One load (2).
unsafe impl Subscribe for Ttas {}
// SAFETY: the flag is set by an exchange in `lock` and cleared in `unlock` (1). One load (2).
unsafe impl Subscribe for TtasBackoff {}
// SAFETY: `next` is ahead of `serving` from the increment in `lock` to the store in `unlock` (1).
// Two loads of one line (2).
unsafe impl Subscribe for Ticket {}
// SAFETY: `tail` is not null from the exchange in `lock` to the one in `unlock` (1). One load (2).
unsafe impl Subscribe for Clh {}
// SAFETY: `tail` is not null from the exchange in `lock` to the one in `unlock` (1). One load (2).
unsafe impl Subscribe for Mcs {}
// SAFETY: a writer's word is set before its fence, a reader's slot before the reader's (1). A load
// for each slot in use (2).
unsafe impl<const S: usize> Subscribe for DistributedRw<S> {}

/// How a transaction reads the lock.
#[doc(hidden)]
pub struct Subscription<'l, L> {
    pub(crate) lock: &'l L,
    is_locked: fn(&L) -> bool,
    pub(crate) at: When,
    /// Whether the transaction takes the lock and unlocks it before it commits.
    pub(crate) is_inside: bool,
}

impl<L> Subscription<'_, L> {
    #[inline(always)]
    pub(crate) fn is_locked(&self) -> bool {
        (self.is_locked)(self.lock)
    }
}

/// How the fallback takes the lock.
struct Side<L> {
    is_locked: fn(&L) -> bool,
    lock: fn(&L),
    unlock: unsafe fn(&L),
    /// Whether the section may take the lock inside of a transaction.
    is_exclusive: bool,
}

impl<L: RawLock> Side<L> {
    const WRITE: Self = Self {
        is_locked: L::is_locked,
        lock: L::lock,
        unlock: L::unlock,
        is_exclusive: true,
    };
}

impl<L: RawSharedLock> Side<L> {
    const READ: Self = Self {
        is_locked: L::is_write_locked,
        lock: L::lock_shared,
        unlock: L::unlock_shared,
        is_exclusive: false,
    };
}

/// What the attempts of an operation have in common.
trait Section<B> {
    type Output;
    /// Prepares an attempt; false if only the lock can help.
    fn prepare(&mut self) -> bool {
        true
    }
    /// Learns why an attempt was aborted.
    fn aborted(&mut self, _: Cause) {}
    /// Runs in a transaction, or under the lock without a back end.
    ///
    /// Not inlined: the transaction and the lock run the same code. With a copy for each, a page of
    /// code or constants that only the transaction uses is never mapped: the fault aborts the
    /// transaction before it maps anything, and the section under the lock does not touch it. (What
    /// only a planned section's completion uses still can be such a page.)
    fn run(&mut self, backend: Option<B>) -> Self::Output;
}

struct Closure<F>(F);

impl<B, R, F: FnMut(Option<B>) -> R> Section<B> for Closure<F> {
    type Output = R;

    #[inline(never)]
    fn run(&mut self, backend: Option<B>) -> R {
        (self.0)(backend)
    }
}

struct Planned<'a, O: Cop<T, B>, T, B: Transaction> {
    op: &'a O,
    data: &'a T,
    plan: Option<O::Plan>,
}

impl<O: Cop<T, B>, T, B: Transaction> Section<B> for Planned<'_, O, T, B> {
    type Output = O::Output;

    fn prepare(&mut self) -> bool {
        if self.plan.is_none() {
            self.plan = self.op.prefix(self.data);
        }
        self.plan.is_some()
    }

    fn aborted(&mut self, cause: Cause) {
        if cause == Cause::BadPrefix {
            self.plan = None;
        }
    }

    #[inline(never)]
    fn run(&mut self, backend: Option<B>) -> O::Output {
        let tx = Tx::new(backend);
        match &self.plan {
            Some(plan) if tx.is_transaction() => {
                if !self.op.verify(self.data, &tx, plan) {
                    tx.abort_if_transaction::<CODE_BAD_PREFIX>();
                }
                self.op.complete(self.data, &tx, plan)
            }
            _ => self.op.serial(self.data, &tx),
        }
    }
}

thread_local! {
    /// The number of `run_mut` sections that the thread is in.
    static EXCLUSIVE: Cell<u32> = const { Cell::new(0) };
}

/// A value whose sections run as transactions, and under a lock if they must.
///
/// `L` is the main lock, `P` the policy, and `B` the source of transactions; without one, every
/// section takes the lock. See the [module](self) for how it works and what it guarantees.
///
/// ```
/// use corewise_locks::elide::{Elided, Retry, Rtm};
/// use corewise_locks::Ttas;
///
/// let names: Elided<Vec<&str>, Ttas, Retry<5>> = Elided::new(vec![], Rtm::detect().ok());
/// names.run_mut(|names| names.push("Morrison"));
/// assert_eq!(names.into_inner(), ["Morrison"]);
/// ```
pub struct Elided<T, L, P, B = Rtm> {
    main: CachePadded<L>,
    aux: CachePadded<Lock<(), Mcs>>,
    backend: Option<B>,
    counters: Counters,
    policy: std::marker::PhantomData<fn() -> P>,
    data: UnsafeCell<T>,
}

// SAFETY: `run_mut` gives one thread at a time a reference, for which `T: Send` suffices; the
// methods that share `T` require `T: Sync`.
unsafe impl<T: Send, L: RawLock, P, B: Send + Sync> Sync for Elided<T, L, P, B> {}

impl<T, L: Subscribe, P: Policy, B: Transaction> Elided<T, L, P, B> {
    /// Creates a value with a source of transactions, or without.
    pub fn new(data: T, backend: Option<B>) -> Self {
        Self {
            main: CachePadded::new(L::new()),
            aux: CachePadded::new(Lock::new(())),
            backend,
            counters: Counters::new(),
            policy: std::marker::PhantomData,
            data: UnsafeCell::new(data),
        }
    }

    /// Runs a section that may read and write.
    ///
    /// # Panics
    ///
    /// If the section does, under the lock.
    #[inline]
    pub fn run<R>(&self, section: impl for<'t> Fn(&'t T, &Tx<'t, B>) -> R) -> R
    where
        T: Sync,
    {
        let data = self.data();
        let section = |backend| section(data, &Tx::new(backend));
        self.locks().drive(&Side::WRITE, Closure(section))
    }

    /// Runs a section that only reads. Its fallback holds the lock together with other readers.
    ///
    /// # Panics
    ///
    /// If the section does, under the lock.
    #[inline]
    pub fn read<R>(&self, section: impl for<'t> Fn(&'t T, &ReadTx<'t, B>) -> R) -> R
    where
        T: Sync,
        L: RawSharedLock,
    {
        let data = self.data();
        let section = |backend| section(data, &ReadTx::new(backend));
        self.locks().drive(&Side::READ, Closure(section))
    }

    /// Runs an operation whose prefix is not in the transaction; see [`Cop`].
    ///
    /// # Panics
    ///
    /// If the operation does, under the lock or in the prefix.
    pub fn cop<O: Cop<T, B>>(&self, op: &O) -> O::Output
    where
        T: Sync,
    {
        let planned = Planned {
            op,
            data: self.data(),
            plan: None,
        };
        self.locks().drive(&Side::WRITE, planned)
    }

    /// The counts since the lock was created.
    pub fn counts(&self) -> Counts {
        self.counters.sum()
    }

    /// The source of transactions.
    pub fn backend(&self) -> Option<B> {
        self.backend
    }

    /// Whether a thread holds the main lock. The answer may be outdated at once.
    pub fn is_locked(&self) -> bool {
        self.main.is_locked()
    }

    /// The value, without locking: the exclusive borrow replaces the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    /// Consumes the lock and returns the value.
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }

    #[inline(always)]
    fn data(&self) -> &T
    where
        T: Sync,
    {
        // SAFETY: an exclusive reference exists only in a section of `run_mut`: under the lock, or
        // in a transaction that is opaque, and so neither beside a section under the lock nor, by
        // atomicity, beside another transaction. On the same thread `drive` refuses to nest them.
        unsafe { &*self.data.get() }
    }

    /// The two locks, with what a section needs besides.
    #[inline(always)]
    fn locks(&self) -> LockPair<'_, L, P, B> {
        LockPair {
            main: &self.main,
            aux: &self.aux,
            backend: self.backend,
            counters: &self.counters,
            policy: std::marker::PhantomData,
        }
    }
}

/// A main lock and its auxiliary lock, borrowed for one section.
struct LockPair<'e, L, P, B> {
    main: &'e L,
    aux: &'e Lock<(), Mcs>,
    backend: Option<B>,
    counters: &'e Counters,
    policy: std::marker::PhantomData<fn() -> P>,
}

impl<L: Subscribe, P: Policy, B: Transaction> LockPair<'_, L, P, B> {
    /// Attempts, then takes the lock: the steps of the module's header.
    #[inline]
    fn drive<S: Section<B>>(&self, side: &Side<L>, mut section: S) -> S::Output {
        let Some(backend) = self.backend else {
            return self.run_locked(side, section);
        };
        if backend.is_active() {
            return self.run_nested(backend, side, section);
        }
        if const { P::ALONE + P::AIDED == 0 } {
            return self.run_locked(side, section);
        }
        let mut budget = Budget::new::<P>();
        let mut aux = None;
        loop {
            let is_free = P::READS_LOCK == When::Commit || self.wait_until_free(side);
            if !is_free || !section.prepare() {
                break;
            }
            self.counters.count(Event::Started);
            let subscription = Subscription {
                lock: self.main,
                is_locked: side.is_locked,
                at: P::READS_LOCK,
                is_inside: P::LOCKS_INSIDE && side.is_exclusive && aux.is_some(),
            };
            match backend.attempt(subscription, || section.run(Some(backend))) {
                Ok(output) => {
                    drop(aux);
                    self.counters.count(Event::Committed);
                    return output;
                }
                Err(abort) => {
                    self.counters.count(Event::Aborted(abort.cause));
                    section.aborted(abort.cause);
                    match budget.after(abort.cause) {
                        Next::Again => {}
                        Next::Wait if self.wait_until_free(side) => {}
                        Next::Aid => {
                            self.counters.count(Event::Aided);
                            let held = self.aux.lock();
                            if mutant!("scm_owner_inside_if") {
                                // Algorithm 4.6: an owner that did not have to wait is not
                                // recorded.
                                std::mem::forget(held);
                            } else {
                                aux = Some(held);
                            }
                        }
                        Next::Wait | Next::Lock => break,
                    }
                }
            }
        }
        let output = self.run_locked(side, section);
        drop(aux);
        output
    }

    /// Waits until the lock is free; false if that takes too long.
    #[inline]
    fn wait_until_free(&self, side: &Side<L>) -> bool {
        let mut wait = QueueWait::new();
        let mut yields = 0;
        while (side.is_locked)(self.main) {
            yields += u32::from(wait.pause());
            if yields >= WAIT_YIELDS {
                return false;
            }
        }
        true
    }

    #[cold]
    fn run_locked<S: Section<B>>(&self, side: &Side<L>, mut section: S) -> S::Output {
        self.counters.count(Event::Fallback);
        (side.lock)(self.main);
        let _held = HeldLock {
            lock: self.main,
            unlock: side.unlock,
        };
        if let Some(backend) = self.backend {
            backend.after_lock();
        }
        section.run(None)
    }

    /// Runs inside of the thread's transaction. Nothing here waits or counts: it would be undone.
    #[cold]
    fn run_nested<S: Section<B>>(&self, backend: B, side: &Side<L>, mut section: S) -> S::Output {
        let is_exclusive = EXCLUSIVE.with(Cell::get) != 0;
        let is_locked = || (side.is_locked)(self.main);
        let may_begin = B::NESTS && !is_exclusive && section.prepare();
        if !may_begin || P::READS_LOCK == When::Begin && is_locked() {
            backend.abort::<CODE_NESTED>();
        }
        let output = section.run(Some(backend));
        if P::READS_LOCK == When::Commit && is_locked() {
            backend.abort::<CODE_NESTED>();
        }
        output
    }
}

impl<T: Send, L: Subscribe, P: Opaque> Elided<T, L, P, Rtm> {
    /// Runs a section with exclusive access to the value.
    ///
    /// What the closure changes outside of `T` is undone with an aborted transaction, too.
    ///
    /// # Panics
    ///
    /// If the section does, under the lock.
    #[inline]
    pub fn run_mut<R>(&self, mut section: impl FnMut(&mut T) -> R) -> R {
        const { assert!(matches!(P::READS_LOCK, When::Begin)) };
        let _exclusive = Exclusive::new(self.backend);
        let section = |_| {
            // SAFETY: under the lock no other section runs; in a transaction no effect of another
            // section is seen, because it reads the lock at begin, nor do others see this one.
            // `Exclusive` keeps sections of the same thread away.
            section(unsafe { &mut *self.data.get() })
        };
        self.locks().drive(&Side::WRITE, Closure(section))
    }
}

/// A value of many parts, each with an elided lock: a section takes the lock of its part.
///
/// What sections of several parts share is not protected, in transactions and under the locks. The
/// locks are not padded, because there may be millions; the parts have their counts together.
///
/// ```
/// use corewise_locks::elide::{ElidedParts, Rtm, SlrScm};
/// use corewise_locks::Mcs;
/// use std::sync::atomic::AtomicU64;
///
/// let buckets: ElidedParts<[AtomicU64; 2], Mcs, SlrScm> =
///     ElidedParts::new(Default::default(), 2, Rtm::detect().ok());
/// buckets.run(1, |buckets, tx| tx.store(&buckets[1], tx.load(&buckets[1]) + 1));
/// assert_eq!(buckets.get()[1].load(std::sync::atomic::Ordering::Relaxed), 1);
/// ```
pub struct ElidedParts<T, L, P, B = Rtm> {
    locks: Slots<(L, Lock<(), Mcs>)>,
    backend: Option<B>,
    counters: Counters,
    policy: std::marker::PhantomData<fn() -> P>,
    data: T,
}

impl<T: Sync, L: Subscribe, P: Policy, B: Transaction> ElidedParts<T, L, P, B> {
    /// Creates a value of some parts with a source of transactions, or without.
    pub fn new(data: T, parts: usize, backend: Option<B>) -> Self {
        Self {
            locks: Slots::from_fn(parts, |_| (L::new(), Lock::new(()))),
            backend,
            counters: Counters::new(),
            policy: std::marker::PhantomData,
            data,
        }
    }

    /// Runs a section of a part that may read and write.
    ///
    /// # Panics
    ///
    /// If there is no such part, or the section panics under the lock.
    #[inline]
    pub fn run<R>(&self, part: usize, section: impl for<'t> Fn(&'t T, &Tx<'t, B>) -> R) -> R {
        let (main, aux) = &self.locks[part];
        let pair: LockPair<'_, L, P, B> = LockPair {
            main,
            aux,
            backend: self.backend,
            counters: &self.counters,
            policy: self.policy,
        };
        let section = |backend| section(&self.data, &Tx::new(backend));
        pair.drive(&Side::WRITE, Closure(section))
    }

    /// The value, outside of sections.
    pub fn get(&self) -> &T {
        &self.data
    }

    /// The counts of all parts together, since the value was created.
    pub fn counts(&self) -> Counts {
        self.counters.sum()
    }
}

/// The thread is in a `run_mut` section.
struct Exclusive;

impl Exclusive {
    fn new(backend: Option<Rtm>) -> Self {
        // In a transaction of another section, which may have a reference to the same value.
        if let Some(rtm) = backend
            && rtm.is_active()
        {
            rtm.abort::<CODE_NESTED>();
        }
        EXCLUSIVE.with(|number| number.set(number.get() + 1));
        Self
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        EXCLUSIVE.with(|number| number.set(number.get() - 1));
    }
}

/// A lock that is held until this is dropped.
struct HeldLock<'l, L> {
    lock: &'l L,
    unlock: unsafe fn(&L),
}

impl<L> Drop for HeldLock<'_, L> {
    fn drop(&mut self) {
        // SAFETY: locked by this thread when it was created (1). The lock is borrowed (2).
        unsafe { (self.unlock)(self.lock) };
    }
}

impl<T, L, P, B> std::fmt::Debug for Elided<T, L, P, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Elided(..)")
    }
}

impl<T, L, P, B> std::fmt::Debug for ElidedParts<T, L, P, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ElidedParts(..)")
    }
}
