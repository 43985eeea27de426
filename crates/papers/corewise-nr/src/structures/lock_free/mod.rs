//! The lock-free skip list of Herlihy and Shavit, without reclamation: the baseline LF of §4 of the
//! paper.
//!
//! M. Herlihy and N. Shavit, *The art of multiprocessor programming*, §14.4 (the list) and §15.5
//! (the priority queue of Lotan and Shavit). The paper runs both "without a mechanism to garbage
//! collect memory", because hazard pointers or epochs make them up to five times slower.
//! So does this module: it is a baseline to compare with, and no structure for production.
//!
//! ```text
//! Node:  | key | value | links of levels 0-3 | links of higher levels | older node |
//! link:  address of the next node | mark (bit 0)
//! ```
//!
//! A mark in a node's link of a level means that the node is removed from that level. The mark of
//! level 0 decides whether the key is in the list.
//!
//! # Memory
//!
//! **No node is freed before the list is dropped**, so a list grows with each insertion that adds a
//! key, also if keys are removed. The number of these insertions is limited
//! ([`with_limit`](LockFreeSkipList::with_limit), by default [`DEFAULT_LIMIT`]); beyond it,
//! insertions return [`OutOfNodes`]. In return, a reference to a value is valid as long as the
//! list.
//!
//! # Deviations
//!
//! 1. A link of a higher level of a new node is loaded again before the node is linked there, and
//!    the node is not linked any more once it is marked. The book's `add` keeps a link that may be
//!    stale.
//! 2. Nodes have keys, not hash codes.
//! 3. A removal returns the value.
//!
//! # Guarantees
//!
//! 1. *Linearizable*: [`LockFreeSkipList`]. An insertion takes effect at its exchange of the link
//!    of level 0, a removal at its mark of level 0. All accesses to links are `SeqCst`, as the
//!    book's are: with Release and Acquire alone, two readers may see two insertions in different
//!    orders. On x86 the instructions are the same, on AArch64 a load is `ldar` instead of `ldapr`.
//! 2. *Quiescently consistent*, not linearizable: [`LockFreePriorityQueue`]. A removal may return a
//!    key although a lower one was inserted before the removal reached its place.
//! 3. *Progress.* [`get`](LockFreeSkipList::get) is wait-free for a bounded number of keys;
//!    insertions and removals are lock-free.
//! 4. A panic in a comparison of keys changes nothing, except that an insertion or removal that has
//!    taken effect stays in effect.

#[cfg(test)]
mod models;
mod nodes;
mod queue;

use std::fmt;
use std::marker::PhantomData;

use corewise_atomic::mutant;

use nodes::{LEVELS, Link, Node, Nodes, Tower};
pub use queue::LockFreePriorityQueue;

/// The default limit of the nodes that a list allocates before it is dropped.
pub const DEFAULT_LIMIT: usize = 1 << 26;

/// The number of allocated nodes is at the limit of the list. Removals do not help, because nodes
/// are freed only with the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfNodes;

impl fmt::Display for OutOfNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the lock-free list has used all nodes of its limit")
    }
}

impl std::error::Error for OutOfNodes {}

/// A concurrent dictionary with sorted keys; see the [module](self).
///
/// ```
/// use corewise_nr::structures::lock_free::LockFreeSkipList;
///
/// let list = LockFreeSkipList::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| list.insert(1, "one"));
///     scope.spawn(|| list.insert(2, "two"));
/// });
/// assert_eq!(list.get(&1), Some(&"one"));
/// assert_eq!(list.remove(&2), Some(&"two"));
/// assert_eq!(list.insert(1, "again"), Ok(false));
/// ```
pub struct LockFreeSkipList<K, V> {
    head: Tower<K, V>,
    nodes: Nodes<K, V>,
    /// Neither `Send` nor `Sync` by itself.
    _pointers: PhantomData<*mut Node<K, V>>,
}

