//! Models: lookups and updates beside entries that move to their other buckets, or with their buckets to another table.

use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::AtomicU64;
use corewise_atomic::sync::atomic::Ordering::Relaxed;
use corewise_rcu::Domain;

use super::path::Displaced;
use super::state::{Homes, Side};
use super::{CuckooMap, CuckooTable};
use crate::copy_map::numbers::{self, RESIZES, beside, hash_of};
use crate::copy_map::{Step, Table};
use crate::hashing::Hashing;

type Numbers<V> = numbers::Numbers<CuckooTable<u64, V>>;

/// Keys are their hashes: in two buckets, the first one of a number is its lowest bit.
type Tens = Numbers<u64>;

impl Tens {
    /// Moves what a slot of one of a key's buckets has, with its tag, to the other one.
    fn displace(&self, key: u64, from: Side, slot: usize) -> Displaced {
        Self::displace_in(self.stage.table(), key, from, slot)
    }

    fn displace_in(table: &CuckooTable<u64, u64>, key: u64, from: Side, slot: usize) -> Displaced {
        let homes = Homes::new(key);
        let [from, to] = [from, from.other()].map(|side| homes.bucket(side, table.mask()));
        table.displace(from, slot, homes.tag, to)
    }
}

#[test]
fn an_entry_that_moves_is_never_missed() {
    for from in [Side::First, Side::Second] {
        corewise_atomic::model_bounded(3, move || {
            let numbers = Arc::new(Tens::new(2, &[1]));
            if from == Side::Second {
                assert_eq!(numbers.displace(1, Side::First, 0), Displaced::Done);
            }
            beside(
                &numbers,
                move |numbers| assert_eq!(numbers.displace(1, from, 0), Displaced::Done),
                |numbers| assert_eq!(numbers.get(1), Some(10)),
            );
            assert_eq!(numbers.pairs(), [(1, 10)]);
        });
    }
}

#[test]
fn an_entry_that_moves_to_and_fro_is_never_missed() {
    corewise_atomic::model_bounded(1, || {
        let numbers = Arc::new(Tens::new(2, &[1]));
        beside(
            &numbers,
            |numbers| {
                assert_eq!(numbers.displace(1, Side::First, 0), Displaced::Done);
                assert_eq!(numbers.displace(1, Side::Second, 0), Displaced::Done);
            },
            |numbers| assert_eq!(numbers.get(1), Some(10)),
        );
    });
}

#[test]
fn a_pair_is_never_mixed() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(Tens::new(1, &[1]));
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
        assert_eq!(numbers.pairs(), [(2, 20)]);
    });
}

#[test]
fn a_slot_that_an_entry_has_left_is_used_again() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(Tens::new(2, &[1]));
        beside(
            &numbers,
            |numbers| {
                assert_eq!(numbers.displace(1, Side::First, 0), Displaced::Done);
                assert_eq!(numbers.try_insert(3, 30), Ok(()));
            },
            |numbers| assert_eq!(numbers.get(1), Some(10)),
        );
        assert_eq!(numbers.pairs(), [(1, 10), (3, 30)]);
    });
}

#[test]
fn an_inserted_pair_is_seen_whole() {
    for keys in [&[][..], &[1, 2, 3, 5]] {
        corewise_atomic::model_bounded(3, move || {
            let numbers = Arc::new(Tens::new(1, keys));
            beside(
                &numbers,
                |numbers| assert_eq!(numbers.try_insert(4, 40), Ok(())),
                |numbers| assert!([None, Some(40)].contains(&numbers.get(4))),
            );
            assert_eq!(numbers.get(4), Some(40));
        });
    }
}

#[test]
fn a_replaced_value_is_never_missing() {
    corewise_atomic::model_bounded(3, || {
        let numbers = Arc::new(Tens::new(2, &[1]));
        beside(
            &numbers,
            |numbers| numbers.replace(1, 11),
            |numbers| assert!([Some(10), Some(11)].contains(&numbers.get(1))),
        );
        assert_eq!(numbers.pairs(), [(1, 11)]);
    });
}

#[test]
fn a_value_of_two_words_is_never_torn() {
    corewise_atomic::model_bounded(3, || {
        let numbers = Arc::new(Numbers::<[u64; 2]>::new(1, &[1]));
        beside(
            &numbers,
            |numbers| assert_eq!(numbers.replace(1, 11), 10),
            |numbers| assert!([Some(10), Some(11)].contains(&numbers.get(1))),
        );
        assert_eq!(numbers.get(1), Some(11));
    });
}

