//! Entries: what a key was mapped to at one moment, for inspection and updates.
//!
//! Nothing is locked between the lookup and the update, so another thread may change the entry in
//! between. Each operation says what it does then. [`Entry::and_modify`] followed by
//! [`ModifiedEntry::or_insert`] is one atomic update, whatever happens in between.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use corewise_rcu::Section;

use super::handle::{FreshNode, MapRef};
use super::map::Node;
use super::ops::{Changed, OccupiedError};

/// The entry of a key; returned by [`MapRef::entry`].
///
/// ```
/// use corewise_maps::RelativisticMap;
///
/// let visits = RelativisticMap::new();
/// for name in ["ada", "grace", "ada"] {
///     visits.pin().entry(name).and_modify(|visits| *visits += 1).or_insert(1);
/// }
/// assert_eq!(visits.pin().get("ada"), Some(&2));
/// ```
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
    /// The hash by which the entry was found: `Hash` of the key may return another one by now.
    hash: u64,
    key: K,
}

/// A key that was absent when it was looked up.
pub struct VacantEntry<'h, 'm, K, V, S, G: Section> {
    handle: &'h MapRef<'m, K, V, S, G>,
    hash: u64,
    key: K,
}

/// An entry with a modification; returned by [`Entry::and_modify`].
#[must_use = "a key that was absent is not inserted; use `MapRef::update` for entries that exist"]
pub struct ModifiedEntry<'h, 'm, K, V, S, G: Section, F> {
    handle: &'h MapRef<'m, K, V, S, G>,
    state: EntryState<'h, K, V>,
    hash: u64,
    change: F,
}

enum EntryState<'h, K, V> {
    /// The entry was present, and has this value now.
    Done(&'h V),
    /// The key was absent.
    Absent(K),
}

impl<'m, K, V, S, G> MapRef<'m, K, V, S, G>
where
    K: Eq + Hash,
    S: BuildHasher,
    G: Section,
{
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
}

impl<'h, 'm, K, V, S, G> Entry<'h, 'm, K, V, S, G>
where
    K: Eq + Hash,
    S: BuildHasher,
    G: Section,
{
    /// The key that was given to [`MapRef::entry`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::<_, u64>::new();
    /// assert_eq!(map.pin().entry("a").key(), &"a");
    /// ```
    pub fn key(&self) -> &K {
        match self {
            Self::Occupied(entry) => &entry.key,
            Self::Vacant(entry) => &entry.key,
        }
    }

    /// Returns the value, or inserts `value` if the key is absent.
    ///
    /// If another thread inserts the key first, its value is returned and ours is dropped.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// assert_eq!(map.pin().entry("a").or_insert(7), &1);
    /// assert_eq!(map.pin().entry("b").or_insert(7), &7);
    /// ```
    pub fn or_insert(self, value: V) -> &'h V {
        self.or_insert_with(|| value)
    }

    /// As [`or_insert`](Self::or_insert), with the result of `make`, which is called only if the
    /// key is absent.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", vec![1])]);
    /// assert_eq!(map.pin().entry("a").or_insert_with(|| vec![0; 1 << 20]), &[1]);
    /// ```
    pub fn or_insert_with(self, make: impl FnOnce() -> V) -> &'h V {
        self.or_insert_with_key(|_| make())
    }

    /// As [`or_insert_with`](Self::or_insert_with); `make` gets the key.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let lengths = RelativisticMap::new();
    /// assert_eq!(lengths.pin().entry("four").or_insert_with_key(|name| name.len()), &4);
    /// ```
    pub fn or_insert_with_key(self, make: impl FnOnce(&K) -> V) -> &'h V {
        match self {
            Self::Occupied(entry) => &entry.node.value,
            Self::Vacant(entry) => {
                let value = make(&entry.key);
                match entry.insert(value) {
                    Ok(value) => value,
                    Err(occupied) => occupied.current,
                }
            }
        }
    }

    /// As [`or_insert`](Self::or_insert), with the default value.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::<_, String>::new();
    /// assert_eq!(map.pin().entry("a").or_default(), "");
    /// ```
    pub fn or_default(self) -> &'h V
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }

    /// Replaces the value, if the key is present, by a copy that `change` has modified.
    ///
    /// Atomic, together with the insertion that may follow: either `change` is applied to the value
    /// that the key has, or the inserted value is new. So entries can count, as in the example of
    /// [`Entry`]. `change` is called again if another thread updates the entry first.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// assert_eq!(map.pin().entry("a").and_modify(|n| *n += 1).or_insert(7), &2);
    /// assert_eq!(map.pin().entry("b").and_modify(|n| *n += 1).or_insert(7), &7);
    /// ```
    pub fn and_modify<F: FnMut(&mut V)>(self, mut change: F) -> ModifiedEntry<'h, 'm, K, V, S, G, F>
    where
        V: Clone,
    {
        let (handle, hash, state) = match self {
            Self::Vacant(entry) => (entry.handle, entry.hash, EntryState::Absent(entry.key)),
            Self::Occupied(entry) => {
                let (handle, hash) = (entry.handle, entry.hash);
                let (node, copy) = (entry.node, |value: &V| modified(value, &mut change));
                let state = match handle.change(hash, entry.key, Some(node), copy) {
                    Ok(node) => EntryState::Done(&node.value),
                    Err(key) => EntryState::Absent(key),
                };
                (handle, hash, state)
            }
        };
        ModifiedEntry {
            handle,
            state,
            hash,
            change,
        }
    }
}

