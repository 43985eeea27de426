//! Guarantees that users of a domain rely on.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::common::when_a_thread_ends;
use corewise_rcu::{
    BacklogFull, Builder, Domain, Limits, Pinned, Pressure, RetireList, Section, pin,
};

/// Defers the drop of `N` bytes.
fn defer_bytes<const N: usize>(domain: &Domain) -> Pressure {
    let bytes = NonNull::from(Box::leak(Box::new([0u8; N])));
    // SAFETY: from a box that nothing else uses.
    unsafe { domain.defer_drop(bytes) }
}

/// Like [`defer_bytes`], with `try_defer_drop`.
fn try_defer_bytes<const N: usize>(domain: &Domain) -> Result<Pressure, BacklogFull<()>> {
    let bytes = NonNull::from(Box::leak(Box::new([0u8; N])));
    // SAFETY: from a box that nothing else uses.
    let deferred = unsafe { domain.try_defer_drop(bytes) };
    deferred.map_err(|BacklogFull(bytes)| {
        // SAFETY: from the box above; the call returned it.
        drop(unsafe { Box::from_raw(bytes.as_ptr()) });
        BacklogFull(())
    })
}

#[test]
fn a_grace_period_does_not_wait_for_a_section_that_began_later() {
    let domain = Domain::new();
    let first = domain.pin();
    let cookie = domain.start_poll();
    assert!(!domain.poll(cookie));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _later = domain.pin();
            scope.spawn(|| drop(domain.pin())).join().unwrap();
        });
    });
    drop(first);
    assert!(domain.poll(cookie));
}

#[test]
fn nested_guards_are_one_section() {
    let domain = Domain::new();
    let outer = domain.pin();
    let cookie = domain.start_poll();
    let inner = domain.pin();
    drop(outer);
    assert!(!domain.poll(cookie));
    drop(inner);
    assert!(domain.poll(cookie));
}

#[test]
fn waiting_inside_a_section_is_refused() {
    let domain = Domain::new();
    let guard = domain.pin();
    assert_eq!(domain.try_synchronize(), Err(Pinned));
    assert!(std::panic::catch_unwind(|| domain.synchronize()).is_err());
    assert!(std::panic::catch_unwind(|| domain.barrier()).is_err());
    drop(guard);
    assert_eq!(domain.try_synchronize(), Ok(()));
}

#[test]
fn domains_do_not_wait_for_each_other() {
    let (one, other) = (Domain::new(), Domain::new());
    let _guard = one.pin();
    let _global = pin();
    other.synchronize();
}

#[test]
fn a_dropped_domain_reclaims_the_rest() {
    let count = Arc::new(AtomicUsize::new(0));
    let domain = Domain::new();
    drop(domain.pin());
    // Another member, whose thread keeps running.
    let (theirs, (leave, left)) = (domain.clone(), channel::<()>());
    let (joined, has_joined) = channel();
    let member = std::thread::spawn(move || {
        drop(theirs.pin());
        drop(theirs);
        joined.send(()).unwrap();
        let _ = left.recv();
    });
    has_joined.recv().unwrap();
    let held = count.clone();
    domain.defer(1, move || {
        held.fetch_add(1, SeqCst);
    });
    drop(domain);
    assert_eq!(count.load(SeqCst), 1);
    drop(leave);
    member.join().unwrap();
}

#[test]
fn a_panic_in_one_closure_keeps_no_other_from_running() {
    let domain = Domain::new();
    let count = Arc::new(AtomicUsize::new(0));
    for i in 0..100 {
        let count = count.clone();
        domain.defer(1, move || {
            count.fetch_add(1, SeqCst);
            // Bypasses the panic hook, whose output would be useless here.
            if i % 3 == 0 {
                std::panic::resume_unwind(Box::new(PanicsWhenDropped(i % 2 == 0)));
            }
        });
    }
    domain.barrier();
    assert_eq!(count.load(SeqCst), 100);
}

struct PanicsWhenDropped(bool);

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        if self.0 {
            std::panic::resume_unwind(Box::new(()));
        }
    }
}

/// Each object defers the next one: nested calls would need 100 MB of stack.
#[test]
fn a_chain_of_objects_that_defer_each_other_needs_no_stack() {
    struct Link {
        domain: Domain,
        left: usize,
    }
    impl Drop for Link {
        fn drop(&mut self) {
            if let Some(left) = self.left.checked_sub(1) {
                let domain = self.domain.clone();
                // Enough bytes to fill a batch.
                self.domain.defer(RetireList::<()>::BATCH_BYTES, move || {
                    drop(Link { domain, left });
                });
            }
        }
    }
    let domain = Domain::new();
    let link = |left| Link {
        domain: domain.clone(),
        left,
    };
    drop(link(50_000));
    drop(domain.pin());
    drop(link(50_000));
    // Each call runs the next closure of each chain, and leaves those that these defer.
    let mut calls = 0;
    while domain.backlog_bytes() > 0 && calls < 100_000 {
        domain.barrier();
        calls += 1;
    }
    assert_eq!(domain.backlog_bytes(), 0);
}

