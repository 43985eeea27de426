//! What the exclusive owner of a map can do, without a handle.
//!
//! 1. *No other user.* `&mut` excludes every handle, since handles borrow the map, and so every
//!    reference to its entries.
//! 2. *One `&mut` for each value.* Iterators walk the chains of the newest table, and yield a node
//!    in the bucket of the hash that it was inserted with. A node is in one chain, once, whatever
//!    `Hash` and `Eq` of its key say now; neither is called. This holds in the middle of a resize:
//!    every node can be reached from its bucket of the newest table.
//! 3. *Entries that were removed or replaced* and wait for readers are in no chain, so they are not
//!    visited. They are dropped when they would have been anyhow.
//! 4. *Taking entries out* first completes a resize under way, so that a node has one link and no
//!    resize refers to it. Then its memory can be used again at once.

use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::chain::Link;
use super::map::{Node, RelativisticMap};
use super::raw::RawIter;
use super::slab::Slabs;
use crate::Equivalent;
use crate::collection::fused_iterators;
use crate::panics::Panics;
use crate::shared::Shared;

/// Operations of the exclusive owner.
impl<K, V, S> RelativisticMap<K, V, S> {
    /// The value of a key, to change it in place. Constant expected time; waits for nothing.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let mut map = RelativisticMap::from([("a", 1)]);
    /// if let Some(n) = map.get_mut("a") {
    ///     *n += 1;
    /// }
    /// assert_eq!(map.pin().get("a"), Some(&2));
    /// ```
    pub fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Eq + Hash,
        Q: ?Sized + Hash + Equivalent<K>,
        S: BuildHasher,
    {
        let link = self.pin().find_link(self.hash(key), key)?;
        // SAFETY: a link of a node of this map, which nothing frees while the map is ours alone.
        // The reference borrows the map exclusively.
        Some(unsafe { &mut (*link.cast::<Node<K, V>>().as_ptr()).value })
    }

    /// An iterator over the entries, in no order, to change the values in place.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let mut map = RelativisticMap::from([("a", 1), ("b", 2)]);
    /// map.iter_mut().for_each(|(_, n)| *n *= 10);
    /// assert_eq!(map, RelativisticMap::from([("a", 10), ("b", 20)]));
    /// ```
    pub fn iter_mut(&mut self) -> IterMut<'_, K, V> {
        // SAFETY: the map is borrowed exclusively as long as the iterator and what it yields, so no
        // other thread uses the table or resizes it (1).
        let raw = unsafe { self.raw.iter_alone() };
        IterMut {
            raw,
            _nodes: PhantomData,
        }
    }

    /// An iterator over the values, in no order, to change them in place.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let mut map = RelativisticMap::from([("a", 1)]);
    /// map.values_mut().for_each(|n| *n += 1);
    /// assert_eq!(map.pin().get("a"), Some(&2));
    /// ```
    pub fn values_mut(&mut self) -> ValuesMut<'_, K, V> {
        ValuesMut(self.iter_mut())
    }

    /// Keeps only the entries for which `is_to_stay` returns true. The closure may change the
    /// values.
    ///
    /// The removed entries are dropped later, as those that a handle removes.
    /// ([`drain`](Self::drain) returns entries.)
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let mut lives = RelativisticMap::from([("tom", 9), ("kitty", 1)]);
    /// lives.retain_mut(|_, lives| {
    ///     *lives -= 1;
    ///     *lives > 0
    /// });
    /// assert_eq!(lives, RelativisticMap::from([("tom", 8)]));
    /// ```
    pub fn retain_mut(&mut self, mut is_to_stay: impl FnMut(&K, &mut V) -> bool) {
        let handle = self.pin();
        // SAFETY: the handle lives longer than the loop (1).
        for link in unsafe { handle.raw_iter() } {
            let node = link.cast::<Node<K, V>>().as_ptr();
            // SAFETY: a node of this map, kept by the section. No other thread has the map, and the
            // references end before the closure is called again.
            let is_to_stay = unsafe { is_to_stay(&(*node).key, &mut (*node).value) };
            if !is_to_stay {
                // SAFETY: the section keeps the node, which the iteration of this handle found (1).
                unsafe { handle.unlink(&*node) };
            }
        }
    }

    /// Removes all entries and returns them; when the iterator is dropped, it removes the rest.
    ///
    /// The map keeps its buckets until it shrinks by itself or
    /// [`shrink_to_fit`](Self::shrink_to_fit). Linear in the number of buckets and entries. If the
    /// iterator is forgotten, the rest stays.
    ///
    /// Beside other threads, use [`MapRef::drain`](super::MapRef::drain).
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let mut map = RelativisticMap::from([("a".to_owned(), 1)]);
    /// let entries: Vec<(String, i32)> = map.drain().collect();
    /// assert_eq!(entries, [("a".to_owned(), 1)]);
    /// assert!(map.is_empty());
    /// ```
    pub fn drain(&mut self) -> DrainMut<'_, K, V, S> {
        self.finish_resize();
        // SAFETY: the map is borrowed exclusively as long as the iterator, and `take` advances no
        // resize (1).
        let raw = unsafe { self.raw.iter_alone() };
        DrainMut {
            map: self,
            raw,
            _exclusive: PhantomData,
        }
    }

    /// Completes a resize under way, without waiting for readers: there are none.
    fn finish_resize(&mut self) {
        let is_automatic = self.raw.is_automatic();
        self.raw.finish_alone();
        self.raw.set_automatic(is_automatic);
    }

    /// Takes an entry out of the table, and frees its node.
    ///
    /// # Safety
    ///
    /// 1. The caller owns the map exclusively, and has completed the resize under way.
    /// 2. `link` is that of a node in the table.
    unsafe fn take(&self, link: NonNull<Link>) -> (K, V) {
        let section = self.domain().pin();
        // SAFETY: the section is of the map's domain; in the table, by 2.
        let id = unsafe { self.raw.remove(&section, link) }.expect("in the table");
        // SAFETY: a node of this map, no longer in the table, so it is read once; no reader has it,
        // by 1.
        let Node { key, value, .. } = unsafe { self.node(id).read() };
        // SAFETY: the section is one of the map's domain. The contents of the node were moved out,
        // and no link leads to it, by 1, so no thread uses its slot. The magazine is one of this
        // map, whose slabs these are.
        unsafe {
            self.threads.count(&section, -1, |own, _| {
                own.unreported -= 1;
                self.slabs().free(&mut own.magazine, id);
            });
        }
        (key, value)
    }
}

