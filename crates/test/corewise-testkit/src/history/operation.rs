//! Operations with their invocations and responses.

use crate::history::check::{DEFAULT_LIMIT, check_key};
use crate::history::{Model, Summary, Undecided, Verdict};
use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallResponse<R> {
    /// The result that the caller received.
    pub outcome: R,
    /// A time stamp taken after the return.
    pub returned: u64,
}

/// One call by one thread. Made by a [`Recorder`](crate::history::Recorder), or by hand as in a
/// test of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRecord<K, O, R> {
    /// The calling thread; shown with a violation and ignored by the checker.
    pub thread: usize,
    /// The independent part of the object that was called.
    pub key: K,
    /// The operation.
    pub op: O,
    /// A time stamp taken before the call.
    pub invoked: u64,
    /// How it ended; `None` while it is pending.
    pub response: Option<CallResponse<R>>,
}

impl<K, O, R> CallRecord<K, O, R> {
    /// Makes a pending operation.
    ///
    /// ```
    /// # use corewise_testkit::history::CallRecord;
    /// let pending: CallRecord<_, _, ()> = CallRecord::new(0, "key", "insert", 17);
    /// assert_eq!(pending.response, None);
    /// ```
    pub fn new(thread: usize, key: K, op: O, invoked: u64) -> Self {
        Self {
            thread,
            key,
            op,
            invoked,
            response: None,
        }
    }

    /// Makes the operation return. Operations that share a time stamp overlap.
    ///
    /// ```
    /// # use corewise_testkit::history::CallRecord;
    /// let done = CallRecord::new(0, "key", "insert", 17).returning(true, 18);
    /// assert!(done.response.is_some_and(|response| response.outcome));
    /// ```
    #[must_use]
    pub fn returning(self, outcome: R, returned: u64) -> Self {
        let response = Some(CallResponse { outcome, returned });
        Self { response, ..self }
    }

    /// The time by which the operation has certainly ended; never for a pending one.
    pub(crate) fn end(&self) -> u64 {
        let returned = |response: &CallResponse<R>| response.returned;
        self.response.as_ref().map_or(u64::MAX, returned)
    }
}

/// The operations of some threads on an object. Made by
/// [`Recording::finish`](crate::history::Recording::finish), or from operations.
#[derive(Clone, Debug)]
pub struct History<K, O, R> {
    operations: Vec<CallRecord<K, O, R>>,
}

impl<K, O, R> History<K, O, R> {
    /// Makes a history of these operations, in any order.
    ///
    /// # Panics
    ///
    /// If an operation returned before it was invoked.
    ///
    /// ```
    /// # use corewise_testkit::history::{History, CallRecord};
    /// let history = History::new(vec![CallRecord::new(0, "key", "add", 0).returning((), 1)]);
    /// assert_eq!(history.operations().len(), 1);
    /// ```
    #[must_use]
    pub fn new(operations: Vec<CallRecord<K, O, R>>) -> Self {
        let backwards = operations.iter().find(|o| o.end() < o.invoked);
        if let Some(CallRecord {
            thread, invoked, ..
        }) = backwards
        {
            panic!("thread {thread}: the operation invoked at {invoked} returned earlier");
        }
        Self { operations }
    }

    /// The operations. In a recorded history, each thread's operations are in order, one thread
    /// after the other.
    #[must_use]
    pub fn operations(&self) -> &[CallRecord<K, O, R>] {
        &self.operations
    }
}

impl<K: Eq + Hash + Debug, O, R> History<K, O, R> {
    /// Checks whether every key of the history is linearizable, each against the same model with at
    /// most [`DEFAULT_LIMIT`] configurations.
    ///
    /// ```
    /// use corewise_testkit::history::models::{EntryOp, EntryOutcome::Held, MapEntry};
    /// use corewise_testkit::history::{History, CallRecord};
    ///
    /// let history = History::new(vec![
    ///     CallRecord::new(0, "key", EntryOp::Insert(1), 0).returning(Held(None), 1),
    ///     CallRecord::new(1, "key", EntryOp::Get, 2).returning(Held(None), 3),
    /// ]);
    /// let stale = history.check(&MapEntry::new());
    /// assert!(stale.to_string().contains("fits nowhere"));
    /// ```
    pub fn check<M>(&self, model: &M) -> Verdict
    where
        M: Model<Op = O, Outcome = R>,
    {
        self.check_each(DEFAULT_LIMIT, |_| model)
    }

    /// Checks whether every key is linearizable, with a separate model for each (say, for a table
    /// that was not empty at the start) and at most `limit` configurations a key. A violation on
    /// any key takes precedence over an undecided one.
    ///
    /// ```
    /// use corewise_testkit::history::models::{EntryOp, EntryOutcome, MapEntry};
    /// use corewise_testkit::history::{History, CallRecord};
    ///
    /// let found = EntryOutcome::Held(Some(4));
    /// let get = CallRecord::new(0, 2, EntryOp::Get, 0).returning(found, 1);
    /// let history = History::new(vec![get]);
    /// let squares = |key: &u64| MapEntry::holding(key * key);
    /// history.check_each(1_000, squares).assert_linearizable();
    /// ```
    pub fn check_each<M>(&self, limit: usize, model: impl Fn(&K) -> M) -> Verdict
    where
        M: Model<Op = O, Outcome = R>,
    {
        let mut summary = Summary::default();
        let mut doubt: Option<Undecided> = None;
        for operations in self.by_key() {
            let model = model(&operations[0].key);
            match check_key(&model, &operations, limit) {
                Verdict::Linearizable(part) => summary.add(part),
                Verdict::Undecided(undecided) => doubt = doubt.or(Some(undecided)),
                violation @ Verdict::Violation(_) => return violation,
            }
        }
        doubt.map_or(Verdict::Linearizable(summary), Verdict::Undecided)
    }
    /// Groups the operations by key, keys in the order in which they first occur.
    fn by_key(&self) -> Vec<Vec<&CallRecord<K, O, R>>> {
        let mut places = HashMap::new();
        let mut keys: Vec<Vec<_>> = Vec::new();
        for operation in &self.operations {
            let place = *places.entry(&operation.key).or_insert(keys.len());
            if place == keys.len() {
                keys.push(Vec::new());
            }
            keys[place].push(operation);
        }
        keys
    }
}
