//! Boxed values in every table, with hashers and comparisons that are wrong, inconsistent or panic,
//! and with values that panic when they are dropped: each value is dropped exactly once, at every
//! phase of a resize.

use std::cell::Cell;
use std::hash::{BuildHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use corewise_maps::clht::LockBasedTable;
use corewise_maps::copy_map::{BoxMap, CopyMap, Operation, Refused, Table};
use corewise_maps::cuckoo::CuckooTable;
use corewise_maps_lab::clht_lock_free::LockFreeTable;
use corewise_maps_lab::hopscotch::HopscotchTable;
use corewise_rcu::Domain;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use corewise_testkit::for_every;

thread_local! {
    static HASHES: Cell<Says> = const { Cell::new(Says::TheTruth) };
    static EQUALS: Cell<Says> = const { Cell::new(Says::TheTruth) };
    /// Calls of a hasher or a comparison until one panics; never, if negative.
    static FUSE: Cell<i64> = const { Cell::new(-1) };
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// How a hasher or a comparison behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Says {
    TheTruth,
    /// A different result each time.
    Anything,
    /// The same hash for all keys; all keys are equal.
    Same,
    /// No two keys are equal, nor is a key equal to itself.
    Different,
}

const ALL: [Says; 4] = [Says::TheTruth, Says::Anything, Says::Same, Says::Different];

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

fn burn() {
    let left = FUSE.get();
    FUSE.set((left - 1).max(-1));
    if left == 0 {
        panic!("the fuse");
    }
}

/// Hashes numbers.
#[derive(Clone, Copy, Default)]
struct Hostile;

struct NumberHasher(u64);

impl BuildHasher for Hostile {
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
            Says::TheTruth => mixed(self.0),
            Says::Anything | Says::Different => anything(),
            Says::Same => 7,
        }
    }
}

/// A key whose comparison behaves as [`Says`] tells it.
#[derive(Clone, Copy, Debug)]
struct Key(u64);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        burn();
        match EQUALS.get() {
            Says::TheTruth => self.0 == other.0,
            Says::Anything => anything().is_multiple_of(2),
            Says::Same => true,
            Says::Different => false,
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

/// How often each value was dropped.
#[derive(Default)]
struct Drops {
    made: AtomicUsize,
    dropped: Box<[AtomicU8]>,
}

/// A value that counts its drops, and panics afterwards if it is a bomb.
struct Value {
    number: usize,
    bomb: bool,
    drops: Arc<Drops>,
}

impl Drops {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            made: AtomicUsize::new(0),
            dropped: (0..10_000).map(|_| AtomicU8::new(0)).collect(),
        })
    }

    fn value(self: &Arc<Self>) -> Value {
        Value {
            number: self.made.fetch_add(1, Relaxed),
            bomb: false,
            drops: self.clone(),
        }
    }

    fn bomb(self: &Arc<Self>) -> Value {
        Value {
            number: self.made.fetch_add(1, Relaxed),
            bomb: true,
            drops: self.clone(),
        }
    }

    /// Checks that each value was dropped `times` times; reports the others.
    fn check(&self, times: u8, what: &str) {
        let made = self.made.load(Relaxed);
        let wrong: Vec<_> = self.dropped[..made]
            .iter()
            .enumerate()
            .map(|(number, dropped)| (number, dropped.load(Relaxed)))
            .filter(|(_, dropped)| *dropped != times)
            .collect();
        assert!(wrong.is_empty(), "{what}: of {made} values {wrong:?}");
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.drops.dropped[self.number].fetch_add(1, Relaxed);
        if self.bomb {
            panic!("a bomb");
        }
    }
}

type Map<T> = BoxMap<Value, T, Hostile>;

/// Tables of these values.
trait Tables: Table<Key: From<u64>, Value = NonNull<Value>> {}

impl<T: Table<Key: From<u64>, Value = NonNull<Value>>> Tables for T {}

fn quietly<R>(run: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(run)).ok()
}

/// Suppresses the reports of intended panics.
fn hush() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let text = info
                .payload()
                .downcast_ref::<&str>()
                .copied()
                .unwrap_or_default();
            if text != "the fuse" && text != "a bomb" {
                report(info);
            }
        }));
    });
}

