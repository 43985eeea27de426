//! The guarantees that every chained table gives its users.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier};

use corewise_maps::relativistic::ResizeError;
use corewise_maps_lab::chained::{self, ChainedMap, ChainedTable};
use corewise_rcu::Domain;
use corewise_testkit::history::models::{EntryOp, EntryOutcome, MapEntry};
use corewise_testkit::history::record_beside;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use corewise_testkit::for_every;
use corewise_testkit::hashing::Hashing;

for_every! {
    out_of_place: chained::OutOfPlace,
    atc11: chained::Atc11,
    in_place: chained::InPlace,
    no_auxiliary: chained::NoAuxiliary,
    sorted_by_reversed_hash: chained::SortedByReversedHash,
    sorted_by_high_bits: chained::SortedByHighBits,
    split_ordered: chained::SplitOrdered,
    per_entry: chained::PerEntry,
    ddds: chained::Ddds,
    => {
        it_does_what_a_hash_map_does
        hashes_that_are_all_alike_do_no_harm
        histories_beside_resizes_are_linearizable
        entries_that_stay_are_found_beside_resizes_and_updates
        batches_answer_as_lookups_do
        a_batch_without_places_for_its_keys_is_refused
        updates_under_a_guard_do_not_wait_for_a_resize
        resizes_that_cannot_be_are_refused
        keys_and_values_are_dropped_once
        values_that_panic_when_dropped_leak_no_others
        a_panic_in_eq_leaves_the_map_as_it_was
        several_threads_may_ask_for_a_resize
        entries_are_aligned_and_of_any_size
        buckets_beyond_memory_are_refused
        maps_may_be_dropped_beside_guards_of_others
    }
}

// Its resizes do not wait for readers.
for_every! {
    rwlocked: chained::RwLocked,
    => {
        it_does_what_a_hash_map_does
        hashes_that_are_all_alike_do_no_harm
        histories_beside_resizes_are_linearizable
        entries_that_stay_are_found_beside_resizes_and_updates
        batches_answer_as_lookups_do
        a_batch_without_places_for_its_keys_is_refused
        resizes_that_cannot_be_are_refused
        keys_and_values_are_dropped_once
        values_that_panic_when_dropped_leak_no_others
        a_panic_in_eq_leaves_the_map_as_it_was
        several_threads_may_ask_for_a_resize
        entries_are_aligned_and_of_any_size
        buckets_beyond_memory_are_refused
        maps_may_be_dropped_beside_guards_of_others
    }
}

/// Each key is its own hash.
type WithOwn<A> = ChainedMap<u64, u64, A, Hashing>;

fn map<A: ChainedTable>(buckets: usize) -> Arc<ChainedMap<u64, u64, A>> {
    Arc::new(ChainedMap::with_buckets(buckets))
}

/// Random operations and resizes; each result must be that of `std`'s map.
fn differential<A: ChainedTable>(seed: u64, hashing: Hashing, keys: u64, most_buckets: u32) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut map = ChainedMap::<u64, u64, A, _>::in_domain(1, hashing, Domain::new());
    let mut model = HashMap::new();
    for step in 0..4_000u64 {
        let key = rng.random_range(0..keys);
        match rng.random_range(0..100) {
            0..40 => {
                let seen = map.pin().try_insert(key, step).err().copied();
                let told = match model.entry(key) {
                    Entry::Occupied(there) => Some(*there.get()),
                    Entry::Vacant(gap) => {
                        gap.insert(step);
                        None
                    }
                };
                assert_eq!(seen, told, "insert {key} at {step}");
            }
            40..65 => assert_eq!(map.pin().remove(&key).copied(), model.remove(&key)),
            65..93 => assert_eq!(map.pin().get(&key), model.get(&key), "get {key} at {step}"),
            93..98 => {
                // Keys may repeat, and there may be more of them than fit in a group.
                let many = rng.random_range(0..150);
                let some: Vec<u64> = (0..many).map(|_| rng.random_range(0..keys)).collect();
                let (map, mut seen) = (map.pin(), vec![None; many]);
                map.get_many(&some, &mut seen);
                let told: Vec<_> = some.iter().map(|key| model.get(key)).collect();
                assert_eq!(seen, told, "{some:?} at {step}");
            }
            _ => {
                let buckets = 1 << rng.random_range(0..=most_buckets);
                map.resize_to(buckets).unwrap();
                assert_eq!(map.buckets(), buckets);
                for key in 0..keys {
                    assert_eq!(map.pin().get(&key), model.get(&key), "{key} after a resize");
                }
            }
        }
        assert_eq!(map.len(), model.len());
    }
    let mut seen = HashMap::new();
    map.for_each(|key, value| assert_eq!(seen.insert(*key, *value), None));
    assert_eq!(seen, model);
    assert!(
        model
            .iter()
            .all(|(key, value)| map.pin().get(key) == Some(value))
    );
}

