//! The operations of [`MapRef`]: lookups, updates and entries.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};

use corewise_rcu::{BacklogFull, Pressure, Section};

use super::map::{Fresh, MapRef, Node};

/// The key is already present; returned by [`MapRef::try_insert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OccupiedError<'h, V> {
    /// The value of the key.
    pub current: &'h V,
    /// The value that was not inserted.
    pub not_inserted: V,
}

impl<V> fmt::Display for OccupiedError<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the key has a value already")
    }
}

impl<V: fmt::Debug> std::error::Error for OccupiedError<'_, V> {}

/// The decision that [`MapRef::compute`] carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<V, T = ()> {
    /// Insert the value, or replace the present one by it.
    Insert(V),
    /// Remove the entry, if it is present.
    Remove,
    /// Change nothing.
    Abort(T),
}

/// The outcome of [`MapRef::compute`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compute<'h, K, V, T = ()> {
    /// The key was absent and now has this entry.
    Inserted(&'h K, &'h V),
    /// The value was replaced.
    Updated {
        /// The entry before the update.
        old: (&'h K, &'h V),
        /// The entry after the update.
        new: (&'h K, &'h V),
    },
    /// The entry was removed.
    Removed(&'h K, &'h V),
    /// Nothing was changed: the closure aborted, or removed an absent entry (`None`).
    Aborted(Option<T>),
}

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
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
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
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash + 'q,
    {
        self.find_many(keys, out, |node| node.map(|node| &node.value));
    }

    /// Returns the stored key and its value. Wait-free.
    #[inline]
    pub fn get_key_value<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        self.find(self.map().hash(key), key).map(Node::pair)
    }

    /// Whether the key is present. Wait-free.
    #[inline]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        self.find(self.map().hash(key), key).is_some()
    }
}

