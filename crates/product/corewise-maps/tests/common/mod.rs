//! All operations of maps of copies, as operations on numbers; values that are counted.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering::SeqCst};

use corewise_maps::copy_map::{Computed, CopyMap, Operation, Table, TryInsertError};
use corewise_rcu::Domain;

use corewise_testkit::hashing::Hashing;
use corewise_testkit::random::is_short;
pub(crate) use corewise_testkit::word_map::WordMap;

pub(crate) fn sorted<P: Ord>(mut pairs: Vec<P>) -> Vec<P> {
    pairs.sort_unstable();
    pairs
}

/// `all`, or a twentieth of it if tests are to do less.
pub(crate) fn fewer(all: u64) -> u64 {
    if is_short() { all.div_ceil(20) } else { all }
}

/// Counts its live instances; panics when it is dropped, if it is a bomb. Compared by its number.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) n: u64,
    pub(crate) bomb: bool,
    alive: Arc<AtomicIsize>,
}

impl Counted {
    pub(crate) fn new(n: u64, alive: &Arc<AtomicIsize>) -> Self {
        alive.fetch_add(1, SeqCst);
        Self {
            n,
            bomb: false,
            alive: alive.clone(),
        }
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Self::new(self.n, &self.alive)
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.n == other.n
    }
}

impl Eq for Counted {}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.n.hash(state);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, SeqCst);
        if self.bomb && !std::thread::panicking() {
            std::panic::resume_unwind(Box::new("a bomb"));
        }
    }
}

/// What a number is stored as.
pub(crate) trait Number: Copy + Send + Sync + 'static {
    fn of(number: u64) -> Self;
    fn number(self) -> u64;
}

impl Number for u64 {
    fn of(number: u64) -> Self {
        number
    }
    fn number(self) -> u64 {
        self
    }
}

/// All numbers are stored as the same value, and come back as 0.
impl Number for () {
    fn of(_: u64) -> Self {}
    fn number(self) -> u64 {
        0
    }
}

/// Three words, which must belong together.
impl Number for [u64; 3] {
    fn of(number: u64) -> Self {
        [number, !number, number.rotate_left(32)]
    }
    fn number(self) -> u64 {
        assert_eq!(self, Self::of(self[0]), "a value of two");
        self[0]
    }
}

type Update<'f> = &'f mut dyn FnMut(u64) -> u64;
type Decide<'f> = &'f mut dyn FnMut(Option<u64>) -> Operation<u64, u64>;

