//! The guarantees of boxed values, in every table.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering::Relaxed};

use corewise_maps::clht::LockBasedTable;
use corewise_maps::copy_map::{BoxMap, CopyMap, Refused, Table};
use corewise_maps::cuckoo::CuckooTable;
use corewise_maps_lab::clht_lock_free::LockFreeTable;
use corewise_maps_lab::hopscotch::HopscotchTable;
use corewise_rcu::Domain;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use corewise_testkit::for_every;
use corewise_testkit::hashing::Hashing;
use corewise_testkit::random::is_short;

/// A value that counts its live instances.
#[derive(Debug)]
struct Counted(u64, Arc<AtomicIsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        assert_ne!(
            std::mem::replace(&mut self.0, u64::MAX),
            u64::MAX,
            "dropped twice"
        );
        self.1.fetch_sub(1, Relaxed);
    }
}

/// Creates them.
#[derive(Clone, Default)]
struct Mint(Arc<AtomicIsize>);

impl Mint {
    fn make(&self, number: u64) -> Counted {
        self.0.fetch_add(1, Relaxed);
        Counted(number, self.0.clone())
    }

    fn alive(&self) -> isize {
        self.0.load(Relaxed)
    }
}

type Value = std::ptr::NonNull<Counted>;

fn map<T: Table<Key = u64, Value = Value>>(grows: bool) -> BoxMap<Counted, T, Hashing> {
    let builder = CopyMap::<T>::builder().buckets(1).automatic_resize(grows);
    builder
        .hasher(Hashing::Own)
        .domain(Domain::new())
        .build_boxed()
}

for_every! {
    lock_based: LockBasedTable<u64, Value>,
    lock_free: LockFreeTable<u64, Value>,
    cuckoo: CuckooTable<u64, Value>,
    hopscotch: HopscotchTable<u64, Value>,
    => {
        it_does_what_a_hash_map_does_and_frees_each_value_once
        what_was_found_stays_while_its_handle_lives
        a_refused_insertion_returns_its_value
        panics_leave_the_map_as_it_was
        values_are_whole_beside_updates_and_resizes
        updates_of_several_threads_all_have_effect
    }
}

fn it_does_what_a_hash_map_does_and_frees_each_value_once<T: Table<Key = u64, Value = Value>>() {
    for seed in 0..3 {
        let (mint, mut rng) = (Mint::default(), SmallRng::seed_from_u64(seed));
        let map = map::<T>(seed != 1);
        let mut model = HashMap::new();
        for step in 0..5_000 {
            let key = rng.random_range(0..120);
            let handle = map.pin();
            let number = |value: Option<&Counted>| value.map(|value| value.0);
            match rng.random_range(0..10) {
                0..3 => {
                    let old = handle.insert(key, mint.make(step));
                    assert_eq!(number(old), model.insert(key, step));
                }
                3 => {
                    let inserted = handle.try_insert(key, mint.make(step)).is_ok();
                    assert_eq!(inserted, !model.contains_key(&key));
                    model.entry(key).or_insert(step);
                }
                4..6 => assert_eq!(number(handle.remove(&key)), model.remove(&key)),
                6 => {
                    let new = handle.update(&key, |old| mint.make(old.0 + 1));
                    let expected = model.get_mut(&key).map(|value| {
                        *value += 1;
                        *value
                    });
                    assert_eq!(number(new), expected);
                }
                _ => assert_eq!(number(handle.get(&key)), model.get(&key).copied()),
            }
            drop(handle);
            if step % 500 == 0 {
                map.resize_to(1 << rng.random_range(0..6)).unwrap();
            }
        }
        let (keys, handle) = ((0..120).collect::<Vec<_>>(), map.pin());
        let mut found = vec![None; keys.len()];
        handle.get_many(&keys, &mut found);
        for (key, value) in keys.iter().zip(found) {
            assert_eq!(value.map(|value| value.0), model.get(key).copied());
        }
        drop(handle);
        let mut pairs: Vec<_> = map
            .pin()
            .iter()
            .map(|(key, value)| (key, value.0))
            .collect();
        let mut expected: Vec<_> = model.into_iter().collect();
        pairs.sort_unstable();
        expected.sort_unstable();
        assert_eq!(pairs, expected);
        map.domain().barrier();
        assert_eq!(mint.alive(), expected.len() as isize);
        drop(map);
        assert_eq!(mint.alive(), 0);
    }
}

