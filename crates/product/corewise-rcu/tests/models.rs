//! Models of grace periods: every schedule and weak-memory outcome of two or three threads under
//! loom, many schedules of more threads under shuttle, one run in the normal build.
//!
//! The object that is unlinked and reclaimed is a [`DataCell`]: reclaiming writes to it, so a read
//! that does not happen before the reclamation fails the model. `models.table` names the mutants
//! that must fail.
//!
//! For loom and shuttle both halves of the barrier pair are full fences. That the light half is
//! free is the concern of `corewise_atomic::barrier` and of `membarrier`.

mod cell_models;

use corewise_atomic::cell::DataCell;
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::AtomicUsize;
use corewise_atomic::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use corewise_atomic::{Slots, model, model_bounded, thread};
use corewise_rcu::{Domain, Qsbr, RetireList, Section, pin};

/// The value of a reclaimed object.
const POISON: usize = usize::MAX;

/// Maximum number of preemptions in a schedule of three threads.
const PREEMPTIONS: usize = 3;

/// How often a reader reads an object: with more reads, a random schedule is likelier to reclaim in
/// between.
const LOOKS: usize = if cfg!(corewise_loom) { 1 } else { 8 };

/// Objects, one of which readers find.
struct Shared {
    current: AtomicUsize,
    objects: Slots<DataCell<usize>>,
    reclaimed: AtomicUsize,
}

impl Shared {
    fn new(objects: usize) -> Arc<Self> {
        Arc::new(Self {
            current: AtomicUsize::new(0),
            objects: Slots::from_fn(objects, DataCell::new),
            reclaimed: AtomicUsize::new(0),
        })
    }

    /// Finds the object and reads it.
    fn read(&self, _section: &impl Section) {
        // Acquire: pairs with the AcqRel in `unlink`.
        let at = self.current.load(Acquire);
        for _ in 0..LOOKS {
            // SAFETY: it was linked in this section, and is reclaimed after a grace period.
            assert_eq!(unsafe { self.objects[at].read() }, at);
        }
    }

    /// Replaces the object by another; returns the one to reclaim.
    fn unlink(&self, next: usize) -> usize {
        // AcqRel: pairs with the Acquire in `read`, and with itself.
        self.current.swap(next, AcqRel)
    }

    fn reclaim(&self, at: usize) {
        // SAFETY: no reader that could have found it is left.
        let before =
            self.objects[at].with_mut(|object| unsafe { std::mem::replace(&mut *object, POISON) });
        assert_eq!(before, at, "reclaimed twice");
        // Relaxed: read after joining.
        self.reclaimed.fetch_add(1, Relaxed);
    }
}

fn spawn_reader(domain: &Domain, shared: &Arc<Shared>, sections: usize) -> thread::JoinHandle<()> {
    let (domain, shared) = (domain.clone(), shared.clone());
    thread::spawn(move || {
        for _ in 0..sections {
            shared.read(&domain.pin());
        }
    })
}

