//! How many removed values are kept, and what drops them: an oracle counts the values that are
//! alive after each step.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;

use corewise_maps::RelativisticMap;
use corewise_rcu::{Domain, Limits, Pressure, default_weight};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::common::fewer;

/// Removed values with a destructor that a thread keeps at most, while no reader is left.
const MOST: isize = 31;
/// Values in the batches that wait for a common grace period, for each of several threads: those of
/// four batches of 16, and of one that began as a batch of 32.
const SHARED: isize = 4 * 16 + 16;

/// A value of some bytes that counts the instances that are alive.
#[derive(Clone)]
struct Counted<const BYTES: usize>(Arc<AtomicIsize>, [u8; BYTES]);

impl<const BYTES: usize> Drop for Counted<BYTES> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A map of such values.
struct Fixture<const BYTES: usize> {
    map: RelativisticMap<u64, Counted<BYTES>>,
    alive: Arc<AtomicIsize>,
}

impl<const BYTES: usize> Fixture<BYTES> {
    fn new() -> Self {
        let map = RelativisticMap::builder().domain(Domain::new()).build();
        let alive = Arc::default();
        Self { map, alive }
    }

    fn value(&self) -> Counted<BYTES> {
        self.alive.fetch_add(1, Relaxed);
        Counted(self.alive.clone(), [7; BYTES])
    }

    fn insert(&self, key: u64) {
        self.map.insert(key, self.value());
    }

    /// The number of values that are alive but not in the map.
    fn kept(&self) -> isize {
        self.alive.load(Relaxed) - self.map.len() as isize
    }

    fn settle(&self) {
        self.map.settle().unwrap();
        assert_eq!((self.kept(), self.map.backlog_bytes()), (0, 0));
    }
}

#[test]
fn settle_drops_what_ended_idle_and_own_threads_have_removed() {
    let it = &Fixture::<8>::new();
    let (go_on, wait) = channel::<()>();
    let (say, idle) = channel();
    thread::scope(|scope| {
        // Dropped if this thread panics, so that the other one ends.
        let go_on = go_on;
        let ended = (0..8u64).map(|thread| {
            scope.spawn(move || {
                // Not at the end of a batch.
                for n in 0..40 + thread {
                    it.insert(thread * 7 + n % 7);
                }
            })
        });
        let ended: Vec<_> = ended.collect();
        ended.into_iter().for_each(|thread| thread.join().unwrap());
        scope.spawn(move || {
            (0..10).for_each(|n| it.insert(n % 5));
            say.send(()).unwrap();
            wait.recv().unwrap();
            // It goes on where it was.
            (0..11).for_each(|n| it.insert(n % 5));
        });
        idle.recv().unwrap();
        (0..3).for_each(|_| it.insert(1));
        assert!(it.kept() > 0);
        it.settle();
        go_on.send(()).unwrap();
    });
    assert!(it.kept() > 0);
    it.settle();
    it.map.clear();
    it.settle();
    assert_eq!(it.alive.load(Relaxed), 0);
}

#[test]
fn others_drop_what_an_idle_or_ended_thread_has_removed() {
    let it = &Fixture::<8>::new();
    let (go_on, wait) = channel::<()>();
    let (say, idle) = channel();
    thread::scope(|scope| {
        // As above.
        let go_on = go_on;
        let ended = scope.spawn(|| (0..20).for_each(|n| it.insert(n % 5)));
        ended.join().unwrap();
        scope.spawn(move || {
            (0..20).for_each(|n| it.insert(n % 5));
            say.send(()).unwrap();
            wait.recv().unwrap();
        });
        idle.recv().unwrap();
        // Two visits find the batch unchanged, the next takes it, and the end of the next batch
        // drops it.
        let batches = 3 * 16 + 3;
        (0..batches * 32).for_each(|n| it.insert(5 + n % 5));
        assert!(it.kept() <= MOST, "{} are kept", it.kept());
        go_on.send(()).unwrap();
    });
}

