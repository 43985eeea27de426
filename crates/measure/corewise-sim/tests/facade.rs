//! What the façade of `corewise-atomic` does in a simulation.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use corewise_atomic::cell::{Access, DataCell, touch};
use corewise_atomic::lock::{Mutex, RwLock};
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use corewise_atomic::{Backoff, Sleeps, barrier, hint, thread, time};
use corewise_sim::{BlockedOn, Config, Finished, SimError, SimLimit, run};

use super::{in_threads, seeded};

fn simulate<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> Finished<R> {
    run(seeded(1), body).expect("the program ends")
}

#[test]
fn every_operation_is_an_access_and_does_what_it_does_in_std() {
    let finished = simulate(|| {
        let mut word = AtomicU64::new(5);
        assert_eq!(word.fetch_add(3, Relaxed), 5);
        assert_eq!(word.fetch_sub(1, Relaxed), 8);
        assert_eq!(word.fetch_and(6, Relaxed), 7);
        assert_eq!(word.fetch_or(1, Relaxed), 6);
        assert_eq!(word.fetch_xor(2, Relaxed), 7);
        assert_eq!(word.fetch_max(9, Relaxed), 5);
        assert_eq!(word.fetch_min(4, Relaxed), 9);
        assert_eq!(word.fetch_nand(4, Relaxed), 4);
        assert_eq!(word.swap(7, SeqCst), !4);
        assert_eq!(word.compare_exchange(7, 8, SeqCst, Relaxed), Ok(7));
        assert_eq!(word.compare_exchange_weak(7, 9, SeqCst, Relaxed), Err(8));
        word.store(2, Release);
        assert_eq!(word.load(Acquire), 2);
        // A load and an exchange.
        assert_eq!(word.fetch_update(Relaxed, Relaxed, |n| Some(n + 1)), Ok(2));
        assert_eq!((*word.get_mut(), word.into_inner()), (3, 3));
        let flag = AtomicBool::new(false);
        assert!(!flag.fetch_or(true, Relaxed) && flag.load(Relaxed));
        let pointer = AtomicPtr::new(std::ptr::null_mut::<u8>());
        assert!(pointer.load(Relaxed).is_null());
        let cell = DataCell::new(1);
        // SAFETY: no other thread knows the cell.
        unsafe { cell.write(cell.read() + 1) };
        let bytes = [0u8; 100];
        touch(bytes.as_ptr_range(), Access::Read);
    });
    // The last one is the end of the cell's write.
    let least = 13 + 2 + 2 + 1 + 2 + 2 + 1;
    assert!(
        (least..least + 2).contains(&finished.accesses),
        "{}",
        finished.accesses
    );
}

/// Increments that read and write under a lock, which is also a race on a plain cell if it fails.
#[test]
fn a_mutex_excludes_and_a_readers_writer_lock_lets_readers_in_together() {
    let finished = simulate(|| {
        let total = Arc::new((Mutex::new(0u64), RwLock::new(0u64), AtomicU64::new(0)));
        let shared = total.clone();
        in_threads(12, move |number| {
            for round in 0..40 {
                let mut guard = shared.0.lock();
                let before = *guard;
                hint::spin_loop();
                *guard = before + 1;
                drop(guard);
                if (round + number) % 4 == 0 {
                    let mut guard = shared.1.write();
                    let before = *guard;
                    thread::yield_now();
                    *guard = before + 1;
                } else {
                    let guard = shared.1.read();
                    let readers = shared.2.fetch_add(1, Relaxed);
                    let before = *guard;
                    thread::yield_now();
                    assert_eq!(before, *guard);
                    shared.2.fetch_sub(1, Relaxed);
                    drop(guard);
                    if readers > 2 {
                        shared.2.fetch_add(1 << 32, Relaxed);
                    }
                }
            }
        });
        let together = total.2.load(Relaxed) >> 32;
        (*total.0.lock(), *total.1.read(), together)
    });
    let (locked, written, together) = finished.value;
    assert_eq!((locked, written), (480, 120));
    assert!(together > 10, "{together}");
}

#[test]
fn locks_can_be_tried_and_survive_a_panic() {
    simulate(|| {
        let lock = Arc::new(Mutex::new(1));
        let copy = lock.clone();
        let panicked = thread::spawn(move || {
            let _guard = copy.lock();
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        let payload = panicked.join().unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&"on purpose"));
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(guard);
        assert_eq!(lock.try_lock().map(|guard| *guard), Some(1));
    });
}

#[test]
fn a_lock_that_its_holder_takes_again_is_a_deadlock() {
    let result = run(seeded(1), || {
        let lock = Mutex::new(());
        let _guard = lock.lock();
        let _again = lock.lock();
    });
    let Err(SimError::Deadlock(blocked)) = result else {
        panic!("{result:?}");
    };
    assert!(matches!(blocked[..], [ref one] if matches!(one.on, BlockedOn::Address(_))));
}

