//! One-shot operations of the map itself, each under a handle that it makes for the occasion.
//!
//! These return no references, which need a handle. Creating one takes two nanoseconds.

use std::hash::{BuildHasher, Hash};

#[expect(unused_imports, reason = "for links")]
use super::handle::MapRef;
use super::map::RelativisticMap;
use crate::Equivalent;

/// Single operations, without a handle. [`pin`](Self::pin) gives a [`MapRef`] with all others,
/// which return references.
impl<K, V, S> RelativisticMap<K, V, S>
where
    K: Eq + Hash,
    S: BuildHasher,
{
    /// Whether the key is present; as [`MapRef::contains_key`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// assert!(map.contains_key("a"));
    /// ```
    #[inline]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        Q: ?Sized + Hash + Equivalent<K>,
    {
        self.pin().contains_key(key)
    }

    /// A copy of the value of a key; as [`MapRef::get`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// assert_eq!(map.get_cloned("a"), Some(1));
    /// ```
    #[inline]
    pub fn get_cloned<Q>(&self, key: &Q) -> Option<V>
    where
        V: Clone,
        Q: ?Sized + Hash + Equivalent<K>,
    {
        self.pin().get(key).cloned()
    }

    /// Calls `read` with the value of a key, if it is present, and returns the result; as
    /// [`MapRef::get`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", vec![1, 2, 3])]);
    /// assert_eq!(map.get_with("a", |list| list.len()), Some(3));
    /// ```
    #[inline]
    pub fn get_with<Q, R>(&self, key: &Q, read: impl FnOnce(&V) -> R) -> Option<R>
    where
        Q: ?Sized + Hash + Equivalent<K>,
    {
        self.pin().get(key).map(read)
    }

    /// Inserts or replaces a value; as [`MapRef::insert`], which returns the old value. Returns
    /// whether the key was absent.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::new();
    /// assert!(map.insert("a", 1));
    /// assert!(!map.insert("a", 2));
    /// assert_eq!(map.get_cloned("a"), Some(2));
    /// ```
    #[inline]
    pub fn insert(&self, key: K, value: V) -> bool {
        self.pin().insert(key, value).is_none()
    }

    /// Removes a key; as [`MapRef::remove`], which returns the value. Returns whether the key was
    /// present.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// assert!(map.remove("a"));
    /// assert!(!map.remove("a"));
    /// ```
    #[inline]
    pub fn remove<Q>(&self, key: &Q) -> bool
    where
        Q: ?Sized + Hash + Equivalent<K>,
    {
        self.pin().remove(key).is_some()
    }

    /// Replaces the value of a key by the result of `change`, or inserts `value` if the key is
    /// absent; as [`MapRef::update_or_insert`], which returns the new value.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let counts = RelativisticMap::new();
    /// for word in ["a", "rose", "is", "a", "rose"] {
    ///     counts.update_or_insert(word, |count| count + 1, 1);
    /// }
    /// assert_eq!(counts.get_cloned("rose"), Some(2));
    /// ```
    pub fn update_or_insert(&self, key: K, change: impl FnMut(&V) -> V, value: V) {
        self.pin().update_or_insert(key, change, value);
    }
}

impl<K, V, S> RelativisticMap<K, V, S> {
    /// Removes the entries for which `is_to_stay` returns false; as [`MapRef::retain`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map: RelativisticMap<u64, u64> = (0..10).map(|n| (n, n * n)).collect();
    /// map.retain(|_, square| square % 2 == 0);
    /// assert_eq!(map.len(), 5);
    /// ```
    pub fn retain(&self, is_to_stay: impl FnMut(&K, &V) -> bool) {
        self.pin().retain(is_to_stay);
    }

    /// Removes all entries; as [`MapRef::clear`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// map.clear();
    /// assert!(map.is_empty());
    /// ```
    pub fn clear(&self) {
        self.pin().clear();
    }
}
