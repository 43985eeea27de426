//! HTM-CLHT against `std`, with scripted transactions, and with real ones where the processor has
//! them.

use std::collections::HashMap;

use crate::common::script;
use corewise_locks::elide::{
    AttemptOutcome, Cause, Policy, Retry, Rtm, Scm, ScmOpt, Scripted, Slr, SlrScm, Subscribe,
    Transaction,
};
use corewise_locks::{DistributedRw, Mcs, Parking, RawLock, Ttas};
use corewise_maps_lab::elided_clht::{Coarse, Fine, TableFull, Versioned};
use corewise_testkit::history::models::{EntryOp, EntryOutcome, MapEntry};
use corewise_testkit::history::record_threads;
use corewise_testkit::random::{Random, is_short};

fn scaled(number: u64) -> u64 {
    if is_short() { number / 10 } else { number }
}

trait Map: Sync {
    fn get(&self, key: u64) -> Option<u64>;
    fn insert(&self, key: u64, value: u64) -> Option<u64>;
    fn try_insert(&self, key: u64, value: u64) -> Option<u64>;
    fn remove(&self, key: u64) -> Option<u64>;
    fn len(&self) -> usize;
}

/// Every second lookup is `$other`.
macro_rules! map {
    ([$($generics:tt)*] $table:ty, $other:ident) => {
        impl<$($generics)*> Map for $table {
            fn get(&self, key: u64) -> Option<u64> {
                match key.is_multiple_of(2) {
                    true => self.$other(key),
                    false => <$table>::get(self, key),
                }
            }
            fn insert(&self, key: u64, value: u64) -> Option<u64> {
                <$table>::insert(self, key, value).expect("there is room")
            }
            fn try_insert(&self, key: u64, value: u64) -> Option<u64> {
                <$table>::try_insert(self, key, value).expect("there is room")
            }
            fn remove(&self, key: u64) -> Option<u64> {
                <$table>::remove(self, key)
            }
            fn len(&self) -> usize {
                <$table>::len(self)
            }
        }
    };
}
map!([L: Subscribe, P: Policy, B: Transaction] Coarse<L, P, B>, get_elided);
map!([P: Policy, B: Transaction] Fine<P, B>, get);
map!([L: RawLock] Versioned<L>, get);

/// Random operations of one thread have the outcomes of a `HashMap`, through all resizes.
fn agrees_with_std(table: &impl Map) {
    let (mut random, mut expected) = (Random(7), HashMap::new());
    for _ in 0..scaled(8_000) {
        let _script = Scripted::play(
            script(&mut random, Cause::Explicit(9), 8),
            AttemptOutcome::Commit,
        );
        let (key, value) = (random.below(3_000), random.below(u64::MAX));
        match random.below(5) {
            0 => assert_eq!(table.insert(key, value), expected.insert(key, value)),
            1 => {
                assert_eq!(table.try_insert(key, value), expected.get(&key).copied());
                expected.entry(key).or_insert(value);
            }
            2 => assert_eq!(table.remove(key), expected.remove(&key)),
            _ => assert_eq!(table.get(key), expected.get(&key).copied()),
        }
    }
    assert_eq!(table.len(), expected.len());
    assert!(
        expected
            .iter()
            .all(|(key, value)| table.get(*key) == Some(*value))
    );
}

/// Threads with their own keys beside readers of all keys: a hit is a pair that was inserted.
fn threads_agree(table: &impl Map) {
    const WRITERS: u64 = 4;
    let keys = scaled(120);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let mut random = Random(writer + 1);
                for round in 0..4 {
                    for key in (0..keys).map(|key| key * WRITERS + writer) {
                        let _script = Scripted::play(
                            script(&mut random, Cause::Explicit(9), 8),
                            AttemptOutcome::Commit,
                        );
                        let old = (round > 0).then(|| key * 10 + round - 1);
                        assert_eq!(table.insert(key, key * 10 + round), old);
                        if random.below(8) == 0 {
                            assert_eq!(table.remove(key), Some(key * 10 + round));
                            assert_eq!(table.get(key), None);
                            assert_eq!(table.insert(key, key * 10 + round), None);
                        }
                    }
                }
            });
        }
        for reader in 0..2 {
            scope.spawn(move || {
                let mut random = Random(100 + reader);
                for _ in 0..keys * 8 {
                    let key = random.below(keys * WRITERS);
                    if let Some(value) = table.get(key) {
                        assert_eq!(value / 10, key);
                    }
                }
            });
        }
    });
    assert_eq!(table.len() as u64, keys * WRITERS);
}

