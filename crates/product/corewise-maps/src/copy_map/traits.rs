//! Standard traits for [`CopyMap`].
//!
//! What inserts entries (`FromIterator`, `Extend`, `Clone`, `Deserialize`) exists for maps without
//! a byte limit only: it could not say which entries found no room.

use std::fmt;
use std::hash::BuildHasher;

use corewise_rcu::Section;

use super::{CopyMap, CopyMapRef, Table};

impl<T: Table, S: Default> Default for CopyMap<T, S> {
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<T, S, L> fmt::Debug for CopyMap<T, S, L>
where
    T: Table<Key: fmt::Debug, Value: fmt::Debug>,
    S: BuildHasher,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pin().fmt(f)
    }
}

impl<T, S, G, L> fmt::Debug for CopyMapRef<'_, T, S, G, L>
where
    T: Table<Key: fmt::Debug, Value: fmt::Debug>,
    S: BuildHasher,
    G: Section,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Copies every entry that is present during the whole operation. The copy has the same settings:
/// hasher, domain, limits, and whether it grows by itself (if not, also the number of buckets).
impl<T: Table, S: BuildHasher + Clone> Clone for CopyMap<T, S> {
    fn clone(&self) -> Self {
        let copy = self.builder_of_copy().build();
        copy.fill(self.pin().iter());
        copy
    }
}

/// Equal if both have the same entries, in whichever tables; meaningful while neither is being
/// changed.
impl<T, S, L, U, Z, M> PartialEq<CopyMap<U, Z, M>> for CopyMap<T, S, L>
where
    T: Table<Value: PartialEq>,
    S: BuildHasher,
    U: Table<Key = T::Key, Value = T::Value>,
    Z: BuildHasher,
{
    fn eq(&self, other: &CopyMap<U, Z, M>) -> bool {
        let (own, other) = (self.pin(), other.pin());
        let mut entries = own.iter();
        own.len() == other.len() && entries.all(|(key, value)| other.get(&key) == Some(value))
    }
}

impl<T: Table<Value: Eq>, S: BuildHasher, L> Eq for CopyMap<T, S, L> {}

impl<T: Table, S: BuildHasher> CopyMap<T, S> {
    /// Inserts entries, each under a separate handle.
    fn fill(&self, entries: impl IntoIterator<Item = (T::Key, T::Value)>) {
        for (key, value) in entries {
            self.pin().insert(key, value);
        }
    }
}

impl<T: Table, S: BuildHasher> Extend<(T::Key, T::Value)> for CopyMap<T, S> {
    fn extend<I: IntoIterator<Item = (T::Key, T::Value)>>(&mut self, entries: I) {
        self.fill(entries);
    }
}

/// Shared maps can be extended too.
impl<T: Table, S: BuildHasher> Extend<(T::Key, T::Value)> for &CopyMap<T, S> {
    fn extend<I: IntoIterator<Item = (T::Key, T::Value)>>(&mut self, entries: I) {
        self.fill(entries);
    }
}

impl<T: Table, S: BuildHasher + Default> FromIterator<(T::Key, T::Value)> for CopyMap<T, S> {
    fn from_iter<I: IntoIterator<Item = (T::Key, T::Value)>>(entries: I) -> Self {
        let entries = entries.into_iter();
        let map = Self::with_hasher(S::default());
        // The iterator's promise may be wrong: without the room, the map grows as it is filled.
        let _ = map.reserve(entries.size_hint().0);
        map.fill(entries);
        map
    }
}

impl<T: Table, const N: usize> From<[(T::Key, T::Value); N]> for CopyMap<T> {
    fn from(entries: [(T::Key, T::Value); N]) -> Self {
        entries.into_iter().collect()
    }
}

#[cfg(feature = "serde")]
mod with_serde {
    use std::marker::PhantomData;

    use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
    use serde::ser::{Serialize, Serializer};

    use super::*;

    /// The most entries for which an untrusted size hint reserves room.
    const MOST_ROOM: usize = 4096;

    /// As a map of the entries that are present during the whole operation.
    impl<T, S, L> Serialize for CopyMap<T, S, L>
    where
        T: Table<Key: Serialize, Value: Serialize>,
        S: BuildHasher,
    {
        fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
            self.pin().serialize(serializer)
        }
    }

    /// As a map of the entries that are present during the whole operation. They are collected
    /// first: some formats need the number of entries in advance, which may change.
    impl<T, S, G, L> Serialize for CopyMapRef<'_, T, S, G, L>
    where
        T: Table<Key: Serialize, Value: Serialize>,
        S: BuildHasher,
        G: Section,
    {
        fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
            let entries: Vec<_> = self.iter().collect();
            serializer.collect_map(entries)
        }
    }

    impl<'de, T, S> Deserialize<'de> for CopyMap<T, S>
    where
        T: Table<Key: Deserialize<'de>, Value: Deserialize<'de>>,
        S: BuildHasher + Default,
    {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_map(Entries(PhantomData, |room| {
                Self::with_capacity_and_hasher(room, S::default())
            }))
        }
    }

    /// Fills a map that the function makes, with room for a number of entries.
    struct Entries<K, V, M>(PhantomData<(K, V)>, fn(usize) -> M);

    impl<'de, K, V, M> Visitor<'de> for Entries<K, V, M>
    where
        K: Deserialize<'de>,
        V: Deserialize<'de>,
        M: Extend<(K, V)>,
    {
        type Value = M;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<M, A::Error> {
            let mut map = (self.1)(entries.size_hint().unwrap_or(0).min(MOST_ROOM));
            while let Some(entry) = entries.next_entry()? {
                map.extend([entry]);
            }
            Ok(map)
        }
    }
}
