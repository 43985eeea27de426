//! Tables of copies with little memory, and with unusual contents and sizes.

use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::hash::BuildHasher;
use std::rc::Rc;

use corewise_maps::clht::LockBasedTable;
use corewise_maps::copy_map::{CopyMap, Full, Limited, Table, TryInsertError};
use corewise_maps::cuckoo::CuckooTable;
use corewise_maps::relativistic::ResizeError;
use corewise_maps_lab::clht_lock_free::LockFreeTable;
use corewise_maps_lab::hopscotch::HopscotchTable;
use corewise_rcu::Domain;

use corewise_testkit::for_every;
use corewise_testkit::hashing::Hashing;
use corewise_testkit::random::{Random, fewer};

for_every! {
    lock_based: LockBasedTable<u64, u64>,
    lock_free: LockFreeTable<u64, u64>,
    cuckoo: CuckooTable<u64, u64>,
    hopscotch: HopscotchTable<u64, u64>,
    => {
        a_resize_without_memory_changes_nothing
        a_resize_that_lacks_memory_can_be_repeated
        a_full_table_reports_it_and_loses_nothing
        a_resize_frees_what_was_replaced_when_it_needs_memory
        insertions_beside_a_resize_may_delay_its_end
        an_insertion_is_not_refused_while_a_resize_can_go_on
    }
}

type Map<T> = CopyMap<T, Hashing, Limited>;

thread_local! {
    /// Calls of the hasher until it inserts.
    static HASHES: Cell<i64> = const { Cell::new(-1) };
    static INSERT: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
}

/// A number is its own hash. The last of `HASHES` calls also inserts entries.
struct Inserting(Hashing);

impl BuildHasher for Inserting {
    type Hasher = <Hashing as BuildHasher>::Hasher;

    fn build_hasher(&self) -> Self::Hasher {
        let left = HASHES.get();
        HASHES.set((left - 1).max(-1));
        if left == 0 {
            let insert = INSERT.take().expect("what is to be inserted");
            insert();
        }
        self.0.build_hasher()
    }
}

/// Inserts more entries than the memory suffices for, into groups that a resize has already checked
/// for memory.
fn insertions_beside_a_resize_may_delay_its_end<T: Table<Key = u64, Value = u64> + 'static>() {
    const ENTRIES: u64 = 40;
    let make = |bytes| {
        let builder = CopyMap::<T>::builder().buckets(64).max_bytes(bytes);
        let builder = builder.automatic_resize(false).domain(Domain::new());
        let map = Rc::new(builder.hasher(Inserting(Hashing::Own)).build());
        (0..ENTRIES).for_each(|key| assert_eq!(map.pin().insert(key, !key), Ok(None)));
        map
    };
    let is_enough = |bytes: &usize| make(*bytes).resize_to(8).is_ok();
    let least = make(usize::MAX).bytes();
    let bytes = (least..)
        .step_by(8)
        .find(is_enough)
        .expect("some number is enough");
    let map = make(bytes);
    let others = map.clone();
    let insert = move || {
        // Keys of all groups; the resize has checked all groups but one. It checks them again when
        // it moves them.
        let inserted = (64..128).filter(|key| others.pin().insert(*key, !key).is_ok());
        assert!(inserted.count() > 6, "there is room in the table");
    };
    INSERT.set(Some(Box::new(insert)));
    HASHES.set(ENTRIES as i64 - 1);
    assert_eq!(map.resize_to(8), Err(ResizeError::NoMemory));
    let is_whole = |map: &CopyMap<T, Inserting, Limited>, expected: usize| {
        let handle = map.pin();
        assert!(
            handle
                .iter()
                .all(|(key, value)| value == !key && handle.get(&key) == Some(value))
        );
        assert_eq!((handle.iter().count(), map.len()), (expected, expected));
    };
    let all = map.len();
    assert!(all > ENTRIES as usize);
    for _ in 0..20 {
        is_whole(&map, all);
        // Updates that do not change the number of entries still work.
        assert_eq!(map.pin().insert(0, !0), Ok(Some(!0)));
        assert_eq!(map.pin().update(&8, |value| value), Some(!8));
    }
    let removed = |key: u64| map.pin().remove(&key).is_none_or(|value| value == !key);
    assert!((8..128).all(removed));
    map.resize_to(8).unwrap();
    is_whole(&map, 8);
    assert_eq!(map.buckets(), 8);
    assert_eq!(map.resize_to(1 << 41), Err(ResizeError::NoMemory));
    is_whole(&map, 8);
}

