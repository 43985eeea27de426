//! Models of the locks, for loom: see `models.table` for their mutants.

use corewise_atomic::cell::DataCell;
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::AtomicU64;
use corewise_atomic::{model, model_bounded, thread};
use corewise_locks::elide::{
    AttemptOutcome, Cause, Elided, Policy, Retry, Scm, ScmOpt, Scripted, Slr, SlrScm,
};
use corewise_locks::{
    Adaptive, Anderson, Clh, DistributedRw, Mcs, Parking, RawLock, RawSharedLock, Tas, Ticket,
    Ttas, TtasBackoff,
};
use corewise_testkit::for_every;

/// Runs `section` in the lock.
fn with<L: RawLock, R>(lock: &L, section: impl FnOnce() -> R) -> R {
    lock.lock();
    assert!(lock.is_locked());
    let result = section();
    // SAFETY: locked above by this thread, and borrowed.
    unsafe { lock.unlock() };
    result
}

/// Increments a counter whose lock is held.
fn add_one(counter: &DataCell<usize>) {
    // SAFETY: the lock is held; if it were not, loom would see the race.
    counter.with_mut(|value| unsafe { *value += 1 });
}

/// Each of `threads` threads increments a counter `rounds` times: no increment is lost, loom sees
/// no race, and no thread waits for ever.
fn excludes<L: RawLock>(threads: usize, rounds: usize) {
    let shared = Arc::new((L::new(), DataCell::new(0)));
    let add = move |shared: &(L, DataCell<usize>)| {
        for _ in 0..rounds {
            with(&shared.0, || add_one(&shared.1));
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
            with(&shared.0, || add_one(&shared.1));
        })
    };
    let has_tried = shared.0.try_lock();
    if has_tried {
        add_one(&shared.1);
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

fn excludes_two_threads<L: RawLock>() {
    model_bounded(4, || excludes::<L>(2, 2));
}

fn a_try_excludes<L: RawLock>() {
    model(tries::<L>);
}

for_every! {
    tas: Tas,
    ttas: Ttas,
    backoff: TtasBackoff,
    ticket: Ticket,
    anderson: Anderson<2>,
    clh: Clh,
    mcs: Mcs,
    parking: Parking,
    adaptive: Adaptive,
    distributed: DistributedRw<3>,
    => { excludes_two_threads a_try_excludes }
}

/// Three threads: in one the lock is unlocked while the other two go to sleep.
#[test]
fn parking_wakes_every_thread() {
    model_bounded(2, || excludes::<Parking>(3, 1));
}

/// Two threads sleep at one turn at once: each is woken.
#[test]
fn a_ticket_lock_wakes_every_thread() {
    model_bounded(2, || excludes::<Ticket>(3, 1));
}

/// Likewise where all tickets share one slot.
#[test]
fn an_anderson_lock_of_one_slot_wakes_every_thread() {
    model_bounded(2, || excludes::<Anderson<1>>(3, 1));
}

/// One thread makes all decisions of the policy, so that the mode changes during the model.
#[test]
fn adaptive_excludes_in_every_mode() {
    model_bounded(2, || excludes::<Adaptive>(2, 3));
}

/// Reads twice beside a writer: never between its two writes, and loom sees no race.
fn readers_and_a_writer<const S: usize>(readers: usize, writes: usize) {
    let shared = Arc::new((DistributedRw::<S>::new(), DataCell::new([0; 2])));
    let threads: Vec<_> = (0..readers)
        .map(|_| {
            let shared = shared.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    shared.0.lock_shared();
                    // SAFETY: the lock is held for reading.
                    let [one, other] = unsafe { shared.1.read() };
                    assert_eq!(one, other);
                    // SAFETY: locked above by this thread.
                    unsafe { shared.0.unlock_shared() };
                }
            })
        })
        .collect();
    for _ in 0..writes {
        with(&shared.0, || {
            // SAFETY: the lock is held for writing.
            shared
                .1
                .with_mut(|both| unsafe { *both = [both.read()[0] + 1; 2] });
        });
    }
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

#[test]
fn distributed_readers_and_a_writer_exclude_each_other() {
    model_bounded(3, || readers_and_a_writer::<3>(1, 2));
}

/// All readers use the slot that is shared.
#[test]
fn distributed_readers_without_slots_and_a_writer_exclude_each_other() {
    model_bounded(2, || readers_and_a_writer::<1>(1, 2));
}