fn be(hashes: Says, equals: Says) {
    HASHES.set(hashes);
    EQUALS.set(equals);
}

fn be_honest() {
    be(Says::TheTruth, Says::TheTruth);
    FUSE.set(-1);
}

fn map<T: Tables>(buckets: usize, grows: bool) -> Map<T> {
    let builder = CopyMap::<T>::builder().buckets(buckets);
    builder
        .automatic_resize(grows)
        .hasher(Hostile)
        .domain(Domain::new())
        .build_boxed()
}

/// Drops a map, or uses some of it up, and checks that each value was dropped once.
fn end<T: Tables, L>(map: BoxMap<Value, T, Hostile, L>, drops: &Drops, what: &str) {
    let domain = map.domain().clone();
    let most = drops.made.load(Relaxed) % 9;
    if most.is_multiple_of(2) {
        let _ = quietly(|| drop(map));
    } else {
        let _ = quietly(|| map.into_iter().take(most).for_each(drop));
    }
    domain.barrier();
    drops.check(1, what);
}

/// Performs one random operation.
fn operate<T: Tables>(map: &Map<T>, drops: &Arc<Drops>, rng: &mut SmallRng) {
    let key = rng.random_range(0..40).into();
    let handle = map.pin();
    match rng.random_range(0..16) {
        8 => drop(handle.get_or_insert_with(key, || drops.value())),
        9 => drop(handle.update_or_insert(key, |_| drops.value(), drops.value())),
        10 | 11 => drop(handle.compute(key, |there| match there {
            Some(there) if there.number.is_multiple_of(3) => Operation::Remove,
            Some(there) if there.number.is_multiple_of(5) => Operation::Abort(()),
            _ => Operation::Insert(drops.value()),
        })),
        12 => drop(handle.remove_if(&key, |there| !there.number.is_multiple_of(3))),
        13 => handle.retain(|_, there| !there.number.is_multiple_of(7)),
        14 => handle.drain().take(2).for_each(drop),
        15 => handle
            .values()
            .take(30)
            .for_each(|value| assert!(value.number < 10_000)),
        0..3 => drop(handle.insert(key, drops.value())),
        3 => drop(handle.try_insert(key, drops.value())),
        4 => drop(handle.update(&key, |_| drops.value())),
        5 => drop(handle.remove(&key)),
        6 => drop(handle.get(&key)),
        _ => drop(handle.iter().map(|(_, value)| value.number).max()),
    }
}

for_every! {
    lock_based: LockBasedTable<u64, NonNull<Value>>,
    lock_free: LockFreeTable<u64, NonNull<Value>>,
    cuckoo: CuckooTable<Key, NonNull<Value>>,
    hopscotch: HopscotchTable<Key, NonNull<Value>>,
    => {
        a_shrink_that_a_panic_has_stopped_drops_each_value_once
        a_shrink_without_memory_drops_each_value_once
        a_growth_drops_each_value_once_at_every_phase
        inconsistent_keys_drop_each_value_once
        values_are_not_lost_to_panics
        values_that_panic_when_dropped_leak_no_others
    }
}

fn a_shrink_that_a_panic_has_stopped_drops_each_value_once<T: Tables>() {
    hush();
    for (fuse, later) in (0..60).flat_map(|fuse| ALL.map(|later| (fuse, later))) {
        be_honest();
        let (drops, map) = (Drops::new(), map::<T>(32, false));
        for key in 0..50 {
            assert!(map.pin().insert(key.into(), drops.value()).is_none());
        }
        FUSE.set(fuse);
        let _ = quietly(|| map.resize_to(4));
        FUSE.set(-1);
        be(later, Says::TheTruth);
        end(map, &drops, &format!("{fuse} hashes, then {later:?}"));
    }
}

