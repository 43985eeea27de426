//! A set: a [`RelativisticMap`] with keys and no values.
//!
//! It has the map's guarantees and costs, and what is said there of an entry holds here for an
//! element. A node takes 8 bytes and the element.

mod traits;

use std::fmt;
use std::hash::{BuildHasher, Hash};

use corewise_rcu::{Guard, OwnedGuard, Section};

use super::exclusive;
use super::handle::MapRef;
use super::iter::Keys;
use super::map::{DefaultHasher, RelativisticMap};
use super::resize::ResizeError;
use crate::Equivalent;
use crate::collection::fused_iterators;

/// A concurrent hash set with wait-free lookups that a resize does not disturb.
///
/// [`pin`](Self::pin) creates a handle, a [`SetRef`], which has all operations and keeps the
/// references that it returns valid. The set itself has those that return none.
///
/// ```
/// use corewise_maps::RelativisticSet;
///
/// let seen = RelativisticSet::new();
/// std::thread::scope(|scope| {
///     for id in [7, 8, 7] {
///         let seen = &seen;
///         scope.spawn(move || seen.insert(id));
///     }
/// });
/// assert_eq!(seen.len(), 2);
/// assert!(seen.contains(&7));
/// ```
///
/// A set with other settings is made from a map with them:
///
/// ```
/// use corewise_maps::{RelativisticMap, RelativisticSet};
/// use corewise_rcu::Domain;
///
/// let builder = RelativisticMap::builder().capacity(1_000).domain(Domain::new());
/// let set = RelativisticSet::from(builder.build());
/// set.insert("a");
/// ```
pub struct RelativisticSet<T, S = DefaultHasher>(RelativisticMap<T, (), S>);

impl<T> RelativisticSet<T> {
    /// Creates an empty set.
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let set = RelativisticSet::new();
    /// assert!(set.insert("a"));
    /// ```
    pub fn new() -> Self {
        Self(RelativisticMap::new())
    }

    /// Creates an empty set with room for `elements` before it grows.
    ///
    /// # Panics
    ///
    /// If memory for the buckets is not available.
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let set = RelativisticSet::<u64>::with_capacity(10_000);
    /// assert!(set.as_map().resize_state().buckets >= 10_000);
    /// ```
    pub fn with_capacity(elements: usize) -> Self {
        Self(RelativisticMap::with_capacity(elements))
    }
}

impl<T, S> RelativisticSet<T, S> {
    /// Creates an empty set with this hasher.
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// use std::hash::RandomState;
    /// let set = RelativisticSet::with_hasher(RandomState::new());
    /// assert!(set.insert("a"));
    /// ```
    pub fn with_hasher(hasher: S) -> Self {
        Self(RelativisticMap::with_hasher(hasher))
    }

    /// Creates an empty set with this hasher and room for `elements` before it grows.
    ///
    /// # Panics
    ///
    /// If memory for the buckets is not available.
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// use std::hash::RandomState;
    /// let set = RelativisticSet::with_capacity_and_hasher(1_000, RandomState::new());
    /// assert!(set.insert("a"));
    /// ```
    pub fn with_capacity_and_hasher(elements: usize, hasher: S) -> Self {
        Self(RelativisticMap::with_capacity_and_hasher(elements, hasher))
    }

    /// The map that the elements are keys of, for settings, sizes and resizes.
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let set = RelativisticSet::<u64>::new();
    /// set.as_map().reserve(10_000)?;
    /// # Ok::<(), corewise_maps::relativistic::ResizeError>(())
    /// ```
    pub fn as_map(&self) -> &RelativisticMap<T, (), S> {
        &self.0
    }