/// A reader that locks again does not wait for a writer in between.
#[test]
fn a_distributed_reader_may_lock_again() {
    model_bounded(3, || {
        let lock = Arc::new(DistributedRw::<3>::new());
        let other = lock.clone();
        let writer = thread::spawn(move || with(&*other, || ()));
        lock.lock_shared();
        lock.lock_shared();
        assert!(lock.is_locked());
        // SAFETY: locked twice above by this thread.
        unsafe {
            lock.unlock_shared();
            lock.unlock_shared();
        }
        writer.join().unwrap();
        assert!(!lock.is_locked() && !lock.is_write_locked());
    });
}

/// Tries for reading and writing exclude, too.
#[test]
fn distributed_tries_exclude() {
    model_bounded(3, || {
        let shared = Arc::new((DistributedRw::<3>::new(), DataCell::new(0)));
        let other = shared.clone();
        let reader = thread::spawn(move || {
            if other.0.try_lock_shared() {
                // SAFETY: the lock is held for reading.
                let _ = unsafe { other.1.read() };
                // SAFETY: locked above by this thread.
                unsafe { other.0.unlock_shared() };
            }
        });
        if shared.0.try_lock() {
            add_one(&shared.1);
            // SAFETY: locked above by this thread.
            unsafe { shared.0.unlock() };
        }
        reader.join().unwrap();
    });
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

/// A section of one thread as a transaction, and one of the other under the lock: both increments
/// of both halves are kept, and each sees equal halves.
fn elided_increments<P: Policy>() {
    type Pair<P> = Elided<[AtomicU64; 2], Ttas, P, Scripted>;
    fn add<P: Policy>(pair: &Pair<P>) {
        let (one, other) = pair.run(|[one, other], tx| {
            let both = (tx.load(one), tx.load(other));
            tx.store(one, both.0 + 1);
            tx.store(other, both.1 + 1);
            both
        });
        assert_eq!(one, other, "a torn pair");
    }
    let data = [AtomicU64::new(0), AtomicU64::new(0)];
    let pair: Arc<Pair<P>> = Arc::new(Elided::new(data, Some(Scripted::new())));
    let shared = pair.clone();
    let locking = thread::spawn(move || {
        let _script = Scripted::play([], AttemptOutcome::AbortAtBegin(Cause::Debug));
        add(&shared);
    });
    add(&pair);
    locking.join().unwrap();
    let both = pair.run(|[one, other], tx| (tx.load(one), tx.load(other)));
    assert_eq!(both, (2, 2), "an increment was lost");
}

/// The first thread only reads (figure 4.1 of the thesis).
fn elided_reads<P: Policy>() {
    let data = [AtomicU64::new(0), AtomicU64::new(0)];
    let pair: Arc<Elided<[AtomicU64; 2], Ttas, P, Scripted>> =
        Arc::new(Elided::new(data, Some(Scripted::new())));
    let shared = pair.clone();
    let locking = thread::spawn(move || {
        let _script = Scripted::play([], AttemptOutcome::AbortAtBegin(Cause::Debug));
        shared.run(|[one, other], tx| {
            tx.store(one, 1);
            tx.store(other, 1);
        });
    });
    let (one, other) = pair.run(|[one, other], tx| (tx.load(one), tx.load(other)));
    assert_eq!(one, other, "a torn pair");
    locking.join().unwrap();
}

#[test]
fn slr_sees_no_torn_pair() {
    model_bounded(3, elided_reads::<Slr>);
}

#[test]
fn retry_sees_no_torn_pair() {
    model_bounded(3, elided_reads::<Retry<2>>);
}

#[test]
fn slr_keeps_increments() {
    model_bounded(2, elided_increments::<Slr>);
}

#[test]
fn retry_keeps_increments() {
    model_bounded(2, elided_increments::<Retry<2>>);
}

#[test]
fn optimistic_scm_keeps_increments() {
    model_bounded(2, elided_increments::<ScmOpt>);
}

/// A thread that needs the auxiliary lock more than once does not wait for itself, and unlocks it.
#[test]
fn conflicts_are_serialised_by_the_auxiliary_lock() {
    fn check<P: Policy>() {
        let data = [AtomicU64::new(0)];
        let count: Elided<[AtomicU64; 1], Ttas, P, Scripted> =
            Elided::new(data, Some(Scripted::new()));
        let _script = Scripted::play([], AttemptOutcome::AbortAtCommit(Cause::Conflict));
        for _ in 0..2 {
            count.run(|[count], tx| tx.store(count, tx.load(count) + 1));
        }
    }
    model(check::<Scm>);
    model(check::<SlrScm>);
}
