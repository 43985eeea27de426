//! Transactions in software whose aborts follow a script, for tests.
//!
//! Each thread has a script: a sequence of outcomes for its next attempts, and the outcome of all
//! later ones. An attempt that is to commit is a real transaction, after NOrec (Dalessandro, Spear,
//! Scott, PPoPP 2010): it logs what it loads, buffers what it stores, and validates all it has
//! loaded after each load. It commits under one mutex, the *gate*: it checks the lock, validates,
//! and writes back in program order. A thread that has taken a lock passes the gate before its
//! section. So what a transaction of a processor guarantees holds here, too:
//!
//! 1. *Atomicity.* Under the gate the lock is free and all values that were loaded are in memory; a
//!    thread that takes the lock meanwhile waits at the gate until everything is written back.
//! 2. *Isolation.* Stores are buffered.
//! 3. *Opacity*, if the lock is read at begin: every load checks the lock under the gate.
//!
//! In destructors of thread-locals that run after the thread's script was dropped, every attempt is
//! aborted, so sections run under the lock.
//!
//! Only accesses by [`Tx`](super::Tx) take part. Aborts unwind the section, so they need
//! `panic = "unwind"`; the panic hook is not called. A destructor that runs as a section ends must
//! not access by `Tx`: if an access aborts while an abort unwinds, the process ends.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Release};
use corewise_atomic::sync::atomic::fence;
use corewise_atomic::{mutant, static_cell, thread_local};

use super::{Abort, Cause, Subscription, Transaction, TxAtomic, When};
use crate::RawLock;

/// The outcome of an attempt in a [script](Scripted::play).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// Commits, unless another thread prevents it.
    Commit,
    /// Aborts before the section runs.
    AbortAtBegin(Cause),
    /// Aborts at the access with this number, counted from 0; at commit if there are fewer.
    AbortAtAccess(u32, Cause),
    /// Aborts after the section.
    AbortAtCommit(Cause),
}

/// The back end for tests: software transactions that abort by script.
///
/// ```
/// use corewise_locks::elide::{AttemptOutcome, Cause, Elided, Retry, Scripted};
/// use corewise_locks::Ttas;
/// use std::sync::atomic::AtomicU64;
///
/// let count: Elided<AtomicU64, Ttas, Retry<3>, Scripted> =
///     Elided::new(AtomicU64::new(0), Some(Scripted::new()));
/// let conflict = AttemptOutcome::AbortAtCommit(Cause::Conflict);
/// let script = Scripted::play([conflict], AttemptOutcome::Commit);
/// count.run(|count, tx| tx.store(count, tx.load(count) + 1));
/// drop(script); // from now on every attempt commits
/// assert_eq!((count.counts().aborted_by(Cause::Conflict), count.counts().committed), (1, 1));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Scripted(());

/// The script is played until this is dropped; from then on every attempt commits.
#[must_use = "the script ends at once"]
pub struct Script {
    thread: PhantomData<*const ()>,
}

impl Drop for Script {
    fn drop(&mut self) {
        // An error means that the thread ends and has no script any more; so below.
        let _ = SESSION.try_with(|session| {
            let mut session = session.borrow_mut();
            session.script.clear();
            session.then = AttemptOutcome::Commit;
        });
    }
}

struct Session {
    script: VecDeque<AttemptOutcome>,
    then: AttemptOutcome,
    log: Option<Log>,
}

/// The open transaction of a thread.
struct Log {
    reads: Vec<Read>,
    writes: Vec<Write>,
    /// Accesses until the abort of the script, and its cause.
    abort_in: Option<(u32, Cause)>,
    /// The subscription, if each load checks the lock.
    lock: Option<Check>,
    /// An abort whose unwinding the section has caught.
    doomed: Option<Abort>,
}

/// A place whose address identifies it, the value as bits, and a function for its type.
struct Read {
    place: *const (),
    bits: u64,
    load: unsafe fn(*const ()) -> u64,
}

struct Write {
    place: *const (),
    bits: u64,
    store: unsafe fn(*const (), u64),
}

/// A subscription whose type is erased.
struct Check {
    lock: *const (),
    is_locked: unsafe fn(*const ()) -> bool,
}

/// The payload of the unwinding of an abort.
struct Signal(Abort);

thread_local! {
    static SESSION: RefCell<Session> = RefCell::new(Session {
        script: VecDeque::new(),
        then: AttemptOutcome::Commit,
        log: None,
    });
}

static_cell! {
    /// Serialises loads and commits of all transactions.
    static GATE: Mutex<()> = Mutex::new(());
}

