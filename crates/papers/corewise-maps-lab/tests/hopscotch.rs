//! Guarantees of `hopscotch::HopscotchMap` beyond those of every map of words (`tests/words.rs`):
//! density, keys that are displaced or have no place, pairs of any shape, memory.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use corewise_maps::copy_map::{Builder, Full, Limit, TryInsertError, Unlimited};
use corewise_maps::relativistic::ResizeError;
use corewise_maps_lab::hopscotch::{HopscotchMap, HopscotchTable, Overflowing};
use corewise_rcu::Domain;
use corewise_testkit::history::Recording;
use corewise_testkit::history::models::{EntryOp, EntryOutcome, MapEntry};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use corewise_testkit::hashing::Hashing;
use corewise_testkit::random::is_short;

thread_local! {
    /// Whether node allocations fail in this thread.
    static REFUSED: Cell<bool> = const { Cell::new(false) };
    /// Bytes that this thread has allocated and not freed.
    static BYTES: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, which can be told to refuse nodes: memory with an alignment of 64.
struct Moody;

#[global_allocator]
static ALLOCATOR: Moody = Moody;

// SAFETY: forwards to the system's allocator, or returns null.
unsafe impl GlobalAlloc for Moody {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() == 64 && REFUSED.get() {
            return std::ptr::null_mut();
        }
        BYTES.set(BYTES.get() + layout.size().cast_signed());
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        BYTES.set(BYTES.get() - layout.size().cast_signed());
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

type Map<L = Unlimited> = HopscotchMap<u64, u64, Hashing, L>;

fn builder(hashing: Hashing) -> Builder<HopscotchTable<u64, u64>, Hashing> {
    let builder = HopscotchMap::<u64, u64>::builder().domain(Domain::new());
    builder.hasher(hashing)
}

fn fixed(buckets: usize, hashing: Hashing) -> Map {
    let builder = builder(hashing).buckets(buckets).max_buckets(buckets);
    builder.build()
}

fn fill(map: &Map<impl Limit>, mut keys: impl Iterator<Item = u64>) {
    assert!(keys.all(|key| map.pin().try_insert(key, !key) == Ok(())));
}

fn has<L>(map: &Map<L>, mut keys: impl Iterator<Item = u64>) -> bool {
    keys.all(|key| map.pin().get(&key) == Some(!key))
}

fn has_none<L>(map: &Map<L>, mut keys: impl Iterator<Item = u64>) -> bool {
    keys.all(|key| !map.pin().contains_key(&key))
}

fn fewer(all: u64) -> u64 {
    if is_short() { all.div_ceil(20) } else { all }
}

/// About 2 keys per thousand have no place, as the header says; this allows 8. Under stress,
/// neighbourhoods have only 4 cells.
fn may_overflow(map: &Map, keys: u64) -> bool {
    cfg!(corewise_stress) || map.overflowing() as u64 <= keys / 125
}

#[test]
fn a_table_that_is_95_percent_full_keeps_answering() {
    const BUCKETS: u64 = 1 << 14;
    const KEYS: u64 = BUCKETS * 95 / 100;
    let map = fixed(BUCKETS as usize, Hashing::Mixed);
    fill(&map, 0..KEYS);
    assert!(may_overflow(&map, KEYS), "{}", map.overflowing());
    assert!(has(&map, 0..KEYS) && has_none(&map, KEYS..KEYS * 3));
    // Replaces all keys by new ones, twice, while the table stays equally full.
    for key in 0..KEYS * 2 {
        assert_eq!(map.pin().remove(&key), Some(!key));
        assert_eq!(map.pin().try_insert(key + KEYS, !(key + KEYS)), Ok(()));
    }
    assert_eq!((map.len() as u64, map.buckets() as u64), (KEYS, BUCKETS));
    assert!(may_overflow(&map, KEYS), "{}", map.overflowing());
    assert!(has(&map, KEYS * 2..KEYS * 3) && has_none(&map, 0..KEYS * 2));
    // Removes and inserts the same keys.
    for key in KEYS * 2..KEYS * 3 {
        assert_eq!(map.pin().remove(&key), Some(!key));
        assert_eq!(map.pin().insert(key, !key), None);
    }
    assert!(has(&map, KEYS * 2..KEYS * 3));
    let mut keys: Vec<_> = map.pin().iter().map(|(key, _)| key).collect();
    keys.sort_unstable();
    assert!(keys.into_iter().eq(KEYS * 2..KEYS * 3));
}

#[test]
fn more_keys_than_cells_are_all_there() {
    let map = fixed(256, Hashing::Mixed);
    fill(&map, 0..1_000);
    assert!(map.overflowing() >= 1_000 - 256);
    assert!(has(&map, 0..1_000) && has_none(&map, 1_000..2_000));
    assert!((0..1_000).all(|key| map.pin().remove(&key) == Some(!key)));
    assert_eq!((map.len(), map.overflowing()), (0, 0));
    assert_eq!(map.pin().iter().count(), 0);
}

/// Guarantee 6.
#[test]
fn a_full_table_reports_it_and_loses_nothing() {
    const BUCKETS: usize = 1 << 10;
    // Memory for the table, and for no node.
    let bytes = fixed(BUCKETS, Hashing::Mixed).bytes();
    let limits = builder(Hashing::Mixed).buckets(BUCKETS).max_bytes(bytes);
    let map = limits.build();
    let fits = |key: &u64| map.pin().insert(*key, !key) == Ok(None);
    let keys = (0..).take_while(fits).count() as u64;
    let most = if cfg!(corewise_stress) { 4 } else { 7 };
    assert!(keys * 10 >= BUCKETS as u64 * most, "{keys}");
    let map_ref = map.pin();
    let before: Vec<_> = map_ref.iter().collect();
    assert_eq!(map_ref.insert(keys, 0), Err(Full));
    assert_eq!(map_ref.try_insert(keys, 0), Err(TryInsertError::Full));
    assert_eq!(map_ref.get(&keys), None);
    assert_eq!(map_ref.iter().collect::<Vec<_>>().len(), before.len());
    assert!(has(&map, 0..keys));
    // Operations that need no memory still work.
    assert_eq!(map_ref.insert(7, 1), Ok(Some(!7)));
    assert_eq!(map_ref.try_insert(7, 2), Err(TryInsertError::Occupied(1)));
    assert_eq!(map_ref.update(&7, |value| value + 1), Some(2));
    assert_eq!(map_ref.remove(&7), Some(2));
    assert_eq!(map_ref.insert(7, !7), Ok(None));
    assert!(has(&map, 0..keys));
    assert_eq!((map.len() as u64, map.bytes()), (keys, bytes));
}

#[test]
fn an_allocator_without_memory_loses_nothing() {
    let map = fixed(1, Hashing::Own);
    fill(&map, 0..1);
    REFUSED.set(true);
    assert_eq!(map.pin().try_insert(1, 0), Err(TryInsertError::Full));
    assert_eq!(map.pin().insert(0, 5), Some(!0));
    REFUSED.set(false);
    assert_eq!((map.len(), map.overflowing()), (1, 0));
    assert_eq!(map.pin().insert(1, !1), None);
    assert_eq!(map.pin().get(&0), Some(5));
}

/// Memory suffices for the new table, but not for keys without a place in it.
#[test]
fn a_resize_that_lacks_memory_can_be_repeated() {
    let bytes = fixed(64, Hashing::Own).bytes() + fixed(1, Hashing::Own).bytes();
    let map = builder(Hashing::Own).buckets(64).automatic_resize(false);
    let map = map.max_bytes(bytes).build();
    fill(&map, 0..64);
    assert_eq!(map.resize_to(1), Err(ResizeError::NoMemory));
    assert_eq!(map.buckets(), 64);
    for _ in 0..3 {
        assert_eq!(map.pin().remove(&0), Some(!0));
        assert_eq!(map.pin().insert(0, !0), Ok(None));
        assert!(has(&map, 0..64));
        assert_eq!((map.len(), map.pin().iter().count()), (64, 64));
    }
    assert!((1..64).all(|key| map.pin().remove(&key) == Some(!key)));
    map.resize_to(1).unwrap();
    assert!(has(&map, 0..1));
    assert_eq!((map.buckets(), map.len(), map.overflowing()), (1, 1, 0));
}

/// Guarantee 5.
#[test]
fn keys_of_one_home_have_a_place() {
    let map = builder(Hashing::High).buckets(1 << 8).build();
    let before = map.buckets();
    for round in 0..3 {
        fill(&map, 0..200);
        assert!(has(&map, 0..200) && has_none(&map, 200..300));
        assert!(
            cfg!(corewise_stress) || map.overflowing() >= 200 - 32,
            "{round}"
        );
        let bytes = map.bytes();
        assert!((0..100).all(|key| map.pin().remove(&key) == Some(!key)));
        fill(&map, 0..100);
        // Freed nodes are used again.
        assert!(cfg!(corewise_stress) || map.bytes() == bytes);
        assert!((0..200).all(|key| map.pin().remove(&key) == Some(!key)));
        assert_eq!(map.len(), 0);
        // Under stress it is being resized, and this is the number of the previous table.
        assert!(cfg!(corewise_stress) || map.overflowing() == 0);
    }
    assert!(cfg!(corewise_stress) || map.buckets() == before);
}

#[test]
fn keys_of_a_bad_hash_make_it_grow_no_more_than_they_are() {
    // Every 64th home, so no cell in between is in reach of the next home.
    let map = builder(Hashing::Own).build();
    fill(&map, (0..5_000).map(|key| key * 64));
    assert!(has(&map, (0..5_000).map(|key| key * 64)));
    if !cfg!(corewise_stress) {
        let buckets = map.buckets();
        assert!((2_500..=10_000).contains(&buckets), "{buckets}");
    }
}

/// Guarantee 2: few cells are free, so keys are displaced all the time.
#[test]
fn keys_that_stay_are_found_beside_displacements() {
    const BUCKETS: u64 = 512;
    const KEPT: u64 = 300;
    let map = fixed(BUCKETS as usize, Hashing::Mixed);
    fill(&map, 0..KEPT);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let (map, stop) = (&map, &stop);
            scope.spawn(move || {
                // Each thread has a moving window of a hundred keys.
                let key = |n: u64| KEPT + n * 2 + thread;
                fill(map, (0..100).map(key));
                for n in 0.. {
                    if stop.load(Relaxed) {
                        break;
                    }
                    assert_eq!(map.pin().remove(&key(n)), Some(!key(n)));
                    assert_eq!(map.pin().try_insert(key(n + 100), !key(n + 100)), Ok(()));
                }
            });
        }
        let readers: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| (0..fewer(1_000)).all(|_| has(&map, 0..KEPT))))
            .collect();
        let found: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        stop.store(true, Relaxed);
        assert!(found.into_iter().all(|found| found.is_ok_and(|all| all)));
    });
    assert_eq!(map.len() as u64, KEPT + 200);
}

