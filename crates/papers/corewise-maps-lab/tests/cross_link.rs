//! Entries that are given other keys: against a model, in recorded histories, and by threads that
//! pass them around.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

use std::collections::{BTreeMap, HashMap};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use corewise_maps_lab::cross_link::{CrossLinkMap, MoveError};
use corewise_rcu::Domain;
use corewise_testkit::history::{Model, Recorder, Verdict, record_threads};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

type Moved = CrossLinkMap<u64>;

fn map() -> Moved {
    CrossLinkMap::with_buckets(16)
}

fn get(map: &Moved, key: u64) -> Option<u64> {
    map.get(&map.domain().pin(), key).copied()
}

fn into_sorted(mut map: Moved) -> Vec<(u64, u64)> {
    let mut entries = Vec::new();
    map.for_each(|key, value| entries.push((key, *value)));
    entries.sort_unstable();
    entries
}

/// A reference outlives moves; and updates in a section are refused, which would wait for it.
#[test]
fn a_moved_entry_stays_where_it_is() {
    let map: CrossLinkMap<String> = CrossLinkMap::with_buckets(4);
    map.insert(0, "value".to_owned()).unwrap();
    let place = |key| std::ptr::from_ref(map.get(&map.domain().pin(), key).unwrap());
    let value = place(0);
    for key in 0..100 {
        map.move_entry(key, key + 1).unwrap();
    }
    assert!(std::ptr::eq(place(100), value));
    std::thread::scope(|scope| {
        let section = map.domain().pin();
        let held = map.get(&section, 100).unwrap();
        let mover = scope.spawn(|| map.move_entry(100, 101));
        while map.get(&section, 101).is_none() {
            std::thread::yield_now();
        }
        assert_eq!((held.as_str(), map.get(&section, 100)), ("value", None));
        drop(section);
        assert_eq!(mover.join().unwrap(), Ok(()));
    });
    let section = map.domain().pin();
    let refused =
        |update: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(update)).is_err();
    assert!(refused(&|| assert_eq!(
        map.insert(7, String::new()),
        Ok(())
    )));
    assert!(refused(&|| assert_eq!(map.move_entry(101, 7), Ok(()))));
    assert!(refused(&|| assert!(map.remove(101))));
    drop(section);
    assert!(map.remove(101) && map.is_empty());
}

#[test]
fn a_moved_value_is_dropped_once() {
    let value = std::sync::Arc::new(());
    let map = CrossLinkMap::<_, _>::in_domain(8, std::hash::RandomState::new(), Domain::new());
    for key in 0..50 {
        map.insert(key, value.clone()).unwrap();
    }
    assert!(map.insert(7, value.clone()).is_err());
    (0..50).for_each(|key| map.move_entry(key, key + 50).unwrap());
    (50..75).for_each(|key| assert!(map.remove(key)));
    map.domain().barrier();
    assert_eq!((std::sync::Arc::strong_count(&value), map.len()), (26, 25));
    drop(map);
    assert_eq!(std::sync::Arc::strong_count(&value), 1);
}

#[test]
fn it_does_what_a_model_does() {
    for seed in 0..20 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (map, mut model) = (map(), HashMap::new());
        for step in 0..3_000_u64 {
            let (key, other) = (rng.random_range(0..40_u64), rng.random_range(0..40_u64));
            match rng.random_range(0..4) {
                0 => {
                    assert_eq!(map.insert(key, step).is_ok(), !model.contains_key(&key));
                    model.entry(key).or_insert(step);
                }
                1 => assert_eq!(map.remove(key), model.remove(&key).is_some()),
                2 => {
                    let expected = match model.get(&key) {
                        None => Err(MoveError::NotFound),
                        Some(_) if other != key && model.contains_key(&other) => {
                            Err(MoveError::Occupied)
                        }
                        Some(value) => Ok(*value),
                    };
                    assert_eq!(map.move_entry(key, other), expected.map(|_| ()));
                    if let Ok(value) = expected {
                        model.remove(&key);
                        model.insert(other, value);
                    }
                }
                _ => assert_eq!(get(&map, key), model.get(&key).copied()),
            }
        }
        let sorted: BTreeMap<_, _> = model.into_iter().collect();
        assert_eq!(map.len(), sorted.len());
        assert!(into_sorted(map).into_iter().eq(sorted));
    }
}

/// An entry that only moves to higher keys is found by a thread that looks at the keys in ascending
/// order.
#[test]
fn a_walk_along_the_path_of_an_entry_meets_it() {
    const LAST: u64 = 2_000;
    let mut on_the_way = 0;
    for _ in 0..20 {
        let (map, done) = (map(), AtomicBool::new(false));
        map.insert(0, 1).unwrap();
        // Other entries in the same chains.
        (LAST + 1..2 * LAST).for_each(|key| map.insert(key, 0).unwrap());
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                for key in 0..LAST {
                    assert_eq!(map.move_entry(key, key + 1), Ok(()));
                }
                done.store(true, Relaxed);
            });
            start.wait();
            while !done.load(Relaxed) {
                let met = (0..=LAST).find(|key| get(&map, *key) == Some(1));
                let met = met.expect("missed on its way");
                on_the_way += u64::from(met > 0 && met < LAST);
            }
        });
    }
    assert!(on_the_way > 0);
}

const THREADS: u64 = 3;
const KEYS: usize = 3;

/// All keys together, since a move concerns two. The map promises an order of operations on
/// different keys as far as happens-before orders them, and the recorder's stamps do that.
#[derive(Default)]
struct Whole;

#[derive(Clone, Copy, Debug)]
enum Op {
    Get(usize),
    Insert(usize, u64),
    Remove(usize),
    Move(usize, usize),
}

