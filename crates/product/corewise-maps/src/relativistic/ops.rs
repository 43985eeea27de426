//! Updates.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use corewise_rcu::{BacklogFull, Pressure, Section};

use super::handle::MapRef;
use super::map::Node;
#[expect(unused_imports, reason = "for links")]
use super::map::RelativisticMap;
use crate::Equivalent;

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

/// The entry was removed or replaced by another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed;

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("another thread has removed or replaced the entry")
    }
}

impl std::error::Error for Changed {}

/// Updates.
impl<K, V, S, G> MapRef<'_, K, V, S, G>
where
    K: Eq + Hash,
    S: BuildHasher,
    G: Section,
{
    /// Inserts or replaces a value and returns the old value, which is dropped later; see
    /// [the map](RelativisticMap#when-keys-and-values-are-dropped). The stored key is replaced too.
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
        self.put(key, value).map(|old| &old.value)
    }

    /// Inserts or replaces an entry; returns the node that was replaced.
    #[inline]
    pub(super) fn put(&self, key: K, value: V) -> Option<&Node<K, V>> {
        let hash = self.map().hash(&key);
        let mut fresh = self.make(hash, key, value);
        loop {
            let (found, unlinked) = match fresh.link() {
                Ok(_) => return None,
                Err(occupied) => occupied,
            };
            // SAFETY: this handle found the node, by the hash of the new one (1).
            fresh = match unsafe { unlinked.swap(found) } {
                Ok(_) => return Some(found),
                // The present node has gone meanwhile: insert the new one.
                Err(unlinked) => unlinked,
            };
        }
    }

    /// Inserts a value if the key is absent, and returns the stored value.
    ///
    /// # Errors
    ///
    /// [`OccupiedError`] with both values if the key is present.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// let map = map.pin();
    /// assert_eq!(map.try_insert("b", 2), Ok(&2));
    /// assert_eq!(map.try_insert("a", 3).unwrap_err().current, &1);
    /// ```
    #[inline]
    pub fn try_insert(&self, key: K, value: V) -> Result<&V, OccupiedError<'_, V>> {
        let hash = self.map().hash(&key);
        // Looking the key up twice, now in the cache, costs less than creating a node in vain.
        if let Some(found) = self.find(hash, &key) {
            // Dropped before `value` is moved into the result: a panic here would leak it then.
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

    /// As [`try_insert`](Self::try_insert), with the result of `make`, which is called only if the
    /// key is absent.
    ///
    /// If another thread inserts the key first, our value is dropped.
    ///
    /// # Errors
    ///
    /// The value of the key, if it is present.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// assert_eq!(map.pin().try_insert_with("b", || 2), Ok(&2));
    /// assert_eq!(map.pin().try_insert_with("a", || unreachable!()), Err(&1));
    /// ```
    pub fn try_insert_with(&self, key: K, make: impl FnOnce() -> V) -> Result<&V, &V> {
        let hash = self.map().hash(&key);
        if let Some(found) = self.find(hash, &key) {
            return Err(&found.value);
        }
        match self.make(hash, key, make()).link() {
            Ok(node) => Ok(&node.value),
            Err((found, _)) => Err(&found.value),
        }
    }

    /// Returns the value of a key, and inserts the result of `make` if the key is absent.
    ///
    /// Several threads that find the key absent may call their `make` at the same time. If another
    /// thread inserts the key first, its value is returned and ours is dropped.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let squares = RelativisticMap::new();
    /// assert_eq!(squares.pin().get_or_insert_with(12, || 12 * 12), &144);
    /// assert_eq!(squares.pin().get_or_insert_with(12, || unreachable!()), &144);
    /// ```
    #[inline]
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> &V {
        &self.node_or_insert_with(key, make).value
    }

    /// The node of a key, inserted if the key is absent.
    #[inline]
    pub(super) fn node_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> &Node<K, V> {
        let hash = self.map().hash(&key);
        if let Some(node) = self.find(hash, &key) {
            return node;
        }
        match self.make(hash, key, make()).link() {
            Ok(node) | Err((node, _)) => node,
        }
    }

    /// As [`get_or_insert_with`](Self::get_or_insert_with), with a given value.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// assert_eq!(map.pin().get_or_insert("a", 7), &1);
    /// ```
    #[inline]
    pub fn get_or_insert(&self, key: K, value: V) -> &V {
        self.get_or_insert_with(key, || value)
    }

    /// As [`get_or_insert_with`](Self::get_or_insert_with), with a `make` that may fail.
    ///
    /// # Errors
    ///
    /// That of `make`; then nothing is inserted.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let numbers = RelativisticMap::<&str, u64>::new();
    /// let numbers = numbers.pin();
    /// assert_eq!(numbers.get_or_try_insert_with("12", || "12".parse()), Ok(&12));
    /// assert!(numbers.get_or_try_insert_with("x", || "x".parse()).is_err());
    /// assert_eq!(numbers.len(), 1);
    /// ```
    pub fn get_or_try_insert_with<E>(
        &self,
        key: K,
        make: impl FnOnce() -> Result<V, E>,
    ) -> Result<&V, E> {
        let hash = self.map().hash(&key);
        if let Some(node) = self.find(hash, &key) {
            return Ok(&node.value);
        }
        let value = match make() {
            Ok(value) => value,
            Err(error) => {
                // Dropped before `error` is returned: a panic here would leak it then.
                drop(key);
                return Err(error);
            }
        };
        match self.make(hash, key, value).link() {
            Ok(node) => Ok(&node.value),
            Err((found, _)) => Ok(&found.value),
        }
    }

    /// As [`get_or_insert_with`](Self::get_or_insert_with), by a borrowed key: an owned key is made
    /// only to be inserted.
    ///
    /// `K::from` must make a key that is equivalent to the borrowed one and has the same hash.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let lengths = RelativisticMap::<String, usize>::new();
    /// for word in "a rose is a rose is a rose".split(' ') {
    ///     lengths.pin().get_or_insert_ref(word, || word.len());
    /// }
    /// assert_eq!(lengths.len(), 3); // and three strings were allocated
    /// ```
    pub fn get_or_insert_ref<'q, Q>(&self, key: &'q Q, make: impl FnOnce() -> V) -> &V
    where
        K: From<&'q Q>,
        Q: ?Sized + Hash + Equivalent<K>,
    {
        let hash = self.map().hash(key);
        if let Some(node) = self.find(hash, key) {
            return &node.value;
        }
        let value = make();
        match self.make(hash, K::from(key), value).link() {
            Ok(node) => &node.value,
            Err((found, _)) => &found.value,
        }
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
    pub fn update<Q>(&self, key: &Q, change: impl FnMut(&V) -> V) -> Option<&V>
    where
        K: Clone,
        Q: ?Sized + Hash + Equivalent<K>,
    {
        self.updated_node(key, change).map(|node| &node.value)
    }

    /// The node that replaced the one of a key, with the value that `change` made.
    pub(super) fn updated_node<Q>(
        &self,
        key: &Q,
        mut change: impl FnMut(&V) -> V,
    ) -> Option<&Node<K, V>>
    where
        K: Clone,
        Q: ?Sized + Hash + Equivalent<K>,
    {
        let hash = self.map().hash(key);
        loop {
            let found = self.find(hash, key)?;
            let value = change(&found.value);
            let fresh = self.make(hash, found.key.clone(), value);
            // SAFETY: this handle found the node, by this hash (1).
            if let Ok(node) = unsafe { fresh.swap(found) } {
                return Some(node);
            }
        }
    }

    /// Replaces the value of a key by the result of `change`, or inserts `value` if the key is
    /// absent. Returns the new value. The stored key is replaced too.
    ///
    /// Atomic: no update of another thread is lost. `change` is called again if another thread
    /// updates the entry first.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let counts = RelativisticMap::new();
    /// for word in ["a", "rose", "is", "a", "rose"] {
    ///     counts.pin().update_or_insert(word, |count| count + 1, 1);
    /// }
    /// assert_eq!(counts.pin().get("rose"), Some(&2));
    /// ```
    pub fn update_or_insert(&self, key: K, change: impl FnMut(&V) -> V, value: V) -> &V {
        self.update_or_insert_with(key, change, || value)
    }

    /// As [`update_or_insert`](Self::update_or_insert), with the result of `make`, which is called
    /// at most once, and only if the key is absent.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let rooms = RelativisticMap::new();
    /// let enter = |room, name| {
    ///     let join = |list: &Vec<_>| list.iter().copied().chain([name]).collect();
    ///     rooms.pin().update_or_insert_with(room, join, || vec![name]).len()
    /// };
    /// assert_eq!(enter("lobby", "ada"), 1);
    /// assert_eq!(enter("lobby", "grace"), 2);
    /// ```
    pub fn update_or_insert_with(
        &self,
        key: K,
        change: impl FnMut(&V) -> V,
        make: impl FnOnce() -> V,
    ) -> &V {
        let hash = self.map().hash(&key);
        &self.upsert(hash, key, change, |_| make()).value
    }

    /// Replaces the value of a key, of this hash, or inserts it.
    pub(super) fn upsert(
        &self,
        hash: u64,
        mut key: K,
        mut change: impl FnMut(&V) -> V,
        make: impl FnOnce(&K) -> V,
    ) -> &Node<K, V> {
        let mut found = self.find(hash, &key);
        let (mut make, mut made) = (Some(make), None);
        loop {
            key = match self.change(hash, key, found, &mut change) {
                Ok(node) => return node,
                Err(key) => key,
            };
            // The key is absent. The value is made once, also if it must be inserted again.
            if let Some(make) = make.take() {
                made = Some(make(&key));
            }
            let value = made
                .take()
                .expect("made once, and kept if it is not inserted");
            // If another thread inserts the key first, its value is changed.
            let (present, fresh) = match self.make(hash, key, value).link() {
                Ok(node) => return node,
                Err(occupied) => occupied,
            };
            let (own_key, own_value) = fresh.into_parts();
            (key, made, found) = (own_key, Some(own_value), Some(present));
        }
    }

    /// Replaces the value of a node that was found by this hash, or of the node that is there by
    /// now, under the given key; returns the key if there is none.
    pub(super) fn change<'h>(
        &'h self,
        hash: u64,
        mut key: K,
        mut found: Option<&'h Node<K, V>>,
        mut change: impl FnMut(&V) -> V,
    ) -> Result<&'h Node<K, V>, K> {
        while let Some(old) = found {
            let fresh = self.make(hash, key, change(&old.value));
            // SAFETY: this handle found the node, by this hash (1).
            match unsafe { fresh.swap(old) } {
                Ok(node) => return Ok(node),
                Err(fresh) => (key, _) = fresh.into_parts(),
            }
            found = self.find(hash, &key);
        }
        Err(key)
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
        mut key: K,
        mut decide: impl FnMut(Option<(&K, &V)>) -> Operation<V, T>,
    ) -> Compute<'_, K, V, T> {
        let hash = self.map().hash(&key);
        // Each round decides about the entry that is found, and ends unless another thread has
        // changed the entry before the decision takes effect.
        loop {
            let found = self.find(hash, &key);
            match (decide(found.map(Node::pair)), found) {
                (Operation::Abort(result), _) => {
                    // Dropped before `result` is returned: a panic here would leak it then.
                    drop(key);
                    return Compute::Aborted(Some(result));
                }
                (Operation::Remove, None) => return Compute::Aborted(None),
                (Operation::Remove, Some(old)) => {
                    // SAFETY: this handle found the node above (1).
                    if unsafe { self.unlink(old) } {
                        return Compute::Removed(&old.key, &old.value);
                    }
                }
                (Operation::Insert(value), Some(old)) => {
                    let fresh = self.make(hash, key, value);
                    // SAFETY: this handle found the node, by this hash (1).
                    match unsafe { fresh.swap(old) } {
                        Ok(new) => {
                            let (old, new) = (old.pair(), new.pair());
                            return Compute::Updated { old, new };
                        }
                        Err(fresh) => (key, _) = fresh.into_parts(),
                    }
                }
                (Operation::Insert(value), None) => match self.make(hash, key, value).link() {
                    Ok(new) => return Compute::Inserted(&new.key, &new.value),
                    Err((_, fresh)) => (key, _) = fresh.into_parts(),
                },
            }
        }
    }

    /// Removes a key and returns its value, which is dropped later; see
    /// [the map](RelativisticMap#when-keys-and-values-are-dropped).
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// let map = map.pin();
    /// assert_eq!((map.remove("a"), map.remove("a")), (Some(&1), None));
    /// ```
    #[inline]
    pub fn remove<Q>(&self, key: &Q) -> Option<&V>
    where
        Q: ?Sized + Hash + Equivalent<K>,
    {
        self.remove_entry(key).map(|(_, value)| value)
    }

    /// As [`remove`](Self::remove), and also returns the stored key.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// assert_eq!(map.pin().remove_entry("a"), Some((&"a", &1)));
    /// ```
    #[inline]
    pub fn remove_entry<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        Q: ?Sized + Hash + Equivalent<K>,
    {
        self.removed_node(key).map(Node::pair)
    }

    /// The node of a key, which was removed.
    #[inline]
    pub(super) fn removed_node<Q>(&self, key: &Q) -> Option<&Node<K, V>>
    where
        Q: ?Sized + Hash + Equivalent<K>,
    {
        let hash = self.map().hash(key);
        loop {
            let found = self.find(hash, key)?;
            // SAFETY: this handle found the node above (1).
            if unsafe { self.unlink(found) } {
                return Some(found);
            }
        }
    }

    /// Removes and returns the entry of a key if `is_to_go` returns true for it. Returns `None` if
    /// the key is absent.
    ///
    /// Atomic: the entry that is removed is one that `is_to_go` was called with.
    ///
    /// # Errors
    ///
    /// The entry, if `is_to_go` returns false.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let sessions = RelativisticMap::from([("ada", 170), ("grace", 250)]);
    /// let (sessions, now) = (sessions.pin(), 200);
    /// let expired = |_: &&str, until: &u64| *until < now;
    /// assert_eq!(sessions.remove_if("ada", expired), Ok(Some((&"ada", &170))));
    /// assert_eq!(sessions.remove_if("grace", expired), Err((&"grace", &250)));
    /// ```
    pub fn remove_if<Q>(
        &self,
        key: &Q,
        mut is_to_go: impl FnMut(&K, &V) -> bool,
    ) -> Result<Option<(&K, &V)>, (&K, &V)>
    where
        Q: ?Sized + Hash + Equivalent<K>,
    {
        let hash = self.map().hash(key);
        loop {
            let Some(found) = self.find(hash, key) else {
                return Ok(None);
            };
            if !is_to_go(&found.key, &found.value) {
                return Err(found.pair());
            }
            // SAFETY: this handle found the node above (1).
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
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// assert_eq!(map.pin().try_upsert("a", 2), Ok(Some(&1)));
    /// ```
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
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// assert_eq!(map.pin().try_remove("a"), Ok(Some(&1)));
    /// ```
    pub fn try_remove<Q>(&self, key: &Q) -> Result<Option<&V>, BacklogFull<()>>
    where
        Q: ?Sized + Hash + Equivalent<K>,
    {
        if self.map().pressure() == Pressure::OverHard {
            return Err(BacklogFull(()));
        }
        Ok(self.remove(key))
    }
}
