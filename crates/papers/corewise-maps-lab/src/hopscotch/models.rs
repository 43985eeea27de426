//! Models of lookups and updates during displacements, and of homes that share cells and nodes. In
//! models a neighbourhood has two cells, a node has two slots, and a version wraps around with
//! every other change.

use corewise_atomic::sync::Arc;
use corewise_atomic::thread;
use corewise_maps::copy_map::numbers::{self, Number, beside, hash_of};

use super::HopscotchTable;

type NumberTable<V = u64> = numbers::NumberTable<HopscotchTable<u64, V>>;

/// Looks up a key by info instead of by tags.
fn by_info<V: Number>(numbers: &NumberTable<V>, key: u64) -> Option<u64> {
    let home = numbers.version.table().home(hash_of(&key));
    home.get(&key).unwrap().map(Number::number)
}

/// With four buckets, the home of 4 has no free cell unless 1 is displaced.
const FULL_HOMES: [u64; 2] = [0, 1];

/// A pair that lookups find by tags, updates find by the home's info, and the other way round.
#[test]
fn a_pair_that_was_seen_is_there_for_updates() {
    corewise_atomic::model_bounded(3, || {
        let numbers = Arc::new(NumberTable::<u64>::new(1, &[]));
        beside(
            &numbers,
            |numbers| assert!([Ok(()), Err(11)].contains(&numbers.try_insert(1, 10))),
            |numbers| {
                if numbers.get(1).is_some() {
                    assert_eq!(numbers.increment(1), Some(11));
                } else {
                    // The lock did not delay an insertion that found the key present.
                    let inserted = numbers.try_insert(1, 11);
                    let there = inserted.map_or_else(|there| there, |()| 11);
                    assert_eq!(numbers.get(1), Some(there));
                }
            },
        );
    });
}

/// A pair that is gone for lookups is gone for updates.
#[test]
fn a_pair_that_was_not_seen_is_gone_for_updates() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(NumberTable::<u64>::new(1, &[1]));
        beside(
            &numbers,
            |numbers| assert_eq!(numbers.remove(1), Some(10)),
            |numbers| {
                if numbers.get(1).is_none() {
                    assert_eq!(numbers.try_insert(1, 11), Ok(()));
                }
            },
        );
    });
}

/// And the other way round, also if the cell has another pair with the same tag.
#[test]
fn a_pair_that_was_gone_for_updates_is_not_seen() {
    corewise_atomic::model_bounded(1, || {
        let numbers = Arc::new(NumberTable::<u64>::new(1, &[1]));
        beside(
            &numbers,
            |numbers| {
                assert!([Some(10), Some(11)].contains(&numbers.remove(1)));
                assert_eq!(numbers.try_insert(2, 20), Ok(()));
            },
            |numbers| {
                if numbers.increment(1).is_none() {
                    assert_eq!(numbers.get(1), None);
                }
            },
        );
    });
}

/// One thread frees a cell, another takes it for a key of another home, and a third still has the
/// old info.
#[test]
fn a_reused_cell_is_not_mistaken_for_the_old_one() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(NumberTable::<u64>::new(2, &[0, 1]));
        let third = numbers.clone();
        let third = thread::spawn(move || {
            assert!([None, Some(0)].contains(&third.get(0)));
        });
        beside(
            &numbers,
            |numbers| assert_eq!(numbers.remove(0), Some(0)),
            |numbers| assert_eq!(numbers.try_insert(3, 30), Ok(())),
        );
        third.join().unwrap();
        assert!(numbers.are(&[1, 3]));
    });
}

/// A key is removed and another put in its cell, twice: the info is as it was. (Lookups by tag do
/// not use infos.)
#[test]
fn a_version_that_wrapped_around_differs() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(NumberTable::<u64>::new(1, &[1]));
        beside(
            &numbers,
            |numbers| {
                for (gone, new) in [(1, 2), (2, 3)] {
                    assert_eq!(numbers.remove(gone), Some(gone * 10));
                    assert_eq!(numbers.try_insert(new, new * 10), Ok(()));
                }
            },
            |numbers| assert!([None, Some(30)].contains(&by_info(numbers, 3))),
        );
        assert!(numbers.are(&[3]));
    });
}