fn it_does_what_a_hash_map_does<A: ChainedTable>() {
    for seed in 0..4 {
        differential::<A>(seed, Hashing::Mixed, 200, 8);
        differential::<A>(seed, Hashing::Own, 40, 6);
    }
}

fn hashes_that_are_all_alike_do_no_harm<A: ChainedTable>() {
    differential::<A>(1, Hashing::Alike, 30, 5);
    differential::<A>(2, Hashing::High, 60, 6);
}

/// Resizes a map between random sizes until told to stop.
#[derive(Default)]
struct Resizing {
    stop: AtomicBool,
    done: AtomicUsize,
}

impl Resizing {
    fn go_on<A: ChainedTable, S: Sync>(&self, map: &ChainedMap<u64, u64, A, S>, most: u32) {
        let mut rng = SmallRng::seed_from_u64(7);
        while !self.stop.load(Relaxed) {
            map.resize_to(1 << rng.random_range(0..=most)).unwrap();
            self.done.fetch_add(1, Relaxed);
        }
    }

    /// Waits until another resize is done, so that what follows runs during the next one.
    fn next(&self) {
        let seen = self.done.load(Relaxed);
        while self.done.load(Relaxed) == seen && !self.stop.load(Relaxed) {
            std::thread::yield_now();
        }
    }
}

fn histories_beside_resizes_are_linearizable<A: ChainedTable>() {
    const THREADS: u64 = 3;
    const CALLS: u64 = 900;
    for seed in 0..2 {
        let map = WithOwn::<A>::in_domain(1, Hashing::Own, Domain::global().clone());
        let resizing = Resizing::default();
        let beside = || resizing.go_on(&map, 5);
        let room = 4 * CALLS as usize;
        let history = record_beside(THREADS, room, &resizing.stop, beside, |thread, recorder| {
            let mut rng = SmallRng::seed_from_u64(seed << 8 | thread);
            for call in 0..CALLS {
                if call % 150 == 0 {
                    resizing.next();
                }
                // Keys that share a bucket at some sizes and not at others.
                let key = rng.random_range(0..4) * 4;
                let op = match rng.random_range(0..4) {
                    0 => EntryOp::TryInsert(thread << 32 | call),
                    1 => EntryOp::Remove,
                    2 => EntryOp::Get,
                    _ => {
                        let keys = [0, 4, 8, 12].map(|other| key ^ other);
                        recorder.record_batch(keys, EntryOp::Get, || held(&map, keys));
                        continue;
                    }
                };
                recorder.record(key, op.clone(), || perform(&map, key, &op));
            }
        });
        history.check(&MapEntry::new()).assert_linearizable();
    }
}

/// The values that a batch of lookups returns for the keys.
fn held<A: ChainedTable>(map: &WithOwn<A>, keys: [u64; 4]) -> [EntryOutcome<u64>; 4] {
    let (map, mut out) = (map.pin(), [None; 4]);
    map.get_many(&keys, &mut out);
    out.map(|held| EntryOutcome::Held(held.copied()))
}

