//! The map against `std::collections::HashMap`: the same random operations, the same results.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use corewise_maps::RelativisticMap;
use corewise_maps::relativistic::{Compute, Entry, MapRef, Operation};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

type Map<S> = RelativisticMap<u64, String, S>;

/// Performs one random operation on both maps; occasionally resizes the concurrent one.
fn step<S: BuildHasher>(map: &Map<S>, model: &mut HashMap<u64, String>, rng: &mut SmallRng) {
    let key = rng.random_range(0..200);
    let value = rng.random::<u32>().to_string();
    let handle = map.pin();
    match rng.random_range(0..17) {
        0..=2 => assert_eq!(handle.get(&key), model.get(&key)),
        3 => assert_eq!(handle.contains_key(&key), model.contains_key(&key)),
        4..=6 => {
            let old = handle.insert(key, value.clone()).cloned();
            assert_eq!(old, model.insert(key, value));
        }
        7 => try_insert(&handle, key, value, model),
        8..=10 => assert_eq!(handle.remove(&key).cloned(), model.remove(&key)),
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
        12 => {
            let got = handle.get_or_insert_with(key, || value.clone());
            assert_eq!(got, model.entry(key).or_insert(value));
        }
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
        _ => remove_if_even(&handle, key, model),
    }
    drop(handle);
    if rng.random_range(0..100) == 0 {
        let buckets = [1, 2, 3, 6, 16, 64, 192][rng.random_range(0..7)];
        map.resize_to(buckets).unwrap();
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
            assert_eq!(result, Some(()));
            assert!(model.contains_key(&key));
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
    for key in 0..200 {
        assert_eq!(handle.get(&key), model.get(&key));
    }
}

fn run<S: BuildHasher + Clone>(hasher: S, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let map = Map::with_hasher(hasher);
    let mut model = HashMap::new();
    for round in 0..4000 {
        step(&map, &mut model, &mut rng);
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
    map.pin().clear();
    assert!(map.is_empty());
}

#[test]
fn random_operations_agree() {
    for seed in 0..10 {
        run(RandomState::new(), seed);
    }
}

/// A hasher with few distinct values.
#[derive(Clone)]
struct Poor(u64);

impl BuildHasher for Poor {
    type Hasher = PoorHasher;
    fn build_hasher(&self) -> PoorHasher {
        PoorHasher(self.0, 0)
    }
}

struct PoorHasher(u64, u64);

impl std::hash::Hasher for PoorHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.1 = self.1.wrapping_mul(31).wrapping_add(u64::from(*byte));
        }
    }
    fn finish(&self) -> u64 {
        self.1 % self.0
    }
}

#[test]
fn random_operations_agree_under_poor_hashers() {
    for (seed, values) in [(1, 1), (2, 2), (3, 7), (4, 100)] {
        run(Poor(values), seed);
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
