//! What an `EXECUTE` message leads to: an operation that the server runs on one key.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::key::{Identity, Kind};
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
    kind: Kind,
    key: Box<[u8]>,
    action: Option<Action>,
    pub(super) outcome: Outcome,
}

impl Task {
    pub(super) fn new(key: &Identity<'_>, action: Action) -> Box<Self> {
        Box::new(Self {
            id: key.id,
            kind: key.kind,
            key: key.bytes().into(),
            action: Some(action),
            outcome: Outcome::None,
        })
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Runs the task at its partition. Catches panics of the closure.
    pub(super) fn run(&mut self, hash: u64, partition: &mut Partition) {
        let key = Identity::with_bytes(self.id, self.kind, &self.key);
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
            Some(Action::Remove) => Outcome::Removed(partition.remove(hash, &key)),
        };
    }
}

/// A key at its partition, for closures that [`CpHash`](crate::CpHash) executes there.
///
/// No other operation on the partition runs at the same time, so whatever a closure does with its
/// entry is atomic.
pub struct Entry<'p> {
    partition: &'p mut Partition,
    key: Identity<'p>,
    hash: u64,
}

impl Entry<'_> {
    /// The key's value. Counts as a use of its element.
    ///
    /// Constant expected time.
    pub fn get(&mut self) -> Option<&[u8]> {
        self.partition.get(self.hash, &self.key)
    }

    /// Inserts or replaces the value. Copies it at the server.
    ///
    /// Constant expected time, and that of the copy and of eviction.
    ///
    /// # Errors
    ///
    /// As [`LockHash::insert`](crate::LockHash::insert).
    pub fn insert(&mut self, value: &[u8]) -> Result<(), InsertError> {
        self.partition.insert(self.hash, &self.key, value)
    }

    /// Removes the key. Whether it was present.
    ///
    /// Constant expected time.
    pub fn remove(&mut self) -> bool {
        self.partition.remove(self.hash, &self.key)
    }
}

impl std::fmt::Debug for Entry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entry(..)")
    }
}