/// Replacements go through the scratch, in cells and in nodes.
#[test]
fn iterations_beside_replacements_yield_each_key_once() {
    const KEYS: u64 = 40;
    let map = HopscotchMap::<u64, [u64; 2]>::builder().hasher(Hashing::Alike);
    let map = map.buckets(8).max_buckets(8).build();
    (0..KEYS).for_each(|key| assert_eq!(map.pin().insert(key, [0; 2]), None));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (map, stop) = (&map, &stop);
            scope.spawn(move || {
                for n in (0..).take_while(|_| !stop.load(Relaxed)) {
                    let key = (n * 2 + thread) % KEYS;
                    let new = map.pin().update(&key, |[old, _]| [old + 1; 2]);
                    assert!(new.is_some());
                }
            });
        }
        for _ in 0..fewer(10_000) {
            let mut keys: Vec<_> = map
                .pin()
                .iter()
                .map(|(key, [a, b])| (key, a == b))
                .collect();
            keys.sort_unstable();
            assert!(keys.into_iter().eq((0..KEYS).map(|key| (key, true))));
        }
        stop.store(true, Relaxed);
    });
}

/// Displacements, and concurrent updates of the displaced keys.
#[test]
fn histories_beside_displacements_are_linearizable() {
    const CALLS: u64 = 1_500;
    let map = fixed(64, Hashing::Own);
    // Homes 0 to 4 have the keys; the homes before them have keys that overflow into these.
    fill(
        &map,
        (59..64).flat_map(|home| (1..10).map(move |n| home + n * 64)),
    );
    let (recording, stop) = (Recording::new(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                for key in (0..6).map(|home| home * 64 + 6_400 + home) {
                    assert_eq!(map.pin().insert(key, !key), None);
                }
                for key in (0..6).map(|home| home * 64 + 6_400 + home) {
                    assert_eq!(map.pin().remove(&key), Some(!key));
                }
            }
        });
        let workers: Vec<_> = (0..3)
            .map(|thread| {
                let mut recorder = recording.recorder(CALLS as usize);
                let map = &map;
                scope.spawn(move || {
                    let mut rng = SmallRng::seed_from_u64(thread);
                    for call in 0..CALLS {
                        let (key, fresh) = (rng.random_range(0..5), (call * 3 + thread) << 16);
                        let op = match rng.random_range(0..8) {
                            0 | 1 => EntryOp::TryInsert(fresh),
                            2 => EntryOp::Insert(fresh),
                            3 | 4 => EntryOp::Remove,
                            _ => EntryOp::Get,
                        };
                        recorder.record(key, op.clone(), || perform(map, key, &op));
                    }
                })
            })
            .collect();
        let done: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stop.store(true, Relaxed);
        assert!(done.iter().all(Result::is_ok), "a thread has panicked");
    });
    let history = recording.finish().expect("all recorders are back");
    history.check(&MapEntry::new()).assert_linearizable();
}

