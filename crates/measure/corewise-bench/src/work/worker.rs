//! A thread's state at a table: its handle, its scratch, its counts.

use crate::latencies::OutcomeIndex;
use crate::plan::Plan;
use crate::record::OutcomeCounts;
use crate::stamp::{Numbers, stamp};
use crate::stream::{GET, INSERT, shifted};
use crate::table::{Kind, MOST_BATCHED, MapHandle, MeasuredMap};
use crate::work::{OpCounts, Part, Sums};

pub(crate) struct Worker<'t, K: Kind, T: MeasuredMap<K> + 't> {
    pub(crate) handle: T::Handle<'t>,
    pub(crate) scratch: K::Scratch,
    /// Scratches for the keys of a batch, and their results.
    batch: Vec<K::Scratch>,
    found: [Option<u64>; MOST_BATCHED],
    pub(crate) plan: Plan,
    pub(crate) numbers: Numbers,
    pub(crate) counts: OutcomeCounts,
    pub(crate) sums: Sums,
    /// Lookups by [`Worker::step`] that missed a key that stays.
    pub(crate) kept_misses: u64,
}

impl<'t, K: Kind, T: MeasuredMap<K>> Worker<'t, K, T> {
    /// Creates a worker on the thread that uses it.
    pub(crate) fn new(map: &'t T, plan: &Plan, part: Part, numbers: Option<Numbers>) -> Self {
        Self {
            handle: map.handle(),
            scratch: K::scratch(&plan.shape),
            batch: (0..MOST_BATCHED).map(|_| K::scratch(&plan.shape)).collect(),
            found: [None; MOST_BATCHED],
            plan: *plan,
            numbers: numbers.unwrap_or_else(|| Numbers::of_thread(part.thread)),
            counts: OutcomeCounts::default(),
            sums: Sums::default(),
            kept_misses: 0,
        }
    }

    pub(crate) fn tally(&self) -> OpCounts {
        OpCounts {
            counts: self.counts,
            sums: self.sums,
        }
    }

    /// Runs one operation of a stream. If half of the keys stay, updates go to the others, and
    /// lookups that miss one of those that stay are counted.
    #[inline(always)]
    pub(crate) fn step<const HALF_STAYS: bool>(
        &mut self,
        index: u32,
        operation: u8,
        shift: u32,
    ) -> OutcomeIndex {
        let index = shifted(index, shift, self.plan.range);
        if operation == GET {
            let hit = self.get(self.plan.key(index));
            if HALF_STAYS {
                self.kept_misses += u64::from(!hit & self.plan.keeps(index));
            }
            return usize::from(!hit);
        }
        let updated = if HALF_STAYS {
            Plan::updated(index)
        } else {
            index
        };
        let key = self.plan.key(updated);
        if operation == INSERT {
            2 + usize::from(!self.insert(key))
        } else {
            4 + usize::from(!self.remove(key))
        }
    }

    /// Looks a key up. The only branches are the table's: whether a key is present is random, and a
    /// mispredicted branch would cost more than the lookup.
    #[inline(always)]
    pub(crate) fn get(&mut self, key: u64) -> bool {
        let found = self.handle.get(K::query(&mut self.scratch, key));
        let hit = found.is_some();
        self.sums.check_if(hit, key, found.unwrap_or(0));
        self.counts.count_get(hit);
        hit
    }

    /// Looks up a batch of up to [`MOST_BATCHED`] keys of a stream, where half of the keys stay or
    /// none is known to.
    #[inline(always)]
    pub(crate) fn get_many(&mut self, indices: &[u32], shift: u32) {
        let plan = self.plan;
        let index = |drawn: &u32| shifted(*drawn, shift, plan.range);
        let query = |(scratch, drawn)| K::query(scratch, plan.key(index(drawn)));
        let keys = self.batch.iter_mut().zip(indices).map(query);
        let found = &mut self.found[..indices.len()];
        self.handle.get_many(keys, found);
        for (drawn, found) in indices.iter().zip(found) {
            let (index, hit) = (index(drawn), found.is_some());
            self.sums.check_if(hit, plan.key(index), found.unwrap_or(0));
            self.counts.count_get(hit);
            self.kept_misses += u64::from(!hit & plan.keeps(index));
        }
    }

    /// Looks up a batch of up to [`MOST_BATCHED`] keys.
    pub(crate) fn stamps(&mut self, keys: impl Iterator<Item = u64>) -> &[Option<u64>] {
        let written = self.batch.iter_mut().zip(keys);
        let queries: Vec<&K::Query> = written
            .map(|(scratch, key)| K::query(scratch, key))
            .collect();
        let found = &mut self.found[..queries.len()];
        self.handle.get_many(queries.into_iter(), found);
        found
    }

    /// Inserts a key with a new value.
    #[inline(always)]
    pub(crate) fn insert(&mut self, key: u64) -> bool {
        let number = self.numbers.draw();
        self.insert_number(key, number)
    }

    /// Inserts a key with the value of a number.
    #[inline(always)]
    pub(crate) fn insert_number(&mut self, key: u64, number: u32) -> bool {
        let stamp = stamp(key, number);
        let value = K::value(&self.scratch, stamp);
        let inserted = self.handle.insert(K::query(&mut self.scratch, key), value);
        self.sums.gain_if(inserted, key, stamp);
        self.counts.count_insert(inserted);
        inserted
    }

    #[inline(always)]
    pub(crate) fn remove(&mut self, key: u64) -> bool {
        let removed = self.handle.remove(K::query(&mut self.scratch, key));
        let (gone, stamp) = (removed.is_some(), removed.unwrap_or(0));
        self.sums.lose_if(gone, key, stamp);
        self.sums.check_if(gone, key, stamp);
        self.counts.count_remove(gone);
        gone
    }
}