#[test]
fn an_owned_handle_leaves_nothing() {
    let it = &Fixture::<8>::new();
    let handle = it.map.pin_owned();
    thread::scope(|scope| {
        scope.spawn(move || {
            for n in 0..45 {
                handle.insert(n % 4, it.value());
            }
            assert_eq!(it.kept(), 41);
        });
    });
    assert_eq!((it.kept(), it.map.backlog_bytes()), (0, 0));
    // A reader that stays keeps them; then it is up to `settle`.
    let reader = it.map.guard();
    let handle = it.map.pin_owned();
    (0..45).for_each(|n| assert!(handle.insert(n % 4, it.value()).is_some()));
    drop(handle);
    assert_eq!(it.kept(), 45);
    drop(reader);
    it.settle();
}

fn most(threads: u64) -> isize {
    let threads = threads as isize;
    match threads {
        1 => MOST,
        _ => (MOST + SHARED) * threads,
    }
}

/// The threads take turns, so no reader is left when one of them ends a batch.
fn keeps_few<const BYTES: usize>(threads: u64, entries: u64, operations: u64) {
    let it = &Fixture::<BYTES>::new();
    let turn = &Mutex::new(());
    thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(thread);
                for _ in 0..operations / 16 {
                    let _turn = turn.lock().unwrap();
                    for _ in 0..16 {
                        let key = rng.random_range(0..entries);
                        if rng.random_range(0..3) == 0 {
                            it.map.remove(&key);
                        } else {
                            it.insert(key);
                        }
                        let most = most(threads);
                        assert!((0..=most).contains(&it.kept()), "{} are kept", it.kept());
                    }
                }
            });
        }
    });
    let most = most(threads).min(operations as isize * threads as isize);
    assert!((0..=most).contains(&it.kept()), "{} are kept", it.kept());
    it.settle();
}

#[test]
fn threads_keep_at_most_a_small_batch_each() {
    for threads in [1, 2, 5, 16] {
        for entries in [1, 10, 1_000] {
            keeps_few::<1>(threads, entries, fewer(800));
            keeps_few::<56>(threads, entries, fewer(800));
            keeps_few::<1_000>(threads, entries, fewer(800));
            keeps_few::<3_000>(threads, entries, fewer(400));
            keeps_few::<0x1_0000>(threads, entries.min(10), fewer(160));
        }
    }
    keeps_few::<8>(4, 100_000, fewer(20_000));
}

/// Two threads take turns to fill a batch; then one of them goes on alone.
#[test]
fn threads_share_grace_periods_and_one_alone_waits_for_nobody() {
    let it = &Fixture::<8>::new();
    let fill_batch = || (0..32).for_each(|n| it.insert(n % 5));
    let take_turns = || {
        thread::scope(|scope| {
            let (go, wait) = channel();
            let (say, done) = channel();
            scope.spawn(move || {
                for () in wait {
                    fill_batch();
                    say.send(()).unwrap();
                }
            });
            for _ in 0..50 {
                fill_batch();
                go.send(()).unwrap();
                done.recv().unwrap();
                assert!(it.kept() <= most(2), "{} are kept", it.kept());
            }
        });
    };
    (0..5).for_each(|n| it.insert(n));
    let grace_periods = it.map.domain().grace_periods();
    take_turns();
    let used = it.map.domain().grace_periods() - grace_periods;
    // Each for eight batches of 16 at most.
    assert!(used >= 20, "{used} grace periods for 200 batches");
    (0..3 * 5).for_each(|_| fill_batch());
    for _ in 0..100 {
        it.insert(1);
        assert!(it.kept() <= 2 * MOST, "{} are kept", it.kept());
    }
}

/// Many batches that one call has closed wait for no others.
#[test]
fn what_a_thread_clears_does_not_wait_for_more() {
    let it = &Fixture::<8>::new();
    // Before the other, so that the two have records of their own in the domain.
    it.insert(0);
    thread::scope(|scope| {
        let other = scope.spawn(|| (0..100).for_each(|n| it.insert(n % 5)));
        other.join().unwrap();
    });
    (0..2_000).for_each(|n| it.insert(n));
    (0..100).for_each(|n| it.insert(n % 5));
    it.map.clear();
    assert!(it.kept() <= most(2), "{} are kept", it.kept());
    it.settle();
}

