//! Models of overflow: insertions that take effect in the first bucket and are completed in
//! another.

use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::Ordering::Relaxed;
use corewise_atomic::thread;

use corewise_maps::copy_map::numbers::{self, beside};
use corewise_maps::parts::clht::BucketState;

use super::LockFreeTable;
use super::chain::Chain;
use super::snapshot::{Position, SlotState, Snapshot};

type NumberTable = numbers::NumberTable<LockFreeTable<u64, u64>>;

/// One bucket, which is full, and its overflow bucket.
fn overflowing() -> Arc<NumberTable> {
    Arc::new(NumberTable::new(1, &[1, 2, 3, 4]))
}

fn head(numbers: &NumberTable) -> Chain<'_> {
    Chain(&numbers.version.table().heads()[0])
}

/// The slot after that of key 4.
const NEXT: Position = Position { bucket: 1, slot: 1 };

#[test]
fn a_late_helper_commits_nothing_of_others() {
    corewise_atomic::model_bounded(3, || {
        let numbers = overflowing();
        beside(
            &numbers,
            |numbers| {
                assert_eq!(numbers.try_insert(5, 50), Ok(()));
                assert_eq!(numbers.remove(5), Some(50));
                // Into the same slot.
                assert_eq!(numbers.try_insert(6, 60), Ok(()));
            },
            |numbers| {
                head(numbers).finish_pending();
                assert!([None, Some(60)].contains(&numbers.get(6)));
            },
        );
        assert_eq!((numbers.get(5), numbers.get(6)), (None, Some(60)));
    });
}

/// One helper has made a slot valid and stopped there; another one is about to.
#[test]
fn a_removal_ends_the_insertion_that_is_pending() {
    corewise_atomic::model_bounded(3, || {
        let numbers = overflowing();
        assert_eq!(numbers.try_insert(5, 50), Ok(()));
        let pending = head(&numbers).0.state().with_pending(NEXT);
        // Relaxed: no other thread is here yet.
        head(&numbers).0.state.store(pending.bits(), Relaxed);
        beside(
            &numbers,
            |numbers| {
                assert_eq!(numbers.remove(5), Some(50));
                assert_eq!(numbers.try_insert(6, 60), Ok(()));
            },
            move |numbers| {
                head(numbers).finish(pending, NEXT);
                assert!([None, Some(60)].contains(&numbers.get(6)));
            },
        );
        assert_eq!((numbers.get(5), numbers.get(6)), (None, Some(60)));
    });
}

#[test]
fn what_a_helper_commits_is_seen_whole() {
    corewise_atomic::model_bounded(2, || {
        let numbers = overflowing();
        let helper = numbers.clone();
        let helper = thread::spawn(move || head(&helper).finish_pending());
        beside(
            &numbers,
            |numbers| assert_eq!(numbers.try_insert(5, 50), Ok(())),
            |numbers| assert!([None, Some(50)].contains(&numbers.get(5))),
        );
        helper.join().unwrap();
        assert_eq!(numbers.get(5), Some(50));
    });
}

/// Runs `body` in three concurrent threads; returns the sum of their results.
fn three_times(numbers: &Arc<NumberTable>, body: fn(&NumberTable, u64) -> i64) -> i64 {
    let third = numbers.clone();
    let third = thread::spawn(move || body(&third, 3));
    let (one, other) = beside(
        numbers,
        move |numbers| body(numbers, 1),
        move |numbers| body(numbers, 2),
    );
    one + other + third.join().unwrap()
}

#[test]
fn several_insert_and_remove_in_one_chain() {
    corewise_atomic::model_bounded(1, || {
        let numbers = overflowing();
        let inserted = three_times(&numbers, |numbers, thread| {
            let inserted = [5, 6, 7, 8].map(|key| numbers.try_insert(key, key * 10 + thread));
            inserted.iter().filter(|answer| answer.is_ok()).count() as i64
        });
        assert_eq!((inserted, numbers.pairs().len()), (4, 8));
        let more = three_times(&numbers, |numbers, thread| {
            let mut more = 0;
            for key in [8, 5, 6, 5] {
                more -= i64::from(numbers.remove(key).is_some());
                more += i64::from(numbers.try_insert(key, key * 10 + thread).is_ok());
                let seen = numbers.get(key);
                assert!(seen.is_none_or(|seen| seen / 10 == key), "{key}: {seen:?}");
            }
            more
        });
        let mut keys: Vec<_> = numbers.pairs().into_iter().map(|pair| pair.0).collect();
        assert_eq!(keys.len() as i64, 8 + more);
        keys.dedup();
        assert_eq!(keys.len() as i64, 8 + more, "a key is there twice");
        let kept = |key: &u64| numbers.get(*key) == Some(key * 10);
        assert!((1..=4).all(|key| kept(&key)));
    });
}

/// Independent of schedules: the format of the word.
#[test]
fn a_snapshot_keeps_its_parts_apart() {
    let last = Position {
        bucket: Snapshot::LONGEST,
        slot: 2,
    };
    let mut snapshot = Snapshot::of_bits(u64::MAX).without(2).without_pending();
    for slot in 0..3 {
        for to in [
            SlotState::Free,
            SlotState::Inserting,
            SlotState::Valid,
            SlotState::Replacing,
        ] {
            snapshot = snapshot.with_slot(slot, to);
            assert_eq!(snapshot.slot(slot), to);
            assert_eq!(snapshot.holds(slot), to as u64 >= 2);
            let pending = snapshot.with_pending(last);
            assert_eq!(pending.pending(), Some(last));
            assert_ne!(pending.version(), snapshot.version());
            assert!(pending.is_moved() && pending.is_frozen());
            assert!(pending.slot(slot) == to && !pending.may_commit(snapshot));
            assert_eq!(snapshot.pending(), None);
        }
    }
}
