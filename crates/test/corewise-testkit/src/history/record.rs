//! Recording the operations of threads.

use crate::history::{CallRecord, CallResponse, History};
use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

// Atomics of `std`, not the façade's: the recorder is outside of the code under test. Under shuttle
// its stamps must not be scheduling points, and under loom they must order nothing.

/// The operations of each recorder, by its number; empty until the recorder is dropped.
type Threads<K, O, R> = Vec<Vec<CallRecord<K, O, R>>>;

struct RecordedCalls<K, O, R> {
    clock: AtomicU64,
    threads: Mutex<Threads<K, O, R>>,
}

impl<K, O, R> RecordedCalls<K, O, R> {
    /// The next number in the total order of all invocations and returns.
    fn stamp(&self) -> u64 {
        // SeqCst: pairs with every other stamp. Each reads the one before it, so everything that a
        // thread did before stamp n happens before everything that another does after stamp n + 1.
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Ignores poison: no caller's code runs under the lock.
    fn threads(&self) -> MutexGuard<'_, Threads<K, O, R>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A history being recorded: it hands out a [`Recorder`] to each thread.
///
/// See the example of the [crate].
pub struct Recording<K, O, R> {
    shared: Arc<RecordedCalls<K, O, R>>,
}

impl<K, O, R> Recording<K, O, R> {
    /// Makes an empty recording.
    ///
    /// ```
    /// # use corewise_testkit::history::Recording;
    /// let recording: Recording<&str, (), ()> = Recording::new();
    /// assert!(recording.finish().unwrap().operations().is_empty());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        let shared = RecordedCalls {
            clock: AtomicU64::new(0),
            threads: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Makes a recorder for one thread, with room for `operations` operations, so that recording
    /// these allocates nothing. Recorders are numbered from 0.
    ///
    /// ```
    /// # use corewise_testkit::history::Recording;
    /// let recording = Recording::new();
    /// let mut recorder = recording.recorder(1);
    /// recorder.record("key", "length", || 3);
    /// ```
    #[must_use]
    pub fn recorder(&self, operations: usize) -> Recorder<K, O, R> {
        let mut threads = self.shared.threads();
        threads.push(Vec::new());
        Recorder {
            thread: threads.len() - 1,
            operations: Vec::with_capacity(operations),
            shared: Arc::clone(&self.shared),
        }
    }

    /// Returns the history of all recorders, which must have been dropped: a joined thread has
    /// dropped the recorder that it owned, whether it returned or panicked.
    ///
    /// # Errors
    ///
    /// [`StillRecording`] if a recorder is alive. A history without its operations would prove
    /// nothing.
    ///
    /// ```
    /// # use corewise_testkit::history::Recording;
    /// let recording = Recording::new();
    /// let mut recorder = recording.recorder(1);
    /// let thread = std::thread::spawn(move || {
    ///     recorder.record("key", (), || panic!("halfway"));
    /// });
    /// assert!(thread.join().is_err());
    /// let history = recording.finish().unwrap();
    /// assert_eq!(history.operations()[0].response, None);
    /// # let _: &corewise_testkit::history::History<&str, (), ()> = &history;
    /// ```
    pub fn finish(self) -> Result<History<K, O, R>, StillRecording> {
        let shared = Arc::into_inner(self.shared).ok_or(StillRecording)?;
        let threads = shared.threads.into_inner();
        let threads = threads.unwrap_or_else(PoisonError::into_inner);
        Ok(History::new(threads.into_iter().flatten().collect()))
    }
}

impl<K, O, R> Default for Recording<K, O, R> {
    fn default() -> Self {
        Self::new()
    }
}

/// The error for finishing a recording while a recorder is alive.
///
/// ```
/// # use corewise_testkit::history::Recording;
/// let recording: Recording<u8, (), ()> = Recording::new();
/// let _alive = recording.recorder(0);
/// assert!(recording.finish().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StillRecording;

impl fmt::Display for StillRecording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a recorder is still alive: join its thread or drop it first")
    }
}

impl Error for StillRecording {}

/// One thread's part of a [`Recording`]. It shares nothing but the clock until it is dropped,
/// normally or by a panic; then it hands its operations over.
pub struct Recorder<K, O, R> {
    thread: usize,
    operations: Vec<CallRecord<K, O, R>>,
    shared: Arc<RecordedCalls<K, O, R>>,
}

