//! Operations that read and write an entry in one step, and those that take entries out, beside
//! other threads that do the same: no update is lost, and no entry is taken twice.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use corewise_maps::relativistic::Operation;
use corewise_maps::{RelativisticMap, RelativisticSet};
use corewise_testkit::random::is_short;
use corewise_testkit::stress::beside;

const THREADS: u64 = 4;
const KEYS: u64 = 5;

fn rounds() -> u64 {
    if is_short() || cfg!(corewise_stress) {
        2_000
    } else {
        20_000
    }
}

type Map = RelativisticMap<u64, u64>;

/// Calls `work` on several threads at once, with the number of the thread, while another one
/// resizes the map.
fn beside_resizes(map: &Map, work: impl Fn(u64) + Sync) {
    let is_over = AtomicBool::new(false);
    let resize = || {
        let mut sizes = [1, 8, 2, 32, 4].into_iter().cycle();
        while !is_over.load(Relaxed) {
            map.resize_to(sizes.next().unwrap()).unwrap();
        }
    };
    beside(THREADS, &is_over, resize, work);
}

/// Every way to count has effect once for each call, whichever others run.
#[test]
fn counts_of_several_threads_add_up() {
    let map = Map::builder().automatic_resize(false).build();
    let rounds = rounds();
    let count = |key: u64, way: u64| {
        let (handle, more) = (map.pin(), |n: &u64| n + 1);
        match way {
            0 => assert!(*handle.update_or_insert(key, more, 1) >= 1),
            1 => assert!(*map.update_or_insert(key, more, 1) >= 1),
            2 => _ = map.pin_owned().update_or_insert_with(key, more, || 1),
            3 => _ = handle.entry(key).and_modify(|n| *n += 1).or_insert(1),
            4 => {
                let entry = handle.entry(key).and_modify(|n| *n += 1);
                entry.or_insert_with_key(|_| 1);
            }
            _ => {
                handle.compute(key, |entry| {
                    Operation::<_, ()>::Insert(entry.map_or(1, |(_, n)| n + 1))
                });
            }
        }
    };
    beside_resizes(&map, |thread| {
        for round in 0..rounds {
            count((round + thread) % KEYS, round % 6);
        }
    });
    assert_eq!(map.pin().values().sum::<u64>(), THREADS * rounds);
    assert_eq!(map.len() as u64, KEYS);
}

/// Upserts beside removals: what was counted is in the map or was removed.
#[test]
fn nothing_is_lost_to_removals() {
    let map = Map::builder().automatic_resize(false).build();
    let (rounds, removed) = (rounds(), AtomicU64::new(0));
    beside_resizes(&map, |thread| {
        for round in 0..rounds {
            let key = round % KEYS;
            if thread % 2 == 0 {
                map.pin().entry(key).and_modify(|n| *n += 1).or_insert(1);
            } else if round % 3 == 0 {
                let map = map.pin();
                let sum: u64 = map.drain().map(|(_, n)| n).sum();
                removed.fetch_add(sum, Relaxed);
            } else if let Ok(Some((_, n))) = map.pin().remove_if(&key, |_, n| n % 2 == 0) {
                removed.fetch_add(*n, Relaxed);
            }
        }
    });
    let left: u64 = map.pin().values().sum();
    assert_eq!(left + removed.into_inner(), THREADS / 2 * rounds);
}

#[test]
fn every_entry_is_drained_once() {
    let all = rounds();
    let map: Map = (0..all).map(|n| (n, n)).collect();
    let taken: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let map = &map;
                scope.spawn(move || {
                    let map = map.pin();
                    match thread % 2 {
                        0 => map.drain().map(|(key, _)| *key).collect(),
                        _ => map
                            .extract_if(|key, _| key % 3 == 0)
                            .map(|(key, _)| *key)
                            .collect(),
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let number: usize = taken.iter().map(Vec::len).sum();
    let once: BTreeSet<u64> = taken.into_iter().flatten().collect();
    assert_eq!((number as u64, once.len() as u64), (all, all));
    assert!(map.is_empty());
}

#[test]
fn a_value_is_made_once_for_all_threads_that_ask_for_it_or_dropped() {
    let map = Map::builder().automatic_resize(false).build();
    let made = AtomicU64::new(0);
    beside_resizes(&map, |_| {
        for key in 0..1_000 {
            let make = || made.fetch_add(1, Relaxed);
            let first = *map.pin().get_or_insert_with(key, make);
            assert_eq!(*map.pin().get_or_insert_with(key, || unreachable!()), first);
            assert_eq!(
                map.pin().try_insert_with(key, || unreachable!()),
                Err(&first)
            );
            let same = map.pin().get_or_try_insert_with(key, || Err(())).copied();
            assert_eq!(same, Ok(first));
        }
    });
    assert!(made.into_inner() >= 1_000);
    assert_eq!(map.len(), 1_000);
}

#[test]
fn an_element_is_inserted_and_taken_by_one_thread() {
    let set = RelativisticSet::new();
    let (inserted, taken) = (AtomicU64::new(0), AtomicU64::new(0));
    let rounds = rounds();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for n in 0..rounds {
                    inserted.fetch_add(u64::from(set.insert(n % 7)), Relaxed);
                    let handle = set.pin();
                    taken.fetch_add(u64::from(handle.take(&(n % 5)).is_some()), Relaxed);
                }
            });
        }
    });
    let left = set.len() as u64;
    assert_eq!(inserted.into_inner(), taken.into_inner() + left);
}

/// Handles that are made on one thread, used on another and dropped on a third.
#[test]
fn owned_handles_travel() {
    let map: RelativisticMap<u64, String> = RelativisticMap::new();
    let rounds = rounds() / 4;
    std::thread::scope(|scope| {
        let (to_user, handles) = std::sync::mpsc::sync_channel(8);
        let (to_end, used) = std::sync::mpsc::sync_channel(8);
        let map = &map;
        scope.spawn(move || {
            for n in 0..rounds {
                let handle = map.pin_owned();
                handle.insert(n % 10, n.to_string());
                to_user.send(handle).unwrap();
            }
        });
        scope.spawn(move || {
            for handle in handles {
                let value = handle.get(&3).cloned();
                handle.remove(&3);
                to_end.send((handle, value)).unwrap();
            }
        });
        scope.spawn(move || {
            for (handle, value) in used {
                handle.update_or_insert(4, |old| format!("{}", old.len()), "4".to_owned());
                drop((handle, value));
            }
        });
    });
    map.settle().unwrap();
    assert_eq!(map.backlog_bytes(), 0);
}

/// A future that waits once, driven by two threads in turn.
#[test]
fn a_task_holds_a_handle_over_an_await() {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    struct Once(bool);
    impl Future for Once {
        type Output = ();
        fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            match std::mem::replace(&mut self.0, true) {
                false => Poll::Pending,
                true => Poll::Ready(()),
            }
        }
    }

    let map = RelativisticMap::from([(1, "one".to_owned())]);
    let task = async {
        let handle = map.pin_owned();
        let value = handle.get(&1);
        Once(false).await;
        value.cloned()
    };
    let mut task = Box::pin(task);
    let mut poll = || task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(poll(), Poll::Pending);
    map.remove(&1);
    let done = std::thread::scope(|scope| scope.spawn(&mut poll).join().unwrap());
    assert_eq!(done, Poll::Ready(Some("one".to_owned())));
}
