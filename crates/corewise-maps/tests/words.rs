//! The guarantees of every map of words: a table is an `impl WordMap` and a line below.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

use std::cell::Cell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use corewise_maps::clht::LockBased;
use corewise_maps::copy_map::{CopyMap, Table, TryInsertError};
use corewise_maps::cuckoo::{CuckooMap, CuckooTable};
use corewise_maps_lab::clht_lock_free::LockFree;
use corewise_maps_lab::hopscotch::{HopscotchMap, HopscotchTable};
use corewise_testkit::history::models::{EntryOp, EntryOutcome, MapEntry};
use corewise_testkit::history::record_beside;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use corewise_testkit::for_every;
use corewise_testkit::hashing::Hashing;

for_every! {
    lock_based: LockBased<u64, u64, Hashing>,
    lock_free: LockFree<u64, u64, Hashing>,
    hopscotch: HopscotchMap<u64, u64, Hashing>,
    hopscotch_wide: Wide<HopscotchTable<u64, [u64; 3]>>,
    cuckoo: CuckooMap<u64, u64, Hashing>,
    cuckoo_wide: Wide<CuckooTable<u64, [u64; 3]>>,
    => {
        it_does_what_a_hash_map_does
        keys_of_one_bucket_do_no_harm
        any_word_may_be_a_key_and_a_value
        it_grows_by_itself
        one_of_several_wins
        histories_beside_resizes_are_linearizable
        histories_in_one_bucket_are_linearizable
        entries_that_stay_are_found_beside_resizes_and_updates
        batches_answer_as_lookups_do
        a_batch_without_places_for_its_keys_is_refused
        values_belong_to_their_keys
        iterators_yield_what_stays_once
        updates_beside_resizes_are_all_there
        several_threads_may_ask_for_a_resize
    }
}

/// A map of numbers.
trait WordMap: Send + Sync + Sized {
    /// Creates a map of `buckets` buckets.
    fn new(buckets: usize, hashing: Hashing, grows: bool) -> Self;
    fn get(&self, key: u64) -> Option<u64>;
    fn get_many(&self, keys: &[u64], out: &mut [Option<u64>]);
    /// Returns the value that was replaced.
    fn insert(&self, key: u64, value: u64) -> Option<u64>;
    /// Returns the present value as the error.
    fn try_insert(&self, key: u64, value: u64) -> Result<(), u64>;
    fn remove(&self, key: u64) -> Option<u64>;
    /// Returns the new value.
    fn update(&self, key: u64, change: impl FnMut(u64) -> u64) -> Option<u64>;
    fn len(&self) -> usize;
    fn buckets(&self) -> usize;
    fn resize_to(&self, buckets: usize);
    /// Collects the pairs with an iterator.
    fn pairs(&self) -> Vec<(u64, u64)>;
}

impl<T: Table<Key = u64, Value = u64> + Send + Sync> WordMap for CopyMap<T, Hashing> {
    fn new(buckets: usize, hashing: Hashing, grows: bool) -> Self {
        let builder = CopyMap::<T>::builder().buckets(buckets);
        let builder = builder.hasher(hashing).automatic_resize(grows);
        builder.domain(corewise_rcu::Domain::new()).build()
    }
    fn get(&self, key: u64) -> Option<u64> {
        self.pin().get(&key)
    }
    fn get_many(&self, keys: &[u64], out: &mut [Option<u64>]) {
        self.pin().get_many(keys, out);
    }
    fn insert(&self, key: u64, value: u64) -> Option<u64> {
        self.pin().insert(key, value)
    }
    fn try_insert(&self, key: u64, value: u64) -> Result<(), u64> {
        match self.pin().try_insert(key, value) {
            Ok(()) => Ok(()),
            Err(TryInsertError::Occupied(there)) => Err(there),
            Err(full) => panic!("{full}"),
        }
    }
    fn remove(&self, key: u64) -> Option<u64> {
        self.pin().remove(&key)
    }
    fn update(&self, key: u64, change: impl FnMut(u64) -> u64) -> Option<u64> {
        self.pin().update(&key, change)
    }
    fn len(&self) -> usize {
        CopyMap::len(self)
    }
    fn buckets(&self) -> usize {
        CopyMap::buckets(self)
    }
    fn resize_to(&self, buckets: usize) {
        CopyMap::resize_to(self, buckets).expect("there is memory");
    }
    fn pairs(&self) -> Vec<(u64, u64)> {
        self.pin().iter().collect()
    }
}

/// A map of wide values: a number is stored as three words, which must belong together.
struct Wide<T>(CopyMap<T, Hashing>);