impl<K, O, R> Recorder<K, O, R> {
    /// Calls `call`, which does `op` on `key`, and records its outcome between two time stamps. If
    /// `call` panics, the operation stays pending.
    ///
    /// # Why this is sound
    ///
    /// The stamps are increments of one counter, one before and one after the call, so the recorded
    /// interval contains the call. An interval that is too long only lets the checker accept more.
    /// And if one operation's response has a lower stamp than another's invocation, the first
    /// increment happens before the second: the caller of the second operation was entitled to see
    /// the first, by the memory model and not only by wall-clock time. Per-core clocks would be
    /// cheaper, and would accuse a plain `Release` store that has not reached another core yet.
    ///
    /// # Effect on the schedule
    ///
    /// All threads write one cache line twice for each operation, at some 10 to 100 ns each, and
    /// the increments are full barriers on most machines. So operations that take less time overlap
    /// less than without a recorder, and a barrier that is missing at the very start or end of an
    /// operation does not show: a model checker has to find that. Let threads start together and do
    /// many short rounds, and check [`Summary::concurrent`](crate::history::Summary::concurrent).
    ///
    /// ```
    /// # use corewise_testkit::history::Recording;
    /// let recording = Recording::new();
    /// let mut stack = vec![7];
    /// let outcome = recording.recorder(1).record("stack", "pop", || stack.pop()).clone();
    /// assert_eq!(outcome, Some(7));
    /// ```
    pub fn record(&mut self, key: K, op: O, call: impl FnOnce() -> R) -> &R {
        let place = self.operations.len();
        self.operations
            .push(CallRecord::new(self.thread, key, op, 0));
        self.operations[place].invoked = self.shared.stamp();
        let outcome = call();
        let returned = self.shared.stamp();
        let response = CallResponse { outcome, returned };
        &self.operations[place].response.insert(response).outcome
    }

    /// Calls `call`, which does `op` on each of `keys`, and records its outcome for all of them
    /// between the same two time stamps: a flush, say, is a removal of every key. If `call` panics,
    /// the operations stay pending.
    ///
    /// Keys are checked separately, so a history does not show whether the call took effect on all
    /// of them at the same moment.
    ///
    /// ```
    /// # use corewise_testkit::history::{Recording, models::{EntryOp, EntryOutcome, MapEntry}};
    /// let recording = Recording::new();
    /// let mut recorder = recording.recorder(3);
    /// recorder.record("a", EntryOp::Insert(1), || EntryOutcome::Silent);
    /// recorder.record_on_each(["a", "b"], EntryOp::Remove, || EntryOutcome::Silent);
    /// # drop(recorder);
    /// let history = recording.finish().unwrap();
    /// let summary = history.check(&MapEntry::new()).assert_linearizable();
    /// assert_eq!((summary.operations, summary.keys), (3, 2));
    /// ```
    pub fn record_on_each(
        &mut self,
        keys: impl IntoIterator<Item = K>,
        op: O,
        call: impl FnOnce() -> R,
    ) where
        O: Clone,
        R: Clone,
    {
        self.record_batch(keys, op, || std::iter::repeat(call()));
    }

    /// Calls `call`, which does `op` on each of `keys`, and records the outcomes that it returns,
    /// in the order of the keys, all between the same two time stamps. If `call` panics, the
    /// operations stay pending; so do those without a returned outcome.
    ///
    /// No key may occur twice: it would be unknown which of two operations of a thread was first.
    /// Keys are checked separately, as with [`record_on_each`](Self::record_on_each).
    ///
    /// ```
    /// # use corewise_testkit::history::{Recording, models::{EntryOp, EntryOutcome, MapEntry}};
    /// let recording = Recording::new();
    /// let mut recorder = recording.recorder(3);
    /// recorder.record("a", EntryOp::Insert(1), || EntryOutcome::Held(None));
    /// let held = [Some(1), None].map(EntryOutcome::Held);
    /// recorder.record_batch(["a", "b"], EntryOp::Get, || held);
    /// # drop(recorder);
    /// let history = recording.finish().unwrap();
    /// let summary = history.check(&MapEntry::new()).assert_linearizable();
    /// assert_eq!((summary.operations, summary.keys), (3, 2));
    /// ```
    pub fn record_batch<I>(
        &mut self,
        keys: impl IntoIterator<Item = K>,
        op: O,
        call: impl FnOnce() -> I,
    ) where
        O: Clone,
        I: IntoIterator<Item = R>,
    {
        let first = self.operations.len();
        let invoked = |key| CallRecord::new(self.thread, key, op.clone(), 0);
        self.operations.extend(keys.into_iter().map(invoked));
        let operations = &mut self.operations[first..];
        let stamp = self.shared.stamp();
        operations.iter_mut().for_each(|o| o.invoked = stamp);
        let outcomes = call();
        let returned = self.shared.stamp();
        for (operation, outcome) in operations.iter_mut().zip(outcomes) {
            operation.response = Some(CallResponse { outcome, returned });
        }
    }
}

impl<K, O, R> Drop for Recorder<K, O, R> {
    fn drop(&mut self) {
        self.shared.threads()[self.thread] = std::mem::take(&mut self.operations);
    }
}
