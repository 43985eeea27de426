//! Updates of all entries.

use corewise_rcu::Section;

use super::handle::MapRef;
use super::iter::Nodes;
use super::map::Node;
use crate::collection::fused_iterators;

/// Updates of all entries.
impl<'m, K, V, S, G: Section> MapRef<'m, K, V, S, G> {
    /// Removes the entries for which `is_to_stay` returns false. Visits the entries that
    /// [`iter`](Self::iter) yields; an entry that is replaced meanwhile stays.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map: RelativisticMap<u64, u64> = (0..10).map(|n| (n, n * n)).collect();
    /// map.pin().retain(|_, square| square % 2 == 0);
    /// assert_eq!(map.len(), 5);
    /// ```
    pub fn retain(&self, mut is_to_stay: impl FnMut(&K, &V) -> bool) {
        for node in self.nodes() {
            if !is_to_stay(&node.key, &node.value) {
                // SAFETY: the iteration of this handle found the node (1).
                unsafe { self.unlink(node) };
            }
        }
    }

    /// Removes all entries that are present when it begins and are not replaced meanwhile.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// map.pin().clear();
    /// assert!(map.is_empty());
    /// ```
    pub fn clear(&self) {
        self.retain(|_, _| false);
    }

    /// An iterator that removes the entries that it yields; when it is dropped, it removes the
    /// rest.
    ///
    /// No entry is yielded by two iterators, or yielded and also returned by another thread's
    /// `remove`: the thread that gets it has removed it. Other threads may update the map
    /// meanwhile, so it need not be empty in the end: an entry that is inserted, or replaced,
    /// while the iterator is in use may be yielded and may stay. Visits what [`iter`](Self::iter)
    /// yields, with the cost of an iteration and of a removal per entry. If the iterator is
    /// forgotten, the rest stays.
    ///
    /// [`RelativisticMap::drain`](super::RelativisticMap::drain) yields owned entries.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let jobs: RelativisticMap<u64, u64> = (0..10).map(|n| (n, n)).collect();
    /// assert_eq!(jobs.pin().drain().map(|(_, work)| work).sum::<u64>(), 45);
    /// assert!(jobs.is_empty());
    /// ```
    pub fn drain<'h>(&'h self) -> Drain<'h, 'm, K, V, S, G> {
        Drain {
            handle: self,
            nodes: self.nodes(),
        }
    }

    /// An iterator over the entries for which `is_to_go` returns true, which removes each of them
    /// as it yields it. When it is dropped, the rest stays.
    ///
    /// Each entry is yielded by one iterator only, as for [`drain`](Self::drain). An entry that
    /// another thread removes or replaces after `is_to_go` has returned is not yielded.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map: RelativisticMap<u64, u64> = (0..10).map(|n| (n, n)).collect();
    /// assert_eq!(map.pin().extract_if(|_, n| n % 2 == 0).count(), 5);
    /// assert_eq!(map.len(), 5);
    /// ```
    pub fn extract_if<'h, F>(&'h self, is_to_go: F) -> ExtractIf<'h, 'm, K, V, S, G, F>
    where
        F: FnMut(&K, &V) -> bool,
    {
        ExtractIf {
            handle: self,
            nodes: self.nodes(),
            is_to_go,
        }
    }
}

/// Removing iterator over the entries of a map; returned by [`MapRef::drain`].
pub struct Drain<'h, 'm, K, V, S, G: Section> {
    handle: &'h MapRef<'m, K, V, S, G>,
    nodes: Nodes<'h, K, V>,
}

impl<'h, K, V, S, G: Section> Iterator for Drain<'h, '_, K, V, S, G> {
    type Item = (&'h K, &'h V);

    fn next(&mut self) -> Option<(&'h K, &'h V)> {
        // SAFETY: the iteration of this handle found the node (1).
        let removed = |node: &&Node<K, V>| unsafe { self.handle.unlink(node) };
        self.nodes.by_ref().find(removed).map(Node::pair)
    }
}

impl<K, V, S, G: Section> Drop for Drain<'_, '_, K, V, S, G> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

/// Removing iterator over some entries of a map; returned by [`MapRef::extract_if`].
#[must_use = "nothing is removed until the iterator is used; `retain` removes at once"]
pub struct ExtractIf<'h, 'm, K, V, S, G: Section, F> {
    handle: &'h MapRef<'m, K, V, S, G>,
    nodes: Nodes<'h, K, V>,
    is_to_go: F,
}

impl<'h, K, V, S, G: Section, F> Iterator for ExtractIf<'h, '_, K, V, S, G, F>
where
    F: FnMut(&K, &V) -> bool,
{
    type Item = (&'h K, &'h V);

    fn next(&mut self) -> Option<(&'h K, &'h V)> {
        let removed = |node: &&Node<K, V>| {
            // SAFETY: the iteration of this handle found the node (1).
            (self.is_to_go)(&node.key, &node.value) && unsafe { self.handle.unlink(node) }
        };
        self.nodes.by_ref().find(removed).map(Node::pair)
    }
}

fused_iterators! {
    [K, V, S, G: Section] Drain<'_, '_, K, V, S, G>;
    [K, V, S, G: Section, F: FnMut(&K, &V) -> bool] ExtractIf<'_, '_, K, V, S, G, F>;
}