/// # Safety
///
/// 1. The place is an `A` that lives.
unsafe fn load<A: TxAtomic>(place: *const ()) -> u64 {
    // SAFETY: the place is an atomic of this type that lives as long as the section (1).
    let atomic = unsafe { &*place.cast::<A>() };
    A::to_bits(atomic.get(Acquire)) // pairs with the Release in `store`
}

/// # Safety
///
/// 1. The place is an `A` that lives.
unsafe fn store<A: TxAtomic>(place: *const (), bits: u64) {
    // SAFETY: the place is an atomic of this type that lives as long as the section (1).
    let atomic = unsafe { &*place.cast::<A>() };
    atomic.set(A::of_bits(bits), Release); // pairs with the Acquire in `load`
}

/// # Safety
///
/// 1. The pointer is a subscription with a lock of this type, and both live.
unsafe fn check<L: RawLock>(lock: *const ()) -> bool {
    // SAFETY: the lock is of this type, and lives as long as the section (1).
    unsafe { (*lock.cast::<Subscription<'_, L>>()).is_locked() }
}

impl Scripted {
    /// The back end. It is always available.
    #[must_use]
    pub const fn new() -> Self {
        Self(())
    }

    /// Lets the next attempts of the calling thread end as `script` says, one after the other, and
    /// all later ones as `then`, until the result is dropped.
    pub fn play(script: impl IntoIterator<Item = AttemptOutcome>, then: AttemptOutcome) -> Script {
        let script = script.into_iter().collect();
        let _ = SESSION.try_with(|session| {
            let mut session = session.borrow_mut();
            session.script = script;
            session.then = then;
        });
        Script {
            thread: PhantomData,
        }
    }

    /// Attempts of the script that the calling thread has not made yet.
    #[must_use]
    pub fn outcomes_left() -> usize {
        SESSION
            .try_with(|session| session.borrow().script.len())
            .unwrap_or(0)
    }
}

impl Session {
    fn next(&mut self) -> AttemptOutcome {
        self.script.pop_front().unwrap_or(self.then)
    }
}

impl Log {
    fn is_valid(&self) -> bool {
        // SAFETY: what was loaded lives until the transaction ends (1 of `Transaction::load`).
        let is_unchanged = |read: &Read| unsafe { (read.load)(read.place) } == read.bits;
        self.reads.iter().all(is_unchanged)
    }

    /// Counts an access; the abort, if the script has one here.
    fn access(&mut self) -> Result<(), Abort> {
        match &mut self.abort_in {
            Some((0, cause)) => Err((*cause).into()),
            Some((left, _)) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn buffered(&self, place: *const ()) -> Option<u64> {
        let write = self.writes.iter().rev().find(|write| write.place == place);
        write.map(|write| write.bits)
    }

    /// Loads, under the gate, and checks that all loads belong together.
    ///
    /// # Safety
    ///
    /// 1. The atomic lives until the transaction ends.
    unsafe fn load<A: TxAtomic>(&mut self, atomic: &A) -> Result<u64, Abort> {
        self.access()?;
        let place = std::ptr::from_ref(atomic).cast();
        if let Some(bits) = self.buffered(place) {
            return Ok(bits);
        }
        let _gate = GATE.lock();
        // SAFETY: the subscription and its lock live until the attempt ends (1).
        let is_locked = |check: &Check| unsafe { (check.is_locked)(check.lock) };
        let is_taken = self.lock.as_ref().is_some_and(is_locked);
        // Acquire: pairs with the Release of the unlock that the check may have seen.
        fence(Acquire);
        // SAFETY: the place is an atomic of type `A` that lives long enough (1).
        let bits = unsafe { load::<A>(place) };
        if is_taken || !self.is_valid() {
            return Err(Cause::Conflict.into());
        }
        self.reads.push(Read {
            place,
            bits,
            load: load::<A>,
        });
        Ok(bits)
    }

    /// Commits, or returns why not.
    fn commit<L: RawLock>(self, lock: &Subscription<'_, L>) -> Result<(), Abort> {
        let _gate = GATE.lock();
        let is_locked = if mutant!("slr_check_by_xtest") {
            // Algorithm 4.7 without line 4: being in a transaction says nothing about the lock.
            false
        } else {
            lock.is_locked() && !mutant!("slr_no_check")
        };
        // Acquire: pairs with the Release of the unlock that the check may have seen, so that the
        // loads below see what that section has stored.
        fence(Acquire);
        if is_locked {
            let cause = match lock.at {
                When::Commit => Cause::Locked,
                // A processor notices when the lock is taken.
                When::Begin => Cause::Conflict,
            };
            return Err(cause.into());
        }
        if !self.is_valid() {
            return Err(Cause::Conflict.into());
        }
        if lock.is_inside && !lock.lock.try_lock() {
            return Err(Cause::Locked.into());
        }
        for write in &self.writes {
            // SAFETY: what was stored to lives until the transaction ends (1 of
            // `Transaction::store`) (1).
            unsafe { (write.store)(write.place, write.bits) };
        }
        if lock.is_inside {
            // SAFETY: taken above by this thread.
            unsafe { lock.lock.unlock() };
        }
        Ok(())
    }
}

/// Runs `access` on the thread's log, and unwinds with the abort that it returns.
fn on_log<R>(access: impl FnOnce(&mut Log) -> Result<R, Abort>) -> R {
    let result = SESSION.with(|session| {
        // The log is taken out, so that a model checker can run another thread at the gate.
        let taken = session.borrow_mut().log.take();
        let mut log = taken.expect("the thread is in a transaction");
        let result = match log.doomed {
            Some(abort) => Err(abort),
            None => access(&mut log),
        };
        log.doomed = result.as_ref().err().copied();
        session.borrow_mut().log = Some(log);
        result
    });
    result.unwrap_or_else(|abort| resume_unwind(Box::new(Signal(abort))))
}

/// What the section's unwinding means.
fn abort_of(payload: Box<dyn std::any::Any + Send>) -> Abort {
    match payload.downcast::<Signal>() {
        Ok(signal) => signal.0,
        // The checker's own panics end the model.
        Err(panic) if cfg!(any(corewise_loom, corewise_shuttle)) => resume_unwind(panic),
        Err(_) => Cause::Panicked.into(),
    }
}

// SAFETY: as the module's header explains.
unsafe impl Transaction for Scripted {
    const NESTS: bool = false;

    fn attempt<L: RawLock, R>(
        self,
        lock: Subscription<'_, L>,
        section: impl FnOnce() -> R,
    ) -> Result<R, Abort> {
        let outcome = SESSION
            .try_with(|session| session.borrow_mut().next())
            .unwrap_or(AttemptOutcome::AbortAtBegin(Cause::Unspecified));
        if let AttemptOutcome::AbortAtBegin(cause) = outcome {
            return Err(cause.into());
        }
        if lock.at == When::Begin && lock.is_locked() {
            return Err(Cause::Locked.into());
        }
        let check = Check {
            lock: std::ptr::from_ref(&lock).cast(),
            is_locked: check::<L>,
        };
        let log = Log {
            reads: Vec::new(),
            writes: Vec::new(),
            abort_in: match outcome {
                AttemptOutcome::AbortAtAccess(number, cause) => Some((number, cause)),
                _ => None,
            },
            lock: (lock.at == When::Begin).then_some(check),
            doomed: None,
        };
        SESSION.with(|session| session.borrow_mut().log = Some(log));
        let result = catch_unwind(AssertUnwindSafe(section));
        let taken = SESSION.with(|session| session.borrow_mut().log.take());
        let log = taken.expect("the attempt opened it");
        let result = result.map_err(abort_of)?;
        if let Some(abort) = log.doomed {
            return Err(abort);
        }
        if let AttemptOutcome::AbortAtCommit(cause) | AttemptOutcome::AbortAtAccess(_, cause) =
            outcome
        {
            return Err(cause.into());
        }
        log.commit(&lock)?;
        Ok(result)
    }

    fn is_active(self) -> bool {
        SESSION
            .try_with(|session| session.borrow().log.is_some())
            .unwrap_or(false)
    }

    fn abort<const CODE: u8>(self) -> ! {
        let status = Cause::Explicit(CODE).status();
        on_log(|_| Err(Abort::from_status(status)))
    }

    unsafe fn load<A: TxAtomic>(self, atomic: &A) -> A::Value {
        // SAFETY: the atomic lives as long as the section (1).
        A::of_bits(on_log(|log| unsafe { log.load(atomic) }))
    }

    unsafe fn store<A: TxAtomic>(self, atomic: &A, value: A::Value) {
        on_log(|log| {
            log.access()?;
            log.writes.push(Write {
                place: std::ptr::from_ref(atomic).cast(),
                bits: A::to_bits(value),
                store: store::<A>,
            });
            Ok(())
        });
    }

    fn after_lock(self) {
        if !mutant!("scripted_no_quiesce") {
            drop(GATE.lock());
        }
    }
}