fn what_was_found_stays_while_its_handle_lives<T: Table<Key = u64, Value = Value>>() {
    let (mint, map) = (Mint::default(), map::<T>(true));
    for key in 0..50 {
        map.pin().insert(key, mint.make(key));
    }
    let handle = map.pin();
    let seen: Vec<_> = (0..50).map(|key| handle.get(&key).unwrap()).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for key in 0..50 {
                map.pin().insert(key, mint.make(1_000)).unwrap();
                map.pin().remove(&key).unwrap();
            }
        });
    });
    assert!(
        seen.iter()
            .enumerate()
            .all(|(key, value)| value.0 == key as u64)
    );
    assert!(mint.alive() >= 50);
    drop(handle);
    map.domain().barrier();
    assert_eq!(mint.alive(), 0);
}

fn a_refused_insertion_returns_its_value<T: Table<Key = u64, Value = Value>>() {
    let mint = Mint::default();
    let builder = CopyMap::<T>::builder().buckets(1).max_bytes(0);
    let refused = catch_unwind(|| drop(builder.build_boxed())).is_err();
    assert!(refused, "a map without memory");
    // Exactly the bytes of one bucket.
    let bytes = map::<T>(false).bytes();
    let builder = CopyMap::<T>::builder().buckets(1).max_bytes(bytes);
    let map = builder
        .hasher(Hashing::Alike)
        .domain(Domain::new())
        .build_boxed();
    let handle = map.pin();
    let full = (0..1_000).find_map(|key| match handle.try_insert(key, mint.make(key)) {
        Err(Refused::Full(value)) => Some((key, value)),
        other => {
            other.unwrap();
            None
        }
    });
    let (key, value) = full.expect("a map of one bucket is full some time");
    assert_eq!((value.0, mint.alive()), (key, key as isize + 1));
    assert!(matches!(handle.insert(key, value), Err(Refused::Full(value)) if value.0 == key));
    let Err(Refused::Occupied { there, value }) = handle.try_insert(0, mint.make(7)) else {
        panic!("0 is there");
    };
    assert_eq!((there.0, value.0), (0, 7));
    drop(value);
    assert!((0..key).all(|key| handle.get(&key).is_some_and(|value| value.0 == key)));
    assert_eq!(mint.alive(), key as isize);
}

fn panics_leave_the_map_as_it_was<T: Table<Key = u64, Value = Value>>() {
    let (mint, map) = (Mint::default(), map::<T>(false));
    map.pin().insert(1, mint.make(10));
    let fails = catch_unwind(AssertUnwindSafe(|| {
        map.pin().update(&1, |_| panic!("a change"));
    }));
    assert!(fails.is_err());
    assert_eq!(map.pin().get(&1).map(|value| value.0), Some(10));
    drop(map);
    assert_eq!(mint.alive(), 0);
}

fn values_are_whole_beside_updates_and_resizes<T>()
where
    T: Table<Key = u64, Value = Value>,
    BoxMap<Counted, T, Hashing>: Send + Sync,
{
    const KEYS: u64 = 64;
    let (mint, map, stop) = (Mint::default(), map::<T>(true), AtomicBool::new(false));
    for key in 0..KEYS {
        map.pin().insert(key, mint.make(key));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                for log2 in [6, 3, 0, 5] {
                    map.resize_to(1 << log2).unwrap();
                }
            }
        });
        scope.spawn(|| {
            let mut rng = SmallRng::seed_from_u64(1);
            while !stop.load(Relaxed) {
                let key = rng.random_range(0..KEYS);
                if key % 2 == 0 {
                    map.pin()
                        .update(&key, |old| mint.make(old.0 + KEYS))
                        .expect("kept");
                } else {
                    assert!(map.pin().remove(&key).is_some());
                    assert!(map.pin().try_insert(key, mint.make(key)).is_ok());
                }
            }
        });
        let mut rng = SmallRng::seed_from_u64(2);
        let calls = if is_short() { 20_000 } else { 200_000 };
        for _ in 0..calls {
            let (key, handle) = (rng.random_range(0..KEYS), map.pin());
            match handle.get(&key) {
                Some(value) => assert_eq!(value.0 % KEYS, key),
                None => assert_eq!(key % 2, 1, "{key} is missing"),
            }
        }
        stop.store(true, Relaxed);
    });
    map.domain().barrier();
    assert_eq!(mint.alive(), KEYS as isize);
}

fn updates_of_several_threads_all_have_effect<T>()
where
    T: Table<Key = u64, Value = Value>,
    BoxMap<Counted, T, Hashing>: Send + Sync,
{
    const ROUNDS: u64 = 2_000;
    let (mint, map) = (Mint::default(), map::<T>(true));
    map.pin().insert(1, mint.make(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    assert!(map.pin().update(&1, |old| mint.make(old.0 + 1)).is_some());
                }
            });
        }
    });
    assert_eq!(map.pin().get(&1).map(|value| value.0), Some(3 * ROUNDS));
    map.domain().barrier();
    assert_eq!(mint.alive(), 1);
}