fn perform<A: ChainedTable>(map: &WithOwn<A>, key: u64, op: &EntryOp<u64>) -> EntryOutcome<u64> {
    let map = map.pin();
    EntryOutcome::Held(match *op {
        EntryOp::TryInsert(value) => map.try_insert(key, value).err().copied(),
        EntryOp::Remove => map.remove(&key).copied(),
        _ => map.get(&key).copied(),
    })
}

fn entries_that_stay_are_found_beside_resizes_and_updates<A: ChainedTable>() {
    const KEPT: u64 = 600;
    let map = map::<A>(64);
    for key in 0..KEPT {
        map.pin().insert(key * 2, key);
    }
    let resizing = Resizing::default();
    let stop = &resizing.stop;
    std::thread::scope(|scope| {
        let updaters: Vec<_> = (0..2u64)
            .map(|thread| {
                let map = &map;
                scope.spawn(move || {
                    let mut rng = SmallRng::seed_from_u64(thread);
                    while !stop.load(Relaxed) {
                        let key = (rng.random_range(0..KEPT) * 2 + 1) << 1 | thread << 40;
                        let map = map.pin();
                        assert!(map.insert(key | 1 << 50, key));
                        assert_eq!(map.remove(&(key | 1 << 50)), Some(&key));
                    }
                })
            })
            .collect();
        scope.spawn(|| resizing.go_on(&map, 9));
        let mut rng = SmallRng::seed_from_u64(99);
        for call in 0..60_000 {
            if call % 10_000 == 0 {
                resizing.next();
            }
            let key = rng.random_range(0..KEPT);
            assert_eq!(map.pin().get(&(key * 2)), Some(&key));
            if call % 16 == 0 {
                let keys: [u64; 24] = std::array::from_fn(|_| rng.random_range(0..KEPT));
                let (map, mut out) = (map.pin(), [None; 24]);
                map.get_many(&keys.map(|key| key * 2), &mut out);
                assert!(keys.iter().map(Some).eq(out), "{keys:?}");
            }
        }
        stop.store(true, Relaxed);
        updaters
            .into_iter()
            .for_each(|updater| updater.join().unwrap());
    });
    assert_eq!(map.len() as u64, KEPT);
}

/// Batches larger than a group, with keys in every part of the groups.
fn batches_answer_as_lookups_do<A: ChainedTable>() {
    let map = map::<A>(64);
    (0..100).for_each(|key| assert!(map.pin().insert(key * 2, key)));
    for keys in (0..70).chain([127, 128, 129, 200]) {
        let keys: Vec<u64> = (0..keys).map(|key| key * 7 % 200).collect();
        let (map, mut out) = (map.pin(), vec![Some(&u64::MAX); keys.len()]);
        map.get_many(&keys, &mut out);
        assert!(
            keys.iter()
                .zip(&out)
                .all(|(key, found)| *found == map.get(key))
        );
        let half = |key: &u64| key.is_multiple_of(2).then_some(*key / 2);
        assert!(
            keys.iter()
                .map(half)
                .eq(out.iter().map(|found| found.copied()))
        );
    }
}

fn a_batch_without_places_for_its_keys_is_refused<A: ChainedTable>() {
    let map = map::<A>(4);
    let (map, one) = (map.pin(), 1);
    map.insert(1, one);
    for places in [1, 3] {
        let mut out = vec![Some(&one); places];
        let refused = catch_unwind(AssertUnwindSafe(|| map.get_many(&[5, 6], &mut out)));
        assert!(refused.is_err());
        assert!(out.iter().all(|place| *place == Some(&one)), "written");
    }
}

fn updates_under_a_guard_do_not_wait_for_a_resize<A: ChainedTable>() {
    let waits = [(4, 64), (64, 4)].map(|(from, to)| update_under_a_guard::<A>(from, to));
    // Not every table waits in both directions.
    assert!(waits.iter().sum::<u64>() > 0);
}