/// A copy of a value, with a change.
fn modified<V: Clone>(value: &V, change: &mut impl FnMut(&mut V)) -> V {
    let mut copy = value.clone();
    change(&mut copy);
    copy
}

impl<'h, K, V, S, G, F> ModifiedEntry<'h, '_, K, V, S, G, F>
where
    K: Eq + Hash,
    V: Clone,
    S: BuildHasher,
    G: Section,
    F: FnMut(&mut V),
{
    /// Inserts `value` if the key was absent. Returns the value of the key.
    ///
    /// If another thread inserts the key first, its value is modified.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// assert_eq!(map.pin().entry("a").and_modify(|n| *n *= 2).or_insert(7), &2);
    /// ```
    pub fn or_insert(self, value: V) -> &'h V {
        self.or_insert_with(|| value)
    }

    /// As [`or_insert`](Self::or_insert), with the result of `make`, which is called at most once.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::<_, Vec<u64>>::new();
    /// let entry = map.pin().entry("a").and_modify(|list| list.push(2)).or_insert_with(|| vec![1]).len();
    /// assert_eq!(entry, 1);
    /// ```
    pub fn or_insert_with(self, make: impl FnOnce() -> V) -> &'h V {
        self.or_insert_with_key(|_| make())
    }

    /// As [`or_insert_with`](Self::or_insert_with); `make` gets the key.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::new();
    /// let map = map.pin();
    /// let value = map.entry("four").and_modify(|n| *n += 1).or_insert_with_key(|name| name.len());
    /// assert_eq!(value, &4);
    /// ```
    pub fn or_insert_with_key(mut self, make: impl FnOnce(&K) -> V) -> &'h V {
        match self.state {
            EntryState::Done(value) => value,
            EntryState::Absent(key) => {
                let copy = |value: &V| modified(value, &mut self.change);
                &self.handle.upsert(self.hash, key, copy, make).value
            }
        }
    }

    /// As [`or_insert`](Self::or_insert), with the default value.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::<_, u64>::new();
    /// assert_eq!(map.pin().entry("a").and_modify(|n| *n += 1).or_default(), &0);
    /// ```
    pub fn or_default(self) -> &'h V
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }
}

