//! Models of `RcuCell`: every schedule and weak-memory outcome of two threads under loom, many
//! schedules of more threads under shuttle, one run in the normal build.
//!
//! A value stands for a [`DataCell`], which is written before the value is made and when the value
//! is dropped: a read that does not come between the two fails the model. `models.table` names the
//! mutants that must fail.

use corewise_atomic::cell::DataCell;
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::AtomicUsize;
use corewise_atomic::sync::atomic::Ordering::Relaxed;
use corewise_atomic::{Slots, model, model_bounded, thread};
use corewise_rcu::{Domain, RcuCell};

/// The content of an object whose value does not exist, or no longer.
const POISON: usize = usize::MAX;

/// Maximum number of preemptions in a schedule.
const PREEMPTIONS: usize = 3;

/// The contents of the values, which outlive them: a mutant must fail the model, and not read freed
/// memory.
struct Contents {
    objects: Slots<DataCell<usize>>,
    made: AtomicUsize,
    dropped: AtomicUsize,
}

/// A value whose content is a number.
struct Value {
    at: usize,
    contents: Arc<Contents>,
}

impl Contents {
    fn new(values: usize) -> Arc<Self> {
        Arc::new(Self {
            objects: Slots::from_fn(values, |_| DataCell::new(POISON)),
            made: AtomicUsize::new(0),
            dropped: AtomicUsize::new(0),
        })
    }

    fn value(this: &Arc<Self>, number: usize) -> Value {
        // Relaxed: a number that publishes nothing.
        let at = this.made.fetch_add(1, Relaxed);
        // SAFETY: the number of the object is ours, and the value is not published yet.
        this.objects[at].with_mut(|object| unsafe { *object = number });
        let contents = Arc::clone(this);
        Value { at, contents }
    }

    /// Reads the content of the value that is at `at`.
    fn read(&self, at: usize) -> usize {
        // SAFETY: the caller has found the value in a section, or owns it.
        let number = unsafe { self.objects[at].read() };
        assert_ne!(number, POISON, "the value was dropped");
        number
    }

    /// How many values are alive.
    fn alive(&self) -> usize {
        // Relaxed, both: read after joining.
        self.made.load(Relaxed) - self.dropped.load(Relaxed)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: nobody uses the value any more.
        let content = self.contents.objects[self.at]
            .with_mut(|object| unsafe { std::mem::replace(&mut *object, POISON) });
        assert_ne!(content, POISON, "dropped twice");
        // Relaxed: read after joining.
        self.contents.dropped.fetch_add(1, Relaxed);
    }
}

type Parts = (Arc<RcuCell<Value>>, Arc<Contents>);

/// A cell with the number 0, and room for `values` values.
fn cell(domain: &Domain, values: usize) -> Parts {
    let contents = Contents::new(values);
    let cell = RcuCell::in_domain(Contents::value(&contents, 0), domain.clone());
    (Arc::new(cell), contents)
}

/// Reads the number in the cell twice, in one section.
fn read((cell, contents): &Parts) -> usize {
    let guard = cell.load();
    // At once: afterwards a mutant may have freed the value.
    let at = guard.at;
    let number = contents.read(at);
    assert_eq!(contents.read(at), number);
    number
}

fn add((cell, contents): &Parts) {
    cell.rcu(|value| {
        let at = value.at;
        Contents::value(contents, contents.read(at) + 1)
    });
}

fn spawn(parts: &Parts, body: impl FnOnce(&Parts) + Send + 'static) -> thread::JoinHandle<()> {
    let parts = parts.clone();
    thread::spawn(move || body(&parts))
}

/// The reader finds the old value or the new one, whole, and keeps it.
#[test]
fn a_reader_finds_a_whole_value() {
    model_bounded(PREEMPTIONS, || {
        let domain = Domain::new();
        let parts = cell(&domain, 2);
        let reader = spawn(&parts, |parts| assert!(read(parts) <= 1));
        parts.0.store(Contents::value(&parts.1, 1));
        reader.join().unwrap();
        domain.barrier();
        assert_eq!((read(&parts), parts.1.alive()), (1, 1));
    });
}

/// Each of two stores drops what it has replaced, be it the value of the other.
#[test]
fn a_replaced_value_is_dropped_by_another_thread() {
    model_bounded(PREEMPTIONS, || {
        let domain = Domain::new();
        let parts = cell(&domain, 3);
        let writer = spawn(&parts, |(cell, contents)| {
            cell.store(Contents::value(contents, 1))
        });
        parts.0.store(Contents::value(&parts.1, 2));
        writer.join().unwrap();
        domain.barrier();
        assert_eq!(parts.1.alive(), 1);
    });
}

#[test]
fn no_update_by_rcu_is_lost() {
    model_bounded(PREEMPTIONS, || {
        let domain = Domain::new();
        // One for each try: each of the two may lose one race.
        let parts = cell(&domain, 5);
        let other = spawn(&parts, add);
        add(&parts);
        other.join().unwrap();
        domain.barrier();
        assert_eq!((read(&parts), parts.1.alive()), (2, 1));
    });
}

#[test]
fn a_replaced_value_is_taken_after_its_readers() {
    model_bounded(PREEMPTIONS, || {
        let domain = Domain::new();
        let parts = cell(&domain, 2);
        let reader = spawn(&parts, |parts| assert!(read(parts) <= 1));
        let old = parts.0.swap(Contents::value(&parts.1, 1));
        drop(old.into_inner());
        assert_eq!(parts.1.alive(), 1);
        reader.join().unwrap();
    });
}

/// Polling takes the value only if no reader is left; otherwise it is dropped later.
#[test]
fn a_replaced_value_is_polled_for() {
    model_bounded(PREEMPTIONS, || {
        let domain = Domain::new();
        let parts = cell(&domain, 2);
        let reader = spawn(&parts, |parts| assert!(read(parts) <= 1));
        let old = parts.0.swap(Contents::value(&parts.1, 1));
        let at = old.at;
        assert_eq!(parts.1.read(at), 0);
        drop(old.try_into_inner());
        reader.join().unwrap();
        domain.barrier();
        assert_eq!(parts.1.alive(), 1);
    });
}

/// Too many schedules for loom.
#[test]
fn readers_and_writers_of_a_cell() {
    if cfg!(corewise_loom) {
        return;
    }
    model(|| {
        let domain = Domain::new();
        let parts = cell(&domain, 100);
        let read_thrice = |parts: &Parts| (0..3).for_each(|_| assert!(read(parts) < 100));
        let add_thrice = |parts: &Parts| (0..3).for_each(|_| add(parts));
        let threads = [
            spawn(&parts, read_thrice),
            spawn(&parts, read_thrice),
            spawn(&parts, add_thrice),
            spawn(&parts, add_thrice),
            spawn(&parts, |(cell, contents)| {
                drop(cell.swap(Contents::value(contents, 50)).into_inner())
            }),
        ];
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        domain.barrier();
        assert_eq!(parts.1.alive(), 1);
        assert!((50..=56).contains(&read(&parts)));
    });
}
