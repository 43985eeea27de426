//! Small cases under the model checkers; see `tests/models.table`.
//!
//! loom looks for other schedules where two threads access an atomic one after the other. It keeps
//! only the last access, so a thread's load before its exchange hides another thread's load before
//! it. Therefore the thread that changes less is the spawned one, which loom runs last at first.

use super::*;
use corewise_atomic::sync::Arc;
use corewise_atomic::{model_bounded, thread};

fn list_of(keys: &[u32]) -> Arc<LockFreeSkipList<u32, u32>> {
    let list = LockFreeSkipList::with_limit(8);
    for &key in keys {
        assert_eq!(list.insert(key, 10 * key), Ok(true));
    }
    Arc::new(list)
}

/// A thread that finds a key sees its value.
#[test]
fn an_inserted_entry_is_complete() {
    model_bounded(5, || {
        let list = list_of(&[]);
        let other = list.clone();
        let reader = thread::spawn(move || {
            let found = other.get(&1).copied();
            assert!([None, Some(10)].contains(&found));
            assert!(found.is_none() || other.get(&1).is_some());
        });
        list.insert(1, 10).unwrap();
        reader.join().unwrap();
        assert_eq!(list.get(&1), Some(&10));
    });
}

#[test]
fn one_of_two_insertions_adds_the_key() {
    model_bounded(5, || {
        let list = list_of(&[]);
        let other = list.clone();
        let inserter = thread::spawn(move || other.insert(1, 10).unwrap());
        let added = list.insert(1, 11).unwrap();
        assert_eq!(added, !inserter.join().unwrap());
        assert_eq!(list.get(&1), Some(if added { &11 } else { &10 }));
        assert_eq!(list.iter().count(), 1);
    });
}

#[test]
fn insertions_at_one_place_are_both_kept() {
    model_bounded(5, || {
        let list = list_of(&[]);
        let other = list.clone();
        let inserter = thread::spawn(move || other.insert(1, 10).unwrap());
        assert_eq!(list.insert(2, 20), Ok(true));
        assert!(inserter.join().unwrap());
        let entries: Vec<_> = list.iter().map(|(key, value)| (*key, *value)).collect();
        assert_eq!(entries, [(1, 10), (2, 20)]);
    });
}

#[test]
fn one_of_two_removals_gets_the_value() {
    model_bounded(5, || {
        let list = list_of(&[1]);
        let other = list.clone();
        let remover = thread::spawn(move || other.remove(&1).copied());
        let removed = list.remove(&1).copied();
        let others = remover.join().unwrap();
        assert_eq!(removed.or(others), Some(10));
        assert!(removed.is_none() || others.is_none());
        assert_eq!(list.get(&1), None);
    });
}

/// The inserter links its node to the one that is removed.
#[test]
fn an_insertion_behind_a_removed_key_is_kept() {
    model_bounded(5, || {
        let list = list_of(&[1]);
        let other = list.clone();
        let remover = thread::spawn(move || other.remove(&1).copied());
        assert_eq!(list.insert(2, 20), Ok(true));
        assert_eq!(remover.join().unwrap(), Some(10));
        assert_eq!((list.get(&1), list.get(&2)), (None, Some(&20)));
    });
}

/// The remover marks levels on which the inserter has not linked the node yet.
#[test]
fn a_key_is_removed_while_it_is_inserted() {
    model_bounded(5, || {
        // The second node is one of two levels.
        let list = list_of(&[5]);
        let other = list.clone();
        let remover = thread::spawn(move || other.remove(&1).copied());
        assert_eq!(list.insert(1, 10), Ok(true));
        let removed = remover.join().unwrap();
        assert_eq!(list.get(&1).copied().xor(removed), Some(10));
        assert_eq!(list.insert(1, 11).unwrap(), removed.is_some());
        // Its place is behind the removed node, if that was left on a level.
        assert_eq!(list.insert(2, 20), Ok(true));
        assert!(list.contains(&1) && list.contains(&5));
    });
}

#[test]
fn removals_of_the_minimum_take_different_keys() {
    model_bounded(4, || {
        let queue = Arc::new(LockFreePriorityQueue::with_limit(4));
        queue.insert(1).unwrap();
        queue.insert(2).unwrap();
        let other = queue.clone();
        let remover = thread::spawn(move || other.remove_min().copied());
        let mut removed = [queue.remove_min().copied(), remover.join().unwrap()];
        removed.sort();
        assert_eq!(removed, [Some(1), Some(2)]);
        assert_eq!(queue.remove_min(), None);
    });
}
