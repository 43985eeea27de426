//! Maps of copies, in every table, used by several threads at a time, by the closures
//! that they call, and after closures have panicked.

use std::cell::Cell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use corewise_maps::clht::LockBasedTable;
use corewise_maps::copy_map::{Computed, Operation};
use corewise_maps::cuckoo::CuckooTable;
use corewise_maps_lab::clht_lock_free::LockFreeTable;
use corewise_maps_lab::hopscotch::HopscotchTable;
use corewise_testkit::history::models::{EntryOp, EntryOutcome, MapEntry};
use corewise_testkit::history::record_beside;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::common::{Copies, NumberMap, fewer, for_all_tables, sorted};
use corewise_testkit::for_every;
use corewise_testkit::hashing::Hashing;
use corewise_testkit::stress::{beside, together};

for_all_tables! {{
    histories_beside_resizes_are_linearizable
    histories_in_one_bucket_are_linearizable
    retain_visits_what_stays_once
    iterations_over_few_buckets_return_what_stays_once
    retain_removes_what_it_has_decided_about
    clear_removes_what_was_there
    drained_entries_go_to_one_thread
    counts_of_several_threads_add_up
    closures_that_panic_change_nothing
    closures_that_panic_at_the_second_call_change_nothing
    a_retain_that_panics_has_removed_what_it_has_decided_about
    closures_may_change_their_entry
    updates_may_change_their_entry
    closures_may_change_neighbours_at_every_call
    closures_may_replace_the_table_and_empty_the_map
}}

/// Resizes a map between random sizes until told to stop, at least once.
fn keep_resizing(map: &impl NumberMap, most: u32, stop: &AtomicBool) {
    let mut rng = SmallRng::seed_from_u64(7);
    loop {
        map.resize(1 << rng.random_range(0..=most));
        if stop.load(Relaxed) {
            return;
        }
    }
}

/// Calls `work` on several threads, with their numbers, while another one resizes the map; then
/// checks what is left.
fn beside_resizes<M: NumberMap>(map: &M, threads: u64, most: u32, work: impl Fn(u64) + Sync) {
    let stop = AtomicBool::new(false);
    beside(threads, &stop, || keep_resizing(map, most, &stop), work);
    check_at_rest(map);
}

/// Checks what is left when all threads are done: each key once, each value owned once.
fn check_at_rest(map: &impl NumberMap) {
    let pairs = map.pairs();
    let keys: HashSet<u64> = pairs.iter().map(|(key, _)| *key).collect();
    assert_eq!((pairs.len(), map.entries()), (keys.len(), keys.len()));
    assert!(
        pairs
            .iter()
            .all(|(key, value)| map.get(*key) == Some(*value))
    );
}

/// Performs an operation in one of the ways that there are.
fn perform(map: &impl NumberMap, key: u64, op: &EntryOp<u64>, way: u32) -> EntryOutcome<u64> {
    EntryOutcome::Held(match *op {
        EntryOp::TryInsert(value) => {
            let there = match way % 3 {
                0 => map.try_insert(key, value).err().unwrap_or(value),
                1 => map.get_or_insert(key, value),
                _ => map.get_or_insert_with(key, || value),
            };
            (there != value).then_some(there)
        }
        EntryOp::Insert(value) if way.is_multiple_of(2) => map.insert(key, value),
        EntryOp::Insert(value) => match map.compute(key, |_| Operation::Insert(value)) {
            Computed::Inserted(_) => None,
            Computed::Updated { old, .. } => Some(old),
            other => panic!("{other:?}"),
        },
        EntryOp::Remove if way.is_multiple_of(3) => map.remove(key),
        EntryOp::Remove if way % 3 == 1 => map.remove_if(key, |_| true).unwrap(),
        EntryOp::Remove => match map.compute(key, |_| Operation::Remove) {
            Computed::Aborted(None) => None,
            Computed::Removed(old) => Some(old),
            other => panic!("{other:?}"),
        },
        EntryOp::Update => {
            // If the key is absent, it gets a value that is written nowhere else.
            static NEXT: AtomicU64 = AtomicU64::new(1 << 60);
            let (seen, fresh) = (Cell::new(None), NEXT.fetch_add(1 << 16, Relaxed));
            let more = |old: u64| {
                seen.set(Some(old));
                old + 1
            };
            let new = map.update_or_insert_with(key, more, || fresh);
            let old = seen.get().filter(|_| new != fresh);
            return EntryOutcome::Updated {
                old,
                new: Some(new),
            };
        }
        EntryOp::CompareExchange {
            expected: Some(expected),
            new: None,
        } if way.is_multiple_of(2) => match map.remove_if(key, |value| value == expected) {
            Ok(removed) => removed,
            Err(there) => Some(there),
        },
        EntryOp::CompareExchange { expected, new } => {
            let seen = Cell::new(None);
            map.compute(key, |there| {
                seen.set(there);
                match new {
                    _ if there != expected => Operation::Abort(0),
                    Some(new) => Operation::Insert(new),
                    None => Operation::Remove,
                }
            });
            seen.get()
        }
        EntryOp::Get => map.get(key),
    })
}

