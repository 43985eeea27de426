//! Waiting threads sleep after a bounded number of looks at the lock, however long it is held: so
//! with more threads than CPUs, those that wait do not take the CPU from the one that holds it.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use corewise_testkit::for_every;

use crate::wait::MOST_LOOKS;
use crate::wait::watch::{self, Watch};
use crate::{Adaptive, Anderson, Clh, Lock, Mcs, Parking, RawLock, Ticket};

/// Four threads for each of two CPUs.
const WAITERS: u32 = 8;
/// Yields of the holder while the others sleep.
const HELD_FOR: u32 = 200;

fn waiting_threads_sleep<L: RawLock>() {
    let (lock, watch) = (Lock::<u32, L>::new(0), Arc::new(Watch::default()));
    let held = lock.lock();
    let looks = thread::scope(|scope| {
        for _ in 0..WAITERS {
            scope.spawn(|| {
                watch::join(&watch);
                *lock.lock() += 1;
            });
        }
        // Each thread has a bounded number of looks before it sleeps, so all will.
        while watch.asleep.load(SeqCst) < WAITERS {
            thread::yield_now();
        }
        let looks = watch.looks.load(SeqCst);
        assert!((WAITERS..=WAITERS * MOST_LOOKS).contains(&looks), "{looks}");
        (0..HELD_FOR).for_each(|_| thread::yield_now());
        assert_eq!(
            watch.looks.load(SeqCst),
            looks,
            "a sleeping thread does not look"
        );
        drop(held);
        looks
    });
    assert_eq!(lock.into_inner(), WAITERS, "each was woken");
    assert_eq!(
        watch.looks.load(SeqCst),
        looks,
        "a woken thread has the lock"
    );
    assert_eq!(watch.asleep.load(SeqCst), 0);
}

for_every! {
    ticket: Ticket,
    anderson_beyond_its_slots: Anderson<4>,
    clh: Clh,
    mcs: Mcs,
    parking: Parking,
    => { waiting_threads_sleep }
}

/// The times that a thread of this process has slept.
#[cfg(target_os = "linux")]
fn sleeps_of(thread: &std::path::Path) -> u64 {
    let status = std::path::Path::new("/proc").join(thread).join("status");
    let status = std::fs::read_to_string(status).expect("the status of a thread");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    let count = line.expect("the number of switches");
    count.trim().parse().expect("a number")
}

/// One waiting thread is too few for another mode.
#[test]
#[cfg(target_os = "linux")]
#[cfg_attr(miri, ignore = "reads /proc")]
fn at_an_adaptive_lock_a_spinning_thread_sleeps_in_the_end() {
    /// Sleeps while it waits; it may sleep once before.
    const SLEEPS: u64 = 4;
    /// Looks at the thread, each of which yields: it needs some hundred turns.
    const MOST_LOOKS: u32 = 3_000_000;
    let lock = Lock::<u32, Adaptive>::new(0);
    let held = lock.lock();
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let this = std::fs::read_link("/proc/thread-self").expect("the thread's folder");
            thread::sleep(std::time::Duration::from_millis(1));
            let before = sleeps_of(&this);
            sender.send((this, before)).expect("the receiver waits");
            *lock.lock() += 1;
        });
        let (waiting, before) = receiver.recv().expect("the thread has begun");
        if before == 0 {
            eprintln!("skipped: this system does not count the sleeps of a thread");
            return drop(held);
        }
        let mut looks = 0;
        while sleeps_of(&waiting) < before + SLEEPS {
            looks += 1;
            assert!(looks < MOST_LOOKS, "the waiting thread does not sleep");
            thread::yield_now();
        }
        drop(held);
    });
    assert_eq!(lock.into_inner(), 1);
}