    /// Creates a handle; as [`RelativisticMap::pin`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let set = RelativisticSet::from(["a".to_owned()]);
    /// assert_eq!(set.pin().get("a").map(String::as_str), Some("a"));
    /// ```
    #[inline(always)]
    pub fn pin(&self) -> SetRef<'_, T, S> {
        SetRef(self.0.pin())
    }

    /// Creates a handle that may be sent to another thread, and held over an `.await`; as
    /// [`RelativisticMap::pin_owned`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let set = RelativisticSet::from(["a"]);
    /// let handle = set.pin_owned();
    /// std::thread::scope(|scope| {
    ///     scope.spawn(move || assert!(handle.contains("a")));
    /// });
    /// ```
    pub fn pin_owned(&self) -> SetRef<'_, T, S, OwnedGuard<'_>> {
        SetRef(self.0.pin_owned())
    }

    /// Creates a handle in a section that the caller already has; as [`RelativisticMap::within`].
    ///
    /// # Panics
    ///
    /// If the section belongs to another domain than the set.
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let (here, there) = (RelativisticSet::from([1]), RelativisticSet::new());
    /// let guard = corewise_rcu::pin();
    /// if let Some(moved) = here.within(&guard).take(&1) {
    ///     there.within(&guard).insert(*moved);
    /// }
    /// ```
    pub fn within<'g, G: Section>(&'g self, section: &'g G) -> SetRef<'g, T, S, &'g G> {
        SetRef(self.0.within(section))
    }

    /// The number of elements; as exact as [`RelativisticMap::len`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// assert_eq!(RelativisticSet::from([1, 2, 1]).len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set is empty; as exact as [`len`](Self::len).
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// assert!(RelativisticSet::<u64>::new().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reserves room for `additional` elements; as [`RelativisticMap::reserve`].
    ///
    /// # Errors
    ///
    /// [`ResizeError::NoMemory`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let set = RelativisticSet::<u64>::new();
    /// set.reserve(10_000)?;
    /// assert!(set.as_map().resize_state().buckets >= 10_000);
    /// # Ok::<(), corewise_maps::relativistic::ResizeError>(())
    /// ```
    pub fn reserve(&self, additional: usize) -> Result<(), ResizeError> {
        self.0.reserve(additional)
    }

    /// Gives back the room that the elements do not need; as [`RelativisticMap::shrink_to_fit`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let set = RelativisticSet::<u64>::with_capacity(10_000);
    /// set.shrink_to_fit();
    /// set.as_map().settle()?;
    /// assert!(set.as_map().resize_state().buckets < 100);
    /// # Ok::<(), corewise_maps::relativistic::ResizeError>(())
    /// ```
    pub fn shrink_to_fit(&self) {
        self.0.shrink_to_fit();
    }

    /// Removes the elements for which `is_to_stay` returns false; as [`SetRef::retain`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let set: RelativisticSet<u64> = (0..10).collect();
    /// set.retain(|n| n % 2 == 0);
    /// assert_eq!(set.len(), 5);
    /// ```
    pub fn retain(&self, is_to_stay: impl FnMut(&T) -> bool) {
        self.pin().retain(is_to_stay);
    }

    /// Removes all elements; as [`SetRef::clear`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let set = RelativisticSet::from([1, 2]);
    /// set.clear();
    /// assert!(set.is_empty());
    /// ```
    pub fn clear(&self) {
        self.0.clear();
    }

    /// Removes all elements and returns them; as [`RelativisticMap::drain`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let mut set = RelativisticSet::from(["a".to_owned()]);
    /// assert_eq!(set.drain().collect::<Vec<String>>(), ["a"]);
    /// assert!(set.is_empty());
    /// ```
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.0.drain().map(|(element, ())| element)
    }
}

/// Single operations, without a handle.
impl<T, S> RelativisticSet<T, S>
where
    T: Eq + Hash,
    S: BuildHasher,
{
    /// Whether the element is present; as [`SetRef::contains`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// assert!(RelativisticSet::from(["a"]).contains("a"));
    /// ```
    #[inline]
    pub fn contains<Q>(&self, element: &Q) -> bool
    where
        Q: ?Sized + Hash + Equivalent<T>,
    {
        self.pin().contains(element)
    }

    /// Inserts an element, and returns whether it was absent; as [`SetRef::insert`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let set = RelativisticSet::new();
    /// assert!(set.insert("a"));
    /// assert!(!set.insert("a"));
    /// ```
    #[inline]
    pub fn insert(&self, element: T) -> bool {
        self.pin().insert(element)
    }

    /// Removes an element, and returns whether it was present; as [`SetRef::remove`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let set = RelativisticSet::from(["a"]);
    /// assert!(set.remove("a"));
    /// assert!(!set.remove("a"));
    /// ```
    #[inline]
    pub fn remove<Q>(&self, element: &Q) -> bool
    where
        Q: ?Sized + Hash + Equivalent<T>,
    {
        self.pin().remove(element)
    }
}

