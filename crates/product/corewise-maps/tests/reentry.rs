//! User code that uses the map which calls it, and handles and iterators that are kept or
//! forgotten: nothing is freed too early or twice, and no call waits for itself.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

use corewise_maps::RelativisticMap;
use corewise_maps::clht::LockBasedTable;
use corewise_maps::copy_map::{CopyMap, Table};
use corewise_maps::cuckoo::CuckooTable;
use corewise_maps::relativistic::{Entry, Operation};
use corewise_maps_lab::clht_lock_free::LockFreeTable;
use corewise_maps_lab::hopscotch::{HopscotchMap, HopscotchTable};
use corewise_rcu::Domain;

use corewise_testkit::for_every;

for_every! {
    lock_based: LockBasedTable<u64, u64>,
    lock_free: LockFreeTable<u64, u64>,
    cuckoo: CuckooTable<u64, u64>,
    hopscotch: HopscotchTable<u64, u64>,
    => {
        iterators_outlive_resizes
        forgotten_handles_and_iterators_do_no_harm
        owned_handles_go_to_other_threads
    }
}

fn filled<T: Table<Key = u64, Value = u64>>(entries: u64) -> CopyMap<T> {
    let builder = CopyMap::<T>::builder().buckets(4);
    let map = builder.domain(Domain::new()).build();
    for key in 0..entries {
        assert!(map.pin().insert(key, key).is_none());
    }
    map
}

fn iterators_outlive_resizes<T: Table<Key = u64, Value = u64>>() {
    let map = filled::<T>(200);
    let handle = map.pin();
    let mut seen = Vec::new();
    for (count, (key, value)) in handle.iter().enumerate() {
        assert!([key, 1_000].contains(&value));
        seen.push(key);
        match count % 40 {
            0 => map.resize_to(512).unwrap(),
            10 => map.resize_to(8).unwrap(),
            20 => drop(handle.remove(&key)),
            30 => assert!(handle.insert(key, 1_000).is_some()),
            _ => {}
        }
    }
    for key in 0..200 {
        handle.remove(&key);
    }
    map.resize_to(1).unwrap();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!((seen.len(), map.len()), (200, 0));
}

fn forgotten_handles_and_iterators_do_no_harm<T: Table<Key = u64, Value = u64>>() {
    let other = filled::<T>(10);
    let kept = other.pin();
    for round in 0..20 {
        let map = filled::<T>(50);
        let handle = map.pin();
        // An iterator that has not begun: it owns no memory yet that could leak.
        std::mem::forget(handle.iter());
        for key in 0..100 {
            handle.insert(key, 7);
        }
        if round % 2 == 0 {
            std::mem::forget(handle);
        } else {
            drop(handle);
        }
        map.resize_to(2).unwrap();
        assert_eq!(map.pin().iter().count(), 100);
        drop(map);
    }
    assert_eq!(kept.get(&3), Some(3));
    // The handle belongs to another domain.
    drop(kept);
    drop(other);
}

fn owned_handles_go_to_other_threads<T>()
where
    T: Table<Key = u64, Value = u64> + Send + Sync,
{
    let map = filled::<T>(50);
    // Made by a thread that ends.
    let handle = std::thread::scope(|scope| scope.spawn(|| map.pin_owned()).join().unwrap());
    for key in 0..500 {
        map.pin().insert(key, key + 1);
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let handle = handle;
            assert_eq!(handle.remove(&7), Some(8));
            (500..1000).for_each(|key| assert!(handle.insert(key, key).is_none()));
        });
    });
    map.settle();
    assert_eq!((map.len(), map.pin().contains_key(&7)), (999, false));
}

/// A key whose comparison uses the map, a limited number of times.
#[derive(Clone, Copy, Debug)]
struct UsesMapInEq(u64);

thread_local! {
    static ON_COMPARISON: Cell<Option<fn()>> = const { Cell::new(None) };
}

impl PartialEq for UsesMapInEq {
    fn eq(&self, other: &Self) -> bool {
        if let Some(act) = ON_COMPARISON.take() {
            act();
        }
        self.0 == other.0
    }
}

impl Eq for UsesMapInEq {}

impl Hash for UsesMapInEq {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if let Some(act) = ON_COMPARISON.take() {
            act();
        }
        // Few values, so that keys are compared.
        state.write_u64(self.0 % 4);
    }
}

