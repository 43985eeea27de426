//! Models: lookups and updates of homes beside each other, beside displacements, and beside their way to another
//! table. A neighbourhood has two cells here, a node two slots, and a version comes round with every other change.

use corewise_atomic::sync::Arc;
use corewise_atomic::thread;
use corewise_rcu::Domain;

use super::{HopscotchMap, HopscotchTable};
use crate::copy_map::Step;
use crate::copy_map::numbers::{self, Number, RESIZES, beside, hash_of};
use crate::hashing::Hashing;

type Numbers<V = u64> = numbers::Numbers<HopscotchTable<u64, V>>;

/// In four buckets: 4 has its home where 0 lies, and there is no room but where 1 goes on from.
const FULL_HOMES: [u64; 2] = [0, 1];

#[test]
fn a_pair_is_never_mixed() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(Numbers::<u64>::new(1, &[1]));
        beside(
            &numbers,
            |numbers| {
                assert_eq!(numbers.remove(1), Some(10));
                assert_eq!(numbers.try_insert(2, 20), Ok(()));
            },
            |numbers| {
                assert!([None, Some(20)].contains(&numbers.get(2)));
                assert!([None, Some(10)].contains(&numbers.get(1)));
            },
        );
        assert!(numbers.are(&[2]));
    });
}

/// What a lookup is led to by a tag, the home's info leads to as well.
#[test]
fn a_pair_that_was_seen_is_there_for_updates() {
    corewise_atomic::model_bounded(3, || {
        let numbers = Arc::new(Numbers::<u64>::new(1, &[]));
        beside(
            &numbers,
            |numbers| assert_eq!(numbers.try_insert(1, 10), Ok(())),
            |numbers| {
                if numbers.get(1).is_some() {
                    assert_eq!(numbers.increment(1), Some(11));
                }
            },
        );
    });
}

/// And what is gone for one is gone for the other, also if the cell has another pair with the same tag.
#[test]
fn a_pair_that_was_gone_for_updates_is_not_seen() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(Numbers::<u64>::new(1, &[1]));
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

/// One frees a cell, another takes it for a key of another home, and somebody still has the old info.
#[test]
fn a_cell_that_was_left_is_not_taken_for_another() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(Numbers::<u64>::new(2, &[0, 1]));
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

/// The key is removed, and another put in its cell, twice: the info is as it was. (Tags do not go by infos.)
#[test]
fn a_version_that_came_round_is_another() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(Numbers::<u64>::new(1, &[1]));
        beside(
            &numbers,
            |numbers| {
                for (gone, new) in [(1, 2), (2, 3)] {
                    assert_eq!(numbers.remove(gone), Some(gone * 10));
                    assert_eq!(numbers.try_insert(new, new * 10), Ok(()));
                }
            },
            |numbers| {
                let home = numbers.stage.table().home(hash_of(&3));
                assert!([Ok(None), Ok(Some(30))].contains(&home.get(&3)));
            },
        );
        assert!(numbers.are(&[3]));
    });
}

#[test]
fn a_displaced_key_is_never_missing() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(Numbers::<u64>::new(4, &FULL_HOMES));
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
        let numbers = Arc::new(Numbers::<u64>::new(4, &FULL_HOMES));
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

/// Each wants the cell that the other displaces from, or to.
#[test]
fn two_who_displace() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(Numbers::<u64>::new(4, &FULL_HOMES));
        beside(
            &numbers,
            |numbers| assert_eq!(numbers.try_insert(4, 40), Ok(())),
            |numbers| assert_eq!(numbers.try_insert(5, 50), Ok(())),
        );
        assert!(numbers.are(&[0, 1, 4, 5]));
    });
}

#[test]
fn two_who_claim_a_cell() {
    corewise_atomic::model_bounded(3, || {
        let numbers = Arc::new(Numbers::<u64>::new(2, &[0]));
        beside(
            &numbers,
            |numbers| assert_eq!(numbers.try_insert(2, 20), Ok(())),
            |numbers| assert_eq!(numbers.try_insert(1, 10), Ok(())),
        );
        assert!(numbers.are(&[0, 1, 2]));
    });
}