/// The value that was found or inserted; for removals and moves, none.
type Outcome = Result<Option<u64>, Option<MoveError>>;

impl Whole {
    fn run(state: &mut [Option<u64>; KEYS], op: &Op) -> Outcome {
        match *op {
            Op::Get(key) => state[key].ok_or(None).map(Some),
            Op::Remove(key) => state[key].take().ok_or(None).map(|_| None),
            Op::Insert(key, value) => match state[key] {
                Some(_) => Err(None),
                None => Ok(Some(*state[key].insert(value))),
            },
            Op::Move(old, new) => match (state[old], state[new]) {
                (None, _) => Err(Some(MoveError::NotFound)),
                (Some(_), _) if old == new => Ok(None),
                (Some(_), Some(_)) => Err(Some(MoveError::Occupied)),
                (Some(_), None) => {
                    state[new] = state[old].take();
                    Ok(None)
                }
            },
        }
    }
}

impl Model for Whole {
    type State = [Option<u64>; KEYS];
    type Op = Op;
    type Outcome = Outcome;

    fn initial(&self) -> Self::State {
        Default::default()
    }

    fn step(&self, state: &Self::State, op: &Op, outcome: &Outcome) -> Option<Self::State> {
        let mut state = *state;
        (Self::run(&mut state, op) == *outcome).then_some(state)
    }

    fn pending(&self, state: &Self::State, op: &Op) -> Vec<Self::State> {
        let mut state = *state;
        let _ = Self::run(&mut state, op);
        vec![state]
    }

    fn only_reads(&self, op: &Op, outcome: &Outcome) -> bool {
        matches!(op, Op::Get(_)) || outcome.is_err()
    }
}

fn perform(map: &Moved, op: &Op) -> Outcome {
    let done = |done: bool, value| if done { Ok(value) } else { Err(None) };
    match *op {
        Op::Get(key) => get(map, key as u64).ok_or(None).map(Some),
        Op::Insert(key, value) => done(map.insert(key as u64, value).is_ok(), Some(value)),
        Op::Remove(key) => done(map.remove(key as u64), None),
        Op::Move(old, new) => match map.move_entry(old as u64, new as u64) {
            Ok(()) => Ok(None),
            Err(error) => Err(Some(error)),
        },
    }
}

/// A move in two steps.
fn perform_in_two(map: &Moved, op: &Op) -> Outcome {
    let Op::Move(old, new) = *op else {
        return perform(map, op);
    };
    let not_found = Err(Some(MoveError::NotFound));
    let Ok(Some(value)) = perform(map, &Op::Get(old)) else {
        return not_found;
    };
    if perform(map, &Op::Remove(old)).is_err() {
        return not_found;
    }
    std::thread::yield_now();
    let inserted = perform(map, &Op::Insert(new, value));
    inserted
        .map(|_| None)
        .map_err(|_| Some(MoveError::Occupied))
}

fn draw(rng: &mut SmallRng, fresh: u64) -> Op {
    let (key, other) = (rng.random_range(0..KEYS), rng.random_range(0..KEYS));
    match rng.random_range(0..10) {
        0 | 1 => Op::Insert(key, fresh),
        2 => Op::Remove(key),
        3..7 => Op::Move(key, other),
        _ => Op::Get(key),
    }
}

fn run_thread(
    perform: impl Fn(&Op) -> Outcome,
    thread: u64,
    seed: u64,
    recorder: &mut Recorder<(), Op, Outcome>,
) {
    let mut rng = SmallRng::seed_from_u64(seed << 8 | thread);
    for call in 0..1_000 {
        let op = draw(&mut rng, call * THREADS + thread);
        let late = rng.random_range(0..10) == 0;
        recorder.record((), op, || {
            if late {
                std::thread::yield_now();
            }
            perform(&op)
        });
    }
}

/// The checker's verdict on a history of three threads.
fn check(seed: u64, perform: fn(&Moved, &Op) -> Outcome) -> Verdict {
    let map = map();
    let history = record_threads(THREADS, 1_000, |thread, recorder| {
        run_thread(|op| perform(&map, op), thread, seed, recorder);
    });
    history.check(&Whole)
}

#[test]
fn histories_of_all_keys_together_are_linearizable() {
    let summaries = (0..20).map(|seed| check(seed, perform).assert_linearizable());
    let overlapping: usize = summaries.map(|summary| summary.concurrent).sum();
    assert!(overlapping > 0, "no call overlapped another");
}

#[test]
fn the_checker_detects_a_move_in_two_steps() {
    assert!((0..50).any(|seed| check(seed, perform_in_two).violation().is_some()));
}

#[test]
fn moves_by_several_threads_lose_no_entry() {
    const ENTRIES: u64 = 50;
    const PLACES: u64 = 120;
    let map = map();
    (0..ENTRIES).for_each(|entry| map.insert(entry, 1_000 + entry).unwrap());
    let moved = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (map, moved) = (&map, &moved);
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(thread);
                for _ in 0..20_000 {
                    let (old, new) = (rng.random_range(0..PLACES), rng.random_range(0..PLACES));
                    let done = map.move_entry(old, new).is_ok();
                    moved.fetch_add(usize::from(done && old != new), Relaxed);
                }
            });
        }
    });
    assert!(moved.load(Relaxed) > 0);
    assert_eq!(map.len(), ENTRIES as usize);
    let mut values: Vec<u64> = into_sorted(map).iter().map(|(_, value)| *value).collect();
    values.sort_unstable();
    assert_eq!(values, (1_000..1_000 + ENTRIES).collect::<Vec<_>>());
}