fn perform(map: &Map, key: u64, op: &EntryOp<u64>) -> EntryOutcome<u64> {
    let map = map.pin();
    EntryOutcome::Held(match *op {
        EntryOp::TryInsert(value) => match map.try_insert(key, value) {
            Err(TryInsertError::Occupied(there)) => Some(there),
            answer => {
                assert_eq!(answer, Ok(()));
                None
            }
        },
        EntryOp::Insert(value) => map.insert(key, value),
        EntryOp::Remove => map.remove(&key),
        _ => map.get(&key),
    })
}

/// A table with keys and values of these types behaves like `std`'s during resizes, and concurrent
/// readers never see a value that was not of its key.
fn shape<K, V>(key: impl Fn(u16) -> K + Sync, value: impl Fn(u16, u8) -> V + Sync)
where
    K: Copy + Eq + Hash + Debug + Send + Sync,
    V: Copy + PartialEq + Debug + Send + Sync,
{
    const KEYS: u16 = 150;
    let map = HopscotchMap::<K, V>::builder().buckets(16).build();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let is_of_key = |n: u16, there| (0..4).any(|round| value(n, round) == there);
            while !stop.load(Relaxed) {
                for n in 0..KEYS {
                    let there = map.pin().get(&key(n));
                    assert!(there.is_none_or(|there| is_of_key(n, there)), "{there:?}");
                }
            }
        });
        let mut model = HashMap::new();
        let mut rng = SmallRng::seed_from_u64(1);
        for _ in 0..fewer(20_000) {
            let (n, round) = (rng.random_range(0..KEYS), rng.random_range(0..4));
            let (key, value) = (key(n), value(n, round));
            match rng.random_range(0..100) {
                0..30 => assert_eq!(map.pin().insert(key, value), model.insert(key, value)),
                30..50 => {
                    let there = model.contains_key(&key);
                    assert_eq!(map.pin().try_insert(key, value).is_err(), there);
                    model.entry(key).or_insert(value);
                }
                50..70 => assert_eq!(map.pin().remove(&key), model.remove(&key)),
                70..85 => {
                    let new = map.pin().update(&key, |_| value);
                    assert_eq!(
                        new,
                        model.get_mut(&key).map(|old| {
                            *old = value;
                            value
                        })
                    );
                }
                85..99 => assert_eq!(map.pin().get(&key), model.get(&key).copied()),
                _ => map.resize_to(1 << rng.random_range(0..10)).unwrap(),
            }
        }
        stop.store(true, Relaxed);
        reader.join().unwrap();
        assert_eq!(
            (map.len(), map.pin().iter().count()),
            (model.len(), model.len())
        );
        assert!(map.pin().iter().all(|(key, value)| model[&key] == value));
    });
}