#[test]
fn who_finds_a_value_sees_what_was_written_before_it_was_put_in() {
    corewise_atomic::model_bounded(3, || {
        let numbers = Arc::new((Tens::new(2, &[1]), AtomicU64::new(0)));
        beside(
            &numbers,
            |(numbers, written)| {
                written.store(1, Relaxed);
                numbers.replace(1, 11);
            },
            |(numbers, written)| {
                if numbers.get(1) == Some(11) {
                    assert_eq!(written.load(Relaxed), 1);
                }
            },
        );
    });
}

/// In an empty table, in one whose first bucket is full, and in one where both are.
#[test]
fn one_of_two_insertions_wins() {
    for (buckets, keys) in [(2, &[][..]), (2, &[3, 5, 7, 9]), (1, &[2, 3, 4, 5])] {
        corewise_atomic::model_bounded(2, move || {
            let numbers = Arc::new(Tens::new(buckets, keys));
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

/// Each one's first bucket is the other's second, and both are full but for one slot.
#[test]
fn insertions_that_want_the_same_two_buckets() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(Tens::new(2, &[1, 3, 5, 7, 2, 4, 6]));
        let (one, other) = beside(
            &numbers,
            |numbers| numbers.try_insert(9, 90),
            |numbers| numbers.try_insert(8, 80),
        );
        assert_eq!((one, other), (Ok(()), Ok(())));
        assert_eq!(
            [8, 9, 1].map(|key| numbers.get(key)),
            [Some(80), Some(90), Some(10)]
        );
    });
}

#[test]
fn a_removal_beside_an_insertion() {
    corewise_atomic::model_bounded(3, || {
        let numbers = Arc::new(Tens::new(2, &[1]));
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

#[test]
fn a_removal_beside_a_move() {
    for from in [Side::First, Side::Second] {
        corewise_atomic::model_bounded(3, move || {
            let numbers = Arc::new(Tens::new(2, &[1]));
            if from == Side::Second {
                assert_eq!(numbers.displace(1, Side::First, 0), Displaced::Done);
            }
            // A path that was found before the removal.
            beside(
                &numbers,
                |numbers| assert_eq!(numbers.remove(1), Some(10)),
                move |numbers| numbers.displace(1, from, 0),
            );
            assert_eq!(numbers.pairs(), []);
            assert_eq!(numbers.get(1), None);
        });
    }
}

#[test]
fn two_updates_have_effect() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(Tens::new(2, &[1]));
        let increment = |numbers: &Tens| numbers.increment(1).unwrap();
        let (one, other) = beside(&numbers, increment, increment);
        assert_eq!([one.min(other), one.max(other)], [11, 12]);
        assert_eq!(numbers.get(1), Some(12));
    });
}

#[test]
fn what_is_drawn_in_is_never_missed() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(Tens::new(1, &[1, 2, 3, 4, 5]));
        beside(
            &numbers,
            |numbers| assert_eq!(numbers.remove(1), Some(10)),
            |numbers| assert_eq!(numbers.get(5), Some(50)),
        );
        assert_eq!(numbers.pairs(), [(2, 20), (3, 30), (4, 40), (5, 50)]);
    });
}

/// The entry moves from where the walk has not been to where it was, or the other way.
#[test]
fn a_walk_beside_a_move_has_each_entry_once() {
    for key in [1, 2] {
        corewise_atomic::model_bounded(3, move || {
            let numbers = Arc::new(Tens::new(2, &[key]));
            let walk = |numbers: &Tens| {
                numbers.stage.table().begin_walk();
                let pairs = numbers.pairs();
                numbers.stage.table().end_walk();
                pairs
            };
            let (pairs, _) = beside(&numbers, walk, move |numbers| {
                numbers.displace(key, Side::First, 0)
            });
            assert_eq!(pairs, [(key, key * 10)]);
        });
    }
}

#[test]
fn lookups_do_not_notice_a_resize() {
    for (from, to) in RESIZES {
        corewise_atomic::model_bounded(2, move || {
            let numbers = Arc::new(Tens::resizing(from, to, &[1, 2]));
            beside(&numbers, Tens::move_all, |numbers| {
                assert_eq!(numbers.get(1), Some(10));
                assert_eq!(numbers.get(2), Some(20));
                assert_eq!(numbers.get(3), None);
            });
        });
    }
}