/// A test of user code that changes the map in the middle of each operation on the same key.
macro_rules! comparisons_and_hashers_may_use {
    ($test:ident: $map:ty, $value:expr) => {
        #[test]
        fn $test() {
            thread_local! {
                static MAP: $map = <$map>::new();
            }
            fn insert(key: u64) {
                MAP.with(|map| _ = map.pin().insert(UsesMapInEq(key), $value(key)));
            }
            fn remove(key: u64) {
                MAP.with(|map| _ = map.pin().remove(&UsesMapInEq(key)));
            }
            fn get(key: u64) {
                MAP.with(|map| {
                    let handle = map.pin();
                    let twice = handle.iter().filter(|(there, _)| there.0 == key).count();
                    assert!(twice <= 1, "{key} is there {twice} times");
                    let text = handle.get(&UsesMapInEq(key)).map(|value| value.to_string());
                    assert!(text.is_none_or(|text| text == key.to_string()));
                });
            }
            let actions: [fn(); 4] = [
                || insert(7),
                || remove(7),
                || (0..200).for_each(insert),
                || (0..200).for_each(remove),
            ];
            for act in actions.into_iter().cycle().take(10 * actions.len()) {
                for operation in [insert as fn(u64), remove as fn(u64), get as fn(u64)] {
                    (0..12).for_each(insert);
                    ON_COMPARISON.set(Some(act));
                    operation(7);
                    ON_COMPARISON.set(None);
                    remove(7);
                    get(7);
                }
            }
        }
    };
}

comparisons_and_hashers_may_use! {
    a_relativistic_map: RelativisticMap<UsesMapInEq, String>, |key: u64| key.to_string()
}
comparisons_and_hashers_may_use! {
    a_hopscotch_map: HopscotchMap<UsesMapInEq, u64>, |key| key
}

#[test]
fn entries_and_closures_may_change_their_own_key() {
    let map = RelativisticMap::from([(1, "one".to_string())]);
    let handle = map.pin();
    let Entry::Occupied(entry) = handle.entry(1) else {
        panic!("it is there")
    };
    handle.insert(1, "uno".into());
    assert_eq!(entry.get(), "one");
    assert_eq!(entry.replace("eins".into()), Err("eins".into()));
    let Entry::Vacant(entry) = handle.entry(2) else {
        panic!("it is not there")
    };
    handle.insert(2, "two".into());
    assert!(
        entry
            .insert("deux".into())
            .is_err_and(|error| error.current == "two")
    );
    let value = handle.get_or_insert_with(3, || {
        handle.insert(3, "three".into());
        map.resize_to(256).unwrap_or_default();
        "trois".into()
    });
    assert_eq!(value, "three");
    let mut calls = 0;
    handle.compute(4, |entry| {
        calls += 1;
        if calls < 5 {
            handle.insert(
                4,
                entry.map_or(String::new(), |(_, text)| format!("{text}4")),
            );
        }
        Operation::<_, ()>::Insert("four".into())
    });
    assert_eq!(
        (calls, handle.get(&4).map(String::as_str)),
        (5, Some("four"))
    );
    handle.retain(|key, _| {
        handle.clear();
        handle.insert(key + 100, "kept".into());
        true
    });
    assert!(handle.keys().all(|key| *key >= 100));
}

#[test]
fn maps_may_be_dropped_beside_guards_of_others_and_within_their_own() {
    let domain = Domain::new();
    let first = RelativisticMap::builder().domain(domain.clone()).build();
    let second = HopscotchMap::<u64, u64>::builder()
        .domain(domain.clone())
        .build();
    let guard = domain.pin();
    for key in 0..1_000u64 {
        first.within(&guard).insert(key % 100, key.to_string());
        second.within(&guard).insert(key, key);
    }
    let third = first.clone();
    assert_eq!(
        third.within(&guard).get(&3).map(String::as_str),
        Some("903")
    );
    drop((first, second));
    drop(guard);
    domain.barrier();
    let in_panic = catch_unwind(AssertUnwindSafe(|| {
        let _map: RelativisticMap<u64, String> = (0..100).map(|n| (n, n.to_string())).collect();
        panic!("the map is dropped while this is thrown");
    }));
    assert!(in_panic.is_err());
}
