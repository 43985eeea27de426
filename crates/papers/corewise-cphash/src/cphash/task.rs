//! What an `EXECUTE` message leads to: an operation that the server runs on one key.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::key::{Identity, KeyKind};
use crate::partition::{InsertError, Partition};

/// The result of a closure that ran at the partition, or the payload of its panic.
pub type TaskResult = std::thread::Result<Box<dyn Any + Send>>;

type Closure = Box<dyn FnOnce(&mut Entry<'_>) -> Box<dyn Any + Send> + Send>;

/// What to do with the key.
pub(super) enum Action {
    Run(Closure),
    Remove,
}

pub(super) enum Outcome {
    /// Not executed yet.
    None,
    Ran(TaskResult),
    Removed(bool),
}

pub(super) struct Task {
    id: u64,
    kind: KeyKind,
    /// `None` if the key is too long for any table.
    key: Option<Box<[u8]>>,
    action: Option<Action>,
    pub(super) outcome: Outcome,
}

impl Task {
    /// A key that is too long for any table is `None`; any partition may run its task.
    pub(super) fn new(key: Option<&Identity<'_>>, action: Action) -> Box<Self> {
        Box::new(Self {
            id: key.map_or(0, |key| key.id),
            kind: key.map_or(KeyKind::Bytes, |key| key.kind),
            key: key.map(|key| key.bytes().into()),
            action: Some(action),
            outcome: Outcome::None,
        })
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Runs the task at its partition. Catches panics of the closure.
    pub(super) fn run(&mut self, hash: u64, partition: &mut Partition) {
        let key = self.key.as_deref();
        let key = key.map(|bytes| Identity::with_bytes(self.id, self.kind, bytes));
        self.outcome = match self.action.take() {
            None => Outcome::None,
            Some(Action::Run(closure)) => {
                let mut entry = Entry {
                    partition,
                    key,
                    hash,
                };
                let run = AssertUnwindSafe(|| closure(&mut entry));
                Outcome::Ran(catch_unwind(run))
            }
            Some(Action::Remove) => {
                Outcome::Removed(key.is_some_and(|key| partition.remove(hash, &key)))
            }
        };
    }
}

/// A key at its partition, for closures that [`CpHash`](crate::CpHash) executes there.
///
/// No other operation on the partition runs at the same time, so whatever a closure does with its
/// entry is atomic. The entry of a key that is longer than
/// [`MAX_KEY_BYTES`](crate::MAX_KEY_BYTES) never has a value.
pub struct Entry<'p> {
    partition: &'p mut Partition,
    key: Option<Identity<'p>>,
    hash: u64,
}

impl Entry<'_> {
    /// The key's value. Counts as a use of its element.
    ///
    /// Constant expected time.
    pub fn get(&mut self) -> Option<&[u8]> {
        self.partition.get(self.hash, self.key.as_ref()?)
    }

    /// Inserts or replaces the value. Copies it at the server.
    ///
    /// Constant expected time, and that of the copy and of eviction.
    ///
    /// # Errors
    ///
    /// As [`LockHash::insert`](crate::LockHash::insert).
    pub fn insert(&mut self, value: &[u8]) -> Result<(), InsertError> {
        let key = self.key.as_ref().ok_or(InsertError::TooLarge)?;
        self.partition.insert(self.hash, key, value)
    }

    /// Removes the key. Whether it was present.
    ///
    /// Constant expected time.
    pub fn remove(&mut self) -> bool {
        let key = self.key.as_ref();
        key.is_some_and(|key| self.partition.remove(self.hash, key))
    }
}

impl std::fmt::Debug for Entry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entry(..)")
    }
}