/// Several threads operate on a few keys while another one resizes.
fn histories<M: NumberMap>(seed: u64, hashing: Hashing, most_buckets: u32) {
    const THREADS: u64 = 3;
    const CALLS: u64 = 1_000;
    let map = M::new(1, hashing, false);
    let stop = AtomicBool::new(false);
    let beside = || keep_resizing(&map, most_buckets, &stop);
    let history = record_beside(
        THREADS,
        CALLS as usize,
        &stop,
        beside,
        |thread, recorder| {
            let mut rng = SmallRng::seed_from_u64(seed << 8 | thread);
            for call in 0..CALLS {
                // No two writes have the same value, apart from increments.
                let fresh = (call * THREADS + thread + 1) << 16;
                let (key, way) = (rng.random_range(0..5) * 4, rng.random());
                let op = match rng.random_range(0..12) {
                    0 | 1 => EntryOp::TryInsert(fresh),
                    2 => EntryOp::Insert(fresh),
                    3 | 4 => EntryOp::Remove,
                    5..8 => EntryOp::Update,
                    8 | 9 => EntryOp::CompareExchange {
                        expected: map.get(key),
                        new: rng.random_bool(0.6).then_some(fresh),
                    },
                    _ => EntryOp::Get,
                };
                recorder.record(key, op.clone(), || perform(&map, key, &op, way));
            }
        },
    );
    history.check(&MapEntry::new()).assert_linearizable();
    check_at_rest(&map);
}

fn histories_beside_resizes_are_linearizable<M: NumberMap>() {
    (0..4).for_each(|seed| histories::<M>(seed, Hashing::Own, 5));
}

/// Five keys where three or four have room.
fn histories_in_one_bucket_are_linearizable<M: NumberMap>() {
    (0..4).for_each(|seed| histories::<M>(seed, Hashing::Alike, 1));
}

/// The keys below this number are not removed, except by what is tested.
const KEPT: u64 = 300;

/// Runs `act` beside resizes, updates of the kept keys, and insertions and removals of others.
fn beside_updates<M: NumberMap>(map: &M, act: impl Fn(u64) + Sync) {
    let stop = AtomicBool::new(false);
    let update = || {
        let mut round = 0;
        while !stop.load(Relaxed) {
            round += 1;
            (KEPT..KEPT + 50).for_each(|key| assert_eq!(map.try_insert(key, round), Ok(())));
            (0..KEPT).step_by(7).for_each(|key| {
                map.update(key, |old| old + 2);
            });
            (KEPT..KEPT + 50).for_each(|key| _ = map.remove(key));
        }
    };
    beside_resizes(map, 1, 9, |_| {
        beside(1, &stop, update, |_| (0..fewer(200)).for_each(&act));
    });
}

fn retain_visits_what_stays_once<M: NumberMap>() {
    let map = M::new(1, Hashing::Mixed, true);
    (0..KEPT).for_each(|key| assert_eq!(map.insert(key, key), None));
    beside_updates(&map, |_| {
        let mut visited = Vec::new();
        map.retain(|key, _| {
            // It is called again if the value has changed: then at once.
            if key < KEPT && visited.last() != Some(&key) {
                visited.push(key);
            }
            key < KEPT
        });
        visited.sort_unstable();
        assert!(visited.into_iter().eq(0..KEPT));
        let mut keys: Vec<u64> = map.keys();
        keys.retain(|key| *key < KEPT);
        keys.sort_unstable();
        assert!(keys.into_iter().eq(0..KEPT));
    });
}

