//! Models of references to values that other threads replace.

use std::hash::{BuildHasherDefault, DefaultHasher};

use corewise_atomic::sync::Arc;
use corewise_atomic::{model_bounded, thread};

use crate::{Config, Eviction, LockHash, Ttas};

type SpinTable = LockHash<BuildHasherDefault<DefaultHasher>, Ttas>;

/// One thread reads a value through a reference while another replaces it, first in its place,
/// then by one of another size.
fn a_reference_keeps_its_value(eviction: Eviction) {
    let config = Config::new(1024).partitions(1).element_bytes(1024);
    let table = SpinTable::with_hasher(&config.eviction(eviction), BuildHasherDefault::default());
    let table = Arc::new(table.unwrap());
    table.insert(1, &[1; 4]).unwrap();
    let shared = table.clone();
    let writer = thread::spawn(move || {
        shared.insert(1, &[2; 4]).unwrap();
        shared.insert(1, &[3; 64]).unwrap();
    });
    let value = table.get_ref(1).unwrap();
    assert!(value.iter().all(|byte| *byte == value[0]));
    drop(value);
    writer.join().unwrap();
    assert_eq!(table.get(1, |value| value[0]), Some(3));
}

#[test]
fn a_reference_keeps_its_value_under_bucket_locks() {
    model_bounded(3, || a_reference_keeps_its_value(Eviction::Random));
}

#[test]
fn a_reference_keeps_its_value_under_spin_locks() {
    model_bounded(3, || a_reference_keeps_its_value(Eviction::Lru));
}

/// One partition with one bucket, and no element.
fn random_table() -> Arc<SpinTable> {
    let config = Config::new(1024).partitions(1).element_bytes(1024);
    let config = config.eviction(Eviction::Random);
    Arc::new(SpinTable::with_hasher(&config, BuildHasherDefault::default()).unwrap())
}

fn assert_within_budget(table: &SpinTable) {
    let stats = table.stats();
    assert!(stats.used_bytes <= stats.budget_bytes, "{stats:?}");
}

/// The insertion reserves its memory before or after the reduction.
#[test]
fn an_insertion_keeps_to_a_budget_that_shrinks_meanwhile() {
    model_bounded(3, || {
        let table = random_table();
        let shared = table.clone();
        let other = thread::spawn(move || shared.set_budget_bytes(128).unwrap());
        let _ = table.insert(1, &[1; 200]);
        other.join().unwrap();
        assert_within_budget(&table);
    });
}

/// The reference keeps its element from eviction, or is given up before.
#[test]
fn a_reference_keeps_to_a_budget_that_shrinks_meanwhile() {
    model_bounded(3, || {
        let table = random_table();
        table.insert(1, &[1; 200]).unwrap();
        let shared = table.clone();
        let other = thread::spawn(move || shared.set_budget_bytes(128).unwrap());
        drop(table.get_ref(1));
        other.join().unwrap();
        assert_within_budget(&table);
    });
}

#[test]
fn elements_are_counted_before_they_can_be_removed() {
    model_bounded(3, || {
        let table = random_table();
        let shared = table.clone();
        let other = thread::spawn(move || shared.insert(1, &[1; 4]).unwrap());
        table.remove(1);
        assert!(table.stats().elements <= 1);
        other.join().unwrap();
    });
}
