//! Models: lookups and updates of a bucket beside each other and beside its way to another table.

use corewise_atomic::sync::Arc;
use corewise_rcu::Domain;

use super::lock_based::LockBasedForm;
use super::lock_free::LockFreeForm;
use super::table::{Chains, Form};
use crate::copy_map::numbers::{self, RESIZES, beside, hash_of};
use crate::copy_map::{CopyMap, Step};
use crate::every::for_every;
use crate::hashing::Hashing;

pub(super) type Numbers<F> = numbers::Numbers<Chains<F, u64, u64>>;

for_every! {
    lock_based: LockBasedForm,
    lock_free: LockFreeForm,
    => {
        a_pair_is_never_mixed
        a_key_comes_back_with_another_value
        an_inserted_pair_is_seen_whole
        a_replaced_value_is_never_missing
        one_of_two_insertions_wins
        a_removal_beside_an_insertion
        a_removal_beside_a_replacement
        two_updates_have_effect
        lookups_do_not_notice_a_resize
        updates_beside_a_resize
        two_who_move_the_same_buckets
        a_table_is_freed_after_its_readers
        updates_and_lookups_beside_resizes
    }
}

fn a_pair_is_never_mixed<F: Form>() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(Numbers::<F>::new(1, &[1]));
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

fn a_key_comes_back_with_another_value<F: Form>() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(Numbers::<F>::new(1, &[1, 2]));
        beside(
            &numbers,
            |numbers| {
                assert_eq!(numbers.remove(1), Some(10));
                assert_eq!(numbers.try_insert(1, 11), Ok(()));
            },
            |numbers| {
                // Not the old value after it was seen to be gone, nor after the new one.
                let seen = [numbers.get(1), numbers.get(1)];
                let orders = [[Some(10); 2], [Some(10), None], [Some(10), Some(11)]];
                let later = [[None, None], [None, Some(11)], [Some(11), Some(11)]];
                assert!(orders.contains(&seen) || later.contains(&seen), "{seen:?}");
                assert_eq!(numbers.get(2), Some(20));
            },
        );
    });
}

fn an_inserted_pair_is_seen_whole<F: Form>() {
    for keys in [&[][..], &[1, 2, 3]] {
        corewise_atomic::model_bounded(3, move || {
            let numbers = Arc::new(Numbers::<F>::new(1, keys));
            beside(
                &numbers,
                |numbers| assert_eq!(numbers.try_insert(4, 40), Ok(())),
                |numbers| assert!([None, Some(40)].contains(&numbers.get(4))),
            );
            assert_eq!(numbers.get(4), Some(40));
        });
    }
}

fn a_replaced_value_is_never_missing<F: Form>() {
    corewise_atomic::model_bounded(3, || {
        let numbers = Arc::new(Numbers::<F>::new(1, &[1]));
        beside(
            &numbers,
            |numbers| numbers.replace(1, 11),
            |numbers| assert!([Some(10), Some(11)].contains(&numbers.get(1))),
        );
        assert_eq!(numbers.pairs(), [(1, 11)]);
    });
}