/// Runs updates under a guard during a resize; returns how often the resize waited for readers.
fn update_under_a_guard<A: ChainedTable>(from: usize, to: usize) -> u64 {
    let map = map::<A>(from);
    (0..100).for_each(|key| assert!(map.pin().insert(key, key)));
    let held = map.pin();
    let begun = Barrier::new(2);
    let waits = std::thread::scope(|scope| {
        let resizer = scope.spawn(|| {
            begun.wait();
            map.resize_to(to).map(|took| took.waits)
        });
        begun.wait();
        // From some time on the resize waits for this guard; the updates must not wait for the
        // resize.
        for round in 0..200 {
            for key in 0..100 {
                assert_eq!(held.remove(&key), Some(&key), "round {round}");
                assert!(held.insert(key, key));
            }
        }
        drop(held);
        resizer.join().unwrap().unwrap()
    });
    assert_eq!((map.len(), map.buckets()), (100, to));
    waits
}

fn resizes_that_cannot_be_are_refused<A: ChainedTable>() {
    let map = map::<A>(8);
    map.pin().insert(1, 1);
    assert_eq!(map.resize_to(0), Err(ResizeError::NoBuckets));
    assert_eq!(map.resize_to(usize::MAX), Err(ResizeError::NoMemory));
    assert_eq!(map.resize_to(1 << 60), Err(ResizeError::NoMemory));
    let guard = map.pin();
    assert_eq!(map.resize_to(16), Err(ResizeError::Pinned));
    drop(guard);
    assert_eq!((map.buckets(), map.pin().get(&1)), (8, Some(&1)));
}

/// Counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn keys_and_values_are_dropped_once<A: ChainedTable>() {
    let (drops, domain) = (Arc::new(AtomicUsize::new(0)), Domain::new());
    let hasher = std::hash::RandomState::new();
    let mut map = ChainedMap::<u64, Counted, A, _>::in_domain(4, hasher, domain.clone());
    for key in 0..50 {
        assert!(map.pin().insert(key, Counted(drops.clone())));
    }
    assert!(!map.pin().insert(7, Counted(drops.clone())));
    assert_eq!(drops.load(Relaxed), 1, "what was not inserted");
    let handle = map.pin();
    assert!(handle.remove(&7).is_some() && handle.remove(&7).is_none());
    assert_eq!(drops.load(Relaxed), 1, "it is lent");
    drop(handle);
    map.resize_to(32).unwrap();
    domain.barrier();
    assert_eq!(drops.load(Relaxed), 2);
    let stops = || map.for_each(|_, _| panic!("in the middle"));
    assert!(catch_unwind(AssertUnwindSafe(stops)).is_err());
    assert_eq!((map.pin().get(&8).is_some(), map.len()), (true, 49));
    drop(map);
    assert_eq!(drops.load(Relaxed), 51);
}

/// Panics when it is compared, if told to.
#[derive(Clone)]
struct Touchy(u64, Arc<AtomicBool>);

impl PartialEq for Touchy {
    fn eq(&self, other: &Self) -> bool {
        assert!(!self.1.load(Relaxed), "a comparison");
        self.0 == other.0
    }
}
impl Eq for Touchy {}
impl Hash for Touchy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0 % 4);
    }
}

/// A value whose drop panics, with a payload whose drop panics too.
struct Bomb(u64, Arc<AtomicUsize>);

struct Splinter;

impl Drop for Splinter {
    fn drop(&mut self) {
        panic!("a splinter");
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        self.1.fetch_add(1, Relaxed);
        // Not the keys that are removed earlier: the domain drops those.
        if self.0 < 90 && self.0.is_multiple_of(3) {
            std::panic::resume_unwind(Box::new(Splinter));
        }
    }
}

fn values_that_panic_when_dropped_leak_no_others<A: ChainedTable>() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let domain = Domain::new();
    let map = ChainedMap::<_, _, A, _>::in_domain(4, Hashing::Mixed, domain.clone());

    for key in 0..100u64 {
        assert!(map.pin().insert(key, Bomb(key, dropped.clone())));
    }
    for key in 90..100 {
        assert!(map.pin().remove(&key).is_some());
    }
    let thrown = catch_unwind(AssertUnwindSafe(|| drop(map)));
    std::mem::forget(thrown.expect_err("the first panic goes on"));
    domain.barrier();
    assert_eq!(dropped.load(Relaxed), 100);
}