impl<'h, K, V, S, G> OccupiedEntry<'h, '_, K, V, S, G>
where
    K: Eq + Hash,
    S: BuildHasher,
    G: Section,
{
    /// The stored key.
    ///
    /// ```
    /// # use corewise_maps::relativistic::{Entry, RelativisticMap};
    /// let map = RelativisticMap::from([("a", 1)]);
    /// let map = map.pin();
    /// let Entry::Occupied(entry) = map.entry("a") else { unreachable!() };
    /// assert_eq!((entry.key(), entry.get()), (&"a", &1));
    /// ```
    pub fn key(&self) -> &'h K {
        &self.node.key
    }

    /// The value.
    ///
    /// ```
    /// # use corewise_maps::relativistic::{Entry, RelativisticMap};
    /// let map = RelativisticMap::from([("a", 1)]);
    /// let map = map.pin();
    /// let Entry::Occupied(entry) = map.entry("a") else { unreachable!() };
    /// map.insert("a", 2);
    /// assert_eq!(entry.get(), &1); // as it was looked up
    /// ```
    pub fn get(&self) -> &'h V {
        &self.node.value
    }

    /// Removes the entry if it is unchanged, and returns its value.
    ///
    /// # Errors
    ///
    /// [`Changed`] if another thread has removed or replaced it.
    ///
    /// ```
    /// # use corewise_maps::relativistic::{Changed, Entry, RelativisticMap};
    /// let map = RelativisticMap::from([("a", 1)]);
    /// let map = map.pin();
    /// let Entry::Occupied(entry) = map.entry("a") else { unreachable!() };
    /// map.insert("a", 2);
    /// assert_eq!(entry.remove(), Err(Changed));
    /// ```
    pub fn remove(self) -> Result<&'h V, Changed> {
        // SAFETY: the handle found the node when the entry was made (1).
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
    ///
    /// ```
    /// # use corewise_maps::relativistic::{Entry, RelativisticMap};
    /// let map = RelativisticMap::from([("a", 1)]);
    /// let map = map.pin();
    /// let Entry::Occupied(entry) = map.entry("a") else { unreachable!() };
    /// let next = entry.get() + 1;
    /// assert_eq!(entry.replace(next), Ok(&2));
    /// ```
    pub fn replace(self, value: V) -> Result<&'h V, V> {
        let fresh = self.handle.make(self.hash, self.key, value);
        // SAFETY: the handle found the node by this hash when the entry was made (1).
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
    ///
    /// ```
    /// # use corewise_maps::relativistic::{Entry, RelativisticMap};
    /// let map = RelativisticMap::<_, u64>::new();
    /// let map = map.pin();
    /// let Entry::Vacant(entry) = map.entry("a") else { unreachable!() };
    /// assert_eq!(entry.key(), &"a");
    /// ```
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Returns the key, and inserts nothing.
    ///
    /// ```
    /// # use corewise_maps::relativistic::{Entry, RelativisticMap};
    /// let map = RelativisticMap::<_, u64>::new();
    /// let map = map.pin();
    /// let Entry::Vacant(entry) = map.entry("a".to_owned()) else { unreachable!() };
    /// assert_eq!(entry.into_key(), "a");
    /// ```
    pub fn into_key(self) -> K {
        self.key
    }

    /// Inserts a value if the key is still absent.
    ///
    /// # Errors
    ///
    /// [`OccupiedError`] if the key is present.
    ///
    /// ```
    /// # use corewise_maps::relativistic::{Entry, RelativisticMap};
    /// let map = RelativisticMap::new();
    /// let map = map.pin();
    /// let Entry::Vacant(entry) = map.entry("a") else { unreachable!() };
    /// map.insert("a", 1);
    /// assert_eq!(entry.insert(2).unwrap_err().current, &1);
    /// ```
    pub fn insert(self, value: V) -> Result<&'h V, OccupiedError<'h, V>> {
        let fresh: FreshNode<'h, '_, K, V, S, G> = self.handle.make(self.hash, self.key, value);
        match fresh.link() {
            Ok(node) => Ok(&node.value),
            Err((found, fresh)) => Err(OccupiedError {
                current: &found.value,
                not_inserted: fresh.into_value(),
            }),
        }
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S, G: Section> fmt::Debug for Entry<'_, '_, K, V, S, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Occupied(entry) => f.debug_tuple("Occupied").field(&entry.node.pair()).finish(),
            Self::Vacant(entry) => f.debug_tuple("Vacant").field(&entry.key).finish(),
        }
    }
}
