//! What the crate promises, under use that tries to break it: leaked guards, destructors of
//! thread-locals, threads that come and go, sections while a panic unwinds, and all sequences of
//! aborts.
//!
//! # Which test shows what the crate must do
//!
//! | requirement | shown by |
//! |---|---|
//! | every lock excludes and loses no wake-up | `models.rs` under loom, with the mutants of `models.table` |
//! | every path of SLR and SCM, by scripted aborts | `elide.rs`: `attempts_of_*`, `lemming_*`; `any_sequence_of_aborts_ends` here |
//! | a bound on aborts (no livelock) | `attempts_of_*` and `lemming_2_*` in `elide.rs`; on `Rtm`: `attempts_are_those_of_the_policies` in `emulated_rtm.rs` |
//! | the policies on the instructions of RTM | `emulated_rtm.rs`: *by emulation only* |
//! | isolation of transactions from the lock's holder | `elide.rs` where the processor has RTM: *not shown where it has none* |
//! | the preloaded library elides, and falls back for each cause | `emulated.rs` of corewise-elide: *by emulation only* |
//! | no instruction of RTM runs without RTM | `instructions.rs`; `preload.rs` of corewise-elide |
//! | oversubscription does not collapse | that threads sleep: `sleep_tests.rs`, `fifo_tests.rs`; throughput: `corewise bench run --section lock --oversubscribe -n 2,8` |

use std::cell::{Cell, RefCell};
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, LazyLock, mpsc};
use std::thread;

use corewise_locks::elide::{
    AttemptOutcome, Cause, Elided, Policy, Retry, Rtm, Scm, ScmOpt, Script, Scripted, Slr, SlrScm,
    Tx,
};
use corewise_locks::{
    DistributedRw, DistributedRwLock, FlagRw, Lock, LockGuard, Mcs, Parking, RawLock,
    RawSharedLock, ReaderFlag, SharedLock, SharedReadGuard, SharedWriteGuard, Ticket,
};
use corewise_testkit::random::{Random, is_short};
use corewise_testkit::stress::{beside, come_and_go};
use static_assertions::{assert_impl_all, assert_not_impl_any, assert_type_eq_all};

