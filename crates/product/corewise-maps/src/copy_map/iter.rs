//! Iteration: one bucket of the table at a time, with the entries that were moved out of it.

use std::hash::BuildHasher;
use std::vec;

use corewise_rcu::Section;

use super::{CopyMap, CopyMapRef, Table, TableVersion};
use crate::collection::fused_iterators;

/// The entries of a map; from [`CopyMapRef::iter`].
pub struct Iter<'h, T: Table, S> {
    hasher: &'h S,
    version: &'h TableVersion<T>,
    /// Buckets not yet visited.
    buckets: std::ops::Range<usize>,
    pairs: vec::IntoIter<(T::Key, T::Value)>,
}

/// The keys of a map; from [`CopyMapRef::keys`].
pub struct Keys<'h, T: Table, S>(pub(super) Iter<'h, T, S>);

/// The values of a map; from [`CopyMapRef::values`].
pub struct Values<'h, T: Table, S>(pub(super) Iter<'h, T, S>);

impl<'h, T: Table, S> Iter<'h, T, S> {
    pub(super) fn new(hasher: &'h S, version: &'h TableVersion<T>) -> Self {
        Self::of_buckets(hasher, version, 0..version.table().buckets())
    }

    fn of_buckets(
        hasher: &'h S,
        version: &'h TableVersion<T>,
        buckets: std::ops::Range<usize>,
    ) -> Self {
        version.table().begin_walk();
        Self {
            hasher,
            version,
            buckets,
            pairs: Vec::new().into_iter(),
        }
    }

    /// Leaves the second half of its buckets to another iterator, if there are at least `least`.
    #[cfg(feature = "rayon")]
    pub(super) fn split(&mut self, least: usize) -> Option<Self> {
        let std::ops::Range { start, end } = self.buckets;
        if end - start < least {
            return None;
        }
        let middle = start + (end - start) / 2;
        self.buckets.end = middle;
        Some(Self::of_buckets(self.hasher, self.version, middle..end))
    }
}

impl<T: Table, S> Drop for Iter<'_, T, S> {
    fn drop(&mut self) {
        self.version.table().end_walk();
    }
}

impl<T: Table, S: BuildHasher> Iterator for Iter<'_, T, S> {
    type Item = (T::Key, T::Value);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(pair) = self.pairs.next() {
                return Some(pair);
            }
            let bucket = self.buckets.next()?;
            let mut pairs = Vec::new();
            let which = (self.version.table().buckets() as u64 - 1, bucket as u64);
            let hash_of = |key: &T::Key| self.hasher.hash_one(key);
            let each = &mut |key, value| pairs.push((key, value));
            self.version.for_each(which, &hash_of, each);
            self.pairs = pairs.into_iter();
        }
    }
}

macro_rules! part_of_pairs {
    ($($name:ident: $item:ident, $part:tt;)+) => {$(
        impl<T: Table, S: BuildHasher> Iterator for $name<'_, T, S> {
            type Item = T::$item;

            fn next(&mut self) -> Option<T::$item> {
                self.0.next().map(|pair| pair.$part)
            }
        }
    )+};
}

part_of_pairs! {
    Keys: Key, 0;
    Values: Value, 1;
}

fused_iterators! {
    [T: Table, S: BuildHasher] Iter<'_, T, S>;
    [T: Table, S: BuildHasher] Keys<'_, T, S>;
    [T: Table, S: BuildHasher] Values<'_, T, S>;
    [T: Table, S, L] IntoIter<T, S, L>;
}

/// As [`CopyMapRef::iter`].
impl<'h, T: Table, S: BuildHasher, G: Section, L> IntoIterator for &'h CopyMapRef<'_, T, S, G, L> {
    type Item = (T::Key, T::Value);
    type IntoIter = Iter<'h, T, S>;

    fn into_iter(self) -> Iter<'h, T, S> {
        self.iter()
    }
}

/// The entries of a map that is used up; from [`CopyMap::into_iter`].
pub struct IntoIter<T: Table, S, L> {
    map: CopyMap<T, S, L>,
    /// Tables of the map that are visited: the successor, if there is one, comes after the current
    /// table.
    tables: usize,
    /// Buckets of this table that are visited.
    buckets: usize,
    pairs: vec::IntoIter<(T::Key, T::Value)>,
}

impl<T: Table, S, L> IntoIterator for CopyMap<T, S, L> {
    type Item = (T::Key, T::Value);
    type IntoIter = IntoIter<T, S, L>;

    fn into_iter(self) -> IntoIter<T, S, L> {
        IntoIter {
            map: self,
            tables: 0,
            buckets: 0,
            pairs: Vec::new().into_iter(),
        }
    }
}

/// Returns every entry once, whatever its hash is now.
impl<T: Table, S, L> Iterator for IntoIter<T, S, L> {
    type Item = (T::Key, T::Value);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(pair) = self.pairs.next() {
                return Some(pair);
            }
            let mut pairs = Vec::new();
            let version = self.map.table_version(self.tables)?;
            if self.buckets == version.table().buckets() {
                self.buckets = 0;
                self.tables += 1;
                continue;
            }
            version.for_each_unmoved(self.buckets, &mut |key, value| pairs.push((key, value)));
            self.buckets += 1;
            self.pairs = pairs.into_iter();
        }
    }
}

#[cfg(feature = "rayon")]
mod parallel {
    //! Parallel iteration: the handle's section keeps the tables for all threads.

    use rayon::iter::ParallelIterator;
    use rayon::iter::plumbing::{Folder, UnindexedConsumer, UnindexedProducer, bridge_unindexed};

    use super::*;

    /// Number of buckets that is not worth splitting.
    const GRAIN: usize = 256;

    /// Parallel iterator over the entries of a map; from [`CopyMapRef::par_iter`].
    pub struct ParIter<'h, T: Table, S>(Iter<'h, T, S>);

    impl<T: Table, S: BuildHasher, G: Section, L> CopyMapRef<'_, T, S, G, L> {
        /// A parallel iterator over the entries that [`iter`](Self::iter) returns.
        ///
        /// ```
        /// use corewise_maps::clht::LockBased;
        /// use rayon::iter::ParallelIterator;
        ///
        /// let squares: LockBased<u64, u64> = (0..1_000).map(|n| (n, n * n)).collect();
        /// let large = squares.pin().par_iter().filter(|(_, square)| *square > 100).count();
        /// assert_eq!(large, 989);
        /// ```
        pub fn par_iter(&self) -> ParIter<'_, T, S> {
            ParIter(self.iter())
        }
    }

    impl<T, S> ParallelIterator for ParIter<'_, T, S>
    where
        T: Table<Key: Send, Value: Send> + Sync,
        S: BuildHasher + Sync,
    {
        type Item = (T::Key, T::Value);

        fn drive_unindexed<C: UnindexedConsumer<Self::Item>>(self, consumer: C) -> C::Result {
            bridge_unindexed(self, consumer)
        }
    }

    impl<T, S> UnindexedProducer for ParIter<'_, T, S>
    where
        T: Table<Key: Send, Value: Send> + Sync,
        S: BuildHasher + Sync,
    {
        type Item = (T::Key, T::Value);

        fn split(mut self) -> (Self, Option<Self>) {
            let second = self.0.split(2 * GRAIN).map(Self);
            (self, second)
        }

        fn fold_with<F: Folder<Self::Item>>(self, folder: F) -> F {
            folder.consume_iter(self.0)
        }
    }
}

#[cfg(feature = "rayon")]
pub use parallel::ParIter;
