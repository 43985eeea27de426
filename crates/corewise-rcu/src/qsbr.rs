//! Readers that announce quiescent states instead of bracketing their sections.
//!
//! A thread that holds a [`Qsbr`] is *online*: to grace periods it is in one section that never
//! ends, but for the quiescent states that it announces. Its sections cost nothing at all. What
//! keeps references from living across a quiescent state is the borrow checker: a section borrows
//! the handle, and [`Qsbr::quiescent`] wants it exclusively.
//!
//! An online thread must come by often, and go [`offline`](Qsbr::offline) before it sleeps.

use std::cell::Cell;

use crate::domain::{Guard, Pinned, Section};

/// A thread's promise to announce quiescent states; from [`Domain::qsbr`](crate::Domain::qsbr).
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

impl<'d> Qsbr<'d> {
    pub(crate) fn new(guard: Guard<'d>) -> Self {
        Self {
            guard,
            is_offline: Cell::new(false),
        }
    }

    /// A section. Costs nothing.
    #[inline(always)]
    pub fn section(&self) -> QsbrGuard<'_> {
        QsbrGuard { guard: &self.guard }
    }

    /// Announces a quiescent state: grace periods that began before now do not wait for this
    /// thread any more. Wait-free: a plain store.
    ///
    /// False, and nothing is announced, if the thread holds a guard of [`Domain::pin`](crate::Domain::pin) or another
    /// handle of the same domain.
    #[inline]
    pub fn quiescent(&mut self) -> bool {
        self.guard.reader().quiescent()
    }

    /// Runs `sleep` while no grace period waits for this thread, as far as this handle goes.
    /// Online again afterwards, also if `sleep` panics.
    ///
    /// The handle keeps its place among the [`MAX_NESTED`](crate::MAX_NESTED) sections of the
    /// thread: guards that `sleep` leaves alive cannot keep it from coming back online.
    ///
    /// # Panics
    ///
    /// If half as many handles of the thread and domain are offline already, each in the `sleep` of
    /// the one before; `sleep` is not called then.
    pub fn offline<R>(&mut self, sleep: impl FnOnce() -> R) -> R {
        /// Goes online when dropped.
        struct Online<'q, 'd>(&'q Qsbr<'d>);
        impl Drop for Online<'_, '_> {
            fn drop(&mut self) {
                self.0.go_online();
            }
        }
        self.guard.reader().pause();
        self.is_offline.set(true);
        let _online = Online(self);
        sleep()
    }

    fn go_online(&self) {
        self.is_offline.set(false);
        self.guard.reader().resume();
    }

    /// As [`Domain::synchronize`](crate::Domain::synchronize), with this thread offline.
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
    /// Offline only if the process exits in `offline`, which runs the destructors of thread-locals
    /// while that is on the stack: the guard is about to leave a section.
    fn drop(&mut self) {
        if self.is_offline.get() {
            self.go_online();
        }
    }
}

// SAFETY: the guard inside is one, and lives as long as this one.
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
