//! Readers that announce quiescent states instead of bracketing their sections.
//!
//! A thread that holds a [`Qsbr`] is *online*: grace periods see it in one section that only the
//! quiescent states that it announces interrupt. Its sections cost nothing. The borrow checker
//! prevents references from living across a quiescent state: a section borrows the handle, and
//! [`Qsbr::quiescent`] takes it exclusively.
//!
//! An online thread must announce quiescent states often, and go [`offline`](Qsbr::offline) before
//! it sleeps.

use std::cell::Cell;

use crate::domain::{Domain, Guard, Pinned, Section};

/// A thread's promise to announce quiescent states. Created by
/// [`Domain::qsbr`](crate::Domain::qsbr).
///
/// ```
/// let domain = corewise_rcu::Domain::new();
/// let mut qsbr = domain.qsbr();
/// for _request in 0..3 {
///     let section = qsbr.section();
///     // ... read shared structures ...
///     # let _ = &section;
///     qsbr.quiescent();
/// }
/// qsbr.offline(|| std::thread::yield_now());
/// ```
#[derive(Debug)]
pub struct Qsbr<'d> {
    guard: Guard<'d>,
    is_offline: Cell<bool>,
}

/// A section of a [`Qsbr`] thread.
#[derive(Clone, Copy, Debug)]
pub struct QsbrGuard<'q> {
    guard: &'q Guard<'q>,
}

impl Domain {
    /// Makes the calling thread announce quiescent states.
    pub fn qsbr(&self) -> Qsbr<'_> {
        Qsbr {
            guard: self.pin(),
            is_offline: Cell::new(false),
        }
    }
}

impl Qsbr<'_> {
    /// Returns a section. Costs nothing.
    #[inline(always)]
    pub fn section(&self) -> QsbrGuard<'_> {
        QsbrGuard { guard: &self.guard }
    }

    /// Announces a quiescent state: grace periods that began before the call no longer wait for
    /// this thread. Wait-free: a plain store.
    ///
    /// Returns false, and announces nothing, if the thread holds a guard of
    /// [`Domain::pin`](crate::Domain::pin) or another handle of the same domain.
    #[inline]
    pub fn quiescent(&mut self) -> bool {
        // SAFETY: the guard belongs to this thread and is in a section. It is borrowed exclusively,
        // and so is everything that a section of this handle has lent.
        unsafe { self.guard.reader().quiescent() }
    }

    /// Runs `sleep` while this handle holds up no grace period. The handle is online again
    /// afterwards, also if `sleep` panics.
    ///
    /// The handle keeps its place among the [`MAX_NESTED`](crate::MAX_NESTED) sections of the
    /// thread: guards that `sleep` leaves alive cannot prevent it from coming back online.
    ///
    /// # Panics
    ///
    /// If the thread already has [`MAX_NESTED`](crate::MAX_NESTED) / 2 handles of the domain
    /// offline, each in the `sleep` of the one before; `sleep` is not called then.
    pub fn offline<R>(&mut self, sleep: impl FnOnce() -> R) -> R {
        /// Goes online when dropped.
        struct Online<'q, 'd>(&'q Qsbr<'d>);
        impl Drop for Online<'_, '_> {
            fn drop(&mut self) {
                self.0.go_online();
            }
        }
        // SAFETY: the guard belongs to this thread and is in a section. The handle is borrowed
        // exclusively until it is online, so nothing that its section protects is used before.
        unsafe { self.guard.reader().pause() };
        self.is_offline.set(true);
        let _online = Online(self);
        sleep()
    }

    fn go_online(&self) {
        self.is_offline.set(false);
        // SAFETY: the guard belongs to this thread (1). This is called once for each `pause`: by
        // `offline`, or by `drop` if `offline` does not end (2).
        unsafe { self.guard.reader().resume() };
    }

    /// Like [`Domain::synchronize`](crate::Domain::synchronize), with this thread offline.
    ///
    /// # Errors
    ///
    /// [`Pinned`] if the thread is in other sections of the domain.
    pub fn synchronize(&mut self) -> Result<(), Pinned> {
        let shared = self.guard.shared();
        self.offline(|| shared.synchronize())
    }
}

impl Drop for Qsbr<'_> {
    /// The handle is offline here only if the process exits in `offline`: exit runs the destructors
    /// of thread-locals while `offline` is on the stack. The guard is about to leave a section, so
    /// it must be in one.
    fn drop(&mut self) {
        if self.is_offline.get() {
            self.go_online();
        }
    }
}

// SAFETY: the inner guard is a section, and lives as long as this one.
unsafe impl Section for QsbrGuard<'_> {
    #[inline(always)]
    fn domain_id(&self) -> u64 {
        self.guard.domain_id()
    }
    #[inline(always)]
    fn reader_index(&self) -> usize {
        self.guard.reader_index()
    }
}