/// A handle of a [`RelativisticSet`]: a read-side critical section in which the set is used.
/// References that it returns are valid as long as the handle is borrowed; see [`MapRef`].
pub struct SetRef<'m, T, S = DefaultHasher, G: Section = Guard<'m>>(MapRef<'m, T, (), S, G>);

impl<'m, T, S, G> SetRef<'m, T, S, G>
where
    T: Eq + Hash,
    S: BuildHasher,
    G: Section,
{
    /// Whether the element is present. Wait-free, constant expected time.
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let set = RelativisticSet::from(["a".to_owned()]);
    /// assert!(set.pin().contains("a"));
    /// ```
    #[inline]
    pub fn contains<Q>(&self, element: &Q) -> bool
    where
        Q: ?Sized + Hash + Equivalent<T>,
    {
        self.0.contains_key(element)
    }

    /// The stored element that is equal to `element`. Wait-free.
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let names = RelativisticSet::from(["ada".to_owned()]);
    /// assert_eq!(names.pin().get("ada"), Some(&"ada".to_owned()));
    /// ```
    #[inline]
    pub fn get<Q>(&self, element: &Q) -> Option<&T>
    where
        Q: ?Sized + Hash + Equivalent<T>,
    {
        self.0.get_key_value(element).map(|(element, ())| element)
    }

    /// Looks up several elements; as [`MapRef::get_many`].
    ///
    /// # Panics
    ///
    /// If `out` and `elements` differ in length; then nothing is looked up.
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let set = RelativisticSet::from([1, 3]);
    /// let (set, mut found) = (set.pin(), [None; 3]);
    /// set.get_many(&[1, 2, 3], &mut found);
    /// assert_eq!(found, [Some(&1), None, Some(&3)]);
    /// ```
    pub fn get_many<'h, 'q, Q>(
        &'h self,
        elements: impl IntoIterator<Item = &'q Q, IntoIter: ExactSizeIterator>,
        out: &mut [Option<&'h T>],
    ) where
        Q: ?Sized + Hash + Equivalent<T> + 'q,
    {
        let element = |node: Option<_>| node.map(|node: &super::map::Node<T, ()>| &node.key);
        self.0.find_many(elements, out, element);
    }

    /// Inserts an element if it is absent, and returns whether it was. An equal element that is
    /// present stays; [`replace`](Self::replace) replaces it.
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let set = RelativisticSet::new();
    /// let set = set.pin();
    /// assert_eq!((set.insert("a"), set.insert("a")), (true, false));
    /// ```
    #[inline]
    pub fn insert(&self, element: T) -> bool {
        self.0.try_insert(element, ()).is_ok()
    }

    /// Inserts an element, and returns the equal one that it has replaced.
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let set = RelativisticSet::from(["a"]);
    /// assert_eq!(set.pin().replace("a"), Some(&"a"));
    /// ```
    pub fn replace(&self, element: T) -> Option<&T> {
        self.0.put(element, ()).map(|old| &old.key)
    }

    /// Returns the stored element that is equal to `element`, which is inserted if there is none.
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// use std::sync::Arc;
    /// let names = RelativisticSet::<Arc<str>>::new();
    /// let names = names.pin();
    /// let first = names.get_or_insert("ada".into());
    /// let second = names.get_or_insert("ada".into());
    /// assert!(Arc::ptr_eq(first, second));
    /// ```
    pub fn get_or_insert(&self, element: T) -> &T {
        let hash = self.0.map().hash(&element);
        if let Some(node) = self.0.find(hash, &element) {
            return &node.key;
        }
        match self.0.make(hash, element, ()).link() {
            Ok(node) | Err((node, _)) => &node.key,
        }
    }

    /// Removes an element, and returns whether it was present.
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let set = RelativisticSet::from(["a"]);
    /// let set = set.pin();
    /// assert_eq!((set.remove("a"), set.remove("a")), (true, false));
    /// ```
    #[inline]
    pub fn remove<Q>(&self, element: &Q) -> bool
    where
        Q: ?Sized + Hash + Equivalent<T>,
    {
        self.take(element).is_some()
    }

    /// Removes an element and returns it.
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let set = RelativisticSet::from(["a".to_owned()]);
    /// assert_eq!(set.pin().take("a"), Some(&"a".to_owned()));
    /// ```
    #[inline]
    pub fn take<Q>(&self, element: &Q) -> Option<&T>
    where
        Q: ?Sized + Hash + Equivalent<T>,
    {
        self.0.remove_entry(element).map(|(element, ())| element)
    }

    /// Removes and returns an element if `is_to_go` returns true for it; as
    /// [`MapRef::remove_if`]. Returns `None` if it is absent.
    ///
    /// # Errors
    ///
    /// The element, if `is_to_go` returns false.
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let set = RelativisticSet::from([7]);
    /// assert_eq!(set.pin().remove_if(&7, |n| *n > 7), Err(&7));
    /// assert_eq!(set.pin().remove_if(&7, |n| *n == 7), Ok(Some(&7)));
    /// ```
    pub fn remove_if<Q>(
        &self,
        element: &Q,
        mut is_to_go: impl FnMut(&T) -> bool,
    ) -> Result<Option<&T>, &T>
    where
        Q: ?Sized + Hash + Equivalent<T>,
    {
        match self.0.remove_if(element, |element, ()| is_to_go(element)) {
            Ok(removed) => Ok(removed.map(|(element, ())| element)),
            Err((element, ())) => Err(element),
        }
    }

    /// Whether every element is in the other set; meaningful while neither is being changed.
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let (few, many) = (RelativisticSet::from([1]), RelativisticSet::from([1, 2]));
    /// assert!(few.pin().is_subset(&many.pin()));
    /// ```
    pub fn is_subset<Z, H>(&self, other: &SetRef<'_, T, Z, H>) -> bool
    where
        Z: BuildHasher,
        H: Section,
    {
        self.iter().all(|element| other.contains(element))
    }

    /// Whether every element of the other set is in this one; meaningful while neither is being
    /// changed.
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let (few, many) = (RelativisticSet::from([1]), RelativisticSet::from([1, 2]));
    /// assert!(many.pin().is_superset(&few.pin()));
    /// ```
    pub fn is_superset<Z, H>(&self, other: &SetRef<'_, T, Z, H>) -> bool
    where
        Z: BuildHasher,
        H: Section,
    {
        other.is_subset(self)
    }

    /// Whether the sets have no element in common; meaningful while neither is being changed.
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let (odd, even) = (RelativisticSet::from([1, 3]), RelativisticSet::from([2]));
    /// assert!(odd.pin().is_disjoint(&even.pin()));
    /// ```
    pub fn is_disjoint<Z, H>(&self, other: &SetRef<'_, T, Z, H>) -> bool
    where
        Z: BuildHasher,
        H: Section,
    {
        !self.iter().any(|element| other.contains(element))
    }
}

impl<'m, T, S, G: Section> SetRef<'m, T, S, G> {
    /// The handle of the map that the elements are keys of.
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let set = RelativisticSet::from([1]);
    /// assert_eq!(set.pin().as_map().keys().next(), Some(&1));
    /// ```
    pub fn as_map(&self) -> &MapRef<'m, T, (), S, G> {
        &self.0
    }

    /// As [`RelativisticSet::len`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// assert_eq!(RelativisticSet::from([1, 2]).pin().len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// As [`RelativisticSet::is_empty`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// assert!(RelativisticSet::<u64>::new().pin().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// An iterator over the elements, in no order; visits what [`MapRef::iter`] does.
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let set = RelativisticSet::from([1, 2]);
    /// assert_eq!(set.pin().iter().sum::<i32>(), 3);
    /// ```
    pub fn iter(&self) -> Iter<'_, T> {
        Iter(self.0.keys())
    }

    /// Removes the elements for which `is_to_stay` returns false; as [`MapRef::retain`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let set: RelativisticSet<u64> = (0..10).collect();
    /// set.pin().retain(|n| n % 2 == 0);
    /// assert_eq!(set.len(), 5);
    /// ```
    pub fn retain(&self, mut is_to_stay: impl FnMut(&T) -> bool) {
        self.0.retain(|element, ()| is_to_stay(element));
    }

    /// Removes all elements; as [`MapRef::clear`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let set = RelativisticSet::from([1]);
    /// set.pin().clear();
    /// assert!(set.is_empty());
    /// ```
    pub fn clear(&self) {
        self.0.clear();
    }

    /// An iterator that removes the elements that it yields, and the rest when it is dropped;
    /// promises what [`MapRef::drain`] does.
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let jobs: RelativisticSet<u64> = (0..10).collect();
    /// assert_eq!(jobs.pin().drain().sum::<u64>(), 45);
    /// assert!(jobs.is_empty());
    /// ```
    pub fn drain(&self) -> impl Iterator<Item = &T> {
        self.0.drain().map(|(element, ())| element)
    }

    /// An iterator over the elements for which `is_to_go` returns true, which removes each as it
    /// yields it; as [`MapRef::extract_if`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticSet;
    /// let set: RelativisticSet<u64> = (0..10).collect();
    /// assert_eq!(set.pin().extract_if(|n| n % 2 == 0).count(), 5);
    /// assert_eq!(set.len(), 5);
    /// ```
    pub fn extract_if(&self, mut is_to_go: impl FnMut(&T) -> bool) -> impl Iterator<Item = &T> {
        let extracted = self.0.extract_if(move |element, ()| is_to_go(element));
        extracted.map(|(element, ())| element)
    }
}

/// Iterator over the elements of a set, in no order; returned by [`SetRef::iter`].
pub struct Iter<'h, T>(Keys<'h, T, ()>);

impl<'h, T> Iterator for Iter<'h, T> {
    type Item = &'h T;

    #[inline]
    fn next(&mut self) -> Option<&'h T> {
        self.0.next()
    }
}

/// Iterator that owns the elements of a set; returned by its [`IntoIterator`].
pub struct IntoIter<T, S>(exclusive::IntoIter<T, (), S>);

impl<T, S> Iterator for IntoIter<T, S> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.next().map(|(element, ())| element)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

fused_iterators! {
    [T] Iter<'_, T>;
    [T, S] IntoIter<T, S>;
}
