//! Every lock, on threads of the system, with more threads than CPUs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[cfg(feature = "lock_api")]
use corewise_locks::{Adaptive, Anderson, Clh, Parking, Tas, Ticket, Ttas, TtasBackoff};
use corewise_locks::{DistributedRw, Lock, Mcs, RawLock, SharedLock};
use corewise_testkit::random::is_short;

/// 4 × oversubscription of two CPUs.
const THREADS: usize = 8;

/// Rounds of each thread. On a busy machine each hand-over of a FIFO lock that spins may wait for a
/// time slice, so there are few; `COREWISE_MANY` is for long runs.
fn rounds() -> usize {
    match (std::env::var_os("COREWISE_MANY").is_some(), is_short()) {
        (true, _) => 20_000,
        (_, true) => 32,
        _ => 48,
    }
}

/// Counts in a critical section with plain memory, and checks that no other thread is inside.
fn increments_are_kept<L: RawLock>() {
    let rounds = rounds();
    let inside = AtomicUsize::new(0);
    let lock: Lock<[usize; 2], L> = Lock::new([0, 0]);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (lock, inside) = (&lock, &inside);
            scope.spawn(move || {
                for round in 0..rounds {
                    // Every fourth round tries first.
                    let tried = (round % 4 == thread % 4).then(|| lock.try_lock()).flatten();
                    let mut both = tried.unwrap_or_else(|| lock.lock());
                    // Relaxed: the lock orders; overlapping sections would be counted anyway.
                    assert_eq!(inside.fetch_add(1, Relaxed), 0);
                    both[0] += 1;
                    if round % 16 == 0 {
                        std::thread::yield_now(); // the holder is descheduled
                    }
                    both[1] += 1;
                    inside.fetch_sub(1, Relaxed);
                }
            });
        }
    });
    assert!(!lock.is_locked());
    assert_eq!(lock.into_inner(), [THREADS * rounds; 2]);
}

/// A panic unlocks, and the next holder sees the value as the panic left it.
fn a_panic_unlocks<L: RawLock>() {
    let lock: Lock<u32, L> = Lock::new(0);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut guard = lock.lock();
        *guard = 7;
        panic!("expected");
    }));
    assert!(panicked.is_err());
    assert_eq!(*lock.try_lock().expect("the panic unlocked it"), 7);
}

/// Threads hold several locks of one kind at once, and unlock them in any order.
fn locks_nest<L: RawLock>() {
    let locks: Vec<Lock<usize, L>> = (0..4).map(|_| Lock::new(0)).collect();
    let rounds = rounds() / 12;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let locks = &locks;
            scope.spawn(move || {
                for round in 0..rounds {
                    // In the order of the array, so that threads do not wait in a circle.
                    let mut guards: Vec<_> = locks.iter().map(|lock| Some(lock.lock())).collect();
                    for step in 0..guards.len() {
                        let at = (step * 3 + round + thread) % guards.len();
                        let mut guard = guards[at].take().expect("each once");
                        *guard += 1;
                    }
                }
            });
        }
    });
    for lock in locks {
        assert_eq!(lock.into_inner(), THREADS * rounds);
    }
}

fn the_value_can_be_reached<L: RawLock>() {
    let mut lock: Lock<String, L> = "a".to_owned().into();
    lock.get_mut().push('b');
    {
        let guard = lock.lock();
        assert!(lock.is_locked() && lock.try_lock().is_none());
        assert_eq!(format!("{guard:?} {lock:?}"), "\"ab\" Lock(..)");
    }
    let unsized_value: &Lock<[u8], L> = &Lock::new([1, 2, 3]);
    assert_eq!(unsized_value.lock().len(), 3);
    assert_eq!(lock.into_inner(), "ab");
}

for_every_lock! { increments_are_kept a_panic_unlocks locks_nest the_value_can_be_reached }

/// Readers see both halves equal, beside writers, with and without a slot for each thread.
fn readers_see_whole_writes<const S: usize>() {
    let rounds = rounds() / 2;
    let lock: SharedLock<[usize; 2], DistributedRw<S>> = SharedLock::new([0; 2]);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let lock = &lock;
            scope.spawn(move || {
                for round in 0..rounds {
                    if (round + thread) % THREADS == 0 {
                        let mut both = lock.write();
                        both[0] += 1;
                        both[1] += 1;
                    } else {
                        let both = lock.read();
                        assert_eq!(both[0], both[1]);
                        // Recursion needs a slot of the thread's own.
                        if S > THREADS * 16 {
                            assert_eq!(lock.read()[0], both[1]);
                        }
                    }
                }
            });
        }
    });
    assert!(!lock.is_locked());
    assert_eq!(lock.into_inner(), [rounds; 2]);
}