fn widen(value: u64) -> [u64; 3] {
    [value, !value, value.rotate_left(32)]
}

fn narrow(words: [u64; 3]) -> u64 {
    assert_eq!(words, widen(words[0]), "a value of two");
    words[0]
}

impl<T: Table<Key = u64, Value = [u64; 3]> + Send + Sync> WordMap for Wide<T> {
    fn new(buckets: usize, hashing: Hashing, grows: bool) -> Self {
        let builder = CopyMap::<T>::builder().buckets(buckets);
        let builder = builder.hasher(hashing).automatic_resize(grows);
        Self(builder.domain(corewise_rcu::Domain::new()).build())
    }
    fn get(&self, key: u64) -> Option<u64> {
        self.0.pin().get(&key).map(narrow)
    }
    fn get_many(&self, keys: &[u64], out: &mut [Option<u64>]) {
        let mut wide: Vec<_> = out.iter().map(|place| place.map(widen)).collect();
        self.0.pin().get_many(keys, &mut wide);
        for (place, value) in out.iter_mut().zip(wide) {
            *place = value.map(narrow);
        }
    }
    fn insert(&self, key: u64, value: u64) -> Option<u64> {
        let old = self.0.pin().insert(key, widen(value));
        old.map(narrow)
    }
    fn try_insert(&self, key: u64, value: u64) -> Result<(), u64> {
        match self.0.pin().try_insert(key, widen(value)) {
            Ok(()) => Ok(()),
            Err(TryInsertError::Occupied(there)) => Err(narrow(there)),
            Err(full) => panic!("{full}"),
        }
    }
    fn remove(&self, key: u64) -> Option<u64> {
        self.0.pin().remove(&key).map(narrow)
    }
    fn update(&self, key: u64, mut change: impl FnMut(u64) -> u64) -> Option<u64> {
        let change = |old| widen(change(narrow(old)));
        self.0.pin().update(&key, change).map(narrow)
    }
    fn len(&self) -> usize {
        self.0.len()
    }
    fn buckets(&self) -> usize {
        self.0.buckets()
    }
    fn resize_to(&self, buckets: usize) {
        self.0.resize_to(buckets).expect("there is memory");
    }
    fn pairs(&self) -> Vec<(u64, u64)> {
        let map = self.0.pin();
        map.iter()
            .map(|(key, value)| (key, narrow(value)))
            .collect()
    }
}

fn fewer(all: u64) -> u64 {
    let fewer = std::env::var_os("COREWISE_FEWER").is_some();
    if fewer { all.div_ceil(20) } else { all }
}

fn sorted(mut pairs: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    pairs.sort_unstable();
    pairs
}

/// Random operations and resizes; each result must be that of `std`'s map.
fn differential<M: WordMap>(seed: u64, hashing: Hashing, keys: u64, most_buckets: u32) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let map = M::new(1, hashing, seed.is_multiple_of(2));
    let mut model = HashMap::new();
    for step in 0..fewer(6_000) {
        let key = rng.random_range(0..keys);
        let there = model.get(&key).copied();
        match rng.random_range(0..100) {
            0..25 => {
                assert_eq!(map.try_insert(key, step), there.map_or(Ok(()), Err));
                model.entry(key).or_insert(step);
            }
            25..35 => assert_eq!(map.insert(key, step), model.insert(key, step)),
            35..60 => assert_eq!(map.remove(key), model.remove(&key)),
            60..70 => {
                assert_eq!(map.update(key, |old| old + 1), there.map(|old| old + 1));
                model.entry(key).and_modify(|value| *value += 1);
            }
            70..95 => assert_eq!(map.get(key), there, "get {key} at {step}"),
            95..98 => {
                // Keys may repeat, and there may be more of them than fit in a group.
                let many = rng.random_range(0..150);
                let some: Vec<u64> = (0..many).map(|_| rng.random_range(0..keys)).collect();
                let told: Vec<_> = some.iter().map(|key| model.get(key).copied()).collect();
                assert_eq!(looked_up(&map, &some), told, "{some:?} at {step}");
            }
            _ => {
                let buckets = 1 << rng.random_range(0..=most_buckets);
                map.resize_to(buckets);
                assert_eq!(map.buckets(), buckets);
                let there: Vec<_> = model.iter().map(|(key, value)| (*key, *value)).collect();
                assert_eq!(sorted(map.pairs()), sorted(there));
            }
        }
        assert_eq!(map.len(), model.len());
    }
    assert!((0..keys).all(|key| map.get(key) == model.get(&key).copied()));
}

