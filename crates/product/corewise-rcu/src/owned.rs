//! Sections that belong to a value and not to a thread.
//!
//! 1. *Its own record.* An [`OwnedGuard`] claims a record of its domain and gives it back when it
//!    is dropped. No thread has the record at hand, so no section nests in that of the guard, and
//!    the value is the owner that the contracts of [`reader`](crate::reader) speak of.
//! 2. *Moving it.* Only the owner writes the record's word. Code that moves the guard to another
//!    thread synchronizes the two threads. So the thread that drops the guard reads the word as the
//!    former thread left it, and all accesses of the section happened before the store that leaves.
//! 3. *Entering* pairs with the heavy barrier on the thread that creates the guard. What that
//!    thread sees from then on, a thread that gets the guard from it sees too.
//! 4. *No sharing.* The guard is not `Sync`: two threads never use the record's index at once.
//! 5. *No owner's name.* The record names no thread as its owner. So a thread that is ending does
//!    not enter it (`DomainState::entered_reader_of`).

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use corewise_atomic::mutant;
use corewise_atomic::sync::Arc;

use crate::domain::{Domain, DomainState, Section};
use crate::reader::{Reader, RecordOwner};

/// A read-side critical section that may move to another thread, until dropped; returned by
/// [`Domain::pin_owned`].
///
/// It is `Send`, so a task may hold it over an `.await`. It is not `Sync`: one thread uses it at a
/// time.
///
/// ```
/// let domain = corewise_rcu::Domain::new();
/// let guard = domain.pin_owned();
/// std::thread::scope(|scope| {
///     scope.spawn(move || {
///         // ... read shared structures ...
///         drop(guard);
///     });
/// });
/// domain.synchronize();
/// ```
#[must_use = "the section ends when the guard is dropped"]
pub struct OwnedGuard<'d> {
    reader: &'d Reader,
    _not_sync: PhantomData<Cell<()>>,
}

impl Domain {
    /// Enters a read-side critical section that is not bound to the calling thread.
    ///
    /// Costs more than [`pin`](Self::pin), which takes two nanoseconds: it claims a record, with a
    /// read-modify-write and a short lock, after a search that is linear in the number of records.
    /// Lock-free but for that lock, which only reports of stalls take too. There are as
    /// many records as there were threads and owned guards at the same time; every grace period
    /// visits all of them, and they are freed with the domain.
    ///
    /// While the guard lives, no grace period that begins after it ends: a task that is not polled
    /// for long holds up reclamation, and is reported as a [`Stall`](crate::Stall) under the name
    /// of the thread that created the guard.
    ///
    /// The domain does not know which thread has the guard. [`synchronize`](Self::synchronize) and
    /// [`barrier`](Self::barrier) therefore do not panic beside it, as they do beside a guard of
    /// the calling thread: a thread that calls them while it holds the guard waits for itself.
    pub fn pin_owned(&self) -> OwnedGuard<'_> {
        OwnedGuard::enter(self.shared())
    }
}

impl<'d> OwnedGuard<'d> {
    fn enter(shared: &'d Arc<DomainState>) -> Self {
        let name = format!("an owned guard of {}", RecordOwner::current().name);
        // SAFETY: the registry is that of `shared`, and the `Arc` keeps the domain where it is (1).
        let reader = unsafe { shared.registry.claim(shared) };
        // Set before the section begins: see `DomainState::entered_reader_of`.
        *reader.owner.lock() = RecordOwner { name, thread: None };
        // SAFETY: the new guard owns the record, and this thread owns the guard (1).
        unsafe { reader.enter() };
        Self {
            reader,
            _not_sync: PhantomData,
        }
    }
}

impl Drop for OwnedGuard<'_> {
    fn drop(&mut self) {
        let registry = &self.reader.shared().registry;
        if mutant!("owned_given_back_first") {
            // SAFETY: none: the mistake is that the next owner may enter before this one has left.
            unsafe { registry.release(self.reader) };
        }
        // SAFETY: the guard owns the record and is in its section, and what the section protects
        // borrows the guard.
        unsafe { self.reader.leave() };
        if !mutant!("owned_given_back_first") {
            // SAFETY: the guard owned the record and does not use it afterwards. Its only section
            // has just ended. Nothing was deferred with the record: threads defer with their own.
            unsafe { registry.release(self.reader) };
        }
    }
}

impl fmt::Debug for OwnedGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnedGuard({})", self.reader.shared().name())
    }
}

// SAFETY: the record is in a section from the guard's creation to its drop. The guard is not
// `Sync`, and what moves it to another thread orders the accesses of the two (1). No thread and no
// other guard has the record meanwhile, and the registry hands it over with Release and Acquire
// (2).
unsafe impl Section for OwnedGuard<'_> {
    #[inline(always)]
    fn domain_id(&self) -> u64 {
        self.reader.shared().id
    }
    #[inline(always)]
    fn reader_index(&self) -> usize {
        self.reader.index
    }
    #[inline(always)]
    fn is_bound_to_thread(&self) -> bool {
        false
    }
}
