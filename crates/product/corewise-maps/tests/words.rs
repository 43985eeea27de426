//! The guarantees of every map of words in a table with entries in place.

use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use corewise_maps::clht::LockBasedTable;
use corewise_maps::copy_map::{CopyMap, Table};
use corewise_maps::cuckoo::CuckooTable;
use corewise_maps_lab::clht_lock_free::LockFreeTable;
use corewise_maps_lab::hopscotch::HopscotchTable;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::common::{Copies, NumberMap, fewer, sorted};
use corewise_testkit::for_every;
use corewise_testkit::hashing::{Hashing, NumberHasher};
use corewise_testkit::stress::together;
use corewise_testkit::word_map::{
    a_batch_without_places_for_its_keys_is_refused, batches_answer_as_lookups_do,
    entries_that_stay_are_found_beside_resizes_and_updates,
    histories_beside_resizes_are_linearizable, histories_in_one_bucket_are_linearizable,
    it_does_what_a_hash_map_does, keys_of_one_bucket_do_no_harm,
    several_threads_may_ask_for_a_resize,
};

for_every! {
    lock_based: Copies<LockBasedTable<u64, u64>>,
    lock_free: Copies<LockFreeTable<u64, u64>>,
    hopscotch: Copies<HopscotchTable<u64, u64>>,
    hopscotch_wide: Copies<HopscotchTable<u64, [u64; 3]>>,
    cuckoo: Copies<CuckooTable<u64, u64>>,
    cuckoo_wide: Copies<CuckooTable<u64, [u64; 3]>>,
    => {
        it_does_what_a_hash_map_does
        keys_of_one_bucket_do_no_harm
        chosen_keys_do_not_make_the_table_large
        any_word_may_be_a_key_and_a_value
        it_grows_by_itself
        one_of_several_wins
        histories_beside_resizes_are_linearizable
        histories_in_one_bucket_are_linearizable
        entries_that_stay_are_found_beside_resizes_and_updates
        batches_answer_as_lookups_do
        a_batch_without_places_for_its_keys_is_refused
        values_belong_to_their_keys
        several_threads_may_ask_for_a_resize
    }
}

fn chosen_keys_do_not_make_the_table_large<M: NumberMap>() {
    // Keys chosen against the table, which must not grow without bound for them.
    let map = M::new(1, Hashing::Alike, true);
    let keys = fewer(500);
    (0..keys).for_each(|key| assert_eq!(map.try_insert(key, key), Ok(())));
    assert!((0..keys).all(|key| map.get(key) == Some(key)));
    if !cfg!(corewise_stress) {
        // It grows by a factor of 4 at most, while it has no more buckets than entries.
        assert!(
            map.bucket_count() as u64 <= 4 * keys,
            "{}",
            map.bucket_count()
        );
    }
    assert!((0..keys).all(|key| map.remove(key) == Some(key)));
    assert_eq!((map.entries(), map.pairs()), (0, Vec::new()));
}

fn any_word_may_be_a_key_and_a_value<M: NumberMap>() {
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

fn it_grows_by_itself<M: NumberMap>() {
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
    assert_eq!(map.entries() as u64, keys);
    assert!((0..keys).all(|key| map.get(key) == Some(!key)));
    let buckets = map.bucket_count() as u64;
    assert!(buckets * 4 >= keys, "{buckets} buckets for {keys} entries");
    if !cfg!(corewise_stress) {
        // Small tables quadruple.
        let most = keys * if keys < 100_000 { 4 } else { 2 };
        assert!(buckets <= most, "{buckets} buckets for {keys} entries");
    }
}

/// All threads insert all keys in the same order, and remove them: each is inserted and removed
/// once.
fn one_of_several_wins<M: NumberMap>() {
    const THREADS: u64 = 3;
    for (hashing, keys) in [(Hashing::Own, fewer(6_000)), (Hashing::Alike, fewer(300))] {
        let map = M::new(1, hashing, true);
        let by_all = |act: &(dyn Fn(u64) -> bool + Sync)| {
            let work = |_| (0..keys).filter(|key| act(*key)).count() as u64;
            together(THREADS, work).into_iter().sum::<u64>()
        };
        for _ in 0..3 {
            assert_eq!(by_all(&|key| map.try_insert(key, !key).is_ok()), keys);
            assert!((0..keys).all(|key| map.get(key) == Some(!key)));
            assert_eq!(map.pairs().len() as u64, keys);
            assert_eq!(by_all(&|key| map.remove(key).is_some()), keys);
            assert_eq!((map.entries(), map.pairs().len()), (0, 0));
        }
    }
}

/// Few slots, which many keys take in turn; a value is its key and some number.
fn values_belong_to_their_keys<M: NumberMap>() {
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

/// Hashes as `Own`, and panics while the flag is set.
#[derive(Clone)]
struct PanickingHashing(Arc<AtomicBool>);

impl BuildHasher for PanickingHashing {
    type Hasher = NumberHasher;

    fn build_hasher(&self) -> NumberHasher {
        assert!(!self.0.load(Relaxed), "a hash");
        Hashing::Own.build_hasher()
    }
}

for_every! {
    lock_based_table: LockBasedTable<u64, u64>,
    lock_free_table: LockFreeTable<u64, u64>,
    hopscotch_table: HopscotchTable<u64, u64>,
    cuckoo_table: CuckooTable<u64, u64>,
    => {
        a_panic_in_foreign_code_leaves_the_map_as_it_was
    }
}

fn a_panic_in_foreign_code_leaves_the_map_as_it_was<T: Table<Key = u64, Value = u64>>() {
    let panics = Arc::new(AtomicBool::new(false));
    let builder = CopyMap::<T>::builder().hasher(PanickingHashing(panics.clone()));
    let map = builder.buckets(4).automatic_resize(false).build();
    (0..20).for_each(|key| assert_eq!(map.pin().insert(key, !key), None));
    let fails = |call: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    fails(&|| assert!(map.pin().update(&1, |_| panic!("a change")).is_some()));
    panics.store(true, Relaxed);
    fails(&|| {
        map.pin().insert(20, 0);
    });
    fails(&|| assert!(map.pin().remove(&2).is_some()));
    // In the middle of moving: the bucket must not stay locked.
    fails(&|| map.resize_to(16).unwrap());
    panics.store(false, Relaxed);
    assert_eq!(map.pin().update(&1, |value| value), Some(!1));
    assert!((0..20).all(|key| map.pin().get(&key) == Some(!key)));
    map.resize_to(16).unwrap();
    assert_eq!((map.len(), map.buckets()), (20, 16));
    assert!((0..20).all(|key| map.pin().remove(&key) == Some(!key)));
}
