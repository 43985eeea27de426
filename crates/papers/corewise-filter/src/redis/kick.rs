//! How an insertion makes room in the newest subfilter.
//!
//! RedisBloom swaps the new fingerprint into a slot, the fingerprint from there into a slot of its
//! other bucket, and so on, until a bucket has a free slot; the slot within a bucket is one more
//! each time. After MAXITERATIONS swaps it swaps all back. Here the swaps are planned first, so
//! that an insertion that fails stores nothing, and a path is stored from its end, so that every
//! fingerprint is in one of its slots at all times.
//!
//! A path may visit a slot twice. Then the plan sees what its own earlier swaps would have left
//! there, and no order of the stores is safe: see [`KickPath::has_repeats`].

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::hash::{FiledItem, other_bucket};
use super::subfilter::Subfilter;

/// Stores of a path up to which a slot is looked for one by one.
const SEARCHED: usize = 32;

/// What has to be stored to insert an item.
#[derive(Default)]
pub(super) struct KickPath {
    /// Each slot once, with its last value, in the order of the first visits.
    stores: Vec<(u64, u8)>,
    /// Where the slots are in `stores`, if they are many.
    indices: HashMap<u64, usize>,
    has_repeats: bool,
}

impl KickPath {
    /// The path of an item for which no bucket has room; `None` if it does not end after
    /// `max_iterations` swaps.
    pub(super) fn find(
        subfilter: &Subfilter,
        item: &FiledItem,
        max_iterations: u16,
    ) -> Option<Self> {
        let mut path = Self::default();
        let mut fingerprint = item.fingerprint;
        let mut bucket = subfilter.bucket(item.buckets[0]);
        let mut victim = 0;
        for _ in 0..max_iterations {
            let slot = subfilter.first_slot(bucket) + victim;
            fingerprint = path.swap(subfilter, slot, fingerprint);
            bucket = subfilter.bucket(other_bucket(fingerprint, bucket));
            if let Some(free) = subfilter.find(bucket, 0) {
                path.stores.push((free, fingerprint));
                return Some(path);
            }
            victim = (victim + 1) % subfilter.size().bucket_slots;
        }
        None
    }

    /// Plans to store a fingerprint; returns what was there.
    fn swap(&mut self, subfilter: &Subfilter, slot: u64, fingerprint: u8) -> u8 {
        let Some(index) = self.index_of(slot) else {
            self.stores.push((slot, fingerprint));
            return subfilter.get(slot);
        };
        self.has_repeats = true;
        std::mem::replace(&mut self.stores[index].1, fingerprint)
    }

    /// The index of the planned store of a slot. If there is none, the caller appends it.
    fn index_of(&mut self, slot: u64) -> Option<usize> {
        let next = self.stores.len();
        if next < SEARCHED {
            return self.stores.iter().position(|store| store.0 == slot);
        }
        if next == SEARCHED && self.indices.is_empty() {
            let slots = self.stores.iter().map(|store| store.0);
            self.indices = slots.zip(0..).collect();
        }
        match self.indices.entry(slot) {
            Entry::Occupied(entry) => Some(*entry.get()),
            Entry::Vacant(entry) => {
                entry.insert(next);
                None
            }
        }
    }

    /// The slots and their values, from the first to the free one.
    pub(super) fn stores(&self) -> &[(u64, u8)] {
        &self.stores
    }

    /// Whether a slot was visited twice: a fingerprint may then be overwritten before it is stored
    /// elsewhere, in whichever order the slots are stored.
    pub(super) fn has_repeats(&self) -> bool {
        self.has_repeats
    }
}
