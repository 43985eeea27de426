//! Histories of running threads: a locked map is linearizable, and flaws of other maps are found.

use corewise_testkit::history::models::EntryOp::{Get, Insert, Remove, TryInsert, Update};
use corewise_testkit::history::models::EntryOutcome::{Done, Held, Updated};
use corewise_testkit::history::models::{EntryOp, EntryOutcome, MapEntry};
use corewise_testkit::history::{History, Recording, record_threads};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;

type Op = EntryOp<u64>;
type Outcome = EntryOutcome<u64>;
type Map = Mutex<HashMap<u64, u64>>;

/// Does `op` atomically.
fn perform(map: &Map, key: u64, op: &Op) -> Outcome {
    let mut map = map.lock().unwrap_or_else(PoisonError::into_inner);
    match *op {
        Get => Held(map.get(&key).copied()),
        Insert(value) => Held(map.insert(key, value)),
        TryInsert(value) => match map.entry(key) {
            Entry::Vacant(entry) => Done(*entry.insert(value) == value),
            Entry::Occupied(entry) => Held(Some(*entry.get())),
        },
        Remove => Held(map.remove(&key)),
        Update => {
            let old = map.get(&key).copied();
            let new = map.get_mut(&key).map(|value| {
                *value += 1;
                *value
            });
            Updated { old, new }
        }
        EntryOp::CompareExchange { .. } => unreachable!("not drawn"),
    }
}

fn random_op(random: &mut SmallRng, unique: u64) -> Op {
    match random.random_range(0..10) {
        0..5 => Get,
        5..7 => Insert(unique),
        7 => TryInsert(unique),
        8 => Remove,
        _ => Update,
    }
}

/// Lets `threads` threads do `each` operations on `keys` keys. Some yield halfway, so that
/// operations overlap even if the threads share a core.
fn record(threads: u64, each: u64, keys: u64) -> History<u64, Op, Outcome> {
    let map = Map::default();
    record_threads(threads, each as usize, |thread, recorder| {
        let mut random = SmallRng::seed_from_u64(thread);
        for i in 0..each {
            let op = random_op(&mut random, (thread * each + i) << 20);
            let key = random.random_range(0..keys);
            let yields = random.random_bool(0.1);
            recorder.record(key, op.clone(), || {
                if yields {
                    thread::yield_now();
                }
                perform(&map, key, &op)
            });
        }
    })
}

#[test]
fn a_locked_map_is_linearizable() {
    let history = record(4, 2_000, 8);
    let summary = history.check(&MapEntry::new()).assert_linearizable();
    assert_eq!((summary.operations, summary.keys), (8_000, 8));
}

#[test]
fn a_hundred_thousand_operations_on_one_key_are_decided() {
    let history = record(4, 25_000, 1);
    let summary = history.check(&MapEntry::new()).assert_linearizable();
    assert!(summary.concurrent > 0, "{summary}");
    println!("{summary}");
}

#[test]
fn one_wrong_read_in_a_hundred_thousand_operations_is_found() {
    let mut operations = record(4, 25_000, 1).operations().to_vec();
    operations.sort_by_key(|operation| operation.invoked);
    let late = operations.len() - 100;
    let is_read = |op: &Op| *op == Get;
    let read = operations[late..]
        .iter_mut()
        .find(|o| is_read(&o.op))
        .unwrap();
    read.response.as_mut().unwrap().outcome = Held(Some(u64::MAX));
    let violation = History::new(operations).check(&MapEntry::new()).violation();
    let found = violation.unwrap().operation().to_owned();
    assert_eq!(found, format!("Get -> Held(Some({}))", u64::MAX));
}

#[test]
fn the_seam_between_read_and_write_of_an_increment_is_found() {
    let map = Map::new(HashMap::from([(0, 5)]));
    let both_have_read = Barrier::new(2);
    let history = record_threads(2, 1, |_, recorder| {
        recorder.record(0, Update, || {
            let old = map.lock().unwrap()[&0];
            both_have_read.wait();
            map.lock().unwrap().insert(0, old + 1);
            let (old, new) = (Some(old), Some(old + 1));
            Updated { old, new }
        });
    });
    let verdict = history.check(&MapEntry::holding(5));
    assert!(verdict.violation().is_some());
}

#[test]
fn what_a_thread_did_before_it_panicked_counts() {
    let (map, recording) = (Map::default(), Recording::new());
    let insert = |panics_before: bool| {
        let mut recorder = recording.recorder(1);
        let result = catch_unwind(AssertUnwindSafe(|| {
            recorder.record(7, Insert(1), || {
                assert!(!panics_before, "before the insertion");
                perform(&map, 7, &Insert(1));
                panic!("after it")
            });
        }));
        assert!(result.is_err());
    };
    let get = || {
        let mut recorder = recording.recorder(1);
        recorder.record(7, Get, || perform(&map, 7, &Get)).clone()
    };
    insert(true);
    assert_eq!(get(), Held(None));
    insert(false);
    assert_eq!(get(), Held(Some(1)));
    let history = recording.finish().unwrap();
    history.check(&MapEntry::new()).assert_linearizable();
}

#[test]
fn stamps_of_one_thread_never_overlap() {
    let history = record(3, 100, 1);
    for pair in history.operations().windows(2) {
        let returned = pair[0].response.as_ref().unwrap().returned;
        assert!(pair[0].thread != pair[1].thread || returned < pair[1].invoked);
    }
}

#[test]
fn a_call_on_several_keys_is_an_operation_on_each() {
    let (map, recording) = (Map::default(), Recording::new());
    let mut recorder = recording.recorder(10);
    for key in 0..3 {
        recorder.record(key, Insert(key), || perform(&map, key, &Insert(key)));
    }
    recorder.record_on_each(0..3, Remove, || {
        map.lock().unwrap().clear();
        EntryOutcome::Silent
    });
    for key in 0..3 {
        recorder.record(key, Get, || perform(&map, key, &Get));
    }
    drop(recorder);
    let history = recording.finish().unwrap();
    let summary = history.check(&MapEntry::new()).assert_linearizable();
    assert_eq!((summary.operations, summary.keys), (9, 3));
    let removals = history.operations()[3..6].iter();
    let times: Vec<u64> = removals.map(|removal| removal.invoked).collect();
    assert_eq!(times, [times[0]; 3]);
}

#[test]
fn a_call_on_several_keys_that_panics_is_pending_on_each() {
    let recording: Recording<u64, Op, Outcome> = Recording::new();
    let mut recorder = recording.recorder(2);
    let result = catch_unwind(AssertUnwindSafe(|| {
        recorder.record_on_each(0..2, Remove, || panic!("halfway"));
    }));
    assert!(result.is_err());
    drop(recorder);
    let history = recording.finish().unwrap();
    assert!(history.operations().iter().all(|o| o.response.is_none()));
    assert_eq!(history.operations().len(), 2);
}
