//! Guarantees of `cuckoo::CuckooMap` beyond those of every map of words (`tests/words.rs`): dense
//! tables, moved entries, pairs of any shape.

use std::hash::{BuildHasher, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use corewise_maps::copy_map::{Builder, Full, Limit, Limited, TryInsertError, Unlimited};
use corewise_maps::cuckoo::{CuckooMap, CuckooTable};
use corewise_rcu::Domain;
use corewise_testkit::history::models::{EntryOp, EntryOutcome, MapEntry};
use corewise_testkit::history::record_threads;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::common::fewer;
use crate::hostile::{FUSE, InconsistentHashing, Key};
use corewise_testkit::hashing::Hashing;

type Map<L = Unlimited> = CuckooMap<u64, u64, Hashing, L>;

const SLOTS: usize = 4;

fn builder(hashing: Hashing) -> Builder<CuckooTable<u64, u64>, Hashing> {
    let builder = CuckooMap::<u64, u64>::builder().domain(Domain::new());
    builder.hasher(hashing)
}

/// A map of `buckets` buckets, without memory for more buckets or for overflow.
fn dense(buckets: usize) -> Map<Limited> {
    let bytes = builder(Hashing::Mixed).buckets(buckets).build().bytes();
    let builder = builder(Hashing::Mixed).buckets(buckets).max_bytes(bytes);
    builder.build()
}

fn fill(map: &Map<impl Limit>, keys: std::ops::Range<u64>) {
    keys.for_each(|key| assert_eq!(map.pin().try_insert(key, !key), Ok(())));
}

fn has<L>(map: &Map<L>, keys: std::ops::Range<u64>) -> bool {
    let mut keys = keys;
    keys.all(|key| map.pin().get(&key) == Some(!key))
}

/// Inserts keys from `first` on; returns the key that did not fit.
fn fill_up(map: &Map<Limited>, first: u64) -> u64 {
    (first..)
        .find(|key| match map.pin().insert(*key, !key) {
            Ok(old) => {
                assert_eq!(old, None);
                false
            }
            Err(Full) => true,
        })
        .expect("a table is full at some time")
}

fn load<L>(map: &Map<L>) -> f64 {
    map.len() as f64 / (map.buckets() * SLOTS) as f64
}

#[test]
fn a_table_that_may_not_grow_is_filled_to_19_in_20() {
    for buckets in [1 << 6, 1 << 10, fewer(1 << 14) as usize] {
        let map = dense(buckets);
        let buckets = map.buckets();
        let end = fill_up(&map, 0);
        if !cfg!(corewise_stress) {
            assert!(load(&map) >= 0.95, "{} of {buckets}", load(&map));
        }
        assert_eq!((map.buckets(), map.len() as u64), (buckets, end));
        assert!(has(&map, 0..end));
        assert!((end..end * 3).all(|key| map.pin().get(&key).is_none()));
        // Replaces keys by new ones.
        let (mut from, mut to) = (0, end);
        for _ in 0..4 {
            let half = from + (to - from) / 2;
            assert!((from..half).all(|key| map.pin().remove(&key) == Some(!key)));
            assert!((from..half).all(|key| map.pin().get(&key).is_none()));
            (from, to) = (half, fill_up(&map, to));
            assert!(has(&map, from..to));
            assert_eq!(map.len() as u64, to - from);
        }
        if !cfg!(corewise_stress) {
            assert!(load(&map) >= 0.95, "{} of {buckets}", load(&map));
        }
        let mut pairs: Vec<_> = map.pin().iter().collect();
        pairs.sort_unstable();
        assert!(pairs.into_iter().eq((from..to).map(|key| (key, !key))));
    }
}

/// More keys of one hash than fit in two buckets: they cannot be moved, so they are no reason to
/// grow.
#[test]
fn keys_of_one_hash_overflow_and_the_table_stays_small() {
    let map = builder(Hashing::Alike).buckets(16).build();
    fill(&map, 0..8);
    assert!(has(&map, 0..8));
    let stays = !cfg!(corewise_stress);
    assert!(map.overflowing() == 0 || !stays);
    fill(&map, 8..40);
    assert!(has(&map, 0..40));
    if stays {
        assert_eq!((map.buckets(), map.overflowing()), (16, 8));
    }
    assert!((0..36).all(|key| map.pin().remove(&key) == Some(!key)));
    assert!(has(&map, 36..40));
    // The remaining keys fit in one bucket.
    let held = map.bytes();
    fill(&map, 40..44);
    assert!((map.len(), map.bytes()) == (8, held) || !stays);
    map.resize_to(32).unwrap();
    assert!((map.buckets(), map.overflowing()) == (32, 0) || !stays);
    assert!(has(&map, 36..44));
}

/// Half of all keys are chosen against the table, the others are not.
#[test]
fn chosen_keys_do_not_make_the_table_grow() {
    let keys = fewer(8_000);
    let map = CuckooMap::<u64, u64>::builder().hasher(HalfAlike).build();
    for key in 0..keys {
        assert_eq!(map.pin().insert(key, !key), None);
        if key % 2 == 0 && key >= 1_000 {
            assert_eq!(map.pin().remove(&(key - 1_000)), Some(!(key - 1_000)));
        }
    }
    assert!(
        (1..keys)
            .step_by(2)
            .all(|key| map.pin().get(&key) == Some(!key))
    );
    if !cfg!(corewise_stress) {
        // At most the buckets that it grows to with three quarters of the slots held. A bucket of
        // these pairs takes 72 bytes, and tables below 512 KiB quadruple.
        let buckets = map.buckets();
        let factor = if buckets / 4 * 72 < 512 << 10 { 4 } else { 2 };
        assert!(buckets * SLOTS * 3 / 4 <= map.len() * factor, "{buckets}");
    }
}

/// All even numbers have the same hash.
struct HalfAlike;

impl BuildHasher for HalfAlike {
    type Hasher = HalfHasher;

    fn build_hasher(&self) -> HalfHasher {
        HalfHasher(0)
    }
}

struct HalfHasher(u64);

impl Hasher for HalfHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed");
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
    fn finish(&self) -> u64 {
        let hashing = if self.0.is_multiple_of(2) {
            Hashing::Alike
        } else {
            Hashing::Mixed
        };
        hashing.hash_one(self.0)
    }
}