/// The results of a batch of lookups.
fn looked_up(map: &impl WordMap, keys: &[u64]) -> Vec<Option<u64>> {
    let mut out = vec![Some(u64::MAX); keys.len()];
    map.get_many(keys, &mut out);
    out
}

/// Batches larger than a group, with keys in every part of the groups.
fn batches_answer_as_lookups_do<M: WordMap>() {
    for hashing in Hashing::ALL {
        let map = M::new(4, hashing, true);
        (0..100).for_each(|key| assert_eq!(map.try_insert(key * 2, key), Ok(())));
        for keys in (0..70).chain([127, 128, 129, 200]) {
            let keys: Vec<u64> = (0..keys).map(|key| key * 7 % 200).collect();
            let half = |key: &u64| key.is_multiple_of(2).then_some(*key / 2);
            let told: Vec<_> = keys.iter().map(half).collect();
            assert_eq!(looked_up(&map, &keys), told);
        }
    }
}

fn a_batch_without_places_for_its_keys_is_refused<M: WordMap>() {
    let map = M::new(4, Hashing::Mixed, true);
    assert_eq!(map.try_insert(1, 1), Ok(()));
    for places in [1, 3] {
        let mut out = vec![Some(7); places];
        let refused = catch_unwind(AssertUnwindSafe(|| map.get_many(&[5, 6], &mut out)));
        assert!(refused.is_err());
        assert!(out.iter().all(|place| *place == Some(7)), "written");
    }
}

fn it_does_what_a_hash_map_does<M: WordMap>() {
    // One that resizes by itself, and one that does not.
    for seed in 0..2 {
        differential::<M>(seed, Hashing::Mixed, 300, 8);
        differential::<M>(seed, Hashing::Own, 40, 6);
    }
}

fn keys_of_one_bucket_do_no_harm<M: WordMap>() {
    for seed in 0..2 {
        differential::<M>(seed, Hashing::Alike, 50, 5);
        differential::<M>(seed, Hashing::High, 90, 6);
    }
    // Keys chosen against the table, which must not grow without bound for them.
    let map = M::new(1, Hashing::Alike, true);
    let keys = fewer(500);
    (0..keys).for_each(|key| assert_eq!(map.try_insert(key, key), Ok(())));
    assert!((0..keys).all(|key| map.get(key) == Some(key)));
    if !cfg!(corewise_stress) {
        // It grows by a factor of 4 at most, while it has no more buckets than entries.
        assert!(map.buckets() as u64 <= 4 * keys, "{}", map.buckets());
    }
    assert!((0..keys).all(|key| map.remove(key) == Some(key)));
    assert_eq!((map.len(), map.pairs()), (0, Vec::new()));
}

fn any_word_may_be_a_key_and_a_value<M: WordMap>() {
    let powers = (0..64).flat_map(|bit| [1u64 << bit, !(1 << bit)]);
    let mut words: Vec<u64> = powers.chain([0, u64::MAX, 1 << 63]).collect();
    words.sort_unstable();
    words.dedup();
    for hashing in Hashing::ALL {
        let map = M::new(1, hashing, true);
        for word in &words {
            assert_eq!(map.get(*word), None);
            assert_eq!(map.try_insert(*word, !word), Ok(()));
        }
        for word in &words {
            assert_eq!(map.get(*word), Some(!word));
            assert_eq!(map.insert(*word, *word), Some(!word));
        }
        let there: Vec<_> = words.iter().map(|word| (*word, *word)).collect();
        assert_eq!(sorted(map.pairs()), there);
        assert!(words.iter().all(|word| map.remove(*word) == Some(*word)));
    }
}

fn it_grows_by_itself<M: WordMap>() {
    const THREADS: u64 = 3;
    let keys = fewer(100_000);
    let map = M::new(1, Hashing::Mixed, true);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let map = &map;
            scope.spawn(move || {
                for key in (thread..keys).step_by(THREADS as usize) {
                    assert_eq!(map.try_insert(key, !key), Ok(()));
                    assert!(map.get(key / 2 / THREADS * THREADS + thread).is_some());
                }
            });
        }
    });
    assert_eq!(map.len() as u64, keys);
    assert!((0..keys).all(|key| map.get(key) == Some(!key)));
    let buckets = map.buckets() as u64;
    assert!(buckets * 4 >= keys, "{buckets} buckets for {keys} entries");
    if !cfg!(corewise_stress) {
        assert!(buckets <= keys * 2, "{buckets} buckets for {keys} entries");
    }
}

