//! The guarantees of every concurrent map of numbers, as tests that are generic over the map.
//!
//! A table implements [`WordMap`] and lists the functions of this module in
//! [`for_every!`](crate::for_every).

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

use crate::hashing::Hashing;
use crate::history::models::{EntryOp, EntryOutcome, MapEntry};
use crate::history::record_beside;
use crate::random::{Random, fewer};

/// A concurrent map of numbers.
pub trait WordMap: Send + Sync + Sized {
    /// Creates a map of `buckets` buckets, which changes their number by itself if `grows`. A table
    /// that never does ignores `grows`.
    fn new(buckets: usize, hashing: Hashing, grows: bool) -> Self;
    /// Returns the value of a key.
    fn get(&self, key: u64) -> Option<u64>;
    /// Stores the values of several keys in `out`.
    fn get_many(&self, keys: &[u64], out: &mut [Option<u64>]);
    /// Inserts a pair; returns the present value as the error.
    fn try_insert(&self, key: u64, value: u64) -> Result<(), u64>;
    /// Removes a key and returns its value.
    fn remove(&self, key: u64) -> Option<u64>;
    /// The number of entries.
    fn entries(&self) -> usize;
    /// The number of buckets.
    fn bucket_count(&self) -> usize;
    /// Resizes the map to this number of buckets, a power of two.
    fn resize(&self, buckets: usize);
    /// Takes all pairs out.
    fn into_pairs(self) -> Vec<(u64, u64)>;
}

/// The results of a batch of lookups.
pub fn looked_up(map: &impl WordMap, keys: &[u64]) -> Vec<Option<u64>> {
    let mut out = vec![Some(u64::MAX); keys.len()];
    map.get_many(keys, &mut out);
    out
}

/// Random operations and resizes; each result must be that of `std`'s map.
fn differential<M: WordMap>(seed: u64, hashing: Hashing, keys: u64, most_buckets: u64) {
    let mut random = Random::from_seed(seed);
    let map = M::new(1, hashing, seed.is_multiple_of(2));
    let mut model = HashMap::new();
    for step in 0..fewer(5_000) {
        let key = random.below(keys);
        let there = model.get(&key).copied();
        match random.below(100) {
            0..40 => {
                let inserted = map.try_insert(key, step);
                assert_eq!(
                    inserted,
                    there.map_or(Ok(()), Err),
                    "insert {key} at {step}"
                );
                model.entry(key).or_insert(step);
            }
            40..65 => assert_eq!(map.remove(key), model.remove(&key)),
            65..93 => assert_eq!(map.get(key), there, "get {key} at {step}"),
            93..98 => {
                // Keys may repeat, and there may be more of them than fit in a group.
                let some: Vec<u64> = (0..random.below(150)).map(|_| random.below(keys)).collect();
                let expected: Vec<_> = some.iter().map(|key| model.get(key).copied()).collect();
                assert_eq!(looked_up(&map, &some), expected, "{some:?} at {step}");
            }
            _ => {
                let buckets = 1 << random.below(most_buckets + 1);
                map.resize(buckets);
                assert_eq!(map.bucket_count(), buckets);
                assert!((0..keys).all(|key| map.get(key) == model.get(&key).copied()));
            }
        }
        assert_eq!(map.entries(), model.len());
    }
    assert!((0..keys).all(|key| map.get(key) == model.get(&key).copied()));
    let mut pairs = map.into_pairs();
    let mut expected: Vec<_> = model.into_iter().collect();
    pairs.sort_unstable();
    expected.sort_unstable();
    assert_eq!(pairs, expected);
}

/// Compares random operations with those of `std`'s map.
pub fn it_does_what_a_hash_map_does<M: WordMap>() {
    // One that resizes by itself, and one that does not.
    for seed in 0..2 {
        differential::<M>(seed, Hashing::Mixed, 300, 8);
        differential::<M>(seed, Hashing::Own, 40, 6);
    }
}

/// The same with keys that all have one hash, or one bucket.
pub fn keys_of_one_bucket_do_no_harm<M: WordMap>() {
    for seed in 0..2 {
        differential::<M>(seed, Hashing::Alike, 40, 5);
        differential::<M>(seed, Hashing::High, 80, 6);
    }
}

/// Batches larger than a group, with keys in every part of the groups.
pub fn batches_answer_as_lookups_do<M: WordMap>() {
    for hashing in Hashing::ALL {
        let map = M::new(4, hashing, true);
        (0..100).for_each(|key| assert_eq!(map.try_insert(key * 2, key), Ok(())));
        for keys in (0..70).chain([127, 128, 129, 200]) {
            let keys: Vec<u64> = (0..keys).map(|key| key * 7 % 200).collect();
            let half = |key: &u64| key.is_multiple_of(2).then_some(*key / 2);
            let expected: Vec<_> = keys.iter().map(half).collect();
            assert_eq!(looked_up(&map, &keys), expected);
            let single: Vec<_> = keys.iter().map(|key| map.get(*key)).collect();
            assert_eq!(single, expected);
        }
    }
}

/// A batch whose results do not fit panics and looks nothing up.
pub fn a_batch_without_places_for_its_keys_is_refused<M: WordMap>() {
    let map = M::new(4, Hashing::Mixed, true);
    assert_eq!(map.try_insert(1, 1), Ok(()));
    for places in [1, 3] {
        let mut out = vec![Some(7); places];
        let refused = catch_unwind(AssertUnwindSafe(|| map.get_many(&[5, 6], &mut out)));
        assert!(refused.is_err());
        assert!(out.iter().all(|place| *place == Some(7)), "written");
    }
}

