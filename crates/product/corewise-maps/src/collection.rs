//! What maps and sets have in common with the collections of `std`, and with each other.

/// [`FusedIterator`](std::iter::FusedIterator), and a `Debug` that prints the name only.
macro_rules! fused_iterators {
    ($([$($generics:tt)*] $name:ident<$($parameter:tt),*>;)+) => {$(
        impl<$($generics)*> std::iter::FusedIterator for $name<$($parameter),*> {}

        impl<$($generics)*> std::fmt::Debug for $name<$($parameter),*> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(concat!(stringify!($name), "(..)"))
            }
        }
    )+};
}

/// `Extend` and `FromIterator` of a collection with the hasher `S`, by an expression that inserts
/// one item.
macro_rules! filled_by {
    ([$($generics:tt)*] $collection:ty, of $item:ty, |$of:ident, $value:pat_param| $insert:expr) => {
        impl<$($generics)*> Extend<$item> for $collection {
            fn extend<I: IntoIterator<Item = $item>>(&mut self, items: I) {
                (&mut &*self).extend(items);
            }
        }

        /// Shared ones can be extended too: each item is inserted under a separate handle.
        impl<$($generics)*> Extend<$item> for &$collection {
            fn extend<I: IntoIterator<Item = $item>>(&mut self, items: I) {
                let $of = *self;
                for $value in items {
                    $insert;
                }
            }
        }

        impl<$($generics)*> FromIterator<$item> for $collection
        where
            S: Default,
        {
            fn from_iter<I: IntoIterator<Item = $item>>(items: I) -> Self {
                let items = items.into_iter();
                let mut filled = Self::with_hasher(S::default());
                // The iterator's promise may be wrong: without the room, it grows as it is filled.
                let _ = filled.reserve(items.size_hint().0);
                filled.extend(items);
                filled
            }
        }
    };
}

pub(crate) use {filled_by, fused_iterators};

#[cfg(feature = "serde")]
pub(crate) mod with_serde {
    //! Serialization of the entries that are present during the whole operation.

    use std::fmt;
    use std::marker::PhantomData;

    use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
    use serde::ser::{Serialize, Serializer};

    /// The most entries for which an untrusted size hint reserves room.
    pub(crate) const MOST_ROOM: usize = 4096;

    /// Serializes entries as a map. They are collected first: some formats need the number of
    /// entries in advance, which may change.
    pub(crate) fn serialize_map<K: Serialize, V: Serialize, Z: Serializer>(
        entries: impl Iterator<Item = (K, V)>,
        serializer: Z,
    ) -> Result<Z::Ok, Z::Error> {
        let entries: Vec<_> = entries.collect();
        serializer.collect_map(entries)
    }

    /// Fills a map that `with_room` makes, with room for a number of entries.
    pub(crate) fn deserialize_map<'de, K, V, M, D>(
        deserializer: D,
        with_room: fn(usize) -> M,
    ) -> Result<M, D::Error>
    where
        K: Deserialize<'de>,
        V: Deserialize<'de>,
        M: Extend<(K, V)>,
        D: Deserializer<'de>,
    {
        deserializer.deserialize_map(Entries(PhantomData, with_room))
    }

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
