//! Priority queues: the lowest key first, equal keys in the order of their insertion.
//!
//! The operations are those of §4.1 of the paper: insert, deleteMin and findMin.

#![forbid(unsafe_code)]

use std::hash::{DefaultHasher, Hash, Hasher};

use super::skip_list::SkipList;
use crate::baseline::{Batch, Combine};
use crate::{Operation, Sequential};

/// An operation that does not change a priority queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The lowest key (findMin); the response is [`Response::Key`].
    Min,
    /// The number of keys; the response is [`Response::Len`].
    Len,
}

/// An operation that changes a priority queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write<K> {
    /// Adds a key; the response is [`Response::Inserted`].
    Insert(K),
    /// Removes the lowest key (deleteMin); the response is [`Response::Key`].
    RemoveMin,
}

/// What an operation on a priority queue returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response<K> {
    /// The key was added.
    Inserted,
    /// The lowest key, or `None` if the queue is empty.
    Key(Option<K>),
    /// The number of keys.
    Len(usize),
}

/// A skip list, as in §4.1 of the paper. [`Write::Insert`] takes `O(log n)`, [`Write::RemoveMin`]
/// and reads `O(1)`; all are expected costs.
///
/// ```
/// use corewise_nr::Sequential;
/// use corewise_nr::structures::priority_queue::{Read, Response, SkipListQueue, Write};
///
/// let mut queue = SkipListQueue::new();
/// queue.write(&Write::Insert(7));
/// queue.write(&Write::Insert(3));
/// assert_eq!(queue.read(&Read::Min), Response::Key(Some(3)));
/// ```
#[derive(Clone, Debug)]
pub struct SkipListQueue<K> {
    keys: SkipList<(K, u64), ()>,
    /// Insertions so far; orders equal keys.
    inserted: u64,
}

impl<K: Ord> SkipListQueue<K> {
    /// An empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            keys: SkipList::new(),
            inserted: 0,
        }
    }
}

impl<K: Ord> Default for SkipListQueue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Clone + Hash + Send + Sync> Sequential for SkipListQueue<K> {
    type Read = Read;
    type Write = Write<K>;
    type Response = Response<K>;

    fn read(&self, operation: &Read) -> Response<K> {
        match operation {
            Read::Min => Response::Key(self.keys.first().map(|((key, _), ())| key.clone())),
            Read::Len => Response::Len(self.keys.len()),
        }
    }

    fn write(&mut self, operation: &Write<K>) -> Response<K> {
        match operation {
            Write::Insert(key) => {
                self.keys.insert((key.clone(), self.inserted), ());
                self.inserted += 1;
                Response::Inserted
            }
            Write::RemoveMin => Response::Key(self.keys.pop_first().map(|((key, _), ())| key)),
        }
    }

    fn write_as_read(&self, operation: &Write<K>) -> Option<Response<K>> {
        let is_empty = self.keys.is_empty();
        (matches!(operation, Write::RemoveMin) && is_empty).then_some(Response::Key(None))
    }

    fn digest(&self) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        self.inserted.hash(&mut hasher);
        self.keys.iter().for_each(|(key, ())| key.hash(&mut hasher));
        Some(hasher.finish())
    }
}

/// A removal gets the lowest key of the batch's insertions if the list has none that is as low, so
/// both leave the list as it is.
impl<K: Ord + Clone + Hash + Send + Sync> Combine for SkipListQueue<K> {
    fn combine(&mut self, batch: &mut Batch<Self>) {
        if batch.len() < 2 {
            return;
        }
        let (mut insertions, mut removals) = (Vec::new(), Vec::new());
        for place in 0..batch.len() {
            match batch.operation(place) {
                Operation::Write(Write::Insert(key)) => insertions.push((key.clone(), place)),
                Operation::Write(Write::RemoveMin) => removals.push(place),
                Operation::Read(_) => {}
            }
        }
        insertions.sort();
        let mut insertions = insertions.into_iter().peekable();
        for place in removals {
            let least = self.keys.first().map(|((key, _), ())| key);
            let is_first = |key: &K| least.is_none_or(|least| key < least);
            let key = match insertions.next_if(|(key, _)| is_first(key)) {
                Some((key, insertion)) => {
                    self.inserted += 1;
                    batch.answer(insertion, Response::Inserted);
                    Some(key)
                }
                None => self.keys.pop_first().map(|((key, _), ())| key),
            };
            batch.answer(place, Response::Key(key));
        }
        for (key, place) in insertions {
            batch.answer(place, self.write(&Write::Insert(key)));
        }
    }
}
