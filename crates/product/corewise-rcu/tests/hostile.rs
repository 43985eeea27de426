//! Misuse of a domain by safe code must do no harm.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};

use crate::common::when_a_thread_ends;
use corewise_rcu::{Builder, Domain, Guard, Limits, Pressure, RetireList, Section};

/// From this number of runs on, the closure of [`again`] does not defer itself any more.
const ENOUGH: usize = 1_000_000;

/// Defers a closure that defers itself again, like one whose object is still in use.
fn again(domain: &Domain, runs: &Arc<AtomicUsize>) {
    let (theirs, runs) = (domain.clone(), runs.clone());
    domain.defer(RetireList::<()>::BATCH_BYTES, move || {
        let before = runs.fetch_add(1, SeqCst);
        if before >= ENOUGH {
            return;
        }
        assert!(before < 1000, "it runs for ever");
        again(&theirs, &runs);
    });
}

#[test]
fn a_closure_that_defers_itself_again_does_not_run_for_ever() {
    let domain = Domain::new();
    let runs = Arc::new(AtomicUsize::new(0));
    again(&domain, &runs);
    for _ in 0..10 {
        let before = runs.load(SeqCst);
        domain.barrier();
        let ran = runs.load(SeqCst) - before;
        assert!((1..=2).contains(&ran), "{ran} times in a barrier");
    }
    // A closure that is left would own a handle of the domain that owns the closure.
    runs.store(ENOUGH, SeqCst);
    domain.barrier();
}

#[test]
fn a_backlog_of_more_bytes_than_can_be_counted_is_over_its_limits() {
    let domain = Domain::new();
    let guard = domain.pin();
    assert_eq!(
        domain.defer(1 << (usize::BITS - 1), || ()),
        Pressure::OverHard
    );
    assert_eq!(
        domain.defer(1 << (usize::BITS - 1), || ()),
        Pressure::OverHard
    );
    assert_eq!(domain.defer(usize::MAX, || ()), Pressure::OverHard);
    assert_eq!(domain.backlog_bytes(), usize::MAX);
    drop(guard);
    domain.barrier();
    assert_eq!(domain.backlog_bytes(), 0);
}

#[test]
fn a_cookie_of_another_domain_is_answered_at_once() {
    let (one, other) = (Domain::new(), Domain::new());
    (0..100).for_each(|_| one.synchronize());
    let cookie = one.start_poll();
    assert!(!other.poll(cookie));
    assert!(other.grace_periods() <= 2, "{other:?}");
    other.synchronize();
}

#[test]
fn nested_guards_of_a_thread_that_ends_share_a_record() {
    static DOMAIN: LazyLock<Domain> = LazyLock::new(Domain::new);
    let domain = &*DOMAIN;
    let nest = || {
        let mut guards: Vec<Guard<'_>> = (0..100).map(|_| domain.pin()).collect();
        let cookie = domain.start_poll();
        // Removes from the middle: the last guard to leave is neither the first nor the last that
        // entered.
        let last = guards.swap_remove(50);
        drop(guards);
        let by_a_guard = domain.poll(cookie);
        let mut qsbr = domain.qsbr();
        drop(last);
        let by_a_handle = domain.poll(cookie);
        let is_quiescent = qsbr.quiescent();
        let answers = [by_a_guard, by_a_handle, is_quiescent, domain.poll(cookie)];
        drop(qsbr);
        (domain.readers(), answers)
    };
    let (readers, is_complete) = when_a_thread_ends(move || {
        drop(domain.pin());
        nest
    });
    assert_eq!(readers, 1);
    assert_eq!(is_complete, [false, false, true, true]);
    domain.synchronize();
}

#[test]
fn a_thread_that_ends_enters_no_record_of_another() {
    static DOMAIN: LazyLock<Domain> = LazyLock::new(Domain::new);
    let guard = DOMAIN.pin();
    let theirs = when_a_thread_ends(|| {
        drop(DOMAIN.pin());
        || DOMAIN.pin().reader_index()
    });
    assert_ne!(theirs, guard.reader_index());
}

/// The callback may panic: its caller does not, and the deferred object is not dropped early.
#[test]
fn a_panic_in_the_stall_callback_drops_nothing_early() {
    let domain = Builder::default()
        .limits(Limits { soft: 0, hard: 0 })
        .stall_after(std::time::Duration::ZERO)
        .on_stall(|_| std::panic::resume_unwind(Box::new(())))
        .build("panicking");
    let object = Arc::new(());
    let (entered, leave) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let guard = domain.pin();
            entered.wait();
            leave.wait();
            drop(guard);
        });
        entered.wait();
        for _ in 0..3 {
            let object = object.clone();
            domain.defer(RetireList::<()>::BATCH_BYTES, move || drop(object));
        }
        let alive = Arc::strong_count(&object);
        leave.wait();
        assert_eq!(alive, 4);
    });
    domain.barrier();
    assert_eq!(Arc::strong_count(&object), 1);
}

/// A thread that ends takes a guard, and finds the owned guard that it created earlier.
#[test]
fn a_thread_that_ends_does_not_enter_the_record_of_an_owned_guard() {
    let domain = Domain::new();
    let theirs = domain.clone();
    let (owned, index) = when_a_thread_ends(move || {
        drop(theirs.pin());
        move || {
            let owned = theirs.pin_owned();
            (owned.reader_index(), theirs.pin().reader_index())
        }
    });
    assert_ne!(owned, index);
    domain.synchronize();
}