macro_rules! coarse {
    ($($name:ident: $lock:ty, $policy:ty);* $(;)?) => {$(
        mod $name {
            use super::*;

            #[test]
            fn agrees() {
                let table = Coarse::<$lock, $policy, _>::new(0, Some(Scripted::new()));
                agrees_with_std(&table);
                let counts = table.counts();
                assert!(counts.committed > 0 && counts.fallbacks > 0, "{counts:?}");
                println!("scripted transactions, and real ones: {:?}", Rtm::detect());
                agrees_with_std(&Coarse::<$lock, $policy>::new(0, Rtm::detect().ok()));
            }

            #[test]
            fn agrees_between_threads() {
                threads_agree(&Coarse::<$lock, $policy, _>::new(0, Some(Scripted::new())));
                threads_agree(&Coarse::<$lock, $policy>::new(0, Rtm::detect().ok()));
            }
        }
    )*};
}
coarse! {
    slr_mcs: Mcs, Slr;
    htm_retry: Ttas, Retry<10>;
    scm_ttas: Ttas, Scm;
    slr_scm_mcs: Mcs, SlrScm;
    scm_ttas_opt: Ttas, ScmOpt;
    slr_scm_distributed: DistributedRw, SlrScm;
}

#[test]
fn versioned_agrees() {
    agrees_with_std(&Versioned::<Mcs>::new(0));
    agrees_with_std(&Versioned::<Parking>::new(0));
    threads_agree(&Versioned::<Mcs>::new(0));
    threads_agree(&Versioned::<Ttas>::new(0));
}

#[test]
fn fine_agrees() {
    agrees_with_std(&Fine::<SlrScm, _>::new(8_000, Some(Scripted::new())));
    threads_agree(&Fine::<SlrScm, _>::new(8_000, Some(Scripted::new())));
    threads_agree(&Fine::<Retry>::new(8_000, Rtm::detect().ok()));
}

#[test]
fn a_fine_table_that_is_full_refuses() {
    let table: Fine<Slr, Scripted> = Fine::new(0, Some(Scripted::new()));
    let refused = (0..100_000).find(|key| table.insert(*key, *key) == Err(TableFull));
    let refused = refused.expect("it does not grow");
    assert_eq!(table.len() as u64, refused);
    assert!((0..refused).all(|key| table.get(key) == Some(key)));
    // A removal makes room for a key of the same bucket.
    assert_eq!(table.remove(0), Some(0));
    assert_eq!(table.insert(0, 1), Ok(None));
    assert!(!table.is_empty());
}

/// Threads that race for overflow buckets get one each: those of all buckets are in one list.
#[test]
fn overflow_buckets_are_taken_once() {
    let table: Fine<SlrScm, Scripted> = Fine::new(0, Some(Scripted::new()));
    let inserted: u64 = std::thread::scope(|scope| {
        let insert = |thread: u64| {
            let table = &table;
            scope.spawn(move || {
                let keys = (0..1_000).map(|key| key * 4 + thread);
                keys.filter(|key| table.insert(*key, *key) == Ok(None))
                    .count() as u64
            })
        };
        let threads: Vec<_> = (0..4).map(insert).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    // A thread may have found the list empty although another one put its bucket back.
    let later = (4_000..5_000).filter(|key| table.insert(*key, *key) == Ok(None));
    let all = inserted + later.count() as u64;
    let present = (0..5_000).filter(|key| table.get(*key) == Some(*key));
    // 16 buckets and three overflow buckets, of three slots.
    assert_eq!((all, present.count(), table.len()), (57, 57, 57));
}

/// Histories of few keys are linearizable, also while the table grows.
fn has_linearizable_histories(table: &impl Map) {
    let history = record_threads(3, 150, |thread, recorder| {
        let mut random = Random(thread + 1);
        for round in 0..150 {
            let script = script(&mut random, Cause::Explicit(9), 8);
            let _script = Scripted::play(script, AttemptOutcome::Commit);
            // Other keys, so that the table grows.
            table.insert(1_000 + thread * 1_000 + round, 0);
            let (key, value) = (random.below(3), thread * 1_000 + round);
            let op = match random.below(5) {
                0 => EntryOp::Insert(value),
                1 => EntryOp::TryInsert(value),
                2 => EntryOp::Remove,
                _ => EntryOp::Get,
            };
            recorder.record(key, op.clone(), || {
                EntryOutcome::Held(match op {
                    EntryOp::Insert(value) => table.insert(key, value),
                    EntryOp::TryInsert(value) => table.try_insert(key, value),
                    EntryOp::Remove => table.remove(key),
                    _ => table.get(key),
                })
            });
        }
    });
    history.check(&MapEntry::new()).assert_linearizable();
}

#[test]
fn histories_are_linearizable() {
    fn check<P: Policy>() {
        has_linearizable_histories(&Coarse::<Mcs, P, _>::new(0, Some(Scripted::new())));
    }
    check::<Retry>();
    check::<SlrScm>();
    check::<ScmOpt>();
    has_linearizable_histories(&Versioned::<Mcs>::new(0));
}

#[test]
fn an_insertion_of_a_present_key_is_no_section() {
    let table: Coarse<Mcs, Slr, Scripted> = Coarse::new(100, Some(Scripted::new()));
    assert_eq!(table.try_insert(1, 2), Ok(None));
    let before = table.counts();
    assert_eq!(
        (table.try_insert(1, 3), table.remove(7)),
        (Ok(Some(2)), None)
    );
    assert_eq!(table.counts(), before);
    assert_eq!(table.get(1), Some(2));
}
