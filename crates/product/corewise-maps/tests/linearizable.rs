//! Recorded histories of several threads on a few keys, while the table is resized continuously,
//! checked for linearizability key by key.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use corewise_maps::RelativisticMap;
use corewise_maps::relativistic::{Compute, Operation};
use corewise_testkit::history::models::{EntryOp, EntryOutcome, MapEntry};
use corewise_testkit::history::{History, Recorder, record_beside};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

type Map = RelativisticMap<u64, u64>;
type Op = EntryOp<u64>;
type Outcome = EntryOutcome<u64>;

const THREADS: u64 = 3;
const KEYS: u64 = 4;
const CALLS: usize = 2_000;

/// How a thread performs an operation.
trait Perform {
    fn perform(&self, key: u64, op: &Op) -> Outcome;

    /// The results of a batch of lookups.
    fn get_batch(&self, keys: [u64; KEYS as usize]) -> [Outcome; KEYS as usize] {
        keys.map(|key| self.perform(key, &EntryOp::Get))
    }
}

impl Perform for Map {
    fn perform(&self, key: u64, op: &Op) -> Outcome {
        let map = self.pin();
        match *op {
            EntryOp::Insert(value) => EntryOutcome::Held(map.insert(key, value).copied()),
            EntryOp::TryInsert(value) => match map.try_insert(key, value) {
                Ok(_) => EntryOutcome::Held(None),
                Err(occupied) => EntryOutcome::Held(Some(*occupied.current)),
            },
            EntryOp::Remove => EntryOutcome::Held(map.remove(&key).copied()),
            EntryOp::Update => {
                let seen = Cell::new(None);
                let new = map.update(&key, |old| {
                    seen.set(Some(*old));
                    old + 1
                });
                let new = new.copied();
                let old = new.and(seen.get());
                EntryOutcome::Updated { old, new }
            }
            EntryOp::CompareExchange { expected, new } => {
                let seen = Cell::new(None);
                map.compute(key, |entry| {
                    seen.set(entry.map(|(_, value)| *value));
                    match new {
                        _ if seen.get() != expected => Operation::Abort(()),
                        Some(new) => Operation::Insert(new),
                        None => Operation::Remove,
                    }
                });
                EntryOutcome::Held(seen.get())
            }
            _ => EntryOutcome::Held(map.get(&key).copied()),
        }
    }

    fn get_batch(&self, keys: [u64; KEYS as usize]) -> [Outcome; KEYS as usize] {
        let (map, mut out) = (self.pin(), [None; KEYS as usize]);
        map.get_many(&keys, &mut out);
        out.map(|held| EntryOutcome::Held(held.copied()))
    }
}

/// A map whose operations are performed by others of the same meaning. Its updates insert if the
/// key is absent.
struct Upserting(Map);

/// Replaces a value, or inserts it, in one of several ways; returns the old and the new value.
fn upsert(map: &Map, key: u64, fresh: u64) -> (Option<u64>, u64) {
    let seen = Cell::new(None);
    let change = |old: &u64| {
        seen.set(Some(*old));
        old + 1
    };
    let modify = |old: &mut u64| *old = change(old);
    let handle = map.pin_owned();
    // Called after a change that came too late, if at all: the key was removed meanwhile.
    let make = || {
        seen.set(None);
        fresh
    };
    let new = match fresh % 3 {
        0 => *handle.update_or_insert_with(key, change, make),
        1 => *handle.entry(key).and_modify(modify).or_insert_with(make),
        _ => {
            let decide = |entry: Option<(&u64, &u64)>| {
                seen.set(entry.map(|(_, old)| *old));
                Operation::<_, ()>::Insert(entry.map_or(fresh, |(_, old)| old + 1))
            };
            match handle.compute(key, decide) {
                Compute::Inserted(_, new) | Compute::Updated { new: (_, new), .. } => *new,
                _ => unreachable!(),
            }
        }
    };
    // A change that failed because the entry was removed may have been the last call.
    (if new == fresh { None } else { seen.get() }, new)
}

impl Perform for Upserting {
    fn perform(&self, key: u64, op: &Op) -> Outcome {
        let map = &self.0;
        match *op {
            // No two operations have the same fresh value, so none is that of an increment.
            EntryOp::Update => {
                let fresh = FRESH.fetch_add(1 << 16, Relaxed);
                let (old, new) = upsert(map, key, fresh);
                let new = Some(new);
                EntryOutcome::Updated { old, new }
            }
            EntryOp::TryInsert(value) if value % 2 == 0 => {
                match map.pin().try_insert_with(key, || value) {
                    Ok(_) => EntryOutcome::Held(None),
                    Err(present) => EntryOutcome::Held(Some(*present)),
                }
            }
            EntryOp::TryInsert(value) => {
                let handle = map.pin();
                let held = *match value >> 17 & 1 {
                    0 => handle.entry(key).or_insert(value),
                    _ => handle.get_or_insert(key, value),
                };
                EntryOutcome::Held((held != value).then_some(held))
            }
            EntryOp::Insert(value) => EntryOutcome::Held(map.insert(key, value).map(|old| *old)),
            EntryOp::Remove => EntryOutcome::Held(map.remove(&key).map(|old| *old)),
            EntryOp::CompareExchange {
                expected: Some(expected),
                new: None,
            } => {
                let handle = map.pin();
                let is_expected = |_: &u64, held: &u64| *held == expected;
                EntryOutcome::Held(match handle.remove_if(&key, is_expected) {
                    Ok(removed) => removed.map(|(_, value)| *value),
                    Err((_, held)) => Some(*held),
                })
            }
            EntryOp::Get => EntryOutcome::Held(map.get_cloned(&key)),
            _ => map.perform(key, op),
        }
    }
}

