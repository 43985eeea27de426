//! Stress tests with real threads and objects that are poisoned when they are dropped.
//!
//! Each test lasts a fraction of a second; `COREWISE_STRESS_MS` sets another time. The sanitizers
//! detect more than the assertions do, since objects are read and poisoned with plain accesses; see
//! `CONTRIBUTING.md`.

use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use crate::common::{Object, Published, for_a_while, spawn_readers, spawn_writers, swap_and_read};
use corewise_rcu::{BacklogFull, Builder, Domain, Limits, Pressure, RetireList};
use corewise_testkit::stress::come_and_go;

#[test]
fn readers_never_see_what_was_reclaimed() {
    let domain = Domain::new();
    swap_and_read(&domain);
    assert_eq!(domain.backlog_bytes(), 0);
}

#[test]
fn readers_of_the_global_domain_never_see_what_was_reclaimed() {
    swap_and_read(Domain::global());
}

/// Guards travel through a channel, so most are dropped on another thread than they began on.
#[test]
fn owned_guards_travel() {
    let (domain, published) = (Domain::new(), Published::new());
    let alive = published.alive();
    thread::scope(|scope| {
        let (send, receive) = mpsc::sync_channel(4);
        let (domain, published) = (&domain, &published);
        scope.spawn(move || {
            for_a_while(|_| {
                let guard = domain.pin_owned();
                published.read(&guard);
                send.send(guard).unwrap();
            });
        });
        scope.spawn(move || {
            for guard in receive {
                published.read(&guard);
                published.retire(domain);
                published.read(&guard);
            }
        });
        spawn_readers(scope, domain, published);
        spawn_writers(scope, domain, published);
    });
    // Three readers, two writers, the two threads above, and six guards: one is being sent, four
    // wait, and one is in use.
    assert!(domain.readers() <= 13, "{domain:?}");
    drop(published);
    domain.barrier();
    assert_eq!(alive.load(Relaxed), 0);
}

#[test]
fn domains_nest() {
    let (outer, inner) = (Domain::new(), Domain::new());
    let all_published = [Published::new(), Published::new()];
    thread::scope(|scope| {
        spawn_writers(scope, &outer, &all_published[0]);
        spawn_writers(scope, &inner, &all_published[1]);
        scope.spawn(|| {
            for_a_while(|_| {
                let guard = outer.pin();
                all_published[1].read(&inner.pin());
                all_published[0].read(&guard);
                // A section of one domain does not hold up a grace period of the other.
                inner.synchronize();
                all_published[0].read(&guard);
            });
        });
    });
}

/// Takes a guard when the thread-locals of its thread are dropped.
struct Late(Domain, Arc<Published>);

impl Drop for Late {
    fn drop(&mut self) {
        self.1.read(&self.0.pin());
        self.1.retire(&self.0);
    }
}

thread_local! {
    static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
}

#[test]
fn threads_come_and_go() {
    let domain = Domain::new();
    let published = Arc::new(Published::new());
    let alive = published.alive();
    for_a_while(|_| {
        come_and_go(4, 3, |generation, number| {
            let late = Late(domain.clone(), published.clone());
            // A thread-local made before the thread's first guard is dropped after the thread's
            // record.
            let (before, after) = match (generation + number) % 2 {
                0 => (Some(late), None),
                _ => (None, Some(late)),
            };
            LATE.set(before);
            published.read(&domain.pin());
            published.retire(&domain);
            if after.is_some() {
                LATE.set(after);
            }
        });
        domain.synchronize();
    });
    domain.barrier();
    assert_eq!(alive.load(Relaxed), 1);
    assert!(domain.readers() <= 4, "{domain:?}");
}

#[test]
fn panics_of_deferred_closures_reach_no_caller() {
    static RUN: AtomicUsize = AtomicUsize::new(0);
    let domain = Domain::new();
    let deferred = AtomicUsize::new(0);
    let published = Published::new();
    thread::scope(|scope| {
        spawn_readers(scope, &domain, &published);
        spawn_writers(scope, &domain, &published);
        scope.spawn(|| {
            for_a_while(|round| {
                deferred.fetch_add(1, Relaxed);
                domain.defer(100, move || {
                    RUN.fetch_add(1, Relaxed);
                    if round % 7 == 0 {
                        // Bypasses the panic hook, which would print it.
                        std::panic::resume_unwind(Box::new(round));
                    }
                });
            });
        });
    });
    domain.barrier();
    assert_eq!(RUN.load(Relaxed), deferred.load(Relaxed));
}

