//! Regression tests, one for each bug or near miss.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::time::Duration;

use corewise_maps::RelativisticMap;
use corewise_maps::relativistic::{Entry, ResizeError};
use corewise_rcu::{Domain, Limits, MAX_NESTED, Pressure, Stall};
use corewise_testkit::random::is_short;

/// A key with a different hash each time.
#[derive(PartialEq, Eq, Debug)]
struct ChangingHash(u64);

thread_local! {
    static TURN: Cell<u64> = const { Cell::new(0) };
}

impl Hash for ChangingHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0 + TURN.get());
    }
}

#[test]
fn an_entry_is_replaced_where_it_was_found_whatever_its_key_hashes_to_then() {
    let map = RelativisticMap::new();
    for n in 0..100 {
        TURN.set(0);
        map.pin().insert(ChangingHash(n), vec![n]);
        let handle = map.pin();
        let Entry::Occupied(entry) = handle.entry(ChangingHash(n)) else {
            panic!("it was inserted")
        };
        TURN.set(1000);
        assert_eq!(entry.replace(vec![n + 1]), Ok(&vec![n + 1]));
    }
    TURN.set(0);
    for n in 0..100 {
        assert_eq!(map.pin().remove(&ChangingHash(n)), Some(&vec![n + 1]));
    }
    map.settle().unwrap();
    assert!(map.is_empty());
}

static TOLD: AtomicUsize = AtomicUsize::new(0);
static WATCHED: LazyLock<RelativisticMap<u64, Box<u64>>> = LazyLock::new(|| {
    let domain = corewise_rcu::Builder::default()
        .stall_after(Duration::ZERO)
        .on_stall(use_the_map);
    let domain: Domain = domain.build("watched");
    RelativisticMap::builder().domain(domain).build()
});

/// A stall handler that looks into the map, and changes it.
fn use_the_map(_: &Stall) {
    thread_local! {
        static INSIDE: Cell<bool> = const { Cell::new(false) };
    }
    if INSIDE.replace(true) {
        return;
    }
    TOLD.fetch_add(1, Relaxed);
    assert!(WATCHED.resize_state().buckets > 0);
    for n in 0..5_000 {
        WATCHED.pin().insert(1 << 40, Box::new(n));
    }
    INSIDE.set(false);
}

#[test]
fn a_stall_callback_may_use_the_map() {
    let map = &*WATCHED;
    for round in 0..2 {
        // Each grace period is reported once.
        std::thread::scope(|scope| {
            let (send, receive) = std::sync::mpsc::channel();
            scope.spawn(move || {
                let _stalled = map.pin();
                send.send(()).unwrap();
                while TOLD.load(Relaxed) <= round {
                    std::thread::yield_now();
                }
            });
            receive.recv().unwrap();
            let mut n = 0;
            while TOLD.load(Relaxed) <= round {
                n += 1;
                map.pin().insert(n % 10_000, Box::new(n));
            }
        });
        map.settle().unwrap();
    }
    assert!(map.pin().contains_key(&(1 << 40)));
}

/// Removes the next key when dropped.
struct Chained(u64, Weak<OnceLock<Chain>>);
type Chain = RelativisticMap<u64, Chained>;

impl Drop for Chained {
    fn drop(&mut self) {
        let owner = self.1.upgrade();
        if let Some(map) = owner.as_ref().and_then(|owner| owner.get()) {
            map.pin().remove(&(self.0 + 1));
        }
    }
}

#[test]
fn a_chain_of_drops_needs_no_stack() {
    let fewer = cfg!(corewise_stress) || is_short();
    let links = if fewer { 30_000 } else { 100_000 };
    let owner: Arc<OnceLock<Chain>> = Arc::default();
    // With a domain to itself: each link takes a grace period.
    let map = owner.get_or_init(|| Chain::builder().domain(Domain::new()).build());
    (0..links).for_each(|n| {
        map.pin().insert(n, Chained(n, Arc::downgrade(&owner)));
    });
    map.pin().remove(&0);
    while !map.is_empty() {
        map.settle().unwrap();
    }
}

#[test]
fn a_resize_beyond_memory_changes_nothing() {
    let map = RelativisticMap::builder()
        .automatic_resize(false)
        .buckets(16)
        .build();
    (0..1_000).for_each(|n| {
        map.pin().insert(n, n);
    });
    // Neither number divides the other.
    assert_eq!(map.resize_to(usize::MAX / 8), Err(ResizeError::NoMemory));
    assert_eq!(map.resize_state().buckets, 16);
    map.set_automatic_resize(true);
    (1_000..1_500).for_each(|n| {
        map.pin().insert(n, n);
    });
    assert!(map.resize_state().buckets > 16 || cfg!(corewise_stress));
}

#[test]
#[cfg(not(corewise_stress))]
fn what_was_reserved_stays_until_it_is_used() {
    let map = RelativisticMap::new();
    map.reserve(100_000).unwrap();
    let buckets = map.resize_state().buckets;
    (0..100_000).for_each(|n| {
        map.pin().insert(n, n);
        assert_eq!(map.resize_state().buckets, buckets, "after {n}");
    });
}