#[test]
fn a_displaced_key_is_never_missing() {
    corewise_atomic::model_bounded(1, || {
        let numbers = Arc::new(NumberTable::<u64>::new(4, &FULL_HOMES));
        beside(
            &numbers,
            |numbers| assert_eq!(numbers.try_insert(4, 40), Ok(())),
            |numbers| {
                assert_eq!(numbers.get(1), Some(10));
                assert!([None, Some(40)].contains(&numbers.get(4)));
            },
        );
        assert!(numbers.are(&[0, 1, 4]));
    });
}

#[test]
fn updates_beside_a_displacement() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(NumberTable::<u64>::new(4, &FULL_HOMES));
        let (_, one) = beside(
            &numbers,
            |numbers| assert_eq!(numbers.try_insert(4, 40), Ok(())),
            |numbers| {
                assert_eq!(numbers.increment(1), Some(11));
                numbers.remove(1)
            },
        );
        assert_eq!(one, Some(11));
        assert!(numbers.are(&[0, 4]));
    });
}

/// Each insertion wants the cell that the other displaces from, or to.
#[test]
fn two_threads_displace() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(NumberTable::<u64>::new(4, &FULL_HOMES));
        beside(
            &numbers,
            |numbers| assert_eq!(numbers.try_insert(4, 40), Ok(())),
            |numbers| assert_eq!(numbers.try_insert(5, 50), Ok(())),
        );
        assert!(numbers.are(&[0, 1, 4, 5]));
    });
}

#[test]
fn two_threads_claim_a_cell() {
    corewise_atomic::model_bounded(3, || {
        let numbers = Arc::new(NumberTable::<u64>::new(2, &[0]));
        beside(
            &numbers,
            |numbers| assert_eq!(numbers.try_insert(2, 20), Ok(())),
            |numbers| assert_eq!(numbers.try_insert(1, 10), Ok(())),
        );
        assert!(numbers.are(&[0, 1, 2]));
    });
}

/// 2 and 5 are of different homes, and use the same slot in turn.
#[test]
fn a_pair_in_a_node_is_never_mixed() {
    corewise_atomic::model_bounded(1, || {
        let numbers = Arc::new(NumberTable::<u64>::new(2, &[0, 1, 2, 3]));
        beside(
            &numbers,
            |numbers| {
                assert_eq!(numbers.remove(2), Some(20));
                assert_eq!(numbers.try_insert(5, 50), Ok(()));
            },
            |numbers| assert!([None, Some(50)].contains(&by_info(numbers, 5))),
        );
        assert!(numbers.are(&[0, 1, 3, 5]));
    });
}

#[test]
fn two_homes_overflow() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(NumberTable::<u64>::new(2, &[0, 1]));
        beside(
            &numbers,
            |numbers| assert_eq!(numbers.try_insert(2, 20), Ok(())),
            |numbers| assert_eq!(numbers.try_insert(3, 30), Ok(())),
        );
        assert!(numbers.are(&[0, 1, 2, 3]));
    });
}

/// Both replacements use the scratch, and a lookup directed there by the first must not take the
/// second pair.
#[test]
fn two_values_are_replaced_beside_a_lookup() {
    corewise_atomic::model_bounded(1, || {
        let numbers = Arc::new(NumberTable::<[u64; 2]>::new(2, &[0, 1]));
        beside(
            &numbers,
            |numbers| {
                assert_eq!(numbers.replace(0, 1), 0);
                assert_eq!(numbers.replace(1, 11), 10);
            },
            |numbers| assert!([Some(0), Some(1)].contains(&by_info(numbers, 0))),
        );
        assert_eq!(numbers.pairs(), [(0, 1), (1, 11)]);
    });
}
