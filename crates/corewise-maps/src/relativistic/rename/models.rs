//! Models of renaming, for the checkers. As ordinary tests each runs once.

use std::hash::{BuildHasher, Hasher};

use corewise_atomic::sync::Arc;
use corewise_atomic::thread;
use corewise_rcu::Domain;

use super::{RenameError, RenameMap};

/// Keys are their hashes.
#[derive(Clone, Copy, Default)]
struct Plain;

struct Plainly(u64);

impl BuildHasher for Plain {
    type Hasher = Plainly;

    fn build_hasher(&self) -> Plainly {
        Plainly(0)
    }
}

impl Hasher for Plainly {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are words");
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

type Map = RenameMap<u64, u64, Plain>;

fn map_of(keys: &[u64]) -> Arc<Map> {
    let map = Map::in_domain(Plain, Domain::new());
    for key in keys {
        assert!(map.pin().insert(*key, 10 * key).is_ok());
    }
    Arc::new(map)
}

fn get(map: &Map, key: u64) -> Option<u64> {
    map.pin().get(&key).copied()
}

fn rename(map: &Map, old: u64, new: u64) -> Result<u64, RenameError> {
    map.pin().rename(&old, new).copied()
}

/// What the keys have at the end.
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
    corewise_atomic::model_bounded(2, || {
        let map = map_of(&[1]);
        let reader = {
            let map = Arc::clone(&map);
            thread::spawn(move || {
                let guard = map.pin();
                let old = guard.get(&1).copied();
                assert!(old.or_else(|| guard.get(&2).copied()) == Some(10), "missed");
            })
        };
        let writer = {
            let map = Arc::clone(&map);
            thread::spawn(move || assert_eq!(rename(&map, 1, 2), Ok(10)))
        };
        reader.join().unwrap();
        writer.join().unwrap();
        assert_eq!(contents(&map), [(2, 10)]);
    });
}

#[test]
fn a_renamed_entry_is_never_seen_twice() {
    corewise_atomic::model_bounded(2, || {
        let map = map_of(&[1]);
        let reader = {
            let map = Arc::clone(&map);
            thread::spawn(move || {
                if get(&map, 2).is_some() {
                    assert_eq!(get(&map, 1), None, "seen again");
                }
            })
        };
        let writer = {
            let map = Arc::clone(&map);
            thread::spawn(move || assert_eq!(rename(&map, 1, 2), Ok(10)))
        };
        reader.join().unwrap();
        writer.join().unwrap();
    });
}

#[test]
fn one_of_two_renames_wins() {
    corewise_atomic::model_bounded(2, || {
        let map = map_of(&[1]);
        let threads = [2, 3].map(|new| {
            let map = Arc::clone(&map);
            thread::spawn(move || rename(&map, 1, new))
        });
        let [second, third] = threads.map(|thread| thread.join().unwrap());
        assert_ne!(second.is_ok(), third.is_ok());
        let key = if second.is_ok() { 2 } else { 3 };
        assert_eq!(contents(&map), [(key, 10)]);
    });
}

/// What has the new key is the entry itself.
#[test]
fn a_rename_to_where_the_entry_is_already_finds_nothing() {
    corewise_atomic::model_bounded(2, || {
        let map = map_of(&[1]);
        let threads = [0, 1].map(|_| {
            let map = Arc::clone(&map);
            thread::spawn(move || rename(&map, 1, 2))
        });
        let mut outcomes = threads.map(|thread| thread.join().unwrap());
        outcomes.sort_unstable_by_key(Result::is_err);
        assert_eq!(outcomes, [Ok(10), Err(RenameError::NotFound)]);
        assert_eq!(contents(&map), [(2, 10)]);
    });
}

#[test]
fn a_rename_or_a_removal_wins() {
    corewise_atomic::model_bounded(2, || {
        let map = map_of(&[1]);
        let remover = {
            let map = Arc::clone(&map);
            thread::spawn(move || map.pin().remove(&1).copied())
        };
        let renamer = {
            let map = Arc::clone(&map);
            thread::spawn(move || rename(&map, 1, 2))
        };
        let (removed, renamed) = (remover.join().unwrap(), renamer.join().unwrap());
        match removed {
            Some(_) => assert_eq!(
                (renamed, contents(&map)),
                (Err(RenameError::NotFound), vec![])
            ),
            None => assert_eq!((renamed, contents(&map)), (Ok(10), vec![(2, 10)])),
        }
    });
}

#[test]
fn a_rename_or_an_insertion_of_the_new_key_wins() {
    corewise_atomic::model_bounded(2, || {
        let map = map_of(&[1]);
        let inserter = {
            let map = Arc::clone(&map);
            thread::spawn(move || map.pin().insert(2, 77).is_ok())
        };
        let renamer = {
            let map = Arc::clone(&map);
            thread::spawn(move || rename(&map, 1, 2))
        };
        let (inserted, renamed) = (inserter.join().unwrap(), renamer.join().unwrap());
        match inserted {
            true => {
                assert_eq!(renamed, Err(RenameError::Occupied));
                assert_eq!(contents(&map), [(1, 10), (2, 77)]);
            }
            false => assert_eq!((renamed, contents(&map)), (Ok(10), vec![(2, 10)])),
        }
    });
}

/// The entry may go on under a third name before who gave it the second knows that it has it.
#[test]
fn who_is_helped_knows_that_the_entry_was_renamed() {
    corewise_atomic::model_bounded(2, || {
        let map = map_of(&[1]);
        let first = {
            let map = Arc::clone(&map);
            thread::spawn(move || rename(&map, 1, 2))
        };
        let second = {
            let map = Arc::clone(&map);
            thread::spawn(move || rename(&map, 2, 3))
        };
        let (first, second) = (first.join().unwrap(), second.join().unwrap());
        assert_eq!(first, Ok(10));
        let key = if second.is_ok() { 3 } else { 2 };
        assert_eq!(contents(&map), [(key, 10)]);
    });
}

#[test]
fn a_value_outlives_the_names_it_was_found_by() {
    corewise_atomic::model_bounded(2, || {
        let map = map_of(&[1]);
        let reader = {
            let map = Arc::clone(&map);
            thread::spawn(move || {
                let guard = map.pin();
                let value = guard.get(&1).or_else(|| guard.get(&2));
                assert!(value.is_none_or(|value| *value == 10));
            })
        };
        let writer = {
            let map = Arc::clone(&map);
            thread::spawn(move || {
                assert_eq!(rename(&map, 1, 2), Ok(10));
                assert_eq!(map.pin().remove(&2).copied(), Some(10));
            })
        };
        reader.join().unwrap();
        writer.join().unwrap();
        assert_eq!(contents(&map), []);
    });
}

/// As the header says: 24 bytes in one allocation without names, 48 and 40 in two with them.
#[test]
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
fn an_entry_takes_what_the_header_says() {
    let node = size_of::<super::Node<u64, super::Name<u64>>>();
    let counts_of_arc = 2 * size_of::<usize>();
    let object = counts_of_arc + size_of::<super::Object<u64>>();
    assert_eq!(node + object, size_of::<super::Node<u64, u64>>() + 64);
}