/// The reader waits for the writer, so the writer must not wait for the reader for ever.
#[test]
fn settling_ends_when_a_reader_stalls() {
    let limits = Limits { soft: 0, hard: 0 };
    let domain = Builder::default()
        .limits(limits)
        .stall_after(Duration::from_millis(10))
        .on_stall(|_| ())
        .build("waiting");
    let (entered, has_entered) = channel();
    let (leave, left) = channel::<()>();
    let theirs = domain.clone();
    let reader = std::thread::spawn(move || {
        let _guard = theirs.pin();
        entered.send(()).unwrap();
        left.recv().unwrap();
    });
    has_entered.recv().unwrap();
    assert_eq!(domain.defer(1 << 20, || ()), Pressure::OverHard);
    assert!(try_defer_bytes::<4>(&domain).is_err());
    leave.send(()).unwrap();
    reader.join().unwrap();
    assert!(try_defer_bytes::<4>(&domain).is_ok());
}

#[test]
fn a_thread_cannot_wait_for_itself_after_its_thread_locals_are_gone() {
    let results = when_a_thread_ends(|| {
        let domain = Domain::new();
        drop(domain.pin());
        move || {
            let guard = domain.pin();
            let inside = domain.try_synchronize();
            drop(guard);
            [inside, domain.try_synchronize()]
        }
    });
    assert_eq!(results, [Err(Pinned), Ok(())]);
}

#[test]
fn beyond_the_limits_a_pinned_caller_is_told_and_an_unpinned_one_settles() {
    let limits = Limits {
        soft: 100_000,
        hard: 300_000,
    };
    let domain = Builder::default().limits(limits).build("small");
    let guard = domain.pin();
    while defer_bytes::<1000>(&domain) == Pressure::Fine {}
    assert_eq!(domain.pressure(), Pressure::OverSoft);
    while try_defer_bytes::<1000>(&domain).is_ok() {}
    assert_eq!(domain.pressure(), Pressure::OverHard);
    drop(guard);
    assert!(try_defer_bytes::<1000>(&domain).is_ok());
    assert_eq!(domain.pressure(), Pressure::Fine);
}

#[test]
fn a_record_passes_from_thread_to_thread() {
    let domain = Domain::new();
    for _ in 0..20 {
        // A scope does not wait for thread-local destructors; joining does.
        let theirs = domain.clone();
        let thread = std::thread::spawn(move || assert_eq!(theirs.pin().reader_index(), 0));
        thread.join().unwrap();
    }
    assert_eq!(domain.readers(), 1);
}

#[test]
fn guards_in_thread_local_destructors_work_and_are_given_back() {
    struct Late {
        domain: Domain,
        /// Outlives other thread-locals.
        _guard: corewise_rcu::Guard<'static>,
    }
    impl Drop for Late {
        fn drop(&mut self) {
            let guard = self.domain.pin();
            drop(self.domain.pin());
            let _ = (guard.reader_index(), pin());
        }
    }
    thread_local! {
        static BEFORE: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) };
        static AFTER: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) };
    }
    let domain = Domain::new();
    for _ in 0..10 {
        let theirs = domain.clone();
        let thread = std::thread::spawn(move || {
            let late = || {
                Some(Late {
                    domain: theirs.clone(),
                    _guard: pin(),
                })
            };
            BEFORE.set(late());
            drop(theirs.pin());
            AFTER.set(late());
        });
        thread.join().unwrap();
        domain.synchronize();
        Domain::global().synchronize();
    }
    assert!(domain.readers() <= 2, "{domain:?}");
}

#[test]
fn a_stalled_reader_is_named() {
    use std::sync::Mutex;
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let domain = Builder::default()
        .stall_after(Duration::from_millis(20))
        .on_stall(|stall| SEEN.lock().unwrap().push(stall.thread.clone()))
        .build("stalled");
    let (leave, left) = channel::<()>();
    let (entered, has_entered) = channel();
    let theirs = domain.clone();
    let sleeper = std::thread::Builder::new().name("sleepy".into());
    let sleeper = sleeper
        .spawn(move || {
            let _guard = theirs.pin();
            entered.send(()).unwrap();
            left.recv().unwrap();
        })
        .unwrap();
    has_entered.recv().unwrap();
    let cookie = domain.start_poll();
    assert!(!domain.poll(cookie));
    std::thread::sleep(Duration::from_millis(30));
    // `stalls` does not call the callback.
    assert_eq!(domain.stalls().len(), 1);
    assert!(SEEN.lock().unwrap().is_empty());
    assert!(!domain.poll(cookie));
    assert!(!domain.poll(cookie));
    assert_eq!(*SEEN.lock().unwrap(), ["sleepy"]);
    leave.send(()).unwrap();
    sleeper.join().unwrap();
    domain.synchronize();
    assert_eq!(*SEEN.lock().unwrap(), ["sleepy"]);
    assert!(domain.stalls().is_empty());
}

#[test]
fn an_online_thread_holds_grace_periods_up_until_it_is_quiescent() {
    let domain = Domain::new();
    let mut qsbr = domain.qsbr();
    let cookie = domain.start_poll();
    assert!(!domain.poll(cookie));
    assert!(qsbr.quiescent());
    assert!(domain.poll(cookie));
    qsbr.offline(|| domain.synchronize());
    assert_eq!(domain.try_synchronize(), Err(Pinned));
    assert_eq!(qsbr.synchronize(), Ok(()));
    let guard = domain.pin();
    assert!(!qsbr.quiescent());
    assert_eq!(qsbr.synchronize(), Err(Pinned));
    drop(guard);
    assert!(qsbr.quiescent());
}
