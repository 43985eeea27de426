//! Iteration: one bucket of the table at a time, with what was moved out of it.

use std::hash::BuildHasher;
use std::vec;

use super::LockBased;
use super::table::Table;
use crate::word::{Word, WordKey};

/// The entries of a map; from [`LockBasedRef::iter`](super::LockBasedRef::iter).
pub struct Iter<'h, K, V, S> {
    map: &'h LockBased<K, V, S>,
    table: &'h Table,
    /// Buckets not yet looked at.
    buckets: std::ops::Range<usize>,
    pairs: vec::IntoIter<(K, V)>,
}

impl<'h, K, V, S> Iter<'h, K, V, S> {
    pub(super) fn new(map: &'h LockBased<K, V, S>, table: &'h Table) -> Self {
        Self {
            map,
            table,
            buckets: 0..table.len(),
            pairs: Vec::new().into_iter(),
        }
    }
}

impl<K: WordKey, V: Word, S: BuildHasher> Iterator for Iter<'_, K, V, S> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        loop {
            if let Some(pair) = self.pairs.next() {
                return Some(pair);
            }
            let bucket = self.buckets.next()?;
            let mut pairs = Vec::new();
            let which = (self.table.mask(), bucket as u64);
            self.table
                .for_each(which, &self.map.hash_of(), &mut |key, value| {
                    // SAFETY: what is in the table is the map's keys and values.
                    pairs.push(unsafe { (K::from_raw(key), V::from_raw(value)) });
                });
            self.pairs = pairs.into_iter();
        }
    }
}