// SAFETY: the list owns its keys and values, and drops them where it is dropped.
unsafe impl<K: Send, V: Send> Send for LockFreeSkipList<K, V> {}
// SAFETY: threads that share the list get shared references to keys and values of each other, and
// one may drop those that another has inserted.
unsafe impl<K: Send + Sync, V: Send + Sync> Sync for LockFreeSkipList<K, V> {}

/// The links before a key, and behind it, on each level.
struct Neighbours<'a, K, V> {
    before: [&'a Tower<K, V>; LEVELS],
    behind: [Link<K, V>; LEVELS],
}

impl<K, V> LockFreeSkipList<K, V> {
    /// An empty list with the limit [`DEFAULT_LIMIT`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_limit(DEFAULT_LIMIT)
    }

    /// An empty list that allocates at most `nodes` nodes before it is dropped. An insertion that
    /// runs beside others may be refused 63 nodes too early for each of them.
    #[must_use]
    pub fn with_limit(nodes: usize) -> Self {
        Self {
            head: Tower::new(LEVELS),
            nodes: Nodes::with_limit(nodes),
            _pointers: PhantomData,
        }
    }

    /// The node of a link of this list.
    #[inline]
    fn node(&self, link: Link<K, V>) -> Option<&Node<K, V>> {
        // SAFETY: null, or a published node, which is freed only with the list; no thread has a
        // mutable reference to a published node.
        unsafe { link.node().as_ref() }
    }

    fn value<'a>(&'a self, node: &'a Node<K, V>) -> &'a V {
        // SAFETY: written before the node was published, and not after; the node lives as long as
        // the list.
        node.value.with(|value| unsafe { &*value })
    }

    /// The nodes that are not removed, in the order of their keys.
    fn present(&self) -> impl Iterator<Item = &Node<K, V>> {
        let first = self.node(self.head.load(0));
        std::iter::successors(first, |node| self.node(node.tower.load(0)))
            .filter(|node| !node.tower.load(0).is_marked())
    }

    /// The exchanges of links so far that failed because another thread was faster (§4.1 of the
    /// paper counts them). It takes a while until those of other threads are among them.
    #[must_use]
    pub fn failed_exchanges(&self) -> u64 {
        self.nodes.failed()
    }

    /// Replaces a link, and counts if that fails.
    #[inline]
    fn exchange(
        &self,
        tower: &Tower<K, V>,
        level: usize,
        old: Link<K, V>,
        new: Link<K, V>,
    ) -> Result<(), ()> {
        self.nodes.counted(tower.exchange(level, old, new))
    }

    /// Iterates over the keys and values. It visits every key that is in the list from the first
    /// call to the last, and may visit keys that are inserted or removed meanwhile.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.present().map(|node| (&node.key, self.value(node)))
    }
}

impl<K: Ord, V> LockFreeSkipList<K, V> {
    /// Finds the place of a key, and unlinks removed nodes on the way. Returns the node that has
    /// the key, if there is one.
    fn find(&self, key: &K) -> (Neighbours<'_, K, V>, Option<&Node<K, V>>) {
        loop {
            let mut place = Neighbours {
                before: [&self.head; LEVELS],
                behind: [Link::NULL; LEVELS],
            };
            if self.try_find(key, &mut place).is_ok() {
                let node = self.node(place.behind[0]).filter(|node| node.key == *key);
                return (place, node);
            }
        }
    }

