//! The map against `std::collections::HashMap`: the same random operations, the same results.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use corewise_maps::relativistic::{Compute, Entry, MapRef, Operation};
use corewise_maps::{RelativisticMap, RelativisticSet};
use corewise_testkit::hashing::Hashing;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

type Map<S> = RelativisticMap<u64, String, S>;

/// Performs one random operation on both maps; occasionally resizes the concurrent one.
fn step<S: BuildHasher>(map: &Map<S>, model: &mut HashMap<u64, String>, rng: &mut SmallRng) {
    let key = rng.random_range(0..200);
    let value = rng.random::<u32>().to_string();
    let handle = map.pin();
    match rng.random_range(0..23) {
        0 | 1 => assert_eq!(handle.get(&key), model.get(&key)),
        2 => assert_eq!(handle.get_key_value(&key), model.get_key_value(&key)),
        3 => assert_eq!(handle.contains_key(&key), model.contains_key(&key)),
        4..=6 => {
            let old = handle.insert(key, value.clone()).cloned();
            assert_eq!(old, model.insert(key, value));
        }
        7 => try_insert(&handle, key, value, model),
        8 | 9 => assert_eq!(handle.remove(&key).cloned(), model.remove(&key)),
        10 => {
            let removed = handle.remove_entry(&key);
            let removed = removed.map(|(key, value)| (*key, value.clone()));
            assert_eq!(removed, model.remove_entry(&key));
        }
        11 => {
            let longer = |old: &String| format!("{old}+");
            let new = handle.update(&key, longer).cloned();
            assert_eq!(
                new,
                model.get_mut(&key).map(|old| {
                    *old = longer(old);
                    old.clone()
                })
            );
        }
        12 => remove_if_even(&handle, key, model),
        13 => match handle.entry(key) {
            Entry::Occupied(entry) => {
                assert_eq!(model.remove(&key).as_ref(), entry.remove().ok());
            }
            Entry::Vacant(entry) => {
                assert!(entry.insert(value.clone()).is_ok());
                assert!(model.insert(key, value).is_none());
            }
        },
        14 => compute(
            &handle.compute(key, |entry| match entry {
                None if value.len().is_multiple_of(2) => Operation::Remove,
                None => Operation::Insert(value.clone()),
                Some((_, old)) if old.len() % 3 == 0 => Operation::Remove,
                Some((_, old)) if old.len() % 3 == 1 => Operation::Abort(()),
                Some((_, old)) => Operation::Insert(format!("{old}!")),
            }),
            key,
            &value,
            model,
        ),
        15 => {
            // Keys may repeat, and there may be more of them than fit in a group.
            let many = rng.random_range(0..150);
            let keys: Vec<u64> = (0..many).map(|_| rng.random_range(0..200)).collect();
            let mut out = vec![Some(&value); many];
            handle.get_many(&keys, &mut out);
            assert!(keys.iter().map(|key| model.get(key)).eq(out), "{keys:?}");
        }
        _ => {}
    }
    drop(handle);
    upsert(map, key, rng, model);
    if rng.random_range(0..100) == 0 {
        let buckets = [1, 2, 3, 6, 16, 64, 192][rng.random_range(0..7)];
        map.resize_to(buckets).unwrap();
    }
}

/// Performs one random operation that reads and writes on both maps.
fn upsert<S: BuildHasher>(
    map: &Map<S>,
    key: u64,
    rng: &mut SmallRng,
    model: &mut HashMap<u64, String>,
) {
    let value = rng.random::<u32>().to_string();
    let longer = |old: &String| format!("{old}+");
    let lengthen = |old: &mut String| old.push('+');
    let handle = map.pin();
    let got = match rng.random_range(0..12) {
        0 => handle.update_or_insert(key, longer, value.clone()),
        1 => handle.update_or_insert_with(key, longer, || value.clone()),
        2 => {
            let entry = handle.entry(key).and_modify(lengthen);
            entry.or_insert(value.clone())
        }
        3 => {
            let entry = handle.entry(key).and_modify(lengthen);
            entry.or_insert_with_key(|_| value.clone())
        }
        4..8 => return insert_if_absent(&handle, key, value, model, rng),
        _ => return one_shot(map, key, value, model, rng),
    };
    assert_eq!(got, model.entry(key).and_modify(lengthen).or_insert(value));
}

/// Performs one random operation that inserts absent keys on both maps.
fn insert_if_absent<S: BuildHasher>(
    handle: &MapRef<'_, u64, String, S>,
    key: u64,
    value: String,
    model: &mut HashMap<u64, String>,
    rng: &mut SmallRng,
) {
    let got = match rng.random_range(0..6) {
        0 => handle.entry(key).or_insert(value.clone()),
        1 => {
            let got = handle.entry(key).or_default();
            assert_eq!(got, model.entry(key).or_default());
            return;
        }
        2 => {
            let is_made = value.len().is_multiple_of(2);
            let got =
                handle.get_or_try_insert_with(key, || is_made.then(|| value.clone()).ok_or(()));
            match got {
                Ok(got) => got,
                Err(()) => return assert!(!is_made && !model.contains_key(&key)),
            }
        }
        3 => {
            let got = handle.try_insert_with(key, || value.clone());
            assert_eq!(got.is_err(), model.contains_key(&key));
            got.unwrap_or_else(|present| present)
        }
        4 => handle.get_or_insert_with(key, || {
            assert!(!model.contains_key(&key));
            value.clone()
        }),
        _ => handle.get_or_insert(key, value.clone()),
    };
    assert_eq!(got, model.entry(key).or_insert(value));
}

