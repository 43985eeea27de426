//! Entries that are given other keys: against a model, in recorded histories, and by threads that
//! pass them around.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

use std::collections::{BTreeMap, HashMap};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use corewise_maps_lab::cross_link::CrossLinkMap;
use corewise_maps_lab::rename::{RenameError, RenameMap};
use corewise_rcu::Domain;
use corewise_testkit::for_every;
use corewise_testkit::history::{Model, Recorder, Verdict, record_beside};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

type Renamed = RenameMap<u64, u64>;
type Moved = CrossLinkMap<u64>;

/// A map of numbers whose entries can be given another key.
trait KeyChanges: Sync {
    fn new() -> Self;
    fn get(&self, key: u64) -> Option<u64>;
    fn insert(&self, key: u64, value: u64) -> bool;
    /// Returns whether the key was present.
    fn remove(&self, key: u64) -> bool;
    fn rename(&self, old: u64, new: u64) -> Result<(), RenameError>;
    fn entries(&self) -> usize;
    /// Resizes, if it can.
    fn resize(&self, buckets: usize);
    fn into_sorted(self) -> Vec<(u64, u64)>;
}

impl KeyChanges for Renamed {
    fn new() -> Self {
        RenameMap::new()
    }
    fn get(&self, key: u64) -> Option<u64> {
        self.pin().get(&key).copied()
    }
    fn insert(&self, key: u64, value: u64) -> bool {
        self.pin().insert(key, value).is_ok()
    }
    fn remove(&self, key: u64) -> bool {
        self.pin().remove(&key).is_some()
    }
    fn rename(&self, old: u64, new: u64) -> Result<(), RenameError> {
        self.pin().rename(&old, new).map(|_| ())
    }
    fn entries(&self) -> usize {
        self.len()
    }
    fn resize(&self, buckets: usize) {
        self.resize_to(buckets).unwrap();
    }
    fn into_sorted(self) -> Vec<(u64, u64)> {
        let sorted: BTreeMap<_, _> = self
            .pin()
            .iter()
            .map(|(key, value)| (*key, *value))
            .collect();
        sorted.into_iter().collect()
    }
}

impl KeyChanges for Moved {
    fn new() -> Self {
        CrossLinkMap::with_buckets(16)
    }
    fn get(&self, key: u64) -> Option<u64> {
        self.get(&self.domain().pin(), key).copied()
    }
    fn insert(&self, key: u64, value: u64) -> bool {
        self.insert(key, value).is_ok()
    }
    fn remove(&self, key: u64) -> bool {
        self.remove(key)
    }
    fn rename(&self, old: u64, new: u64) -> Result<(), RenameError> {
        self.move_entry(old, new)
    }
    fn entries(&self) -> usize {
        self.len()
    }
    /// It has a fixed number of buckets: other threads run, as beside a resize.
    fn resize(&self, _: usize) {
        std::thread::yield_now();
    }
    fn into_sorted(mut self) -> Vec<(u64, u64)> {
        let mut entries = Vec::new();
        self.for_each(|key, value| entries.push((key, *value)));
        entries.sort_unstable();
        entries
    }
}

for_every! {
    renamed: Renamed,
    moved: Moved,
    => {
        it_does_what_a_model_does
        a_walk_along_the_path_of_an_entry_meets_it
        histories_of_all_keys_together_are_linearizable
        the_checker_detects_a_rename_in_two_steps
        renames_by_several_threads_lose_no_entry
    }
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

fn it_does_what_a_model_does<M: KeyChanges>() {
    for seed in 0..20 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (map, mut model) = (M::new(), HashMap::new());
        for step in 0..3_000_u64 {
            if step % 500 == 499 {
                map.resize(1 << rng.random_range(0..8));
            }
            let (key, other) = (rng.random_range(0..40_u64), rng.random_range(0..40_u64));
            match rng.random_range(0..4) {
                0 => {
                    assert_eq!(map.insert(key, step), !model.contains_key(&key));
                    model.entry(key).or_insert(step);
                }
                1 => assert_eq!(map.remove(key), model.remove(&key).is_some()),
                2 => {
                    let expected = match model.get(&key) {
                        None => Err(RenameError::NotFound),
                        Some(_) if other != key && model.contains_key(&other) => {
                            Err(RenameError::Occupied)
                        }
                        Some(value) => Ok(*value),
                    };
                    assert_eq!(map.rename(key, other), expected.map(|_| ()));
                    if let Ok(value) = expected {
                        model.remove(&key);
                        model.insert(other, value);
                    }
                }
                _ => assert_eq!(map.get(key), model.get(&key).copied()),
            }
        }
        let sorted: BTreeMap<_, _> = model.into_iter().collect();
        assert_eq!(map.entries(), sorted.len());
        assert!(map.into_sorted().into_iter().eq(sorted));
    }
}

