//! Models of lookups and updates while entries move to their other buckets, or with their buckets
//! to another table.

use corewise_atomic::sync::Arc;

use super::CuckooTable;
use super::path::Displaced;
use super::state::{Homes, Side};
use crate::copy_map::Table;
use crate::copy_map::numbers::{NumberTable, beside};

/// Keys are their own hashes: with two buckets, the first bucket of a number is its lowest bit.
type Tens = NumberTable<CuckooTable<u64, u64>>;

impl Tens {
    /// Moves the entry in a slot of one of a key's buckets, which has the key's tag, to the other
    /// bucket.
    fn displace(&self, key: u64, from: Side, slot: usize) -> Displaced {
        Self::displace_in(self.version.table(), key, from, slot)
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

/// The first bucket of each key is the second bucket of the other, and both are full but for one
/// slot.
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

/// Each key is in its second bucket, which is the first bucket of the other.
#[test]
fn removals_that_want_the_same_two_buckets() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(Tens::new(2, &[1, 2]));
        assert_eq!(numbers.displace(1, Side::First, 0), Displaced::Done);
        assert_eq!(numbers.displace(2, Side::First, 0), Displaced::Done);
        let (one, other) = beside(
            &numbers,
            |numbers| numbers.remove(1),
            |numbers| numbers.remove(2),
        );
        assert_eq!((one, other), (Some(10), Some(20)));
        assert_eq!(numbers.pairs(), []);
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
            // The path was found before the removal.
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
fn an_entry_drawn_into_a_bucket_is_never_missed() {
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

/// The entry moves from a part not yet walked to a part already walked, or the other way.
#[test]
fn a_walk_beside_a_move_has_each_entry_once() {
    for key in [1, 2] {
        corewise_atomic::model_bounded(3, move || {
            let numbers = Arc::new(Tens::new(2, &[key]));
            let walk = |numbers: &Tens| {
                numbers.version.table().begin_walk();
                let pairs = numbers.pairs();
                numbers.version.table().end_walk();
                pairs
            };
            let (pairs, _) = beside(&numbers, walk, move |numbers| {
                numbers.displace(key, Side::First, 0)
            });
            assert_eq!(pairs, [(key, key * 10)]);
        });
    }
}

/// The entry is the only one of an overflow bucket, and moves into its bucket while that is walked.
#[test]
fn a_walk_beside_a_removal_has_the_entry_that_is_drawn_in() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(Tens::new(1, &[1, 2, 3, 4, 5]));
        let (mut pairs, _) = beside(&numbers, Tens::pairs, |numbers| numbers.remove(1));
        pairs.retain(|(key, _)| *key != 1);
        assert_eq!(pairs, [(2, 20), (3, 30), (4, 40), (5, 50)]);
    });
}

/// The entry moves in the old table, then with its bucket to the new one, and moves again there,
/// while a lookup reads one bucket in the old table and the other in the new.
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
                    let next = numbers.version.next().unwrap().table();
                    let moved = Tens::displace_in(next, 1, second, 0);
                    assert_eq!(moved, Displaced::Done);
                },
                |numbers| assert_eq!(numbers.get(1), Some(10)),
            );
        });
    }
}

/// Both buckets of a key go to one bucket and are marked one after the other: a thread that follows
/// the first mark and changes the key in the new table must not see the stale entry in the other
/// bucket.
#[test]
fn a_key_whose_buckets_move_together_is_in_one_place() {
    for key in [1, 2] {
        corewise_atomic::model_bounded(1, move || {
            let numbers = Arc::new(Tens::resizing(2, 1, &[key]));
            assert_eq!(numbers.displace(key, Side::First, 0), Displaced::Done);
            beside(&numbers, Tens::move_all, move |numbers| {
                assert_eq!(numbers.replace(key, 99), key * 10);
                assert_eq!(numbers.get(key), Some(99));
                assert_eq!(numbers.remove(key), Some(99));
                assert_eq!(numbers.get(key), None);
            });
        });
    }
}

/// Repeatedly displaces all entries that can be displaced, concurrently with updates and lookups.
#[test]
fn updates_and_lookups_beside_moves() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(Tens::new(4, &[0, 1, 2, 3, 4, 5, 6, 7, 8]));
        let moves = |numbers: &Tens| {
            let table = numbers.version.table();
            for bucket in (0..4).chain(0..4) {
                for (slot, tag) in table.state(bucket).used_slots() {
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
