//! Standard traits for the map.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::panic::{RefUnwindSafe, UnwindSafe};

use corewise_rcu::Section;

use super::handle::MapRef;
use super::map::RelativisticMap;

impl<K, V, S: Default> Default for RelativisticMap<K, V, S> {
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S> fmt::Debug for RelativisticMap<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pin().fmt(f)
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S, G: Section> fmt::Debug for MapRef<'_, K, V, S, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Clones every entry that is present during the whole operation. The copy has the same settings:
/// hasher, domain, limits, and whether it resizes by itself (if not, also the number of buckets).
impl<K, V, S> Clone for RelativisticMap<K, V, S>
where
    K: Clone + Eq + Hash,
    V: Clone,
    S: BuildHasher + Clone,
{
    fn clone(&self) -> Self {
        let copy = self.empty_copy();
        let entries = self.pin();
        copy.fill(
            entries
                .iter()
                .map(|(key, value)| (key.clone(), value.clone())),
        );
        copy
    }
}

/// Equal if both have the same entries; meaningful while neither is being changed.
impl<K, V, S, T> PartialEq<RelativisticMap<K, V, T>> for RelativisticMap<K, V, S>
where
    K: Eq + Hash,
    V: PartialEq,
    S: BuildHasher,
    T: BuildHasher,
{
    fn eq(&self, other: &RelativisticMap<K, V, T>) -> bool {
        let (own, other) = (self.pin(), other.pin());
        let mut entries = own.iter();
        own.len() == other.len() && entries.all(|(key, value)| other.get(key) == Some(value))
    }
}

impl<K: Eq + Hash, V: Eq, S: BuildHasher> Eq for RelativisticMap<K, V, S> {}

impl<K, V, S> RelativisticMap<K, V, S>
where
    K: Eq + Hash,
    S: BuildHasher,
{
    /// Inserts entries, each under a separate handle.
    fn fill(&self, entries: impl IntoIterator<Item = (K, V)>) {
        for (key, value) in entries {
            self.pin().insert(key, value);
        }
    }
}

impl<K, V, S> Extend<(K, V)> for RelativisticMap<K, V, S>
where
    K: Eq + Hash,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        self.fill(entries);
    }
}

/// Shared maps can be extended too.
impl<K, V, S> Extend<(K, V)> for &RelativisticMap<K, V, S>
where
    K: Eq + Hash,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        self.fill(entries);
    }
}

/// Copies entries, as the maps of `std` do.
impl<'a, K, V, S> Extend<(&'a K, &'a V)> for RelativisticMap<K, V, S>
where
    K: Eq + Hash + Copy,
    V: Copy,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (&'a K, &'a V)>>(&mut self, entries: I) {
        self.fill(entries.into_iter().map(|(key, value)| (*key, *value)));
    }
}

impl<K, V, S> FromIterator<(K, V)> for RelativisticMap<K, V, S>
where
    K: Eq + Hash,
    S: BuildHasher + Default,
{
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let entries = entries.into_iter();
        let map = Self::with_hasher(S::default());
        // The iterator's promise may be wrong: without the room, the map grows as it is filled.
        let _ = map.reserve(entries.size_hint().0);
        map.fill(entries);
        map
    }
}

impl<K: Eq + Hash, V, const N: usize> From<[(K, V); N]> for RelativisticMap<K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

// A panic in foreign code leaves the map consistent (guarantee 6 of the module), whether it happens
// under a shared reference or an exclusive one. What a map lends and drops is as its contents are.
impl<K, V, S> UnwindSafe for RelativisticMap<K, V, S>
where
    K: UnwindSafe + RefUnwindSafe,
    V: UnwindSafe + RefUnwindSafe,
    S: UnwindSafe,
{
}

impl<K, V, S> RefUnwindSafe for RelativisticMap<K, V, S>
where
    K: UnwindSafe + RefUnwindSafe,
    V: UnwindSafe + RefUnwindSafe,
    S: RefUnwindSafe,
{
}

// A section is left when its handle is dropped, by a panic too.
impl<K, V, S, G: Section> UnwindSafe for MapRef<'_, K, V, S, G> where
    RelativisticMap<K, V, S>: RefUnwindSafe
{
}

impl<K, V, S, G: Section> RefUnwindSafe for MapRef<'_, K, V, S, G> where
    RelativisticMap<K, V, S>: RefUnwindSafe
{
}

#[cfg(feature = "serde")]
mod with_serde {
    use std::marker::PhantomData;

    use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
    use serde::ser::{Serialize, Serializer};

    use super::*;

    /// As a map of the entries that are present during the whole operation.
    impl<K: Serialize, V: Serialize, S> Serialize for RelativisticMap<K, V, S> {
        fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
            self.pin().serialize(serializer)
        }
    }

    impl<K: Serialize, V: Serialize, S, G: Section> Serialize for MapRef<'_, K, V, S, G> {
        fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
            // Collected first: some formats need the number of entries in advance, which may
            // change.
            let entries: Vec<_> = self.iter().collect();
            serializer.collect_map(entries)
        }
    }

    impl<'de, K, V, S> Deserialize<'de> for RelativisticMap<K, V, S>
    where
        K: Deserialize<'de> + Eq + Hash,
        V: Deserialize<'de>,
        S: BuildHasher + Default,
    {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_map(Entries(PhantomData))
        }
    }

    struct Entries<K, V, S>(PhantomData<(K, V, S)>);

    impl<'de, K, V, S> Visitor<'de> for Entries<K, V, S>
    where
        K: Deserialize<'de> + Eq + Hash,
        V: Deserialize<'de>,
        S: BuildHasher + Default,
    {
        type Value = RelativisticMap<K, V, S>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
            // An untrusted size hint; do not reserve more than this for it.
            let room = entries.size_hint().unwrap_or(0).min(4096);
            let map = RelativisticMap::with_capacity_and_hasher(room, S::default());
            while let Some((key, value)) = entries.next_entry()? {
                map.pin().insert(key, value);
            }
            Ok(map)
        }
    }
}