/// All threads insert all keys in the same order, and remove them: each is inserted and removed
/// once.
fn one_of_several_wins<M: WordMap>() {
    const THREADS: usize = 3;
    for (hashing, keys) in [(Hashing::Own, fewer(6_000)), (Hashing::Alike, fewer(300))] {
        let map = M::new(1, hashing, true);
        let round = Barrier::new(THREADS);
        let by_all = |act: &(dyn Fn(u64) -> bool + Sync)| {
            let work = || {
                round.wait();
                (0..keys).filter(|key| act(*key)).count() as u64
            };
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
                let counts = threads.into_iter().map(|thread| thread.join().unwrap());
                counts.sum::<u64>()
            })
        };
        for _ in 0..3 {
            assert_eq!(by_all(&|key| map.try_insert(key, !key).is_ok()), keys);
            assert!((0..keys).all(|key| map.get(key) == Some(!key)));
            assert_eq!(map.pairs().len() as u64, keys);
            assert_eq!(by_all(&|key| map.remove(key).is_some()), keys);
            assert_eq!((map.len(), map.pairs().len()), (0, 0));
        }
    }
}

/// Resizes a map between random sizes until told to stop.
#[derive(Default)]
struct Resizing {
    stop: AtomicBool,
    done: AtomicUsize,
}

impl Resizing {
    fn go_on(&self, map: &impl WordMap, most: u32) {
        let mut rng = SmallRng::seed_from_u64(7);
        while !self.stop.load(Relaxed) {
            map.resize_to(1 << rng.random_range(0..=most));
            self.done.fetch_add(1, Relaxed);
        }
    }

    /// Waits until another resize is done, so that what follows runs during the next one.
    fn next(&self) {
        let seen = self.done.load(Relaxed);
        while self.done.load(Relaxed) == seen && !self.stop.load(Relaxed) {
            std::thread::yield_now();
        }
    }
}

fn perform(map: &impl WordMap, key: u64, op: &EntryOp<u64>) -> EntryOutcome<u64> {
    EntryOutcome::Held(match *op {
        EntryOp::TryInsert(value) => map.try_insert(key, value).err(),
        EntryOp::Insert(value) => map.insert(key, value),
        EntryOp::Remove => map.remove(key),
        EntryOp::Update => {
            let seen = Cell::new(None);
            let new = map.update(key, |old| {
                seen.set(Some(old));
                old + 1
            });
            let old = new.and(seen.get());
            return EntryOutcome::Updated { old, new };
        }
        _ => map.get(key),
    })
}

/// Several threads operate on a few keys while another one resizes.
fn histories<M: WordMap>(seed: u64, hashing: Hashing, most_buckets: u32) {
    const THREADS: u64 = 3;
    const CALLS: u64 = 1_500;
    let map = M::new(1, hashing, false);
    let resizing = Resizing::default();
    let beside = || resizing.go_on(&map, most_buckets);
    let room = 5 * CALLS as usize;
    let history = record_beside(THREADS, room, &resizing.stop, beside, |thread, recorder| {
        let mut rng = SmallRng::seed_from_u64(seed << 8 | thread);
        for call in 0..CALLS {
            if call % 150 == 0 {
                resizing.next();
            }
            // No two writes have the same value, apart from increments.
            let fresh = (call * THREADS + thread) << 16;
            let key = rng.random_range(0..5) * 4;
            let op = match rng.random_range(0..10) {
                0 | 1 => EntryOp::TryInsert(fresh),
                2 => EntryOp::Insert(fresh),
                3 | 4 => EntryOp::Remove,
                5 => EntryOp::Update,
                6 | 7 => EntryOp::Get,
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

fn histories_beside_resizes_are_linearizable<M: WordMap>() {
    (0..4).for_each(|seed| histories::<M>(seed, Hashing::Own, 5));
}

/// Five keys where three have room: slots are reused for other keys all the time.
fn histories_in_one_bucket_are_linearizable<M: WordMap>() {
    (0..4).for_each(|seed| histories::<M>(seed, Hashing::Alike, 1));
}

fn entries_that_stay_are_found_beside_resizes_and_updates<M: WordMap>() {
    const KEPT: u64 = 600;
    let map = M::new(64, Hashing::Mixed, true);
    for key in 0..KEPT {
        map.insert(key * 2, key);
    }
    let resizing = Resizing::default();
    let stop = &resizing.stop;
    std::thread::scope(|scope| {
        let updaters: Vec<_> = (0..2u64)
            .map(|thread| {
                let map = &map;
                scope.spawn(move || {
                    let mut rng = SmallRng::seed_from_u64(thread);
                    while !stop.load(Relaxed) {
                        let key = rng.random_range(0..KEPT) << 2 | thread << 1 | 1;
                        assert_eq!(map.try_insert(key, !key), Ok(()));
                        assert_eq!(map.remove(key), Some(!key));
                    }
                })
            })
            .collect();
        scope.spawn(|| resizing.go_on(&map, 9));
        let mut rng = SmallRng::seed_from_u64(99);
        for call in 0..fewer(60_000) {
            if call % 10_000 == 0 {
                resizing.next();
            }
            let key = rng.random_range(0..KEPT);
            assert_eq!(map.get(key * 2), Some(key));
            if call % 16 == 0 {
                let keys: [u64; 24] = std::array::from_fn(|_| rng.random_range(0..KEPT));
                let found = looked_up(&map, &keys.map(|key| key * 2));
                assert!(keys.iter().copied().map(Some).eq(found), "{keys:?}");
            }
        }
        stop.store(true, Relaxed);
        updaters
            .into_iter()
            .for_each(|updater| updater.join().unwrap());
    });
    assert_eq!(map.len() as u64, KEPT);
}

/// Few slots, which many keys take in turn; a value is its key and some number.
fn values_belong_to_their_keys<M: WordMap>() {
    const KEYS: u64 = 8;
    let map = M::new(1, Hashing::Alike, false);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let (map, stop) = (&map, &stop);
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(thread);
                while !stop.load(Relaxed) {
                    let (key, n) = (rng.random_range(0..KEYS), rng.random_range(0..4));
                    let _ = match rng.random_range(0..4) {
                        0 | 1 => map.remove(key).is_some(),
                        2 => map.try_insert(key, key << 8 | n).is_ok(),
                        _ => map.insert(key, key << 8 | n).is_some(),
                    };
                }
            });
        }
        let (mut hits, mut call) = (0, 0);
        // The other threads may start late.
        while call < fewer(80_000) || hits == 0 {
            call += 1;
            let key = call % KEYS;
            if let Some(value) = map.get(key) {
                assert_eq!(value >> 8, key, "a value of another key");
                hits += 1;
            }
            if call % 64 == 0 {
                assert!(map.pairs().iter().all(|(key, value)| value >> 8 == *key));
            }
            call += 1;
        }
        stop.store(true, Relaxed);
        assert!(hits > 0);
    });
}

