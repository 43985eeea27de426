//! Access by the exclusive owner: in the middle of resizes, with hashers and comparisons that are
//! wrong, and with values that panic when they are dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicIsize;
use std::sync::atomic::Ordering::SeqCst;

use corewise_maps::{RelativisticMap, RelativisticSet};
use corewise_rcu::Domain;
use corewise_testkit::hashing::Hashing;

use crate::common::Counted;
use crate::hostile::{Behaviour, InconsistentHashing, Key, be};

type Map = RelativisticMap<u64, Counted>;

/// Maps of `entries` in all stages of resizing: settled, with stacked expansions that a guard keeps
/// from being unzipped, and shrinking.
fn maps(entries: u64, alive: &Arc<AtomicIsize>, mut test: impl FnMut(Map)) {
    let fill = |map: &Map| {
        for n in 0..entries {
            map.insert(n, Counted::new(n, alive));
            map.insert(n, Counted::new(n, alive));
        }
    };
    let settled = Map::builder().domain(Domain::new()).build();
    fill(&settled);
    settled.settle().unwrap();
    test(settled);
    for buckets in [1, 3, 16] {
        let domain = Domain::new();
        let builder = Map::builder().domain(domain.clone()).buckets(buckets);
        let map = builder.build();
        let guard = domain.pin();
        fill(&map);
        map.reserve(10 * entries as usize).unwrap();
        drop(guard);
        test(map);

        let map = Map::builder().domain(domain.clone()).build();
        fill(&map);
        map.settle().unwrap();
        map.set_automatic_resize(false);
        let guard = domain.pin();
        map.shrink_to_fit();
        if map.remove(&0).is_some() {
            map.insert(0, Counted::new(0, alive));
        }
        drop(guard);
        test(map);
    }
}

#[test]
fn every_value_is_lent_once_in_every_stage_of_a_resize() {
    let alive = Arc::default();
    for entries in [0, 1, 7, 100, 1_500] {
        maps(entries, &alive, |mut map| {
            let mut all: Vec<_> = map.iter_mut().collect();
            all.iter_mut().for_each(|(_, value)| value.n += 1_000);
            let addresses: BTreeSet<_> = all.iter().map(|(_, value)| &raw const **value).collect();
            let seen: BTreeMap<u64, u64> =
                all.iter().map(|(key, value)| (**key, value.n)).collect();
            assert_eq!(addresses.len(), all.len());
            assert!(seen.into_iter().eq((0..entries).map(|n| (n, n + 1_000))));
            for value in map.values_mut() {
                value.n += 1;
            }
            for (key, value) in &mut map {
                assert_eq!(value.n, key + 1_001);
            }
            for n in 0..entries {
                map.get_mut(&n).unwrap().n = n;
            }
            assert!(map.get_mut(&entries).is_none());
            assert!(map.pin().iter().all(|(key, value)| *key == value.n));
        });
        assert_eq!(alive.load(SeqCst), 0);
    }
}

#[test]
fn rejected_entries_are_removed_and_the_others_changed() {
    let alive = Arc::default();
    maps(500, &alive, |mut map| {
        map.retain_mut(|key, value| {
            value.n += 1;
            key % 3 == 0
        });
        assert_eq!(map.len(), 167);
        assert!(
            map.pin()
                .iter()
                .all(|(key, value)| key % 3 == 0 && value.n == key + 1)
        );
        map.settle().unwrap();
        assert_eq!(alive.load(SeqCst), 167);
    });
    assert_eq!(alive.load(SeqCst), 0);
}

