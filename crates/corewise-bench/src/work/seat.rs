//! One thread at a table: its handle, its scratch, its counts.

use crate::latencies::Outcome;
use crate::plan::Plan;
use crate::record::Counts;
use crate::stamp::{Numbers, stamp};
use crate::stream::{GET, INSERT, shifted};
use crate::table::{Handle, Kind, MOST_BATCHED, Table};
use crate::work::{Part, Sums, Tally};

/// A thread at a table.
pub(super) struct Seat<'t, K: Kind, T: Table<K> + 't> {
    pub(super) handle: T::Handle<'t>,
    pub(super) scratch: K::Scratch,
    /// The same for each key of a batch, and what was found there.
    batch: Vec<K::Scratch>,
    found: [Option<u64>; MOST_BATCHED],
    pub(super) plan: Plan,
    pub(super) numbers: Numbers,
    pub(super) counts: Counts,
    pub(super) sums: Sums,
    /// Lookups by [`Seat::step_beside_kept`] that missed a key that stays.
    pub(super) kept_misses: u64,
}

impl<'t, K: Kind, T: Table<K>> Seat<'t, K, T> {
    /// Sits down; on the thread that stays.
    pub(super) fn new(table: &'t T, plan: &Plan, part: Part, numbers: Option<Numbers>) -> Self {
        Self {
            handle: table.handle(),
            scratch: K::scratch(&plan.shape),
            batch: (0..MOST_BATCHED).map(|_| K::scratch(&plan.shape)).collect(),
            found: [None; MOST_BATCHED],
            plan: *plan,
            numbers: numbers.unwrap_or_else(|| Numbers::of_thread(part.thread)),
            counts: Counts::default(),
            sums: Sums::default(),
            kept_misses: 0,
        }
    }

    /// What it did so far.
    pub(super) fn tally(&self) -> Tally {
        Tally {
            counts: self.counts,
            sums: self.sums,
        }
    }

    /// One operation of a stream.
    #[inline(always)]
    pub(super) fn step(&mut self, index: u32, operation: u8, shift: u32) -> Outcome {
        let key = self.plan.key(shifted(index, shift, self.plan.range));
        if operation == GET {
            usize::from(!self.get(key))
        } else if operation == INSERT {
            2 + usize::from(!self.insert(key))
        } else {
            4 + usize::from(!self.remove(key))
        }
    }

    /// The same where half of the keys stay: updates go to the others, and lookups of those that
    /// stay are counted if they miss.
    #[inline(always)]
    pub(super) fn step_beside_kept(&mut self, index: u32, operation: u8, shift: u32) -> Outcome {
        let index = shifted(index, shift, self.plan.range);
        if operation == GET {
            let hit = self.get(self.plan.key(index));
            self.kept_misses += u64::from(!hit & self.plan.keeps(index));
            usize::from(!hit)
        } else {
            let key = self.plan.key(Plan::updated(index));
            if operation == INSERT {
                2 + usize::from(!self.insert(key))
            } else {
                4 + usize::from(!self.remove(key))
            }
        }
    }

    /// Looks a key up. No branch but the table's own: whether a key is there is a coin toss, and a
    /// mispredicted branch would cost more than the lookup.
    #[inline(always)]
    pub(super) fn get(&mut self, key: u64) -> bool {
        let found = self.handle.get(K::query(&mut self.scratch, key));
        let hit = found.is_some();
        self.sums.check_if(hit, key, found.unwrap_or(0));
        self.counts.get_hits += u64::from(hit);
        self.counts.get_misses += u64::from(!hit);
        hit
    }

    /// Looks a batch of keys of a stream up, where half of the keys stay or none is known to; up to
    /// [`MOST_BATCHED`].
    #[inline(always)]
    pub(super) fn get_many(&mut self, indices: &[u32], shift: u32) {
        let plan = self.plan;
        let index = |drawn: &u32| shifted(*drawn, shift, plan.range);
        let query = |(scratch, drawn)| K::query(scratch, plan.key(index(drawn)));
        let keys = self.batch.iter_mut().zip(indices).map(query);
        let found = &mut self.found[..indices.len()];
        self.handle.get_many(keys, found);
        for (drawn, found) in indices.iter().zip(found) {
            let (index, hit) = (index(drawn), found.is_some());
            self.sums.check_if(hit, plan.key(index), found.unwrap_or(0));
            self.counts.get_hits += u64::from(hit);
            self.counts.get_misses += u64::from(!hit);
            self.kept_misses += u64::from(!hit & plan.keeps(index));
        }
    }

    /// What a batch of lookups gives for these keys; up to [`MOST_BATCHED`].
    pub(super) fn stamps(&mut self, keys: impl Iterator<Item = u64>) -> &[Option<u64>] {
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
    pub(super) fn insert(&mut self, key: u64) -> bool {
        let number = self.numbers.draw();
        self.insert_number(key, number)
    }

    /// Inserts a key with a value of a number.
    #[inline(always)]
    pub(super) fn insert_number(&mut self, key: u64, number: u32) -> bool {
        let stamp = stamp(key, number);
        let value = K::value(&self.scratch, stamp);
        let inserted = self.handle.insert(K::query(&mut self.scratch, key), value);
        self.sums.gain_if(inserted, key, stamp);
        self.counts.inserted += u64::from(inserted);
        self.counts.insert_failed += u64::from(!inserted);
        inserted
    }

    /// Removes a key.
    #[inline(always)]
    pub(super) fn remove(&mut self, key: u64) -> bool {
        let removed = self.handle.remove(K::query(&mut self.scratch, key));
        let (gone, stamp) = (removed.is_some(), removed.unwrap_or(0));
        self.sums.lose_if(gone, key, stamp);
        self.sums.check_if(gone, key, stamp);
        self.counts.removed += u64::from(gone);
        self.counts.remove_failed += u64::from(!gone);
        gone
    }
}
