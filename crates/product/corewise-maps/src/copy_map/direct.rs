//! Operations of the map itself, each in a section that it enters for the occasion.
//!
//! Entering one takes two nanoseconds.

use std::fmt;
use std::hash::BuildHasher;
use std::iter::FusedIterator;
use std::mem::MaybeUninit;
use std::ptr;

use super::{CopyMap, CopyMapRef, Full, Iter, Limit, Table};

/// Single operations, without a handle. [`pin`](Self::pin) gives a [`CopyMapRef`], which has more,
/// and is cheaper for several.
impl<T: Table, S: BuildHasher, L> CopyMap<T, S, L> {
    /// Returns the value of a key; as [`CopyMapRef::get`].
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let squares = LockBased::from([(2, 4), (3, 9)]);
    /// assert_eq!(squares.get(&3), Some(9));
    /// ```
    #[inline]
    pub fn get(&self, key: &T::Key) -> Option<T::Value> {
        self.pin().get(key)
    }

    /// Whether the key is present; as [`CopyMapRef::contains_key`].
    ///
    /// ```
    /// # use corewise_maps::cuckoo::CuckooMap;
    /// let primes = CuckooMap::from([(2, ()), (3, ())]);
    /// assert!(primes.contains_key(&3) && !primes.contains_key(&4));
    /// ```
    #[inline]
    pub fn contains_key(&self, key: &T::Key) -> bool {
        self.pin().contains_key(key)
    }

    /// Replaces the value of a key with `f(old)`; as [`CopyMapRef::update`].
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let stock = LockBased::from([(b'p', 2)]);
    /// assert_eq!(stock.update(&b'p', |n| n + 1), Some(3));
    /// ```
    #[inline]
    pub fn update(&self, key: &T::Key, f: impl FnMut(T::Value) -> T::Value) -> Option<T::Value> {
        self.pin().update(key, f)
    }

    /// Removes a key and returns its value; as [`CopyMapRef::remove`].
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let map = LockBased::from([(1, 2)]);
    /// assert_eq!((map.remove(&1), map.remove(&1)), (Some(2), None));
    /// ```
    #[inline]
    pub fn remove(&self, key: &T::Key) -> Option<T::Value> {
        self.pin().remove(key)
    }

    /// Iterates over all entries, in no particular order; as [`CopyMapRef::iter`].
    ///
    /// ```
    /// # use corewise_maps::cuckoo::CuckooMap;
    /// let squares = CuckooMap::from([(2, 4), (3, 9)]);
    /// let mut pairs: Vec<_> = squares.iter().collect(); // or `for (key, value) in &squares`
    /// pairs.sort();
    /// assert_eq!(pairs, [(2, 4), (3, 9)]);
    /// ```
    pub fn iter(&self) -> PinnedIter<'_, T, S, L> {
        let handle = self.pin();
        let version = ptr::from_ref(handle.version());
        // SAFETY: the section of the handle keeps the table, and the iterator is dropped before the
        // handle.
        let iter = Iter::new(self.hasher(), unsafe { &*version });
        PinnedIter {
            iter: MaybeUninit::new(iter),
            _handle: handle,
        }
    }

    /// Removes the entries for which `is_to_stay` returns false; as [`CopyMapRef::retain`].
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let squares: LockBased<u64, u64> = (0..10).map(|n| (n, n * n)).collect();
    /// squares.retain(|_, square| square % 2 == 0);
    /// assert_eq!(squares.len(), 5);
    /// ```
    pub fn retain(&self, is_to_stay: impl FnMut(T::Key, T::Value) -> bool) {
        self.pin().retain(is_to_stay);
    }

    /// Removes all entries; as [`CopyMapRef::clear`].
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let map = LockBased::from([(1, 2), (3, 4)]);
    /// map.clear();
    /// assert!(map.is_empty());
    /// ```
    pub fn clear(&self) {
        self.pin().clear();
    }
}

/// Single operations that insert: they return a `Result` if the map has a byte limit.
impl<T: Table, S: BuildHasher, L: Limit> CopyMap<T, S, L> {
    /// Inserts a pair; returns the value that it replaces. As [`CopyMapRef::insert`], which lists
    /// errors and panics.
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let map = LockBased::new();
    /// assert_eq!((map.insert(1, 'a'), map.insert(1, 'b')), (None, Some('a')));
    /// ```
    #[inline]
    pub fn insert(&self, key: T::Key, value: T::Value) -> L::Answer<Option<T::Value>, Full> {
        self.pin().insert(key, value)
    }

    /// Returns the value of a key, and inserts the result of `make` if the key is absent; as
    /// [`CopyMapRef::get_or_insert_with`]. Several threads that find the key absent may call their
    /// `make` at the same time; one value is kept.
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let lengths = LockBased::new();
    /// assert_eq!(lengths.get_or_insert_with(1, || "some words".len()), 10);
    /// assert_eq!(lengths.get_or_insert_with(1, || unreachable!()), 10);
    /// ```
    pub fn get_or_insert_with(
        &self,
        key: T::Key,
        make: impl FnOnce() -> T::Value,
    ) -> L::Answer<T::Value, Full> {
        self.pin().get_or_insert_with(key, make)
    }

    /// Replaces the value of a key with `f(old)`, or inserts `value` if the key is absent; as
    /// [`CopyMapRef::update_or_insert`].
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let counts = LockBased::new();
    /// for letter in "banana".chars() {
    ///     counts.update_or_insert(letter, |n| n + 1, 1);
    /// }
    /// assert_eq!(counts.get(&'a'), Some(3));
    /// ```
    pub fn update_or_insert(
        &self,
        key: T::Key,
        f: impl FnMut(T::Value) -> T::Value,
        value: T::Value,
    ) -> L::Answer<T::Value, Full> {
        self.pin().update_or_insert(key, f, value)
    }
}

/// The entries of a map, in a section that lasts as long as the iterator; from [`CopyMap::iter`].
pub struct PinnedIter<'m, T: Table, S, L> {
    /// Initialized until the iterator is dropped. (As such it asserts no more than that, so the
    /// section may end while a function that takes the iterator runs.)
    iter: MaybeUninit<Iter<'m, T, S>>,
    /// Keeps the table.
    _handle: CopyMapRef<'m, T, S, corewise_rcu::Guard<'m>, L>,
}

impl<T: Table, S: BuildHasher, L> Iterator for PinnedIter<'_, T, S, L> {
    type Item = (T::Key, T::Value);

    fn next(&mut self) -> Option<Self::Item> {
        // SAFETY: initialized by `CopyMap::iter`, and the handle keeps the table.
        unsafe { self.iter.assume_init_mut() }.next()
    }
}

impl<T: Table, S: BuildHasher, L> FusedIterator for PinnedIter<'_, T, S, L> {}

impl<T: Table, S, L> fmt::Debug for PinnedIter<'_, T, S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PinnedIter(..)")
    }
}

impl<T: Table, S, L> Drop for PinnedIter<'_, T, S, L> {
    fn drop(&mut self) {
        // SAFETY: initialized by `CopyMap::iter`, not used again, and the handle still keeps the
        // table.
        unsafe { self.iter.assume_init_drop() };
    }
}

/// As [`CopyMap::iter`].
impl<'m, T: Table, S: BuildHasher, L> IntoIterator for &'m CopyMap<T, S, L> {
    type Item = (T::Key, T::Value);
    type IntoIter = PinnedIter<'m, T, S, L>;

    fn into_iter(self) -> PinnedIter<'m, T, S, L> {
        self.iter()
    }
}
