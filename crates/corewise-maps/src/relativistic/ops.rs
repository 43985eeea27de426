//! The operations of a handle.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};

use corewise_rcu::{BacklogFull, Pressure, Section};

use super::map::{Fresh, MapRef, Node};

/// The key was there already; from [`MapRef::try_insert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OccupiedError<'h, V> {
    /// The value that the key has.
    pub current: &'h V,
    /// The value that was to be inserted.
    pub not_inserted: V,
}

impl<V> fmt::Display for OccupiedError<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the key has a value already")
    }
}

impl<V: fmt::Debug> std::error::Error for OccupiedError<'_, V> {}

/// What [`MapRef::compute`] is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<V, T = ()> {
    /// Insert the value, or put it in the place of the one that is there.
    Insert(V),
    /// Remove the entry, if there is one.
    Remove,
    /// Leave everything as it is.
    Abort(T),
}

/// What [`MapRef::compute`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compute<'h, K, V, T = ()> {
    /// There was no entry, and now there is this one.
    Inserted(&'h K, &'h V),
    /// The entry had one value and has another.
    Updated {
        /// The entry that was there.
        old: (&'h K, &'h V),
        /// The entry that is there.
        new: (&'h K, &'h V),
    },
    /// The entry was removed.
    Removed(&'h K, &'h V),
    /// Nothing was changed: the closure said so, or wanted to remove what was not there (`None`).
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
    /// The value of a key. Wait-free, constant time expected.
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

    /// The values of several keys, in their order: what [`get`](Self::get) would say of each. Wait-free, constant
    /// time a key expected.
    ///
    /// The keys of a group of 64 wait for memory together. That pays in tables larger than the caches, for batches of
    /// 16 keys and more; smaller ones are looked up sooner one by one. Each lookup is linearizable by itself and takes
    /// effect between the call and the return; together they are no snapshot, and another thread's updates may come
    /// between them.
    ///
    /// # Panics
    ///
    /// If there are not as many places in `out` as keys; then nothing is looked up.
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

    /// The key as stored, and its value. Wait-free.
    #[inline]
    pub fn get_key_value<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        self.find(self.map().hash(key), key).map(Node::pair)
    }

    /// Whether the key has a value. Wait-free.
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
    /// Gives a key a value; the one it had before. The key as stored is replaced too.
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
            let (found, back) = match self.link(fresh) {
                Ok(_) => return None,
                Err(occupied) => occupied,
            };
            fresh = match self.swap(found, back) {
                Ok(_) => return Some(&found.value),
                Err(back) => back,
            };
        }
    }

    /// Gives a key a value if it has none; the value as stored.
    ///
    /// # Errors
    ///
    /// [`OccupiedError`] with both values if it has one.
    #[inline]
    pub fn try_insert(&self, key: K, value: V) -> Result<&V, OccupiedError<'_, V>> {
        let hash = self.map().hash(&key);
        // A node made for nothing would cost more than to look twice at what is in the cache then.
        if let Some(found) = self.find(hash, &key) {
            // Before the value is where it is returned: it would be forgotten if this panicked.
            drop(key);
            return Err(OccupiedError {
                current: &found.value,
                not_inserted: value,
            });
        }
        match self.link(self.make(hash, key, value)) {
            Ok(node) => Ok(&node.value),
            Err((found, fresh)) => Err(OccupiedError {
                current: &found.value,
                not_inserted: fresh.into_value(),
            }),
        }
    }

    /// The value of a key, which `make` makes if it has none. If another thread is faster, its
    /// value is returned and ours dropped.
    #[inline]
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> &V {
        let hash = self.map().hash(&key);
        if let Some(node) = self.find(hash, &key) {
            return &node.value;
        }
        match self.link(self.make(hash, key, make())) {
            Ok(node) => &node.value,
            Err((found, _)) => &found.value,
        }
    }

    /// As [`get_or_insert_with`](Self::get_or_insert_with), with a value that is there already.
    #[inline]
    pub fn get_or_insert(&self, key: K, value: V) -> &V {
        self.get_or_insert_with(key, || value)
    }

    /// Replaces the value of a key by what `change` makes of it; the new value, or `None` if it has
    /// none. Atomic: `change` is called again if another thread was faster.
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
            if let Ok(node) = self.swap(found, fresh) {
                return Some(&node.value);
            }
        }
    }

    /// Inserts, changes or removes the entry of a key, as `decide` says of what is there. Atomic:
    /// `decide` is called again if another thread was faster.
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
                    self.unlink(old).then_some(removed)
                }
                (Operation::Insert(value), Some(old)) => {
                    let fresh = self.make(hash, key.clone(), value);
                    let new = self.swap(old, fresh).ok();
                    new.map(|new| Compute::Updated {
                        old: old.pair(),
                        new: new.pair(),
                    })
                }
                (Operation::Insert(value), None) => {
                    let fresh = self.make(hash, key.clone(), value);
                    let new = self.link(fresh).ok();
                    new.map(|new| Compute::Inserted(&new.key, &new.value))
                }
            };
            if let Some(done) = done {
                return done;
            }
        }
    }

    /// Removes a key; the value it had.
    #[inline]
    pub fn remove<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        self.remove_entry(key).map(|(_, value)| value)
    }

    /// As [`remove`](Self::remove), with the key as stored.
    #[inline]
    pub fn remove_entry<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        let hash = self.map().hash(key);
        loop {
            let found = self.find(hash, key)?;
            if self.unlink(found) {
                return Some(found.pair());
            }
        }
    }

    /// Removes a key if `is_to_go` says so of its entry: the entry, `None` if there is none.
    ///
    /// # Errors
    ///
    /// The entry, if it is to stay.
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
            if self.unlink(found) {
                return Ok(Some(found.pair()));
            }
        }
    }

    /// As [`insert`](Self::insert), unless too much waits for readers already.
    ///
    /// # Errors
    ///
    /// [`BacklogFull`] with key and value if the backlog of removed and replaced entries is over its
    /// hard limit ([`Builder::backlog_limits`](super::Builder::backlog_limits)): drop your guards,
    /// and find out who holds one ([`Domain::stalls`](corewise_rcu::Domain::stalls)).
    pub fn try_upsert(&self, key: K, value: V) -> Result<Option<&V>, BacklogFull<(K, V)>> {
        if self.map().pressure() == Pressure::OverHard {
            return Err(BacklogFull((key, value)));
        }
        Ok(self.insert(key, value))
    }

    /// As [`remove`](Self::remove), unless too much waits for readers already.
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

    /// The entry of a key as it is now, to be looked at and changed.
    ///
    /// Nothing is locked: others may change the entry at any time, and then changes through this one
    /// fail and say so. ([`compute`](Self::compute) tries again by itself.)
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

    /// Removes the entries of which `is_to_stay` says no. Sees what [`iter`](Self::iter) sees; an
    /// entry that is replaced meanwhile stays.
    pub fn retain(&self, mut is_to_stay: impl FnMut(&K, &V) -> bool) {
        for node in self.nodes() {
            if !is_to_stay(&node.key, &node.value) {
                self.unlink(node);
            }
        }
    }

    /// Removes all entries that are there when it begins.
    pub fn clear(&self) {
        self.retain(|_, _| false);
    }
}