#[test]
fn it_grows_when_it_is_dense() {
    let map = builder(Hashing::Mixed).build();
    let (mut buckets, mut most) = (map.buckets(), 0.0);
    for key in 0..fewer(200_000) {
        fill(&map, key..key + 1);
        if map.buckets() == buckets {
            most = load(&map);
            continue;
        }
        // A bucket of these pairs takes 72 bytes, and tables below 512 KiB are small.
        let is_small = buckets * 72 < 512 << 10 && !cfg!(corewise_stress);
        let (least, factor) = if is_small { (0.81, 4) } else { (0.93, 2) };
        // The new table becomes current when everything is moved, which takes an eighth of the
        // buckets.
        if buckets >= 256 && !cfg!(corewise_stress) {
            assert!(most >= least, "{most} of {buckets} buckets");
        }
        assert_eq!(map.buckets(), buckets * factor);
        buckets *= factor;
    }
    assert!(has(&map, 0..map.len() as u64));
}

/// Half of the keys stay, in a table so dense that insertions displace them all the time.
#[test]
fn a_moved_entry_is_never_missed() {
    const BUCKETS: usize = 64;
    let map = dense(BUCKETS);
    let kept = (BUCKETS * SLOTS) as u64 / 2;
    fill(&map, 0..kept);
    let stop = AtomicBool::new(false);
    let come_and_go = |thread: u64| {
        let mut rng = SmallRng::seed_from_u64(thread);
        let mut others: Vec<u64> = Vec::new();
        let mut next = kept + thread;
        while !stop.load(Relaxed) {
            match map.pin().try_insert(next, !next) {
                Ok(()) => {
                    others.push(next);
                    next += 2;
                }
                Err(TryInsertError::Full) => {
                    for _ in 0..others.len().min(8) {
                        let gone = others.swap_remove(rng.random_range(0..others.len()));
                        assert_eq!(map.pin().remove(&gone), Some(!gone));
                    }
                }
                Err(there) => panic!("{there}"),
            }
        }
        others.len()
    };
    std::thread::scope(|scope| {
        let movers = [0, 1].map(|thread| scope.spawn(move || come_and_go(thread)));
        for _ in 0..fewer(8_000) {
            assert!((0..kept).all(|key| map.pin().get(&key) == Some(!key)));
        }
        for _ in 0..fewer(1_000) {
            let mut pairs: Vec<_> = map.pin().iter().filter(|pair| pair.0 < kept).collect();
            pairs.sort_unstable();
            assert!(pairs.into_iter().eq((0..kept).map(|key| (key, !key))));
        }
        stop.store(true, Relaxed);
        let others: usize = movers.into_iter().map(|mover| mover.join().unwrap()).sum();
        assert_eq!(map.len(), others + kept as usize);
    });
}

