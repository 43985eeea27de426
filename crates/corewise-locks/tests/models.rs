//! Models of the locks, for loom: see `models.table` for their mutants.

use corewise_atomic::cell::DataCell;
use corewise_atomic::sync::Arc;
use corewise_atomic::{model, model_bounded, thread};
use corewise_locks::{Anderson, Clh, Mcs, RawLock, Tas, Ticket, Ttas, TtasBackoff};

/// Runs `section` in the lock.
fn with<L: RawLock, R>(lock: &L, section: impl FnOnce() -> R) -> R {
    lock.lock();
    assert!(lock.is_locked());
    let result = section();
    // SAFETY: locked above by this thread, and borrowed.
    unsafe { lock.unlock() };
    result
}

/// Each of `threads` threads increments a counter `rounds` times: no increment is lost, loom sees
/// no race, and no thread waits for ever.
fn excludes<L: RawLock>(threads: usize, rounds: usize) {
    let shared = Arc::new((L::new(), DataCell::new(0)));
    let add = move |shared: &(L, DataCell<usize>)| {
        for _ in 0..rounds {
            // SAFETY: the lock is held.
            with(&shared.0, || {
                shared.1.with_mut(|value| unsafe { *value += 1 })
            });
        }
    };
    let others: Vec<_> = (1..threads)
        .map(|_| {
            let shared = shared.clone();
            thread::spawn(move || add(&shared))
        })
        .collect();
    add(&shared);
    others.into_iter().for_each(|other| other.join().unwrap());
    // SAFETY: the other threads have ended.
    assert_eq!(unsafe { shared.1.read() }, threads * rounds);
    assert!(!shared.0.is_locked());
}

/// A thread that tries once beside one that locks.
fn tries<L: RawLock>() {
    let shared = Arc::new((L::new(), DataCell::new(0)));
    let other = {
        let shared = shared.clone();
        thread::spawn(move || {
            // SAFETY: the lock is held.
            with(&shared.0, || {
                shared.1.with_mut(|value| unsafe { *value += 1 })
            });
        })
    };
    let has_tried = shared.0.try_lock();
    if has_tried {
        // SAFETY: the lock is held.
        shared.1.with_mut(|value| unsafe { *value += 1 });
        // SAFETY: taken above by this thread.
        unsafe { shared.0.unlock() };
    }
    other.join().unwrap();
    // SAFETY: the other thread has ended.
    assert_eq!(unsafe { shared.1.read() }, 1 + usize::from(has_tried));
    assert!(shared.0.try_lock(), "free, so a try succeeds");
    // SAFETY: taken above by this thread.
    unsafe { shared.0.unlock() };
}

macro_rules! models {
    ($($name:ident: $lock:ty),* $(,)?) => {$(
        mod $name {
            use super::*;

            #[test]
            fn excludes_two_threads() {
                model_bounded(4, || excludes::<$lock>(2, 2));
            }

            #[test]
            fn a_try_excludes() {
                model(tries::<$lock>);
            }
        }
    )*};
}

models! {
    tas: Tas,
    ttas: Ttas,
    backoff: TtasBackoff,
    ticket: Ticket,
    anderson: Anderson<2>,
    clh: Clh,
    mcs: Mcs,
}

/// Three threads, for locks whose waiting threads read different words. (If two threads wait on one
/// word, loom takes minutes.)
#[test]
fn anderson_excludes_three_threads() {
    model_bounded(2, || excludes::<Anderson<2>>(3, 1));
}

#[test]
fn clh_excludes_three_threads() {
    model_bounded(2, || excludes::<Clh>(3, 1));
}

#[test]
fn mcs_excludes_three_threads() {
    model_bounded(2, || excludes::<Mcs>(3, 1));
}

/// A thread holds two MCS locks at once, and unlocks the older one first.
#[test]
fn mcs_locks_nest_in_any_order() {
    model_bounded(2, || {
        let locks = Arc::new((Mcs::new(), Mcs::new()));
        let shared = locks.clone();
        let other = thread::spawn(move || with(&shared.1, || ()));
        locks.0.lock();
        locks.1.lock();
        // SAFETY: locked above by this thread; so is the other one.
        unsafe { locks.0.unlock() };
        assert!(!locks.0.is_locked());
        // SAFETY: locked above by this thread.
        unsafe { locks.1.unlock() };
        other.join().unwrap();
        assert!(!locks.1.is_locked());
    });
}