/// More buckets than any machine has memory for.
#[cfg(not(corewise_stress))]
const TOO_MANY: usize = usize::MAX / 64;

#[test]
#[cfg(not(corewise_stress))] // It resizes by itself all the time.
fn what_is_reserved_after_a_request_to_shrink_stays() {
    for entries in [1_000, 100_000] {
        let map = RelativisticMap::<u64, u64>::with_capacity(entries);
        map.shrink_to_fit();
        map.reserve(entries).unwrap();
        map.settle().unwrap();
        assert!(map.resize_state().buckets >= entries, "{entries}");
        // Half-way down, too.
        map.shrink_to_fit();
        map.insert(1, 1);
        map.reserve(entries).unwrap();
        map.settle().unwrap();
        assert!(map.resize_state().buckets >= entries, "{entries}");
    }
}

#[test]
#[cfg(not(corewise_stress))]
fn a_reservation_that_fails_cancels_no_other_request() {
    let map = RelativisticMap::<u64, u64>::with_capacity(1_000);
    map.set_automatic_resize(false);
    map.shrink_to_fit();
    assert_eq!(map.reserve(TOO_MANY), Err(ResizeError::NoMemory));
    map.settle().unwrap();
    assert_eq!(map.resize_state().buckets, 1);
}

#[test]
#[cfg(not(corewise_stress))]
fn a_reservation_that_fails_does_not_keep_the_map_from_growing() {
    let map = RelativisticMap::<u64, u64>::new();
    for n in 0..20_000 {
        map.insert(n, n);
        assert_eq!(map.reserve(TOO_MANY), Err(ResizeError::NoMemory));
    }
    // Without `settle`, which would make up for it.
    assert!(map.resize_state().buckets >= 16_384);
}

#[test]
fn the_bytes_of_large_nodes_are_counted() {
    let map = RelativisticMap::new();
    map.pin().insert(1, [0u8; 100_000]);
    assert!((100_000..200_000).contains(&map.node_bytes()));
    map.pin().remove(&1);
    map.settle().unwrap();
    assert_eq!(map.node_bytes(), 0);
}

#[test]
fn a_map_grows_under_as_many_guards_as_there_can_be() {
    let map = RelativisticMap::builder().domain(Domain::new()).build();
    let guards: Vec<_> = (1..MAX_NESTED).map(|_| map.domain().pin()).collect();
    let inserted = std::panic::catch_unwind(|| {
        (0..1_000).for_each(|n| {
            map.pin().insert(n, n);
        });
    });
    drop(guards);
    assert!(inserted.is_ok());
    map.settle().unwrap();
    assert!((0..1_000).all(|n| map.pin().contains_key(&n)));
}

#[test]
fn a_thread_that_ends_leaves_no_more_than_others_can_free() {
    let limits = Limits {
        soft: 100_000,
        hard: 400_000,
    };
    let map = RelativisticMap::builder()
        .domain(Domain::new())
        .backlog_limits(limits)
        .build();
    // This thread gets its record first, so that it does not get the other thread's.
    map.pin().insert(1u64, 0u64);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let guard = map.domain().pin();
            (0..100_000).for_each(|n| {
                map.within(&guard).insert(0, n);
            });
            assert_eq!(map.pressure(), Pressure::OverHard);
        });
    });
    map.settle().unwrap();
    assert_eq!(map.pressure(), Pressure::Fine);
    assert!(map.pin().try_upsert(0, 1).is_ok());
}

/// The payload of a panic in a value's drop; its own drop panics too.
struct PanickingPayload;

impl Drop for PanickingPayload {
    fn drop(&mut self) {
        panic!("a splinter");
    }
}

struct PanickingDrop<'a>(&'a AtomicUsize);

impl Drop for PanickingDrop<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
        std::panic::resume_unwind(Box::new(PanickingPayload));
    }
}

#[test]
fn a_panic_payload_that_panics_when_dropped_leaks_no_value() {
    let dropped = AtomicUsize::new(0);
    let map = RelativisticMap::new();
    for key in 0..50 {
        map.pin().insert(key, PanickingDrop(&dropped));
    }
    let thrown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(map)));
    std::mem::forget(thrown.expect_err("the first panic goes on"));
    assert_eq!(dropped.load(Relaxed), 50);
}

/// Handles that may move count as threads: each of them takes one of its updates in eight for a
/// step of the resize, but not all of them the same one.
#[test]
fn many_threads_with_few_updates_each_grow_a_map() {
    let map = RelativisticMap::builder().domain(Domain::new()).build();
    let handles: Vec<_> = (0..400).map(|_| map.pin_owned()).collect();
    for round in 0..4 {
        for (at, handle) in handles.iter().enumerate() {
            handle.insert(round * 1000 + at, ());
        }
        let (entries, buckets) = (map.len(), map.resize_state().buckets);
        assert!(
            buckets >= entries / 4 || cfg!(corewise_stress),
            "{entries} entries, {buckets} buckets"
        );
    }
}