#[test]
fn pairs_of_any_shape() {
    shape(
        |n| [0, n as u8, (n >> 8) as u8],
        |n, round| n << 2 | u16::from(round),
    );
    shape(
        |n| u128::from(n) << 60,
        |n, round| u64::from(n) << 8 | u64::from(round),
    );
    shape(|n| n as u8, |_, _| ());
    shape(
        |n| char::from_u32(n.into()).unwrap(),
        |n, round| {
            [
                u64::from(n),
                u64::from(round),
                u64::from(n) << 32 | u64::from(round),
            ]
        },
    );
    shape(|n| n, |n, round| (round, u32::from(n)));
    shape(
        |n| (n, n % 3 == 0),
        |n, round| (round > 1).then(|| char::from(n as u8)),
    );
    shape(|n| n, |n, round| u128::from(n) << 64 | u128::from(round));
    shape(|n| [n; 4], |n, round| (f64::from(n), [round; 16]));
}

#[test]
fn references_are_values() {
    static NAMES: [&str; 3] = ["Ada", "Grace", "Barbara"];
    let map = HopscotchMap::<&str, &'static str>::new();
    for name in NAMES {
        assert_eq!(map.pin().insert(&name[..1], name), None);
    }
    assert_eq!(map.pin().get(&"G"), Some("Grace"));
}

