//! Waiting threads sleep after a bounded number of looks at the lock, however long it is held: so
//! with more threads than CPUs, those that wait do not take the CPU from the one that holds it.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use crate::wait::MOST_LOOKS;
use crate::wait::watch::{self, Watch};
use crate::{Anderson, Clh, Lock, Mcs, Parking, RawLock, Ticket};

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

#[test]
fn at_a_ticket_lock_waiting_threads_sleep() {
    waiting_threads_sleep::<Ticket>();
}

#[test]
fn at_an_anderson_lock_waiting_threads_sleep_also_beyond_its_slots() {
    waiting_threads_sleep::<Anderson<4>>();
}

#[test]
fn at_a_clh_lock_waiting_threads_sleep() {
    waiting_threads_sleep::<Clh>();
}

#[test]
fn at_an_mcs_lock_waiting_threads_sleep() {
    waiting_threads_sleep::<Mcs>();
}

#[test]
fn at_a_parking_lock_waiting_threads_sleep() {
    waiting_threads_sleep::<Parking>();
}