/// A map of these keys in 256 buckets, with memory for its first growth and `more` bytes; the
/// number of keys with which that begins.
fn growing<T: Table<Key = u64, Value = u64>>(
    mut key: impl FnMut(u64) -> u64,
    more: usize,
) -> (Map<T>, u64) {
    let make = |bytes| -> Map<T> {
        let builder = CopyMap::<T>::builder().buckets(256).max_bytes(bytes);
        builder.hasher(Hashing::Own).domain(Domain::new()).build()
    };
    let plenty = make(1 << 30);
    let table = plenty.bytes();
    let begins = |number: &u64| {
        let before = plenty.bytes();
        let key = key(*number);
        plenty.pin().insert(key, key).unwrap();
        plenty.bytes() - before >= table
    };
    let last = (0..).find(begins).expect("it grows");
    (make(plenty.bytes() + more), last + 1)
}

/// The memory ends when a resize has begun. Updates that need no memory move on what can be moved,
/// and free nothing beside a handle: what was refused before is refused after.
///
/// In a cuckoo table the updates may also move buckets to which entries can be displaced then (its
/// guarantee 4). No key of these seeds needs that, unless a share is one group (the stress build).
fn an_insertion_is_not_refused_while_a_resize_can_go_on<
    T: Table<Key = u64, Value = u64> + 'static,
>() {
    const SEEDS: u64 = 200;
    let is_cuckoo = TypeId::of::<T>() == TypeId::of::<CuckooTable<u64, u64>>();
    let may_displace = is_cuckoo && cfg!(corewise_stress);
    let mut ended = 0;
    for seed in 0..fewer(SEEDS) {
        let mut random = Random::from_seed(seed);
        let (few, spread) = (random.below(64) + 1, random.below(8));
        // Of eight keys, up to seven are of few buckets.
        let key = |number: u64| match number % 8 {
            part if part < spread => (number << 12) + number % few * 4,
            _ => number,
        };
        let (map, begin) = growing::<T>(key, random.index(1000));
        (0..begin).for_each(|number| _ = map.pin().insert(key(number), 0).unwrap());
        let handle = map.pin();
        let mut numbers = (begin..).map(key);
        let refused = numbers.find(|&key| handle.insert(key, 0).is_err());
        let refused = refused.expect("the memory ends");
        for number in (0..begin).chain(0..begin) {
            assert_eq!(handle.insert(key(number), 0), Ok(Some(0)));
        }
        ended += u64::from(map.buckets() > 256);
        let inserted = handle.insert(refused, 0);
        assert!(inserted == Err(Full) || may_displace, "seed {seed}");
    }
    assert!(ended > 0);
}

fn map<T: Table<Key = u64, Value = u64>>(buckets: usize, bytes: usize, hashing: Hashing) -> Map<T> {
    let builder = CopyMap::<T>::builder().buckets(buckets).max_bytes(bytes);
    let builder = builder.automatic_resize(false).hasher(hashing);
    builder.domain(Domain::new()).build()
}

fn filled<T: Table<Key = u64, Value = u64>>(
    buckets: usize,
    bytes: usize,
    hashing: Hashing,
) -> (Map<T>, u64) {
    let map = map::<T>(buckets, bytes, hashing);
    let full = (0..50).find(|key| map.pin().insert(*key, !key).is_err());
    (map, full.unwrap_or(50))
}

/// The pairs of a map, in order.
fn pairs<T: Table<Key = u64, Value = u64>>(map: &Map<T>) -> Vec<(u64, u64)> {
    let mut pairs: Vec<_> = map.pin().iter().collect();
    pairs.sort_unstable();
    pairs
}

/// How many of forty new keys are refused.
fn refusals<T: Table<Key = u64, Value = u64>>(map: &Map<T>) -> usize {
    let keys = 100..140;
    keys.filter(|key| map.pin().insert(*key, *key).is_err())
        .count()
}

