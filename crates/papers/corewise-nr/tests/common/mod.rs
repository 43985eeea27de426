//! Structures to replicate, and what tests share.
#![allow(dead_code, unreachable_pub)] // each test uses a part

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use corewise_nr::Sequential;
pub use corewise_testkit::random::{Random, fewer as scaled};

/// Mixes a word into a digest.
pub fn mix(digest: u64, word: u64) -> u64 {
    (digest ^ word)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(29)
}

/// Whether a call panics.
pub fn panics<R>(call: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(call)).is_err()
}

/// A dictionary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dictionary(pub BTreeMap<u64, u64>);

#[derive(Clone, Debug)]
pub enum DictionaryWrite {
    Insert(u64, u64),
    Remove(u64),
    /// Adds one to a value, in a text so that the operation owns memory.
    Increment(Box<u64>),
}

impl Sequential for Dictionary {
    type Read = u64;
    type Write = DictionaryWrite;
    type Response = Option<u64>;

    fn read(&self, key: &u64) -> Option<u64> {
        self.0.get(key).copied()
    }

    fn write(&mut self, operation: &DictionaryWrite) -> Option<u64> {
        match operation {
            DictionaryWrite::Insert(key, value) => self.0.insert(*key, *value),
            DictionaryWrite::Remove(key) => self.0.remove(key),
            DictionaryWrite::Increment(key) => {
                let value = self.0.get_mut(&**key)?;
                *value += 1;
                Some(*value - 1)
            }
        }
    }

    fn write_as_read(&self, operation: &DictionaryWrite) -> Option<Option<u64>> {
        match operation {
            DictionaryWrite::Remove(key) if !self.0.contains_key(key) => Some(None),
            _ => None,
        }
    }

    fn digest(&self) -> Option<u64> {
        let entries = self.0.iter();
        Some(entries.fold(0, |digest, (&key, &value)| mix(mix(digest, key), value)))
    }
}

/// A queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue(pub VecDeque<u64>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueWrite {
    Push(u64),
    Pop,
}

impl Sequential for Queue {
    /// The front.
    type Read = ();
    type Write = QueueWrite;
    type Response = Option<u64>;

    fn read(&self, (): &()) -> Option<u64> {
        self.0.front().copied()
    }

    fn write(&mut self, operation: &QueueWrite) -> Option<u64> {
        match *operation {
            QueueWrite::Push(value) => {
                self.0.push_back(value);
                None
            }
            QueueWrite::Pop => self.0.pop_front(),
        }
    }

    fn digest(&self) -> Option<u64> {
        Some(self.0.iter().fold(0, |digest, &value| mix(digest, value)))
    }
}