/// Iterator over the entries of a map that lends the values exclusively; returned by
/// [`RelativisticMap::iter_mut`].
pub struct IterMut<'a, K, V> {
    raw: RawIter<'a, Slabs>,
    _nodes: PhantomData<&'a mut Node<K, V>>,
}

impl<'a, K, V> Iterator for IterMut<'a, K, V> {
    type Item = (&'a K, &'a mut V);

    fn next(&mut self) -> Option<(&'a K, &'a mut V)> {
        let node = self.raw.next()?.cast::<Node<K, V>>().as_ptr();
        // SAFETY: a node of the map, which is borrowed exclusively as long as the references; it is
        // yielded once.
        Some(unsafe { (&(*node).key, &mut (*node).value) })
    }
}

/// Iterator over the values of a map that lends them exclusively; returned by
/// [`RelativisticMap::values_mut`].
pub struct ValuesMut<'a, K, V>(IterMut<'a, K, V>);

impl<'a, K, V> Iterator for ValuesMut<'a, K, V> {
    type Item = &'a mut V;

    fn next(&mut self) -> Option<&'a mut V> {
        self.0.next().map(|(_, value)| value)
    }
}

/// Iterator that takes the entries out of a map; returned by [`RelativisticMap::drain`].
pub struct DrainMut<'a, K, V, S> {
    map: &'a RelativisticMap<K, V, S>,
    raw: RawIter<'a, Slabs>,
    _exclusive: PhantomData<&'a mut RelativisticMap<K, V, S>>,
}

impl<K, V, S> Iterator for DrainMut<'_, K, V, S> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        let link = self.raw.next()?;
        // SAFETY: `drain` has borrowed the map exclusively and completed the resize, and nothing
        // was inserted since (1). The iteration yields each node once, and it is in the table until
        // it is taken (2).
        Some(unsafe { self.map.take(link) })
    }
}

impl<K, V, S> Drop for DrainMut<'_, K, V, S> {
    fn drop(&mut self) {
        let mut panics = Panics::default();
        for entry in self.by_ref() {
            panics.catch(|| drop(entry));
        }
        self.map.report();
        panics.resume();
    }
}

/// Iterator that owns the entries of a map; returned by its [`IntoIterator`].
pub struct IntoIter<K, V, S> {
    raw: RawIter<'static, Slabs>,
    map: Shared<RelativisticMap<K, V, S>>,
}

impl<K, V, S> Iterator for IntoIter<K, V, S> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        let link = self.raw.next()?;
        // SAFETY: the map lives as long as its owner, which is here.
        let map = unsafe { self.map.address().as_ref() };
        // SAFETY: the map belongs to this iterator, `into_iter` has completed the resize, and
        // nothing was inserted since (1). The iteration yields each node once, and it is in the
        // table until it is taken (2).
        Some(unsafe { map.take(link) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // SAFETY: the map lives as long as its owner, which is here.
        let left = unsafe { self.map.address().as_ref() }.len();
        (left, Some(left))
    }
}

/// Yields the entries, in no order. What is not taken is dropped with the iterator.
///
/// ```
/// # use corewise_maps::RelativisticMap;
/// let map = RelativisticMap::from([("a".to_owned(), 1)]);
/// let entries: Vec<(String, i32)> = map.into_iter().collect();
/// assert_eq!(entries, [("a".to_owned(), 1)]);
/// ```
impl<K, V, S> IntoIterator for RelativisticMap<K, V, S> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V, S>;

    fn into_iter(mut self) -> IntoIter<K, V, S> {
        self.finish_resize();
        let map = Shared::new(self);
        // SAFETY: the map is at this address until `IntoIter` drops it together with `raw`.
        let raw = unsafe { &(*map.address().as_ptr()).raw };
        // SAFETY: only the iterator has the map, and `take` advances no resize (1).
        let raw = unsafe { raw.iter_alone() };
        IntoIter { raw, map }
    }
}

/// Yields the entries with their values to be changed, as [`RelativisticMap::iter_mut`].
impl<'a, K, V, S> IntoIterator for &'a mut RelativisticMap<K, V, S> {
    type Item = (&'a K, &'a mut V);
    type IntoIter = IterMut<'a, K, V>;

    fn into_iter(self) -> IterMut<'a, K, V> {
        self.iter_mut()
    }
}

fused_iterators! {
    [K, V] IterMut<'_, K, V>;
    [K, V] ValuesMut<'_, K, V>;
    [K, V, S] DrainMut<'_, K, V, S>;
    [K, V, S] IntoIter<K, V, S>;
}
