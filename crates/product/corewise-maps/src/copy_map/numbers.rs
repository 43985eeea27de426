//! A table of numbers without a map around it, for the models of tables with entries in place.
#![allow(missing_docs, reason = "the operations are those of `Table`")]

use std::hash::{BuildHasherDefault, Hasher};
use std::ptr::NonNull;

use corewise_atomic::sync::Arc;
use corewise_atomic::thread;

use super::memory_budget::MemoryBudget;
use super::{Put, ResizeStep, Table, TableVersion};

/// A number represented as a value.
pub trait Number: Copy + Send + Sync + 'static {
    fn of(number: u64) -> Self;
    /// Panics if the value mixes two numbers.
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

impl Number for [u64; 2] {
    fn of(number: u64) -> Self {
        [number, !number]
    }
    fn number(self) -> u64 {
        assert_eq!(self[0], !self[1], "a value of two");
        self[0]
    }
}

/// A table of numbers; the value of a key is ten times the key, or slightly more. Keys are their
/// own hashes.
pub struct NumberTable<T> {
    pub version: Box<TableVersion<T>>,
    next: Option<NonNull<TableVersion<T>>>,
}

// SAFETY: it owns its tables, as a box does.
unsafe impl<T: Send> Send for NumberTable<T> {}
// SAFETY: a shared reference to it gives shared references to its tables only.
unsafe impl<T: Sync> Sync for NumberTable<T> {}

/// The hash of a key: the key itself.
pub fn hash_of(key: &u64) -> u64 {
    *key
}

/// Hashes a key as [`hash_of`] does.
pub type KeysAsHashes = BuildHasherDefault<KeyAsHash>;

/// The hasher of [`KeysAsHashes`].
#[derive(Default)]
pub struct KeyAsHash(u64);

impl Hasher for KeyAsHash {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed");
    }
    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

impl<T: Table<Key = u64, Value: Number>> NumberTable<T> {
    pub fn new(buckets: usize, keys: &[u64]) -> Self {
        let budget = Arc::new(MemoryBudget::new(usize::MAX));
        let version = TableVersion::new(T::try_new(buckets, &budget).unwrap());
        let numbers = Self {
            version,
            next: None,
        };
        keys.iter()
            .for_each(|key| assert_eq!(numbers.try_insert(*key, key * 10), Ok(())));
        numbers
    }

    /// A table whose resize has begun.
    pub fn resizing(buckets: usize, to: usize, keys: &[u64]) -> Self {
        let mut numbers = Self::new(buckets, keys);
        let budget = Arc::new(MemoryBudget::new(usize::MAX));
        let next = TableVersion::new(T::try_new(to, &budget).unwrap());
        let next = NonNull::from(Box::leak(next));
        // SAFETY: freed with the first table.
        unsafe { numbers.version.link(next) };
        numbers.next = Some(next);
        numbers
    }

    pub fn get(&self, key: u64) -> Option<u64> {
        T::get(&self.version, key, &key).map(Number::number)
    }

    pub fn put(&self, key: u64, value: u64, replace: bool) -> Result<(), u64> {
        let value = Number::of(value);
        match T::put(&self.version, key, key, value, replace) {
            Ok(Put::New { .. }) => Ok(()),
            Ok(Put::There(there)) => Err(there.number()),
            Err(full) => panic!("{full}"),
        }
    }

    pub fn try_insert(&self, key: u64, value: u64) -> Result<(), u64> {
        self.put(key, value, false)
    }

    pub fn replace(&self, key: u64, value: u64) -> u64 {
        self.put(key, value, true).unwrap_err()
    }

    pub fn remove(&self, key: u64) -> Option<u64> {
        T::remove(&self.version, key, &key).map(Number::number)
    }

    pub fn increment(&self, key: u64) -> Option<u64> {
        let more = |value: T::Value| Number::of(value.number() + 1);
        T::update(&self.version, key, &key, more).map(Number::number)
    }

    pub fn move_all(&self) {
        while self.version.step(8, &hash_of) != Ok(ResizeStep::Last) {
            thread::yield_now();
        }
    }

    /// All pairs, sorted.
    pub fn pairs(&self) -> Vec<(u64, u64)> {
        let mut pairs = Vec::new();
        let each = &mut |key, value: T::Value| pairs.push((key, value.number()));
        self.version.for_each((0, 0), &hash_of, each);
        pairs.sort_unstable();
        pairs
    }

    /// Whether exactly these keys are present, each with ten times itself as value.
    pub fn are(&self, keys: &[u64]) -> bool {
        let there = self.pairs();
        let wanted = keys.iter().map(|key| (*key, key * 10));
        there.into_iter().eq(wanted) && keys.iter().all(|key| self.get(*key) == Some(key * 10))
    }
}

impl<T> Drop for NumberTable<T> {
    fn drop(&mut self) {
        if let Some(next) = self.next {
            // SAFETY: from a box, and no longer used.
            drop(unsafe { Box::from_raw(next.as_ptr()) });
        }
    }
}

/// Runs two bodies concurrently, each on its own thread, and returns their results. (Loom does not
/// try all orders of what a model's first thread does after spawning another.)
pub fn beside<T, A, B>(
    what: &Arc<T>,
    one: impl FnOnce(&T) -> A + Send + 'static,
    other: impl FnOnce(&T) -> B + Send + 'static,
) -> (A, B)
where
    T: Send + Sync + 'static,
    A: Send + 'static,
    B: Send + 'static,
{
    let (its, others) = (what.clone(), what.clone());
    let one = thread::spawn(move || one(&its));
    let other = thread::spawn(move || other(&others));
    (one.join().unwrap(), other.join().unwrap())
}
