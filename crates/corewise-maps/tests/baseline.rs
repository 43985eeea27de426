//! The baselines are hash maps, whatever is resized meanwhile.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use corewise_history::Recording;
use corewise_history::models::{EntryOp, EntryOutcome, MapEntry};
use corewise_maps::baseline::{Ddds, RwLocked};
use corewise_maps::chained::{ChainedMap, Table};
use corewise_maps::relativistic::ResizeError;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

type Map<V, A> = ChainedMap<u64, V, A>;

/// Each of these is a test for each table.
macro_rules! for_both {
    ($($test:ident)+) => {
        mod ddds {
            $(#[test] fn $test() { super::$test::<super::Ddds>(); })+
        }
        mod rwlocked {
            $(#[test] fn $test() { super::$test::<super::RwLocked>(); })+
        }
    };
}

for_both! {
    it_does_what_a_std_map_does
    histories_are_linearizable_while_it_is_resized
    present_keys_are_found_whatever_others_do
    what_is_lent_outlives_removals_and_resizes
    resizes_that_cannot_be_are_refused
    keys_whose_hashes_are_equal_are_told_apart
    a_panic_in_eq_leaves_it_as_it_was
}

fn it_does_what_a_std_map_does<A: Table>() {
    for seed in 0..4 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let map = Map::<u64, A>::with_buckets(1);
        let mut model = HashMap::new();
        for step in 0..20_000u64 {
            let key = rng.random_range(0..300);
            match rng.random_range(0..100) {
                0..40 => {
                    let inserted = !model.contains_key(&key);
                    assert_eq!(map.pin().insert(key, step), inserted);
                    model.entry(key).or_insert(step);
                }
                40..70 => assert_eq!(map.pin().remove(&key).copied(), model.remove(&key)),
                70..99 => assert_eq!(map.pin().get(&key), model.get(&key)),
                _ => {
                    let buckets = 1 << rng.random_range(0..12);
                    map.resize_to(buckets).unwrap();
                    assert_eq!(map.buckets(), buckets);
                }
            }
            assert_eq!(map.len(), model.len());
        }
        let mut map = map;
        let mut entries = HashMap::new();
        map.for_each(|key, value| assert!(entries.insert(*key, *value).is_none()));
        assert_eq!(entries, model);
        assert!(model.iter().all(|(key, value)| map.pin().get(key) == Some(value)));
    }
}

const THREADS: u64 = 3;
const CALLS: u64 = 2_000;

fn perform<A: Table>(map: &Map<u64, A>, key: u64, op: &EntryOp<u64>) -> EntryOutcome<u64> {
    let map = map.pin();
    EntryOutcome::Held(match op {
        EntryOp::TryInsert(value) => map.try_insert(key, *value).err().copied(),
        EntryOp::Remove => map.remove(&key).copied(),
        _ => map.get(&key).copied(),
    })
}

fn histories_are_linearizable_while_it_is_resized<A: Table>() {
    let mut overlapping = 0;
    for seed in 0..10 {
        let map = Map::<u64, A>::with_buckets(4);
        let (recording, stop) = (Recording::new(), AtomicBool::new(false));
        let start = Barrier::new(THREADS as usize + 1);
        std::thread::scope(|scope| {
            let (map, start) = (&map, &start);
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let mut recorder = recording.recorder(CALLS as usize);
                    scope.spawn(move || {
                        let mut rng = SmallRng::seed_from_u64(seed << 8 | thread);
                        start.wait();
                        for call in 0..CALLS {
                            let key = rng.random_range(0..6);
                            let op = match rng.random_range(0..5) {
                                // No two writes are of the same value.
                                0 | 1 => EntryOp::TryInsert(call * THREADS + thread),
                                2 => EntryOp::Remove,
                                _ => EntryOp::Get,
                            };
                            let late = rng.random_range(0..20) == 0;
                            recorder.record(key, op.clone(), || {
                                if late {
                                    std::thread::yield_now();
                                }
                                perform(map, key, &op)
                            });
                        }
                    })
                })
                .collect();
            let stop = &stop;
            scope.spawn(move || {
                let sizes = [2, 8, 4, 1, 64, 16].into_iter().cycle();
                start.wait();
                for buckets in sizes {
                    map.resize_to(buckets).unwrap();
                    if stop.load(Relaxed) {
                        break;
                    }
                }
            });
            let done: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            stop.store(true, Relaxed);
            assert!(done.iter().all(Result::is_ok), "a thread has panicked");
        });
        let history = recording.finish().expect("all recorders are back");
        overlapping += history
            .check(&MapEntry::new())
            .assert_linearizable()
            .concurrent;
    }
    assert!(overlapping > 0, "no call overlapped another");
}

/// A value that can be told from freed memory.
struct Value(u64, Box<u64>);

impl Value {
    fn new(n: u64) -> Self {
        Self(n ^ ALIVE, Box::new(n))
    }

    fn check(&self) {
        assert_eq!(self.0 ^ ALIVE, *self.1, "a dropped value is seen");
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.check();
        self.0 = 0;
    }
}

const ALIVE: u64 = 0x5eed_5eed_5eed_5eed;
/// Keys below this are always present.
const STABLE: u64 = 2_000;

fn for_a_while() -> Duration {
    let ms = std::env::var("COREWISE_STRESS_MS").ok();
    Duration::from_millis(ms.and_then(|ms| ms.parse().ok()).unwrap_or(500))
}

fn look<A: Table>(map: &Map<Value, A>, seed: u64, go_on: &AtomicBool) -> u64 {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut hits = 0;
    while go_on.load(Relaxed) {
        let handle = map.pin();
        for _ in 0..rng.random_range(1..50) {
            let key = rng.random_range(0..2 * STABLE);
            let value = handle.get(&key);
            assert!(key >= STABLE || value.is_some(), "{key} is missing");
            hits += u64::from(key < STABLE);
            value.inspect(|value| value.check());
        }
    }
    hits
}