fn a_resize_without_memory_changes_nothing<T: Table<Key = u64, Value = u64>>() {
    let mut refused = 0;
    for hashing in Hashing::ALL {
        let least = map::<T>(32, usize::MAX, hashing).bytes();
        for bytes in (least..4 * least).step_by(192) {
            for buckets in [1, 2, 4, 8, 16, 64] {
                let (map, entries) = filled::<T>(32, bytes, hashing);
                let (twin, _) = filled::<T>(32, bytes, hashing);
                if map.resize_to(buckets).is_ok() {
                    continue;
                }
                refused += 1;
                let what = format!("{buckets} buckets, {bytes} bytes, {hashing:?}");
                assert_eq!((map.buckets(), map.bytes()), (32, twin.bytes()), "{what}");
                assert_eq!(pairs(&map), pairs(&twin), "{what}");
                assert_eq!(refusals(&map), refusals(&twin), "{what}");
                assert!((0..entries).all(|key| map.pin().get(&key) == Some(!key)));
                // Without entries the resize may succeed or fail, as in a map that has not tried it
                // before.
                for map in [&map, &twin] {
                    let all = pairs(map);
                    let removed = |(key, value): &(u64, u64)| map.pin().remove(key) == Some(*value);
                    assert!(all.iter().all(removed), "{what}");
                }
                assert_eq!(map.resize_to(buckets), twin.resize_to(buckets), "{what}");
                assert_eq!(map.bytes(), twin.bytes(), "{what}");
            }
        }
    }
    assert!(refused > 100, "only {refused} resizes lacked memory");
}

fn a_full_table_reports_it_and_loses_nothing<T: Table<Key = u64, Value = u64>>() {
    let bytes = map::<T>(64, usize::MAX, Hashing::Mixed).bytes();
    // With memory for some entries that overflow, and for none.
    for bytes in [bytes, bytes + 512] {
        let map = map::<T>(64, bytes, Hashing::Mixed);
        let handle = map.pin();
        let full = (0..).find(|key| handle.insert(*key, !key) == Err(Full));
        let full = full.expect("the memory ends");
        let before = pairs(&map);
        for _ in 0..3 {
            assert_eq!(handle.insert(full, 0), Err(Full));
            assert_eq!(handle.try_insert(full, 0), Err(TryInsertError::Full));
            assert_eq!(handle.get(&full), None);
        }
        assert_eq!((pairs(&map), map.len() as u64), (before, full));
        assert_eq!(map.resize_to(128), Err(ResizeError::NoMemory));
        // Operations that need no memory still work.
        assert_eq!(handle.insert(3, 7), Ok(Some(!3)));
        assert_eq!(handle.try_insert(3, 8), Err(TryInsertError::Occupied(7)));
        assert_eq!(handle.update(&3, |value| value + 1), Some(8));
        assert!((10..full).all(|key| handle.remove(&key) == Some(!key)));
        assert_eq!(handle.insert(full, !full), Ok(None));
        assert_eq!((handle.get(&3), handle.get(&full)), (Some(8), Some(!full)));
        assert_eq!(map.len(), 11);
    }
}

/// Memory suffices for the new table, but not for its overflow.
fn a_resize_that_lacks_memory_can_be_repeated<T: Table<Key = u64, Value = u64>>() {
    let [many, one] = [32, 1].map(|buckets| map::<T>(buckets, usize::MAX, Hashing::Own).bytes());
    let map = map::<T>(32, many + one, Hashing::Own);
    let is_there = |keys: std::ops::Range<u64>| {
        assert_eq!(
            (map.len(), pairs(&map).len()),
            (keys.end as usize, keys.end as usize)
        );
        keys.into_iter()
            .all(|key| map.pin().get(&key) == Some(!key))
    };
    (0..20).for_each(|key| assert_eq!(map.pin().insert(key, !key), Ok(None)));
    assert_eq!(map.resize_to(1), Err(ResizeError::NoMemory));
    assert_eq!((map.buckets(), map.bytes()), (32, many));
    for _ in 0..3 {
        assert_eq!(map.pin().remove(&0), Some(!0));
        assert_eq!(map.pin().insert(0, !0), Ok(None));
        assert!(is_there(0..20));
    }
    assert!((1..20).all(|key| map.pin().remove(&key) == Some(!key)));
    map.resize_to(1).unwrap();
    assert!(is_there(0..1));
    assert_eq!((map.buckets(), map.bytes()), (1, one));
}

/// The limit does not fit three tables at a time. A reader keeps the first one, which is freed when
/// its memory is needed.
fn a_resize_frees_what_was_replaced_when_it_needs_memory<T: Table<Key = u64, Value = u64>>() {
    let least = map::<T>(32, usize::MAX, Hashing::Mixed).bytes();
    let map = map::<T>(32, 2 * least, Hashing::Mixed);
    for _ in 0..4 {
        // The caller is in a section, so nothing is freed.
        let guard = map.domain().pin();
        map.resize_to(16).unwrap();
        drop(guard);
        map.domain().synchronize();
        map.resize_to(32).unwrap();
        assert_eq!((map.buckets(), map.bytes()), (32, least));
    }
}