/// Performs one random operation of the map itself on both maps.
fn one_shot<S: BuildHasher>(
    map: &Map<S>,
    key: u64,
    value: String,
    model: &mut HashMap<u64, String>,
    rng: &mut SmallRng,
) {
    let lengthened = |value: &String| format!("{value}+");
    match rng.random_range(0..7) {
        0 => {
            let old = map.insert(key, value.clone());
            assert_eq!(old.as_deref(), model.insert(key, value).as_ref());
        }
        1 => assert_eq!(map.remove(&key).as_deref(), model.remove(&key).as_ref()),
        2 => {
            let new = map.update(&key, lengthened);
            let expected = model.get_mut(&key);
            let expected = expected.map(|value| std::mem::replace(value, lengthened(value)));
            assert_eq!(new.is_some(), expected.is_some());
            assert_eq!(new.as_deref(), model.get(&key));
        }
        3 => {
            let new = map.update_or_insert(key, lengthened, value.clone());
            let expected = model
                .entry(key)
                .and_modify(|value| *value = lengthened(value));
            assert_eq!(*new, *expected.or_insert(value));
        }
        4 => {
            let got = map.get_or_insert_with(key, || value.clone());
            assert_eq!(
                (*got.key(), &*got),
                (key, &*model.entry(key).or_insert(value))
            );
        }
        5 => {
            let entries = map.iter().map(|entry| (*entry.key(), entry.clone()));
            assert_eq!(entries.collect::<HashMap<_, _>>(), *model);
        }
        _ => {
            assert_eq!(map.get_cloned(&key).as_ref(), model.get(&key));
            assert_eq!(map.contains_key(&key), model.contains_key(&key));
            assert_eq!(map.get(&key).as_deref(), model.get(&key));
        }
    }
}

/// Performs one random operation of the exclusive owner on both maps.
fn exclusive<S: BuildHasher>(
    map: &mut Map<S>,
    model: &mut HashMap<u64, String>,
    rng: &mut SmallRng,
) {
    let key = rng.random_range(0..200);
    let change = |key: &u64, value: &mut String| {
        value.push('*');
        !key.is_multiple_of(5)
    };
    match rng.random_range(0..6) {
        0 => {
            assert_eq!(map.get_mut(&key), model.get_mut(&key));
            map.get_mut(&key)
                .into_iter()
                .for_each(|value| value.push('#'));
            model
                .get_mut(&key)
                .into_iter()
                .for_each(|value| value.push('#'));
        }
        1 => {
            map.iter_mut()
                .for_each(|(key, value)| value.push_str(&key.to_string()));
            model
                .iter_mut()
                .for_each(|(key, value)| value.push_str(&key.to_string()));
        }
        2 => {
            map.values_mut().for_each(String::clear);
            model.values_mut().for_each(String::clear);
        }
        3 => {
            map.retain_mut(change);
            model.retain(change);
        }
        4 => assert_eq!(
            map.drain().collect::<HashMap<_, _>>(),
            std::mem::take(model)
        ),
        _ => {
            let extracted: HashMap<_, _> = {
                let handle = map.pin();
                let odd = handle.extract_if(|key, _| key % 2 == 1);
                odd.map(|(key, value)| (*key, value.clone())).collect()
            };
            assert_eq!(extracted, model.extract_if(|key, _| key % 2 == 1).collect());
        }
    }
}

fn try_insert<S: BuildHasher>(
    handle: &MapRef<'_, u64, String, S>,
    key: u64,
    value: String,
    model: &mut HashMap<u64, String>,
) {
    match handle.try_insert(key, value.clone()) {
        Ok(inserted) => {
            assert_eq!(*inserted, value);
            assert!(model.insert(key, value).is_none());
        }
        Err(occupied) => {
            assert_eq!(occupied.not_inserted, value);
            assert_eq!(Some(occupied.current), model.get(&key));
        }
    }
}

fn remove_if_even<S: BuildHasher>(
    handle: &MapRef<'_, u64, String, S>,
    key: u64,
    model: &mut HashMap<u64, String>,
) {
    let even = |value: &String| value.len().is_multiple_of(2);
    let removed = handle.remove_if(&key, |_, value| even(value));
    let expected = match model.get(&key) {
        Some(value) if even(value) => Ok(model.remove(&key)),
        Some(value) => Err(value.clone()),
        None => Ok(None),
    };
    assert_eq!(
        removed
            .map(|entry| entry.map(|(_, value)| value.clone()))
            .map_err(|(_, value)| value.clone()),
        expected
    );
}

