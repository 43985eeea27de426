//! Lookups.

use std::hash::{BuildHasher, Hash};

use corewise_rcu::Section;

use super::handle::MapRef;
use super::map::Node;
use crate::Equivalent;

impl<K, V> Node<K, V> {
    #[inline(always)]
    pub(super) fn pair(&self) -> (&K, &V) {
        (&self.key, &self.value)
    }
}

/// Lookups.
impl<K, V, S, G> MapRef<'_, K, V, S, G>
where
    K: Eq + Hash,
    S: BuildHasher,
    G: Section,
{
    /// Returns the value of a key. Wait-free, constant expected time.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a".to_owned(), 1)]);
    /// assert_eq!(map.pin().get("a"), Some(&1));
    /// ```
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        Q: ?Sized + Hash + Equivalent<K>,
    {
        let node = self.find(self.map().hash(key), key)?;
        Some(&node.value)
    }

    /// Looks up several keys: sets each place of `out` to what [`get`](Self::get) returns for the
    /// key at the same position. Wait-free, constant expected time per key.
    ///
    /// The memory accesses for up to 64 keys overlap. That pays in tables larger than the caches,
    /// for batches of 16 keys and more; smaller batches are faster key by key. Each lookup is
    /// linearizable by itself and takes effect between the call and the return. Together they are
    /// not a snapshot: updates of other threads may take effect between them.
    ///
    /// # Panics
    ///
    /// If `out` and `keys` differ in length; then nothing is looked up.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]);
    /// let map = map.pin();
    /// let mut values = [None; 3];
    /// map.get_many(["b", "c", "a"], &mut values);
    /// assert_eq!(values, [Some(&2), None, Some(&1)]);
    ///
    /// let squares: RelativisticMap<u64, u64> = (0..100).map(|n| (n, n * n)).collect();
    /// let (keys, mut values) = ([9, 100], [None; 2]);
    /// let squares = squares.pin();
    /// squares.get_many(&keys, &mut values);
    /// assert_eq!(values, [Some(&81), None]);
    /// ```
    pub fn get_many<'h, 'q, Q>(
        &'h self,
        keys: impl IntoIterator<Item = &'q Q, IntoIter: ExactSizeIterator>,
        out: &mut [Option<&'h V>],
    ) where
        Q: ?Sized + Hash + Equivalent<K> + 'q,
    {
        self.find_many(keys, out, |node| node.map(|node| &node.value));
    }

    /// Returns the stored key and its value. Wait-free.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a".to_owned(), 1)]);
    /// assert_eq!(map.pin().get_key_value("a"), Some((&"a".to_owned(), &1)));
    /// ```
    #[inline]
    pub fn get_key_value<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        Q: ?Sized + Hash + Equivalent<K>,
    {
        self.find(self.map().hash(key), key).map(Node::pair)
    }

    /// Whether the key is present. Wait-free.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// assert!(map.pin().contains_key("a"));
    /// ```
    #[inline]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        Q: ?Sized + Hash + Equivalent<K>,
    {
        self.find(self.map().hash(key), key).is_some()
    }
}
