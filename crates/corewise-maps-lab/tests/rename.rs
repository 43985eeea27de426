//! Entries that are given other keys: against a model, in recorded histories, and by threads that
//! pass them around.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

use std::collections::{BTreeMap, HashMap};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use corewise_maps_lab::rename::{RenameError, RenameMap};
use corewise_testkit::history::{Model, Recorder, Recording, Verdict};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

#[test]
fn a_rename_leaves_the_value_where_it_is() {
    let map = RenameMap::new();
    let map = map.pin();
    let value: *const String = map.insert("old".to_owned(), "value".to_owned()).unwrap();
    let renamed = map.rename("old", "new".to_owned()).unwrap();
    assert!(std::ptr::eq(renamed, value));
    assert!(std::ptr::eq(map.get("new").unwrap(), value));
    assert!(!map.contains_key("old"));
    assert_eq!(
        map.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(),
        ["new"]
    );
}

#[test]
fn a_refused_rename_changes_nothing() {
    let map = RenameMap::new();
    let map = map.pin();
    map.insert(1, 'a').unwrap();
    map.insert(2, 'b').unwrap();
    assert_eq!(map.rename(&3, 4), Err(RenameError::NotFound));
    assert_eq!(map.rename(&3, 1), Err(RenameError::NotFound));
    assert_eq!(map.rename(&1, 2), Err(RenameError::Occupied));
    assert_eq!(map.rename(&1, 1), Ok(&'a'));
    assert_eq!(
        (map.get(&1), map.get(&2), map.get(&4)),
        (Some(&'a'), Some(&'b'), None)
    );
    let occupied = map.insert(2, 'c').unwrap_err();
    assert_eq!((*occupied.current, occupied.not_inserted), ('b', 'c'));
    // There and back again.
    assert_eq!(map.rename(&1, 7), Ok(&'a'));
    assert_eq!(map.rename(&7, 1), Ok(&'a'));
    assert_eq!((map.remove(&1), map.remove(&7)), (Some(&'a'), None));
    assert_eq!(map.rename(&1, 7), Err(RenameError::NotFound));
}

#[test]
fn batches_answer_as_lookups_do() {
    let map = RenameMap::new();
    let map = map.pin();
    for key in 0..100u64 {
        map.insert(key, key).unwrap();
    }
    for key in (0..100).step_by(3) {
        assert_eq!(map.rename(&key, key + 1_000), Ok(&key));
    }
    for keys in (0..70).chain([127, 128, 129, 200]) {
        let keys: Vec<u64> = (0..keys).map(|key| key * 7 % 200 + key % 2 * 900).collect();
        let mut out = vec![None; keys.len()];
        map.get_many(&keys, &mut out);
        assert!(keys.iter().map(|key| map.get(key)).eq(out), "{keys:?}");
    }
}

#[test]
fn a_value_lives_as_long_as_the_handle_and_no_longer_than_the_map() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Counted(u64);
    impl Drop for Counted {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Relaxed);
        }
    }
    let map = RenameMap::new();
    {
        let map = map.pin();
        let held = map.insert(0, Counted(7)).ok().unwrap();
        for key in 0..100 {
            assert!(map.rename(&key, key + 1).is_ok());
        }
        assert!(map.remove(&100).is_some());
        assert!(map.insert(1, Counted(8)).is_ok());
        assert!(map.insert(1, Counted(9)).is_err());
        assert_eq!((held.0, DROPPED.load(Relaxed)), (7, 1));
    }
    drop(map);
    assert_eq!(DROPPED.load(Relaxed), 3);
}

#[test]
fn it_does_what_a_model_does() {
    for seed in 0..20 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (map, mut model) = (RenameMap::new(), HashMap::new());
        for step in 0..3_000_u64 {
            if step % 500 == 499 {
                map.resize_to(1 << rng.random_range(0..8)).unwrap();
            }
            let map = map.pin();
            let (key, other) = (rng.random_range(0..40_u64), rng.random_range(0..40_u64));
            match rng.random_range(0..4) {
                0 => {
                    let inserted = map.insert(key, step).is_ok();
                    assert_eq!(inserted, !model.contains_key(&key));
                    model.entry(key).or_insert(step);
                }
                1 => assert_eq!(map.remove(&key).copied(), model.remove(&key)),
                2 => {
                    let expected = match model.get(&key) {
                        None => Err(RenameError::NotFound),
                        Some(_) if other != key && model.contains_key(&other) => {
                            Err(RenameError::Occupied)
                        }
                        Some(value) => Ok(*value),
                    };
                    assert_eq!(map.rename(&key, other).copied(), expected);
                    if let Ok(value) = expected {
                        model.remove(&key);
                        model.insert(other, value);
                    }
                }
                _ => assert_eq!(map.get(&key), model.get(&key)),
            }
        }
        let sorted: BTreeMap<_, _> = model.into_iter().collect();
        let entries: BTreeMap<_, _> = map
            .pin()
            .iter()
            .map(|(key, value)| (*key, *value))
            .collect();
        assert_eq!((entries, map.len()), (sorted.clone(), sorted.len()));
    }
}