/// Few keys in one or two buckets: what a bucket has no room for moves into it when others go.
fn iterations_over_few_buckets_return_what_stays_once<M: NumberMap>() {
    const STAY: u64 = 7;
    let map = M::new(1, Hashing::Mixed, true);
    (0..STAY).for_each(|key| assert_eq!(map.insert(key, key), None));
    let stop = AtomicBool::new(false);
    let walk = || {
        while !stop.load(Relaxed) {
            let mut keys = map.keys();
            keys.retain(|key| *key < STAY);
            keys.sort_unstable();
            assert!(keys.into_iter().eq(0..STAY));
        }
    };
    beside_resizes(&map, 1, 1, |_| {
        beside(1, &stop, walk, |_| {
            for _ in 0..fewer(10_000) {
                (STAY..STAY + 4).for_each(|key| assert_eq!(map.try_insert(key, 0), Ok(())));
                (STAY..STAY + 4).for_each(|key| assert_eq!(map.remove(key), Some(0)));
            }
        });
    });
}

/// Odd values go and even ones stay, while another thread replaces odd ones by even ones: those
/// must stay, although `retain` may have seen the odd ones.
fn retain_removes_what_it_has_decided_about<M: NumberMap>() {
    let map = M::new(1, Hashing::Mixed, true);
    let stop = AtomicBool::new(false);
    let retain = || {
        while !stop.load(Relaxed) {
            map.retain(|_, value| value % 2 == 0);
        }
    };
    beside_resizes(&map, 1, 4, |_| {
        beside(1, &stop, retain, |_| {
            for round in 0..fewer(20_000) {
                let key = round % 10;
                map.insert(key, 2 * round + 1);
                map.insert(key, 2 * round);
                assert_eq!(map.get(key), Some(2 * round));
            }
        });
    });
}

fn clear_removes_what_was_there<M: NumberMap>() {
    let map = M::new(1, Hashing::Mixed, true);
    beside_updates(&map, |round| {
        (0..KEPT).for_each(|key| assert_eq!(map.insert(key, 2 * round), None));
        map.clear();
        assert!((0..KEPT).all(|key| map.get(key).is_none()));
    });
}

fn drained_entries_go_to_one_thread<M: NumberMap>() {
    const THREADS: u64 = 3;
    let map = M::new(1, Hashing::Mixed, true);
    beside_resizes(&map, 1, 8, |_| {
        for round in 0..fewer(60) {
            (0..KEPT).for_each(|key| assert_eq!(map.try_insert(key, round), Ok(())));
            // The threads agree on every entry, or on none.
            let drained = together(THREADS, |_| match round % 2 {
                0 => map.drain(usize::MAX),
                _ => map.extract_if(usize::MAX, |_, value| value == round),
            });
            let mut all: Vec<(u64, u64)> = drained.into_iter().flatten().collect();
            all.sort_unstable();
            assert!(all.into_iter().eq((0..KEPT).map(|key| (key, round))));
            assert_eq!(map.entries(), 0);
        }
    });
}

/// Every call of the closures that counts has had effect, whichever thread inserted the key.
fn counts_of_several_threads_add_up<M: NumberMap>() {
    const THREADS: u64 = 3;
    let rounds = fewer(10_000);
    let map = M::new(1, Hashing::Own, true);
    let removed = AtomicU64::new(0);
    let count = |key, way| {
        let more = |n| n + 1;
        match way {
            0 => _ = map.update_or_insert(key, more, 1),
            1 => _ = map.update_or_insert_with(key, more, || 1),
            2 if map.update(key, more).is_some() => {}
            _ => _ = map.compute(key, |n| Operation::Insert(n.unwrap_or(0) + 1)),
        }
    };
    beside_resizes(&map, THREADS, 4, |_| {
        for round in 0..rounds {
            let key = round % 7;
            count(key, round % 4);
            if round % 100 == 0 {
                removed.fetch_add(map.remove(key).unwrap_or(0), Relaxed);
            }
        }
    });
    let left: u64 = map.values().iter().sum();
    assert_eq!(left + removed.into_inner(), THREADS * rounds);
}

