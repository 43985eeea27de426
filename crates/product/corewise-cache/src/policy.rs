//! S3-FIFO: a small queue for new keys, a main queue for keys that were read again, and
//! fingerprints of keys that left the small queue (Yang et al., SOSP 2023, section 4).

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
    /// Entries that expire, the oldest first.
    pub(crate) expiring: VecDeque<Item<K>>,
    ghosts: VecDeque<u64>,
    ghost_counts: HashMap<u64, u32>,
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
            ghost_counts: HashMap::new(),
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

    pub(crate) fn is_ghost(&self, fingerprint: u64) -> bool {
        self.ghost_counts.contains_key(&fingerprint)
    }

    /// Remembers a key that left the small queue; `limit` is how many are remembered.
    pub(crate) fn add_ghost(&mut self, fingerprint: u64, limit: usize) {
        self.ghosts.push_back(fingerprint);
        *self.ghost_counts.entry(fingerprint).or_insert(0) += 1;
        while self.ghosts.len() > limit.max(1) {
            let Some(oldest) = self.ghosts.pop_front() else {
                return;
            };
            if let Some(count) = self.ghost_counts.get_mut(&oldest) {
                *count -= 1;
                if *count == 0 {
                    self.ghost_counts.remove(&oldest);
                }
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
