//! Models of moves, for the checkers, with two preemptions. As ordinary tests, each model runs
//! once.

use corewise_atomic::model_bounded;
use corewise_atomic::sync::Arc;
use corewise_maps::copy_map::numbers::{KeysAsHashes, beside};
use corewise_rcu::Domain;

use super::{Acquire, CrossLinkMap, MoveError, follow};

/// Keys are their hashes, and there are two buckets: even keys and odd ones.
type Map = CrossLinkMap<u64, KeysAsHashes>;

/// Creates a map. Of two keys with the same bucket, the later one is the first of the chain.
fn map_of(keys: &[u64]) -> Arc<Map> {
    let map = Map::in_domain(2, KeysAsHashes::default(), Domain::new());
    for key in keys {
        assert!(map.insert(*key, 10 * key).is_ok());
    }
    Arc::new(map)
}

fn get(map: &Map, key: u64) -> Option<u64> {
    map.get(&map.domain.pin(), key).copied()
}

/// The keys that a lookup of an absent key passes.
fn keys_passed(map: &Map, absent: u64) -> Vec<u64> {
    let _section = map.domain.pin();
    let mut link = &map.buckets[map.bucket_of(absent)];
    let mut keys = Vec::new();
    // SAFETY: `_section` is one of the map's domain, and keeps the node (1).
    while let Some(node) = unsafe { follow(link) } {
        // Acquire: as in `get`.
        keys.push(node.key.load(Acquire));
        link = &node.next;
    }
    keys
}

/// The entries at the end, each of which is found under its key.
fn contents(map: Arc<Map>) -> Vec<(u64, u64)> {
    let mut map = Arc::try_unwrap(map).ok().expect("the threads have ended");
    let mut entries = Vec::new();
    map.for_each(|key, value| entries.push((key, *value)));
    entries.sort_unstable();
    assert_eq!(map.len(), entries.len());
    let is_found = |(key, value): &(u64, u64)| get(&map, *key) == Some(*value);
    assert!(entries.iter().all(is_found), "{entries:?}");
    entries
}

#[test]
fn a_moved_entry_is_never_missed() {
    model_bounded(2, || {
        let map = map_of(&[4, 1]);
        let read = |map: &Map| get(map, 1).or_else(|| get(map, 2));
        let (seen, moved) = beside(&map, read, |map| map.move_entry(1, 2));
        assert_eq!((seen, moved), (Some(10), Ok(())));
        assert_eq!(contents(map), [(2, 10), (4, 40)]);
    });
}

#[test]
fn a_moved_entry_is_never_seen_twice() {
    model_bounded(2, || {
        let map = map_of(&[1]);
        let read = |map: &Map| get(map, 2).is_some() && get(map, 1).is_some();
        let (seen_twice, moved) = beside(&map, read, |map| map.move_entry(1, 2));
        assert_eq!((seen_twice, moved), (false, Ok(())));
    });
}

/// 1 is behind 3 in their chain, so that a lookup may stand on 3 while that is moved.
#[test]
fn the_entries_behind_a_moved_one_are_found() {
    model_bounded(2, || {
        let map = map_of(&[1, 3]);
        let read = |map: &Map| get(map, 1);
        let (seen, moved) = beside(&map, read, |map| map.move_entry(3, 2));
        assert_eq!((seen, moved), (Some(10), Ok(())));
        assert_eq!(contents(map), [(1, 10), (2, 30)]);
    });
}

/// A lookup in the new chain may stray to the rest of the old one.
#[test]
fn a_lookup_beside_a_move_misses_an_absent_key() {
    model_bounded(2, || {
        let map = map_of(&[4, 1, 3]);
        let read = |map: &Map| get(map, 6);
        let (seen, moved) = beside(&map, read, |map| map.move_entry(3, 2));
        assert_eq!((seen, moved), (None, Ok(())));
    });
}

/// The move waits for the first section and not for the second.
#[test]
fn a_section_that_begins_while_a_move_waits_finds_all_entries() {
    model_bounded(2, || {
        let map = map_of(&[1, 3]);
        let read = |map: &Map| {
            let first = map.domain.pin_owned();
            if map.get(&first, 2).is_none() {
                return true;
            }
            let second = map.domain.pin();
            drop(first);
            let found = [1, 2, 3, 4].map(|key| map.get(&second, key).copied());
            found == [Some(10), Some(30), None, None]
        };
        let (is_right, moved) = beside(&map, read, |map| map.move_entry(3, 2));
        assert_eq!((is_right, moved), (true, Ok(())));
        assert_eq!(contents(map), [(1, 10), (2, 30)]);
    });
}

