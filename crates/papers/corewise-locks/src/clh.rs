//! The CLH queue lock (Craig 1993; Magnusson, Landin, Hagersten 1994).
//!
//! ```text
//! Clh, 16 bytes: tail ──▶ the last node of the queue, or null | holder's node, owner only
//!
//! holder's node ◀── waiting thread    ◀── waiting thread
//!   state            reads the node        reads the node of its predecessor ◀── tail
//! ```
//!
//! # Guarantees
//!
//! Those of every lock of the crate, and:
//!
//! 1. *Fairness.* FIFO, in the order of the exchanges of `tail`.
//! 2. *Cost.* One read-modify-write to lock a free lock, one to unlock it.
//! 3. *Waiting.* Each thread reads its predecessor's node, which no other thread reads, and sleeps
//!    in the end, as for [`Mcs`](crate::Mcs).
//! 4. *Memory.* As for [`Mcs`](crate::Mcs). A thread that gets the lock from another also gets that
//!    thread's node and leaves it its own; above a limit nodes go to a pool.
//! 5. *More threads than CPUs.* Each section costs a context switch, 1 to 3 µs, but no time slice
//!    of milliseconds; the crate's root has figures. Use [`Parking`](crate::Parking) or
//!    [`Adaptive`](crate::Adaptive) then.
//!
//! # Deviation
//!
//! In the papers an unlocked lock contains a node. Here it contains null, so that a lock can be
//! created in a constant and `is_locked` is a test for null. Unlocking is a read-modify-write
//! instead of a store.

use corewise_atomic::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use corewise_atomic::{mutant, ordering};

use crate::node::{self, Node, NodeCell};
use crate::{RawLock, constructor};

/// A FIFO lock whose waiting threads each read the cache line of their predecessor.
///
/// ```
/// use corewise_locks::{Clh, Lock};
///
/// let lock: Lock<u32, Clh> = Lock::new(1);
/// *lock.lock() += 1;
/// assert_eq!(lock.into_inner(), 2);
/// ```
#[derive(Debug)]
pub struct Clh {
    tail: NodeCell,
    /// The holder's node; only the holder accesses this.
    holder: NodeCell,
}

constructor! { [] Clh,
    /// Creates an unlocked lock.
    pub fn new() -> Self {
        Self {
            tail: NodeCell::new(),
            holder: NodeCell::new(),
        }
    }
}

impl Clh {
    #[inline(always)]
    fn fresh_node() -> &'static Node {
        let node = node::take();
        node.prepare();
        node
    }

    #[inline(always)]
    fn set_holder(&self, node: &'static Node) {
        // Relaxed: only the holder accesses it.
        self.holder.store(Some(node), Relaxed);
    }
    #[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
    pub(crate) fn tail(&self) -> &NodeCell {
        &self.tail
    }
}

// SAFETY: a thread returns from `lock` if the queue was empty, or if the thread before it in the
// queue has unlocked (1). The exchanges of `tail`, and the grant, are Release and Acquire (2).
unsafe impl RawLock for Clh {
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    const UNLOCKED: Self = Self::new();

    #[inline]
    fn lock(&self) {
        let node = Self::fresh_node();
        // Release: publishes the node to the next thread. Acquire: pairs with the Release of the
        // exchange in `unlock`, and with the Release of the predecessor here.
        if let Some(predecessor) = self.tail.swap(node, AcqRel) {
            predecessor.wait();
            // Its owner does not access it any more, and no other thread waits on it.
            node::give_back(predecessor);
        }
        self.set_holder(node);
    }

    #[inline]
    fn try_lock(&self) -> bool {
        if self.is_locked() {
            return false;
        }
        let node = Self::fresh_node();
        // AcqRel: as in `lock`.
        let is_taken = self.tail.replace(None, Some(node), AcqRel);
        if is_taken {
            self.set_holder(node);
        } else {
            node::give_back(node);
        }
        is_taken
    }

    #[inline]
    unsafe fn unlock(&self) {
        // Relaxed: only the holder accesses it.
        let node = self
            .holder
            .load(Relaxed)
            .expect("the thread holds the lock");
        // Release: pairs with the Acquire of the next thread's exchange in `lock`.
        let release = ordering!(Release, "clh_relaxed_unlock");
        if self.tail.replace(Some(node), None, release) {
            node::give_back(node);
            return;
        }
        // Release: pairs with the Acquire of the waiting thread in `Node::wait`. The node is that
        // thread's from now on.
        node.grant(ordering!(Release, "clh_relaxed_grant"));
        if mutant!("clh_keeps_own_node") {
            node::give_back(node);
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        // Relaxed: a hint.
        self.tail.load(Relaxed).is_some()
    }
}

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
const _: () = assert!(size_of::<Clh>() == 2 * size_of::<usize>());