#[test]
fn two_locks_in_opposite_orders_are_a_deadlock_in_some_schedules_only() {
    let is_deadlock = |seed| {
        let result = run(seeded(seed), || {
            let locks = Arc::new([Mutex::new(()), Mutex::new(())]);
            in_threads(2, move |number| {
                // The second thread begins one system call later.
                thread::sleep(Duration::from_nanos(if number == 0 { 1_030 } else { 0 }));
                let _one = locks[number as usize].lock();
                let _other = locks[1 - number as usize].lock();
            });
        });
        match result {
            Ok(_) => false,
            Err(SimError::Deadlock(blocked)) => blocked.len() == 3,
            Err(error) => panic!("{error}"),
        }
    };
    let deadlocks = (0..100).filter(|&seed| is_deadlock(seed)).count();
    assert!((1..100).contains(&deadlocks), "{deadlocks}");
}

#[test]
fn threads_have_names_and_identities_and_can_be_unparked() {
    simulate(|| {
        let is_ready = Arc::new(AtomicBool::new(false));
        let copy = is_ready.clone();
        let body = move || {
            while !copy.load(Acquire) {
                thread::park();
            }
            thread::current().name().map(str::to_owned)
        };
        let handle = thread::spawn_named("worker 3", body).unwrap();
        assert_ne!(handle.thread().id(), thread::current().id());
        thread::sleep(Duration::from_millis(3));
        assert!(!handle.is_finished());
        is_ready.store(true, Release); // pairs with the Acquire above
        handle.thread().unpark();
        assert_eq!(handle.join().unwrap().as_deref(), Some("worker 3"));
        thread::park_timeout(Duration::from_micros(10));
    });
}

#[test]
fn a_thread_of_another_simulation_is_not_unparked() {
    let other = simulate(|| thread::spawn(|| ()).thread().clone()).value;
    other.unpark();
    let slept = simulate(move || {
        // Has the same number as the other one.
        let parked = thread::spawn(|| {
            let begin = time::now_ns();
            thread::park_timeout(Duration::from_millis(1));
            time::now_ns() - begin
        });
        assert_eq!(parked.thread().id(), other.id());
        thread::sleep(Duration::from_micros(10));
        other.unpark();
        parked.join().unwrap()
    });
    assert!(slept.value >= 1_000_000, "{} ns", slept.value);
    // A smaller simulation has no thread of this number.
    let many = simulate(|| {
        in_threads(9, |_| ());
        thread::spawn(|| ()).thread().clone()
    });
    simulate(move || many.value.unpark());
}

#[test]
fn time_is_virtual() {
    let begin = std::time::Instant::now();
    let finished = simulate(|| {
        let before = time::now_ns();
        thread::sleep(Duration::from_secs(3600));
        let deadline = time::now_ns() + 1_000;
        // Not a wait for a line, although one is read.
        let word = AtomicU32::new(0);
        while time::now_ns() < deadline && word.load(Relaxed) == 0 {
            hint::spin_loop();
        }
        time::now_ns() - before
    });
    assert!((3_600_000_001_000..3_600_000_003_000).contains(&finished.value));
    assert!(begin.elapsed() < Duration::from_secs(600));
}

#[test]
fn a_backoff_waits_and_a_wait_without_an_end_is_reported() {
    const SLEEPS: Sleeps = Sleeps {
        after_rounds: 12,
        shortest: Duration::from_micros(1),
        longest: Duration::from_micros(4),
    };
    let waits = |is_released: bool, sleeps: bool| {
        let config = Config {
            max_accesses: 300_000,
            ..seeded(1)
        };
        let result = run(config, move || {
            let flag = Arc::new(AtomicBool::new(false));
            let copy = flag.clone();
            let waiting = thread::spawn(move || {
                let mut backoff = Backoff::new();
                while !copy.load(Acquire) {
                    if sleeps {
                        backoff.snooze_or_sleep(&SLEEPS);
                    } else {
                        backoff.snooze();
                    }
                }
            });
            thread::sleep(Duration::from_millis(1));
            flag.store(is_released, Release); // pairs with the Acquire above
            waiting.join().unwrap();
        });
        result.map(|finished| finished.accesses)
    };
    // 1,000 yields, or some 250 sleeps of up to 4 µs, each after a load.
    assert!((1_800..2_400).contains(&waits(true, false).unwrap()));
    assert!((500..2_000).contains(&waits(true, true).unwrap()));
    assert!(matches!(waits(false, false), Err(SimError::Deadlock(_))));
    // A thread that sleeps wakes up again.
    assert_eq!(waits(false, true), Err(SimError::Limit(SimLimit::Accesses)));
}