fn compute(
    done: &Compute<'_, u64, String>,
    key: u64,
    value: &str,
    model: &mut HashMap<u64, String>,
) {
    match *done {
        Compute::Inserted(_, new) => {
            assert_eq!(new, value);
            assert_eq!(model.insert(key, new.clone()), None);
        }
        Compute::Updated { old, new } => {
            assert_eq!(*new.1, format!("{}!", old.1));
            assert_eq!(model.insert(key, new.1.clone()).as_ref(), Some(old.1));
        }
        Compute::Removed(_, old) => assert_eq!(model.remove(&key).as_ref(), Some(old)),
        Compute::Aborted(result) => {
            // There was nothing to remove, or it was there and stays.
            assert_eq!(result.is_some(), model.contains_key(&key));
        }
    }
}

fn same<S: BuildHasher>(map: &Map<S>, model: &HashMap<u64, String>) {
    assert_eq!(map.len(), model.len());
    let handle = map.pin();
    let mut entries: Vec<_> = handle.iter().collect();
    entries.sort();
    let mut expected: Vec<_> = model.iter().collect();
    expected.sort();
    assert_eq!(entries, expected);
    let parts = handle.keys().zip(handle.values());
    assert!(parts.eq(&handle));
    for key in 0..200 {
        assert_eq!(handle.get(&key), model.get(&key));
    }
}

fn run<S: BuildHasher + Clone>(hasher: S, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut map = Map::with_hasher(hasher);
    let mut model = HashMap::new();
    for round in 0..4000 {
        step(&map, &mut model, &mut rng);
        if round % 100 == 0 {
            exclusive(&mut map, &mut model, &mut rng);
        }
        if round % 500 == 0 {
            same(&map, &model);
            assert_eq!(map.clone(), map);
            let odd = |key: &u64| key % 2 == 1;
            map.pin().retain(|key, _| odd(key));
            model.retain(|key, _| odd(key));
        }
    }
    same(&map, &model);
    map.settle().unwrap();
    same(&map, &model);
    assert_eq!(map.clone().into_iter().collect::<HashMap<_, _>>(), model);
    map.pin().clear();
    assert!(map.is_empty());
}

#[test]
fn random_operations_on_sets_agree() {
    for seed in 0..10 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut set = RelativisticSet::<u64>::new();
        let mut model = HashSet::new();
        for round in 0..5_000 {
            let n = rng.random_range(0..150);
            let handle = set.pin();
            match rng.random_range(0..9) {
                0..3 => assert_eq!(handle.insert(n), model.insert(n)),
                3 => assert_eq!(handle.remove(&n), model.remove(&n)),
                4 => assert_eq!(handle.take(&n).copied(), model.take(&n)),
                5 => assert_eq!(handle.replace(n).copied(), model.replace(n)),
                6 => assert_eq!(handle.get(&n), model.get(&n)),
                7 => {
                    assert_eq!(*handle.get_or_insert(n), n);
                    model.insert(n);
                }
                _ => assert_eq!(handle.contains(&n), model.contains(&n)),
            }
            drop(handle);
            if round % 500 == 0 {
                set.retain(|n| n % 3 != 0);
                model.retain(|n| n % 3 != 0);
                let copy: RelativisticSet<u64> = model.iter().copied().collect();
                assert_eq!(copy, set);
                assert!(set.pin().is_subset(&copy.pin()) && copy.pin().is_superset(&set.pin()));
                assert_eq!(set.pin().is_disjoint(&copy.pin()), model.is_empty());
                let all: HashSet<u64> = set.pin().iter().copied().collect();
                assert_eq!((all, set.len()), (model.clone(), model.len()));
            }
            if round == 4_000 {
                assert_eq!(
                    set.drain().collect::<HashSet<_>>(),
                    std::mem::take(&mut model)
                );
            }
        }
        assert_eq!(set.into_iter().collect::<HashSet<_>>(), model);
    }
}

#[test]
fn random_operations_agree() {
    for seed in 0..10 {
        run(RandomState::new(), seed);
    }
}

#[test]
fn random_operations_agree_under_poor_hashers() {
    for (seed, hashing) in (1..).zip(Hashing::ALL) {
        run(hashing, seed);
    }
}

#[test]
fn random_operations_agree_under_an_outer_guard() {
    for seed in 0..4 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let map: RelativisticMap<u64, u64> = RelativisticMap::new();
        let guard = corewise_rcu::pin();
        let handle = map.within(&guard);
        let mut model = HashMap::new();
        for _ in 0..20_000 {
            let (key, value) = (rng.random_range(0..2000), rng.random());
            match rng.random_range(0..4) {
                0 | 1 => assert_eq!(handle.insert(key, value).copied(), model.insert(key, value)),
                2 => assert_eq!(handle.remove(&key).copied(), model.remove(&key)),
                _ => assert_eq!(handle.get(&key), model.get(&key)),
            }
        }
        assert_eq!(handle.len(), model.len());
        assert!(handle.iter().all(|(key, value)| model[key] == *value));
        assert_eq!(handle.iter().count(), model.len());
        drop(handle);
        drop(guard);
        map.settle().unwrap();
        assert!(map.pin().iter().all(|(key, value)| model[key] == *value));
        assert_eq!(map.pin().iter().count(), model.len());
    }
}
