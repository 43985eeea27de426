//! Standard traits for the set.

use super::*;
use crate::collection::filled_by;

impl<T, S> From<RelativisticMap<T, (), S>> for RelativisticSet<T, S> {
    fn from(map: RelativisticMap<T, (), S>) -> Self {
        Self(map)
    }
}

impl<T, S: Default> Default for RelativisticSet<T, S> {
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<T: fmt::Debug, S> fmt::Debug for RelativisticSet<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pin().fmt(f)
    }
}

impl<T: fmt::Debug, S, G: Section> fmt::Debug for SetRef<'_, T, S, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// Clones every element that is present during the whole operation, and the settings, as the map
/// does.
impl<T, S> Clone for RelativisticSet<T, S>
where
    T: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Equal if both have the same elements; meaningful while neither is being changed.
impl<T, S, Z> PartialEq<RelativisticSet<T, Z>> for RelativisticSet<T, S>
where
    T: Eq + Hash,
    S: BuildHasher,
    Z: BuildHasher,
{
    fn eq(&self, other: &RelativisticSet<T, Z>) -> bool {
        self.0 == other.0
    }
}

impl<T: Eq + Hash, S: BuildHasher> Eq for RelativisticSet<T, S> {}

filled_by! {
    [T: Eq + Hash, S: BuildHasher] RelativisticSet<T, S>, of T, |set, element| set.insert(element)
}

/// Copies elements, as the sets of `std` do.
impl<'a, T, S> Extend<&'a T> for RelativisticSet<T, S>
where
    T: Eq + Hash + Copy + 'a,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = &'a T>>(&mut self, elements: I) {
        self.extend(elements.into_iter().copied());
    }
}

impl<T: Eq + Hash, const N: usize> From<[T; N]> for RelativisticSet<T> {
    fn from(elements: [T; N]) -> Self {
        elements.into_iter().collect()
    }
}

/// Yields the elements, in no order. What is not taken is dropped with the iterator.
impl<T, S> IntoIterator for RelativisticSet<T, S> {
    type Item = T;
    type IntoIter = IntoIter<T, S>;

    fn into_iter(self) -> IntoIter<T, S> {
        IntoIter(self.0.into_iter())
    }
}

impl<'h, T, S, G: Section> IntoIterator for &'h SetRef<'_, T, S, G> {
    type Item = &'h T;
    type IntoIter = Iter<'h, T>;

    fn into_iter(self) -> Iter<'h, T> {
        self.iter()
    }
}

#[cfg(feature = "rayon")]
mod parallel {
    use rayon::iter::ParallelIterator;

    use super::*;

    impl<T: Sync, S, G: Section> SetRef<'_, T, S, G> {
        /// A parallel iterator over the elements; visits what [`iter`](Self::iter) yields.
        ///
        /// ```
        /// # use corewise_maps::RelativisticSet;
        /// use rayon::iter::ParallelIterator;
        /// let set: RelativisticSet<u64> = (0..100).collect();
        /// assert_eq!(set.pin().par_iter().sum::<u64>(), 4950);
        /// ```
        pub fn par_iter(&self) -> impl ParallelIterator<Item = &T> {
            self.0.par_iter().map(|(element, ())| element)
        }
    }
}

#[cfg(feature = "serde")]
mod with_serde {
    use std::marker::PhantomData;

    use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
    use serde::ser::{Serialize, Serializer};

    use super::*;
    use crate::collection::with_serde::MOST_ROOM;

    /// As a sequence of the elements that are present during the whole operation.
    impl<T: Serialize, S> Serialize for RelativisticSet<T, S> {
        fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
            self.pin().serialize(serializer)
        }
    }

    impl<T: Serialize, S, G: Section> Serialize for SetRef<'_, T, S, G> {
        fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
            // Collected first, as for the map.
            let elements: Vec<_> = self.iter().collect();
            serializer.collect_seq(elements)
        }
    }

    impl<'de, T, S> Deserialize<'de> for RelativisticSet<T, S>
    where
        T: Deserialize<'de> + Eq + Hash,
        S: BuildHasher + Default,
    {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_seq(Elements(PhantomData))
        }
    }

    struct Elements<T, S>(PhantomData<(T, S)>);

    impl<'de, T, S> Visitor<'de> for Elements<T, S>
    where
        T: Deserialize<'de> + Eq + Hash,
        S: BuildHasher + Default,
    {
        type Value = RelativisticSet<T, S>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a sequence")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
            let room = elements.size_hint().unwrap_or(0).min(MOST_ROOM);
            let set = RelativisticSet::with_capacity_and_hasher(room, S::default());
            while let Some(element) = elements.next_element()? {
                set.insert(element);
            }
            Ok(set)
        }
    }
}