/// A map of numbers with all operations. Closures are passed on as `dyn`, so that each operation is
/// compiled once for each map and not for each call.
pub(crate) trait NumberMap: WordMap {
    /// What a key comes back as.
    fn key(key: u64) -> u64;
    /// What a value comes back as.
    fn value(value: u64) -> u64;
    fn insert(&self, key: u64, value: u64) -> Option<u64>;
    fn get_or_insert(&self, key: u64, value: u64) -> u64;
    fn get_or_insert_by(&self, key: u64, make: &mut dyn FnMut() -> u64) -> u64;
    fn update_by(&self, key: u64, f: &mut dyn FnMut(u64) -> u64) -> Option<u64>;
    fn update_or_insert_value(&self, key: u64, f: Update, value: u64) -> u64;
    fn update_or_insert_by(&self, key: u64, f: Update, make: &mut dyn FnMut() -> u64) -> u64;
    fn compute_by(&self, key: u64, decide: Decide) -> Computed<u64, u64>;
    fn remove_by(
        &self,
        key: u64,
        is_to_go: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<u64>, u64>;
    fn retain_by(&self, is_to_stay: &mut dyn FnMut(u64, u64) -> bool);
    fn clear(&self);
    /// Takes at most this many entries out.
    fn drain(&self, most: usize) -> Vec<(u64, u64)>;
    /// The same, of those for which `is_to_go` returns true.
    fn extract_by(
        &self,
        most: usize,
        is_to_go: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Vec<(u64, u64)>;
    fn pairs(&self) -> Vec<(u64, u64)>;
    fn keys(&self) -> Vec<u64>;
    fn values(&self) -> Vec<u64>;
    /// Uses the map up; keeps this many entries of it, and drops the others with the iterator.
    fn use_up(self, most: usize) -> Vec<(u64, u64)>;
    fn reserve(&self, entries: usize);

    fn get_or_insert_with(&self, key: u64, make: impl FnOnce() -> u64) -> u64 {
        self.get_or_insert_by(key, &mut once(make))
    }
    fn update(&self, key: u64, mut f: impl FnMut(u64) -> u64) -> Option<u64> {
        self.update_by(key, &mut f)
    }
    fn update_or_insert(&self, key: u64, mut f: impl FnMut(u64) -> u64, value: u64) -> u64 {
        self.update_or_insert_value(key, &mut f, value)
    }
    fn update_or_insert_with(
        &self,
        key: u64,
        mut f: impl FnMut(u64) -> u64,
        make: impl FnOnce() -> u64,
    ) -> u64 {
        self.update_or_insert_by(key, &mut f, &mut once(make))
    }
    fn compute(
        &self,
        key: u64,
        mut decide: impl FnMut(Option<u64>) -> Operation<u64, u64>,
    ) -> Computed<u64, u64> {
        self.compute_by(key, &mut decide)
    }
    fn remove_if(
        &self,
        key: u64,
        mut is_to_go: impl FnMut(u64) -> bool,
    ) -> Result<Option<u64>, u64> {
        self.remove_by(key, &mut is_to_go)
    }
    fn extract_if(
        &self,
        most: usize,
        mut is_to_go: impl FnMut(u64, u64) -> bool,
    ) -> Vec<(u64, u64)> {
        self.extract_by(most, &mut is_to_go)
    }
    fn retain(&self, mut is_to_stay: impl FnMut(u64, u64) -> bool) {
        self.retain_by(&mut is_to_stay);
    }
}

fn once<R>(make: impl FnOnce() -> R) -> impl FnMut() -> R {
    let mut make = Some(make);
    move || make.take().expect("called once")()
}

pub(crate) struct Copies<T: Table>(pub(crate) CopyMap<T, Hashing>);

impl<T: Table<Key: Number, Value: Number>> Copies<T> {
    fn seen(value: T::Value) -> u64 {
        value.number()
    }
    fn occupied(error: TryInsertError<T::Value>) -> u64 {
        match error {
            TryInsertError::Occupied(there) => there.number(),
            TryInsertError::Full => panic!("there is memory"),
        }
    }
}

impl<T> WordMap for Copies<T>
where
    T: Table<Key: Number, Value: Number> + Send + Sync,
{
    fn new(buckets: usize, hashing: Hashing, grows: bool) -> Self {
        let builder = CopyMap::<T>::builder().buckets(buckets);
        let builder = builder.hasher(hashing).automatic_resize(grows);
        Self(builder.domain(Domain::new()).build())
    }
    fn get(&self, key: u64) -> Option<u64> {
        self.0.pin().get(&T::Key::of(key)).map(Self::seen)
    }
    fn get_many(&self, keys: &[u64], out: &mut [Option<u64>]) {
        let keys: Vec<_> = keys.iter().map(|key| T::Key::of(*key)).collect();
        let mut values: Vec<_> = out.iter().map(|place| place.map(T::Value::of)).collect();
        self.0.pin().get_many(&keys, &mut values);
        for (place, value) in out.iter_mut().zip(values) {
            *place = value.map(Number::number);
        }
    }
    fn try_insert(&self, key: u64, value: u64) -> Result<(), u64> {
        let value = T::Value::of(value);
        let handle = self.0.pin();
        let inserted = handle.try_insert(T::Key::of(key), value);
        inserted.map(|_| ()).map_err(Self::occupied)
    }
    fn remove(&self, key: u64) -> Option<u64> {
        self.0.pin().remove(&T::Key::of(key)).map(Self::seen)
    }
    fn entries(&self) -> usize {
        assert_eq!(self.0.is_empty(), self.0.pin().is_empty());
        self.0.len()
    }
    fn bucket_count(&self) -> usize {
        self.0.buckets()
    }
    fn resize(&self, buckets: usize) {
        self.0.resize_to(buckets).unwrap();
    }
    fn into_pairs(self) -> Vec<(u64, u64)> {
        let pairs = self.pairs();
        assert_eq!(pairs.len(), self.entries());
        pairs
    }
}

impl<T> NumberMap for Copies<T>
where
    T: Table<Key: Number, Value: Number> + Send + Sync,
{
    fn key(key: u64) -> u64 {
        T::Key::of(key).number()
    }
    fn insert(&self, key: u64, value: u64) -> Option<u64> {
        let value = T::Value::of(value);
        self.0.pin().insert(T::Key::of(key), value).map(Self::seen)
    }
    fn get_or_insert(&self, key: u64, value: u64) -> u64 {
        let value = T::Value::of(value);
        Self::seen(self.0.pin().get_or_insert(T::Key::of(key), value))
    }
    fn get_or_insert_by(&self, key: u64, make: &mut dyn FnMut() -> u64) -> u64 {
        let make = || T::Value::of(make());
        Self::seen(self.0.pin().get_or_insert_with(T::Key::of(key), make))
    }
    fn update_by(&self, key: u64, f: &mut dyn FnMut(u64) -> u64) -> Option<u64> {
        let handle = self.0.pin();
        let new = handle.update(&T::Key::of(key), |old| T::Value::of(f(Self::seen(old))));
        new.map(Self::seen)
    }
    fn update_or_insert_value(&self, key: u64, f: Update, value: u64) -> u64 {
        let value = T::Value::of(value);
        let (handle, key) = (self.0.pin(), T::Key::of(key));
        let new = handle.update_or_insert(key, |old| T::Value::of(f(Self::seen(old))), value);
        Self::seen(new)
    }
    fn update_or_insert_by(&self, key: u64, f: Update, make: &mut dyn FnMut() -> u64) -> u64 {
        let (make, handle) = (|| T::Value::of(make()), self.0.pin());
        let new = handle.update_or_insert_with(
            T::Key::of(key),
            |old| T::Value::of(f(Self::seen(old))),
            make,
        );
        Self::seen(new)
    }
    fn compute_by(&self, key: u64, decide: Decide) -> Computed<u64, u64> {
        let handle = self.0.pin();
        let computed = handle.compute(T::Key::of(key), |there| {
            match decide(there.map(Self::seen)) {
                Operation::Insert(value) => Operation::Insert(T::Value::of(value)),
                Operation::Remove => Operation::Remove,
                Operation::Abort(result) => Operation::Abort(result),
            }
        });
        match computed {
            Computed::Inserted(value) => Computed::Inserted(Self::seen(value)),
            Computed::Updated { old, new } => Computed::Updated {
                old: Self::seen(old),
                new: Self::seen(new),
            },
            Computed::Removed(value) => Computed::Removed(Self::seen(value)),
            Computed::Aborted(result) => Computed::Aborted(result),
        }
    }
    fn remove_by(
        &self,
        key: u64,
        is_to_go: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<u64>, u64> {
        let handle = self.0.pin();
        let removed = handle.remove_if(&T::Key::of(key), |value| is_to_go(Self::seen(value)));
        removed
            .map(|value| value.map(Self::seen))
            .map_err(Self::seen)
    }
    fn retain_by(&self, is_to_stay: &mut dyn FnMut(u64, u64) -> bool) {
        let handle = self.0.pin();
        handle.retain(|key, value| is_to_stay(key.number(), Self::seen(value)));
    }
    fn clear(&self) {
        self.0.pin().clear();
    }
    fn drain(&self, most: usize) -> Vec<(u64, u64)> {
        let pair = |(key, value): (T::Key, _)| (key.number(), Self::seen(value));
        self.0.pin().drain().take(most).map(pair).collect()
    }
    fn extract_by(
        &self,
        most: usize,
        is_to_go: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Vec<(u64, u64)> {
        let pair = |(key, value): (T::Key, _)| (key.number(), Self::seen(value));
        let handle = self.0.pin();
        let removed = handle.extract_if(|key, value| is_to_go(key.number(), Self::seen(value)));
        removed.take(most).map(pair).collect()
    }
    fn pairs(&self) -> Vec<(u64, u64)> {
        let pair = |(key, value): (T::Key, _)| (key.number(), Self::seen(value));
        self.0.pin().iter().map(pair).collect()
    }
    fn keys(&self) -> Vec<u64> {
        self.0.pin().keys().map(Number::number).collect()
    }
    fn values(&self) -> Vec<u64> {
        self.0.pin().values().map(Self::seen).collect()
    }
    fn reserve(&self, entries: usize) {
        self.0.reserve(entries).unwrap();
    }
    fn value(value: u64) -> u64 {
        T::Value::of(value).number()
    }
    fn use_up(self, most: usize) -> Vec<(u64, u64)> {
        let pairs = self.0.into_iter().take(most);
        pairs
            .map(|(key, value)| (key.number(), value.number()))
            .collect()
    }
}

/// Makes [`for_every`](corewise_testkit::for_every) tests for all tables, with words and pairs of
/// four words.
macro_rules! for_all_tables {
    ($tests:tt) => {
        for_every! {
            lock_based: Copies<LockBasedTable<u64, u64>>,
            lock_free: Copies<LockFreeTable<u64, u64>>,
            hopscotch: Copies<HopscotchTable<u64, u64>>,
            hopscotch_wide: Copies<HopscotchTable<u64, [u64; 3]>>,
            cuckoo: Copies<CuckooTable<u64, u64>>,
            cuckoo_wide: Copies<CuckooTable<u64, [u64; 3]>>,
            => $tests
        }
    };
}

/// As [`for_all_tables`], also for contents without bytes: sets, and maps with one key.
macro_rules! for_all_contents {
    ($tests:tt) => {
        for_all_tables!($tests);
        for_every! {
            lock_based_set: Copies<LockBasedTable<u64, ()>>,
            lock_free_set: Copies<LockFreeTable<u64, ()>>,
            hopscotch_set: Copies<HopscotchTable<u64, ()>>,
            cuckoo_set: Copies<CuckooTable<u64, ()>>,
            lock_based_one_key: Copies<LockBasedTable<(), u64>>,
            lock_free_one_key: Copies<LockFreeTable<(), u64>>,
            hopscotch_one_key: Copies<HopscotchTable<(), u64>>,
            cuckoo_one_key: Copies<CuckooTable<(), u64>>,
            lock_based_nothing: Copies<LockBasedTable<(), ()>>,
            lock_free_nothing: Copies<LockFreeTable<(), ()>>,
            hopscotch_nothing: Copies<HopscotchTable<(), ()>>,
            cuckoo_nothing: Copies<CuckooTable<(), ()>>,
            => $tests
        }
    };
}

pub(crate) use {for_all_contents, for_all_tables};
