//! Every operation of maps of copies and of boxes against `std::collections::HashMap`, in every
//! table and for contents with and without bytes; and their standard traits.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::RandomState;
use std::panic::{AssertUnwindSafe, catch_unwind};

use corewise_maps::clht::{LockBased, LockBasedTable};
use corewise_maps::copy_map::{Computed, CopyMap, Full, Operation, Table, TryInsertError};
use corewise_maps::cuckoo::CuckooTable;
use corewise_maps::relativistic::ResizeError;
use corewise_maps_lab::clht_lock_free::{LockFree, LockFreeTable};
use corewise_maps_lab::hopscotch::HopscotchTable;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::common::{Copies, NumberMap, fewer, for_all_contents, for_all_tables, sorted};
use corewise_testkit::for_every;
use corewise_testkit::hashing::Hashing;

for_all_contents! {{
    every_operation_does_what_a_hash_map_does
    what_is_made_in_vain_is_not_kept
    whole_maps_are_emptied_and_used_up
    reserved_room_is_enough
}}

type Model = HashMap<u64, u64>;

fn every_operation_does_what_a_hash_map_does<M: NumberMap>() {
    for (seed, hashing) in (0..).zip(Hashing::ALL) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let map = M::new(1, hashing, seed != 1);
        let mut model = Model::new();
        for step in 0..fewer(8_000) {
            let (key, value) = (M::key(rng.random_range(0..60)), M::value(step << 8));
            if rng.random_range(0..2) == 0 {
                act_on_one(&map, &mut model, (key, value), rng.random_range(0..9));
            } else if rng.random_range(0..20) > 0 {
                compute(&map, &mut model, (key, value), rng.random_range(0..5));
            } else {
                act_on_all(&map, &mut model, &mut rng);
            }
            assert_eq!(
                (map.entries(), map.get(key)),
                (model.len(), model.get(&key).copied())
            );
        }
        let there = sorted(model.into_iter().collect());
        assert_eq!(sorted(map.pairs()), there);
        assert_eq!(sorted(map.use_up(usize::MAX)), there);
    }
}

/// Operations other than `compute` on one key.
fn act_on_one<M: NumberMap>(map: &M, model: &mut Model, (key, value): (u64, u64), which: u32) {
    let there = model.get(&key).copied();
    let more = |old: u64| M::value(old + 1);
    match which {
        0 => assert_eq!(map.insert(key, value), model.insert(key, value)),
        1 => {
            assert_eq!(map.try_insert(key, value), there.map_or(Ok(()), Err));
            model.entry(key).or_insert(value);
        }
        2 => assert_eq!(
            map.get_or_insert(key, value),
            *model.entry(key).or_insert(value)
        ),
        3 => {
            let called = Cell::new(0);
            let got = map.get_or_insert_with(key, || {
                called.set(called.get() + 1);
                value
            });
            assert_eq!(got, *model.entry(key).or_insert(value));
            assert_eq!(called.get(), u32::from(there.is_none()));
        }
        4 => {
            assert_eq!(map.update(key, more), there.map(more));
            model.entry(key).and_modify(|value| *value = more(*value));
        }
        5 | 6 => {
            let new = if which == 5 {
                map.update_or_insert(key, more, value)
            } else {
                map.update_or_insert_with(key, more, || value)
            };
            let entry = model.entry(key).and_modify(|value| *value = more(*value));
            assert_eq!(new, *entry.or_insert(value));
        }
        7 => assert_eq!(map.remove(key), model.remove(&key)),
        _ => {
            let is_to_go = |value: u64| value.is_multiple_of(3);
            let removed = map.remove_if(key, is_to_go);
            let expected = match there {
                Some(value) if !is_to_go(value) => Err(value),
                _ => Ok(model.remove(&key)),
            };
            assert_eq!(removed, expected);
        }
    }
}

