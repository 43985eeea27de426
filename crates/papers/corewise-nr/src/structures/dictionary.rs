//! Dictionaries: keys with values (insert, lookup and remove of §4.1 of the paper).

#![forbid(unsafe_code)]

use std::hash::{DefaultHasher, Hash, Hasher};

use super::skip_list::{Finger, SkipList};
use crate::baseline::{Batch, Combine};
use crate::{Operation, Sequential};

/// An operation that does not change a dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read<K> {
    /// Looks a key up; the response is [`Response::Value`].
    Get(K),
    /// The number of keys; the response is [`Response::Len`].
    Len,
}

/// An operation that may change a dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write<K, V> {
    /// Inserts or replaces the value of a key; the response is [`Response::Value`] with the old
    /// one.
    Insert(K, V),
    /// Inserts the value of a key that is absent; the response is [`Response::Value`] with the one
    /// that is there.
    TryInsert(K, V),
    /// Removes a key; the response is [`Response::Value`].
    Remove(K),
}

/// What an operation on a dictionary returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response<V> {
    /// The value before the operation, or `None` if the key was absent.
    Value(Option<V>),
    /// The number of keys.
    Len(usize),
}

/// A skip list, as in §4.1 of the paper; operations take expected `O(log n)`.
///
/// ```
/// use corewise_nr::Sequential;
/// use corewise_nr::structures::dictionary::{Read, Response, SkipListDictionary, Write};
///
/// let mut words = SkipListDictionary::new();
/// words.write(&Write::Insert(1, "one"));
/// assert_eq!(words.read(&Read::Get(1)), Response::Value(Some("one")));
/// ```
#[derive(Clone, Debug)]
pub struct SkipListDictionary<K, V> {
    entries: SkipList<K, V>,
}

impl<K: Ord, V> SkipListDictionary<K, V> {
    /// An empty dictionary.
    #[must_use]
    pub const fn new() -> Self {
        let entries = SkipList::new();
        Self { entries }
    }
}

impl<K: Ord, V> Default for SkipListDictionary<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> Sequential for SkipListDictionary<K, V>
where
    K: Ord + Clone + Hash + Send + Sync,
    V: Clone + Hash + Send + Sync,
{
    type Read = Read<K>;
    type Write = Write<K, V>;
    type Response = Response<V>;

    fn read(&self, operation: &Read<K>) -> Response<V> {
        match operation {
            Read::Get(key) => Response::Value(self.entries.get(key).cloned()),
            Read::Len => Response::Len(self.entries.len()),
        }
    }

    fn write(&mut self, operation: &Write<K, V>) -> Response<V> {
        Response::Value(match operation {
            Write::Insert(key, value) => self.entries.insert(key.clone(), value.clone()),
            Write::TryInsert(key, value) => {
                let there = self.entries.get(key).cloned();
                there.or_else(|| self.entries.insert(key.clone(), value.clone()))
            }
            Write::Remove(key) => self.entries.remove(key),
        })
    }

    /// Answers the removal of an absent key, and the insertion of a present one that stays.
    fn write_as_read(&self, operation: &Write<K, V>) -> Option<Response<V>> {
        match operation {
            Write::Insert(..) => None,
            Write::TryInsert(key, _) => {
                let value = self.entries.get(key)?.clone();
                Some(Response::Value(Some(value)))
            }
            Write::Remove(key) => {
                let is_absent = self.entries.get(key).is_none();
                is_absent.then_some(Response::Value(None))
            }
        }
    }

    fn digest(&self) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        self.entries
            .iter()
            .for_each(|entry| entry.hash(&mut hasher));
        Some(hasher.finish())
    }
}

/// The key of an operation that has one.
fn key_of<K, V>(operation: &Operation<SkipListDictionary<K, V>>) -> Option<&K>
where
    SkipListDictionary<K, V>: Sequential<Read = Read<K>, Write = Write<K, V>>,
{
    match operation {
        Operation::Read(Read::Len) => None,
        Operation::Read(Read::Get(key))
        | Operation::Write(Write::Insert(key, _) | Write::TryInsert(key, _) | Write::Remove(key)) => {
            Some(key)
        }
    }
}

/// In the order of keys, so that each search goes on from the one before.
impl<K, V> Combine for SkipListDictionary<K, V>
where
    K: Ord + Clone + Hash + Send + Sync,
    V: Clone + Hash + Send + Sync,
{
    fn combine(&mut self, batch: &mut Batch<Self>) {
        if batch.len() < 2 {
            return;
        }
        let mut places: Vec<usize> = (0..batch.len()).collect();
        places.sort_by(|one, other| {
            key_of(batch.operation(*one)).cmp(&key_of(batch.operation(*other)))
        });
        let (entries, finger) = (&mut self.entries, &mut Finger::start());
        for place in places {
            let value = match batch.operation(place) {
                Operation::Read(Read::Len) => continue, // executed after the others
                Operation::Read(Read::Get(key)) => entries.get_from(finger, key).cloned(),
                Operation::Write(Write::Insert(key, value)) => {
                    entries.insert_from(finger, key.clone(), value.clone())
                }
                Operation::Write(Write::TryInsert(key, value)) => {
                    let there = entries.get_from(finger, key).cloned();
                    there.or_else(|| entries.insert_from(finger, key.clone(), value.clone()))
                }
                Operation::Write(Write::Remove(key)) => entries.remove_from(finger, key),
            };
            batch.answer(place, Response::Value(value));
        }
    }
}