fn iterators_yield_what_stays_once<M: WordMap>() {
    const KEPT: u64 = 300;
    let map = M::new(1, Hashing::Mixed, true);
    (0..KEPT).for_each(|key| assert_eq!(map.try_insert(key, key), Ok(())));
    let resizing = Resizing::default();
    std::thread::scope(|scope| {
        scope.spawn(|| resizing.go_on(&map, 9));
        scope.spawn(|| {
            while !resizing.stop.load(Relaxed) {
                for key in KEPT..KEPT + 50 {
                    map.insert(key, key);
                }
                for key in KEPT..KEPT + 50 {
                    map.remove(key);
                }
            }
        });
        for _ in 0..fewer(100) {
            let pairs = sorted(map.pairs());
            let kept = pairs.iter().filter(|(key, _)| *key < KEPT);
            assert!(kept.map(|pair| pair.0).eq(0..KEPT));
        }
        resizing.stop.store(true, Relaxed);
    });
}

fn updates_beside_resizes_are_all_there<M: WordMap>() {
    const THREADS: u64 = 3;
    let map = M::new(1, Hashing::Own, true);
    (0..8).for_each(|key| assert_eq!(map.try_insert(key, 0), Ok(())));
    let resizing = Resizing::default();
    let rounds = fewer(8_000);
    std::thread::scope(|scope| {
        scope.spawn(|| resizing.go_on(&map, 4));
        let workers: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    for round in 0..rounds {
                        assert!(map.update(round % 8, |value| value + 1).is_some());
                    }
                })
            })
            .collect();
        workers
            .into_iter()
            .for_each(|worker| worker.join().unwrap());
        resizing.stop.store(true, Relaxed);
    });
    let sum: u64 = map.pairs().iter().map(|(_, value)| value).sum();
    assert_eq!(sum, THREADS * rounds);
}

fn several_threads_may_ask_for_a_resize<M: WordMap>() {
    let map = M::new(1, Hashing::Mixed, true);
    (0..300).for_each(|key| assert_eq!(map.try_insert(key, key), Ok(())));
    std::thread::scope(|scope| {
        for thread in 0..3u32 {
            let map = &map;
            scope.spawn(move || {
                for round in 0..20 {
                    map.resize_to(1 << ((round + thread) % 8));
                    assert!((0..300).all(|key| map.get(key) == Some(key)));
                }
            });
        }
    });
    assert_eq!(map.len(), 300);
}