/// Resizes a map between random sizes until told to stop.
#[derive(Debug, Default)]
pub struct Resizing {
    /// Whether to stop.
    pub stop: AtomicBool,
    done: AtomicUsize,
}

impl Resizing {
    /// Resizes the map to at most `1 << most` buckets until told to stop.
    pub fn keep_resizing(&self, map: &impl WordMap, most: u64) {
        let mut random = Random::from_seed(7);
        // Relaxed: only tells when to stop.
        while !self.stop.load(Relaxed) {
            map.resize(1 << random.below(most + 1));
            // Relaxed: a count that orders nothing.
            self.done.fetch_add(1, Relaxed);
        }
    }

    /// Waits until another resize is done, so that what follows runs during the next one.
    pub fn wait_for_one(&self) {
        // Relaxed: as in `keep_resizing`.
        let seen = self.done.load(Relaxed);
        while self.done.load(Relaxed) == seen && !self.stop.load(Relaxed) {
            thread::yield_now();
        }
    }
}

fn perform(map: &impl WordMap, key: u64, op: &EntryOp<u64>) -> EntryOutcome<u64> {
    EntryOutcome::Held(match *op {
        EntryOp::TryInsert(value) => map.try_insert(key, value).err(),
        EntryOp::Remove => map.remove(key),
        _ => map.get(key),
    })
}

/// Several threads operate on a few keys while another one resizes.
fn histories<M: WordMap>(hashing: Hashing, most_buckets: u64) {
    const THREADS: u64 = 3;
    const CALLS: u64 = 900;
    for seed in 0..2 {
        let map = M::new(1, hashing, false);
        let resizing = Resizing::default();
        let beside = || resizing.keep_resizing(&map, most_buckets);
        let room = 5 * CALLS as usize;
        let history = record_beside(THREADS, room, &resizing.stop, beside, |thread, recorder| {
            let mut random = Random::from_seed(seed << 8 | thread);
            for call in 0..CALLS {
                if call % 150 == 0 {
                    resizing.wait_for_one();
                }
                let key = random.below(5) * 4;
                let op = match random.below(4) {
                    0 => EntryOp::TryInsert(thread << 32 | call),
                    1 => EntryOp::Remove,
                    2 => EntryOp::Get,
                    _ => {
                        let keys = [0, 4, 8, 12, 16];
                        let held = || looked_up(&map, &keys).into_iter().map(EntryOutcome::Held);
                        recorder.record_batch(keys, EntryOp::Get, held);
                        continue;
                    }
                };
                recorder.record(key, op.clone(), || perform(&map, key, &op));
            }
        });
        history.check(&MapEntry::new()).assert_linearizable();
    }
}

/// Histories of keys that share a bucket at some sizes of the table and not at others.
pub fn histories_beside_resizes_are_linearizable<M: WordMap>() {
    histories::<M>(Hashing::Own, 5);
}

/// Histories of keys that all have one hash: slots are reused for other keys all the time.
pub fn histories_in_one_bucket_are_linearizable<M: WordMap>() {
    histories::<M>(Hashing::Alike, 1);
}

/// Inserts and removes odd keys of one thread until told to stop.
fn change_odd_keys(map: &impl WordMap, thread: u64, keys: u64, stop: &AtomicBool) {
    let mut random = Random::from_seed(thread);
    // Relaxed: only tells when to stop.
    while !stop.load(Relaxed) {
        let key = random.below(keys) << 2 | thread << 1 | 1;
        assert_eq!(map.try_insert(key, !key), Ok(()));
        assert_eq!(map.remove(key), Some(!key));
    }
}

/// Lookups and batches of lookups find the keys that no thread removes.
pub fn entries_that_stay_are_found_beside_resizes_and_updates<M: WordMap>() {
    const KEPT: u64 = 600;
    let map = M::new(64, Hashing::Mixed, true);
    (0..KEPT).for_each(|key| assert_eq!(map.try_insert(key * 2, key), Ok(())));
    let resizing = Resizing::default();
    thread::scope(|scope| {
        let (map, stop) = (&map, &resizing.stop);
        for thread in 0..2 {
            scope.spawn(move || change_odd_keys(map, thread, KEPT, stop));
        }
        scope.spawn(|| resizing.keep_resizing(map, 9));
        let mut random = Random::from_seed(99);
        for call in 0..fewer(60_000) {
            if call % 10_000 == 0 {
                resizing.wait_for_one();
            }
            let key = random.below(KEPT);
            assert_eq!(map.get(key * 2), Some(key));
            if call % 16 == 0 {
                let keys: [u64; 24] = std::array::from_fn(|_| random.below(KEPT));
                let found = looked_up(map, &keys.map(|key| key * 2));
                assert!(keys.iter().copied().map(Some).eq(found), "{keys:?}");
            }
        }
        // Relaxed: only tells the others to stop.
        stop.store(true, Relaxed);
    });
    assert_eq!(map.entries() as u64, KEPT);
}

/// Three threads resize the map at a time.
pub fn several_threads_may_ask_for_a_resize<M: WordMap>() {
    let map = M::new(1, Hashing::Mixed, true);
    (0..300).for_each(|key| assert_eq!(map.try_insert(key, key), Ok(())));
    thread::scope(|scope| {
        for thread in 0..3u32 {
            let map = &map;
            scope.spawn(move || {
                for round in 0..20 {
                    map.resize(1 << ((round + thread) % 8));
                    assert!((0..300).all(|key| map.get(key) == Some(key)));
                }
            });
        }
    });
    assert_eq!(map.entries(), 300);
}
