//! Iteration: one bucket of the table at a time, with the entries that were moved out of it.

use std::hash::BuildHasher;
use std::vec;

use super::{CopyMap, Table, TableVersion};

/// The entries of a map; from [`CopyMapRef::iter`](super::CopyMapRef::iter).
pub struct Iter<'h, T: Table, S> {
    map: &'h CopyMap<T, S>,
    version: &'h TableVersion<T>,
    /// Buckets not yet visited.
    buckets: std::ops::Range<usize>,
    pairs: vec::IntoIter<(T::Key, T::Value)>,
}

impl<'h, T: Table, S> Iter<'h, T, S> {
    pub(super) fn new(map: &'h CopyMap<T, S>, version: &'h TableVersion<T>) -> Self {
        version.table().begin_walk();
        Self {
            map,
            version,
            buckets: 0..version.table().buckets(),
            pairs: Vec::new().into_iter(),
        }
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
            let each = &mut |key, value| pairs.push((key, value));
            self.version.for_each(which, &self.map.hash_of(), each);
            self.pairs = pairs.into_iter();
        }
    }
}