/// Readers have a slot each, all share one, or some do.
#[test]
fn distributed_readers_see_whole_writes() {
    readers_see_whole_writes::<257>();
    readers_see_whole_writes::<1>();
    readers_see_whole_writes::<4>();
}

#[test]
fn a_shared_lock_is_shared_by_readers_only() {
    let mut lock = corewise_locks::DistributedRwLock::new(1);
    let (one, other) = (lock.read(), lock.try_read().expect("readers share"));
    assert!(lock.try_write().is_none());
    drop(one);
    assert!(lock.try_write().is_none() && lock.is_locked());
    drop(other);
    {
        let mut guard = lock.try_write().expect("free");
        *guard += 1;
        assert!(lock.try_read().is_none() && lock.try_write().is_none());
    }
    *lock.get_mut() += 1;
    assert_eq!(format!("{:?} {lock:?}", lock.read()), "3 SharedLock(..)");
}

/// A thread that leaks a read lock blocks writers, and its slot is not reused by other threads.
#[test]
fn a_leaked_read_lock_blocks_writers_only() {
    let lock = corewise_locks::DistributedRwLock::new(1);
    std::thread::scope(|scope| {
        scope.spawn(|| std::mem::forget(lock.read()));
    });
    for _ in 0..20 {
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(*lock.read(), 1));
        });
        assert!(lock.try_write().is_none());
    }
}

/// An MCS lock is unlocked after the thread has ended its other thread-locals.
#[test]
fn a_guard_in_a_thread_local_is_unlocked_when_its_thread_ends() {
    static LOCK: Lock<u32, Mcs> = Lock::new(0);
    std::thread_local! {
        static GUARD: std::cell::RefCell<Option<corewise_locks::LockGuard<'static, u32, Mcs>>> =
            const { std::cell::RefCell::new(None) };
    }
    for round in 0..20 {
        std::thread::spawn(move || {
            // Before and after the lock has its node, so that both orders of destructors happen.
            if round % 2 == 0 {
                drop(Lock::<u32, Mcs>::new(0).lock());
            }
            GUARD.with(|guard| {
                let mut locked = LOCK.lock();
                *locked += 1;
                *guard.borrow_mut() = Some(locked);
            });
        })
        .join()
        .unwrap();
        assert_eq!(*LOCK.lock(), round + 1);
    }
}

/// The one-word queue lock as the raw lock of `lock_api`, with its guards.
#[cfg(feature = "lock_api")]
#[test]
fn lock_api_accepts_the_locks() {
    fn check<R: lock_api::RawMutex<GuardMarker = lock_api::GuardNoSend> + Sync>() {
        let lock = lock_api::Mutex::<R, usize>::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..500).for_each(|_| *lock.lock() += 1));
            }
        });
        assert!(lock.try_lock().is_some() && !lock.is_locked());
        let guard = lock_api::MutexGuard::map(lock.lock(), |value| value);
        assert!(lock.try_lock().is_none());
        assert_eq!(*guard, 2_000);
    }
    fn check_fair<R: lock_api::RawMutexFair<GuardMarker = lock_api::GuardNoSend> + Sync>() {
        check::<R>();
        let lock = lock_api::Mutex::<R, usize>::new(1);
        let mut guard = lock.lock();
        lock_api::MutexGuard::bump(&mut guard);
        assert!(lock.try_lock().is_none());
        lock_api::MutexGuard::unlock_fair(guard);
        assert!(lock.try_lock().is_some());
    }
    check_fair::<Mcs>();
    check_fair::<Clh>();
    check_fair::<Ticket>();
    check_fair::<Anderson>();
    check::<Tas>();
    check::<Ttas>();
    check::<TtasBackoff>();
    check::<Parking>();
    check::<Adaptive>();

    let lock = lock_api::Mutex::<Mcs, u32>::new(1);
    std::mem::forget(lock.lock());
    let moved = Box::new(lock);
    // SAFETY: the guard was leaked above.
    let unlock = AssertUnwindSafe(|| unsafe { moved.force_unlock() });
    assert!(catch_unwind(unlock).is_err() && moved.is_locked());

    let lock = lock_api::RwLock::<DistributedRw, u32>::new(1);
    assert_eq!(*lock.read() + *lock.read(), 2);
    *lock.write() += 1;
    assert!(lock.try_write().is_some() && !lock.is_locked());
}