/// An entry that only moves to higher keys is found by a thread that looks at the keys in ascending
/// order.
#[test]
fn a_walk_along_the_path_of_an_entry_meets_it() {
    const LAST: u64 = 2_000;
    let mut on_the_way = 0;
    for _ in 0..20 {
        let (map, done) = (RenameMap::new(), AtomicBool::new(false));
        map.pin().insert(0, 'x').unwrap();
        // Other entries in the same chains.
        for key in LAST + 1..2 * LAST {
            map.pin().insert(key, 'y').unwrap();
        }
        let start = Barrier::new(3);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                for key in 0..LAST {
                    assert_eq!(map.pin().rename(&key, key + 1), Ok(&'x'));
                }
                done.store(true, Relaxed);
            });
            scope.spawn(|| {
                start.wait();
                for buckets in [64, 1 << 12, 3, 1 << 9].into_iter().cycle() {
                    map.resize_to(buckets).unwrap();
                    if done.load(Relaxed) {
                        break;
                    }
                }
            });
            start.wait();
            while !done.load(Relaxed) {
                let map = map.pin();
                let met = (0..=LAST).find(|key| map.get(key) == Some(&'x'));
                let met = met.expect("missed on its way");
                on_the_way += u64::from(met > 0 && met < LAST);
            }
        });
    }
    assert!(on_the_way > 0);
}

const THREADS: u64 = 3;
const KEYS: usize = 3;

/// All keys together, since a rename concerns two.
#[derive(Default)]
struct Whole;

#[derive(Clone, Copy, Debug)]
enum Op {
    Get(usize),
    Insert(usize, u64),
    Remove(usize),
    Rename(usize, usize),
}

/// The value that was found, inserted, removed or renamed.
type Outcome = Result<u64, Option<RenameError>>;

impl Whole {
    fn run(state: &mut [Option<u64>; KEYS], op: &Op) -> Outcome {
        match *op {
            Op::Get(key) => state[key].ok_or(None),
            Op::Remove(key) => state[key].take().ok_or(None),
            Op::Insert(key, value) => match state[key] {
                Some(_) => Err(None),
                None => Ok(*state[key].insert(value)),
            },
            Op::Rename(old, new) => match (state[old], state[new]) {
                (None, _) => Err(Some(RenameError::NotFound)),
                (Some(value), _) if old == new => Ok(value),
                (Some(_), Some(_)) => Err(Some(RenameError::Occupied)),
                (Some(value), None) => {
                    state[new] = state[old].take();
                    Ok(value)
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

type Map = RenameMap<u64, u64>;

fn perform(map: &Map, op: &Op) -> Outcome {
    let map = map.pin();
    match *op {
        Op::Get(key) => map.get(&(key as u64)).copied().ok_or(None),
        Op::Insert(key, value) => map.insert(key as u64, value).copied().map_err(|_| None),
        Op::Remove(key) => map.remove(&(key as u64)).copied().ok_or(None),
        Op::Rename(old, new) => map.rename(&(old as u64), new as u64).copied().map_err(Some),
    }
}

/// A rename in two steps.
fn perform_in_two(map: &Map, op: &Op) -> Outcome {
    let Op::Rename(old, new) = *op else {
        return perform(map, op);
    };
    let value = perform(map, &Op::Remove(old)).map_err(|_| Some(RenameError::NotFound))?;
    std::thread::yield_now();
    perform(map, &Op::Insert(new, value)).map_err(|_| Some(RenameError::Occupied))
}

fn draw(rng: &mut SmallRng, fresh: u64) -> Op {
    let (key, other) = (rng.random_range(0..KEYS), rng.random_range(0..KEYS));
    match rng.random_range(0..10) {
        0 | 1 => Op::Insert(key, fresh),
        2 => Op::Remove(key),
        3..7 => Op::Rename(key, other),
        _ => Op::Get(key),
    }
}

fn run_thread(
    perform: impl Fn(&Op) -> Outcome,
    thread: u64,
    seed: u64,
    mut recorder: Recorder<(), Op, Outcome>,
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

/// The checker's verdict on a history of three threads, while a fourth resizes.
fn check(seed: u64, perform: fn(&Map, &Op) -> Outcome) -> Verdict {
    let (map, recording, done) = (Map::new(), Recording::new(), AtomicUsize::new(0));
    let start = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let recorder = recording.recorder(1_000);
            let (map, start, done) = (&map, &start, &done);
            scope.spawn(move || {
                start.wait();
                run_thread(|op| perform(map, op), thread, seed, recorder);
                done.fetch_add(1, Relaxed);
            });
        }
        let mut sizes = [2, 6, 3, 1, 8, 16].into_iter().cycle();
        while done.load(Relaxed) < THREADS as usize {
            map.resize_to(sizes.next().unwrap()).unwrap();
        }
    });
    let history = recording.finish().expect("all recorders are back");
    history.check(&Whole)
}

#[test]
fn histories_of_all_keys_together_are_linearizable() {
    let summaries = (0..20).map(|seed| check(seed, perform).assert_linearizable());
    let overlapping: usize = summaries.map(|summary| summary.concurrent).sum();
    assert!(overlapping > 0, "no call overlapped another");
}

#[test]
fn the_checker_detects_a_rename_in_two_steps() {
    assert!((0..50).any(|seed| check(seed, perform_in_two).violation().is_some()));
}

#[test]
fn renames_by_several_threads_lose_no_entry() {
    const ENTRIES: u64 = 50;
    const PLACES: u64 = 120;
    let map = Map::new();
    for entry in 0..ENTRIES {
        map.pin().insert(entry, 1_000 + entry).unwrap();
    }
    let renamed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (map, renamed) = (&map, &renamed);
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(thread);
                for _ in 0..20_000 {
                    let (old, new) = (rng.random_range(0..PLACES), rng.random_range(0..PLACES));
                    let done = map.pin().rename(&old, new).is_ok();
                    renamed.fetch_add(usize::from(done && old != new), Relaxed);
                }
            });
        }
    });
    assert!(renamed.load(Relaxed) > 0);
    let mut values: Vec<u64> = map.pin().iter().map(|(_, value)| *value).collect();
    values.sort_unstable();
    assert_eq!(values, (1_000..1_000 + ENTRIES).collect::<Vec<_>>());
    assert_eq!(map.len(), ENTRIES as usize);
}
