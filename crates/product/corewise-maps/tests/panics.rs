//! Panics in all code that users provide, at every call: the map stays consistent, no lock stays
//! held, and nothing is dropped twice or leaked.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicIsize, Ordering::SeqCst};

use corewise_maps::RelativisticMap;
use corewise_maps::relativistic::Operation;

use crate::hostile::{FUSE, burn};

static ALIVE: AtomicIsize = AtomicIsize::new(0);

#[derive(Debug)]
struct Key(u64);

impl Key {
    fn new(n: u64) -> Self {
        ALIVE.fetch_add(1, SeqCst);
        Self(n)
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        burn();
        // Few values, so that keys are compared.
        state.write_u64(self.0 % 8);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        burn();
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Clone for Key {
    fn clone(&self) -> Self {
        burn();
        Self::new(self.0)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, SeqCst);
        if !std::thread::panicking() {
            burn();
        }
    }
}

type Map = RelativisticMap<Key, Key>;

/// Calls all operations that run user code, one after the other; none touches keys below 50.
fn exercise(map: &Map) {
    let handle = map.pin();
    handle.insert(Key::new(60), Key::new(1));
    handle.insert(Key::new(60), Key::new(2));
    drop(handle.try_insert(Key::new(60), Key::new(3)));
    handle.get_or_insert_with(Key::new(61), || {
        burn();
        Key::new(4)
    });
    handle.update(&Key::new(61), |old| {
        burn();
        old.clone()
    });
    handle.compute(Key::new(62), |entry| {
        burn();
        match entry {
            None => Operation::<_, ()>::Insert(Key::new(5)),
            Some(_) => Operation::Remove,
        }
    });
    let _ = handle.remove_if(&Key::new(62), |_, _| {
        burn();
        true
    });
    let change = |old: &Key| {
        burn();
        old.clone()
    };
    let make = || {
        burn();
        Key::new(6)
    };
    handle.update_or_insert_with(Key::new(63), change, make);
    handle.update_or_insert_with(Key::new(63), change, make);
    let modify = |_: &mut Key| burn();
    handle
        .entry(Key::new(64))
        .and_modify(modify)
        .or_insert_with(make);
    handle
        .entry(Key::new(64))
        .and_modify(modify)
        .or_insert_with(make);
    handle.entry(Key::new(65)).or_insert_with_key(|_| make());
    let _ = handle.get_or_try_insert_with(Key::new(66), || {
        burn();
        Err(Key::new(7))
    });
    let _ = handle.try_insert_with(Key::new(66), make);
    handle.remove(&Key::new(60));
    let extracted = handle.extract_if(|key, _| {
        burn();
        key.0 == 66
    });
    extracted.for_each(drop);
    handle.retain(|key, _| {
        burn();
        key.0 < 50
    });
    handle.remove(&Key::new(61));
}

fn quietly(run: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(run)).is_err()
}

/// Checks that the map answers, in this thread and another one, and has all keys below 50.
fn check(map: &Map) {
    FUSE.set(-1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let found: BTreeSet<u64> = map.pin().keys().map(|key| key.0).collect();
            assert!((0..50).all(|n| found.contains(&n)));
            for n in 0..70 {
                let had = map.pin().remove(&Key::new(n)).is_some();
                assert!(n >= 50 || had, "{n} is missing");
                if n < 50 {
                    map.pin().insert(Key::new(n), Key::new(n));
                }
            }
        });
    });
    assert_eq!(map.len(), 50);
}

#[test]
fn a_panic_of_the_users_code_leaves_the_map_whole() {
    let map = Map::new();
    (0..50).for_each(|n| {
        map.pin().insert(Key::new(n), Key::new(n));
    });
    let mut panics = 0;
    for calls in 0.. {
        FUSE.set(calls);
        let panicked = quietly(|| exercise(&map));
        let unused = FUSE.get() >= 0;
        check(&map);
        panics += i32::from(panicked);
        map.resize_to([64, 16, 48, 8][calls as usize % 4]).unwrap();
        if unused {
            break;
        }
    }
    assert!(panics > 50, "only {panics} calls have panicked");
    FUSE.set(-1);
    drop(map);
    // A key whose drop panicked has been counted; nothing else may be missing or left over.
    assert_eq!(ALIVE.load(SeqCst), 0);
}