/// An object whose drop enters a section, replaces an object, and defers others.
struct Busy {
    domain: Domain,
    published: Arc<Published>,
    depth: usize,
}

impl Busy {
    fn new(domain: &Domain, published: &Arc<Published>, depth: usize) -> Box<Self> {
        let (domain, published) = (domain.clone(), published.clone());
        Box::new(Self {
            domain,
            published,
            depth,
        })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.published.read(&self.domain.pin());
        self.published.retire(&self.domain);
        for depth in 0..self.depth {
            let next = Self::new(&self.domain, &self.published, depth);
            self.domain.defer(size_of::<Self>(), move || drop(next));
        }
    }
}

#[test]
fn what_is_dropped_may_pin_and_defer() {
    let domain = Domain::new();
    let published = Arc::new(Published::new());
    thread::scope(|scope| {
        spawn_readers(scope, &domain, &published);
        for _ in 0..2 {
            scope.spawn(|| for_a_while(|_| drop(Busy::new(&domain, &published, 3))));
        }
    });
    // Each barrier runs the closures that the one before deferred.
    (0..5).for_each(|_| domain.barrier());
    assert_eq!(published.alive().load(Relaxed), 1);
}

#[test]
fn a_stalled_reader_is_named_and_stops_no_writer() {
    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let domain = Builder::default()
        .stall_after(Duration::from_millis(50))
        .on_stall(|stall| TOLD.lock().unwrap().push(stall.thread.clone()))
        .build("stalled");
    let (published, asleep) = (Published::new(), Barrier::new(2));
    thread::scope(|scope| {
        let sleep = || {
            let guard = domain.pin();
            asleep.wait();
            thread::sleep(Duration::from_millis(300));
            published.read(&guard);
        };
        let sleeper = thread::Builder::new().name("sleeper".into());
        sleeper.spawn_scoped(scope, sleep).unwrap();
        asleep.wait();
        spawn_writers(scope, &domain, &published);
        domain.synchronize();
    });
    domain.barrier();
    assert_eq!(domain.backlog_bytes(), 0);
    assert!(TOLD.lock().unwrap().contains(&"sleeper".to_owned()));
}

#[test]
fn the_hard_limit_holds_under_load() {
    const WRITERS: usize = 3;
    let limits = Limits {
        soft: 50_000,
        hard: 100_000,
    };
    // Each thread may have seen the backlog below the limit, and then close a batch.
    let bound = limits.hard + WRITERS * (RetireList::<()>::BATCH_BYTES + size_of::<Object>());
    let domain = Builder::default().limits(limits).build("limited");
    let (published, refused) = (Published::new(), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            for_a_while(|_| {
                let guard = domain.pin();
                thread::sleep(Duration::from_millis(50));
                published.read(&guard);
            });
        });
        for number in 0..WRITERS {
            let (domain, published, refused) = (&domain, &published, &refused);
            scope.spawn(move || {
                let mut kept = None;
                for_a_while(|_| {
                    // One writer is never outside a section for long.
                    let _guard = (number == 0).then(|| domain.pin());
                    let old = kept.take().unwrap_or_else(|| published.replace());
                    // SAFETY: from a box, and no longer in the place; it is deferred once.
                    let deferred = unsafe { domain.try_defer_drop(old) };
                    if let Err(BacklogFull(old)) = deferred {
                        refused.fetch_add(1, Relaxed);
                        kept = Some(old);
                    }
                    assert!(domain.backlog_bytes() <= bound);
                });
                domain.synchronize();
                // SAFETY: from a box, no longer in the place, and readers have left it.
                let free = |old: NonNull<Object>| drop(unsafe { Box::from_raw(old.as_ptr()) });
                kept.into_iter().for_each(free);
            });
        }
    });
    domain.barrier();
    assert_eq!(domain.pressure(), Pressure::Fine);
    assert_eq!(published.alive().load(Relaxed), 1);
    assert_ne!(refused.load(Relaxed), 0);
}
