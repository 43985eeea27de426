//! Every table, with hashers and comparisons that are wrong, inconsistent or panic: no value is
//! lost by a resize, and none is taken out twice.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use corewise_maps::clht::LockBasedTable;
use corewise_maps::copy_map::{Computed, CopyMap, Operation, Table};
use corewise_maps::cuckoo::CuckooTable;
use corewise_maps_lab::clht_lock_free::LockFreeTable;
use corewise_maps_lab::hopscotch::HopscotchTable;
use corewise_rcu::Domain;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use corewise_testkit::for_every;

thread_local! {
    static HASHES: Cell<Behaviour> = const { Cell::new(Behaviour::Consistent) };
    static EQUALS: Cell<Behaviour> = const { Cell::new(Behaviour::Consistent) };
    /// Calls of a hasher or a comparison until one panics; never, if negative.
    pub(crate) static FUSE: Cell<i64> = const { Cell::new(-1) };
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// How a hasher or a comparison behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Behaviour {
    Consistent,
    /// A different result each time.
    Random,
    /// The same hash for all keys; all keys are equal.
    Same,
    /// No two keys are equal, nor is a key equal to itself.
    Different,
}

const ALL: [Behaviour; 4] = [
    Behaviour::Consistent,
    Behaviour::Random,
    Behaviour::Same,
    Behaviour::Different,
];

/// A number that changes with every call.
fn anything() -> u64 {
    let call = CALLS.get() + 1;
    CALLS.set(call);
    mixed(call)
}

fn mixed(number: u64) -> u64 {
    let product = u128::from(number ^ 0x9e37_79b9_7f4a_7c15) * 0xbf58_476d_1ce4_e5b9;
    (product ^ product >> 64) as u64
}

/// Panics if the fuse has burnt down; called by user code.
pub(crate) fn burn() {
    let left = FUSE.get();
    FUSE.set((left - 1).max(-1));
    if left == 0 {
        // Without a report.
        resume_unwind(Box::new(()));
    }
}

/// Hashes numbers.
#[derive(Clone, Copy, Default)]
pub(crate) struct InconsistentHashing;

pub(crate) struct NumberHasher(u64);

impl BuildHasher for InconsistentHashing {
    type Hasher = NumberHasher;

    fn build_hasher(&self) -> NumberHasher {
        NumberHasher(0)
    }
}

impl Hasher for NumberHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed");
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
    fn finish(&self) -> u64 {
        burn();
        match HASHES.get() {
            Behaviour::Consistent => mixed(self.0),
            Behaviour::Random | Behaviour::Different => anything(),
            Behaviour::Same => 7,
        }
    }
}

/// A key whose comparison has the [`Behaviour`] of `EQUALS`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key(pub(crate) u64);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        burn();
        match EQUALS.get() {
            Behaviour::Consistent => self.0 == other.0,
            Behaviour::Random => anything().is_multiple_of(2),
            Behaviour::Same => true,
            Behaviour::Different => false,
        }
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

impl From<u64> for Key {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

/// The values that were made, and which of them were taken out.
#[derive(Default)]
struct Ledger {
    made: Cell<u64>,
    taken: RefCell<BTreeSet<u64>>,
}

impl Ledger {
    /// Makes a value.
    fn value(&self) -> u64 {
        self.made.set(self.made.get() + 1);
        self.made.get() - 1
    }

    /// Notes that a value is no longer in the map.
    fn take(&self, value: u64) {
        assert!(value < self.made.get(), "{value} was never made");
        assert!(self.taken.borrow_mut().insert(value), "{value} came twice");
    }
}

type Map<T> = CopyMap<T, InconsistentHashing>;

/// Tables of these values.
trait Tables: Table<Key: From<u64>, Value = u64> {}

impl<T: Table<Key: From<u64>, Value = u64>> Tables for T {}

fn quietly<R>(run: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(run)).ok()
}

pub(crate) fn be(hashes: Behaviour, equals: Behaviour) {
    HASHES.set(hashes);
    EQUALS.set(equals);
}

fn be_honest() {
    be(Behaviour::Consistent, Behaviour::Consistent);
    FUSE.set(-1);
}

fn map<T: Tables>(buckets: usize, grows: bool) -> Map<T> {
    let builder = CopyMap::<T>::builder().buckets(buckets);
    builder
        .automatic_resize(grows)
        .hasher(InconsistentHashing)
        .domain(Domain::new())
        .build()
}

/// Uses a map up and checks that no value comes twice; returns how many came.
fn end<T: Tables, L>(map: CopyMap<T, InconsistentHashing, L>, ledger: &Ledger) -> usize {
    let values = map.into_iter().map(|(_, value)| ledger.take(value));
    values.count()
}

