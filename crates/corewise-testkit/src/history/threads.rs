//! Threads that record what they do.

use std::panic::resume_unwind;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::history::{History, Recorder, Recording};

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
    let start = Barrier::new(threads as usize + 1);
    thread::scope(|scope| {
        let (start, work) = (&start, &work);
        scope.spawn(move || {
            let _over = SetOnDrop(is_over);
            start.wait();
            beside();
        });
        let start_worker = |thread| {
            let mut recorder = recording.recorder(operations);
            scope.spawn(move || {
                start.wait();
                work(thread, &mut recorder);
            })
        };
        let workers: Vec<_> = (0..threads).map(start_worker).collect();
        let done: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        // Relaxed: the flag orders nothing; the thread is joined.
        is_over.store(true, Ordering::Relaxed);
        for result in done {
            result.unwrap_or_else(|payload| resume_unwind(payload));
        }
    });
    recording.finish().expect("all recorders are back")
}

/// Sets a flag, also when its thread panics.
struct SetOnDrop<'f>(&'f AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        // Relaxed: as in `record_beside`.
        self.0.store(true, Ordering::Relaxed);
    }
}
