//! The MCS queue lock (Mellor-Crummey and Scott 1991 §2.4) in one word.
//!
//! ```text
//! Mcs, 8 bytes: tail ──▶ the last node of the queue, or null
//!
//! holder's node ──next──▶ waiting node ──next──▶ waiting node ◀── tail
//! ```
//!
//! # Guarantees
//!
//! Those of every lock of the crate, and:
//!
//! 1. *Fairness.* FIFO, in the order of the exchanges of `tail`.
//! 2. *Cost.* One read-modify-write to lock a free lock, and one to unlock a lock that no thread
//!    waits for; another to hand it over. Unlocking also searches the locks that the thread has
//!    locked later and still holds.
//! 3. *Waiting.* Each thread reads its own node, in a line that no other thread reads. An unlock
//!    writes one such line. After 16 pauses and 16 yields a thread sleeps, so that a lock is not
//!    handed to a thread that the system lets wait behind threads that only yield.
//! 4. *Memory.* A node of 128 bytes for each lock that a thread holds or waits for at once; nodes
//!    are reused and never freed.
//! 5. *More threads than CPUs.* Each section costs a context switch, 1 to 3 µs, but no time slice
//!    of milliseconds; the crate's root has figures. Use [`Parking`](crate::Parking) or
//!    [`Adaptive`](crate::Adaptive) then.
//!
//! # Deviation
//!
//! The paper passes the node to both operations. Here a thread keeps the nodes of the locks that it
//! holds in a list, so that the lock is one word, has the usual interface, and can be held together
//! with any other lock, in any order.

use corewise_atomic::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use corewise_atomic::{mutant, ordering};

use crate::node::{self, Node, NodeCell};
use crate::wait::QueueWait;
use crate::{RawLock, constructor};

/// A FIFO lock of one word whose waiting threads each read their own cache line.
///
/// A lock that was moved since its guard was leaked cannot be unlocked: `force_unlock` of
/// `lock_api` panics.
///
/// ```
/// use corewise_locks::{Lock, Mcs};
///
/// static NAMES: Lock<Vec<&str>, Mcs> = Lock::new(Vec::new());
/// NAMES.lock().push("Scott");
/// assert_eq!(NAMES.lock().len(), 1);
/// ```
#[derive(Debug)]
pub struct Mcs {
    tail: NodeCell,
}

constructor! { [] Mcs,
    /// Creates an unlocked lock.
    pub fn new() -> Self {
        Self {
            tail: NodeCell::new(),
        }
    }
}

impl Mcs {
    #[inline(always)]
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// A node that is ready to be the last of the queue.
    #[inline(always)]
    fn fresh_node() -> &'static Node {
        let node = node::take();
        // Relaxed: the exchange of `tail` publishes it.
        node.next.store(None, Relaxed);
        node
    }

    /// Locks, and returns whether the thread slept meanwhile.
    #[inline]
    pub(crate) fn lock_reporting_sleep(&self) -> bool {
        let node = Self::fresh_node();
        // Release: publishes the node to the thread that queues behind it. Acquire: pairs with the
        // Release of the exchange in `unlock`, and with the Release of the predecessor here.
        let mut has_slept = false;
        if let Some(predecessor) = self.tail.swap(node, AcqRel) {
            // Before the predecessor knows the node.
            node.prepare();
            // Release: pairs with the Acquire in `unlock`, so the node is seen with its fields.
            predecessor.next.store(Some(node), Release);
            has_slept = node.wait();
        }
        node::hold(node, self.address());
        has_slept
    }

    /// Whether a thread is known to wait; for the holder only. A hint.
    #[inline]
    pub(crate) fn has_waiter(&self) -> bool {
        // Relaxed: a hint.
        node::last_locked(self.address()).is_some_and(|node| node.next.load(Relaxed).is_some())
    }
    #[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
    pub(crate) fn tail(&self) -> &NodeCell {
        &self.tail
    }
}

// SAFETY: a thread returns from `lock` if the queue was empty, or if the predecessor in the queue
// granted it the lock; `unlock` grants it to one node or empties the queue (1). The exchanges of
// `tail` and the grant are Release and Acquire (2).
unsafe impl RawLock for Mcs {
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    const UNLOCKED: Self = Self::new();

    #[inline]
    fn lock(&self) {
        self.lock_reporting_sleep();
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
            node::hold(node, self.address());
        } else {
            node::give_back(node);
        }
        is_taken
    }

    #[inline]
    unsafe fn unlock(&self) {
        let node = node::release(self.address());
        // Acquire: pairs with the Release in `lock`.
        let mut next = node.next.load(Acquire);
        // Release: pairs with the Acquire of the next thread's exchange in `lock`.
        let release = ordering!(Release, "mcs_relaxed_unlock");
        if next.is_none() && !self.tail.replace(Some(node), None, release) {
            // A thread has exchanged `tail`, and is about to link its node to this one.
            QueueWait::until(|| {
                // Acquire: pairs with the Release in `lock`.
                next = node.next.load(Acquire);
                next.is_some() || mutant!("mcs_no_wait_for_next")
            });
        }
        if let Some(next) = next {
            // Release: pairs with the Acquire of the waiting thread in `Node::wait`.
            next.grant(ordering!(Release, "mcs_relaxed_grant"));
        }
        // No other thread accesses the node: the successor has linked its own, and there is none
        // before it.
        node::give_back(node);
    }

    #[inline]
    fn is_locked(&self) -> bool {
        // Relaxed: a hint.
        self.tail.load(Relaxed).is_some()
    }
}

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
const _: () = assert!(size_of::<Mcs>() == size_of::<usize>());