/// The entry moves in the old table, with its bucket to the new one, and there again, while a lookup looks at one
/// bucket here and at the other there.
#[test]
fn an_entry_that_moves_before_and_after_a_resize_is_never_missed() {
    for first in [Side::First, Side::Second] {
        corewise_atomic::model_bounded(1, move || {
            let numbers = Arc::new(Tens::resizing(2, 2, &[1]));
            let second = first.other();
            if first == Side::Second {
                assert_eq!(numbers.displace(1, Side::First, 0), Displaced::Done);
            }
            beside(
                &numbers,
                move |numbers| {
                    assert_eq!(numbers.displace(1, first, 0), Displaced::Done);
                    numbers.move_all();
                    let next = numbers.stage.next().unwrap().table();
                    let moved = Tens::displace_in(next, 1, second, 0);
                    assert_eq!(moved, Displaced::Done);
                },
                |numbers| assert_eq!(numbers.get(1), Some(10)),
            );
        });
    }
}

#[test]
fn updates_beside_a_resize() {
    for (from, to) in RESIZES {
        corewise_atomic::model_bounded(2, move || {
            let numbers = Arc::new(Tens::resizing(from, to, &[1, 2]));
            beside(&numbers, Tens::move_all, |numbers| {
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
fn two_who_move_the_same_buckets() {
    for (from, to) in RESIZES {
        corewise_atomic::model_bounded(2, move || {
            let numbers = Arc::new(Tens::resizing(from, to, &[1, 2]));
            let step = |numbers: &Tens| numbers.stage.step(2, &hash_of);
            let (one, other) = beside(&numbers, step, step);
            // Who waited for nobody may have left the last one to the other, who may have done the same.
            let lasts = [one, other].into_iter();
            let mut lasts = lasts.filter(|step| *step == Ok(Step::Last)).count();
            while lasts == 0 {
                lasts += usize::from(step(&numbers) == Ok(Step::Last));
            }
            assert_eq!(lasts, 1);
            assert_eq!(numbers.pairs(), [(1, 10), (2, 20)]);
        });
    }
}

type Map = CuckooMap<u64, u64, Hashing>;

#[test]
fn updates_and_lookups_beside_resizes() {
    corewise_atomic::model_bounded(3, || {
        let builder = CuckooMap::<u64, u64>::builder().buckets(2);
        let builder = builder.automatic_resize(false).domain(Domain::new());
        let numbers: Arc<Map> = Arc::new(builder.hasher(Hashing::Own).build());
        (1..=8).for_each(|key| assert_eq!(numbers.pin().insert(key, key * 10), Ok(None)));
        let updates = |numbers: &Map| {
            for key in [3, 2, 5, 3, 2] {
                assert_eq!(numbers.pin().remove(&key), Some(key * 10));
                assert_eq!(numbers.pin().get(&key), None);
                assert_eq!(numbers.pin().try_insert(key, key * 10), Ok(()));
                let kept = |key: &u64| numbers.pin().get(key) == Some(key * 10);
                assert!([1, 4, 6, 7, 8].iter().all(kept));
            }
        };
        let resizes = |numbers: &Map| {
            for buckets in [4, 2, 8, 4, 1] {
                numbers.resize_to(buckets).unwrap();
            }
        };
        beside(&numbers, resizes, updates);
        let mut pairs: Vec<_> = numbers.pin().iter().collect();
        pairs.sort_unstable();
        let there: Vec<_> = (1..=8).map(|key| (key, key * 10)).collect();
        assert_eq!(pairs, there);
    });
}

/// All entries are displaced that can be, again and again, beside updates and lookups.
#[test]
fn updates_and_lookups_beside_moves() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(Tens::new(4, &[0, 1, 2, 3, 4, 5, 6, 7, 8]));
        let moves = |numbers: &Tens| {
            let table = numbers.stage.table();
            for bucket in (0..4).chain(0..4) {
                for (slot, tag) in table.state(bucket).held() {
                    table.displace(bucket, slot, tag, tag.other(bucket, table.mask()));
                }
            }
        };
        let updates = |numbers: &Tens| {
            for key in [3, 2, 5, 3, 2] {
                assert_eq!(numbers.remove(key), Some(key * 10));
                assert_eq!(numbers.get(key), None);
                assert_eq!(numbers.try_insert(key, key * 10), Ok(()));
                let kept = |key: &u64| numbers.get(*key) == Some(key * 10);
                assert!([0, 1, 4, 6, 7, 8].iter().all(kept));
            }
        };
        beside(&numbers, moves, updates);
        let there: Vec<_> = (0..=8).map(|key| (key, key * 10)).collect();
        assert_eq!(numbers.pairs(), there);
    });
}
