//! The priority queue of Lotan and Shavit (*Skiplist-based concurrent priority queues*, IPDPS
//! 2000), without the time stamps that would make it linearizable, as in Herlihy and Shavit §15.5.

use std::fmt;

use corewise_atomic::mutant;
use corewise_atomic::sync::atomic::AtomicBool;
use corewise_atomic::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use super::{DEFAULT_LIMIT, LockFreeSkipList, OutOfNodes};

/// A concurrent priority queue: the lowest key first. See the [module](super), in particular for
/// what it guarantees and how much memory it uses.
///
/// A removal walks from the lowest key to the first that no other removal has claimed, claims it,
/// and then removes it from the skip list.
///
/// ```
/// use corewise_nr::structures::lock_free::LockFreePriorityQueue;
///
/// let queue = LockFreePriorityQueue::new();
/// queue.insert(7)?;
/// queue.insert(3)?;
/// assert_eq!((queue.min(), queue.remove_min()), (Some(&3), Some(&3)));
/// assert_eq!((queue.remove_min(), queue.remove_min()), (Some(&7), None));
/// # Ok::<(), corewise_nr::structures::lock_free::OutOfNodes>(())
/// ```
pub struct LockFreePriorityQueue<K> {
    /// Keys with a unique number, so that equal keys are different. The value tells whether a
    /// removal has claimed the key.
    list: LockFreeSkipList<(K, u64), AtomicBool>,
}

impl<K: Ord> LockFreePriorityQueue<K> {
    /// An empty queue with the limit [`DEFAULT_LIMIT`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_limit(DEFAULT_LIMIT)
    }

    /// An empty queue that accepts at most `nodes` insertions before it is dropped.
    #[must_use]
    pub fn with_limit(nodes: usize) -> Self {
        Self {
            list: LockFreeSkipList::with_limit(nodes),
        }
    }

    /// Adds a key; equal keys are kept apart, and come in no particular order. Lock-free.
    ///
    /// # Errors
    ///
    /// If the queue has used all nodes of its limit.
    pub fn insert(&self, key: K) -> Result<(), OutOfNodes> {
        let key = (key, self.list.nodes.unique());
        self.list.insert(key, AtomicBool::new(false)).map(drop)
    }

    /// The lowest key. Lock-free: it walks over keys that are being removed.
    #[must_use]
    pub fn min(&self) -> Option<&K> {
        // Acquire: pairs with the exchange in `claim`.
        let unclaimed = |claimed: &AtomicBool| !claimed.load(Acquire);
        let mut entries = self.list.iter();
        let (key, _) = entries.find(|(_, claimed)| unclaimed(claimed))?;
        Some(&key.0)
    }

    /// Removes and returns the lowest key. Lock-free.
    pub fn remove_min(&self) -> Option<&K> {
        let (key, _) = self.list.iter().find(|(_, claimed)| self.claim(claimed))?;
        self.list.remove(key);
        Some(&key.0)
    }

    /// As [`LockFreeSkipList::failed_exchanges`], with the claims that another one overtook.
    #[must_use]
    pub fn failed_exchanges(&self) -> u64 {
        self.list.failed_exchanges()
    }

    /// Whether the caller is the first to claim a key.
    fn claim(&self, claimed: &AtomicBool) -> bool {
        if mutant!("queue_claims_in_two_steps") {
            // Acquire and Release: as in the exchange below.
            let was_claimed = claimed.load(Acquire);
            claimed.store(true, Release);
            return !was_claimed;
        }
        // AcqRel: pairs with itself and with the Acquire of `min`: a thread that finds the key
        // claimed also sees what the claiming thread saw. Acquire on failure and in the load, for
        // the same reason. The load saves an exchange.
        if claimed.load(Acquire) {
            return false;
        }
        let exchanged = claimed.compare_exchange(false, true, AcqRel, Acquire);
        self.list.nodes.counted(exchanged).is_ok()
    }
}

impl<K: Ord> Default for LockFreePriorityQueue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: fmt::Debug> fmt::Debug for LockFreePriorityQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.list.iter().map(|((key, _), _)| key))
            .finish()
    }
}
