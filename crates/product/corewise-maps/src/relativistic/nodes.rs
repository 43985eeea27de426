//! Access to the nodes of a map, for maps of other crates whose entries are entries of this one.

use std::hash::{BuildHasher, Hash};

use corewise_rcu::Section;

use super::handle::{FreshNode, MapRef};
use super::iter::Nodes;
use super::map::{Node, RelativisticMap};
use crate::Equivalent;

impl<K, V, S: BuildHasher> RelativisticMap<K, V, S> {
    /// The hash of a key.
    #[inline(always)]
    pub fn hash_of<Q: ?Sized + Hash>(&self, key: &Q) -> u64 {
        self.hash(key)
    }
}

impl<'m, K, V, S, G: Section> MapRef<'m, K, V, S, G> {
    /// Finds the node of a key that has this hash.
    #[inline(always)]
    pub fn find_node<Q>(&self, hash: u64, key: &Q) -> Option<&Node<K, V>>
    where
        Q: ?Sized + Equivalent<K>,
    {
        self.find(hash, key)
    }

    /// Applies `give` to the nodes of some keys, or to `None` for absent keys, and stores what it
    /// returns in `out`.
    ///
    /// # Panics
    ///
    /// If `out` and `keys` differ in length.
    #[inline(always)]
    pub fn find_nodes<'h, 'q, Q, T>(
        &'h self,
        keys: impl IntoIterator<Item = &'q Q, IntoIter: ExactSizeIterator>,
        out: &mut [T],
        give: impl Fn(Option<&'h Node<K, V>>) -> T,
    ) where
        Q: ?Sized + Hash + Equivalent<K> + 'q,
        S: BuildHasher,
    {
        self.find_many(keys, out, give);
    }

    /// Creates a node that is in no table; `hash` is that of the key.
    #[inline]
    pub fn make_node(&self, hash: u64, key: K, value: V) -> FreshNode<'_, 'm, K, V, S, G> {
        self.make(hash, key, value)
    }

    /// Removes a node that was found; returns false if it is gone.
    ///
    /// # Safety
    ///
    /// 1. The node was found or linked by this handle.
    #[inline]
    pub unsafe fn unlink_node(&self, node: &Node<K, V>) -> bool {
        // SAFETY: the node was found or linked by this handle, by 1.
        unsafe { self.unlink(node) }
    }

    /// An iterator over all nodes, in no order.
    pub fn all_nodes(&self) -> Nodes<'_, K, V> {
        self.nodes()
    }
}

impl<'h, K, V, S, G: Section> FreshNode<'h, '_, K, V, S, G> {
    /// Links the node unless its key is present; otherwise returns the present node and this one.
    #[inline]
    #[expect(clippy::type_complexity, reason = "the two nodes of an occupied key")]
    pub fn link_node(self) -> Result<&'h Node<K, V>, (&'h Node<K, V>, Self)>
    where
        K: Eq,
    {
        self.link()
    }

    /// Returns the value, drops the key, and frees the node's memory.
    pub fn into_node_value(self) -> V {
        self.into_value()
    }
}
