//! The keys that were evicted last.

/// A bounded first-in-first-out set of keys. (A server would keep fingerprints; this set is exact.)
pub(crate) struct Ghost {
    /// By key: the number of its insertion, or 0 if it is not in the set.
    inserted: Vec<u32>,
    insertions: u32,
}

impl Ghost {
    /// Creates a set for keys below `key_bound`.
    pub(crate) fn new(key_bound: usize) -> Self {
        Self {
            inserted: vec![0; key_bound],
            insertions: 0,
        }
    }

    /// Adds a key.
    pub(crate) fn insert(&mut self, key: u32) {
        self.insertions += 1;
        self.inserted[key as usize] = self.insertions;
    }

    /// Removes `key`. Returns whether it was among the last `room` keys that were added.
    pub(crate) fn remove(&mut self, key: u32, room: u64) -> bool {
        let at = std::mem::take(&mut self.inserted[key as usize]);
        at != 0 && u64::from(self.insertions - at) < room
    }
}