/// An entry that only moves to higher keys is found by a thread that looks at the keys in ascending
/// order.
fn a_walk_along_the_path_of_an_entry_meets_it<M: KeyChanges>() {
    const LAST: u64 = 2_000;
    let mut on_the_way = 0;
    for _ in 0..20 {
        let (map, done) = (M::new(), AtomicBool::new(false));
        assert!(map.insert(0, 1));
        // Other entries in the same chains.
        (LAST + 1..2 * LAST).for_each(|key| assert!(map.insert(key, 0)));
        let start = Barrier::new(3);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                for key in 0..LAST {
                    assert_eq!(map.rename(key, key + 1), Ok(()));
                }
                done.store(true, Relaxed);
            });
            scope.spawn(|| {
                start.wait();
                for buckets in [64, 1 << 12, 3, 1 << 9].into_iter().cycle() {
                    map.resize(buckets);
                    if done.load(Relaxed) {
                        break;
                    }
                }
            });
            start.wait();
            while !done.load(Relaxed) {
                let met = (0..=LAST).find(|key| map.get(*key) == Some(1));
                let met = met.expect("missed on its way");
                on_the_way += u64::from(met > 0 && met < LAST);
            }
        });
    }
    assert!(on_the_way > 0);
}

const THREADS: u64 = 3;
const KEYS: usize = 3;

/// All keys together, since a rename concerns two. The maps promise an order of operations on
/// different keys as far as happens-before orders them, and the recorder's stamps do that.
#[derive(Default)]
struct Whole;

#[derive(Clone, Copy, Debug)]
enum Op {
    Get(usize),
    Insert(usize, u64),
    Remove(usize),
    Rename(usize, usize),
}

/// The value that was found or inserted; for removals and renames, none.
type Outcome = Result<Option<u64>, Option<RenameError>>;

impl Whole {
    fn run(state: &mut [Option<u64>; KEYS], op: &Op) -> Outcome {
        match *op {
            Op::Get(key) => state[key].ok_or(None).map(Some),
            Op::Remove(key) => state[key].take().ok_or(None).map(|_| None),
            Op::Insert(key, value) => match state[key] {
                Some(_) => Err(None),
                None => Ok(Some(*state[key].insert(value))),
            },
            Op::Rename(old, new) => match (state[old], state[new]) {
                (None, _) => Err(Some(RenameError::NotFound)),
                (Some(_), _) if old == new => Ok(None),
                (Some(_), Some(_)) => Err(Some(RenameError::Occupied)),
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

fn perform<M: KeyChanges>(map: &M, op: &Op) -> Outcome {
    let done = |done: bool, value| if done { Ok(value) } else { Err(None) };
    match *op {
        Op::Get(key) => map.get(key as u64).ok_or(None).map(Some),
        Op::Insert(key, value) => done(map.insert(key as u64, value), Some(value)),
        Op::Remove(key) => done(map.remove(key as u64), None),
        Op::Rename(old, new) => match map.rename(old as u64, new as u64) {
            Ok(()) => Ok(None),
            Err(error) => Err(Some(error)),
        },
    }
}

/// A rename in two steps.
fn perform_in_two<M: KeyChanges>(map: &M, op: &Op) -> Outcome {
    let Op::Rename(old, new) = *op else {
        return perform(map, op);
    };
    let not_found = Err(Some(RenameError::NotFound));
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
        .map_err(|_| Some(RenameError::Occupied))
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

/// The checker's verdict on a history of three threads, while a fourth resizes.
fn check<M: KeyChanges>(seed: u64, perform: fn(&M, &Op) -> Outcome) -> Verdict {
    let (map, is_over) = (M::new(), AtomicBool::new(false));
    let resize = || {
        let mut sizes = [2, 6, 3, 1, 8, 16].into_iter().cycle();
        while !is_over.load(Relaxed) {
            map.resize(sizes.next().unwrap());
        }
    };
    let history = record_beside(THREADS, 1_000, &is_over, resize, |thread, recorder| {
        run_thread(|op| perform(&map, op), thread, seed, recorder);
    });
    history.check(&Whole)
}

fn histories_of_all_keys_together_are_linearizable<M: KeyChanges>() {
    let summaries = (0..20).map(|seed| check(seed, perform::<M>).assert_linearizable());
    let overlapping: usize = summaries.map(|summary| summary.concurrent).sum();
    assert!(overlapping > 0, "no call overlapped another");
}

fn the_checker_detects_a_rename_in_two_steps<M: KeyChanges>() {
    assert!((0..50).any(|seed| check(seed, perform_in_two::<M>).violation().is_some()));
}

fn renames_by_several_threads_lose_no_entry<M: KeyChanges>() {
    const ENTRIES: u64 = 50;
    const PLACES: u64 = 120;
    let map = M::new();
    (0..ENTRIES).for_each(|entry| assert!(map.insert(entry, 1_000 + entry)));
    let renamed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (map, renamed) = (&map, &renamed);
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(thread);
                for _ in 0..20_000 {
                    let (old, new) = (rng.random_range(0..PLACES), rng.random_range(0..PLACES));
                    let done = map.rename(old, new).is_ok();
                    renamed.fetch_add(usize::from(done && old != new), Relaxed);
                }
            });
        }
    });
    assert!(renamed.load(Relaxed) > 0);
    assert_eq!(map.entries(), ENTRIES as usize);
    let mut values: Vec<u64> = map.into_sorted().iter().map(|(_, value)| *value).collect();
    values.sort_unstable();
    assert_eq!(values, (1_000..1_000 + ENTRIES).collect::<Vec<_>>());
}