/// Panics, without a report.
fn fail<R>() -> R {
    resume_unwind(Box::new(()))
}

/// Returns whether `act` panics. In any case it must change nothing, and leave nothing locked.
fn panics(map: &impl NumberMap, act: impl FnOnce()) -> bool {
    let before = sorted(map.pairs());
    let failed = catch_unwind(AssertUnwindSafe(act)).is_err();
    assert_eq!(sorted(map.pairs()), before);
    // Another thread can change every entry, and move it.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (key, value) in &before {
                assert_eq!(map.remove(*key), Some(*value));
                assert_eq!(map.insert(*key, *value), None);
            }
            map.resize(map.bucket_count() * 2 % 63);
        });
    });
    failed
}

fn closures_that_panic_change_nothing<M: NumberMap>() {
    // All in one bucket, of which the closures' entry is the first, in the middle, and the last.
    for (key, grows) in [(0, false), (5, true), (9, false), (77, true)] {
        let map = M::new(1, Hashing::Alike, grows);
        (0..10).for_each(|key| assert_eq!(map.insert(key, key), None));
        let is_there = key < 10;
        let updating = || {
            map.update(key, |_| fail());
        };
        let removing = || {
            let _ = map.remove_if(key, |_| fail());
        };
        let computing = || {
            map.compute(key, |_| fail());
        };
        let updating_or_inserting = || {
            map.update_or_insert_with(key, |_| fail(), fail);
        };
        let inserting = || {
            map.get_or_insert_with(key, fail);
        };
        assert_eq!(panics(&map, updating), is_there);
        assert_eq!(panics(&map, removing), is_there);
        assert!(panics(&map, computing));
        assert!(panics(&map, updating_or_inserting));
        assert_eq!(panics(&map, inserting), !is_there);
        assert!(panics(&map, || map.retain(|_, _| fail())));
        check_at_rest(&map);
    }
}

/// The closure panics when it is called again, since it has changed the value itself.
fn closures_that_panic_at_the_second_call_change_nothing<M: NumberMap>() {
    let map = M::new(1, Hashing::Alike, true);
    (0..10).for_each(|key| assert_eq!(map.insert(key, key), None));
    let calls = Cell::new(0);
    let computing = || {
        map.compute(3, |there| {
            calls.set(calls.get() + 1);
            if calls.get() == 2 {
                assert_eq!(there, Some(1_000));
                map.insert(3, 3);
                fail()
            }
            map.insert(3, 1_000);
            Operation::Remove
        });
    };
    assert!(panics(&map, computing));
    assert_eq!(calls.get(), 2);
    check_at_rest(&map);
}

fn a_retain_that_panics_has_removed_what_it_has_decided_about<M: NumberMap>() {
    let map = M::new(1, Hashing::Mixed, true);
    (0..10).for_each(|key| assert_eq!(map.insert(key, key), None));
    let calls = Cell::new(0);
    let stopped = catch_unwind(AssertUnwindSafe(|| {
        map.retain(|_, _| {
            calls.set(calls.get() + 1);
            if calls.get() == 5 { fail() } else { false }
        });
    }));
    assert!(stopped.is_err());
    assert_eq!(map.entries(), 6);
    check_at_rest(&map);
}