/// Values of upserts: with a low half that increments do not leave, like all others.
static FRESH: AtomicU64 = AtomicU64::new(1 << 40);

#[test]
fn histories_of_upserts_are_linearizable() {
    for seed in 0..10 {
        let mut sizes = [2, 6, 3, 1, 8, 64, 16, 4].into_iter().cycle();
        let map = Map::builder().automatic_resize(false).buckets(4).build();
        let history = record(&Arc::new(Upserting(map)), seed, |map| {
            map.0.resize_to(sizes.next().unwrap()).unwrap();
        });
        history.check(&MapEntry::new()).assert_linearizable();
    }
}

/// A map whose updates are a separate read and write.
struct TwoSteps(Map);

impl Perform for TwoSteps {
    fn perform(&self, key: u64, op: &Op) -> Outcome {
        let EntryOp::Update = op else {
            return self.0.perform(key, op);
        };
        let old = self.0.pin().get(&key).copied();
        std::thread::yield_now();
        let new = old.map(|old| old + 1);
        if let Some(new) = new {
            self.0.pin().insert(key, new);
        }
        EntryOutcome::Updated { old, new }
    }
}

/// Draws a random operation; `held` returns a recent value of the entry.
fn draw(rng: &mut SmallRng, fresh: u64, held: impl FnOnce() -> Option<u64>) -> Op {
    match rng.random_range(0..12) {
        0 | 1 => EntryOp::Insert(fresh),
        10 | 11 => EntryOp::CompareExchange {
            expected: held(),
            new: rng.random_bool(0.7).then_some(fresh),
        },
        2 => EntryOp::TryInsert(fresh),
        3 | 4 => EntryOp::Remove,
        5 | 6 => EntryOp::Update,
        _ => EntryOp::Get,
    }
}

fn run_thread(
    map: &impl Perform,
    thread: u64,
    seed: u64,
    recorder: &mut Recorder<u64, Op, Outcome>,
) {
    let mut rng = SmallRng::seed_from_u64(seed << 8 | thread);
    // Held over some of the calls, so that grace periods end late, and in the middle of a resize.
    let mut guard = None;
    for call in 0..CALLS as u64 {
        let key = rng.random_range(0..KEYS);
        // No two writes have the same value, apart from increments.
        let held = || match map.perform(key, &EntryOp::Get) {
            EntryOutcome::Held(held) => held,
            _ => None,
        };
        let op = draw(&mut rng, (call * THREADS + thread) << 16, held);
        match rng.random_range(0..100) {
            0 => guard = Some(corewise_rcu::pin()),
            1..10 => guard = None,
            _ => {}
        }
        if rng.random_range(0..8) == 0 {
            let keys = std::array::from_fn(|at| at as u64);
            recorder.record_batch(keys, EntryOp::Get, || map.get_batch(keys));
            continue;
        }
        let late = rng.random_range(0..20) == 0;
        recorder.record(key, op.clone(), || {
            if late {
                std::thread::yield_now();
            }
            map.perform(key, &op)
        });
    }
    drop(guard);
}

/// Records what threads do to a map while another thread repeats `meanwhile`.
fn record<M: Perform + Send + Sync + 'static>(
    map: &Arc<M>,
    seed: u64,
    mut meanwhile: impl FnMut(&M) + Send,
) -> History<u64, Op, Outcome> {
    // At least once.
    meanwhile(map);
    let stop = AtomicBool::new(false);
    let beside = || {
        while !stop.load(Relaxed) {
            meanwhile(map);
        }
    };
    record_beside(THREADS, 2 * CALLS, &stop, beside, |thread, recorder| {
        run_thread(&**map, thread, seed, recorder);
    })
}

#[test]
fn histories_are_linearizable_while_the_table_is_resized() {
    let mut overlapping = 0;
    for seed in 0..10 {
        let mut sizes = [2, 6, 3, 1, 8, 64, 16, 4].into_iter().cycle();
        let map = Arc::new(Map::builder().automatic_resize(false).buckets(4).build());
        let history = record(&map, seed, |map| {
            map.resize_to(sizes.next().unwrap()).unwrap();
        });
        overlapping += history
            .check(&MapEntry::new())
            .assert_linearizable()
            .concurrent;
        assert!(map.resize_state().completed > 0);
    }
    assert!(overlapping > 0, "no call overlapped another");
}

#[test]
fn histories_are_linearizable_while_expansions_are_stacked() {
    for seed in 0..10 {
        let map = Arc::new(Map::builder().automatic_resize(false).buckets(1).build());
        let history = record(&map, seed, |map| {
            // Nothing is unzipped under this guard, and everything afterwards.
            let guard = corewise_rcu::pin();
            for entries in [2, 8, 32] {
                map.reserve(entries).unwrap();
                std::thread::yield_now();
            }
            drop(guard);
            map.resize_to(1).unwrap();
        });
        history.check(&MapEntry::new()).assert_linearizable();
    }
}

#[test]
fn histories_are_linearizable_while_the_table_grows_and_shrinks_by_itself() {
    for seed in 0..5 {
        let map = Arc::new(Map::new());
        let history = record(&map, seed, |map| {
            (0..2_000).for_each(|key| {
                map.pin().insert(1_000 + key, 0);
            });
            (0..2_000).for_each(|key| {
                map.pin().remove(&(1_000 + key));
            });
        });
        history.check(&MapEntry::new()).assert_linearizable();
    }
}

#[test]
fn the_checker_detects_an_update_in_two_steps() {
    let found = (0..50).any(|seed| {
        let map = Arc::new(TwoSteps(Map::new()));
        let history = record(&map, seed, |_| std::thread::yield_now());
        history.check(&MapEntry::new()).violation().is_some()
    });
    assert!(found);
}