corewise_atomic::thread_local! {
    static DEPTH: Cell<u64> = const { Cell::new(0) };
    static NOTES: RefCell<Vec<u64>> = RefCell::new(Vec::new());
    static DROPPED: CountsDrops = const { CountsDrops };
}

corewise_atomic::static_cell! {
    static DROPS: AtomicU64 = const { AtomicU64::new(0) };
    static SUM: AtomicU64 = const { AtomicU64::new(0) };
    static MAKES: AtomicU64 = const { AtomicU64::new(0) };
    static TABLE: Vec<u64> = {
        // Others come while the first one is busy here.
        thread::sleep(Duration::from_millis(1));
        MAKES.fetch_add(1, Relaxed);
        vec![1, 2, 3]
    };
}

struct CountsDrops;

impl Drop for CountsDrops {
    fn drop(&mut self) {
        thread::sleep(Duration::from_micros(50));
        DROPS.fetch_add(1, Relaxed);
    }
}

#[test]
fn thread_locals_are_the_threads_and_are_dropped_in_its_time() {
    let finished = simulate(|| {
        let counts = in_threads(8, |number| {
            for _ in 0..=number {
                DEPTH.set(DEPTH.get() + 1);
                thread::yield_now();
            }
            NOTES.with_borrow_mut(|notes| notes.push(number));
            DROPPED.with(|_| ());
            (DEPTH.get(), NOTES.with_borrow(Vec::len))
        });
        // All were dropped before their threads could be joined.
        let expected: Vec<_> = (1..9).map(|number| (number, 1)).collect();
        (
            counts == expected,
            DEPTH.get(),
            DROPS.load(Relaxed),
            SUM.load(Relaxed),
        )
    });
    assert_eq!(finished.value, (true, 0, 8, 0));
}

/// As in `std`: it is not dropped before the destructors of those that were made earlier.
#[test]
fn a_thread_local_without_a_destructor_can_be_used_in_those_of_others() {
    corewise_atomic::thread_local! {
        static LAST: ReadsDepth = const { ReadsDepth };
    }
    corewise_atomic::static_cell! {
        static READ: AtomicU64 = const { AtomicU64::new(0) };
    }
    struct ReadsDepth;
    impl Drop for ReadsDepth {
        fn drop(&mut self) {
            let depth = DEPTH.try_with(Cell::get);
            READ.fetch_add(depth.unwrap_or(1_000), Relaxed);
            assert!(NOTES.try_with(|_| ()).is_err());
        }
    }
    let finished = simulate(|| {
        in_threads(4, |number| {
            LAST.with(|_| ());
            NOTES.with(|_| ());
            DEPTH.set(number);
        });
        READ.load(Relaxed)
    });
    assert_eq!(finished.value, 6);
}

#[test]
fn statics_start_anew_in_every_simulation_and_are_made_once_in_each() {
    let once = || {
        simulate(|| {
            in_threads(16, |number| {
                SUM.fetch_add(number, Relaxed);
                TABLE.len()
            });
            (SUM.load(Relaxed), MAKES.load(Relaxed))
        })
        .value
    };
    assert_eq!((once(), once()), ((120, 1), (120, 1)));
    assert_eq!((SUM.load(Relaxed), MAKES.load(Relaxed)), (0, 0));
}

/// Guarantee 1 of `barrier`, which holds trivially: values are sequentially consistent.
#[test]
fn the_heavy_half_of_the_barrier_costs_a_system_call() {
    let cost = |heavy: bool| {
        let finished = simulate(move || {
            let begin = time::now_ns();
            if heavy {
                barrier::heavy();
            } else {
                barrier::light();
            }
            time::now_ns() - begin
        });
        finished.value
    };
    // Reading the clock takes 20 ns.
    assert_eq!((cost(true), cost(false)), (1_020, 20));
}

/// The wake-up must come at the end of a plain write that lasts, not at its begin only.
#[test]
fn a_spinner_sees_the_end_of_a_long_plain_write() {
    for seed in 0..50 {
        let finished = run(seeded(seed), || {
            let shared = Arc::new((DataCell::new(0u32), AtomicU32::new(0)));
            let copy = shared.clone();
            let writer = thread::spawn(move || {
                thread::sleep(Duration::from_micros(20));
                copy.0.with_mut(|value| {
                    (0..50).for_each(|_| drop(copy.1.load(Relaxed).to_string()));
                    // SAFETY: one simulated thread runs at a time, and none holds a reference.
                    unsafe { *value = 1 };
                });
            });
            // SAFETY: as above; a program for real threads needs an atomic.
            while unsafe { shared.0.read() } == 0 {
                hint::spin_loop();
            }
            writer.join().unwrap();
        });
        assert_eq!(finished.map(|finished| finished.value), Ok(()));
    }
}
