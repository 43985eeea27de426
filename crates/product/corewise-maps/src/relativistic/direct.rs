//! Operations of the map itself, each in a section that it enters. What they return stays in that
//! section.
//!
//! Entering one takes two nanoseconds.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr::NonNull;
use std::rc::Rc;

use super::handle::MapRef;
use super::iter::Nodes;
use super::map::{DefaultHasher, Node, RelativisticMap};
use crate::Equivalent;
use crate::collection::fused_iterators;

/// An entry of a [`RelativisticMap`], in a section that keeps it; dereferences to the value.
///
/// It locks nothing: other threads, and this one, may use the map meanwhile, and remove or replace
/// the entry, which this then still shows. While it lives, nothing that is removed from any map of
/// the domain is freed: keep it for as long as a function runs, and not while it waits. Clone the
/// value to keep it longer. It belongs to its thread, so the last expression of a closure for
/// another thread cannot be one: end it with a semicolon.
///
/// ```
/// use corewise_maps::RelativisticMap;
/// let ages = RelativisticMap::from([("ada", 36)]);
/// let ada = ages.get("ada").unwrap();
/// ages.remove("ada");
/// assert_eq!((*ada.key(), *ada), ("ada", 36));
/// ```
pub struct Ref<'m, K, V, S = DefaultHasher, H = MapRef<'m, K, V, S>> {
    /// Not a reference: it would assert that the node lives until a function that takes this value
    /// returns.
    node: NonNull<Node<K, V>>,
    /// A handle, or a share of one: keeps the node.
    _handle: H,
    _map: PhantomData<&'m RelativisticMap<K, V, S>>,
}

impl<'m, K, V, S, H> Ref<'m, K, V, S, H> {
    /// # Safety
    ///
    /// 1. The node was found, linked or removed by the handle, or one that `handle` shares.
    #[inline(always)]
    unsafe fn new(node: NonNull<Node<K, V>>, handle: H) -> Self {
        Self {
            node,
            _handle: handle,
            _map: PhantomData,
        }
    }

    #[inline(always)]
    fn node(&self) -> &Node<K, V> {
        // SAFETY: the handle's section keeps the node, by 1 of `new`, and lasts as long as the
        // reference.
        unsafe { self.node.as_ref() }
    }

    /// The key.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a".to_owned(), 1)]);
    /// assert_eq!(map.get("a").unwrap().key(), "a");
    /// ```
    #[inline]
    pub fn key(&self) -> &K {
        &self.node().key
    }

    /// The value, which this also dereferences to.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// assert_eq!(map.get("a").unwrap().value(), &1);
    /// ```
    #[inline]
    pub fn value(&self) -> &V {
        &self.node().value
    }
}

impl<K, V, S, H> Deref for Ref<'_, K, V, S, H> {
    type Target = V;

    #[inline]
    fn deref(&self) -> &V {
        self.value()
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S, H> fmt::Debug for Ref<'_, K, V, S, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ref")
            .field(self.key())
            .field(self.value())
            .finish()
    }
}

impl<K, V: fmt::Display, S, H> fmt::Display for Ref<'_, K, V, S, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value().fmt(f)
    }
}

impl<'m, K, V, S> MapRef<'m, K, V, S> {
    /// What `f` finds, and the handle with it.
    #[inline(always)]
    fn keep(
        self,
        f: impl for<'h> FnOnce(&'h MapRef<'m, K, V, S>) -> Option<&'h Node<K, V>>,
    ) -> Option<Ref<'m, K, V, S>> {
        let node = NonNull::from(f(&self)?);
        // SAFETY: `f` accepts every handle, so it can return no other node than one of the handle
        // (1).
        Some(unsafe { Ref::new(node, self) })
    }
}

