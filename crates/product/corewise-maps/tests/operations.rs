//! Each operation of a handle by itself, and the lifetimes of what it returns.

use std::collections::BTreeMap;

use corewise_maps::RelativisticMap;

fn squares(n: u64) -> RelativisticMap<u64, u64> {
    (0..n).map(|n| (n, n * n)).collect()
}

fn sorted(map: &RelativisticMap<u64, u64>) -> BTreeMap<u64, u64> {
    map.pin()
        .iter()
        .map(|(key, value)| (*key, *value))
        .collect()
}

/// An iterator that promises more than it, or the memory, has.
struct HugeSizeHint(std::ops::Range<u64>);

impl Iterator for HugeSizeHint {
    type Item = (u64, u64);
    fn next(&mut self) -> Option<(u64, u64)> {
        self.0.next().map(|n| (n, n * n))
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

#[test]
fn a_map_is_collected_whatever_the_iterator_promises() {
    let map: RelativisticMap<u64, u64> = HugeSizeHint(0..100).collect();
    assert_eq!(sorted(&map), sorted(&squares(100)));
    let mut map = squares(10);
    map.extend(HugeSizeHint(10..100));
    assert_eq!(sorted(&map), sorted(&squares(100)));
}

#[test]
fn a_batch_may_be_of_what_keys_can_be_borrowed_as() {
    let map = RelativisticMap::from([("one".to_owned(), 1), ("two".to_owned(), 2)]);
    let (handle, mut out) = (map.pin(), [None; 3]);
    handle.get_many(["two", "three", "one"], &mut out);
    assert_eq!(out, [Some(&2), None, Some(&1)]);
    let names = ["one".to_owned(), "four".to_owned()];
    handle.get_many(&names, &mut out[1..]);
    assert_eq!(out, [Some(&2), Some(&1), None]);
    // What was found stays valid as long as the handle.
    handle.remove("two");
    assert_eq!(out[0], Some(&2));
}

#[test]
fn a_batch_without_places_for_its_keys_is_refused() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let map = squares(3);
    let (handle, kept) = (map.pin(), 7);
    for places in [1, 3] {
        let mut out = vec![Some(&kept); places];
        let refused = catch_unwind(AssertUnwindSafe(|| handle.get_many(&[0, 1], &mut out)));
        assert!(refused.is_err());
        assert!(out.iter().all(|place| *place == Some(&kept)), "written");
    }
}

#[test]
fn a_replacement_replaces_the_key_as_stored_and_a_refusal_does_not() {
    #[derive(Debug, Clone)]
    struct Spelled(&'static str);
    impl PartialEq for Spelled {
        fn eq(&self, other: &Self) -> bool {
            self.0.eq_ignore_ascii_case(other.0)
        }
    }
    impl Eq for Spelled {}
    impl std::hash::Hash for Spelled {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            self.0.to_ascii_lowercase().hash(state);
        }
    }
    let map = RelativisticMap::from([(Spelled("Ada"), 1)]);
    let handle = map.pin();
    let error = handle.try_insert(Spelled("ADA"), 2).unwrap_err();
    assert_eq!(error.to_string(), "the key has a value already");
    let stored = || handle.get_key_value(&Spelled("ada")).unwrap().0.0;
    assert_eq!(stored(), "Ada");
    handle.insert(Spelled("ADA"), 2);
    assert_eq!(stored(), "ADA");
    handle.update(&Spelled("ada"), |n| n + 1);
    assert_eq!(stored(), "ADA");
    assert_eq!(handle.len(), 1);
}

/// Counts how often it is made from a borrowed string.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Name(String);

thread_local! {
    static MADE: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

impl From<&str> for Name {
    fn from(name: &str) -> Self {
        MADE.set(MADE.get() + 1);
        Self(name.to_owned())
    }
}

impl std::borrow::Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[test]
fn an_owned_key_is_made_only_to_be_inserted() {
    let map = RelativisticMap::<Name, usize>::new();
    for name in ["ada", "grace", "ada", "ada"] {
        assert_eq!(
            map.pin().get_or_insert_ref(name, || name.len()),
            &name.len()
        );
    }
    assert_eq!((MADE.get(), map.len()), (2, 2));
}

#[test]
fn keys_are_found_by_what_they_can_be_compared_with() {
    use corewise_maps::{Equivalent, RelativisticSet};
    #[derive(Hash)]
    struct Pair<'a>(&'a str, u8);
    impl Equivalent<(String, u8)> for Pair<'_> {
        fn equivalent(&self, key: &(String, u8)) -> bool {
            self.0 == key.0 && self.1 == key.1
        }
    }
    let key = |n: u8| (n.to_string(), n);
    let mut map: RelativisticMap<(String, u8), u8> = (0..100).map(|n| (key(n), n)).collect();
    let handle = map.pin();
    assert_eq!(handle.get(&Pair("7", 7)), Some(&7));
    assert_eq!(handle.get(&Pair("7", 8)), None);
    assert_eq!(handle.update(&Pair("7", 7), |n| n + 100), Some(&107));
    assert_eq!(handle.remove(&Pair("8", 8)), Some(&8));
    assert_eq!(
        handle.remove_if(&Pair("9", 9), |_, n| *n == 9),
        Ok(Some((&key(9), &9)))
    );
    let mut out = [None; 2];
    handle.get_many(&[Pair("8", 8), Pair("10", 10)], &mut out);
    assert_eq!(out, [None, Some(&10)]);
    drop(handle);
    *map.get_mut(&Pair("10", 10)).unwrap() += 1;
    assert_eq!(map.get_cloned(&Pair("10", 10)), Some(11));
    let set = RelativisticSet::from([key(3)]);
    assert!(set.contains(&Pair("3", 3)) && set.remove(&Pair("3", 3)));
}

