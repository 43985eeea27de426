//! Models of moves, for the checkers. As ordinary tests, each model runs once.

use corewise_atomic::sync::Arc;
use corewise_atomic::thread;
use corewise_maps::copy_map::numbers::KeysAsHashes;
use corewise_rcu::Domain;

use super::CrossLinkMap;
use crate::rename::RenameError;

/// Keys are their hashes, and there are two buckets: even keys and odd ones.
type Map = CrossLinkMap<u64, KeysAsHashes>;

/// A map in whose chains the first of the keys stand at the end.
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

/// The entries at the end.
fn contents(map: Arc<Map>) -> Vec<(u64, u64)> {
    let mut map = Arc::try_unwrap(map).ok().expect("the threads have ended");
    let mut entries = Vec::new();
    map.for_each(|key, value| entries.push((key, *value)));
    entries.sort_unstable();
    assert_eq!(map.len(), entries.len());
    entries
}

/// Runs two threads concurrently on a map; returns their results.
fn beside<A: Send + 'static, B: Send + 'static>(
    keys: &[u64],
    first: impl FnOnce(&Map) -> A + Send + 'static,
    second: impl FnOnce(&Map) -> B + Send + 'static,
) -> (Arc<Map>, A, B) {
    let map = map_of(keys);
    let (ours, theirs) = (Arc::clone(&map), Arc::clone(&map));
    let first = thread::spawn(move || first(&ours));
    let second = thread::spawn(move || second(&theirs));
    let (first, second) = (first.join().unwrap(), second.join().unwrap());
    (map, first, second)
}

/// Tries all schedules with two preemptions.
fn model(body: impl Fn() + Send + Sync + 'static) {
    corewise_atomic::model_bounded(2, body);
}

#[test]
fn a_moved_entry_is_never_missed() {
    model(|| {
        let read = |map: &Map| get(map, 1).or_else(|| get(map, 2));
        let (map, seen, moved) = beside(&[4, 1], read, |map| map.move_entry(1, 2));
        assert_eq!((seen, moved), (Some(10), Ok(())));
        assert_eq!(contents(map), [(2, 10), (4, 40)]);
    });
}

#[test]
fn a_moved_entry_is_never_seen_twice() {
    model(|| {
        let read = |map: &Map| get(map, 2).is_some() && get(map, 1).is_some();
        let (_, seen_twice, moved) = beside(&[1], read, |map| map.move_entry(1, 2));
        assert_eq!((seen_twice, moved), (false, Ok(())));
    });
}

/// 1 is behind 3 in their chain, so that a lookup may stand on 3 while that is moved.
#[test]
fn the_entries_behind_a_moved_one_are_found() {
    model(|| {
        let read = |map: &Map| get(map, 1);
        let (map, seen, moved) = beside(&[1, 3], read, |map| map.move_entry(3, 2));
        assert_eq!((seen, moved), (Some(10), Ok(())));
        assert_eq!(contents(map), [(1, 10), (2, 30)]);
    });
}

/// A lookup in the new chain may stray to the rest of the old one.
#[test]
fn a_lookup_beside_a_move_misses_an_absent_key() {
    model(|| {
        let read = |map: &Map| get(map, 6);
        let (_, seen, moved) = beside(&[4, 1, 3], read, |map| map.move_entry(3, 2));
        assert_eq!((seen, moved), (None, Ok(())));
    });
}

#[test]
fn a_move_within_a_bucket_is_never_missed() {
    model(|| {
        let read = |map: &Map| get(map, 1).or_else(|| get(map, 3));
        let (map, seen, moved) = beside(&[5, 1], read, |map| map.move_entry(1, 3));
        assert_eq!((seen, moved), (Some(10), Ok(())));
        assert_eq!(contents(map), [(3, 10), (5, 50)]);
    });
}

#[test]
fn one_of_two_moves_wins() {
    model(|| {
        let (map, second, third) =
            beside(&[1], |map| map.move_entry(1, 2), |map| map.move_entry(1, 4));
        assert_ne!(second.is_ok(), third.is_ok());
        let key = if second.is_ok() { 2 } else { 4 };
        assert_eq!(contents(map), [(key, 10)]);
    });
}

#[test]
fn two_moves_across_each_other_both_succeed() {
    model(|| {
        let (map, first, second) = beside(
            &[1, 2],
            |map| map.move_entry(1, 4),
            |map| map.move_entry(2, 3),
        );
        assert_eq!((first, second), (Ok(()), Ok(())));
        assert_eq!(contents(map), [(3, 20), (4, 10)]);
    });
}

#[test]
fn a_move_or_a_removal_wins() {
    model(|| {
        let (map, removed, moved) = beside(&[1], |map| map.remove(1), |map| map.move_entry(1, 2));
        let expected = match removed {
            true => (Err(RenameError::NotFound), vec![]),
            false => (Ok(()), vec![(2, 10)]),
        };
        assert_eq!((moved, contents(map)), expected);
    });
}

#[test]
fn a_move_or_an_insertion_of_the_new_key_wins() {
    model(|| {
        let insert = |map: &Map| map.insert(2, 77).is_ok();
        let (map, inserted, moved) = beside(&[1], insert, |map| map.move_entry(1, 2));
        let expected = match inserted {
            true => (Err(RenameError::Occupied), vec![(1, 10), (2, 77)]),
            false => (Ok(()), vec![(2, 10)]),
        };
        assert_eq!((moved, contents(map)), expected);
    });
}

/// A lookup may stand on the entry while it is moved and removed.
#[test]
fn a_removed_entry_outlives_its_readers() {
    model(|| {
        let read = |map: &Map| {
            let section = map.domain.pin();
            let found = map.get(&section, 1).or_else(|| map.get(&section, 2));
            found.is_none_or(|value| *value == 10)
        };
        let write = |map: &Map| (map.move_entry(1, 2), map.remove(2));
        let (map, was_alive, done) = beside(&[1], read, write);
        assert_eq!((was_alive, done), (true, (Ok(()), true)));
        assert_eq!(contents(map), []);
    });
}