#[test]
fn a_drain_yields_every_entry_and_the_map_goes_on() {
    let alive = Arc::default();
    for taken in [0, 10, 500] {
        maps(500, &alive, |mut map| {
            let mut drain = map.drain();
            let some: BTreeMap<u64, Counted> = drain.by_ref().take(taken).collect();
            drop(drain);
            assert!(some.iter().all(|(key, value)| *key == value.n));
            assert_eq!(some.len(), taken);
            assert!(map.is_empty() && map.pin().iter().next().is_none());
            drop(some);
            // The memory is used again, in the middle of whatever resize comes next.
            for n in 0..2_000 {
                map.insert(n, Counted::new(n, &alive));
            }
            assert!((0..2_000).all(|n| map.get(&n).is_some_and(|value| value.n == n)));
            map.clear();
            map.settle().unwrap();
            assert_eq!(alive.load(SeqCst), 0);
        });
    }
}

#[test]
fn a_forgotten_drain_leaves_the_rest() {
    let alive = Arc::default();
    maps(100, &alive, |mut map| {
        let mut drain = map.drain();
        let taken: BTreeSet<u64> = drain.by_ref().take(40).map(|(key, _)| key).collect();
        std::mem::forget(drain);
        assert_eq!(map.len(), 60);
        assert!((0..100).all(|n| map.contains_key(&n) != taken.contains(&n)));
        map.settle().unwrap();
        assert_eq!(alive.load(SeqCst), 60);
    });
    assert_eq!(alive.load(SeqCst), 0);
}

#[test]
fn a_map_is_taken_apart() {
    let alive = Arc::default();
    for taken in [0, 10, 500] {
        maps(500, &alive, |map| {
            let mut entries = map.into_iter();
            assert_eq!(entries.size_hint(), (500, Some(500)));
            let some: BTreeMap<u64, Counted> = entries.by_ref().take(taken).collect();
            assert_eq!(some.len(), taken);
            assert_eq!(entries.size_hint(), (500 - taken, Some(500 - taken)));
            let rest = std::thread::scope(|scope| scope.spawn(|| entries.take(100).count()).join());
            assert_eq!(rest.unwrap(), 100.min(500 - taken));
            assert!(some.iter().all(|(key, value)| *key == value.n));
        });
        assert_eq!(alive.load(SeqCst), 0);
    }
}

#[test]
fn values_that_panic_when_dropped_leak_no_others() {
    let alive = Arc::default();
    let bombs = |map: &mut Map| {
        map.values_mut()
            .for_each(|value| value.bomb = value.n % 10 == 3);
    };
    maps(100, &alive, |mut map| {
        bombs(&mut map);
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(map.drain())));
        assert!(dropped.is_err(), "the first panic goes on");
        assert!(map.is_empty());
        // What was replaced earlier waits for readers.
        map.settle().unwrap();
        assert_eq!(alive.load(SeqCst), 0);
        map.insert(1, Counted::new(1, &alive));
        assert_eq!(map.len(), 1);
    });
    maps(100, &alive, |mut map| {
        bombs(&mut map);
        let entries = map.into_iter();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(entries))).is_err());
        assert_eq!(alive.load(SeqCst), 0);
    });
    maps(100, &alive, |mut map| {
        let panics = |_: &u64, value: &mut Counted| {
            value.n += 1;
            assert!(value.n != 50);
            value.n.is_multiple_of(2)
        };
        assert!(catch_unwind(AssertUnwindSafe(|| map.retain_mut(panics))).is_err());
        let left = map.len();
        assert!(left > 0 && map.iter_mut().count() == left);
    });
    assert_eq!(alive.load(SeqCst), 0);
}

