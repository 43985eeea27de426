//! Models of boxed values: a value that is found is whole, and a value is freed when no thread has
//! it.

use corewise_atomic::cell::DataCell;
use corewise_atomic::sync::Arc;
use corewise_atomic::thread;
use corewise_rcu::Domain;

use crate::clht::Boxed;
use crate::copy_map::CopyMap;
use corewise_testkit::hashing::Hashing;

/// Written before it is shared and when it is dropped: a concurrent reader of either write is a
/// race.
struct Value(DataCell<u64>);

impl Value {
    fn new(number: u64) -> Self {
        let value = Self(DataCell::new(0));
        // SAFETY: no other thread has it. (To the checkers, making a cell is no access; this is.)
        unsafe { value.0.write(number) };
        value
    }

    fn get(&self) -> u64 {
        // SAFETY: written only when no thread reads; otherwise the checkers report it.
        unsafe { self.0.read() }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: no other thread has it; otherwise the checkers report it.
        unsafe { self.0.write(u64::MAX) };
    }
}

// SAFETY: see `Value`.
unsafe impl Sync for Value {}

type Map = Boxed<u64, Value, Hashing>;

fn map(keys: &[u64]) -> Map {
    let builder = CopyMap::builder().buckets(1).automatic_resize(false);
    let map: Map = builder
        .domain(Domain::new())
        .hasher(Hashing::Own)
        .build_boxed();
    for key in keys {
        assert!(map.pin().try_insert(*key, Value::new(key * 10)).is_ok());
    }
    map
}

/// Runs `act` concurrently with a lookup of key 1, whose result must be one of `found`; then frees
/// what was taken out.
fn look_beside(keys: &'static [u64], act: fn(&Map), found: [Option<u64>; 2]) {
    corewise_atomic::model_bounded(2, move || {
        let map = Arc::new(map(keys));
        let (one, other) = (map.clone(), map);
        let changes = thread::spawn(move || {
            act(&one);
            // Otherwise deferred values would be dropped with the domain, after all threads are
            // gone.
            one.domain().barrier();
        });
        let looks = thread::spawn(move || {
            let handle = other.pin();
            assert!(found.contains(&handle.get(&1).map(Value::get)));
        });
        changes.join().unwrap();
        looks.join().unwrap();
    });
}

#[test]
fn a_value_is_freed_after_its_readers() {
    let remove = |map: &Map| assert!(map.pin().remove(&1).is_some());
    look_beside(&[1], remove, [Some(10), None]);
    let replace = |map: &Map| assert!(map.pin().insert(1, Value::new(11)).is_some());
    look_beside(&[1], replace, [Some(10), Some(11)]);
    let insert = |map: &Map| assert!(map.pin().insert(1, Value::new(11)).is_none());
    look_beside(&[], insert, [None, Some(11)]);
}

#[test]
fn a_value_is_seen_whole_beside_a_resize() {
    let remove_moved = |map: &Map| {
        map.resize_to(2).unwrap();
        assert_eq!(map.pin().remove(&1).map(Value::get), Some(10));
    };
    look_beside(&[1, 2], remove_moved, [Some(10), None]);
}
