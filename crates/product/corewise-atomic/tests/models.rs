//! Models of the façade itself. Each runs once in the normal build, in every schedule under loom,
//! and in many schedules under shuttle; `models.table` names the mutants that must fail.

use std::time::Duration;

use corewise_atomic::barrier;
use corewise_atomic::cell::DataCell;
use corewise_atomic::lock::{Mutex, RwLock};
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::{AtomicBool, AtomicUsize, Ordering, Ordering::Relaxed};
use corewise_atomic::{Backoff, Sleeps, model, mutant, ordering, thread};

#[test]
fn message_passing() {
    model(|| {
        let shared = Arc::new((AtomicBool::new(false), DataCell::new(0)));
        let publisher = shared.clone();
        let handle = thread::spawn(move || {
            // SAFETY: no thread reads before the flag is set.
            unsafe { publisher.1.write(42) };
            // Release: pairs with the Acquire below.
            let release = ordering!(Ordering::Release, "relaxed_publish");
            publisher.0.store(true, release);
        });
        // Acquire: pairs with the Release above.
        if shared.0.load(Ordering::Acquire) {
            // SAFETY: the flag is set after the last write.
            assert_eq!(unsafe { shared.1.read() }, 42);
        }
        handle.join().unwrap();
    });
}

fn heavy_or_mutant() {
    if !mutant!("no_heavy") {
        barrier::heavy();
    }
}

fn light_or_mutant() {
    if !mutant!("no_light") {
        barrier::light();
    }
}

/// Guarantee 1 of `barrier`.
#[test]
fn light_and_heavy_forbid_both_missing_the_other() {
    model(|| {
        barrier::prepare();
        let shared = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
        let reader = shared.clone();
        let handle = thread::spawn(move || {
            reader.0.store(1, Relaxed);
            light_or_mutant();
            reader.1.load(Relaxed)
        });
        shared.1.store(1, Relaxed);
        heavy_or_mutant();
        let seen_by_writer = shared.0.load(Relaxed);
        let seen_by_reader = handle.join().unwrap();
        assert!(seen_by_reader == 1 || seen_by_writer == 1);
    });
}

fn add_one(total: &Mutex<u32>) {
    if mutant!("split_critical_section") {
        let before = *total.lock();
        *total.lock() = before + 1;
    } else {
        *total.lock() += 1;
    }
}

#[test]
fn a_mutex_keeps_every_increment() {
    model(|| {
        let total = Arc::new(Mutex::new(0));
        let copy = total.clone();
        let handle = thread::spawn(move || add_one(&copy));
        add_one(&total);
        handle.join().unwrap();
        assert_eq!(*total.lock(), 2);
    });
}

#[test]
fn a_data_cell_under_a_lock_is_written_by_one_at_a_time() {
    struct Guarded(Mutex<()>, DataCell<u32>);
    fn add_one(guarded: &Guarded) {
        let guard = (!mutant!("no_lock")).then(|| guarded.0.lock());
        // SAFETY: the mutex excludes every other access.
        guarded.1.with_mut(|value| unsafe { *value += 1 });
        drop(guard);
    }
    model(|| {
        let guarded = Arc::new(Guarded(Mutex::new(()), DataCell::new(0)));
        let copy = guarded.clone();
        let handle = thread::spawn(move || add_one(&copy));
        add_one(&guarded);
        handle.join().unwrap();
        // SAFETY: the other thread is gone.
        assert_eq!(unsafe { guarded.1.read() }, 2);
    });
}

#[test]
fn a_data_cell_under_a_reader_writer_lock_is_not_read_while_it_is_written() {
    struct Guarded(RwLock<()>, DataCell<u32>);
    fn add_one(guarded: &Guarded) {
        let guard = (!mutant!("no_lock")).then(|| guarded.0.write());
        // SAFETY: the write lock excludes every other access.
        guarded.1.with_mut(|value| unsafe { *value += 1 });
        drop(guard);
    }
    model(|| {
        let guarded = Arc::new(Guarded(RwLock::new(()), DataCell::new(0)));
        let copy = guarded.clone();
        let handle = thread::spawn(move || add_one(&copy));
        let reading = guarded.0.read();
        // SAFETY: the read lock excludes all writes.
        assert!(unsafe { guarded.1.read() } < 2);
        drop(reading);
        add_one(&guarded);
        handle.join().unwrap();
        // SAFETY: the other thread is gone.
        assert_eq!(unsafe { guarded.1.read() }, 2);
    });
}

#[test]
fn a_parked_thread_is_woken() {
    model(|| {
        let ready = Arc::new(AtomicBool::new(false));
        let copy = ready.clone();
        let sleeper = thread::spawn(move || {
            // Acquire: pairs with the Release below.
            while !copy.load(Ordering::Acquire) {
                thread::park();
            }
        });
        // Release: pairs with the Acquire above.
        ready.store(true, Ordering::Release);
        if !mutant!("no_unpark") {
            thread::unpark(sleeper.thread());
        }
        sleeper.join().unwrap();
    });
}

corewise_atomic::static_cell! {
    static COUNT: AtomicUsize = const { AtomicUsize::new(0) };
    static NAMES: Mutex<Vec<&'static str>> = Mutex::new(vec!["first"]);
}

corewise_atomic::thread_local! {
    static DEPTH: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

#[test]
fn statics_start_anew_in_every_run() {
    model(|| {
        assert_eq!(COUNT.fetch_add(1, Relaxed), 0);
        NAMES.lock().push("second");
        assert_eq!(NAMES.lock().len(), 2);
        DEPTH.with(|depth| depth.set(depth.get() + 1));
        let fresh = thread::spawn(|| DEPTH.with(std::cell::Cell::get))
            .join()
            .unwrap();
        assert_eq!((fresh, DEPTH.with(std::cell::Cell::get)), (0, 1));
    });
}

/// An endless schedule, unless the waiting thread lets the other one run.
#[test]
fn a_thread_that_backs_off_lets_others_run() {
    const SLEEPS: Sleeps = Sleeps {
        after_rounds: 1,
        shortest: Duration::from_micros(50),
        longest: Duration::from_micros(50),
    };
    let pauses: [fn(&mut Backoff); 3] = [Backoff::spin, Backoff::snooze, |backoff| {
        backoff.snooze_or_sleep(&SLEEPS);
    }];
    for pause in pauses {
        model(move || {
            let is_ready = Arc::new(AtomicBool::new(false));
            let other = is_ready.clone();
            let handle = thread::spawn(move || {
                // Release: pairs with the Acquire below.
                other.store(true, Ordering::Release);
            });
            let mut backoff = Backoff::new();
            // Acquire: pairs with the Release above.
            while !is_ready.load(Ordering::Acquire) {
                if !mutant!("no_backoff") {
                    pause(&mut backoff);
                }
            }
            handle.join().unwrap();
        });
    }
}