/// Insertions under an iterator use free slots and displace nothing.
#[test]
fn a_map_is_filled_while_it_is_iterated_over() {
    let map = builder(Hashing::Mixed).buckets(16).build();
    fill(&map, 0..60);
    let held = map.pin();
    let mut iter = held.iter();
    let mut seen: Vec<u64> = iter.by_ref().take(7).map(|pair| pair.0).collect();
    fill(&map, 60..5_000);
    seen.extend(iter.map(|pair| pair.0));
    seen.sort_unstable();
    seen.dedup();
    assert!((0..60).all(|key| seen.binary_search(&key).is_ok()));
    assert!(has(&map, 0..5_000));
    drop(held);
    // Afterwards the map can be as dense as any other.
    let buckets = map.buckets();
    map.set_automatic_resize(false);
    fill(&map, 5_000..(buckets * SLOTS) as u64 * 9 / 10);
    map.resize_to(buckets * 2).unwrap();
    map.resize_to(buckets).unwrap();
    assert!(has(&map, 0..map.len() as u64));
}

/// Few keys, in a table in which they displace each other.
#[test]
fn histories_in_a_dense_table_are_linearizable() {
    const THREADS: u64 = 3;
    for seed in 0..4 {
        let map = dense(2);
        let history = record_threads(THREADS, 1_500, |thread, recorder| {
            let mut rng = SmallRng::seed_from_u64(seed << 8 | thread);
            for call in 0..1_500 {
                let (key, fresh) = (rng.random_range(0..7), (call * THREADS + thread) << 16);
                let op = match rng.random_range(0..10) {
                    0 | 1 => EntryOp::TryInsert(fresh),
                    2 => EntryOp::Insert(fresh),
                    3 | 4 => EntryOp::Remove,
                    _ => EntryOp::Get,
                };
                // Seven keys and eight slots: there is room.
                recorder.record(key, op.clone(), || {
                    EntryOutcome::Held(match op {
                        EntryOp::TryInsert(value) => match map.pin().try_insert(key, value) {
                            Ok(()) => None,
                            Err(TryInsertError::Occupied(there)) => Some(there),
                            Err(full) => panic!("{full}"),
                        },
                        EntryOp::Insert(value) => map.pin().insert(key, value).unwrap(),
                        EntryOp::Remove => map.pin().remove(&key),
                        _ => map.pin().get(&key),
                    })
                });
            }
        });
        history.check(&MapEntry::new()).assert_linearizable();
    }
}

#[test]
fn all_bytes_are_counted_and_come_back() {
    let map = builder(Hashing::Mixed).buckets(1).build();
    let one = map.bytes();
    for round in 0..3 {
        fill(&map, 0..5_000);
        map.resize_to(1 << (9 + round)).unwrap();
        assert!(has(&map, 0..5_000));
        (0..5_000).for_each(|key| assert_eq!(map.pin().remove(&key), Some(!key)));
    }
    map.resize_to(1).unwrap();
    assert_eq!((map.bytes(), map.overflowing()), (one, 0));
}

/// A bucket that lost entries takes its overflow entries back.
#[test]
fn what_overflowed_comes_back_into_the_bucket() {
    let map = builder(Hashing::Alike).buckets(2).automatic_resize(false);
    let map = map.build();
    fill(&map, 0..12);
    // Four entries of the first bucket stay in it, whatever is removed.
    for key in [0, 5, 1, 11, 6, 2] {
        assert_eq!(map.pin().remove(&key), Some(!key));
        assert_eq!(map.pin().get(&key), None);
    }
    assert!(
        [3, 4, 7, 8, 9, 10]
            .iter()
            .all(|key| map.pin().get(key) == Some(!key))
    );
    let mut keys: Vec<_> = map.pin().iter().map(|pair| pair.0).collect();
    keys.sort_unstable();
    assert_eq!(keys, [3, 4, 7, 8, 9, 10]);
}

#[test]
fn a_panic_in_a_hasher_or_a_comparison_leaves_the_map_as_it_was() {
    let map = CuckooMap::<Key, u64, _>::with_hasher(InconsistentHashing);
    (0..200).for_each(|n| assert_eq!(map.pin().insert(Key(n), n), None));
    for patience in 0..5 {
        for n in 0..200 {
            let patient = |act: &dyn Fn() -> bool| {
                FUSE.set(patience);
                // Nothing is changed before all comparisons are done.
                let answer = catch_unwind(AssertUnwindSafe(act));
                FUSE.set(-1);
                assert!(answer.unwrap_or(true));
            };
            patient(&|| map.pin().insert(Key(n), n) == Some(n));
            patient(&|| map.pin().try_insert(Key(n), 0).is_err());
            patient(&|| map.pin().update(&Key(n), |value| value) == Some(n));
            patient(&|| map.pin().get(&Key(n)) == Some(n));
        }
    }
    assert!((0..200).all(|n| map.pin().remove(&Key(n)) == Some(n)));
    assert!(map.is_empty());
}
