//! Standard traits for [`CopyMap`] and [`BoxMap`].
//!
//! What inserts entries (`FromIterator`, `Extend`, `Clone`, `Deserialize`) exists for maps without
//! a byte limit only: it could not say which entries found no room.

use std::fmt;
use std::hash::BuildHasher;
use std::ptr::NonNull;

use corewise_rcu::Section;

use super::{BoxMap, BoxMapRef, CopyMap, CopyMapRef, Table};

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

impl<V, T, S> BoxMap<V, T, S>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>>,
    S: BuildHasher,
{
    /// Inserts entries, each under a separate handle.
    fn fill(&self, entries: impl IntoIterator<Item = (T::Key, V)>) {
        for (key, value) in entries {
            self.pin().insert(key, value);
        }
    }
}

/// The traits that collect entries. `$value` is the type of values, and `$generics` and `$bounds`
/// are those of the map.
macro_rules! collecting {
    ($($map:ty, $value:ty, [$($generics:tt)*], [$($bounds:tt)*], $default:ty, [$($rest:tt)*];)+) => {$(
        impl<$($generics)*, S: BuildHasher> Extend<(T::Key, $value)> for $map
        where
            $($bounds)*
        {
            fn extend<I: IntoIterator<Item = (T::Key, $value)>>(&mut self, entries: I) {
                self.fill(entries);
            }
        }

        /// Shared maps can be extended too.
        impl<$($generics)*, S: BuildHasher> Extend<(T::Key, $value)> for &$map
        where
            $($bounds)*
        {
            fn extend<I: IntoIterator<Item = (T::Key, $value)>>(&mut self, entries: I) {
                self.fill(entries);
            }
        }

        impl<$($generics)*, S> FromIterator<(T::Key, $value)> for $map
        where
            $($bounds)*
            S: BuildHasher + Default,
        {
            fn from_iter<I: IntoIterator<Item = (T::Key, $value)>>(entries: I) -> Self {
                let entries = entries.into_iter();
                let map = Self::with_hasher(S::default());
                // The iterator's promise may be wrong: without the room, the map grows as it is
                // filled.
                let _ = map.reserve(entries.size_hint().0);
                map.fill(entries);
                map
            }
        }

        impl<$($rest)*, const N: usize> From<[(T::Key, $value); N]> for $default
        where
            $($bounds)*
        {
            fn from(entries: [(T::Key, $value); N]) -> Self {
                entries.into_iter().collect()
            }
        }
    )+};
}

collecting! {
    CopyMap<T, S>, T::Value, [T: Table], [], CopyMap<T>, [T: Table];
    BoxMap<V, T, S>, V, [V, T], [V: Send + Sync + 'static, T: Table<Value = NonNull<V>>,],
        BoxMap<V, T>, [V, T];
}

impl<V, T, S> Default for BoxMap<V, T, S>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>>,
    S: BuildHasher + Default,
{
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<V, T, S, L> fmt::Debug for BoxMap<V, T, S, L>
where
    V: Send + Sync + fmt::Debug + 'static,
    T: Table<Value = NonNull<V>, Key: fmt::Debug>,
    S: BuildHasher,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pin().fmt(f)
    }
}

impl<V, T, S, G, L> fmt::Debug for BoxMapRef<'_, V, T, S, G, L>
where
    V: Send + Sync + fmt::Debug + 'static,
    T: Table<Value = NonNull<V>, Key: fmt::Debug>,
    S: BuildHasher,
    G: Section,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Clones every entry that is present during the whole operation, as [`CopyMap`] does.
impl<V, T, S> Clone for BoxMap<V, T, S>
where
    V: Clone + Send + Sync + 'static,
    T: Table<Value = NonNull<V>>,
    S: BuildHasher + Clone,
{
    fn clone(&self) -> Self {
        let copy = self.builder_of_copy().build_boxed();
        let entries = self.pin();
        copy.fill(entries.iter().map(|(key, value)| (key, value.clone())));
        copy
    }
}

/// Equal if both have the same entries, in whichever tables; meaningful while neither is being
/// changed.
impl<V, T, S, L, U, Z, M> PartialEq<BoxMap<V, U, Z, M>> for BoxMap<V, T, S, L>
where
    V: PartialEq + Send + Sync + 'static,
    T: Table<Value = NonNull<V>>,
    S: BuildHasher,
    U: Table<Key = T::Key, Value = NonNull<V>>,
    Z: BuildHasher,
{
    fn eq(&self, other: &BoxMap<V, U, Z, M>) -> bool {
        let (own, other) = (self.pin(), other.pin());
        let mut entries = own.iter();
        own.len() == other.len() && entries.all(|(key, value)| other.get(&key) == Some(value))
    }
}

impl<V, T, S, L> Eq for BoxMap<V, T, S, L>
where
    V: Eq + Send + Sync + 'static,
    T: Table<Value = NonNull<V>>,
    S: BuildHasher,
{
}

#[cfg(feature = "serde")]
mod with_serde {
    use std::marker::PhantomData;

    use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
    use serde::ser::{Serialize, Serializer};

    use super::*;

    /// The most entries for which an untrusted size hint reserves room.
    const MOST_ROOM: usize = 4096;

    /// `Serialize` as a map of the entries that are present during the whole operation. They are
    /// collected first: some formats need the number of entries in advance, which may change.
    macro_rules! serialized {
        ($(<$($generics:ident),*> $map:ty, $handle:ty, [$($bounds:tt)*];)+) => {$(
            /// As a map of the entries that are present during the whole operation.
            impl<$($generics,)* T, S, L> Serialize for $map
            where
                $($bounds)*
                S: BuildHasher,
            {
                fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
                    self.pin().serialize(serializer)
                }
            }

            /// As a map of the entries that are present during the whole operation.
            impl<$($generics,)* T, S, G, L> Serialize for $handle
            where
                $($bounds)*
                S: BuildHasher,
                G: Section,
            {
                fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
                    let entries: Vec<_> = self.iter().collect();
                    serializer.collect_map(entries)
                }
            }
        )+};
    }

    serialized! {
        <> CopyMap<T, S, L>, CopyMapRef<'_, T, S, G, L>,
            [T: Table<Key: Serialize, Value: Serialize>,];
        <V> BoxMap<V, T, S, L>, BoxMapRef<'_, V, T, S, G, L>,
            [V: Serialize + Send + Sync + 'static, T: Table<Value = NonNull<V>, Key: Serialize>,];
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

    impl<'de, V, T, S> Deserialize<'de> for BoxMap<V, T, S>
    where
        V: Deserialize<'de> + Send + Sync + 'static,
        T: Table<Value = NonNull<V>, Key: Deserialize<'de>>,
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
