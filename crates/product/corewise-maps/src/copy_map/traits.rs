//! Standard traits for [`CopyMap`].
//!
//! What inserts entries (`FromIterator`, `Extend`, `Clone`, `Deserialize`) exists for maps without
//! a byte limit only: it could not say which entries found no room.

use std::fmt;
use std::hash::BuildHasher;

use corewise_rcu::Section;

use super::{CopyMap, CopyMapRef, Table};
use crate::collection::filled_by;

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
        let mut copy = self.builder_of_copy().build();
        copy.extend(self.pin().iter());
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

filled_by! {
    [T: Table, S: BuildHasher] CopyMap<T, S>, of (T::Key, T::Value),
    |map, (key, value)| map.pin().insert(key, value)
}

impl<T: Table, const N: usize> From<[(T::Key, T::Value); N]> for CopyMap<T> {
    fn from(entries: [(T::Key, T::Value); N]) -> Self {
        entries.into_iter().collect()
    }
}

#[cfg(feature = "serde")]
mod with_serde {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::*;
    use crate::collection::with_serde::{deserialize_map, serialize_map};

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

    /// As a map of the entries that are present during the whole operation.
    impl<T, S, G, L> Serialize for CopyMapRef<'_, T, S, G, L>
    where
        T: Table<Key: Serialize, Value: Serialize>,
        S: BuildHasher,
        G: Section,
    {
        fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
            serialize_map(self.iter(), serializer)
        }
    }

    impl<'de, T, S> Deserialize<'de> for CopyMap<T, S>
    where
        T: Table<Key: Deserialize<'de>, Value: Deserialize<'de>>,
        S: BuildHasher + Default,
    {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserialize_map(deserializer, |room| {
                Self::with_capacity_and_hasher(room, S::default())
            })
        }
    }
}
