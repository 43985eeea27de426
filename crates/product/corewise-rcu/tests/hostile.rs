//! Misuse of a domain by safe code must do no harm.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, LazyLock};

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

/// Enters nested sections after the thread's records are gone.
struct Late(&'static Domain, Sender<(usize, [bool; 4])>);

impl Drop for Late {
    fn drop(&mut self) {
        let domain = self.0;
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
        let _ = self.1.send((domain.readers(), answers));
    }
}

#[test]
fn nested_guards_of_a_thread_that_ends_share_a_record() {
    thread_local! {
        static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
    }
    static DOMAIN: LazyLock<Domain> = LazyLock::new(Domain::new);
    let domain = &*DOMAIN;
    let (sender, seen) = channel();
    let thread = std::thread::spawn(move || {
        // Used before the domain's thread-locals, and so dropped after them.
        LATE.set(Some(Late(domain, sender)));
        drop(domain.pin());
    });
    thread.join().unwrap();
    let (readers, is_complete) = seen.recv().unwrap();
    assert_eq!(readers, 1);
    assert_eq!(is_complete, [false, false, true, true]);
    domain.synchronize();
}

#[test]
fn a_thread_that_ends_enters_no_record_of_another() {
    struct Late(&'static Domain, Sender<usize>);
    impl Drop for Late {
        fn drop(&mut self) {
            let _ = self.1.send(self.0.pin().reader_index());
        }
    }
    thread_local! {
        static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
    }
    static DOMAIN: LazyLock<Domain> = LazyLock::new(Domain::new);
    let guard = DOMAIN.pin();
    let (sender, places) = channel();
    let thread = std::thread::spawn(move || {
        LATE.set(Some(Late(&DOMAIN, sender)));
        drop(DOMAIN.pin());
    });
    thread.join().unwrap();
    assert_ne!(places.recv(), Ok(guard.reader_index()));
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
struct Ending(Domain, Sender<(usize, usize)>);

impl Drop for Ending {
    fn drop(&mut self) {
        let owned = self.0.pin_owned();
        let index = self.0.pin().reader_index();
        let _ = self.1.send((owned.reader_index(), index));
    }
}

thread_local! {
    static ENDING: RefCell<Option<Ending>> = const { RefCell::new(None) };
}

#[test]
fn a_thread_that_ends_does_not_enter_the_record_of_an_owned_guard() {
    let domain = Domain::new();
    let (theirs, (send, receive)) = (domain.clone(), channel());
    std::thread::spawn(move || {
        // Dropped after the thread's record, which is made later.
        ENDING.set(Some(Ending(theirs.clone(), send)));
        drop(theirs.pin());
    })
    .join()
    .unwrap();
    let (owned, index) = receive.recv().unwrap();
    assert_ne!(owned, index);
    domain.synchronize();
}
