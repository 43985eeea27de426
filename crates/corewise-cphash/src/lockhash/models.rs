//! Models of references to values that other threads replace.

use std::hash::{BuildHasherDefault, DefaultHasher};

use corewise_atomic::sync::Arc;
use corewise_atomic::{model_bounded, thread};

use crate::{Config, Eviction, LockHash, SpinLock};

type Table = LockHash<BuildHasherDefault<DefaultHasher>, SpinLock>;

/// One thread reads a value through a reference while another replaces it, first in its place,
/// then by one of another size.
fn a_reference_keeps_its_value(eviction: Eviction) {
    let config = Config::new(1024).partitions(1).element_bytes(1024);
    let table = Table::with_hasher(&config.eviction(eviction), BuildHasherDefault::default());
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
