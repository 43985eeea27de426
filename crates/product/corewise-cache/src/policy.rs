//! S3-FIFO: a small queue for new keys, a main queue for keys that were read again, and
//! fingerprints of keys that left the small queue (Yang et al., SOSP 2023, section 4).
//!
//! As in the paper, the small queue has a tenth of the weight, and a key that the ghost remembers
//! enters the main queue and is forgotten. Differences from the paper:
//!
//! - One read after the insertion promotes an entry from the small queue, as in the engines'
//!   policy; the paper needs two. With zipf 1.0, scans and room for 10 % of the keys, 0.591 of the
//!   lookups hit, and 0.582 if two reads are needed; the other traces of `examples/compare.rs`
//!   differ by less than 0.001 (2026-11-28).
//! - The ghost has room for all entries of a full cache, not for nine tenths of them.
//! - A replaced entry keeps its queue, its place and its reads.

use std::collections::{HashMap, VecDeque};

/// What the queues hold of an entry. It is stale if the map has no entry of that key and number.
pub(crate) struct Item<K> {
    pub(crate) key: K,
    pub(crate) id: u64,
}

/// The state that updates share, behind one lock. Lookups never read it.
pub(crate) struct Policy<K> {
    pub(crate) small: VecDeque<Item<K>>,
    pub(crate) main: VecDeque<Item<K>>,
    /// Entries with an expiry. Updates look at them in turn; one that has not expired goes to the
    /// back. So they are not in the order of insertion or of expiry.
    pub(crate) expiring: VecDeque<Item<K>>,
    /// Fingerprints with their numbers, the oldest first. An item is stale if `ghost_numbers` has
    /// no such number for the fingerprint.
    ghosts: VecDeque<(u64, u64)>,
    ghost_numbers: HashMap<u64, u64>,
    next_ghost: u64,
    pub(crate) small_weight: u64,
    pub(crate) main_weight: u64,
    pub(crate) next_id: u64,
}

impl<K> Policy<K> {
    pub(crate) fn new() -> Self {
        Self {
            small: VecDeque::new(),
            main: VecDeque::new(),
            expiring: VecDeque::new(),
            ghosts: VecDeque::new(),
            ghost_numbers: HashMap::new(),
            next_ghost: 0,
            small_weight: 0,
            main_weight: 0,
            next_id: 0,
        }
    }

    pub(crate) fn weight(&self) -> u64 {
        self.small_weight + self.main_weight
    }

    pub(crate) fn add_weight(&mut self, in_main: bool, weight: u64) {
        *self.weight_of(in_main) += weight;
    }

    pub(crate) fn subtract_weight(&mut self, in_main: bool, weight: u64) {
        *self.weight_of(in_main) -= weight;
    }

    fn weight_of(&mut self, in_main: bool) -> &mut u64 {
        if in_main {
            &mut self.main_weight
        } else {
            &mut self.small_weight
        }
    }

    /// Whether the fingerprint is remembered; it is forgotten now, as the key is in a queue again.
    pub(crate) fn take_ghost(&mut self, fingerprint: u64) -> bool {
        self.ghost_numbers.remove(&fingerprint).is_some()
    }

    /// How many fingerprints to remember: the number of entries that a full cache has if their mean
    /// weight is today's. So the removal of many entries for a heavy one does not empty the ghost.
    pub(crate) fn ghost_limit(&self, entries: usize, max_weight: u64) -> usize {
        let limit = entries as u128 * u128::from(max_weight) / u128::from(self.weight().max(1));
        usize::try_from(limit).unwrap_or(usize::MAX).max(1)
    }

    /// Remembers a key that left the small queue, until `limit` others have left it.
    pub(crate) fn add_ghost(&mut self, fingerprint: u64, limit: usize) {
        self.next_ghost += 1;
        self.ghosts.push_back((fingerprint, self.next_ghost));
        self.ghost_numbers.insert(fingerprint, self.next_ghost);
        while self.ghosts.len() > limit {
            let Some((oldest, number)) = self.ghosts.pop_front() else {
                return;
            };
            if self.ghost_numbers.get(&oldest) == Some(&number) {
                self.ghost_numbers.remove(&oldest);
            }
        }
    }

    /// Drops stale items once they outnumber the entries.
    pub(crate) fn drop_stale(&mut self, entries: usize, live: impl Fn(&Item<K>) -> bool) {
        let limit = 2 * entries + 64;
        if self.small.len() + self.main.len() > limit {
            self.small.retain(&live);
            self.main.retain(&live);
        }
        if self.expiring.len() > limit {
            self.expiring.retain(&live);
        }
    }
}