    /// `Err` if another thread has changed a link that this one wanted to change.
    fn try_find<'a>(&'a self, key: &K, place: &mut Neighbours<'a, K, V>) -> Result<(), ()> {
        let mut before = &self.head;
        for level in (0..LEVELS).rev() {
            let mut current = before.load(level).unmarked();
            while let Some(node) = self.node(current) {
                let next = node.tower.load(level);
                if next.is_marked() {
                    self.exchange(before, level, current, next.unmarked())?;
                    current = next.unmarked();
                } else if node.key < *key {
                    before = &node.tower;
                    current = next;
                } else {
                    break;
                }
            }
            place.before[level] = before;
            place.behind[level] = current;
        }
        Ok(())
    }

    /// Looks a key up. Wait-free, if the number of keys is bounded; it changes nothing.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        let mut before = &self.head;
        let mut found = None;
        for level in (0..LEVELS).rev() {
            found = self.node(before.load(level));
            while let Some(node) = found {
                let next = node.tower.load(level);
                if !next.is_marked() {
                    if node.key >= *key {
                        break;
                    }
                    before = &node.tower;
                }
                found = self.node(next);
            }
        }
        let node = found.filter(|node| node.key == *key)?;
        Some(self.value(node))
    }

    /// Whether the key is in the list.
    #[must_use]
    pub fn contains(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Adds a key, unless it is in the list; returns whether it was added. The value of a key that
    /// is in the list does not change. Lock-free.
    ///
    /// # Errors
    ///
    /// If the key is absent and the list has used all nodes of its limit.
    pub fn insert(&self, key: K, value: V) -> Result<bool, OutOfNodes> {
        let (mut place, found) = self.find(&key);
        if found.is_some() {
            return Ok(false);
        }
        let new = self.nodes.allocate(key, value).map_err(|_| OutOfNodes)?;
        loop {
            let node = new.node();
            for level in 0..node.tower.height() {
                node.tower.set(level, place.behind[level]);
            }
            let link = Link::to(new.pointer());
            if mutant!("list_inserts_blindly") {
                place.before[0].set(0, link);
                break;
            }
            let (before, behind) = (place.before[0], place.behind[0]);
            if self.exchange(before, 0, behind, link).is_ok() {
                break;
            }
            let found;
            (place, found) = self.find(&new.node().key);
            if found.is_some() {
                return Ok(false);
            }
        }
        self.link_higher(Link::to(new.published()), place);
        Ok(true)
    }

    /// Links a published node on the levels above 0.
    fn link_higher<'a>(&'a self, link: Link<K, V>, mut place: Neighbours<'a, K, V>) {
        let Some(node) = self.node(link) else { return };
        for level in 1..node.tower.height() {
            loop {
                let (mut next, behind) = (node.tower.load(level), place.behind[level]);
                if mutant!("list_clears_a_mark") {
                    node.tower.set(level, behind);
                    next = behind;
                }
                // Fails if the node was marked since.
                let is_removed = next.is_marked()
                    || (next != behind && self.exchange(&node.tower, level, next, behind).is_err());
                if is_removed {
                    return;
                }
                if self
                    .exchange(place.before[level], level, behind, link)
                    .is_ok()
                {
                    break;
                }
                let found;
                (place, found) = self.find(&node.key);
                if !found.is_some_and(|found| std::ptr::eq(found, node)) {
                    return;
                }
            }
        }
    }

    /// Removes a key; returns its value if it was in the list and this call has removed it.
    /// Lock-free.
    pub fn remove(&self, key: &K) -> Option<&V> {
        let (place, node) = self.find(key);
        let node = node?;
        for level in (1..node.tower.height()).rev() {
            let mut next = node.tower.load(level);
            while !next.is_marked()
                && self
                    .exchange(&node.tower, level, next, next.marked())
                    .is_err()
            {
                next = node.tower.load(level);
            }
        }
        if mutant!("list_unlinks_without_mark") {
            let next = node.tower.load(0);
            let unlinked = place.before[0].exchange(0, place.behind[0], next);
            return unlinked.is_ok().then(|| self.value(node));
        }
        loop {
            let next = node.tower.load(0);
            if next.is_marked() {
                return mutant!("list_claims_the_removal_of_another").then(|| self.value(node));
            }
            if self.exchange(&node.tower, 0, next, next.marked()).is_ok() {
                // Unlinks it.
                self.find(key);
                return Some(self.value(node));
            }
        }
    }
}

impl<K, V> Default for LockFreeSkipList<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for LockFreeSkipList<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