/// No more are kept than by a collector whose batches are of 32.
#[test]
fn a_batch_ends_where_a_batch_of_32_does() {
    fn check<const BYTES: usize>() {
        let it = Fixture::<BYTES>::new();
        it.insert(0);
        for operation in 1..200 {
            it.insert(0);
            assert!(
                it.kept() <= operation % 32,
                "after {operation}: {}",
                it.kept()
            );
        }
    }
    check::<1>();
    check::<1_000>();
    check::<3_000>();
    check::<5_000>();
    check::<40_000>();
}

#[test]
fn updates_and_settling_of_several_threads_lose_no_value() {
    let it = &Fixture::<8>::new();
    thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(seed);
                for _ in 0..fewer(4_000) {
                    let key = rng.random_range(0..50);
                    match rng.random_range(0..40) {
                        0 => it.map.settle().unwrap(),
                        1 => drop(it.map.pin_owned().remove(&key).is_some()),
                        2..12 => drop(it.map.remove(&key)),
                        _ => it.insert(key),
                    }
                    assert!(it.alive.load(Relaxed) >= 0);
                }
            });
        }
    });
    it.settle();
}

#[test]
fn the_backlog_is_what_removed_entries_weigh() {
    let plain = RelativisticMap::<u64, u64>::builder()
        .domain(Domain::new())
        .build();
    let it = Fixture::<8>::new();
    let (plain_guard, guard) = (plain.guard(), it.map.guard());
    for n in 0..100 {
        plain.insert(0, n);
        it.insert(0);
        assert_eq!(plain.backlog_bytes() as u64, n * 24);
        assert_eq!(it.map.backlog_bytes() as u64, n * 2_048);
    }
    drop((plain_guard, guard));
    it.settle();

    let limits = Limits {
        soft: 9_000,
        hard: 20_000,
    };
    let builder = RelativisticMap::<u64, Vec<u8>>::builder().weigher(|_, value| value.len());
    let map = builder.domain(Domain::new()).backlog_limits(limits).build();
    let node = size_of::<(u64, Vec<u8>)>() + 8;
    let guard = map.guard();
    map.within(&guard).insert(1, vec![0; 5_000]);
    for (times, pressure) in [
        (1, Pressure::Fine),
        (2, Pressure::OverSoft),
        (4, Pressure::OverHard),
    ] {
        while map.backlog_bytes() < times * (node + 5_000) {
            map.within(&guard).insert(1, vec![0; 5_000]);
        }
        assert_eq!(map.backlog_bytes(), times * (node + 5_000));
        assert_eq!(map.pressure(), pressure);
    }
    assert!(map.within(&guard).try_upsert(1, Vec::new()).is_err());
    let copy = map.clone();
    drop(guard);
    map.settle().unwrap();
    assert_eq!((map.backlog_bytes(), map.pressure()), (0, Pressure::Fine));
    // The copy weighs as the original does.
    copy.remove(&1);
    assert_eq!(copy.backlog_bytes(), node + 5_000);
}

#[test]
fn a_default_weight_does_not_assume_that_values_own_nothing() {
    assert_eq!(default_weight::<[u8; 5_000]>(), 5_000);
    assert_eq!(default_weight::<Arc<()>>(), 2_048);
    assert_eq!(default_weight::<Counted<2_040>>(), 2_048);
    assert_eq!(default_weight::<Counted<2_048>>(), 4_096);
}

#[test]
fn a_weigher_that_panics_changes_nothing() {
    let builder = RelativisticMap::<u64, u64>::builder().weigher(|_, value| match value {
        7 => panic!("seven"),
        _ => 0,
    });
    let map = builder.domain(Domain::new()).build();
    map.insert(1, 7);
    assert!(catch_unwind(AssertUnwindSafe(|| map.insert(1, 8))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| map.remove(&1))).is_err());
    assert_eq!((map.pin().get(&1), map.len()), (Some(&7), 1));
    map.insert(2, 8);
    map.remove(&2);
    map.settle().unwrap();
    assert_eq!((map.len(), map.backlog_bytes()), (1, 0));
}
