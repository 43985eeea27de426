//! The guarantees that every chained table gives its users.

use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier};

use corewise_maps::relativistic::ResizeError;
use corewise_maps_lab::chained::{self, ChainedMap, ChainedTable, Resized};
use corewise_rcu::Domain;
use corewise_testkit::for_every;
use corewise_testkit::hashing::Hashing;
use corewise_testkit::word_map::*;

for_every! {
    out_of_place: chained::OutOfPlace,
    atc11: chained::Atc11,
    in_place: chained::InPlace,
    no_auxiliary: chained::NoAuxiliary,
    sorted_by_reversed_hash: chained::SortedByReversedHash,
    ddds: chained::Ddds,
    literal_ddds: chained::LiteralDdds,
    => {
        updates_under_a_guard_do_not_wait_for_a_resize
        keys_and_values_are_dropped_once
        resizes_that_cannot_be_are_refused
        values_that_panic_when_dropped_leak_no_others
        a_panic_in_eq_leaves_the_map_as_it_was
        entries_are_aligned_and_of_any_size
        buckets_beyond_memory_are_refused
        maps_may_be_dropped_beside_guards_of_others
    }
}

// Its resizes do not wait for readers.
for_every! {
    rwlocked: chained::RwLocked,
    => {
        keys_and_values_are_dropped_once
        resizes_that_cannot_be_are_refused
        values_that_panic_when_dropped_leak_no_others
        a_panic_in_eq_leaves_the_map_as_it_was
        entries_are_aligned_and_of_any_size
        buckets_beyond_memory_are_refused
        maps_may_be_dropped_beside_guards_of_others
    }
}

/// A map of numbers.
struct Words<A: ChainedTable>(ChainedMap<u64, u64, A, Hashing>);

for_every! {
    out_of_place_words: Words<chained::OutOfPlace>,
    atc11_words: Words<chained::Atc11>,
    in_place_words: Words<chained::InPlace>,
    no_auxiliary_words: Words<chained::NoAuxiliary>,
    sorted_by_reversed_hash_words: Words<chained::SortedByReversedHash>,
    ddds_words: Words<chained::Ddds>,
    literal_ddds_words: Words<chained::LiteralDdds>,
    rwlocked_words: Words<chained::RwLocked>,
    => {
        it_does_what_a_hash_map_does
        keys_of_one_bucket_do_no_harm
        histories_beside_resizes_are_linearizable
        entries_that_stay_are_found_beside_resizes_and_updates
        batches_answer_as_lookups_do
        a_batch_without_places_for_its_keys_is_refused
        several_threads_may_ask_for_a_resize
    }
}

impl<A: ChainedTable> WordMap for Words<A> {
    fn new(buckets: usize, hashing: Hashing, _: bool) -> Self {
        Self(ChainedMap::in_domain(buckets, hashing, Domain::new()))
    }
    fn get(&self, key: u64) -> Option<u64> {
        self.0.pin().get(&key).copied()
    }
    fn get_many(&self, keys: &[u64], out: &mut [Option<u64>]) {
        let map = self.0.pin();
        let mut found: Vec<_> = out.iter().map(Option::as_ref).collect();
        map.get_many(keys, &mut found);
        let found: Vec<_> = found.into_iter().map(Option::<&u64>::copied).collect();
        out.copy_from_slice(&found);
    }
    fn try_insert(&self, key: u64, value: u64) -> Result<(), u64> {
        self.0.pin().try_insert(key, value).map_err(|there| *there)
    }
    fn remove(&self, key: u64) -> Option<u64> {
        self.0.pin().remove(&key).copied()
    }
    fn entries(&self) -> usize {
        self.0.len()
    }
    fn bucket_count(&self) -> usize {
        self.0.buckets()
    }
    fn resize(&self, buckets: usize) {
        self.0.resize_to(buckets).expect("there is memory");
    }
    fn into_pairs(mut self) -> Vec<(u64, u64)> {
        let mut pairs = Vec::new();
        self.0.for_each(|key, value| pairs.push((*key, *value)));
        pairs
    }
}

fn map<A: ChainedTable>(buckets: usize) -> Arc<ChainedMap<u64, u64, A>> {
    Arc::new(ChainedMap::with_buckets(buckets))
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

fn a_resize_says_what_it_took<A: ChainedTable>(waits: u64) {
    let map = map::<A>(4);
    assert!(map.pin().insert(1, 1));
    assert_eq!(map.resize_to(5), Ok(Resized { passes: 1, waits }));
    assert_eq!((map.buckets(), map.pin().get(&1)), (8, Some(&1)));
    assert_eq!(map.resize_to(8), Ok(Resized::default()), "it has as many");
}

#[test]
fn a_resize_says_how_often_it_waited_for_readers() {
    a_resize_says_what_it_took::<chained::Ddds>(2);
    a_resize_says_what_it_took::<chained::LiteralDdds>(3);
    a_resize_says_what_it_took::<chained::RwLocked>(0);
}