/// Inserts and removes keys of its own, which nobody else changes.
fn change<A: Table>(map: &Map<Value, A>, thread: u64, go_on: &AtomicBool) {
    let mut rng = SmallRng::seed_from_u64(thread);
    let mut there = vec![false; 1_000];
    while go_on.load(Relaxed) {
        let at = rng.random_range(0..there.len());
        let key = STABLE + 2 * at as u64 + thread;
        let handle = map.pin();
        match there[at] {
            true => handle.remove(&key).expect("we have inserted it").check(),
            false => assert!(handle.insert(key, Value::new(key))),
        }
        there[at] = !there[at];
        assert_eq!(handle.get(&key).is_some(), there[at]);
    }
}

fn present_keys_are_found_whatever_others_do<A: Table>() {
    let map = Map::<Value, A>::with_buckets(64);
    (0..STABLE).for_each(|key| assert!(map.pin().insert(key, Value::new(key))));
    let go_on = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|seed| scope.spawn({ let (map, go_on) = (&map, &go_on); move || look(map, seed, go_on) }))
            .collect();
        for thread in 0..2 {
            let (map, go_on) = (&map, &go_on);
            scope.spawn(move || change(map, thread, go_on));
        }
        let end = Instant::now() + for_a_while();
        let mut sizes = [16, 4, 2048, 512, 1, 256].into_iter().cycle();
        while Instant::now() < end {
            map.resize_to(sizes.next().unwrap()).unwrap();
        }
        go_on.store(false, Relaxed);
        for reader in readers {
            assert!(reader.join().unwrap() > 0);
        }
    });
    let mut map = map;
    let mut stable = 0;
    map.for_each(|key, value| {
        value.check();
        stable += u64::from(*key < STABLE);
    });
    assert_eq!(stable, STABLE);
}

fn what_is_lent_outlives_removals_and_resizes<A: Table>() {
    let map = Arc::new(Map::<Value, A>::with_buckets(4));
    assert!(map.pin().insert(1, Value::new(1)));
    let handle = map.pin();
    let value = handle.get(&1).unwrap();
    let other = map.clone();
    let resizer = std::thread::spawn(move || {
        assert!(other.pin().remove(&1).is_some());
        other.resize_to(64).unwrap();
    });
    while map.pin().contains_key(&1) {
        std::thread::yield_now();
    }
    value.check();
    drop(handle);
    resizer.join().unwrap();
}

fn resizes_that_cannot_be_are_refused<A: Table>() {
    let map = Map::<u64, A>::with_buckets(4);
    assert!(map.pin().insert(1, 1));
    assert_eq!(map.resize_to(0), Err(ResizeError::NoBuckets));
    assert_eq!(map.resize_to(usize::MAX), Err(ResizeError::NoMemory));
    assert_eq!(map.resize_to(1 << 62), Err(ResizeError::NoMemory));
    let handle = map.pin();
    assert_eq!(map.resize_to(8), Err(ResizeError::Pinned));
    drop(handle);
    assert_eq!((map.buckets(), map.pin().get(&1)), (4, Some(&1)));
    assert_eq!(map.resize_to(5).unwrap().passes, 1);
    assert_eq!(map.buckets(), 8);
    assert_eq!(map.resize_to(8).unwrap().passes, 0, "it has as many");
}

/// Every hash is the same.
#[derive(Clone, Default)]
struct Same;

impl std::hash::BuildHasher for Same {
    type Hasher = Same;
    fn build_hasher(&self) -> Same {
        Same
    }
}

impl std::hash::Hasher for Same {
    fn finish(&self) -> u64 {
        u64::MAX
    }
    fn write(&mut self, _: &[u8]) {}
}

fn keys_whose_hashes_are_equal_are_told_apart<A: Table>() {
    let map = ChainedMap::<u64, u64, A, Same>::with_buckets(2);
    assert!((0..20).all(|key| map.pin().insert(key, key)));
    map.resize_to(16).unwrap();
    assert!((0..20).all(|key| map.pin().get(&key) == Some(&key)));
    assert!((0..20).step_by(2).all(|key| map.pin().remove(&key).is_some()));
    map.resize_to(1).unwrap();
    assert!((0..20).all(|key| map.pin().contains_key(&key) == (key % 2 == 1)));
}

/// A key that does not like to be compared with 13.
#[derive(Debug, Hash)]
struct Superstitious(u64);

impl PartialEq for Superstitious {
    fn eq(&self, other: &Self) -> bool {
        assert!(self.0 != 13 || other.0 != 13, "bad luck");
        self.0 == other.0
    }
}

impl Eq for Superstitious {}

fn a_panic_in_eq_leaves_it_as_it_was<A: Table>() {
    let map = ChainedMap::<Superstitious, u64, A, Same>::with_buckets(2);
    assert!((10..16).all(|key| map.pin().insert(Superstitious(key), key)));
    let panics = |call: &dyn Fn()| {
        let call = std::panic::AssertUnwindSafe(call);
        assert!(std::panic::catch_unwind(call).is_err());
    };
    panics(&|| assert!(map.pin().get(&Superstitious(13)).is_none()));
    panics(&|| assert!(map.pin().insert(Superstitious(13), 0)));
    panics(&|| assert!(map.pin().remove(&Superstitious(13)).is_none()));
    map.resize_to(8).unwrap();
    assert_eq!(map.len(), 6);
    assert!((14..16).all(|key| map.pin().remove(&Superstitious(key)).is_some()));
    assert!(map.pin().insert(Superstitious(16), 16));
}