fn compute<M: NumberMap>(map: &M, model: &mut Model, (key, value): (u64, u64), which: u32) {
    let there = model.get(&key).copied();
    let decide = |value_now: Option<u64>| {
        assert_eq!(value_now, there);
        match which {
            0 => Operation::Abort(7),
            1 => Operation::Remove,
            _ => Operation::Insert(value),
        }
    };
    let expected = match (which, there) {
        (0, _) => Computed::Aborted(Some(7)),
        (1, None) => Computed::Aborted(None),
        (1, Some(old)) => {
            model.remove(&key);
            Computed::Removed(old)
        }
        (_, there) => {
            model.insert(key, value);
            let new = value;
            there.map_or(Computed::Inserted(new), |old| Computed::Updated {
                old,
                new,
            })
        }
    };
    assert_eq!(map.compute(key, decide), expected);
}

fn act_on_all<M: NumberMap>(map: &M, model: &mut Model, rng: &mut SmallRng) {
    match rng.random_range(0..6) {
        0 => {
            let rest = rng.random_range(0..4);
            let is_to_stay = |key: u64, value: u64| (key + (value >> 8)) % 4 != rest;
            let mut visited = Vec::new();
            map.retain(|key, value| {
                visited.push((key, value));
                is_to_stay(key, value)
            });
            assert_eq!(sorted(visited), sorted(model.clone().into_iter().collect()));
            model.retain(|key, value| is_to_stay(*key, *value));
        }
        1 => {
            let most = rng.random_range(0..20);
            let drained = map.drain(most);
            assert_eq!(drained.len(), most.min(model.len()));
            for (key, value) in drained {
                assert_eq!(model.remove(&key), Some(value));
            }
        }
        2 if rng.random_range(0..4) == 0 => {
            map.clear();
            model.clear();
        }
        3 => {
            let (rest, most) = (rng.random_range(0..4), rng.random_range(0..20));
            let is_to_go = |key: u64, value: u64| (key + (value >> 8)) % 4 == rest;
            let extracted = map.extract_if(most, is_to_go);
            let all = model.iter().filter(|(key, value)| is_to_go(**key, **value));
            assert_eq!(extracted.len(), most.min(all.count()));
            for (key, value) in extracted {
                assert!(is_to_go(key, value));
                assert_eq!(model.remove(&key), Some(value));
            }
        }
        5 => map.reserve(rng.random_range(0..200)),
        4 => map.resize(1 << rng.random_range(0..7)),
        _ => {}
    }
    assert_eq!(
        sorted(map.pairs()),
        sorted(model.clone().into_iter().collect())
    );
    assert_eq!(sorted(map.keys()), sorted(model.keys().copied().collect()));
    assert_eq!(
        sorted(map.values()),
        sorted(model.values().copied().collect())
    );
}

fn what_is_made_in_vain_is_not_kept<M: NumberMap>() {
    let map = M::new(4, Hashing::Mixed, true);
    assert_eq!(map.insert(1, 5), None);
    let five = M::value(5);
    assert_eq!(map.get_or_insert(1, 6), five);
    assert_eq!(map.get_or_insert_with(1, || unreachable!()), five);
    assert_eq!(map.update_or_insert(1, |_| 5, 9), five);
    assert_eq!(map.update_or_insert_with(1, |_| 5, || unreachable!()), five);
    assert_eq!(map.try_insert(1, 7), Err(five));
    // The key is inserted by the closure that makes its value.
    map.clear();
    let made = map.get_or_insert_with(1, || {
        map.insert(1, 8);
        9
    });
    assert_eq!(made, M::value(8));
    let new = map.update_or_insert_with(
        2,
        |old| old + 1,
        || {
            map.insert(2, 10);
            20
        },
    );
    assert_eq!(new, M::value(if M::key(2) == M::key(1) { 9 } else { 11 }));
}

