//! Iteration.
//!
//! Concurrent updates: an entry that is present during the whole iteration is yielded once; one
//! that is inserted or removed meanwhile, once or not at all; one that is replaced, once, with the
//! old or the new value. No key is yielded twice, unless it is removed and inserted again
//! meanwhile. A resize has no effect on an iteration. Entries come in the order of the buckets,
//! which is unspecified.

use std::marker::PhantomData;

use corewise_rcu::Section;

use super::handle::MapRef;
use super::map::Node;
use super::raw::RawIter;
use super::slab::Slabs;
use crate::collection::fused_iterators;

/// The nodes of a map.
pub(super) struct Nodes<'h, K, V> {
    raw: RawIter<'h, Slabs>,
    _nodes: PhantomData<&'h Node<K, V>>,
}

impl<'h, K, V> Iterator for Nodes<'h, K, V> {
    type Item = &'h Node<K, V>;

    #[inline]
    fn next(&mut self) -> Option<&'h Node<K, V>> {
        let link = self.raw.next()?;
        // SAFETY: made by `MapRef::nodes_of_map`, whose links belong to such nodes and are kept as
        // long as the handle.
        Some(unsafe { Node::of(link).as_ref() })
    }
}

/// Iterator over the entries of a map, in no order; returned by [`MapRef::iter`].
pub struct Iter<'h, K, V> {
    nodes: Nodes<'h, K, V>,
}

/// Iterator over the keys of a map; returned by [`MapRef::keys`].
pub struct Keys<'h, K, V> {
    nodes: Nodes<'h, K, V>,
}

/// Iterator over the values of a map; returned by [`MapRef::values`].
pub struct Values<'h, K, V> {
    nodes: Nodes<'h, K, V>,
}

impl<'m, K, V, S, G: Section> MapRef<'m, K, V, S, G> {
    pub(super) fn nodes(&self) -> Nodes<'_, K, V> {
        // SAFETY: the iterator and what it yields borrow this handle (1).
        unsafe { self.nodes_of_map() }
    }

    /// As [`nodes`](Self::nodes), for an owner of this handle.
    ///
    /// # Safety
    ///
    /// 1. The iterator and the nodes that it yields are not used after this handle.
    pub(super) unsafe fn nodes_of_map(&self) -> Nodes<'m, K, V> {
        Nodes {
            // SAFETY: they are not used after this handle (1).
            raw: unsafe { self.raw_iter() },
            _nodes: PhantomData,
        }
    }

    /// An iterator over the entries, in no order.
    ///
    /// It yields every entry that is present during the whole iteration once. It may or may not
    /// yield an entry that is inserted or removed meanwhile. Wait-free; linear in the number of
    /// buckets and entries.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1), ("b", 2)]);
    /// let map = map.pin();
    /// for (key, value) in &map { // or `map.iter()`
    ///     println!("{key}: {value}");
    /// }
    /// assert_eq!(map.iter().count(), 2);
    /// ```
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter {
            nodes: self.nodes(),
        }
    }

    /// An iterator over the keys; as [`iter`](Self::iter).
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// assert_eq!(map.pin().keys().next(), Some(&"a"));
    /// ```
    pub fn keys(&self) -> Keys<'_, K, V> {
        Keys {
            nodes: self.nodes(),
        }
    }

    /// An iterator over the values; as [`iter`](Self::iter).
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1), ("b", 2)]);
    /// assert_eq!(map.pin().values().sum::<i32>(), 3);
    /// ```
    pub fn values(&self) -> Values<'_, K, V> {
        Values {
            nodes: self.nodes(),
        }
    }
}

macro_rules! iterator {
    ($name:ident, $item:ty, $part:expr) => {
        impl<'h, K, V> Iterator for $name<'h, K, V> {
            type Item = $item;

            #[inline]
            fn next(&mut self) -> Option<$item> {
                self.nodes.next().map($part)
            }
        }
    };
}

iterator!(Iter, (&'h K, &'h V), Node::pair);
iterator!(Keys, &'h K, |node| &node.key);
iterator!(Values, &'h V, |node| &node.value);

fused_iterators! {
    [K, V] Iter<'_, K, V>;
    [K, V] Keys<'_, K, V>;
    [K, V] Values<'_, K, V>;
}

impl<'h, K, V, S, G: Section> IntoIterator for &'h MapRef<'_, K, V, S, G> {
    type Item = (&'h K, &'h V);
    type IntoIter = Iter<'h, K, V>;

    fn into_iter(self) -> Iter<'h, K, V> {
        self.iter()
    }
}

#[cfg(feature = "rayon")]
mod parallel {
    //! Parallel iteration: the handle's section keeps the nodes for all threads.

    use rayon::iter::ParallelIterator;
    use rayon::iter::plumbing::{Folder, UnindexedConsumer, UnindexedProducer, bridge_unindexed};

    use super::*;

    /// Parallel iterator over the entries of a map; returned by [`MapRef::par_iter`].
    pub struct ParIter<'h, K, V> {
        nodes: Nodes<'h, K, V>,
    }

    // SAFETY: it lends keys and values by shared reference. A reading thread needs no section to
    // read tables and links: the section of the handle, which is borrowed, keeps them.
    unsafe impl<K: Sync, V: Sync> Send for ParIter<'_, K, V> {}

    impl<K: Sync, V: Sync, S, G: Section> MapRef<'_, K, V, S, G> {
        /// A parallel iterator over the entries; visits the entries that [`iter`](Self::iter)
        /// yields.
        ///
        /// ```
        /// # use corewise_maps::RelativisticMap;
        /// use rayon::iter::ParallelIterator;
        /// let map: RelativisticMap<u64, u64> = (0..100).map(|n| (n, n)).collect();
        /// assert_eq!(map.pin().par_iter().map(|(_, n)| n).sum::<u64>(), 4950);
        /// ```
        pub fn par_iter(&self) -> ParIter<'_, K, V> {
            ParIter {
                nodes: self.nodes(),
            }
        }
    }

    impl<'h, K: Sync, V: Sync> ParallelIterator for ParIter<'h, K, V> {
        type Item = (&'h K, &'h V);

        fn drive_unindexed<C: UnindexedConsumer<Self::Item>>(self, consumer: C) -> C::Result {
            bridge_unindexed(self, consumer)
        }
    }

    /// Number of buckets that is not worth splitting.
    const GRAIN: usize = 256;

    impl<'h, K: Sync, V: Sync> UnindexedProducer for ParIter<'h, K, V> {
        type Item = (&'h K, &'h V);

        fn split(mut self) -> (Self, Option<Self>) {
            if self.nodes.raw.buckets_left() < 2 * GRAIN {
                return (self, None);
            }
            let second = self.nodes.raw.split().map(|raw| ParIter {
                nodes: Nodes {
                    raw,
                    _nodes: PhantomData,
                },
            });
            (self, second)
        }

        fn fold_with<F: Folder<Self::Item>>(self, folder: F) -> F {
            folder.consume_iter(self.nodes.map(Node::pair))
        }
    }
}

#[cfg(feature = "rayon")]
pub use parallel::ParIter;
