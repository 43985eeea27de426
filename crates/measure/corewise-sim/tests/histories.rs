//! Histories of the project's maps with 64 simulated threads, checked for linearizability.

use corewise_atomic::sync::Arc;
use corewise_maps::RelativisticMap;
use corewise_sim::{Config, Finished, run};
use corewise_testkit::hashing::Hashing;
use corewise_testkit::history::models::{EntryOp, EntryOutcome, MapEntry};
use corewise_testkit::history::{History, Recorder, Recording};
use corewise_testkit::random::Random;

use super::programs::told_by_child;
use super::{in_threads, on_machine, seeded};

const THREADS: u64 = 64;
const ROUNDS: usize = 60;
const KEYS: u64 = 24;

type Map = RelativisticMap<u64, u64, Hashing>;
type Recorded = History<u64, EntryOp<u64>, EntryOutcome<u64>>;

/// What a thread does with the map in one round.
type Step = fn(&Map, &mut Recorder<u64, EntryOp<u64>, EntryOutcome<u64>>, &mut Random, u64);

/// Records `step` in 64 threads, while two more resize the map.
fn record(config: Config, step: Step) -> Finished<Recorded> {
    const RESIZERS: u64 = 2;
    let finished = run(config, move || {
        let map = Arc::new(Map::with_capacity_and_hasher(0, Hashing::Mixed));
        let recording = Arc::new(Recording::new());
        let shared = recording.clone();
        in_threads(THREADS + RESIZERS, move |thread| {
            if thread >= THREADS {
                for round in 0..12 {
                    let buckets = if (round + thread) % 2 == 0 { 256 } else { 8 };
                    map.resize_to(buckets).expect("memory");
                }
                return;
            }
            let mut recorder = shared.recorder(ROUNDS);
            let mut random = Random::from_seed(thread);
            for round in 0..ROUNDS as u64 {
                step(&map, &mut recorder, &mut random, thread << 32 | round);
            }
        });
        let recording = Arc::into_inner(recording).expect("all threads have ended");
        recording.finish().expect("all recorders are dropped")
    });
    finished.unwrap_or_else(|error| panic!("{error}"))
}

fn mixed(
    map: &Map,
    recorder: &mut Recorder<u64, EntryOp<u64>, EntryOutcome<u64>>,
    random: &mut Random,
    unique: u64,
) {
    let key = random.below(KEYS);
    let held = EntryOutcome::Held;
    match random.below(8) {
        0 | 1 => recorder.record(key, EntryOp::Insert(unique), || {
            held(map.pin().insert(key, unique).copied())
        }),
        2 => recorder.record(key, EntryOp::Remove, || {
            held(map.pin().remove(&key).copied())
        }),
        _ => recorder.record(key, EntryOp::Get, || held(map.pin().get(&key).copied())),
    };
}

/// An insertion that first looks up whether there is an entry: not atomic.
fn inserts_in_two_steps(
    map: &Map,
    recorder: &mut Recorder<u64, EntryOp<u64>, EntryOutcome<u64>>,
    random: &mut Random,
    unique: u64,
) {
    let key = random.below(KEYS);
    if random.below(4) == 0 {
        let remove = || EntryOutcome::Held(map.pin().remove(&key).copied());
        recorder.record(key, EntryOp::Remove, remove);
        return;
    }
    recorder.record(key, EntryOp::TryInsert(unique), || {
        let is_free = map.pin().get(&key).is_none();
        if is_free {
            map.insert(key, unique);
        }
        EntryOutcome::Done(is_free)
    });
}

#[test]
fn the_relativistic_map_is_linearizable_with_64_threads_while_it_resizes() {
    for config in [seeded(1), seeded(2), on_machine(1), on_machine(2)] {
        let finished = record(config, mixed);
        let history = finished.value;
        let summary = history.check(&MapEntry::new()).assert_linearizable();
        assert_eq!(summary.operations, THREADS as usize * ROUNDS);
        // The threads meet, although one processor runs them all.
        assert!(summary.concurrent * 4 > summary.operations, "{summary:?}");
    }
}

#[test]
fn the_seed_alone_decides_the_history() {
    let text = |finished: &Finished<Recorded>| format!("{:?}", finished.value.operations());
    for config in [seeded, on_machine] {
        let [one, same, other] = [5, 5, 6].map(|seed| record(config(seed), mixed));
        assert_eq!((one.digest, one.cycles), (same.digest, same.cycles));
        assert_eq!((one.accesses, one.switches), (same.accesses, same.switches));
        assert!(text(&one) == text(&same));
        assert_ne!(one.digest, other.digest);
        assert!(text(&one) != text(&other));
    }
}

#[test]
#[ignore = "a child process of `every_process_makes_the_same_history`; no test by itself"]
fn tells_its_history() {
    let told = [seeded(9), on_machine(9)].map(|config| {
        let finished = record(config, mixed);
        let text = format!("{:?}", finished.value.operations());
        format!("{} {text}", finished.digest)
    });
    println!("told: {told:?}");
}

#[test]
fn every_process_makes_the_same_history() {
    let [one, other] = [0; 2].map(|_| told_by_child("histories::tells_its_history"));
    assert!(one == other && one.len() > 10_000);
}

#[test]
fn an_insertion_in_two_steps_is_found_out() {
    for config in [seeded(1), on_machine(1)] {
        let finished = record(config, inserts_in_two_steps);
        let verdict = finished.value.check(&MapEntry::new());
        assert!(verdict.violation().is_some());
    }
}
