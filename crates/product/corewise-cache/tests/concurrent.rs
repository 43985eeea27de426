//! Guarantee 2, and iteration beside updates.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use corewise_cache::Cache;
use corewise_testkit::history::models::{EntryOp, EntryOutcome, EvictingEntry, MapEntry};
use corewise_testkit::history::{History, Recorder, record_beside};
use corewise_testkit::stress;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

type Op = EntryOp<u64>;
type Outcome = EntryOutcome<u64>;

const THREADS: u64 = 3;
const KEYS: u64 = 4;
const CALLS: u64 = 2000;

trait Perform: Sync {
    fn perform(&self, key: u64, op: &Op) -> Outcome;
}

impl Perform for Cache<u64, u64> {
    fn perform(&self, key: u64, op: &Op) -> Outcome {
        match *op {
            EntryOp::Insert(value) => {
                self.insert(key, value).unwrap();
                EntryOutcome::Silent
            }
            EntryOp::Remove => EntryOutcome::Held(self.remove(&key)),
            _ => EntryOutcome::Held(self.get(&key)),
        }
    }
}

/// A cache whose `remove` is a lookup and then a removal.
struct TwoSteps(Cache<u64, u64>);

impl Perform for TwoSteps {
    fn perform(&self, key: u64, op: &Op) -> Outcome {
        let EntryOp::Remove = op else {
            return self.0.perform(key, op);
        };
        let held = self.0.peek(&key);
        thread::yield_now();
        self.0.remove(&key);
        EntryOutcome::Held(held)
    }
}

fn run_thread(
    cache: &impl Perform,
    seed: u64,
    thread: u64,
    recorder: &mut Recorder<u64, Op, Outcome>,
) {
    let mut rng = SmallRng::seed_from_u64(seed << 8 | thread);
    // Held over some of the calls, so that grace periods end late.
    let mut guard = None;
    for call in 0..CALLS {
        let key = rng.random_range(0..KEYS);
        let op = match rng.random_range(0..8) {
            // No two insertions have the same value.
            0..3 => EntryOp::Insert(call * THREADS + thread),
            3..5 => EntryOp::Remove,
            _ => EntryOp::Get,
        };
        match rng.random_range(0..100) {
            0 => guard = Some(corewise_rcu::pin()),
            1..10 => guard = None,
            10..15 => thread::yield_now(),
            _ => {}
        }
        recorder.record(key, op.clone(), || cache.perform(key, &op));
    }
    drop(guard);
}

/// Records what threads do while another one calls `meanwhile` with ascending numbers.
fn record(
    cache: &impl Perform,
    seed: u64,
    meanwhile: impl Fn(u64) + Send + Sync,
) -> History<u64, Op, Outcome> {
    let is_over = AtomicBool::new(false);
    let beside = || {
        (0..)
            .take_while(|_| !is_over.load(Relaxed))
            .for_each(&meanwhile)
    };
    record_beside(
        THREADS,
        CALLS as usize,
        &is_over,
        beside,
        |thread, recorder| {
            run_thread(cache, seed, thread, recorder);
        },
    )
}

/// Other keys, so that the table grows and shrinks.
fn insert_others(cache: &Cache<u64, u64>, number: u64) {
    let number = number % 4000;
    if number < 2000 {
        cache.insert(1000 + number, 0).unwrap();
    } else {
        cache.remove(&(1000 + number - 2000));
    }
}

#[test]
fn histories_are_linearizable_beside_other_keys() {
    let mut overlapping = 0;
    for seed in 0..6 {
        let cache = Cache::new(100_000);
        let history = record(&cache, seed, |number| insert_others(&cache, number));
        let checked = history.check(&MapEntry::new()).assert_linearizable();
        overlapping += checked.concurrent;
    }
    assert!(overlapping > 0, "no call overlapped another");
}

/// An entry that was evicted does not come back.
#[test]
fn histories_are_linearizable_beside_evictions() {
    let mut evictions = 0;
    for seed in 0..6 {
        let cache = Cache::new(6);
        let history = record(&cache, seed, |number| {
            cache.insert(1000 + number % 30, 0).unwrap();
        });
        history.check(&EvictingEntry::new()).assert_linearizable();
        evictions += cache.statistics().evictions;
    }
    assert!(evictions > 0);
}

#[test]
fn the_checker_detects_a_removal_in_two_steps() {
    let found = (0..50).any(|seed| {
        let cache = TwoSteps(Cache::new(100_000));
        let history = record(&cache, seed, |_| thread::yield_now());
        history.check(&MapEntry::new()).violation().is_some()
    });
    assert!(found);
}

#[test]
fn iteration_beside_updates_yields_each_lasting_entry_once() {
    const LASTING: u64 = 200;
    let cache = Cache::new(100_000);
    for key in 0..LASTING {
        cache.insert(key, key << 32).unwrap();
    }
    let is_over = AtomicBool::new(false);
    let update = || {
        for number in (0..).take_while(|_| !is_over.load(Relaxed)) {
            insert_others(&cache, number);
            let key = number % LASTING;
            cache.insert(key, key << 32 | number & 0xffff).unwrap();
        }
    };
    let others_seen: Vec<usize> = stress::beside(2, &is_over, update, |_| {
        let mut others = 0;
        for _ in 0..60 {
            let entries = cache.entries();
            let mut seen = HashMap::new();
            for (key, value) in entries.iter().filter(|(key, _)| *key < LASTING) {
                assert_eq!(value >> 32, *key);
                *seen.entry(*key).or_insert(0) += 1;
            }
            assert_eq!(seen.len() as u64, LASTING);
            // An entry that is replaced meanwhile may be yielded with both values.
            others += entries.len() - seen.values().sum::<usize>();
        }
        others
    });
    assert!(others_seen.iter().sum::<usize>() > 0);
}