/// Single operations, without a handle. [`pin`](Self::pin) gives a [`MapRef`], which has more, and
/// is cheaper for several.
impl<K, V, S> RelativisticMap<K, V, S>
where
    K: Eq + Hash,
    S: BuildHasher,
{
    /// The entry of a key; as [`MapRef::get`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// assert_eq!(map.get("a").as_deref(), Some(&1));
    /// assert!(map.get("b").is_none());
    /// ```
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<Ref<'_, K, V, S>>
    where
        Q: ?Sized + Hash + Equivalent<K>,
    {
        self.pin().keep(|map| map.find(self.hash(key), key))
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

    /// Inserts or replaces a value, and returns the old entry; as [`MapRef::insert`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::new();
    /// assert!(map.insert("a", 1).is_none());
    /// assert_eq!(map.insert("a", 2).as_deref(), Some(&1));
    /// ```
    #[inline]
    pub fn insert(&self, key: K, value: V) -> Option<Ref<'_, K, V, S>> {
        self.pin().keep(|map| map.put(key, value))
    }

    /// Returns the entry of a key, and inserts the result of `make` if the key is absent; as
    /// [`MapRef::get_or_insert_with`]. Several threads that find the key absent may call their
    /// `make` at the same time; one value is kept.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let squares = RelativisticMap::new();
    /// assert_eq!(*squares.get_or_insert_with(12, || 12 * 12), 144);
    /// assert_eq!(*squares.get_or_insert_with(12, || unreachable!()), 144);
    /// ```
    #[inline]
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> Ref<'_, K, V, S> {
        let kept = self
            .pin()
            .keep(|map| Some(map.node_or_insert_with(key, make)));
        kept.expect("the key is present")
    }

    /// Replaces the value of a key by the result of `change`, and returns the new entry, or `None`
    /// if the key is absent; as [`MapRef::update`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("hits", 1)]);
    /// assert_eq!(map.update("hits", |hits| hits + 1).as_deref(), Some(&2));
    /// ```
    pub fn update<Q>(&self, key: &Q, change: impl FnMut(&V) -> V) -> Option<Ref<'_, K, V, S>>
    where
        K: Clone,
        Q: ?Sized + Hash + Equivalent<K>,
    {
        self.pin().keep(|map| map.updated_node(key, change))
    }

    /// Replaces the value of a key by the result of `change`, or inserts `value` if the key is
    /// absent, and returns the new entry; as [`MapRef::update_or_insert`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let counts = RelativisticMap::new();
    /// for word in ["a", "rose", "is", "a", "rose"] {
    ///     counts.update_or_insert(word, |count| count + 1, 1);
    /// }
    /// assert_eq!(counts.get_cloned("rose"), Some(2));
    /// ```
    pub fn update_or_insert(
        &self,
        key: K,
        change: impl FnMut(&V) -> V,
        value: V,
    ) -> Ref<'_, K, V, S> {
        let hash = self.hash(&key);
        let kept = self
            .pin()
            .keep(|map| Some(map.upsert(hash, key, change, |_| value)));
        kept.expect("the key is present")
    }

    /// Removes a key and returns its entry; as [`MapRef::remove`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// assert_eq!(map.remove("a").as_deref(), Some(&1));
    /// assert!(map.remove("a").is_none());
    /// ```
    #[inline]
    pub fn remove<Q>(&self, key: &Q) -> Option<Ref<'_, K, V, S>>
    where
        Q: ?Sized + Hash + Equivalent<K>,
    {
        self.pin().keep(|map| map.removed_node(key))
    }
}

impl<K, V, S> RelativisticMap<K, V, S> {
    /// An iterator over the entries, in no order; as [`MapRef::iter`], which yields plain
    /// references, costs no allocation, and counts nothing.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1), ("b", 2)]);
    /// for entry in &map { // or `map.iter()`
    ///     println!("{}: {}", entry.key(), *entry);
    /// }
    /// assert_eq!(map.iter().map(|entry| *entry).sum::<i32>(), 3);
    /// ```
    pub fn iter(&self) -> RefIter<'_, K, V, S> {
        let handle = Rc::new(self.pin());
        // SAFETY: the iterator keeps the handle, and so does every entry that it yields (1).
        let nodes = unsafe { handle.nodes_of_map() };
        RefIter {
            nodes: MaybeUninit::new(nodes),
            handle,
        }
    }

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

/// Iterator over the entries of a map, which stays in a section; returned by
/// [`RelativisticMap::iter`].
pub struct RefIter<'m, K, V, S = DefaultHasher> {
    /// Initialized. (As such it asserts no more than that, so the section may end while a function
    /// that takes the iterator runs.)
    nodes: MaybeUninit<Nodes<'m, K, V>>,
    handle: Rc<MapRef<'m, K, V, S>>,
}

impl<'m, K, V, S> Iterator for RefIter<'m, K, V, S> {
    type Item = Ref<'m, K, V, S, Rc<MapRef<'m, K, V, S>>>;

    fn next(&mut self) -> Option<Self::Item> {
        // SAFETY: initialized by `RelativisticMap::iter`, and the section of the handle lasts.
        let node = unsafe { self.nodes.assume_init_mut() }.next()?;
        // SAFETY: found in the section of the handle (1).
        Some(unsafe { Ref::new(NonNull::from(node), self.handle.clone()) })
    }
}

fused_iterators! {
    [K, V, S] RefIter<'_, K, V, S>;
}

/// As [`RelativisticMap::iter`].
impl<'m, K, V, S> IntoIterator for &'m RelativisticMap<K, V, S> {
    type Item = Ref<'m, K, V, S, Rc<MapRef<'m, K, V, S>>>;
    type IntoIter = RefIter<'m, K, V, S>;

    fn into_iter(self) -> RefIter<'m, K, V, S> {
        self.iter()
    }
}