/// A lookup of an even key may stray into the odd chain by the first move, and back by the second:
/// the longest way is that over 4, 2, 1, and then 4 and 2 again.
#[test]
fn entries_are_found_beside_two_moves() {
    model_bounded(2, || {
        let map = map_of(&[4, 1, 3]);
        let read = |map: &Map| (get(map, 3).or_else(|| get(map, 2)), keys_passed(map, 6));
        let write = |map: &Map| (map.move_entry(3, 2), map.move_entry(4, 5));
        let ((seen, passed), moved) = beside(&map, read, write);
        assert_eq!((seen, moved), (Some(30), (Ok(()), Ok(()))));
        assert!(passed.len() <= 5, "{passed:?}");
        assert_eq!(contents(map), [(1, 10), (2, 30), (5, 40)]);
    });
}

/// The second move appends the entry to which the first entry leads until the cut.
#[test]
fn a_move_right_after_the_cut_of_another_move_loses_no_entry() {
    model_bounded(2, || {
        let map = map_of(&[1, 3]);
        let (first, second) = beside(&map, |map| map.move_entry(3, 2), |map| map.move_entry(1, 4));
        assert_eq!((first, second), (Ok(()), Ok(())));
        assert_eq!(contents(map), [(2, 30), (4, 10)]);
    });
}

/// Otherwise, a lookup of an even key would use the removed entry after a grace period.
#[test]
fn an_entry_behind_the_cut_is_removed_from_both_chains() {
    model_bounded(2, || {
        let map = map_of(&[1, 3]);
        let remove = |map: &Map| (map.remove(1), keys_passed(map, 4));
        let ((removed, passed), moved) = beside(&map, remove, |map| map.move_entry(3, 2));
        assert_eq!((removed, moved), (true, Ok(())));
        assert!(!passed.contains(&1), "{passed:?}");
        assert_eq!(contents(map), [(2, 30)]);
    });
}

#[test]
fn a_move_within_a_bucket_is_never_missed() {
    model_bounded(2, || {
        let map = map_of(&[5, 1]);
        let read = |map: &Map| get(map, 1).or_else(|| get(map, 3));
        let (seen, moved) = beside(&map, read, |map| map.move_entry(1, 3));
        assert_eq!((seen, moved), (Some(10), Ok(())));
        assert_eq!(contents(map), [(3, 10), (5, 50)]);
    });
}

#[test]
fn one_of_two_moves_wins() {
    model_bounded(2, || {
        let map = map_of(&[1]);
        let (second, third) = beside(&map, |map| map.move_entry(1, 2), |map| map.move_entry(1, 4));
        assert_ne!(second.is_ok(), third.is_ok());
        let key = if second.is_ok() { 2 } else { 4 };
        assert_eq!(contents(map), [(key, 10)]);
    });
}

#[test]
fn two_moves_across_each_other_both_succeed() {
    model_bounded(2, || {
        let map = map_of(&[1, 2]);
        let (first, second) = beside(&map, |map| map.move_entry(1, 4), |map| map.move_entry(2, 3));
        assert_eq!((first, second), (Ok(()), Ok(())));
        assert_eq!(contents(map), [(3, 20), (4, 10)]);
    });
}

#[test]
fn a_move_or_a_removal_wins() {
    model_bounded(2, || {
        let map = map_of(&[1]);
        let (removed, moved) = beside(&map, |map| map.remove(1), |map| map.move_entry(1, 2));
        let expected = match removed {
            true => (Err(MoveError::NotFound), vec![]),
            false => (Ok(()), vec![(2, 10)]),
        };
        assert_eq!((moved, contents(map)), expected);
    });
}

#[test]
fn a_move_or_an_insertion_of_the_new_key_wins() {
    model_bounded(2, || {
        let map = map_of(&[1]);
        let insert = |map: &Map| map.insert(2, 77).is_ok();
        let (inserted, moved) = beside(&map, insert, |map| map.move_entry(1, 2));
        let expected = match inserted {
            true => (Err(MoveError::Occupied), vec![(1, 10), (2, 77)]),
            false => (Ok(()), vec![(2, 10)]),
        };
        assert_eq!((moved, contents(map)), expected);
    });
}

/// A lookup may stand on the entry while it is moved and removed.
#[test]
fn a_removed_entry_outlives_its_readers() {
    model_bounded(2, || {
        let map = map_of(&[1]);
        let read = |map: &Map| {
            let section = map.domain.pin();
            let found = map.get(&section, 1).or_else(|| map.get(&section, 2));
            found.is_none_or(|value| *value == 10)
        };
        let write = |map: &Map| (map.move_entry(1, 2), map.remove(2));
        let (was_alive, done) = beside(&map, read, write);
        assert_eq!((was_alive, done), (true, (Ok(()), true)));
        assert_eq!(contents(map), []);
    });
}