fn join_all(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

/// Guarantee 1. The reader's first guard, and so its registration, runs beside the grace period.
#[test]
fn a_reader_keeps_what_it_found() {
    model(|| {
        let (domain, shared) = (Domain::new(), Shared::new(2));
        let reader = spawn_reader(&domain, &shared, 1);
        let old = shared.unlink(1);
        domain.synchronize();
        shared.reclaim(old);
        reader.join().unwrap();
    });
}

/// A grace period may find a later section than the one that it has to wait for.
#[test]
fn a_grace_period_may_meet_a_later_section() {
    model(|| {
        let (domain, shared) = (Domain::new(), Shared::new(2));
        let reader = spawn_reader(&domain, &shared, 2);
        let old = shared.unlink(1);
        domain.synchronize();
        shared.reclaim(old);
        reader.join().unwrap();
    });
}

/// Nested sections, left in the order in which they were entered, are one section.
#[test]
fn nested_sections_last_until_the_last_is_left() {
    model(|| {
        let (domain, shared) = (Domain::new(), Shared::new(2));
        let theirs = (domain.clone(), shared.clone());
        let reader = thread::spawn(move || {
            let (domain, shared) = theirs;
            let outer = domain.pin();
            let inner = domain.pin();
            drop(outer);
            shared.read(&inner);
        });
        let old = shared.unlink(1);
        domain.synchronize();
        shared.reclaim(old);
        reader.join().unwrap();
    });
}

/// Starts a thread that is online in `domain`.
fn spawn_online(
    domain: &Domain,
    shared: &Arc<Shared>,
    body: impl FnOnce(&mut Qsbr<'_>, &Shared) + Send + 'static,
) -> thread::JoinHandle<()> {
    let (domain, shared) = (domain.clone(), shared.clone());
    thread::spawn(move || body(&mut domain.qsbr(), &shared))
}

#[test]
fn a_quiescent_state_ends_a_section_and_begins_another() {
    model(|| {
        let (domain, shared) = (Domain::new(), Shared::new(2));
        let reader = spawn_online(&domain, &shared, |qsbr, shared| {
            shared.read(&qsbr.section());
            assert!(qsbr.quiescent());
            shared.read(&qsbr.section());
        });
        let old = shared.unlink(1);
        domain.synchronize();
        shared.reclaim(old);
        reader.join().unwrap();
    });
}

#[test]
fn a_grace_period_skips_offline_threads_which_see_the_change_later() {
    model(|| {
        let (domain, shared) = (Domain::new(), Shared::new(2));
        let reader = spawn_online(&domain, &shared, |qsbr, shared| {
            shared.read(&qsbr.section());
            qsbr.offline(|| ());
            shared.read(&qsbr.section());
        });
        let old = shared.unlink(1);
        domain.synchronize();
        shared.reclaim(old);
        reader.join().unwrap();
    });
}

/// Guarantee 5: each writer's objects wait for a grace period that began after they were unlinked,
/// whichever of the two writers advances it.
#[test]
fn two_writers_share_grace_periods() {
    model_bounded(PREEMPTIONS, || {
        let (domain, shared) = (Domain::new(), Shared::new(3));
        let theirs = (domain.clone(), shared.clone());
        let writer = thread::spawn(move || {
            let (domain, shared) = theirs;
            let old = shared.unlink(1);
            let cookie = domain.start_poll();
            if domain.poll(cookie) {
                shared.reclaim(old);
            }
        });
        let reader = spawn_reader(&domain, &shared, 1);
        let old = shared.unlink(2);
        let cookie = domain.start_poll();
        if domain.poll(cookie) {
            shared.reclaim(old);
        }
        writer.join().unwrap();
        reader.join().unwrap();
    });
}

/// The readers' accesses happen before a thread finds the grace period complete, even if another
/// thread looked at the readers.
#[test]
fn a_cookie_is_complete_for_a_thread_that_did_not_drive() {
    model_bounded(PREEMPTIONS, || {
        let (domain, shared) = (Domain::new(), Shared::new(2));
        let guard = domain.pin();
        let old = shared.unlink(1);
        let cookie = domain.start_poll();
        let theirs = domain.clone();
        let driver = thread::spawn(move || {
            theirs.poll(cookie);
        });
        let theirs = (domain.clone(), shared.clone());
        let waiter = thread::spawn(move || {
            let (domain, shared) = theirs;
            if domain.is_complete(cookie) {
                shared.reclaim(old);
            }
        });
        // SAFETY: the guard was taken before the object was unlinked.
        assert_eq!(unsafe { shared.objects[old].read() }, old);
        drop(guard);
        driver.join().unwrap();
        waiter.join().unwrap();
    });
}

/// Two threads register at the same time while a grace period walks the records.
#[test]
fn threads_register_beside_a_grace_period() {
    model_bounded(PREEMPTIONS, || {
        let (domain, shared) = (Domain::new(), Shared::new(2));
        let readers = [0, 1].map(|_| spawn_reader(&domain, &shared, 1));
        let old = shared.unlink(1);
        let cookie = domain.start_poll();
        if domain.poll(cookie) {
            shared.reclaim(old);
        }
        join_all(readers);
    });
}

fn count_in_own_place(
    domain: &Domain,
    counts: &Arc<Slots<DataCell<usize>>>,
) -> thread::JoinHandle<()> {
    let (domain, counts) = (domain.clone(), counts.clone());
    thread::spawn(move || {
        let guard = domain.pin();
        // SAFETY: the record is this thread's until it ends.
        counts[guard.reader_index()].with_mut(|count| unsafe { *count += 1 });
    })
}

/// Guarantee 2 of `Section`: data indexed by the record needs no lock.
#[test]
fn a_record_belongs_to_one_thread_at_a_time() {
    model_bounded(PREEMPTIONS, || {
        let domain = Domain::new();
        let data = Arc::new(Slots::from_fn(3, |_| DataCell::new(0)));
        let threads = [0, 1].map(|_| count_in_own_place(&domain, &data));
        join_all(threads);
    });
}

/// Guarantee 11. The section is entered on one thread and left on another.
#[test]
fn an_owned_section_lasts_while_it_moves() {
    model_bounded(PREEMPTIONS, || {
        let (domain, shared) = (Domain::global(), Shared::new(2));
        let theirs = shared.clone();
        let entering = thread::spawn(move || domain.pin_owned());
        let reader = thread::spawn(move || {
            let guard = entering.join().unwrap();
            theirs.read(&guard);
        });
        let old = shared.unlink(1);
        domain.synchronize();
        shared.reclaim(old);
        reader.join().unwrap();
    });
}

/// A record passes from one owned guard to the next, whose section lasts as long as the guard.
#[test]
fn owned_sections_follow_each_other_in_a_record() {
    model_bounded(PREEMPTIONS, || {
        let domain = Domain::new();
        let threads = [0, 1].map(|_| {
            let domain = domain.clone();
            thread::spawn(move || {
                let guard = domain.pin_owned();
                let cookie = domain.start_poll();
                assert!(!domain.poll(cookie));
                drop(guard);
            })
        });
        join_all(threads);
        assert!(domain.poll(domain.start_poll()));
    });
}

/// Guarantee 2 of `Section`, for guards and threads beside each other.
#[test]
fn a_record_belongs_to_one_thread_or_guard_at_a_time() {
    model_bounded(PREEMPTIONS, || {
        let domain = Domain::new();
        let data = Arc::new(Slots::from_fn(3, |_| DataCell::new(0)));
        let thread = count_in_own_place(&domain, &data);
        let theirs = (domain.clone(), data.clone());
        let owned = thread::spawn(move || {
            let (domain, counts) = theirs;
            let guard = domain.pin_owned();
            // SAFETY: the record is this guard's until it is dropped.
            counts[guard.reader_index()].with_mut(|count| unsafe { *count += 1 });
        });
        join_all([thread, owned]);
    });
}

fn defer_reclaim(domain: &Domain, shared: &Arc<Shared>, at: usize) {
    let theirs = shared.clone();
    domain.defer(1, move || theirs.reclaim(at));
}

#[test]
fn what_is_deferred_waits_for_readers() {
    model_bounded(PREEMPTIONS, || {
        let (domain, shared) = (Domain::new(), Shared::new(3));
        let reader = spawn_reader(&domain, &shared, 1);
        for next in 1..=2 {
            let old = shared.unlink(next);
            defer_reclaim(&domain, &shared, old);
        }
        reader.join().unwrap();
        domain.barrier();
        assert_eq!(shared.reclaimed.load(Relaxed), 2);
    });
}

/// Guarantee 7: what an ended thread left behind is reclaimed too, once.
#[test]
fn a_barrier_beside_a_thread_that_ends_loses_nothing() {
    model_bounded(PREEMPTIONS, || {
        let (domain, shared) = (Domain::new(), Shared::new(4));
        let writer = spawn_writer(&domain, &shared, 1..4);
        shared.read(&domain.pin());
        domain.barrier();
        writer.join().unwrap();
        domain.barrier();
        assert_eq!(shared.reclaimed.load(Relaxed), 3);
    });
}

/// Closes some batches, of one object each.
fn close_batches(domain: &Domain, batches: usize) {
    for _ in 0..batches {
        domain.defer(RetireList::<()>::BATCH_BYTES, || ());
    }
}

#[test]
fn what_an_idle_thread_has_deferred_is_run_by_others() {
    model_bounded(2, || {
        let (domain, shared) = (Domain::new(), Shared::new(2));
        // The batch of this thread stays open.
        let reader = spawn_reader(&domain, &shared, 1);
        defer_reclaim(&domain, &shared, shared.unlink(1));
        let other = domain.clone();
        let other = thread::spawn(move || close_batches(&other, 2));
        join_all([reader, other]);
        // Not fewer than there are records: each is visited, and no reader is left.
        let other = domain.clone();
        join_all([thread::spawn(move || close_batches(&other, 4))]);
        // Relaxed: the threads were joined.
        assert_eq!(shared.reclaimed.load(Relaxed), 1);
    });
}

fn spawn_writer(
    domain: &Domain,
    shared: &Arc<Shared>,
    objects: std::ops::Range<usize>,
) -> thread::JoinHandle<()> {
    let (domain, shared) = (domain.clone(), shared.clone());
    thread::spawn(move || {
        shared.read(&domain.pin());
        for next in objects {
            let old = shared.unlink(next);
            defer_reclaim(&domain, &shared, old);
        }
    })
}

/// The global domain, whose handle and records are in statics and thread-locals.
#[test]
fn the_global_domain_is_one_for_all() {
    model_bounded(PREEMPTIONS, || {
        let shared = Shared::new(2);
        let theirs = shared.clone();
        let reader = thread::spawn(move || theirs.read(&pin()));
        let old = shared.unlink(1);
        Domain::global().synchronize();
        shared.reclaim(old);
        reader.join().unwrap();
        shared.read(&pin());
    });
}

/// Several readers and writers: too many schedules for loom.
#[test]
fn readers_and_writers_of_both_flavours() {
    if cfg!(corewise_loom) {
        return;
    }
    model(|| {
        let (domain, shared) = (Domain::new(), Shared::new(9));
        join_all([
            spawn_reader(&domain, &shared, 3),
            spawn_reader(&domain, &shared, 3),
            spawn_online(&domain, &shared, read_and_be_quiescent),
            spawn_writer(&domain, &shared, 1..5),
            spawn_writer(&domain, &shared, 5..9),
        ]);
        domain.barrier();
        assert_eq!(shared.reclaimed.load(Relaxed), 8);
    });
}

fn read_and_be_quiescent(qsbr: &mut Qsbr<'_>, shared: &Shared) {
    for _ in 0..3 {
        shared.read(&qsbr.section());
        assert!(qsbr.quiescent());
    }
    qsbr.offline(thread::yield_now);
    shared.read(&qsbr.section());
}

/// More threads than records, one after the other and at the same time.
#[test]
fn threads_come_and_go() {
    model_bounded(2, || {
        let domain = Domain::new();
        let data = Arc::new(Slots::from_fn(9, |_| DataCell::new(0)));
        let rounds = if cfg!(corewise_loom) { 1 } else { 3 };
        for _ in 0..rounds {
            let threads = [0, 1, 2].map(|_| count_in_own_place(&domain, &data));
            domain.synchronize();
            join_all(threads);
        }
    });
}