// The default is a lock at which a running thread need not wait for one that sleeps.
assert_type_eq_all!(Lock<u8>, Lock<u8, Parking>);
assert_type_eq_all!(LockGuard<'static, u8>, LockGuard<'static, u8, Parking>);
assert_impl_all!(Lock<Cell<u8>, Ticket>: Send, Sync);
assert_not_impl_any!(Lock<std::rc::Rc<u8>>: Send, Sync);
assert_not_impl_any!(LockGuard<'static, u8>: Send);
assert_impl_all!(LockGuard<'static, u8>: Sync);
assert_not_impl_any!(LockGuard<'static, Cell<u8>>: Send, Sync);
assert_impl_all!(DistributedRwLock<Cell<u8>>: Send);
assert_not_impl_any!(DistributedRwLock<Cell<u8>>: Sync);
assert_not_impl_any!(SharedReadGuard<'static, u8, DistributedRw>: Send);
assert_not_impl_any!(SharedWriteGuard<'static, u8, DistributedRw>: Send);
assert_not_impl_any!(SharedReadGuard<'static, Cell<u8>, DistributedRw>: Send, Sync);
assert_impl_all!(Elided<Cell<u8>, Mcs, Scm>: Send, Sync);
assert_not_impl_any!(Elided<std::rc::Rc<u8>, Mcs, Scm>: Send, Sync);
assert_not_impl_any!(Tx<'static, Rtm>: Send, Sync);
assert_not_impl_any!(Script: Send, Sync);

for_every_lock! {
    a_thread_holds_many_locks
    a_leak_stays_with_its_lock
    locks_work_in_destructors
    failed_tries_leave_no_trace
}

#[test]
fn a_flag_that_does_not_exist_is_refused_and_the_lock_goes_on() {
    for flags in 1..5 {
        for index in [flags, flags + 1, 1 << 20, u32::MAX as usize - 1] {
            let lock = FlagRw::new(flags);
            let read = || drop(lock.read(ReaderFlag::shared(index)));
            assert!(
                catch_unwind(AssertUnwindSafe(read)).is_err(),
                "{index} of {flags}"
            );
            drop(lock.try_write().expect("nobody holds it"));
            drop(lock.read(ReaderFlag::shared(flags - 1)));
            assert!(lock.try_write().is_some());
        }
    }
}

#[test]
fn a_lock_without_flags_has_writers_only() {
    let lock = FlagRw::new(0);
    let read = || drop(lock.read(ReaderFlag::shared(0)));
    assert!(catch_unwind(AssertUnwindSafe(read)).is_err());
    let guard = lock.write();
    assert!(lock.try_write().is_none());
    drop(guard);
    assert!(lock.try_write().is_some());
}

/// A thread holds more locks than it keeps nodes, and unlocks every third one, over and over. Its
/// nodes serve the next thread.
fn a_thread_holds_many_locks<L: RawLock>() {
    const LOCKS: usize = 1_000;
    let locks: Vec<Lock<usize, L>> = (0..LOCKS).map(|_| Lock::new(0)).collect();
    for round in 1..=2 {
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut guards: Vec<_> = locks.iter().map(|lock| Some(lock.lock())).collect();
                assert!(locks.iter().all(|lock| lock.try_lock().is_none()));
                for step in 0..LOCKS {
                    *guards[step * 3 % LOCKS].take().expect("each once") += 1;
                }
            });
        });
        let counts = locks
            .iter()
            .map(|lock| *lock.try_lock().expect("it is unlocked"));
        assert_eq!(counts.sum::<usize>(), round * LOCKS);
    }
}

/// A leaked guard keeps its lock locked, for its own thread too, and affects no other lock: not one
/// that is created in its place, nor those that its thread locks in any order.
fn a_leak_stays_with_its_lock<L: RawLock>() {
    thread::spawn(|| {
        let mut place: Box<Lock<u32, L>> = Box::new(Lock::new(0));
        let other: Lock<u32, L> = Lock::new(0);
        for round in 1..=20 {
            let around = (round % 2 == 0).then(|| other.lock());
            forget(place.lock());
            assert!(place.is_locked() && place.try_lock().is_none());
            thread::scope(|scope| {
                scope.spawn(|| assert!(place.try_lock().is_none()));
            });
            drop(around);
            *other.lock() += 1;
            assert_eq!(*place.get_mut(), round - 1);
            *place = Lock::new(round);
            assert_eq!(*place.try_lock().expect("another lock"), round);
            let outer = place.lock();
            let inner = other.lock();
            drop(outer);
            assert!(place.try_lock().is_some() && other.try_lock().is_none());
            drop(inner);
        }
        assert_eq!(other.into_inner(), 20);
    })
    .join()
    .unwrap();
}

/// Runs a function when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

type Late = RefCell<Vec<OnDrop<Box<dyn FnMut()>>>>;

thread_local! {
    static FIRST: Late = const { RefCell::new(Vec::new()) };
    static LAST: Late = const { RefCell::new(Vec::new()) };
}

/// Calls `function` in a thread, and then in two destructors of its thread-locals: one that was
/// registered before the thread's first call, and one after.
fn also_in_destructors(function: impl FnMut() + Clone + Send + 'static) {
    thread::spawn(move || {
        let late = |list: &'static thread::LocalKey<Late>| {
            let function: Box<dyn FnMut()> = Box::new(function.clone());
            list.with_borrow_mut(|list| list.push(OnDrop(function)));
        };
        late(&FIRST);
        (function.clone())();
        late(&LAST);
    })
    .join()
    .unwrap();
}

/// Locks work in destructors of thread-locals, also if the thread must wait, and sleep.
fn locks_work_in_destructors<L: RawLock>() {
    let lock = Arc::new(Lock::<u32, L>::new(0));
    let (wants, wanted) = mpsc::channel();
    let shared = lock.clone();
    let holder = thread::spawn(move || {
        // A round for each call below.
        for _ in 0..3 {
            let (has_lock, is_waiting): (mpsc::Sender<()>, mpsc::Receiver<()>) =
                wanted.recv().unwrap();
            let mut guard = shared.lock();
            has_lock.send(()).unwrap();
            is_waiting.recv().unwrap();
            // The other thread is about to lock; give it the time to sleep, mostly.
            (0..20).for_each(|_| thread::yield_now());
            *guard += 1;
        }
    });
    let shared = lock.clone();
    also_in_destructors(move || {
        let (has_lock, locked) = mpsc::channel();
        let (waits, is_waiting) = mpsc::channel();
        wants.send((has_lock, is_waiting)).unwrap();
        locked.recv().unwrap();
        assert!(shared.try_lock().is_none());
        waits.send(()).unwrap();
        let _unlocked_in_any_order = (shared.lock(), Lock::<u8, L>::new(0).lock().min(1));
    });
    holder.join().unwrap();
    assert_eq!(*lock.lock(), 3);
}

/// So do sections: they take effect once, as transactions or under the lock.
#[test]
fn sections_work_in_destructors_of_thread_locals() {
    let count: Arc<Elided<AtomicU64, Mcs, SlrScm, Scripted>> =
        Arc::new(Elided::new(AtomicU64::new(0), Some(Scripted::new())));
    let shared = count.clone();
    also_in_destructors(move || {
        let _script = Scripted::play(
            [AttemptOutcome::AbortAtCommit(Cause::Conflict)],
            AttemptOutcome::Commit,
        );
        shared.run(|count, tx| tx.store(count, tx.load(count) + 1));
    });
    assert_eq!(count.run(|count, tx| tx.load(count)), 3);
    let counts = count.counts();
    assert_eq!(counts.started, counts.committed + counts.all_aborted());
    assert_eq!(counts.committed + counts.fallbacks, 4);
}

/// A section runs in a destructor while a panic unwinds, and its own panic can be caught there.
#[test]
fn sections_run_while_a_panic_unwinds() {
    let count: Elided<AtomicU64, Mcs, Retry<3>, Scripted> =
        Elided::new(AtomicU64::new(0), Some(Scripted::new()));
    let add = || count.run(|count, tx| tx.store(count, tx.load(count) + 1));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _at_end = OnDrop(|| {
            assert!(thread::panicking());
            let script = [
                AttemptOutcome::AbortAtAccess(1, Cause::Conflict),
                AttemptOutcome::AbortAtCommit(Cause::Conflict),
            ];
            let _script = Scripted::play(script, AttemptOutcome::Commit);
            add();
        });
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(panicked.is_err() && !count.is_locked());
    let counts = count.counts();
    assert_eq!((counts.started, counts.committed), (3, 1), "{counts:?}");
    add();
    assert_eq!(count.into_inner().into_inner(), 2);
}

/// The output of an attempt that does not commit is dropped, and that of the last one is returned.
#[test]
fn outputs_of_failed_attempts_are_dropped() {
    let made = AtomicUsize::new(0);
    let output = Arc::new(());
    let value: Elided<(), Mcs, SlrScm, Scripted> = Elided::new((), Some(Scripted::new()));
    let _script = Scripted::play([], AttemptOutcome::AbortAtCommit(Cause::Conflict));
    let last = value.run(|(), _| {
        made.fetch_add(1, SeqCst);
        output.clone()
    });
    assert_eq!((made.into_inner(), Arc::strong_count(&output)), (21, 2));
    drop(last);
}

/// Threads come and go, more of them in total than there are slots, while one writes. Slots and
/// numbers of ended threads are used again, and a few read locks are released when their thread
/// ends.
fn readers_come_and_go<const S: usize>() {
    thread_local! {
        static LATE: RefCell<Option<SharedReadGuard<'static, [u64; 2], DistributedRw<3>>>> =
            const { RefCell::new(None) };
    }
    let generations = if is_short() { 10 } else { 40 };
    let lock: SharedLock<[u64; 2], DistributedRw<S>> = SharedLock::new([0; 2]);
    static STATIC_LOCK: LazyLock<SharedLock<[u64; 2], DistributedRw<3>>> =
        LazyLock::new(|| SharedLock::new([0; 2]));
    let static_lock = &*STATIC_LOCK;
    let (is_over, reads) = (AtomicBool::new(false), AtomicUsize::new(0));
    let write = || {
        while !is_over.load(SeqCst) {
            let mut both = lock.write();
            both[0] += 1;
            thread::yield_now();
            both[1] += 1;
            drop(both);
            let mut both = static_lock.write();
            both[0] += 1;
            both[1] += 1;
            drop(both);
            // Writers go first, so this one lets readers in.
            let before = reads.load(SeqCst);
            while reads.load(SeqCst) == before && !is_over.load(SeqCst) {
                thread::yield_now();
            }
        }
    };
    beside(1, &is_over, write, |_| {
        come_and_go(generations, 5, |_, number| {
            for _ in 0..3 {
                let both = lock.read();
                assert_eq!(both[0], both[1]);
                drop(both);
                reads.fetch_add(1, SeqCst);
            }
            if number == 0 {
                LATE.with_borrow_mut(|late| *late = Some(static_lock.read()));
            }
        })
    });
    assert!(lock.try_write().is_some() && static_lock.try_write().is_some());
}

#[test]
fn readers_may_come_and_go() {
    readers_come_and_go::<1>();
    readers_come_and_go::<3>();
    readers_come_and_go::<65>();
}

/// A failed try leaves nothing behind, in any state of the lock.
fn failed_tries_leave_no_trace<L: RawLock>() {
    let lock = L::new();
    for _ in 0..100 {
        assert!(!lock.is_locked() && lock.try_lock() && lock.is_locked());
        assert!(!lock.try_lock() && !lock.try_lock());
        // SAFETY: locked above by this thread.
        unsafe { lock.unlock() };
    }
}

#[test]
fn failed_tries_of_readers_leave_no_trace() {
    let lock = DistributedRw::<3>::new();
    for _ in 0..100 {
        lock.lock_shared();
        assert!(!lock.try_lock() && !lock.is_write_locked() && lock.is_locked());
        assert!(lock.try_lock_shared());
        // SAFETY: locked twice above by this thread.
        unsafe {
            lock.unlock_shared();
            lock.unlock_shared();
        }
        assert!(!lock.is_locked() && lock.try_lock());
        assert!(!lock.try_lock() && !lock.try_lock_shared() && lock.is_write_locked());
        // SAFETY: locked above by this thread.
        unsafe { lock.unlock() };
    }
}

/// Any outcome, of any cause.
fn any_outcome(random: &mut Random) -> AttemptOutcome {
    let cause = match random.below(9) {
        0 => Cause::Locked,
        1 => Cause::Nested,
        2 => Cause::BadPrefix,
        3 => Cause::Panicked,
        4 => Cause::Explicit(random.below(256) as u8),
        5 => Cause::Capacity,
        6 => Cause::Debug,
        7 => Cause::Unspecified,
        _ => Cause::Conflict,
    };
    match random.below(8) {
        0 => AttemptOutcome::Commit,
        1 | 2 => AttemptOutcome::AbortAtBegin(cause),
        3 | 4 => AttemptOutcome::AbortAtAccess(random.below(6) as u32, cause),
        _ => AttemptOutcome::AbortAtCommit(cause),
    }
}

/// A sequence of outcomes, and the outcome after it. One cause in most places makes the limits meet
/// that a mix does not reach.
fn any_sequence(random: &mut Random) -> (Vec<AttemptOutcome>, AttemptOutcome) {
    let usual = any_outcome(random);
    let length = random.below(120);
    let sequence = (0..length).map(|_| {
        let other = any_outcome(random);
        if random.below(5) == 0 { other } else { usual }
    });
    (sequence.collect(), any_outcome(random))
}

/// Any sequence of outcomes ends within the documented bound, and the section took effect once.
fn any_sequence_ends<P: Policy>() {
    const MORE_IF_LOCKED: u64 = 64;
    let sequences = if is_short() { 100 } else { 1_000 };
    let bound = u64::from(P::ALONE + P::AIDED);
    let mut longest = 0;
    for seed in 1..=sequences {
        let mut random = Random::from_seed(seed);
        let pair: Elided<[AtomicU64; 2], Mcs, P, Scripted> =
            Elided::new(Default::default(), Some(Scripted::new()));
        let (sequence, then) = any_sequence(&mut random);
        let length = sequence.len() as u64;
        let script = Scripted::play(sequence, then);
        let under_lock = Cell::new(0);
        let seen = pair.run(|[one, other], tx| {
            under_lock.set(under_lock.get() + u64::from(!tx.is_transaction()));
            tx.store(one, tx.load(one) + 1);
            tx.store(other, tx.load(other) + 1);
            tx.load(one)
        });
        let used = length - Scripted::outcomes_left() as u64;
        drop(script);
        let counts = pair.counts();
        let aborted = counts.all_aborted();
        let what = format!("seed {seed}: {counts:?}");
        assert!(!pair.is_locked(), "{what}");
        assert!(counts.started <= bound + MORE_IF_LOCKED, "{what}");
        assert!(used == counts.started.min(length), "{what}");
        assert_eq!(counts.started, counts.committed + aborted, "{what}");
        assert_eq!(counts.committed + counts.fallbacks, 1, "{what}");
        assert_eq!(under_lock.get(), counts.fallbacks, "{what}");
        assert!(counts.aided <= u64::from(P::AIDED > 0), "{what}");
        longest = longest.max(counts.started);
        let both = pair.into_inner().map(AtomicU64::into_inner);
        assert_eq!((seen, both), (1, [1, 1]), "{what}");
    }
    assert!(longest > bound || bound == 0, "{longest}");
}

#[test]
fn any_sequence_of_aborts_ends() {
    any_sequence_ends::<Retry<0>>();
    any_sequence_ends::<Retry<1>>();
    any_sequence_ends::<Retry<5>>();
    any_sequence_ends::<Retry<20>>();
    any_sequence_ends::<Scm>();
    any_sequence_ends::<ScmOpt>();
    any_sequence_ends::<Slr>();
    any_sequence_ends::<SlrScm>();
}

/// A policy without attempts makes none.
#[test]
fn no_attempts_means_the_lock() {
    let count: Elided<AtomicU64, Mcs, Retry<0>, Scripted> =
        Elided::new(AtomicU64::new(0), Some(Scripted::new()));
    count.run(|count, tx| tx.store(count, tx.load(count) + 1));
    let counts = count.counts();
    assert_eq!((counts.started, counts.fallbacks), (0, 1));
}