#[test]
fn an_inserted_pair_is_seen_whole() {
    // In a free cell, in a new node, in a node that is there.
    for keys in [&[][..], &[1], &[1, 2]] {
        corewise_atomic::model_bounded(2, move || {
            let numbers = Arc::new(Numbers::<u64>::new(1, keys));
            beside(
                &numbers,
                |numbers| assert_eq!(numbers.try_insert(4, 40), Ok(())),
                |numbers| assert!([None, Some(40)].contains(&numbers.get(4))),
            );
            assert_eq!(numbers.get(4), Some(40));
        });
    }
}

/// 2 and 5 are of different homes, and take the same slot in turn.
#[test]
fn a_pair_in_a_node_is_never_mixed() {
    corewise_atomic::model_bounded(1, || {
        let numbers = Arc::new(Numbers::<u64>::new(2, &[0, 1, 2, 3]));
        beside(
            &numbers,
            |numbers| {
                assert_eq!(numbers.remove(2), Some(20));
                assert_eq!(numbers.try_insert(5, 50), Ok(()));
            },
            |numbers| assert!([None, Some(50)].contains(&numbers.get(5))),
        );
        assert!(numbers.are(&[0, 1, 3, 5]));
    });
}

#[test]
fn two_homes_overflow() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(Numbers::<u64>::new(2, &[0, 1]));
        beside(
            &numbers,
            |numbers| assert_eq!(numbers.try_insert(2, 20), Ok(())),
            |numbers| assert_eq!(numbers.try_insert(3, 30), Ok(())),
        );
        assert!(numbers.are(&[0, 1, 2, 3]));
    });
}

#[test]
fn a_replaced_value_is_never_missing_and_never_mixed() {
    // In a cell, and in a node.
    for (keys, preemptions) in [(&[1][..], 2), (&[2, 1], 1)] {
        corewise_atomic::model_bounded(preemptions, move || {
            let numbers = Arc::new(Numbers::<[u64; 2]>::new(1, keys));
            beside(
                &numbers,
                |numbers| assert_eq!(numbers.replace(1, 11), 10),
                |numbers| assert!([Some(10), Some(11)].contains(&numbers.get(1))),
            );
            assert_eq!(numbers.get(1), Some(11));
            assert_eq!(numbers.pairs().len(), keys.len());
        });
    }
}

/// Both use the scratch, and who is sent there for the first must not take the second.
#[test]
fn two_values_are_replaced_beside_a_lookup() {
    corewise_atomic::model_bounded(1, || {
        let numbers = Arc::new(Numbers::<[u64; 2]>::new(2, &[0, 1]));
        beside(
            &numbers,
            |numbers| {
                assert_eq!(numbers.replace(0, 1), 0);
                assert_eq!(numbers.replace(1, 11), 10);
            },
            |numbers| assert!([Some(0), Some(1)].contains(&numbers.get(0))),
        );
        assert_eq!(numbers.pairs(), [(0, 1), (1, 11)]);
    });
}

#[test]
fn one_of_two_insertions_wins() {
    // In a cell, and in a node.
    for keys in [&[][..], &[2]] {
        corewise_atomic::model_bounded(3, move || {
            let numbers = Arc::new(Numbers::<u64>::new(1, keys));
            let (one, other) = beside(
                &numbers,
                |numbers| numbers.try_insert(1, 10),
                |numbers| numbers.try_insert(1, 11),
            );
            let there = match (one, other) {
                (Ok(()), Err(10)) => 10,
                (Err(11), Ok(())) => 11,
                answers => panic!("{answers:?}"),
            };
            assert_eq!(numbers.pairs().len(), keys.len() + 1);
            assert_eq!(numbers.get(1), Some(there));
        });
    }
}

#[test]
fn a_removal_beside_an_insertion() {
    for keys in [&[1][..], &[2, 1]] {
        corewise_atomic::model_bounded(2, move || {
            let numbers = Arc::new(Numbers::<u64>::new(1, keys));
            let (removed, inserted) = beside(
                &numbers,
                |numbers| numbers.remove(1),
                |numbers| numbers.try_insert(1, 11),
            );
            let then = match (removed, inserted) {
                (Some(10), Ok(())) => Some(11),
                (Some(10), Err(10)) => None,
                answers => panic!("{answers:?}"),
            };
            assert_eq!(numbers.get(1), then);
        });
    }
}