/// Updates.
impl<'m, K, V, S, G> MapRef<'m, K, V, S, G>
where
    K: Eq + Hash,
    S: BuildHasher,
    G: Section,
{
    /// Inserts or replaces a value and returns the old value. The stored key is replaced too.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::new();
    /// let map = map.pin();
    /// assert_eq!(map.insert("a", 1), None);
    /// assert_eq!(map.insert("a", 2), Some(&1));
    /// ```
    #[inline]
    pub fn insert(&self, key: K, value: V) -> Option<&V> {
        let hash = self.map().hash(&key);
        let mut fresh = self.make(hash, key, value);
        loop {
            let (found, back) = match fresh.link() {
                Ok(_) => return None,
                Err(occupied) => occupied,
            };
            // SAFETY: 1: found by the hash of the new node.
            fresh = match unsafe { back.swap(found) } {
                Ok(_) => return Some(&found.value),
                Err(back) => back,
            };
        }
    }

    /// Inserts a value if the key is absent, and returns the stored value.
    ///
    /// # Errors
    ///
    /// [`OccupiedError`] with both values if the key is present.
    #[inline]
    pub fn try_insert(&self, key: K, value: V) -> Result<&V, OccupiedError<'_, V>> {
        let hash = self.map().hash(&key);
        // Looking the key up twice, now in the cache, costs less than creating a node in vain.
        if let Some(found) = self.find(hash, &key) {
            // Before `value` is moved into the result: it would be leaked if this panicked.
            drop(key);
            return Err(OccupiedError {
                current: &found.value,
                not_inserted: value,
            });
        }
        match self.make(hash, key, value).link() {
            Ok(node) => Ok(&node.value),
            Err((found, fresh)) => Err(OccupiedError {
                current: &found.value,
                not_inserted: fresh.into_value(),
            }),
        }
    }

    /// Returns the value of a key, and inserts the result of `make` if the key is absent.
    ///
    /// If another thread inserts the key first, its value is returned and ours is dropped.
    #[inline]
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> &V {
        let hash = self.map().hash(&key);
        if let Some(node) = self.find(hash, &key) {
            return &node.value;
        }
        match self.make(hash, key, make()).link() {
            Ok(node) => &node.value,
            Err((found, _)) => &found.value,
        }
    }

    /// As [`get_or_insert_with`](Self::get_or_insert_with), with a given value.
    #[inline]
    pub fn get_or_insert(&self, key: K, value: V) -> &V {
        self.get_or_insert_with(key, || value)
    }

    /// Replaces the value of a key by the result of `change`. Returns the new value, or `None` if
    /// the key is absent.
    ///
    /// Atomic: `change` is called again if another thread updates the entry first.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("hits", 1)]);
    /// assert_eq!(map.pin().update("hits", |hits| hits + 1), Some(&2));
    /// ```
    pub fn update<Q>(&self, key: &Q, mut change: impl FnMut(&V) -> V) -> Option<&V>
    where
        K: Borrow<Q> + Clone,
        Q: ?Sized + Eq + Hash,
    {
        let hash = self.map().hash(key);
        loop {
            let found = self.find(hash, key)?;
            let value = change(&found.value);
            let fresh = self.make(hash, found.key.clone(), value);
            // SAFETY: 1: found by this hash.
            if let Ok(node) = unsafe { fresh.swap(found) } {
                return Some(&node.value);
            }
        }
    }

    /// Inserts, replaces or removes the entry of a key as `decide` says, given the present entry.
    ///
    /// Atomic: `decide` is called again if another thread updates the entry first.
    ///
    /// ```
    /// # use corewise_maps::relativistic::{Compute, Operation, RelativisticMap};
    /// let stock = RelativisticMap::from([("pears", 1)]);
    /// let stock = stock.pin();
    /// let take = |entry: Option<(&&str, &u32)>| match entry {
    ///     None => Operation::Abort("none left"),
    ///     Some((_, 1)) => Operation::Remove,
    ///     Some((_, n)) => Operation::Insert(n - 1),
    /// };
    /// assert!(matches!(stock.compute("pears", take), Compute::Removed(..)));
    /// assert_eq!(stock.compute("pears", take), Compute::Aborted(Some("none left")));
    /// ```
    pub fn compute<T>(
        &self,
        key: K,
        mut decide: impl FnMut(Option<(&K, &V)>) -> Operation<V, T>,
    ) -> Compute<'_, K, V, T>
    where
        K: Clone,
    {
        let hash = self.map().hash(&key);
        loop {
            let found = self.find(hash, &key);
            let done = match (decide(found.map(Node::pair)), found) {
                (Operation::Abort(result), _) => return Compute::Aborted(Some(result)),
                (Operation::Remove, None) => return Compute::Aborted(None),
                (Operation::Remove, Some(old)) => {
                    let removed = Compute::Removed(&old.key, &old.value);
                    // SAFETY: 1: found above.
                    unsafe { self.unlink(old) }.then_some(removed)
                }
                (Operation::Insert(value), Some(old)) => {
                    let fresh = self.make(hash, key.clone(), value);
                    // SAFETY: 1: found by this hash.
                    let new = unsafe { fresh.swap(old) }.ok();
                    new.map(|new| Compute::Updated {
                        old: old.pair(),
                        new: new.pair(),
                    })
                }
                (Operation::Insert(value), None) => {
                    let fresh = self.make(hash, key.clone(), value);
                    let new = fresh.link().ok();
                    new.map(|new| Compute::Inserted(&new.key, &new.value))
                }
            };
            if let Some(done) = done {
                return done;
            }
        }
    }

    /// Removes a key and returns its value.
    #[inline]
    pub fn remove<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        self.remove_entry(key).map(|(_, value)| value)
    }

    /// As [`remove`](Self::remove), and also returns the stored key.
    #[inline]
    pub fn remove_entry<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        let hash = self.map().hash(key);
        loop {
            let found = self.find(hash, key)?;
            // SAFETY: 1: found above.
            if unsafe { self.unlink(found) } {
                return Some(found.pair());
            }
        }
    }

    /// Removes and returns the entry of a key if `is_to_go` returns true for it. Returns `None` if
    /// the key is absent.
    ///
    /// # Errors
    ///
    /// The entry, if `is_to_go` returns false.
    pub fn remove_if<Q>(
        &self,
        key: &Q,
        mut is_to_go: impl FnMut(&K, &V) -> bool,
    ) -> Result<Option<(&K, &V)>, (&K, &V)>
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        let hash = self.map().hash(key);
        loop {
            let Some(found) = self.find(hash, key) else {
                return Ok(None);
            };
            if !is_to_go(&found.key, &found.value) {
                return Err(found.pair());
            }
            // SAFETY: 1: found above.
            if unsafe { self.unlink(found) } {
                return Ok(Some(found.pair()));
            }
        }
    }

    /// As [`insert`](Self::insert), unless too much memory already waits for readers.
    ///
    /// # Errors
    ///
    /// [`BacklogFull`] with key and value if the backlog of removed and replaced entries is over
    /// its hard limit ([`Builder::backlog_limits`](super::Builder::backlog_limits)): drop your
    /// guards, and find out which threads hold one
    /// ([`Domain::stalls`](corewise_rcu::Domain::stalls)).
    pub fn try_upsert(&self, key: K, value: V) -> Result<Option<&V>, BacklogFull<(K, V)>> {
        if self.map().pressure() == Pressure::OverHard {
            return Err(BacklogFull((key, value)));
        }
        Ok(self.insert(key, value))
    }

    /// As [`remove`](Self::remove), unless too much memory already waits for readers.
    ///
    /// # Errors
    ///
    /// [`BacklogFull`], as for [`try_upsert`](Self::try_upsert).
    pub fn try_remove<Q>(&self, key: &Q) -> Result<Option<&V>, BacklogFull<()>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        if self.map().pressure() == Pressure::OverHard {
            return Err(BacklogFull(()));
        }
        Ok(self.remove(key))
    }

    /// Returns the entry of a key as it is now, for inspection and updates.
    ///
    /// Nothing is locked: other threads may change the entry at any time. Updates through the
    /// returned entry then fail with an error. ([`compute`](Self::compute) retries by itself.)
    ///
    /// ```
    /// # use corewise_maps::relativistic::{Entry, RelativisticMap};
    /// let map = RelativisticMap::from([("a", 1)]);
    /// let map = map.pin();
    /// match map.entry("a") {
    ///     Entry::Occupied(entry) => assert_eq!(entry.remove(), Ok(&1)),
    ///     Entry::Vacant(entry) => assert!(entry.insert(7).is_ok()),
    /// }
    /// assert!(map.is_empty());
    /// ```
    pub fn entry<'h>(&'h self, key: K) -> Entry<'h, 'm, K, V, S, G> {
        let hash = self.map().hash(&key);
        match self.find(hash, &key) {
            Some(node) => Entry::Occupied(OccupiedEntry {
                handle: self,
                node,
                hash,
                key,
            }),
            None => Entry::Vacant(VacantEntry {
                handle: self,
                hash,
                key,
            }),
        }
    }

    /// Removes the entries for which `is_to_stay` returns false. Visits the entries that
    /// [`iter`](Self::iter) yields; an entry that is replaced meanwhile stays.
    pub fn retain(&self, mut is_to_stay: impl FnMut(&K, &V) -> bool) {
        for node in self.nodes() {
            if !is_to_stay(&node.key, &node.value) {
                // SAFETY: 1: found by this handle's iteration.
                unsafe { self.unlink(node) };
            }
        }
    }

    /// Removes all entries that are present when it begins.
    pub fn clear(&self) {
        self.retain(|_, _| false);
    }
}