/// The entry of a key; from [`MapRef::entry`].
pub enum Entry<'h, 'm, K, V, S, G: Section> {
    /// It has a value.
    Occupied(OccupiedEntry<'h, 'm, K, V, S, G>),
    /// It has none.
    Vacant(VacantEntry<'h, 'm, K, V, S, G>),
}

/// An entry that was there.
pub struct OccupiedEntry<'h, 'm, K, V, S, G: Section> {
    handle: &'h MapRef<'m, K, V, S, G>,
    node: &'h Node<K, V>,
    /// With which it was found: the key's own code may say something else by now.
    hash: u64,
    key: K,
}

/// A key that had no entry.
pub struct VacantEntry<'h, 'm, K, V, S, G: Section> {
    handle: &'h MapRef<'m, K, V, S, G>,
    hash: u64,
    key: K,
}

/// Another thread has removed or replaced the entry.
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
    /// The key as stored.
    pub fn key(&self) -> &'h K {
        &self.node.key
    }

    /// The value.
    pub fn get(&self) -> &'h V {
        &self.node.value
    }

    /// Removes the entry, if it is still this one; its value.
    ///
    /// # Errors
    ///
    /// [`Changed`] if it is not.
    pub fn remove(self) -> Result<&'h V, Changed> {
        match self.handle.unlink(self.node) {
            true => Ok(&self.node.value),
            false => Err(Changed),
        }
    }

    /// Replaces the value, if the entry is still this one; the new value as stored.
    ///
    /// # Errors
    ///
    /// The value, if it is not.
    pub fn replace(self, value: V) -> Result<&'h V, V> {
        let fresh = self.handle.make(self.hash, self.key, value);
        match self.handle.swap(self.node, fresh) {
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

    /// Gives the key a value, if it still has none.
    ///
    /// # Errors
    ///
    /// [`OccupiedError`] if it has.
    pub fn insert(self, value: V) -> Result<&'h V, OccupiedError<'h, V>> {
        let fresh: Fresh<'h, '_, K, V, S, G> = self.handle.make(self.hash, self.key, value);
        match self.handle.link(fresh) {
            Ok(node) => Ok(&node.value),
            Err((found, fresh)) => Err(OccupiedError {
                current: &found.value,
                not_inserted: fresh.into_value(),
            }),
        }
    }
}
