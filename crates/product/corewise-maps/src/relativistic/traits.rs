//! Standard traits for the map.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::panic::{RefUnwindSafe, UnwindSafe};

use corewise_rcu::Section;

use super::handle::MapRef;
use super::map::RelativisticMap;
use crate::collection::filled_by;

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
        let mut copy = self.empty_copy();
        let entries = self.pin();
        copy.extend(
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

filled_by! {
    [K: Eq + Hash, V, S: BuildHasher] RelativisticMap<K, V, S>, of (K, V),
    |map, (key, value)| map.pin().insert(key, value)
}

/// Copies entries, as the maps of `std` do.
impl<'a, K, V, S> Extend<(&'a K, &'a V)> for RelativisticMap<K, V, S>
where
    K: Eq + Hash + Copy,
    V: Copy,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (&'a K, &'a V)>>(&mut self, entries: I) {
        self.extend(entries.into_iter().map(|(key, value)| (*key, *value)));
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
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::*;
    use crate::collection::with_serde::{deserialize_map, serialize_map};

    /// As a map of the entries that are present during the whole operation.
    impl<K: Serialize, V: Serialize, S> Serialize for RelativisticMap<K, V, S> {
        fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
            self.pin().serialize(serializer)
        }
    }

    /// As a map of the entries that are present during the whole operation.
    impl<K: Serialize, V: Serialize, S, G: Section> Serialize for MapRef<'_, K, V, S, G> {
        fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
            serialize_map(self.iter(), serializer)
        }
    }

    impl<'de, K, V, S> Deserialize<'de> for RelativisticMap<K, V, S>
    where
        K: Deserialize<'de> + Eq + Hash,
        V: Deserialize<'de>,
        S: BuildHasher + Default,
    {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserialize_map(deserializer, |room| {
                Self::with_capacity_and_hasher(room, S::default())
            })
        }
    }
}