/// The entry of a key; returned by [`MapRef::entry`].
pub enum Entry<'h, 'm, K, V, S, G: Section> {
    /// The key is present.
    Occupied(OccupiedEntry<'h, 'm, K, V, S, G>),
    /// The key is absent.
    Vacant(VacantEntry<'h, 'm, K, V, S, G>),
}

/// An entry that was present when it was looked up.
pub struct OccupiedEntry<'h, 'm, K, V, S, G: Section> {
    handle: &'h MapRef<'m, K, V, S, G>,
    node: &'h Node<K, V>,
    /// The hash that it was found by: the key's own code may return another one by now.
    hash: u64,
    key: K,
}

/// A key that was absent when it was looked up.
pub struct VacantEntry<'h, 'm, K, V, S, G: Section> {
    handle: &'h MapRef<'m, K, V, S, G>,
    hash: u64,
    key: K,
}

/// The entry was removed or replaced by another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed;

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("another thread has removed or replaced the entry")
    }
}

impl std::error::Error for Changed {}

impl<'h, K, V, S, G> OccupiedEntry<'h, '_, K, V, S, G>
where
    K: Eq + Hash,
    S: BuildHasher,
    G: Section,
{
    /// The stored key.
    pub fn key(&self) -> &'h K {
        &self.node.key
    }

    /// The value.
    pub fn get(&self) -> &'h V {
        &self.node.value
    }

    /// Removes the entry if it is unchanged, and returns its value.
    ///
    /// # Errors
    ///
    /// [`Changed`] if another thread has removed or replaced it.
    pub fn remove(self) -> Result<&'h V, Changed> {
        // SAFETY: 1: found by the handle when the entry was made.
        if unsafe { self.handle.unlink(self.node) } {
            Ok(&self.node.value)
        } else {
            Err(Changed)
        }
    }

    /// Replaces the value if the entry is unchanged, and returns the new, stored value.
    ///
    /// # Errors
    ///
    /// The given value, if another thread has removed or replaced the entry.
    pub fn replace(self, value: V) -> Result<&'h V, V> {
        let fresh = self.handle.make(self.hash, self.key, value);
        // SAFETY: 1: found by the handle, by this hash, when the entry was made.
        match unsafe { fresh.swap(self.node) } {
            Ok(node) => Ok(&node.value),
            Err(fresh) => Err(fresh.into_value()),
        }
    }
}

impl<'h, K, V, S, G> VacantEntry<'h, '_, K, V, S, G>
where
    K: Eq + Hash,
    S: BuildHasher,
    G: Section,
{
    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Inserts a value if the key is still absent.
    ///
    /// # Errors
    ///
    /// [`OccupiedError`] if the key is present.
    pub fn insert(self, value: V) -> Result<&'h V, OccupiedError<'h, V>> {
        let fresh: Fresh<'h, '_, K, V, S, G> = self.handle.make(self.hash, self.key, value);
        match fresh.link() {
            Ok(node) => Ok(&node.value),
            Err((found, fresh)) => Err(OccupiedError {
                current: &found.value,
                not_inserted: fresh.into_value(),
            }),
        }
    }
}