/// Equal if the number is.
#[derive(Clone, Copy, Debug)]
struct Labelled(u32, char);

impl PartialEq for Labelled {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Labelled {}

impl Hash for Labelled {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[test]
fn a_replacement_keeps_the_key_that_is_there() {
    let map = HopscotchMap::new();
    assert_eq!(map.pin().insert(Labelled(1, 'a'), [1u64; 3]), None);
    assert_eq!(map.pin().insert(Labelled(1, 'b'), [2; 3]), Some([1; 3]));
    let pairs: Vec<_> = map
        .pin()
        .iter()
        .map(|(key, value)| (key.1, value))
        .collect();
    assert_eq!(pairs, [('a', [2; 3])]);
}

/// Grows and shrinks a map, and drops it in the middle of a resize, while a retired table waits for
/// a reader.
fn use_memory(domain: &Domain) {
    let map = HopscotchMap::<u64, [u64; 3]>::builder().buckets(1);
    let map = map.domain(domain.clone()).hasher(Hashing::Mixed).build();
    for round in 0..3 {
        (0..5_000).for_each(|key| assert_eq!(map.pin().insert(key, [key; 3]), None));
        map.resize_to(1 << (8 + round)).unwrap();
        assert!((0..5_000).all(|key| map.pin().remove(&key) == Some([key; 3])));
    }
    map.resize_to(1).unwrap();
    let small = map.bytes();
    assert!(small < 1_000, "{small}");
    let held = domain.pin();
    (0..700).for_each(|key| assert_eq!(map.pin().insert(key, [key; 3]), None));
    assert!(map.bytes() > small);
    drop(map);
    drop(held);
}

#[test]
fn all_memory_comes_back() {
    let domain = Domain::new();
    // What the domain keeps for this thread is allocated the first time.
    use_memory(&domain);
    let before = BYTES.get();
    use_memory(&domain);
    assert_eq!(BYTES.get() - before, 0);
}