fn one_of_two_insertions_wins<F: Form>() {
    for keys in [&[][..], &[2, 3, 4]] {
        corewise_atomic::model_bounded(3, move || {
            let numbers = Arc::new(Numbers::<F>::new(1, keys));
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

fn a_removal_beside_an_insertion<F: Form>() {
    corewise_atomic::model_bounded(3, || {
        let numbers = Arc::new(Numbers::<F>::new(1, &[1]));
        let (removed, inserted) = beside(
            &numbers,
            |numbers| numbers.remove(1),
            |numbers| {
                assert_eq!(numbers.try_insert(2, 20), Ok(()));
                numbers.try_insert(1, 11)
            },
        );
        let then = match (removed, inserted) {
            (Some(10), Ok(())) => Some(11),
            (Some(10), Err(10)) => None,
            answers => panic!("{answers:?}"),
        };
        assert_eq!((numbers.get(1), numbers.get(2)), (then, Some(20)));
    });
}

fn a_removal_beside_a_replacement<F: Form>() {
    corewise_atomic::model_bounded(3, || {
        let numbers = Arc::new(Numbers::<F>::new(1, &[1]));
        let (removed, replaced) = beside(
            &numbers,
            |numbers| numbers.remove(1),
            |numbers| numbers.put(1, 11, true),
        );
        let then = match (removed, replaced) {
            (Some(10), Ok(())) => Some(11),
            (Some(11), Err(10)) => None,
            answers => panic!("{answers:?}"),
        };
        assert_eq!(numbers.get(1), then);
    });
}

fn two_updates_have_effect<F: Form>() {
    corewise_atomic::model_bounded(3, || {
        let numbers = Arc::new(Numbers::<F>::new(1, &[1]));
        let increment = |numbers: &Numbers<F>| numbers.increment(1).unwrap();
        let (one, other) = beside(&numbers, increment, increment);
        assert_eq!([one.min(other), one.max(other)], [11, 12]);
        assert_eq!(numbers.get(1), Some(12));
    });
}

fn lookups_do_not_notice_a_resize<F: Form>() {
    for (from, to) in RESIZES {
        corewise_atomic::model_bounded(3, move || {
            let numbers = Arc::new(Numbers::<F>::resizing(from, to, &[1, 2]));
            beside(&numbers, Numbers::<F>::move_all, |numbers| {
                assert_eq!(numbers.get(1), Some(10));
                assert_eq!(numbers.get(2), Some(20));
                assert_eq!(numbers.get(3), None);
            });
        });
    }
}

fn updates_beside_a_resize<F: Form>() {
    for (from, to) in RESIZES {
        corewise_atomic::model_bounded(2, move || {
            let numbers = Arc::new(Numbers::<F>::resizing(from, to, &[1, 2]));
            beside(&numbers, Numbers::<F>::move_all, |numbers| {
                assert_eq!(numbers.remove(1), Some(10));
                assert_eq!(numbers.try_insert(3, 30), Ok(()));
                assert_eq!(numbers.increment(2), Some(21));
                assert_eq!(numbers.get(1), None);
            });
            assert_eq!(numbers.pairs(), [(2, 21), (3, 30)]);
        });
    }
}

fn two_who_move_the_same_buckets<F: Form>() {
    for (from, to) in RESIZES {
        corewise_atomic::model_bounded(2, move || {
            let numbers = Arc::new(Numbers::<F>::resizing(from, to, &[1, 2]));
            let step = |numbers: &Numbers<F>| numbers.stage.step(2, &hash_of);
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
            assert_eq!(numbers.pairs(), [(1, 10), (2, 20)]);
        });
    }
}

type Map<F> = CopyMap<Chains<F, u64, u64>, Hashing>;

fn map<F: Form>(buckets: usize) -> Map<F> {
    let builder = CopyMap::<Chains<F, u64, u64>>::builder().buckets(buckets);
    let builder = builder.automatic_resize(false).domain(Domain::new());
    builder.hasher(Hashing::Own).build()
}

fn a_table_is_freed_after_its_readers<F: Form>() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(map::<F>(1));
        numbers.pin().insert(1, 10).unwrap();
        beside(
            &numbers,
            |numbers| numbers.resize_to(2).unwrap(),
            |numbers| assert_eq!(numbers.pin().get(&1), Some(10)),
        );
        assert_eq!((numbers.buckets(), numbers.bytes()), (2, 128));
    });
}

fn updates_and_lookups_beside_resizes<F: Form>() {
    corewise_atomic::model_bounded(3, || {
        let numbers = Arc::new(map::<F>(1));
        (1..=6).for_each(|key| assert_eq!(numbers.pin().insert(key, key * 10), Ok(None)));
        let updates = |numbers: &Map<F>| {
            for key in [3, 2, 5, 3, 2] {
                assert_eq!(numbers.pin().remove(&key), Some(key * 10));
                assert_eq!(numbers.pin().get(&key), None);
                assert_eq!(numbers.pin().try_insert(key, key * 10), Ok(()));
                let kept = |key: &u64| numbers.pin().get(key) == Some(key * 10);
                assert!([1, 4, 6].iter().all(kept));
            }
        };
        let resizes = |numbers: &Map<F>| {
            for buckets in [2, 8, 4, 1] {
                numbers.resize_to(buckets).unwrap();
            }
        };
        beside(&numbers, resizes, updates);
        let mut pairs: Vec<_> = numbers.pin().iter().collect();
        pairs.sort_unstable();
        let there: Vec<_> = (1..=6).map(|key| (key, key * 10)).collect();
        assert_eq!(pairs, there);
    });
}