fn whole_maps_are_emptied_and_used_up<M: NumberMap>() {
    for most in [0, 7, usize::MAX] {
        let map = M::new(1, Hashing::Mixed, true);
        (0..500).for_each(|key| {
            map.insert(key, key);
        });
        map.clear();
        assert_eq!(
            (map.entries(), map.pairs(), map.get(3)),
            (0, Vec::new(), None)
        );
        (0..500).for_each(|key| {
            map.insert(key, key);
        });
        let entries = map.entries();
        assert_eq!(map.drain(most).len(), most.min(entries));
        (0..500).for_each(|key| {
            map.insert(key, key);
        });
        let all = map.entries();
        let pairs = map.use_up(most);
        assert_eq!(pairs.len(), most.min(all));
        assert!(
            pairs
                .iter()
                .all(|(key, value)| all == 1 || *value == M::value(*key))
        );
    }
}

fn reserved_room_is_enough<M: NumberMap>() {
    let map = M::new(1, Hashing::Mixed, true);
    map.insert(0, 0);
    map.reserve(1_000);
    let buckets = map.bucket_count();
    (0..1_000).for_each(|key| {
        map.insert(key, key);
    });
    assert!(map.bucket_count() == buckets || cfg!(corewise_stress));
    // A table that has the room already keeps its size, and never shrinks.
    map.reserve(0);
    assert!(map.bucket_count() >= buckets);
}

for_every! {
    lock_based_traits: LockBasedTable<u64, u64>,
    lock_free_traits: LockFreeTable<u64, u64>,
    hopscotch_traits: HopscotchTable<u64, u64>,
    cuckoo_traits: CuckooTable<u64, u64>,
    => {
        it_has_the_traits_of_a_collection
        a_clone_is_set_up_as_its_original
    }
}

fn it_has_the_traits_of_a_collection<T: Table<Key = u64, Value = u64>>() {
    let mut map: CopyMap<T> = (0..100).map(|n| (n, n * n)).collect();
    map.extend([(100, 0), (7, 7)]);
    (&map).extend([(101, 1)]);
    assert_eq!((map.len(), map.pin().get(&7)), (102, Some(7)));
    let mut seen = 0;
    for (key, value) in &map.pin() {
        assert_eq!(map.pin().get(&key), Some(value));
        seen += 1;
    }
    assert_eq!((seen, map.pin().len()), (102, 102));
    let other: CopyMap<T, RandomState> = map.pin().iter().collect();
    assert!(map == other && map.clone() == map);
    other.pin().insert(7, 8);
    assert_ne!(map, other);
    other.pin().remove(&7);
    assert_ne!(map, other);
    // In another table, with a limit.
    let limited = LockBased::builder().max_bytes(1 << 20).build();
    for (key, value) in map {
        assert_eq!(limited.pin().insert(key, value), Ok(None));
    }
    other.pin().insert(7, 7);
    assert_eq!(other, limited);
    assert_eq!(
        limited.into_iter().map(|(key, _)| key).sum::<u64>(),
        (0..102).sum::<u64>()
    );
    let one = CopyMap::<T>::from([(1, 2)]);
    assert_eq!(
        (format!("{one:?}"), format!("{:?}", one.pin())),
        ("{1: 2}".into(), "{1: 2}".into())
    );
    assert!(CopyMap::<T, RandomState>::default().is_empty());
    assert_eq!(
        std::mem::take(&mut { one }).into_iter().collect::<Vec<_>>(),
        [(1, 2)]
    );
    // An iterator may promise anything.
    struct HugeSizeHint(u64);
    impl Iterator for HugeSizeHint {
        type Item = (u64, u64);
        fn next(&mut self) -> Option<(u64, u64)> {
            self.0 = self.0.checked_sub(1)?;
            Some((self.0, 0))
        }
        fn size_hint(&self) -> (usize, Option<usize>) {
            (usize::MAX, None)
        }
    }
    assert_eq!(HugeSizeHint(10).collect::<CopyMap<T>>().len(), 10);
}

