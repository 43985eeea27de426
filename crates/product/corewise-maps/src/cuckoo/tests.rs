//! Tests of what is written and what waits: guarantees 1 to 4 of the module.

use std::hash::BuildHasher;

use corewise_rcu::Domain;

use super::CuckooMap;
use super::state::{Homes, Side};
use crate::copy_map::TryInsertError;
use corewise_testkit::hashing::Hashing;

type Map = CuckooMap<u64, u64, Hashing>;

fn map(buckets: usize, keys: impl Iterator<Item = u64>) -> Map {
    let builder = CuckooMap::<u64, u64>::builder().buckets(buckets);
    let builder = builder.automatic_resize(false).domain(Domain::new());
    let map = builder.hasher(Hashing::Mixed).build();
    keys.for_each(|key| assert_eq!(map.pin().insert(key, !key), None));
    map
}

fn words(map: &Map) -> Vec<u64> {
    let handle = map.pin();
    handle.version().table().words()
}

/// All operations without effect; `keys` are present and `absent` are not.
fn look_and_fail(map: &Map, keys: impl Iterator<Item = u64>, absent: impl Iterator<Item = u64>) {
    let map = map.pin();
    for key in keys {
        assert_eq!(map.get(&key), Some(!key));
        assert!(map.contains_key(&key));
        assert_eq!(map.try_insert(key, 0), Err(TryInsertError::Occupied(!key)));
    }
    for key in absent {
        assert_eq!(map.get(&key), None);
        assert_eq!(map.remove(&key), None);
        assert_eq!(map.update(&key, |_| unreachable!("there is none")), None);
    }
}

#[test]
fn lookups_and_failed_updates_leave_every_word() {
    // With room, dense, and overflowing.
    for (buckets, keys) in [(16, 20), (16, 62), (4, 40)] {
        let map = map(buckets, 0..keys);
        let before = words(&map);
        look_and_fail(&map, 0..keys, keys..keys * 2);
        assert_eq!(words(&map), before);
    }
}

/// A held lock delays no operation without effect. (If one waited, this test would not end.)
#[test]
fn lookups_and_failed_updates_do_not_wait_for_a_lock() {
    let map = map(4, 0..40);
    let handle = map.pin();
    let table = handle.version().table();
    let locked: Vec<_> = (0..4).map(|bucket| table.lock(bucket).unwrap()).collect();
    look_and_fail(&map, 0..40, 40..80);
    drop(locked);
    assert_eq!(map.pin().remove(&1), Some(!1));
}

/// An insertion where there is room changes one bucket word and counts nothing, so it disturbs no
/// lookup; nor does the replacement of a value of one word. A removal counts once.
#[test]
fn insertions_and_replacements_are_not_counted() {
    let map = map(8, 0..4);
    let mut before = words(&map);
    let mut changed = |act: &dyn Fn()| {
        act();
        let after = words(&map);
        let differs = |words: &(u64, u64)| words.0 != words.1;
        let zip = |range: std::ops::Range<usize>| {
            let pairs = before[range.clone()].iter().copied();
            pairs.zip(after[range].iter().copied())
        };
        let states = zip(0..8).filter(differs).count();
        let counts: u64 = zip(8..before.len()).map(|(old, new)| new - old).sum();
        before = after;
        (states, counts)
    };
    let map = map.pin();
    assert_eq!(changed(&|| assert!(map.insert(4, 7).is_none())), (1, 0));
    assert_eq!(changed(&|| assert!(map.insert(4, 8).is_some())), (0, 0));
    assert_eq!(
        changed(&|| assert!(map.update(&4, |v| v + 1).is_some())),
        (0, 0)
    );
    assert_eq!(changed(&|| assert!(map.remove(&4).is_some())), (1, 1));
}

/// An insertion that finds no room counts each entry that it displaces twice, and nothing else.
#[test]
fn moves_are_counted_twice() {
    let map = map(16, 0..60);
    let moves: u64 = words(&map)[16..].iter().sum();
    // Under `corewise_stress` the table grows before it is dense.
    assert!(moves > 0 || cfg!(corewise_stress));
    assert!(moves.is_multiple_of(2), "{moves}");
}

/// Without memory for another overflow bucket, those that the buckets of a key have are filled; a
/// map that was cleared has all of them, and they are empty.
#[test]
fn a_full_map_has_no_room_in_any_bucket_of_the_key() {
    let array = map(16, 0..0).bytes();
    for more in (0..2_000).step_by(400) {
        let builder = CuckooMap::<u64, u64>::builder().buckets(16);
        let builder = builder.automatic_resize(false).domain(Domain::new());
        let builder = builder.hasher(Hashing::Mixed).max_bytes(array + more);
        let map = builder.build();
        let handle = map.pin();
        let table = handle.version().table();
        let has_room = |bucket| {
            let bucket = table.lock(bucket).unwrap();
            bucket.free().or(bucket.free_overflow()).is_some()
        };
        for round in 0..2 {
            for key in 0..200u64 {
                if handle.insert(key, !key).is_err() {
                    let homes = Homes::new(Hashing::Mixed.hash_one(key));
                    for side in [Side::First, Side::Second] {
                        let bucket = homes.bucket(side, table.mask());
                        assert!(!has_room(bucket), "{more} bytes, round {round}, {key}");
                    }
                }
            }
            assert!(map.len() < 200, "the map was never full");
            handle.clear();
        }
    }
}

/// A moved bucket stays unchanged, for readers that have seen it before.
#[test]
fn a_bucket_that_was_moved_stays_as_it_was() {
    let map = map(4, 0..20);
    let handle = map.pin();
    let old = handle.version().table();
    let before = old.words();
    map.resize_to(16).unwrap();
    assert!((0..20).all(|key| map.pin().remove(&key) == Some(!key)));
    let after = old.words();
    // Only the mark changed, bit 37 of each bucket.
    for (bucket, (before, after)) in before.into_iter().zip(after).enumerate() {
        assert_eq!(before | u64::from(bucket < 4) << 37, after);
    }
    assert!((0..4).all(|bucket| old.lock(bucket).is_err()));
}