fn a_shrink_without_memory_drops_each_value_once<T: Tables>() {
    for (buckets, later) in [1, 2, 4, 8].into_iter().flat_map(|n| ALL.map(|s| (n, s))) {
        be_honest();
        let space = map::<T>(64, false).bytes();
        for more in (0..4_096).step_by(128) {
            be_honest();
            let builder = CopyMap::<T>::builder().buckets(64).max_bytes(space + more);
            let map = builder
                .automatic_resize(false)
                .hasher(Hostile)
                .domain(Domain::new())
                .build_boxed();
            let drops = Drops::new();
            for key in 0..60 {
                drop(map.pin().insert(key.into(), drops.value()));
            }
            be(later, Says::TheTruth);
            let _ = map.resize_to(buckets);
            end(
                map,
                &drops,
                &format!("{buckets} buckets, {more} bytes, {later:?}"),
            );
        }
    }
}

fn a_growth_drops_each_value_once_at_every_phase<T: Tables>() {
    for (entries, later) in (0..150).flat_map(|entries| ALL.map(|later| (entries, later))) {
        be_honest();
        let (drops, map) = (Drops::new(), map::<T>(1, true));
        for key in 0..entries {
            assert!(map.pin().insert(key.into(), drops.value()).is_none());
        }
        be(later, Says::TheTruth);
        end(map, &drops, &format!("{entries} entries, then {later:?}"));
    }
}

fn inconsistent_keys_drop_each_value_once<T: Tables>() {
    let mut rng = SmallRng::seed_from_u64(1);
    for (hashes, equals) in ALL.into_iter().flat_map(|hash| ALL.map(|eq| (hash, eq))) {
        for grows in [false, true] {
            let (drops, map) = (Drops::new(), map::<T>(4, grows));
            for step in 0..400 {
                be(hashes, equals);
                operate(&map, &drops, &mut rng);
                if step % 50 == 0 {
                    be(
                        if step % 100 == 0 {
                            hashes
                        } else {
                            Says::TheTruth
                        },
                        equals,
                    );
                    let _ = map.resize_to(1 << rng.random_range(0..6));
                }
            }
            end(
                map,
                &drops,
                &format!("hashes {hashes:?}, equals {equals:?}"),
            );
        }
    }
}

fn values_are_not_lost_to_panics<T: Tables>() {
    hush();
    let mut rng = SmallRng::seed_from_u64(2);
    for round in 0..200 {
        be_honest();
        let (drops, map) = (Drops::new(), map::<T>(1, true));
        for _ in 0..150 {
            FUSE.set(rng.random_range(0..12));
            let _ = quietly(|| operate(&map, &drops, &mut rng));
        }
        for log2 in [6, 2, 0, 4] {
            FUSE.set(rng.random_range(0..100));
            let _ = quietly(|| map.resize_to(1 << log2));
            let _ = quietly(|| operate(&map, &drops, &mut rng));
        }
        FUSE.set(-1);
        end(map, &drops, &format!("round {round}"));
    }
}

fn values_that_panic_when_dropped_leak_no_others<T: Tables>() {
    hush();
    for (every, fuse) in [(1, -1), (3, -1), (3, 20), (50, 20)] {
        be_honest();
        let (drops, map) = (Drops::new(), map::<T>(16, false));
        for key in 0..50 {
            let bomb = key % every == 0;
            let value = if bomb { drops.bomb() } else { drops.value() };
            assert!(map.pin().insert(key.into(), value).is_none());
        }
        FUSE.set(fuse);
        let _ = quietly(|| map.resize_to(2));
        FUSE.set(-1);
        let panicked = if fuse < 0 {
            quietly(|| drop(map)).is_none()
        } else {
            // The bombs among the rest explode while the thread is unwinding.
            quietly(|| map.into_iter().take(20).for_each(drop)).is_none()
        };
        assert!(panicked, "the first panic goes on");
        drops.check(1, &format!("every {every}th, {fuse} hashes"));
    }
    // Refused values are returned, or dropped once.
    let drops = Drops::new();
    let map = map::<T>(16, false);
    assert!(map.pin().insert(1.into(), drops.value()).is_none());
    let handle = map.pin();
    let refused = handle.try_insert(1.into(), drops.bomb());
    assert!(matches!(refused, Err(Refused::Occupied { .. })));
    assert!(quietly(|| drop(refused)).is_none());
    drop(handle);
    end(map, &drops, "refused");
}
