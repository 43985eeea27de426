//! Threads that record what they do.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use crate::history::{History, Recorder, Recording};
use crate::stress;

/// Records what `work` does in each of `threads` threads, which start together. It gets the number
/// of the thread and a recorder of up to `operations` operations.
///
/// ```
/// use corewise_testkit::history::models::{EntryOp, EntryOutcome, MapEntry};
/// use corewise_testkit::history::record_threads;
/// use std::{collections::HashMap, sync::Mutex};
///
/// let map = Mutex::new(HashMap::new());
/// let history = record_threads(3, 1, |thread, recorder| {
///     recorder.record("key", EntryOp::Insert(thread), || {
///         EntryOutcome::Held(map.lock().unwrap().insert("key", thread))
///     });
/// });
/// history.check(&MapEntry::new()).assert_linearizable();
/// assert_eq!(history.operations().len(), 3);
/// ```
///
/// # Panics
///
/// If `work` panics, after all threads have ended.
pub fn record_threads<K: Send, O: Send, R: Send>(
    threads: u64,
    operations: usize,
    work: impl Fn(u64, &mut Recorder<K, O, R>) + Sync,
) -> History<K, O, R> {
    record_beside(threads, operations, &AtomicBool::new(false), || (), work)
}

/// As [`record_threads`], while `beside` runs in another thread. It must return soon after
/// `is_over` has become true, which happens when all `work` is done. If `beside` returns earlier,
/// `is_over` becomes true then.
///
/// # Panics
///
/// If `work` or `beside` panics, after all threads have ended.
pub fn record_beside<K: Send, O: Send, R: Send>(
    threads: u64,
    operations: usize,
    is_over: &AtomicBool,
    beside: impl FnOnce() + Send,
    work: impl Fn(u64, &mut Recorder<K, O, R>) + Sync,
) -> History<K, O, R> {
    let recording = Recording::new();
    let recorder = |_| Mutex::new(recording.recorder(operations));
    let recorders: Vec<_> = (0..threads).map(recorder).collect();
    stress::beside(threads, is_over, beside, |thread| {
        let mut recorder = recorders[thread as usize].lock().expect("no panic");
        work(thread, &mut recorder);
    });
    drop(recorders);
    recording.finish().expect("all recorders are back")
}