fn a_clone_is_set_up_as_its_original<T: Table<Key = u64, Value = u64>>() {
    let domain = corewise_rcu::Domain::new();
    let builder = CopyMap::<T>::builder().domain(domain.clone()).buckets(32);
    let map = builder.max_buckets(64).automatic_resize(false).build();
    (0..20).for_each(|n| assert_eq!(map.pin().insert(n, n), None));
    let copy = map.clone();
    assert_eq!((copy.domain().id(), copy.buckets()), (domain.id(), 32));
    (0..100).for_each(|n| {
        copy.pin().insert(n, n);
    });
    assert_eq!((copy.buckets(), copy.len(), map.len()), (32, 100, 20));
    assert_eq!(copy.resize_to(128), Err(ResizeError::NoMemory));
    assert_eq!(copy.reserve(10_000), Err(ResizeError::NoMemory));
    assert_eq!(copy.reserve(usize::MAX), Err(ResizeError::NoMemory));
    assert_eq!(copy.len(), 100);
}

/// A map of one bucket that is full: operations that insert report it, and the others work.
#[test]
fn a_full_map_refuses_every_insertion() {
    let builder = LockBased::<u64, u64>::builder().buckets(1).max_bytes(64);
    let map = builder.automatic_resize(false).build();
    let map = map.pin();
    assert!((0..3).all(|key| map.insert(key, 0) == Ok(None)));
    assert_eq!(map.insert(3, 0), Err(Full));
    assert_eq!(map.get_or_insert(3, 0), Err(Full));
    assert_eq!(map.get_or_insert_with(3, || 0), Err(Full));
    assert_eq!(map.update_or_insert(3, |n| n, 0), Err(Full));
    assert_eq!(map.update_or_insert_with(3, |n| n, || 0), Err(Full));
    assert_eq!(map.compute(3, |_| Operation::<_, ()>::Insert(0)), Err(Full));
    assert_eq!(map.get_or_insert(2, 1), Ok(0));
    assert_eq!(map.update_or_insert(2, |n| n + 1, 0), Ok(1));
    let updated = Computed::Updated { old: 1, new: 5 };
    assert_eq!(
        map.compute(2, |_| Operation::<_, ()>::Insert(5)),
        Ok(updated)
    );
    assert_eq!((map.len(), map.map().len()), (3, 3));
}

#[test]
fn a_map_without_a_limit_panics_where_one_with_a_limit_reports() {
    // The most entries of a chain: see the module's limits.
    const MOST: u64 = 3 * (1 + 21_844);
    let map = LockFree::<u64, u64>::builder().buckets(1 << 15);
    let map = map.automatic_resize(false).hasher(Hashing::Own).build();
    (0..MOST).for_each(|key| assert_eq!(map.pin().insert(key, 0), None));
    map.resize_to(1).unwrap();
    let insert = || map.pin().insert(MOST, 0);
    assert!(catch_unwind(AssertUnwindSafe(insert)).is_err());
    assert_eq!(map.pin().try_insert(MOST, 0), Err(TryInsertError::Full));
    assert_eq!((map.len() as u64, map.pin().get(&7)), (MOST, Some(0)));
}

#[cfg(feature = "serde")]
#[test]
fn maps_are_serialized_as_maps() {
    use corewise_maps::cuckoo::CuckooMap;
    use corewise_maps_lab::hopscotch::HopscotchMap;
    let map = CuckooMap::from([(1u64, (2u32, true))]);
    let text = serde_json::to_string(&map).unwrap();
    assert_eq!(text, "{\"1\":[2,true]}");
    assert_eq!(serde_json::to_string(&map.pin()).unwrap(), text);
    let back: HopscotchMap<u64, (u32, bool)> = serde_json::from_str(&text).unwrap();
    assert_eq!(back, map);
    assert!(serde_json::from_str::<CuckooMap<u64, u64>>("[1]").is_err());
}

#[cfg(feature = "rayon")]
#[test]
fn parallel_iteration_visits_all_entries() {
    use corewise_maps::cuckoo::CuckooMap;
    use rayon::iter::ParallelIterator;
    const ENTRIES: u64 = 20_000;
    let map: CuckooMap<u64, u64> = (0..ENTRIES).map(|n| (n, n)).collect();
    let map = map.pin();
    let keys = sorted(map.par_iter().map(|(key, value)| key.min(value)).collect());
    assert!(keys.into_iter().eq(0..ENTRIES));
}