#[test]
fn inconsistent_keys_get_no_value_twice() {
    let alive = Arc::default();
    for round in 0..50 {
        let domain = Domain::new();
        let builder = RelativisticMap::builder().domain(domain.clone()).buckets(1);
        let mut map: RelativisticMap<Key, Counted, _> = builder.hasher(InconsistentHashing).build();
        be(Behaviour::Random, Behaviour::Random);
        let guard = domain.pin();
        for n in 0..300 {
            let key = || Key(n % 50);
            match (n + round) % 8 {
                0..=2 => drop(map.insert(key(), Counted::new(n, &alive))),
                3 => drop(map.update_or_insert(
                    key(),
                    |old| Counted::new(old.n, &alive),
                    Counted::new(n, &alive),
                )),
                4 => drop(
                    map.pin()
                        .entry(key())
                        .or_insert_with(|| Counted::new(n, &alive)),
                ),
                5 => drop(
                    map.pin()
                        .get_or_insert_with(key(), || Counted::new(n, &alive)),
                ),
                6 => drop(map.pin().try_insert(key(), Counted::new(n, &alive))),
                _ => drop(map.remove(&key())),
            }
        }
        drop(guard);
        let entries = map.len();
        let mut all: Vec<_> = map.iter_mut().collect();
        all.iter_mut().for_each(|(_, value)| value.n += 1);
        let distinct: BTreeSet<_> = all.iter().map(|(_, value)| &raw const **value).collect();
        assert_eq!((all.len(), distinct.len()), (entries, entries));
        for n in 0..100 {
            if let Some(value) = map.get_mut(&Key(n)) {
                value.n += 1;
            }
        }
        map.retain_mut(|_, value| value.n % 2 == 0);
        if round % 2 == 0 {
            let left = map.len();
            assert_eq!(map.drain().count(), left);
        }
        assert!(map.into_iter().take(5).count() <= 5);
        be(Behaviour::Consistent, Behaviour::Consistent);
        assert_eq!(alive.load(SeqCst), 0, "round {round}");
    }
}

#[test]
fn one_chain_is_taken_apart_too() {
    let mut map: RelativisticMap<u64, String, _> = RelativisticMap::with_hasher(Hashing::Alike);
    map.extend((0..300).map(|n| (n, n.to_string())));
    map.values_mut().for_each(|text| text.push('!'));
    let drained: BTreeMap<u64, String> = map.drain().collect();
    assert!(
        drained
            .into_iter()
            .eq((0..300).map(|n| (n, format!("{n}!"))))
    );
    map.extend([(1, "one".to_owned())]);
    assert_eq!(map.into_iter().collect::<Vec<_>>(), [(1, "one".to_owned())]);
}

#[test]
fn a_drained_map_shrinks_again() {
    let mut map: RelativisticMap<u64, u64> = (0..50_000).map(|n| (n, n)).collect();
    assert_eq!(map.drain().map(|(_, n)| n).sum::<u64>(), 25_000 * 49_999);
    map.shrink_to_fit();
    for n in 0..100 {
        map.insert(n, n);
    }
    map.settle().unwrap();
    assert!(map.resize_state().buckets < 1_000);
    assert_eq!(map.len(), 100);
}

#[test]
fn maps_and_sets_are_extended_by_copies() {
    let mut map = RelativisticMap::from([(1, 2)]);
    assert_eq!(format!("{map:?}"), "{1: 2}");
    let copy = map.clone();
    map.extend(&std::collections::HashMap::from([(3, 4)]));
    assert_ne!(copy, map);
    assert_eq!(map, RelativisticMap::from([(1, 2), (3, 4)]));
    let mut set = RelativisticSet::from([1]);
    set.extend(&[2, 3]);
    (&mut &set).extend([4]);
    assert_eq!(set, RelativisticSet::from([1, 2, 3, 4]));
    assert!(set == set.clone() && set != RelativisticSet::from([1]));
    let mut elements: Vec<i32> = set.into_iter().collect();
    elements.sort_unstable();
    assert_eq!(elements, [1, 2, 3, 4]);
}

#[test]
fn maps_and_handles_cross_a_catch() {
    let map = RelativisticMap::from([(1, 2)]);
    let handle = map.pin();
    let caught = catch_unwind(|| {
        map.insert(3, 4);
        handle.insert(5, 6);
        handle.update(&1, |_| panic!("the user's"));
    });
    assert!(caught.is_err());
    assert_eq!((map.len(), handle.get(&1)), (3, Some(&2)));
}