#[test]
fn two_updates_have_effect() {
    corewise_atomic::model_bounded(3, || {
        let numbers = Arc::new(Numbers::<u64>::new(1, &[1]));
        let increment = |numbers: &Numbers| numbers.increment(1).unwrap();
        let (one, other) = beside(&numbers, increment, increment);
        assert_eq!([one.min(other), one.max(other)], [11, 12]);
        assert_eq!(numbers.get(1), Some(12));
    });
}

#[test]
fn lookups_do_not_notice_a_resize() {
    for (from, to) in RESIZES {
        corewise_atomic::model_bounded(2, move || {
            let numbers = Arc::new(Numbers::<u64>::resizing(from, to, &[1, 2]));
            beside(&numbers, Numbers::move_all, |numbers| {
                assert_eq!(numbers.get(1), Some(10));
                assert_eq!(numbers.get(2), Some(20));
                assert_eq!(numbers.get(3), None);
            });
            assert!(numbers.are(&[1, 2]));
        });
    }
}

#[test]
fn updates_beside_a_resize() {
    for (from, to) in RESIZES {
        corewise_atomic::model_bounded(2, move || {
            let numbers = Arc::new(Numbers::<u64>::resizing(from, to, &[1, 2]));
            beside(&numbers, Numbers::move_all, |numbers| {
                assert_eq!(numbers.remove(1), Some(10));
                assert_eq!(numbers.try_insert(3, 30), Ok(()));
                assert_eq!(numbers.increment(2), Some(21));
                assert_eq!(numbers.get(1), None);
            });
            assert_eq!(numbers.pairs(), [(2, 21), (3, 30)]);
        });
    }
}

#[test]
fn two_who_move_the_same_homes() {
    for (from, to) in RESIZES {
        corewise_atomic::model_bounded(2, move || {
            let numbers = Arc::new(Numbers::<u64>::resizing(from, to, &[1, 2]));
            let step = |numbers: &Numbers| numbers.stage.step(2, &hash_of);
            let (one, other) = beside(&numbers, step, step);
            // Who waited for nobody may have left the last one to the other, who may have done the same.
            let mut lasts = [one, other]
                .iter()
                .filter(|s| **s == Ok(Step::Last))
                .count();
            while lasts == 0 {
                lasts += usize::from(step(&numbers) == Ok(Step::Last));
            }
            assert_eq!(lasts, 1);
            assert!(numbers.are(&[1, 2]));
        });
    }
}

type Map = HopscotchMap<u64, [u64; 2], Hashing>;

#[test]
fn updates_and_lookups_beside_resizes() {
    corewise_atomic::model_bounded(3, || {
        let builder = HopscotchMap::<u64, [u64; 2]>::builder().buckets(1);
        let builder = builder.automatic_resize(false).domain(Domain::new());
        let map: Arc<Map> = Arc::new(builder.hasher(Hashing::Own).build());
        let is = |map: &Map, key: u64| map.pin().get(&key).map(Number::number) == Some(key * 10);
        (1..=6).for_each(|key| {
            assert_eq!(map.pin().insert(key, Number::of(key * 10)), Ok(None));
        });
        let updates = move |map: &Map| {
            for key in [3, 2, 5, 3, 2] {
                assert_eq!(map.pin().remove(&key).map(Number::number), Some(key * 10));
                assert_eq!(map.pin().get(&key), None);
                assert_eq!(map.pin().try_insert(key, Number::of(0)), Ok(()));
                let old = map.pin().insert(key, Number::of(key * 10));
                assert_eq!(old.unwrap().map(Number::number), Some(0));
                assert!([1, 4, 6].iter().all(|key| is(map, *key)));
            }
        };
        let resizes = |map: &Map| {
            for buckets in [2, 8, 4, 1] {
                map.resize_to(buckets).unwrap();
            }
        };
        beside(&map, resizes, updates);
        let mut pairs: Vec<_> = map
            .pin()
            .iter()
            .map(|pair| (pair.0, pair.1.number()))
            .collect();
        pairs.sort_unstable();
        let there: Vec<_> = (1..=6).map(|key| (key, key * 10)).collect();
        assert_eq!(pairs, there);
    });
}