/// What `Borrow` and type inference allowed with the former bounds.
#[test]
fn usual_lookups_need_no_annotations() {
    use std::sync::Arc;
    fn generic<K, Q>(map: &RelativisticMap<K, u64>, key: &Q) -> Option<u64>
    where
        K: std::borrow::Borrow<Q> + Eq + std::hash::Hash,
        Q: ?Sized + Eq + std::hash::Hash,
    {
        map.pin().get(key).copied()
    }
    let strings = RelativisticMap::from([("a".to_owned(), 1)]);
    let owned = "a".to_owned();
    let handle = strings.pin();
    assert_eq!(handle.get("a"), handle.get(&owned));
    assert_eq!(handle.get(owned.as_str()), handle.get(&*owned));
    assert_eq!(generic(&strings, "a"), Some(1));
    let shared = RelativisticMap::from([(Arc::<str>::from("a"), 1)]);
    assert_eq!(shared.pin().get("a"), Some(&1));
    let bytes = RelativisticMap::from([(vec![1u8, 2], 1)]);
    assert_eq!(bytes.pin().get(&[1, 2][..]), Some(&1));
    // Keys that borrow from outside of the map.
    let names = RelativisticMap::from([(owned.as_str(), 1)]);
    assert_eq!(
        (names.pin().get("a"), names.pin().get(&"a")),
        (Some(&1), Some(&1))
    );
    let numbers = RelativisticMap::from([(1, 1)]);
    assert_eq!(numbers.pin().get(&1), Some(&1));
    let pairs = RelativisticMap::from([((1u64, "x"), 1)]);
    assert_eq!(pairs.pin().get(&(1, "x")), Some(&1));
    let options = RelativisticMap::from([(None, 1), (Some(2), 2)]);
    assert_eq!(options.pin().get(&None), Some(&1));
}

#[test]
fn an_entry_that_changes_in_between_is_modified_or_inserted_all_the_same() {
    let map = squares(3);
    let handle = map.pin();
    let entry = handle.entry(2);
    handle.insert(2, 100);
    assert_eq!(entry.and_modify(|n| *n += 1).or_insert(7), &101);
    let entry = handle.entry(2);
    handle.remove(&2);
    assert_eq!(entry.and_modify(|n| *n += 1).or_insert(7), &7);
    let entry = handle.entry(9).and_modify(|n| *n += 1);
    handle.insert(9, 50);
    assert_eq!(entry.or_insert(7), &51);
    let entry = handle.entry(10);
    handle.insert(10, 60);
    assert_eq!(entry.or_insert(7), &60);
    assert_eq!(handle.entry(11).or_insert_with_key(|key| key * 2), &22);
    assert_eq!(handle.entry(12).or_default(), &0);
}

#[test]
fn closures_may_use_the_map_themselves() {
    let map = squares(3);
    let handle = map.pin();
    let mut calls = 0;
    let new = handle.update_or_insert_with(
        2,
        |old| {
            calls += 1;
            if calls == 1 {
                handle.insert(2, 50);
            } else if calls == 2 {
                map.remove(&2);
            }
            old + 1
        },
        || {
            map.insert(2, 70);
            0
        },
    );
    // Replaced, removed, inserted before our insertion, and then changed.
    assert_eq!((new, calls), (&71, 3));
    let modified = handle.entry(1).and_modify(|n| {
        *n += 1;
        if *n < 10 {
            map.insert(1, *n + 5);
        }
    });
    assert_eq!(modified.or_insert(0), &14);
    handle.retain(|key, _| {
        map.insert(key + 100, 0);
        false
    });
    assert!(!handle.contains_key(&0));
    for (key, _) in handle.drain() {
        map.remove(&(key ^ 1));
    }
}

#[test]
fn an_iteration_that_removes_and_inserts_sees_each_entry_that_stays_once() {
    let map = squares(2_000);
    let handle = map.pin();
    let mut seen = BTreeMap::new();
    for (key, _) in &handle {
        *seen.entry(*key).or_insert(0) += 1;
        // Grows the map, and replaces entries ahead of the iterator and behind it.
        handle.insert(10_000 + key, 0);
        handle.insert(key ^ 1, 0);
    }
    assert!((0..2_000).all(|key| seen.get(&key) == Some(&1)));
}