/// Performs one random operation.
fn operate<T: Tables>(map: &Map<T>, ledger: &Ledger, rng: &mut SmallRng) {
    let key = rng.random_range(0..40).into();
    let handle = map.pin();
    let replaced = |value: Option<u64>| value.into_iter().for_each(|value| ledger.take(value));
    match rng.random_range(0..16) {
        8 => drop(handle.get_or_insert_with(key, || ledger.value())),
        9 => drop(handle.update_or_insert(key, |_| ledger.value(), ledger.value())),
        10 | 11 => {
            let computed = handle.compute(key, |there| match there {
                Some(there) if there.is_multiple_of(3) => Operation::Remove,
                Some(there) if there.is_multiple_of(5) => Operation::Abort(()),
                _ => Operation::Insert(ledger.value()),
            });
            if let Computed::Removed(old) | Computed::Updated { old, .. } = computed {
                ledger.take(old);
            }
        }
        12 => replaced(
            handle
                .remove_if(&key, |there| !there.is_multiple_of(3))
                .unwrap_or(None),
        ),
        13 => handle.retain(|_, there| !there.is_multiple_of(7)),
        14 => handle
            .drain()
            .take(2)
            .for_each(|(_, value)| ledger.take(value)),
        15 => handle
            .values()
            .take(30)
            .for_each(|value| assert!(value < ledger.made.get())),
        0..3 => replaced(handle.insert(key, ledger.value())),
        3 => drop(handle.try_insert(key, ledger.value())),
        4 => drop(handle.update(&key, |_| ledger.value())),
        5 => replaced(handle.remove(&key)),
        6 => drop(handle.get(&key)),
        _ => drop(handle.iter().map(|(_, value)| value).max()),
    }
}

for_every! {
    lock_based: LockBasedTable<u64, u64>,
    lock_free: LockFreeTable<u64, u64>,
    cuckoo: CuckooTable<Key, u64>,
    hopscotch: HopscotchTable<Key, u64>,
    => {
        a_shrink_that_a_panic_has_stopped_keeps_each_value_once
        a_shrink_without_memory_keeps_each_value_once
        a_growth_keeps_each_value_once_at_every_phase
        inconsistent_keys_take_no_value_out_twice
        panics_take_no_value_out_twice
    }
}

fn a_shrink_that_a_panic_has_stopped_keeps_each_value_once<T: Tables>() {
    for (fuse, later) in (0..60).flat_map(|fuse| ALL.map(|later| (fuse, later))) {
        be_honest();
        let (ledger, map) = (Ledger::default(), map::<T>(32, false));
        for key in 0..50 {
            assert!(map.pin().insert(key.into(), ledger.value()).is_none());
        }
        FUSE.set(fuse);
        let _ = quietly(|| map.resize_to(4));
        FUSE.set(-1);
        be(later, Behaviour::Consistent);
        assert_eq!(end(map, &ledger), 50, "{fuse} hashes, then {later:?}");
    }
}

fn a_shrink_without_memory_keeps_each_value_once<T: Tables>() {
    for (buckets, later) in [1, 2, 4, 8].into_iter().flat_map(|n| ALL.map(|s| (n, s))) {
        be_honest();
        let space = map::<T>(64, false).bytes();
        for more in (0..4_096).step_by(128) {
            be_honest();
            let builder = CopyMap::<T>::builder().buckets(64).max_bytes(space + more);
            let map = builder
                .automatic_resize(false)
                .hasher(InconsistentHashing)
                .domain(Domain::new())
                .build();
            let ledger = Ledger::default();
            let insert = |key: u64| map.pin().insert(key.into(), ledger.value()).is_ok();
            let inserted = (0..60).filter(|key| insert(*key)).count();
            be(later, Behaviour::Consistent);
            let _ = map.resize_to(buckets);
            let what = format!("{buckets} buckets, {more} bytes, {later:?}");
            assert_eq!(end(map, &ledger), inserted, "{what}");
        }
    }
}

fn a_growth_keeps_each_value_once_at_every_phase<T: Tables>() {
    for (entries, later) in (0..150).flat_map(|entries| ALL.map(|later| (entries, later))) {
        be_honest();
        let (ledger, map) = (Ledger::default(), map::<T>(1, true));
        for key in 0..entries {
            assert!(map.pin().insert(key.into(), ledger.value()).is_none());
        }
        be(later, Behaviour::Consistent);
        assert_eq!(end(map, &ledger) as u64, entries, "then {later:?}");
    }
}

fn inconsistent_keys_take_no_value_out_twice<T: Tables>() {
    let mut rng = SmallRng::seed_from_u64(1);
    for (hashes, equals) in ALL.into_iter().flat_map(|hash| ALL.map(|eq| (hash, eq))) {
        for grows in [false, true] {
            let (ledger, map) = (Ledger::default(), map::<T>(4, grows));
            for step in 0..400 {
                be(hashes, equals);
                operate(&map, &ledger, &mut rng);
                if step % 50 == 0 {
                    let hashes = [hashes, Behaviour::Consistent][step / 50 % 2];
                    be(hashes, equals);
                    let _ = map.resize_to(1 << rng.random_range(0..6));
                }
            }
            end(map, &ledger);
        }
    }
}

fn panics_take_no_value_out_twice<T: Tables>() {
    let mut rng = SmallRng::seed_from_u64(2);
    for _ in 0..200 {
        be_honest();
        let (ledger, map) = (Ledger::default(), map::<T>(1, true));
        for _ in 0..150 {
            FUSE.set(rng.random_range(0..12));
            let _ = quietly(|| operate(&map, &ledger, &mut rng));
        }
        for log2 in [6, 2, 0, 4] {
            FUSE.set(rng.random_range(0..100));
            let _ = quietly(|| map.resize_to(1 << log2));
            let _ = quietly(|| operate(&map, &ledger, &mut rng));
        }
        FUSE.set(-1);
        end(map, &ledger);
    }
}
