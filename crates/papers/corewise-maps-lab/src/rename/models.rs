//! Models of renaming, for the checkers, with two preemptions: a map has too many schedules with
//! more. As ordinary tests, each model runs once.

use corewise_atomic::model_bounded;
use corewise_atomic::sync::Arc;
use corewise_maps::copy_map::numbers::{KeysAsHashes, beside};
use corewise_rcu::Domain;

use super::{RenameError, RenameMap};

/// Keys are their hashes.
type Map = RenameMap<u64, u64, KeysAsHashes>;

/// A map with one entry, of key 1.
fn map_of_one() -> Arc<Map> {
    let map = Map::in_domain(KeysAsHashes::default(), Domain::new());
    assert!(map.pin().insert(1, 10).is_ok());
    Arc::new(map)
}

fn get(map: &Map, key: u64) -> Option<u64> {
    map.pin().get(&key).copied()
}

fn rename(map: &Map, old: u64, new: u64) -> Result<u64, RenameError> {
    map.pin().rename(&old, new).copied()
}

/// The entries at the end.
fn contents(map: &Map) -> Vec<(u64, u64)> {
    let mut entries: Vec<_> = map
        .pin()
        .iter()
        .map(|(key, value)| (*key, *value))
        .collect();
    entries.sort_unstable();
    assert_eq!(map.len(), entries.len());
    entries
}

#[test]
fn a_renamed_entry_is_never_missed() {
    model_bounded(2, || {
        let map = map_of_one();
        let read = |map: &Map| get(map, 1).or_else(|| get(map, 2));
        let (seen, renamed) = beside(&map, read, |map| rename(map, 1, 2));
        assert_eq!((seen, renamed), (Some(10), Ok(10)));
        assert_eq!(contents(&map), [(2, 10)]);
    });
}

#[test]
fn a_renamed_entry_is_never_seen_twice() {
    model_bounded(2, || {
        let map = map_of_one();
        let read = |map: &Map| get(map, 2).is_some() && get(map, 1).is_some();
        let (seen_twice, renamed) = beside(&map, read, |map| rename(map, 1, 2));
        assert_eq!((seen_twice, renamed), (false, Ok(10)));
    });
}

#[test]
fn one_of_two_renames_wins() {
    model_bounded(2, || {
        let map = map_of_one();
        let (second, third) = beside(&map, |map| rename(map, 1, 2), |map| rename(map, 1, 3));
        assert_ne!(second.is_ok(), third.is_ok());
        let key = if second.is_ok() { 2 } else { 3 };
        assert_eq!(contents(&map), [(key, 10)]);
    });
}

/// The new key's entry is the renamed entry itself.
#[test]
fn a_rename_to_where_the_entry_is_already_finds_nothing() {
    model_bounded(2, || {
        let map = map_of_one();
        let again = |map: &Map| rename(map, 1, 2);
        let (first, second) = beside(&map, again, again);
        let mut outcomes = [first, second];
        outcomes.sort_unstable_by_key(Result::is_err);
        assert_eq!(outcomes, [Ok(10), Err(RenameError::NotFound)]);
        assert_eq!(contents(&map), [(2, 10)]);
    });
}

#[test]
fn a_rename_or_a_removal_wins() {
    model_bounded(2, || {
        let map = map_of_one();
        let remove = |map: &Map| map.pin().remove(&1).copied();
        let (removed, renamed) = beside(&map, remove, |map| rename(map, 1, 2));
        let expected = match removed {
            Some(_) => (Err(RenameError::NotFound), vec![]),
            None => (Ok(10), vec![(2, 10)]),
        };
        assert_eq!((renamed, contents(&map)), expected);
    });
}

#[test]
fn a_rename_or_an_insertion_of_the_new_key_wins() {
    model_bounded(2, || {
        let map = map_of_one();
        let insert = |map: &Map| map.pin().insert(2, 77).is_ok();
        let (inserted, renamed) = beside(&map, insert, |map| rename(map, 1, 2));
        let expected = if inserted {
            (Err(RenameError::Occupied), vec![(1, 10), (2, 77)])
        } else {
            (Ok(10), vec![(2, 10)])
        };
        assert_eq!((renamed, contents(&map)), expected);
    });
}

/// The entry may get a third name before the thread that gave it the second learns of its success.
#[test]
fn a_helped_thread_knows_that_its_entry_was_renamed() {
    model_bounded(2, || {
        let map = map_of_one();
        let (first, second) = beside(&map, |map| rename(map, 1, 2), |map| rename(map, 2, 3));
        assert_eq!(first, Ok(10));
        let key = if second.is_ok() { 3 } else { 2 };
        assert_eq!(contents(&map), [(key, 10)]);
    });
}

#[test]
fn a_value_outlives_the_names_it_was_found_by() {
    model_bounded(2, || {
        let map = map_of_one();
        let read = |map: &Map| {
            let map = map.pin();
            let value = map.get(&1).or_else(|| map.get(&2));
            value.is_none_or(|value| *value == 10)
        };
        let write = |map: &Map| {
            assert_eq!(rename(map, 1, 2), Ok(10));
            map.pin().remove(&2).copied()
        };
        let (was_alive, removed) = beside(&map, read, write);
        assert_eq!((was_alive, removed), (true, Some(10)));
        assert_eq!(contents(&map), []);
    });
}

/// As the header of `rename` says: 24 bytes in one allocation without names, 48 and 40 in two with
/// names.
#[test]
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
fn an_entry_takes_what_the_header_says() {
    let node = size_of::<super::Node<u64, super::Name<u64>>>();
    let counts_of_arc = 2 * size_of::<usize>();
    let object = counts_of_arc + size_of::<super::Object<u64>>();
    assert_eq!(node + object, size_of::<super::Node<u64, u64>>() + 64);
}
