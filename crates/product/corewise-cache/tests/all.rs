//! What the cache promises; numbers are those of the crate's header.

mod auto_traits;
mod concurrent;
mod reference;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use corewise_cache::{Cache, RemovalCause, TooHeavy};

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn a_key_is_found_replaced_and_removed() {
    let cache = Cache::new(10);
    assert_eq!(cache.insert(1, "a"), Ok(()));
    assert_eq!(cache.insert(1, "b"), Ok(()));
    assert_eq!(
        (cache.get(&1), cache.len(), cache.weight()),
        (Some("b"), 1, 1)
    );
    assert_eq!(cache.remove(&1), Some("b"));
    assert_eq!((cache.get(&1), cache.len(), cache.weight()), (None, 0, 0));
    let counted = cache.statistics();
    assert_eq!((counted.hits, counted.misses), (1, 1));
}

/// `get`, `peek`, `contains_key` and `remove` take a borrowed form of the key.
#[test]
fn a_key_is_found_by_its_borrowed_form() {
    let cache: Cache<String, u8> = Cache::new(10);
    cache.insert("a".to_owned(), 1).unwrap();
    assert_eq!((cache.get("a"), cache.peek("a")), (Some(1), Some(1)));
    assert!(cache.contains_key("a") && !cache.contains_key("b"));
    assert_eq!((cache.remove("a"), cache.remove("a")), (Some(1), None));
}

#[test]
fn keys_that_were_read_survive_a_scan() {
    let cache = Cache::new(100);
    for key in 0..50 {
        cache.insert(key, key).unwrap();
        cache.get(&key);
    }
    for key in 1000..3000 {
        cache.insert(key, key).unwrap();
        assert!(cache.weight() <= 100);
    }
    assert_eq!((0..50).filter(|key| cache.contains_key(key)).count(), 50);
    assert_eq!((cache.len(), cache.statistics().evictions), (100, 1950));
}

#[test]
fn an_entry_heavier_than_the_cache_is_refused() {
    let cache = Cache::builder(10)
        .weigher(|_: &u32, weight: &u64| *weight)
        .build();
    cache.insert(1, 10).unwrap();
    assert_eq!(cache.insert(1, 11), Err(TooHeavy));
    assert_eq!((cache.get(&1), cache.weight()), (None, 0));
    assert_eq!(cache.get_with(2, || 11), 11);
    assert_eq!(cache.len(), 0);
}

/// Guarantee 5, and that the weight is that of the entries.
#[test]
fn the_weight_is_bounded_under_threads() {
    const HEAVIEST: u64 = 7;
    let cache = Cache::builder(200)
        .weigher(|_: &u64, weight: &u64| *weight)
        .build();
    thread::scope(|scope| {
        for seed in 0..4_u64 {
            let cache = cache.clone();
            scope.spawn(move || {
                let mut random = seed + 1;
                for _ in 0..3000 {
                    random = random
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    let key = (random >> 33) % 300;
                    match (random >> 60) % 4 {
                        0 => drop(cache.remove(&key)),
                        1 => drop(cache.get(&key)),
                        _ => cache.insert(key, random >> 40 & 7).unwrap(),
                    }
                    assert!(cache.weight() <= 200 + HEAVIEST);
                }
            });
        }
    });
    let entries = cache.entries();
    assert_eq!(
        entries.iter().map(|(_, weight)| weight).sum::<u64>(),
        cache.weight()
    );
    cache.clear();
    assert_eq!((cache.len(), cache.weight()), (0, 0));
}

/// Guarantee 7.
#[test]
fn one_initialiser_runs_and_a_panic_passes_the_turn_on() {
    let cache = Cache::new(100);
    let (runs, running, start) = (AtomicUsize::new(0), AtomicUsize::new(0), Barrier::new(8));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                let got = catch_unwind(AssertUnwindSafe(|| {
                    cache.get_with(5, || {
                        assert_eq!(running.fetch_add(1, SeqCst), 0);
                        thread::sleep(Duration::from_millis(5));
                        let run = runs.fetch_add(1, SeqCst);
                        running.fetch_sub(1, SeqCst);
                        assert!(run >= 3, "the first three fail");
                        run
                    })
                }));
                assert!(got.is_err() || got.is_ok_and(|run| run == 3));
            });
        }
    });
    assert_eq!((runs.load(SeqCst), cache.get(&5)), (4, Some(3)));
}

/// Guarantee 7, for tasks.
#[test]
fn a_dropped_future_passes_the_turn_on() {
    fn is_send<T: Send>(future: T) -> T {
        future
    }
    let cache: Cache<u32, u32> = Cache::new(100);
    let mut first = Box::pin(is_send(cache.get_with_async(1, std::future::pending())));
    assert!(
        first
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    let waits = thread::spawn({
        let cache = cache.clone();
        move || block_on(cache.get_with_async(1, async { 7 }))
    });
    thread::sleep(Duration::from_millis(20));
    assert!(!waits.is_finished());
    drop(first);
    assert_eq!((waits.join().unwrap(), cache.get(&1)), (7, Some(7)));
}

#[test]
fn entries_expire_and_are_reclaimed_by_updates() {
    let time = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&time);
    let cache = Cache::builder(100)
        .time_to_live(Duration::from_millis(100))
        .time_to_idle(Duration::from_millis(30))
        .clock(move || Duration::from_millis(clock.load(SeqCst)))
        .build();
    cache.insert(1, 1).unwrap();
    cache.insert(2, 2).unwrap();
    for now in [20, 40, 60, 80, 99] {
        time.store(now, SeqCst);
        assert_eq!(cache.get(&1), Some(1));
    }
    assert_eq!(cache.get(&2), None, "idle since 0");
    time.store(100, SeqCst);
    assert_eq!((cache.get(&1), cache.len()), (None, 2));
    cache.insert(3, 3).unwrap();
    assert_eq!((cache.len(), cache.statistics().expirations), (1, 2));
}

/// Guarantee 6: each inserted value is reported once, or is still there.
#[test]
fn each_value_that_leaves_is_reported_once() {
    let left = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&left);
    let cache = Cache::builder(20)
        .eviction_listener(move |_: &u64, value: &u64, cause| {
            log.lock().unwrap().push((*value, cause))
        })
        .build();
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let cache = &cache;
            scope.spawn(move || {
                for n in 0..500 {
                    cache
                        .insert((n * 7 + thread) % 60, thread * 500 + n)
                        .unwrap();
                    if n % 5 == 0 {
                        cache.remove(&(n % 60));
                    }
                }
            });
        }
    });
    let left = left.lock().unwrap();
    let mut all: Vec<u64> = left.iter().map(|(value, _)| *value).collect();
    all.extend(cache.entries().into_iter().map(|(_, value)| value));
    all.sort_unstable();
    assert_eq!(all, (0..2000).collect::<Vec<_>>());
    assert!(
        left.iter()
            .any(|(_, cause)| *cause == RemovalCause::Evicted)
    );
    assert!(
        left.iter()
            .all(|(_, cause)| *cause != RemovalCause::Expired)
    );
}

#[test]
fn all_values_are_dropped() {
    let value = Arc::new(());
    let cache = Cache::new(50);
    for key in 0..500 {
        cache.insert(key % 120, Arc::clone(&value)).unwrap();
    }
    drop(cache);
    assert_eq!(Arc::strong_count(&value), 1);
}
