//! The count of nested sections at its bounds: at the limit, offline, and at the end of a thread.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::time::Duration;

use crate::common::{in_a_process, when_a_thread_ends};
use corewise_rcu::{Domain, Guard, MAX_NESTED, Qsbr, Section};

/// Takes guards until the domain refuses one.
fn all_guards(domain: &Domain) -> Vec<Guard<'_>> {
    let pin = || catch_unwind(AssertUnwindSafe(|| domain.pin())).ok();
    std::iter::from_fn(pin).collect()
}

#[test]
fn a_handle_that_comes_back_online_has_a_section_whatever_was_left_alive() {
    let domain = Domain::new();
    let mut qsbr = domain.qsbr();
    let mut guards = Vec::new();
    let offline = || qsbr.offline(|| guards = all_guards(&domain));
    assert!(catch_unwind(AssertUnwindSafe(offline)).is_ok());
    assert_eq!(guards.len(), MAX_NESTED - 1);
    drop(guards);
    let section = qsbr.section();
    let cookie = domain.start_poll();
    assert!(!domain.poll(cookie), "{section:?} protects nothing");
    drop(qsbr);
    assert!(domain.poll(cookie));
}

#[test]
fn each_handle_that_is_offline_keeps_its_place() {
    let domain = Domain::new();
    let [mut one, mut two, mut three] = [domain.qsbr(), domain.qsbr(), domain.qsbr()];
    let count = || all_guards(&domain).len();
    let counts = one.offline(|| two.offline(|| (three.offline(count), count())));
    assert_eq!(counts, (MAX_NESTED - 3, MAX_NESTED - 3));
    assert!(!one.quiescent());
    drop((two, three));
    assert!(one.quiescent());
    drop(one);
    assert_eq!(all_guards(&domain).len(), MAX_NESTED);
    domain.synchronize();
}

/// Takes handles offline, each inside the one before, until one is refused; returns how many were
/// taken.
fn offline_until_refused(domain: &Domain, depth: usize) -> usize {
    let mut qsbr = domain.qsbr();
    let deeper = || qsbr.offline(|| offline_until_refused(domain, depth + 1));
    let refused = catch_unwind(AssertUnwindSafe(deeper));
    let section = qsbr.section();
    assert!(domain.is_pinned(), "{section:?}");
    refused.unwrap_or(depth)
}

/// The number of handles that can be offline beside `count` guards.
fn most_offline_beside(count: usize) -> usize {
    let body = move || {
        let domain = Domain::new();
        let mut guards = all_guards(&domain);
        guards.truncate(count);
        let most = offline_until_refused(&domain, 0);
        drop(guards);
        domain.synchronize();
        most
    };
    let big = std::thread::Builder::new().stack_size(256 << 20);
    big.spawn(body).unwrap().join().unwrap()
}

#[test]
fn handles_that_are_offline_are_bounded_too() {
    // Each keeps a place, and the last one needs another to come back.
    assert_eq!(most_offline_beside(MAX_NESTED - 1_000), 999);
    // ThreadSanitizer keeps calls on a separate stack, which this recursion overflows.
    if !cfg!(corewise_tsan) {
        assert_eq!(most_offline_beside(0), MAX_NESTED / 2);
    }
}

#[test]
fn a_guard_beyond_the_limit_is_refused_and_changes_nothing() {
    let domain = Domain::new();
    let mut guards = all_guards(&domain);
    assert_eq!(guards.len(), MAX_NESTED);
    assert!(catch_unwind(AssertUnwindSafe(|| domain.qsbr())).is_err());
    let cookie = domain.start_poll();
    // Drops the oldest first, so that the last section to end is not the first that began.
    let last = guards.pop();
    drop(guards);
    assert!(!domain.poll(cookie));
    drop(last);
    assert!(domain.poll(cookie));
}

#[test]
fn forgotten_guards_hold_grace_periods_up_and_nothing_else() {
    let domain = Domain::new();
    let theirs = domain.clone();
    let thread = std::thread::spawn(move || {
        all_guards(&theirs).into_iter().for_each(std::mem::forget);
        assert!(catch_unwind(AssertUnwindSafe(|| theirs.pin())).is_err());
        theirs.is_pinned()
    });
    assert!(thread.join().unwrap());
    let cookie = domain.start_poll();
    // The record is not reused: its word still holds a section.
    assert_eq!(domain.pin().reader_index(), 1);
    assert!(!domain.poll(cookie));
}

#[test]
fn the_record_of_a_handle_that_is_offline_is_not_given_away() {
    static DOMAIN: LazyLock<Domain> = LazyLock::new(Domain::new);
    let domain = &*DOMAIN;
    // The thread's records are given back then, except for the one that the handle holds.
    let (ours, theirs) = when_a_thread_ends(move || {
        let (mut qsbr, guard) = (domain.qsbr(), domain.pin());
        move || {
            let theirs = qsbr.offline(|| {
                // The last section of the record at this moment.
                drop(guard);
                domain.pin().reader_index()
            });
            (qsbr.section().reader_index(), theirs)
        }
    });
    assert_ne!(ours, theirs);
    domain.synchronize();
    assert_eq!(domain.readers(), 2);
}

/// Set in the child process of the test below.
const EXIT: &str = "COREWISE_EXIT_OFFLINE";

/// `exit` runs the destructors of thread-locals while the closure of `offline` is on the stack.
fn exit_while_offline(is_late: bool) {
    struct KeptHandle(RefCell<Option<Qsbr<'static>>>);
    /// Dropped after the handle; prints whether the handle left a section behind.
    struct Check(&'static Domain);
    impl Drop for Check {
        fn drop(&mut self) {
            let is_over = || self.0.synchronize_timeout(Duration::from_secs(1)) == Ok(true);
            let theirs = std::thread::scope(|scope| scope.spawn(is_over).join().unwrap());
            eprintln!("grace periods end: {theirs}");
        }
    }
    thread_local! {
        static CHECK: RefCell<Option<Check>> = const { RefCell::new(None) };
        static HELD: KeptHandle = const { KeptHandle(RefCell::new(None)) };
    }
    static DOMAIN: LazyLock<Domain> = LazyLock::new(Domain::new);
    let domain = &*DOMAIN;
    CHECK.set(Some(Check(domain)));
    if !is_late {
        drop(domain.pin());
    }
    HELD.with(|held| *held.0.borrow_mut() = None);
    let mut qsbr = Some(domain.qsbr());
    HELD.with(|held| {
        let mut held = held.0.borrow_mut();
        held.replace(qsbr.take().unwrap());
        held.as_mut().unwrap().offline(|| std::process::exit(0));
    });
}

#[test]
fn a_process_may_exit_while_a_handle_is_offline() {
    if let Ok(is_late) = std::env::var(EXIT) {
        return exit_while_offline(is_late == "true");
    }
    for is_late in [true, false] {
        let test = "nesting::a_process_may_exit_while_a_handle_is_offline";
        let output = in_a_process(test, EXIT, &is_late.to_string());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("grace periods end: true"), "{output:?}");
    }
}
