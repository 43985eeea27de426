//! Tests with real threads; each runs for `COREWISE_STRESS_MS` milliseconds (500 if unset).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use corewise_maps::RelativisticMap;
use corewise_maps::relativistic::ResizeError;
use corewise_testkit::hashing::Hashing;
use corewise_testkit::stress::{come_and_go, together};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// A value that can be told from freed memory.
struct Value {
    n: u64,
    check: u64,
    /// A separate allocation, so that it is freed.
    boxed: Box<u64>,
}

const ALIVE: u64 = 0x5eed_5eed_5eed_5eed;

impl Value {
    fn new(n: u64) -> Self {
        Self {
            n,
            check: n ^ ALIVE,
            boxed: Box::new(n),
        }
    }

    fn check(&self) {
        assert_eq!(self.check, self.n ^ ALIVE, "a dropped value is seen");
        assert_eq!(*self.boxed, self.n);
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.check();
        self.check = 0;
    }
}

fn until_the_end() -> impl Fn() -> bool {
    let ms = std::env::var("COREWISE_STRESS_MS").ok();
    let ms = ms.and_then(|ms| ms.parse().ok()).unwrap_or(500);
    let end = Instant::now() + Duration::from_millis(ms);
    move || Instant::now() < end
}

/// Keys below this are always present.
const STABLE: u64 = 500;

fn stable_map() -> RelativisticMap<u64, Value> {
    let map = RelativisticMap::new();
    (0..STABLE).for_each(|n| {
        map.pin().insert(n, Value::new(n));
    });
    map
}

fn look(map: &RelativisticMap<u64, Value>, seed: u64, go_on: &AtomicBool) {
    let mut rng = SmallRng::seed_from_u64(seed);
    while go_on.load(Relaxed) {
        let handle = map.pin();
        for _ in 0..rng.random_range(1..50) {
            let key = rng.random_range(0..2 * STABLE);
            let value = handle.get(&key);
            assert!(key >= STABLE || value.is_some(), "{key} is missing");
            value.inspect(|value| value.check());
        }
        let keys: Vec<u64> = (0..rng.random_range(0..150))
            .map(|_| rng.random_range(0..2 * STABLE))
            .collect();
        let mut values = vec![None; keys.len()];
        handle.get_many(&keys, &mut values);
        for (key, value) in keys.iter().zip(values) {
            assert!(*key >= STABLE || value.is_some(), "{key} is missing");
            value.inspect(|value| value.check());
            assert!(value.is_none_or(|value| value.n == *key));
        }
    }
}

fn iterate(map: &RelativisticMap<u64, Value>, go_on: &AtomicBool) {
    while go_on.load(Relaxed) {
        let mut seen: HashMap<u64, u64> = HashMap::new();
        for (key, value) in map.pin().iter() {
            value.check();
            *seen.entry(*key).or_default() += 1;
        }
        assert!((0..STABLE).all(|key| seen.get(&key) == Some(&1)));
    }
}

fn change(map: &RelativisticMap<u64, Value>, seed: u64, go_on: &AtomicBool) {
    let mut rng = SmallRng::seed_from_u64(seed);
    while go_on.load(Relaxed) {
        let key = rng.random_range(0..4 * STABLE);
        let handle = map.pin();
        let seen = match rng.random_range(0..3) {
            0 => handle.insert(key, Value::new(key)),
            1 if key >= STABLE => handle.remove(&key),
            _ => handle.update(&key, |old| Value::new(old.n)),
        };
        seen.inspect(|value| value.check());
    }
}

#[test]
fn present_keys_are_found_whatever_others_do() {
    let (map, go_on) = (stable_map(), AtomicBool::new(true));
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (map, go_on) = (&map, &go_on);
            scope.spawn(move || look(map, seed, go_on));
            scope.spawn(move || change(map, seed, go_on));
        }
        scope.spawn(|| iterate(&map, &go_on));
        let (more, mut sizes) = (until_the_end(), [16, 3, 2048, 512, 1].into_iter().cycle());
        let resized = (|| {
            while more() {
                map.resize_to(sizes.next().unwrap())?;
            }
            Ok::<_, ResizeError>(())
        })();
        go_on.store(false, Relaxed);
        resized.unwrap();
    });
    map.settle().unwrap();
    assert_eq!(map.pin().iter().count(), map.len());
}

#[test]
fn threads_come_and_go() {
    let map = stable_map();
    let more = until_the_end();
    while more() {
        come_and_go(75, 4, |round, thread| {
            for n in 0..50 {
                let key = STABLE + 1 + (round * 7 + thread * 13 + n) % 300;
                map.pin().insert(key, Value::new(key));
                let handle = map.pin();
                handle.remove(&(key - 1)).inspect(|value| value.check());
                drop(handle);
                map.pin().insert(key % STABLE, Value::new(key % STABLE));
            }
        });
    }
    assert!((0..STABLE).all(|key| map.pin().contains_key(&key)));
}

#[test]
fn a_bucket_of_all_keys_stays_correct() {
    let map = RelativisticMap::with_hasher(Hashing::Alike);
    let more = until_the_end();
    together(3, |thread| {
        let mut n = 0;
        while more() {
            let key = thread * 100 + n % 40;
            assert!(map.pin().insert(key, Value::new(n)).is_none());
            map.pin().get(&key).unwrap().check();
            assert_eq!(map.pin().remove(&key).unwrap().n, n);
            n += 1;
        }
    });
    assert!(map.is_empty());
}

#[test]
fn a_drop_may_use_the_map() {
    use std::sync::{Arc, OnceLock};
    type Map = RelativisticMap<u64, RemovesNextInDrop>;
    struct RemovesNextInDrop(u64, Arc<OnceLock<Map>>);
    impl Drop for RemovesNextInDrop {
        fn drop(&mut self) {
            if let Some(map) = self.1.get() {
                let handle = map.pin();
                assert!(handle.get(&1_000_000).is_none());
                handle.remove(&(self.0 + 1));
                handle.insert(200, RemovesNextInDrop(200, Arc::default()));
                handle.remove(&200);
            }
        }
    }
    let map: Arc<OnceLock<Map>> = Arc::default();
    map.set(Map::new()).ok().unwrap();
    let own = map.get().unwrap();
    for n in 0..20_000 {
        own.pin()
            .insert(n % 100, RemovesNextInDrop(n % 100, map.clone()));
    }
    own.pin().clear();
    own.settle().unwrap();
    assert!(own.is_empty());
}
