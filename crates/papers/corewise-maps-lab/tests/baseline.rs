//! Behaviour that is specific to the baselines; `chained.rs` tests what every chained table does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use corewise_maps_lab::baseline::{Ddds, LiteralDdds, RwLocked};
use corewise_maps_lab::chained::{ChainedMap, ChainedTable, Resized};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use corewise_testkit::for_every;

type Map<V, A> = ChainedMap<u64, V, A>;

for_every! {
    ddds: Ddds,
    literal_ddds: LiteralDdds,
    rwlocked: RwLocked,
    => {
        present_keys_are_found_whatever_others_do
        references_outlive_removals_and_resizes
    }
}

/// A value that can be told from freed memory.
struct Value(u64, Box<u64>);

impl Value {
    fn new(n: u64) -> Self {
        Self(n ^ ALIVE, Box::new(n))
    }

    fn check(&self) {
        assert_eq!(self.0 ^ ALIVE, *self.1, "a dropped value is seen");
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.check();
        self.0 = 0;
    }
}

const ALIVE: u64 = 0x5eed_5eed_5eed_5eed;
/// Keys below this are always present.
const STABLE: u64 = 2_000;

fn for_a_while() -> Duration {
    let ms = std::env::var("COREWISE_STRESS_MS").ok();
    Duration::from_millis(ms.and_then(|ms| ms.parse().ok()).unwrap_or(500))
}

fn look<A: ChainedTable>(map: &Map<Value, A>, seed: u64, go_on: &AtomicBool) -> u64 {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut hits = 0;
    while go_on.load(Relaxed) {
        let handle = map.pin();
        for _ in 0..rng.random_range(1..50) {
            let key = rng.random_range(0..2 * STABLE);
            let value = handle.get(&key);
            assert!(key >= STABLE || value.is_some(), "{key} is missing");
            hits += u64::from(key < STABLE);
            value.inspect(|value| value.check());
        }
    }
    hits
}

/// Inserts and removes this thread's keys, which no other thread changes.
fn change<A: ChainedTable>(map: &Map<Value, A>, thread: u64, go_on: &AtomicBool) {
    let mut rng = SmallRng::seed_from_u64(thread);
    let mut there = vec![false; 1_000];
    while go_on.load(Relaxed) {
        let at = rng.random_range(0..there.len());
        let key = STABLE + 2 * at as u64 + thread;
        let handle = map.pin();
        if there[at] {
            handle.remove(&key).expect("we have inserted it").check()
        } else {
            assert!(handle.insert(key, Value::new(key)))
        }
        there[at] = !there[at];
        assert_eq!(handle.get(&key).is_some(), there[at]);
    }
}

fn present_keys_are_found_whatever_others_do<A: ChainedTable>() {
    let map = Map::<Value, A>::with_buckets(64);
    (0..STABLE).for_each(|key| assert!(map.pin().insert(key, Value::new(key))));
    let go_on = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|seed| {
                scope.spawn({
                    let (map, go_on) = (&map, &go_on);
                    move || look(map, seed, go_on)
                })
            })
            .collect();
        for thread in 0..2 {
            let (map, go_on) = (&map, &go_on);
            scope.spawn(move || change(map, thread, go_on));
        }
        let end = Instant::now() + for_a_while();
        let mut sizes = [16, 4, 2048, 512, 1, 256].into_iter().cycle();
        while Instant::now() < end {
            map.resize_to(sizes.next().unwrap()).unwrap();
        }
        go_on.store(false, Relaxed);
        for reader in readers {
            assert!(reader.join().unwrap() > 0);
        }
    });
    let mut map = map;
    let mut stable = 0;
    map.for_each(|key, value| {
        value.check();
        stable += u64::from(*key < STABLE);
    });
    assert_eq!(stable, STABLE);
}

fn references_outlive_removals_and_resizes<A: ChainedTable>() {
    let map = Arc::new(Map::<Value, A>::with_buckets(4));
    assert!(map.pin().insert(1, Value::new(1)));
    let handle = map.pin();
    let value = handle.get(&1).unwrap();
    let other = map.clone();
    let resizer = std::thread::spawn(move || {
        assert!(other.pin().remove(&1).is_some());
        other.resize_to(64).unwrap();
    });
    while map.pin().contains_key(&1) {
        std::thread::yield_now();
    }
    value.check();
    drop(handle);
    resizer.join().unwrap();
}

fn a_resize_says_what_it_took<A: ChainedTable>(waits: u64) {
    let map = Map::<u64, A>::with_buckets(4);
    assert!(map.pin().insert(1, 1));
    assert_eq!(map.resize_to(5), Ok(Resized { passes: 1, waits }));
    assert_eq!((map.buckets(), map.pin().get(&1)), (8, Some(&1)));
    assert_eq!(map.resize_to(8), Ok(Resized::default()), "it has as many");
}

#[test]
fn a_resize_says_how_often_it_waited_for_readers() {
    a_resize_says_what_it_took::<Ddds>(2);
    a_resize_says_what_it_took::<LiteralDdds>(3);
    a_resize_says_what_it_took::<RwLocked>(0);
}