fn a_panic_in_eq_leaves_the_map_as_it_was<A: ChainedTable>() {
    let panics = Arc::new(AtomicBool::new(false));
    let key = |n| Touchy(n, panics.clone());
    let map = ChainedMap::<Touchy, u64, A>::with_buckets(2);
    (0..20).for_each(|n| assert!(map.pin().insert(key(n), n)));
    panics.store(true, Relaxed);
    let fails = |call: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    fails(&|| assert!(map.pin().insert(key(1), 0)));
    fails(&|| assert!(map.pin().insert(key(21), 0)));
    fails(&|| assert!(map.pin().remove(&key(2)).is_some()));
    fails(&|| assert!(map.pin().get(&key(3)).is_some()));
    panics.store(false, Relaxed);
    map.resize_to(16).unwrap();
    assert_eq!(map.len(), 20);
    assert!((0..20).all(|n| map.pin().get(&key(n)) == Some(&n)));
    assert!((0..20).all(|n| map.pin().remove(&key(n)) == Some(&n)));
}

fn several_threads_may_ask_for_a_resize<A: ChainedTable>() {
    let map = map::<A>(1);
    (0..300).for_each(|key| assert!(map.pin().insert(key, key)));
    std::thread::scope(|scope| {
        for thread in 0..3u32 {
            let map = &map;
            scope.spawn(move || {
                for round in 0..20 {
                    map.resize_to(1 << ((round + thread) % 8)).unwrap();
                    assert!((0..300).all(|key| map.pin().contains_key(&key)));
                }
            });
        }
    });
    assert_eq!(map.len(), 300);
}

#[derive(PartialEq, Eq, Hash)]
#[repr(align(8192))]
struct Page(u64);

#[repr(align(131072))]
struct Pages(u64);

fn entries_are_aligned_and_of_any_size<A: ChainedTable>() {
    let map = ChainedMap::<Page, Pages, A>::with_buckets(4);
    assert!((0..50).all(|n| map.pin().insert(Page(n), Pages(n))));
    let handle = map.pin();
    for n in 0..50 {
        let pages = handle.get(&Page(n)).expect("inserted");
        assert_eq!((std::ptr::from_ref(pages).is_aligned(), pages.0), (true, n));
    }
}

fn buckets_beyond_memory_are_refused<A: ChainedTable>() {
    for most in [usize::MAX, usize::MAX / 2 + 2, usize::MAX / 8, 1 << 60] {
        let make = || drop(ChainedMap::<u64, u64, A>::with_buckets(most));
        assert!(catch_unwind(make).is_err(), "{most} buckets");
    }
}

fn maps_may_be_dropped_beside_guards_of_others<A: ChainedTable>() {
    let domain = Domain::new();
    let map = ChainedMap::<u64, String, A, _>::in_domain(4, Hashing::Mixed, domain.clone());
    let guard = domain.pin();
    for key in 0..1_000 {
        map.pin().insert(key, key.to_string());
        map.pin().remove(&(key / 2));
    }
    drop(map);
    drop(guard);
    domain.barrier();
}

/// A table with more buckets is published by one store, without waiting for readers.
#[test]
fn split_ordered_lists_expand_under_a_guard() {
    let map = map::<chained::SplitOrdered>(1);
    (0..100).for_each(|key| assert!(map.pin().insert(key, key)));
    let held = map.pin();
    let took = std::thread::scope(|scope| scope.spawn(|| map.resize_to(64)).join().unwrap());
    assert_eq!(took.unwrap().waits, 0);
    assert!((0..100).all(|key| held.get(&key) == Some(&key)));
    assert_eq!(map.buckets(), 64);
}
