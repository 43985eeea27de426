//! The gate: whether operations must lock their stripes.
//!
//! Members that enter the gate set a flag on a line of their own and look at `is_guarded`;
//! a thread that guards the gate sets `is_guarded` and looks at the flags. The
//! [barrier pair](corewise_atomic::barrier) between the two accesses of each side makes sure that
//! at least one of them sees the other: either the member sees that the gate is guarded and leaves,
//! or the other thread waits for it. (Dekker's protocol with an asymmetric barrier, as in
//! `corewise-rcu`.)
//!
//! # Invariants
//!
//! 1. While `GateState::is_guarded`, no member is inside, except for a moment in which it finds
//!    that the gate is guarded.
//! 2. The gate is guarded while `GateState::users` is above zero.

use super::LINGER_MS;
use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::{AtomicBool, Ordering};
use corewise_atomic::{Backoff, CachePadded, barrier, mutant, ordering};
use corewise_ops::Now;
use std::sync::Arc;

/// Whether a member is inside the gate.
pub(super) type Flag = AtomicBool;

pub(super) struct Gate {
    /// Operations must lock their stripes. Read by every batch, written seldom.
    is_guarded: CachePadded<AtomicBool>,
    state: Mutex<GateState>,
}

struct GateState {
    /// Transactions that run, and connections that watch keys.
    users: usize,
    /// The gate is guarded, and the members that were inside have left.
    is_guarded: bool,
    /// When the last user left.
    used_ms: u64,
    members: Vec<Arc<CachePadded<Flag>>>,
}

/// A member is inside the gate until this is dropped.
pub(super) struct Inside<'m>(&'m Flag);

impl<'m> Inside<'m> {
    /// For a member that is inside already.
    pub(super) fn of(member: &'m Flag) -> Self {
        Self(member)
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `guard`, so that the effects of the batch are seen.
        self.0
            .store(false, ordering!(Release, "relaxed_end_of_batch"));
    }
}

use Ordering::{Acquire, Release};

impl Gate {
    pub(super) fn new() -> Self {
        barrier::prepare();
        Self {
            is_guarded: CachePadded::new(AtomicBool::new(false)),
            state: Mutex::new(GateState {
                users: 0,
                is_guarded: false,
                used_ms: 0,
                members: Vec::new(),
            }),
        }
    }

    pub(super) fn register(&self) -> Arc<CachePadded<Flag>> {
        let member = Arc::new(CachePadded::new(AtomicBool::new(false)));
        // The lock orders the member after a `guard` that has not seen it.
        self.state.lock().members.push(Arc::clone(&member));
        member
    }

    pub(super) fn unregister(&self, member: &Arc<CachePadded<Flag>>) {
        // Leaves before it takes the lock: `guard` may hold the lock and wait for this member.
        drop(Inside(member));
        let mut state = self.state.lock();
        state.members.retain(|other| !Arc::ptr_eq(other, member));
    }

    /// Enters the gate; `None` if it is guarded.
    #[inline]
    pub(super) fn enter<'m>(&self, member: &'m Flag) -> Option<Inside<'m>> {
        // Relaxed: the barrier orders it before the load.
        member.store(true, Ordering::Relaxed);
        if !mutant!("enters_without_barrier") {
            barrier::light(); // pairs with `heavy` in `guard`
        }
        let inside = Inside(member);
        // Acquire: pairs with the Release in `open_if_unused`, so that the effects of transactions
        // are seen.
        let is_guarded = self
            .is_guarded
            .load(ordering!(Acquire, "relaxed_look_at_gate"));
        (!is_guarded || mutant!("passes_a_guarded_gate")).then_some(inside)
    }

    /// Whether a member that is inside should leave as soon as it can.
    pub(super) fn is_wanted(&self) -> bool {
        // Relaxed: a member that reads an old value leaves a little later.
        self.is_guarded.load(Ordering::Relaxed)
    }

    /// Adds a user, and makes sure that operations lock their stripes until it leaves.
    pub(super) fn guard(&self) {
        let mut state = self.state.lock();
        state.users += 1;
        if state.is_guarded {
            return;
        }
        // Relaxed: the barrier orders it before the loads.
        self.is_guarded.store(true, Ordering::Relaxed);
        barrier::heavy(); // pairs with `light` in `enter`
        for member in &state.members {
            let mut backoff = Backoff::new();
            // Acquire: pairs with the Release in `Inside::drop`.
            while !mutant!("does_not_wait") && member.load(Acquire) {
                backoff.snooze();
            }
        }
        state.is_guarded = true;
    }

    /// Removes a user.
    pub(super) fn leave(&self, now: Now) {
        let mut state = self.state.lock();
        state.users -= 1;
        state.used_ms = state.used_ms.max(now.ms);
    }

    /// Opens the gate if it has had no user for [`LINGER_MS`]. Does not wait.
    pub(super) fn open_if_unused(&self, now: Now) {
        let Some(mut state) = self.state.try_lock() else {
            return;
        };
        let is_used = state.users > 0 && !mutant!("opens_a_used_gate");
        if is_used || !state.is_guarded || now.ms < state.used_ms.saturating_add(LINGER_MS) {
            return;
        }
        state.is_guarded = false;
        // Release: pairs with the Acquire in `enter`. The lock orders it after the last user.
        self.is_guarded
            .store(false, ordering!(Release, "relaxed_opening"));
    }

    #[cfg(test)]
    pub(super) fn is_guarded(&self) -> bool {
        self.state.lock().is_guarded
    }

    #[cfg(test)]
    pub(super) fn users(&self) -> usize {
        self.state.lock().users
    }
}
