//! `fork`: the child has one thread, and must not wait for the other threads of its parent.
//!
//! A child that hangs is killed by its alarm, and fails its test.
#![cfg(unix)]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;

use common::{Published, for_a_while, spawn_readers, spawn_writers};
use corewise_rcu::{Domain, Pinned, RetireList, Section, pin};

/// Forks; returns whether `body` returned true in the child.
#[must_use]
fn in_child(body: impl FnOnce() -> bool) -> bool {
    const LIMIT_S: u32 = 10;
    // SAFETY: the child uses only what the libraries' own fork handlers make usable: the allocator
    // and the domains. It leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: takes an integer.
        unsafe { libc::alarm(LIMIT_S) };
        let is_right = catch_unwind(AssertUnwindSafe(body)).unwrap_or(false);
        // SAFETY: ends the process; nothing of the test harness runs.
        unsafe { libc::_exit(i32::from(!is_right)) };
    }
    let mut status = 0;
    // SAFETY: our child, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

/// Calls `body` while another thread is in a section of each domain, and online in the last one.
fn beside_sections(domains: &[&Domain], body: impl FnOnce()) {
    let entered = Barrier::new(2);
    let (leave, left) = channel::<()>();
    thread::scope(|scope| {
        let (entered, domains) = (&entered, domains);
        scope.spawn(move || {
            let guards: Vec<_> = domains.iter().map(|domain| domain.pin()).collect();
            let qsbr = domains.last().map(|domain| domain.qsbr());
            entered.wait();
            let _ = left.recv();
            drop((guards, qsbr));
        });
        entered.wait();
        body();
        drop(leave);
    });
}

#[test]
fn the_child_does_not_wait_for_sections_of_other_threads() {
    let domain = Domain::new();
    beside_sections(&[&domain, Domain::global()], || {
        let child = || {
            domain.synchronize();
            Domain::global().synchronize();
            domain.barrier();
            true
        };
        assert!(in_child(child));
        // Again in a child of the child.
        assert!(in_child(|| in_child(child)));
        let cookie = domain.start_poll();
        assert!(!domain.poll(cookie), "the parent does");
    });
    domain.synchronize();
}

#[test]
fn a_grace_period_that_is_under_way_ends_in_the_child() {
    let domain = Domain::new();
    beside_sections(&[&domain], || {
        let cookie = domain.start_poll();
        assert!(!domain.poll(cookie));
        assert!(in_child(|| domain.poll(cookie)));
        assert!(!domain.poll(cookie));
    });
}

#[test]
fn the_sections_of_the_thread_that_forks_go_on() {
    let domain = Domain::new();
    beside_sections(&[&domain], || {
        let guard = domain.pin();
        let cookie = domain.start_poll();
        assert!(!domain.poll(cookie));
        let child = || {
            let is_kept = !domain.poll(cookie) && domain.try_synchronize() == Err(Pinned);
            drop(guard);
            is_kept && domain.poll(cookie)
        };
        assert!(in_child(child));
    });
    let mut qsbr = domain.qsbr();
    let child = || {
        let cookie = domain.start_poll();
        !domain.poll(cookie) && qsbr.quiescent() && domain.poll(cookie)
    };
    assert!(in_child(child));
    assert!(qsbr.offline(|| in_child(|| domain.try_synchronize().is_ok())));
}

/// The child may have the guard, whichever thread created it.
#[test]
fn the_section_of_an_owned_guard_goes_on_in_the_child() {
    let domain = Domain::new();
    let guard = thread::scope(|scope| scope.spawn(|| domain.pin_owned()).join().unwrap());
    let cookie = domain.start_poll();
    assert!(!domain.poll(cookie));
    let child = || {
        let is_kept = !domain.poll(cookie);
        drop(guard);
        is_kept && domain.poll(cookie) && domain.try_synchronize().is_ok()
    };
    assert!(in_child(child));
}

/// A thread may have been changing data indexed by its record.
#[test]
fn the_child_uses_no_record_of_another_thread() {
    let domain = Domain::new();
    beside_sections(&[&domain], || {
        let child = || {
            let fresh = || domain.pin().reader_index();
            drop(domain.pin());
            if cfg!(corewise_tsan) {
                // The child cannot start threads under ThreadSanitizer.
                return true;
            }
            thread::scope(|scope| scope.spawn(fresh).join().unwrap() == 2)
        };
        assert!(in_child(child));
    });
}

#[test]
fn what_other_threads_deferred_is_reclaimed_in_the_child() {
    let (domain, count) = (Domain::new(), Arc::new(AtomicUsize::new(0)));
    let (deferred, leave) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let guard = domain.pin();
            for _ in 0..10 {
                let count = count.clone();
                domain.defer(RetireList::<()>::BATCH_BYTES / 2 - 1, move || {
                    count.fetch_add(1, SeqCst);
                });
            }
            deferred.wait();
            leave.wait();
            drop(guard);
        });
        deferred.wait();
        let child = || {
            domain.barrier();
            count.load(SeqCst) == 10 && domain.backlog_bytes() == 0
        };
        let is_right = in_child(child);
        leave.wait();
        assert!(is_right);
    });
    domain.barrier();
    assert_eq!(count.load(SeqCst), 10);
}

/// Forks at arbitrary moments: while other threads enter, defer, reclaim, wait, begin, end, and
/// create domains.
#[test]
fn the_child_works_whatever_other_threads_were_at() {
    let (domain, published, is_over) = (Domain::new(), Published::new(), AtomicBool::new(false));
    let (alive, mut is_right) = (published.alive(), true);
    thread::scope(|scope| {
        spawn_readers(scope, &domain, &published);
        spawn_writers(scope, &domain, &published);
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                let brief = Domain::new();
                thread::scope(|scope| {
                    scope
                        .spawn(|| published.read(&domain.pin()))
                        .join()
                        .unwrap()
                });
                drop((brief.pin(), pin()));
                domain.barrier();
            }
        });
        for_a_while(|_| {
            let child = || {
                published.read(&domain.pin());
                published.retire(&domain);
                domain.barrier();
                Domain::global().synchronize();
                Domain::new().synchronize();
                domain.backlog_bytes() == 0
            };
            is_right = is_right && in_child(child);
        });
        is_over.store(true, SeqCst);
    });
    assert!(is_right);
    drop(published);
    domain.barrier();
    assert_eq!(alive.load(SeqCst), 0);
}