#[test]
#[cfg(not(corewise_stress))]
fn a_map_shrinks_to_what_it_holds_when_told_to() {
    let map = RelativisticMap::with_capacity(100_000);
    let large = map.resize_state().buckets;
    assert!(large >= 100_000);
    (0..10).for_each(|n| {
        map.pin().insert(n, n);
    });
    map.settle().unwrap();
    assert_eq!(map.resize_state().buckets, large);
    map.shrink_to_fit();
    map.settle().unwrap();
    assert!(map.resize_state().buckets <= 32);
    assert_eq!(map.pin().iter().count(), 10);
}

#[test]
fn a_map_that_does_not_resize_itself_keeps_its_buckets() {
    let map = RelativisticMap::builder()
        .buckets(7)
        .automatic_resize(false)
        .build();
    (0..5_000).for_each(|n| {
        map.pin().insert(n, n);
    });
    assert_eq!(map.resize_state().buckets, 7);
    assert!(map.longest_chain() >= 5_000 / 7);
    map.set_automatic_resize(true);
    (5_000..5_100).for_each(|n| {
        map.pin().insert(n, n);
    });
    map.settle().unwrap();
    assert!(map.resize_state().buckets > 7 || cfg!(corewise_stress));
    assert!((0..5_100).all(|n| map.pin().get(&n) == Some(&n)));
}

#[test]
#[should_panic(expected = "a table needs a bucket")]
fn a_map_without_buckets_cannot_be_built() {
    let _ = RelativisticMap::<u64, u64>::builder().buckets(0).build();
}

#[test]
fn a_map_of_what_cannot_be_shared_serves_one_thread() {
    use std::rc::Rc;
    let alive = Rc::new(());
    let map = RelativisticMap::new();
    for n in 0..5_000u64 {
        map.pin().insert(n % 100, alive.clone());
    }
    drop(map);
    assert_eq!(Rc::strong_count(&alive), 1);
}

#[test]
fn a_map_may_go_to_another_thread_and_be_dropped_there() {
    let map = squares(1_000);
    (0..500).for_each(|n| {
        map.pin().remove(&n);
    });
    std::thread::spawn(move || {
        assert_eq!(map.len(), 500);
        map.pin().clear();
        assert!(map.is_empty());
    })
    .join()
    .unwrap();
}

#[test]
fn keys_may_look_into_other_maps_when_they_are_compared() {
    use std::cell::Cell;
    use std::hash::{Hash, Hasher};
    /// Equal to other keys as another map defines.
    struct Alias<'m>(u64, &'m RelativisticMap<u64, u64>, &'m Cell<u64>);
    impl Alias<'_> {
        fn meaning(&self) -> u64 {
            self.2.set(self.2.get() + 1);
            *self.1.pin().get_or_insert_with(self.0, || self.0 / 2)
        }
    }
    impl PartialEq for Alias<'_> {
        fn eq(&self, other: &Self) -> bool {
            self.meaning() == other.meaning()
        }
    }
    impl Eq for Alias<'_> {}
    impl Hash for Alias<'_> {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.meaning().hash(state);
        }
    }
    let (meanings, looked) = (RelativisticMap::new(), Cell::new(0));
    let map = RelativisticMap::new();
    for n in 0..1_000 {
        map.pin().insert(Alias(n, &meanings, &looked), n);
    }
    assert_eq!((map.len(), meanings.len()), (500, 1_000));
    assert!(looked.get() >= 1_000);
}

#[test]
fn a_clone_is_set_up_as_its_original() {
    let domain = corewise_rcu::Domain::new();
    let map = RelativisticMap::builder()
        .domain(domain.clone())
        .buckets(24)
        .automatic_resize(false)
        .build();
    (0..100).for_each(|n| {
        map.pin().insert(n, n);
    });
    let copy = map.clone();
    assert_eq!(copy, map);
    assert_eq!(copy.domain().id(), domain.id());
    copy.pin().insert(100, 100);
    copy.settle().unwrap();
    assert_eq!(copy.resize_state().buckets, 24);
    assert_eq!((copy.len(), map.len()), (101, 100));
}

/// Owned handles that live at the same time have records of their own, and threads too; what they
/// keep is in proportion to the map.
#[test]
fn many_owned_handles_do_not_make_a_small_map_large() {
    let map = RelativisticMap::<u64, u64>::new();
    for round in 0..3 {
        let handles: Vec<_> = (0..300).map(|_| map.pin_owned()).collect();
        for (number, handle) in (0..).zip(&handles) {
            handle.insert(number % 50, round);
        }
        assert!(map.node_bytes() < 4 << 20, "{}", map.node_bytes());
        drop(handles);
        map.settle().unwrap();
        assert!(map.node_bytes() < 1 << 20, "{}", map.node_bytes());
    }
    assert_eq!(map.len(), 50);
}