fn closures_may_change_their_entry<M: NumberMap>() {
    let map = M::new(1, Hashing::Mixed, true);
    (0..50).for_each(|key| assert_eq!(map.insert(key, key), None));
    // The value changes in each call but the last.
    let mut calls = 0;
    let computed = map.compute(7, |there| {
        calls += 1;
        if calls < 4 {
            map.insert(7, 100 + calls);
        }
        Operation::Insert(there.unwrap() + 1_000)
    });
    let updated = Computed::Updated {
        old: 103,
        new: 1_103,
    };
    assert_eq!((computed, calls), (updated, 4));
    // The entry goes, and the closure is asked again about its absence.
    let mut seen = Vec::new();
    let computed = map.compute(8, |there| {
        seen.push(there);
        map.remove(8);
        Operation::Insert(80)
    });
    assert_eq!(
        (computed, seen),
        (Computed::Inserted(80), vec![Some(8), None])
    );
    // It comes: what was decided about its absence, and changes nothing, stands.
    let mut seen = Vec::new();
    let computed = map.compute(90, |there| {
        seen.push(there);
        let _ = map.try_insert(90, 9);
        Operation::Remove
    });
    assert_eq!((computed, seen), (Computed::Aborted(None), vec![None]));
    let removed = map.remove_if(90, |value| {
        if value == 9 {
            map.insert(90, 10);
        }
        true
    });
    assert_eq!(removed, Ok(Some(10)));
    // It is inserted and removed in turn.
    let mut calls = 0;
    let new = map.update_or_insert_with(
        91,
        |old| {
            calls += 1;
            if calls == 1 {
                map.remove(91);
            }
            old + 1
        },
        || {
            map.insert(91, 7);
            70
        },
    );
    assert_eq!((new, map.get(91), calls), (70, Some(70), 1));
    check_at_rest(&map);
}

/// An update is asked again about each new value, and not after the entry has gone.
fn updates_may_change_their_entry<M: NumberMap>() {
    let map = M::new(1, Hashing::Mixed, true);
    (0..50).for_each(|key| assert_eq!(map.insert(key, key), None));
    let mut calls = 0;
    let new = map.update(9, |old| {
        calls += 1;
        if calls < 4 {
            map.insert(9, old + 100);
        }
        old
    });
    assert_eq!((new, calls), (Some(309), 4));
    let gone = map.update(9, |old| {
        // Another entry comes in its place, and goes.
        if map.remove(9) == Some(309) {
            map.insert(9, 310);
        }
        old
    });
    assert_eq!((gone, map.get(9)), (None, None));
    check_at_rest(&map);
}

/// Neighbours in the same bucket, of which a lookup takes notice.
fn closures_may_change_neighbours_at_every_call<M: NumberMap>() {
    let map = M::new(1, Hashing::Alike, true);
    (0..30).for_each(|key| assert_eq!(map.insert(key, key), None));
    let change_neighbours = || {
        (15..25).for_each(|key| assert!(map.update(key, |old| old + 1).is_some()));
        (25..30).for_each(|key| assert!(map.remove(key).is_some()));
        (25..30).for_each(|key| assert_eq!(map.insert(key, key), None));
    };
    let mut calls = 0;
    let mut change = |value| {
        calls += 1;
        change_neighbours();
        value + 1
    };
    assert_eq!(map.update(7, &mut change), Some(8));
    assert_eq!(map.update_or_insert(7, &mut change, 0), 9);
    assert_eq!(calls, 2, "it is called once for a value");
    let is_to_go = |_| {
        change_neighbours();
        true
    };
    assert_eq!(map.remove_if(7, is_to_go), Ok(Some(9)));
    check_at_rest(&map);
}

fn closures_may_replace_the_table_and_empty_the_map<M: NumberMap>() {
    let map = M::new(1, Hashing::Mixed, true);
    (0..50).for_each(|key| assert_eq!(map.insert(key, key), None));
    let mut calls = 0;
    let new = map.update(9, |old| {
        calls += 1;
        map.resize(if old == 9 { 256 } else { 2 });
        (1_000..1_100).for_each(|key| {
            map.insert(key, key);
        });
        old + 1
    });
    assert_eq!((new, calls), (Some(10), 1), "the value has not changed");
    let gone = map.update(9, |_| {
        map.clear();
        0
    });
    assert_eq!(gone, None);
    assert_eq!(map.entries(), 0);
    (0..50).for_each(|key| assert_eq!(map.insert(key, key), None));
    let mut visited = 0;
    map.retain(|key, _| {
        visited += 1;
        // What lies ahead of it goes.
        if visited == 10 {
            map.drain(usize::MAX);
            map.reserve(1_000);
            map.insert(key, 1);
        }
        key % 2 == 0
    });
    assert!(visited >= 10 && map.entries() <= 1);
    check_at_rest(&map);
}
